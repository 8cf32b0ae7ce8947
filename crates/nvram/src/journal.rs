//! The journal: a ring of entries in a store that outlives the cut.
//!
//! Guarantees: what was committed is there when the journal is opened again,
//! in its order, or there is an error; what was appended and not committed has
//! never been given below and is not there. Space is used again only when it
//! survives a crash of the host that it is free. Where the host has crashed
//! since, or a sync failed, entries that were not synced may be gone from some
//! point on; that is told, not an error.
//!
//! The first 4096 bytes of the store have the state, the others the entries,
//! round the end. `docs/formats.md` draws them.

use std::task::Poll;

use port::BlockOp;
use xxhash_rust::xxh3::xxh3_64;

use crate::entry::{ENTRY_BYTES, Entry};
use crate::mutation::{self, Mutation};
use crate::state::{STATE_BYTES, State};
use crate::{JournalError, NonVolatile};

/// Where entries begin in the store.
pub const AREA_START: u64 = 4096;

/// The least bytes of a store for a journal. The longest request must fit four
/// times.
pub const LEAST_BYTES: u64 = 8 << 10;

/// How full a journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Bytes for entries.
    pub bytes: u64,
    /// Bytes that are taken by entries.
    pub used: u64,
}

/// Bytes for entries in a store.
fn space(bytes: u64) -> Result<u64, JournalError> {
    if bytes < LEAST_BYTES || !bytes.is_multiple_of(4096) {
        let range = "it must have a multiple of 4096, and at least 8192";
        return Err(JournalError::Size { bytes, range });
    }
    Ok(bytes - AREA_START)
}

/// Makes a store an empty journal. Durable after the store's next sync.
pub fn format<N: NonVolatile + ?Sized>(store: &mut N) -> Result<(), JournalError> {
    let state =
        State { bytes: space(store.bytes())?, head: 0, tail: 0, synced: 0, life: store.life() };
    store.write(0, &state.encode()).map_err(JournalError::store("making it"))
}

/// How full the journal in a store is. Changes nothing.
pub fn peek<N: NonVolatile + ?Sized>(store: &mut N) -> Result<Fill, JournalError> {
    let state = read_state(store)?;
    Ok(Fill { bytes: state.bytes, used: state.tail - state.head })
}

/// Takes note in a store that a sync of it failed: what was not synced before may be gone, as
/// with a crash of its host. Durable with a later sync, if there is one.
pub fn doubt<N: NonVolatile + ?Sized>(store: &mut N) -> Result<(), JournalError> {
    let state = State { life: None, ..read_state(store)? };
    store.write(0, &state.encode()).map_err(JournalError::store("writing its state"))
}

fn read_state<N: NonVolatile + ?Sized>(store: &mut N) -> Result<State, JournalError> {
    let space = space(store.bytes())?;
    let mut bytes = [0; STATE_BYTES];
    store.read(0, &mut bytes).map_err(JournalError::store("reading its state"))?;
    State::decode(&bytes, space)
}

/// A sync under way.
#[derive(Clone, Copy)]
struct Sync {
    /// Writes before it.
    writes: u64,
    /// The tail that it makes durable.
    tail: u64,
}

/// An open journal.
pub struct Journal<N> {
    store: N,
    state: State,
    /// Space before this position may be used again.
    free: u64,
    /// Behind the last entry, committed or not.
    end: u64,
    /// Writes to the store so far, and those that are synced.
    writes: u64,
    durable: u64,
    syncing: Option<Sync>,
}

impl<N: NonVolatile> Journal<N> {
    /// Opens the journal in a store, to be read from its head on.
    pub fn open(mut store: N) -> Result<Journal<N>, JournalError> {
        let state = read_state(&mut store)?;
        let behind = if mutation::is(Mutation::ReplayOlder) { state.bytes / 2 } else { 0 };
        let (free, end) = (state.head, state.tail + behind / 64 * 64);
        Ok(Journal { store, state, free, end, writes: 1, durable: 0, syncing: None })
    }

    /// Where the first entry is, and where the last one ends.
    pub(crate) fn ends(&self) -> (u64, u64) {
        (self.state.head, self.end)
    }

    /// Whether what is broken at a position may be so because the host crashed
    /// before it was synced, or its sync failed.
    fn may_be_gone(&self, at: u64) -> bool {
        let life = self.store.life();
        at >= self.state.synced && (life.is_none() || life != self.state.life)
    }

    /// Reads the entry at a position before the end, and its data. `None`: it
    /// is gone with a crash of the host, and so are those behind it.
    pub(crate) fn read(
        &mut self,
        at: u64,
        data: &mut Vec<u8>,
    ) -> Result<Option<Entry>, JournalError> {
        match self.look(at, data)? {
            Ok(entry) => Ok(Some(entry)),
            Err(_) if self.may_be_gone(at) || mutation::is(Mutation::ReplayOlder) => Ok(None),
            Err(what) => {
                let offset = AREA_START + at % self.state.bytes;
                Err(JournalError::Entry { offset, what, is_synced: at < self.state.synced })
            }
        }
    }

    /// The entry, or what is wrong with it.
    fn look(
        &mut self,
        at: u64,
        data: &mut Vec<u8>,
    ) -> Result<Result<Entry, &'static str>, JournalError> {
        let failed = || JournalError::store("reading an entry");
        let mut bytes = [0; ENTRY_BYTES];
        self.read_at(at, &mut bytes).map_err(failed())?;
        let entry = match Entry::decode(&bytes, at) {
            Ok(entry) => entry,
            Err(what) => return Ok(Err(what)),
        };
        if Entry::space(entry.data as usize) > self.end - at {
            return Ok(Err("it is longer than the journal"));
        }
        data.clear();
        data.resize(entry.data as usize, 0);
        self.read_at(at + ENTRY_BYTES as u64, data).map_err(failed())?;
        if xxh3_64(data) != entry.sum {
            return Ok(Err("its data's checksum is wrong"));
        }
        Ok(Ok(entry))
    }

    /// Begins a session with an empty journal: all that was in it is durable
    /// below. Waits for the store.
    pub(crate) fn begin(&mut self) -> Result<(), JournalError> {
        // A state that survived a crash of the host may be older than entries
        // that did. No entry of them is as far on as this.
        let first = self.state.head + 2 * self.state.bytes;
        let state = State { head: first, tail: first, synced: first, ..self.state };
        self.state = State { life: self.store.life(), ..state };
        (self.free, self.end) = (first, first);
        self.clear()
    }

    /// Says that nothing in it is needed any more. Waits for the store.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.state.head = self.end;
        self.commit()?;
        self.wait_synced()?;
        self.free = self.end;
        Ok(())
    }

    /// Waits until all that was written is durable. Where it cannot be, the journal takes
    /// note of that.
    pub fn wait_synced(&mut self) -> Result<(), JournalError> {
        let need = self.writes;
        while !self.sync_to(need)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// How full it is: what could not be used now.
    #[inline]
    pub fn fill(&self) -> Fill {
        Fill { bytes: self.state.bytes, used: self.end - self.free }
    }

    /// Whether so much data has room.
    #[inline]
    pub(crate) fn has_room(&self, data: usize) -> bool {
        self.state.bytes - (self.end - self.free) >= Entry::space(data)
    }

    /// Behind the last entry that was committed.
    pub(crate) fn committed(&self) -> u64 {
        self.state.tail
    }

    /// Behind the last entry.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Appends an entry, for which there is room. Gives its position.
    #[inline]
    pub(crate) fn append(
        &mut self,
        op: BlockOp,
        (offset, len): (u64, u64),
        data: &[u8],
    ) -> Result<u64, JournalError> {
        let at = self.end;
        let sum = xxh3_64(data);
        let entry = Entry { at, op, offset, len, data: data.len() as u32, sum, refused: false };
        let head = entry.encode();
        let start = at % self.state.bytes;
        if start + Entry::space(data.len()) <= self.state.bytes {
            self.writes += 1;
            let written = self.store.write_both(AREA_START + start, &head, data);
            written.map_err(JournalError::store("writing an entry"))?;
        } else {
            // Round the end.
            self.write_at(at, &head)?;
            self.write_at(at + ENTRY_BYTES as u64, data)?;
        }
        self.end += Entry::space(data.len());
        Ok(at)
    }

    /// Notes of an entry that is there that the drive did not permit it: one write, within a
    /// sector.
    #[cold]
    pub(crate) fn refuse(&mut self, at: u64) -> Result<(), JournalError> {
        let mut bytes = [0; ENTRY_BYTES];
        self.read_at(at, &mut bytes).map_err(JournalError::store("reading an entry"))?;
        let offset = AREA_START + at % self.state.bytes;
        let damaged = |what| JournalError::Entry { offset, what, is_synced: false };
        let entry = Entry::decode(&bytes, at).map_err(damaged)?;
        self.write_at(at, &Entry { refused: true, ..entry }.encode())
    }

    /// Makes the journal have all that was appended.
    #[inline]
    pub(crate) fn commit(&mut self) -> Result<(), JournalError> {
        self.writes += 1;
        let state = State { tail: self.end, ..self.state };
        let written = self.store.write(0, &state.encode());
        written.map_err(JournalError::store("writing its state"))?;
        self.state.tail = self.end;
        Ok(())
    }

    /// Whether something was appended since the last commit.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.end != self.state.tail
    }

    /// Entries before this position are durable below. Their space is free
    /// after [`Journal::reuse`].
    pub(crate) fn free_to(&mut self, head: u64) -> Result<(), JournalError> {
        self.state.head = head;
        self.commit()
    }

    /// What was freed may be used: that it was is synced.
    pub(crate) fn reuse(&mut self) {
        self.free = self.state.head;
    }

    /// What was written so far, for [`Journal::sync_to`].
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.writes
    }

    /// Whether what was written up to `need` is durable; sees to it that it
    /// will be.
    #[inline]
    pub(crate) fn sync_to(&mut self, need: u64) -> Result<bool, JournalError> {
        while self.durable < need {
            let now = Sync { writes: self.writes, tail: self.state.tail };
            let sync = *self.syncing.get_or_insert(now);
            match self.store.sync() {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(())) => {
                    (self.durable, self.state.synced) = (sync.writes, sync.tail);
                    self.syncing = None;
                }
                Poll::Ready(Err(e)) => {
                    // Where this cannot be written either, a start that finds something damaged
                    // cannot know why, and refuses.
                    self.state.life = None;
                    let _ = self.store.write(0, &self.state.encode());
                    return Err(JournalError::store("syncing it")(e));
                }
            }
        }
        Ok(true)
    }

    /// Whether a sync is under way.
    #[inline]
    pub(crate) fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Nobody waits any more for a sync that is under way.
    pub(crate) fn forget_sync(&mut self) {
        self.syncing = None;
    }

    /// What it lies in.
    pub(crate) fn into_store(self) -> N {
        self.store
    }

    /// Writes at a position, round the end.
    #[inline]
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), JournalError> {
        self.writes += 1;
        let start = at % self.state.bytes;
        let first = bytes.len().min((self.state.bytes - start) as usize);
        let written = self.store.write(AREA_START + start, &bytes[..first]).and_then(|()| {
            if first < bytes.len() { self.store.write(AREA_START, &bytes[first..]) } else { Ok(()) }
        });
        written.map_err(JournalError::store("writing an entry"))
    }

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        let start = at % self.state.bytes;
        let first = bytes.len().min((self.state.bytes - start) as usize);
        let (front, back) = bytes.split_at_mut(first);
        self.store.read(AREA_START + start, front)?;
        if back.is_empty() { Ok(()) } else { self.store.read(AREA_START, back) }
    }
}
