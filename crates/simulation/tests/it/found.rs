//! Lives that once failed. As long as a seed draws what it drew, it meets again
//! what it found.

use simulation::life::Over;
use simulation::{Plan, live};

fn goes_well(seed: u64) {
    let over = Some(Over::Blocks);
    let plan = Plan { seed, cycles: 32, broken: None, traced: None, over };
    assert!(live(&plan).violation.is_none(), "seed {seed}");
}

/// Two victims of a drive of one unit had all the room; chunks in which nothing
/// was valid were not erased.
#[test]
fn chunks_without_anything_valid_are_room_for_those_that_were_begun() {
    goes_well(79278);
}

/// A drive that has lost its spare collected the same two chunks for ever, and a
/// flush waited.
#[test]
fn what_wins_nothing_is_not_collected_for_ever() {
    goes_well(82902);
}

#[test]
fn a_life_is_over_where_no_drive_is_of_use() {
    goes_well(97048);
}
