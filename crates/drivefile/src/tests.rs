//! What a drive file promises, tried on a simulated disk and on real files.

mod away;
mod crash;
mod damage;
mod files;
mod folder;
mod last_sync;
mod model;
mod pages;
mod syncs;
mod texts;
mod unfinished;

use flash::{
    Cause, Chunk, ChunkState, Dimensions, ErrorLevel, Geometry, Medium, Moved, Ppa, TAG_BYTES, Tag,
};
use port::BLOCK_BYTES;

pub(crate) use crate::disk::Rng;
use crate::{CacheMode, Header};

/// A drive of 2 units of 3 chunks of 8 blocks, written by 2.
fn header(kept: u32) -> Header {
    let dim = Dimensions { groups: 2, chunks: 3, pages: 4, page_bytes: 8192, ..Dimensions::LEAST };
    let geometry = Geometry::new(dim).unwrap();
    let (profile, drive) = ("name = \"test\"".to_string(), "size = 1".to_string());
    Header { geometry, kept, cache: CacheMode::Volatile, profile, drive }
}

/// A block by which it can be known: its number is in every byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    number: u64,
    whole: bool,
}

impl Block {
    /// Bytes that it has on a medium that keeps `kept`.
    fn bytes(self, kept: u32) -> usize {
        if self.whole { BLOCK_BYTES as usize } else { kept as usize }
    }

    fn data(self, kept: u32) -> Vec<u8> {
        let mut rng = Rng(self.number);
        (0..self.bytes(kept)).map(|_| rng.below(256) as u8).collect()
    }

    fn tag(self) -> Tag {
        Tag { id: self.number, seq: !self.number }
    }
}

/// Programs neighbours, all of them whole or none, without a description.
fn program<M: Medium>(medium: &mut M, at: Ppa, blocks: &[Block]) -> Moved {
    let data: Vec<u8> = blocks.iter().flat_map(|b| b.data(medium.kept())).collect();
    let mut tags = vec![0; blocks.len() * TAG_BYTES];
    for (block, bytes) in blocks.iter().zip(tags.chunks_mut(TAG_BYTES)) {
        block.tag().store(bytes);
    }
    medium.program(at, blocks.len() as u32, &data, &tags)
}

/// Whether a block reads as it should: `None` where it cannot be read.
fn reads_as<M: Medium>(medium: &mut M, at: Ppa, block: Block) -> Option<bool> {
    let mut data = vec![0xee; block.bytes(medium.kept())];
    let mut tag = [0xee; TAG_BYTES];
    match medium.read(at, 1, &mut data, &mut tag) {
        Moved::Done => {}
        Moved::Pending => panic!("a read waits for nothing"),
        Moved::Failed => {
            assert!(data.iter().chain(&tag).all(|&byte| byte == 0), "nothing leaks");
            return None;
        }
    }
    Some(data == block.data(medium.kept()) && Tag::load(&tag) == block.tag())
}

/// A chunk as a drive describes it.
fn chunk(wear: u32, programmed: u32, size: u32) -> Chunk {
    let state = match programmed {
        0 => ChunkState::Free,
        n if n == size => ChunkState::Closed,
        _ => ChunkState::Open,
    };
    Chunk { state, wp: programmed, programmed, wear, ..Chunk::default() }
}

/// Reads a chunk, as far as its description shows it.
fn read_often(chunk: &mut Chunk, rng: &mut Rng) {
    chunk.reads = chunk.reads.saturating_add(1024);
    chunk.level = chunk.level.max(ErrorLevel::ALL[rng.below(5) as usize]);
}

/// A chunk of `size` blocks in any state that a drive can bring it to, also
/// with writes on their way.
pub(crate) fn random_chunk(rng: &mut Rng, size: u32) -> Chunk {
    let mut chunk = Chunk { wear: rng.below(1 << 32) as u32, ..Chunk::default() };
    (chunk.worn, chunk.since) = (rng.one_in(3), rng.below(1 << 32) as u32);
    let fails = 2 + rng.below(12);
    while chunk.programmed < size && !chunk.is_closed_early(size) && !rng.one_in(9) {
        let left = (size - chunk.wp) / 2;
        let ahead = 2 * rng.below(u64::from(left) + 1) as u32;
        if ahead > 0 {
            chunk.write(chunk.wp, ahead, 2, size).unwrap();
        }
        let count = 2.min(chunk.wp - chunk.programmed);
        match rng.one_in(fails) {
            _ if count == 0 => {}
            true => {
                chunk.fail(chunk.programmed, count);
            }
            false => chunk.program(count),
        }
    }
    if chunk.programmed > 0 {
        read_often(&mut chunk, rng);
    }
    if rng.one_in(12) {
        chunk.state = ChunkState::Offline;
        chunk.cause = Cause::from_number(rng.below(4) as u8).unwrap();
    }
    chunk
}
