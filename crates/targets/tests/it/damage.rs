//! Damage to what the target writes for itself: a root, pages of map, table,
//! directory and log, with bits changed that no drive reports, or blocks that
//! cannot be read. It is told, and gives an error, never wrong data; and a root
//! that one mirror has is enough.

use std::collections::HashMap;

use crate::host::Host;
use device::Device;
use faults::{Below, Script, ScriptedMedium};
use flash::{Chunk, Dimensions, Geometry, Moved, Ppa, TAG_BYTES, Tag, Timing};
use port::{BLOCK_BYTES, BlockOp, Port, Ring, Status, Time};
use proptest::prelude::*;
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, with_reserve};

const DATA_CHUNKS: u32 = 8;

/// What has become of a block.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A byte of its data is another.
    Data(usize, u8),
    /// A byte of its tag is another.
    Tag(usize, u8),
    /// Two words of a page of the map are in each other's place, and its checksum says so.
    Swapped(usize, usize),
    /// A word of a page of the map is another, and its checksum says so.
    Word(usize, u32),
    /// It cannot be read.
    Gone,
}

/// Puts the checksum of a page right.
fn seal(page: &[u8], tag: &mut [u8]) {
    let Tag { id, seq } = Tag::load(tag);
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(page, id) & u64::from(u32::MAX);
    Tag { id, seq: sum << 30 | (seq & ((1 << 30) - 1)) }.store(tag);
}

/// Blocks are damaged when they are read.
#[derive(Default)]
struct Rotten {
    damage: HashMap<u64, Damage>,
}

impl Script for Rotten {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        (at.0..at.0 + u64::from(count)).for_each(|block| {
            self.damage.remove(&block);
        });
        below.program(at, count, data, tags)
    }

    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        let moved = below.read(at, count, data, tags);
        let each = data.len() / count as usize;
        for i in 0..count as usize {
            match self.damage.get(&(at.0 + i as u64)) {
                Some(Damage::Gone) => return Moved::Failed,
                Some(&Damage::Swapped(a, b)) if each == BLOCK_BYTES as usize => {
                    let page = &mut data[i * each..][..each];
                    (0..4).for_each(|byte| page.swap(4 * a + byte, 4 * b + byte));
                    seal(page, &mut tags[i * TAG_BYTES..][..TAG_BYTES]);
                }
                Some(&Damage::Word(at, word)) if each == BLOCK_BYTES as usize => {
                    let page = &mut data[i * each..][..each];
                    page[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
                    seal(page, &mut tags[i * TAG_BYTES..][..TAG_BYTES]);
                }
                Some(&Damage::Data(byte, flip)) if byte < each => data[i * each + byte] ^= flip,
                Some(&Damage::Tag(byte, flip)) if !tags.is_empty() => {
                    tags[i * TAG_BYTES + byte] ^= flip;
                }
                _ => {}
            }
        }
        moved
    }
}

type Drive = Pblk<Device<ScriptedMedium>>;

type Rig = Host<Drive, Geometry>;

fn config(geometry: &Geometry) -> PblkConfig {
    let space = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
    let bytes = space * 7 / 10 * BLOCK_BYTES;
    PblkConfig::new(bytes, DATA_CHUNKS, 1)
}

/// What a block holds.
fn value(block: u64) -> u64 {
    if block % 11 == 3 { 0 } else { block * 31 + 7 }
}

impl Rig {
    /// A drive that was filled and overwritten, trimmed here and there, and
    /// ended, or not.
    fn filled(ends: bool) -> Rig {
        let chunks = DATA_CHUNKS;
        let dim =
            Dimensions { groups: 2, chunks, pages: 32, page_bytes: 16384, ..Dimensions::LEAST };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 8, Rotten::default());
        let device = Device::new(&geometry, &Timing::default(), medium).unwrap();
        let drive = Pblk::new(device, config(&geometry)).unwrap();
        let mut rig = Rig::new(drive, Time::ZERO, geometry);
        let blocks = rig.drive.shape().bytes / BLOCK_BYTES;
        for i in 0..blocks * 3 {
            let block = i * 7 % blocks;
            rig.block(BlockOp::Write, block, value(block) + u64::from(i < blocks));
        }
        for block in (3..blocks).step_by(11) {
            rig.block(BlockOp::Trim, block, 0);
        }
        rig.block(BlockOp::Flush, 0, 0);
        if ends {
            rig.close();
        }
        rig
    }

    fn close(&mut self) {
        self.drive.close(self.now);
        while !self.drive.is_closed() {
            self.now = self.now.max(self.drive.next_event().expect("it ends"));
            self.drive.advance(self.now, &mut Ring::new(1));
        }
    }

    /// Its parts, for as many starts as are wanted.
    fn end(self) -> (Geometry, Vec<Chunk>, ScriptedMedium) {
        let device = self.drive.into_device();
        let chunks = device.chunks().to_vec();
        (self.more, chunks, device.cut())
    }
}

/// The tags of all blocks of a drive, with where they are.
fn tags(geometry: &Geometry, chunks: &[Chunk], medium: &mut ScriptedMedium) -> Vec<(Tag, Ppa)> {
    let mut found = Vec::new();
    for pu in geometry.pus_channels_first() {
        for chunk in (0..geometry.chunks()).map(|number| geometry.chunk_of(pu, number)) {
            for block in 0..chunks[chunk].programmed {
                let ppa = Ppa(geometry.chunk_start(chunk).0 + u64::from(block));
                let mut tag = [0; TAG_BYTES];
                assert_eq!(medium.below().read(ppa, 1, &mut [], &mut tag), Moved::Done);
                found.push((Tag::load(&tag), ppa));
            }
        }
    }
    found
}

/// The own blocks of a drive, by kind: pages, directory, log, roots.
fn own_blocks(
    geometry: &Geometry,
    chunks: &[Chunk],
    medium: &mut ScriptedMedium,
) -> [Vec<(Tag, Ppa)>; 4] {
    let mut found: [Vec<(Tag, Ppa)>; 4] = Default::default();
    for (tag, ppa) in tags(geometry, chunks, medium) {
        if tag.id >> 58 == 0b01_0000 {
            found[(tag.id >> 56 & 3) as usize].push((tag, ppa));
        }
    }
    found
}

/// The first page of the map, and all that it was, has this damage.
fn damage_first_page(
    geometry: &Geometry,
    chunks: &[Chunk],
    medium: &mut ScriptedMedium,
    damage: Damage,
) {
    let own = own_blocks(geometry, chunks, medium);
    for &(_, ppa) in own[0].iter().filter(|(tag, _)| tag.id & 0xffff == 0) {
        medium.script::<Rotten>().damage.insert(ppa.0, damage);
    }
}

/// A word of a page of the map that leads to `ppa`.
fn leads_to(ppa: Ppa) -> u32 {
    u32::try_from(ppa.0 + 1).expect("four-byte entries")
}

/// A drive as it is found, without a look at its blocks.
fn found(geometry: Geometry, chunks: &[Chunk], medium: ScriptedMedium) -> Rig {
    let device = Device::restore(&geometry, &Timing::default(), medium, chunks).unwrap();
    let (drive, now) = Pblk::recover(device, config(&geometry), Time::ZERO).unwrap();
    Rig::new(drive, now, geometry)
}

/// What a start on a damaged drive comes to: blocks that read as errors, or
/// the refusal. Wrong data is a panic.
fn start(geometry: &Geometry, chunks: &[Chunk], medium: ScriptedMedium) -> Result<u64, PblkError> {
    let device = Device::restore(geometry, &Timing::default(), medium, chunks).unwrap();
    let (drive, now) = Pblk::recover(device, config(geometry), Time::ZERO)?;
    let mut rig = Rig::new(drive, now, *geometry);
    let mut lost = 0;
    for block in 0..rig.drive.shape().bytes / BLOCK_BYTES {
        match rig.block(BlockOp::Read, block, 0) {
            (Status::SUCCESS, read) => assert_eq!(read, value(block), "block {block}"),
            (Status::UNRECOVERED_READ, _) => lost += 1,
            (status, _) => panic!("block {block}: {status}"),
        }
    }
    Ok(lost)
}

/// A start with some damage, on a drive made for it.
fn with(
    ends: bool,
    damage: impl Fn(&[Vec<(Tag, Ppa)>; 4]) -> Vec<(Ppa, Damage)>,
) -> Result<u64, PblkError> {
    let (geometry, chunks, mut medium) = Rig::filled(ends).end();
    let own = own_blocks(&geometry, &chunks, &mut medium);
    let damage = damage(&own).into_iter().map(|(ppa, damage)| (ppa.0, damage));
    medium.script::<Rotten>().damage = damage.collect();
    start(&geometry, &chunks, medium)
}

/// The blocks of the newest root, one for each mirror.
fn newest_roots(own: &[Vec<(Tag, Ppa)>; 4]) -> Vec<Ppa> {
    let newest = own[3].iter().map(|(tag, _)| tag.seq).max().expect("there is a root");
    let first = |(tag, _): &&(Tag, Ppa)| tag.seq == newest && tag.id & 0xff == 0;
    own[3].iter().filter(first).map(|&(_, ppa)| ppa).collect()
}

const ROOT_DAMAGE: [Damage; 13] = [
    Damage::Data(0, 1),
    Damage::Data(8, 4),
    Damage::Data(15, 0x80),
    Damage::Data(16, 0xff),
    Damage::Data(24, 8),
    Damage::Data(28, 1),
    Damage::Data(32, 2),
    Damage::Data(90, 0x40),
    Damage::Data(255, 1),
    Damage::Tag(0, 0x10),
    Damage::Tag(8, 1),
    Damage::Tag(7, 0x40),
    Damage::Gone,
];

#[test]
fn a_root_of_one_mirror_is_enough() {
    for (i, damage) in ROOT_DAMAGE.into_iter().enumerate() {
        let found = with(i % 2 == 0, |own| {
            let roots = newest_roots(own);
            assert_eq!(roots.len(), 2, "each mirror has one");
            vec![(roots[i / 2 % 2], damage)]
        });
        assert_eq!(found.expect("the other mirror has it"), 0, "{damage:?}");
    }
}

/// An older root leads to what may be gone: none is taken without a word.
#[test]
fn a_newest_root_damaged_in_both_mirrors_refuses() {
    for (i, damage) in ROOT_DAMAGE.into_iter().enumerate() {
        let other = ROOT_DAMAGE[(i * 5 + 3) % ROOT_DAMAGE.len()];
        let found = with(i % 2 == 0, |own| {
            let roots = newest_roots(own);
            vec![(roots[0], damage), (roots[1], other)]
        });
        let refused = matches!(found, Err(PblkError::Root | PblkError::Version(_)));
        assert!(refused, "{damage:?} and {other:?}: {found:?}");
    }
}

/// The first of each kind that is damaged: detected, whatever it is.
#[test]
fn each_kind_of_page_is_told() {
    let (geometry, chunks, mut medium) = Rig::filled(true).end();
    let own = own_blocks(&geometry, &chunks, &mut medium);
    assert!(own[..3].iter().all(|blocks| !blocks.is_empty()), "{own:?}");
    // All pages of the map and the table at once, with a bit that leads to
    // another block of the drive: without checksums this is wrong data.
    let pages = |own: &[Vec<(Tag, Ppa)>; 4]| -> Vec<(Ppa, Damage)> {
        own[0].iter().map(|&(_, ppa)| (ppa, Damage::Data(40, 1))).collect()
    };
    let refused = with(true, pages);
    assert!(matches!(refused, Err(PblkError::Root)), "the table's page: {refused:?}");
    let map_only = with(true, |own| {
        let pages = own[0].iter().filter(|(tag, _)| tag.id & 0xffff == 0);
        pages.map(|&(_, ppa)| (ppa, Damage::Data(40, 1))).collect()
    });
    assert!(map_only.as_ref().is_ok_and(|&lost| lost > 0), "the first map page: {map_only:?}");
    let directory = with(true, |own| vec![(own[1].last().unwrap().1, Damage::Data(8, 1))]);
    assert!(directory.is_err() || directory.is_ok_and(|lost| lost == 0));
}

/// A page of the map that is another, and whole: two blocks of it are each other's. When
/// they are moved they are not what the map says, and read as errors from then on.
#[test]
fn a_page_that_leads_to_others_blocks_is_told_when_these_are_moved() {
    let (geometry, chunks, mut medium) = Rig::filled(true).end();
    damage_first_page(&geometry, &chunks, &mut medium, Damage::Swapped(0, 1));
    let mut rig = found(geometry, &chunks, medium);
    assert_eq!(rig.block(BlockOp::Read, 0, 0), (Status::SUCCESS, value(1)));
    let blocks = rig.drive.shape().bytes / BLOCK_BYTES;
    for i in 0..blocks * 12 {
        let block = 2 + port::random::mix(i) % (blocks - 2);
        assert_eq!(rig.block(BlockOp::Write, block, value(block)).0, Status::SUCCESS);
    }
    for block in 0..2 {
        assert_eq!(rig.block(BlockOp::Read, block, 0).0, Status::UNRECOVERED_READ);
        assert_eq!(rig.block(BlockOp::Write, block, value(block)).0, Status::SUCCESS);
    }
    for block in 0..blocks {
        assert_eq!(rig.block(BlockOp::Read, block, 0), (Status::SUCCESS, value(block)));
    }
}

/// A page that leads block 0 to an old copy of another block. When that copy is collected
/// it is not written again with its tag: a start after a cut would take it for newer than
/// what the other block's page leads to, though that was flushed.
#[test]
fn an_old_copy_that_a_page_leads_to_does_not_come_back_with_a_cut() {
    for other in (8..40).step_by(8) {
        let mut rig = Rig::filled(false);
        let blocks = rig.drive.shape().bytes / BLOCK_BYTES;
        for block in 8..40 {
            rig.good(BlockOp::Write, block, value(block) + 5);
        }
        // The newer copies are in other chunks.
        for block in (64..64 + blocks / 4).chain(8..40) {
            rig.good(BlockOp::Write, block, value(block));
        }
        rig.close();
        let (geometry, chunks, mut medium) = rig.end();
        let all = tags(&geometry, &chunks, &mut medium);
        let mut is_old = |&&(tag, ppa): &&(Tag, Ppa)| {
            let mut data = [0; 8];
            tag.id == other
                && medium.below().read(ppa, 1, &mut data, &mut []) == Moved::Done
                && u64::from_le_bytes(data) == value(other) + 5
        };
        let &(_, ppa) = all.iter().find(|one| is_old(one)).expect("it is there still");
        damage_first_page(&geometry, &chunks, &mut medium, Damage::Word(0, leads_to(ppa)));
        let mut rig = found(geometry, &chunks, medium);
        assert_eq!(rig.block(BlockOp::Read, 0, 0), (Status::SUCCESS, value(other) + 5));
        assert_eq!(rig.block(BlockOp::Read, other, 0), (Status::SUCCESS, value(other)));
        for i in 0.. {
            let block = 64 + port::random::mix(i) % (blocks - 64);
            rig.good(BlockOp::Write, block, value(block));
            if rig.block(BlockOp::Read, 0, 0).0 == Status::UNRECOVERED_READ {
                break;
            }
        }
        let (geometry, chunks, medium) = rig.end();
        let mut rig = found(geometry, &chunks, medium);
        for block in 1..64 {
            assert_eq!(rig.block(BlockOp::Read, block, 0), (Status::SUCCESS, value(block)));
        }
    }
}

/// A page that leads block 0 to where nothing was at the checkpoint, and to where another
/// block was written since: an error, and the other is as it was.
#[test]
fn a_page_that_leads_behind_what_there_was_takes_nothing_from_others() {
    let (geometry, chunks, medium) = Rig::filled(true).end();
    let mut rig = found(geometry, &chunks, medium);
    for block in 8..40 {
        rig.good(BlockOp::Write, block, value(block) + 5);
    }
    rig.good(BlockOp::Flush, 0, 0);
    let (geometry, chunks, mut medium) = rig.end();
    let all = tags(&geometry, &chunks, &mut medium);
    let newest = all.iter().filter(|(tag, _)| tag.id == 20).max_by_key(|(tag, _)| tag.seq);
    let &(_, ppa) = newest.expect("it was written");
    damage_first_page(&geometry, &chunks, &mut medium, Damage::Word(0, leads_to(ppa)));
    let mut rig = found(geometry, &chunks, medium);
    assert_eq!(rig.block(BlockOp::Read, 0, 0).0, Status::UNRECOVERED_READ);
    for block in 1..rig.drive.shape().bytes / BLOCK_BYTES {
        let newest = value(block) + if (8..40).contains(&block) { 5 } else { 0 };
        assert_eq!(rig.block(BlockOp::Read, block, 0), (Status::SUCCESS, newest));
    }
}

/// Where a block of the table cannot be read the refusal says which.
#[test]
fn what_cannot_be_read_is_named() {
    let mut gone = Vec::new();
    let (geometry, chunks, mut medium) = Rig::filled(true).end();
    for &(_, ppa) in &own_blocks(&geometry, &chunks, &mut medium)[0] {
        gone.push(ppa);
        medium.script::<Rotten>().damage.insert(ppa.0, Damage::Gone);
    }
    match start(&geometry, &chunks, medium) {
        Err(PblkError::Unread { ppa, status: Status::UNRECOVERED_READ }) => {
            assert!(gone.contains(&ppa), "{ppa:?}");
        }
        found => panic!("{found:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn damage_is_an_error_and_never_wrong_data(
        ends: bool,
        places in prop::collection::vec((0usize..4, any::<prop::sample::Index>()), 1..6),
        kind in 0u32..3, byte in 0usize..4096, flip in 1u8..,
    ) {
        let damage = match kind {
            0 => Damage::Data(byte, flip),
            1 => Damage::Tag(byte % TAG_BYTES, flip),
            _ => Damage::Gone,
        };
        let _ = with(ends, |own| {
            let of = places.iter().filter(|(kind, _)| !own[*kind].is_empty());
            of.map(|(kind, at)| (own[*kind][at.index(own[*kind].len())].1, damage)).collect()
        });
    }
}
