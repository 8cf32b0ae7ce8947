//! The same load on several cores at once: one thread a core, pinned, each
//! with a way of its own into what is measured.
//!
//! Guarantees: all threads begin together and are counted over the same time;
//! a thread goes on serving the others until everything has come back. The
//! clock is read once in [`TURN`] requests, or, where latencies are wanted,
//! at each. May fail: the system has no such core or no thread for us, there is
//! no memory, or a request fails.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use device::realtime::pin;
use measure::Histogram;
use port::{BlockDone, BlockReq, Port, Shape, Time};
use workload::{Tight, TightOptions};

use drive::error::Error;
use load::threads::run_all;

/// Requests between two looks at the clock.
const TURN: usize = 32;
/// Turns without a completion between two looks at the clock.
const IDLE: usize = 64;

/// A latency that the thesis counts as long, in ns: 1 ms.
pub const LONG: u64 = 1_000_000;

/// A port of block requests.
pub trait Blocks: Port<Cmd = BlockReq, Done = BlockDone> {}
impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Blocks for P {}

/// The cores that this process may use, by number.
pub fn cores() -> Result<Vec<usize>, Error> {
    let set = rustix::thread::sched_getaffinity(None).map_err(std::io::Error::from)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// What each thread does, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The loop of each core; its seed is that of the first.
    pub load: TightOptions,
    /// Not counted, in ns.
    pub ramp: u64,
    /// Counted, in ns.
    pub time: u64,
}

/// What all threads together came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Requests a second.
    pub iops: f64,
    /// With one request outstanding: how long each took, in ns.
    pub latency: Histogram,
    /// Of these, how many took longer than [`LONG`].
    pub long: u64,
    /// How much of their cores' time nobody else took, 0 to 1.
    pub share: Option<f64>,
}

impl Ran {
    /// The mean time of a request in ns.
    pub fn mean(&self) -> f64 {
        self.latency.mean().unwrap_or(f64::NAN)
    }
}

/// What one thread came to.
struct One {
    iops: f64,
    latency: Histogram,
    long: u64,
    /// How long it waited for its processor, in ns, if the system says.
    waited: Option<u64>,
}

/// Runs `work` over each of `ports`, on a core of `on` each. Whoever finds
/// nothing calls `idle`.
pub fn run<P: Blocks + Send>(
    ports: Vec<P>,
    on: &[usize],
    shape: &Shape,
    work: Work,
    idle: impl Fn(&mut P) + Sync,
) -> Result<Ran, Error> {
    let idle = &idle;
    let part = |port| -> Part<'_> { Box::new(move |thread| thread.run(port, shape, idle)) };
    run_parts(ports.into_iter().map(part).collect(), on, work)
}

/// What one thread does, whatever the type of its port.
type Part<'a> = Box<dyn FnOnce(&Thread<'_>) -> Result<One, Error> + Send + 'a>;

fn run_parts<'a>(parts: Vec<Part<'a>>, on: &[usize], work: Work) -> Result<Ran, Error> {
    let n = parts.len();
    let on = on.get(..n).ok_or_else(|| Error::Usage(format!("there are fewer than {n} cores")))?;
    let (barrier, left, start) = (&Barrier::new(n), &AtomicUsize::new(n), Instant::now());
    let before = stolen(on);
    let one = |(number, part): (usize, Part<'a>)| {
        let core = on[number];
        let thread = Thread { barrier, left, start, work, number, core };
        move || part(&thread)
    };
    let all = run_all(parts.into_iter().enumerate().map(one))?;
    let all = all.into_iter().collect::<Result<Vec<One>, Error>>()?;
    let wall = start.elapsed().as_nanos() as f64 * n as f64;
    let waited: Option<u64> = all.iter().map(|one| one.waited).sum();
    let stolen = before.zip(stolen(on)).map(|(before, after)| (after - before) * 1e9);
    let others = waited.zip(stolen).map(|(waited, stolen)| waited as f64 + stolen);
    let mut latency = Histogram::new();
    all.iter().for_each(|one| latency.merge(&one.latency));
    let share = others.map(|others| 1.0 - others.max(0.0) / wall);
    let (iops, long) = all.iter().fold((0.0, 0), |(i, l), one| (i + one.iops, l + one.long));
    Ok(Ran { iops, latency, long, share })
}

/// One of the threads.
struct Thread<'a> {
    barrier: &'a Barrier,
    /// Threads whose requests are not all back.
    left: &'a AtomicUsize,
    start: Instant,
    work: Work,
    number: usize,
    /// Where it runs.
    core: usize,
}

impl Thread<'_> {
    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn run<P: Blocks>(
        &self,
        mut port: P,
        shape: &Shape,
        idle: &impl Fn(&mut P),
    ) -> Result<One, Error> {
        let pinned = pin(self.core);
        let began = waited();
        let load =
            TightOptions { seed: self.work.load.seed + self.number as u64, ..self.work.load };
        let tight = Tight::new(shape, load);
        // Whatever fails, the others do not wait for this one.
        let here = Here(self.left);
        self.barrier.wait();
        match (pinned, tight) {
            (Ok(()), Ok(mut tight)) => {
                let mut one = self.count(&mut tight, &mut port, idle);
                self.settle(&mut tight, &mut port, here);
                one.waited = began.zip(waited()).map(|(began, ended)| ended - began);
                match tight.errors() {
                    0 => Ok(one),
                    n => Err(Error::Failed(format!("{n} requests failed"))),
                }
            }
            (Err(e), _) => Err(Error::Failed(format!("cannot run on core {}: {e}", self.core))),
            (_, Err(e)) => Err(e.into()),
        }
    }

    /// The load: first what is not counted, then what is.
    fn count<P: Blocks>(&self, tight: &mut Tight, port: &mut P, idle: &impl Fn(&mut P)) -> One {
        let now = self.now();
        self.until((now, now + self.work.ramp), tight, port, idle, None);
        let (began, before) = (self.now(), tight.completed());
        let (mut latency, mut long) = (Histogram::new(), 0);
        let alone = (self.work.load.depth == 1).then_some((&mut latency, &mut long));
        self.until((began, began + self.work.time), tight, port, idle, alone);
        let iops = (tight.completed() - before) as f64 * 1e9 / self.now().since(began) as f64;
        One { iops, latency, long, waited: None }
    }

    /// From a time to another. Goes on until something has completed: a thread
    /// that stood still all the time has a low rate, but it has one.
    #[inline(always)]
    fn until<P: Blocks>(
        &self,
        (mut now, end): (Time, Time),
        tight: &mut Tight,
        port: &mut P,
        idle: &impl Fn(&mut P),
        mut alone: Option<(&mut Histogram, &mut u64)>,
    ) {
        let each = if alone.is_some() { 1 } else { TURN };
        let (mut last, before) = (now, tight.completed());
        while now < end || tight.completed() == before {
            let (mut done, mut turns) = (0, 0);
            while done < each && turns < IDLE {
                let n = tight.turn(now, port);
                if n == 0 && tight.outside() > 0 {
                    idle(port);
                }
                done += n;
                turns += 1;
            }
            now = self.now();
            if let Some((latency, long)) = &mut alone
                && done > 0
            {
                let took = now.since(last);
                latency.record(took);
                **long += u64::from(took > LONG);
                last = now;
            }
        }
    }

    /// Takes back what is outside, and serves until the others have theirs.
    fn settle<P: Blocks>(&self, tight: &mut Tight, port: &mut P, here: Here<'_>) {
        while tight.outside() > 0 {
            tight.settle(self.now(), port);
        }
        drop(here);
        while self.left.load(Ordering::Acquire) > 0 {
            tight.settle(self.now(), port);
        }
    }
}

/// A thread whose requests are not all back.
struct Here<'a>(&'a AtomicUsize);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long this thread was ready to run and did not, so far, in ns: exact,
/// where ticks of 10 ms would say nothing of a short run. `None` where the
/// system does not say.
fn waited() -> Option<u64> {
    waited_of(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// From the time on a processor, that waiting for one, and the turns.
pub fn waited_of(schedstat: &str) -> Option<u64> {
    let mut fields = schedstat.split_whitespace().map_while(|f| f.parse::<u64>().ok());
    let (_, waited) = (fields.next()?, fields.next()?);
    // A system that does not count says that it never had a turn.
    fields.next().filter(|&turns| turns > 0).map(|_| waited)
}

/// Seconds that others took these cores from this machine so far; `None` where
/// the system does not say.
pub fn stolen(on: &[usize]) -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let of = |core: &usize| stolen_ticks(&stat, *core).map(|n| n as f64 / ticks);
    on.iter().map(of).sum()
}

/// A core's ticks that a machine beside this one had.
fn stolen_ticks(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use blkmq::Driver;
    use blkmq::driver::null::{Null, NullOptions};
    use port::BlockOp;

    use super::*;

    fn ran(depth: usize, cores: usize) -> Result<Ran, Error> {
        ran_for(2_000_000, depth, cores)
    }

    fn ran_for(time: u64, depth: usize, cores: usize) -> Result<Ran, Error> {
        let options = NullOptions { submit_queues: cores, ..NullOptions::default() };
        let null = Null::new(options).unwrap();
        let load = TightOptions { op: BlockOp::Read, len: 512, depth, batch: 1, seed: 1 };
        // A drive that keeps nothing takes whole blocks.
        let load = TightOptions { len: 4096, ..load };
        let work = Work { load, ramp: 100_000, time };
        run(null.open(), &super::cores()?, &null.shape(), work, |_| ())
    }

    /// A core that is taken away for a while makes both figures something
    /// else, so some tries may go wrong; that all do is a wrong figure.
    #[test]
    fn it_counts_on_one_core() {
        let mut seen = Vec::new();
        for _ in 0..500 {
            let (deep, alone) = (ran(32, 1).unwrap(), ran(1, 1).unwrap());
            assert!(deep.latency.count() == 0 && alone.latency.count() > 0);
            let (mean, by_rate) = (alone.mean(), 1e9 / alone.iops);
            if deep.iops > 1e4 && (mean / by_rate - 1.0).abs() < 0.5 {
                return;
            }
            seen.push((deep.iops, mean, by_rate));
        }
        panic!("{seen:?}");
    }

    /// As one whose core was taken away for all of the time.
    #[test]
    fn who_had_no_time_has_figures() {
        let (deep, alone) = (ran_for(0, 32, 1).unwrap(), ran_for(0, 1, 1).unwrap());
        assert!(deep.iops > 0.0 && alone.mean().is_finite(), "{deep:?} {alone:?}");
    }

    #[test]
    fn more_threads_than_cores_are_refused() {
        let all = super::cores().unwrap().len();
        assert_eq!(ran(1, all + 1).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn ticks_are_read() {
        let stat = "cpu  9 9 9 9\ncpu0 1 2 3 100 50 4 5 6 7 8\ncpu1 1 1 1\nintr 5\n";
        assert_eq!(stolen_ticks(stat, 0), Some(6));
        assert_eq!((stolen_ticks(stat, 1), stolen_ticks(stat, 2)), (None, None));
        assert_eq!(waited_of("1200 34 5\n"), Some(34));
        assert_eq!((waited_of("0 0 0\n"), waited_of("")), (None, None));
    }
}
