//! One run of YCSB over one store: loads, warms the cache, measures, checks; or
//! two, measured by turns. What the store is over is in [`super::stores`].
//!
//! The store is loaded in the order of insertion, which is none of the keys;
//! then the tree is opened anew with the cache that was asked for, and
//! operations of the workload are run uncounted until they have filled it
//! twice. In virtual time the host's own work takes no time: operations that
//! find their pages in memory take none, and throughput is that of drive and
//! depth alone. In real time the controller has a thread of its own, which
//! polls, and so does the host.
//!
//! By turns, both stores are loaded and warmed; then each in its turn does so
//! many operations while the other rests, and its drive sleeps. What the
//! machine gives them changes slower than that, so the ratio of two turns that
//! follow each other says more than that of two runs.
//!
//! A run that is stopped gives what it measured until then, and checks nothing.
//!
//! Fails when the drive cannot be, or is too small, and when an operation that
//! must not fail does; wrong data is counted, and told by [`Measured`].

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use btree::store::{Ticks, no_clock};
use btree::{Records, Store, StoreKind, Tree};
use device::realtime::{Clock, process_cpu, thread_cpu};
use port::Time;
use workload::ycsb::Ycsb;

use super::baton::{Baton, Runner};
use super::client::{All, Client, Fill, Kind, Source};
use super::controller::Published;
use super::measured::{Mark, Measured, TreeSize, Used};
use super::setup::Setup;
use drive::error::Error;
use load::threads::run_all;
use load::watch::Watch;

/// Operations between two polls while nothing must be waited for.
const POLL_EVERY: u32 = 16;
/// Turns between two looks at who watches.
const LOOK_EVERY: u32 = 1 << 12;
/// How long what is under way has to end when a run is stopped.
const GRACE: Duration = Duration::from_millis(300);
/// How long nothing may end in real time, in ns.
const PATIENCE: u64 = 60_000_000_000;
/// How long a drive has after its turn to end what it does.
const REST: Duration = Duration::from_millis(5);
/// Nanoseconds since the first call.
pub(super) fn clock() -> u64 {
    static START: OnceLock<Clock> = OnceLock::new();
    START.get_or_init(Clock::start).now().0
}

pub(super) fn failed(e: impl std::fmt::Display) -> Error {
    Error::Failed(e.to_string())
}

fn stopped() -> Error {
    failed("it was stopped before anything was measured")
}

/// Runs it.
pub fn measure(setup: &Setup, watch: &mut Watch) -> Result<Measured, Error> {
    let mut turns = Run::new(setup, watch, Turns { count: 1, runner: None }).all()?;
    Ok(turns.pop().expect("there was one"))
}

/// Runs both, the operations of each in `count` turns, and gives what each turn
/// gave. They share the processors, and need memory for both drives.
pub fn measure_by_turns(
    setups: &[Setup; 2],
    count: u64,
    watch: &Watch,
) -> Result<Vec<[Measured; 2]>, Error> {
    let baton = &Baton::new(setups.len());
    let runs = setups.iter().enumerate().map(|(number, setup)| {
        move || {
            let turns = Turns { count, runner: Some(baton.runner(number)) };
            Run::new(setup, &mut watch.helper(), turns).all()
        }
    });
    let mut runs = run_all(runs)?.into_iter();
    let mut next = || runs.next().expect("there are two");
    let (a, b) = (next(), next());
    Ok(a?.into_iter().zip(b?).map(|(a, b)| [a, b]).collect())
}

/// In which turns a run is measured.
pub(super) struct Turns<'a> {
    count: u64,
    /// With others in between.
    pub(super) runner: Option<Runner<'a>>,
}

impl Turns<'_> {
    /// The others' turns.
    fn pass(&self) {
        if let Some(runner) = &self.runner {
            std::thread::sleep(REST);
            runner.pass();
        }
    }
}

/// A run under way.
pub(super) struct Run<'a, 'b> {
    pub(super) setup: &'a Setup,
    pub(super) watch: &'b mut Watch,
    /// The drive's time, where it is virtual.
    pub(super) now: Time,
    /// Blocks that were given to the drive to be written.
    pub(super) blocks: Rc<Cell<u64>>,
    pub(super) published: Arc<Published>,
    /// Time without anything to do, in real time, in ns.
    waiting: u64,
    pub(super) turns: Turns<'b>,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(setup: &'a Setup, watch: &'b mut Watch, turns: Turns<'b>) -> Run<'a, 'b> {
        Run {
            setup,
            watch,
            now: Time::ZERO,
            blocks: Rc::default(),
            published: Arc::default(),
            waiting: 0,
            turns,
        }
    }

    fn all(&mut self) -> Result<Vec<Measured>, Error> {
        match self.setup.store {
            Store::Tree(StoreKind::Batched) => self.batched(),
            Store::Tree(StoreKind::Log | StoreKind::InPlace) => self.blocks(),
            Store::Keyed => self.keyed(),
        }
    }

    pub(super) fn clock(&self) -> fn() -> u64 {
        if self.setup.real { clock } else { no_clock }
    }

    /// Requests that the drive may have inside.
    pub(super) fn depth(&self) -> usize {
        (2 * self.setup.clients + 128).min(1024)
    }

    /// Fills a store, until it is at rest. Gives who knows what is in it.
    pub(super) fn load(&mut self, store: &mut Records<'_>) -> Result<Client, Error> {
        self.watch.phase("loading");
        let real: fn() -> u64 = clock;
        let real = self.setup.real.then_some(real);
        let (most, value) = (2 * self.setup.clients, self.setup.value);
        let mut client = Client::new(most, real, self.setup.verify, value);
        self.settle(store, &mut client)?;
        self.complete(store, &mut client, &mut Fill(0), self.setup.records)?;
        self.settle(store, &mut client)?;
        refuse_errors(&client)?;
        Ok(client)
    }

    /// Warms a store with so many operations, measures, and checks.
    pub(super) fn measure(
        &mut self,
        store: &mut Records<'_>,
        client: &mut Client,
        warm: u64,
        tree: Option<TreeSize>,
    ) -> Result<Vec<Measured>, Error> {
        self.settle(store, client)?;
        let mut source = Ycsb::new(self.setup.workload, self.setup.records, self.setup.seed);
        self.watch.phase("warming the cache");
        self.complete(store, client, &mut source, warm)?;
        let mut all = Vec::new();
        for turn in 0..self.turns.count {
            self.turns.pass();
            self.watch.phase("measuring");
            let ops = share(self.setup.ops, self.turns.count, turn);
            client.clear();
            let before = self.mark(store);
            let done = self.operate(store, client, &mut source, ops)?;
            if done == 0 && ops > 0 {
                return Err(stopped());
            }
            let after = self.mark(store);
            let mut measured = after.since(&before, client.succeeded(), self.setup.real);
            (measured.interrupted, measured.missing) = (done < ops, client.missing);
            measured.tree = tree;
            let kinds = Kind::ALL.into_iter().map(|kind| (kind, client.latency(kind).clone()));
            measured.latency = kinds.filter(|(_, latency)| latency.count() > 0).collect();
            all.push(measured);
            if done < ops {
                break;
            }
        }
        let last = all.last_mut().expect("there is a turn");
        if !last.interrupted {
            if self.setup.verify {
                self.watch.phase("reading back");
                self.settle(store, client)?;
                let count = source.records();
                let read = self.operate(store, client, &mut All::new(count), count)?;
                last.interrupted = read < count;
            }
            self.settle(store, client)?;
        }
        last.errors = client.failed;
        last.first_error = client.first_error.take();
        Ok(all)
    }

    fn mark(&self, store: &Records<'_>) -> Mark {
        // Looked at once, so that in real time the parts make the whole however
        // long this thread stands still between two looks.
        let now = clock();
        Mark {
            now: if self.setup.real { now } else { self.now.0 },
            waiting: self.waiting,
            ticks: ticks(store),
            used: Used { clock: now, thread: thread_cpu(), process: process_cpu() },
            cache: store.tree().map(Tree::cache_counters).unwrap_or_default(),
            written: store.tree().map_or(0, |tree| tree.counters().pages_written),
            blocks: self.blocks.get(),
            work: self.published.work(),
            log: store.tree().and_then(|tree| tree.store().log()),
        }
    }

    /// Runs `count` operations, all of them.
    fn complete(
        &mut self,
        store: &mut Records<'_>,
        client: &mut Client,
        source: &mut impl Source,
        count: u64,
    ) -> Result<(), Error> {
        match self.operate(store, client, source, count)? {
            done if done < count => Err(stopped()),
            _ => Ok(()),
        }
    }

    /// Runs `count` operations, or as many as it may before it is stopped, and
    /// waits for all. Gives how many have ended.
    fn operate(
        &mut self,
        store: &mut Records<'_>,
        client: &mut Client,
        source: &mut impl Source,
        count: u64,
    ) -> Result<u64, Error> {
        let most = self.setup.clients;
        let (mut count, mut left, mut fresh, mut turns) = (count, count, 0, 0u32);
        let mut stopped = None;
        let mut last = (client.ended, clock());
        while left > 0 || client.live() > 0 {
            let room = store.waiting() < most;
            if room && fresh < POLL_EVERY && (left > 0 || client.has_rewrites()) {
                if !client.rewrite(store)? && client.live() < most {
                    client.submit(store, source.next(client.inserting()))?;
                    left -= 1;
                }
                fresh += 1;
                continue;
            }
            if fresh < POLL_EVERY {
                self.wait(store, client)?
            } else {
                self.poll(store, client)
            }
            fresh = 0;
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(LOOK_EVERY) {
                let now = clock();
                if client.ended != last.0 {
                    last = (client.ended, now);
                } else if self.setup.real && now - last.1 > PATIENCE {
                    return Err(failed("the drive completes nothing any more"));
                }
                if !self.watch.look(1.0 - left as f64 / count.max(1) as f64) {
                    (count, left) = (count - left, 0);
                    if now - *stopped.get_or_insert(now) > GRACE.as_nanos() as u64 {
                        return Ok(count - client.live() as u64);
                    }
                }
            }
        }
        Ok(count)
    }

    /// Looks after what is due now.
    #[inline]
    fn poll(&mut self, store: &mut Records<'_>, client: &mut Client) {
        if !self.setup.real {
            store.poll(self.now, client);
            return;
        }
        let (start, before) = (clock(), (client.ended, ticks(store)));
        store.poll(Time(start), client);
        if before == (client.ended, ticks(store)) {
            self.waiting += clock() - start;
        }
    }

    /// Nothing can be done before something completes.
    fn wait(&mut self, store: &mut Records<'_>, client: &mut Client) -> Result<(), Error> {
        if self.setup.real {
            self.poll(store, client);
            std::hint::spin_loop();
            return Ok(());
        }
        let at =
            store.next_event().ok_or_else(|| failed("the drive completes nothing any more"))?;
        self.now = self.now.max(at);
        client.now = self.now.0;
        store.poll(self.now, client);
        Ok(())
    }

    /// Makes all durable and lets the drive come to rest.
    fn settle(&mut self, store: &mut Records<'_>, client: &mut Client) -> Result<(), Error> {
        client.flush(store);
        if self.setup.real {
            self.now = Time(clock());
        }
        store.poll(self.now, client);
        while let Some(at) = store.wait_for_drive() {
            let at = if self.setup.real { Time(clock()) } else { at };
            self.now = self.now.max(at);
            client.now = self.now.0;
            store.poll(self.now, client);
        }
        if client.flushed { Ok(()) } else { Err(failed("the drive completes nothing any more")) }
    }
}

/// Where the time of a tree's store went so far.
#[inline]
fn ticks(store: &Records<'_>) -> Ticks {
    store.tree().map(|tree| tree.store().ticks()).unwrap_or_default()
}

/// Operations of a load must not fail.
fn refuse_errors(client: &Client) -> Result<(), Error> {
    match &client.first_error {
        Some(first) => Err(failed(format!("loading: {first}"))),
        None => Ok(()),
    }
}

/// The part of `all` of one of `parts` parts.
fn share(all: u64, parts: u64, part: u64) -> u64 {
    all * (part + 1) / parts - all * part / parts
}

#[cfg(test)]
mod tests {
    use workload::ycsb::Workload;

    use super::*;
    use crate::setup::CacheSize;
    use drive::spec::DriveSpec;

    fn setup(store: StoreKind, real: bool) -> Setup {
        let DriveSpec::Memory(spec) = "mem:znand,groups=2,pus=2,pages=64".parse().unwrap() else {
            unreachable!()
        };
        Setup {
            drive: crate::drive(&spec, 96 << 20).unwrap(),
            workload: Workload::Paper,
            records: 2000,
            ops: 1001,
            cache: CacheSize::Percent(30.0),
            store: Store::Tree(store),
            value: 1000,
            durable: true,
            clients: 16,
            controller: 0,
            seed: 1,
            real,
            verify: true,
        }
    }

    #[test]
    fn turns_do_all_operations_between_them() {
        let watch = Watch::quiet();
        for real in [false, true] {
            let setups = [StoreKind::Log, StoreKind::Batched].map(|store| setup(store, real));
            let turns = measure_by_turns(&setups, 4, &watch).unwrap();
            for side in [0, 1] {
                let all: Vec<&Measured> = turns.iter().map(|turn| &turn[side]).collect();
                let ops: Vec<u64> = all.iter().map(|m| m.ops).collect();
                assert_eq!(ops, [250, 250, 250, 251]);
                for m in all {
                    let counted: u64 = m.latency.iter().map(|(_, all)| all.count()).sum();
                    assert_eq!((counted, m.errors), (m.ops, 0), "{:?}", m.first_error);
                    assert!(m.seconds > 0.0 && m.share.is_some() == real);
                }
            }
        }
    }

    /// Of four blocks of a stripe one is parity.
    #[test]
    fn parity_is_in_the_drives_amplification() {
        let DriveSpec::Memory(spec) = "mem:znand,groups=2,pus=2,pages=64,parity=4".parse().unwrap()
        else {
            unreachable!()
        };
        let with =
            Setup { drive: crate::drive(&spec, 96 << 20).unwrap(), ..setup(StoreKind::Log, false) };
        let of = |setup: &Setup| {
            measure(setup, &mut Watch::quiet()).unwrap().drive_amplification().unwrap()
        };
        let (without, with) = (of(&setup(StoreKind::Log, false)), of(&with));
        assert!(with > 1.25 * without, "{without} {with}");
    }

    #[test]
    fn one_that_fails_lets_the_other_end() {
        let mut setups = [StoreKind::Log, StoreKind::Batched].map(|store| setup(store, false));
        setups[0].records = 1 << 20;
        let failed = measure_by_turns(&setups, 4, &Watch::quiet()).unwrap_err();
        assert_eq!(failed.exit_code(), 1, "{failed}");
    }
}
