//! A block drive in memory with a volatile cache, whose image outlives it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use btree::Awaited;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Time};
use rocksdb_beside::disk::Disk;

/// What a drive holds: what is durable, and what would be lost.
#[derive(Clone, Default)]
pub struct Image {
    durable: HashMap<u64, Vec<u8>>,
    volatile: HashMap<u64, Vec<u8>>,
}

impl Image {
    /// After a power cut.
    pub fn crash(&self) -> Image {
        Image { durable: self.durable.clone(), volatile: HashMap::new() }
    }

    /// Changes a bit of a durable block.
    #[allow(dead_code, reason = "not every test damages")]
    pub fn flip(&mut self, block: u64, byte: usize) {
        if let Some(bytes) = self.durable.get_mut(&block) {
            bytes[byte] ^= 4;
        }
    }
}

/// The drive: completes what it takes at the next look.
pub struct Memory {
    image: Arc<Mutex<Image>>,
    shape: Shape,
    inside: Vec<BlockReq>,
}

/// A disk of so many MiB on an image.
pub fn disk(image: &Arc<Mutex<Image>>, mib: u64) -> Disk {
    let shape = Shape { bytes: mib << 20, kept: BLOCK_BYTES as u32, max_bytes: 1 << 20, depth: 64 };
    let drive = Memory { image: image.clone(), shape, inside: Vec::new() };
    Disk::new(Box::new(drive), shape)
}

impl Memory {
    fn apply(&self, req: &mut BlockReq) {
        let mut image = self.image.lock().unwrap();
        let Image { durable, volatile } = &mut *image;
        let first = req.offset / BLOCK_BYTES;
        match req.op {
            BlockOp::Read => {
                let chunks = req.buffer.bytes_mut().chunks_mut(BLOCK_BYTES as usize);
                for (block, to) in (first..).zip(chunks) {
                    match volatile.get(&block).or_else(|| durable.get(&block)) {
                        Some(from) => to.copy_from_slice(from),
                        None => to.fill(0),
                    }
                }
            }
            BlockOp::Write => {
                let chunks = req.buffer.bytes().chunks(BLOCK_BYTES as usize);
                volatile.extend((first..).zip(chunks).map(|(block, from)| (block, from.to_vec())));
            }
            BlockOp::Flush => durable.extend(volatile.drain()),
            BlockOp::Trim | BlockOp::WriteZeroes => {
                let blocks = first..first + req.len / BLOCK_BYTES;
                volatile.extend(blocks.map(|block| (block, vec![0; BLOCK_BYTES as usize])));
            }
        }
    }
}

impl Port for Memory {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
        while self.inside.len() < self.shape.depth
            && let Some(req) = cmds.pop()
        {
            let status = self.shape.check(&req);
            assert!(status.is_ok(), "{req:?}: {status}");
            self.inside.push(req);
        }
    }

    fn next_event(&self) -> Option<Time> {
        (!self.inside.is_empty()).then_some(Time::ZERO)
    }

    fn advance(&mut self, at: Time, done: &mut Ring<BlockDone>) {
        // The last first: order is promised to nobody.
        while done.room() > 0
            && let Some(mut req) = self.inside.pop()
        {
            self.apply(&mut req);
            let BlockReq { id, op, buffer, .. } = req;
            done.put(|| BlockDone { id, op, status: port::Status::SUCCESS, at, buffer });
        }
    }
}

impl Awaited for Memory {
    fn wait(&mut self) -> Option<Time> {
        self.next_event()
    }
}
