//! The binary: parses, runs, and turns errors into exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
#[cfg(target_env = "gnu")]
use rustix::process::{Resource, getrlimit};
use ssdkit::cli::{self, Cli, Command};
use ssdkit::drive::say::{harmless, say};
use ssdkit::{
    Error, bench, compare, crash, create, fio, fronts, info, job, manual, metrics, profiles, rules,
    snapshot, speculation, standard, studies, sweep, target, trace, twin, ycsb,
};

fn main() -> ExitCode {
    survive_limits();
    give_memory_back();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return told(&cli::fio::explained(error)),
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// What the command line itself gives: help, or what is wrong with it, which
/// quotes what was given.
fn told(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    // A help is ours, and as long as it is.
    let is_quoting = error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && is_quoting && harmless(&text).lines().ne(text.lines()) {
        say(text.strip_prefix("error: ").unwrap_or(&text));
        return ExitCode::from(error.exit_code() as u8);
    }
    match error.print() {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            let error = Error::Output(e);
            say(&error);
            ExitCode::from(error.exit_code())
        }
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// A write past the limit of a file's size (`ulimit -f`) is an error, as on a
/// full disk: without a handler the system kills the process.
fn survive_limits() {
    // Where it is refused, the system does what it does.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default());
}

/// Bytes from which memory goes back to the system when it is given back.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 512 << 10;

/// What clients of a server took goes back to the system when they leave.
/// Without this the C library keeps more and more of it for later. Where the
/// space of addresses is limited (`ulimit -v`), it may not take 64 MiB of that
/// for each of many threads either.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    {
        let is_limited = getrlimit(Resource::As).current.is_some();
        // SAFETY: it sets numbers, before there is another thread.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            if is_limited {
                libc::mallopt(libc::M_ARENA_MAX, 1);
            }
        }
    }
}

/// Gives the exit code: 0, or that of a program that was run.
fn run(cli: Cli) -> Result<u8, Error> {
    let mut out = io::stdout().lock();
    match cli.command {
        Some(Command::Run(args)) => return ssdkit::run::run(&args),
        Some(Command::Sweep(args)) => return Err(sweep::run(&args)),
        None => job::run(cli.seed, cli.json, &mut out)?,
        Some(Command::Bench(args)) => bench::run(&args, &mut out)?,
        Some(Command::Explain(command)) => command.run(&mut out)?,
        Some(Command::Replay(args)) => bench::replay::run(&args, &mut out)?,
        Some(Command::Fio(args)) => fio::run(&args, &mut out)?,
        Some(Command::Compare(args)) => compare::run(&args, &mut out)?,
        Some(Command::Serve(args)) => fronts::run(&args, &mut out)?,
        Some(Command::Top(args)) => metrics::top(&args, &mut out)?,
        Some(Command::Ycsb(args)) => ycsb::run(&args, &mut out)?,
        Some(Command::Crash(args)) => crash::run(&args, &mut out)?,
        Some(Command::Create(args)) => create::run(&args, &mut out)?,
        Some(Command::Info(args)) => info::run(&args, &mut out)?,
        Some(Command::Snapshot(args)) => snapshot::run(&args, &mut out)?,
        Some(Command::Profiles(args)) => profiles::run(&args, &mut out)?,
        Some(Command::Test(args)) => standard::run(&args, &mut out)?,
        Some(Command::Study(args)) => studies::run(&args, &mut out)?,
        Some(Command::Speculate(args)) => speculation::run(&args, &mut out)?,
        Some(Command::Twin(args)) => twin::run(&args, &mut out)?,
        Some(Command::Trace(args)) => trace::run(&args, &mut out)?,
        Some(Command::Rules(args)) => rules::run(&args, &mut out)?,
        Some(Command::Target(args)) => target::run(&args, &mut out)?,
        Some(Command::Completions(args)) => manual::completions(&args, &mut out)?,
        Some(Command::Man(args)) => manual::man(&args, &mut out)?,
    }
    out.flush()?;
    Ok(0)
}
