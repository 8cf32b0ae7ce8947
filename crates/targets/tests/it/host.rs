//! Whoever asks a drive for things in virtual time, mostly one at a time.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};

/// A drive, and what a test knows of it.
pub struct Host<P, X = ()> {
    pub drive: P,
    pub now: Time,
    pub more: X,
    /// Writes are durable when they complete.
    pub fua: bool,
    /// In which stream they are.
    pub placement: u8,
    pub queue: Ring<BlockReq>,
    pub done: Ring<BlockDone>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>, X> Host<P, X> {
    pub fn new(drive: P, now: Time, more: X) -> Host<P, X> {
        let (queue, done) = (Ring::new(8), Ring::new(8));
        Host { drive, now, more, fua: false, placement: 0, queue, done }
    }

    fn submit(&mut self, id: u64, op: BlockOp, offset: u64, len: u64, buffer: Buffer) {
        let (fua, placement) = (self.fua, self.placement);
        let req = BlockReq { fua, placement, ..BlockReq::new(id, op, offset, len, buffer) };
        assert!(self.queue.push(req).is_ok());
        self.drive.submit(self.now, &mut self.queue);
    }

    /// Submits a request for bytes, all of which are `byte`.
    pub fn begin(&mut self, id: u64, op: BlockOp, offset: u64, len: u64, byte: u8) {
        let mut buffer = Buffer::zeroed(len as usize).unwrap();
        buffer.bytes_mut().fill(byte);
        self.submit(id, op, offset, len, buffer);
    }

    /// Submits a request for a block of a drive that keeps eight bytes of each.
    pub fn begin_block(&mut self, op: BlockOp, block: u64, value: u64) {
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        let mut buffer = Buffer::zeroed(if moves { 8 } else { 0 }).unwrap();
        if moves {
            buffer.bytes_mut().copy_from_slice(&value.to_le_bytes());
        }
        let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
        self.submit(0, op, block * len, len, buffer);
    }

    /// The next event. False when there is none.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.drive.next_event() else { return false };
        self.now = self.now.max(at);
        self.drive.advance(self.now, &mut self.done);
        self.drive.submit(self.now, &mut self.queue);
        true
    }

    /// Lets all that is under way end.
    pub fn rest(&mut self) {
        while self.step() {}
    }

    /// How a request ended; others that come before went well.
    pub fn ended(&mut self, id: u64) -> BlockDone {
        loop {
            while let Some(done) = self.done.pop() {
                if done.id == id {
                    return done;
                }
                assert_eq!(done.status, Status::SUCCESS);
            }
            assert!(self.step(), "the drive hangs");
        }
    }

    /// One request for bytes.
    pub fn one(&mut self, op: BlockOp, offset: u64, len: u64, byte: u8) -> BlockDone {
        self.begin(0, op, offset, len, byte);
        self.ended(0)
    }

    /// One request for a block: how it ended, and what was read.
    pub fn block(&mut self, op: BlockOp, block: u64, value: u64) -> (Status, u64) {
        self.begin_block(op, block, value);
        let done = self.ended(0);
        (done.status, done.buffer.bytes().try_into().map_or(0, u64::from_le_bytes))
    }

    /// One that goes well.
    pub fn good(&mut self, op: BlockOp, block: u64, value: u64) -> u64 {
        let (status, read) = self.block(op, block, value);
        assert_eq!(status, Status::SUCCESS);
        read
    }
}
