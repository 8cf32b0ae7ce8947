//! The controller's buffer: a memory through which all data pass on their way.
//!
//! What comes over the link is moved into it, and out of it to a channel; what a
//! channel brings is moved into it, and out of it over the link. So a drive has two
//! of these ports, one above its translation layer and one below, and one
//! [`BufferMemory`] for both: its rate bounds all of it together. That the memory of
//! a controller is such a place, shared by what the host asks for and by collection,
//! is what decoupled SSDs are to change (Kim et al., ISCA 2023); MQSim (Tavakkol et
//! al., FAST 2018) has it as a queue of transfers.
//!
//! A command's data cross before it goes down, and its completion's before that goes
//! up: first come, first served, each as a whole. What carries none goes between
//! them, but no command other than a read passes one that came before it.
//!
//! Guarantees: a lone command takes the time of its data more, to the nanosecond;
//! nothing is allocated after [`Buffered::new`]. Nothing here fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flash::link::time_at;
use port::story::Wanted;
use port::{Completed, Numbered, Part, Port, Ring, Story, Time};

use crate::command::OpenChannel;
use crate::link::{Carries, LINK_DEPTH};
use crate::told::Told;
use crate::way::{NEVER, Way};

/// A memory with a rate, that of all clones together. They belong to one drive: all
/// are asked from one thread, in the order of drive time.
#[derive(Clone, Debug)]
pub struct BufferMemory {
    /// Bytes a second.
    rate: u64,
    /// When it has moved what it was given. An atomic only so that a drive may go to
    /// another thread.
    free: Arc<AtomicU64>,
}

impl BufferMemory {
    /// One that moves `rate` bytes a second, in or out; `rate` is not 0.
    pub fn new(rate: u64) -> BufferMemory {
        assert!(rate > 0, "who has no rate has no such memory");
        BufferMemory { rate, free: Arc::default() }
    }

    /// Moves what is there at `now`, after all that was there before. Gives when it has
    /// crossed.
    #[inline]
    fn cross(&self, now: Time, bytes: u64) -> Time {
        let end = self.free.load(Relaxed).max(now.0) + time_at(bytes, self.rate);
        self.free.store(end, Relaxed);
        Time(end)
    }
}

/// A port whose data cross a buffer's memory.
pub struct Buffered<P: Port> {
    memory: BufferMemory,
    below: P,
    /// When the last one arrives below that is no read.
    last: Time,
    down: Way<P::Cmd>,
    /// Arrived, not yet taken below.
    arrived: Ring<P::Cmd>,
    up: Way<P::Done>,
    below_done: Ring<P::Done>,
    /// Each command's own number and its bytes up, by the number it has below.
    numbers: Vec<(u64, u64)>,
    free: Vec<u32>,
    told: Option<Told>,
}

impl<P: Port> Buffered<P>
where
    P::Cmd: Carries + Numbered,
    P::Done: Completed,
{
    /// Lets what goes to `below`, and what comes from there, cross `memory`.
    pub fn new(memory: BufferMemory, below: P) -> Buffered<P> {
        Buffered {
            memory,
            below,
            last: Time::ZERO,
            down: Way::new(0),
            arrived: Ring::new(LINK_DEPTH),
            up: Way::new(0),
            below_done: Ring::new(LINK_DEPTH),
            numbers: vec![(0, 0); LINK_DEPTH],
            free: (0..LINK_DEPTH as u32).rev().collect(),
            told: None,
        }
    }

    crate::below::shows_below!(P);

    /// When something happens next below.
    fn next_below(&self) -> Time {
        self.below.next_event().unwrap_or(NEVER)
    }

    /// Lets the port below do all that it can at `to`, also with what is refused or
    /// done at once.
    fn work_below(&mut self, to: Time) {
        loop {
            // First what is due, so that completions make room for arrivals.
            if self.next_below() <= to {
                self.below.advance(to, &mut self.below_done);
            }
            let waiting = self.arrived.len();
            if waiting > 0 {
                self.below.submit(to, &mut self.arrived);
            }
            let moved = self.arrived.len() < waiting || !self.below_done.is_empty();
            self.send_up(to);
            if self.next_below() > to || !moved {
                return;
            }
        }
    }

    /// Sends up what has completed below at `at`.
    fn send_up(&mut self, at: Time) {
        while let Some(done) = self.below_done.front() {
            let slot = done.number() as usize;
            let bytes = self.numbers[slot].1;
            let arrival = if bytes == 0 { at } else { self.memory.cross(at, bytes) };
            if let Some(told) = &mut self.told {
                told.hear(slot, &self.below, (at, arrival), |story, came, _| {
                    story.before(Part::Buffer, came);
                    story.pass(Part::Buffer, arrival);
                });
            }
            self.up.send(arrival, bytes == 0, &mut self.below_done);
        }
    }

    /// Gives the completions that are above at `to`, as many as there is room for.
    fn give(&mut self, to: Time, all: &mut Ring<P::Done>) {
        while all.room() > 0
            && let Some(at) = self.up.receive_to(to, all)
        {
            let done = all.get_mut(all.len() - 1).expect("it was put there");
            let slot = done.number() as usize;
            if let Some(told) = &mut self.told {
                told.give(slot, at);
            }
            done.renumber(self.numbers[slot].0);
            done.set_at(at);
            self.free.push(slot as u32);
        }
    }
}

impl<P: Port> Port for Buffered<P>
where
    P::Cmd: Carries + Numbered,
    P::Done: Completed,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        // A slot stays taken until its completion is given.
        while !self.free.is_empty() {
            let Some(cmd) = cmds.get_mut(0) else { return };
            let slot = self.free.pop().expect("a slot is free");
            let payload = cmd.payload();
            self.numbers[slot as usize] = (cmd.number(), payload.up);
            cmd.renumber(u64::from(slot));
            let arrival = match payload.down {
                0 if payload.is_read => now,
                0 => now.max(self.last),
                bytes => self.memory.cross(now, bytes),
            };
            if !payload.is_read {
                self.last = arrival;
            }
            if let Some(told) = &mut self.told {
                told.came[slot as usize] = (now, arrival, 0);
            }
            self.down.send(arrival, payload.is_read, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let next = self.down.next().min(self.up.next()).min(self.next_below());
        (next != NEVER).then_some(next)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        // It has room: this port holds all that it let in.
        while self.down.receive_to(to, &mut self.arrived).is_some() {}
        self.work_below(to);
        self.give(to, done);
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below.hint(cmd);
    }

    fn set_stories(&mut self, on: bool) {
        self.below.set_stories(on);
        self.told = on.then(Told::new);
    }

    fn tell_only(&mut self, wanted: Wanted) {
        if let Some(told) = &mut self.told {
            told.stories.tell_only(wanted);
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.told.as_ref().is_some_and(|told| told.stories.tell_of(number, story))
    }
}

impl<P: OpenChannel> OpenChannel for Buffered<P> {
    crate::as_below!(this => this.below, most LINK_DEPTH);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M/D/1: data that come at random to one memory wait for w D / 2 (1 - w) in the
    /// mean, w being its load and D what each takes of it.
    #[test]
    fn waiting_is_as_the_formula_says() {
        let moves = 1_000u64;
        for load in [0.3, 0.6, 0.8] {
            let memory = BufferMemory::new(4096 * 1_000_000_000 / moves);
            let mut rng = port::random::Random::new(1, 0);
            let (mut at, mut waited, blocks) = (0.0f64, 0u64, 4_000_000u64);
            for _ in 0..blocks {
                at -= (1.0 - port::random::unit(rng.bits())).ln() * moves as f64 / load;
                let now = Time(at as u64);
                waited += memory.cross(now, 4096) - now - moves;
            }
            let (mean, formula) =
                (waited as f64 / blocks as f64, moves as f64 * load / (2.0 * (1.0 - load)));
            assert!((mean / formula - 1.0).abs() < 0.02, "{load}: {mean} for {formula}");
        }
    }
}
