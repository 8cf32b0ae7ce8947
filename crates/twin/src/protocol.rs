//! `ssdkit twin --measure`: the runs that tell most of a drive, through our own driver.
//!
//! All of the target is written first, in order: that is the point of sustained writes,
//! and what is read later was written. Then reads, mixes, and writes, which leave it
//! in disorder; between two runs the target rests. Each gives the report of a bench,
//! printed as soon as it is there: together they are a file of points.
//!
//! Fails where a bench does, and before anything is touched without `--destroy`.

use std::io::Write;
use std::thread;
use std::time::Duration;

use bench::BenchArgs;
use clap::Parser;
use drive::Error;
use drive::spec::DriveSpec;
use load::watch::Watch;

use crate::args::TwinArgs;

/// How long a target rests between two runs, at most as long as they take.
const REST: Duration = Duration::from_millis(500);
/// Of writes, more: what a cache took is to go to the flash.
const REST_OF_WRITES: Duration = Duration::from_secs(3);

/// Options of runs, sizes, and depths.
const RUNS: [(&str, &[&str], &[u32]); 6] = [
    ("--rw randread", &["4k", "16k", "64k"], &[1, 4, 16, 64, 128]),
    ("--rw read", &["128k"], &[1, 8, 32]),
    ("--rw randrw --read-percent 75", &["4k"], &[1, 16, 128]),
    ("--rw randrw --read-percent 50", &["4k"], &[1, 16, 128]),
    ("--rw write", &["4k", "64k"], &[1, 16, 128]),
    ("--rw randwrite", &["4k", "64k"], &[1, 16, 128]),
];

/// A bench by its command line.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Measures the target, and prints a report of each run to `out`.
pub fn run(args: &TwinArgs, target: &DriveSpec, out: &mut dyn Write) -> Result<(), Error> {
    let target = target.found()?;
    if !matches!(target, DriveSpec::Storage(_)) {
        let text = format!("--measure is for a block device or file, and {target} is none");
        return Err(Error::Usage(text));
    }
    if !args.destroy {
        return Err(Error::Usage(format!(
            "--measure writes over all of {target}: add --destroy if what is on it may be lost"
        )));
    }
    let mut watch = Watch::terminal(None)?;
    let outcome = all(args, &target, &mut watch, out);
    watch.end();
    outcome
}

/// Each run in turn.
fn all(
    args: &TwinArgs,
    target: &DriveSpec,
    watch: &mut Watch,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let time = format!("--time {}ns", args.time);
    let mut lines = vec![format!("--rw write --bs 128k --qd 32 --precondition seq {time}")];
    for (options, sizes, depths) in RUNS {
        let each = sizes.iter().flat_map(|bs| depths.iter().map(move |qd| (bs, qd)));
        lines.extend(each.map(|(bs, qd)| format!("{options} --bs {bs} --qd {qd} {time}")));
    }
    for line in lines {
        let (target, seed) = (target.to_string(), args.seed.to_string());
        let words = ["bench", &target, "--destroy", "--seed", &seed];
        let parsed = Line::try_parse_from(words.into_iter().chain(line.split_whitespace()));
        let bench = parsed.map_err(|e| Error::Failed(format!("{line}: {e}")))?.bench;
        bench.check()?;
        let outcome = bench::measure(&bench, watch)?;
        if outcome.interrupted {
            return Err(Error::Failed(format!("stopped while it ran {line}")));
        }
        writeln!(out, "{:#}", outcome.to_json())?;
        out.flush()?;
        let rest = if bench.rw.writes() { REST_OF_WRITES } else { REST };
        thread::sleep(rest.min(Duration::from_nanos(args.time)));
    }
    Ok(())
}
