//! `ssdkit create`: a new drive in a file.
//!
//! Guarantees: the file is a whole, empty drive when the command ends, however
//! it ended, or there is none; what was there before stays unless `--force` was
//! given and the new one is whole. Fails when the drive cannot be, or the file
//! cannot be made.

use std::io::Write;
use std::path::Path;

use drivefile::{FileStorage, Unfinished};
use measure::units;
use port::BLOCK_BYTES;
use serde_json::json;

use crate::batched;
use crate::cli::CreateArgs;
use crate::drive::file::{file_error, header, is_drive_file};
use crate::drive::{DriveConfig, MemorySpec, TargetKind};
use crate::error::Error;
use crate::memory;
use crate::say::harmless;
use crate::snapshot::{check_name, check_new};
use crate::stack::{Stack, new_device};

/// Makes the drive, and tells `out` what it is.
pub fn run(args: &CreateArgs, out: &mut dyn Write) -> Result<(), Error> {
    if !(args.force && is_drive_file(&args.file)) {
        check_name(&args.file)?;
    }
    let config = spec(args)?.resolve()?;
    // What no target can work on is no drive.
    match config.spec.target {
        TargetKind::Pblk => Stack::check(&config, args.seed).map(drop)?,
        TargetKind::Batch => batched::check(&config, args.seed)?,
    }
    let used = make(args, &config)?;
    let raw = config.geometry.blocks() * BLOCK_BYTES;
    let pus = config.geometry.total_pus();
    if args.json {
        let json = json!({
            "file": args.file,
            "size_bytes": config.size,
            "raw_bytes": raw,
            "parallel_units": pus,
            "used_bytes": used,
            "cache": config.spec.cache.name(),
            "drive": config.effective(),
        });
        writeln!(out, "{json:#}")?;
    } else {
        writeln!(
            out,
            "{}: a drive of {} ({} of flash on {pus} parallel units{}, spare {:.4}, profile {}); \
             {} on the disk",
            harmless(&args.file),
            units::size_binary(config.size),
            units::size_binary(raw),
            parity(&config),
            config.spare(),
            config.profile.name,
            units::size_binary(used),
        )?;
    }
    Ok(())
}

/// What parity takes of the flash, in words, where there is any.
fn parity(config: &DriveConfig) -> String {
    match config.spec.parity {
        0 => String::new(),
        width => {
            let bytes = units::size_binary(config.parity_bytes());
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

/// A drive that is in the way may be replaced.
fn or_force(path: &str, error: Error) -> Error {
    if is_drive_file(path) { Error::Usage(format!("{error}; --force replaces it")) } else { error }
}

/// Makes the file; gives the bytes that it takes on the disk. One that is to
/// be replaced is there until the new one is whole.
fn make(args: &CreateArgs, config: &DriveConfig) -> Result<u64, Error> {
    let path = Path::new(&args.file);
    let header = header(config, args.seed)?;
    let failed = |e| file_error(&args.file, e);
    if !args.force {
        check_new(&args.file).map_err(|e| or_force(&args.file, e))?;
    } else if path.exists() {
        // Nobody may have it open, and it must be a file.
        drop(FileStorage::open(path, false).map_err(failed)?);
        if !is_drive_file(&args.file) {
            return Err(Error::Usage(format!(
                "{} is no drive file, and --force replaces nothing else: remove it first, or take \
                 another name",
                args.file
            )));
        }
    }
    memory::ask_file(&args.file, &config.geometry)?;
    let unfinished = Unfinished::begin(path, args.force).map_err(failed)?;
    // As it leaves the factory, with the chunks that are bad from there.
    let file = unfinished.create(&header).map_err(failed)?;
    let file = new_device(config, args.seed, file)?.cut();
    let used = file.used_bytes().map_err(failed)?;
    file.close().map_err(failed)?;
    unfinished.finish().map_err(failed)?;
    Ok(used)
}
