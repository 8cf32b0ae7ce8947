//! Which kind of state a number names, and which cuts are tried first.

use std::fmt;

use files::{Journal, Operation};
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
    /// Metadata, and of the data one page only: the last that was written, or so many before it.
    OnlyPage(u64),
    /// All but one page of data: the last that was written, or so many before it.
    AllButPage(u64),
    /// All but a part of the last write: so many of its pages are there, and of the next one the
    /// first sectors if writes may be torn.
    PartOfLast(u64),
    /// What the background did at any time before the cut, and then any of what was on its way.
    Random(u64),
}

/// Those that are not random. Who asks for few states gets the first ones: they break most.
const PLANS: [Variant; 32] = [
    Variant::Nothing,
    Variant::All,
    Variant::NoData,
    Variant::OnlyPage(0),
    Variant::AllButPage(1),
    Variant::PartOfLast(2),
    Variant::AllButPage(0),
    Variant::OneFile(0),
    Variant::AllButOne(0),
    Variant::OnlyData,
    Variant::OnlyPage(1),
    Variant::AllButPage(2),
    Variant::OneFile(1),
    Variant::AllButOne(1),
    Variant::PartOfLast(0),
    Variant::AllButPage(3),
    Variant::OnlyPage(2),
    Variant::PartOfLast(1),
    Variant::PartOfLast(3),
    Variant::OneFile(2),
    Variant::AllButOne(2),
    Variant::OneFile(3),
    Variant::AllButOne(3),
    Variant::AllButPage(4),
    Variant::AllButPage(5),
    Variant::AllButPage(6),
    Variant::AllButPage(7),
    Variant::OnlyPage(3),
    Variant::OnlyPage(4),
    Variant::OnlyPage(5),
    Variant::OnlyPage(6),
    Variant::OnlyPage(7),
];

/// How many variants there are that are not random.
pub(crate) const PLANNED: u64 = PLANS.len() as u64;
/// How many of them differ where data go through the journal: all comes together, or does not.
const WHOLE: u64 = 2;

impl Variant {
    /// The variant with that number.
    pub fn of(number: u64) -> Variant {
        let plan = usize::try_from(number).ok().and_then(|n| PLANS.get(n));
        plan.copied().unwrap_or_else(|| Variant::Random(number - PLANNED))
    }
}

/// The numbers of the variants that are not random.
pub(crate) fn planned(journal: Journal) -> std::ops::Range<u64> {
    0..if journal == Journal::Data { WHOLE } else { PLANNED }
}

impl fmt::Display for Variant {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Variant::Nothing => out.write_str("nothing survived but what was durable"),
            Variant::All => out.write_str("all survived"),
            Variant::NoData => {
                out.write_str("names survived, and no data nor the sizes that data give files")
            }
            Variant::OnlyData => out.write_str("data survived, and no names and sizes"),
            Variant::OneFile(n) => write!(out, "data survived of dirty file {n} only"),
            Variant::AllButOne(n) => write!(out, "all survived but data of dirty file {n}"),
            Variant::OnlyPage(0) => out.write_str("data survived of the page written last only"),
            Variant::OnlyPage(n) => {
                write!(out, "data survived of one page only, {n} before the last")
            }
            Variant::AllButPage(0) => out.write_str("all survived but the page written last"),
            Variant::AllButPage(n) => write!(out, "all survived but one page, {n} before the last"),
            Variant::PartOfLast(n) => write!(out, "all survived but the last write, {n}/4 of it"),
            Variant::Random(n) => write!(out, "some survived, by chance {n}"),
        }
    }
}

/// Cuts of which something is to be expected, first to last.
pub(crate) struct Telling {
    /// Before what is no plain write, where a program's order of things shows, and at the end.
    cuts: Vec<usize>,
    /// Those of them that come after what makes something true: another name, a removal, a sync,
    /// something said. A program that makes thousands of files has few.
    commits: Vec<usize>,
}

impl Telling {
    pub(crate) fn of(events: &[Event]) -> Telling {
        let (mut cuts, mut commits) = (Vec::new(), Vec::new());
        let mut is_after_commit = false;
        for (n, event) in events.iter().enumerate() {
            if matches!(event, Event::Operation(Operation::Write { .. }) | Event::Mark(_)) {
                continue;
            }
            cuts.push(n);
            commits.extend(is_after_commit.then_some(n));
            is_after_commit = match event {
                Event::Operation(operation) => matches!(
                    operation,
                    Operation::Rename { .. }
                        | Operation::Remove { .. }
                        | Operation::Sync { .. }
                        | Operation::SyncAll
                ),
                Event::Output { .. } | Event::Mark(_) => true,
            };
        }
        cuts.push(events.len());
        commits.push(events.len());
        Telling { cuts, commits }
    }
}

/// Telling cuts of which all are tried before the next variant's turn.
const SWEEP: u64 = 64;

/// Cut and variant of the state number `n`: every other one goes through the planned variants
/// at the telling cuts, the others are random.
pub(crate) fn choose(
    (telling, events): (&Telling, usize),
    journal: Journal,
    seed: u64,
    n: u64,
) -> (usize, u64) {
    let planned = planned(journal).end;
    let mut random = Random::new(seed, n);
    let Telling { cuts, commits } = telling;
    let one_of =
        |cuts: &[usize], random: &mut Random| cuts[random.below(cuts.len() as u64) as usize];
    let (turn, sweep) = (n / 2, SWEEP.min(cuts.len() as u64));
    if n.is_multiple_of(2) && turn < sweep * planned {
        let (slot, first) = ((turn % sweep) as usize, commits.len() <= SWEEP as usize / 2);
        let cut = match slot {
            _ if cuts.len() as u64 == sweep => cuts[slot],
            // Of these all, if they are few, or half of the turns.
            _ if first && slot < commits.len() => commits[slot],
            _ if !first && slot < SWEEP as usize / 2 => one_of(commits, &mut random),
            _ => one_of(cuts, &mut random),
        };
        return (cut, turn / sweep);
    }
    let any = random.below(events as u64 + 1) as usize;
    let cut = match random.below(4) {
        0 | 1 => any,
        2 => one_of(cuts, &mut random),
        _ => one_of(commits, &mut random),
    };
    let is_planned = random.below(8) == 0;
    (cut, if is_planned { random.below(planned) } else { PLANNED + random.below(1 << 32) })
}

#[cfg(test)]
mod tests {
    use files::{Inode, Kind};

    use super::*;

    /// Thousands of files are made, and one gets its name at the end.
    #[test]
    fn what_makes_something_true_is_looked_at_soon() {
        let file = |n: u64| Inode(n + 10);
        let create = |n: u64| Operation::Create {
            parent: Inode::ROOT,
            name: n.to_string().into_bytes(),
            inode: file(n),
            kind: Kind::File,
            mode: 0o644,
        };
        let mut events: Vec<Event> = (0..3000).map(|n| Event::Operation(create(n))).collect();
        let (from, to) = ((Inode::ROOT, b"7".to_vec()), (Inode::ROOT, b"all".to_vec()));
        events.push(Event::Operation(Operation::Rename { from, to, exchange: false }));
        let telling = Telling::of(&events);
        assert_eq!((telling.cuts.len(), &telling.commits[..]), (3002, &[3001][..]));
        let chosen = |n| choose((&telling, events.len()), Journal::Ordered, 1, n);
        for variant in 0..4 {
            let is_tried = (0..2 * SWEEP * 4).any(|n| chosen(n) == (events.len(), variant));
            assert!(is_tried, "{variant}");
        }
    }
}
