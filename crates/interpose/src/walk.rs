//! A walk through folders by descriptors: two are open at a time, however deep it goes, and no
//! path is ever too long. It follows no symbolic link, and enters nothing that is mounted. Folders
//! and files of ours that their own permission bits lock are unlocked while they are looked at.
//!
//! Fails where a folder is moved meanwhile, and where rights are missing.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, accessat, chmod, fchmod,
    fstat, openat, openat2, statat,
};
use rustix::io::Errno;

use crate::path::of_open;
use crate::tree::Key;

/// A folder on the way down.
struct Level {
    name: Vec<u8>,
    /// Which one it lies in.
    above: Key,
    /// The permission bits that it gets when it is left.
    mode: Option<Mode>,
}

/// A folder somewhere below one that it began in, and the way back.
pub struct Descent {
    top: PathBuf,
    top_mode: Option<Mode>,
    here: OwnedFd,
    levels: Vec<Level>,
    access: Access,
}

/// What a folder is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// To look what is in it.
    Only,
    /// To make and remove names in it.
    AndChange,
}

fn opened(at: impl AsFd, name: &[u8], flags: OFlags, to: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    openat2(at, name, flags, Mode::empty(), to | ResolveFlags::NO_XDEV)
}

/// Unlocks what its bits lock, if we may; gives the bits that it had.
fn unlocked(file: &OwnedFd, access: Access, bits: Mode) -> Option<Mode> {
    let path = of_open(file);
    accessat(CWD, &*path, access, AtFlags::EACCESS).err()?;
    let had = Mode::from_raw_mode(fstat(file).ok()?.st_mode);
    chmod(&*path, had | bits).ok().map(|()| had)
}

/// Opens a folder that was only found, to look into it.
fn entered(found: OwnedFd, access: Access) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let had = unlocked(&found, access, Mode::RWXU);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(&found, ".", flags, Mode::empty()) {
        Ok(here) => Ok((here, had)),
        Err(e) => {
            had.map(|mode| chmod(of_open(&found), mode));
            Err(e)
        }
    }
}

impl Descent {
    /// Begins in a folder that is open; by that path it is called in errors.
    pub fn of(folder: impl AsFd, path: &Path, look: Look) -> io::Result<Self> {
        let access = match look {
            Look::Only => Access::READ_OK | Access::EXEC_OK,
            Look::AndChange => Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
        };
        let (here, top_mode) = entered(folder.as_fd().try_clone_to_owned()?, access)?;
        Ok(Self { top: path.to_path_buf(), top_mode, here, levels: Vec::new(), access })
    }

    /// Opens a folder, only to be found; its path ends with no symbolic link.
    pub fn find(path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(CWD, path, flags, Mode::empty())?)
    }

    /// The folder that it is in.
    pub fn here(&self) -> BorrowedFd<'_> {
        self.here.as_fd()
    }

    /// How many folders below the first one.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// What a name of this folder is called in errors.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        let names = self.levels.iter().map(|level| &*level.name).chain([name]);
        let names = names.map(std::ffi::OsStr::from_bytes);
        [self.top.as_os_str()].into_iter().chain(names.filter(|it| !it.is_empty())).collect()
    }

    /// The names of the folders that lead here.
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.levels.iter().map(|level| level.name.clone()).collect()
    }

    /// What a name of this folder leads to, itself if it is a symbolic link.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        Ok(statat(&self.here, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Goes into a folder; does not where something is mounted there.
    pub fn enter(&mut self, name: &[u8]) -> io::Result<bool> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let found = match opened(&self.here, name, flags, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::XDEV) => return Ok(false),
            other => other?,
        };
        let above = Key::of(&fstat(&self.here)?);
        let (here, mode) = entered(found, self.access)?;
        self.here = here;
        self.levels.push(Level { name: name.to_vec(), above, mode });
        Ok(true)
    }

    /// The folder gets these permission bits when it is left.
    pub fn set_mode(&mut self, mode: u16) {
        let to = match self.levels.last_mut() {
            Some(level) => &mut level.mode,
            None => &mut self.top_mode,
        };
        *to = Some(Mode::from_raw_mode(mode.into()));
    }

    /// Goes up again, not further than it began; the name of what it left.
    pub fn leave(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(level) = self.levels.pop() else {
            self.top_mode.take().map_or(Ok(()), |mode| fchmod(&self.here, mode))?;
            return Ok(None);
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let above = opened(&self.here, b"..", flags, ResolveFlags::empty())?;
        if Key::of(&fstat(&above)?) != level.above {
            let moved = format!("{} was moved meanwhile", self.path(&level.name).display());
            return Err(io::Error::other(moved));
        }
        level.mode.map_or(Ok(()), |mode| fchmod(&self.here, mode))?;
        self.here = above;
        Ok(Some(level.name))
    }

    /// Opens a file of this folder to read it.
    pub fn file(&self, name: &[u8]) -> io::Result<File> {
        let found = openat(
            &self.here,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let had = unlocked(&found, Access::READ_OK, Mode::RUSR);
        let path = of_open(&found);
        let file = openat(CWD, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        had.map_or(Ok(()), |mode| chmod(&*path, mode))?;
        Ok(file?.into())
    }

    /// All names of this folder, in order of their bytes.
    fn list(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.here)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl Drop for Descent {
    /// Bits that were changed come back, as far as it goes.
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.leave() {}
    }
}

/// What is met on a walk.
pub enum Met {
    /// A name in the folder where it is.
    Name(Vec<u8>, Stat),
    /// The end of a folder that was entered: it is out of it again.
    End(Vec<u8>),
}

impl Met {
    /// Whether files are told of it: devices, pipes and sockets are the kernel's alone.
    pub fn is_kept(stat: &Stat) -> bool {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        )
    }
}

/// A walk through all that is in a folder, each folder's names in order of their bytes.
pub struct Walk {
    /// Where it is.
    pub at: Descent,
    left: Vec<IntoIter<Vec<u8>>>,
}

impl Walk {
    /// Begins where a descent is.
    pub fn of(at: Descent) -> io::Result<Self> {
        let left = vec![at.list()?.into_iter()];
        Ok(Self { at, left })
    }

    /// The next that is met; nothing more when all is.
    pub fn meet(&mut self) -> io::Result<Option<Met>> {
        loop {
            let Some(names) = self.left.last_mut() else { return Ok(None) };
            match names.next() {
                Some(name) => match self.at.stat(&name) {
                    Ok(stat) => return Ok(Some(Met::Name(name, stat))),
                    // It went meanwhile.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                },
                None => {
                    self.left.pop();
                    return Ok(self.at.leave()?.map(Met::End));
                }
            }
        }
    }

    /// What is in the folder that was met comes next; not where something is mounted there.
    pub fn enter(&mut self, name: &[u8]) -> io::Result<bool> {
        if !self.at.enter(name)? {
            return Ok(false);
        }
        self.left.push(self.at.list()?.into_iter());
        Ok(true)
    }
}
