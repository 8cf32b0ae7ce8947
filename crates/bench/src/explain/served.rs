//! `ssdkit explain --served`: where the time of a served drive's requests goes now.
//!
//! Looks twice at what `ssdkit serve --metrics` has, an interval apart, and tells of the
//! requests that ended in between, as of a run. Fails where nobody serves metrics there,
//! where the drive cannot tell, and where the server is another one the second time.

use std::io::Write;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use drive::error::Error;
use drive::say::harmless;
use drive::told::KEPT;
use load::watch::columns;
use measure::causes::Kind;
use measure::slowest::Slow;
use measure::why::{WIDE, Why, causes_json, request_json};
use measure::{options, units};
use metrics::{Address, Look, escaped};
use serde_json::json;

use super::{ExplainArgs, SLOWEST};
use crate::outcome::TABLE;

/// The option that says which server.
const SERVED: &str = "served";
const INTERVAL: &str = "interval";
/// Options of a run that a served drive has, too.
const COMMON: [&str; 2] = ["json", "slowest"];
/// What explain refuses: options of a run (`rules` and `file` are those of faults), and all that
/// have this heading.
const REFUSED: [&str; 4] = ["report", "clock", "rules", "file"];
const LAYER: &str = "Block layer";

/// `ssdkit explain`: of a run, or of a served drive.
#[derive(Clone, Debug)]
pub enum ExplainCommand {
    /// A run.
    Run(Box<ExplainArgs>),
    /// A served drive.
    Served(ServedArgs),
}

/// `ssdkit explain --served`.
#[derive(Clone, Debug)]
pub struct ServedArgs {
    /// Where `ssdkit serve --metrics` has its figures.
    pub address: Address,
    /// Between two looks, in ns.
    pub interval: u64,
    /// Slowest requests that are told of.
    pub slowest: u32,
    /// Print one JSON object.
    pub json: bool,
}

impl Args for ExplainCommand {
    fn augment_args(cmd: Command) -> Command {
        let cmd = ExplainArgs::augment_args(cmd);
        let of_run = cmd.get_arguments().map(|arg| arg.get_id().clone());
        let of_run: Vec<_> = of_run.filter(|id| !COMMON.contains(&id.as_str())).collect();
        let is_refused = |arg: &Arg| {
            REFUSED.contains(&arg.get_id().as_str()) || arg.get_help_heading() == Some(LAYER)
        };
        let cmd = cmd.mut_args(|arg| match arg.is_required_set() {
            true => arg.required(false).required_unless_present(SERVED),
            // With what it is of: no option to be found.
            false if is_refused(&arg) => arg.hide(true),
            false => arg,
        });
        let cmd = cmd.next_help_heading(None);
        let served = Arg::new(SERVED)
            .long(SERVED)
            .value_name("[HOST:]PORT")
            .value_parser(|text: &str| text.parse::<Address>())
            .conflicts_with_all(of_run.clone())
            .help("In place of a run: the drive that is served with --metrics there");
        let interval = Arg::new(INTERVAL)
            .long(INTERVAL)
            .value_name("TIME")
            .value_parser(interval)
            .requires(SERVED)
            .conflicts_with_all(of_run)
            .help("With --served: for so long, 100ms to 10s; 1s");
        cmd.arg(served).arg(interval)
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl FromArgMatches for ExplainCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ExplainCommand, clap::Error> {
        let Some(address) = matches.get_one::<Address>(SERVED) else {
            return Ok(ExplainCommand::Run(Box::new(ExplainArgs::from_arg_matches(matches)?)));
        };
        Ok(ExplainCommand::Served(ServedArgs {
            address: address.clone(),
            interval: matches.get_one(INTERVAL).copied().unwrap_or(1_000_000_000),
            slowest: matches.get_one("slowest").copied().unwrap_or(SLOWEST),
            json: matches.get_flag("json"),
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ExplainCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An interval in ns.
fn interval(text: &str) -> Result<u64, String> {
    let ns = options::duration(text)?;
    let is_possible = (100_000_000..=Look::LONGEST).contains(&ns);
    is_possible.then_some(ns).ok_or_else(|| format!("`{text}` is not from 100ms to 10s"))
}

impl ExplainCommand {
    /// Tells why.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), Error> {
        match self {
            ExplainCommand::Run(args) => super::explain(args, out),
            ExplainCommand::Served(args) => served(args, out),
        }
    }
}

/// Looks twice, and prints why.
fn served(args: &ServedArgs, out: &mut dyn Write) -> Result<(), Error> {
    let look = || Look::at(&args.address).map_err(Error::Failed);
    let before = look()?;
    std::thread::sleep(Duration::from_nanos(args.interval));
    let after = look()?;
    if !after.follows(&before) {
        let text = "the server was started anew meanwhile, or another one was: ask again";
        return Err(Error::Failed(text.into()));
    }
    print(args, (&before, &after), out)
}

/// Prints what was between two looks.
fn print(
    args: &ServedArgs,
    (before, after): (&Look, &Look),
    out: &mut dyn Write,
) -> Result<(), Error> {
    let seconds = (after.at - before.at) as f64 / 1e9;
    let causes = after.causes_since(before);
    let mut slowest = after.slowest_since(before);
    slowest.truncate(args.slowest as usize);
    let count: u64 = causes.kinds().iter().map(|(_, kind)| kind.requests()).sum();
    if args.json {
        let slow = |(slow, ago): &(Slow, u64)| {
            let mut json = request_json(slow);
            json["ended_ns_ago"] = (*ago).into();
            json
        };
        let json = json!({
            "drive": after.drive,
            "seconds": seconds,
            "requests": count,
            "explained": causes_json(&causes),
            "slowest": slowest.iter().map(slow).collect::<Vec<_>>(),
        });
        writeln!(out, "{}", escaped(&json.to_string()))?;
        return Ok(());
    }
    let (name, why) = (harmless(&after.drive), Why::of_one(&causes));
    if count == 0 {
        writeln!(out, "{name}: no request ended in {}", units::time_ns(seconds * 1e9))?;
        return Ok(());
    }
    let all = causes.kinds().into_iter().filter_map(|(_, kind): (_, &Kind)| kind.slowest(1.0));
    let ns: u128 = all.map(|group| group.sum.ns()).sum();
    writeln!(
        out,
        "{name}: {} requests a second for {}, {} in the mean",
        units::count(count as f64 / seconds),
        units::time_ns(seconds * 1e9),
        units::time_ns(ns as f64 / count as f64),
    )?;
    writeln!(out, "{}", why.tables(WIDE))?;
    let told = slowest.iter().map(|(slow, ago)| (slow, *ago, None));
    write!(out, "{}", why.requests(told, "ended ago", columns().min(TABLE)))?;
    let (known, asked) = (slowest.len() as u64, u64::from(args.slowest).min(count));
    if known < asked {
        writeln!(out, "{known} of the {asked} slowest: a server keeps {KEPT} of each second")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        command: ExplainCommand,
    }

    fn parsed(line: &str) -> Result<ExplainCommand, String> {
        let words = ["explain"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.command).map_err(|e| e.to_string())
    }

    #[test]
    fn help_names_no_option_that_is_refused() {
        let mut cmd = ExplainCommand::augment_args(Command::new("explain"));
        let help = cmd.render_long_help().to_string();
        for hidden in ["--cores", "--scheduler", "--trace", "--report", "--fault", "--clock", LAYER]
        {
            assert!(!help.contains(hidden), "{hidden}: {help}");
        }
        for named in ["--what-if", "--served", "--slowest", "--rate"] {
            assert!(help.contains(named), "{named}: {help}");
        }
    }

    #[test]
    fn a_run_or_a_server_is_asked_for() {
        let Ok(ExplainCommand::Run(run)) = parsed("mem:tlc --rw randread --slowest 5") else {
            panic!("a run")
        };
        assert_eq!(run.bench.slowest, Some(5));
        let line = "--served 9100 --interval 200ms --slowest 7 --json";
        let Ok(ExplainCommand::Served(served)) = parsed(line) else { panic!("a server") };
        assert_eq!((served.interval, served.slowest, served.json), (200_000_000, 7, true));
        assert_eq!(served.address.to_string(), "127.0.0.1:9100");
        for (line, why) in [
            ("", "--rw"),
            ("mem:tlc", "--rw"),
            ("--rw randread", "DRIVE"),
            ("mem:tlc --rw randread --interval 1s", "cannot be used with"),
            ("--served 9100 --rw randread", "cannot be used with"),
            ("mem:tlc --served 9100", "cannot be used with"),
            ("--served 9100 --what-if suspend=true", "cannot be used with"),
            ("--served 9100 --interval 20s", "100ms to 10s"),
            ("--served a/b", "no address"),
        ] {
            let refused = parsed(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
