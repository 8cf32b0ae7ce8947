//! A drive whose memory holds a part of its map: what a miss costs, what changes
//! cost, and that nothing else is different.

use device::{Device, Link, LinkTiming, OpenChannel};
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::random::Random;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::pblk::LEAST_MAP_PAGES;
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const BLOCK: u64 = 4096;
/// Of a page of the map.
const PAGE_BLOCKS: u64 = 1024;
const PAGES: u64 = 16;
const DATA_CHUNKS: u32 = 80;

fn timing() -> Timing {
    Timing { read: vec![50_000], program: vec![600_000], erase: 3_000_000, ..Timing::default() }
}

struct Host {
    drive: Pblk<Box<dyn OpenChannel>>,
    now: Time,
    /// What each block was last written with.
    blocks: Vec<u8>,
}

impl Host {
    /// A drive that holds so many pages of the map; 0 for all.
    fn new(pages: u64) -> Host {
        Host::behind(LinkTiming::default(), pages)
    }

    /// The same, where the target is above a link.
    fn behind(link: LinkTiming, pages: u64) -> Host {
        let dim =
            Dimensions { groups: 2, pus: 2, chunks: DATA_CHUNKS, pages: 64, ..Dimensions::LEAST };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let medium = RamMedium::new(&geometry, BLOCK as u32).unwrap();
        let device = Device::new(&geometry, &timing(), medium).unwrap();
        let bytes = PAGES * PAGE_BLOCKS * BLOCK;
        let (data_chunks, victim) = (DATA_CHUNKS, Victim::Greedy);
        let config =
            PblkConfig { map_pages: pages, victim, ..PblkConfig::new(bytes, data_chunks, 7) };
        let below: Box<dyn OpenChannel> = match link.is_instant() {
            true => Box::new(device),
            false => Box::new(Link::new(link, device)),
        };
        let drive = Pblk::new(below, config).unwrap();
        Host { drive, now: Time::ZERO, blocks: vec![0; (PAGES * PAGE_BLOCKS) as usize] }
    }

    fn request(&self, op: BlockOp, block: u64, count: u64, value: u8) -> BlockReq {
        let len = if op == BlockOp::Flush { 0 } else { count * BLOCK };
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = Buffer::zeroed(if data { len as usize } else { 0 }).unwrap();
        if op == BlockOp::Write {
            buffer.bytes_mut().fill(value);
        }
        let offset = if op == BlockOp::Flush { 0 } else { block * BLOCK };
        BlockReq::new(block, op, offset, len, buffer)
    }

    /// Does these at once. Gives what each took, in the order in which they ended.
    fn all(&mut self, reqs: Vec<BlockReq>) -> Vec<u64> {
        let (mut queue, mut done) = (Ring::new(reqs.len()), Ring::new(1024));
        let (begun, mut left) = (self.now, reqs.len());
        reqs.into_iter().for_each(|req| queue.push(req).unwrap());
        self.drive.submit(self.now, &mut queue);
        let mut times = Vec::new();
        while left > 0 {
            self.now = self.drive.next_event().expect("the drive goes on").max(self.now);
            self.drive.advance(self.now, &mut done);
            while let Some(BlockDone { id, op, status, at, buffer }) = done.pop() {
                assert_eq!(status, Status::SUCCESS);
                if op == BlockOp::Read {
                    let blocks = buffer.bytes().chunks_exact(BLOCK as usize);
                    for (bytes, value) in blocks.zip(&self.blocks[id as usize..]) {
                        assert!(bytes.iter().all(|byte| byte == value), "block {id}");
                    }
                }
                times.push(at - begun);
                left -= 1;
            }
            self.drive.submit(self.now, &mut queue);
        }
        times
    }

    fn one(&mut self, op: BlockOp, block: u64, count: u64) -> u64 {
        self.all(vec![self.request(op, block, count, 0)])[0]
    }

    /// Writes, at random or all.
    fn write(&mut self, blocks: impl Iterator<Item = u64>) {
        for (i, block) in blocks.enumerate() {
            let value = 1 + (i % 255) as u8;
            self.blocks[block as usize] = value;
            self.all(vec![self.request(BlockOp::Write, block, 1, value)]);
        }
    }

    /// All written, all in flash, and the map, too.
    fn filled(pages: u64) -> Host {
        let mut host = Host::new(pages);
        host.write(0..PAGES * PAGE_BLOCKS);
        host.one(BlockOp::Flush, 0, 0);
        // Whatever is written behind is of the last page.
        let last = PAGES * PAGE_BLOCKS - 64;
        while host.drive.counters().metadata < 2 * PAGES {
            host.write(last..last + 64);
        }
        host.one(BlockOp::Flush, 0, 0);
        host.now += 100_000_000;
        host
    }
}

#[test]
fn a_miss_costs_a_read_of_the_flash() {
    let mut host = Host::filled(LEAST_MAP_PAGES);
    // Three others make that of block 0 the one unused for longest.
    for page in 1..6 {
        host.one(BlockOp::Read, page * PAGE_BLOCKS, 1);
    }
    let before = host.drive.map_cache().unwrap();
    assert_eq!(host.one(BlockOp::Read, 0, 1), 100_000, "its page, and the block");
    assert_eq!(host.one(BlockOp::Read, 700, 1), 50_000, "of the same page");
    // Two that want the same page wait for one read of it.
    let page = 9 * PAGE_BLOCKS;
    let both = [page, page + 1].map(|block| host.request(BlockOp::Read, block, 1, 0));
    let times = host.all(both.into());
    assert_eq!(times[0], 100_000);
    let after = host.drive.map_cache().unwrap();
    assert_eq!(after.hits - before.hits, 1);
    assert_eq!(after.misses - before.misses, 3);
    assert_eq!(after.read - before.read, 2);
}

#[test]
fn pages_that_were_never_written_cost_nothing() {
    let mut host = Host::new(LEAST_MAP_PAGES);
    for page in 0..PAGES {
        assert_eq!(host.one(BlockOp::Read, page * PAGE_BLOCKS, 1), 0);
    }
    assert_eq!(host.drive.map_cache().unwrap().read, 0);
}

/// Random writes with a small cache write its pages again and again; with one that
/// holds all of them, as often as without.
#[test]
fn changes_that_do_not_fit_are_written() {
    let metadata = |pages| {
        let mut host = Host::filled(pages);
        let before = host.drive.counters().metadata;
        let mut random = Random::new(5, 0);
        let blocks: Vec<u64> = (0..4000).map(|_| random.below(PAGES * PAGE_BLOCKS)).collect();
        host.write(blocks.into_iter());
        host.drive.counters().metadata - before
    };
    let (without, all, few) = (metadata(0), metadata(PAGES), metadata(LEAST_MAP_PAGES));
    assert_eq!(all, without);
    assert!(few > 1000 && few > 5 * without, "{few} pages against {without}");
}

/// Anything at once, over few pages: it all ends, and reads what was written.
#[test]
fn nothing_hangs_and_nothing_is_wrong() {
    for seed in 0..3 {
        let mut host = Host::new(LEAST_MAP_PAGES + seed);
        let mut random = Random::new(seed, 1);
        let blocks = PAGES * PAGE_BLOCKS;
        for _ in 0..120 {
            // In one round no two touch the same block.
            let mut reqs = Vec::new();
            let mut from = 0;
            while reqs.len() < 40 {
                let block = from + random.below(2 * blocks / 40);
                let long = if random.chance(0.1) { 256 } else { 8 };
                let count = 1 + random.below(long);
                if block + count > blocks {
                    break;
                }
                from = block + count;
                let op = match random.below(10) {
                    0..4 => BlockOp::Read,
                    4..8 => BlockOp::Write,
                    8 => BlockOp::Trim,
                    _ => BlockOp::Flush,
                };
                let value = random.below(256) as u8;
                let range = block as usize..(block + count) as usize;
                match op {
                    BlockOp::Write => host.blocks[range].fill(value),
                    BlockOp::Trim => host.blocks[range].fill(0),
                    _ => {}
                }
                reqs.push(host.request(op, block, count, value));
            }
            host.all(reqs);
        }
        assert!(host.drive.map_cache().unwrap().read > 300, "seed {seed}");
    }
}

/// One request at a time, so that nothing else is under way when a checkpoint ends:
/// who waited for that goes on.
#[test]
fn a_request_alone_goes_on_when_a_checkpoint_has_ended() {
    for latency in [0, 10_000, 1_000_000] {
        let link = LinkTiming { latency, ..LinkTiming::default() };
        let mut host = Host::behind(link, LEAST_MAP_PAGES);
        let mut random = Random::new(latency, 2);
        for _ in 0..3000 {
            let block = random.below(PAGES * PAGE_BLOCKS);
            if random.chance(0.5) {
                host.write(std::iter::once(block));
            } else {
                host.one(BlockOp::Read, block, 1);
            }
        }
        assert!(host.drive.map_cache().unwrap().read > 300, "latency {latency}");
    }
}
