//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them.

mod amplification;
#[cfg(feature = "mutations")]
mod batch_breaks;
mod batch_damage;
mod batch_failures;
mod batch_faults;
mod batch_limits;
mod batch_pace;
mod batch_recovery;
mod batch_sides;
mod batch_wear;
mod batch_world;
mod cached;
mod checkpoint;
mod close;
mod damage;
mod disturb;
mod erases_undone;
mod failures;
mod late_part;
mod loading;
mod lost_part;
mod model;
mod pace;
mod recovery;
mod sent_again;
mod slc;
mod wear;
mod whole_drives;
