//! A drive on its own thread: what its hosts can rely on. Nothing here depends
//! on how fast the machine is.

use std::time::Duration;

use crate::common::{cmd, drive, geometry};
use device::hosted::{Coalesce, Hosted, HostedError, HostedOptions, Queue};
use device::{VectorCmd, VectorDone, VectorOp};
use flash::{Ppa, Timing};
use port::random::mix;
use port::{Buffer, Port, Ring, Status, Time};

const PER_CLIENT: u64 = 100_000;

/// Sends reads in random batches, waits or polls, and checks what comes back.
fn client(mut queue: Queue<VectorCmd, VectorDone>, seed: u64, first: Ppa) -> (u64, u64) {
    let (mut cmds, mut done) = (Ring::new(32), Ring::new(16));
    let mut buffers = Buffer::carve(64, 8).unwrap();
    let mut seen = vec![false; PER_CLIENT as usize];
    let (mut sent, mut back, mut random, mut waits) = (0, 0, seed, 0);
    while back < PER_CLIENT {
        random = mix(random + 0x9e37_79b9);
        let most = 1 + random % 32;
        while (cmds.len() as u64) < most && sent < PER_CLIENT && !buffers.is_empty() {
            let at = Ppa(first.0 + sent % 12);
            let mut read = cmd(sent, VectorOp::Read, at, 1);
            read.buffer = buffers.pop().unwrap();
            read.buffer.bytes_mut().fill(0xee);
            cmds.push(read).unwrap();
            sent += 1;
        }
        queue.submit(&mut cmds);
        if random.is_multiple_of(3) && queue.outside() > 0 {
            assert!(queue.wait(None));
            waits += 1;
        }
        queue.poll(&mut done);
        for d in done.drain() {
            assert_eq!(d.status, Status::SUCCESS);
            assert_eq!(d.buffer.bytes(), (first.0 + d.cookie % 12).to_le_bytes());
            assert!(!std::mem::replace(&mut seen[d.cookie as usize], true), "once");
            buffers.push(d.buffer);
            back += 1;
        }
    }
    assert!(seen.into_iter().all(|s| s));
    assert_eq!((queue.outside(), buffers.len()), (0, 64));
    (back, waits)
}

/// A drive whose chunks 0 hold, in each block, the block's address.
fn filled(timing: &Timing) -> (device::Device<flash::RamMedium>, Vec<Ppa>) {
    let g = geometry(1, 2, 1);
    let mut first = drive(&g, &Timing::default(), 8);
    let starts: Vec<Ppa> = (0..2).map(|pu| g.ppa(0, pu, 0, 0)).collect();
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    for start in &starts {
        let mut write = cmd(0, VectorOp::Write, *start, 12);
        write.buffer = Buffer::zeroed(96).unwrap();
        for (i, bytes) in write.buffer.bytes_mut().chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&(start.0 + i as u64).to_le_bytes());
        }
        cmds.push(write).unwrap();
        first.submit(Time::ZERO, &mut cmds);
        first.advance(Time::ZERO, &mut done);
        assert!(done.pop().unwrap().status.is_ok());
    }
    let chunks = first.chunks().to_vec();
    (device::Device::restore(&g, timing, first.cut(), &chunks).unwrap(), starts)
}

fn stress(timing: &Timing, options: HostedOptions) {
    let (port, starts) = filled(timing);
    let (hosted, queues) = Hosted::start(port, options).unwrap();
    let clients: Vec<_> = queues
        .into_iter()
        .zip(starts)
        .enumerate()
        .map(|(i, (queue, start))| std::thread::spawn(move || client(queue, i as u64, start)))
        .collect();
    for c in clients {
        assert_eq!(c.join().unwrap().0, PER_CLIENT);
    }
    let port = hosted.stop();
    assert_eq!(port.counters().blocks_read, 2 * PER_CLIENT);
}

#[test]
fn two_clients_lose_nothing() {
    stress(&Timing::default(), HostedOptions { queues: 2, depth: 24, ..HostedOptions::default() });
}

#[test]
fn two_clients_lose_nothing_when_the_thread_sleeps_and_interrupts_are_gathered() {
    let timing = Timing { read: vec![200], ..Timing::default() };
    let coalesce = Coalesce { count: 4, time: 3000 };
    stress(&timing, HostedOptions { queues: 2, depth: 24, coalesce, linger: 0, core: None });
}

/// The drive would take an hour for it.
#[test]
fn a_drive_that_is_left_comes_back_with_what_is_inside() {
    let (port, starts) = filled(&Timing { read: vec![3_600_000_000_000], ..Timing::default() });
    let (hosted, mut queues) = Hosted::start(port, HostedOptions::default()).unwrap();
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(2));
    let mut read = cmd(7, VectorOp::Read, starts[0], 1);
    read.buffer = Buffer::zeroed(8).unwrap();
    cmds.push(read).unwrap();
    // Of the other unit, and in no time: then the read has gone in, too.
    cmds.push(cmd(8, VectorOp::Reset, starts[1], 1)).unwrap();
    assert_eq!(queues[0].submit(&mut cmds), 2);
    assert!(queues[0].wait(None));
    queues[0].poll(&mut done);
    assert_eq!(done.pop().unwrap().cookie, 8);
    let mut port = hosted.leave();
    assert!(queues[0].is_closed());
    while let Some(at) = port.next_event() {
        port.advance(at, &mut done);
    }
    assert!(done.pop().is_some(), "it is still inside");
}

#[test]
fn stopping_completes_what_was_taken() {
    let (port, starts) = filled(&Timing { read: vec![1_000_000], ..Timing::default() });
    let (hosted, mut queues) = Hosted::start(port, HostedOptions::default()).unwrap();
    let queue = &mut queues[0];
    let (mut cmds, mut done) = (Ring::new(8), Ring::new(8));
    for i in 0..5 {
        let mut read = cmd(100 + i, VectorOp::Read, starts[0], 1);
        read.buffer = Buffer::zeroed(8).unwrap();
        cmds.push(read).unwrap();
    }
    assert_eq!(queue.submit(&mut cmds), 5);
    let port = hosted.stop();
    assert_eq!(port.counters().reads, 5);
    assert!(queue.is_closed());
    assert_eq!(queue.poll(&mut done), 5);
    assert_eq!(done.drain().map(|d| d.cookie).collect::<Vec<_>>(), [100, 101, 102, 103, 104]);
    cmds.push(cmd(0, VectorOp::Read, starts[0], 1)).unwrap();
    assert_eq!((queue.submit(&mut cmds), cmds.len()), (0, 1), "nobody would answer");
    assert!(!queue.wait(None), "nothing more will come");
}

#[test]
fn an_idle_drive_sleeps_until_it_is_asked() {
    let (port, starts) = filled(&Timing { read: vec![1000], ..Timing::default() });
    let (hosted, mut queues) = Hosted::start(port, HostedOptions::default()).unwrap();
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    for i in 0..3 {
        let before = hosted.counters().sleeps;
        let mut read = cmd(i, VectorOp::Read, starts[0], 1);
        read.buffer = Buffer::zeroed(8).unwrap();
        cmds.push(read).unwrap();
        queues[0].submit(&mut cmds);
        while done.is_empty() {
            queues[0].wait(None);
            queues[0].poll(&mut done);
        }
        done.drain().for_each(drop);
        // It falls asleep some time after; nobody knows how soon it gets a core.
        while hosted.counters().sleeps == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Then nothing wakes it. It may sleep before the read comes, until it
        // is done, after it, and once for nothing when a ring comes late; one
        // that woke up by itself would count many.
        std::thread::sleep(Duration::from_millis(60));
        let sleeps = hosted.counters().sleeps - before;
        assert!(sleeps <= 8, "{sleeps} sleeps: a sleeping thread counts none");
    }
    hosted.stop();
}

#[test]
fn a_wait_ends_at_its_timeout() {
    let (port, _) = filled(&Timing::default());
    let (hosted, mut queues) = Hosted::start(port, HostedOptions::default()).unwrap();
    assert!(!queues[0].wait(Some(Duration::from_millis(1))));
    drop(hosted);
    assert!(queues[0].is_closed());
}

#[test]
fn a_core_that_does_not_exist_is_named() {
    for core in [1023, usize::MAX] {
        let options = HostedOptions { core: Some(core), ..HostedOptions::default() };
        let refused = Hosted::start(filled(&Timing::default()).0, options).err();
        assert!(matches!(refused, Some(HostedError::System { what: "core", .. })));
    }
}

#[test]
fn completions_are_gathered_into_one_interrupt() {
    let (port, starts) = filled(&Timing { read: vec![50_000], ..Timing::default() });
    let coalesce = Coalesce { count: 8, time: 3_600_000_000_000 };
    let options = HostedOptions { coalesce, ..HostedOptions::default() };
    let (hosted, mut queues) = Hosted::start(port, options).unwrap();
    let queue = &mut queues[0];
    let mut cmds = Ring::new(8);
    for i in 0..8 {
        let mut read = cmd(i, VectorOp::Read, starts[0], 1);
        read.buffer = Buffer::zeroed(8).unwrap();
        cmds.push(read).unwrap();
    }
    queue.submit(&mut cmds);
    // Once asleep, the host is woken by the eighth, not before. Were it slow to
    // fall asleep, it would see some sooner and there would be no interrupt.
    let mut done = Ring::new(8);
    assert!(queue.wait(None));
    let first = queue.poll(&mut done);
    let mut waits = 0;
    while done.len() < 8 {
        queue.wait(Some(Duration::from_millis(1)));
        queue.poll(&mut done);
        waits += 1;
        assert!(waits < 60_000, "only {} of 8 completed", done.len());
    }
    let interrupts = hosted.counters().interrupts;
    assert!(interrupts <= 1 && (first == 8 || interrupts == 0), "{interrupts} for {first}");
    hosted.stop();
}

/// A port that takes anything and breaks.
struct Broken(Box<dyn Port<Cmd = VectorCmd, Done = VectorDone> + Send>);

impl Port for Broken {
    type Cmd = VectorCmd;
    type Done = VectorDone;
    fn submit(&mut self, _: Time, _: &mut Ring<VectorCmd>) {
        panic!("the port breaks, as this test wants");
    }
    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }
    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.0.advance(to, done);
    }
}

#[test]
fn a_broken_port_leaves_nobody_waiting() {
    let (port, starts) = filled(&Timing::default());
    let (hosted, mut queues) =
        Hosted::start(Broken(Box::new(port)), HostedOptions::default()).unwrap();
    let mut cmds = Ring::new(1);
    cmds.push(cmd(1, VectorOp::Read, starts[0], 1)).unwrap();
    queues[0].submit(&mut cmds);
    assert!(!queues[0].wait(None));
    assert!(queues[0].is_closed());
    let panic =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hosted.stop().0.next_event()));
    assert!(panic.is_err(), "the panic is passed on");
}

#[test]
fn impossible_options_are_named() {
    for options in [
        HostedOptions { queues: 0, ..HostedOptions::default() },
        HostedOptions { depth: 0, ..HostedOptions::default() },
        HostedOptions { coalesce: Coalesce { count: 0, time: 0 }, ..HostedOptions::default() },
    ] {
        let refused = Hosted::start(filled(&Timing::default()).0, options).err();
        assert!(matches!(refused, Some(HostedError::Range { value: 0, .. })));
    }
}
