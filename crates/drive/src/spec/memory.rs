//! The name of a drive in memory: `mem:PROFILE[,key=value ...]`.

use std::fmt;
use std::ops::RangeInclusive;

use flash::Profile;
use flash::profile::{KEYS, Key};
use media::Placement;
use parity::{MAX_WIDTH, MIN_WIDTH};
use port::BLOCK_BYTES;
use targets::Victim;

use super::rules::is_name;
use super::value::{name_and_pairs, number, show_size, size_of};
use super::{DriveError, DriveSpec, RemoteConfig, load};
use measure::options::count;

const STORES: &str = "memory, checksum or none";
const TARGETS: &str = "pblk, batch, kv or rules; of several targets pblk or rules for all, or for \
                       each as in pblk/rules/kv";
pub(super) const KEY_COUNT: &str = "1 to 4294967296; only with target=kv";
const WIDTHS: &str = "0 for none, or 3 to 64 parallel units";
const CACHES: &str = "volatile or protected";
const TARGET_COUNTS: &str = "1 to 64";
const UNITS: &str = "the parallel units of each target, as in 1/7/8";
const PLACEMENTS: &str = "isolate or stripe";
const SHARDS: &str = "a divisor of the drive's groups, of size 64K or more for each; 1 with target=batch, kv or rules";
pub(super) const STREAMS: &str = "1 to 4; 1 with target=batch, kv or rules";
pub(super) const KEYS_RANGE: RangeInclusive<u64> = 1..=1 << 32;
pub(super) const STREAMS_RANGE: RangeInclusive<u32> = 1..=targets::MAX_STREAMS as u32;
/// What stands before the name of a remote drive.
const REMOTE: &str = ",remote=";
/// Remote drives one behind the other, at most: each is a drive with all its tables.
const MOST_REMOTES: usize = 4;
const REMOTES: &str = "mem:PROFILE with keys of its own, or nbd:ADDRESS of a drive that is served \
                       elsewhere, as drive files, devices and all others are by ssdkit serve; only \
                       with target=rules and a rules=FILE, and as the last key, as all that \
                       follows is the remote drive's name";
pub(super) const VICTIMS: &str = "greedy, cost-benefit, fifo, random or d-choices:N with N from 1 to 1000; greedy \
                                  with target=batch, kv or rules, which choose in their own way";

/// What the medium keeps of each logical block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// All of it, in memory.
    #[default]
    Memory,
    /// A 64-bit digest: enough to verify, not to serve.
    Checksum,
    /// Nothing.
    None,
}

impl Store {
    /// Bytes kept of each logical block.
    pub fn kept(self) -> u32 {
        match self {
            Store::Memory => BLOCK_BYTES as u32,
            Store::Checksum => 8,
            Store::None => 0,
        }
    }

    /// Its name in drive names.
    pub fn name(self) -> &'static str {
        match self {
            Store::Memory => "memory",
            Store::Checksum => "checksum",
            Store::None => "none",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Store> {
        [Store::Memory, Store::Checksum, Store::None].into_iter().find(|s| s.name() == name)
    }
}

/// What the drive does with its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// They are durable after a flush, or with FUA.
    #[default]
    Volatile,
    /// They are durable when they complete: power loss does not end the cache.
    Protected,
}

impl Cache {
    /// Its name in drive names.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Volatile => "volatile",
            Cache::Protected => "protected",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Cache> {
        [Cache::Volatile, Cache::Protected].into_iter().find(|c| c.name() == name)
    }
}

/// What translates addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetKind {
    /// The page-mapped block target.
    #[default]
    Pblk,
    /// The target with batched writes: pages by number, no blocks.
    Batch,
    /// The key-value target: values by key, no blocks.
    Kv,
    /// The block target in which a rule set decides.
    Rules,
}

impl TargetKind {
    /// Its name in drive names.
    pub fn name(self) -> &'static str {
        match self {
            TargetKind::Pblk => "pblk",
            TargetKind::Batch => "batch",
            TargetKind::Kv => "kv",
            TargetKind::Rules => "rules",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<TargetKind> {
        [TargetKind::Pblk, TargetKind::Batch, TargetKind::Kv, TargetKind::Rules]
            .into_iter()
            .find(|t| t.name() == name)
    }
}

/// A policy by its name: greedy, cost-benefit, fifo, random or d-choices:N, N from 1 to 1000.
pub(super) fn victim_from_name(name: &str) -> Option<Victim> {
    Some(match name {
        "greedy" => Victim::Greedy,
        "fifo" => Victim::Fifo,
        "random" => Victim::Random,
        "cost-benefit" => Victim::CostBenefit,
        _ => {
            let d = name.strip_prefix("d-choices:")?.parse().ok()?;
            (1..=1000).contains(&d).then_some(Victim::DChoices(d))?
        }
    })
}

/// The name that [`victim_from_name`] reads.
pub(super) fn victim_name(victim: Victim) -> String {
    match victim {
        Victim::Greedy => "greedy".into(),
        Victim::Fifo => "fifo".into(),
        Victim::Random => "random".into(),
        Victim::DChoices(d) => format!("d-choices:{d}"),
        Victim::CostBenefit => "cost-benefit".into(),
        Victim::Custom(custom) => custom.name.into(),
    }
}

/// A placement by its name.
pub(super) fn placement_from_name(name: &str) -> Option<Placement> {
    Placement::NAMES.into_iter().find(|(_, its)| *its == name).map(|(placement, _)| placement)
}

/// The name that [`placement_from_name`] reads.
pub(super) fn placement_name(placement: Placement) -> &'static str {
    Placement::NAMES.into_iter().find(|(its, _)| *its == placement).map_or("", |(_, name)| name)
}

/// The name of a drive in memory, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySpec {
    /// A built-in profile, or the path of a TOML file.
    pub profile: String,
    /// Logical capacity in bytes, a multiple of 4 KiB; from geometry and spare
    /// when not given.
    pub size: Option<u64>,
    /// What is kept.
    pub store: Store,
    /// What translates: of all targets where there are several.
    pub target: TargetKind,
    /// What each target is, where they are not named alike; else none.
    pub kinds: Vec<TargetKind>,
    /// Keys that `target=kv` has room for, each of several; 0 for one for each 4 KiB of its
    /// size.
    pub keys: u64,
    /// The rule set of `target=rules`: a template or a file; empty for the least. Of several
    /// such targets those of each, with `+` between, of which the last is that of the others,
    /// too.
    pub rules: String,
    /// The remote drive of `target=rules`, if it has one.
    pub remote: Option<Box<DriveSpec>>,
    /// How victims are chosen.
    pub victim: Victim,
    /// Streams in which pblk keeps writes of different placements.
    pub streams: u32,
    /// Parallel units to a superblock with parity; 0 for none.
    pub parity: u32,
    /// What it does with its writes.
    pub cache: Cache,
    /// Shards that share its groups and addresses ([`port::Striped`]).
    pub shards: u32,
    /// Targets that share its device, each with a part of the addresses.
    pub targets: u32,
    /// How these share it.
    pub placement: Placement,
    /// Parallel units of each, where they are not as many, or some are nobody's; else none.
    pub units: Vec<u32>,
    /// Keys of the profile that are set again, in the order given.
    pub overrides: Vec<(String, String)>,
}

impl MemorySpec {
    /// A profile with no key set.
    pub fn new(profile: &str) -> MemorySpec {
        MemorySpec {
            profile: profile.into(),
            size: None,
            store: Store::default(),
            target: TargetKind::default(),
            kinds: Vec::new(),
            keys: 0,
            rules: String::new(),
            remote: None,
            victim: Victim::default(),
            streams: 1,
            parity: 0,
            cache: Cache::default(),
            shards: 1,
            targets: 1,
            placement: Placement::default(),
            units: Vec::new(),
            overrides: Vec::new(),
        }
    }

    /// What target `n` is.
    pub(super) fn kind(&self, n: u32) -> TargetKind {
        self.kinds.get(n as usize).copied().unwrap_or(self.target)
    }

    /// Keys that it has room for where it has so many bytes.
    pub(super) fn keys_of(&self, size: u64) -> u64 {
        match self.keys {
            0 => (size / BLOCK_BYTES).clamp(*KEYS_RANGE.start(), *KEYS_RANGE.end()),
            keys => keys,
        }
    }

    /// What follows `mem:`. A remote drive's name, with keys of its own, is the rest.
    pub(super) fn parse(text: &str) -> Result<MemorySpec, DriveError> {
        let remotes = text.matches(REMOTE).count();
        if remotes > MOST_REMOTES {
            return Err(DriveError::Remotes { remotes, most: MOST_REMOTES });
        }
        let (text, remote) = text.split_once(REMOTE).map_or((text, None), |(t, r)| (t, Some(r)));
        let (profile, pairs) = name_and_pairs("mem", text.trim_start())?;
        let mut spec = MemorySpec::new(profile.trim());
        let pairs = pairs.into_iter().chain(remote.map(|remote| ("remote", remote)));
        pairs.into_iter().try_for_each(|(key, value)| spec.set(key, value))?;
        Ok(spec)
    }

    /// Sets one key. A key of the profile is tried on a profile right away,
    /// so that a wrong value is found before anything is loaded.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), DriveError> {
        let wrong = |key, takes| DriveError::Value { key, value: value.into(), takes };
        match key {
            "size" => self.size = Some(size_of(value)?),
            "store" => {
                self.store = Store::from_name(value).ok_or_else(|| wrong("store", STORES))?;
            }
            "target" => {
                let kinds: Option<Vec<_>> = value.split('/').map(TargetKind::from_name).collect();
                let kinds = kinds.ok_or_else(|| wrong("target", TARGETS))?;
                (self.target, self.kinds) = match kinds[..] {
                    [one] => (one, Vec::new()),
                    _ => (TargetKind::default(), kinds),
                };
                if self.targets == 1 && self.units.is_empty() {
                    self.targets = self.kinds.len().max(1) as u32;
                }
            }
            "keys" => {
                self.keys = count(value).map_err(|_| wrong("keys", KEY_COUNT))?;
                if !KEYS_RANGE.contains(&self.keys) {
                    return Err(wrong("keys", KEY_COUNT));
                }
            }
            "rules" => {
                if !is_name(value) && !value.split('+').all(is_name) {
                    return Err(wrong("rules", super::rules::RULES));
                }
                self.rules = value.into();
            }
            "remote" => {
                let remote: DriveSpec = value.parse()?;
                if !matches!(remote, DriveSpec::Memory(_) | DriveSpec::Nbd(_)) {
                    return Err(wrong("remote", REMOTES));
                }
                self.remote = Some(remote.into());
            }
            "victim" => {
                self.victim = victim_from_name(value).ok_or_else(|| wrong("victim", VICTIMS))?;
            }
            "streams" => {
                self.streams = number("streams", value)?;
                if !STREAMS_RANGE.contains(&self.streams) {
                    return Err(wrong("streams", STREAMS));
                }
            }
            "parity" => self.parity = width_of(value)?,
            "cache" => {
                self.cache = Cache::from_name(value).ok_or_else(|| wrong("cache", CACHES))?;
            }
            "shards" => {
                self.shards = number("shards", value)?;
                if self.shards == 0 {
                    return Err(wrong("shards", SHARDS));
                }
            }
            "targets" => {
                self.targets = number("targets", value)?;
                self.units = Vec::new();
                if self.targets == 0 || self.targets as usize > media::MAX_TARGETS {
                    return Err(wrong("targets", TARGET_COUNTS));
                }
            }
            "units" => {
                let each = value.split('/').map(|units| number("units", units));
                self.units = each.collect::<Result<_, _>>()?;
                let count = self.units.len();
                if self.units.contains(&0) || !(1..=media::MAX_TARGETS).contains(&count) {
                    return Err(wrong("units", UNITS));
                }
                self.targets = count as u32;
            }
            "placement" => {
                self.placement =
                    placement_from_name(value).ok_or_else(|| wrong("placement", PLACEMENTS))?;
            }
            _ if KEYS.iter().any(|k| k.name == key) => {
                let mut any = Profile::builtin("null").expect("it is built in");
                any.set(key, value)?;
                self.overrides.push((key.into(), value.into()));
            }
            _ => return Err(DriveError::unknown_key(key, known_keys())),
        }
        Ok(())
    }

    /// Its remote drive with all its numbers.
    pub(super) fn resolve_remote(&self) -> Result<Option<RemoteConfig>, DriveError> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let wrong =
            |takes| Err(DriveError::Value { key: "remote", value: remote.to_string(), takes });
        if self.target != TargetKind::Rules || !super::rules::is_file(&self.rules) {
            return wrong(REMOTES);
        }
        let store = match &**remote {
            DriveSpec::Memory(remote) => remote.store,
            _ => Store::Memory,
        };
        if store != self.store {
            return wrong("a drive with the same store");
        }
        Ok(Some(match &**remote {
            DriveSpec::Memory(remote) => RemoteConfig::Memory(remote.resolve()?.into()),
            DriveSpec::Nbd(served) => {
                RemoteConfig::Nbd { served: served.clone(), on_a_clock: false }
            }
            _ => return wrong(REMOTES),
        }))
    }

    /// How victims are chosen, as the drive's name says it.
    pub fn victim_name(&self) -> String {
        victim_name(self.victim)
    }

    /// The profile with its keys set, and whether `chunks` was among them.
    pub(super) fn profile(&self) -> Result<(Profile, bool), DriveError> {
        let mut profile = load(&self.profile)?;
        for (key, value) in &self.overrides {
            profile.set(key, value)?;
        }
        Ok((profile, self.overrides.iter().any(|(key, _)| key == "chunks")))
    }
}

impl fmt::Display for MemorySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mem:{}", self.profile)?;
        if let Some(size) = self.size {
            write!(f, ",size={}", show_size(size))?;
        }
        if self.store != Store::default() {
            write!(f, ",store={}", self.store.name())?;
        }
        if !self.kinds.is_empty() {
            let kinds: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
            write!(f, ",target={}", kinds.join("/"))?;
        } else if self.target != TargetKind::default() {
            write!(f, ",target={}", self.target.name())?;
        }
        if self.keys > 0 {
            write!(f, ",keys={}", self.keys)?;
        }
        if !self.rules.is_empty() {
            write!(f, ",rules={}", self.rules)?;
        }
        if self.victim != Victim::default() {
            write!(f, ",victim={}", victim_name(self.victim))?;
        }
        if self.streams > 1 {
            write!(f, ",streams={}", self.streams)?;
        }
        if self.parity > 0 {
            write!(f, ",parity={}", self.parity)?;
        }
        if self.cache != Cache::default() {
            write!(f, ",cache={}", self.cache.name())?;
        }
        if self.shards > 1 {
            write!(f, ",shards={}", self.shards)?;
        }
        if !self.units.is_empty() {
            let units: Vec<_> = self.units.iter().map(u32::to_string).collect();
            write!(f, ",units={}", units.join("/"))?;
        } else if self.targets > 1 {
            write!(f, ",targets={}", self.targets)?;
        }
        if self.placement != Placement::default() {
            write!(f, ",placement={}", placement_name(self.placement))?;
        }
        self.overrides.iter().try_for_each(|(key, value)| write!(f, ",{key}={value}"))?;
        // It takes all that follows.
        match &self.remote {
            Some(remote) => write!(f, "{REMOTE}{remote}"),
            None => Ok(()),
        }
    }
}

/// A width of parity, or 0 for none.
fn width_of(value: &str) -> Result<u32, DriveError> {
    let takes = WIDTHS;
    match number("parity", value) {
        Ok(width) if width == 0 || (MIN_WIDTH..=MAX_WIDTH).contains(&width) => Ok(width),
        _ => Err(DriveError::Value { key: "parity", value: value.into(), takes }),
    }
}

/// Keys of a drive's name that a profile has not.
pub(super) const OWN_KEYS: [&str; 14] = [
    "size",
    "store",
    "target",
    "keys",
    "rules",
    "victim",
    "streams",
    "parity",
    "cache",
    "shards",
    "targets",
    "placement",
    "units",
    "remote",
];

/// All keys that a drive's name may have.
fn known_keys() -> String {
    OWN_KEYS.into_iter().chain(KEYS.iter().map(|k: &Key| k.name)).collect::<Vec<_>>().join(", ")
}
