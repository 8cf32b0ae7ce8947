//! Memory of processes that is a file, as `/proc` tells it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE: u64 = 4096;

/// What `/proc` calls a file that is in memory. Not always what `fstat` does: file systems that lie
/// over others, or that have parts, have devices of their own there. In such parts two files may
/// have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Its two numbers.
    device: (u32, u32),
    inode: u64,
}

impl Name {
    /// What a file is called that is open for reading: as it is seen in memory of our own.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        // SAFETY: new memory, which nobody looks into.
        let at =
            unsafe { mmap(null_mut(), PAGE as usize, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let areas = areas(std::process::id(), at as u64..at as u64 + PAGE);
        // SAFETY: the memory that was made here.
        unsafe { munmap(at, PAGE as usize)? };
        areas?.first().map(|it| it.name).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// Memory of a process that it shares with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// The file.
    pub name: Name,
    /// Which pages of the file.
    pub pages: Range<u64>,
    pub is_writable: bool,
}

/// The areas of a process that share files, as far as they lie in these addresses.
pub(crate) fn areas(thread: u32, addresses: Range<u64>) -> io::Result<Vec<Area>> {
    let text = fs::read(format!("/proc/{thread}/maps"))?;
    Ok(parse(&String::from_utf8_lossy(&text), addresses))
}

fn parse(text: &str, addresses: Range<u64>) -> Vec<Area> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let one = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let (begin, end) = (number(begin)?, number(end)?);
        let rights = words.next()?;
        let offset = number(words.next()?)?;
        let (major, minor) = words.next()?.split_once(':')?;
        let part = |text: &str| u32::from_str_radix(text, 16).ok();
        let (device, inode) = ((part(major)?, part(minor)?), words.next()?.parse().ok()?);
        let (from, to) = (begin.max(addresses.start), end.min(addresses.end));
        let is_ours = from < to && inode != 0 && rights.ends_with('s');
        let page = |at: u64| (offset + (at - begin)) / PAGE;
        is_ours.then(|| Area {
            name: Name { device, inode },
            pages: page(from)..page(to - 1) + 1,
            is_writable: rights.as_bytes()[1] == b'w',
        })
    };
    text.lines().filter_map(one).collect()
}

/// Whether a process shares the file of that name, or may: it is the program's, and
/// nobody may look into it.
pub(crate) fn may_map(process: u32, name: Name) -> bool {
    match fs::read(format!("/proc/{process}/maps")) {
        // The thread that a process began with may have ended, and others not.
        Ok(text) if text.is_empty() => is_filtered(process),
        Ok(text) => {
            parse(&String::from_utf8_lossy(&text), 0..u64::MAX).iter().any(|it| it.name == name)
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => is_filtered(process),
        Err(e) => !has_ended(&e),
    }
}

fn has_ended(e: &io::Error) -> bool {
    e.kind() == ErrorKind::NotFound || Errno::from_io_error(e) == Some(Errno::SRCH)
}

/// Whether a process has filters of its calls, as all of the program have.
fn is_filtered(process: u32) -> bool {
    match fs::read_to_string(format!("/proc/{process}/status")) {
        Ok(status) => status
            .lines()
            .any(|line| line.strip_prefix("Seccomp:").is_some_and(|it| it.trim() == "2")),
        Err(e) => !has_ended(&e),
    }
}

/// All processes that may, but this.
pub(crate) fn who_may_map(name: Name) -> io::Result<BTreeSet<u32>> {
    let ours = std::process::id();
    let entries = fs::read_dir("/proc")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&process| process != ours && may_map(process, name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_shares_is_read_by_its_addresses() {
        let text = "\
7f0000000000-7f0000010000 rw-s 00003000 00:1d 77  /dev/shm/a file (deleted)
7f0000010000-7f0000020000 r--s 00000000 103:02 77  /b
7f0000020000-7f0000030000 rw-p 00000000 00:1d 79  /dev/shm/c
7f0000030000-7f0000040000 rw-p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]";
        let area = |device, pages, is_writable| {
            let name = Name { device, inode: 77 };
            Area { name, pages, is_writable }
        };
        let (one, other) = ((0, 0x1d), (0x103, 2));
        assert_eq!(parse(text, 0..u64::MAX), [area(one, 3..19, true), area(other, 0..16, false)]);
        let some = 0x7f00_0000_1800..0x7f00_0001_0001;
        assert_eq!(parse(text, some), [area(one, 4..19, true), area(other, 0..1, false)]);
        assert_eq!(parse(text, 0x7f00_0002_0000..u64::MAX), []);
    }
}
