//! `ssdkit create`: a new drive in a file.
//!
//! Guarantees: the file is a whole, empty drive when the command ends, however
//! it ended, or there is none; what was there before stays unless `--force` was
//! given and the new one is whole. Fails when the drive cannot be, or the file
//! cannot be made.

use std::io::Write;

use measure::units;
use port::BLOCK_BYTES;
use serde_json::json;

use crate::cli::CreateArgs;
use drive::batched;
use drive::error::Error;
use drive::image::{self, Making};
use drive::kv;
use drive::say::harmless;
use drive::spec::file::is_drive_file;
use drive::spec::{DriveConfig, MemorySpec, TargetKind};
use drive::stack;
use load::watch::Watch;

/// Makes the drive, and tells `out` what it is.
pub fn run(args: &CreateArgs, out: &mut dyn Write) -> Result<(), Error> {
    if !(args.force && is_drive_file(&args.file)?) {
        image::check_name(&args.file)?;
    }
    let config = spec(args)?.resolve()?;
    // What no target can work on is no drive.
    match config.spec.target {
        TargetKind::Pblk | TargetKind::Rules => stack::check(&config, args.seed).map(drop)?,
        TargetKind::Batch => batched::check(&config, args.seed)?,
        TargetKind::Kv => kv::check(&config, args.seed)?,
    }
    let used = make(args, &config)?;
    let raw = config.geometry.blocks() * BLOCK_BYTES;
    let pus = config.geometry.total_pus();
    // A file system may keep zeros otherwise than by writing them.
    let is_preallocated = args.preallocate && used >= raw;
    if args.preallocate && !is_preallocated {
        eprintln!(
            "ssdkit: {}: its file system has not taken all of its space: it is a drive file like \
             any other",
            harmless(&args.file)
        );
    }
    if args.json {
        let json = json!({
            "file": args.file,
            "size_bytes": config.size,
            "raw_bytes": raw,
            "parallel_units": pus,
            "used_bytes": used,
            "preallocated": is_preallocated,
            "cache": config.spec.cache.name(),
            "drive": config.effective(),
        });
        writeln!(out, "{json:#}")?;
    } else {
        writeln!(
            out,
            "{}: a drive of {} ({} of flash on {pus} parallel units{}, {} of it for data: spare {:.4}; profile {}); \
             {} on the disk",
            harmless(&args.file),
            units::capacity(config.size),
            units::capacity(raw),
            parity(&config),
            units::capacity(config.data_blocks() * BLOCK_BYTES),
            config.spare(),
            config.profile.name,
            units::capacity(used),
        )?;
        if let Some(why) = config.raised_spare() {
            writeln!(out, "spare: {why}")?;
        }
        if config.end() < config.size {
            writeln!(out, "addresses: up to {}", units::capacity(config.end()))?;
        }
        if config.free_units() > 0 {
            writeln!(out, "nobody's: {}", config.free_text())?;
        }
    }
    Ok(())
}

/// Makes the file; gives the bytes that it takes on the disk.
fn make(args: &CreateArgs, config: &DriveConfig) -> Result<u64, Error> {
    let create = |preallocate| {
        let how = Making { force: args.force, preallocate };
        image::create(&args.file, config, args.seed, how)
    };
    if !args.preallocate {
        return create(None);
    }
    let mut watch = Watch::terminal(None)?;
    watch.phase("taking space");
    let used = create(Some(&mut |part| watch.look(part)));
    watch.end();
    used
}

/// What parity takes of the flash, in words, where there is any.
fn parity(config: &DriveConfig) -> String {
    match config.spec.parity {
        0 => String::new(),
        width => {
            let bytes = units::capacity(config.parity_bytes());
            format!(", {bytes} of it parity across {width} of them")
        }
    }
}

/// The drive as a name in memory would say it.
fn spec(args: &CreateArgs) -> Result<MemorySpec, Error> {
    let mut spec = MemorySpec::new(&args.profile);
    let given = [
        ("size", &args.size),
        ("spare", &args.spare),
        ("store", &args.store),
        ("victim", &args.victim),
        ("cache", &args.cache),
    ];
    for (key, value) in given.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        if args.keys.iter().any(|(other, _)| other == key) {
            return Err(Error::Usage(format!("`{key}` is given twice: leave one out")));
        }
        spec.set(key, value)?;
    }
    for (i, (key, value)) in args.keys.iter().enumerate() {
        if args.keys[..i].iter().any(|(other, _)| other == key) {
            return Err(Error::Usage(format!("`{key}` is given twice: leave one out")));
        }
        spec.set(key, value)?;
    }
    Ok(spec)
}
