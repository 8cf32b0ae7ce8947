//! Verification: what is written tells whose it is, and what is read is held
//! against what was written.
//!
//! Guarantees: a read is right if a drive that loses, mixes and invents
//! nothing may give it, whatever overlaps; anything else is an error that
//! names the sector. Works on whole blocks, and on sectors where requests are
//! smaller; on a drive that keeps digests, on the digests. Memory: 8 bytes a
//! unit. Nothing is allocated per request.

use port::{BLOCK_BYTES, BlockOp, Buffer, OutOfMemory, SECTOR_BYTES, Shape};
use workload::{Access, Mismatch, Refused, Versions, content};

/// Knows what every unit of the drive may hold.
pub struct Verifier {
    versions: Versions,
    seed: u64,
    /// Bytes that are written as one.
    unit: u64,
    digests: bool,
    /// For each slot, its units' oldest allowed versions.
    floors: Vec<u64>,
    per_slot: usize,
}

/// Whether an access may be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Yes; its buffer is filled.
    Yes,
    /// Too many writes of a unit overlap: take another one.
    Busy,
}

impl Verifier {
    /// For an empty drive of this shape, on which all requests are multiples
    /// of `bs` bytes.
    pub fn new(shape: &Shape, bs: u64, seed: u64) -> Result<Verifier, OutOfMemory> {
        let unit = if bs.is_multiple_of(BLOCK_BYTES) { BLOCK_BYTES } else { SECTOR_BYTES };
        Ok(Verifier {
            versions: Versions::new((shape.bytes / unit) as usize)?,
            seed,
            unit,
            digests: shape.kept != BLOCK_BYTES as u32,
            floors: Vec::new(),
            per_slot: 0,
        })
    }

    /// Makes room for a load of `slots` requests of `bs` bytes. Nothing may be
    /// in flight.
    pub fn begin(&mut self, slots: usize, bs: u64) {
        self.per_slot = (bs / self.unit) as usize;
        self.floors = vec![0; slots * self.per_slot];
    }

    fn units(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / self.unit..(offset + len) / self.unit
    }

    /// Just before a request is submitted: numbers and fills a write, numbers
    /// a trim, notes what a read may give.
    pub fn before(
        &mut self,
        slot: u32,
        access: &Access,
        buffer: &mut Buffer,
    ) -> Result<Ready, Refused> {
        let units = self.units(access.offset, access.len);
        match access.op {
            BlockOp::Flush => {}
            BlockOp::Read => {
                let first = slot as usize * self.per_slot;
                for (floor, unit) in self.floors[first..].iter_mut().zip(units) {
                    *floor = self.versions.floor(unit);
                }
            }
            BlockOp::Write => {
                let step = buffer.len() / self.per_slot;
                let pieces = buffer.bytes_mut().chunks_exact_mut(step);
                for (unit, out) in units.clone().zip(pieces) {
                    match self.versions.issue(unit, false) {
                        Ok(version) => fill(unit, version, self.seed, self.digests, out),
                        Err(refused) => return self.give_up(units.start..unit, refused),
                    }
                }
            }
            BlockOp::Trim | BlockOp::WriteZeroes => {
                for unit in units.clone() {
                    if let Err(refused) = self.versions.issue(unit, true) {
                        return self.give_up(units.start..unit, refused);
                    }
                }
            }
        }
        Ok(Ready::Yes)
    }

    /// A write that is not made after all: those units that were numbered may
    /// hold the old or the new, for all that is known.
    #[cold]
    fn give_up(&mut self, numbered: std::ops::Range<u64>, why: Refused) -> Result<Ready, Refused> {
        numbered.for_each(|unit| self.versions.fail(unit));
        if matches!(why, Refused::Busy { .. }) { Ok(Ready::Busy) } else { Err(why) }
    }

    /// When a request is done: `ok` says how it ended.
    pub fn after(
        &mut self,
        slot: u32,
        access: &Access,
        ok: bool,
        buffer: &Buffer,
    ) -> Result<(), Mismatch> {
        let units = self.units(access.offset, access.len);
        match access.op {
            BlockOp::Flush => {}
            BlockOp::Read if !ok => {}
            BlockOp::Read => {
                let first = slot as usize * self.per_slot;
                let step = buffer.len() / self.per_slot;
                for (i, unit) in units.enumerate() {
                    let allowed = self.versions.allowed(unit, self.floors[first + i]);
                    let bytes = &buffer.bytes()[i * step..(i + 1) * step];
                    if self.digests {
                        let word = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                        content::check_digest(unit, self.seed, word, allowed)?;
                    } else {
                        let sector = unit * (self.unit / SECTOR_BYTES);
                        content::check_sectors(sector, self.seed, bytes, allowed)?;
                    }
                }
            }
            _ if ok => units.for_each(|unit| self.versions.acknowledge(unit)),
            _ => units.for_each(|unit| self.versions.fail(unit)),
        }
        Ok(())
    }
}

/// What a unit holds at a version.
fn fill(unit: u64, version: u64, seed: u64, digests: bool, out: &mut [u8]) {
    if digests {
        out.copy_from_slice(&content::digest(unit, version, seed).to_le_bytes());
    } else {
        content::fill_sectors(unit * (out.len() as u64 / SECTOR_BYTES), version, seed, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 16, depth: 8 };

    fn access(op: BlockOp, offset: u64, len: u64) -> Access {
        Access { op, offset, len, fua: false }
    }

    /// Writes 8 KiB at 16 KiB, and gives the verifier and what was written.
    fn written(shape: Shape) -> (Verifier, Buffer) {
        let mut v = Verifier::new(&shape, 8192, 7).unwrap();
        v.begin(2, 8192);
        let mut buffer = Buffer::zeroed(shape.stored(8192)).unwrap();
        let write = access(BlockOp::Write, 16384, 8192);
        assert_eq!(v.before(0, &write, &mut buffer), Ok(Ready::Yes));
        v.after(0, &write, true, &buffer).unwrap();
        (v, buffer)
    }

    #[test]
    fn what_was_written_passes_and_anything_else_does_not() {
        for kept in [4096, 8] {
            let (mut v, mut buffer) = written(Shape { kept, ..SHAPE });
            let read = access(BlockOp::Read, 16384, 8192);
            assert_eq!(v.before(1, &read, &mut buffer), Ok(Ready::Yes));
            assert_eq!(v.after(1, &read, true, &buffer), Ok(()));
            let last = buffer.len() - 1;
            buffer.bytes_mut()[last] ^= 1;
            assert!(v.after(1, &read, true, &buffer).is_err(), "kept {kept}");
            buffer.bytes_mut().fill(0);
            let lost = v.after(1, &read, true, &buffer);
            assert_eq!(lost, Err(Mismatch::Zero { sector: 32 }), "kept {kept}");
        }
    }

    #[test]
    fn a_trimmed_block_is_zeros() {
        let (mut v, mut buffer) = written(SHAPE);
        let trim = access(BlockOp::Trim, 16384, 8192);
        v.before(0, &trim, &mut Buffer::empty()).unwrap();
        v.after(0, &trim, true, &Buffer::empty()).unwrap();
        let read = access(BlockOp::Read, 16384, 8192);
        v.before(1, &read, &mut buffer).unwrap();
        assert!(matches!(v.after(1, &read, true, &buffer), Err(Mismatch::Stale { .. })));
        buffer.bytes_mut().fill(0);
        assert_eq!(v.after(1, &read, true, &buffer), Ok(()));
    }

    #[test]
    fn a_busy_unit_is_left_alone() {
        let mut v = Verifier::new(&SHAPE, 4096, 7).unwrap();
        v.begin(1, 4096);
        let mut buffer = Buffer::zeroed(4096).unwrap();
        let write = access(BlockOp::Write, 0, 4096);
        let mut ready = 0;
        while v.before(0, &write, &mut buffer) == Ok(Ready::Yes) {
            ready += 1;
            assert!(ready < 1000);
        }
        assert!(ready > 100);
        v.after(0, &write, true, &buffer).unwrap();
    }
}
