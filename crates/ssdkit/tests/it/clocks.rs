//! The two clocks check each other: what a drive did in real time, it does
//! again in virtual time when requests arrive at the same times.

use device::realtime::RealTime;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Ring, Time};
use ssdkit::drive::DriveSpec;
use ssdkit::drive::stack;
use ssdkit::drive::whole::{Boxed, Drive};
use workload::{Access, Generator, Pattern};

const IOS: usize = 3000;

fn build(name: &str) -> Boxed {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    stack::build(&spec.resolve().unwrap(), 1).unwrap()
}

fn request(id: usize, access: &Access) -> BlockReq {
    let Access { op, offset, len, fua } = *access;
    BlockReq { fua, ..BlockReq::new(id as u64, op, offset, len, Buffer::empty()) }
}

/// Fills the drive in virtual time; gives when that ended.
fn fill(drive: &mut Boxed) -> Time {
    let (mut now, mut queue, mut done) = (Time::ZERO, Ring::new(1), Ring::new(1));
    for block in 0..drive.shape().bytes / 4096 {
        let access = Access { op: BlockOp::Write, offset: block * 4096, len: 4096, fua: false };
        queue.push(request(0, &access)).unwrap();
        while done.pop().is_none() {
            drive.submit(now, &mut queue);
            now = drive.next_event().unwrap();
            drive.advance(now, &mut done);
        }
    }
    while let Some(at) = drive.next_event() {
        now = at;
        drive.advance(at, &mut done);
    }
    now
}

/// What happened: when each request arrived, and when it completed.
#[derive(Debug, PartialEq)]
struct Log {
    accesses: Vec<Access>,
    arrivals: Vec<Time>,
    completions: Vec<Time>,
    hash: u64,
}

/// A closed loop of `depth` on the processor's clock.
struct Live {
    depth: usize,
}

impl Live {
    fn run(self, mut drive: Boxed) -> Log {
        let base = fill(&mut drive);
        let pattern = Pattern::uniform(drive.shape().bytes, 50);
        let mut generator = Generator::new(&pattern, 3, 0, 1).unwrap();
        let accesses: Vec<Access> = (0..IOS).map(|_| generator.next()).collect();
        let mut arrivals = Vec::new();
        let mut completions = vec![Time::ZERO; IOS];
        let (mut queue, mut done) = (Ring::new(64), Ring::<BlockDone>::new(64));
        let mut real = RealTime::new(drive);
        let mut finished = 0;
        while finished < IOS {
            let now = base + real.clock().now().0;
            real.poll(now, &mut done);
            while let Some(done) = done.pop() {
                assert!(done.status.is_ok());
                completions[done.id as usize] = done.at;
                finished += 1;
            }
            while arrivals.len() < IOS && arrivals.len() - finished < self.depth {
                queue.push(request(arrivals.len(), &accesses[arrivals.len()])).unwrap();
                arrivals.push(real.submit(now, &mut queue));
                assert!(queue.is_empty(), "the drive has room");
            }
        }
        let mut drive = real.into_port();
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
        }
        let hash = drive.state_hash();
        Log { accesses, arrivals, completions, hash }
    }
}

/// The same arrivals in virtual time.
struct Replay<'a>(&'a Log);

impl Replay<'_> {
    fn run(self, mut drive: Boxed) -> Log {
        fill(&mut drive);
        let Replay(log) = self;
        let mut completions = vec![Time::ZERO; IOS];
        let (mut queue, mut done) = (Ring::new(1), Ring::<BlockDone>::new(64));
        let mut until = |drive: &mut Boxed, to: Time| {
            while let Some(at) = drive.next_event().filter(|&at| at <= to) {
                drive.advance(at, &mut done);
                while let Some(done) = done.pop() {
                    completions[done.id as usize] = done.at;
                }
            }
        };
        for (i, &arrival) in log.arrivals.iter().enumerate() {
            until(&mut drive, arrival);
            queue.push(request(i, &log.accesses[i])).unwrap();
            drive.submit(arrival, &mut queue);
            assert!(queue.is_empty());
        }
        until(&mut drive, Time(u64::MAX));
        let (accesses, arrivals) = (log.accesses.clone(), log.arrivals.clone());
        Log { accesses, arrivals, completions, hash: drive.state_hash() }
    }
}

#[test]
fn real_arrivals_replayed_give_the_same_completions() {
    for profile in ["znand", "tlc", "znand,side=host"] {
        let name = format!("mem:{profile},size=64M,store=none");
        for depth in [1, 8] {
            let live = Live { depth }.run(build(&name));
            let again = Replay(&live).run(build(&name));
            assert_eq!(live.hash, again.hash, "{name} at depth {depth}");
            let differ = live.completions.iter().zip(&again.completions).position(|(a, b)| a != b);
            assert_eq!(differ, None, "{name} at depth {depth}");
            assert!(live.completions.iter().zip(&live.arrivals).all(|(c, a)| c >= a));
        }
    }
}
