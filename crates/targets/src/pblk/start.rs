//! How a target is made: its tables and buffers, all of which it takes at once.

use std::collections::{BTreeMap, VecDeque};

use device::OpenChannel;
use flash::{ChunkState, Dimensions, TAG_BYTES};
use port::lazy::table;
use port::{BLOCK_BYTES, Buffer, Ring, Shape, Slots};

use super::checkpoint::Checkpoint;
use super::collector::{Collector, Stage, Survivors};
use super::config::{self, MAX_STREAMS, Most, reserve_chunks};
use super::copies::Lists;
use super::hints::Hints;
use super::idle::Idle;
use super::log::Log;
use super::map::Map;
use super::map_cache::MapCache;
use super::meta::{ANCHORS, Meta, log_rows, metadata_chunks};
use super::openings::{self, Openings};
use super::ranks::Ranks;
use super::readers::Readers;
use super::root::{Mirror, Root};
use super::space::Space;
use super::stripe::Stripe;
use super::table::Table;
use super::units::Units;
use super::window::{Window, held_rows};
use super::{BACKLOG, Collectors, DEPTH, Facts, Host, MAX_BYTES, OWN_ROWS, PARTIALS, Saved, Wire};
use super::{Pblk, PblkConfig, PblkError, Victim, WriteCounters};

impl<D: OpenChannel> Pblk<D> {
    /// A target on a drive whose chunks are all free, or offline from the
    /// factory. A drive with too few that are not is read-only.
    pub fn new(device: D, config: PblkConfig) -> Result<Pblk<D>, PblkError> {
        let mut pblk = Pblk::empty(device, config)?;
        let geometry = pblk.geometry;
        for pu in geometry.pus_channels_first() {
            for chunk in (0..geometry.chunks()).map(|n| geometry.chunk_of(pu, n)) {
                if pblk.is_anchor(chunk) {
                    continue;
                } else if pblk.device.chunk(chunk).state == ChunkState::Offline {
                    pblk.lose(chunk);
                } else {
                    pblk.space.give(chunk);
                }
            }
            pblk.refresh(pu);
        }
        Ok(pblk)
    }

    /// Whether a chunk is kept for roots. Only the first two units have some;
    /// the others leave as many unused, so that all wear alike.
    pub(super) fn is_anchor(&self, chunk: usize) -> bool {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        chunk - self.geometry.chunk_of(pu, 0) < ANCHORS as usize
    }

    /// A target that knows nothing of the drive's chunks yet.
    pub(super) fn empty(device: D, config: PblkConfig) -> Result<Pblk<D>, PblkError> {
        let geometry = *device.geometry();
        check(&device, &config)?;
        let kept = device.kept();
        let row = geometry.row_blocks();
        let pus = geometry.total_pus();
        let at_once = device.rows_at_once();
        let rows = config::buffer_rows(config.write_buffer, &geometry, at_once);
        let row_bytes = row as usize * (kept as usize + TAG_BYTES);
        let keeps_data = u64::from(kept) == BLOCK_BYTES;
        let slots = geometry.chunk_slots();
        let blocks = config.bytes / BLOCK_BYTES;
        let pages = Map::pages_of(blocks, geometry.address_bits()) + Table::pages_of(slots);
        let meta = Meta::new(&geometry, pus as usize + OWN_ROWS, pages)?;
        let mirrors = mirrors(&device)?;
        let root_bytes = Root::rows(meta.directory.len(), row) as usize * row as usize;
        let own = metadata_chunks(&geometry.dimensions(), config.data_chunks);
        let partials = if keeps_data { PARTIALS } else { 0 };
        let mut space = Space::new(&geometry, &config, own)?;
        for pu in geometry.pus_channels_first() {
            for chunk in (ANCHORS..geometry.chunks()).map(|number| geometry.chunk_of(pu, number)) {
                space.note_wear(chunk, device.chunk(chunk).wear);
            }
        }
        let log_rows = u64::from(log_rows(geometry.dimensions().rows())) * u64::from(pus);
        let unreadable = device.timing().unreadable;
        let held = held_rows(&geometry, config.streams, unreadable);
        let units = Units::new(rows as u32, pus, row, kept, held)?;
        let mut pblk = Pblk {
            wire: Wire {
                out: Ring::new(2 * BACKLOG + 16 * pus as usize),
                done: Ring::new(device.depth()),
                erases: Vec::new(),
            },
            shape: Shape { bytes: config.bytes, kept, max_bytes: MAX_BYTES, depth: DEPTH },
            kept: kept as usize,
            host: Host {
                requests: Slots::new(DEPTH),
                partials: Slots::new(partials),
                scratch: Buffer::carve(partials, BLOCK_BYTES as usize)?,
                waiting: Ring::new(DEPTH),
                merges: VecDeque::with_capacity(PARTIALS),
                flushes: VecDeque::with_capacity(DEPTH),
                syncing: 0,
                ready: Ring::new(DEPTH),
            },
            map: Map::new(config.bytes / BLOCK_BYTES, geometry.address_bits())?,
            load: None,
            map_cache: map_cache(&config, geometry.address_bits())?,
            space,
            window: Window::new(unreadable, &geometry, held, &units),
            openings: Openings::new(&geometry, device.timing())?,
            units,
            stripe: Stripe::new(&geometry, at_once, rows as usize),
            collectors: Collectors {
                of: Collector::all(&geometry),
                survivors: Survivors::all(&geometry, row_bytes)?,
                holders: BTreeMap::new(),
                searches: 0,
                lists: Lists::new(2 * pus, device.copies_inside()),
            },
            chunks: table(Stage::default(), slots, "the target's chunks")?,
            readers: Readers::new(slots)?,
            saved: Saved {
                checkpoint: Checkpoint::new(root_bytes * BLOCK_BYTES as usize, pus, slots)?,
                mirrors,
                meta,
                table: Table::new(slots)?,
                log: Log::new(row, log_rows),
            },
            facts: Facts {
                news: false,
                touched: Ranks::new(pus as usize),
                read_only: false,
                dead: false,
            },
            idle: Idle::new(config.idle_collection),
            counters: WriteCounters::default(),
            hints: Hints::default(),
            told: None,
            device,
            geometry,
            config,
        };
        pblk.forget_copies();
        Ok(pblk)
    }
}

/// The map cache of a drive that has one.
fn map_cache(config: &PblkConfig, address_bits: u32) -> Result<Option<Box<MapCache>>, PblkError> {
    if config.map_pages == 0 {
        return Ok(None);
    }
    let pages = Map::pages_of(config.bytes / BLOCK_BYTES, address_bits);
    Ok(Some(Box::new(MapCache::new(config.map_pages, pages)?)))
}

/// The chunks for roots, of the first two parallel units, or of the only one.
fn mirrors<D: OpenChannel>(device: &D) -> Result<[Mirror; 2], PblkError> {
    let geometry = *device.geometry();
    let mut mirrors: [Mirror; 2] = Default::default();
    for (mirror, pu) in mirrors.iter_mut().zip(geometry.pus_channels_first()) {
        let chunks = (0..ANCHORS).map(|number| geometry.chunk_of(pu, number));
        let good = |&chunk: &usize| device.chunk(chunk).state != ChunkState::Offline;
        mirror.chunks = chunks.filter(good).collect();
    }
    if mirrors.iter().any(Mirror::is_usable) { Ok(mirrors) } else { Err(PblkError::Anchors) }
}

/// Whether this configuration works on this drive.
fn check<D: OpenChannel>(device: &D, config: &PblkConfig) -> Result<(), PblkError> {
    let geometry = device.geometry();
    if config.bytes == 0 || !config.bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(PblkError::Capacity(config.bytes));
    }
    let of_data = Dimensions { chunks: config.data_chunks, ..geometry.dimensions() };
    if config.streams == 0 || config.streams as usize > MAX_STREAMS {
        return Err(PblkError::Streams(config.streams));
    }
    let reserve = reserve_chunks(&of_data, config.streams);
    if u64::from(geometry.chunks()) < u64::from(config.data_chunks) + u64::from(reserve) {
        let (chunks, data) = (geometry.chunks(), config.data_chunks);
        return Err(PblkError::TooFewChunks { chunks, data, reserve });
    }
    let (timing, needed) = (device.timing(), openings::needed(geometry, config.streams));
    if timing.open_chunks < needed.0 || timing.open_chunks_pu < needed.1 {
        return Err(PblkError::OpenChunks {
            most: Most(timing.open_chunks),
            most_of_pu: Most(timing.open_chunks_pu),
            needed: needed.0,
            needed_of_pu: needed.1,
        });
    }
    config::check_buffer(config.write_buffer, geometry, device.rows_at_once())?;
    if config.victim == Victim::DChoices(0) {
        return Err(PblkError::NoChoices(0));
    }
    let size = geometry.chunk_blocks();
    if config.idle >= size {
        return Err(PblkError::Idle { idle: config.idle, size });
    }
    let space = u64::from(geometry.total_pus()) * config.unit_blocks(size) * BLOCK_BYTES;
    if config.bytes >= space {
        return Err(PblkError::NoSpare { bytes: config.bytes, space });
    }
    Ok(())
}
