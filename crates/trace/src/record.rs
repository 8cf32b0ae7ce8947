//! A request's record.

use blkmq::Life;
use port::{BlockOp, Status, Time};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 72;

/// Its record.
pub(crate) fn encode(life: &Life) -> [u8; RECORD_BYTES] {
    let mut r = [0; RECORD_BYTES];
    r[0..8].copy_from_slice(&life.id.to_le_bytes());
    r[8..16].copy_from_slice(&life.offset.to_le_bytes());
    r[16..24].copy_from_slice(&life.len.to_le_bytes());
    r[24..32].copy_from_slice(&life.submitted.0.to_le_bytes());
    r[32..40].copy_from_slice(&life.dispatched.0.to_le_bytes());
    r[40..48].copy_from_slice(&life.completed.0.to_le_bytes());
    r[48..56].copy_from_slice(&life.seen.0.to_le_bytes());
    r[56..60].copy_from_slice(&life.tag.to_le_bytes());
    r[60..62].copy_from_slice(&life.core.to_le_bytes());
    r[62..64].copy_from_slice(&life.staging.to_le_bytes());
    r[64..66].copy_from_slice(&life.queue.to_le_bytes());
    r[66..68].copy_from_slice(&life.status.0.to_le_bytes());
    r[68..70].copy_from_slice(&life.parts.to_le_bytes());
    r[70] = op_code(life.op);
    r[71] = u8::from(life.fua);
    r
}

/// The life that a record tells; `None` when its operation or its flags
/// are none that this version knows.
pub(crate) fn decode(r: &[u8; RECORD_BYTES]) -> Option<Life> {
    if r[71] > 1 {
        return None;
    }
    Some(Life {
        id: u64_at(r, 0),
        offset: u64_at(r, 8),
        len: u64_at(r, 16),
        submitted: Time(u64_at(r, 24)),
        dispatched: Time(u64_at(r, 32)),
        completed: Time(u64_at(r, 40)),
        seen: Time(u64_at(r, 48)),
        tag: u32_at(r, 56),
        core: u16_at(r, 60),
        staging: u16_at(r, 62),
        queue: u16_at(r, 64),
        status: Status(u16_at(r, 66)),
        parts: u16_at(r, 68),
        op: op_of(r[70])?,
        fua: r[71] == 1,
    })
}

fn op_code(op: BlockOp) -> u8 {
    match op {
        BlockOp::Read => 0,
        BlockOp::Write => 1,
        BlockOp::Flush => 2,
        BlockOp::Trim => 3,
        BlockOp::WriteZeroes => 4,
    }
}

fn op_of(code: u8) -> Option<BlockOp> {
    Some(match code {
        0 => BlockOp::Read,
        1 => BlockOp::Write,
        2 => BlockOp::Flush,
        3 => BlockOp::Trim,
        4 => BlockOp::WriteZeroes,
        _ => return None,
    })
}

/// `N` bytes at a place that is inside, by construction of the format.
fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    bytes[from..from + N].try_into().expect("the slice has just this length")
}

/// A little-endian number inside `bytes`.
pub(crate) fn u16_at(bytes: &[u8], from: usize) -> u16 {
    u16::from_le_bytes(at(bytes, from))
}

/// A little-endian number inside `bytes`.
pub(crate) fn u32_at(bytes: &[u8], from: usize) -> u32 {
    u32::from_le_bytes(at(bytes, from))
}

/// A little-endian number inside `bytes`.
pub(crate) fn u64_at(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(at(bytes, from))
}
