//! Why a drive cannot be.

use control::TemplateError;
use flash::{GeometryError, KeyError, ProfileError};
use measure::units::UnitError;
use parity::ParityError;
use thiserror::Error;

use super::capacity::units_in_words;
use super::memory::OWN_KEYS;
use super::value::show_size;

/// A drive that cannot be: what, where, and what to do.
#[derive(Debug, Error)]
pub enum DriveError {
    /// Not a drive's name at all.
    #[error(
        "`{text}` does not name a drive: write mem:PROFILE, nbd:ADDRESS, channel:PATH, null:, \
         or of a file ssd:FILE or a path with a `/`, for example mem:ref,size=8G or {example}"
    )]
    Scheme {
        /// What was given.
        text: String,
        /// A path of a file.
        example: String,
    },
    /// An NBD address that is neither a path nor host and port.
    #[error(
        "`{text}` is no address: write a socket's path or HOST:PORT, or a URI as \
         nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH"
    )]
    Address {
        /// What was given.
        text: String,
    },
    /// A path that no Unix socket has.
    #[error(
        "the path of a socket has {most} bytes at most, and this one has {bytes}: take a shorter \
         one, or go to its folder and name it from there"
    )]
    Socket {
        /// Its bytes.
        bytes: usize,
        /// What the system takes.
        most: usize,
    },
    /// A part that is not `key=value`.
    #[error("`{part}` in the drive's name is not key=value, as in size=8G")]
    Part {
        /// What was given.
        part: String,
    },
    /// A key that no drive has.
    #[error("`{key}` is no key of a drive; {meant} keys are: {known}")]
    UnknownKey {
        /// What was given.
        key: String,
        /// In words, the key that it is close to, if there is one.
        meant: String,
        /// What there is.
        known: String,
    },
    /// A key that is there twice.
    #[error("`{key}` is given twice in the drive's name: leave one out")]
    Twice {
        /// Which.
        key: String,
    },
    /// Too many remote drives of remote drives.
    #[error(
        "the drive's name has {remotes} remote drives, one behind the other: at most {most} can be; \
         leave the others out"
    )]
    Remotes {
        /// How many.
        remotes: usize,
        /// How many there may be.
        most: usize,
    },
    /// A value that its key does not take.
    #[error("`{key}` cannot be `{value}` in the drive's name: it takes {takes}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// Shards that the drive cannot have.
    #[error(
        "`shards` cannot be `{shards}` in the drive's name: it takes a divisor of its groups, \
         {divisors}, of size 64K or more for each; 1 with target=batch, kv or rules"
    )]
    Shards {
        /// What was given.
        shards: u32,
        /// What divides the groups.
        divisors: String,
    },
    /// Targets that the drive cannot have.
    #[error("`{key}` cannot be `{value}` in the drive's name: {why}")]
    Targets {
        /// The key that says how many they are.
        key: &'static str,
        /// What was given.
        value: String,
        /// Why not.
        why: String,
    },
    /// A key of a null drive that takes time, on one that takes none.
    #[error(
        "`{key}` is for a null drive that takes time: add completion_nsec, \
         for example completion_nsec=10us"
    )]
    NeedsTime {
        /// Which key.
        key: String,
    },
    /// A size that cannot be read.
    #[error("`size` in the drive's name: {0}")]
    Size(UnitError),
    /// A value that a key of the profile does not take.
    #[error("in the drive's name, {0}")]
    Key(#[from] KeyError),
    /// No such profile.
    #[error(
        "there is no profile `{name}`: the built-in ones are {known}; \
         a file's name has a `/` or ends in .toml"
    )]
    NoProfile {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A profile's file that cannot be read.
    #[error("cannot read the profile {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A template that the drive cannot have.
    #[error("rules={name} in the drive's name: {source}")]
    Template {
        /// Which.
        name: String,
        /// Why not.
        source: TemplateError,
    },
    /// What names no rule set for a target that is created.
    #[error("--rules cannot be `{value}`: it takes {takes}")]
    Set {
        /// What was given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// A rule set's file that cannot be read.
    #[error("cannot read the rule set {path}: {source}")]
    ReadRules {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A rule set that the checker does not take.
    #[error("{told}")]
    Rules {
        /// What is wrong, as a compiler tells it.
        told: String,
    },
    /// A key in a profile's file that is the drive's name's.
    #[error(
        "{origin}: `{key}` is no key of a profile: a drive's name has it, as in \
         mem:{origin},{}=...", key.rsplit('.').next().unwrap_or(key)
    )]
    OfTheName {
        /// Which file.
        origin: String,
        /// Which key, with its section.
        key: String,
    },
    /// A profile that cannot be.
    #[error(transparent)]
    Profile(ProfileError),
    /// Keys that contradict each other.
    #[error(
        "size={} with spare={spare} needs {derived} chunks a parallel unit, \
         but chunks={given}: leave out size or chunks, or make them agree",
        show_size(*size)
    )]
    Contradiction {
        /// Logical bytes.
        size: u64,
        /// The spare that was asked for.
        spare: f64,
        /// What the two give.
        derived: u64,
        /// What was given.
        given: u32,
    },
    /// The drive cannot have that parity.
    #[error("`parity` in the drive's name: {0}")]
    Parity(#[from] ParityError),
    /// The chunks that each unit has open hold more than the spare leaves.
    #[error(
        "spare={spare} cannot be kept with size={} on {} of {} of {}, {}with two of them open: \
         take spare={nearest} or more, size={} or more, fewer groups or pus, or fewer pages",
        show_size(*size),
        units_in_words(*pus, *parity).0,
        units_in_words(*pus, *parity).1,
        show_size(*chunk),
        if *pus == 1 { "" } else { "each " },
        show_size(*nearest_size)
    )]
    Spare {
        /// The spare that was asked for.
        spare: f64,
        /// Logical bytes.
        size: u64,
        /// Parallel units; with parity groups of them.
        pus: u32,
        /// Units of a group with parity; 0 without.
        parity: u32,
        /// Bytes of a chunk, or superblock.
        chunk: u64,
        /// The least spare of a drive of this size.
        nearest: f64,
        /// The least size of a drive with this spare.
        nearest_size: u64,
    },
    /// No logical block is left.
    #[error("spare={spare} of {blocks} blocks leaves no logical block: make the drive larger")]
    Empty {
        /// The spare that was asked for.
        spare: f64,
        /// Data blocks in all.
        blocks: u64,
    },
    /// More than a geometry can address.
    #[error(
        "the drive with its reserve is too large: {source}; take a smaller size, or more groups \
         or pages"
    )]
    TooLarge {
        /// Which number.
        source: GeometryError,
    },
}

impl From<ProfileError> for DriveError {
    fn from(error: ProfileError) -> DriveError {
        match error {
            ProfileError::Key { origin, source: KeyError::Unknown { key, .. } }
                if OWN_KEYS.contains(&key.rsplit('.').next().unwrap_or(&key)) =>
            {
                DriveError::OfTheName { origin, key }
            }
            error => DriveError::Profile(error),
        }
    }
}

/// What others call some keys: other simulators, standards, papers.
const CALLED: [(&str, &[&str]); 10] = [
    ("spare", &["op", "ops", "overprovisioning", "over_provisioning", "over-provisioning"]),
    ("victim", &["gc", "gc_policy", "gc-policy", "garbage_collection", "collection"]),
    ("groups", &["channels", "nchs", "channel_count"]),
    ("pus", &["luns", "dies", "ways", "luns_per_ch", "chips"]),
    ("chunks", &["blocks", "blks_per_pl", "blocks_per_plane"]),
    ("pages", &["pgs_per_blk", "pages_per_block"]),
    ("page", &["page_size", "pg_size", "page_capacity"]),
    ("map_cache", &["cmt", "cmt_capacity", "dftl"]),
    ("program", &["prog", "pg_wr_lat", "page_program_latency"]),
    ("endurance", &["wear_leveling", "wear_levelling", "leveling", "pe_cycles"]),
];

/// How close a mistyped key is to one that there is, 0 to 1, to be taken for it.
const CLOSE: f64 = 0.8;

impl DriveError {
    /// A key that is none of these, which stand in a line.
    pub(super) fn unknown_key(key: &str, known: String) -> DriveError {
        let names = || known.split([',', ';']).map(str::trim).filter(|name| !name.contains(' '));
        let asked = key.to_lowercase();
        let ours = CALLED.iter().find(|(_, theirs)| theirs.contains(&asked.as_str()));
        if let Some((ours, _)) = ours.filter(|(ours, _)| names().any(|name| name == *ours)) {
            let meant = format!("did you mean `{ours}`? The");
            return DriveError::UnknownKey { key: key.into(), meant, known };
        }
        let close = names().map(|name| (strsim::jaro_winkler(key, name), name));
        let closest = close.reduce(|best, one| if one.0 > best.0 { one } else { best });
        let closest = closest.filter(|one| one.0 >= CLOSE);
        let meant = closest.map_or("the".into(), |one| format!("did you mean `{}`? The", one.1));
        DriveError::UnknownKey { key: key.into(), meant, known }
    }

    /// What names no drive.
    pub(super) fn scheme(text: String) -> DriveError {
        DriveError::Scheme { text, example: "./drive.ssd".into() }
    }
}
