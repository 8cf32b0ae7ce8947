//! How many chunks are open, of a drive that limits it.
//!
//! The limits are `maxoc` and `maxocpu` of Open-Channel SSD 2.0, "Write data
//! requirements". A chunk is open from the write that begins it, when that is taken,
//! until the one that ends it is: as its descriptor says. One of a single row that is
//! written at once is never open.
//!
//! Guarantee: no write makes more chunks open than the limits allow. Only a cut can
//! leave more, where the ends of chunks were on their way: then none is opened until
//! there are fewer.

use flash::{Geometry, Timing};
use port::OutOfMemory;
use port::lazy::table;

/// The open chunks of a drive with a limit.
pub(crate) struct Opened {
    most: u32,
    most_of_pu: u32,
    all: u32,
    of_pu: Box<[u32]>,
    /// A bit for each chunk: it is counted.
    open: Box<[u64]>,
}

impl Opened {
    /// Of a drive of free chunks; none where there is no limit.
    pub fn new(geometry: &Geometry, timing: &Timing) -> Result<Option<Box<Opened>>, OutOfMemory> {
        if !timing.limits_open() {
            return Ok(None);
        }
        Ok(Some(Box::new(Opened {
            most: timing.open_chunks,
            most_of_pu: timing.open_chunks_pu,
            all: 0,
            of_pu: table(0, geometry.pu_slots(), "the drive's open chunks")?,
            open: table(0, geometry.chunk_slots().div_ceil(64), "the drive's open chunks")?,
        })))
    }

    /// Bytes of memory that it takes, where there is one.
    pub fn tables(geometry: &Geometry, timing: &Timing) -> u64 {
        if !timing.limits_open() {
            return 0;
        }
        (geometry.pu_slots() * 4 + geometry.chunk_slots().div_ceil(64) * 8) as u64
    }

    /// Whether one more chunk of a parallel unit may be opened.
    pub fn has_room(&self, pu: usize) -> bool {
        self.all < self.most && self.of_pu[pu] < self.most_of_pu
    }

    /// A chunk of a parallel unit is open, or is not.
    pub fn note(&mut self, chunk: usize, pu: usize, is_open: bool) {
        let (word, bit) = (&mut self.open[chunk / 64], 1 << (chunk % 64));
        match (*word & bit != 0, is_open) {
            (false, true) => {
                *word |= bit;
                self.all += 1;
                self.of_pu[pu] += 1;
            }
            (true, false) => {
                *word &= !bit;
                self.all -= 1;
                self.of_pu[pu] -= 1;
            }
            _ => {}
        }
    }
}
