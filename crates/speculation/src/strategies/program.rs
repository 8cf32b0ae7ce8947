//! The program that is measured: a loop of computing and one I/O of 4 KiB that it calls and waits
//! for, in the ways in which that may be carried out.
//!
//! The drive is the timed null driver in real time, on the program's own thread, which takes the
//! same time for each I/O, however many are under way. The data is the first page of the program's
//! memory, and a byte of it is written between two I/Os: so much a checkpoint has to keep.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use blkmq::driver::Driver;
use blkmq::driver::timed::{Timed, TimedOptions, TimedQueue};
use device::realtime::{RealTime, fine_timers, process_cpu};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring};

use super::checkpoint::{KeepError, Keeper, processor_of_children};

/// I/Os that may be under way where a strategy has several.
pub const DEPTH: usize = 32;

/// How an I/O is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strategy {
    /// Poll until it is done.
    Block,
    /// Sleep until it is done.
    Yield,
    /// Go on behind a checkpoint, up to the next I/O.
    Checkpoint,
    /// Go on with a copy of the data, up to as many I/Os as may be under way.
    Free,
    /// The program is written for it: as before, and without a copy.
    Asynchronous,
    /// Of reads: the next one is begun before this one is used.
    Prefetch,
}

impl Strategy {
    /// Those of a program that writes.
    pub const WRITES: [Strategy; 5] = [
        Strategy::Block,
        Strategy::Yield,
        Strategy::Checkpoint,
        Strategy::Free,
        Strategy::Asynchronous,
    ];
    /// Those of a program that reads.
    pub const READS: [Strategy; 3] = [Strategy::Block, Strategy::Yield, Strategy::Prefetch];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Block => "block",
            Strategy::Yield => "yield",
            Strategy::Checkpoint => "checkpoint",
            Strategy::Free => "checkpoint-free",
            Strategy::Asynchronous => "asynchronous",
            Strategy::Prefetch => "prefetch",
        }
    }

    /// Whether many I/Os are under way at once.
    pub fn goes_on(self) -> bool {
        matches!(self, Strategy::Free | Strategy::Asynchronous)
    }

    /// How it is drawn on a map.
    pub fn letter(self) -> char {
        match self {
            Strategy::Block => 'B',
            Strategy::Yield => 'y',
            Strategy::Checkpoint => 'C',
            Strategy::Free => 'F',
            Strategy::Asynchronous => 'a',
            Strategy::Prefetch => 'P',
        }
    }
}

/// What an iteration takes, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// From one to the next.
    pub wall: f64,
    /// Of the processor, by the program and its checkpoints.
    pub processor: f64,
}

/// The loop, on a device.
pub struct Program {
    drive: RealTime<TimedQueue>,
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// Where copies of the data are kept while an I/O is under way, in turn.
    copies: Vec<u8>,
    is_read: bool,
    under_way: usize,
    ids: u64,
}

/// Instructions of a step of [`compute`]: multiply, add, count, branch.
const STEP: u64 = 4;

/// So many instructions, about.
#[inline(never)]
pub fn compute(instructions: u64) {
    let mut value = instructions;
    for _ in 0..instructions / STEP {
        value = black_box(value.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    black_box(value);
}

impl Program {
    /// On a device that takes so long, ns.
    pub fn new(device_ns: u64, is_read: bool) -> Program {
        let options = TimedOptions {
            completion_nsec: device_ns,
            gb: 1,
            hw_queue_depth: 2 * DEPTH,
            ..TimedOptions::default()
        };
        let queue = Timed::new(options).expect("the time is in range").open().remove(0);
        fine_timers();
        Program {
            drive: RealTime::new(queue),
            cmds: Ring::new(2 * DEPTH),
            done: Ring::new(2 * DEPTH),
            copies: vec![0; DEPTH * BLOCK_BYTES as usize],
            is_read,
            under_way: 0,
            ids: 0,
        }
    }

    /// Begins an I/O. The device keeps nothing: of the data there is only what the strategy does.
    fn submit(&mut self, data: Option<&[u8]>) {
        if let Some(data) = data {
            let at = self.ids as usize % DEPTH * BLOCK_BYTES as usize;
            self.copies[at..at + BLOCK_BYTES as usize]
                .copy_from_slice(black_box(&data[..BLOCK_BYTES as usize]));
        }
        let op = if self.is_read { BlockOp::Read } else { BlockOp::Write };
        self.ids += 1;
        let offset = self.ids % 1024 * BLOCK_BYTES;
        let req = BlockReq::new(self.ids, op, offset, BLOCK_BYTES, Buffer::empty());
        assert!(self.cmds.push(req).is_ok(), "fewer are under way than there is room for");
        let now = self.drive.now();
        self.drive.submit(now, &mut self.cmds);
        self.under_way += 1;
    }

    fn poll(&mut self) {
        let now = self.drive.now();
        self.drive.poll(now, &mut self.done);
        while let Some(done) = self.done.pop() {
            assert!(done.status.is_ok(), "the device takes what it is given");
            self.under_way -= 1;
        }
    }

    /// Polls until at most so many are under way.
    fn wait(&mut self, most: usize) {
        while self.under_way > most {
            self.poll();
        }
    }

    /// Sleeps until the one that is under way is done.
    fn sleep(&mut self) {
        while self.under_way > 0 {
            let at = self.drive.next_event();
            let left = at.map_or(0, |at| at.0.saturating_sub(self.drive.now().0));
            if left > 0 {
                sleep(Duration::from_nanos(left));
            }
            self.poll();
        }
    }

    /// Runs so many iterations, behind as many as it takes until each is like the next. Memory is
    /// 4 KiB or more.
    pub fn run(
        &mut self,
        strategy: Strategy,
        instructions: u64,
        count: u32,
        keeper: &mut Keeper,
    ) -> Result<Cost, KeepError> {
        if strategy == Strategy::Prefetch {
            self.submit(None);
        }
        for _ in 0..if strategy.goes_on() { DEPTH } else { 1 } {
            self.iterate(strategy, instructions, keeper)?;
        }
        let (began, used_before) = (self.drive.clock().now(), used());
        for _ in 0..count {
            self.iterate(strategy, instructions, keeper)?;
        }
        let wall = self.drive.clock().now().since(began) as f64;
        let processor = (used() - used_before) as f64;
        self.wait(0);
        keeper.give_up();
        Ok(Cost { wall: wall / f64::from(count), processor: processor / f64::from(count) })
    }

    fn iterate(
        &mut self,
        strategy: Strategy,
        instructions: u64,
        keeper: &mut Keeper,
    ) -> Result<(), KeepError> {
        write(keeper);
        match strategy {
            Strategy::Block => {
                compute(instructions);
                self.submit(None);
                self.wait(0);
            }
            Strategy::Yield => {
                compute(instructions);
                self.submit(None);
                self.sleep();
            }
            Strategy::Checkpoint => {
                compute(instructions);
                // The next I/O can be seen: what was done until here must stand.
                self.wait(0);
                keeper.give_up();
                self.submit(None);
                keeper.take()?;
            }
            Strategy::Free | Strategy::Asynchronous => {
                compute(instructions);
                self.poll();
                self.wait(DEPTH - 1);
                self.submit((strategy == Strategy::Free).then_some(keeper.memory()));
            }
            Strategy::Prefetch => {
                self.wait(0);
                self.submit(None);
                compute(instructions);
            }
        }
        Ok(())
    }
}

/// Writes a byte of the data.
pub fn write(keeper: &mut Keeper) {
    let byte = &mut keeper.memory_mut()[0];
    *byte = black_box(byte.wrapping_add(1));
}

/// Of the processor, by this process and the children that have ended, ns.
fn used() -> u64 {
    process_cpu() + processor_of_children()
}
