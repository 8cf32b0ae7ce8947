//! Checkpoints of a program's memory, to which it would go back if its I/O failed (thesis chapter
//! 4, section 4.2 of the paper), in the ways that user space has.
//!
//! Guarantees: after [`Keeper::roll_back`] memory is what it was at the last [`Keeper::take`].
//! A fork keeps the whole process; the others keep the memory that they have. May fail: the kernel
//! has no such way, or no room.

mod fork;
mod log;
pub mod memory;
mod mirror;
mod userfault;

use std::io;

use clap::ValueEnum;
use thiserror::Error;

pub use fork::processor_of_children;

use fork::Fork;
use log::UndoLog;
use memory::Memory;
use mirror::Mirror;

/// How memory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// A forked child that stands still.
    Fork,
    /// Memory that userfaultfd protects: the kernel remembers which pages are written, and these are copied at the next checkpoint.
    Userfaultfd,
    /// Memory that userfaultfd protects: a thread copies each page before it is written.
    UserfaultfdLog,
    /// Soft-dirty bits say which pages are written, and these are copied at the next checkpoint.
    SoftDirty,
}

/// Why memory cannot be kept.
#[derive(Debug, Error)]
pub enum KeepError {
    /// This kernel has it not.
    #[error("{0}")]
    Absent(String),
    /// The system refuses something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// There is nothing to go back to.
    #[error("no checkpoint was taken")]
    None,
}

impl KeepError {
    fn system(doing: &'static str, source: io::Error) -> KeepError {
        KeepError::System { doing, source }
    }
}

enum Means {
    Fork(Fork),
    Mirror(Box<Mirror>),
    Log(UndoLog),
}

/// A program's memory, and its last checkpoint.
pub struct Keeper {
    // Goes before the memory that it watches.
    means: Means,
    memory: Memory,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 4] = [Way::Fork, Way::Userfaultfd, Way::UserfaultfdLog, Way::SoftDirty];

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Way::Fork => "fork",
            Way::Userfaultfd => "userfaultfd",
            Way::UserfaultfdLog => "userfaultfd-log",
            Way::SoftDirty => "soft-dirty",
        }
    }

    /// Whether this machine has it, which is tried: a few pages are written and rolled back.
    pub fn find(self) -> Result<(), KeepError> {
        let mut keeper = Keeper::new(self, Memory::new(4 * 4096)?)?;
        keeper.take()?;
        keeper.memory_mut()[4096] = 2;
        keeper.roll_back()?;
        match (keeper.memory()[4096], self) {
            (1, _) => Ok(()),
            (_, Way::SoftDirty) => Err(KeepError::Absent(
                "the kernel tells no page as written: it is built without CONFIG_MEM_SOFT_DIRTY"
                    .into(),
            )),
            _ => Err(KeepError::Absent("what was written is still there after a rollback".into())),
        }
    }
}

impl Keeper {
    /// Begins: checkpoints may be taken of this memory.
    pub fn new(way: Way, memory: Memory) -> Result<Keeper, KeepError> {
        let means = match way {
            Way::Fork => Means::Fork(Fork::default()),
            Way::Userfaultfd => Means::Mirror(Box::new(Mirror::by_userfault(&memory)?)),
            Way::UserfaultfdLog => Means::Log(UndoLog::new(&memory)?),
            Way::SoftDirty => Means::Mirror(Box::new(Mirror::by_soft_dirty(&memory)?)),
        };
        Ok(Keeper { means, memory })
    }

    /// The memory.
    pub fn memory(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// The memory, to write.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Bytes of a page of it.
    pub fn page(&self) -> usize {
        self.memory.page()
    }

    /// Takes a checkpoint in place of the last.
    pub fn take(&mut self) -> Result<(), KeepError> {
        match &mut self.means {
            Means::Fork(fork) => fork.take(),
            Means::Mirror(mirror) => mirror.take(&self.memory),
            Means::Log(log) => log.take(&self.memory),
        }
    }

    /// What was done since stays: there is nothing to go back to any more.
    pub fn give_up(&mut self) {
        // A mirror and a log go on with the next checkpoint.
        if let Means::Fork(fork) = &mut self.means {
            fork.give_up();
        }
    }

    /// Makes memory what it was at the last checkpoint, which stays.
    pub fn roll_back(&mut self) -> Result<(), KeepError> {
        match &mut self.means {
            Means::Fork(fork) => fork.roll_back(&mut self.memory),
            Means::Mirror(mirror) => mirror.roll_back(&mut self.memory),
            Means::Log(log) => log.roll_back(&mut self.memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGES: usize = 40;

    #[derive(Clone, Debug)]
    enum Step {
        Write { at: usize, len: usize, byte: u8 },
        Take,
        RollBack,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..PAGES * 4096, 1..3 * 4096usize, any::<u8>());
        let write = write.prop_map(|(at, len, byte)| Step::Write { at, len, byte });
        let step = prop_oneof![6 => write, 2 => Just(Step::Take), 2 => Just(Step::RollBack)];
        proptest::collection::vec(step, 1..60)
    }

    fn keeper(way: Way, pages: usize) -> Keeper {
        Keeper::new(way, Memory::new(4096 * pages as u64).unwrap()).unwrap()
    }

    /// The ways that this machine has; what it has not says why.
    fn ways() -> Vec<Way> {
        let is_there = |way: &Way| match way.find() {
            Ok(()) => true,
            Err(KeepError::Absent(why)) => {
                assert!(!why.is_empty() && *way != Way::Fork, "{way:?}: {why}");
                false
            }
            Err(e) => panic!("{way:?}: {e}"),
        };
        Way::ALL.into_iter().filter(is_there).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against a copy of all memory that is made at each checkpoint.
        #[test]
        fn a_rollback_gives_the_memory_of_the_checkpoint(steps in steps()) {
            for way in ways() {
                let mut keeper = keeper(way, PAGES);
                let mut now = keeper.memory().to_vec();
                keeper.take().unwrap();
                let mut then = now.clone();
                for step in &steps {
                    match *step {
                        Step::Write { at, len, byte } => {
                            let range = at..(at + len).min(now.len());
                            now[range.clone()].fill(byte);
                            keeper.memory_mut()[range].fill(byte);
                        }
                        Step::Take => {
                            // A checkpoint may be given up before, or not.
                            if now[0] & 1 == 0 {
                                keeper.give_up();
                            }
                            keeper.take().unwrap();
                            then.clone_from(&now);
                        }
                        Step::RollBack => {
                            keeper.roll_back().unwrap();
                            now.clone_from(&then);
                        }
                    }
                    prop_assert!(keeper.memory() == now, "{way:?} after {step:?}");
                }
            }
        }
    }

    /// More pieces than one call tells.
    #[test]
    fn pages_that_lie_apart_come_back_all() {
        for way in ways() {
            let mut keeper = keeper(way, 4096);
            keeper.take().unwrap();
            for _ in 0..2 {
                keeper.memory_mut().iter_mut().step_by(8192).for_each(|byte| *byte = 9);
                keeper.roll_back().unwrap();
                assert!(keeper.memory().iter().step_by(4096).all(|byte| *byte == 1), "{way:?}");
            }
        }
    }

    #[test]
    fn without_a_checkpoint_there_is_no_way_back() {
        let mut keeper = keeper(Way::Fork, 1);
        assert!(matches!(keeper.roll_back(), Err(KeepError::None)));
    }
}
