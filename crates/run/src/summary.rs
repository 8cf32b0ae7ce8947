//! What a run tells at its end.

use std::fmt::Write;
use std::time::Duration;

use drive::fault_rules::Injected;
use drive::whole::Observed;
use interpose::{Ended, Held};
use measure::{WriteAmplification, units};
use serde_json::{Value, json};

use crate::engine::Asked;
use crate::watcher::{Calls, KINDS, OnDrive};

/// The figures.
pub struct Summary {
    /// The program's exit code.
    pub code: i32,
    took: Duration,
    calls: [Calls; KINDS.len()],
    asked: [Asked; 4],
    amplification: Option<f64>,
    flash_blocks: u64,
    /// Whether the power was cut.
    pub is_cut: bool,
    speculation: Option<Speculated>,
    changes: u64,
    injected: Vec<(String, u64)>,
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
        on_drive: &OnDrive,
        before: ([u64; 4], [Asked; 4]),
        ended: Ended,
        took: Duration,
    ) -> Self {
        let disk = on_drive.files.disk();
        let counters = disk.look(programmed);
        let [user, gc, padding, metadata] =
            [0, 1, 2, 3].map(|n| counters[n].saturating_sub(before.0[n]));
        let amplification = WriteAmplification::from_blocks(user, gc, padding, metadata);
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
            calls: on_drive.calls,
            asked: [0, 1, 2, 3].map(|n| Asked {
                requests: asked[n].requests - before.1[n].requests,
                bytes: asked[n].bytes - before.1[n].bytes,
            }),
            amplification: amplification.map(|it| it.total),
            flash_blocks: user + gc + padding + metadata,
            is_cut: on_drive.is_cut,
            speculation,
            changes: on_drive.changes,
            injected: injected.into_iter().map(|Injected { rule, times }| (rule, times)).collect(),
            refused: on_drive.refused().to_vec(),
            diverged: on_drive.diverged.clone(),
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let calls: serde_json::Map<String, Value> = KINDS
            .iter()
            .zip(self.calls)
            .map(|(kind, it)| {
                let value = json!({
                    "count": it.count,
                    "seconds": it.time.as_secs_f64(),
                    "bytes": it.bytes,
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
        json!({
            "exit_code": self.code,
            "seconds": self.took.as_secs_f64(),
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
            "refused": self.refused,
            "diverged": self.diverged,
        })
    }

    /// In a line each.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let time = |of: Duration| units::time_ns(of.as_nanos() as f64);
        let calls: Vec<String> = KINDS
            .iter()
            .zip(self.calls)
            .filter(|(_, it)| it.count > 0)
            .map(|(kind, it)| format!("{} {kind} in {}", it.count, time(it.time)))
            .collect();
        let how = if self.is_cut { "power cut" } else { "ended" };
        let _ = writeln!(out, "{how} after {}: {}", time(self.took), calls.join(", "));
        let [reads, writes, flushes, _] = self.asked;
        let bytes = |of: Asked| units::bytes_decimal(of.bytes as f64);
        let _ = write!(
            out,
            "drive: read {}, wrote {} in {}, {}",
            bytes(reads),
            bytes(writes),
            units::exactly(writes.requests, "request"),
            match flushes.requests {
                1 => "1 flush".to_string(),
                n => format!("{n} flushes"),
            },
        );
        if let Some(amplification) = self.amplification {
            let _ = write!(out, ", write amplification {amplification:.2}");
        }
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
        for call in &self.refused {
            let _ = write!(out, "\n{call} was refused: it would have gone past the drive");
        }
        if let Some(why) = &self.diverged {
            let _ = write!(out, "\nthe program saw a change that the drive did not take: {why}");
        }
        out
    }
}

/// Blocks that a drive has programmed: for the user, by collection, to fill rows, for itself.
pub fn programmed(drive: &impl Observed) -> [u64; 4] {
    let counters = drive.counters();
    [counters.user, counters.gc, counters.padding, counters.metadata]
}
