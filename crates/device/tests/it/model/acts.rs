//! Which drives, and what is done with them.

use super::*;

/// One step of a run, in numbers that fit any state of the drive.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Read neighbours anywhere in a chunk.
    Read { chunk: usize, block: u32, count: u8 },
    /// Write at the write pointer.
    Append { chunk: usize, blocks: u8 },
    /// Write anywhere in a chunk.
    WriteAt { chunk: usize, block: u32, count: u8 },
    /// Read a list.
    ReadList(Vec<(usize, u32)>),
    /// Append to several chunks with one list.
    AppendList(Vec<(usize, u8)>),
    /// Write a list anywhere.
    WriteList(Vec<(usize, u32)>),
    /// Reset one chunk or several, at a block that should be 0.
    Reset { chunks: Vec<usize>, block: u32, list: bool },
    /// Copy blocks to the write pointer of a chunk that only copies write.
    Copy { from: Vec<(usize, u32)>, to: usize },
    /// A command with a raw address, count and buffer size.
    Raw { op: u8, ppa: u64, count: u8, buffer: u16, list: bool },
    /// Look at the drive.
    Poll,
}

fn acts() -> impl Strategy<Value = Act> {
    let chunk = 0usize..16;
    let block = 0u32..20;
    let places = || prop::collection::vec((0usize..16, 0u32..14), 1..20);
    prop_oneof![
        4 => (chunk.clone(), block.clone(), 1u8..14)
            .prop_map(|(chunk, block, count)| Act::Read { chunk, block, count }),
        6 => (chunk.clone(), 1u8..14).prop_map(|(chunk, blocks)| Act::Append { chunk, blocks }),
        1 => (chunk.clone(), block, 1u8..14)
            .prop_map(|(chunk, block, count)| Act::WriteAt { chunk, block, count }),
        2 => places().prop_map(Act::ReadList),
        3 => prop::collection::vec((chunk.clone(), 1u8..6), 1..6).prop_map(Act::AppendList),
        1 => places().prop_map(Act::WriteList),
        3 => (prop::collection::vec(chunk, 1..4), prop_oneof![9 => Just(0u32), 1 => 0u32..12], any::<bool>())
            .prop_map(|(chunks, block, list)| Act::Reset { chunks, block, list }),
        2 => (places(), 0usize..4).prop_map(|(from, to)| Act::Copy { from, to }),
        1 => (0u8..4, any::<u64>(), 0u8..110, 0u16..9000, any::<bool>())
            .prop_map(|(op, ppa, count, buffer, list)| Act::Raw { op, ppa, count, buffer, list }),
        1 => Just(Act::Poll),
    ]
}

#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub groups: u32,
    pub pus: u32,
    pub planes: u32,
    pub pages_at_once: u32,
    pub kept: u32,
    pub tags: bool,
    pub window: usize,
    pub timing: Timing,
}

impl Setup {
    pub fn geometry(&self) -> Geometry {
        one_shot(self.groups, self.pus, self.planes, self.pages_at_once)
    }
}

pub(super) fn setups() -> impl Strategy<Value = Setup> {
    let shape = (1u32..3, 1u32..3, 1u32..4, prop_oneof![3 => Just(1u32), 1 => Just(2)]);
    let medium = (prop_oneof![Just(4096u32), Just(8), Just(0)], any::<bool>(), 1usize..5);
    let times = (0u64..3, 0u64..60, 0u64..900, 0u64..2000, 0u64..2_000_000_000);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), 0u32..4, 0u32..5);
    // None half the time; the largest holds 12 rows a unit.
    let slc = (0u64..400_000, 0u64..30, 0u64..300, 0u64..2000, 0u32..=flash::slc::WHOLE);
    let slc = (any::<[bool; 2]>(), slc).prop_map(|([on, dynamic], slc)| {
        let (bytes, read, program, idle, mark) = slc;
        let size = SlcSize::Bytes(if on { bytes } else { 0 });
        SlcCache { size, dynamic, read, program, idle, mark, ..SlcCache::default() }
    });
    let registers = (any::<bool>(), any::<bool>());
    let rules = [MultiPlane::None, MultiPlane::SamePage, MultiPlane::SameType];
    let sharing = (any::<bool>(), prop::sample::select(rules.to_vec()));
    let most = || prop_oneof![3 => Just(u32::MAX), 1 => 1u32..5];
    let sharing = (sharing.0, sharing.1, (most(), most()));
    let all = (shape, medium, times, flags, slc, registers, sharing);
    all.prop_map(|(shape, medium, times, flags, slc, registers, sharing)| Setup {
        groups: shape.0,
        pus: shape.1,
        planes: shape.2,
        pages_at_once: shape.3,
        kept: medium.0,
        tags: medium.1,
        window: medium.2,
        timing: Timing {
            command: times.0,
            read: vec![times.1, times.1 / 2],
            program: vec![times.2],
            erase: times.3,
            channel_rate: times.4,
            reads_first: flags.0,
            suspend: flags.1,
            suspend_transfer: flags.2,
            suspend_limit: flags.3,
            cache_registers: registers.0,
            plane_reads: registers.1,
            shared_reads: sharing.0,
            multi_plane_reads: sharing.1,
            suspend_time: 3,
            resume_time: 5,
            unreadable: flags.4,
            open_chunks: sharing.2.0,
            open_chunks_pu: sharing.2.1,
            endurance: ENDURANCE,
            slc,
            ..Timing::default()
        },
    })
}

pub(super) fn steps() -> impl Strategy<Value = Vec<(Act, u64)>> {
    prop::collection::vec(
        (acts(), prop_oneof![3 => 0u64..3, 2 => 0u64..400, 1 => 0u64..4000]),
        1..120,
    )
}
