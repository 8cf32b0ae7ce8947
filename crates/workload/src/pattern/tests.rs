use super::*;
use crate::sizes::Sizes;
use port::BlockOp;
use proptest::prelude::*;

fn take(pattern: &Pattern, n: usize) -> Vec<Access> {
    let mut g = Generator::new(pattern, 1, 0, 1).unwrap();
    (0..n).map(|_| g.next()).collect()
}

#[test]
fn impossible_patterns_are_refused() {
    let good = Pattern::uniform(1 << 20, 50);
    let zipf = |theta| Pattern { order: Order::Zipf { theta }, ..good };
    let pareto = |h| Pattern { order: Order::Pareto { h }, ..good };
    let hot = |accesses_percent, range_percent| Pattern {
        order: Order::HotCold { accesses_percent, range_percent, placed: false },
        ..good
    };
    use PatternError as E;
    let refused = [
        (Pattern { bs: 0, ..good }, E::BlockSize { bs: 0 }),
        (Pattern { bs: 1000, ..good }, E::BlockSize { bs: 1000 }),
        (Pattern { bs: 2 << 20, ..good }, E::BlockSize { bs: 2 << 20 }),
        (Pattern { length: 4095, ..good }, E::RangeTooSmall { length: 4095, bs: 4096 }),
        (Pattern { offset: 513, ..good }, E::Misaligned { offset: 513 }),
        (
            Pattern { offset: u64::MAX - 4095, length: 8192, ..good },
            E::RangeTooLarge { offset: u64::MAX - 4095, length: 8192 },
        ),
        (
            Pattern { order: Order::Partitioned { parts: 257 }, ..good },
            E::Parts { parts: 257, blocks: 256 },
        ),
        (
            Pattern { order: Order::Partitioned { parts: 0 }, ..good },
            E::Parts { parts: 0, blocks: 256 },
        ),
        (Pattern { read_percent: 101, ..good }, E::Mix { reads: 101, trims: 0 }),
        (Pattern { trim_percent: 51, ..good }, E::Mix { reads: 50, trims: 51 }),
        (
            Pattern { read_percent: 255, trim_percent: 255, ..good },
            E::Mix { reads: 255, trims: 255 },
        ),
        (zipf(0.0), E::Theta { theta: 0.0 }),
        (zipf(5.1), E::Theta { theta: 5.1 }),
        (pareto(0.0), E::Pareto { h: 0.0 }),
        (pareto(1.0), E::Pareto { h: 1.0 }),
        (hot(101, 20), E::HotShares { accesses: 101, range: 20 }),
        (hot(80, 0), E::HotShares { accesses: 80, range: 0 }),
        (hot(80, 100), E::HotShares { accesses: 80, range: 100 }),
        (Pattern { length: 4096, ..hot(80, 20) }, E::TooSmallToSplit),
    ];
    for (pattern, error) in refused {
        assert_eq!(Generator::new(&pattern, 0, 0, 1).unwrap_err(), error);
    }
    assert!(matches!(zipf(f64::NAN).check(), Err(E::Theta { .. })));
    assert!(matches!(pareto(f64::NAN).check(), Err(E::Pareto { .. })));
    assert!(matches!(Generator::new(&good, 0, 1, 1), Err(E::Submitter { .. })));
    assert!(E::Misaligned { offset: 513 }.to_string().ends_with("use 512 B"));
    assert_eq!(good.check(), Ok(()));
}

#[test]
fn sequential_wraps_and_submitters_start_apart() {
    let pattern =
        Pattern { length: 10 * 4096 + 100, order: Order::Sequential, ..Pattern::uniform(0, 0) };
    let blocks: Vec<u64> = take(&pattern, 12).iter().map(|a| a.offset / 4096).collect();
    assert_eq!(blocks, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    let mut second = Generator::new(&pattern, 1, 1, 2).unwrap();
    assert_eq!(second.next().offset, 5 * 4096);
}

#[test]
fn strides_go_round_and_partitions_take_turns() {
    let blocks = |order, length: u64, n| {
        let pattern = Pattern { order, ..Pattern::uniform(length * 4096, 0) };
        take(&pattern, n).iter().map(|a| a.offset / 4096).collect::<Vec<u64>>()
    };
    let stride = |step| blocks(Order::Stride { step }, 10, 6);
    assert_eq!(stride(0), [0; 6]);
    assert_eq!(stride(-1), [0, 9, 8, 7, 6, 5]);
    assert_eq!(stride(4), [0, 4, 8, 2, 6, 0]);
    assert_eq!(stride(i64::MIN), [0, 2, 4, 6, 8, 0], "-9223372036854775808 is 2 of 10");
    // 11 blocks in 3 parts of 3.
    let parts = blocks(Order::Partitioned { parts: 3 }, 11, 10);
    assert_eq!(parts, [0, 3, 6, 1, 4, 7, 2, 5, 8, 0]);
    assert_eq!(blocks(Order::Partitioned { parts: 1 }, 3, 4), [0, 1, 2, 0]);
    assert_eq!(blocks(Order::Sequential, 1, 3), [0; 3], "a range of one block");
}

#[test]
fn seeds_and_submitters_decide_everything() {
    let pattern = Pattern::uniform(1 << 30, 70);
    let run = |seed, submitter| {
        let mut g = Generator::new(&pattern, seed, submitter, 4).unwrap();
        (0..50).map(|_| g.next()).collect::<Vec<_>>()
    };
    assert_eq!(run(1, 0), run(1, 0));
    assert_ne!(run(1, 0), run(2, 0));
    assert_ne!(run(1, 0), run(1, 1));
}

#[test]
fn uniform_is_even() {
    const BLOCKS: usize = 256;
    let mut seen = [0u32; BLOCKS];
    for a in take(&Pattern::uniform(BLOCKS as u64 * 4096, 100), BLOCKS * 400) {
        seen[(a.offset / 4096) as usize] += 1;
    }
    // 255 degrees of freedom: 330 is passed once in a thousand seeds.
    let chi: f64 = seen.iter().map(|&n| (f64::from(n) - 400.0).powi(2) / 400.0).sum();
    assert!((180.0..330.0).contains(&chi), "chi-square {chi}");
}

#[test]
fn operations_come_in_their_shares() {
    let pattern = Pattern { trim_percent: 10, ..Pattern::uniform(1 << 20, 65) };
    let all = take(&pattern, 100_000);
    let share = |op| all.iter().filter(|a| a.op == op).count() as f64 / 1000.0;
    // Five standard deviations are below 0.8 %.
    assert!((share(BlockOp::Read) - 65.0).abs() < 0.8);
    assert!((share(BlockOp::Trim) - 10.0).abs() < 0.5);
    assert!((share(BlockOp::Write) - 25.0).abs() < 0.7);
    for (reads, trims, op) in
        [(100, 0, BlockOp::Read), (0, 100, BlockOp::Trim), (0, 0, BlockOp::Write)]
    {
        let pattern = Pattern { trim_percent: trims, ..Pattern::uniform(1 << 20, reads) };
        assert!(take(&pattern, 10_000).iter().all(|a| a.op == op));
    }
}

#[test]
fn hot_and_cold_get_their_shares() {
    let order = Order::HotCold { accesses_percent: 80, range_percent: 20, placed: true };
    let pattern = Pattern { order, ..Pattern::uniform(1000 * 4096, 0) };
    let all = take(&pattern, 100_000);
    let unplaced = Pattern::uniform(1000 * 4096, 0);
    let hot: Vec<_> = all.iter().filter(|a| a.offset < 200 * 4096).collect();
    assert!((hot.len() as f64 / 1000.0 - 80.0).abs() < 0.7, "{} hot", hot.len());
    assert_eq!((pattern.hot_end(), unplaced.hot_end()), (200 * 4096, 0));
    let distinct: std::collections::HashSet<u64> = all.iter().map(|a| a.offset).collect();
    assert_eq!(distinct.len(), 1000, "every block comes");
    let all_hot = Order::HotCold { accesses_percent: 100, range_percent: 1, placed: false };
    let pattern = Pattern { order: all_hot, ..Pattern::uniform(2 * 4096, 0) };
    assert!(take(&pattern, 1000).iter().all(|a| a.offset == 0));
}

#[test]
fn the_hottest_block_is_as_hot_as_zipf_says() {
    let pattern =
        Pattern { order: Order::Zipf { theta: 0.99 }, ..Pattern::uniform(10_000 * 4096, 0) };
    let mut seen = vec![0u32; 10_000];
    for a in take(&pattern, 200_000) {
        seen[(a.offset / 4096) as usize] += 1;
    }
    let total: f64 = (1..=10_000).map(|k| f64::from(k).powf(-0.99)).sum();
    let expected = 200_000.0 / total;
    let hottest = f64::from(seen.iter().copied().max().unwrap());
    assert!((hottest / expected - 1.0).abs() < 0.05, "{hottest}, not {expected}");
    // The same blocks are hot for every submitter.
    let place = seen.iter().position(|&n| f64::from(n) == hottest).unwrap() as u64;
    let mut other = Generator::new(&pattern, 1, 3, 4).unwrap();
    let again = (0..10_000).filter(|_| other.next().offset / 4096 == place).count();
    assert!((again as f64 / (10_000.0 / total) - 1.0).abs() < 0.2, "{again}");
}

#[test]
fn flushes_and_forced_writes_come_on_time() {
    let pattern = Pattern { flush_every: 3, fua_every: 2, ..Pattern::uniform(1 << 20, 0) };
    let marks: String = take(&pattern, 9)
        .iter()
        .map(|a| match (a.op, a.fua) {
            (BlockOp::Flush, false) => 'f',
            (BlockOp::Write, true) => 'W',
            (BlockOp::Write, false) => 'w',
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(marks, "wWwfWwWfw");
}

#[test]
fn reads_do_not_count_as_writes() {
    let pattern = Pattern { flush_every: 4, ..Pattern::uniform(1 << 20, 50) };
    let all = take(&pattern, 1000);
    for part in all.split(|a| a.op == BlockOp::Flush).rev().skip(1) {
        assert_eq!(part.iter().filter(|a| a.op == BlockOp::Write).count(), 4);
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Sequential),
        Just(Order::Uniform),
        Just(Order::Once),
        any::<i64>().prop_map(|step| Order::Stride { step }),
        (1u32..=2).prop_map(|parts| Order::Partitioned { parts }),
        (0.01f64..=5.0).prop_map(|theta| Order::Zipf { theta }),
        (0.001f64..=0.999).prop_map(|h| Order::Pareto { h }),
        (0u8..=100, 1u8..=99, any::<bool>()).prop_map(
            |(accesses_percent, range_percent, placed)| Order::HotCold {
                accesses_percent,
                range_percent,
                placed,
            }
        ),
    ]
}

#[test]
fn each_block_comes_once_and_then_in_another_order() {
    let pattern = Pattern { order: Order::Once, ..Pattern::uniform(1000 * 4096, 50) };
    let blocks: Vec<u64> = take(&pattern, 2000).iter().map(|a| a.offset / 4096).collect();
    let sorted = |round: &[u64]| {
        let mut round = round.to_vec();
        round.sort_unstable();
        round
    };
    let (first, second) = blocks.split_at(1000);
    assert!(sorted(first) == sorted(second) && sorted(first) == (0..1000).collect::<Vec<_>>());
    assert_ne!(first, second);
    let mut other = Generator::new(&pattern, 1, 1, 2).unwrap();
    assert!((0..1000).filter(|&n| other.next().offset / 4096 == first[n]).count() < 20);
    let varied = Pattern { order: Order::Once, ..pattern }.of_sizes("4k/50:8k/50".parse().unwrap());
    assert_eq!(varied.check(), Err(PatternError::SeveralSizes));
}

/// Each kind of access goes on where its own kind was.
#[test]
fn several_sizes_in_order() {
    let sizes = "8k,4k".parse().unwrap();
    let pattern = Pattern { order: Order::Sequential, ..Pattern::uniform(36 << 10, 50) };
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for a in take(&pattern.of_sizes(sizes), 100) {
        match a.op {
            BlockOp::Read => reads.push((a.offset >> 10, a.len)),
            _ => writes.push((a.offset >> 10, a.len)),
        }
    }
    assert_eq!(reads[..6], [0, 8, 16, 24, 0, 8].map(|at| (at, 8192)));
    assert_eq!(writes[8..11], [32, 0, 4].map(|at| (at, 4096)));
}

#[test]
fn a_plain_pattern_draws_as_one_of_one_size() {
    let plain = Pattern { flush_every: 3, ..Pattern::uniform(1 << 20, 50) };
    let one = Varied { reads: Sizes::One(4096), others: Sizes::One(4096) };
    assert_eq!(take(&plain, 500), take(&plain.of_sizes(one), 500));
}

proptest! {
    #[test]
    fn several_sizes_stay_in_the_range_and_aligned(
        order in order(), start in 0u64..100, length in 64u64..5000, read_percent in 0u8..=100,
        seed in any::<u64>(), ranges in any::<bool>(),
    ) {
        if matches!(order, Order::Once | Order::Stride { .. } | Order::Partitioned { .. }) {
            return Ok(());
        }
        let split = "4k/30:2k/20:24k/50".parse().unwrap();
        let range = Sizes::Range { least: 4096, most: 32768 };
        let (reads, others) = (Sizes::Split(split), if ranges { range } else { Sizes::One(8192) });
        let pattern = Pattern { offset: start * 8192, order, ..Pattern::uniform(length << 10, 0) };
        let pattern = Pattern { read_percent, ..pattern }.of_sizes(Varied { reads, others });
        let mut g = Generator::new(&pattern, seed, 2, 3).unwrap();
        for _ in 0..100 {
            let a = g.next();
            let sizes = if a.op == BlockOp::Read { reads } else { others };
            let least = u64::from(sizes.least());
            prop_assert!(a.len >= least && a.len <= sizes.most().into());
            let is_aligned = order == Order::Sequential || (a.offset - pattern.offset).is_multiple_of(least);
            prop_assert!(is_aligned, "{} of {}", a.offset, a.len);
            prop_assert!(a.offset >= pattern.offset);
            prop_assert!(a.offset + a.len <= pattern.offset + pattern.length);
        }
    }
}

proptest! {
    #[test]
    fn accesses_stay_in_the_range_and_aligned(
        order in order(), sectors in 1u64..=2048, start in 0u64..100_000, blocks in 2u64..5000,
        rest in 0u64..512, read_percent in 0u8..=100, seed in any::<u64>(),
    ) {
        let bs = sectors * 512;
        let pattern = Pattern {
            offset: start * 512,
            length: blocks * bs + rest,
            bs,
            order,
            ..Pattern::uniform(0, read_percent)
        };
        let mut g = Generator::new(&pattern, seed, 2, 3).unwrap();
        for _ in 0..100 {
            let a = g.next();
            prop_assert_eq!(a.len, bs);
            prop_assert_eq!((a.offset - pattern.offset) % bs, 0);
            prop_assert!(a.offset >= pattern.offset);
            prop_assert!(a.offset + a.len <= pattern.offset + pattern.length);
        }
    }
}
