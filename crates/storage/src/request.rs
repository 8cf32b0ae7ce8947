//! A request inside: what the kernel is asked next, and what its answer means.
//!
//! Guarantees: a request ends once it is whole, or with the status of what
//! went wrong. What ends short is asked again for the rest. A trim or zeroes
//! that the file system or device does not know is done in another way, in the
//! end by writing zeros; a durable one is followed by a sync.

use port::{BlockOp, BlockReq, Buffer, Status};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::ask::Ask;
use crate::backing::Backing;

/// How a range is made to read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Give its blocks up (`FALLOC_FL_PUNCH_HOLE`).
    Punch,
    /// Keep its blocks (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// Write zeros.
    Write,
}

/// The ways to try, for trims and for zeroes, the best first; what is found
/// not to work is left out from then on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    trim: &'static [Way],
    zeroes: &'static [Way],
}

impl Ways {
    /// All of them. A trimmed range reads as zeros, which a plain discard does
    /// not promise; so it is not among them.
    pub fn new() -> Ways {
        Ways {
            trim: &[Way::Punch, Way::Zero, Way::Write],
            zeroes: &[Way::Zero, Way::Punch, Way::Write],
        }
    }

    fn of(&mut self, op: BlockOp) -> &mut &'static [Way] {
        if op == BlockOp::Trim { &mut self.trim } else { &mut self.zeroes }
    }

    /// The best way for `op`.
    fn best(&mut self, op: BlockOp) -> Way {
        self.of(op)[0]
    }

    /// Leaves `way` out, and gives the next; `None` when it was the last.
    fn without(&mut self, op: BlockOp, way: Way) -> Option<Way> {
        let list = self.of(op);
        if list.len() > 1 && list[0] == way {
            *list = &list[1..];
        }
        (way != Way::Write).then(|| list[0])
    }
}

/// What a request needs to know of its queue.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where buffers are registered, in the order of their numbers.
    pub registered: Box<[std::ops::Range<usize>]>,
    /// Zeros to be written.
    pub zeros: Buffer,
    /// How ranges are made zero.
    pub ways: Ways,
}

impl Plan {
    /// The number of the registered range that `len` bytes at `at` lie in.
    #[inline]
    pub fn number(&self, at: usize, len: usize) -> Option<u16> {
        let inside = |r: &std::ops::Range<usize>| r.start <= at && at + len <= r.end;
        self.registered.iter().position(inside).map(|i| i as u16)
    }
}

/// What becomes of a request after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The kernel is asked again.
    Again,
    /// It ends.
    Done(Status),
}

/// A request inside.
#[derive(Debug)]
pub(crate) struct Inside {
    pub id: u64,
    pub op: BlockOp,
    pub buffer: Buffer,
    fua: bool,
    offset: u64,
    len: u64,
    /// Bytes of it that are done.
    done: u64,
    way: Way,
    /// Only the sync is left.
    syncing: bool,
    /// It is being given up: it is not asked again.
    pub cancelled: bool,
    /// The slot holds a request.
    pub live: bool,
}

impl Default for Inside {
    fn default() -> Inside {
        Inside {
            id: 0,
            op: BlockOp::Flush,
            buffer: Buffer::empty(),
            fua: false,
            offset: 0,
            len: 0,
            done: 0,
            way: Way::Write,
            syncing: false,
            cancelled: false,
            live: false,
        }
    }
}

impl Inside {
    /// A request at its start.
    #[inline]
    pub fn new(req: BlockReq, plan: &mut Plan, backing: &Backing) -> Inside {
        let BlockReq { id, op, fua, offset, len, buffer, .. } = req;
        let way = match op {
            BlockOp::Trim | BlockOp::WriteZeroes if whole(offset, len, backing) => {
                plan.ways.best(op)
            }
            _ => Way::Write,
        };
        let syncing = op == BlockOp::Flush;
        let (done, cancelled, live) = (0, false, true);
        Inside { id, op, buffer, fua, offset, len, done, way, syncing, cancelled, live }
    }

    /// Whether it goes to the ring that is polled, where there is one.
    #[inline]
    pub fn can_be_polled(&self) -> bool {
        matches!(self.op, BlockOp::Read | BlockOp::Write)
    }

    /// What the kernel is asked next.
    #[inline]
    pub fn ask(&mut self, plan: &Plan) -> Ask {
        let (at, done) = (self.offset + self.done, self.done as usize);
        match self.op {
            _ if self.syncing => Ask::Sync,
            BlockOp::Read => {
                let rest = &mut self.buffer.bytes_mut()[done..];
                Ask::Read { to: rest.as_mut_ptr(), len: rest.len(), at }
            }
            BlockOp::Write => self.write(&self.buffer.bytes()[done..], at),
            _ => self.make_zero(plan, at),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> Ask {
        Ask::Write { from: bytes.as_ptr(), len: bytes.len(), at, durable: self.fua }
    }

    fn make_zero(&self, plan: &Plan, at: u64) -> Ask {
        let mode = match self.way {
            Way::Punch => FallocateFlags::PUNCH_HOLE,
            Way::Zero => FallocateFlags::ZERO_RANGE,
            Way::Write => {
                let zeros = plan.zeros.bytes();
                let len = (self.len - self.done).min(zeros.len() as u64);
                return self.write(&zeros[..len as usize], at);
            }
        };
        Ask::Fallocate { mode: mode | FallocateFlags::KEEP_SIZE, at: self.offset, len: self.len }
    }

    /// What the kernel's answer means.
    pub fn settle(&mut self, result: i32, plan: &mut Plan, backing: &Backing) -> Next {
        if result < 0 {
            return self.failed(Errno::from_raw_os_error(-result), plan, backing);
        }
        if self.syncing {
            return Next::Done(Status::SUCCESS);
        }
        match self.way {
            Way::Write => self.moved(result as u64, backing),
            _ => self.ended(),
        }
    }

    /// So many bytes were read or written.
    fn moved(&mut self, bytes: u64, backing: &Backing) -> Next {
        self.done += bytes;
        if self.done >= self.len {
            // What was written so was written durably, if it had to be.
            return Next::Done(Status::SUCCESS);
        }
        // Nothing more, or an end that direct access cannot go on from: the
        // file or device is shorter than it was.
        if bytes == 0 || !backing.can_go_on(self.done) {
            return Next::Done(if backing.look() { Status::ABORTED } else { self.fault() });
        }
        self.again()
    }

    /// The range is zero now.
    fn ended(&mut self) -> Next {
        if !self.fua {
            return Next::Done(Status::SUCCESS);
        }
        self.syncing = true;
        self.again()
    }

    fn again(&self) -> Next {
        if self.cancelled { Next::Done(Status::ABORTED_BY_HOST) } else { Next::Again }
    }

    fn failed(&mut self, e: Errno, plan: &mut Plan, backing: &Backing) -> Next {
        match e {
            Errno::INTR | Errno::AGAIN => return self.again(),
            Errno::OPNOTSUPP | Errno::NOSYS if !self.syncing && self.way != Way::Write => {
                let next = plan.ways.without(self.op, self.way);
                self.way = next.expect("writing is the last way, and this was another");
                return self.again();
            }
            Errno::NODEV | Errno::NXIO => backing.set_gone(),
            _ => {}
        }
        let status = match e {
            Errno::CANCELED => Status::ABORTED_BY_HOST,
            // A device that was removed answers with any of these too.
            _ if backing.is_gone() || backing.look() => Status::ABORTED,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::CAPACITY_EXCEEDED,
            Errno::ROFS | Errno::BADF | Errno::PERM | Errno::ACCESS => Status::READ_ONLY,
            Errno::INVAL => Status::INVALID_FIELD,
            Errno::OPNOTSUPP | Errno::NOSYS => Status::INVALID_OPCODE,
            Errno::NOMEM | Errno::FAULT => Status::INTERNAL,
            _ => self.fault(),
        };
        Next::Done(status)
    }

    /// That the medium failed.
    fn fault(&self) -> Status {
        if self.op == BlockOp::Read { Status::UNRECOVERED_READ } else { Status::WRITE_FAULT }
    }
}

/// Whether a range can be trimmed as a whole, not only written.
fn whole(offset: u64, len: u64, backing: &Backing) -> bool {
    (offset | len).is_multiple_of(backing.trim_unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const LEN: u64 = 1 << 20;

    fn backing() -> Backing {
        Backing::pretend(File::open("/dev/null").unwrap().into(), 1 << 30)
    }

    fn plan() -> Plan {
        let zeros = Buffer::zeroed(4096).unwrap();
        Plan { registered: Box::new([]), zeros, ways: Ways::new() }
    }

    fn inside(op: BlockOp, fua: bool, plan: &mut Plan) -> Inside {
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let buffer = Buffer::zeroed(if data { LEN as usize } else { 0 }).unwrap();
        Inside::new(BlockReq { fua, ..BlockReq::new(0, op, 0, LEN, buffer) }, plan, &backing())
    }

    fn error(e: Errno) -> i32 {
        -e.raw_os_error()
    }

    #[test]
    fn a_range_that_cannot_be_trimmed_is_written() {
        let (mut plan, backing) = (plan(), backing());
        for (op, ways) in [
            (BlockOp::Trim, [Way::Punch, Way::Zero]),
            (BlockOp::WriteZeroes, [Way::Zero, Way::Punch]),
        ] {
            let mut one = inside(op, true, &mut plan);
            for way in ways {
                assert_eq!(one.way, way);
                assert_eq!(one.settle(error(Errno::OPNOTSUPP), &mut plan, &backing), Next::Again);
            }
            assert_eq!(one.way, Way::Write);
            for part in 1..=LEN / 4096 {
                let next = one.settle(4096, &mut plan, &backing);
                let end = Next::Done(Status::SUCCESS);
                assert_eq!(next, if part == LEN / 4096 { end } else { Next::Again });
            }
            // It is known from now on.
            assert_eq!(inside(op, false, &mut plan).way, Way::Write);
            let mut other = inside(op, false, &mut plan);
            let next = other.settle(error(Errno::OPNOTSUPP), &mut plan, &backing);
            assert_eq!(next, Next::Done(Status::INVALID_OPCODE));
        }
    }

    #[test]
    fn two_that_find_the_same_out_leave_one_way_out() {
        let (mut plan, backing) = (plan(), backing());
        let mut both = [0, 1].map(|_| inside(BlockOp::Trim, false, &mut plan));
        for one in &mut both {
            assert_eq!(one.settle(error(Errno::OPNOTSUPP), &mut plan, &backing), Next::Again);
            assert_eq!(one.way, Way::Zero);
        }
    }

    #[test]
    fn a_durable_trim_is_synced() {
        let (mut plan, backing) = (plan(), backing());
        let mut one = inside(BlockOp::Trim, true, &mut plan);
        assert_eq!(one.settle(0, &mut plan, &backing), Next::Again);
        assert!(one.syncing);
        let next = one.settle(error(Errno::IO), &mut plan, &backing);
        assert_eq!(next, Next::Done(Status::WRITE_FAULT));
    }

    #[test]
    fn what_is_given_up_is_not_asked_again() {
        let (mut plan, backing) = (plan(), backing());
        for answer in [error(Errno::INTR), error(Errno::CANCELED), 4096] {
            let mut one = inside(BlockOp::Write, false, &mut plan);
            one.cancelled = true;
            let next = one.settle(answer, &mut plan, &backing);
            assert_eq!(next, Next::Done(Status::ABORTED_BY_HOST), "{answer}");
        }
    }

    #[test]
    fn errors_have_their_status() {
        for (e, read, write) in [
            (Errno::IO, Status::UNRECOVERED_READ, Status::WRITE_FAULT),
            (Errno::ILSEQ, Status::UNRECOVERED_READ, Status::WRITE_FAULT),
            (Errno::NOSPC, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
            (Errno::ROFS, Status::READ_ONLY, Status::READ_ONLY),
            (Errno::INVAL, Status::INVALID_FIELD, Status::INVALID_FIELD),
            (Errno::NOMEM, Status::INTERNAL, Status::INTERNAL),
            (Errno::NXIO, Status::ABORTED, Status::ABORTED),
        ] {
            for (op, status) in [(BlockOp::Read, read), (BlockOp::Write, write)] {
                let (mut plan, backing) = (plan(), backing());
                let next = inside(op, false, &mut plan).settle(error(e), &mut plan, &backing);
                assert_eq!(next, Next::Done(status), "{e} {op:?}");
                assert_eq!(backing.is_gone(), e == Errno::NXIO);
            }
        }
    }
}
