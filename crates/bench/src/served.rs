//! A bench of a drive that somebody serves, over NBD.
//!
//! Guarantees: what the server does not take is not asked of it. May fail: the
//! workload asks for that, the server cannot be reached, or it is lost; what was
//! measured until then is told.

use exports::nbd::protocol::{READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES};
use measure::units;
use replay::Lacks;
use serde_json::json;
use workload::Pattern;

use crate::args::{BenchArgs, Precondition};
use crate::outcome::Outcome;
use crate::replay::Takes;
use crate::{Bench, load, pattern};
use drive::error::Error;
use drive::spec::NbdAddress;
use load::served::Served;
use load::watch::Watch;

/// Measures it.
pub(crate) fn served(
    args: &BenchArgs,
    address: &NbdAddress,
    watch: &mut Watch,
) -> Result<Outcome, Error> {
    if args.rate.is_some() {
        let text = "--rate is not for nbd: drives, which are driven in a closed loop: take --qd";
        return Err(Error::Usage(text.into()));
    }
    let mut driver = Served::connect(address, watch)?;
    let shape = driver.shape();
    let pattern = pattern(args, &shape)?;
    if let Some(why) = refusal(args, &driver, &pattern) {
        return Err(Error::Usage(why));
    }
    let mut load = load(args, &shape, &pattern)?;
    let mut bench = Bench::new(args, &shape, pattern, watch)?;
    bench.takes = takes(&driver, bench.takes);
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
             --precondition seq, which writes over all of it",
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
fn takes(driver: &Served, of_shape: Takes) -> Takes {
    let lacks = |flag: u16| driver.flags() & flag == 0;
    Takes {
        unit: of_shape.unit.max(driver.unit()),
        most: of_shape.most.min(driver.most()),
        // Lengths have 32 bits.
        most_trim: u32::MAX.into(),
        lacks: Lacks {
            trims: lacks(SEND_TRIM),
            zeroes: lacks(SEND_WRITE_ZEROES),
            flushes: lacks(SEND_FLUSH),
            fua: lacks(SEND_FUA),
        },
    }
}

/// Why the server does not take this workload, if it does not, and what to do.
fn refusal(args: &BenchArgs, driver: &Served, pattern: &Pattern) -> Option<String> {
    let lacks = |flag: u16| driver.flags() & flag == 0;
    let (unit, most) = (driver.unit(), driver.most());
    let moves = pattern.trim_percent < 100;
    let prepares = args.precondition() != Precondition::None;
    let text = match () {
        () if args.writes() && !lacks(READ_ONLY) => {
            "this server can only be read: take --rw read or randread and no --precondition, or \
             have it serve a drive that can be written"
        }
        () if pattern.trim_percent > 0 && lacks(SEND_TRIM) => {
            "this server takes no trims: take another --rw"
        }
        () if pattern.fua_every > 0 && lacks(SEND_FUA) => {
            "this server takes no FUA: leave --fua-every out"
        }
        () if pattern.flush_every > 0 && lacks(SEND_FLUSH) => {
            "this server takes no flushes: leave --flush-every out"
        }
        () if !pattern.bs.is_multiple_of(unit) => {
            return Some(format!("this server takes multiples of {unit} bytes: raise --bs"));
        }
        () if moves && pattern.most() > most => {
            let most = units::capacity(most);
            return Some(format!("this server takes at most {most} in a request: lower --bs"));
        }
        () if prepares && Pattern::precondition(pattern.length).bs > most => {
            "this server takes no requests as long as --precondition makes: take --precondition \
             none"
        }
        () => return None,
    };
    Some(text.into())
}
