//! How far a page of a table in memory is ahead of its copy on flash.

/// A page's state against flash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dirty {
    /// LSN of the first change that no copy has, or 0.
    rec: u64,
    /// The same of the copy on its way, before which flash has an older one.
    writing: u64,
    /// It is to be written by a batch that is not installed yet.
    pub busy: bool,
}

impl Dirty {
    /// The page was changed by the batch `lsn`. True if no change before that one
    /// is without a copy.
    #[inline]
    pub fn touch(&mut self, lsn: u64) -> bool {
        let first = self.rec == 0;
        if first {
            self.rec = lsn;
        }
        first
    }

    /// A copy of the page as it is now is being written.
    pub fn begin(&mut self) {
        if self.writing == 0 {
            self.writing = self.rec;
        }
        self.rec = 0;
    }

    /// That copy is installed.
    pub fn end(&mut self) {
        (self.writing, self.busy) = (0, false);
    }

    /// Whether memory is ahead of flash.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.rec != 0 || self.writing != 0
    }

    /// The first LSN that recovery must read for this page, or `u64::MAX`.
    #[inline]
    pub fn oldest(&self) -> u64 {
        match (self.writing, self.rec) {
            (0, 0) => u64::MAX,
            (0, rec) => rec,
            (writing, _) => writing,
        }
    }

    /// Whether the change `lsn` is one that the page needs the log for.
    #[inline]
    pub fn needs(&self, lsn: u64) -> bool {
        self.rec == lsn || self.writing == lsn
    }

    /// Whether it is to be written so that the log up to `lsn` can go.
    pub fn is_due(&self, lsn: u64) -> bool {
        !self.busy && self.oldest() <= lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_the_log_until_its_copy_is_installed() {
        let mut page = Dirty::default();
        assert_eq!((page.is_dirty(), page.oldest()), (false, u64::MAX));
        page.touch(5);
        page.touch(6);
        assert!(page.is_due(5) && !page.is_due(4));
        page.begin();
        assert_eq!(page.oldest(), 5);
        page.touch(8);
        // The write failed and is done again with a newer copy.
        page.begin();
        page.touch(9);
        assert_eq!(page.oldest(), 5);
        page.end();
        assert_eq!(page.oldest(), 9);
    }
}
