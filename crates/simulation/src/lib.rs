//! The simulator: the whole stack in virtual time, from a seed.
//!
//! A life is a small random drive, random work on it, power cuts at random
//! events, also in recovery, and a check of every value that is read against
//! what the contract allows. The same seed gives the same life, to the bit, in
//! every build.
//!
//! Files: [`setup`] which drive and which work, [`species`] which block target, [`trouble`] which faults,
//! [`nature`] which flash and caches, [`drive`] the drive with faults in front,
//! [`power`] what a cut takes and what it leaves, `store` the media for that, [`battery`] the memory of a protected cache, `damaged`
//! media that damage, `ondisk` a drive file on a disk, [`layered`] the block
//! layer above a drive, [`contract`] what may be read, `words` the bytes of values,
//! [`machine`] a drive and a host that remembers, with what it checks and what
//! it excuses, [`plan`] what a
//! seed stands for, [`life`] random work and cuts, whatever lives, `lives` those of a
//! target of any crate, [`rig`] what every life
//! stands on, [`counts`] what was done, [`script`] short work cut at
//! every event, [`breaks`] ways to break the contract, to show that each is
//! found, `early` one of them. [`batched`] are the lives of the
//! batched target, [`keyed`] those of the key-value target, [`tree`] those of the key-value tree,
//! [`served`] those of the Redis server over it, [`shared`] those of a drive that targets of
//! blocks and of keys share.
//!
//! Nothing here fails but by a [`Violation`]: what was expected, what was seen,
//! and the command that shows it again.

pub mod batched;
pub mod battery;
pub mod breaks;
mod buffers;
pub mod contract;
pub mod counts;
mod damaged;
pub mod drive;
mod early;
pub mod keyed;
pub mod layered;
pub mod life;
mod lives;
pub mod machine;
pub mod nature;
mod noted;
mod ondisk;
pub mod plan;
pub mod power;
pub mod rebuilt;
mod rig;
pub mod script;
pub mod served;
pub mod setup;
pub mod shared;
pub mod species;
pub mod stack;
mod store;
mod superblocks;
pub mod tree;
pub mod trouble;
mod words;

pub use breaks::{Break, meant, note_panics};
pub use contract::Contract;
pub use counts::Counts;
pub use life::{Outcome, live};
pub use lives::{BrokenLife, NotShown, lives, shows};
pub use machine::{Machine, Violation};
pub use plan::{Over, Plan};
pub use setup::{LinkAt, Setup};
pub use species::{Host, Lower, Refusal, Subject};
pub use trouble::{Struck, Troubles};
