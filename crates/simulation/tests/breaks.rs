//! Each way to break the contract is found, and soon.

use std::panic::catch_unwind;

use simulation::{Break, Plan, live};

/// Lives in which each must be found.
const LIVES: u64 = 600;

#[test]
fn every_break_is_found() {
    // Broken flash may also trip the target's own assertions: that is found.
    std::panic::set_hook(Box::new(|_| {}));
    let missed = Break::all().filter(|&broken| {
        !(0..LIVES).any(|seed| {
            let broken = Some(broken);
            let plan = Plan { seed, cycles: 8, broken, traced: None };
            catch_unwind(|| live(&plan)).map_or(true, |outcome| outcome.violation.is_some())
        })
    });
    let missed: Vec<Break> = missed.collect();
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
