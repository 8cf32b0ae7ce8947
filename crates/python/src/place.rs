//! Drive files by name, and where they are.
//!
//! Guarantees: a path is that of a drive file here, and what else is there is told as of any;
//! a file that was opened is found again by itself, whatever it is called then. Fails as drive
//! files do.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use ::drive::Error;
use ::drive::spec::file::OpenFile;
use ::drive::spec::{DriveSpec, FileSpec};

/// The drive that a name means. A path that is no drive file's is told as one that is
/// damaged, or missing: nothing else of the system can be had.
pub fn meant(name: &str) -> Result<DriveSpec, Error> {
    let found = name.parse::<DriveSpec>()?.found()?;
    let DriveSpec::Storage(spec) = &found else { return Ok(found) };
    // One with keys is meant to be something else.
    let plain = format!("file:{}", spec.path).parse::<DriveSpec>();
    match plain.is_ok_and(|plain| plain == found) {
        true => Ok(DriveSpec::File(FileSpec::new(&spec.path))),
        false => Ok(found),
    }
}

/// A drive file that was opened, wherever it goes.
pub struct Place {
    spec: FileSpec,
    /// The file itself, without its lock.
    file: File,
}

impl Place {
    /// Where a drive file is that is open now.
    pub fn of(spec: FileSpec) -> Result<Place, Error> {
        let opened = File::open(&spec.path);
        let file = opened.map_err(|e| Error::Failed(format!("{}: {e}", spec.path)))?;
        Ok(Place { spec, file })
    }

    /// Opens it again. Nobody may have it open.
    pub fn open(&self) -> Result<OpenFile, Error> {
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = match Path::new(&itself).try_exists() {
            // One that was removed has no name: opening it says so.
            Ok(true) => name_of(&itself).unwrap_or(itself),
            _ => self.spec.path.clone(),
        };
        FileSpec { path, ..self.spec }.open(false)
    }
}

/// What an open file is called now; none where it is called nothing, or that is no text.
fn name_of(itself: &str) -> Option<String> {
    let name = fs::read_link(itself).ok()?.into_os_string().into_string().ok()?;
    Path::new(&name).exists().then_some(name)
}
