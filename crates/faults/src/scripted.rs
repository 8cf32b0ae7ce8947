//! A medium of which a test says what becomes of each operation.
//!
//! One type for all tests, whatever they do to it: what stands above a medium
//! is then compiled once for them. What a [`Script`] does not take into its own
//! hands the medium below does.

use std::any::Any;

use flash::{Chunk, Geometry, Medium, Moved, Ppa, RamMedium};
use port::random::{STEP, mix};

use crate::PowerCut;

/// The medium that a script has below it.
pub type Below<'a> = &'a mut dyn PowerCut;

/// What a test's medium does in place of the one below, or before it.
#[expect(missing_docs, reason = "each is the operation of `Medium` of that name")]
pub trait Script: Any {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        below.program(at, count, data, tags)
    }

    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        below.read(at, count, data, tags)
    }

    fn reset(&mut self, below: Below, chunk: Ppa) -> Moved {
        below.reset(chunk)
    }

    fn barrier(&mut self, below: Below) -> Moved {
        below.barrier()
    }

    fn is_cached(&self, below: &dyn PowerCut) -> bool {
        below.is_cached()
    }

    fn has_news(&self, below: &dyn PowerCut) -> Option<bool> {
        below.has_news()
    }

    fn describe(&mut self, below: Below, chunk_index: usize, chunk: &Chunk) {
        below.describe(chunk_index, chunk);
    }
}

/// Nothing is changed.
impl Script for () {}

/// Answers [`Moved::Pending`] a number of times, drawn for each, before a thing is done: a
/// drive without time does some at once then and some by command.
pub struct Slow {
    seed: u64,
    most: u64,
    /// Answers to go, while something is asked.
    left: Option<u64>,
}

impl Slow {
    /// Each thing is asked for in vain at most so often.
    pub fn new(seed: u64, most: u64) -> Slow {
        Slow { seed, most, left: None }
    }

    /// Whether it still has to be asked again.
    fn waits(&mut self) -> bool {
        let left = self.left.take().unwrap_or_else(|| {
            self.seed = mix(self.seed.wrapping_add(STEP));
            self.seed % (self.most + 1)
        });
        self.left = left.checked_sub(1);
        left > 0
    }
}

impl Script for Slow {
    fn program(&mut self, below: Below, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        if self.waits() { Moved::Pending } else { below.program(at, count, data, tags) }
    }

    fn read(
        &mut self,
        below: Below,
        at: Ppa,
        count: u32,
        data: &mut [u8],
        tags: &mut [u8],
    ) -> Moved {
        if self.waits() { Moved::Pending } else { below.read(at, count, data, tags) }
    }

    fn reset(&mut self, below: Below, chunk: Ppa) -> Moved {
        if self.waits() { Moved::Pending } else { below.reset(chunk) }
    }
}

/// A medium with a script.
pub struct ScriptedMedium {
    below: Box<dyn PowerCut>,
    script: Box<dyn Script>,
}

impl ScriptedMedium {
    /// `below`, with what the script does to it.
    pub fn new(below: impl PowerCut, script: impl Script) -> ScriptedMedium {
        ScriptedMedium { below: Box::new(below), script: Box::new(script) }
    }

    /// The same of an empty medium in memory that keeps `kept` bytes a block.
    ///
    /// # Panics
    /// Without memory.
    pub fn ram(geometry: &Geometry, kept: u32, script: impl Script) -> ScriptedMedium {
        let ram = RamMedium::new(geometry, kept).expect("tests are small");
        ScriptedMedium::new(ram, script)
    }

    /// The medium below, past the script.
    pub fn below(&mut self) -> &mut dyn PowerCut {
        &mut *self.below
    }

    /// The medium below, as what it was made of.
    ///
    /// # Panics
    /// When it is another one.
    pub fn below_as<M: PowerCut>(&mut self) -> &mut M {
        let below: &mut dyn Any = &mut *self.below;
        below.downcast_mut().expect("it was made of this medium")
    }

    /// The script.
    ///
    /// # Panics
    /// When it is another one.
    pub fn script<S: Script>(&mut self) -> &mut S {
        let script: &mut dyn Any = &mut *self.script;
        script.downcast_mut().expect("it was made with this script")
    }
}

impl Medium for ScriptedMedium {
    fn kept(&self) -> u32 {
        self.below.kept()
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.script.program(&mut *self.below, at, count, data, tags)
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        self.script.read(&mut *self.below, at, count, data, tags)
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        self.script.reset(&mut *self.below, chunk)
    }

    fn barrier(&mut self) -> Moved {
        self.script.barrier(&mut *self.below)
    }

    fn is_cached(&self) -> bool {
        self.script.is_cached(&*self.below)
    }

    fn has_news(&self) -> Option<bool> {
        self.script.has_news(&*self.below)
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        self.script.describe(&mut *self.below, chunk_index, chunk);
    }

    fn note_time(&mut self, ns: u64) {
        self.below.note_time(ns);
    }

    fn time(&self) -> u64 {
        self.below.time()
    }
}

impl PowerCut for ScriptedMedium {
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        self.below.power_cut(seed, chunks);
    }
}
