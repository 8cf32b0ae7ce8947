//! Zones live in the simulator: random work, power cuts, and a check of all that
//! was promised.

use device::Device;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::{BLOCK_BYTES, BlockOp, SECTOR_BYTES};
use simulation::machine::Ask;
use simulation::{Break, Host, Lower, Setup, Subject, Troubles, lives, shows};

use crate::{Zones, ZonesConfig, ZonesError};

/// Sectors of a block.
const SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

fn zone_bytes(setup: &Setup) -> u64 {
    u64::from(setup.geometry.chunk_blocks()) * BLOCK_BYTES
}

impl Subject for Zones<Lower> {
    fn config(setup: &Setup) -> ZonesConfig {
        ZonesConfig { zones: (setup.bytes / zone_bytes(setup)) as usize }
    }

    /// Writes go to the write pointer of the zone that they were to go to; to a full
    /// one goes a reset.
    fn host(&self) -> Host {
        let mut next: Vec<u64> = self.zones.iter().map(|zone| zone.next.into()).collect();
        let size = u64::from(self.geometry.chunk_blocks());
        let page = u64::from(self.geometry.write_blocks());
        Box::new(move |ask| {
            let zone = ask.sector / SECTORS / size;
            let resets = matches!(ask.op, BlockOp::Trim | BlockOp::WriteZeroes);
            let next = &mut next[zone as usize];
            match ask.op {
                BlockOp::Read | BlockOp::Flush => ask,
                BlockOp::Write if *next < size => {
                    let first = zone * size + *next;
                    let pages = (ask.count / SECTORS / page).max(1);
                    let count = (pages * page).min(size - *next);
                    *next += count;
                    Ask { sector: first * SECTORS, count: count * SECTORS, ..ask }
                }
                op => {
                    *next = 0;
                    let op = if resets { op } else { BlockOp::Trim };
                    Ask { op, sector: zone * size * SECTORS, count: size * SECTORS, ..ask }
                }
            }
        })
    }
}

/// Whole zones and whole pages, on flash that works and is read as soon as it is
/// written, some with a cache; by one queue, as the writes of a zone keep their order.
fn suit(setup: &mut Setup) {
    setup.troubles = Troubles { cached: setup.troubles.cached, ..Troubles::default() };
    (setup.timing.endurance, setup.timing.slc) = (u32::MAX, Default::default());
    (setup.parity, setup.protected, setup.layers) = (0, false, None);
    (setup.queues, setup.timing.unreadable) = (Default::default(), 0);
    (setup.timing.open_chunks, setup.timing.open_chunks_pu) = (u32::MAX, u32::MAX);
    (setup.parts, setup.unit) = (false, 1);
    let page = u64::from(setup.geometry.write_blocks());
    setup.work.blocks = setup.work.blocks.next_multiple_of(page);
    setup.bytes = setup.bytes.next_multiple_of(zone_bytes(setup));
}

/// A drive that limits its open chunks, in all or of a unit, is refused by name.
#[test]
fn drives_that_limit_their_open_chunks_are_refused() {
    let dim = Dimensions { pus: 2, chunks: 4, pages: 2, ..Dimensions::LEAST };
    let (geometry, none) = (Geometry::new(dim).unwrap(), u32::MAX);
    for (open_chunks, open_chunks_pu, is_refused) in
        [(none, none, false), (1000, none, true), (none, 1000, true)]
    {
        let timing = Timing { open_chunks, open_chunks_pu, ..Timing::default() };
        let medium = RamMedium::new(&geometry, 8).unwrap();
        let device = Device::new(&geometry, &timing, medium).unwrap();
        let error = Zones::open(device, &ZonesConfig { zones: 4 }).err();
        assert_eq!(matches!(error, Some(ZonesError::OpenChunks)), is_refused, "{error:?}");
        assert_eq!(error.is_some(), is_refused, "{error:?}");
    }
}

#[test]
fn zones_keep_the_contract() {
    let counts = lives::<Zones<Lower>>(0..200, 8, suit).unwrap();
    assert_eq!((counts.lives, counts.cycles), (200, 1600));
    assert!(counts.cached_cuts > 50 && counts.clean_closes > 50, "{counts:?}");
    assert!(counts.erases > 1000 && counts.fua > 1000, "{counts:?}");
}

/// Each is found for what it is: not by a drive that hangs, or a start that fails.
#[test]
fn what_is_broken_is_found() {
    let kinds = [
        // What was there is read; or the host takes the zone for empty, and writes its
        // beginning.
        (Break::DropTrim, ["saw ", "out-of-order write"]),
        (Break::DropFlush, ["saw "; 2]),
        (Break::LoseProgram, ["saw "; 2]),
        (Break::EraseNeighbour, ["saw "; 2]),
    ];
    for (broken, any_of) in kinds {
        let found = shows::<Zones<Lower>>(broken, 0..200, 8, suit).unwrap();
        let is_so = any_of.iter().any(|kind| found.violation.words.contains(kind));
        assert!(is_so, "{broken:?}: {found}");
        assert!(found.history.iter().any(|line| line.contains("sent ")), "{broken:?}: {found}");
    }
}

/// A life that fails says what a reader does next.
#[test]
fn a_life_is_found_again_by_its_seed() {
    let found = shows::<Zones<Lower>>(Break::DropTrim, 0..200, 8, suit).unwrap();
    let (seed, next) = (found.seed, found.seed + 1);
    let again = shows::<Zones<Lower>>(Break::DropTrim, seed..next, 8, suit).unwrap();
    assert_eq!(format!("{found:?}"), again.to_string());
    assert!(found.to_string().starts_with(&format!("seed {seed}: ")), "{found}");
    assert!(found.to_string().ends_with(&format!(" with {seed}..{next} for its seeds")), "{found}");
}
