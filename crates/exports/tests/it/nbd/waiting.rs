//! Many requests in flight, many clients, drives that refuse and drives that
//! take long.

use std::sync::atomic::Ordering;

use exports::SharedDrive;
use exports::nbd::protocol::OK;
use exports::nbd::{Client, Export, Exports, ServeError, Server, StopHandle};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Time};

use super::ram::{BAD, Ram};
use super::{SHAPE, ask, read, serve, socket, write};

/// Sends `n` reads of 4 KiB at once; gives the order in which they ended.
fn reads(c: &mut Client, n: u64) -> Vec<u64> {
    for i in 0..n {
        // Past the address that cannot be read.
        c.submit(BlockOp::Read, BAD + 4096 + i % 128 * 4096, 4096, false, i, &[]).unwrap();
    }
    c.flush_sends().unwrap();
    let mut order = Vec::new();
    while c.outstanding() > 0 {
        let each = &mut |cookie: u64, error: u32, data: &[u8]| {
            assert_eq!((error, data.len()), (OK, 4096));
            assert!(data.iter().all(|&b| b == (cookie % 128) as u8), "the data of {cookie}");
            order.push(cookie);
        };
        c.recv(each).unwrap();
    }
    order
}

fn fill(c: &mut Client) {
    for i in 0..128 {
        write(c, BAD + 4096 + i * 4096, &[i as u8; 4096]);
    }
}

#[test]
fn replies_come_in_the_order_of_the_drive() {
    // The later the address, the sooner the end.
    let latency = |r: &BlockReq| match r.op {
        BlockOp::Read => (SHAPE.bytes - r.offset) * 50,
        _ => 0,
    };
    let mut ram = Ram::new(SHAPE, latency);
    ram.gather = 64;
    serve(ram, |rig| {
        let mut c = rig.client();
        fill(&mut c);
        let order = reads(&mut c, 64);
        assert_eq!(order, (0..64).rev().collect::<Vec<_>>());
    });
}

#[test]
fn a_drive_that_refuses_gets_everything_in_the_end() {
    for latency in [(|_| 0) as fn(&BlockReq) -> u64, |_| 3_000, |r| r.offset % 5 * 100_000] {
        let narrow = Shape { depth: 3, ..SHAPE };
        serve(Ram::new(narrow, latency), |rig| {
            std::thread::scope(|scope| {
                fill(&mut rig.client());
                for _ in 0..4 {
                    scope.spawn(|| {
                        let mut order = reads(&mut rig.client(), 700);
                        order.sort();
                        assert_eq!(order, (0..700).collect::<Vec<_>>());
                    });
                }
            });
        });
    }
}

#[test]
fn full_sockets_both_ways_do_not_lock_up() {
    let big = Shape { bytes: 4 << 20, ..SHAPE };
    serve(Ram::new(big, |_| 0), |rig| {
        let mut c = rig.client();
        let data = vec![3; 200 << 10];
        let len = data.len() as u64;
        for i in 0..300 {
            let (op, data) =
                if i % 2 == 0 { (BlockOp::Read, &[][..]) } else { (BlockOp::Write, &data[..]) };
            c.submit(op, 1 << 20, len, false, i, data).unwrap();
        }
        c.flush_sends().unwrap();
        let mut n = 0;
        while c.outstanding() > 0 {
            n += c.recv(&mut |_, error, _| assert_eq!(error, OK)).unwrap();
        }
        assert_eq!(n, 300);
        assert_eq!(read(&mut c, 1 << 20, len), data);
    });
}

#[test]
fn a_client_that_does_not_read_its_replies_holds_nobody_up() {
    serve(Ram::new(SHAPE, |_| 2_000), |rig| {
        let mut lazy = rig.client();
        for i in 0..200 {
            lazy.submit(BlockOp::Read, 512 << 10, 256 << 10, false, i, &[]).unwrap();
        }
        lazy.flush_sends().unwrap();
        let mut c = rig.client();
        fill(&mut c);
        for _ in 0..20 {
            assert_eq!(reads(&mut c, 64).len(), 64);
        }
        assert_eq!(lazy.outstanding(), 200);
    });
}

#[test]
fn stopping_answers_what_came_and_flushes() {
    let slow = |r: &BlockReq| if r.op == BlockOp::Write { 30_000_000 } else { 0 };
    let mut client = None;
    let (_, ram) = serve(Ram::new(SHAPE, slow), |rig| {
        let mut c = rig.client();
        for i in 0..8 {
            c.submit(BlockOp::Write, i * 4096, 4096, false, i, &[5; 4096]).unwrap();
        }
        c.flush_sends().unwrap();
        while rig.probe.taken.load(Ordering::SeqCst) < 8 {
            std::thread::yield_now();
        }
        client = Some(c);
    });
    let mut c = client.unwrap();
    let mut answered = 0;
    while answered < 8 {
        answered += c.recv(&mut |_, error, _| assert_eq!(error, OK)).unwrap();
    }
    assert_eq!(ram.data[..8 * 4096], [5; 8 * 4096]);
    assert_eq!(ram.probe.dirty.load(Ordering::SeqCst), 0);
}

/// Panics at the first write.
struct Broken(Ram);

impl Port for Broken {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        assert!(cmds.front().is_none_or(|c| c.op != BlockOp::Write), "broken on purpose");
        self.0.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.0.advance(to, done);
    }
}

#[test]
fn a_drive_that_panics_ends_the_server_with_an_error() {
    let (_dir, path) = socket();
    let addr = exports::nbd::ListenAddr::Unix(path);
    let server = Server::bind(&addr).unwrap();
    let drive = SharedDrive::new(Broken(Ram::new(SHAPE, |_| 0)));
    let (export, stop) = (Exports::new(Export::new(SHAPE).unwrap()), StopHandle::new().unwrap());
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.run(&export, &drive, &stop));
        let (mut a, mut b) = (Client::connect(&addr).unwrap(), Client::connect(&addr).unwrap());
        assert_eq!(ask(&mut b, BlockOp::Flush, 0, 0, &[]).0, OK);
        a.submit(BlockOp::Write, 0, 512, false, 0, &[0; 512]).unwrap();
        a.flush_sends().unwrap();
        assert!(a.recv(&mut |_, _, _| {}).is_err());
        assert!(matches!(served.join().unwrap(), Err(ServeError::Drive(_))));
    });
    assert!(drive.into_port().is_err());
}
