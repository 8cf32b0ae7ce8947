//! What targets leave, and what nobody names: it is erased, and only then somebody else's.
//!
//! Guarantees: at most [`ERASES_AT_ONCE`] of a target are under way at once, beside whatever
//! else is done; a chunk is handed out again when its erase, and all others of the same
//! target, are durable: after a cut the next owner finds nothing that was written before.
//! What cannot be erased is nobody's for good.

use device::{OpenChannel, VectorCmd, VectorOp};
use flash::{ChunkState, Ppa};
use port::{Buffer, Ring, Status, Time};

use crate::error::MediaError;
use crate::manager::{FREE, Flight, MAX_TARGETS, Media, SPOILT, depth_for_targets};
use crate::mutation::{self, Mutation};

/// Erases of a target that was removed that are under way at once.
const ERASES_AT_ONCE: usize = 8;

/// How often an erase is tried of a chunk that does not become free.
const TRIES: u8 = 3;

/// Completions that are taken at once.
const DONE: usize = 64;

/// In the place of a chunk: the flush behind all erases.
const FLUSH: u64 = u64::MAX;

/// Chunks that a target has left, which are erased one after the other.
#[derive(Debug)]
pub(crate) struct Left {
    /// Those to be erased.
    chunks: Vec<usize>,
    /// Those that are.
    erased: Vec<usize>,
    under_way: usize,
}

impl<D: OpenChannel> Media<D> {
    /// Takes back what a target has, at `now`. What was written there is erased first,
    /// beside whatever else is done; then it may be claimed again. What was never used may be
    /// so at once.
    ///
    /// Fails while commands of it are inside.
    pub fn give_up(&mut self, target: usize, now: Time) -> Result<(), MediaError> {
        let part = self.parts.get(target).and_then(Option::as_ref);
        let part = part.ok_or(MediaError::NoTarget(target))?;
        if part.live > 0 {
            return Err(MediaError::Busy(target));
        }
        let mut chunks: Vec<usize> = part.addressing.chunks().collect();
        if mutation::is(Mutation::EraseNeighbour) {
            let is_others = |&owner: &u8| owner != target as u8 && owner < MAX_TARGETS as u8;
            chunks.extend(self.owners.iter().position(is_others));
        }
        let is_used = part.is_used;
        self.paced -= usize::from(part.pace.is_limited());
        self.parts[target] = None;
        match is_used {
            true => self.leave(target, chunks, now),
            // They are as they came. A disk that is full is asked for nothing more.
            false => chunks.into_iter().for_each(|chunk| self.owners[chunk] = FREE),
        }
        Ok(())
    }

    /// What a target has is nobody's, though it goes on with it.
    pub(crate) fn hand_on(&mut self, target: usize) {
        let owners = self.owners.iter_mut();
        owners.filter(|owner| **owner == target as u8).for_each(|owner| *owner = FREE);
    }

    /// Lets commands end that a target had under way which is no more.
    ///
    /// Fails where the drive stopped answering.
    pub(crate) fn let_end(&mut self, target: usize) -> Result<(), MediaError> {
        let mut done = Ring::new(DONE);
        loop {
            self.take(target, &mut done);
            done.drain().for_each(drop);
            if self.live(target) == 0 {
                return Ok(());
            }
            let at = self.next_event().ok_or(MediaError::Stopped)?;
            self.step(at);
        }
    }

    /// Erases what is written in chunks that are nobody's, as a cut may leave it of a target
    /// that was being removed. To be called when all targets were found again.
    pub fn clear(&mut self, now: Time) {
        let is_left = |&chunk: &usize| {
            let state = self.device.chunk(chunk).state;
            self.owners[chunk] == FREE && !matches!(state, ChunkState::Free | ChunkState::Offline)
        };
        let chunks: Vec<usize> = ftl::all_chunks(&self.geometry).filter(is_left).collect();
        // As if they were of a target that was. Where there is no number for it they stay
        // written, and nobody can have them.
        if let Some(target) = self.free_number().filter(|_| !chunks.is_empty()) {
            chunks.iter().for_each(|&chunk| self.owners[chunk] = target as u8);
            self.number(target);
            self.leave(target, chunks, now);
        }
    }

    /// Chunks of a target that was that are not somebody else's to have yet.
    pub fn left_of(&self, target: usize) -> usize {
        let left = self.left.get(target).and_then(Option::as_ref);
        left.map_or(0, |left| left.chunks.len() + left.under_way + left.erased.len())
    }

    /// Chunks that targets left and that could not be erased, so far: what lay in them may be
    /// there yet, or again after a cut.
    pub fn unerased(&self) -> u64 {
        self.unerased
    }

    /// The lowest number that is nobody's.
    pub(crate) fn free_number(&self) -> Option<usize> {
        let is_free = |&n: &usize| {
            self.parts.get(n).is_none_or(|part| part.is_none() && self.left[n].is_none())
        };
        (0..MAX_TARGETS).find(is_free)
    }

    /// Makes a place for a number.
    pub(crate) fn number(&mut self, target: usize) {
        if target == self.parts.len() {
            self.parts.push(None);
            self.left.push(None);
        }
    }

    fn leave(&mut self, target: usize, chunks: Vec<usize>, now: Time) {
        let erased = Vec::with_capacity(chunks.len());
        self.left[target] = Some(Left { chunks, erased, under_way: 0 });
        self.now = self.now.max(now);
        self.erase_all_left();
        self.push();
    }

    /// Goes on erasing what targets have left.
    fn erase_all_left(&mut self) {
        (0..self.left.len()).for_each(|target| self.erase_left(target));
    }

    /// Goes on erasing what a target has left, where it has something to be erased; at last
    /// makes that durable.
    fn erase_left(&mut self, target: usize) {
        let most = self.device.depth() - depth_for_targets(self.device.depth());
        while self.own < most
            && let Some(left) = &mut self.left[target]
            && left.under_way < ERASES_AT_ONCE
        {
            let Some(chunk) = left.chunks.pop() else {
                if left.under_way > 0 {
                    return;
                }
                if left.erased.is_empty() || !self.device.is_cached() {
                    return self.free_left(target, FREE);
                }
                // What has been erased by the target itself is made durable, too.
                return self.own(Flight {
                    cookie: FLUSH,
                    target: target as u8,
                    tries: 1,
                    ..Flight::default()
                });
            };
            if matches!(self.device.chunk(chunk).state, ChunkState::Free | ChunkState::Offline) {
                left.erased.push(chunk);
                continue;
            }
            // Its cookie is the chunk.
            let (cookie, target) = (chunk as u64, target as u8);
            self.own(Flight { cookie, target, tries: 1, ..Flight::default() });
        }
    }

    /// All that is erased of a target that was is to be had, or is not.
    fn free_left(&mut self, target: usize, owner: u8) {
        if mutation::is(Mutation::KeepLeft) {
            return;
        }
        let Some(left) = self.left[target].take() else { return };
        self.unerased += if owner == SPOILT { left.erased.len() as u64 } else { 0 };
        left.erased.into_iter().for_each(|chunk| self.owners[chunk] = owner);
    }

    /// Begins a command for what a target has left.
    fn own(&mut self, flight: Flight) {
        self.left[flight.target as usize].as_mut().expect("it is erasing").under_way += 1;
        self.own += 1;
        let (op, ppa, count) = match flight.cookie {
            FLUSH => (VectorOp::Flush, Ppa(0), 0),
            chunk => (VectorOp::Reset, self.geometry.chunk_start(chunk as usize), 1),
        };
        let slot = self.flights.take(flight);
        self.out.put(|| VectorCmd {
            cookie: u64::from(slot),
            op,
            content: Default::default(),
            whose: Default::default(),
            count,
            ppa,
            list: None,
            buffer: Buffer::empty(),
        });
    }

    /// A command for what a target has left is over. A chunk that is not free then, nor
    /// offline, is tried again, and at last nobody's for good; so are all of which nobody
    /// knows whether their erases are durable.
    pub(crate) fn left_one(&mut self, flight: Flight, status: Status) {
        let target = flight.target as usize;
        self.own -= 1;
        let left = self.left[target].as_mut().expect("it is erasing");
        left.under_way -= 1;
        if flight.cookie == FLUSH {
            self.free_left(target, if status.is_ok() { FREE } else { SPOILT });
            return self.erase_all_left();
        }
        let chunk = flight.cookie as usize;
        let state = self.device.chunk(chunk).state;
        if matches!(state, ChunkState::Free | ChunkState::Offline) {
            self.unerased += u64::from(state == ChunkState::Offline);
            left.erased.push(chunk);
        } else if flight.tries < TRIES {
            return self.own(Flight { tries: flight.tries + 1, ..flight });
        } else {
            self.owners[chunk] = SPOILT;
            self.unerased += 1;
        }
        self.erase_all_left();
    }
}
