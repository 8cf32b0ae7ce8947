//! The report for a terminal: what a file's keys became, then a report of each job.

use std::fmt::Write;

use bench::stand::About;
use load::driver::ClockKind;
use measure::units::{bytes_decimal, size_binary, time_ns};
use measure::{Cpu, Gc, Report, Row, WriteAmplification};
use port::BlockOp;
use serde_json::{Value, json};
use targets::WriteCounters;
use workload::Sizes;

use crate::job::{Does, Job, PERCENTILES, Skew};
use crate::plan::rounds;
use crate::told::Told;

/// The widest line of what is told before the reports.
const WIDTH: usize = 100;

/// What jobs became: a paragraph of each.
pub fn became(jobs: &[Job]) -> String {
    let mut text = String::new();
    let rounds = rounds(jobs).unwrap_or_default();
    for (n, job) in jobs.iter().enumerate() {
        let round = rounds.iter().position(|round| round.iter().any(|task| task.job == n));
        let round = round.map_or(0, |round| round + 1);
        line(&mut text, &format!("[{}] round {round}: {}", job.name, job.words()), "    ");
        for note in &job.notes {
            line(&mut text, &format!("    {note}"), "        ");
        }
    }
    text
}

/// A line, cut at blanks where it is too long, but not between a number and its unit.
fn line(text: &mut String, line: &str, indent: &str) {
    let mut length = 0;
    let mut rest = line.split(' ');
    let words = std::iter::from_fn(|| {
        let mut word = rest.next()?.to_owned();
        if word.ends_with(|c: char| c.is_ascii_digit())
            && let Some(unit) = rest.next()
        {
            word = format!("{word} {unit}");
        }
        Some(word)
    });
    for (n, word) in words.enumerate() {
        if length > 0 && length + word.len() >= WIDTH {
            let _ = write!(text, "\n{indent}");
            length = indent.len();
        } else if n > 0 {
            text.push(' ');
            length += 1;
        }
        text.push_str(&word);
        length += word.len();
    }
    text.push('\n');
}

fn sizes(sizes: &Sizes) -> String {
    match sizes {
        Sizes::One(bytes) => size_binary((*bytes).into()),
        Sizes::Range { least, most } => {
            format!("{} to {}", size_binary((*least).into()), size_binary((*most).into()))
        }
        Sizes::Split(split) => {
            let part =
                |&(bytes, share): &(u32, u8)| format!("{share} % {}", size_binary(bytes.into()));
            split.parts().iter().map(part).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A number above 0, in few digits however small it is.
fn number(n: f64) -> String {
    if n < 1e-4 { format!("{n:e}") } else { n.to_string() }
}

impl Job {
    /// What it does, as fio calls it.
    pub fn rw(&self) -> &'static str {
        match (self.access.does, self.access.is_random) {
            (Does::Reads, false) => "read",
            (Does::Writes, false) => "write",
            (Does::Both, false) => "rw",
            (Does::Trims, false) => "trim",
            (Does::Reads, true) => "randread",
            (Does::Writes, true) => "randwrite",
            (Does::Both, true) => "randrw",
            (Does::Trims, true) => "randtrim",
        }
    }

    /// What it asks, in words.
    pub fn words(&self) -> String {
        let (access, lasts, pace) = (&self.access, &self.lasts, &self.pace);
        let mut words = vec![self.rw().to_string()];
        if access.does == Does::Both {
            words.push(format!("{} % reads", access.reads));
        }
        match access.sizes.reads == access.sizes.others {
            true => words.push(sizes(&access.sizes.reads)),
            false => {
                words.push(format!("reads of {}", sizes(&access.sizes.reads)));
                words.push(format!("writes of {}", sizes(&access.sizes.others)));
            }
        }
        words.extend(access.skew.map(|skew| match skew {
            Skew::Zipf(theta) => format!("Zipf {}", number(theta)),
            Skew::Pareto(h) => format!("Pareto {}", number(h)),
        }));
        if access.has_map {
            words.push("each block once before any comes again".into());
        }
        if access.flush_every > 0 {
            words.push(format!("a flush after every {} writes", access.flush_every));
        }
        match pace.rate {
            Some(rate) => words.push(format!("{rate} a second, at most {} out", pace.depth)),
            None => words.push(format!("depth {}", pace.depth)),
        }
        if let Some((ns, each)) = pace.think {
            words.push(format!("a pause of {} after every {each}", time_ns(ns as f64)));
        }
        if let Some(ns) = lasts.runtime {
            let most = if lasts.is_timed { "for" } else { "for at most" };
            words.push(format!("{most} {}", time_ns(ns as f64)));
        }
        if lasts.ramp > 0 {
            words.push(format!("after {} that do not count", time_ns(lasts.ramp as f64)));
        }
        if self.company.clones > 1 {
            words.push(format!("{} at once", self.company.clones));
        }
        words.join(", ")
    }

    /// What so many clones of it did, in the terms of a report.
    fn workload(&self, about: &About, clones: usize) -> Value {
        let clock = if about.clock == ClockKind::Real { "real" } else { "virtual" };
        let (zipf, pareto) = match self.access.skew {
            Some(Skew::Zipf(theta)) => (Some(theta), None),
            Some(Skew::Pareto(h)) => (None, Some(h)),
            None => (None, None),
        };
        let percent = (self.access.does == Does::Both).then_some(self.access.reads);
        json!({
            "job": self.name,
            "rw": self.rw(),
            "read_percent": percent,
            "bs": self.one_size(),
            "sizes": self.one_size().is_none().then(|| self.access.sizes.to_string()),
            "qd": self.pace.depth,
            "rate": self.pace.rate,
            "jobs": clones,
            "zipf": zipf,
            "pareto": pareto,
            "seconds": self.lasts.runtime.map(|ns| ns as f64 / 1e9),
            "clock": clock,
        })
    }
}

/// The report of one.
pub fn report(told: &Told, about: &About) -> Report {
    let (tally, seconds) = (&told.tally, told.seconds());
    let of = |op| tally.direction(op, seconds);
    let (read, write) = (of(BlockOp::Read), of(BlockOp::Write));
    let (all, bytes) = (tally.all(), done(told));
    let ios = all.count();
    let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let both = read.ios > 0 && write.ios > 0;
    // What a drive did while several jobs ran was for all of them.
    let tells = about.tells && told.is_alone;
    let grew =
        |get: fn(&WriteCounters) -> u64| get(&tally.after).saturating_sub(get(&tally.before));
    let amplification = || {
        let own = [grew(|c| c.gc), grew(|c| c.padding), grew(|c| c.metadata)];
        let user = grew(|c| c.user);
        let all = WriteAmplification::from_blocks(user, own[0], own[1], own[2])?;
        // What was under way when a ramp was over is not among the bytes.
        Some(match told.job.lasts.ramp {
            0 => all.with_bytes(user, write.bytes),
            _ => all,
        })
    };
    let (collections, moved, copied) =
        (grew(|c| c.collections), grew(|c| c.moved), grew(|c| c.copied));
    Report {
        drive: about.few_words.clone(),
        workload: told.job.workload(about, told.clones),
        ios,
        failed_requests: tally.failed,
        bytes,
        seconds,
        wall_seconds: told.wall_in_all,
        void: told.void(),
        iops: per_second(ios),
        bytes_per_second: per_second(bytes),
        latency_ns: all.summary(),
        distribution: all.distribution(),
        percentiles_within: tally.within(),
        read: both.then_some(read),
        write: both.then_some(write),
        write_amplification: if tells { amplification() } else { None },
        steady: None,
        gc: tells.then_some(Gc { collections, moved, copied }),
        erases: tells.then(|| grew(|c| c.erases)),
        self_check_ns: tally.late.percentile(99.9),
        cpu: Cpu::new(told.cpu.0, told.cpu.1, told.wall, told.round_ios),
        series: match tells {
            true => tally.rows(),
            false => tally.rows().into_iter().map(Row::of_an_unknown_drive).collect(),
        },
        errors: tally.errors(),
        seed: told.job.seed,
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Bytes that were read, written and trimmed.
fn done(told: &Told) -> u64 {
    [BlockOp::Read, BlockOp::Write, BlockOp::Trim].map(|op| told.tally.bytes(op)).iter().sum()
}

/// The percentiles that a job asked for, where it did.
pub fn percentiles(told: &Told) -> Option<String> {
    let list = &told.job.percentiles;
    let kinds = [(BlockOp::Read, "reads"), (BlockOp::Write, "writes"), (BlockOp::Trim, "trims")];
    let of = |(op, name): (BlockOp, &str)| {
        let latency = told.tally.latency(op);
        let each = |p: &f64| Some(format!("p{p} {}", time_ns(latency.percentile(*p)? as f64)));
        let each: Vec<_> = list.iter().filter_map(each).collect();
        (!each.is_empty()).then(|| format!("{name} {}", each.join(", ")))
    };
    let all: Vec<_> = kinds.into_iter().filter_map(of).collect();
    (list[..] != PERCENTILES && !all.is_empty()).then(|| all.join("; "))
}

/// A line of a job before its report.
pub fn heading(told: &Told) -> String {
    let name = format!("[{}] group {}", told.job.name, told.group);
    let jobs =
        if told.clones > 1 { format!(", {} jobs together", told.clones) } else { String::new() };
    format!(
        "{name}{jobs}: {} in {}",
        bytes_decimal(done(told) as f64),
        time_ns(told.seconds() * 1e9)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_are_on_one_line() {
        let mut text = String::new();
        let times = "for 2.00 s, after 1.00 s that do not count, ".repeat(6);
        line(&mut text, &times, "    ");
        let ends_in_number = |line: &str| line.ends_with(|c: char| c.is_ascii_digit());
        assert!(text.lines().count() > 2 && !text.lines().any(ends_in_number), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text), words(&times));
    }
}
