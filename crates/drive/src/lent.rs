//! A drive lent to the block layer.
//!
//! Whoever owns it can still read its figures, from any thread, and gets it
//! back when the layer is dropped. It may be told to count time from a later
//! moment, so that a drive that was preconditioned in virtual time goes on
//! with a clock that starts at zero. Costs a plain store of each number a look.
//! When the disk below a drive file is full or fails, or the drive takes no more
//! writes, that is told once on standard error, and requests that fail for want of
//! room say so.
//!
//! Guarantees: the drive comes back exactly once, in the state it was left.
//! Fails when the layer is still there, or its thread died.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use device::ChunkCount;
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Status, Time};
use targets::WriteCounters;

use crate::error::Error;
use crate::live::{self, Glimpse, Live, Place, Seen};
use crate::say::say;
use crate::shared::Shared;
use crate::told::{Explained, Told};
use crate::whole::{Boxed, Drive, Observed, READ_ONLY};

/// Numbers that a drive's counters are.
const COUNTERS: usize = WriteCounters::WORDS;

/// What a drive tells of itself: its counters, then its free chunks. One
/// thread writes at a time; a reader may see some newer than others.
#[derive(Debug, Default)]
pub struct Figures {
    counters: [AtomicU64; COUNTERS],
    free_chunks: AtomicU64,
}

impl Figures {
    fn publish(&self, counters: &WriteCounters, free_chunks: u64) {
        for (place, value) in self.counters.iter().zip(counters.words()) {
            place.store(value, Ordering::Relaxed);
        }
        self.free_chunks.store(free_chunks, Ordering::Relaxed);
    }

    /// The drive's counters.
    pub fn counters(&self) -> WriteCounters {
        let words = self.counters.each_ref().map(|place| place.load(Ordering::Relaxed));
        WriteCounters::from_words(words)
    }

    /// Its free chunks.
    pub fn free_chunks(&self) -> u64 {
        self.free_chunks.load(Ordering::Relaxed)
    }
}

/// A drive that is lent.
pub struct Lent {
    /// There until this is dropped.
    drive: Option<Boxed>,
    /// The drive's time when time began here.
    base: u64,
    figures: Arc<Figures>,
    back: Sender<Boxed>,
    /// That its medium failed, and that it takes no more writes, was told.
    told: [bool; 2],
    /// What was asked of it, where somebody looks at that.
    live: Option<Box<Watched>>,
}

/// What was asked of a drive that somebody looks at.
struct Watched {
    live: Live,
    told: Told,
}

/// Who lent it.
pub struct Owner {
    /// What the drive tells.
    pub figures: Arc<Figures>,
    back: Receiver<Boxed>,
}

impl Owner {
    /// The drive again. The layer must have been dropped.
    pub fn take_back(self) -> Result<Boxed, Error> {
        let gone = |_| Error::Failed("the drive's thread died: this is a fault, report it".into());
        self.back.try_recv().map_err(gone)
    }
}

impl Lent {
    /// Lends a drive whose time is `base` when time here is zero.
    pub fn new(drive: Boxed, base: Time) -> (Lent, Owner) {
        let (back, receiver) = channel();
        let figures = Arc::new(Figures::default());
        figures.publish(&drive.counters(), drive.free_chunks());
        let owner = Owner { figures: figures.clone(), back: receiver };
        let (drive, base) = (Some(drive), base.0);
        (Lent { drive, base, figures, back, told: [false; 2], live: None }, owner)
    }

    /// The same, and counts what is asked of it, to be looked at ([`Seen`]). Nothing is
    /// inside; `tells` is whether its layers tell stories
    /// ([`crate::stack::needs_stories`]).
    pub fn watched(mut drive: Boxed, base: Time, tells: bool) -> (Lent, Owner) {
        let live = Live::of(&mut drive, base, tells);
        let (mut lent, owner) = Lent::new(drive, base);
        lent.live = Some(Box::new(Watched { live, told: Told::new() }));
        (lent, owner)
    }

    /// The drive, to look at.
    #[inline]
    pub fn drive(&self) -> &Boxed {
        self.drive.as_ref().expect("it is there until this is dropped")
    }

    /// Of the completions from `first` on, those that failed for want of room
    /// on the disk say so. Why writes fail for good is told.
    fn explain(&mut self, first: usize, done: &mut Ring<BlockDone>) {
        for i in first..done.len() {
            let Some(one) = done.get_mut(i) else { return };
            if one.status.is_ok() || one.op == BlockOp::Read {
                continue;
            }
            match self.tell_fault() {
                Some(true) => one.status = Status::DISK_FULL,
                Some(false) => {}
                None if self.drive().is_read_only() => self.tell_once(1, READ_ONLY),
                None => return,
            }
        }
    }

    /// Tells that its medium failed, where it did and that was not told; gives whether the disk
    /// was full.
    pub fn tell_fault(&mut self) -> Option<bool> {
        let (why, is_full) = self.drive().fault()?;
        let until = "the drive can only be read until it is opened again";
        self.tell_once(0, &format!("{why}; {until}"));
        Some(is_full)
    }

    /// Tells a reason, by its place in `told`, unless it was told.
    #[cold]
    fn tell_once(&mut self, reason: usize, text: &str) {
        if !std::mem::replace(&mut self.told[reason], true) {
            say(text);
        }
    }

    /// Tells what the drive has to tell, and of the completions from `first` on
    /// when they were, as time is here.
    fn tell(&mut self, first: usize, done: &mut Ring<BlockDone>) {
        let (counters, free_chunks) = (self.drive().counters(), self.drive().free_chunks());
        self.figures.publish(&counters, free_chunks);
        self.explain(first, done);
        if let (Some(live), Some(drive)) = (&mut self.live, &self.drive) {
            let Watched { live, told } = &mut **live;
            live.note((drive, Time(self.base)), first, done, told);
        }
        if self.base > 0 {
            for i in first..done.len() {
                if let Some(one) = done.get_mut(i) {
                    one.at = Time(one.at.since(Time(self.base)));
                }
            }
        }
    }

    /// Looks after what nobody reads, at the time here.
    pub fn tend(&mut self, now: Time) {
        let now = now + self.base;
        self.drive_mut().tend(now);
    }

    /// Has the drive hold nothing back for the sake of time, from `now` here on.
    pub fn hurry(&mut self, now: Time) {
        let now = now + self.base;
        self.drive_mut().hurry(now);
    }

    /// Several targets that share the device, where there are such, and the time of the
    /// drive when it is `now` here.
    pub fn shared(&mut self, now: Time) -> Option<(&mut Shared, Time)> {
        let now = now + self.base;
        Some((self.drive_mut().shared_mut()?, now))
    }

    #[inline]
    fn drive_mut(&mut self) -> &mut Boxed {
        self.drive.as_mut().expect("it is there until this is dropped")
    }
}

impl Port for Lent {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        let (now, before) = (now + self.base, cmds.len());
        if let Some(Watched { live, told }) = self.live.as_deref_mut()
            && live.tells
        {
            told.come(cmds);
        }
        self.drive_mut().submit(now, cmds);
        if let Some(Watched { live, told }) = self.live.as_deref_mut() {
            live.came(before - cmds.len());
            if live.tells {
                told.stay(cmds);
            }
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.drive().next_event().map(|at| Time(at.since(Time(self.base))))
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let (base, before) = (self.base, done.len());
        self.drive_mut().advance(to + base, done);
        self.tell(before, done);
    }

    fn catch_up(&mut self, last: &mut Time, to: Time, done: &mut Ring<BlockDone>) -> bool {
        let (base, before) = (self.base, done.len());
        if self.drive().next_event().is_none_or(|at| at > to + base) {
            return true;
        }
        let mut late = *last + base;
        let is_all = self.drive_mut().catch_up(&mut late, to + base, done);
        *last = Time(late.since(Time(base)));
        self.tell(before, done);
        is_all
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.drive().hint(req);
    }
}

impl Observed for Lent {
    fn counters(&self) -> WriteCounters {
        self.drive().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.drive().free_chunks()
    }
}

impl Seen for Lent {
    fn glimpse(&self, now: Time) -> Glimpse {
        let mut live = Live::default();
        if let Some(watched) = &self.live {
            live = watched.live.clone();
            let works = live.works.iter_mut().enumerate();
            works.for_each(|(op, work)| work.causes = watched.told.sum(op));
        }
        let inside = self.live.as_ref().map(|watched| watched.live.inside);
        Glimpse { at: now.0, live, inside, ..live::glimpse(self.drive(), now + self.base) }
    }

    fn explained(&self, now: Time) -> Option<Explained> {
        let watched = self.live.as_deref().filter(|watched| watched.live.tells)?;
        Some(watched.told.explained(now, Time(self.base)))
    }

    fn count_chunks(&self, from: Place, most: usize, count: &mut ChunkCount) -> Option<Place> {
        live::count_chunks(self.drive(), from, most, count)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(drive) = self.drive.take() {
            // Its owner may have given up on it.
            let _ = self.back.send(drive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;
    use crate::stack;
    use port::Buffer;

    /// Writes a block at `now`; gives when it completed.
    fn write<P: Port<Cmd = BlockReq, Done = BlockDone>>(drive: &mut P, now: u64) -> Time {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        let buffer = Buffer::zeroed(4096).unwrap();
        let (op, fua) = (BlockOp::Write, true);
        cmds.put(|| BlockReq { fua, ..BlockReq::new(3, op, 0, 4096, buffer) });
        drive.submit(Time(now), &mut cmds);
        loop {
            let at = drive.next_event().unwrap();
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                assert_eq!((done.id, done.at), (3, at));
                return at;
            }
        }
    }

    #[test]
    fn a_lent_drive_tells_and_comes_back() {
        let Ok(DriveSpec::Memory(spec)) = "mem:ref,size=16M".parse() else { panic!("a drive") };
        let config = spec.resolve().unwrap();
        let mut drive = stack::build(&config, 1).unwrap();
        let (base, first) = (1_000_000_000, write(&mut drive, 0).0);
        while let Some(at) = drive.next_event().filter(|&at| at <= Time(base)) {
            drive.advance(at, &mut Ring::new(1));
        }
        let bare = drive.counters();
        let (mut lent, owner) = Lent::new(drive, Time(base));
        assert_eq!(owner.figures.counters(), bare);
        let second = write(&mut lent, 5).0;
        assert_eq!(second - 5, first, "time begins at zero again");
        assert_eq!(owner.figures.counters(), lent.counters());
        assert!(owner.figures.counters().user > bare.user);
        drop(lent);
        let mut drive = owner.take_back().unwrap();
        assert!(write(&mut drive, base + second).0 > base + second);
    }
}
