//! Checkpoints: the map to flash, while the drive serves.
//!
//! A checkpoint begins at a moment T0. It notes how far each chunk is written,
//! waits until the rows sent before have settled, writes the pages of map and
//! chunk table that changed, then the pages of the directory that these moved,
//! and ends with a root. It is fuzzy: pages are written as they are at their
//! turn. It is incremental: what did not change stays where it is.
//!
//! Why recovery needs to read only the rows sent after T0, and may let their
//! copies win over the pages':
//! - what was sent before T0 has settled before the first page is written;
//! - a row, when it is sent, holds only copies that still count: a copy that
//!   was replaced or given up while it waited becomes padding. Rows whose
//!   copies may be older than some on their way, those of collection and those
//!   that failed, are not sent before what was on its way at T0 has settled;
//! - of two copies sent after T0 the one with the higher number is the newer,
//!   and a record made after T0 tells which copies it gives up;
//! - a record that was made before the first page was written gives up no entry
//!   of a page: it may be older than that. A lost block's next copy may be in
//!   a row sent before T0, which the page knows, and no row that is read;
//! - a chunk is erased only when newer copies of its blocks are programmed, or
//!   the records that gave them up are.
//!
//! The old root and all it leads to stay until the new one is durable; where no
//! mirror takes that, they stay.

use device::{Content, OpenChannel, VectorOp};
use flash::{Chunk, ChunkState, Ppa};
use ftl::all_chunks;
use port::lazy::room_for;
use port::{BLOCK_BYTES, Buffer, OutOfMemory, Status, Time};

use super::idle::Idle;
use super::map::Place;
use super::meta::ANCHORS;
use super::mutation::{Mutation, is};
use super::record::Kind;
use super::root::Root;
use super::table::{Entry, Use};
use super::{Cookie, Pblk, WriteCounters};

/// Rows written between checkpoints, for each row that the last one wrote: so
/// that they take little of the drive.
const ROWS_PER_ROW: u64 = 512;

/// Rows between checkpoints for each parallel unit, at least and at most. The
/// most bounds how long recovery reads.
const LEAST_ROWS: u64 = 16;
const MOST_ROWS: u64 = 8192;

/// A drive with many chunks looks at all of them at T0: rows between
/// checkpoints are at least a part of their number.
const CHUNKS_PER_ROW: u64 = 8;

/// Rows left to a root when the log is written.
pub(super) const ROOT_ROWS: usize = 2;

/// Rows left to both when pages are written.
pub(super) const PAGES_LEAVE: usize = ROOT_ROWS + 2;

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// None is under way.
    #[default]
    Idle,
    /// Rows that were on their way at T0 are to settle.
    Settling,
    /// Pages of the map, from this one on.
    Map(u64),
    /// Pages of the chunk table.
    Table(u64),
    /// All pages are on their way.
    Placing,
    /// Pages of the directory.
    Directory(u64),
    /// Those are on their way.
    Closing,
    /// What the root leads to is made durable.
    Syncing,
    /// The root is on its way.
    Root,
    /// The root is made durable.
    Ending,
}

/// Checkpoints: the one under way, and when the next is due.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    phase: Phase,
    /// Data rows on their way that were sent before T0.
    settling: u32,
    /// The row being gathered.
    pub gathering: Option<u32>,
    /// Rows of pages on their way.
    pub outstanding: usize,
    /// The drive's flush is on its way.
    syncing: bool,
    /// Rows written by the one under way, and how many it was to be at T0.
    pub written: u64,
    planned: u64,
    /// Rows sent since the last T0, and between the T0 before and that.
    pub rows: u64,
    rows_before: u64,
    /// Data rows after which the next begins.
    interval: u64,
    /// One is to begin, however little was written.
    asked: bool,
    /// The root under way, or the last one.
    pub root: Root,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The drive is being shut down.
    pub closing: bool,
    /// It is.
    pub closed: bool,
}

impl Checkpoint {
    /// With a root of at most `bytes`.
    pub fn new(bytes: usize, pus: u32, chunks: usize) -> Result<Checkpoint, OutOfMemory> {
        let interval = Checkpoint::rows_after(0, pus, chunks);
        let bytes = room_for(bytes, "the target's checkpoints")?;
        Ok(Checkpoint { bytes, interval, ..Checkpoint::default() })
    }

    /// Rows sent since the T0 of the last root that is durable.
    pub fn since(&self) -> u64 {
        self.rows + self.rows_before
    }

    /// Whether the pages should be further: they are to be on flash when half
    /// of the rows to the next checkpoint are sent.
    pub fn is_late(&self) -> bool {
        self.written * self.interval < 2 * self.planned * self.rows
    }

    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether what only older ones led to is about to be erased.
    pub fn is_ending(&self) -> bool {
        self.phase == Phase::Ending
    }

    /// Has one begin soon. False where that was asked for before.
    pub fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// Data rows from one to the next.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Rows until the next, when the last wrote `written` rows.
    fn rows_after(written: u64, pus: u32, chunks: usize) -> u64 {
        let pus = u64::from(pus);
        let least = (LEAST_ROWS * pus).max(chunks as u64 / CHUNKS_PER_ROW);
        (written * ROWS_PER_ROW).clamp(least, (MOST_ROWS * pus).max(least))
    }

    /// Whether rows of older copies have to wait.
    #[inline]
    pub fn is_settling(&self) -> bool {
        self.settling > 0
    }

    /// One of the rows sent before T0 has settled.
    pub fn settled(&mut self) {
        self.settling -= 1;
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Shuts the target down: what is in the buffer is written, then a
    /// checkpoint. Nothing may be inside, and nothing be submitted after.
    /// Done when [`Pblk::is_closed`] says so, which takes the drive's events.
    pub fn close(&mut self, now: Time) {
        self.saved.checkpoint.closing = true;
        self.idle = Idle::default();
        self.send_part_units();
        self.touch_all();
        self.follow(now);
    }

    /// Whether it is shut down: all is durable and opens at once.
    pub fn is_closed(&self) -> bool {
        self.saved.checkpoint.closed
    }

    /// Whether a checkpoint is due.
    #[inline]
    fn is_due(&self) -> bool {
        let c = &self.saved.checkpoint;
        if self.load.is_some() || c.closed {
            return false;
        }
        if c.closing {
            return self.is_at_rest();
        }
        !self.facts.read_only && (c.asked || c.rows >= c.interval || self.saved.log.is_long())
    }

    /// Goes on with checkpoints as far as can be. With nothing to be made
    /// durable any more, the one under way has no root: what the last one leads
    /// to stays.
    #[inline]
    pub(super) fn go_on_with_checkpoint(&mut self) {
        if !self.saved.checkpoint.is_idle() || self.is_due() {
            self.checkpoint_step();
        }
    }

    #[cold]
    fn checkpoint_step(&mut self) {
        while !self.facts.dead && self.checkpoint_once() {}
    }

    /// Does one thing for a checkpoint. False when something must happen first.
    fn checkpoint_once(&mut self) -> bool {
        match self.saved.checkpoint.phase {
            Phase::Idle if self.is_due() => self.begin_checkpoint(),
            Phase::Idle => return false,
            Phase::Settling if self.saved.checkpoint.settling > 0 && !is(Mutation::NoSettling) => {
                return false;
            }
            Phase::Settling => {
                self.saved.checkpoint.phase = Phase::Map(0);
                self.saved.checkpoint.root.settled = self.saved.log.last;
                self.saved.log.seal();
                self.note_failed();
            }
            Phase::Map(from) => return self.write_map_page(from),
            Phase::Table(from) => return self.write_table_page(from),
            Phase::Placing if self.saved.checkpoint.outstanding > 0 => return false,
            Phase::Closing if self.saved.checkpoint.outstanding > 0 && !is(Mutation::RootFirst) => {
                return false;
            }
            Phase::Placing => self.saved.checkpoint.phase = Phase::Directory(0),
            Phase::Directory(from) => return self.write_directory_page(from),
            Phase::Closing => {
                self.saved.checkpoint.phase = Phase::Syncing;
                return !self.sync_checkpoint();
            }
            // Rows that are sent meanwhile ask, too.
            Phase::Syncing | Phase::Ending if self.saved.checkpoint.syncing => return false,
            Phase::Syncing => {
                self.saved.checkpoint.phase = Phase::Root;
                self.begin_root();
            }
            Phase::Root if self.saved.mirrors.iter().any(|mirror| mirror.busy) => return false,
            Phase::Root => {
                self.saved.checkpoint.phase = Phase::Ending;
                return !self.sync_checkpoint();
            }
            // A mirror that could not take it may now lose what it has.
            Phase::Ending if !self.is_everywhere() => {
                self.saved.checkpoint.phase = Phase::Root;
                self.send_root();
            }
            // What is read is not erased.
            Phase::Ending if self.map_cache.as_ref().is_some_and(|c| c.is_reading()) => {
                return false;
            }
            Phase::Ending => {
                self.end_checkpoint();
                // Requests may wait for pages that were not read meanwhile.
                self.facts.news |= self.map_cache.is_some();
            }
        }
        true
    }

    /// Writes the root that a start took up once more, under a new number.
    pub(super) fn renew_root(&mut self) {
        let root = &mut self.saved.checkpoint.root;
        (root.number, root.clean) = (root.number + 1, false);
        self.saved.checkpoint.phase = Phase::Closing;
        self.facts.news = true;
    }

    /// Whether the checkpoint of this number is under way.
    pub(super) fn is_checkpointing(&self, number: u64) -> bool {
        self.saved.checkpoint.phase != Phase::Idle && self.saved.checkpoint.root.number == number
    }

    /// Makes durable what was programmed, where that takes a command. False
    /// where it does not.
    fn sync_checkpoint(&mut self) -> bool {
        if !self.device.is_cached() {
            return false;
        }
        self.saved.checkpoint.syncing = true;
        let (cookie, op) = (Cookie::Sync, VectorOp::Flush);
        self.send(|| Self::run(cookie, op, Ppa(0), 0, Content::Data, Buffer::empty()));
        true
    }

    /// The drive's flush for a checkpoint is over.
    #[cold]
    pub(super) fn checkpoint_synced(&mut self, status: Status) {
        self.saved.checkpoint.syncing = false;
        self.facts.news = true;
        if !status.is_ok() {
            // Nothing new can be made durable: the old root stays the one.
            self.give_up_writing();
        }
    }

    /// T0.
    fn begin_checkpoint(&mut self) {
        let seq = self.units.last_seq();
        self.saved.checkpoint.root = Root {
            number: self.saved.checkpoint.root.number + 1,
            blocks: self.map.blocks(),
            entry: self.map.entry_bytes(),
            chunks: self.geometry.chunk_slots() as u64,
            seq,
            record: self.saved.log.last,
            settled: self.saved.log.last,
            log_page: self.saved.log.page,
            clean: self.saved.checkpoint.closing,
            counters: WriteCounters {
                // Of rows that get their number later, all is found by it.
                user: self.counters.user - self.units.gathered(),
                ..self.counters
            },
            directory: std::mem::take(&mut self.saved.checkpoint.root.directory),
        };
        self.saved.log.seal();
        self.saved.log.begin_rows();
        self.note_chunks(seq);
        self.condemn();
        self.saved.checkpoint.settling = self.units.mark_sent();
        let pages = self.map.dirty_pages() + self.saved.table.dirty_pages();
        let c = &mut self.saved.checkpoint;
        c.planned = pages.div_ceil(self.geometry.row_blocks().into());
        (c.rows_before, c.rows, c.written) = (c.rows, 0, 0);
        c.asked = false;
        self.saved.checkpoint.phase = Phase::Settling;
    }

    /// Enters all chunks into the table as they are now.
    fn note_chunks(&mut self, seq: u64) {
        let geometry = self.geometry;
        let size = geometry.chunk_blocks();
        for pu in geometry.pus_channels_first() {
            for chunk in (0..geometry.chunks()).map(|n| geometry.chunk_of(pu, n)) {
                let of = self.device.chunk(chunk);
                let before = self.saved.table.get(chunk);
                // One that is being retired, or to which rows are on their way, may
                // yet be as it was; one that was erased though the erase failed
                // may be begun again after a restart.
                let stage = &self.chunks[chunk];
                let is_empty = of.wp == 0 && stage.rows == 0;
                let is_leaving = stage.is_erasing() && of.wp == 0;
                let is_gone = of.state == ChunkState::Offline || is_empty;
                let entry = if is_gone && !is_leaving {
                    Entry { wear: of.wear, ..Entry::default() }
                } else {
                    let wear = self.settled_wear(chunk, &of);
                    let same =
                        before.used == Use::Data && (before.wear, before.next) == (wear, size);
                    let age = if same { before.age } else { seq };
                    // Those that are still on their way to a failed one may
                    // not have come to the drive: how far it is is noted when
                    // they have. One that was left may be gone on with after a
                    // restart, too.
                    let is_short = stage.failed || stage.end > 0;
                    let is_settled = is_short && stage.rows == 0;
                    let next = if is_settled { self.end_of_short(chunk) } else { size };
                    Entry { wear, used: Use::Data, next, age }
                };
                self.saved.table.set(chunk, entry);
            }
            let rank = self.stripe.rank(pu);
            let open = self.stripe.opened(rank).chain(self.collectors.of[rank].open);
            for open in open.filter(|_| !is(Mutation::SkipOpenChunks)) {
                let entry =
                    Entry { next: open.next, age: seq, ..self.saved.table.get(open.chunk()) };
                self.saved.table.set(open.chunk(), Entry { used: Use::Data, ..entry });
            }
            for number in self.space.free(pu) {
                let chunk = geometry.chunk_of(pu, number);
                let wear = self.device.chunk(chunk).wear;
                self.saved.table.set(chunk, Entry { wear, ..Entry::default() });
            }
        }
        // Rows of own blocks that are on their way do not settle before the root
        // is durable: they are not counted. Without them the chunk may not be
        // begun, and be another's in the same life.
        let row = geometry.row_blocks();
        for (&chunk, own) in &self.saved.meta.chunks {
            let of = self.device.chunk(chunk);
            let entered = own.erasing && of.wp == 0;
            let begun = if own.erasing { size } else { of.programmed / row * row };
            let (wear, next) = (of.wear - u32::from(entered), begun);
            self.saved.table.set(chunk, Entry { wear, used: Use::Own, next, age: own.order });
        }
        // Also those that were given up: they never hold data.
        for pu in geometry.pus_channels_first() {
            let anchors = (0..ANCHORS).map(|number| geometry.chunk_of(pu, number));
            anchors.for_each(|chunk| self.saved.table.set(chunk, Entry::default()));
        }
    }

    /// How far a chunk is written that failed or was left. It takes no more rows
    /// now, but perhaps after a restart: these must be found. One that is being
    /// retired or erased may then be as it was, with copies that are not new. Padding
    /// on its way to it may never come, and its place be taken by such rows.
    fn end_of_short(&self, chunk: usize) -> u32 {
        let of = self.device.chunk(chunk);
        if of.wp == 0 { self.chunks[chunk].end } else { of.programmed }
    }

    /// All that was on its way at T0 has settled, or has failed: the chunks of
    /// which a program failed are now as they stay.
    fn note_failed(&mut self) {
        let geometry = self.geometry;
        for chunk in all_chunks(&geometry) {
            if !self.chunks[chunk].failed {
                continue;
            }
            let (entry, next) = (self.saved.table.get(chunk), self.end_of_short(chunk));
            if entry.used == Use::Data && next < entry.next {
                self.saved.table.set(chunk, Entry { next, ..entry });
            }
        }
    }

    /// The wear that tells a chunk's life for certain. The drive counts an erase
    /// when it takes it, but power may go before it is done, and the old life
    /// be back: its copies are not new.
    fn settled_wear(&self, chunk: usize, of: &Chunk) -> u32 {
        of.wear.saturating_sub(u32::from(self.chunks[chunk].is_erasing() && of.wp == 0))
    }

    /// Units that have begun many own chunks empty the older ones: their pages
    /// are written again. So are those of chunks that have aged.
    fn condemn(&mut self) {
        let geometry = self.geometry;
        let mut by_pu = std::collections::BTreeMap::<usize, Vec<(u64, usize)>>::new();
        for (&chunk, own) in self.saved.meta.chunks.iter().filter(|(_, own)| !own.erasing) {
            let pu = geometry.pu_index(geometry.chunk_start(chunk));
            by_pu.entry(pu).or_default().push((own.order, chunk));
        }
        let mut condemned = self.leave_aged();
        for (pu, mut chunks) in by_pu {
            if chunks.len() as u32 > self.space.pus[pu].own_span() {
                chunks.sort_unstable();
                chunks.pop();
                condemned.extend(chunks.into_iter().map(|(_, chunk)| chunk));
            }
        }
        if condemned.is_empty() {
            return;
        }
        let map_pages = self.map.pages();
        for page in 0..self.saved.meta.len() {
            let Some(ppa) = self.saved.meta.page(page) else { continue };
            if !condemned.contains(&geometry.chunk_index(ppa)) {
                continue;
            }
            match page.checked_sub(map_pages) {
                None => self.map.touch(page),
                Some(page) => self.saved.table.touch(page),
            }
        }
        condemned.into_iter().for_each(|chunk| self.saved.meta.touch_directory_in(chunk));
    }

    fn write_map_page(&mut self, from: u64) -> bool {
        let Some(row) = self.own_row() else { return false };
        let Some(page) = self.map.take_dirty(from) else {
            self.saved.checkpoint.phase = Phase::Table(0);
            return true;
        };
        if let Some(cache) = &mut self.map_cache {
            cache.is_stuck = false;
            self.facts.news = true;
        }
        if is(Mutation::SkipPage) && (page + self.saved.checkpoint.root.number).is_multiple_of(3) {
            self.saved.checkpoint.phase = Phase::Map(page + 1);
            return true;
        }
        let (map, units) = (&self.map, &self.units);
        let durable = |mut place: Place| {
            while let Some(slot) = place.slot() {
                place = units.slot(slot).old;
            }
            place
        };
        let number = self.saved.checkpoint.root.number;
        let what = (Kind::Page, page);
        self.saved.meta.add_page(row, what, number, |bytes| map.encode(page, bytes, durable));
        self.saved.checkpoint.phase = Phase::Map(page + 1);
        self.send_full_own_row(row);
        true
    }

    fn write_table_page(&mut self, from: u64) -> bool {
        let Some(row) = self.own_row() else { return false };
        let Some(page) = self.saved.table.take_dirty(from) else {
            self.send_last_own_row();
            self.saved.checkpoint.phase = Phase::Placing;
            return true;
        };
        let what = (Kind::Page, self.map.pages() + page);
        let (table, number) = (&self.saved.table, self.saved.checkpoint.root.number);
        self.saved
            .meta
            .add_page(row, what, number, |bytes| bytes.copy_from_slice(table.page(page)));
        self.saved.checkpoint.phase = Phase::Table(page + 1);
        self.send_full_own_row(row);
        true
    }

    fn write_directory_page(&mut self, from: u64) -> bool {
        let Some(row) = self.own_row() else { return false };
        let Some(page) = self.saved.meta.take_dirty_directory(from) else {
            self.send_last_own_row();
            self.saved.checkpoint.phase = Phase::Closing;
            return true;
        };
        let (what, number) = ((Kind::Directory, page), self.saved.checkpoint.root.number);
        let mut bytes = [0; BLOCK_BYTES as usize];
        self.saved.meta.encode_directory(page, &mut bytes);
        self.saved.meta.add_page(row, what, number, |to| to.copy_from_slice(&bytes));
        self.saved.checkpoint.phase = Phase::Directory(page + 1);
        self.send_full_own_row(row);
        true
    }

    /// Whether what the chunk table says to be written is programmed. It must
    /// be when the root is durable: recovery does not look at it again.
    fn is_table_true(&self) -> bool {
        all_chunks(&self.geometry).all(|chunk| {
            let (of, entry) = (self.device.chunk(chunk), self.saved.table.get(chunk));
            let is_over = of.wear != entry.wear || entry.used == Use::None || of.wp == 0;
            // One of which a program failed is closed early.
            is_over || of.state != ChunkState::Open || entry.next <= of.programmed
        })
    }

    /// The root is durable: what only older ones led to is erased.
    fn end_checkpoint(&mut self) {
        debug_assert!(self.is_table_true() || is(Mutation::NoSettling));
        let pus = self.geometry.total_pus();
        let c = &mut self.saved.checkpoint;
        c.interval = Checkpoint::rows_after(c.written, pus, self.geometry.chunk_slots());
        c.phase = Phase::Idle;
        c.rows_before = 0;
        (c.closed, c.root.clean) = (c.root.clean, false);
        let (record, log_page) = (c.root.record, c.root.log_page);
        self.saved.log.covered(record);
        self.erase_dead_own(log_page);
        self.release_erases();
    }
}
