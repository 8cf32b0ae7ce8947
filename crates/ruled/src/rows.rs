//! Rows: how blocks get into a unit's open chunks, and what is gathered or on its way.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{ChunkState, Geometry, Ppa, TAG_BYTES, Tag};
use port::{Lender, Time};

use crate::{COPY, Cookie, ROWS, Ruled, TOMB};

/// The tag's id of what pads a row.
pub(crate) const NOBODY: u64 = u64::MAX;

/// Who writes: the user, or collection. Each has an open chunk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    User,
    Collection,
}

/// A row that is gathered or on its way.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// Data of its blocks, and behind them their tags.
    pub buffer: Lender,
    pub ppa: Ppa,
    /// Blocks that are in it.
    pub count: u32,
    pub unit: usize,
    /// When it was begun.
    pub number: u64,
    pub is_sent: bool,
    /// All in it are copies of blocks that are still there, or at a remote drive.
    pub are_copies: bool,
    /// The one that was begun before it, and the one after, of those that are left.
    pub before: Option<u32>,
    pub after: Option<u32>,
}

/// The oldest and the newest row that is left.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    oldest: Option<u32>,
    newest: Option<u32>,
}

/// A parallel unit.
#[derive(Debug)]
pub(crate) struct Unit {
    /// By stream: the open chunk, and the row of it that is begun next.
    pub open: [Option<(usize, u32)>; 2],
    /// By stream: the row that is gathered.
    pub gathered: [Option<u32>; 2],
    /// Rows that are gathered or on their way.
    pub rows: Vec<u32>,
    pub free: Vec<usize>,
    /// Chunks with something in them that are not open.
    pub closed: Vec<usize>,
}

impl Unit {
    /// As the drive has it. What is open goes on where it was, so that a cut spoils no
    /// chunk, first for what is moved.
    pub fn new<D: OpenChannel>(geometry: &Geometry, device: &D, pu: usize) -> Unit {
        let chunks = (0..geometry.chunks()).rev().map(|n| geometry.chunk_of(pu, n));
        let (mut free, mut closed, mut open) = (Vec::new(), Vec::new(), [None; 2]);
        for chunk in chunks {
            let of = device.chunk(chunk);
            let is_whole = !of.is_spoilt(geometry.chunk_blocks())
                && of.programmed.is_multiple_of(geometry.row_blocks());
            match (of.state, open.iter_mut().rev().find(|open| open.is_none())) {
                (ChunkState::Free, _) => free.push(chunk),
                (ChunkState::Open, Some(open)) if is_whole => *open = Some((chunk, of.programmed)),
                (ChunkState::Open | ChunkState::Closed, _) => closed.push(chunk),
                (ChunkState::Offline, _) => {}
            }
        }
        Unit { open, gathered: [None; 2], rows: Vec::with_capacity(ROWS), free, closed }
    }
}

impl Unit {
    /// After a start, when it is known what is valid: an open chunk with nothing valid is closed,
    /// so that it is erased. It may be where collection was moving to, what it holds was taken
    /// from the chunk that was emptied, and the rest of it is no room for all of that. Of two
    /// open ones collection has that with more room.
    pub fn suit_collection(&mut self, valid: &[u32]) {
        for open in &mut self.open {
            self.closed.extend(open.take_if(|(chunk, _)| valid[*chunk] == 0).map(|open| open.0));
        }
        if let [Some(user), Some(collection)] = self.open
            && user.1 < collection.1
        {
            self.open.swap(0, 1);
        }
    }

    /// Closes the open chunk of a stream if it has no row left.
    fn close_full(&mut self, stream: Stream, rows: u32) {
        if let Some((chunk, _)) = self.open[stream as usize].take_if(|(_, next)| *next >= rows) {
            self.closed.push(chunk);
        }
    }
}

/// What a block is made of.
pub(crate) enum Source<'a> {
    /// The user's data, written now.
    Data(&'a [u8]),
    /// What a remote drive has, too.
    Copy(&'a [u8]),
    /// Nothing: the entry leads nowhere.
    Tomb,
    /// A block that moves, with its tag.
    Moved(&'a [u8], &'a [u8]),
}

impl<D: OpenChannel> Ruled<D> {
    /// Puts a block of an owner into a row of a unit, and it is valid. `None` where there is no room for
    /// now, or there is none at all.
    pub(crate) fn put(
        &mut self,
        unit: usize,
        stream: Stream,
        owner: u64,
        source: &Source<'_>,
    ) -> Option<Ppa> {
        let gathered = self.space.units[unit].gathered[stream as usize];
        let id = match gathered {
            Some(id) => id,
            None => self.begin(unit, stream)?,
        };
        let (kept, size) = (self.shape.kept as usize, self.geometry.row_blocks() as usize);
        let row = &mut self.space.rows[id];
        let at = row.count as usize;
        let ppa = Ppa(row.ppa.0 + u64::from(row.count));
        let (data, tags) = row.buffer.bytes_mut().split_at_mut(size * kept);
        let (data, tag) =
            (&mut data[at * kept..][..kept], &mut tags[at * TAG_BYTES..][..TAG_BYTES]);
        match source {
            Source::Data(bytes) | Source::Copy(bytes) => {
                data.copy_from_slice(bytes);
                self.space.seq += 1;
                let copy = if matches!(source, Source::Copy(_)) { COPY } else { 0 };
                Tag { id: owner | copy | self.blocks.writer, seq: self.space.seq }.store(tag);
            }
            Source::Tomb => {
                data.fill(0);
                self.space.seq += 1;
                Tag { id: owner | TOMB | self.blocks.writer, seq: self.space.seq }.store(tag);
            }
            Source::Moved(bytes, with) => {
                data.copy_from_slice(bytes);
                tag.copy_from_slice(with);
            }
        }
        row.count += 1;
        row.are_copies &= matches!(source, Source::Moved(..) | Source::Copy(_));
        if row.count as usize == size {
            self.send(id);
        }
        self.validate(ppa);
        Some(ppa)
    }

    /// Whether a block can be put into a unit by the user now.
    #[inline]
    pub(crate) fn has_room(&self, unit: usize) -> bool {
        let of = &self.space.units[unit];
        let stream = Stream::User as usize;
        of.gathered[stream].is_some()
            || (!self.broken
                && self.keeps_pace(unit)
                && of.rows.len() < ROWS - 1
                && (of.free.len() > 1
                    || of.open[stream]
                        .is_some_and(|(_, next)| next < self.geometry.chunk_blocks())))
    }

    /// Begins a row.
    fn begin(&mut self, unit: usize, stream: Stream) -> Option<u32> {
        if self.broken
            || self.space.units[unit].rows.len() >= ROWS - usize::from(stream == Stream::User)
        {
            return None;
        }
        let (size, rows) = (self.geometry.row_blocks(), self.geometry.chunk_blocks());
        let of = &mut self.space.units[unit];
        of.close_full(stream, rows);
        let (user, own) = (Stream::User as usize, stream as usize);
        if stream == Stream::Collection && of.open[own].is_none() && of.free.is_empty() {
            // A cut spoilt its chunk: it goes on in the user's.
            of.open.swap(user, own);
            of.close_full(stream, rows);
        }
        let open = &mut of.open[own];
        if open.is_none() {
            // The last one is for what is moved.
            let least = usize::from(stream == Stream::User);
            if of.free.len() <= least {
                return None;
            }
            *open = of.free.pop().map(|chunk| (chunk, 0));
            self.space.count_free(-1);
        }
        let of = &mut self.space.units[unit];
        let (chunk, next) = of.open[own].as_mut()?;
        let ppa = Ppa(self.geometry.chunk_start(*chunk).0 + u64::from(*next));
        *next += size;
        self.space.row += 1;
        let id = self.space.rows.take_as_is();
        let row = &mut self.space.rows[id];
        (row.ppa, row.count, row.unit) = (ppa, 0, unit);
        (row.number, row.is_sent, row.are_copies) = (self.space.row, false, true);
        (row.before, row.after) = (self.space.ends.newest, None);
        match self.space.ends.newest.replace(id) {
            Some(before) => self.space.rows[before].after = Some(id),
            None => self.space.ends.oldest = Some(id),
        }
        of.rows.push(id);
        of.gathered[stream as usize] = Some(id);
        if stream == Stream::User {
            self.spend(unit);
        }
        Some(id)
    }

    /// Sends a row, padded where it is not full.
    fn send(&mut self, id: u32) {
        let (kept, size) = (self.shape.kept as usize, self.geometry.row_blocks());
        let row = &mut self.space.rows[id];
        if row.count < size {
            let from = row.count as usize;
            let (data, tags) = row.buffer.bytes_mut().split_at_mut(size as usize * kept);
            data[from * kept..].fill(0);
            let pad = Tag { id: NOBODY, seq: 0 };
            tags[from * TAG_BYTES..].chunks_exact_mut(TAG_BYTES).for_each(|tag| pad.store(tag));
            self.counters.padding += u64::from(size - row.count);
        }
        row.is_sent = true;
        let (ppa, buffer) = (row.ppa, row.buffer.lend());
        for gathered in &mut self.space.units[row.unit].gathered {
            gathered.take_if(|gathered| *gathered == id);
        }
        self.command(Cookie::Row(id), VectorOp::Write, Content::Tagged, (ppa, size), buffer);
    }

    /// Puts a command into the ring to the drive.
    #[inline]
    pub(crate) fn command(
        &mut self,
        cookie: Cookie,
        op: VectorOp,
        content: Content,
        (ppa, count): (Ppa, u32),
        buffer: port::Buffer,
    ) {
        let (cookie, count) = (cookie.pack(), count as u8);
        self.out.put(|| VectorCmd {
            cookie,
            op,
            content,
            whose: Default::default(),
            count,
            ppa,
            list: None,
            buffer,
        });
    }

    /// A row is programmed, or not.
    pub(crate) fn programmed(&mut self, now: Time, id: u32, done: VectorDone) {
        let row = &mut self.space.rows[id];
        row.buffer.reclaim(done.buffer);
        if !done.status.is_ok() {
            // Its blocks are read from it for as long as the drive runs.
            self.broken = true;
        } else {
            let (unit, before, after) = (row.unit, row.before, row.after);
            match before {
                Some(before) => self.space.rows[before].after = after,
                None => self.space.ends.oldest = after,
            }
            match after {
                Some(after) => self.space.rows[after].before = before,
                None => self.space.ends.newest = before,
            }
            self.space.units[unit].rows.retain(|&other| other != id);
            self.space.rows.give(id);
        }
        if !self.syncing.is_empty() {
            self.sync(now);
        }
    }

    /// Sends all rows up to a number that are still gathered, but for those of copies that do
    /// not matter: none does, but where a chunk of a unit is to be erased. Then all do but those
    /// to which other units collect: what is copied there is still where it was, and padding
    /// takes room that these count on. Whether none of them is left, gathered or on its way.
    pub(crate) fn settle(&mut self, until: u64, erased_in: Option<usize>) -> bool {
        let (mut is_done, mut next) = (true, self.space.ends.oldest);
        while let Some(id) = next {
            let row = &self.space.rows[id];
            if row.number > until {
                break;
            }
            next = row.after;
            let gathered = self.space.units[row.unit].gathered[Stream::Collection as usize];
            let matters = |unit| unit == row.unit || gathered != Some(id);
            if row.are_copies && !erased_in.is_some_and(matters) {
                continue;
            }
            is_done = false;
            if !row.is_sent {
                self.send(id);
            }
        }
        is_done
    }

    /// The row of a unit that has a block, and the block's data in it.
    pub(crate) fn buffered(&self, unit: usize, ppa: Ppa) -> Option<&[u8]> {
        let kept = self.shape.kept as usize;
        self.space.units[unit].rows.iter().find_map(|&id| {
            let row = &self.space.rows[id];
            let at = ppa.0.checked_sub(row.ppa.0).filter(|&at| at < u64::from(row.count))?;
            Some(&row.buffer.bytes()[at as usize * kept..][..kept])
        })
    }

    /// The unit of a physical block, as rules number it.
    #[inline]
    pub(crate) fn unit_of(&self, ppa: Ppa) -> usize {
        self.space.unit_of_pu[self.geometry.pu_index(ppa)].into()
    }

    /// A block is valid no more, once the row with this number is programmed.
    pub(crate) fn invalidate(&mut self, ppa: Ppa, until: u64) {
        let chunk = self.geometry.chunk_index(ppa);
        let (word, bit) = ((ppa.0 >> 6) as usize, 1 << (ppa.0 & 63));
        if self.blocks.bits[word] & bit != 0 {
            self.blocks.bits[word] &= !bit;
            self.blocks.valid[chunk] -= 1;
        }
        self.blocks.until[chunk] = self.blocks.until[chunk].max(until);
    }

    /// A block is valid.
    #[inline]
    pub(crate) fn validate(&mut self, ppa: Ppa) {
        self.blocks.bits[(ppa.0 >> 6) as usize] |= 1 << (ppa.0 & 63);
        self.blocks.valid[self.geometry.chunk_index(ppa)] += 1;
    }

    /// Whether a block is valid.
    #[inline]
    pub(crate) fn is_valid(&self, ppa: Ppa) -> bool {
        self.blocks.bits[(ppa.0 >> 6) as usize] >> (ppa.0 & 63) & 1 != 0
    }
}
