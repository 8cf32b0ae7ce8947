//! Profiles: a kind of drive as data.
//!
//! A profile is a TOML file: geometry, timing, SLC cache, link, controller, where
//! the translation layer runs, reliability and energy. Some are built in. A file
//! may begin with one of these, its `base`, and say what differs. Every key can
//! be set again by name, with the text that the file takes.
//!
//! Guarantees: what [`Profile::to_toml`] prints reads back as the same
//! profile; an unknown key is refused; a profile that [`Profile::from_toml`]
//! gave passes [`Profile::check`]. What may fail is only what a user wrote,
//! and the error names the file, the key, and what it takes.

mod forms;
mod keys;
mod quantity;

pub use keys::{KEYS, Key, SECTIONS};

use port::BLOCK_BYTES;
use thiserror::Error;

use crate::link::{COMPLETION_BYTES, SUBMISSION_BYTES, time_at};
use crate::queues::{Arbitration, MOST_QUEUED};
use crate::quote::{around, brief};
use crate::timing::{LONGEST_OPERATION, MultiPlane};
use crate::{Dimensions, EnergyCosts, Geometry, GeometryError, LinkTiming};
use crate::{Power, Queues, ReadCache, Reliability, Timing};

/// The built-in profiles: name and text.
const BUILTIN: [(&str, &str); 17] = [
    ("datacenter-tlc", include_str!("../profiles/datacenter-tlc.toml")),
    ("client-tlc", include_str!("../profiles/client-tlc.toml")),
    ("client-qlc", include_str!("../profiles/client-qlc.toml")),
    ("zoned-a", include_str!("../profiles/zoned-a.toml")),
    ("conventional-a", include_str!("../profiles/conventional-a.toml")),
    ("zoned-tlc", include_str!("../profiles/zoned-tlc.toml")),
    ("ull", include_str!("../profiles/ull.toml")),
    ("nvme-2016", include_str!("../profiles/nvme-2016.toml")),
    ("ref", include_str!("../profiles/ref.toml")),
    ("znand", include_str!("../profiles/znand.toml")),
    ("bics", include_str!("../profiles/bics.toml")),
    ("vnand", include_str!("../profiles/vnand.toml")),
    ("tlc", include_str!("../profiles/tlc.toml")),
    ("qlc", include_str!("../profiles/qlc.toml")),
    ("pcm", include_str!("../profiles/pcm.toml")),
    ("openssd", include_str!("../profiles/openssd.toml")),
    ("null", include_str!("../profiles/null.toml")),
];

/// On which side of the link the translation layer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Above the link: an open-channel drive.
    Host,
    /// Below the link: a conventional drive.
    #[default]
    Device,
}

impl Side {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Side::Host => "host",
            Side::Device => "device",
        }
    }

    fn from_name(name: &str) -> Option<Side> {
        [Side::Host, Side::Device].into_iter().find(|side| side.name() == name)
    }
}

/// A kind of drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// The numbers of its geometry. Pages are as the parallel unit programs
    /// them: over all channels that share its transfers.
    pub dimensions: Dimensions,
    /// How long its flash takes.
    pub timing: Timing,
    /// How long its link takes.
    pub link: LinkTiming,
    /// Its submission queues.
    pub queues: Queues,
    /// Bytes a second of the memory of its controller through which data pass, in and
    /// out together; 0 for as fast as wanted.
    pub buffer_rate: u64,
    /// What its controller keeps of what was read.
    pub cache: ReadCache,
    /// Bytes of the buffer in which who translates gathers writes, and keeps them until
    /// they are programmed; 0 for four rows a parallel unit.
    pub write_buffer: u64,
    /// Bytes of the map that the memory of who translates holds; 0 for all.
    pub map_cache: u64,
    /// Where translation runs.
    pub side: Side,
    /// Bytes of what its map has entries of: of a write that covers one in part, it is
    /// read first.
    pub map_unit: u32,
    /// How long, in ns, no request is inside before the target collects though it has
    /// room enough; 0 for never.
    pub idle_collection: u64,
    /// (T - U) / T, 0.01 to 0.9: T the pages that hold data, U the logical
    /// ones.
    pub spare: f64,
    /// How its flash errs. The erases that it stands are in `timing`.
    pub reliability: Reliability,
    /// What its operations take of energy.
    pub energy: EnergyCosts,
    /// When it sleeps, and when it is too warm.
    pub power: Power,
}

/// A key or a value that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// No such key.
    #[error("unknown key `{}`; the keys here are: {known}", brief(key))]
    Unknown {
        /// What was given.
        key: String,
        /// What there is.
        known: String,
    },
    /// The value is not one that the key takes.
    #[error("`{key}` cannot be `{}`: it takes {takes}", brief(value))]
    Value {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
}

/// A profile that cannot be.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// Not TOML at all.
    #[error("{origin} is not TOML: {what}")]
    Syntax {
        /// Which file.
        origin: String,
        /// Where and why.
        what: String,
    },
    /// A key that is unknown or has a wrong value.
    #[error("{origin}: {source}")]
    Key {
        /// Which file.
        origin: String,
        /// Which key.
        source: KeyError,
    },
    /// A key that is not there.
    #[error("{origin}: `{key}` is missing from [{section}]: it takes {takes}")]
    Missing {
        /// Which file.
        origin: String,
        /// Its section.
        section: &'static str,
        /// The key.
        key: &'static str,
        /// What it takes.
        takes: &'static str,
    },
    /// Keys that are right by themselves and not together.
    #[error("profile {name}: {source}")]
    Geometry {
        /// Which profile.
        name: String,
        /// Which numbers.
        source: GeometryError,
    },
}

impl Profile {
    /// Whether its map has entries of several blocks.
    pub fn has_units(&self) -> bool {
        self.map_unit > 4096
    }

    /// A profile with nothing set, to be filled.
    fn blank() -> Profile {
        let dimensions = Dimensions {
            groups: 0,
            pus: 0,
            chunks: 0,
            pages: 0,
            planes: 0,
            page_bytes: 0,
            pages_at_once: 1,
        };
        Profile {
            name: String::new(),
            about: String::new(),
            dimensions,
            timing: Timing::default(),
            link: LinkTiming::default(),
            queues: Queues::default(),
            buffer_rate: 0,
            cache: ReadCache::default(),
            write_buffer: 0,
            map_cache: 0,
            side: Side::default(),
            map_unit: 4096,
            idle_collection: 0,
            spare: 0.2,
            reliability: Reliability::default(),
            energy: EnergyCosts::default(),
            power: Power::default(),
        }
    }

    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The file of a built-in profile, whose comments say where its numbers
    /// come from.
    pub fn source(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    /// A built-in profile.
    pub fn builtin(name: &str) -> Option<Profile> {
        let text = Profile::source(name)?;
        Some(Profile::from_toml(text, name).expect("the built-in profiles are tested"))
    }

    /// Reads a profile; `origin` names it in errors, and the profile itself
    /// where the file does not.
    pub fn from_toml(text: &str, origin: &str) -> Result<Profile, ProfileError> {
        let origin = || origin.to_string();
        let table: toml::Table = text
            .parse()
            .map_err(|e| ProfileError::Syntax { origin: origin(), what: of_toml(text, &e) })?;
        let wrong = |source| ProfileError::Key { origin: origin(), source };
        let base = base_of(&table).map_err(wrong)?;
        let is_based = base.is_some();
        let mut profile = Profile { name: origin(), ..base.unwrap_or_else(Profile::blank) };
        profile.fill(&table).map_err(wrong)?;
        let there = |key: &Key| {
            is_based || table.get(key.section).is_some_and(|s| s.get(key.name).is_some())
        };
        if let Some(key) = KEYS.iter().find(|key| key.needed && !there(key)) {
            let (section, key, takes) = (key.section, key.name, key.takes);
            return Err(ProfileError::Missing { origin: origin(), section, key, takes });
        }
        profile.check()?;
        Ok(profile)
    }

    /// Sets all that `table` has.
    fn fill(&mut self, table: &toml::Table) -> Result<(), KeyError> {
        for (name, value) in table {
            match (name.as_str(), value) {
                ("name", toml::Value::String(text)) if !text.is_empty() => self.name = text.clone(),
                ("about", toml::Value::String(text)) => self.about = text.clone(),
                ("base", _) => {}
                ("name" | "about", other) => {
                    let key = if name == "name" { "name" } else { "about" };
                    let takes = "a text in quotes";
                    return Err(KeyError::Value { key, value: other.to_string(), takes });
                }
                (section, toml::Value::Table(keys)) if SECTIONS.contains(&section) => {
                    self.fill_section(section, keys)?;
                }
                _ => {
                    let known = format!("base, name, about, [{}]", SECTIONS.join("], ["));
                    return Err(KeyError::Unknown { key: name.clone(), known });
                }
            }
        }
        Ok(())
    }

    /// Sets all that a section has.
    fn fill_section(&mut self, section: &str, keys: &toml::Table) -> Result<(), KeyError> {
        for (name, value) in keys {
            if keys::find(name).is_none_or(|key| key.section != section) {
                let known = known(|key| key.section == section);
                return Err(KeyError::Unknown { key: format!("{section}.{name}"), known });
            }
            self.set(name, &text_of(value))?;
        }
        Ok(())
    }

    /// Sets one key, as a drive's name does: `set("read", "50us")`. What the
    /// keys give together is for [`Profile::check`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), KeyError> {
        let found = keys::find(key)
            .ok_or_else(|| KeyError::Unknown { key: key.into(), known: known(|_| true) })?;
        (found.set)(self, value.trim()).ok_or_else(|| KeyError::Value {
            key: found.name,
            value: value.into(),
            takes: found.takes,
        })
    }

    /// What a key is set to, as [`Profile::set`] takes it; none without such a key.
    pub fn get(&self, key: &str) -> Option<String> {
        let literal = (keys::find(key)?.get)(self);
        let table: toml::Table = format!("value = {literal}").parse().ok()?;
        table.get("value").map(text_of)
    }

    /// Whether all keys together make a drive, and its geometry.
    pub fn check(&self) -> Result<Geometry, ProfileError> {
        let wrong = |source| ProfileError::Geometry { name: self.name.clone(), source };
        let range = |what, value, range| wrong(GeometryError::Range { what, value, range });
        let page = self.dimensions.page_bytes;
        if !page.is_power_of_two() || !(BLOCK_BYTES as u32..=65536).contains(&page) {
            let what = "page times channel_split";
            return Err(range(what, page.into(), "4k, 8k, 16k, 32k or 64k"));
        }
        let geometry = Geometry::new(self.dimensions).map_err(wrong)?;
        let unreadable = self.timing.unreadable;
        if unreadable >= geometry.chunk_blocks() {
            return Err(range("unreadable", unreadable.into(), "less than the blocks of a chunk"));
        }
        let open = [
            ("open_chunks", self.timing.open_chunks),
            ("open_chunks_pu", self.timing.open_chunks_pu),
        ];
        if let Some((what, _)) = open.into_iter().find(|(_, most)| *most == 0) {
            return Err(range(what, 0, "at least 1, or none for no limit"));
        }
        let planes = u64::from(self.dimensions.planes);
        let is_joined = self.timing.multi_plane_reads != MultiPlane::None;
        if is_joined && planes < 2 {
            return Err(range("planes", planes, "at least 2 where there are multi_plane_reads"));
        }
        if is_joined && self.timing.plane_reads {
            let may = "false (0) where there are multi_plane_reads: planes read by themselves";
            return Err(range("plane_reads", 1, may));
        }
        let (bits, pages) = (self.timing.bits_a_cell, self.dimensions.pages_at_once);
        if bits > 0 && bits < pages {
            return Err(range("cell_bits", bits.into(), "auto or at least pages_at_once"));
        }
        let retries = if self.reliability.errors { self.reliability.read_retries } else { 0 };
        let longest = self.timing.longest(retries, self.dimensions.pages_at_once);
        if longest > LONGEST_OPERATION {
            let what = "the longest operation, with all repetitions of a read, in ns";
            return Err(range(
                what,
                longest,
                "at most 50 min: take shorter times or fewer of them",
            ));
        }
        let slc = &self.timing.slc;
        if slc.is_on() && slc.bytes(&geometry) > geometry.blocks() * BLOCK_BYTES {
            let (what, bytes) = ("slc_cache in bytes", slc.bytes(&geometry));
            return Err(range(what, bytes, "at most the flash that holds data"));
        }
        if slc.is_on() && slc.dynamic && slc.own.bytes(&geometry) > slc.bytes(&geometry) {
            let (what, bytes) = ("slc_static in bytes", slc.own.bytes(&geometry));
            return Err(range(what, bytes, "at most slc_cache"));
        }
        if slc.is_on() && slc.program == 0 {
            return Err(range("slc_program in ns", 0, "more than 0 where there is an SLC cache"));
        }
        if self.cache.is_on() && u64::from(self.cache.line) > self.cache.size {
            let line = u64::from(self.cache.line);
            return Err(range("read_ahead in bytes", line, "at most the read cache"));
        }
        if self.buffer_rate > 0 && self.side == Side::Host {
            let may = "none where side=host: there the host's memory is the buffer";
            return Err(range("buffer_rate in B/s", self.buffer_rate, may));
        }
        self.check_queues(range)?;
        self.check_power(range)?;
        if !(0.01..=0.9).contains(&self.spare) {
            let percent = (self.spare * 100.0) as u64;
            return Err(range("spare in percent", percent, "1 to 90"));
        }
        Ok(geometry)
    }

    /// Whether there can be such queues.
    fn check_queues(
        &self,
        wrong: impl Fn(&'static str, u64, &'static str) -> ProfileError,
    ) -> Result<(), ProfileError> {
        let queues = &self.queues;
        if queues.arbitration == Arbitration::RoundRobin {
            if !queues.classes.is_empty() {
                let (what, n) = ("queue_classes, of which there are", queues.classes.len() as u64);
                return Err(wrong(what, n, "none without arbitration=wrr, which knows them"));
            }
            if let Some(&weight) = queues.weights.iter().find(|&&weight| weight != 1) {
                let range = "1/1/1 without arbitration=wrr, which knows them";
                return Err(wrong("class_weights, of which one", weight.into(), range));
            }
        }
        if !queues.is_on() {
            return Ok(());
        }
        if self.side == Side::Host {
            let range = "1, without queue_depth, where side=host: there one asks for all";
            return Err(wrong("queues", queues.count.into(), range));
        }
        if self.link.cores == 0 {
            let range = "at least 1 with queues: a command waits there for a core";
            return Err(wrong("cores", 0, range));
        }
        if self.link.core_read.max(self.link.core_write).max(self.link.core_block) == 0 {
            let range = "more than 0 with queues, or core_write or core_block: else none waits";
            return Err(wrong("core_read in ns", 0, range));
        }
        let most = u64::from(queues.count) * u64::from(queues.depth());
        if most > u64::from(MOST_QUEUED) {
            return Err(wrong("queues times queue_depth", most, "at most 1024"));
        }
        if queues.classes.len() > queues.count as usize {
            let (what, n) = ("queue_classes, of which there are", queues.classes.len() as u64);
            return Err(wrong(what, n, "at most as many as queues"));
        }
        Ok(())
    }

    /// Whether its power states and its temperature can be.
    fn check_power(
        &self,
        wrong: impl Fn(&'static str, u64, &'static str) -> ProfileError,
    ) -> Result<(), ProfileError> {
        let (heat, energy) = (&self.power.temperature, &self.energy);
        let is_warm = heat.is_on();
        if is_warm && !energy.counted {
            let range = "only with energy=true, as energy is what makes it warm";
            return Err(wrong("thermal_resistance in mK/W", heat.resistance, range));
        }
        if is_warm && heat.time == 0 {
            return Err(wrong("thermal_time in ns", 0, "more than 0 with a thermal_resistance"));
        }
        let (from, until) = (heat.throttle_from, heat.throttle_until);
        if heat.throttle_rate > 0 && !(is_warm && heat.ambient < until && until <= from) {
            let range = "above ambient and at most throttle_from, with a thermal_resistance";
            return Err(wrong("throttle_until in mC", until, range));
        }
        self.check_sleep(wrong)
    }

    /// Whether it can have its sleep states.
    fn check_sleep(
        &self,
        wrong: impl Fn(&'static str, u64, &'static str) -> ProfileError,
    ) -> Result<(), ProfileError> {
        let (sleep, energy) = (&self.power.sleep, &self.energy);
        if !sleep.is_on() {
            return Ok(());
        }
        for (what, all) in [
            ("wake_time, of which there are", &sleep.wake),
            ("sleep_power, of which there are", &sleep.power),
        ] {
            if all.len() != sleep.after.len() {
                return Err(wrong(what, all.len() as u64, "as many as of sleep_after"));
            }
        }
        if let Some(pair) = sleep.after.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(wrong("sleep_after in ns", pair[1], "more than that before it"));
        }
        if let Some(pair) = sleep.power.windows(2).find(|pair| pair[0] <= pair[1]) {
            return Err(wrong("sleep_power in mW", pair[1], "less than that before it"));
        }
        if energy.counted && sleep.power[0] > energy.idle {
            return Err(wrong("sleep_power in mW", sleep.power[0], "at most idle_power"));
        }
        Ok(())
    }

    /// The whole profile as a file, each key with its meaning.
    pub fn to_toml(&self) -> String {
        let text = |s: &str| toml::Value::String(s.into()).to_string();
        let mut out = format!("name = {}\nabout = {}\n", text(&self.name), text(&self.about));
        for section in SECTIONS {
            out += &format!("\n[{section}]\n");
            for key in KEYS.iter().filter(|key| key.section == section) {
                let line = format!("{} = {}", key.name, (key.get)(self));
                out += &format!("{line:<31} # {}\n", key.about);
            }
        }
        out
    }

    /// The whole profile as a table, for reports.
    pub fn to_table(&self) -> toml::Table {
        self.to_toml().parse().expect("what is printed is TOML")
    }

    /// How long one read of a logical block takes on an idle drive, in ns:
    /// entry, latency, core, controller, command, tR, channel, buffer twice, link,
    /// entry, latency. The block is in a page of the first type.
    pub fn lone_read(&self) -> u64 {
        let (t, link) = (&self.timing, &self.link);
        let partial = u64::from(self.dimensions.page_bytes) >= 4 * BLOCK_BYTES;
        let read = if partial { t.read_partial_of(0) } else { t.read_of(0) };
        let flash = t.command + read + t.transfer(1);
        let controller = link.work(true, 1) + link.controller;
        let entries = link.entry(SUBMISSION_BYTES) + link.entry(COMPLETION_BYTES);
        let buffer = 2 * time_at(BLOCK_BYTES, self.buffer_rate);
        2 * link.latency + entries + controller + flash + buffer + link.wire(BLOCK_BYTES)
    }
}

/// Where a text is no TOML, and why.
fn of_toml(text: &str, e: &toml::de::Error) -> String {
    let ((line, column), quoted) = around(text, e.span().map_or(0, |span| span.start));
    format!("line {line}, column {column}: {}\n{quoted}", e.message())
}

/// The built-in profile that a file begins with, where it says one.
fn base_of(table: &toml::Table) -> Result<Option<Profile>, KeyError> {
    let Some(value) = table.get("base") else { return Ok(None) };
    let takes = "the name of a built-in profile in quotes; `ssdkit profiles` lists them";
    let wrong = || KeyError::Value { key: "base", value: value.to_string(), takes };
    let name = value.as_str().ok_or_else(wrong)?;
    Profile::builtin(name).map(Some).ok_or_else(wrong)
}

/// The names of some keys, for an error.
fn known(which: impl Fn(&Key) -> bool) -> String {
    let names: Vec<&str> = KEYS.iter().filter(|key| which(key)).map(|key| key.name).collect();
    names.join(", ")
}

/// A TOML value as a drive's name would write it.
fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text_of).collect();
            items.join("/")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
