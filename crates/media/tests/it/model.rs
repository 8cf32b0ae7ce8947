//! Shared drives against a plain model: what each block holds.

use media::Placement;
use port::{BlockOp, Port, Ring, Status, Time};
use proptest::prelude::*;

use crate::world::{BLOCK, Drive, act, found, request, shared, timing};

/// What is done next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64, u64),
    Read(u64, u64),
    Trim(u64, u64),
    Flush(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (any::<u64>(), 1..80u64);
    let step = prop_oneof![
        5 => range().prop_map(|(at, len)| Step::Write(at, len)),
        3 => range().prop_map(|(at, len)| Step::Read(at, len)),
        1 => range().prop_map(|(at, len)| Step::Trim(at, len)),
        1 => range().prop_map(|(at, len)| Step::Flush(at, len)),
    ];
    proptest::collection::vec(step, 20..250)
}

/// The blocks that requests name: all, without the gaps between targets.
fn addresses(drive: &Drive) -> Vec<u64> {
    let blocks = |n| {
        let (first, bytes) = (drive.first_of(n) / BLOCK, drive.shape_of(n).bytes / BLOCK);
        first..first + bytes
    };
    drive.numbers().iter().copied().flat_map(blocks).collect()
}

/// Does the steps, so many at once where they do not overlap, and holds the drive to what
/// it was told. Gives what it holds.
fn live(drive: &mut Drive, steps: &[Step], depth: usize) -> (Vec<(u64, u8)>, Time) {
    let all = addresses(drive);
    let mut holds = vec![0u8; all.len()];
    let (mut cmds, mut done) = (Ring::new(depth), Ring::new(3));
    let mut now = Time::ZERO;
    // By request: blocks, and what a read is to give.
    let mut under_way: Vec<(u64, std::ops::Range<usize>, Option<Vec<u8>>)> = Vec::new();
    let mut steps = steps.iter().enumerate().peekable();
    let limits = |at: u64, len: u64| {
        let first = (at % all.len() as u64) as usize;
        // Up to the end of what follows without a gap.
        let mut end = first + 1;
        while end < first + len as usize && end < all.len() && all[end] == all[end - 1] + 1 {
            end += 1;
        }
        first..end
    };
    while steps.peek().is_some() || !under_way.is_empty() {
        while under_way.len() < depth
            && let Some(&(id, &step)) = steps.peek()
        {
            let (op, blocks) = match step {
                Step::Write(at, len) => (BlockOp::Write, limits(at, len)),
                Step::Read(at, len) => (BlockOp::Read, limits(at, len)),
                Step::Trim(at, len) => (BlockOp::Trim, limits(at, len)),
                Step::Flush(at, len) => (BlockOp::Flush, limits(at, len)),
            };
            let meets = |other: &std::ops::Range<usize>| {
                other.start < blocks.end && blocks.start < other.end
            };
            if op != BlockOp::Flush && under_way.iter().any(|(_, other, _)| meets(other)) {
                break;
            }
            steps.next();
            let id = id as u64;
            let fill = (id % 250) as u8 + 1;
            let len = (blocks.end - blocks.start) as u64 * BLOCK;
            cmds.push(request(id, op, all[blocks.start] * BLOCK, len, fill)).unwrap();
            let expected = (op == BlockOp::Read).then(|| holds[blocks.clone()].to_vec());
            match op {
                BlockOp::Write => holds[blocks.clone()].fill(fill),
                BlockOp::Trim => holds[blocks.clone()].fill(0),
                _ => {}
            }
            let blocks = if op == BlockOp::Flush { 0..0 } else { blocks };
            under_way.push((id, blocks, expected));
        }
        drive.submit(now, &mut cmds);
        let at = drive.next_event().expect("something is inside");
        assert!(at >= now, "time goes on");
        now = at;
        drive.advance(now, &mut done);
        while let Some(done) = done.pop() {
            let n = under_way.iter().position(|(id, _, _)| *id == done.id).expect("it is inside");
            let (_, _, expected) = under_way.swap_remove(n);
            assert_eq!(done.status, Status::SUCCESS);
            for (n, fill) in expected.into_iter().flatten().enumerate() {
                let bytes = &done.buffer.bytes()[n * BLOCK as usize..][..BLOCK as usize];
                assert!(bytes.iter().all(|&b| b == fill), "request {}, block {n}", done.id);
            }
        }
    }
    (all.into_iter().zip(holds).collect(), now)
}

fn placement() -> impl Strategy<Value = (Placement, u32)> {
    prop_oneof![
        (1..=2u32).prop_map(|n| (Placement::Isolate, 1 << n)),
        (1..=3u32).prop_map(|n| (Placement::Stripe, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn it_is_a_block_drive((placement, targets) in placement(), steps in steps(), depth in 1..40usize) {
        let mut drive = shared(placement, targets, 2, 2, &timing());
        let places: Vec<_> = {
            let geometry = *device::OpenChannel::geometry(drive.media().device());
            (0..targets).map(|n| placement.place(&geometry, targets, n).unwrap()).collect()
        };
        let (holds, now) = live(&mut drive, &steps, depth);
        // Each by a flush of its own.
        let mut now = now;
        for n in 0..targets as usize {
            let flush = request(0, BlockOp::Flush, drive.first_of(n), BLOCK, 0);
            now = act(&mut drive, now, flush).1;
        }
        // What was flushed is there after a cut.
        let (mut drive, mut now) = found(drive, places);
        for (block, fill) in holds {
            let (done, at) = act(&mut drive, now, request(1, BlockOp::Read, block * BLOCK, BLOCK, 9));
            prop_assert_eq!(done.status, Status::SUCCESS);
            prop_assert!(done.buffer.bytes().iter().all(|&b| b == fill), "block {}", block);
            now = at;
        }
    }
}

/// A lone target on all of a drive does what it does without anybody between, at the same
/// times.
#[test]
fn a_lone_target_is_as_without() {
    use targets::Pblk;
    let timing = timing();
    let mut shared = shared(Placement::Isolate, 1, 2, 2, &timing);
    let device = crate::world::flash(2, 2, 1, &timing);
    let config = crate::world::config(device::OpenChannel::geometry(&device));
    let mut alone = Pblk::new(device, config).unwrap();
    let blocks = alone.shape().bytes / BLOCK;
    let mut random = port::random::Random::new(3, 5);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut one, mut other) = (Time::ZERO, Time::ZERO);
    for id in 0..3000 {
        let op = if random.bits().is_multiple_of(3) { BlockOp::Read } else { BlockOp::Write };
        let offset = random.bits() % blocks * BLOCK;
        let (done, at) = act(&mut shared, one, request(id, op, offset, BLOCK, id as u8));
        ours.push((done.id, done.at, done.buffer.bytes()[0]));
        one = at;
        let (done, at) = act(&mut alone, other, request(id, op, offset, BLOCK, id as u8));
        theirs.push((done.id, done.at, done.buffer.bytes()[0]));
        other = at;
    }
    assert_eq!(ours, theirs);
    assert!(alone.counters().gc > 0, "it has collected");
    assert_eq!(shared.target(0).state_hash(), alone.state_hash());
}
