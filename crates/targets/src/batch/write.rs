//! A batch on its way: what is known of it from when it is taken until it has ended.

use flash::Ppa;
use port::Buffer;

use super::location::Location;
use super::map::Map;
use super::page::{Kind, Page};
use super::record::{Entry, What};
use super::space::Stream;

/// How far a batch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Idle,
    /// Its pages of MAP are being brought into memory.
    Gather,
    /// Its record waits for a row of the log, or that row is being written.
    Queued,
    /// Its pages are being programmed.
    Writing,
    /// The RDESC_A of those that failed waits for a row of the log.
    Amending,
    /// All are programmed.
    Written,
    /// All are durable.
    Synced,
}

/// A row of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub at: Ppa,
    /// Positions in the list.
    pub from: u16,
    pub count: u16,
}

/// A batch.
pub(super) struct Write {
    /// What its record is; fixed by its place in the table.
    pub stream: Stream,
    pub stage: Stage,
    /// The request's number, and its buffer.
    pub id: u64,
    pub buffer: Buffer,
    /// Which one of the host's batches it was.
    pub arrival: u64,
    pub lsn: u64,
    pub entries: Vec<Entry>,
    /// Of each page: where its bytes are.
    pub from: Vec<u32>,
    /// Of each page: the place where its program failed.
    pub was: Vec<Location>,
    /// Pages of MAP that are pinned, and of these those that are there.
    pub acquired: usize,
    pub loaded: usize,
    /// The pages that are being written: all, or those that failed.
    pub list: Vec<u16>,
    pub parts: u16,
    pub parts_done: u16,
    /// The last so many of the list are given up: they have no data.
    pub given_up: usize,
    /// Of the others the last so many go into the row of the log.
    pub in_row: usize,
    pub rows: Vec<Row>,
    pub outstanding: u32,
    pub failed: Vec<u16>,
    pub syncing: bool,
    /// Chunks that are left to it were counted.
    pub admitted: bool,
    /// The collector that made it.
    pub owner: Option<u8>,
}

impl Write {
    /// An idle one with room for `pages`.
    pub fn new(stream: Stream, pages: usize) -> Write {
        Write {
            stream,
            stage: Stage::Idle,
            id: 0,
            buffer: Buffer::empty(),
            arrival: 0,
            lsn: 0,
            entries: Vec::with_capacity(pages),
            from: Vec::with_capacity(pages),
            was: Vec::with_capacity(pages),
            acquired: 0,
            loaded: 0,
            list: Vec::with_capacity(pages),
            parts: 0,
            parts_done: 0,
            given_up: 0,
            in_row: 0,
            rows: Vec::with_capacity(pages),
            outstanding: 0,
            failed: Vec::with_capacity(pages),
            syncing: false,
            admitted: false,
            owner: None,
        }
    }

    /// What its record is.
    pub fn what(&self) -> What {
        match self.stream {
            Stream::User => What::User,
            Stream::Collect => What::Collect,
            Stream::Meta => What::Meta,
        }
    }

    /// Whether it has places for all its pages, while no row of the log is being
    /// written.
    pub fn is_placed(&self) -> bool {
        match self.stage {
            Stage::Idle | Stage::Gather | Stage::Amending => false,
            Stage::Queued => self.lsn > 0,
            Stage::Writing | Stage::Written | Stage::Synced => true,
        }
    }

    /// Begins anew, with no page.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.from.clear();
        (self.acquired, self.loaded, self.lsn, self.given_up) = (0, 0, 0, 0);
        (self.syncing, self.admitted) = (false, false);
    }

    /// Pages of the list that have data.
    pub fn data(&self) -> usize {
        self.list.len() - self.given_up
    }

    /// One page more: its id, where its bytes are, and the LSN that wrote them.
    pub fn add(&mut self, id: u64, from: u32, prior: Location, seq: u64) {
        self.entries.push(Entry { id, new: Location::NONE, prior, seq });
        self.from.push(from);
    }

    /// The page of MAP that entry `n` needs in memory.
    pub fn map_page(&self, n: usize) -> Option<usize> {
        let id = self.entries[n].id;
        match self.stream {
            Stream::User | Stream::Collect => Some(Map::split(id).0),
            Stream::Meta => match Page::from_name(id).expect("it was named here") {
                Page { kind: Kind::Map, number } => Some(number as usize),
                _ => None,
            },
        }
    }
}
