//! What might be tried where a part took most of the time.
//!
//! Guarantees: what is advised is another drive than the one that was run. Whether such
//! a drive can be is for others to see.

use measure::units;
use serde_json::Value;

use crate::Outcome;

/// A key of the drive's name, and what to set it to, that may help where that took most
/// of the time; none where nothing may.
pub(super) fn to_try(outcome: &Outcome, part: &str, behind: Option<&str>) -> Option<String> {
    let profile = &outcome.drive["profile"];
    let set = any(outcome, profile, part, behind.unwrap_or_default())?;
    (!is_so(profile, &set)).then_some(set)
}

fn any(outcome: &Outcome, profile: &Value, part: &str, behind: &str) -> Option<String> {
    let timing = &profile["timing"];
    let is_work = |work: &str| part == "die" && behind.starts_with(work);
    let is_of = |whose: &str| part == "die" && behind.ends_with(whose);
    Some(match part {
        "room" if behind == "folds" => "slc_cache=none".into(),
        "die" if is_of("of folds") => "slc_cache=none".into(),
        "die" if behind == "read of metadata" => "map_cache=none".into(),
        "die" if is_of("of refresh") => "errors=false".into(),
        "die" if (is_work("program") || is_work("erase")) && timing["suspend"] == false => {
            "suspend=true".into()
        }
        "die" if (is_work("program") || is_work("erase")) && timing["suspend_limit"] != "none" => {
            "suspend_limit=none".into()
        }
        _ if behind.ends_with("collection") => {
            let spare = outcome.report.drive["spare"].as_f64().unwrap_or(0.2);
            let more = (spare * 1.5).max(spare + 0.01).min(0.9);
            return (more > spare).then(|| format!("spare={more:.2}"));
        }
        "room" if profile["cache"]["write_buffer"] != "auto" => {
            let bytes = units::size(profile["cache"]["write_buffer"].as_str()?).ok()?;
            format!("write_buffer={}k", bytes.saturating_mul(2) / 1024)
        }
        "die" | "room" => format!("pus={}", 2 * profile["geometry"]["pus"].as_u64().unwrap_or(4)),
        "channel" | "transfer" => twice("channel_rate", timing)?,
        "link" => twice("link_rate", &profile["link"])?,
        "core" => "cores=none".into(),
        "buffer" => twice("buffer_rate", &profile["controller"])?,
        "map" => "map_cache=none".into(),
        "flush" => "cache=protected".into(),
        "retries" => "errors=false".into(),
        "waking" => "sleep_after=none".into(),
        "throttled" => "throttle_rate=none".into(),
        _ => return None,
    })
}

/// Twice a rate, if there is one.
fn twice(key: &str, section: &Value) -> Option<String> {
    let rate = units::size(section[key].as_str()?.strip_suffix("/s")?).ok()?;
    Some(format!("{key}={}MB/s", rate as f64 * 2.0 / 1e6))
}

/// Whether the drive has that already, as its profile says.
fn is_so(profile: &Value, set: &str) -> bool {
    let Some((key, value)) = set.split_once('=') else { return false };
    let sections = profile.as_object().into_iter().flat_map(|sections| sections.values());
    let mut own = sections.filter_map(|section| section.get(key));
    own.any(|own| own.as_str().map_or_else(|| own.to_string(), str::to_string) == value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{bench, run};

    #[test]
    fn each_cause_has_what_may_help_and_nothing_is_advised_that_is_so() {
        let advised = |keys: &str, part: &str, behind: Option<&str>| {
            let line = format!(
                "mem:tlc,size=64M,store=none{keys} --rw randread --ios 1k --precondition seq"
            );
            to_try(&run(&bench(&line)), part, behind).unwrap_or_default()
        };
        for (keys, part, behind, says) in [
            ("", "die", Some("program of user"), "suspend=true"),
            (",suspend=true", "die", Some("program of user"), "pus=8"),
            (",suspend=true,suspend_limit=3", "die", Some("erase of user"), "suspend_limit=none"),
            ("", "die", Some("read of user"), "pus=8"),
            (",slc_cache=4M", "die", Some("program of folds"), "slc_cache=none"),
            (",slc_cache=4M", "room", Some("folds"), "slc_cache=none"),
            ("", "room", Some("rows on their way"), "pus=8"),
            (",write_buffer=1m", "room", Some("rows on their way"), "write_buffer=2048k"),
            (",errors=true", "die", Some("program of refresh"), "errors=false"),
            (",errors=true", "retries", None, "errors=false"),
            ("", "retries", None, ""),
            (",map_cache=16k", "map", None, "map_cache=none"),
            ("", "map", None, ""),
            ("", "channel", None, "channel_rate=1600MB/s"),
            (",channel_rate=none", "channel", None, ""),
            ("", "link", None, "link_rate=6400MB/s"),
            (",cores=1,core_read=5us", "core", None, "cores=none"),
            (",buffer_rate=1GB/s", "buffer", None, "buffer_rate=2000MB/s"),
            ("", "buffer", None, ""),
            (",sleep_after=1ms,wake_time=1ms", "waking", None, "sleep_after=none"),
            ("", "flush", None, "cache=protected"),
            ("", "controller", None, ""),
            ("", "array", None, ""),
        ] {
            assert_eq!(advised(keys, part, behind), says, "{keys} {part} {behind:?}");
        }
        assert!(advised("", "room", Some("collection")).starts_with("spare=0."));
    }
}
