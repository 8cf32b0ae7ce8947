//! File systems by the number of threads (Seppanen, section V.C, figures 13 and 14), live.
//!
//! The drive is the paper's, slowed ([`SLOWED`]), so that the kernel's path here, a way
//! through three processes, is to it about what their kernel was to theirs. Its link sets
//! what it reads at most. Reads go past the page cache, as a set of files much larger than
//! it would; writes go through it and are synced in the end, or each for itself. Rates are
//! of files that were written whole before. Beside them stands the path without a file
//! system, and, in one process, without a kernel. Fails as the kernel's path does.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use measure::units::exactly;
use port::BLOCK_BYTES;

use super::super::blocking::{Amount, Call, Calls, Sync};
use super::super::file::fill;
use super::super::kernel_path::{Device, FileSystem};
use super::super::kernel_runs::{Measured, by_turns, case, open};
use super::super::ull::live::{Asked, Job, Stage, Way};
use super::super::{Lab, Reference, Row, Runs};
use super::method::{LINK, SLOWED, SLOWED_LINK, sized};
use drive::error::Error;

const FIGURE_13: &str = "Seppanen, figure 13, live: random 4 KiB reads of files, drive slowed";
const FIGURE_14: &str = "Seppanen, figure 14, live: random 4 KiB writes to files, drive slowed";
const PATHS: &str = "ours, live: the ways to the same drive, 1 thread";

/// Bytes of a file.
const FILE: u64 = 16 << 20;
/// Threads that read.
const READERS: [u32; 4] = [1, 16, 64, 128];
/// Threads that write, with one sync in the end.
const WRITERS: [u32; 2] = [1, 64];

/// On what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// The block device.
    Raw,
    /// A file.
    File(FileSystem),
}

/// What one run gave.
#[derive(Clone, Debug, Default)]
struct Ran {
    /// Reads a second, by threads.
    reads: Vec<f64>,
    /// What a read takes alone, in us.
    read: f64,
    /// Buffered writes a second, by threads.
    writes: Vec<f64>,
    /// Writes a second, each with its sync.
    synced: f64,
    /// Blocks that the drive was asked to write for each of these.
    blocks: f64,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Scale {
    time: Duration,
    writes: u64,
    synced: u64,
    seed: u64,
}

/// What is measured: the path, then file systems.
fn all(quick: bool) -> Vec<On> {
    let few = [FileSystem::Ext2, FileSystem::Ext4];
    let kinds = if quick { &few[..] } else { &FileSystem::ALL[..] };
    std::iter::once(On::Raw).chain(kinds.iter().map(|&kind| On::File(kind))).collect()
}

fn name(on: On) -> &'static str {
    match on {
        On::Raw => "no file system",
        On::File(kind) => kind.name(),
    }
}

/// All rows.
pub fn rows(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let kinds = all(lab.options.quick);
    let (time, writes, synced) = lab.options.pick((250, 4096, 40), (60, 1024, 12));
    let seed = lab.options.seed;
    let scale = Scale { time: Duration::from_millis(time), writes, synced, seed };
    // xfs takes 300 MB.
    let size = lab.options.pick("384M", "96M");
    let (slowed, null) = (sized(SLOWED, size), sized("null", size));
    let mut cases: Vec<_> = kinds.iter().map(|&on| case(name(on), &slowed)).collect();
    cases.push(case("no file system, a drive without time", &null));
    let mut drives = vec![&slowed[..]; kinds.len()];
    drives.push(&null);
    let ran = by_turns(lab, &drives, &cases, |i, device| match kinds.get(i) {
        Some(&on) => run(on, scale, device),
        None => alone(scale, device),
    })?;
    let bypass = bypass(lab)?;
    let mut rows = read_rows(&kinds, &ran);
    rows.extend(write_rows(&kinds, &ran));
    rows.extend(path_rows(&kinds, &ran, bypass));
    Ok(rows)
}

fn run(on: On, scale: Scale, device: &Device) -> Result<Ran, Error> {
    match on {
        On::Raw => measure(on, device.path(), scale, device),
        On::File(kind) => {
            let mounted = device.mount(kind)?;
            let path = mounted.dir().join("file");
            let file = File::create(&path).and_then(|file| fill(&file, FILE));
            file.map_err(|e| Error::system("write a file", &e))?;
            measure(on, &path, scale, device)
        }
    }
}

fn measure(on: On, path: &Path, scale: Scale, device: &Device) -> Result<Ran, Error> {
    let (direct, buffered) = (open(path, true)?, open(path, false)?);
    let mut ran = alone_with(&direct, scale)?;
    for threads in READERS {
        let amount = Amount::Time(scale.time);
        let calls = Calls { call: Call::Read, threads, amount, seed: scale.seed };
        ran.reads.push(calls.run(&direct, FILE)?.rate);
    }
    if on == On::Raw {
        return Ok(ran);
    }
    for threads in WRITERS {
        let amount = Amount::Calls(scale.writes / u64::from(threads));
        let call = Call::Write(Sync::InTheEnd);
        let calls = Calls { call, threads, amount, seed: scale.seed };
        ran.writes.push(calls.run(&buffered, FILE)?.rate);
    }
    let (call, amount) = (Call::Write(Sync::Each), Amount::Calls(scale.synced));
    let before = device.figures().counters().user;
    let called = Calls { call, threads: 1, amount, seed: scale.seed }.run(&buffered, FILE)?;
    let blocks = device.figures().counters().user - before;
    ran.synced = called.rate;
    ran.blocks = blocks as f64 / called.count as f64;
    Ok(ran)
}

/// A read alone.
fn alone_with(direct: &File, scale: Scale) -> Result<Ran, Error> {
    let amount = Amount::Time(scale.time);
    let calls = Calls { call: Call::Read, threads: 1, amount, seed: scale.seed };
    Ok(Ran { read: calls.run(direct, FILE)?.mean, ..Ran::default() })
}

fn alone(scale: Scale, device: &Device) -> Result<Ran, Error> {
    alone_with(&open(device.path(), true)?, scale)
}

/// A read alone in us, in one process.
fn bypass(lab: &mut Lab) -> Result<Runs, Error> {
    let Some(stage) = Stage::new(lab)? else {
        return Ok(Runs::new(vec![]).voided("it takes two cores"));
    };
    let job = Job { drive: SLOWED, way: Way::Bypass, asked: Asked::random_reads(BLOCK_BYTES) };
    Ok(stage.all(lab, &[job])?[0].runs(|ran| ran.mean))
}

const NO_BAR: &str = "the figure has no numbers in the text";

fn read_rows(kinds: &[On], of: &Measured<Ran>) -> Vec<Row> {
    let mut rows = Vec::new();
    let most = SLOWED_LINK / BLOCK_BYTES as f64;
    let at = |i, threads: usize| of.figure(i, move |ran: &Ran| ran.reads[threads]);
    for (t, threads) in READERS.iter().enumerate() {
        for (i, &on) in kinds.iter().enumerate() {
            let what = format!("{}, {}", name(on), exactly((*threads).into(), "thread"));
            rows.push(Row::shown(FIGURE_13, &what, "IOPS", Reference::Silent, at(i, t), NO_BAR));
        }
    }
    let files: Vec<usize> = (0..kinds.len()).filter(|&i| kinds[i] != On::Raw).collect();
    for (t, threads) in READERS.iter().enumerate().filter(|(_, threads)| **threads >= 64) {
        for &i in &files {
            rows.push(Row::band(
                FIGURE_13,
                &format!("{}, {threads} threads: of the bus", name(kinds[i])),
                "IOPS",
                Reference::Model(most),
                at(i, t),
                0.9..=1.05,
            ));
        }
        let says = "\"different filesystems show little variation in performance when reading\"";
        let there: Vec<_> = files.iter().filter(|&&i| of.is_there(i)).map(|&i| at(i, t)).collect();
        let what = format!("fastest / slowest file system, {threads} threads");
        rows.push(Row::within(FIGURE_13, &what, "x", says, variation(&there), 1.0..=1.25));
    }
    rows
}

/// The greatest rate over the least, of several.
fn variation(rates: &[Runs]) -> Runs {
    let all = |f: fn(f64, f64) -> f64| rates.iter().cloned().reduce(|a, b| a.with(&b, f));
    match (all(f64::max), all(f64::min)) {
        (Some(greatest), Some(least)) if rates.len() > 1 => {
            greatest.with(&least, |greatest, least| greatest / least)
        }
        _ => Runs::new(vec![]).voided("it takes two file systems"),
    }
}

fn write_rows(kinds: &[On], of: &Measured<Ran>) -> Vec<Row> {
    let mut rows = Vec::new();
    let says = "\"single-thread write workloads are able to perform as well or better as \
                multi-threaded workloads\"";
    let files: Vec<(usize, FileSystem)> = (kinds.iter().enumerate())
        .filter_map(|(i, on)| if let On::File(kind) = on { Some((i, *kind)) } else { None })
        .collect();
    let shown = |what: &str, unit, runs, why| {
        Row::shown(FIGURE_14, what, unit, Reference::Silent, runs, why)
    };
    for &(i, kind) in &files {
        let at = |w: usize| of.figure(i, move |ran: &Ran| ran.writes[w]);
        for (w, threads) in WRITERS.iter().enumerate() {
            let threads = exactly((*threads).into(), "thread");
            let what = format!("{}, {threads}, one sync in the end", kind.name());
            rows.push(shown(&what, "IOPS", at(w), SECONDS));
        }
        let ratio = at(0).with(&at(1), |one, many| one / many);
        let what = format!("{}: 1 thread / {} threads", kind.name(), WRITERS[1]);
        rows.push(Row::within(FIGURE_14, &what, "x", says, ratio, 0.9..=f64::INFINITY));
    }
    let synced = |i| of.figure(i, |ran: &Ran| ran.synced);
    let blocks = |i| of.count(i, |ran: &Ran| ran.blocks);
    for &(i, kind) in &files {
        let what = |of: &str| format!("{}, 1 thread, each with a sync{of}", kind.name());
        rows.push(shown(&what(""), "IOPS", synced(i), OWN));
        rows.push(shown(&what(": blocks"), "a write", blocks(i), OWN));
    }
    let of_kind = |kind| files.iter().find(|(_, known)| *known == kind).map(|(i, _)| *i);
    let Some(bare) = of_kind(FileSystem::Ext2) else { return rows };
    let journal = "\"journaling filesystems ext3, ext4 and xfs have lower effective throughput \
                   than ext2, which performs no journaling\"";
    for kind in [FileSystem::Ext3, FileSystem::Ext4, FileSystem::Xfs] {
        let Some(i) = of_kind(kind) else { continue };
        let name = |of: &str, kind: FileSystem| format!("{}{of}", kind.name());
        let rates = [
            (name(", each with a sync", FileSystem::Ext2), synced(bare)),
            (name("", kind), synced(i)),
        ];
        let is_log = kind == FileSystem::Xfs;
        let row = Row::order(FIGURE_14, "IOPS", journal, rates);
        rows.push(row.explained_where(is_log, LOG));
        let amounts =
            [(name(", blocks", kind), blocks(i)), (name("", FileSystem::Ext2), blocks(bare))];
        let row = Row::order(FIGURE_14, "a write", journal, amounts);
        rows.push(row.explained_where(is_log, LOG));
    }
    rows
}

/// Why xfs is not behind.
const LOG: &str = "a sync of xfs asks the drive for fewer blocks than one of ext2 (above): it \
                   writes its log, and ext2 each block of metadata where it stands";

/// Why the bars of figure 14 are not held against each other.
const SECONDS: &str = "in a run of so few writes a journal has next to nothing to write but in the \
                       end: what it costs is judged of writes with a sync each";
const OWN: &str = "the paper has no such writes: ours, to see the journal";

/// What a way costs.
fn path_rows(kinds: &[On], of: &Measured<Ran>, bypass: Runs) -> Vec<Row> {
    let read = |i| of.figure(i, |ran: &Ran| ran.read);
    let silent = "the paper has no such figure: what a way costs is this machine's";
    let shown = |what: &str, runs| Row::shown(PATHS, what, "us", Reference::Silent, runs, silent);
    let raw = read(0);
    let mut rows = vec![
        shown("a read in one process, polled", bypass.clone()),
        shown("on the kernel's path", raw.clone()),
        shown("the same, a drive without time: the path alone", read(kinds.len())),
    ];
    for (i, &on) in kinds.iter().enumerate().skip(1) {
        rows.push(shown(&format!("of a file, {}", name(on)), read(i)));
    }
    let ratio = raw.with(&bypass, |kernel, bypass| kernel / bypass);
    rows.push(Row::shown(
        PATHS,
        "kernel's path / one process",
        "x",
        Reference::Silent,
        ratio,
        "it follows from what is built: the kernel's path has all that the drive has, and its own",
    ));
    rows
}

/// What the slowed drive stands for, in words.
pub fn slowed() -> String {
    format!(
        "drive slowed: {SLOWED}: its link takes {:.0} instead of {:.0} MB/s, its flash four times \
         as long, since the kernel's path here is slower than their kernel, and lets about ten \
         requests through at once",
        SLOWED_LINK / 1e6,
        LINK / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variation_takes_two() {
        let of =
            |rates: &[f64]| variation(&rates.iter().map(|&x| Runs::one(x)).collect::<Vec<_>>());
        assert_eq!((of(&[2.0, 4.0, 3.0]), of(&[2.0]).median().is_nan()), (Runs::one(2.0), true));
        assert!(of(&[2.0]).void().is_some() && of(&[]).void().is_some());
    }
}
