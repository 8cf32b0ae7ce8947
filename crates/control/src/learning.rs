//! Learning: rules come with the first request of an application that has none (thesis,
//! chapter 7: a request without a rule goes to the controller, which installs one).
//!
//! Guarantees: what is installed is within what the application was granted. An application
//! that was granted nothing, or has rules that leave its request open, is refused, and so is
//! all where somebody has installed another set meanwhile.

use rules::syntax::{Application, Set};
use rules::{Answer, Budget, Checked, Control, Miss, View};

use crate::grants::Grants;
use crate::policy::{Policy, merge};
use crate::template::{Room, Template, TemplateError};

/// A control plane that gives each application the set of a template when it first asks.
#[derive(Clone, Debug)]
pub struct Learning {
    template: Template,
    room: Room,
    policy: Policy,
    grants: Grants,
    /// Those that have rules, in the order in which they came.
    tenants: Vec<Set>,
}

impl Learning {
    /// One for the applications of a drive. Fails for a template with a map: where its blocks
    /// are cannot be declared while a drive runs.
    pub fn new(template: Template, room: Room, policy: Policy) -> Result<Learning, TemplateError> {
        if template == Template::Minimal {
            let what = "a map of addresses cannot be added to a drive that runs".into();
            return Err(TemplateError::Refused { what });
        }
        let grants = template.grants(&room)?;
        Ok(Learning { template, room, policy, grants, tenants: Vec::new() })
    }

    /// The set with which the drive begins: all applications are named, and none has rules.
    /// `None` where the checker does not take it.
    pub fn set(&self) -> Option<Checked> {
        let tenants: Vec<&Set> = self.tenants.iter().collect();
        let has = |number| tenants.iter().any(|set| set.applications[0].number == number);
        let idle = self.grants.applications().iter().filter(|a| !has(a.number));
        let idle: Vec<Application> = idle.cloned().collect();
        let set = merge("learnt", &tenants, &idle, &self.policy);
        self.grants.check(set, Budget::default().entries).ok()
    }

    /// Applications that have rules.
    pub fn learnt(&self) -> usize {
        self.tenants.len()
    }
}

impl Control for Learning {
    fn miss(&mut self, miss: &Miss, set: &Set, _view: &View) -> Answer {
        // The last that came may not have been taken: it comes again. Where somebody has
        // installed another set it is theirs to mend.
        let is_own = |plane: &Learning| plane.set().is_some_and(|own| own.set() == set);
        if !is_own(self) {
            let Some(last) = self.tenants.pop() else { return Answer::Refuse };
            if !is_own(self) {
                self.tenants.push(last);
                return Answer::Refuse;
            }
        }
        let number = miss.request.application;
        let is_known = self.tenants.iter().any(|set| set.applications[0].number == number);
        let Some(granted) = self.grants.of(number).filter(|_| !is_known) else {
            return Answer::Refuse;
        };
        let Ok(own) = self.template.set_for(granted, &self.room) else { return Answer::Refuse };
        self.tenants.push(own.set().clone());
        if let Some(set) = self.set() {
            return Answer::Install(Box::new(set));
        }
        self.tenants.pop();
        Answer::Refuse
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::{Compiled, Live, Op, Request, Verdict};

    /// Each application's first request brings its rules, and the next are decided without
    /// asking; others are not touched.
    #[test]
    fn each_first_request_brings_rules() {
        let room = Room { applications: 3, blocks: 3000, units: 6 };
        for template in [Template::Latency, Template::Throughput, Template::Longevity] {
            let mut plane = Learning::new(template, room, Policy::default()).unwrap();
            let (mut live, installer) = Live::new(Compiled::new(&plane.set().unwrap()));
            let view = View { now: 1, free: 50, ..View::default() };
            for (learnt, number) in [(0, 1u16), (1, 0), (2, 2)] {
                let lba = u64::from(number) * 1000;
                let asked = Request {
                    op: Op::Write,
                    application: number,
                    channel: 0,
                    lba,
                    size: 4096,
                    placement: 0,
                };
                assert_eq!(plane.learnt(), learnt);
                assert_eq!(live.decide(&asked, &view).verdict, Verdict::Ask);
                let miss = Miss { request: asked, rule: None };
                let answer = plane.miss(&miss, live.rules().set(), &view);
                let Answer::Install(set) = answer else { panic!("{answer:?}") };
                installer.install(Compiled::new(&set));
                let decided = live.decide(&asked, &view);
                assert!(matches!(decided.verdict, Verdict::Place { .. }), "{decided:?}");
                let read = live.decide(&Request { op: Op::Read, ..asked }, &view);
                assert_eq!(read.verdict, Verdict::Pass);
                // It has rules: it is not asked for again.
                assert!(matches!(plane.miss(&miss, live.rules().set(), &view), Answer::Refuse));
            }
            assert_eq!(installer.rules().hits().undecided(), 3);
        }
        let refused = Learning::new(Template::Minimal, room, Policy::default());
        assert!(matches!(refused, Err(TemplateError::Refused { .. })));
    }

    /// Rules that were not taken come with the next request, which another's may be.
    #[test]
    fn what_was_not_taken_comes_again() {
        let room = Room { applications: 2, blocks: 100, units: 2 };
        let mut plane = Learning::new(Template::Latency, room, Policy::default()).unwrap();
        let first = plane.set().unwrap();
        for application in [0, 0, 1, 0] {
            let lba = u64::from(application) * 50;
            let request =
                Request { op: Op::Read, application, channel: 0, lba, size: 4096, placement: 0 };
            let answer = plane.miss(&Miss { request, rule: None }, first.set(), &View::default());
            assert!(matches!(answer, Answer::Install(_)), "{application}: {answer:?}");
            assert_eq!(plane.learnt(), 1);
        }
    }

    /// Who was granted nothing learns nothing.
    #[test]
    fn strangers_are_refused() {
        let room = Room { applications: 2, blocks: 100, units: 2 };
        let mut plane = Learning::new(Template::Latency, room, Policy::default()).unwrap();
        let set = plane.set().unwrap();
        let request =
            Request { op: Op::Read, application: 7, channel: 0, lba: 0, size: 4096, placement: 0 };
        let miss = Miss { request, rule: None };
        let answer = plane.miss(&miss, set.set(), &View::default());
        assert!(matches!(answer, Answer::Refuse));
        assert_eq!(plane.learnt(), 0);
        // Nor does anybody by a set that is not its own.
        let other = Template::Latency.set(&room).unwrap();
        let miss = Miss { request: Request { application: 0, ..request }, rule: None };
        assert!(matches!(plane.miss(&miss, other.set(), &View::default()), Answer::Refuse));
        assert!(matches!(plane.miss(&miss, set.set(), &View::default()), Answer::Install(_)));
    }
}
