//! What clients see, and when, on a store whose flushes end when they may.

use std::cell::Cell;
use std::rc::Rc;

use btree::{AnyStore, StoreError, Tree};

use super::*;
use crate::redis::database::tests::{Pages, tree_config};
use crate::redis::mutation::{self, Mutation};

struct Rig {
    local: Local,
    is_held: Rc<Cell<bool>>,
    full: Rc<Cell<Option<StoreError>>>,
}

const FULL: StoreError = StoreError::NoSpace { segments: 5, of: 20, block: 128 };
const CLOSED: &str = "(closed)";

impl Rig {
    /// A server of three clients, on which `a` is 1 and durable. Flushes are held from now on.
    fn new() -> Rig {
        let pages = Pages::default();
        let (is_held, full) = (pages.is_held.clone(), pages.full.clone());
        let tree = Tree::create(Box::new(pages) as AnyStore, tree_config(), Time::ZERO).unwrap();
        let local = Local::new(Opened::new(tree, 3).unwrap(), 3);
        let mut rig = Rig { local, is_held, full };
        rig.ask(0, "SET a 1");
        rig.settle();
        assert_eq!(rig.sees(0), "+OK ");
        rig.is_held.set(true);
        rig
    }

    /// A client begins a command, and all happens that can.
    fn ask(&mut self, who: usize, words: &str) {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        assert!(self.local.ask(who, &words), "it executes another");
        self.settle();
        assert!(!self.local.is_busy(who), "execution waits for no flush");
    }

    fn settle(&mut self) {
        self.local.poll(Time::ZERO);
        while self.local.next_event().is_some() {
            self.local.poll(Time::ZERO);
        }
    }

    /// What a client sees anew.
    fn sees(&mut self, who: usize) -> String {
        let mut bytes = Vec::new();
        let ended = self.local.replies(who, &mut bytes);
        let words = String::from_utf8(bytes).unwrap().replace("\r\n", " ");
        if ended.is_ok() { words } else { words + CLOSED }
    }

    fn release(&mut self) {
        self.is_held.set(false);
        self.settle();
    }
}

/// Whatever tells of a write waits for that: its own reply, reads of it, the number of keys, a
/// scan; what does not tell of it goes out at once.
#[test]
fn what_tells_of_a_write_waits_for_it() {
    let mut rig = Rig::new();
    rig.ask(0, "SET b 2");
    let telling = ["GET b", "STRLEN b", "MGET a b", "EXISTS b", "SETNX b 3", "INCR b", "DBSIZE"];
    for words in telling.into_iter().chain(["SCAN 0", "TYPE b", "HGET b f", "DEL b"]) {
        rig.ask(1, words);
        assert_eq!(rig.sees(1), "", "{words}");
    }
    for (words, reply) in
        [("GET a", "$1 1 "), ("GET c", "$-1 "), ("NONE", "-ERR unknown command 'NONE' ")]
    {
        rig.ask(2, words);
        assert_eq!(rig.sees(2), reply);
    }
    assert_eq!(rig.sees(0), "");
    rig.release();
    assert_eq!(rig.sees(0), "+OK ");
    assert!(rig.sees(1).starts_with("$1 2 :1 *2 $1 1 $1 2 :1 :0 :3 :2 *2 "));
}

/// A client's replies come in their order, also those that wait for nothing.
#[test]
fn replies_keep_their_order() {
    let mut rig = Rig::new();
    for words in ["GET a", "SET b 2", "GET a", "SET c 3", "NONE"] {
        rig.ask(0, words);
    }
    assert_eq!(rig.sees(0), "$1 1 ");
    rig.release();
    assert_eq!(rig.sees(0), "+OK $1 1 +OK -ERR unknown command 'NONE' ");
}

/// A flush fails: who waits for it hears that in the place of the first reply, and nothing more; who asks later has an error in the place
/// of what would tell of what is lost, and all else goes on.
#[test]
fn what_failed_is_never_seen() {
    let mut rig = Rig::new();
    for (who, words) in [(0, "GET a"), (0, "SET b 2"), (0, "GET a"), (1, "GET b")] {
        rig.ask(who, words);
    }
    assert_eq!((rig.sees(0), rig.sees(1)), ("$1 1 ".into(), String::new()));
    rig.full.set(Some(FULL));
    rig.release();
    for who in [0, 1] {
        let last = rig.sees(who);
        assert!(last.starts_with("-ERR the store failed to make durable"), "{last}");
        assert!(last.ends_with(&format!(" start it again {CLOSED}")), "{last}");
        assert_eq!(rig.sees(who), CLOSED);
    }
    assert_eq!(rig.local.failed(), Some(&TreeError::Store(FULL)));
    for (words, is_seen) in [
        ("GET a", true),
        ("GET b", false),
        ("STRLEN b", false),
        ("DBSIZE", false),
        ("SCAN 0", false),
        ("SET a 5", false),
        ("GET a", true),
        ("GET d", true),
    ] {
        rig.ask(2, words);
        let reply = rig.sees(2);
        assert_eq!(
            !reply.starts_with("-ERR the store failed"),
            is_seen || words == "SET a 5",
            "{words}: {reply}"
        );
        assert!(is_seen || reply.starts_with("-ERR"), "{words}: {reply}");
    }
}

/// The tests above see each way in which these promises were broken or could be.
#[test]
fn broken_promises_show() {
    for &broken in &Mutation::ALL[..4] {
        mutation::set(Some(broken));
        let mut rig = Rig::new();
        rig.ask(0, "SET b 2");
        for words in ["GET b", "DBSIZE"] {
            rig.ask(1, words);
        }
        let early = rig.sees(0) + &rig.sees(1);
        rig.full.set(Some(FULL));
        rig.release();
        rig.ask(2, "GET b");
        let late = rig.sees(2);
        mutation::set(None);
        let shows = match broken {
            Mutation::ReleaseEarly => early == "+OK $1 2 :2 ",
            Mutation::ReadUntied => early == "$1 2 ",
            // Behind a reply that waits: alone it would be out.
            Mutation::SizeUntied => early.is_empty(),
            Mutation::FailedShown => late == "$1 2 ",
            _ => unreachable!("it is not of when replies are seen"),
        };
        assert!(shows, "{broken:?}: {early:?}, {late:?}");
    }
}
