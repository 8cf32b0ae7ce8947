//! The drive file as a medium.
//!
//! A program writes data, then entries; the drive's description of the chunk
//! follows it. So after a kill, where what was written is there in its order,
//! descriptors never tell of what is not. After a crash of the host, where it
//! is not, blocks behind what was synced are looked at again when the file is
//! opened ([`crate::DriveFile::open`]).
//!
//! A chunk that was reset keeps what it had until a sync that began after the
//! reset has ended, and until the one behind that has, too: before, the first may
//! be found to be damaged and count for nothing. One is begun by the reset, and a
//! program of the chunk answers pending until both have ended. Its failed
//! programs, which store nothing, do not wait; a further reset after them does.
//!
//! What reads have changed of a chunk, as how many there were, is written and
//! survives a kill, but makes no work for a barrier, and is nothing that a file
//! opened for reading only would have to refuse.
//!
//! After an error that a write or sync met, everything that changes the drive
//! fails: what the system says later proves nothing about what it lost.

mod chunks;

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use flash::{Chunk, Medium, Moved, Ppa};
use port::lazy::room_for;

pub(crate) use self::chunks::sum_of;
use crate::away::is_away;
use crate::blocks::{Blocks, Unreadable, When};
use crate::claim::{self, Claimed};
use crate::descriptor::{Descriptor, at_rest};
use crate::file_io::is_unreadable;
use crate::guarded::Guarded;
use crate::header::{MAGIC, State};
use crate::layout::Layout;
use crate::mutation::{self, Mutation};
use crate::open::DESCRIPTORS;
use crate::states::States;
use crate::sync::{Done, Job, Outcome, Syncer, give_back, write_first_state, write_last_state};
use crate::{Area, ChangingText, FileError, FileIo, Header, SystemFile, Unfinished, Wakes};

/// Blocks that are programmed before a sync is begun unasked: 64 MiB.
const MAX_UNSYNCED: u32 = 1 << 14;

/// A drive in a file. Dropping it is as the process being killed;
/// [`DriveFile::close`] ends it cleanly.
pub struct DriveFile {
    pub(crate) header: Header,
    pub(crate) layout: Layout,
    pub(crate) storage: Arc<dyn FileIo>,
    pub(crate) blocks: Blocks,
    /// By the chunk's number in the file.
    pub(crate) chunks: Vec<Descriptor>,
    /// The sum of their shares.
    pub(crate) table: u64,
    pub(crate) session: u32,
    /// What is written now belongs to this generation.
    pub(crate) generation: u64,
    /// The last generation that is durable.
    pub(crate) completed: u64,
    /// The last generation in which something was written.
    pub(crate) written: u64,
    /// The generation that a barrier under way waits for.
    pub(crate) target: Option<u64>,
    /// Chunks erased since the last sync began, by number in the file; those of the
    /// generation before, whose space the next sync gives back; and room for such a
    /// list, where no sync has it. A chunk is in one of them at most.
    pub(crate) erased: Vec<u32>,
    pub(crate) owed: Vec<u32>,
    pub(crate) spare: Vec<u32>,
    /// Chunks that changed since then, up to one more than a claim has.
    pub(crate) changed: Vec<u32>,
    /// The pages of states, where no sync has them.
    pub(crate) states: Option<States>,
    /// Blocks programmed since the last sync began.
    pub(crate) unsynced: u32,
    /// The drive's own time, in ns, as far as it was told.
    pub(crate) time: u64,
    /// The host's time then, in seconds since 1970; 0 where it is not known.
    pub(crate) told: u32,
    /// None: read only.
    pub(crate) syncer: Option<Syncer>,
    /// The first error, for who no longer has the drive as well.
    pub(crate) error: Arc<OnceLock<FileError>>,
}

/// A drive file that was opened.
pub struct Opened {
    /// The medium; its [`DriveFile::header`] says what drive this is.
    pub medium: DriveFile,
    /// What is known of each chunk, by [`flash::Geometry::chunk_index`]: for
    /// `Device::restore`.
    pub chunks: Vec<Chunk>,
    /// Whether it was closed, so that nothing had to be looked at again.
    pub clean: bool,
    /// Chunks of which programmed blocks, never synced, were lost.
    pub cut_chunks: usize,
    /// The host's time when the drive was last told its own, in seconds since
    /// 1970; where it is known.
    pub last_used: Option<u64>,
}

impl DriveFile {
    /// Makes the file of an empty drive, which must not exist, and locks it.
    pub fn create(path: &Path, header: &Header) -> Result<DriveFile, FileError> {
        header.check()?;
        let file = Unfinished::begin(path, false)?;
        let drive = file.create(header)?;
        file.finish()?;
        Ok(drive)
    }

    /// Opens and locks a drive file: alone, or together with others that only
    /// read. Reading only, whatever would change the drive fails.
    pub fn open(path: &Path, read_only: bool) -> Result<Opened, FileError> {
        let storage = Arc::new(SystemFile::open(path, read_only)?);
        DriveFile::open_on(storage, read_only, true)
    }

    /// As [`DriveFile::create`], on any empty storage. `threaded`: syncs run on
    /// a thread of their own; else in the call that asks for them.
    pub fn create_on(
        storage: Arc<dyn FileIo>,
        header: &Header,
        threaded: bool,
    ) -> Result<DriveFile, FileError> {
        DriveFile::make_on(storage, header, MAGIC, threaded)
    }

    /// The same, beginning with `magic`.
    pub(crate) fn make_on(
        storage: Arc<dyn FileIo>,
        header: &Header,
        magic: &[u8; 8],
        threaded: bool,
    ) -> Result<DriveFile, FileError> {
        header.check()?;
        let storage: Arc<dyn FileIo> = Arc::new(Guarded::new(storage));
        let layout = Layout::new(&header.geometry, header.kept);
        let mut chunks = room_for(layout.chunks(), DESCRIPTORS).map_err(FileError::memory)?;
        chunks.resize(layout.chunks(), Descriptor::default());
        let failed = |e: io::Error| FileError::system("making it", &e);
        storage.set_bytes(header.file_bytes()).map_err(failed)?;
        let mut bytes = header.encode();
        bytes[..magic.len()].copy_from_slice(magic);
        // So that no crash of the host leaves data without it.
        storage.write_durable(0, &bytes).map_err(failed)?;
        if let Some(mut area) = area(header, &storage) {
            let made = nvram::format(&mut area);
            made.map_err(|e| FileError::system("making its journal", &io::Error::other(e)))?;
        }
        storage.sync().map_err(failed)?;
        let table = Some(0);
        let (clean, claim) = (false, false);
        let state = State { session: 1, synced: 1, clean, claim, time: 0, told: 0, table };
        write_first_state(&*storage, &state)?;
        let syncer = Syncer::new(Arc::clone(&storage), layout, threaded)?;
        Ok(DriveFile::assemble(header.clone(), storage, chunks, state, Some(syncer)))
    }

    /// A drive file whose parts have all been looked at.
    pub(crate) fn assemble(
        header: Header,
        storage: Arc<dyn FileIo>,
        chunks: Vec<Descriptor>,
        state: State,
        syncer: Option<Syncer>,
    ) -> DriveFile {
        DriveFile {
            layout: Layout::new(&header.geometry, header.kept),
            blocks: Blocks::new(Arc::clone(&storage), &header.geometry, header.kept),
            header,
            storage,
            table: sum_of(&chunks, Descriptor::share),
            chunks,
            session: state.session,
            generation: state.synced + 1,
            completed: state.synced,
            written: state.synced,
            target: None,
            erased: Vec::new(),
            owed: Vec::new(),
            spare: Vec::new(),
            changed: Vec::with_capacity(claim::MOST + 1),
            states: Some(States::of(&state)),
            unsynced: 0,
            time: state.time,
            told: state.told,
            syncer,
            error: Arc::default(),
        }
    }

    /// What drive it is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The area for the journal of a protected cache; none of a volatile one.
    /// Two of one file are one and the same.
    pub fn area(&self) -> Option<Area> {
        area(&self.header, &self.storage)
    }

    /// Where the drive's text is changed.
    pub fn text(&self) -> Result<ChangingText, FileError> {
        ChangingText::of(Arc::clone(&self.storage))
    }

    /// Who is told when a sync has ended, where syncs are made on a thread.
    pub fn wakes(&self) -> Option<Arc<Wakes>> {
        self.syncer.as_ref()?.wakes().cloned()
    }

    /// From now on syncs end when they were asked for so often; with 0 at once.
    #[cfg(any(test, feature = "disk"))]
    pub fn defer_syncs(&mut self, polls: u32) {
        if let Some(syncer) = self.syncer.as_mut().filter(|_| polls > 0) {
            syncer.defer(polls);
        }
    }

    /// The first error that a write or a sync met, or a read that is not damage of what was
    /// to be read. From then on nothing can be changed; what was programmed before can still
    /// be read, as far as the disk is there.
    pub fn error(&self) -> Option<&FileError> {
        self.error.get()
    }

    /// The same, for when the drive is gone.
    pub fn later_error(&self) -> Arc<OnceLock<FileError>> {
        Arc::clone(&self.error)
    }

    /// Bytes that the file takes on the disk.
    pub fn used_bytes(&self) -> Result<u64, FileError> {
        self.storage.used().map_err(|e| FileError::system("asking its space", &e))
    }

    /// Whether the file has all of its space, and keeps it: see [`Unfinished::preallocate`].
    pub fn is_preallocated(&self) -> bool {
        self.storage.is_preallocated()
    }

    /// Makes everything durable and marks the clean end. Waits for the disk.
    /// Fails with [`DriveFile::error`], if there was one.
    pub fn close(mut self) -> Result<(), FileError> {
        while self.barrier() == Moved::Pending {
            let outcome = self.syncer.as_mut().and_then(Syncer::wait);
            self.take(outcome);
        }
        if let Some(error) = self.error() {
            return Err(error.clone());
        }
        if self.syncer.take().is_none() {
            return Ok(());
        }
        write_last_state(&*self.storage, &self.state(self.completed, true))?;
        // The barrier has ended the generation of all that were erased.
        give_back(&*self.storage, &self.layout, &self.owed);
        Ok(())
    }

    /// The state in which generation `synced` is durable.
    fn state(&self, synced: u64, clean: bool) -> State {
        let (session, time, told) = (self.session, self.time, self.told);
        State { session, synced, clean, claim: false, time, told, table: Some(self.table) }
    }

    /// Takes note of an error. The first one stays.
    #[cold]
    fn fail(&mut self, error: FileError) -> Moved {
        self.error.get_or_init(|| error);
        Moved::Failed
    }

    #[cold]
    fn fail_writing(&mut self, doing: &'static str, e: &io::Error) -> Moved {
        self.fail(FileError::system(doing, e))
    }

    /// A block was not read, and not for damage of its own. Nothing may change from now on:
    /// who takes for lost what is not read now would write that down, and then it were.
    #[cold]
    fn fail_reading(&mut self, e: &io::Error) -> Moved {
        self.fail(FileError::Away { reason: e.to_string() })
    }

    #[inline]
    fn has_failed(&self) -> bool {
        self.error.get().is_some()
    }

    /// Takes note of a sync that ended.
    fn take(&mut self, outcome: Option<Outcome>) {
        match outcome {
            Some(Ok(Done { generation, spare, states })) => {
                self.completed = generation;
                (self.states, self.spare) = (Some(states), spare);
            }
            Some(Err(e)) => {
                self.fail(e);
            }
            None => {}
        }
    }

    /// Whether `generation` is durable. If not, sees to it that it will be.
    fn want(&mut self, generation: u64) -> bool {
        // A sync made in the call that begins it has ended then; two may be wanted.
        for _ in 0..3 {
            let Some(syncer) = &mut self.syncer else { return true };
            if syncer.is_busy() {
                let outcome = syncer.poll();
                self.take(outcome);
            }
            if self.completed >= generation || self.has_failed() {
                return self.completed >= generation;
            }
            self.begin_sync();
        }
        self.completed >= generation
    }

    /// Whether no state that may still hold knows what a chunk had that was erased
    /// in `generation`. If not, sees to it.
    fn want_gone(&mut self, generation: u64) -> bool {
        self.want(if mutation::is(Mutation::ReuseAtOnce) { generation } else { generation + 1 })
    }

    /// Begins to sync the generation, if no sync is under way. None is begun
    /// after an error: its state would tell of what could not be written.
    fn begin_sync(&mut self) {
        if self.has_failed() {
            return;
        }
        let state = self.state(self.generation, false);
        // Where a sync is under way, it has the states.
        let Some((syncer, mut states)) = self.syncer.as_mut().zip(self.states.take()) else {
            return;
        };
        let mut claim = 0;
        if self.changed.len() <= claim::MOST {
            let chunks = self.changed.iter();
            let chunk = |&number: &u32| Claimed::of(number, &self.chunks[number as usize]);
            claim = states.claim(&state, chunks.map(chunk));
        }
        self.changed.clear();
        self.generation += 1;
        self.unsynced = 0;
        let erased = std::mem::replace(&mut self.erased, std::mem::take(&mut self.spare));
        if mutation::is(Mutation::GiveBackUnsynced) {
            give_back(&*self.storage, &self.layout, &erased);
        }
        let mut back = std::mem::replace(&mut self.owed, erased);
        if mutation::is(Mutation::GiveBackAtOnce) {
            std::mem::swap(&mut back, &mut self.owed);
        }
        syncer.begin(Job { state, states, claim, give_back: back });
    }

    /// Whether nothing may be changed.
    #[inline]
    fn is_stopped(&mut self) -> bool {
        if self.syncer.is_none() {
            self.fail(FileError::ReadOnly);
        }
        self.has_failed()
    }

    /// Syncs now and then, so that little is to be looked at when the file is
    /// opened after a kill.
    #[inline]
    fn count_unsynced(&mut self, blocks: u32) -> Moved {
        self.unsynced = self.unsynced.saturating_add(blocks);
        if self.unsynced >= MAX_UNSYNCED {
            let outcome = self.syncer.as_mut().and_then(Syncer::poll);
            self.take(outcome);
            self.begin_sync();
        }
        Moved::Done
    }
}

/// The area behind the drive, if there is one.
pub(crate) fn area(header: &Header, storage: &Arc<dyn FileIo>) -> Option<Area> {
    let journal = header.cache.journal();
    let start = header.file_bytes() - journal;
    (journal > 0).then(|| Area::new(Arc::clone(storage), start, journal))
}

impl Medium for DriveFile {
    fn kept(&self) -> u32 {
        self.header.kept
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        if self.is_stopped() || !self.header.geometry.contains(at) {
            return Moved::Failed;
        }
        let number = self.layout.number(self.header.geometry.chunk_index(at));
        let chunk = &self.chunks[number];
        if chunk.next.is_some() {
            if !self.want_gone(chunk.generation) {
                return if self.has_failed() { Moved::Failed } else { Moved::Pending };
            }
            self.settle(number);
        }
        let when = When { life: self.chunks[number].chunk.wear, session: self.session };
        self.written = self.generation;
        match self.blocks.program(at, count, data, tags, when) {
            Ok(()) => self.count_unsynced(count),
            // Something beside them in a page of the system: these blocks failed, as those
            // of a flash may. Nothing that was told of before is missing.
            Err(e) if is_unreadable(&e) => Moved::Failed,
            Err(e) => self.fail_writing("writing a block", &e),
        }
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        let number = self.layout.number(self.header.geometry.chunk_index(at));
        // Of an erased chunk the life before cannot be read any more.
        let chunk = self.chunks.get(number).filter(|chunk| chunk.next.is_none());
        let life = chunk.map(|chunk| chunk.chunk.wear);
        match life.map(|life| self.blocks.read(at, count, data, tags, life)) {
            Some(Ok(())) => Moved::Done,
            Some(Err(Unreadable::System(e))) if is_away(&e) => self.fail_reading(&e),
            Some(Err(_)) => Moved::Failed,
            None => {
                data.fill(0);
                tags.fill(0);
                Moved::Failed
            }
        }
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        if self.is_stopped() || !self.header.geometry.contains(chunk) {
            return Moved::Failed;
        }
        let number = self.layout.number(self.header.geometry.chunk_index(chunk));
        let (begun, generation) = {
            let held = &self.chunks[number];
            (held.next.is_some_and(|next| next.programmed > 0), held.generation)
        };
        // One erase at a time: programs that failed have come since the last.
        if begun && !self.want_gone(generation) {
            return if self.has_failed() { Moved::Failed } else { Moved::Pending };
        }
        self.settle(number);
        let held = &self.chunks[number];
        if held.next.is_none() {
            let (wear, worn) = (held.next_wear(), held.chunk.worn);
            self.erase(number, Chunk { wear, worn, ..Chunk::default() });
        }
        if self.has_failed() { Moved::Failed } else { Moved::Done }
    }

    fn barrier(&mut self) -> Moved {
        if self.has_failed() {
            return Moved::Failed;
        }
        let target = *self.target.get_or_insert(self.written);
        let durable = self.want(target) || mutation::is(Mutation::DoneEarly);
        if durable || self.has_failed() {
            self.target = None;
        }
        match (durable, self.error()) {
            (_, Some(_)) => Moved::Failed,
            (true, None) => Moved::Done,
            (false, None) => Moved::Pending,
        }
    }

    fn is_cached(&self) -> bool {
        true
    }

    #[inline]
    fn has_news(&self) -> Option<bool> {
        self.syncer.as_ref()?.wakes()?.has_news()
    }

    fn note_time(&mut self, ns: u64) {
        if ns >= self.time {
            (self.time, self.told) = (ns, self.storage.seconds());
        }
    }

    fn time(&self) -> u64 {
        self.time
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        let number = self.layout.number(chunk_index);
        if number >= self.chunks.len() {
            return;
        }
        let chunk = at_rest(chunk, self.header.geometry.chunk_blocks());
        self.settle(number);
        if self.chunks[number].was_only_read(&chunk) {
            self.note_reads(number, &chunk);
        } else if !self.is_stopped() && !self.describe_at_rest(number, &chunk) {
            let (from, to) = (self.chunks[number].chunk.wear, chunk.wear);
            self.fail(FileError::Life { chunk: chunk_index, from, to });
        }
    }
}
