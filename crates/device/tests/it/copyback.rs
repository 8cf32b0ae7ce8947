//! Rows that are copied inside their dies: time, bytes, order, age and energy.

use crate::common::{Rig, cmd, drive, geometry, list_cmd, one_shot, written};
use device::{Content, Device, VectorCmd, VectorDone, VectorOp};
use faults::{Below, Script, ScriptedMedium};
use flash::{EnergyCosts, Geometry, Moved, Ppa, RamMedium, Reliability, TAG_BYTES, Timing};
use port::{Buffer, Port, Status};

use VectorOp::{Copy, Read, Write};

/// A block takes 100 ns on the channel.
fn timing() -> Timing {
    Timing {
        read: vec![1000, 600],
        program: vec![2000],
        erase: 3000,
        command: 5,
        channel_rate: 40_960_000_000,
        copyback: 2,
        ..Timing::default()
    }
}

/// A copy of so many blocks.
fn copy(cookie: u64, from: Ppa, to: Ppa, count: u32) -> VectorCmd {
    let run = |first: Ppa| (0..u64::from(count)).map(|i| Ppa(first.0 + i)).collect::<Vec<_>>();
    list_cmd(cookie, Copy, &run(from), &run(to))
}

#[test]
fn a_row_takes_two_commands_its_pages_and_a_program() {
    for (pages_at_once, read) in [(1, 1000), (2, 1600)] {
        for registers in [false, true] {
            let g = one_shot(1, 1, 2, pages_at_once);
            let row = g.row_blocks();
            let at = |chunk, row_number| g.ppa(0, 0, chunk, row_number * row);
            let timing = Timing { cache_registers: registers, ..timing() };
            let mut rig = written(&g, &timing);
            assert_eq!(rig.one(copy(1, at(0, 0), at(3, 0), row)), 10 + read + 2000);
            let counters = rig.port.counters();
            let pages = u64::from(pages_at_once);
            assert_eq!((counters.reads, counters.programs, counters.copybacks), (pages, 1, 1));
            // Over the channel, where the flash has no such command.
            let mut rig = written(&g, &Timing { copyback: 0, ..timing });
            let took = rig.one(copy(1, at(0, 0), at(3, 0), row));
            let (read, moved) = (5 * pages + read, 100 * u64::from(row));
            // With a second register a page is sensed while another's data go out.
            assert!(registers || took == read + moved + 5 + moved + 2000, "{took}");
            assert_eq!(rig.port.counters().copybacks, 0);
        }
    }
}

#[test]
fn only_a_row_of_the_same_unit_stays_inside() {
    let g = geometry(1, 2, 2);
    let row = g.row_blocks();
    let inside = |copy| {
        let mut rig = written(&g, &timing());
        (rig.one(copy), rig.port.counters().copybacks)
    };
    let from = g.ppa(0, 0, 0, row);
    assert_eq!(inside(copy(1, from, g.ppa(0, 0, 3, 0), row)), (10 + 600 + 2000, 1));
    let over = 5 + 600 + 400 + 5 + 400 + 2000;
    assert_eq!(inside(copy(1, from, g.ppa(0, 1, 3, 0), row)), (over, 0), "to another unit");
    let part = g.ppa(0, 0, 0, row + 1);
    assert_eq!(inside(copy(1, part, g.ppa(0, 0, 3, 0), row)).1, 0, "of two rows");
    let backwards: Vec<Ppa> = (0..4).rev().map(|i| Ppa(from.0 + i)).collect();
    let to: Vec<Ppa> = (0..4).map(|i| Ppa(g.ppa(0, 0, 3, 0).0 + i)).collect();
    assert_eq!(inside(list_cmd(1, Copy, &backwards, &to)).1, 0, "in another order");
}

/// The write pointer moves when it comes, and the channel is free meanwhile.
#[test]
fn writes_may_follow_at_once_and_others_have_the_channel() {
    let g = geometry(1, 2, 1);
    let row = g.row_blocks();
    let mut rig = written(&g, &timing());
    rig.submit(0, copy(1, g.ppa(0, 0, 0, 0), g.ppa(0, 0, 3, 0), row));
    rig.submit(0, cmd(2, Write, g.ppa(0, 0, 3, row), row as u8));
    rig.submit(20, cmd(3, Read, g.ppa(0, 1, 0, 0), 1));
    // More than there are buffers for other copies.
    for i in 2..6 {
        rig.submit(30, copy(10 + u64::from(i), g.ppa(0, 0, 0, 0), g.ppa(0, 0, 3, i * row), row));
    }
    rig.drain();
    let first = 10 + 1000 + 2000;
    assert_eq!((rig.at(1), rig.at(3)), (first, 20 + 1105));
    let second = first + 205 + 2000;
    assert_eq!((rig.at(2), rig.at(12), rig.at(15)), (second, second + 3010, second + 4 * 3010));
    // What cannot be taken changes nothing.
    rig.submit(90_000, copy(20, g.ppa(0, 0, 3, 0), g.ppa(0, 0, 3, 0), row));
    rig.drain();
    assert_ne!(rig.all.last().unwrap().status, Status::SUCCESS);
    assert_eq!(rig.port.counters().copybacks, 5);
}

/// Does a command with tags, of a medium that keeps eight bytes of a block.
fn with_bytes<P>(rig: &mut Rig<P>, op: VectorOp, ppa: Ppa, count: u8, first: u8) -> VectorDone
where
    P: Port<Cmd = VectorCmd, Done = VectorDone>,
{
    let mut buffer = Buffer::zeroed(usize::from(count) * (8 + TAG_BYTES)).unwrap();
    if op == Write {
        buffer.bytes_mut().iter_mut().zip(0..).for_each(|(byte, i)| *byte = first.wrapping_add(i));
    }
    let now = rig.now.0;
    rig.submit(now, VectorCmd { content: Content::Tagged, buffer, ..cmd(99, op, ppa, count) });
    rig.drain();
    rig.all.pop().unwrap()
}

/// Fails reads of the first row.
struct Unread;

impl Script for Unread {
    fn read(&mut self, _: Below, at: Ppa, _: u32, _: &mut [u8], _: &mut [u8]) -> Moved {
        assert_eq!(at, Ppa(0));
        Moved::Failed
    }
}

#[test]
fn data_and_tags_go_along() {
    let g = geometry(1, 1, 2);
    let (row, to) = (g.row_blocks() as u8, g.ppa(0, 0, 3, 0));
    let mut rig = Rig::new(drive(&g, &timing(), 8), 8);
    assert!(with_bytes(&mut rig, Write, Ppa(0), row, 7).status.is_ok());
    rig.one(copy(1, Ppa(0), to, row.into()));
    let [there, here] = [Ppa(0), to].map(|at| with_bytes(&mut rig, Read, at, row, 0));
    assert_eq!(there.buffer.bytes(), here.buffer.bytes());
    assert!(here.buffer.bytes().starts_with(&[7, 8, 9]) && here.status.is_ok());
    // What the medium cannot read is a program that failed.
    let medium = ScriptedMedium::ram(&g, 8, Unread);
    let mut rig = Rig::new(Device::new(&g, &timing(), medium).unwrap(), 8);
    assert!(with_bytes(&mut rig, Write, Ppa(0), row, 7).status.is_ok());
    rig.submit(9000, copy(1, Ppa(0), to, row.into()));
    rig.drain();
    let done = rig.all.last().unwrap();
    assert_eq!((done.status, done.failed), (Status::WRITE_FAILED_WRITE_NEXT_UNIT, 0b1111));
}

/// A chunk is as old as the oldest of what was copied to it; read disturb is the source's.
#[test]
fn age_goes_along() {
    let g = geometry(1, 1, 1);
    let row = g.row_blocks();
    let errors = Reliability { errors: true, ..Reliability::default() };
    let medium = RamMedium::new(&g, 0).unwrap();
    let mut rig = Rig::new(Device::with(&g, &timing(), &errors, 1, medium).unwrap(), 8);
    let day = 86_400_000_000_000;
    let chunk = |rig: &Rig<Device<RamMedium>>, n| rig.port.chunk_of(&g, n);
    rig.submit(day, cmd(1, Write, g.ppa(0, 0, 0, 0), row as u8));
    rig.submit(5 * day, cmd(2, Write, g.ppa(0, 0, 3, 0), row as u8));
    rig.drain();
    let before = chunk(&rig, 3).since;
    rig.submit(9 * day, copy(3, g.ppa(0, 0, 0, 0), g.ppa(0, 0, 3, row), row));
    rig.submit(9 * day, copy(4, g.ppa(0, 0, 3, 0), g.ppa(0, 0, 2, 0), row));
    rig.drain();
    assert_eq!(chunk(&rig, 3).since, chunk(&rig, 0).since);
    assert!(chunk(&rig, 3).since < before, "it was younger");
    assert_eq!(chunk(&rig, 2).since, chunk(&rig, 0).since, "as old as its source by then");
    assert_eq!((chunk(&rig, 0).reads, chunk(&rig, 3).reads), (1, 1));
}

trait ChunkOf {
    fn chunk_of(&self, g: &Geometry, n: u32) -> flash::Chunk;
}

impl ChunkOf for Device<RamMedium> {
    fn chunk_of(&self, g: &Geometry, n: u32) -> flash::Chunk {
        self.chunks()[g.chunk_index(g.ppa(0, 0, n, 0))]
    }
}

#[test]
fn it_takes_the_energy_of_both_and_none_of_the_channel() {
    let g = geometry(1, 1, 2);
    let costs =
        EnergyCosts { counted: true, read: 10, program: 100, byte: 50, ..EnergyCosts::default() };
    let mut rig = written(&g, &timing());
    rig.port.set_energy(&costs);
    rig.one(copy(1, Ppa(0), g.ppa(0, 0, 3, 0), g.row_blocks()));
    let energy = rig.port.energy(rig.now);
    assert_eq!((energy.read, energy.program, energy.channel), (20, 200, 0));
}
