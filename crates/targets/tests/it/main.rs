//! The tests of this crate as its users see it: one program, since each that is
//! linked costs as much as all of them. An optimised build has those alone that
//! take too long without.

mod amplification;
#[cfg(debug_assertions)]
mod bandwidth;
#[cfg(all(debug_assertions, feature = "mutations"))]
mod batch_breaks;
#[cfg(debug_assertions)]
mod batch_damage;
#[cfg(debug_assertions)]
mod batch_failures;
#[cfg(debug_assertions)]
mod batch_faults;
#[cfg(debug_assertions)]
mod batch_file;
#[cfg(debug_assertions)]
mod batch_limits;
#[cfg(debug_assertions)]
mod batch_pace;
#[cfg(debug_assertions)]
mod batch_recovery;
#[cfg(debug_assertions)]
mod batch_sides;
#[cfg(debug_assertions)]
mod batch_wear;
#[cfg(debug_assertions)]
mod batch_world;
#[cfg(debug_assertions)]
mod cached;
#[cfg(debug_assertions)]
mod checkpoint;
#[cfg(debug_assertions)]
mod close;
#[cfg(debug_assertions)]
mod copyback;
#[cfg(debug_assertions)]
mod damage;
#[cfg(debug_assertions)]
mod disturb;
#[cfg(debug_assertions)]
mod erases_undone;
#[cfg(debug_assertions)]
mod failures;
#[cfg(debug_assertions)]
mod given_up;
#[cfg(debug_assertions)]
mod host;
#[cfg(debug_assertions)]
mod idle;
#[cfg(debug_assertions)]
mod kv;
#[cfg(debug_assertions)]
mod kv_world;
#[cfg(debug_assertions)]
mod late_part;
#[cfg(debug_assertions)]
mod loading;
#[cfg(debug_assertions)]
mod lost_part;
#[cfg(debug_assertions)]
mod map_cache;
#[cfg(debug_assertions)]
mod model;
#[cfg(debug_assertions)]
mod openings;
#[cfg(debug_assertions)]
mod openings_at_once;
mod pace;
#[cfg(debug_assertions)]
mod recovery;
#[cfg(debug_assertions)]
mod sent_again;
#[cfg(debug_assertions)]
mod streams;
mod wear;
mod whole_drives;
#[cfg(debug_assertions)]
mod window;
#[cfg(debug_assertions)]
mod write_buffer;
