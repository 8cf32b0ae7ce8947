//! The page: 4096 bytes of records, separators, or a long value.
//!
//! ```text
//!  byte  0      8        16     17      18      20     22      24      32
//!        │ seal │ number │ kind │ level │ count │ heap │ freed │ first │ slots … free … cells │
//! ```
//!
//! Numbers are little-endian. The *seal* belongs to the page store: a checksum
//! of the rest and the page's number ([`crate::store::seal`]). Slots grow up,
//! cells grow down to `heap`; `freed` counts bytes of cells that were removed.
//! `count` has nine bits, and above them `skip`: so many bytes with which all keys
//! of the page begin, and maybe more. A slot is `head` (the key's next four bytes as a
//! big-endian number, zeros behind a shorter key), the cell's offset, and the key's
//! length: 4 + 2 + 2 bytes. Slots are in the order of their keys, so that mostly
//! heads are compared and no cell is looked at. Up to version 1 `skip` was zero.
//!
//! | kind | cell | `first` |
//! |---|---|---|
//! | leaf | length of the value (u32), key, value; with bit 31 of the length set, instead of the value the numbers (u64) of the overflow pages that hold it | 0 |
//! | inner | child (u64), key: the child has keys from this one on | child with keys before the first slot's |
//!
//! A page that came from a drive is looked over by [`View::check`] once; all
//! else here relies on that, or on having made the page itself.

use std::cmp::Ordering;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes before the first slot.
pub(crate) const HEADER: usize = 32;

/// Bytes for slots and cells.
pub(crate) const ROOM: usize = PAGE_BYTES - HEADER;

/// Bytes of a slot.
pub(crate) const SLOT: usize = 8;

/// Longest key, in bytes.
pub const MAX_KEY: usize = 512;

/// Longest value, in bytes: 16 overflow pages.
pub const MAX_VALUE: usize = 16 * OVERFLOW_BYTES;

/// Bytes of a value that one overflow page holds.
pub const OVERFLOW_BYTES: usize = ROOM;

/// Most overflow pages of one value.
pub(crate) const MAX_OVERFLOW: usize = MAX_VALUE / OVERFLOW_BYTES;

/// A leaf's cell and slot take at most this; a longer value goes to overflow
/// pages. Two such cells fill a page, so that one split always makes room.
pub(crate) const MAX_INLINE: usize = ROOM / 2;

/// Bits of `count`: there are fewer slots than that.
const COUNT_BITS: usize = 9;
pub(crate) const MAX_SLOTS: usize = 1 << COUNT_BITS;

/// The most that `skip` can be.
const MAX_SKIP: usize = (1 << (16 - COUNT_BITS)) - 1;

/// Bit of a value's length that says that it is in overflow pages.
const OVERFLOW: u32 = 1 << 31;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Meta = 1,
    Leaf = 2,
    Inner = 3,
    Overflow = 4,
    Trunk = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Meta, Kind::Leaf, Kind::Inner, Kind::Overflow, Kind::Trunk]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }
}

/// The bytes of a page.
pub(crate) type Bytes = [u8; PAGE_BYTES];

/// A value as a leaf keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// In the leaf.
    Inline(&'a [u8]),
    /// In overflow pages: its length, and the pages' numbers, 8 bytes each.
    Overflow(u32, &'a [u8]),
}

impl<'a> Value<'a> {
    /// Bytes that the leaf keeps.
    fn stored(&self) -> &'a [u8] {
        match self {
            Value::Inline(bytes) | Value::Overflow(_, bytes) => bytes,
        }
    }

    /// Bytes of the cell and its slot with a key of `key` bytes.
    pub(crate) fn cost(&self, key: usize) -> usize {
        SLOT + 4 + key + self.stored().len()
    }

    /// What a value in so many overflow pages costs.
    pub(crate) fn long_cost(key: usize, pages: usize) -> usize {
        SLOT + 4 + key + 8 * pages
    }

    /// The overflow pages.
    pub(crate) fn pages(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let list = match self {
            Value::Inline(_) => &[],
            Value::Overflow(_, list) => *list,
        };
        list.chunks_exact(8).map(|page| u64::from_le_bytes(page.try_into().expect("8 bytes")))
    }
}

/// Whether a value of `value` bytes stays in the leaf.
pub(crate) fn is_inline(key: usize, value: usize) -> bool {
    SLOT + 4 + key + value <= MAX_INLINE
}

/// How many overflow pages a value of `bytes` takes.
pub(crate) fn overflow_pages(bytes: usize) -> usize {
    bytes.div_ceil(OVERFLOW_BYTES)
}

/// How many bytes two keys have in common at their beginning.
fn same(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A key's four bytes behind `skip`, to be compared first.
#[inline]
fn head(key: &[u8], skip: usize) -> u32 {
    let key = key.get(skip..).unwrap_or_default();
    match key.first_chunk::<4>() {
        Some(four) => u32::from_be_bytes(*four),
        None => {
            let mut four = [0; 4];
            four[..key.len()].copy_from_slice(key);
            u32::from_be_bytes(four)
        }
    }
}

/// A page to be read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(pub(crate) &'a Bytes);

impl<'a> View<'a> {
    #[inline]
    fn u16(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }

    #[inline]
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("4 bytes"))
    }

    #[inline]
    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }

    /// The page's own number.
    pub(crate) fn number(&self) -> u64 {
        self.u64(8)
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of(self.0[16])
    }

    /// Whether it is a leaf, or an inner page, at this level.
    #[inline]
    pub(crate) fn is_at(&self, level: usize) -> bool {
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        usize::from(self.level()) == level && self.0[16] == kind as u8
    }

    /// 0 for a leaf, and one more for each level above.
    #[inline]
    pub(crate) fn level(&self) -> u8 {
        self.0[17]
    }

    /// How many slots.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.u16(18) & ((1 << COUNT_BITS) - 1)
    }

    /// Bytes with which all keys begin; there are some then.
    #[inline]
    fn skip(&self) -> usize {
        self.u16(18) >> COUNT_BITS
    }

    fn heap(&self) -> usize {
        self.u16(20)
    }

    fn freed(&self) -> usize {
        self.u16(22)
    }

    /// The first child of an inner page, the next of a trunk.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        self.u64(24)
    }

    /// Bytes of slots and cells.
    pub(crate) fn used(&self) -> usize {
        ROOM - self.room()
    }

    /// Bytes that another cell and its slot may take.
    pub(crate) fn room(&self) -> usize {
        self.heap() - HEADER - self.count() * SLOT + self.freed()
    }

    #[inline]
    fn slot(&self, i: usize) -> (u32, usize, usize) {
        let at = HEADER + i * SLOT;
        (self.u32(at), self.u16(at + 4), self.u16(at + 6))
    }

    fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Bytes of a cell before its key.
    fn lead(&self) -> usize {
        if self.is_leaf() { 4 } else { 8 }
    }

    /// The key of slot `i`.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &'a [u8] {
        let (_, at, len) = self.slot(i);
        &self.0[at + self.lead()..][..len]
    }

    /// The value of slot `i` of a leaf.
    #[inline]
    pub(crate) fn value(&self, i: usize) -> Value<'a> {
        let (_, at, key) = self.slot(i);
        let len = self.u32(at);
        let from = at + 4 + key;
        if len & OVERFLOW == 0 {
            Value::Inline(&self.0[from..from + len as usize])
        } else {
            let len = len & !OVERFLOW;
            Value::Overflow(len, &self.0[from..from + 8 * overflow_pages(len as usize)])
        }
    }

    /// Child `i` of an inner page, which has one more than slots.
    #[inline]
    pub(crate) fn child(&self, i: usize) -> u64 {
        if i == 0 { self.first() } else { self.u64(self.slot(i - 1).1) }
    }

    /// Bytes of cell `i`, without its slot.
    fn cell_len(&self, i: usize) -> usize {
        let (_, at, key) = self.slot(i);
        if !self.is_leaf() {
            return 8 + key;
        }
        let len = self.u32(at);
        let stored = if len & OVERFLOW == 0 {
            len as usize
        } else {
            8 * overflow_pages((len & !OVERFLOW) as usize)
        };
        4 + key + stored
    }

    fn cell(&self, i: usize) -> &'a [u8] {
        let at = self.slot(i).1;
        &self.0[at..at + self.cell_len(i)]
    }

    /// Where `key` is, or where it would be. Heads are compared first, and keys only where
    /// those are equal.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let key_head = head(key, self.skip());
        let slots = &self.0[HEADER..][..self.count() * SLOT];
        let slots = slots.as_chunks::<SLOT>().0;
        let head_of = |slot: &[u8; SLOT]| u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
        let low = slots.partition_point(|slot| head_of(slot) < key_head);
        let is_same = |i: usize| slots.get(i).is_some_and(|slot| head_of(slot) == key_head);
        let high = match is_same(low) {
            false => low,
            true if !is_same(low + 1) => low + 1,
            true => low + slots[low..].partition_point(|slot| head_of(slot) == key_head),
        };
        match self.search_keys(low, high, key) {
            Err(low) if self.skip() > 0 => Err(self.place(low, key)),
            found => found,
        }
    }

    /// The same among slots whose keys have the same head.
    #[inline]
    fn search_keys(&self, mut low: usize, mut high: usize, key: &[u8]) -> Result<usize, usize> {
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Where `key` would be: at `low`, if it begins as all keys of the page do.
    #[inline]
    fn place(&self, low: usize, key: &[u8]) -> usize {
        let (count, skip) = (self.count(), self.skip());
        let begin = &self.key(low.min(count - 1))[..skip];
        match key[..skip.min(key.len())].cmp(begin) {
            Ordering::Less => 0,
            Ordering::Equal => low,
            Ordering::Greater => count,
        }
    }

    /// Which child of an inner page has `key`.
    #[inline]
    pub(crate) fn branch(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(i) => i + 1,
            Err(i) => i,
        }
    }

    /// Looks over a page that was read: whether it is the page `number`, and
    /// whether all that it points at lies inside. Says what is wrong.
    pub(crate) fn check(&self, number: u64) -> Result<(), &'static str> {
        if self.number() != number {
            return Err("it has another number");
        }
        let kind = self.kind().ok_or("its kind is unknown")?;
        match kind {
            Kind::Leaf if self.level() != 0 => return Err("a leaf above level 0"),
            Kind::Inner if self.level() == 0 => return Err("an inner page at level 0"),
            Kind::Leaf | Kind::Inner => {}
            _ => return Ok(()),
        }
        let (count, heap) = (self.count(), self.heap());
        if heap > PAGE_BYTES || HEADER + count * SLOT > heap || self.freed() > PAGE_BYTES - heap {
            return Err("its slots and cells overlap");
        }
        let mut cells = 0;
        for i in 0..count {
            cells += self.check_cell(i).ok_or("a cell lies outside")?;
        }
        if self.skip() > 0 && (count == 0 || (0..count).any(|i| self.slot(i).2 < self.skip())) {
            return Err("its keys are shorter than what they have in common");
        }
        if cells + self.freed() != PAGE_BYTES - heap {
            return Err("its cells do not add up");
        }
        Ok(())
    }

    /// The length of cell `i`, if it lies inside.
    fn check_cell(&self, i: usize) -> Option<usize> {
        let (_, at, key) = self.slot(i);
        let fits = |len: usize| at >= self.heap() && at + len <= PAGE_BYTES;
        if key > MAX_KEY || !fits(self.lead() + key) {
            return None;
        }
        if self.is_leaf() && (self.u32(at) & !OVERFLOW) as usize > MAX_VALUE {
            return None;
        }
        let len = self.cell_len(i);
        fits(len).then_some(len)
    }
}

/// A page to be changed.
pub(crate) struct Edit<'a>(pub(crate) &'a mut Bytes);

impl Edit<'_> {
    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View(self.0)
    }

    fn put_u16(&mut self, at: usize, value: usize) {
        self.0[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Makes it an empty page.
    pub(crate) fn init(&mut self, number: u64, kind: Kind, level: u8) {
        self.0[..HEADER].fill(0);
        self.put_u64(8, number);
        (self.0[16], self.0[17]) = (kind as u8, level);
        self.put_u16(20, PAGE_BYTES);
    }

    pub(crate) fn set_count(&mut self, count: usize) {
        let skip = if count == 0 { 0 } else { self.view().skip() };
        self.put_u16(18, count | skip << COUNT_BITS);
    }

    /// Has all heads begin behind what all keys have in common, of which there are
    /// `skip` bytes or more.
    fn set_skip(&mut self, skip: usize) {
        let count = self.view().count();
        self.put_u16(18, count | skip << COUNT_BITS);
        for i in 0..count {
            let key_head = head(self.view().key(i), skip);
            let slot = HEADER + i * SLOT;
            self.0[slot..slot + 4].copy_from_slice(&key_head.to_le_bytes());
        }
    }

    /// The same, with as many as there are.
    fn skip_all(&mut self) {
        let view = self.view();
        if let Some(last) = view.count().checked_sub(1) {
            let skip = same(view.key(0), view.key(last)).min(MAX_SKIP);
            self.set_skip(skip);
        }
    }

    pub(crate) fn set_first(&mut self, first: u64) {
        self.put_u64(24, first);
    }

    fn put_slot(&mut self, i: usize, key_head: u32, at: usize, key: usize) {
        let slot = HEADER + i * SLOT;
        self.0[slot..slot + 4].copy_from_slice(&key_head.to_le_bytes());
        self.put_u16(slot + 4, at);
        self.put_u16(slot + 6, key);
    }

    /// Opens slot `i` for a cell of `len` bytes. The caller looked at the room.
    fn open(&mut self, i: usize, key: &[u8], len: usize) -> &mut [u8] {
        let skip = self.view().skip();
        if self.view().count() == 0 {
            // What a key that is alone begins with, all do.
            self.put_u16(18, key.len().min(MAX_SKIP) << COUNT_BITS);
        } else if skip > 0 {
            let common = same(self.view().key(0), key);
            if common < skip {
                self.set_skip(common);
            }
        }
        let view = self.view();
        let count = view.count();
        if view.heap() - HEADER - count * SLOT < len + SLOT {
            self.compact();
        }
        let at = self.view().heap() - len;
        let slot = HEADER + i * SLOT;
        self.0.copy_within(slot..HEADER + count * SLOT, slot + SLOT);
        let skip = self.view().skip();
        self.put_slot(i, head(key, skip), at, key.len());
        self.set_count(count + 1);
        self.put_u16(20, at);
        &mut self.0[at..at + len]
    }

    /// Puts a record into a leaf, at slot `i`.
    pub(crate) fn insert(&mut self, i: usize, key: &[u8], value: Value<'_>) {
        let stored = value.stored();
        let len = match value {
            Value::Inline(bytes) => bytes.len() as u32,
            Value::Overflow(len, _) => len | OVERFLOW,
        };
        let cell = self.open(i, key, 4 + key.len() + stored.len());
        cell[..4].copy_from_slice(&len.to_le_bytes());
        cell[4..4 + key.len()].copy_from_slice(key);
        cell[4 + key.len()..].copy_from_slice(stored);
    }

    /// Puts a separator and the child behind it into an inner page.
    pub(crate) fn insert_child(&mut self, i: usize, key: &[u8], child: u64) {
        let cell = self.open(i, key, 8 + key.len());
        cell[..8].copy_from_slice(&child.to_le_bytes());
        cell[8..].copy_from_slice(key);
    }

    /// Writes a value over one of the same length. False when it has another.
    pub(crate) fn overwrite(&mut self, i: usize, value: &[u8]) -> bool {
        let (_, at, key) = self.view().slot(i);
        if self.view().u32(at) as usize != value.len() {
            return false;
        }
        self.0[at + 4 + key..][..value.len()].copy_from_slice(value);
        true
    }

    /// Takes slot `i` and its cell out.
    pub(crate) fn remove(&mut self, i: usize) {
        let view = self.view();
        let (count, at, len) = (view.count(), view.slot(i).1, view.cell_len(i));
        let (heap, freed) = (view.heap(), view.freed());
        let slot = HEADER + i * SLOT;
        self.0.copy_within(slot + SLOT..HEADER + count * SLOT, slot);
        self.set_count(count - 1);
        if at == heap {
            self.put_u16(20, heap + len);
        } else {
            self.put_u16(22, freed + len);
        }
    }

    /// Takes child `i` out of an inner page that has others.
    pub(crate) fn remove_child(&mut self, i: usize) {
        if i == 0 {
            let second = self.view().child(1);
            self.set_first(second);
        }
        self.remove(i.saturating_sub(1));
    }

    /// Puts the cells side by side again.
    fn compact(&mut self) {
        let old = *self.0;
        let old = View(&old);
        let mut heap = PAGE_BYTES;
        for i in 0..old.count() {
            let cell = old.cell(i);
            heap -= cell.len();
            self.0[heap..heap + cell.len()].copy_from_slice(cell);
            self.put_u16(HEADER + i * SLOT + 4, heap);
        }
        self.put_u16(20, heap);
        self.put_u16(22, 0);
    }

    /// Puts cell `i` of `from`, a page of the same kind, behind the last.
    fn append(&mut self, from: View<'_>, i: usize) {
        let cell = from.cell(i);
        let at = self.view().count();
        self.open(at, from.key(i), cell.len()).copy_from_slice(cell);
    }

    /// Puts all cells of `from` behind the last.
    pub(crate) fn append_all(&mut self, from: View<'_>) {
        for i in 0..from.count() {
            self.append(from, i);
        }
        self.skip_all();
    }
}

mod split;
#[cfg(test)]
mod tests;

pub(crate) use split::{separator, split_inner, split_leaf};
