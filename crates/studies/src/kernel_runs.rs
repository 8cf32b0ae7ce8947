//! A live drive on the kernel's own path: what is called of it, and when that counts.
//!
//! A run makes a drive, writes all of it in its own time, and makes a block device of it.
//! It counts when no other process had a tenth of the cores. A case that fails, as one of a
//! file system that is not here, has no runs, and its figures say why: it costs nothing else
//! that was measured. Fails when somebody stops it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use load::driver::Virtual;
use load::runner::Runner;
use load::watch::Watch;
use port::Time;
use rustix::fs::OFlags;
use serde_json::json;

use super::kernel_path::{self, Device};
use super::lab::config;
use super::others::Rivals;
use super::ull::live::Stage;
use super::{Case, Lab, Runs, Turns};
use drive::error::Error;
use drive::stack;
use drive::whole::{Boxed, Drive};

/// A drive that was written, and its time.
pub fn prepared(name: &str, seed: u64) -> Result<(Boxed, Time), Error> {
    let drive = stack::build(&config(name)?, seed)?;
    let shape = drive.shape();
    let mut driver = Virtual::new(drive);
    let mut watch = Watch::quiet();
    Runner::new(&mut watch).precondition(&mut driver, &shape, seed)?;
    Ok(driver.into_drive())
}

/// What cases gave, or why they gave nothing.
pub struct Measured<T> {
    turns: Vec<Turns<T>>,
    /// Of each case.
    missing: Vec<Option<String>>,
}

impl<T> Measured<T> {
    /// Whether a case was measured.
    pub fn is_there(&self, i: usize) -> bool {
        self.missing[i].is_none()
    }

    /// A count of a case, which the machine's other work does not change, or no run with
    /// the reason.
    pub fn count(&self, i: usize, get: impl Fn(&T) -> f64) -> Runs {
        match &self.missing[i] {
            None => self.turns[i].counts(get),
            Some(why) => Runs::new(vec![]).voided(why.clone()),
        }
    }

    /// A figure of a case, or no run with the reason.
    pub fn figure(&self, i: usize, get: impl Fn(&T) -> f64) -> Runs {
        match &self.missing[i] {
            None => self.turns[i].runs(get),
            Some(why) => Runs::new(vec![]).voided(why.clone()),
        }
    }
}

/// Fails where a path cannot be in the directory that was asked for: to be called before
/// anything is measured.
pub fn check(lab: &Lab) -> Result<(), Error> {
    Stage::new(lab)?;
    kernel_path::check(&lab.options.dir())
}

/// Measures `cases` by turns, each over a path of its own to a drive: `run` does the one of
/// a number.
pub fn by_turns<T: Default>(
    lab: &mut Lab,
    drives: &[&str],
    cases: &[Case],
    run: impl Fn(usize, &Device) -> Result<T, Error>,
) -> Result<Measured<T>, Error> {
    if let Some(why) = kernel_path::missing() {
        let missing = vec![Some(format!("a path through the kernel: {why}")); cases.len()];
        return Ok(Measured { turns: Vec::new(), missing });
    }
    let (dir, seed) = (lab.options.dir(), lab.options.seed);
    each(lab, cases, |i, watch| {
        kernel_path::over(prepared(drives[i], seed)?, &dir, watch, |device| {
            let rivals = Rivals::now(&device.helpers());
            let ran = run(i, device)?;
            Ok((ran, rivals.and_then(|rivals| rivals.share_since())))
        })
    })
}

/// The same, of whatever may fail.
fn each<T: Default>(
    lab: &mut Lab,
    cases: &[Case],
    mut once: impl FnMut(usize, &mut Watch) -> Result<(T, Option<f64>), Error>,
) -> Result<Measured<T>, Error> {
    let mut watch = lab.watch.helper();
    let mut missing: Vec<Option<String>> = vec![None; cases.len()];
    let turns = lab.by_turns(cases, |i| {
        if missing[i].is_some() {
            return Ok((T::default(), None));
        }
        match once(i, &mut watch) {
            Err(e) if watch.look(0.0) => {
                missing[i] = Some(format!("a path through the kernel: {e}"));
                Ok((T::default(), None))
            }
            ran => ran,
        }
    })?;
    Ok(Measured { turns, missing })
}

/// A case of the kernel's path.
pub fn case(what: &str, drive: &str) -> Case {
    let command = format!("{what}; {drive}, served over NBD, nbdfuse, losetup --direct-io=on");
    Case { what: what.into(), command, configuration: json!({ "drive": drive, "what": what }) }
}

/// Opens a file or device for reads and writes, past the page cache or not.
pub fn open(path: &Path, direct: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    let doing = format!("open {}", path.display());
    options.open(path).map_err(|e| Error::system(&doing, &e))
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    #[test]
    fn a_case_that_fails_costs_no_other() {
        let options = Options { quick: true, ..Options::default() };
        let mut watch = Watch::quiet();
        let mut lab = Lab::new(&options, &mut watch);
        let cases = ["here", "none"].map(|what| case(what, "mem:null"));
        let mut tried = 0;
        let all = each(&mut lab, &cases, |i, _| {
            tried += i;
            if i == 1 { Err(Error::Failed("mkfs.none: no".into())) } else { Ok((3.0, Some(1.0))) }
        });
        let all = all.unwrap();
        assert_eq!((tried, all.is_there(0), all.is_there(1)), (1, true, false));
        assert_eq!(all.figure(0, |&x| x), Runs::new(vec![3.0; 3]));
        for runs in [all.figure(1, |&x: &f64| x), all.count(1, |&x| x)] {
            assert_eq!((runs.count(), runs.void().unwrap().contains("mkfs.none: no")), (0, true));
        }
    }

    /// Nothing is called missing because of it.
    #[test]
    fn one_that_is_stopped_is_told_of_as_that() {
        let options = Options::default();
        let mut watch = Watch::until(std::time::Duration::from_millis(20));
        let mut lab = Lab::new(&options, &mut watch);
        let cases = [case("stopped", "mem:null")];
        let ran = each::<f64>(&mut lab, &cases, |_, watch| {
            while watch.look(0.0) {}
            Err(Error::Failed("stopped before its end".into()))
        });
        assert!(ran.err().unwrap().to_string().contains("stopped"));
    }
}
