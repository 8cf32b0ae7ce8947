//! The blocks of a drive file: data and entries, written and checked.
//!
//! Guarantees: a block that is read is the one that was programmed in this
//! life of its chunk; otherwise there is an error and the buffers are zeroed.

use std::io;
use std::sync::Arc;

use flash::{Chunk, Geometry, Ppa, TAG_BYTES};
use port::BLOCK_BYTES;

use crate::FileIo;
use crate::entry::{ENTRY_BYTES, Entry};
use crate::file_io::is_unreadable;
use crate::header::checksum;
use crate::layout::Layout;

/// Most blocks of which the entries are moved at once: those of the longest
/// row.
const PIECE: usize = 128;

/// Why blocks cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// They are not what was programmed, or nothing was.
    Damaged,
    /// They were not stored in the length that is asked for.
    Length,
    /// The system refused.
    System(io::Error),
}

impl From<io::Error> for Unreadable {
    fn from(e: io::Error) -> Unreadable {
        Unreadable::System(e)
    }
}

/// What a block is taken for that the disk cannot read, where it is asked how many are
/// good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// One that is good, and the last of its program.
    Passed,
    /// One that is not there.
    Lost,
}

/// A block that is looked at.
enum Found {
    /// It is good, and whether it is the last of its program.
    Good { last: bool },
    /// It is not what was programmed.
    Bad,
    /// The disk cannot read it.
    Unread,
}

/// When blocks are programmed: goes into their entries.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// The life of the chunk.
    pub life: u32,
    /// The session of the file.
    pub session: u32,
}

/// The blocks of a drive file.
pub struct Blocks {
    storage: Arc<dyn FileIo>,
    geometry: Geometry,
    layout: Layout,
    kept: usize,
    entries: Box<[u8; PIECE * ENTRY_BYTES]>,
}

impl Blocks {
    pub fn new(storage: Arc<dyn FileIo>, geometry: &Geometry, kept: u32) -> Blocks {
        Blocks {
            storage,
            geometry: *geometry,
            layout: Layout::new(geometry, kept),
            kept: kept as usize,
            entries: Box::new([0; PIECE * ENTRY_BYTES]),
        }
    }

    /// The first block of a chunk.
    pub fn start(&self, chunk_index: usize) -> Ppa {
        self.geometry.chunk_start(chunk_index)
    }

    /// Bytes of data of each of `count` blocks, if the data may be so long.
    #[inline]
    fn each(&self, count: usize, data: usize) -> Option<usize> {
        let whole = BLOCK_BYTES as usize;
        [self.kept, whole].into_iter().find(|&each| data == count * each)
    }

    /// Whether `count` blocks at `at` are in one chunk of the drive.
    #[inline]
    fn is_run(&self, at: Ppa, count: u32) -> bool {
        self.geometry.contains(at)
            && count > 0
            && count <= self.geometry.chunk_blocks() - self.geometry.block(at)
    }

    /// Writes blocks: data first, so that an entry never tells of data that
    /// the system was not given.
    #[inline]
    pub fn program(
        &mut self,
        at: Ppa,
        count: u32,
        data: &[u8],
        tags: &[u8],
        when: When,
    ) -> io::Result<()> {
        let n = count as usize;
        let each = self.each(n, data.len()).filter(|_| self.is_run(at, count));
        let each = each.filter(|_| tags.is_empty() || tags.len() == n * TAG_BYTES);
        let each = each.ok_or(io::ErrorKind::InvalidInput)?;
        let whole = each > self.kept;
        if !data.is_empty() {
            let offset = if whole { self.layout.whole(at) } else { self.layout.data(at) };
            self.storage.write(offset, data)?;
        }
        for first in (0..n).step_by(PIECE) {
            let piece = PIECE.min(n - first);
            for i in first..first + piece {
                let tag = match tags.get(i * TAG_BYTES..) {
                    Some(tag) if !tags.is_empty() => *tag.first_chunk().expect("n tags"),
                    _ => [0; TAG_BYTES],
                };
                let entry = Entry {
                    tag,
                    life: when.life,
                    session: when.session,
                    whole,
                    last: i + 1 == n,
                    data_sum: checksum(&data[i * each..(i + 1) * each]),
                };
                let to = &mut self.entries[(i - first) * ENTRY_BYTES..];
                entry.encode(Ppa(at.0 + i as u64), to);
            }
            let offset = self.layout.entry(Ppa(at.0 + first as u64));
            self.storage.write(offset, &self.entries[..piece * ENTRY_BYTES])?;
        }
        Ok(())
    }

    /// Reads and checks blocks of this life of their chunk. `data` or `tags`
    /// is empty when they are not wanted.
    #[inline]
    pub fn read(
        &mut self,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
        life: u32,
    ) -> Result<(), Unreadable> {
        let read = self.try_read(at, count, data, tags, life);
        if read.is_err() {
            data.fill(0);
            tags.fill(0);
        }
        read
    }

    #[inline]
    fn try_read(
        &mut self,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
        life: u32,
    ) -> Result<(), Unreadable> {
        let n = count as usize;
        let wanted = !data.is_empty();
        let each = if wanted { self.each(n, data.len()) } else { Some(0) };
        let each = each.filter(|_| tags.is_empty() || tags.len() == n * TAG_BYTES);
        let each = each.filter(|_| self.is_run(at, count)).ok_or(Unreadable::Length)?;
        let whole = each > self.kept;
        if wanted {
            let offset = if whole { self.layout.whole(at) } else { self.layout.data(at) };
            self.storage.read(offset, data)?;
        }
        for first in (0..n).step_by(PIECE) {
            let piece = PIECE.min(n - first);
            let start = Ppa(at.0 + first as u64);
            let entries = &mut self.entries[..piece * ENTRY_BYTES];
            self.storage.read(self.layout.entry(start), entries)?;
            for (i, bytes) in (first..).zip(entries.chunks_exact(ENTRY_BYTES)) {
                let entry = Entry::decode(bytes, Ppa(at.0 + i as u64), life);
                let entry = entry.ok_or(Unreadable::Damaged)?;
                if wanted && entry.whole != whole {
                    return Err(Unreadable::Length);
                }
                if wanted && entry.data_sum != checksum(&data[i * each..(i + 1) * each]) {
                    return Err(Unreadable::Damaged);
                }
                if !tags.is_empty() {
                    tags[i * TAG_BYTES..(i + 1) * TAG_BYTES].copy_from_slice(&entry.tag);
                }
            }
        }
        Ok(())
    }

    /// How many blocks of the chunk that begins at `start`, from `from` on, are
    /// all there, up to the end of a program: programmed in this life and in
    /// session `session`, and whole. Gives the number of the block after them.
    ///
    /// A program that failed stored nothing, so of it nothing can be missing:
    /// its blocks are passed over. A descriptor that knows of the blocks behind
    /// them knows of them, too, as it is written as a whole.
    pub fn good_until(
        &mut self,
        start: Ppa,
        from: u32,
        chunk: &Chunk,
        session: u32,
        unread: Unread,
    ) -> io::Result<u32> {
        let (mut until, mut block) = (from, from);
        while block < chunk.programmed {
            if chunk.failed_of(block, 1) != 0 {
                // It began where the program before it ended.
                if until != block {
                    break;
                }
                (until, block) = (block + 1, block + 1);
                continue;
            }
            match self.look_at(start, block, When { life: chunk.wear, session })? {
                Found::Good { last: true } => until = block + 1,
                Found::Good { last: false } => {}
                Found::Unread if unread == Unread::Passed => until = block + 1,
                Found::Bad | Found::Unread => break,
            }
            block += 1;
        }
        Ok(until)
    }

    /// What becomes of a block that is read.
    fn look_at(&mut self, start: Ppa, block: u32, when: When) -> io::Result<Found> {
        match self.last_of(Ppa(start.0 + u64::from(block)), when) {
            Ok(last) => Ok(Found::Good { last }),
            Err(Unreadable::System(e)) if is_unreadable(&e) => Ok(Found::Unread),
            Err(Unreadable::System(e)) => Err(e),
            Err(Unreadable::Damaged | Unreadable::Length) => Ok(Found::Bad),
        }
    }

    /// Whether a block is the last of its program, if it is good.
    fn last_of(&mut self, at: Ppa, when: When) -> Result<bool, Unreadable> {
        let mut bytes = [0; ENTRY_BYTES];
        self.storage.read(self.layout.entry(at), &mut bytes)?;
        let entry = Entry::decode(&bytes, at, when.life);
        let entry = entry.filter(|entry| entry.session == when.session);
        let entry = entry.ok_or(Unreadable::Damaged)?;
        let mut data = [0; BLOCK_BYTES as usize];
        let each = if entry.whole { data.len() } else { self.kept };
        self.read(at, 1, &mut data[..each], &mut [], when.life)?;
        Ok(entry.last)
    }
}
