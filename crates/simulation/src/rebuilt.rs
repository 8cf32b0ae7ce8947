//! Parity over a drive whose reads may fail: what it does not give must have a reason.
//!
//! A block is lost where its member did not give it, and it could not be rebuilt then: its
//! stripe had no parity yet, or of another member that block was not read either, while the
//! command was inside. Only then it is noted, and so an excuse for the target above.

use device::{VectorDone, VectorOp};
use flash::{BlockBits, Ppa};
use parity::{Parity, ParityError};
use port::Status;

use crate::drive::Drive;
use crate::noted::{Noted, Sent};
use crate::power::Flash;

/// See the head of this file.
pub type Rebuilt = Noted<Parity<Drive>>;

/// Parity of this width over a drive.
///
/// # Errors
/// As [`Parity::new`].
pub(crate) fn new(drive: Drive, flash: &Flash, width: u32) -> Result<Rebuilt, ParityError> {
    Ok(Noted::new(Parity::new(drive, width)?, flash, note))
}

/// A command ended that did not do what it was to do.
fn note(flash: &Flash, sent: &Sent, done: &VectorDone) {
    assert!(done.list.is_none(), "a target here names neighbours");
    match sent.op {
        VectorOp::Read if done.status == Status::UNRECOVERED_READ => {
            for i in (0..u64::from(BlockBits::BITS)).filter(|i| done.failed >> i & 1 == 1) {
                flash.note_lost(Ppa(sent.ppa.0 + i), sent.before);
            }
        }
        VectorOp::Write => flash.note_closed(sent.ppa, sent.before),
        _ => {}
    }
}
