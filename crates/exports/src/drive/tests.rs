//! Tests of many users of one drive.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Completes everything at a time that the test can change.
struct Gate {
    opens: Arc<AtomicU64>,
    held: VecDeque<BlockReq>,
}

impl Port for Gate {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
        self.held.extend(cmds.drain());
    }

    fn next_event(&self) -> Option<Time> {
        self.held.front().map(|_| Time(self.opens.load(Ordering::Relaxed)))
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while let Some(cmd) = self.held.pop_front() {
            let BlockReq { id, op, buffer, .. } = cmd;
            done.push(BlockDone { id, op, status: Status::SUCCESS, at: to, buffer }).unwrap();
        }
    }
}

const FAR: u64 = 3_600_000_000_000;

fn gate() -> (SharedDrive<Gate>, Arc<AtomicU64>) {
    let opens = Arc::new(AtomicU64::new(FAR));
    let port = Gate { opens: opens.clone(), held: VecDeque::new() };
    (SharedDrive::new(port), opens)
}

/// Refuses what comes first, and has nothing else to do.
struct Shy {
    refuses: u32,
    taken: Option<BlockReq>,
}

impl Port for Shy {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
        match self.refuses.checked_sub(1) {
            Some(left) => self.refuses = left,
            None => self.taken = cmds.pop(),
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.taken.as_ref().map(|_| Time::ZERO)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if let Some(BlockReq { id, op, buffer, .. }) = self.taken.take() {
            done.push(BlockDone { id, op, status: Status::SUCCESS, at: to, buffer }).unwrap();
        }
    }
}

#[test]
fn a_drive_is_looked_after_when_nobody_uses_it() {
    let (drive, opens) = gate();
    assert_eq!(drive.tend(|_, _| ()), Ok(None), "it rests for ever");
    let mut times = 0;
    let seat = drive.sit(1).unwrap().unwrap();
    turn(&seat, Some(1));
    assert_eq!(drive.tend(|_, _| times += 1), Ok(None));
    assert_eq!(times, 0, "who has something inside sees to it");
    opens.store(0, Ordering::Relaxed);
    while turn(&seat, None).is_empty() {}
    // What that begins has a time of its own.
    opens.store(FAR, Ordering::Relaxed);
    let left = drive.tend(|gate, _| {
        let (op, buffer) = (BlockOp::Flush, Buffer::empty());
        gate.held.push_back(BlockReq {
            id: 0,
            op,
            fua: false,
            placement: 0,
            queue: 0,
            offset: 0,
            len: 0,
            buffer,
        });
    });
    let left = left.unwrap().expect("something is to come");
    assert!(left > Duration::ZERO && left <= Duration::from_nanos(FAR));
}

/// Of many who have much one at a time is at the lock; the others wait behind
/// who has little.
#[test]
fn who_has_little_waits_for_one_turn() {
    let (drive, _) = gate();
    let (at_work, order) = (drive.lock().unwrap(), Mutex::new(Vec::new()));
    let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let inner = drive.lock_after_others().unwrap();
                order.lock().unwrap().push("much");
                drop(inner);
            });
        }
        while count(&drive.waiting) < 8 {
            sched_yield();
        }
        for n in 1..=3 {
            scope.spawn(|| {
                let inner = drive.lock().unwrap();
                order.lock().unwrap().push("little");
                drop(inner);
            });
            while count(&drive.light) < n {
                sched_yield();
            }
        }
        drop(at_work);
    });
    let order = order.into_inner().unwrap();
    assert_eq!(order[..3], ["little"; 3], "{order:?}");
    assert_eq!(order.len(), 11);
    assert_eq!((count(&drive.waiting), count(&drive.light)), (0, 0));
}

#[test]
fn who_was_refused_asks_again() {
    let drive = SharedDrive::new(Shy { refuses: 3, taken: None });
    // It would sleep for ever.
    assert_eq!(drive.flush(), Ok(Status::SUCCESS));
}

/// A turn of `seat` with one flush, numbered `id`, or none; gives what
/// completed.
fn turn<P>(seat: &Seat<'_, P>, id: Option<u64>) -> Vec<u64>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(4));
    if let Some(id) = id {
        let id = (seat.number() as u64) << 32 | id;
        let buffer = Buffer::empty();
        let op = BlockOp::Flush;
        cmds.push(BlockReq {
            id,
            op,
            fua: false,
            placement: 0,
            queue: 0,
            offset: 0,
            len: 0,
            buffer,
        })
        .unwrap();
    }
    seat.turn(&mut cmds, &mut done).unwrap();
    done.drain().map(|d| d.id & u64::from(u32::MAX)).collect()
}

fn rang<P: Port<Cmd = BlockReq, Done = BlockDone>>(seat: &Seat<'_, P>) -> bool {
    rustix::io::read(seat.bell(), &mut [0u8; 8]).is_ok()
}

#[test]
fn completions_find_their_seat_and_ring_its_bell() {
    let (drive, opens) = gate();
    let (a, b) = (drive.sit(4).unwrap().unwrap(), drive.sit(4).unwrap().unwrap());
    assert!(turn(&a, Some(7)).is_empty());
    assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
    opens.store(0, Ordering::Relaxed);
    assert_eq!(turn(&b, Some(8)), [8]);
    assert!(rang(&a) && !rang(&b));
    assert_eq!(a.wait().unwrap(), Wait::Spin);
    assert_eq!(turn(&a, None), [7]);
}

#[test]
fn one_keeps_watch_and_hands_over() {
    let (drive, _) = gate();
    let (a, b) = (drive.sit(4).unwrap().unwrap(), drive.sit(4).unwrap().unwrap());
    turn(&a, Some(0));
    turn(&b, Some(0));
    assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
    assert_eq!(b.wait().unwrap(), Wait::Sleep(None));
    drop(a);
    assert!(rang(&b));
    assert!(matches!(b.wait().unwrap(), Wait::Sleep(Some(_))));
}

/// Who sleeps until the drive's next event is woken where a change of the drive brings that
/// nearer; and where all are to finish, what the drive holds back goes on.
#[test]
fn a_change_wakes_who_keeps_watch() {
    let (drive, opens) = gate();
    let drive = drive.hurried_by(|gate, _| gate.opens.store(0, Ordering::Relaxed));
    let a = drive.sit(4).unwrap().unwrap();
    turn(&a, Some(7));
    assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
    drive.change(|_, _| ()).unwrap().unwrap();
    assert!(!rang(&a), "it is as it was");
    drive.change(|_, _| opens.store(FAR - 1, Ordering::Relaxed)).unwrap().unwrap();
    assert!(rang(&a));
    assert!(drive.bells.lock().unwrap().capacity() > 0, "the next change takes no memory");
    assert!(turn(&a, None).is_empty());
    assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
    drive.stop().unwrap();
    assert!(rang(&a));
    assert_eq!(turn(&a, None), [7]);
}

/// Completes one command whenever it is opened.
struct Valve(Gate);

impl Port for Valve {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.0.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.0.opens.swap(FAR, Ordering::Relaxed) == 0 {
            let behind = self.0.held.split_off(1);
            self.0.advance(to, done);
            self.0.held = behind;
        }
    }
}

#[test]
fn who_is_asked_to_watch_and_is_done_asks_another() {
    let opens = Arc::new(AtomicU64::new(FAR));
    let gate = Gate { opens: opens.clone(), held: VecDeque::new() };
    let drive = SharedDrive::new(Valve(gate));
    let sit = || drive.sit(4).unwrap().unwrap();
    let (a, b, c) = (sit(), sit(), sit());
    turn(&b, Some(0));
    turn(&a, Some(0));
    turn(&c, Some(0));
    assert!(matches!(a.wait().unwrap(), Wait::Sleep(Some(_))));
    assert_eq!(b.wait().unwrap(), Wait::Sleep(None));
    assert_eq!(c.wait().unwrap(), Wait::Sleep(None));
    drop(a);
    assert!(rang(&b) && !rang(&c));
    opens.store(0, Ordering::Relaxed);
    assert_eq!(turn(&b, None), [0]);
    assert!(rang(&c), "or it would sleep for ever");
}

#[test]
fn a_seat_is_free_when_nothing_of_it_is_inside() {
    let (drive, opens) = gate();
    let a = drive.sit(4).unwrap().unwrap();
    let first = a.number();
    turn(&a, Some(0));
    drop(a);
    let b = drive.sit(4).unwrap().unwrap();
    assert_ne!(b.number(), first);
    opens.store(0, Ordering::Relaxed);
    assert!(turn(&b, None).is_empty());
    let c = drive.sit(4).unwrap().unwrap();
    assert_eq!(c.number(), first);
    assert!(turn(&c, None).is_empty());
    assert_eq!(drive.flush(), Ok(Status::SUCCESS));
}
