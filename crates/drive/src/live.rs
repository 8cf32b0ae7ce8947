//! What a drive that is served has done, to be looked at while it goes on.
//!
//! [`Live`] counts requests by operation, how long they took and where their time
//! went; [`Glimpse`] is that and all else that a drive tells, at one moment.
//!
//! Guarantees: a request is counted once, when it completes; counting allocates
//! nothing. A glimpse takes microseconds, however large the drive is: its chunks are
//! counted apart, in pieces ([`Seen::count_chunks`]). Nothing here fails.

use device::{ChunkCount, Counters, Device, ErrorCounters, Link, PowerHealth, SlcHealth};
use flash::Energy;
use ftl::WriteCounters;
use port::{BLOCK_BYTES, BlockDone, BlockOp, Port, Ring, StorySum, Time};

use crate::backing::Backing;
use crate::batched::BoxedBatch;
use crate::caches::Caches;
use crate::kv::KvDrive;
use crate::lower;
use crate::told::{Explained, Told};
use crate::whole::{Boxed, Drive, Observed, READ_ONLY, devices, few};

/// The operations, by name, in the order in which they are counted.
pub const OPS: [(BlockOp, &str); 5] = [
    (BlockOp::Read, "read"),
    (BlockOp::Write, "write"),
    (BlockOp::Flush, "flush"),
    (BlockOp::Trim, "trim"),
    (BlockOp::WriteZeroes, "write_zeroes"),
];

/// Ranges of latencies that have an upper end: four to a power of two, from 1 us to
/// 14.7 s. One more has what took longer.
pub const RANGES: usize = 96;

/// A quarter of the lowest end, in ns.
const QUARTER: u64 = 250;

/// The upper end of a range below [`RANGES`], which belongs to it, in ns.
pub fn end_of(range: usize) -> u64 {
    (QUARTER * (4 + range as u64 % 4)) << (range / 4)
}

/// The range that a latency is in, in ns.
#[inline]
pub fn range_of(ns: u64) -> usize {
    let quarters = ns.saturating_sub(1) / QUARTER;
    if quarters < 4 {
        return 0;
    }
    let power = quarters.ilog2() as usize;
    let range = 1 + 4 * (power - 2) + (quarters >> (power - 2) & 3) as usize;
    range.min(RANGES)
}

/// What was done of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Requests that completed.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Bytes that reads gave and writes took, of those that did not fail.
    pub bytes: u64,
    /// How many took so long, by range, of those that told and did not fail; the last is
    /// for what took longer.
    pub took: [u64; RANGES + 1],
    /// Where the time of these went, in a glimpse.
    pub causes: StorySum,
}

impl Default for Work {
    fn default() -> Work {
        let (requests, failures, bytes) = (0, 0, 0);
        Work { requests, failures, bytes, took: [0; RANGES + 1], causes: StorySum::default() }
    }
}

/// What was asked of a drive, and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// By operation, as [`OPS`] has them.
    pub works: [Work; OPS.len()],
    /// Whether the drive tells where the time of its requests goes.
    pub tells: bool,
    /// Requests that are inside.
    pub inside: u64,
    /// Completions so far: the number of the next story.
    completed: u64,
}

impl Live {
    /// Asks a drive, in which nothing is and whose time is `base`, to tell what can be
    /// told. `tells` is whether all of its layers tell stories
    /// ([`crate::stack::needs_stories`]).
    pub fn of(drive: &mut Boxed, base: Time, tells: bool) -> Live {
        if tells {
            drive.set_stories(true);
        }
        drive.set_die_clocks(Some(base));
        Live { tells, ..Live::default() }
    }

    /// So many requests were taken.
    #[inline]
    pub fn came(&mut self, requests: usize) {
        self.inside += requests as u64;
    }

    /// The completions from `first` on are new, and tell of their time since `base`.
    pub fn note(
        &mut self,
        (drive, base): (&Boxed, Time),
        first: usize,
        done: &Ring<BlockDone>,
        told: &mut Told,
    ) {
        for i in first..done.len() {
            let Some(one) = done.get(i) else { return };
            let work = &mut self.works[one.op as usize];
            work.requests += 1;
            let is_ok = one.status.is_ok();
            work.failures += u64::from(!is_ok);
            if is_ok && matches!(one.op, BlockOp::Read | BlockOp::Write) {
                work.bytes += one.buffer.len() as u64;
            }
            // A failure is soon told, and would make the drive look fast.
            let asks = self.tells && is_ok;
            let story = asks.then(|| drive.story(self.completed)).flatten();
            if let Some(story) = &story {
                work.took[range_of(story.ns())] += 1;
            }
            if self.tells {
                told.note(one, Time(one.at.since(base)), story.as_ref());
            }
            self.completed += 1;
            self.inside = self.inside.saturating_sub(1);
        }
    }
}

/// What a drive tells at one moment, all of it since it was made or opened but for
/// what [`Live`] has.
#[derive(Clone, Debug, Default)]
pub struct Glimpse {
    /// When, in ns since it was lent.
    pub at: u64,
    /// What was asked of it.
    pub live: Live,
    /// Requests that are inside, where they are counted.
    pub inside: Option<u64>,
    /// What its target wrote.
    pub written: WriteCounters,
    /// Blocks programmed beside that: of parity, and folded out of an SLC cache. None where
    /// it has no such thing.
    pub beside: [Option<u64>; 2],
    /// Blocks that collection read, where they are counted.
    pub moved: Option<u64>,
    /// Chunks that its target has for what comes next, where it counts them.
    pub free_chunks: Option<u64>,
    /// What its devices did.
    pub flash: Counters,
    /// What they got wrong.
    pub errors: ErrorCounters,
    /// How long the arrays of its units worked, in ns: of [`MOST_UNITS`] at most, else
    /// none.
    ///
    /// [`MOST_UNITS`]: crate::whole::MOST_UNITS
    pub worked: Vec<u64>,
    /// What its caches of reads and of the map did.
    pub caches: Caches,
    /// Its SLC cache; zeros where it has none.
    pub slc: SlcHealth,
    /// How it sleeps and how warm it is.
    pub power: Option<PowerHealth>,
    /// What it took; zeros where energy is not counted.
    pub energy: Energy,
    /// Why it takes no more writes, if that is so.
    pub read_only: Option<String>,
}

/// Where chunks are counted on: a shard, and a place in its device.
pub type Place = (usize, usize);

/// A drive that can be looked at while it is used.
pub trait Seen {
    /// How it is at `now`.
    fn glimpse(&self, now: Time) -> Glimpse;

    /// What there is to explain at `now`, where it tells.
    fn explained(&self, now: Time) -> Option<Explained>;

    /// Counts the chunks of at most `most` places from `from` on. Gives where to go on.
    fn count_chunks(&self, from: Place, most: usize, count: &mut ChunkCount) -> Option<Place>;
}

/// What devices did together.
fn sum(all: Counters, more: Counters) -> Counters {
    Counters {
        reads: all.reads + more.reads,
        programs: all.programs + more.programs,
        erases: all.erases + more.erases,
        blocks_read: all.blocks_read + more.blocks_read,
        blocks_programmed: all.blocks_programmed + more.blocks_programmed,
        suspends: all.suspends + more.suspends,
        shared: all.shared + more.shared,
        joined: all.joined + more.joined,
        copybacks: all.copybacks + more.copybacks,
    }
}

/// How long the arrays of all units worked, where these are not too many.
fn worked<'a>(devices: impl Iterator<Item = &'a Device<Backing>>) -> Vec<u64> {
    few(devices.flat_map(Device::worked))
}

/// Why a drive takes no more writes, if that is so.
fn read_only(drive: &Boxed) -> Option<String> {
    if let Some((why, _)) = drive.fault() {
        return Some(why.to_string());
    }
    let is_closed = (0..drive.targets()).any(|target| drive.target(target).is_read_only());
    is_closed.then(|| READ_ONLY.into())
}

/// What a drive tells of itself at a time of its own.
pub(crate) fn glimpse(drive: &Boxed, now: Time) -> Glimpse {
    let devices = || devices(drive);
    let written = drive.counters();
    Glimpse {
        written,
        beside: [drive.parity_blocks(), drive.folded_blocks()],
        moved: Some(written.moved),
        free_chunks: Some(drive.free_chunks()),
        flash: devices().map(|device| device.counters()).fold(Counters::default(), sum),
        errors: devices().map(|device| device.errors()).sum(),
        worked: worked(devices()),
        caches: Caches::of(&**drive),
        slc: drive.slc(),
        power: drive.power(now),
        energy: drive.energy(now),
        read_only: read_only(drive),
        ..Glimpse::default()
    }
}

/// Counts chunks of a drive, as [`Seen::count_chunks`].
pub(crate) fn count_chunks(
    drive: &Boxed,
    (shard, from): Place,
    most: usize,
    count: &mut ChunkCount,
) -> Option<Place> {
    let device = drive.lower(shard).device();
    match device.count_chunks(from, most, count) {
        Some(next) => Some((shard, next)),
        None => (shard + 1 < drive.shards()).then_some((shard + 1, 0)),
    }
}

impl Seen for Link<KvDrive> {
    fn glimpse(&self, now: Time) -> Glimpse {
        let drive = self.below();
        let (device, done) = (drive.lower().device(), drive.target().counters());
        let mut live = Live::default();
        live.works.iter_mut().zip(drive.works()).for_each(|(to, work)| *to = *work);
        let read_only = drive.target().is_read_only();
        Glimpse {
            at: now.0,
            live,
            written: done,
            beside: lower::beside(drive.lower()),
            flash: device.counters(),
            errors: device.errors(),
            worked: worked([device].into_iter()),
            slc: device.slc_health(),
            energy: device.energy(now),
            read_only: read_only.then(|| READ_ONLY.to_string()),
            ..Glimpse::default()
        }
    }

    fn explained(&self, _now: Time) -> Option<Explained> {
        None
    }

    fn count_chunks(&self, (_, from): Place, most: usize, count: &mut ChunkCount) -> Option<Place> {
        let device = self.below().lower().device();
        device.count_chunks(from, most, count).map(|next| (0, next))
    }
}

/// A drive with batched writes tells what it counts: its requests are reads of pages,
/// batches, and flushes.
impl Seen for Link<BoxedBatch> {
    fn glimpse(&self, now: Time) -> Glimpse {
        let drive = self.below();
        let (device, done) = (drive.lower().device(), drive.counters());
        let flash = device.counters();
        let mut live = Live::default();
        let [reads, writes, flushes, ..] = &mut live.works;
        (reads.requests, reads.failures) = (done.reads, done.failed_reads);
        reads.bytes = (done.reads - done.failed_reads - done.empty_reads) * BLOCK_BYTES;
        writes.requests = done.batches + done.failed_batches;
        (writes.failures, writes.bytes) = (done.failed_batches, done.user * BLOCK_BYTES);
        flushes.requests = done.flushes;
        let row = u64::from(drive.lower().geometry().row_blocks());
        let metadata = (done.log_rows * row + done.table_pages).saturating_sub(done.in_log);
        let user = done.placed;
        let written = WriteCounters {
            user,
            gc: done.programmed.saturating_sub(user + done.padding + metadata),
            padding: done.padding,
            metadata,
            absorbed: done.superseded,
            collections: done.collections,
            erases: done.erases,
            retired: done.retired,
            lost: done.lost,
            refreshed: done.refreshed,
            leveled: done.leveled,
            ..WriteCounters::default()
        };
        Glimpse {
            at: now.0,
            live,
            written,
            beside: lower::beside(drive.lower()),
            flash,
            errors: device.errors(),
            worked: worked([device].into_iter()),
            slc: device.slc_health(),
            energy: device.energy(now),
            read_only: drive.fault().map(ToString::to_string),
            ..Glimpse::default()
        }
    }

    fn explained(&self, _now: Time) -> Option<Explained> {
        None
    }

    fn count_chunks(&self, (_, from): Place, most: usize, count: &mut ChunkCount) -> Option<Place> {
        let device = self.below().lower().device();
        device.count_chunks(from, most, count).map(|next| (0, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batched;
    use crate::batched::tests::{act, config_of};
    use crate::lent::Lent;
    use crate::memory;
    use crate::spec::DriveSpec;
    use crate::stack::{build, needs_stories, new_device};
    use device::LinkTiming;
    use port::{BatchOp, BlockReq, Buffer, Desc};

    /// Each end is in its range and what comes after it is not; ranges are a quarter of
    /// a power of two wide.
    #[test]
    fn ranges_have_their_ends() {
        for range in 0..RANGES {
            let end = end_of(range);
            assert_eq!((range_of(end), range_of(end + 1)), (range, range + 1), "{end}");
            assert!(range == 0 || end <= end_of(range - 1) * 5 / 4);
        }
        assert_eq!((end_of(0), end_of(4), end_of(40)), (1_000, 2_000, 1_024_000));
        assert!(end_of(RANGES - 1) > 10_000_000_000);
        assert_eq!((range_of(0), range_of(u64::MAX)), (0, RANGES));
        for (n, (op, _)) in OPS.iter().enumerate() {
            assert_eq!(*op as usize, n);
        }
    }

    /// Does these one after the other, from a time on. Gives when the last one ended.
    fn ask<P>(drive: &mut P, mut now: Time, ops: &[(BlockOp, u64)]) -> Time
    where
        P: Port<Cmd = BlockReq, Done = BlockDone> + ?Sized,
    {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        for &(op, offset) in ops {
            let len = if op == BlockOp::Flush { 0 } else { 8192 };
            let has_data = matches!(op, BlockOp::Read | BlockOp::Write);
            let buffer = if has_data { Buffer::zeroed(8192).unwrap() } else { Buffer::empty() };
            let (id, fua, placement, queue) = (0, false, 0, 0);
            cmds.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
            drive.submit(now, &mut cmds);
            while done.is_empty() {
                now = drive.next_event().expect("it completes");
                drive.advance(now, &mut done);
            }
            done.drain().for_each(drop);
        }
        now
    }

    /// A drive by its name, lent and looked at.
    fn lent(name: &str) -> Lent {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        let config = spec.resolve().unwrap();
        let tells = needs_stories(&config).is_ok();
        Lent::watched(build(&config, 1).unwrap(), Time(1_000_000), tells).0
    }

    /// Requests, failures, and of what did not fail bytes and times whose causes sum to
    /// them; over a drive that tells no stories all but the times.
    #[test]
    fn a_lent_drive_counts_what_is_asked_of_it() {
        use BlockOp::{Flush, Read, Trim, Write};
        for (name, tells) in [
            ("mem:tlc,size=64M", true),
            ("mem:tlc,size=64M,groups=4,pus=1,shards=2", true),
            ("mem:tlc,size=64M,cache=protected", false),
        ] {
            let mut drive = lent(name);
            ask(
                &mut drive,
                Time::ZERO,
                &[(Write, 0), (Write, 1 << 20), (Flush, 0), (Read, 0), (Trim, 8192)],
            );
            ask(&mut drive, Time::ZERO, &[(Read, 1 << 40)]);
            let seen = drive.glimpse(Time(5_000_000));
            let work = |op: BlockOp| &seen.live.works[op as usize];
            let counts = |op| (work(op).requests, work(op).failures);
            assert_eq!([Read, Write, Flush, Trim].map(counts), [(2, 1), (2, 0), (1, 0), (1, 0)]);
            assert_eq!((work(Write).bytes, work(Read).bytes), (16384, 8192), "{name}");
            assert_eq!((seen.live.inside, seen.at, seen.live.tells), (0, 5_000_000, tells));
            for op in [Read, Write, Flush, Trim] {
                let told: u64 = work(op).took.iter().sum();
                let good = work(op).requests - work(op).failures;
                assert_eq!(told, if tells { good } else { 0 }, "{name} {op:?}");
            }
            assert_eq!(work(Flush).causes.ns() > 0, tells, "{name}");
            // A protected cache keeps what was flushed.
            assert_eq!(seen.written.user >= 4 && seen.flash.programs > 0, tells, "{name}");
            assert_eq!(seen.worked.iter().sum::<u64>() > 0, tells, "{name}");
            assert!(!seen.worked.is_empty() && seen.read_only.is_none(), "{name}");
            let (mut count, mut from) = (ChunkCount::new(), Some((0, 0)));
            while let Some(place) = from {
                from = drive.count_chunks(place, 3, &mut count);
            }
            let [free, open, closed, offline] = count.states;
            assert!(Some(free) >= seen.free_chunks && offline == 0, "{count:?}");
            assert_eq!(open + closed > 0, tells, "{name}: {count:?}");
        }
    }

    /// A stripe of three has a row of parity for two of data, and none of it is counted as
    /// the target's.
    #[test]
    fn parity_is_told_beside_what_the_target_wrote() {
        let mut lent = lent("mem:tlc,size=64M,groups=1,pus=3,parity=3");
        let writes: Vec<_> = (0..1000).map(|n| (BlockOp::Write, n * 8192)).collect();
        ask(&mut lent, Time::ZERO, &writes);
        let seen = lent.glimpse(Time::ZERO);
        let [parity, folds] = seen.beside;
        assert!(parity.unwrap() > seen.written.user / 3 && folds.is_none(), "{parity:?}");
        let config = config_of("batch", ",parity=4", &[]);
        let medium = memory::medium(&config, BLOCK_BYTES as u32).unwrap();
        let device = new_device(&config, 1, medium.into()).unwrap();
        let mut drive = Link::new(LinkTiming::default(), batched::start(&config, device).unwrap());
        let mut now = drive.below().now();
        for page in 0..100 {
            let mut buffer = Buffer::zeroed(2 * BLOCK_BYTES as usize).unwrap();
            Desc::write(&[page], &[], buffer.bytes_mut());
            now = act(&mut drive, now, BatchOp::WriteBatch, 0, buffer).at;
        }
        let seen = drive.glimpse(now);
        let [parity, folds] = seen.beside;
        assert!(parity.unwrap() > 25 && folds.is_none(), "{parity:?}");
        // Little, if anything, was collected by then.
        assert!(seen.written.user > 0 && seen.written.gc < parity.unwrap() / 2, "{seen:?}");
    }

    /// A page that comes again in its batch was written once, and what was written is what
    /// was programmed, each block for one reason.
    #[test]
    fn batches_tell_what_was_programmed_for_whom() {
        let config = config_of("batch", "", &[]);
        let medium = memory::medium(&config, BLOCK_BYTES as u32).unwrap();
        let device = new_device(&config, 1, medium.into()).unwrap();
        let mut drive = Link::new(LinkTiming::default(), batched::start(&config, device).unwrap());
        let mut now = drive.below().now();
        for page in 0..100 {
            let mut buffer = Buffer::zeroed(4 * BLOCK_BYTES as usize).unwrap();
            Desc::write(&[page; 3], &[], buffer.bytes_mut());
            let done = act(&mut drive, now, BatchOp::WriteBatch, 0, buffer);
            assert!(done.status.is_ok());
            now = done.at;
        }
        let written = drive.glimpse(now).written;
        assert_eq!((written.user, written.absorbed), (100, 200));
        let sum = written.user + written.gc + written.padding + written.metadata;
        assert_eq!(sum, drive.below().counters().programmed, "{written:?}");
    }

    /// A die at work when the drive is lent tells what is left of that, not the drive's whole
    /// time until then.
    #[test]
    fn a_die_at_work_tells_what_is_left_of_it() {
        let Ok(DriveSpec::Memory(spec)) = "mem:tlc,size=64M".parse() else { panic!("a drive") };
        let mut drive = build(&spec.resolve().unwrap(), 1).unwrap();
        // Writes end in the buffer, and dies go on to program them.
        let writes: Vec<_> = (0..64).map(|n| (BlockOp::Write, n * 8192)).collect();
        let base = ask(&mut *drive, Time(1_000_000_000), &writes);
        let worked = Lent::watched(drive, base, true).0.glimpse(Time::ZERO).worked;
        assert!(worked.iter().any(|&ns| ns > 0), "{worked:?}");
        assert!(worked.iter().all(|&ns| ns < 10_000_000), "{worked:?}");
    }

    /// Nothing is counted where nobody looks.
    #[test]
    fn a_drive_that_nobody_watches_tells_no_stories() {
        let Ok(DriveSpec::Memory(spec)) = "mem:tlc,size=64M".parse() else { panic!("a drive") };
        let drive = build(&spec.resolve().unwrap(), 1).unwrap();
        let (mut lent, _owner) = Lent::new(drive, Time::ZERO);
        ask(&mut lent, Time::ZERO, &[(BlockOp::Write, 0)]);
        let seen = lent.glimpse(Time::ZERO);
        assert!(seen.worked.is_empty() && seen.live == Live::default());
    }
}
