//! Where figures of a run mean nothing, or not what they say: why.
//!
//! Nothing here fails.

use std::ops::Range;

use load::tally::Tally;
use measure::{Histogram, histogram};
use port::{BLOCK_BYTES, BlockOp};

/// Why those of a tally that read so many bytes do not, where many blocks read
/// were never written, or trimmed. A block of which a part was read counts as one.
fn read_nothing(tally: &Tally, bytes: u64) -> Option<String> {
    let nothing = tally.after.nothing.saturating_sub(tally.before.nothing);
    let read = tally.latency(BlockOp::Read).count().max(bytes / BLOCK_BYTES);
    (nothing > 0 && nothing * 100 >= read).then(|| {
        let part = 100 * nothing / read.max(nothing);
        format!(
            "{part} % of the blocks read were never written, or trimmed, and are read in no time; \
             write all of the drive first"
        )
    })
}

/// Why those of a file mean nothing that lies in memory.
pub const IN_MEMORY: &str = "the file lies in memory (tmpfs or ramfs), and no drive is behind it: take a \
                             file on a drive";

/// Why those of reads of a range of a file do not, where much of it was never written, or was
/// trimmed.
pub fn reads_holes(path: &str, range: Range<u64>) -> Option<String> {
    let part = storage::holes(path, range);
    (part > 0).then(|| {
        format!(
            "{part} % of what is read of the file are holes, never written or trimmed, and are read \
             in no time: --precondition seq --destroy fills them"
        )
    })
}

/// What is to be known where requests were left inside.
pub(crate) fn left_inside(left: u64) -> Option<String> {
    (left > 0).then(|| {
        format!(
            "{left} requests were still inside when the run was stopped: they were not waited for \
             and are in no rate or latency, so the longest latencies are missing"
        )
    })
}

/// What is to be known of percentiles that say no more than the longest latency that is
/// told apart.
pub(crate) fn saturated(latency: &Histogram) -> Option<String> {
    let longest = histogram::MAX_NS;
    latency.summary().max.filter(|&max| max >= longest).map(|_| {
        let seconds = longest / 1_000_000_000;
        format!("some requests took {seconds} s or more: a percentile of that is of that or more")
    })
}

/// Why the rates and latencies of a tally mean nothing that has `ios` I/Os and bytes
/// `read`, if they do not.
pub fn why_void(tally: &Tally, ios: u64, read: u64) -> Option<String> {
    void(tally, ios).or_else(|| read_nothing(tally, read))
}

/// The same, whatever was read.
pub(crate) fn void(tally: &Tally, ios: u64) -> Option<String> {
    let failed = tally.failed;
    match ios {
        0 if failed > 0 => Some(format!("no request did what it was asked, and {failed} failed")),
        0 if tally.interrupted => Some("it was stopped before anything was measured".into()),
        0 => Some("nothing was measured".into()),
        _ if tally.seconds() > 0.0 && !tally.stood => None,
        _ => Some(
            "the drive's time stood still: it takes none, or all that was written fits its \
             buffer, or what was read was never written"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use measure::Gauges;
    use port::Time;
    use targets::WriteCounters;

    use super::*;

    /// A drive counts a block for each request of 512 bytes.
    #[test]
    fn parts_of_blocks_that_were_never_written_are_blocks() {
        let why = |len: u64, blocks: u64, nothing: u64| {
            let mut tally = Tally::new();
            tally.begin(Time::ZERO, WriteCounters::default(), Gauges::default());
            (0..1000).for_each(|n| tally.record(BlockOp::Read, len, Time(n + 1), 1));
            tally.finish(WriteCounters { nothing, ..Default::default() }, Gauges::default());
            assert_eq!(tally.bytes(BlockOp::Read), blocks * 4096);
            read_nothing(&tally, tally.bytes(BlockOp::Read)).unwrap_or_default()
        };
        assert!(why(512, 125, 50).starts_with("5 % of the blocks read"));
        assert_eq!(why(512, 125, 9), "");
        assert!(why(512, 125, 1000).starts_with("100 %"));
        assert!(why(16_384, 4000, 200).starts_with("5 % of the blocks read"));
        assert_eq!(why(16_384, 4000, 39), "");
    }
}
