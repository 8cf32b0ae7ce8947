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
use port::story::{Latest, Wanted};
use port::{BlockOp, Part, Story, Time, Whose};

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
    came: Time,
    /// How the clocks stood when it was let in, or when what is told of it so far ended.
    from: Waits,
    /// It waited for its page of the map before it was let in.
    was_parked: bool,
    /// Something is told of it so far: it is more than in the buffer or not.
    is_begun: bool,
}

/// What is kept of few: stories are long.
#[derive(Clone, Copy, Default)]
struct More {
    /// What it waited for its page of the map.
    parked: Story,
    /// What is told so far.
    so_far: Story,
}

/// What a story is made of when somebody asks.
#[derive(Clone, Copy, Default)]
enum Kind {
    /// The completion of the drive.
    Read,
    /// What it waited for the buffer.
    #[default]
    Write,
    /// It is made.
    Whole,
}

/// What is told of a request that has ended.
#[derive(Clone, Copy, Default)]
struct Ended {
    kind: Kind,
    start: Time,
    end: Time,
    below: u64,
    waits: Waits,
    whole: Story,
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
        let part = |behind: u64| match ns.checked_mul(behind) {
            Some(0) => 0,
            Some(product) => product / self.all,
            None => (u128::from(ns) * u128::from(behind) / u128::from(self.all)) as u64,
        };
        self.behind.map(part)
    }
}

/// What is kept to tell stories.
pub(super) struct Told {
    tales: Box<[Tale]>,
    more: Box<[More]>,
    wanted: Wanted,
    ended: Latest<Ended>,
    /// When the last one ended.
    last: Time,
    /// How many reads are among those that ended and were not given, of which the drive has
    /// what there is to tell.
    reads: usize,
    /// Completions of the drive that were given to be handled.
    heard: u64,
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
    pub is_first: bool,
}

impl Told {
    pub fn new(waiting: usize) -> Box<Told> {
        Box::new(Told {
            tales: vec![Tale::default(); DEPTH].into(),
            more: vec![More::default(); DEPTH].into(),
            wanted: Wanted::ALL,
            ended: Latest::new(DEPTH, waiting),
            last: Time::ZERO,
            reads: 0,
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

    /// From now on nobody asks for others.
    pub fn tell_only(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// The clocks stand as they do now.
    #[inline(always)]
    fn look(&mut self, now: Time) {
        if now != self.since {
            self.move_on(now);
        }
    }

    #[inline(never)]
    fn move_on(&mut self, now: Time) {
        let mut passed = now.since(self.since);
        if self.reason == ROWS {
            let [folds, collection] = self.rows.shares(passed);
            self.clocks[FOLDS] += folds;
            self.clocks[COLLECTION] += collection;
            passed -= folds + collection;
        }
        self.clocks[self.reason] += passed;
        self.since = now;
    }

    /// The next request that is let in, now, came at that time: it waited for a page.
    #[cold]
    pub fn was_parked(&mut self, came: Time, now: Time) {
        let mut story = Story::at(came);
        story.wait_for(Part::Map, self.page.as_ref(), now);
        self.parked = Some(story);
    }
}

/// A story goes on by what was waited for the buffer.
fn wait(story: &mut Story, waits: &Waits) {
    for (&reason, &ns) in REASONS.iter().zip(waits) {
        story.add(reason, ns);
    }
}

impl Told {
    /// The place of a request that ends now; `is_first` where all that ended before were
    /// given. These are forgotten when time has gone on.
    #[inline]
    fn next(&mut self, now: Time, is_first: bool) -> &mut Ended {
        if is_first && now != self.last {
            self.ended.forget();
            self.reads = 0;
        }
        self.last = now;
        self.ended.tell()
    }

    /// When a request was let in.
    fn since(&self, slot: u32) -> Time {
        let tale = &self.tales[slot as usize];
        if tale.was_parked { self.more[slot as usize].parked.end() } else { tale.came }
    }

    /// What is told of a request so far, or is from now on.
    fn so_far(&mut self, slot: u32) -> &mut Story {
        let since = self.since(slot);
        let (tale, more) = (&mut self.tales[slot as usize], &mut self.more[slot as usize]);
        if !tale.is_begun {
            (tale.is_begun, more.so_far) = (true, Story::at(since));
        }
        &mut more.so_far
    }

    /// What a request waited since what is told of it so far.
    #[inline]
    fn waited(&mut self, slot: u32, now: Time) -> Waits {
        self.look(now);
        let from = &self.tales[slot as usize].from;
        std::array::from_fn(|reason| self.clocks[reason] - from[reason])
    }
}

impl<D: OpenChannel> Pblk<D> {
    /// The story of a request begins that is let in.
    #[inline(always)]
    pub(super) fn begin_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let tale = &mut told.tales[slot as usize];
        (tale.came, tale.was_parked, tale.is_begun) = (now, false, false);
        if told.parked.is_some() {
            self.begin_parked(slot);
        }
    }

    /// The same of one that may be no read.
    #[inline(never)]
    pub(super) fn begin_any_story(&mut self, slot: u32, now: Time) {
        self.begin_story(slot, now);
        let Some(told) = &mut self.told else { return };
        if self.host.requests[slot].op != BlockOp::Read {
            told.look(now);
            told.tales[slot as usize].from = told.clocks;
            told.is_first |= self.host.waiting.is_empty() && self.host.merges.is_empty();
        }
    }

    /// The same of one that waited for a page.
    #[cold]
    #[inline(never)]
    fn begin_parked(&mut self, slot: u32) {
        if let Some(told) = &mut self.told
            && let Some(parked) = told.parked.take()
        {
            let tale = &mut told.tales[slot as usize];
            (tale.came, tale.was_parked) = (parked.start(), true);
            told.more[slot as usize].parked = parked;
        }
    }

    /// The story of a request that is done when it comes, as the last one that ended.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_at_once(&mut self, now: Time) {
        let Some(told) = &mut self.told else { return };
        let is_first = self.host.ready.len() == 1;
        if let Some(parked) = &told.parked {
            let mut story = Story::at(now);
            story.after(parked);
            told.parked = None;
            let ended = told.next(now, is_first);
            (ended.kind, ended.whole) = (Kind::Whole, story);
        } else if told.wanted.has(0, now) {
            let ended = told.next(now, is_first);
            (ended.start, ended.end) = (now, now);
            (ended.kind, ended.waits) = (Kind::Write, Waits::default());
        } else {
            told.ended.pass_over();
        }
    }

    /// What a request waited for until now was the buffer.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let waits = told.waited(slot, now);
        told.tales[slot as usize].from = told.clocks;
        wait(told.so_far(slot), &waits);
    }

    /// What a write waited for until now were the old bytes of a part of a block.
    #[cold]
    #[inline(never)]
    pub(super) fn fetch_story(&mut self, slot: u32, now: Time) {
        let below = self.last_below().and_then(|number| self.device.story(number));
        let Some(told) = &mut self.told else { return };
        told.look(now);
        told.tales[slot as usize].from = told.clocks;
        told.so_far(slot).wait_for(Part::Partial, below.as_ref(), now);
    }

    /// The number of the completion of the drive that is handled, or was last.
    #[inline]
    fn last_below(&self) -> Option<u64> {
        let handled = self.told.as_ref()?.heard - self.wire.done.len() as u64;
        handled.checked_sub(1)
    }

    /// A request ends, which is the last one that did.
    #[inline(always)]
    pub(super) fn end_story(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        if told.wanted.has(now - told.tales[slot as usize].came, now) {
            self.note_end(slot, now);
        } else {
            told.ended.pass_over();
        }
    }

    /// Of it a story is asked for. Mostly what it is made of is noted.
    #[inline(never)]
    fn note_end(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let Tale { came: start, was_parked, is_begun, .. } = told.tales[slot as usize];
        let Request { op, fua, .. } = self.host.requests[slot];
        if was_parked | is_begun | fua | (op == BlockOp::Flush) {
            return self.tell_whole_story(slot, now);
        }
        if op != BlockOp::Read {
            return self.tell_write(slot, now);
        }
        // Where nothing was heard yet it is of none.
        let below = (told.heard - self.wire.done.len() as u64).wrapping_sub(1);
        let ended = told.next(now, self.host.ready.len() == 1);
        (ended.kind, ended.start, ended.end, ended.below) = (Kind::Read, start, now, below);
        told.reads += 1;
    }

    /// The same of a write that was in the buffer or not.
    #[inline(never)]
    fn tell_write(&mut self, slot: u32, now: Time) {
        let Some(told) = &mut self.told else { return };
        let waits = told.waited(slot, now);
        let start = told.tales[slot as usize].came;
        let ended = told.next(now, self.host.ready.len() == 1);
        (ended.kind, ended.start, ended.end, ended.waits) = (Kind::Write, start, now, waits);
    }

    /// The same of one of which more is told.
    #[cold]
    #[inline(never)]
    fn tell_whole_story(&mut self, slot: u32, now: Time) {
        let below = self.last_below().and_then(|number| self.device.story(number));
        let Some(told) = &mut self.told else { return };
        let Request { op, fua, .. } = self.host.requests[slot];
        let Tale { was_parked, is_begun, .. } = told.tales[slot as usize];
        let start = told.since(slot);
        let mut story = match is_begun {
            true => told.more[slot as usize].so_far,
            false => Story::at(start),
        };
        if op == BlockOp::Read {
            story = below.unwrap_or_default();
            story.around(below.is_some(), start, Part::Queue, now);
        } else if op == BlockOp::Flush || fua {
            story.go_on(Part::Flush, below.as_ref(), now);
        } else {
            wait(&mut story, &told.waited(slot, now));
        }
        if was_parked {
            story.after(&told.more[slot as usize].parked);
        }
        let ended = told.next(now, self.host.ready.len() == 1);
        (ended.kind, ended.whole) = (Kind::Whole, story);
    }

    /// Tells the story of a request that so many ended before in place of another; false where
    /// there is none.
    pub(super) fn tell_of(&self, number: u64, story: &mut Story) -> bool {
        let Some(ended) = self.told.as_ref().and_then(|told| told.ended.get(number)) else {
            return false;
        };
        match ended.kind {
            Kind::Whole => *story = ended.whole,
            Kind::Read => {
                let is_told = self.device.tell_story(ended.below, story);
                story.around(is_told, ended.start, Part::Queue, ended.end);
            }
            Kind::Write => {
                story.restart(ended.start);
                wait(story, &ended.waits);
            }
        }
        true
    }

    /// Whether reads are to be [made stories of](Pblk::make_stories) before the drive goes
    /// on.
    #[inline]
    pub(super) fn has_reads_to_tell(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.reads > 0)
    }

    /// Makes the stories of the reads that ended and were not given: the drive forgets what
    /// it has of them.
    #[cold]
    #[inline(never)]
    pub(super) fn make_stories(&mut self) {
        let Some(count) = self.told.as_ref().map(|told| told.ended.count()) else { return };
        for number in count - self.host.ready.len() as u64..count {
            let mut story = Story::default();
            if self.tell_of(number, &mut story)
                && let Some(told) = &mut self.told
                && let Some(ended) = told.ended.get_mut(number)
            {
                (ended.kind, ended.whole) = (Kind::Whole, story);
            }
        }
        self.told.iter_mut().for_each(|told| told.reads = 0);
    }

    /// So much of what the drive has done is handled from now on.
    #[inline]
    pub(super) fn hear(&mut self) {
        if let Some(told) = &mut self.told {
            told.heard += self.wire.done.len() as u64;
        }
    }

    /// Takes note of rows and reads of pages of the map among what is handled next. Before
    /// them there are at most reads, which ask for neither.
    #[inline(never)]
    pub(super) fn hear_others(&mut self) {
        let Some(told) = &mut self.told else { return };
        let mut rows = Rows::default();
        for n in 0..self.wire.done.len() {
            let number = told.heard - (self.wire.done.len() - n) as u64;
            let Some(done) = self.wire.done.get(n) else { break };
            match Cookie::unpack(done.cookie) {
                Cookie::Program(_) => {
                    let whose = [Whose::Drive, Whose::Collection];
                    let Some((ns, behind)) = self.device.waited_behind(number, whose) else {
                        continue;
                    };
                    rows.all += ns;
                    rows.behind.iter_mut().zip(behind).for_each(|(all, ns)| *all += ns);
                }
                Cookie::Load(_) | Cookie::MapPage(_) => {
                    told.page = self.device.story(number).or(told.page);
                }
                _ => {}
            }
        }
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

    /// Notes why writes wait from now on, where some do: something has happened.
    #[inline(never)]
    pub(super) fn note_reason(&mut self, now: Time) {
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
        // A clock that runs on need not be looked at, but for the one that is shared.
        if reason != told.reason || reason == ROWS {
            told.look(now);
            told.reason = reason;
        }
    }
}
