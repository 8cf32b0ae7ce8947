//! How a submitter waits for completions.
//!
//! - [`Strategy::Poll`] looks without end: soonest, at the price of its core.
//! - [`Strategy::Interrupt`] sleeps until it is woken.
//! - [`Strategy::Hybrid`] is Linux's: it sleeps for half of the mean time of
//!   that kind of request, once, and then polls.
//! - [`Strategy::Adaptive`] is ours.
//!
//! [`speculate`] does not wait: it is for who writes and goes on, and holds back what others
//! would see of that.
//!
//! The law of the adaptive one. It is given a *budget*: the part of the time
//! by which it may see completions later than a poller (0.4 %). Within it, it
//! is away as long as it can:
//!
//! 1. It learns, from the newest 32 samples each, the times of each kind of
//!    request (operation, length, how many were out) as the device took them;
//!    how much later than wanted a sleep ends; and the processor time of one.
//!    All three are kept as distributions: nothing here is a mean but what is
//!    made from them last.
//! 2. A plan for each kind follows: it gets up at the latest age at which
//!    the expected lateness, over all pairs of a time and an error, is within
//!    the budget. It sleeps only if that saves a quarter more processor time
//!    than it costs. If times lie in two heaps, it may sleep again between
//!    them.
//! 3. With several requests out, it is away until the first of their plans
//!    wants it back. If one may complete any time, it looks.
//! 4. While it sleeps the interrupt is armed, so a completion that is earlier
//!    than ever wakes it. A plan is made anew at once when a request was back
//!    before it was planned for, else when
//!    one took a strange time, and each 64 requests. A device that became slower
//!    is waited for by the gap between the old heap and the new.
//! 5. What was lost is measured where the device says when it completed a
//!    request. The budget is scaled, by 1/8 to 4, so that the loss meets it.
//! 6. If sleeps never were worth it, one in 2048 waits tries whether they end
//!    sooner than they did.
//!
//! Nothing here fails or reads a clock of its own: the [`Source`] has it. The
//! state is bounded: about 140 KB a waiter, taken when it is made.

mod flights;
mod plan;
#[cfg(test)]
mod sim;
pub mod speculate;
mod window;

use port::{BlockOp, Time};

use flights::{Flights, Kind};
use plan::{Outlook, Plan, Rule};
use window::{Sorted, Window};

/// How a submitter waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Looks without end.
    Poll,
    /// Sleeps until the device wakes it.
    Interrupt,
    /// Sleeps half of the mean, then polls, as Linux does.
    Hybrid,
    /// Sleeps or polls as it expects completions.
    #[default]
    Adaptive,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 4] =
        [Strategy::Poll, Strategy::Interrupt, Strategy::Hybrid, Strategy::Adaptive];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Poll => "poll",
            Strategy::Interrupt => "interrupt",
            Strategy::Hybrid => "hybrid",
            Strategy::Adaptive => "adaptive",
        }
    }
}

/// What is waited on. Its methods may not fail; one that cannot sleep returns.
pub trait Source {
    /// The clock, in the time of requests.
    fn now(&mut self) -> Time;

    /// Whether there is something to see: a completion, or that the device is
    /// gone.
    fn look(&mut self) -> bool;

    /// Sleeps until there is something to see or `until` is over; `None` is
    /// for ever. May return early.
    fn sleep(&mut self, until: Option<Time>);

    /// Sleeps until `until` whatever completes.
    fn nap(&mut self, until: Time);

    /// Processor time that this thread has used so far, in ns.
    fn cpu(&mut self) -> u64;
}

/// The part of the time that may be lost to sleeps that end late, of 1000.
const BUDGET: u64 = 4;
/// Samples of a kind before it is believed.
const FEW: usize = 4;
/// Samples after which plans are made again.
const FRESH: u8 = 64;
/// Waits without a sleep after which one is tried.
const DRY: u32 = 2048;
/// Times shorter than this, in ns, are never tried.
const SHORTEST: u64 = 8_000;
/// What a sleep's error and cost are taken for until they were measured.
const UNKNOWN: u64 = 50_000;
/// The budget's scale that is one.
const ONE: u64 = 16;
/// No time at all.
const NEVER: Time = Time(u64::MAX);
/// Looks between two of the clock.
const LOOKS: usize = 16;

/// What was lost and what might have been, since it was last compared.
#[derive(Clone, Copy, Debug)]
struct Ledger {
    waits: u32,
    lost: u64,
    budget: u64,
    /// The budget's scale, in parts of [`ONE`].
    scale: u64,
}

impl Ledger {
    const NEW: Ledger = Ledger { waits: 0, lost: 0, budget: 0, scale: ONE };

    fn enter(&mut self, lost: u64, budget: u64) {
        self.waits += 1;
        self.lost += lost;
        self.budget += budget;
        if self.waits < 128 {
            return;
        }
        let scale = if self.lost > self.budget { self.scale * 3 / 4 } else { self.scale + 1 };
        *self = Ledger { scale: scale.clamp(ONE / 8, 4 * ONE), ..Ledger::NEW };
    }
}

/// How one context waits: a strategy and what it has learned.
#[derive(Debug)]
pub struct Waiter {
    strategy: Strategy,
    flights: Flights,
    /// How much later than wanted sleeps ended.
    errors: Window,
    errors_sorted: Sorted,
    /// Their processor time.
    costs: Window,
    sleeps: u64,
    /// Waits since the last sleep.
    dry: u32,
    /// Until when nobody wanted to look, where the last look came after a sleep.
    away: Option<Time>,
    /// Whether a completion was seen since the last wait.
    seen: bool,
    last_seen: Time,
    /// How much later than the device said completions are seen by polling.
    base: u64,
    ledger: Ledger,
}

impl Waiter {
    /// Waits with `strategy` for requests with tags below `tags`.
    pub fn new(strategy: Strategy, tags: usize) -> Waiter {
        // Only these two have to know what is out.
        let learns = matches!(strategy, Strategy::Hybrid | Strategy::Adaptive);
        Waiter {
            strategy,
            flights: Flights::new(if learns { tags } else { 0 }),
            errors: Window::default(),
            errors_sorted: Sorted::one(UNKNOWN),
            costs: Window::default(),
            sleeps: 0,
            dry: 0,
            away: None,
            seen: true,
            last_seen: Time::ZERO,
            base: 0,
            ledger: Ledger::NEW,
        }
    }

    /// Sleeps so far, of all strategies.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// How late sleeps end: the median of the last ones, in ns.
    pub fn wake_error(&self) -> u64 {
        self.errors.sorted().median()
    }

    /// Processor time of a sleep: the median of the last ones measured, in ns.
    pub fn sleep_cost(&self) -> u64 {
        self.costs.sorted().median()
    }

    /// A request left at `now`.
    #[inline]
    pub fn submitted(&mut self, tag: u64, op: BlockOp, len: u64, now: Time) {
        if self.learns() {
            self.flights.begin(tag, op, len, now);
        }
    }

    /// A request was found complete at `now`. `at` is when the device says it
    /// completed it; `now` where it does not say.
    #[inline]
    pub fn completed(&mut self, tag: u64, at: Time, now: Time) {
        if !self.learns() {
            return;
        }
        let Some(flight) = self.flights.end(tag) else { return };
        let told = at < now && at >= flight.since;
        let mut time = if told { at } else { now }.since(flight.since);
        if let (false, Some(wanted)) = (told, self.away) {
            // It completed unseen: no later than one wanted to look, or so.
            time = time.min(wanted.since(flight.since));
        }
        self.enter(told.then_some(at), now);
        let kind = self.flights.kind_mut(flight.kind);
        kind.times.push(time);
        let mean = if kind.times.len() == 1 { time } else { kind.mean };
        kind.mean = (mean * 15 + time) / 16;
        kind.fresh = kind.fresh.saturating_add(1);
        if self.strategy == Strategy::Adaptive && is_due(kind, time) {
            self.make_plan(flight.kind);
        }
    }

    /// Waits until there is something to see, or `until` is over: the moment
    /// at which the caller has something to submit. True when there is
    /// something to see.
    #[inline]
    pub fn wait<S: Source>(&mut self, source: &mut S, until: Option<Time>) -> bool {
        self.seen = false;
        self.away = None;
        match self.strategy {
            Strategy::Poll => spin(source, until),
            Strategy::Interrupt => self.interrupt(source, until),
            Strategy::Hybrid => self.hybrid(source, until),
            Strategy::Adaptive => self.adaptive(source, until),
        }
    }

    #[inline]
    fn learns(&self) -> bool {
        matches!(self.strategy, Strategy::Hybrid | Strategy::Adaptive)
    }

    fn interrupt<S: Source>(&mut self, source: &mut S, until: Option<Time>) -> bool {
        while !source.look() {
            if until.is_some_and(|until| source.now() >= until) {
                return false;
            }
            self.sleeps += 1;
            source.sleep(until);
        }
        true
    }

    fn hybrid<S: Source>(&mut self, source: &mut S, until: Option<Time>) -> bool {
        if source.look() {
            return true;
        }
        let Some(flight) = self.flights.oldest_mut() else {
            return self.interrupt(source, until);
        };
        let (since, kind) = (flight.since, flight.kind);
        if !std::mem::replace(&mut flight.slept, true) {
            let half = since + self.flights.kind(kind).mean / 2;
            let nap = until.map_or(half, |until| until.min(half));
            if source.now() < nap {
                self.sleeps += 1;
                source.nap(nap);
            }
        }
        spin(source, until)
    }

    fn adaptive<S: Source>(&mut self, source: &mut S, until: Option<Time>) -> bool {
        self.dry = self.dry.saturating_add(1);
        loop {
            if source.look() {
                return true;
            }
            let now = source.now();
            if until.is_some_and(|until| now >= until) {
                return false;
            }
            match self.outlook(now, until) {
                Near(_) if self.is_worth_a_try() => self.leave(source, Some(now + 2_000)),
                Near(next) => {
                    self.away = None;
                    if spin(source, Some(next)) {
                        return true;
                    }
                }
                Quiet(NEVER) => self.leave(source, None),
                Quiet(to) => self.leave(source, Some(to)),
            }
        }
    }

    /// Sleeps, and learns how late that ends.
    #[cold]
    fn leave<S: Source>(&mut self, source: &mut S, to: Option<Time>) {
        let measured = self.sleeps < 8 || self.sleeps.is_multiple_of(16);
        let before = if measured { source.cpu() } else { 0 };
        source.sleep(to);
        let back = source.now();
        if measured {
            self.costs.push(source.cpu().saturating_sub(before));
        }
        if let Some(to) = to
            && back >= to
        {
            self.errors.push(back - to);
            if self.errors.len() >= FEW {
                self.errors_sorted = self.errors.sorted();
            }
        }
        self.away = Some(to.unwrap_or(back));
        self.sleeps += 1;
        self.dry = 0;
    }

    /// When the first completion is to be looked for.
    fn outlook(&self, now: Time, until: Option<Time>) -> At {
        let asleep = merge(self.flights.live().iter().map(|flight| {
            let outlook = self.flights.kind(flight.kind).plan.outlook(flight.age(now));
            At::of(outlook, flight.since)
        }));
        let Some(until) = until else { return asleep };
        let errors = self.errors_sorted.without_accidents();
        let left = until.since(now);
        let rule = Rule { cost: self.cost(), allowed: left * BUDGET / 1000 };
        let plan = Plan::once(left, &errors, rule);
        merge([asleep, At::of(plan.outlook(0), now).no_later(until)].into_iter())
    }

    /// Whether a sleep should be tried, to learn what it costs.
    #[inline]
    fn is_worth_a_try(&self) -> bool {
        let unknown = self.errors.len() < FEW;
        if !(unknown || self.dry >= DRY) {
            return false;
        }
        let least = if unknown { SHORTEST } else { SHORTEST.max(self.errors_sorted.median() / 2) };
        !self.flights.live().is_empty()
            && self.flights.live().iter().all(|flight| {
                let kind = self.flights.kind(flight.kind);
                kind.times.len() >= FEW && kind.mean >= least
            })
    }

    fn cost(&self) -> u64 {
        if self.costs.len() == 0 { UNKNOWN / 2 } else { self.sleep_cost() }
    }

    /// Books what the last wait lost, when its first completion is seen.
    #[inline]
    fn enter(&mut self, at: Option<Time>, now: Time) {
        if std::mem::replace(&mut self.seen, true) {
            return;
        }
        let passed = now.since(std::mem::replace(&mut self.last_seen, now));
        let Some(late) = at.map(|at| now.since(at)) else { return };
        if self.away.is_none() {
            // Found by polling: no sooner is possible.
            self.base =
                if self.base == 0 { late } else { (self.base * 15 + late.min(4 * self.base)) / 16 };
            return;
        }
        // What is longer than a sleep's error has other reasons.
        let lost = late.saturating_sub(self.base).min(self.errors_sorted.median());
        self.ledger.enter(lost, passed * BUDGET / 1000);
    }

    #[cold]
    fn make_plan(&mut self, index: u16) {
        let cost = self.cost();
        let kind = self.flights.kind_mut(index);
        let times = kind.times.sorted();
        let allowed = times.mean() * BUDGET * self.ledger.scale / (1000 * ONE);
        kind.plan = Plan::new(&times, &self.errors_sorted, Rule { cost, allowed });
        let all = times.all();
        kind.range = (all.first().map_or(0, |&t| t.into()), all.last().map_or(0, |&t| t.into()));
        kind.fresh = 0;
    }
}

/// Whether a kind's plan is to be made anew, after a request took `time`:
/// at once when it was back before it was planned for, soon when it took
/// another time than before, and then after twice as many each time.
#[inline]
fn is_due(kind: &mut Kind, time: u64) -> bool {
    if kind.times.len() < FEW {
        return false;
    }
    let early = time < u64::from(kind.plan.first());
    let (least, most) = kind.range;
    let strange = kind.fresh >= 4 && (time < least - least / 8 || time > most + most / 8);
    let due = early || strange || kind.fresh >= kind.due;
    if due {
        kind.due = if early || strange { 4 } else { (2 * kind.due).clamp(1, FRESH) };
    }
    due
}

/// An outlook in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Quiet(Time),
    Near(Time),
}

use At::{Near, Quiet};

impl At {
    /// That of a request that left at `since`.
    fn of(outlook: Outlook, since: Time) -> At {
        let time = |age| if age == plan::FOREVER { NEVER } else { since + u64::from(age) };
        match outlook {
            Outlook::Quiet(to) => Quiet(time(to)),
            Outlook::Near(next) => Near(time(next)),
        }
    }

    fn no_later(self, than: Time) -> At {
        match self {
            Quiet(to) => Quiet(to.min(than)),
            Near(next) => Near(next.min(than)),
        }
    }
}

/// Quiet until the first is not; near until all may be quiet again.
fn merge(all: impl Iterator<Item = At>) -> At {
    all.fold(Quiet(NEVER), |a, b| match (a, b) {
        (Quiet(a), Quiet(b)) => Quiet(a.min(b)),
        (Near(a), Near(b)) => Near(a.max(b)),
        (Near(a), Quiet(_)) | (Quiet(_), Near(a)) => Near(a),
    })
}

/// Looks until there is something to see, or until `until` is over. True when
/// there is something to see.
#[inline]
fn spin<S: Source>(source: &mut S, until: Option<Time>) -> bool {
    loop {
        for _ in 0..LOOKS {
            if source.look() {
                return true;
            }
            std::hint::spin_loop();
        }
        if until.is_some_and(|until| source.now() >= until) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
