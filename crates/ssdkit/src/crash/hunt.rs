//! One state after the other: made, extracted, checked, by several threads.
//!
//! Which states are looked at does not depend on how many threads there are.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crash::{Explorer, State, Tree, Variant};
use drive::error::Error;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::flag;
use tempfile::TempDir;

use super::check::{Broken, Checker, How};
use super::lives::Life;
use super::missing::{self, Missing};
use super::{CrashArgs, failed, work_folder};

/// A state that broke the check.
pub struct Finding {
    /// After how many events power went.
    pub cut: usize,
    /// Which of the states that this may leave.
    pub variant: u64,
    /// What the check said.
    pub broken: Broken,
}

/// What was found.
#[derive(Default)]
pub struct Found {
    /// States that were made.
    pub states: u64,
    /// Of these, those that differed from all before, and were checked.
    pub checked: u64,
    /// Those that broke the check, the first cut first.
    pub broken: Vec<Finding>,
    /// Somebody ended it before all were made.
    pub is_stopped: bool,
    /// The syncs with which they would not have.
    pub missing: Missing,
    /// Why it may say less than it seems.
    pub warnings: Vec<String>,
}

impl Found {
    /// Whether nothing more is looked for.
    pub fn is_over(&self) -> bool {
        !self.broken.is_empty() || self.is_stopped
    }

    /// What was found after it, with the numbers of both.
    pub fn and(&self, later: Found) -> Found {
        let (states, checked) = (self.states + later.states, self.checked + later.checked);
        Found { states, checked, ..later }
    }

    /// The first.
    pub fn first(&self) -> Option<(usize, u64)> {
        self.broken.first().map(|finding| (finding.cut, finding.variant))
    }
}

/// Cuts before one that are looked at for the same state.
const EARLIER: usize = 64;

/// What all threads share.
pub struct Hunt<'a> {
    life: &'a Life,
    explorer: &'a Explorer,
    /// As many are looked at.
    states: u64,
    check: &'a str,
    timeout: Duration,
    seen: Mutex<HashSet<u64>>,
    found: Mutex<Found>,
    next: AtomicU64,
    /// Somebody asks to end, or something failed.
    is_over: Arc<AtomicBool>,
}

/// What one thread has of its own.
pub struct Worker<'a> {
    folder: TempDir,
    checker: Checker<'a>,
    /// States that it checked: each has a folder of its own, as a check before may have left
    /// somebody in its one.
    checked: u64,
}

impl<'a> Hunt<'a> {
    /// Over what a program did.
    pub fn new(args: &'a CrashArgs, life: &'a Life, states: u64) -> Result<Hunt<'a>, Error> {
        Ok(Hunt {
            life,
            explorer: &life.explorer,
            states,
            check: &args.check,
            timeout: Duration::from_nanos(args.timeout),
            seen: Mutex::default(),
            found: Mutex::default(),
            next: AtomicU64::new(0),
            is_over: Arc::default(),
        })
    }

    /// What states are checked with.
    pub fn worker(&self) -> Result<Worker<'a>, Error> {
        let folder = work_folder("check")?;
        let checker = Checker::new(self.check, self.timeout);
        let checker = checker.map_err(|e| Error::system("make a file", &e))?;
        Ok(Worker { folder, checker, checked: 0 })
    }

    /// Fails where the check does not hold of what the program left when nothing was cut: then it
    /// says nothing.
    pub fn holds_without_a_cut(&self, args: &CrashArgs) -> Result<(), Error> {
        let end = self.explorer.events().len();
        let all = (0..).find(|&n| Variant::of(n) == Variant::All).unwrap_or(1);
        let mut state = self.explorer.state(end, all).map_err(failed)?;
        match self.checked(&mut self.worker()?, &mut state)? {
            None => Ok(()),
            Some(Broken { how, said }) => {
                let there = match how {
                    How::Code(127) => {
                        "; it runs among the files: name programs by their whole path"
                    }
                    _ => "",
                };
                Err(Error::Failed(format!(
                    "the check does not hold of the files as {} left them, without a cut: {how}: \
                     {said}{there}",
                    args.program[0].to_string_lossy()
                )))
            }
        }
    }

    /// Whether the check holds of no files at all, when all was said.
    pub fn holds_of_nothing(&self) -> Result<bool, Error> {
        let end = self.explorer.events().len();
        let broken = self.checked_in(&mut self.worker()?, end, |_| Ok(()))?;
        Ok(broken.is_none())
    }

    /// One state.
    pub fn one(&self, (cut, variant): (usize, u64)) -> Result<Found, Error> {
        let mut state = self.explorer.state(cut, variant).map_err(failed)?;
        let broken = self.checked(&mut self.worker()?, &mut state)?;
        let broken = broken.map(|broken| Finding { cut, variant, broken });
        let broken: Vec<_> = broken.into_iter().collect();
        let mut found = Found { states: 1, checked: 1, broken, ..Found::default() };
        self.find_missing(&mut found);
        Ok(found)
    }

    /// As many as are asked for.
    pub fn all(&self, args: &CrashArgs) -> Result<Found, Error> {
        for signal in load::signals::asking() {
            // A second one ends the process at once. Where they cannot be had it ends at the first.
            let _ = flag::register_conditional_default(signal, self.is_over.clone());
            let _ = flag::register(signal, self.is_over.clone());
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = args.jobs.unwrap_or(cores);
        let bar = bar(self.states);
        let ended: Result<(), Error> = std::thread::scope(|scope| {
            let work = || self.work(self.states, &bar);
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            let mut ended = threads.into_iter().map(|thread| thread.join());
            ended.try_for_each(|ended| ended.expect("a worker does not panic"))
        });
        bar.finish_and_clear();
        ended?;
        let mut found = std::mem::take(&mut *lock(&self.found));
        found.is_stopped = found.states < self.states;
        found.broken.sort_by_key(|finding| (finding.cut, finding.variant));
        for finding in found.broken.iter_mut().take(args.findings) {
            self.plainest(finding)?;
        }
        found.broken.sort_by_key(|finding| (finding.cut, finding.variant));
        found.broken.dedup_by_key(|finding| (finding.cut, finding.variant));
        if !found.is_stopped {
            self.find_missing(&mut found);
        }
        Ok(found)
    }

    /// Finds which syncs are missing. What was found is told even where that fails.
    fn find_missing(&self, found: &mut Found) {
        match missing::of(self, &found.broken) {
            Ok(missing) => found.missing = missing,
            Err(e) => found.warnings.push(format!("which syncs are missing is not known: {e}")),
        }
    }

    /// The same state may be that of many cuts and variants: one that is not by chance, and the
    /// first cut, say best what led to it.
    fn plainest(&self, finding: &mut Finding) -> Result<(), Error> {
        let hash = |cut, variant| {
            let mut state = self.explorer.state(cut, variant).map_err(failed)?;
            self.explorer.hash(&mut state).map_err(failed)
        };
        let its = hash(finding.cut, finding.variant)?;
        let is_planned = |&n: &u64| !matches!(Variant::of(n), Variant::Random(_));
        if !is_planned(&finding.variant) {
            for variant in (0..).take_while(is_planned) {
                if hash(finding.cut, variant)? == its {
                    finding.variant = variant;
                    break;
                }
            }
        }
        if is_planned(&finding.variant) {
            for cut in (finding.cut.saturating_sub(EARLIER)..finding.cut).rev() {
                if hash(cut, finding.variant)? != its {
                    break;
                }
                finding.cut = cut;
            }
        }
        Ok(())
    }

    fn work(&self, states: u64, bar: &ProgressBar) -> Result<(), Error> {
        let mut worker = self.worker()?;
        while !self.is_over.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= states {
                break;
            }
            if let Err(e) = self.look(&mut worker, n) {
                self.is_over.store(true, Ordering::Relaxed);
                return Err(e);
            }
            bar.inc(1);
        }
        Ok(())
    }

    /// Looks at the state of that number.
    fn look(&self, worker: &mut Worker<'_>, n: u64) -> Result<(), Error> {
        let (cut, variant) = self.explorer.choose(n);
        let mut state = self.explorer.state(cut, variant).map_err(failed)?;
        let hash = self.explorer.hash(&mut state).map_err(failed)?;
        let is_new = lock(&self.seen).insert(hash);
        let broken = if is_new { self.checked(worker, &mut state)? } else { None };
        let mut found = lock(&self.found);
        found.states += 1;
        found.checked += u64::from(is_new);
        found.broken.extend(broken.map(|broken| Finding { cut, variant, broken }));
        Ok(())
    }

    /// Whether somebody ended it.
    pub fn is_stopped(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The life that is looked at.
    pub fn life(&self) -> &'a Life {
        self.life
    }

    /// Writes the state to the worker's folder, and starts the check on it.
    pub fn checked(
        &self,
        worker: &mut Worker<'_>,
        state: &mut State,
    ) -> Result<Option<Broken>, Error> {
        self.checked_in(worker, state.cut, |tree| tree.extract(&mut state.files).map_err(failed))
    }

    /// Has a new folder of the worker filled, and starts the check there.
    fn checked_in(
        &self,
        worker: &mut Worker<'_>,
        cut: usize,
        fill: impl FnOnce(&Tree) -> Result<(), Error>,
    ) -> Result<Option<Broken>, Error> {
        worker.checked += 1;
        let folder = worker.folder.path().join(worker.checked.to_string());
        let (files, said) = (folder.join("files"), folder.join("said"));
        let tree = Tree::new(&files).map_err(failed)?;
        fill(&tree)?;
        let told =
            File::create_new(&said).and_then(|mut file| file.write_all(&self.life.said(cut)));
        told.map_err(|e| Error::system("write what the program said", &e))?;
        let checked = worker.checker.run(&files, &said, cut);
        // What somebody holds there goes with the worker's folder.
        let _ = Tree::new(&folder).and_then(Tree::remove);
        checked.map_err(|e: io::Error| Error::system("run the check", &e))
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How far it is, on a terminal.
fn bar(states: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} states, {eta} left");
    ProgressBar::new(states).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
