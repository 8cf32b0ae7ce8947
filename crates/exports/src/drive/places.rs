//! Places at a drive: what each has there, and who of them keeps watch. Nothing fails.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use port::{BlockDone, Time};

/// One place at the drive.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub taken: bool,
    /// Commands inside the drive.
    pub inside: usize,
    /// The most that may be.
    pub limit: usize,
    /// Completions that others found.
    pub outbox: VecDeque<BlockDone>,
    /// Sleeps until its bell rings, and whether it has since.
    pub asleep: bool,
    pub rung: bool,
    /// Has commands that the drive refused.
    pub refused: bool,
    pub bell: Option<Arc<OwnedFd>>,
}

impl Place {
    /// Whether it waits for the drive.
    pub fn is_busy(&self) -> bool {
        self.inside > 0 || self.refused
    }
}

/// Who wakes at the drive's next event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub seat: usize,
    /// When it wakes; for ever while it works, so that others may take over.
    pub until: Time,
}

/// Notes that a place is to be woken, if it sleeps.
pub(super) fn wake(place: &mut Place, wakes: &mut Vec<Arc<OwnedFd>>) {
    if place.asleep && !std::mem::replace(&mut place.rung, true) {
        wakes.extend(place.bell.clone());
    }
}
