//! Writes to shared cache lines, counted.
//!
//! What limits a block layer on many cores is not seen on few: each write to a
//! line that another core reads or writes costs as much as the machine is
//! large. So they are counted. This program runs itself under valgrind's tool
//! lackey, which writes down each access of each thread; a thread's accesses
//! count from its mark at the begin of its requests to its mark at the end. A
//! line is shared if two threads touched it, both between their marks.
//!
//! Guarantees: the counts are of the code that was built, its real data
//! structures at their real places. valgrind runs one thread at a time, and
//! here they take turns after each request; so a lock is never found taken,
//! and what waiting for one writes is not in the counts: they are the least
//! that there can be.
//!
//! [`count`] fails where there is no valgrind, or this process is not the
//! program `ssdkit`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};

use blkmq::Topology;
use port::{BlockOp, Time};
use workload::{Tight, TightOptions};

use super::Options;
use super::layers::{DEPTH, Layer, SHAPE, each_kind};
use super::threads::Blocks;
use drive::error::Error;
use load::threads::{no_thread, run_all};

/// Bytes of a cache line.
const LINE: u64 = 64;
/// The most cores.
const MOST: usize = 32;

/// Where threads write to say where they are: a line for each.
#[repr(align(4096))]
struct Marks([[AtomicU8; LINE as usize]; MOST]);

static MARKS: Marks = Marks([const { [const { AtomicU8::new(0) }; LINE as usize] }; MOST]);

/// What a thread's mark says, by its place in the line.
const BEGINS: usize = 0;
const ENDS: usize = 1;

fn mark(core: usize, place: usize) {
    MARKS.0[core][place].store(1, Ordering::SeqCst);
}

/// What is run and watched: `LAYER,CORES,SOCKETS,REQUESTS` on the command
/// line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched {
    /// The block layer.
    pub layer: Layer,
    /// Cores and sockets.
    pub topology: Topology,
    /// Requests of each core.
    pub requests: u64,
}

impl Watched {
    fn parse(text: &str) -> Result<Watched, Error> {
        let wrong = || Error::Usage(format!("`{text}` is not LAYER,CORES,SOCKETS,REQUESTS"));
        let fields: Vec<&str> = text.split(',').collect();
        let [layer, cores, sockets, requests] = fields[..] else { return Err(wrong()) };
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let (cores, sockets) = (number(cores)?, number(sockets)?);
        let topology = Topology::new(cores, sockets).map_err(|_| wrong())?;
        if cores > MOST {
            return Err(wrong());
        }
        Ok(Watched { layer: Layer::named(layer)?, topology, requests: number(requests)? as u64 })
    }

    /// As it is on the command line.
    pub fn text(&self) -> String {
        let Watched { layer, topology, requests } = self;
        format!("{},{},{},{requests}", layer.name(), topology.cores(), topology.sockets())
    }
}

/// The watched side: says where the marks are, waits for a word, and runs.
pub fn be_watched(case: &str, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let watched = Watched::parse(case)?;
    writeln!(out, "{:x}", &raw const MARKS as usize)?;
    out.flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    each_kind!(watched.layer.ports(watched.topology)?, ports => work(ports, watched, options.seed))
}

/// Each core's requests, on a thread each.
fn work<P: Blocks + Send>(ports: Vec<P>, watched: Watched, seed: u64) -> Result<(), Error> {
    let load = TightOptions { op: BlockOp::Read, len: 512, depth: DEPTH, batch: 1, seed };
    let (barrier, left) = (&Barrier::new(ports.len()), &AtomicUsize::new(ports.len()));
    let mut loops = Vec::new();
    for _ in &ports {
        loops.push(Tight::new(&SHAPE, load)?);
    }
    let one = |(core, (mut port, mut tight)): (usize, (P, Tight))| {
        move || {
            let mut now = 0;
            let mut turns = |tight: &mut Tight, until: u64| {
                while tight.completed() < until {
                    now += 100;
                    tight.turn(Time(now), &mut port);
                    std::thread::yield_now();
                }
            };
            // First touches are not what comes with each request.
            turns(&mut tight, 4 * DEPTH as u64);
            barrier.wait();
            let until = tight.completed() + watched.requests;
            mark(core, BEGINS);
            turns(&mut tight, until);
            mark(core, ENDS);
            while tight.outside() > 0 {
                tight.settle(Time(now), &mut port);
                std::thread::yield_now();
            }
            left.fetch_sub(1, Ordering::AcqRel);
            while left.load(Ordering::Acquire) > 0 {
                tight.settle(Time(now), &mut port);
                std::thread::yield_now();
            }
        }
    };
    run_all(ports.into_iter().zip(loops).enumerate().map(one))?;
    Ok(())
}

/// Counts the writes to shared lines of all cores' requests, a request. The
/// error is why it could not.
pub fn count(watched: Watched) -> Result<f64, String> {
    let program = program()?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--trace-sched=yes", "--fair-sched=yes"])
        .args(["--error-exitcode=9"])
        .arg(program)
        .args(["study", "blkmq", "--watched", &watched.text()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("no valgrind here: {e}"))?;
    let counted = read(&mut child);
    if counted.is_err() {
        // It may be waiting for somebody to read what it says.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| format!("valgrind got lost: {e}"))?;
    let (counted, threads) = counted?;
    if !status.success() || threads != watched.topology.cores() {
        return Err(format!("valgrind ended with {status} after {threads} threads"));
    }
    Ok(counted as f64 / (watched.requests as f64 * threads as f64))
}

/// This program, if it is the one that can be watched.
pub fn program() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| format!("no path to this program: {e}"))?;
    match program.file_stem() {
        Some(name) if name == "ssdkit" => Ok(program),
        name => Err(format!(
            "only a program of the name ssdkit can be watched: neither what uses its library, \
             nor {}",
            name.unwrap_or_default().display()
        )),
    }
}

/// Reads all that valgrind writes. Gives writes to shared lines, and threads
/// that ran from mark to mark.
fn read(child: &mut Child) -> Result<(u64, usize), String> {
    let gone = || "valgrind has no pipes".to_owned();
    let mut stdin = child.stdin.take().ok_or_else(gone)?;
    let stdout = child.stdout.take().ok_or_else(gone)?;
    let stderr = child.stderr.take().ok_or_else(gone)?;
    let marks = OnceLock::new();
    std::thread::scope(|scope| {
        let marks = &marks;
        let pass_on = move || {
            let mut line = String::new();
            let mut stdout = BufReader::new(stdout);
            let read = stdout.read_line(&mut line);
            if let (Ok(_), Ok(at)) = (read, u64::from_str_radix(line.trim(), 16)) {
                let _ = marks.set(at);
                // If it is gone, its log ends and that is seen.
                let _ = stdin.write_all(b"go\n");
            }
            let _ = stdout.read_to_end(&mut Vec::new());
        };
        let spawned = std::thread::Builder::new().spawn_scoped(scope, pass_on);
        spawned.map_err(|e| no_thread(&e).to_string())?;
        let mut log = Log::default();
        let mut stderr = BufReader::with_capacity(1 << 20, stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            match stderr.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(log.shared()),
                Ok(_) => log.line(&line, marks.get().copied()),
                Err(e) => return Err(format!("valgrind's log ended: {e}")),
            }
        }
    })
}

/// What was seen of one line of memory.
#[derive(Default)]
struct Touched {
    /// A bit for each thread.
    by: u64,
    /// Between their marks.
    writes: u64,
}

/// Valgrind's log, read.
#[derive(Default)]
struct Log {
    /// The thread that runs now.
    thread: u32,
    /// By thread: its place among those that marked a begin, and whether it is
    /// between its marks.
    threads: HashMap<u32, (u32, bool)>,
    ended: usize,
    lines: HashMap<u64, Touched>,
}

impl Log {
    /// Takes a line of the log. `marks` is where the marks are.
    fn line(&mut self, line: &[u8], marks: Option<u64>) {
        match line {
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => {
                if let Some((at, bytes)) = access(rest) {
                    self.access(*kind != b'L', at, bytes, marks);
                }
            }
            [b'I', ..] => {}
            _ => {
                if let Some(thread) = scheduled(line) {
                    self.thread = thread;
                }
            }
        }
    }

    fn access(&mut self, writes: bool, at: u64, bytes: u64, marks: Option<u64>) {
        if writes
            && let Some(marks) = marks
            && (marks..marks + LINE * MOST as u64).contains(&at)
        {
            self.mark((at - marks) % LINE);
            return;
        }
        let Some(&(place, true)) = self.threads.get(&self.thread) else { return };
        for line in at / LINE..=(at + bytes.max(1) - 1) / LINE {
            let touched = self.lines.entry(line).or_default();
            touched.by |= 1 << place;
            touched.writes += u64::from(writes);
        }
    }

    fn mark(&mut self, what: u64) {
        let next = self.threads.len() as u32;
        if what == BEGINS as u64 {
            self.threads.insert(self.thread, (next, true));
        } else if let Some((_, inside)) = self.threads.get_mut(&self.thread) {
            *inside = false;
            self.ended += 1;
        }
    }

    /// Writes to lines that several touched, and threads that ended.
    fn shared(&self) -> (u64, usize) {
        let shared = self.lines.values().filter(|touched| touched.by.count_ones() > 1);
        (shared.map(|touched| touched.writes).sum(), self.ended)
    }
}

/// An access: `ADDRESS,BYTES`, the first in hexadecimal.
fn access(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (at, bytes) = text.split_once(',')?;
    Some((u64::from_str_radix(at, 16).ok()?, bytes.parse().ok()?))
}

/// The thread that got the processor, if that is what the line says:
/// `--PID--   SCHED[THREAD]:  acquired lock (...)`.
fn scheduled(line: &[u8]) -> Option<u32> {
    let (_, rest) = std::str::from_utf8(line).ok()?.split_once("SCHED[")?;
    let (thread, what) = rest.split_once("]:")?;
    what.contains("acquired lock").then(|| thread.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use blkmq::Spread;

    use super::*;

    fn counted(log: &str) -> (u64, usize) {
        let mut read = Log::default();
        log.lines().for_each(|line| read.line(format!("{line}\n").as_bytes(), Some(0x1000)));
        read.shared()
    }

    #[test]
    fn writes_to_lines_of_two_threads_are_counted() {
        let log = "\
--7--   SCHED[2]:  acquired lock (VG_(vg_yield))
 S 00002000,8
 S 00001000,1
I  00400000,3
 S 00002000,8
 S 00003000,8
--7--   SCHED[2]: releasing lock (VG_(vg_yield)) -> VgTs_Yielding
--7--   SCHED[3]:  acquired lock (VG_(vg_yield))
 S 00003000,8
 S 00001040,1
 L 00002008,4
 M 0000203f,2
 S 00004000,4
 S 00001041,1
 S 00002000,4
--7--   SCHED[2]:  acquired lock (VG_(vg_yield))
 S 00001001,1
";
        // Line 2000: one write of each. Line 2040 and 4000 are the second's
        // alone, 3000 the first's: the other's write came before its mark.
        assert_eq!(counted(log), (2, 2));
        assert_eq!(counted(""), (0, 0));
    }

    #[test]
    fn what_is_watched_is_named_and_read() {
        let topology = Topology::new(4, 2).unwrap();
        let layer = Layer::mq(Spread::PerCore, Spread::PerSocket);
        let watched = Watched { layer, topology, requests: 10 };
        assert_eq!(Watched::parse(&watched.text()).unwrap(), watched);
        for text in ["", "sq,1,1", "sq,1,2,1", "sq,33,1,1", "sq,x,1,1", "qs,1,1,1"] {
            assert_eq!(Watched::parse(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn the_watched_side_ends() {
        let topology = Topology::new(3, 1).unwrap();
        for layer in [Layer::Raw, Layer::Sq, Layer::mq(Spread::One, Spread::One)] {
            let ports = layer.ports(topology).unwrap();
            let watched = Watched { layer, topology, requests: 100 };
            each_kind!(ports, ports => work(ports, watched, 1)).unwrap();
        }
        assert!(count(Watched { layer: Layer::Sq, topology, requests: 1 }).is_err());
    }
}
