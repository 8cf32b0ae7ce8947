//! What each parallel unit was occupied by of late.
//!
//! A unit's history is a page on which each turn to something else is written down, round
//! and round. What an operation waited behind is read off it when somebody asks, and mostly
//! nobody does. Whoever still waits for what is about to be written over has to be
//! [told of it](Histories::turn) before. Nothing here fails.

use port::Time;
use port::story::{Cause, Waits};

/// Turns on a page.
const PAGE: u32 = 64;
/// After so many turns those that are on the page since so long are to read it.
const READ_EVERY: u32 = PAGE / 2;
/// The oldest turn that may be left to those that read it then. A page is written over in
/// as many as are between, so it is still there after they have all ended.
const OLD: u32 = READ_EVERY / 2;

/// From then on a unit was occupied by that.
#[derive(Clone, Copy, Default)]
struct Turn {
    at: Time,
    cause: Cause,
}

/// Where a unit's history is.
#[derive(Clone, Copy)]
struct Head {
    /// How many turns it has had. It begins again at zero after all that it can count.
    turns: u32,
    /// What the unit is occupied by.
    cause: Cause,
}

/// Those of all units.
pub(crate) struct Histories {
    heads: Box<[Head]>,
    pages: Box<[[Turn; PAGE as usize]]>,
}

impl Histories {
    /// Of units that are occupied by these.
    pub fn new(units: impl Iterator<Item = Cause>) -> Histories {
        let heads: Box<[Head]> = units.map(|cause| Head { turns: 1, cause }).collect();
        let page = |head: &Head| [Turn { at: Time::ZERO, cause: head.cause }; PAGE as usize];
        Histories { pages: heads.iter().map(page).collect(), heads }
    }

    /// How many turns a unit has had: from where on its history is to be read by who comes
    /// now.
    #[inline]
    pub fn turns(&self, unit: u32) -> u32 {
        self.heads[unit as usize].turns
    }

    /// Whether a unit is occupied by this.
    #[inline]
    pub fn occupies(&self, unit: u32, cause: Cause) -> bool {
        self.heads[unit as usize].cause == cause
    }

    /// From now on a unit is occupied by this. True where those whose reading [is
    /// old](Histories::is_old) are to read now what they need.
    #[inline]
    pub fn turn(&mut self, now: Time, unit: u32, cause: Cause) -> bool {
        let head = &mut self.heads[unit as usize];
        if head.cause == cause {
            return false;
        }
        head.cause = cause;
        let page = &mut self.pages[unit as usize];
        let last = &mut page[(head.turns.wrapping_sub(1) % PAGE) as usize];
        if last.at == now {
            // What it did before took no time.
            last.cause = cause;
            return false;
        }
        page[(head.turns % PAGE) as usize] = Turn { at: now, cause };
        head.turns = head.turns.wrapping_add(1);
        head.turns.is_multiple_of(READ_EVERY)
    }

    /// Whether a page on which somebody reads from there on is soon written over.
    pub fn is_old(&self, unit: u32, from: u32) -> bool {
        self.turns(unit).wrapping_sub(from) >= OLD
    }

    /// Adds what occupied a unit between two times, to one who came when it had had so many
    /// turns.
    pub fn read(&self, unit: u32, from: u32, span: (Time, Time), waits: &mut Waits) {
        self.for_each(unit, from, span, |cause, ns| waits[cause.number()] += ns);
    }

    /// Tells what occupied a unit then, and for how long, part by part.
    #[inline]
    pub fn for_each(
        &self,
        unit: u32,
        from: u32,
        (since, until): (Time, Time),
        mut told: impl FnMut(Cause, u64),
    ) {
        let (turns, page) = (self.turns(unit), &self.pages[unit as usize]);
        let mut number = from.wrapping_sub(1);
        while number != turns {
            let Turn { at, cause } = page[(number % PAGE) as usize];
            if at >= until {
                return;
            }
            number = number.wrapping_add(1);
            let end = if number == turns { until } else { page[(number % PAGE) as usize].at };
            told(cause, end.min(until).since(at.max(since)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::Whose;
    use port::random::Random;
    use port::story::Work;

    /// Beside a list of all that ever was, for those that come at any time and wait for any.
    #[test]
    fn who_reads_in_time_is_told_what_was() {
        let cause = |n: u64| {
            let work = [Work::Read, Work::Program, Work::Erase][n as usize % 3];
            Cause::new(work, if n.is_multiple_of(2) { Whose::User } else { Whose::Drive })
        };
        let mut random = Random::new(1, 1);
        let mut histories = Histories::new([cause(0), cause(0)].into_iter());
        // So that it begins again at zero soon.
        let before = 0u32.wrapping_sub(300) / PAGE * PAGE + 1;
        histories.heads[1].turns = before;
        let (mut now, mut all) = (Time::ZERO, vec![(Time::ZERO, cause(0))]);
        // When each came, since when nobody told it, from where on it reads, what it was told.
        let mut waiting: Vec<(Time, Time, u32, Waits)> = Vec::new();
        for _ in 0..4000 {
            now += random.bits() % 4;
            if random.bits().is_multiple_of(4) {
                waiting.push((now, now, histories.turns(1), Waits::default()));
            }
            let next = cause(random.bits() % 6);
            all.push((now, next));
            if histories.turn(now, 1, next) {
                for (_, since, from, waits) in &mut waiting {
                    if histories.is_old(1, *from) {
                        histories.read(1, *from, (*since, now), waits);
                        (*since, *from) = (now, histories.turns(1));
                    }
                }
            }
            while waiting.len() > 20 {
                let at = random.bits() as usize % waiting.len();
                let (came, since, from, mut waits) = waiting.swap_remove(at);
                histories.read(1, from, (since, now), &mut waits);
                let mut expected = Waits::default();
                for (n, &(at, cause)) in all.iter().enumerate() {
                    let end = all.get(n + 1).map_or(now, |next| next.0);
                    expected[cause.number()] += end.since(at.max(came));
                }
                assert_eq!(waits, expected);
            }
        }
        assert!(histories.turns(1) < before, "it began again");
        assert_eq!(histories.turns(0), 1);
    }
}
