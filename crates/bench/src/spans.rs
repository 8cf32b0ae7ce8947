//! Which addresses of a drive are written before a bench.
//!
//! Guarantees: `--precondition seq` writes what the loads use and nothing else, so that what
//! others have on a drive stays; `whole` and `steady` write all that has blocks. Where
//! targets keep values by key, or are gone, there are none: then a bench is of
//! the targets that its ranges name, and writes no others before. Fails where a range is
//! not within the blocks that there are.

use std::ops::Range;

use drive::error::Error;
use drive::spec::DriveConfig;
use load::runner::{joined, used_of};
use port::BLOCK_BYTES;

use crate::args::{BenchArgs, Precondition, Rw};

/// What is written before a bench, of a drive that ends at this byte.
pub(crate) fn of(
    args: &BenchArgs,
    config: &DriveConfig,
    end: u64,
) -> Result<Vec<Range<u64>>, Error> {
    let whole = 0..end;
    if !config.spec.is_shared() {
        return Ok(of_whole(args, end));
    }
    let all = config.spans();
    if all == [whole.clone()] || args.replay.is_some() {
        return Ok(written(args, all, end));
    }
    let loads = args.all_jobs();
    let range = |load: &BenchArgs| load.range.map_or(whole.clone(), |r| r.offset..r.offset + r.len);
    let loads: Vec<Range<u64>> = loads.iter().map(range).collect();
    let has = |load: &&Range<u64>| {
        load.end > end || all.iter().any(|span| span.start <= load.start && load.end <= span.end)
    };
    if let Some(load) = loads.iter().find(|load| !has(load)) {
        let ranges: Vec<String> = all.iter().map(text).collect();
        return Err(Error::Usage(format!(
            "of the addresses {} some have no blocks, but keys, or nobody has them: take --range \
             {}, or a part of that",
            text(load),
            ranges.join(" or "),
        )));
    }
    let meets = |span: &Range<u64>| loads.iter().any(|l| l.start < span.end && span.start < l.end);
    Ok(written(args, all.into_iter().filter(meets).collect(), end))
}

/// The same of one that has blocks at all addresses.
pub(crate) fn of_whole(args: &BenchArgs, end: u64) -> Vec<Range<u64>> {
    written(args, std::iter::once(0..end).collect(), end)
}

/// Whether a part of a drive that has blocks stays as it is.
pub(crate) fn are_part(spans: &[Range<u64>], config: &DriveConfig, end: u64) -> bool {
    let sum = |all: &[Range<u64>]| all.iter().map(|span| span.end - span.start).sum::<u64>();
    sum(spans) < if config.spec.is_shared() { sum(&config.spans()) } else { end }
}

/// What is written of these addresses.
fn written(args: &BenchArgs, all: Vec<Range<u64>>, end: u64) -> Vec<Range<u64>> {
    if args.precondition() != Precondition::Seq {
        return all;
    }
    let used = joined(args.all_jobs().iter().map(|load| used(load, end)).collect());
    let of = |span: &Range<u64>| {
        let (start, end) = (span.start, span.end);
        let part = move |part: &Range<u64>| part.start.max(start)..part.end.min(end);
        used.iter().map(part).filter(|part| !part.is_empty()).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).collect()
}

/// What a load uses of a drive that ends there.
fn used(load: &BenchArgs, end: u64) -> Range<u64> {
    let Some(range) = load.range else { return 0..end };
    let sizes_are = |unit| {
        load.varied().map_or(load.bs.is_multiple_of(unit), |varied| varied.are_multiples_of(unit))
    };
    let are_blocks = load.rw == Rw::Trim || sizes_are(BLOCK_BYTES as u32);
    used_of(range.offset..range.offset + range.len, are_blocks)
}

/// As `--range` has it.
fn text(range: &Range<u64>) -> String {
    let size = |bytes: u64| match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    };
    format!("{}+{}", size(range.start), size(range.end - range.start))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Line;

    /// What is written of a drive of 64 MiB, in KiB.
    fn spans(rest: &str) -> Vec<(f64, f64)> {
        let line = format!("bench mem:tlc,size=64M --rw randread --time 1 {rest}");
        let args = Line::parse_from(line.split_whitespace()).args;
        let k = |bytes: u64| bytes as f64 / 1024.0;
        of_whole(&args, 64 << 20).iter().map(|span| (k(span.start), k(span.end))).collect()
    }

    #[test]
    fn what_is_used_is_written() {
        let all = 65536.0;
        assert_eq!(spans("--precondition seq"), [(0.0, all)]);
        assert_eq!(spans("--precondition seq --range 8k+64k"), [(8.0, 72.0)]);
        // The half of a block at the end is not used, and not written.
        assert_eq!(spans("--precondition seq --range 8k+66k"), [(8.0, 72.0)]);
        assert_eq!(spans("--precondition seq --range 1k+66k --bs 512"), [(1.0, 67.0)]);
        assert_eq!(spans("--precondition whole --range 8k+64k"), [(0.0, all)]);
        assert_eq!(spans("--precondition steady --range 8k+64k"), [(0.0, all)]);
    }

    #[test]
    fn of_several_loads_each_part_is_written_once() {
        let apart = "--precondition seq --range 1M --job rw=write,range=8M+1M";
        assert_eq!(spans(apart), [(0.0, 1024.0), (8192.0, 9216.0)]);
        let over = "--precondition seq --range 2M --job rw=write,range=1M+2M";
        assert_eq!(spans(over), [(0.0, 3072.0)]);
        let beside = "--precondition seq --range 1M --job rw=write,range=1M+1M";
        assert_eq!(spans(beside), [(0.0, 2048.0)]);
        assert_eq!(spans("--precondition seq --range 1M --job rw=write"), [(0.0, 65536.0)]);
    }
}
