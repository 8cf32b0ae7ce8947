//! The energy that a drive takes: what its operations cost, and the sum.
//!
//! Sums are whole nanojoules, computed from counts, so that nothing is lost by
//! adding up. They cannot fail; past 2^64 they stay at the greatest number.

/// What operations cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnergyCosts {
    /// Whether energy is counted at all.
    pub counted: bool,
    /// Array read of a page of one plane, in nJ.
    pub read: u64,
    /// Array program of a page of one plane, in nJ.
    pub program: u64,
    /// Erase of a block of one plane, in nJ.
    pub erase: u64,
    /// Array read of a page of one plane in the SLC cache, in nJ.
    pub slc_read: u64,
    /// Array program of a page of one plane in the SLC cache, in nJ.
    pub slc_program: u64,
    /// A byte on the channel, in pJ.
    pub byte: u64,
    /// What the drive takes at all times, in mW.
    pub idle: u64,
}

/// What was done, of what has a cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnergyCounts {
    /// Pages read, of one plane; a repetition counts again.
    pub reads: u64,
    /// Pages programmed, of one plane.
    pub programs: u64,
    /// Blocks erased, of one plane.
    pub erases: u64,
    /// Pages read in the SLC cache, of one plane, by commands and folds.
    pub slc_reads: u64,
    /// Pages programmed in the SLC cache, of one plane.
    pub slc_programs: u64,
    /// Bytes on the channels.
    pub bytes: u64,
}

/// Energy, in nJ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// Of array reads.
    pub read: u64,
    /// Of array programs.
    pub program: u64,
    /// Of erases.
    pub erase: u64,
    /// Of the channels.
    pub channel: u64,
    /// Of all the time.
    pub idle: u64,
}

impl EnergyCosts {
    /// What `counts` cost in `elapsed` ns; nothing where energy is not counted.
    pub fn sum(&self, counts: &EnergyCounts, elapsed: u64) -> Energy {
        if !self.counted {
            return Energy::default();
        }
        let times = |cost: u64, count: u64, parts: u128| {
            let all = u128::from(cost) * u128::from(count) / parts;
            u64::try_from(all).unwrap_or(u64::MAX)
        };
        Energy {
            read: times(self.read, counts.reads, 1).saturating_add(times(
                self.slc_read,
                counts.slc_reads,
                1,
            )),
            program: times(self.program, counts.programs, 1).saturating_add(times(
                self.slc_program,
                counts.slc_programs,
                1,
            )),
            erase: times(self.erase, counts.erases, 1),
            channel: times(self.byte, counts.bytes, 1000),
            // A mW for a ns is a pJ.
            idle: times(self.idle, elapsed, 1000),
        }
    }
}

port::sums!(Energy: read, program, erase, channel, idle);

impl Energy {
    /// All together, in nJ.
    pub fn total(&self) -> u64 {
        [self.read, self.program, self.erase, self.channel, self.idle]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_counts_times_costs() {
        let costs = EnergyCosts {
            counted: true,
            read: 3,
            program: 50,
            erase: 70,
            slc_read: 2,
            slc_program: 7,
            byte: 40,
            idle: 500,
        };
        let plain =
            EnergyCounts { reads: 10, programs: 4, erases: 1, bytes: 4096, ..Default::default() };
        let cached = EnergyCounts { slc_reads: 5, slc_programs: 3, ..plain };
        let e = costs.sum(&cached, 0);
        assert_eq!((e.read, e.program, e.erase), (40, 221, 70));
        let counts = plain;
        let e = costs.sum(&counts, 1_000_000);
        assert_eq!((e.read, e.program, e.erase), (30, 200, 70));
        assert_eq!((e.channel, e.idle), (163, 500_000), "half a watt for a millisecond");
        assert_eq!(e.total(), 30 + 200 + 70 + 163 + 500_000);
        let off = EnergyCosts { counted: false, ..costs };
        assert_eq!(off.sum(&counts, 1000), Energy::default());
        let most = EnergyCosts { read: u64::MAX, ..costs }.sum(&counts, u64::MAX);
        assert_eq!((most.read, most.total()), (u64::MAX, u64::MAX));
    }
}
