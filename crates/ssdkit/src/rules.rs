//! `ssdkit rules`: rule sets that a host installs in a drive: checked, printed as they are
//! written, and asked which rule a request would hit.
//!
//! Reads regular files of 1 MiB at most. Fails with exit code 1 where a set is wrong, and then
//! says what, where, and what to do; with 2 where something was asked that cannot be.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use control::{Room, Template};
use measure::file::bytes_of;
use measure::options::{time, whole};
use measure::units;
use port::Time;
use rules::decision::{Collect, Depth, Fill, Migrate};
use rules::explain::{Explained, explain};
use rules::request::MOST_BLOCKS;
use rules::syntax::{ActionKind, Application, Most, Set};
use rules::{
    Budget, Checked, Compiled, Decision, Entry, Interpreter, Op, Problem, Request, Verdict, View,
    check, parse_bytes,
};
use serde_json::{Value, json};

use drive::error::Error;
use drive::say::harmless;

mod served;

use served::Served;

/// What `ssdkit rules --help` ends with, and that of its commands.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit rules check table1.rules
  ssdkit rules check table1.rules --within given.rules --entries 1M
  ssdkit rules print table1.rules
  ssdkit rules template latency --applications 4 --size 1G --units 8
  ssdkit rules list ./control.sock
  ssdkit rules install ./control.sock mine.rules
  ssdkit rules install ./control.sock mine.rules --target target1
  ssdkit rules counters ./control.sock --json
  ssdkit rules explain table1.rules --op read --lba 4096
  ssdkit rules explain tenants.rules --op write --application 3 --lba 2M --len 64k --temperature 75";

/// Bytes of a file that is read.
const MOST_BYTES: u64 = rules::parse::MOST_BYTES as u64;

/// `ssdkit rules`.
#[derive(Args, Clone, Debug)]
pub struct RulesArgs {
    /// What is done with a rule set.
    #[command(subcommand)]
    command: RulesCommand,
}

/// What is done with a rule set.
#[derive(Clone, Debug, Subcommand)]
enum RulesCommand {
    /// Check a set as a drive does that installs it.
    #[command(after_help = EXAMPLES)]
    Check(CheckArgs),
    /// Print a set in the one way in which it is written.
    #[command(after_help = EXAMPLES)]
    Print(PrintArgs),
    /// Print a set that comes with the program, for a drive of so many units.
    #[command(after_help = EXAMPLES)]
    Template(TemplateArgs),
    /// Print the set of a drive that is served with --control.
    #[command(after_help = EXAMPLES)]
    List(ServedArgs),
    /// Tell how often each rule of a served drive matched.
    #[command(after_help = EXAMPLES)]
    Counters(ServedArgs),
    /// Install a set in a served drive, between two of its requests.
    #[command(after_help = EXAMPLES)]
    Install(InstallArgs),
    /// Tell which rule a request would hit, and why not those before it.
    #[command(after_help = EXAMPLES)]
    Explain(Box<ExplainArgs>),
}

/// `ssdkit rules check`.
#[derive(Args, Clone, Debug)]
struct CheckArgs {
    /// The rule set.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A set whose `application` lines say what each application was given.
    #[arg(long, value_name = "FILE")]
    within: Option<PathBuf>,
    /// The most entries that all maps may have together; K, M and G are binary.
    #[arg(long, value_name = "N", default_value = "64M", value_parser = binary)]
    entries: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit rules print`.
#[derive(Args, Clone, Debug)]
struct PrintArgs {
    /// The rule set.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit rules template`.
#[derive(Args, Clone, Debug)]
struct TemplateArgs {
    /// minimal, latency, throughput or longevity.
    #[arg(value_name = "NAME", value_parser = template)]
    name: Template,
    /// Applications; each has its part of the blocks.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1..=256))]
    applications: u16,
    /// The drive's capacity; K, M and G are binary.
    #[arg(long, value_name = "SIZE", value_parser = binary)]
    size: u64,
    /// The drive's parallel units.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=65_536))]
    units: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit rules list` and `counters`.
#[derive(Args, Clone, Debug)]
struct ServedArgs {
    /// The control socket of `serve --control`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Which target, of a drive of several of which more than one is made of rules.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit rules install`.
#[derive(Args, Clone, Debug)]
struct InstallArgs {
    /// The control socket of `serve --control`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// The rule set.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which target, of a drive of several of which more than one is made of rules.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// `ssdkit rules explain`.
#[derive(Args, Clone, Debug)]
struct ExplainArgs {
    /// The rule set.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The operation: read, write, trim, zero, flush, idle.
    #[arg(long, value_name = "OP", value_parser = op)]
    op: Op,
    /// The first logical block, of 4 KiB; K, M and G are binary.
    #[arg(long, value_name = "BLOCK", default_value = "0", value_parser = block)]
    lba: u64,
    /// Its length; K, M and G are binary.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = binary)]
    len: u64,
    /// Whose it is [default: the application's that has the block].
    #[arg(long, value_name = "N")]
    application: Option<u16>,
    /// The channel by which it comes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    channel: u16,
    /// The placement that a write hints at.
    #[arg(long, value_name = "N", default_value_t = 0)]
    placement: u8,
    /// The drive's temperature, in degrees Celsius.
    #[arg(long, value_name = "C", default_value_t = 40)]
    temperature: u8,
    /// Free chunks of the drive, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = whole::<u8>(0..=100))]
    free: u8,
    /// For how long nobody has asked anything; without a unit in seconds.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    idle: u64,
    /// Drive time when it comes; without a unit in seconds.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    at: u64,
    /// A counter or entry of numbers as it is then: NAME=N, 'NAME[KEY]=N'.
    #[arg(long, value_name = "NAME=N", value_parser = setting)]
    set: Vec<Setting>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A counter, or the entry of a map, and what it is.
#[derive(Clone, Debug)]
struct Setting {
    name: String,
    key: Option<u64>,
    value: u64,
}

fn op(text: &str) -> Result<Op, String> {
    Op::of(text).ok_or_else(|| {
        let words: Vec<&str> = Op::ALL.into_iter().map(Op::word).collect();
        format!("write one of {}", words.join(", "))
    })
}

fn template(text: &str) -> Result<Template, String> {
    Template::of(text).ok_or_else(|| {
        let names: Vec<&str> = Template::ALL.into_iter().map(Template::name).collect();
        format!("write one of {}", names.join(", "))
    })
}

fn binary(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|e| e.to_string())
}

fn block(text: &str) -> Result<u64, String> {
    let block = binary(text)?;
    if block < MOST_BLOCKS { Ok(block) } else { Err("a drive has 2^48 blocks at most".into()) }
}

fn setting(text: &str) -> Result<Setting, String> {
    let wrong = || "write NAME=N or NAME[KEY]=N".to_string();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let value = binary(value)?;
    Ok(match name.split_once('[') {
        None => Setting { name: name.into(), key: None, value },
        Some((name, key)) => {
            let key = binary(key.strip_suffix(']').ok_or_else(wrong)?)?;
            Setting { name: name.into(), key: Some(key), value }
        }
    })
}

/// Does what is asked, and tells `out`.
pub fn run(args: &RulesArgs, out: &mut dyn Write) -> Result<(), Error> {
    match &args.command {
        RulesCommand::Check(args) => check_file(args, out),
        RulesCommand::Print(args) => {
            let source = Source::read(&args.file)?;
            let set = source.parse(args.json, out)?;
            print_set(&set, args.json, out)
        }
        RulesCommand::Template(args) => print_template(args, out),
        RulesCommand::List(args) => args.served().list(out),
        RulesCommand::Counters(args) => args.served().counters(out),
        RulesCommand::Install(InstallArgs { socket, file, target, json }) => {
            let source = Source::read(file)?;
            Served { socket, target: target.as_deref(), json: *json }.install(&source, out)
        }
        RulesCommand::Explain(args) => explain_request(args, out),
    }
}

impl ServedArgs {
    fn served(&self) -> Served<'_> {
        Served { socket: &self.socket, target: self.target.as_deref(), json: self.json }
    }
}

fn print_template(args: &TemplateArgs, out: &mut dyn Write) -> Result<(), Error> {
    let blocks = args.size / port::BLOCK_BYTES;
    let room = Room { applications: args.applications, blocks, units: args.units };
    let set = args.name.set(&room).map_err(|e| Error::Usage(e.to_string()))?;
    print_set(set.set(), args.json, out)
}

fn print_set(set: &Set, json: bool, out: &mut dyn Write) -> Result<(), Error> {
    match json {
        true => writeln!(out, "{:#}", json!({ "set": set.name.text, "text": set.to_string() }))?,
        false => write!(out, "{set}")?,
    }
    Ok(())
}

/// A file, and its name.
struct Source {
    name: String,
    bytes: Vec<u8>,
}

impl Source {
    fn read(path: &Path) -> Result<Source, Error> {
        let name = harmless(&path.display().to_string()).to_string();
        let bytes = bytes_of(path, MOST_BYTES);
        let bytes = bytes.map_err(|e| Error::Usage(format!("{name}: {e}")))?;
        Ok(Source { name, bytes })
    }

    fn parse(&self, json: bool, out: &mut dyn Write) -> Result<Set, Error> {
        parse_bytes(&self.bytes).or_else(|problem| self.wrong(&[problem], json, out))
    }

    fn check(&self, budget: &Budget, json: bool, out: &mut dyn Write) -> Result<Checked, Error> {
        let set = self.parse(json, out)?;
        check(set, budget).or_else(|problems| self.wrong(&problems, json, out))
    }

    /// Tells problems: as JSON among the results, else in the error.
    fn wrong<T>(&self, all: &[Problem], json: bool, out: &mut dyn Write) -> Result<T, Error> {
        if json {
            writeln!(out, "{:#}", json!({ "file": self.name, "problems": self.listed(all) }))?;
            out.flush()?;
        }
        Err(Error::Failed(self.told(all).trim_end().to_string()))
    }

    /// Problems as a compiler tells them.
    fn told(&self, all: &[Problem]) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        all.iter().map(|problem| problem.render(&self.name, &text)).collect()
    }

    fn listed(&self, all: &[Problem]) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.bytes);
        let one = |problem: &Problem| {
            let (line, column) = problem.position(&text);
            let kind = if problem.what.is_warning() { "warning" } else { "error" };
            json!({
                "kind": kind,
                "line": line,
                "column": column,
                "what": problem.what.to_string(),
                "help": problem.what.help(),
            })
        };
        all.iter().map(one).collect()
    }
}

fn check_file(args: &CheckArgs, out: &mut dyn Write) -> Result<(), Error> {
    let source = Source::read(&args.file)?;
    let mut budget = Budget { entries: args.entries, ..Budget::default() };
    if let Some(within) = &args.within {
        let given = Source::read(within)?;
        let given = parse_bytes(&given.bytes).map_err(|e| Error::Usage(given.told(&[e])))?;
        budget.applications = Some(given.applications);
    }
    let checked = source.check(&budget, args.json, out)?;
    let set = checked.set();
    let entries: u64 = set.maps.iter().map(|map| map.entries).sum();
    let (rules, state) = (Compiled::new(&checked).bytes(), 8 * entries);
    if args.json {
        let json = json!({
            "file": source.name,
            "set": set.name.text,
            "applications": set.applications.len(),
            "rules": set.rules.len(),
            "map_entries": entries,
            "most_steps": checked.steps(),
            "rule_bytes": rules,
            "map_bytes": state,
            "problems": source.listed(checked.warnings()),
        });
        writeln!(out, "{json:#}")?;
        return Ok(());
    }
    write!(out, "{}", source.told(checked.warnings()))?;
    let (applications, count) = (set.applications.len() as u64, set.rules.len() as u64);
    writeln!(
        out,
        "{}: {} for {}, at most {} a request; {} of rules, {} of maps",
        set.name.text,
        units::counted(count, "rule"),
        units::counted(applications, "application"),
        units::counted(checked.steps(), "step"),
        units::size_binary(rules),
        units::size_binary(state),
    )?;
    Ok(())
}

fn explain_request(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), Error> {
    let source = Source::read(&args.file)?;
    let checked = source.check(&Budget::default(), args.json, out)?;
    let set = checked.set();
    let mut state = Interpreter::new(set);
    for Setting { name, key, value } in &args.set {
        let done = match key {
            Some(key) => state.set_entry(name, *key, *value),
            None => state.set_counter(name, *value),
        };
        done.map_err(|e| Error::Usage(format!("--set {name}: {e}")))?;
    }
    let has_block = |application: &&Application| application.lba.has(args.lba);
    let owner = set.applications.iter().find(has_block).or(set.applications.first());
    let owner = owner.map_or(0, |application| application.number);
    let request = Request {
        op: args.op,
        application: args.application.unwrap_or(owner),
        channel: args.channel,
        lba: args.lba,
        size: args.len,
        placement: args.placement,
    };
    let view =
        View { now: args.at, idle: args.idle, temperature: args.temperature, free: args.free };
    let explained = explain(set, &state, &request, &view);
    let explained = explained.map_err(|e| Error::Failed(format!("{}: {e}", source.name)))?;
    if args.json {
        writeln!(out, "{:#}", explained_json(set, &request, &explained))?;
        return Ok(());
    }
    for told in &explained.rules {
        let name = &set.rules[told.rule].name.text;
        match told.matches {
            true => writeln!(out, "{name} matches")?,
            false => writeln!(out, "{name} does not match: {}", told.why.join("; "))?,
        }
    }
    let outcome = outcome(set, &request, &explained);
    writeln!(out, "{}", outcome.join(", "))?;
    Ok(())
}

/// What becomes of a request, in words.
fn outcome(set: &Set, request: &Request, explained: &Explained) -> Vec<String> {
    if !explained.admitted {
        let owner = set.applications.iter().find(|a| a.lba.has(request.lba));
        let of = match owner {
            Some(owner) if owner.number != request.application => {
                format!("block {} is application {}'s", request.lba, owner.number)
            }
            Some(owner) => format!("application {} ends before its last block", owner.number),
            None => format!("block {} is no application's", request.lba),
        };
        return vec![format!("refused: {of}")];
    }
    let entry =
        |entry: Entry| format!("{}[{}]", set.maps[usize::from(entry.map)].name.text, entry.key);
    let unit =
        |unit: Option<u16>| unit.map_or("any of its units".into(), |unit| format!("unit {unit}"));
    let Decision { rule, verdict, delay, depth, share, collect, migrate, fill } =
        explained.decision;
    let mut all = vec![match verdict {
        Verdict::Place { unit: at, stream, entry: into } => {
            let into = into.map_or(String::new(), |into| format!(", stored in {}", entry(into)));
            format!("placed on {}, stream {stream}{into}", unit(at))
        }
        Verdict::Serve(None) => "zeros: the entry leads nowhere".into(),
        Verdict::Serve(Some(address)) => format!("served from {address}"),
        Verdict::Redirect(channel) => format!("sent to channel {channel}"),
        Verdict::Remote(drive) => format!("sent to remote drive {drive}"),
        Verdict::Drop => "done, and nothing happens".into(),
        Verdict::Refuse => "refused".into(),
        Verdict::Ask if rule.is_none() => {
            "no rule decides: the control plane is asked, and it fails where there is none".into()
        }
        Verdict::Ask => "the control plane is asked".into(),
        Verdict::Pass if rule.is_none() => "no rule decides: nothing happens".into(),
        Verdict::Pass => "as without rules".into(),
    }];
    if delay > 0 {
        all.push(format!("after {}", Time(delay)));
    }
    all.extend(rates(set, explained));
    if let Some(Depth { most, .. }) = depth {
        all.push(format!("at most {most} under way"));
    }
    all.extend(share.map(|share| format!("with share {share}")));
    if let Some(Collect { policy, unit: of }) = collect {
        all.push(format!("collection of {} by {}", unit(of), policy.word()));
    }
    if let Some(Migrate { entry: of, from, unit }) = migrate {
        all.push(format!("{} moves from {from} to unit {unit}", entry(of)));
    }
    if let Some(Fill { unit: to, entry: into }) = fill {
        all.push(format!("kept on {}, stored in {}", unit(to), entry(into)));
    }
    all
}

/// The rates of the limits that the rules which match name.
fn rates<'s>(set: &'s Set, explained: &'s Explained) -> impl Iterator<Item = String> + 's {
    let matching = explained.rules.iter().filter(|told| told.matches);
    let actions = matching.flat_map(|told| &set.rules[told.rule].actions);
    actions.filter_map(|action| {
        let ActionKind::Limit(name) = &action.kind else { return None };
        let limit = set.limits.iter().find(|limit| limit.name.text == name.text)?;
        let Most::Rate(rate, burst) = limit.most else { return None };
        Some(format!("paced to {rate} a second, {burst} at once"))
    })
}

fn explained_json(set: &Set, request: &Request, explained: &Explained) -> Value {
    let name = |rule: usize| set.rules[rule].name.text.as_str();
    let rules = explained
        .rules
        .iter()
        .map(|told| json!({ "rule": name(told.rule), "matches": told.matches, "why": told.why }));
    json!({
        "set": set.name.text,
        "op": request.op.word(),
        "application": request.application,
        "admitted": explained.admitted,
        "rules": rules.collect::<Vec<_>>(),
        "decides": explained.decision.rule.map(|rule| name(usize::from(rule))),
        "delay_ns": explained.decision.delay,
        "outcome": outcome(set, request, explained),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_each_kind_are_explained() {
        let set = rules::parse(
            "set a application 0 lba 0..9 limit p rate 100 burst 1 limit d depth 2 limit s share 3 \
             rule slow priority 2 when op == read then limit p, limit d, limit s \
             rule all priority 1 when op == read then pass",
        )
        .unwrap();
        let request =
            Request { op: Op::Read, application: 0, channel: 0, lba: 3, size: 4096, placement: 0 };
        let view = View { now: 0, idle: 0, temperature: 40, free: 50 };
        let explained = explain(&set, &Interpreter::new(&set), &request, &view).unwrap();
        let told = ["as without rules", "paced to 100 a second, 1 at once"];
        let told = [&told[..], &["at most 2 under way", "with share 3"]].concat();
        assert_eq!(outcome(&set, &request, &explained), told);
        let json = explained_json(&set, &request, &explained);
        assert_eq!(json["outcome"], json!(told));
    }

    #[test]
    fn maps_are_the_state() {
        let set = rules::parse("set a application 0 lba 0..9 map m[1000] of 0..4").unwrap();
        assert_eq!(rules::State::new(&set).bytes(), 8000);
    }
}
