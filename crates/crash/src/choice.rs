//! Which kind of state a number names, and which cuts are tried first.

use std::fmt;

use files::Operation;
use port::random::Random;

use crate::event::Event;

/// What happened of that for which there was no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: only what was durable survives.
    Nothing,
    /// All of it.
    All,
    /// Metadata, and no data.
    NoData,
    /// Data that need no metadata, and no metadata.
    OnlyData,
    /// Metadata, and data of one file; which, is a number.
    OneFile(u64),
    /// Metadata, and data of all files but one.
    AllButOne(u64),
    /// All but a part of the last write: so many of its pages are there, and of the next one the
    /// first sectors if writes may be torn.
    PartOfLast(u64),
    /// What the background did at any time before the cut, and then any of what was on its way.
    Random(u64),
}

/// How many variants there are that are not random.
pub(crate) const PLANNED: u64 = 16;

impl Variant {
    /// The variant with that number.
    pub fn of(number: u64) -> Variant {
        match number {
            0 => Variant::Nothing,
            1 => Variant::All,
            2 => Variant::NoData,
            3 => Variant::OnlyData,
            4..=7 => Variant::OneFile(number - 4),
            8..=11 => Variant::AllButOne(number - 8),
            12..=15 => Variant::PartOfLast(number - 12),
            _ => Variant::Random(number - PLANNED),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Variant::Nothing => out.write_str("nothing survived but what was durable"),
            Variant::All => out.write_str("all survived"),
            Variant::NoData => out.write_str("names and sizes survived, and no data"),
            Variant::OnlyData => out.write_str("data survived, and no names and sizes"),
            Variant::OneFile(n) => write!(out, "data survived of dirty file {n} only"),
            Variant::AllButOne(n) => write!(out, "all survived but data of dirty file {n}"),
            Variant::PartOfLast(n) => write!(out, "all survived but the last write, {n}/4 of it"),
            Variant::Random(n) => write!(out, "some survived, by chance {n}"),
        }
    }
}

/// Cuts of which most is to be expected, first to last: before what is no plain write, where
/// a program's order of things shows, and at the end.
pub(crate) fn telling_cuts(events: &[Event]) -> Vec<usize> {
    let tells = |event: &Event| {
        !matches!(event, Event::Operation(Operation::Write { .. }) | Event::Mark(_))
    };
    let mut cuts: Vec<usize> = (0..events.len()).filter(|&n| tells(&events[n])).collect();
    cuts.push(events.len());
    cuts
}

/// Cut and variant of the state number `n`: every other one goes through the planned variants
/// at the telling cuts, the others are random.
pub(crate) fn choose(telling: &[usize], events: usize, seed: u64, n: u64) -> (usize, u64) {
    let mut random = Random::new(seed, n);
    let (turn, cuts) = (n / 2, telling.len() as u64);
    // Where there are many, not all are tried before the next variant's turn.
    let sweep = cuts.min(64);
    if n.is_multiple_of(2) && turn < sweep * PLANNED {
        let at = if cuts == sweep { turn % sweep } else { random.below(cuts) };
        return (telling[at as usize], turn / sweep);
    }
    let any = random.below(events as u64 + 1) as usize;
    let cut = if random.below(2) == 0 { any } else { telling[random.below(cuts) as usize] };
    let planned = random.below(8) == 0;
    (cut, if planned { random.below(PLANNED) } else { PLANNED + random.below(1 << 32) })
}
