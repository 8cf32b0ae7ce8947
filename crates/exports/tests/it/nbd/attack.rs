//! Clients that attack, beside one that works and is timed.
//!
//! The bounds on time are generous, for machines that are slow or busy.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exports::Limits;
use exports::nbd::protocol::*;
use exports::nbd::{Client, ListenAddr};
use port::{BlockOp, Shape, Status};

use super::negotiation::{go, works};
use super::ram::Ram;
use super::{Rig, SHAPE, ask, read, serve_with, socket, write};

/// The longest that a request may take.
const LONGEST: Duration = Duration::from_secs(2);

fn serve(limits: Limits, drive: Ram, test: impl FnOnce(&Rig)) -> exports::nbd::Report {
    let (_dir, path) = socket();
    serve_with(&ListenAddr::Unix(path), limits, drive, test).0
}

/// Runs `attack` beside a client that reads again and again. Gives how many
/// were answered.
fn beside_reads(rig: &Rig, attack: impl FnOnce()) -> u64 {
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let mut client = rig.client();
        scope.spawn({
            let (is_over, count) = (&is_over, &count);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    assert_eq!(read(&mut client, 0, 4096).len(), 4096);
                    assert!(start.elapsed() < LONGEST, "a read took {:?}", start.elapsed());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let end = End(&is_over);
        attack();
        drop(end);
    });
    count.load(Ordering::Relaxed)
}

fn request(command: u16, offset: u64, len: u32) -> [u8; Request::LEN] {
    Request { flags: 0, command, cookie: 1, offset, len }.to_bytes()
}

/// The drive is never given more of long requests at once than stops it for a
/// moment, so others have their turn in between.
#[test]
fn long_trims_let_others_in() {
    let shape = Shape { bytes: 1 << 30, kept: 0, max_bytes: 64 << 10, depth: 64 };
    let ram = Ram::new(shape, |_| 0);
    let probe = ram.probe.clone();
    let report = serve(Limits::default(), ram, |rig| {
        let mut sock = rig.raw();
        go(&mut sock);
        let trims = 200;
        let answered = beside_reads(rig, || {
            for command in [CMD_TRIM, CMD_WRITE_ZEROES] {
                sock.write_all(&request(command, 0, 1 << 30).repeat(trims)).unwrap();
                let mut replies = vec![0; trims * Reply::LEN];
                sock.read_exact(&mut replies).unwrap();
                let good = Reply { error: OK, cookie: 1 }.to_bytes();
                assert!(replies.chunks(Reply::LEN).all(|reply| reply == good));
            }
        });
        assert!(answered >= 10, "{answered} reads were answered");
    });
    assert!(probe.longest.load(Ordering::Relaxed) <= 16 << 20);
    assert_eq!(report.faults, 0);
}

/// Long pipelines of long writes, of many connections, for which there is not
/// memory enough: the drive has few bytes of them at once, so what a reader asks
/// for goes in between. It waits for no memory.
#[test]
fn long_writes_let_others_in() {
    let shape = Shape { bytes: 64 << 20, max_bytes: 1 << 20, depth: 1024, ..SHAPE };
    let ram = Ram::new(shape, |_| 20_000);
    let probe = ram.probe.clone();
    let limits = Limits { clients: 24, memory: 128 << 20, ..Limits::default() };
    let (clients, writes, len) = (16, 40, 2 << 20);
    let report = serve(limits, ram, |rig| {
        let write = [&request(CMD_WRITE, 1 << 20, len)[..], &vec![7; len as usize]].concat();
        let answered = beside_reads(rig, || {
            std::thread::scope(|scope| {
                for _ in 0..clients {
                    scope.spawn(|| {
                        let mut sock = rig.raw();
                        go(&mut sock);
                        let mut replies = sock.try_clone().unwrap();
                        let reader = scope.spawn(move || {
                            let mut all = vec![0; writes * Reply::LEN];
                            replies.read_exact(&mut all).unwrap();
                            let good = Reply { error: OK, cookie: 1 }.to_bytes();
                            assert!(all.chunks(Reply::LEN).all(|reply| reply == good));
                        });
                        (0..writes).for_each(|_| sock.write_all(&write).unwrap());
                        reader.join().unwrap();
                    });
                }
            });
        });
        assert!(answered >= 10, "{answered} reads were answered");
    });
    // Each has a piece; and shares were larger when fewer were there.
    let most = probe.data.load(Ordering::Relaxed);
    assert!(most <= (clients + 1) * (256 << 10) + (16 << 20), "{most} bytes at once");
    assert_eq!((report.faults, report.evicted), (0, 0), "{report:?}");
}

/// Trims that would take the drive minutes hold up neither a stop nor what comes
/// after a client that has gone.
#[test]
fn trims_hold_nobody_up_who_leaves() {
    let shape = Shape { bytes: 1 << 30, kept: 0, max_bytes: 64 << 10, depth: 64 };
    let trims = 250;
    let pieces = trims * (1 << 30) / (16 << 20);
    for stops in [true, false] {
        let ram = Ram::new(shape, |_| 10_000_000);
        let probe = ram.probe.clone();
        let taken = || probe.taken.load(Ordering::SeqCst);
        let mut rest = None;
        serve(Limits::default(), ram, |rig| {
            let mut sock = rig.raw();
            go(&mut sock);
            sock.write_all(&request(CMD_TRIM, 0, 1 << 30).repeat(trims)).unwrap();
            let start = Instant::now();
            while taken() < 2 {
                assert!(start.elapsed() < 30 * LONGEST, "no trim has begun");
            }
            if stops {
                rest = Some(sock);
                return;
            }
            drop(sock);
            let mut before = 0;
            while std::mem::replace(&mut before, taken()) != taken() {
                assert!(start.elapsed() < 30 * LONGEST, "the trims go on");
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        assert!(taken() < pieces / 2, "{} of {pieces} pieces were done", taken());
        if let Some(mut sock) = rest {
            let mut replies = Vec::new();
            sock.read_to_end(&mut replies).unwrap();
            assert_eq!(replies.len(), trims * Reply::LEN, "each is answered");
            let last = Reply { error: ESHUTDOWN, cookie: 1 }.to_bytes();
            assert!(replies.ends_with(&last));
        }
    }
}

/// What waits of a client that is gone is not begun; only what it wrote before it
/// said that it leaves.
#[test]
fn who_is_gone_takes_no_more() {
    let shape = Shape { bytes: 64 << 20, max_bytes: 64 << 10, depth: 1024, ..SHAPE };
    let (len, count) = (64 << 10, 200);
    for (command, says_so) in [(CMD_READ, false), (CMD_READ, true), (CMD_WRITE, true)] {
        let is_wanted = command == CMD_WRITE && says_so;
        let ram = Ram::new(shape, |_| 30_000_000);
        let probe = ram.probe.clone();
        let taken = || probe.taken.load(Ordering::SeqCst);
        serve(Limits::default(), ram, |rig| {
            let mut sock = rig.raw();
            go(&mut sock);
            let mut all = request(command, 1 << 20, len).to_vec();
            all.resize(all.len() + if command == CMD_WRITE { len as usize } else { 0 }, 7);
            sock.write_all(&all.repeat(count)).unwrap();
            if says_so {
                sock.write_all(&request(CMD_DISC, 0, 0)).unwrap();
            }
            let start = Instant::now();
            while taken() == 0 {
                assert!(start.elapsed() < 30 * LONGEST, "nothing has begun");
            }
            // Who closes with replies unread resets the connection, which may take back
            // what the server has not read.
            if is_wanted {
                sock.read_to_end(&mut Vec::new()).unwrap();
            }
        });
        // One is the last flush.
        assert_eq!(taken() == count + 1, is_wanted, "{command}, {says_so}: {}", taken());
    }
}

/// Clients that ask for much and are gone at once: for those that are when their
/// turn comes nothing is read, and no memory is made. When that is nobody can say:
/// it is tried until one was.
#[test]
fn nothing_is_read_for_who_has_asked_and_gone() {
    const CLIENTS: usize = 50;
    let shape = Shape { bytes: 64 << 20, max_bytes: 64 << 10, depth: 1024, ..SHAPE };
    for _ in 0..100 {
        let ram = Ram::new(shape, |_| 0);
        let probe = ram.probe.clone();
        serve(Limits::default(), ram, |rig| {
            for _ in 0..CLIENTS {
                let mut sock = rig.raw();
                go(&mut sock);
                sock.write_all(&request(CMD_READ, 0, 8 << 20)).unwrap();
            }
        });
        // One is the last flush; each that is served begins at least one.
        if probe.taken.load(Ordering::SeqCst) <= CLIENTS {
            return;
        }
    }
    panic!("all is read");
}

/// Those that say nothing, at each stage, give way to those who come; who works
/// stays.
#[test]
fn silent_ones_give_way() {
    let limits = Limits {
        clients: 8,
        greeting: Duration::from_millis(1000),
        idle: Duration::from_secs(3600),
        ..Limits::default()
    };
    let report = serve(limits, Ram::new(SHAPE, |_| 0), |rig| {
        let mut working: Vec<Client> = (0..4).map(|_| rig.client()).collect();
        for c in &mut working {
            write(c, 0, &[7; 512]);
        }
        // Two after the negotiation and two before it, which are closed.
        let mut silent: Vec<UnixStream> = (0..4).map(|_| rig.raw()).collect();
        silent[2..].iter_mut().for_each(go);
        for sock in &mut silent[..2] {
            sock.read_to_end(&mut Vec::new()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1100));
        for _ in 0..4 {
            let mut guest = coming(rig);
            assert_eq!(read(&mut guest, 0, 512), [7; 512]);
            working.push(guest);
        }
        assert!(Client::connect(&rig.addr).is_err(), "nobody is silent");
        for c in &mut working {
            assert_eq!(read(c, 0, 512), [7; 512]);
        }
        drop(silent);
    });
    // One that was closed may be asked to go before it has gone.
    assert!((2..=4).contains(&report.evicted), "{report:?}");
    assert_eq!((report.faults, report.connections), (2, 12), "{report:?}");
}

/// A client that comes when another is to give way: that takes a moment.
fn coming(rig: &Rig) -> Client {
    let start = Instant::now();
    loop {
        match Client::connect(&rig.addr) {
            Ok(client) => return client,
            Err(e) => assert!(start.elapsed() < 10 * LONGEST, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Hundreds of connections, each of which works.
#[test]
fn hundreds_of_connections_are_served() {
    let report = serve(Limits::default(), Ram::new(SHAPE, |_| 1_000), |rig| {
        let mut clients: Vec<Client> = (0..300).map(|_| rig.client()).collect();
        write(&mut clients[0], 0, &[5; 4096]);
        for c in &mut clients {
            c.submit(BlockOp::Read, 0, 4096, false, 1, &[]).unwrap();
            c.flush_sends().unwrap();
        }
        for c in &mut clients {
            c.recv(&mut |_, error, data| assert_eq!((error, data), (OK, &[5; 4096][..]))).unwrap();
        }
    });
    assert_eq!((report.connections, report.refused), (300, 0));
}

/// Clients that hold memory and do not go on are closed for those who need it;
/// small requests go on all the while.
#[test]
fn memory_has_an_end_and_comes_back() {
    let big = Shape { bytes: 64 << 20, ..SHAPE };
    // Room for four of the longest requests beside what connections begin with.
    let limits = Limits { clients: 24, memory: 128 << 20, ..Limits::default() };
    let report = serve(limits, Ram::new(big, |_| 0), |rig| {
        let longest = MAX_REQUEST;
        let mut stalled = Vec::new();
        for i in 0..8 {
            let mut sock = rig.raw();
            go(&mut sock);
            let (command, sent) = if i % 2 == 0 { (CMD_READ, 0) } else { (CMD_WRITE, 1 << 20) };
            sock.write_all(&request(command, 1 << 20, longest)).unwrap();
            // It may have to wait itself.
            sock.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = sock.write_all(&vec![1; sent]);
            stalled.push(sock);
        }
        let answered = beside_reads(rig, || {
            let mut client = rig.client();
            for _ in 0..3 {
                let (error, data) = ask(&mut client, BlockOp::Read, 1 << 20, longest.into(), &[]);
                assert_eq!((error, data.len()), (OK, longest as usize));
            }
        });
        assert!(answered >= 10, "{answered} reads were answered");
        // All of it comes back.
        drop(stalled);
        let mut clients: Vec<Client> = (0..8).map(|_| rig.client()).collect();
        for _ in 0..2 {
            for c in &mut clients {
                let (error, data) = ask(c, BlockOp::Read, 1 << 20, longest.into(), &[]);
                assert_eq!((error, data.len()), (OK, longest as usize));
            }
        }
    });
    assert!(report.evicted >= 1, "{report:?}");
}

/// A drive that takes no writes any more says so to who comes.
#[test]
fn a_read_only_drive_is_told() {
    for (status, error, is_for_good) in [
        (Status::READ_ONLY, EPERM, true),
        (Status::DISK_FULL, ENOSPC, true),
        // A tenant has no room, or rules refuse something to it.
        (Status::CAPACITY_EXCEEDED, ENOSPC, false),
        (Status::ACCESS_DENIED, EPERM, false),
    ] {
        let mut ram = Ram::new(SHAPE, |_| 0);
        ram.refuses = Some(status);
        serve(Limits::default(), ram, |rig| {
            let mut client = rig.client();
            // What is not on the drive is refused to one client only.
            assert_eq!(ask(&mut client, BlockOp::Write, SHAPE.bytes, 512, &[0; 512]).0, ENOSPC);
            assert_eq!(rig.client().flags() & READ_ONLY, 0, "nobody knows yet");
            assert_eq!(ask(&mut client, BlockOp::Write, 0, 512, &[0; 512]).0, error);
            assert_eq!(rig.client().flags() & READ_ONLY != 0, is_for_good, "{status}");
            let mut sock = rig.raw();
            go(&mut sock);
            works(&mut sock);
        });
    }
}
