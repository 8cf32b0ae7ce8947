//! Each way to break the contract is found, and soon: where nothing else goes
//! wrong, and where other things do.

use std::panic::catch_unwind;

use drivefile::mutation::Mutation as FileMutation;
use port::Ring;
use simulation::batched::BatchBreak;
use simulation::{Break, Over, Plan, live, meant, note_panics};
use targets::batch::mutation::Mutation as BatchMutation;
use targets::kv::mutation::Mutation as KvMutation;
use targets::pblk::mutation::Mutation;

/// Lives of each kind in which each must be found.
const LIVES: u64 = 600;

/// What only shows where operations are late or an SLC cache makes reads wait; over
/// a cache; where the newest checkpoint record cannot be read. A claim that is denied
/// takes nothing along by itself, as what its sync erased is kept until the next one.
/// And what shows late.
const NOT_SOUND: [Break; 6] = [
    Break::File(FileMutation::DenyClaim),
    LATE,
    Break::Inside(Mutation::EraseUnderReads),
    Break::Batch(BatchBreak::Inside(BatchMutation::AckUnsynced)),
    Break::Batch(BatchBreak::Inside(BatchMutation::ForgetLog)),
    Break::Keyed(KvMutation::AckUnsynced),
];

/// What shows late in a life, when a disk has failed some descriptors.
const LATE: Break = Break::File(FileMutation::GoOnUnwritten);

/// Whether a life shows that something is broken: by a violation, or by an
/// assertion of the target's.
fn finds(broken: Break, seed: u64) -> bool {
    let cycles = if broken == LATE { 32 } else { 8 };
    let plan = Plan { seed, cycles, broken: Some(broken), traced: None, over: None };
    match catch_unwind(|| live(&plan)) {
        Ok(outcome) => outcome.violation.is_some(),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or(panic.downcast_ref::<&str>().copied());
            said.is_some_and(meant)
        }
    }
}

#[test]
fn every_break_is_found() {
    // Broken flash may also trip the target's own assertions: that is found.
    note_panics(true);
    let missed = [0, 1].map(|odd| {
        let seeds = move || (0..LIVES).map(move |i| 2 * i + odd);
        let all = Break::all().filter(|broken| odd == 1 || !NOT_SOUND.contains(broken));
        all.filter(|&broken| !seeds().any(|seed| finds(broken, seed))).collect::<Vec<_>>()
    });
    note_panics(false);
    let [sound, faulty] = missed;
    assert!(sound.is_empty(), "not found where nothing else is wrong: {sound:?}");
    assert!(faulty.is_empty(), "not found where other things are: {faulty:?}");
}

#[test]
fn a_panic_that_nobody_meant_is_none_that_finds() {
    let said = |work: fn()| {
        note_panics(true);
        let panic = catch_unwind(work).unwrap_err();
        note_panics(false);
        let said = panic.downcast_ref::<String>().map(String::as_str);
        meant(said.or(panic.downcast_ref::<&str>().copied()).unwrap())
    };
    assert!(!said(|| assert!(std::hint::black_box(false), "the simulator's own")));
    assert!(!said(|| unreachable!("nowhere")));
    assert!(!said(|| assert_ne!([1, 2][std::hint::black_box(2)], 0)));
    assert!(!said(|| assert_ne!(std::hint::black_box(None::<u8>).unwrap(), 0)));
    // An assertion of what is simulated.
    assert!(said(|| drop(Ring::<u8>::new(0))));
}

/// Where the next life is of another kind, and where a life ended in a panic.
#[test]
fn what_is_broken_is_broken_in_one_life() {
    note_panics(true);
    let is_changed = |broken: Mutation| {
        (0..8).any(|seed| {
            let plan =
                Plan { seed, cycles: 2, broken: None, traced: None, over: Some(Over::Trees) };
            let sound = live(&plan).hash;
            finds(Break::Inside(broken), seed);
            live(&plan).hash != sound
        })
    };
    let changed: Vec<_> = Mutation::ALL.into_iter().filter(|&broken| is_changed(broken)).collect();
    note_panics(false);
    assert!(changed.is_empty(), "still broken in the next life: {changed:?}");
}
