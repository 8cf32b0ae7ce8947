//! How to measure a drive so that it hides nothing (Seppanen, section III.A), and what
//! drives do then: the drop-off of figure 1, sizes of requests and a SATA drive beside
//! (section V.C, figures 7 to 12), threads (figure 13). All in virtual time, with the
//! standard tests `write-saturation` and `pessimistic`, which are this method.
//!
//! The drives are smaller than theirs, and a run is as much of a drive fill as theirs of
//! theirs. Fails as a standard test does.

use measure::units::exactly;
use port::BLOCK_BYTES;
use standard::session::NOT_COLLECTED;

use super::super::lab::not_steady;
use super::super::{Lab, Reference, Row, Runs};
use drive::error::Error;

const FIGURE_1: &str = "Seppanen, figure 1: random 4 KiB writes to an empty drive, until steady";
const SIZES: &str = "Seppanen, section III.A, figures 7 to 12: a full drive, by size of requests";
const FIGURE_13: &str = "Seppanen, figure 13, virtual time: random 4 KiB reads by threads";

/// What their bus carries, in bytes a second: "2.0 GBps", less "30% of this".
pub const LINK: f64 = 1.4e9;
/// The prototype, without a size. From the paper: its link; that it is over-provisioned is
/// said, and not how much: 96 GiB of 128 is assumed. Fitted: tR, so that 128 reads of 512
/// bytes at once are 1.1 M IOPS. All else is of `ref`, with two dies for each of its 128
/// commands, and blocks so small that a small drive has many.
pub const PCIE: &str = "ref,groups=32,pus=8,pages=16,side=device,link_rate=1400MB/s,read=72us,\
                        spare=0.25";
/// The prototype in slow motion: its link eighty times as slow, and its flash four times.
/// The kernel's path here is as much slower than their kernel, and lets about ten requests
/// through at once, where theirs had 128.
pub const SLOWED: &str = "ref,groups=32,pus=8,pages=4,side=device,link_rate=17500kB/s,read=288us,\
                          program=3ms,erase=15200us,channel_rate=83250kB/s,spare=0.25";
/// What its link carries.
pub const SLOWED_LINK: f64 = LINK / 80.0;
/// The SATA drive, without a size. From the paper: a link of 300 MB/s, and that 256 GB are
/// sold of it; of 256 GiB, as is assumed, 7 % are spare. Assumed: tPROG, so that flash
/// takes as much as the link brings.
const SATA: &str = "ref,pages=32,side=device,link_rate=300MB/s,program=1720us,spare=0.07";
/// Threads that read, in all.
const THREADS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// A drive in memory of this size.
pub fn sized(keys: &str, size: &str) -> String {
    format!("mem:{keys},size={size}")
}

/// All rows.
pub fn rows(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let size = lab.options.pick("1G", "256M");
    let (pcie, sata) = (sized(PCIE, size), sized(SATA, size));
    let drop = drop_off(lab, &sata)?;
    let both = [by_size(lab, "PCIe", &pcie, 128)?, by_size(lab, "SATA", &sata, 32)?];
    let mut rows = drop_rows(drop);
    rows.extend(size_rows(&both));
    rows.extend(thread_rows(&by_threads(lab, &pcie)?));
    Ok(rows)
}

/// What `write-saturation` finds, in IOPS.
#[derive(Clone, Debug)]
struct Drop {
    empty: f64,
    first_fill: f64,
    steady: f64,
    /// Why the last says nothing, if it does not.
    void: Option<String>,
}

fn drop_off(lab: &mut Lab, drive: &str) -> Result<Drop, Error> {
    let quick = lab.options.pick("", " --quick");
    let test = format!("write-saturation {drive} --qd 32{quick}");
    let found = lab.test("SATA: from empty to steady", &test)?;
    let figure = |i: usize| found.found.figures[i].value.unwrap_or(f64::NAN);
    let first_fill = found.found.tables[0].rows[0].1[0].unwrap_or(f64::NAN);
    Ok(Drop { empty: figure(0), first_fill, steady: figure(1), void: not_steady(&found) })
}

const DRAWN: &str = "the figure has no numbers in the text";

fn drop_rows(Drop { empty, first_fill, steady, void }: Drop) -> Vec<Row> {
    let (empty, first_fill) = (Runs::one(empty), Runs::one(first_fill));
    let steady = void.into_iter().fold(Runs::one(steady), Runs::voided);
    let shown = |what, iops: &Runs| {
        Row::shown(FIGURE_1, what, "IOPS", Reference::Silent, iops.clone(), DRAWN)
    };
    let loss = steady.with(&empty, |steady, empty| 100.0 * (1.0 - steady / empty));
    let average = "\"an average that includes the peak performance would not meet our goals\"";
    let fills = [("SATA: the first fill", first_fill), ("steady", steady.clone())];
    vec![
        shown("SATA: empty", &empty),
        shown("SATA: full and steady", &steady),
        Row::band(FIGURE_1, "SATA: loss", "%", Reference::Paper(90.0), loss, 0.9..=1.1),
        Row::order(FIGURE_1, "IOPS", average, fills),
    ]
}

/// What `pessimistic` finds: IOPS of reads and of writes by size.
#[derive(Clone, Debug)]
struct BySize {
    rates: Vec<(String, Vec<Option<f64>>)>,
    /// Why writes say nothing, if they do not.
    void: Option<String>,
}

impl BySize {
    /// IOPS of reads, or of writes, of so many bytes.
    fn of(&self, bytes: u64, reads: bool) -> Runs {
        let name = measure::units::size_binary(bytes);
        let row = self.rates.iter().find(|(known, _)| *known == name);
        let iops = row.and_then(|(_, rates)| rates[usize::from(!reads)]).unwrap_or(f64::NAN);
        self.void.iter().filter(|_| !reads).fold(Runs::one(iops), Runs::voided)
    }
}

/// The test on a drive with so many outstanding. Its period is 0.2 s of drive time: of a
/// drive a hundred times as small as theirs their 20 s are as much.
fn by_size(lab: &mut Lab, name: &str, drive: &str, qd: u32) -> Result<BySize, Error> {
    let period = lab.options.pick("200ms", "20ms");
    let found = lab.test(
        &format!("{name}: full, by size"),
        &format!("pessimistic {drive} --qd {qd} --period {period}"),
    )?;
    let void = found.notes.iter().find(|note| **note == NOT_COLLECTED).cloned();
    Ok(BySize { rates: found.found.tables[0].rows.clone(), void })
}

fn size_rows([pcie, sata]: &[BySize; 2]) -> Vec<Row> {
    let rate =
        |of: &BySize, bytes: u64, reads| of.of(bytes, reads).map(|iops| iops * bytes as f64 / 1e6);
    let shown =
        |what: &str, unit, paper, runs, why| Row::shown(SIZES, what, unit, paper, runs, why);
    let silent = || Reference::Silent;
    let fitted = "tR is fitted to it";
    let follows = "it follows from what is fitted or assumed: links, flash, spare";
    let mut rows = vec![
        shown("PCIe: reads of 512 B", "IOPS", Reference::Paper(1.1e6), pcie.of(512, true), fitted),
        shown("the same", "MB/s", Reference::Paper(557.0), rate(pcie, 512, true), fitted),
        shown(
            "PCIe: reads of 4 KiB",
            "MB/s",
            Reference::Paper(1349.0),
            rate(pcie, 4096, true),
            follows,
        ),
    ];
    for (name, of) in [("PCIe", pcie), ("SATA", sata)] {
        for (what, reads) in [("reads", true), ("writes", false)] {
            for bytes in [512u64, 4 << 10, 16 << 10, 64 << 10] {
                let size = measure::units::size_binary(bytes);
                let what = format!("{name}: {what} of {size}");
                if !(name == "PCIe" && reads && bytes <= 4 << 10) {
                    rows.push(shown(&what, "MB/s", silent(), rate(of, bytes, reads), DRAWN));
                }
            }
        }
    }
    let faster = || Reference::Says("\"faster than most drives available today\"".into());
    for (what, bytes, reads) in [
        ("reads of 512 B", 512, true),
        ("reads of 4 KiB", 4096, true),
        ("writes of 4 KiB", 4096, false),
    ] {
        let ratio = pcie.of(bytes, reads).with(&sata.of(bytes, reads), |pcie, sata| pcie / sata);
        rows.push(shown(&format!("{what}: PCIe / SATA"), "x", faster(), ratio, follows));
    }
    rows
}

/// Rates by [`THREADS`].
fn by_threads(lab: &mut Lab, drive: &str) -> Result<Vec<Runs>, Error> {
    let ios = lab.options.pick("200k", "50k");
    let mut rates = Vec::new();
    for threads in THREADS {
        let args = format!(
            "{drive},store=none --rw randread --threads {threads} --qd 1 --ios {ios} --precondition seq"
        );
        rates.push(lab.iops(&format!("PCIe: {}", exactly(threads.into(), "thread")), &args)?);
    }
    Ok(rates)
}

/// The share of the most from which on a rate is bound by the bus.
const BOUND: f64 = 0.95;

fn thread_rows(rates: &[Runs]) -> Vec<Row> {
    let mut rows: Vec<Row> = (THREADS.iter().zip(rates))
        .map(|(&threads, runs)| {
            let what = exactly(threads.into(), "thread");
            Row::shown(FIGURE_13, &what, "IOPS", Reference::Silent, runs.clone(), DRAWN)
        })
        .collect();
    let bus = LINK / BLOCK_BYTES as f64;
    let bound = THREADS.iter().zip(rates).find(|(_, runs)| runs.median() >= BOUND * bus);
    let first = bound.map_or(f64::NAN, |(threads, _)| f64::from(*threads));
    let what = "threads from which on the bus limits";
    rows.push(Row::knee(FIGURE_13, what, "threads", 64.0, Runs::one(first), 32.0..=64.0));
    rows
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn the_bus_limits_from_the_first_count_that_reaches_it() {
        let verdict = |from: u32| {
            let bus = LINK / BLOCK_BYTES as f64;
            let rate = |n: u32| Runs::one(if n >= from { bus } else { 0.9 * bus });
            thread_rows(&THREADS.map(rate)).last().unwrap().verdict()
        };
        assert_eq!([64, 32].map(verdict), [Verdict::Pass, Verdict::Pass]);
        assert_eq!([16, 128, 256].map(verdict), [Verdict::Fail, Verdict::Fail, Verdict::Fail]);
    }

    #[test]
    fn a_loss_is_held_against_nine_tenths() {
        let verdict = |steady| {
            let drop = Drop { empty: 100.0, first_fill: 60.0, steady, void: None };
            drop_rows(drop)[2].verdict()
        };
        assert_eq!([5.0, 10.0, 19.0].map(verdict), [const { Verdict::Pass }; 3]);
        assert_eq!(verdict(25.0), Verdict::Fail);
    }

    #[test]
    fn what_was_not_steady_is_not_judged() {
        let void = Some("not steady".to_string());
        let rows = drop_rows(Drop { empty: 100.0, first_fill: 60.0, steady: 10.0, void });
        let verdicts: Vec<Verdict> = rows[1..].iter().map(Row::verdict).collect();
        assert_eq!(verdicts, vec![Verdict::NotGated("not steady".into()); 3]);
        let rates = vec![("4 KiB".into(), vec![Some(2.0), Some(1.0)])];
        let of = BySize { rates, void: Some(NOT_COLLECTED.into()) };
        assert_eq!(of.of(4096, true), Runs::one(2.0));
        assert_eq!(of.of(4096, false).void(), Some(NOT_COLLECTED));
    }

    #[test]
    fn the_slowed_drive_is_the_papers_in_slow_motion() {
        let profile =
            |keys| super::super::super::lab::config(&sized(keys, "256M")).unwrap().profile;
        let (fast, slow) = (profile(PCIE), profile(SLOWED));
        for (fast, slow) in
            [(&fast.timing.read, &slow.timing.read), (&fast.timing.program, &slow.timing.program)]
        {
            let times: Vec<u64> = fast.iter().map(|ns| 4 * ns).collect();
            assert_eq!(&times[..], &slow[..]);
        }
        assert_eq!(4 * fast.timing.erase, slow.timing.erase);
    }
}
