//! What is done at once is what a command would have done: the same status,
//! bytes and descriptors, and the same counts, on media that are slow or fail.

use crate::common::{Rig, cmd, drive, flaky, geometry, slow};
use device::{Content, Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use faults::ScriptedMedium;
use flash::{Geometry, Ppa, RamMedium, Reliability, TAG_BYTES, Timing};
use port::{Buffer, Port, Status, Time};
use proptest::prelude::*;

const KEPT: usize = 8;

/// One read, write or reset: anywhere, or a write at the write pointer.
#[derive(Clone, Debug)]
struct Act {
    op: VectorOp,
    chunk: usize,
    block: u32,
    count: u8,
    in_order: bool,
    value: u8,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let op = prop_oneof![
        4 => Just(VectorOp::Read),
        8 => Just(VectorOp::Write),
        1 => Just(VectorOp::Reset),
    ];
    let in_order = prop::bool::weighted(0.9);
    let act = (op, 0usize..6, 0u32..26, 0u8..7, in_order, any::<u8>()).prop_map(
        |(op, chunk, block, count, in_order, value)| Act {
            op,
            chunk,
            block,
            count,
            in_order,
            value,
        },
    );
    prop::collection::vec(act, 1..400)
}

/// A command of `act` for a drive in this state, its buffer filled.
fn command<D: OpenChannel>(device: &D, act: &Act) -> VectorCmd {
    let g: &Geometry = device.geometry();
    let (block, count) = match act.op {
        VectorOp::Write if act.in_order => (device.chunk(act.chunk).wp, act.count & !1),
        VectorOp::Reset => (0, 1),
        _ => (act.block, act.count),
    };
    let ppa = Ppa(g.chunk_start(act.chunk).0 + u64::from(block));
    let bytes = VectorCmd { content: Content::Tagged, ..cmd(0, act.op, ppa, count) }
        .buffer_bytes(KEPT as u32);
    let mut buffer = Buffer::zeroed(bytes).unwrap();
    let mut value = act.value;
    buffer.bytes_mut().fill_with(|| {
        value = value.wrapping_add(1);
        value
    });
    VectorCmd { buffer, content: Content::Tagged, ..cmd(0, act.op, ppa, count) }
}

fn by_command<P>(rig: &mut Rig<P>, cmd: VectorCmd) -> (Status, Vec<u8>)
where
    P: Port<Cmd = VectorCmd, Done = VectorDone>,
{
    rig.submit(0, cmd);
    rig.run_to(Time::ZERO);
    let done = rig.all.pop().expect("it takes no time");
    (done.status, done.buffer.bytes().to_vec())
}

/// At once, or else by command. Also gives whether it was at once.
fn at_once(rig: &mut Rig<Device<ScriptedMedium>>, mut cmd: VectorCmd) -> (bool, (Status, Vec<u8>)) {
    let (ppa, count) = (cmd.ppa, u32::from(cmd.count));
    let (data, tags) = cmd.buffer.bytes_mut().split_at_mut(if cmd.op == VectorOp::Reset {
        0
    } else {
        count as usize * KEPT
    });
    let status = match cmd.op {
        VectorOp::Read => rig.port.read_at_once(ppa, count, data, tags),
        VectorOp::Write => rig.port.write_at_once(ppa, count, data, tags),
        _ => None,
    };
    match status {
        Some(status) => (true, (status, cmd.buffer.bytes().to_vec())),
        None => (false, by_command(rig, cmd)),
    }
}

proptest! {
    #[test]
    fn it_does_what_a_command_does(
        acts in acts(),
        seed in any::<u64>(),
        fails in any::<bool>(),
        slowness in 0u64..3,
    ) {
        let g = geometry(2, 1, 2);
        let timing = Timing { endurance: 3, ..Timing::default() };
        // A seed of which hardly anything fails is as good as none.
        let seed = if fails { seed } else { 0x5eed };
        let slow = slow(flaky(&g, KEPT as u32, seed), seed, slowness);
        let mut fast = Rig::new(Device::new(&g, &timing, slow).unwrap(), 8);
        let mut plain =
            Rig::new(Device::new(&g, &timing, flaky(&g, KEPT as u32, seed)).unwrap(), 8);
        for act in &acts {
            let (first, second) = (command(&plain.port, act), command(&fast.port, act));
            let expected = by_command(&mut plain, first);
            let (_, got) = at_once(&mut fast, second);
            prop_assert_eq!(got, expected, "{:?}", act);
            prop_assert_eq!(fast.port.chunks(), plain.port.chunks());
        }
        prop_assert_eq!(fast.port.state_hash(), plain.port.state_hash());
    }
}

#[test]
fn only_where_nothing_takes_time_or_is_under_way() {
    let g = geometry(1, 1, 2);
    let row = g.row_blocks();
    let tags = vec![0; row as usize * TAG_BYTES];
    let write = |device: &mut Device<RamMedium>, block: u32| {
        device.write_at_once(Ppa(u64::from(block)), row, &[], &tags)
    };
    let mut instant = drive(&g, &Timing::default(), 0);
    assert_eq!(write(&mut instant, 0), Some(Status::SUCCESS));
    assert_eq!(instant.read_at_once(Ppa(1), 1, &mut [], &mut []), Some(Status::SUCCESS));
    assert_eq!(instant.read_at_once(Ppa(1), row, &mut [], &mut []), None, "two rows");
    assert_eq!(instant.read_at_once(Ppa(u64::from(row)), 1, &mut [], &mut []), None, "unwritten");
    assert_eq!(instant.read_at_once(Ppa(1), 1, &mut [0; 4], &mut []), None, "too many bytes");
    assert_eq!(instant.read_at_once(Ppa(u64::MAX), 1, &mut [], &mut []), None, "no such block");
    assert_eq!(write(&mut instant, 0), None, "out of order");
    assert_eq!(instant.chunk(0).wp, row);
    assert!(instant.next_event().is_none(), "nothing is to come");

    let errs = Reliability { errors: true, ..Reliability::default() };
    let ram = RamMedium::new(&g, 0).unwrap();
    let mut errs = Device::with(&g, &Timing::default(), &errs, 1, ram).unwrap();
    assert_eq!(write(&mut errs, 0), None, "it may err");

    let mut timed = drive(&g, &Timing { erase: 1, ..Timing::default() }, 0);
    assert_eq!(write(&mut timed, 0), None);

    let slow = slow(RamMedium::new(&g, 0).unwrap(), 7, 1 << 40);
    let mut rig = Rig::new(Device::new(&g, &Timing::default(), slow).unwrap(), 8);
    rig.submit(0, cmd(1, VectorOp::Write, Ppa(0), row as u8));
    let other = g.chunk_start(1);
    assert_eq!(rig.port.write_at_once(other, row, &[], &tags), None, "one is under way");
    assert_eq!(rig.port.chunk(1).wp, 0);
}
