//! Random attacks on each server, beside a client that works: its requests are
//! right, and none takes longer than a bound.
//!
//! `ATTACKS` says how many (5000; what the server does not notice is not counted), `ATTACK_SEED` which (1), `ATTACK_BOUND` how
//! many ms a request of the working client may take (5000). All is on Unix
//! sockets in a folder of its own, and ends by itself.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use port::random::Random;

/// Threads that attack, and connections of each.
const THREADS: u64 = 2;
const SOCKETS: usize = 24;

/// The tests that a way to attack is of.
macro_rules! attacks {
    ($attack_it:ident) => {
        #[test]
        #[ignore = "long: see ATTACKS"]
        fn random_attacks() {
            $attack_it();
        }

        /// Some in every run of the tests.
        #[test]
        fn some_random_attacks() {
            if std::env::var_os("ATTACKS").is_none() {
                $attack_it();
            }
        }
    };
}
pub(crate) use attacks;

pub struct Dice(Random);

impl Dice {
    /// A number below `n`.
    pub fn roll(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// One of some.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A connection that attacks, and never waits.
pub struct Attacker {
    sock: Option<UnixStream>,
    /// How far it has come in the protocol.
    pub stage: u64,
    /// The server has noticed something since this was last false.
    did: bool,
}

impl Attacker {
    fn connect(&mut self, path: &Path) {
        // There may be no room.
        self.sock = UnixStream::connect(path).ok();
        (self.stage, self.did) = (0, self.sock.is_some());
        if let Some(sock) = &self.sock {
            sock.set_nonblocking(true).unwrap();
        }
    }

    pub fn leave(&mut self) {
        (self.sock, self.did) = (None, true);
    }

    /// Sends what the socket takes.
    pub fn send(&mut self, mut bytes: &[u8]) {
        while let Some(sock) = &mut self.sock
            && !bytes.is_empty()
        {
            match sock.write(bytes) {
                Ok(n) => (bytes, self.did) = (&bytes[n..], true),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.sock = None,
            }
        }
    }

    /// Takes up to `most` bytes of what there is.
    pub fn take(&mut self, most: usize) {
        let (mut left, mut bytes) = (most, vec![0; most.min(1 << 16)]);
        while let Some(sock) = &mut self.sock
            && left > 0
        {
            let n = left.min(bytes.len());
            match sock.read(&mut bytes[..n]) {
                Ok(n) if n > 0 => (left, self.did) = (left - n, true),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                _ => self.sock = None,
            }
        }
    }
}

/// Attacks a server at `path` with `attack`, while `work` is done again and
/// again, with a number that grows.
pub fn soak(
    path: &Path,
    attack: impl Fn(&mut Dice, &mut Attacker) + Sync,
    mut work: impl FnMut(u64) + Send,
) {
    let (attacks, seed) = (from_env("ATTACKS", 5_000), from_env("ATTACK_SEED", 1));
    let bound = Duration::from_millis(from_env("ATTACK_BOUND", 5000));
    let (is_over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    // Also when the work fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        let works = scope.spawn(|| {
            let _end = End(&is_over);
            let (mut longest, mut count) = (Duration::ZERO, 0);
            while !is_over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                work(count);
                let time = begin.elapsed();
                longest = longest.max(time);
                assert!(time < bound, "request {count} took {time:?}");
                count += 1;
            }
            (longest, count)
        });
        let all: Vec<_> = (0..THREADS)
            .map(|n| {
                let (attack, is_over, made) = (&attack, &is_over, &made);
                scope.spawn(move || {
                    let mut dice = Dice(Random::new(seed, n));
                    let new = || Attacker { sock: None, stage: 0, did: false };
                    let mut sockets: Vec<Attacker> = (0..SOCKETS).map(|_| new()).collect();
                    while made.load(Ordering::Relaxed) < attacks && !is_over.load(Ordering::Relaxed)
                    {
                        let socket = &mut sockets[dice.roll(SOCKETS as u64) as usize];
                        if socket.sock.is_none() {
                            socket.connect(path);
                        }
                        attack(&mut dice, socket);
                        if std::mem::take(&mut socket.did) {
                            made.fetch_add(1, Ordering::Relaxed);
                        } else {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        let (longest, count) = works.join().unwrap();
        println!(
            "seed {seed}: {attacks} attacks in {:.0} s; {count} requests beside them, the longest {longest:?}",
            start.elapsed().as_secs_f64()
        );
    });
}
