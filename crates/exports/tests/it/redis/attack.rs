//! Clients that attack, beside one that works and is timed.
//!
//! What each does took the server seconds to minutes once, on its only thread.
//! The bound on time is generous, for machines that are slow or busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exports::Limits;
use exports::redis::{Options, Sync};

use super::{Client, Reply, Served, encode, ok};

/// The longest that a PING and a GET may take.
const LONGEST: Duration = Duration::from_secs(2);

fn limits(clients: usize, memory: u64) -> Options {
    Options { sync: Sync::No, limits: Limits { clients, memory, ..Limits::default() } }
}

fn words(name: &str, rest: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let all: Vec<Vec<u8>> = std::iter::once(name.into()).chain(rest).collect();
    encode(&all)
}

/// Runs `attack` beside a client that asks for a PING, and for a key of its own,
/// again and again, and has begun to. Gives how many were answered.
fn beside_pings(served: &Served, attack: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    let (begun, has_begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let pings = scope.spawn(move || {
            let (mut client, mut count) = (served.connect(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
                assert!(matches!(client.ask("GET beside"), Reply::Bulk(_)));
                assert!(start.elapsed() < LONGEST, "a PING and a GET took {:?}", start.elapsed());
                count += 1;
                // Nobody may listen any more.
                let _ = begun.send(());
            }
            count
        });
        has_begun.recv().unwrap();
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let end = End(is_over);
        attack();
        drop(end);
        pings.join().unwrap()
    })
}

fn send(client: &mut Client, command: &[u8]) -> Reply {
    use std::io::Write;
    client.sock.write_all(command).unwrap();
    client.reply()
}

/// Sends commands at once; each is answered so.
fn send_all(client: &mut Client, commands: &[u8], count: usize, reply: &Reply) {
    use std::io::Write;
    client.sock.write_all(commands).unwrap();
    (0..count).for_each(|_| assert_eq!(&client.reply(), reply));
}

/// Sends `command` so many times at once, and takes the replies.
fn pipeline(client: &mut Client, command: &[u8], times: usize) {
    use std::io::Write;
    let mut sock = client.sock.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || (0..times).for_each(|_| sock.write_all(command).unwrap()));
        for _ in 0..times {
            client.reply();
        }
    });
}

fn name(prefix: &str, n: usize) -> Vec<u8> {
    format!("{prefix}{n}").into_bytes()
}

#[test]
fn patterns_take_nobody_elses_time() {
    let served = Served::with(limits(8, 1 << 30));
    let mut client = served.connect();
    for n in 0..600 {
        let key = format!("{n:a>500}").into_bytes();
        assert_eq!(send(&mut client, &words("SET", [key, vec![]])), ok());
    }
    let set = |n: usize| "a".repeat(n);
    for pattern in [
        format!("*[{}", set(20_000)),
        format!("*[{}]c", set(1_000_000)),
        format!("*{}c", set(250)),
        "*a".repeat(250_000),
    ] {
        beside_pings(&served, || {
            let scan = ["0", "MATCH", &pattern, "COUNT", "10000"].map(Vec::from);
            let start = Instant::now();
            assert!(matches!(send(&mut client, &words("SCAN", scan)), Reply::Array(_)));
            assert!(start.elapsed() < 20 * LONGEST);
            let mut all = vec![b"GET".to_vec()];
            all.extend((0..3).map(|_| pattern.clone().into_bytes()));
            send(&mut client, &words("CONFIG", all));
        });
    }
    assert_eq!(served.end().refused, 0);
}

#[test]
fn many_arguments_take_nobody_elses_time() {
    let served = Served::with(limits(8, 1 << 30));
    let mut client = served.connect();
    let pairs = |n: usize, first: &'static str, second: &'static str| {
        (0..n).flat_map(move |i| [name(first, i), name(second, i)])
    };
    let key = || std::iter::once(b"hash".to_vec());
    let hash = words("HSET", key().chain(pairs(3000, "f", "")));
    assert_eq!(send(&mut client, &hash), Reply::Int(3000));
    let many = 16_380;
    let names = |prefix: &'static str| (0..many).map(move |i| name(prefix, i));
    let scores = (0..many / 2).flat_map(|i| [name("", i), name("member", i)]);
    for command in [
        words("HDEL", key().chain(names("missing"))),
        words("HMGET", key().chain(names("missing"))),
        words("HSET", key().chain(pairs(many / 2, "field", ""))),
        words("MSET", pairs(many / 2, "key", "")),
        words("ZADD", [b"set".to_vec()].into_iter().chain(scores)),
        words("ZREM", [b"set".to_vec()].into_iter().chain(names("none"))),
        words("DEL", names("nothing")),
        words("MGET", names("nothing")),
        words("EXISTS", names("nothing")),
        words("CONFIG", std::iter::once(b"GET".to_vec()).chain(names("*a"))),
    ] {
        beside_pings(&served, || pipeline(&mut client, &command, 20));
    }
    assert_eq!(served.end().refused, 0);
}

/// Long commands go on beside others, which are answered in between.
#[test]
fn what_takes_long_lets_others_in() {
    let served = Served::with(limits(8, 1 << 30));
    let mut client = served.connect();
    let members = 30_000;
    for start in (0..members).step_by(1000) {
        let add = |i| words("ZADD", [b"set".to_vec(), name("", i), name("member", i)]);
        let all: Vec<u8> = (start..start + 1000).flat_map(add).collect();
        send_all(&mut client, &all, 1000, &Reply::Int(1));
    }
    let mut answered = Vec::new();
    let range =
        words("ZRANGEBYSCORE", ["set", "-inf", "+inf", "LIMIT", "29999", "1"].map(Vec::from));
    answered.push(beside_pings(&served, || {
        assert!(matches!(send(&mut client, &range), Reply::Array(all) if all.len() == 1));
    }));
    answered.push(beside_pings(&served, || assert_eq!(client.ask("DEL set"), Reply::Int(1))));
    for start in (0..20_000).step_by(1000) {
        let set = |i| words("SET", [name("key", i), name("value", i)]);
        let all: Vec<u8> = (start..start + 1000).flat_map(set).collect();
        send_all(&mut client, &all, 1000, &ok());
    }
    answered.push(beside_pings(&served, || assert_eq!(client.ask("FLUSHALL"), ok())));
    assert_eq!(client.ask("DBSIZE"), Reply::Int(0));
    // Each attack lasts some slices; which of them a busy machine has its client
    // ask in is not known.
    assert!(answered.iter().sum::<u64>() >= 9, "{answered:?} PINGs were answered");
    assert_eq!(served.end().refused, 0);
}

/// A number that INFO tells.
fn told(client: &mut Client, name: &str) -> u64 {
    let Reply::Bulk(Some(info)) = client.ask("INFO") else { panic!("a text") };
    let info = String::from_utf8(info).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

/// A value of 60 000 bytes, and a command whose reply has so many of them.
fn large_reply(client: &mut Client, values: usize) -> Vec<u8> {
    let field = ["hash", "field", &"x".repeat(60_000)].map(Vec::from);
    assert!(matches!(send(client, &words("HSET", field)), Reply::Int(_)));
    let names = (0..values).map(|_| b"field".to_vec());
    words("HMGET", std::iter::once(b"hash".to_vec()).chain(names))
}

/// Waits until INFO tells at most so much.
fn falls_to(client: &mut Client, name: &str, most: u64) {
    let start = Instant::now();
    while told(client, name) > most {
        assert!(start.elapsed() < 30 * LONGEST, "{name} stays at {}", told(client, name));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Memory is given back when clients have read their replies, and when they
/// leave.
#[test]
fn memory_comes_back() {
    let served = Served::with(limits(16, 1 << 30));
    let mut client = served.connect();
    let command = large_reply(&mut client, 200);
    let mut others: Vec<Client> = (0..8).map(|_| served.connect()).collect();
    for other in &mut others {
        assert!(matches!(send(other, &command), Reply::Array(all) if all.len() == 200));
    }
    let most = 9 * (256 << 10);
    falls_to(&mut client, "clients_memory", most);
    use std::io::Write;
    for other in &mut others {
        other.sock.write_all(&command).unwrap();
    }
    let start = Instant::now();
    while told(&mut client, "clients_memory") < 8 * 200 * 60_000 {
        assert!(start.elapsed() < 30 * LONGEST, "the replies are not there");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(others);
    falls_to(&mut client, "clients_memory", 256 << 10);
    assert_eq!(told(&mut client, "evicted_clients"), 0);
    assert_eq!(served.end().refused, 0);
}

/// Clients that do not read what they ask for are ended when all together have
/// more than they may; one that has little is not.
#[test]
fn memory_has_an_end() {
    let budget = 64 << 20;
    let served = Served::with(limits(64, budget));
    let mut client = served.connect();
    let command = large_reply(&mut client, 300);
    let half = [&b"*2\r\n$3\r\nGET\r\n$1048576\r\n"[..], &vec![b'x'; 1 << 20]].concat();
    use std::io::Write;
    let mut others: Vec<Client> = (0..20).map(|_| served.connect()).collect();
    for (i, other) in others.iter_mut().enumerate() {
        // The server may close it meanwhile.
        let _ = other.sock.write_all(if i % 4 == 3 { &half } else { &command });
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
        // What is being ended stands beside the budget for a moment.
        let (told, most) = (told(&mut client, "clients_memory"), budget * 3 / 2 + (4 << 20));
        assert!(told <= most, "{told} bytes");
    }
    let start = Instant::now();
    while told(&mut client, "evicted_clients") == 0 {
        assert!(start.elapsed() < 30 * LONGEST);
    }
    for _ in 0..100 {
        assert_eq!(client.ask("STRLEN a"), Reply::Int(0));
    }
    drop(others);
    falls_to(&mut client, "clients_memory", 256 << 10);
    // Each is ended once, also when what it had asked for is still told.
    let evicted = served.end().evicted;
    assert!((1..=20).contains(&evicted), "{evicted} were ended");
}

/// What clients that leave had asked for ends; it does not go on uncounted.
#[test]
fn who_leaves_takes_no_more() {
    let budget = 64 << 20;
    let served = Served::with(limits(64, budget));
    let mut client = served.connect();
    let commands = large_reply(&mut client, 500).repeat(20);
    use std::io::Write;
    let mut others: Vec<Client> = (0..25).map(|_| served.connect()).collect();
    for other in &mut others {
        // The server may close it meanwhile.
        let _ = other.sock.write_all(&commands);
    }
    drop(others);
    while told(&mut client, "connected_clients") > 1 {
        let (told, most) = (told(&mut client, "clients_memory"), budget * 3 / 2 + (4 << 20));
        assert!(told <= most, "{told} bytes");
    }
    served.end();
}

/// Clients that are gone as soon as they have asked hold nobody up, and what they
/// wrote is there.
#[test]
fn who_is_gone_is_not_waited_for() {
    let served = Served::with(limits(64, 1 << 30));
    let mut client = served.connect();
    let command = large_reply(&mut client, 500);
    use std::io::Write;
    (0..40).for_each(|_| served.connect().sock.write_all(&command).unwrap());
    let start = Instant::now();
    while told(&mut client, "connected_clients") > 1 {
        assert!(start.elapsed() < 30 * LONGEST);
    }
    served.connect().sock.write_all(b"GET a\r\nSET a 1\r\n").unwrap();
    while client.ask("STRLEN a") != Reply::Int(1) {
        assert!(start.elapsed() < 30 * LONGEST);
    }
    served.end();
}

/// Who has little is not closed, however many there may be and whatever waits to
/// be freed: nothing would be gained.
#[test]
fn who_has_little_stays() {
    let served = Served::with(limits(8192, 64 << 20));
    let mut small: Vec<Client> = (0..8).map(|_| served.connect()).collect();
    let commands = large_reply(&mut small[0], 500).repeat(20);
    use std::io::Write;
    let mut others: Vec<Client> = (0..60).map(|_| served.connect()).collect();
    for other in &mut others {
        // The server may close it meanwhile.
        let _ = other.sock.write_all(&commands);
        small.iter_mut().for_each(|one| assert_eq!(one.ask("STRLEN a"), Reply::Int(0)));
    }
    drop(others);
    while told(&mut small[0], "connected_clients") > 8 {}
    small.iter_mut().for_each(|one| assert_eq!(one.ask("STRLEN a"), Reply::Int(0)));
    served.end();
}

/// Silent connections give way to newcomers; those that work stay.
#[test]
fn silent_ones_give_way() {
    let limits = Limits {
        clients: 4,
        greeting: Duration::from_millis(20),
        idle: Duration::from_secs(3600),
        ..Limits::default()
    };
    let served = Served::with(Options { sync: Sync::No, limits });
    let mut client = served.connect();
    assert_eq!(client.ask("SET a 1"), ok());
    for _ in 0..5 {
        let mut silent: Vec<Client> = (0..3).map(|_| served.connect()).collect();
        // They have a place before they are silent.
        let start = Instant::now();
        while told(&mut client, "connected_clients") < 4 {
            assert!(start.elapsed() < 30 * LONGEST, "they get no place");
        }
        std::thread::sleep(Duration::from_millis(40));
        let mut guest = served.connect();
        assert_eq!(guest.ask("GET a"), Reply::Bulk(Some(b"1".to_vec())));
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
        let Reply::Error(text) = silent[0].reply() else { panic!("an error") };
        assert!(text.contains("room"), "{text}");
        drop((silent, guest));
        falls_to(&mut client, "connected_clients", 1);
    }
    assert_eq!(served.end().evicted, 5);
}

/// A page of SCAN, or a run of ZRANGEBYSCORE, may end at a key as long as keys
/// may be.
#[test]
fn scans_go_on_behind_the_longest_keys() {
    let served = Served::with(limits(4, 1 << 30));
    let mut client = served.connect();
    let key = |n: usize| format!("{n:0>511}").into_bytes();
    for n in 0..5 {
        assert_eq!(send(&mut client, &words("SET", [key(n), vec![]])), ok());
    }
    assert_eq!(super::scan(&mut client, " COUNT 2"), (0..5).map(key).collect::<Vec<_>>());
    assert_eq!(client.ask("FLUSHALL"), ok());
    let member = |n: usize| format!("{n:0>498}").into_bytes();
    for n in 0..300 {
        let add = words("ZADD", [b"set".to_vec(), b"7".to_vec(), member(n)]);
        assert_eq!(send(&mut client, &add), Reply::Int(1));
    }
    let range = words("ZRANGEBYSCORE", ["set", "-inf", "+inf"].map(Vec::from));
    let all: Vec<Reply> = (0..300).map(|n| Reply::Bulk(Some(member(n)))).collect();
    assert_eq!(send(&mut client, &range), Reply::Array(all));
    assert_eq!(served.end().refused, 0);
}
