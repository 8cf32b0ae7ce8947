//! How the SLC cache is, and what it did, as reports tell it.

use std::fmt;

use device::SlcHealth;
use flash::Geometry;
use measure::units;
use port::BLOCK_BYTES;
use serde_json::{Value, json};

/// The cache at the end of a run, and what it did in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlcReport {
    /// Counts of the run; `cached` and what the cache is, at its end.
    health: SlcHealth,
    /// Bytes of a row.
    row: u64,
    /// Erases of each block since the drive was made or opened.
    wear: f64,
    /// Write amplification, folds and parity included; none where the host wrote nothing.
    amplification: Option<f64>,
}

impl SlcReport {
    /// Of a cache that was `before` when the run began and is `after` at its
    /// end. None where the drive has none.
    pub fn new(geometry: &Geometry, before: &SlcHealth, after: &SlcHealth) -> Option<SlcReport> {
        let SlcHealth { rows, most_rows, cached, blocks, .. } = *after;
        let health = SlcHealth { rows, most_rows, cached, blocks, ..after.since(before) };
        let row = u64::from(geometry.row_blocks()) * BLOCK_BYTES;
        let wear = after.erases as f64 / after.blocks.max(1) as f64;
        let amplification = None;
        (after.blocks > 0).then_some(SlcReport { health, row, wear, amplification })
    }

    /// Beside what was written in the run for each of so many bytes of the host, by the
    /// target and for parity, which has no folds in it: with them.
    pub fn beside(self, amplification: Option<f64>, user: u64) -> SlcReport {
        let folded = (self.health.folded * self.row) as f64 / user as f64;
        SlcReport { amplification: amplification.map(|wa| wa + folded), ..self }
    }

    /// What the cache is at most.
    pub fn size_json(&self) -> Value {
        let SlcHealth { most_rows, blocks, .. } = self.health;
        json!({ "bytes": most_rows * self.row, "rows": most_rows, "blocks": blocks })
    }

    /// The same in words, of one whose blocks are its own or lent.
    pub fn size_text(&self, is_lent: bool) -> String {
        let SlcHealth { most_rows, blocks, .. } = self.health;
        let bytes = units::capacity(most_rows * self.row);
        match is_lent {
            true => format!("at most {bytes} in {blocks} blocks, which free chunks lend"),
            false => format!("{bytes} in {blocks} blocks of its own"),
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let h = &self.health;
        let mut json = self.size_json();
        json["row_bytes"] = self.row.into();
        json["rows_now"] = h.rows.into();
        json["cached_rows"] = h.cached.into();
        json["written_rows"] = h.written.into();
        json["folded_rows"] = h.folded.into();
        json["dropped_rows"] = h.dropped.into();
        json["direct_rows"] = h.direct.into();
        json["erases"] = h.erases.into();
        json["erases_per_block"] = self.wear.into();
        json["write_amplification"] = self.amplification.into();
        json
    }
}

impl fmt::Display for SlcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.health;
        let bytes = |rows: u64| units::bytes_decimal(rows as f64 * self.row as f64);
        write!(
            f,
            "{:.1} % of {} in use; {} taken, {} past it; {} folded, {} dropped; {} blocks, {:.2} \
             erases each",
            100.0 * h.cached as f64 / h.rows.max(1) as f64,
            units::capacity(h.rows * self.row),
            bytes(h.written),
            bytes(h.direct),
            bytes(h.folded),
            bytes(h.dropped),
            units::count(h.blocks as f64),
            self.wear,
        )?;
        match self.amplification {
            Some(wa) => write!(f, ", write amplification {wa:.2} with folds"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;
    use crate::whole::{Boxed, Drive};
    use flash::Dimensions;
    use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};

    #[test]
    fn counts_are_those_of_the_run_and_wear_is_of_the_drive() {
        let dim =
            Dimensions { chunks: 9, pages: 8, planes: 2, page_bytes: 8192, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let before =
            SlcHealth { most_rows: 40, blocks: 10, written: 100, erases: 5, ..Default::default() };
        let after = SlcHealth { rows: 20, written: 130, folded: 20, cached: 10, ..before };
        let after = SlcHealth { erases: 15, ..after };
        let report = SlcReport::new(&geometry, &before, &after).unwrap();
        let json = report.to_json();
        assert_eq!((&json["written_rows"], &json["folded_rows"]), (&30.into(), &20.into()));
        assert_eq!((&json["cached_rows"], &json["bytes"]), (&10.into(), &(40 * 16384).into()));
        assert_eq!(json["rows_now"], 20);
        assert_eq!((&json["erases"], &json["erases_per_block"]), (&10.into(), &1.5.into()));
        let text =
            "50.0 % of 320 KiB in use; 492 kB taken, 0 B past it; 328 kB folded, 0 B dropped; ";
        assert!(report.to_string().starts_with(text), "{report}");
        assert!(json["write_amplification"].is_null());
        // 20 rows of 16 KiB are folded where the host wrote 10.
        let beside = report.beside(Some(1.5), 10 * 16384);
        assert_eq!(beside.to_json()["write_amplification"], 3.5);
        assert!(beside.to_string().ends_with("each, write amplification 3.50 with folds"));
        assert_eq!(report.beside(None, 0), report);
        let none = SlcHealth::default();
        assert_eq!(SlcReport::new(&geometry, &none, &none), None);
    }

    const PIECE: u64 = 128 << 10;

    fn drive(name: &str) -> Boxed {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        crate::stack::build(&spec.resolve().unwrap(), 1).unwrap()
    }

    /// Writes in order at depth 32, from then on. Gives when all has ended.
    fn write(drive: &mut Boxed, mut now: Time, offsets: std::ops::Range<u64>) -> Time {
        let (mut cmds, mut done) = (Ring::new(32), Ring::new(32));
        let (mut offset, mut inside) = (offsets.start, 0);
        while offset < offsets.end || inside > 0 {
            while inside < 32 && offset < offsets.end {
                cmds.put(|| BlockReq::new(0, BlockOp::Write, offset, PIECE, Buffer::empty()));
                (offset, inside) = (offset + PIECE, inside + 1);
            }
            drive.submit(now, &mut cmds);
            now = drive.next_event().expect("something is inside");
            drive.advance(now, &mut done);
            for done in done.drain() {
                assert!(done.status.is_ok(), "{:?}", done.status);
                inside -= 1;
            }
        }
        now
    }

    /// Lets a drive rest until nothing more happens.
    fn rest(drive: &mut Boxed, mut now: Time) -> Time {
        while let Some(event) = drive.next_event() {
            now = event;
            drive.advance(now, &mut Ring::new(32));
        }
        now
    }

    /// What a burst finds of the cache grows with the time that the drive had to fold.
    #[test]
    fn the_cache_comes_back_with_idle_time() {
        let burst = |idle: u64| {
            let mut drive = drive("mem:client-tlc,size=2G,groups=2,store=none");
            let at = write(&mut drive, Time::ZERO, 0..512 << 20);
            let until = at + idle;
            while let Some(event) = drive.next_event().filter(|&event| event <= until) {
                drive.advance(event, &mut Ring::new(32));
            }
            let before = drive.slc();
            write(&mut drive, until, 512 << 20..1 << 30);
            drive.slc().since(&before).written
        };
        // At first, after a half of the fold, and after all of it.
        let [none, some, all] = [0, 200_000_000, 10_000_000_000].map(burst);
        assert!(
            none * 4 < all && some > none + all / 4 && some + all / 8 < all,
            "{none} {some} {all}"
        );
    }

    /// The fuller a drive, the sooner a burst ends at the cliff: that much of it the
    /// cache took, and so fast was all of it.
    #[test]
    fn the_cliff_comes_sooner_on_a_fuller_drive() {
        for name in ["mem:client-tlc,size=2G,groups=2", "mem:client-qlc,size=2G,groups=1"] {
            let burst = |percent: u64| {
                let mut drive = drive(&format!("{name},store=none"));
                let full = (2 << 30) * percent / 100 / PIECE * PIECE;
                let at = write(&mut drive, Time::ZERO, 0..full);
                let at = rest(&mut drive, at);
                let before = drive.slc();
                assert_eq!(before.cached, 0, "all is folded");
                let took = write(&mut drive, at, full..full + (180 << 20)) - at;
                let after = drive.slc().since(&before);
                (after.written as f64 / (after.written + after.direct) as f64, took)
            };
            let (low, high) = (burst(25), burst(90));
            assert!(low.0 > 0.95, "{name}: {low:?}");
            assert!(high.0 < 0.6, "{name}: {high:?}");
            assert!(high.1 as f64 > 1.4 * low.1 as f64, "{name}: {high:?} {low:?}");
        }
    }
}
