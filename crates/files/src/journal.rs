//! The journal: a ring of transactions, each whole or not there. `docs/formats.md` draws it.
//!
//! Guarantees: a transaction whose commit has returned is found after a cut; one without its
//! commit record is not. Space of the ring is used again when what was there is durable in
//! place, and the header says so.
//!
//! A commit is begun, and goes on step by step: each writes something and begins a flush, and
//! the next may be taken when that is over. Meanwhile nothing else is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::disk::{BLOCK, Disk, DiskError, Page};
use crate::error::FilesError;
use crate::layout::{JOURNAL_HEADER, Layout, RING, SECTOR, half, put, word};
use crate::mutation::{self, Mutation};
use crate::options;

const HEADER: u32 = 0x4448_4a53;
const LIST: u32 = 0x534c_4a53;
const COMMIT: u32 = 0x4d43_4a53;

/// Where the numbers of blocks begin in a list.
const LIST_BYTES: usize = 24;
/// Blocks that one list names.
const PER_LIST: usize = (BLOCK - LIST_BYTES) / 4;
/// Blocks that are written at once.
const AT_ONCE: usize = 64;

/// The journal of mounted files.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    ring: u32,
    /// Where the next transaction begins in the ring, and its number.
    head: u32,
    sequence: u64,
    /// Blocks of the ring that are taken.
    used: u32,
    /// What transactions have and the disk does not have in place.
    committed: BTreeMap<u32, Page>,
    writing: Option<Writing>,
}

/// A transaction on its way to the disk.
#[derive(Clone, Debug)]
struct Writing {
    images: BTreeMap<u32, Page>,
    /// Nothing else has to be there before its commit record.
    is_alone: bool,
    /// What was done last, and is durable when the flush is over that was begun with it.
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Nothing: the ring has no room for it.
    Full,
    /// What older ones have was written in place.
    InPlace,
    /// The header says that the ring is free.
    Freed,
    /// Nothing: the ring has room for it.
    Room,
    /// It was written, up to there in the ring and with that checksum.
    Written { at: u32, sum: u64 },
    /// Its commit record was written there.
    Recorded { at: u32 },
}

/// What a step of a commit has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The next is to be taken when the flush is over.
    OneStep,
    /// The same, and what older transactions have is durable in place.
    Checkpoint,
    /// The transaction is durable.
    Commit,
}

/// The number of a file system's first transaction. The ring may hold transactions of the one
/// before, whole ones: they must not be the next.
fn first_sequence(id: u64) -> u64 {
    // Far from the end of the numbers.
    xxh3_64(&id.to_le_bytes()) >> 1 | 1
}

/// Blocks of the ring that a transaction takes.
fn space(images: usize) -> usize {
    images + images.div_ceil(PER_LIST) + 1
}

fn head_block(magic: u32, count: u32, sequence: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    put(&mut bytes, 8, magic.to_le_bytes());
    put(&mut bytes, 12, count.to_le_bytes());
    put(&mut bytes, 16, sequence.to_le_bytes());
    bytes
}

/// Sets the checksum of as many bytes.
fn seal(bytes: &mut [u8], len: usize) {
    let sum = xxh3_64(&bytes[8..len]);
    put(bytes, 0, sum.to_le_bytes());
}

fn is_sealed(bytes: &[u8], len: usize, magic: u32) -> bool {
    half(bytes, 8) == magic && word(bytes, 0) == xxh3_64(&bytes[8..len])
}

/// Writes pages that lie one behind the other in pieces.
struct Writer<'a, D> {
    disk: &'a mut D,
    ring: u32,
    at: u32,
    bytes: Vec<u8>,
    sum: Xxh3,
}

impl<D: Disk> Writer<'_, D> {
    fn push(&mut self, block: &[u8; BLOCK]) -> Result<(), DiskError> {
        self.sum.update(block);
        self.bytes.extend_from_slice(block);
        let blocks = self.bytes.len() / BLOCK;
        if blocks == AT_ONCE || self.at as usize + blocks == self.ring as usize {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        if !self.bytes.is_empty() {
            self.disk.write(u64::from(RING + self.at), &self.bytes)?;
            self.at = (self.at + (self.bytes.len() / BLOCK) as u32) % self.ring;
            self.bytes.clear();
        }
        Ok(())
    }
}

impl Journal {
    /// Makes the journal of a new file system.
    pub(crate) fn format<D: Disk>(layout: &Layout, disk: &mut D) -> Result<Journal, DiskError> {
        let journal = Journal {
            ring: layout.ring,
            head: 0,
            sequence: first_sequence(layout.options.id),
            used: 0,
            committed: BTreeMap::new(),
            writing: None,
        };
        journal.write_header(disk)?;
        Ok(journal)
    }

    /// The most blocks that a transaction may have.
    pub(crate) fn most(&self) -> usize {
        self.ring as usize * 3 / 4
    }

    /// The next transaction that counts begins at the head.
    fn write_header<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        let mut bytes = head_block(HEADER, self.head, self.sequence);
        seal(&mut bytes, SECTOR);
        disk.write(u64::from(JOURNAL_HEADER), &bytes)
    }

    /// Begins a transaction of these images, which makes durable all that was written before it,
    /// too. Where it `is_alone` nothing else has to be there before it counts. None may be under
    /// way. Nothing is written yet.
    pub(crate) fn begin(&mut self, images: impl Iterator<Item = (u32, Page)>, is_alone: bool) {
        assert!(self.writing.is_none(), "one transaction at a time");
        let images = images.collect::<BTreeMap<u32, Page>>();
        let step = if self.has_room(images.len()) { Step::Room } else { Step::Full };
        self.writing = Some(Writing { images, is_alone, step });
    }

    /// Whether a transaction is under way.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Takes the next step of the transaction that is under way; the flush of the one before is
    /// over. After an error there is no next.
    pub(crate) fn step<D: Disk>(&mut self, disk: &mut D) -> Result<Passed, DiskError> {
        let writing = self.writing.take().expect("a transaction is under way");
        let Writing { images, is_alone, step } = writing;
        let next = match step {
            Step::Full => self.begin_in_place(disk).map(|()| Step::InPlace),
            Step::InPlace => self.begin_header(disk).map(|()| Step::Freed),
            Step::Freed => {
                self.freed();
                Ok(Step::Room)
            }
            Step::Room => self.begin_images(disk, &images, is_alone),
            Step::Written { at, sum } => self.begin_record(disk, (at, sum), images.len()),
            Step::Recorded { at } => {
                self.used += space(images.len()) as u32;
                self.head = (at + 1) % self.ring;
                self.sequence += 1;
                self.take(images.into_iter());
                return Ok(Passed::Commit);
            }
        };
        // Where it failed, who reads finds it here still.
        let step = *next.as_ref().unwrap_or(&step);
        self.writing = Some(Writing { images, is_alone, step });
        next.map(|step| match step {
            Step::Room => Passed::Checkpoint,
            _ => Passed::OneStep,
        })
    }

    /// Writes the images into the ring. Whether they are there its checksum says, so that a flush
    /// is only for what else has to be.
    fn begin_images<D: Disk>(
        &self,
        disk: &mut D,
        images: &BTreeMap<u32, Page>,
        is_alone: bool,
    ) -> Result<Step, DiskError> {
        debug_assert!(space(images.len()) + self.used as usize <= self.ring as usize);
        if mutation::is(Mutation::CheckpointBeforeCommit) {
            write_in_place(disk, images.iter().map(|(at, page)| (*at, page)))?;
        }
        let bytes = Vec::with_capacity(AT_ONCE.min(images.len() + 1) * BLOCK);
        let (ring, at) = (self.ring, self.head);
        let mut writer = Writer { disk: &mut *disk, ring, at, bytes, sum: Xxh3::new() };
        let (mut left, mut rest) = (images.len(), images.iter());
        while left > 0 {
            let part = left.min(PER_LIST);
            let mut list = head_block(LIST, part as u32, self.sequence);
            for (n, (at, _)) in rest.clone().take(part).enumerate() {
                put(&mut list, LIST_BYTES + 4 * n, at.to_le_bytes());
            }
            seal(&mut list, BLOCK);
            writer.push(&list)?;
            rest.by_ref().take(part).try_for_each(|(_, page)| writer.push(page))?;
            left -= part;
        }
        writer.flush()?;
        let (at, sum) = (writer.at, writer.sum.digest());
        if !is_alone && !mutation::is(Mutation::NoFlushBeforeCommit) {
            disk.begin_flush()?;
        }
        Ok(Step::Written { at, sum })
    }

    /// Writes the commit record behind the images.
    fn begin_record<D: Disk>(
        &self,
        disk: &mut D,
        (at, sum): (u32, u64),
        images: usize,
    ) -> Result<Step, DiskError> {
        let mut commit = head_block(COMMIT, images as u32, self.sequence);
        put(&mut commit, 24, sum.to_le_bytes());
        seal(&mut commit, SECTOR);
        disk.write(u64::from(RING + at), &commit)?;
        if !mutation::is(Mutation::NoFlushAfterCommit) {
            disk.begin_flush()?;
        }
        Ok(Step::Recorded { at })
    }

    /// What transactions have of these blocks and the disk does not have in place: of each that
    /// has any, the newest image.
    pub(crate) fn images(&self, blocks: Range<u32>) -> impl Iterator<Item = (u32, &Page)> {
        let writing = self.writing.as_ref().map(|it| &it.images);
        let is_newest = move |at: &u32| !writing.is_some_and(|images| images.contains_key(at));
        let old = self.committed.range(blocks.clone()).filter(move |it| is_newest(it.0));
        let new = writing.into_iter().flat_map(move |images| images.range(blocks.clone()));
        old.chain(new).map(|(at, page)| (*at, page))
    }

    /// These blocks need not be written in place: it is durable that they are nobody's.
    pub(crate) fn forget(&mut self, blocks: Range<u32>) {
        while let Some((&at, _)) = self.committed.range(blocks.clone()).next() {
            self.committed.remove(&at);
        }
    }

    /// Takes over the images of a transaction that counts, which is newer than all others.
    fn take(&mut self, images: impl Iterator<Item = (u32, Page)>) {
        for (at, page) in images {
            if mutation::is(Mutation::OldImageWins) {
                self.committed.entry(at).or_insert(page);
            } else {
                self.committed.insert(at, page);
            }
        }
    }

    /// Whether a transaction of so many blocks fits before the next checkpoint.
    pub(crate) fn has_room(&self, images: usize) -> bool {
        self.used as usize + space(images) <= self.ring as usize
    }

    /// Writes all in place that transactions have, and frees the ring. None may be under way.
    pub(crate) fn checkpoint<D: Disk>(&mut self, disk: &mut D) -> Result<(), DiskError> {
        if self.used == 0 {
            return Ok(());
        }
        self.begin_in_place(disk)?;
        disk.flushed(true)?;
        self.begin_header(disk)?;
        disk.flushed(true)?;
        self.freed();
        Ok(())
    }

    fn begin_in_place<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        write_in_place(disk, self.committed.iter().map(|(at, page)| (*at, page)))?;
        begin_flush_unless_broken(disk)
    }

    fn begin_header<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        self.write_header(disk)?;
        begin_flush_unless_broken(disk)
    }

    /// What transactions have is in place.
    fn freed(&mut self) {
        self.used = 0;
        self.committed.clear();
    }

    /// Reads the journal and writes in place what it has.
    pub(crate) fn replay<D: Disk>(layout: &Layout, disk: &mut D) -> Result<Journal, FilesError> {
        let mut bytes = [0; BLOCK];
        disk.read(u64::from(JOURNAL_HEADER), &mut bytes)?;
        if !is_sealed(&bytes, SECTOR, HEADER) || half(&bytes, 12) >= layout.ring {
            let what = "the header of the journal is damaged";
            return Err(FilesError::Damaged { block: u64::from(JOURNAL_HEADER), what });
        }
        let (head, sequence) = (half(&bytes, 12), word(&bytes, 16));
        let (ring, committed) = (layout.ring, BTreeMap::new());
        let mut journal = Journal { ring, head, sequence, used: 0, committed, writing: None };
        while let Some((images, blocks)) = journal.read_transaction(disk)? {
            let fixed = u64::from(layout.table());
            if let Some(&(at, _)) =
                images.iter().find(|&&(at, _)| u64::from(at) < fixed || at >= layout.blocks)
            {
                let what = "a transaction of the journal has a block that is none of files";
                return Err(FilesError::Damaged { block: u64::from(at), what });
            }
            journal.take(images.into_iter());
            journal.head = (journal.head + blocks) % journal.ring;
            journal.sequence = journal.sequence.saturating_add(1);
            journal.used += blocks;
        }
        if layout.options.journal == options::Journal::Data {
            journal.skip(disk)?;
        }
        journal.checkpoint(disk)?;
        Ok(journal)
    }

    /// The next transaction gets another number than one that may lie at the head and does not
    /// count. No flush was between its images and its record: what the next writes over a part of
    /// it might make it whole again, of blocks that both have.
    fn skip<D: Disk>(&mut self, disk: &mut D) -> Result<(), DiskError> {
        self.sequence = self.sequence.saturating_add(1);
        if self.used > 0 {
            // The checkpoint that follows says so.
            return Ok(());
        }
        self.begin_header(disk)?;
        disk.flushed(true).map(drop)
    }

    fn read<D: Disk>(&self, disk: &mut D, n: usize) -> Result<[u8; BLOCK], DiskError> {
        let mut bytes = [0; BLOCK];
        let at = (self.head as usize + n) % self.ring as usize;
        disk.read(u64::from(RING) + at as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// The transaction at the head, if there is a whole one, and the blocks that it takes.
    #[allow(clippy::type_complexity)]
    fn read_transaction<D: Disk>(
        &self,
        disk: &mut D,
    ) -> Result<Option<(Vec<(u32, Page)>, u32)>, DiskError> {
        let (mut images, mut at, mut sum) = (Vec::new(), 0, Xxh3::new());
        let left = (self.ring - self.used.min(self.ring)) as usize;
        while at < left {
            let block = self.read(disk, at)?;
            let (count, is_next) = (half(&block, 12) as usize, word(&block, 16) == self.sequence);
            if is_next && is_sealed(&block, SECTOR, COMMIT) {
                let is_right = word(&block, 24) == sum.digest();
                let is_right = is_right || mutation::is(Mutation::BelieveRecord);
                let is_whole = count == images.len() && is_right;
                return Ok(is_whole.then_some((images, at as u32 + 1)));
            }
            if !is_next || !is_sealed(&block, BLOCK, LIST) || count > PER_LIST || at + count >= left
            {
                break;
            }
            sum.update(&block);
            for n in 0..count {
                let image = self.read(disk, at + 1 + n)?;
                sum.update(&image);
                images.push((half(&block, LIST_BYTES + 4 * n), Arc::new(image)));
            }
            at += 1 + count;
        }
        let is_taken = mutation::is(Mutation::ReplayHalf) && !images.is_empty();
        Ok(is_taken.then_some((images, at as u32)))
    }
}

fn begin_flush_unless_broken<D: Disk>(disk: &mut D) -> Result<(), DiskError> {
    if mutation::is(Mutation::ReuseJournalEarly) { Ok(()) } else { disk.begin_flush() }
}

/// Writes blocks, in a row those that are.
pub(crate) fn write_in_place<'a, D: Disk>(
    disk: &mut D,
    blocks: impl Iterator<Item = (u32, &'a Page)>,
) -> Result<(), DiskError> {
    let (mut start, mut bytes) = (0, Vec::new());
    for (at, page) in blocks {
        let next = u64::from(start) + (bytes.len() / BLOCK) as u64;
        if !bytes.is_empty() && (u64::from(at) != next || bytes.len() == AT_ONCE * BLOCK) {
            disk.write(u64::from(start), &bytes)?;
            bytes.clear();
        }
        if bytes.is_empty() {
            start = at;
        }
        bytes.extend_from_slice(&page[..]);
    }
    if bytes.is_empty() { Ok(()) } else { disk.write(u64::from(start), &bytes) }
}
