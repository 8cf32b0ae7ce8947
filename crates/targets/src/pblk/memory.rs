//! What the target takes of memory, told before it is made.

use device::OpenChannel;
use flash::{Geometry, TAG_BYTES};
use ftl::Memory;
use port::{BLOCK_BYTES, BlockDone, BlockReq};

use super::collector::{READS_PER_PU, Stage};
use super::config::{PblkConfig, buffer_rows};
use super::map::Map;
use super::meta::DIRECTORY_ENTRIES;
use super::readers::Readers;
use super::requests::{Partial, Request};
use super::table::Table;
use super::window::held_rows;
use super::{BACKLOG, DEPTH, OWN_ROWS, PARTIALS};

/// What the tables take of a drive of so many logical bytes.
pub(super) fn of(geometry: &Geometry, bytes: u64) -> Memory {
    let slots = geometry.chunk_slots();
    let (blocks, bits) = (bytes / BLOCK_BYTES, geometry.address_bits());
    let pages = Map::pages_of(blocks, bits) + Table::pages_of(slots);
    let slots = slots as u64;
    Memory {
        map: blocks.saturating_mul(Map::entry_bytes_of(bits)),
        directory: 8 * pages,
        valid: (1 << bits) / 8 + 4 * slots,
        chunks: slots * (16 + size_of::<Stage>() as u64 + Readers::BYTES),
        ..Memory::default()
    }
}

/// What they take, and the buffers beside them, of a drive on which this configuration
/// works.
pub(super) fn of_all<D: OpenChannel>(device: &D, config: &PblkConfig) -> Memory {
    let (geometry, unreadable) = (device.geometry(), device.timing().unreadable);
    let row = u64::from(geometry.row_blocks()) * BLOCK_BYTES;
    let held = u64::from(held_rows(geometry, config.streams, unreadable));
    Memory {
        write_buffer: buffer_rows(config.write_buffer, geometry, device.rows_at_once()) * row,
        held: held * row,
        ..of(geometry, config.bytes)
    }
}

/// Bytes of memory that a target of so many logical bytes takes in all when the
/// drive is full: its tables, what it gathers and moves rows in, and its queues.
/// `kept` of a block are kept by the medium, the drive takes `rows_at_once`, and the
/// write buffer has `buffer` bytes, or what it has where that is 0. With the user's
/// writes in so many `streams`, and `unreadable` blocks at the end of each open chunk.
pub fn tables(
    geometry: &Geometry,
    bytes: u64,
    (kept, rows_at_once, buffer): (u32, u32, u64),
    (streams, unreadable): (u32, u32),
) -> u64 {
    let (pus, slots) = (u64::from(geometry.total_pus()), geometry.chunk_slots() as u64);
    let memory = of(geometry, bytes);
    let row = u64::from(geometry.row_blocks());
    let row_bytes = row * (u64::from(kept) + TAG_BYTES as u64);
    let own_bytes = row * (BLOCK_BYTES + TAG_BYTES as u64);
    let units = buffer_rows(buffer, geometry, rows_at_once) + 2 * pus;
    let units = units + u64::from(held_rows(geometry, streams, unreadable));
    // Slots of a unit: a logical block, and where it was.
    let rows = units * (row_bytes + row.next_power_of_two() * 24)
        + pus * u64::from(READS_PER_PU) * row_bytes
        + (pus + OWN_ROWS as u64) * own_bytes;
    // Which chunks are free or closed, how old and how worn they are.
    let lists = 16 * slots;
    // The last root: the directory's places.
    let root = 2 * (memory.directory / DIRECTORY_ENTRIES + own_bytes);
    let commands = 2 * (BACKLOG as u64 + 8 * pus) * size_of::<device::VectorCmd>() as u64;
    let requests = DEPTH * (size_of::<Request>() + size_of::<BlockReq>() + size_of::<BlockDone>());
    let partials = PARTIALS * (size_of::<Partial>() + BLOCK_BYTES as usize);
    let queues = commands + (requests + partials) as u64;
    memory.total().saturating_add(rows + lists + root + queues)
}
