//! Table 4 (thesis, chapter 6, section 6.2): writes of 1 MB to the page-mapped target, and
//! the same as values by key, on one drive: it takes no time, and moves no data, as theirs, or
//! keeps all. By the processor's time, in turns, and by instructions.

use device::Device;
use flash::{Dimensions, RamMedium};
use load::cpu::CpuTime;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, KvDone, KvOp, KvReq, PutIf, Time};
use serde_json::json;
use targets::{Kv, KvConfig};

use super::super::instructions::count;
use super::super::{Case, Findings, Lab, Reference, Row, Runs};
use super::{STUDY, components, through};
use drive::error::Error;

const TABLE: &str = "table 4: values of 1 MiB by key, and writes of pages";

/// The name of these cases on the command line.
pub const CASE: &str = "values";

const VALUE: u64 = 1 << 20;
/// Requests at once: in the paper throughput times latency is one value.
const DEPTH: usize = 1;
/// Of these, before anything is counted.
const WARM: u64 = 8;
/// Of which instructions are counted, of each way: fewer say what the first ones took.
const COUNTED: u64 = 64;

/// Puts so many values, of which `kept` bytes a block are kept; gives the processor's time of
/// one, in ns.
fn puts(count: u64, kept: u32) -> Result<f64, Error> {
    let (profile, data) = through::data("null", 2 * (count + WARM) * VALUE)?;
    let geometry = through::geometry(Dimensions { chunks: data.chunks + 8, ..data })?;
    let mut medium = RamMedium::new(&geometry, kept)?;
    medium.populate(geometry.blocks(), 0, || true);
    let device = Device::new(&geometry, &profile.timing, medium)?;
    let config = KvConfig { keys: 2 * (count + WARM), ..KvConfig::for_geometry(&geometry) };
    let mut kv = Kv::new(device, config).map_err(|e| Error::Failed(e.to_string()))?;
    let mut buffers = buffers(kept)?;
    let put = |from: u64| {
        move |id: u64, value: Buffer| {
            let mut key = Buffer::zeroed(8).expect("8 bytes of memory");
            key.bytes_mut().copy_from_slice(&(from + id).to_le_bytes());
            let op = KvOp::Put(PutIf::Any);
            KvReq { id, op, durable: false, key, len: VALUE, value }
        }
    };
    let end = |done: KvDone| (done.status, done.value);
    let now = through::send(&mut kv, Time::ZERO, WARM, &mut buffers, put(0), end)?;
    counted(count, || through::send(&mut kv, now, count, &mut buffers, put(WARM), end).map(|_| ()))
}

/// Writes as much to the page-mapped target; gives the processor's time of one, in ns.
fn writes(count: u64, kept: u32) -> Result<f64, Error> {
    let mut pblk = components::target((count + WARM) * VALUE, kept, false, |device| device)?;
    let mut buffers = buffers(kept)?;
    let write = |from: u64| {
        move |id: u64, buffer: Buffer| {
            BlockReq::new(id, BlockOp::Write, (from + id) * VALUE, VALUE, buffer)
        }
    };
    let end = |done: BlockDone| (done.status, done.buffer);
    let now = through::send(&mut pblk, Time::ZERO, WARM, &mut buffers, write(0), end)?;
    counted(count, || {
        through::send(&mut pblk, now, count, &mut buffers, write(WARM), end).map(|_| ())
    })
}

/// What is kept of a value's bytes, for each request at once.
fn buffers(kept: u32) -> Result<Vec<Buffer>, Error> {
    Ok(Buffer::carve(DEPTH, (VALUE / BLOCK_BYTES) as usize * kept as usize)?)
}

/// The processor's time of one of `count` requests, in ns.
fn counted(count: u64, run: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let before = CpuTime::now();
    stage_values(run)?;
    let (user, system) = CpuTime::now().since(&before);
    Ok((user + system) * 1e9 / count as f64)
}

/// What is counted: a function of its own.
#[inline(never)]
fn stage_values(run: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    run()
}

/// How each is called, and what does it.
type Way = (&'static str, fn(u64, u32) -> Result<f64, Error>);
const WAYS: [Way; 2] = [("pages", writes), ("key", puts)];

/// What is kept of a block, and how that is called.
const KEPT: [(u32, &str); 2] = [(0, "nothing moved"), (4096, "all kept")];

/// The watched side: `pages,COUNT,KEPT` or `key,COUNT,KEPT`.
pub fn be_watched(case: &str) -> Result<(), Error> {
    let wrong = || Error::Usage(format!("`{case}` is not pages|key,COUNT,0|4096"));
    let [name, count, kept] = case.split(',').collect::<Vec<_>>()[..] else {
        return Err(wrong());
    };
    let (_, run) = WAYS.into_iter().find(|(known, _)| *known == name).ok_or_else(wrong)?;
    let (kept, _) = KEPT.into_iter().find(|(known, _)| *known == number(kept)).ok_or_else(wrong)?;
    run(count.parse().map_err(|_| wrong())?, kept).map(|_| ())
}

/// A number, or one that is not kept of any block.
fn number(text: &str) -> u32 {
    text.parse().unwrap_or(u32::MAX)
}

/// The rows of this table.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let requests = lab.options.pick(256, 32);
    let all: Vec<(Way, (u32, &str))> =
        KEPT.into_iter().flat_map(|kept| WAYS.map(|way| (way, kept))).collect();
    let case = |&((name, _), (kept, how)): &(Way, (u32, &str))| Case {
        what: format!("1 MiB by {name}, {how}"),
        command: format!("{requests} of 1 MiB, {DEPTH} at once, by {name}, profile null"),
        configuration: json!({ "profile": "null", "requests": requests, "kept": kept }),
    };
    let cases: Vec<Case> = all.iter().map(case).collect();
    // The processor's time is this process's own, whoever else has some.
    let turns = lab.by_turns(&cases, |i| {
        let ((_, run), (kept, _)) = all[i];
        Ok((run(requests, kept)?, None))
    })?;
    let times: Vec<Runs> = turns.iter().map(|turns| turns.runs(|&ns| ns)).collect();
    lab.watch.phase("instructions of 1 MiB");
    let instructions = |&((name, _), (kept, _)): &(Way, (u32, &str))| {
        let case = format!("{CASE},{name},{COUNTED},{kept}");
        match count(STUDY.name, &case, &["stage_values"]) {
            Ok(sums) => Runs::one(sums[0] as f64 / COUNTED as f64),
            Err(why) => Runs::one(f64::NAN).voided(why),
        }
    };
    let counted: Vec<Runs> = all.iter().map(instructions).collect();
    let command = format!("callgrind, --watched {CASE},key,{COUNTED},0 and so on");
    lab.note_step("instructions of 1 MiB", command, json!({ "requests": COUNTED }));
    Ok(Findings::new(rows(&times, &counted), vec![]))
}

/// How many times as much one by pages takes as one by key.
fn gain(pair: &[Runs]) -> Runs {
    pair[0].with(&pair[1], |pages, key| pages / key)
}

/// The rule is the paper's gain in throughput: its device takes no time, and one value is
/// under way at once, so that a throughput is the reciprocal of the processor's time. Here
/// only that time is taken, and it is judged once.
fn rows(times: &[Runs], counted: &[Runs]) -> Vec<Row> {
    let faster = "28.1GB/s and 44.7GB/s: \"a corresponding 55.8% improvement in throughput\"";
    let copied = "their device moves nothing; here what is kept is copied once by key, twice as \
                  pages, and memory takes no more than so much a second";
    let at_least =
        |what: &str, ours| Row::within(TABLE, what, "x", faster, ours, 1.558..=f64::INFINITY);
    let took = |what: &str, runs: &Runs| {
        let ours = runs.map(|ns| ns / 1e3);
        let why = "times of one thread of this machine; the paper has GB/s";
        Row::shown(TABLE, what, "us", Reference::Silent, ours, why)
    };
    vec![
        at_least("processor's time of 1 MiB, pages over by key, nothing moved", gain(&times[..2])),
        at_least("instructions of 1 MiB, pages over by key, nothing moved", gain(&counted[..2])),
        at_least("the same, all kept", gain(&counted[2..])),
        Row::shown(
            TABLE,
            "processor's time of 1 MiB, pages over by key, all kept",
            "x",
            Reference::Silent,
            gain(&times[2..]),
            copied,
        ),
        took("1 MiB as pages, nothing moved", &times[0]),
        took("1 MiB by key, nothing moved", &times[1]),
        took("1 MiB as pages, all kept", &times[2]),
        took("1 MiB by key, all kept", &times[3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_runs_and_is_refused() {
        for case in ["pages,4,0", "key,4,0", "pages,4,4096", "key,4,4096"] {
            be_watched(case).unwrap();
        }
        for case in ["", "key", "keys,5,0", "key,x,0", "key,5,7"] {
            assert_eq!(be_watched(case).unwrap_err().exit_code(), 2, "{case}");
        }
    }
}
