//! Where a path of the program leads, found as the kernel finds it: by opening folders, and by
//! reading the last name where it is a symbolic link. Names of `/proc` that mean whoever asks are
//! made to mean the program.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use crate::notify::Call;
use crate::process::{self, Processes};

/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;

/// A name in a folder. The name may be of nothing yet, `.` or `..`, and ends with `/` if it was
/// given so: then the kernel takes folders only.
#[derive(Debug)]
pub(crate) struct Place {
    pub folder: OwnedFd,
    pub raw: Vec<u8>,
}

impl Place {
    /// The name alone.
    pub fn name(&self) -> &[u8] {
        let end = self.raw.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        &self.raw[..end]
    }
}

/// Whether what is in the folder is named by the kernel and leads where it says.
pub(crate) fn is_of_proc(folder: impl AsFd) -> bool {
    fstatfs(folder).is_ok_and(|it| it.f_type as u64 == PROC_SUPER_MAGIC as u64)
}

fn open_folder(at: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The folder that a relative path begins in.
fn base(processes: &mut Processes, thread: u32, folder: i32) -> Result<OwnedFd, Errno> {
    if folder == libc::AT_FDCWD {
        return process::current_folder(thread);
    }
    processes.file(thread, folder)
}

/// A path that begins with who asks.
fn as_of(processes: &mut Processes, thread: u32, path: Vec<u8>) -> Result<Vec<u8>, Errno> {
    let (means, rest): (&str, &[u8]) = if let Some(rest) = path.strip_prefix(b"/proc/self") {
        ("", rest)
    } else if let Some(rest) = path.strip_prefix(b"/proc/thread-self") {
        ("/task/", rest)
    } else if let Some(rest) = path.strip_prefix(b"/dev/fd") {
        ("/fd", rest)
    } else if path == b"/dev/stdin" {
        ("/fd/0", b"")
    } else if path == b"/dev/stdout" {
        ("/fd/1", b"")
    } else if path == b"/dev/stderr" {
        ("/fd/2", b"")
    } else {
        return Ok(path);
    };
    if !rest.is_empty() && rest[0] != b'/' {
        return Ok(path);
    }
    let process = processes.process(thread)?;
    let mut out = match means {
        "/task/" => format!("/proc/{process}/task/{thread}").into_bytes(),
        means => format!("/proc/{process}{means}").into_bytes(),
    };
    out.extend_from_slice(rest);
    Ok(out)
}

/// Whether a symbolic link in the last name is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    No,
    Yes,
    /// As far as a file can be made there: not where only a folder may be.
    ToMake,
}

/// The place that a path names.
pub(crate) fn place(
    processes: &mut Processes,
    thread: u32,
    folder: i32,
    path: Vec<u8>,
    follow: Follow,
) -> Result<Place, Errno> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    // What is no relative path needs none.
    let mut at = match path[0] {
        b'/' => None,
        _ => Some(base(processes, thread, folder)?),
    };
    let mut path = as_of(processes, thread, path)?;
    for _ in 0..=LINKS_MAX {
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let begin = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let raw = if end == 0 { b".".to_vec() } else { path[begin..].to_vec() };
        let to: &[u8] = match begin {
            0 if path[0] == b'/' => b"/",
            // It has to be a folder that may be searched, as for the kernel.
            0 => b".",
            _ => &path[..begin],
        };
        let folder = open_folder(at.as_ref().map_or(CWD, AsFd::as_fd), to)?;
        let found = Place { folder, raw };
        let is_end = match follow {
            Follow::No => true,
            Follow::Yes => false,
            Follow::ToMake => found.raw.ends_with(b"/"),
        };
        if is_end || is_of_proc(&found.folder) {
            return Ok(found);
        }
        match readlinkat(&found.folder, found.name(), Vec::new()) {
            Ok(to) => {
                let slash = found.raw.len() > found.name().len();
                path = as_of(processes, thread, to.into_bytes())?;
                if slash {
                    path.push(b'/');
                }
                at = Some(found.folder);
            }
            Err(_) => return Ok(found),
        }
    }
    Err(Errno::LOOP)
}

/// The file that a path names, only to be looked at.
pub(crate) fn file(
    processes: &mut Processes,
    thread: u32,
    folder: i32,
    path: Vec<u8>,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let place = place(processes, thread, folder, path, Follow::No)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
    openat(&place.folder, place.raw.as_slice(), flags, Mode::empty())
}

/// A path that is an argument of a call.
pub(crate) fn argument(call: &Call, n: usize) -> Result<Vec<u8>, Errno> {
    process::read_path(call.thread, call.args[n])
}

/// The name by which an open file can be opened again.
pub(crate) fn of_open(file: impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}
