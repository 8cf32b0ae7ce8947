//! A drive that is looked after when nobody uses it, on the thread that drives
//! it.

use device::{ChunkCount, Link};
use exports::listen::StopHandle;
use port::{BatchDone, BatchOp, KvDone, KvOp, Port, Ring, Status, Time};

use crate::serve::BEAT;
use drive::batched::BoxedBatch;
use drive::kv::KvDrive;
use drive::lent::Lent;
use drive::live::{Glimpse, Place, Seen};
use drive::lower::Lower;
use drive::say::say;
use drive::told::Explained;

/// What is to be looked after now and then.
pub trait Tend: Port {
    /// Looks after what nobody reads, at `now`.
    fn tend(&mut self, now: Time);

    /// From `now` on nothing in it waits for the sake of time: it is to end soon.
    fn hurry(&mut self, _now: Time) {}

    /// Of the completions from `first` on, those that failed for want of room
    /// on the disk say so. The first time, `told`, so does the program.
    fn explain(&self, _first: usize, _done: &mut Ring<Self::Done>, _told: &mut bool) {}
}

impl Tend for Lent {
    fn tend(&mut self, now: Time) {
        Lent::tend(self, now);
    }

    fn hurry(&mut self, now: Time) {
        Lent::hurry(self, now);
    }
}

/// What failed, and was no read, failed by the medium's fault where that has one.
fn explain<'a>(lower: &dyn Lower, failed: impl Iterator<Item = &'a mut Status>, told: &mut bool) {
    for status in failed {
        let Some((why, is_full)) = lower.device().medium().fault() else { return };
        if is_full {
            *status = Status::CAPACITY_EXCEEDED;
        }
        if !std::mem::replace(told, true) {
            say(format!("{why}; until then the drive can only be read"));
        }
    }
}

impl Tend for Link<BoxedBatch> {
    fn tend(&mut self, now: Time) {
        self.below_mut().tend(now);
    }

    fn explain(&self, first: usize, done: &mut Ring<BatchDone>, told: &mut bool) {
        for i in first..done.len() {
            let failed =
                done.get_mut(i).filter(|one| !one.status.is_ok() && one.op != BatchOp::Read);
            explain(self.below().lower(), failed.map(|one| &mut one.status).into_iter(), told);
        }
    }
}

/// What grows old on it is not written anew: its target does not do that.
impl Tend for Link<KvDrive> {
    fn tend(&mut self, _now: Time) {}

    fn explain(&self, first: usize, done: &mut Ring<KvDone>, told: &mut bool) {
        let faults = [Status::WRITE_FAULT, Status::READ_ONLY];
        for i in first..done.len() {
            let failed = done.get_mut(i).filter(|one| {
                faults.contains(&one.status) && !matches!(one.op, KvOp::Get | KvOp::Exists)
            });
            explain(self.below().lower(), failed.map(|one| &mut one.status).into_iter(), told);
        }
    }
}

/// A drive whose data do not grow old unseen.
pub struct Tended<P> {
    drive: P,
    /// When it is looked after next.
    due: Time,
    /// Why it fails was told.
    told: bool,
    /// Says when it is to end, until it was told so.
    stop: Option<StopHandle>,
}

impl<P: Tend> Tended<P> {
    /// Looks after `drive` from now on.
    pub fn new(drive: P) -> Tended<P> {
        Tended { drive, due: beat(Time::ZERO), told: false, stop: None }
    }

    /// The same, which holds nothing back by rules once it is stopped: from its next event on,
    /// within a [`BEAT`].
    pub fn until(self, stop: StopHandle) -> Tended<P> {
        Tended { stop: Some(stop), ..self }
    }

    /// The drive again.
    pub fn into_drive(self) -> P {
        self.drive
    }
}

impl<P: Seen> Seen for Tended<P> {
    fn glimpse(&self, now: Time) -> Glimpse {
        self.drive.glimpse(now)
    }

    fn explained(&self, now: Time) -> Option<Explained> {
        self.drive.explained(now)
    }

    fn count_chunks(&self, from: Place, most: usize, count: &mut ChunkCount) -> Option<Place> {
        self.drive.count_chunks(from, most, count)
    }
}

fn beat(now: Time) -> Time {
    now + BEAT.as_nanos() as u64
}

impl<P: Tend> Port for Tended<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.drive.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        Some(self.drive.next_event().map_or(self.due, |at| at.min(self.due)))
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        if self.drive.next_event().is_some_and(|at| at <= to) {
            let first = done.len();
            self.drive.advance(to, done);
            self.drive.explain(first, done, &mut self.told);
        }
        if self.stop.take_if(|stop| stop.is_stopped()).is_some() {
            self.drive.hurry(to);
        }
        if to >= self.due {
            self.due = beat(to);
            self.drive.tend(to);
        }
    }
}
