//! What becomes of a request, by the compiled form. Pure: a state and a request go in, a
//! decision comes out, and nothing else changes. No allocation, no loop but over the cases
//! that the index leaves. It cannot fail: what could go wrong the checker has excluded.

use crate::check::MOST_HITS;
use crate::compile::{Act, At, Compiled, Node, NodeSlot, NodeTest, Step};
use crate::decision::{Collect, Decision, Depth, Entry, Fill, Migrate, Verdict};
use crate::index::{Candidate, DECIDES, TESTS};
use crate::request::{FIELDS, Field, LONGEST, Op, Request, View, fields};
use crate::state::{State, paced};
use crate::syntax::{Assign, Most, Sum};

/// What expressions are evaluated against.
struct Around<'a> {
    nodes: &'a [Node],
    fields: &'a [u64; FIELDS],
    now: u64,
}

/// Rules that match a request.
struct Matching {
    rules: [u16; MOST_HITS + 1],
    count: usize,
}

impl Matching {
    #[inline]
    fn all(&self) -> &[u16] {
        &self.rules[..self.count]
    }
}

impl Compiled {
    /// What becomes of a request; changes the state, and counts which rules matched. A request that no rule decides goes to
    /// the control plane; one of an application that the set does not name, or outside its
    /// blocks, is refused and changes nothing.
    #[inline]
    pub fn decide(&self, state: &mut State, request: &Request, view: &View) -> Decision {
        state.released.clear();
        let mut fields = fields(request, view);
        if !self.admits(request, &mut fields) {
            return Decision::bare(Verdict::Refuse);
        }
        let at = Around { nodes: &self.nodes, fields: &fields, now: view.now };
        if let Some(rule) = self.plain(request) {
            return self.decided_by(rule, &at, state);
        }
        let hits = self.matching(&at, state);
        let otherwise = if request.op == Op::Idle { Verdict::Pass } else { Verdict::Ask };
        let mut decision = Decision::bare(otherwise);
        for &rule in hits.all() {
            self.hits().matched(rule);
            let effect = &self.effects[usize::from(rule)];
            effect.steps.iter().for_each(|step| at.step(step, state));
            effect.acts.iter().for_each(|act| at.act(act, state, &mut decision));
            if effect.decides {
                decision.rule = Some(rule);
            }
        }
        if decision.rule.is_none() && request.op != Op::Idle {
            self.hits().missed();
        }
        decision
    }

    /// The rule that decides whatever comes of an application for an operation, if one does.
    #[inline(always)]
    fn plain(&self, request: &Request) -> Option<u16> {
        let at = usize::from(request.application) * Op::ALL.len() + request.op as usize;
        self.plain[at].checked_sub(1)
    }

    /// What one rule decides, alone.
    #[inline(always)]
    fn decided_by(&self, rule: u16, at: &Around<'_>, state: &mut State) -> Decision {
        self.hits().matched(rule);
        let effect = &self.effects[usize::from(rule)];
        effect.steps.iter().for_each(|step| at.step(step, state));
        let mut decision = Decision::bare(Verdict::Pass);
        effect.acts.iter().for_each(|act| at.act(act, state, &mut decision));
        decision.rule = Some(rule);
        decision
    }

    /// The rule that decides a request, by its number in the text; changes nothing.
    #[inline]
    pub fn rule(&self, state: &State, request: &Request, view: &View) -> Option<u16> {
        let mut fields = fields(request, view);
        if !self.admits(request, &mut fields) {
            return None;
        }
        if let Some(rule) = self.plain(request) {
            return Some(rule);
        }
        let at = Around { nodes: &self.nodes, fields: &fields, now: view.now };
        let last = *self.matching(&at, state).all().last()?;
        self.effects[usize::from(last)].decides.then_some(last)
    }

    /// The rules that match, up to the one that decides.
    #[inline(always)]
    fn matching(&self, at: &Around<'_>, state: &State) -> Matching {
        let mut hits = Matching { rules: [0; MOST_HITS + 1], count: 0 };
        for candidate in self.index.find(at.fields) {
            // Cases of a rule follow each other: it matches once.
            if hits.all().last() == Some(&candidate.rule) {
                continue;
            }
            if candidate.flags & !DECIDES == 0 || self.holds(candidate, at, state) {
                hits.rules[hits.count] = candidate.rule;
                hits.count += 1;
                if candidate.flags & DECIDES != 0 {
                    break;
                }
            }
        }
        hits
    }

    /// Whether what the index has not decided of a case is so.
    #[inline(always)]
    fn holds(&self, candidate: &Candidate, at: &Around<'_>, state: &State) -> bool {
        let case = &self.cases[candidate.case as usize];
        let mut left = candidate.flags & !(DECIDES | TESTS);
        while left != 0 {
            let field = left.trailing_zeros() as usize;
            if !case.fields[field].has(at.fields[field]) {
                return false;
            }
            left &= left - 1;
        }
        case.tests.iter().all(|test| at.test(test, state))
    }

    /// Whether a request is inside what its application was given. One without an address
    /// has 0 for it.
    #[inline]
    fn admits(&self, request: &Request, fields: &mut [u64; FIELDS]) -> bool {
        let Some(&(first, end)) = self.blocks.get(usize::from(request.application)) else {
            return false;
        };
        if !request.op.has_address() {
            fields[Field::Lba as usize] = 0;
            fields[Field::Size as usize] = 0;
            return first < end;
        }
        request.blocks().is_some_and(|(from, to)| first <= from && from < end && to <= end)
    }
}

impl Around<'_> {
    /// What a node is. Most are leaves, which take no call.
    #[inline(always)]
    fn value(&self, at: At, state: &State) -> u64 {
        match self.nodes[at as usize] {
            Node::Constant(value) => value,
            Node::Field(field) => self.fields[usize::from(field)],
            Node::Counter(n) => state.counters[usize::from(n)],
            node => self.deep(node, state),
        }
    }

    fn deep(&self, node: Node, state: &State) -> u64 {
        match node {
            Node::Constant(value) => value,
            Node::Field(field) => self.fields[usize::from(field)],
            Node::Mask(a, mask) => self.value(a, state) & mask,
            Node::Counter(n) => state.counters[usize::from(n)],
            Node::Since(n) => self.now.saturating_sub(state.timers[usize::from(n)]).min(LONGEST),
            Node::Entry(map, key) => state.maps[usize::from(map)][self.value(key, state) as usize],
            Node::Sum(sum, a, b) => {
                let (a, b) = (self.value(a, state), self.value(b, state));
                match sum {
                    Sum::Add => a + b,
                    Sum::Subtract => a.saturating_sub(b),
                    Sum::Multiply => a * b,
                    Sum::Divide => a / b,
                    Sum::Remainder => a % b,
                    Sum::Min => a.min(b),
                    Sum::Max => a.max(b),
                }
            }
        }
    }

    #[inline]
    fn test(&self, test: &NodeTest, state: &State) -> bool {
        match *test {
            NodeTest::Within(a, bounds) => bounds.has(self.value(a, state)),
            NodeTest::Compare(relation, a, b) => {
                relation.holds(self.value(a, state), self.value(b, state))
            }
        }
    }

    #[inline]
    fn step(&self, step: &Step, state: &mut State) {
        match *step {
            Step::Start(n) => state.timers[usize::from(n)] = self.now,
            Step::Counter(n, assign, value, bounds) => {
                let value = self.value(value, state);
                let at = &mut state.counters[usize::from(n)];
                *at = assigned(*at, assign, value, bounds);
            }
            Step::Forget(slot) => {
                let entry = self.entry(slot, state);
                state.released.push((entry, state.address(entry)));
                state.maps[usize::from(entry.map)][entry.key as usize] = 0;
            }
            Step::Entry(n, key, assign, value, bounds) => {
                let (key, value) = (self.value(key, state), self.value(value, state));
                let at = &mut state.maps[usize::from(n)][key as usize];
                *at = assigned(*at, assign, value, bounds);
            }
        }
    }

    #[inline]
    fn act(&self, act: &Act, state: &mut State, decision: &mut Decision) {
        let small = |at: At| self.value(at, state) as u16;
        match *act {
            Act::Place(unit, stream, slot) => {
                decision.verdict = Verdict::Place {
                    unit: unit.map(small),
                    stream: stream.map_or(0, small),
                    entry: slot.map(|slot| self.entry(slot, state)),
                };
            }
            Act::Serve(slot) => {
                let entry = self.entry(slot, state);
                decision.verdict = Verdict::Serve(state.address(entry));
                state.served = Some(entry);
            }
            Act::Redirect(channel) => decision.verdict = Verdict::Redirect(small(channel)),
            Act::Remote(drive) => decision.verdict = Verdict::Remote(small(drive)),
            Act::Drop => decision.verdict = Verdict::Drop,
            Act::Refuse => decision.verdict = Verdict::Refuse,
            Act::Ask => decision.verdict = Verdict::Ask,
            Act::Pass => decision.verdict = Verdict::Pass,
            Act::Delay(time) => decision.delay = decision.delay.max(self.value(time, state)),
            Act::Limit(limit, most) => self.limit(limit, most, state, decision),
            Act::Collect(policy, unit) => {
                let collect = Collect { policy, unit: unit.map(small) };
                decision.collect.get_or_insert(collect);
            }
            Act::Fill(unit, slot) => {
                let fill = Fill { unit: unit.map(small), entry: self.entry(slot, state) };
                decision.fill.get_or_insert(fill);
            }
            Act::Migrate(slot, unit) => {
                let entry = self.entry(slot, state);
                if let (None, Some(from)) = (decision.migrate, state.address(entry)) {
                    decision.migrate = Some(Migrate { entry, from, unit: small(unit) });
                }
            }
        }
    }

    fn entry(&self, (map, key): NodeSlot, state: &State) -> Entry {
        Entry { map, key: self.value(key, state) }
    }

    fn limit(&self, limit: u16, most: Most, state: &mut State, decision: &mut Decision) {
        match most {
            Most::Rate(rate, burst) => {
                let due = &mut state.due[usize::from(limit)];
                let (wait, next) = paced(*due, self.now, rate, burst);
                *due = next;
                decision.delay = decision.delay.max(wait);
            }
            Most::Depth(most) => {
                decision.depth.get_or_insert(Depth { limit, most: most as u32 });
            }
            Most::Share(share) => {
                decision.share.get_or_insert(share as u32);
            }
        }
    }
}

/// What a value becomes.
#[inline]
fn assigned(was: u64, assign: Assign, value: u64, bounds: crate::bounds::Bounds) -> u64 {
    match assign {
        Assign::Set => value,
        Assign::Raise => was.saturating_add(value).min(bounds.hi),
        Assign::Lower => was.saturating_sub(value).max(bounds.lo),
    }
}
