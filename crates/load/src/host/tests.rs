use super::*;

use drive::spec::DriveSpec;
use drive::stack;
use port::random::Random;
use port::{Port, Status};
use proptest::prelude::*;

fn drive(name: &str) -> Boxed {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    stack::build(&spec.resolve().unwrap(), 1).unwrap()
}

fn host(name: &str, depth: usize) -> Host {
    Host::new(drive(name), Time::ZERO, depth, false).unwrap()
}

const SMALL: &str = "mem:tlc,size=16M,groups=2,pus=2,pages=16";

fn request(op: BlockOp, block: u64, at: Option<Time>) -> Request {
    let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
    Request { op, fua: false, placement: 0, offset: block * BLOCK_BYTES, len, at }
}

/// So many requests anywhere, at these times.
fn requests(count: usize, seed: u64, at: impl Fn(u64) -> Option<Time>) -> Vec<Request> {
    let mut random = Random::new(seed, 0);
    let op = |n| match n {
        0..40 => BlockOp::Read,
        40..90 => BlockOp::Write,
        90..97 => BlockOp::Trim,
        _ => BlockOp::Flush,
    };
    let mut one = |n| request(op(random.below(100)), random.below(4096), at(n));
    (0..count as u64).map(&mut one).collect()
}

fn go(host: &mut Host, requests: &[Request], until: Until) -> Completions {
    host.submit(requests.iter().copied(), None, false).unwrap();
    host.advance(until, &mut || true).unwrap()
}

/// What the port itself gives, asked by the simplest loop there is.
fn by_hand(name: &str, requests: &[Request], depth: usize) -> Vec<(u64, u16, u64, u64)> {
    let mut drive = drive(name);
    let kept = drive.shape().kept;
    let (mut cmds, mut done) = (Ring::new(depth), Ring::new(1024));
    let (mut now, mut next, mut inside, mut all) = (Time::ZERO, 0, 0, Vec::new());
    let mut starts = Vec::new();
    loop {
        while next < requests.len() && inside < depth {
            let request = &requests[next];
            if request.at.is_some_and(|at| at > now) {
                break;
            }
            starts.push(request.at.unwrap_or(now));
            let moves = matches!(request.op, BlockOp::Read | BlockOp::Write) && kept > 0;
            let buffer =
                if moves { Buffer::zeroed(request.len as usize).unwrap() } else { Buffer::empty() };
            cmds.put(|| {
                BlockReq::new(next as u64, request.op, request.offset, request.len, buffer)
            });
            (next, inside) = (next + 1, inside + 1);
        }
        if inside == 0 && next == requests.len() {
            return all;
        }
        drive.submit(now, &mut cmds);
        let arrival = requests.get(next).and_then(|r| r.at).filter(|_| inside < depth);
        match (drive.next_event(), arrival) {
            (Some(event), arrival) if arrival.is_none_or(|at| event <= at) => {
                now = now.max(event);
                drive.advance(event, &mut done);
            }
            (_, Some(at)) => now = now.max(at),
            _ => panic!("it stopped"),
        }
        while let Some(BlockDone { id, status, at, .. }) = done.pop() {
            all.push((id, status.0, starts[id as usize].0, at.0));
            inside -= 1;
        }
    }
}

fn rows(all: &Completions) -> Vec<(u64, u16, u64, u64)> {
    (0..all.len())
        .map(|i| (all.ids[i], all.statuses[i], all.submitted[i], all.completed[i]))
        .collect()
}

#[test]
fn completions_are_the_drives_own() {
    for name in [SMALL, "mem:ref,size=16M,store=none", "mem:tlc,size=16M,shards=2,store=none"] {
        for depth in [1, 7, 64] {
            let closed = requests(6000, 3, |_| None);
            let open = requests(6000, 4, |n| Some(Time(n * n % 7_000 + n * 9_000)));
            let mut sorted = open.clone();
            sorted.sort_by_key(|one| one.at);
            for (asked, given) in [(&closed, &closed), (&sorted, &sorted)] {
                let all = go(&mut host(name, depth), given, Until::Idle);
                assert_eq!(rows(&all), by_hand(name, asked, depth), "{name}, {depth}");
            }
            // Given in any order, they start in that of their times.
            let times = |given: &[Request]| {
                let all = go(&mut host(name, depth), given, Until::Idle);
                (all.submitted, all.completed)
            };
            assert_eq!(times(&open), times(&sorted));
        }
    }
}

proptest! {
    /// However time is cut in pieces, and requests come, all complete as in one go.
    #[test]
    fn steps_change_nothing(seed in any::<u64>(), depth in 1usize..20, steps in prop::collection::vec(1u64..300_000, 1..40)) {
        let asked = requests(400, seed, |n| Some(Time(n * 20_000)));
        let whole = go(&mut host(SMALL, depth), &asked, Until::Idle);
        let mut host = host(SMALL, depth);
        let (mut all, mut at, mut given, mut step) = (Vec::new(), 0, 0, 0);
        while given < asked.len() || host.out() > 0 {
            at += steps[step % steps.len()];
            step += 1;
            // All that are due until then, and some more.
            let until = asked.iter().position(|r| r.at > Some(Time(at))).unwrap_or(asked.len());
            let until = (until + step % 5).min(asked.len()).max(given);
            host.submit(asked[given..until].iter().copied(), None, false).unwrap();
            given = until;
            let upto = if step.is_multiple_of(3) { Until::Completions(2) } else { Until::Time(Time(at)) };
            if upto == Until::Completions(2) && given < asked.len() {
                continue;
            }
            all.extend(rows(&host.advance(upto, &mut || true).unwrap()));
        }
        prop_assert_eq!(all, rows(&whole));
    }

    /// What is read is what was written last.
    #[test]
    fn data_comes_back(seed in any::<u64>(), count in 1usize..200) {
        let mut random = Random::new(seed, 1);
        let (mut host, mut model) = (host(SMALL, 1), vec![0u8; 64 * 512]);
        for _ in 0..4 {
            let (mut asked, mut data, mut expected) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..count {
                let first = random.below(60);
                let sectors = 1 + random.below(4);
                let range = (first * 512) as usize..((first + sectors) * 512) as usize;
                let op = [BlockOp::Read, BlockOp::Write, BlockOp::WriteZeroes][random.below(3) as usize];
                let (offset, len) = (first * 512, sectors * 512);
                asked.push(Request { op, fua: false, placement: 0, offset, len, at: None });
                match op {
                    BlockOp::Read => expected.extend_from_slice(&model[range]),
                    BlockOp::Write => {
                        model[range.clone()].fill_with(|| random.below(256) as u8);
                        data.extend_from_slice(&model[range]);
                    }
                    _ => model[range].fill(0),
                }
            }
            host.submit(asked.iter().copied(), Some(data.into()), true).unwrap();
            let all = host.advance(Until::Idle, &mut || true).unwrap();
            prop_assert!(all.statuses.iter().all(|&status| status == 0));
            prop_assert_eq!(&all.data, &expected);
            let bounds = all.bounds();
            prop_assert_eq!(bounds.len(), count + 1);
            for (i, one) in asked.iter().enumerate() {
                let bytes = if one.op == BlockOp::Read { one.len } else { 0 };
                prop_assert_eq!(bounds[i + 1] - bounds[i], bytes);
            }
        }
    }
}

#[test]
fn what_has_no_data_is_zeros() {
    let mut host = host(SMALL, 1);
    let fill = |host: &mut Host, op, data: Option<Data>| {
        host.submit([request(op, 3, None)].into_iter(), data, true).unwrap();
        host.advance(Until::Idle, &mut || true).unwrap()
    };
    fill(&mut host, BlockOp::Write, Some(vec![7; 4096].into()));
    assert_eq!(fill(&mut host, BlockOp::Read, None).data, [7; 4096]);
    fill(&mut host, BlockOp::Write, None);
    assert_eq!(fill(&mut host, BlockOp::Read, None).data, [0; 4096]);
}

/// Where one request after the other has the same buffer.
#[test]
fn who_failed_has_no_data_of_others() {
    let mut host = host(SMALL, 1);
    let far = Request { offset: 1 << 40, ..request(BlockOp::Read, 0, None) };
    let asked = [request(BlockOp::Write, 0, None), request(BlockOp::Read, 0, None), far];
    host.submit(asked.into_iter(), Some(vec![7; 4096].into()), true).unwrap();
    let all = host.advance(Until::Idle, &mut || true).unwrap();
    assert_eq!(all.statuses, [0, 0, Status::LBA_OUT_OF_RANGE.0]);
    assert_eq!((all.bounds(), all.data), (vec![0, 0, 4096, 4096], vec![7; 4096]));
}

#[test]
fn stories_cover_all_the_time() {
    let mut host = Host::new(drive(SMALL), Time::ZERO, 4, true).unwrap();
    let all = go(&mut host, &requests(3000, 9, |n| Some(Time(n * 3000))), Until::Idle);
    let stories = all.stories.as_ref().unwrap();
    assert_eq!(stories.len(), 3000);
    for (i, story) in stories.iter().enumerate() {
        assert!(story.is_whole());
        assert_eq!((story.start().0, story.end().0), (all.submitted[i], all.completed[i]));
    }
}

#[test]
fn what_cannot_be_is_told() {
    let mut host = host(SMALL, 4);
    let far = Request { offset: 1 << 40, ..request(BlockOp::Read, 0, None) };
    let long = Request { len: 1 << 30, ..request(BlockOp::Write, 0, None) };
    let odd = Request { len: 100, ..request(BlockOp::Read, 0, None) };
    let all = go(&mut host, &[far, long, odd], Until::Idle);
    let statuses: Vec<_> = all.statuses.iter().map(|&status| Status(status)).collect();
    assert_eq!(statuses[0], Status::LBA_OUT_OF_RANGE);
    assert!(statuses[1..].iter().all(|&status| !status.is_ok()), "{statuses:?}");
    let few =
        host.submit([request(BlockOp::Write, 0, None)].into_iter(), Some(vec![1].into()), false);
    assert!(few.unwrap_err().to_string().contains("the writes are of 4096 bytes"));
    let many = (0..MOST_WAITING + 1).map(|_| request(BlockOp::Read, 0, None));
    assert!(host.submit(many, None, false).unwrap_err().to_string().contains("none was taken"));
    assert_eq!(host.out(), 0);
    assert!(Host::new(drive(SMALL), Time::ZERO, 0, false).is_err());
}

#[test]
fn it_is_stopped_and_goes_on() {
    let (asked, mut host) = (requests(5000, 5, |_| None), host(SMALL, 8));
    host.submit(asked.iter().copied(), None, false).unwrap();
    let mut all = rows(&host.advance(Until::Idle, &mut || false).unwrap());
    assert!(!all.is_empty() && all.len() < 5000);
    host.set_depth(8).unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    host.set_stop(stop.clone());
    assert!(host.advance(Until::Idle, &mut || true).unwrap().is_empty());
    stop.store(false, Ordering::Relaxed);
    all.extend(rows(&host.advance(Until::Idle, &mut || true).unwrap()));
    assert_eq!(all, by_hand(SMALL, &asked, 8));
    let inside = asked.len() as u64;
    host.submit(asked[..9].iter().copied(), None, false).unwrap();
    host.advance(Until::Completions(1), &mut || true).unwrap();
    let (_, _, lost) = host.give_up();
    assert!(!lost.is_empty() && lost.ids.iter().all(|&id| id >= inside));
    assert!(lost.statuses.iter().all(|&status| Status(status) == Status::ABORTED));
}
