//! Files of a program on a drive: names, extents, a journal, and what a power cut leaves of them.
//! It looks at no clock and does no I/O of its own: [`Disk`] does it. [`Files`] is the file
//! system, [`Operation`] what a program does to it, [`Recorder`] a disk that can be cut.
#![forbid(unsafe_code)]

mod bag;
mod check;
mod commit;
mod data;
mod disk;
mod error;
mod extents;
mod files;
mod journal;
mod journaled;
mod kept;
mod layout;
mod load;
mod memory;
mod metadata;
#[cfg(not(feature = "mutations"))]
mod mutation;
#[cfg(feature = "mutations")]
pub mod mutation;
mod names;
mod node;
pub mod operation;
mod options;
mod recorder;
mod sector;
mod space;
mod sync;
mod table;

pub use disk::{BLOCK, Disk, DiskError, Page, Request};
pub use error::FilesError;
pub use files::{Files, MOST_BYTES, Stat, Type};
pub use layout::VERSION;
pub use memory::Memory;
pub use operation::{Inode, Kind, Operation};
pub use options::{Journal, Names, Options};
pub use recorder::{Fate, Recorder, SECTORS};
pub use sync::WriteBack;

/// Damages a sector of metadata or the journal's header and makes its checksum right again: for
/// tests. `below` gives numbers below another.
#[cfg(feature = "mutations")]
pub fn sealed_damage(disk: &mut Memory, at: u64, below: &mut dyn FnMut(u64) -> u64) {
    let mut block = [0; BLOCK];
    disk.read(at, &mut block).expect("the block exists");
    let place = sector::Place { block: at as u32, sector: below(8) as u8 };
    let bytes = &mut block[place.bytes()];
    if sector::Header::peek(bytes).is_none() {
        return;
    }
    let from = 12 + below(100) as usize;
    let values = [0, 1, 2, 16, below(120) as u8, below(256) as u8];
    bytes[from] = values[below(6) as usize];
    sector::seal(bytes, 0, place);
    disk.write(at, &block).expect("the block exists");
}
