//! A drive's part, as the target sees it that has it: an open-channel drive.
//!
//! The device behind all partitions is one, and belongs to whoever drives the targets.
//! They *lend* it to a partition for as long as its target works ([`Partition::lend`]),
//! and take it back before another's does ([`Partition::take_back`]): a pointer moves, and
//! nothing is shared or locked. Without it a partition has nothing under way that it knows
//! of: the times of its target are then the target's own. What it says of itself, geometry
//! and timing, it knows always; of chunks it knows without the device what they were when it
//! was made, until it is first lent.
//!
//! Guarantees: the rules of [`Port`], while it is lent. Commands, and looks at chunks, are
//! for then.

use std::sync::{Arc, Mutex, PoisonError};

use device::{Notice, OpenChannel, VectorCmd, VectorDone};
use flash::{BlockBits, Chunk, Geometry, Ppa, Timing};
use port::{Port, Ring, Time};

use crate::claim::Claim;
use crate::error::MediaError;
use crate::manager::Media;

/// A target's part of a drive.
#[derive(Debug)]
pub struct Partition<D> {
    number: usize,
    geometry: Geometry,
    timing: Timing,
    kept: u32,
    depth: usize,
    is_cached: bool,
    rows_at_once: u32,
    copies_inside: u32,
    has_work_of_its_own: bool,
    /// Its chunks, as they were, until it is lent the drive.
    seen: Vec<Chunk>,
    media: Option<Box<Media<D>>>,
    /// Where the drive goes that it is lent when it is dropped.
    home: Option<Home<D>>,
}

/// Where a drive is found again that was lent to what is no more.
pub(crate) type Home<D> = Arc<Mutex<Option<Box<Media<D>>>>>;

const LENT: &str = "the drive is lent to the partition whose target works";

impl<D: OpenChannel> Partition<D> {
    /// Claims a part of a drive, with nothing written there but what is `found` as its own.
    pub fn new(
        media: &mut Media<D>,
        claim: &Claim,
        found: bool,
    ) -> Result<Partition<D>, MediaError> {
        let number = media.claim(claim, found)?;
        let device = media.device();
        let (open_chunks, open_chunks_pu) = claim.open_chunks;
        let timing = Timing { open_chunks, open_chunks_pu, ..device.timing().clone() };
        let geometry = *media.geometry_of(number);
        let seen = (0..geometry.chunk_slots()).map(|chunk| media.chunk_of(number, chunk));
        Ok(Partition {
            number,
            geometry,
            timing,
            kept: device.kept(),
            depth: claim.depth,
            is_cached: device.is_cached(),
            rows_at_once: device.rows_at_once(),
            copies_inside: device.copies_inside(),
            has_work_of_its_own: device.has_work_of_its_own(),
            seen: seen.collect(),
            media: None,
            home: None,
        })
    }

    /// Its number among the targets of its drive.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Lends it the drive, while its target works.
    #[inline]
    pub fn lend(&mut self, media: Box<Media<D>>) {
        debug_assert!(self.media.is_none(), "it is lent once");
        if !self.seen.is_empty() {
            self.seen = Vec::new();
        }
        self.media = Some(media);
    }

    /// Where the drive is to be found that it is lent, when whoever has the partition drops
    /// it; or nowhere: it goes then, too.
    pub(crate) fn set_home(&mut self, home: Option<Home<D>>) {
        self.home = home;
    }

    /// Takes the drive back.
    ///
    /// # Panics
    /// Without the drive.
    #[inline]
    pub fn take_back(&mut self) -> Box<Media<D>> {
        self.media.take().expect(LENT)
    }

    fn media(&mut self) -> &mut Media<D> {
        self.media.as_mut().expect(LENT)
    }
}

impl<D> Drop for Partition<D> {
    fn drop(&mut self) {
        if let (Some(media), Some(home)) = (self.media.take(), self.home.take()) {
            *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(media);
        }
    }
}

impl<D: OpenChannel> Port for Partition<D> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        let number = self.number;
        self.media().submit(number, now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.media.as_ref()?.next_event_of(self.number)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        let number = self.number;
        let media = self.media();
        if !media.has_news(number) && media.next_event().is_some_and(|at| at <= to) {
            media.step(to);
        }
        media.take(number, done);
    }
}

impl<D: OpenChannel> OpenChannel for Partition<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn timing(&self) -> &Timing {
        &self.timing
    }

    fn kept(&self) -> u32 {
        self.kept
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        match &self.media {
            Some(media) => media.chunk_of(self.number, chunk_index),
            None => *self.seen.get(chunk_index).expect(LENT),
        }
    }

    fn failed_of(&self, ppa: Ppa, count: u32) -> BlockBits {
        match &self.media {
            Some(media) => media.failed_of(self.number, ppa, count),
            None => self
                .chunk(self.geometry.chunk_index(ppa))
                .failed_of(self.geometry.block(ppa), count),
        }
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn is_cached(&self) -> bool {
        self.is_cached
    }

    fn rows_at_once(&self) -> u32 {
        self.rows_at_once
    }

    fn copies_inside(&self) -> u32 {
        self.copies_inside
    }

    fn has_work_of_its_own(&self) -> bool {
        self.has_work_of_its_own
    }

    fn take_notice(&mut self) -> Option<Notice> {
        let number = self.number;
        self.media.as_mut()?.take_notice(number)
    }

    fn hint_block(&self, ppa: Ppa) {
        if let Some(media) = &self.media {
            media.hint(self.number, ppa);
        }
    }
}
