//! A live drive on the kernel's own path: what is called of it, and when that counts.
//!
//! A run makes a drive, writes all of it in its own time, and makes a block device of it.
//! It counts when no other process had a tenth of the cores. Fails as
//! [`kernel_path`] and blocking calls do.

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

/// Measures `cases` by turns, each over a path of its own to a drive: `run` does the one of
/// a number. `None` with the reason where there is no such path here.
pub fn by_turns<T>(
    lab: &mut Lab,
    drives: &[&str],
    cases: &[Case],
    run: impl Fn(usize, &Device) -> Result<T, Error>,
) -> Result<Result<Vec<Turns<T>>, String>, Error> {
    if let Some(why) = kernel_path::missing() {
        return Ok(Err(format!("a path through the kernel: {why}")));
    }
    let (dir, seed) = (lab.options.dir(), lab.options.seed);
    let turns = lab.by_turns(cases, |i| {
        kernel_path::over(prepared(drives[i], seed)?, &dir, |device| {
            let rivals = Rivals::now(&device.helpers());
            let ran = run(i, device)?;
            Ok((ran, rivals.and_then(|rivals| rivals.share_since())))
        })
    })?;
    Ok(Ok(turns))
}

/// A count of a case, which the machine's other work does not change, or no run with the
/// reason.
pub fn count<T>(of: &Result<Vec<Turns<T>>, String>, i: usize, get: impl Fn(&T) -> f64) -> Runs {
    match of {
        Ok(turns) => turns[i].counts(get),
        Err(why) => Runs::new(vec![]).voided(why.clone()),
    }
}

/// A figure of a case that was measured, or no run with the reason.
pub fn figure<T>(of: &Result<Vec<Turns<T>>, String>, i: usize, get: impl Fn(&T) -> f64) -> Runs {
    match of {
        Ok(turns) => turns[i].runs(get),
        Err(why) => Runs::new(vec![]).voided(why.clone()),
    }
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
