//! Which writes are durable: groups of writes, one flush for each.

/// What a write is known by: the number of its group. A later one is not less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Of what depends on no write: always durable.
    pub const NONE: Token = Token(0);
}

/// What has become of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is not known yet.
    Pending,
    /// All that it stands for outlives a power cut.
    Durable,
    /// Some of what it stands for may be lost. That stays so.
    Failed,
}

/// Which groups of writes are durable, and which failed. One flush is under way at most; what
/// is issued meanwhile is the next group.
///
/// After a failure nothing that came later ever becomes durable: a drive that did not take a
/// write tells of no state any more that others could be shown.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// The group that writes are issued into.
    open: u64,
    /// Something was.
    is_dirty: bool,
    is_flushing: bool,
    /// The last group that is durable, and the first that failed.
    durable: u64,
    failed: u64,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens { open: 1, is_dirty: false, is_flushing: false, durable: 0, failed: u64::MAX }
    }
}

impl Tokens {
    /// A token for a write. It is in the next flush to begin.
    #[inline]
    pub fn issue(&mut self) -> Token {
        self.is_dirty = true;
        Token(self.open)
    }

    /// The newest token there is: for who has seen everything.
    #[inline]
    pub fn newest(&self) -> Token {
        Token(if self.is_dirty { self.open } else { self.open - 1 })
    }

    /// Whether a flush is to begin: something was issued, none is under way, and nothing failed.
    #[inline]
    pub fn wants_flush(&self) -> bool {
        self.is_dirty && !self.is_flushing && !self.has_failed()
    }

    /// Whether a flush is under way.
    #[inline]
    pub fn is_flushing(&self) -> bool {
        self.is_flushing
    }

    /// Whether the flush under way tells what becomes of a token that is pending.
    #[inline]
    pub fn is_under_way(&self, token: Token) -> bool {
        self.is_flushing && token.0 < self.open
    }

    /// Begins a flush of all that was issued. Gives its token.
    ///
    /// # Panics
    /// When one is under way, or something failed.
    pub fn begin_flush(&mut self) -> Token {
        assert!(!self.is_flushing && !self.has_failed(), "one flush at a time, until one fails");
        (self.is_dirty, self.is_flushing) = (false, true);
        self.open += 1;
        Token(self.open - 1)
    }

    /// The flush has ended. One that did not end well fails all that is not durable.
    ///
    /// # Panics
    /// When none is under way.
    pub fn end_flush(&mut self, is_good: bool) {
        assert!(self.is_flushing, "a flush ends that began");
        self.is_flushing = false;
        if is_good {
            // Of a group that failed meanwhile it is too late.
            self.durable = (self.open - 1).min(self.failed - 1);
        } else {
            self.fail(Token(self.durable + 1));
        }
    }

    /// A write failed: so do its group, if it is not durable, and all behind it. Nothing is
    /// flushed any more but what is under way.
    pub fn fail(&mut self, token: Token) {
        self.failed = self.failed.min(token.0.max(self.durable + 1));
    }

    /// Whether something failed.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed != u64::MAX
    }

    /// What has become of a token.
    #[inline]
    pub fn fate(&self, token: Token) -> Fate {
        if token.0 <= self.durable {
            Fate::Durable
        } else if token.0 >= self.failed || (self.has_failed() && !self.is_flushing) {
            // No flush comes any more.
            Fate::Failed
        } else {
            Fate::Pending
        }
    }
}
