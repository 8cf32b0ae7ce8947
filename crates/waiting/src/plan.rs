//! When a request may be left alone.
//!
//! A plan says, for requests of one kind, at which ages nobody need look for
//! their completion: the *quiet* stages. There are at most three:
//! - from the start until shortly before the earliest completions come;
//! - when times lie in two heaps, from the end of the first heap until shortly
//!   before the second comes, for a request that is still out then;
//! - from an age at which the price of an interrupt no longer matters, for
//!   ever: something takes much longer than it ever did.
//!
//! How much before "shortly before" is follows from the distribution of times,
//! that of the error with which one comes back, and the lateness allowed on
//! average. Nothing fails.

use super::window::{Sorted, latest};

/// For ever, as an age.
pub const FOREVER: u32 = u32::MAX;

/// What is worth it.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Processor time that going away and coming back takes, in ns.
    pub cost: u64,
    /// Lateness that is allowed on average, in ns a request.
    pub allowed: u64,
}

/// Ages between which a request may be left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stage {
    from: u32,
    /// When it is no longer worth it to go away.
    last: u32,
    /// When to want to be back.
    to: u32,
}

/// Time in which a call to sleep may find that it is over already, in ns.
const CALL: u64 = 2_000;

impl Stage {
    const NONE: Stage = Stage { from: FOREVER, last: 0, to: 0 };

    fn new(from: u32, to: Option<u32>, errors: &Sorted, rule: Rule) -> Stage {
        let Some(to) = to else { return Stage::NONE };
        // It saves the time away, less what it costs; a quarter more than that
        // makes it worth it.
        let least = (rule.cost + rule.cost / 4).saturating_sub(errors.mean());
        // Nor does anybody get away for less than a call takes.
        let least = u32::try_from(least.max(CALL)).unwrap_or(FOREVER);
        let last = to.saturating_sub(least);
        if to < least || from > last { Stage::NONE } else { Stage { from, last, to } }
    }

    fn is_none(self) -> bool {
        self == Stage::NONE
    }
}

/// What to do about a request of some age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nobody need look until this age; [`FOREVER`] is until an interrupt.
    Quiet(u32),
    /// It may complete any time. From this age on that may be different.
    Near(u32),
}

/// The quiet stages of one kind of request.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    stages: [Stage; 3],
}

/// Before anything is known, an interrupt is waited for after so many ns.
const PATIENCE: u32 = 2_000_000;

impl Default for Plan {
    fn default() -> Plan {
        let last = Stage { from: PATIENCE, last: FOREVER, to: FOREVER };
        Plan { stages: [Stage::NONE, Stage::NONE, last] }
    }
}

impl Plan {
    /// The plan for requests that take `times`, when coming back is `errors`
    /// late.
    pub fn new(times: &Sorted, errors: &Sorted, rule: Rule) -> Plan {
        let errors = errors.without_accidents();
        let few = errors.thinned();
        let all = times.all();
        let Some(&longest) = all.last() else { return Plan::default() };
        if errors.mean() <= rule.allowed && errors.mean() > 0 {
            // Waking up costs so little beside the request that one waits for
            // nothing else.
            let ever = Stage { from: 0, last: FOREVER, to: FOREVER };
            return Plan { stages: [ever, Stage::NONE, Stage::NONE] };
        }
        let second = Plan::second(all, &few, &errors, rule);
        // Two stages share what is allowed.
        let allowed = if second.is_none() { rule.allowed } else { rule.allowed / 2 };
        let first = Stage::new(0, latest(all, few.all(), allowed), &errors, rule);
        let patience = (4 * u64::from(longest)).max(64 * errors.mean()).max(100_000);
        let patience = u32::try_from(patience).unwrap_or(FOREVER);
        let last = Stage { from: patience, last: FOREVER, to: FOREVER };
        Plan { stages: [first, second, last] }
    }

    /// The plan for something that comes once, after `time` ns.
    pub fn once(time: u64, errors: &Sorted, rule: Rule) -> Plan {
        let errors = errors.without_accidents();
        let to = latest(Sorted::one(time).all(), errors.thinned().all(), rule.allowed);
        Plan { stages: [Stage::new(0, to, &errors, rule), Stage::NONE, Stage::NONE] }
    }

    /// The stage between two heaps of times: after the widest gap.
    fn second(times: &[u32], few: &Sorted, errors: &Sorted, rule: Rule) -> Stage {
        let widest = (1..times.len()).max_by_key(|&i| times[i] - times[i - 1]);
        let Some(gap) = widest else { return Stage::NONE };
        let (before, behind) = (times[gap - 1], &times[gap..]);
        // One request that was slow says little.
        if behind.len() < 2 {
            return Stage::NONE;
        }
        let from = before.saturating_add(before / 16).saturating_add(500);
        // Only so many requests come here, so each may be so much later.
        let allowed = rule.allowed / 2 * times.len() as u64 / behind.len() as u64;
        Stage::new(from, latest(behind, few.all(), allowed), errors, rule)
    }

    /// The age to which a new request is left alone; zero when it is not.
    pub fn first(&self) -> u32 {
        self.stages[0].to
    }

    /// What to do about a request of this age.
    #[inline]
    pub fn outlook(&self, age: u32) -> Outlook {
        let mut next = FOREVER;
        for stage in &self.stages {
            if age < stage.from {
                next = next.min(stage.from);
            } else if age <= stage.last {
                return Outlook::Quiet(stage.to);
            }
        }
        Outlook::Near(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Window;
    use super::*;

    fn samples(of: &[u64]) -> Sorted {
        let mut window = Window::default();
        of.iter().for_each(|&ns| window.push(ns));
        window.sorted()
    }

    const RULE: Rule = Rule { cost: 4_000, allowed: 400 };

    #[test]
    fn a_steady_request_is_left_alone_once() {
        let plan = Plan::new(&samples(&[80_000; 9]), &samples(&[5_000, 6_000]), RULE);
        let Outlook::Quiet(until) = plan.outlook(0) else { panic!("{plan:?}") };
        assert!((74_000..75_500).contains(&until), "{until}");
        assert_eq!(plan.outlook(until + 1), Outlook::Near(352_000));
    }

    #[test]
    fn a_short_request_is_not_left_alone() {
        let plan = Plan::new(&samples(&[6_000; 9]), &samples(&[5_000, 6_000]), RULE);
        assert!(matches!(plan.outlook(0), Outlook::Near(_)), "{plan:?}");
    }

    #[test]
    fn a_second_heap_is_slept_for_once_the_first_is_over() {
        let times = [[10_000; 5], [400_000; 5]].concat();
        let plan = Plan::new(&samples(&times), &samples(&[12_000; 4]), RULE);
        assert_eq!(plan.outlook(0), Outlook::Near(11_125));
        let Outlook::Quiet(until) = plan.outlook(11_125) else { panic!("{plan:?}") };
        assert!((387_000..389_000).contains(&until), "{until}");
    }

    #[test]
    fn a_long_request_is_the_interrupts() {
        let rule = Rule { allowed: 50_000, ..RULE };
        let plan = Plan::new(&samples(&[9_000_000, 11_000_000]), &samples(&[30_000; 4]), rule);
        assert_eq!(plan.outlook(0), Outlook::Quiet(FOREVER));
    }
}
