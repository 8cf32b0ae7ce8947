//! Where a target lies: some of the drive's units, and of each the same chunks.

use std::ops::Range;

use flash::{Dimensions, Geometry, Ppa};

use crate::error::MediaError;

/// How targets of one size share a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each has units of its own: what one does, no other waits for at a die; and where
    /// these are whole groups, not on a channel either.
    #[default]
    Isolate,
    /// Each has some chunks of every unit: all have the speed of the whole drive, and wait
    /// for each other.
    Stripe,
}

impl Placement {
    /// Each, with its name.
    pub const NAMES: [(Placement, &'static str); 2] =
        [(Placement::Isolate, "isolate"), (Placement::Stripe, "stripe")];

    /// The place of target `n` of `parts` of one size. Fails where the units, or the
    /// chunks, do not come out even.
    pub fn place(self, geometry: &Geometry, parts: u32, n: u32) -> Result<Place, MediaError> {
        let (units, chunks) = (geometry.total_pus(), geometry.chunks());
        let (what, count) = match self {
            Placement::Isolate => ("parallel units", units),
            Placement::Stripe => ("chunks of each unit", chunks),
        };
        if parts == 0 || !count.is_multiple_of(parts) {
            return Err(MediaError::Uneven { what, count, parts });
        }
        let part = |count: u32| n * (count / parts)..(n + 1) * (count / parts);
        Ok(match self {
            Placement::Isolate => Place { units: part(units).collect(), chunks: 0..chunks },
            Placement::Stripe => Place { units: (0..units).collect(), chunks: part(chunks) },
        })
    }
}

/// Where a target lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its units, by their numbers from 0 on, those of a group beside each other.
    pub units: Vec<u32>,
    /// Its chunks of each.
    pub chunks: Range<u32>,
}

impl Place {
    /// What a target there sees: groups of as many units where it has as many of each
    /// group, else each unit for a group.
    ///
    /// Fails where the drive does not have all of it.
    pub fn geometry(&self, drive: &Geometry) -> Result<Geometry, MediaError> {
        self.check(drive)?;
        let dim = drive.dimensions();
        let mut of_group = vec![0u32; dim.groups as usize];
        self.units.iter().for_each(|unit| of_group[(unit / dim.pus) as usize] += 1);
        of_group.retain(|&units| units > 0);
        let (groups, pus) = match of_group.iter().all(|&units| units == of_group[0]) {
            true => (of_group.len() as u32, of_group[0]),
            false => (self.units.len() as u32, 1),
        };
        Ok(Geometry::new(Dimensions { groups, pus, chunks: self.chunks.len() as u32, ..dim })?)
    }

    fn check(&self, drive: &Geometry) -> Result<(), MediaError> {
        if self.units.is_empty() || self.chunks.is_empty() {
            return Err(MediaError::Empty);
        }
        if self.chunks.end > drive.chunks() {
            let (first, last) = (self.chunks.start, self.chunks.end - 1);
            return Err(MediaError::Chunks { first, last, chunks: drive.chunks() });
        }
        let units = drive.total_pus();
        let mut seen = vec![false; units as usize];
        for &unit in &self.units {
            let is_seen = seen.get_mut(unit as usize).ok_or(MediaError::Unit { unit, units })?;
            if std::mem::replace(is_seen, true) {
                return Err(MediaError::Twice(unit));
            }
        }
        Ok(())
    }

    /// Its units in the order in which its target numbers them.
    fn sorted(&self) -> Vec<u32> {
        let mut units = self.units.clone();
        units.sort_unstable();
        units
    }
}

/// The unit of that number, as addresses have it.
pub(crate) fn unit_of(geometry: &Geometry, unit: u32) -> usize {
    let pus = geometry.dimensions().pus;
    geometry.pu_index(geometry.ppa(unit / pus, unit % pus, 0, 0))
}

/// An address that no drive has.
const NOWHERE: Ppa = Ppa(u64::MAX);

/// A unit that is not the target's.
const NOT_ITS: u32 = u32::MAX;

/// From a target's addresses to the drive's, and back.
#[derive(Clone, Debug)]
pub(crate) struct Addressing {
    /// What the target sees.
    pub geometry: Geometry,
    drive: Geometry,
    /// By its unit: its first chunk there, as an index of the drive's.
    down: Box<[usize]>,
    /// By the drive's unit: the target's.
    up: Box<[u32]>,
    first: u32,
}

impl Addressing {
    pub fn new(drive: &Geometry, place: &Place) -> Result<Addressing, MediaError> {
        let geometry = place.geometry(drive)?;
        let mut down = vec![0; geometry.pu_slots()];
        let mut up = vec![NOT_ITS; drive.pu_slots()];
        for (n, unit) in (0..).zip(place.sorted()) {
            let (above, below) = (unit_of(&geometry, n), unit_of(drive, unit));
            down[above] = drive.chunk_of(below, place.chunks.start);
            up[below] = above as u32;
        }
        let (down, up) = (down.into(), up.into());
        Ok(Addressing { geometry, drive: *drive, down, up, first: place.chunks.start })
    }

    /// All chunks of the place, by their indexes of the drive.
    pub fn chunks(&self) -> impl Iterator<Item = usize> + '_ {
        ftl::all_chunks(&self.geometry).map(|chunk| self.chunk_below(chunk))
    }

    /// The drive's chunk that is one of the target's.
    pub fn chunk_below(&self, chunk: usize) -> usize {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        self.down[pu] + (chunk - self.geometry.chunk_of(pu, 0))
    }

    /// The target's chunk that is one of the drive's, which is to be its own.
    pub fn chunk_above(&self, chunk: usize) -> usize {
        let pu = self.drive.pu_index(self.drive.chunk_start(chunk));
        let number = (chunk - self.drive.chunk_of(pu, 0)) as u32;
        self.geometry.chunk_of(self.up[pu] as usize, number - self.first)
    }

    /// The drive's address; one that no drive has where it is not the target's.
    #[inline]
    pub fn below(&self, ppa: Ppa) -> Ppa {
        if !self.geometry.contains(ppa) {
            return NOWHERE;
        }
        let chunk = self.chunk_below(self.geometry.chunk_index(ppa));
        Ppa(self.drive.chunk_start(chunk).0 + u64::from(self.geometry.block(ppa)))
    }

    /// The target's address of one that is its own.
    #[inline]
    pub fn above(&self, ppa: Ppa) -> Ppa {
        if ppa == NOWHERE {
            return NOWHERE;
        }
        let chunk = self.chunk_above(self.drive.chunk_index(ppa));
        Ppa(self.geometry.chunk_start(chunk).0 + u64::from(self.drive.block(ppa)))
    }
}
