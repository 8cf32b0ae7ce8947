//! Study `speculation`: how far programs could go on while their I/O is under way, and which way
//! of waiting for it wins (Wei, Bjørling, Bonnet and Swanson, *I/O Speculation for the Microsecond
//! Era*, USENIX ATC 2014; chapter 4 of the thesis).
//!
//! Table 2 is counted of programs that are installed, on files of a folder of their own; what
//! lacks is told as such. Figures 1 and 2 are real time, on the timed null driver.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::json;
use speculation::counts::Program;
use speculation::potential::{Run, after, deciding, kind, tool};
use speculation::strategies::checkpoint::Way;
use speculation::strategies::even::{BreakEven, Verdict};
use speculation::strategies::map::By;
use speculation::strategies::sized::Sized;
use speculation::strategies::{self, Found};
use speculation::tool::Tool;

use super::row::{Reference, Row};
use super::runs::Runs;
use super::{Findings, Lab, Study};
use drive::error::Error;

/// The study.
pub const STUDY: Study = Study {
    name: "speculation",
    about: "how far programs could go on while their I/O is under way, and which way of waiting \
            for it wins (Wei)",
    run,
};

/// A program of table 2.
struct Case {
    /// How the paper calls it, or we do.
    name: &'static str,
    /// The process that is counted, as several may run.
    process: &'static str,
    command: &'static str,
    before: Option<&'static str>,
    /// The paper's instructions after writes, and after reads.
    paper: Option<(f64, f64)>,
    /// Whether what it does depends on how the paper's was built or fed, and so is only shown.
    is_other: Option<&'static str>,
    class: &'static str,
}

/// Programs that are counted, the paper's first.
const CASES: [Case; 8] = [
    Case {
        name: "dd",
        process: "dd",
        command: "dd if=data of=copy bs=4k status=none",
        before: None,
        paper: Some((161.0, 69.0)),
        is_other: None,
        class: "pure I/O",
    },
    Case {
        name: "tar",
        process: "tar",
        command: "tar cf tree.tar tree",
        before: None,
        paper: Some((248.0, 144.0)),
        is_other: None,
        class: "pure I/O",
    },
    Case {
        name: "make (ld)",
        process: "ld",
        command: "gcc -O2 -o program program.c",
        before: None,
        paper: Some((115.0, 8_790.0)),
        is_other: None,
        class: "pure I/O",
    },
    Case {
        name: "bzip2",
        process: "bzip2",
        command: "bzip2 -kf data",
        before: None,
        paper: Some((43_492_452.0, 1_472.0)),
        is_other: Some("as much as lies between two writes depends on what is compressed"),
        class: "compute intensive",
    },
    Case {
        name: "gzip",
        process: "gzip",
        command: "gzip -kf data",
        before: None,
        paper: None,
        is_other: None,
        class: "compute intensive",
    },
    Case {
        name: "git clone",
        process: "git",
        command: "git clone -q --no-local repository clone",
        before: Some("rm -rf clone"),
        paper: Some((1_940.0, 14.0)),
        is_other: Some("the paper's checks 40,000 files of Linux out; this one has one"),
        class: "",
    },
    Case {
        name: "sqlite3, rollback journal",
        process: "sqlite3",
        command: "sqlite3 base.db '.read inserts.sql'",
        before: Some("rm -f base.db*"),
        paper: None,
        is_other: None,
        class: "pure I/O",
    },
    Case {
        name: "redis-server, appendfsync always",
        process: "redis-server",
        command: "sh redis.sh",
        before: Some("rm -rf server; mkdir server"),
        paper: None,
        is_other: None,
        class: "pure I/O",
    },
];

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let mut rows = Vec::new();
    let mut notes = vec![
        "table 2: bands are a third to three times the paper's mean, as programs and their \
         libraries are ten years younger; a read's buffer is used at its first load"
            .to_owned(),
        "figures 1 and 2: the timed null driver in real time, on the program's own core; the \
         program has 1 MiB of memory"
            .to_owned(),
    ];
    match tool() {
        Ok(tool) => table2(lab, &tool, &mut rows, &mut notes)?,
        Err(e) => notes.push(format!("table 2 is left out: {e}")),
    }
    figures(lab, &mut rows, &mut notes)?;
    Ok(Findings::new(rows, notes))
}

/// Counts the programs.
fn table2(
    lab: &mut Lab,
    tool: &Tool,
    rows: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::system("make a folder", &e))?;
    prepare(folder.path(), lab.options.pick(8 << 20, 1 << 20))
        .map_err(|e| Error::system("write what programs work on", &e))?;
    let mut at_once = Vec::new();
    for case in &CASES {
        lab.watch.phase(case.name);
        if !lab.watch.look(0.5) {
            return Err(Error::Failed("stopped before its end".into()));
        }
        let command = ["sh", "-c", case.command].map(OsString::from);
        let run = Run { program: &command, folder: Some(folder.path()), before: case.before };
        let potential = run.counted(tool)?;
        let program = potential.counts.programs.get(case.process);
        let program = program.filter(|of| potential.status.success() && !of.calls.is_empty());
        let Some(program) = program else {
            notes.push(format!("{}: left out, as it is not installed or failed", case.name));
            continue;
        };
        lab.note_step(
            case.name,
            format!("ssdkit speculate potential -- {}", case.command),
            json!({}),
        );
        let reads = after(program, true);
        if reads.count > 0 {
            // The middle of its class: of 64 to 127 it is not said.
            at_once.push(if reads.median() < 64.0 { 1.0 } else { 0.0 });
        }
        rows.extend(of_program(case, program));
    }
    let share = 100.0 * at_once.iter().sum::<f64>() / at_once.len().max(1) as f64;
    rows.push(Row::within(
        "section 3",
        "programs that use what they read within 100 instructions",
        "%",
        "most applications do",
        Runs::one(share),
        50.0..=100.0,
    ));
    Ok(())
}

/// The rows of one.
fn of_program(case: &Case, program: &Program) -> Vec<Row> {
    let means = [(false, "after a write"), (true, "after a read")];
    let mut rows: Vec<Row> = means
        .into_iter()
        .filter(|(reads, _)| after(program, *reads).count > 0)
        .map(|(reads, what)| {
            let ours = Runs::one(after(program, reads).mean());
            let what = format!("{}: instructions {what}", case.name);
            let paper = case.paper.map(|(writes, of_reads)| if reads { of_reads } else { writes });
            match (paper, case.is_other) {
                (Some(paper), None) => {
                    Row::band("table 2", &what, "", Reference::Paper(paper), ours, 0.33..=3.0)
                }
                (paper, why) => {
                    let reference = paper.map_or(Reference::Silent, Reference::Paper);
                    let why = why.unwrap_or("the paper has no such program");
                    Row::shown("table 2", &what, "", reference, ours, why)
                }
            }
        })
        .collect();
    if !case.class.is_empty() {
        let what = format!("{} is {}", case.name, case.class);
        let says = "pure I/O about 10^2, I/O intensive about 10^4, compute intensive 10^5 and more";
        let is = if kind(&deciding(program)) == case.class { 1.0 } else { 0.0 };
        rows.push(Row::within("table 2, classes", &what, "", says, Runs::one(is), 1.0..=1.0));
    }
    rows
}

/// What programs work on.
fn prepare(folder: &Path, bytes: usize) -> std::io::Result<()> {
    // Some order, as in text and programs, and some chance.
    let mut random = 1u64;
    let mut data = Vec::with_capacity(bytes);
    while data.len() < bytes {
        random = port::random::mix(random);
        data.extend_from_slice(
            format!("line {random:x}{:x}\n", port::random::mix(!random)).as_bytes(),
        );
    }
    fs::write(folder.join("data"), &data)?;
    fs::create_dir(folder.join("tree"))?;
    for n in 0..64 {
        fs::write(folder.join(format!("tree/{n}")), &data[n * 997..][..1_000 + n * 400])?;
    }
    let main = "#include <stdio.h>\nint main(void) { puts(\"one\"); return 0; }\n";
    fs::write(folder.join("program.c"), main)?;
    let inserts = (0..200).map(|n| format!("insert into t(b) values('value {n}');\n"));
    let inserts: String = inserts.collect();
    fs::write(
        folder.join("inserts.sql"),
        format!("create table t(a integer primary key, b);\n{inserts}"),
    )?;
    fs::write(folder.join("redis.sh"), REDIS)?;
    let git = "git init -q repository && cd repository && cp ../data . && git add data && \
               git -c user.name=one -c user.email=one@example.org commit -q -m data";
    // Without git its row is left out.
    let _ = std::process::Command::new("sh").args(["-c", git]).current_dir(folder).output();
    Ok(())
}

/// A server with some clients, and its end.
const REDIS: &str = "\
redis-server --port 0 --unixsocket $PWD/server/socket --dir $PWD/server --save '' \\
  --appendonly yes --appendfsync always >/dev/null &
for i in $(seq 200); do
  redis-cli -s server/socket ping 2>/dev/null | grep -q PONG && break
  sleep 0.1
done
redis-benchmark -s server/socket -t set -n 500 -c 10 -d 100 -r 1000 -q >/dev/null
redis-cli -s server/socket shutdown nosave
wait
";

/// The costs by strategy, and of checkpoints.
fn figures(lab: &mut Lab, rows: &mut Vec<Row>, notes: &mut Vec<String>) -> Result<(), Error> {
    lab.watch.phase("strategies");
    let quick = lab.options.quick;
    let found = strategies::measure(false, 1 << 20, quick, None)?;
    lab.note_step("figures 1 and 2", "ssdkit speculate strategies --memory 1M".into(), json!({}));
    let way = found.way;
    notes.push(format!("transactional memory (TSX): {}", found.transactions));
    notes.push(format!("the map's checkpoints are by {}, the cheapest here", way.name()));
    for of in &found.ways {
        if let Some(why) = &of.absent {
            notes.push(format!("checkpoints by {}: absent: {why}", of.way.name()));
        }
    }
    checkpoints(&found, quick, rows);
    let by_fork = if way == Way::Fork { Vec::new() } else { forks(lab)? };
    let own = found.map.break_evens.iter().map(|even| (way, even));
    // Sleeping has no checkpoint, and is judged once.
    let others = by_fork.iter().filter(|even| even.by == By::Time).map(|even| (Way::Fork, even));
    rows.extend(own.chain(others).map(|(way, even)| break_even(way, even)));
    for (by, what) in [(By::Time, "by time"), (By::Processor, "by processor")] {
        let decided = found.map.cells() - found.map.undecided(by);
        let share = 100.0 * found.map.agreed(by) as f64 / decided.max(1) as f64;
        rows.push(Row::within(
            "figure 1, the map",
            &format!("cells decided beyond noise whose winner {what} is the predicted one"),
            "%",
            "the benefit hinges on what a speculative context costs, and on the time of the device",
            Runs::one(share),
            90.0..=100.0,
        ));
        if found.map.undecided(by) > 0 {
            let (undecided, of) = (found.map.undecided(by), found.map.cells());
            notes.push(format!("of {of} cells, the winner {what} of {undecided} is within noise"));
        }
    }
    Ok(())
}

fn forks(lab: &mut Lab) -> Result<Vec<BreakEven>, Error> {
    let found = strategies::break_evens(Way::Fork, 1 << 20)?;
    let what = "ssdkit speculate strategies --memory 1M --checkpoint fork";
    lab.note_step("figure 1, break-even", what.into(), json!({}));
    Ok(found)
}

/// Figure 2: the paper's checkpoint is a clone, so a fork is held against it; and the cheapest
/// against the most that it would accept.
fn checkpoints(found: &Found, quick: bool, rows: &mut Vec<Row>) {
    let microseconds = |ns: f64| Runs::one(ns / 1e3);
    let of = |way: Way| {
        let sizes: Vec<&Sized> = found.sizes.iter().filter(|sized| sized.way == way).collect();
        (sizes[0].take, sizes[sizes.len() - 1].take)
    };
    let (small, large) = of(Way::Fork);
    let sizes = [("a small process", small, 50.0), ("a process of 1 GiB", large, 1_000.0)];
    for (what, ours, paper) in sizes.into_iter().take(if quick { 1 } else { 2 }) {
        let what = format!("a checkpoint of {what}, by fork");
        let (paper, ours) = (Reference::Paper(paper), microseconds(ours));
        rows.push(Row::band("figure 2", &what, "us", paper, ours, 0.2..=5.0).explained(
            "fork copies a table entry for each of 262,144 pages; in a virtual machine more so",
        ));
    }
    rows.push(Row::order(
        "figure 2",
        "us",
        "what a checkpoint costs rises with the process",
        [("the largest", microseconds(large)), ("the smallest", microseconds(small))],
    ));
    let (small, large) = of(found.way);
    let says = [("a small process", small, 50.0), ("a process of 1 GiB", large, 1_000.0)];
    for (what, ours, paper) in says.into_iter().take(if quick { 1 } else { 2 }) {
        let says = format!("{paper} us; what costs less is welcome, up to five times that passes");
        let what = format!("a checkpoint of {what}, by the cheapest way, {}", found.way.name());
        let ours = microseconds(ours);
        rows.push(Row::within("figure 2", &what, "us", &says, ours, 0.0..=5.0 * paper));
    }
}

/// Where the winner changes, if rounds lie near enough to each other to say.
fn break_even(way: Way, even: &BreakEven) -> Row {
    let ours = Runs::new(even.ratios.values().to_vec());
    let by = if even.by == By::Time { format!(" by {}", way.name()) } else { String::new() };
    let what = format!(
        "{} to {}{by}, in {}: where the parts say, by where it is found",
        even.below.name(),
        even.above.name(),
        even.unit
    );
    let (figure, model) = ("figure 1, break-even", Reference::Model(1.0));
    match even.verdict() {
        Verdict::Undecided => {
            let noise = 100.0 * even.noise();
            let why = format!("undecided within noise: half of the rounds lie {noise:.0} % around");
            Row::shown(figure, &what, "", model, ours, &why)
        }
        _ => Row::band(figure, &what, "", model, ours, 0.8..=1.2),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict};
    use super::*;
    use load::watch::Watch;

    /// What is counted does not depend on how busy the machine is; what is timed is there.
    #[test]
    fn the_quick_study_has_all_rows() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let rows = |figure: &str| outcome.rows.iter().filter(|r| r.figure() == figure).count();
        assert!(rows("table 2") >= 10, "{:?}", outcome.notes);
        for row in outcome.rows.iter().filter(|r| r.figure().starts_with("table 2")) {
            assert_ne!(row.verdict(), Verdict::Fail, "{}", row.what());
        }
        // By fork, how it rises, and by the cheapest; by fork there is a third one in instructions.
        assert_eq!((rows("figure 2"), rows("figure 1, the map")), (3, 2));
        assert!([3, 4].contains(&rows("figure 1, break-even")), "{:?}", outcome.notes);
    }
}
