//! A bench of a drive that somebody serves, over NBD or by a channel.
//!
//! Guarantees: what the server does not take is not asked of it. May fail: the
//! workload asks for that, the server cannot be reached, or it is lost; what was
//! measured until then is told.

use measure::units;
use serde_json::json;
use workload::Pattern;

use crate::args::{BenchArgs, Precondition};
use crate::outcome::Outcome;
use crate::replay::Takes;
use crate::{Bench, load, pattern};
use drive::error::Error;
use drive::spec::{ChannelSpec, NbdDrive};
use load::channel::Channelled;
use load::runner;
use load::served::{Offer, Remote, Served};
use load::watch::Watch;

/// Measures one behind NBD.
pub(crate) fn served(
    args: &BenchArgs,
    drive: &NbdDrive,
    watch: &mut Watch,
) -> Result<Outcome, Error> {
    check(args)?;
    let driver = Served::connect(drive, watch)?;
    measured(args, driver, watch)
}

/// Measures one behind a channel, which has room for the requests that are asked.
pub(crate) fn channelled(
    args: &BenchArgs,
    spec: &ChannelSpec,
    watch: &mut Watch,
) -> Result<Outcome, Error> {
    check(args)?;
    let driver = Channelled::open(spec, room(args), watch)?;
    measured(args, driver, watch)
}

/// Requests that may be out, and the bytes of the longest, 0 for the drive's own: a trace
/// tells its lengths when it is read.
fn room(args: &BenchArgs) -> (u32, u64) {
    let out = args.qd.saturating_mul(args.threads);
    let prepares = args.precondition() != Precondition::None;
    // Reading back and preconditioning have as many out, whatever is measured.
    let depth = if args.verify || prepares { out.max(runner::DEPTH) } else { out };
    let filling = if prepares { Pattern::precondition(0).bs } else { 0 };
    match args.replay {
        Some(_) => (out.max(runner::DEPTH), 0),
        None => (depth, args.most_bytes().max(filling)),
    }
}

fn check(args: &BenchArgs) -> Result<(), Error> {
    if args.rate.is_some() {
        let scheme = args.drive.served_by().unwrap_or_default();
        return Err(Error::Usage(format!(
            "--rate is not for {scheme} drives, which are driven in a closed loop: take --qd"
        )));
    }
    Ok(())
}

fn measured<R: Remote>(
    args: &BenchArgs,
    mut driver: R,
    watch: &mut Watch,
) -> Result<Outcome, Error> {
    let offer = driver.offer();
    let shape = driver.shape();
    let pattern = pattern(args, &shape)?;
    if let Some(why) = refusal(args, &offer, &pattern) {
        return Err(Error::Usage(why));
    }
    let mut load = load(args, &shape, &pattern)?;
    let mut bench = Bench::new(args, &shape, pattern, watch)?;
    bench.takes = takes(&offer, bench.takes);
    let steady = bench.prepare(&mut driver, &mut load, None)?;
    let measured = bench.measure(&mut driver, &mut load)?;
    let measured = bench.read_back(&mut driver, measured)?;
    if measured.tally.lost.is_none() {
        driver.close()?;
    }
    let may_be_old = measured.tally.wrong > 0 && args.precondition() == Precondition::None;
    let drive = json!({ "name": args.drive.to_string(), "size_bytes": shape.bytes });
    let mut outcome = bench.outcome(measured, steady, drive.clone(), drive);
    if may_be_old && let Some(problem) = &mut outcome.problem {
        // Whether it was used its server does not tell.
        problem.push_str(
            ". --verify knows only what it wrote: if this drive was used before, that is why; add \
             --precondition seq, which writes over it first",
        );
    }
    if args.reads() > 0 && args.precondition() == Precondition::None {
        outcome.warnings.push(
            "a server does not tell what was written, and what never was is read in no time; \
             --precondition seq writes it first"
                .into(),
        );
    }
    Ok(outcome)
}

/// What the server takes of what a drive of its shape does.
fn takes(offer: &Offer, of_shape: Takes) -> Takes {
    Takes {
        unit: of_shape.unit.max(offer.unit),
        most: of_shape.most.min(offer.most),
        most_trim: offer.most_trim,
        lacks: offer.lacks,
    }
}

/// Why the server does not take this workload, if it does not, and what to do.
fn refusal(args: &BenchArgs, offer: &Offer, pattern: &Pattern) -> Option<String> {
    let Offer { unit, most, most_trim, is_read_only, lacks } = *offer;
    let moves = pattern.trim_percent < 100;
    let prepares = args.precondition() != Precondition::None;
    let text = match () {
        () if args.writes() && is_read_only => {
            "this server can only be read: take --rw read or randread and no --precondition, or \
             have it serve a drive that can be written"
        }
        () if pattern.trim_percent > 0 && lacks.trims => {
            "this server takes no trims: take another --rw"
        }
        () if pattern.fua_every > 0 && lacks.fua => {
            "this server takes no FUA: leave --fua-every out"
        }
        () if pattern.flush_every > 0 && lacks.flushes => {
            "this server takes no flushes: leave --flush-every out"
        }
        () if !pattern.bs.is_multiple_of(unit) => {
            let unit = units::size_binary(unit);
            return Some(format!("this server takes multiples of {unit}: raise --bs"));
        }
        () if moves && pattern.most() > most => {
            let most = units::capacity(most);
            return Some(format!("this server takes at most {most} in a request: lower --bs"));
        }
        () if pattern.trim_percent > 0 && pattern.most() > most_trim => {
            let most = units::capacity(most_trim);
            return Some(format!("this server trims at most {most} at once: lower --bs"));
        }
        () if prepares && Pattern::precondition(pattern.length).bs > most => {
            "this server takes no requests as long as --precondition makes: take --precondition \
             none"
        }
        () => return None,
    };
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Line;
    use clap::Parser;

    /// So much memory is asked for as the requests need that are sent.
    #[test]
    fn a_channel_is_asked_for_what_is_sent() {
        let room = |options: &str| {
            let line = format!("bench channel:/c --rw randrw {options}");
            room(&Line::parse_from(line.split(' ')).args)
        };
        assert_eq!(room("--qd 512"), (512, 4096));
        assert_eq!(room("--qd 512 --precondition seq"), (512, 128 << 10));
        assert_eq!(room("--qd 256 --threads 2 --bs 256k --precondition seq"), (512, 256 << 10));
        assert_eq!(room("--qd 1 --verify --bssplit 4k/50:64k/50"), (32, 64 << 10));
        assert_eq!(room("--qd 1 --bs 512"), (1, 512));
    }
}
