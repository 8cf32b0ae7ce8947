//! What the parts of an I/O cost (the paper's figure 1), measured one by one.

use std::time::Instant;

use measure::units;
use serde_json::{Value, json};

use super::checkpoint::{KeepError, Keeper};
use super::program::{Cost, DEPTH, Program, Strategy, compute, write};
use super::samples::Samples;

/// A device by which sleeping is measured, ns.
const LONG: u64 = 200_000;
/// And where sleeping may begin to be worth it, before anything is known, ns.
const SHORT: u64 = 15_000;
/// Instructions behind a checkpoint whose cost is measured, before anything is known.
const FIRST_BEHIND: u64 = 2_000_000;
/// The least and the most of them.
const BEHIND: (u64, u64) = (20_000, 20_000_000);
/// Turns in which it is measured, with and without.
const TURNS: usize = 5;
/// How long a checkpoint's cost is measured, ns.
const RUN: f64 = 3e6;

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
    /// To take a checkpoint, and to give it up, with the pages that are written meanwhile.
    pub checkpoint: f64,
    /// Of that, to take it.
    pub take: f64,
    /// Of that, to give it up. All the rest goes on while an I/O that was begun before does.
    pub end: f64,
    /// Of the processor, the whole.
    pub checkpoint_processor: f64,
    /// To copy the data of an I/O, and to keep it until that is done.
    pub copy: f64,
}

/// What a checkpoint adds to an iteration with so much computing behind it.
pub fn there_and_back(
    is_read: bool,
    instructions: u64,
    keeper: &mut Keeper,
) -> Result<Cost, KeepError> {
    let mut none = Program::new(0, is_read);
    let each = none.run(Strategy::Checkpoint, instructions, 2, keeper)?.wall;
    let count = (RUN / TURNS as f64 / each).clamp(5.0, 100.0) as u32;
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let plain = none.run(Strategy::Block, instructions, count, keeper)?;
        let held = none.run(Strategy::Checkpoint, instructions, count, keeper)?;
        wall.push(held.wall - plain.wall);
        processor.push(held.processor - plain.processor);
    }
    let [wall, processor] = [wall, processor].map(|all| Samples::new(all).median().max(0.0));
    Ok(Cost { wall, processor })
}

impl Terms {
    /// Measures them all once, by what was found before: some depend on where one looks.
    pub fn once(
        is_read: bool,
        last: Option<&Terms>,
        keeper: &mut Keeper,
    ) -> Result<Terms, KeepError> {
        let began = Instant::now();
        compute(1_000_000);
        let instruction = began.elapsed().as_nanos() as f64 / 1e6;
        let mut none = Program::new(0, is_read);
        let io = none.run(Strategy::Block, 0, 2000, keeper)?.wall;
        let copied = none.run(Strategy::Free, 0, 2000, keeper)?.wall;
        let asynchronous = none.run(Strategy::Asynchronous, 0, 2000, keeper)?.wall;
        let behind = last.map_or(FIRST_BEHIND, Terms::behind);
        let checkpoint = there_and_back(is_read, behind, keeper)?;
        let (take, end) = Terms::of_checkpoint(behind, keeper)?;
        let mut long = Program::new(LONG, is_read);
        let slept = long.run(Strategy::Yield, 0, 20, keeper)?;
        // A short sleep, as where it begins to be worth it: the processor goes less deep then.
        let mut short = Program::new(last.map_or(SHORT, |last| last.switch as u64), is_read);
        let switch = short.run(Strategy::Yield, 0, 100, keeper)?.processor;
        Ok(Terms {
            instruction,
            io,
            wake: (slept.wall - io - LONG as f64).max(0.0),
            switch: (switch - io).max(0.0),
            checkpoint: checkpoint.wall,
            take,
            end,
            checkpoint_processor: checkpoint.processor,
            copy: (copied - asynchronous).max(0.0),
        })
    }

    /// Instructions behind a checkpoint that take twice as long as it.
    pub fn behind(&self) -> u64 {
        ((2.0 * self.checkpoint / self.instruction) as u64).clamp(BEHIND.0, BEHIND.1)
    }

    /// To take a checkpoint and to give it up, as in use.
    pub fn of_checkpoint(instructions: u64, keeper: &mut Keeper) -> Result<(f64, f64), KeepError> {
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while taken.len() < 3 || (taken.len() < 50 && (began.elapsed().as_nanos() as f64) < RUN) {
            let began = Instant::now();
            keeper.give_up();
            ended.push(began.elapsed().as_nanos() as f64);
            let began = Instant::now();
            keeper.take()?;
            taken.push(began.elapsed().as_nanos() as f64);
            write(keeper);
            compute(instructions);
        }
        keeper.give_up();
        // The first has nothing to give up.
        Ok((Samples::new(taken).median(), Samples::new(ended.into_iter().skip(1)).median()))
    }

    /// The middle of each of several.
    pub fn median(all: &[Terms]) -> Terms {
        Terms::each(all, Samples::median)
    }

    /// How far from each other they are.
    pub fn noise(all: &[Terms]) -> Terms {
        Terms::each(all, Samples::noise)
    }

    fn each(all: &[Terms], of: fn(&Samples) -> f64) -> Terms {
        let of = |term: fn(&Terms) -> f64| of(&Samples::new(all.iter().map(term)));
        Terms {
            instruction: of(|terms| terms.instruction),
            io: of(|terms| terms.io),
            wake: of(|terms| terms.wake),
            switch: of(|terms| terms.switch),
            checkpoint: of(|terms| terms.checkpoint),
            take: of(|terms| terms.take),
            end: of(|terms| terms.end),
            checkpoint_processor: of(|terms| terms.checkpoint_processor),
            copy: of(|terms| terms.copy),
        }
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
                let overlapped = compute + self.checkpoint - self.end;
                let waits = (device - overlapped).max(0.0);
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

    fn rows(self) -> [(&'static str, &'static str, f64); 9] {
        [
            ("an instruction", "instruction", self.instruction),
            ("submit and find done", "io", self.io),
            ("sleep: longer by", "wake", self.wake),
            ("sleep: of the processor", "switch", self.switch),
            ("checkpoint, there and back", "checkpoint", self.checkpoint),
            ("checkpoint: to take it", "take", self.take),
            ("checkpoint: to give it up", "end", self.end),
            ("checkpoint: of the processor", "checkpoint_processor", self.checkpoint_processor),
            ("copy of the data", "copy", self.copy),
        ]
    }

    /// As a table, with how far from each other measurements were.
    pub fn to_text(self, noise: Terms) -> String {
        let rows = self.rows().into_iter().zip(noise.rows());
        let row = |((name, _, ns), (_, _, noise)): ((&str, &str, f64), (&str, &str, f64))| {
            let [ns, noise] = [ns, noise].map(units::time_ns);
            format!("  {name:<30} {ns:>9}, noise {noise}\n")
        };
        "What the parts cost\n".to_owned() + &rows.map(row).collect::<String>()
    }

    /// By names.
    pub fn to_json(self) -> Value {
        self.rows().into_iter().map(|(_, name, ns)| (format!("{name}_ns"), json!(ns))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::checkpoint::{Way, memory::Memory};
    use super::*;

    const TERMS: Terms = Terms {
        instruction: 0.25,
        io: 50.0,
        wake: 10_000.0,
        switch: 8_000.0,
        checkpoint: 200_000.0,
        take: 80_000.0,
        end: 120_000.0,
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
        let keeper = &mut Keeper::new(Way::Fork, Memory::new(4096).unwrap()).unwrap();
        let block = program.run(Strategy::Block, 0, 3, keeper).unwrap();
        let slept = program.run(Strategy::Yield, 0, 3, keeper).unwrap();
        assert!(block.wall >= 300_000.0 && slept.wall >= 300_000.0, "{block:?} {slept:?}");
        let held = program.run(Strategy::Checkpoint, 1000, 3, keeper).unwrap();
        assert!(held.wall >= 300_000.0, "{held:?}");
        // So many go on at once that each waits for its part only.
        let free = program.run(Strategy::Free, 0, DEPTH as u32, keeper).unwrap();
        assert!(free.wall >= 0.9 * 300_000.0 / DEPTH as f64, "{free:?}");
    }
}
