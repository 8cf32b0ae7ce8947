//! A book of orders that does not wait: each order is a record on a drive, and is confirmed
//! when that is durable, while the next ones are placed.
//!
//!     speculate DRIVE [--wait] [--fail N] [--clock real]
//!
//! Places 1000 orders on a drive in memory, in virtual time or by the processor's clock. With
//! `--wait` it waits for each order's flush before the next, as a program without tokens does.
//! With `--fail N` the drive fails the Nth write.

use std::error::Error;
use std::process::ExitCode;

use device::realtime::Clock;
use drive::spec::DriveSpec;
use drive::stack;
use drive::whole::Drive;
use faults::{FaultPort, Rule};
use port::{SECTOR_BYTES, Time};
use waiting::speculate::{Disk, DiskError, Lost, Outputs};

/// Orders that are placed, how long it takes to work one out, in ns, and how many may be
/// unconfirmed.
const ORDERS: u64 = 1000;
const THINKS: u64 = 500;
const UNCONFIRMED: usize = 64;

/// How the book is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// It waits for each order.
    pub waits: bool,
    /// This write fails.
    pub fails: Option<u64>,
    /// Time is the clock's.
    pub is_real: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Orders that were confirmed.
    pub confirmed: u64,
    /// That were told to be lost.
    pub lost: u64,
    /// That were not taken any more.
    pub refused: u64,
    /// The time that it took, of the drive or of the clock, in ns.
    pub took: u64,
    /// Why it ended early.
    pub why: Option<DiskError>,
}

/// Time, which is the drive's or the clock's.
struct Hours {
    now: Time,
    clock: Option<Clock>,
}

impl Hours {
    /// Until so many ns are over.
    fn think(&mut self, ns: u64) {
        self.pass(self.now + ns);
    }

    /// Until something happens in the drive.
    fn pass(&mut self, at: Time) {
        self.now = self.now.max(at);
        if let Some(clock) = &self.clock {
            while clock.now() < at {
                std::hint::spin_loop();
            }
            self.now = self.now.max(clock.now());
        }
    }
}

/// Keeps the book on the drive of this name.
pub fn run(name: &str, options: Options) -> Result<Book, Box<dyn Error>> {
    let DriveSpec::Memory(spec) = name.parse()? else { return Err("a mem: drive".into()) };
    let drive = stack::build(&spec.resolve()?, 1)?;
    let shape = drive.shape();
    let rule = options.fails.map(|n| format!("write,from={n},count=1").parse());
    let rules: Vec<_> = match rule.transpose()? {
        Some(Rule::Fault(rule)) => vec![rule],
        _ => Vec::new(),
    };
    let port = FaultPort::new(drive, &rules, 1)?;
    let mut disk = Disk::new(port, shape, UNCONFIRMED, SECTOR_BYTES as usize)?;
    let mut confirmations = Outputs::new(UNCONFIRMED);
    let clock = options.is_real.then(Clock::start);
    let mut hours = Hours { now: Time::ZERO, clock };
    let mut book = Book::default();
    for number in 0..ORDERS {
        hours.think(THINKS);
        let mut record = [0; SECTOR_BYTES as usize];
        record[..8].copy_from_slice(&number.to_le_bytes());
        loop {
            match disk.write(hours.now, number * SECTOR_BYTES, &record) {
                Ok(token) => {
                    confirmations.tie(number, token)?;
                    break;
                }
                Err(DiskError::Busy) => {}
                Err(error) => {
                    (book.refused, book.why) = (book.refused + 1, Some(error));
                    break;
                }
            }
            hours.pass(disk.next_event().ok_or("the drive does nothing")?);
            disk.poll(hours.now);
        }
        disk.poll(hours.now);
        let most = if options.waits { 0 } else { UNCONFIRMED - 1 };
        confirm(&mut disk, &mut confirmations, most, &mut hours, &mut book);
    }
    confirm(&mut disk, &mut confirmations, 0, &mut hours, &mut book);
    book.took = hours.now.0;
    Ok(book)
}

/// Gives out what is known, and waits until no more than `most` are not.
fn confirm<P: port::Port<Cmd = port::BlockReq, Done = port::BlockDone>>(
    disk: &mut Disk<P>,
    confirmations: &mut Outputs<u64>,
    most: usize,
    hours: &mut Hours,
    book: &mut Book,
) {
    loop {
        while let Some(confirmed) = confirmations.next(disk.tokens()) {
            match confirmed {
                Ok(_) => book.confirmed += 1,
                Err(Lost(_)) => book.lost += 1,
            }
        }
        if confirmations.len() <= most {
            return;
        }
        let Some(at) = disk.next_event() else { return };
        hours.pass(at);
        disk.poll(hours.now);
    }
}

/// The name of the drive and the options of a command line.
pub fn options(mut words: impl Iterator<Item = String>) -> Option<(String, Options)> {
    let (name, mut options) = (words.next()?, Options::default());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--wait" => options.waits = true,
            "--fail" => options.fails = Some(words.next()?.parse().ok()?),
            "--clock" => options.is_real = words.next()? == "real",
            _ => return None,
        }
    }
    Some((name, options))
}

#[allow(dead_code)]
fn main() -> ExitCode {
    let Some((name, options)) = options(std::env::args().skip(1)) else {
        eprintln!("usage: speculate DRIVE [--wait] [--fail N] [--clock real]");
        return ExitCode::from(2);
    };
    match run(&name, options) {
        Ok(Book { confirmed, lost, refused, took, why }) => {
            println!("{confirmed} orders confirmed in {} us", took / 1000);
            if let Some(why) = why {
                println!("{lost} lost, {refused} refused: {why}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("speculate: {error}");
            ExitCode::FAILURE
        }
    }
}
