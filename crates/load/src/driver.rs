//! Drivers: who owns time while a load runs.
//!
//! [`Virtual`] jumps to the next event, so nothing depends on how fast this
//! machine is. [`Real`] reads the processor's clock once a turn and takes all
//! that is due. Both give the same drive the same rules: a late poll delays
//! what is seen, never what the drive does.
//!
//! May fail: a drive that stops with requests inside, which is a fault of its
//! own.

use clap::ValueEnum;
use device::realtime::RealTime;
use flash::Energy;
use measure::{Gauges, Programmed};
use port::story::Wanted;
use port::{BlockDone, BlockReq, Ring, Story, Time, Turn};
use targets::WriteCounters;

use drive::error::Error;
use drive::patience::Patience;
use drive::whole::{Boxed, Drive, Observed};

/// How often somebody is asked whether to go on, in turns that never sleep.
pub const TURNS: u32 = 16384;

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockKind {
    /// The drive's: jumps from event to event.
    Virtual,
    /// The processor's.
    Real,
}

/// Moves requests into a drive, completions out, and time on.
pub trait Driver {
    /// Whether completions are seen later than they happen.
    fn is_real(&self) -> bool {
        false
    }

    /// The time that the last turn ended with.
    fn now(&self) -> Time;

    /// Submits a prefix of `queue`, goes on to the next thing that happens,
    /// and puts completions into `done`. In virtual time it goes no further
    /// than `arrival`, when the next request is to start. Gives the new time.
    fn turn(
        &mut self,
        arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error>;

    /// Says that `req` will come soon.
    #[inline]
    fn hint(&self, _req: &BlockReq) {}

    /// Whether that is of use to it.
    fn takes_hints(&self) -> bool {
        true
    }

    /// From now on the drive tells of each request where its time went, or no more.
    fn set_stories(&mut self, _on: bool) {}

    /// It may leave out all others.
    fn tell_only(&mut self, _wanted: Wanted) {}

    /// Tells the story of a completion that so many were given before since then in place of
    /// another; false where nobody tells.
    fn tell_story(&self, _number: u64, _story: &mut Story) -> bool {
        false
    }

    /// With nothing outside, lets the drive finish what it does by itself.
    /// Where time is not ours to jump, it does nothing.
    fn rest(&mut self) {}

    /// Whether a run that was stopped may leave requests inside after a moment.
    /// Where time is ours to jump, they end at once, and it does not.
    fn may_leave(&self) -> bool {
        false
    }

    /// Whether it failed because whoever has the drive is gone, so that what was
    /// measured until then is all there will be.
    fn is_lost(&self) -> bool {
        false
    }

    /// After how many turns somebody is asked whether to go on.
    fn patience(&self) -> u32 {
        TURNS
    }

    /// What the drive wrote and collected; zeros where nobody tells.
    fn counters(&self) -> WriteCounters {
        WriteCounters::default()
    }

    /// Free chunks; zero where nobody tells.
    fn free_chunks(&self) -> u64 {
        0
    }

    /// Blocks programmed for parity, where there is any and somebody tells.
    fn parity_blocks(&self) -> Option<u64> {
        None
    }

    /// Blocks folded out of an SLC cache, where there is one and somebody tells.
    fn folded_blocks(&self) -> Option<u64> {
        None
    }

    /// From now on its dies tell how long they work, or no more.
    fn set_die_clocks(&mut self, _on: bool) {}

    /// How long the array of each die worked until `at` since then, in ns; none where
    /// nobody tells.
    fn dies_worked(&self, _at: Time) -> Vec<u64> {
        Vec::new()
    }

    /// The energy that the drive has taken for what it has begun, and at rest until
    /// `at`; none where nobody tells.
    fn energy(&self, _at: Time) -> Energy {
        Energy::default()
    }

    /// What a series wants to know.
    #[cold]
    fn gauges(&self) -> Gauges {
        let c = self.counters();
        Gauges {
            programmed: Programmed {
                user: c.user,
                gc: c.gc,
                padding: c.padding,
                metadata: c.metadata,
                parity: self.parity_blocks(),
                folds: self.folded_blocks(),
            },
            free_chunks: self.free_chunks(),
            collections: c.collections,
            erases: c.erases,
        }
    }
}

/// A drive in virtual time.
pub struct Virtual<D> {
    drive: D,
    now: Time,
    patience: Patience,
}

impl<D: Observed> Virtual<D> {
    /// A drive that is switched on now, at time zero.
    pub fn new(drive: D) -> Virtual<D> {
        Virtual { drive, now: Time::ZERO, patience: Patience::default() }
    }

    /// A drive whose time is `now`: what was due until then happens first. What
    /// completes is dropped: whoever asked for it has given it up.
    pub fn at(drive: D, now: Time) -> Virtual<D> {
        let mut all = Virtual { drive, now, patience: Patience::default() };
        all.let_pass(|event| event <= now);
        all.now = now;
        all
    }

    /// Lets all that is inside finish, given up by whoever asked for it, and
    /// what follows from it.
    pub fn drain(&mut self) {
        self.let_pass(|_| true);
    }

    /// Lets events happen as long as they are `due`, and drops what completes.
    fn let_pass(&mut self, due: impl Fn(Time) -> bool) {
        let mut done = Ring::new(1);
        while let Some(event) = self.drive.next_event().filter(|&at| due(at)) {
            self.now = event;
            self.drive.advance(event, &mut done);
            while done.pop().is_some() {}
            self.patience.look(event);
        }
    }

    /// The drive and its time.
    pub fn into_drive(self) -> (D, Time) {
        (self.drive, self.now)
    }

    /// The drive.
    pub fn drive(&self) -> &D {
        &self.drive
    }

    /// The drive, to be told something while nothing is inside.
    pub fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }
}

impl<D: Observed> Driver for Virtual<D> {
    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn turn(
        &mut self,
        arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        loop {
            match self.drive.turn(self.now, arrival, queue, done) {
                Turn::Completed(at) => {
                    self.now = at;
                    return Ok(at);
                }
                Turn::Quiet => {
                    let at = arrival.ok_or_else(stopped)?;
                    self.now = self.now.max(at);
                    return Ok(self.now);
                }
                Turn::Stays(at) => {
                    self.now = at;
                    self.patience.look(at);
                    if !queue.is_empty() {
                        return Ok(at);
                    }
                }
            }
        }
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.drive.hint(req);
    }

    fn set_stories(&mut self, on: bool) {
        self.drive.set_stories(on);
    }

    fn tell_only(&mut self, wanted: Wanted) {
        self.drive.tell_only(wanted);
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.drive.tell_story(number, story)
    }

    fn rest(&mut self) {
        self.drain();
    }

    fn counters(&self) -> WriteCounters {
        self.drive.counters()
    }

    fn free_chunks(&self) -> u64 {
        self.drive.free_chunks()
    }

    fn parity_blocks(&self) -> Option<u64> {
        self.drive.parity_blocks()
    }

    fn folded_blocks(&self) -> Option<u64> {
        self.drive.folded_blocks()
    }

    fn set_die_clocks(&mut self, on: bool) {
        self.drive.set_die_clocks(on.then_some(self.now));
    }

    fn dies_worked(&self, at: Time) -> Vec<u64> {
        self.drive.dies_worked(at)
    }

    fn energy(&self, at: Time) -> Energy {
        self.drive.energy(at)
    }
}

#[cold]
fn stopped() -> Error {
    Error::Failed("the drive stopped with requests inside: this is a fault in it, report it".into())
}

/// A drive on the processor's clock, polled by this thread.
pub struct Real {
    real: RealTime<Boxed>,
    /// The drive's time when the clock started.
    base: Time,
    now: Time,
}

impl Real {
    /// Goes on in real time where `from` stopped.
    pub fn new(mut from: Virtual<Boxed>) -> Real {
        from.drive.set_on_a_clock(true);
        let (base, real) = (from.now, RealTime::new(from.drive));
        Real { real, base, now: base }
    }

    /// Goes on in virtual time. What a run left inside still is, and what it
    /// gives is to be dropped.
    pub fn into_virtual(self) -> Virtual<Boxed> {
        let mut drive = self.real.into_port();
        drive.set_on_a_clock(false);
        Virtual { now: self.now, drive, patience: Patience::default() }
    }
}

impl Driver for Real {
    fn is_real(&self) -> bool {
        true
    }

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn turn(
        &mut self,
        _arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        if !queue.is_empty() {
            self.real.submit(self.now, queue);
        }
        self.now = self.base + self.real.clock().now().0;
        self.real.poll(self.now, done);
        Ok(self.now)
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        self.real.port().hint(req);
    }

    fn may_leave(&self) -> bool {
        true
    }

    fn counters(&self) -> WriteCounters {
        self.real.port().counters()
    }

    fn free_chunks(&self) -> u64 {
        self.real.port().free_chunks()
    }

    fn parity_blocks(&self) -> Option<u64> {
        self.real.port().parity_blocks()
    }

    fn folded_blocks(&self) -> Option<u64> {
        self.real.port().folded_blocks()
    }

    fn energy(&self, at: Time) -> Energy {
        self.real.port().energy(at)
    }
}
