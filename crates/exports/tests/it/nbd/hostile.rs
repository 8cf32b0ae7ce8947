//! Clients that break the rules harm nobody but themselves.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use exports::Limits;
use exports::nbd::protocol::*;
use exports::nbd::{Client, ListenAddr};
use port::random::Random;

use super::negotiation::{go, greet, works};
use super::ram::Ram;
use super::{Rig, SHAPE, read, serve, serve_with, socket, write};

/// Reads until the server closes.
fn closed(sock: &mut impl Read) {
    let mut sink = Vec::new();
    // A reset is an end, too.
    if let Err(e) = sock.read_to_end(&mut sink) {
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

/// Runs `attack` while a good client is served, and looks at it after.
fn beside_a_good_client(attack: impl FnOnce(&Rig)) -> u64 {
    let (report, ram) = serve(Ram::new(SHAPE, |_| 1_000), |rig| {
        let mut good = rig.client();
        let data = vec![0xab; 100 << 10];
        write(&mut good, 512 << 10, &data);
        attack(rig);
        assert!(read(&mut good, 512 << 10, 100 << 10) == data);
        // And a new one gets in.
        assert!(read(&mut rig.client(), 512 << 10, 100 << 10) == data);
    });
    assert!(ram.data[..512 << 10].iter().all(|&b| b == 0), "nothing else was written");
    report.faults
}

#[test]
fn garbage_at_each_stage_closes_one_connection() {
    let faults = beside_a_good_client(|rig| {
        let mut sock = rig.raw();
        sock.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        closed(&mut sock);
        let mut sock = rig.raw();
        greet(&mut sock, 3);
        sock.write_all(&[0x55; 64]).unwrap();
        closed(&mut sock);
        let mut sock = rig.raw();
        greet(&mut sock, 3);
        sock.write_all(&OptionHeader { option: OPT_GO, len: u32::MAX }.to_bytes()).unwrap();
        closed(&mut sock);
        let mut sock = rig.raw();
        go(&mut sock);
        works(&mut sock);
        sock.write_all(&[0x55; 64]).unwrap();
        closed(&mut sock);
    });
    assert_eq!(faults, 4);
}

/// Who sends all of a long write before reading what is owed is heard, and hears all of
/// it then.
#[test]
fn a_client_that_sends_before_it_reads_is_heard() {
    const HALF: usize = 512 << 10;
    const READS: u64 = 6;
    let faults = beside_a_good_client(|rig| {
        let mut sock = rig.raw();
        sock.set_write_timeout(sock.read_timeout().unwrap()).unwrap();
        go(&mut sock);
        let (offset, len) = (HALF as u64, HALF as u32);
        let request =
            |command, cookie| Request { flags: 0, command, cookie, offset, len }.to_bytes();
        for cookie in 0..READS {
            sock.write_all(&request(CMD_READ, cookie)).unwrap();
        }
        let before = read(&mut rig.client(), offset, len.into());
        for cookie in READS..READS + 2 {
            sock.write_all(&request(CMD_WRITE, cookie)).unwrap();
            sock.write_all(&before).unwrap();
            assert!(read(&mut rig.client(), offset, len.into()) == before);
        }
        let mut owed: Vec<u64> = (0..READS + 2).collect();
        while !owed.is_empty() {
            let mut reply = [0; 16];
            sock.read_exact(&mut reply).unwrap();
            let Reply { error, cookie } = Reply::parse(&reply).unwrap();
            assert_eq!(error, OK);
            let at = owed.iter().position(|&owed| owed == cookie).expect("each comes once");
            owed.remove(at);
            let mut data = vec![0; if cookie < READS { HALF } else { 0 }];
            sock.read_exact(&mut data).unwrap();
            assert!(data.is_empty() || data == before);
        }
        works(&mut sock);
    });
    assert_eq!(faults, 0);
}

#[test]
fn four_gibibytes_are_refused_or_cut_off() {
    let faults = beside_a_good_client(|rig| {
        let request = |command| Request { flags: 0, command, cookie: 1, offset: 0, len: u32::MAX };
        let mut sock = rig.raw();
        go(&mut sock);
        for command in [CMD_READ, CMD_TRIM, CMD_WRITE_ZEROES, 99] {
            sock.write_all(&request(command).to_bytes()).unwrap();
            let mut reply = [0; 16];
            sock.read_exact(&mut reply).unwrap();
            assert_eq!(Reply::parse(&reply), Some(Reply { error: EINVAL, cookie: 1 }));
        }
        works(&mut sock);
        sock.write_all(&request(CMD_WRITE).to_bytes()).unwrap();
        closed(&mut sock);
    });
    assert_eq!(faults, 1);
}

#[test]
fn a_write_that_is_cut_off_is_not_done() {
    let faults = beside_a_good_client(|rig| {
        let before = rig.probe.taken.load(Ordering::SeqCst);
        for sent in [0, 1, 4096, 70_000, (300 << 10) - 1] {
            let mut sock = rig.raw();
            go(&mut sock);
            let request =
                Request { flags: 0, command: CMD_WRITE, cookie: 1, offset: 0, len: 300 << 10 };
            sock.write_all(&request.to_bytes()).unwrap();
            sock.write_all(&vec![0xff; sent]).unwrap();
            sock.shutdown(std::net::Shutdown::Write).unwrap();
            closed(&mut sock);
        }
        assert_eq!(rig.probe.taken.load(Ordering::SeqCst), before);
    });
    assert_eq!(faults, 0);
}

#[test]
fn leaving_with_requests_in_flight_is_survived() {
    beside_a_good_client(|rig| {
        for _ in 0..20 {
            let mut sock = rig.raw();
            go(&mut sock);
            let request =
                Request { flags: 0, command: CMD_READ, cookie: 1, offset: 0, len: 48 << 10 };
            sock.write_all(&request.to_bytes().repeat(100)).unwrap();
        }
    });
}

#[test]
fn noise_after_a_good_start_is_survived() {
    let mut dice = Random::new(7, 0);
    beside_a_good_client(|rig| {
        for _ in 0..60 {
            let mut sock = rig.raw();
            let stage = dice.below(3);
            if stage == 1 {
                greet(&mut sock, 3);
            } else if stage == 2 {
                go(&mut sock);
            }
            let noise: Vec<u8> = (0..dice.below(400)).map(|_| dice.below(256) as u8).collect();
            // The server may have closed already.
            let _ = sock.write_all(&noise);
            let _ = sock.shutdown(std::net::Shutdown::Write);
            closed(&mut sock);
        }
    });
}

#[test]
fn one_connection_too_many_is_turned_away() {
    let limits = Limits { clients: 5, ..Limits::default() };
    let (_dir, path) = socket();
    let addr = ListenAddr::Unix(path);
    let (report, _) = serve_with(&addr, limits, Ram::new(SHAPE, |_| 0), |rig| {
        let mut clients: Vec<Client> = (0..5).map(|_| rig.client()).collect();
        assert!(Client::connect(&rig.addr).is_err());
        for c in &mut clients {
            assert_eq!(read(c, 0, 512), [0; 512]);
        }
        drop(clients.pop());
        // Its place is free as soon as its thread has noticed.
        let again = (0..10_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Client::connect(&rig.addr).ok()
        });
        assert_eq!(read(&mut again.unwrap(), 0, 512), [0; 512]);
    });
    assert!(report.refused >= 1);
}
