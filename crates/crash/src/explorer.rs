//! The states that cuts may leave.
//!
//! Guarantees: a state is one that the file system could have left: what was synced is there.
//! Seed, cut and variant name it, to the bit, whatever was asked before.

use std::collections::BTreeMap;

use files::{Files, FilesError, Inode, Journal, Memory, Operation, Recorder};
use port::random::Random;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::background::{anything, cut_anyhow, cut_planned, plan, used_disk};
use crate::choice::{PLANNED, Telling, Variant, choose, planned};
use crate::error::CrashError;
use crate::event::Event;
use crate::hash::hash;

/// Moments of the run that are kept, so that later ones are near.
const MOST_KEPT: usize = 128;
/// Blocks of a journal that data go through, so that it seldom has to commit by itself.
const DATA_RING: u32 = 4096;

/// How states are made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The file system.
    pub files: files::Options,
    /// Blocks of the disk, of 4 KiB; by default what the run needs, amply.
    pub blocks: Option<u64>,
    /// Writes of a block may be torn at its sectors of 512 bytes.
    pub tear: bool,
    /// Other seeds give other random states.
    pub seed: u64,
}

/// What a cut left.
#[derive(Clone, Debug)]
pub struct State {
    /// The files, mounted.
    pub files: Files<Memory>,
    /// After how many events power went.
    pub cut: usize,
    /// What happened of what was not promised.
    pub variant: Variant,
}

/// What a program might have done more than it did.
#[derive(Clone, Debug)]
pub struct More {
    /// Just before this event.
    pub before: usize,
    /// What, one after the other.
    pub operations: Vec<Operation>,
}

/// The run of a program, and what cuts may have left of it.
pub struct Explorer {
    events: Vec<Event>,
    options: Options,
    /// The files after so many events, without anything done in the background.
    kept: Vec<(usize, Files<Recorder>)>,
    telling: Telling,
    /// Of what was output, after each number of events.
    outputs: Vec<u64>,
}

/// Blocks that are more than enough for a run, if what files lose is not used again.
fn enough(operations: &mut dyn Iterator<Item = &Operation>) -> u64 {
    // Where each file ends, and the pages that were written to it: it has no more than the less.
    let mut files: BTreeMap<Inode, (u64, u64)> = BTreeMap::new();
    for operation in operations {
        let (inode, end, pages) = match operation {
            Operation::Create { inode, .. } => (inode, 4096, 1),
            Operation::Write { inode, offset, data } => {
                let len = data.len() as u64;
                (inode, offset.saturating_add(len), len / 4096 + 2)
            }
            Operation::Allocate { inode, offset, len, .. } => {
                (inode, offset.saturating_add(*len), len / 4096 + 2)
            }
            _ => continue,
        };
        let file = files.entry(*inode).or_default();
        *file = (file.0.max(end), file.1.saturating_add(pages));
    }
    let pages = files.values().map(|&(end, pages)| pages.min(end / 4096 + 1));
    let all = pages.fold(0, u64::saturating_add);
    (2048 + all.saturating_mul(2)).min((1 << 32) - 1)
}

fn operations(events: &[Event]) -> impl Iterator<Item = &Operation> {
    events.iter().filter_map(|event| match event {
        Event::Operation(operation) => Some(operation),
        _ => None,
    })
}

impl Explorer {
    /// Runs the program's events once on the files that it began with, which are durable.
    pub fn new(
        initial: &[Operation],
        events: Vec<Event>,
        options: Options,
    ) -> Result<Explorer, CrashError> {
        let ample = || enough(&mut initial.iter().chain(operations(&events)));
        let mut blocks = options.blocks.unwrap_or_else(ample);
        let mut options = options;
        if options.files.journal == Journal::Data && options.blocks.is_none() {
            options.files.journal_blocks.get_or_insert(DATA_RING);
            blocks = blocks.saturating_add(2 * u64::from(DATA_RING)).min((1 << 32) - 1);
        }
        let disk = match options.files.journal {
            Journal::Writeback => used_disk(blocks),
            _ => Memory::new(blocks),
        };
        let formatted = Files::format(disk, options.files.clone()).map_err(CrashError::Initial)?;
        let disk = Recorder::new(formatted.into_disk());
        let mut files = Files::mount(disk).map_err(CrashError::Initial)?;
        let sync = [Operation::SyncAll];
        let mut begin = initial.iter().chain(&sync);
        begin.try_for_each(|operation| files.apply(operation)).map_err(CrashError::Initial)?;
        let telling = Telling::of(&events);
        let mut explorer =
            Explorer { events, options, kept: vec![(0, files)], telling, outputs: vec![0] };
        explorer.run()?;
        Ok(explorer)
    }

    fn run(&mut self) -> Result<(), CrashError> {
        let every = (self.events.len() / MOST_KEPT).max(8);
        let mut files = self.kept[0].1.clone();
        for number in 0..self.events.len() {
            self.apply(&mut files, number)?;
            let mut sum = self.outputs[number];
            if let Event::Output { stream, data } = &self.events[number] {
                sum = xxh3_64_with_seed(data, sum ^ u64::from(*stream)).max(1);
            }
            self.outputs.push(sum);
            if (number + 1).is_multiple_of(every) {
                self.kept.push((number + 1, files.clone()));
            }
        }
        Ok(())
    }

    fn apply(&self, files: &mut Files<Recorder>, number: usize) -> Result<(), CrashError> {
        let Event::Operation(operation) = &self.events[number] else { return Ok(()) };
        files.apply(operation).map_err(|error| CrashError::Event { number, error })
    }

    /// The same, with what was to be done more before it.
    fn step(
        &self,
        files: &mut Files<Recorder>,
        number: usize,
        more: &[More],
    ) -> Result<(), CrashError> {
        let before = more.iter().filter(|more| more.before == number);
        for operation in before.flat_map(|more| &more.operations) {
            files.apply(operation).map_err(|error| CrashError::Event { number, error })?;
        }
        self.apply(files, number)
    }

    /// The files after so many events.
    fn at(&self, cut: usize, more: &[More]) -> Result<Files<Recorder>, CrashError> {
        let same = more.iter().map(|more| more.before).fold(cut, usize::min);
        let near = self.kept.partition_point(|kept| kept.0 <= same) - 1;
        let (from, files) = &self.kept[near];
        let mut files = files.clone();
        (*from..cut).try_for_each(|number| self.step(&mut files, number, more))?;
        Ok(files)
    }

    /// What the program did. Power may go after any number of these, from none to all.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What was output to a stream before that cut.
    pub fn output(&self, cut: usize, stream: u32) -> Vec<u8> {
        let before = &self.events[..cut.min(self.events.len())];
        let data = before.iter().filter_map(|event| match event {
            Event::Output { stream: of, data } if *of == stream => Some(&data[..]),
            _ => None,
        });
        data.collect::<Vec<_>>().concat()
    }

    /// Cut and variant of the state number `n` in the order in which it is best to look: the
    /// variants that break most programs at the cuts that tell most, and random ones between.
    pub fn choose(&self, n: u64) -> (usize, u64) {
        let cuts = (&self.telling, self.events.len());
        choose(cuts, self.options.files.journal, self.options.seed, n)
    }

    /// The variants that are not random, and so many random ones.
    pub fn variants(&self, random: u64) -> impl Iterator<Item = u64> + use<> {
        planned(self.options.files.journal).chain(PLANNED..PLANNED + random)
    }

    /// The state of a cut after so many events. [`Variant::of`] says what the number means.
    pub fn state(&self, cut: usize, variant: u64) -> Result<State, CrashError> {
        self.state_with(cut, variant, &[])
    }

    /// The same, of a program that would have done something more. Cuts are counted as ever.
    pub fn state_with(&self, cut: usize, variant: u64, more: &[More]) -> Result<State, CrashError> {
        let events = self.events.len();
        if cut > events {
            return Err(CrashError::Cut { cut, events });
        }
        let left = match Variant::of(variant) {
            Variant::Random(_) => self.random(cut, variant, more)?,
            planned => {
                let mut files = self.at(cut, more)?;
                let before = &self.events[..cut];
                match plan(&mut files, planned, before, self.options.tear)? {
                    (usize::MAX, _) => files.disk().cut(|_| files::Fate::Lost),
                    torn => cut_planned(files.disk(), torn),
                }
            }
        };
        Ok(State { files: Files::mount(left)?, cut, variant: Variant::of(variant) })
    }

    fn random(&self, cut: usize, variant: u64, more: &[More]) -> Result<Memory, CrashError> {
        let mut random = Random::new(self.options.seed ^ port::random::mix(cut as u64), variant);
        // Mostly a short while, now and then all the run.
        let bits = u64::from(usize::BITS - cut.leading_zeros());
        let longest = 1u64 << random.below(bits + 1);
        let from = cut - random.below(longest.min(cut as u64 + 1)) as usize;
        let mut files = self.at(from, more)?;
        let often = [0.05, 0.2, 0.5, 0.8][random.below(4) as usize];
        let act = |files: &mut Files<Recorder>, random: &mut Random| {
            while random.chance(often) {
                anything(files, random)?;
            }
            Ok::<(), FilesError>(())
        };
        for number in from..cut {
            act(&mut files, &mut random)?;
            self.step(&mut files, number, more)?;
        }
        act(&mut files, &mut random)?;
        Ok(cut_anyhow(files.disk(), &mut random, self.options.tear))
    }

    /// A number for all that a checker could tell states apart by: files, and what was output
    /// before. States with the same number need to be looked at once.
    pub fn hash(&self, state: &mut State) -> Result<u64, CrashError> {
        Ok(hash(&mut state.files)? ^ self.outputs[state.cut].rotate_left(1))
    }
}
