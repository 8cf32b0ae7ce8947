//! Copies of drives: file to file, and from and to other media.
//!
//! Guarantees: a copy has every block, tag and chunk of its source and is
//! durable when the call returns. Until then there is nothing of its name, and
//! what lies beside it cannot be opened ([`Unfinished`]); a copy that could not
//! be finished is removed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use flash::{Chunk, ChunkState, Geometry, Medium, Moved, Ppa, TAG_BYTES};
use port::BLOCK_BYTES;
use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;

use crate::header::UNFINISHED;
use crate::open::read_header;
use crate::unfinished::{Beside, TOO_LONG};
use crate::{FileError, Header, Opened, SystemFile, Unfinished};

/// Bytes that are copied at once from file to file.
const AT_ONCE: usize = 1 << 20;

/// Copies a drive file that nobody has open for writing to `to`, which must not
/// exist. Shares the data where the file system can (reflink), else copies what
/// was written and leaves the rest sparse.
pub fn clone(from: &Path, to: &Path) -> Result<(), FileError> {
    let source = SystemFile::open(from, true)?;
    read_header(&source)?;
    let (place, copy) = Beside::claim(to, false)?;
    let copy = Arc::new(copy);
    let unfinished = Unfinished::of(place, copy.clone());
    share_or_copy(source.file(), copy.file())?;
    unfinished.finish()
}

fn share_or_copy(from: &File, to: &File) -> Result<(), FileError> {
    let shared = share(from, to, |from, to| Ok(ioctl_ficlone(to, from)?));
    if shared.is_err() {
        // Any refusal: the copy then says what is really wrong.
        let copied = to.set_len(0).and_then(|()| copy_extents(from, to));
        copied.map_err(|e| FileError::system("copying it", &e))?;
    }
    to.sync_all().map_err(|e| FileError::system("syncing the copy", &e))
}

/// Shares the data of a drive file, but for its first bytes, which say that it
/// is not finished. `reflink` gives those, too: until they are written over the
/// file is too long to be opened.
pub(crate) fn share(
    from: &File,
    to: &File,
    reflink: impl FnOnce(&File, &File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len + TOO_LONG)?;
    reflink(from, to)?;
    to.write_all_at(UNFINISHED, 0)?;
    to.sync_all()?;
    to.set_len(len)
}

/// Copies what is not a hole, but for the file's first bytes, which say that it
/// is not finished.
fn copy_extents(from: &File, to: &File) -> std::io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len)?;
    // So that no crash of the host leaves data without them.
    to.write_all_at(UNFINISHED, 0)?;
    to.sync_all()?;
    let mut bytes = vec![0; AT_ONCE];
    let mut at = 0;
    while at < len {
        let start = match seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = seek(from, SeekFrom::Hole(start))?;
        at = start;
        while at < end {
            let n = (end - at).min(AT_ONCE as u64) as usize;
            from.read_exact_at(&mut bytes[..n], at)?;
            if at == 0 {
                bytes[..UNFINISHED.len()].copy_from_slice(UNFINISHED);
            }
            to.write_all_at(&bytes[..n], at)?;
            at += n as u64;
        }
    }
    Ok(())
}

/// Writes a drive of any medium into a new file at `path`, and closes it.
/// `chunks` by [`flash::Geometry::chunk_index`]. Blocks stored whole stay so;
/// a block that cannot be read stays unreadable, if the medium `is_sound` in the end:
/// else there is no file.
pub fn save<M: Medium + ?Sized>(
    path: &Path,
    header: &Header,
    chunks: &[Chunk],
    medium: &mut M,
    is_sound: impl FnOnce(&M) -> Result<(), FileError>,
) -> Result<(), FileError> {
    check_kept(header, medium.kept())?;
    check_chunks(header, chunks)?;
    let unfinished = Unfinished::begin(path, false)?;
    save_in(&unfinished, header, chunks, medium, true)?;
    is_sound(medium)?;
    unfinished.finish()
}

/// Writes all of a drive in a file that is being made; `threaded` as for
/// [`DriveFile::create_on`].
pub(crate) fn save_in<M: Medium + ?Sized>(
    unfinished: &Unfinished,
    header: &Header,
    chunks: &[Chunk],
    medium: &mut M,
    threaded: bool,
) -> Result<(), FileError> {
    let mut file = unfinished.create_with(header, threaded)?;
    let mut copied = Copier::new(&header.geometry, header.kept).all(chunks, medium, &mut file);
    for (index, chunk) in chunks.iter().enumerate() {
        if *chunk != Chunk::default() {
            file.describe(index, chunk);
        }
    }
    // Its own error says more.
    copied = file.error().cloned().map_or(copied, Err);
    copied?;
    file.close()
}

/// Writes all blocks of an opened drive into `medium`, which must be empty and
/// keep as much of a block. Its chunks are [`Opened::chunks`]. Fails where a
/// block cannot be read; those of failed programs are not there to be read.
pub fn load<M: Medium + ?Sized>(opened: &mut Opened, medium: &mut M) -> Result<(), FileError> {
    let header = opened.medium.header().clone();
    check_kept(&header, medium.kept())?;
    let mut copier = Copier::new(&header.geometry, header.kept);
    match (copier.all(&opened.chunks, &mut opened.medium, medium)?, opened.medium.error()) {
        (_, Some(error)) => Err(error.clone()),
        (0, None) => Ok(()),
        (_, None) => Err(FileError::Unreadable { ppa: copier.unreadable.0 }),
    }
}

fn check_kept(header: &Header, kept: u32) -> Result<(), FileError> {
    let (what, range) = ("bytes kept by the medium", "what the drive keeps of a block");
    let value = kept.into();
    if header.kept == kept { Ok(()) } else { Err(FileError::Range { what, value, range }) }
}

fn check_chunks(header: &Header, chunks: &[Chunk]) -> Result<(), FileError> {
    let (what, range) = ("chunk descriptors", "one for each index of the geometry");
    let value = chunks.len() as u64;
    let right = chunks.len() == header.geometry.chunk_slots();
    if right { Ok(()) } else { Err(FileError::Range { what, value, range }) }
}

/// Copies blocks from medium to medium.
struct Copier {
    geometry: Geometry,
    kept: usize,
    data: Vec<u8>,
    tags: Vec<u8>,
    /// The first block that could not be read.
    unreadable: Ppa,
}

impl Copier {
    fn new(geometry: &Geometry, kept: u32) -> Copier {
        let row = geometry.row_blocks() as usize;
        Copier {
            geometry: *geometry,
            kept: kept as usize,
            data: vec![0; row * BLOCK_BYTES as usize],
            tags: vec![0; row * TAG_BYTES],
            unreadable: Ppa(0),
        }
    }

    /// Copies the blocks of all chunks. Gives the number of those that cannot
    /// be read.
    fn all<A: Medium + ?Sized, B: Medium + ?Sized>(
        &mut self,
        chunks: &[Chunk],
        from: &mut A,
        to: &mut B,
    ) -> Result<u64, FileError> {
        let mut unreadable = 0;
        for (index, chunk) in chunks.iter().enumerate() {
            let start = self.geometry.chunk_start(index);
            // Of an offline chunk nothing can be read.
            if !self.geometry.contains(start) || chunk.state == ChunkState::Offline {
                continue;
            }
            if chunk.programmed > 0 {
                // The blocks are of this life.
                let state = ChunkState::Free;
                to.describe(index, &Chunk { state, wp: 0, programmed: 0, ..*chunk });
            }
            let mut block = 0;
            while block < chunk.programmed {
                let n = self.together(chunk, block);
                let at = Ppa(start.0 + u64::from(block));
                block += n;
                if chunk.failed_of(block - n, 1) != 0 || self.run(at, n, from, to)? {
                    continue;
                }
                for at in (at.0..at.0 + u64::from(n)).map(Ppa) {
                    if !self.run(at, 1, from, to)? {
                        self.unreadable = if unreadable == 0 { at } else { self.unreadable };
                        unreadable += 1;
                    }
                }
            }
        }
        Ok(unreadable)
    }

    /// How many blocks from `block` on can be copied at once: a row, and one
    /// where a program failed nearby.
    fn together(&self, chunk: &Chunk, block: u32) -> u32 {
        let n = self.geometry.row_blocks().min(chunk.programmed - block);
        if chunk.failed_of(block, n) != 0 { 1 } else { n }
    }

    /// Copies a run of blocks, all of them whole or none. False where they
    /// cannot be read so.
    fn run<A: Medium + ?Sized, B: Medium + ?Sized>(
        &mut self,
        at: Ppa,
        count: u32,
        from: &mut A,
        to: &mut B,
    ) -> Result<bool, FileError> {
        let tags = &mut self.tags[..count as usize * TAG_BYTES];
        for each in [BLOCK_BYTES as usize, self.kept] {
            let data = &mut self.data[..count as usize * each];
            if patiently(|| from.read(at, count, data, tags)) == Moved::Done {
                return match patiently(|| to.program(at, count, data, tags)) {
                    Moved::Done => Ok(true),
                    _ => Err(FileError::Write { ppa: at.0 }),
                };
            }
        }
        Ok(false)
    }
}

/// Asks a medium until it has answered.
fn patiently(mut ask: impl FnMut() -> Moved) -> Moved {
    loop {
        match ask() {
            Moved::Pending => std::thread::yield_now(),
            answer => return answer,
        }
    }
}
