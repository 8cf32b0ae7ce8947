//! What the tests of the drive share: a rig that owns virtual time, small
//! geometries, commands, and media that are slow or fail.

#![allow(dead_code)]

use device::{Addresses, Content, Device, VectorCmd, VectorDone, VectorOp};
use faults::{Below, PowerCut, Script, ScriptedMedium, Slow};
use flash::{Dimensions, Geometry, Moved, Ppa, RamMedium, Timing};
use port::random::mix;
use port::{Buffer, Port, Ring, Status, Time};

/// A small geometry.
pub fn geometry(groups: u32, pus: u32, planes: u32) -> Geometry {
    one_shot(groups, pus, planes, 1)
}

/// One whose programs take so many pages of a word line at once.
pub fn one_shot(groups: u32, pus: u32, planes: u32, pages_at_once: u32) -> Geometry {
    let (chunks, pages, page_bytes) = (4, 6, 8192);
    let dim = Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once };
    Geometry::new(dim).unwrap()
}

/// A drive in memory.
pub fn drive(geometry: &Geometry, timing: &Timing, kept: u32) -> Device<RamMedium> {
    Device::new(geometry, timing, RamMedium::new(geometry, kept).unwrap()).unwrap()
}

/// A command without a list. Its buffer fits a medium that keeps nothing.
pub fn cmd(cookie: u64, op: VectorOp, ppa: Ppa, count: u8) -> VectorCmd {
    VectorCmd::new(cookie, op, Content::Data, (ppa, count), Buffer::empty())
}

/// A command with a list, as `cmd`.
pub fn list_cmd(cookie: u64, op: VectorOp, from: &[Ppa], to: &[Ppa]) -> VectorCmd {
    let mut list: Box<Addresses> = from.into();
    list.to[..to.len()].copy_from_slice(to);
    VectorCmd { list: Some(list), ..cmd(cookie, op, Ppa(0), from.len() as u8) }
}

/// Virtual time over a port.
pub struct Rig<P: Port> {
    pub port: P,
    pub now: Time,
    done: Ring<P::Done>,
    pub all: Vec<P::Done>,
}

impl<P: Port> Rig<P> {
    /// Takes at most `window` completions at once.
    pub fn new(port: P, window: usize) -> Rig<P> {
        Rig { port, now: Time::ZERO, done: Ring::new(window), all: Vec::new() }
    }

    /// Handles all events up to `to`.
    pub fn run_to(&mut self, to: Time) {
        let mut turns = 0;
        while let Some(at) = self.port.next_event().filter(|&at| at <= to) {
            self.now = self.now.max(at);
            self.port.advance(at, &mut self.done);
            self.all.extend(self.done.drain());
            turns += 1;
            assert!(turns < 1_000_000, "the port hangs at {at}");
        }
        self.now = self.now.max(to);
    }

    /// Handles everything.
    pub fn drain(&mut self) {
        while let Some(at) = self.port.next_event() {
            self.run_to(at);
        }
    }

    /// Submits at `at`, after what is due by then.
    pub fn submit(&mut self, at: u64, cmd: P::Cmd) {
        self.run_to(Time(at));
        let mut ring = Ring::new(1);
        assert!(ring.push(cmd).is_ok());
        self.port.submit(Time(at), &mut ring);
        assert!(ring.is_empty(), "the port took it");
    }
}

impl<P: Port<Cmd = VectorCmd, Done = VectorDone>> Rig<P> {
    /// Submits and runs until it is done; gives its time.
    pub fn one(&mut self, cmd: VectorCmd) -> u64 {
        let (start, cookie) = (self.now, cmd.cookie);
        self.submit(start.0, cmd);
        self.drain();
        let done = self.all.iter().rev().find(|d| d.cookie == cookie).expect("it completed");
        assert_eq!(done.status, Status::SUCCESS);
        done.at - start
    }

    /// When command `cookie` completed, which went well.
    pub fn at(&self, cookie: u64) -> u64 {
        let mut found = self.all.iter().filter(|d| d.cookie == cookie);
        let done = found.next().expect("it completed");
        assert!(found.next().is_none(), "it completed once");
        assert_eq!(done.status, Status::SUCCESS, "command {cookie}");
        done.at.0
    }
}

/// A rig of a drive whose chunks 0 to 2 are written, at time zero.
pub fn written(geometry: &Geometry, timing: &Timing) -> Rig<Device<RamMedium>> {
    let mut first = drive(geometry, &Timing::default(), 0);
    let mut done = Ring::new(64);
    for pu in geometry.pus_channels_first() {
        for chunk in 0..3 {
            let start = geometry.chunk_start(geometry.chunk_of(pu, chunk));
            let mut ring = Ring::new(1);
            let write = cmd(0, VectorOp::Write, start, geometry.chunk_blocks() as u8);
            ring.push(write).unwrap();
            first.submit(Time::ZERO, &mut ring);
            first.advance(Time::ZERO, &mut done);
            assert!(done.drain().all(|d| d.status.is_ok()));
        }
    }
    let chunks = first.chunks().to_vec();
    Rig::new(Device::restore(geometry, timing, first.cut(), &chunks).unwrap(), 64)
}

/// A medium that is asked at most so often until it does a thing.
pub fn slow(below: impl PowerCut, seed: u64, most: u64) -> ScriptedMedium {
    ScriptedMedium::new(below, Slow::new(seed, most))
}

/// Operations fail that begin at certain addresses.
struct Flaky {
    seed: u64,
}

/// A medium in memory on which operations fail that begin at certain addresses.
pub fn flaky(geometry: &Geometry, kept: u32, seed: u64) -> ScriptedMedium {
    ScriptedMedium::ram(geometry, kept, Flaky { seed })
}

/// Whether an operation of this kind that begins at `at` fails.
pub fn fails(seed: u64, kind: u64, at: Ppa) -> bool {
    mix(seed ^ mix(at.0 * 4 + kind)).is_multiple_of(4)
}

impl Script for Flaky {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        if fails(self.seed, 0, at) { Moved::Failed } else { below.program(at, count, data, tags) }
    }

    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        if fails(self.seed, 1, at) { Moved::Failed } else { below.read(at, count, data, tags) }
    }

    fn reset(&mut self, below: Below, chunk: Ppa) -> Moved {
        if fails(self.seed, 2, chunk) { Moved::Failed } else { below.reset(chunk) }
    }
}
