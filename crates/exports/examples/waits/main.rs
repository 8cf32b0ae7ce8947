//! How long an ordinary client of each server waits while others attack it.
//!
//! ```text
//! waits [ATTACK]                both servers, in this process
//! waits redis SOCKET [ATTACK]   a server that is there already
//! waits nbd SOCKET [ATTACK]
//! ```
//!
//! Beside each attack, or those whose names have `ATTACK` in them, a client asks
//! again and again, with pauses of a millisecond: PING over Redis, a read of
//! 4 KiB over NBD. Prints how often it was answered, and the median, the 99th
//! percentile and the longest of its waits; and, to tell the server from the
//! machine, by how much a thread was late at worst meanwhile that only sleeps for
//! a millisecond. What is on the server is lost.

mod nbd;
mod redis;

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use exports::nbd::{ListenAddr, StopHandle};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// The least that an attack lasts: it is begun again until then.
const LEAST: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(1);

/// Which attacks are made.
struct Table {
    only: String,
}

impl Table {
    fn begin(&self, title: &str) {
        println!("\n| {title} | answers | median | 99 of 100 | longest | a sleeper was late |");
        println!("|---|---|---|---|---|---|");
    }

    /// Makes an attack, prepared anew each time, beside a client that asks.
    fn row(&self, name: &str, mut ask: impl FnMut() + Send, mut attack: impl FnMut()) {
        if !name.contains(&self.only) {
            return;
        }
        let is_over = AtomicBool::new(false);
        let goes_on = || !is_over.load(Ordering::Relaxed);
        let (mut waits, late) = scope(|scope| {
            let asks = scope.spawn(|| {
                let mut waits = Vec::new();
                while goes_on() {
                    let start = Instant::now();
                    ask();
                    waits.push(start.elapsed());
                    sleep(PAUSE);
                }
                waits
            });
            let sleeps = scope.spawn(|| {
                let mut late = Duration::ZERO;
                while goes_on() {
                    let start = Instant::now();
                    sleep(PAUSE);
                    late = late.max(start.elapsed().saturating_sub(PAUSE));
                }
                late
            });
            let start = Instant::now();
            while start.elapsed() < LEAST {
                attack();
            }
            is_over.store(true, Ordering::Relaxed);
            (asks.join().expect("it is answered"), sleeps.join().expect("it sleeps"))
        });
        waits.sort();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let at = |share: usize| ms(waits[(waits.len() - 1) * share / 100]);
        println!(
            "| {name} | {} | {:.2} ms | {:.1} ms | {:.0} ms | {:.0} ms |",
            waits.len(),
            at(50),
            at(99),
            at(100),
            ms(late)
        );
    }
}

/// Numbers that look like chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Runs `attack` against a server of its own.
fn here(
    name: &str,
    serve: impl FnOnce(&ListenAddr, &StopHandle) -> Outcome + Send,
    attack: impl FnOnce(&Path) -> Outcome,
) -> Outcome {
    let path = std::env::temp_dir().join(format!("waits-{name}-{}.sock", std::process::id()));
    let (addr, stop) = (ListenAddr::Unix(path.clone()), StopHandle::new()?);
    scope(|scope| {
        let served = scope.spawn(|| serve(&addr, &stop));
        while !path.exists() && !served.is_finished() {
            sleep(PAUSE);
        }
        let outcome = attack(&path);
        stop.stop();
        served.join().expect("the server does not panic")?;
        outcome
    })
}

fn main() -> Outcome {
    // Each client takes a descriptor, and two of the server here.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let table = |only: &[&str]| Table { only: only.first().unwrap_or(&"").to_string() };
    match args[..] {
        ["redis", socket, ref only @ ..] => redis::attack(Path::new(socket), &table(only)),
        ["nbd", socket, ref only @ ..] => {
            nbd::attack(Path::new(socket), &table(only))?;
            nbd::attack_long(Path::new(socket), &table(only))
        }
        ref only if only.len() < 2 => {
            here("redis", redis::serve, |at| redis::attack(at, &table(only)))?;
            here("nbd", nbd::serve, |at| nbd::attack(at, &table(only)))?;
            here("large", nbd::serve_large, |at| nbd::attack_long(at, &table(only)))
        }
        _ => Err("use: waits [redis SOCKET | nbd SOCKET] [ATTACK]".into()),
    }
}
