//! Threads with blocking calls: each has one read or write of 4 KiB outstanding at a file
//! or device, at random places.
//!
//! Guarantees: a call that counts has returned; of writes, if it is asked for, each with
//! its sync, or all with one in the end, whose time counts. Each thread does one call in
//! any case: it may get no core before. May fail: the system gives no thread, or a call
//! fails.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use port::{BLOCK_BYTES, Buffer};
use workload::{Generator, Pattern};

use drive::error::Error;
use load::threads::run_all;

/// When what is written is to be on the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When it is, as with O_DIRECT.
    Never,
    /// All of it, when the time is over.
    InTheEnd,
    /// Each write, before the next: its data (`fdatasync`).
    EachData,
    /// Each write, with all that the file system notes of it (`fsync`).
    Each,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads.
    Read,
    /// Writes.
    Write(Sync),
}

/// When a thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// After so long.
    Time(Duration),
    /// After so many calls of its own.
    Calls(u64),
}

/// What is done, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// What.
    pub call: Call,
    /// By how many threads.
    pub threads: u32,
    /// How much.
    pub amount: Amount,
    /// What places come from.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Called {
    /// Calls that returned.
    pub count: u64,
    /// A second.
    pub rate: f64,
    /// What one took, in us.
    pub mean: f64,
}

impl Calls {
    /// Does so with the first `bytes` of a file.
    pub fn run(&self, file: &File, bytes: u64) -> Result<Called, Error> {
        let began = Instant::now();
        let one = |i| move || self.thread(file, bytes, i, began);
        let counts = run_all((0..self.threads).map(one))?
            .into_iter()
            .collect::<Result<Vec<u64>, Error>>()?;
        if self.call == Call::Write(Sync::InTheEnd) {
            file.sync_data().map_err(|e| Error::system("sync a file", &e))?;
        }
        let (count, seconds) = (counts.iter().sum::<u64>(), began.elapsed().as_secs_f64());
        let rate = count as f64 / seconds;
        Ok(Called { count, rate, mean: 1e6 * f64::from(self.threads) / rate })
    }

    fn thread(&self, file: &File, bytes: u64, i: u32, began: Instant) -> Result<u64, Error> {
        let pattern = Pattern::uniform(bytes, 0);
        let mut places = Generator::new(&pattern, self.seed, i, self.threads)
            .map_err(|e| Error::Usage(e.to_string()))?;
        let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize)?;
        buffer.bytes_mut().fill(i as u8 | 1);
        let mut count = 0;
        loop {
            let at = places.next().offset;
            let called = match self.call {
                Call::Read => file.read_exact_at(buffer.bytes_mut(), at),
                Call::Write(sync) => {
                    file.write_all_at(buffer.bytes(), at).and_then(|()| match sync {
                        Sync::Never | Sync::InTheEnd => Ok(()),
                        Sync::EachData => file.sync_data(),
                        Sync::Each => file.sync_all(),
                    })
                }
            };
            let what = if self.call == Call::Read { "read" } else { "write" };
            called.map_err(|e| Error::Failed(format!("cannot {what} at byte {at}: {e}")))?;
            count += 1;
            let is_over = match self.amount {
                Amount::Time(time) => began.elapsed() >= time,
                Amount::Calls(calls) => count >= calls,
            };
            if is_over {
                return Ok(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_calls_as_often_as_it_is_to() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[0x5a; 1 << 20]).unwrap();
        for call in [
            Call::Read,
            Call::Write(Sync::Never),
            Call::Write(Sync::InTheEnd),
            Call::Write(Sync::EachData),
            Call::Write(Sync::Each),
        ] {
            let calls = Calls { call, threads: 3, amount: Amount::Calls(5), seed: 1 };
            let called = calls.run(&file, 1 << 20).unwrap();
            assert!(called.count == 15 && called.rate > 0.0 && called.mean > 0.0, "{called:?}");
            let once = Calls { amount: Amount::Time(Duration::ZERO), ..calls };
            assert_eq!(once.run(&file, 1 << 20).unwrap().count, 3);
        }
    }

    #[test]
    fn a_call_that_fails_says_where() {
        let file = tempfile::tempfile().unwrap();
        let amount = Amount::Calls(1);
        let calls = Calls { call: Call::Read, threads: 1, amount, seed: 1 };
        let error = calls.run(&file, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("cannot read at byte"), "{error}");
    }
}
