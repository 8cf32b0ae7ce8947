//! What the options of `ssdkit bench` come to, with what was not said.

use super::{BenchArgs, End, Precondition, Rw};
use drive::spec::DriveSpec;
use load::blocks::Dispatch;
use load::driver::ClockKind;
use load::runner::Rounds;
use measure::units;
use port::BLOCK_BYTES;
use workload::{Sizes, Varied};

impl BenchArgs {
    /// When the run ends.
    pub fn end(&self) -> End {
        match (self.ios, self.time) {
            (Some(ios), _) => End::Ios(ios),
            (None, Some(ns)) => End::Time(ns),
            (None, None) => End::Ios(1_000_000),
        }
    }

    /// Whose time it is.
    pub fn clock(&self) -> ClockKind {
        let hosted = matches!(self.blocks.dispatch, Some(Dispatch::Hosted(_)));
        let ours = matches!(self.drive, DriveSpec::Memory(_) | DriveSpec::File(_)) && !hosted;
        self.clock.unwrap_or(if ours { ClockKind::Virtual } else { ClockKind::Real })
    }

    /// Whether it writes to the drive, or trims it.
    pub fn writes(&self) -> bool {
        self.precondition() != Precondition::None || self.is_any(|load| load.reads() < 100)
    }

    /// What is done to the drive before, as far as that was said.
    pub fn precondition(&self) -> Precondition {
        self.precondition.unwrap_or_default()
    }

    /// The same with what is done to the drive before, where that was not said:
    /// one that is `new` and will be read is written first, since what was never
    /// written is read in no time.
    #[must_use]
    pub fn settled(&self, new: bool) -> BenchArgs {
        let is_read = self.is_any(|load| load.reads() > 0);
        let first = if new && is_read { Precondition::Seq } else { Precondition::None };
        BenchArgs { precondition: Some(self.precondition.unwrap_or(first)), ..self.clone() }
    }

    /// How the steady state is sought.
    pub fn rounds(&self) -> Rounds {
        let full = Rounds::default();
        Rounds {
            window: self.steady_rounds.map_or(full.window, |n| n as usize),
            ns: self.steady_round.unwrap_or(full.ns),
        }
    }

    /// Sizes of requests, where they are of several: reads and writes in order are on
    /// ways of their own, too.
    pub fn varied(&self) -> Option<Varied> {
        let one = Sizes::One(self.bs);
        let mixed = (self.rw == Rw::Rw).then_some(Varied { reads: one, others: one });
        self.bssplit.or(mixed)
    }

    /// Bytes of the largest request.
    pub fn most_bytes(&self) -> u64 {
        self.varied().map_or(self.bs.into(), |varied| varied.most())
    }

    /// Whether all requests are of whole blocks, and so is the range.
    pub(crate) fn are_whole_blocks(&self) -> bool {
        let one = Sizes::One(self.bs);
        let all = self.bssplit.unwrap_or(Varied { reads: one, others: one });
        all.are_multiples_of(BLOCK_BYTES as u32)
            && self.range.is_none_or(|r| (r.offset | r.len).is_multiple_of(BLOCK_BYTES))
    }

    /// Sizes of requests, in a word.
    pub fn sizes(&self) -> String {
        let size = |bytes: u32| units::size_binary(bytes.into()).replace(" KiB", "k");
        let split = |sizes: &Sizes| match sizes {
            Sizes::Split(split) => {
                let part = |&(bytes, share): &(u32, u8)| format!("{}/{share}", size(bytes));
                split.parts().iter().map(part).collect::<Vec<_>>().join(":")
            }
            other => other.to_string(),
        };
        match &self.bssplit {
            None => units::size_binary(self.bs.into()),
            Some(all) if all.reads == all.others => split(&all.reads),
            Some(all) => format!("{},{}", split(&all.reads), split(&all.others)),
        }
    }

    /// Reads among the requests, in percent.
    pub fn reads(&self) -> u32 {
        match self.rw {
            Rw::Read | Rw::Randread => 100,
            Rw::Write | Rw::Randwrite | Rw::Trim => 0,
            Rw::Rw | Rw::Randrw => self.read_percent.unwrap_or(50),
        }
    }
}
