//! What a trace asks for, in sum: of formats of others, and of our own.
//!
//! Fails when the trace cannot be told or read, and, after the summary of what was read,
//! when it was not read to its end.

use std::io::Write;

use measure::{Histogram, histogram, units};
use port::BlockOp;
use replay::{Input, Kind, Reader, Summary};
use serde_json::{Value, json};

use super::TraceArgs;
use drive::error::Error;

/// Percentiles that are told.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 100.0];
/// Kinds of requests, and their names.
const KINDS: [(BlockOp, &str); 4] = [
    (BlockOp::Read, "reads"),
    (BlockOp::Write, "writes"),
    (BlockOp::Trim, "trims"),
    (BlockOp::Flush, "flushes"),
];

/// Reads the trace and prints the summary to `out`.
pub(super) fn run(args: &TraceArgs, input: Input, out: &mut dyn Write) -> Result<(), Error> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.file.display());
    let mut reader = Reader::new(input, &args.read).map_err(|e| match e {
        replay::ReadError::Io(_) => Error::Failed(named(&e)),
        e => Error::Usage(named(&e)),
    })?;
    let summary = Summary::read(&mut reader);
    if args.json {
        writeln!(out, "{:#}", to_json(&summary, &reader))?;
    } else if summary.counts.requests > 0 {
        write!(out, "{}", to_text(&summary, &reader))?;
    }
    out.flush()?;
    summary.problem.map_or(Ok(()), |e| Err(Error::Failed(named(&e))))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The percentiles of something, in one line.
fn percentiles(of: impl Fn(f64) -> Option<String>) -> String {
    let told = PERCENTILES.iter().filter_map(|&p| {
        let label = if p == 100.0 { "max".into() } else { format!("p{p}") };
        of(p).map(|value| format!("{label} {value}"))
    });
    told.collect::<Vec<_>>().join(", ")
}

fn to_text(s: &Summary, reader: &Reader) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: String| out += &format!("{label:<12}{text}\n");
    let count = |n: u64| units::count(n as f64);
    let (volumes, most) = s.volumes();
    let volumes = units::exactly(volumes as u64, "volume");
    line("format", format!("{}, {volumes}", reader.format()));
    line("requests", format!("{} in {}", count(s.counts.requests), units::time_ns(s.ns() as f64)));
    for (op, label) in KINDS {
        let Kind { requests, bytes } = s.of(op);
        let bytes = match op {
            BlockOp::Flush => String::new(),
            _ => format!(", {}", units::bytes_decimal(bytes as f64)),
        };
        line(label, format!("{}{bytes}", count(requests)));
    }
    let per = |n: f64| units::bytes_decimal(n);
    let (most_requests, most_bytes) = s.peak();
    let rate = s.per_second().map(|(n, bytes)| format!("{}/s, {}/s", units::count(n), per(bytes)));
    let none = match s.counts.backwards {
        0 => "none: all requests have one time",
        _ => "none: no request is later than the first",
    };
    line("mean rate", rate.unwrap_or_else(|| none.into()));
    let (requests, bytes) = (count(most_requests), per(most_bytes as f64));
    line("peak second", format!("{requests} requests; {bytes}"));
    if s.moved().requests > 0 {
        line("sizes", percentiles(|p| s.size(p).map(units::size_binary)));
        let all = s.moved().requests as f64;
        let common = s
            .common_sizes()
            .into_iter()
            .map(|(len, n)| format!("{} {}", units::size_binary(len), percent(n as f64 / all)));
        line("", format!("most: {}", common.collect::<Vec<_>>().join(", ")));
        line("sequential", format!("{} of reads and writes", percent(s.sequential())));
        let touched = s.touched();
        let about = if touched.is_estimate { "about " } else { "" };
        let size = |blocks: u64| units::bytes_decimal(blocks as f64 * 4096.0);
        line(
            "working set",
            format!(
                "{about}{} blocks of 4 KiB, {}; {} of them written",
                count(touched.blocks),
                size(touched.blocks),
                count(touched.written)
            ),
        );
        line(
            "again",
            format!(
                "{about}{} of the accesses of blocks go to blocks seen before, {} of the writes to \
                 blocks written before",
                percent(touched.reused()),
                percent(touched.overwritten())
            ),
        );
        if touched.longer > 0 {
            let longer = units::exactly(touched.longer, "request");
            line(
                "note",
                format!("{longer} of more than 1 GiB, of which the first 1 GiB counts here"),
            );
        }
    }
    if s.gaps().count() > 0 {
        let time = |p| s.gaps().percentile(p).map(|ns| units::time_ns(ns as f64));
        line("gaps", percentiles(time));
        if let Some(note) = beyond(s.gaps()) {
            line("note", note);
        }
    }
    for note in s.counts.notes() {
        line("note", note);
    }
    if let [(_, of)] = &most[..] {
        line("ends at", units::capacity(of.end));
    }
    if most.len() > 1 {
        line("volumes", "those with most requests".into());
        for (number, of) in most {
            let end = units::capacity(of.end);
            let (requests, bytes) = (count(of.requests), units::bytes_decimal(of.bytes as f64));
            line(
                "",
                format!("{}: {requests} requests, {bytes}, ends at {end}", reader.volume(number)),
            );
        }
    }
    out
}

/// What is to be known of percentiles that say no more than the longest gap that is told
/// apart.
fn beyond(gaps: &Histogram) -> Option<String> {
    let seconds = histogram::MAX_NS / 1_000_000_000;
    gaps.max().filter(|&max| max >= histogram::MAX_NS).map(|_| {
        format!("some gaps are of {seconds} s or more: a percentile of that is of that or more")
    })
}

fn to_json(s: &Summary, reader: &Reader) -> Value {
    let kind = |op| {
        let Kind { requests, bytes } = s.of(op);
        json!({ "requests": requests, "bytes": bytes })
    };
    let (peak_requests, peak_bytes) = s.peak();
    let touched = s.touched();
    let (volumes, most) = s.volumes();
    let sizes = |percent| s.size(percent);
    let gaps = |percent| s.gaps().percentile(percent);
    json!({
        "format": reader.format(),
        "problem": s.problem.as_ref().map(ToString::to_string),
        "read": s.counts.to_json(),
        "seconds": s.ns() as f64 / 1e9,
        "reads": kind(BlockOp::Read),
        "writes": kind(BlockOp::Write),
        "trims": kind(BlockOp::Trim),
        "flushes": kind(BlockOp::Flush),
        "requests_per_second": s.per_second().map(|(requests, _)| requests),
        "bytes_per_second": s.per_second().map(|(_, bytes)| bytes),
        "peak_second": { "requests": peak_requests, "bytes": peak_bytes },
        "sizes": {
            "p50": sizes(50.0), "p90": sizes(90.0), "p99": sizes(99.0), "max": sizes(100.0),
            "common": Value::from_iter(
                s.common_sizes().into_iter().map(|(bytes, n)| json!({ "bytes": bytes, "requests": n }))
            ),
        },
        "sequential": s.sequential(),
        "working_set": {
            "blocks": touched.blocks,
            "written_blocks": touched.written,
            "is_estimate": touched.is_estimate,
            "longer_requests": touched.longer,
        },
        "block_accesses": touched.accesses,
        "reused": touched.reused(),
        "overwritten": touched.overwritten(),
        "gaps_ns": { "p50": gaps(50.0), "p90": gaps(90.0), "p99": gaps(99.0), "max": gaps(100.0) },
        "volumes": volumes,
        "most_asked": Value::from_iter(most.into_iter().map(|(number, of)| json!({
            "volume": reader.whole_name(number),
            "requests": of.requests,
            "bytes": of.bytes,
            "end": of.end,
        }))),
    })
}
