//! Targets that come and go.
//!
//! Guarantees: one that cannot be made leaves nothing behind; one that is not found again keeps
//! what it has from others, and they work; one that leaves takes no more
//! requests, and goes when the last has ended. What it wrote counts on.

use std::error::Error;
use std::sync::PoisonError;

use device::OpenChannel;
use ftl::Over;
use port::{Ring, Shape, Slots, Time};

use super::{CreateError, DONE, Guest, HERE, Life, Shared};
use crate::claim::Claim;
use crate::error::MediaError;
use crate::mutation::{self, Mutation};
use crate::partition::{Home, Partition};

/// Where a target begins: at a multiple of this, so that requests of common lengths lie in
/// one.
const ALIGNMENT: u64 = 1 << 20;

/// A target that the drive has already, or what is left of one.
#[derive(Debug)]
pub struct Found<E> {
    /// Its number.
    pub number: usize,
    /// When the drive is ready for what comes next.
    pub ready: Time,
    /// Why it was not found, where it was not.
    pub lost: Option<E>,
}

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Shared<D, T> {
    /// Adds a target, on chunks that hold nothing: `make` makes it. Gives its number.
    pub fn create<E: Error>(
        &mut self,
        claim: &Claim,
        make: impl FnOnce(Partition<D>) -> Result<T, E>,
    ) -> Result<usize, CreateError<E>> {
        let partition = Partition::new(self.media_mut(), claim, false)?;
        let number = partition.number();
        let made = make(partition).map_err(CreateError::Target);
        let added = made.and_then(|target| Ok(self.add(number, claim, target)?));
        if added.is_err() {
            let now = self.now;
            self.media_mut().give_up(number, now)?;
        }
        added
    }

    /// Adds a target that the drive has already. `find` finds it, and says when it is ready;
    /// the drive works from `now` on. One that is not found is no target; what it has is its
    /// own, and nobody else's, until that is [given up](Media::give_up).
    ///
    /// Fails where its part cannot be had, or its addresses are another's.
    pub fn found<E: Error>(
        &mut self,
        claim: &Claim,
        now: Time,
        find: impl FnOnce(Partition<D>, Time) -> Result<(T, Time), E>,
    ) -> Result<Found<E>, MediaError> {
        let mut partition = Partition::new(self.media_mut(), claim, true)?;
        let number = partition.number();
        // Who fails to find it drops the drive as well.
        let home = Home::default();
        partition.set_home(Some(home.clone()));
        partition.lend(self.media.take().expect(HERE));
        match find(partition, now) {
            Ok((mut target, ready)) => {
                self.media = Some(target.below_mut().take_back());
                target.below_mut().set_home(None);
                self.add(number, claim, target)?;
                if self.keyed & 1 << number != 0 && mutation::is(Mutation::HandOn) {
                    self.media_mut().hand_on(number);
                }
                self.now = self.now.max(ready);
                Ok(Found { number, ready, lost: None })
            }
            Err(why) => {
                self.media = home.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.media_mut().let_end(number)?;
                let ready = now.max(self.media().now);
                self.now = self.now.max(ready);
                Ok(Found { number, ready, lost: Some(why) })
            }
        }
    }

    fn add(&mut self, number: usize, claim: &Claim, mut target: T) -> Result<usize, MediaError> {
        let shape = target.shape();
        let first = claim.first.unwrap_or_else(|| self.gap(shape.bytes));
        let end = first.saturating_add(shape.bytes);
        if self.all().any(|(_, guest)| first < guest.end() && guest.first < end) {
            return Err(MediaError::Addresses { first, end });
        }
        let guest = Guest {
            due: target.next_event(),
            is_keyed: target.keyed().is_some(),
            target: Box::new(target),
            first,
            life: Life::Serves,
            inside: Slots::new(shape.depth),
            waiting: Ring::new(2 * shape.depth),
            held: 0,
            shape,
        };
        if self.guests.len() <= number {
            self.guests.resize_with(number + 1, || None);
        }
        self.guests[number] = Some(guest);
        self.measure();
        Ok(number)
    }

    /// The first place for so many addresses.
    fn gap(&self, bytes: u64) -> u64 {
        let mut taken: Vec<_> = self.all().map(|(_, guest)| (guest.first, guest.end())).collect();
        taken.sort_unstable();
        let mut at: u64 = 0;
        for (first, end) in taken {
            if at + bytes <= first {
                break;
            }
            at = end.next_multiple_of(ALIGNMENT);
        }
        at
    }

    /// Its outside, and room for what ends, for the targets that it has.
    fn measure(&mut self) {
        let shapes = || self.all().map(|(_, guest)| guest.shape);
        // Where one begins that has no addresses is none either.
        let ends = self.all().filter(|(_, guest)| guest.shape.bytes > 0);
        let bytes = ends.map(|(_, guest)| guest.end()).max().unwrap_or(0);
        let all = shapes().map(|shape| shape.depth).sum::<usize>();
        // What takes requests by key has no line in that of blocks.
        let with_blocks = shapes().filter(|shape| shape.bytes > 0);
        let depth = with_blocks.map(|shape| shape.depth).min().unwrap_or(0);
        // What is longer than a target takes is cut: who knows the drive goes on as it did,
        // whichever target comes or goes.
        let longest = shapes().map(|shape| shape.max_bytes).max().unwrap_or(0);
        let max_bytes = self.shape.max_bytes.max(longest);
        self.shape = Shape { bytes, depth, max_bytes, ..self.shape };
        self.numbers = self.all().map(|(n, _)| n).collect();
        self.present = self.numbers.iter().fold(0, |bits, n| bits | 1 << n);
        let keyed = self.all().filter(|(_, guest)| guest.is_keyed);
        self.keyed = keyed.fold(0, |bits, (n, _)| bits | 1 << n);
        self.keys_done &= self.keyed;
        let mut ready = Ring::new((all + DONE).max(self.ready.capacity()));
        self.ready.pour(&mut ready);
        self.ready = ready;
        self.look();
    }

    /// Has a target take no requests for now, or take them again: what is not durable yet
    /// elsewhere is not to be used.
    ///
    /// Fails without such a one, or where it leaves.
    pub fn set_serving(&mut self, target: usize, serves: bool) -> Result<(), MediaError> {
        let guest = self.guests.get_mut(target).and_then(Option::as_mut);
        let guest = guest.filter(|guest| !guest.leaves()).ok_or(MediaError::NoTarget(target))?;
        guest.life = if serves { Life::Serves } else { Life::Waits };
        Ok(())
    }

    /// Has a target leave, with all that it holds: it takes no more requests, and delays none
    /// that it has; it is shut down when the last has ended, and its chunks are erased. That
    /// takes drive time, and holds up nobody.
    pub fn remove(&mut self, target: usize, now: Time) -> Result<(), MediaError> {
        let guest = self.guests.get_mut(target).and_then(Option::as_mut);
        let guest = guest.ok_or(MediaError::NoTarget(target))?;
        self.now = self.now.max(now);
        if !guest.leaves() {
            guest.life = Life::Leaves;
            self.leaving += 1;
            self.set_hurried(target, true, now)?;
            self.see_off(target);
            self.look();
        }
        Ok(())
    }

    /// Goes on with a target that leaves.
    pub(super) fn see_off(&mut self, target: usize) {
        let now = self.now;
        // Of one that never wrote anything there is nothing to be shut down.
        let is_used = self.media().is_used(target);
        let guest = self.guest(target);
        if guest.life == Life::Leaves && guest.inside.live() == 0 && guest.held == 0 {
            guest.life = Life::Closes;
            if is_used {
                self.lent(target, |target, _| target.close(now));
            }
        }
        let rests = self.media().live(target) == 0;
        let guest = self.guest(target);
        // One that cannot be shut down well has nothing under way either, and goes, too.
        let is_through = guest.target.is_closed() || (rests && (guest.due.is_none() || !is_used));
        if guest.life == Life::Closes && is_through {
            match self.media_mut().give_up(target, now) {
                Ok(()) => {
                    let gone = self.guests[target].take().map(|guest| guest.target.counters());
                    self.gone = gone.into_iter().chain([self.gone]).sum();
                    self.leaving -= 1;
                    self.measure();
                }
                // Erases that it waits for no more.
                Err(e) => debug_assert!(matches!(e, MediaError::Busy(_)), "{e}"),
            }
        }
    }

    /// Whether a target has left, or never was.
    pub fn is_gone(&self, target: usize) -> bool {
        self.guests.get(target).is_none_or(Option::is_none)
    }
}
