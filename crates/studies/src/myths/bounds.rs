//! "Reads tend to be channel-bound while writes tend to be chip-bound" (section 2.3, 3, and
//! figure 1): chips on one channel, each with something to do at all times.
//!
//! The figure tells no times; here its chips are those of the board of chapter 6, whose row
//! of 16 KiB takes 164 us on the channel, 250 us to be read and 1.3 ms to be programmed.
//! Command cycles are left out, as the figure's are too short to matter.

use device::VectorOp;

use super::super::lab::config;
use super::super::{Findings, Lab, Reference, Row, Runs};
use super::chip::{Chips, Ended, share};
use super::timeline;
use drive::error::Error;

const FIGURE: &str = "figure 1: four chips on one channel";
const SAYS: &str = "\"reads tend to be channel-bound while writes tend to be chip-bound\"";
const LIMITED: &str = "\"channel parallelism is much more limited than chip parallelism\"";
/// Its chips are as many as the figure's.
const CHIPS: &str = "mem:openssd,groups=1,command=0ns,store=none";
/// Commands that each chip gets, fewer than a chunk has rows, and in the timeline.
const COMMANDS: u32 = 100;
const DRAWN: u32 = 3;

/// What reads or writes make of the channel and its chips, in percent of the time.
struct Busy {
    channel: f64,
    chips: f64,
    /// Rows a second.
    rate: f64,
}

/// So many chips that read or write rows.
fn measure(lab: &mut Lab, op: VectorOp, units: usize, each: u32) -> Result<Vec<Ended>, Error> {
    let name = format!("{CHIPS},pus={units}");
    let mut chips = Chips::of(&name, lab.options.seed)?;
    let row = chips.geometry.row_blocks();
    if op == VectorOp::Read {
        chips.stream(VectorOp::Write, units, each, row);
    }
    Ok(chips.stream(op, units, each, row))
}

fn busy(ended: &[Ended], units: usize) -> Busy {
    let ns = |(begin, end): (u64, u64)| end - begin;
    let channel = share(ended, |one| ns(one.transfer()));
    // A chip has a row in its register while that is transferred.
    let chips = share(ended, |one| ns(one.transfer()) + ns(one.array())) / units as f64;
    Busy { channel, chips, rate: share(ended, |_| 1) * 1e7 }
}

/// The rows of the figure.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let mut of = |op, units: usize| {
        let name = format!("{units} chips on a channel, {op:?} of rows");
        let ended = measure(lab, op, units, COMMANDS)?;
        let configuration = config(&format!("{CHIPS},pus={units}"))?.effective();
        let command = format!("vector commands to {CHIPS},pus={units}, two at each unit");
        lab.note_step(&name, command, configuration);
        Ok::<Busy, Error>(busy(&ended, units))
    };
    let (reads, writes) = (of(VectorOp::Read, 4)?, of(VectorOp::Write, 4)?);
    let more = [of(VectorOp::Read, 8)?, of(VectorOp::Write, 8)?];
    let drawn = [measure(lab, VectorOp::Read, 4, DRAWN)?, measure(lab, VectorOp::Write, 4, DRAWN)?];
    let pictures = vec![timeline::picture(&drawn)];
    Ok(Findings { rows: rows(&reads, &writes, &more)?, notes: vec![], pictures })
}

fn rows(reads: &Busy, writes: &Busy, more: &[Busy; 2]) -> Result<Vec<Row>, Error> {
    let percent = Runs::one;
    let config = config(CHIPS)?;
    let timing = &config.profile.timing;
    let transfer = timing.transfer(config.geometry.row_blocks()) as f64;
    let [read, program] = [timing.read[0], timing.program[0]].map(|ns| ns as f64 + transfer);
    let band = |what: &str, model: f64, ours: f64| {
        let model = Reference::Model(100.0 * model);
        Row::band(FIGURE, what, "%", model, percent(ours), 0.95..=1.05)
    };
    Ok(vec![
        Row::order(
            FIGURE,
            "%",
            SAYS,
            [("reads: channel busy", percent(reads.channel)), ("chips", percent(reads.chips))],
        ),
        Row::order(
            FIGURE,
            "%",
            SAYS,
            [("writes: chips busy", percent(writes.chips)), ("channel", percent(writes.channel))],
        ),
        band("reads: channel busy, by hand", 1.0, reads.channel),
        band("reads: chips busy, by hand", read / (4.0 * transfer), reads.chips),
        band("writes: chips busy, by hand", 1.0, writes.chips),
        band("writes: channel busy, by hand", 4.0 * transfer / program, writes.channel),
        Row::within(
            FIGURE,
            "reads a second, 8 chips / 4",
            "x",
            LIMITED,
            Runs::one(more[0].rate / reads.rate),
            0.95..=1.05,
        ),
        Row::within(
            FIGURE,
            "writes a second, 8 chips / 4",
            "x",
            LIMITED,
            Runs::one(more[1].rate / writes.rate),
            1.9..=2.05,
        ),
    ])
}
