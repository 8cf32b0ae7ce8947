//! Tests of profiles and of the numbers in the built-in ones.

use super::*;
use crate::SlcSize;
use crate::queues::{Arbitration, Class};
use crate::slc::WHOLE;
use proptest::prelude::*;

fn builtin() -> impl Iterator<Item = Profile> {
    Profile::names().map(|name| Profile::builtin(name).unwrap())
}

#[test]
fn the_built_in_ones_are_whole_and_print_as_they_are() {
    for p in builtin() {
        let text = Profile::source(&p.name).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let said = |key: &Key| table.get(key.section).is_some_and(|s| s.get(key.name).is_some());
        if let Some(base) = table.get("base") {
            let base = Profile::builtin(base.as_str().unwrap()).unwrap();
            for key in KEYS.iter().filter(|key| said(key)) {
                assert_ne!((key.get)(&p), (key.get)(&base), "{}: {}", p.name, key.name);
            }
        } else if let Some(key) = KEYS.iter().find(|key| !said(key)) {
            panic!("{} says nothing of {}", p.name, key.name);
        }
        assert!(!p.about.is_empty());
        assert_eq!(Profile::from_toml(&p.to_toml(), "printed").unwrap(), p);
    }
}

#[test]
fn names_are_the_files() {
    assert_eq!(Profile::names().count(), 17);
    for name in Profile::names() {
        assert_eq!(Profile::builtin(name).unwrap().name, name);
    }
    assert!(Profile::builtin("nand").is_none());
}

#[test]
fn a_file_says_what_differs_from_its_base() {
    let text = "base = \"tlc\"\n[timing]\nerase = \"4ms\"";
    let p = Profile::from_toml(text, "mine.toml").unwrap();
    let tlc = Profile::builtin("tlc").unwrap();
    assert_eq!(p.timing.erase, 4_000_000);
    assert_eq!((p.name.as_str(), &p.about), ("mine.toml", &tlc.about));
    assert_eq!(Profile { name: tlc.name.clone(), timing: tlc.timing.clone(), ..p }, tlc);
    for wrong in ["base = \"nand\"", "base = 7"] {
        let err = Profile::from_toml(wrong, "mine.toml").unwrap_err().to_string();
        assert!(err.contains("`base` cannot be") && err.contains("ssdkit profiles"), "{err}");
    }
}

/// The terms and the sum of the comment `# lone 4 KiB read = a + b = N ns`.
fn written_sum(text: &str) -> (Vec<u64>, u64) {
    let line = text.lines().find(|l| l.starts_with("# lone 4 KiB read = ")).unwrap();
    let mut parts = line.split('=').skip(1);
    let number = |s: &str| s.split_whitespace().next().unwrap().parse::<u64>().unwrap();
    let terms = parts.next().unwrap().split('+').map(number).collect();
    let sum = parts.next().unwrap();
    assert!(sum.ends_with(" ns"), "{line}");
    (terms, number(sum))
}

#[test]
fn the_lone_read_is_what_the_comment_says() {
    for p in builtin() {
        let (terms, sum) = written_sum(Profile::source(&p.name).unwrap());
        assert_eq!(terms.iter().sum::<u64>(), sum, "{}", p.name);
        assert_eq!(p.lone_read(), sum, "{}", p.name);
    }
}

#[test]
fn the_reference_is_as_specified() {
    let p = Profile::builtin("ref").unwrap();
    let g = p.check().unwrap();
    assert_eq!(g.blocks() * BLOCK_BYTES, 32 << 30);
    assert_eq!(g.total_pus(), 64);
    assert_eq!(p.lone_read(), 87_301);
    assert!(p.link.is_instant());
}

#[test]
fn the_others_fit_a_small_machine() {
    for p in builtin().filter(|p| p.name != "ref") {
        assert!(p.check().unwrap().blocks() * BLOCK_BYTES <= 8 << 30, "{}", p.name);
    }
}

#[test]
fn a_super_channel_programs_both_halves() {
    let mut p = Profile::builtin("znand").unwrap();
    assert_eq!((p.dimensions.page_bytes, p.timing.channel_split), (4096, 2));
    p.set("channel_split", "1").unwrap();
    p.set("page", "4k").unwrap();
    assert_eq!(p.dimensions.page_bytes, 4096);
    p.set("channel_split", "4").unwrap();
    assert_eq!(p.dimensions.page_bytes, 16384);
    p.set("page", "1k").unwrap();
    p.set("channel_split", "1").unwrap();
    let err = p.check().unwrap_err().to_string();
    assert!(err.contains("page times channel_split = 1024"), "{err}");
}

#[test]
fn keys_are_set_by_name() {
    let mut p = Profile::builtin("ref").unwrap();
    for (key, value) in
        [("read", "50us/60us"), ("suspend", "true"), ("pages", "64"), ("endurance", "none")]
    {
        p.set(key, value).unwrap();
    }
    assert_eq!(p.timing.read, [50_000, 60_000]);
    assert!(p.timing.suspend);
    assert_eq!((p.dimensions.pages, p.timing.endurance), (64, u32::MAX));
}

/// Six planes of three pages of 16 KiB are a row of 72 blocks. A profile that says
/// nothing of it, as all once did, programs page by page.
#[test]
fn pages_of_a_word_line_are_programmed_at_once_where_asked() {
    let mut p = Profile::builtin("tlc").unwrap();
    for (key, value) in [("pages_at_once", "3"), ("planes", "6"), ("program", "700us")] {
        p.set(key, value).unwrap();
    }
    let g = p.check().unwrap();
    assert_eq!((g.row_blocks(), g.wide_page_blocks(), g.write_blocks()), (72, 24, 72));
    p.set("pages", "100").unwrap();
    let err = p.check().unwrap_err().to_string();
    assert!(err.contains("pages = 100") && err.contains("pages_at_once"), "{err}");
    let text = Profile::builtin("tlc").unwrap().to_toml();
    let line = |line: &&str| !line.starts_with("pages_at_once");
    let before: Vec<&str> = text.lines().filter(line).collect();
    let p = Profile::from_toml(&before.join("\n"), "before").unwrap();
    assert_eq!(p.dimensions.pages_at_once, 1);
}

/// A plane at work takes 40 mW (docs/reliability.md), whatever its flash is.
#[test]
fn energy_is_that_of_the_times() {
    let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / times.len() as f64;
    for p in Profile::names().map(|name| Profile::builtin(name).unwrap()) {
        let t = &p.timing;
        if p.energy.read == 0 || p.dimensions.page_bytes < 4096 {
            continue;
        }
        let program = mean(&t.program) / f64::from(p.dimensions.pages_at_once);
        let each = [
            ("read", p.energy.read, mean(&t.read)),
            ("program", p.energy.program, program),
            ("erase", p.energy.erase, (t.erase + t.opening) as f64),
        ];
        for (what, nj, ns) in each {
            let by_rule = ns * 0.04;
            let off = nj as f64 / by_rule - 1.0;
            assert!(off.abs() < 0.06, "{}: {what} {nj} nJ, by the rule {by_rule}", p.name);
        }
    }
}

#[test]
fn errors_and_energy_are_off_until_asked_for() {
    for mut p in builtin() {
        assert!(!p.reliability.errors && !p.energy.counted, "{}", p.name);
        p.set("errors", "true").unwrap();
        assert!(p.reliability.errors);
    }
    let mut p = Profile::builtin("tlc").unwrap();
    for (key, value) in [("rber_base", "2e-4"), ("retention_time", "90d"), ("codeword", "2k")] {
        p.set(key, value).unwrap();
    }
    assert_eq!((p.reliability.rber_base, p.reliability.codeword), (2e-4, 2048));
    for (key, value) in [
        ("rber_base", "0.6"),
        ("rber_base", "NaN"),
        ("rber_wear", "-1e-4"),
        ("codeword", "3k"),
        ("correctable", "99999"),
        ("retention_time", "0"),
        ("wear_power", "inf"),
        ("read_energy", "5"),
        ("read_energy", "0.5nJ"),
        ("wear_notice", "256"),
        ("page_rber", "1/-1"),
        ("page_rber", ""),
        ("layer_rber", "1.1"),
    ] {
        assert!(p.set(key, value).is_err(), "{key} {value}");
    }
}

/// At its endurance and after a year, a drive's data can still be read; that
/// is what endurance is rated by (JESD218 asks for it of client drives).
#[test]
fn data_last_a_year_at_the_rated_endurance() {
    let year = 365 * 86_400_000_000_000;
    for p in builtin().filter(|p| p.reliability.rber_base > 0.0) {
        let r = &p.reliability;
        let unread = |age, retries: i32| {
            let rate = r.rber(1.0, age, 0) * r.worst_share() * r.retry_gain.powi(retries);
            1.0 - r.correctable_share(rate)
        };
        let name = &p.name;
        assert!(unread(0, 0) < 1e-6, "{name}: a worn drive reads fresh data at the first try");
        assert!(unread(year, r.read_retries as i32) < 1e-12, "{name}: and old data in the end");
        let mut beyond = p.clone();
        beyond.reliability.read_retries = 0;
        assert!(beyond.reliability.rber(10.0, 3 * year, 0) > r.rber(1.0, year, 0) * 3.0);
    }
}

/// Twelve tR stand for no cell of twelve bits.
#[test]
fn bits_of_a_cell_are_said_where_page_types_are_not_pages() {
    let bits = |p: &Profile| p.timing.cell_bits(p.dimensions.pages_at_once);
    let mut p = Profile::builtin("nvme-2016").unwrap();
    assert_eq!((p.timing.read.len(), bits(&p)), (12, 2));
    for (name, of) in [("tlc", 3), ("client-qlc", 4), ("ref", 1), ("datacenter-tlc", 3)] {
        assert_eq!(bits(&Profile::builtin(name).unwrap()), of, "{name}");
    }
    p.set("cell_bits", "1").unwrap();
    let err = p.check().unwrap_err().to_string();
    assert!(err.contains("cell_bits = 1") && err.contains("pages_at_once"), "{err}");
    assert!(p.set("cell_bits", "6").is_err() && p.set("cell_bits", "0").is_err());
}

/// What a drive's time has no room for is refused, with all that makes it so long.
#[test]
fn operations_of_an_hour_are_refused() {
    let mut p = Profile::builtin("tlc").unwrap();
    for (key, value) in [("errors", "true"), ("read", "45s"), ("read_retries", "100")] {
        p.set(key, value).unwrap();
    }
    let err = p.check().unwrap_err().to_string();
    assert!(err.contains("repetitions of a read, in ns = 4545000020200"), "{err}");
    assert!(err.contains("at most 50 min"), "{err}");
    p.set("read", "29s").unwrap();
    p.check().unwrap();
    p.set("read", "45s").unwrap();
    p.set("errors", "false").unwrap();
    p.check().unwrap();
}

/// Planes that read by themselves need no other, and one plane has none.
#[test]
fn reads_of_several_planes_need_them() {
    let mut p = Profile::builtin("tlc").unwrap();
    for (value, rule) in
        [("page", MultiPlane::SamePage), ("type", MultiPlane::SameType), ("none", MultiPlane::None)]
    {
        p.set("multi_plane_reads", value).unwrap();
        assert_eq!((p.timing.multi_plane_reads, p.check().is_ok()), (rule, true));
        assert_eq!(p.get("multi_plane_reads").unwrap(), value);
    }
    assert!(p.set("multi_plane_reads", "true").is_err());
    for (key, value, says) in
        [("planes", "1", "planes = 1"), ("plane_reads", "true", "plane_reads = 1")]
    {
        let mut p = Profile::builtin("tlc").unwrap();
        p.set(key, value).unwrap();
        p.check().unwrap();
        p.set("multi_plane_reads", "page").unwrap();
        let err = p.check().unwrap_err().to_string();
        assert!(err.contains(says) && err.contains("multi_plane_reads"), "{err}");
    }
}

#[test]
fn the_slc_cache_is_off_until_asked_for() {
    // Clients' drives have one.
    for p in builtin().filter(|p| !p.name.starts_with("client")) {
        assert!(!p.timing.slc.is_on(), "{}", p.name);
        assert!(p.check().is_ok());
    }
    let mut p = Profile::builtin("tlc").unwrap();
    for (value, size) in [
        ("4%", SlcSize::Share(4_000)),
        ("0.125%", SlcSize::Share(125)),
        ("512m", SlcSize::Bytes(512 << 20)),
        ("none", SlcSize::Bytes(0)),
        ("100%", SlcSize::Share(WHOLE)),
    ] {
        p.set("slc_cache", value).unwrap();
        assert_eq!(p.timing.slc.size, size);
        assert!(p.check().is_ok());
    }
    for (key, value) in [
        ("slc_cache", "101%"),
        ("slc_cache", "0%"),
        ("slc_cache", "0"),
        ("slc_cache", "0.0001%"),
        ("slc_cache", "some"),
        ("slc_mark", "1"),
        ("slc_mark", "100.5%"),
    ] {
        assert!(p.set(key, value).is_err(), "{key} {value}");
    }
    p.set("slc_cache", "1000g").unwrap();
    let err = p.check().unwrap_err().to_string();
    assert!(err.contains("slc_cache in bytes"), "{err}");
    let mut instant = Profile::builtin("null").unwrap();
    instant.set("slc_cache", "1%").unwrap();
    let err = instant.check().unwrap_err().to_string();
    assert!(err.contains("slc_program"), "{err}");
}

#[test]
fn queues_that_cannot_be_are_refused() {
    assert!(builtin().all(|p| !p.queues.is_on()));
    let set = |all: &[(&str, &str)]| {
        let mut p = Profile::builtin("tlc").unwrap();
        p.link.core_write = 2_000;
        all.iter().for_each(|(key, value)| p.set(key, value).unwrap());
        p.check().map(|_| p.queues).map_err(|e| e.to_string())
    };
    let (cores, wrr) = (("cores", "4"), ("arbitration", "wrr"));
    let queues = set(&[cores, wrr, ("queues", "3"), ("queue_classes", "urgent/low")]).unwrap();
    assert_eq!([0, 1, 2].map(|n| queues.class(n)), [Class::Urgent, Class::Low, Class::Medium]);
    assert_eq!((queues.arbitration, queues.burst), (Arbitration::Weighted, 1));
    for (keys, says) in [
        (&[("queues", "2")][..], "cores = 0"),
        (&[("queue_depth", "32")], "cores = 0"),
        (&[cores, ("queues", "2"), ("core_write", "0ns")], "core_read in ns = 0"),
        (&[cores, ("queues", "2"), ("side", "host")], "queues = 2"),
        (&[cores, ("queues", "64"), ("queue_depth", "17")], "queues times queue_depth = 1088"),
        (&[cores, ("queues", "2"), wrr, ("queue_classes", "low/low/high")], "there are = 3"),
        (&[cores, ("queues", "2"), ("queue_classes", "low/high")], "queue_classes, of which"),
        (&[("queue_classes", "low")], "none without arbitration=wrr"),
        (&[cores, ("queues", "2"), ("class_weights", "1/2/1")], "class_weights, of which one = 2"),
    ] {
        let err = set(keys).unwrap_err();
        assert!(err.contains(says), "{keys:?}: {err}");
    }
    let mut p = Profile::builtin("tlc").unwrap();
    for (key, value) in [
        ("queues", "0"),
        ("queues", "65"),
        ("queue_depth", "0"),
        ("queue_depth", "1025"),
        ("arbitration", "fair"),
        ("arbitration_burst", "3"),
        ("arbitration_burst", "128"),
        ("queue_classes", "some"),
        ("queue_classes", ""),
        ("class_weights", "4/2"),
        ("class_weights", "4/2/0"),
        ("class_weights", "257/2/1"),
    ] {
        assert!(p.set(key, value).is_err(), "{key} {value}");
    }
}

/// Who asks for a longer time is told what is the longest.
#[test]
fn the_longest_time_is_named() {
    let mut p = Profile::builtin("tlc").unwrap();
    for key in ["erase", "read", "program", "read_partial", "sleep_after", "slc_idle"] {
        p.set(key, "1000s").unwrap_or_else(|e| panic!("{key}: {e}"));
        let err = p.set(key, "1000000000001ns").unwrap_err().to_string();
        assert!(err.contains("at most 1000s"), "{key}: {err}");
    }
}

/// One sleep state is written as ever, several as lists; what they cannot be together is
/// named.
#[test]
fn sleep_states_that_cannot_be_are_refused() {
    assert!(builtin().all(|p| !p.power.is_on()));
    let set = |keys: [&str; 3]| {
        let mut p = Profile::builtin("tlc").unwrap();
        p.energy.counted = true;
        for (key, value) in ["sleep_after", "wake_time", "sleep_power"].into_iter().zip(keys) {
            p.set(key, value).map_err(|e| e.to_string())?;
        }
        p.check().map(|_| p).map_err(|e| e.to_string())
    };
    let one = set(["50ms", "2.5ms", "5mW"]).unwrap().to_toml();
    for line in ["sleep_after = \"50ms\"", "wake_time = \"2.5ms\"", "sleep_power = \"5mW\""] {
        assert!(one.contains(line), "{one}");
    }
    let two = set(["50ms/1s", "1.2ms/8ms", "70mW/5mW"]).unwrap();
    assert!(two.to_toml().contains("sleep_power = [\"70mW\", \"5mW\"]"));
    assert_eq!(Profile::from_toml(&two.to_toml(), "printed").unwrap(), two);
    assert!(set(["none", "1ms/2ms", "1mW"]).is_ok(), "it never sleeps");
    for (keys, says) in [
        (["50ms/1s", "1ms", "70mW/5mW"], "wake_time, of which there are = 1"),
        (["50ms", "1ms", "70mW/5mW"], "sleep_power, of which there are = 2"),
        (["1s/1s", "1ms/8ms", "70mW/5mW"], "sleep_after in ns = 1000000000"),
        (["50ms/1s", "1ms/8ms", "70mW/70mW"], "sleep_power in mW = 70"),
        (["50ms/1s", "1ms/8ms", "501mW/5mW"], "sleep_power in mW = 501"),
        (["1ms/2ms/3ms/4ms/5ms", "0", "0"], "`sleep_after` cannot be"),
        (["none/1ms", "0/0", "1mW/0"], "`sleep_after` cannot be"),
        (["0ms", "0", "0"], "`sleep_after` cannot be"),
        (["1ms/2ms", "1ms/2s", "1mW/0"], "`wake_time` cannot be"),
        (["1ms", "", "0"], "`wake_time` cannot be"),
    ] {
        let err = set(keys).unwrap_err();
        assert!(err.contains(says), "{keys:?}: {err}");
    }
}

#[test]
fn wrong_keys_and_values_are_named() {
    let mut p = Profile::builtin("ref").unwrap();
    let err = p.set("raed", "50us").unwrap_err().to_string();
    assert!(err.contains("`raed`") && err.contains("read, read_partial, program"), "{err}");
    let err = p.set("read", "50").unwrap_err().to_string();
    assert!(err.contains("`read` cannot be `50`") && err.contains("75us"), "{err}");
    assert!(p.set("spare", "NaN").is_err());
    assert!(p.set("channel_split", "3").is_err());
    assert!(p.set("suspend_limit", "4294967295").is_err(), "all ones is `none`");
}

#[test]
fn what_a_key_is_set_to_can_be_set_again() {
    for p in builtin() {
        let mut again = Profile::builtin("null").unwrap();
        for key in KEYS {
            again.set(key.name, &p.get(key.name).unwrap()).unwrap();
        }
        (again.name, again.about) = (p.name.clone(), p.about.clone());
        assert_eq!(again, p);
    }
    assert_eq!(Profile::builtin("tlc").unwrap().get("read").unwrap(), "56.5us/77.5us/106us");
    assert_eq!(Profile::builtin("tlc").unwrap().get("raed"), None);
}

#[test]
fn no_key_is_in_two_sections() {
    let mut names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KEYS.len());
    assert!(KEYS.iter().all(|key| SECTIONS.contains(&key.section)));
}

#[test]
fn wrong_files_are_refused_with_a_reason() {
    let good = Profile::builtin("ref").unwrap().to_toml();
    let broken = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        Profile::from_toml(&good.replacen(from, to, 1), "x.toml").unwrap_err().to_string()
    };
    for (from, to, says) in [
        ("groups = 8", "groups = ", "x.toml is not TOML"),
        ("groups = 8", "grops = 8", "unknown key `geometry.grops`"),
        ("groups = 8", "erase = \"1ms\"", "unknown key `geometry.erase`"),
        ("groups = 8", "", "`groups` is missing from [geometry]"),
        ("groups = 8", "groups = 0", "groups = 0 is out of range"),
        ("groups = 8", "groups = -8", "`groups` cannot be `-8`"),
        ("planes = 2", "planes = 9", "planes = 9"),
        ("[ftl]", "[fpl]", "unknown key `fpl`"),
        ("name = \"ref\"", "name = 7", "`name` cannot be `7`"),
        ("read = \"75us\"", "read = []", "`read` cannot be"),
        ("unreadable = 0", "unreadable = 512", "unreadable = 512"),
        ("open_chunks = \"none\"", "open_chunks = 0", "open_chunks = 0"),
        ("open_chunks_pu = \"none\"", "open_chunks_pu = 0", "open_chunks_pu = 0"),
        ("open_chunks = \"none\"", "open_chunks = \"many\"", "`open_chunks` cannot be `many`"),
        ("spare = 0.2", "spare = 0.95", "`spare` cannot be `0.95`"),
    ] {
        let err = broken(from, to);
        assert!(err.contains(says), "{to}: {err}");
    }
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(
        which in 0usize..14,
        times in prop::collection::vec(0u64..10_000_000, 1..5),
        rate in 2000u64..,
        limit in any::<u32>(),
        flags in any::<[bool; 4]>(),
        about in ".*",
        numbers in prop::collection::vec(0.0f64..0.5, 8),
        whole in any::<[u32; 4]>(),
    ) {
        let mut p = builtin().nth(which).unwrap();
        p.timing.read = times.clone();
        p.timing.program = times.clone();
        p.timing.read_partial = if flags[1] { times.clone() } else { Vec::new() };
        (p.timing.channel_rate, p.link.rate) = (rate, rate / 2);
        (p.link.entries, p.link.cores) = (flags[3], whole[3] % 65);
        (p.link.core_read, p.link.core_write, p.link.core_block) =
            (times[0], times[0] / 2, times[0] / 3);
        (p.queues.count, p.queues.depth) = (1 + whole[0] % 64, whole[1] % 17);
        (p.queues.burst, p.queues.weights) = (1 << (whole[2] % 7), [1 + whole[3] % 256, 9, 256]);
        p.queues.classes = flags.iter().map(|&flag| Class::ALL[usize::from(flag) + 2]).collect();
        p.queues.classes.truncate((whole[2] % 5).min(p.queues.count) as usize);
        if flags[1] {
            p.queues.arbitration = Arbitration::Weighted;
        } else {
            (p.queues.classes, p.queues.weights) = (Vec::new(), [1; 3]);
        }
        if p.side == Side::Host || p.link.cores == 0 {
            (p.queues.count, p.queues.depth) = (1, 0);
        }
        (p.timing.suspend_limit, p.timing.endurance) = (limit, u32::MAX);
        (p.timing.suspend, p.timing.reads_first) = (flags[0], flags[1]);
        (p.timing.tags_on_channel, p.timing.suspend_transfer) = (flags[2], flags[3]);
        (p.timing.cache_registers, p.timing.plane_reads) = (flags[3], flags[0]);
        p.timing.shared_reads = flags[1];
        if p.dimensions.planes > 1 && !flags[0] {
            p.timing.multi_plane_reads = MultiPlane::SamePage;
        }
        p.about = about;
        let r = &mut p.reliability;
        (r.errors, r.endurance_cliff) = (flags[0], flags[1]);
        (r.rber_base, r.rber_wear, r.read_disturb) = (numbers[0], numbers[1] / 1e6, numbers[2] / 1e12);
        (r.wear_power, r.retention_power) = (numbers[3] + 0.1, numbers[4] * 10.0 + 0.1);
        (r.retry_gain, r.factory_bad, r.program_failure) = (numbers[5], numbers[6], numbers[7]);
        (r.page_rber, r.layer_rber, r.decode) = (numbers.clone(), numbers[1], times[0]);
        (r.retention_time, r.correctable) = (rate, whole[0] % 32768);
        (r.codeword, r.read_retries, r.wear_notice) = (512 << (whole[1] % 4), whole[2] % 101, whole[3] % 256);
        (p.energy.read, p.energy.byte, p.energy.idle) = (rate / 3, rate / 5, rate / 7);
        p.energy.counted = flags[2];
        let sleep = &mut p.power.sleep;
        sleep.after = (1..=u64::from(whole[0] % 5)).map(|n| n * (1 + times[0])).collect();
        if sleep.is_on() {
            sleep.wake = sleep.after.iter().map(|ns| ns / 3).collect();
            sleep.power = (0..sleep.after.len() as u64).rev().collect();
        }
        let slc = &mut p.timing.slc;
        (slc.read, slc.idle, slc.mark) = (times[0], times[0] / 2, whole[0] % (WHOLE + 1));
        slc.program = 1 + times[0];
        slc.size = match (flags[0], flags[1]) {
            (false, _) => SlcSize::Bytes(0),
            (true, false) => SlcSize::Bytes(1 + u64::from(whole[1])),
            (true, true) => SlcSize::Share(1 + whole[1] % WHOLE),
        };
        prop_assume!(p.check().is_ok());
        prop_assert_eq!(Profile::from_toml(&p.to_toml(), "printed").unwrap(), p);
    }

    #[test]
    fn no_text_panics(key in "[a-z_]{0,12}", value in ".{0,20}", file in ".{0,200}") {
        let mut p = Profile::builtin("null").unwrap();
        let _ = p.set(&key, &value);
        for key in KEYS {
            let _ = p.set(key.name, &value);
        }
        let _ = p.check();
        let _ = Profile::from_toml(&file, "any");
    }
}
