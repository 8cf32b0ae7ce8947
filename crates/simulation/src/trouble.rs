//! Which faults a life has, and what they struck.
//!
//! Half of all lives have none. Of the others the medium has a cache that a cut
//! loses, or operations fail or are late, for
//! a moment or for good. All of it comes from the life's seed.

use faults::{Access, Delay, DelayRule, FaultRule, MediumFault, MediumRule, Operation, Rule};
use faults::{Span, Trigger};
use flash::Geometry;
use port::Status;
use workload::Rng;

use crate::counts::counts;
use crate::nature::Wear;

/// Stream of the random numbers that say which disks fail more than syncs. With this one
/// the lives of `tests/it/found.rs` are what they were.
const DISK: u64 = 610;

/// The faults of a life.
#[derive(Clone, Debug, Default)]
pub struct Troubles {
    /// Operations that fail, between target and drive.
    pub operations: Vec<FaultRule>,
    /// Operations that are late, there too.
    pub delays: Vec<DelayRule>,
    /// What is done is durable only when it was flushed: a cut loses, tears and
    /// reorders the rest.
    pub cached: bool,
    /// The same in a drive file, on a disk that may lose what it was given, and
    /// say so.
    pub on_disk: bool,
    /// That disk fails writes, is full or is away for a while, too.
    pub disk: bool,
    /// Over a cache, below parity: of the rows that a cut took from under their parity every
    /// second one cannot be put back.
    pub put_back: bool,
    /// Something cannot be read for good, also after a restart: a drive may be
    /// lost.
    pub fatal: bool,
    /// Flash errs and wears out.
    pub wear: Option<Wear>,
    /// The medium damages what it stores, or refuses, or is slow. What is
    /// damaged is known by its checksum.
    pub damage: Vec<MediumRule>,
}

counts! {
    /// How often faults struck, by kind.
    pub struct Struck {
        /// Blocks that a read did not give.
        pub reads: u64,
        /// Those of them of a target of keys that shares the drive.
        pub keys: u64,
        /// Blocks that a member below parity did not give.
        pub members: u64,
        /// Superblocks that took no more writes as a row of theirs was not read in three
        /// tries since a write came that waited for it.
        pub closed: u64,
        /// Programs that failed.
        pub programs: u64,
        /// Erases that failed.
        pub erases: u64,
        /// Operations that were late.
        pub delays: u64,
        /// Operations of the medium that were damaged or refused.
        pub damage: u64,
        /// Reads of the medium that found damage.
        pub detected: u64,
    }
}

/// What a failed read concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strike {
    /// A copy of a block, and the values of its cells.
    Copy {
        /// The logical block.
        block: u64,
        /// What the copy says, cell by cell.
        values: Vec<u64>,
    },
    /// A block of a target's own: the map's pages are among them.
    Own {
        /// The target's first block.
        first: u64,
        /// The id of its tag.
        id: u64,
    },
    /// A block of a target that keeps values by key, beside targets of blocks.
    Keys,
}

fn fails(operation: Operation, trigger: Trigger, permanent: bool) -> FaultRule {
    FaultRule { operation, trigger, status: None, permanent, place: None }
}

fn with(probability: f64) -> Trigger {
    Trigger { probability, ..Trigger::default() }
}

impl Troubles {
    /// The troubles of a seed's life.
    pub fn of(seed: u64, geometry: &Geometry) -> Troubles {
        let mut rng = Rng::new(seed, 3);
        let rng = &mut rng;
        let mut troubles = Troubles::default();
        if rng.below(2) == 0 {
            return troubles;
        }
        troubles.fail_some(rng, geometry);
        if rng.below(2) == 0 {
            troubles.delay_some(rng);
        }
        if Rng::new(seed, 5).below(4) == 0 {
            // These fail nothing, though their status is none of success.
            let rule = fails(Operation::Read, with(1e-2), false);
            troubles.operations.push(FaultRule { status: Some(Status::HIGH_ECC), ..rule });
        }
        let on_disk = Rng::new(seed, 14).below(2) == 0;
        let disk = on_disk && Rng::new(seed, DISK).below(2) == 0;
        match Rng::new(seed, 4).below(6) {
            0 | 1 => Troubles { cached: true, on_disk, disk, ..Troubles::default() },
            2 => Troubles { cached: true, on_disk, disk, ..troubles },
            _ => troubles,
        }
    }

    /// Those of a start after the last few were refused: only what is for good.
    pub fn for_good(&self) -> Troubles {
        let mut troubles = self.clone();
        troubles.operations.retain(|rule| rule.trigger.span.is_some());
        troubles
    }

    /// Whether all operations are done, and in time.
    pub fn is_none(&self) -> bool {
        self.operations.is_empty()
            && self.delays.is_empty()
            && self.wear.is_none()
            && self.damage.is_empty()
            && !self.put_back
    }

    /// As rules, for a report.
    pub fn in_words(&self) -> String {
        let operations = self.operations.iter().cloned().map(Rule::Fault);
        let delays = self.delays.iter().cloned().map(Rule::Delay);
        let damage = self.damage.iter().cloned().map(Rule::Medium);
        let all: Vec<String> =
            operations.chain(delays).chain(damage).map(|rule| rule.to_string()).collect();
        let cached = match (self.cached, self.on_disk) {
            (_, true) if self.disk => "in a drive file on a disk that fails, ",
            (_, true) => "in a drive file, ",
            (true, _) => "cached, ",
            _ => "",
        };
        let faults = if all.is_empty() { "no faults".into() } else { all.join("; ") };
        let wear = self.wear.as_ref().map_or(String::new(), |wear| format!(", {wear:?}"));
        format!("{cached}{faults}{wear}")
    }

    /// Reads, programs and erases that fail: now and then, or a few at once;
    /// for this time, until the restart, or for good.
    fn fail_some(&mut self, rng: &mut Rng, geometry: &Geometry) {
        let kinds = 1 + rng.below(7);
        for (bit, operation, rates) in [
            (1, Operation::Read, [1e-3, 1e-4]),
            (2, Operation::Write, [2e-4, 2e-5]),
            (4, Operation::Reset, [2e-3, 2e-4]),
        ] {
            if kinds & bit == 0 {
                continue;
            }
            let mut trigger = with(rng.one_of(&rates));
            if rng.below(4) == 0 {
                // A few, one after the other.
                let count = Some(1 + rng.below(3));
                trigger = Trigger { from: 1 + rng.below(3000), count, ..Trigger::default() };
            }
            self.operations.push(fails(operation, trigger, rng.below(3) == 0));
        }
        if rng.below(8) == 0 {
            self.fatal = true;
            self.operations.push(self.bad_place(rng, geometry));
        }
    }

    /// Below parity: members do not give blocks, or forget them; programs and erases of
    /// theirs fail, which they remember.
    pub(crate) fn fail_members(&mut self, rng: &mut Rng) {
        let kinds = 1 + rng.below(15);
        let reads = rng.one_of(&[3e-2, 1e-2, 1e-3]);
        if kinds & 1 > 0 {
            self.fail_reads(reads, rng.below(3) == 0);
        }
        let fail = |on| MediumFault::Fail { on, permanent: false };
        for (bit, fault, rates) in [
            (2, fail(Access::Program), [2e-3, 2e-4]),
            (4, fail(Access::Reset), [5e-3, 5e-4]),
            (8, MediumFault::BitRot, [1e-3, 1e-4]),
        ] {
            if kinds & bit > 0 {
                let trigger = with(rng.one_of(&rates));
                self.damage.push(MediumRule { fault, trigger });
            }
        }
    }

    /// Members do not give so many of their blocks, for this time or until the next start.
    pub(crate) fn fail_reads(&mut self, probability: f64, permanent: bool) {
        self.operations.push(fails(Operation::Read, with(probability), permanent));
    }

    /// So many programs of the medium fail, which the drive remembers.
    pub(crate) fn fail_programs(&mut self, probability: f64) {
        let fault = MediumFault::Fail { on: Access::Program, permanent: false };
        self.damage.push(MediumRule { fault, trigger: with(probability) });
    }

    /// One block or two that can never be read.
    fn bad_place(&self, rng: &mut Rng, geometry: &Geometry) -> FaultRule {
        let dim = geometry.dimensions();
        let (group, pu) = (rng.below(dim.groups.into()), rng.below(dim.pus.into()));
        let chunk = rng.below(dim.chunks.into());
        let block = rng.below(geometry.chunk_blocks().into());
        let ppa = geometry.ppa(group as u32, pu as u32, chunk as u32, block as u32).0;
        let span = Some(Span::Ppa(ppa..ppa + 1 + rng.below(2)));
        fails(Operation::Read, Trigger { span, ..Trigger::default() }, true)
    }

    /// Operations that are late, so that they complete in another order.
    fn delay_some(&mut self, rng: &mut Rng) {
        let operations = [Operation::Any, Operation::Read, Operation::Write, Operation::Reset];
        let trigger = with(rng.one_of(&[0.02, 0.002]));
        let delay = Delay { least: 1_000, most: rng.one_of(&[50_000, 2_000_000, 20_000_000]) };
        self.delays.push(DelayRule { operation: rng.one_of(&operations), trigger, delay });
    }
}
