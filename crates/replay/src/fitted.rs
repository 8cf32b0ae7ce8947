//! A trace's requests as a drive takes them: when, where, and how long.
//!
//! Guarantees: requests keep their order; a recorded time is kept to the ns, a scaled one
//! is rounded down; every piece lies in the drive, begins and ends at its unit and is at
//! most as long as it takes. What was widened, cut, moved or left out is counted. What
//! is wrong with the trace ends it and is told then. Nothing panics.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use port::{BLOCK_BYTES, BlockOp};
use serde_json::{Value, json};
use workload::Access;

use crate::reader::{Next, Reader, Request};

/// Millionths: the unit of a pace.
const UNIT: u64 = 1_000_000;

/// Requests that are looked at in search of one that fits, before who asks has a say again.
const AT_A_TIME: u32 = 64;

/// The longest replay, 100 years in ns: drives count no further for long.
const LONGEST: u64 = 100 * 31_557_600 * 1_000_000_000;

/// How much faster than recorded requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    millionths: u64,
}

impl Speed {
    /// As recorded.
    pub const RECORDED: Speed = Speed { millionths: UNIT };

    /// When a request comes that was recorded at `at`, in ns.
    #[inline]
    fn time(self, at: u64) -> u64 {
        if self.millionths == UNIT {
            return at;
        }
        let scaled = u128::from(at) * u128::from(UNIT) / u128::from(self.millionths);
        scaled.min(u64::MAX.into()) as u64
    }
}

impl FromStr for Speed {
    type Err = String;

    /// `10x`, `0.5x`: from 0.001 to a million.
    fn from_str(text: &str) -> Result<Speed, String> {
        let factor = text.strip_suffix('x').and_then(|factor| factor.parse::<f64>().ok());
        let factor = factor.filter(|factor| (1e-3..=1e6).contains(factor));
        let millionths = factor.map(|factor| (factor * UNIT as f64).round() as u64);
        millionths.map(|millionths| Speed { millionths }).ok_or_else(|| {
            "a pace is recorded, closed, or a factor from 0.001x to 1000000x, as in 10x".into()
        })
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Speed::RECORDED => f.write_str("recorded"),
            Speed { millionths } => write!(f, "{}x", millionths as f64 / UNIT as f64),
        }
    }
}

/// What becomes of a request that ends beyond the drive, or its volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Beyond {
    /// Addresses begin again at 0: the remainder counts.
    #[default]
    Wrap,
    /// It is moved so that it ends with the drive.
    Clamp,
    /// It is left out.
    Reject,
}

/// What a drive does not take, and is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Trims.
    pub trims: bool,
    /// Zeroes that are written without their bytes.
    pub zeroes: bool,
    /// Flushes.
    pub flushes: bool,
    /// That a request is durable when it completes.
    pub fua: bool,
}

/// What requests are fitted to.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// Bytes of the drive: a multiple of 4 KiB.
    pub bytes: u64,
    /// What requests begin and end at: 512 or 4096 bytes.
    pub unit: u64,
    /// The longest read or write, in bytes; a multiple of the unit.
    pub most: u64,
    /// The longest trim, in bytes; a multiple of the unit.
    pub most_trim: u64,
    /// What it does not take.
    pub lacks: Lacks,
    /// How fast they come.
    pub speed: Speed,
    /// What becomes of those beyond it.
    pub beyond: Beyond,
    /// Bytes of each volume, a multiple of 4 KiB, where several lie side by side.
    pub volume: Option<u64>,
    /// Requests of the trace, at most.
    pub requests: u64,
    /// Only those that come before so many ns.
    pub until: u64,
}

/// What was done to fit requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Requests of the trace that were taken, those left out among them.
    pub taken: u64,
    /// Widened to whole units.
    pub widened: u64,
    /// Bytes that these have more.
    pub widened_bytes: u64,
    /// Cut, as the drive takes no longer ones.
    pub cut: u64,
    /// Split, as they wrap around the end.
    pub split: u64,
    /// Pieces of those that were cut or split.
    pub pieces: u64,
    /// Beyond the end, and so wrapped, clamped or rejected.
    pub beyond: u64,
    /// Longer than the drive or volume, and so shortened to all of it.
    pub shortened: u64,
    /// Of a kind that the drive does not take, and so left out.
    pub not_taken: u64,
    /// FUA, which the drive does not take, and so without.
    pub without_fua: u64,
}

impl Done {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "taken": self.taken,
            "widened": self.widened,
            "widened_bytes": self.widened_bytes,
            "cut": self.cut,
            "split": self.split,
            "pieces": self.pieces,
            "beyond": self.beyond,
            "shortened": self.shortened,
            "not_taken": self.not_taken,
            "without_fua": self.without_fua,
        })
    }

    /// What was done, in words.
    pub fn notes(&self, beyond: Beyond) -> Vec<String> {
        let count = |n| measure::units::count(n as f64);
        let how = match beyond {
            Beyond::Wrap => "wrapped",
            Beyond::Clamp => "clamped",
            Beyond::Reject => "rejected",
        };
        let bytes = measure::units::bytes_decimal(self.widened_bytes as f64);
        let told = [
            (self.widened, format!("widened to whole blocks or sectors, by {bytes}")),
            (self.cut, "cut, as the drive takes no longer ones".into()),
            (self.split, "split, as they wrap around the end".into()),
            (self.pieces, "pieces came of those".into()),
            (self.beyond, format!("beyond the end, {how}")),
            (self.shortened, "longer than all there is, shortened to that".into()),
            (self.not_taken, "of a kind that the drive does not take, left out".into()),
            (self.without_fua, "FUA, which the drive does not take, made without".into()),
        ];
        told.iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{} {what}", count(*n)))
            .collect()
    }
}

/// An access and when it is due, in ns since the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// When.
    pub at: u64,
    /// The number of its request among those that were taken, from 1 on: pieces share it.
    pub number: u64,
    /// What.
    pub access: Access,
}

/// What is left of a request.
#[derive(Clone, Copy)]
struct Left {
    at: u64,
    number: u64,
    /// Bytes of a piece, at most.
    most: u64,
    op: BlockOp,
    fua: bool,
    /// Where its volume begins, and its bytes.
    base: u64,
    limit: u64,
    /// In the volume.
    offset: u64,
    len: u64,
}

/// A trace fitted to a drive.
pub struct Fitted {
    reader: Reader,
    fit: Fit,
    left: Option<Left>,
    done: Done,
    problem: Option<String>,
    is_over: bool,
}

impl Fitted {
    /// Of a reader that gave nothing yet.
    pub fn new(reader: Reader, fit: Fit) -> Fitted {
        let (done, problem) = (Done::default(), None);
        Fitted { reader, fit, left: None, done, problem, is_over: false }
    }

    /// What was done so far.
    pub fn done(&self) -> Done {
        self.done
    }

    /// The trace.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What it is fitted to.
    pub fn fit(&self) -> &Fit {
        &self.fit
    }

    /// Why it did not come to its end, if it did not.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether nothing more comes: the end was reached, or a problem.
    pub fn is_over(&self) -> bool {
        self.is_over && self.left.is_none()
    }

    /// The next access. `None` when it [is over](Fitted::is_over), and where a part of the
    /// trace has none that fits: then it is to be asked again.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "what ends it is asked afterwards")]
    pub fn next(&mut self) -> Option<Due> {
        for _ in 0..AT_A_TIME {
            if let Some(left) = &mut self.left {
                let due = piece(left);
                if left.len == 0 {
                    self.left = None;
                }
                return Some(due);
            }
            if self.is_over {
                return None;
            }
            match self.take() {
                Ok(Some(due)) => return Some(due),
                Ok(None) => {}
                Err(problem) => (self.problem, self.is_over) = (Some(problem), true),
            }
        }
        None
    }

    /// Whether the drive takes requests of this kind.
    #[inline]
    fn is_taken(&self, op: BlockOp) -> bool {
        let lacks = &self.fit.lacks;
        match op {
            BlockOp::Read | BlockOp::Write => true,
            BlockOp::Trim => !lacks.trims,
            BlockOp::WriteZeroes => !lacks.zeroes,
            BlockOp::Flush => !lacks.flushes,
        }
    }

    /// Takes the next request of the trace. Gives its first piece; nothing where it is left
    /// out, or none was found yet.
    #[inline]
    fn take(&mut self) -> Result<Option<Due>, String> {
        if self.done.taken == self.fit.requests {
            self.is_over = true;
            return Ok(None);
        }
        let request = match self.reader.next_soon().map_err(|e| e.to_string())? {
            Next::Request(request) => request,
            Next::Later => return Ok(None),
            Next::End => {
                self.is_over = true;
                return Ok(None);
            }
        };
        let at = self.fit.speed.time(request.at);
        if at >= self.fit.until {
            self.is_over = true;
            return Ok(None);
        }
        if at > LONGEST {
            return Err("a request is due after more than 100 years: raise --pace, or take \
                        less with --volume, --requests or --time"
                .into());
        }
        self.done.taken += 1;
        let number = self.done.taken;
        let Request { op, offset, len, volume, .. } = request;
        if !self.is_taken(op) {
            self.done.not_taken += 1;
            return Ok(None);
        }
        if op == BlockOp::Flush {
            let access = Access { op, offset: 0, len: 0, fua: false };
            return Ok(Some(Due { at, number, access }));
        }
        let (base, limit) = self.place(volume)?;
        let unit = self.fit.unit;
        let begin = offset / unit * unit;
        let end = (offset + len).next_multiple_of(unit);
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        let most = if moves { self.fit.most } else { self.fit.most_trim };
        let fua = request.fua && !self.fit.lacks.fua;
        let (offset, widened) = (begin, end - begin - len);
        let len = end - begin;
        let mut left = Left { at, number, most, op, fua, base, limit, offset, len };
        if end > limit && !self.bring_in(&mut left) {
            return Ok(None);
        }
        self.done.widened += u64::from(widened > 0);
        self.done.widened_bytes = self.done.widened_bytes.saturating_add(widened);
        self.done.without_fua += u64::from(request.fua && self.fit.lacks.fua);
        let whole = left;
        let due = piece(&mut left);
        if left.len > 0 {
            self.count_pieces(&whole);
            self.left = Some(left);
        }
        Ok(Some(due))
    }

    /// Counts the pieces of a request that has several.
    #[cold]
    fn count_pieces(&mut self, whole: &Left) {
        let before = whole.len.min(whole.limit - whole.offset);
        let (behind, most) = (whole.len - before, whole.most);
        let pieces = before.div_ceil(most).saturating_add(behind.div_ceil(most));
        self.done.split += u64::from(behind > 0);
        self.done.cut += u64::from(before > most || behind > most);
        self.done.pieces = self.done.pieces.saturating_add(pieces);
    }

    /// Where a volume begins, and its bytes.
    #[inline]
    fn place(&self, volume: u32) -> Result<(u64, u64), String> {
        if self.reader.is_of_one_volume() {
            return Ok((0, self.fit.volume.unwrap_or(self.fit.bytes)));
        }
        match self.fit.volume {
            None if volume == 0 => Ok((0, self.fit.bytes)),
            None => Err(format!(
                "it has several volumes, `{}` and `{}` first: choose one with --volume, or lay \
                 them side by side, as in --volume-size 1G",
                self.reader.volume(0),
                self.reader.volume(1)
            )),
            Some(each) => {
                let base = u64::from(volume).checked_mul(each);
                let is_inside =
                    |base: &u64| base.checked_add(each).is_some_and(|end| end <= self.fit.bytes);
                base.filter(is_inside).map(|base| (base, each)).ok_or_else(|| {
                    format!(
                        "the drive has room for {} volumes of {}, and `{}` is one more: lower \
                         --volume-size, or take a larger drive",
                        self.fit.bytes / each,
                        measure::units::capacity(each),
                        self.reader.volume(volume)
                    )
                })
            }
        }
    }

    /// Brings a request in that ends beyond its volume; false where it is left out.
    #[cold]
    fn bring_in(&mut self, left: &mut Left) -> bool {
        self.done.beyond += 1;
        if self.fit.beyond == Beyond::Reject {
            return false;
        }
        if left.len > left.limit {
            self.done.shortened += 1;
            left.len = left.limit;
        }
        left.offset = match self.fit.beyond {
            Beyond::Wrap => left.offset % left.limit,
            _ => left.offset.min(left.limit - left.len),
        };
        true
    }
}

/// Takes the next piece.
#[inline]
fn piece(left: &mut Left) -> Due {
    let len = left.len.min(left.most).min(left.limit - left.offset);
    let access = Access { op: left.op, offset: left.base + left.offset, len, fua: left.fua };
    left.len -= len;
    left.offset += len;
    if left.offset == left.limit {
        left.offset = 0;
    }
    Due { at: left.at, number: left.number, access }
}

/// Bytes of a volume: a multiple of 4 KiB.
pub fn volume_size(text: &str) -> Result<u64, String> {
    let bytes = measure::units::size(text).map_err(|e| e.to_string())?;
    let is_whole = bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES);
    is_whole.then_some(bytes).ok_or_else(|| "write a multiple of 4 KiB, as in 1G".into())
}

#[cfg(test)]
mod tests;
