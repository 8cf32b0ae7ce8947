//! A drive that sleeps, and that throttles when it is too warm.
//!
//! A port over any port, at the top. A command that comes when nothing was inside for
//! a while wakes the drive, and it and those after it pass when that is over. While
//! the drive is too warm each passes when those before it have had their time at the
//! rate that it keeps to then. Order is kept. What the drive below does meanwhile goes
//! on: only commands wait.
//!
//! Guarantees: a command passes at once where neither is so; the same calls give the
//! same times. Nothing here fails.

use flash::{LinkTiming, Power};
use port::story::{Latest, Wanted};
use port::{Completed, Numbered, Part, Port, Ring, Stories, Story, Time};

use crate::link::{Carries, LINK_DEPTH};
use crate::sleep::{Sleeper, SleptIn};
use crate::thermal::Thermal;

/// What takes energy.
pub trait Heats {
    /// All that it took until then, in nJ.
    fn spent(&self, now: Time) -> u64;
}

/// How warm a drive is, and how it slept, since it was made or opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerHealth {
    /// How many sleep states it has.
    pub states: usize,
    /// How it slept in each.
    pub slept: SleptIn,
    /// How long it throttled, in ns.
    pub throttled: u64,
    /// Its temperature and the highest so far, in thousandths of a degree; zero where
    /// it has none.
    pub temperature: u64,
    /// The highest so far.
    pub highest: u64,
    /// What it did not take as it slept, in nJ.
    pub saved: u64,
}

impl PowerHealth {
    /// How often it was woken.
    pub fn exits(&self) -> u64 {
        self.slept.iter().map(|slept| slept.exits).sum()
    }

    /// How long it slept, in ns.
    pub fn asleep(&self) -> u64 {
        self.slept.iter().map(|slept| slept.ns).sum()
    }
}

/// A command that is inside.
#[derive(Clone, Copy, Default)]
struct Inside {
    number: u64,
    came: Time,
    /// When the drive was awake for it.
    awake: Time,
    /// When it passed.
    passes: Time,
}

/// A drive with power states and a temperature.
pub struct Powered<P: Port> {
    sleeper: Sleeper,
    /// Time of bytes at the rate to which it throttles.
    pace: LinkTiming,
    thermal: Option<Thermal>,
    below: P,
    /// Wait for their time, in order.
    held: Ring<P::Cmd>,
    /// Passed, not yet taken below.
    passed: Ring<P::Cmd>,
    below_done: Ring<P::Done>,
    /// By the number that a command has below.
    inside: Vec<Inside>,
    free: Vec<u32>,
    /// When nothing was inside any more.
    quiet: Time,
    /// When it is awake, after it was woken.
    awake: Time,
    /// When what passed before has had its time.
    next: Time,
    given: u64,
    /// Beside its stories, what the drive below told of what is given later than it came
    /// from there.
    told: Option<(Box<Stories>, Latest<Option<Story>>)>,
}

impl<P: Port + Heats> Powered<P> {
    /// A drive that takes so much while it is awake, in mW, or 0 where nobody counts,
    /// and is awake at `at`.
    pub fn new(config: &Power, idle_power: u64, at: Time, below: P) -> Powered<P> {
        let heat = config.temperature;
        Powered {
            sleeper: Sleeper::new(&config.sleep, idle_power),
            pace: LinkTiming { rate: heat.throttle_rate, ..LinkTiming::default() },
            thermal: heat.is_on().then(|| Thermal::new(heat, at, below.spent(at))),
            below,
            held: Ring::new(LINK_DEPTH),
            passed: Ring::new(LINK_DEPTH),
            below_done: Ring::new(LINK_DEPTH),
            inside: vec![Inside::default(); LINK_DEPTH],
            free: (0..LINK_DEPTH as u32).rev().collect(),
            quiet: at,
            awake: at,
            next: at,
            given: 0,
            told: None,
        }
    }

    crate::below::shows_below!(P);

    /// How it is at `now`.
    pub fn health(&self, now: Time) -> PowerHealth {
        let thermal = self.thermal.as_ref().map(|thermal| thermal.at(now, self.spent(now)));
        let of = |get: fn(&Thermal) -> u64| thermal.as_ref().map_or(0, get);
        let slept = self.slept(now);
        PowerHealth {
            states: self.sleeper.states(),
            slept,
            throttled: of(Thermal::throttled),
            temperature: of(Thermal::temperature),
            highest: of(Thermal::highest),
            saved: self.sleeper.saved(&slept),
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == LINK_DEPTH
    }

    /// How it has slept.
    fn slept(&self, now: Time) -> SleptIn {
        self.sleeper.slept(if self.is_empty() { now.since(self.quiet) } else { 0 })
    }

    /// What it took until now, in nJ.
    fn spent(&self, now: Time) -> u64 {
        self.below.spent(now).saturating_sub(self.sleeper.saved(&self.slept(now)))
    }

    /// Reckons with what was taken until now.
    #[inline]
    fn look(&mut self, now: Time) {
        if self.thermal.as_ref().is_some_and(|thermal| thermal.is_due(now)) {
            self.look_closely(now);
        }
    }

    #[cold]
    fn look_closely(&mut self, now: Time) {
        let spent = self.spent(now);
        let thermal = self.thermal.as_mut().expect("the caller saw it");
        thermal.look(now, spent);
        if !thermal.throttles() {
            self.next = now;
        }
    }

    /// A command comes while nothing is inside: the drive may have gone to sleep.
    fn wake(&mut self, now: Time) {
        if let Some(wait) = self.sleeper.wake(now.since(self.quiet)) {
            self.awake = now + wait;
        }
    }

    /// Lets the drive below do all that it can at `to`, also with what is refused or
    /// done at once.
    fn work(&mut self, to: Time) {
        let is_due = |below: &P| below.next_event().is_some_and(|at| at <= to);
        loop {
            let (waiting, done) = (self.passed.len(), self.below_done.len());
            if is_due(&self.below) {
                self.below.advance(to, &mut self.below_done);
            }
            if waiting > 0 {
                self.below.submit(to, &mut self.passed);
            }
            let moved = self.passed.len() < waiting || self.below_done.len() > done;
            if !moved || !is_due(&self.below) {
                return;
            }
        }
    }

    /// When the first that waits for its time passes.
    fn next_pass(&self) -> Option<Time>
    where
        P::Cmd: Numbered,
    {
        let first = self.held.front()?;
        Some(self.inside[first.number() as usize].awake.max(self.next))
    }

    /// When to look whether it still is too warm: while something waits for that.
    fn next_look(&self) -> Option<Time> {
        let thermal = self.thermal.as_ref().filter(|thermal| thermal.throttles())?;
        (!self.held.is_empty()).then(|| thermal.next_look())
    }

    /// What has waited for its time until now passes.
    fn pass(&mut self, now: Time)
    where
        P::Cmd: Carries + Numbered,
    {
        let throttles = self.thermal.as_ref().is_some_and(Thermal::throttles);
        while self.next_pass().is_some_and(|at| at <= now)
            && let Some(cmd) = self.held.pop()
        {
            self.inside[cmd.number() as usize].passes = now;
            let payload = cmd.payload();
            if throttles {
                self.next = now + self.pace.wire(payload.down + payload.up);
            }
            self.passed.put(|| cmd);
        }
    }

    /// Asks the drive below for the stories of what came from there and is given later: it
    /// does not keep them.
    fn hear(&mut self) {
        let Some((_, heard)) = &mut self.told else { return };
        while heard.count() < self.given + self.below_done.len() as u64 {
            let story = self.below.story(heard.count());
            *heard.tell() = story;
        }
    }

    /// Gives a completion its own number, and tells of it.
    fn end(&mut self, done: &mut P::Done)
    where
        P::Done: Completed,
    {
        let (slot, at) = (done.number() as u32, done.at());
        let Inside { number, came, awake, passes } = self.inside[slot as usize];
        done.renumber(number);
        self.free.push(slot);
        if self.is_empty() {
            self.quiet = at;
        }
        self.given += 1;
        let Some((told, heard)) = &mut self.told else { return };
        let number = self.given - 1;
        let was_heard = number < heard.count();
        if !was_heard {
            heard.pass_over();
        }
        if told.pass_over(at - came, at) {
            return;
        }
        let mut story = Story::default();
        let is_told = match heard.get(number) {
            Some(heard) if was_heard => heard.map(|heard| story = heard).is_some(),
            _ if was_heard => false,
            _ => self.below.tell_story(number, &mut story),
        };
        story.around(is_told, passes, Part::Queue, at);
        story.before(Part::Throttled, awake);
        story.before(Part::Waking, came);
        told.put(&story);
    }
}

impl<P: Port + Heats> Port for Powered<P>
where
    P::Cmd: Carries + Numbered,
    P::Done: Completed,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.look(now);
        while !self.free.is_empty() {
            let Some(mut cmd) = cmds.pop() else { break };
            if self.is_empty() {
                self.wake(now);
            }
            let slot = self.free.pop().expect("a slot is free");
            let (number, awake) = (cmd.number(), now.max(self.awake));
            self.inside[slot as usize] = Inside { number, came: now, awake, passes: awake };
            cmd.renumber(slot.into());
            self.held.put(|| cmd);
        }
        self.pass(now);
        if !self.passed.is_empty() {
            self.below.submit(now, &mut self.passed);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let done = self.below_done.front().map(|done| done.at());
        let own = [done, self.next_pass(), self.next_look()];
        own.into_iter().chain([self.below.next_event()]).flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        self.look(to);
        self.pass(to);
        self.work(to);
        while done.room() > 0
            && let Some(mut completion) = self.below_done.pop()
        {
            self.end(&mut completion);
            let _ = done.push(completion);
        }
        self.hear();
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below.hint(cmd);
    }

    fn set_stories(&mut self, on: bool) {
        self.below.set_stories(on);
        self.given = 0;
        let stories = || Stories::new(LINK_DEPTH, 0);
        self.told = on.then(|| (stories(), Latest::new(LINK_DEPTH, 0)));
    }

    fn tell_only(&mut self, wanted: Wanted) {
        if let Some((told, _)) = &mut self.told {
            told.tell_only(wanted);
        }
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.told.as_ref().is_some_and(|(told, _)| told.tell_of(number, story))
    }
}
