use super::*;
use proptest::prelude::*;

const SECTOR: u64 = 512;

/// A port that takes few requests, does each when it takes it, and completes them
/// late and out of order. All that touches a bad stripe fails and changes nothing.
struct Shaky {
    /// A byte of each sector.
    sectors: Vec<u8>,
    room: usize,
    bad: Option<(u64, Status)>,
    inside: Vec<BlockDone>,
    random: u64,
    flushes: usize,
    now: Time,
}

impl Shaky {
    fn act(&mut self, req: &mut BlockReq) -> Status {
        assert!(req.offset + req.len <= self.sectors.len() as u64 * SECTOR, "inside its share");
        let (first, end) = ((req.offset / SECTOR) as usize, (req.offset + req.len) / SECTOR);
        let stripes = req.offset / STRIPE..(req.offset + req.len).div_ceil(STRIPE);
        self.flushes += usize::from(req.op == BlockOp::Flush);
        match self.bad {
            Some((stripe, status)) if stripes.contains(&stripe) => return status,
            _ => {}
        }
        let sectors = &mut self.sectors[first..end as usize];
        match req.op {
            BlockOp::Read => {
                for (all, byte) in req.buffer.bytes_mut().chunks_mut(SECTOR as usize).zip(sectors) {
                    all.fill(*byte);
                }
            }
            BlockOp::Write => {
                for (all, byte) in req.buffer.bytes().chunks(SECTOR as usize).zip(sectors) {
                    *byte = all[0];
                }
            }
            BlockOp::Trim | BlockOp::WriteZeroes => sectors.fill(0),
            BlockOp::Flush => assert_eq!((req.offset, req.len), (0, 0), "it has no address"),
        }
        Status::SUCCESS
    }
}

impl Port for Shaky {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        assert!(now >= self.now && self.next_event().is_none_or(|at| at >= now));
        self.now = now;
        while self.inside.len() < self.room
            && let Some(mut req) = cmds.pop()
        {
            let status = self.act(&mut req);
            self.random = crate::random::mix(self.random + 1);
            let at = now + self.random % 4 * 7;
            let BlockReq { id, op, buffer, .. } = req;
            self.inside.push(BlockDone { id, op, status, at, buffer });
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.iter().map(|done| done.at).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        assert!(to >= self.now && self.next_event().is_none_or(|at| to <= at));
        self.now = to;
        while done.room() > 0
            && let Some(i) = self.inside.iter().position(|done| done.at <= to)
        {
            done.put(|| self.inside.swap_remove(i));
        }
    }
}

/// What a test asks for, and what must come back.
struct Asked {
    op: BlockOp,
    len: usize,
    status: Status,
    /// Of a read, a byte of each sector.
    data: Vec<u8>,
}

/// Many shards and one flat drive, side by side.
struct Pair {
    striped: Striped<Shaky>,
    flat: Vec<u8>,
    asked: Vec<Option<Asked>>,
}

const MAX_BYTES: u64 = 5 * STRIPE;

impl Pair {
    fn new(shards: usize, bytes: u64, room: usize, seed: u64, bad: bool) -> Pair {
        let one = |n: usize| Shaky {
            sectors: vec![0; (share(bytes, shards, n) / SECTOR) as usize],
            room,
            // A stripe of each of the first two.
            bad: (bad && n < 2).then(|| (1, [Status::HIGH_ECC, Status::WRITE_FAULT][n])),
            inside: Vec::new(),
            random: seed + n as u64,
            flushes: 0,
            now: Time::ZERO,
        };
        let each = Shape { bytes: 0, kept: 4096, max_bytes: MAX_BYTES, depth: 3 };
        Pair {
            striped: Striped::new((0..shards).map(one).collect(), bytes, each),
            flat: vec![0; (bytes / SECTOR) as usize],
            asked: Vec::new(),
        }
    }

    /// What a request gives, done on the flat drive sector by sector.
    fn expect(&mut self, req: &BlockReq) -> Asked {
        let (op, len) = (req.op, req.buffer.len());
        let none = |status| Asked { op, len, status, data: Vec::new() };
        let status = self.striped.shape().check(req);
        if !status.is_ok() || op == BlockOp::Flush {
            return none(status);
        }
        let count = self.striped.count() as u64;
        let stripe = |sector: u64| sector * SECTOR / STRIPE;
        let sectors = req.offset / SECTOR..(req.offset + req.len) / SECTOR;
        let is_bad = |sector: u64, shard: u64| {
            let bad = self.striped.shard(shard as usize).bad;
            let here = stripe(sector) % count == shard;
            bad.filter(|(bad, _)| here && stripe(sector) / count == *bad).map(|(_, why)| why)
        };
        let of_shard = |shard| sectors.clone().find_map(|sector| is_bad(sector, shard));
        let failed: Vec<_> = (0..count).map(of_shard).collect();
        let status = failed.iter().flatten().fold(Status::SUCCESS, |a, &b| worst(a, b));
        let mut data = Vec::new();
        for sector in sectors {
            let shard = stripe(sector) % count;
            // A trim is one piece for a shard, a read or write one for a stripe.
            let lost = match op {
                BlockOp::Read | BlockOp::Write => is_bad(sector, shard),
                _ => failed[shard as usize],
            };
            let byte = &mut self.flat[sector as usize];
            match op {
                BlockOp::Write if lost.is_none() => {
                    *byte = req.buffer.bytes()[data.len() * SECTOR as usize];
                }
                BlockOp::Trim | BlockOp::WriteZeroes if lost.is_none() => *byte = 0,
                _ => {}
            }
            data.push(if lost.is_some() { 0xee } else { *byte });
        }
        Asked { op, len, status, data }
    }

    fn check(&mut self, done: &BlockDone, at: Time) {
        let asked = self.asked[done.id as usize].take().expect("it completes once");
        assert_eq!((done.op, done.status, done.buffer.len()), (asked.op, asked.status, asked.len));
        assert!(done.at <= at);
        if done.op == BlockOp::Read && !asked.data.is_empty() {
            let bytes = done.buffer.bytes().chunks(SECTOR as usize).map(|sector| sector[0]);
            assert!(bytes.eq(asked.data.iter().copied()), "request {}", done.id);
        }
    }
}

/// Operation, first sector, sectors, and how many go before the next turn.
type Step = (u8, u64, u64, bool);

/// Runs the steps, and gives when each completed.
fn run(pair: &mut Pair, steps: &[Step], done_at_once: usize) -> Vec<(u64, Time)> {
    let (mut cmds, mut done) = (Ring::new(4), Ring::new(done_at_once));
    let (mut now, mut all, mut flushes) = (Time::ZERO, Vec::new(), 0);
    let mut turn = |pair: &mut Pair, cmds: &mut Ring<BlockReq>| {
        let before = cmds.len();
        let turn = pair.striped.turn(now, None, cmds, &mut done);
        if let crate::Turn::Completed(at) | crate::Turn::Stays(at) = turn {
            now = at;
        }
        for one in done.drain() {
            pair.check(&one, now);
            all.push((one.id, one.at));
        }
        turn != crate::Turn::Quiet || cmds.len() < before
    };
    for &(op, first, sectors, more) in steps {
        let op =
            [BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Trim, BlockOp::WriteZeroes]
                [op as usize];
        let len = if op == BlockOp::Flush { 0 } else { sectors * SECTOR };
        let is_data = matches!(op, BlockOp::Read | BlockOp::Write);
        let id = pair.asked.len() as u64;
        let mut buffer = Buffer::zeroed(if is_data { len as usize } else { 0 }).unwrap();
        let fill = if op == BlockOp::Write { id as u8 } else { 0xee };
        buffer.bytes_mut().fill(fill);
        let req = BlockReq::new(id, op, first * SECTOR, len, buffer);
        let asked = pair.expect(&req);
        flushes += usize::from(op == BlockOp::Flush);
        pair.asked.push(Some(asked));
        cmds.put(|| req);
        while !cmds.is_empty() && (!more || cmds.room() == 0) {
            turn(pair, &mut cmds);
        }
    }
    while turn(pair, &mut cmds) {}
    assert!(cmds.is_empty() && pair.asked.iter().all(Option::is_none), "all completed");
    assert!((0..pair.striped.count()).all(|n| pair.striped.shard(n).flushes == flushes));
    assert_eq!(pair.striped.inside.live(), 0);
    all
}

#[test]
fn shares_are_all_of_it() {
    for shards in 1..6 {
        for bytes in (0..20 * STRIPE).step_by(4096) {
            let all = (0..shards).map(|n| share(bytes, shards, n));
            assert_eq!(all.clone().sum::<u64>(), bytes);
            assert!(all.is_sorted_by(|a, b| a >= b), "the first is the largest");
        }
    }
}

#[test]
fn pieces_of_one_shard_are_in_order() {
    let mut pair = Pair::new(3, 12 * STRIPE, 1, 5, false);
    let sectors = STRIPE / SECTOR;
    // One after the other over the same stripes, all inside at once.
    let steps: Vec<Step> =
        (0..40).map(|i| ((i % 2) as u8, sectors / 2, sectors * 3, true)).collect();
    run(&mut pair, &steps, 2);
}

proptest! {
    #[test]
    fn shards_are_as_one_drive(
        shards in 1usize..5,
        // Also what does not go round evenly, and requests past the end.
        blocks in 64u64..300,
        room in 1usize..5,
        seed in any::<u32>(),
        bad: bool,
        done_at_once in 1usize..4,
        steps in prop::collection::vec((0u8..5, 0u64..2400, 0u64..700, any::<bool>()), 1..80),
    ) {
        let make = || Pair::new(shards, blocks * 4096, room, seed.into(), bad);
        let first = run(&mut make(), &steps, done_at_once);
        prop_assert_eq!(&first, &run(&mut make(), &steps, done_at_once), "the same again");
        let mut told = make();
        told.striped.set_stories(true);
        prop_assert_eq!(first, run(&mut told, &steps, done_at_once), "whoever looks");
    }
}
