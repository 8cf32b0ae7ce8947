//! Several targets on one drive: together a block drive, of which each has a part of the
//! addresses.
//!
//! Whoever has one name for all of it uses it like any block drive; a request that lies in
//! two targets, or is longer than its target takes, is cut. A flush that names a range is for the targets in it alone.
//!
//! Guarantees: the rules of [`Port`]; a target that is slow or full holds up its own
//! requests and no other's, as long as nobody has more for it than its
//! [depth](Shared::shape_of), and there is one line of requests to all; targets come and
//! go while others work, and none of their requests is lost or late for it; nothing is
//! allocated but when one comes. What cannot be had when one comes is an error; one that is
//! not found again on a drive is told of, and the others are served.

mod keys;
mod lives;
mod requests;

pub use lives::Found;

use std::error::Error;

use device::OpenChannel;
use ftl::{Over, WriteCounters};
use port::{
    BlockDone, BlockOp, BlockReq, Buffer, Pieces, Port, Ring, Shape, Slots, Status, Time, Turn,
    turn_by_events,
};
use thiserror::Error;

use crate::error::MediaError;
use crate::manager::{Media, earliest};
use crate::partition::Partition;

/// Completions that are taken from a target at once.
const DONE: usize = 64;

/// Why there is no more target.
#[derive(Debug, Error)]
pub enum CreateError<E: Error> {
    /// Its chunks cannot be had.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// It cannot be made on them.
    #[error(transparent)]
    Target(E),
}

/// A request that is inside.
#[derive(Debug)]
struct Whole {
    id: u64,
    op: BlockOp,
    status: Status,
    at: Time,
    /// Pieces to come; [`UNCUT`] where its target has it as it is.
    left: u32,
    buffer: Pieces,
}

const UNCUT: u32 = u32::MAX;

impl Default for Whole {
    fn default() -> Whole {
        let (op, status, buffer) = (BlockOp::Flush, Status::SUCCESS, Pieces::default());
        Whole { id: 0, op, status, at: Time::ZERO, left: 0, buffer }
    }
}

/// How far a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// It takes no requests yet.
    Waits,
    Serves,
    /// It takes no more requests, and goes when the last has ended.
    Leaves,
    /// It is being shut down.
    Closes,
}

/// A target and its requests.
#[derive(Debug)]
struct Guest<T> {
    target: Box<T>,
    shape: Shape,
    /// It keeps values by key, and has no addresses.
    is_keyed: bool,
    /// The first of its addresses.
    first: u64,
    life: Life,
    /// Requests that came to it first.
    inside: Slots<Whole>,
    /// Those that the target has not taken yet.
    waiting: Ring<BlockReq>,
    /// Requests and pieces that it has, those that wait among them; of one with keys also
    /// what completed and was not taken.
    held: usize,
    /// When it wants to be looked at, whatever the drive does.
    due: Option<Time>,
}

impl<T> Guest<T> {
    fn end(&self) -> u64 {
        self.first + self.shape.bytes
    }

    fn leaves(&self) -> bool {
        matches!(self.life, Life::Leaves | Life::Closes)
    }
}

/// Several targets on one drive.
#[derive(Debug)]
pub struct Shared<D, T> {
    /// Nobody has it between two calls.
    media: Option<Box<Media<D>>>,
    guests: Vec<Option<Guest<T>>>,
    /// What applications have that ask the flash themselves.
    direct: Vec<Partition<D>>,
    shape: Shape,
    /// What ended and found no room yet.
    ready: Ring<BlockDone>,
    pieces: Ring<BlockDone>,
    now: Time,
    /// When the first of the targets wants to be looked at, whatever the drive does.
    due: Option<Time>,
    /// Targets with requests that wait: a bit each.
    waiting: u64,
    /// The target that the last request was for.
    last: usize,
    /// Targets that leave.
    leaving: usize,
    /// Those that there are: a bit each.
    present: u64,
    /// The same, by their numbers.
    numbers: Vec<usize>,
    /// Those that keep values by key, and those of which requests by key have completed that
    /// nobody took: a bit each.
    keyed: u64,
    keys_done: u64,
    gone: WriteCounters,
}

const HERE: &str = "the drive is taken back from every target";

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Shared<D, T> {
    /// A drive without a target. It is a block drive when it has one.
    pub fn new(device: D) -> Shared<D, T> {
        let shape = Shape { bytes: 0, kept: device.kept(), max_bytes: 0, depth: 0 };
        Shared {
            media: Some(Box::new(Media::new(device))),
            guests: Vec::new(),
            direct: Vec::new(),
            shape,
            ready: Ring::new(DONE),
            pieces: Ring::new(DONE),
            now: Time::ZERO,
            due: None,
            waiting: 0,
            last: 0,
            leaving: 0,
            present: 0,
            numbers: Vec::new(),
            keyed: 0,
            keys_done: 0,
            gone: WriteCounters::default(),
        }
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Guest<T>)> {
        self.guests.iter().enumerate().filter_map(|(n, guest)| Some((n, guest.as_ref()?)))
    }

    fn guest(&mut self, target: usize) -> &mut Guest<T> {
        self.guests[target].as_mut().expect("it is there")
    }

    /// The numbers of its targets, in their order.
    pub fn numbers(&self) -> &[usize] {
        &self.numbers
    }

    /// What targets wrote and collected that are gone.
    pub fn gone(&self) -> WriteCounters {
        self.gone
    }

    /// A target.
    ///
    /// # Panics
    /// Without such a one.
    pub fn target(&self, target: usize) -> &T {
        &self.guests[target].as_ref().expect("it is there").target
    }

    /// A target, to be told what takes no look at the drive.
    ///
    /// # Panics
    /// Without such a one.
    pub fn target_mut(&mut self, target: usize) -> &mut T {
        &mut self.guest(target).target
    }

    /// The outside of a target: its bytes begin at [`Shared::first_of`].
    ///
    /// # Panics
    /// Without such a one.
    pub fn shape_of(&self, target: usize) -> Shape {
        self.guests[target].as_ref().expect("it is there").shape
    }

    /// The first address of a target.
    ///
    /// # Panics
    /// Without such a one.
    pub fn first_of(&self, target: usize) -> u64 {
        self.guests[target].as_ref().expect("it is there").first
    }

    /// The outside of all of them: up to the last address of any. As many may be inside as
    /// each of the targets takes, so that who has so many for one target is never refused,
    /// and others behind it do not wait.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn direct(&self) -> &[Partition<D>] {
        &self.direct
    }

    pub(crate) fn direct_mut(&mut self) -> &mut Vec<Partition<D>> {
        &mut self.direct
    }

    /// Who has what of the drive.
    pub fn media(&self) -> &Media<D> {
        self.media.as_ref().expect(HERE)
    }

    /// Who has what, and the drive, to be told what is no command.
    pub fn media_mut(&mut self) -> &mut Media<D> {
        self.media.as_mut().expect(HERE)
    }

    /// Takes the targets away, as a power cut does.
    pub fn into_device(self) -> D {
        self.media.expect(HERE).into_device()
    }

    /// Has a target look at what the drive has to tell.
    pub fn heed_notices(&mut self, now: Time) {
        for n in 0..self.guests.len() {
            if self.guests[n].is_some() {
                self.lent(n, |target, _| target.heed_notices(now));
            }
        }
        self.look();
    }

    /// Has a target hold nothing back for the sake of time, or again as its rules say.
    ///
    /// Fails without such a one.
    pub fn set_hurried(
        &mut self,
        target: usize,
        is_hurried: bool,
        now: Time,
    ) -> Result<(), MediaError> {
        if self.is_gone(target) {
            return Err(MediaError::NoTarget(target));
        }
        self.now = self.now.max(now);
        self.lent(target, |target, _| target.set_hurried(is_hurried, now));
        self.look();
        Ok(())
    }

    /// Shuts all targets down. No request may be inside.
    pub fn close(&mut self, now: Time) {
        for n in 0..self.guests.len() {
            if self.guests[n].is_some() {
                self.lent(n, |target, _| target.close(now));
            }
        }
        self.look();
    }

    /// Whether all are shut down.
    pub fn is_closed(&self) -> bool {
        self.all().all(|(_, guest)| guest.target.is_closed())
    }

    /// Lets a target work, with the drive. What it completes is in `pieces`.
    #[inline]
    fn lent(
        &mut self,
        target: usize,
        work: impl FnOnce(&mut T, (&mut Ring<BlockReq>, &mut Ring<BlockDone>)),
    ) {
        let Shared { media, guests, pieces, .. } = self;
        let guest = guests[target].as_mut().expect("it is there");
        guest.target.below_mut().lend(media.take().expect(HERE));
        work(&mut guest.target, (&mut guest.waiting, pieces));
        *media = Some(guest.target.below_mut().take_back());
        let (before, due) = (guest.due, guest.target.next_event());
        guest.due = due;
        if guest.waiting.is_empty() {
            self.waiting &= !(1 << target);
        }
        if before != due {
            self.look();
        }
    }

    /// Looks when the first target has something to do by itself.
    fn look(&mut self) {
        self.due = self.all().filter_map(|(_, guest)| guest.due).min();
    }

    /// Whether something has completed that an application has not taken, or who asks by key.
    fn is_for_others(&self) -> bool {
        self.keys_done != 0 || self.media().news() & !self.present != 0
    }

    /// When something is to be done beside what the drive does.
    fn next_due(&self) -> Option<Time> {
        if !self.ready.is_empty() || self.media().news() & self.present != 0 {
            return Some(self.now);
        }
        self.due
    }

    /// The target that serves an address.
    fn serving(&mut self, address: u64) -> Option<usize> {
        let has = |guest: &Guest<T>| {
            guest.first <= address && address < guest.end() && guest.life == Life::Serves
        };
        if !self.guests.get(self.last)?.as_ref().is_some_and(has) {
            let found = self.guests.iter().position(|guest| guest.as_ref().is_some_and(has));
            self.last = found?;
        }
        Some(self.last)
    }

    /// Lets a target do what it can at `to`. False when nothing came of it.
    fn work(&mut self, n: usize, to: Time, done: &mut Ring<BlockDone>) -> bool {
        let mut any = self.media().has_news(n);
        let live = self.media().live(n);
        let mut left = 0;
        self.lent(n, |target, (waiting, pieces)| {
            target.advance(to, pieces);
            left = waiting.len();
            if left > 0 {
                target.submit(to, waiting);
            }
            left -= waiting.len();
        });
        any |= left > 0 || !self.pieces.is_empty() || self.media().live(n) != live;
        if self.keyed & 1 << n != 0 {
            self.note_keys(n);
        }
        self.hand_out(n, done);
        any
    }

    /// Gives what a target completed, or keeps it for want of room.
    fn hand_out(&mut self, n: usize, done: &mut Ring<BlockDone>) {
        self.guest(n).held -= self.pieces.len();
        while let Some(piece) = self.pieces.front() {
            let (home, slot) = ((piece.id >> 32) as usize, piece.id as u32);
            let guest = self.guests[home].as_mut().expect("it waits for its requests");
            let whole = &mut guest.inside[slot];
            if whole.left == UNCUT {
                let id = whole.id;
                guest.inside.give(slot);
                let to = if self.ready.is_empty() && done.room() > 0 {
                    &mut *done
                } else {
                    &mut self.ready
                };
                self.pieces.pop_to(to).id = id;
                continue;
            }
            let Some(BlockDone { status, at, buffer, .. }) = self.pieces.pop() else { return };
            whole.left -= 1;
            whole.at = whole.at.max(at);
            whole.buffer.give(buffer);
            if whole.status.is_ok() || whole.status == Status::HIGH_ECC {
                whole.status = if status.is_ok() { whole.status } else { status };
            }
            if whole.left == 0 {
                let (id, op, status, at) = (whole.id, whole.op, whole.status, whole.at);
                let buffer = std::mem::take(&mut whole.buffer).whole();
                guest.inside.give(slot);
                self.ready.put(|| BlockDone { id, op, status, at, buffer });
            }
        }
    }
}

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Shared<D, T> {
    /// Lets each target do what it can at `to`: those for which something has completed, and
    /// those that want to be looked at. False when nothing came of it.
    fn serve(&mut self, to: Time, done: &mut Ring<BlockDone>) -> bool {
        let mut any = false;
        let mut news = self.media().news() & self.present;
        while news != 0 {
            any |= self.work(news.trailing_zeros() as usize, to, done);
            news &= news - 1;
        }
        if self.due.is_some_and(|due| due <= to) {
            for n in 0..self.guests.len() {
                let is_due = |guest: &Guest<T>| guest.due.is_some_and(|due| due <= to);
                if self.guests[n].as_ref().is_some_and(is_due) {
                    any |= self.work(n, to, done);
                }
            }
        }
        if self.leaving > 0 {
            for n in 0..self.guests.len() {
                if self.guests[n].as_ref().is_some_and(Guest::leaves) {
                    self.see_off(n);
                }
            }
        }
        any
    }
}

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Port for Shared<D, T> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.now = self.now.max(now);
        while self.accept(cmds) {}
        let mut waiting = self.waiting;
        while waiting != 0 {
            let n = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            self.lent(n, |target, (waiting, _)| target.submit(now, waiting));
        }
    }

    fn next_event(&self) -> Option<Time> {
        earliest(self.next_due(), self.media().next_event())
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.now = self.now.max(to);
        self.ready.pour(done);
        loop {
            let is_due = self.media().next_event().is_some_and(|at| at <= to);
            let stepped = is_due && self.media_mut().step(to);
            let served = self.serve(to, done);
            let is_done = self.next_event().is_none_or(|at| at > to) || done.room() == 0;
            if is_done || !(stepped || served) {
                break;
            }
        }
        self.ready.pour(done);
    }

    /// Until a target has something to do by itself the drive goes on alone.
    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Turn {
        if !cmds.is_empty() {
            self.submit(now, cmds);
        }
        while cmds.is_empty() {
            let due = earliest(self.next_due(), self.media().next_hand_out());
            let before = due.map(|due| Time(due.0.saturating_sub(1)));
            if before.is_some_and(|before| before < self.now.max(now)) {
                break;
            }
            match self.media_mut().turn(now, earliest(until, before)) {
                Turn::Completed(at) => {
                    self.now = self.now.max(at);
                    self.serve(at, done);
                    self.ready.pour(done);
                    if !done.is_empty() || self.is_for_others() {
                        return Turn::Completed(at);
                    }
                }
                // Then it is the target's turn.
                Turn::Quiet if due.is_some_and(|due| until.is_none_or(|until| due <= until)) => {
                    break;
                }
                nothing_more => return nothing_more,
            }
        }
        if self.direct.is_empty() && self.keyed == 0 {
            return turn_by_events(self, until, cmds, done);
        }
        // As that, but what others wait for ends it, too.
        let mut last = None;
        while let Some(at) = self.next_event().filter(|&at| until.is_none_or(|until| at <= until)) {
            if last == Some(at) {
                return Turn::Stays(at);
            }
            self.advance(at, done);
            if !done.is_empty() || self.is_for_others() {
                return Turn::Completed(at);
            }
            if !cmds.is_empty() {
                self.submit(at, cmds);
            }
            last = Some(at);
        }
        Turn::Quiet
    }

    fn hint(&self, req: &BlockReq) {
        let has = |guest: &&Guest<T>| guest.first <= req.offset && req.offset < guest.end();
        let Some(guest) = self.guests.iter().flatten().find(has) else { return };
        let &BlockReq { id, op, fua, placement, queue, offset, len, .. } = req;
        let (offset, buffer) = (offset - guest.first, Buffer::empty());
        guest.target.hint(&BlockReq { id, op, fua, placement, queue, offset, len, buffer });
    }
}
