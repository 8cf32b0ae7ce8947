//! `null:[key=value,...]`: the bare null driver, by name.
//!
//! Keys are named as the parameters of Linux's null_blk. With a
//! `completion_nsec` above zero requests take that time, and the keys that say
//! how become possible. Parsing checks each key; ranges are checked when the
//! driver is made.

use std::fmt;

use blkmq::driver::null::NullOptions;
use blkmq::driver::timed::{ALL, Slow, TimedOptions};
use measure::units;

use super::DriveError;
use super::value::{flag, number, pairs, time_text};

const KEYS: &str = "submit_queues, poll_queues, hw_queue_depth, gb, shared_tags, completion_nsec, \
                    mbps, servers, shared_servers, slow, lost_every, gone_after";

/// The name of a null drive, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct NullSpec {
    /// All that the timed driver takes. With a `completion_nsec` of zero the
    /// drive takes no time, and only what both drivers have may be set.
    pub options: TimedOptions,
}

impl NullSpec {
    /// Reads what follows `null:`.
    pub(super) fn parse(rest: &str) -> Result<NullSpec, DriveError> {
        let mut spec = NullSpec::plain();
        let mut timed = None;
        let keys = if rest.is_empty() { Vec::new() } else { pairs(rest)? };
        for (key, value) in keys {
            if spec.set(key, value)? {
                timed.get_or_insert(key);
            }
        }
        match timed {
            Some(key) if !spec.is_timed() => Err(DriveError::NeedsTime { key: key.into() }),
            _ => Ok(spec),
        }
    }

    /// No key set.
    fn plain() -> NullSpec {
        NullSpec { options: TimedOptions { completion_nsec: 0, ..TimedOptions::default() } }
    }

    /// Whether requests take time.
    pub fn is_timed(&self) -> bool {
        self.options.completion_nsec > 0
    }

    /// What the driver without time takes.
    pub fn untimed(&self) -> NullOptions {
        let TimedOptions { submit_queues, poll_queues, hw_queue_depth, gb, shared_tags, .. } =
            self.options;
        NullOptions { submit_queues, poll_queues, hw_queue_depth, gb, shared_tags }
    }

    /// Sets a key. True when it is one that needs `completion_nsec`.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, DriveError> {
        let o = &mut self.options;
        match key {
            "submit_queues" => o.submit_queues = number("submit_queues", value)?,
            "poll_queues" => o.poll_queues = number("poll_queues", value)?,
            "hw_queue_depth" => o.hw_queue_depth = number("hw_queue_depth", value)?,
            "gb" => o.gb = number("gb", value)?,
            "shared_tags" => o.shared_tags = flag("shared_tags", value)?,
            "completion_nsec" => o.completion_nsec = nsec("completion_nsec", value)?,
            "mbps" => o.mbps = number("mbps", value)?,
            "servers" => o.servers = Some(number("servers", value)?),
            "shared_servers" => o.shared_servers = flag("shared_servers", value)?,
            "slow" => o.slow = Some(slow(value)?),
            "lost_every" => o.lost_every = Some(number("lost_every", value)?),
            "gone_after" => o.gone_after = Some(number("gone_after", value)?),
            _ => return Err(DriveError::unknown_key(key, KEYS.into())),
        }
        let always = [
            "submit_queues",
            "poll_queues",
            "hw_queue_depth",
            "gb",
            "shared_tags",
            "completion_nsec",
        ];
        Ok(!always.contains(&key))
    }
}

/// A time, or nanoseconds without a unit as null_blk has it.
fn nsec(key: &'static str, value: &str) -> Result<u64, DriveError> {
    let wrong =
        || DriveError::Value { key, value: value.into(), takes: "a time, for example 10us" };
    value.parse().ok().or_else(|| units::duration_ns(value).ok()).ok_or_else(wrong)
}

/// `TIME:PERCENT`: so many of the requests take another time.
fn slow(value: &str) -> Result<Slow, DriveError> {
    let takes = "TIME:PERCENT with a percentage from 0 to 100, for example 1ms:0.5";
    let wrong = || DriveError::Value { key: "slow", value: value.into(), takes };
    let (time, percent) = value.split_once(':').ok_or_else(wrong)?;
    let percent: f64 = percent.parse().map_err(|_| wrong())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(wrong());
    }
    Ok(Slow { completion_nsec: nsec("slow", time)?, in_65536: part(percent) })
}

/// So many percent as parts of [`ALL`].
fn part(percent: f64) -> u32 {
    (percent / 100.0 * f64::from(ALL)).round() as u32
}

/// The shortest percentage that is this part.
fn percent(in_65536: u32) -> String {
    let exact = f64::from(in_65536) * 100.0 / f64::from(ALL);
    let texts = (0..4).map(|digits| format!("{exact:.digits$}"));
    let mut short = texts.filter(|text| text.parse().map(part) == Ok(in_65536));
    short.next().unwrap_or_else(|| exact.to_string())
}

impl fmt::Display for NullSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (o, plain) = (&self.options, NullSpec::plain().options);
        let mut keys = Vec::new();
        let mut key = |name: &str, value: String, set: bool| {
            if set {
                keys.push(format!("{name}={value}"));
            }
        };
        let yes = || "yes".to_string();
        key("submit_queues", o.submit_queues.to_string(), o.submit_queues != plain.submit_queues);
        key("poll_queues", o.poll_queues.to_string(), o.poll_queues != plain.poll_queues);
        let depth = o.hw_queue_depth;
        key("hw_queue_depth", depth.to_string(), depth != plain.hw_queue_depth);
        key("gb", o.gb.to_string(), o.gb != plain.gb);
        key("shared_tags", yes(), o.shared_tags);
        key("completion_nsec", time_text(o.completion_nsec), self.is_timed());
        key("mbps", o.mbps.to_string(), o.mbps > 0);
        key("servers", o.servers.unwrap_or(0).to_string(), o.servers.is_some());
        key("shared_servers", yes(), o.shared_servers);
        let slow = o.slow.unwrap_or(Slow { completion_nsec: 0, in_65536: 0 });
        let text = format!("{}:{}", time_text(slow.completion_nsec), percent(slow.in_65536));
        key("slow", text, o.slow.is_some());
        key("lost_every", o.lost_every.unwrap_or(0).to_string(), o.lost_every.is_some());
        key("gone_after", o.gone_after.unwrap_or(0).to_string(), o.gone_after.is_some());
        write!(f, "null:{}", keys.join(","))
    }
}
