//! "Reads will benefit from parallelism only if the corresponding writes have been directed
//! to different LUNs (on different channels)" (section 2.3, 3).
//!
//! The drive is written in order, at a quarter of what it can do, so that its target puts one
//! row after the other on the next parallel unit, channels first: at full speed it passes
//! over units that are busy. Then it is read in steps: of a row,
//! which meets all units in turn; of as many rows as there are channels, which stays on one
//! channel; of as many as there are units, which stays on one. To the host these are three
//! patterns of reads of the same size.

use report::Plot;
use workload::{Order, Pattern};

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::desk::{Desk, iops};
use super::{drive, picture, power_of_two, thousands};
use drive::error::Error;

const POINT: &str = "sec. 2.3 (3): where the writes went, reads in parallel";
const SAYS: &str = "\"reads will benefit from parallelism only if the corresponding writes have \
                    been directed to different LUNs (on different channels)\"";
/// Requests out.
const DEPTHS: [u32; 5] = [1, 4, 16, 64, 256];

/// Reads of blocks that lie somewhere.
struct Place {
    what: &'static str,
    /// Blocks from one read to the next.
    step: u64,
    /// Reads a second that it can give.
    model: f64,
    /// Reads a second with so many out.
    iops: Vec<(u32, f64)>,
}

impl Place {
    fn at(&self, depth: u32) -> f64 {
        self.iops.iter().find(|point| point.0 == depth).map_or(f64::NAN, |point| point.1)
    }
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let name = drive(lab, "");
    let mut desk = Desk::new(&name, lab.options.seed)?;
    let mut places = places(&desk);
    let bytes = desk.shape.bytes;
    let write = Pattern { order: Order::Sequential, ..Pattern::uniform(bytes, 0) };
    let rate = lab.options.pick(40_000, 10_000);
    desk.at_rate(&write, rate, bytes / port::BLOCK_BYTES, lab.watch)?;
    let ios = lab.options.pick(20_000, 4_000);
    for place in &mut places {
        let order = Order::Stride { step: place.step as i64 };
        let pattern = Pattern { order, ..Pattern::uniform(bytes, 100) };
        for depth in DEPTHS {
            place.iops.push((depth, iops(&desk.run(&pattern, depth, ios, lab.watch)?)));
        }
        let command = format!(
            "{name} written in order, {rate} blocks a second; then {ios} reads, each {} blocks \
             further, at each of the depths {DEPTHS:?}",
            place.step
        );
        lab.note_step(&format!("reads of {}", place.what), command, desk.config.effective());
    }
    let pictures = picture("myths-spread", &plot(&places)).into_iter().collect();
    Ok(Findings { rows: rows(&places), notes: vec![], pictures })
}

fn places(desk: &Desk) -> [Place; 3] {
    let (geometry, timing) = (&desk.config.geometry, &desk.config.profile.timing);
    let row = u64::from(geometry.row_blocks());
    let (groups, units) =
        (u64::from(geometry.dimensions().groups), u64::from(geometry.total_pus()));
    let transfer = (timing.command + timing.transfer(1)) as f64;
    let read = timing.read[0] as f64 + transfer;
    let model =
        |channels: u64, units: u64| 1e9 * (channels as f64 / transfer).min(units as f64 / read);
    let place = |what, step, model| Place { what, step, model, iops: Vec::new() };
    [
        place("all units", row, model(groups, units)),
        place("one channel", row * groups, model(1, units / groups)),
        place("one unit", row * units, model(1, 1)),
    ]
}

fn rows(places: &[Place]) -> Vec<Row> {
    let most = DEPTHS[DEPTHS.len() - 1];
    let at = |place: &Place| (format!("on {}", place.what), Runs::one(place.at(most)));
    let mut rows = vec![Row::order(POINT, "IOPS", SAYS, places.iter().map(at))];
    for place in places {
        rows.push(Row::band(
            POINT,
            &format!("reads of {}, by hand", place.what),
            "IOPS",
            Reference::Model(place.model),
            Runs::one(place.at(most)),
            0.9..=1.02,
        ));
    }
    let [all, _, unit] = places else { return rows };
    let gain = |place: &Place| Runs::one(place.at(16) / place.at(1));
    rows.push(Row::within(
        POINT,
        "reads of all units: depth 16 / depth 1",
        "x",
        SAYS,
        gain(all),
        12.0..=16.5,
    ));
    rows.push(Row::within(
        POINT,
        "reads of one unit: depth 16 / depth 1",
        "x",
        SAYS,
        gain(unit),
        0.95..=1.2,
    ));
    rows
}

fn plot(places: &[Place]) -> Plot {
    let line = |place: &Place| {
        let points = place.iops.iter().map(|&(depth, iops)| (f64::from(depth).log2(), iops));
        (format!("on {}", place.what), points.collect())
    };
    Plot {
        caption: "Reads of 4 KiB a second by how many are out: of blocks that were written to all \
                  parallel units, to those of one channel, and to one."
            .into(),
        along: ("requests out", power_of_two),
        height: ("reads a second", thousands),
        is_log: true,
        lines: places.iter().map(line).collect(),
    }
}
