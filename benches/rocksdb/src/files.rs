//! Files on a block drive: just enough of a file system for RocksDB.
//!
//! Files are written at their end, read anywhere, renamed and removed. Space
//! is given in units of 256 KiB. Reads go straight to the drive and no data is
//! cached, but for the end of a file that is being written, which goes to the
//! drive a unit at a time, and up to eight units while the writer goes on.
//!
//! Guarantees, as far as the drive keeps its own:
//! - after [`Files::sync`] of a file, all that was appended to it is durable,
//!   and so is every name that was made, changed or removed before;
//! - after a crash each name is there or not as at the last of these, and a
//!   file is as long as when it was last synced;
//! - space of a removed file is used again only when its removal is durable
//!   and nobody has it open;
//! - a damaged directory is told, not believed.
//!
//! The directory is in memory. It is written whole, to one of two slots at the
//! start of the drive by turns, at a sync that finds it changed. Layout,
//! little-endian: 8 bytes `RDBFILES`, u32 version, u32 bytes a unit, u64
//! sequence, u32 bytes of the body, u32 CRC-32 of all other bytes; the body is
//! for each file u16 bytes of its name, the name, u64 its length, and u32 for
//! each unit it takes.
//!
//! Locks are taken in the order writer, directory, units.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use port::{BLOCK_BYTES, BlockOp, Buffer, Status};
use thiserror::Error;

use crate::disk::{Disk, Ticket};

/// Bytes of a unit of space.
pub const UNIT: u64 = 256 << 10;
/// Bytes of each of the directory's two slots.
const SLOT: u64 = 1 << 20;
/// Units before the first that files may have.
const FIRST_UNIT: u32 = (2 * SLOT / UNIT) as u32;
/// Writes of a file that may be under way.
const BEHIND: usize = 8;
const MAGIC: [u8; 8] = *b"RDBFILES";
const VERSION: u32 = 1;
/// Bytes before the directory's body.
const HEAD: usize = 32;
const BLOCK: usize = BLOCK_BYTES as usize;

/// What goes wrong with files.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FileError {
    /// No file has the name.
    #[error("there is no file {0:?}")]
    Missing(String),
    /// All units are taken.
    #[error("no space is left on the drive: take a larger one")]
    Full,
    /// More files than the directory's slot takes.
    #[error("the directory takes {0} bytes, its slot has 1 MiB: remove files")]
    Directory(usize),
    /// The drive refused or failed.
    #[error("{op:?} on the drive: {status}")]
    Drive {
        /// The request.
        op: BlockOp,
        /// What the drive said.
        status: Status,
    },
    /// The system has no memory.
    #[error("no memory for a buffer")]
    Memory,
    /// The drive is too small, or its requests are.
    #[error("files need a drive of 4 MiB or more that keeps its data and takes 256 KiB at once")]
    Shape,
    /// No slot has a whole directory.
    #[error("the drive has no whole directory: it was never made, or is damaged")]
    NoDirectory,
    /// A name that cannot be.
    #[error("a file's name has {0} bytes: at most 65535")]
    Name(usize),
}

/// Where a file's bytes are.
#[derive(Debug, Default)]
struct Place {
    units: Vec<u32>,
    /// Bytes that can be read.
    size: u64,
    /// Bytes that a crash leaves.
    durable: u64,
}

/// The end of a file that is written.
#[derive(Debug, Default)]
struct Writer {
    /// Bytes of the file, with those in the tail.
    length: u64,
    /// The unit that is being filled; empty when there is none.
    tail: Buffer256,
    used: usize,
    /// Bytes of the tail that are on the drive; whole blocks.
    written: usize,
    behind: VecDeque<Ticket>,
}

/// A buffer of a unit, or none.
type Buffer256 = Option<Buffer>;

/// A file.
#[derive(Debug, Default)]
pub struct File {
    place: RwLock<Place>,
    writer: Mutex<Writer>,
}

/// Names and space.
struct Directory {
    files: BTreeMap<String, Arc<File>>,
    /// Removed, and their space not yet free.
    doomed: Vec<Arc<File>>,
    free: Vec<u32>,
    sequence: u64,
    /// It differs from what is on the drive.
    changed: bool,
}

/// The files of a drive.
pub struct Files {
    disk: Disk,
    directory: Mutex<Directory>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl File {
    fn place(&self) -> std::sync::RwLockReadGuard<'_, Place> {
        self.place.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn place_mut(&self) -> std::sync::RwLockWriteGuard<'_, Place> {
        self.place.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that can be read.
    pub fn size(&self) -> u64 {
        self.place().size
    }

    /// Bytes that were appended.
    pub fn length(&self) -> u64 {
        lock(&self.writer).length
    }
}

impl Files {
    /// An empty directory on a drive.
    pub fn create(disk: Disk) -> Result<Files, FileError> {
        let files = Files::with(disk, BTreeMap::new(), 0)?;
        // Both slots, so that no directory of before is found.
        for _ in 0..2 {
            let mut directory = lock(&files.directory);
            directory.changed = true;
            files.commit_locked(&mut directory)?;
        }
        Ok(files)
    }

    /// The files that are on a drive, as they were last made durable.
    pub fn open(disk: Disk) -> Result<Files, FileError> {
        let mut best: Option<(u64, BTreeMap<String, Arc<File>>)> = None;
        for slot in 0..2 {
            let found =
                read_slot(&disk, slot)?.and_then(|bytes| decode(&bytes, disk.shape().bytes));
            if let Some(found) = found
                && best.as_ref().is_none_or(|best| found.0 > best.0)
            {
                best = Some(found);
            }
        }
        let (sequence, files) = best.ok_or(FileError::NoDirectory)?;
        Files::with(disk, files, sequence)
    }

    fn with(
        disk: Disk,
        files: BTreeMap<String, Arc<File>>,
        sequence: u64,
    ) -> Result<Files, FileError> {
        let shape = *disk.shape();
        let fits = shape.bytes >= 4 << 20 && shape.max_bytes >= UNIT;
        if !fits || u64::from(shape.kept) != BLOCK_BYTES {
            return Err(FileError::Shape);
        }
        let units = u32::try_from(shape.bytes / UNIT).unwrap_or(u32::MAX);
        let mut taken = vec![false; units as usize];
        for file in files.values() {
            for &unit in &file.place().units {
                taken[unit as usize] = true;
            }
        }
        // The last is given first.
        let free = (FIRST_UNIT..units).rev().filter(|&unit| !taken[unit as usize]).collect();
        let directory = Directory { files, doomed: Vec::new(), free, sequence, changed: false };
        Ok(Files { disk, directory: Mutex::new(directory) })
    }

    /// The disk below.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The disk again. What was not synced is lost.
    pub fn into_disk(self) -> Disk {
        self.disk
    }

    /// Makes an empty file; one of that name before is removed.
    pub fn make(&self, name: &str) -> Result<Arc<File>, FileError> {
        if name.len() > usize::from(u16::MAX) {
            return Err(FileError::Name(name.len()));
        }
        let file = Arc::new(File::default());
        let mut directory = lock(&self.directory);
        directory.changed = true;
        if let Some(before) = directory.files.insert(name.into(), file.clone()) {
            directory.doomed.push(before);
        }
        Ok(file)
    }

    /// The file of a name.
    pub fn find(&self, name: &str) -> Result<Arc<File>, FileError> {
        let directory = lock(&self.directory);
        directory.files.get(name).cloned().ok_or_else(|| FileError::Missing(name.into()))
    }

    /// Removes a name. The file can be read while it is open.
    pub fn remove(&self, name: &str) -> Result<(), FileError> {
        let mut directory = lock(&self.directory);
        let file = directory.files.remove(name).ok_or_else(|| FileError::Missing(name.into()))?;
        directory.changed = true;
        directory.doomed.push(file);
        Ok(())
    }

    /// Gives a file another name; one of that name before is removed.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let mut directory = lock(&self.directory);
        let file = directory.files.remove(from).ok_or_else(|| FileError::Missing(from.into()))?;
        directory.changed = true;
        if let Some(before) = directory.files.insert(to.into(), file) {
            directory.doomed.push(before);
        }
        Ok(())
    }

    /// Calls `each` with all names that begin with `prefix`, without it.
    pub fn list(&self, prefix: &str, mut each: impl FnMut(&str)) {
        let directory = lock(&self.directory);
        for name in directory.files.keys() {
            if let Some(rest) = name.strip_prefix(prefix) {
                each(rest);
            }
        }
    }

    /// Appends to a file.
    pub fn append(&self, file: &File, mut data: &[u8]) -> Result<(), FileError> {
        let mut writer = lock(&file.writer);
        while !data.is_empty() {
            if writer.tail.is_none() {
                writer.tail = Some(self.disk.buffer(UNIT as usize / BLOCK)?);
            }
            let used = writer.used;
            let tail = writer.tail.as_mut().expect("it was taken above");
            let n = data.len().min(UNIT as usize - used);
            tail.bytes_mut()[used..used + n].copy_from_slice(&data[..n]);
            writer.used += n;
            writer.length += n as u64;
            data = &data[n..];
            if writer.used == UNIT as usize {
                self.write_tail(file, &mut writer)?;
            }
        }
        Ok(())
    }

    /// Starts to write what the tail has that the drive has not.
    fn write_tail(&self, file: &File, writer: &mut Writer) -> Result<(), FileError> {
        if writer.used == writer.written {
            return Ok(());
        }
        let full = writer.used == UNIT as usize;
        let index = ((writer.length - 1) / UNIT) as usize;
        let unit = self.unit(file, index)?;
        let Some(mut tail) = writer.tail.take() else { return Ok(()) };
        let (from, to) = (writer.written, writer.used.next_multiple_of(BLOCK));
        tail.bytes_mut()[writer.used..to].fill(0);
        let buffer = if full && from == 0 {
            tail
        } else {
            let mut part = self.disk.buffer((to - from) / BLOCK)?;
            part.bytes_mut().copy_from_slice(&tail.bytes()[from..to]);
            if full {
                self.disk.give_back(tail);
            } else {
                writer.tail = Some(tail);
            }
            part
        };
        let (offset, len) = (u64::from(unit) * UNIT + from as u64, (to - from) as u64);
        writer.behind.push_back(self.disk.start(BlockOp::Write, offset, len, buffer));
        // The last block, where it is not full, is written again.
        writer.written = if full { 0 } else { writer.used / BLOCK * BLOCK };
        if full {
            writer.used = 0;
        }
        self.settle(writer, BEHIND)
    }

    /// Waits until at most `most` writes are under way.
    fn settle(&self, writer: &mut Writer, most: usize) -> Result<(), FileError> {
        while writer.behind.len() > most
            && let Some(ticket) = writer.behind.pop_front()
        {
            let buffer = self.disk.wait(ticket)?;
            self.disk.give_back(buffer);
        }
        Ok(())
    }

    /// A file's unit, taken now if it has not that many.
    fn unit(&self, file: &File, index: usize) -> Result<u32, FileError> {
        if let Some(&unit) = file.place().units.get(index) {
            return Ok(unit);
        }
        let mut directory = lock(&self.directory);
        if directory.free.is_empty() {
            self.commit_locked(&mut directory)?;
        }
        let unit = directory.free.pop().ok_or(FileError::Full)?;
        directory.changed = true;
        file.place_mut().units.push(unit);
        Ok(unit)
    }

    /// Writes all that was appended to the drive: it can be read from now on.
    pub fn write_out(&self, file: &File) -> Result<(), FileError> {
        let mut writer = lock(&file.writer);
        self.write_tail(file, &mut writer)?;
        self.settle(&mut writer, 0)?;
        let mut place = file.place_mut();
        place.size = place.size.max(writer.length);
        Ok(())
    }

    /// The same, and nothing more will be appended.
    pub fn finish(&self, file: &File) -> Result<(), FileError> {
        self.write_out(file)?;
        let tail = lock(&file.writer).tail.take();
        tail.into_iter().for_each(|tail| self.disk.give_back(tail));
        Ok(())
    }

    /// Makes all of a file durable, and all names.
    pub fn sync(&self, file: &File) -> Result<(), FileError> {
        self.write_out(file)?;
        let mut directory = lock(&self.directory);
        {
            let mut place = file.place_mut();
            directory.changed |= place.durable != place.size;
            place.durable = place.size;
        }
        self.commit_locked(&mut directory)
    }

    /// Makes all names durable.
    pub fn commit(&self) -> Result<(), FileError> {
        self.commit_locked(&mut lock(&self.directory))
    }

    fn commit_locked(&self, directory: &mut Directory) -> Result<(), FileError> {
        if directory.changed {
            let bytes = encode(directory);
            if bytes.len() as u64 > SLOT {
                return Err(FileError::Directory(bytes.len()));
            }
            let blocks = bytes.len().div_ceil(BLOCK);
            let mut buffer = self.disk.buffer(blocks)?;
            buffer.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
            let offset = (directory.sequence + 1) % 2 * SLOT;
            let len = (blocks * BLOCK) as u64;
            let buffer = self.disk.wait(self.disk.start(BlockOp::Write, offset, len, buffer))?;
            self.disk.give_back(buffer);
            directory.sequence += 1;
            directory.changed = false;
        }
        self.disk.flush()?;
        self.reclaim(directory)
    }

    /// Frees the space of files whose removal is durable and that nobody has
    /// open.
    fn reclaim(&self, directory: &mut Directory) -> Result<(), FileError> {
        let (mut trims, mut units) = (Vec::new(), Vec::new());
        directory.doomed.retain(|file| {
            let open = Arc::strong_count(file) > 1;
            if !open {
                units.append(&mut file.place_mut().units);
            }
            open
        });
        for &unit in &units {
            let offset = u64::from(unit) * UNIT;
            trims.push(self.disk.start(BlockOp::Trim, offset, UNIT, Buffer::empty()));
        }
        for trim in trims {
            self.disk.wait(trim)?;
        }
        directory.free.append(&mut units);
        Ok(())
    }

    /// Reads into `to` from `offset` on. Gives how many bytes there were.
    pub fn read(&self, file: &File, offset: u64, to: &mut [u8]) -> Result<usize, FileError> {
        let place = file.place();
        let end = place.size.min(offset.saturating_add(to.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let length = (end - offset) as usize;
        let piece = |at: u64| {
            let n = (UNIT - at % UNIT).min(end - at);
            let (skip, block) = (at % BLOCK_BYTES, at % UNIT / BLOCK_BYTES);
            let blocks = (skip + n).div_ceil(BLOCK_BYTES);
            let start = u64::from(place.units[(at / UNIT) as usize]) * UNIT + block * BLOCK_BYTES;
            let buffer = self.disk.buffer(blocks as usize)?;
            let ticket = self.disk.start(BlockOp::Read, start, blocks * BLOCK_BYTES, buffer);
            Ok::<_, FileError>((ticket, skip as usize, n as usize))
        };
        // Most reads are of one piece.
        let first = piece(offset)?;
        let mut at = offset + first.2 as u64;
        let mut rest = Vec::new();
        while at < end {
            let one = piece(at)?;
            at += one.2 as u64;
            rest.push(one);
        }
        drop(place);
        let mut filled = 0;
        for (ticket, skip, n) in std::iter::once(first).chain(rest) {
            let buffer = self.disk.wait(ticket)?;
            to[filled..filled + n].copy_from_slice(&buffer.bytes()[skip..skip + n]);
            filled += n;
            self.disk.give_back(buffer);
        }
        Ok(length)
    }
}

/// A slot's bytes, as many as its header says; `None` when that cannot be.
fn read_slot(disk: &Disk, slot: u64) -> Result<Option<Vec<u8>>, FileError> {
    let read = |offset, blocks: usize| {
        let buffer = disk.buffer(blocks)?;
        disk.wait(disk.start(BlockOp::Read, offset, (blocks * BLOCK) as u64, buffer))
    };
    if disk.shape().bytes < 2 * SLOT || u64::from(disk.shape().kept) != BLOCK_BYTES {
        return Err(FileError::Shape);
    }
    let mut bytes = read(slot * SLOT, 1)?.bytes().to_vec();
    let length = HEAD + u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes")) as usize;
    if bytes[..8] != MAGIC || length as u64 > SLOT {
        return Ok(None);
    }
    let per = (disk.shape().max_bytes / BLOCK_BYTES) as usize;
    while bytes.len() < length {
        let blocks = (length - bytes.len()).div_ceil(BLOCK).min(per);
        bytes.extend_from_slice(read(slot * SLOT + bytes.len() as u64, blocks)?.bytes());
    }
    bytes.truncate(length);
    Ok(Some(bytes))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..HEAD - 4]);
    hasher.update(&bytes[HEAD..]);
    hasher.finalize()
}

/// The directory as it goes to the drive, one sequence later.
fn encode(directory: &Directory) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    for (name, file) in &directory.files {
        let place = file.place();
        let units = place.durable.div_ceil(UNIT) as usize;
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&place.durable.to_le_bytes());
        for unit in &place.units[..units] {
            bytes.extend_from_slice(&unit.to_le_bytes());
        }
    }
    let body = (bytes.len() - HEAD) as u32;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(UNIT as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&(directory.sequence + 1).to_le_bytes());
    bytes[24..28].copy_from_slice(&body.to_le_bytes());
    let sum = checksum(&bytes);
    bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The sequence and the files of a directory on a drive of so many bytes;
/// `None` when it is not whole or not ours.
fn decode(bytes: &[u8], drive: u64) -> Option<(u64, BTreeMap<String, Arc<File>>)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let sound = bytes.len() >= HEAD && word(28)? == checksum(bytes);
    if !sound || word(8)? != VERSION || u64::from(word(12)?) != UNIT {
        return None;
    }
    let sequence = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
    let (mut rest, mut files) = (&bytes[HEAD..], BTreeMap::new());
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (name, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        let (size, after) = after.split_first_chunk::<8>()?;
        let size = u64::from_le_bytes(*size);
        let count = usize::try_from(size.div_ceil(UNIT)).ok()?;
        let (units, after) = after.split_at_checked(count.checked_mul(4)?)?;
        let units: Vec<u32> = units
            .chunks(4)
            .map(|unit| u32::from_le_bytes(unit.try_into().expect("four bytes")))
            .collect();
        let fits = |&unit: &u32| unit >= FIRST_UNIT && (u64::from(unit) + 1) * UNIT <= drive;
        if !units.iter().all(fits) {
            return None;
        }
        let file = File {
            place: RwLock::new(Place { units, size, durable: size }),
            writer: Mutex::new(Writer { length: size, ..Writer::default() }),
        };
        files.insert(String::from_utf8(name.to_vec()).ok()?, Arc::new(file));
        rest = after;
    }
    Some((sequence, files))
}
