//! On a drive that takes no time a command of one row is done when it comes: with
//! the status, bytes, descriptors and counts that operations would have given,
//! on media that are slow or fail.

use crate::common::{Rig, cmd, flaky, geometry, slow};
use device::{Addresses, Content, Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa, Timing};
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

/// The same command with a list, which goes by operations on every drive.
fn listed(mut cmd: VectorCmd) -> VectorCmd {
    let mut list = Addresses::default();
    let first = cmd.ppa.0;
    (0..usize::from(cmd.count)).for_each(|i| list.from[i] = Ppa(first + i as u64));
    cmd.list = Some(Box::new(list));
    cmd
}

proptest! {
    #[test]
    fn it_does_what_operations_do(
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
            let expected = by_command(&mut plain, listed(first));
            let got = by_command(&mut fast, second);
            prop_assert_eq!(got, expected, "{:?}", act);
            prop_assert_eq!(fast.port.chunks(), plain.port.chunks());
        }
        prop_assert_eq!(fast.port.state_hash(), plain.port.state_hash());
    }
}
