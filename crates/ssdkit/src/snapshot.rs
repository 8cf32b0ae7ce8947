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
use drive::error::Error;
use drive::image::check_new;
use drive::say::harmless;
use drive::spec::file::file_error;

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
        let (used, took) = (units::capacity(used), units::time_ns(seconds * 1e9));
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
