//! Commits: what has changed goes into a transaction, which makes its way to the disk.
//!
//! A commit is begun and goes on by steps, for each of which the disk has to be done with the one
//! before. With data in the journal others may change files meanwhile:
//!
//! - *what is in it is fixed when it begins*, pages and metadata, and so is what is free with its
//!   end. Whatever changes from then on is of the next transaction, also if it changes the same
//!   page or gives a block up that this one has.
//! - *one is under way at a time*, and nothing else is written meanwhile. Who needs the disk or a
//!   commit (a sync, a checkpoint, a transaction that is full) waits for it first.
//! - *who reads takes its images*, as those that are in the ring.
//! - *if it fails nothing changes any more*, as ever; what was done meanwhile is lost with it.
//!
//! Everybody else begins a commit and waits for its end.

use crate::disk::{Disk, DiskError, Page};
use crate::error::FilesError;
use crate::files::Files;
use crate::journal::{Passed, write_in_place};
use crate::mutation::{self, Mutation};
use crate::options::Journal;
use crate::space::Given;

impl<D: Disk> Files<D> {
    /// Begins to make all durable that was done until now, and waits for nothing that the disk
    /// takes time for ([`Disk::begin_flush`]), where data go through the journal: then
    /// [`Files::is_committed`] says when it is so. Where they do not, it is a [`SyncAll`].
    ///
    /// Until then files are used as ever. What is done meanwhile is not in it, and what waits for
    /// the disk waits for its end first. Fails as a sync does; then nothing changes any more.
    ///
    /// [`SyncAll`]: crate::Operation::SyncAll
    pub fn begin_commit(&mut self) -> Result<(), FilesError> {
        if !self.journals_data() {
            return self.sync_all();
        }
        self.begin_transaction(true)?;
        self.go_on(false).map(drop)
    }

    /// Goes on with the commit that was begun, as far as the disk is; whether it is over, so that
    /// all is durable that was done before it began. True where none was begun.
    pub fn is_committed(&mut self) -> Result<bool, FilesError> {
        self.go_on(false)
    }

    /// How many commits have begun since the files were mounted that had something to do: also
    /// those of a transaction that was full.
    pub fn commits_begun(&self) -> u64 {
        self.running.number - 1
    }

    /// How many of them are over: all is durable that was done before the last of those began. It
    /// is 1 less than have begun while one is under way, and after one that failed.
    pub fn commits_over(&self) -> u64 {
        let is_under_way = self.journal.as_ref().is_some_and(|it| it.is_writing());
        self.commits_begun() - u64::from(is_under_way)
    }

    /// What the disk failed at, where nothing changes any more ([`FilesError::Aborted`]).
    pub fn failure(&self) -> Option<DiskError> {
        self.aborted
    }

    /// Commits what changed; `names`: of folders, too.
    pub(crate) fn commit(&mut self, names: bool) -> Result<(), FilesError> {
        self.begin_transaction(names)?;
        self.go_on(true)?;
        let is_ordered = self.layout.options.journal == Journal::Ordered;
        if is_ordered && mutation::is(Mutation::CommitBeforeData) {
            self.write_ordered();
        }
        Ok(())
    }

    /// Puts what changed into a transaction that is under way from now on, if anything did; or,
    /// without a journal, writes it.
    fn begin_transaction(&mut self, names: bool) -> Result<(), FilesError> {
        self.go_on(true)?;
        if self.journals_data() {
            self.running.eager.clear();
            if mutation::is(Mutation::ForgetEarly) {
                let given: Vec<Given> = self.store.space.pending().collect();
                self.forget_images(&given);
            }
        }
        self.write_eager()?;
        let is_ordered = self.layout.options.journal == Journal::Ordered;
        if is_ordered && !mutation::is(Mutation::CommitBeforeData) {
            self.write_ordered();
        }
        let meta = &self.store.meta;
        let mut images: Vec<(u32, Page)> = meta
            .changed_blocks()
            .filter_map(|block| Some((block, meta.image(block, names)?)))
            .collect();
        let metadata = images.len();
        if self.journals_data() {
            self.add_data(&mut images)?;
        }
        if images.is_empty() {
            // What was given up may have gone with a commit without folders.
            return if names { self.released() } else { Ok(()) };
        }
        let is_alone = self.journals_data();
        match &mut self.journal {
            None => {
                self.unflushed = true;
                write_in_place(&mut self.disk, images.iter().map(|(at, page)| (*at, page)))?;
            }
            Some(journal) => journal.begin(images.iter().cloned(), is_alone),
        }
        if self.journals_data() {
            self.clean()?;
        }
        for (block, image) in images.into_iter().take(metadata) {
            self.store.meta.written(block, image, names);
        }
        if names {
            self.running.number += 1;
        }
        if names && self.journal.is_some() {
            self.gives();
        }
        Ok(())
    }

    /// Takes the steps of the transaction under way for which the disk is ready; `wait`: all.
    /// Whether none is under way any more.
    pub(crate) fn go_on(&mut self, wait: bool) -> Result<bool, FilesError> {
        if self.aborted.is_some() {
            return Err(FilesError::Aborted);
        }
        while let Some(journal) = self.journal.as_mut().filter(|it| it.is_writing()) {
            let flushed = self.disk.flushed(wait);
            let passed = match flushed {
                Ok(false) => return Ok(false),
                Ok(true) => journal.step(&mut self.disk),
                Err(error) => Err(error),
            };
            match self.abort_on_error(passed)? {
                Passed::OneStep => {}
                Passed::Checkpoint => self.checkpointed()?,
                Passed::Commit => self.committed()?,
            }
        }
        Ok(true)
    }

    /// The transaction under way is durable.
    fn committed(&mut self) -> Result<(), FilesError> {
        self.unflushed = false;
        if mutation::is(Mutation::ChangeWithCommit) {
            self.running.number += 1;
        }
        self.are_free()
    }

    /// What was given up is free when the commit that begins is durable.
    fn gives(&mut self) {
        self.table.commits();
        self.store.space.commits();
    }

    /// A commit of all is durable.
    pub(crate) fn released(&mut self) -> Result<(), FilesError> {
        self.gives();
        self.are_free()
    }

    /// What the commit that began has given up is free.
    fn are_free(&mut self) -> Result<(), FilesError> {
        self.table.committed();
        let free = self.store.space.committed();
        self.forget_images(&free);
        self.discard(&free)
    }

    pub(crate) fn discard(&mut self, free: &[Given]) -> Result<(), FilesError> {
        if self.layout.options.discard {
            for run in free {
                self.disk.trim(u64::from(run.start), u64::from(run.len))?;
                self.unflushed = true;
            }
        }
        Ok(())
    }

    /// Writes in place what the journal has.
    pub(crate) fn checkpoint(&mut self) -> Result<(), FilesError> {
        self.go_on(true)?;
        if let Some(journal) = &mut self.journal {
            let done = journal.checkpoint(&mut self.disk);
            self.abort_on_error(done)?;
            self.checkpointed()?;
        }
        Ok(())
    }

    /// The journal has nothing that is not in place.
    fn checkpointed(&mut self) -> Result<(), FilesError> {
        let free = self.store.space.checkpointed();
        self.discard(&free)
    }

    fn abort_on_error<T>(&mut self, result: Result<T, DiskError>) -> Result<T, FilesError> {
        if let Err(error) = &result {
            self.aborted.get_or_insert(*error);
        }
        Ok(result?)
    }
}
