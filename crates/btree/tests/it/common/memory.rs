//! Drives in memory, with blocks or with batches, that lose what they may when they are cut.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use port::{
    BLOCK_BYTES, BatchDone, BatchOp, BatchReq, BatchShape, BlockDone, BlockOp, BlockReq, Desc,
    Port, Ring, Shape, Status, Time,
};
use workload::Rng;

/// After how many events a drive stops, for ever.
pub type Fuse = Rc<Cell<u64>>;

/// A fuse that never blows.
pub fn no_fuse() -> Fuse {
    Rc::new(Cell::new(u64::MAX))
}

/// A block of a drive.
pub type Block = Box<[u8]>;

/// A block drive with a volatile cache, in memory: commands take random times,
/// writes are applied when they complete, and are durable after a flush that
/// was submitted later. What was not flushed survives a crash or not, each
/// block by itself.
pub struct MemoryDrive {
    pub shape: Shape,
    durable: HashMap<u64, Block>,
    /// Written and not known to be durable, oldest first.
    volatile: Vec<(u64, Block)>,
    inside: Vec<(Time, u64, BlockReq)>,
    order: u64,
    rng: Rng,
    fuse: Fuse,
    /// Blocks that cannot be read until they are written again.
    pub lost: Vec<u64>,
    /// Blocks that were read.
    pub reads: u64,
    /// What a flush takes beyond other commands, in ns.
    pub slow_flush: u64,
    /// Flushes that were done.
    pub flushes: u64,
}

impl MemoryDrive {
    pub fn new(blocks: u64, seed: u64, fuse: Fuse) -> MemoryDrive {
        let shape = Shape {
            bytes: blocks * BLOCK_BYTES,
            kept: BLOCK_BYTES as u32,
            max_bytes: 16 * BLOCK_BYTES,
            depth: 128,
        };
        MemoryDrive {
            shape,
            durable: HashMap::new(),
            volatile: Vec::new(),
            inside: Vec::new(),
            order: 0,
            rng: Rng::new(seed, 0),
            fuse,
            lost: Vec::new(),
            reads: 0,
            flushes: 0,
            slow_flush: 0,
        }
    }

    /// Another drive that holds the same. All was flushed.
    pub fn copy(&self) -> MemoryDrive {
        assert!(self.volatile.is_empty() && self.inside.is_empty(), "all was flushed");
        let blocks = self.shape.bytes / BLOCK_BYTES;
        MemoryDrive { durable: self.durable.clone(), ..MemoryDrive::new(blocks, 1, no_fuse()) }
    }

    /// The drive after a power cut.
    pub fn crash(mut self, seed: u64, fuse: Fuse) -> MemoryDrive {
        let mut rng = Rng::new(seed, 1);
        // Writes that are under way may have been applied, too.
        self.inside.sort_by_key(|one| one.1);
        let under_way = std::mem::take(&mut self.inside);
        for (_, _, req) in under_way.into_iter().filter(|one| one.2.op == BlockOp::Write) {
            self.write(&req);
        }
        let survival = rng.below(4);
        for (block, bytes) in std::mem::take(&mut self.volatile) {
            let survives = match survival {
                0 => false,
                1 => true,
                // What was written, and no trim.
                2 => bytes.iter().any(|&byte| byte != 0),
                _ => rng.below(2) == 0,
            };
            if survives {
                self.durable.insert(block, bytes);
            }
        }
        (self.rng, self.fuse) = (rng, fuse);
        self
    }

    /// Changes a byte of a block, also in what is not durable yet.
    pub fn flip(&mut self, block: u64, byte: usize) {
        if let Some(bytes) = self.durable.get_mut(&block) {
            bytes[byte] ^= 0x10;
        }
        for (_, bytes) in self.volatile.iter_mut().filter(|(at, _)| *at == block) {
            bytes[byte] ^= 0x10;
        }
    }

    /// Makes a block as it was before anything was written.
    pub fn blank(&mut self, block: u64) {
        self.durable.remove(&block);
        self.volatile.retain(|(at, _)| *at != block);
    }

    /// What a block has now.
    pub fn peek(&self, block: u64) -> Option<&Block> {
        self.read(block)
    }

    /// Blocks with anything but zeros, in order.
    pub fn written(&self) -> Vec<u64> {
        let all = self.durable.iter().map(|(block, bytes)| (*block, bytes));
        let all = all.chain(self.volatile.iter().map(|(block, bytes)| (*block, bytes)));
        let mut all: Vec<u64> =
            all.filter(|one| one.1.iter().any(|&b| b != 0)).map(|one| one.0).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn read(&self, block: u64) -> Option<&Block> {
        let newest = self.volatile.iter().rev().find(|(at, _)| *at == block);
        newest.map(|(_, bytes)| bytes).or_else(|| self.durable.get(&block))
    }

    fn write(&mut self, req: &BlockReq) {
        let first = req.offset / BLOCK_BYTES;
        for (i, bytes) in req.buffer.bytes().chunks(BLOCK_BYTES as usize).enumerate() {
            self.volatile.push((first + i as u64, bytes.into()));
            self.lost.retain(|&lost| lost != first + i as u64);
        }
    }

    /// What these blocks have survives a crash.
    fn make_durable(&mut self, blocks: std::ops::Range<u64>) {
        for (block, bytes) in std::mem::take(&mut self.volatile) {
            if blocks.contains(&block) {
                self.durable.insert(block, bytes);
            } else {
                self.volatile.push((block, bytes));
            }
        }
    }

    fn apply(&mut self, req: &mut BlockReq) -> Status {
        let first = req.offset / BLOCK_BYTES;
        let blocks = first..first + req.len / BLOCK_BYTES;
        self.reads += if req.op == BlockOp::Read { req.len / BLOCK_BYTES } else { 0 };
        if req.op == BlockOp::Read && self.lost.iter().any(|lost| blocks.contains(lost)) {
            return Status::UNRECOVERED_READ;
        }
        match req.op {
            BlockOp::Read => {
                for i in 0..req.len / BLOCK_BYTES {
                    let from = self.read(first + i).cloned();
                    let at = (i * BLOCK_BYTES) as usize;
                    let to = &mut req.buffer.bytes_mut()[at..at + BLOCK_BYTES as usize];
                    match from {
                        Some(bytes) => to.copy_from_slice(&bytes),
                        None => to.fill(0),
                    }
                }
            }
            BlockOp::Write => {
                self.write(req);
                if req.fua {
                    self.make_durable(blocks);
                }
            }
            BlockOp::Flush => {
                self.flushes += 1;
                for (block, bytes) in std::mem::take(&mut self.volatile) {
                    self.durable.insert(block, bytes);
                }
            }
            BlockOp::Trim | BlockOp::WriteZeroes => {
                let zeros = |block| (block, vec![0; BLOCK_BYTES as usize].into());
                self.volatile.extend(blocks.map(zeros));
            }
        }
        Status::SUCCESS
    }
}

impl Port for MemoryDrive {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.inside.len() < self.shape.depth
            && let Some(req) = cmds.pop()
        {
            let status = self.shape.check(&req);
            assert!(status.is_ok(), "{req:?}: {status}");
            let slow = if req.op == BlockOp::Flush { self.slow_flush } else { 0 };
            let at = now + 1000 + self.rng.below(100_000) + slow;
            self.order += 1;
            self.inside.push((at, self.order, req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.fuse.get() == 0 { None } else { self.inside.iter().map(|one| one.0).min() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0 && self.fuse.get() > 0 {
            let next = (0..self.inside.len()).min_by_key(|&i| (self.inside[i].0, self.inside[i].1));
            let Some(next) = next.filter(|&i| self.inside[i].0 <= to) else { return };
            let (at, _, mut req) = self.inside.swap_remove(next);
            self.fuse.set(self.fuse.get() - 1);
            let status = self.apply(&mut req);
            let BlockReq { id, op, buffer, .. } = req;
            done.put(|| BlockDone { id, op, status, at, buffer });
        }
    }
}

/// A drive with the batched interface: batches become durable in order, each
/// whole, when they complete. After a crash some of those that were under way
/// are there, the first of them.
pub struct BatchDrive {
    pub shape: BatchShape,
    pages: HashMap<u64, Block>,
    inside: Vec<(Time, u64, BatchReq)>,
    /// When the last batch completes: later ones do not before.
    last: Time,
    order: u64,
    rng: Rng,
    fuse: Fuse,
    /// From now on all writes fail.
    pub fails: bool,
}

impl BatchDrive {
    pub fn new(pages: u64, seed: u64, fuse: Fuse) -> BatchDrive {
        let kept = BLOCK_BYTES as u32;
        let shape = BatchShape { pages, kept, max_pages: 256, depth: 64 };
        BatchDrive {
            shape,
            pages: HashMap::new(),
            inside: Vec::new(),
            last: Time::ZERO,
            order: 0,
            rng: Rng::new(seed, 0),
            fuse,
            fails: false,
        }
    }

    pub fn crash(mut self, seed: u64, fuse: Fuse) -> BatchDrive {
        let mut rng = Rng::new(seed, 1);
        self.inside.sort_by_key(|one| one.1);
        let batches = |one: &(Time, u64, BatchReq)| one.2.op == BatchOp::WriteBatch;
        let under_way: Vec<_> =
            std::mem::take(&mut self.inside).into_iter().filter(batches).collect();
        let survive = rng.below(under_way.len() as u64 + 1) as usize;
        for (_, _, req) in &under_way[..survive] {
            self.write(req);
        }
        (self.rng, self.fuse, self.last) = (rng, fuse, Time::ZERO);
        self
    }

    pub fn flip(&mut self, page: u64, byte: usize) {
        if let Some(bytes) = self.pages.get_mut(&page) {
            bytes[byte] ^= 0x10;
        }
    }

    /// Makes its pages those of version 1, where heads began with their keys. Gives how
    /// many did not.
    pub fn make_older(&mut self) -> usize {
        let mut skipped = 0;
        for (&number, page) in &mut self.pages {
            let (kind, count) = (page[16], usize::from(u16::from_le_bytes([page[18], page[19]])));
            match kind {
                1 => page[40..44].copy_from_slice(&1u32.to_le_bytes()),
                2 | 3 => {
                    skipped += usize::from(count >> 9 > 0);
                    page[19] &= 1;
                    for slot in (32..32 + (count & 0x1ff) * 8).step_by(8) {
                        let cell = u16::from_le_bytes([page[slot + 4], page[slot + 5]]);
                        let key = usize::from(cell) + if kind == 2 { 4 } else { 8 };
                        let len = usize::from(page[slot + 6]).min(4);
                        let mut head = [0; 4];
                        head[..len].copy_from_slice(&page[key..key + len]);
                        head.reverse();
                        page[slot..slot + 4].copy_from_slice(&head);
                    }
                }
                _ => continue,
            }
            btree::store::seal(number, &mut page[..]);
        }
        skipped
    }

    pub fn version(&self) -> u8 {
        self.pages[&0][40]
    }

    pub fn written(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.pages.keys().copied().collect();
        all.sort_unstable();
        all
    }

    fn write(&mut self, req: &BatchReq) {
        let bytes = req.buffer.bytes();
        let desc = Desc::parse(bytes).unwrap();
        for (lpid, page) in desc.lpids().zip(bytes[BLOCK_BYTES as usize..].chunks(4096)) {
            self.pages.insert(lpid, page.into());
        }
        for lpid in desc.lpids().skip(desc.written()) {
            self.pages.remove(&lpid);
        }
    }
}

impl Port for BatchDrive {
    type Cmd = BatchReq;
    type Done = BatchDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BatchReq>) {
        while self.inside.len() < self.shape.depth
            && let Some(req) = cmds.pop()
        {
            let status = self.shape.check(&req);
            assert!(status.is_ok(), "{req:?}: {status}");
            let mut at = now + 1000 + self.rng.below(100_000);
            if req.op != BatchOp::Read {
                at = at.max(self.last + 1);
                self.last = at;
            }
            self.order += 1;
            self.inside.push((at, self.order, req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.fuse.get() == 0 { None } else { self.inside.iter().map(|one| one.0).min() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BatchDone>) {
        while done.room() > 0 && self.fuse.get() > 0 {
            let next = (0..self.inside.len()).min_by_key(|&i| (self.inside[i].0, self.inside[i].1));
            let Some(next) = next.filter(|&i| self.inside[i].0 <= to) else { return };
            let (at, _, mut req) = self.inside.swap_remove(next);
            self.fuse.set(self.fuse.get() - 1);
            let mut status = Status::SUCCESS;
            match req.op {
                BatchOp::Read => match self.pages.get(&req.lpid) {
                    Some(page) => req.buffer.bytes_mut().copy_from_slice(page),
                    None => status = Status::UNWRITTEN,
                },
                BatchOp::WriteBatch if self.fails => status = Status::WRITE_FAULT,
                BatchOp::WriteBatch => self.write(&req),
                BatchOp::Flush => {}
            }
            let BatchReq { id, op, buffer, .. } = req;
            done.put(|| BatchDone { id, op, status, at, buffer });
        }
    }
}
