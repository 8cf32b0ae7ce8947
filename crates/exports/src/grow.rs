//! Memory for what clients have, which may end.
//!
//! What grows with what clients send and ask for is asked for before it is taken,
//! together with some that is left for all that cannot fail: where the system has
//! no more, as with a limit on address space, a client is refused or closed, and
//! the server goes on.

use port::{Buffer, OutOfMemory};

/// Bytes that there are still when a client was given some.
pub const SPARE: usize = 16 << 20;
/// Less than this is taken of what is left, and more is not had.
const SHORT: usize = 16 << 10;
const LONGEST: usize = 1 << 30;

/// Asks for so many bytes, less than 2 GiB, of the system itself: an allocator takes
/// what it is given back for a sign of what it should keep.
pub fn ask(bytes: usize) -> Result<(), OutOfMemory> {
    Buffer::carve(1, bytes + SPARE).map(drop)
}

/// Makes room in a list for so many more.
#[inline]
pub fn grow<T>(list: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    if list.capacity() - list.len() >= more {
        return Ok(());
    }
    let most = (list.len() + more).max(2 * list.capacity());
    grow_to(list, most)
}

/// Makes room in a list for so many in all, which is more than there is.
#[cold]
pub fn grow_to<T>(list: &mut Vec<T>, most: usize) -> Result<(), OutOfMemory> {
    let bytes = most.saturating_mul(size_of::<T>());
    let source = || std::io::ErrorKind::OutOfMemory.into();
    let denied = || OutOfMemory { what: "clients", bytes: bytes as u64, source: source() };
    if bytes > LONGEST {
        return Err(denied());
    }
    if bytes >= SHORT {
        ask(bytes)?;
    }
    list.try_reserve_exact(most - list.len()).map_err(|_| denied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_not_is_refused_and_harms_nothing() {
        let mut list = vec![1u64, 2, 3];
        assert!(grow(&mut list, 1 << 50).is_err());
        assert_eq!(list, [1, 2, 3]);
        grow(&mut list, 1).unwrap();
        assert!(list.capacity() > 3);
        grow_to(&mut list, 100_000).unwrap();
        assert!(list.capacity() >= 100_000);
    }
}
