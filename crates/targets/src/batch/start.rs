//! How a target is made: its tables and buffers, all of which it takes at once.

use std::collections::VecDeque;

use device::OpenChannel;
use flash::TAG_BYTES;
use port::{BatchShape, Buffer, Ring, Slots as Table, Time};

use super::checkpoint::{Checkpoint, PAGES_AT_ONCE, record_bytes};
use super::collect::{Collector, runs_of};
use super::garbage::Garbage;
use super::log::Log;
use super::map::Map;
use super::record::What;
use super::repair::{REPAIR_READS, Repair};
use super::side::Side;
use super::slot::Slots;
use super::space::{Space, Stream};
use super::wear::Wear;
use super::write::Write;
use super::{BLOCK, BLOCK_BUFFERS, OTHERS, PAGE_WRITES, WHOLE_ROWS};
use super::{Batch, BatchConfig, BatchCounters, BatchError, Recovery};

impl<D: OpenChannel> Batch<D> {
    /// A target that knows nothing of its drive yet.
    pub(super) fn build(device: D, config: BatchConfig, now: Time) -> Result<Batch<D>, BatchError> {
        let geometry = *device.geometry();
        let unreadable = device.timing().unreadable;
        if unreadable > 0 {
            return Err(BatchError::Unreadable(unreadable));
        }
        if device.timing().limits_open() {
            return Err(BatchError::OpenChunks);
        }
        let row = geometry.row_blocks() as usize;
        let layout = config.check(&geometry)?;
        let kept = device.kept();
        let map = Map::new(config.pages, layout.cache_slots())?;
        let garbage = Garbage::new(&geometry)?;
        let wear = Wear::new(&geometry);
        let locations = map.tiny.len() + garbage.tiny.len() + wear.small.len();
        let slots = Slots::new(&geometry, locations);
        if slots.record_blocks > geometry.chunk_blocks() {
            return Err(BatchError::Slots);
        }
        let units = geometry.total_pus() as usize;
        let collectors = config.collectors as usize;
        let (rows, runs) = ((2 * units).clamp(8, 256), runs_of(geometry.row_blocks()));
        let whole = row * (BLOCK + TAG_BYTES);
        let mut wholes = Buffer::carve(WHOLE_ROWS + 2, whole)?;
        let (slot_row, log_row) = (wholes.pop(), wholes.pop());
        let users = config.batches;
        let mut writes: Vec<Write> = Vec::new();
        writes.resize_with(users, || Write::new(Stream::User, config.max_pages as usize));
        let mut made = Vec::new();
        for c in 0..collectors {
            let data = writes.len() as u32;
            writes.push(Write::new(Stream::Collect, What::Collect.capacity()));
            writes.push(Write::new(Stream::Meta, What::Collect.capacity()));
            let both = &mut writes[data as usize..];
            both.iter_mut().for_each(|write| write.owner = Some(c as u8));
            made.push(Collector::new(data, data + 1, Buffer::carve(runs, whole)?));
        }
        let count = writes.len() + PAGE_WRITES;
        writes.resize_with(count, || Write::new(Stream::Meta, PAGES_AT_ONCE));
        let pending = users * config.max_pages as usize + collectors * What::Collect.capacity();
        let commands = config.depth + rows + WHOLE_ROWS + BLOCK_BUFFERS;
        let commands = commands + collectors * runs + REPAIR_READS + OTHERS;
        let checkpoint = Checkpoint::new(record_bytes(&slots));
        let each = kept as usize + TAG_BYTES;
        Ok(Batch {
            geometry,
            config,
            layout,
            shape: BatchShape {
                pages: config.pages,
                kept,
                max_pages: config.max_pages,
                depth: config.depth,
            },
            kept: kept as usize,
            cached: device.is_cached(),
            now,
            map,
            garbage,
            wear,
            side: Side::new(pending),
            space: Space::new(&geometry, layout.user_lanes, layout.side_lanes),
            log: Log::new(layout.log_lanes, log_row.expect("it was carved")),
            slots,
            checkpoint,
            collectors: made,
            repair: Repair::new(&geometry)?,
            writes,
            arrivals: VecDeque::with_capacity(users),
            arrived: 0,
            order: VecDeque::with_capacity(count),
            issue: VecDeque::with_capacity(1024),
            next_lsn: 1,
            applied: 0,
            reads: Table::new(config.depth),
            stalled: VecDeque::with_capacity(config.depth),
            bounces: VecDeque::with_capacity(config.depth),
            look_ups: VecDeque::with_capacity(config.depth),
            flushes: VecDeque::with_capacity(config.depth),
            loads: VecDeque::new(),
            leaving: VecDeque::new(),
            erasing: 0,
            short_of_room: false,
            short_of_slots: false,
            clean_hand: 0,
            failed: Vec::new(),
            asked: VecDeque::with_capacity(geometry.chunk_slots()),
            looked: 0,
            changes: 0,
            no_victim: u64::MAX,
            forced: 0,
            fault: None,
            data_rows: Buffer::carve(rows, row * each)?,
            whole_rows: wholes,
            blocks: Buffer::carve(BLOCK_BUFFERS, BLOCK + TAG_BYTES)?,
            slot_row,
            scratch: Vec::with_capacity(config.max_pages as usize),
            syncing: false,
            out: Ring::new(commands),
            device_done: Ring::new(commands),
            ready: Ring::new(config.depth),
            counters: BatchCounters::default(),
            recovery: Recovery::default(),
            device,
        })
    }
}
