//! `ssdkit snapshot`: a copy of a drive that is shut down, and the snapshot
//! that a bench saves.
//!
//! Guarantees: a copy is durable and whole when the command ends, or is not
//! there; the source stays as it is. Fails when somebody has the source open
//! for writing, or there is something of the copy's name.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use measure::units;
use serde_json::json;

use crate::cli::SnapshotArgs;
use crate::drive::DriveConfig;
use crate::drive::file::{file_error, header};
use crate::error::Error;
use crate::say::harmless;
use crate::whole::Ended;

/// Copies a drive file, and tells `out`.
pub fn run(args: &SnapshotArgs, out: &mut dyn Write) -> Result<(), Error> {
    let file = args.file.strip_prefix("file:").unwrap_or(&args.file);
    let (from, to) = (Path::new(file), Path::new(&args.copy));
    check_new(&args.copy)?;
    let began = Instant::now();
    drivefile::clone(from, to).map_err(|e| {
        let text = e.to_string();
        // The one that it is about.
        file_error(if text.contains(&args.copy) { &args.copy } else { file }, e)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let used = used_bytes(to)?;
    if args.json {
        let json = json!({
            "snapshot": args.copy,
            "of": args.file,
            "used_bytes": used,
            "wall_seconds": seconds,
        });
        writeln!(out, "{json:#}")?;
    } else {
        let (used, took) = (units::size_binary(used), units::time_ns(seconds * 1e9));
        let (copy, file) = (harmless(&args.copy), harmless(file));
        writeln!(out, "{copy} is a copy of {file}: {used} on the disk, in {took}")?;
    }
    Ok(())
}

/// Bytes that a file takes on the disk.
fn used_bytes(path: &Path) -> Result<u64, Error> {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(path);
    let about = about.map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?;
    Ok(about.blocks() * 512)
}

/// Saves a drive that was ended in a new file.
pub fn save(path: &str, config: &DriveConfig, seed: u64, ended: &mut Ended) -> Result<(), Error> {
    let header = header(config, seed)?;
    let Ended { medium, chunks, .. } = ended;
    drivefile::save(Path::new(path), &header, chunks, medium).map_err(|e| file_error(path, e))
}

/// Whether it is a name that a file can have.
pub fn check_name(path: &str) -> Result<(), Error> {
    if path.is_empty() {
        let text = "the name of the drive file is empty: name a file, for example drive.ssd";
        return Err(Error::Usage(text.into()));
    }
    if path.contains(',') {
        let text = "keys follow a comma in a drive's name, so a drive file's name has none";
        return Err(Error::Usage(format!("{path}: {text}: take another")));
    }
    Ok(())
}

/// Whether a drive can be saved there: found out before hours of aging.
pub fn check_new(path: &str) -> Result<(), Error> {
    check_name(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(_) => Err(file_error(path, drivefile::FileError::Exists { path: path.into() })),
        Err(_) => {
            let folder = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty());
            match folder {
                Some(folder) if !folder.is_dir() => Err(Error::Usage(format!(
                    "{path}: there is no folder {}: make it first",
                    folder.display()
                ))),
                _ => Ok(()),
            }
        }
    }
}
