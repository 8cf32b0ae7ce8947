//! The drive against a plain model: random commands, good and bad, must end
//! with the model's status, bits and data, once each, at an event's time.
//! The rules C1 to C4 of flash are each named; C5 and C6 are in `physics.rs`.

mod acts;
mod replays;

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

use acts::{Act, Setup, setups, steps};

use VectorOp::{Copy, Read, Reset, Write};

const ENDURANCE: u32 = 3;

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
