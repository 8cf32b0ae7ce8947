//! The keys of a profile: one table for reading, printing and overriding.
//!
//! A key has the same name and takes the same text in a TOML file and in a
//! drive's name, and no two sections share a name. Where a file takes a list,
//! a drive's name takes the items with `/` between them.

use super::{Profile, Side, quantity};
use crate::SlcSize;
use crate::slc::WHOLE;

/// One key of a profile.
pub struct Key {
    /// Its section in the file.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it means, in a line.
    pub about: &'static str,
    /// What it takes, with an example.
    pub takes: &'static str,
    /// Whether a file must have it.
    pub needed: bool,
    /// Sets it; `None` for a text that is no such value.
    pub(super) set: fn(&mut Profile, &str) -> Option<()>,
    /// Its value as a TOML literal.
    pub(super) get: fn(&Profile) -> String,
}

/// The sections, in the order in which they are printed.
pub const SECTIONS: [&str; 7] =
    ["geometry", "timing", "slc", "link", "ftl", "reliability", "energy"];

const COUNT: &str = "a whole number, for example 8";
const TIME: &str = "a time with its unit, for example 75us (ns, us, ms, s)";
const TIMES: &str = "a time for each page type, for example 75us or 60us/75us/110us";
const RATE: &str = "a decimal rate, for example 333MB/s, or none for no transfer time";
const FLAG: &str = "true or false";
const SPLIT: &str = "1, 2, 4 or 8";
const LIMIT: &str = "a whole number, for example 3000, or none for no limit";
const SHARE: &str = "a number from 0 to 0.5, for example 1e-4";
const CHANCE: &str = "a number from 0 to 1, for example 1e-5";
const EXTENT: &str = "a share of the flash or a size, for example 4% or 512m, or none for no cache";
const PERCENT: &str = "a share from 0% to 100%, for example 90%";
const POWER: &str = "a number from 0.1 to 10, for example 1.5";
const AGE: &str = "a time in s, min, h or d, for example 30d, or none for never";
const ENERGY: &str = "an energy with its unit, for example 12.5uJ (pJ, nJ, uJ, mJ)";
const NANO: &str = "an energy of whole nJ, for example 12.5uJ (nJ, uJ, mJ)";
const WATTS: &str = "a power of whole mW, for example 0.5W (mW, W)";

/// A key that is one field: section, name, whether a file must have it, what
/// it takes, where it is, how it is read and printed, and what it means.
macro_rules! key {
    ($section:literal, $name:literal, $needed:literal, $takes:expr,
     $place:ident.$($field:ident).+, $read:expr, $show:expr, $about:literal) => {
        Key {
            section: $section,
            name: $name,
            about: $about,
            takes: $takes,
            needed: $needed,
            set: |p, text| {
                p.$place.$($field).+ = $read(text)?;
                Some(())
            },
            get: |p| $show(&p.$place.$($field).+),
        }
    };
}

/// All keys, in the order in which they are printed.
#[rustfmt::skip]
pub static KEYS: [Key; 57] = [
    key!("geometry", "groups", true, COUNT, dimensions.groups, count, show_count,
        "channels; a super-channel counts once"),
    key!("geometry", "pus", true, COUNT, dimensions.pus, count, show_count,
        "parallel units (dies) a channel"),
    key!("geometry", "planes", true, COUNT, dimensions.planes, count, show_count,
        "planes a parallel unit: 1, 2, 4 or 8"),
    key!("geometry", "chunks", true, COUNT, dimensions.chunks, count, show_count,
        "chunks a parallel unit that hold data"),
    key!("geometry", "pages", true, COUNT, dimensions.pages, count, show_count,
        "pages a block"),
    Key {
        section: "geometry",
        name: "page",
        about: "bytes a page on one channel",
        takes: "a size, for example 16k",
        needed: true,
        set: set_page,
        get: |p| quoted(&quantity::show_size(page(p).into())),
    },
    key!("timing", "read", true, TIMES, timing.read, times, show_times,
        "tR, for each page type"),
    key!("timing", "program", true, TIMES, timing.program, times, show_times,
        "tPROG, for each page type"),
    key!("timing", "erase", true, TIME, timing.erase, quantity::time, show_time,
        "tBERS"),
    key!("timing", "command", false, TIME, timing.command, quantity::time, show_time,
        "command cycles before each operation"),
    key!("timing", "channel_rate", false, RATE, timing.channel_rate, quantity::rate, show_rate,
        "bytes a second on one channel"),
    Key {
        section: "timing",
        name: "channel_split",
        about: "channels that share one transfer: 2 for a super-channel",
        takes: SPLIT,
        needed: false,
        set: set_split,
        get: |p| p.timing.channel_split.to_string(),
    },
    key!("timing", "tags_on_channel", false, FLAG, timing.tags_on_channel, flag, show_flag,
        "out-of-band bytes take channel time"),
    key!("timing", "reads_first", false, FLAG, timing.reads_first, flag, show_flag,
        "reads go before programs and erases that wait"),
    key!("timing", "read_burst", false, LIMIT, timing.read_burst, limit, show_limit,
        "reads that go before one that waits"),
    key!("timing", "suspend", false, FLAG, timing.suspend, flag, show_flag,
        "a read interrupts a program or an erase"),
    key!("timing", "suspend_time", false, TIME, timing.suspend_time, quantity::time, show_time,
        "from the suspend command until the array is free"),
    key!("timing", "resume_time", false, TIME, timing.resume_time, quantity::time, show_time,
        "from the resume command until it goes on"),
    key!("timing", "suspend_limit", false, LIMIT, timing.suspend_limit, limit, show_limit,
        "suspensions of one operation"),
    key!("timing", "suspend_transfer", false, FLAG, timing.suspend_transfer, flag, show_flag,
        "a read's transfer interrupts a write's"),
    key!("timing", "unreadable", false, COUNT, timing.unreadable, count, show_count,
        "last blocks of an open chunk that cannot be read yet"),
    key!("timing", "endurance", false, LIMIT, timing.endurance, limit, show_limit,
        "erases that a chunk stands"),
    key!("slc", "slc_cache", false, EXTENT, timing.slc.size, extent, show_extent,
        "flash with one bit a cell, for what is written first"),
    key!("slc", "slc_read", false, TIME, timing.slc.read, quantity::time, show_time,
        "tR of a page in it"),
    key!("slc", "slc_program", false, TIME, timing.slc.program, quantity::time, show_time,
        "tPROG of a page in it"),
    key!("slc", "slc_idle", false, TIME, timing.slc.idle, quantity::time, show_time,
        "how long a die has nothing to do before it folds"),
    key!("slc", "slc_mark", false, PERCENT, timing.slc.mark, percent, show_percent,
        "how full it is when a die folds without that wait"),
    key!("link", "controller", false, TIME, link.controller, quantity::time, show_time,
        "controller time, once a command"),
    key!("link", "link_latency", false, TIME, link.latency, quantity::time, show_time,
        "latency, once each way"),
    key!("link", "link_rate", false, RATE, link.rate, quantity::rate, show_rate,
        "bytes a second, each way"),
    Key {
        section: "ftl",
        name: "side",
        about: "where translation runs: device (below the link) or host (above it)",
        takes: "host or device",
        needed: false,
        set: |p, text| {
            p.side = Side::from_name(text)?;
            Some(())
        },
        get: |p| quoted(p.side.name()),
    },
    Key {
        section: "ftl",
        name: "spare",
        about: "(T - U) / T: the share of the data pages that is not sold",
        takes: "a number from 0.01 to 0.9, for example 0.2",
        needed: false,
        set: |p, text| {
            p.spare = text.parse().ok().filter(|s| (0.01..=0.9).contains(s))?;
            Some(())
        },
        get: |p| format!("{:?}", p.spare),
    },
    key!("reliability", "errors", false, FLAG, reliability.errors, flag, show_flag,
        "whether the rest of this section is modelled"),
    key!("reliability", "rber_base", false, SHARE, reliability.rber_base, share, show_number,
        "raw bit error rate of new flash"),
    key!("reliability", "rber_wear", false, SHARE, reliability.rber_wear, share, show_number,
        "what wear adds to it at the endurance"),
    key!("reliability", "wear_power", false, POWER, reliability.wear_power, power, show_number,
        "the power of the wear with which that grows"),
    key!("reliability", "retention_time", false, AGE, reliability.retention_time, quantity::age,
        show_age, "age at which new data's rate has doubled"),
    key!("reliability", "retention_power", false, POWER, reliability.retention_power, power,
        show_number, "the power of the age with which that grows"),
    key!("reliability", "read_disturb", false, SHARE, reliability.read_disturb, share, show_number,
        "what a read adds to its chunk's rate at the endurance"),
    key!("reliability", "codeword", false, "512, 1k, 2k or 4k", reliability.codeword, codeword,
        show_codeword, "bytes that are corrected together"),
    key!("reliability", "correctable", false, COUNT, reliability.correctable, correctable,
        show_count, "bits that are corrected in a codeword"),
    key!("reliability", "read_retries", false, "0 to 100", reliability.read_retries, retries,
        show_count, "most repetitions of an array read"),
    key!("reliability", "retry_gain", false, CHANCE, reliability.retry_gain, chance, show_number,
        "what each repetition leaves of the rate"),
    key!("reliability", "program_failure", false, CHANCE, reliability.program_failure, chance,
        show_number, "probability that a program fails at the endurance"),
    key!("reliability", "erase_failure", false, CHANCE, reliability.erase_failure, chance,
        show_number, "probability that an erase fails at the endurance"),
    key!("reliability", "failure_power", false, POWER, reliability.failure_power, power,
        show_number, "the power of the wear with which both grow"),
    key!("reliability", "factory_bad", false, SHARE, reliability.factory_bad, share, show_number,
        "share of the chunks that are bad from the factory"),
    key!("reliability", "endurance_cliff", false, FLAG, reliability.endurance_cliff, flag,
        show_flag, "whether every chunk ends at the endurance"),
    key!("reliability", "wear_notice", false, "0 to 255", reliability.wear_notice, wear_notice,
        show_count, "wear index above the mean that is told; 0 never"),
    key!("energy", "energy", false, FLAG, energy.counted, flag, show_flag,
        "whether energy is counted"),
    key!("energy", "read_energy", false, NANO, energy.read, quantity::energy, show_energy,
        "array read of a page of one plane"),
    key!("energy", "program_energy", false, NANO, energy.program, quantity::energy, show_energy,
        "array program of a page of one plane"),
    key!("energy", "erase_energy", false, NANO, energy.erase, quantity::energy, show_energy,
        "erase of a block of one plane"),
    key!("energy", "slc_read_energy", false, NANO, energy.slc_read, quantity::energy, show_energy,
        "array read of a page of one plane in the SLC cache"),
    key!("energy", "slc_program_energy", false, NANO, energy.slc_program, quantity::energy,
        show_energy, "array program of a page of one plane in the SLC cache"),
    key!("energy", "byte_energy", false, ENERGY, energy.byte, quantity::small_energy,
        show_small_energy, "a byte on a channel"),
    key!("energy", "idle_power", false, WATTS, energy.idle, quantity::power, show_power,
        "what the drive takes at all times"),
];

/// The key of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Bytes a page on one channel. The parallel unit programs this much on each
/// of the channels that share its transfers.
fn page(p: &Profile) -> u32 {
    p.dimensions.page_bytes / p.timing.channel_split.max(1)
}

fn set_page(p: &mut Profile, text: &str) -> Option<()> {
    let bytes = u32::try_from(quantity::size(text)?).ok()?;
    p.dimensions.page_bytes = bytes.checked_mul(p.timing.channel_split)?;
    Some(())
}

/// Keeps the page, so that the order of the keys does not matter.
fn set_split(p: &mut Profile, text: &str) -> Option<()> {
    let split = count(text).filter(|n| matches!(n, 1 | 2 | 4 | 8))?;
    p.dimensions.page_bytes = page(p).checked_mul(split)?;
    p.timing.channel_split = split;
    Some(())
}

fn count(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// All ones stands for no limit.
fn limit(text: &str) -> Option<u32> {
    if text == "none" { Some(u32::MAX) } else { count(text).filter(|&n| n < u32::MAX) }
}

fn flag(text: &str) -> Option<bool> {
    text.parse().ok()
}

/// A share of at most all, in parts of [`WHOLE`].
fn percent(text: &str) -> Option<u32> {
    quantity::percent(text).filter(|&share| share <= u64::from(WHOLE)).map(|share| share as u32)
}

fn extent(text: &str) -> Option<SlcSize> {
    match text {
        "none" => Some(SlcSize::Bytes(0)),
        text if text.ends_with('%') => percent(text).filter(|&share| share > 0).map(SlcSize::Share),
        text => quantity::size(text).filter(|&bytes| bytes > 0).map(SlcSize::Bytes),
    }
}

/// At most 64 page types, one of them at least.
fn times(text: &str) -> Option<Vec<u64>> {
    let all: Option<Vec<u64>> = text.split('/').map(quantity::time).collect();
    all.filter(|all| all.len() <= 64)
}

/// A number in a range; what is no number is in none.
fn within(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

fn share(text: &str) -> Option<f64> {
    within(text, 0.0, 0.5)
}

fn chance(text: &str) -> Option<f64> {
    within(text, 0.0, 1.0)
}

fn power(text: &str) -> Option<f64> {
    within(text, 0.1, 10.0)
}

fn codeword(text: &str) -> Option<u32> {
    let bytes = quantity::size(text)?;
    matches!(bytes, 512 | 1024 | 2048 | 4096).then_some(bytes as u32)
}

/// At most as many as the largest codeword has bits.
fn correctable(text: &str) -> Option<u32> {
    count(text).filter(|&bits| bits <= 4096 * 8)
}

fn retries(text: &str) -> Option<u32> {
    count(text).filter(|&most| most <= 100)
}

fn wear_notice(text: &str) -> Option<u32> {
    count(text).filter(|&index| index <= 255)
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn show_count(n: &u32) -> String {
    n.to_string()
}

fn show_limit(n: &u32) -> String {
    if *n == u32::MAX { quoted("none") } else { n.to_string() }
}

fn show_flag(b: &bool) -> String {
    b.to_string()
}

fn show_percent(share: &u32) -> String {
    quoted(&quantity::show_percent((*share).into()))
}

fn show_extent(size: &SlcSize) -> String {
    match size {
        SlcSize::Bytes(0) => quoted("none"),
        SlcSize::Bytes(bytes) => quoted(&quantity::show_size(*bytes)),
        SlcSize::Share(share) => show_percent(share),
    }
}

fn show_time(ns: &u64) -> String {
    quoted(&quantity::show_time(*ns))
}

fn show_number(number: &f64) -> String {
    format!("{number:?}")
}

fn show_age(ns: &u64) -> String {
    quoted(&quantity::show_age(*ns))
}

fn show_codeword(bytes: &u32) -> String {
    quoted(&quantity::show_size((*bytes).into()))
}

fn show_energy(nj: &u64) -> String {
    quoted(&quantity::show_energy(*nj))
}

fn show_small_energy(pj: &u64) -> String {
    quoted(&quantity::show_small_energy(*pj))
}

fn show_power(mw: &u64) -> String {
    quoted(&quantity::show_power(*mw))
}

fn show_rate(rate: &u64) -> String {
    quoted(&quantity::show_rate(*rate))
}

fn show_times(times: &[u64]) -> String {
    if let [one] = times[..] {
        return show_time(&one);
    }
    let all: Vec<String> = times.iter().map(show_time).collect();
    format!("[{}]", all.join(", "))
}
