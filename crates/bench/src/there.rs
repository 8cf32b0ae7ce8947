//! The device or file that a drive's name leads to: found, or made.
//!
//! Guarantees: nothing that is on it is written over unasked. A file that was made goes
//! again unless it is kept: a run that is refused, or does not end its preconditioning,
//! leaves none that would be taken for one with something on it. Fails with words that say
//! what to do.

use std::fs;

use drive::error::Error;
use drive::spec::{Found, StorageSpec};
use measure::units;

/// What is there.
pub(crate) struct There<'a> {
    /// Whether nothing is on it, and it may be written.
    pub is_new: bool,
    /// Where it is, if it was made and is not kept so far.
    made: Option<&'a str>,
}

impl<'a> There<'a> {
    /// Makes sure that there is something, and that it may be written; `guards` what is on
    /// it.
    pub fn find_or_make(spec: &'a StorageSpec, guards: bool) -> Result<There<'a>, Error> {
        let found = spec.find()?;
        if found == Found::Nothing {
            spec.create(size_of_new(spec)?)?;
            return Ok(There { is_new: true, made: Some(&spec.path) });
        }
        let what = existing(spec, found)?;
        let is_new = matches!(found, Found::Hollow(_));
        if let Some(what) = what.filter(|_| guards && !is_new) {
            return Err(Error::Usage(format!(
                "this writes over what is on {what}: add --destroy if it may be lost"
            )));
        }
        Ok(There { is_new: is_new && !spec.read_only, made: None })
    }

    /// Keeps a file that was made.
    pub fn keep(mut self) {
        self.made = None;
    }
}

impl Drop for There<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// Bytes of the file that is to be made, where one is to be.
fn size_of_new(spec: &StorageSpec) -> Result<u64, Error> {
    let path = &spec.path;
    Err(Error::Usage(match spec.size {
        Some(_) if spec.read_only => {
            format!("{path} does not exist, and with read_only=yes nothing is made: leave it out")
        }
        Some(size) => return Ok(size),
        None if path.ends_with(".ssd") => format!(
            "there is no drive file {path}: make it, as in \
             ssdkit create {path} --profile tlc --size 8G"
        ),
        None if path.starts_with("/dev/") => format!(
            "there is no device {path}: name one that is there, or an emulated drive in its \
             place, as in mem:tlc,size=1G"
        ),
        None => format!(
            "{path} does not exist: make it, or add its size to be made, \
             as in file:{path},size=1G"
        ),
    }))
}

/// What is there, in words, where something may be on it.
fn existing(spec: &StorageSpec, found: Found) -> Result<Option<String>, Error> {
    let path = &spec.path;
    let wrong = |text: String| Err(Error::Usage(text));
    match (found, spec.size) {
        (Found::File(bytes) | Found::Hollow(bytes), Some(size)) if bytes != size => wrong(format!(
            "{path} is a file of {}, not of {}: leave out size, or remove the file",
            units::size_binary(bytes),
            units::size_binary(size)
        )),
        (Found::File(0) | Found::Other | Found::Nothing, _) => Ok(None),
        (Found::File(bytes) | Found::Hollow(bytes), _) => {
            Ok(Some(format!("the file {path}, {}", units::capacity(bytes))))
        }
        (Found::Device, Some(_)) => {
            wrong(format!("{path} is a device, which has its size: leave size out"))
        }
        (Found::Device, None) => Ok(Some(format!("the block device {path}"))),
    }
}
