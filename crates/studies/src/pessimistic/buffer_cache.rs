//! The buffer cache (Seppanen, section V.D), live: what it costs where it misses, and what
//! a hit takes. Latencies are medians. Fails as the kernel's path does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use port::{BLOCK_BYTES, Buffer};
use rustix::fs::Advice;
use workload::Rng;

use super::super::file::fill;
use super::super::kernel_path::{Device, FileSystem};
use super::super::kernel_runs::{Measured, by_turns, case, open};
use super::super::{Lab, Reference, Row, Runs};
use super::method::{PCIE, sized};
use drive::error::Error;

const SECTION: &str = "Seppanen, section V.D, live: 4 KiB random reads and the buffer cache";

/// Of a drive.
const SIZE: &str = "256M";
/// Bytes that are read of.
const BYTES: u64 = 64 << 20;

/// How long a drive that was written rests.
const REST: Duration = Duration::from_millis(300);

/// How it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The device, past the cache.
    Direct,
    /// The device, through the cache.
    Raw,
    /// A file, through the cache.
    File(FileSystem),
    /// The device, past the cache, of a drive without time.
    Alone,
}

const ALL: [How; 4] = [How::Direct, How::Raw, How::File(FileSystem::Ext2), How::Alone];

/// Medians in us: of a few hundred reads a mean is that of the few that met something else.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    /// Of reads of what was not read yet.
    first: f64,
    /// Of the same again.
    again: f64,
}

/// All rows.
pub fn rows(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let (reads, seed) = (lab.options.pick(2000, 200), lab.options.seed);
    let (pcie, null) = (sized(PCIE, SIZE), sized("null", SIZE));
    let drives = ALL.map(|how| if how == How::Alone { &null[..] } else { &pcie[..] });
    let cases = ALL.map(|how| {
        let what = match how {
            How::Direct => "device, O_DIRECT",
            How::Raw => "device, buffered",
            How::File(kind) => kind.name(),
            How::Alone => "device, O_DIRECT, a drive without time",
        };
        case(&format!("reads by one thread: {what}"), if how == How::Alone { &null } else { &pcie })
    });
    let ran = by_turns(lab, &drives, &cases, |i, device| run(ALL[i], reads, seed, device))?;
    let alone = lab.iops("a lone read, virtual time", &format!("{pcie} {LONE}"))?;
    Ok(told(&ran, alone.map(|iops| 1e6 / iops)))
}

/// A read at a time of a full drive.
const LONE: &str = "--rw randread --ios 5k --precondition seq";

fn run(how: How, reads: usize, seed: u64, device: &Device) -> Result<Ran, Error> {
    let How::File(kind) = how else {
        let file = open(device.path(), how != How::Raw)?;
        return twice(&file, reads, seed);
    };
    let path = {
        let mounted = device.mount(kind)?;
        let path = mounted.dir().join("file");
        let file = File::create(&path).and_then(|file| fill(&file, BYTES));
        file.map_err(|e| Error::system("write a file", &e))?;
        path
    };
    // Mounted anew, nothing of it is in the cache; and the drive comes to rest.
    let _mounted = device.mount_again(kind)?;
    std::thread::sleep(REST);
    twice(&open(&path, false)?, reads, seed)
}

/// Reads blocks, each another one, and then the same again.
fn twice(file: &File, reads: usize, seed: u64) -> Result<Ran, Error> {
    // Of what nobody asked for nothing is to be read ahead.
    rustix::fs::fadvise(file, 0, None, Advice::Random)
        .map_err(|e| Error::system("advise", &e.into()))?;
    let places = places(reads, seed);
    let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize)?;
    let mut pass = || {
        let mut all = Vec::with_capacity(places.len());
        for &at in &places {
            let began = Instant::now();
            let read = file.read_exact_at(buffer.bytes_mut(), at);
            read.map_err(|e| Error::system("read", &e))?;
            all.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Ok::<f64, Error>(Runs::new(all).median())
    };
    Ok(Ran { first: pass()?, again: pass()? })
}

/// Blocks, each another one.
fn places(count: usize, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed, 0);
    let mut all: Vec<u64> = (0..BYTES / BLOCK_BYTES).collect();
    for i in 0..count {
        let j = i + rng.below((all.len() - i) as u64) as usize;
        all.swap(i, j);
    }
    all.truncate(count);
    all.iter().map(|block| block * BLOCK_BYTES).collect()
}

const THEIRS: &str = "their host and drive; with how many threads the text does not say";

fn told(of: &Measured<Ran>, drive: Runs) -> Vec<Row> {
    let first = |i| of.figure(i, |ran: &Ran| ran.first);
    let [direct, raw, file, path] = [0, 1, 2, 3].map(first);
    let hit = of.figure(2, |ran: &Ran| ran.again);
    let shown = |what: &str, unit, paper, runs: Runs, why| {
        Row::shown(SECTION, what, unit, paper, runs, why)
    };
    let (miss_of, hit_of) = (Reference::Paper(153.0), Reference::Paper(7.0));
    let same = "\"there was no measurable difference in latency\"";
    let beside = |what: &str, runs: &Runs| {
        let ratio = runs.with(&direct, |of, direct| of / direct);
        Row::within(SECTION, what, "x", same, ratio, 0.8..=1.25)
    };
    let useful = "\"the buffer cache is still useful when using fast SSDs\"";
    let sum = path.with(&drive_each(&path, &drive), |path, drive| path + drive);
    vec![
        shown("device, O_DIRECT", "us", miss_of.clone(), direct.clone(), THEIRS),
        shown("device, buffered: a miss", "us", miss_of.clone(), raw.clone(), THEIRS),
        shown("ext2, buffered: a miss", "us", miss_of, file.clone(), THEIRS),
        shown("ext2, buffered: a hit", "us", hit_of, hit.clone(), THEIRS),
        beside("device, buffered / O_DIRECT", &raw),
        beside("ext2, buffered / device, O_DIRECT", &file),
        Row::order(SECTION, "us", useful, [("ext2: a miss", file.clone()), ("a hit", hit)]),
        shown("the path alone, a drive without time", "us", Reference::Silent, path, OWN),
        shown("the drive alone, virtual time", "us", Reference::Silent, drive.clone(), OWN),
        Row::band(
            SECTION,
            "device, O_DIRECT: of path and drive alone",
            "us",
            Reference::Model(sum.median()),
            direct,
            0.75..=1.25,
        ),
        shown(
            "the drive's part of a miss",
            "%",
            Reference::Silent,
            file.with(&drive_each(&file, &drive), |miss, drive| 100.0 * drive / miss),
            OWN,
        ),
    ]
}

const OWN: &str = "the paper does not tell it";

/// The drive's time, which is one, for each run.
fn drive_each(of: &Runs, drive: &Runs) -> Runs {
    of.map(|_| drive.median())
}
