//! What is told of a request: a read has the story of the drive's read that ended
//! last; a write what it waited for until it was in the buffer; a flush, or a write
//! that ends with one, the story of the command that it waited for last, where that
//! was sent after it came.
//!
//! Writes wait for one reason at a time, which is the first one's. So there is a
//! clock for each reason, and what a request waited is how far they have moved on.
//! While rows are on their way the time is shared: as much of it goes to folds, and to
//! collection, as the rows that ended last had waited behind these, of all that they took.

use device::OpenChannel;
use port::{BlockOp, Part, Stories, Story, Time, Whose};

use super::requests::Request;
use super::{Cookie, DEPTH, Pblk};

/// Why writes may wait.
const REASONS: [Part; 5] =
    [Part::RoomRows, Part::RoomCollection, Part::Partial, Part::Log, Part::RoomFolds];

/// Their numbers.
const ROWS: usize = 0;
const COLLECTION: usize = 1;
const PARTIAL: usize = 2;
const LOG: usize = 3;
const FOLDS: usize = 4;

type Waits = [u64; REASONS.len()];

/// What is kept of a request.
#[derive(Clone, Copy, Default)]
struct Tale {
    /// What it waited for its page of the map before it was let in, where it did.
    parked: Option<Story>,
    /// When it was let in.
    since: Time,
    /// How the clocks stood then, or when what is told of it so far ended.
    from: Waits,
    /// What is told so far of one that is more than in the buffer or not.
    story: Option<Story>,
}

/// What rows took, all of it, and of that behind folds and behind collection.
#[derive(Clone, Copy, Default)]
struct Rows {
    all: u64,
    behind: [u64; 2],
}

impl Rows {
    /// The parts of so long that went to folds and to collection.
    fn shares(&self, ns: u64) -> [u64; 2] {
        let part = |behind: u64| {
            if behind == 0 {
                0
            } else {
                (u128::from(ns) * u128::from(behind) / u128::from(self.all)) as u64
            }
        };
        self.behind.map(part)
    }
}

/// What is kept to tell stories.
pub(super) struct Told {
    tales: Box<[Tale]>,
    pub stories: Box<Stories>,
    /// Completions of the drive that were given to be handled.
    pub heard: u64,
    clocks: Waits,
    /// The clock that runs, and since when.
    reason: usize,
    since: Time,
    /// What the request has waited that is let in now, if it came before.
    parked: Option<Story>,
    /// The read of a page of the map that ended last.
    page: Option<Story>,
    /// Of the rows that ended last, at the same time.
    rows: Rows,
    /// Whether nothing had waited when the last write came.
    is_first: bool,
}

impl Told {
    pub fn new(waiting: usize) -> Box<Told> {
        Box::new(Told {
            tales: vec![Tale::default(); DEPTH].into(),
            stories: Stories::new(DEPTH, waiting),
            heard: 0,
            clocks: Waits::default(),
            reason: 0,
            since: Time::ZERO,
            parked: None,
            page: None,
            rows: Rows::default(),
            is_first: false,
        })
    }

    /// How the clocks stand.
    #[inline]
    fn look(&mut self, now: Time) -> Waits {
        let mut passed = now.since(self.since);
        if passed == 0 {
            return self.clocks;
        }
        if self.reason == ROWS {
            let [folds, collection] = self.rows.shares(passed);
            self.clocks[FOLDS] += folds;
            self.clocks[COLLECTION] += collection;
            passed -= folds + collection;
        }
        self.clocks[self.reason] += passed;
        self.since = now;
        self.clocks
    }

    /// The next request that is let in, now, came at that time: it waited for a page.
    #[cold]
    pub fn was_parked(&mut self, came: Time, now: Time) {
        let mut story = Story::at(came);
        story.wait_for(Part::Map, self.page.as_ref(), now);
        self.parked = Some(story);
    }
}

impl Tale {
    /// When it came.
    fn came(&self) -> Time {
        self.parked.as_ref().map_or(self.since, Story::start)
    }

    /// What was told so far goes on to now by what it waited for the buffer.
    #[inline]
    fn wait(&mut self, clocks: &Waits, story: &mut Story) {
        for ((&reason, to), from) in REASONS.iter().zip(clocks).zip(self.from) {
            story.add(reason, to - from);
        }
        self.from = *clocks;
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// The story begins of a request that was let in.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let tale = &mut told.tales[slot as usize];
        tale.since = now;
        // A story is long: where there is none, none is moved.
        if tale.parked.is_some() || told.parked.is_some() {
            tale.parked = told.parked.take();
        }
        if self.host.requests[slot].op != BlockOp::Read {
            let clocks = told.look(now);
            let tale = &mut told.tales[slot as usize];
            tale.from = clocks;
            if tale.story.is_some() {
                tale.story = None;
            }
            told.is_first |= self.host.waiting.is_empty() && self.host.merges.is_empty();
        }
    }

    /// The story of a request that is done when it comes.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_at_once(&mut self, now: Time) {
        let Some(told) = &mut self.told else { return };
        let took = told.parked.as_ref().map_or(0, Story::ns);
        if !told.stories.pass_over(took, now) {
            let story = told.stories.tell(now);
            told.parked.iter().for_each(|parked| story.after(parked));
        }
        if told.parked.is_some() {
            told.parked = None;
        }
    }

    /// What a request waited for until now was the buffer.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let clocks = told.look(now);
        let tale = &mut told.tales[slot as usize];
        let mut story = tale.story.unwrap_or_else(|| Story::at(tale.since));
        tale.wait(&clocks, &mut story);
        tale.story = Some(story);
    }

    /// What a write waited for until now were the old bytes of a part of a block.
    #[cold]
    #[inline(never)]
    pub(super) fn fetch_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let from = told.look(now);
        let tale = &mut told.tales[slot as usize];
        let story = tale.story.get_or_insert_with(|| Story::at(tale.since));
        let handled = told.heard - self.wire.done.len() as u64;
        story.go_on(Part::Partial, self.device.story(handled - 1), now);
        tale.from = from;
    }

    /// A request ends.
    #[cold]
    #[inline(never)]
    pub(super) fn end_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        if !told.stories.pass_over(now - told.tales[slot as usize].came(), now) {
            self.tell_story(slot, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let Request { op, fua, .. } = self.host.requests[slot];
        let clocks = (op != BlockOp::Read).then(|| told.look(now));
        let tale = &mut told.tales[slot as usize];
        let handled = told.heard - self.wire.done.len() as u64;
        let below = handled.checked_sub(1).and_then(|number| self.device.story(number));
        let story = match (op, tale.story) {
            (BlockOp::Read, _) => told.stories.end(tale.since, below, Part::Queue, now),
            (_, None) => told.stories.tell(tale.since),
            (_, Some(so_far)) => {
                let story = told.stories.tell(now);
                *story = so_far;
                story
            }
        };
        if op != BlockOp::Read && (fua || op == BlockOp::Flush) {
            story.go_on(Part::Flush, below, now);
        } else if let Some(clocks) = clocks {
            tale.wait(&clocks, story);
        }
        if let Some(parked) = &tale.parked {
            story.after(parked);
        }
    }

    /// Takes note of what the drive has done and is handled next: rows that ended, and
    /// reads of pages of the map.
    #[cold]
    #[inline(never)]
    pub(super) fn hear(&mut self) {
        let Some(told) = &mut self.told else { return };
        let mut rows = Rows::default();
        for n in 0..self.wire.done.len() {
            let number = told.heard + n as u64;
            let Some(done) = self.wire.done.get(n) else { break };
            match Cookie::unpack(done.cookie) {
                Cookie::Program(_) => {
                    let Some(story) = self.device.story(number) else { continue };
                    rows.all += story.ns();
                    let behind = [Whose::Drive, Whose::Collection].map(|w| story.waited_behind(w));
                    rows.behind.iter_mut().zip(behind).for_each(|(all, ns)| *all += ns);
                }
                Cookie::Load(_) | Cookie::MapPage(_) => {
                    told.page = self.device.story(number).copied().or(told.page);
                }
                _ => {}
            }
        }
        told.heard += self.wire.done.len() as u64;
        if rows.all > 0 {
            told.rows = rows;
        }
    }
}

impl Cookie {
    /// Whose such a command is, of what every one of them is.
    #[inline(always)]
    pub(super) fn whose(&self) -> Whose {
        match self {
            Cookie::Read(..) | Cookie::Partial(..) | Cookie::Program(_) | Cookie::Flush => {
                Whose::User
            }
            Cookie::Survivors(_) | Cookie::Reset(_) | Cookie::Retire(_) | Cookie::Pad(..) => {
                Whose::Collection
            }
            Cookie::Own(_)
            | Cookie::Anchor(_)
            | Cookie::Load(_)
            | Cookie::MapPage(_)
            | Cookie::Sync => Whose::Metadata,
        }
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// Whose it is what a parallel unit's collection moves.
    #[inline]
    pub(super) fn whose_moved(&self, rank: usize) -> Whose {
        if self.collectors.of[rank].is_asked { Whose::Refresh } else { Whose::Collection }
    }

    /// Notes why writes wait from now on, where some do and something has happened.
    #[cold]
    #[inline(never)]
    pub(super) fn note_reason(&mut self, now: Time, acted: bool) {
        let Some(told) = &mut self.told else { return };
        if !std::mem::take(&mut told.is_first) && !acted {
            return;
        }
        let merged = self.host.merges.front().map(|&number| self.host.partials[number].request);
        let Some(first) = merged.or_else(|| self.host.waiting.front().copied()) else { return };
        let stream = self.host.requests[first].stream;
        let waiting = self.stripe.ready.len();
        let reason = if self.units.filling[stream].is_some() || self.units.has_free() {
            let is_log = !self.saved.log.has_room();
            if is_log { LOG } else { PARTIAL }
        } else {
            // Where all parallel units had as many rows as they take, it would be these.
            let is_busy = self.units.of_user() as usize - waiting >= self.stripe.most_rows();
            if waiting == 0 || is_busy { ROWS } else { COLLECTION }
        };
        let Some(told) = &mut self.told else { return };
        told.look(now);
        told.reason = reason;
    }
}
