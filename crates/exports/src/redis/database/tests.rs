//! Turns, locks and what a call takes, on a store in memory.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use btree::store::{Ticks, seal};
use btree::{
    AnyStore, FRAME_BYTES, PAGE_BYTES, PageStore, StoreDone, StoreError, Tree, TreeConfig,
};
use port::{Buffer, Ring};

use super::*;
use crate::redis::command::find;
use crate::redis::resp::Parser;

/// Keeps pages in memory; all that is asked for is there at the next poll.
#[derive(Default)]
pub struct Pages {
    pages: Rc<RefCell<HashMap<u64, Vec<u8>>>>,
    out: VecDeque<StoreDone>,
    /// Why nothing is written any more.
    pub full: Rc<Cell<Option<StoreError>>>,
    /// A page that cannot be read; 0 for none.
    lost: Rc<Cell<u64>>,
    /// How many there are; many where 0.
    count: u64,
    /// Flushes wait until they may end.
    pub is_held: Rc<Cell<bool>>,
    flushes: VecDeque<u32>,
}

impl Pages {
    /// Another store of the same pages.
    fn again(&self) -> Pages {
        let Pages { pages, full, lost, count, .. } = self;
        let (pages, full, lost) = (pages.clone(), full.clone(), lost.clone());
        Pages { pages, full, lost, count: *count, ..Pages::default() }
    }
}

impl PageStore for Pages {
    fn pages(&self) -> u64 {
        if self.count > 0 { self.count } else { 1 << 20 }
    }

    fn max_batch(&self) -> usize {
        256
    }

    fn can_read(&self) -> bool {
        true
    }

    fn read(&mut self, page: u64, mut buffer: Buffer) -> Result<(), Buffer> {
        buffer.bytes_mut().copy_from_slice(&self.pages.borrow()[&page]);
        let is_lost = page > 0 && page == self.lost.get();
        let result = if is_lost { Err(StoreError::Damaged { page }) } else { Ok(()) };
        self.out.push_back(StoreDone::Read { page, buffer, result });
        Ok(())
    }

    fn can_write(&self) -> bool {
        true
    }

    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
        for (i, &page) in pages.iter().enumerate() {
            let mut bytes = vec![0; PAGE_BYTES];
            copy(i, &mut bytes);
            seal(page, &mut bytes);
            self.pages.borrow_mut().insert(page, bytes);
        }
        let result = self.full.get().map_or(Ok(()), Err);
        self.out.push_back(StoreDone::Write { id, result });
    }

    fn flush(&mut self, id: u32) -> bool {
        self.flushes.push_back(id);
        true
    }

    fn poll(&mut self, _now: Time, done: &mut Ring<StoreDone>) {
        while !self.is_held.get()
            && let Some(id) = self.flushes.pop_front()
        {
            let result = self.full.get().map_or(Ok(()), Err);
            self.out.push_back(StoreDone::Flush { id, result });
        }
        while done.room() > 0
            && let Some(one) = self.out.pop_front()
        {
            done.put(|| one);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let is_flushing = !(self.flushes.is_empty() || self.is_held.get());
        (is_flushing || !self.out.is_empty()).then_some(Time::ZERO)
    }

    fn wait(&mut self) -> Option<Time> {
        self.next_event()
    }

    fn memory(&self) -> u64 {
        0
    }

    fn ticks(&self) -> Ticks {
        Ticks::default()
    }
}

/// A command of a seat, as its client would keep it.
struct Seat {
    bytes: Vec<u8>,
    parser: Parser,
    out: Rope,
    is_busy: bool,
    /// The most that one call took, in bytes.
    most: u64,
    /// What the reply waits for.
    seen: Token,
}

struct Rig {
    database: Database,
    full: Rc<Cell<Option<StoreError>>>,
    seats: Vec<Seat>,
}

pub fn tree_config() -> TreeConfig {
    let memory = 3000 * FRAME_BYTES + 64 * 256;
    TreeConfig { memory, operations: 64, ..TreeConfig::default() }
}

impl Rig {
    fn new(seats: u32) -> Rig {
        Rig::on(Pages::default(), seats)
    }

    fn on(pages: Pages, seats: u32) -> Rig {
        let full = pages.full.clone();
        let tree = Tree::create(Box::new(pages) as AnyStore, tree_config(), Time::ZERO).unwrap();
        Rig { full, ..Rig::of(Database::open(tree.into(), seats as usize).unwrap(), seats) }
    }

    fn of(database: Database, seats: u32) -> Rig {
        let seat = |_| Seat {
            bytes: Vec::new(),
            parser: Parser::default(),
            out: Rope::default(),
            is_busy: false,
            most: 0,
            seen: Token::NONE,
        };
        Rig { database, full: Rc::default(), seats: (0..seats).map(seat).collect() }
    }

    /// Calls the database for a seat.
    fn call(&mut self, seat: u32, begins: bool) {
        let s = &mut self.seats[seat as usize];
        let args = s.parser.args(&s.bytes);
        let progress = if begins {
            self.database.begin(seat, find(args).unwrap(), args, &mut s.out).unwrap()
        } else {
            self.database.go_on(seat, args, &mut s.out)
        };
        s.most = s.most.max(self.database.spent());
        s.is_busy = progress == Progress::Waits;
        if let Progress::Done(seen) = progress {
            s.seen = seen;
        }
    }

    /// Begins a command.
    fn begin(&mut self, seat: u32, words: &[&[u8]]) {
        let s = &mut self.seats[seat as usize];
        assert!(!s.is_busy);
        s.bytes.clear();
        s.out = Rope::default();
        s.parser = Parser::default();
        s.bytes.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            s.bytes.extend(format!("${}\r\n", word.len()).bytes());
            s.bytes.extend_from_slice(word);
            s.bytes.extend(b"\r\n");
        }
        assert!(s.parser.parse(&s.bytes).unwrap());
        self.call(seat, true);
    }

    /// Polls, and gives turns until `calls` were made or none is ready.
    fn step(&mut self, calls: usize) {
        self.database.poll(Time::ZERO);
        for _ in 0..calls {
            let Some(seat) = self.database.next_ready() else { return };
            if self.seats[seat as usize].is_busy {
                self.call(seat, false);
            }
        }
    }

    /// Does a command to its end; gives the reply.
    fn ask(&mut self, seat: u32, words: &[&[u8]]) -> String {
        self.begin(seat, words);
        for _ in 0..1_000_000 {
            if !self.seats[seat as usize].is_busy {
                let out = &self.seats[seat as usize].out;
                return String::from_utf8_lossy(out.first(out.end())).into();
            }
            self.step(1);
        }
        panic!("it does not end");
    }

    /// Sorted sets of so many members each.
    fn sets(&mut self, names: &[&str], members: usize) {
        for name in names {
            for first in (0..members).step_by(10) {
                let all: Vec<String> = (first..members.min(first + 10))
                    .flat_map(|i| [i.to_string(), format!("member{i}")])
                    .collect();
                let mut words = vec![&b"ZADD"[..], name.as_bytes()];
                words.extend(all.iter().map(String::as_bytes));
                assert_eq!(self.ask(0, &words), ":10\r\n");
            }
        }
    }
}

/// Some that take long and again and again have more to do keep out nobody who
/// has waited for a lock.
#[test]
fn who_waited_for_a_lock_has_its_turn_beside_those_who_go_on() {
    let mut rig = Rig::new(6);
    rig.sets(&["a", "b", "c"], 6000);
    let range = |set: &'static str| -> [&[u8]; 7] {
        [b"ZRANGEBYSCORE", set.as_bytes(), b"-inf", b"+inf", b"LIMIT", b"5999", b"1"]
    };
    for (seat, set) in [(0, "a"), (1, "b"), (2, "c")] {
        rig.begin(seat, &range(set));
        assert!(rig.seats[seat as usize].is_busy, "it takes more than a slice");
    }
    // Seat 4 waits for what 3 holds.
    rig.begin(3, &[b"DEL", b"c"]);
    rig.begin(4, &[b"SET", b"c", b"1"]);
    assert!(rig.seats[4].is_busy);
    let mut steps = 0;
    while rig.seats[4].is_busy {
        // There is never time for more than one call.
        rig.step(1);
        for (seat, set) in [(0, "a"), (1, "b"), (2, "a")] {
            if !rig.seats[seat as usize].is_busy {
                rig.begin(seat, &range(set));
            }
        }
        steps += 1;
        assert!(steps < 20_000, "it never has its turn");
    }
}

/// What cannot be read is an error for who asks for it; all else is served.
#[test]
fn a_page_that_cannot_be_read_costs_its_own_keys() {
    const KEYS: usize = 400;
    let pages = Pages::default();
    let mut rig = Rig::on(pages.again(), 1);
    let key = |i: usize| format!("key{i:04}");
    for i in 0..KEYS {
        assert_eq!(rig.ask(0, &[b"SET", key(i).as_bytes(), &[b'v'; 100]]), "+OK\r\n");
    }
    rig.database.flush();
    rig.step(0);
    let (mut served, count) = (0, rig.database.records().tree().unwrap().pages());
    for page in 1..count {
        pages.lost.set(page);
        let tree = Tree::open(Box::new(pages.again()) as AnyStore, tree_config(), Time::ZERO);
        // Without the root, or what says whose keys these are, there is nothing.
        let Ok(database) = Database::open(tree.unwrap().into(), 1) else { continue };
        assert!(database.uncounted().is_some() && database.keys() < KEYS as u64);
        let mut rig = Rig::of(database, 1);
        let answers: Vec<String> =
            (0..KEYS).map(|i| rig.ask(0, &[b"GET", key(i).as_bytes()])).collect();
        let good = answers.iter().filter(|answer| answer.starts_with("$100\r\n")).count();
        let errors = answers.iter().filter(|answer| answer.starts_with("-ERR page")).count();
        assert!(good + errors == KEYS && (1..50).contains(&errors), "{errors} of page {page}");
        served += 1;
    }
    assert!(served + 3 >= count, "{served} of {count}");
}

/// One record is read at once, whatever others hold or wait for.
#[test]
fn reads_of_one_record_wait_for_nobody() {
    let mut rig = Rig::new(4);
    rig.sets(&["set"], 2000);
    assert_eq!(rig.ask(0, &[b"SET", b"zother", b"7"]), "+OK\r\n");
    assert_eq!(rig.ask(0, &[b"HSET", b"zhash", b"f", b"8"]), ":1\r\n");
    for long in [&[&b"DEL"[..], b"set", b"x", b"y"][..], &[b"FLUSHALL"]] {
        for i in 0..2000 {
            rig.ask(0, &[b"SET", format!("first{i}").as_bytes(), b""]);
        }
        rig.begin(0, long);
        assert!(rig.seats[0].is_busy, "it takes more than a slice");
        rig.begin(1, &[b"MGET", b"zother", b"x"]);
        assert!(rig.seats[1].is_busy, "of several keys: it waits");
        assert_eq!(rig.ask(2, &[b"GET", b"zother"]), "$1\r\n7\r\n");
        assert_eq!(rig.ask(2, &[b"HGET", b"zhash", b"f"]), "$1\r\n8\r\n");
        let kind = rig.ask(2, &[b"TYPE", b"set"]);
        assert!(["+zset\r\n", "+none\r\n"].contains(&&*kind), "before or after: {kind}");
        let newest = rig.database.tokens.newest();
        assert_eq!(rig.seats[2].seen, newest, "it may have seen what is not known to be written");
        assert!(rig.database.tokens.wants_flush(), "so a flush comes");
        assert!(rig.seats[0].is_busy && rig.seats[1].is_busy);
        while rig.seats.iter().any(|seat| seat.is_busy) {
            rig.step(1);
        }
        rig.sets(&["set"], 2000);
        rig.ask(0, &[b"SET", b"zother", b"7"]);
        rig.ask(0, &[b"HSET", b"zhash", b"f", b"8"]);
    }
    rig.database.flush();
    assert_eq!(rig.ask(2, &[b"GET", b"zother"]), "$1\r\n7\r\n");
    assert_eq!(rig.seats[2].seen, rig.database.tokens.newest(), "nobody writes");
    assert!(!rig.database.tokens.wants_flush());
}

/// Who waits for a lock can go; then it holds and blocks nothing.
#[test]
fn what_waits_for_a_lock_can_be_ended() {
    let mut rig = Rig::new(4);
    rig.sets(&["set"], 2000);
    rig.begin(0, &[b"DEL", b"set"]);
    assert!(!rig.database.cancel(0), "it has its locks");
    let large = vec![b'x'; 60_000];
    rig.begin(1, &[b"MSET", b"set", &large, b"b", &large]);
    rig.begin(2, &[b"FLUSHALL"]);
    rig.begin(3, &[b"SET", b"c", b"1"]);
    assert!(rig.seats.iter().all(|seat| seat.is_busy));
    for seat in [2, 1] {
        assert!(rig.database.cancel(seat));
        rig.seats[seat as usize].is_busy = false;
        rig.database.leave(seat);
        assert_eq!(rig.database.memory(seat), 0);
    }
    for _ in 0..100_000 {
        rig.step(1);
    }
    assert!(!rig.seats.iter().any(|seat| seat.is_busy));
    assert_eq!(rig.ask(0, &[b"EXISTS", b"set", b"b", b"c"]), ":1\r\n");
}

/// What only reads, and nobody waits for, ends at its next turn; what writes does not.
#[test]
fn what_only_reads_ends_where_nobody_waits() {
    let mut rig = Rig::new(2);
    let value = vec![b'x'; 60_000];
    rig.ask(0, &[b"HSET", b"hash", b"f", &value]);
    rig.sets(&["set"], 2000);
    let mut words = vec![&b"HMGET"[..], b"hash"];
    words.extend((0..300).map(|_| &b"f"[..]));
    rig.begin(0, &words);
    rig.begin(1, &[b"DEL", b"set"]);
    assert!(rig.database.refuse(0) && !rig.database.refuse(1));
    rig.step(2);
    assert!(!rig.seats[0].is_busy && rig.seats[0].out.len() < value.len() * 20);
    while rig.seats[1].is_busy {
        rig.step(1);
    }
    assert_eq!(rig.ask(0, &[b"EXISTS", b"set"]), ":0\r\n");
}

/// What a call does is about a slice, and linear in the command's own bytes.
#[test]
fn a_call_takes_a_slice_of_work() {
    let mut rig = Rig::new(1);
    rig.sets(&["set", "sets"], 2000);
    let names: Vec<String> = (0..4000).map(|i| format!("key{i}")).collect();
    let many = |name: &'static [u8]| {
        std::iter::once(name).chain(names.iter().map(String::as_bytes)).collect::<Vec<_>>()
    };
    let commands =
        [many(b"MGET"), many(b"EXISTS"), many(b"DEL"), vec![b"DEL", b"set"], vec![b"FLUSHALL"]];
    for words in commands {
        rig.seats[0].most = 0;
        rig.ask(0, &words);
        let bytes = words.len() as u64 * (LOCK + OPERATION);
        let most = rig.seats[0].most;
        assert!(most > 0 && most <= SLICE + bytes + (128 << 10), "{most} by {:?}", words[0]);
    }
}

/// A command that has much to give begins with little of it, so that a hundred
/// of them that come together hold nobody up.
#[test]
fn what_begins_takes_little_at_once() {
    let mut rig = Rig::new(1);
    let (value, times) = (vec![b'x'; 60_000], 300);
    assert_eq!(rig.ask(0, &[b"HSET", b"hash", b"f", &value]), ":1\r\n");
    let mut words = vec![&b"HMGET"[..], b"hash"];
    words.extend((0..times).map(|_| &b"f"[..]));
    rig.seats[0].most = 0;
    rig.begin(0, &words);
    let first = rig.seats[0].most;
    assert!(rig.seats[0].is_busy && first <= 4 * FIRST, "{first} bytes");
    while rig.seats[0].is_busy {
        rig.step(1);
    }
    assert_eq!(
        rig.seats[0].out.len(),
        "*300\r\n".len() + times * ("$60000\r\n\r\n".len() + 60_000)
    );
}

/// A store that finds no room is an error in the replies of those who write,
/// with the reason; nobody waits, and reads go on.
#[test]
fn no_space_is_an_answer() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.ask(0, &[b"SET", b"a", b"1"]), "+OK\r\n");
    let full = StoreError::NoSpace { segments: 5, of: 20, block: 128 };
    rig.full.set(Some(full));
    rig.database.flush();
    rig.step(1);
    assert!(matches!(rig.database.flushed(), Some(Err(TreeError::Store(error))) if error == full));
    for words in [&[&b"SET"[..], b"a", b"2"][..], &[b"HSET", b"h", b"f", b"2"], &[b"DEL", b"a"]] {
        assert_eq!(rig.ask(0, words), format!("-ERR {full}\r\n"));
    }
    assert_eq!(rig.ask(0, &[b"GET", b"a"]), "$1\r\n1\r\n");
}

/// Options of SET and ZADD, and scores, as Redis takes them.
#[test]
fn sets_are_written_as_redis_does() {
    let mut rig = Rig::new(1);
    let mut ask = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        rig.ask(0, &words).trim_end().replace("\r\n", " ")
    };
    let (syntax, float) = ("-ERR syntax error", "-ERR value is not a valid float");
    let both = "-ERR XX and NX options at the same time are not compatible";
    let several = "-ERR GT, LT, and/or NX options at the same time are not compatible";
    let cases = [
        ("SET k v NX XX", syntax),
        ("SET k v XX NX", syntax),
        ("SET k v NX nx", "+OK"),
        ("ZADD k 1e999 m", float),
        ("ZADD k 1 m", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("ZADD s XX 1 a", ":0"),
        ("EXISTS s", ":0"),
        ("ZADD s XX INCR 1 a", "$-1"),
        ("ZADD s NX XX 1 a", both),
        ("ZADD s NX GT 1 a", several),
        ("ZADD s LT NX 1 a", several),
        ("ZADD s GT lt 1 a", several),
        ("ZADD s GT XX 1", syntax),
        ("ZADD s NX CH", syntax),
        ("ZADD s INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
        ("ZADD s NX 1 a nan b", float),
        ("ZADD s NX 1 a 2 a 3 b", ":2"),
        ("ZSCORE s a", "$1 1"),
        ("ZADD s NX 9 a", ":0"),
        ("ZADD s XX 2 a 7 c", ":0"),
        ("ZCARD s", ":2"),
        ("ZADD s GT CH 2 a 1 a 5 b 1 d", ":2"),
        ("ZADD s LT CH 2 a 4 b 4 b 0 d", ":2"),
        ("ZADD s GT XX CH 3 a 3 e", ":1"),
        ("ZRANGEBYSCORE s -inf +inf WITHSCORES", "*6 $1 d $1 0 $1 a $1 3 $1 b $1 4"),
        ("ZADD s CH 6 f 7 f", ":2"),
        ("ZSCORE s f", "$1 7"),
        ("ZADD s INCR -4.5 f", "$3 2.5"),
        ("ZADD s NX INCR 1 f", "$-1"),
        ("ZADD s GT INCR -1 f", "$-1"),
        ("ZADD s LT INCR -1 f", "$3 1.5"),
        ("ZADD s INCR +inf f", "$3 inf"),
        ("ZADD s INCR -inf f", "-ERR resulting score is not a number (NaN)"),
        ("ZSCORE s f", "$3 inf"),
        ("ZADD s -INFINITY g 1e308 h -1e-320 i", ":3"),
        ("ZRANGEBYSCORE s -inf (0", "*2 $1 g $1 i"),
        ("ZRANGEBYSCORE s 1e308 1e400", "*2 $1 h $1 f"),
        ("ZCARD s", ":7"),
        // A member may have the name of an option, a score may not.
        ("ZADD o 1 NX 2 nx", ":2"),
        ("ZADD o CH 1 NX 3 nx", ":1"),
        ("ZADD o CH CH CH", syntax),
        ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command"),
        ("HSET k a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        // What is wrong with options, then with bounds, then with the key.
        ("ZRANGEBYSCORE k x 1 LIMIT 1", syntax),
        ("ZRANGEBYSCORE k x 1 LIMIT a", syntax),
        ("ZRANGEBYSCORE k x 1 foo", syntax),
        ("ZRANGEBYSCORE k x 1 LIMIT a b", "-ERR value is not an integer or out of range"),
        ("ZRANGEBYSCORE k x 1", "-ERR min or max is not a float"),
        (
            "ZRANGEBYSCORE k 0 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("ZADD t 1e17 a", ":1"),
        ("ZRANGEBYSCORE t ( +inf", "*1 $1 a"),
        ("ZSCORE t a", "$5 1e+17"),
    ];
    for (line, reply) in cases {
        assert_eq!(ask(line), reply, "{line}");
    }
}

/// A store of few pages that has taken keys until it refused: sorted sets, and others
/// between them. Gives the number of sorted sets.
fn full(rig: &mut Rig, members: usize, others: bool) -> usize {
    for set in 0.. {
        if others {
            let (name, value) = (format!("set{set:03}x"), vec![b'v'; 40 * set % 3000]);
            if !rig.ask(0, &[b"SET", name.as_bytes(), &value]).starts_with("+OK") {
                return set;
            }
        }
        for i in 0..members {
            let name = format!("set{set:03}");
            let (score, member) = ((i * 7919 % 1000).to_string(), format!("member{i:020}"));
            let reply =
                rig.ask(0, &[b"ZADD", name.as_bytes(), score.as_bytes(), member.as_bytes()]);
            if reply != ":1\r\n" {
                assert!(reply.contains("pages are in use"), "{reply}");
                return set + usize::from(i > 0);
            }
        }
    }
    unreachable!("it has an end")
}

/// What only deletes is done on a full store, too: all of it can be emptied.
#[test]
fn a_full_store_is_emptied() {
    for (members, others) in [(1_000_000, false), (40, false), (200, true)] {
        for how in ["ZREM", "DEL", "FLUSHALL"] {
            let pages = Pages { count: 60, ..Pages::default() };
            let mut rig = Rig::on(pages, 1);
            let sets = full(&mut rig, members, others);
            for set in (0..sets).filter(|_| how != "FLUSHALL") {
                let name = format!("set{set:03}");
                if how == "DEL" {
                    assert_eq!(rig.ask(0, &[b"DEL", name.as_bytes()]), ":1\r\n", "{name}");
                }
                for i in (0..members).filter(|_| how == "ZREM") {
                    let member = format!("member{i:020}");
                    let reply = rig.ask(0, &[b"ZREM", name.as_bytes(), member.as_bytes()]);
                    if reply == ":0\r\n" {
                        break;
                    }
                    assert_eq!(reply, ":1\r\n", "{member} of {name}");
                }
                let others = rig.ask(0, &[b"DEL", format!("{name}x").as_bytes()]);
                assert!(others.starts_with(':'), "{others}");
            }
            assert_eq!(rig.ask(0, &[b"FLUSHALL"]), "+OK\r\n", "{members} {how}");
            assert_eq!(rig.ask(0, &[b"DBSIZE"]), ":0\r\n");
            assert_eq!(full(&mut rig, members, others), sets, "nothing is left in use");
        }
    }
}

/// Where no page is left, what gets shorter is done.
#[test]
fn what_gets_shorter_is_done_where_it_is_full() {
    let pages = Pages { count: 60, ..Pages::default() };
    let mut rig = Rig::on(pages, 1);
    let (long, piece) = (vec![b'v'; 12_000], vec![b'w'; 1500]);
    assert_eq!(rig.ask(0, &[b"SET", b"long", &long]), "+OK\r\n");
    for field in [b"a", b"b", b"c", b"d", b"e"] {
        assert_eq!(rig.ask(0, &[b"HSET", b"hash", field, &piece]), ":1\r\n");
    }
    for len in [3000, 1000, 10] {
        let mut i = 0;
        while rig.ask(0, &[b"SET", format!("k{len}.{i}").as_bytes(), &long[..len]]) == "+OK\r\n" {
            i += 1;
        }
    }
    for field in [b"b", b"d", b"a", b"c"] {
        assert_eq!(rig.ask(0, &[b"HDEL", b"hash", field]), ":1\r\n");
    }
    assert_eq!(rig.ask(0, &[b"HGET", b"hash", b"e"]).len(), 1500 + "$1500\r\n\r\n".len());
    assert_eq!(rig.ask(0, &[b"SET", b"long", b"1"]), "+OK\r\n");
    assert_eq!(rig.ask(0, &[b"GET", b"long"]), "$1\r\n1\r\n");
}

/// What finds no room leaves the sorted set that it was to replace; where the set itself gives up
/// enough, there is room.
#[test]
fn a_sorted_set_outlives_what_has_no_room_in_its_place() {
    let pages = Pages { count: 60, ..Pages::default() };
    let mut rig = Rig::on(pages, 1);
    for i in 0..50 {
        let member = format!("member{i}");
        assert_eq!(rig.ask(0, &[b"ZADD", b"z", b"1", member.as_bytes()]), ":1\r\n");
    }
    let (long, some) = (vec![b'w'; 60_000], vec![b'v'; 3000]);
    let mut i = 0;
    while rig.ask(0, &[b"SET", format!("k{i}").as_bytes(), &some]) == "+OK\r\n" {
        i += 1;
    }
    for words in [&[b"SET", &b"z"[..], &long][..], &[b"MSET", b"q", &long, b"z", &long]] {
        let reply = rig.ask(0, words);
        assert!(reply.contains("pages are in use"), "{reply}");
        assert_eq!(rig.ask(0, &[b"ZCARD", b"z"]), ":50\r\n");
    }
    assert_eq!(rig.ask(0, &[b"EXISTS", b"q"]), ":0\r\n");
    // More than one batch may change, with room for all.
    let mut rig = Rig::on(Pages::default(), 1);
    assert_eq!(rig.ask(0, &[b"ZADD", b"z", b"1", b"m"]), ":1\r\n");
    let names: Vec<String> = (0..200).map(|i| format!("n{i}")).collect();
    let mut words = vec![&b"MSET"[..], b"z", b"1"];
    names.iter().for_each(|name| words.extend([name.as_bytes(), &long[..9000]]));
    let reply = rig.ask(0, &words);
    assert!(reply.contains("are the most"), "{reply}");
    assert_eq!(rig.ask(0, &[b"ZCARD", b"z"]), ":1\r\n");

    // A value needs room beside the set whose place it takes.
    let pages = Pages { count: 60, ..Pages::default() };
    let mut rig = Rig::on(pages, 1);
    assert_eq!(full(&mut rig, 1_000_000, false), 1);
    let members = rig.ask(0, &[b"ZCARD", b"set000"]);
    assert!(rig.ask(0, &[b"SET", b"set000", &long[..12_000]]).contains("pages are in use"));
    assert_eq!(rig.ask(0, &[b"ZCARD", b"set000"]), members);
    assert_eq!(rig.ask(0, &[b"DEL", b"set000"]), ":1\r\n");
    assert_eq!(rig.ask(0, &[b"SET", b"set000", &long[..12_000]]), "+OK\r\n");
    assert_eq!(rig.ask(0, &[b"DBSIZE"]), ":1\r\n");
}

/// What a cut leaves between the end of a set and that of its members.
#[test]
fn members_of_a_set_that_ended_are_of_no_other() {
    let mut rig = Rig::new(1);
    let cut = |rig: &mut Rig, key: &[u8]| {
        let Database { records, inbox, common, .. } = &mut rig.database;
        (inbox.mails[0].outstanding, inbox.current) = (1, Some(0));
        records.delete(0, key, inbox).unwrap();
        inbox.current = None;
        common.keys -= 1;
    };
    for (name, record) in [("z", &b"kz"[..]), ("", b"k")] {
        rig.sets(&[name], 30);
        let name = name.as_bytes();
        cut(&mut rig, record);
        for words in [&[b"ZCARD", name][..], &[b"ZADD", name, b"XX", b"7", b"member7"]] {
            assert_eq!(rig.ask(0, words), ":0\r\n");
        }
        assert_eq!(rig.ask(0, &[b"ZADD", name, b"5", b"new"]), ":1\r\n");
        assert_eq!(rig.ask(0, &[b"ZSCORE", name, b"member7"]), "$-1\r\n");
        let all = rig.ask(0, &[b"ZRANGEBYSCORE", name, b"-inf", b"inf"]);
        assert_eq!(all, "*1\r\n$3\r\nnew\r\n");
        // A string takes its place whole, and its end is that of the members, too.
        assert_eq!(rig.ask(0, &[b"MSET", name, b"1", name, b"2"]), "+OK\r\n");
        assert_eq!(rig.ask(0, &[b"GET", name]), "$1\r\n2\r\n");
        assert_eq!(rig.ask(0, &[b"DEL", name, name]), ":1\r\n");
    }
    let pages = |rig: &Rig| rig.database.records.tree().unwrap().pages();
    let empty = pages(&rig);
    rig.sets(&["a", "b"], 3000);
    cut(&mut rig, b"ka");
    assert_eq!(rig.ask(0, &[b"FLUSHALL"]), "+OK\r\n");
    assert_eq!(rig.ask(0, &[b"DBSIZE"]), ":0\r\n");
    assert!(pages(&rig) <= empty + 2, "the members went, too: {}", pages(&rig));
}
