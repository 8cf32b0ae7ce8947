//! A request's life, and its record.

use port::{BlockOp, Status, Time};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 72;

/// The tag of a request that never got one: it was given up before it was
/// dispatched.
pub const NO_TAG: u32 = u32::MAX;

/// What became of one request, and when. The times are in order where one
/// clock gives them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The submitter's number for it.
    pub id: u64,
    /// The core that submitted it.
    pub core: u16,
    /// Its staging queue.
    pub staging: u16,
    /// Its dispatch queue.
    pub queue: u16,
    /// Its tag there, or [`NO_TAG`].
    pub tag: u32,
    /// What it asked for.
    pub op: BlockOp,
    /// Whether it was to be durable when it completed.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// How it ended.
    pub status: Status,
    /// How many requests went to the device as one with it, itself included:
    /// 1 where it was not merged. 0 when it was merged into another one, whose
    /// tag and times it then has.
    pub parts: u16,
    /// When the block layer got it.
    pub submitted: Time,
    /// When the driver got it. For one that never was dispatched, when it was
    /// given up.
    pub dispatched: Time,
    /// When the device completed it, in the device's time; or when it was
    /// given up.
    pub completed: Time,
    /// When its submitter was told.
    pub seen: Time,
}

impl Life {
    /// Ns from submission to dispatch: staged, and waiting for a tag.
    #[inline]
    pub fn staged(&self) -> u64 {
        self.dispatched.since(self.submitted)
    }

    /// Ns at the device.
    #[inline]
    pub fn device(&self) -> u64 {
        self.completed.since(self.dispatched)
    }

    /// Ns from its completion until its submitter was told.
    #[inline]
    pub fn late(&self) -> u64 {
        self.seen.since(self.completed)
    }

    /// Ns from submission until its submitter was told.
    #[inline]
    pub fn total(&self) -> u64 {
        self.seen.since(self.submitted)
    }

    /// Its record.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut r = [0; RECORD_BYTES];
        r[0..8].copy_from_slice(&self.id.to_le_bytes());
        r[8..16].copy_from_slice(&self.offset.to_le_bytes());
        r[16..24].copy_from_slice(&self.len.to_le_bytes());
        r[24..32].copy_from_slice(&self.submitted.0.to_le_bytes());
        r[32..40].copy_from_slice(&self.dispatched.0.to_le_bytes());
        r[40..48].copy_from_slice(&self.completed.0.to_le_bytes());
        r[48..56].copy_from_slice(&self.seen.0.to_le_bytes());
        r[56..60].copy_from_slice(&self.tag.to_le_bytes());
        r[60..62].copy_from_slice(&self.core.to_le_bytes());
        r[62..64].copy_from_slice(&self.staging.to_le_bytes());
        r[64..66].copy_from_slice(&self.queue.to_le_bytes());
        r[66..68].copy_from_slice(&self.status.0.to_le_bytes());
        r[68..70].copy_from_slice(&self.parts.to_le_bytes());
        r[70] = op_code(self.op);
        r[71] = u8::from(self.fua);
        r
    }

    /// The life that a record tells; `None` when its operation or its flags
    /// are none that this version knows.
    pub fn decode(r: &[u8; RECORD_BYTES]) -> Option<Life> {
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
pub(super) fn u16_at(bytes: &[u8], from: usize) -> u16 {
    u16::from_le_bytes(at(bytes, from))
}

/// A little-endian number inside `bytes`.
pub(super) fn u32_at(bytes: &[u8], from: usize) -> u32 {
    u32::from_le_bytes(at(bytes, from))
}

/// A little-endian number inside `bytes`.
pub(super) fn u64_at(bytes: &[u8], from: usize) -> u64 {
    u64::from_le_bytes(at(bytes, from))
}
