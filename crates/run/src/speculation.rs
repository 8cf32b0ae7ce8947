//! Syncs that are answered before they are done (`--speculate`). Each takes a number; one commit
//! at a time makes durable what all before it asked for. What others can see waits until the
//! numbers that were given before it are durable.
//!
//! A commit begins when the drive is done with the one before, at once if somebody waits for it.
//! While nobody does, each next one begins a little later, so that a program that shows nothing
//! for long has few of them, with what many syncs asked for; and one that shows something now and
//! then finds most of it durable.
//!
//! When a commit will be done is known where the drive's time is all that it takes. Where a disk
//! has its bytes, that it is done is told when it is: until then it has no end.
//!
//! It rests on the journal keeping the order of all changes, data included (`data`): a cut leaves
//! the files as after some call of the program, and so not before any sync that a released effect
//! came after. It looks at no clock and does no I/O.

use std::time::Instant;

use files::FilesError;

/// A commit that nobody waited for makes the next begin later by so much of its own time.
const LATER: u32 = 8;
/// As many in a row count.
const MOST_LATER: u32 = 64;

/// Which syncs were answered, and which are durable.
#[derive(Debug, Default)]
pub struct Speculation {
    /// The number of the last sync that was answered.
    answered: u64,
    /// Up to which number they are durable.
    durable: u64,
    /// An effect waits for that number, or did; and a sync.
    held: u64,
    late: u64,
    committing: Option<Commit>,
    /// What was changed long ago is to be committed, whether or not a sync asked for it.
    is_wished: bool,
    /// The next that nobody waits for begins then.
    next_at: Option<Instant>,
    /// Commits in a row that nobody waited for.
    unawaited: u32,
    /// Syncs that waited for their commit.
    waited: u64,
    /// Commits that asked the drive for something.
    pub commits: u64,
    /// The program has memory that others see: syncs wait again.
    pub is_off: bool,
    /// Why a sync that was answered was none.
    pub failed: Option<FilesError>,
}

/// A commit that the drive has.
#[derive(Clone, Copy, Debug)]
struct Commit {
    began: Instant,
    /// Flushes that the drive was asked for before.
    flushes: u64,
    /// Until then, where that is known.
    until: Option<Instant>,
    /// Up to which number it makes durable.
    number: u64,
    /// The next begins later by so many times its own time over [`LATER`], if nobody waits.
    later: u32,
}

impl Commit {
    /// When the next begins that nobody waits for.
    fn next_at(&self) -> Option<Instant> {
        let until = self.until?;
        Some(until + until.saturating_duration_since(self.began) * self.later / LATER)
    }
}

impl Speculation {
    /// Whether the next sync is answered at once. Not while an effect waits: its thread hands over
    /// what its memory holds when it goes on, which others may change after their syncs.
    pub fn answers(&self) -> bool {
        !self.is_off && self.held <= self.durable
    }

    /// Whether somebody waits.
    fn is_awaited(&self) -> bool {
        self.held.max(self.late) > self.durable
    }

    /// A sync is answered.
    pub fn answer(&mut self) {
        self.answered += 1;
    }

    /// A sync waits until it is durable, while an effect does: up to which number.
    pub fn answer_late(&mut self) -> u64 {
        self.answered += 1;
        self.waited += 1;
        self.late = self.answered;
        self.hurry();
        self.answered
    }

    /// The next commit is to begin whether or not a sync asked for it.
    pub fn wish(&mut self) {
        self.is_wished = true;
    }

    /// An effect begins to wait.
    pub fn hold(&mut self, number: u64) {
        self.held = self.held.max(number);
        self.hurry();
    }

    /// Somebody waits: the next commit follows the one that is under way.
    fn hurry(&mut self) {
        self.unawaited = 0;
        if let Some(commit) = &mut self.committing {
            commit.later = 0;
        }
    }

    /// Takes note of a commit that is over.
    pub fn pass(&mut self, now: Instant) {
        let is_over = |it: &mut Commit| it.until.is_some_and(|until| now >= until);
        if let Some(commit) = self.committing.take_if(is_over) {
            debug_assert!(commit.number >= self.durable);
            self.durable = commit.number;
            self.next_at = commit.next_at();
        }
    }

    /// What an effect of now waits for.
    pub fn awaited(&self) -> Option<u64> {
        (self.answered > self.durable).then_some(self.answered)
    }

    /// Up to which number effects may be seen.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a commit is to begin: there is something to make durable, no other is under way,
    /// and somebody waits or the time has come.
    pub fn wants_commit(&mut self, now: Instant) -> bool {
        self.pass(now);
        let is_time = self.is_awaited() || self.next_at.is_none_or(|at| now >= at);
        let is_due = is_time && self.awaited().is_some() || self.is_wished;
        is_due && self.committing.is_none() && self.failed.is_none()
    }

    /// A commit of all that was done before begins, on a drive that was asked for so many flushes.
    pub fn began(&mut self, now: Instant, flushes: u64) {
        let (number, later) = (self.answered, self.unawaited);
        self.committing = Some(Commit { began: now, flushes, until: None, number, later });
        self.unawaited = (self.unawaited + 1).min(MOST_LATER);
        self.is_wished = false;
    }

    /// Whether one is under way whose end is not known yet.
    pub fn is_endless(&self) -> bool {
        self.committing.is_some_and(|it| it.until.is_none())
    }

    /// The commit under way will be done then. It may have found nothing to do: by now the drive
    /// was asked for so many flushes.
    pub fn ends(&mut self, until: Instant, flushes: u64) {
        if let Some(commit) = &mut self.committing {
            commit.until = Some(until);
            self.commits += u64::from(flushes > commit.flushes);
        }
    }

    /// The commit that was to begin, or to end, has failed: nothing that waits for it may ever be
    /// seen.
    pub fn fail(&mut self, error: FilesError) {
        self.failed.get_or_insert(error);
    }

    /// When there is something to do, if nothing comes before.
    pub fn until(&self) -> Option<Instant> {
        match self.committing {
            Some(commit) if self.is_awaited() => commit.until,
            Some(commit) if self.answered > commit.number => commit.next_at(),
            Some(_) => None,
            None => self.awaited().and(self.next_at),
        }
    }

    /// How many syncs were answered at once.
    pub fn syncs(&self) -> u64 {
        self.answered - self.waited
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A commit whose time is known.
    fn commit(it: &mut Speculation, now: Instant, take: Duration) {
        it.began(now, 0);
        it.ends(now + take, 1);
    }

    /// A program that syncs without end, on a drive whose commits take so long; effects at these
    /// times. When the commits began.
    fn commits(take: Duration, long: Duration, effects: &[Duration]) -> Vec<Duration> {
        let (begin, step) = (Instant::now(), take / 20);
        let (mut it, mut began, mut effects) = (Speculation::default(), Vec::new(), effects);
        let mut at = Duration::ZERO;
        while at < long {
            let now = begin + at;
            it.pass(now);
            if it.answers() {
                it.answer();
            }
            if let Some((_, left)) = effects.split_first().filter(|(effect, _)| **effect <= at) {
                effects = left;
                it.awaited().into_iter().for_each(|number| it.hold(number));
            }
            if it.wants_commit(now) {
                commit(&mut it, now, take);
                began.push(at);
            }
            at += step;
        }
        began
    }

    #[test]
    fn commits_that_nobody_waits_for_become_fewer() {
        let take = Duration::from_micros(200);
        let began = commits(take, 1000 * take, &[]);
        assert_eq!(began[1] - began[0], take, "the second follows the first");
        let last = began[began.len() - 1] - began[began.len() - 2];
        assert_eq!(last, take + take * MOST_LATER / LATER);
        assert!(began.len() < 200, "{}", began.len());
    }

    #[test]
    fn a_commit_that_somebody_waits_for_begins_at_once() {
        let take = Duration::from_micros(200);
        let unseen = commits(take, 500 * take, &[]);
        // In the middle of a pause.
        let &[.., before, after] = &unseen[..] else { unreachable!() };
        let effect = before + (after - before) / 2;
        let began = commits(take, 500 * take, &[effect]);
        assert_eq!(began[..unseen.len() - 1], unseen[..unseen.len() - 1]);
        assert_eq!(began[unseen.len() - 1], effect);
        // And the next ones follow as at the beginning.
        assert_eq!(began[unseen.len()], effect + take);
    }

    /// What a commit under way does not have waits for the next.
    #[test]
    fn an_effect_waits_for_what_was_answered_before_it() {
        let (now, take) = (Instant::now(), Duration::from_micros(200));
        let mut it = Speculation::default();
        it.answer();
        assert!(it.wants_commit(now));
        commit(&mut it, now, take);
        it.answer();
        let awaited = it.awaited().unwrap();
        it.hold(awaited);
        assert!(!it.answers() && it.until() == Some(now + take));
        assert!(it.wants_commit(now + take) && it.durable() == 1);
        commit(&mut it, now + take, take);
        assert!(!it.answers());
        it.pass(now + 2 * take);
        assert!(it.durable() == awaited && it.answers() && it.awaited().is_none());
        assert_eq!(it.until(), None);
    }

    /// Nobody is woken up for the end of a commit that nobody waits for; who comes later finds it
    /// durable.
    #[test]
    fn the_end_of_a_commit_is_seen_by_who_comes() {
        let (now, take) = (Instant::now(), Duration::from_micros(200));
        let mut it = Speculation::default();
        it.answer();
        assert!(it.wants_commit(now));
        commit(&mut it, now, take);
        assert_eq!(it.until(), None);
        it.pass(now + take);
        assert_eq!(it.awaited(), None);
    }

    /// Where a disk has it, a commit lasts until that says so, whatever the time.
    #[test]
    fn a_commit_without_an_end_is_under_way() {
        let (now, long) = (Instant::now(), Duration::from_secs(3600));
        let mut it = Speculation::default();
        it.answer();
        assert!(it.wants_commit(now));
        it.began(now, 7);
        it.answer();
        assert!(it.is_endless() && !it.wants_commit(now + long) && it.until().is_none());
        it.hold(1);
        let awaited = it.answer_late();
        assert!(!it.answers() && it.durable() == 0);
        it.ends(now + long, 7);
        assert_eq!(it.commits, 0, "it found nothing to do");
        assert!(!it.is_endless() && it.wants_commit(now + long) && it.durable() == 1);
        assert!(it.answers(), "no effect waits, and who else does holds up no sync");
        commit(&mut it, now + long, long);
        it.pass(now + 2 * long);
        assert_eq!((it.durable(), it.answers(), it.syncs()), (awaited, true, 2));
    }

    /// What no sync asked for is committed now and then, too.
    #[test]
    fn a_commit_that_is_wished_for_begins_without_a_sync() {
        let (now, take) = (Instant::now(), Duration::from_micros(200));
        let mut it = Speculation::default();
        assert!(!it.wants_commit(now));
        it.wish();
        assert!(it.wants_commit(now));
        commit(&mut it, now, take);
        assert!(!it.wants_commit(now + take) && it.durable() == 0);
    }
}
