//! The submission queues of a drive: what waits in them for a core of its controller.
//!
//! A port over a [`Link`]. A command goes into its queue, which is bounded, and is
//! fetched when a core is free by the time that it is there: from which queue the
//! arbiter says. So what is in the queues when a core becomes free decides, and not
//! what came first.
//!
//! Guarantees: commands of a queue are fetched in their order, those of different
//! ones keep none; no core is idle while a command waits; what one queue holds takes
//! no place of another's. One queue is the link itself, but that entries take the
//! wire when they are fetched. Nothing here fails: a command of a queue that there is
//! not is one of the first.

use flash::Queues;
use port::story::Wanted;
use port::{BlockDone, BlockReq, Part, Port, Ring, Stories, Story, Time};

use crate::arbiter::{Arbiter, Set};
use crate::link::Link;

/// A command that is inside.
#[derive(Clone, Copy, Default)]
struct Inside {
    /// Its own number.
    number: u64,
    queue: usize,
    came: Time,
}

/// A link with several submission queues before it.
pub struct Queued<P: Port<Cmd = BlockReq, Done = BlockDone>> {
    arbiter: Arbiter,
    below: Link<P>,
    queues: Vec<Ring<BlockReq>>,
    /// Those with something.
    waiting: Set,
    /// How many more commands of each may be inside.
    room: Vec<u32>,
    /// On its way into the link.
    fetched: Ring<BlockReq>,
    /// By the number that a command has below.
    inside: Vec<Inside>,
    free: Vec<u32>,
    given: u64,
    told: Option<Box<Stories>>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Queued<P> {
    /// Such queues before a link.
    ///
    /// # Panics
    /// Where the link's controller has a core for each command, or they hold more
    /// commands than a link does: [`flash::Profile::check`] refuses both.
    pub fn new(queues: &Queues, below: Link<P>) -> Queued<P> {
        let (count, depth) = (queues.count as usize, queues.depth());
        let all = count * depth as usize;
        assert!(below.next_fetch().is_some(), "what waits in a queue waits for a core");
        assert!(all <= flash::queues::MOST_QUEUED as usize, "a link holds all that they do");
        Queued {
            arbiter: Arbiter::new(queues),
            below,
            queues: (0..count).map(|_| Ring::new(depth as usize)).collect(),
            waiting: 0,
            room: vec![depth; count],
            fetched: Ring::new(1),
            inside: vec![Inside::default(); all],
            free: (0..all as u32).rev().collect(),
            given: 0,
            told: None,
        }
    }

    crate::below::shows_below!(Link<P>);

    /// When the next command is to be fetched.
    fn next_fetch(&self) -> Option<Time> {
        if self.waiting == 0 { None } else { self.below.next_fetch() }
    }

    /// Fetches as long as there are cores for it. Gives whether anything was.
    fn fetch(&mut self, now: Time) -> bool {
        let mut any = false;
        while self.next_fetch().is_some_and(|at| at <= now)
            && let Some(queue) = self.arbiter.next(self.waiting)
        {
            let ring = &mut self.queues[queue as usize];
            ring.pop_to(&mut self.fetched);
            if ring.is_empty() {
                self.waiting &= !(1 << queue);
            }
            self.below.submit(now, &mut self.fetched);
            assert!(self.fetched.is_empty(), "a link holds all that the queues do");
            any = true;
        }
        any
    }

    /// Gives a completion its own number, and tells of it.
    fn end(&mut self, done: &mut BlockDone) {
        let slot = done.id as usize;
        let Inside { number, queue, came } = self.inside[slot];
        done.id = number;
        self.free.push(slot as u32);
        self.room[queue] += 1;
        self.given += 1;
        if let Some(told) = &mut self.told
            && !told.pass_over(done.at - came, done.at)
        {
            let below = |story: &mut Story| self.below.tell_story(self.given - 1, story);
            told.end(came, below, Part::Core, done.at);
        }
    }
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Port for Queued<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(next) = cmds.front() {
            let queue = usize::from(next.queue);
            let queue = if queue < self.queues.len() { queue } else { 0 };
            if self.room[queue] == 0 {
                break;
            }
            self.room[queue] -= 1;
            let slot = self.free.pop().expect("there is one for each place");
            let req = cmds.pop_to(&mut self.queues[queue]);
            self.inside[slot as usize] = Inside { number: req.id, queue, came: now };
            req.id = slot.into();
            self.waiting |= 1 << queue;
        }
        self.fetch(now);
    }

    fn next_event(&self) -> Option<Time> {
        self.next_fetch().into_iter().chain(self.below.next_event()).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let is_due = |below: &Link<P>| below.next_event().is_some_and(|at| at <= to);
        loop {
            if is_due(&self.below) {
                let before = done.len();
                self.below.advance(to, done);
                (before..done.len()).for_each(|i| self.end(done.get_mut(i).expect("it is there")));
            }
            // What takes no time ends now, too.
            if !self.fetch(to) || done.room() == 0 || !is_due(&self.below) {
                return;
            }
        }
    }

    fn hint(&self, cmd: &BlockReq) {
        self.below.hint(cmd);
    }

    fn set_stories(&mut self, on: bool) {
        self.below.set_stories(on);
        self.given = 0;
        self.told = on.then(|| Stories::new(self.inside.len(), 0));
    }

    fn tell_only(&mut self, wanted: Wanted) {
        if let Some(told) = &mut self.told {
            told.tell_only(wanted);
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.told.as_ref().is_some_and(|told| told.tell_of(number, story))
    }
}
