//! Options as other clients use them, and sockets that are in the way.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use exports::nbd::protocol::*;
use exports::nbd::{Client, ClientError, ListenAddr, ListenError, Server, Waiter};

use super::ram::Ram;
use super::{SHAPE, serve, socket};

/// Greets, with the given client flags.
pub fn greet(sock: &mut UnixStream, flags: u32) {
    let mut hello = [0; 18];
    sock.read_exact(&mut hello).unwrap();
    assert_eq!(parse_greeting(&hello), Some(FIXED_NEWSTYLE | NO_ZEROES));
    sock.write_all(&flags.to_be_bytes()).unwrap();
}

fn send(sock: &mut UnixStream, option: u32, data: &[u8]) {
    sock.write_all(&OptionHeader { option, len: data.len() as u32 }.to_bytes()).unwrap();
    sock.write_all(data).unwrap();
}

/// The next answer: its kind and data.
fn answer(sock: &mut UnixStream, option: u32) -> (u32, Vec<u8>) {
    let mut head = [0; OptionReply::LEN];
    sock.read_exact(&mut head).unwrap();
    let reply = OptionReply::parse(&head).unwrap();
    assert_eq!(reply.option, option);
    let mut data = vec![0; reply.len as usize];
    sock.read_exact(&mut data).unwrap();
    (reply.kind, data)
}

/// Reads one sector, to show that transmission has begun.
pub fn works(sock: &mut UnixStream) {
    let request = Request { flags: 0, command: CMD_READ, cookie: 42, offset: 0, len: 512 };
    sock.write_all(&request.to_bytes()).unwrap();
    let mut reply = [1; 16 + 512];
    sock.read_exact(&mut reply).unwrap();
    assert_eq!(Reply::parse(reply.first_chunk().unwrap()), Some(Reply { error: OK, cookie: 42 }));
    assert_eq!(reply[16..], [0; 512]);
}

/// Enters transmission with `OPT_GO`.
pub fn go(sock: &mut UnixStream) {
    greet(sock, 3);
    let mut data = Vec::new();
    InfoRequest::write(b"", &[], &mut data);
    send(sock, OPT_GO, &data);
    while answer(sock, OPT_GO).0 != REP_ACK {}
}

#[test]
fn each_option_is_answered() {
    serve(Ram::new(SHAPE, |_| 0), |rig| {
        let sock = &mut rig.raw();
        greet(sock, 3);
        send(sock, OPT_LIST, b"");
        assert_eq!(answer(sock, OPT_LIST), (REP_SERVER, b"\0\0\0\x06ssdkit".to_vec()));
        assert_eq!(answer(sock, OPT_LIST), (REP_ACK, vec![]));
        for unknown in [5, 8, 9, 10, 1234] {
            send(sock, unknown, b"anything");
            assert_eq!(answer(sock, unknown).0, REP_ERR_UNSUP);
        }
        send(sock, 1234, &[0; 20_000]);
        assert_eq!(answer(sock, 1234).0, REP_ERR_TOO_BIG);
        send(sock, OPT_INFO, b"\0\0\0\x05short");
        assert_eq!(answer(sock, OPT_INFO).0, REP_ERR_INVALID);
        let mut data = Vec::new();
        InfoRequest::write(b"other", &[], &mut data);
        send(sock, OPT_GO, &data);
        assert_eq!(answer(sock, OPT_GO).0, REP_ERR_UNKNOWN);
        for option in [OPT_INFO, OPT_GO] {
            data.clear();
            InfoRequest::write(b"ssdkit", &[INFO_NAME, INFO_DESCRIPTION], &mut data);
            send(sock, option, &data);
            let (kind, fact) = answer(sock, option);
            assert_eq!((kind, &fact[..10]), (REP_INFO, &b"\0\0\0\0\0\0\0\x10\0\0"[..]));
            let sizes = b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0".to_vec();
            assert_eq!(answer(sock, option), (REP_INFO, sizes));
            assert_eq!(answer(sock, option), (REP_INFO, b"\0\x01ssdkit".to_vec()));
            assert_eq!(answer(sock, option), (REP_INFO, b"\0\x02ssdkit drive".to_vec()));
            assert_eq!(answer(sock, option), (REP_ACK, vec![]));
        }
        works(sock);
        let sock = &mut rig.raw();
        greet(sock, 3);
        send(sock, OPT_ABORT, b"");
        assert_eq!(answer(sock, OPT_ABORT), (REP_ACK, vec![]));
        assert_eq!(sock.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn the_old_way_in_works_too() {
    serve(Ram::new(SHAPE, |_| 0), |rig| {
        for (flags, padding, name) in [(1, 124, &b""[..]), (3, 0, b"ssdkit")] {
            let sock = &mut rig.raw();
            greet(sock, flags);
            send(sock, OPT_EXPORT_NAME, name);
            let mut reply = vec![1; 10 + padding];
            sock.read_exact(&mut reply).unwrap();
            assert_eq!(reply[..8], SHAPE.bytes.to_be_bytes());
            assert!(reply[10..].iter().all(|&b| b == 0));
            works(sock);
        }
        let sock = &mut rig.raw();
        greet(sock, 3);
        send(sock, OPT_EXPORT_NAME, b"other");
        assert_eq!(sock.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn the_client_is_told_why_it_is_refused() {
    serve(Ram::new(SHAPE, |_| 0), |rig| {
        let refused = Client::connect_to(&rig.addr, "other").err().unwrap();
        assert!(matches!(refused, ClientError::Refused { kind: REP_ERR_UNKNOWN, .. }));
        assert_eq!(rig.client().size(), SHAPE.bytes);
    });
    let nowhere = ListenAddr::Unix("/nonexistent/socket".into());
    assert!(matches!(Client::connect(&nowhere), Err(ClientError::Connect { .. })));
}

/// A server that never comes to an end of what it tells of its export keeps nobody.
#[test]
fn a_server_that_talks_for_ever_is_given_up() {
    let (_dir, path) = socket();
    let listener = UnixListener::bind(&path).unwrap();
    let talks = thread::spawn(move || {
        let (mut sock, _) = listener.accept().unwrap();
        sock.write_all(&greeting(FIXED_NEWSTYLE)).unwrap();
        let info = OptionReply { option: OPT_GO, kind: REP_INFO, len: 12 }.to_bytes();
        let all = [&info[..], &[0; 12]].concat().repeat(100);
        while sock.write_all(&all).is_ok() {}
    });
    // Who waits for it would give up long after that.
    let since = Instant::now();
    let goes_on = Box::new(move || since.elapsed() < Duration::from_secs(60));
    let waiter = Waiter { opening: Duration::from_millis(50), goes_on, ..Waiter::default() };
    let error = Client::connect_with(&ListenAddr::Unix(path), "", waiter).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Protocol(_)) && text.contains("no end"), "{text}");
    talks.join().unwrap();
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let (_dir, path) = socket();
    let addr = ListenAddr::Unix(path.clone());
    // A listener does not remove its file when it ends.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::bind(&addr).unwrap();
    assert!(matches!(Server::bind(&addr), Err(ListenError::InUse(_))));
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Server::bind(&addr), Err(ListenError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let tcp = Server::bind(&ListenAddr::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    assert!(matches!(Server::bind(&tcp.addr().unwrap()), Err(ListenError::InUse(_))));
}
