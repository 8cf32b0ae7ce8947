//! What is told of each request that left: where its time went.
//!
//! A core whose context has nobody that watches pays one branch a batch.

use port::{BlockOp, Status, Time};

/// Who is told what became of requests, for a core: of all that it finds
/// completed, or gives up. A merged request is told of once, as submitted when
/// its first part was.
pub trait Watch: Send {
    /// Whether to tell. Asked once a batch.
    fn is_on(&self) -> bool;

    /// Is told of a request that ended; called while [`Watch::is_on`]. On the way
    /// of requests: it must not wait.
    fn record(&mut self, life: Life);
}

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
}
