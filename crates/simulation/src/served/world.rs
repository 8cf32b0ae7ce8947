//! Clients of a server over a drive, its power, and a host that remembers what they saw.
//!
//! Each reply must have the shape that its command's has; an error is one where a write or
//! flush has failed, and nowhere else.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use btree::AnyStore;
use exports::redis::{Local, Opened};
use workload::Rng;

use super::Served;
use super::model::{Model, Moment, What};
use super::reply::Reply;
use crate::life::Living;
use crate::machine::{Violation, wrong};
use crate::tree::pages::Pages;
use crate::tree::site::Site;
use crate::trouble::Troubles;

/// Polls after which a server is said to hang: no time passed in them.
pub(super) const PATIENCE: u32 = 100_000;

/// What a command is about.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// Writes: of each the key and which of its writes it is.
    Writes(Vec<(u64, usize)>),
    /// One that takes a key away.
    Delete(u64, usize),
    /// One that is made where the key is not there.
    IfMissing(u64, usize),
    /// What it had been seen to have before.
    CountUp(u64, u64),
    Counter(u64, u64),
    Values(Vec<u64>),
    IsThere(u64),
    Size,
    All,
}

/// A command whose reply was not seen.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    about: About,
    begin: Moment,
    /// When it was executed, once it was.
    end: Option<Moment>,
}

/// A client.
#[derive(Default)]
pub(super) struct Client {
    pub asked: VecDeque<Asked>,
    bytes: Vec<u8>,
    pub is_closed: bool,
}

/// A server, its drive, and clients.
pub struct World {
    /// What clients do.
    pub served: Served,
    /// Where the store stands.
    pub site: Site,
    pub(super) local: Option<Local>,
    pub(super) clients: Vec<Client>,
    pub(super) model: Model,
    moment: Moment,
    /// Writes and flushes of the store until one fails.
    pub(super) left: Rc<Cell<u64>>,
    pub(super) looks: u32,
}

pub(super) fn key_bytes(key: u64) -> Vec<u8> {
    format!("k{key}").into_bytes()
}

pub(super) fn counter_bytes(counter: u64) -> Vec<u8> {
    format!("c{counter}").into_bytes()
}

/// The bytes of a value: its number, and some more, all of which tell it and their places.
fn value_bytes(number: u64) -> Vec<u8> {
    let bits = workload::rng::mix(number);
    let more = bits % if (bits >> 32).is_multiple_of(16) { 2000 } else { 100 };
    let mut bytes = number.to_string().into_bytes();
    let letter = |at: u64| b'a' + (workload::rng::mix(number ^ at << 40) % 26) as u8;
    bytes.extend((0..more).map(letter));
    bytes
}

/// The number of a value; what is wrong with it in words.
pub(super) fn number_of(bytes: &[u8]) -> Result<u64, String> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&bytes[..digits]).ok().and_then(|text| text.parse().ok());
    let number = number.filter(|&number| value_bytes(number) == bytes);
    number.ok_or_else(|| format!("{} bytes that were never written", bytes.len()))
}

impl World {
    /// A new drive, without power. `traced` is a key whose history is kept.
    pub(super) fn new(served: Served, traced: Option<u64>) -> World {
        World {
            site: Site::new(served.host(), traced),
            local: None,
            clients: Vec::new(),
            model: Model::new(served.keys, served.counters),
            moment: 0,
            left: Rc::new(Cell::new(u64::MAX)),
            looks: 0,
            served,
        }
    }

    /// The server of a drive that starts.
    pub(super) fn start(&mut self, troubles: &Troubles, seed: u64) -> Result<Local, String> {
        self.left = Rc::new(Cell::new(u64::MAX));
        let store = self.site.start(troubles, seed)?;
        let pages = Box::new(Pages::failing(store, self.left.clone(), seed)) as AnyStore;
        let tree = self.site.tree(pages)?;
        let keys = Opened::new(tree, self.served.clients).map_err(|error| error.to_string())?;
        if let Some(error) = keys.uncounted() {
            return Err(format!("its keys cannot be counted: {error}"));
        }
        // From here on something may fail.
        let mut rng = Rng::new(seed, super::STREAM + 2);
        if rng.one_in(3) {
            self.left.set(1 + rng.below(40));
        }
        self.clients = (0..self.served.clients).map(|_| Client::default()).collect();
        Ok(Local::new(keys, self.served.clients))
    }

    /// Whether a write or flush of the store has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.left.get() == 0
    }

    /// Commands whose replies were not seen.
    pub(super) fn unseen(&self) -> usize {
        self.clients.iter().map(|client| client.asked.len()).sum()
    }

    pub(super) fn hangs(&self) -> Violation {
        let asked: Vec<&VecDeque<Asked>> = self.clients.iter().map(|c| &c.asked).collect();
        wrong(None, format!("the server hangs; {asked:?} were not answered"))
    }

    /// Somebody who can asks for something.
    pub(super) fn ask_some(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let first = rng.below(self.served.clients as u64) as usize;
        let can = |who: &usize| {
            let client = &self.clients[*who];
            let is_free = self.local.as_ref().is_some_and(|local| !local.is_busy(*who));
            is_free && !client.is_closed && client.asked.len() < self.served.pipeline
        };
        let all = (0..self.served.clients).map(|i| (first + i) % self.served.clients);
        let Some(who) = all.into_iter().find(can) else { return self.step().map(drop) };
        self.moment += 1;
        let key = |rng: &mut Rng| rng.below(self.served.keys);
        let (about, words) = match rng.below(20) {
            0..6 => self.set(vec![key(rng)]),
            6..8 if !self.served.only_grows => self.delete(key(rng)),
            6..9 => self.set_if_missing(key(rng)),
            9..11 => {
                let mut keys: Vec<u64> = (0..2 + rng.below(3)).map(|_| key(rng)).collect();
                keys.sort_unstable();
                keys.dedup();
                self.set(keys)
            }
            11..13 => self.count_up(rng.below(self.served.counters)),
            13..15 => values(vec![key(rng)]),
            15 => values((0..3).map(|_| key(rng)).collect()),
            16 => {
                let counter = rng.below(self.served.counters);
                let least = self.model.seen_of(counter);
                (About::Counter(counter, least), vec![b"GET".to_vec(), counter_bytes(counter)])
            }
            17 => {
                let key = key(rng);
                (About::IsThere(key), vec![b"EXISTS".to_vec(), key_bytes(key)])
            }
            18 => (About::Size, vec![b"DBSIZE".to_vec()]),
            _ => (About::All, ["SCAN", "0", "COUNT", "1000"].map(|w| w.into()).to_vec()),
        };
        self.send(who, about, &words)
    }

    fn set(&mut self, keys: Vec<u64>) -> (About, Vec<Vec<u8>>) {
        let mut words = vec![if keys.len() == 1 { b"SET".to_vec() } else { b"MSET".to_vec() }];
        let mut writes = Vec::new();
        for key in keys {
            let number = self.model.number();
            self.site.note(Some(key), || format!("{number} is sent"));
            writes.push((key, self.model.begin(key, Some(number), true, self.moment)));
            words.extend([key_bytes(key), value_bytes(number)]);
        }
        if writes.len() > 1 {
            self.model.batch(&writes);
        }
        (About::Writes(writes), words)
    }

    fn delete(&mut self, key: u64) -> (About, Vec<Vec<u8>>) {
        self.site.note(Some(key), || "a deletion is sent".into());
        let write = self.model.begin(key, None, true, self.moment);
        (About::Delete(key, write), vec![b"DEL".to_vec(), key_bytes(key)])
    }

    fn set_if_missing(&mut self, key: u64) -> (About, Vec<Vec<u8>>) {
        let number = self.model.number();
        self.site.note(Some(key), || format!("{number} is sent, for where there is none"));
        let write = self.model.begin(key, Some(number), false, self.moment);
        let words = vec![b"SETNX".to_vec(), key_bytes(key), value_bytes(number)];
        (About::IfMissing(key, write), words)
    }

    fn count_up(&mut self, counter: u64) -> (About, Vec<Vec<u8>>) {
        let least = self.model.seen_of(counter);
        self.model.count(counter);
        (About::CountUp(counter, least), vec![b"INCR".to_vec(), counter_bytes(counter)])
    }

    fn send(&mut self, who: usize, about: About, words: &[Vec<u8>]) -> Result<(), Violation> {
        self.site.rig.counts.requests += 1;
        let Some(local) = &mut self.local else { return Ok(()) };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert!(local.ask(who, &words), "it executes nothing");
        let asked = Asked { about, begin: self.moment, end: None };
        self.clients[who].asked.push_back(asked);
        self.look()
    }

    /// What happened, after the server was asked or polled.
    pub(super) fn polled(&mut self) -> Result<(), Violation> {
        self.moment += 1;
        self.site.rig.flash.take_strikes();
        self.look()
    }

    /// Notes what was executed, and what can be seen.
    fn look(&mut self) -> Result<(), Violation> {
        if self.site.rig.is_off() {
            // A host whose power is gone sees nothing more.
            let is_wasted = self.site.rig.flash.power().is_wasted();
            return if is_wasted { Err(self.hangs()) } else { Ok(()) };
        }
        let Some(mut local) = self.local.take() else { return Ok(()) };
        let seen = (0..self.clients.len()).try_for_each(|who| self.look_at(&mut local, who));
        self.local = Some(local);
        seen
    }

    fn look_at(&mut self, local: &mut Local, who: usize) -> Result<(), Violation> {
        let client = &mut self.clients[who];
        if client.is_closed {
            return Ok(());
        }
        // Only the last may be under way.
        if let Some(last) = client.asked.back_mut().filter(|last| last.end.is_none())
            && !local.is_busy(who)
        {
            last.end = Some(self.moment);
            match &last.about {
                About::Writes(writes) => {
                    writes.iter().for_each(|&(key, i)| self.model.end(key, i, self.moment));
                }
                About::IfMissing(key, i) | About::Delete(key, i) => {
                    self.model.end(*key, *i, self.moment);
                }
                _ => {}
            }
        }
        let ended = local.replies(who, &mut client.bytes);
        let mut bytes = std::mem::take(&mut client.bytes);
        let mut at = 0;
        while let Some((reply, len)) = Reply::parse(&bytes[at..]) {
            at += len;
            let Some(asked) = self.clients[who].asked.pop_front() else {
                return Err(wrong(None, format!("{reply:?} answers nothing")));
            };
            self.site.rig.flash.power().progress();
            self.looks = 0;
            self.seen(asked, reply)?;
        }
        bytes.drain(..at);
        self.clients[who].bytes = bytes;
        if ended.is_err() {
            if !self.has_failed() {
                return Err(wrong(None, format!("client {who} is closed, and nothing failed")));
            }
            self.clients[who] = Client { is_closed: true, ..Client::default() };
        }
        Ok(())
    }

    /// A reply was seen.
    fn seen(&mut self, asked: Asked, reply: Reply) -> Result<(), Violation> {
        self.site.rig.counts.replies += 1;
        let strange = |words: String| wrong(None, format!("{:?}: {words}", asked.about));
        let Some(end) = asked.end else {
            return Err(strange(format!("{reply:?} is seen before it was executed")));
        };
        if let Reply::Error(words) = &reply {
            self.site.rig.counts.errors += 1;
            return if self.has_failed() { Ok(()) } else { Err(strange(words.clone())) };
        }
        let span = (asked.begin, end);
        match (&asked.about, reply) {
            (About::Writes(writes), Reply::Ok) => {
                for &(key, write) in writes {
                    self.site.note(Some(key), || "it is answered".into());
                    self.model.done(key, write);
                }
                Ok(())
            }
            (&About::Delete(key, write), Reply::Int(n @ (0 | 1))) => {
                self.read(key, What::of(n == 1), span, Some(write))?;
                self.model.done(key, write);
                Ok(())
            }
            (&About::IfMissing(key, write), Reply::Int(n @ (0 | 1))) => {
                self.read(key, What::of(n == 0), span, Some(write))?;
                match n {
                    1 => self.model.done(key, write),
                    _ => self.model.refused(key, write),
                }
                Ok(())
            }
            (&About::IsThere(key), Reply::Int(n @ (0 | 1))) => {
                self.read(key, What::of(n == 1), span, None)
            }
            (&About::CountUp(counter, least), Reply::Int(n)) => {
                let counted = self.model.counted_up(counter, n as u64, least);
                told(counter, counted)
            }
            (&About::Counter(counter, least), Reply::Bulk(text)) => {
                let number = text.map_or(Ok(0), |text| String::from_utf8_lossy(&text).parse());
                let number = number.map_err(|_| strange("no number".into()))?;
                let least = if self.has_failed() { 0 } else { least };
                told(counter, self.model.counted(counter, number, least))
            }
            (About::Values(keys), reply) => {
                let values = match reply {
                    Reply::Array(all) => all,
                    one => vec![one],
                };
                if values.len() != keys.len() {
                    return Err(strange(format!("{} values", values.len())));
                }
                for (&key, value) in keys.iter().zip(values) {
                    let Reply::Bulk(bytes) = value else {
                        return Err(strange(format!("{value:?}")));
                    };
                    let number = bytes.map(|bytes| number_of(&bytes)).transpose();
                    let number = number.map_err(|words| wrong(Some(key), words))?;
                    self.site.rig.see(number.unwrap_or(1));
                    self.read(key, What::Is(number), span, None)?;
                }
                Ok(())
            }
            (About::Size, Reply::Int(n)) => {
                if self.served.only_grows {
                    self.model.told_size(n as u64);
                }
                Ok(())
            }
            (About::All, Reply::Array(parts)) => self.listed(&parts, span),
            (_, reply) => Err(strange(format!("{reply:?}"))),
        }
    }

    fn read(
        &mut self,
        key: u64,
        what: What,
        span: (u64, u64),
        by: Option<usize>,
    ) -> Result<(), Violation> {
        self.site.note(Some(key), || format!("{what:?} is seen"));
        let is_new = !self.has_failed();
        let read = self.model.read(key, what, span, is_new, by);
        read.map_err(|words| wrong(Some(key), format!("key {key}: {words}")))
    }

    /// What a scan told: these are there.
    fn listed(&mut self, parts: &[Reply], span: (u64, u64)) -> Result<(), Violation> {
        let Some(Reply::Array(names)) = parts.get(1) else {
            return Err(wrong(None, format!("a scan says {parts:?}")));
        };
        for name in names {
            let Reply::Bulk(Some(name)) = name else {
                return Err(wrong(None, format!("a scan names {name:?}")));
            };
            let number = String::from_utf8_lossy(&name[1..]).parse::<u64>();
            match (name[0], number) {
                (b'k', Ok(key)) if key < self.served.keys => {
                    self.read(key, What::IsThere, span, None)?;
                }
                (b'c', Ok(counter)) if counter < self.served.counters => {
                    told(counter, self.model.counted(counter, 1, 0))?;
                }
                _ => return Err(wrong(None, format!("there never was a key {name:?}"))),
            }
        }
        Ok(())
    }
}

/// What is wrong with what was told of a counter.
fn told(counter: u64, counted: Result<(), String>) -> Result<(), Violation> {
    counted.map_err(|words| wrong(None, format!("counter {counter}: {words}")))
}

/// A read of some keys.
fn values(keys: Vec<u64>) -> (About, Vec<Vec<u8>>) {
    let name = if keys.len() == 1 { "GET" } else { "MGET" };
    let words = [name.into()].into_iter().chain(keys.iter().map(|&key| key_bytes(key))).collect();
    (About::Values(keys), words)
}
