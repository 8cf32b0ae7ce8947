//! Which syncs are missing: what would have made durable in time what broke when power went.
//!
//! The last thing that the program did before the first cut that breaks is what made it wrong: a
//! name, a mark or a line became true before what it stands for. So the program is taken to have
//! synced something more just before that, and what the same cut leaves then is looked at again:
//! with all synced; with one file or folder, those that differ before those that were touched last;
//! with two. What holds is kept, and the next cut that breaks is looked at, until none does.
//! Guarantees: what is told was tried, and the same findings give the same. Bounded, by
//! [`CHECKS`] and [`MOST`]. May fail: the check cannot be run.

use std::collections::HashSet;
use std::fmt::Write;

use crash::{Event, More};
use drive::error::Error;
use drive::say::harmless;
use files::{Inode, Operation};
use measure::units;
use serde_json::{Value, json};

use super::difference;
use super::hunt::{Finding, Hunt, Worker};
use super::names::Names;

/// Syncs that are told, and checks that are made to find them.
const MOST: usize = 16;
const CHECKS: u64 = 2000;

/// How many cuts before a finding's are looked at for the first that breaks.
const EARLIER: usize = 32;

/// Files and folders of which a sync is tried, and of these so many two at a time.
const FILES: usize = 12;
const PAIRED: usize = 5;

/// States by chance that are looked at after a cut, with all that are not.
const CHANCES: u64 = 16;

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// What is to be synced, and before what, in the program's order.
    syncs: Vec<(Vec<String>, String)>,
    /// Different states after the cuts that broke that hold with these syncs.
    held: u64,
    /// Before what all may be synced, and a state after it breaks all the same.
    unhelped: Vec<String>,
    /// There may be more, which were not looked for.
    is_cut_short: bool,
    /// What broke held when it was looked at again.
    is_unsteady: bool,
}

impl Missing {
    /// For programs; null where nothing was looked for.
    pub fn to_json(&self) -> Value {
        let sync = |(of, before): &(Vec<String>, String)| json!({ "of": of, "before": before });
        if *self == Missing::default() {
            return Value::Null;
        }
        json!({
            "syncs": self.syncs.iter().map(sync).collect::<Vec<_>>(),
            "held": self.held,
            "unhelped": self.unhelped,
            "cut_short": self.is_cut_short,
            "unsteady": self.is_unsteady,
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let Missing { syncs, held, unhelped, is_cut_short, is_unsteady } = self;
        let mut text = String::new();
        if !syncs.is_empty() {
            let count = units::counted(syncs.len() as u64, "sync");
            let _ = write!(text, "\nMissing, as trying shows: {count}");
            let _ = match *is_cut_short || !unhelped.is_empty() {
                true => writeln!(text, ", and more"),
                false => {
                    let held = units::counted(*held, "state");
                    writeln!(text, "; with that, what these cuts leave holds ({held} tried)")
                }
            };
        }
        for alike in syncs.chunk_by(|(of, _), (next, _)| of == next) {
            let (of, before) = &alike[0];
            let _ = write!(text, "  sync {}, before {before}", of.join(" and "));
            if let [_, between @ .., (_, last)] = alike {
                let _ = match between.len() {
                    0 => write!(text, " and before {last}"),
                    n => write!(text, ", before {last}, and before {n} events between"),
                };
            }
            text += "\n";
        }
        for what in unhelped {
            let _ =
                writeln!(text, "\nNo sync helps: it breaks, too, with all synced before {what}");
        }
        if *is_unsteady {
            text += "\nWhat broke held when it was looked at again: the check says now this, now that\n";
        }
        if *is_cut_short {
            text += "The search for syncs ended at its bounds\n";
        }
        text
    }
}

/// What was missing, where these broke.
pub fn of(hunt: &Hunt<'_>, broken: &[Finding]) -> Result<Missing, Error> {
    let mut missing = Missing::default();
    if broken.is_empty() {
        return Ok(missing);
    }
    let mut trial = Trial {
        hunt,
        worker: hunt.worker()?,
        more: Vec::new(),
        held: HashSet::new(),
        left: CHECKS,
    };
    match trial.mend(broken, &mut missing) {
        Err(Stop::Failed(e)) => return Err(e),
        Err(Stop::Bounds) => missing.is_cut_short = true,
        Ok(()) => {}
    }
    let mut syncs: Vec<_> = trial.more.iter().map(|more| more.before).zip(missing.syncs).collect();
    syncs.sort_by_key(|(before, _)| *before);
    missing.syncs = syncs.into_iter().map(|(_, sync)| sync).collect();
    missing.held = trial.held.len() as u64;
    Ok(missing)
}

/// Why no more is tried.
enum Stop {
    Bounds,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

/// A place that breaks: after how many events power went, and which of the states that this leaves.
type Place = (usize, u64);

/// The program with more syncs than it has.
struct Trial<'a, 'b> {
    hunt: &'a Hunt<'b>,
    worker: Worker<'b>,
    /// What was found to be missing.
    more: Vec<More>,
    /// States that held with it, or with a part of it.
    held: HashSet<u64>,
    /// Checks that may still be made.
    left: u64,
}

impl Trial<'_, '_> {
    fn mend(&mut self, broken: &[Finding], missing: &mut Missing) -> Result<(), Stop> {
        let mut cuts: Vec<Place> = broken.iter().map(|it| (it.cut, it.variant)).collect();
        cuts.dedup_by_key(|(cut, _)| *cut);
        for place in cuts {
            let mut is_broken = false;
            while let Err(worse) = self.holds(place)? {
                is_broken = true;
                if missing.syncs.len() == MOST {
                    return Err(Stop::Bounds);
                }
                let Some((place, last)) = self.first(worse)? else { break };
                let names = self.names(last);
                let event = &self.hunt.life().explorer.events()[last];
                let before = names.describe(event);
                let Some(files) = self.sync(place, last)? else {
                    if !missing.unhelped.contains(&before) {
                        missing.unhelped.push(before);
                    }
                    break;
                };
                missing.syncs.push((files, before));
            }
            missing.is_unsteady |= !is_broken && self.more.is_empty();
        }
        Ok(())
    }

    /// Whether the check holds of what a cut leaves: in the state given, in all that are not by
    /// chance, and in some that are. If not, the place of one of which it does not.
    fn holds(&mut self, (cut, worst): Place) -> Result<Result<(), Place>, Stop> {
        let explorer = &self.hunt.life().explorer;
        for variant in std::iter::once(worst).chain(explorer.variants(CHANCES)) {
            let state = explorer.state_with(cut, variant, &self.more);
            let mut state = state.map_err(super::failed)?;
            let hash = explorer.hash(&mut state).map_err(super::failed)?;
            if self.held.contains(&hash) {
                continue;
            }
            if self.left == 0 || self.hunt.is_stopped() {
                return Err(Stop::Bounds);
            }
            self.left -= 1;
            if self.hunt.checked(&mut self.worker, &mut state)?.is_some() {
                return Ok(Err((cut, variant)));
            }
            self.held.insert(hash);
        }
        Ok(Ok(()))
    }

    /// The first place that breaks, of this one and cuts before it, and the event before that, which
    /// makes the difference. `None` where no event does.
    fn first(&mut self, mut place: Place) -> Result<Option<(Place, usize)>, Stop> {
        let events = self.hunt.life().explorer.events();
        for _ in 0..EARLIER {
            let Some(last) = (0..place.0).rev().find(|&n| tells(&events[n])) else {
                return Ok(None);
            };
            match self.holds((last, place.1))? {
                Ok(()) => return Ok(Some((place, last))),
                Err(earlier) => place = earlier,
            }
        }
        Ok(None)
    }

    /// Finds what a sync is missing of before event number `last`, has it synced from now on, and
    /// gives the names. `None` where no sync helps.
    fn sync(&mut self, place: Place, last: usize) -> Result<Option<Vec<String>>, Stop> {
        let sync = |&inode: &Inode| Operation::Sync { inode, data: false };
        if !self.holds_with(vec![Operation::SyncAll], place, last)? {
            return Ok(None);
        }
        let explorer = &self.hunt.life().explorer;
        let differ = difference::of(explorer, place.0, place.1)?.files;
        let files = touched(&differ, &explorer.events()[..last]);
        let few = &files[..files.len().min(PAIRED)];
        let pairs = few.iter().enumerate();
        let pairs = pairs.flat_map(|(n, &one)| few[n + 1..].iter().map(move |&two| vec![one, two]));
        let names = self.names(last);
        for tried in files.iter().map(|&one| vec![one]).chain(pairs) {
            if self.holds_with(tried.iter().map(sync).collect(), place, last)? {
                self.more.push(More { before: last, operations: tried.iter().map(sync).collect() });
                return Ok(Some(tried.iter().map(|&file| harmless(&names.get(file))).collect()));
            }
        }
        self.more.push(More { before: last, operations: vec![Operation::SyncAll] });
        Ok(Some(vec!["all files".to_owned()]))
    }

    /// Whether the check would hold there.
    fn holds_with(
        &mut self,
        operations: Vec<Operation>,
        place: Place,
        last: usize,
    ) -> Result<bool, Stop> {
        self.more.push(More { before: last, operations });
        let holds = self.holds(place);
        self.more.pop();
        Ok(holds?.is_ok())
    }

    fn names(&self, event: usize) -> Names {
        let life = self.hunt.life();
        Names::before(&life.run, life.explorer.events(), event)
    }
}

/// Files and folders that a sync may have been missing of: those that differ, and then those that
/// something was done to, the last first.
fn touched(differ: &[Inode], events: &[Event]) -> Vec<Inode> {
    let mut files = differ.to_vec();
    for event in events.iter().rev() {
        let Event::Operation(operation) = event else { continue };
        match operation {
            Operation::Create { parent, inode, .. } | Operation::Link { parent, inode, .. } => {
                files.extend([*inode, *parent]);
            }
            Operation::Remove { parent, .. } => files.push(*parent),
            Operation::Rename { from, to, .. } => files.extend([to.0, from.0]),
            Operation::Write { inode, .. }
            | Operation::Truncate { inode, .. }
            | Operation::Allocate { inode, .. }
            | Operation::Punch { inode, .. }
            | Operation::Mode { inode, .. } => files.push(*inode),
            Operation::Forget { .. } | Operation::Sync { .. } | Operation::SyncAll => {}
        }
        if files.len() > 8 * FILES {
            break;
        }
    }
    let mut seen = HashSet::new();
    files.retain(|&file| seen.insert(file));
    files.truncate(FILES);
    files
}

/// Whether somebody sees a difference after it.
fn tells(event: &Event) -> bool {
    match event {
        Event::Operation(operation) => !matches!(operation, Operation::Forget { .. }),
        Event::Output { stream, .. } => *stream == 1,
        Event::Mark(_) => false,
    }
}
