//! Which versions of each block a read may give.
//!
//! A verifying run numbers the writes and trims of each unit (a block, or a
//! sector where accesses are smaller) from 1; version 0 is the unit as it was
//! at first, all zeros. While writes overlap, a drive may keep any of them.
//!
//! Guarantees: every version that a correct drive may give is allowed. Where
//! writes of a unit did not overlap, only the last is. Where they did, all
//! since the unit was last idle are, until one that was issued to the idle
//! unit has completed. Memory is 8 bytes a unit, taken when touched: 4 for the
//! number of the last version, 4 for what is in flight, so that no list has
//! to be searched. What can fail: getting the memory, and issuing to a unit
//! that is too busy ([`Refused`]): one with nothing in flight never is.

use std::ops::RangeInclusive;

use port::{Lazy, OutOfMemory};
use thiserror::Error;

/// The versions a read may give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Versions of data.
    pub versions: RangeInclusive<u64>,
    /// Whether zeros are allowed: never written, or trimmed.
    pub zeros: bool,
}

impl From<RangeInclusive<u64>> for Allowed {
    /// Zeros are allowed when version 0 is.
    fn from(versions: RangeInclusive<u64>) -> Allowed {
        Allowed { zeros: versions.contains(&0), versions }
    }
}

/// Why a write or trim cannot be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Too many writes of the unit overlap.
    #[error(
        "unit {unit} has {} versions of which any may be read; wait until its writes have completed",
        MOST
    )]
    Busy {
        /// The unit.
        unit: u64,
    },
    /// No number is left.
    #[error(
        "unit {unit} was written 4294967295 times, which is all that is counted; start a new run"
    )]
    Exhausted {
        /// The unit.
        unit: u64,
    },
    /// There is no such unit.
    #[error("unit {unit} is not among the {units} that are watched; watch the whole range")]
    OutOfRange {
        /// The unit.
        unit: u64,
        /// How many there are.
        units: u64,
    },
}

/// The most versions that may be open while writes are in flight.
const MOST: u8 = 250;

/// The span of a unit of which any version may be read: so many writes failed.
const ANY: u8 = u8::MAX;

/// What is known of one unit, in 64 bits. All zeros is a unit never written.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The number of the last write or trim issued.
    issued: u32,
    /// How many versions before `issued` may be read as well.
    span: u8,
    /// How many were issued since the unit was last idle.
    burst: u8,
    /// How many have not completed.
    in_flight: u8,
    /// How many versions ago the last trim was; stays at 255.
    since_zero: u8,
}

impl State {
    fn pack(self) -> u64 {
        let small = [self.span, self.burst, self.in_flight, self.since_zero];
        u64::from(self.issued) << 32 | u64::from(u32::from_le_bytes(small))
    }

    fn unpack(bits: u64) -> State {
        let [span, burst, in_flight, since_zero] = (bits as u32).to_le_bytes();
        State { issued: (bits >> 32) as u32, span, burst, in_flight, since_zero }
    }

    fn floor(self) -> u64 {
        if self.span == ANY { 0 } else { u64::from(self.issued) - u64::from(self.span) }
    }
}

/// The table of a verifying run.
pub struct Versions {
    states: Lazy<u64>,
}

impl Versions {
    /// A table of `units`, all at version 0.
    pub fn new(units: usize) -> Result<Versions, OutOfMemory> {
        Ok(Versions { states: Lazy::zeroed(units, "versions of a verifying run")? })
    }

    /// How many units.
    pub fn units(&self) -> u64 {
        self.states.len() as u64
    }

    /// Numbers a write, or a trim (`zeros`), just before it is submitted.
    pub fn issue(&mut self, unit: u64, zeros: bool) -> Result<u64, Refused> {
        let units = self.units();
        let cell = usize::try_from(unit).ok().and_then(|i| self.states.get_mut(i));
        let cell = cell.ok_or(Refused::OutOfRange { unit, units })?;
        let mut s = State::unpack(*cell);
        if s.span >= MOST && s.in_flight > 0 {
            return Err(Refused::Busy { unit });
        }
        s.issued = s.issued.checked_add(1).ok_or(Refused::Exhausted { unit })?;
        s.span = s.span.saturating_add(1);
        s.burst = if s.in_flight == 0 { 1 } else { s.burst + 1 };
        s.in_flight += 1;
        s.since_zero = if zeros { 0 } else { s.since_zero.saturating_add(1) };
        *cell = s.pack();
        Ok(s.issued.into())
    }

    /// Takes the completion of a write or trim that succeeded.
    ///
    /// # Panics
    /// When none is in flight, as for [`Versions::fail`].
    pub fn acknowledge(&mut self, unit: u64) {
        self.complete(unit, |s| {
            // All from before this burst had completed when its first write
            // was issued, so that any completed write of it replaced them.
            s.span = s.span.min(s.burst - 1);
        });
    }

    /// Takes the completion of one that failed: the unit may hold the old or
    /// the new.
    pub fn fail(&mut self, unit: u64) {
        self.complete(unit, |_| {});
    }

    fn complete(&mut self, unit: u64, change: impl FnOnce(&mut State)) {
        let cell = &mut self.states[unit as usize];
        let mut s = State::unpack(*cell);
        assert!(s.in_flight > 0, "unit {unit} has nothing in flight");
        s.in_flight -= 1;
        change(&mut s);
        *cell = s.pack();
    }

    /// The oldest version that may be read now. Ask when the read is
    /// submitted.
    ///
    /// # Panics
    /// When there is no such unit, as for all below.
    pub fn floor(&self, unit: u64) -> u64 {
        State::unpack(self.states[unit as usize]).floor()
    }

    /// What a read may give that completes now and was submitted when
    /// [`Versions::floor`] was `floor`.
    pub fn allowed(&self, unit: u64, floor: u64) -> Allowed {
        let s = State::unpack(self.states[unit as usize]);
        let issued = u64::from(s.issued);
        // A trim too long ago to be known counts as just possible.
        let last_zero = issued - issued.min(u64::from(s.since_zero));
        Allowed { versions: floor..=issued, zeros: last_zero >= floor }
    }

    /// What a read may give that starts and ends now.
    pub fn allowed_now(&self, unit: u64) -> Allowed {
        self.allowed(unit, self.floor(unit))
    }

    /// How many writes and trims of the unit have not completed.
    pub fn in_flight(&self, unit: u64) -> u32 {
        State::unpack(self.states[unit as usize]).in_flight.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn only(version: u64) -> Allowed {
        Allowed { versions: version..=version, zeros: false }
    }

    #[test]
    fn a_unit_starts_as_zeros() {
        let v = Versions::new(4).unwrap();
        assert_eq!(v.allowed_now(3), Allowed { versions: 0..=0, zeros: true });
    }

    #[test]
    fn one_write_in_flight_is_old_or_new() {
        let mut v = Versions::new(4).unwrap();
        assert_eq!(v.issue(2, false), Ok(1));
        assert_eq!(v.allowed_now(2), Allowed { versions: 0..=1, zeros: true });
        v.acknowledge(2);
        assert_eq!(v.allowed_now(2), only(1));
        assert_eq!(v.issue(2, false), Ok(2));
        assert_eq!(v.allowed_now(2), Allowed { versions: 1..=2, zeros: false });
        assert_eq!(v.in_flight(2), 1);
        v.fail(2);
        assert_eq!(v.allowed_now(2), Allowed { versions: 1..=2, zeros: false });
        assert_eq!(v.issue(2, false), Ok(3));
        v.acknowledge(2);
        assert_eq!(v.allowed_now(2), only(3));
    }

    #[test]
    fn overlapping_writes_may_end_either_way() {
        let mut v = Versions::new(1).unwrap();
        v.issue(0, false).unwrap();
        v.issue(0, false).unwrap();
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), Allowed { versions: 1..=2, zeros: false });
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), Allowed { versions: 1..=2, zeros: false });
        v.issue(0, false).unwrap();
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), only(3));
    }

    #[test]
    fn a_trim_allows_zeros_until_overwritten() {
        let mut v = Versions::new(1).unwrap();
        v.issue(0, false).unwrap();
        v.acknowledge(0);
        v.issue(0, true).unwrap();
        assert!(v.allowed_now(0).zeros);
        v.acknowledge(0);
        assert!(v.allowed_now(0).zeros);
        let floor = v.floor(0);
        v.issue(0, false).unwrap();
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), only(3));
        // A read from before may still have seen the trim.
        assert_eq!(v.allowed(0, floor), Allowed { versions: 2..=3, zeros: true });
    }

    #[test]
    fn too_many_and_too_far_are_refused() {
        let mut v = Versions::new(1).unwrap();
        for _ in 0..MOST {
            v.issue(0, false).unwrap();
        }
        assert_eq!(v.issue(0, false), Err(Refused::Busy { unit: 0 }));
        for _ in 0..MOST {
            v.acknowledge(0);
        }
        // The burst is over, but which of it was kept is not known.
        assert_eq!(v.issue(0, false), Ok(251));
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), only(251));
        assert_eq!(v.issue(1, false), Err(Refused::OutOfRange { unit: 1, units: 1 }));
        let full = State { issued: u32::MAX, ..State::default() };
        v.states[0] = full.pack();
        assert_eq!(v.issue(0, false), Err(Refused::Exhausted { unit: 0 }));
    }

    #[test]
    fn a_unit_at_rest_takes_the_next_write() {
        let mut v = Versions::new(1).unwrap();
        let mut issued = 0;
        for round in 0..600 {
            // Two overlap, for so long that no more may.
            v.issue(0, false).unwrap();
            issued += 1;
            while v.issue(0, false).is_ok() {
                v.acknowledge(0);
                issued += 1;
            }
            v.acknowledge(0);
            assert_eq!(v.in_flight(0), 0, "round {round}");
        }
        v.issue(0, false).unwrap();
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), only(issued + 1));
        // Any number may fail; then it has any version.
        for _ in 0..300 {
            v.issue(0, true).unwrap();
            v.fail(0);
        }
        assert_eq!(v.allowed_now(0), Allowed { versions: 0..=issued + 301, zeros: true });
        v.issue(0, false).unwrap();
        v.acknowledge(0);
        assert_eq!(v.allowed_now(0), only(issued + 302));
    }

    #[test]
    #[should_panic(expected = "nothing in flight")]
    fn a_completion_too_many_is_noticed() {
        Versions::new(1).unwrap().acknowledge(0);
    }

    /// A write of the simple model.
    struct Write {
        zeros: bool,
        issued: usize,
        /// When it completed, and how.
        completed: Option<(usize, bool)>,
    }

    /// By definition: a version may be read unless a write that was issued
    /// after it completed has itself succeeded.
    fn readable(writes: &[Write], i: usize) -> bool {
        let replaced = |w: &Write| {
            let done = matches!(w.completed, Some((_, true)));
            done && writes[i].completed.is_some_and(|(at, _)| at < w.issued)
        };
        !writes.iter().any(replaced)
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(steps in prop::collection::vec((0u8..4, any::<usize>(), any::<bool>()), 1..200)) {
            let mut v = Versions::new(1).unwrap();
            let first = Write { zeros: true, issued: 0, completed: Some((0, true)) };
            let mut writes = vec![first];
            for (now, (kind, pick, flag)) in (1..).zip(steps) {
                let mut open: Vec<usize> =
                    (0..writes.len()).filter(|&i| writes[i].completed.is_none()).collect();
                if kind == 0 {
                    let version = v.issue(0, flag);
                    prop_assert_eq!(version, Ok(writes.len() as u64));
                    writes.push(Write { zeros: flag, issued: now, completed: None });
                } else if !open.is_empty() {
                    let i = open.swap_remove(pick % open.len());
                    // One in four fails.
                    let good = kind > 1 || flag;
                    writes[i].completed = Some((now, good));
                    if good { v.acknowledge(0) } else { v.fail(0) }
                }
                let allowed = v.allowed_now(0);
                for (i, w) in writes.iter().enumerate().filter(|&(i, _)| readable(&writes, i)) {
                    let held = allowed.versions.contains(&(i as u64));
                    prop_assert!(held && (allowed.zeros || !w.zeros), "version {i} is missing");
                }
            }
        }

        #[test]
        fn without_overlap_only_the_last_is_allowed(trims in prop::collection::vec(any::<bool>(), 1..600)) {
            let mut v = Versions::new(1).unwrap();
            for (i, &trim) in (1..).zip(&trims) {
                v.issue(0, trim).unwrap();
                v.acknowledge(0);
                prop_assert_eq!(v.allowed_now(0), Allowed { versions: i..=i, zeros: trim });
            }
        }
    }
}
