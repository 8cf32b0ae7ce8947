//! Admin pages and command entries of Open-Channel SSD 2.0, as bytes.
//!
//! The geometry page (admin command 0xE2), chunk descriptors (log page 0xCA),
//! notices (log page 0xD0) and the 64-byte submission entries of the vector
//! commands. All numbers are
//! little-endian. Writing them fails where a field is too narrow for a number;
//! reading them gives an error for bytes that no drive of ours writes, and
//! never panics.
//!
//! `mw_cunits` is in logical blocks per chunk, as [`Timing::unreadable`].

use flash::{Chunk, ChunkState, Dimensions, Geometry, GeometryError, Ppa, Timing};
use port::BLOCK_BYTES;
use thiserror::Error;

use crate::command::{MAX_ADDRESSES, VectorOp};
use crate::notices::{Notice, NoticeMask, NoticeState};

/// Bytes of the geometry page.
pub const GEOMETRY_BYTES: usize = 4096;
/// Bytes of a chunk descriptor.
pub const DESCRIPTOR_BYTES: usize = 32;
/// Bytes of a submission entry.
pub const ENTRY_BYTES: usize = 64;
/// The admin command that gives the geometry page.
pub const GEOMETRY_OPCODE: u8 = 0xE2;
/// The log page that holds the chunk descriptors.
pub const CHUNK_LOG: u8 = 0xCA;
/// Bytes of a notice.
pub const NOTICE_BYTES: usize = 64;
/// The log page that holds the notices.
pub const NOTICE_LOG: u8 = 0xD0;

/// Bytes or numbers that do not fit the format.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AdminError {
    /// There are not as many bytes as the structure has.
    #[error("{what} has {wanted} bytes, not {given}: give it whole")]
    Length {
        /// Which structure.
        what: &'static str,
        /// Bytes it has.
        wanted: usize,
        /// Bytes there were.
        given: usize,
    },
    /// A field holds what it cannot.
    #[error("{field} at byte {at} is {value:#x}: it must be {range}")]
    Field {
        /// Which field.
        field: &'static str,
        /// Where it is.
        at: usize,
        /// What it holds.
        value: u64,
        /// What it may hold.
        range: &'static str,
    },
    /// A number does not fit its field.
    #[error("{field} = {value} does not fit its field: it must be below 2^32")]
    TooLarge {
        /// Which field.
        field: &'static str,
        /// The number.
        value: u64,
    },
    /// Part of the chunk log that does not exist.
    #[error("chunks {first} to {end} of the log do not exist: there are {chunks}")]
    NoSuchChunk {
        /// First chunk asked for, in the order of the log.
        first: u64,
        /// The chunk after the last one asked for.
        end: u64,
        /// Chunks in the log.
        chunks: u64,
    },
    /// The page describes a drive that cannot be.
    #[error("the geometry page describes no drive of ours")]
    Geometry(#[from] GeometryError),
}

/// `N` bytes at `at`. The caller has checked the length of `bytes`.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(take(bytes, at))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn length(what: &'static str, bytes: &[u8], wanted: usize) -> Result<(), AdminError> {
    let given = bytes.len();
    if given == wanted { Ok(()) } else { Err(AdminError::Length { what, wanted, given }) }
}

/// The geometry page. Field names are the specification's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometryPage {
    /// Version, major.
    pub mjr: u8,
    /// Version, minor.
    pub mnr: u8,
    /// Bits of group, PU, chunk and block in an address.
    pub lbaf: [u8; 4],
    /// Capabilities: bit 0 vector copy, bit 1 several resets of a free chunk.
    pub mccap: u32,
    /// Wear-level index difference at which the drive warns; 0, which
    /// [`GeometryPage::of`] says, for a number that is not told.
    pub wit: u8,
    /// Groups.
    pub num_grp: u16,
    /// Parallel units a group.
    pub num_pu: u16,
    /// Chunks a parallel unit.
    pub num_chk: u32,
    /// Logical blocks a chunk.
    pub clba: u32,
    /// Smallest write, in logical blocks.
    pub ws_min: u32,
    /// Best write, in logical blocks.
    pub ws_opt: u32,
    /// Logical blocks at the end of an open chunk that cannot be read.
    pub mw_cunits: u32,
    /// Most open chunks; 0 for no limit.
    pub maxoc: u32,
    /// Most open chunks a parallel unit; 0 for no limit.
    pub maxocpu: u32,
    /// Typical and longest read, write and reset, in ns.
    pub times: [u32; 6],
}

/// Where each of `times` is.
const TIMES: [(usize, &str); 6] =
    [(192, "trdt"), (196, "trdm"), (200, "twrt"), (204, "twrm"), (208, "tcrst"), (212, "tcrsm")];

impl GeometryPage {
    /// What a drive says of itself. Fails when a time is 2^32 ns or more.
    pub fn of(geometry: &Geometry, timing: &Timing) -> Result<GeometryPage, AdminError> {
        let dim = geometry.dimensions();
        let bits = |n: u32| n.next_power_of_two().trailing_zeros() as u8;
        let (read, write) = (spread(&timing.read), spread(&timing.program));
        let all = [read.0, read.1, write.0, write.1, timing.erase, timing.erase];
        let mut times = [0; 6];
        for (i, &value) in all.iter().enumerate() {
            let field = TIMES[i].1;
            times[i] = u32::try_from(value).map_err(|_| AdminError::TooLarge { field, value })?;
        }
        Ok(GeometryPage {
            mjr: 2,
            mnr: 0,
            lbaf: [
                bits(dim.groups),
                bits(dim.pus),
                geometry.chunk_bits() as u8,
                geometry.block_bits() as u8,
            ],
            mccap: 1,
            wit: 0,
            num_grp: dim.groups as u16,
            num_pu: dim.pus as u16,
            num_chk: dim.chunks,
            clba: geometry.chunk_blocks(),
            ws_min: geometry.page_blocks(),
            ws_opt: geometry.row_blocks(),
            mw_cunits: timing.unreadable,
            maxoc: 0,
            maxocpu: 0,
            times,
        })
    }

    /// The page.
    pub fn to_bytes(&self) -> [u8; GEOMETRY_BYTES] {
        let mut b = [0; GEOMETRY_BYTES];
        (b[0], b[1], b[32]) = (self.mjr, self.mnr, self.wit);
        put(&mut b, 8, &self.lbaf);
        put(&mut b, 16, &self.mccap.to_le_bytes());
        put(&mut b, 64, &self.num_grp.to_le_bytes());
        put(&mut b, 66, &self.num_pu.to_le_bytes());
        let words = [
            (68, self.num_chk),
            (72, self.clba),
            (128, self.ws_min),
            (132, self.ws_opt),
            (136, self.mw_cunits),
            (140, self.maxoc),
            (144, self.maxocpu),
        ];
        for (at, value) in words {
            put(&mut b, at, &value.to_le_bytes());
        }
        for (&(at, _), value) in TIMES.iter().zip(self.times) {
            put(&mut b, at, &value.to_le_bytes());
        }
        b
    }

    /// Reads a page of any drive of version 2. Fails on another length or
    /// version.
    pub fn parse(bytes: &[u8]) -> Result<GeometryPage, AdminError> {
        length("the geometry page", bytes, GEOMETRY_BYTES)?;
        if bytes[0] != 2 {
            let value = bytes[0].into();
            return Err(AdminError::Field { field: "mjr", at: 0, value, range: "2" });
        }
        Ok(GeometryPage {
            mjr: bytes[0],
            mnr: bytes[1],
            lbaf: take(bytes, 8),
            mccap: u32_at(bytes, 16),
            wit: bytes[32],
            num_grp: u16_at(bytes, 64),
            num_pu: u16_at(bytes, 66),
            num_chk: u32_at(bytes, 68),
            clba: u32_at(bytes, 72),
            ws_min: u32_at(bytes, 128),
            ws_opt: u32_at(bytes, 132),
            mw_cunits: u32_at(bytes, 136),
            maxoc: u32_at(bytes, 140),
            maxocpu: u32_at(bytes, 144),
            times: TIMES.map(|(at, _)| u32_at(bytes, at)),
        })
    }

    /// The geometry it describes. Fails for a drive that is not built as ours
    /// are.
    pub fn geometry(&self) -> Result<Geometry, AdminError> {
        let field = |field, at, value: u32, range| {
            Err(AdminError::Field { field, at, value: value.into(), range })
        };
        if self.ws_min == 0 || self.ws_min > 16 {
            return field("ws_min", 128, self.ws_min, "1 to 16 logical blocks");
        }
        if self.ws_opt == 0 || !self.ws_opt.is_multiple_of(self.ws_min) {
            return field("ws_opt", 132, self.ws_opt, "a multiple of ws_min");
        }
        if !self.clba.is_multiple_of(self.ws_opt) {
            return field("clba", 72, self.clba, "a multiple of ws_opt");
        }
        let geometry = Geometry::new(Dimensions {
            groups: self.num_grp.into(),
            pus: self.num_pu.into(),
            chunks: self.num_chk,
            pages: self.clba / self.ws_opt,
            planes: self.ws_opt / self.ws_min,
            page_bytes: self.ws_min * BLOCK_BYTES as u32,
        })?;
        let ours = GeometryPage::of(&geometry, &Timing::default())?;
        if ours.lbaf != self.lbaf {
            let value = u32::from_le_bytes(self.lbaf);
            return field("lbaf", 8, value, "the fewest bits that hold each count");
        }
        Ok(geometry)
    }
}

/// Mean, rounded up, and greatest of some times.
fn spread(times: &[u64]) -> (u64, u64) {
    let sum: u128 = times.iter().map(|&t| u128::from(t)).sum();
    let mean = sum.div_ceil(times.len().max(1) as u128) as u64;
    (mean, times.iter().copied().max().unwrap_or(0))
}

/// A chunk descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// State.
    pub state: ChunkState,
    /// Type: 1 sequential, 2 random, with 0x10 where the size deviates.
    pub kind: u8,
    /// Wear-level index: the part of the endurance that is used, 0 to 255.
    pub wear_index: u8,
    /// First logical block.
    pub slba: Ppa,
    /// Logical blocks.
    pub cnlb: u64,
    /// Write pointer, from the start of the chunk.
    pub wp: u64,
}

impl Descriptor {
    /// What a drive says of a chunk, given by [`Geometry::chunk_index`].
    pub fn of(geometry: &Geometry, timing: &Timing, index: usize, chunk: &Chunk) -> Descriptor {
        let part = u64::from(chunk.wear) * 255 / u64::from(timing.endurance.max(1));
        Descriptor {
            state: chunk.state,
            kind: 1,
            wear_index: part.min(255) as u8,
            slba: geometry.chunk_start(index),
            cnlb: geometry.chunk_blocks().into(),
            wp: chunk.wp.into(),
        }
    }

    /// The descriptor's bytes.
    pub fn to_bytes(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut b = [0; DESCRIPTOR_BYTES];
        (b[0], b[1], b[2]) = (self.state as u8, self.kind, self.wear_index);
        put(&mut b, 8, &self.slba.0.to_le_bytes());
        put(&mut b, 16, &self.cnlb.to_le_bytes());
        put(&mut b, 24, &self.wp.to_le_bytes());
        b
    }

    /// Reads a descriptor. Fails on another length, an unknown state or type,
    /// and a write pointer past the chunk's end.
    pub fn parse(bytes: &[u8]) -> Result<Descriptor, AdminError> {
        length("a chunk descriptor", bytes, DESCRIPTOR_BYTES)?;
        let field = |field, at, value, range| AdminError::Field { field, at, value, range };
        let state = match bytes[0] {
            1 => ChunkState::Free,
            2 => ChunkState::Closed,
            4 => ChunkState::Open,
            8 => ChunkState::Offline,
            other => return Err(field("state", 0, other.into(), "1, 2, 4 or 8")),
        };
        let kind = bytes[1];
        if !matches!(kind & !0x10, 1 | 2) {
            return Err(field("type", 1, kind.into(), "1 or 2, with or without 0x10"));
        }
        let (cnlb, wp) = (u64_at(bytes, 16), u64_at(bytes, 24));
        if wp > cnlb {
            return Err(field("wp", 24, wp, "at most cnlb"));
        }
        let slba = Ppa(u64_at(bytes, 8));
        Ok(Descriptor { state, kind, wear_index: bytes[2], slba, cnlb, wp })
    }
}

/// Writes part of the chunk log: the descriptors from `first` on, as many as
/// `out` holds, in the log's order (group, PU, chunk, without holes). `chunk`
/// gives a chunk by [`Geometry::chunk_index`].
pub fn chunk_log(
    geometry: &Geometry,
    timing: &Timing,
    chunk: impl Fn(usize) -> Chunk,
    first: u64,
    out: &mut [u8],
) -> Result<(), AdminError> {
    let count = out.len() / DESCRIPTOR_BYTES;
    length("this part of the chunk log", out, count * DESCRIPTOR_BYTES)?;
    let dim = geometry.dimensions();
    let chunks = u64::from(geometry.total_pus()) * u64::from(dim.chunks);
    let end = first.saturating_add(count as u64);
    if end > chunks {
        return Err(AdminError::NoSuchChunk { first, end, chunks });
    }
    for (number, bytes) in (first..end).zip(out.chunks_exact_mut(DESCRIPTOR_BYTES)) {
        let (pu, in_pu) = (number / u64::from(dim.chunks), number % u64::from(dim.chunks));
        let (group, pu) = (pu / u64::from(dim.pus), pu % u64::from(dim.pus));
        let start = geometry.ppa(group as u32, pu as u32, in_pu as u32, 0);
        let index = geometry.chunk_index(start);
        bytes.copy_from_slice(&Descriptor::of(geometry, timing, index, &chunk(index)).to_bytes());
    }
    Ok(())
}

/// The state field of each notice: bits 0 to 4 of byte 20, bit 0 of byte 21.
const NOTICE_STATES: [(NoticeState, u16); 6] = [
    (NoticeState::RateLow, 1),
    (NoticeState::RateMedium, 1 << 1),
    (NoticeState::RateHigh, 1 << 2),
    (NoticeState::Unrecoverable, 1 << 3),
    (NoticeState::Refreshed, 1 << 4),
    (NoticeState::Worn, 1 << 8),
];

/// The mask field (byte 22).
const NOTICE_MASKS: [(NoticeMask, u8); 3] =
    [(NoticeMask::Block, 1), (NoticeMask::Chunk, 1 << 1), (NoticeMask::Unit, 1 << 2)];

impl Notice {
    /// The notice's entry in the log, for the namespace `nsid`. Fails when it
    /// is of no block or of more than 65536.
    pub fn to_bytes(&self, nsid: u32) -> Result<[u8; NOTICE_BYTES], AdminError> {
        let blocks = self.blocks.checked_sub(1).and_then(|n| u16::try_from(n).ok());
        let value = self.blocks.into();
        let range = "1 to 65536, written less one";
        let blocks = blocks.ok_or(AdminError::Field { field: "nlb", at: 32, value, range })?;
        let mut b = [0; NOTICE_BYTES];
        put(&mut b, 0, &self.number.to_le_bytes());
        put(&mut b, 8, &self.ppa.0.to_le_bytes());
        put(&mut b, 16, &nsid.to_le_bytes());
        let state = NOTICE_STATES.iter().find(|(state, _)| *state == self.state);
        put(&mut b, 20, &state.map_or(0, |s| s.1).to_le_bytes());
        let mask = NOTICE_MASKS.iter().find(|(mask, _)| *mask == self.mask);
        b[22] = mask.map_or(0, |m| m.1);
        put(&mut b, 32, &blocks.to_le_bytes());
        Ok(b)
    }

    /// Reads an entry: the notice and its namespace. Fails on another length,
    /// and where not exactly one state and one mask is set.
    pub fn parse(bytes: &[u8]) -> Result<(Notice, u32), AdminError> {
        length("a notice", bytes, NOTICE_BYTES)?;
        let field = |field, at, value, range| AdminError::Field { field, at, value, range };
        let (state, mask) = (u16_at(bytes, 20), bytes[22]);
        let of_state = NOTICE_STATES.iter().find(|(_, bits)| *bits == state);
        let (of_state, _) =
            of_state.ok_or_else(|| field("state", 20, state.into(), "one of bits 0 to 4 and 8"))?;
        let of_mask = NOTICE_MASKS.iter().find(|(_, bits)| *bits == mask);
        let (of_mask, _) =
            of_mask.ok_or_else(|| field("mask", 22, mask.into(), "one of bits 0 to 2"))?;
        let notice = Notice {
            number: u64_at(bytes, 0),
            ppa: Ppa(u64_at(bytes, 8)),
            state: *of_state,
            mask: *of_mask,
            blocks: u32::from(u16_at(bytes, 32)) + 1,
        };
        Ok((notice, u32_at(bytes, 16)))
    }
}

/// Where a vector command's addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Here: the one address.
    Address(Ppa),
    /// In a list in the host's memory, at this address.
    List(u64),
}

/// A vector command as a submission entry: bytes 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What to do (byte 0).
    pub op: VectorOp,
    /// The command's identifier (byte 2).
    pub cid: u16,
    /// The namespace (byte 4).
    pub nsid: u32,
    /// Where the out-of-band bytes are, or a reset's descriptors go; 0 for
    /// nowhere (byte 16).
    pub metadata: u64,
    /// Where the data are (bytes 24 and 32).
    pub data: [u64; 2],
    /// How many addresses: 1 to 64 (byte 48, less one).
    pub count: u8,
    /// The addresses (byte 40); of a copy, its sources.
    pub target: Target,
    /// Where a copy goes (byte 56). Not in other commands.
    pub to: Option<Target>,
}

/// The operation code of an operation; a flush has that of the NVM command set.
pub const fn opcode(op: VectorOp) -> u8 {
    match op {
        VectorOp::Reset => 0x90,
        VectorOp::Write => 0x91,
        VectorOp::Read => 0x92,
        VectorOp::Copy => 0x93,
        VectorOp::Retire => 0x94,
        VectorOp::Flush => 0x00,
    }
}

impl Entry {
    /// The entry's bytes. Fails when the count is outside 1 to 64, when an
    /// address stands where a list must, or the reverse, or when `to` is not
    /// there for a copy, or is there for anything else.
    pub fn encode(&self) -> Result<[u8; ENTRY_BYTES], AdminError> {
        let field = |field, at, value, range| Err(AdminError::Field { field, at, value, range });
        if self.count == 0 || usize::from(self.count) > MAX_ADDRESSES {
            return field("count", 48, self.count.into(), "1 to 64");
        }
        if self.op == VectorOp::Flush {
            return field("opcode", 0, 0, "0x90 to 0x94: a flush is no vector command");
        }
        let word = |target| match target {
            Target::Address(ppa) => (ppa.0, self.count == 1),
            Target::List(list) => (list, self.count != 1),
        };
        let (from, from_ok) = word(self.target);
        let (to, to_ok) = self.to.map_or((0, true), word);
        if !from_ok || !to_ok {
            let (at, value) = if from_ok { (56, to) } else { (40, from) };
            return field("address", at, value, "an address for a count of 1, else a list");
        }
        if self.to.is_some() != (self.op == VectorOp::Copy) {
            return field("destination", 56, to, "there for a copy and for nothing else");
        }
        let mut b = [0; ENTRY_BYTES];
        b[0] = opcode(self.op);
        put(&mut b, 2, &self.cid.to_le_bytes());
        put(&mut b, 4, &self.nsid.to_le_bytes());
        for (at, value) in
            [(16, self.metadata), (24, self.data[0]), (32, self.data[1]), (40, from), (56, to)]
        {
            put(&mut b, at, &value.to_le_bytes());
        }
        b[48] = self.count - 1;
        Ok(b)
    }

    /// Reads an entry. Fails on an operation that is no vector command, a
    /// count above 64, and reserved bits that are not zero.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Entry, AdminError> {
        let field = |field, at, value, range| AdminError::Field { field, at, value, range };
        let op = match bytes[0] {
            0x90 => VectorOp::Reset,
            0x91 => VectorOp::Write,
            0x92 => VectorOp::Read,
            0x93 => VectorOp::Copy,
            0x94 => VectorOp::Retire,
            other => return Err(field("opcode", 0, other.into(), "0x90 to 0x94")),
        };
        if bytes[1] != 0 {
            return Err(field("flags", 1, bytes[1].into(), "0: no fused commands, no SGL"));
        }
        let number = u32_at(bytes, 48);
        if number as usize >= MAX_ADDRESSES {
            let range = "0 to 63: the count less one, without retry limits or hints";
            return Err(field("count", 48, number.into(), range));
        }
        let to = u64_at(bytes, 56);
        let reserved = [(8, u64_at(bytes, 8)), (52, u32_at(bytes, 52).into())];
        let beyond = (56, if op == VectorOp::Copy { 0 } else { to });
        for (at, value) in reserved.into_iter().chain([beyond]) {
            if value != 0 {
                return Err(field("reserved", at, value, "0"));
            }
        }
        let count = number as u8 + 1;
        let target =
            |word| if count == 1 { Target::Address(Ppa(word)) } else { Target::List(word) };
        Ok(Entry {
            op,
            cid: u16_at(bytes, 2),
            nsid: u32_at(bytes, 4),
            metadata: u64_at(bytes, 16),
            data: [u64_at(bytes, 24), u64_at(bytes, 32)],
            count,
            target: target(u64_at(bytes, 40)),
            to: (op == VectorOp::Copy).then(|| target(to)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        let dim =
            Dimensions { groups: 3, pus: 2, chunks: 5, pages: 6, planes: 2, page_bytes: 16384 };
        Geometry::new(dim).unwrap()
    }

    #[test]
    fn the_geometry_page_has_its_fields_in_their_places() {
        let timing = Timing {
            read: vec![40_000, 61_001],
            program: vec![600_000],
            erase: 0x0102_0304,
            unreadable: 24,
            ..Timing::default()
        };
        let b = GeometryPage::of(&geometry(), &timing).unwrap().to_bytes();
        let mut expected = [0u8; GEOMETRY_BYTES];
        expected[0] = 2;
        expected[8..12].copy_from_slice(&[2, 1, 3, 6]);
        expected[16] = 1;
        (expected[64], expected[66], expected[68], expected[72]) = (3, 2, 5, 48);
        (expected[128], expected[132], expected[136]) = (4, 8, 24);
        put(&mut expected, 192, &50_501u32.to_le_bytes());
        put(&mut expected, 196, &61_001u32.to_le_bytes());
        put(&mut expected, 200, &600_000u32.to_le_bytes());
        put(&mut expected, 204, &600_000u32.to_le_bytes());
        put(&mut expected, 208, &[4, 3, 2, 1, 4, 3, 2, 1]);
        assert!(b == expected);
    }

    #[test]
    fn a_time_that_does_not_fit_is_named() {
        let timing = Timing { erase: 1 << 32, ..Timing::default() };
        let err = GeometryPage::of(&geometry(), &timing).unwrap_err();
        assert_eq!(err, AdminError::TooLarge { field: "tcrst", value: 1 << 32 });
    }

    #[test]
    fn the_chunk_log_has_no_holes() {
        let (g, timing) = (geometry(), Timing { endurance: 100, ..Timing::default() });
        let chunk = |index| Chunk { wear: (index % 100) as u32, ..Chunk::default() };
        let mut all = vec![0; 30 * DESCRIPTOR_BYTES];
        chunk_log(&g, &timing, chunk, 0, &mut all).unwrap();
        let mut number = 0;
        for group in 0..3 {
            for pu in 0..2 {
                for chunk in 0..5 {
                    let bytes = &all[number * DESCRIPTOR_BYTES..][..DESCRIPTOR_BYTES];
                    let d = Descriptor::parse(bytes).unwrap();
                    let start = g.ppa(group, pu, chunk, 0);
                    assert_eq!((d.slba, d.cnlb), (start, 48));
                    let wear = g.chunk_index(start) % 100;
                    assert_eq!(usize::from(d.wear_index), wear * 255 / 100);
                    number += 1;
                }
            }
        }
        let mut part = vec![0; 2 * DESCRIPTOR_BYTES];
        chunk_log(&g, &timing, chunk, 28, &mut part).unwrap();
        assert_eq!(part, all[28 * DESCRIPTOR_BYTES..]);
        let err = chunk_log(&g, &timing, chunk, 29, &mut part).unwrap_err();
        assert_eq!(err, AdminError::NoSuchChunk { first: 29, end: 31, chunks: 30 });
        assert!(chunk_log(&g, &timing, chunk, u64::MAX, &mut part).is_err());
        assert!(chunk_log(&g, &timing, chunk, 0, &mut part[..33]).is_err());
    }

    #[test]
    fn a_notice_has_its_fields_in_their_places() {
        let notice = Notice {
            number: 0x0807_0605_0403_0201,
            ppa: Ppa(0x18),
            state: NoticeState::Worn,
            mask: NoticeMask::Chunk,
            blocks: 0x0203,
        };
        let b = notice.to_bytes(0x0c0b_0a09).unwrap();
        let mut expected = [0; NOTICE_BYTES];
        put(&mut expected, 0, &[1, 2, 3, 4, 5, 6, 7, 8, 0x18]);
        put(&mut expected, 16, &[9, 10, 11, 12, 0, 1, 2]);
        put(&mut expected, 32, &[2, 2]);
        assert_eq!(b, expected);
        let none = Notice { blocks: 0, ..notice };
        assert!(none.to_bytes(1).is_err() && Notice { blocks: 65537, ..none }.to_bytes(1).is_err());
        let high = Notice { state: NoticeState::RateHigh, mask: NoticeMask::Block, ..notice };
        let b = high.to_bytes(1).unwrap();
        assert_eq!(b[20..23], [4, 0, 1]);
        assert!(Notice::parse(&b[..63]).is_err());
    }

    #[test]
    fn an_entry_has_its_fields_in_their_places() {
        let entry = Entry {
            op: VectorOp::Copy,
            cid: 0x0201,
            nsid: 0x0605_0403,
            metadata: 0,
            data: [0, 0],
            count: 64,
            target: Target::List(0x1111),
            to: Some(Target::List(0x2222)),
        };
        let b = entry.encode().unwrap();
        assert_eq!(b[..8], [0x93, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((b[48], u16_at(&b, 40), u16_at(&b, 56)), (63, 0x1111, 0x2222));
        assert_eq!(
            [VectorOp::Reset, VectorOp::Write, VectorOp::Read].map(opcode),
            [0x90, 0x91, 0x92]
        );
        assert!(Entry { count: 65, ..entry }.encode().is_err());
        assert!(Entry { count: 0, ..entry }.encode().is_err());
        assert!(Entry { to: None, ..entry }.encode().is_err());
        assert!(Entry { op: VectorOp::Read, ..entry }.encode().is_err());
        assert!(Entry { target: Target::Address(Ppa(1)), ..entry }.encode().is_err());
    }

    fn entries() -> impl Strategy<Value = Entry> {
        let op = prop_oneof![
            Just(VectorOp::Read),
            Just(VectorOp::Write),
            Just(VectorOp::Reset),
            Just(VectorOp::Retire),
            Just(VectorOp::Copy)
        ];
        (op, any::<(u16, u32, u64, [u64; 2])>(), 1u8..65, any::<[u64; 2]>()).prop_map(
            |(op, (cid, nsid, metadata, data), count, words)| {
                let target = |w| if count == 1 { Target::Address(Ppa(w)) } else { Target::List(w) };
                let to = (op == VectorOp::Copy).then(|| target(words[1]));
                Entry { op, cid, nsid, metadata, data, count, target: target(words[0]), to }
            },
        )
    }

    /// Bytes near what is right, so that every check is met.
    fn near(len: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![6 => Just(0u8), 3 => 0u8..4, 1 => any::<u8>()], len)
    }

    proptest! {
        #[test]
        fn geometry_comes_back(
            groups in 1u32..257, pus in 1u32..257, chunks in 1u32..2000, pages in 1u32..1000,
            planes in 0u32..4, page in 0u32..5, times in any::<[u32; 3]>(), unreadable in any::<u32>(),
        ) {
            let (planes, page_bytes) = (1 << planes, 4096 << page);
            let g = Geometry::new(Dimensions { groups, pus, chunks, pages, planes, page_bytes }).unwrap();
            let timing = Timing {
                read: vec![times[0].into()], program: vec![times[1].into()], erase: times[2].into(),
                unreadable, ..Timing::default()
            };
            let page = GeometryPage::of(&g, &timing).unwrap();
            let back = GeometryPage::parse(&page.to_bytes()).unwrap();
            prop_assert_eq!(back, page);
            prop_assert_eq!(back.geometry(), Ok(g));
        }

        #[test]
        fn any_page_is_read_or_refused(
            bytes in near(256), version in prop_oneof![Just(2u8), any::<u8>()], len in 4090usize..4100,
        ) {
            let mut page = vec![0; len];
            page[..256].copy_from_slice(&bytes);
            page[0] = version;
            match GeometryPage::parse(&page) {
                Ok(read) => {
                    prop_assert!(len == GEOMETRY_BYTES && version == 2);
                    if let Ok(g) = read.geometry() {
                        prop_assert_eq!(g.chunk_blocks(), read.clba);
                    }
                }
                Err(_) => prop_assert!(len != GEOMETRY_BYTES || version != 2),
            }
        }

        #[test]
        fn descriptors_come_back(
            state in 0usize..4, deviates in any::<bool>(), wear_index in any::<u8>(),
            slba in any::<u64>(), ends in any::<[u64; 2]>(),
        ) {
            let states = [ChunkState::Free, ChunkState::Closed, ChunkState::Open, ChunkState::Offline];
            let (cnlb, wp) = (ends[0].max(ends[1]), ends[0].min(ends[1]));
            let kind = if deviates { 0x11 } else { 2 };
            let d = Descriptor { state: states[state], kind, wear_index, slba: Ppa(slba), cnlb, wp };
            prop_assert_eq!(Descriptor::parse(&d.to_bytes()), Ok(d));
        }

        #[test]
        fn any_descriptor_is_read_or_refused(bytes in near(32), cut in 30usize..33) {
            if let Ok(d) = Descriptor::parse(&bytes[..cut]) {
                prop_assert_eq!(cut, 32);
                let mut same = d.to_bytes();
                same[3..8].copy_from_slice(&bytes[3..8]);
                prop_assert_eq!(&same[..], &bytes[..]);
            }
        }

        #[test]
        fn notices_come_back(
            number in any::<u64>(), ppa in any::<u64>(), state in 0usize..6, mask in 0usize..3,
            blocks in 1u32..65537, nsid in any::<u32>(),
        ) {
            let (state, mask) = (NOTICE_STATES[state].0, NOTICE_MASKS[mask].0);
            let notice = Notice { number, ppa: Ppa(ppa), state, mask, blocks };
            let bytes = notice.to_bytes(nsid).unwrap();
            prop_assert_eq!(Notice::parse(&bytes), Ok((notice, nsid)));
        }

        #[test]
        fn any_notice_is_read_or_refused(bytes in near(64)) {
            if let Ok((notice, nsid)) = Notice::parse(&bytes) {
                let mut same = notice.to_bytes(nsid).unwrap();
                same[23..32].copy_from_slice(&bytes[23..32]);
                same[34..].copy_from_slice(&bytes[34..]);
                prop_assert_eq!(&same[..], &bytes[..]);
            }
        }

        #[test]
        fn entries_come_back(entry in entries()) {
            prop_assert_eq!(Entry::decode(&entry.encode().unwrap()), Ok(entry));
        }

        #[test]
        fn any_entry_is_read_or_refused(
            bytes in near(64), op in prop_oneof![0x90u8..0x94, any::<u8>()], tidy in any::<bool>(),
        ) {
            let mut b: [u8; 64] = bytes.try_into().unwrap();
            b[0] = op;
            if tidy {
                b[1] = 0;
                b[8..16].fill(0);
                b[49..56].fill(0);
            }
            if let Ok(entry) = Entry::decode(&b) {
                prop_assert_eq!(entry.encode(), Ok(b));
            }
        }
    }
}
