//! How storage is opened. Nothing here fails but an option outside its range.

use std::time::Duration;

use blkmq::ConfigError;
use blkmq::config::MOST_QUEUES;

use crate::error::OpenError;
use crate::pool::Region;

/// The most requests inside a queue.
pub const MOST_DEPTH: usize = 16_384;

/// The longest read or write, in bytes.
pub const MOST_BYTES: u64 = 16 << 20;

/// How polled queues look for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// As [`Poll::Iopoll`] where the device can be polled, by interrupts
    /// where it cannot.
    #[default]
    Auto,
    /// The thread that advances the queue asks the device (`IOPOLL`).
    Iopoll,
    /// The same, after a sleep of half of what a request took so far (Linux
    /// 6.13). The sleep is in `advance`.
    Hybrid,
}

/// Options of [`Storage::open`](crate::Storage::open).
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Dispatch queues for everything; 1 to 2048.
    pub queues: usize,
    /// Dispatch queues for requests whose submitter polls; 0 to 2048. They
    /// need [`StorageOptions::direct`].
    pub poll_queues: usize,
    /// How those look for completions.
    pub poll: Poll,
    /// Requests inside each queue at once; 1 to [`MOST_DEPTH`].
    pub depth: usize,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Open for reading only. Writes, trims and zeroes are answered with
    /// [`READ_ONLY`](port::Status::READ_ONLY), and no lock is taken.
    pub read_only: bool,
    /// A kernel thread for each queue takes the requests, so that submitting
    /// costs no system call; it sleeps after so long without any. 1 ms or
    /// more.
    pub sqpoll_idle: Option<Duration>,
    /// Each queue is driven by several threads in turn. Otherwise a queue
    /// belongs to the thread that submits to it first, which costs less; when
    /// another thread drives it, it panics.
    pub shared: bool,
    /// Memory that each queue registers with the kernel. Requests whose
    /// buffer lies in it cost less; all others work too.
    pub regions: Vec<Region>,
}

impl Default for StorageOptions {
    /// One queue of 128 requests, direct, for one thread.
    fn default() -> StorageOptions {
        StorageOptions {
            queues: 1,
            poll_queues: 0,
            poll: Poll::Auto,
            depth: 128,
            direct: true,
            read_only: false,
            sqpoll_idle: None,
            shared: false,
            regions: Vec::new(),
        }
    }
}

impl StorageOptions {
    /// That all options are in their range and go together.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        range("queues", self.queues, 1, MOST_QUEUES)?;
        range("poll_queues", self.poll_queues, 0, MOST_QUEUES)?;
        range("depth", self.depth, 1, MOST_DEPTH)?;
        if let Some(idle) = self.sqpoll_idle {
            let ms = usize::try_from(idle.as_millis()).unwrap_or(usize::MAX);
            range("sqpoll_idle (ms)", ms, 1, u32::MAX as usize)?;
        }
        if self.poll_queues > 0 && !self.direct {
            return Err(OpenError::PollNeedsDirect);
        }
        Ok(())
    }
}

/// That `value` is at least `least` and at most `most`.
fn range(what: &'static str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::Range { what, value, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_outside_their_range_are_refused() {
        let good = StorageOptions::default;
        assert!(good().check().is_ok());
        for bad in [
            StorageOptions { queues: 0, ..good() },
            StorageOptions { queues: MOST_QUEUES + 1, ..good() },
            StorageOptions { depth: 0, ..good() },
            StorageOptions { depth: MOST_DEPTH + 1, ..good() },
            StorageOptions { sqpoll_idle: Some(Duration::from_micros(10)), ..good() },
        ] {
            assert!(matches!(bad.check(), Err(OpenError::Config(_))), "{bad:?}");
        }
        let buffered = StorageOptions { poll_queues: 1, direct: false, ..good() };
        assert!(matches!(buffered.check(), Err(OpenError::PollNeedsDirect)));
    }
}
