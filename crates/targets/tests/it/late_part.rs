//! A part of a block is written around its old bytes, which come so late that
//! a newer copy of the block lies where they were read.

use device::{Device, OpenChannel};
use faults::{Delay, DelayPort, DelayRule, Operation, ScriptedMedium, Span, Trigger};
use flash::{Dimensions, Geometry, Timing};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 9;

struct Host {
    drive: Pblk<Box<dyn OpenChannel>>,
    now: Time,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
}

impl Host {
    /// A drive of one unit, the first read of whose first block of data ends a
    /// second late.
    fn new() -> Host {
        let dim =
            Dimensions { groups: 1, pus: 1, chunks: 4, pages: 4, planes: 1, page_bytes: 4096 };
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let timing =
            Timing { read: vec![1_000], program: vec![2_000], erase: 3_000, ..Timing::default() };
        // The user's first chunk comes after those for roots.
        let at = geometry.chunk_start(geometry.chunk_of(0, 3)).0;
        let trigger =
            Trigger { span: Some(Span::Ppa(at..at + 1)), count: Some(1), ..Trigger::default() };
        let delay = Delay { least: 1_000_000_000, most: 1_000_000_000 };
        let rule = DelayRule { operation: Operation::Read, trigger, delay };
        let medium = ScriptedMedium::ram(&geometry, BLOCK as u32, ());
        let device = Device::new(&geometry, &timing, medium).unwrap();
        let device: Box<dyn OpenChannel> = Box::new(DelayPort::new(device, &[rule], 0).unwrap());
        let config = PblkConfig {
            bytes: BLOCKS * BLOCK,
            data_chunks: 4,
            idle: 0,
            victim: Victim::Fifo,
            seed: 7,
        };
        let drive = Pblk::new(device, config).unwrap();
        Host { drive, now: Time::ZERO, queue: Ring::new(8), done: Ring::new(8) }
    }

    fn begin(&mut self, id: u64, op: BlockOp, offset: u64, len: u64, byte: u8) {
        let mut buffer = Buffer::zeroed(len as usize).unwrap();
        buffer.bytes_mut().fill(byte);
        let req = BlockReq { id, op, fua: false, offset, len, buffer };
        assert!(self.queue.push(req).is_ok());
        self.drive.submit(self.now, &mut self.queue);
    }

    /// The completion of a request; another one may come before.
    fn ended(&mut self, id: u64) -> BlockDone {
        loop {
            while let Some(done) = self.done.pop() {
                assert_eq!(done.status, Status::SUCCESS);
                if done.id == id {
                    return done;
                }
            }
            let at = self.drive.next_event().expect("the drive hangs");
            self.now = self.now.max(at);
            self.drive.advance(self.now, &mut self.done);
        }
    }

    fn one(&mut self, op: BlockOp, offset: u64, len: u64, byte: u8) -> BlockDone {
        self.begin(1, op, offset, len, byte);
        self.ended(1)
    }
}

#[test]
fn a_newer_copy_where_the_old_bytes_were_read_is_not_undone() {
    for writes in 0..400 {
        let mut host = Host::new();
        for block in 0..BLOCKS {
            host.one(BlockOp::Write, block * BLOCK, BLOCK, 1);
        }
        host.one(BlockOp::Flush, 0, 0, 0);
        host.begin(2, BlockOp::Write, 512, 512, 0xcd);
        let mut newest = 1;
        for i in 0..writes {
            let (block, byte) = (i * i * (writes + 1) % 251 % BLOCKS, 2 + (i % 200) as u8);
            host.one(BlockOp::Write, block * BLOCK, BLOCK, byte);
            if block == 0 {
                newest = byte;
            }
        }
        host.one(BlockOp::Flush, 0, 0, 0);
        assert!(host.now < Time(1_000_000_000), "the part is still under way");
        host.ended(2);
        assert!(host.now >= Time(1_000_000_000), "it was late");
        let read = host.one(BlockOp::Read, 0, BLOCK, 0);
        let bytes = read.buffer.bytes();
        assert!(bytes[512..1024].iter().all(|&b| b == 0xcd), "after {writes} writes");
        let around = bytes[..512].iter().chain(&bytes[1024..]);
        assert!(around.copied().all(|b| b == newest), "after {writes} writes: {}", bytes[0]);
    }
}
