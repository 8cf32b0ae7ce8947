//! What all clients of a server together may take of it.

use std::time::Duration;

/// Limits of a server, whatever its clients do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections. When there are as many, or no more descriptors, a
    /// newcomer takes the place of the one that was silent longest, if that
    /// was silent for long enough; else it is turned away.
    pub clients: usize,
    /// Memory for what clients have sent and are to get, in bytes. Each
    /// client has some of it for sure: over Redis an equal share, over NBD what
    /// it begins with. Who has more waits, is refused or is closed when it is
    /// used up.
    pub memory: u64,
    /// How long a connection may take to say the first thing that makes
    /// sense.
    pub greeting: Duration,
    /// How long a connection may be silent before a newcomer may have its
    /// place.
    pub idle: Duration,
    /// Takes what an operator should know, each a line without its end.
    pub warn: fn(&str),
}

impl Default for Limits {
    /// 10 000 connections, 1 GiB, 10 s and 5 minutes; nobody is warned.
    fn default() -> Limits {
        Limits {
            clients: 10_000,
            memory: 1 << 30,
            greeting: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            warn: |_| {},
        }
    }
}

impl Limits {
    /// How long a client may be silent that has or has not spoken yet.
    pub(crate) fn silence(&self, has_spoken: bool) -> Duration {
        if has_spoken { self.idle } else { self.greeting }
    }
}
