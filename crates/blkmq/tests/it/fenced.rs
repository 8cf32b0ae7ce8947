//! What takes too long: its tag is not used again, and its submitter not told,
//! before the driver has let it go, so that it never lands on what was written
//! after it.

use crate::common::topology;
use blkmq::{Abort, Config, Context, Driver, Fault, HardwareQueue, build};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};

const TIMEOUT: u64 = 1000;

/// What becomes of a write that the device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// It is given up when that is asked for.
    GivenUp,
    /// It completes late, and the device says that it will.
    Late,
    /// The device cannot tell, and it lands some day, unless the queue is
    /// reset.
    Reset,
    /// As before, and the queue cannot be reset.
    Stuck,
}

/// A device of one block that holds each write of a 1, and lands it late.
struct Holds(Held);

struct HoldsQueue {
    what: Held,
    /// The block's first byte.
    block: u8,
    held: Option<(Time, BlockReq)>,
    done: Vec<BlockDone>,
    /// How often it was asked for a request.
    asked: u32,
}

impl Driver for Holds {
    type Queue = HoldsQueue;

    fn shape(&self) -> Shape {
        Shape { bytes: 1 << 20, kept: 4096, max_bytes: 4096, depth: 2 }
    }

    fn queues(&self) -> [usize; 3] {
        [1, 0, 0]
    }

    fn open(self) -> Vec<HoldsQueue> {
        vec![HoldsQueue { what: self.0, block: 0, held: None, done: Vec::new(), asked: 0 }]
    }
}

impl HoldsQueue {
    fn carry_out(&mut self, at: Time, req: BlockReq) {
        let BlockReq { id, op, mut buffer, .. } = req;
        match op {
            BlockOp::Write => self.block = buffer.bytes()[0],
            _ => buffer.bytes_mut()[0] = self.block,
        }
        self.done.push(BlockDone { id, op, status: Status::SUCCESS, at, buffer });
    }
}

impl Port for HoldsQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        while let Some(req) = cmds.pop() {
            if req.op == BlockOp::Write && req.buffer.bytes()[0] == 1 {
                self.held = Some((now + 10 * TIMEOUT, req));
            } else {
                self.carry_out(now, req);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        let done = self.done.iter().map(|one| one.at);
        done.chain(self.held.iter().map(|&(at, _)| at)).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if let Some((at, req)) = self.held.take_if(|held| held.0 <= to) {
            self.carry_out(at, req);
        }
        self.done.drain(..).for_each(|one| done.put(|| one));
    }
}

impl HardwareQueue for HoldsQueue {
    fn depth(&self) -> usize {
        2
    }

    fn abort(&mut self, id: u64) -> Abort {
        self.asked += 1;
        match self.what {
            Held::GivenUp => {
                let (_, req) = self.held.take_if(|held| held.1.id == id).expect("it is held");
                Abort::Given(req.buffer)
            }
            Held::Late => Abort::Working,
            Held::Reset | Held::Stuck => Abort::Lost,
        }
    }

    fn reset(&mut self) -> bool {
        if self.what == Held::Reset {
            self.held = None;
        }
        self.what == Held::Reset
    }
}

/// One request, and when and how it came back.
fn run(context: &mut Context<HoldsQueue>, now: Time, op: BlockOp, byte: u8) -> BlockDone {
    let mut buffer = Buffer::zeroed(4096).unwrap();
    buffer.bytes_mut()[0] = byte;
    let (mut reqs, mut done) = (Ring::new(1), Ring::new(4));
    reqs.put(|| BlockReq::new(byte.into(), op, 0, 4096, buffer));
    context.submit(now, &mut reqs);
    loop {
        let at = context.next_event().expect("it comes back");
        context.advance(at, &mut done);
        if let Some(mut one) = done.pop() {
            one.at = at;
            return one;
        }
    }
}

/// Writes 1, which is held, then 2, and lets all time pass. How the writes
/// ended, what is in the block, and what was reported.
fn overtake(what: Held) -> (BlockDone, BlockDone, u8, Vec<Fault>) {
    let config = Config { timeout: TIMEOUT, ..Config::new(topology(1, 1)) };
    let (mut contexts, monitor) = build(&config, Holds(what)).unwrap();
    let context = &mut contexts[0];
    let first = run(context, Time(0), BlockOp::Write, 1);
    let second = run(context, first.at, BlockOp::Write, 2);
    let mut done = Ring::new(4);
    context.advance(Time(100 * TIMEOUT), &mut done);
    assert!(done.is_empty(), "each comes back once");
    assert_eq!(monitor.dispatch()[0].timed_out, 1);
    // Ten timeouts late: after one, two, four and eight.
    let asked = context.queue().unwrap().asked;
    assert!(what != Held::Late || asked == 4, "{asked}");
    let block = context.queue().unwrap().block;
    (first, second, block, context.faults())
}

fn timed_out(faults: &[Fault]) -> bool {
    matches!(faults[0], Fault::TimedOut { queue: 0, since: Time(0), .. })
}

#[test]
fn a_write_that_is_given_up_never_lands_on_a_newer_one() {
    let (first, second, block, faults) = overtake(Held::GivenUp);
    assert_eq!((first.status, first.at), (Status::ABORTED_BY_HOST, Time(TIMEOUT)));
    assert_eq!((second.status, block, faults.len()), (Status::SUCCESS, 2, 1));
    assert!(timed_out(&faults) && first.buffer.len() == 4096);
}

#[test]
fn a_device_that_still_works_on_it_is_waited_for() {
    let (first, second, block, faults) = overtake(Held::Late);
    assert_eq!((first.status, first.at), (Status::SUCCESS, Time(10 * TIMEOUT)));
    assert_eq!((second.status, block, faults.len()), (Status::SUCCESS, 2, 1));
    assert!(timed_out(&faults), "{faults:?}");
}

#[test]
fn a_queue_that_does_not_let_go_is_reset() {
    let (first, second, block, faults) = overtake(Held::Reset);
    assert_eq!((first.status, first.at), (Status::ABORTED_BY_HOST, Time(2 * TIMEOUT)));
    assert_eq!((second.status, block), (Status::SUCCESS, 2));
    assert!(timed_out(&faults) && faults[1] == Fault::Reset { queue: 0 }, "{faults:?}");
}

#[test]
fn a_queue_that_cannot_be_reset_takes_nothing_more() {
    let (first, second, block, faults) = overtake(Held::Stuck);
    assert_eq!((first.status, first.at), (Status::ABORTED, Time(2 * TIMEOUT)));
    // The first lands after all. Nothing newer was there to land on.
    assert_eq!((second.status, block), (Status::ABORTED, 1));
    assert!(timed_out(&faults) && faults[1] == Fault::Stuck { queue: 0 }, "{faults:?}");
}
