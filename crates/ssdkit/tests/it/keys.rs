//! Key-value stores on drive files, served to clients of Redis: found again
//! after a stop and after kills, refused where something else is, harmed by no
//! client.
//!
//! The kills: clients of three connections write in pipelines with `--sync
//! always` until the server is killed at a random moment, also while it starts.
//! All that was answered is there when it is served again, and of what was not
//! answered each command whole or not at all. A drive with `target=kv` has strings and
//! hashes alone: it has no sorted sets, and writes several keys one by one. With more effort:
//! `SSDKIT_KILLS=200`; the seed of a run is told, and `SSDKIT_SEED` sets it.

mod kv;

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use workload::Rng;

/// A server that is there.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    ready: Value,
    socket: PathBuf,
}

impl Server {
    fn spawn(drive: &str, socket: &Path, options: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_ssdkit"))
            .args(["serve", drive, "--json", "--memory", "8M", "--redis"])
            .arg(socket)
            .args(options.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn start(drive: &str, socket: &Path, options: &str) -> Server {
        let mut child = Server::spawn(drive, socket, options);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line);
        let ready = ready.unwrap_or_else(|e| {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("{drive} {options}: {line:?}: {e}: {text}")
        });
        Server { child, out, ready, socket: socket.into() }
    }

    fn connect(&self) -> Client {
        let sock = UnixStream::connect(&self.socket).unwrap();
        sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { sock, input: VecDeque::new() }
    }

    /// Asks it to stop; gives its last words.
    fn stop(mut self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        serde_json::from_str(&rest).unwrap()
    }
}

impl Drop for Server {
    /// A test that fails leaves none behind.
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command says that must fail, and how it ended.
fn failure(drive: &str, options: &str) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(["serve", drive])
        .args(options.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(text.starts_with("ssdkit: ") && text.trim_end().lines().count() == 1, "{text}");
    (out.status.code().unwrap(), text)
}

fn ssdkit(line: &str) -> Value {
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(line.split_whitespace())
        .arg("--json")
        .output()
        .unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// A reply. Errors are none that these commands have.
#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Text(String),
    Int(i64),
    Bulk(Option<String>),
    Array(Vec<Reply>),
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.into()))
}

struct Client {
    sock: UnixStream,
    input: VecDeque<u8>,
}

impl Client {
    fn send(&mut self, command: &str) -> bool {
        let words: Vec<&str> = command.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.sock.write_all(bytes.as_bytes()).is_ok()
    }

    /// The next byte; `None` when the server is gone.
    fn byte(&mut self) -> Option<u8> {
        if self.input.is_empty() {
            let mut bytes = [0; 4096];
            let n = self.sock.read(&mut bytes).ok().filter(|&n| n > 0)?;
            self.input.extend(&bytes[..n]);
        }
        self.input.pop_front()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(self.byte()?);
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8(line).unwrap())
    }

    fn reply(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let rest = line[1..].to_string();
        Some(match line.as_bytes()[0] {
            b'+' => Reply::Text(rest),
            b':' => Reply::Int(rest.parse().unwrap()),
            b'$' if rest == "-1" => Reply::Bulk(None),
            b'$' => {
                let len: usize = rest.parse().unwrap();
                let bytes: Option<Vec<u8>> = (0..len + 2).map(|_| self.byte()).collect();
                Reply::Bulk(Some(String::from_utf8(bytes?[..len].to_vec()).unwrap()))
            }
            b'*' => {
                let all: Option<Vec<Reply>> =
                    (0..rest.parse().unwrap()).map(|_| self.reply()).collect();
                Reply::Array(all?)
            }
            _ => panic!("{line}"),
        })
    }

    fn ask(&mut self, command: &str) -> Reply {
        assert!(self.send(command));
        self.reply().unwrap_or_else(|| panic!("{command}: the server is gone"))
    }
}

/// A drive file, and where it is served.
struct Place {
    dir: tempfile::TempDir,
    drive: String,
}

impl Place {
    fn new(keys: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let drive = dir.path().join("keys.ssd").display().to_string();
        ssdkit(&format!("create {drive} --size 96M {keys}"));
        Place { dir, drive }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn serve(&self, options: &str) -> Server {
        Server::start(&self.drive, &self.socket(), options)
    }
}

const SMALL: &str = "groups=2 pus=2 planes=1 pages=64";

#[test]
fn a_store_is_found_again_after_a_stop() {
    for (keys, first, pages) in [
        ("--profile znand target=batch", "", "batched"),
        ("--profile null", "", "log"),
        ("--profile znand", "--pages in-place", "in-place"),
    ] {
        let place = Place::new(&format!("{keys} {SMALL}"));
        let server = place.serve(first);
        assert_eq!(
            (&server.ready["pages"], &server.ready["store"]),
            (&pages.into(), &"new".into())
        );
        let mut client = server.connect();
        assert_eq!(client.ask("SET a 1"), Reply::Text("OK".into()));
        assert_eq!(client.ask("HSET h f v"), Reply::Int(1));
        server.stop();
        assert_eq!(ssdkit(&format!("info {}", place.drive))["clean"], true);
        // What keeps the pages is known, and how a copy changes is not kept.
        let copy = Server::start(&format!("ssd:{},copy=yes", place.drive), &place.socket(), "");
        assert_eq!(copy.connect().ask("INCR a"), Reply::Int(2));
        copy.stop();
        for n in 2..4 {
            let server = place.serve("--sync no");
            let found = (&server.ready["pages"], &server.ready["store"]);
            assert_eq!(found, (&pages.into(), &"found".into()));
            assert_eq!(server.ready["recovery"]["clean"], true, "{pages}");
            let mut client = server.connect();
            assert_eq!(client.ask("DBSIZE"), Reply::Int(2));
            assert_eq!(client.ask("HGETALL h"), Reply::Array(vec![bulk("f"), bulk("v")]));
            assert_eq!(client.ask("INCR a"), Reply::Int(n));
            server.stop();
        }
        let server = place.serve(&format!("--destroy {first}"));
        assert_eq!(server.ready["store"], "new");
        assert_eq!(server.connect().ask("DBSIZE"), Reply::Int(0));
        server.stop();
        let server = place.serve("");
        assert_eq!(server.ready["store"], "found");
        assert_eq!(server.connect().ask("DBSIZE"), Reply::Int(0));
        server.stop();
    }
}

#[test]
fn what_is_on_a_drive_is_not_lost_unasked() {
    let place = Place::new(&format!("--profile null {SMALL}"));
    let (drive, redis) = (&place.drive, format!("--redis {}", place.socket().display()));
    ssdkit(&format!("bench {drive} --rw randrw --ios 100 --verify"));
    let (code, text) = failure(drive, &redis);
    assert!(code == 2 && text.contains("something else") && text.contains("--destroy"), "{text}");
    let (code, text) = failure(drive, &format!("{redis} --pages batched"));
    assert!(code == 2 && text.contains("target=batch"), "{text}");
    place.serve("--destroy").stop();
    let (code, text) = failure(drive, &format!("{redis} --pages in-place"));
    assert!(code == 2 && text.contains("--pages log"), "{text}");
    place.serve("--pages log").stop();

    let place = Place::new(&format!("--profile null {SMALL} target=batch"));
    let (drive, redis) = (&place.drive, format!("--redis {}", place.socket().display()));
    let (code, text) = failure(drive, &format!("{redis} --pages log"));
    assert!(code == 2 && text.contains("no blocks"), "{text}");
    let (code, text) = failure(drive, &format!("{redis} --fault read,count=1"));
    assert!(code == 2 && text.contains("no fault of requests"), "{text}");
    let (code, text) = failure(drive, &format!("--nbd {}", place.socket().display()));
    assert!(code == 2 && text.contains("no blocks"), "{text}");
    // It was opened, so nobody can tell whether something was lost on it.
    place.serve("--destroy").stop();
}

/// A store is made where nothing was ever written, and nowhere else: what reads
/// as nothing on a drive that was used may have been lost.
#[test]
fn a_store_is_not_made_where_another_was_lost() {
    for (keys, options) in [
        ("--profile null target=batch", ""),
        ("--profile null", "--pages log"),
        ("--profile null", "--pages in-place"),
    ] {
        let place = Place::new(&format!("{keys} {SMALL}"));
        let server = place.serve(options);
        let mut client = server.connect();
        for n in 0..50 {
            assert_eq!(client.ask(&format!("SET k{n} {n}")), Reply::Text("OK".into()));
        }
        server.stop();
        // What the drive knows of its chunks, as docs/formats.md says.
        let mut file = std::fs::File::options().write(true).open(&place.drive).unwrap();
        file.seek(std::io::SeekFrom::Start(264 << 10)).unwrap();
        file.write_all(&[0; 64 << 10]).unwrap();
        drop(file);
        let mut child = Server::spawn(&place.drive, &place.socket(), options);
        let (mut out, mut text) = (String::new(), String::new());
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut out).unwrap();
        // One that serves is not waited for.
        let _ = child.kill();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        assert_eq!(out, "", "{keys} {options}");
        assert!(text.starts_with("ssdkit: "), "{text}");
    }
    let place = Place::new(&format!("--profile null {SMALL}"));
    let (drive, redis) = (&place.drive, format!("--redis {}", place.socket().display()));
    // A drive that was used and holds nothing, as one whose first store was cut while it was made.
    ssdkit(&format!("bench {drive} --rw randread --ios 1 --precondition none"));
    place.serve("").stop();
    ssdkit(&format!("bench {drive} --rw write --ios 2 --precondition none --destroy"));
    let (code, text) = failure(drive, &redis);
    assert!(code == 2 && text.contains("used before") && text.contains("--destroy"), "{text}");
    place.serve("--destroy").stop();
}

#[test]
fn what_was_injected_is_told() {
    let place = Place::new(&format!("--profile null {SMALL}"));
    let server = place.serve("--sync always --fault write,delay=1us");
    assert_eq!(server.connect().ask("SET a 1"), Reply::Text("OK".into()));
    let injected = &server.stop()["injected"][0];
    assert!(injected["rule"].as_str().unwrap().contains("write,delay=1us"), "{injected}");
    assert!(injected["times"].as_u64() > Some(0), "{injected}");
}

/// What breaks the protocol ends its own connection with a typed error, and
/// nobody else's; nothing that was answered is lost, also by a stop.
#[test]
fn malformed_commands_harm_nobody() {
    let place = Place::new(&format!("--profile null {SMALL} target=batch"));
    let server = place.serve("");
    let mut good = server.connect();
    let mut faults = 0;
    for (n, (garbage, words)) in [
        (&b"*1\r\n:5\r\n"[..], "expected '$', got ':'"),
        (b"*99999999\r\n", "invalid multibulk length"),
        (b"*-7\r\n*\r\n", "invalid multibulk length"),
        (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx", "expected '\\r\\n'"),
        (b"set a 'x\r\n", "unbalanced quotes"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut bad = server.connect();
        // What came before is done and answered, what comes after is not.
        bad.sock.write_all(format!("SET bad:{n} 1\r\n").as_bytes()).unwrap();
        bad.sock.write_all(garbage).unwrap();
        let _ = bad.sock.write_all(b"\r\nSET never 1\r\n");
        assert_eq!(bad.reply(), Some(Reply::Text("OK".into())));
        let error = bad.line().expect("an error");
        assert!(error.starts_with("-ERR Protocol error: ") && error.contains(words), "{error}");
        assert_eq!(bad.byte(), None, "the connection is closed");
        faults += 1;
        assert_eq!(good.ask(&format!("SET good:{n} 1")), Reply::Text("OK".into()));
    }
    let last = server.stop();
    assert_eq!(last["faults"], faults);
    let server = place.serve("");
    assert_eq!(server.connect().ask("DBSIZE"), Reply::Int(2 * faults));
    assert_eq!(server.connect().ask("EXISTS never"), Reply::Int(0));
    server.stop();
}

/// What clients took of the system's memory is the system's when they are gone,
/// also the second time.
#[test]
fn memory_of_clients_that_left_is_given_back() {
    const CLIENTS: u64 = 100;
    let place = Place::new(&format!("--profile null {SMALL}"));
    let server = place.serve("");
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()));
        let status = status.unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let is_soon = |holds: &dyn Fn(u64) -> bool| {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds(resident()) {
            assert!(Instant::now() < end, "{} bytes", resident());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let before = resident();
    let half = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n"[..], &[b'x'; 900_000]].concat();
    for _ in 0..3 {
        let clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        clients.iter().for_each(|client| (&client.sock).write_all(&half).unwrap());
        is_soon(&|bytes| bytes > before + CLIENTS * 800_000);
        drop(clients);
        is_soon(&|bytes| bytes < before + CLIENTS * 200_000);
    }
    server.stop();
}

/// Things that a connection has of each kind.
const THINGS: u64 = 60;

/// Commands of a connection that wait at once.
const DEPTH: usize = 8;

/// Kills more where hardly anything was done before those that were asked for.
const MORE: u32 = 8;

/// Kinds of things.
const KINDS: usize = 4;

/// What holds a number or is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Thing {
    String(u64),
    /// A hash whose two fields have the number.
    Hash(u64),
    /// Two keys that have it.
    Pair(u64),
    /// A member of the connection's sorted set.
    Member(u64),
}

impl Thing {
    /// Of the first so many kinds.
    fn all(kinds: usize) -> impl Iterator<Item = Thing> {
        let of = |n| [Thing::String(n), Thing::Hash(n), Thing::Pair(n), Thing::Member(n)];
        (0..THINGS).flat_map(move |n| of(n).into_iter().take(kinds))
    }

    fn set(self, who: usize, to: Option<u64>) -> String {
        // Some are longer than a page, and as much as fits in one of a tree's values.
        let fill = |value: u64| {
            let most = if value.is_multiple_of(16) { 60_000 } else { 300 };
            "x".repeat((value * 7 % most) as usize)
        };
        match (self, to) {
            (Thing::String(n), Some(v)) => format!("SET {who}:s{n} {v}.{}", fill(v)),
            (Thing::String(n), None) => format!("DEL {who}:s{n}"),
            (Thing::Hash(n), Some(v)) => format!("HMSET {who}:h{n} f0 {v} f1 {v}.{}", fill(v)),
            (Thing::Hash(n), None) => format!("DEL {who}:h{n}"),
            (Thing::Pair(n), Some(v)) => {
                format!("MSET {who}:p{n}a {v} {who}:p{n}b {v}.{}", fill(v))
            }
            (Thing::Pair(n), None) => format!("DEL {who}:p{n}a {who}:p{n}b"),
            (Thing::Member(n), Some(v)) => format!("ZADD {who}:z {v} m{n}"),
            (Thing::Member(n), None) => format!("ZREM {who}:z m{n}"),
        }
    }

    /// How many keys it is, when it is there.
    fn keys(self) -> i64 {
        match self {
            Thing::String(_) | Thing::Hash(_) => 1,
            Thing::Pair(_) => 2,
            Thing::Member(_) => 0,
        }
    }

    /// What it holds; panics when it is torn.
    fn get(self, who: usize, client: &mut Client) -> Option<u64> {
        let number = |reply: &Reply| match reply {
            Reply::Bulk(text) => {
                text.as_ref().map(|t| t.split('.').next().unwrap().parse().unwrap())
            }
            other => panic!("{other:?}"),
        };
        let both = |reply: Reply| {
            let Reply::Array(all) = reply else { panic!("an array") };
            let all: Vec<Option<u64>> = all.iter().map(number).collect();
            assert_eq!(all[0], all[1], "{self:?} of {who} is torn");
            all[0]
        };
        match self {
            Thing::String(n) => number(&client.ask(&format!("GET {who}:s{n}"))),
            Thing::Hash(n) => both(client.ask(&format!("HMGET {who}:h{n} f0 f1"))),
            Thing::Pair(n) => both(client.ask(&format!("MGET {who}:p{n}a {who}:p{n}b"))),
            Thing::Member(n) => number(&client.ask(&format!("ZSCORE {who}:z m{n}"))),
        }
    }
}

/// What a connection did, and may find: of each thing what it last was for sure
/// and what it may have become since.
struct Story {
    who: usize,
    kinds: usize,
    rng: Rng,
    version: u64,
    may_be: HashMap<Thing, VecDeque<Option<u64>>>,
    answered: u64,
}

impl Story {
    fn new(who: usize, kinds: usize, seed: u64) -> Story {
        let may_be = Thing::all(kinds).map(|thing| (thing, VecDeque::from([None]))).collect();
        Story { who, kinds, rng: Rng::new(seed, who as u64 + 1), version: 0, may_be, answered: 0 }
    }

    /// Writes until the server is gone.
    fn work(&mut self, mut client: Client) {
        let mut sent = VecDeque::new();
        loop {
            while sent.len() < DEPTH {
                let n = self.rng.below(THINGS);
                let thing = match self.rng.below(self.kinds as u64) {
                    0 => Thing::String(n),
                    1 => Thing::Hash(n),
                    2 => Thing::Pair(n),
                    _ => Thing::Member(n),
                };
                self.version += 1;
                let to = (self.rng.below(5) > 0).then_some(self.version);
                self.may_be.get_mut(&thing).unwrap().push_back(to);
                sent.push_back(thing);
                if !client.send(&thing.set(self.who, to)) {
                    return;
                }
            }
            if client.reply().is_none() {
                return;
            }
            let thing = sent.pop_front().unwrap();
            self.may_be.get_mut(&thing).unwrap().pop_front();
            self.answered += 1;
        }
    }

    /// Looks what is there, which must be allowed, and stays. Gives how many
    /// keys.
    fn verify(&mut self, client: &mut Client, seed: u64) -> i64 {
        let (mut keys, mut members) = (0, Vec::new());
        for thing in Thing::all(self.kinds) {
            let found = thing.get(self.who, client);
            let may_be = self.may_be.get_mut(&thing).unwrap();
            assert!(
                may_be.contains(&found),
                "seed {seed}: {thing:?} of {} is {found:?}, may be {may_be:?}",
                self.who
            );
            *may_be = VecDeque::from([found]);
            keys += if found.is_some() { thing.keys() } else { 0 };
            if let (Thing::Member(n), Some(score)) = (thing, found) {
                members.push((score, format!("m{n}")));
            }
        }
        if self.kinds < KINDS {
            return keys;
        }
        members.sort();
        let index = client.ask(&format!("ZRANGEBYSCORE {}:z -inf +inf", self.who));
        let all = members.iter().map(|(_, member)| bulk(member)).collect();
        assert_eq!(index, Reply::Array(all), "seed {seed}");
        assert_eq!(client.ask(&format!("ZCARD {}:z", self.who)), Reply::Int(members.len() as i64));
        keys + i64::from(!members.is_empty())
    }
}

fn verify(server: &Server, stories: &mut [Story], seed: u64) {
    let mut client = server.connect();
    let keys: i64 = stories.iter_mut().map(|story| story.verify(&mut client, seed)).sum();
    assert_eq!(client.ask("DBSIZE"), Reply::Int(keys), "seed {seed}");
}

/// Kills servers of a drive so often.
fn kill(keys: &str, options: &str, kills: u32, seed: u64) {
    println!("{keys} {options}: {kills} kills, SSDKIT_SEED={seed}");
    let place = Place::new(&format!("{keys} {SMALL}"));
    let mut rng = Rng::new(seed, 0);
    let kinds = if keys.contains("target=kv") { 2 } else { KINDS };
    let mut stories: Vec<Story> = (0..3).map(|who| Story::new(who, kinds, seed)).collect();
    // One that is killed while it makes the store may leave none that is whole.
    place.serve(options).stop();
    let (mut slowest, mut round) = (Duration::ZERO, 0);
    // On a busy machine hardly anything may be done before a kill: then there
    // are more, each twice as late as the one before.
    let answered = |stories: &[Story]| stories.iter().map(|story| story.answered).sum::<u64>();
    let enough = |stories: &[Story]| answered(stories) > u64::from(kills);
    while round < kills || (round < kills + MORE && !enough(&stories)) {
        if rng.below(3) == 0 {
            // Also while it starts.
            let mut child = Server::spawn(&place.drive, &place.socket(), "");
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let began = Instant::now();
        let mut server = place.serve("--sync always");
        slowest = slowest.max(began.elapsed());
        assert_eq!(server.ready["store"], "found", "seed {seed}");
        assert!(round == 0 || server.ready["recovery"]["clean"] == false, "{}", server.ready);
        verify(&server, &mut stories, seed);
        let pid = Pid::from_child(&server.child);
        let later = 1 << round.saturating_sub(kills);
        let after = Duration::from_micros(5_000 + rng.below(300_000)) * later;
        std::thread::scope(|scope| {
            for story in &mut stories {
                let client = server.connect();
                scope.spawn(|| story.work(client));
            }
            std::thread::sleep(after);
            kill_process(pid, Signal::KILL).unwrap();
        });
        server.child.wait().unwrap();
        round += 1;
    }
    // It ends well, too.
    let server = place.serve("");
    verify(&server, &mut stories, seed);
    server.stop();
    assert_eq!(ssdkit(&format!("info {}", place.drive))["clean"], true, "seed {seed}");
    println!("{keys}: {} commands answered, slowest start {slowest:?}", answered(&stories));
    assert!(enough(&stories), "seed {seed}: hardly anything was answered");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

fn kill_kind(keys: &str, options: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = number("SSDKIT_SEED", now.unwrap().as_nanos() as u64);
    kill(keys, options, number("SSDKIT_KILLS", 8) as u32, seed);
}

#[test]
fn what_was_answered_survives_kills_with_batched_writes() {
    kill_kind("--profile znand target=batch", "");
}

#[test]
fn what_was_answered_survives_kills_in_a_log() {
    kill_kind("--profile null", "--pages log");
}

#[test]
fn what_was_answered_survives_kills_in_place() {
    kill_kind("--profile null", "--pages in-place");
}

/// A flush fails, which is a write of the redo log: the client whose reply waits for it is closed
/// without one; then what was flushed is read, and what would tell of more is an error.
#[test]
fn what_a_failed_flush_takes_is_never_seen() {
    let dir = tempfile::tempdir().unwrap();
    let options = "--pages log --sync always --fault write,from=40";
    let socket = dir.path().join("redis.sock");
    let mut server = Server::start("mem:znand,size=64M", &socket, options);
    let mut client = server.connect();
    let is_set = |i: &u64| {
        client.send(&format!("SET key{i} value{i}"))
            && client.byte().is_some_and(|byte| {
                assert_eq!(byte, b'+');
                (0..4).all(|_| client.byte().is_some())
            })
    };
    let set = (0..100).take_while(is_set).count();
    assert!((1..100).contains(&set), "{set} were answered");
    let mut client = server.connect();
    assert_eq!(client.ask("GET key0"), bulk("value0"));
    for lost in [format!("GET key{set}"), "DBSIZE".into(), "SET key0 2".into()] {
        let mut client = server.connect();
        assert!(client.send(&lost));
        assert_eq!(client.byte(), Some(b'-'), "{lost}");
    }
    assert_eq!(client.ask("GET key0"), bulk("value0"));
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
}
