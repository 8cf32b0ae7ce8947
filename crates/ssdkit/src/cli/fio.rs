//! Options of fio that ssdkit has not by the same name: what they are called
//! here.
//!
//! Those that mean the same here are taken as they are ([`super::BenchArgs`]:
//! `--iodepth`, `--readwrite`, `--blocksize`, `--rwmixread`, `--numjobs`,
//! `--runtime`, `--ramp-time`). Of others a mistake says what does the same.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of fio without the dashes before them, and what to do instead.
const OTHERS: &[(&str, &str)] = &[
    ("bsrange", "sizes have shares here: --bssplit 4k/50:8k/50"),
    ("cpus_allowed", "there is none: run it under taskset"),
    ("direct", "a file is past the page cache unless its name says direct=no"),
    ("do_verify", "--verify checks all that is read, and reads back what was written"),
    ("end_fsync", "there is none; --flush-every N flushes after every N writes"),
    ("eta", "progress is told on a terminal only"),
    ("fdatasync", "--flush-every N, counted in writes"),
    (
        "filename",
        "the drive is the first word: ssdkit bench /dev/nvme0n1 ...; ssdkit fio has --drive",
    ),
    ("fill_device", "--precondition seq writes all of the drive first"),
    ("fsync", "--flush-every N, counted in writes"),
    ("group_reporting", "figures are of all threads together"),
    ("io_size", "--ios N ends after so many requests"),
    ("ioengine", "the drive's name says how it is driven: mem:, /dev/..., nbd:, null:"),
    ("iodepth_batch", "--batch N"),
    ("job_start_delay", "there is none: all begin at once; --ramp TIME is not counted"),
    ("loops", "--ios N ends after so many requests"),
    ("lat_percentiles", "percentiles are always reported"),
    ("minimal", "--json"),
    ("name", "leave it out; a file with jobs of names runs with ssdkit fio FILE.fio"),
    ("norandommap", "random addresses may repeat before all were used: leave it out"),
    ("number_ios", "--ios N"),
    ("offset", "--range OFFSET+LENGTH"),
    ("output", "the report goes to standard output: --json > FILE"),
    ("output-format", "--json"),
    ("percentile_list", "percentiles are always the same: p50 to p99.999, in --json all"),
    ("percentage_random", "--rw randread and the like are random, --rw read and write in order"),
    ("ramp_time", "--ramp TIME"),
    ("random_distribution", "--zipf THETA, or --hot SPACE:ACCESSES"),
    ("randrepeat", "runs repeat with the same --seed"),
    ("randseed", "--seed N"),
    ("rate_iops", "--rate N"),
    ("rate_min", "there is none; the report says whether the rate was reached"),
    ("rate_process", "--arrivals poisson"),
    ("read_iolog", "ssdkit replay TRACE DRIVE"),
    ("rwmixwrite", "--read-percent N, which is 100 less that"),
    ("size", "the drive's size is in its name, as in mem:ref,size=8G; a part of it is --range"),
    ("steadystate", "--precondition steady runs the workload until it is steady, then measures"),
    ("sync", "--fua-every 1"),
    (
        "thinktime",
        "--pause TIME, after every --burst N requests; --rate N makes them arrive at a distance",
    ),
    ("thinktime_blocks", "--burst N, with --pause TIME"),
    ("thread", "--threads N"),
    ("time_based", "--time TIME alone ends after that time: leave it out"),
    ("uri", "a served drive is the first word: nbd:PATH, nbd:HOST:PORT or the URI"),
    ("write_bw_log", "--json has a row for each second in `series`"),
    ("write_iolog", "there is none; --trace FILE writes down each request's times"),
    ("write_iops_log", "--json has a row for each second in `series`"),
    ("write_lat_log", "--json has a row for each second in `series`, with p50 and p99.9"),
    ("zonemode", "there is none: drives have no zones here"),
];

/// What is said of a value of fio's `rw`, if it is one.
fn mix(value: &str) -> Option<&'static str> {
    match value {
        "trimwrite" | "randtrimwrite" | "rwtrim" => Some("trims are not mixed with writes: trim"),
        _ => None,
    }
}

/// What is said of an option of fio, if it is one.
fn instead(option: &str) -> Option<&'static str> {
    let name = option.trim_start_matches('-').split('=').next()?;
    let same = |known: &str| known.replace('-', "_") == name.replace('-', "_");
    OTHERS.iter().find(|(known, _)| same(known)).map(|(_, text)| *text)
}

/// A mistake on the command line; one that gives an option of fio says what
/// does the same, in place of options that are spelt alike; one with a number
/// below zero says that there is none.
pub fn explained(error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidValue
        && let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && option.starts_with("--rw")
        && let Some(text) = mix(value)
    {
        return with_tip(error, ContextKind::SuggestedValue, fios(text));
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_number =
        option.strip_prefix('-').is_some_and(|o| o.starts_with(|c: char| c.is_ascii_digit()));
    let tip = match instead(option) {
        Some(text) => fios(text),
        None if is_number => "no option takes a number below zero".to_string(),
        None => return error,
    };
    with_tip(error, ContextKind::SuggestedArg, tip)
}

fn fios(text: &str) -> String {
    format!("that is fio's; here: {text}")
}

/// The error with a tip in the place of its own.
fn with_tip(mut error: clap::Error, own: ContextKind, tip: String) -> clap::Error {
    error.remove(own);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use bench::Rw;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn options_that_mean_the_same_are_taken() {
        let line = "ssdkit bench null: --readwrite=randrw --blocksize=8k --iodepth=32 --numjobs=2 \
                    --runtime=10 --ramp-time 1 --rwmixread=70";
        let Some(Command::Bench(args)) = parse(line).unwrap().command else { panic!("a bench") };
        let args = args.bench;
        assert_eq!((args.rw, args.bs, args.qd, args.threads), (Rw::Randrw, 8192, 32, 2));
        assert_eq!((args.time, args.ramp), (Some(10_000_000_000), Some(1_000_000_000)));
        assert_eq!(args.read_percent, Some(70));
    }

    #[test]
    fn others_are_explained() {
        for (option, says) in [
            ("--filename=/dev/sda", "the drive is the first word"),
            ("--ioengine=libaio", "the drive's name says how"),
            ("--size=1G", "mem:ref,size=8G"),
            ("--direct=1", "direct=no"),
            ("--rate-iops=5", "--rate N"),
            ("--ramp_time=5", "--ramp TIME"),
            ("--group_reporting", "all threads together"),
            ("--steadystate=iops:5%", "--precondition steady"),
            ("--bsrange=4k-64k", "--bs"),
            ("--job_start_delay=3", "all begin at once"),
            ("--fdatasync=1", "--flush-every N"),
            ("--write_lat_log=x", "`series`"),
            ("--zonemode=zbd", "there is none"),
        ] {
            let error = parse(&format!("ssdkit bench null: --rw read {option}")).unwrap_err();
            let text = explained(error).to_string();
            assert!(text.contains("that is fio's; here: ") && text.contains(says), "{text}");
        }
        for mix in ["--rw rwtrim", "--readwrite=trimwrite"] {
            let text = explained(parse(&format!("ssdkit bench null: {mix}")).unwrap_err());
            let text = text.to_string();
            assert!(text.contains("trims are not mixed with writes"), "{text}");
        }
        for value in ["--qd -1", "--time -5s", "--bs -4k"] {
            let error = parse(&format!("ssdkit bench null: --rw read {value}")).unwrap_err();
            let text = explained(error).to_string();
            assert!(text.contains("no option takes a number below zero"), "{text}");
        }
        let error = parse("ssdkit bench null: --rw read --qdd 3").unwrap_err();
        assert!(explained(error).to_string().contains("--qd"));
    }

    #[test]
    fn no_other_is_an_option_of_ours() {
        for (option, _) in OTHERS {
            let error = parse(&format!("ssdkit bench null: --rw read --{option} 1")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{option}");
        }
    }
}
