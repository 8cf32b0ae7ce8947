//! Lives that once failed. As long as a seed draws what it drew, it meets again
//! what it found.

use simulation::Over;
use simulation::{Plan, live};

fn goes_well(seed: u64) {
    goes_well_over(seed, Over::Blocks);
}

fn goes_well_over(seed: u64, over: Over) {
    let over = Some(over);
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

/// A batch named the copy of collection as the one that it replaces, which another
/// had overtaken: the one that counted stayed valid behind a start.
#[test]
fn what_was_overtaken_is_not_what_is_replaced() {
    goes_well_over(1_049_153, Over::Batches);
}

/// A row of the log that could not be read was taken for torn, though there were
/// later ones.
#[test]
fn a_row_of_the_log_with_others_behind_it_is_not_torn() {
    goes_well_over(1_075_678, Over::Batches);
    goes_well_over(1_102_837, Over::Batches);
}

/// A batch was refused for want of room, the one behind it was not, and the cut
/// took both answers.
#[test]
fn a_refusal_that_nobody_saw_is_one() {
    goes_well_over(9_016_327, Over::Batches);
}

/// A drive of one unit, without a fault: cuts had spoilt so much of its chunks that
/// what was read of three victims found no room, and two chunks were kept back.
#[test]
fn what_empties_victims_gets_room() {
    goes_well(9_059_708);
}

/// Failures had used up the chunks for the target's own blocks in the middle of a
/// checkpoint, and data had more than they need.
#[test]
fn own_blocks_get_a_chunk_of_data_s() {
    goes_well(9_071_790);
}

/// A mirror with a single chunk left had no place for a root, and stayed behind with
/// an old one: when the other's newest could not be read, that was taken, and what
/// it led to was gone.
#[test]
fn a_mirror_with_one_chunk_does_not_stay_behind() {
    goes_well(11_312_077);
}

/// A read cache kept what a read had brought from beside a write, behind one that had seen
/// what was written.
#[test]
fn a_read_cache_keeps_nothing_that_changes() {
    [1_700_002_381, 1_700_005_304].into_iter().for_each(goes_well);
}

/// Records that users put filled the chunk that collection had opened with the last but
/// one that was free: it gave back none, and a delete found no room.
#[test]
fn collection_keeps_the_chunk_that_it_opens_where_few_are_free() {
    [2400, 3486, 3955].into_iter().for_each(|seed| goes_well_over(seed, Over::Keys));
}

/// Most segments of a log could not be read in a start, which had no room then.
#[test]
fn a_log_that_is_not_read_has_no_room() {
    goes_well_over(1_800_402_246, Over::Trees);
}
