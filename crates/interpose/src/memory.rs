//! Memory of processes that is a file, as `/proc` tells it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;

use rustix::io::Errno;

const PAGE: u64 = 4096;

/// Memory of a process that it shares with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// The kernel's number of the file.
    pub inode: u64,
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
        let inode = words.nth(1)?.parse().ok()?;
        let (from, to) = (begin.max(addresses.start), end.min(addresses.end));
        let is_ours = from < to && inode != 0 && rights.ends_with('s');
        let page = |at: u64| (offset + (at - begin)) / PAGE;
        is_ours.then(|| Area {
            inode,
            pages: page(from)..page(to - 1) + 1,
            is_writable: rights.as_bytes()[1] == b'w',
        })
    };
    text.lines().filter_map(one).collect()
}

/// Whether a process shares the file that the kernel calls so, or may: it is the program's, and
/// nobody may look into it.
pub(crate) fn may_map(process: u32, inode: u64) -> bool {
    match fs::read(format!("/proc/{process}/maps")) {
        // The thread that a process began with may have ended, and others not.
        Ok(text) if text.is_empty() => is_filtered(process),
        Ok(text) => {
            parse(&String::from_utf8_lossy(&text), 0..u64::MAX).iter().any(|it| it.inode == inode)
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
pub(crate) fn who_may_map(inode: u64) -> io::Result<BTreeSet<u32>> {
    let ours = std::process::id();
    let entries = fs::read_dir("/proc")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&process| process != ours && may_map(process, inode)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_shares_is_read_by_its_addresses() {
        let text = "\
7f0000000000-7f0000010000 rw-s 00003000 00:1d 77  /dev/shm/a file (deleted)
7f0000010000-7f0000020000 r--s 00000000 00:1d 78  /dev/shm/b
7f0000020000-7f0000030000 rw-p 00000000 00:1d 79  /dev/shm/c
7f0000030000-7f0000040000 rw-p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]";
        let area = |inode, pages, is_writable| Area { inode, pages, is_writable };
        assert_eq!(parse(text, 0..u64::MAX), [area(77, 3..19, true), area(78, 0..16, false)]);
        let some = 0x7f00_0000_1800..0x7f00_0001_0001;
        assert_eq!(parse(text, some), [area(77, 4..19, true), area(78, 0..1, false)]);
        assert_eq!(parse(text, 0x7f00_0002_0000..u64::MAX), []);
    }
}
