//! `ssdkit target`: targets of a served drive, listed, created and removed at its control
//! socket.
//!
//! Fails with exit code 1 where nobody answers there, or what is asked is refused: the drive
//! is then as it was.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use measure::options::{count, whole};
use measure::units;
use serde_json::{Value, json};

use drive::error::Error;
use drive::say::{harmless, say};
use drive::spec::rules_to_tell;

/// What `ssdkit target --help` ends with, and that of its commands.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit serve mem:tlc,size=1G,units=8/8 --nbd ./drive.sock --control ./control.sock
  ssdkit target list ./control.sock
  ssdkit target create ./control.sock logs --units 4
  ssdkit target create ./control.sock mine --units 4 --rules latency:2
  ssdkit target create ./control.sock values --units 4 --keys 10k
  nbdinfo 'nbd+unix:///logs?socket=./drive.sock'
  ssdkit target remove ./control.sock logs
  ssdkit target list ./control.sock --json";

/// `ssdkit target`.
#[derive(Args, Clone, Debug)]
pub struct TargetArgs {
    /// What is done with the targets.
    #[command(subcommand)]
    command: TargetCommand,
}

/// What is done with the targets of a served drive.
#[derive(Clone, Debug, Subcommand)]
enum TargetCommand {
    /// Tell which targets there are, and what is nobody's.
    #[command(after_help = EXAMPLES)]
    List(ListArgs),
    /// Make a target on what is nobody's, and export it.
    #[command(after_help = EXAMPLES)]
    Create(CreateArgs),
    /// Remove a target with all that it holds.
    #[command(after_help = EXAMPLES)]
    Remove(RemoveArgs),
}

/// `ssdkit target list`.
#[derive(Args, Clone, Debug)]
struct ListArgs {
    /// The control socket of `serve --control`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit target create`.
#[derive(Args, Clone, Debug)]
struct CreateArgs {
    /// The control socket of `serve --control`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// What it is called, and exported as [default: target and the first number that is free].
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// How many parallel units it has; not with placement=stripe, where all have as much.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=65_536))]
    units: Option<u32>,
    /// It is made of rules, and has this set: a template or a file, as rules= in a drive's name
    /// [default: it is pblk].
    #[arg(long, value_name = "SET")]
    rules: Option<String>,
    /// It keeps values by key, and has room for so many keys: who serves the drive the next time
    /// with --redis serves them.
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "rules")]
    keys: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit target remove`.
#[derive(Args, Clone, Debug)]
struct RemoveArgs {
    /// The control socket of `serve --control`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Which one.
    #[arg(value_name = "NAME")]
    name: String,
    /// Remove one that is damaged, too: what it holds may be lost.
    #[arg(long)]
    destroy: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &TargetArgs, out: &mut dyn Write) -> Result<(), Error> {
    match &args.command {
        TargetCommand::List(args) => list(args, out),
        TargetCommand::Create(args) => create(args, out),
        TargetCommand::Remove(args) => remove(args, out),
    }
}

/// What the drive says. What it waits for is told on standard error.
fn ask(socket: &Path, asked: &Value, json: bool, out: &mut dyn Write) -> Result<Value, Error> {
    let mut last = String::new();
    let mut wait = |what: &str| {
        if what != last {
            say(format!("waits for {}", harmless(what)));
            last = what.to_string();
        }
    };
    let answer = fronts::ask(socket, asked, &mut wait)?;
    if json {
        writeln!(out, "{answer:#}")?;
        out.flush()?;
    }
    match answer.get("error").and_then(Value::as_str) {
        Some(why) => Err(Error::Failed(harmless(why).to_string())),
        None => Ok(answer),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A target in a line.
fn line(target: &Value) -> String {
    let units = units::exactly(number(&target["parallel_units"]), "parallel unit");
    let what = match (target["set"].as_str(), target["keys"].as_u64()) {
        (Some(set), _) => format!("rules: {}", harmless(set)),
        (None, Some(keys)) => format!("kv: up to {} keys", units::count(keys as f64)),
        (None, None) => harmless(target["target"].as_str().unwrap_or_default()).to_string(),
    };
    let damage = target["damaged"].as_str();
    let damage = damage.map_or(String::new(), |why| format!("; damaged: {}", harmless(why)));
    format!(
        "{:<16} {:>8} from {} on, on {units} from {} on; {what}{damage}",
        harmless(target["name"].as_str().unwrap_or_default()).to_string(),
        units::capacity(number(&target["size_bytes"])),
        units::capacity(number(&target["first_byte"])),
        number(&target["first_unit"]),
    )
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<(), Error> {
    let answer = ask(&args.socket, &json!({ "ask": "targets" }), args.json, out)?;
    if args.json {
        return Ok(());
    }
    for target in answer["targets"].as_array().into_iter().flatten() {
        writeln!(out, "{}", line(target))?;
    }
    let free = answer["free_text"].as_str().unwrap_or_default();
    writeln!(out, "nobody's: {}", harmless(free))?;
    Ok(())
}

fn create(args: &CreateArgs, out: &mut dyn Write) -> Result<(), Error> {
    let mut asked = json!({ "ask": "create" });
    if let Some(name) = &args.name {
        asked["name"] = name.as_str().into();
    }
    if let Some(units) = args.units {
        asked["units"] = units.into();
    }
    if let Some(rules) = &args.rules {
        asked["rules"] = rules_to_tell(rules)?.into();
    }
    if let Some(keys) = args.keys {
        asked["keys"] = keys.into();
    }
    let answer = ask(&args.socket, &asked, args.json, out)?;
    if let Some(warning) = answer["warning"].as_str() {
        say(harmless(warning));
    }
    if !args.json {
        writeln!(out, "{}", line(&answer))?;
    }
    Ok(())
}

fn remove(args: &RemoveArgs, out: &mut dyn Write) -> Result<(), Error> {
    let mut asked = json!({ "ask": "remove", "name": args.name });
    if args.destroy {
        asked["destroy"] = true.into();
    }
    let answer = ask(&args.socket, &asked, args.json, out)?;
    if !args.json {
        let erased = match answer["erased"].as_bool() {
            Some(true) => "removed, and erased",
            _ => "removed; what it had is erased when the drive is served again",
        };
        writeln!(out, "{}: {erased}", harmless(&args.name))?;
    }
    Ok(())
}
