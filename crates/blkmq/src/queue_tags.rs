//! The tags of a dispatch queue: its own, or from a set that several share.
//!
//! Nothing here fails.

use tags::{BadDepth, OwnTags, TagUser};

/// Tags that are collected before a shared set gets them back.
const BATCH: usize = 32;

/// Where a dispatch queue's tags come from.
pub(crate) enum Tags {
    /// They are its own: no locked operation.
    Own(OwnTags),
    /// From a set that other queues take from too.
    Shared(Box<SharedUser>),
}

/// A user of a shared set, and what it will give back: on lines that no other
/// core's is on.
#[repr(align(64))]
pub(crate) struct SharedUser {
    user: TagUser,
    back: [u32; BATCH],
    waiting: usize,
}

impl Tags {
    /// Tags of its own.
    pub fn own(depth: u32) -> Result<Tags, BadDepth> {
        Ok(Tags::Own(OwnTags::new(depth)?))
    }

    /// Tags of a set that is shared.
    pub fn shared(user: TagUser) -> Tags {
        Tags::Shared(Box::new(SharedUser { user, back: [0; BATCH], waiting: 0 }))
    }

    /// One more than the largest tag.
    pub fn depth(&self) -> usize {
        match self {
            Tags::Own(tags) => tags.depth() as usize,
            Tags::Shared(shared) => shared.user.set().depth() as usize,
        }
    }

    /// Tags that this queue holds.
    #[inline]
    pub fn live(&self) -> usize {
        match self {
            Tags::Own(tags) => tags.live() as usize,
            Tags::Shared(shared) => shared.user.held() as usize - shared.waiting,
        }
    }

    /// Whether it is worth trying to take one.
    #[inline]
    pub fn may_take(&self) -> bool {
        match self {
            Tags::Own(tags) => tags.room() > 0,
            Tags::Shared(shared) => shared.user.might_try(),
        }
    }

    /// Takes a tag.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        match self {
            Tags::Own(tags) => tags.take(),
            Tags::Shared(shared) => shared.user.take(),
        }
    }

    /// Takes at most `n` and gives each to `put`. Gives how many.
    #[inline(always)]
    pub fn take_batch(&mut self, n: usize, mut put: impl FnMut(u32)) -> usize {
        match self {
            Tags::Own(tags) => tags.take_batch(n as u32, &mut put) as usize,
            Tags::Shared(shared) => shared.user.take_batch(n as u32, &mut put) as usize,
        }
    }

    /// Gives a tag back.
    pub fn give(&mut self, tag: u32) {
        self.give_later(tag);
        self.flush();
    }

    /// Gives a tag back, at the latest with the next [`Tags::flush`].
    #[inline(always)]
    pub fn give_later(&mut self, tag: u32) {
        match self {
            Tags::Own(tags) => tags.give(tag),
            Tags::Shared(shared) => {
                shared.back[shared.waiting] = tag;
                shared.waiting += 1;
                if shared.waiting == BATCH {
                    shared.flush();
                }
            }
        }
    }

    /// Gives back what is still here.
    #[inline]
    pub fn flush(&mut self) {
        if let Tags::Shared(shared) = self
            && shared.waiting > 0
        {
            shared.flush();
        }
    }

    /// Whether this queue stands in line for a tag.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        match self {
            Tags::Own(_) => false,
            Tags::Shared(shared) => shared.user.is_waiting(),
        }
    }

    /// Whether a tag is free while this queue stands in line, and it is the
    /// turn of another that does not look.
    pub fn is_passed(&self) -> bool {
        match self {
            Tags::Own(_) => false,
            Tags::Shared(shared) => shared.user.is_passed(),
        }
    }

    /// Looks whether whose turn it is looks; called as often as this queue does
    /// while it stands in line.
    #[cold]
    pub fn poll(&mut self) {
        if let Tags::Shared(shared) = self {
            shared.user.poll();
        }
    }

    /// Needs no tag any more: leaves the line for those behind.
    #[cold]
    pub fn step_out(&mut self) {
        if let Tags::Shared(shared) = self {
            shared.user.stop_waiting();
        }
    }

    /// Says that nothing was in flight for a while: a shared set's other users
    /// may have more.
    pub fn rest(&mut self) {
        if let Tags::Shared(shared) = self {
            shared.user.set_idle();
        }
    }
}

impl SharedUser {
    fn flush(&mut self) {
        self.user.give_batch(&self.back[..self.waiting]);
        self.waiting = 0;
    }
}
