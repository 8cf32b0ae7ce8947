//! Which syncs are missing: what would have made durable in time what broke when power went.
//!
//! The last thing that the program did before the first cut that breaks is what made it wrong: a
//! name, a mark or a line became true before what it stands for. So the program is taken to have
//! synced something more just before that, and what the same cut leaves then is looked at again:
//! with all synced; with one file or folder, those that differ before those that were touched last;
//! with two. What holds is kept, and the next cut that breaks is looked at, until none does.
//! Guarantees: what is told was tried, and the same findings give the same. Bounded, by
//! [`CHECKS`], [`STATES`] and [`MOST`]. May fail: the check cannot be run.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crash::{Event, More};
use drive::error::Error;
use drive::say::harmless;
use files::{Inode, Kind, Operation};
use indicatif::ProgressBar;
use measure::units;
use serde_json::{Value, json};

use super::difference;
use super::hunt::{Finding, Hunt, Worker};
use super::names::Names;

/// Syncs that are told; checks and states that are made to find them.
const MOST: usize = 16;
const CHECKS: u64 = 2000;
const STATES: u64 = 30_000;

/// How many cuts before a finding's are looked at for the first that breaks.
const EARLIER: usize = 500;

/// What is told of in place of an event where the first cut breaks.
const BEGINNING: &str = "the program began";

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
    /// Different states after the cuts that broke that were looked at with these syncs, and held.
    held: u64,
    /// Before what all may be synced, and a state after it breaks all the same.
    unhelped: Vec<String>,
    /// There may be more, which were not looked for.
    is_cut_short: bool,
    /// What broke held when it was looked at again.
    is_unsteady: bool,
}

impl Missing {
    fn not_helped(&mut self, before: String) {
        if !self.unhelped.contains(&before) {
            self.unhelped.push(before);
        }
    }

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
                    n => {
                        let between = units::counted(n as u64, "event");
                        write!(text, ", before {last}, and before {between} between")
                    }
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
    let mut trial = Trial::new(hunt)?;
    match trial.mend(broken, &mut missing).and_then(|()| trial.recount(broken)) {
        Err(Stop::Failed(e)) => return Err(e),
        Err(Stop::Bounds) => missing.is_cut_short = true,
        // With the syncs found last an earlier one may break again.
        Ok(holds) => missing.is_cut_short |= !holds && missing.unhelped.is_empty(),
    }
    trial.bar.finish_and_clear();
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

/// Where something breaks first.
enum First {
    /// There, and the event before it, which makes the difference.
    At(Place, usize),
    /// Before any event.
    Beginning,
    /// So far before that it was not looked for.
    Far,
}

/// The program with more syncs than it has.
struct Trial<'a, 'b> {
    hunt: &'a Hunt<'b>,
    worker: Worker<'b>,
    /// What was found to be missing.
    more: Vec<More>,
    /// Whether the check holds of a state: of equal ones it says the same.
    known: HashMap<u64, bool>,
    /// States that held, since it was emptied.
    held: HashSet<u64>,
    /// Checks and states that may still be made.
    checks: u64,
    states: u64,
    bar: ProgressBar,
}

impl<'a, 'b> Trial<'a, 'b> {
    fn new(hunt: &'a Hunt<'b>) -> Result<Trial<'a, 'b>, Error> {
        let bar = ProgressBar::new_spinner().with_message("looking for the syncs that are missing");
        Ok(Trial {
            hunt,
            worker: hunt.worker()?,
            more: Vec::new(),
            known: HashMap::new(),
            held: HashSet::new(),
            checks: CHECKS,
            states: STATES,
            bar,
        })
    }

    /// Finds syncs until all holds that broke, or no sync helps.
    fn mend(&mut self, broken: &[Finding], missing: &mut Missing) -> Result<(), Stop> {
        let mut looked = None;
        for finding in broken {
            let place = (finding.cut, finding.variant);
            // Of a cut that holds in all that is planned only this state is new.
            let is_new = looked.replace(finding.cut) != Some(finding.cut);
            let (mut is_broken, mut found) = (false, self.look(place, is_new)?);
            while let Err(worse) = found {
                is_broken = true;
                if missing.syncs.len() == MOST {
                    return Err(Stop::Bounds);
                }
                if !self.mend_one(worse, missing)? {
                    break;
                }
                found = self.look(place, true)?;
            }
            missing.is_unsteady |= !is_broken && self.more.is_empty();
        }
        Ok(())
    }

    /// Finds the sync that is missing where this first breaks. Whether there is one.
    fn mend_one(&mut self, place: Place, missing: &mut Missing) -> Result<bool, Stop> {
        let (place, last) = match self.first(place)? {
            First::At(place, last) => (place, last),
            First::Beginning => {
                missing.not_helped(BEGINNING.into());
                return Ok(false);
            }
            First::Far => {
                missing.is_cut_short = true;
                return Ok(false);
            }
        };
        let before = self.names(last).describe(&self.hunt.life().explorer.events()[last]);
        match self.sync(place, last)? {
            Some(files) => missing.syncs.push((files, before)),
            None => {
                missing.not_helped(before);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks at all that broke once more, and counts. Whether all holds.
    fn recount(&mut self, broken: &[Finding]) -> Result<bool, Stop> {
        self.held.clear();
        let (mut all, mut looked) = (true, None);
        for finding in broken {
            let is_new = looked.replace(finding.cut) != Some(finding.cut);
            all &= self.look((finding.cut, finding.variant), is_new)?.is_ok();
        }
        Ok(all)
    }

    /// Whether the check holds of what a cut leaves: in the state given, and where `all` is
    /// asked for in all that are not by chance, and in some that are. If not, the place of one of
    /// which it does not.
    fn look(&mut self, (cut, worst): Place, all: bool) -> Result<Result<(), Place>, Stop> {
        let others = self.hunt.life().explorer.variants(CHANCES).filter(|_| all);
        for variant in std::iter::once(worst).chain(others) {
            if !self.holds((cut, variant))? {
                return Ok(Err((cut, variant)));
            }
        }
        Ok(Ok(()))
    }

    /// Whether the check holds of a state. One that cannot be made is as one of which it does not.
    fn holds(&mut self, (cut, variant): Place) -> Result<bool, Stop> {
        if self.states == 0 || self.hunt.is_stopped() {
            return Err(Stop::Bounds);
        }
        self.states -= 1;
        self.bar.tick();
        let explorer = &self.hunt.life().explorer;
        let Ok(mut state) = explorer.state_with(cut, variant, &self.more) else {
            return Ok(false);
        };
        let hash = explorer.hash(&mut state).map_err(super::failed)?;
        let holds = match self.known.get(&hash) {
            Some(&holds) => holds,
            None if self.checks == 0 => return Err(Stop::Bounds),
            None => {
                self.checks -= 1;
                let holds = self.hunt.checked(&mut self.worker, &mut state)?.is_none();
                self.known.insert(hash, holds);
                holds
            }
        };
        if holds {
            self.held.insert(hash);
        }
        Ok(holds)
    }

    /// The first place that breaks, of this one and cuts before it.
    fn first(&mut self, mut place: Place) -> Result<First, Stop> {
        let events = self.hunt.life().explorer.events();
        for _ in 0..EARLIER {
            let Some(last) = (0..place.0).rev().find(|&n| tells(&events[n])) else {
                return Ok(First::Beginning);
            };
            match self.look((last, place.1), true)? {
                Ok(()) => return Ok(First::At(place, last)),
                Err(earlier) => place = earlier,
            }
        }
        Ok(First::Far)
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
        let files = self.candidates(&differ, last);
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
        let holds = self.look(place, true);
        self.more.pop();
        Ok(holds?.is_ok())
    }

    /// Files and folders that a sync may have been missing of before an event, and that there are
    /// then: those that differ and the folders that they are in, and those that something was done
    /// to, the last first. What is neither cannot be synced by its name.
    fn candidates(&self, differ: &[Inode], last: usize) -> Vec<Inode> {
        let life = self.hunt.life();
        let events = &life.explorer.events()[..last];
        let mut there = HashSet::from([Inode::ROOT]);
        let done = events.iter().filter_map(|event| match event {
            Event::Operation(operation) => Some(operation),
            _ => None,
        });
        for operation in life.run.initial.iter().chain(done) {
            match operation {
                Operation::Create { inode, kind: Kind::File | Kind::Folder, .. } => {
                    there.insert(*inode);
                }
                Operation::Forget { inode } => {
                    there.remove(inode);
                }
                _ => {}
            }
        }
        let names = self.names(last);
        let folders = differ.iter().filter_map(|&inode| names.folder(inode));
        let mut files: Vec<Inode> = differ.iter().copied().chain(folders).collect();
        files.extend(touched(events));
        let mut seen = HashSet::new();
        files.retain(|file| there.contains(file) && seen.insert(*file));
        files.truncate(FILES);
        files
    }

    fn names(&self, event: usize) -> Names {
        let life = self.hunt.life();
        Names::before(&life.run, life.explorer.events(), event)
    }
}

/// What something was done to, the last first.
fn touched(events: &[Event]) -> Vec<Inode> {
    let mut files = Vec::new();
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
