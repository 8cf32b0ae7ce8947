//! Memory, asked for before it is taken.
//!
//! A drive's name says how large its tables are, and a short one may ask for
//! more than any machine has. What a configuration needs is counted by the
//! layers that take it and compared with what is free before anything is built;
//! tables are taken so that their failure is an error. What the blocks of a
//! drive in memory take as they are written counts where the drive is sure to
//! be written whole; otherwise the user is told. Where the system does not say
//! how much is free, nothing is refused.

use std::fs;

use device::Device;
use drivefile::DriveFile;
use flash::{Dimensions, Geometry, RamMedium};
use parity::Parity;
use port::lazy::SPARE;
use rustix::process::{Resource, getrlimit};

use crate::error::Error;
use crate::say::say;
use crate::spec::DriveConfig;

/// What a drive takes of memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Its tables, when it is full.
    pub tables: u64,
    /// Its blocks, when all of them were written; none of a drive in a file.
    pub blocks: u64,
}

impl Needs {
    /// Those of a drive. A drive with batched writes is taken for one without:
    /// both have a map of the same size.
    pub fn of(config: &DriveConfig) -> Needs {
        let shards = config.spec.shards;
        if shards > 1 {
            // The first is the largest.
            let Needs { tables, blocks } = Needs::of(&config.shard(0));
            let all = |each: u64| each.saturating_mul(shards.into());
            return Needs { tables: all(tables), blocks: all(blocks) };
        }
        let (geometry, above, timing) = (&config.geometry, &config.above, &config.profile.timing);
        let (kept, width) = (config.spec.store.kept(), config.spec.parity);
        let (empty, full) = RamMedium::memory(geometry, kept, held_blocks(config));
        let device = Device::<RamMedium>::tables(geometry, timing);
        let parity = match width {
            0 => 0,
            _ => Parity::<Device<RamMedium>>::tables(above),
        };
        let remote = config.remote_in_memory();
        let remote_size = remote.map_or(0, |remote| remote.size);
        let of_remote = remote.map_or(Needs { tables: 0, blocks: 0 }, Needs::of);
        let rows_at_once = width.saturating_sub(1).max(1);
        let ends = (config.spec.streams, timing.unreadable);
        let target = |one: DriveConfig| {
            if let Some(rules) = &one.rules {
                return ruled::tables(&one.above, one.size.max(remote_size), rules, kept);
            }
            let of_rows = (kept, rows_at_once, one.profile.write_buffer);
            targets::pblk::tables(&one.above, one.size, of_rows, ends)
        };
        let target = (0..config.targets()).map(|n| target(config.target(n)));
        let target = target.fold(0, u64::saturating_add);
        let tables = [empty, device, parity, target, of_remote.tables]
            .into_iter()
            .fold(0, u64::saturating_add);
        Needs { tables, blocks: (full - empty).saturating_add(of_remote.blocks) }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.tables.saturating_add(self.blocks)
    }
}

/// Blocks of flash that a drive's chunks hold at a time, about and at most.
pub fn held_blocks(config: &DriveConfig) -> u64 {
    if config.spec.is_shared() {
        return (0..config.targets()).map(|n| held_blocks(&config.target(n))).sum();
    }
    let data = Dimensions { chunks: config.data_chunks(), ..config.above.dimensions() };
    let (above, below) = (config.above.blocks(), config.geometry.blocks());
    let held = u128::from(targets::held_blocks(&data)) * u128::from(below) / u128::from(above);
    u64::try_from(held).unwrap_or(u64::MAX).min(below)
}

/// Refuses what needs more memory than is free, in words with both.
fn fits(needed: u64, words: impl FnOnce(String, String) -> String) -> Result<(), Error> {
    let free = free();
    if needed <= free { Ok(()) } else { Err(Error::Usage(words(amount(needed), amount(free)))) }
}

/// Refuses a drive whose tables do not fit.
pub fn ask(config: &DriveConfig) -> Result<(), Error> {
    let name = &config.name;
    fits(Needs::of(config).tables, |needed, free| {
        format!(
            "{name}: this drive needs {needed} of memory for its tables, and {free} are free: take \
             a smaller size, or fewer chunks and parallel units"
        )
    })
}

/// Refuses a drive in memory that does not fit when all of it is written.
pub fn ask_written(config: &DriveConfig) -> Result<(), Error> {
    let name = &config.name;
    fits(Needs::of(config).total(), |needed, free| {
        format!(
            "{name}: written whole, this drive takes {needed} of memory, and {free} are free: take \
             a smaller size, or store=checksum or none"
        )
    })
}

/// Tells the user of a drive in memory that does not fit when all of it is
/// written, which may never be.
pub fn tell(config: &DriveConfig) {
    if let Err(e) = ask_written(config) {
        say(e);
    }
}

/// An empty medium in memory for a drive, where the drive's tables fit.
pub fn medium(config: &DriveConfig, kept: u32) -> Result<RamMedium, Error> {
    ask(config)?;
    Ok(RamMedium::new(&config.geometry, kept)?)
}

/// Refuses a drive file whose own tables do not fit, before it is read or made.
pub fn ask_file(name: &str, geometry: &Geometry) -> Result<(), Error> {
    fits(DriveFile::tables(geometry), |needed, free| {
        format!(
            "{name}: this drive file needs {needed} of memory for what it tells of its chunks, and \
             {free} are free: take a drive of fewer chunks, or a machine with more"
        )
    })
}

/// Refuses queues of a block layer, or of what is below it, whose tables do not
/// fit.
pub fn ask_queues(needed: u64) -> Result<(), Error> {
    fits(needed, |needed, free| {
        format!(
            "the queues need {needed} of memory, and {free} are free: take fewer or shallower \
             ones, or fewer cores"
        )
    })
}

/// Refuses clients of a server more memory than there is: they could not have
/// it when they ask.
pub fn ask_clients(most: u64) -> Result<(), Error> {
    fits(most, |most, free| {
        format!("--client-memory lets clients take {most} of memory, and {free} are free: lower it")
    })
}

/// Refuses a run of YCSB that takes `needed`, when it is loaded, of what is
/// free.
pub fn ask_records(needed: u64) -> Result<(), Error> {
    fits(needed, |needed, free| {
        format!(
            "the drive and its records need {needed} of memory, and {free} are free: lower \
             --records, or the size of the drive"
        )
    })
}

/// Bytes in a few digits.
fn amount(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Bytes of memory that this process may take: what the system has available,
/// what its control groups leave, and what its limit of address space does, but for
/// some that is left for what cannot fail.
pub fn free() -> u64 {
    let all = [available(), left_in_groups(), left_of_address_space()];
    all.into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// The number behind a word, in a text of lines.
fn number(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split([' ', ':']).next() == Some(word))?;
    line[word.len()..].trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

fn available() -> Option<u64> {
    let about = fs::read_to_string("/proc/meminfo").ok()?;
    Some(number(&about, "MemAvailable")? << 10)
}

fn left_of_address_space() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let taken: u64 = pages.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(taken * rustix::param::page_size() as u64 + SPARE))
}

/// What the files of a control group are called.
struct GroupNames {
    limit: &'static str,
    taken: &'static str,
    /// What the system takes back when memory is asked for, in `memory.stat`.
    free: &'static [&'static str],
}

const VERSION_2: GroupNames = GroupNames {
    limit: "memory.max",
    taken: "memory.current",
    free: &["inactive_file", "active_file", "slab_reclaimable"],
};

const VERSION_1: GroupNames = GroupNames {
    limit: "memory.limit_in_bytes",
    taken: "memory.usage_in_bytes",
    free: &["total_inactive_file", "total_active_file"],
};

/// The least that a control group of this process, or one that it is in, leaves.
fn left_in_groups() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(left_in_group).min()
}

/// What is left in the groups of a line of `/proc/self/cgroup`: its hierarchy,
/// its controllers, and its path.
fn left_in_group(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (base, names) = match controllers {
        "" => ("/sys/fs/cgroup", &VERSION_2),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", &VERSION_1)
        }
        _ => return None,
    };
    let mut path = path.trim_matches('/');
    let mut least = None;
    loop {
        least = [least, left_at(&format!("{base}/{path}"), names)].into_iter().flatten().min();
        if path.is_empty() {
            return least;
        }
        path = path.rsplit_once('/').map_or("", |(outer, _)| outer);
    }
}

/// What a group leaves, what the system would take back counted as free. None
/// where it has no limit.
fn left_at(folder: &str, names: &GroupNames) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
    let limit: u64 = read(names.limit)?.trim().parse().ok()?;
    let taken: u64 = read(names.taken)?.trim().parse().ok()?;
    let about = read("memory.stat").unwrap_or_default();
    let free = names.free.iter().filter_map(|name| number(&about, name));
    let free = free.fold(0, u64::saturating_add);
    Some(limit.saturating_sub(taken.saturating_sub(free)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;

    fn config(name: &str) -> DriveConfig {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        spec.resolve().unwrap()
    }

    #[test]
    fn numbers_are_found_by_their_words() {
        let text = "MemFree:  12 kB\nMemAvailable:   3456 kB\ntotal_inactive_file 78\n";
        assert_eq!(number(text, "MemAvailable"), Some(3456));
        assert_eq!(number(text, "total_inactive_file"), Some(78));
        assert_eq!(number(text, "inactive_file"), None);
        assert!(free() > 1 << 20, "this test runs");
    }

    #[test]
    fn a_group_has_free_what_it_remembers_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(left_at(at, &VERSION_2), None, "nothing is said");
        put("memory.max", "max\n");
        put("memory.current", "900\n");
        assert_eq!(left_at(at, &VERSION_2), None, "it has no limit");
        put("memory.max", "1000\n");
        assert_eq!(left_at(at, &VERSION_2), Some(100));
        put(
            "memory.stat",
            "anon 300\nactive_file 400\ninactive_file 50\nslab_reclaimable 30\nslab 999\n",
        );
        assert_eq!(left_at(at, &VERSION_2), Some(580));
        put("memory.limit_in_bytes", "1000\n");
        put("memory.usage_in_bytes", "900\n");
        put("memory.stat", "active_file 1\ntotal_active_file 400\ntotal_inactive_file 50\n");
        assert_eq!(left_at(at, &VERSION_1), Some(550));
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let huge = config("mem:ref,store=none,groups=256,pus=256,chunks=16000000,pages=1");
        let refused = ask(&huge).unwrap_err().to_string();
        assert!(refused.contains("of memory for its tables, and "), "{refused}");
        assert!(medium(&huge, 0).is_err(), "before any of it is taken");
        let refused = ask_file("huge", &huge.geometry).unwrap_err().to_string();
        assert!(refused.starts_with("huge: this drive file needs "), "{refused}");
        let wide = config("mem:ref,size=1T,groups=256,pus=256,parity=4,pages=8");
        assert!(Needs::of(&wide).tables > 16 << 30, "{:?}", Needs::of(&wide));
        let large = config("mem:tlc,size=100T");
        assert!(ask_written(&large).is_err());
        let small = config("mem:tlc,size=64M");
        ask_file("small", &small.geometry).unwrap();
        ask(&small).unwrap();
    }
}
