//! The control plane of a drive: what it is asked, when its answer comes, and what is done
//! with it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::OpenChannel;
use port::Time;
use rules::{Answer, Compiled, Control, Decision, Miss, Request as Asked, Verdict};

use crate::Ruled;
use crate::work::Work;

/// A control plane to be asked by drives. Each start of one makes it anew.
#[derive(Clone)]
pub struct ControlPlane {
    make: Arc<dyn Fn() -> Box<dyn Control> + Send + Sync>,
    /// How long after the miss it answers, ns.
    answer: u64,
}

impl ControlPlane {
    /// One that answers so many ns after a miss. The request waits, those of other
    /// applications do not.
    pub fn new(
        answer: u64,
        make: impl Fn() -> Box<dyn Control> + Send + Sync + 'static,
    ) -> ControlPlane {
        ControlPlane { make: Arc::new(make), answer }
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a control plane that answers after {} ns", self.answer)
    }
}

/// What became of misses, since the start. The drive counts, any thread may look.
#[derive(Debug, Default)]
pub struct Misses {
    misses: AtomicU64,
    installed: AtomicU64,
    refused: AtomicU64,
}

impl Misses {
    /// Blocks, flushes among them, that no rule decided, or of which one said `ask`.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Sets that were installed for them.
    pub fn installed(&self) -> u64 {
        self.installed.load(Ordering::Relaxed)
    }

    /// Those that failed: there is no control plane, it refused, its set does not suit the
    /// drive or does not decide.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Only the drive counts.
fn count(at: &AtomicU64) {
    at.store(at.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A miss that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    asked: Asked,
    /// What rules say beside the verdict.
    decision: Decision,
    /// The set that missed it.
    number: u64,
    pub at: Time,
}

/// What was answered to a request, for what the same set misses of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    number: u64,
    verdict: Verdict,
}

/// A drive's control plane.
pub(crate) struct Asking {
    plane: Option<Box<dyn Control>>,
    answer: u64,
    pub misses: Arc<Misses>,
}

impl Asking {
    pub fn new(plane: Option<&ControlPlane>) -> Asking {
        Asking {
            plane: plane.map(|plane| (plane.make)()),
            answer: plane.map_or(0, |plane| plane.answer),
            misses: Arc::default(),
        }
    }
}

/// Whether rules left something undecided.
pub(crate) fn is_miss(decision: &Decision) -> bool {
    decision.verdict == Verdict::Ask
}

impl<D: OpenChannel> Ruled<D> {
    /// What becomes of a block that rules leave open, if that is known: it was answered before,
    /// or there is nobody to be asked. Else it waits for its answer.
    #[cold]
    pub(crate) fn missed(
        &mut self,
        now: Time,
        work: &mut Work,
        mut decision: Decision,
    ) -> Option<Decision> {
        count(&self.asking.misses.misses);
        let number = self.rules.number();
        if let Some(answered) = work.answered.filter(|answered| answered.number == number) {
            self.settled(answered.verdict, &mut decision);
            return Some(decision);
        }
        if self.asking.plane.is_none() {
            self.settled(Verdict::Refuse, &mut decision);
            return Some(decision);
        }
        let at = now + self.asking.answer;
        work.waiting = Some(Waiting { asked: work.asked, decision, number, at });
        None
    }

    /// What the control plane answers to a miss. Where another set was installed meanwhile
    /// that decides it, nobody is asked.
    pub(crate) fn answer(&mut self, now: Time, waiting: &Waiting) -> (Decision, Option<Answered>) {
        let (asked, mut decision) = (&waiting.asked, waiting.decision);
        self.look();
        if self.rules.number() != waiting.number {
            decision = self.decide(now, asked);
            if !is_miss(&decision) {
                return (decision, None);
            }
        }
        let miss = Miss { request: *asked, rule: decision.rule };
        let (view, set) = (self.view(now), self.rules.rules().set());
        let answer = self.asking.plane.as_mut().map(|plane| plane.miss(&miss, set, &view));
        let verdict = match answer {
            Some(Answer::Pass) => Verdict::Pass,
            Some(Answer::Install(set)) if self.installer.suits.check(&set).is_ok() => {
                if self.rules.replace(Compiled::new(&set)) {
                    count(&self.asking.misses.installed);
                }
                self.has_new_set();
                decision = self.decide(now, asked);
                if !is_miss(&decision) {
                    return (decision, None);
                }
                Verdict::Refuse
            }
            Some(Answer::Install(_) | Answer::Refuse) | None => Verdict::Refuse,
        };
        self.settled(verdict, &mut decision);
        (decision, Some(Answered { number: self.rules.number(), verdict }))
    }

    /// A miss is decided without rules.
    fn settled(&mut self, verdict: Verdict, decision: &mut Decision) {
        if verdict == Verdict::Refuse {
            count(&self.asking.misses.refused);
        }
        decision.verdict = verdict;
    }
}
