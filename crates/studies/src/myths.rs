//! Study `myths`: what is said of solid-state drives and is not so (Bjørling, Bonnet,
//! Bouganim and Dayan, "The Necessary Death of the Block Device Interface", CIDR 2013;
//! chapter 2 of Bjørling's thesis).
//!
//! The paper measures nothing: it argues from how a drive is made. Here the drive is open
//! inside, so each of its arguments is an experiment, in virtual time. One drive serves
//! for most of them. The paper gives one number, an erase of "3ms", which the drive has.
//! Figure 1 has chips of a board of the thesis, as its own are not told.
//!
//! Files: [`chip`] chips without a drive around them, [`desk`] a drive under one load after
//! the other; then a file for each of the paper's points: [`nature`], [`writes`],
//! [`reads`], [`spread`], [`bounds`] (figure 1), and of section 3 [`vision`],
//! [`atomic`] and [`torn`].

use report::Plot;

use super::{Findings, Lab, Picture, Study};
use drive::error::Error;

mod atomic;
mod bounds;
mod chip;
mod desk;
mod nature;
mod reads;
mod spread;
mod timeline;
mod torn;
mod vision;
mod writes;

/// The study.
pub const STUDY: Study = Study {
    name: "myths",
    about: "a drive is not its chip, random writes are not slow, reads are not cheap, and what \
            other interfaces give (thesis, ch. 2)",
    run,
};

/// One of the paper's points.
type Part = fn(&mut Lab) -> Result<Findings, Error>;

/// The flash of `ref` with the paper's erase, and a controller and a link, which are
/// chosen: 4 us a command, 500 ns each way, 3.2 GB/s. It keeps no data.
const DRIVE: &str = "mem:ref,side=device,erase=3ms,controller=4us,link_latency=500ns,\
                     link_rate=3.2GB/s,store=none";

/// That drive, with the keys of its size and more of them.
fn drive(lab: &Lab, more: &str) -> String {
    format!("{DRIVE},{}{more}", lab.options.pick("size=1G", "size=256M,groups=2"))
}

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let mut all = Findings::default();
    let parts: [Part; 7] = [
        nature::findings,
        writes::findings,
        reads::findings,
        spread::findings,
        bounds::findings,
        vision::findings,
        atomic::findings,
    ];
    for part in parts {
        all.join(part(lab)?);
    }
    all.notes.extend(notes());
    Ok(all)
}

fn notes() -> [String; 4] {
    [
        "chosen: an erase of 3 ms, as the paper has it; a controller of 4 us and a link of 500 ns \
         and 3.2 GB/s; all else is profile ref. Nothing is fitted"
            .into(),
        "a log on PCM is a drive of profile pcm behind its link, written in blocks of 4 KiB: memory \
         on the processor's bus, which is written in bytes, is not here"
            .into(),
        "nameless writes, of which the drive says where it put them, are not here: of the \
         interfaces at hand the open-channel one takes the host's address, and the batched one \
         its number"
            .into(),
        "a value in brackets is our own prediction, not the paper's, which has no figure but 3 ms; \
         the rule of a row was fixed before it was run"
            .into(),
    ]
}

/// The picture of a plot.
fn picture(name: &'static str, plot: &Plot) -> Option<Picture> {
    Some(Picture { name, caption: plot.caption.clone(), svg: plot.svg()? })
}

/// How an axis of powers of two is written.
fn power_of_two(log: f64) -> String {
    format!("{}", log.exp2().round())
}

/// How an axis of requests or blocks a second is written.
fn thousands(n: f64) -> String {
    format!("{:.0} k", n / 1e3)
}

#[cfg(test)]
mod tests;
