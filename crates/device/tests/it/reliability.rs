//! A drive that errs, against the model it errs by: one command at a time each
//! status, bit, byte and nanosecond is predicted; with many commands at once no
//! read ever gives wrong data, and the same run ends in the same state.

mod cases;

use std::collections::HashMap;

use crate::common::{Rig, cmd, drive, geometry, list_cmd, slow};
use device::{
    Content, Device, ErrorCounters, Link, Notice, NoticeMask, NoticeState, OpenChannel, VectorCmd,
    VectorDone, VectorOp,
};
use faults::{Below, Script, ScriptedMedium};
use flash::{
    BlockBits, Chunk, ChunkState, Dimensions, EnergyCosts, Geometry, LinkTiming, Medium, Ppa,
    RamMedium, Reliability, TAG_BYTES, Timing,
};
use port::random::mix;
use port::{Buffer, Port, Status, Time};
use proptest::prelude::*;

use VectorOp::{Copy, Read, Reset, Write};

const KEPT: usize = 8;
const ENDURANCE: u32 = 20;

fn timing() -> Timing {
    Timing {
        read: vec![100, 130],
        program: vec![900],
        erase: 3000,
        command: 7,
        channel_rate: 1_000_000_000,
        endurance: ENDURANCE,
        ..Timing::default()
    }
}

/// Everything goes wrong now and then. Age is left out.
fn model() -> Reliability {
    Reliability {
        errors: true,
        rber_base: 4e-3,
        rber_wear: 2e-3,
        wear_power: 1.5,
        read_disturb: 2e-5,
        read_retries: 2,
        retry_gain: 0.85,
        program_failure: 0.4,
        erase_failure: 0.1,
        failure_power: 0.3,
        endurance_cliff: false,
        correctable: 50,
        ..Reliability::default()
    }
}

fn device(g: &Geometry, t: &Timing, r: &Reliability, seed: u64) -> Device<RamMedium> {
    Device::with(g, t, r, seed, RamMedium::new(g, KEPT as u32).unwrap()).unwrap()
}

/// A command with a buffer filled from `value`.
fn filled(cmd: VectorCmd, value: u64) -> VectorCmd {
    let cmd = VectorCmd { content: Content::Tagged, ..cmd };
    let mut buffer = Buffer::zeroed(cmd.buffer_bytes(KEPT as u32)).unwrap();
    for (i, byte) in (0u64..).zip(buffer.bytes_mut()) {
        *byte = mix(value ^ i) as u8;
    }
    VectorCmd { buffer, ..cmd }
}

/// The bytes and the tag of block `i` of a command.
fn block_of(bytes: &[u8], count: usize, i: usize) -> Block {
    let tag = count * KEPT + i * TAG_BYTES;
    (bytes[i * KEPT..(i + 1) * KEPT].to_vec(), bytes[tag..tag + TAG_BYTES].to_vec())
}

fn run<P>(rig: &mut Rig<P>, cmd: VectorCmd) -> VectorDone
where
    P: Port<Cmd = VectorCmd, Done = VectorDone>,
{
    rig.submit(rig.now.0, cmd);
    rig.drain();
    rig.all.pop().expect("it completed")
}

/// One step of a run.
#[derive(Clone, Debug)]
enum Act {
    Read {
        chunk: usize,
        block: u32,
        count: u8,
    },
    /// Read blocks of several chunks.
    ReadList(Vec<(usize, u32)>),
    /// Write whole rows, or half ones, at the write pointer.
    Append {
        chunk: usize,
        count: u8,
    },
    Reset {
        chunk: usize,
    },
    /// Copy blocks to the write pointer of a chunk.
    Copy {
        from: Vec<(usize, u32)>,
        to: usize,
    },
}

fn acts() -> impl Strategy<Value = Act> {
    let place = || (0usize..8, 0u32..24);
    prop_oneof![
        6 => (0usize..8, 0u32..24, 1u8..24)
            .prop_map(|(chunk, block, count)| Act::Read { chunk, block, count }),
        2 => prop::collection::vec(place(), 1..12).prop_map(Act::ReadList),
        6 => (0usize..8, 1u8..24).prop_map(|(chunk, count)| Act::Append { chunk, count }),
        3 => (0usize..8).prop_map(|chunk| Act::Reset { chunk }),
        1 => (prop::collection::vec(place(), 1..12), 0usize..8)
            .prop_map(|(from, to)| Act::Copy { from, to }),
    ]
}

/// The command of an act in the drive's present state, if it can be one that
/// is not refused.
fn command<D: OpenChannel>(device: &D, act: &Act, value: u64) -> Option<VectorCmd> {
    let g = *device.geometry();
    let size = g.chunk_blocks();
    let at = |chunk: usize, block: u32| Ppa(g.chunk_start(chunk).0 + u64::from(block));
    let readable = |&(chunk, block): &(usize, u32)| {
        let chunk = device.chunk(chunk);
        chunk.state != ChunkState::Offline && block < chunk.programmed
    };
    let places = |from: &[(usize, u32)]| -> Vec<Ppa> {
        let mut from: Vec<_> = from.iter().copied().filter(&readable).collect();
        from.dedup();
        from.into_iter().map(|(chunk, block)| at(chunk, block)).collect()
    };
    // Rows of the write pointer on, as many as the chunk takes.
    let room = |chunk: usize, count: u32| {
        let c = device.chunk(chunk);
        let open = matches!(c.state, ChunkState::Free | ChunkState::Open);
        if open { count.min(size - c.wp) } else { 0 }
    };
    match act {
        Act::Read { chunk, block, count } => {
            let programmed = device.chunk(*chunk).programmed;
            let count = u32::from(*count).min(programmed.saturating_sub(*block));
            let ok = count > 0 && readable(&(*chunk, *block));
            ok.then(|| filled(cmd(0, Read, at(*chunk, *block), count as u8), 0))
        }
        Act::ReadList(from) => {
            let from = places(from);
            (!from.is_empty()).then(|| filled(list_cmd(0, Read, &from, &[]), 0))
        }
        Act::Append { chunk, count } => {
            let count = room(*chunk, (u32::from(*count) / 2 * 2).max(2));
            let start = at(*chunk, device.chunk(*chunk).wp);
            (count > 0).then(|| filled(cmd(0, Write, start, count as u8), value))
        }
        Act::Reset { chunk } => {
            let c = device.chunk(*chunk);
            let ok =
                matches!(c.state, ChunkState::Open | ChunkState::Closed) && c.programmed == c.wp;
            ok.then(|| cmd(0, Reset, at(*chunk, 0), 1))
        }
        Act::Copy { from, to } => {
            let mut from = places(from);
            from.truncate(room(*to, from.len() as u32 / 2 * 2) as usize);
            let wp = device.chunk(*to).wp;
            let to: Vec<Ppa> = (0..from.len() as u32).map(|i| at(*to, wp + i)).collect();
            (!from.is_empty()).then(|| list_cmd(0, Copy, &from, &to))
        }
    }
}

/// The runs of a command: neighbours in one row, and the number of the first.
fn runs(g: &Geometry, cmd: &VectorCmd, to: bool) -> Vec<(Ppa, usize, u32)> {
    let mut runs: Vec<(Ppa, usize, u32)> = Vec::new();
    for i in 0..usize::from(cmd.count) {
        let ppa = match &cmd.list {
            Some(list) if to => list.to[i],
            Some(list) => list.from[i],
            None => Ppa(cmd.ppa.0 + i as u64),
        };
        match runs.last_mut() {
            Some((start, _, n))
                if start.0 + u64::from(*n) == ppa.0
                    && g.row(*start) == g.row(ppa)
                    && g.chunk_index(*start) == g.chunk_index(ppa) =>
            {
                *n += 1;
            }
            _ => runs.push((ppa, i, 1)),
        }
    }
    runs
}

/// What is known of a drive on which one command is at work at a time.
struct Oracle {
    g: Geometry,
    model: Reliability,
    seed: u64,
    chunks: Vec<Chunk>,
    content: HashMap<Ppa, Block>,
    errors: ErrorCounters,
}

impl Oracle {
    fn share(&self, wear: u32) -> f64 {
        Reliability::wear_share(wear, ENDURANCE)
    }

    /// What reading a command's addresses gives.
    fn read(&mut self, cmd: &VectorCmd) -> (Status, BlockBits) {
        let mut failed = 0;
        for (ppa, first, count) in runs(&self.g, cmd, false) {
            let (index, block) = (self.g.chunk_index(ppa), self.g.block(ppa));
            let chunk = self.chunks[index];
            let rber = self.model.rber(self.share(chunk.wear), 0, chunk.reads);
            let mut sensed = self.model.sense(self.seed, ppa, count, &chunk, rber);
            let (lost, level) = (chunk.failed_of(block, count), self.model.level(&sensed));
            if lost != 0 {
                sensed.retries = self.model.read_retries;
            }
            let bits = sensed.failed | lost;
            let e = &mut self.errors;
            e.retries += u64::from(sensed.retries);
            e.retried_reads += u64::from(sensed.retries > 0);
            e.failed_reads += u64::from(bits != 0);
            e.failed_blocks += u64::from(bits.count_ones());
            e.corrected_reads += u64::from(bits == 0 && sensed.worst > 0);
            let chunk = &mut self.chunks[index];
            chunk.reads += 1 + sensed.retries;
            if lost == 0 {
                chunk.level = chunk.level.max(level);
            }
            failed |= bits << first;
        }
        (if failed == 0 { Status::SUCCESS } else { Status::UNRECOVERED_READ }, failed)
    }

    /// What writing a command's addresses gives.
    fn write(&mut self, cmd: &VectorCmd, to: bool) -> (Status, BlockBits) {
        let size = self.g.chunk_blocks();
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        let runs = runs(&self.g, cmd, to);
        for &(ppa, _, count) in &runs {
            let chunk = &mut self.chunks[self.g.chunk_index(ppa)];
            let entered = chunk.write(self.g.block(ppa), count, self.g.write_blocks(), size);
            if entered.is_err() {
                panic!("the test writes in order");
            }
        }
        for (ppa, first, count) in runs {
            let (index, block) = (self.g.chunk_index(ppa), self.g.block(ppa));
            let wear = self.chunks[index].wear;
            let fails = self.model.program_fails(self.seed, ppa, wear, ENDURANCE);
            let chunk = &mut self.chunks[index];
            let closed = chunk.is_closed_early(size) && block != chunk.programmed;
            if !fails && !closed {
                chunk.program(count);
                continue;
            }
            let goes_on = chunk.fail(block, count);
            self.errors.failed_programs += u64::from(!closed);
            self.errors.early_closes += u64::from(!goes_on && !closed);
            let next = Status::WRITE_FAILED_WRITE_NEXT_UNIT;
            status = status.and(if goes_on { next } else { Status::CHUNK_EARLY_CLOSE });
            failed |= flash::block_bits(first, count as usize);
        }
        (status, failed)
    }

    fn reset(&mut self, cmd: &VectorCmd) -> (Status, BlockBits) {
        let index = self.g.chunk_index(cmd.ppa);
        let chunk = &mut self.chunks[index];
        chunk.reset(u32::MAX).expect("the test resets what can be");
        if self.model.erase_fails(self.seed, cmd.ppa, chunk.wear, ENDURANCE) {
            chunk.give_up();
            self.errors.failed_erases += 1;
            return (Status::OFFLINE_CHUNK, 1);
        }
        chunk.erased();
        (Status::SUCCESS, 0)
    }

    /// Enters what a write or a copy stored.
    fn store(&mut self, cmd: &VectorCmd, bytes: &[u8], failed: BlockBits) {
        let n = usize::from(cmd.count);
        for i in (0..n).filter(|i| failed >> i & 1 == 0) {
            let (at, block) = match &cmd.list {
                Some(list) => (list.to[i], self.content[&list.from[i]].clone()),
                None => (Ppa(cmd.ppa.0 + i as u64), block_of(bytes, n, i)),
            };
            self.content.insert(at, block);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// Statuses, bits, bytes, descriptors and counts, over restarts.
    #[test]
    fn one_command_at_a_time_does_what_the_model_says(
        acts in prop::collection::vec((acts(), prop::bool::weighted(0.03)), 1..250),
        seed in any::<u64>(),
        planes in 0u32..2,
        instant in any::<bool>(),
    ) {
        let g = geometry(1, 2, 1 << planes);
        let t = Timing { endurance: ENDURANCE, ..if instant { Timing::default() } else { timing() } };
        let mut rig = Rig::new(device(&g, &t, &model(), seed), 8);
        let chunks = rig.port.chunks().to_vec();
        let mut oracle = Oracle {
            g, model: model(), seed, chunks, content: HashMap::new(), errors: ErrorCounters::default(),
        };
        for (number, (act, restart)) in (1u64..).zip(&acts) {
            let Some(cmd) = command(&rig.port, act, number << 20) else { continue };
            let kept = VectorCmd {
                list: cmd.list.clone(), buffer: Buffer::empty(), ..filled_as(&cmd)
            };
            let bytes = cmd.buffer.bytes().to_vec();
            let (status, failed) = match cmd.op {
                Read => oracle.read(&kept),
                Write => oracle.write(&kept, false),
                Reset => oracle.reset(&kept),
                Copy => match oracle.read(&kept) {
                    (Status::SUCCESS, _) => oracle.write(&kept, true),
                    failure => failure,
                },
                VectorOp::Flush | VectorOp::Retire => unreachable!("none is sent"),
            };
            let done = run(&mut rig, cmd);
            prop_assert_eq!((done.status, done.failed), (status, failed), "{:?}", act);
            let n = usize::from(kept.count);
            match kept.op {
                Write => oracle.store(&kept, &bytes, failed),
                Copy if status != Status::UNRECOVERED_READ => oracle.store(&kept, &bytes, failed),
                Read => for i in (0..n).filter(|i| failed >> i & 1 == 0) {
                    let at = kept.list.as_ref().map_or(Ppa(kept.ppa.0 + i as u64), |l| l.from[i]);
                    prop_assert_eq!(&block_of(done.buffer.bytes(), n, i), &oracle.content[&at]);
                },
                _ => {}
            }
            prop_assert_eq!(rig.port.chunks(), &oracle.chunks[..]);
            prop_assert_eq!(rig.port.errors(), oracle.errors);
            if *restart {
                let (now, chunks) = (rig.now, rig.port.chunks().to_vec());
                let medium = rig.port.cut();
                let again = Device::restore_with(&g, &t, &model(), seed, medium, &chunks);
                rig = Rig::new(again.unwrap(), 8);
                rig.now = now;
                oracle.errors = ErrorCounters::default();
                prop_assert_eq!(rig.port.chunks(), &oracle.chunks[..]);
            }
        }
    }
}

/// The same command without its buffer and list.
fn filled_as(cmd: &VectorCmd) -> VectorCmd {
    let VectorCmd { cookie, op, content, whose, count, ppa, .. } = *cmd;
    VectorCmd { whose, ..VectorCmd::new(cookie, op, content, (ppa, count), Buffer::empty()) }
}

/// Cookie, status, bits and time of a completion.
type End = (u64, Status, BlockBits, Time);

/// Data and tag of a block.
type Block = (Vec<u8>, Vec<u8>);

/// Runs many commands at once and checks that no read is wrong; gives all
/// completions and the state.
fn crowd<M: Medium>(device: Device<M>, acts: &[(Act, u64)]) -> (Vec<End>, u64, ErrorCounters) {
    let mut rig = Rig::new(device, 64);
    let g = *rig.port.geometry();
    // What each block may hold: the last write that was sent to it.
    let mut content: HashMap<Ppa, Block> = HashMap::new();
    let mut reads: HashMap<u64, Vec<(Ppa, Block)>> = HashMap::new();
    let mut ends = Vec::new();
    let mut now = 0;
    for (number, (act, wait)) in (1u64..).zip(acts) {
        now += wait;
        rig.run_to(Time(now));
        if matches!(act, Act::Copy { .. }) {
            continue;
        }
        let Some(cmd) = command(&rig.port, act, number << 20) else { continue };
        let cmd = VectorCmd { cookie: number, ..cmd };
        let n = usize::from(cmd.count);
        let at = |i| cmd.list.as_ref().map_or(Ppa(cmd.ppa.0 + i as u64), |l| l.from[i]);
        match cmd.op {
            Write => content.extend((0..n).map(|i| (at(i), block_of(cmd.buffer.bytes(), n, i)))),
            Read => {
                let all = (0..n).map(|i| (at(i), content[&at(i)].clone())).collect();
                reads.insert(number, all);
            }
            _ => {}
        }
        rig.submit(now, cmd);
    }
    rig.drain();
    for done in &rig.all {
        for (i, (at, block)) in reads.remove(&done.cookie).unwrap_or_default().iter().enumerate() {
            let count = (done.buffer.len()) / (KEPT + TAG_BYTES);
            if done.failed >> i & 1 == 0 {
                assert_eq!(&block_of(done.buffer.bytes(), count, i), block, "{at:?}");
            }
        }
        ends.push((done.cookie, done.status, done.failed, done.at));
    }
    assert!(reads.is_empty(), "everything completes");
    for index in 0..g.chunk_slots() {
        let chunk = rig.port.chunk(index);
        assert_eq!(chunk.programmed, chunk.wp, "nothing is on its way");
    }
    (ends, rig.port.state_hash(), rig.port.errors())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn many_at_once_never_read_wrong_data_and_end_the_same(
        acts in prop::collection::vec((acts(), 0u64..1500), 1..300),
        seed in any::<u64>(),
        suspend in any::<bool>(),
        slowness in 0u64..4,
    ) {
        let g = geometry(2, 1, 2);
        let t = Timing { suspend, suspend_time: 3, resume_time: 5, ..timing() };
        let model = Reliability { retention_time: 1 << 28, ..model() };
        let once = crowd(device(&g, &t, &model, seed), &acts);
        prop_assert_eq!(&crowd(device(&g, &t, &model, seed), &acts), &once);
        let ram = RamMedium::new(&g, KEPT as u32).unwrap();
        let slow = Device::with(&g, &t, &model, seed, slow(ram, seed, slowness)).unwrap();
        let (mut slow, mut fast) = (crowd(slow, &acts), once);
        // Of the same time, the order may differ.
        slow.0.sort_by_key(|end| (end.3, end.0));
        fast.0.sort_by_key(|end| (end.3, end.0));
        prop_assert_eq!(slow, fast);
    }
}
