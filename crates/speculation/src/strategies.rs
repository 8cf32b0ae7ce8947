//! `ssdkit speculate strategies`: one program, and the ways in which its I/O may be waited for;
//! which of them wins, by how long the device takes and how much is computed between.
//!
//! All is measured in real time, each figure as the least of several runs, as others on the machine only add.
//! What is predicted comes from the [`Terms`] of the paper's figure 1, which are measured before.
//! May fail: there is no memory, or no room for processes.

mod checkpoint;
pub mod map;
mod picture;
pub mod program;
pub mod terms;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drive::error::Error;
use measure::units::{self, size};
use report::OutFile;
use serde_json::json;

use map::Map;
use terms::{Sized, Terms};

/// What `ssdkit speculate strategies --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit speculate strategies
  ssdkit speculate strategies --reads --picture reads.svg
  ssdkit speculate strategies --memory 256M --json
  ssdkit speculate strategies --quick";

/// `ssdkit speculate strategies`.
#[derive(Args, Clone, Debug)]
pub struct StrategiesArgs {
    /// The program reads; without, it writes.
    #[arg(long)]
    pub reads: bool,
    /// Memory that the program has, which a checkpoint has to mark.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size)]
    pub memory: u64,
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
    let Found { sizes, terms, map } = measure(args.reads, args.memory, args.quick)?;
    let what = if args.reads { "reads" } else { "writes" };
    if let (Some(file), Some(path)) = (picture, &args.picture) {
        let title = format!("How a program that {what} 4 KiB waits for its I/O");
        let write = |e| Error::system(&format!("write {}", path.display()), &e);
        file.write(&picture::svg(&map, &title)).map_err(write)?;
    }
    if args.json {
        let sizes = sizes.iter().map(|sized| sized.to_json()).collect::<Vec<_>>();
        let all = json!({
            "direction": if args.reads { "read" } else { "write" },
            "memory_bytes": args.memory,
            "terms": terms.to_json(),
            "checkpoint_by_size": sizes,
            "transactional_memory": transactions(),
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
    write!(out, "{}", terms.to_text())?;
    writeln!(out, "\nA checkpoint by the process's size (fork, 16 pages written after it, back)")?;
    for sized in &sizes {
        write!(out, "{}", sized.to_text())?;
    }
    writeln!(out, "\nTransactional memory (TSX): {}", transactions())?;
    write!(out, "{}", map.to_text())?;
    Ok(())
}

/// What was measured.
pub struct Found {
    /// Checkpoints, by the size of the process.
    pub sizes: Vec<Sized>,
    /// What the parts cost.
    pub terms: Terms,
    /// Who wins where.
    pub map: Map,
}

/// Measures a program that reads or writes, with so many bytes of memory.
pub fn measure(is_read: bool, memory: u64, quick: bool) -> Result<Found, Error> {
    let system = |e: std::io::Error| Error::system("take a checkpoint", &e);
    let sizes: &[u64] = if quick { &[1, 64] } else { &[1, 4, 16, 64, 256, 1024] };
    let sizes = terms::by_size(sizes).map_err(system)?;
    let ballast = terms::Ballast::new(memory);
    let terms = Terms::measure(is_read).map_err(system)?;
    let map = Map::measure(is_read, quick, &terms).map_err(system)?;
    drop(ballast);
    Ok(Found { sizes, terms, map })
}

/// Whether the processor has transactional memory.
pub fn transactions() -> &'static str {
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = about.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    match flags.split_whitespace().any(|flag| flag == "rtm") {
        true => "present, and not measured",
        false => "absent",
    }
}
