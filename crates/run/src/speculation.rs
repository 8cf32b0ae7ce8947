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
//! A transaction that is full is committed by itself, and one after the other where the program
//! writes much. Such a commit has all that was answered before it began, and so is waited for as
//! one of ours.
//!
//! If one fails, nothing becomes durable any more. Where a sync was answered and is not, what comes
//! after it may never be seen; else syncs wait from then on, and are told.
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
    /// The last that the files have begun, whoever asked for it.
    last: Begun,
    /// What was changed long ago is to be committed, whether or not a sync asked for it.
    is_wished: bool,
    /// The next that nobody waits for begins then.
    next_at: Option<Instant>,
    /// Commits in a row that nobody waited for.
    unawaited: u32,
    /// Syncs that waited for their commit.
    waited: u64,
    /// Commits that asked the drive for something, of what syncs had asked for or was wished.
    pub commits: u64,
    /// The program has memory that others see: syncs wait again.
    pub is_off: bool,
    /// A commit has failed: no more are begun, and syncs wait.
    is_stopped: bool,
    /// Why a sync that was answered was none.
    pub failed: Option<FilesError>,
}

/// What the files have begun to commit.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    /// How many commits have begun with it.
    commit: u64,
    /// Up to which number it makes durable.
    number: u64,
}

/// A commit that the drive has.
#[derive(Clone, Copy, Debug)]
struct Commit {
    began: Instant,
    what: Begun,
    /// Until then, where that is known.
    until: Option<Instant>,
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
        self.is_on() && self.held <= self.durable
    }

    /// Whether syncs are answered by what is durable here, at once or later.
    pub fn is_on(&self) -> bool {
        !self.is_off && !self.is_stopped
    }

    /// So many commits have begun. To be said before a sync is answered: one that began before has
    /// nothing of it.
    pub fn note(&mut self, begun: u64) {
        if begun > self.last.commit {
            self.last = Begun { commit: begun, number: self.answered };
        }
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
            debug_assert!(commit.what.number >= self.durable);
            self.durable = commit.what.number;
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
        is_due && self.committing.is_none() && !self.is_stopped
    }

    /// A commit of all that was done before begins: with it so many have. It may have found nothing
    /// to do.
    pub fn began(&mut self, now: Instant, begun: u64) {
        let is_new = begun > self.last.commit;
        self.note(begun);
        self.is_wished = false;
        self.commit(now, Begun { commit: begun, number: self.answered }, is_new);
    }

    /// Waits for a commit that the files have begun by themselves, where there is one that is not
    /// over yet, or that has what nobody knows to be durable. So many are over.
    pub fn join(&mut self, now: Instant, over: u64) {
        let has_more = self.last.number > self.durable;
        if self.committing.is_none() && (has_more || self.last.commit > over) {
            self.commit(now, self.last, has_more);
        }
    }

    fn commit(&mut self, began: Instant, what: Begun, counts: bool) {
        self.committing = Some(Commit { began, what, until: None, later: self.unawaited });
        self.unawaited = (self.unawaited + 1).min(MOST_LATER);
        self.commits += u64::from(counts);
    }

    /// So many commits are over, and the drive will be done then: if the one that is waited for is
    /// among them, it ends then.
    pub fn end(&mut self, over: u64, until: Instant) {
        let commit = self.committing.as_mut();
        if let Some(commit) = commit.filter(|it| it.until.is_none() && it.what.commit <= over) {
            commit.until = Some(until);
        }
    }

    /// A commit has failed, and nothing becomes durable any more; `late`: the syncs that were not
    /// answered yet. Unless it `failed` for one that was, these are told, from behind the number on
    /// that comes back; nobody waits for anything then.
    pub fn fail(&mut self, error: FilesError, late: impl Iterator<Item = u64>) -> u64 {
        self.is_stopped = true;
        if let Some(commit) = self.committing.take().filter(|it| it.until.is_some()) {
            self.durable = commit.what.number;
        }
        let durable = self.durable;
        let unanswered = late.filter(|number| *number > durable).count() as u64;
        if self.answered - durable > unanswered {
            self.failed = Some(error);
        } else {
            self.durable = self.answered;
        }
        durable
    }

    /// Whether a commit has failed.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// When there is something to do, if nothing comes before.
    pub fn until(&self) -> Option<Instant> {
        match self.committing {
            Some(commit) if self.is_awaited() => commit.until,
            Some(commit) if self.answered > commit.what.number => commit.next_at(),
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
        let begun = it.last.commit + 1;
        it.began(now, begun);
        it.end(begun, now + take);
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
        it.began(now, 1);
        it.answer();
        it.end(0, now);
        assert!(!it.wants_commit(now + long) && it.until().is_none());
        it.hold(1);
        let awaited = it.answer_late();
        assert!(!it.answers() && it.durable() == 0);
        it.end(1, now + long);
        assert!(it.wants_commit(now + long) && it.durable() == 1);
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

    #[test]
    fn a_commit_that_finds_nothing_to_do_ends_at_once_and_is_not_counted() {
        let now = Instant::now();
        let mut it = Speculation::default();
        it.note(3);
        it.answer();
        it.began(now, 3);
        it.end(3, now);
        it.pass(now);
        assert_eq!((it.durable(), it.commits), (1, 0));
    }

    /// Commits that the files begin by themselves, one after the other: each has what was answered
    /// before it.
    #[test]
    fn a_commit_that_began_by_itself_is_waited_for() {
        let now = Instant::now();
        let mut it = Speculation::default();
        it.answer();
        it.began(now, 1);
        it.note(1);
        it.answer();
        it.hold(2);
        // The first is over, and the second began by that.
        it.note(2);
        let last = it.answer_late();
        it.end(1, now);
        it.pass(now);
        assert_eq!(it.durable(), 1);
        it.join(now, 1);
        assert!(!it.wants_commit(now), "one is under way");
        it.note(3);
        it.end(2, now);
        it.pass(now);
        assert_eq!(it.durable(), 2, "what was answered when the second was under way is not in it");
        it.join(now, 2);
        it.end(3, now);
        it.pass(now);
        assert_eq!((it.durable(), it.commits), (last, 3));
        // One that has nothing of syncs is waited for, too, before the next begins.
        it.note(4);
        it.answer();
        it.join(now, 3);
        assert!(!it.wants_commit(now) && it.until().is_none());
        it.end(4, now);
        it.hold(4);
        assert!(it.wants_commit(now) && it.durable() == last && it.commits == 3);
    }

    #[test]
    fn a_commit_that_fails_matters_where_a_sync_was_answered() {
        let now = Instant::now();
        let mut it = Speculation::default();
        it.answer();
        commit(&mut it, now, Duration::from_secs(1));
        it.hold(1);
        let late = it.answer_late();
        let mut other = Speculation { failed: None, ..it };
        other.answer();
        // The first is durable, as soon as its time has come.
        assert_eq!(it.fail(FilesError::Aborted, [1, late].into_iter()), 1);
        assert!(it.failed.is_none() && it.awaited().is_none() && !it.answers() && !it.is_on());
        assert_eq!(other.fail(FilesError::Aborted, [late].into_iter()), 1);
        assert!(other.failed.is_some() && other.awaited().is_some() && !other.answers());
    }
}
