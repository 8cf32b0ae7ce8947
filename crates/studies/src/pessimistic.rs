//! Study `pessimistic`: what stands between a fast drive and its applications, and how to
//! measure it so that it hides nothing (Seppanen, O'Keefe and Lilja, *High Performance
//! Solid State Storage Under Linux*).
//!
//! Files: [`driver`] driver variants, [`interrupts`] completions and who does their work,
//! [`method`] full drives in virtual time and a SATA drive beside, [`remap`] writes below
//! the remap unit; live, on the kernel's own path, [`file_systems`] by threads, and
//! [`buffer_cache`].

pub mod buffer_cache;
pub mod driver;
pub mod file_systems;
pub mod interrupts;
pub mod method;
pub mod remap;

use super::{Findings, Lab, Study, kernel_runs};
use drive::error::Error;
use driver::Bench;

/// The study.
pub const STUDY: Study = Study {
    name: "pessimistic",
    about: "a fast drive, full and at its worst: driver variants, interrupts, file systems, \
            buffer cache (Seppanen)",
    run,
};

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    kernel_runs::check(lab)?;
    let bench = Bench::new(lab)?;
    let mut rows = method::rows(lab)?;
    let (variants, scaled_ns) = driver::rows(lab, &bench)?;
    rows.extend(variants);
    rows.extend(remap::rows(lab)?);
    rows.extend(interrupts::rows(lab, &bench)?);
    rows.extend(file_systems::rows(lab)?);
    rows.extend(buffer_cache::rows(lab)?);
    Ok(Findings::new(rows, notes(&bench, scaled_ns)))
}

fn notes(bench: &Bench, scaled_ns: u64) -> Vec<String> {
    vec![
        format!(
            "figure 5, fitted: the time of a command. {} ns, so that 128 make 1.1 M IOPS; and \
             {scaled_ns} ns, so that 32 make what our request queue can do at most",
            driver::PAPER_NS
        ),
        format!(
            "figure 5: {} cores submit, pinned, with {} requests outstanding in all: the paper \
             has 128 threads on 8 cores; requests are of 4 KiB, the least that this drive takes, \
             and stand for 512 B: it has no bus",
            bench.cores(),
            driver::OUTSTANDING
        ),
        "request queue: one lock, an elevator that sorts (deadline) and merges while the drive is \
         busy; direct: each core into the drive, which has a lock of its own"
            .into(),
        format!(
            "an interrupt here wakes a thread that sleeps; one that waits is sent after {} us at \
             the latest",
            interrupts::LATEST / 1000
        ),
        "virtual time: PCIe is the paper's drive, with tR fitted to 1.1 M IOPS of 512 B; of its \
         flash the paper tells nothing, and of the SATA drive's neither: all else is of `ref`"
            .into(),
        file_systems::slowed(),
        "live file systems: threads with blocking calls; the drive is written whole before, \
         nothing is discarded, and each is made with blocks of 4 KiB, and mounted with its defaults"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict, kernel_path};
    use super::*;
    use load::watch::Watch;

    #[test]
    fn the_quick_study_has_all_rows() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let cores = super::super::threads::cores().unwrap().len();
        let has =
            |figure: &str| outcome.rows.iter().filter(|r| r.figure().contains(figure)).count();
        assert_eq!(has("driver variants") + has("the same, on a drive"), 20);
        assert_eq!(has("completion") + has("near and a far"), if cores > 1 { 13 } else { 1 });
        assert_eq!((has("figure 1:"), has("by size"), has("remap unit")), (4, 20, 6));
        assert_eq!((has("figure 13, virtual"), has("buffer cache")), (9, 11));
        let row = |what: &str| outcome.rows.iter().find(|row| row.what() == what).unwrap();
        // The drive does what it was fitted to, and no more.
        let both = row("direct, 128 entries").to_json();
        assert!(both["ours"]["median"].as_f64().unwrap() < 1.2 * driver::PAPER, "{both}");
        // What does not depend on this machine passes.
        for what in ["4 KiB > 512 B", "512 B, 1 outstanding > 4 KiB"] {
            assert_eq!(row(what).verdict(), Verdict::Pass, "{}", row(what).to_json());
        }
        let hit = row("ext2: a miss > a hit");
        if let Some(why) = kernel_path::missing() {
            assert!(matches!(hit.verdict(), Verdict::NotGated(says) if says.contains(&why)));
        }
    }
}
