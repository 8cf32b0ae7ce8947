//! The keys of a profile: one table for reading, printing and overriding.
//!
//! A key has the same name and takes the same text in a TOML file and in a
//! drive's name, and no two sections share a name. Where a file takes a list,
//! a drive's name takes the items with `/` between them.

use super::forms::*;
use super::{Profile, Side, quantity};

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
pub const SECTIONS: [&str; 10] = [
    "geometry",
    "timing",
    "slc",
    "link",
    "controller",
    "cache",
    "ftl",
    "reliability",
    "energy",
    "power",
];

/// A key that is one field: section, name, its form, where it is, and what it
/// means. A file must have those that are `needed`.
macro_rules! key {
    (needed $($rest:tt)+) => {
        Key { needed: true, ..key!($($rest)+) }
    };
    ($section:literal, $name:literal, $form:ident, $place:ident.$($field:ident).+,
     $about:literal) => {
        Key {
            section: $section,
            name: $name,
            about: $about,
            takes: $form.takes,
            needed: false,
            set: |p, text| {
                p.$place.$($field).+ = ($form.read)(text)?;
                Some(())
            },
            get: |p| ($form.show)(&p.$place.$($field).+),
        }
    };
}

/// All keys, in the order in which they are printed.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    key!(needed "geometry", "groups", COUNT, dimensions.groups,
        "channels; a super-channel counts once"),
    key!(needed "geometry", "pus", COUNT, dimensions.pus, "parallel units (dies) a channel"),
    key!(needed "geometry", "planes", COUNT, dimensions.planes,
        "planes a parallel unit: 1 to 8"),
    key!(needed "geometry", "chunks", COUNT, dimensions.chunks,
        "chunks a parallel unit that hold data"),
    key!(needed "geometry", "pages", COUNT, dimensions.pages, "pages a block"),
    Key {
        section: "geometry",
        name: "page",
        about: "bytes a page on one channel",
        takes: "a size, for example 16k",
        needed: true,
        set: set_page,
        get: |p| quoted(&quantity::show_size(page(p).into())),
    },
    key!("geometry", "pages_at_once", COUNT, dimensions.pages_at_once,
        "pages that one program takes on every plane"),
    key!("geometry", "cell_bits", CELL, timing.bits_a_cell,
        "bits a cell: pages of a word line"),
    key!(needed "timing", "read", TIMES, timing.read, "tR, for each page type"),
    key!("timing", "read_partial", PARTIAL, timing.read_partial,
        "tR of at most a quarter of a page, for each page type"),
    key!(needed "timing", "program", TIMES, timing.program, "tPROG, for each row type"),
    key!("timing", "opening", TIME, timing.opening,
        "what the first program of a chunk takes beside that, if it is erased only then"),
    key!(needed "timing", "erase", TIME, timing.erase, "tBERS"),
    key!("timing", "command", TIME, timing.command, "command cycles before each operation"),
    key!("timing", "channel_rate", RATE, timing.channel_rate, "bytes a second on one channel"),
    Key {
        section: "timing",
        name: "channel_split",
        about: "channels that share one transfer: 2 for a super-channel",
        takes: "1, 2, 4 or 8",
        needed: false,
        set: set_split,
        get: |p| p.timing.channel_split.to_string(),
    },
    key!("timing", "tags_on_channel", FLAG, timing.tags_on_channel,
        "out-of-band bytes take channel time"),
    key!("timing", "reads_first", FLAG, timing.reads_first,
        "reads go before programs and erases that wait"),
    key!("timing", "read_burst", LIMIT, timing.read_burst, "reads that go before one that waits"),
    key!("timing", "suspend", FLAG, timing.suspend, "a read interrupts a program or an erase"),
    key!("timing", "suspend_time", TIME, timing.suspend_time,
        "from the suspend command until the array is free"),
    key!("timing", "resume_time", TIME, timing.resume_time,
        "from the resume command until it goes on"),
    key!("timing", "suspend_limit", LIMIT, timing.suspend_limit, "suspensions of one operation"),
    key!("timing", "suspend_transfer", FLAG, timing.suspend_transfer,
        "a read's transfer interrupts a write's"),
    key!("timing", "cache_registers", FLAG, timing.cache_registers,
        "data move while a die's array works at the next"),
    key!("timing", "plane_reads", FLAG, timing.plane_reads,
        "planes of a die read pages by themselves"),
    key!("timing", "shared_reads", FLAG, timing.shared_reads,
        "reads that wait for the same page are one array read"),
    key!("timing", "multi_plane_reads", PLANES, timing.multi_plane_reads,
        "which reads that wait for different planes of a die are one"),
    key!("timing", "copyback", RETRIES, timing.copyback,
        "copies of a row inside its die before its data are corrected; 0 for none"),
    key!("timing", "unreadable", COUNT, timing.unreadable,
        "last blocks of an open chunk that cannot be read yet"),
    key!("timing", "open_chunks", LIMIT, timing.open_chunks,
        "chunks that may be open at a time; none for no limit"),
    key!("timing", "open_chunks_pu", LIMIT, timing.open_chunks_pu,
        "chunks of a parallel unit that may be open at a time; none for no limit"),
    key!("timing", "endurance", LIMIT, timing.endurance, "erases that a chunk stands"),
    key!("slc", "slc_cache", EXTENT, timing.slc.size,
        "flash with one bit a cell, for what is written first"),
    key!("slc", "slc_dynamic", FLAG, timing.slc.dynamic,
        "free chunks lend it, and take it back when they are written"),
    key!("slc", "slc_static", EXTENT, timing.slc.own,
        "what a dynamic one has of its own, however full the drive is"),
    key!("slc", "slc_read", TIME, timing.slc.read, "tR of a page in it"),
    key!("slc", "slc_program", TIME, timing.slc.program, "tPROG of a page in it"),
    key!("slc", "slc_idle", TIME, timing.slc.idle,
        "how long a die has nothing to do before it folds"),
    key!("slc", "slc_mark", PERCENT, timing.slc.mark,
        "how full it is when a die folds without that wait"),
    key!("link", "controller", TIME, link.controller, "controller time, once a command"),
    key!("link", "link_latency", TIME, link.latency, "latency, once each way"),
    key!("link", "link_rate", RATE, link.rate, "bytes a second, each way"),
    key!("link", "link_entries", FLAG, link.entries,
        "entries of queues take their time on it, too"),
    key!("controller", "cores", CORES, link.cores, "cores, each with one command at a time"),
    key!("controller", "core_read", WORK, link.core_read, "what a read takes of a core"),
    key!("controller", "core_write", WORK, link.core_write,
        "what any other command takes of a core"),
    key!("controller", "core_block", WORK, link.core_block,
        "what each 4 KiB of a command take of a core beside that"),
    key!("controller", "queues", QUEUES, queues.count,
        "submission queues, from which it fetches when a core is free"),
    key!("controller", "queue_depth", QUEUED, queues.depth,
        "commands of each that may be inside"),
    key!("controller", "arbitration", ARBITRATION, queues.arbitration,
        "whose turn it is: rr (each queue's) or wrr (each class's, by weight)"),
    key!("controller", "arbitration_burst", BURST, queues.burst,
        "commands of a queue before it is another's turn"),
    key!("controller", "queue_classes", CLASSES, queues.classes,
        "with wrr, the class of each queue: urgent, high, medium or low"),
    key!("controller", "class_weights", WEIGHTS, queues.weights,
        "with wrr, commands of classes high, medium and low in their turn"),
    Key {
        section: "controller",
        name: "buffer_rate",
        about: "bytes a second of the memory through which data pass, in and out together",
        takes: RATE.takes,
        needed: false,
        set: |p, text| {
            p.buffer_rate = (RATE.read)(text)?;
            Some(())
        },
        get: |p| (RATE.show)(&p.buffer_rate),
    },
    key!("cache", "read_cache", CACHE, cache.size, "what the controller keeps of what was read"),
    key!("cache", "read_ahead", LINE, cache.line,
        "its line: what follows a read in sequence in it is read ahead"),
    key!("cache", "read_ahead_depth", COUNT, cache.depth,
        "reads that may be inside while something is read ahead; 0 for never"),
    Key {
        section: "cache",
        name: "write_buffer",
        about: "where writes are gathered and kept until they are programmed",
        takes: "a size, for example 2m, or auto for four rows a parallel unit",
        needed: false,
        set: |p, text| {
            p.write_buffer = match text {
                "auto" => 0,
                text => quantity::size(text).filter(|&bytes| bytes > 0)?,
            };
            Some(())
        },
        get: |p| match p.write_buffer {
            0 => quoted("auto"),
            bytes => quoted(&quantity::show_size(bytes)),
        },
    },
    Key {
        section: "cache",
        name: "map_cache",
        about: "what of the map is held in memory, in pages of 4 KiB; none for all",
        takes: "a size of at least 16k, for example 512k, or none",
        needed: false,
        set: |p, text| {
            p.map_cache = (CACHE.read)(text).filter(|&bytes| bytes == 0 || bytes >= 16_384)?;
            Some(())
        },
        get: |p| (CACHE.show)(&p.map_cache),
    },
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
        name: "map_unit",
        about: "what is mapped as one: a write of a part of it reads, changes and writes it",
        takes: LINE.takes,
        needed: false,
        set: |p, text| {
            p.map_unit = (LINE.read)(text)?;
            Some(())
        },
        get: |p| (LINE.show)(&p.map_unit),
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
    Key {
        section: "ftl",
        name: "idle_collection",
        about: "how long no request is inside before it collects though it has room enough",
        takes: PAUSE.takes,
        needed: false,
        set: |p, text| {
            p.idle_collection = (PAUSE.read)(text)?;
            Some(())
        },
        get: |p| (PAUSE.show)(&p.idle_collection),
    },
    key!("reliability", "errors", FLAG, reliability.errors,
        "whether the rest of this section is modelled"),
    key!("reliability", "rber_base", SHARE, reliability.rber_base,
        "raw bit error rate of new flash"),
    key!("reliability", "rber_wear", SHARE, reliability.rber_wear,
        "what wear adds to it at the endurance"),
    key!("reliability", "wear_power", POWER, reliability.wear_power,
        "the power of the wear with which that grows"),
    key!("reliability", "retention_time", AGE, reliability.retention_time,
        "age at which new data's rate has doubled"),
    key!("reliability", "retention_power", POWER, reliability.retention_power,
        "the power of the age with which that grows"),
    key!("reliability", "read_disturb", SHARE, reliability.read_disturb,
        "what a read adds to its chunk's rate at the endurance"),
    key!("reliability", "page_rber", FACTORS, reliability.page_rber,
        "the rate of a page to its chunk's, for each page type"),
    key!("reliability", "layer_rber", CHANCE, reliability.layer_rber,
        "how much less and more it is on the first and last word line"),
    key!("reliability", "codeword", CODEWORD, reliability.codeword,
        "bytes that are corrected together"),
    key!("reliability", "correctable", BITS, reliability.correctable,
        "bits that are corrected in a codeword"),
    key!("reliability", "read_retries", RETRIES, reliability.read_retries,
        "most repetitions of an array read"),
    key!("reliability", "retry_gain", CHANCE, reliability.retry_gain,
        "what each repetition leaves of the rate"),
    key!("reliability", "decode", TIME, reliability.decode,
        "what the controller takes to find that a read is to be repeated"),
    key!("reliability", "program_failure", CHANCE, reliability.program_failure,
        "probability that a program fails at the endurance"),
    key!("reliability", "erase_failure", CHANCE, reliability.erase_failure,
        "probability that an erase fails at the endurance"),
    key!("reliability", "failure_power", POWER, reliability.failure_power,
        "the power of the wear with which both grow"),
    key!("reliability", "factory_bad", SHARE, reliability.factory_bad,
        "share of the chunks that are bad from the factory, on each channel of a super-channel"),
    key!("reliability", "remap", FLAG, reliability.remap,
        "what is bad on one channel of a super-channel is made up for"),
    key!("reliability", "endurance_cliff", FLAG, reliability.endurance_cliff,
        "whether every chunk ends at the endurance"),
    key!("reliability", "wear_notice", NOTICE, reliability.wear_notice,
        "wear index above the mean that is told; 0 never"),
    key!("energy", "energy", FLAG, energy.counted, "whether energy is counted"),
    key!("energy", "read_energy", NANO, energy.read, "array read of a page of one plane"),
    key!("energy", "program_energy", NANO, energy.program, "array program of a page of one plane"),
    key!("energy", "erase_energy", NANO, energy.erase, "erase of a block of one plane"),
    key!("energy", "slc_read_energy", NANO, energy.slc_read,
        "array read of a page of one plane in the SLC cache"),
    key!("energy", "slc_program_energy", NANO, energy.slc_program,
        "array program of a page of one plane in the SLC cache"),
    key!("energy", "byte_energy", ENERGY, energy.byte, "a byte on a channel"),
    key!("energy", "idle_power", WATTS, energy.idle, "what the drive takes at all times"),
    key!("power", "sleep_after", PAUSES, power.sleep.after,
        "it sleeps when nothing was inside for so long; for each sleep state"),
    key!("power", "wake_time", WORKS, power.sleep.wake,
        "what the first command waits then; for each"),
    key!("power", "sleep_power", FEW_WATTS, power.sleep.power,
        "what it takes while it sleeps, in place of idle_power; for each"),
    key!("power", "ambient", CELSIUS, power.temperature.ambient, "how warm it is around the drive"),
    key!("power", "thermal_resistance", KELVINS, power.temperature.resistance,
        "how much warmer a watt makes it in the end"),
    key!("power", "thermal_time", TIME, power.temperature.time,
        "how long 1 - 1/e of that takes"),
    key!("power", "throttle_from", CELSIUS, power.temperature.throttle_from,
        "from here on it throttles"),
    key!("power", "throttle_until", CELSIUS, power.temperature.throttle_until,
        "how cool it is when it throttles no more"),
    key!("power", "throttle_rate", RATE, power.temperature.throttle_rate,
        "bytes a second while it throttles; none where it never does"),
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
    let split = (COUNT.read)(text).filter(|n| matches!(n, 1 | 2 | 4 | 8))?;
    p.dimensions.page_bytes = page(p).checked_mul(split)?;
    p.timing.channel_split = split;
    Some(())
}
