//! What can go wrong.
//!
//! [`ConfigError`]: a block layer that cannot be. [`Fault`]: what a driver did
//! against the rules, or a device that went away; the layer goes on, and says
//! so here. What happens to a single request is in its completion's status.

use port::{OutOfMemory, Time};
use thiserror::Error;

/// A configuration that cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A number is outside its range.
    #[error("{what} = {value} is out of range: it must be {least} to {most}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: usize,
        /// The least it may be.
        least: usize,
        /// The most it may be.
        most: usize,
    },
    /// The driver maps a core to a queue that it does not have.
    #[error(
        "the driver maps core {core} to {kind} queue {queue}, but it has {count}: \
         its mapping function is wrong"
    )]
    Mapping {
        /// Whose requests.
        core: usize,
        /// Of which kind.
        kind: &'static str,
        /// Where it maps them.
        queue: usize,
        /// How many queues of that kind there are.
        count: usize,
    },
    /// Tags that cannot be.
    #[error(transparent)]
    Tags(#[from] tags::BadDepth),
    /// More requests outside than a core's inbox can have.
    #[error("the queues are too deep: {0}; take fewer cores or less depth")]
    Inbox(#[from] tags::InboxError),
    /// The driver opened another number of queues than it said.
    #[error("the driver opened {opened} queues but said it has {said}")]
    Queues {
        /// How many it opened.
        opened: usize,
        /// How many it said.
        said: usize,
    },
    /// Memory could not be had.
    #[error(
        "cannot get {bytes} bytes of memory for {what}: {why}; use fewer or shallower queues, or no \
         merging"
    )]
    Memory {
        /// What it is for.
        what: &'static str,
        /// How much.
        bytes: u64,
        /// What the system said.
        why: String,
    },
}

impl From<OutOfMemory> for ConfigError {
    fn from(e: OutOfMemory) -> ConfigError {
        let OutOfMemory { what, bytes, source } = e;
        ConfigError::Memory { what, bytes, why: source.to_string() }
    }
}

impl ConfigError {
    /// That `value` is at least `least` and at most `most`.
    pub(crate) fn range(
        what: &'static str,
        value: usize,
        least: usize,
        most: usize,
    ) -> Result<(), ConfigError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(ConfigError::Range { what, value, least, most })
    }
}

/// Something that should not happen, and did.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// The driver completed a tag that was not in flight: it completed one
    /// twice, or made one up. The completion was dropped.
    #[error("queue {queue} completed tag {tag}, which is not in flight: it was dropped")]
    NotInFlight {
        /// The dispatch queue.
        queue: u32,
        /// What the driver gave as the tag.
        tag: u64,
    },
    /// The driver completed a request after it was given up. The completion
    /// was dropped.
    #[error("queue {queue} completed tag {tag} after the request was given up")]
    Late {
        /// The dispatch queue.
        queue: u32,
        /// The tag it had.
        tag: u64,
    },
    /// A request took longer than its timeout. The driver was asked to give it
    /// up.
    #[error("queue {queue}: the request with tag {tag}, dispatched at {since}, timed out")]
    TimedOut {
        /// The dispatch queue.
        queue: u32,
        /// The tag it had.
        tag: u64,
        /// When it was dispatched.
        since: Time,
    },
    /// Requests that were asked for did not come back within another timeout,
    /// and the queue was reset. All that was inside was reported as aborted.
    #[error("queue {queue} did not let go of requests that timed out: it was reset")]
    Reset {
        /// The dispatch queue.
        queue: u32,
    },
    /// As before, and the queue could not be reset: what is inside may still
    /// be carried out. The device is given nothing more, by any queue; all
    /// that is submitted is reported as aborted.
    #[error(
        "queue {queue} neither completes requests that timed out nor lets them go: they may \
         still be carried out, so the device is given nothing more"
    )]
    Stuck {
        /// The dispatch queue.
        queue: u32,
    },
    /// The device went away. All that was inside was reported as aborted.
    #[error("queue {queue}: the device is gone")]
    Gone {
        /// The dispatch queue.
        queue: u32,
    },
}
