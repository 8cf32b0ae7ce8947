//! What recovery is held against: MAP and GBITV by the TAGs of all blocks.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use device::{Content, OpenChannel};
use flash::{Ppa, Tag};
use thiserror::Error;

use super::config::{BatchError, Damaged};
use super::location::Location;
use super::map::{State, stored_entry};
use super::page::{Held, Kind, held};
use super::rebuild::Scanned;
use super::space::Use;
use super::{Batch, Runner, is_read};

/// Where the tables and the TAGs differ.
#[derive(Debug, Error)]
pub enum ScanError {
    /// MAP leads to another version of a page than the newest.
    #[error("page {lpid} is at {at:?} with {tag:?}, but its newest version has LSN {newest:?}")]
    Page {
        /// Which page.
        lpid: u64,
        /// Where MAP leads.
        at: Option<Ppa>,
        /// The TAG there.
        tag: Option<Tag>,
        /// The highest LSN of all TAGs of this page.
        newest: Option<u64>,
    },
    /// GBITV and the tables differ.
    #[error("block {at:?} is {} by GBITV, and the tables say otherwise", if *.valid { "valid" } else { "garbage" })]
    Garbage {
        /// Which block.
        at: Ppa,
        /// What GBITV says.
        valid: bool,
    },
    /// The drive could not be read.
    #[error(transparent)]
    Drive(#[from] BatchError),
}

impl<D: OpenChannel> Batch<D> {
    /// Reads the TAGs of all blocks and compares them with MAP and GBITV. No
    /// request may be inside; what the target does by itself is waited for.
    /// `unused` are the LSNs that recoveries since the drive was made have left
    /// out ([`super::Recovery::unused`]). Gives the number of pages that were
    /// ever written. A page that is nowhere may have been given up, of which no TAG
    /// tells: whether it may be is for a read of it to show.
    pub fn verify(&mut self, unused: &[RangeInclusive<u64>]) -> Result<u64, ScanError> {
        while let Some(at) = self.device.next_event() {
            self.work(at.max(self.now));
        }
        let tags = self.scan()?;
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for tag in tags.values() {
            // No batch has the LSN 0: what a cut tore has.
            let counts = tag.seq > 0 && !unused.iter().any(|range| range.contains(&tag.seq));
            if let Held::Data(lpid) = held(*tag, self.config.pages)
                && counts
            {
                let seq = newest.entry(lpid).or_default();
                *seq = tag.seq.max(*seq);
            }
        }
        let places = self.all_places()?;
        let mut valid: BTreeMap<u64, ()> = BTreeMap::new();
        for lpid in 0..self.config.pages {
            let at = places[lpid as usize].ppa();
            let (tag, newest) =
                (at.and_then(|at| tags.get(&at.0).copied()), newest.get(&lpid).copied());
            let good = match (at, tag, newest) {
                (None, ..) => true,
                (Some(_), Some(tag), Some(newest)) => tag == Tag { id: lpid, seq: newest },
                _ => false,
            };
            if !good {
                return Err(ScanError::Page { lpid, at, tag, newest });
            }
            valid.extend(at.map(|at| (at.0, ())));
        }
        self.verify_garbage(valid)?;
        Ok(newest.len() as u64)
    }

    /// Compares GBITV with all that the tables lead to.
    fn verify_garbage(&self, mut valid: BTreeMap<u64, ()>) -> Result<(), ScanError> {
        for kind in Kind::ALL {
            let places = self.pages_of(kind).map(|page| self.place_of(page));
            valid.extend(places.filter_map(|place| place.ppa()).map(|at| (at.0, ())));
        }
        for chunk in 0..self.space.chunks.len() {
            if matches!(self.space.chunks[chunk].usage, Use::Gone | Use::Slot) {
                continue;
            }
            let start = self.geometry.chunk_start(chunk).0;
            for at in (0..self.geometry.chunk_blocks()).map(|block| Ppa(start + u64::from(block))) {
                let says = self.garbage.is_valid(at);
                if says != valid.contains_key(&at.0) {
                    return Err(ScanError::Garbage { at, valid: says });
                }
            }
        }
        Ok(())
    }

    /// The TAGs of all blocks that can be read.
    fn scan(&mut self) -> Result<BTreeMap<u64, Tag>, BatchError> {
        let mut tags = BTreeMap::new();
        self.scan_tags(
            |_| true,
            |Scanned { at, tag, .. }| tags.extend(tag.map(|tag| (at.0, tag))),
        )?;
        Ok(tags)
    }

    /// All of MAP: what is in memory, and what is not from flash.
    fn all_places(&mut self) -> Result<Vec<Location>, BatchError> {
        let mut places = vec![Location::NONE; self.map.pages() * super::paged::PAGE_WORDS];
        for number in 0..self.map.pages() {
            let to = &mut places[number * super::paged::PAGE_WORDS..][..super::paged::PAGE_WORDS];
            let slot = self.map.slot_of(number);
            if let Some(slot) = slot.filter(|&slot| self.map.slot(slot).state == State::Ready) {
                let entries = to.iter_mut().enumerate();
                entries.for_each(|(i, to)| *to = self.map.get(slot, i).pending(false));
                continue;
            }
            let Some(at) = self.map.place(number).ppa() else { continue };
            let geometry = self.geometry;
            let mut runner = Runner::new(&mut self.device, self.now);
            runner.read(&[at], Content::Whole, |_, block| {
                if !is_read(block.status) {
                    let why = Damaged::Unreadable(block.status);
                    return Err(BatchError::Table { at, why });
                }
                for (entry, to) in to.iter_mut().enumerate() {
                    *to = stored_entry(block.data, entry, &geometry).unwrap_or(Location::NONE);
                }
                Ok(())
            })?;
            self.now = runner.now;
        }
        Ok(places)
    }
}
