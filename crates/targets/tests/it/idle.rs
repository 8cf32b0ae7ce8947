//! Collection while nobody asks for anything: what the next writes gain, what it
//! costs, and that it ends.

use device::Device;
use faults::ScriptedMedium;
use flash::{Dimensions, Geometry, Timing};
use port::random::Random;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, Victim, WriteCounters, with_reserve};

const BLOCK: u64 = 4096;
const UNITS: u64 = 4;
const DATA_CHUNKS: u32 = 40;
/// Blocks of the drive that are not sold.
const SPARE: u64 = UNITS * DATA_CHUNKS as u64 * 64 / 5;
const WAIT: u64 = 10_000_000;

struct Host {
    drive: Pblk<Device<ScriptedMedium>>,
    random: Random,
    now: Time,
}

impl Host {
    /// A drive with a fifth spare, written over at random until it is steady.
    fn worked(wait: u64, victim: Victim) -> Host {
        let dim = Dimensions {
            groups: 2,
            pus: 2,
            chunks: DATA_CHUNKS,
            pages: 16,
            page_bytes: 16384,
            ..Dimensions::LEAST
        };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let timing = Timing {
            read: vec![50_000],
            program: vec![600_000],
            erase: 3_000_000,
            ..Timing::default()
        };
        let device = Device::new(&geometry, &timing, ScriptedMedium::ram(&geometry, 0, ()));
        let config = PblkConfig {
            idle_collection: wait,
            victim,
            ..PblkConfig::new(4 * SPARE * BLOCK, DATA_CHUNKS, 3)
        };
        let drive = Pblk::new(device.unwrap(), config).unwrap();
        let mut host = Host { drive, random: Random::new(9, 0), now: Time::ZERO };
        (0..4 * SPARE).for_each(|block| host.ask(BlockOp::Write, block));
        host.write(12 * SPARE);
        host
    }

    /// One request, until it has ended.
    fn ask(&mut self, op: BlockOp, block: u64) {
        let len = if op == BlockOp::Flush { 0 } else { BLOCK };
        let (offset, buffer) = (if len == 0 { 0 } else { block * BLOCK }, Buffer::empty());
        let req = BlockReq::new(0, op, offset, len, buffer);
        let (mut queue, mut done) = (Ring::new(1), Ring::<BlockDone>::new(1));
        queue.push(req).unwrap();
        while done.is_empty() {
            self.drive.submit(self.now, &mut queue);
            let at = self.drive.next_event().expect("it ends");
            assert!(at >= self.now, "time never goes back");
            self.now = at;
            self.drive.advance(self.now, &mut done);
        }
        assert!(done.pop().unwrap().status.is_ok());
    }

    fn write(&mut self, count: u64) {
        for _ in 0..count {
            let block = self.random.below(4 * SPARE);
            self.ask(BlockOp::Write, block);
        }
    }

    /// Lets all happen that happens by itself. Gives how long that takes.
    fn rest(&mut self) -> u64 {
        let (begun, mut done, mut events) = (self.now, Ring::<BlockDone>::new(1), 0);
        while let Some(at) = self.drive.next_event() {
            assert!(at >= self.now, "time never goes back");
            self.now = at;
            self.drive.advance(at, &mut done);
            events += 1;
            assert!(done.is_empty() && events < 1_000_000, "it comes to rest");
        }
        self.now - begun
    }

    /// What `count` writes and a flush take, and what they make the drive do.
    fn burst(&mut self, count: u64) -> (u64, WriteCounters) {
        let (begun, before) = (self.now, self.drive.counters());
        self.write(count);
        self.ask(BlockOp::Flush, 0);
        let c = self.drive.counters();
        let (gc, user) = (c.gc - before.gc, c.user - before.user);
        let collections = c.collections - before.collections;
        (self.now - begun, WriteCounters { gc, user, collections, ..WriteCounters::default() })
    }
}

#[test]
fn writes_after_a_pause_find_room() {
    // What is made ready is half of the spare; a part of it is in rows that are
    // padded at the flush, or in chunks of one unit when another is out of them.
    let count = SPARE * 2 / 5;
    let mut took = [0; 2];
    for (took, wait) in took.iter_mut().zip([0, WAIT]) {
        let mut host = Host::worked(wait, Victim::Greedy);
        host.ask(BlockOp::Flush, 0);
        let pause = host.rest();
        let (time, did) = host.burst(count);
        if wait > 0 {
            assert!(pause > wait, "{pause}");
            assert_eq!((did.collections, did.gc), (0, 0), "of {count} blocks");
        } else {
            assert!(did.collections > 10 && did.gc > count / 2, "{did:?}");
        }
        *took = time;
    }
    assert!(took[1] * 3 < took[0] * 2, "{took:?}");
}

/// What is collected in pauses is collected earlier, with more that is valid in it:
/// that costs little where a pause is followed by a whole spare's writes.
#[test]
fn what_it_costs() {
    let amplification = |wait, count: u64| {
        let mut host = Host::worked(wait, Victim::Greedy);
        let before = host.drive.counters();
        for _ in 0..12 {
            host.write(count);
            host.rest();
        }
        let c = host.drive.counters();
        1.0 + (c.gc - before.gc) as f64 / (c.user - before.user) as f64
    };
    let (without, with) = (amplification(0, SPARE), amplification(WAIT, SPARE));
    println!("write amplification {with:.2}, without pauses {without:.2}");
    assert!(without > 1.5 && with > without && with < 1.3 * without, "{with} {without}");
}

#[test]
fn it_comes_to_rest_and_begins_once() {
    for victim in
        [Victim::Greedy, Victim::Fifo, Victim::Random, Victim::DChoices(2), Victim::CostBenefit]
    {
        let mut host = Host::worked(WAIT, victim);
        assert!(host.rest() >= WAIT, "{victim:?}");
        let after = host.drive.counters();
        assert_eq!((host.rest(), host.drive.counters()), (0, after), "{victim:?}");
        // A read begins it again, and finds nothing to do.
        host.ask(BlockOp::Read, 7);
        assert_eq!((host.rest(), host.drive.counters()), (WAIT, after), "{victim:?}");
    }
}

/// A request ends it, whatever is left to do; then it begins anew.
#[test]
fn a_request_ends_it() {
    let mut host = Host::worked(WAIT, Victim::Greedy);
    let (mut done, before) = (Ring::<BlockDone>::new(1), host.drive.counters());
    let is_begun = |host: &Host| host.drive.counters().collections > before.collections + UNITS;
    while !is_begun(&host) {
        host.now = host.drive.next_event().expect("it collects");
        host.drive.advance(host.now, &mut done);
    }
    host.ask(BlockOp::Read, 7);
    let (asked, begun) = (host.now, host.drive.counters().collections);
    while let Some(at) = host.drive.next_event().filter(|&at| at < asked + WAIT) {
        host.now = at;
        host.drive.advance(at, &mut done);
        assert_eq!(host.drive.counters().collections, begun, "no victim is begun");
    }
    assert!(host.now < asked + WAIT / 2, "what is under way ends soon");
    assert_eq!(host.drive.next_event(), Some(asked + WAIT));
    host.rest();
    assert!(host.drive.counters().collections > begun);
}

/// A shutdown does not wait for it, nor go on with it.
#[test]
fn a_shutdown_does_not_wait_for_it() {
    for is_begun in [false, true] {
        let mut host = Host::worked(WAIT, Victim::Greedy);
        let due = host.now + WAIT;
        let mut done = Ring::<BlockDone>::new(1);
        while let Some(at) = host.drive.next_event().filter(|&at| at < due || is_begun && at == due)
        {
            host.now = at;
            host.drive.advance(at, &mut done);
        }
        let before = host.drive.counters().collections;
        host.drive.close(host.now);
        assert!(host.rest() < WAIT, "what is under way, and a checkpoint");
        assert!(host.drive.is_closed() && host.drive.device().next_event().is_none());
        assert_eq!(host.drive.counters().collections, before);
    }
}

/// A time that never comes changes nothing.
#[test]
fn before_it_begins_nothing_is_different() {
    let state = |wait| {
        let host = Host::worked(wait, Victim::Greedy);
        (host.now, host.drive.state_hash())
    };
    assert_eq!(state(0), state(1 << 50));
}

/// Chunks of which nothing counts any more are all erased when it is idle, however many
/// there are: more than commands may wait for the drive.
#[test]
fn thousands_of_stale_chunks_are_erased() {
    let chunks = 12_000;
    let dim = Dimensions { chunks, pages: 2, ..Dimensions::LEAST };
    let geometry = Geometry::new(with_reserve(dim)).unwrap();
    let timing = Timing { read: vec![50], program: vec![600], erase: 3_000, ..Timing::default() };
    let device = Device::new(&geometry, &timing, ScriptedMedium::ram(&geometry, 0, ())).unwrap();
    let bytes = u64::from(chunks) * BLOCK;
    let config = PblkConfig { idle_collection: WAIT, ..PblkConfig::new(bytes, chunks, 3) };
    let drive = Pblk::new(device, config).unwrap();
    let mut host = Host { drive, random: Random::new(9, 0), now: Time::ZERO };
    let blocks = u64::from(chunks);
    (0..2).for_each(|_| (0..blocks).for_each(|block| host.ask(BlockOp::Write, block)));
    let before = host.drive.counters().collections;
    host.rest();
    let won = host.drive.counters().collections - before;
    assert!(won > 2500, "{won}");
    host.write(100);
}
