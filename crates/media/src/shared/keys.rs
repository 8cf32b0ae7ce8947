//! Requests by key, of targets that keep values by key and have no addresses.
//!
//! Each such target is asked by its number, beside the block drive that the others are. Its
//! time goes on with the drive's: whoever drives that looks for what completed after each
//! event, or turn, which such a completion ends.
//!
//! Guarantees: what was taken completes once; one that does not take its completions holds up
//! no other, and its target does not leave before. Fails where there is no such target.

use device::OpenChannel;
use ftl::Over;
use port::{KvDone, KvReq, Ring, Time};

use super::{Guest, Life, Shared};
use crate::error::MediaError;
use crate::partition::Partition;

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Shared<D, T> {
    /// The target that is asked by key under this number, as long as it is there.
    fn keyed(&mut self, target: usize) -> Result<&mut Guest<T>, MediaError> {
        let guest = self.guests.get_mut(target).and_then(Option::as_mut);
        guest.filter(|guest| guest.is_keyed).ok_or(MediaError::NoKeys(target))
    }

    /// Takes a prefix of requests by key for a target. What stays has no room there until
    /// completions were [taken](Shared::take_keys).
    ///
    /// Fails where no such target serves.
    pub fn submit_keys(
        &mut self,
        target: usize,
        now: Time,
        reqs: &mut Ring<KvReq>,
    ) -> Result<(), MediaError> {
        if self.keyed(target)?.life != Life::Serves {
            return Err(MediaError::NoKeys(target));
        }
        self.now = self.now.max(now);
        let before = reqs.len();
        self.lent(target, |target, _| {
            if let Some(keys) = target.keyed() {
                keys.submit(now, reqs);
            }
        });
        self.guest(target).held += before - reqs.len();
        Ok(())
    }

    /// Gives what completed of a target's requests by key, as far as there is room.
    ///
    /// Fails without such a target.
    pub fn take_keys(&mut self, target: usize, done: &mut Ring<KvDone>) -> Result<(), MediaError> {
        let (now, before) = (self.now, done.len());
        let guest = self.keyed(target)?;
        if let Some(keys) = guest.target.keyed() {
            keys.advance(now, done);
        }
        guest.held -= done.len() - before;
        self.note_keys(target);
        if self.leaving > 0 {
            self.see_off(target);
        }
        Ok(())
    }

    /// Notes whether something by key has completed that nobody took.
    pub(super) fn note_keys(&mut self, target: usize) {
        let keys = self.guest(target).target.keyed();
        let is_done = keys.is_some_and(|keys| keys.next_event().is_some());
        self.keys_done = self.keys_done & !(1 << target) | u64::from(is_done) << target;
    }
}
