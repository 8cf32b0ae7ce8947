//! Syncs that are answered before they are done (`--speculate`). Each takes a number; one commit
//! at a time makes durable what all before it asked for, as soon as the drive is done with the one
//! before. What others can see waits until the numbers that were given before it are durable.
//!
//! It rests on the journal keeping the order of all changes, data included (`data`): a cut leaves
//! the files as after some call of the program, and so not before any sync that a released effect
//! came after. It looks at no clock and does no I/O.

use std::time::Instant;

use files::FilesError;

/// Which syncs were answered, and which are durable.
#[derive(Debug, Default)]
pub struct Speculation {
    /// The number of the last sync that was answered.
    answered: u64,
    /// Up to which number they are durable.
    durable: u64,
    /// An effect waits for that number, or did.
    held: u64,
    /// A commit that the drive has until then, and up to which number it makes durable.
    committing: Option<(Instant, u64)>,
    /// Commits that asked the drive for something.
    pub commits: u64,
    /// The program has memory that others see: syncs wait again.
    pub is_off: bool,
    /// Why a sync that was answered was none.
    pub failed: Option<FilesError>,
}

impl Speculation {
    /// Whether the next sync is answered at once. Not while an effect waits: its thread hands over
    /// what its memory holds when it goes on, which others may change after their syncs.
    pub fn answers(&self) -> bool {
        !self.is_off && self.held <= self.durable
    }

    /// A sync is answered.
    pub fn answer(&mut self) {
        self.answered += 1;
    }

    /// An effect begins to wait.
    pub fn hold(&mut self, number: u64) {
        self.held = self.held.max(number);
    }

    /// What an effect of now waits for.
    pub fn awaited(&self) -> Option<u64> {
        (self.answered > self.durable).then_some(self.answered)
    }

    /// Up to which number effects may be seen.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a commit is to begin: there is something to make durable, and no other under way.
    pub fn wants_commit(&mut self, now: Instant) -> bool {
        if let Some((at, number)) = self.committing.filter(|it| now >= it.0) {
            debug_assert!(number > self.durable && at <= now);
            (self.durable, self.committing) = (number, None);
        }
        self.committing.is_none() && self.awaited().is_some() && self.failed.is_none()
    }

    /// A commit of all that was done before has begun, and will be done then; it may have found
    /// nothing to do.
    pub fn began(&mut self, at: Instant, is_new: bool) {
        self.commits += u64::from(is_new);
        self.committing = Some((at, self.answered));
    }

    /// The commit that was to begin has failed: nothing that waits for it may ever be seen.
    pub fn fail(&mut self, error: FilesError) {
        self.failed = Some(error);
    }

    /// When the commit under way is done.
    pub fn until(&self) -> Option<Instant> {
        self.committing.map(|it| it.0)
    }

    /// How many syncs were answered.
    pub fn syncs(&self) -> u64 {
        self.answered
    }
}
