//! Opening a drive file.
//!
//! Guarantees: what was synced is as it was, or there is an error; of a chunk
//! that was written after the last sync, what is told is a prefix of what was
//! programmed, ends where a program ended, and can all be read; everything that
//! is told is durable before this returns. It may itself be cut, any number
//! of times. Fails where the header or a descriptor is damaged, lost, or older
//! than the last sync: a drive whose chunks are not known would give older data
//! for newer, or zeros.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flash::{Chunk, Geometry};
use port::lazy::room_for;

use crate::blocks::{Blocks, Unread};
use crate::claim::{self, Claimed};
use crate::descriptor::{DESCRIPTOR_BYTES, Descriptor, MAX_GENERATION};
use crate::entry::MAX_SESSION;
use crate::file::{area, sum_of};
use crate::file_io::{is_unreadable, read_or_zeros};
use crate::guarded::Guarded;
use crate::header::{self, FIXED_BYTES, Header, State, is_changed, u32_at};
use crate::layout::{Layout, SLOT_BYTES, TABLE_OFFSET, state_offsets};
use crate::mutation::{self, Mutation};
use crate::sync::{Syncer, give_back, write_first_state};
use crate::{DriveFile, FileError, FileIo, Opened, SystemFile, text};

/// Descriptors that are read at once.
const AT_ONCE: usize = 2048;

/// What memory for the table is asked for.
pub(crate) const DESCRIPTORS: &str = "the chunks' descriptors";

impl DriveFile {
    /// The header of a drive file, which nobody may have open for writing. Of
    /// the rest nothing is looked at but its length.
    pub fn header_of(path: &Path) -> Result<Header, FileError> {
        read_header(&SystemFile::open(path, true)?)
    }

    /// Bytes of memory that an opened drive file of this geometry takes, with
    /// [`Opened::chunks`]. Blocks take none.
    pub fn tables(geometry: &Geometry) -> u64 {
        let chunks = u64::from(geometry.total_pus()) * u64::from(geometry.chunks());
        let descriptors = chunks.saturating_mul(size_of::<Descriptor>() as u64);
        let told = (geometry.chunk_slots() as u64).saturating_mul(size_of::<Chunk>() as u64);
        descriptors.saturating_add(told)
    }

    /// As [`DriveFile::open`], on any storage.
    pub fn open_on(
        storage: Arc<dyn FileIo>,
        read_only: bool,
        threaded: bool,
    ) -> Result<Opened, FileError> {
        let storage: Arc<dyn FileIo> = Arc::new(Guarded::new(storage));
        // What the system remembers of a life before may not be on the disk: an
        // error of writing it back was told to that life, or is told now. What
        // the disk has counts.
        if let Err(e) = storage.sync() {
            if !read_only {
                doubt_journal(&storage);
            }
            return Err(FileError::system("writing back what was left", &e));
        }
        storage.note_synced();
        storage.reread(0, TABLE_OFFSET).map_err(reading)?;
        let header = read_header(&*storage)?;
        let layout = Layout::new(&header.geometry, header.kept);
        let States { newest, claimed, before } = read_states(&*storage)?;
        // Of a file that was closed all is durable, but the state says so only
        // if it is itself.
        let forgotten = if newest.clean { layout.table_end() } else { header.file_bytes() };
        storage.reread(0, forgotten).map_err(reading)?;
        let mut chunks = read_table(&*storage, &layout, &header)?;
        let mut blocks = Blocks::new(Arc::clone(&storage), &header.geometry, header.kept);
        let holds = !newest.claim || is_proved(&mut blocks, &layout, &newest, &claimed, &chunks)?;
        // A claim is not the only one but where the other is damaged.
        let state = if holds { Some(State { claim: false, ..newest }) } else { before };
        let state = state.ok_or(FileError::Table)?;
        if !has_sum(&chunks, &state) {
            return Err(FileError::Table);
        }
        let mut looked = Looked::default();
        for (number, chunk) in chunks.iter_mut().enumerate() {
            look(&mut blocks, &layout, &state, number, chunk, &mut looked)?;
        }
        if state.clean && looked.recent {
            return Err(FileError::Header {
                what: "its state says that it was closed before it was last written".into(),
            });
        }
        let (mut now, mut syncer) = (state, None);
        if !read_only {
            upgrade(&*storage)?;
            if newest.claim {
                // So it is not decided anew when the chunks are no longer as they were found.
                write_first_state(&*storage, &state)?;
            }
            // Before the session: a cut in the midst has the next opening do the rest.
            give_back(&*storage, &layout, &looked.erased);
            now = begin_session(&*storage, &layout, &state, &mut chunks, &looked)?;
            syncer = Some(Syncer::new(Arc::clone(&storage), layout, threaded)?);
        }
        let slots = header.geometry.chunk_slots();
        let mut told = room_for(slots, "the chunks").map_err(FileError::memory)?;
        told.resize(slots, Chunk::default());
        for (number, chunk) in chunks.iter().enumerate() {
            told[layout.index(number)] = chunk.chunk;
        }
        let last_used = Some(u64::from(state.told)).filter(|&told| told > 0);
        let medium = DriveFile::assemble(header, storage, chunks, now, syncer);
        Ok(Opened { medium, chunks: told, clean: state.clean, cut_chunks: looked.cut, last_used })
    }
}

/// Of a protected cache's journal what was not synced may be gone: the next opening, which is
/// told of no error, is to know. Where that cannot be written, as by one that only reads, it
/// does not.
#[cold]
fn doubt_journal(storage: &Arc<dyn FileIo>) {
    let Ok(header) = read_header(&**storage) else { return };
    if let Some(mut area) = area(&header, storage) {
        let _ = nvram::doubt(&mut area);
    }
}

fn reading(e: io::Error) -> FileError {
    FileError::system("reading it", &e)
}

/// The header, and whether the file is as long as it says.
pub(crate) fn read_header(storage: &dyn FileIo) -> Result<Header, FileError> {
    let found = storage.bytes().map_err(reading)?;
    if found == 0 {
        return Err(FileError::Empty);
    }
    if found < FIXED_BYTES as u64 {
        return Err(FileError::Foreign);
    }
    let bytes = header_bytes(storage, found)?;
    let mut header = Header::decode(&bytes)?;
    let expected = header.file_bytes();
    if found != expected {
        return Err(FileError::Length { found, expected });
    }
    if is_changed(u32_at(&bytes, 8)) {
        header.drive = text::read(storage)?.1;
    }
    Ok(header)
}

/// The bytes of the header of a file of so many bytes, at least its fixed ones.
pub(crate) fn header_bytes(storage: &dyn FileIo, found: u64) -> Result<Vec<u8>, FileError> {
    let mut fixed = [0; FIXED_BYTES];
    storage.read(0, &mut fixed).map_err(reading)?;
    let len = Header::bytes(&fixed)?;
    if found < len as u64 {
        return Err(FileError::Header { what: "the file ends in it".into() });
    }
    let mut bytes = vec![0; len];
    storage.read(0, &mut bytes).map_err(reading)?;
    Ok(bytes)
}

/// Makes a file of a version before one of this version. What is written from
/// now on that one does not know.
fn upgrade(storage: &dyn FileIo) -> Result<(), FileError> {
    let Some(bytes) = header::upgrade(&header_bytes(storage, u64::MAX)?) else { return Ok(()) };
    let written = storage.write_durable(8, &bytes);
    written.map_err(|e| FileError::system("making it one of this version", &e))
}

/// What the states say, of which some may be damaged or older.
struct States {
    newest: State,
    /// If it is a claim, what it tells of.
    claimed: Vec<Claimed>,
    /// What holds if that is not found: the state of the generation before.
    before: Option<State>,
}

fn read_states(storage: &dyn FileIo) -> Result<States, FileError> {
    let mut found = Vec::new();
    for offset in [0, 1].into_iter().flat_map(state_offsets) {
        let mut bytes = [0; SLOT_BYTES];
        read_or_zeros(storage, offset, &mut bytes).map_err(reading)?;
        let state = State::decode(bytes.first_chunk().expect("it is longer"));
        let claimed = match state {
            Some(State { claim: true, .. }) => claim::decode(&bytes),
            _ => Some(Vec::new()),
        };
        found.extend(state.zip(claimed));
    }
    let newest = found.iter().max_by_key(|(state, _)| state.order()).cloned();
    let what = || "all copies of its state are damaged".into();
    let (newest, claimed) = newest.ok_or_else(|| FileError::Header { what: what() })?;
    let before = found.iter().map(|(state, _)| *state).find(|state| state.is_before(&newest));
    let before = before.map(|state| State { claim: false, ..state });
    if newest.synced >= MAX_GENERATION - 4 || newest.session >= MAX_SESSION {
        return Err(FileError::Header { what: "its counts are at their end".into() });
    }
    Ok(States { newest, claimed, before })
}

/// Whether the chunks had what the state's sum says.
fn has_sum(chunks: &[Descriptor], state: &State) -> bool {
    let found = sum_of(chunks, |chunk, number| chunk.share_at(number, state.synced));
    state.table.is_none_or(|table| table == found)
}

/// Whether all is there that a claim tells of: the chunks that it names, what each
/// chunk had then, and of that the blocks which came with its generation. What came
/// before is durable.
///
/// It is so whenever the sync has ended. What was erased since then, and is durable,
/// has a later claim; of what is offline no block is ever looked at. Nor are blocks
/// of a chunk that changed two generations later, as then the sync had ended.
///
/// A block that the disk cannot read disproves nothing: no sync that was cut leaves
/// one, so all else says whether this one was. It is an error when it is read.
fn is_proved(
    blocks: &mut Blocks,
    layout: &Layout,
    claim: &State,
    claimed: &[Claimed],
    chunks: &[Descriptor],
) -> Result<bool, FileError> {
    let is_in = |one: &Claimed| {
        chunks.get(one.number as usize).is_some_and(|chunk| one.is_in(chunk, claim.synced))
    };
    match () {
        () if mutation::is(Mutation::BelieveClaim) => return Ok(true),
        () if mutation::is(Mutation::DenyClaim) => return Ok(false),
        () if !has_sum(chunks, claim) || !claimed.iter().all(is_in) => return Ok(false),
        () if mutation::is(Mutation::BelieveBlocks) => return Ok(true),
        () => {}
    }
    for number in claimed.iter().map(|one| one.number as usize) {
        let chunk = &chunks[number];
        let Some((from, to)) = chunk.came_with(claim.synced) else { continue };
        let start = blocks.start(layout.index(number));
        let then = Chunk { programmed: to, ..chunk.chunk };
        let until = blocks.good_until(start, from, &then, claim.session, Unread::Passed);
        if until.map_err(reading)? < to {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_table(
    storage: &dyn FileIo,
    layout: &Layout,
    header: &Header,
) -> Result<Vec<Descriptor>, FileError> {
    let size = header.geometry.chunk_blocks();
    let mut chunks = room_for(layout.chunks(), DESCRIPTORS).map_err(FileError::memory)?;
    let mut bytes = vec![0; AT_ONCE * DESCRIPTOR_BYTES];
    while chunks.len() < layout.chunks() {
        let offset = layout.descriptor(chunks.len());
        let n = AT_ONCE.min(layout.chunks() - chunks.len());
        let piece = &mut bytes[..n * DESCRIPTOR_BYTES];
        storage.read(offset, piece).map_err(|e| unread(storage, layout, chunks.len(), n, e))?;
        for bytes in piece.chunks_exact(DESCRIPTOR_BYTES) {
            let number = chunks.len();
            let read = Descriptor::decode(bytes, number as u64, size);
            chunks.push(read.map_err(|what| FileError::Descriptor {
                chunk: layout.index(number),
                offset: layout.descriptor(number),
                what,
            })?);
        }
    }
    Ok(chunks)
}

/// Which of `n` descriptors from that of chunk `number` on cannot be read, where the disk
/// refuses some of them. None can be left out.
fn unread(
    storage: &dyn FileIo,
    layout: &Layout,
    number: usize,
    n: usize,
    e: io::Error,
) -> FileError {
    let is_lost = |&number: &usize| {
        let read = storage.read(layout.descriptor(number), &mut [0; DESCRIPTOR_BYTES]);
        read.is_err_and(|e| is_unreadable(&e))
    };
    let Some(number) = (number..number + n).find(is_lost) else { return reading(e) };
    let (chunk, offset) = (layout.index(number), layout.descriptor(number));
    FileError::Descriptor { chunk, offset, what: "the disk cannot read it" }
}

/// What was found in the chunks.
#[derive(Default)]
struct Looked {
    /// A chunk was written after the last sync.
    recent: bool,
    /// Chunks that lost blocks.
    cut: usize,
    /// The last generation of any.
    generation: u64,
    /// Those whose descriptor is no longer right, by number.
    changed: Vec<usize>,
    /// Those whose space may still be taken by the life before.
    erased: Vec<u32>,
}

/// Decides what a chunk has.
fn look(
    blocks: &mut Blocks,
    layout: &Layout,
    state: &State,
    number: usize,
    chunk: &mut Descriptor,
    looked: &mut Looked,
) -> Result<(), FileError> {
    looked.generation = looked.generation.max(chunk.generation);
    let recent = chunk.generation > state.synced;
    looked.recent |= recent;
    if !recent {
        // What was erased one sync before was given back when that one had ended, but
        // that is durable with the one behind it only.
        if chunk.next.is_some() && chunk.generation + 1 >= state.synced {
            looked.erased.push(number as u32);
        }
        chunk.begin_next();
        return Ok(());
    }
    // An erase that was not synced has not happened, and so nothing after it.
    let mut changed = chunk.next.take().is_some();
    let start = blocks.start(layout.index(number));
    let durable = chunk.durable(state.synced);
    let until = blocks.good_until(start, durable, &chunk.chunk, state.session, Unread::Lost);
    let until = until.map_err(reading)?;
    if until < chunk.chunk.programmed {
        (looked.cut, changed) = (looked.cut + 1, true);
        chunk.cut(until, layout.chunk_blocks());
    }
    chunk.ends = [durable; 2];
    if changed {
        looked.changed.push(number);
    }
    Ok(())
}

/// Makes what was decided durable, and then begins a session. Until the state
/// is written the session before is still the last one, and what is rewritten
/// here is decided in the same way again.
fn begin_session(
    storage: &dyn FileIo,
    layout: &Layout,
    state: &State,
    chunks: &mut [Descriptor],
    looked: &Looked,
) -> Result<State, FileError> {
    let synced = looked.generation.max(state.synced) + 1;
    let failed = |e: io::Error| FileError::system("bringing it up to date", &e);
    for &number in &looked.changed {
        chunks[number].generation = synced;
        let bytes = chunks[number].encode(number as u64);
        storage.write(layout.descriptor(number), &bytes).map_err(failed)?;
    }
    storage.sync().map_err(failed)?;
    let table = Some(sum_of(chunks, Descriptor::share));
    let now = State { session: state.session + 1, synced, clean: false, table, ..*state };
    write_first_state(storage, &now)?;
    Ok(now)
}
