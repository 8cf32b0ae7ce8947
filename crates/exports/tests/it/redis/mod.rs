//! The Redis server from outside: commands against a model, in any pieces, on
//! many connections; what breaks the protocol; stops.

mod attack;
mod flush;
mod kv;
mod kv_open;
mod soak;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use btree::{AnyStore, BatchStore, Clocked, Tree, TreeConfig};
use device::{Device, Link, LinkTiming};
use exports::Limits;
use exports::nbd::{ListenAddr, StopHandle};
use exports::redis::{Opened, Options, Report, Server, Sync};
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::Time;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use targets::{Batch, BatchConfig};

/// A server on a small drive with a small cache.
pub struct Served {
    pub path: PathBuf,
    stop: StopHandle,
    thread: Option<JoinHandle<Report>>,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new(sync: Sync, clients: usize) -> Served {
        Served::with(Options { sync, limits: Limits { clients, ..Limits::default() } })
    }

    pub fn with(options: Options) -> Served {
        Served::over(options, serve)
    }

    fn over(
        options: Options,
        serve: impl FnOnce(Server, Options, &StopHandle) -> Report + Send + 'static,
    ) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("redis.sock");
        let stop = StopHandle::new().unwrap();
        let server = Server::bind(&ListenAddr::Unix(path.clone())).unwrap();
        let handle = stop.clone();
        let thread = std::thread::spawn(move || serve(server, options, &handle));
        Served { path, stop, thread: Some(thread), _dir: dir }
    }

    pub fn connect(&self) -> Client {
        let sock = UnixStream::connect(&self.path).unwrap();
        sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { sock, input: Vec::new(), start: 0 }
    }

    pub fn end(mut self) -> Report {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

fn device() -> (Device<RamMedium>, Geometry) {
    let dimensions = Dimensions {
        groups: 2,
        pus: 2,
        chunks: 40,
        pages: 64,
        planes: 1,
        page_bytes: 16384,
        pages_at_once: 1,
    };
    let geometry = Geometry::new(dimensions).unwrap();
    let medium = RamMedium::new(&geometry, 4096).unwrap();
    let timing = Timing { read: vec![2000], ..Timing::default() };
    (Device::new(&geometry, &timing, medium).unwrap(), geometry)
}

fn serve(server: Server, options: Options, stop: &StopHandle) -> Report {
    let (device, geometry) = device();
    let config = BatchConfig::for_geometry(&geometry, 0.3);
    let target = Batch::open(device, config, Time::ZERO).unwrap();
    let shape = *target.shape();
    let (drive, _back) = Clocked::new(Link::new(LinkTiming::default(), target)).unwrap();
    let sleeper = drive.sleeper().clone();
    let store = BatchStore::new(drive, shape, 256, || 0).unwrap();
    let config = TreeConfig { memory: 3 << 20, operations: 64, dirty: 33, redo: true };
    let tree = Tree::create(Box::new(store) as AnyStore, config, sleeper.clock().now()).unwrap();
    let keys = Opened::new(tree, options.limits.clients).unwrap();
    server.run(keys, &sleeper, options, stop).unwrap().0
}

pub struct Client {
    pub sock: UnixStream,
    input: Vec<u8>,
    start: usize,
}

/// A reply as it is printed by redis-cli, nearly.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

impl Client {
    fn fill(&mut self) {
        if self.start > self.input.len() / 2 {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let mut bytes = [0; 65536];
        let n = self.sock.read(&mut bytes).unwrap();
        assert!(n > 0, "the server closed the connection");
        self.input.extend_from_slice(&bytes[..n]);
    }

    fn line(&mut self) -> String {
        loop {
            let rest = &self.input[self.start..];
            if let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8(rest[..end].to_vec()).unwrap();
                self.start += end + 2;
                return line;
            }
            self.fill();
        }
    }

    pub fn reply(&mut self) -> Reply {
        let line = self.line();
        let rest = line[1..].to_string();
        match line.as_bytes()[0] {
            b'+' => Reply::Simple(rest),
            b'-' => Reply::Error(rest),
            b':' => Reply::Int(rest.parse().unwrap()),
            b'$' if rest == "-1" => Reply::Bulk(None),
            b'$' => {
                let len: usize = rest.parse().unwrap();
                while self.input.len() < self.start + len + 2 {
                    self.fill();
                }
                let bulk = self.input[self.start..self.start + len].to_vec();
                self.start += len + 2;
                Reply::Bulk(Some(bulk))
            }
            b'*' => Reply::Array((0..rest.parse().unwrap()).map(|_| self.reply()).collect()),
            other => panic!("no reply begins with {other}"),
        }
    }

    pub fn ask(&mut self, words: &str) -> Reply {
        let words: Vec<Vec<u8>> = words.split(' ').map(|word| word.into()).collect();
        self.sock.write_all(&encode(&words)).unwrap();
        self.reply()
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.sock.read(&mut [0; 16]), Ok(0) | Err(_))
    }
}

pub fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

pub fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.into()))
}

fn wrong_type() -> Reply {
    Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value".into())
}

/// What a key holds in the model.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    String(Vec<u8>),
    /// In the order in which they were first set.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    Sorted(BTreeMap<Vec<u8>, i64>),
}

#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Value>);

impl Model {
    fn ask(&mut self, words: &[Vec<u8>]) -> Reply {
        let text = |i: usize| String::from_utf8(words[i].clone()).unwrap();
        let one = |value: Option<Vec<u8>>| Reply::Bulk(value);
        let map = &mut self.0;
        let key = words.get(1).cloned().unwrap_or_default();
        match (text(0).as_str(), map.get_mut(&key)) {
            ("GET", None) => one(None),
            ("GET", Some(Value::String(value))) => one(Some(value.clone())),
            ("SET", _) => {
                map.insert(key, Value::String(words[2].clone()));
                ok()
            }
            ("SETNX", Some(_)) => Reply::Int(0),
            ("SETNX", None) => {
                map.insert(key, Value::String(words[2].clone()));
                Reply::Int(1)
            }
            ("MSET", _) => {
                for pair in words[1..].chunks(2) {
                    map.insert(pair[0].clone(), Value::String(pair[1].clone()));
                }
                ok()
            }
            ("MGET", _) => Reply::Array(
                words[1..]
                    .iter()
                    .map(|key| match map.get(key) {
                        Some(Value::String(value)) => one(Some(value.clone())),
                        _ => one(None),
                    })
                    .collect(),
            ),
            ("DEL", _) => {
                Reply::Int(words[1..].iter().filter(|key| map.remove(*key).is_some()).count() as i64)
            }
            ("EXISTS", _) => {
                Reply::Int(words[1..].iter().filter(|key| map.contains_key(*key)).count() as i64)
            }
            ("DBSIZE", _) => Reply::Int(map.len() as i64),
            ("FLUSHALL", _) => {
                map.clear();
                ok()
            }
            ("TYPE", value) => Reply::Simple(
                value
                    .map_or("none", |value| match value {
                        Value::String(_) => "string",
                        Value::Hash(_) => "hash",
                        Value::Sorted(_) => "zset",
                    })
                    .into(),
            ),
            ("HSET", value @ (None | Some(Value::Hash(_)))) => {
                let mut fields = match value {
                    Some(Value::Hash(fields)) => std::mem::take(fields),
                    _ => Vec::new(),
                };
                let before = fields.len();
                for pair in words[2..].chunks(2) {
                    match fields.iter_mut().find(|field| field.0 == pair[0]) {
                        Some(field) => field.1.clone_from(&pair[1]),
                        None => fields.push((pair[0].clone(), pair[1].clone())),
                    }
                }
                let added = fields.len() - before;
                map.insert(key, Value::Hash(fields));
                Reply::Int(added as i64)
            }
            ("HGET", None) => one(None),
            ("HGET", Some(Value::Hash(fields))) => {
                one(fields.iter().find(|f| f.0 == words[2]).map(|f| f.1.clone()))
            }
            ("HGETALL", None) => Reply::Array(Vec::new()),
            ("HGETALL", Some(Value::Hash(fields))) => Reply::Array(
                fields
                    .iter()
                    .flat_map(|f| [one(Some(f.0.clone())), one(Some(f.1.clone()))])
                    .collect(),
            ),
            ("HDEL", None) => Reply::Int(0),
            ("HDEL", Some(Value::Hash(fields))) => {
                let before = fields.len();
                fields.retain(|field| !words[2..].contains(&field.0));
                let left = fields.len();
                if left == 0 {
                    map.remove(&key);
                }
                Reply::Int((before - left) as i64)
            }
            ("ZADD", value @ (None | Some(Value::Sorted(_)))) => {
                let mut members = match value {
                    Some(Value::Sorted(members)) => std::mem::take(members),
                    _ => BTreeMap::new(),
                };
                let before = members.len();
                for pair in words[2..].chunks(2) {
                    let score = std::str::from_utf8(&pair[0]).unwrap().parse().unwrap();
                    members.insert(pair[1].clone(), score);
                }
                let added = members.len() - before;
                map.insert(key, Value::Sorted(members));
                Reply::Int(added as i64)
            }
            ("ZREM" | "ZCARD", None) => Reply::Int(0),
            ("ZCARD", Some(Value::Sorted(members))) => Reply::Int(members.len() as i64),
            ("ZREM", Some(Value::Sorted(members))) => {
                let before = members.len();
                members.retain(|member, _| !words[2..].contains(member));
                let left = members.len();
                if left == 0 {
                    map.remove(&key);
                }
                Reply::Int((before - left) as i64)
            }
            ("ZRANGEBYSCORE", None) => Reply::Array(Vec::new()),
            ("ZRANGEBYSCORE", Some(Value::Sorted(members))) => {
                let number = |i: usize| text(i).parse::<i64>().unwrap();
                let mut all: Vec<_> = members
                    .iter()
                    .filter(|member| (number(2)..=number(3)).contains(member.1))
                    .map(|(member, score)| (*score, member.clone()))
                    .collect();
                all.sort();
                let all = all.into_iter().skip(number(5) as usize).take(number(6) as usize);
                Reply::Array(all.map(|(_, member)| one(Some(member))).collect())
            }
            (_, Some(_)) => wrong_type(),
            (name, None) => panic!("the model has no {name}"),
        }
    }
}

/// A command; `prefix` makes its keys its own.
fn command(prefix: u8) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = move || (0u32..40).prop_map(move |n| format!("{}:{n}", prefix as char).into_bytes());
    let name = || (0u32..6).prop_map(|n| format!("f{n}").into_bytes());
    let score = || (-4i64..5).prop_map(|n| n.to_string().into_bytes());
    let value = || {
        let len = prop_oneof![8 => 0usize..200, 1 => 3000usize..9000, 1 => Just(60_000)];
        (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
    };
    let make = |name: &'static str, parts: Vec<Vec<u8>>| {
        std::iter::once(name.as_bytes().to_vec()).chain(parts).collect::<Vec<_>>()
    };
    let keys = move || prop::collection::vec(key(), 1..5);
    prop_oneof![
        4 => key().prop_map(move |k| make("GET", vec![k])),
        6 => (key(), value()).prop_map(move |(k, v)| make("SET", vec![k, v])),
        1 => (key(), value()).prop_map(move |(k, v)| make("SETNX", vec![k, v])),
        2 => prop::collection::vec((key(), value()), 1..5)
            .prop_map(move |all| make("MSET", all.into_iter().flat_map(|(k, v)| [k, v]).collect())),
        2 => keys().prop_map(move |k| make("MGET", k)),
        2 => keys().prop_map(move |k| make("DEL", k)),
        1 => keys().prop_map(move |k| make("EXISTS", k)),
        1 => key().prop_map(move |k| make("TYPE", vec![k])),
        4 => (key(), prop::collection::vec((name(), score()), 1..5)).prop_map(move |(k, all)| {
            make("HSET", [k].into_iter().chain(all.into_iter().flat_map(|(f, v)| [f, v])).collect())
        }),
        2 => (key(), name()).prop_map(move |(k, f)| make("HGET", vec![k, f])),
        2 => key().prop_map(move |k| make("HGETALL", vec![k])),
        1 => (key(), name()).prop_map(move |(k, f)| make("HDEL", vec![k, f])),
        4 => (key(), prop::collection::vec((score(), name()), 1..5)).prop_map(move |(k, all)| {
            make("ZADD", [k].into_iter().chain(all.into_iter().flat_map(|(s, m)| [s, m])).collect())
        }),
        1 => (key(), prop::collection::vec(name(), 1..4)).prop_map(move |(k, all)| {
            make("ZREM", [k].into_iter().chain(all).collect())
        }),
        1 => key().prop_map(move |k| make("ZCARD", vec![k])),
        2 => (key(), score(), score(), 0u32..3, 0u32..5).prop_map(move |(k, a, b, skip, most)| {
            let limit = [&b"LIMIT"[..], skip.to_string().as_bytes(), most.to_string().as_bytes()]
                .map(<[u8]>::to_vec);
            make("ZRANGEBYSCORE", [k, a, b].into_iter().chain(limit).collect())
        }),
    ]
}

fn draw<T: std::fmt::Debug>(runner: &mut TestRunner, strategy: impl Strategy<Value = T>) -> T {
    use proptest::strategy::ValueTree;
    strategy.new_tree(runner).unwrap().current()
}

/// Commands in pipelines, cut anywhere, are answered as a map would; of sorted sets only
/// where there is an order of keys.
fn talk(
    client: &mut Client,
    runner: &mut TestRunner,
    prefix: u8,
    pipelines: usize,
    is_ordered: bool,
) -> Model {
    let mut model = Model::default();
    for _ in 0..pipelines {
        let mut commands = draw(runner, prop::collection::vec(command(prefix), 1..30));
        commands.retain(|words| is_ordered || words[0][0] != b'Z');
        let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
        let mut cuts = draw(runner, prop::collection::vec(0..=bytes.len(), 0..4));
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for cut in cuts.windows(2) {
            client.sock.write_all(&bytes[cut[0]..cut[1]]).unwrap();
        }
        for words in &commands {
            assert_eq!(
                client.reply(),
                model.ask(words),
                "{:?}",
                String::from_utf8_lossy(&words[0])
            );
        }
    }
    model
}

fn scan(client: &mut Client, rest: &str) -> Vec<Vec<u8>> {
    let (mut cursor, mut keys) = ("0".to_string(), Vec::new());
    loop {
        let Reply::Array(reply) = client.ask(&format!("SCAN {cursor}{rest}")) else {
            panic!("an array")
        };
        let [Reply::Bulk(Some(next)), Reply::Array(found)] = &reply[..] else {
            panic!("two parts")
        };
        for key in found {
            let Reply::Bulk(Some(key)) = key else { panic!("a key") };
            keys.push(key.clone());
        }
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            return keys;
        }
    }
}

/// What a client says goes as with a map. Over a tree there are lists and the like, and scans
/// give keys in their order.
fn does_what_a_map_would(served: Served, over_tree: bool) {
    let mut runner = TestRunner::deterministic();
    let mut client = served.connect();
    let mut model = talk(&mut client, &mut runner, b'a', 60, over_tree);
    assert_eq!(client.ask("DBSIZE"), model.ask(&[b"DBSIZE".to_vec()]));
    let keys: Vec<_> = model.0.keys().cloned().collect();
    let mut in_order = |options| {
        let mut keys = scan(&mut client, options);
        if !over_tree {
            keys.sort();
        }
        keys
    };
    assert_eq!(in_order(" COUNT 7"), keys);
    let matching: Vec<_> = keys.iter().filter(|key| key.ends_with(b"1")).cloned().collect();
    assert_eq!(in_order(" MATCH *1"), matching);
    if over_tree {
        let strings = keys.iter().filter(|key| matches!(model.0[*key], Value::String(_))).count();
        assert_eq!(scan(&mut client, " TYPE string").len(), strings);
    }
    assert_eq!(client.ask("FLUSHALL"), ok());
    assert_eq!(client.ask("DBSIZE"), Reply::Int(0));
    assert!(scan(&mut client, "").is_empty());
    drop(client);
    let report = served.end();
    assert_eq!((report.connections, report.faults, report.refused), (1, 0, 0));
    assert!(report.commands > 500 && report.flushes > 10, "{report:?}");
}

/// Many connections do not see each other, but in the key that they share.
fn many_at_once(served: Served, over_tree: bool) {
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let mut client = served.connect();
            scope.spawn(move || {
                let rng = proptest::test_runner::TestRng::from_seed(
                    proptest::test_runner::RngAlgorithm::ChaCha,
                    &[i; 32],
                );
                let mut runner = TestRunner::new_with_rng(Config::default(), rng);
                talk(&mut client, &mut runner, b'a' + i, 12, over_tree);
                for _ in 0..20 {
                    assert!(matches!(client.ask("INCR n"), Reply::Int(_)));
                }
            });
        }
    });
    assert_eq!(served.connect().ask("GET n"), bulk("160"));
    let report = served.end();
    assert_eq!((report.connections, report.faults), (9, 0));
}

#[test]
fn commands_do_what_a_map_would() {
    does_what_a_map_would(Served::new(Sync::Always, 16), true);
}

#[test]
fn many_connections_do_not_see_each_other() {
    let all = [Sync::Always, Sync::EverySecond, Sync::No];
    all.into_iter().for_each(|sync| many_at_once(Served::new(sync, 16), true));
}

/// What commands there are is not told, only how many.
#[test]
fn who_asks_for_the_commands_gets_none_and_who_asks_for_their_number_gets_one() {
    let served = Served::new(Sync::Always, 16);
    let mut client = served.connect();
    for asked in ["COMMAND", "COMMAND DOCS", "command docs get"] {
        assert_eq!(client.ask(asked), Reply::Array(Vec::new()), "{asked}");
    }
    let Reply::Int(all) = client.ask("COMMAND COUNT") else { panic!("a number") };
    assert!(all > 30, "{all}");
    assert_eq!(client.ask("command count"), Reply::Int(all));
}

/// Increments of one key by many are none lost, nor members of one set.
#[test]
fn one_key_is_changed_by_many() {
    let served = Served::new(Sync::Always, 16);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let mut client = served.connect();
            scope.spawn(move || {
                for n in 0..50 {
                    assert!(matches!(client.ask("INCR n"), Reply::Int(_)));
                    assert_eq!(client.ask(&format!("ZADD set {n} {i}:{n}")), Reply::Int(1));
                }
            });
        }
    });
    let mut client = served.connect();
    assert_eq!(client.ask("GET n"), bulk("400"));
    assert_eq!(client.ask("ZCARD set"), Reply::Int(400));
    let Reply::Array(all) = client.ask("ZRANGEBYSCORE set -inf +inf WITHSCORES") else {
        panic!("an array")
    };
    assert_eq!(all.len(), 800);
    assert_eq!(client.ask("ZSCORE set 3:7"), bulk("7"));
    assert_eq!(client.ask("ZRANGEBYSCORE set (48 49 LIMIT 0 1"), Reply::Array(vec![bulk("0:49")]));
    assert_eq!(client.ask("DEL set"), Reply::Int(1));
    assert_eq!(client.ask("DBSIZE"), Reply::Int(1));
    served.end();
}

#[test]
fn errors_are_in_redis_words() {
    let served = Served::new(Sync::Always, 2);
    let mut client = served.connect();
    let mut says = |words: &str, expected: &str| {
        assert_eq!(client.ask(words), Reply::Error(expected.into()), "{words}");
    };
    says("NOSUCH a", "ERR unknown command 'NOSUCH'");
    says("GET", "ERR wrong number of arguments for 'get' command");
    says("MSET a 1 b", "ERR wrong number of arguments for 'mset' command");
    says("SELECT 1", "ERR DB index is out of range");
    says("SELECT abc", "ERR value is not an integer or out of range");
    says("CLIENT SETNAME", "ERR wrong number of arguments for 'client|setname' command");
    says("CLIENT SETNAME a b", "ERR wrong number of arguments for 'client|setname' command");
    let special = "ERR Client names cannot contain spaces, newlines or special characters.";
    says("CLIENT SETNAME a\n", special);
    says("CLIENT SETNAME a\u{7f}", special);
    says("COMMAND COUNT x", "ERR wrong number of arguments for 'command|count' command");
    says("SET a 1 EX 5", "ERR keys do not expire here: there is no expiry");
    says("SET a 1 NX XX", "ERR syntax error");
    says("SET a 1 XX WHAT", "ERR syntax error");
    says("FLUSHALL x", "ERR syntax error");
    says("FLUSHDB sync async", "ERR syntax error");
    says("SCAN x", "ERR invalid cursor");
    says("SCAN 99", "ERR invalid cursor");
    says("ZADD z x a", "ERR value is not a valid float");
    says("INCRBY a 1.5", "ERR value is not an integer or out of range");
    assert_eq!(client.ask("SET a text"), ok());
    let mut says = |words: &str, expected: &str| {
        assert_eq!(client.ask(words), Reply::Error(expected.into()), "{words}");
    };
    says("INCR a", "ERR value is not an integer or out of range");
    assert_eq!(client.ask("HGET a f"), wrong_type());
    let long = format!("SET a {}", "x".repeat(65024));
    let Reply::Error(text) = client.ask(&long) else { panic!("too long") };
    assert!(text.contains("longer than 65023"), "{text}");
    let Reply::Error(text) = client.ask(&format!("GET {}", "x".repeat(512))) else {
        panic!("too long")
    };
    assert!(text.contains("longer than 511"), "{text}");
    assert_eq!(client.ask("GET a"), bulk("text"), "nothing is lost");
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    // Commands on one line, and an end.
    client.sock.write_all(b"echo 'a b'\r\n\r\nquit\r\nget a\r\n").unwrap();
    assert_eq!((client.reply(), client.reply()), (bulk("a b"), ok()));
    assert!(client.is_closed());
    served.end();
}

#[test]
fn who_breaks_the_protocol_harms_nobody() {
    let served = Served::new(Sync::Always, 3);
    let mut good = served.connect();
    assert_eq!(good.ask("SET a 1"), ok());
    for garbage in [&b"*1\r\n:5\r\n"[..], b"*99999999\r\n", b"*1\r\n$99999999999\r\n", b"'\r\n"] {
        let mut bad = served.connect();
        bad.sock.write_all(garbage).unwrap();
        let Reply::Error(text) = bad.reply() else { panic!("an error") };
        assert!(text.starts_with("ERR Protocol error: "), "{text}");
        assert!(bad.is_closed());
    }
    // Half a command, and gone.
    served.connect().sock.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nab").unwrap();
    let mut runner = TestRunner::deterministic();
    for _ in 0..30 {
        let garbage = draw(&mut runner, prop::collection::vec(any::<u8>(), 0..2000));
        // The server may close it meanwhile.
        let _ = served.connect().sock.write_all(&garbage);
        assert_eq!(good.ask("GET a"), bulk("1"));
    }
    assert!(served.end().faults >= 4);
}

/// A client that reads nothing is not given more memory, and gets all when it
/// reads again.
#[test]
fn a_client_that_does_not_read_waits() {
    let served = Served::new(Sync::No, 2);
    let mut client = served.connect();
    assert_eq!(client.ask(&format!("SET a {}", "x".repeat(60_000))), ok());
    let get = encode(&[b"GET".to_vec(), b"a".to_vec()]);
    client.sock.write_all(&get.repeat(300)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let mut other = served.connect();
    assert_eq!(other.ask("PING"), Reply::Simple("PONG".into()));
    for _ in 0..300 {
        assert!(matches!(client.reply(), Reply::Bulk(Some(value)) if value.len() == 60_000));
    }
    served.end();
}

/// A client that sends all it has to say before it reads comes to an end with
/// that: hundreds of small commands fit, also behind a reply that it must read.
#[test]
fn a_client_that_sends_before_it_reads_is_heard() {
    let served = Served::new(Sync::No, 2);
    let mut client = served.connect();
    assert_eq!(client.ask(&format!("SET a {}", "x".repeat(60_000))), ok());
    let names = std::iter::repeat_n(b"a".to_vec(), 50);
    let get: Vec<_> = std::iter::once(b"MGET".to_vec()).chain(names).collect();
    client.sock.write_all(&encode(&get)).unwrap();
    // When the reply begins to come, the server waits for the rest to be taken.
    client.fill();
    client.sock.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let ping = encode(&[b"PING".to_vec()]);
    let sent = (0..2000).take_while(|_| client.sock.write_all(&ping).is_ok()).count();
    assert_eq!(sent, 2000);
    assert!(matches!(client.reply(), Reply::Array(all) if all.len() == 50));
    for _ in 0..2000 {
        assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    }
    served.end();
}

#[test]
fn too_many_are_refused_and_a_stop_answers_what_came() {
    let served = Served::new(Sync::EverySecond, 1);
    let mut client = served.connect();
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    let mut refused = served.connect();
    assert_eq!(refused.reply(), Reply::Error("ERR max number of clients reached".into()));
    assert!(refused.is_closed());
    client.sock.write_all(&encode(&[b"INCR".to_vec(), b"n".to_vec()]).repeat(500)).unwrap();
    let report = served.end();
    for n in 1..=500 {
        assert_eq!(client.reply(), Reply::Int(n));
    }
    assert!(client.is_closed());
    assert_eq!((report.commands, report.refused), (501, 1));
}

/// What YCSB's redis binding sends: a record is a hash, and a sorted set of all
/// keys by a hash of them is the index for scans. Its client writes numbers as
/// Java does.
struct Ycsb {
    client: Client,
    /// What was inserted: fields by key.
    records: BTreeMap<String, BTreeMap<String, String>>,
}

impl Ycsb {
    /// `String.hashCode` of a key, as a double is written in Java.
    fn score(key: &str) -> (f64, String) {
        let code = key.bytes().fold(0i32, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        let score = f64::from(code);
        let text = match score.abs() {
            size if (1e-3..1e7).contains(&size) || size == 0.0 => format!("{score:.1}"),
            _ => {
                let text = format!("{score:E}");
                let (digits, exponent) = text.split_once('E').unwrap();
                let point = if digits.contains('.') { "" } else { ".0" };
                format!("{digits}{point}E{exponent}")
            }
        };
        assert_eq!(text.parse(), Ok(score));
        (score, text)
    }

    fn ask(&mut self, words: &[&str]) -> Reply {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.client.sock.write_all(&encode(&words)).unwrap();
        self.client.reply()
    }

    fn hmset(&mut self, key: &str, fields: &BTreeMap<String, String>) {
        let mut words = vec!["HMSET", key];
        words.extend(fields.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        assert_eq!(self.ask(&words), ok());
    }

    fn insert(&mut self, key: &str, fields: BTreeMap<String, String>) {
        self.hmset(key, &fields);
        let added = i64::from(!self.records.contains_key(key));
        self.records.entry(key.into()).or_default().extend(fields);
        let score = Ycsb::score(key).1;
        assert_eq!(self.ask(&["ZADD", "_indices", &score, key]), Reply::Int(added));
    }

    fn update(&mut self, key: &str, fields: BTreeMap<String, String>) {
        self.hmset(key, &fields);
        self.records.get_mut(key).unwrap().extend(fields);
    }

    fn read_all(&mut self, key: &str) {
        let Reply::Array(reply) = self.ask(&["HGETALL", key]) else { panic!("an array") };
        let text = |reply: &Reply| match reply {
            Reply::Bulk(Some(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        let found: BTreeMap<_, _> = reply.chunks(2).map(|f| (text(&f[0]), text(&f[1]))).collect();
        assert_eq!(&found, self.records.get(key).unwrap_or(&BTreeMap::new()), "{key}");
    }

    fn read_some(&mut self, key: &str, names: &[&str]) {
        let mut words = vec!["HMGET", key];
        words.extend(names);
        let record = self.records.get(key).cloned().unwrap_or_default();
        let all = names.iter().map(|&name| Reply::Bulk(record.get(name).map(|v| v.clone().into())));
        assert_eq!(self.ask(&words), Reply::Array(all.collect()));
    }

    fn delete(&mut self, key: &str) {
        let gone = Reply::Int(i64::from(self.records.remove(key).is_some()));
        assert_eq!(self.ask(&["DEL", key]), gone);
        assert_eq!(self.ask(&["ZREM", "_indices", key]), gone);
    }

    fn scan(&mut self, start: &str, count: usize) {
        let (from, text) = Ycsb::score(start);
        let words = ["ZRANGEBYSCORE", "_indices", &text, "+inf", "LIMIT", "0", &count.to_string()];
        let reply = self.ask(&words);
        let mut all: Vec<(f64, &String)> =
            self.records.keys().map(|key| (Ycsb::score(key).0, key)).collect();
        all.retain(|found| found.0 >= from);
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let keys: Vec<String> = all.into_iter().take(count).map(|found| found.1.clone()).collect();
        assert_eq!(reply, Reply::Array(keys.iter().map(|key| bulk(key)).collect()));
        keys.iter().for_each(|key| self.read_all(key));
    }
}

/// Its load phase, then all that workloads A to F ask for.
#[test]
fn what_ycsb_sends_is_done() {
    let served = Served::new(Sync::No, 2);
    let mut ycsb = Ycsb { client: served.connect(), records: BTreeMap::new() };
    let mut runner = TestRunner::deterministic();
    let value = |runner: &mut TestRunner| draw(runner, "[ -~]{100}");
    let key = |n: u64| format!("user{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut scores, mut inserted) = ([false; 2], 0);
    for n in 0..300 {
        let fields = (0..10).map(|f| (format!("field{f}"), value(&mut runner))).collect();
        scores[usize::from(Ycsb::score(&key(n)).0 < 0.0)] = true;
        ycsb.insert(&key(n), fields);
        inserted = n + 1;
    }
    assert_eq!(scores, [true; 2], "scores of both signs");
    for _ in 0..1000 {
        let (what, n) = draw(&mut runner, (0..7, 0..inserted + 20));
        let key = key(n);
        match what {
            0 | 1 => ycsb.read_all(&key),
            2 => ycsb.read_some(&key, &["field3", "field0", "none"]),
            3 if n < inserted && ycsb.records.contains_key(&key) => {
                let fields = [(format!("field{}", n % 10), value(&mut runner))].into();
                ycsb.update(&key, fields);
            }
            4 => ycsb.insert(&key, [("field0".to_string(), value(&mut runner))].into()),
            5 => ycsb.scan(&key, 1 + n as usize % 100),
            _ => ycsb.delete(&key),
        }
    }
    assert_eq!(ycsb.ask(&["QUIT"]), ok());
    served.end();
}
