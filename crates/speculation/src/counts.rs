//! What the tool counted: by program, call and reason. Its text is read here, and summed up.
//!
//! May fail: a line is none of its.

use std::collections::BTreeMap;

use thiserror::Error;

/// Classes of a [`Cell`]: 2^n to 2^(n+1) - 1 instructions, the last one with all above.
pub const CLASSES: usize = 48;

/// Why speculation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A load from what was read.
    Buffer,
    /// A store to memory that other processes have, too.
    Shared,
    /// A system call with a side effect, by its number.
    Call(i64),
}

/// Stretches that were as long as it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// How many.
    pub count: u64,
    /// Instructions in all of them.
    pub sum: u64,
    /// Of these, the sum of squares.
    pub squares: f64,
    /// Instructions of the longest.
    pub longest: u64,
    /// How many there are of each class.
    pub classes: [u64; CLASSES],
}

impl Default for Cell {
    fn default() -> Cell {
        Cell { count: 0, sum: 0, squares: 0.0, longest: 0, classes: [0; CLASSES] }
    }
}

impl Cell {
    /// Adds others.
    pub fn add(&mut self, other: &Cell) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.longest = self.longest.max(other.longest);
        self.classes.iter_mut().zip(other.classes).for_each(|(all, one)| *all += one);
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// Their standard deviation.
    pub fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64 - self.mean().powi(2)).max(0.0).sqrt()
    }

    /// The middle of the class that their median is in.
    pub fn median(&self) -> f64 {
        let half = self.count.div_ceil(2);
        let mut below = 0;
        let class = self.classes.iter().position(|of| {
            below += of;
            below >= half
        });
        class.map_or(0.0, |class| 1.5 * (1u64 << class) as f64).min(self.longest as f64)
    }
}

/// Calls of one kind, by why speculation after them stopped.
pub type Reasons = BTreeMap<Reason, Cell>;

/// All stretches after a call.
pub fn all(reasons: &Reasons) -> Cell {
    let mut all = Cell::default();
    reasons.values().for_each(|cell| all.add(cell));
    all
}

/// What a program did, its threads and all processes that ran it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Instructions, those of the dynamic linker among them.
    pub instructions: u64,
    /// By the number of the call, what it did from its entry on.
    pub calls: BTreeMap<i64, Reasons>,
    /// What the dynamic linker did before.
    pub linker: Linker,
}

/// What was done before a program began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Linker {
    /// Instructions.
    pub instructions: u64,
    /// By the number of the call.
    pub calls: BTreeMap<i64, Reasons>,
}

/// What all programs did, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Each of them.
    pub programs: BTreeMap<String, Program>,
    /// Reports of processes, or of what a process was before it became another program.
    pub reports: u64,
    /// What there was no room for to count.
    pub left_out: u64,
}

/// A line that the tool does not write.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of what was counted cannot be read: {text:?}")]
pub struct CountsError {
    line: usize,
    text: String,
}

impl Counts {
    /// Reads what the tool wrote.
    pub fn parse(text: &str) -> Result<Counts, CountsError> {
        let mut counts = Counts::default();
        let mut cells = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let short: String = line.chars().take(80).collect();
            let wrong = || CountsError { line: n + 1, text: short.clone() };
            if let Some(rest) = line.strip_prefix("potential 2 ") {
                cells.push(cell(rest).ok_or_else(wrong)?);
            } else {
                let rest = line.strip_prefix("potential-end 2 ").ok_or_else(wrong)?;
                let (instructions, linker, left_out, name) = end(rest).ok_or_else(wrong)?;
                let program = counts.programs.entry(name.to_owned()).or_default();
                program.instructions += instructions;
                program.linker.instructions += linker;
                for (is_linker, call, reason, cell) in cells.drain(..) {
                    let calls = match is_linker {
                        true => &mut program.linker.calls,
                        false => &mut program.calls,
                    };
                    calls.entry(call).or_default().entry(reason).or_default().add(&cell);
                }
                counts.reports += 1;
                counts.left_out += left_out;
            }
        }
        Ok(counts)
    }
}

/// `PID WHOSE CALL REASON COUNT SUM SQUARES LONGEST CLASS...`
fn cell(text: &str) -> Option<(bool, i64, Reason, Cell)> {
    let mut words = text.split(' ');
    let _process: u32 = words.next()?.parse().ok()?;
    let is_linker = match words.next()? {
        "linker" => true,
        "program" => false,
        _ => return None,
    };
    let call = words.next()?.parse().ok()?;
    let reason = match words.next()? {
        "buffer" => Reason::Buffer,
        "shared" => Reason::Shared,
        number => Reason::Call(number.parse().ok()?),
    };
    let mut cell = Cell {
        count: words.next()?.parse().ok()?,
        sum: words.next()?.parse().ok()?,
        squares: words.next()?.parse().ok()?,
        longest: words.next()?.parse().ok()?,
        ..Cell::default()
    };
    for class in &mut cell.classes {
        *class = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some((is_linker, call, reason, cell))
}

/// `PID INSTRUCTIONS LINKER LEFT-OUT PROGRAM`
fn end(text: &str) -> Option<(u64, u64, u64, &str)> {
    let mut words = text.splitn(5, ' ');
    let _process: u32 = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    let (instructions, linker, left_out) = (number()?, number()?, number()?);
    let program = words.next()?;
    Some((instructions, linker, left_out, program.rsplit('/').next().unwrap_or(program)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(whose: &str, call: i64, reason: &str, took: &[u64]) -> String {
        let mut classes = [0u64; CLASSES];
        took.iter().for_each(|took| classes[took.max(&1).ilog2() as usize] += 1);
        let squares: u64 = took.iter().map(|took| took * took).sum();
        let classes: Vec<String> = classes.iter().map(u64::to_string).collect();
        format!(
            "potential 2 7 {whose} {call} {reason} {} {} {squares} {} {}\n",
            took.len(),
            took.iter().sum::<u64>(),
            took.iter().max().unwrap_or(&0),
            classes.join(" ")
        )
    }

    #[test]
    fn reports_of_one_program_are_summed_up() {
        let text = line("program", 1, "1", &[100, 300])
            + &line("program", 0, "buffer", &[10])
            + &line("linker", 0, "buffer", &[70, 80])
            + "potential-end 2 7 5000 700 0 /usr/bin/dd\n"
            + &line("program", 1, "1", &[200])
            + "potential-end 2 8 1000 0 2 dd\n"
            + "potential-end 2 9 50 0 0 /bin/a b\n";
        let counts = Counts::parse(&text).expect("it is the tool's");
        assert_eq!((counts.reports, counts.left_out), (3, 2));
        assert_eq!(counts.programs.keys().collect::<Vec<_>>(), ["a b", "dd"]);
        let dd = &counts.programs["dd"];
        let writes = all(&dd.calls[&1]);
        assert_eq!((dd.instructions, writes.count, writes.mean()), (6000, 3, 200.0));
        assert!((writes.deviation() - (20_000.0f64 / 3.0).sqrt()).abs() < 1e-9);
        // 128 to 255 hold the one in the middle.
        assert_eq!((writes.median(), writes.longest), (192.0, 300));
        assert_eq!(dd.calls[&0][&Reason::Buffer].count, 1);
        assert_eq!((dd.linker.instructions, dd.linker.calls.len()), (700, 1));
        assert_eq!(dd.linker.calls[&0][&Reason::Buffer].sum, 150);
    }

    #[test]
    fn what_is_not_the_tools_is_told_by_its_line() {
        let good = line("program", 1, "1", &[4]);
        let ends = ["potential-end 2 7 x 0 0 a", "potential-end 1 7 1 0 a"];
        let lines = ["", "potential 3 7", "potential 2 7 program 1 why 1 1 1 1"];
        for bad in lines.into_iter().chain(ends) {
            let text = format!("{good}{bad}\n");
            assert_eq!(Counts::parse(&text).map_err(|e| e.line), Err(2), "{bad:?}");
        }
        let cut = &good[..good.len() - 4];
        assert!(Counts::parse(cut).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(potential( |-end )2? ?[0-9a-z ]{0,40}\n){0,4}\\PC{0,40}") {
            let _ = Counts::parse(&text);
        }
    }
}
