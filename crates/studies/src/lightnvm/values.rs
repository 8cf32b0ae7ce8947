//! Table 4 (thesis, chapter 6, section 6.2): writes of 1 MB to the page-mapped target, and
//! the same as values by key, on one drive: it takes no time and keeps all data. By the
//! processor's time, in turns, and by instructions.

use device::Device;
use flash::{Dimensions, RamMedium};
use load::cpu::CpuTime;
use port::{BlockDone, BlockOp, BlockReq, Buffer, KvDone, KvOp, KvReq, PutIf, Time};
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
/// What the medium keeps of a block: all.
const KEPT: u32 = 4096;
/// Requests at once.
const DEPTH: usize = 8;
/// Of these, before anything is counted.
const WARM: u64 = 8;

/// Puts so many values; gives the processor's time of one, in ns.
fn puts(count: u64) -> Result<f64, Error> {
    let (profile, data) = through::data("null", 2 * (count + WARM) * VALUE)?;
    let geometry = through::geometry(Dimensions { chunks: data.chunks + 8, ..data })?;
    let mut medium = RamMedium::new(&geometry, KEPT)?;
    medium.populate(geometry.blocks(), 0, || true);
    let device = Device::new(&geometry, &profile.timing, medium)?;
    let config = KvConfig { keys: 2 * (count + WARM), ..KvConfig::for_geometry(&geometry) };
    let mut kv = Kv::new(device, config).map_err(|e| Error::Failed(e.to_string()))?;
    let mut buffers = Buffer::carve(DEPTH, VALUE as usize)?;
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
fn writes(count: u64) -> Result<f64, Error> {
    let mut pblk = components::target((count + WARM) * VALUE, KEPT, false, |device| device)?;
    let mut buffers = Buffer::carve(DEPTH, VALUE as usize)?;
    let write = |from: u64| {
        move |id: u64, buffer: Buffer| {
            let (op, offset) = (BlockOp::Write, (from + id) * VALUE);
            let (fua, len) = (false, VALUE);
            BlockReq { id, op, fua, placement: 0, queue: 0, offset, len, buffer }
        }
    };
    let end = |done: BlockDone| (done.status, done.buffer);
    let now = through::send(&mut pblk, Time::ZERO, WARM, &mut buffers, write(0), end)?;
    counted(count, || {
        through::send(&mut pblk, now, count, &mut buffers, write(WARM), end).map(|_| ())
    })
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
type Way = (&'static str, fn(u64) -> Result<f64, Error>);
const WAYS: [Way; 2] = [("pages", writes), ("key", puts)];

/// The watched side: `pages,COUNT` or `key,COUNT`.
pub fn be_watched(case: &str) -> Result<(), Error> {
    let wrong = || Error::Usage(format!("`{case}` is not pages,COUNT or key,COUNT"));
    let (name, count) = case.split_once(',').ok_or_else(wrong)?;
    let (_, run) = WAYS.into_iter().find(|(known, _)| *known == name).ok_or_else(wrong)?;
    run(count.parse().map_err(|_| wrong())?).map(|_| ())
}

/// The rows of this table.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let requests = lab.options.pick(256, 32);
    let case = |(name, _): Way| Case {
        what: format!("1 MiB by {name}"),
        command: format!("{requests} of 1 MiB, {DEPTH} at once, by {name}, profile null"),
        configuration: json!({ "profile": "null", "requests": requests }),
    };
    // The processor's time is this process's own, whoever else has some.
    let turns = lab.by_turns(&WAYS.map(case), |i| Ok(((WAYS[i].1)(requests)?, None)))?;
    let [pages, key] = [0, 1].map(|i| turns[i].runs(|&ns| ns));
    let few = lab.options.pick(64, 8);
    lab.watch.phase("instructions of 1 MiB");
    let instructions = |name: &str| {
        let case = format!("{CASE},{name},{few}");
        match count(STUDY.name, &case, &["stage_values"]) {
            Ok(sums) => Runs::one(sums[0] as f64 / few as f64),
            Err(why) => Runs::one(f64::NAN).voided(why),
        }
    };
    let counted = WAYS.map(|(name, _)| instructions(name));
    let command = format!("callgrind, --watched {CASE},key,{few} and {CASE},pages,{few}");
    lab.note_step("instructions of 1 MiB", command, json!({ "requests": few }));
    Ok(Findings::new(rows(&pages, &key, &counted), vec![]))
}

fn rows(pages: &Runs, key: &Runs, [of_pages, of_key]: &[Runs; 2]) -> Vec<Row> {
    let faster = "28.1GB/s and 44.7GB/s: \"a corresponding 55.8% improvement in throughput\"";
    let less = "67.20% and 50.01%: \"a 17.2% reduction in CPU-usage in kernel-space\"";
    let gain = |key: &Runs, pages: &Runs| pages.with(key, |pages, key| pages / key);
    let at_least = 1.558..=f64::INFINITY;
    let rate = |what: &str, paper: f64, runs: &Runs| {
        let ours = runs.map(|ns| VALUE as f64 / ns);
        let why = "of one thread of this machine, which copies the data; theirs moves none";
        Row::shown(TABLE, what, "GB/s", Reference::Paper(paper), ours, why)
    };
    vec![
        Row::within(
            TABLE,
            "throughput, by key over pages",
            "x",
            faster,
            gain(key, pages),
            at_least.clone(),
        ),
        Row::within(
            TABLE,
            "the processor's time of 1 MiB, by key over pages",
            "x",
            less,
            key.with(pages, |key, pages| key / pages),
            0.0..=0.83,
        ),
        Row::within(
            TABLE,
            "instructions of 1 MiB, pages over by key",
            "x",
            faster,
            gain(of_key, of_pages),
            at_least,
        ),
        rate("pages", 28.1, pages),
        rate("by key", 44.7, key),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_runs_and_is_refused() {
        for case in ["pages,4", "key,4"] {
            be_watched(case).unwrap();
        }
        for case in ["", "key", "keys,5", "key,x"] {
            assert_eq!(be_watched(case).unwrap_err().exit_code(), 2, "{case}");
        }
    }
}
