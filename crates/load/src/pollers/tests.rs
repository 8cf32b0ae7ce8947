use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::thread;

use device::realtime::Clock;
use drive::lent::Lent;
use drive::spec::DriveSpec;
use drive::stack;
use drive::whole::{Boxed, Drive};
use port::striped::STRIPE;
use port::{BlockOp, Buffer, Status};

use super::*;

const SHARDS: usize = 2;
/// Those of a load that are out at once.
const DEPTH: usize = 8;
const ROUNDS: u64 = 3;

/// What a shard was asked for, with what data.
type Asked = ((u64, BlockOp, bool, u64), Vec<u8>);

/// What a shard was asked for at once, and when, and when what of it completed.
#[derive(Default)]
struct Log {
    asked: Vec<(Time, Vec<Asked>)>,
    done: Vec<(u64, Time)>,
}

/// A shard that keeps a log.
struct Recorded(Lent, Arc<Mutex<Log>>);

impl Port for Recorded {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        let of = |req: &BlockReq| {
            let what = (req.id, req.op, req.fua, req.offset);
            (what, req.buffer.bytes().to_vec())
        };
        let mut all: Vec<_> = (0..cmds.len()).filter_map(|i| cmds.get(i)).map(of).collect();
        self.0.submit(now, cmds);
        all.truncate(all.len() - cmds.len());
        self.1.lock().unwrap().asked.push((now, all));
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let before = done.len();
        self.0.advance(to, done);
        let new = (before..done.len()).filter_map(|i| done.get(i));
        self.1.lock().unwrap().done.extend(new.map(|one| (one.id, one.at)));
    }
}

/// A drive whose shards are two channels each.
fn shards() -> (Vec<Boxed>, u64) {
    let name = "mem:ref,size=8M,groups=4,pus=2,pages=16,shards=2";
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    let config = spec.resolve().unwrap();
    let shard = |n| stack::build(&config.shard(n), 7 + u64::from(n)).unwrap();
    ((0..SHARDS as u32).map(shard).collect(), config.size)
}

/// One load of two: every other stretch of 96 KiB is its own, so that it goes over
/// stripes and to all shards. It writes all of it in pieces of all lengths, round by
/// round, reads what is the other's, and flushes after each round.
struct Job {
    number: u64,
    bytes: u64,
    round: u64,
    at: u64,
    out: usize,
}

const STRETCH: u64 = 96 << 10;

impl Job {
    fn next(&mut self, id: u64) -> Option<BlockReq> {
        if self.out == DEPTH || self.round == ROUNDS {
            return None;
        }
        let request = |op, offset, buffer: Buffer| {
            let len = buffer.len() as u64;
            Some(BlockReq {
                fua: id.is_multiple_of(7),
                ..BlockReq::new(id, op, offset, len, buffer)
            })
        };
        if self.at >= self.bytes {
            if self.out > 0 {
                return None;
            }
            (self.at, self.round, self.out) = (0, self.round + 1, 1);
            return request(BlockOp::Flush, 0, Buffer::empty());
        }
        self.out += 1;
        let end = (self.at / STRETCH + 1) * STRETCH;
        let len = (4096 << (self.at / 4096 % 5)).min(end.min(self.bytes) - self.at);
        let mut buffer = Buffer::zeroed(len as usize).unwrap();
        let is_own = self.at / STRETCH % 2 == self.number;
        let at = self.at;
        self.at += len;
        if is_own {
            let (round, number) = (self.round as u8, self.number as u8);
            buffer.bytes_mut().fill(1 + 50 * number + 7 * round + (at / 4096 % 7) as u8);
            return request(BlockOp::Write, at, buffer);
        }
        request(BlockOp::Read, at, buffer)
    }
}

/// Drives jobs through a poller until all pollers have ended.
fn poll(mut poller: Poller<Recorded>, mut jobs: Vec<Job>, clock: Clock, running: &AtomicUsize) {
    let (mut cmds, mut done) = (Ring::new(64), Ring::new(64));
    let (mut now, mut next, mut ended) = (Time::ZERO, 0u64, false);
    while running.load(Ordering::Acquire) > 0 {
        for (number, job) in jobs.iter_mut().enumerate() {
            while let Some(req) = job.next(next << 1 | number as u64) {
                cmds.put(|| req);
                next += 1;
            }
        }
        poller.submit(now, &mut cmds);
        assert!(cmds.is_empty(), "there is room for so few");
        now = clock.now();
        poller.advance(now, &mut done);
        for one in done.drain() {
            assert_eq!(one.status, Status::SUCCESS);
            jobs[(one.id & 1) as usize].out -= 1;
        }
        if !ended && jobs.iter().all(|job| job.round == ROUNDS && job.out == 0) {
            ended = true;
            running.fetch_sub(1, Ordering::AcqRel);
        }
        thread::yield_now();
    }
}

/// Runs both jobs by so many pollers. Gives what each shard was asked for, and the
/// shards as they are when all is quiet.
fn run(count: usize) -> (Vec<Log>, Vec<Boxed>) {
    let (shards, bytes) = shards();
    let each = shards[0].shape();
    let logs: Vec<_> = (0..SHARDS).map(|_| Arc::<Mutex<Log>>::default()).collect();
    let mut owners = Vec::new();
    let recorded = shards.into_iter().zip(&logs).map(|(shard, log)| {
        let (lent, owner) = Lent::new(shard, Time::ZERO);
        owners.push(owner);
        Recorded(lent, log.clone())
    });
    let pollers = Pollers::new(recorded.collect(), (bytes, each), (count, 64), &Arc::default());
    let (clock, running) = (Clock::start(), AtomicUsize::new(count));
    let job = |number| Job { number, bytes, round: 0, at: 0, out: 0 };
    let mut jobs: Vec<Vec<Job>> = (0..count).map(|_| Vec::new()).collect();
    (0..2).for_each(|number| jobs[number % count].push(job(number as u64)));
    thread::scope(|scope| {
        for (poller, jobs) in pollers.open().into_iter().zip(jobs) {
            scope.spawn(|| poll(poller, jobs, clock, &running));
        }
    });
    let shards = owners.into_iter().map(|owner| rest(owner.take_back().unwrap()));
    let shards: Vec<_> = shards.collect();
    (logs.iter().map(|log| std::mem::take(&mut *log.lock().unwrap())).collect(), shards)
}

/// Lets all happen that is still to.
fn rest(mut shard: Boxed) -> Boxed {
    pass(&mut shard, Time(u64::MAX), &mut Vec::new());
    shard
}

fn pass(shard: &mut Boxed, until: Time, all: &mut Vec<(u64, Time)>) {
    let mut done = Ring::new(64);
    while let Some(at) = shard.next_event().filter(|&at| at <= until) {
        shard.advance(at, &mut done);
        all.extend(done.drain().map(|one| (one.id, one.at)));
    }
}

/// All that is on the shards.
fn stored(shards: &mut [Boxed]) -> Vec<u8> {
    let (mut all, mut cmds, mut done) = (Vec::new(), Ring::new(1), Ring::new(1));
    for shard in shards {
        let mut now = Time(1 << 50);
        for offset in (0..shard.shape().bytes).step_by(STRIPE as usize) {
            let (id, op, len) = (0, BlockOp::Read, STRIPE);
            let buffer = Buffer::zeroed(len as usize).unwrap();
            cmds.put(|| BlockReq::new(id, op, offset, len, buffer));
            shard.submit(now, &mut cmds);
            while done.is_empty() {
                now = shard.next_event().unwrap();
                shard.advance(now, &mut done);
            }
            all.extend_from_slice(done.pop().unwrap().buffer.bytes());
        }
    }
    all
}

#[test]
fn how_many_poll_changes_nothing() {
    let mut all = Vec::new();
    for count in [1, 2, 3] {
        let (logs, mut shards) = run(count);
        for (n, log) in logs.iter().enumerate() {
            // The same arrivals, in virtual time.
            let (mut again, mut done) = (self::shards().0.swap_remove(n), Vec::new());
            let mut cmds = Ring::new(64);
            for (at, asked) in &log.asked {
                pass(&mut again, *at, &mut done);
                for &((id, op, fua, offset), ref bytes) in asked {
                    let mut buffer = Buffer::zeroed(bytes.len()).unwrap();
                    buffer.bytes_mut().copy_from_slice(bytes);
                    let len = bytes.len() as u64;
                    cmds.put(|| BlockReq { fua, ..BlockReq::new(id, op, offset, len, buffer) });
                }
                again.submit(*at, &mut cmds);
                assert!(cmds.is_empty(), "they were taken");
            }
            pass(&mut again, Time(u64::MAX), &mut done);
            let mut then = log.done.clone();
            let asked = log.asked.iter().map(|(_, asked)| asked.len()).sum::<usize>();
            assert!(asked > 500 && then.len() == asked);
            then.sort_unstable();
            done.sort_unstable();
            assert!(then == done, "{count} pollers, shard {n}: it completes them otherwise");
            assert_eq!(again.state_hash(), shards[n].state_hash(), "{count} pollers, shard {n}");
        }
        all.push(stored(&mut shards));
        assert!(all[0] == all[all.len() - 1], "{count} pollers store something else");
    }
}

/// A port that holds one request for ever so many looks.
#[derive(Default)]
struct Narrow {
    inside: Option<BlockReq>,
    now: Time,
}

impl Port for Narrow {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.now = now;
        self.inside = self.inside.take().or_else(|| cmds.pop());
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.as_ref().map(|_| self.now + 1)
    }

    fn advance(&mut self, at: Time, done: &mut Ring<BlockDone>) {
        if let Some(BlockReq { id, op, buffer, .. }) = self.inside.take() {
            done.put(|| BlockDone { id, op, status: Status::SUCCESS, at, buffer });
        }
    }
}

fn read(id: u64) -> BlockReq {
    BlockReq::new(id, BlockOp::Read, 0, 4096, Buffer::empty())
}

/// Two pollers of a drive of one narrow shard, which is the first one's.
fn two_of_a_narrow_one(broken: &Arc<AtomicBool>) -> [Poller<Narrow>; 2] {
    let shape = Shape { bytes: 1 << 20, kept: 0, max_bytes: STRIPE, depth: 8 };
    let pollers = Pollers::new(vec![Narrow::default()], (1 << 20, shape), (2, 8), broken).open();
    pollers.try_into().ok().unwrap()
}

#[test]
fn a_full_shard_serves_its_own_poller_and_the_others() {
    let [mut own, mut other] = two_of_a_narrow_one(&Arc::default());
    let (mut cmds, mut done) = (Ring::new(8), Ring::new(8));
    let mut served = [0, 0];
    for now in (10..).step_by(10).map(Time).take(200) {
        for (n, poller) in [&mut own, &mut other].into_iter().enumerate() {
            (0..4).for_each(|id| cmds.put(|| read(id)));
            poller.submit(now, &mut cmds);
            cmds.drain().for_each(drop);
            poller.advance(now, &mut done);
            served[n] += done.drain().count();
        }
    }
    assert!(served.iter().all(|&n| n >= 60), "{served:?}");
}

#[test]
fn a_drive_that_is_polled_no_more_is_gone() {
    let broken = Arc::default();
    let [own, mut other] = two_of_a_narrow_one(&broken);
    assert!(!other.is_gone() && matches!(other.abort(0), Abort::Working));
    drop(own);
    broken.store(true, Ordering::Relaxed);
    assert!(other.is_gone() && matches!(other.abort(0), Abort::Lost));
}
