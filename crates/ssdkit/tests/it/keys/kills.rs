//! Servers of keys that are killed while clients write.
//!
//! Clients of three connections write in pipelines with `--sync always` until the server is
//! killed at a random moment, also while it starts. All that was answered is there when it is
//! served again, and of what was not answered each command whole or not at all. A drive with
//! `target=kv` has strings and hashes alone: it has no sorted sets, and writes several keys one
//! by one. With more effort: `SSDKIT_KILLS=200`; the seed of a run is told, and `SSDKIT_SEED`
//! sets it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use workload::Rng;

use super::{Client, Place, Reply, SMALL, bulk};
use crate::common::Served;
use crate::kill::{number, seed};

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

fn verify(server: &Served, stories: &mut [Story], seed: u64) {
    let mut client = Client::of(server);
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
            let mut child = place.command("").spawn().unwrap();
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let began = Instant::now();
        let server = place.serve("--sync always");
        slowest = slowest.max(began.elapsed());
        assert_eq!(server.ready["store"], "found", "seed {seed}");
        assert!(round == 0 || server.ready["recovery"]["clean"] == false, "{}", server.ready);
        verify(&server, &mut stories, seed);
        let later = 1 << round.saturating_sub(kills);
        let after = Duration::from_micros(5_000 + rng.below(300_000)) * later;
        std::thread::scope(|scope| {
            for story in &mut stories {
                let client = Client::of(&server);
                scope.spawn(|| story.work(client));
            }
            std::thread::sleep(after);
            kill_process(server.pid(), Signal::KILL).unwrap();
        });
        round += 1;
    }
    // It ends well, too.
    let server = place.serve("");
    verify(&server, &mut stories, seed);
    server.stop();
    assert_eq!(place.json(&format!("info {}", place.drive))["clean"], true, "seed {seed}");
    println!("{keys}: {} commands answered, slowest start {slowest:?}", answered(&stories));
    assert!(enough(&stories), "seed {seed}: hardly anything was answered");
}

pub fn kill_kind(keys: &str, options: &str) {
    kill(keys, options, number("SSDKIT_KILLS", 8) as u32, seed());
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
