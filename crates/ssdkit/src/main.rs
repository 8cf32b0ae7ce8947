//! The binary: parses, runs, and turns errors into exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use ssdkit::cli::{Cli, Command, fio};
use ssdkit::{Error, bench, create, info, job, profiles, serve, snapshot, study, trace};

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| fio::explained(error).exit());
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ssdkit: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match cli.command {
        None => job::run(cli.seed, cli.json, &mut out)?,
        Some(Command::Bench(args)) => bench::run(&args, &mut out)?,
        Some(Command::Serve(args)) => serve::run(&args, &mut out)?,
        Some(Command::Create(args)) => create::run(&args, &mut out)?,
        Some(Command::Info(args)) => info::run(&args, &mut out)?,
        Some(Command::Snapshot(args)) => snapshot::run(&args, &mut out)?,
        Some(Command::Profiles(args)) => profiles::run(&args, &mut out)?,
        Some(Command::Study(args)) => study::run(&args, &mut out)?,
        Some(Command::Trace(args)) => trace::run(&args, &mut out)?,
    }
    out.flush()?;
    Ok(())
}
