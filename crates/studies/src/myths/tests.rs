use device::VectorOp;
use flash::Ppa;
use load::watch::Watch;

use super::super::{Options, Study, Verdict};
use super::chip::Chips;
use super::*;

/// Figures of virtual time depend on no machine: all that is judged passes.
#[test]
fn the_quick_study_passes_and_draws() {
    let options = Options { quick: true, ..Options::default() };
    let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
    for row in &outcome.rows {
        assert_ne!(row.verdict(), Verdict::Fail, "{}", row.to_json());
    }
    let (passed, _, not_gated) = outcome.tally();
    assert_eq!((passed, not_gated), (42, 4), "{}", outcome.to_json());
    let names: Vec<&str> = outcome.pictures.iter().map(|picture| picture.name).collect();
    let all = ["myths-chip", "myths-writes", "myths-reads", "myths-spread", "myths-timeline"];
    assert_eq!(names, all);
    for picture in &outcome.pictures {
        assert!(picture.svg.starts_with("<svg") && picture.svg.ends_with("</svg>\n"));
    }
    assert_eq!(Study::named("myths").unwrap().about, STUDY.about);
}

/// Parts of commands lie where they were: by hand, two chips on one channel of which each
/// programs a row, and reads it.
#[test]
fn a_timeline_is_that_of_its_commands() {
    let mut chips = Chips::of("mem:openssd,groups=1,pus=2,command=0ns,store=none", 1).unwrap();
    let row = chips.geometry.row_blocks();
    let mut ended = Vec::new();
    let start = |chips: &Chips, unit| chips.geometry.chunk_start(chips.geometry.chunk_of(unit, 0));
    let all = |chips: &mut Chips, op, ended: &mut Vec<_>| {
        for unit in 0..2 {
            let ppa: Ppa = start(chips, unit);
            chips.ask(op, ppa, row);
        }
        (0..2).for_each(|_| chips.wait(ended));
    };
    all(&mut chips, VectorOp::Write, &mut ended);
    let transfer = 163_840;
    let program = 1_300_000;
    let [first, second] = [ended[0], ended[1]];
    assert_eq!((first.transfer(), second.transfer()), ((0, transfer), (transfer, 2 * transfer)));
    assert_eq!(first.array(), (transfer, transfer + program));
    assert_eq!(second.array(), (2 * transfer, 2 * transfer + program));
    let now = second.array().1;
    ended.clear();
    all(&mut chips, VectorOp::Read, &mut ended);
    let [first, second] = [ended[0], ended[1]];
    let read = (now, now + 250_000);
    assert_eq!((first.array(), second.array()), (read, read));
    assert_eq!(first.transfer(), (read.1, read.1 + transfer));
    assert_eq!(second.transfer(), (read.1 + transfer, read.1 + 2 * transfer));
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_does_not() {
    let rows = |seed: u64| {
        let options = Options { quick: true, seed, ..Options::default() };
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        [nature::findings(&mut lab), atomic::findings(&mut lab)].map(|found| found.unwrap().rows)
    };
    let first = rows(1);
    assert_eq!(first, rows(1));
    assert_ne!(first, rows(2));
}
