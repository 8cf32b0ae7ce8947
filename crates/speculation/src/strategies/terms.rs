//! What the parts of an I/O cost (the paper's figure 1), measured one by one.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use measure::units;
use serde_json::{Value, json};

use super::checkpoint::Checkpoint;
use super::program::{Cost, DEPTH, Program, Strategy, compute};

/// Runs of which the least counts.
pub const ROUNDS: usize = 7;
/// Pages that a program writes after a checkpoint, which are copied then.
const TOUCHED: usize = 16;
/// A page.
const PAGE: usize = 4096;
/// Instructions behind a checkpoint whose cost is measured.
const BEHIND: u64 = 2_000_000;
/// A device by which sleeping is measured, ns.
const LONG: u64 = 200_000;

/// Memory of the program, each page of it in use.
pub struct Ballast(Vec<u8>);

impl Ballast {
    /// So many bytes.
    pub fn new(bytes: u64) -> Ballast {
        let mut all = vec![0u8; bytes as usize];
        all.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        black_box(&all);
        Ballast(all)
    }

    /// Writes to the first pages.
    fn touch(&mut self) {
        self.0.iter_mut().step_by(PAGE).take(TOUCHED).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&self.0);
    }
}

/// What the parts of an I/O take, ns.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// An instruction of the program's computing.
    pub instruction: f64,
    /// To submit an I/O and to find it done.
    pub io: f64,
    /// Sleeping makes an I/O longer by so much.
    pub wake: f64,
    /// Of the processor, to fall asleep and to wake.
    pub switch: f64,
    /// To take a checkpoint, and to give it up, with the pages that are copied meanwhile.
    pub checkpoint: f64,
    /// Of that, to take it: an I/O that was begun before goes on meanwhile.
    pub take: f64,
    /// Of the processor, the whole.
    pub checkpoint_processor: f64,
    /// To copy the data of an I/O, and to keep it until that is done.
    pub copy: f64,
}

/// The least of so many.
pub fn least(rounds: usize, mut each: impl FnMut() -> io::Result<f64>) -> io::Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        least = least.min(each()?);
    }
    Ok(least)
}

impl Terms {
    /// Measures them all.
    pub fn measure(is_read: bool) -> io::Result<Terms> {
        let instruction = least(ROUNDS, || {
            let began = Instant::now();
            compute(1_000_000);
            Ok(began.elapsed().as_nanos() as f64 / 1e6)
        })?;
        let mut none = Program::new(0, is_read);
        let io = least(ROUNDS, || Ok(none.run(Strategy::Block, 0, 2000)?.wall))?;
        let copied = least(ROUNDS, || Ok(none.run(Strategy::Free, 0, 2000)?.wall))?;
        let asynchronous = least(ROUNDS, || Ok(none.run(Strategy::Asynchronous, 0, 2000)?.wall))?;
        // As in use: something is computed behind it, so the child has come to its wait.
        let behind = |cost: Cost| {
            let own = instruction * BEHIND as f64 + io;
            Cost { wall: cost.wall - own, processor: cost.processor - own }
        };
        let mut checkpoint = || none.run(Strategy::Checkpoint, BEHIND, 20).map(behind);
        let wall = least(ROUNDS, || Ok(checkpoint()?.wall))?;
        let processor = least(ROUNDS, || Ok(checkpoint()?.processor))?;
        let take = least(ROUNDS, || {
            let began = Instant::now();
            let _checkpoint = Checkpoint::take()?;
            Ok(began.elapsed().as_nanos() as f64)
        })?;
        let mut long = Program::new(LONG, is_read);
        let slept = least(ROUNDS, || Ok(long.run(Strategy::Yield, 0, 20)?.wall))?;
        // A short sleep, as where it begins to be worth it: the processor goes less deep then.
        let mut switch = least(2 * ROUNDS, || Ok(long.run(Strategy::Yield, 0, 20)?.processor))?;
        for _ in 0..3 {
            let mut short = Program::new(switch as u64, is_read);
            switch = least(2 * ROUNDS, || Ok(short.run(Strategy::Yield, 0, 100)?.processor))?;
        }
        Ok(Terms {
            instruction,
            io,
            wake: (slept - io - LONG as f64).max(0.0),
            switch: (switch - io).max(0.0),
            checkpoint: wall,
            take,
            checkpoint_processor: processor,
            copy: (copied - asynchronous).max(0.0),
        })
    }

    /// What an iteration takes by these: the time, and of the processor.
    pub fn predict(self, strategy: Strategy, device: f64, instructions: u64) -> Cost {
        let compute = self.instruction * instructions as f64;
        let depth = DEPTH as f64;
        let (wall, processor) = match strategy {
            Strategy::Block => (compute + self.io + device, compute + self.io + device),
            Strategy::Yield => {
                (compute + self.io + device + self.wake, compute + self.io + self.switch)
            }
            Strategy::Checkpoint => {
                // It waits by polling for what is left.
                let waits = (device - compute - self.take).max(0.0);
                let own = compute + self.io + waits;
                (own + self.checkpoint, own + self.checkpoint_processor)
            }
            Strategy::Free | Strategy::Asynchronous => {
                let copy = if strategy == Strategy::Free { self.copy } else { 0.0 };
                let all = (compute + self.io + copy).max(device / depth);
                (all, all)
            }
            Strategy::Prefetch => {
                let all = (compute + self.io).max(device + self.io);
                (all, all)
            }
        };
        Cost { wall, processor }
    }

    fn rows(self) -> [(&'static str, &'static str, f64); 8] {
        [
            ("an instruction", "instruction", self.instruction),
            ("submit and find done", "io", self.io),
            ("sleep: longer by", "wake", self.wake),
            ("sleep: of the processor", "switch", self.switch),
            ("checkpoint, there and back", "checkpoint", self.checkpoint),
            ("checkpoint: to take it", "take", self.take),
            ("checkpoint: of the processor", "checkpoint_processor", self.checkpoint_processor),
            ("copy of the data", "copy", self.copy),
        ]
    }

    /// As a table.
    pub fn to_text(self) -> String {
        let row =
            |(name, _, ns): (&str, &str, f64)| format!("  {name:<30} {:>9}\n", units::time_ns(ns));
        "What the parts cost\n".to_owned() + &self.rows().map(row).concat()
    }

    /// By names.
    pub fn to_json(self) -> Value {
        self.rows().into_iter().map(|(_, name, ns)| (format!("{name}_ns"), json!(ns))).collect()
    }
}

/// A checkpoint of a process of some size.
#[derive(Clone, Copy, Debug)]
pub struct Sized {
    /// Memory beside the program's own, bytes.
    pub bytes: u64,
    /// To take it, ns.
    pub take: f64,
    /// To write to pages after it, ns each.
    pub page: f64,
    /// To give it up, ns.
    pub end: f64,
}

/// Measures checkpoints of processes with so many MiB more.
pub fn by_size(mib: &[u64]) -> io::Result<Vec<Sized>> {
    let of = |&mib: &u64| {
        let mut ballast = Ballast::new(mib << 20);
        let mut best = Sized { bytes: mib << 20, take: f64::MAX, page: f64::MAX, end: f64::MAX };
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let checkpoint = Checkpoint::take()?;
            best.take = best.take.min(began.elapsed().as_nanos() as f64);
            let began = Instant::now();
            ballast.touch();
            best.page = best.page.min(began.elapsed().as_nanos() as f64 / TOUCHED as f64);
            let began = Instant::now();
            drop(checkpoint);
            best.end = best.end.min(began.elapsed().as_nanos() as f64);
        }
        Ok(best)
    };
    mib.iter().map(of).collect()
}

impl Sized {
    /// As a line.
    pub fn to_text(self) -> String {
        let [take, page, end] = [self.take, self.page, self.end].map(units::time_ns);
        let size = units::capacity(self.bytes);
        format!("  {size:>9}: taken in {take}, {page} a page written, ended in {end}\n")
    }

    /// By names.
    pub fn to_json(self) -> Value {
        let Sized { bytes, take, page, end } = self;
        json!({ "bytes": bytes, "take_ns": take, "page_ns": page, "end_ns": end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        instruction: 0.25,
        io: 50.0,
        wake: 10_000.0,
        switch: 8_000.0,
        checkpoint: 200_000.0,
        take: 80_000.0,
        checkpoint_processor: 210_000.0,
        copy: 100.0,
    };

    fn wall(strategy: Strategy, device: f64, instructions: u64) -> f64 {
        TERMS.predict(strategy, device, instructions).wall
    }

    /// Worked by hand.
    #[test]
    fn what_is_predicted_follows_from_the_terms() {
        assert_eq!(wall(Strategy::Block, 1_000.0, 4_000), 1_000.0 + 50.0 + 1_000.0);
        assert_eq!(wall(Strategy::Yield, 1_000.0, 0), 50.0 + 1_000.0 + 10_000.0);
        // 100 us of computing and 80 of taking lie behind the device's 500.
        assert_eq!(
            wall(Strategy::Checkpoint, 500_000.0, 400_000),
            100_000.0 + 50.0 + 320_000.0 + 200_000.0
        );
        // All of the device's time does.
        assert_eq!(wall(Strategy::Checkpoint, 100_000.0, 400_000), 100_000.0 + 50.0 + 200_000.0);
        assert_eq!(wall(Strategy::Free, 1_000.0, 4_000), 1_000.0 + 50.0 + 100.0);
        assert_eq!(wall(Strategy::Asynchronous, 3_200_000.0, 400), 100_000.0);
        assert_eq!(wall(Strategy::Prefetch, 1_000.0, 400), 1_050.0);
    }

    #[test]
    fn sleeping_takes_less_of_the_processor_from_the_cost_of_it_on() {
        let used = |strategy, device| TERMS.predict(strategy, device, 100).processor;
        assert!(used(Strategy::Yield, 7_900.0) > used(Strategy::Block, 7_900.0));
        assert!(used(Strategy::Yield, 8_100.0) < used(Strategy::Block, 8_100.0));
    }

    /// Real, and short: what is measured has an order that no machine changes.
    #[test]
    fn a_device_is_waited_for_as_long_as_it_takes() {
        let mut program = Program::new(300_000, false);
        let block = program.run(Strategy::Block, 0, 3).unwrap();
        let slept = program.run(Strategy::Yield, 0, 3).unwrap();
        assert!(block.wall >= 300_000.0 && slept.wall >= 300_000.0, "{block:?} {slept:?}");
        let held = program.run(Strategy::Checkpoint, 1000, 3).unwrap();
        assert!(held.wall >= 300_000.0, "{held:?}");
        // So many go on at once that each waits for its part only.
        let free = program.run(Strategy::Free, 0, DEPTH as u32).unwrap();
        assert!(free.wall >= 0.9 * 300_000.0 / DEPTH as f64, "{free:?}");
    }
}
