//! A drive in memory whose latencies the test chooses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use port::{BlockDone, BlockOp, BlockReq, Port, Ring, SECTOR_BYTES, Shape, Status, Time};

/// Reads that touch this address fail.
pub const BAD: u64 = 64 << 10;

/// What a test sees of a drive that is being served.
#[derive(Default)]
pub struct Probe {
    /// Sectors written or given up and not flushed.
    pub dirty: AtomicUsize,
    /// Commands that were taken.
    pub taken: AtomicUsize,
    /// The most bytes of trims and writes of zeros that it had at once.
    pub longest: AtomicU64,
    /// The most bytes of reads and writes that it had at once.
    pub data: AtomicU64,
}

pub struct Ram {
    pub shape: Shape,
    pub probe: Arc<Probe>,
    pub data: Vec<u8>,
    dirty: Vec<bool>,
    dirty_count: usize,
    /// It takes no writes, and why.
    pub refuses: Option<Status>,
    /// Bytes of trims and writes of zeros that it has.
    zeroed: u64,
    /// Bytes of reads and writes that it has.
    moving: u64,
    /// Reads wait for each other until there are so many, and begin together:
    /// their order then does not depend on when each of them came.
    pub gather: usize,
    gathered: Vec<BlockReq>,
    latency: fn(&BlockReq) -> u64,
    inside: BTreeMap<(Time, u64), BlockReq>,
    seq: u64,
}

impl Ram {
    pub fn new(shape: Shape, latency: fn(&BlockReq) -> u64) -> Ram {
        Ram {
            shape,
            probe: Arc::default(),
            data: vec![0; if shape.kept == 0 { 0 } else { shape.bytes as usize }],
            dirty: vec![false; (shape.bytes / SECTOR_BYTES) as usize],
            latency,
            dirty_count: 0,
            refuses: None,
            zeroed: 0,
            moving: 0,
            gather: 1,
            gathered: Vec::new(),
            inside: BTreeMap::new(),
            seq: 0,
        }
    }

    fn set_dirty(&mut self, req: &BlockReq, dirty: bool) {
        let first = (req.offset / SECTOR_BYTES) as usize;
        for d in &mut self.dirty[first..first + (req.len / SECTOR_BYTES) as usize] {
            self.dirty_count = self.dirty_count + usize::from(dirty) - usize::from(*d);
            *d = dirty;
        }
    }

    fn begin(&mut self, now: Time, cmd: BlockReq) {
        self.seq += 1;
        if matches!(cmd.op, BlockOp::Trim | BlockOp::WriteZeroes) {
            self.zeroed += cmd.len;
            self.probe.longest.fetch_max(self.zeroed, Ordering::Relaxed);
        } else {
            self.moving += cmd.len;
            self.probe.data.fetch_max(self.moving, Ordering::Relaxed);
        }
        self.inside.insert((now + (self.latency)(&cmd), self.seq), cmd);
    }

    fn perform(&mut self, req: &mut BlockReq) -> Status {
        let status = self.shape.check(req);
        if matches!(req.op, BlockOp::Trim | BlockOp::WriteZeroes) {
            self.zeroed -= req.len;
        } else {
            self.moving -= req.len;
        }
        if !status.is_ok() {
            return status;
        }
        match self.refuses {
            Some(status) if !matches!(req.op, BlockOp::Read | BlockOp::Flush) => return status,
            _ => {}
        }
        let (at, end) = (req.offset as usize, (req.offset + req.len) as usize);
        let keeps = self.shape.kept != 0;
        match req.op {
            BlockOp::Read if (req.offset..req.offset + req.len).contains(&BAD) => {
                return Status::UNRECOVERED_READ;
            }
            BlockOp::Read if keeps => req.buffer.bytes_mut().copy_from_slice(&self.data[at..end]),
            BlockOp::Write if keeps => self.data[at..end].copy_from_slice(req.buffer.bytes()),
            BlockOp::Trim | BlockOp::WriteZeroes if keeps => self.data[at..end].fill(0),
            BlockOp::Flush => {
                self.dirty.fill(false);
                self.dirty_count = 0;
            }
            _ => {}
        }
        if !matches!(req.op, BlockOp::Read | BlockOp::Flush) {
            self.set_dirty(req, !req.fua);
        }
        self.probe.dirty.store(self.dirty_count, Ordering::SeqCst);
        Status::SUCCESS
    }
}

impl Port for Ram {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.inside.len() + self.gathered.len() < self.shape.depth {
            let Some(cmd) = cmds.pop() else { return };
            self.probe.taken.fetch_add(1, Ordering::SeqCst);
            if cmd.op != BlockOp::Read {
                self.begin(now, cmd);
                continue;
            }
            self.gathered.push(cmd);
            if self.gathered.len() >= self.gather {
                for cmd in std::mem::take(&mut self.gathered) {
                    self.begin(now, cmd);
                }
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.first_key_value().map(|((at, _), _)| *at)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0 && self.next_event().is_some_and(|at| at <= to) {
            let ((at, _), mut req) = self.inside.pop_first().unwrap();
            let status = self.perform(&mut req);
            let BlockReq { id, op, buffer, .. } = req;
            done.push(BlockDone { id, op, status, at, buffer }).unwrap();
        }
    }
}
