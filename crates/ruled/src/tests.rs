//! Rule sets live in the simulator: random work, power cuts, and a check of all that was
//! promised; and are measured beside pblk.

mod control;
mod limits;
mod mended;
mod remotes;
mod sets;

use std::ops::Range;

use device::Device;
use drive::backing::Backing;
use flash::{Dimensions, Geometry, Profile, RamMedium};
use ftl::{Start, Target, WriteCounters};
use load::driver::Virtual;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::watch::Watch;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use rules::{Budget, Checked, check, parse};
use simulation::power::Flash;
use simulation::{Break, Lower, Refusal, Setup, Subject, Troubles, lives, shows};
use targets::{Pblk, PblkConfig, Victim, reserve_chunks};
use workload::Pattern;

use crate::{RESERVE, Ruled, RuledConfig, RuledError};
use sets::{block_drive, changing};

fn checked(text: &str) -> Checked {
    let set = parse(text).unwrap_or_else(|e| panic!("{}", e.render("rules", text)));
    check(set, &Budget::default()).unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(|p| p.render("rules", text)).collect::<String>())
    })
}

impl Subject for Ruled<Lower> {
    fn config(setup: &Setup) -> RuledConfig {
        let units = setup.geometry.total_pus() / setup.parity.max(1);
        let blocks = setup.bytes / BLOCK_BYTES;
        let (rules, control) = match setup.seed % 4 {
            kind if remotes::are_on() => (remotes::set(blocks, units.into(), kind), None),
            kind @ (0 | 1) => (block_drive(blocks, units, kind == 0), None),
            kind => {
                let (rules, plane) = changing(blocks, units, (kind - 2) * 7_000);
                (rules, Some(plane))
            }
        };
        RuledConfig { bytes: setup.bytes, rules, control, remotes: remotes::of(setup) }
    }

    /// A tag could not be read.
    fn may_refuse(error: &RuledError, refusal: &Refusal) -> bool {
        matches!(error, RuledError::Unread(_)) && refusal.unread
    }

    /// A program failed, or a read of what was to be moved.
    fn may_end(setup: &Setup, flash: &Flash, _: &Range<u64>) -> bool {
        let geometry = &setup.seen();
        let is_hurt = |pu| flash.hurt(pu, 0..geometry.chunks()) > 0;
        geometry.pus_channels_first().any(is_hurt) || flash.struck().reads > 0
    }
}

/// Whole blocks, on flash that works and is read as soon as it is written, some with a cache.
fn suit(setup: &mut Setup) {
    setup.troubles = Troubles { cached: setup.troubles.cached, ..Troubles::default() };
    (setup.timing.endurance, setup.timing.slc) = (u32::MAX, Default::default());
    (setup.parity, setup.protected, setup.layers) = (0, false, None);
    setup.timing.unreadable = 0;
    (setup.timing.open_chunks, setup.timing.open_chunks_pu) = (u32::MAX, u32::MAX);
    setup.parts = false;
}

/// The same, with parity below where there is some.
fn suit_with_parity(setup: &mut Setup) {
    let parity = setup.parity;
    suit(setup);
    setup.parity = parity;
}

/// The same, and reads, programs and erases may fail.
fn fails(setup: &mut Setup) {
    let Troubles { operations, fatal, .. } = setup.troubles.clone();
    suit(setup);
    (setup.troubles.operations, setup.troubles.fatal) = (operations, fatal);
}

/// What is broken below is found for what it is.
#[test]
fn what_is_broken_is_found() {
    // A chunk that was erased besides is refused when it is written on.
    for (broken, words) in [
        (Break::DropFlush, ["saw "; 2]),
        (Break::LoseProgram, ["saw "; 2]),
        (Break::EraseNeighbour, ["saw ", "read-only drive"]),
    ] {
        let found = shows::<Ruled<Lower>>(broken, 0..200, 8, suit).unwrap();
        let is_so = words.iter().any(|words| found.violation.words.contains(words));
        assert!(is_so, "{broken:?}: {found}");
    }
}

#[test]
fn rule_sets_keep_the_contract() {
    let counts = lives::<Ruled<Lower>>(0..200, 8, suit).unwrap();
    assert_eq!((counts.lives, counts.cycles), (200, 1600));
    assert!(counts.cached_cuts > 50 && counts.clean_closes > 50, "{counts:?}");
    assert!(counts.erases > 1000 && counts.fua > 1000, "{counts:?}");
}

/// Parity pads rows that a cut tore; these are nobody's.
#[test]
fn over_parity_they_keep_it_too() {
    let counts = lives::<Ruled<Lower>>(0..200, 8, suit_with_parity).unwrap();
    assert!(counts.cut_recoveries > 50, "{counts:?}");
}

/// Lives that once failed: erases in other units padded the rows to which a unit collected,
/// which used up the last free chunk before the one that was emptied had nothing valid; the
/// unit took no more writes.
#[test]
fn the_last_free_chunk_is_room_enough_for_collection() {
    for seed in [601, 663, 972, 2489, 2652, 3026, 3228, 3504, 4450] {
        lives::<Ruled<Lower>>(seed..seed + 1, 8, suit).unwrap();
    }
}

/// The same with little room beside what is written, on one unit.
fn nearly_full(setup: &mut Setup) {
    suit(setup);
    let one = Dimensions {
        groups: 1,
        pus: 1,
        chunks: 24,
        pages: 16,
        planes: 2,
        ..setup.geometry.dimensions()
    };
    let dimensions = Dimensions { pages_at_once: 1, page_bytes: 4096, ..one };
    setup.geometry = Geometry::new(dimensions).unwrap();
    setup.data_chunks = dimensions.chunks - RESERVE;
    let room = u64::from(setup.data_chunks * setup.geometry.chunk_blocks());
    setup.bytes = room * 4 / 5 * BLOCK_BYTES;
    (setup.work.reads, setup.work.trims, setup.work.flushes) = (100, 50, 20);
    (setup.work.blocks, setup.work.depth) = (16, 16);
}

/// Lives that once failed: after a cut the rest of the open chunk to which collection had moved
/// was less than what it was to move again.
#[test]
fn where_collection_goes_on_after_a_cut_has_room_for_it() {
    for seed in [6, 9, 12, 21, 52, 72, 108, 115] {
        lives::<Ruled<Lower>>(seed..seed + 1, 24, nearly_full).unwrap();
    }
}

/// What fails makes it read-only until the next start, and what was flushed is there.
#[test]
fn operations_that_fail_cost_nothing_that_was_promised() {
    let counts = lives::<Ruled<Lower>>(0..200, 8, fails).unwrap();
    assert!(counts.errors > 100, "{counts:?}");
}

/// A small drive in memory, and how many units and blocks it has.
fn small(profile: &str) -> (Device<Backing>, PblkConfig) {
    small_keeping(profile, 0)
}

/// The device of a small drive.
type Small = Device<Backing>;

/// The same, of whose blocks so many bytes are kept.
fn small_keeping(profile: &str, kept: u32) -> (Device<Backing>, PblkConfig) {
    let profile = Profile::builtin(profile).unwrap();
    let data = Dimensions { groups: 4, pus: 2, chunks: 24, pages: 32, ..profile.dimensions };
    let dimensions = Dimensions { chunks: data.chunks + reserve_chunks(&data, 1), ..data };
    let geometry = Geometry::new(dimensions).unwrap();
    let medium = Backing::Memory(RamMedium::new(&geometry, kept).unwrap());
    let device = Device::new(&geometry, &profile.timing, medium).unwrap();
    let blocks = 8 * 24 * u64::from(geometry.chunk_blocks()) * 4 / 5;
    let config = PblkConfig {
        bytes: blocks * BLOCK_BYTES,
        data_chunks: 24,
        idle: 0,
        streams: 1,
        map_pages: 0,
        write_buffer: 0,
        idle_collection: 0,
        victim: Victim::Greedy,
        seed: 1,
    };
    (device, config)
}

/// Writes all of a drive three times at random, then mixes reads and writes. What was done.
fn measured<T: Target + drive::whole::Observed>(target: T) -> (f64, WriteCounters) {
    let shape = Target::shape(&target);
    let mut driver = Virtual::new(target);
    let mut run = |percent: u8, ios: u64| {
        let pattern = Pattern::uniform(shape.bytes, percent);
        let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 64 }, 1, 1).unwrap();
        let plan = Plan { ramp: 0, until: Until::Ios(ios), count: true };
        let tally = Runner::new(&mut Watch::quiet()).run(&mut driver, &mut load, plan).unwrap();
        assert_eq!(tally.problem(), None);
        tally.all().count() as f64 / tally.seconds()
    };
    let blocks = shape.bytes / BLOCK_BYTES;
    run(0, 3 * blocks);
    let rate = run(50, blocks);
    (rate, Target::counters(driver.drive()))
}

impl drive::whole::Observed for Ruled<Device<Backing>> {
    fn counters(&self) -> WriteCounters {
        Target::counters(self)
    }
}

/// Table 1's drive on flash that takes time does about what pblk does on the same.
#[test]
fn a_drive_of_rules_is_measured_beside_pblk() {
    let (device, config) = small("ref");
    let (pblk, of_pblk) = measured(Pblk::new(device, config).unwrap());
    let (device, config) = small("ref");
    let rules = block_drive(config.bytes / BLOCK_BYTES, 8, true);
    let config = RuledConfig { bytes: config.bytes, rules, control: None, remotes: Vec::new() };
    let (ruled, of_ruled) = measured(Ruled::new(device, &config).unwrap());
    println!("pblk {pblk:.0} {of_pblk:?}\nruled {ruled:.0} {of_ruled:?}");
    assert!(ruled > 0.8 * pblk, "{ruled} {pblk}");
}

/// Sets that the target does not carry out are refused by name.
#[test]
fn what_it_does_not_do_is_refused() {
    let opened = |set: &str, rest: &str| {
        let (device, config) = small("null");
        let rules = checked(&format!("set a {set} {rest}"));
        Ruled::new(
            device,
            &RuledConfig { bytes: config.bytes, rules, control: None, remotes: Vec::new() },
        )
        .err()
        .map(|e| e.to_string())
    };
    let set = "application 0 lba 0..9 units 0..8 channels 0..2 remotes 0..2 limit l depth 1
        map m[9] of address in 0..8";
    assert_eq!(opened(set, ""), None);
    for (action, words) in [
        ("redirect 1", "redirect"),
        ("remote 1", "send to a remote drive, as it has none"),
        ("fill into m[0], drop", "fill, as it has no remote drive"),
    ] {
        let rule = format!("rule r priority 0 when op == read then {action}");
        let expected = format!("rule r: this target does not {words}; leave that out");
        assert_eq!(opened(set, &rule), Some(expected));
    }
    let wide = "application 7 lba 0..9 units 0..9";
    let expected = "application 7 is given units up to 9, and the drive has 8";
    assert_eq!(opened(wide, ""), Some(expected.into()));
}

/// Another set decides from the next block on; what is written stays where it is.
#[test]
fn a_set_is_changed_on_a_drive_in_use() {
    let (device, config) = small("null");
    let blocks = config.bytes / BLOCK_BYTES;
    let config = RuledConfig {
        bytes: config.bytes,
        rules: block_drive(blocks, 8, true),
        control: None,
        remotes: Vec::new(),
    };
    let mut drive = Ruled::new(device, &config).unwrap();
    let write = |drive: &mut Ruled<_>, lba: u64| {
        let (op, offset, len) = (BlockOp::Write, lba * BLOCK_BYTES, BLOCK_BYTES);
        let (buffer, id, queue) = (Buffer::empty(), lba, 0);
        let req = BlockReq { id, op, fua: false, placement: 0, queue, offset, len, buffer };
        let (mut reqs, mut done) = (Ring::new(1), Ring::new(1));
        reqs.put(|| req);
        drive.turn(Time::ZERO, None, &mut reqs, &mut done);
        done.pop().expect("it is buffered").status
    };
    assert!((0..40).all(|lba| write(&mut drive, lba).is_ok()));
    let at: Vec<_> = (0..20).map(|lba| drive.leads(blocks + lba)).collect();
    // All on one unit now, and the first blocks are not written over.
    let other = format!(
        "set other
         application 0 lba 0..{blocks} units 0..8
         map l2p[{blocks}] of address in 0..8
         counter next 0..8
         rule keep priority 2 when op == write and lba < 20 then refuse
         rule write priority 1 when op == write then place unit 5 into l2p[lba]
         rule read priority 1 when op == read then serve l2p[lba]"
    );
    let other = checked(&other);
    drive.install(&other).unwrap();
    assert!((0..20).all(|lba| !write(&mut drive, lba).is_ok()));
    assert!((20..40).all(|lba| write(&mut drive, lba).is_ok()));
    assert_eq!(drive.rules().number(), 1);
    assert_eq!((0..20).map(|lba| drive.leads(blocks + lba)).collect::<Vec<_>>(), at);
    let is_on_5 = |lba| drive.leads(blocks + lba).is_some_and(|ppa| drive.unit_of(ppa) == 5);
    assert!((20..40).all(is_on_5));
    // Where the map is another one nothing would be found again.
    let fewer = checked("set a application 0 lba 0..9 map l2p[9] of address in 0..8");
    assert!(matches!(drive.install(&fewer), Err(RuledError::Maps)));
}
