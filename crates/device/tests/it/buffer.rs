//! The memory of the controller's buffer: what it adds to a command, in whose turn,
//! and what it leaves as it is.

use crate::common::{Rig, cmd, geometry, written};
use device::{BufferMemory, Buffered, Device, VectorOp};
use flash::{Geometry, RamMedium, Timing};
use port::{Part, Port, Ring, Time};
use proptest::prelude::*;

use VectorOp::{Read, Reset, Write};

/// A block crosses in 1000 ns.
const RATE: u64 = 4_096_000_000;
const CROSSES: u64 = 1_000;

fn timing() -> Timing {
    let (read, program) = (vec![5_000], vec![70_000]);
    Timing { read, program, erase: 300_000, command: 100, ..Timing::default() }
}

fn flash(g: &Geometry, t: &Timing) -> Device<RamMedium> {
    written(g, t).port
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A lone command takes its data's time more, rounded up, and tells so.
    #[test]
    fn a_lone_command_takes_the_time_of_its_data_more(
        rate in 1_000_000u64..20_000_000_000, planes in 1u32..5, pick in any::<u32>(),
    ) {
        let (g, t) = (geometry(1, 2, planes), timing());
        let n = (1 + pick % g.row_blocks()) as u8;
        let row = g.row_blocks() as u8;
        for (op, ppa, count, crosses) in [
            (Read, g.ppa(0, 0, 0, 0), n, n),
            (Write, g.ppa(0, 0, 3, 0), row, row),
            (Reset, g.ppa(0, 1, 0, 0), 1, 0),
        ] {
            let plain = Rig::new(flash(&g, &t), 8).one(cmd(1, op, ppa, count));
            let mut rig = Rig::new(Buffered::new(BufferMemory::new(rate), flash(&g, &t)), 8);
            rig.port.set_stories(true);
            let time = (u64::from(crosses) * 4096 * 1_000_000_000).div_ceil(rate);
            prop_assert_eq!(rig.one(cmd(1, op, ppa, count)), plain + time);
            let story = rig.port.story(0).unwrap();
            prop_assert!(story.is_whole());
            prop_assert_eq!((story.ns(), story.ns_of(Part::Buffer)), (plain + time, time));
        }
    }
}

/// Two ports with one memory: who comes first crosses first, in or out.
#[test]
fn all_that_crosses_one_memory_waits_in_one_line() {
    let (g, t) = (geometry(1, 2, 1), Timing::default());
    let memory = BufferMemory::new(RATE);
    let port = |memory: &BufferMemory| Rig::new(Buffered::new(memory.clone(), flash(&g, &t)), 8);
    let (mut one, mut other) = (port(&memory), port(&memory));
    one.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
    other.submit(500, cmd(2, Write, g.ppa(0, 0, 3, 0), 2));
    // A read goes down at once, and its data wait behind those of both writes.
    one.submit(600, cmd(3, Read, g.ppa(0, 1, 0, 0), 1));
    one.drain();
    other.drain();
    assert_eq!([one.at(1), other.at(2), one.at(3)], [2, 4, 5].map(|n| n * CROSSES));
    // What comes when nothing is crossing waits for nothing.
    one.submit(9_000, cmd(4, Read, g.ppa(0, 1, 0, 0), 1));
    one.drain();
    assert_eq!(one.at(4), 9_000 + CROSSES);
}

/// An erase does not pass a write that came before it; a read does.
#[test]
fn only_reads_pass_what_came_before() {
    let (g, t) = (geometry(1, 2, 1), timing());
    let mut rig = Rig::new(Buffered::new(BufferMemory::new(RATE), flash(&g, &t)), 8);
    rig.submit(0, cmd(1, Write, g.ppa(0, 0, 3, 0), 2));
    rig.submit(0, cmd(2, Reset, g.ppa(0, 1, 0, 0), 1));
    rig.submit(0, cmd(3, Read, g.ppa(0, 1, 1, 0), 1));
    rig.drain();
    let read = 100 + 5_000;
    // The erase comes down after the write's data, when the read has its die; the
    // read's data then find the memory free.
    assert_eq!(rig.at(1), 2 * CROSSES + 100 + 70_000);
    assert_eq!(rig.at(2), read + 100 + 300_000);
    assert_eq!(rig.at(3), read + CROSSES);
}

/// Of many writes that a drive without times takes at once, as many bytes a second as
/// the memory moves.
#[test]
fn its_rate_is_the_most_that_a_drive_does() {
    let (g, t) = (geometry(2, 2, 1), Timing::default());
    let mut port = Buffered::new(BufferMemory::new(RATE), flash(&g, &t));
    let (mut queue, mut done) = (Ring::new(64), Ring::new(64));
    for n in 0..64 {
        queue.push(cmd(n, Read, g.ppa((n % 2) as u32, 0, 0, 0), 2)).unwrap();
    }
    port.submit(Time::ZERO, &mut queue);
    let (mut last, mut ended) = (Time::ZERO, 0);
    while let Some(at) = port.next_event() {
        port.advance(at, &mut done);
        ended += done.drain().count();
        last = at;
    }
    assert_eq!((ended, last), (64, Time(64 * 2 * CROSSES)));
}
