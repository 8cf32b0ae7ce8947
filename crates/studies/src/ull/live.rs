//! A live drive, one request at a time, by one of several ways to it.
//!
//! ```text
//!  bypass   load ─▶ queue pair ─▶ device thread            polled
//!  layer    load ─▶ blkmq ─▶ queue pair ─▶ device thread   polled, woken, or both
//!  socket   load ─▶ NBD client ─▶ kernel ─▶ NBD server ─▶ drive
//! ```
//!
//! The load's thread is on one core, and the drive's or the server's on another. The
//! device thread never sleeps: it is the hardware. A drive is made anew for each run,
//! and all of it is written before, in its own time.
//!
//! Fails when the system gives no thread or socket, a request fails, or somebody
//! stops it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use blkmq::driver::any::Any;
use blkmq::{Config, Topology, build};
use device::hosted::HostedOptions;
use device::realtime::{pin, process_cpu, thread_cpu};
use exports::SharedDrive;
use exports::nbd::{Export, Exports, ListenAddr, Server, StopHandle};
use hosting::hosted::HostedDriver;
use load::clocked::{Clocked, Ways};
use load::driver::{Driver, Virtual};
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::served::{Remote, Served};
use load::tally::Tally;
use load::watch::Watch;
use port::{Shape, Time};
use serde_json::json;
use waiting::Strategy;
use workload::{Order, Pattern};

use super::super::kernel_path::Stopping;
use super::super::lab::config;
use super::super::layers::refused;
use super::super::others::Others;
use super::super::queue_pair::{LINGER, QueuePair};
use super::super::{Case, Lab, Runs, Turns};
use drive::error::Error;
use drive::lent::Lent;
use drive::spec::NbdAddress;
use drive::stack;
use drive::whole::{Boxed, Drive};

/// Entries of a queue.
const ENTRIES: usize = 8;

/// How requests get to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Straight into its queues, polled.
    Bypass,
    /// Through the block layer, with this wait for completions.
    Layer(Strategy),
    /// Through a Unix socket, to a server that has the drive.
    Socket,
    /// The same over TCP, on this machine's own address.
    Tcp,
}

impl Way {
    /// In a few words.
    fn name(self) -> String {
        match self {
            Way::Bypass => "bypass, polled".into(),
            Way::Layer(strategy) => format!("block layer, {}", strategy.name()),
            Way::Socket => "NBD over a Unix socket".into(),
            Way::Tcp => "NBD over TCP on 127.0.0.1".into(),
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Reads, or writes.
    pub reads: bool,
    /// At random, or in sequence.
    pub random: bool,
    /// Bytes each.
    pub bs: u64,
}

/// The four patterns of the paper, of 4 KiB.
pub const PATTERNS: [Asked; 4] = [
    Asked { reads: true, random: false, bs: 4096 },
    Asked { reads: true, random: true, bs: 4096 },
    Asked { reads: false, random: false, bs: 4096 },
    Asked { reads: false, random: true, bs: 4096 },
];

impl Asked {
    /// Random reads of so many bytes.
    pub fn random_reads(bs: u64) -> Asked {
        Asked { reads: true, random: true, bs }
    }

    /// Its name, without its size.
    pub fn name(self) -> &'static str {
        match (self.reads, self.random) {
            (true, false) => "reads in sequence",
            (true, true) => "random reads",
            (false, false) => "writes in sequence",
            (false, true) => "random writes",
        }
    }

    fn pattern(self, bytes: u64) -> Pattern {
        let order = if self.random { Order::Uniform } else { Order::Sequential };
        let percent = if self.reads { 100 } else { 0 };
        Pattern { bs: self.bs, order, ..Pattern::uniform(bytes, percent) }
    }
}

/// One thing to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The drive, without its `mem:`.
    pub drive: &'static str,
    /// How requests get there.
    pub way: Way,
    /// What is asked.
    pub asked: Asked,
}

/// What one run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// Mean latency, in us.
    pub mean: f64,
    /// The median, in us.
    pub median: f64,
    /// The 99.9th percentile, in us.
    pub nines: f64,
    /// Processor time of the load's thread, in percent of a core.
    pub cpu: f64,
    /// That of all other threads: of the device, or of the server.
    pub other_cpu: f64,
    /// How often the load's thread slept, a request.
    pub sleeps: f64,
}

/// Where and for how long all runs are.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The load's core, and the drive's.
    cores: [usize; 2],
    /// Counted, in ns.
    pub time: u64,
    seed: u64,
    /// Where a socket is made.
    dir: PathBuf,
}

impl Stage {
    /// As asked for; none where there are no two cores. Fails, too, where no socket can be
    /// made, which is better known before minutes of measuring than after.
    pub fn new(lab: &Lab) -> Result<Option<Stage>, Error> {
        let (cores, _) = lab.options.topology()?;
        let [host, device, ..] = cores[..] else { return Ok(None) };
        let (time, seed) = (lab.options.pick(150_000_000, 30_000_000), lab.options.seed);
        let stage = Stage { cores: [host, device], time, seed, dir: lab.options.dir() };
        // It goes again at once.
        let socket = Server::bind(&stage.address(Way::Socket));
        let dir = stage.dir.display();
        socket.map_err(|e| Error::Usage(format!("--dir {dir}, for a socket: {e}")))?;
        Ok(Some(stage))
    }

    /// Measures all of `jobs` by turns.
    pub fn all(&self, lab: &mut Lab, jobs: &[Job]) -> Result<Vec<Turns<Ran>>, Error> {
        let cases: Vec<Case> = jobs.iter().map(|job| self.case(job)).collect();
        let watch = lab.watch.helper();
        lab.by_turns(&cases, |i| self.once(&jobs[i], watch.helper()))
    }

    fn case(&self, job: &Job) -> Case {
        let Job { drive, way, asked } = job;
        let (name, way) = (asked.name(), way.name());
        let profile = drive.split(',').next().unwrap_or_default();
        let (kib, ms) = (asked.bs >> 10, self.time / 1_000_000);
        Case {
            what: format!("live {profile} {name} {kib}K"),
            command: format!("{name} of {kib} KiB, depth 1, {ms} ms, live mem:{drive}, {way}"),
            configuration: json!({
                "drive": drive, "way": way, "asked": name, "bs": asked.bs, "depth": 1,
                "cores": self.cores,
            }),
        }
    }

    fn once(&self, job: &Job, mut watch: Watch) -> Result<(Ran, Option<f64>), Error> {
        let (drive, ready) = self.prepared(job)?;
        let run = || {
            pinned(self.cores[0])?;
            match job.way {
                Way::Bypass => self.bypassing(job, drive, ready, &mut watch),
                Way::Layer(strategy) => self.layered(job, strategy, drive, ready, &mut watch),
                Way::Socket | Way::Tcp => self.served(job, drive, ready, &mut watch),
            }
        };
        let died = |_| Err(Error::Failed("the thread of a load died: report it".into()));
        thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(died))
    }

    /// A drive that was written, and its time.
    fn prepared(&self, job: &Job) -> Result<(Boxed, Time), Error> {
        let config = config(&format!("mem:{},size=64M,store=none", job.drive))?;
        let drive = stack::build(&config, self.seed)?;
        let shape = drive.shape();
        let mut driver = Virtual::new(drive);
        let mut watch = Watch::quiet();
        Runner::new(&mut watch).precondition(&mut driver, &shape, self.seed)?;
        let (mut drive, ready) = driver.into_drive();
        drive.set_on_a_clock(true);
        Ok((drive, ready))
    }

    fn load(&self, job: &Job, shape: &Shape) -> Result<Load, Error> {
        Load::new(shape, &job.asked.pattern(shape.bytes), Pace::Closed { depth: 1 }, 1, self.seed)
    }

    fn bypassing(
        &self,
        job: &Job,
        drive: Boxed,
        ready: Time,
        watch: &mut Watch,
    ) -> Result<(Ran, Option<f64>), Error> {
        let mut load = self.load(job, &drive.shape())?;
        let (lent, _owner) = Lent::new(drive, ready);
        self.polled(&mut load, lent, watch)
    }

    /// A drive behind a queue pair that is polled. Its thread ends, whatever happens.
    fn polled(
        &self,
        load: &mut Load,
        drive: Lent,
        watch: &mut Watch,
    ) -> Result<(Ran, Option<f64>), Error> {
        let mut pair = QueuePair::start(drive, ENTRIES, Some(self.cores[1]))?;
        let ran = self.measured(&mut pair, load, watch);
        match ran.is_ok() {
            true => drop(pair.stop()),
            false => pair.leave(),
        }
        ran
    }

    fn layered(
        &self,
        job: &Job,
        strategy: Strategy,
        drive: Boxed,
        ready: Time,
        watch: &mut Watch,
    ) -> Result<(Ran, Option<f64>), Error> {
        let shape = drive.shape();
        let mut load = self.load(job, &shape)?;
        let (lent, _owner) = Lent::new(drive, ready);
        let core = Some(self.cores[1]);
        let options =
            HostedOptions { depth: ENTRIES, linger: LINGER, core, ..HostedOptions::default() };
        let failed = |e: device::hosted::HostedError| Error::Failed(e.to_string());
        let (driver, hosted) = HostedDriver::start(lent, shape, options).map_err(failed)?;
        let one = Config::new(Topology::new(1, 1).map_err(refused)?);
        let mut context = build(&one, Any(driver)).map_err(refused)?.0.remove(0);
        let (tells_when, meanwhile, figures) = (true, true, Vec::new());
        let ways = Ways { tells_when, strategy, plug: None, meanwhile, figures };
        let mut driver = Clocked::new(&mut context, hosted.clock(), load.slots(), ways);
        let ran = self.measured(&mut driver, &mut load, watch);
        drop(context);
        drop(hosted.leave());
        ran
    }

    fn served(
        &self,
        job: &Job,
        drive: Boxed,
        ready: Time,
        watch: &mut Watch,
    ) -> Result<(Ran, Option<f64>), Error> {
        let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
        let export = Export::even_without_data(drive.shape()).map_err(|e| failed(&e))?;
        let export = Exports::new(export);
        let (lent, _owner) = Lent::new(drive, ready);
        let (shared, core) = (SharedDrive::new(lent), self.cores[1]);
        let server = Server::bind(&self.address(job.way)).map_err(|e| failed(&e))?;
        let address = server.addr().map_err(|e| failed(&e))?;
        let stop = StopHandle::new().map_err(|e| failed(&e))?;
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                // Those of its connections stay there, too.
                pinned(core)?;
                server.run(&export, &shared, &stop).map_err(|e| failed(&e))
            });
            let stopping = Stopping(&stop);
            let ran = Served::connect(&dialled(&address).into(), watch).and_then(|mut client| {
                if let ListenAddr::Unix(path) = &address {
                    // Nobody else is to come, and so nothing stays after a kill.
                    let _ = fs::remove_file(path);
                }
                // What it sends are bytes, whatever becomes of them.
                let mut load = self.load(job, &client.shape())?;
                let ran = self.measured(&mut client, &mut load, watch)?;
                client.close().map(|()| ran)
            });
            drop(stopping);
            let died = |_| Err(Error::Failed("the server died: report it".into()));
            let served = serving.join().unwrap_or_else(died);
            served.and(ran)
        })
    }

    /// Where a server listens.
    fn address(&self, way: Way) -> ListenAddr {
        match way {
            Way::Tcp => ListenAddr::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            _ => {
                let name = format!("ssdkit-ull-{}-{}", std::process::id(), self.seed);
                ListenAddr::Unix(self.dir.join(name))
            }
        }
    }

    /// The load on this thread, first a while that is not counted.
    fn measured(
        &self,
        driver: &mut dyn Driver,
        load: &mut Load,
        watch: &mut Watch,
    ) -> Result<(Ran, Option<f64>), Error> {
        let mut runner = Runner::new(watch);
        let plan = |ns, count| Plan { ramp: 0, until: Until::Time(ns), count };
        good(runner.run(driver, load, plan(self.time / 5, false))?)?;
        let others = Others::now(&self.cores);
        let (began, before) = (Instant::now(), [thread_cpu(), process_cpu(), slept()]);
        let tally = good(runner.run(driver, load, plan(self.time, true))?)?;
        let after = [thread_cpu(), process_cpu(), slept()];
        let wall = began.elapsed().as_nanos() as f64;
        let [cpu, all, slept] = [0, 1, 2].map(|i| (after[i] - before[i]) as f64);
        let latency = tally.all();
        let us = |p| latency.percentile(p).map_or(f64::NAN, |ns| ns as f64 / 1e3);
        let ran = Ran {
            mean: latency.mean().map_or(f64::NAN, |ns| ns / 1e3),
            median: us(50.0),
            nines: us(99.9),
            cpu: 100.0 * cpu / wall,
            other_cpu: 100.0 * (all - cpu) / wall,
            sleeps: slept / latency.count() as f64,
        };
        Ok((ran, others.share_since()))
    }
}

/// Keeps this thread on a core.
fn pinned(core: usize) -> Result<(), Error> {
    pin(core).map_err(|e| Error::Failed(format!("cannot run on core {core}: {e}")))
}

/// Where a client finds a server.
fn dialled(address: &ListenAddr) -> NbdAddress {
    match address {
        ListenAddr::Unix(path) => NbdAddress::Unix(path.display().to_string()),
        ListenAddr::Tcp(at) => NbdAddress::Tcp(at.ip().to_string(), at.port()),
    }
}

/// A tally of which nothing went wrong.
fn good(tally: Tally) -> Result<Tally, Error> {
    match tally.problem() {
        Some(what) => Err(Error::Failed(what)),
        None if tally.interrupted => Err(Error::Failed("stopped before its end".into())),
        None => Ok(tally),
    }
}

/// How often this thread gave its processor away by itself so far; 0 where the system
/// does not say.
fn slept() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The figures of `jobs`, which were measured.
pub struct Measured {
    jobs: Vec<Job>,
    turns: Vec<Turns<Ran>>,
}

impl Measured {
    /// Measures them. Where there are no two cores, nothing is.
    pub fn new(lab: &mut Lab, stage: Option<&Stage>, jobs: Vec<Job>) -> Result<Measured, Error> {
        let turns = match stage {
            Some(stage) => stage.all(lab, &jobs)?,
            None => Vec::new(),
        };
        Ok(Measured { jobs, turns })
    }

    /// What somebody made up.
    #[cfg(test)]
    pub fn made_up(jobs: Vec<Job>, ran: impl Fn(&Job) -> Ran) -> Measured {
        let turns = jobs.iter().map(|job| Turns::of(vec![ran(job)])).collect();
        Measured { jobs, turns }
    }

    /// A figure of a job.
    pub fn of(&self, drive: &'static str, way: Way, asked: Asked, figure: fn(&Ran) -> f64) -> Runs {
        let job = Job { drive, way, asked };
        let at = self.jobs.iter().position(|known| *known == job).expect("it was asked for");
        match self.turns.get(at) {
            Some(turns) => turns.runs(figure),
            None => {
                Runs::new(vec![]).voided("the drive has a thread of its own: it takes two cores")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way leads to the drive, in reads and in writes, and leaves nothing behind.
    #[test]
    fn all_ways_lead_to_the_drive() {
        let all = super::super::super::threads::cores().unwrap();
        let [host, device, ..] = all[..] else { return };
        let dir = tempfile::tempdir().unwrap();
        let cores = [host, device];
        let stage = Stage { cores, time: 2_000_000, seed: 1, dir: dir.path().into() };
        let layer = Strategy::ALL.map(Way::Layer);
        for way in layer.into_iter().chain([Way::Bypass, Way::Socket, Way::Tcp]) {
            for asked in PATTERNS {
                let job = Job { drive: "ull,controller=4800ns", way, asked };
                let (ran, share) = stage.once(&job, Watch::quiet()).unwrap();
                // No way is faster than the drive: 9.2 us of a write, less its link.
                assert!(ran.mean > 5.0 && ran.median > 5.0, "{job:?} {ran:?}");
                assert!(ran.cpu > 0.0 && ran.sleeps >= 0.0, "{job:?} {ran:?}");
                assert!(share.is_none_or(|share| share <= 1.0), "{share:?}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// A drive, and a load to it, of which somebody has enough at once.
    #[test]
    fn a_run_that_fails_leaves_no_thread() {
        let all = super::super::super::threads::cores().unwrap();
        let cores = [all[0], all[all.len() - 1]];
        let stage = Stage { cores, time: 2_000_000, seed: 1, dir: std::env::temp_dir() };
        let job = Job { drive: "ull", way: Way::Bypass, asked: PATTERNS[1] };
        let (drive, ready) = stage.prepared(&job).unwrap();
        let mut load = stage.load(&job, &drive.shape()).unwrap();
        let (lent, owner) = Lent::new(drive, ready);
        let mut stopped = Watch::until(std::time::Duration::ZERO);
        stage.polled(&mut load, lent, &mut stopped).unwrap_err();
        assert!(owner.take_back().is_ok(), "its thread has it still");
    }

    /// The client has nobody to talk to, and is told so by a closed door.
    #[test]
    fn a_server_that_gets_no_core_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let host = super::super::super::threads::cores().unwrap()[0];
        let cores = [host, usize::MAX];
        let stage = Stage { cores, time: 2_000_000, seed: 1, dir: dir.path().into() };
        for way in [Way::Socket, Way::Tcp] {
            let job = Job { drive: "ull", way, asked: PATTERNS[1] };
            let error = stage.once(&job, Watch::quiet()).unwrap_err().to_string();
            assert!(error.contains("cannot run on core"), "{error}");
        }
    }

    /// Before anything is measured.
    #[test]
    fn a_directory_that_takes_no_socket_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (sub, is_taken) in [("", true), ("none", false), (&"long".repeat(30)[..], false)] {
            let (dir, mut watch) = (dir.path().join(sub), Watch::quiet());
            if sub.len() > 9 {
                fs::create_dir(&dir).unwrap();
            }
            let options =
                super::super::super::Options { dir: Some(dir.clone()), ..Default::default() };
            match Stage::new(&Lab::new(&options, &mut watch)) {
                Ok(stage) => assert!(is_taken || stage.is_none(), "{}", dir.display()),
                Err(e) => assert!(!is_taken && e.exit_code() == 2, "{e}"),
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the long one");
    }

    #[test]
    fn without_two_cores_nothing_is_judged() {
        let job = Job { drive: "ull", way: Way::Bypass, asked: PATTERNS[0] };
        let (options, mut watch) = (super::super::super::Options::default(), Watch::quiet());
        let mut lab = Lab::new(&options, &mut watch);
        let none = Measured::new(&mut lab, None, vec![job]).unwrap();
        let runs = none.of(job.drive, job.way, job.asked, |ran| ran.mean);
        assert!(runs.void().unwrap().contains("two cores"));
    }

    #[test]
    fn a_thread_that_sleeps_has_slept() {
        let before = slept();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(slept() > before);
    }
}
