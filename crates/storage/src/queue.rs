//! A dispatch queue over one file or device.
//!
//! A request takes a slot, goes to the kernel with the slot's number as its
//! key, and its answer brings it to `ready`, from where it is given out. A
//! polled queue has a second ring, since flushes, trims and zeroes cannot be
//! polled.
//!
//! Guarantees: those of the crate. A request is answered as soon as the queue
//! is advanced after the kernel has answered; the time of its completion is
//! the time of that. The queue of one thread panics when another drives it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blkmq::{Abort, HardwareQueue};
use io_uring::opcode::{AsyncCancel, AsyncCancel2};
use io_uring::types::CancelBuilder;
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Slots, Status, Time};

use crate::backing::Backing;
use crate::pool::Region;
use crate::request::{Inside, Next, Plan};
use crate::ring::{CANCEL, Refused, Uring};

/// How long an abort waits for the kernel to let a request go.
const ABORT_WAIT: Duration = Duration::from_millis(100);

/// How long a queue that is dropped waits for all of them.
const DROP_WAIT: Duration = Duration::from_secs(10);

/// A dispatch queue of real storage.
pub struct StorageQueue {
    shape: Shape,
    /// For everything, or for what is polled.
    main: Uring,
    /// Of a polled queue, for the rest.
    side: Option<Uring>,
    /// Whether the main ring is polled.
    polled: bool,
    slots: Slots<Inside>,
    /// How many of them the main ring has.
    in_main: usize,
    /// Slots whose answer is there, and how they ended.
    ready: Ring<(u32, Status)>,
    /// Slots to be asked again.
    again: Ring<u32>,
    plan: Plan,
    /// What the registered ranges need to stay.
    regions: Vec<Region>,
    backing: Arc<Backing>,
    last: Time,
}

impl StorageQueue {
    /// A queue for what `shape` says, over rings that are registered with
    /// `backing` and, the first, with `regions`.
    pub(crate) fn new(
        shape: Shape,
        main: Uring,
        side: Option<Uring>,
        plan: Plan,
        regions: Vec<Region>,
        backing: Arc<Backing>,
    ) -> StorageQueue {
        StorageQueue {
            polled: side.is_some(),
            slots: Slots::new(shape.depth),
            ready: Ring::new(shape.depth),
            again: Ring::new(shape.depth),
            in_main: 0,
            last: Time::ZERO,
            shape,
            main,
            side,
            plan,
            regions,
            backing,
        }
    }

    /// What answers a request without asking the kernel.
    #[inline]
    fn check(&self, req: &BlockReq) -> Status {
        let status = self.shape.check(req);
        if !status.is_ok() {
            return status;
        }
        match req.op {
            BlockOp::Flush => Status::SUCCESS,
            BlockOp::Read if self.backing.aligned(req) => Status::SUCCESS,
            BlockOp::Read => Status::INVALID_FIELD,
            _ if self.backing.read_only => Status::READ_ONLY,
            BlockOp::Write if !self.backing.aligned(req) => Status::INVALID_FIELD,
            _ if !self.backing.can_go_on(req.offset | req.len) => Status::INVALID_FIELD,
            _ => Status::SUCCESS,
        }
    }

    /// Takes one request.
    #[inline]
    fn take(&mut self, req: BlockReq) {
        let status = self.check(&req);
        let slot = self.slots.take(Inside::new(req, &mut self.plan, &self.backing));
        if status.is_ok() {
            self.ask(slot);
        } else {
            self.ready.put(|| (slot, status));
        }
    }

    /// Asks the kernel for what slot `slot` needs next.
    #[inline]
    fn ask(&mut self, slot: u32) {
        let inside = &mut self.slots[slot];
        let entry = inside.entry(&self.plan).user_data(slot.into());
        let ring = match &mut self.side {
            Some(side) if !inside.can_be_polled() => side,
            _ => {
                self.in_main += 1;
                &mut self.main
            }
        };
        // SAFETY: the memory is the slot's buffer or the zeros, which stay
        // where they are until the answer: `reap` alone frees a slot, and
        // `drop` waits for all of them, or leaks them.
        let pushed = unsafe { ring.push(&entry) };
        assert!(pushed, "a ring has room for all slots");
    }

    /// Hands to the kernel what is queued, and lets it say what has completed,
    /// if that takes a system call at all.
    #[inline]
    fn enter(&mut self) -> Result<(), Refused> {
        if self.main.wants_enter(self.in_main > 0) {
            self.main.enter()?;
        }
        if let Some(side) = &mut self.side
            && side.wants_enter(false)
        {
            side.enter()?;
        }
        Ok(())
    }

    /// Takes the kernel's answers: to `ready`, or asked again.
    #[inline]
    fn reap(&mut self) {
        let StorageQueue { main, side, slots, ready, again, plan, backing, in_main, .. } = self;
        let mut answer = |key: u64, result: i32| {
            if key == CANCEL {
                return false;
            }
            let slot = key as u32;
            match slots[slot].settle(result, plan, backing) {
                Next::Done(status) => ready.put(|| (slot, status)),
                Next::Again => again.put(|| slot),
            }
            true
        };
        for done in main.completions() {
            *in_main -= usize::from(answer(done.user_data(), done.result()));
        }
        for done in side.iter_mut().flat_map(|side| side.completions()) {
            answer(done.user_data(), done.result());
        }
        while let Some(slot) = self.again.pop() {
            self.ask(slot);
        }
    }

    /// Gives a slot's request out.
    #[inline]
    fn give(&mut self, slot: u32) -> Inside {
        let inside = std::mem::take(&mut self.slots[slot]);
        self.slots.give(slot);
        inside
    }

    /// Sleeps in the kernel, or looks once where it must be polled, until
    /// something may have changed or `timeout` has passed.
    fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), Refused> {
        self.enter()?;
        if self.polled && self.in_main > 0 {
            std::thread::yield_now();
            return Ok(());
        }
        self.side.as_mut().unwrap_or(&mut self.main).sleep(timeout)
    }

    /// Whether the kernel has answered something.
    fn has_completion(&mut self) -> bool {
        let side = |side: &mut Uring| side.has_completion();
        self.main.has_completion() || self.side.as_mut().is_some_and(side)
    }

    /// Whether an answer is there.
    fn has_answer(&mut self) -> bool {
        !self.ready.is_empty() || self.has_completion()
    }

    /// Goes on until `until`, or until `enough`. After that the kernel is still
    /// entered as long as it answers: this thread may have stood still all the
    /// time, with what it asked for not even handed over.
    fn settle(
        &mut self,
        until: Instant,
        enough: impl Fn(&StorageQueue) -> bool,
    ) -> Result<bool, Refused> {
        let mut is_late = false;
        loop {
            let answered = self.has_completion();
            self.reap();
            if enough(self) {
                return Ok(true);
            }
            if is_late && !answered {
                return Ok(false);
            }
            let left = until.saturating_duration_since(Instant::now());
            is_late = left.is_zero();
            self.sleep(Some(left))?;
        }
    }

    /// Where a request with this id is, if it is inside.
    fn find(&self, id: u64) -> Option<u32> {
        let is = |&slot: &u32| self.slots[slot].live && self.slots[slot].id == id;
        (0..self.shape.depth as u32).find(is)
    }

    /// Where a slot is among those that are ready.
    fn place(&self, slot: u32) -> Option<usize> {
        (0..self.ready.len()).find(|&i| self.ready.get(i).is_some_and(|r| r.0 == slot))
    }

    /// Asks the kernel to cancel slot `slot`; what is polled cannot be.
    fn cancel(&mut self, slot: u32) {
        self.slots[slot].cancelled = true;
        let ring = match &mut self.side {
            Some(_) if self.slots[slot].can_be_polled() => return,
            Some(side) => side,
            None => &mut self.main,
        };
        let entry = AsyncCancel::new(slot.into()).build().user_data(CANCEL);
        // SAFETY: the entry names no memory. Without room for it, the request
        // is only waited for.
        let _ = unsafe { ring.push(&entry) };
    }

    /// Looks at how driving the rings went. A ring that takes nothing any more
    /// leads to no device.
    #[inline]
    fn driven(&self, result: Result<(), Refused>) {
        match result {
            Ok(()) => {}
            Err(Refused::Ring) => self.backing.set_gone(),
            Err(Refused::Thread) => {
                panic!("a storage queue of one thread is driven by another: open it with `shared`")
            }
        }
    }

    /// Cancels all, and waits. False when some are still in the kernel.
    fn let_go(&mut self) -> Result<bool, Refused> {
        for slot in 0..self.shape.depth as u32 {
            self.slots[slot].cancelled = true;
        }
        let entry = AsyncCancel2::new(CancelBuilder::any().all()).build().user_data(CANCEL);
        let ring = if self.polled { self.side.as_mut() } else { Some(&mut self.main) };
        if let Some(ring) = ring {
            // SAFETY: the entry names no memory.
            let _ = unsafe { ring.push(&entry) };
        }
        self.settle(Instant::now() + DROP_WAIT, |q| q.ready.len() == q.slots.live())
    }
}

impl Port for StorageQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.last = now;
        if self.backing.is_gone() {
            return;
        }
        for _ in 0..cmds.len().min(self.slots.room()) {
            let Some(req) = cmds.pop() else { break };
            self.take(req);
        }
        let entered = self.enter();
        self.driven(entered);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        (self.slots.live() > 0).then_some(self.last)
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        if self.slots.live() == 0 {
            return;
        }
        let entered = self.enter();
        self.driven(entered);
        self.reap();
        for _ in 0..self.ready.len().min(done.room()) {
            let Some((slot, status)) = self.ready.pop() else { return };
            let Inside { id, op, buffer, .. } = self.give(slot);
            done.put(|| BlockDone { id, op, status, at: to, buffer });
        }
    }
}

impl HardwareQueue for StorageQueue {
    fn depth(&self) -> usize {
        self.shape.depth
    }

    /// Once this is true, what is inside still completes when the kernel gives
    /// it up, unless it is aborted before.
    fn is_gone(&self) -> bool {
        self.backing.is_gone()
    }

    /// Waits a tenth of a second at most. What is given back may have been
    /// carried out all the same.
    fn abort(&mut self, id: u64) -> Abort {
        let Some(slot) = self.find(id) else { return Abort::Lost };
        if self.place(slot).is_none() {
            self.cancel(slot);
            let until = Instant::now() + ABORT_WAIT;
            let settled = self.settle(until, |q| q.place(slot).is_some());
            self.driven(settled.map(drop));
        }
        let Some(place) = self.place(slot) else { return Abort::Lost };
        self.ready.remove(place);
        Abort::Given(self.give(slot).buffer)
    }

    /// Sleeps in the kernel. Returns at once while something is inside that
    /// must be polled, and, without a timeout, when nothing is inside.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        if self.has_answer() {
            return true;
        }
        if self.slots.live() == 0 {
            if let Some(timeout) = timeout {
                std::thread::sleep(timeout);
            }
            return false;
        }
        if self.polled && self.in_main > 0 {
            return true;
        }
        let slept = self.sleep(timeout);
        self.driven(slept);
        self.has_answer()
    }
}

impl Drop for StorageQueue {
    /// Cancels what is inside and waits for it, ten seconds at most. What the
    /// kernel does not let go by then, and all of it when another thread than
    /// the queue's own drops it, is leaked: its memory is never reused.
    fn drop(&mut self) {
        if self.slots.live() == 0 || matches!(self.let_go(), Ok(true)) {
            self.main.release();
            if let Some(side) = &mut self.side {
                side.release();
            }
            return;
        }
        std::mem::forget(std::mem::replace(&mut self.slots, Slots::new(0)));
        std::mem::forget(std::mem::take(&mut self.plan.zeros));
        std::mem::forget(std::mem::take(&mut self.regions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{PipeWriter, Write, pipe};
    use std::os::fd::OwnedFd;

    use crate::request::Ways;
    use crate::ring::{Mode, RingOptions};
    use port::Buffer;

    const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 20, depth: 4 };

    /// A queue over any open file, with the rings of `mode`.
    fn queue_on(fd: OwnedFd, mode: Mode, shared: bool) -> StorageQueue {
        let backing = Arc::new(Backing::pretend(fd, SHAPE.bytes));
        let ring = RingOptions { depth: SHAPE.depth, mode, shared, sqpoll_idle: None };
        let new = |mode| Uring::new(&RingOptions { mode, ..ring }, backing.fd(), &[]).unwrap();
        let side = (mode != Mode::Interrupt).then(|| new(Mode::Interrupt));
        let registered = Box::new([]);
        let plan = Plan { registered, zeros: Buffer::zeroed(4096).unwrap(), ways: Ways::new() };
        StorageQueue::new(SHAPE, new(mode), side, plan, Vec::new(), backing.clone())
    }

    /// A queue whose reads wait for somebody to write into a pipe.
    fn slow(shared: bool) -> (StorageQueue, PipeWriter) {
        let (reader, writer) = pipe().unwrap();
        (queue_on(reader.into(), Mode::Interrupt, shared), writer)
    }

    fn request(id: u64, op: BlockOp, len: u64) -> BlockReq {
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let buffer = Buffer::zeroed(if data { len as usize } else { 0 }).unwrap();
        BlockReq { id, op, fua: false, offset: 0, len, buffer }
    }

    fn submit(queue: &mut StorageQueue, requests: impl IntoIterator<Item = BlockReq>) -> usize {
        let mut cmds = Ring::new(64);
        requests.into_iter().for_each(|r| cmds.put(|| r));
        queue.submit(Time(1), &mut cmds);
        cmds.len()
    }

    fn reads(ids: std::ops::Range<u64>) -> impl Iterator<Item = BlockReq> {
        ids.map(|id| request(id, BlockOp::Read, 4096))
    }

    fn advance(queue: &mut StorageQueue, room: usize) -> Vec<BlockDone> {
        let mut done = Ring::new(room);
        queue.advance(Time(2), &mut done);
        done.drain().collect()
    }

    /// It is not waited for that long but where something hangs.
    const LATEST: Duration = Duration::from_secs(120);
    const SOON: Option<Duration> = Some(LATEST);

    #[test]
    fn an_aborted_read_gives_its_buffer_and_never_completes() {
        for shared in [false, true] {
            let (mut queue, mut writer) = slow(shared);
            submit(&mut queue, reads(0..3));
            let Abort::Given(buffer) = queue.abort(1) else { panic!("a pipe can be cancelled") };
            assert_eq!(buffer.len(), 4096);
            assert!(matches!(queue.abort(1), Abort::Lost), "it is not inside any more");
            assert_eq!(advance(&mut queue, 8).len(), 0);
            writer.write_all(&[7; 8192]).unwrap();
            let mut ids = Vec::new();
            while queue.next_event().is_some() {
                assert!(queue.wait(SOON));
                for done in advance(&mut queue, 8) {
                    assert_eq!(
                        (done.status, done.buffer.bytes()),
                        (Status::SUCCESS, &[7; 4096][..])
                    );
                    ids.push(done.id);
                }
            }
            ids.sort_unstable();
            assert_eq!(ids, [0, 2]);
        }
    }

    #[test]
    fn what_has_completed_can_still_be_aborted() {
        let (mut queue, mut writer) = slow(false);
        submit(&mut queue, reads(5..7));
        writer.write_all(&[1; 8192]).unwrap();
        assert!(queue.wait(SOON));
        // One comes out; of the other, the answer is there but not given.
        let mut out = Vec::new();
        while out.is_empty() {
            out = advance(&mut queue, 1);
        }
        let other = if out[0].id == 5 { 6 } else { 5 };
        assert!(matches!(queue.abort(other), Abort::Given(_)));
        assert_eq!(queue.next_event(), None);
    }

    #[test]
    fn who_comes_late_still_looks_once() {
        let (mut queue, _writer) = slow(false);
        submit(&mut queue, reads(0..2));
        queue.cancel(1);
        assert_eq!(queue.settle(Instant::now(), |q| q.place(1).is_some()), Ok(true));
        assert_eq!(queue.settle(Instant::now(), |q| q.place(0).is_some()), Ok(false));
    }

    #[test]
    fn what_is_inside_is_cancelled_rather_than_waited_for() {
        let (mut queue, _writer) = slow(false);
        submit(&mut queue, reads(0..4));
        assert_eq!(queue.let_go(), Ok(true));
    }

    #[test]
    fn dropping_a_queue_waits_for_what_is_inside() {
        let (mut queue, mut writer) = slow(false);
        submit(&mut queue, reads(0..4));
        drop(queue);
        // Nobody holds the reading end, so nobody reads into the buffers.
        assert!(writer.write_all(&[1; 4096]).is_err());
    }

    #[test]
    fn dropping_a_queue_elsewhere_leaks_rather_than_frees() {
        let (mut queue, mut writer) = slow(false);
        submit(&mut queue, reads(0..1));
        let at = queue.slots[0].buffer.bytes().as_ptr();
        std::thread::spawn(move || drop(queue)).join().unwrap();
        let _ = writer.write_all(&[9; 4096]);
        let fresh = Buffer::zeroed(4096).unwrap();
        assert_ne!(fresh.bytes().as_ptr(), at, "its memory is not used again");
        assert_eq!(fresh.bytes(), [0; 4096]);
    }

    #[test]
    fn a_queue_of_one_thread_says_when_another_drives_it() {
        let (mut queue, _writer) = slow(false);
        submit(&mut queue, reads(0..1));
        let elsewhere = std::thread::spawn(move || {
            queue.wait(SOON);
        });
        let said = elsewhere.join().unwrap_err();
        assert!(said.downcast_ref::<&str>().unwrap().contains("`shared`"));
    }

    #[test]
    fn a_shared_queue_is_driven_by_threads_in_turn() {
        let (mut queue, mut writer) = slow(true);
        for round in 0..20 {
            submit(&mut queue, reads(round..round + 1));
            writer.write_all(&[round as u8; 4096]).unwrap();
            queue = std::thread::spawn(move || {
                assert!(queue.wait(SOON));
                let done = advance(&mut queue, 1).pop().unwrap();
                assert_eq!((done.id, done.buffer.bytes()[17]), (round, round as u8));
                queue
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn waiting_ends_after_its_timeout() {
        let (mut queue, _writer) = slow(false);
        assert!(!queue.wait(None), "with nothing inside, nothing will come");
        assert!(!queue.wait(Some(Duration::from_millis(1))));
        submit(&mut queue, reads(0..1));
        let start = Instant::now();
        assert!(!queue.wait(Some(Duration::from_millis(20))));
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(queue.next_event(), Some(Time(1)));
    }

    #[test]
    fn short_reads_are_continued() {
        let (mut queue, mut writer) = slow(false);
        submit(&mut queue, [request(0, BlockOp::Read, 8192)]);
        for part in [1000, 3000, 4192] {
            assert!(advance(&mut queue, 1).is_empty());
            writer.write_all(&vec![(part / 1000) as u8; part]).unwrap();
            assert!(queue.wait(SOON));
        }
        let done = advance(&mut queue, 1).pop().unwrap();
        assert_eq!(done.status, Status::SUCCESS);
        let at = |i: usize| done.buffer.bytes()[i];
        assert_eq!([at(0), at(999), at(1000), at(3999), at(4000), at(8191)], [1, 1, 3, 3, 4, 4]);
    }

    #[test]
    fn an_end_inside_a_request_is_an_error() {
        let (mut queue, mut writer) = slow(false);
        submit(&mut queue, [request(0, BlockOp::Read, 8192)]);
        writer.write_all(&[1; 5000]).unwrap();
        drop(writer);
        let mut done = Vec::new();
        while done.is_empty() {
            assert!(queue.wait(SOON));
            done = advance(&mut queue, 1);
        }
        assert_eq!((done[0].status, done[0].buffer.len()), (Status::UNRECOVERED_READ, 8192));
    }

    #[test]
    fn no_more_than_the_depth_goes_in() {
        let (mut queue, _writer) = slow(false);
        assert_eq!(submit(&mut queue, reads(0..7)), 3);
        assert_eq!(submit(&mut queue, reads(7..8)), 1);
    }

    #[test]
    fn what_answers_that_it_went_away_is_gone() {
        let (mut queue, _writer) = slow(false);
        submit(&mut queue, reads(0..2));
        let StorageQueue { slots, plan, backing, .. } = &mut queue;
        let next = slots[0].settle(-rustix::io::Errno::NODEV.raw_os_error(), plan, backing);
        assert_eq!(next, Next::Done(Status::ABORTED));
        assert!(queue.is_gone());
        assert_eq!(submit(&mut queue, reads(2..3)), 1, "nothing is taken any more");
        assert!(matches!(queue.abort(1), Abort::Given(_)));
    }

    /// A file system takes requests to be polled even where its device
    /// interrupts, so the two rings of a polled queue are tried on a file.
    #[test]
    fn a_polled_queue_does_what_cannot_be_polled_too() {
        polled(Mode::Poll);
        let pipe = pipe().unwrap().0.into();
        let hybrid = RingOptions { depth: 1, mode: Mode::Hybrid, shared: false, sqpoll_idle: None };
        match Uring::new(&hybrid, &pipe, &[]) {
            Ok(_) => polled(Mode::Hybrid),
            Err(e) => println!("skipped: {e}"),
        }
    }

    fn polled(mode: Mode) {
        use std::os::unix::fs::OpenOptionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        File::create(&path).unwrap().set_len(SHAPE.bytes).unwrap();
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let open = File::options().read(true).write(true).custom_flags(direct).open(&path);
        let Ok(file) = open else { return println!("skipped: no direct access here") };
        let mut queue = queue_on(file.into(), mode, false);
        let finish = |queue: &mut StorageQueue, want: usize| {
            let (mut all, start) = (Vec::new(), Instant::now());
            while all.len() < want && start.elapsed() < LATEST {
                queue.wait(SOON);
                all.extend(advance(queue, 8));
            }
            all
        };
        let mut write = request(0, BlockOp::Write, 8192);
        write.buffer.bytes_mut().fill(5);
        submit(&mut queue, [write]);
        let done = finish(&mut queue, 1);
        if done[0].status == Status::INVALID_OPCODE {
            return println!("skipped: this file system refuses requests to be polled");
        }
        assert_eq!(done[0].status, Status::SUCCESS);
        let trim = BlockReq { fua: true, ..request(2, BlockOp::Trim, 4096) };
        submit(&mut queue, [request(1, BlockOp::Flush, 0), trim]);
        assert!(finish(&mut queue, 2).iter().all(|d| d.status.is_ok()));
        submit(&mut queue, [request(3, BlockOp::Read, 8192)]);
        let done = finish(&mut queue, 1);
        let bytes = done[0].buffer.bytes();
        assert_eq!((bytes[0], bytes[4095], bytes[4096], bytes[8191]), (0, 0, 5, 5));
    }
}
