//! A part of a block is written around its old bytes, which come so late that
//! a newer copy of the block lies where they were read.

use device::{Device, OpenChannel};
use faults::{Delay, DelayPort, DelayRule, Operation, ScriptedMedium, Span, Trigger};
use flash::{Dimensions, Geometry, Timing};
use port::{BlockOp, Status, Time};
use targets::{Pblk, PblkConfig, Victim, with_reserve};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 9;

type Host = crate::host::Host<Pblk<Box<dyn OpenChannel>>>;

impl Host {
    /// A drive of one unit, the first read of whose first block of data ends a
    /// second late.
    fn late() -> Host {
        let dim = Dimensions { chunks: 4, pages: 4, ..Dimensions::LEAST };
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
        let config = PblkConfig { victim: Victim::Fifo, ..PblkConfig::new(BLOCKS * BLOCK, 4, 7) };
        let drive = Pblk::new(device, config).unwrap();
        Host::new(drive, Time::ZERO, ())
    }
}

#[test]
fn a_newer_copy_where_the_old_bytes_were_read_is_not_undone() {
    for writes in 0..400 {
        let mut host = Host::late();
        for block in 0..BLOCKS {
            assert_eq!(host.one(BlockOp::Write, block * BLOCK, BLOCK, 1).status, Status::SUCCESS);
        }
        assert_eq!(host.one(BlockOp::Flush, 0, 0, 0).status, Status::SUCCESS);
        host.begin(2, BlockOp::Write, 512, 512, 0xcd);
        let mut newest = 1;
        for i in 0..writes {
            let (block, byte) = (i * i * (writes + 1) % 251 % BLOCKS, 2 + (i % 200) as u8);
            assert_eq!(
                host.one(BlockOp::Write, block * BLOCK, BLOCK, byte).status,
                Status::SUCCESS
            );
            if block == 0 {
                newest = byte;
            }
        }
        assert_eq!(host.one(BlockOp::Flush, 0, 0, 0).status, Status::SUCCESS);
        assert!(host.now < Time(1_000_000_000), "the part is still under way");
        assert_eq!(host.ended(2).status, Status::SUCCESS);
        assert!(host.now >= Time(1_000_000_000), "it was late");
        let read = host.one(BlockOp::Read, 0, BLOCK, 0);
        assert_eq!(read.status, Status::SUCCESS);
        let bytes = read.buffer.bytes();
        assert!(bytes[512..1024].iter().all(|&b| b == 0xcd), "after {writes} writes");
        let around = bytes[..512].iter().chain(&bytes[1024..]);
        assert!(around.copied().all(|b| b == newest), "after {writes} writes: {}", bytes[0]);
    }
}
