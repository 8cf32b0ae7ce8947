//! Study `ull`: two drives and what stands above them (Koh et al., *Faster than
//! Flash: An In-Depth Study of System Challenges for Emerging Ultra-Low Latency
//! SSDs*).
//!
//! Files: [`drives`] the two in virtual time, [`device`] their latency and
//! bandwidth, [`interference`] mixes, collection and power.

pub mod device;
pub mod drives;
pub mod interference;

use super::{Findings, Lab, Study};
use drive::error::Error;
use drives::{Drives, Scale};

/// The study.
pub const STUDY: Study = Study {
    name: "ull",
    about: "an ultra-low-latency and a conventional drive, completion, kernel bypass and a server \
            (Faster than Flash)",
    run,
};

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let scale = Scale::of(lab.options);
    let mut drives = Drives::new(lab, scale);
    let mut rows = device::rows(&mut drives)?;
    rows.extend(interference::rows(&mut drives)?);
    Ok(Findings { rows, notes: notes() })
}

fn notes() -> Vec<String> {
    vec![]
}
