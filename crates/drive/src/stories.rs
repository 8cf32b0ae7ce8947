//! Whole drives tell where the time of each request went: over random drives and
//! random work the parts of each sum to its time, exactly.

use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Part, Port, Ring, Story, Time, random};
use proptest::prelude::*;

use crate::spec::DriveSpec;
use crate::stack::{build, needs_stories};
use crate::whole::{Boxed, Observed};

mod planted;

fn drive(name: &str) -> Boxed {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    build(&spec.resolve().unwrap_or_else(|e| panic!("{name}: {e}")), 1).unwrap()
}

/// A drive with requests on their way.
struct Host {
    drive: Boxed,
    now: Time,
    queue: Ring<BlockReq>,
    /// When each request was taken, by number.
    taken: Vec<Time>,
    told: Vec<(BlockOp, Story)>,
}

impl Host {
    fn new(name: &str) -> Host {
        let mut drive = drive(name);
        drive.set_stories(true);
        let (queue, taken, told) = (Ring::new(64), Vec::new(), Vec::new());
        Host { drive, now: Time::ZERO, queue, taken, told }
    }

    /// Offers what waits.
    fn submit(&mut self) {
        let before = self.queue.len();
        self.drive.submit(self.now, &mut self.queue);
        (self.queue.len()..before).for_each(|_| self.taken.push(self.now));
    }

    /// Lets all that is due until then happen.
    fn run(&mut self, until: Time) {
        let mut done = Ring::new(3);
        while let Some(at) = self.drive.next_event().filter(|&at| at <= until) {
            self.now = at;
            self.drive.advance(at, &mut done);
            for done in done.drain() {
                assert!(done.status.is_ok(), "{:?}", done.status);
                let number = self.told.len() as u64;
                let story = self.drive.story(number).expect("one for each");
                assert!(story.is_whole(), "{story:?}");
                let began = self.taken[done.id as usize];
                assert_eq!(
                    (story.start(), story.end()),
                    (began, done.at),
                    "{:?} {story:?}",
                    done.op
                );
                self.told.push((done.op, story));
            }
            self.submit();
        }
        self.now = self.now.max(until);
    }

    fn ask(&mut self, op: BlockOp, fua: bool, offset: u64, len: u64) {
        while self.queue.room() == 0 {
            let next = self.drive.next_event().expect("it is full");
            self.run(next);
        }
        let id = (self.taken.len() + self.queue.len()) as u64;
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        let buffer = Buffer::zeroed(if moves { len as usize } else { 0 }).unwrap();
        self.queue.put(|| BlockReq {
            id,
            op,
            fua,
            placement: (id % 3) as u8,
            queue: (id % 4) as u8,
            offset,
            len,
            buffer,
        });
        self.submit();
    }

    /// Lets all that was asked for end.
    fn end(&mut self) {
        while self.told.len() < self.taken.len() || !self.queue.is_empty() {
            let next = self.drive.next_event().expect("something is under way");
            self.run(next);
        }
        assert_eq!(self.drive.story(self.told.len() as u64), None);
    }

    /// Writes all of it in order, in pieces.
    fn fill(&mut self) {
        let (bytes, piece) = (self.drive.shape().bytes, 128 << 10);
        (0..bytes / piece).for_each(|i| self.ask(BlockOp::Write, false, i * piece, piece));
    }

    /// Asks for something at random; `mean` is the time between two.
    fn ask_some(&mut self, random: &mut random::Random, mean: u64) {
        let bytes = self.drive.shape().bytes;
        let pick = random.bits();
        let len = match pick % 8 {
            0 => 512 * (1 + pick / 8 % 20),
            1 => BLOCK_BYTES * (1 + pick / 8 % 40),
            _ => BLOCK_BYTES,
        };
        let unit = if len % BLOCK_BYTES == 0 { BLOCK_BYTES } else { 512 };
        let offset = random.bits() % ((bytes - len) / unit) * unit;
        let op = match random.bits() % 20 {
            0 => BlockOp::Flush,
            1 => BlockOp::Trim,
            2..10 => BlockOp::Read,
            _ => BlockOp::Write,
        };
        let (offset, len) = if op == BlockOp::Flush { (0, 0) } else { (offset, len) };
        let fua = op == BlockOp::Write && random.bits().is_multiple_of(16);
        self.run(self.now + random.bits() % (2 * mean + 1));
        self.ask(op, fua, offset, len);
    }
}

const SMALL: &str = "size=8M,groups=2,pus=4,pages=32";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_sum_to_the_whole(
        profile in prop_oneof![Just("ref"), Just("tlc"), Just("znand"), Just("qlc")],
        side in prop_oneof![Just("host"), Just("device")],
        more in prop_oneof![
            Just(""), Just(",parity=4"), Just(",suspend=true"), Just(",suspend=true,parity=4"),
            Just(",errors=true,endurance=300"), Just(",slc_cache=1M"), Just(",suspend_transfer=true"),
            Just(",suspend=true,cache_registers=true,plane_reads=true"),
            Just(",shared_reads=true,multi_plane_reads=type,planes=2,copyback=2"),
            Just(",slc_cache=1M,suspend=true,cache_registers=true"),
            Just(",slc_cache=1M,suspend=true,cache_registers=true,plane_reads=true"),
            Just(",read_cache=1M,read_ahead_depth=8,cores=2,core_read=3us,map_cache=16k"),
            Just(",sleep_after=100us/250us,wake_time=30us/80us,sleep_power=2mW/1mW,energy=true,idle_power=3mW,thermal_resistance=900K/W,\
                thermal_time=5ms,throttle_from=200C,throttle_until=150C,throttle_rate=200MB/s"),
            Just(",queues=4,queue_depth=7,cores=1,core_read=3us,core_write=5us,arbitration=wrr,\
                arbitration_burst=2,queue_classes=low/urgent/high,class_weights=4/2/1,link_latency=1us"),
            Just(",buffer_rate=300MB/s"), Just(",buffer_rate=1GB/s,read_cache=1M,parity=4,link_latency=1us"),
            Just(",buffer_rate=1GB/s,shards=2"),
            Just(",streams=2"), Just(",streams=3,shards=2"), Just(",shards=2,parity=4"),
        ],
        mean in prop_oneof![Just(0u64), 1_000u64..300_000],
        seed in any::<u64>(),
    ) {
        // Shards, queues and a buffer have their link above the whole.
        let is_above = ["shards", "queues", "buffer_rate"].iter().any(|key| more.contains(key));
        let side = if is_above { "device" } else { side };
        let mut host = Host::new(&format!("mem:{profile},{SMALL},side={side}{more}"));
        let mut random = random::Random::new(seed, 1);
        host.fill();
        (0..3000).for_each(|_| host.ask_some(&mut random, mean));
        host.end();
        prop_assert!(host.drive.counters().gc > 0, "it collected");
    }
}

#[test]
fn a_drive_of_shards_tells_of_its_pieces() {
    let mut host = Host::new("mem:ref,size=8M,groups=2,pus=4,pages=32,shards=2");
    let mut random = random::Random::new(5, 1);
    (0..3000).for_each(|_| host.ask_some(&mut random, 10_000));
    host.end();
    assert!(
        host.told.iter().any(|(op, story)| *op == BlockOp::Read && story.ns_of(Part::Array) > 0)
    );
}

/// A block that crosses in 10 us: what is written does once before it completes, what is
/// read from flash in and out, and what a cache has out only.
#[test]
fn data_cross_the_buffer_as_often_as_they_are_moved() {
    let name = format!("mem:ref,{SMALL},side=device,buffer_rate=409600kB/s,read_cache=1M");
    let mut host = Host::new(&name);
    let mut buffer_of = |op, offset| {
        let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
        host.ask(op, false, offset, len);
        host.end();
        while let Some(next) = host.drive.next_event() {
            host.run(next);
        }
        host.told.last().unwrap().1.ns_of(Part::Buffer)
    };
    assert_eq!(buffer_of(BlockOp::Write, 0), 10_000);
    assert_eq!(buffer_of(BlockOp::Read, 0), 10_000, "from the write buffer");
    assert_eq!(buffer_of(BlockOp::Write, 4096), 10_000);
    assert_eq!(buffer_of(BlockOp::Flush, 0), 0);
    assert_eq!(buffer_of(BlockOp::Read, 4096), 20_000, "from flash");
    assert_eq!(buffer_of(BlockOp::Read, 4096), 10_000, "from the read cache");
}

/// Where flash and link are faster, what is written takes twice its bytes of the memory:
/// in, and out to a channel.
#[test]
fn a_buffer_bounds_writes_at_half_of_its_rate() {
    let fast = "side=device,read=0ns,program=0ns,erase=0ns,command=0ns,channel_rate=none";
    let mut host = Host::new(&format!("mem:ref,{SMALL},{fast},buffer_rate=100MB/s"));
    host.fill();
    host.end();
    let bytes = host.drive.shape().bytes as f64;
    let rate = bytes * 1e9 / host.now.0 as f64;
    assert!((rate / 50e6 - 1.0).abs() < 0.02, "{rate}");
}

/// Each reason for which a request waits is told of some.
#[test]
fn each_wait_has_its_reason() {
    let mut host = Host::new(&format!("mem:tlc,{SMALL},side=device,suspend=true"));
    let mut random = random::Random::new(2, 1);
    (0..20_000).for_each(|_| host.ask_some(&mut random, 20_000));
    host.end();
    let told = |op: BlockOp, part: Part| {
        host.told.iter().any(|(of, story)| *of == op && story.ns_of(part) > 0)
    };
    for part in [Part::Link, Part::Channel, Part::Transfer, Part::Array] {
        assert!(told(BlockOp::Read, part), "{part:?}");
    }
    for part in [Part::RoomRows, Part::RoomCollection, Part::Partial] {
        assert!(told(BlockOp::Write, part), "{part:?}");
    }
    assert!(told(BlockOp::Flush, Part::Flush));
    let behind = |what: &str| {
        host.told.iter().any(|(op, story)| {
            *op == BlockOp::Read && story.parts().any(|part| part.1 == Some(what))
        })
    };
    for what in [
        "program of user",
        "program of collection",
        "read of user",
        "read of collection",
        "erase of collection",
        "program of metadata",
    ] {
        assert!(behind(what), "{what}");
    }
}

/// What a read of old bytes took is told as that, but for what it waited for its die: who
/// writes parts of blocks is not told of an array that he did not ask for.
#[test]
fn a_read_of_old_bytes_is_told_as_that() {
    let mut host = Host::new(&format!("mem:tlc,{SMALL},side=device"));
    host.fill();
    host.ask(BlockOp::Flush, false, 0, 0);
    host.end();
    let filled = host.told.len();
    let mut random = random::Random::new(4, 1);
    let blocks = host.drive.shape().bytes / BLOCK_BYTES;
    for _ in 0..200 {
        host.ask(BlockOp::Write, false, random.bits() % blocks * BLOCK_BYTES, 512);
    }
    host.end();
    let written = &host.told[filled..];
    let sum = |part: Part| written.iter().map(|(_, story)| story.ns_of(part)).sum::<u64>();
    assert_eq!([Part::Array, Part::Transfer, Part::Channel].map(sum), [0; 3]);
    // Lower pages take 56.5 us.
    assert!(sum(Part::Partial) > 200 * 56_000, "{}", sum(Part::Partial));
}

#[test]
fn what_cannot_tell_is_refused_by_name() {
    let Ok(DriveSpec::Memory(spec)) = "mem:ref,size=64M,cache=protected".parse() else {
        panic!("a drive")
    };
    let mut config = spec.resolve().unwrap();
    assert!(needs_stories(&config).unwrap_err().to_string().contains("cache=volatile"));
    config.spec.cache = crate::spec::Cache::Volatile;
    needs_stories(&config).unwrap();
}
