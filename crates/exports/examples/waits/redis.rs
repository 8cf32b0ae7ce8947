//! Attacks on a Redis server.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::scope;
use std::time::Duration;

use btree::{AnyStore, BatchStore, Clocked, Tree, TreeConfig};
use device::{Device, Link};
use exports::nbd::{ListenAddr, StopHandle};
use exports::redis::{Opened, Options, Server, Sync};
use flash::{Dimensions, Geometry, Profile, RamMedium};
use port::Time;
use targets::{Batch, BatchConfig};

use crate::{Outcome, Table};

/// Arguments of the longest commands.
const MANY: usize = 16_380;
/// Members of the largest set, and keys that FLUSHALL deletes.
const MEMBERS: usize = 50_000;
const KEYS: usize = 50_000;

/// A server of a drive of 512 MiB of Z-NAND, with 64 MiB of cache.
pub fn serve(addr: &ListenAddr, stop: &StopHandle) -> Outcome {
    let server = Server::bind(addr)?;
    let profile = Profile::builtin("znand").ok_or("no such drive")?;
    let dimensions = Dimensions { chunks: 16, ..profile.dimensions };
    let geometry = Geometry::new(dimensions)?;
    let device = Device::new(&geometry, &profile.timing, RamMedium::new(&geometry, 4096)?)?;
    let target = Batch::open(device, BatchConfig::for_geometry(&geometry, 0.3), Time::ZERO)?;
    let shape = *target.shape();
    let (drive, _back) = Clocked::new(Link::new(profile.link, target))?;
    let sleeper = drive.sleeper().clone();
    let store = BatchStore::new(drive, shape, 256, || 0)?;
    let config = TreeConfig { memory: 64 << 20, operations: 64, dirty: 33, redo: true };
    let tree = Tree::create(Box::new(store) as AnyStore, config, sleeper.clock().now())?;
    let options = Options { sync: Sync::EverySecond, ..Options::default() };
    server.run(Opened::new(tree, options.limits.clients)?, &sleeper, options, stop)?;
    Ok(())
}

fn command(words: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let (mut count, mut all) = (0, Vec::new());
    for word in words {
        let word = word.as_ref();
        all.extend(format!("${}\r\n", word.len()).bytes());
        all.extend(word);
        all.extend(b"\r\n");
        count += 1;
    }
    [format!("*{count}\r\n").as_bytes(), &all].concat()
}

fn connect(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path) {
            Ok(sock) => return sock,
            // The line of those who come is full.
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
}

/// Sends commands and a last one, and takes replies until that is answered.
fn ask(path: &Path, commands: &[u8]) {
    const END: &[u8] = b"$3\r\n~~~\r\n";
    let mut sock = connect(path);
    let mut sends = sock.try_clone().expect("a descriptor");
    scope(|scope| {
        scope.spawn(move || {
            // The server may close it.
            let _ = sends.write_all(commands).and_then(|()| sends.write_all(b"ECHO ~~~\r\n"));
        });
        let (mut bytes, mut last) = (vec![0; 1 << 18], Vec::new());
        while !last.ends_with(END) {
            let Ok(n @ 1..) = sock.read(&mut bytes) else { return };
            last.extend(&bytes[..n]);
            last.drain(..last.len().saturating_sub(END.len()));
        }
    });
}

/// Sends what the socket takes at once.
fn send(sock: &mut UnixStream, bytes: &[u8]) {
    sock.set_nonblocking(true).expect("a socket");
    // The server may have closed it.
    let _ = sock.write(bytes);
}

fn numbered(name: &'static str, count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |i| format!("{name}{i}").into_bytes())
}

fn pairs(a: &'static str, b: &'static str, count: usize) -> impl Iterator<Item = Vec<u8>> {
    numbered(a, count).zip(numbered(b, count)).flat_map(|(a, b)| [a, b])
}

fn words(first: &[&str], rest: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    command(first.iter().map(|word| word.as_bytes().to_vec()).chain(rest))
}

/// Commands that set so many keys, each whole key made by `key`.
fn sets(count: usize, key: impl Fn(usize) -> String) -> Vec<u8> {
    (0..count).flat_map(|i| command(["SET", &key(i), "value"])).collect()
}

/// All attacks on the server at `path`.
pub fn attack(path: &Path, table: &Table) -> Outcome {
    table.begin("Redis, beside");
    let mut client = connect(path);
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut ping = || {
        let mut pong = [0; 7];
        client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut pong)).expect("PONG");
    };
    table.row("nobody", &mut ping, || std::thread::sleep(crate::LEAST));
    ask(path, &sets(2000, |i| format!("{i:a>500}")));
    let set = |n: usize| "a".repeat(n);
    let patterns = [
        "*a".repeat(250_000),
        format!("*[{}", set(20_000)),
        format!("*[{}]c", set(1 << 19)),
        format!("*{}c", set(250)),
    ];
    let scans: Vec<u8> = patterns
        .iter()
        .flat_map(|p| command(["SCAN", "0", "MATCH", p, "COUNT", "10000"]))
        .collect();
    table.row("SCAN with the worst patterns over 2000 keys of 500 bytes", &mut ping, || {
        ask(path, &scans)
    });
    many_arguments(path, table, &mut ping);
    long_work(path, table, &mut ping);
    clients(path, table, &mut ping);
    Ok(())
}

/// Commands of as many arguments as there may be.
fn many_arguments(path: &Path, table: &Table, ping: &mut (impl FnMut() + Send)) {
    ask(path, &words(&["HSET", "hash"], pairs("f", "", 3000)));
    for all in [
        words(&["HDEL", "hash"], numbered("missing", MANY)),
        words(&["HMGET", "hash"], numbered("missing", MANY)),
        words(&["HSET", "hash"], pairs("field", "", MANY / 2)),
        words(&["MSET"], pairs("key", "value", MANY / 2)),
        words(&["MGET"], numbered("key", MANY)),
        words(&["DEL"], numbered("key", MANY)),
        words(&["ZADD", "set"], pairs("", "member", MANY / 2)),
    ] {
        let name = String::from_utf8_lossy(&all).lines().nth(2).unwrap_or("").to_string();
        table.row(&format!("{name} of {MANY} arguments, 20 at once"), &mut *ping, || {
            ask(path, &all.repeat(20));
        });
    }
}

/// Commands that go on for long.
fn long_work(path: &Path, table: &Table, ping: &mut (impl FnMut() + Send)) {
    let members: Vec<u8> = (0..MEMBERS)
        .flat_map(|i| command(["ZADD", "large", &i.to_string(), &format!("member{i}")]))
        .collect();
    table.row(&format!("ZADD of {MEMBERS} members and DEL of their set"), &mut *ping, || {
        ask(path, &[&members[..], b"DEL large\r\n"].concat());
    });
    let keys = sets(KEYS, |i| format!("key{i}"));
    table.row(&format!("SET of {KEYS} keys and FLUSHALL"), &mut *ping, || {
        ask(path, &[&keys[..], b"FLUSHALL\r\n"].concat());
    });
    let gets = b"GET key1\r\n".repeat(100_000);
    table.row("8 clients with 100 000 GETs at once", &mut *ping, || {
        scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| ask(path, &gets)))));
    });
}

/// Clients that take memory.
fn clients(path: &Path, table: &Table, ping: &mut (impl FnMut() + Send)) {
    let half = [&b"*2\r\n$3\r\nGET\r\n$1048576\r\n"[..], &vec![b'x'; 1 << 20]].concat();
    table.row("1000 clients that leave with half a command of 1 MiB each", &mut *ping, || {
        let mut all: Vec<UnixStream> = (0..1000).map(|_| connect(path)).collect();
        all.iter_mut().for_each(|sock| drop(sock.write_all(&half)));
    });
    let value = "x".repeat(60_000);
    ask(path, &command(["HSET", "wide", "f", &value]));
    let reply = |fields: usize| words(&["HMGET", "wide"], (0..fields).map(|_| b"f".to_vec()));
    let long = reply(1000);
    table.row("72 clients that do not take replies of 60 MB, and leave", &mut *ping, || {
        let mut all: Vec<UnixStream> = (0..72).map(|_| connect(path)).collect();
        all.iter_mut().for_each(|sock| send(sock, &long));
        std::thread::sleep(Duration::from_secs(1));
    });
    table.row("8 clients that take replies of 60 MB", &mut *ping, || {
        scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| ask(path, &long)))));
    });
    let many = reply(500).repeat(20);
    table.row("60 clients that ask for 20 replies of 30 MB and leave", &mut *ping, || {
        let mut all: Vec<UnixStream> = (0..60).map(|_| connect(path)).collect();
        all.iter_mut().for_each(|sock| send(sock, &many));
    });
}
