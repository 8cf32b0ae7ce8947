//! The client as a port: a served drive as one's own remote one.

use std::thread::sleep;
use std::time::Duration;

use super::ram::Ram;
use super::{Rig, SHAPE, serve};
use device::realtime::RealTime;
use exports::nbd::Remote;
use port::random::Random;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring};

fn remote(rig: &Rig) -> RealTime<Remote> {
    RealTime::new(Remote::new(rig.client()).unwrap())
}

fn request(id: u64, op: BlockOp, block: u64, byte: u8) -> BlockReq {
    let has_data = matches!(op, BlockOp::Read | BlockOp::Write);
    let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
    let mut buffer = Buffer::zeroed(if has_data { len as usize } else { 0 }).unwrap();
    buffer.bytes_mut().fill(byte);
    let (offset, fua, placement, queue) = (block * BLOCK_BYTES, id.is_multiple_of(3), 0, 0);
    BlockReq { id, op, fua, placement, queue, offset, len, buffer }
}

/// Takes what has ended, of which there is to be some.
fn ended(drive: &mut RealTime<Remote>, done: &mut Ring<BlockDone>) -> Vec<BlockDone> {
    for _ in 0..60_000 {
        let now = drive.now();
        drive.poll(now, done);
        if !done.is_empty() {
            return done.drain().collect();
        }
        sleep(Duration::from_micros(drive.idle_for().map_or(0, |idle| idle.as_micros() as u64)));
    }
    panic!("something ends");
}

/// Many requests at once, one to a block: each ends once, with its buffer, and gives what was
/// written there; what is given up reads as zeros.
#[test]
fn a_served_drive_is_a_port() {
    serve(Ram::new(SHAPE, |_| 20_000), |rig| {
        let mut drive = remote(rig);
        assert_eq!(drive.port().shape().bytes, SHAPE.bytes);
        let (mut cmds, mut done, mut random) = (Ring::new(64), Ring::new(64), Random::new(1, 1));
        // By block, what it is filled with, and what is asked of it.
        let mut blocks = [(0_u8, None); 40];
        for id in 0..3000 {
            let block = random.below(40) as usize;
            if blocks[block].1.is_none() {
                let (op, byte) = match random.below(6) {
                    0 => (BlockOp::Trim, 0),
                    1 => (BlockOp::WriteZeroes, 0),
                    2 => (BlockOp::Flush, blocks[block].0),
                    3 | 4 => (BlockOp::Write, id as u8),
                    _ => (BlockOp::Read, blocks[block].0),
                };
                blocks[block] = (byte, Some((id, op)));
                cmds.put(|| request(id, op, 20 + block as u64, byte));
                let now = drive.now();
                drive.submit(now, &mut cmds);
                assert!(cmds.is_empty());
            }
            let most = if id < 2999 { 20 } else { 0 };
            while blocks.iter().filter(|block| block.1.is_some()).count() > most {
                for one in ended(&mut drive, &mut done) {
                    let is_it = |block: &&mut (u8, Option<(u64, BlockOp)>)| {
                        block.1 == Some((one.id, one.op))
                    };
                    let (byte, asked) = blocks.iter_mut().find(is_it).expect("it was asked once");
                    *asked = None;
                    assert!(one.status.is_ok(), "{:?}: {}", one.op, one.status);
                    let has_data = matches!(one.op, BlockOp::Read | BlockOp::Write);
                    assert_eq!(one.buffer.len(), if has_data { 4096 } else { 0 });
                    assert!(one.buffer.bytes().iter().all(|b| b == byte));
                }
            }
        }
        drive.into_port().close().unwrap();
    });
}
