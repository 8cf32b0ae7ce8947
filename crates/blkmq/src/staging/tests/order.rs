//! Whatever is asked and merged, all comes out once, in its order and with its data.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// What happens to a staging queue.
#[derive(Clone, Debug)]
enum Step {
    Insert { from: u32, op: BlockOp, fua: bool, sector: u64, sectors: u64, busy: bool, gap: bool },
    Next,
    Complete(prop::sample::Index),
    Unplug,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        4 => Just(BlockOp::Read),
        6 => Just(BlockOp::Write),
        1 => Just(BlockOp::Trim),
        1 => Just(BlockOp::WriteZeroes),
        1 => Just(BlockOp::Flush),
    ];
    let place = (0u64..24, 1u64..4);
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.8), prop::bool::weighted(0.3));
    let insert = (0u32..4, op, place, flags).prop_map(|(from, op, place, flags)| Step::Insert {
        from,
        op,
        fua: flags.0,
        sector: place.0,
        sectors: place.1,
        busy: flags.1,
        gap: flags.2,
    });
    prop_oneof![
        8 => insert,
        3 => Just(Step::Next),
        3 => any::<prop::sample::Index>().prop_map(Step::Complete),
        1 => Just(Step::Unplug),
        1 => (1u64..300).prop_map(Step::Wait),
    ]
}

/// What is known of a request that is inside.
struct Original {
    from: u32,
    submitted: Time,
    op: BlockOp,
    fua: bool,
    offset: u64,
    len: u64,
    /// Its buffer is here.
    at: usize,
    /// What its buffer will hold when it completes: of a read, if the order is
    /// kept.
    bytes: Vec<u8>,
}

/// A staging queue over a device that is memory, beside one that does all in
/// the order in which it comes.
struct World {
    staging: Staging,
    ordered: bool,
    now: Time,
    memory: Vec<u8>,
    expected: Vec<u8>,
    buffers: Buffer,
    inside: HashMap<u64, Original>,
    /// Dispatched, and what the buffer held then.
    out: Vec<(Outgoing, Vec<u8>)>,
    next_id: u64,
}

impl World {
    fn new(options: &StagingOptions) -> World {
        let scheduler = &options.scheduler;
        World {
            staging: staging(options),
            ordered: matches!(scheduler, SchedulerKind::None),
            now: Time(0),
            memory: vec![0; 32 << 9],
            expected: vec![0; 32 << 9],
            buffers: Buffer::zeroed(1 << 21).unwrap(),
            inside: HashMap::new(),
            out: Vec::new(),
            next_id: 1,
        }
    }

    fn insert(&mut self, mut req: BlockReq, from: u32, busy: bool, gap: bool) {
        if self.staging.room() == 0 {
            return;
        }
        let data = matches!(req.op, BlockOp::Read | BlockOp::Write);
        if gap {
            drop(self.buffers.split_to(512));
        }
        req.buffer = self.buffers.split_to(if data { req.len as usize } else { 0 });
        if req.op == BlockOp::Flush {
            (req.offset, req.len) = (0, 0);
        }
        for (i, byte) in req.buffer.bytes_mut().iter_mut().enumerate() {
            *byte = (req.id * 7 + i as u64 / 512 * 31) as u8;
        }
        let at = req.buffer.bytes().as_ptr() as usize;
        let mut bytes = req.buffer.bytes().to_vec();
        apply(&mut self.expected, &req, &mut bytes);
        let BlockReq { id, op, fua, offset, len, .. } = req;
        let submitted = self.now;
        let original = Original { from, submitted, op, fua, offset, len, at, bytes };
        self.inside.insert(id, original);
        self.staging.insert(self.now, from, busy, req);
    }

    fn next(&mut self) -> bool {
        let Some(mut out) = self.staging.next(self.now, 0) else { return false };
        assert!(SHAPE.check(&out.req).is_ok(), "{out:?}");
        let mut bytes = out.req.buffer.bytes().to_vec();
        apply(&mut self.memory, &out.req, &mut bytes);
        if out.req.op == BlockOp::Read {
            out.req.buffer.bytes_mut().copy_from_slice(&bytes);
        }
        self.out.push((out, bytes));
        true
    }

    fn complete(&mut self, index: usize) {
        let (out, bytes) = self.out.swap_remove(index);
        let Outgoing { req, from, submitted, parts } = out;
        let at = self.now;
        let mut seen = Vec::new();
        if parts.is_none() {
            let BlockReq { id, op, buffer, .. } = req;
            let done = BlockDone { id, op, status: Status::SUCCESS, at, buffer };
            seen.push((from, submitted, done));
        } else {
            let each = &mut |from, submitted, done| seen.push((from, submitted, done));
            self.staging.split(parts, Status::SUCCESS, at, req.buffer, each);
        }
        let mut covered = 0;
        for (from, submitted, done) in seen {
            let original = self.inside.remove(&done.id).expect("once");
            assert_eq!((original.from, original.submitted), (from, submitted));
            assert_eq!((original.op, original.fua, done.at), (done.op, req.fua, at));
            assert!(done.status.is_ok());
            assert_eq!(original.offset, req.offset + covered, "in the order of addresses");
            if !done.buffer.is_empty() {
                let range = covered as usize..(covered + original.len) as usize;
                assert_eq!(done.buffer.bytes(), &bytes[range], "what the device had or got");
                assert_eq!(done.buffer.bytes().as_ptr() as usize, original.at, "its own buffer");
            }
            if self.ordered || done.op == BlockOp::Write {
                assert_eq!(done.buffer.bytes(), original.bytes, "as if in order");
            }
            covered += original.len;
        }
        assert_eq!(covered, req.len, "the parts are the whole");
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert { from, op, fua, sector, sectors, busy, gap } => {
                let (offset, len) = (sector * SECTOR, sectors * SECTOR);
                let id = self.next_id;
                self.next_id += 1;
                let req = BlockReq { fua, ..BlockReq::new(id, op, offset, len, Buffer::empty()) };
                self.insert(req, from, busy, gap);
            }
            Step::Next => drop(self.next()),
            Step::Complete(_) if self.out.is_empty() => {}
            Step::Complete(index) => self.complete(index.index(self.out.len())),
            Step::Unplug => self.staging.unplug(),
            Step::Wait(ns) => self.now += ns,
        }
        if let Some(at) = self.staging.next_event() {
            assert!(self.staging.plugged && at <= self.now + 200);
        }
    }

    /// Lets all complete and looks whether everything is back.
    fn finish(mut self) {
        self.staging.unplug();
        while self.next() {}
        while !self.out.is_empty() {
            self.complete(0);
        }
        assert!(self.inside.is_empty() && self.staging.is_empty());
        let c = self.staging.counters();
        assert_eq!(c.inserted, c.dispatched + c.merged);
        if self.staging.merge != Merge::Off {
            let parts = PARTS_AT_ALL;
            let free = (self.staging.merger.free_parts(), self.staging.merger.free_bounces());
            assert_eq!(free, (parts, 16));
        }
        if self.ordered {
            assert_eq!(self.memory, self.expected);
        }
    }
}

const DEPTH: usize = 12;
const PARTS_AT_ALL: usize = 4 * (DEPTH + SHAPE.depth);

/// Does a request in `memory`; `bytes` is its buffer.
fn apply(memory: &mut [u8], req: &BlockReq, bytes: &mut [u8]) {
    let range = &mut memory[req.offset as usize..(req.offset + req.len) as usize];
    match req.op {
        BlockOp::Read => bytes.copy_from_slice(range),
        BlockOp::Write => range.copy_from_slice(bytes),
        BlockOp::Trim | BlockOp::WriteZeroes => range.fill(0),
        BlockOp::Flush => {}
    }
}

fn scheduler() -> impl Strategy<Value = SchedulerKind> {
    let deadline =
        DeadlineOptions { read_expire: 100, write_expire: 400, writes_starved: 1, fifo_batch: 3 };
    prop_oneof![
        2 => Just(SchedulerKind::None),
        1 => Just(SchedulerKind::Deadline(deadline)),
        1 => Just(SchedulerKind::Fair(FairOptions { weights: vec![1, 3, 1000] })),
    ]
}

proptest! {
    /// Whatever is set: all come back once, whole and with their data; without
    /// a scheduler, as if nothing had been merged.
    #[test]
    fn all_come_out_once_with_their_data(
        scheduler in scheduler(),
        merge in prop_oneof![Just(Merge::Off), Just(Merge::Simple), Just(Merge::Full)],
        merge_idle in any::<bool>(),
        plug in prop::option::of((1usize..14, 1u64..12, 0u64..200)),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let plug = plug.map(|(requests, sectors, ns)| {
            Plug { requests, bytes: sectors * SECTOR, ns }
        });
        let options =
            StagingOptions { scheduler, merge_idle, plug, ..options(DEPTH, merge) };
        let mut world = World::new(&options);
        steps.into_iter().for_each(|step| world.step(step));
        world.finish();
    }

    /// Plain first in, first out.
    #[test]
    fn without_a_scheduler_the_order_is_kept(sectors in prop::collection::vec(0u64..32, 1..64)) {
        let mut s = staging(&options(64, Merge::Off));
        for &sector in &sectors {
            s.insert(Time(0), 0, true, write(0, sector, 1));
        }
        let seen: Vec<u64> = drain(&mut s, Time(0)).into_iter().map(|(sector, _)| sector).collect();
        prop_assert_eq!(seen, sectors);
    }

    /// A core's requests keep their order with `fair`, merged or not: those of
    /// one core leave memory as if in order.
    #[test]
    fn fair_keeps_a_cores_order(
        steps in prop::collection::vec(step(), 1..200),
        merge in prop_oneof![Just(Merge::Off), Just(Merge::Full)],
    ) {
        let scheduler = SchedulerKind::Fair(FairOptions::default());
        let mut world = World::new(&StagingOptions { scheduler, ..options(DEPTH, merge) });
        world.ordered = true;
        for mut step in steps {
            if let Step::Insert { from, .. } = &mut step {
                *from = 2;
            }
            world.step(step);
        }
        world.finish();
    }
}
