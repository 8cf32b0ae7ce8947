use super::*;
use std::fs::File;
use std::io::{PipeWriter, Write, pipe};
use std::os::fd::OwnedFd;

use crate::aio::Aio;
use crate::request::Ways;
use crate::ring::{Mode, RingOptions, Uring};
use port::Buffer;

const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 20, depth: 4 };

/// A queue over any open file, with the rings of `mode`.
fn queue_on(fd: OwnedFd, mode: Mode, shared: bool) -> StorageQueue {
    let backing = Arc::new(Backing::pretend(fd, SHAPE.bytes));
    let ring = RingOptions { depth: SHAPE.depth, mode, shared, sqpoll_idle: None };
    let new =
        |mode| Gate::Uring(Uring::new(&RingOptions { mode, ..ring }, backing.fd(), &[]).unwrap());
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
    BlockReq::new(id, op, 0, len, buffer)
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

/// Looks until something is there.
fn advance_until_some(queue: &mut StorageQueue, room: usize) -> Vec<BlockDone> {
    let end = Instant::now() + LATEST;
    loop {
        let done = advance(queue, room);
        if !done.is_empty() {
            return done;
        }
        assert!(Instant::now() < end, "nothing comes back");
    }
}

/// It is not waited for that long but where something hangs.
const LATEST: Duration = Duration::from_secs(120);
const SOON: Option<Duration> = Some(LATEST);

#[test]
fn an_aborted_read_completes_when_it_is_let_go() {
    for shared in [false, true] {
        let (mut queue, mut writer) = slow(shared);
        submit(&mut queue, reads(0..3));
        assert!(matches!(queue.abort(1), Abort::Working), "nobody waits for the kernel");
        let mut done = advance_until_some(&mut queue, 8);
        let one = done.pop().unwrap();
        assert_eq!((one.id, one.status, one.buffer.len()), (1, Status::ABORTED_BY_HOST, 4096));
        assert!(done.is_empty());
        assert!(matches!(queue.abort(1), Abort::Lost), "it is not inside any more");
        writer.write_all(&[7; 8192]).unwrap();
        let mut ids = Vec::new();
        while queue.next_event().is_some() {
            assert!(queue.wait(SOON));
            for done in advance(&mut queue, 8) {
                assert_eq!((done.status, done.buffer.bytes()), (Status::SUCCESS, &[7; 4096][..]));
                ids.push(done.id);
            }
        }
        ids.sort_unstable();
        assert_eq!(ids, [0, 2]);
    }
}

/// A device of one queue.
struct One(StorageQueue);

impl blkmq::Driver for One {
    type Queue = StorageQueue;

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn queues(&self) -> [usize; 3] {
        [1, 0, 0]
    }

    fn open(self) -> Vec<StorageQueue> {
        vec![self.0]
    }
}

/// The kernel answers what it has, however long that takes: it is waited for,
/// and the device goes on.
#[test]
fn what_the_kernel_does_not_let_go_is_waited_for() {
    let (mut queue, mut writer) = slow(false);
    // As one whose requests are polled, which cannot be cancelled.
    let (backing, mode) = (queue.backing.clone(), Mode::Interrupt);
    let ring = RingOptions { depth: SHAPE.depth, mode, shared: false, sqpoll_idle: None };
    queue.side = Some(Gate::Uring(Uring::new(&ring, backing.fd(), &[]).unwrap()));
    let config = blkmq::Config { timeout: 100, ..blkmq::Config::new(one_core()) };
    let (mut contexts, monitor) = blkmq::build(&config, One(queue)).unwrap();
    let (context, mut cmds, mut done) = (&mut contexts[0], Ring::new(1), Ring::new(1));
    for (id, start) in [(0, 0), (1, 10_000)] {
        reads(id..id + 1).for_each(|read| cmds.put(|| read));
        context.submit(Time(start), &mut cmds);
        for late in [101, 202, 303] {
            context.advance(Time(start + late), &mut done);
            assert!(done.is_empty(), "{:?}", done.pop());
        }
        writer.write_all(&[7; 4096]).unwrap();
        let end = Instant::now() + LATEST;
        while done.is_empty() && Instant::now() < end {
            context.advance(Time(start + 304), &mut done);
        }
        let one = done.pop().expect("it comes back");
        assert_eq!((one.id, one.status, one.buffer.bytes()[9]), (id, Status::SUCCESS, 7));
    }
    assert_eq!(monitor.dispatch()[0].timed_out, 2);
}

fn one_core() -> blkmq::Topology {
    blkmq::Topology::new(1, 1).unwrap()
}

/// A queue of this depth over a ring with room for sixteen.
fn cramped(depth: usize) -> (StorageQueue, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    let backing = Arc::new(Backing::pretend(reader.into(), SHAPE.bytes));
    let mode = Mode::Interrupt;
    let options = RingOptions { depth: 1, mode, shared: false, sqpoll_idle: None };
    let ring = Uring::new(&options, backing.fd(), &[]).unwrap();
    let zeros = Buffer::zeroed(4096).unwrap();
    let plan = Plan { registered: Box::new([]), zeros, ways: Ways::new() };
    let shape = Shape { depth, ..SHAPE };
    (StorageQueue::new(shape, Gate::Uring(ring), None, plan, Vec::new(), backing.clone()), writer)
}

#[test]
fn a_ring_without_room_is_waited_for() {
    let (mut queue, mut writer) = cramped(64);
    assert_eq!(submit(&mut queue, reads(0..60)), 0);
    assert!(!queue.again.is_empty(), "not all found room");
    let writes = std::thread::spawn(move || writer.write_all(&vec![7; 60 * 4096]));
    let mut ids = Vec::new();
    while queue.next_event().is_some() {
        assert!(queue.wait(SOON));
        for one in advance(&mut queue, 8) {
            assert_eq!((one.status, one.buffer.bytes()), (Status::SUCCESS, &[7; 4096][..]));
            ids.push(one.id);
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..60).collect::<Vec<_>>());
    writes.join().unwrap().unwrap();
}

#[test]
fn what_is_asked_back_comes_back_also_without_room() {
    let (mut queue, _writer) = cramped(64);
    submit(&mut queue, reads(0..60));
    let (mut given, mut back) = (0, 0);
    for id in 0..60 {
        given += usize::from(matches!(queue.abort(id), Abort::Given(_)));
    }
    while queue.next_event().is_some() {
        let done = advance_until_some(&mut queue, 64);
        assert!(done.iter().all(|one| one.status == Status::ABORTED_BY_HOST), "{done:?}");
        back += done.len();
    }
    assert_eq!(given + back, 60);
    assert!(given > 0 && back >= 16, "{given}, {back}");
}

/// The kernel's thread says what completed before it gives the places back, so
/// a ring that is as deep as its queue may run out of them, which depends on
/// the machine (`a_ring_without_room_is_waited_for` makes sure of it). All come
/// back in any case.
#[test]
fn with_a_submitting_thread_all_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    File::create(&path).unwrap().set_len(SHAPE.bytes).unwrap();
    let shape = Shape { depth: 120, ..SHAPE };
    let backing = Arc::new(Backing::pretend(File::open(&path).unwrap().into(), SHAPE.bytes));
    let sqpoll_idle = Some(Duration::from_millis(2));
    let mode = Mode::Interrupt;
    let options = RingOptions { depth: shape.depth, mode, shared: false, sqpoll_idle };
    let ring = Uring::new(&options, backing.fd(), &[]).unwrap();
    let zeros = Buffer::zeroed(4096).unwrap();
    let plan = Plan { registered: Box::new([]), zeros, ways: Ways::new() };
    let mut queue =
        StorageQueue::new(shape, Gate::Uring(ring), None, plan, Vec::new(), backing.clone());
    let (mut cmds, mut done) = (Ring::new(120), Ring::new(120));
    let (mut back, mut full) = (0, 0);
    reads(0..120).for_each(|read| cmds.put(|| read));
    let mut last = Instant::now();
    while back < 60_000 {
        assert!(last.elapsed() < LATEST, "nothing comes back after {back} reads");
        queue.submit(Time(1), &mut cmds);
        full += usize::from(!queue.again.is_empty());
        queue.advance(Time(2), &mut done);
        for BlockDone { id, op, status, buffer, .. } in done.drain() {
            assert_eq!(status, Status::SUCCESS);
            (back, last) = (back + 1, Instant::now());
            cmds.put(|| BlockReq::new(id, op, 0, 4096, buffer));
        }
    }
    println!("no room {full} times in {back} reads");
}

#[test]
fn what_has_completed_can_still_be_aborted() {
    let (mut queue, mut writer) = slow(false);
    submit(&mut queue, reads(5..7));
    writer.write_all(&[1; 8192]).unwrap();
    assert!(queue.wait(SOON));
    // One comes out; of the other, the answer is there but not given.
    let out = advance_until_some(&mut queue, 1);
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
    assert_eq!(queue.let_go(LATEST), Ok(true));
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

/// Says so where a test's output is not held back. Where `NO_SKIPS` is set, it
/// fails.
fn skipped(why: &str) {
    assert!(std::env::var_os("NO_SKIPS").is_none(), "it cannot run here: {why}");
    let _ = writeln!(std::io::stderr(), "SKIPPED, a polled queue: {why}");
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
        Err(e) => skipped(&e.to_string()),
    }
}

fn polled(mode: Mode) {
    use std::os::unix::fs::OpenOptionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    File::create(&path).unwrap().set_len(SHAPE.bytes).unwrap();
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let open = File::options().read(true).write(true).custom_flags(direct).open(&path);
    let Ok(file) = open else { return skipped("no direct access here") };
    let mut queue = queue_on(file.into(), mode, false);
    let finish = |queue: &mut StorageQueue, want: usize| {
        let (mut all, start) = (Vec::new(), Instant::now());
        while all.len() < want && start.elapsed() < LATEST {
            queue.wait(SOON);
            all.extend(advance(queue, 8));
        }
        assert_eq!(all.len(), want, "nothing comes back");
        all
    };
    let mut write = request(0, BlockOp::Write, 8192);
    write.buffer.bytes_mut().fill(5);
    submit(&mut queue, [write]);
    let done = finish(&mut queue, 1);
    if done[0].status == Status::INVALID_OPCODE {
        return skipped("this file system refuses requests to be polled");
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

/// A queue by the kernel's older asynchronous calls, over any open file.
fn aio_on(fd: OwnedFd) -> StorageQueue {
    let backing = Arc::new(Backing::pretend(fd, SHAPE.bytes));
    let plan =
        Plan { registered: Box::new([]), zeros: Buffer::zeroed(4096).unwrap(), ways: Ways::new() };
    let gate = Gate::Aio(Aio::new(backing.clone(), SHAPE.depth).unwrap());
    StorageQueue::new(SHAPE, gate, None, plan, Vec::new(), backing)
}

/// One that is refused when it is handed over is answered, and those behind it are done.
#[test]
fn what_the_kernel_refuses_keeps_no_other_from_being_asked() {
    // What was opened for writing is not read.
    let file = tempfile::NamedTempFile::new().unwrap();
    let for_writing = File::options().write(true).open(file.path()).unwrap();
    let mut queue = aio_on(for_writing.into());
    assert_eq!(submit(&mut queue, reads(0..4)), 0);
    let mut all = Vec::new();
    while all.len() < 4 {
        all.extend(advance_until_some(&mut queue, 8));
    }
    assert!(all.iter().all(|done| !done.status.is_ok()), "{all:?}");
    let file = tempfile::tempfile().unwrap();
    file.set_len(SHAPE.bytes).unwrap();
    let mut queue = aio_on(file.into());
    submit(&mut queue, reads(0..4));
    let one = queue.abort(2);
    assert!(matches!(one, Abort::Given(_) | Abort::Working), "{one:?}");
    let left = 4 - usize::from(matches!(one, Abort::Given(_)));
    let mut all = Vec::new();
    while all.len() < left {
        all.extend(advance_until_some(&mut queue, 8));
    }
    assert!(all.iter().filter(|done| done.id != 2).all(|done| done.status.is_ok()));
    // What is inside is waited for.
    submit(&mut queue, reads(0..4));
    drop(queue);
}
