//! Checkpoints that meet failures: a block that is lost while rows settle,
//! anchors that take no root, and a root that one mirror alone has.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use device::Device;
use faults::{Below, Script, ScriptedMedium};
use flash::{Chunk, ChunkState, Dimensions, Geometry, Moved, Ppa, TAG_BYTES, Tag, Timing};
use port::{BLOCK_BYTES, BlockOp, Status, Time};
use targets::pblk::PblkError;
use targets::{Pblk, PblkConfig, with_reserve};

const DATA_CHUNKS: u32 = 6;

/// What a medium refuses, by block.
#[derive(Clone, Debug, Default)]
struct Refused {
    reads: HashSet<u64>,
    programs: HashSet<u64>,
}

struct Weak(Rc<RefCell<Refused>>);

impl Script for Weak {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        let mut blocks = at.0..at.0 + u64::from(count);
        if blocks.any(|ppa| self.0.borrow().programs.contains(&ppa)) {
            return Moved::Failed;
        }
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
        let mut blocks = at.0..at.0 + u64::from(count);
        if blocks.any(|ppa| self.0.borrow().reads.contains(&ppa)) {
            return Moved::Failed;
        }
        below.read(at, count, data, tags)
    }
}

fn geometry(groups: u32, pages: u32) -> Geometry {
    let chunks = DATA_CHUNKS;
    let dim = Dimensions { groups, chunks, pages, page_bytes: 8192, ..Dimensions::LEAST };
    Geometry::new(with_reserve(dim)).unwrap()
}

fn timing() -> Timing {
    Timing { read: vec![50_000], program: vec![600_000], erase: 300_000, ..Timing::default() }
}

fn config(geometry: &Geometry) -> PblkConfig {
    let space = u64::from(DATA_CHUNKS * geometry.chunk_blocks() * geometry.total_pus());
    let bytes = space / 2 * BLOCK_BYTES;
    PblkConfig::new(bytes, DATA_CHUNKS, 7)
}

type Drive = Pblk<Device<ScriptedMedium>>;

/// What a test knows of its drive.
struct More {
    geometry: Geometry,
    refused: Rc<RefCell<Refused>>,
}

type Host = crate::host::Host<Drive, More>;

impl Host {
    fn of(groups: u32, pages: u32) -> Host {
        let geometry = geometry(groups, pages);
        let refused = Rc::new(RefCell::new(Refused::default()));
        let medium = ScriptedMedium::ram(&geometry, 8, Weak(refused.clone()));
        let device = Device::new(&geometry, &timing(), medium).unwrap();
        let drive = Pblk::new(device, config(&geometry)).unwrap();
        Host::over(drive, Time::ZERO, geometry, refused)
    }

    /// A drive with the anchors in `bad` (unit and number) out of use from the
    /// factory.
    fn with_bad_anchors(pages: u32, bad: &[(usize, u32)]) -> Host {
        let geometry = geometry(2, pages);
        let refused = Rc::new(RefCell::new(Refused::default()));
        let medium = || ScriptedMedium::ram(&geometry, 8, Weak(refused.clone()));
        let mut chunks = Device::new(&geometry, &timing(), medium()).unwrap().chunks().to_vec();
        for &(unit, number) in bad {
            chunks[geometry.chunk_of(unit, number)].state = ChunkState::Offline;
        }
        let device = Device::restore(&geometry, &timing(), medium(), &chunks).unwrap();
        let drive = Pblk::new(device, config(&geometry)).unwrap();
        Host::over(drive, Time::ZERO, geometry, refused)
    }

    /// Overwrites for a while, with a checkpoint now and then. False when the drive
    /// took no more.
    fn overwrite(&mut self, from: u64, count: u64) -> bool {
        for i in from..from + count {
            if self.block(BlockOp::Write, i * 5 % self.blocks(), i + 1).0 != Status::SUCCESS {
                return false;
            }
            if i % 60 == 59 {
                self.checkpoint();
            }
        }
        self.block(BlockOp::Flush, 0, 0).0 == Status::SUCCESS
    }

    /// A checkpoint: chunks of data are wanted refreshed.
    fn checkpoint(&mut self) {
        for pu in self.more.geometry.pus_channels_first() {
            for number in 3..self.more.geometry.chunks() {
                let at = self.more.geometry.chunk_start(self.more.geometry.chunk_of(pu, number));
                self.drive.refresh_chunk(self.now, at);
            }
        }
        self.rest();
    }

    fn over(drive: Drive, now: Time, geometry: Geometry, refused: Rc<RefCell<Refused>>) -> Host {
        Host::new(drive, now, More { geometry, refused })
    }

    /// Power goes, and comes again.
    fn restart(self) -> Result<Host, PblkError> {
        let device = self.drive.into_device();
        let chunks = device.chunks().to_vec();
        start(device.cut(), &chunks, self.more.geometry, self.more.refused)
    }

    fn blocks(&self) -> u64 {
        self.drive.shape().bytes / BLOCK_BYTES
    }

    fn flush(&mut self) {
        self.good(BlockOp::Flush, 0, 0);
    }

    fn all(&mut self) -> Vec<(Status, u64)> {
        (0..self.blocks()).map(|block| self.block(BlockOp::Read, block, 0)).collect()
    }

    /// The blocks of a chunk.
    fn of_chunk(&self, chunk: usize) -> std::ops::Range<u64> {
        let start = self.more.geometry.chunk_start(chunk).0;
        start..start + u64::from(self.more.geometry.chunk_blocks())
    }
}

fn start(
    medium: ScriptedMedium,
    chunks: &[Chunk],
    geometry: Geometry,
    refused: Rc<RefCell<Refused>>,
) -> Result<Host, PblkError> {
    let device = Device::restore(&geometry, &timing(), medium, chunks).unwrap();
    let (drive, now) = Pblk::recover(device, config(&geometry), Time::ZERO)?;
    Ok(Host::over(drive, now, geometry, refused))
}

/// The tags of what is programmed of a chunk.
fn tags(
    medium: &mut ScriptedMedium,
    geometry: &Geometry,
    chunk: usize,
    programmed: u32,
) -> Vec<(Ppa, Tag)> {
    let start = geometry.chunk_start(chunk).0;
    let mut found = Vec::new();
    for ppa in (start..start + u64::from(programmed)).map(Ppa) {
        let mut bytes = [0; TAG_BYTES];
        assert_eq!(medium.below().read(ppa, 1, &mut [], &mut bytes), Moved::Done);
        found.push((ppa, Tag::load(&bytes)));
    }
    found
}

/// A copy cannot be read while a checkpoint waits for the row with the next
/// one, which was sent before it began: that next one counts, also after a cut.
#[test]
fn what_is_lost_while_rows_settle_is_not_what_came_after() {
    const NEW: u64 = 77;
    for rows_before in 0..4 {
        let mut host = Host::of(4, 4);
        // Block 0 is the first of the first unit's first chunk of data.
        for block in 0..32 + 2 * rows_before {
            host.block(BlockOp::Write, block, 1000 + block);
        }
        // The next row begins a checkpoint.
        while host.drive.since_checkpoint() + 1 < host.drive.checkpoint_rows() {
            let block = 2 * (host.drive.since_checkpoint() % 8) + 32;
            host.block(BlockOp::Write, block, 5);
            host.block(BlockOp::Write, block + 1, 5);
            host.rest();
        }
        let at = host.more.geometry.chunk_start(host.more.geometry.chunk_of(0, 3));
        host.more.refused.borrow_mut().reads.insert(at.0);
        host.block(BlockOp::Write, 0, NEW);
        host.block(BlockOp::Write, 60, NEW);
        assert!(host.drive.refresh_chunk(host.now, at));
        host.rest();
        host.flush();
        host.rest();
        assert_eq!(host.drive.counters().lost, 1);
        assert!(host.drive.since_checkpoint() < 20, "there was a checkpoint");
        assert_eq!(host.block(BlockOp::Read, 0, 0), (Status::SUCCESS, NEW));
        let mut host = host.restart().unwrap();
        assert_eq!(host.block(BlockOp::Read, 0, 0), (Status::SUCCESS, NEW));
    }
}

/// Where no anchor takes a root any more, what the last one leads to stays.
#[test]
fn without_an_anchor_the_last_root_holds() {
    for late in 0..24 {
        let mut host = Host::of(1, 2);
        let mut values = vec![0; host.blocks() as usize];
        for i in 0..400 + 7 * late {
            let block = i * 5 % host.blocks();
            assert_eq!(host.block(BlockOp::Write, block, i + 1).0, Status::SUCCESS);
            values[block as usize] = i + 1;
        }
        host.flush();
        for number in 0..3 {
            let blocks = host.of_chunk(host.more.geometry.chunk_of(0, number));
            host.more.refused.borrow_mut().programs.extend(blocks);
        }
        for i in 1000.. {
            let block = i * 5 % host.blocks();
            if host.block(BlockOp::Write, block, i).0 != Status::SUCCESS {
                break;
            }
            assert!(i < 6000, "it never ends");
        }
        host.rest();
        assert!(host.drive.is_read_only());
        host.more.refused.borrow_mut().programs.clear();
        let mut host = host.restart().expect("the last root leads to all that it needs");
        for (block, read) in host.all().into_iter().enumerate() {
            assert_eq!(read.0, Status::SUCCESS);
            let is_later = read.1 > 999 && read.1 * 5 % host.blocks() == block as u64;
            assert!(read.1 == values[block] || is_later, "{block}: {}", read.1);
        }
    }
}

/// By mirror: the highest number of a root, and where its blocks are.
fn newest_roots(
    medium: &mut ScriptedMedium,
    geometry: &Geometry,
    chunks: &[Chunk],
) -> [(u64, Vec<u64>); 2] {
    let mut newest = [(0, Vec::new()), (0, Vec::new())];
    for (of, pu) in newest.iter_mut().zip(geometry.pus_channels_first()) {
        let anchors = (0..3).map(|number| geometry.chunk_of(pu, number));
        let all = anchors
            .flat_map(|chunk| tags(medium, geometry, chunk, chunks[chunk].programmed))
            .filter(|(_, tag)| tag.id >> 56 == 0x43);
        for (ppa, tag) in all {
            if tag.seq > of.0 {
                *of = (tag.seq, Vec::new());
            }
            if tag.seq == of.0 {
                of.1.push(ppa.0);
            }
        }
    }
    newest
}

/// A start that takes up a root that one mirror alone has sees to it that the
/// next start does, too, or refuses: also where that mirror cannot be read
/// then.
#[test]
fn what_one_start_takes_up_the_next_does() {
    let mut alone = 0;
    for events in 0..600 {
        let mut host = Host::of(2, 2);
        // Each time with another phase of the work.
        let (mut i, mut left) = (events, 80 + events);
        while left > 0 {
            if host.queue.is_empty() {
                let op = match i % 7 {
                    6 => BlockOp::Flush,
                    2 | 4 => BlockOp::Trim,
                    _ => BlockOp::Write,
                };
                host.begin_block(op, i * 5 % host.blocks(), i + 1);
                i += 1;
            }
            left -= u64::from(host.step());
            while host.done.pop().is_some() {}
        }
        let Host { drive, more: More { geometry, refused }, .. } = host;
        let device = drive.into_device();
        let chunks = device.chunks().to_vec();
        let mut medium = device.cut();
        let before = newest_roots(&mut medium, &geometry, &chunks);
        alone += u64::from(before[0].0 != before[1].0);

        let mut host = start(medium, &chunks, geometry, refused).expect("all can be read");
        let first = host.all();
        let Host { drive, more: More { refused, .. }, .. } = host;
        let device = drive.into_device();
        let chunks = device.chunks().to_vec();
        let mut medium = device.cut();
        let after = newest_roots(&mut medium, &geometry, &chunks);
        let bad = &after[usize::from(after[1].0 > after[0].0)].1;
        refused.borrow_mut().reads.extend(bad);
        match start(medium, &chunks, geometry, refused) {
            Ok(mut host) => assert_eq!(host.all(), first, "after {events} events"),
            Err(PblkError::Root) => {}
            Err(other) => panic!("after {events} events: {other}"),
        }
    }
    assert!(alone > 0, "a cut came between the mirrors");
}

/// One mirror has one chunk for roots; of the other's two a program of one
/// failed before the last start. The one that is left takes roots by turns with
/// the first mirror's: no mirror stays behind, and the drive goes on.
#[test]
fn a_mirror_goes_on_with_its_good_chunk_when_the_other_had_failed() {
    for more in 0..20 {
        let mut host = Host::with_bad_anchors(2, &[(0, 1), (0, 2), (1, 2)]);
        let bad = host.of_chunk(host.more.geometry.chunk_of(1, 1));
        host.more.refused.borrow_mut().programs.extend(bad);
        assert!(host.overwrite(0, 1000 + 7 * more));
        host.rest();
        let mut host = host.restart().unwrap();
        assert!(host.overwrite(2000, 300 + 40 * more), "it is read-only ({more})");
        host.rest();
        let device = host.drive.into_device();
        let chunks = device.chunks().to_vec();
        let roots = newest_roots(&mut device.cut(), &host.more.geometry, &chunks);
        assert_eq!(roots[0].0, roots[1].0, "{more}");
    }
}

/// Of a failed program a chunk may show no more than that it was closed: over
/// parity the data are all there. A mirror with such a chunk may be behind.
#[test]
fn a_mirror_that_was_closed_early_may_be_behind() {
    let mut behind = 0;
    for more in 0..6 {
        let mut host = Host::with_bad_anchors(8, &[(0, 1), (0, 2), (1, 1), (1, 2)]);
        assert!(host.overwrite(0, 130));
        let bad = host.of_chunk(host.more.geometry.chunk_of(1, 0));
        host.more.refused.borrow_mut().programs.extend(bad);
        // Until the other's chunk is full, at most.
        host.overwrite(1000, 900 + 60 * more);
        host.rest();
        let Host { drive, more: More { geometry, refused }, .. } = host;
        let device = drive.into_device();
        let mut chunks = device.chunks().to_vec();
        let mut medium = device.cut();
        let roots = newest_roots(&mut medium, &geometry, &chunks);
        behind += u64::from(roots[1].0 < roots[0].0);
        chunks[geometry.chunk_of(1, 0)].failed = Chunk::default().failed;
        let first = geometry.chunk_start(geometry.chunk_of(0, 0)).0;
        refused.borrow_mut().reads.extend(first..first + u64::from(geometry.chunk_blocks()));
        let error = start(medium, &chunks, geometry, refused).err();
        assert!(matches!(error, Some(PblkError::Root)), "{error:?}");
    }
    assert!(behind > 0);
}

/// The only chunk of a mirror grows old, too: it is written anew while the other
/// mirror keeps its root.
#[test]
fn the_only_chunk_for_roots_is_refreshed() {
    for (more, unit) in (0..8).flat_map(|more| [(more, 0), (more, 1)]) {
        let mut host = Host::with_bad_anchors(8, &[(0, 1), (0, 2), (1, 1), (1, 2)]);
        assert!(host.overwrite(0, 130 + 60 * more));
        host.rest();
        let chunk = host.more.geometry.chunk_of(unit, 0);
        let at = host.more.geometry.chunk_start(chunk);
        assert!(host.drive.refresh_chunk(host.now, at));
        host.rest();
        assert!(!host.drive.is_read_only());
        let device = host.drive.into_device();
        let chunks = device.chunks().to_vec();
        let roots = newest_roots(&mut device.cut(), &host.more.geometry, &chunks);
        assert_eq!(roots[0].0, roots[1].0);
        let first = roots[unit].1.iter().min().copied();
        assert_eq!(first, Some(at.0), "the newest root is the chunk's first");
    }
}

/// What a start counts since the last root is nothing where nothing was written:
/// chunks for roots have worn all their life.
#[test]
fn starts_count_nothing_twice() {
    let mut host = Host::with_bad_anchors(8, &[(0, 2)]);
    assert!(host.overwrite(0, 3000));
    for round in 0..4 {
        host.checkpoint();
        let before = host.drive.counters();
        host = host.restart().unwrap();
        let after = host.drive.counters();
        // Of what collection wrote since, some is not known.
        let known = after.user == before.user && before.gc - after.gc.min(before.gc) < 64;
        let nothing_twice = after.gc < before.gc + 8 && after.erases < before.erases + 4;
        assert!(known && nothing_twice, "{round}: {before:?} {after:?}");
        assert!(host.overwrite(5000, 60));
    }
}
