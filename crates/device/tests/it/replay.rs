//! The two clocks check each other: arrivals recorded in real time, replayed
//! in virtual time, give the same completion times, to the bit.

use crate::common::{cmd, drive, geometry, list_cmd, mix};
use device::hosted::{Hosted, HostedOptions};
use device::realtime::RealTime;
use device::replay::{Recorder, replay};
use device::{Device, Link, LinkTiming, VectorCmd, VectorOp};
use flash::{Geometry, Ppa, RamMedium, Timing};
use port::{Buffer, Port, Ring, Time};

fn timing() -> Timing {
    Timing {
        read: vec![700, 900],
        program: vec![4000],
        erase: 9000,
        command: 15,
        channel_rate: 8_000_000_000,
        suspend: true,
        suspend_time: 100,
        resume_time: 50,
        suspend_limit: 4,
        ..Timing::default()
    }
}

type Stack = Link<Device<RamMedium>>;

fn stack(g: &Geometry) -> Stack {
    let link = LinkTiming { controller: 120, latency: 80, rate: 3_000_000_000 };
    Link::new(link, drive(g, &timing(), 0))
}

/// The next command of a mix of good and bad ones.
fn command(g: &Geometry, i: u64, random: u64, appended: &mut u32) -> VectorCmd {
    let chunk = g.ppa(0, random as u32 % 2, (random >> 8) as u32 % 3, 0);
    match random >> 16 & 7 {
        0 if *appended < g.chunk_blocks() => {
            *appended += 2;
            cmd(i, VectorOp::Write, g.ppa(0, 0, 3, *appended - 2), 2)
        }
        1 => cmd(i, VectorOp::Write, chunk, g.chunk_blocks() as u8),
        2 => cmd(i, VectorOp::Reset, chunk, 1),
        3 | 4 => list_cmd(i, VectorOp::Read, &[chunk, Ppa(chunk.0 + 3), Ppa(chunk.0 + 4)], &[]),
        _ => cmd(i, VectorOp::Read, Ppa(chunk.0 + (random >> 32) % 4), 1),
    }
}

fn real_run_is_replayed(depth: usize) {
    const COMMANDS: u64 = 4000;
    let g = geometry(1, 2, 1);
    let recorder = Recorder::new(stack(&g), COMMANDS as usize, 4 * COMMANDS as usize);
    let mut real = RealTime::new(recorder);
    let clock = real.clock();
    let (mut cmds, mut done) = (Ring::new(depth), Ring::new(3));
    let (mut sent, mut back, mut appended) = (0, 0, 0);
    let mut random = depth as u64;
    while back < COMMANDS {
        random = mix(random.wrapping_add(1));
        while sent < COMMANDS && ((sent - back) as usize) < depth {
            cmds.push(command(&g, sent, mix(random ^ sent), &mut appended)).unwrap();
            sent += 1;
        }
        real.submit(clock.now(), &mut cmds);
        if random % 4 != 1 {
            real.poll(clock.now(), &mut done);
            back += done.drain().count() as u64;
        }
    }
    let (stack_after, log) = real.into_port().finish();
    assert!(log.is_whole());
    assert_eq!(log.arrivals.len() as u64, COMMANDS);
    let mut again = stack(&g);
    assert_eq!(replay(&log, &mut again, 0), log.ends);
    assert_eq!(again.below().state_hash(), stack_after.below().state_hash());
}

#[test]
fn at_depth_1() {
    real_run_is_replayed(1);
}

#[test]
fn at_depth_8() {
    real_run_is_replayed(8);
}

#[test]
fn from_a_device_thread() {
    let g = geometry(1, 2, 1);
    let recorder = Recorder::new(stack(&g), 2000, 8000);
    let options = HostedOptions { depth: 16, ..HostedOptions::default() };
    let (hosted, mut queues) = Hosted::start(recorder, options).unwrap();
    let (mut cmds, mut done) = (Ring::new(16), Ring::new(16));
    let (mut sent, mut back, mut appended) = (0, 0, 0);
    while back < 2000 {
        while sent < 2000 && cmds.room() > 0 {
            cmds.push(command(&g, sent, mix(sent), &mut appended)).unwrap();
            sent += 1;
        }
        queues[0].submit(&mut cmds);
        queues[0].wait(None);
        queues[0].poll(&mut done);
        back += done.drain().count();
    }
    let (_, log) = hosted.stop().finish();
    assert!(log.is_whole());
    assert_eq!(replay(&log, &mut stack(&g), 0), log.ends);
}

#[test]
fn a_full_log_says_so_and_disturbs_nothing() {
    let g = geometry(1, 1, 1);
    let mut port = Recorder::new(drive(&g, &Timing::default(), 8), 3, 4);
    let (mut cmds, mut done) = (Ring::new(8), Ring::new(8));
    for i in 0..5 {
        let mut read = list_cmd(i, VectorOp::Read, &[Ppa(0); 2], &[]);
        read.buffer = Buffer::zeroed(16).unwrap();
        cmds.push(read).unwrap();
    }
    port.submit(Time(1), &mut cmds);
    port.advance(Time(1), &mut done);
    assert_eq!(done.len(), 5);
    let (_, log) = port.finish();
    assert_eq!(log.arrivals.len(), 2, "a third has no room for its addresses");
    assert!(!log.is_whole());
}
