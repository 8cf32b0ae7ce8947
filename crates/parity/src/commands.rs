//! Commands at work, and the numbers that go below with them.

use device::{Addresses, Content, MAX_ADDRESSES, VectorCmd, VectorOp};
use flash::{BlockBits, Geometry, Ppa, block_bits};
use port::{Buffer, Status, Whose};

/// What a command below was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// A command from above.
    Command(u32),
    /// The erase of address `.1` of a command.
    Reset(u32, u8),
    /// The parity row of a stripe.
    Parity(u32),
    /// A lane's work.
    Lane(u32),
}

impl Cookie {
    pub fn pack(self) -> u64 {
        let (kind, at, id) = match self {
            Cookie::Command(id) => (0u64, 0u8, id),
            Cookie::Reset(id, at) => (1, at, id),
            Cookie::Parity(id) => (2, 0, id),
            Cookie::Lane(id) => (3, 0, id),
        };
        kind << 40 | u64::from(at) << 32 | u64::from(id)
    }

    pub fn unpack(cookie: u64) -> Cookie {
        let id = cookie as u32;
        match cookie >> 40 {
            0 => Cookie::Command(id),
            1 => Cookie::Reset(id, (cookie >> 32) as u8),
            2 => Cookie::Parity(id),
            _ => Cookie::Lane(id),
        }
    }
}

/// A command from above.
pub(crate) struct Command {
    pub cmd: VectorCmd,
    /// Parts to go: its own commands below, and parity rows.
    pub left: u32,
    pub status: Status,
    /// Addresses that failed.
    pub failed: BlockBits,
    /// Of a read: blocks that are not there yet.
    pub todo: BlockBits,
    /// Of those, blocks that their own member could not give.
    pub tried: BlockBits,
    /// Of a reset: how often it may still be sent again.
    pub again: u32,
    /// Of a flush: its number.
    pub flush: u64,
}

impl Default for Command {
    fn default() -> Command {
        Command::new(VectorCmd {
            whose: Whose::User,
            ..VectorCmd::new(0, VectorOp::Flush, Content::Data, (Ppa(0), 0), Buffer::empty())
        })
    }
}

impl Command {
    pub fn new(cmd: VectorCmd) -> Command {
        let status = Status::SUCCESS;
        Command { cmd, left: 1, status, failed: 0, todo: 0, tried: 0, again: 0, flush: 0 }
    }
}

/// Address `i` of a command.
#[inline]
pub(crate) fn address(cmd: &VectorCmd, i: usize) -> Ppa {
    match &cmd.list {
        Some(list) => list.from[i],
        None => Ppa(cmd.ppa.0 + i as u64),
    }
}

/// Whether a command's fields and addresses can be at all. As a drive does.
pub(crate) fn check(
    geometry: &Geometry,
    cmd: &VectorCmd,
    kept: u32,
) -> Result<(), (Status, BlockBits)> {
    let n = cmd.count as usize;
    let tags_written = cmd.op == VectorOp::Write && cmd.content == Content::Tags;
    if n == 0 || n > MAX_ADDRESSES || cmd.buffer.len() != cmd.buffer_bytes(kept) || tags_written {
        return Err((Status::INVALID_FIELD, 0));
    }
    if cmd.list.is_none() {
        if cmd.op == VectorOp::Reset && n != 1 {
            return Err((Status::INVALID_FIELD, 0));
        }
        let last = Ppa(cmd.ppa.0.saturating_add(n as u64 - 1));
        let inside = geometry.contains(cmd.ppa)
            && geometry.contains(last)
            && geometry.chunk_index(cmd.ppa) == geometry.chunk_index(last);
        return if inside { Ok(()) } else { Err((Status::LBA_OUT_OF_RANGE, block_bits(0, n))) };
    }
    let outside = (0..n).filter(|&i| !geometry.contains(address(cmd, i)));
    let failed = outside.fold(0, |failed, i| failed | block_bits(i, 1));
    if failed == 0 { Ok(()) } else { Err((Status::LBA_OUT_OF_RANGE, failed)) }
}

/// A list whose addresses from `i` on come from `each`.
pub(crate) fn fill(list: &mut Addresses, each: impl Iterator<Item = Ppa>) -> u8 {
    let mut count = 0;
    for (to, ppa) in list.from.iter_mut().zip(each) {
        *to = ppa;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_come_back() {
        for id in [0, 7, u32::MAX] {
            let all =
                [Cookie::Command(id), Cookie::Reset(id, 63), Cookie::Parity(id), Cookie::Lane(id)];
            for cookie in all {
                assert_eq!(Cookie::unpack(cookie.pack()), cookie);
            }
        }
    }
}
