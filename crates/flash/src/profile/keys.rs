//! The keys of a profile: one table for reading, printing and overriding.
//!
//! A key has the same name and takes the same text in a TOML file and in a
//! drive's name, and no two sections share a name. Where a file takes a list,
//! a drive's name takes the items with `/` between them.

use super::{Profile, Side, quantity};
use crate::SlcSize;
use crate::link::MAX_CORES;
use crate::power::MAX_SLEEP_STATES;
use crate::queues::{Arbitration, Class, MAX_QUEUES, MAX_WEIGHT, MOST_QUEUED};
use crate::slc::WHOLE;
use crate::timing::MultiPlane;

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

/// A kind of value: what it takes, how it is read and how it is printed, as a TOML
/// literal.
struct Form<T> {
    takes: &'static str,
    read: fn(&str) -> Option<T>,
    show: fn(&T) -> String,
}

const COUNT: Form<u32> = Form {
    takes: "a whole number, for example 8",
    read: |text| text.parse().ok(),
    show: u32::to_string,
};
/// At most as many as the largest codeword has bits.
const BITS: Form<u32> = Form { read: |text| up_to(text, 4096 * 8), ..COUNT };
const RETRIES: Form<u32> = Form { takes: "0 to 100", read: |text| up_to(text, 100), ..COUNT };
const NOTICE: Form<u32> = Form { takes: "0 to 255", read: |text| up_to(text, 255), ..COUNT };
/// All ones stands for no limit.
const LIMIT: Form<u32> = Form {
    takes: "a whole number, for example 3000, or none for no limit",
    read: |text| if text == "none" { Some(u32::MAX) } else { up_to(text, u32::MAX - 1) },
    show: |n| if *n == u32::MAX { quoted("none") } else { n.to_string() },
};
const CELL: Form<u32> = Form {
    takes: "1 to 5, or auto for as many as there are page types",
    read: |text| match text {
        "auto" => Some(0),
        text => up_to(text, 5).filter(|&bits| bits > 0),
    },
    show: |n| if *n == 0 { quoted("auto") } else { n.to_string() },
};
const PLANES: Form<MultiPlane> = Form {
    takes: "none, page (of the same number in their blocks) or type (of the same type)",
    read: |text| MultiPlane::NAMES.iter().find(|(_, name)| *name == text).map(|(rule, _)| *rule),
    show: |rule| {
        let name = MultiPlane::NAMES.iter().find(|(any, _)| any == rule);
        quoted(name.map_or("none", |(_, name)| name))
    },
};
const CORES: Form<u32> = Form {
    takes: "1 to 64, or none for one a command",
    read: |text| match text {
        "none" => Some(0),
        text => up_to(text, MAX_CORES).filter(|&cores| cores > 0),
    },
    show: |n| if *n == 0 { quoted("none") } else { n.to_string() },
};
const QUEUES: Form<u32> = Form {
    takes: "1 to 64",
    read: |text| up_to(text, MAX_QUEUES).filter(|&queues| queues > 0),
    ..COUNT
};
const QUEUED: Form<u32> = Form {
    takes: "1 to 1024, or auto for an equal part of 1024",
    read: |text| match text {
        "auto" => Some(0),
        text => up_to(text, MOST_QUEUED).filter(|&depth| depth > 0),
    },
    show: CELL.show,
};
const ARBITRATION: Form<Arbitration> = Form {
    takes: "rr for round robin, or wrr for a weighted one",
    read: |text| match text {
        "rr" => Some(Arbitration::RoundRobin),
        "wrr" => Some(Arbitration::Weighted),
        _ => None,
    },
    show: |rule| quoted(if *rule == Arbitration::Weighted { "wrr" } else { "rr" }),
};
const BURST: Form<u32> = Form {
    takes: "1, 2, 4, 8, 16, 32 or 64, or none for no limit",
    read: |text| match text {
        "none" => Some(0),
        text => up_to(text, 64).filter(|burst| burst.is_power_of_two()),
    },
    show: CORES.show,
};
const CLASSES: Form<Vec<Class>> = Form {
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
const WEIGHTS: Form<[u32; 3]> = Form {
    takes: "three numbers from 1 to 256, of classes high, medium and low, for example 8/4/1",
    read: |text| {
        let weight = |text| up_to(text, MAX_WEIGHT).filter(|&weight| weight > 0);
        let all: Option<Vec<u32>> = text.split('/').map(weight).collect();
        all?.try_into().ok()
    },
    show: |all| listed(all.iter().map(u32::to_string)),
};
const CODEWORD: Form<u32> = Form {
    takes: "512, 1k, 2k or 4k",
    read: |text| match quantity::size(text)? {
        bytes @ (512 | 1024 | 2048 | 4096) => Some(bytes as u32),
        _ => None,
    },
    show: |bytes| quoted(&quantity::show_size((*bytes).into())),
};
const FLAG: Form<bool> =
    Form { takes: "true or false", read: |text| text.parse().ok(), show: bool::to_string };
const TIME: Form<u64> = Form {
    takes: "a time with its unit, for example 75us (ns, us, ms, s)",
    read: quantity::time,
    show: |ns| quoted(&quantity::show_time(*ns)),
};
/// Of a core: a queue of the longest commands still ends in the time that there is.
const WORK: Form<u64> = Form {
    takes: "a time of at most 1s with its unit, for example 2.3us (ns, us, ms, s)",
    read: |text| quantity::time(text).filter(|&ns| ns <= 1_000_000_000),
    ..TIME
};
/// At most 64 page types, one of them at least.
const TIMES: Form<Vec<u64>> = Form {
    takes: "a time for each page type, for example 75us or 60us/75us/110us",
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
const PARTIAL: Form<Vec<u64>> = Form {
    takes: "a time for each page type, for example 30us or 30us/40us/50us, or none",
    read: |text| if text == "none" { Some(Vec::new()) } else { (TIMES.read)(text) },
    show: |times| if times.is_empty() { quoted("none") } else { (TIMES.show)(times) },
};
const RATE: Form<u64> = Form {
    takes: "a decimal rate from 1kB/s, for example 333MB/s, or none for no transfer time",
    read: quantity::rate,
    show: |rate| quoted(&quantity::show_rate(*rate)),
};
const AGE: Form<u64> = Form {
    takes: "a time in s, min, h or d, for example 30d, or none for never",
    read: quantity::age,
    show: |ns| quoted(&quantity::show_age(*ns)),
};
const SHARE: Form<f64> = Form {
    takes: "a number from 0 to 0.5, for example 1e-4",
    read: |text| within(text, 0.0, 0.5),
    show: |number| format!("{number:?}"),
};
const CHANCE: Form<f64> = Form {
    takes: "a number from 0 to 1, for example 1e-5",
    read: |text| within(text, 0.0, 1.0),
    ..SHARE
};
/// At most 64 page types, one of them at least.
const FACTORS: Form<Vec<f64>> = Form {
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
const POWER: Form<f64> = Form {
    takes: "a number from 0.1 to 10, for example 1.5",
    read: |text| within(text, 0.1, 10.0),
    ..SHARE
};
/// A share of at most all, in parts of [`WHOLE`].
const PERCENT: Form<u32> = Form {
    takes: "a share from 0% to 100%, for example 90%",
    read: |text| {
        quantity::percent(text).filter(|&share| share <= u64::from(WHOLE)).map(|share| share as u32)
    },
    show: |share| quoted(&quantity::show_percent((*share).into())),
};
const EXTENT: Form<SlcSize> = Form {
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
const CACHE: Form<u64> = Form {
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
const LINE: Form<u32> = Form {
    takes: "4k, 8k, 16k, 32k, 64k, 128k or 256k",
    read: |text| match quantity::size(text)? {
        bytes if bytes.is_power_of_two() && (4096..=262_144).contains(&bytes) => Some(bytes as u32),
        _ => None,
    },
    show: |bytes| quoted(&quantity::show_size((*bytes).into())),
};
const ENERGY: Form<u64> = Form {
    takes: "an energy with its unit, for example 12.5uJ (pJ, nJ, uJ, mJ)",
    read: quantity::small_energy,
    show: |pj| quoted(&quantity::show_small_energy(*pj)),
};
const NANO: Form<u64> = Form {
    takes: "an energy of whole nJ, for example 12.5uJ (nJ, uJ, mJ)",
    read: quantity::energy,
    show: |nj| quoted(&quantity::show_energy(*nj)),
};
const WATTS: Form<u64> = Form {
    takes: "a power of whole mW, for example 0.5W (mW, W)",
    read: quantity::power,
    show: |mw| quoted(&quantity::show_power(*mw)),
};

const PAUSE: Form<u64> = Form {
    takes: "a time with its unit, for example 50ms (ns, us, ms, s), or none for never",
    read: |text| match text {
        "none" => Some(0),
        text => quantity::time(text).filter(|&ns| ns > 0),
    },
    show: |ns| if *ns == 0 { quoted("none") } else { (TIME.show)(ns) },
};
/// Of one sleep state or several, and so the two that follow.
const PAUSES: Form<Vec<u64>> = Form {
    takes: "1 to 4 rising times, for example 50ms or 50ms/1s, or none for never",
    read: |text| if text == "none" { Some(Vec::new()) } else { of_states(text, after) },
    show: |all| if all.is_empty() { quoted("none") } else { (TIMES.show)(all) },
};
const WORKS: Form<Vec<u64>> = Form {
    takes: "1 to 4 times of at most 1s, for example 2.5ms or 1.2ms/8ms (ns, us, ms, s)",
    read: |text| of_states(text, WORK.read),
    ..TIMES
};
const FEW_WATTS: Form<Vec<u64>> = Form {
    takes: "1 to 4 falling powers of whole mW, for example 5mW or 70mW/5mW (mW, W)",
    read: |text| of_states(text, WATTS.read),
    show: |all| match &all[..] {
        [one] => (WATTS.show)(one),
        all => listed(all.iter().map(WATTS.show)),
    },
};
const CELSIUS: Form<u64> = Form {
    takes: "a temperature from 0C to 1000C, for example 70C",
    read: quantity::temperature,
    show: |mc| quoted(&quantity::show_temperature(*mc)),
};
const KELVINS: Form<u64> = Form {
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

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
