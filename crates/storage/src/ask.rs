//! What the kernel is asked of a request, whatever engine asks it. Nothing here fails.

use rustix::fs::FallocateFlags;

/// One thing that the kernel is asked. The memory is that of a request, or zeros of its
/// queue; who asks sees to it that it stays until the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// To read so many bytes at an offset.
    Read { to: *mut u8, len: usize, at: u64 },
    /// To write them, durably or not.
    Write { from: *const u8, len: usize, at: u64, durable: bool },
    /// To make durable what was written before.
    Sync,
    /// To change how a range of the file is kept.
    Fallocate { mode: FallocateFlags, at: u64, len: u64 },
}
