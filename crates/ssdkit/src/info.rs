//! `ssdkit info`: what a drive is, and how it is.
//!
//! A drive file is opened for reading only and nothing of it is changed: what
//! it tells is what the file says, with the counters of the last checkpoint.
//! Fails when somebody has it open for writing, or it is damaged.

use std::fmt::Write as _;
use std::io::Write;

use drivefile::Opened;
use flash::{Cause, Chunk, ChunkState, Geometry};
use measure::{WriteAmplification, units};
use nvram::Fill;
use port::BLOCK_BYTES;
use serde_json::{Value, json};
use targets::WriteCounters;
use targets::pblk::{Memory, Peek};

use crate::cli::InfoArgs;
use drive::batched;
use drive::error::Error;
use drive::kv;
use drive::say::harmless;
use drive::slc::SlcReport;
use drive::spec::file::{OpenFile, cache_name, file_error};
use drive::spec::{DriveConfig, DriveSpec, FileSpec, TargetKind};
use drive::stack::{self, Look};
use drive::whole::READ_ONLY;

/// Steps of the wear's distribution, at most.
const STEPS: u32 = 10;

/// Bytes of a terabyte, by which map memory is told.
const TERABYTE: f64 = 1e12;

/// Characters of a distribution's longest bar.
const BAR: u64 = 40;

/// Prints what was asked to `out`.
pub fn run(args: &InfoArgs, out: &mut dyn Write) -> Result<(), Error> {
    let info = look(&args.drive)?;
    if args.json {
        writeln!(out, "{:#}", info.to_json())?;
    } else {
        write!(out, "{}", info.to_text())?;
    }
    Ok(())
}

/// The drive of a name; what is no other drive's name is a file's.
fn look(name: &str) -> Result<Info, Error> {
    let spec = match name.parse() {
        Ok(DriveSpec::Memory(spec)) => {
            let config = spec.resolve()?;
            let memory = match config.spec.target {
                TargetKind::Pblk | TargetKind::Rules => Some(stack::check(&config, 1)?),
                TargetKind::Batch => batched::check(&config, 1).map(|()| None)?,
                TargetKind::Kv => kv::check(&config, 1).map(|()| None)?,
            };
            let slc = stack::slc(&config)?;
            return Ok(Info { config, memory, slc, file: None });
        }
        Ok(DriveSpec::File(spec)) => spec,
        Ok(DriveSpec::Storage(spec)) if name.starts_with("file:") => FileSpec::new(&spec.path),
        Ok(DriveSpec::Storage(_)) | Err(_) if !name.starts_with("mem:") => FileSpec::new(name),
        Ok(_) => {
            let text = format!("{name} tells nothing of itself: take a drive file or a mem: drive");
            return Err(Error::Usage(text));
        }
        Err(e) => return Err(e.into()),
    };
    let OpenFile { config, seed, cache, opened, .. } = spec.open(true)?;
    let Opened { medium, chunks, clean, cut_chunks, .. } = opened;
    let journal = match medium.area() {
        Some(mut area) => Some(nvram::peek(&mut area).map_err(|e| Error::Failed(e.to_string()))?),
        None => None,
    };
    let used_bytes = medium.used_bytes().map_err(|e| file_error(&spec.path, e))?;
    let preallocated = medium.is_preallocated();
    let Look { peek, degraded } = stack::look(&config, seed, medium.into(), &chunks)?;
    let health = Health::of(&config.geometry, &chunks);
    let cache = cache_name(cache);
    // A new one has no checkpoint and nothing in it.
    let is_empty = journal.is_none_or(|fill| fill.used == 0);
    let clean = clean && is_empty && peek.is_none_or(|peek| peek.clean || peek.checkpoint == 0);
    let memory = peek.map(|peek| peek.memory);
    let path = spec.path;
    let file = InFile {
        path,
        cache,
        journal,
        clean,
        cut_chunks,
        used_bytes,
        preallocated,
        peek,
        degraded,
        health,
    };
    let slc = stack::slc(&config)?;
    Ok(Info { config, memory, slc, file: Some(file) })
}

/// What is known of a drive.
struct Info {
    config: DriveConfig,
    /// Of the target's tables, where it tells.
    memory: Option<Memory>,
    slc: Option<SlcReport>,
    file: Option<InFile>,
}

/// What a file says of its drive.
struct InFile {
    path: String,
    cache: &'static str,
    /// How full the journal of a protected cache is.
    journal: Option<Fill>,
    /// It was shut down.
    clean: bool,
    cut_chunks: usize,
    used_bytes: u64,
    /// It has all of its space, and keeps it.
    preallocated: bool,
    /// What the target's checkpoint says; one with batched writes tells nothing
    /// before it is started.
    peek: Option<Peek>,
    /// Superblocks with an offline member, where there is parity.
    degraded: usize,
    health: Health,
}

/// Chunks by their states, and their wear.
#[derive(Debug, Default, PartialEq)]
struct Health {
    free: u64,
    open: u64,
    closed: u64,
    /// Offline: bad from the factory, gone bad since, and given up by the
    /// target.
    factory_bad: u64,
    grown_bad: u64,
    retired: u64,
    least: u32,
    most: u32,
    mean: f64,
    steps: Vec<Step>,
}

/// A step of the wear's distribution.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    from: u32,
    to: u32,
    chunks: u64,
}

impl Health {
    fn of(geometry: &Geometry, chunks: &[Chunk]) -> Health {
        let mut health = Health::default();
        let there = |&(index, _): &(usize, &Chunk)| geometry.contains(geometry.chunk_start(index));
        let chunks: Vec<&Chunk> =
            chunks.iter().enumerate().filter(there).map(|(_, chunk)| chunk).collect();
        for chunk in &chunks {
            *match chunk.state {
                ChunkState::Free => &mut health.free,
                ChunkState::Open => &mut health.open,
                ChunkState::Closed => &mut health.closed,
                ChunkState::Offline => match chunk.why_offline() {
                    Some(Cause::Factory) => &mut health.factory_bad,
                    Some(Cause::Retired) => &mut health.retired,
                    _ => &mut health.grown_bad,
                },
            } += 1;
        }
        let wear = || chunks.iter().map(|chunk| chunk.wear);
        health.least = wear().min().unwrap_or(0);
        health.most = wear().max().unwrap_or(0);
        let sum: u64 = wear().map(u64::from).sum();
        health.mean = sum as f64 / chunks.len().max(1) as f64;
        let width = (health.most - health.least) / STEPS + 1;
        let mut from = health.least;
        loop {
            let to = from.saturating_add(width - 1).min(health.most);
            let chunks = wear().filter(|wear| (from..=to).contains(wear)).count() as u64;
            health.steps.push(Step { from, to, chunks });
            if to == health.most {
                return health;
            }
            from = to + 1;
        }
    }

    fn offline(&self) -> u64 {
        self.factory_bad + self.grown_bad + self.retired
    }

    /// Nothing was ever written.
    fn is_new(&self) -> bool {
        self.open + self.closed == 0 && self.most == 0
    }

    fn chunks(&self) -> u64 {
        self.free + self.open + self.closed + self.offline()
    }

    fn to_json(&self, endurance: Option<u32>) -> Value {
        let steps = self
            .steps
            .iter()
            .map(|step| json!({ "from": step.from, "to": step.to, "chunks": step.chunks }));
        json!({
            "chunks": {
                "all": self.chunks(),
                "free": self.free,
                "open": self.open,
                "closed": self.closed,
                "offline": self.offline(),
                "factory_bad": self.factory_bad,
                "grown_bad": self.grown_bad,
                "retired": self.retired,
            },
            "wear": {
                "min": self.least,
                "mean": self.mean,
                "max": self.most,
                "endurance": endurance,
                "used_percent": endurance.map(|e| 100.0 * self.mean / f64::from(e.max(1))),
                "distribution": Value::from_iter(steps),
            },
        })
    }
}

/// What a target is, in words.
fn what_it_is(one: &DriveConfig) -> String {
    match (&one.rules, one.spec.target) {
        (Some(rules), _) => set_in_words(rules.set()),
        (None, TargetKind::Kv) => {
            format!("kv: up to {} keys, for `serve --redis`", units::count(one.keys() as f64))
        }
        (None, kind) => kind.name().into(),
    }
}

/// How pblk collects, and into how many streams it parts what is written.
fn pblk_in_words(config: &DriveConfig) -> String {
    let streams = units::exactly(config.spec.streams.into(), "stream");
    format!("pblk: victims {}, {streams}", config.spec.victim_name())
}

/// What a rule set is.
fn set_in_words(set: &rules::syntax::Set) -> String {
    let (rules, applications) = (set.rules.len() as u64, set.applications.len() as u64);
    let (rules, applications) =
        (units::counted(rules, "rule"), units::counted(applications, "application"));
    format!("rules: the set {}, {rules} for {applications}", set.name.text)
}

impl Info {
    /// Erases that a chunk stands, where that is limited.
    fn endurance(&self) -> Option<u32> {
        Some(self.config.profile.timing.endurance).filter(|&n| n < u32::MAX)
    }

    /// Map memory for each terabyte of logical capacity.
    fn map_per_terabyte(&self, memory: &Memory) -> f64 {
        memory.total() as f64 * TERABYTE / self.config.size as f64
    }

    /// Write amplification with the parity of what was written: a row for each
    /// stripe.
    fn with_parity(&self, wa: &WriteAmplification) -> f64 {
        let width = f64::from(self.config.spec.parity);
        wa.total * width / (width - 1.0)
    }

    fn to_json(&self) -> Value {
        let mut json = json!({ "drive": self.config.effective() });
        if let Some(memory) = &self.memory {
            json["memory"] = json!({
                "map_bytes": memory.map,
                "directory_bytes": memory.directory,
                "valid_bytes": memory.valid,
                "chunks_bytes": memory.chunks,
                "total_bytes": memory.total(),
                "write_buffer_bytes": memory.write_buffer,
                "held_bytes": memory.held,
                "bytes_per_terabyte": self.map_per_terabyte(memory),
            });
        }
        if let Some(slc) = &self.slc {
            json["slc_cache"] = slc.size_json();
        }
        let Some(file) = &self.file else { return json };
        json["file"] = file.path.clone().into();
        json["cache"] = file.cache.into();
        if let Some(Fill { bytes, used }) = file.journal {
            json["journal"] = json!({ "bytes": bytes, "used_bytes": used });
        }
        json["clean"] = file.clean.into();
        json["cut_chunks"] = file.cut_chunks.into();
        json["used_bytes"] = file.used_bytes.into();
        json["preallocated"] = file.preallocated.into();
        if let Some(peek) = &file.peek {
            json["read_only"] = peek.read_only.into();
            let peek = Peek { clean: file.clean, ..*peek };
            self.peek_json(&peek, file.degraded, &mut json);
        }
        if let Value::Object(health) = file.health.to_json(self.endurance()) {
            health.into_iter().for_each(|(key, value)| json[key] = value);
        }
        json
    }

    /// What the target's checkpoint says.
    fn peek_json(&self, peek: &Peek, degraded: usize, json: &mut Value) {
        if peek.checkpoint == 0 && !peek.clean {
            // It was cut before it had one, and what it wrote is not known.
            (json["checkpoint"], json["written"]) = (Value::Null, Value::Null);
            return;
        }
        json["checkpoint"] = peek.checkpoint.into();
        let c = peek.counters;
        json["written"] = json!({
            "user_blocks": c.user,
            "gc_blocks": c.gc,
            "padding_blocks": c.padding,
            "metadata_blocks": c.metadata,
            "absorbed_blocks": c.absorbed,
            "collections": c.collections,
            "erases": c.erases,
        });
        json["write_amplification"] = json!(amplification(&c));
        if self.config.spec.parity > 0 {
            json["parity"] = json!({
                "superblocks": superblocks(&self.config),
                "degraded": degraded,
                "write_amplification": amplification(&c).map(|wa| self.with_parity(&wa)),
            });
        }
    }

    fn to_text(&self) -> String {
        let mut out = String::new();
        let mut line = |label: &str, text: String| {
            let _ = writeln!(out, "{label:<12}{}", harmless(&text));
        };
        let (config, size) = (&self.config, units::capacity);
        let raw = config.geometry.blocks() * BLOCK_BYTES;
        let about = &config.profile;
        line("drive", config.name.clone());
        line("profile", format!("{}: {}", about.name, about.about));
        match config.spec.target {
            TargetKind::Pblk if config.spec.is_shared() => {}
            TargetKind::Pblk => line("target", pblk_in_words(config)),
            TargetKind::Rules => line("target", what_it_is(config)),
            TargetKind::Batch => {
                line("target", "batch: batches of pages, for `serve --redis`".into());
            }
            TargetKind::Kv => line("target", what_it_is(config)),
        }
        line(
            "capacity",
            format!(
                "{} of {} of flash on {} parallel units, {} of it for data: spare {:.4}; store {}",
                size(config.size),
                size(raw),
                config.geometry.total_pus(),
                size(config.data_blocks() * BLOCK_BYTES),
                config.spare(),
                config.spec.store.name(),
            ),
        );
        for n in (0..config.targets()).filter(|_| config.spec.is_shared()) {
            let (one, place) = (config.target(n), config.place(n));
            let (units, chunks) = (one.above.total_pus(), &place.chunks);
            let first = place.units.first().copied().unwrap_or(0);
            line(
                if n == 0 { "targets" } else { "" },
                format!(
                    "{}: {} from {} on, on {} from {first} on, chunks {} to {} of each; {}",
                    config.parts[n as usize].name,
                    size(one.size),
                    size(config.first_byte(n)),
                    units::exactly(units.into(), "parallel unit"),
                    chunks.start,
                    chunks.end - 1,
                    what_it_is(&one),
                ),
            );
        }
        if config.end() < config.size {
            line("addresses", format!("up to {}", size(config.end())));
        }
        if config.free_units() > 0 {
            line("", format!("nobody's: {}", config.free_text()));
        }
        if config.spec.parity > 0 {
            let (width, of) = (config.spec.parity, config.parity_bytes());
            line("parity", format!("across {width} parallel units: {} of the flash", size(of)));
        }
        if let Some(slc) = &self.slc {
            let off = if self.file.is_some() { "; empty while the drive is off" } else { "" };
            line("SLC cache", format!("{}{off}", slc.size_text(config.profile.timing.slc.dynamic)));
        }
        let limits = self.limits_text();
        if !limits.is_empty() {
            line("limits", limits);
        }
        if let Some(file) = &self.file {
            self.file_text(file, &mut line);
        }
        if let Some(memory) = &self.memory {
            line("memory", self.memory_text(memory));
        }
        out
    }

    /// What the target takes of memory, in words.
    fn memory_text(&self, memory: &Memory) -> String {
        let per_terabyte = units::bytes_decimal(self.map_per_terabyte(memory));
        let (tables, buffer) = (memory.total(), memory.write_buffer);
        let mut text = format!(
            "{} for the target's tables: {per_terabyte} a terabyte; {} of write buffer",
            units::capacity(tables),
            units::capacity(buffer),
        );
        let timing = &self.config.profile.timing;
        if timing.unreadable > 0 {
            let held = units::capacity(memory.held);
            text += &format!(", {held} for rows that cannot be read yet");
        }
        text
    }

    /// What limits the drive's writes, in words; empty where nothing that was said does.
    fn limits_text(&self) -> String {
        let (profile, timing) = (&self.config.profile, &self.config.profile.timing);
        let mut limits = Vec::new();
        if profile.write_buffer > 0 {
            limits.push(format!("write buffer of {}", units::capacity(profile.write_buffer)));
        }
        if profile.buffer_rate > 0 {
            let rate = units::bytes_decimal(profile.buffer_rate as f64);
            limits.push(format!("{rate}/s through its buffer"));
        }
        if timing.unreadable > 0 {
            limits.push(format!("last {} blocks of an open chunk unreadable", timing.unreadable));
        }
        for (most, of) in [(timing.open_chunks, ""), (timing.open_chunks_pu, " of a unit")] {
            if most < u32::MAX {
                limits.push(format!("{most} open chunks{of} at most"));
            }
        }
        limits.join("; ")
    }

    fn file_text(&self, file: &InFile, line: &mut impl FnMut(&str, String)) {
        let health = &file.health;
        let kept = if file.preallocated { ", preallocated" } else { "" };
        let used = units::capacity(file.used_bytes);
        line("file", format!("{used} on the disk{kept}, cache {}", file.cache));
        if let Some(Fill { bytes, used }) = file.journal {
            let (used, bytes) = (units::capacity(used), units::capacity(bytes));
            line("journal", format!("{used} of {bytes} to be written again when it is opened"));
        }
        line(
            "state",
            match (file.clean, file.peek.map(|peek| peek.checkpoint)) {
                (true, Some(0)) => "new, never written".into(),
                (true, None) if health.is_new() => "new, never written".into(),
                (true, _) => "shut down cleanly: opens at once".into(),
                (false, None | Some(0)) => {
                    "cut: it recovers when it is opened, and what was flushed is there".into()
                }
                (false, _) => "cut: it recovers when it is opened, and what was flushed is there; \
                               counters are those of its last checkpoint"
                    .into(),
            },
        );
        line(
            "chunks",
            format!(
                "{}: {} free, {} open, {} closed, {} offline ({} bad from the factory, {} grown \
                 bad, {} retired)",
                health.chunks(),
                health.free,
                health.open,
                health.closed,
                health.offline(),
                health.factory_bad,
                health.grown_bad,
                health.retired,
            ),
        );
        if file.peek.is_some_and(|peek| peek.read_only) {
            line("read-only", READ_ONLY.into());
        }
        let rated = match self.endurance() {
            Some(n) => {
                format!("rated {n}: {:.2} % used", 100.0 * health.mean / f64::from(n.max(1)))
            }
            None => "rated without limit".into(),
        };
        line(
            "wear",
            format!(
                "{} to {} erases, {:.2} on average; {rated}",
                health.least, health.most, health.mean
            ),
        );
        let longest = health.steps.iter().map(|step| step.chunks).max().unwrap_or(1).max(1);
        for step in health.steps.iter().filter(|_| health.steps.len() > 1) {
            let range = match step.to {
                to if to == step.from => to.to_string(),
                to => format!("{}-{to}", step.from),
            };
            let bar = "█".repeat((step.chunks * BAR).div_ceil(longest) as usize);
            line("", format!("{range:>11} {:>8} {bar}", step.chunks));
        }
        let Some(Peek { counters: c, .. }) = file.peek else { return };
        if self.config.spec.parity > 0 {
            let (all, degraded) = (superblocks(&self.config), file.degraded);
            let wa = amplification(&c).map_or(String::new(), |wa| {
                format!("; write amplification {:.3} with it", self.with_parity(&wa))
            });
            line("superblocks", format!("{all}: {degraded} with an offline chunk{wa}"));
        }
        let written = units::bytes_decimal((c.user * BLOCK_BYTES) as f64);
        let up_to = if file.clean { "" } else { ", up to its last checkpoint" };
        line(
            "written",
            match amplification(&c) {
                None if file.clean => "nothing since it was made".into(),
                None => "unknown: the drive was not shut down".into(),
                Some(wa) => format!(
                    "{written} since it was made{up_to}; write amplification {:.3} = 1 user + {:.3} \
                     collection + {:.3} padding + {:.3} metadata",
                    wa.total, wa.gc, wa.padding, wa.metadata
                ),
            },
        );
    }
}

/// Superblocks of a drive with parity.
fn superblocks(config: &DriveConfig) -> u64 {
    u64::from(config.above.total_pus()) * u64::from(config.total_chunks())
}

fn amplification(c: &WriteCounters) -> Option<WriteAmplification> {
    WriteAmplification::from_blocks(c.user, c.gc, c.padding, c.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash::Dimensions;

    #[test]
    fn wear_is_spread_over_steps_that_count_every_chunk() {
        let dim = Dimensions { groups: 3, chunks: 40, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        for most in [0u32, 1, 9, 10, 11, 100, 3000] {
            let mut chunks = vec![Chunk { wear: 7777, ..Chunk::default() }; geometry.chunk_slots()];
            let (mut n, mut sum) = (0u32, 0);
            for (index, chunk) in chunks.iter_mut().enumerate() {
                if geometry.contains(geometry.chunk_start(index)) {
                    chunk.wear = n * 7 % (most + 1);
                    (n, sum) = (n + 1, sum + u64::from(chunk.wear));
                }
            }
            let health = Health::of(&geometry, &chunks);
            assert_eq!((health.chunks(), health.free), (120, 120));
            assert!(health.steps.len() <= STEPS as usize, "{most}: {:?}", health.steps);
            assert_eq!(health.steps.iter().map(|step| step.chunks).sum::<u64>(), 120);
            assert!(health.most <= most && health.least == 0);
            assert_eq!(health.mean, sum as f64 / 120.0);
            assert!(health.steps.windows(2).all(|w| w[0].to + 1 == w[1].from));
        }
    }

    #[test]
    fn states_are_told_apart() {
        let dim = Dimensions { chunks: 7, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let mut chunks = vec![Chunk::default(); geometry.chunk_slots()];
        chunks[1].state = ChunkState::Open;
        chunks[2].state = ChunkState::Closed;
        (chunks[3].state, chunks[3].wear) = (ChunkState::Offline, 3);
        // Nothing was told of it.
        chunks[4].state = ChunkState::Offline;
        chunks[5].leave_factory_bad();
        chunks[6].retire().unwrap();
        let health = Health::of(&geometry, &chunks);
        assert_eq!((health.free, health.open, health.closed), (1, 1, 1));
        assert_eq!((health.factory_bad, health.grown_bad, health.retired), (2, 1, 1));
        assert_eq!((health.offline(), health.chunks()), (4, 7));
    }
}
