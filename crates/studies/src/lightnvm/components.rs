//! Table 2 (thesis, chapter 6, section 6.1.2): what each component takes of one request of
//! 4 KiB. The paper has times, ours are instructions, which a busy machine does not change:
//! one request at a time, through the block layer, the page-mapped target and a drive that
//! takes no time and keeps nothing.

use blkmq::{Config, Context, Topology, build};
use device::Device;
use flash::RamMedium;
use hosting::inline::Inline;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Time};
use serde_json::json;
use targets::{Pblk, with_reserve};
use workload::{Tight, TightOptions};

use super::super::instructions::count;
use super::super::{Findings, Lab, Options, Reference, Row, Runs};
use super::stages::{Drive, Layer, Target, Way};
use super::{STUDY, through};
use crate::layers::refused;
use drive::error::Error;

const TABLE: &str = "table 2: one request of 4 KiB, by component";

/// The name of these cases on the command line.
pub const CASE: &str = "components";

/// The logical capacity: more than is written, so that nothing is collected.
const BYTES: u64 = 256 << 20;
/// What is not counted: first touches.
const WARM: u64 = 512;

/// A target on a drive without time that keeps nothing, all of it written where it is to be
/// read.
pub fn target<D: device::OpenChannel>(
    bytes: u64,
    kept: u32,
    filled: bool,
    over: impl FnOnce(Device<RamMedium>) -> D,
) -> Result<Pblk<D>, Error> {
    let (profile, data) = through::data("null", bytes * 5 / 4)?;
    let geometry = through::geometry(with_reserve(data))?;
    let mut medium = RamMedium::new(&geometry, kept)?;
    medium.populate(targets::held_blocks(&data), targets::own_blocks(&data), || true);
    let device = Device::new(&geometry, &profile.timing, medium)?;
    let mut pblk = Pblk::new(over(device), through::pblk_config(bytes, &data, 1))?;
    if filled {
        let len = bytes.min(256 << 10);
        let mut buffers = Buffer::carve(4, (len / BLOCK_BYTES) as usize * kept as usize)?;
        let write = |id: u64, buffer| request(id, len, buffer);
        let end = |done: BlockDone| (done.status, done.buffer);
        through::send(&mut pblk, Time::ZERO, bytes / len, &mut buffers, write, end)?;
    }
    Ok(pblk)
}

/// The write of this number, of those that follow each other.
fn request(id: u64, len: u64, buffer: Buffer) -> BlockReq {
    BlockReq::new(id, BlockOp::Write, id * len, len, buffer)
}

/// The block layer of one core over a drive in this process.
pub fn block_layer<D: blkmq::Driver>(driver: D) -> Result<Context<D::Queue>, Error> {
    let topology = Topology::new(1, 1).map_err(refused)?;
    let (mut contexts, _) = build(&Config::new(topology), driver).map_err(refused)?;
    Ok(contexts.remove(0))
}

/// The watched side: `read,COUNT` or `write,COUNT`.
pub fn be_watched(case: &str, options: &Options) -> Result<(), Error> {
    let wrong = || Error::Usage(format!("`{case}` is not read,COUNT or write,COUNT"));
    let (op, requests) = case.split_once(',').ok_or_else(wrong)?;
    let requests: u64 = requests.parse().map_err(|_| wrong())?;
    let op = match op {
        "read" => BlockOp::Read,
        "write" => BlockOp::Write,
        _ => return Err(wrong()),
    };
    let pblk = target(BYTES, 0, op == BlockOp::Read, Drive)?;
    let shape = pblk.shape();
    let context = block_layer(Inline::new(Target(pblk), shape, 1))?;
    let load = TightOptions { op, len: BLOCK_BYTES, depth: 1, batch: 1, seed: options.seed };
    let (mut tight, mut top) = (Tight::new(&shape, load)?, Way::new(Layer(context)));
    while tight.completed() < WARM {
        tight.turn(Time::ZERO, &mut top);
    }
    top.measure();
    stage_all(&mut tight, &mut top, WARM + requests);
    match tight.errors() {
        0 => Ok(()),
        n => Err(Error::Failed(format!("{n} requests failed"))),
    }
}

/// All of the requests that are counted, each as the others: a function of its own, so that
/// it is counted.
#[inline(never)]
fn stage_all<P>(tight: &mut Tight, top: &mut P, until: u64)
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    while tight.completed() < until {
        tight.turn(Time::ZERO, top);
    }
}

/// The components, and what the paper has of each, in ns, of a read and of a write.
const COMPONENTS: [(&str, [f64; 2]); 6] = [
    ("map: the request is made, its completion taken", [61.0, 61.0]),
    ("insert and dispatch: the block layer down", [211.0, 211.0]),
    ("translate: the target down", [45.0, 211.0]),
    ("the drive", [60.0, 60.0]),
    ("complete: the target up", [93.0, 97.0]),
    ("complete: the block layer up", [61.0, 61.0]),
];

/// Instructions of each component of a request.
fn counted(op: &str, requests: u64) -> Result<[f64; 6], String> {
    let marks = [
        "stage_all",
        "stage_layer_down",
        "stage_layer_up",
        "stage_target_down",
        "stage_target_up",
        "stage_device_down",
        "stage_device_up",
    ];
    let sums = count(STUDY.name, &format!("{CASE},{op},{requests}"), &marks)?;
    let each: Vec<f64> = sums.iter().map(|&sum| sum as f64 / requests as f64).collect();
    let [all, layer_down, layer_up, target_down, target_up, device_down, device_up] = each[..]
    else {
        return Err("not all was counted".into());
    };
    Ok([
        all - layer_down - layer_up,
        layer_down - target_down,
        target_down - device_down,
        device_down + device_up,
        target_up - device_up,
        layer_up - target_up,
    ])
}

/// The rows of this table.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let requests = lab.options.pick(20_000, 2_000);
    let mut both = Vec::new();
    for op in ["read", "write"] {
        lab.watch.phase(&format!("components of a {op}"));
        let command = format!("callgrind, --watched {CASE},{op},{requests}");
        lab.note_step(&format!("components of a {op}"), command, json!({ "requests": requests }));
        both.push(counted(op, requests));
    }
    Ok(Findings::new(rows(&both), vec![]))
}

fn rows(both: &[Result<[f64; 6], String>]) -> Vec<Row> {
    let runs = |op: usize, of: &dyn Fn(&[f64; 6]) -> f64| match &both[op] {
        Ok(all) => Runs::one(of(all)),
        Err(why) => Runs::one(f64::NAN).voided(why),
    };
    let mut rows = Vec::new();
    for (op, name) in ["read", "write"].into_iter().enumerate() {
        for (i, (what, paper)) in COMPONENTS.iter().enumerate() {
            let what = format!("{name}: {what} (paper: {} ns)", paper[op]);
            let why = "instructions, where the paper has times";
            let ours = runs(op, &|all| all[i]);
            rows.push(Row::shown(TABLE, &what, "instr.", Reference::Silent, ours, why));
        }
    }
    let translate = |op: usize| runs(op, &|all| all[2]);
    let target = |op: usize| runs(op, &|all| all[2] + all[4]);
    let says = "0.211 us of a write, 0.045 us of a read";
    let pair = [("translate: a write", translate(1)), ("a read", translate(0))];
    rows.push(Row::order(TABLE, "instr.", says, pair));
    let says = "\"a modest 0.133us for reads, and 0.308us for writes\"";
    let pair = [("translate and complete: a write", target(1)), ("a read", target(0))];
    rows.push(Row::order(TABLE, "instr.", says, pair));
    rows
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn what_is_watched_runs_and_is_refused() {
        let options = Options::default();
        for case in ["read,100", "write,100"] {
            be_watched(case, &options).unwrap();
        }
        for case in ["", "read", "trim,5", "read,x"] {
            assert_eq!(be_watched(case, &options).unwrap_err().exit_code(), 2, "{case}");
        }
    }

    #[test]
    fn what_was_not_counted_is_not_judged() {
        let read = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
        let write = [10.0, 20.0, 90.0, 40.0, 50.0, 60.0];
        let verdict = |both: &[_]| rows(both).last().unwrap().verdict();
        assert_eq!(verdict(&[Ok(read), Ok(write)]), Verdict::Pass);
        assert_eq!(verdict(&[Ok(write), Ok(read)]), Verdict::Fail);
        let none = verdict(&[Ok(read), Err("no valgrind".into())]);
        assert_eq!(none, Verdict::NotGated("no valgrind".into()));
    }
}
