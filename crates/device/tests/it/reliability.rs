//! A drive that errs, against the model it errs by: one command at a time each
//! status, bit, byte and nanosecond is predicted; with many commands at once no
//! read ever gives wrong data, and the same run ends in the same state.

use std::collections::HashMap;

use crate::common::{Rig, cmd, drive, geometry, list_cmd, slow};
use device::{
    Content, Device, ErrorCounters, Health, Link, Notice, NoticeMask, NoticeState, OpenChannel,
    VectorCmd, VectorDone, VectorOp,
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

/// Remembers what it was told of its chunks.
struct Told(Vec<Chunk>);

impl Script for Told {
    fn describe(&mut self, _below: Below, index: usize, chunk: &Chunk) {
        self.0[index] = *chunk;
    }
}

#[test]
fn the_medium_is_told_all_but_the_last_reads() {
    let g = geometry(1, 2, 1);
    let r = Reliability { factory_bad: 0.2, wear_notice: 1, ..model() };
    let told = Told(vec![Chunk::default(); g.chunk_slots()]);
    let medium = ScriptedMedium::ram(&g, KEPT as u32, told);
    let mut rig = Rig::new(Device::with(&g, &timing(), &r, 12, medium).unwrap(), 8);
    for number in 0..20_000u64 {
        let x = mix(number);
        let (chunk, block) = ((x % 8) as usize, (x >> 8) as u32 % 12);
        let act = match x >> 16 & 31 {
            0 => Act::Reset { chunk },
            1..6 => Act::Append { chunk, count: 4 },
            _ => Act::Read { chunk, block, count: 2 },
        };
        if let Some(cmd) = command(&rig.port, &act, number << 20) {
            run(&mut rig, cmd);
        }
    }
    let errors = rig.port.errors();
    assert!(errors.failed_programs > 0 && errors.failed_erases > 0 && errors.failed_reads > 0);
    let (health, chunks) = (rig.port.health(rig.now), rig.port.chunks().to_vec());
    assert!(health.factory_bad > 0 && health.grown_bad > 0);
    for (told, chunk) in rig.port.cut().script::<Told>().0.iter().zip(&chunks) {
        assert!(told.reads <= chunk.reads && chunk.reads - told.reads < 1024);
        assert_eq!(*told, Chunk { reads: told.reads, ..*chunk });
    }
}

/// A chunk is bad where its part on either channel of a super-channel is; with the
/// remap checker a parallel unit has as many bad ones as parts are bad on its worse
/// channel, so that good parts of bad chunks stand for the others.
#[test]
fn what_is_bad_on_one_channel_is_made_up_for_by_the_other() {
    let (groups, pus, chunks, planes) = (2, 2, 100, 1);
    let (pages, page_bytes, pages_at_once) = (4, 8192, 1);
    let dim = Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once };
    let (g, t) = (Geometry::new(dim).unwrap(), Timing { channel_split: 2, ..timing() });
    let plain = Reliability { factory_bad: 0.1, ..model() };
    let remapped = Reliability { remap: true, ..plain.clone() };
    let bad_of = |r: &Reliability, pu: usize| {
        let drive = device(&g, &t, r, 12);
        let chunks = (0..chunks).map(|n| g.chunk_of(pu, n));
        chunks.filter(|&i| drive.chunks()[i].state == ChunkState::Offline).count()
    };
    for pu in g.pus_channels_first() {
        let is_bad = |n: u32, channel: u32| {
            plain.is_factory_bad(12, g.chunk_start(g.chunk_of(pu, n)), channel)
        };
        let count = |bad: &dyn Fn(u32) -> bool| (0..chunks).filter(|&n| bad(n)).count();
        let one = count(&|n| is_bad(n, 0));
        let other = count(&|n| is_bad(n, 1));
        let either = count(&|n| is_bad(n, 0) || is_bad(n, 1));
        assert_eq!((bad_of(&plain, pu), bad_of(&remapped, pu)), (either, one.max(other)));
        assert!(either > one.max(other) && one > 0 && other > 0, "{one}, {other}, {either}");
    }
    // One channel, which is nobody's pair: nothing to make up for.
    let (t, bad_of_all) = (timing(), |r: &Reliability, t: &Timing| {
        device(&g, t, r, 12).health(Time::ZERO).factory_bad
    });
    assert_eq!(bad_of_all(&remapped, &t), bad_of_all(&plain, &t));
}

/// A drive of one parallel unit with a chunk full of data.
fn one_chunk(t: &Timing, r: &Reliability, seed: u64) -> (Rig<Device<RamMedium>>, Geometry) {
    let g = geometry(1, 1, 2);
    let mut rig = Rig::new(device(&g, t, r, seed), 8);
    let write = filled(cmd(0, Write, Ppa(0), g.chunk_blocks() as u8), 1);
    assert_eq!(run(&mut rig, write).status, Status::SUCCESS);
    (rig, g)
}

#[test]
fn repetitions_take_their_time_exactly() {
    for (decode, registers) in [(0, false), (0, true), (40, false), (40, true)] {
        repetitions_take(decode, registers);
    }
}

/// With a time to decode, each try's data go out to the controller.
fn repetitions_take(decode: u64, registers: bool) {
    let r = Reliability {
        decode,
        rber_base: 5.2e-3,
        read_retries: 5,
        program_failure: 0.0,
        endurance_cliff: true,
        ..model()
    };
    let t = Timing { cache_registers: registers, plane_reads: registers, ..timing() };
    let (mut rig, g) = one_chunk(&t, &r, 3);
    let mut seen = [0; 6];
    for i in 0..400u32 {
        let block = i * 7 % g.chunk_blocks();
        let (at, chunk) = (Ppa(block.into()), rig.port.chunk(0));
        let rate = r.rber(Reliability::wear_share(0, ENDURANCE), 0, chunk.reads);
        let sensed = r.sense(3, at, 1, &chunk, rate);
        let (start, tr) = (rig.now, t.read_of(g.row(at)));
        let done = run(&mut rig, filled(cmd(0, Read, at, 1), 0));
        let retries = u64::from(sensed.retries);
        let out = if decode == 0 { 0 } else { t.transfer(1) + decode };
        let expected = t.command + tr + retries * (t.command + tr + out) + t.transfer(1);
        assert_eq!(done.at - start, expected, "{retries} repetitions");
        assert_eq!(done.status.is_ok(), sensed.failed == 0);
        seen[sensed.retries as usize] += 1;
        assert_eq!(rig.port.chunk(0).reads, chunk.reads + 1 + sensed.retries);
    }
    assert!(seen[0] > 20 && seen[1] > 20 && seen[2] > 20, "all kinds occur: {seen:?}");
    let errors = rig.port.errors();
    let retries: u64 = (0..).zip(seen).map(|(n, times)| n * times).sum();
    assert_eq!((errors.retries, errors.retried_reads), (retries, 400 - seen[0]));
}

/// A read that shares another's sensing takes a command and its data, and is no array
/// read; one that is to be repeated is read by itself.
#[test]
fn repetitions_are_not_shared() {
    for decode in [0, 40] {
        let r = Reliability {
            decode,
            rber_base: 5.2e-3,
            read_retries: 5,
            program_failure: 0.0,
            endurance_cliff: true,
            ..model()
        };
        let t = Timing { shared_reads: true, ..timing() };
        let (mut rig, g) = one_chunk(&t, &r, 3);
        let costs = EnergyCosts { counted: true, read: 10, byte: 1000, ..EnergyCosts::default() };
        rig.port.set_energy(&costs);
        let (mut reads, mut alone, mut corrected) = (0, 0, 0);
        let (mut sensings, mut transfers) = (0, 0);
        for i in 0..200u32 {
            let at = Ppa((i * 2 % g.chunk_blocks()).into());
            let (start, tr) = (rig.now, t.read_of(g.row(at)));
            let mut expected = 0;
            let mut chunk = rig.port.chunk(0);
            for (number, at) in [at, Ppa(at.0 + 1)].into_iter().enumerate() {
                let rate = r.rber(Reliability::wear_share(0, ENDURANCE), 0, chunk.reads);
                let sensed = r.sense(3, at, 1, &chunk, rate);
                let retries = sensed.retries;
                let out = if decode == 0 { 0 } else { t.transfer(1) + decode };
                expected += t.command + u64::from(retries) * (t.command + tr + out) + t.transfer(1);
                let is_own = number == 0 || retries > 0;
                expected += if is_own { tr } else { 0 };
                chunk.reads += u32::from(is_own) + retries;
                reads += u64::from(is_own);
                corrected += u64::from(is_own && sensed.worst > 0 && sensed.failed == 0);
                sensings += u64::from(u32::from(is_own) + retries);
                transfers += u64::from(1 + if decode == 0 { 0 } else { retries });
                alone += u64::from(number == 1 && is_own);
            }
            for at in [at, Ppa(at.0 + 1)] {
                rig.submit(start.0, filled(cmd(u64::from(i), Read, at, 1), 0));
            }
            rig.drain();
            assert_eq!((rig.now - start, rig.port.chunk(0).reads), (expected, chunk.reads), "{i}");
        }
        let counters = rig.port.counters();
        assert_eq!((counters.reads, counters.shared), (reads, 400 - reads));
        assert!(alone > 20 && counters.shared > 20, "both occur: {alone}");
        assert_eq!(rig.port.errors().corrected_reads, corrected);
        let energy = rig.port.energy(rig.now);
        assert_eq!((energy.read, energy.channel), (10 * sensings, 4096 * transfers), "{decode}");
    }
}

/// Upper pages are repeated more often than lower ones, as often as the sums of the
/// binomial distribution say.
#[test]
fn page_types_are_repeated_as_often_as_their_rates_say() {
    let r = Reliability {
        rber_base: 5e-3,
        read_disturb: 0.0,
        read_retries: 5,
        program_failure: 0.0,
        page_rber: vec![0.8, 1.25],
        layer_rber: 0.1,
        ..model()
    };
    let (mut rig, g) = one_chunk(&timing(), &r, 3);
    let (pages, reads) = (g.dimensions().pages, 1500u32);
    let mut means = Vec::new();
    for page in 0..pages {
        let before = rig.port.errors().retries;
        for i in 0..reads {
            let block = page * g.wide_page_blocks() + i % g.wide_page_blocks();
            run(&mut rig, filled(cmd(0, Read, Ppa(block.into()), 1), 0));
        }
        let seen = (rig.port.errors().retries - before) as f64;
        // The pages of a cell are as many as there are page types: two.
        let rate =
            r.rber(Reliability::wear_share(0, ENDURANCE), 0, 0) * r.page_share(page, pages, 2);
        let again = |n: i32| 1.0 - r.correctable_share(rate * r.retry_gain.powi(n)).powi(4);
        let mean: f64 = (0..5).map(again).sum::<f64>() * f64::from(reads);
        // Of at most five repetitions each.
        let deviation = 5.0 * f64::from(reads).sqrt() / 2.0;
        assert!((seen - mean).abs() < 2.0 * deviation, "page {page}: {seen} for {mean}");
        means.push(seen);
    }
    assert!(means[0] * 2.0 < means[1] && means[0] < means[4] && means[1] < means[5], "{means:?}");
}

#[test]
fn errors_grow_with_wear_age_and_reads() {
    let base = Reliability {
        rber_base: 1e-3,
        rber_wear: 4e-3,
        retention_time: 3_600_000_000_000,
        read_disturb: 1e-6,
        program_failure: 0.0,
        erase_failure: 0.0,
        read_retries: 20,
        ..model()
    };
    // Repetitions that 200 row reads take.
    let retries = |wear: u32, wait: u64, reads: u32| {
        let g = geometry(1, 1, 2);
        let mut chunks = vec![Chunk::default(); g.chunk_slots()];
        chunks[0].wear = wear;
        let ram = RamMedium::new(&g, KEPT as u32).unwrap();
        let d = Device::restore_with(&g, &timing(), &base, 1, ram, &chunks).unwrap();
        let mut rig = Rig::new(d, 8);
        let size = g.chunk_blocks() as u8;
        assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), size), 1)).status.is_ok());
        rig.run_to(Time(rig.now.0 + wait));
        for _ in 0..reads / 6 {
            run(&mut rig, filled(cmd(0, Read, Ppa(0), size), 0));
        }
        let before = rig.port.errors().retries;
        for _ in 0..33 {
            assert!(run(&mut rig, filled(cmd(0, Read, Ppa(0), size), 0)).status.is_ok());
        }
        rig.port.errors().retries - before
    };
    assert_eq!(retries(0, 0, 0), 0, "new, fresh, hardly read");
    assert!(retries(19, 0, 0) > 100, "worn");
    assert!(retries(0, 4 * 3_600_000_000_000, 0) > 100, "old");
    assert!(retries(9, 0, 12_000) > retries(9, 0, 0) + 100, "read much");
}

#[test]
fn a_failed_program_is_never_read_until_its_chunk_is_erased() {
    // Whatever the medium holds there from earlier.
    let r = Reliability { program_failure: 1.0, rber_base: 0.0, rber_wear: 0.0, ..model() };
    let g = geometry(1, 1, 2);
    let row = g.row_blocks() as u8;
    let old = Reliability { program_failure: 0.0, ..r.clone() };
    let mut rig = Rig::new(device(&g, &timing(), &old, 1), 8);
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), row * 3), 9)).status.is_ok());
    assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    let mut chunks = rig.port.chunks().to_vec();
    // At the endurance every program fails.
    chunks[0].wear = ENDURANCE - 1;
    let medium = rig.port.cut();
    let again = Device::restore_with(&g, &timing(), &r, 1, medium, &chunks).unwrap();
    let mut rig = Rig::new(again, 8);
    let done = run(&mut rig, filled(cmd(0, Write, Ppa(0), row), 1));
    assert_eq!((done.status, done.failed), (Status::WRITE_FAILED_WRITE_NEXT_UNIT, (1 << row) - 1));
    let chunk = rig.port.chunk(0);
    assert_eq!((chunk.state, chunk.wp), (ChunkState::Open, row.into()), "it takes the next unit");
    for restarts in 0..3 {
        for content in [Content::Data, Content::Tagged, Content::Tags] {
            let read = VectorCmd { content, ..cmd(0, Read, Ppa(1), row - 1) };
            let buffer = Buffer::zeroed(read.buffer_bytes(KEPT as u32)).unwrap();
            let done = run(&mut rig, VectorCmd { buffer, ..read });
            assert_eq!(done.status, Status::UNRECOVERED_READ, "{content:?}, {restarts} restarts");
            assert_eq!(done.failed, (1 << (row - 1)) - 1);
            assert!(done.buffer.bytes().iter().all(|&b| b == 0), "nothing is given back");
        }
        let chunks = rig.port.chunks().to_vec();
        // Also without a model of errors.
        let medium = rig.port.cut();
        let again = Device::restore(&g, &timing(), medium, &chunks).unwrap();
        rig = Rig::new(again, 8);
    }
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(row.into()), row), 2)).status.is_ok());
    let done = run(&mut rig, filled(cmd(0, Read, Ppa(0), row * 2), 0));
    assert_eq!((done.status, done.failed), (Status::UNRECOVERED_READ, (1 << row) - 1));
    let timing = Timing { endurance: u32::MAX, ..timing() };
    let chunks = rig.port.chunks().to_vec();
    let again = Device::restore(&g, &timing, rig.port.cut(), &chunks).unwrap();
    let mut rig = Rig::new(again, 8);
    assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), row), 3)).status.is_ok());
    assert!(run(&mut rig, filled(cmd(0, Read, Ppa(0), row), 0)).status.is_ok());
}

#[test]
fn a_chunk_that_fails_too_often_is_closed_with_what_is_behind() {
    let r = Reliability { program_failure: 1.0, failure_power: 0.1, rber_base: 0.0, ..model() };
    let g = geometry(1, 1, 2);
    let mut chunks = vec![Chunk::default(); g.chunk_slots()];
    chunks[0].wear = ENDURANCE - 1;
    let ram = RamMedium::new(&g, KEPT as u32).unwrap();
    let d = Device::restore_with(&g, &timing(), &r, 1, ram, &chunks).unwrap();
    let mut rig = Rig::new(d, 8);
    let row = g.row_blocks() as u8;
    for i in 0..5u8 {
        rig.submit(0, filled(cmd(i.into(), Write, Ppa((i * row).into()), row), i.into()));
    }
    // The third closes it while the last two wait for the die.
    let each = timing().command + timing().transfer(row.into()) + 900;
    rig.run_to(Time(3 * each));
    assert_eq!(rig.port.chunk(0).state, ChunkState::Closed);
    let mut reset = Rig::new(rig.port, 8);
    reset.now = rig.now;
    let done = rig.all;
    reset.submit(reset.now.0, cmd(9, Reset, Ppa(0), 1));
    assert!(reset.port.next_event().is_some());
    reset.drain();
    let all: Vec<_> = done.iter().chain(&reset.all).map(|d| (d.cookie, d.status)).collect();
    let (next, early) = (Status::WRITE_FAILED_WRITE_NEXT_UNIT, Status::CHUNK_EARLY_CLOSE);
    let expected =
        [(0, next), (1, next), (2, early), (9, Status::INVALID_RESET), (3, early), (4, early)];
    assert_eq!(all, expected, "no reset while programs are on their way");
    let chunk = reset.port.chunk(0);
    assert_eq!((chunk.wp, chunk.programmed), (2 * u32::from(row), 2 * u32::from(row)));
    let errors = reset.port.errors();
    assert_eq!((errors.failed_programs, errors.early_closes), (3, 1));
    let refused = run(&mut reset, filled(cmd(1, Write, Ppa((2 * row).into()), row), 1));
    assert_eq!(refused.status, Status::OUT_OF_ORDER_WRITE);
    let early_closed = reset.port.health(reset.now).closed_early;
    let chunks = reset.port.chunks().to_vec();
    let again = Device::restore(&g, &timing(), reset.port.cut(), &chunks).unwrap();
    assert_eq!((again.chunk(0).state, early_closed), (ChunkState::Closed, 1), "it stays closed");
}

#[test]
fn a_whole_life_ends_as_the_probabilities_say() {
    let r = Reliability {
        erase_failure: 0.05,
        failure_power: 3.0,
        program_failure: 0.0,
        factory_bad: 0.1,
        wear_notice: 60,
        ..model()
    };
    let dim = flash::Dimensions { groups: 2, pus: 2, chunks: 100, ..flash::Dimensions::LEAST };
    let g = Geometry::new(dim).unwrap();
    let t = Timing { endurance: ENDURANCE, ..Timing::default() };
    let life = |r: &Reliability| {
        let mut rig = Rig::new(device(&g, &t, r, 5), 8);
        let mut lives = Vec::new();
        for pu in g.pus_channels_first() {
            for number in 0..g.chunks() {
                let at = g.chunk_start(g.chunk_of(pu, number));
                while rig.port.chunk(g.chunk_index(at)).state != ChunkState::Offline {
                    assert!(run(&mut rig, filled(cmd(0, Write, at, 1), 1)).status.is_ok());
                    run(&mut rig, cmd(0, Reset, at, 1));
                }
                lives.push(rig.port.chunk(g.chunk_index(at)).wear);
            }
        }
        (lives, rig.port.health(rig.now), std::iter::from_fn(|| rig.port.take_notice()).collect())
    };
    let (lives, health, notices): (Vec<u32>, Health, Vec<Notice>) = life(&r);
    let factory = lives.iter().filter(|&&wear| wear == 0).count() as u64;
    assert!((20..=64).contains(&factory), "10 % of 400, within four deviations: {factory}");
    assert_eq!((health.factory_bad, health.grown_bad), (factory, 400 - factory));
    assert_eq!((health.chunks, health.free, health.open, health.closed), (400, 0, 0, 0));
    assert_eq!(health.errors.failed_erases, 400 - factory);
    assert_eq!(health.wear.histogram.iter().sum::<u64>(), 400 - factory);
    // The survival of an erase that brings the wear to w is 1 - 0.05 (w/20)^3.
    let (mut alive, mut mean) = (1.0, 0.0);
    for wear in 1..500u32 {
        let dies: f64 = (0.05 * (f64::from(wear) / 20.0).powi(3)).min(1.0);
        mean += f64::from(wear) * alive * dies;
        alive *= 1.0 - dies;
    }
    assert!((health.wear.mean - mean).abs() < 2.0, "{} for {mean}", health.wear.mean);
    assert!(notices.iter().all(|n| n.state == NoticeState::Worn && n.mask == NoticeMask::Chunk));
    let mut told: Vec<Ppa> = notices.iter().map(|n| n.ppa).collect();
    told.sort_unstable();
    told.dedup();
    assert!(!told.is_empty() && told.len() == notices.len(), "each chunk once");
    // With the cliff, nobody lives longer.
    let (lives, ..): (Vec<u32>, Health, Vec<Notice>) =
        life(&Reliability { endurance_cliff: true, erase_failure: 0.0, ..r });
    assert!(lives.iter().all(|&wear| wear == 0 || wear == ENDURANCE + 1));
}

#[test]
fn levels_are_told_once_a_life_and_through_the_link() {
    let r = Reliability { rber_base: 0.0, rber_wear: 0.0, read_disturb: 8e-5, ..model() };
    let r = Reliability { program_failure: 0.0, erase_failure: 0.0, read_retries: 0, ..r };
    let g = geometry(1, 1, 2);
    let link = LinkTiming { controller: 5, latency: 3, rate: 0, ..LinkTiming::default() };
    let mut rig = Rig::new(Link::new(link, device(&g, &timing(), &r, 2)), 8);
    let mut number = 0;
    for life in 0..2 {
        let size = g.chunk_blocks() as u8;
        assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), size), 1)).status.is_ok());
        let (mut states, mut failed) = (Vec::new(), false);
        for _ in 0..4000 {
            let done = run(&mut rig, filled(cmd(0, Read, Ppa(0), size), 0));
            while let Some(notice) = rig.port.take_notice() {
                number += 1;
                assert_eq!(notice.number, number);
                if notice.state == NoticeState::Unrecoverable {
                    assert_eq!(notice.mask, NoticeMask::Block);
                    assert_ne!(done.failed >> notice.ppa.0 & 1, 0, "it is one of the failed");
                    assert!(!failed);
                    failed = true;
                } else {
                    assert_eq!((notice.mask, notice.ppa), (NoticeMask::Chunk, Ppa(0)));
                    assert!(done.status.is_ok(), "corrected");
                }
                states.push(notice.state);
            }
        }
        use NoticeState::{RateHigh, RateLow, RateMedium, Unrecoverable};
        assert_eq!(states, [RateLow, RateMedium, RateHigh, Unrecoverable], "life {life}");
        assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    }
}

/// Age is told of chunks, full or not, that nobody reads; each round once more.
#[test]
fn the_patrol_tells_of_what_has_grown_old() {
    let clean = Reliability { program_failure: 0.0, rber_wear: 0.0, rber_base: 1e-3, ..model() };
    let model = Reliability { retention_time: 1 << 30, ..clean };
    let g = geometry(1, 1, 2);
    let row = g.row_blocks() as u8;
    let mut rig = Rig::new(device(&g, &timing(), &model, 2), 8);
    let (full, part) = (g.chunk_start(0), g.chunk_start(1));
    for i in 0..g.chunk_blocks() / u32::from(row) {
        let at = Ppa(full.0 + u64::from(i) * u64::from(row));
        assert!(run(&mut rig, filled(cmd(0, Write, at, row), 1)).status.is_ok());
    }
    assert!(run(&mut rig, filled(cmd(0, Write, part, row), 1)).status.is_ok());
    rig.port.patrol(Time(1 << 27));
    assert_eq!(rig.port.take_notice(), None, "they are young");
    for round in 1..3 {
        rig.port.patrol(Time(round << 33));
        let told = std::iter::from_fn(|| rig.port.take_notice());
        let mut told: Vec<_> = told.map(|n| (n.ppa, n.state, n.mask)).collect();
        told.sort_by_key(|told| told.0);
        let each = |at| (at, NoticeState::RateHigh, NoticeMask::Chunk);
        assert_eq!(told, [each(full), each(part)]);
    }
}

#[test]
fn notices_without_room_are_counted_and_told_later() {
    let dim = flash::Dimensions { chunks: 300, ..flash::Dimensions::LEAST };
    let g = Geometry::new(dim).unwrap();
    let r = Reliability { rber_base: 0.1, program_failure: 0.0, ..model() };
    let mut rig = Rig::new(device(&g, &timing(), &r, 2), 8);
    let read_all = |rig: &mut Rig<Device<RamMedium>>| {
        for chunk in 0..300 {
            let done = run(rig, filled(cmd(0, Read, g.chunk_start(chunk), 1), 0));
            assert_eq!((done.status, done.failed), (Status::UNRECOVERED_READ, 1));
        }
    };
    for chunk in 0..300 {
        assert!(run(&mut rig, filled(cmd(0, Write, g.chunk_start(chunk), 1), 1)).status.is_ok());
    }
    read_all(&mut rig);
    assert_eq!(rig.port.errors().lost_notices, 44);
    let mut told = Vec::new();
    for _ in 0..2 {
        told.extend(std::iter::from_fn(|| rig.port.take_notice()).map(|n| n.ppa));
        read_all(&mut rig);
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 300, "all are told in the end");
}

#[test]
fn energy_is_the_sum_of_what_was_done() {
    let g = geometry(1, 1, 2);
    let costs = EnergyCosts {
        counted: true,
        read: 10,
        program: 100,
        erase: 1000,
        byte: 50,
        idle: 3,
        ..EnergyCosts::default()
    };
    let mut d = drive(&g, &timing(), KEPT as u32);
    d.set_energy(&costs);
    let mut rig = Rig::new(d, 8);
    // Pages of 2 blocks on 2 planes: 6 rows of 2 pages.
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), 24), 1)).status.is_ok());
    let e = rig.port.energy(rig.now);
    assert_eq!((e.program, e.channel), (12 * 100, 24 * 4096 * 50 / 1000));
    assert_eq!(e.idle, rig.now.0 * 3 / 1000);
    for (at, count, pages) in [(0u64, 1u8, 1u64), (1, 2, 2), (0, 4, 2), (2, 4, 3)] {
        let before = rig.port.energy(rig.now).read;
        run(&mut rig, filled(cmd(0, Read, Ppa(at), count), 0));
        // The last is of two rows, with a page of the first and one of the second.
        let pages = if at == 2 { 2 } else { pages };
        assert_eq!(rig.port.energy(rig.now).read - before, pages * 10, "{at} {count}");
    }
    let before = rig.port.energy(rig.now).channel;
    let tags = VectorCmd { content: Content::Tags, ..cmd(0, Read, Ppa(0), 4) };
    let buffer = Buffer::zeroed(tags.buffer_bytes(KEPT as u32)).unwrap();
    run(&mut rig, VectorCmd { buffer, ..tags });
    let bytes = (24 + 1 + 2 + 4 + 4) * 4096 + 4 * TAG_BYTES as u64;
    assert_eq!(rig.port.energy(rig.now).channel, bytes * 50 / 1000);
    assert!(rig.port.energy(rig.now).channel >= before);
    assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    let health = rig.port.health(rig.now);
    assert_eq!(health.energy.erase, 2 * 1000);
    assert_eq!(health.energy, rig.port.energy(rig.now));
}

/// Counting energy, or a model that never errs, changes no time and no state.
#[test]
fn a_model_without_errors_changes_nothing() {
    let g = geometry(2, 1, 2);
    let none = Reliability { errors: true, ..Reliability::default() };
    let acts: Vec<(Act, u64)> = (0..400u64)
        .map(|i| {
            let (chunk, x) = ((mix(i) % 8) as usize, mix(i ^ 77));
            let (block, count) = ((x % 24) as u32, 1 + (x >> 8) as u8 % 20);
            let act = match x >> 16 & 7 {
                0 => Act::Reset { chunk },
                1..4 => Act::Read { chunk, block, count },
                _ => Act::Append { chunk, count },
            };
            (act, x >> 24 & 1023)
        })
        .collect();
    for t in [timing(), Timing { suspend: true, ..timing() }] {
        let (plain, hash, _) = crowd(drive(&g, &t, KEPT as u32), &acts);
        let (modelled, ..) = crowd(device(&g, &t, &none, 9), &acts);
        assert_eq!(modelled, plain);
        let off = Reliability { errors: false, ..model() };
        let (off, off_hash, errors) = crowd(device(&g, &t, &off, 9), &acts);
        assert_eq!((&off, off_hash, errors), (&plain, hash, ErrorCounters::default()));
        let mut counted = drive(&g, &t, KEPT as u32);
        counted.set_energy(&EnergyCosts { counted: true, read: 1, ..EnergyCosts::default() });
        assert_eq!(crowd(counted, &acts).0, plain);
    }
}
