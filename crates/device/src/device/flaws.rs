//! What goes wrong in a drive: read errors and their repetitions, programs and
//! erases that fail, and what is told of it.
//!
//! Nothing here runs in a drive whose errors and energy are not modelled, as
//! long as its medium fails nothing. From then on the drive looks closely:
//! each read finds out which of its blocks can be given back, so that exactly
//! the others are reported.
//!
//! An array read is decided when it begins: its errors, how often it is
//! repeated, and so how long it takes. A program or an erase is decided when
//! it ends.

use flash::{BlockBits, Chunk, ChunkState, SINCE_BITS, Sensed, block_bits};
use flash::{EnergyCosts, EnergyCounts, ErrorLevel, Medium, Moved, Ppa, Reliability, TAG_BYTES};
use port::{BLOCK_BYTES, Status, Time};

use super::Device;
use crate::notices::{Notice, NoticeMask, NoticeState, Notices};
use crate::units::{Op, OpKind};

/// Array reads of a chunk after which the medium is told of them: what a
/// restart may forget.
const READS_TOLD: u32 = 1024;

/// What went wrong since the drive was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounters {
    /// Array reads in which there were bit errors, and all were corrected, as far as the
    /// read wants its blocks that they are made for: not those that share it.
    pub corrected_reads: u64,
    /// Array reads that had to be repeated.
    pub retried_reads: u64,
    /// Repetitions.
    pub retries: u64,
    /// Reads of a unit of which a block could not be given back.
    pub failed_reads: u64,
    /// Blocks that could not be given back, each time.
    pub failed_blocks: u64,
    /// Programs that failed.
    pub failed_programs: u64,
    /// Chunks that were closed early.
    pub early_closes: u64,
    /// Erases that failed.
    pub failed_erases: u64,
    /// Notices that found no room.
    pub lost_notices: u64,
}

port::sums!(
    ErrorCounters:
        corrected_reads, retried_reads, retries, failed_reads, failed_blocks, failed_programs,
        early_closes, failed_erases, lost_notices
);

/// What has become of a parallel unit's read, while it is at work.
#[derive(Clone, Copy, Default)]
pub(super) struct Outcome {
    /// Bit `i` is set when block `i` of the operation cannot be given back.
    failed: BlockBits,
    retries: u32,
    /// Blocks whose bytes were moved, or are given up.
    next: u8,
    /// Whether the rest is moved block by block: the medium failed for some.
    singly: bool,
    /// Whether `failed` was found out.
    begun: bool,
}

/// The state behind it.
pub(super) struct Flaws {
    model: Reliability,
    seed: u64,
    /// Erases that a chunk is rated for.
    endurance: u32,
    pub(super) costs: EnergyCosts,
    pub(super) counts: EnergyCounts,
    pub(super) errors: ErrorCounters,
    notices: Notices,
    /// By the number of a unit.
    outcomes: Box<[Outcome]>,
    /// Erases of all chunks.
    total_wear: u64,
    /// The drive's own time at [`Time::ZERO`], in ns: what passed before it was
    /// restored.
    passed: u64,
    patrol: Patrol,
}

/// The patrol: a look at all chunks that are written, in turn, for data that have
/// grown old where nobody reads. It looks at descriptors only.
#[derive(Clone, Copy, Default)]
struct Patrol {
    /// The chunk to look at next.
    next: usize,
    /// The drive's own time up to which it has looked.
    until: u64,
    /// How often it had something to tell.
    told: u64,
}

/// Rounds of the patrol in the time in which the error rate of new data
/// doubles.
const ROUNDS: u64 = 64;

/// Chunks that the patrol looks at in one go, at most.
const MOST_LOOKS: u64 = 1024;

/// Of all codewords of a chunk the patrol expects one as bad as this.
const BAD_SHARE: f64 = 0.9999;

impl Flaws {
    pub fn new(units: usize) -> Flaws {
        Flaws {
            model: Reliability::default(),
            seed: 0,
            endurance: u32::MAX,
            costs: EnergyCosts::default(),
            counts: EnergyCounts::default(),
            errors: ErrorCounters::default(),
            notices: Notices::new(),
            outcomes: vec![Outcome::default(); units].into(),
            total_wear: 0,
            passed: 0,
            patrol: Patrol::default(),
        }
    }

    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.take()
    }
}

impl<M: Medium> Device<M> {
    /// What went wrong so far.
    pub fn errors(&self) -> ErrorCounters {
        ErrorCounters { lost_notices: self.flaws.notices.lost, ..self.flaws.errors }
    }

    /// From now on errors are modelled, if the model says so.
    pub(super) fn set_model(&mut self, model: &Reliability, seed: u64) {
        let timing = self.units.timing();
        let endurance = timing.endurance;
        let cliff = !model.errors || model.endurance_cliff;
        self.cliff = if cliff { endurance } else { u32::MAX };
        self.flaws.total_wear = self.chunks.iter().map(|chunk| u64::from(chunk.wear)).sum();
        (self.flaws.model, self.flaws.seed, self.flaws.endurance) =
            (model.clone(), seed, endurance);
        self.units.set_senses(model.errors);
        if model.errors {
            self.look_closely();
        }
    }

    /// From now on operations are looked at closely, and so done one by one.
    #[cold]
    pub(super) fn look_closely(&mut self) {
        (self.closely, self.instant) = (true, false);
    }

    /// The drive's own time, by which its data age, in ns.
    pub fn drive_time(&self, now: Time) -> u64 {
        self.flaws.passed.saturating_add(now.0)
    }

    /// Lets time pass in which the drive was off, in ns: its data age by that.
    /// Before the first command.
    pub fn let_time_pass(&mut self, ns: u64) {
        self.flaws.passed = self.flaws.passed.saturating_add(ns);
    }

    /// Goes on from the time that the medium has kept. No chunk was begun after
    /// it, whatever of it was lost.
    pub(super) fn resume_clock(&mut self) {
        let kept = self.medium.time();
        if kept > 0 {
            let begun = self.chunks.iter().map(|chunk| chunk.since).max().unwrap_or(0);
            self.flaws.passed = kept.max(u64::from(begun) << SINCE_BITS);
            self.flaws.patrol.until = self.flaws.passed;
        }
    }

    /// Goes on with the patrol, as far as it is due: so that all chunks are
    /// looked at again in a part of the retention time. Tells of chunks, full or
    /// not, of which the error rate must be high by now, as a read would; each
    /// round once more, until they are written anew. Reads see to it by themselves;
    /// where there are none, it is to be called now and then.
    #[cold]
    pub fn patrol(&mut self, now: Time) {
        let time = self.drive_time(now);
        let (flaws, slots) = (&mut self.flaws, self.chunks.len() as u64);
        let step = (flaws.model.retention_time / ROUNDS / slots).max(1);
        let due = time.saturating_sub(flaws.patrol.until) / step;
        if !flaws.model.errors || flaws.model.retention_time == 0 || due == 0 {
            return;
        }
        // More than a round behind, one round is enough.
        if due > slots {
            flaws.patrol.until = time - slots * step;
        }
        for _ in 0..due.min(slots).min(MOST_LOOKS) {
            let index = self.flaws.patrol.next;
            if !self.look_at_age(time, index) {
                return;
            }
            let patrol = &mut self.flaws.patrol;
            patrol.next = (index + 1) % self.chunks.len();
            patrol.until += step;
        }
    }

    /// Looks at one chunk. False where there was something to tell and no room.
    fn look_at_age(&mut self, time: u64, index: usize) -> bool {
        let chunk = self.chunks[index];
        let flaws = &mut self.flaws;
        // With a program on its way it is looked at in the next round.
        let is_at_rest = chunk.programmed > 0 && chunk.programmed == chunk.wp;
        if !is_at_rest || chunk.age(time) < flaws.model.retention_time / ROUNDS {
            return true;
        }
        let share = Reliability::wear_share(chunk.wear, flaws.endurance);
        let rber = flaws.model.rber(share, chunk.age(time), chunk.reads);
        let rber = (rber * flaws.model.worst_share()).min(0.5);
        let worst = flaws.model.errors_at(rber, BAD_SHARE);
        let level = flaws.model.level(&Sensed { worst, ..Sensed::default() });
        if level < ErrorLevel::High && chunk.level < ErrorLevel::High {
            return true;
        }
        let start = self.geometry.chunk_start(index);
        let is_told = flaws.notices.raise(start, NoticeState::RateHigh, NoticeMask::Chunk, 1);
        flaws.patrol.told += u64::from(is_told);
        is_told
    }

    /// How often the patrol has told of a chunk since the drive was made or restored.
    pub fn patrolled(&self) -> u64 {
        self.flaws.patrol.told
    }

    /// From now on energy is counted, if it is to be.
    pub fn set_energy(&mut self, costs: &EnergyCosts) {
        self.flaws.costs = *costs;
        if costs.counted {
            self.look_closely();
        }
    }

    /// Gives up the chunks that are bad from the factory: on any of the channels that
    /// share their transfers, or, with the remap checker, on the one of these on which
    /// the parallel unit has most. What is good of such chunks then stands for what is
    /// bad of others.
    pub(super) fn leave_factory(&mut self) {
        let channels = self.units.timing().channel_split;
        for pu in self.geometry.pus_channels_first() {
            let chunks = (0..self.geometry.chunks()).map(|n| self.geometry.chunk_of(pu, n));
            let is_bad = |index: usize, channel: u32| {
                let start = self.geometry.chunk_start(index);
                self.flaws.model.is_factory_bad(self.flaws.seed, start, channel)
            };
            let count = |&channel: &u32| chunks.clone().filter(|&i| is_bad(i, channel)).count();
            let looked_at = match (0..channels).max_by_key(count) {
                Some(worst) if self.flaws.model.remap => worst..worst + 1,
                _ => 0..channels,
            };
            let bad: Vec<usize> =
                chunks.filter(|&i| looked_at.clone().any(|channel| is_bad(i, channel))).collect();
            for index in bad {
                self.chunks[index].leave_factory_bad();
                self.describe(index);
            }
        }
    }

    /// A read is about to enter the array: finds out its errors, and lets it
    /// go on for as long as it takes.
    #[cold]
    pub(super) fn sense(&mut self, now: Time, pu: u32) -> Option<u32> {
        self.patrol(now);
        let time = self.drive_time(now);
        let op = self.units.active(pu);
        let index = self.geometry.chunk_index(op.ppa);
        let (chunk, count) = (self.chunks[index], u32::from(op.count));
        let flaws = &mut self.flaws;
        let share = Reliability::wear_share(chunk.wear, flaws.endurance);
        let dim = self.geometry.dimensions();
        let word_line = self.units.timing().cell_bits(dim.pages_at_once);
        let page = self.geometry.wide_page(op.ppa);
        let of_page = flaws.model.page_share(page, dim.pages, word_line);
        let rber = flaws.model.rber(share, chunk.age(time), chunk.reads);
        let rber = (rber * of_page).min(0.5);
        let mut sensed = flaws.model.sense(flaws.seed, op.ppa, count, &chunk, rber);
        let level = flaws.model.level(&sensed);
        // What was never programmed is not corrected by any repetition.
        let unprogrammed = chunk.failed_of(self.geometry.block(op.ppa), count);
        if unprogrammed != 0 {
            sensed.retries = flaws.model.read_retries;
        }
        if op.is_shared() && sensed.retries > 0 {
            self.units.read_alone(now, pu);
            return None;
        }
        let failed = sensed.failed | unprogrammed;
        let errors = &mut flaws.errors;
        let is_corrected = op.sensings() > 0 && sensed.worst > 0 && failed == 0;
        errors.corrected_reads += u64::from(is_corrected);
        errors.retried_reads += u64::from(sensed.retries > 0);
        errors.retries += u64::from(sensed.retries);
        flaws.outcomes[pu as usize] =
            Outcome { failed, retries: sensed.retries, begun: true, ..Outcome::default() };
        self.note_reads(index, op.sensings() + sensed.retries);
        if unprogrammed == 0 {
            self.note_level(index, level, &op, sensed.failed);
        }
        self.units.sense(now, pu, sensed.retries, self.flaws.model.decode)
    }

    /// Counts array reads of a chunk, and tells the medium now and then.
    fn note_reads(&mut self, index: usize, reads: u32) {
        let chunk = &mut self.chunks[index];
        let before = chunk.reads / READS_TOLD;
        chunk.reads = chunk.reads.saturating_add(reads);
        if chunk.reads / READS_TOLD != before {
            self.describe_read(index);
        }
    }

    /// A row was copied from one chunk to another without correction: its data are as old
    /// there as they were, and so is the chunk, if not older.
    pub(super) fn inherit_age(&mut self, from: usize, to: usize, reads: u32) {
        if self.flaws.model.errors {
            let since = self.chunks[from].since;
            self.chunks[to].since = self.chunks[to].since.min(since);
            self.note_reads(from, reads);
        }
    }

    /// Tells the medium of a chunk that was read, unless its erase is on its
    /// way: the medium must not take it for erased before it is.
    fn describe_read(&mut self, index: usize) {
        if self.chunks[index].programmed > 0 {
            self.describe(index);
        }
    }

    /// Tells of a chunk whose reads have come to a new level. What cannot be
    /// told now is told by a later read.
    fn note_level(&mut self, index: usize, level: ErrorLevel, op: &Op, failed: BlockBits) {
        if level <= self.chunks[index].level {
            return;
        }
        let Some(state) = NoticeState::of_level(level) else { return };
        let notices = &mut self.flaws.notices;
        let told = if failed == 0 {
            let start = self.geometry.chunk_start(index);
            notices.raise(start, state, NoticeMask::Chunk, 1)
        } else {
            let first = failed.trailing_zeros();
            let blocks = (failed >> first).trailing_ones();
            notices.raise(Ppa(op.ppa.0 + u64::from(first)), state, NoticeMask::Block, blocks)
        };
        if told {
            self.chunks[index].level = level;
            self.describe_read(index);
        }
    }

    /// Moves the bytes of an operation that may have failed.
    #[cold]
    pub(super) fn move_closely(&mut self, pu: u32, op: &Op) -> Moved {
        let flaws = &self.flaws;
        let chunk = &self.chunks[self.geometry.chunk_index(op.ppa)];
        let fails = match op.kind {
            OpKind::Read => return self.read_closely(pu, op),
            // The chunk was closed before it, or it fails by itself.
            OpKind::Program => {
                self.geometry.block(op.ppa) != chunk.programmed
                    || flaws.model.program_fails(flaws.seed, op.ppa, chunk.wear, flaws.endurance)
            }
            OpKind::Erase => {
                flaws.model.erase_fails(flaws.seed, op.ppa, chunk.wear, flaws.endurance)
            }
        };
        if fails { Moved::Failed } else { self.transfer(op, 0, op.count) }
    }

    /// Moves the blocks of a read that can be given back. Asked again, it goes
    /// on where it was.
    fn read_closely(&mut self, pu: u32, op: &Op) -> Moved {
        let mut outcome = self.flaws.outcomes[pu as usize];
        if !outcome.begun {
            let chunk = &self.chunks[self.geometry.chunk_index(op.ppa)];
            outcome.failed = chunk.failed_of(self.geometry.block(op.ppa), op.count.into());
            outcome.begun = true;
        }
        while outcome.next < op.count {
            let ahead = outcome.failed >> outcome.next;
            if ahead & 1 == 1 {
                outcome.next += 1;
                continue;
            }
            let most = if outcome.singly { 1 } else { op.count - outcome.next };
            let run = most.min(ahead.trailing_zeros() as u8);
            match self.transfer(op, outcome.next, run) {
                Moved::Done => outcome.next += run,
                Moved::Failed if run == 1 => outcome.failed |= 1 << outcome.next,
                Moved::Failed => outcome.singly = true,
                Moved::Pending => {
                    self.flaws.outcomes[pu as usize] = outcome;
                    return Moved::Pending;
                }
            }
        }
        self.flaws.outcomes[pu as usize] = outcome;
        if outcome.failed == 0 { Moved::Done } else { Moved::Failed }
    }

    /// Which blocks of a failed operation's command failed, and how.
    #[cold]
    pub(super) fn op_failed(&mut self, pu: u32, op: &Op) -> (Status, BlockBits) {
        let index = self.geometry.chunk_index(op.ppa);
        let all = block_bits(op.first as usize, op.count as usize);
        match op.kind {
            OpKind::Read => {
                let failed = std::mem::take(&mut self.flaws.outcomes[pu as usize]).failed;
                self.flaws.errors.failed_reads += 1;
                self.flaws.errors.failed_blocks += u64::from(failed.count_ones());
                (Status::UNRECOVERED_READ, failed << op.first)
            }
            OpKind::Program => (self.program_status(op.ppa), all),
            OpKind::Erase => {
                self.chunks[index].give_up();
                self.flaws.errors.failed_erases += 1;
                self.note_whole(index);
                self.describe(index);
                (Status::OFFLINE_CHUNK, all)
            }
        }
    }

    /// The read of this parallel unit is over, and all of it went well.
    #[cold]
    pub(super) fn op_went_well(&mut self, pu: u32) {
        self.flaws.outcomes[pu as usize] = Outcome::default();
    }

    /// How a program at `ppa` ended that [`Device::program_failed`] has
    /// entered.
    pub(super) fn program_status(&self, ppa: Ppa) -> Status {
        let chunk = &self.chunks[self.geometry.chunk_index(ppa)];
        match chunk.state {
            ChunkState::Offline => Status::OFFLINE_CHUNK,
            _ if self.geometry.block(ppa) >= chunk.programmed => Status::CHUNK_EARLY_CLOSE,
            _ => Status::WRITE_FAILED_WRITE_NEXT_UNIT,
        }
    }

    /// Enters a program that failed: its blocks cannot be read until the chunk
    /// is erased, or the chunk is closed before them.
    #[cold]
    pub(super) fn program_failed(&mut self, ppa: Ppa, count: u32) {
        let (index, block) = (self.geometry.chunk_index(ppa), self.geometry.block(ppa));
        self.look_closely();
        let (size, errors) = (self.geometry.chunk_blocks(), &mut self.flaws.errors);
        let chunk = &mut self.chunks[index];
        if chunk.state == ChunkState::Offline {
            chunk.program(count);
        } else {
            // Those behind one that closed the chunk never came to the array.
            errors.failed_programs += u64::from(block == chunk.programmed);
            let was_closed_early = chunk.is_closed_early(size);
            let goes_on = chunk.fail(block, count);
            errors.early_closes += u64::from(!goes_on && !was_closed_early);
        }
        self.note_whole(index);
        self.describe(index);
    }

    /// Enters what an operation that happened means for age, wear and energy.
    /// Comes before the chunk is changed.
    #[cold]
    pub(super) fn account_closely(&mut self, now: Time, pu: u32, op: &Op) {
        let index = self.geometry.chunk_index(op.ppa);
        match op.kind {
            OpKind::Program if self.flaws.model.errors && self.chunks[index].programmed == 0 => {
                self.chunks[index].begin(self.flaws.passed.saturating_add(now.0));
            }
            OpKind::Erase => self.note_wear(index),
            _ => {}
        }
        if self.flaws.costs.counted {
            self.count_energy(pu, op);
        }
    }

    /// Tells of a chunk that is worn more than the mean, once.
    fn note_wear(&mut self, index: usize) {
        let flaws = &mut self.flaws;
        flaws.total_wear += 1;
        let (wit, chunk) = (u64::from(flaws.model.wear_notice), &mut self.chunks[index]);
        if !flaws.model.errors || wit == 0 || chunk.worn {
            return;
        }
        let dim = self.geometry.dimensions();
        let chunks = u64::from(self.geometry.total_pus()) * u64::from(dim.chunks);
        let endurance = u128::from(flaws.endurance.max(1));
        let mean = u128::from(flaws.total_wear) * 255 / (u128::from(chunks) * endurance);
        let own = u128::from(chunk.wear) * 255 / endurance;
        if own > mean + u128::from(wit) {
            let start = self.geometry.chunk_start(index);
            chunk.worn = flaws.notices.raise(start, NoticeState::Worn, NoticeMask::Chunk, 1);
        }
    }

    fn count_energy(&mut self, pu: u32, op: &Op) {
        let (planes, page) = (self.geometry.dimensions().planes, self.geometry.page_blocks());
        let first = self.geometry.block(op.ppa) / page;
        let last = (self.geometry.block(op.ppa) + u32::from(op.count) - 1) / page;
        let pages = u64::from(last - first + 1);
        let in_slc = self.units.is_in_slc(op.ppa, op.count.into());
        let (counts, blocks) = (&mut self.flaws.counts, u64::from(op.count));
        let tag = if self.units.timing().tags_on_channel { TAG_BYTES as u64 } else { 0 };
        match op.kind {
            OpKind::Read => {
                let retries = self.flaws.outcomes[pu as usize].retries;
                let sensings = u64::from(op.sensings() + retries);
                *if in_slc { &mut counts.slc_reads } else { &mut counts.reads } += pages * sensings;
                // What is decoded by the controller goes out by each try.
                let more = if self.flaws.model.decode > 0 { retries } else { 0 };
                counts.bytes += blocks
                    * u64::from(1 + more)
                    * if op.tags { TAG_BYTES as u64 } else { BLOCK_BYTES + tag };
            }
            OpKind::Program => {
                *if in_slc { &mut counts.slc_programs } else { &mut counts.programs } += pages;
                if op.inside {
                    counts.reads += pages;
                } else {
                    counts.bytes += blocks * (BLOCK_BYTES + tag);
                }
            }
            OpKind::Erase => counts.erases += u64::from(planes),
        }
    }

    /// What was done, with what the SLC cache did unasked.
    pub(super) fn energy_counts(&self) -> EnergyCounts {
        let (slc, counts) = (self.units.slc_health(), self.flaws.counts);
        let planes = u64::from(self.geometry.dimensions().planes);
        EnergyCounts {
            slc_reads: counts.slc_reads + slc.folded_pages,
            programs: counts.programs + slc.folded_pages,
            erases: counts.erases + slc.erases * planes,
            ..counts
        }
    }

    /// Words of the state hash: only what differs from a drive in which
    /// nothing went wrong.
    pub(super) fn flaw_words(&self) -> impl Iterator<Item = u64> + use<'_, M> {
        let history = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.has_history());
        let words = history.flat_map(|(index, chunk)| {
            let bytes = Chunk::to_bytes(chunk);
            let word = |at: usize| {
                bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
            };
            [index as u64, word(0), word(8), word(16), word(24)]
        });
        let (e, c, slc) = (self.errors(), self.flaws.counts, self.units.slc_health());
        let (shared, joined) = self.units.shared_reads();
        let counters = [
            (1, e.corrected_reads),
            (2, e.retried_reads),
            (3, e.retries),
            (4, e.failed_reads),
            (5, e.failed_blocks),
            (6, e.failed_programs),
            (7, e.early_closes),
            (8, e.failed_erases),
            (9, e.lost_notices),
            (10, c.reads),
            (11, c.programs),
            (12, c.erases),
            (13, c.bytes),
            (14, c.slc_reads),
            (15, c.slc_programs),
            (16, slc.written),
            (17, slc.folded),
            (18, slc.dropped),
            (19, slc.direct),
            (20, slc.erases),
            (21, shared),
            (22, joined),
            (23, self.counters.copybacks),
        ];
        words.chain(counters.into_iter().filter(|c| c.1 != 0).flat_map(|c| [c.0, c.1]))
    }
}
