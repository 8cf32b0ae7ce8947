//! A served drive file is killed again and again, while a client writes.
//!
//! What the server said was durable is there when it is served again: each
//! write and trim that ended before a successful flush began, and each with
//! FUA. Anything else is old or new, never torn, never another block's. A drive
//! with a protected cache is never flushed, and all that ended is there.
//!
//! `SSDKIT_KILLS` says how often (12 if it does not), `SSDKIT_SEED` begins
//! where an earlier run began; the time at which a kill meets the server is
//! not repeated.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use exports::nbd::{Client, ListenAddr};
use port::BlockOp;
use rustix::process::{Signal, kill_process};
use workload::Rng;

use crate::common::{Served, json, ssdkit};

pub const BLOCK: usize = 4096;
/// Logical blocks of the drives: 64 MiB.
const BLOCKS: usize = 16384;
/// Requests in flight.
const DEPTH: usize = 24;
/// Most blocks of a request.
const MOST_BLOCKS: u64 = 16;
/// Kills more where hardly anything was done before those that were asked for.
const MORE: u32 = 8;
/// What a trimmed block is, and one that was never written.
const ZERO: u64 = 0;

/// A block's words: its number, its version, and what both give, all over it,
/// so that a torn one is seen.
pub fn fill(lba: u64, version: u64, out: &mut [u8]) {
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        let value = match i % 3 {
            0 => lba,
            1 => version,
            _ => (lba ^ version.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i as u64,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The version of a block that was read; panics if it is torn or another's.
pub fn version(lba: u64, bytes: &[u8], seed: u64) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) {
        return ZERO;
    }
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let mut right = [0; BLOCK];
    fill(lba, version, &mut right);
    assert!(bytes == right, "seed {seed}: block {lba} is torn or another's");
    version
}

/// What is known of a block: the writes and trims that may be what it has,
/// oldest first. All before the first are overwritten for good.
#[derive(Clone)]
struct Known {
    may_be: Vec<Write>,
}

#[derive(Clone, Copy)]
struct Write {
    /// Its number, which grows over all of a run.
    number: u64,
    /// What the block then has: the number, or [`ZERO`].
    version: u64,
    /// It was answered.
    ended: bool,
}

/// A request in flight.
struct Request {
    op: BlockOp,
    fua: bool,
    first: usize,
    count: usize,
    /// Of a write or trim its number; of a flush the highest that ended
    /// before it.
    number: u64,
    /// Of a read, the oldest and newest that it may see, by block.
    window: Vec<(u64, u64)>,
}

/// What the client did, and may find.
pub struct Model {
    seed: u64,
    rng: Rng,
    known: Vec<Known>,
    /// Blocks of which a write or trim is in flight.
    busy: Vec<bool>,
    /// The number of the last write or trim.
    last: u64,
    /// Ended writes and trims, for flushes: blocks and numbers.
    ended: Vec<(usize, usize, u64)>,
    pub acknowledged: u64,
    pub made_durable: u64,
    /// The drive's cache is protected: what ended is durable, and nothing is
    /// flushed.
    protected: bool,
}

impl Model {
    pub fn new(seed: u64, protected: bool) -> Model {
        let first = Write { number: 0, version: ZERO, ended: true };
        Model {
            seed,
            rng: Rng::new(seed, 1),
            known: vec![Known { may_be: vec![first] }; BLOCKS],
            busy: vec![false; BLOCKS],
            last: 0,
            ended: Vec::new(),
            acknowledged: 0,
            made_durable: 0,
            protected,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// The next request, if its blocks are free.
    fn next(&mut self) -> Option<Request> {
        let kind = self.below(100);
        let fua = self.below(16) == 0 && !self.protected;
        if kind < 3 && !self.protected {
            let (op, fua, first, count, number) = (BlockOp::Flush, false, 0, 0, self.ended.len());
            return Some(Request { op, fua, first, count, number: number as u64, window: vec![] });
        }
        // A small part is hot, so that collection has something to do.
        let count = 1 + self.below(MOST_BLOCKS) as usize;
        let space = if self.below(2) == 0 { BLOCKS / 8 } else { BLOCKS };
        let first = self.below((space - count) as u64) as usize;
        let range = first..first + count;
        if self.busy[range.clone()].iter().any(|&busy| busy) {
            return None;
        }
        let op = match kind {
            3..20 => BlockOp::Read,
            20..28 => BlockOp::Trim,
            _ => BlockOp::Write,
        };
        if op == BlockOp::Read {
            let newest = |known: &Known| known.may_be.last().unwrap().version;
            let window = self.known[range].iter().map(|k| (newest(k), newest(k))).collect();
            return Some(Request { op, fua: false, first, count, number: 0, window });
        }
        self.last += 1;
        let number = self.last;
        let version = if op == BlockOp::Trim { ZERO } else { number };
        for block in range {
            self.busy[block] = true;
            self.known[block].may_be.push(Write { number, version, ended: false });
        }
        Some(Request { op, fua, first, count, number, window: vec![] })
    }

    /// A write or trim of these blocks is durable: what was before it is gone.
    fn durable(&mut self, first: usize, count: usize, number: u64) {
        self.made_durable += 1;
        for known in &mut self.known[first..first + count] {
            if let Some(at) = known.may_be.iter().position(|write| write.number == number) {
                known.may_be.drain(..at);
            }
        }
    }

    /// A request was answered.
    fn answered(&mut self, request: &Request, error: u32, data: &[u8]) {
        let seed = self.seed;
        assert_eq!(error, 0, "seed {seed}: {:?} failed", request.op);
        let Request { op, fua, first, count, number, .. } = *request;
        match op {
            BlockOp::Read => {
                for (i, bytes) in data.chunks_exact(BLOCK).enumerate() {
                    let found = version((first + i) as u64, bytes, seed);
                    // It may have been written while it was read.
                    let known = &self.known[first + i].may_be;
                    let new = known.iter().rev().take_while(|w| w.version != request.window[i].0);
                    let right = found == request.window[i].0
                        || new.into_iter().any(|write| write.version == found);
                    assert!(right, "seed {seed}: block {} is version {found}", first + i);
                }
            }
            BlockOp::Flush => {
                for i in 0..number as usize {
                    let (first, count, number) = self.ended[i];
                    self.durable(first, count, number);
                }
                self.ended.drain(..number as usize);
                // Flushes that are in flight counted from the old beginning.
            }
            _ => {
                self.acknowledged += 1;
                for block in first..first + count {
                    self.busy[block] = false;
                    let write = self.known[block].may_be.iter_mut().find(|w| w.number == number);
                    if let Some(write) = write {
                        write.ended = true;
                    }
                }
                if fua || self.protected {
                    self.durable(first, count, number);
                } else {
                    self.ended.push((first, count, number));
                }
            }
        }
    }

    /// The server was killed and is there again: what it has must be allowed,
    /// and stays.
    pub fn verify(&mut self, client: &mut Client) {
        let seed = self.seed;
        let step = 64;
        for at in (0..BLOCKS).step_by(step) {
            let (offset, len) = ((at * BLOCK) as u64, (step * BLOCK) as u64);
            client.submit(BlockOp::Read, offset, len, false, 0, &[]).unwrap();
            client.flush_sends().unwrap();
            let known = &mut self.known[at..at + step];
            let mut each = |_, error, data: &[u8]| {
                assert_eq!(error, 0, "seed {seed}: blocks from {at} on cannot be read");
                for (i, bytes) in data.chunks_exact(BLOCK).enumerate() {
                    let (lba, may_be) = (at + i, &mut known[i].may_be);
                    let found = version(lba as u64, bytes, seed);
                    let Some(write) = may_be.iter().rev().find(|write| write.version == found)
                    else {
                        let all: Vec<_> =
                            may_be.iter().map(|w| (w.number, w.version, w.ended)).collect();
                        panic!("seed {seed}: block {lba} is version {found}, may be {all:?}");
                    };
                    *may_be = vec![*write];
                }
            };
            assert_eq!(client.recv(&mut each).unwrap(), 1);
        }
        self.busy.fill(false);
        self.ended.clear();
    }

    /// Writes until the server is gone.
    pub fn work(&mut self, client: &mut Client) {
        let mut flying: Vec<Option<Request>> = (0..DEPTH).map(|_| None).collect();
        let mut bytes = vec![0; MOST_BLOCKS as usize * BLOCK];
        loop {
            let flushing = |flying: &[Option<Request>]| {
                flying.iter().flatten().any(|request| request.op == BlockOp::Flush)
            };
            for slot in 0..DEPTH {
                if flying[slot].is_some() {
                    continue;
                }
                // One flush at a time keeps the account simple.
                let Some(request) = self.next() else { continue };
                if request.op == BlockOp::Flush && flushing(&flying) {
                    continue;
                }
                let Request { op, fua, first, count, number, .. } = request;
                let (offset, len) = ((first * BLOCK) as u64, (count * BLOCK) as u64);
                let mut data: &[u8] = &[];
                if op == BlockOp::Write {
                    for (i, out) in bytes.chunks_exact_mut(BLOCK).take(count).enumerate() {
                        fill((first + i) as u64, number, out);
                    }
                    data = &bytes[..count * BLOCK];
                }
                if client.submit(op, offset, len, fua, slot as u64, data).is_err() {
                    return;
                }
                flying[slot] = Some(request);
            }
            if client.flush_sends().is_err() {
                return;
            }
            let mut each = |slot: u64, error, data: &[u8]| {
                let request = flying[slot as usize].take().expect("it was asked");
                self.answered(&request, error, data);
            };
            if !client.recv(&mut each).is_ok_and(|n| n > 0) {
                return;
            }
        }
    }
}

/// The command that serves a drive.
fn serve(drive: &Path, socket: &Path) -> Command {
    let (drive, socket) = (drive.display(), socket.display());
    ssdkit(&format!("serve ssd:{drive} --json --nbd {socket}"))
}

/// Kills a server of a drive of this kind so often.
fn kill(kind: &[&str], kills: u32, seed: u64) {
    println!("{kind:?}: {kills} kills, SSDKIT_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let (drive, socket) = (folder.path().join("drive"), folder.path().join("socket"));
    let made = format!("create {} --size 64M {}", drive.display(), kind.join(" "));
    json(folder.path(), &made);
    let protected = kind.contains(&"protected");
    let mut model = Model::new(seed, protected);
    let address = ListenAddr::Unix(socket.clone());
    let (mut recoveries, mut again, mut round) = (0.0f64, 0, 0);
    // On a busy machine hardly anything may be done before a kill: then there
    // are more, each twice as late as the one before.
    let enough = |model: &Model, again: u64| {
        model.made_durable > u64::from(kills) && (!protected || again > 0)
    };
    while round < kills || (round < kills + MORE && !enough(&model, again)) {
        if model.below(4) == 0 {
            // Also while it starts.
            let mut child = serve(&drive, &socket).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(model.below(30_000)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let server = Served::start(&mut serve(&drive, &socket));
        let ready = &server.ready;
        assert!(round == 0 || ready["recovery"]["clean"] == false, "seed {seed}: {ready}");
        recoveries = recoveries.max(ready["recovery"]["wall_seconds"].as_f64().unwrap());
        again += ready["recovery"]["written_again"].as_u64().unwrap_or(0);
        let mut client = Client::connect(&address).unwrap();
        model.verify(&mut client);
        let later = 1 << round.saturating_sub(kills);
        let after = Duration::from_millis(20 + model.below(1500)) * later;
        let pid = server.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(after);
            kill_process(pid, Signal::KILL).unwrap();
        });
        model.work(&mut client);
        killer.join().unwrap();
        round += 1;
    }
    // It ends well, too.
    let server = Served::start(&mut serve(&drive, &socket));
    let mut client = Client::connect(&address).unwrap();
    model.verify(&mut client);
    client.close().unwrap();
    server.stop();
    let info = json(folder.path(), &format!("info {}", drive.display()));
    assert_eq!(info["clean"], true, "seed {seed}: {info}");
    println!(
        "{kind:?}: {} writes and trims answered, {} of them known to be durable, {} erases, \
         {again} written again, slowest recovery {:.1} ms",
        model.acknowledged,
        model.made_durable,
        info["written"]["erases"],
        recoveries * 1e3,
    );
    assert!(model.made_durable > u64::from(kills), "seed {seed}: hardly anything was flushed");
    assert!(!protected || again > 0, "seed {seed}: nothing was ever in the journal");
}

pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Where a run begins that nobody repeats.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    number("SSDKIT_SEED", now.unwrap().as_nanos() as u64)
}

/// Small chunks, so that they are collected; one without time, one with.
fn kill_both(cache: &str) {
    let kills = number("SSDKIT_KILLS", 12) as u32;
    let seed = seed();
    let kind = |profile| {
        ["--cache", cache, "--profile", profile, "groups=2", "pus=2", "planes=1", "pages=64"]
    };
    kill(&kind("null"), kills.div_ceil(2), seed);
    kill(&kind("znand"), kills / 2, seed + 1);
}

#[test]
fn what_was_flushed_survives_kills() {
    kill_both("volatile");
}

#[test]
fn what_was_flushed_survives_kills_with_parity() {
    let kills = number("SSDKIT_KILLS", 12) as u32;
    let seed = seed();
    for cache in ["volatile", "protected"] {
        let kind = ["--cache", cache, "--profile", "znand", "groups=2", "pus=2", "planes=1"];
        kill(&[&kind[..], &["pages=64", "parity=4"]].concat(), kills / 2, seed);
    }
}

#[test]
fn what_ended_survives_kills_in_a_protected_cache() {
    kill_both("protected");
}
