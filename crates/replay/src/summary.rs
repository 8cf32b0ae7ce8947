//! What a trace asks for, in sum.
//!
//! Guarantees: one pass in bounded memory; all is exact but the percentiles of gaps (within
//! 1 %, up to [`measure::histogram::MAX_NS`]) and, of very large traces and requests,
//! different blocks ([`crate::footprint`]); sums of bytes end at 2^64. Fails as the reader
//! does.

use measure::Histogram;
use port::BlockOp;

use crate::footprint::{Footprint, Touched};
use crate::reader::{Reader, Request};
use crate::sizes::Sizes;
use crate::{Counts, ReadError};

/// Ends of requests among which a next one that is sequential is looked for.
const ENDS: usize = 16;
/// Lengths that are told.
const COMMON: usize = 5;
/// Volumes that are told.
const VOLUMES: usize = 16;
/// A second.
const SECOND: u64 = 1_000_000_000;

/// What was asked of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What was asked of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfVolume {
    /// Requests.
    pub requests: u64,
    /// Bytes that were read and written.
    pub bytes: u64,
    /// Where the last request ends.
    pub end: u64,
}

/// The second that had most.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    second: u64,
    requests: u64,
    bytes: u64,
    most_requests: u64,
    most_bytes: u64,
}

impl Peak {
    #[inline]
    fn note(&mut self, at: u64, bytes: u64) {
        if at / SECOND != self.second {
            (self.second, self.requests, self.bytes) = (at / SECOND, 0, 0);
        }
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.most_requests = self.most_requests.max(self.requests);
        self.most_bytes = self.most_bytes.max(self.bytes);
    }
}

/// Where the last requests ended.
struct Ends {
    ends: [(u32, u64); ENDS],
    next: usize,
}

impl Ends {
    /// Takes note of a request; whether it begins where one of the last ended.
    #[inline]
    fn follow(&mut self, volume: u32, offset: u64, len: u64) -> bool {
        let before = self.ends.iter().position(|&end| end == (volume, offset));
        // One that goes on has the place of the one before.
        let at = before.unwrap_or(self.next);
        if before.is_none() {
            self.next = (self.next + 1) % ENDS;
        }
        self.ends[at] = (volume, offset + len);
        before.is_some()
    }
}

/// A trace in sum, as far as it was read.
pub struct Summary {
    kinds: [Kind; 4],
    volumes: Vec<OfVolume>,
    sizes: Sizes,
    gaps: Histogram,
    footprint: Footprint,
    ends: Ends,
    sequential: u64,
    peak: Peak,
    /// The time of the last request, and the bytes that it moves.
    last: u64,
    last_bytes: u64,
    /// What was read, and what was not.
    pub counts: Counts,
    /// Why it was not read to its end, if it was not.
    pub problem: Option<ReadError>,
}

impl Summary {
    /// Reads a trace to its end, or to what is wrong with it.
    pub fn read(reader: &mut Reader) -> Summary {
        let mut summary = Summary::new();
        loop {
            match reader.next() {
                Ok(Some(request)) => summary.note(&request),
                Ok(None) => break,
                Err(e) => {
                    summary.problem = Some(e);
                    break;
                }
            }
        }
        summary.counts = reader.counts();
        summary
    }

    fn new() -> Summary {
        Summary {
            kinds: Default::default(),
            volumes: Vec::new(),
            sizes: Sizes::new(),
            gaps: Histogram::new(),
            footprint: Footprint::new(),
            ends: Ends { ends: [(u32::MAX, 0); ENDS], next: 0 },
            sequential: 0,
            peak: Peak::default(),
            last: 0,
            last_bytes: 0,
            counts: Counts::default(),
            problem: None,
        }
    }

    fn note(&mut self, request: &Request) {
        let &Request { at, op, offset, len, volume, .. } = request;
        let kind = &mut self.kinds[place(op)];
        kind.requests += 1;
        kind.bytes = kind.bytes.saturating_add(len);
        if self.counts.requests > 0 {
            self.gaps.record(at - self.last);
        }
        self.last = at;
        self.counts.requests += 1;
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        self.last_bytes = if moves { len } else { 0 };
        self.peak.note(at, self.last_bytes);
        let volume_at = volume as usize;
        if volume_at >= self.volumes.len() {
            self.volumes.resize(volume_at + 1, OfVolume::default());
        }
        let of = &mut self.volumes[volume_at];
        of.requests += 1;
        of.end = of.end.max(offset + len);
        if moves {
            of.bytes = of.bytes.saturating_add(len);
            self.sizes.note(len);
            self.sequential += u64::from(self.ends.follow(volume, offset, len));
            self.footprint.touch(volume, offset, len, op == BlockOp::Write);
        }
    }

    /// What was asked of a kind. Zeroes that are written count among trims.
    pub fn of(&self, op: BlockOp) -> Kind {
        self.kinds[place(op)]
    }

    /// Reads and writes.
    pub fn moved(&self) -> Kind {
        let (reads, writes) = (self.of(BlockOp::Read), self.of(BlockOp::Write));
        Kind {
            requests: reads.requests + writes.requests,
            bytes: reads.bytes.saturating_add(writes.bytes),
        }
    }

    /// Requests, and bytes of reads and writes, a second: of all requests but the last, as
    /// so many have as many gaps behind them. `None` where no time passed.
    pub fn per_second(&self) -> Option<(f64, f64)> {
        let per_second = |n: u64| n as f64 * 1e9 / self.last as f64;
        let requests = self.counts.requests.saturating_sub(1);
        let bytes = self.moved().bytes.saturating_sub(self.last_bytes);
        (self.last > 0).then(|| (per_second(requests), per_second(bytes)))
    }

    /// From the first request to the last, in ns.
    pub fn ns(&self) -> u64 {
        self.last
    }

    /// Requests of the second that had most of them, and bytes of the one that had most.
    pub fn peak(&self) -> (u64, u64) {
        (self.peak.most_requests, self.peak.most_bytes)
    }

    /// Share of reads and writes that begin where one of the 16 before them ended, of the
    /// same volume: those of one that goes on count as one.
    pub fn sequential(&self) -> f64 {
        crate::footprint::share(self.sequential, self.moved().requests)
    }

    /// The bytes that so many percent of reads and writes do not exceed.
    pub fn size(&self, percent: f64) -> Option<u64> {
        self.sizes.percentile(percent)
    }

    /// The most frequent lengths of reads and writes, and how many had each.
    pub fn common_sizes(&self) -> Vec<(u64, u64)> {
        self.sizes.common(COMMON)
    }

    /// Times between two requests, one after the other.
    pub fn gaps(&self) -> &Histogram {
        &self.gaps
    }

    /// Which blocks it touches.
    pub fn touched(&self) -> Touched {
        self.footprint.touched()
    }

    /// How many volumes there are, and the numbers of those that were asked most.
    pub fn volumes(&self) -> (usize, Vec<(u32, OfVolume)>) {
        let asked = (0u32..).zip(&self.volumes).map(|(number, of)| (number, *of));
        let mut asked: Vec<_> = asked.filter(|(_, of)| of.requests > 0).collect();
        let count = asked.len();
        asked.sort_by_key(|&(number, of)| (std::cmp::Reverse(of.requests), number));
        asked.truncate(VOLUMES);
        (count, asked)
    }
}

#[inline]
fn place(op: BlockOp) -> usize {
    match op {
        BlockOp::Read => 0,
        BlockOp::Write => 1,
        BlockOp::Trim | BlockOp::WriteZeroes => 2,
        BlockOp::Flush => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(requests: &[(u64, BlockOp, u64, u64, u32)]) -> Summary {
        let mut summary = Summary::new();
        for &(at, op, offset, len, volume) in requests {
            summary.note(&Request { at, op, fua: false, offset, len, volume });
        }
        summary
    }

    #[test]
    fn a_small_trace_in_sum() {
        use BlockOp::{Flush, Read, Trim, Write};
        let s = summary(&[
            (0, Read, 0, 4096, 0),
            (500, Write, 1 << 20, 8192, 0),
            (700, Read, 4096, 4096, 0),
            (SECOND, Write, (1 << 20) + 8192, 4096, 0),
            (SECOND + 1, Read, 8192, 4096, 1),
            (SECOND + 2, Trim, 0, 1 << 30, 1),
            (SECOND + 4, Flush, 0, 0, 1),
            (3 * SECOND, Write, 1 << 20, 4096, 0),
        ]);
        assert_eq!(s.of(Read), Kind { requests: 3, bytes: 12288 });
        assert_eq!(s.of(Write), Kind { requests: 3, bytes: 16384 });
        assert_eq!((s.of(Trim).bytes, s.of(Flush).requests), (1 << 30, 1));
        assert_eq!((s.ns(), s.peak()), (3 * SECOND, (4, 16384)));
        // Seven requests in three seconds, and then the last.
        assert_eq!(s.per_second(), Some((7.0 / 3.0, 24576.0 / 3.0)));
        // The second read, and the second write; another volume is another.
        assert_eq!(s.sequential(), 2.0 / 6.0);
        assert_eq!(s.common_sizes(), [(4096, 5), (8192, 1)]);
        assert_eq!((s.size(50.0), s.size(100.0)), (Some(4096), Some(8192)));
        assert_eq!(
            (s.gaps().count(), s.gaps().min(), s.gaps().max()),
            (7, Some(1), Some(2 * SECOND - 4))
        );
        let touched = s.touched();
        assert_eq!((touched.blocks, touched.accesses), (6, 7));
        assert_eq!(touched.overwritten(), 1.0 / 4.0);
        let (count, most) = s.volumes();
        assert_eq!(count, 2);
        assert_eq!(most[0], (0, OfVolume { requests: 5, bytes: 24576, end: (1 << 20) + 12288 }));
        assert_eq!(most[1], (1, OfVolume { requests: 3, bytes: 4096, end: 1 << 30 }));
    }

    /// Sums end where a number does.
    #[test]
    fn very_long_requests_are_summed_up() {
        let s = summary(&[(0, BlockOp::Read, 0, i64::MAX as u64, 0); 3]);
        assert_eq!((s.moved().bytes, s.peak()), (u64::MAX, (3, u64::MAX)));
        let touched = s.touched();
        assert_eq!((touched.blocks, touched.accesses, touched.longer), (1 << 18, 3 << 18, 3));
        assert_eq!(s.per_second(), None, "no time passed");
    }

    #[test]
    fn streams_side_by_side_are_sequential() {
        let mut requests = Vec::new();
        for i in 0..10 {
            for stream in 0..ENDS as u64 {
                requests.push((i, BlockOp::Read, (stream << 30) + i * 4096, 4096, 0));
            }
        }
        assert_eq!(summary(&requests).sequential(), 0.9);
    }
}
