use proptest::prelude::*;

use super::*;
use crate::config::Merge;
use crate::scheduler::SchedulerKind;
use crate::staging::{Staging, StagingOptions};
use port::{Buffer, Shape};

const BLOCK: u64 = 4096;
const SMALL: DeadlineOptions =
    DeadlineOptions { read_expire: 50, write_expire: 200, writes_starved: 2, fifo_batch: 3 };

fn staging(options: DeadlineOptions, depth: usize) -> Staging {
    let shape = Shape { bytes: 1 << 30, kept: 0, max_bytes: 1 << 20, depth: 8 };
    let (scheduler, merge) = (SchedulerKind::Deadline(options), Merge::Off);
    let (merge_idle, plug, cores) = (false, None, 1);
    Staging::new(&StagingOptions {
        depth,
        scheduler,
        merge,
        merge_idle,
        plug,
        cores,
        ways: Vec::new(),
        shared: false,
        shape,
    })
    .unwrap()
}

fn req(id: u64, op: BlockOp, block: u64, blocks: u64) -> BlockReq {
    BlockReq::new(id, op, block * BLOCK, blocks * BLOCK, Buffer::empty())
}

/// The ids in the order in which they go out at `now`.
fn drain(s: &mut Staging, now: Time) -> Vec<u64> {
    std::iter::from_fn(|| s.next(now, 0)).map(|out| out.req.id).collect()
}

/// Stages requests at `Time(0)`; the ids are their places.
fn fill(s: &mut Staging, reqs: &[(BlockOp, u64)]) {
    for (id, &(op, block)) in reqs.iter().enumerate() {
        s.insert(Time(0), 0, true, req(id as u64, op, block, 1));
    }
}

#[test]
fn batches_go_upwards_and_reads_first() {
    use BlockOp::{Read, Write};
    let mut s = staging(SMALL, 16);
    let reads = [9, 1, 5, 3, 7, 8, 6, 2].map(|block| (Read, block));
    let writes = [4, 2, 3].map(|block| (Write, block));
    fill(&mut s, &[&reads[..], &writes[..]].concat());
    // The first three go on from where the reads were, at zero; then two
    // batches while writes wait, and the writes.
    assert_eq!(drain(&mut s, Time(0)), [1, 7, 3, 2, 6, 4, 5, 0, 9, 10, 8]);
}

#[test]
fn an_expired_request_starts_the_next_batch() {
    let mut s = staging(SMALL, 16);
    fill(&mut s, &[4, 1, 2, 3, 5].map(|block| (BlockOp::Read, block)));
    assert_eq!(drain(&mut s, Time(49)), [1, 2, 3, 0, 4]);
    fill(&mut s, &[9, 6, 7, 8, 10].map(|block| (BlockOp::Read, block)));
    // The batch that ended with block 5 has one to go.
    assert_eq!(drain(&mut s, Time(50)), [1, 0, 4, 2, 3]);
}

#[test]
fn flushes_and_trims_go_in_turn_with_sorted_writes() {
    use BlockOp::{Flush, Trim, Write};
    let options = DeadlineOptions { fifo_batch: 2, ..SMALL };
    let mut s = staging(options, 16);
    let reqs = [(Trim, 9), (Write, 4), (Trim, 1), (Write, 2), (Flush, 0), (Write, 8), (Write, 6)];
    fill(&mut s, &reqs);
    assert_eq!(drain(&mut s, Time(0)), [0, 3, 1, 6, 2, 5, 4]);
}

#[test]
fn a_full_queue_at_one_address_keeps_its_order() {
    let mut s = staging(SMALL, 64);
    fill(&mut s, &[(BlockOp::Write, 5); 64]);
    assert_eq!(drain(&mut s, Time(1000)), (0..64).collect::<Vec<_>>());
}

/// The scheduler in the plainest words: lists that are searched.
struct Model {
    options: DeadlineOptions,
    /// Oldest first.
    ways: [Vec<(Time, BlockReq)>; 2],
    unsorted: Vec<BlockReq>,
    positions: [u64; 2],
    way: usize,
    batch: u32,
    starved: u32,
    loose: bool,
}

impl Model {
    fn new(options: DeadlineOptions) -> Model {
        Model {
            options,
            ways: [Vec::new(), Vec::new()],
            unsorted: Vec::new(),
            positions: [0; 2],
            way: READ,
            batch: 0,
            starved: 0,
            loose: false,
        }
    }

    fn insert(&mut self, now: Time, req: BlockReq) {
        match req.op {
            BlockOp::Read => self.ways[READ].push((now, req)),
            BlockOp::Write | BlockOp::WriteZeroes => self.ways[WRITE].push((now, req)),
            BlockOp::Flush | BlockOp::Trim => self.unsorted.push(req),
        }
    }

    /// The place of the closest one upwards.
    fn ahead(&self, way: usize) -> Option<usize> {
        let entries = self.ways[way].iter().enumerate();
        let up = entries.filter(|(_, (_, req))| req.offset >= self.positions[way]);
        up.min_by_key(|(at, (_, req))| (req.offset, *at)).map(|(at, _)| at)
    }

    fn take(&mut self, way: usize, at: usize) -> u64 {
        let (_, req) = self.ways[way].remove(at);
        self.positions[way] = req.offset + req.len;
        self.batch += 1;
        req.id
    }

    fn next(&mut self, now: Time) -> Option<u64> {
        let DeadlineOptions { read_expire, write_expire, writes_starved, fifo_batch } =
            self.options;
        if self.batch < fifo_batch
            && let Some(at) = self.ahead(self.way)
        {
            return Some(self.take(self.way, at));
        }
        let reads = !self.ways[READ].is_empty();
        let writes = !self.ways[WRITE].is_empty() || !self.unsorted.is_empty();
        if !reads && !writes {
            return None;
        }
        let turn = reads && !(writes && self.starved >= writes_starved);
        self.starved = if !turn { 0 } else { self.starved + u32::from(writes) };
        self.way = if turn { READ } else { WRITE };
        self.batch = 0;
        let free = !self.loose || self.ways[WRITE].is_empty();
        if self.way == WRITE {
            self.loose = !self.unsorted.is_empty() && free;
            if self.loose {
                self.batch = 1;
                return Some(self.unsorted.remove(0).id);
            }
        }
        let expire = [read_expire, write_expire][self.way];
        let expired = now.since(self.ways[self.way][0].0) >= expire;
        let at = if expired { 0 } else { self.ahead(self.way).unwrap_or(0) };
        Some(self.take(self.way, at))
    }
}

fn op() -> impl Strategy<Value = BlockOp> {
    prop_oneof![
        4 => Just(BlockOp::Read),
        4 => Just(BlockOp::Write),
        1 => Just(BlockOp::WriteZeroes),
        1 => Just(BlockOp::Trim),
        1 => Just(BlockOp::Flush),
    ]
}

proptest! {
    /// The same order as the model's.
    #[test]
    fn it_does_as_the_model(
        steps in prop::collection::vec(
            prop_oneof![
                (op(), 0u64..40, 0u64..5, 0u64..60).prop_map(Some),
                Just(None),
            ],
            1..300,
        ),
        fifo_batch in 1u32..6,
        writes_starved in 0u32..4,
    ) {
        let options = DeadlineOptions { fifo_batch, writes_starved, ..SMALL };
        let (mut s, mut model) = (staging(options, 32), Model::new(options));
        let mut now = Time(0);
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Some((op, block, blocks, ns)) if s.room() > 0 => {
                    now += ns;
                    s.insert(now, 0, true, req(id as u64, op, block, blocks));
                    model.insert(now, req(id as u64, op, block, blocks));
                }
                _ => prop_assert_eq!(s.next(now, 0).map(|out| out.req.id), model.next(now)),
            }
        }
        while let Some(id) = model.next(now) {
            prop_assert_eq!(s.next(now, 0).map(|out| out.req.id), Some(id));
        }
        prop_assert!(s.next(now, 0).is_none() && s.is_empty());
    }

    /// What is known of the order is right after every step, when requests
    /// grow to the front, too.
    #[test]
    fn its_tables_agree(steps in prop::collection::vec((0u32..5, 0u64..60, 0u64..4), 1..300)) {
        let mut deadline = Deadline::new(SMALL, 32).unwrap();
        let mut table = Table::new(32);
        let mut inside: Vec<u32> = Vec::new();
        for (id, (what, block, blocks)) in steps.into_iter().enumerate() {
            if what < 3 && table.room() > 0 {
                let slot = table.take_as_is();
                table[slot].out.req = req(id as u64, BlockOp::Write, block, blocks);
                deadline.push(slot, &table[slot].out.req);
                inside.push(slot);
            } else if what == 3 && !inside.is_empty() {
                let slot = inside[block as usize % inside.len()];
                let grown = &mut table[slot].out.req;
                let front = (blocks * BLOCK).min(grown.offset);
                (grown.offset, grown.len) = (grown.offset - front, grown.len + front);
                deadline.readdress(slot, &table[slot].out.req);
            } else if let Some(slot) = deadline.pop(Time(0), &table) {
                inside.retain(|&other| other != slot);
                table.give(slot);
            }
            let sorted = &deadline.ways[WRITE].sorted;
            let addresses: Vec<u64> =
                sorted.slots.iter().map(|&slot| table[slot].out.req.offset).collect();
            prop_assert!(addresses.is_sorted() && addresses.len() == inside.len());
            prop_assert_eq!(sorted.passed, sorted.below(sorted.position));
        }
    }

    /// What has expired and is the oldest goes out within the batches that the
    /// file's head says, however busy the queue is kept.
    #[test]
    fn none_waits_long_after_it_expired(
        reqs in prop::collection::vec((op(), 0u64..60), 100..400),
        fifo_batch in 1u32..6,
        writes_starved in 1u32..4,
    ) {
        let options = DeadlineOptions { fifo_batch, writes_starved, ..SMALL };
        let mut s = staging(options, 24);
        let mut fifo = [Vec::new(), Vec::new()];
        let mut since = [0u32; 2];
        let mut now = Time(0);
        for (id, (op, block)) in reqs.into_iter().enumerate() {
            now += 7;
            s.insert(now, 0, true, req(id as u64, op, block, 1));
            if let Some(way) = way(op) {
                fifo[way].push((id as u64, now));
            }
            if s.room() > 0 {
                continue;
            }
            for way in [READ, WRITE] {
                let expire = [options.read_expire, options.write_expire][way];
                let due = fifo[way].first().is_some_and(|(_, at)| now.since(*at) >= expire);
                since[way] = if due { since[way] + 1 } else { 0 };
            }
            let out = s.next(now, 0).expect("it is full").req;
            if let Some(way) = way(out.op) {
                let at = fifo[way].iter().position(|(id, _)| *id == out.id).expect("it is inside");
                fifo[way].remove(at);
                since[way] = if at == 0 { 0 } else { since[way] };
            }
            prop_assert!(since[READ] <= 2 * fifo_batch, "{since:?}");
            prop_assert!(since[WRITE] <= 2 * (writes_starved + 1) * fifo_batch, "{since:?}");
        }
    }
}
