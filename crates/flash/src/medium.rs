//! The medium: what moves the bytes. It knows no time.
//!
//! A medium keeps, of each logical block, a number of bytes (all of them, a
//! 64-bit digest, or none) and always its out-of-band [`Tag`], so that
//! garbage collection and recovery work on every medium. Buffers carry just
//! the kept bytes.
//!
//! A medium that cannot move the bytes at once answers [`Moved::Pending`] and
//! is asked again with the same arguments. Memory always answers at once.

use std::collections::HashMap;

use port::lazy::{room_for, table};
use port::{BLOCK_BYTES, Lazy, OutOfMemory};

use crate::rows::Rows;
use crate::slabs::{Page, Slabs};
use crate::{Chunk, Geometry, Ppa};

/// Out-of-band bytes of a logical block.
pub const TAG_BYTES: usize = 16;

/// The out-of-band area: whose data a block holds and when it was written.
/// The meaning is the target's; 16 bytes, little-endian, `id` first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Whose data: usually the logical block address.
    pub id: u64,
    /// When: a number that grows.
    pub seq: u64,
}

impl Tag {
    /// The tag at the start of `bytes`.
    ///
    /// # Panics
    /// When there are fewer than [`TAG_BYTES`].
    #[inline]
    pub fn load(bytes: &[u8]) -> Tag {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Tag { id: word(0), seq: word(8) }
    }

    /// Puts the tag at the start of `bytes`.
    ///
    /// # Panics
    /// When there are fewer than [`TAG_BYTES`].
    #[inline]
    pub fn store(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        Tag::store_seq(self.seq, bytes);
    }

    /// Puts another `seq` in the tag at the start of `bytes`.
    ///
    /// # Panics
    /// When there are fewer than [`TAG_BYTES`].
    #[inline]
    pub fn store_seq(seq: u64, bytes: &mut [u8]) {
        bytes[8..16].copy_from_slice(&seq.to_le_bytes());
    }
}

/// Whether the bytes were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// They were.
    Done,
    /// Not yet; ask again with the same arguments.
    Pending,
    /// They cannot be.
    Failed,
}

/// Where the bytes are.
pub trait Medium {
    /// Bytes kept of each logical block: 4096, 8 or 0.
    fn kept(&self) -> u32;

    /// Stores `count` blocks from `at` on, all in one chunk: `count` times the
    /// kept bytes of data, or `count` times 4096, which are kept whole and read
    /// so; and `count` tags, or no tags, which stores zeros.
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved;

    /// Gets `count` blocks from `at` on, all in one chunk, as they were stored.
    /// `data` or `tags` is empty when they are not wanted. What was not stored
    /// whole cannot be read whole: that fails, where it is not all that is kept.
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved;

    /// Forgets a chunk, given by its first address. On a medium that outlives
    /// its drive an erase is never durable before what was done before it: so
    /// what was moved out of the chunk is not lost with it. Until it is
    /// durable, after a cut the chunk may have all that it had.
    fn reset(&mut self, chunk: Ppa) -> Moved;

    /// Done when everything that was done before it was first asked for is
    /// durable. Without one, what was done becomes durable in any order, but
    /// for this: in a chunk in the order in which it was done, and an erase
    /// never before anything that was done, in any chunk, before it.
    fn barrier(&mut self) -> Moved;

    /// Whether what is done is durable only after a barrier.
    fn is_cached(&self) -> bool {
        false
    }

    /// Takes note of what the drive knows of a chunk, by
    /// [`Geometry::chunk_index`], whenever that has changed: after each program
    /// and reset, when it goes offline, and now and then when it is read, which
    /// need not be durable with a barrier. A medium that outlives its drive
    /// keeps it and gives it back when it is opened: what it then tells of as
    /// programmed, and not in vain, is all there, as it was programmed. What a cut
    /// lost or tore it does not tell of. So what is told of and cannot be read was
    /// damaged. Never fails by itself; the next barrier does.
    fn describe(&mut self, _chunk_index: usize, _chunk: &Chunk) {}

    /// Takes note of the drive's own time, in ns, by which data age. A medium
    /// that outlives its drive keeps the highest, durable with the next barrier
    /// that has something to make durable, and when it is closed.
    fn note_time(&mut self, _ns: u64) {}

    /// The highest time that it was ever told, as far as it was kept; 0 where
    /// none is: then the drive's clock begins at zero, or goes on by itself.
    fn time(&self) -> u64 {
        0
    }

    /// Whether what answered pending may have another answer now; `None` where that
    /// is not told to whoever drives the medium, and it is to be asked now and then.
    #[inline]
    fn has_news(&self) -> Option<bool> {
        None
    }

    /// Whether a read that gives nothing, neither data nor tags, is always done at
    /// once, so that it need not be asked for.
    fn reads_nothing_at_once(&self) -> bool {
        false
    }

    /// Says that a block will be read soon, so that its first bytes can be
    /// fetched into the cache. Changes nothing that can be observed.
    #[inline]
    fn hint(&self, _at: Ppa) {}

    /// The same of a block's tag.
    #[inline]
    fn hint_tag(&self, _at: Ppa) {}
}

/// Cache lines that a hint fetches; the processor goes on by itself.
const HINTED_LINES: usize = 8;

/// Elements by which each parallel unit's part of an array is shifted against
/// the one before: a line of the caches of the smallest. Units are a power of
/// two apart and are written in turn, at about the same place in each: without
/// a shift these would all be in the same few lines of the caches.
const SHIFT: usize = 16;

/// A medium in memory.
///
/// Memory is taken when a block is first written; whole blocks give theirs back
/// when their chunk is reset. Tags take 8 bytes a block: a chunk's sequence
/// numbers are kept as distances from its first one. A chunk whose tags do not
/// fit in that is kept whole in a side table.
pub struct RamMedium {
    geometry: Geometry,
    kept: u32,
    /// Where all of a block is kept.
    rows: Option<Rows>,
    /// Where less is kept.
    data: Lazy<u8>,
    ids: Lazy<u32>,
    seqs: Lazy<i32>,
    /// Sequence number of each chunk's first block.
    base: Lazy<u64>,
    /// A bit for each chunk that is in one of the side tables, or bare.
    aside: Box<[u64]>,
    /// A bit for each chunk of which all came without tags.
    bare: Box<[u64]>,
    wide: HashMap<usize, Box<[Tag]>>,
    /// By chunk, blocks stored whole though the medium keeps less.
    whole: HashMap<usize, Vec<WholeBlock>>,
    /// Their memory.
    pages: Slabs,
}

/// A block that was stored whole: its number in its chunk, and its bytes.
type WholeBlock = (u32, Page);

/// Sets the bit of a chunk.
#[inline]
fn set(bits: &mut [u64], chunk: usize) {
    bits[chunk / 64] |= 1 << (chunk % 64);
}

impl RamMedium {
    /// An empty medium that keeps `kept` bytes a block.
    pub fn new(geometry: &Geometry, kept: u32) -> Result<RamMedium, OutOfMemory> {
        let blocks = (1usize << geometry.address_bits()) + geometry.pu_slots() * SHIFT;
        let keeps_all = u64::from(kept) == BLOCK_BYTES;
        let part = if keeps_all { 0 } else { kept as usize };
        Ok(RamMedium {
            geometry: *geometry,
            kept,
            rows: if keeps_all { Some(Rows::new(geometry)?) } else { None },
            data: Lazy::zeroed(blocks.saturating_mul(part), "the medium's data")?,
            ids: Lazy::zeroed(blocks, "the medium's tags")?,
            seqs: Lazy::zeroed(blocks, "the medium's tags")?,
            base: Lazy::zeroed(geometry.chunk_slots(), "the medium's chunks")?,
            aside: table(0, geometry.chunk_slots().div_ceil(64), "the medium's chunks")?,
            bare: table(0, geometry.chunk_slots().div_ceil(64), "the medium's chunks")?,
            wide: HashMap::new(),
            whole: HashMap::new(),
            pages: Slabs::new(BLOCK_BYTES as usize),
        })
    }

    /// Bytes of memory that an empty one takes, and one that was written whole,
    /// whose chunks hold `blocks` blocks at a time.
    pub fn memory(geometry: &Geometry, kept: u32, blocks: u64) -> (u64, u64) {
        let slots = geometry.chunk_slots() as u64;
        let (all, tag) = (geometry.blocks(), (size_of::<u32>() + size_of::<i32>()) as u64);
        let keeps_all = u64::from(kept) == BLOCK_BYTES;
        let held = if keeps_all { blocks } else { all };
        let rows = if keeps_all { Rows::table_bytes(geometry, all) } else { 0 };
        let empty = 2 * slots.div_ceil(64) * 8;
        let written = held.saturating_mul(kept.into()).saturating_add(all.saturating_mul(tag));
        (empty, (empty + slots * 8 + rows).saturating_add(written))
    }

    /// Takes the memory now for `held` blocks, as many as the drive's chunks hold
    /// at a time, and for `whole` of them to be stored whole where the medium
    /// keeps less, so that real time never waits for the system to find it. Where
    /// the system has none, the first writes fail. It takes seconds for some GiB:
    /// `go_on` is asked now and then, and where it says no, that is the end and
    /// the answer.
    pub fn populate(&mut self, held: u64, whole: u64, mut go_on: impl FnMut() -> bool) -> bool {
        let goes_on = match &mut self.rows {
            Some(rows) => rows.reserve(held, &mut go_on),
            None => self.pages.reserve(whole as usize, &mut go_on),
        };
        if !goes_on {
            return false;
        }
        let blocks = self.geometry.chunk_blocks() as usize;
        for pu in self.geometry.pus_channels_first() {
            for number in 0..self.geometry.chunks() {
                if !go_on() {
                    return false;
                }
                let start = self.geometry.chunk_start(self.geometry.chunk_of(pu, number));
                let range = self.place(start)..self.place(start) + blocks;
                if self.rows.is_none() {
                    let kept = self.kept as usize;
                    self.data.populate(range.start * kept..range.end * kept);
                }
                self.ids.populate(range.clone());
                self.seqs.populate(range);
            }
        }
        true
    }

    /// Where a block is in the arrays: neighbours of a unit are neighbours.
    #[inline]
    fn place(&self, at: Ppa) -> usize {
        at.0 as usize + self.geometry.pu_index(at) * SHIFT
    }

    fn store_tags(&mut self, at: Ppa, count: u32, tags: &[u8]) -> Moved {
        if tags.is_empty() {
            return self.store_no_tags(at, count);
        }
        let (chunk, start) = (self.geometry.chunk_index(at), self.place(at));
        if self.is_bare(chunk) {
            self.end_bare(at);
        }
        if self.geometry.block(at) == 0 {
            self.base[chunk] = Tag::load(tags).seq;
        }
        if self.is_wide(chunk) || !self.store_narrow(chunk, start, tags) {
            return self.store_wide(at, tags);
        }
        Moved::Done
    }

    /// Stores blocks that came without tags: zeros. Nothing is kept of them while all
    /// of a chunk came so.
    fn store_no_tags(&mut self, at: Ppa, count: u32) -> Moved {
        let chunk = self.geometry.chunk_index(at);
        if self.geometry.block(at) == 0 && !self.is_wide(chunk) {
            set(&mut self.bare, chunk);
            set(&mut self.aside, chunk);
        }
        if self.is_bare(chunk) { Moved::Done } else { self.store_zeros(at, count) }
    }

    /// The same where others of the chunk came with tags, a few at a time.
    #[cold]
    fn store_zeros(&mut self, at: Ppa, count: u32) -> Moved {
        let none = [0; 16 * TAG_BYTES];
        for from in (0..count).step_by(16) {
            let some = (count - from).min(16);
            let tags = &none[..some as usize * TAG_BYTES];
            if self.store_tags(Ppa(at.0 + u64::from(from)), some, tags) != Moved::Done {
                return Moved::Failed;
            }
        }
        Moved::Done
    }

    /// A block of a chunk comes with a tag, and those before it came without: theirs
    /// are zeros.
    #[cold]
    fn end_bare(&mut self, at: Ppa) {
        let (chunk, before) = (self.geometry.chunk_index(at), self.geometry.block(at) as usize);
        self.bare[chunk / 64] &= !(1 << (chunk % 64));
        let place = self.place(at);
        self.base[chunk] = 0;
        self.ids[place - before..place].fill(0);
        self.seqs[place - before..place].fill(0);
    }

    /// Stores tags of a chunk whose tags all fit so far. False where one does
    /// not: then what was stored of these counts for nothing.
    #[inline]
    fn store_narrow(&mut self, chunk: usize, start: usize, tags: &[u8]) -> bool {
        let (tags, base) = (tags.as_chunks::<TAG_BYTES>().0, self.base[chunk]);
        let ids = &mut self.ids[start..start + tags.len()];
        let seqs = &mut self.seqs[start..start + tags.len()];
        for ((id, seq), bytes) in ids.iter_mut().zip(seqs).zip(tags) {
            let tag = Tag::load(bytes);
            let far = tag.seq.wrapping_sub(base);
            // The all-ones id stands for padding and keeps its meaning: it is
            // the one before zero. Looked at one by one: wide registers would
            // wait for tags that were written just now, word by word.
            if (tag.id.wrapping_add(1) | far.wrapping_add(1 << 31)) >> 32 != 0 {
                return false;
            }
            (*id, *seq) = (tag.id as u32, far as i32);
        }
        self.fetch_ahead(start + tags.len());
        true
    }

    /// Fetches the next line of the tags of a unit that is written up to `end`: many are
    /// written in turn, each a little, which no processor foresees.
    #[inline]
    fn fetch_ahead(&self, end: usize) {
        const LINE: usize = 64 / size_of::<u32>();
        self.ids.prefetch(end + LINE);
        self.seqs.prefetch(end + LINE);
    }

    /// Whether `data` is more than the medium keeps of `count` blocks.
    #[inline]
    fn is_whole(&self, count: u32, len: usize) -> bool {
        len > count as usize * self.kept as usize
    }

    /// Never inlined, as in [`Rows`].
    #[inline(never)]
    fn store_data(&mut self, at: Ppa, count: u32, data: &[u8]) -> Moved {
        if self.is_whole(count, data.len()) {
            return self.store_whole(at, data);
        }
        if let Some(rows) = &mut self.rows {
            return rows.program(at, data);
        }
        let (start, len) = (self.place(at) * self.kept as usize, (count * self.kept) as usize);
        self.data[start..start + len].copy_from_slice(data);
        Moved::Done
    }

    #[cold]
    fn store_whole(&mut self, at: Ppa, data: &[u8]) -> Moved {
        let chunk = self.geometry.chunk_index(at);
        set(&mut self.aside, chunk);
        let blocks = self.whole.entry(chunk).or_default();
        // A chunk whose erase was cut short may be written again without one.
        let stays = blocks.partition_point(|held| held.0 < self.geometry.block(at));
        blocks.drain(stays..).for_each(|held| self.pages.give(held.1));
        for (block, bytes) in (self.geometry.block(at)..).zip(data.chunks(BLOCK_BYTES as usize)) {
            let Some(page) = self.pages.take() else { return Moved::Failed };
            self.pages.bytes_mut(&page).copy_from_slice(bytes);
            blocks.push((block, page));
        }
        Moved::Done
    }

    #[cold]
    fn load_whole(&self, at: Ppa, data: &mut [u8]) -> Moved {
        let blocks = self.whole.get(&self.geometry.chunk_index(at)).map_or(&[][..], Vec::as_slice);
        for (block, to) in (self.geometry.block(at)..).zip(data.chunks_mut(BLOCK_BYTES as usize)) {
            // Blocks are programmed in their order.
            let Ok(found) = blocks.binary_search_by_key(&block, |held| held.0) else {
                return Moved::Failed;
            };
            to.copy_from_slice(self.pages.bytes(&blocks[found].1));
        }
        Moved::Done
    }

    /// Whether something of a chunk is in a side table.
    #[inline]
    fn is_aside(&self, chunk: usize) -> bool {
        self.aside[chunk / 64] >> (chunk % 64) & 1 == 1
    }

    /// Whether all that is in a chunk came without tags.
    #[inline]
    fn is_bare(&self, chunk: usize) -> bool {
        self.is_aside(chunk) && self.bare[chunk / 64] >> (chunk % 64) & 1 == 1
    }

    #[inline]
    fn is_wide(&self, chunk: usize) -> bool {
        self.is_aside(chunk) && self.wide.contains_key(&chunk)
    }

    #[cold]
    fn store_wide(&mut self, at: Ppa, tags: &[u8]) -> Moved {
        let chunk = self.geometry.chunk_index(at);
        let block = self.geometry.block(at) as usize;
        if !self.wide.contains_key(&chunk) {
            let blocks = self.geometry.chunk_blocks() as usize;
            let Ok(mut held) = room_for(blocks, "the medium's tags") else { return Moved::Failed };
            let start = self.geometry.chunk_start(chunk);
            for i in 0..blocks as u64 {
                let mut bytes = [0; TAG_BYTES];
                self.load_tags(Ppa(start.0 + i), &mut bytes);
                held.push(Tag::load(&bytes));
            }
            self.wide.insert(chunk, held.into());
            set(&mut self.aside, chunk);
        }
        let held = &mut self.wide.get_mut(&chunk).expect("it was put there")[block..];
        for (held, bytes) in held.iter_mut().zip(tags.chunks_exact(TAG_BYTES)) {
            *held = Tag::load(bytes);
        }
        Moved::Done
    }

    fn load_tags(&self, at: Ppa, tags: &mut [u8]) {
        let (chunk, start) = (self.geometry.chunk_index(at), self.place(at));
        if self.is_bare(chunk) {
            return tags.fill(0);
        }
        let tags = tags.as_chunks_mut::<TAG_BYTES>().0;
        if self.is_wide(chunk) {
            let held = &self.wide[&chunk][self.geometry.block(at) as usize..];
            tags.iter_mut().zip(held).for_each(|(bytes, tag)| tag.store(bytes));
            return;
        }
        let (ids, seqs) = (&self.ids[start..][..tags.len()], &self.seqs[start..][..tags.len()]);
        let base = self.base[chunk];
        for ((bytes, &id), &seq) in tags.iter_mut().zip(ids).zip(seqs) {
            let id = u64::from(id.wrapping_add(1)).wrapping_sub(1);
            Tag { id, seq: base.wrapping_add_signed(i64::from(seq)) }.store(bytes);
        }
    }
}

impl Medium for RamMedium {
    #[inline]
    fn kept(&self) -> u32 {
        self.kept
    }

    #[inline]
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        match self.store_tags(at, count, tags) {
            Moved::Done if !data.is_empty() => self.store_data(at, count, data),
            stored => stored,
        }
    }

    #[inline]
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        if self.is_whole(count, data.len()) && self.load_whole(at, data) == Moved::Failed {
            return Moved::Failed;
        } else if self.kept > 0 && data.len() == count as usize * self.kept as usize {
            match &self.rows {
                Some(rows) => rows.read(at, data),
                None => {
                    let start = self.place(at) * self.kept as usize;
                    data.copy_from_slice(&self.data[start..start + data.len()]);
                }
            }
        }
        if !tags.is_empty() {
            self.load_tags(at, tags);
        }
        Moved::Done
    }

    fn reads_nothing_at_once(&self) -> bool {
        true
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        if let Some(rows) = &mut self.rows {
            rows.reset(chunk, self.geometry.chunk_blocks());
        }
        let chunk = self.geometry.chunk_index(chunk);
        if self.is_aside(chunk) {
            self.wide.remove(&chunk);
            let whole = self.whole.remove(&chunk).unwrap_or_default();
            whole.into_iter().for_each(|held| self.pages.give(held.1));
            self.aside[chunk / 64] &= !(1 << (chunk % 64));
            self.bare[chunk / 64] &= !(1 << (chunk % 64));
        }
        Moved::Done
    }

    fn barrier(&mut self) -> Moved {
        Moved::Done
    }

    #[inline]
    fn hint(&self, at: Ppa) {
        if let Some(rows) = &self.rows {
            rows.hint(at, HINTED_LINES);
        } else if self.kept > 0 {
            let start = self.place(at) * self.kept as usize;
            (0..HINTED_LINES).for_each(|line| self.data.prefetch(start + line * 64));
        }
    }

    #[inline]
    fn hint_tag(&self, at: Ppa) {
        let place = self.place(at);
        self.ids.prefetch(place);
        self.seqs.prefetch(place);
    }
}

#[cfg(test)]
mod tests;
