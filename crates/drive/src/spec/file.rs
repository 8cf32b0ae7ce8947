//! Drive files: drives that outlive the process, by name `ssd:FILE`.
//!
//! A path of another name that leads to a drive file is one, too:
//! [`DriveSpec::found`] looks. The drive file's header says what drive it is:
//! the profile, and [`TargetKind::text`](DriveConfig), drawn in `docs/formats.md`.
//!
//! Guarantees: what [`header`] says [`DriveConfig`] reads back; a text of a
//! later version, with an unknown key, or that contradicts the geometry is
//! refused. Fails with the file's name and what to do.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use drivefile::{CacheMode, DriveFile, FileError, Header, Opened};
use flash::{Dimensions, Profile};
use media::Placement;
use port::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use super::capacity::above;
use super::memory::{
    KEYS_RANGE, STREAMS_RANGE, placement_from_name, placement_name, victim_from_name, victim_name,
};
use super::rules::{is_name, learnt, read_text, resolve};
use super::value::{flag, name_and_pairs};
use super::{
    Cache, DriveConfig, DriveError, DriveSpec, MemorySpec, Part, StorageSpec, Store, TargetKind,
};
use crate::error::Error;
use crate::fault_rules::Rules;
use crate::memory;

const KEYS: &str = "copy";

/// The newest version of a drive's text that this program writes and reads.
const TEXT_VERSION: u32 = 3;

/// The first version of a text with targets of rules beside others, which older programs do
/// not read, and the first with targets of keys beside others. All other texts are of version
/// 1.
const WITH_RULED_PARTS: u32 = 2;
const WITH_KEYED_PARTS: u32 = 3;

/// The name of a drive file, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Where it is.
    pub path: String,
    /// Loaded into memory: the file stays as it is.
    pub copy: bool,
}

impl FileSpec {
    /// A drive file at `path`, itself.
    pub fn new(path: &str) -> FileSpec {
        FileSpec { path: path.into(), copy: false }
    }

    /// Reads a path and the keys that follow it.
    pub(super) fn parse(text: &str) -> Result<FileSpec, DriveError> {
        let (path, pairs) = name_and_pairs("ssd", text)?;
        let mut spec = FileSpec::new(path);
        for (key, value) in pairs {
            match key {
                "copy" => spec.copy = flag("copy", value)?,
                _ => return Err(DriveError::unknown_key(key, KEYS.into())),
            }
        }
        Ok(spec)
    }

    /// What drive it is, which is all that is read of it.
    pub fn config(&self) -> Result<DriveConfig, Error> {
        let header = DriveFile::header_of(Path::new(&self.path));
        let header = header.map_err(|e| file_error(&self.path, e))?;
        Ok(config(&header, &self.path, self.to_string())?.0)
    }

    /// Opens it: for writing, unless it is only copied or `read_only`.
    pub fn open(&self, read_only: bool) -> Result<OpenFile, Error> {
        let (path, failed) = (Path::new(&self.path), |e| file_error(&self.path, e));
        let header = DriveFile::header_of(path).map_err(failed)?;
        memory::ask_file(&self.path, &header.geometry)?;
        let opened = DriveFile::open(path, read_only || self.copy).map_err(failed)?;
        let header = opened.medium.header();
        let (config, seed) = config(header, &self.path, self.to_string())?;
        Ok(OpenFile { config, seed, cache: header.cache, away: 0, opened })
    }
}

impl fmt::Display for FileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssd:{}{}", self.path, if self.copy { ",copy=yes" } else { "" })
    }
}

/// A drive file that was opened.
pub struct OpenFile {
    /// What drive it is.
    pub config: DriveConfig,
    /// The seed of the drive's policies.
    pub seed: u64,
    /// What the drive does with its writes.
    pub cache: CacheMode,
    /// For how long it was off, in ns, as far as that counts: its data are so
    /// much older.
    pub away: u64,
    /// Its bytes.
    pub opened: Opened,
}

impl OpenFile {
    /// Whether it was made and never used: then nothing can be on it. What reads
    /// as nothing on another one may have been lost.
    pub fn is_new(&self) -> bool {
        let Opened { clean, last_used, chunks, .. } = &self.opened;
        let unused = |chunk: &flash::Chunk| chunk.programmed == 0 && chunk.wear == 0;
        *clean && last_used.is_none() && chunks.iter().all(unused)
    }

    /// The same, where it is fit for what is asked. Else it is put away as it was: it
    /// was not used.
    pub fn if_fit(self, fit: Result<(), Error>) -> Result<OpenFile, Error> {
        match fit {
            Ok(()) => Ok(self),
            Err(why) => {
                let closed = self.opened.medium.close();
                closed.map_err(|e| file_error(&self.config.name, e)).and(Err(why))
            }
        }
    }

    /// The time on the host since it was last used counts. None where either is
    /// not known.
    pub fn count_time_off(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = self.opened.last_used.unwrap_or(u64::MAX);
        self.away = now.as_secs().saturating_sub(last).saturating_mul(1_000_000_000);
    }
}

impl DriveSpec {
    /// The same, or the drive file that its path leads to. Looks only whether
    /// a file begins as a drive file does; an empty one with a drive file's name was
    /// meant as one, and whoever opens it is told.
    pub fn found(&self) -> Result<DriveSpec, Error> {
        let DriveSpec::Storage(spec) = self else { return Ok(self.clone()) };
        let Ok(plain) = StorageSpec::parse(&spec.path) else { return Ok(self.clone()) };
        let is_drive = is_drive_file(&spec.path)?;
        let is_meant = || spec.path.ends_with(".ssd") && is_empty(&spec.path);
        match *spec == plain {
            true if is_drive || is_meant() => Ok(DriveSpec::File(FileSpec::new(&spec.path))),
            false if is_drive => Err(Error::Usage(format!(
                "{} is a drive file, and the keys behind its name are for other files: leave \
                 them out, or name it ssd:{}",
                spec.path, spec.path
            ))),
            _ => Ok(self.clone()),
        }
    }
}

/// Whether there is a regular file that begins as a drive file does. Fails where its disk
/// does not say.
pub fn is_drive_file(path: &str) -> Result<bool, Error> {
    if !std::fs::metadata(path).is_ok_and(|about| about.is_file()) {
        return Ok(false);
    }
    let mut begin = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    match read.map_err(|e| (e.kind(), e)) {
        Ok(()) => Ok(drivefile::is_begin(&begin)),
        // What cannot be read at all is told by who opens it.
        Err((ErrorKind::UnexpectedEof | ErrorKind::NotFound | ErrorKind::PermissionDenied, _)) => {
            Ok(false)
        }
        Err((_, e)) => Err(Error::Failed(format!("{path}: reading it: {e}"))),
    }
}

/// Whether there is a regular file with nothing in it.
fn is_empty(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == 0)
}

/// What went wrong with a drive file, with its name.
pub fn file_error(path: &str, source: FileError) -> Error {
    let text = source.to_string();
    let text = if text.contains(path) { text } else { format!("{path}: {text}") };
    match source {
        FileError::Missing { .. }
        | FileError::Exists { .. }
        | FileError::NotAFile { .. }
        | FileError::Empty
        | FileError::Foreign
        | FileError::Range { .. } => Error::Usage(text),
        _ => Error::Failed(text),
    }
}

/// What the target on a drive file is made of, as the header has it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    /// The version of the program that made the file.
    software: String,
    size: u64,
    data_chunks: u32,
    /// Blocks of these chunks of a unit that hold no data; not there for none.
    #[serde(default, skip_serializing_if = "is_none")]
    idle: u32,
    store: String,
    target: String,
    victim: String,
    /// Streams of placements; not there for one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    streams: u32,
    seed: u64,
    cache: String,
    /// Keys that `target=kv` has room for; not there with any other.
    #[serde(default, skip_serializing_if = "is_no_key")]
    keys: u64,
    /// The set of `target=rules`; not there with any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<String>,
    /// The template whose rules come with first requests; not there where rules are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learn: Option<String>,
    /// Parallel units to a superblock with parity; not there without.
    #[serde(default, skip_serializing_if = "is_none")]
    parity: u32,
    /// Targets that share the device; not there for one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    targets: u32,
    /// How they share it; not there where each has units of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<String>,
    /// Units of each; not there where they have as many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    units: Vec<u32>,
    /// What each target has; not there where that is as the drive was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
}

/// What a text says that does not name them.
fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

fn is_no_key(keys: &u64) -> bool {
    *keys == 0
}

/// Whether a drive has no parity, or no idle blocks.
fn is_none(width: &u32) -> bool {
    *width == 0
}

/// The name of a cache mode.
pub fn cache_name(cache: CacheMode) -> &'static str {
    cache_of(cache).name()
}

fn cache_of(cache: CacheMode) -> Cache {
    match cache {
        CacheMode::Volatile => Cache::Volatile,
        CacheMode::Protected { .. } => Cache::Protected,
    }
}

/// A drive of several shards is in no file.
pub fn one_shard_only(name: &str) -> Error {
    Error::Usage(format!("{name}: a drive file holds one shard: leave out shards"))
}

/// The header of a drive's file. `seed` is that of the drive's policies, at
/// most `i64::MAX`.
pub fn header(config: &DriveConfig, seed: u64) -> Result<Header, Error> {
    if config.spec.shards > 1 {
        return Err(one_shard_only(&config.name));
    }
    if config.remote.is_some() {
        let name = &config.name;
        return Err(Error::Usage(format!(
            "{name}: a drive file names no remote drive, which may be another when it is opened: \
             leave out remote"
        )));
    }
    Ok(Header {
        geometry: config.geometry,
        kept: config.spec.store.kept(),
        cache: config.cache_mode(),
        profile: config.profile.to_toml(),
        drive: drive_text(config, seed)?,
    })
}

/// What a drive's file says of its target.
pub fn drive_text(config: &DriveConfig, seed: u64) -> Result<String, Error> {
    let as_made = config.spec.parts(config.above.total_pus());
    let learn = Some(&config.spec.rules).filter(|name| learnt(name).is_some());
    let has_ruled_parts = config.parts.iter().any(|part| part.rules.is_some());
    let text = Text {
        version: match () {
            () if config.has_keyed_parts() => WITH_KEYED_PARTS,
            () if has_ruled_parts => WITH_RULED_PARTS,
            () => 1,
        },
        software: env!("CARGO_PKG_VERSION").into(),
        size: config.size,
        data_chunks: config.data_chunks(),
        idle: config.idle,
        store: config.spec.store.name().into(),
        target: config.spec.target.name().into(),
        victim: victim_name(config.spec.victim),
        streams: config.spec.streams,
        seed,
        cache: config.spec.cache.name().into(),
        keys: if config.spec.target == TargetKind::Kv { config.keys() } else { 0 },
        rules: match learn {
            Some(_) => None,
            None => config.rules.as_ref().map(|rules| rules.set().to_string()),
        },
        learn: learn.cloned(),
        parity: config.spec.parity,
        targets: config.spec.targets,
        placement: (config.spec.placement != Placement::default())
            .then(|| placement_name(config.spec.placement).into()),
        units: config.spec.units.clone(),
        parts: match as_made.is_ok_and(|parts| parts == config.parts) {
            true => Vec::new(),
            false => config.parts.clone(),
        },
    };
    toml::to_string(&text)
        .map_err(|e| Error::Usage(format!("the drive cannot be written down: {e}")))
}

/// The drive that a header tells of, and the seed of its policies.
fn config(header: &Header, path: &str, name: String) -> Result<(DriveConfig, u64), Error> {
    let wrong = |what: &dyn fmt::Display| {
        Error::Failed(format!("{path}: the drive file's header makes no sense: {what}"))
    };
    let table: toml::Table = header.drive.parse().map_err(|e| wrong(&e))?;
    let version = table.get("version").and_then(toml::Value::as_integer).unwrap_or(0);
    if version > i64::from(TEXT_VERSION) {
        return Err(Error::Failed(format!(
            "{path}: the drive was made by a newer ssdkit (its text is of version {version}, \
             this program knows {TEXT_VERSION}); use that one"
        )));
    }
    let text: Text = toml::from_str(&header.drive).map_err(|e| wrong(&e.message()))?;
    let mut profile = Profile::from_toml(&header.profile, path).map_err(|e| wrong(&e))?;
    profile.check().map_err(|e| wrong(&e))?;
    let store = Store::from_name(&text.store).ok_or_else(|| wrong(&"its store is unknown"))?;
    let target =
        TargetKind::from_name(&text.target).ok_or_else(|| wrong(&"its target is unknown"))?;
    let placement =
        text.placement.as_deref().map_or(Some(Placement::default()), placement_from_name);
    let placement = placement.ok_or_else(|| wrong(&"its placement is unknown"))?;
    let victim = victim_from_name(&text.victim).ok_or_else(|| wrong(&"its victim is unknown"))?;
    let all = header.geometry.dimensions();
    let data = Dimensions { chunks: text.data_chunks, ..all };
    let reserve = all.chunks.saturating_sub(text.data_chunks);
    // Not in the header's text: it follows from the geometry, here as of one in memory.
    profile.timing.slc.kept = reserve;
    let agree = profile.dimensions == data
        && store.kept() == header.kept
        && cache_name(header.cache) == text.cache
        && text.data_chunks < all.chunks
        && text.size > 0
        && text.size.is_multiple_of(BLOCK_BYTES);
    let keys_fit = match target {
        TargetKind::Kv => KEYS_RANGE.contains(&text.keys),
        _ => text.keys == 0,
    };
    if !keys_fit {
        return Err(wrong(&"its keys are none, or too many"));
    }
    let rulings = usize::from(text.rules.is_some()) + usize::from(text.learn.is_some());
    if rulings != usize::from(target == TargetKind::Rules) {
        return Err(wrong(&"its rules are none, or of another target"));
    }
    let read = |rules: &String| {
        read_text(rules, text.size).map_err(|all| {
            let one = |problem: &rules::Problem| problem.render("its rule set", rules);
            wrong(&all.iter().map(one).collect::<String>().trim_end())
        })
    };
    let ruling = text.rules.as_ref().map(|rules| Ok((read(rules)?, None)));
    let learn = text.learn.as_deref().filter(|name| learnt(name).is_some() && is_name(name));
    if learn.is_none() && text.learn.is_some() {
        return Err(wrong(&"its template is unknown"));
    }
    if !STREAMS_RANGE.contains(&text.streams) {
        return Err(wrong(&"its streams are too many"));
    }
    if !agree {
        return Err(wrong(&"its parts contradict each other"));
    }
    let spec = MemorySpec {
        size: Some(text.size),
        store,
        target,
        victim,
        streams: text.streams,
        parity: text.parity,
        targets: text.targets,
        placement,
        units: text.units,
        keys: text.keys,
        rules: text.learn.clone().unwrap_or_default(),
        cache: cache_of(header.cache),
        ..MemorySpec::new(&profile.name)
    };
    let (geometry, size) = (header.geometry, text.size);
    let above = above(&geometry, spec.parity).map_err(|e| wrong(&e))?;
    let learn = learn.map(|name| resolve(name, size, &above).map_err(|e| wrong(&e)));
    let (rules, control) = ruling.or(learn).transpose()?.unzip();
    let faults = Rules::default();
    if text.idle >= above.chunk_blocks() {
        return Err(wrong(&"its idle blocks are a chunk or more"));
    }
    let idle = text.idle;
    let is_many = (1..=media::MAX_TARGETS as u32).contains(&spec.targets)
        && (spec.units.is_empty() || spec.units.len() as u32 == spec.targets)
        && !spec.units.contains(&0)
        && (!spec.is_shared() || spec.parity == 0);
    let uneven = || wrong(&"its targets do not come out even");
    if !is_many {
        return Err(uneven());
    }
    let parts = match spec.is_shared() && text.parts.is_empty() {
        true => spec.parts(above.total_pus()).map_err(|_| uneven())?,
        false => text.parts,
    };
    let mut config = DriveConfig {
        name,
        spec,
        profile,
        size,
        idle,
        reserve,
        geometry,
        above,
        rules,
        remote: None,
        control: control.flatten(),
        faults,
        parts,
    };
    if !config.is_even() {
        return Err(uneven());
    }
    config.rule_parts().map_err(|e| wrong(&e))?;
    if config.size / BLOCK_BYTES >= config.data_blocks() {
        return Err(wrong(&"it is larger than its flash"));
    }
    Ok((config, text.seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> DriveConfig {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        spec.resolve().unwrap()
    }

    #[test]
    fn a_header_reads_back() {
        for name in [
            "mem:ref,size=64M",
            "mem:tlc,size=1G,spare=0.2,store=checksum,victim=d-choices:3,suspend=true",
            "mem:null,size=16M,store=none,victim=fifo",
            "mem:tlc,size=1G,parity=8",
            "mem:tlc,size=1G,targets=4",
            "mem:tlc,size=1G,targets=4,placement=stripe",
            "mem:tlc,size=1G,units=1/15/16",
            "mem:tlc,size=1G,units=4/2",
            "mem:tlc,size=1G,units=8",
            "mem:tlc,size=1G,units=8/8/8,target=pblk/rules/rules,rules=latency:2+learn:latency",
            "mem:tlc,size=1G,targets=2,placement=stripe,target=rules",
            "mem:tlc,size=1G,units=8/8/4,target=pblk/kv/rules,keys=10k",
            "mem:tlc,size=1G,targets=2,placement=stripe,target=kv/pblk",
            "mem:tlc,size=1G,target=batch",
            "mem:tlc,size=1G,target=kv,keys=5M",
            "mem:tlc,size=1G,target=kv",
            "mem:tlc,size=1G,target=rules",
            "mem:tlc,size=1G,target=rules,rules=latency:4",
            "mem:tlc,size=1G,target=rules,rules=learn:latency:4",
            "mem:tlc,size=1G,cache=protected",
            "mem:tlc,size=1G,streams=3",
            "mem:client-tlc,size=1G",
            "mem:tlc,size=64M,pages=12",
            "mem:tlc,size=64M",
        ] {
            let config = made(name);
            let head = header(&config, 7).unwrap();
            let (back, seed) = super::config(&head, "x", "ssd:x".into()).unwrap();
            assert_eq!((seed, back.size, back.reserve), (7, config.size, config.reserve));
            assert_eq!(back.raised_spare().is_some(), config.raised_spare().is_some(), "{name}");
            assert_eq!((&back.profile, back.geometry), (&config.profile, config.geometry));
            assert_eq!(
                (back.spec.store, back.spec.victim),
                (config.spec.store, config.spec.victim)
            );
            let set = |of: &DriveConfig| of.rules.as_ref().map(|rules| rules.set().clone());
            assert_eq!(set(&back), set(&config), "{name}");
            assert_eq!(back.control.is_some(), config.control.is_some(), "{name}");
            assert_eq!(back.spec.streams, config.spec.streams);
            assert_eq!(back.spec.targets, config.spec.targets);
            assert_eq!(back.spec.placement, config.spec.placement);
            assert_eq!(back.parts, config.parts);
            assert_eq!(back.target(0).reserve, config.target(0).reserve);
            for n in 0..config.targets() {
                assert_eq!(set(&back.target(n)), set(&config.target(n)), "{name}");
            }
            assert_eq!((back.spec.target, back.keys()), (config.spec.target, config.keys()));
            assert_eq!((back.spec.parity, back.above), (config.spec.parity, config.above));
            assert_eq!((back.spec.cache, head.cache), (config.spec.cache, config.cache_mode()));
            assert_eq!(back.name, "ssd:x");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let good = header(&made("mem:ref,size=64M"), 1).unwrap();
        for (from, to, says) in [
            ("version = 1", "version = 4", "newer ssdkit"),
            ("victim = \"greedy\"", "victim = \"nearest\"", "victim is unknown"),
            ("seed = 1", "seed = 1\nspeed = 3", "unknown field `speed`"),
            ("seed = 1\n", "", "missing field `seed`"),
            ("size = 67108864", "size = 67108865", "contradict"),
            ("size = 67108864", "size = 671088640000", "larger than its flash"),
            ("cache = \"volatile\"", "cache = \"protected\"", "contradict"),
            ("store = \"memory\"", "store = \"none\"", "contradict"),
            ("data_chunks = 3", "data_chunks = 4", "contradict"),
            ("seed = 1", "seed = 1\nparity = 7", "divides 64"),
            ("seed = 1", "seed = 1\nkeys = 7", "its keys are"),
            ("seed = 1", "seed = 1\nrules = 'set a'", "its rules are"),
            ("target = \"pblk\"", "target = \"rules\"", "its rules are"),
            ("target = \"pblk\"", "target = \"rules\"\nrules = 'set a'", "expected an application"),
            ("target = \"pblk\"", "target = \"kv\"", "its keys are"),
            ("version = 1", "version = = 1", "makes no sense"),
        ] {
            assert!(good.drive.contains(from), "{from} in {}", good.drive);
            let head = Header { drive: good.drive.replace(from, to), ..good.clone() };
            let error = super::config(&head, "x", "ssd:x".into()).unwrap_err();
            assert!(error.to_string().contains(says), "{to}: {error}");
            assert_eq!(error.exit_code(), 1);
        }
    }

    #[test]
    fn names_read_back() {
        for name in ["ssd:a", "ssd:/x/y,copy=yes"] {
            let spec: DriveSpec = name.parse().unwrap();
            assert_eq!(spec.to_string(), name);
            assert!(matches!(spec, DriveSpec::File(_)));
        }
        for name in ["ssd:", "ssd:a,size=3", "ssd:a,copy=perhaps"] {
            assert!(name.parse::<DriveSpec>().is_err(), "{name}");
        }
    }
}
