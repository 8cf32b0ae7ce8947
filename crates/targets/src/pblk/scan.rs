//! What a start finds that was written since the checkpoint.

use std::collections::BTreeMap;

use flash::{Ppa, Tag};

use super::ends::END;
use super::load::Gone;
use super::map::Place;
use super::mutation::{Mutation, is};
use super::record::{Kind, Record, own};
use super::recount::Recount;
use super::recover::LAST_SEQ;
use super::units::PAD;

/// A copy that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Copy {
    pub(super) lba: u64,
    pub(super) seq: u64,
    /// Equal numbers are copies of the same bytes, one of which collection
    /// made: then the one in a partly written chunk is taken, so that what
    /// collection had done stays done and its victim is all but empty.
    /// Collection may have no more room than it needs for what it had not done
    /// yet.
    pub(super) in_open: bool,
    pub(super) at: Ppa,
}

/// What was written since the checkpoint.
#[derive(Default)]
pub(super) struct Scan {
    pub(super) copies: Vec<Copy>,
    pub(super) records: Vec<Record>,
    /// Pages of the log: number and where.
    pub(super) log: Vec<(u64, Ppa)>,
    /// By chunk that was read: the highest number in it, and whether it holds
    /// own blocks.
    pub(super) chunks: BTreeMap<usize, (u64, bool)>,
    /// The highest sequence number of all.
    pub(super) highest: u64,
    /// Rows read.
    pub(super) rows: u64,
    pub(super) recount: Recount,
}

impl Scan {
    /// Takes note of one tag.
    pub(super) fn see(&mut self, at: Ppa, chunk: usize, in_open: bool, blocks: u64, tag: Tag) {
        // Others are not this target's, or only pad an end.
        if !(1..=LAST_SEQ).contains(&tag.seq) || tag.id == END {
            return;
        }
        let newest = self.chunks.entry(chunk).or_default();
        if let Some((kind, number)) = own(tag.id) {
            newest.1 = true;
            self.recount.see_own();
            if kind == Kind::Log {
                self.log.push((number, at));
            }
            return;
        }
        newest.0 = newest.0.max(tag.seq);
        self.highest = self.highest.max(tag.seq);
        if tag.id < blocks {
            self.copies.push(Copy { lba: tag.id, seq: tag.seq, in_open, at });
        }
        if tag.id == PAD {
            self.recount.see_padding(tag.seq);
        }
    }

    /// The ranges that records gave up, each with what counts last.
    /// Those up to number `settled` are in the pages.
    pub(super) fn gone(&mut self, settled: u64) -> Vec<Gone> {
        let mut ranges: BTreeMap<u64, Gone> = BTreeMap::new();
        self.records.sort_by_key(|record| record.number);
        for record in &self.records {
            let (lba, end) = (record.lba, record.lba.saturating_add(record.count.into()));
            // What lies across an end is cut there.
            for cut in [lba, end] {
                if let Some((_, gone)) = ranges.range_mut(..cut).next_back()
                    && gone.end > cut
                {
                    let rest = Gone { lba: cut, ..*gone };
                    gone.end = cut;
                    ranges.insert(cut, rest);
                }
            }
            let inside: Vec<u64> = ranges.range(lba..end).map(|(&lba, _)| lba).collect();
            for lba in inside {
                ranges.remove(&lba);
            }
            let Record { upto, lost, .. } = *record;
            let in_pages = record.number <= settled;
            ranges.insert(lba, Gone { lba, end, upto, lost, in_pages });
        }
        ranges.into_values().collect()
    }

    /// Of each block the copy that counts, unless it is among the `gone`.
    pub(super) fn newest(&mut self, gone: &[Gone]) -> Vec<(u64, Place)> {
        self.copies.sort_unstable();
        let mut newest: Vec<(u64, Place)> = Vec::new();
        for of_block in self.copies.chunk_by(|a, b| a.lba == b.lba) {
            let last = match is(Mutation::OldestWins) {
                true => of_block[0],
                false => of_block[of_block.len() - 1],
            };
            let at = gone.partition_point(|gone| gone.end <= last.lba);
            let is_gone =
                gone.get(at).is_some_and(|gone| gone.lba <= last.lba && last.seq <= gone.upto);
            if !is_gone {
                newest.push((last.lba, Place::flash(last.at)));
            }
        }
        newest
    }
}
