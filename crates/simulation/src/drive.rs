//! The drive that a target has: as it is, or with faults in front; and perhaps
//! with parity across its units.
//!
//! With faults each read that fails is noted with what it was to give, so that
//! the host knows which errors it may see.

use std::rc::Rc;

use device::{OpenChannel, VectorCmd, VectorDone, VectorOp};
use faults::{DelayPort, FaultPort, WrongPort};
use flash::{BlockBits, Chunk, Geometry, Ppa, Timing};
use parity::ParityError;
use port::{Port, Ring, Time};

use crate::noted::{DEPTH, Noted, Sent};
use crate::power::{Flash, Power, Powered};
use crate::rebuilt::{self, Rebuilt};
use crate::trouble::Troubles;

/// A drive, the faults in front of it, if there are any, and parity.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Drive {
    /// No faults.
    Sound(Powered),
    /// With faults.
    Faulty(Box<Faulty>),
    /// With parity over one of these.
    Parity(Box<Rebuilt>),
}

/// Faults in front of a drive.
pub struct Faulty {
    below: DelayPort<Noted<FaultPort<Powered>>>,
    flash: Flash,
}

/// An operation failed. Of that note is taken when it does: when its late completion comes,
/// what it concerned may be erased.
fn note(flash: &Flash, sent: &Sent, done: &VectorDone) {
    let list = done.list.as_ref().filter(|_| sent.op != VectorOp::Copy);
    let at = |i| list.map_or(Ppa(sent.ppa.0 + i as u64), |list| list.from[i]);
    flash.note_failed(sent.op, at, done.status, done.failed);
}

impl Drive {
    /// The drive with these troubles, decided by `seed`.
    ///
    /// # Errors
    /// Where a rule is not for vector commands.
    pub fn new(
        drive: Powered,
        flash: &Flash,
        troubles: &Troubles,
        seed: u64,
    ) -> Result<Drive, WrongPort> {
        if troubles.is_none() {
            return Ok(Drive::Sound(drive));
        }
        let below = FaultPort::with_depth(drive, &troubles.operations, seed, DEPTH)?;
        let below = Noted::new(below, flash, note);
        let below = DelayPort::with_depth(below, &troubles.delays, seed, DEPTH)?;
        Ok(Drive::Faulty(Box::new(Faulty { below, flash: flash.clone() })))
    }

    /// The same with parity of this width; none where it is 0.
    ///
    /// # Errors
    /// As [`Parity::new`].
    pub fn with_parity(self, width: u32, flash: &Flash) -> Result<Drive, ParityError> {
        if width == 0 {
            return Ok(self);
        }
        Ok(Drive::Parity(Box::new(rebuilt::new(self, flash, width)?)))
    }

    fn powered(&self) -> &Powered {
        match self {
            Drive::Sound(drive) => drive,
            Drive::Faulty(faulty) => faulty.below.below().below().below(),
            Drive::Parity(parity) => parity.below().below().powered(),
        }
    }

    /// Whether power is.
    fn is_gone(&self) -> bool {
        self.powered().is_gone()
    }

    /// Operations that were late so far.
    pub fn delays(&self) -> u64 {
        match self {
            Drive::Sound(_) => 0,
            Drive::Faulty(faulty) => faulty.below.struck().sum(),
            Drive::Parity(parity) => parity.below().below().delays(),
        }
    }

    /// A hash of the device's state.
    pub fn state_hash(&self) -> u64 {
        self.powered().device().state_hash()
    }
}

impl Faulty {
    fn power(&self) -> &Rc<Power> {
        self.flash.shared_power()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.below.advance(to, done);
        if self.power().is_gone() {
            // What ends in the moment of the cut reaches nobody.
            while done.pop().is_some() {}
        }
    }
}

impl Port for Drive {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        match self {
            Drive::Sound(drive) => drive.submit(now, cmds),
            Drive::Faulty(faulty) if faulty.power().is_gone() => {}
            Drive::Faulty(faulty) => faulty.below.submit(now, cmds),
            Drive::Parity(parity) => parity.submit(now, cmds),
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        match self {
            Drive::Sound(drive) => drive.next_event(),
            Drive::Faulty(faulty) if faulty.power().is_gone() => None,
            Drive::Faulty(faulty) => faulty.below.next_event(),
            Drive::Parity(parity) if parity.below().below().is_gone() => None,
            Drive::Parity(parity) => parity.next_event(),
        }
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        match self {
            Drive::Sound(drive) => drive.advance(to, done),
            Drive::Faulty(faulty) if faulty.power().is_gone() => {}
            Drive::Faulty(faulty) => faulty.advance(to, done),
            Drive::Parity(parity) if parity.below().below().is_gone() => {}
            Drive::Parity(parity) => parity.advance(to, done),
        }
    }
}

impl OpenChannel for Drive {
    fn geometry(&self) -> &Geometry {
        match self {
            Drive::Parity(parity) => parity.geometry(),
            drive => drive.powered().geometry(),
        }
    }

    fn timing(&self) -> &Timing {
        self.powered().timing()
    }

    fn kept(&self) -> u32 {
        self.powered().kept()
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        match self {
            Drive::Parity(parity) => parity.chunk(chunk_index),
            drive => drive.powered().chunk(chunk_index),
        }
    }

    fn failed_of(&self, ppa: Ppa, count: u32) -> BlockBits {
        match self {
            Drive::Parity(parity) => parity.failed_of(ppa, count),
            drive => drive.powered().failed_of(ppa, count),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Drive::Parity(parity) => parity.depth(),
            drive => drive.powered().depth().min(DEPTH),
        }
    }

    fn copies_inside(&self) -> u32 {
        match self {
            Drive::Parity(parity) => parity.copies_inside(),
            drive => drive.powered().copies_inside(),
        }
    }

    fn rows_at_once(&self) -> u32 {
        match self {
            Drive::Parity(parity) => parity.rows_at_once(),
            drive => drive.powered().rows_at_once(),
        }
    }

    fn is_cached(&self) -> bool {
        self.powered().is_cached()
    }

    fn take_notice(&mut self) -> Option<device::Notice> {
        match self {
            Drive::Sound(drive) => drive.take_notice(),
            Drive::Faulty(faulty) => faulty.below.below_mut().below_mut().take_notice(),
            Drive::Parity(parity) => parity.take_notice(),
        }
    }
}
