//! `ssdkit speculate strategies`: one program, and the ways in which its I/O may be waited for;
//! which of them wins, by how long the device takes and how much is computed between.
//!
//! All is measured in real time, each figure several times and by turns with the others; the middle
//! of them counts, and how far they lie apart is told beside it. What is predicted comes from the
//! [`Terms`] of the paper's figure 1.
//! May fail: there is no memory, or no room for processes.

pub mod checkpoint;
pub mod even;
pub mod map;
mod picture;
pub mod program;
pub mod samples;
pub mod sized;
pub mod terms;
pub mod transactions;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drive::error::Error;
use measure::units::{self, size};
use report::OutFile;
use serde_json::json;

use checkpoint::memory::Memory;
use checkpoint::{KeepError, Keeper, Way};
use even::BreakEven;
use map::Map;
use sized::{Sized, TOUCHED};
use terms::Terms;
use transactions::Transactions;

/// What `ssdkit speculate strategies --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit speculate strategies
  ssdkit speculate strategies --reads --picture reads.svg
  ssdkit speculate strategies --memory 256M --json
  ssdkit speculate strategies --checkpoint fork
  ssdkit speculate strategies --quick";

/// `ssdkit speculate strategies`.
#[derive(Args, Clone, Debug)]
pub struct StrategiesArgs {
    /// The program reads; without, it writes.
    #[arg(long)]
    pub reads: bool,
    /// Memory that the program has, of which checkpoints are taken.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size)]
    pub memory: u64,
    /// How checkpoints are taken. Without: in the way that is the cheapest here.
    #[arg(long, value_name = "WAY")]
    pub checkpoint: Option<Way>,
    /// Fewer devices, and shorter runs.
    #[arg(long)]
    pub quick: bool,
    /// Draw the maps, too, for a browser.
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The most memory that a program may have here.
const MOST_MEMORY: u64 = 4 << 30;

/// Measures, and tells `out`.
pub fn run(args: &StrategiesArgs, out: &mut dyn Write) -> Result<(), Error> {
    if args.memory > MOST_MEMORY {
        return Err(Error::Usage("--memory is 4 GiB at most".to_owned()));
    }
    let picture = args.picture.as_ref().map(|path| (path, OutFile::picture(path)));
    let wrong = |path: &PathBuf, e| Error::Usage(format!("--picture {}: {e}", path.display()));
    let picture = picture.map(|(path, file)| file.map_err(|e| wrong(path, e))).transpose()?;
    let found = measure(args.reads, args.memory, args.quick, args.checkpoint)?;
    let (map, way) = (&found.map, found.way.name());
    let what = if args.reads { "reads" } else { "writes" };
    if let (Some(file), Some(path)) = (picture, &args.picture) {
        let title = format!("How a program that {what} 4 KiB waits for its I/O");
        let write = |e| Error::system(&format!("write {}", path.display()), &e);
        file.write(&picture::svg(map, &title)).map_err(write)?;
    }
    if args.json {
        let all = json!({
            "direction": if args.reads { "read" } else { "write" },
            "memory_bytes": args.memory,
            "checkpoint": way,
            "terms": found.terms.to_json(),
            "terms_noise": found.noise.to_json(),
            "checkpoint_by_size": found.sizes(found.way),
            "checkpoints": found.ways.iter().map(|of| json!({
                "checkpoint": of.way.name(),
                "absent": of.absent,
                "by_size": found.sizes(of.way),
            })).collect::<Vec<_>>(),
            "transactional_memory": found.transactions.to_string(),
            "transactions": found.transactions.to_json(),
            "map": map.to_json(),
        });
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "A program that computes and {what} 4 KiB, with {} of memory, on a device in real time\n",
        units::capacity(args.memory)
    )?;
    writeln!(
        out,
        "Checkpoints by {way}{}\n",
        if args.checkpoint.is_none() { ", the cheapest here" } else { "" }
    )?;
    write!(out, "{}", found.terms.to_text(found.noise))?;
    writeln!(out, "\nCheckpoints by the size of memory, with {TOUCHED} pages written after each")?;
    for of in &found.ways {
        match &of.absent {
            Some(why) => writeln!(out, "  {}: absent: {why}", of.way.name())?,
            None => writeln!(out, "  {}", of.way.name())?,
        }
        for sized in found.sizes.iter().filter(|sized| sized.way == of.way) {
            write!(out, "{}", sized.to_text())?;
        }
    }
    writeln!(out, "\nTransactional memory (TSX): {}", found.transactions)?;
    write!(out, "{}", map.to_text())?;
    Ok(())
}

/// What was measured.
pub struct Found {
    /// How checkpoints of the map are taken.
    pub way: Way,
    /// All ways.
    pub ways: Vec<IsThere>,
    /// Checkpoints, by way and by the size of memory.
    pub sizes: Vec<Sized>,
    /// Transactional memory.
    pub transactions: Transactions,
    /// What the parts cost.
    pub terms: Terms,
    /// How far from each other measurements of them were.
    pub noise: Terms,
    /// Who wins where.
    pub map: Map,
}

/// Whether there is a way.
pub struct IsThere {
    /// Which.
    pub way: Way,
    /// Why it is not.
    pub absent: Option<String>,
}

impl Found {
    fn sizes(&self, way: Way) -> serde_json::Value {
        self.sizes.iter().filter(|sized| sized.way == way).map(|sized| sized.to_json()).collect()
    }
}

fn failed(e: KeepError) -> Error {
    Error::Failed(format!("no checkpoint can be taken: {e}"))
}

/// Where the winner changes for a program that writes, with so much memory that is kept in this way.
pub fn break_evens(way: Way, memory: u64) -> Result<Vec<BreakEven>, Error> {
    let keeper = Memory::new(memory).and_then(|memory| Keeper::new(way, memory));
    keeper.and_then(|mut keeper| even::of_writes(&mut keeper)).map_err(failed)
}

/// Which ways there are.
pub fn ways() -> Result<Vec<IsThere>, Error> {
    let of = |way: Way| match way.find() {
        Ok(()) => Ok(IsThere { way, absent: None }),
        Err(KeepError::Absent(why)) => Ok(IsThere { way, absent: Some(why) }),
        Err(e) => Err(failed(e)),
    };
    Way::ALL.into_iter().map(of).collect()
}

/// Measures a program that reads or writes, with so many bytes of memory. Checkpoints are taken in
/// one way, or in the cheapest.
pub fn measure(is_read: bool, memory: u64, quick: bool, way: Option<Way>) -> Result<Found, Error> {
    let ways = ways()?;
    let there: Vec<Way> = ways.iter().filter(|of| of.absent.is_none()).map(|of| of.way).collect();
    let asked = ways.iter().find(|of| Some(of.way) == way);
    if let Some(IsThere { way, absent: Some(why) }) = asked {
        return Err(Error::Failed(format!("--checkpoint {}: {why}", way.name())));
    }
    let mib: &[u64] = if quick { &[1, 64] } else { &[1, 4, 16, 64, 256, 1024] };
    let of = |(way, bytes)| Sized::measure(way, bytes).map_err(failed);
    let each = there.iter().flat_map(|way| mib.iter().map(|mib| (*way, *mib << 20)));
    let sizes = each.map(of).collect::<Result<_, Error>>()?;
    let way = match way {
        Some(way) => way,
        None => {
            let own = there.iter().map(|way| of((*way, memory))).collect::<Result<Vec<_>, _>>()?;
            let cheapest = own.iter().min_by(|a, b| a.cost().total_cmp(&b.cost()));
            cheapest.expect("a fork is always there").way
        }
    };
    let mut keeper =
        Memory::new(memory).and_then(|memory| Keeper::new(way, memory)).map_err(failed)?;
    let (map, terms) = Map::measure(is_read, quick, &mut keeper).map_err(failed)?;
    let (noise, terms) = (Terms::noise(&terms), Terms::median(&terms));
    let transactions = Transactions::find();
    Ok(Found { way, ways, sizes, transactions, terms, noise, map })
}
