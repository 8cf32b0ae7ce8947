//! Rule sets live in the simulator: random work, power cuts, and a check of all that was
//! promised; and are measured beside pblk.

use device::Device;
use flash::{Dimensions, Geometry, Profile, RamMedium};
use ftl::{Start, Target, WriteCounters};
use load::driver::Virtual;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::watch::Watch;
use port::{BLOCK_BYTES, BlockOp};
use rules::{Budget, Checked, check, parse};
use simulation::{Break, Lower, Setup, Subject, Troubles, lives, shows};
use targets::{Pblk, PblkConfig, Victim, reserve_chunks};
use workload::Pattern;

use crate::{Ruled, RuledConfig, RuledError};

fn checked(text: &str) -> Checked {
    let set = parse(text).unwrap_or_else(|e| panic!("{}", e.render("rules", text)));
    check(set, &Budget::default()).unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(|p| p.render("rules", text)).collect::<String>())
    })
}

/// A block drive by a map of the set's, as examples/rules/minimal.rules, for so many blocks and
/// units; or one that leaves it to the target where blocks are.
fn block_drive(blocks: u64, units: u32, with_map: bool) -> Checked {
    checked(&match with_map {
        true => format!(
            "set minimal
             application 0 lba 0..{blocks} units 0..{units}
             map l2p[{blocks}] of address in 0..{units}
             counter next 0..{units}
             rule collect priority 2 when op == write and free < 10 then collect greedy
             rule write priority 1 when op == write
               do next = (next + 1) % {units} then place unit next into l2p[lba]
             rule read priority 1 when op == read then serve l2p[lba]
             rule trim priority 1 when op == trim or op == zero do l2p[lba] = none then drop
             rule flush priority 1 when op == flush then pass
             rule idle priority 1 when op == idle and idle_time > 1ms and free < 20
               then collect greedy"
        ),
        false => format!(
            "set plain
             application 3 lba 0..{blocks} units 0..{units}
             rule write priority 1 when op == write and lba % 2 == 0 then place
             rule rest priority 0 when op != idle then pass"
        ),
    })
}

impl Subject for Ruled<Lower> {
    fn config(setup: &Setup) -> RuledConfig {
        let (blocks, units) = (setup.bytes / BLOCK_BYTES, setup.geometry.total_pus());
        RuledConfig { bytes: setup.bytes, rules: block_drive(blocks, units, setup.seed % 3 > 0) }
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

/// What is broken below is found for what it is.
#[test]
fn what_is_broken_is_found() {
    for broken in [Break::DropFlush, Break::LoseProgram, Break::EraseNeighbour] {
        let found = shows::<Ruled<Lower>>(broken, 0..200, 8, suit).unwrap();
        assert!(found.violation.words.contains("saw "), "{broken:?}: {found}");
    }
}

#[test]
fn rule_sets_keep_the_contract() {
    let counts = lives::<Ruled<Lower>>(0..200, 8, suit).unwrap();
    assert_eq!((counts.lives, counts.cycles), (200, 1600));
    assert!(counts.cached_cuts > 50 && counts.clean_closes > 50, "{counts:?}");
    assert!(counts.erases > 1000 && counts.fua > 1000, "{counts:?}");
}

/// A small drive in memory, and how many units and blocks it has.
fn small(profile: &str) -> (Device<RamMedium>, PblkConfig) {
    let profile = Profile::builtin(profile).unwrap();
    let data = Dimensions { groups: 4, pus: 2, chunks: 24, pages: 32, ..profile.dimensions };
    let dimensions = Dimensions { chunks: data.chunks + reserve_chunks(&data, 1), ..data };
    let geometry = Geometry::new(dimensions).unwrap();
    let medium = RamMedium::new(&geometry, 0).unwrap();
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
        let pattern = Pattern::uniform(shape.bytes, percent.into());
        let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 64 }, 1, 1).unwrap();
        let plan = Plan { ramp: 0, until: Until::Ios(ios), count: true };
        let tally = Runner::new(&mut Watch::quiet()).run(&mut driver, &mut load, plan).unwrap();
        assert_eq!(tally.problem(), None);
        tally.all().count() as f64 / tally.seconds()
    };
    let blocks = shape.bytes / BLOCK_BYTES;
    run(0, 3 * blocks);
    let rate = run(50, blocks);
    (rate, Target::counters(driver.port()))
}

impl drive::whole::Observed for Ruled<Device<RamMedium>> {
    fn counters(&self) -> WriteCounters {
        Target::counters(self)
    }
}

/// Table 1's drive on flash that takes time does about what pblk does on the same.
#[test]
fn a_drive_of_rules_is_measured_beside_pblk() {
    let (device, config) = small("ref");
    let (pblk, of_pblk) = measured(Pblk::new(device, &config).unwrap());
    let (device, config) = small("ref");
    let rules = block_drive(config.bytes / BLOCK_BYTES, 8, true);
    let config = RuledConfig { bytes: config.bytes, rules };
    let (ruled, of_ruled) = measured(Ruled::new(device, &config).unwrap());
    println!("pblk {pblk:.0} {of_pblk:?}\nruled {ruled:.0} {of_ruled:?}");
    assert!(ruled > 0.5 * pblk, "{ruled} {pblk}");
}
