//! The software layer at work (thesis, chapter 5, section 2): collection, wear leveling, and
//! counts of each core. In virtual time. Fails as a bench does.
//!
//! Of its byte-addressable interface the chapter says that "currently only 4K block IOs are
//! supported", so there is nothing to repeat.

use load::driver::Virtual;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use serde_json::{Value, json};
use workload::Pattern;

use super::super::lab::config;
use super::super::{Lab, Reference, Row, Runs};
use drive::error::Error;
use drive::stack;
use drive::whole::Drive;

const LAYER: &str = "thesis ch. 5, section 2: the software layer at work, virtual time";

/// A drive whose chunks wear out after so many erases, and are kept alike. `pblk` aims at
/// 5 % of them.
const WORN: &str = "mem:ref,groups=2,pus=2,pages=32,size=64M,store=none,endurance=1000";
/// The same without an end, and so without leveling.
const UNLEVELED: &str = "mem:ref,groups=2,pus=2,pages=32,size=64M,store=none";

/// All rows.
pub fn rows(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let mut rows = collection(lab)?;
    rows.extend(leveling(lab)?);
    rows.extend(accounts(lab)?);
    Ok(rows)
}

fn collection(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let args = "mem:ref,groups=4,pus=4,pages=32,size=256M,store=none --rw randwrite --qd 32 \
                --ios 200k --precondition steady --steady-rounds 3 --steady-round 10ms";
    let bench = lab.bench("collection at work", args)?;
    let formula = bench.report.drive["wa_formula"].as_f64().unwrap_or(f64::NAN);
    let total = bench.report.write_amplification.map_or(f64::NAN, |wa| wa.total);
    let moved = bench.report.gc.map_or(f64::NAN, |gc| gc.moved as f64);
    let says = "it \"implements [...] garbage collection\"";
    Ok(vec![
        Row::sign(LAYER, "blocks that collection moved", "blocks", says, Runs::one(moved), true),
        Row::band(
            LAYER,
            "write amplification, by the formula",
            "x",
            Reference::Model(formula),
            Runs::one(total),
            0.9..=1.1,
        ),
    ])
}

/// Writes a tenth of a drive over and over, and tells how far its most worn chunk is from
/// the mean, in erases, and the mean.
fn worn(lab: &mut Lab, name: &str) -> Result<(f64, f64), Error> {
    let seed = lab.options.seed;
    let drive = stack::build(&config(name)?, seed)?;
    let shape = drive.shape();
    let mut driver = Virtual::new(drive);
    let mut runner = Runner::new(lab.watch);
    runner.precondition(&mut driver, &shape, seed)?;
    let pattern = Pattern { length: shape.bytes / 10, ..Pattern::uniform(shape.bytes, 0) };
    let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 32 }, 1, seed)?;
    let writes = lab_fills(lab.options.quick) * shape.bytes / port::BLOCK_BYTES;
    let plan = Plan { ramp: 0, until: Until::Ios(writes), count: true };
    let tally = Runner::new(lab.watch).run(&mut driver, &mut load, plan)?;
    if let Some(what) = tally.problem() {
        return Err(Error::Failed(what));
    }
    if tally.interrupted {
        return Err(Error::Failed("stopped before its end".into()));
    }
    let command = format!("{name}: {writes} random writes to its first tenth, 32 outstanding");
    lab.note_step("wear", command, json!({ "drive": name, "writes": writes }));
    let (drive, _) = driver.into_drive();
    let worn: Vec<f64> =
        drive.lower(0).device().chunks().iter().map(|c| f64::from(c.wear)).collect();
    let mean = worn.iter().sum::<f64>() / worn.len() as f64;
    let most = worn.iter().copied().fold(0.0, f64::max);
    Ok((most - mean, mean))
}

/// Drive fills that are written.
fn lab_fills(quick: bool) -> u64 {
    if quick { 20 } else { 60 }
}

fn leveling(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let ((leveled, mean), (not, _)) = (worn(lab, WORN)?, worn(lab, UNLEVELED)?);
    let silent = Reference::Silent;
    let mut rows = vec![Row::shown(LAYER, "erases a chunk", "", silent, Runs::one(mean), "ours")];
    rows.extend(spread(leveled, not));
    Ok(rows)
}

/// What `pblk` aims at, in erases: 5 % of what a chunk stands.
const AIM: f64 = 0.05 * 1000.0;

/// How far the most worn chunk is from the mean, of the drive that levels and of the other.
/// The aim says something only where the other misses it.
fn spread(leveled: f64, not: f64) -> [Row; 2] {
    let says = "it \"implements [...] wear-leveling\"";
    let both = [("most worn chunk from the mean: unleveled", not), ("leveled", leveled)];
    let (aim, ours) = (Reference::Model(AIM), Runs::one(leveled));
    let of_aim = match not > AIM {
        true => Row::band(LAYER, "leveled", "erases", aim, ours, 0.0..=1.0),
        false => Row::shown(LAYER, "leveled", "erases", aim, ours, TOO_LITTLE),
    };
    [Row::order(LAYER, "erases", says, both.map(|(name, n)| (name, Runs::one(n)))), of_aim]
}

const TOO_LITTLE: &str = "the drive is worn too little: one without leveling keeps to it, too";

fn accounts(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let args = "mem:ref,groups=4,pus=4,pages=32,size=64M,store=none --rw randread --qd 16 \
                --ios 20k --cores 2 --precondition seq";
    let bench = lab.bench("per-core accounts", args)?;
    let accounts = bench.block_layer.map_or(Value::Null, |accounts| accounts.to_json());
    let sum = |list: &str, what: &str| -> f64 {
        let all = accounts[list].as_array().cloned().unwrap_or_default();
        if all.is_empty() {
            return f64::NAN;
        }
        all.iter().filter_map(|one| one[what].as_f64()).sum()
    };
    let got = Reference::Model(sum("cores", "ios"));
    let completed = Runs::one(sum("dispatch", "completed"));
    let inside = Runs::one(sum("dispatch", "in_flight"));
    let says = "\"per-core reference counting for in-flight data\"";
    let exact = 1.0..=1.0;
    Ok(vec![
        Row::band(LAYER, "requests, by each core's account", "requests", got, completed, exact),
        Row::within(LAYER, "in flight, by them, in the end", "requests", says, inside, 0.0..=0.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn the_aim_is_judged_where_a_drive_without_leveling_misses_it() {
        let verdicts = |leveled, not| spread(leveled, not).map(|row| row.verdict());
        assert_eq!(verdicts(39.5, 105.0), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(verdicts(51.0, 105.0), [Verdict::Pass, Verdict::Fail]);
        assert_eq!(verdicts(105.0, 105.0), [Verdict::Fail, Verdict::Fail]);
        let [_, quick] = verdicts(20.0, 49.0);
        assert_eq!(quick, Verdict::NotGated(TOO_LITTLE.into()));
    }
}
