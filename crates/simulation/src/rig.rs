//! What every life stands on, whatever lives it: the flash with its power, what
//! was counted, seen and traced, and how the starts went.

use port::Time;

use crate::breaks::Break;
use crate::counts::Counts;
use crate::power::Flash;
use crate::setup::Setup;
use crate::trouble::Troubles;

/// Starts that are refused one after the other, after which only those faults
/// are left that are for good.
const REFUSALS: u32 = 4;

/// See the head of this file.
pub struct Rig {
    /// The flash, and the power.
    pub flash: Flash,
    /// What was done.
    pub counts: Counts,
    /// How often power came.
    pub starts: u64,
    /// The host was told, since power came, that the drive takes no more writes.
    pub told_of_end: bool,
    /// No drive was to be had: the life is over.
    pub over: bool,
    /// A hash of all values that were seen, and when.
    pub hash: u64,
    /// How often the drive refused to start since it last did.
    refusals: u32,
    broken: Option<Break>,
    traced: Option<u64>,
    trace: Vec<String>,
}

impl Rig {
    /// New flash of this setup, without power. `broken` is what goes wrong with it,
    /// `traced` a block, page or key whose history is kept.
    pub(crate) fn new(setup: &Setup, broken: Option<Break>, traced: Option<u64>) -> Rig {
        Rig {
            flash: Flash::new(setup, broken, setup.seed).expect("memory for a small drive"),
            counts: Counts::default(),
            starts: 0,
            told_of_end: false,
            over: false,
            hash: 0,
            refusals: 0,
            broken,
            traced,
            trace: Vec::new(),
        }
    }

    /// New flash in the place of one that is of no more use. Gives its seed.
    pub(crate) fn renew(&mut self, setup: &Setup) -> u64 {
        self.counts.add_flash(&self.flash);
        self.counts.replaced += 1;
        let seed = self.seed(setup);
        self.flash = Flash::new(setup, self.broken, seed).expect("memory for a small drive");
        self.refusals = 0;
        seed
    }

    fn seed(&self, setup: &Setup) -> u64 {
        setup.seed.wrapping_add(self.starts)
    }

    /// Whether power is gone.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.flash.power().is_gone()
    }

    /// Whether so many starts were refused that nothing can be expected.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.refusals > 2 * REFUSALS
    }

    /// What happened to what is traced.
    pub(crate) fn trace(&self) -> &[String] {
        &self.trace
    }

    /// Whether this is the one that is traced.
    pub(crate) fn traces(&self, one: u64) -> bool {
        self.traced == Some(one)
    }

    /// Adds a line to the trace, if it is `about` what is traced.
    pub(crate) fn note(
        &mut self,
        now: Time,
        about: impl FnOnce(u64) -> bool,
        words: impl FnOnce() -> String,
    ) {
        if self.traced.is_some_and(about) {
            self.trace.push(format!("{:>12} ns  {}", now.0, words()));
        }
    }

    /// A value was seen.
    pub(crate) fn see(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    /// Power comes, and goes instead of the event after `events`. Gives the seed
    /// of this start, and its troubles.
    pub(crate) fn power_up(&mut self, setup: &Setup, events: u64) -> (u64, Troubles) {
        self.flash.power().on(events);
        self.starts += 1;
        self.told_of_end = false;
        let troubles = &setup.troubles;
        let for_good = self.refusals >= REFUSALS;
        (self.seed(setup), if for_good { troubles.for_good() } else { troubles.clone() })
    }

    /// The drive is there.
    pub(crate) fn started(&mut self, now: Time, words: impl FnOnce() -> String) -> bool {
        self.refusals = 0;
        self.note(now, |_| true, words);
        true
    }

    /// Power went in a start.
    pub(crate) fn cut_in_start(&mut self, now: Time, events: u64) -> bool {
        self.counts.cut_recoveries += 1;
        self.counts.cut_writing_recoveries += u64::from(self.flash.power().has_programmed());
        self.note(now, |_| true, || format!("power goes in recovery, after {events} events"));
        false
    }

    /// The drive refused to start, and had reason to.
    pub(crate) fn refused(&mut self, now: Time, why: impl std::fmt::Display) -> bool {
        self.flash.power().off();
        self.counts.refusals += 1;
        self.refusals += 1;
        self.note(now, |_| true, || format!("the start is refused: {why}"));
        false
    }

    /// A drive lost its power: what it did since it came.
    pub(crate) fn count_cut(&mut self, setup: &Setup, collected: u64, erased: u64, delays: u64) {
        let counts = &mut self.counts;
        counts.cuts += 1;
        counts.cached_cuts += u64::from(setup.troubles.cached);
        counts.ends_of_life += u64::from(self.told_of_end);
        counts.collections += collected;
        counts.erases += erased;
        counts.struck.delays += delays;
    }
}
