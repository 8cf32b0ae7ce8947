//! Table 3 (thesis, chapter 6, section 6.1.3): the OpenSSD with its own firmware, and with
//! translation in the host. In virtual time.
//!
//! The firmware maps units of 16 KB, below which a write reads, changes and writes; it keeps
//! nothing that is not programmed, so each write is FUA. Fitted are what a read takes of its
//! core, which makes any read alike, in sequence or at random, and the rate at which it moves
//! data through its memory, by writes in sequence; those at random are not fitted. The host's drive has nothing
//! fitted but what the profile has. There is so much spare that nothing is collected.

use report::Plot;

use super::super::{Findings, Lab, Reference, Row, Runs};
use super::picture;
use drive::error::Error;
use measure::units;

const TABLE: &str = "table 3: OpenSSD, host-managed and firmware";

/// One parallel unit on each of two channels: the least that they can have.
const HOST: &str = "mem:openssd,pus=1,spare=0.8,store=none";
const FIRMWARE: &str = "mem:openssd,pus=1,spare=0.8,store=none,side=device,map_unit=16k,\
                        cores=1,core_read=611us,buffer_rate=64MB/s";

/// What the table has: how it is called, the workload, the host's IOPS, the firmware's.
const ALL: [(&str, &str, f64, f64); 4] = [
    ("random read", "randread", 2082.0, 1630.0),
    ("sequential read", "read", 4030.0, 1635.0),
    ("random write", "randwrite", 4058.0, 721.0),
    ("sequential write", "write", 2032.0, 522.0),
];

/// What the text says of a workload's difference.
fn says(rw: &str) -> &'static str {
    match rw {
        "randread" => "\"This allows LightNVM to perform reads faster\"",
        "read" => "\"Greedy keeps on reading from the same channel\"",
        _ => {
            "\"writes for Greedy is significantly slower [...] read-modify-write for writes less \
             than 16KB\""
        }
    }
}

/// IOPS of each workload: the host's, and the firmware's.
fn measured(lab: &mut Lab) -> Result<[[f64; 2]; 4], Error> {
    let (size, ios) = lab.options.pick(("256M", "32768"), ("64M", "8192"));
    let mut all = [[f64::NAN; 2]; 4];
    for ((name, rw, ..), ours) in ALL.into_iter().zip(&mut all) {
        // The firmware writes through.
        let through = if rw.contains("write") { " --fua-every 1" } else { "" };
        let ways = [("host", HOST, ""), ("firmware", FIRMWARE, through)];
        for ((who, drive, more), iops) in ways.into_iter().zip(ours) {
            let run = format!("--rw {rw} --qd 2 --ios {ios} --precondition seq{more}");
            let line = format!("{drive},size={size} {run}");
            *iops = lab.bench(&format!("OpenSSD, {who}, {name}"), &line)?.report.iops;
        }
    }
    Ok(all)
}

/// Why a figure of the host's drive is not judged.
const HOST_SHOWN: &str = "their writes differ by how worn the flash was, and random reads are \
                          slower than the text explains";
const FITTED: &str = "fitted to it";
const CORE: &str = "no prediction: its core is what bounds any read, and was fitted to those in \
                    sequence";

/// The rows of this table.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let ours = measured(lab)?;
    let mut rows = Vec::new();
    for ((name, rw, ..), [host, firmware]) in ALL.into_iter().zip(ours) {
        let pair = [(format!("{name}: host"), host), ("firmware".into(), firmware)];
        rows.push(Row::order(TABLE, "IOPS", says(rw), pair.map(|(n, x)| (n, Runs::one(x)))));
    }
    for ((name, rw, _, paper), [_, firmware]) in ALL.into_iter().zip(ours) {
        let (what, paper) = (format!("firmware, {name}"), Reference::Paper(paper));
        let ours = Runs::one(firmware);
        rows.push(match rw {
            "randread" => Row::shown(TABLE, &what, "IOPS", paper, ours, CORE),
            "read" | "write" => Row::shown(TABLE, &what, "IOPS", paper, ours, FITTED),
            _ => Row::band(TABLE, &what, "IOPS", paper, ours, 0.8..=1.25),
        });
    }
    let [_, _, random, sequential] = ours;
    let pair = [("firmware: random write", random[1]), ("sequential write", sequential[1])];
    let same = "721 and 522 IOPS";
    rows.push(Row::order(TABLE, "IOPS", same, pair.map(|(name, x)| (name, Runs::one(x)))));
    for ((name, _, paper, _), [host, _]) in ALL.into_iter().zip(ours) {
        let (what, paper) = (format!("host, {name}"), Reference::Paper(paper));
        rows.push(Row::shown(TABLE, &what, "IOPS", paper, Runs::one(host), HOST_SHOWN));
    }
    let pictures = picture("lightnvm-openssd", &plot(&ours));
    Ok(Findings { rows, notes: vec![], pictures: pictures.into_iter().collect() })
}

fn plot(ours: &[[f64; 2]; 4]) -> Plot {
    let line = |name: &str, iops: &dyn Fn(usize) -> f64| {
        (name.to_owned(), (0..4).map(|i| (i as f64, iops(i))).collect())
    };
    Plot {
        caption: "4 KiB requests at depth 2 on the OpenSSD: with translation in the host, and \
                  in firmware that maps units of 16 KiB."
            .into(),
        along: ("workload", |at| match at.fract() == 0.0 {
            true => ALL.get(at as usize).map_or_else(String::new, |one| one.0.into()),
            // Between two of them there is none.
            false => String::new(),
        }),
        height: ("IOPS", units::count),
        is_log: true,
        lines: vec![
            line("host", &|i| ours[i][0]),
            line("host, paper", &|i| ALL[i].2),
            line("firmware", &|i| ours[i][1]),
            line("firmware, paper", &|i| ALL[i].3),
        ],
    }
}
