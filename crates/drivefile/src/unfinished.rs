//! A drive file that is being made.
//!
//! Guarantees: until it is finished it lies beside its name, as
//! `NAME.unfinished`, and cannot be opened: it begins with `ssdkitUF`. When
//! [`Unfinished::finish`] returns it is whole, durable, and has its name, and so
//! has nothing else. One that was left by a killed process, whenever it was
//! killed, is taken over by the next that makes a file of the same name; one
//! that somebody still makes is refused. Fails as the system does; then nothing
//! is left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::header::{MAGIC, NAMELESS, UNFINISHED};
use crate::open::read_header;
use crate::{DriveFile, FileError, FileIo, Header, SystemFile};

/// What a name may have in common with a file while it is made.
const SUFFIX: &str = ".unfinished";

/// By how many bytes a copy is too long while it begins as its source does:
/// whole blocks of any file system.
pub(crate) const TOO_LONG: u64 = 1 << 16;

/// Bytes that are written at once where space is taken, and how many of them before they are made
/// durable: who asks to end waits for no more of the disk.
const AT_ONCE: usize = 1 << 20;
const SYNC_EACH: u64 = 64 << 20;

/// How often a file beside is looked for that others make and remove.
const TRIES: u32 = 8;

/// Where a file is made: a folder with two names, one for the time until it is
/// whole. Small, so that a test can implement it.
pub(crate) trait Place: Send {
    /// Gives the file its name.
    fn publish(&self) -> io::Result<()>;
    /// Makes that durable.
    fn sync(&self) -> io::Result<()>;
    /// Removes it before it got its name.
    fn remove(&self);
}

/// A drive file that is being made. Dropped unfinished, it is removed.
pub struct Unfinished {
    place: Box<dyn Place>,
    storage: Arc<dyn FileIo>,
    finished: bool,
}

impl Unfinished {
    /// Begins a file that will be at `path`: in the place of the drive file
    /// that is there, if it `replaces` one, else where there is nothing.
    pub fn begin(path: &Path, replaces: bool) -> Result<Unfinished, FileError> {
        let (place, storage) = Beside::claim(path, replaces)?;
        Ok(Unfinished::of(place, Arc::new(storage)))
    }

    /// One that is made in `storage`, which is empty.
    pub(crate) fn of(place: impl Place + 'static, storage: Arc<dyn FileIo>) -> Unfinished {
        Unfinished { place: Box::new(place), storage, finished: false }
    }

    /// Takes all the space that the drive's file will have, before it is made in it: by
    /// writing it, as space that the system only sets aside is new to it when it is
    /// written. The drive then never gives any back. `go_on` is told now and then which part
    /// is done, 0 to 1; where it says no, this gives false, and no drive can be made in it.
    pub fn preallocate(
        &self,
        header: &Header,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Result<bool, FileError> {
        header.check()?;
        let failed = |e: io::Error| FileError::system("taking its space", &e);
        let bytes = header.file_bytes();
        self.storage.set_bytes(bytes).map_err(failed)?;
        self.storage.write_durable(0, UNFINISHED).map_err(failed)?;
        // A disk without room says so before anything is written.
        self.storage.set_aside(bytes).map_err(failed)?;
        let zeros = vec![0; AT_ONCE];
        let mut at = UNFINISHED.len() as u64;
        while at < bytes {
            if !go_on(at as f64 / bytes as f64) {
                return Ok(false);
            }
            let n = (bytes - at).min(AT_ONCE as u64);
            self.storage.write(at, &zeros[..n as usize]).map_err(failed)?;
            at += n;
            if at == bytes || at % SYNC_EACH < n {
                self.storage.sync().map_err(failed)?;
            }
        }
        Ok(go_on(1.0))
    }

    /// Makes the file of an empty drive in it.
    pub fn create(&self, header: &Header) -> Result<DriveFile, FileError> {
        self.create_with(header, true)
    }

    /// The same; `threaded` as for [`DriveFile::create_on`].
    pub(crate) fn create_with(
        &self,
        header: &Header,
        threaded: bool,
    ) -> Result<DriveFile, FileError> {
        DriveFile::make_on(Arc::clone(&self.storage), header, UNFINISHED, threaded)
    }

    /// Gives it its name. All of it is written.
    pub fn finish(mut self) -> Result<(), FileError> {
        let failed = |e: io::Error| FileError::system("finishing it", &e);
        // Nobody may ever find it half written, not even under the other name.
        self.storage.sync().map_err(failed)?;
        self.storage.write_durable(0, NAMELESS).map_err(failed)?;
        self.place.publish().map_err(|e| FileError::system("giving it its name", &e))?;
        self.finished = true;
        self.storage.write(0, MAGIC).map_err(failed)?;
        self.place.sync().map_err(|e| FileError::system("syncing its folder", &e))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            self.place.remove();
        }
    }
}

/// A file of the system, beside its name.
pub(crate) struct Beside {
    path: PathBuf,
    beside: PathBuf,
    /// The drive file that it replaces, so that nobody opens that meanwhile.
    replaced: Option<SystemFile>,
}

impl Beside {
    /// Makes or takes over the file beside `path`; gives it empty and locked.
    pub fn claim(path: &Path, replaces: bool) -> Result<(Beside, SystemFile), FileError> {
        let there = path.symlink_metadata().is_ok();
        if there && !replaces {
            return Err(FileError::Exists { path: path.into() });
        }
        let replaced = if there { Some(SystemFile::open(path, false)?) } else { None };
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(SUFFIX);
        let beside = path.with_file_name(name);
        for _ in 0..TRIES {
            let storage = match SystemFile::create(&beside) {
                Err(FileError::Exists { .. }) if beside.is_symlink() => {
                    return Err(FileError::NotAFile { path: beside, kind: "a symbolic link" });
                }
                Err(FileError::Exists { .. }) => match SystemFile::open(&beside, false) {
                    // It has got its name, or was given up.
                    Err(FileError::Missing { .. }) => continue,
                    opened => opened?,
                },
                made => made?,
            };
            if !storage.is_at(&beside) {
                continue;
            }
            if !is_left_over(&storage) {
                return Err(FileError::Exists { path: beside });
            }
            let emptied = storage.set_bytes(0);
            emptied.map_err(|e| FileError::system("emptying what was left of it", &e))?;
            return Ok((Beside { path: path.into(), beside, replaced }, storage));
        }
        Err(FileError::InUse { path: beside, by: "another process".into() })
    }
}

/// Whether a file is one that was never finished, and not somebody's.
fn is_left_over(storage: &SystemFile) -> bool {
    let mut begin = [0; MAGIC.len()];
    match storage.bytes() {
        Ok(0) => true,
        Ok(_) if storage.read(0, &mut begin).is_err() => false,
        Ok(_) if begin == [0; MAGIC.len()] => storage.is_a_hole(),
        Ok(_) if begin == *MAGIC => is_half_shared(storage),
        Ok(_) => begin == *UNFINISHED || begin == *NAMELESS,
        Err(_) => false,
    }
}

/// Whether a file begins as a whole one and is as long as only one is whose
/// first bytes were to be written over next.
fn is_half_shared(storage: &SystemFile) -> bool {
    let header = read_header(storage).map(|_| ());
    matches!(header, Err(FileError::Length { found, expected })
        if expected.checked_add(TOO_LONG) == Some(found))
}

impl Place for Beside {
    fn publish(&self) -> io::Result<()> {
        if self.replaced.is_some() {
            return fs::rename(&self.beside, &self.path);
        }
        // Never over a file that somebody made meanwhile.
        match renameat_with(CWD, &self.beside, CWD, &self.path, RenameFlags::NOREPLACE) {
            // The file system does not know how.
            Err(Errno::INVAL | Errno::NOSYS) if self.path.symlink_metadata().is_err() => {
                fs::rename(&self.beside, &self.path)
            }
            Err(Errno::EXIST) => {
                let text = "another process made one of this name meanwhile, which stays: take \
                            another name, or remove that one first";
                Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
            }
            renamed => renamed.map_err(io::Error::from),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.beside);
    }
}
