//! Random command lines: whatever is typed, the program ends in order.
//!
//! It never panics, aborts, dies of a signal or hangs; it ends with 0, 1 or 2;
//! what is wrong is said on standard error; what it prints with `--json` is
//! JSON; `--max-time` is kept within a second, as far as the machine gave it
//! processors; and with `--verify` no data are wrong that were not made wrong.
//! A line that fails is printed with what makes its folder, to be pasted.
//!
//! `LINES` says how many, `LINES_SEED` of which seed, `LINES_FROM` from which
//! on, `LINES_JOBS` on how many threads; `LINES_STEP` shows the slowest.

mod draw;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use draw::Draw;

/// Lines of `make test`.
const LINES: u64 = 300;
/// After this a line hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How late a run may end.
const LATE: Duration = Duration::from_secs(1);
/// Address space of a line, in KiB: what asks for more is told so.
const SPACE_KIB: u64 = 6 << 20;

/// What makes a folder that the lines find.
const FOLDER: [&str; 9] = [
    "create a.ssd --profile tlc --size 16M groups=2 pus=2 pages=48",
    "create b.ssd --profile znand --size 16M --cache protected groups=2 pus=1 pages=64",
    "bench mem:tlc,size=16M,groups=2,pus=2,pages=48 --rw randrw --ios 500 --qd 8 --trace t.trace",
    "!head -c 300 t.trace > x.trace; head -c 10000 a.ssd > x.ssd; truncate -s 16M disk.img",
    "!printf 'above:read,every=100,delay=1ms\\nbelow:write,probability=0.01\\n' > faults.txt",
    "profiles tlc > p.toml",
    "!printf 'set r application 0 lba 0..1M counter n 0..9 map m[9] of 0..9 \\
      rule a priority 0 when m[n %% 9] > n then drop' > r.rules",
    "!mkfifo pipe",
    "info a.ssd",
];

/// Lines that failed once, each with what it was.
const ONCE: [&str; 12] = [
    // It aborted, for want of 128 GiB.
    "bench mem:ref,store=none,groups=256,pus=256,chunks=16000000,pages=1 --rw randread --ios 10",
    // What never says anything, and what never ends.
    "profiles ./pipe",
    "bench mem:./pipe --rw read",
    "bench mem:tlc,size=16M --rw read --faults pipe",
    "trace pipe",
    "profiles /dev/zero",
    // Requests that were given up came back under another's number.
    "bench mem:tlc,size=16M --rw randrw --qd 32 --ios 2k --dispatch hosted --timeout 100us --verify",
    // A shared queue waited for a wake-up that nobody gave.
    "bench mem:openssd,size=16M,side=device,store=none --rw randwrite --bs 16k --qd 1 --threads 3 \
     --ios 30 --dispatch hosted:4 --completion interrupt --dispatch-depth 1 --cores 2 --sockets 2 \
     --scheduler fair --plug=32",
    // Parts of blocks, more than there were entries for.
    "bench mem:tlc,size=16M --rw randrw --bs 512 --qd 512 --threads 2 --ios 2k --verify",
    // These looked at the wall after so many turns, whose length they did not know.
    "bench mem:null,size=32M,store=checksum --rw randread --bs 1M --qd 32 --threads 5 --time 1us \
     --max-time 2s --cores 2 --scheduler deadline --plug=32",
    "bench ./a.ssd --rw randrw --bs 64k --qd 512 --max-time 1s --precondition steady \
     --fua-every 1 --destroy",
    "bench mem:ref,groups=3,pus=3,planes=4,pages=48,chunks=20,store=none --rw randwrite --bs 1M \
     --qd 7 --ios 30 --max-time 2s --precondition steady",
];

fn program() -> String {
    std::env::var("SSDKIT").unwrap_or_else(|_| env!("CARGO_BIN_EXE_ssdkit").into())
}

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// A folder for lines.
fn make_folder(at: &Path) {
    for line in FOLDER {
        let line = line.strip_prefix('!').map_or_else(|| format!("\"$0\" {line}"), str::to_string);
        let shell = Command::new("sh").args(["-ec", &line, &program()]).current_dir(at).output();
        let out = shell.unwrap();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// The words as a shell takes them.
fn quoted(line: &[String]) -> String {
    let quote = |word: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+%".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{word}'"),
        }
    };
    line.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// How a line ended.
struct Ended {
    status: ExitStatus,
    hung: bool,
    took: Duration,
    /// How long its threads waited for a processor, all together.
    starved: Duration,
    out: String,
    err: String,
}

/// How long the threads of a process have waited for a processor.
fn starved(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waited = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(waited).sum())
}

/// Runs a line in a folder, with less than all memory.
fn run(at: &Path, line: &[String]) -> Ended {
    let (out, err) = (at.join("out"), at.join("err"));
    let limit = format!("ulimit -v {SPACE_KIB}; ulimit -c 0; exec \"$0\" \"$@\"");
    let began = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", &limit, &program()])
        .args(line)
        .current_dir(at)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let serves = line[0] == "serve";
    let (mut hung, mut told, mut most_starved) = (false, false, Duration::ZERO);
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        most_starved = most_starved.max(starved(child.id()));
        let ready = serves && fs::metadata(&out).unwrap().len() > 0;
        if ready && !told {
            told = true;
            signal(&child, Signal::TERM);
        }
        if began.elapsed() > PATIENCE + most_starved {
            hung = true;
            signal(&child, Signal::KILL);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let took = began.elapsed();
    let text = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    Ended { status, hung, took, starved: most_starved, out: text(&out), err: text(&err) }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    // It may have ended just now.
    let _ = kill_process(pid, signal);
}

/// The value of an option that was given.
fn given<'a>(line: &'a [String], option: &str) -> Option<&'a str> {
    let at = line.iter().position(|word| word == option)?;
    line.get(at + 1).map(String::as_str)
}

/// What is wrong with how a line ended, if anything is.
fn judge(line: &[String], ended: &Ended) -> Result<(), String> {
    let Ended { status, hung, out, err, .. } = ended;
    if *hung {
        return if is_deep(line) { Ok(()) } else { Err("hangs".into()) };
    }
    let Some(code) = status.code() else { return Err(format!("{status}")) };
    if !(0..=2).contains(&code) || err.contains("panicked at") {
        return Err(format!("exit code {code}"));
    }
    if code != 0 && err.trim().is_empty() {
        return Err(format!("exit code {code} without a word"));
    }
    if code == 0 && line.iter().any(|word| word == "--json") && line[0] != "--version" {
        let values = serde_json::Deserializer::from_str(out).into_iter::<Value>();
        let values: Result<Vec<Value>, _> = values.collect();
        match values {
            Err(e) => return Err(format!("no JSON: {e}")),
            Ok(values) if values.is_empty() => return Err("no JSON at all".into()),
            Ok(_) => {}
        }
    }
    let made_wrong = line.iter().any(|word| word.contains("medium:"));
    let is_wrong = err.contains(" holds ") || err.contains("torn at sector");
    if code == 1 && is_wrong && !made_wrong && line.iter().any(|word| word == "--verify") {
        return Err("wrong data".into());
    }
    is_in_time(line, ended)
}

/// Whether the kernel may have so much of a run that it takes the disk seconds:
/// what it took it cannot be made to give back.
fn is_deep(line: &[String]) -> bool {
    let number = |option| given(line, option).and_then(|text| text.parse::<u64>().ok());
    let depth = number("--qd").unwrap_or(1).saturating_mul(number("--threads").unwrap_or(1));
    let depth = if given(line, "--rate").is_some() { u64::MAX } else { depth };
    let is_large = given(line, "--bs").is_some_and(|bs| bs.ends_with('M') || bs == "128k");
    let drive = line.get(1).map_or("", String::as_str);
    drive.starts_with("./disk.img") && (depth >= 256 || depth >= 32 && is_large)
}

/// Whether a run ended at its `--max-time`, as far as it had a processor.
fn is_in_time(line: &[String], ended: &Ended) -> Result<(), String> {
    let limit = match given(line, "--max-time") {
        Some("1s") => Duration::from_secs(1),
        Some("2s") => Duration::from_secs(2),
        _ => return Ok(()),
    };
    if is_deep(line) {
        return Ok(());
    }
    let late = ended.took.saturating_sub(limit + ended.starved);
    if late <= LATE {
        return Ok(());
    }
    let (took, starved) = (ended.took, ended.starved);
    Err(format!("took {took:?} of {limit:?}, {starved:?} of it without a processor"))
}

/// Runs a line and judges it; one that was late has another chance.
fn attempt(at: &Path, line: &[String]) -> Result<(i32, Duration), String> {
    let mut verdict = Ok(());
    for _ in 0..2 {
        let ended = run(at, line);
        for made in ["c.ssd", "d.ssd", "new.ssd", "new.trace", "n.sock", "r.sock"] {
            let _ = fs::remove_file(at.join(made));
        }
        fs::File::create(at.join("disk.img")).unwrap().set_len(16 << 20).unwrap();
        let (code, took) = (ended.status.code().unwrap_or(-1), ended.took);
        verdict = judge(line, &ended).map_err(|what| (what, ended));
        match &verdict {
            Err((what, _)) if what.starts_with("took ") => continue,
            Err(_) => break,
            Ok(()) => return Ok((code, took)),
        }
    }
    let (what, ended) = verdict.expect_err("it was seen");
    let tail = |text: &str| {
        let from = text.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
        text[from..].to_string()
    };
    Err(format!("{what}\n{}{}", tail(&ended.out), tail(&ended.err)))
}

/// Runs so many lines of a seed, on as many threads as there are processors.
/// Gives those that failed.
fn run_all(lines: &[(u64, Vec<String>)]) -> Vec<String> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let codes = [const { AtomicU64::new(0) }; 3];
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get()).min(4);
    let threads = number("LINES_JOBS", processors as u64);
    let slow = number("LINES_STEP", 0) > 0;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let folder = tempfile::tempdir().unwrap();
                make_folder(folder.path());
                while let Some((number, line)) =
                    lines.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    match attempt(folder.path(), line) {
                        Ok((code, took)) => {
                            codes[code as usize].fetch_add(1, Ordering::Relaxed);
                            if slow && took > Duration::from_secs(2) {
                                eprintln!("{number}: {took:?}: {}", quoted(line));
                            }
                        }
                        Err(what) => {
                            eprintln!("line {number} fails: {what}\n  ssdkit {}", quoted(line));
                            failed.lock().unwrap().push(quoted(line));
                            // It may have left anything.
                            fs::read_dir(folder.path()).unwrap().flatten().for_each(|entry| {
                                let _ = fs::remove_file(entry.path());
                            });
                            make_folder(folder.path());
                        }
                    }
                }
            });
        }
    });
    eprintln!("{} lines ended with 0, 1, 2: {codes:?}", lines.len());
    failed.into_inner().unwrap()
}

fn check(lines: &[(u64, Vec<String>)]) {
    let failed = run_all(lines);
    let setup: Vec<String> = FOLDER
        .iter()
        .map(|line| line.strip_prefix('!').map_or(format!("ssdkit {line}"), str::to_string))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} lines failed, in a folder of\n{}\n{}",
        failed.len(),
        lines.len(),
        setup.join("\n"),
        failed.iter().map(|line| format!("ssdkit {line}")).collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn whatever_is_typed_the_program_ends_in_order() {
    let (count, seed) = (number("LINES", LINES), number("LINES_SEED", 1));
    let from = number("LINES_FROM", 0);
    let lines = (from..from + count).map(|number| (number, Draw::line(seed, number)));
    check(&lines.collect::<Vec<_>>());
}

#[test]
fn what_failed_once_does_not_again() {
    let words = |line: &&str| line.split_whitespace().map(str::to_string).collect();
    let lines: Vec<_> = (0..).zip(ONCE.iter().map(words)).collect();
    check(&lines);
}
