//! Study `ull`: two drives and what stands above them (Koh et al., *Faster than
//! Flash: An In-Depth Study of System Challenges for Emerging Ultra-Low Latency
//! SSDs*).
//!
//! Files: [`drives`] the two in virtual time, [`device`] their latency and
//! bandwidth, [`interference`] mixes, collection and power; [`live`] a live drive and
//! the ways to it, [`completion`] polling and interrupts, [`bypass`] with and without
//! a kernel, [`network`] a server and its client.

pub mod bypass;
pub mod completion;
pub mod device;
pub mod drives;
pub mod interference;
pub mod live;
pub mod network;

use super::{Findings, Lab, Study};
use drive::error::Error;
use drives::{Drives, Scale};
use live::Stage;

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
    let stage = Stage::new(lab)?;
    rows.extend(completion::rows(lab, stage.as_ref())?);
    rows.extend(bypass::rows(lab, stage.as_ref())?);
    rows.extend(network::rows(lab, stage.as_ref())?);
    Ok(Findings { rows, notes: notes() })
}

fn notes() -> Vec<String> {
    [
        "a figure in virtual time is one run; what is fitted, and by which values, is in the heads \
         of the profiles ull and nvme-2016; a rule of a predicted figure is a tenth",
        "live drives are as a host polls them, 2.2 us less in `controller`: what interrupts cost \
         is then this machine's, a thread that sleeps on an eventfd and is woken",
        "live, one request is out at a time; the load has a core, and the device or the server the \
         next; the device never sleeps, being the hardware; drives keep no data",
        "of the load's processor all is counted, in the kernel and out of it; sleeps are how often \
         its thread gave the processor away by itself",
        "the kernel's path of figures 17 to 20 is the block layer of this tree with interrupts, \
         where the kernel is entered to sleep and to wake, or NBD over a Unix socket, where it \
         takes and copies each request and each answer; its own block devices, ublk, loop and FUSE \
         take root or modules",
        "a file system at the client (figure 23) and the kernel's NBD server are not measured: they \
         take block devices of the kernel",
    ]
    .map(str::to_owned)
    .into()
}
