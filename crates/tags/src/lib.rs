//! The lock-free pieces that the cores of a multi-queue block layer share.
//!
//! - [`OwnTags`]: the tags of a queue that one thread owns. Nothing atomic.
//! - [`SharedTags`], [`TagUser`]: one set of tags for several queues, with a
//!   fair share for each and a fair line for those that find none.
//! - [`Inbox`], [`Sender`]: how a thread that found another core's completion
//!   hands it to the core that submitted the request.
//! - [`Handover`]: something that one thread at a time may be in; the others
//!   leave what they have there and go on.
//! - [`Gate`]: what users go through, and anybody may shut until they are out.
//! - [`Armed`]: whether a thread sleeps and has to be woken.
//! - [`Stamped`]: a queue in memory that is shared with another process, whose
//!   writer is not trusted.
//!
//! A tag is a number from 0 to depth − 1. It names a request's place in the
//! dispatch queue from dispatch to completion, so a completion needs no
//! search. No tag is with two holders at once, and none is lost.
//!
//! # What comes from Linux's sbitmap
//!
//! The behaviour, as `lib/sbitmap.c` and blk-mq's shared tag sets have it:
//! - taken bits in words, each on a cache line of its own; small sets, and
//!   ours for many users, use fewer bits of a word, so that users spread
//!   ([`SharedTags::bits_per_word`]);
//! - a bit given back goes to the word's `cleared` mask, on another line, and
//!   the mask moves over as a whole when the word has no free bit: takers and
//!   givers seldom touch the same line;
//! - each user has a hint of where to look first;
//! - several bits of a word are taken or given back with one atomic operation;
//! - a share of max(⌈depth ÷ active users⌉, 4) tags for each user that others
//!   wait for;
//! - 8 wait queues used round robin; a wake is for clamp(depth ÷ 8, 1, 8)
//!   tags given back and as many waiters.
//!
//! # What differs
//!
//! - Shares bind only while somebody waits. Until then a user may have all
//!   tags, however many others were active; sbitmap's share always binds.
//! - Nobody sleeps here. A waiter polls a flag on a line of its own
//!   ([`TagUser::may_try`]).
//! - The hint is in the user's handle, not in a per-processor variable, and
//!   names a word, not a bit. It moves when the word runs out.
//! - Whoever moves a `cleared` mask keeps the bits it wants; only the rest go
//!   through the word. In between, the rest are in neither mask, and a waiter
//!   that looks just then sees them nowhere. sbitmap puts a lock around the
//!   move; here the mover looks for waiters afterwards and wakes one.
//! - sbitmap lets newcomers take before those who wait, without limit. Here
//!   newcomers join the line whenever somebody stands in it. A waiter that
//!   was woken and found nothing goes back to the front; then no newcomer is
//!   let in until it is served, and nobody else is woken in its turn.
//! - Fewer tags given back than a wake batch still wake when their giver
//!   holds no more, so a few long requests do not keep a waiter from tags
//!   that are free.
//! - Who leaves the line wakes the next one. So a wake is never lost with a
//!   user that did not need it.
//!
//! # Checked with
//!
//! Property tests against a set, stress tests with an owner cell for each
//! tag, and loom, which runs the interleavings of small cases up to a
//! number of preemptions, and finds mistakes that are planted:
//! `RUSTFLAGS="--cfg loom" cargo test -p ssdkit-tags --release --test it`.

mod armed;
mod gate;
mod handover;
mod inbox;
mod own;
mod shared;
mod stamped;
mod sync;
mod waiters;

pub use armed::Armed;
pub use gate::{Gate, Shut};
pub use handover::{Handover, Inside};
pub use inbox::{Inbox, InboxError, MAX_CAPACITY, Sender, inbox, inbox_bytes};
pub use own::OwnTags;
pub use shared::{SharedTags, TagUser};
pub use stamped::{OutOfTurn, Stamped, Word};
#[doc(hidden)]
pub use sync::Mistake;
#[cfg(loom)]
pub use sync::plant;

/// The most tags that a set can have.
pub const MAX_DEPTH: u32 = 65535;

/// A set of tags of this depth cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a queue cannot have {0} tags; choose a depth from 1 to {MAX_DEPTH}")]
pub struct BadDepth(
    /// What was asked for.
    pub u32,
);

fn check_depth(depth: u32) -> Result<(), BadDepth> {
    if (1..=MAX_DEPTH).contains(&depth) { Ok(()) } else { Err(BadDepth(depth)) }
}
