//! Drive files made: new ones, and copies of a drive that was ended.
//!
//! Guarantees: the file is a whole drive when the call ends, however it ended, or
//! there is none; what was there before stays unless it was to be replaced and the
//! new one is whole. Fails when the drive cannot be, or the file cannot be made.

use std::path::Path;

use drivefile::{SystemFile, Unfinished};

use crate::backing::Backing;
use crate::error::Error;
use crate::memory;
use crate::spec::DriveConfig;
use crate::spec::file::{file_error, header, is_drive_file, one_shard_only};
use crate::stack::new_device;
use crate::whole::{Ended, Left};

/// A drive that is in the way may be replaced.
fn or_force(path: &str, error: Error) -> Error {
    match is_drive_file(path) {
        Ok(true) => Error::Usage(format!("{error}; --force replaces it")),
        Ok(false) | Err(_) => error,
    }
}

/// How a drive file is made.
#[derive(Default)]
pub struct Making<'a> {
    /// One that is there is replaced, and stays until the new one is whole.
    pub force: bool,
    /// The file has all of its space from the start, and keeps it. Who is here is told which
    /// part of that is taken, 0 to 1, and may stop it.
    pub preallocate: Option<&'a mut dyn FnMut(f64) -> bool>,
}

/// Makes a drive in a file, empty; gives the bytes that it takes on the disk.
pub fn create(file: &str, config: &DriveConfig, seed: u64, how: Making) -> Result<u64, Error> {
    let path = Path::new(file);
    let header = header(config, seed)?;
    let failed = |e| file_error(file, e);
    if !how.force {
        check_new(file).map_err(|e| or_force(file, e))?;
    } else if path.exists() {
        // Nobody may have it open, and it must be a file.
        drop(SystemFile::open(path, false).map_err(failed)?);
        if !is_drive_file(file)? {
            return Err(Error::Usage(format!(
                "{file} is no drive file, and --force replaces nothing else: remove it first, or \
                 take another name"
            )));
        }
    }
    memory::ask_file(file, &config.geometry)?;
    let unfinished = Unfinished::begin(path, how.force).map_err(failed)?;
    if let Some(go_on) = how.preallocate
        && !unfinished.preallocate(&header, go_on).map_err(failed)?
    {
        return Err(Error::Failed(format!("{file}: stopped before it was made")));
    }
    // As it leaves the factory, with the chunks that are bad from there.
    let medium = unfinished.create(&header).map_err(failed)?;
    let medium = new_device(config, seed, medium.into())?.cut();
    let used = medium.used_bytes().map_err(failed)?;
    medium.put_away()?;
    unfinished.finish().map_err(failed)?;
    Ok(used)
}

/// Saves a drive that was ended in a new file. There is none where the drive's own cannot
/// be read any more.
pub fn save(path: &str, config: &DriveConfig, seed: u64, ended: &mut Ended) -> Result<(), Error> {
    let header = header(config, seed)?;
    let [Left { medium, chunks }] = &mut ended.shards[..] else {
        return Err(one_shard_only(&config.name));
    };
    let is_sound = |medium: &Backing| medium.error().cloned().map_or(Ok(()), Err);
    drivefile::save(Path::new(path), &header, chunks, medium, is_sound).map_err(|e| {
        let whose = if medium.error().is_some() { &config.name } else { path };
        file_error(whose, e)
    })
}

/// Whether it is a name that a file can have.
pub fn check_name(path: &str) -> Result<(), Error> {
    if path.is_empty() {
        let text = "the name of the drive file is empty: name a file, for example drive.ssd";
        return Err(Error::Usage(text.into()));
    }
    if path.ends_with('/') {
        let text = "a folder's name ends so, and a drive is in a file: leave the slash out";
        return Err(Error::Usage(format!("{path}: {text}")));
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
