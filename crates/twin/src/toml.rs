//! The fitted profile as a file: the family's keys, each fitted one marked, and in
//! its head where it comes from and how far it is off. It reads back as a profile.

use std::fmt::Write;

use flash::Profile;

use crate::report::Report;

/// The file. `profile` is the fitted one.
pub fn profile_text(profile: &Profile, report: &Report) -> String {
    let mut profile = profile.clone();
    profile.name.clone_from(&report.drive);
    profile.about = format!("Fitted to measurements of {}", report.drive);
    let mut out = String::new();
    for line in report.head() {
        let _ = writeln!(out, "# {line}");
    }
    out.push('\n');
    for line in profile.to_toml().lines() {
        let key = line.split(" = ").next().unwrap_or_default();
        let fitted = report.parameters.iter().find(|one| one.name == key && one.path.is_none());
        match (fitted, line.split_once(" # ")) {
            (Some(one), Some((value, about))) => {
                let _ = writeln!(out, "{value} # fitted in {}{}; {about}", one.asked, one.remark());
            }
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}
