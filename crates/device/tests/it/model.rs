//! The drive against a plain model: random commands, good and bad, must end
//! with the model's status, bits and data, once each, at an event's time.
//! The rules C1 to C4 of flash are each named; C5 and C6 are in `physics.rs`.

use crate::common;
use std::collections::{BTreeSet, HashMap};

use crate::common::{Rig, cmd, drive, flaky, geometry, list_cmd, one_shot, slow};
use device::realtime::RealTime;
use device::{
    Addresses, Content, Device, MAX_ADDRESSES, MAX_DEPTH, OpenChannel, VectorCmd, VectorDone,
    VectorOp,
};
use flash::{
    BlockBits, Chunk, ChunkState, Dimensions, Geometry, Medium, MultiPlane, Ppa, RamMedium,
    SlcCache, SlcSize, TAG_BYTES, Timing,
};
use port::{Buffer, Port, Ring, Status, Time};
use proptest::prelude::*;

use VectorOp::{Copy, Read, Reset, Write};

const ENDURANCE: u32 = 3;

/// One step of a run, in numbers that fit any state of the drive.
#[derive(Clone, Debug)]
enum Act {
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
struct Setup {
    groups: u32,
    pus: u32,
    planes: u32,
    pages_at_once: u32,
    kept: u32,
    tags: bool,
    window: usize,
    timing: Timing,
}

impl Setup {
    fn geometry(&self) -> Geometry {
        one_shot(self.groups, self.pus, self.planes, self.pages_at_once)
    }
}

fn setups() -> impl Strategy<Value = Setup> {
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

/// What the model knows of a chunk.
#[derive(Clone, Copy, Debug)]
struct Known {
    wp: u32,
    wear: u32,
    offline: bool,
}

/// What a command must give.
struct Expect {
    op: VectorOp,
    count: u8,
    status: Status,
    failed: BlockBits,
    /// The buffer as it must come back.
    bytes: Vec<u8>,
    buffer_at: *const u8,
    list: Option<Box<Addresses>>,
    /// Blocks that completion makes sure are programmed, with their chunks'
    /// wear: a chunk may be reset before the whole command is done.
    wrote: Vec<(Ppa, u32)>,
}

/// The drive and its model, side by side.
struct Both {
    rig: Rig<Device<RamMedium>>,
    g: Geometry,
    setup: Setup,
    known: Vec<Known>,
    content: HashMap<Ppa, (Vec<u8>, Vec<u8>)>,
    waiting: HashMap<u64, Expect>,
    /// Blocks known to be programmed, by chunk.
    sure: Vec<u32>,
    moments: BTreeSet<Time>,
    last: Time,
    copies: usize,
    next: u64,
}

/// Chunks of the drive that the test names by a small number. The last of
/// each parallel unit is written by copies alone.
fn chunk_named(g: &Geometry, name: usize) -> usize {
    let pus: Vec<usize> = g.pus_channels_first().collect();
    let ordinary = g.chunks() as usize - 1;
    let name = name % (pus.len() * ordinary);
    g.chunk_of(pus[name % pus.len()], (name / pus.len()) as u32)
}

fn copy_chunk(g: &Geometry, name: usize) -> usize {
    let pus: Vec<usize> = g.pus_channels_first().collect();
    g.chunk_of(pus[name % pus.len()], g.chunks() - 1)
}

impl Both {
    fn new(setup: Setup) -> Both {
        let g = setup.geometry();
        let device = drive(&g, &setup.timing, setup.kept);
        Both {
            rig: Rig::new(device, setup.window),
            g,
            setup,
            known: vec![Known { wp: 0, wear: 0, offline: false }; g.chunk_slots()],
            content: HashMap::new(),
            waiting: HashMap::new(),
            sure: vec![0; g.chunk_slots()],
            moments: BTreeSet::new(),
            last: Time::ZERO,
            copies: 0,
            next: 1,
        }
    }

    fn at(&self, chunk: usize, block: u32) -> Ppa {
        Ppa(self.g.chunk_start(chunk).0 + u64::from(block))
    }

    /// The addresses of a command, as it gives them.
    fn addresses(cmd: &VectorCmd) -> Vec<Ppa> {
        let n = usize::from(cmd.count);
        match &cmd.list {
            Some(list) => list.from[..n.min(MAX_ADDRESSES)].to_vec(),
            None => (0..n as u64).map(|i| Ppa(cmd.ppa.0.saturating_add(i))).collect(),
        }
    }

    fn bits(from: usize, count: usize) -> BlockBits {
        (from..from + count).fold(0, |bits, i| bits | 1 << i)
    }

    /// C1: whole units only, and inside the drive.
    fn shape(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let n = usize::from(cmd.count);
        let each =
            self.setup.kept as usize + if cmd.content == Content::Tagged { TAG_BYTES } else { 0 };
        let data = matches!(cmd.op, Read | Write);
        if n == 0 || n > 64 || cmd.buffer.len() != if data { n * each } else { 0 } {
            return Err((Status::INVALID_FIELD, 0));
        }
        let single = cmd.op == Copy || (cmd.op == Reset && n != 1);
        if cmd.list.is_none() && single {
            return Err((Status::INVALID_FIELD, 0));
        }
        let all = Self::addresses(cmd);
        let mut out = 0;
        for (i, &ppa) in all.iter().enumerate() {
            let to_ok = cmd.op != Copy
                || self.g.contains(cmd.list.as_ref().expect("a copy has a list").to[i]);
            if !self.g.contains(ppa) || !to_ok {
                out |= 1 << i;
            }
        }
        if cmd.list.is_none() {
            let one = |p: &Ppa| self.g.chunk_index(*p) == self.g.chunk_index(all[0]);
            if out != 0 || !all.iter().all(one) {
                return Err((Status::LBA_OUT_OF_RANGE, Self::bits(0, n)));
            }
        }
        if out == 0 { Ok(()) } else { Err((Status::LBA_OUT_OF_RANGE, out)) }
    }

    /// Whether a block can be read now. What is programmed is the drive's
    /// word, which `compare` bounds from both sides.
    fn readable(&self, ppa: Ppa) -> Result<(), Status> {
        let index = self.g.chunk_index(ppa);
        let (known, chunk) = (self.known[index], self.rig.port.chunk(index));
        let window = self.setup.timing.unreadable;
        let full = known.wp == self.g.chunk_blocks();
        let limit = match known {
            Known { offline: true, .. } => return Err(Status::OFFLINE_CHUNK),
            Known { wp, .. } if wp > 0 && !full => chunk.programmed.saturating_sub(window),
            _ => chunk.programmed,
        };
        if self.g.block(ppa) < limit { Ok(()) } else { Err(Status::UNWRITTEN) }
    }

    /// Whether one more chunk of a parallel unit may be open.
    fn may_open(&self, pu: usize) -> bool {
        let is_open = |known: &Known| (1..self.g.chunk_blocks()).contains(&known.wp);
        let open = (0..self.known.len()).filter(|&i| is_open(&self.known[i]));
        let of_pu = open.clone().filter(|&i| self.g.pu_index(self.g.chunk_start(i)) == pu);
        let timing = &self.setup.timing;
        let within = |count: usize, most: u32| count < most as usize;
        within(open.count(), timing.open_chunks) && within(of_pu.count(), timing.open_chunks_pu)
    }

    /// C2: a chunk is erased before it is written again. C3: in order.
    fn write(&mut self, addresses: &[Ppa]) -> Result<(), (Status, BlockBits)> {
        let before = self.known.clone();
        let mut i = 0;
        while i < addresses.len() {
            let (start, row) = (addresses[i], self.g.row(addresses[i]));
            let mut n = 1;
            while i + n < addresses.len()
                && addresses[i + n].0 == start.0 + n as u64
                && self.g.row(addresses[i + n]) == row
            {
                n += 1;
            }
            let has_room = self.may_open(self.g.pu_index(start));
            let known = &mut self.known[self.g.chunk_index(start)];
            let room = self.g.chunk_blocks() - known.wp;
            let verdict = if known.offline {
                Err(Status::OFFLINE_CHUNK)
            } else if room == 0 || self.g.block(start) != known.wp {
                Err(Status::OUT_OF_ORDER_WRITE)
            } else if !(n as u32).is_multiple_of(self.g.write_blocks()) {
                Err(Status::INVALID_FIELD)
            } else if known.wp == 0 && room > n as u32 && !has_room {
                Err(Status::TOO_MANY_OPEN_CHUNKS)
            } else {
                known.wp += n as u32;
                Ok(())
            };
            if let Err(status) = verdict {
                self.known = before;
                return Err((status, Self::bits(i, n)));
            }
            i += n;
        }
        Ok(())
    }

    /// C4: erases wear a chunk out.
    fn reset(&mut self, addresses: &[Ppa]) -> Result<(), (Status, BlockBits)> {
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        let mut seen = BTreeSet::new();
        for (i, &ppa) in addresses.iter().enumerate() {
            let index = self.g.chunk_index(ppa);
            let known = self.known[index];
            let whole = self.rig.port.chunk(index).programmed == known.wp;
            let verdict = if !seen.insert(index) || self.g.block(ppa) != 0 {
                Status::INVALID_RESET
            } else if known.offline {
                Status::OFFLINE_CHUNK
            } else if known.wp == 0 || !whole {
                Status::INVALID_RESET
            } else if known.wear == ENDURANCE {
                self.known[index] = Known { wp: 0, wear: known.wear + 1, offline: true };
                self.sure[index] = 0;
                Status::OFFLINE_CHUNK
            } else {
                Status::SUCCESS
            };
            if !verdict.is_ok() {
                status = status.and(verdict);
                failed |= 1 << i;
            }
        }
        if failed != 0 {
            return Err((status, failed));
        }
        for &ppa in addresses {
            let index = self.g.chunk_index(ppa);
            self.known[index].wp = 0;
            self.known[index].wear += 1;
            self.sure[index] = 0;
        }
        Ok(())
    }

    /// What a command must give, if it is submitted now.
    fn verdict(&mut self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        self.shape(cmd)?;
        let all = Self::addresses(cmd);
        match cmd.op {
            VectorOp::Flush | VectorOp::Retire => unreachable!("none is sent"),
            Read | Copy => {
                let (mut status, mut failed) = (Status::SUCCESS, 0);
                for (i, &ppa) in all.iter().enumerate() {
                    if let Err(e) = self.readable(ppa) {
                        status = status.and(e);
                        failed |= 1 << i;
                    }
                }
                if failed != 0 {
                    return Err((status, failed));
                }
                if cmd.op == Copy {
                    let list = cmd.list.as_ref().expect("it was looked at");
                    return self.write(&list.to[..all.len()]);
                }
                Ok(())
            }
            Write => self.write(&all),
            Reset => self.reset(&all),
        }
    }

    /// What the model holds at an address: data, then its tag.
    fn stored(&self, ppa: Ppa) -> (Vec<u8>, Vec<u8>) {
        self.content.get(&ppa).expect("readable blocks were written").clone()
    }

    fn submit(&mut self, at: u64, mut cmd: VectorCmd) {
        self.run_to(Time(at));
        cmd.cookie = self.next;
        self.next += 1;
        let seed = cmd.cookie;
        for (i, byte) in cmd.buffer.bytes_mut().iter_mut().enumerate() {
            *byte = port::random::mix(seed * 0x1_0001 + i as u64 / 3) as u8;
        }
        let ok = self.verdict(&cmd);
        let (status, failed) = ok.err().unwrap_or((Status::SUCCESS, 0));
        let mut bytes = cmd.buffer.bytes().to_vec();
        let (kept, n) = (self.setup.kept as usize, usize::from(cmd.count));
        let mut wrote = Vec::new();
        if ok.is_ok() {
            let all = Self::addresses(&cmd);
            match cmd.op {
                VectorOp::Flush | VectorOp::Retire => {}
                Write => {
                    for (i, &ppa) in all.iter().enumerate() {
                        let data = bytes[i * kept..(i + 1) * kept].to_vec();
                        let tags = n * kept + i * TAG_BYTES;
                        let tag = if cmd.content == Content::Tagged {
                            bytes[tags..tags + TAG_BYTES].to_vec()
                        } else {
                            vec![0; TAG_BYTES]
                        };
                        self.content.insert(ppa, (data, tag));
                    }
                    wrote = all;
                }
                Read => {
                    for (i, &ppa) in all.iter().enumerate() {
                        let (data, tag) = self.stored(ppa);
                        bytes[i * kept..(i + 1) * kept].copy_from_slice(&data);
                        if cmd.content == Content::Tagged {
                            bytes[n * kept + i * TAG_BYTES..][..TAG_BYTES].copy_from_slice(&tag);
                        }
                    }
                }
                Copy => {
                    let list = cmd.list.clone().expect("a copy has a list");
                    for (i, &ppa) in all.iter().enumerate() {
                        let stored = self.stored(ppa);
                        self.content.insert(list.to[i], stored);
                    }
                    wrote = list.to[..n].to_vec();
                }
                Reset => {}
            }
        }
        let wear = |ppa: Ppa| (ppa, self.known[self.g.chunk_index(ppa)].wear);
        let wrote = wrote.into_iter().map(wear).collect();
        self.copies += usize::from(cmd.op == Copy);
        let expect = Expect {
            op: cmd.op,
            count: cmd.count,
            status,
            failed,
            bytes,
            buffer_at: cmd.buffer.bytes().as_ptr(),
            list: cmd.list.clone(),
            wrote,
        };
        self.waiting.insert(cmd.cookie, expect);
        self.moments.insert(Time(at));
        self.rig.submit(at, cmd);
    }

    /// Runs and checks what completes.
    fn run_to(&mut self, to: Time) {
        while let Some(at) = self.rig.port.next_event().filter(|&at| at <= to) {
            self.moments.insert(at);
            self.rig.run_to(at);
            for done in std::mem::take(&mut self.rig.all) {
                self.check(done, at);
            }
            self.compare();
        }
        self.rig.run_to(to);
        self.compare();
    }

    fn check(&mut self, done: VectorDone, seen: Time) {
        let expect = self.waiting.remove(&done.cookie).expect("it completes once");
        assert_eq!((done.status, done.failed), (expect.status, expect.failed), "{:?}", expect.op);
        assert!(done.at >= self.last && done.at <= seen, "time goes on");
        assert!(self.moments.contains(&done.at), "{} is an event's time", done.at);
        self.last = done.at;
        assert_eq!(done.list, expect.list);
        assert!(std::ptr::eq(done.buffer.bytes().as_ptr(), expect.buffer_at), "its own buffer");
        assert!(done.buffer.bytes() == expect.bytes, "{:?} of {}", expect.op, expect.count);
        self.copies -= usize::from(expect.op == Copy);
        for (ppa, wear) in expect.wrote {
            let index = self.g.chunk_index(ppa);
            if self.known[index].wear != wear {
                continue;
            }
            self.sure[index] = self.sure[index].max(self.g.block(ppa) + 1);
        }
    }

    /// Whether only copies write a chunk.
    fn is_copied(&self, index: usize) -> bool {
        index & ((1 << self.g.chunk_bits()) - 1) == self.g.chunks() as usize - 1
    }

    /// Chunk states, as far as the model knows them.
    fn compare(&self) {
        for (index, known) in self.known.iter().enumerate() {
            let chunk: Chunk = self.rig.port.chunk(index);
            let copied = self.is_copied(index);
            if copied && self.copies > 0 {
                continue;
            }
            let state = match known {
                Known { offline: true, .. } => ChunkState::Offline,
                Known { wp: 0, .. } => ChunkState::Free,
                Known { wp, .. } if *wp == self.g.chunk_blocks() => ChunkState::Closed,
                _ => ChunkState::Open,
            };
            assert_eq!((chunk.state, chunk.wp, chunk.wear), (state, known.wp, known.wear));
            assert!(chunk.programmed <= chunk.wp && chunk.programmed >= self.sure[index]);
            if self.waiting.is_empty() {
                assert_eq!(chunk.programmed, chunk.wp, "nothing is on its way");
            }
        }
    }

    fn buffer(&self, count: usize) -> Buffer {
        let each = self.setup.kept as usize + if self.setup.tags { TAG_BYTES } else { 0 };
        Buffer::zeroed(count * each).unwrap()
    }

    fn data(&self, op: VectorOp, from: &[Ppa], list: bool) -> VectorCmd {
        let mut c =
            if list { list_cmd(0, op, from, &[]) } else { cmd(0, op, from[0], from.len() as u8) };
        c.content = if self.setup.tags { Content::Tagged } else { Content::Data };
        c.buffer = self.buffer(from.len());
        c
    }

    fn neighbours(&self, chunk: usize, block: u32, count: u8) -> Vec<Ppa> {
        (0..u32::from(count)).map(|i| self.at(chunk, block + i)).collect()
    }

    /// The command of an act in the present state; `None` for none, and for one
    /// that leaves its chunk for the next, where only copies write: a copy looks
    /// at its chunk when it has read, the model when it is submitted.
    fn command(&mut self, act: &Act) -> Option<VectorCmd> {
        let last = |ppa: &Ppa| self.g.contains(*ppa) && self.is_copied(self.g.chunk_index(*ppa));
        let command = self.any_command(act)?;
        let writes = matches!(command.op, Write | Reset);
        (!writes || !Self::addresses(&command).iter().any(last)).then_some(command)
    }

    fn any_command(&self, act: &Act) -> Option<VectorCmd> {
        let g = self.g;
        let place = |&(chunk, block): &(usize, u32)| {
            Ppa(g.chunk_start(chunk_named(&g, chunk)).0 + u64::from(block))
        };
        Some(match act {
            Act::Read { chunk, block, count } => {
                self.data(Read, &self.neighbours(chunk_named(&g, *chunk), *block, *count), false)
            }
            Act::Append { chunk, blocks } => {
                let chunk = chunk_named(&g, *chunk);
                let count = (blocks / 2 * 2).max(2);
                self.data(Write, &self.neighbours(chunk, self.known[chunk].wp, count), false)
            }
            Act::WriteAt { chunk, block, count } => {
                self.data(Write, &self.neighbours(chunk_named(&g, *chunk), *block, *count), false)
            }
            Act::ReadList(places) => {
                let from: Vec<Ppa> = places.iter().map(place).collect();
                self.data(Read, &from, true)
            }
            Act::WriteList(places) => {
                let from: Vec<Ppa> = places.iter().map(place).collect();
                self.data(Write, &from, true)
            }
            Act::AppendList(parts) => {
                let mut wps: Vec<u32> = self.known.iter().map(|k| k.wp).collect();
                let mut from = Vec::new();
                for (chunk, pages) in parts {
                    let chunk = chunk_named(&g, *chunk);
                    let count = (u32::from(*pages) * 2).min(g.chunk_blocks() - wps[chunk]);
                    from.extend(self.neighbours(chunk, wps[chunk], count as u8));
                    wps[chunk] += count;
                }
                if from.is_empty() {
                    return None;
                }
                self.data(Write, &from[..from.len().min(64)], true)
            }
            Act::Reset { chunks, block, list } => {
                let named: Vec<Ppa> =
                    chunks.iter().map(|c| self.at(chunk_named(&g, *c), *block)).collect();
                if *list { list_cmd(0, Reset, &named, &[]) } else { cmd(0, Reset, named[0], 1) }
            }
            Act::Copy { from, to } => {
                if self.copies > 0 {
                    return None;
                }
                let from: Vec<Ppa> = from.iter().map(place).collect();
                let chunk = copy_chunk(&g, *to);
                let start = self.known[chunk].wp;
                let to: Vec<Ppa> =
                    (0..from.len() as u32).map(|i| self.at(chunk, start + i)).collect();
                list_cmd(0, Copy, &from, &to)
            }
            Act::Raw { op, ppa, count, buffer, list } => {
                let op = [Read, Write, Reset, Copy][usize::from(*op)];
                let from = vec![Ppa(*ppa); usize::from(*count).min(64)];
                let mut c = if *list {
                    list_cmd(0, op, &from, &from)
                } else {
                    cmd(0, op, Ppa(*ppa), *count)
                };
                (c.count, c.buffer) = (*count, Buffer::zeroed(usize::from(*buffer)).unwrap());
                c
            }
            Act::Poll => return None,
        })
    }
}

fn steps() -> impl Strategy<Value = Vec<(Act, u64)>> {
    prop::collection::vec(
        (acts(), prop_oneof![3 => 0u64..3, 2 => 0u64..400, 1 => 0u64..4000]),
        1..120,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// C1 to C4, statuses, bits, data, buffers, times.
    #[test]
    fn the_drive_does_what_the_model_says(setup in setups(), steps in steps()) {
        let mut both = Both::new(setup);
        let mut now = 0;
        for (act, wait) in steps {
            now += wait;
            both.run_to(Time(now));
            if let Some(command) = both.command(&act) {
                both.submit(now, command);
            }
        }
        while let Some(at) = both.rig.port.next_event() {
            both.run_to(at);
        }
        prop_assert!(both.waiting.is_empty(), "everything completes");
        both.compare();
    }
}

/// A run that needs no model: commands in their submit times.
fn script(setup: &Setup, steps: &[(Act, u64)]) -> Vec<(u64, VectorCmd)> {
    let mut both = Both::new(setup.clone());
    let (mut now, mut commands) = (0, Vec::new());
    for (act, wait) in steps {
        now += wait;
        both.run_to(Time(now));
        let Some(command) = both.command(act) else { continue };
        let mut same = VectorCmd {
            cookie: both.next,
            list: command.list.clone(),
            buffer: Buffer::zeroed(command.buffer.len()).unwrap(),
            ..command
        };
        both.submit(now, command);
        same.buffer.bytes_mut().fill(same.cookie as u8);
        commands.push((now, same));
    }
    commands
}

/// Status, bits, time and bytes of each completion.
type End = (u64, Status, BlockBits, Time, Vec<u8>);

fn end(done: &VectorDone) -> End {
    (done.cookie, done.status, done.failed, done.at, done.buffer.bytes().to_vec())
}

fn play<M: Medium>(
    device: Device<M>,
    commands: Vec<(u64, VectorCmd)>,
) -> (Vec<End>, u64, Device<M>) {
    let mut rig = Rig::new(device, 64);
    for (at, command) in commands {
        rig.submit(at, command);
    }
    rig.drain();
    let ends = rig.all.iter().map(end).collect();
    let hash = rig.port.state_hash();
    (ends, hash, rig.port)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_commands_give_the_same_completions(setup in setups(), steps in steps()) {
        let g = setup.geometry();
        let once = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        let twice = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        prop_assert_eq!(once.0, twice.0);
        prop_assert_eq!(once.1, twice.1);
    }

    #[test]
    fn a_slow_medium_changes_no_time(setup in setups(), steps in steps(), seed in any::<u64>()) {
        let g = setup.geometry();
        let ram = RamMedium::new(&g, setup.kept).unwrap();
        let slow = Device::new(&g, &setup.timing, slow(ram, seed, 5)).unwrap();
        let mut fast = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        let mut slow = play(slow, script(&setup, &steps));
        // Of the same time, the order may differ.
        fast.0.sort_by_key(|e| (e.3, e.0));
        slow.0.sort_by_key(|e| (e.3, e.0));
        prop_assert_eq!(fast.0, slow.0);
        prop_assert_eq!(fast.1, slow.1);
    }

    /// Real time looks at the drive when it likes: each event still happens
    /// at its own time. The clock here is the test's.
    #[test]
    fn a_late_poll_changes_no_time(
        setup in setups(), steps in steps(), polls in prop::collection::vec(any::<bool>(), 16),
    ) {
        let g = setup.geometry();
        let eager = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        let mut lazy = RealTime::new(drive(&g, &setup.timing, setup.kept));
        let (mut cmds, mut done, mut ends) = (Ring::new(1), Ring::new(3), Vec::new());
        for (i, (at, command)) in script(&setup, &steps).into_iter().enumerate() {
            if polls[i % polls.len()] {
                lazy.poll(Time(at), &mut done);
                ends.extend(done.drain().map(|d| end(&d)));
            }
            prop_assert!(cmds.push(command).is_ok());
            prop_assert_eq!(lazy.submit(Time(at), &mut cmds), Time(at));
            prop_assert!(cmds.is_empty());
        }
        while lazy.idle_for().is_some() {
            lazy.poll(Time(u64::MAX >> 2), &mut done);
            ends.extend(done.drain().map(|d| end(&d)));
        }
        prop_assert_eq!(&ends, &eager.0);
        prop_assert_eq!(lazy.port().state_hash(), eager.1);
    }

    #[test]
    fn a_failing_medium_is_reported_with_the_right_bits(seed in any::<u64>(), planes in 0u32..2) {
        let g = geometry(1, 2, 1 << planes);
        let t = Timing { read: vec![5], program: vec![9], erase: 20, ..Timing::default() };
        let mut rig = Rig::new(Device::new(&g, &t, flaky(&g, 8, seed)).unwrap(), 8);
        let start = g.ppa(0, 1, 2, 0);
        let (blocks, row) = (g.chunk_blocks(), g.row_blocks());
        let at = |block: u32| Ppa(start.0 + u64::from(block));
        let fails = |kind: u64, block| common::fails(seed, kind, at(block));
        let bits = |f: &dyn Fn(u32) -> bool| {
            (0..blocks).filter(|&b| f(b)).fold(0, |bits: BlockBits, b| bits | 1 << b)
        };
        // The third row that fails closes the chunk: it ends there.
        let rows: Vec<u32> = (0..blocks).step_by(row as usize).filter(|&r| fails(0, r)).collect();
        let end = rows.get(2).copied().unwrap_or(blocks);
        let lost = bits(&|b| fails(0, b - b % row) || b >= end);
        let unread = bits(&|b| b < end && (lost >> b & 1 == 1 || fails(1, b - b % row) && fails(1, b)));
        let status = |bits, error| if bits == 0 { Status::SUCCESS } else { error };
        for (kind, op, count, expected, error) in [
            (0, Write, blocks, lost, Status::WRITE_FAILED_WRITE_NEXT_UNIT),
            (1, Read, end, unread, Status::UNRECOVERED_READ),
        ] {
            let mut command = cmd(kind, op, start, count as u8);
            command.buffer = Buffer::zeroed(8 * count as usize).unwrap();
            rig.submit(rig.now.0, command);
            rig.drain();
            let done = rig.all.pop().unwrap();
            prop_assert_eq!(done.failed, expected);
            prop_assert_eq!(done.status, status(expected, error));
            prop_assert_eq!(done.buffer.len(), 8 * count as usize);
        }
        let chunk = rig.port.chunk(g.chunk_index(start));
        prop_assert_eq!((chunk.state, chunk.wp, chunk.programmed), (ChunkState::Closed, end, end));
        rig.submit(rig.now.0, cmd(2, Reset, start, 1));
        let mut behind = cmd(3, Write, start, 2);
        behind.buffer = Buffer::zeroed(16).unwrap();
        rig.submit(rig.now.0, behind);
        rig.drain();
        let broken = common::fails(seed, 2, start);
        let reset = &rig.all[0];
        prop_assert_eq!((reset.cookie, reset.failed), (2, BlockBits::from(broken)));
        prop_assert_eq!(reset.status, status(reset.failed, Status::OFFLINE_CHUNK));
        let offline = rig.port.chunk(g.chunk_index(start)).state == ChunkState::Offline;
        prop_assert_eq!(offline, broken);
        if broken {
            let ends: Vec<_> = rig.all.iter().map(|d| d.status).collect();
            prop_assert_eq!(ends, vec![Status::OFFLINE_CHUNK; 2], "a write behind it is not lost in silence");
        }
    }
}

/// Submits everything, as much as fits at a time; gives each completion.
fn push_through(rig: &mut Rig<Device<RamMedium>>, commands: Vec<VectorCmd>) -> Vec<VectorDone> {
    let mut ring = Ring::new(commands.len());
    for command in commands {
        ring.push(command).unwrap();
    }
    let mut refused = false;
    loop {
        let before = ring.len();
        rig.port.submit(rig.now, &mut ring);
        assert!(before - ring.len() <= MAX_DEPTH);
        refused |= !ring.is_empty();
        let Some(at) = rig.port.next_event() else { break };
        rig.run_to(at);
    }
    assert!(ring.is_empty() && refused, "it was too much at once, and all was taken in the end");
    std::mem::take(&mut rig.all)
}

#[test]
fn back_pressure_loses_nothing() {
    let g = geometry(2, 2, 1);
    let t = Timing { read: vec![10], ..Timing::default() };
    for (count, total) in [(1u8, 3000u64), (64, 400)] {
        let mut rig = common::written(&g, &t);
        let from: Vec<Ppa> =
            (0..64u32).map(|i| g.ppa(i % 2, i / 2 % 2, i / 4 % 3, i / 12)).collect();
        let command = |i| list_cmd(i, Read, &from[..usize::from(count)], &[]);
        let done = push_through(&mut rig, (0..total).map(command).collect());
        let mut seen: Vec<u64> = done.iter().map(|d| d.cookie).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..total).collect::<Vec<_>>());
        assert!(done.iter().all(|d| d.status.is_ok()));
        assert!(done.is_sorted_by_key(|d| d.at));
    }
}

#[test]
fn copies_find_room_among_other_commands() {
    // Copies of 8 rows to 64 single blocks, while lists of 64 take all the
    // room for operations that there is.
    let dim = Dimensions { pus: 8, chunks: 64, pages: 2, planes: 8, ..Dimensions::LEAST };
    let g = Geometry::new(dim).unwrap();
    let t = Timing { read: vec![10], program: vec![100], ..Timing::default() };
    let mut rig = Rig::new(drive(&g, &t, 0), 64);
    for pu in 0..8 {
        rig.one(cmd(pu.into(), Write, g.ppa(0, pu, 0, 0), 8));
        rig.one(cmd(pu.into(), Write, g.ppa(0, pu, 0, 8), 8));
    }
    let scattered: Vec<Ppa> = (0..64).map(|i| g.ppa(0, i % 8, 0, i / 8 * 2)).collect();
    let rows: Vec<Ppa> = (0..64).map(|i| g.ppa(0, i / 16, 0, i % 16)).collect();
    let command = |i: u32| {
        if !i.is_multiple_of(60) || i >= 480 {
            return list_cmd(i.into(), Read, &scattered, &[]);
        }
        // Each copy has seven chunks of each parallel unit for itself.
        let first = 1 + i / 60 * 7;
        let to: Vec<Ppa> = (0..64).map(|j| g.ppa(0, j % 8, first + j / 8 % 7, j / 56)).collect();
        list_cmd(i.into(), Copy, &rows, &to)
    };
    rig.all.clear();
    let done = push_through(&mut rig, (0..500).map(command).collect());
    assert_eq!(done.len(), 500);
    assert!(done.iter().all(|d| d.status.is_ok()));
}

#[test]
fn a_worn_chunk_goes_offline_and_takes_no_other_with_it() {
    let g = geometry(1, 1, 1);
    let t = Timing { endurance: 1, erase: 100, ..Timing::default() };
    let mut rig = Rig::new(drive(&g, &t, 0), 8);
    let (worn, fresh) = (g.ppa(0, 0, 0, 0), g.ppa(0, 0, 1, 0));
    rig.one(cmd(1, Write, worn, 2));
    rig.one(cmd(2, Reset, worn, 1));
    rig.one(cmd(3, Write, worn, 2));
    rig.one(cmd(4, Write, fresh, 2));
    rig.submit(rig.now.0, list_cmd(5, Reset, &[fresh, worn], &[]));
    rig.drain();
    let done = rig.all.last().unwrap();
    assert_eq!((done.status, done.failed), (Status::OFFLINE_CHUNK, 0b10));
    assert_eq!(rig.port.chunk(g.chunk_index(worn)).state, ChunkState::Offline);
    let kept = rig.port.chunk(g.chunk_index(fresh));
    assert_eq!((kept.state, kept.wp, kept.wear), (ChunkState::Open, 2, 0), "it was not erased");
    assert_eq!(rig.port.counters().erases, 1);
}

#[test]
fn a_late_command_does_not_start_before_it_came() {
    let g = geometry(1, 1, 1);
    let t = Timing { program: vec![100], ..Timing::default() };
    let mut rt = RealTime::new(drive(&g, &t, 0));
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(4));
    cmds.push(cmd(1, Write, g.ppa(0, 0, 0, 0), 2)).unwrap();
    rt.submit(Time(10), &mut cmds);
    cmds.push(cmd(2, Write, g.ppa(0, 0, 0, 2), 2)).unwrap();
    rt.submit(Time(500), &mut cmds);
    rt.poll(Time(5000), &mut done);
    let ends: Vec<_> = done.drain().map(|d| (d.cookie, d.at)).collect();
    assert_eq!(ends, [(1, Time(110)), (2, Time(600))]);
}

#[test]
fn a_medium_that_never_ends_does_not_hang_the_poll() {
    let g = geometry(1, 1, 1);
    let ram = RamMedium::new(&g, 0).unwrap();
    let slow = Device::new(&g, &Timing::default(), slow(ram, 0, u64::MAX - 1)).unwrap();
    let mut rt = RealTime::new(slow);
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(4));
    cmds.push(cmd(1, Write, g.ppa(0, 0, 0, 0), 2)).unwrap();
    rt.submit(Time(10), &mut cmds);
    for now in 11..50 {
        rt.poll(Time(now), &mut done);
    }
    cmds.push(cmd(2, Write, g.ppa(0, 0, 0, 2), 2)).unwrap();
    rt.submit(Time(50), &mut cmds);
    assert_eq!((done.len(), cmds.len()), (0, 1), "time stands until the bytes are there");
}
