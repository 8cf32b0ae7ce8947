//! `ssdkit profiles`: the list, or one profile as TOML.

use std::io::Write;

use flash::Profile;
use measure::units;
use port::BLOCK_BYTES;
use serde_json::{Value, json};

use crate::cli::ProfilesArgs;
use drive::error::Error;
use drive::spec::{self, DriveSpec};

/// Prints what was asked to `out`. Fails when there is no such profile.
pub fn run(args: &ProfilesArgs, out: &mut dyn Write) -> Result<(), Error> {
    match (&args.name, args.json) {
        (None, false) => list(out)?,
        (None, true) => writeln!(out, "{:#}", Value::from_iter(builtin().map(|p| json!(p.name))))?,
        (Some(name), false) => write!(out, "{}", text(name)?)?,
        (Some(name), true) => writeln!(out, "{:#}", json!(profile(name)?.to_table()))?,
    }
    Ok(())
}

fn builtin() -> impl Iterator<Item = Profile> {
    Profile::names().filter_map(Profile::builtin)
}

/// A built-in profile with the comments of its file, which say where the
/// numbers come from; any other with all its effective values.
fn text(name: &str) -> Result<String, Error> {
    match Profile::source(name) {
        Some(source) => Ok(source.into()),
        None => Ok(profile(name)?.to_toml()),
    }
}

/// The profile of a name, a file, or a drive.
fn profile(name: &str) -> Result<Profile, Error> {
    if !name.starts_with("mem:") {
        return Ok(spec::load(name)?);
    }
    match name.parse()? {
        DriveSpec::Memory(spec) => {
            let config = spec.resolve()?;
            // The reserve changes nothing in the profile, a spare that was raised does.
            let raised = config.raised_spare().map(|_| config.spare());
            let spare = raised.filter(|&spare| spare <= 0.9).unwrap_or(config.profile.spare);
            Ok(Profile { spare, ..config.profile })
        }
        _ => Err(Error::Usage(format!("{name} has no profile"))),
    }
}

/// A line for each built-in profile.
fn list(out: &mut dyn Write) -> Result<(), Error> {
    writeln!(
        out,
        "{:<15} {:>5} {:>9} {:>10} {:>8} {:>9} {:>9}  about",
        "name", "PUs", "data", "read", "program", "erase", "lone read"
    )?;
    for p in builtin() {
        let geometry = p.check().map_err(spec::DriveError::from)?;
        let time = |ns: u64| units::time_ns(ns as f64);
        writeln!(
            out,
            "{:<15} {:>5} {:>9} {:>10} {:>8} {:>9} {:>9}  {}",
            p.name,
            geometry.total_pus(),
            units::capacity(geometry.blocks() * BLOCK_BYTES),
            time(p.timing.read[0]),
            time(p.timing.program[0]),
            time(p.timing.erase),
            time(p.lone_read()),
            p.about,
        )?;
    }
    writeln!(
        out,
        "\nread and program are those of the first page type; data is T, with the spare."
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(name: Option<&str>, json: bool) -> Result<String, Error> {
        let mut out = Vec::new();
        run(&ProfilesArgs { name: name.map(Into::into), json }, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_list_has_them_all() {
        let list = printed(None, false).unwrap();
        let json: Value = serde_json::from_str(&printed(None, true).unwrap()).unwrap();
        for (i, name) in Profile::names().enumerate() {
            assert!(list.lines().any(|l| l.starts_with(name)), "{name}");
            assert_eq!(json[i], name);
        }
        assert!(list.contains("87.3 us"));
    }

    #[test]
    fn what_is_printed_is_a_profile() {
        for name in ["znand", "mem:znand,read=4us", "mem:ref,size=8G"] {
            let back = Profile::from_toml(&printed(Some(name), false).unwrap(), "printed").unwrap();
            let mut of_drive = profile(name).unwrap();
            // What the drive's target keeps is no part of the profile.
            of_drive.timing.slc.kept = 0;
            assert_eq!(back, of_drive);
        }
        let json = printed(Some("mem:ref,size=8G"), true).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["geometry"]["chunks"], 80);
        assert!(printed(Some("mem:tlc,size=64M"), false).unwrap().contains("spare = 0.857"));
    }

    #[test]
    fn what_is_not_there_is_a_usage_error() {
        for name in ["nand", "mem:nand", "/no/such.toml"] {
            assert_eq!(printed(Some(name), false).unwrap_err().exit_code(), 2, "{name}");
        }
    }
}
