//! The binary: parses, runs, and turns errors into exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use ssdkit::cli::{Cli, Command};
use ssdkit::{Error, profiles};

fn main() -> ExitCode {
    match run(Cli::parse()) {
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
        Some(Command::Profiles(args)) => profiles::run(&args, &mut out)?,
        _ => return Err(Error::Failed("this build only knows `ssdkit profiles`".into())),
    }
    out.flush()?;
    Ok(())
}
