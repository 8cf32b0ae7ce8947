//! A layer that takes nothing new, so that all that is inside ends.
//!
//! [`Freezer::freeze`], from any thread, shuts a gate in front of all cores: what they are offered
//! stays with their submitters, as if there were no room. What is inside goes on,
//! plugged or not. When [`Frozen::is_drained`] says so, nothing is staged or with
//! the driver, and nothing will be before the layer thaws.
//!
//! Guarantees: on the way of a request this is one load of a line that nobody
//! writes. Nothing waits here: whoever drives the cores goes on driving them, and
//! a core has drained once it has looked after its last request. So one that
//! stands still, with or without requests, holds it up. Several may freeze a layer
//! at once; it thaws with the last. Nothing fails.

use std::sync::Arc;

use tags::Shut;

use crate::context::Context;
use crate::driver::HardwareQueue;
use crate::peers::Peers;

/// What freezes a layer, from any thread.
pub struct Freezer<Q: HardwareQueue>(Arc<Peers<Q>>);

impl<Q: HardwareQueue> Freezer<Q> {
    /// Freezes the layer, all cores of it, until what this gives is dropped.
    pub fn freeze(&self) -> Frozen<Q> {
        Frozen { shut: self.0.gate.shut(), peers: self.0.clone() }
    }
}

/// A layer that is frozen, until this is dropped.
pub struct Frozen<Q: HardwareQueue> {
    shut: Shut,
    peers: Arc<Peers<Q>>,
}

impl<Q: HardwareQueue> Frozen<Q> {
    /// Whether all that was inside has ended.
    pub fn is_drained(&self) -> bool {
        // What cores left behind is counted before they say that they went.
        self.shut.is_empty() && !self.peers.has_abandoned()
    }
}

impl<Q: HardwareQueue> Context<Q> {
    /// What freezes the layer.
    pub fn freezer(&self) -> Freezer<Q> {
        Freezer(self.peers.clone())
    }

    /// Keeps out what was offered for a lane, since the gate is shut.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep_out(&mut self, lane: Option<usize>) {
        self.refused = lane;
        self.look_at_gate();
    }

    /// Where the gate is shut, says whether this core has drained, and lets go what
    /// a plug holds back.
    #[inline(always)]
    pub(crate) fn look_at_gate(&mut self) {
        if !self.peers.gate.is_open() {
            self.drain();
        }
    }

    #[cold]
    #[inline(never)]
    fn drain(&mut self) {
        if self.outside == 0 && self.lanes.iter().all(|lane| lane.is_drained()) {
            self.peers.gate.say_empty(self.core());
        } else {
            self.unplug();
        }
    }
}
