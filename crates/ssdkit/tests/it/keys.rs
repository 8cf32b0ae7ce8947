//! Key-value stores on drive files, served to clients of Redis: found again
//! after a stop and after kills, refused where something else is, harmed by no
//! client.

mod kills;
mod kv;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Served, json, ssdkit, told};

/// The command that serves keys of a drive.
fn serve(drive: &str, socket: &Path, options: &str) -> Command {
    let socket = socket.display();
    let line = format!("serve {drive} --json --memory 8M --redis {socket} {options}");
    let mut command = ssdkit(&line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a command says that must fail, and how it ended.
fn failure(drive: &str, options: &str) -> (i32, String) {
    let (code, text) = told(&ssdkit(&format!("serve {drive} {options}")).output().unwrap());
    assert!(text.starts_with("ssdkit: ") && text.trim_end().lines().count() == 1, "{text}");
    (code.unwrap(), text)
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
    /// A client of a server of keys.
    fn of(server: &Served) -> Client {
        let sock = UnixStream::connect(server.ready["serving"].as_str().unwrap()).unwrap();
        sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { sock, input: VecDeque::new() }
    }

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
        json(dir.path(), &format!("create {drive} --size 96M {keys}"));
        Place { dir, drive }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn command(&self, options: &str) -> Command {
        serve(&self.drive, &self.socket(), options)
    }

    fn serve(&self, options: &str) -> Served {
        Served::start(&mut self.command(options))
    }

    /// What a command says that must succeed.
    fn json(&self, line: &str) -> Value {
        json(self.dir.path(), line)
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
        let mut client = Client::of(&server);
        assert_eq!(client.ask("SET a 1"), Reply::Text("OK".into()));
        assert_eq!(client.ask("HSET h f v"), Reply::Int(1));
        server.stop();
        assert_eq!(place.json(&format!("info {}", place.drive))["clean"], true);
        // What keeps the pages is known, and how a copy changes is not kept.
        let copy = format!("ssd:{},copy=yes", place.drive);
        let copy = Served::start(&mut serve(&copy, &place.socket(), ""));
        assert_eq!(Client::of(&copy).ask("INCR a"), Reply::Int(2));
        copy.stop();
        for n in 2..4 {
            let server = place.serve("--sync no");
            let found = (&server.ready["pages"], &server.ready["store"]);
            assert_eq!(found, (&pages.into(), &"found".into()));
            assert_eq!(server.ready["recovery"]["clean"], true, "{pages}");
            let mut client = Client::of(&server);
            assert_eq!(client.ask("DBSIZE"), Reply::Int(2));
            assert_eq!(client.ask("HGETALL h"), Reply::Array(vec![bulk("f"), bulk("v")]));
            assert_eq!(client.ask("INCR a"), Reply::Int(n));
            server.stop();
        }
        let server = place.serve(&format!("--destroy {first}"));
        assert_eq!(server.ready["store"], "new");
        assert_eq!(Client::of(&server).ask("DBSIZE"), Reply::Int(0));
        server.stop();
        let server = place.serve("");
        assert_eq!(server.ready["store"], "found");
        assert_eq!(Client::of(&server).ask("DBSIZE"), Reply::Int(0));
        server.stop();
    }
}

#[test]
fn what_is_on_a_drive_is_not_lost_unasked() {
    let place = Place::new(&format!("--profile null {SMALL}"));
    let (drive, redis) = (&place.drive, format!("--redis {}", place.socket().display()));
    place.json(&format!("bench {drive} --rw randrw --ios 100 --verify"));
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
        let mut client = Client::of(&server);
        for n in 0..50 {
            assert_eq!(client.ask(&format!("SET k{n} {n}")), Reply::Text("OK".into()));
        }
        server.stop();
        // What the drive knows of its chunks, as docs/formats.md says.
        let mut file = std::fs::File::options().write(true).open(&place.drive).unwrap();
        file.seek(std::io::SeekFrom::Start(264 << 10)).unwrap();
        file.write_all(&[0; 64 << 10]).unwrap();
        drop(file);
        let mut child = place.command(options).spawn().unwrap();
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
    place.json(&format!("bench {drive} --rw randread --ios 1 --precondition none"));
    place.serve("").stop();
    place.json(&format!("bench {drive} --rw write --ios 2 --precondition none --destroy"));
    let (code, text) = failure(drive, &redis);
    assert!(code == 2 && text.contains("used before") && text.contains("--destroy"), "{text}");
    place.serve("--destroy").stop();
}

#[test]
fn what_was_injected_is_told() {
    let place = Place::new(&format!("--profile null {SMALL}"));
    let server = place.serve("--sync always --fault write,delay=1us");
    assert_eq!(Client::of(&server).ask("SET a 1"), Reply::Text("OK".into()));
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
    let mut good = Client::of(&server);
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
        let mut bad = Client::of(&server);
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
    assert_eq!(Client::of(&server).ask("DBSIZE"), Reply::Int(2 * faults));
    assert_eq!(Client::of(&server).ask("EXISTS never"), Reply::Int(0));
    server.stop();
}

/// What clients took of the system's memory is the system's when they are gone,
/// also the second time.
#[test]
fn memory_of_clients_that_left_is_given_back() {
    const CLIENTS: u64 = 100;
    let place = Place::new(&format!("--profile null {SMALL}"));
    let server = place.serve("");
    let resident = || server.resident();
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
        let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::of(&server)).collect();
        clients.iter().for_each(|client| (&client.sock).write_all(&half).unwrap());
        is_soon(&|bytes| bytes > before + CLIENTS * 800_000);
        drop(clients);
        is_soon(&|bytes| bytes < before + CLIENTS * 200_000);
    }
    server.stop();
}

/// A flush fails, which is a write of the redo log: the client whose reply waits for it is closed
/// without one; then what was flushed is read, and what would tell of more is an error.
#[test]
fn what_a_failed_flush_takes_is_never_seen() {
    let dir = tempfile::tempdir().unwrap();
    let options = "--pages log --sync always --fault write,from=40";
    let socket = dir.path().join("redis.sock");
    let server = Served::start(&mut serve("mem:znand,size=64M", &socket, options));
    let mut client = Client::of(&server);
    let is_set = |i: &u64| {
        client.send(&format!("SET key{i} value{i}"))
            && client.byte() == Some(b'+')
            && (0..4).all(|_| client.byte().is_some())
    };
    let set = (0..100).take_while(is_set).count();
    assert!((1..100).contains(&set), "{set} were answered");
    let last: Vec<u8> = std::iter::from_fn(|| client.byte()).collect();
    assert!(last.starts_with(b"ERR the store failed to make durable"), "{last:?}");
    assert!(last.ends_with(b"\r\n"), "and then it ends: {last:?}");
    let mut client = Client::of(&server);
    assert_eq!(client.ask("GET key0"), bulk("value0"));
    for lost in [format!("GET key{set}"), "DBSIZE".into(), "SET key0 2".into()] {
        let mut client = Client::of(&server);
        assert!(client.send(&lost));
        assert_eq!(client.byte(), Some(b'-'), "{lost}");
    }
    assert_eq!(client.ask("GET key0"), bulk("value0"));
    assert_eq!(server.end(Signal::TERM).0, Some(1));
}
