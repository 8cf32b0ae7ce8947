//! Collection: the valid blocks of a chunk move to another of their unit, and it is erased, or
//! retired where a program of it failed.
//!
//! It is erased when no read of it is under way, and all is programmed for which blocks of it
//! are valid no more: what was moved, what was written over them, and that they lead nowhere.

use device::{Content, OpenChannel, VectorDone, VectorOp};
use flash::{ChunkState, Ppa, TAG_BYTES, Tag};
use port::{Buffer, Scratch};

use crate::rows::{Source, Stream};
use crate::{COPY, Cookie, Ruled, TOMB};

/// What is collected in a unit.
#[derive(Debug)]
pub(crate) struct Collection {
    /// The chunk that is emptied, and its block that is looked at next.
    victim: Option<(usize, u32)>,
    /// What was read and is not moved yet: where, how many, and the next of them.
    read: Option<(Ppa, u32, u32)>,
    /// A read or erase is under way.
    is_busy: bool,
    buffer: Scratch,
    /// What is in it.
    filled: Buffer,
    /// What a block that moves earns the user: what is won of the victim, by what moves.
    earns: u64,
    /// What the user may write, in 65536ths of a block.
    earned: u64,
}

/// A block, as it is earned.
const BLOCK: u64 = 1 << 16;
/// Free chunks of a unit from which on the user writes there as collection goes on.
const FEW: usize = 2;

impl Collection {
    pub fn new(buffer: Scratch) -> Collection {
        let (victim, read, filled) = (None, None, Buffer::empty());
        Collection { victim, read, is_busy: false, buffer, filled, earns: 0, earned: 0 }
    }
}

impl<D: OpenChannel> Ruled<D> {
    /// A rule asks for collection, of a unit or of that of the application's with the fewest
    /// free chunks.
    pub(crate) fn asked_to_collect(&mut self, unit: Option<u16>, application: u16) {
        let all = &self.rules.rules().set().applications;
        let units = all.iter().find(|a| a.number == application).and_then(|a| a.units);
        let unit = unit.map(usize::from).or_else(|| {
            let units =
                units.map_or(0..self.space.units.len(), |u| u.lo as usize..u.hi as usize + 1);
            units.min_by_key(|&unit| self.space.units[unit].free.len())
        });
        if let Some(unit) = unit {
            self.collect(unit);
        }
    }

    /// Collects a unit of which few chunks are free, while there is room, so that no write
    /// waits for a whole chunk to be moved.
    #[inline]
    pub(crate) fn collect_ahead(&mut self, unit: usize) {
        if self.space.units[unit].free.len() <= FEW && self.space.collections[unit].victim.is_none()
        {
            self.collect(unit);
        }
    }

    /// Whether the user may begin a row in a unit as far as collection there goes: where few
    /// chunks are free, and some are collected, as much is written as is won meanwhile.
    #[inline]
    pub(crate) fn keeps_pace(&self, unit: usize) -> bool {
        let of = &self.space.collections[unit];
        self.space.units[unit].free.len() > FEW
            || of.victim.is_none()
            || of.earned >= u64::from(self.geometry.row_blocks()) * BLOCK
            || self.is_stuck(unit)
    }

    /// The user begins a row in a unit.
    #[inline]
    pub(crate) fn spend(&mut self, unit: usize) {
        let row = u64::from(self.geometry.row_blocks()) * BLOCK;
        let of = &mut self.space.collections[unit];
        of.earned = of.earned.saturating_sub(row);
    }

    /// The user may write so much more in a unit, a chunk at most.
    fn earn(&mut self, unit: usize, earned: u64) {
        let most = u64::from(self.geometry.chunk_blocks()) * BLOCK;
        let of = &mut self.space.collections[unit];
        of.earned = (of.earned + earned).min(most);
    }

    /// Begins to collect a unit, if nothing is collected there and there is something to
    /// win. Whether something is collected.
    pub(crate) fn collect(&mut self, unit: usize) -> bool {
        if self.broken {
            return false;
        }
        if self.space.collections[unit].victim.is_some() {
            self.step(unit);
            return true;
        }
        let of = &self.space.units[unit];
        let under_way = |chunk: usize| {
            of.rows.iter().any(|&id| self.geometry.chunk_index(self.space.rows[id].ppa) == chunk)
        };
        // Less than a row is nothing to win: it is padded. What was given up and is not written
        // down takes its place where the rest moves to.
        let most = self.geometry.chunk_blocks() - self.geometry.row_blocks();
        let owed = |chunk: usize| self.forgotten.iter().filter(|f| f.chunk == chunk).count() as u32;
        let candidates = of.closed.iter().enumerate().filter(|&(_, &chunk)| {
            self.blocks.valid[chunk] + owed(chunk) <= most && !under_way(chunk)
        });
        let best = candidates.min_by_key(|&(_, &chunk)| self.blocks.valid[chunk]).map(|(n, _)| n);
        let Some(n) = best else { return false };
        let chunk = self.space.units[unit].closed.swap_remove(n);
        let (moves, all) = (u64::from(self.blocks.valid[chunk]), self.geometry.chunk_blocks());
        let won = (u64::from(all) - moves) * BLOCK;
        match won.checked_div(moves) {
            Some(each) => self.space.collections[unit].earns = each,
            None => self.earn(unit, won),
        }
        self.space.collections[unit].victim = Some((chunk, 0));
        self.space.collected += 1;
        self.counters.collections += 1;
        self.step(unit);
        true
    }

    /// Goes on with what is collected in a unit.
    pub(crate) fn step(&mut self, unit: usize) {
        let Some((chunk, _)) = self.space.collections[unit].victim else { return };
        // What failed to be moved is only where it was.
        if self.broken
            || self.space.collections[unit].is_busy
            || !self.move_read(unit)
            || self.read_next(unit)
        {
            return;
        }
        let until = self.blocks.until[chunk];
        if self.blocks.readers[chunk] == 0 && until != u64::MAX && self.settle(until, Some(unit)) {
            self.space.collections[unit].is_busy = true;
            let ppa = self.geometry.chunk_start(chunk);
            let op = match self.device.chunk(chunk).is_spoilt(self.geometry.chunk_blocks()) {
                true => VectorOp::Retire,
                false => VectorOp::Reset,
            };
            self.command(Cookie::Reset(unit), op, Content::Data, (ppa, 1), Buffer::empty());
        }
    }

    /// Whether what was read has nowhere to go: writes fail then, and do not wait. A start and
    /// [`Ruled::settle`] see to it that cuts and padding do not lead to that.
    pub(crate) fn is_stuck(&self, unit: usize) -> bool {
        let of = &self.space.collections[unit];
        of.read.is_some() && !of.is_busy
    }

    /// Whether a chunk is collected, and all that is valid in it has moved.
    pub(crate) fn is_emptied(&self, unit: usize, chunk: usize) -> bool {
        let of = &self.space.collections[unit];
        let at = of.victim.filter(|victim| victim.0 == chunk).map(|victim| victim.1);
        at.is_some_and(|at| at >= self.geometry.chunk_blocks()) && of.read.is_none()
    }

    /// Reads the next row of the victim that has something valid. False where none has.
    fn read_next(&mut self, unit: usize) -> bool {
        let Some((chunk, mut at)) = self.space.collections[unit].victim else { return false };
        let (size, start) = (self.geometry.row_blocks(), self.geometry.chunk_start(chunk).0);
        while at < self.geometry.chunk_blocks() {
            let row = start + u64::from(at);
            let blocks = row..row + u64::from(size);
            at += size;
            self.space.collections[unit].victim = Some((chunk, at));
            let mut valid = blocks.filter(|&ppa| self.is_valid(Ppa(ppa)));
            let Some(first) = valid.next() else { continue };
            let last = valid.next_back().unwrap_or(first);
            let (ppa, count) = (Ppa(first), (last - first + 1) as u32);
            let each = self.shape.kept as usize + TAG_BYTES;
            let collection = &mut self.space.collections[unit];
            (collection.read, collection.is_busy) = (Some((ppa, count, 0)), true);
            let buffer = collection.buffer.take(count as usize * each);
            let cookie = Cookie::Move(unit);
            self.command(cookie, VectorOp::Read, Content::Tagged, (ppa, count), buffer);
            return true;
        }
        false
    }

    /// Moves what was read and is still valid. False where there is no room for now.
    fn move_read(&mut self, unit: usize) -> bool {
        let Some((ppa, count, mut next)) = self.space.collections[unit].read else { return true };
        let kept = self.shape.kept as usize;
        let filled = std::mem::replace(&mut self.space.collections[unit].filled, Buffer::empty());
        let (data, tags) = filled.bytes().split_at(count as usize * kept);
        let mut has_room = true;
        while next < count {
            let old = Ppa(ppa.0 + u64::from(next));
            if self.is_valid(old) {
                let n = next as usize;
                let tag = &tags[n * TAG_BYTES..][..TAG_BYTES];
                // Whose it is, it says itself; what leads to it does not deny that.
                let owner = Tag::load(tag).id ^ self.blocks.writer;
                let (entry, is_tomb) = (owner & !(TOMB | COPY), owner & TOMB != 0);
                let is_so = entry < self.blocks.tombs.len() as u64
                    && match is_tomb {
                        true => self.blocks.tombs[entry as usize] == old.0 + 1,
                        false => self.leads(entry) == Some(old),
                    };
                if !is_so {
                    self.broken = true;
                    has_room = false;
                    break;
                }
                let source = Source::Moved(&data[n * kept..][..kept], tag);
                let Some(new) = self.put(unit, Stream::Collection, owner, &source) else {
                    has_room = false;
                    break;
                };
                self.counters.gc += 1;
                self.counters.moved += 1;
                self.earn(unit, self.space.collections[unit].earns);
                if is_tomb {
                    self.invalidate(old, self.space.row);
                    self.blocks.tombs[entry as usize] = new.0 + 1;
                } else {
                    self.lead(unit, entry, new);
                }
            }
            next += 1;
        }
        let collection = &mut self.space.collections[unit];
        if has_room {
            collection.read = None;
            collection.buffer.give(filled);
        } else {
            collection.read = Some((ppa, count, next));
            collection.filled = filled;
        }
        has_room
    }

    /// A row of the victim was read.
    pub(crate) fn moved(&mut self, unit: usize, done: VectorDone) {
        let collection = &mut self.space.collections[unit];
        collection.is_busy = false;
        collection.filled = done.buffer;
        if !ftl::is_read(done.status) {
            // What cannot be read is not moved, and its chunk is not erased.
            self.broken = true;
        }
        if !self.broken {
            self.step(unit);
        }
    }

    /// The victim is erased or retired, or never will be.
    pub(crate) fn erased(&mut self, unit: usize, done: &VectorDone) {
        let collection = &mut self.space.collections[unit];
        collection.is_busy = false;
        let Some((chunk, _)) = collection.victim.take() else { return };
        self.blocks.until[chunk] = 0;
        self.space.collected -= 1;
        if done.status.is_ok() && self.device.chunk(chunk).state != ChunkState::Offline {
            self.counters.erases += 1;
            self.space.units[unit].free.insert(0, chunk);
            self.space.count_free(1);
        } else {
            self.counters.retired += 1;
        }
    }
}
