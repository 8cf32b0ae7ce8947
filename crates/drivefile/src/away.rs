//! A disk that is away, told from one that has a damaged place.
//!
//! What the disk cannot read of a place is lost, and nothing else is. A disk that is away for
//! a while, as its cable, path or server is, can read nothing, and has all when it is back.
//! The system says the same of both. So other places are read as well, past what the system
//! remembers: a disk that cannot read a third of those is away, and nobody may take for lost,
//! and write down as such, what it does not read. They are at distances that grow, so that
//! damage of some MiB at one place is damage still.
//!
//! A hole is read without the disk, and proves nothing, nor do zeros, which may be one. Where
//! only a part of a disk is away, it is seen as far as these places lie in it.

use std::io;

use crate::FileIo;
use crate::file_io::is_unreadable;
use crate::mutation::{self, Mutation};

/// How far from a place others are looked at, before and behind it, in bytes, and how much
/// of them: what the system reads at once.
const FAR: [u64; 4] = [1 << 20, 4 << 20, 16 << 20, 64 << 20];
const PAGE: u64 = 4096;
/// How often a place is looked at, and others with it, before it is taken for damaged.
const LOOKS: u32 = 3;

/// Reads again what the disk said of that it cannot read it. An error that [`is_unreadable`]
/// is of this place alone; else the disk is away.
#[cold]
pub fn read_again(storage: &dyn FileIo, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut read = Ok(());
    for _ in 0..LOOKS {
        others_are_read(storage, offset)?;
        read = storage.read(offset, bytes);
        if !read.as_ref().is_err_and(is_unreadable) {
            break;
        }
    }
    read
}

/// Why a write was refused as what the disk cannot read is. An error that [`is_unreadable`]
/// is of what lies beside it, in pages that are written in part and so read before: it is
/// asked for as often as what is read.
#[cold]
pub fn why_unwritten(storage: &dyn FileIo, (offset, len): (u64, usize), e: io::Error) -> io::Error {
    let pages = (offset / PAGE..(offset + len as u64).div_ceil(PAGE)).map(|page| page * PAGE);
    let mut bytes = [0; PAGE as usize];
    for page in pages {
        forget(storage, page);
        if storage.read(page, &mut bytes).is_err_and(|e| is_unreadable(&e))
            && let Err(again) = read_again(storage, page, &mut bytes)
        {
            return again;
        }
    }
    io::Error::other(format!("{e}, of what can be read there"))
}

/// Whether what was read again failed as the disk is away, or worse, and not for damage.
pub fn is_away(e: &io::Error) -> bool {
    !is_unreadable(e) && !mutation::is(Mutation::TakeForLost)
}

/// Fails where the disk does not read a third of other places either.
fn others_are_read(storage: &dyn FileIo, offset: u64) -> io::Result<()> {
    let end = storage.bytes().map_err(io::Error::other)?;
    let around = FAR.iter().flat_map(|&far| [offset.checked_sub(far), offset.checked_add(far)]);
    let places = around.flatten().chain([0]).map(|place| place / PAGE * PAGE);
    let (mut read, mut failed, mut bytes) = (0, Vec::new(), [0; PAGE as usize]);
    for place in places.filter(|place| place + PAGE <= end && *place != offset / PAGE * PAGE) {
        forget(storage, place);
        match storage.read(place, &mut bytes) {
            Ok(()) => read += usize::from(bytes.iter().any(|&byte| byte != 0)),
            Err(e) => failed.push(e),
        }
    }
    match failed.pop() {
        Some(e) if 2 * (1 + failed.len()) > read => {
            let text = format!(
                "{e}, here and elsewhere: its disk is away; when it is back, open the drive again"
            );
            Err(io::Error::other(text))
        }
        _ => Ok(()),
    }
}

/// What is read of a page next comes from the disk.
fn forget(storage: &dyn FileIo, page: u64) {
    // A system that does not forget is asked all the same.
    let _ = storage.reread(page, PAGE);
}
