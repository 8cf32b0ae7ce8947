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

/// How the kernel is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// By rings that are shared with it (Linux 5.11).
    #[default]
    IoUring,
    /// By `io_submit` and `io_getevents`. Through the page cache requests are done one
    /// after the other, as they are handed over.
    Libaio,
    /// By `pread` and `pwrite`: one request at a time.
    Psync,
    /// By `preadv2` and `pwritev2`: one request at a time. Polled, they are of high
    /// priority (`RWF_HIPRI`): the call itself asks the device.
    Pvsync2,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 4] = [Engine::IoUring, Engine::Libaio, Engine::Psync, Engine::Pvsync2];

    /// Its name, which is fio's.
    pub fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Libaio => "libaio",
            Engine::Psync => "psync",
            Engine::Pvsync2 => "pvsync2",
        }
    }

    /// Whether it has one request at a time.
    pub fn is_lone(self) -> bool {
        matches!(self, Engine::Psync | Engine::Pvsync2)
    }
}

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
    /// How the kernel is asked.
    pub engine: Engine,
    /// Dispatch queues for everything; 1 to 2048.
    pub queues: usize,
    /// Dispatch queues for requests whose submitter polls; 0 to 2048. They
    /// need [`StorageOptions::direct`].
    pub poll_queues: usize,
    /// How those look for completions.
    pub poll: Poll,
    /// Requests inside each queue at once; 1 to [`MOST_DEPTH`], and 1 where the
    /// engine has one at a time.
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
            engine: Engine::IoUring,
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
        let cannot = |is_asked, what| {
            let engine = self.engine.name();
            if is_asked { Err(OpenError::Engine { engine, what }) } else { Ok(()) }
        };
        let can_poll = matches!(self.engine, Engine::IoUring | Engine::Pvsync2);
        let is_hybrid = self.poll == Poll::Hybrid && self.engine != Engine::IoUring;
        cannot(self.engine.is_lone() && self.depth > 1, "has one request at a time: take depth=1")?;
        cannot(self.poll_queues > 0 && !can_poll, "cannot poll: leave polling out")?;
        cannot(
            self.poll_queues > 0 && is_hybrid,
            "does not sleep before it polls: poll without, as iopoll does",
        )?;
        cannot(
            self.sqpoll_idle.is_some() && self.engine != Engine::IoUring,
            "has no thread of the kernel that submits: leave sqpoll out",
        )
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
        let lone = |engine| StorageOptions { engine, depth: 1, ..good() };
        assert!(Engine::ALL.into_iter().all(|engine| lone(engine).check().is_ok()));
        for bad in [
            StorageOptions { engine: Engine::Psync, depth: 2, ..good() },
            StorageOptions { poll_queues: 1, ..lone(Engine::Psync) },
            StorageOptions { poll_queues: 1, ..lone(Engine::Libaio) },
            StorageOptions { poll_queues: 1, poll: Poll::Hybrid, ..lone(Engine::Pvsync2) },
            StorageOptions { sqpoll_idle: Some(Duration::from_secs(1)), ..lone(Engine::Pvsync2) },
        ] {
            assert!(matches!(bad.check(), Err(OpenError::Engine { .. })), "{bad:?}");
        }
        let buffered = StorageOptions { poll_queues: 1, direct: false, ..good() };
        assert!(matches!(buffered.check(), Err(OpenError::PollNeedsDirect)));
    }
}
