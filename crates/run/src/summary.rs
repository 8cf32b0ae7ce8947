//! What a run tells at its end.

use std::fmt::Write;
use std::time::Duration;

use drive::fault_rules::Injected;
use drive::whole::Observed;
use interpose::{Ended, Held};
use measure::{Programmed, units};
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::counts::{Calls, KINDS};
use crate::engine::Asked;
use crate::watcher::OnDrive;

/// What the kinds of [`KINDS`] are called, one of it and several.
const WORDS: [[&str; 2]; KINDS.len()] = [
    ["write", "writes"],
    ["read", "reads"],
    ["sync", "syncs"],
    ["change of names", "changes of names"],
    ["change of a size", "changes of sizes"],
    ["change of permission bits", "changes of permission bits"],
];

/// How long it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// From the program's start to its end.
    pub all: Duration,
    /// For which this process worked on its calls, the drive's model included.
    pub supervision: Duration,
}

/// Of which run a summary is.
pub struct About<'a> {
    /// What was asked for.
    pub args: &'a RunArgs,
    /// The drive's name.
    pub drive: &'a str,
    /// What this process ends with.
    pub own: u8,
    /// Why that is not the program's exit code.
    pub error: Option<String>,
}

/// The figures.
pub struct Summary {
    /// The program's exit code.
    pub code: i32,
    took: Took,
    /// Calls that the supervisor got, on mapped files or not.
    supervised: u64,
    calls: [Calls; KINDS.len()],
    waited: [measure::Summary; KINDS.len()],
    asked: [Asked; 4],
    amplification: Option<f64>,
    flash_blocks: u64,
    /// Whether the power was cut.
    pub is_cut: bool,
    /// It was to be, and the program ended before.
    is_uncut: bool,
    speculation: Option<Speculated>,
    changes: u64,
    injected: Vec<(String, u64)>,
    /// Calls that met an error of the drive.
    told: u64,
    refused: Vec<&'static str>,
    diverged: Option<String>,
}

/// Syncs that were answered at once.
struct Speculated {
    syncs: u64,
    commits: u64,
    held: Held,
    is_off: bool,
}

impl Summary {
    /// Of what was done since the program began.
    pub fn of(
        on_drive: &mut OnDrive,
        before: (Programmed, [Asked; 4]),
        ended: Ended,
        took: Took,
    ) -> Self {
        let disk = on_drive.files.disk();
        let programmed = disk.look(|drive| drive.programmed()).since(&before.0);
        let asked = disk.asked();
        let injected = disk.look(|drive| drive.injected());
        let speculation = on_drive.speculation.as_ref().map(|it| Speculated {
            syncs: it.syncs(),
            commits: it.commits,
            held: ended.held,
            is_off: it.is_off,
        });
        Self {
            code: ended.code,
            took,
            supervised: ended.calls,
            calls: on_drive.counts.calls,
            waited: on_drive.counts.waited(),
            asked: [0, 1, 2, 3].map(|n| Asked {
                requests: asked[n].requests - before.1[n].requests,
                bytes: asked[n].bytes - before.1[n].bytes,
            }),
            amplification: programmed.amplification(),
            flash_blocks: programmed.all(),
            is_cut: on_drive.is_cut,
            is_uncut: on_drive.is_uncut(),
            speculation,
            changes: on_drive.changes,
            injected: injected.into_iter().map(|Injected { rule, times }| (rule, times)).collect(),
            told: on_drive.told,
            refused: on_drive.refused().to_vec(),
            diverged: on_drive.diverged.clone(),
        }
    }

    /// As JSON.
    pub fn to_json(&self, about: &About) -> Value {
        let calls: serde_json::Map<String, Value> = KINDS
            .iter()
            .zip(self.calls.iter().zip(&self.waited))
            .map(|(kind, (it, waited))| {
                let value = json!({
                    "count": it.count,
                    "seconds": it.time.as_secs_f64(),
                    "bytes": it.bytes,
                    "waited_ns": waited,
                });
                ((*kind).to_string(), value)
            })
            .collect();
        let names = ["reads", "writes", "flushes", "trims"];
        let asked: serde_json::Map<String, Value> = names
            .iter()
            .zip(self.asked)
            .map(|(name, it)| {
                ((*name).to_string(), json!({ "requests": it.requests, "bytes": it.bytes }))
            })
            .collect();
        let program = about.args.program.iter().map(|it| it.to_string_lossy());
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "drive_name": about.drive,
            "program": program.collect::<Vec<_>>(),
            "seed": about.args.seed,
            "exit_code": self.code,
            "ssdkit_exit_code": about.own,
            "error": about.error,
            "seconds": self.took.all.as_secs_f64(),
            "supervision": json!({
                "calls": self.supervised,
                "seconds": self.took.supervision.as_secs_f64(),
            }),
            "cut": self.is_cut,
            "changes": self.changes,
            "calls": calls,
            "speculation": self.speculation.as_ref().map(|it| json!({
                "syncs": it.syncs,
                "commits": it.commits,
                "held": it.held.count,
                "held_seconds": it.held.time.as_secs_f64(),
                "ended_by_shared_memory": it.is_off,
            })),
            "drive": asked,
            "flash_blocks": self.flash_blocks,
            "write_amplification": self.amplification,
            "injected": self.injected.iter()
                .map(|(rule, times)| json!({ "rule": rule, "times": times })).collect::<Value>(),
            "errors_told": self.told,
            "refused": self.refused,
            "diverged": self.diverged,
        })
    }

    /// In a line each.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let time = |of: Duration| units::time_ns(of.as_nanos() as f64);
        let mut calls: Vec<String> = Vec::new();
        let all = WORDS.iter().zip(self.calls.iter().zip(&self.waited));
        for ([one, several], (it, each)) in all.filter(|(_, (it, _))| it.count > 0) {
            let what = if it.count == 1 { one } else { several };
            let waited = match it.time {
                Duration::ZERO => String::new(),
                waited => {
                    let ns = |ns| units::time_ns(ns as f64);
                    let median = each.p50.map_or(String::new(), |p50| format!(", p50 {}", ns(p50)));
                    let tail = each.p99.map_or(String::new(), |p99| format!(", p99 {}", ns(p99)));
                    format!(" (waited {} for the drive{median}{tail})", time(waited))
                }
            };
            calls.push(format!("{} {what}{waited}", it.count));
        }
        if calls.is_empty() {
            calls.push("nothing was done to mapped files".into());
        }
        let how = if self.is_cut { "power cut" } else { "ended" };
        let _ = writeln!(out, "{how} after {}: {}", time(self.took.all), calls.join(", "));
        let [reads, writes, flushes, _] = self.asked;
        let moved = |of: Asked| {
            let bytes = units::bytes_decimal(of.bytes as f64);
            format!("{bytes} in {}", units::exactly(of.requests, "request"))
        };
        let _ = write!(
            out,
            "drive: read {}, wrote {}, {}",
            moved(reads),
            moved(writes),
            match flushes.requests {
                1 => "1 flush".to_string(),
                n => format!("{n} flushes"),
            },
        );
        if let Some(amplification) = self.amplification {
            let _ = write!(out, ", write amplification {amplification:.2}");
        }
        let _ = write!(
            out,
            "\nsupervision: {}, worked {} on them, the drive's model included",
            units::exactly(self.supervised, "call"),
            time(self.took.supervision),
        );
        if let Some(Speculated { syncs, commits, held, is_off }) = &self.speculation {
            let _ = write!(
                out,
                "\nanswered {} at once, made durable in {}; held {} that others see, {} in all",
                units::exactly(*syncs, "sync"),
                units::exactly(*commits, "commit"),
                units::exactly(held.count, "call"),
                time(held.time),
            );
            if *is_off {
                out.push_str(
                    "\nthe program shares memory with others: from then on its syncs waited",
                );
            }
        }
        for (rule, times) in &self.injected {
            let _ = write!(out, "\nfault {rule}: {}", units::exactly(*times, "time"));
        }
        if self.told > 0 || !self.injected.is_empty() {
            let calls = units::exactly(self.told, "call");
            let _ = write!(out, "\n{calls} of the program met an error of the drive");
        }
        for call in &self.refused {
            let _ = write!(out, "\n{call} was refused: it would have gone past the drive");
        }
        if self.is_uncut {
            let changes = units::exactly(self.changes, "change");
            let _ =
                write!(out, "\nthe power was not cut: the program ended before, after {changes}");
        }
        if let Some(why) = &self.diverged {
            let _ = write!(out, "\nthe program saw a change that the drive did not take: {why}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            code: 0,
            took: Took { all: Duration::from_millis(7), supervision: Duration::from_micros(40) },
            supervised: 1,
            calls: Default::default(),
            waited: Default::default(),
            asked: Default::default(),
            amplification: None,
            flash_blocks: 0,
            is_cut: false,
            is_uncut: false,
            speculation: None,
            changes: 0,
            injected: Vec::new(),
            told: 0,
            refused: Vec::new(),
            diverged: None,
        }
    }

    #[test]
    fn each_kind_has_its_words_and_nothing_is_said_of_what_was_not() {
        let mut summary = summary();
        let text = summary.text();
        assert!(text.contains("7.00 ms: nothing was done to mapped files\n"), "{text}");
        assert!(text.contains("supervision: 1 call, worked 40.0 us on them"), "{text}");
        summary.calls[0] = Calls { count: 3, time: Duration::from_millis(2), bytes: 9 };
        summary.calls[3] = Calls { count: 1, ..Calls::default() };
        summary.asked[0] = Asked { requests: 1, bytes: 4096 };
        summary.asked[1] = Asked { requests: 2, bytes: 12288 };
        let text = summary.text();
        let calls = "3 writes (waited 2.00 ms for the drive), 1 change of names\n";
        assert!(text.contains(calls) && !text.contains("not cut"), "{text}");
        summary.waited[0] = measure::Summary { p50: Some(1500), ..Default::default() };
        (summary.is_uncut, summary.changes) = (true, 4);
        let text = summary.text();
        assert!(text.contains("for the drive, p50 1.50 us), 1 change"), "{text}");
        assert!(text.ends_with("was not cut: the program ended before, after 4 changes"), "{text}");
        let drive = "drive: read 4.10 kB in 1 request, wrote 12.3 kB in 2 requests, 0 flushes";
        assert!(text.contains(drive), "{text}");
    }
}
