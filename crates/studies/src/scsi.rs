//! A layer of another command set between a request queue and its driver, as
//! SCSI's is for an AHCI drive under Linux (Seppanen, O'Keefe and Lilja,
//! section III.B: "time spent converting from one format to another").
//!
//! Each request becomes a command descriptor block in a table, which is then
//! read again to make the driver's command; each completion becomes a status
//! in the table, which is read again to make the block layer's. Reads and
//! writes are the 16-byte commands of SBC-4, in sectors of 512 bytes; other
//! operations go past it.
//!
//! Guarantees: the driver sees the requests that it would have seen without.
//! Nothing here fails.

use blkmq::{Driver, HardwareQueue};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, SECTOR_BYTES, Shape, Slots, Status, Time};

/// READ(16) and WRITE(16), and the bit of their second byte that forces unit
/// access.
const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;
const FUA: u8 = 1 << 3;
/// GOOD and CHECK CONDITION.
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;

/// A command in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    block: [u8; 16],
    /// The id that the block layer gave.
    id: u64,
    status: u8,
    /// What went wrong, in the place of sense data.
    sense: u16,
}

impl Command {
    /// Writes a descriptor block. False for what has none.
    fn build(&mut self, req: &BlockReq) -> bool {
        let code = match req.op {
            BlockOp::Read => READ_16,
            BlockOp::Write => WRITE_16,
            BlockOp::Flush | BlockOp::Trim | BlockOp::WriteZeroes => return false,
        };
        let whole = (req.offset | req.len).is_multiple_of(SECTOR_BYTES);
        let Ok(sectors) = u32::try_from(req.len / SECTOR_BYTES) else { return false };
        self.block = [0; 16];
        self.block[0] = code;
        self.block[1] = if req.fua { FUA } else { 0 };
        self.block[2..10].copy_from_slice(&(req.offset / SECTOR_BYTES).to_be_bytes());
        self.block[10..14].copy_from_slice(&sectors.to_be_bytes());
        whole
    }

    /// What the descriptor block says: operation, forced access, first byte
    /// and bytes.
    fn parse(&self) -> (BlockOp, bool, u64, u64) {
        let op = if self.block[0] == READ_16 { BlockOp::Read } else { BlockOp::Write };
        let [_, flags, rest @ ..] = &self.block;
        let sector = rest[..8].iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let sectors = rest[8..12].iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        (op, flags & FUA != 0, sector * SECTOR_BYTES, sectors * SECTOR_BYTES)
    }

    fn complete(&mut self, status: Status) {
        self.status = if status.is_ok() { GOOD } else { CHECK_CONDITION };
        self.sense = status.0;
    }

    fn status(&self) -> Status {
        if self.status == GOOD { Status::SUCCESS } else { Status(self.sense) }
    }
}

/// A driver below the layer.
#[derive(Clone, Copy, Debug)]
pub struct Scsi<D>(pub D);

impl<D: Driver> Driver for Scsi<D> {
    type Queue = ScsiQueue<D::Queue>;

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn queues(&self) -> [usize; 3] {
        self.0.queues()
    }

    fn shares_tags(&self) -> bool {
        self.0.shares_tags()
    }

    fn open(self) -> Vec<ScsiQueue<D::Queue>> {
        self.0.open().into_iter().map(ScsiQueue::new).collect()
    }
}

/// A driver's queue below the layer.
pub struct ScsiQueue<Q> {
    queue: Q,
    table: Slots<Command>,
    out: Ring<BlockReq>,
}

impl<Q: HardwareQueue> ScsiQueue<Q> {
    fn new(queue: Q) -> ScsiQueue<Q> {
        let depth = queue.depth();
        ScsiQueue { queue, table: Slots::new(depth), out: Ring::new(depth) }
    }
}

/// The bit of an id that says that the request went past the table.
const PAST: u64 = 1 << 63;

impl<Q: HardwareQueue> Port for ScsiQueue<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while self.table.room() > 0
            && self.out.room() > 0
            && let Some(mut req) = cmds.pop()
        {
            let place = self.table.take_as_is();
            let command = &mut self.table[place];
            command.id = req.id;
            if command.build(&req) {
                (req.op, req.fua, req.offset, req.len) = command.parse();
                req.id = place.into();
            } else {
                self.table.give(place);
                req.id |= PAST;
            }
            self.out.put(|| req);
        }
        self.queue.submit(now, &mut self.out);
    }

    fn next_event(&self) -> Option<Time> {
        self.queue.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        let mut at = done.len();
        self.queue.advance(to, done);
        while let Some(one) = done.get_mut(at) {
            at += 1;
            if one.id & PAST != 0 {
                one.id &= !PAST;
                continue;
            }
            let place = one.id as u32;
            let command = &mut self.table[place];
            command.complete(one.status);
            (one.id, one.status) = (command.id, command.status());
            self.table.give(place);
        }
    }
}

impl<Q: HardwareQueue> HardwareQueue for ScsiQueue<Q> {
    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn is_gone(&self) -> bool {
        self.queue.is_gone()
    }
}

#[cfg(test)]
mod tests {
    use blkmq::driver::null::{Null, NullOptions};
    use port::Buffer;
    use proptest::prelude::*;

    use super::*;

    fn req(op: BlockOp, offset: u64, len: u64, fua: bool) -> BlockReq {
        BlockReq { fua, ..BlockReq::new(7 << 32, op, offset, len, Buffer::empty()) }
    }

    #[test]
    fn a_descriptor_block_is_as_the_standard_has_it() {
        let mut command = Command::default();
        assert!(command.build(&req(BlockOp::Write, 0x1234_5678 * 512, 8 * 512, true)));
        let block = [0x8a, 8, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 8, 0, 0];
        assert_eq!(command.block, block);
    }

    #[test]
    fn completions_keep_their_ids_and_statuses() {
        let null = Null::new(NullOptions { gb: 1, ..NullOptions::default() }).unwrap();
        let mut queue = Scsi(null).open().remove(0);
        let (mut cmds, mut done) = (Ring::new(8), Ring::new(8));
        let flush = BlockReq { id: 9, ..req(BlockOp::Flush, 0, 0, false) };
        for req in [req(BlockOp::Read, 0, 4096, false), req(BlockOp::Read, 1 << 40, 4096, false)] {
            cmds.push(req).unwrap();
        }
        cmds.push(flush).unwrap();
        queue.submit(Time(3), &mut cmds);
        queue.advance(Time(3), &mut done);
        let seen: Vec<_> = done.drain().map(|d| (d.id, d.status)).collect();
        let expected =
            [(7 << 32, Status::SUCCESS), (7 << 32, Status::LBA_OUT_OF_RANGE), (9, Status::SUCCESS)];
        assert_eq!(seen, expected);
        assert_eq!(queue.table.live(), 0);
    }

    proptest! {
        #[test]
        fn what_is_built_is_parsed(sector in 0u64..1 << 50, sectors: u32, write: bool, fua: bool) {
            let op = if write { BlockOp::Write } else { BlockOp::Read };
            let (offset, len) = (sector * 512, u64::from(sectors) * 512);
            let mut command = Command::default();
            prop_assert!(command.build(&req(op, offset, len, fua)));
            prop_assert_eq!(command.parse(), (op, fua, offset, len));
        }
    }
}
