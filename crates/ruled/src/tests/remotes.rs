//! A cache made of rules in front of a remote drive: lives in the simulator, any interleaving
//! against a model, and the set that comes with the program on two drives.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use ftl::{Over, Start, Target};
use port::random::Random;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};
use rules::Checked;
use simulation::{Lower, Setup, lives};

use super::{Small, checked, small_keeping, suit};
use crate::mutation::{Mutation, set as break_by};
use crate::{Remote, RemoteDrive, RemoteError, Ruled, RuledConfig};

/// What a remote drive has, which outlives those that use it.
#[derive(Debug)]
struct Held {
    bytes: u64,
    kept: u32,
    /// By block, what is there, and what was flushed of that.
    now: HashMap<u64, Box<[u8]>>,
    flushed: HashMap<u64, Box<[u8]>>,
    random: Random,
    /// Requests of so many of which one fails; 0 for none.
    fails: u64,
    requests: u64,
    failed: u64,
}

impl Held {
    fn new(bytes: u64, kept: u32, seed: u64) -> Arc<Mutex<Held>> {
        let (now, flushed, random) = (HashMap::new(), HashMap::new(), Random::new(seed, 1));
        let (fails, requests, failed) = (0, 0, 0);
        Arc::new(Mutex::new(Held { bytes, kept, now, flushed, random, fails, requests, failed }))
    }

    /// The power of it goes: of what was not flushed some is lost.
    fn cut(&mut self) {
        let mut all: Vec<u64> = self.now.keys().chain(self.flushed.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        for lba in all {
            let (now, flushed) = (self.now.get(&lba), self.flushed.get(&lba));
            if now != flushed && self.random.below(2) == 0 {
                match flushed.cloned() {
                    Some(bytes) => self.now.insert(lba, bytes),
                    None => self.now.remove(&lba),
                };
            }
        }
        self.flushed = self.now.clone();
    }

    fn write(&mut self, lba: u64, bytes: Option<&[u8]>, is_durable: bool) {
        for map in [&mut self.now, &mut self.flushed].into_iter().take(1 + usize::from(is_durable))
        {
            match bytes {
                Some(bytes) => map.insert(lba, bytes.into()),
                None => map.remove(&lba),
            };
        }
    }

    /// Does a request.
    fn act(&mut self, req: &mut BlockReq) -> Status {
        self.requests += 1;
        if self.fails > 0 && self.random.below(self.fails) == 0 {
            self.failed += 1;
            return Status::INTERNAL;
        }
        let (kept, first) = (self.kept as usize, req.offset / BLOCK_BYTES);
        for n in 0..req.len / BLOCK_BYTES {
            let (lba, at) = (first + n, n as usize * kept);
            match req.op {
                BlockOp::Read => {
                    let to = &mut req.buffer.bytes_mut()[at..at + kept];
                    match self.now.get(&lba) {
                        Some(bytes) => to.copy_from_slice(bytes),
                        None => to.fill(0),
                    }
                }
                BlockOp::Write => {
                    self.write(lba, Some(&req.buffer.bytes()[at..at + kept]), req.fua);
                }
                BlockOp::Trim | BlockOp::WriteZeroes => self.write(lba, None, req.fua),
                BlockOp::Flush => {}
            }
        }
        if req.op == BlockOp::Flush {
            self.flushed = self.now.clone();
        }
        Status::SUCCESS
    }
}

/// A remote drive that does each request at a moment of its choice between 1 and 50 us, and
/// tells of it up to 20 us later.
struct Far {
    held: Arc<Mutex<Held>>,
    inside: BTreeMap<(Time, u64), Step>,
    order: u64,
    depth: usize,
}

enum Step {
    Act(BlockReq),
    Tell(BlockDone),
}

impl Far {
    fn drive(held: &Arc<Mutex<Held>>, depth: usize) -> RemoteDrive {
        let held = held.clone();
        RemoteDrive::new(move || {
            held.lock().unwrap().cut();
            let (held, inside) = (held.clone(), BTreeMap::new());
            Ok(Box::new(Far { held, inside, order: 0, depth }))
        })
    }

    fn add(&mut self, at: Time, step: Step) {
        self.order += 1;
        self.inside.insert((at, self.order), step);
    }
}

impl Port for Far {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.inside.len() < self.depth
            && let Some(req) = cmds.pop()
        {
            let after = 1_000 + self.held.lock().unwrap().random.below(50_000);
            self.add(now + after, Step::Act(req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.keys().next().map(|key| key.0)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while let Some(first) = self.inside.first_entry().filter(|first| first.key().0 <= to) {
            match first.remove() {
                Step::Tell(one) => done.put(|| one),
                Step::Act(mut req) => {
                    let (status, after) = {
                        let mut held = self.held.lock().unwrap();
                        (held.act(&mut req), 1 + held.random.below(20_000))
                    };
                    let BlockReq { id, op, buffer, .. } = req;
                    let at = to + after;
                    self.add(at, Step::Tell(BlockDone { id, op, status, at, buffer }));
                }
            }
        }
    }
}

impl Remote for Far {
    fn shape(&self) -> Shape {
        let Held { bytes, kept, .. } = *self.held.lock().unwrap();
        Shape { bytes, kept, max_bytes: 32 * BLOCK_BYTES, depth: self.depth }
    }

    fn end(self: Box<Self>, _: Time) -> Result<(), RemoteError> {
        Ok(())
    }
}

thread_local! {
    /// Whether lives of this thread have a remote drive, and by seed what that has.
    static ON: Cell<bool> = const { Cell::new(false) };
    static HELD: RefCell<HashMap<u64, Arc<Mutex<Held>>>> = RefCell::default();
}

pub(super) fn are_on() -> bool {
    ON.get()
}

/// The remote drives of a life.
pub(super) fn of(setup: &Setup) -> Vec<RemoteDrive> {
    if !are_on() {
        return Vec::new();
    }
    HELD.with_borrow_mut(|all| {
        let make = || Held::new(setup.bytes, setup.kept, setup.seed);
        let held = all.entry(setup.seed).or_insert_with(make);
        vec![Far::drive(held, 1 + setup.seed as usize % 40)]
    })
}

/// A cache of so few places that blocks meet there, by its kind: written through; with a third
/// of the blocks placed here; or with limits and delays, where all waits.
pub(super) fn set(blocks: u64, units: u64, kind: u64) -> Checked {
    let places = (blocks / 3).max(1);
    let here = match kind {
        1 | 2 => {
            "rule here priority 9 when op == write and lba % 3 == 1 then place into at[lba]
             rule read_here priority 9 when op == read and lba % 3 == 1 and at[lba] != none
               then serve at[lba]
             rule keep_here priority 8 when op == read and lba % 3 == 1
               then fill into at[lba], remote 0
             rule trim_here priority 9 when (op == trim or op == zero) and lba % 3 == 1
               do at[lba] = none then remote 0"
        }
        _ => "",
    };
    let (base, wait) = match kind {
        2 | 3 => (blocks, "then limit few, delay 2us"),
        _ => (blocks, "then limit many"),
    };
    checked(&format!(
        "set cache
         application 0 lba 0..{blocks} units 0..{units} remotes 0..1
         map at[{all}] of address in 0..{units}
         map holds[{places}] of 0..{blocks}
         limit few depth 7
         limit many depth 200
         rule wait priority 20 when op == read or op == write {wait}
         {here}
         rule hit priority 5
           when op == read and holds[lba % {places}] == lba and at[{base} + lba % {places}] != none
           then serve at[{base} + lba % {places}]
         rule keep priority 4 when op == read
           do holds[lba % {places}] = lba; at[{base} + lba % {places}] = none
           then fill unit lba % {units} into at[{base} + lba % {places}], remote 0
         rule write priority 3 when op == write
           do at[{base} + lba % {places}] = none then remote 0
         rule trim priority 3 when op == trim or op == zero
           do at[{base} + lba % {places}] = none then remote 0
         rule flush priority 2 when op == flush then pass
         rule idle priority 2 when op == idle and free < 25 then collect greedy",
        all = blocks + places,
    ))
}

fn far_lives(seeds: std::ops::Range<u64>) -> Result<simulation::Counts, simulation::BrokenLife> {
    HELD.with_borrow_mut(HashMap::clear);
    ON.set(true);
    let counts = lives::<Ruled<Lower>>(seeds, 8, suit);
    ON.set(false);
    counts
}

/// A life that once failed: a read that waited served what its entry led to when it went on,
/// which was given up meanwhile, so that it gave zeros.
#[test]
fn a_read_that_waits_asks_again_where_its_entry_is_given_up() {
    far_lives(1..2).unwrap();
}

/// What was flushed is there after a cut, of both drives, and nothing older stands for newer.
#[test]
fn with_a_remote_drive_they_keep_the_contract() {
    let counts = far_lives(0..200).unwrap();
    assert_eq!((counts.lives, counts.cycles), (200, 1600));
    assert!(counts.fua > 1000 && counts.clean_closes > 50, "{counts:?}");
}

/// That an older block is kept, or that one is served that was given up, is found.
#[test]
fn what_stands_for_a_newer_block_is_found() {
    for mutation in Mutation::ALL {
        let breaks = |seed: &u64| {
            break_by(Some(mutation));
            let broken = far_lives(*seed..*seed + 1).is_err();
            break_by(None);
            broken
        };
        let seed = (0..400).find(breaks).unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?} is found by seed {seed}");
        far_lives(seed..seed + 1).unwrap();
    }
}

/// What a host knows of a block: what it may be, and what is being written.
#[derive(Clone, Debug)]
struct Known {
    may_be: Vec<u64>,
    written: Option<u64>,
}

/// A request that is inside, and of a read what each block may give.
struct Inside {
    op: BlockOp,
    first: usize,
    /// Of a write what it writes, by block.
    stamps: Vec<u64>,
    may_be: Vec<Vec<u64>>,
}

/// A host that asks a cache for random things, many at once, and knows what it must get. It
/// writes to a block once at a time.
struct Model {
    blocks: Vec<Known>,
    inside: HashMap<u64, Inside>,
    next: u64,
    failed: u64,
    kept: usize,
}

impl Model {
    fn request(&mut self, op: BlockOp, first: usize, count: usize, fua: bool) -> Option<BlockReq> {
        let range = first..(first + count).min(self.blocks.len());
        let changes = op != BlockOp::Read;
        if changes && self.blocks[range.clone()].iter().any(|known| known.written.is_some()) {
            return None;
        }
        let (mut stamps, mut may_be) = (Vec::new(), Vec::new());
        for known in &mut self.blocks[range.clone()] {
            if changes {
                self.next += 1;
                stamps.push(if op == BlockOp::Write { self.next } else { 0 });
                known.written = stamps.last().copied();
            } else {
                may_be.push(known.may_be.iter().copied().chain(known.written).collect());
            }
        }
        if changes {
            // Whoever reads these meanwhile may get them.
            for other in self.inside.values_mut().filter(|other| other.op == BlockOp::Read) {
                for (n, stamp) in range.clone().zip(&stamps) {
                    if let Some(at) = n.checked_sub(other.first)
                        && let Some(may_be) = other.may_be.get_mut(at)
                    {
                        may_be.push(*stamp);
                    }
                }
            }
        }
        let mut buffer = Buffer::empty();
        if matches!(op, BlockOp::Read | BlockOp::Write) {
            buffer = Buffer::zeroed(range.len() * self.kept).unwrap();
            for (bytes, stamp) in buffer.bytes_mut().chunks_exact_mut(self.kept).zip(&stamps) {
                bytes[..8].copy_from_slice(&stamp.to_le_bytes());
            }
        }
        self.next += 1;
        let (id, placement, queue) = (self.next, 0, 0);
        let (offset, len) = (first as u64 * BLOCK_BYTES, range.len() as u64 * BLOCK_BYTES);
        self.inside.insert(id, Inside { op, first, stamps, may_be });
        Some(BlockReq { id, op, fua, placement, queue, offset, len, buffer })
    }

    fn ended(&mut self, done: &BlockDone) {
        let Inside { op, first, stamps, may_be } = self.inside.remove(&done.id).unwrap();
        let is_ok = done.status.is_ok();
        self.failed += u64::from(!is_ok);
        for (n, stamp) in (first..).zip(stamps) {
            let known = &mut self.blocks[n];
            known.written = None;
            if is_ok {
                known.may_be.clear();
            }
            known.may_be.push(stamp);
        }
        if is_ok && op == BlockOp::Read {
            let bytes = done.buffer.bytes().chunks_exact(self.kept);
            for ((n, bytes), may_be) in (first..).zip(bytes).zip(may_be) {
                let saw = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(may_be.contains(&saw), "block {n}: saw {saw}, may be {may_be:?}");
            }
        }
    }
}

/// Random requests, many at once; gives how many reads were served here.
fn any_interleaving(seed: u64, fails: u64, depth: usize, kind: u64) -> u64 {
    let (device, config) = small_keeping("null", 8);
    let (blocks, mut random) = (40, Random::new(seed, 7));
    let kept = device::OpenChannel::kept(&device);
    let held = Held::new(blocks * BLOCK_BYTES, kept, seed);
    held.lock().unwrap().fails = fails;
    let (rules, remotes) = (set(blocks, 8, kind), vec![Far::drive(&held, 1 + depth)]);
    let bytes = config.bytes.min(blocks * BLOCK_BYTES);
    let config = RuledConfig { bytes, rules, control: None, remotes };
    let mut drive = Ruled::new(device, &config).unwrap();
    let known = Known { may_be: vec![0], written: None };
    let mut model = Model {
        blocks: vec![known; blocks as usize],
        inside: HashMap::new(),
        next: 0,
        failed: 0,
        kept: kept as usize,
    };
    let (mut reqs, mut done, mut now) = (Ring::new(64), Ring::new(64), Time::ZERO);
    let (mut asked, mut failed) = (0, 0);
    while asked < 600 || !model.inside.is_empty() {
        while asked < 600 && model.inside.len() < depth {
            asked += 1;
            let (op, fua) = match random.below(10) {
                0 => (BlockOp::Trim, random.below(4) == 0),
                1 => (BlockOp::Flush, false),
                2..5 => (BlockOp::Write, random.below(8) == 0),
                _ => (BlockOp::Read, false),
            };
            let first = random.below(blocks) as usize;
            let count = if op == BlockOp::Flush { 0 } else { 1 + random.below(6) as usize };
            if let Some(req) = model.request(op, first, count, fua) {
                reqs.put(|| req);
            }
        }
        drive.submit(now, &mut reqs);
        now = drive.next_event().expect("something is inside");
        drive.advance(now, &mut done);
        while let Some(one) = done.pop() {
            failed += u64::from(!one.status.is_ok());
            model.ended(&one);
        }
    }
    let at_remote = held.lock().unwrap().failed;
    assert!(failed <= at_remote && (failed > 0) == (at_remote > 0), "{failed} of {at_remote}");
    let rules = drive.installer().rules();
    let hit = rules.set().rules.iter().position(|rule| rule.name.text == "hit").unwrap();
    rules.hits().of(hit)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(60))]
    /// Whatever is asked at once, and whatever the remote drive fails to do, reads give what
    /// was written, and a request fails where a command of its own failed and nowhere else.
    #[test]
    fn a_cache_gives_what_was_written(
        seed: u64,
        fails in proptest::sample::select(vec![0_u64, 9, 40]),
        depth in 1_usize..40,
        kind in 0_u64..4,
    ) {
        any_interleaving(seed, fails, depth, kind);
    }
}

/// The cache of these tests is one: reads are served here.
#[test]
fn a_cache_has_hits() {
    let hits: u64 = (0..8).map(|seed| any_interleaving(seed, 0, 4, 0)).sum();
    assert!(hits > 400, "{hits}");
}

/// A drive before a remote one of 40 blocks, by a set of so much text.
fn before_one(held: &Arc<Mutex<Held>>, rules: Checked) -> (Ruled<Small>, RuledConfig) {
    let (device, _) = small_keeping("null", 8);
    let remotes = vec![Far::drive(held, 40)];
    let config = RuledConfig { bytes: 40 * BLOCK_BYTES, rules, control: None, remotes };
    (Ruled::new(device, &config).unwrap(), config)
}

/// Lets all that can happen happen; gives how requests ended.
fn settle(drive: &mut Ruled<Small>, reqs: Vec<BlockReq>, now: &mut Time) -> Vec<Status> {
    let (mut cmds, mut done) = (Ring::new(64), Ring::new(64));
    let (wanted, mut ended) = (reqs.len(), Vec::new());
    reqs.into_iter().for_each(|req| cmds.put(|| req));
    drive.submit(*now, &mut cmds);
    while ended.len() < wanted || wanted == 0 {
        let Some(at) = drive.next_event() else { break };
        *now = at.max(*now);
        drive.advance(*now, &mut done);
        ended.extend(done.drain().map(|one| one.status));
    }
    ended
}

fn one(op: BlockOp, lba: u64) -> BlockReq {
    BlockReq::new(lba, op, lba * BLOCK_BYTES, BLOCK_BYTES, Buffer::zeroed(8).unwrap())
}

/// A drive once panicked where a block was fetched by the set before, and units were those of
/// the set after. And where copies are kept no map begins anew.
#[test]
fn a_set_that_is_installed_keeps_nothing_that_the_one_before_fetched() {
    let set = |units: u64, holds: u64, read: &str| {
        checked(&format!(
            "set a application 0 lba 0..40 units 0..{units} remotes 0..1
             map at[40] of address in 0..2 map holds[4] of 0..{holds}
             rule read priority 0 when op == read {read}
             rule all priority 0 when op != read and op != idle then remote 0"
        ))
    };
    let held = Held::new(40 * BLOCK_BYTES, 8, 1);
    let (mut drive, _) = before_one(&held, set(2, 9, "then fill into at[lba], remote 0"));
    let (mut cmds, mut now) = (Ring::new(64), Time::ZERO);
    (0..16).for_each(|lba| cmds.put(|| one(BlockOp::Read, lba)));
    drive.submit(now, &mut cmds);
    let refused = drive.install(&set(8, 10, "then remote 0")).unwrap_err();
    assert!(matches!(refused, crate::RuledError::Maps), "{refused}");
    drive.install(&set(8, 9, "then remote 0")).unwrap();
    let ended = settle(&mut drive, vec![one(BlockOp::Read, 30)], &mut now);
    assert!(ended.iter().all(|status| status.is_ok()), "{ended:?}");
    settle(&mut drive, vec![one(BlockOp::Read, 31)], &mut now);
    let first = drive.blocks.firsts[0];
    assert!((0..40).all(|n| drive.leads(first + n).is_none()));
}

/// What a remote drive fails to do at the end costs nothing that lies here.
#[test]
fn an_end_without_the_remote_drive_keeps_what_is_here() {
    let held = Held::new(40 * BLOCK_BYTES, 8, 1);
    let (mut drive, config) = before_one(&held, set(40, 8, 1));
    let mut now = Time::ZERO;
    let writes = [0, 1].map(|lba| one(BlockOp::Write, lba)).into();
    assert_eq!(settle(&mut drive, writes, &mut now), [Status::SUCCESS; 2]);
    held.lock().unwrap().fails = 1;
    drive.close(now);
    settle(&mut drive, vec![], &mut now);
    assert!(!drive.is_closed() && held.lock().unwrap().failed > 0);
    let below = Box::new(drive).into_below();
    let (again, _) = Ruled::recover(below, &config, now).unwrap();
    assert!(again.leads(again.blocks.firsts[0] + 1).is_some());
}
