//! The kinds of values that keys of a profile have: what each takes, how it is read from
//! a file or a drive's name, and how it is printed.
//!
//! Guarantees: what is printed is read as the same value. A text that is no such value is
//! none; nothing else fails.

use super::quantity;
use crate::SlcSize;
use crate::link::MAX_CORES;
use crate::power::MAX_SLEEP_STATES;
use crate::queues::{Arbitration, Class, MAX_QUEUES, MAX_WEIGHT, MOST_QUEUED};
use crate::slc::WHOLE;
use crate::timing::MultiPlane;

/// A kind of value: what it takes, how it is read and how it is printed, as a TOML
/// literal.
pub(super) struct Form<T> {
    pub takes: &'static str,
    pub read: fn(&str) -> Option<T>,
    pub show: fn(&T) -> String,
}

pub(super) const COUNT: Form<u32> = Form {
    takes: "a whole number, for example 8",
    read: |text| text.parse().ok(),
    show: u32::to_string,
};
/// At most as many as the largest codeword has bits.
pub(super) const BITS: Form<u32> = Form { read: |text| up_to(text, 4096 * 8), ..COUNT };
pub(super) const RETRIES: Form<u32> =
    Form { takes: "0 to 100", read: |text| up_to(text, 100), ..COUNT };
pub(super) const NOTICE: Form<u32> =
    Form { takes: "0 to 255", read: |text| up_to(text, 255), ..COUNT };
/// All ones stands for no limit.
pub(super) const LIMIT: Form<u32> = Form {
    takes: "a whole number, for example 3000, or none for no limit",
    read: |text| if text == "none" { Some(u32::MAX) } else { up_to(text, u32::MAX - 1) },
    show: |n| if *n == u32::MAX { quoted("none") } else { n.to_string() },
};
pub(super) const CELL: Form<u32> = Form {
    takes: "1 to 5, or auto for as many as there are page types",
    read: |text| match text {
        "auto" => Some(0),
        text => up_to(text, 5).filter(|&bits| bits > 0),
    },
    show: |n| if *n == 0 { quoted("auto") } else { n.to_string() },
};
pub(super) const PLANES: Form<MultiPlane> = Form {
    takes: "none, page (of the same number in their blocks) or type (of the same type)",
    read: |text| MultiPlane::NAMES.iter().find(|(_, name)| *name == text).map(|(rule, _)| *rule),
    show: |rule| {
        let name = MultiPlane::NAMES.iter().find(|(any, _)| any == rule);
        quoted(name.map_or("none", |(_, name)| name))
    },
};
pub(super) const CORES: Form<u32> = Form {
    takes: "1 to 64, or none for one a command",
    read: |text| match text {
        "none" => Some(0),
        text => up_to(text, MAX_CORES).filter(|&cores| cores > 0),
    },
    show: |n| if *n == 0 { quoted("none") } else { n.to_string() },
};
pub(super) const QUEUES: Form<u32> = Form {
    takes: "1 to 64",
    read: |text| up_to(text, MAX_QUEUES).filter(|&queues| queues > 0),
    ..COUNT
};
pub(super) const QUEUED: Form<u32> = Form {
    takes: "1 to 1024, or auto for an equal part of 1024",
    read: |text| match text {
        "auto" => Some(0),
        text => up_to(text, MOST_QUEUED).filter(|&depth| depth > 0),
    },
    show: CELL.show,
};
pub(super) const ARBITRATION: Form<Arbitration> = Form {
    takes: "rr for round robin, or wrr for a weighted one",
    read: |text| match text {
        "rr" => Some(Arbitration::RoundRobin),
        "wrr" => Some(Arbitration::Weighted),
        _ => None,
    },
    show: |rule| quoted(if *rule == Arbitration::Weighted { "wrr" } else { "rr" }),
};
pub(super) const BURST: Form<u32> = Form {
    takes: "1, 2, 4, 8, 16, 32 or 64, or none for no limit",
    read: |text| match text {
        "none" => Some(0),
        text => up_to(text, 64).filter(|burst| burst.is_power_of_two()),
    },
    show: CORES.show,
};
pub(super) const CLASSES: Form<Vec<Class>> = Form {
    takes: "urgent, high, medium or low for each queue, for example urgent/low, or none",
    read: |text| {
        if text == "none" {
            return Some(Vec::new());
        }
        let all: Option<Vec<Class>> = text.split('/').map(Class::from_name).collect();
        all.filter(|all| all.len() <= MAX_QUEUES as usize)
    },
    show: |all| match &all[..] {
        [] => quoted("none"),
        [one] => quoted(one.name()),
        all => listed(all.iter().map(|class| quoted(class.name()))),
    },
};
pub(super) const WEIGHTS: Form<[u32; 3]> = Form {
    takes: "three numbers from 1 to 256, of classes high, medium and low, for example 8/4/1",
    read: |text| {
        let weight = |text| up_to(text, MAX_WEIGHT).filter(|&weight| weight > 0);
        let all: Option<Vec<u32>> = text.split('/').map(weight).collect();
        all?.try_into().ok()
    },
    show: |all| listed(all.iter().map(u32::to_string)),
};
pub(super) const CODEWORD: Form<u32> = Form {
    takes: "512, 1k, 2k or 4k",
    read: |text| match quantity::size(text)? {
        bytes @ (512 | 1024 | 2048 | 4096) => Some(bytes as u32),
        _ => None,
    },
    show: |bytes| quoted(&quantity::show_size((*bytes).into())),
};
pub(super) const FLAG: Form<bool> =
    Form { takes: "true or false", read: |text| text.parse().ok(), show: bool::to_string };
pub(super) const TIME: Form<u64> = Form {
    takes: "a time of at most 1000s with its unit, for example 75us (ns, us, ms, s)",
    read: quantity::time,
    show: |ns| quoted(&quantity::show_time(*ns)),
};
/// Of a core: a queue of the longest commands still ends in the time that there is.
pub(super) const WORK: Form<u64> = Form {
    takes: "a time of at most 1s with its unit, for example 2.3us (ns, us, ms, s)",
    read: |text| quantity::time(text).filter(|&ns| ns <= 1_000_000_000),
    ..TIME
};
/// At most 64 page types, one of them at least.
pub(super) const TIMES: Form<Vec<u64>> = Form {
    takes: "a time of at most 1000s for each page type, for example 75us or 60us/75us/110us",
    read: |text| {
        let all: Option<Vec<u64>> = text.split('/').map(quantity::time).collect();
        all.filter(|all| all.len() <= 64)
    },
    show: |times| match &times[..] {
        [one] => (TIME.show)(one),
        all => listed(all.iter().map(TIME.show)),
    },
};
/// The same, or none.
pub(super) const PARTIAL: Form<Vec<u64>> = Form {
    takes: "a time of at most 1000s for each page type, for example 30us or 30us/40us/50us, or none",
    read: |text| if text == "none" { Some(Vec::new()) } else { (TIMES.read)(text) },
    show: |times| if times.is_empty() { quoted("none") } else { (TIMES.show)(times) },
};
pub(super) const RATE: Form<u64> = Form {
    takes: "a decimal rate from 1kB/s, for example 333MB/s, or none for no transfer time",
    read: quantity::rate,
    show: |rate| quoted(&quantity::show_rate(*rate)),
};
pub(super) const AGE: Form<u64> = Form {
    takes: "a time in s, min, h or d, for example 30d, or none for never",
    read: quantity::age,
    show: |ns| quoted(&quantity::show_age(*ns)),
};
pub(super) const SHARE: Form<f64> = Form {
    takes: "a number from 0 to 0.5, for example 1e-4",
    read: |text| within(text, 0.0, 0.5),
    show: |number| format!("{number:?}"),
};
pub(super) const CHANCE: Form<f64> = Form {
    takes: "a number from 0 to 1, for example 1e-5",
    read: |text| within(text, 0.0, 1.0),
    ..SHARE
};
/// At most 64 page types, one of them at least.
pub(super) const FACTORS: Form<Vec<f64>> = Form {
    takes: "a number from 0 to 100 for each page type, for example 1 or 0.7/1/1.4",
    read: |text| {
        let all: Option<Vec<f64>> = text.split('/').map(|text| within(text, 0.0, 100.0)).collect();
        all.filter(|all| all.len() <= 64)
    },
    show: |all| match &all[..] {
        [one] => format!("{one:?}"),
        all => format!("{all:?}"),
    },
};
pub(super) const POWER: Form<f64> = Form {
    takes: "a number from 0.1 to 10, for example 1.5",
    read: |text| within(text, 0.1, 10.0),
    ..SHARE
};
/// A share of at most all, in parts of [`WHOLE`].
pub(super) const PERCENT: Form<u32> = Form {
    takes: "a share from 0% to 100%, for example 90%",
    read: |text| {
        quantity::percent(text).filter(|&share| share <= u64::from(WHOLE)).map(|share| share as u32)
    },
    show: |share| quoted(&quantity::show_percent((*share).into())),
};
pub(super) const EXTENT: Form<SlcSize> = Form {
    takes: "a share of the flash or a size, for example 4% or 512m, or none for no cache",
    read: |text| match text {
        "none" => Some(SlcSize::Bytes(0)),
        text if text.ends_with('%') => {
            (PERCENT.read)(text).filter(|&share| share > 0).map(SlcSize::Share)
        }
        text => quantity::size(text).filter(|&bytes| bytes > 0).map(SlcSize::Bytes),
    },
    show: |size| match size {
        SlcSize::Bytes(0) => quoted("none"),
        SlcSize::Bytes(bytes) => quoted(&quantity::show_size(*bytes)),
        SlcSize::Share(share) => (PERCENT.show)(share),
    },
};
pub(super) const CACHE: Form<u64> = Form {
    takes: "a size, for example 64m, or none",
    read: |text| match text {
        "none" => Some(0),
        text => quantity::size(text).filter(|&bytes| bytes > 0),
    },
    show: |bytes| match bytes {
        0 => quoted("none"),
        bytes => quoted(&quantity::show_size(*bytes)),
    },
};
pub(super) const LINE: Form<u32> = Form {
    takes: "4k, 8k, 16k, 32k, 64k, 128k or 256k",
    read: |text| match quantity::size(text)? {
        bytes if bytes.is_power_of_two() && (4096..=262_144).contains(&bytes) => Some(bytes as u32),
        _ => None,
    },
    show: |bytes| quoted(&quantity::show_size((*bytes).into())),
};
pub(super) const ENERGY: Form<u64> = Form {
    takes: "an energy with its unit, for example 12.5uJ (pJ, nJ, uJ, mJ)",
    read: quantity::small_energy,
    show: |pj| quoted(&quantity::show_small_energy(*pj)),
};
pub(super) const NANO: Form<u64> = Form {
    takes: "an energy of whole nJ, for example 12.5uJ (nJ, uJ, mJ)",
    read: quantity::energy,
    show: |nj| quoted(&quantity::show_energy(*nj)),
};
pub(super) const WATTS: Form<u64> = Form {
    takes: "a power of whole mW, for example 0.5W (mW, W)",
    read: quantity::power,
    show: |mw| quoted(&quantity::show_power(*mw)),
};

pub(super) const PAUSE: Form<u64> = Form {
    takes: "a time of at most 1000s with its unit, for example 50ms (ns, us, ms, s), or none for never",
    read: |text| match text {
        "none" => Some(0),
        text => quantity::time(text).filter(|&ns| ns > 0),
    },
    show: |ns| if *ns == 0 { quoted("none") } else { (TIME.show)(ns) },
};
/// Of one sleep state or several, and so the two that follow.
pub(super) const PAUSES: Form<Vec<u64>> = Form {
    takes: "1 to 4 rising times of at most 1000s, for example 50ms or 50ms/1s, or none for never",
    read: |text| if text == "none" { Some(Vec::new()) } else { of_states(text, after) },
    show: |all| if all.is_empty() { quoted("none") } else { (TIMES.show)(all) },
};
pub(super) const WORKS: Form<Vec<u64>> = Form {
    takes: "1 to 4 times of at most 1s, for example 2.5ms or 1.2ms/8ms (ns, us, ms, s)",
    read: |text| of_states(text, WORK.read),
    ..TIMES
};
pub(super) const FEW_WATTS: Form<Vec<u64>> = Form {
    takes: "1 to 4 falling powers of whole mW, for example 5mW or 70mW/5mW (mW, W)",
    read: |text| of_states(text, WATTS.read),
    show: |all| match &all[..] {
        [one] => (WATTS.show)(one),
        all => listed(all.iter().map(WATTS.show)),
    },
};
pub(super) const CELSIUS: Form<u64> = Form {
    takes: "a temperature from 0C to 1000C, for example 70C",
    read: quantity::temperature,
    show: |mc| quoted(&quantity::show_temperature(*mc)),
};
pub(super) const KELVINS: Form<u64> = Form {
    takes: "a thermal resistance of at most 1000K/W, for example 12.5K/W, or none",
    read: |text| match text {
        "none" => Some(0),
        text => quantity::resistance(text).filter(|&mk| mk > 0),
    },
    show: |mk| match mk {
        0 => quoted("none"),
        mk => quoted(&quantity::show_resistance(*mk)),
    },
};

/// A whole number up to a most.
fn up_to(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|&n| n <= most)
}

/// A number in a range; what is no number is in none.
fn within(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

/// How long before a sleep state: some time.
fn after(text: &str) -> Option<u64> {
    quantity::time(text).filter(|&ns| ns > 0)
}

/// A value for each sleep state.
fn of_states(text: &str, read: fn(&str) -> Option<u64>) -> Option<Vec<u64>> {
    let all: Option<Vec<u64>> = text.split('/').map(read).collect();
    all.filter(|all| all.len() <= MAX_SLEEP_STATES)
}

/// A list, as a file has it.
fn listed(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

pub(super) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
