//! What a run does, and when it ends. Nothing here fails.

use std::ops::Range;

use measure::{Steady, steady, units};
use port::{BLOCK_BYTES, SECTOR_BYTES};

use crate::cpu::Mark;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many requests.
    Ios(u64),
    /// After so much drive time, in ns.
    Time(u64),
    /// After so much drive time, in ns, and so many bytes written.
    Both(u64, u64),
    /// After so many requests, or after so much drive time, in ns, if that is sooner.
    Either(u64, u64),
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Drive time before counting begins, in ns.
    pub ramp: u64,
    /// When it ends, from the beginning of counting.
    pub until: Until,
    /// Whether latencies are counted.
    pub count: bool,
}

impl Plan {
    /// Now, where what counts begins after a ramp; else it begins with the run.
    pub(super) fn after_ramp(&self) -> Option<Mark> {
        (self.ramp > 0).then(Mark::now)
    }
}

/// How the steady state is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds that must agree.
    pub window: usize,
    /// The least drive time of a round, in ns; one overwrite of the drive is
    /// always in it.
    pub ns: u64,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds { window: steady::WINDOW, ns: steady::ROUND_NS }
    }
}

/// What requests use of these addresses: whole blocks, or whole sectors where requests are
/// smaller.
pub fn used_of(addresses: Range<u64>, are_blocks: bool) -> Range<u64> {
    let unit = if are_blocks { BLOCK_BYTES } else { SECTOR_BYTES };
    addresses.start.next_multiple_of(unit)..addresses.end / unit * unit
}

/// The same addresses in order and each once.
pub fn joined(mut parts: Vec<Range<u64>>) -> Vec<Range<u64>> {
    parts.sort_by_key(|part| part.start);
    parts.dedup_by(|next, before| {
        let meets = next.start <= before.end;
        if meets {
            before.end = before.end.max(next.end);
        }
        meets
    });
    parts
}

/// How far the search for the steady state came, and what would end it sooner, or in the
/// time that it had, where that `is_over`.
pub(super) fn reached(steady: &Steady, rounds: Rounds, is_over: bool) -> String {
    let (n, time) = (steady.rounds(), units::time_ns(rounds.ns as f64));
    let mut text = format!("in round {} of its steady state", n + 1);
    if let Some(last) = steady.last() {
        let rate = units::bytes_decimal(last.value.round());
        text += &format!(", of which the one before wrote {rate}/s");
        if let Some(wa) = last.write_amplification {
            text += &format!(" with a write amplification of {wa:.3}");
        }
    }
    let more = if is_over { "raise --max-time, or " } else { "" };
    text + &format!(
        "; it takes {} rounds at least, of {time} and one overwrite each: {more}lower \
         --steady-rounds or --steady-round for fewer or shorter ones",
        rounds.window
    )
}
