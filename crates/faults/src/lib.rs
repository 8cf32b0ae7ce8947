//! Faults on purpose: what a drive is tested against.
//!
//! Two ports go over any port of block requests or vector commands:
//! [`FaultPort`] makes operations fail, [`DelayPort`] makes them late. Three
//! media go over any medium: [`FaultyMedium`] damages what is stored,
//! [`CachedMedium`] loses and reorders what was not synced when power goes,
//! [`CheckedMedium`] keeps a checksum of each block, so that damage is an
//! error and never wrong data. All are told what to do by rules, which are
//! read from text and printed ([`Rule`]). Two are for tests alone: a medium of
//! which the test says what each operation does ([`ScriptedMedium`]), and a
//! drive that stops after a number of events ([`Fuse`]).
//!
//! Every fault comes from a seed: the same seed and the same operations give
//! the same faults. A power cut is no filter here: a stack is taken apart with
//! `into_below`, and its medium is cut ([`PowerCut`]).

mod cached;
mod checked;
mod command;
mod delay;
mod fault;
mod fuse;
mod medium;
mod over;
mod passage;
mod ranges;
mod rule;
mod scripted;
mod text;

pub use cached::CachedMedium;
pub use checked::CheckedMedium;
pub use command::{Command, Completion};
pub use delay::DelayPort;
pub use fault::FaultPort;
pub use fuse::Fuse;
pub use medium::FaultyMedium;
pub use passage::DEPTH;
pub use rule::{
    Access, Delay, DelayRule, FaultRule, MediumFault, MediumRule, Operation, Place, Rule, Span,
    Trigger, WrongPort,
};
pub use scripted::{Below, Script, ScriptedMedium, Slow};
pub use text::{Problem, TextError};

use std::any::Any;

use flash::{Chunk, Medium};

/// A medium whose power can be cut.
pub trait PowerCut: Medium + Any {
    /// Power goes and comes back: what was not durable is kept, lost or torn,
    /// as `seed` says. `chunks` are the descriptors that the medium was told
    /// last, by [`flash::Geometry::chunk_index`]; those that it lost become
    /// what it has.
    ///
    /// A medium below that answers [`flash::Moved::Pending`] is asked until it
    /// has moved the bytes.
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]);
}

/// A medium in memory that is durable at once loses nothing.
impl PowerCut for flash::RamMedium {
    fn power_cut(&mut self, _seed: u64, _chunks: &mut [Chunk]) {}
}
