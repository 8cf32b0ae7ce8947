//! The last few values of something, and when to get up for it.
//!
//! A window keeps the newest [`WINDOW`] samples and forgets all others, so
//! what is learned from it is at most so many requests old. Nothing fails and
//! nothing is allocated.

/// How many samples a window keeps.
pub const WINDOW: usize = 32;

/// The newest samples, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    items: [u32; WINDOW],
    len: u8,
    next: u8,
}

impl Default for Window {
    fn default() -> Window {
        Window { items: [0; WINDOW], len: 0, next: 0 }
    }
}

impl Window {
    /// Takes a sample; anything above 4.29 s counts as that.
    #[inline]
    pub fn push(&mut self, ns: u64) {
        self.items[usize::from(self.next)] = u32::try_from(ns).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % WINDOW as u8;
        self.len = (self.len + 1).min(WINDOW as u8);
    }

    /// How many samples there are.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The samples, smallest first.
    pub fn sorted(&self) -> Sorted {
        let mut sorted = Sorted { items: self.items, len: self.len() };
        sorted.items[..self.len()].sort_unstable();
        sorted
    }
}

/// Samples in order, smallest first.
#[derive(Clone, Copy, Debug)]
pub struct Sorted {
    items: [u32; WINDOW],
    len: usize,
}

impl Sorted {
    /// A single sample.
    pub fn one(ns: u64) -> Sorted {
        let mut window = Window::default();
        window.push(ns);
        window.sorted()
    }

    /// The samples.
    pub fn all(&self) -> &[u32] {
        &self.items[..self.len]
    }

    /// The one in the middle; zero when there is none.
    pub fn median(&self) -> u64 {
        self.all().get(self.len / 2).map_or(0, |&ns| u64::from(ns))
    }

    /// Their mean; zero when there is none.
    pub fn mean(&self) -> u64 {
        let sum: u64 = self.all().iter().map(|&ns| u64::from(ns)).sum();
        sum / self.len.max(1) as u64
    }

    /// Counts what is above twice the median as that: an accident, such as a
    /// core that the system took away, which hits who polls as well.
    pub fn without_accidents(mut self) -> Sorted {
        let most = u32::try_from(2 * self.median()).unwrap_or(u32::MAX);
        for ns in &mut self.items[..self.len] {
            *ns = (*ns).min(most);
        }
        self
    }

    /// At most eight that stand for all: means of neighbours.
    pub fn thinned(&self) -> Sorted {
        let step = self.len.div_ceil(8).max(1);
        let mut thin = Sorted { items: [0; WINDOW], len: 0 };
        for few in self.all().chunks(step) {
            let sum: u64 = few.iter().map(|&ns| u64::from(ns)).sum();
            thin.items[thin.len] = (sum / few.len() as u64) as u32;
            thin.len += 1;
        }
        thin
    }
}

/// How late one is on average, in ns, who is back one of `errors` after `at`,
/// when what he waits for comes after one of `times`.
fn lateness(at: u32, times: &[u32], errors: &[u32]) -> u64 {
    let mut sum = 0;
    for &error in errors {
        let back = at.saturating_add(error);
        sum += times.iter().map(|&time| u64::from(back.saturating_sub(time))).sum::<u64>();
    }
    sum / (times.len() * errors.len()).max(1) as u64
}

/// The latest moment to leave something alone until, when it comes after one
/// of `times` (in order), one is back one of `errors` later than one wanted,
/// and may be late by `allowed` ns on average. None when even now is too late
/// or nothing is known.
pub fn latest(times: &[u32], errors: &[u32], allowed: u64) -> Option<u32> {
    let (&last, &worst) = (times.last()?, errors.iter().max()?);
    if lateness(0, times, errors) > allowed {
        return None;
    }
    // Between the moment that is never late and the one that is on average.
    let first = times[0].saturating_sub(worst);
    let (mut good, mut bad) = (first, last.saturating_add(1));
    if lateness(last, times, errors) <= allowed {
        return Some(last);
    }
    while bad - good > 64.max(good / 256) {
        let middle = good + (bad - good) / 2;
        if lateness(middle, times, errors) <= allowed {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_forgets() {
        let mut window = Window::default();
        assert_eq!((window.sorted().median(), window.sorted().mean()), (0, 0));
        for ns in 0..40 {
            window.push(ns);
        }
        assert_eq!(window.sorted().all()[0], 8);
        assert_eq!((window.len(), window.sorted().median()), (WINDOW, 24));
        assert_eq!(window.sorted().thinned().all(), [9, 13, 17, 21, 25, 29, 33, 37]);
        window.push(u64::MAX);
        assert_eq!(window.sorted().without_accidents().all()[WINDOW - 1], 50);
    }

    #[test]
    fn gets_up_early_enough() {
        // Always after 80 us, always 10 us late: 70 us, and a little for the
        // lateness that is allowed.
        assert!((70_300..=70_500).contains(&latest(&[80_000], &[10_000], 500).unwrap()));
        // Half of the time after 20 us: no sleep, as 10 us late is too late.
        assert_eq!(latest(&[5_000, 80_000], &[10_000], 500), None);
        // Nothing known, nothing done.
        assert_eq!((latest(&[], &[1], 9), latest(&[1], &[], 9)), (None, None));
    }

    proptest! {
        #[test]
        fn is_never_later_on_average_than_allowed(
            mut times in prop::collection::vec(0u32..1_000_000, 1..33),
            errors in prop::collection::vec(0u32..100_000, 1..9), allowed in 0u64..10_000,
        ) {
            times.sort_unstable();
            match latest(&times, &errors, allowed) {
                None => prop_assert!(lateness(0, &times, &errors) > allowed),
                Some(at) => {
                    prop_assert!(lateness(at, &times, &errors) <= allowed);
                    // And it is nearly the latest such moment.
                    let later = at + 65 + at / 128;
                    prop_assert!(at == times[times.len() - 1]
                        || lateness(later, &times, &errors) >= allowed);
                }
            }
        }
    }
}
