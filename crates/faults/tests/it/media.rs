//! Each medium fault by itself, and a drive over damaged media.

use crate::common::*;
use device::{Device, VectorOp};
use faults::{CheckedMedium, FaultyMedium, WrongPort};
use flash::{Geometry, Medium, Moved, Ppa, RamMedium, TAG_BYTES, Tag, Timing};
use port::Status;
use port::random::mix;
use proptest::prelude::*;

fn ram(g: &Geometry, kept: u32) -> RamMedium {
    RamMedium::new(g, kept).unwrap()
}

fn faulty(g: &Geometry, kept: u32, rules: &[&str], seed: u64) -> FaultyMedium<RamMedium> {
    FaultyMedium::new(g, ram(g, kept), &medium_rules(rules), seed).unwrap()
}

type Checked = CheckedMedium<FaultyMedium<RamMedium>>;

fn checked(g: &Geometry, kept: u32, rules: &[&str], seed: u64) -> Checked {
    CheckedMedium::new(g, faulty(g, kept, rules, seed)).unwrap()
}

/// The data and tag of the block at `ppa` in its round number `round`.
fn block(ppa: u64, round: u64, bytes: usize) -> (Vec<u8>, [u8; TAG_BYTES]) {
    let number = ppa << 20 | round;
    let mut tag = [0; TAG_BYTES];
    Tag { id: mix(number) >> 40, seq: number }.store(&mut tag);
    ((0..bytes as u64).map(|i| (mix(number) >> (i % 7 * 8)) as u8 ^ i as u8).collect(), tag)
}

fn program(m: &mut impl Medium, at: Ppa, count: u32, round: u64, whole: bool) -> Moved {
    let bytes = if whole { 4096 } else { m.kept() as usize };
    let (mut data, mut tags) = (Vec::new(), Vec::new());
    for i in 0..u64::from(count) {
        let (block, tag) = block(at.0 + i, round, bytes);
        data.extend(block);
        tags.extend(tag);
    }
    m.program(at, count, &data, &tags)
}

/// Whether a block reads, and reads right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Right,
    Wrong,
    Failed,
}

fn look(m: &mut impl Medium, ppa: u64, round: u64, whole: bool) -> Found {
    let bytes = if whole { 4096 } else { m.kept() as usize };
    let (data, tag) = block(ppa, round, bytes);
    let (mut back, mut back_tag) = (vec![0; bytes], [0; TAG_BYTES]);
    match m.read(Ppa(ppa), 1, &mut back, &mut back_tag) {
        Moved::Done if back == data && back_tag == tag => Found::Right,
        Moved::Done => Found::Wrong,
        Moved::Failed => Found::Failed,
        Moved::Pending => panic!("memory is never late"),
    }
}

/// All blocks of all chunks.
fn blocks(g: &Geometry) -> Vec<u64> {
    let chunks = g.pus_channels_first().flat_map(|pu| (0..g.chunks()).map(move |c| (pu, c)));
    let starts: Vec<u64> = chunks.map(|(pu, c)| g.chunk_start(g.chunk_of(pu, c)).0).collect();
    starts.into_iter().flat_map(|s| s..s + u64::from(g.chunk_blocks())).collect()
}

/// Programs every row of the drive, one of which is struck, and looks at every
/// block. Gives those that are not right, with and without the sums.
fn damage_of(fault: &str, kept: u32, seed: u64, struck: u64) -> (Vec<u64>, Vec<(u64, Found)>) {
    let g = geometry();
    let text = format!("{fault},from={struck},count=1");
    let whole = kept != 4096 && seed.is_multiple_of(2);
    let run = |m: &mut dyn FnMut(u64, bool) -> Option<Found>| -> Vec<(u64, Found)> {
        for at in blocks(&g).into_iter().step_by(4) {
            m(at, true);
        }
        let found = blocks(&g).into_iter().filter_map(|at| Some((at, m(at, false)?)));
        found.filter(|(_, found)| *found != Found::Right).collect()
    };
    let mut bare = faulty(&g, kept, &[&text], seed);
    let wrong = run(&mut |at, write| match write {
        true => {
            assert_eq!(program(&mut bare, Ppa(at), 4, 1, whole), Moved::Done);
            None
        }
        false => Some(look(&mut bare, at, 1, whole)),
    });
    let mut sums = checked(&g, kept, &[&text], seed);
    let refused = run(&mut |at, write| match write {
        true => {
            assert_eq!(program(&mut sums, Ppa(at), 4, 1, whole), Moved::Done);
            None
        }
        false => Some(look(&mut sums, at, 1, whole)),
    });
    assert_eq!(bare.struck().sum::<u64>(), 1);
    assert!(refused.iter().all(|(_, found)| *found == Found::Failed), "never wrong data");
    (refused.into_iter().map(|(at, _)| at).collect(), wrong)
}

#[test]
fn damage_is_where_the_fault_was_and_is_found() {
    let g = geometry();
    let (mut torn, mut wrong_ones) = (0, 0);
    for seed in 0..60 {
        let kept = [4096, 8, 0][seed as usize % 3];
        let struck = seed % 90 + 1;
        let first = blocks(&g)[(struck as usize - 1) * 4];
        let row = first..first + 4;
        let (lost, wrong) = damage_of("medium:lost", kept, seed, struck);
        assert_eq!(lost, row.clone().collect::<Vec<_>>(), "just the blocks that were lost");
        assert!(wrong.iter().map(|w| w.0).eq(row.clone()));
        let (cut, wrong) = damage_of("medium:torn", kept, seed, struck);
        assert!(cut.iter().all(|at| row.contains(at)));
        assert!(wrong.iter().map(|w| w.0).eq(cut.iter().copied()));
        torn += cut.len();
        let (gone, wrong) = damage_of("medium:misdirected", kept, seed, struck);
        assert!(wrong.iter().map(|w| w.0).eq(gone.iter().copied()));
        assert!(row.clone().all(|at| gone.contains(&at)), "it is not where it should be");
        // Its target may be programmed later, and then is right again.
        assert!(gone.len() <= 8, "{gone:?}");
        wrong_ones += wrong.iter().filter(|w| w.1 == Found::Wrong).count();
    }
    assert!(torn > 60 && wrong_ones > 60, "{torn} torn, {wrong_ones} wrong without sums");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Any faults at any time: under the sums, what reads is what was stored
    /// last.
    #[test]
    fn nothing_is_ever_wrong(seed in any::<u64>(), kept in 0usize..3, p in 1u32..60) {
        let (g, kept) = (geometry(), [4096, 8, 0][kept]);
        let p = f64::from(p) / 100.0;
        let rules: Vec<String> = ["torn", "lost", "misdirected", "bitrot", "fail,on=any"].iter()
            .map(|kind| format!("medium:{kind},probability={p}")).collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let mut m = checked(&g, kept, &rules, seed);
        let mut random = Numbers(seed);
        let mut chunks = [(0u64, Vec::<(u64, bool)>::new()), (1, Vec::new()), (2, Vec::new())];
        for round in 0..300u64 {
            let (number, held) = &mut chunks[random.below(3) as usize];
            let start = g.chunk_start(g.chunk_of(*number as usize, 0));
            match random.below(8) {
                0..3 if held.len() < 24 => {
                    let whole = random.below(2) == 0 && kept != 4096;
                    let at = Ppa(start.0 + held.len() as u64);
                    program(&mut m, at, 4, round, whole);
                    held.extend([(round, whole); 4]);
                }
                0..3 if m.reset(start) == Moved::Done => held.clear(),
                _ if !held.is_empty() => {
                    let i = random.below(held.len() as u64);
                    let (round, whole) = held[i as usize];
                    let found = look(&mut m, start.0 + i, round, whole);
                    prop_assert_ne!(found, Found::Wrong);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn rot_stays_until_the_block_is_written_again() {
    let g = geometry();
    let (at, start) = (g.ppa(1, 1, 2, 5).0, g.ppa(1, 1, 2, 0));
    let mut m = checked(&g, 8, &["medium:bitrot,from=4,count=1"], 7);
    assert_eq!(program(&mut m, start, 8, 1, false), Moved::Done);
    let found: Vec<Found> = (0..6).map(|_| look(&mut m, at, 1, false)).collect();
    assert_eq!(found[..3], [Found::Right; 3], "it was good at first");
    assert_eq!(found[3..], [Found::Failed; 3], "and stays bad");
    assert_eq!((m.below().damaged(), m.refused()), (1, 3));
    assert_eq!(look(&mut m, at + 1, 1, false), Found::Right);
    assert_eq!(m.reset(start), Moved::Done);
    assert_eq!(look(&mut m, at + 1, 1, false), Found::Failed, "of a life before");
    program(&mut m, start, 8, 2, false);
    assert_eq!(look(&mut m, at, 2, false), Found::Right);
    // By hand: every byte of data and tag matters, also where only the other
    // one is read.
    for byte in 0..24 {
        m.below_mut().rot(Ppa(at), byte, 0x10);
        assert_eq!(look(&mut m, at, 2, false), Found::Failed, "byte {byte}");
        assert_eq!(m.read(Ppa(at), 1, &mut [], &mut [0; 16]), Moved::Failed);
        assert_eq!(m.read(Ppa(at), 1, &mut [0; 8], &mut []), Moved::Failed);
    }
    // Without the sums a flipped bit is a flipped bit.
    let mut m = m.into_below();
    let (mut data, mut tag) = ([0; 8], [0; 16]);
    assert_eq!(m.read(Ppa(at), 1, &mut data, &mut tag), Moved::Done);
    let (right, right_tag) = block(at, 2, 8);
    let flipped = data.iter().zip(&right).chain(tag.iter().zip(&right_tag));
    assert_eq!(flipped.map(|(a, b)| (a ^ b).count_ones()).sum::<u32>(), 1);
}

#[test]
fn forms_are_not_mixed_up() {
    let g = geometry();
    let mut m = checked(&g, 8, &[], 0);
    let at = g.ppa(0, 0, 0, 0);
    program(&mut m, at, 2, 1, true);
    program(&mut m, Ppa(at.0 + 2), 2, 1, false);
    let mut tags = [0; 4 * TAG_BYTES];
    assert_eq!(m.read(at, 4, &mut [], &mut tags), Moved::Done, "tags of both forms");
    for i in 0..4 {
        assert_eq!(tags[i * 16..][..16], block(at.0 + i as u64, 1, 8).1);
        assert_eq!(look(&mut m, at.0 + i as u64, 1, i < 2), Found::Right);
        assert_eq!(look(&mut m, at.0 + i as u64, 1, i >= 2), Found::Failed);
    }
}

#[test]
fn failing_and_slow_operations() {
    let g = geometry();
    let at = g.ppa(0, 0, 1, 0);
    let bad = format!("medium:fail,ppa={0}-{1},on=read,permanent,from=2,count=1", at.0, at.0 + 4);
    let rules = [
        &bad,
        "medium:fail,on=program,count=1",
        "medium:fail,on=flush,from=2,permanent",
        "medium:fail,on=reset,count=1",
        "medium:slow,on=program,count=1,pending=3",
        "medium:slow,on=flush,count=1,pending=2",
    ];
    let mut m = faulty(&g, 8, &rules, 0);
    for _ in 0..3 {
        assert_eq!(program(&mut m, at, 4, 1, false), Moved::Pending);
    }
    assert_eq!(program(&mut m, at, 4, 1, false), Moved::Failed, "slow, and then it fails");
    assert_eq!(program(&mut m, at, 8, 1, false), Moved::Done);
    let read = |m: &mut FaultyMedium<_>, i| look(m, at.0 + i, 1, false);
    assert_eq!((read(&mut m, 1), read(&mut m, 2)), (Found::Right, Found::Failed));
    assert_eq!((read(&mut m, 2), read(&mut m, 1)), (Found::Failed, Found::Right));
    assert_eq!((read(&mut m, 4), read(&mut m, 3)), (Found::Right, Found::Right));
    assert_eq!(
        [(); 5].map(|()| m.barrier()),
        [Moved::Pending, Moved::Pending, Moved::Done, Moved::Failed, Moved::Failed]
    );
    assert_eq!((m.reset(at), m.reset(at)), (Moved::Failed, Moved::Done));
    let rules = medium_rules(&["medium:torn"]);
    let mut offset = rules[0].clone();
    offset.trigger.span = Some(faults::Span::Offset(0..9));
    let refused = FaultyMedium::new(&g, ram(&g, 8), &[offset], 0).err();
    assert!(matches!(refused, Some(WrongPort::Span { given: "offset", .. })));
}

#[test]
fn a_drive_reports_what_the_sums_find() {
    let g = geometry();
    let m = checked(&g, 8, &["medium:lost,from=2,count=1", "medium:slow,probability=0.5"], 1);
    let mut rig = Rig::new(Device::new(&g, &Timing::default(), m).unwrap(), 8);
    let at = g.ppa(0, 1, 0, 0);
    for i in 0..3 {
        let mut write = vector(i, VectorOp::Write, Ppa(at.0 + i * 4), 4, 8);
        write.buffer.bytes_mut().fill(9);
        rig.submit(i, write);
    }
    rig.submit(3, vector(3, VectorOp::Read, at, 12, 8));
    rig.drain();
    let done = rig.all.pop().unwrap();
    assert_eq!((done.status, done.failed), (Status::UNRECOVERED_READ, 0xf0));
    assert!(rig.all.iter().all(|done| done.status.is_ok()), "the write that was lost said so, too");
}
