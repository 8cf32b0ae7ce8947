//! Random requests against a byte array, in every way that storage can be
//! opened; what was written is there after reopening.

use crate::common;
use std::time::Duration;

use crate::common::{buffered, file, if_possible, open_again, queue, run};
use port::{BlockOp, BlockReq, Buffer, Status};
use proptest::prelude::*;
use storage::{Engine, Poll, Pool, Storage, StorageOptions, StorageQueue};

const BYTES: u64 = 512 << 10;

/// An operation on the drive, in units.
#[derive(Clone, Debug)]
struct Step {
    op: BlockOp,
    fua: bool,
    start: u64,
    units: u64,
    fill: u8,
}

fn step(units: u64) -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        4 => Just(BlockOp::Read),
        4 => Just(BlockOp::Write),
        1 => Just(BlockOp::Flush),
        2 => Just(BlockOp::Trim),
        2 => Just(BlockOp::WriteZeroes),
    ];
    let parts = (op, any::<bool>(), 0..units, 1u64..24, any::<u8>());
    parts.prop_map(move |(op, fua, start, len, fill)| {
        let units = len.min(units - start);
        Step { op, fua, start, units, fill }
    })
}

/// Where buffers come from.
struct Source(Option<Pool>);

impl Source {
    /// A buffer of `len`, with the rest of it, if it is cut from a larger one.
    fn get(&mut self, len: usize) -> (Buffer, Option<Buffer>) {
        match self.0.as_mut().and_then(Pool::take) {
            Some(mut large) => (large.split_to(len), Some(large)),
            None => (Buffer::zeroed(len).unwrap(), None),
        }
    }
}

/// Fills `bytes` so that every sector is another.
fn pattern(bytes: &mut [u8], seed: u8) {
    for (i, sector) in bytes.chunks_mut(512).enumerate() {
        sector.fill(seed.wrapping_add(i as u8));
    }
}

/// Runs one batch of requests that do not touch each other, and compares.
fn check(queue: &mut StorageQueue, batch: &[Step], unit: u64, model: &mut [u8], from: &mut Source) {
    let mut requests = Vec::new();
    for (id, s) in batch.iter().enumerate() {
        let len = s.units * unit;
        let data = matches!(s.op, BlockOp::Read | BlockOp::Write);
        let (mut buffer, _) = from.get(if data { len as usize } else { 0 });
        pattern(buffer.bytes_mut(), s.fill);
        let (op, fua, offset) = (s.op, s.fua, s.start * unit);
        requests.push(BlockReq { fua, ..BlockReq::new(id as u64, op, offset, len, buffer) });
    }
    for done in run(queue, requests) {
        assert_eq!(done.status, Status::SUCCESS);
        let s = &batch[done.id as usize];
        let part = &mut model[(s.start * unit) as usize..][..(s.units * unit) as usize];
        match s.op {
            BlockOp::Read => assert!(done.buffer.bytes() == part, "{s:?} reads something else"),
            BlockOp::Write => pattern(part, s.fill),
            BlockOp::Trim | BlockOp::WriteZeroes => part.fill(0),
            BlockOp::Flush => {}
        }
    }
}

/// Runs all steps, as many at once as do not touch each other.
fn compare(storage: Storage, steps: &[Step], unit: u64, pool: Option<Pool>) -> Vec<u8> {
    let (mut queue, mut from) = (queue(storage), Source(pool));
    let mut model = vec![0; BYTES as usize];
    let mut batch: Vec<Step> = Vec::new();
    for s in steps {
        let apart = |t: &Step| s.start + s.units <= t.start || t.start + t.units <= s.start;
        if !batch.iter().all(apart) {
            check(&mut queue, &batch, unit, &mut model, &mut from);
            batch.clear();
        }
        batch.push(s.clone());
    }
    check(&mut queue, &batch, unit, &mut model, &mut from);
    model
}

/// The steps on a new drive; then the file itself is as the model.
fn try_with(options: StorageOptions, steps: &[Step], pool: Option<Pool>) {
    let (_dir, path) = file(BYTES);
    let unit = if options.direct { 4096 } else { 512 };
    let Some(storage) = if_possible(&path, options) else { return };
    let model = compare(storage, steps, unit, pool);
    assert!(std::fs::read(&path).unwrap() == model, "the file is something else");
    // And once more through the driver.
    let mut again = queue(open_again(&path, buffered()).unwrap());
    let all = run(&mut again, vec![common::request(0, BlockOp::Read, 0, BYTES, 1)]);
    assert!(all[0].buffer.bytes() == model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn buffered_is_as_the_model(
        steps in prop::collection::vec(step(BYTES / 512), 1..80),
        depth in 1usize..=256,
    ) {
        try_with(StorageOptions { depth, ..buffered() }, &steps, None);
    }

    #[test]
    fn direct_is_as_the_model(
        steps in prop::collection::vec(step(BYTES / 4096), 1..80),
        depth in 1usize..=256,
        shared in any::<bool>(),
    ) {
        try_with(StorageOptions { depth, shared, ..StorageOptions::default() }, &steps, None);
    }

    #[test]
    fn other_engines_are_as_the_model(
        steps in prop::collection::vec(step(BYTES / 4096), 1..80),
        engine in prop::sample::select(&Engine::ALL[1..]),
        depth in 1usize..=64,
        direct in any::<bool>(),
        poll_queues in 0usize..2,
    ) {
        let depth = if engine.is_lone() { 1 } else { depth };
        let poll_queues = if engine == Engine::Pvsync2 && direct { poll_queues } else { 0 };
        let options = StorageOptions { engine, depth, direct, poll_queues, ..Default::default() };
        try_with(options, &steps, None);
    }

    #[test]
    fn registered_memory_is_as_the_model(
        steps in prop::collection::vec(step(BYTES / 4096), 1..80),
        direct in any::<bool>(),
    ) {
        // Not enough for all: some requests use other memory.
        let pool = Pool::new(40, 24 * 4096).unwrap();
        let options = StorageOptions { direct, regions: pool.regions(), ..StorageOptions::default() };
        try_with(options, &steps, Some(pool));
    }

    #[test]
    fn a_submitting_thread_is_as_the_model(
        steps in prop::collection::vec(step(BYTES / 4096), 1..40),
        depth in 1usize..=32,
        poll_queues in 0usize..2,
    ) {
        let sqpoll_idle = Some(Duration::from_millis(2));
        let poll = Poll::Auto;
        let options =
            StorageOptions { depth, sqpoll_idle, poll_queues, poll, ..StorageOptions::default() };
        try_with(options, &steps, None);
    }
}
