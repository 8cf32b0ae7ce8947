//! Flushes, as the drive and clients see them: whether the server has anything to do but to wait
//! for one, who is answered during the next, and who is turned away meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use btree::Sleeper;
use port::{BatchDone, BatchOp, BatchReq, Port, Ring};

use super::*;

/// What is seen of a drive, and what it may do.
struct Watch {
    sleeper: Option<Arc<Sleeper>>,
    /// Of each write, by when it came: whether the server had nothing else to do.
    said: Vec<bool>,
    /// How many writes may end still.
    may_end: usize,
}

/// A drive that is watched.
struct Watched {
    drive: Link<Batch<Device<RamMedium>>>,
    watch: Arc<Mutex<Watch>>,
    below: Ring<BatchDone>,
    /// Writes that have ended below.
    ended: VecDeque<BatchDone>,
    now: Time,
}

impl Port for Watched {
    type Cmd = BatchReq;
    type Done = BatchDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BatchReq>) {
        let is_write = |i| cmds.get(i).is_some_and(|cmd: &BatchReq| cmd.op != BatchOp::Read);
        let mut watch = self.watch.lock().unwrap();
        if (0..cmds.len()).any(is_write) {
            let is_idle = watch.sleeper.as_ref().is_some_and(|sleeper| sleeper.is_idle());
            watch.said.push(is_idle);
        }
        self.drive.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        let may_end = !self.ended.is_empty() && self.watch.lock().unwrap().may_end > 0;
        let own = may_end.then_some(self.now);
        own.into_iter().chain(self.drive.next_event()).min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BatchDone>) {
        self.now = to;
        if self.drive.next_event().is_some_and(|at| at <= to) {
            self.drive.advance(to, &mut self.below);
        }
        while let Some(one) = self.below.pop() {
            match one.op {
                BatchOp::Read => done.put(|| one),
                _ => self.ended.push_back(one),
            }
        }
        let mut watch = self.watch.lock().unwrap();
        while watch.may_end > 0
            && done.room() > 0
            && let Some(one) = self.ended.pop_front()
        {
            watch.may_end = watch.may_end.saturating_sub(1);
            done.put(|| one);
        }
    }
}

/// A server of a watched drive.
struct Rig {
    served: Served,
    watch: Arc<Mutex<Watch>>,
}

impl Rig {
    fn new(limits: Limits) -> Rig {
        let watch = Watch { sleeper: None, said: Vec::new(), may_end: usize::MAX };
        let watch = Arc::new(Mutex::new(watch));
        let theirs = watch.clone();
        let options = Options { sync: Sync::Always, limits };
        let served = Served::over(options, move |server, options, stop| {
            serve_watched(server, options, stop, theirs)
        });
        Rig { served, watch }
    }

    /// A client that has written.
    fn writer(&self) -> Client {
        let mut writer = self.served.connect();
        assert_eq!(writer.ask("SET a 1"), ok());
        writer
    }

    /// So many writes may end from now on.
    fn let_end(&self, writes: usize) {
        let mut watch = self.watch.lock().unwrap();
        watch.may_end = writes;
        watch.sleeper.as_ref().unwrap().bell().ring();
    }

    /// Writes that have begun.
    fn begun(&self) -> usize {
        self.watch.lock().unwrap().said.len()
    }

    fn wait_until_begun(&self, writes: usize) {
        while self.begun() < writes {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the server said that it had nothing else to do when a client had the last word.
    fn is_idle(&self, writer: &mut Client) -> bool {
        assert_eq!(writer.ask("SET a 1"), ok());
        *self.watch.lock().unwrap().said.last().unwrap()
    }

    /// Until it says so: a flush was short before, which is up to the machine.
    fn wait_until_idle(&self, writer: &mut Client) {
        let begin = Instant::now();
        while !self.is_idle(writer) {
            assert!(begin.elapsed() < Duration::from_secs(300), "all who are there wait");
        }
    }
}

fn serve_watched(
    server: Server,
    options: Options,
    stop: &StopHandle,
    watch: Arc<Mutex<Watch>>,
) -> Report {
    let (device, geometry) = device();
    let config = BatchConfig::for_geometry(&geometry, 0.3);
    let target = Batch::open(device, config, Time::ZERO).unwrap();
    let (shape, now) = (*target.shape(), target.now());
    let (drive, below) = (Link::new(LinkTiming::default(), target), Ring::new(shape.depth));
    let ended = VecDeque::new();
    let drive = Watched { drive, watch: watch.clone(), below, ended, now };
    let (drive, _back) = Clocked::new(drive).unwrap();
    let sleeper = drive.sleeper().clone();
    watch.lock().unwrap().sleeper = Some(sleeper.clone());
    // A log that is long enough for a test: no pages are written.
    let store = BatchStore::new(drive, shape, 256, || 0).unwrap().with_redo(4096).unwrap();
    let config = TreeConfig { memory: 3 << 20, operations: 64, dirty: 33, redo: true };
    let tree = Tree::create(Box::new(store) as AnyStore, config, sleeper.clock().now()).unwrap();
    let keys = Opened::new(tree, options.limits.clients).unwrap();
    server.run(keys, &sleeper, options, stop).unwrap().0
}

/// Sends a command.
fn send(client: &mut Client, words: &str) {
    let words: Vec<Vec<u8>> = words.split(' ').map(Vec::from).collect();
    client.sock.write_all(&encode(&words)).unwrap();
}

fn four() -> Limits {
    Limits { clients: 4, ..Limits::default() }
}

/// A sync may be made on the server's thread where all who are there wait for it, and not where
/// somebody else may ask for something.
#[test]
fn it_is_idle_while_all_wait_for_a_flush() {
    let rig = Rig::new(four());
    let mut writer = rig.writer();
    rig.wait_until_idle(&mut writer);
    let mut reader = rig.served.connect();
    for _ in 0..10 {
        let begin = Instant::now();
        assert_eq!(reader.ask("GET a"), Reply::Bulk(Some(b"1".to_vec())));
        let is_idle = rig.is_idle(&mut writer);
        let is_silent = begin.elapsed() >= Duration::from_secs(1);
        assert!(!is_idle || is_silent, "somebody else is there");
    }
    drop((writer, reader));
    rig.served.end();
}

/// Who has said nothing for a while is not waited for.
#[test]
fn it_is_idle_beside_a_silent_client() {
    let rig = Rig::new(four());
    let mut writer = rig.writer();
    let mut silent = rig.served.connect();
    assert_eq!(silent.ask("GET a"), Reply::Bulk(Some(b"1".to_vec())));
    let _never_spoke = rig.served.connect();
    rig.wait_until_idle(&mut writer);
    // It is there all the same.
    assert_eq!(silent.ask("GET a"), Reply::Bulk(Some(b"1".to_vec())));
    rig.wait_until_idle(&mut writer);
    drop((writer, silent));
    rig.served.end();
}

/// Replies that waited for a flush are sent while the next is under way, for which others wait.
#[test]
fn a_flush_answers_during_the_next() {
    let rig = Rig::new(four());
    let (mut first, mut second, mut third) = (rig.writer(), rig.writer(), rig.writer());
    for _ in 0..20 {
        rig.let_end(0);
        let begun = rig.begun();
        send(&mut first, "SET a 1");
        rig.wait_until_begun(begun + 1);
        send(&mut second, "SET b 2");
        // It was executed when who came later has an answer.
        assert_eq!(third.ask("PING"), Reply::Simple("PONG".into()));
        rig.let_end(1);
        assert_eq!(first.reply(), ok());
        rig.wait_until_begun(begun + 2);
        second.sock.set_nonblocking(true).unwrap();
        let early = second.sock.read(&mut [0; 16]);
        assert!(early.is_err(), "it is answered, and not durable");
        second.sock.set_nonblocking(false).unwrap();
        rig.let_end(usize::MAX);
        assert_eq!(second.reply(), ok());
    }
    drop((first, second, third));
    rig.served.end();
}

/// Who is turned away while it waits for a flush is not waited for, and who has its place then
/// is waited for once.
#[test]
fn who_is_turned_away_waits_for_nothing() {
    let limits = Limits { clients: 2, memory: 1 << 20, ..Limits::default() };
    let rig = Rig::new(limits);
    let mut writer = rig.writer();
    for round in 0..20 {
        let mut greedy = rig.writer();
        rig.let_end(0);
        let begun = rig.begun();
        send(&mut greedy, "SET a 1");
        rig.wait_until_begun(begun + 1);
        // What it says next is more than all may have.
        let long = vec![7; 900 << 10];
        let words: [&[u8]; 5] = [b"MSET", b"b", &long, b"c", &long];
        let words = words.map(<[u8]>::to_vec);
        // It is closed while it speaks.
        let _ = greedy.sock.write_all(&encode(&words)[..1 << 20]);
        assert!(greedy.is_closed(), "round {round}");
        let mut next = rig.served.connect();
        send(&mut next, "SET a 2");
        assert_eq!(writer.ask("PING"), Reply::Simple("PONG".into()));
        rig.let_end(usize::MAX);
        assert_eq!(next.reply(), ok());
        assert_eq!((next.ask("SET a 3"), writer.ask("SET a 4")), (ok(), ok()));
        assert_eq!(next.ask("QUIT"), ok());
        assert!(next.is_closed());
    }
    drop(writer);
    assert_eq!(rig.served.end().evicted, 20);
}
