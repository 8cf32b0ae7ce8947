//! The main job: `ssdkit` with nothing behind it.

use std::io::Write;

use clap::Parser;

use crate::cli::{Cli, Command};
use drive::error::Error;

/// What it does, as a command line.
pub const COMMAND: &str = "ssdkit bench mem:datacenter-tlc,size=1G --rw randrw --read-percent 70 \
                           --bs 4k --qd 32 --precondition steady --steady-round 1s --time 5s";

/// Makes a drive, ages it, runs a mixed workload, and prints the report.
pub fn run(seed: u64, json: bool, out: &mut dyn Write) -> Result<(), Error> {
    let words = COMMAND.split_whitespace();
    let parsed = Cli::try_parse_from(words).map_err(|e| Error::Failed(e.to_string()))?;
    let Some(Command::Bench(mut args)) = parsed.command else {
        return Err(Error::Failed("the main job is a bench".into()));
    };
    (args.bench.seed, args.bench.json) = (seed, json);
    if !json {
        writeln!(out, "{COMMAND} --seed {seed}\n")?;
        out.flush()?;
    }
    bench::run(&args, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_job_is_a_bench_that_can_be() {
        let parsed = Cli::try_parse_from(COMMAND.split_whitespace()).unwrap();
        let Some(Command::Bench(args)) = parsed.command else { panic!("{COMMAND}") };
        args.bench.check().unwrap();
    }
}
