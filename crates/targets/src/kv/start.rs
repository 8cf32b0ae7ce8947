//! How a target is made: its tables and buffers, all of which it takes at once.

use std::collections::VecDeque;

use device::OpenChannel;
use ftl::WriteCounters;
use port::lazy::Lazy;
use port::{Buffer, Ring, Scratch, Time};

use super::checkpoint::Checkpoint;
use super::collect::{Collector, ROWS};
use super::index::Index;
use super::large::READS;
use super::mover::Mover;
use super::record::most_runs;
use super::request::Request;
use super::space::{Space, Use};
use super::stream::Packer;
use super::{BLOCK, ERASES, Kv, KvConfig, KvError, KvRecovery, WHOLE};

impl<D: OpenChannel> Kv<D> {
    /// A target on a drive whose chunks are all free, or offline.
    pub fn new(device: D, config: KvConfig) -> Result<Kv<D>, KvError> {
        let kv = Kv::build(device, config)?;
        let chunks = ftl::all_chunks(&kv.geometry);
        let is_empty =
            |chunk| kv.space.chunk(chunk).used == Use::Offline || kv.device.chunk(chunk).wp == 0;
        if !chunks.into_iter().all(is_empty) {
            return Err(KvError::NotEmpty);
        }
        Ok(kv)
    }

    /// A target that knows nothing of its drive yet.
    pub(super) fn build(device: D, config: KvConfig) -> Result<Kv<D>, KvError> {
        let geometry = *device.geometry();
        if device.timing().unreadable > 0 {
            return Err(KvError::Unreadable(device.timing().unreadable));
        }
        if device.timing().limits_open() {
            return Err(KvError::OpenChunks);
        }
        let layout = config.check(&geometry, device.kept())?;
        let (kept, row) = (device.kept() as usize, geometry.row_blocks() as usize);
        let (units, depth) = (geometry.total_pus() as usize, config.depth);
        let space = Space::new(&device)?;
        let most_runs = most_runs(row * BLOCK);
        let whole = Buffer::carve(depth, row * WHOLE)?;
        let tails = Buffer::carve(depth, row * kept)?;
        let request = |(whole, tail)| Request {
            record: Scratch::new(whole),
            tail: Scratch::new(tail),
            runs: Vec::with_capacity(most_runs),
            old: Vec::with_capacity(most_runs),
            ..Request::default()
        };
        let buffers = (2 * units).clamp(4, 256);
        let row_window = 4 * units;
        let commands = depth * READS as usize + row_window + buffers + ROWS + ERASES + 4;
        let rows = geometry.chunk_slots() * space.rows() as usize;
        let mut kv = Kv {
            config,
            layout,
            shape: layout.shape,
            kept,
            cached: device.is_cached(),
            now: Time::ZERO,
            index: Index::new(config.keys)?,
            packer: Packer::new(buffers, row, config.seed)?,
            owners: Lazy::zeroed(rows, "whose the rows of values are")?,
            requests: whole.into_iter().zip(tails).map(request).collect(),
            free: (0..depth as u32).rev().collect(),
            waiting: VecDeque::with_capacity(depth),
            appends: VecDeque::with_capacity(depth),
            sends: VecDeque::with_capacity(depth),
            found: VecDeque::with_capacity(depth),
            syncers: 0,
            unlocked: false,
            row_programs: 0,
            row_window,
            promised: 0,
            limit: 0,
            usable: 0,
            collector: Collector::new(row)?,
            mover: Mover::new(row, kept, most_runs)?,
            checkpoint: Checkpoint::new(row)?,
            recovery: KvRecovery::default(),
            short: false,
            full: false,
            erasing: 0,
            settling: false,
            syncing: false,
            fault: false,
            moved_bytes: 0,
            out: Ring::new(commands),
            device_done: Ring::new(commands),
            ready: Ring::new(depth),
            counters: WriteCounters::default(),
            space,
            geometry,
            device,
        };
        kv.measure();
        Ok(kv)
    }

    /// Finds out how much may be stored.
    pub(super) fn measure(&mut self) {
        self.usable = self.space.usable();
        let chunks = self.usable.saturating_sub(self.layout.overhead) as u64;
        let bytes = chunks * u64::from(self.space.rows()) * self.space.row_bytes();
        self.limit = (bytes as f64 * (1.0 - self.config.spare)) as u64;
    }
}
