//! The compiled form of a checked set, for the data path: names are numbers, expressions are
//! nodes in one array, conditions are cases in an index over the request's fields.

use crate::bounds::Bounds;
use crate::check::{Checked, Test, constant};
use crate::decision::Policy;
use crate::hits::Hits;
use crate::index::{Extent, Index, decides_alone};
use crate::request::{FIELDS, Field, Op};
use crate::state::State;
use crate::syntax::{
    ActionKind, Assign, Change, Content, Expr, Kind, Most, Relation, Rule, Set, Slot, Sum,
};

/// A node's number.
pub(crate) type At = u32;

/// An expression that is no condition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Constant(u64),
    Field(u8),
    Counter(u16),
    Since(u16),
    Entry(u16, At),
    Sum(Sum, At, At),
    /// The remainder by a power of two, which takes no division.
    Mask(At, u64),
}

/// A test beside the fields of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeTest {
    Within(At, Bounds),
    Compare(Relation, At, At),
}

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) fields: [Bounds; FIELDS],
    pub(crate) tests: Box<[NodeTest]>,
}

/// A change, with what its counter or map holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Counter(u16, Assign, At, Bounds),
    Entry(u16, At, Assign, At, Bounds),
    /// An entry of addresses leads nowhere from now on.
    Forget(NodeSlot),
    Start(u16),
}

/// An entry: map, key.
pub(crate) type NodeSlot = (u16, At);

/// An action.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Place(Option<At>, Option<At>, Option<NodeSlot>),
    Serve(NodeSlot),
    Redirect(At),
    Remote(At),
    Drop,
    Refuse,
    Ask,
    Pass,
    Delay(At),
    Limit(u16, Most),
    Collect(Policy, Option<At>),
    Migrate(NodeSlot, At),
    Fill(Option<At>, NodeSlot),
}

/// What a rule does.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) steps: Box<[Step]>,
    pub(crate) acts: Box<[Act]>,
    pub(crate) decides: bool,
}

/// A compiled set. But for how often its rules matched it does not change; [`crate::State`]
/// is apart.
pub struct Compiled {
    pub(crate) set: Set,
    /// By an application's number: its blocks, from the first to below the second.
    pub(crate) blocks: Box<[(u64, u64)]>,
    pub(crate) nodes: Box<[Node]>,
    pub(crate) cases: Box<[Case]>,
    pub(crate) effects: Box<[Effect]>,
    pub(crate) index: Index,
    /// By an application's number and the operation, one more than the rule that decides all
    /// of that alone, or 0.
    pub(crate) plain: Box<[u16]>,
    /// By an application's number, of one whose reads one rule serves by the entries of their
    /// blocks and does nothing else, that rule and the map.
    pub(crate) serves: Box<[Option<(u16, u16)>]>,
    /// A map whose entries are those of the logical blocks that are read, if there is one.
    by_block: Option<u16>,
    hits: Hits,
}

impl Compiled {
    /// Compiles a set. Takes time and memory in proportion to its rules.
    pub fn new(checked: &Checked) -> Compiled {
        let set = checked.set().clone();
        let mut builder = Builder { set: &set, nodes: vec![] };
        let effects = set.rules.iter().map(|rule| builder.effect(rule)).collect::<Box<[_]>>();
        let (mut cases, mut extents) = (Vec::new(), Vec::new());
        for rule in set.order() {
            for case in &checked.cases()[rule] {
                let tests = case.tests.iter().map(|test| builder.test(test)).collect();
                let decides = effects[rule].decides;
                extents.push(Extent {
                    fields: case.fields,
                    rule: rule as u16,
                    tests: !case.tests.is_empty(),
                    decides,
                });
                cases.push(Case { fields: case.fields, tests });
            }
        }
        let index = Index::new(&extents);
        let nodes: Box<[Node]> = builder.nodes.into();
        let last = set.applications.iter().map(|a| a.number).max();
        let mut blocks = vec![(1, 0); last.map_or(0, |last| usize::from(last) + 1)];
        for a in &set.applications {
            blocks[usize::from(a.number)] = (a.lba.lo, a.lba.hi + 1);
        }
        let plain = plain(&set, &extents, blocks.len());
        let acts = effects.iter().flat_map(|effect| &effect.acts).filter_map(|act| match act {
            Act::Serve((map, key)) => Some((*map, *key)),
            _ => None,
        });
        let is_block =
            |at: At| matches!(nodes[at as usize], Node::Field(f) if f == Field::Lba as u8);
        let by_block = { acts }.find(|(_, key)| is_block(*key)).map(|(map, _)| map);
        let of_block = |rule: u16| match (
            &*effects[usize::from(rule)].steps,
            &*effects[usize::from(rule)].acts,
        ) {
            ([], [Act::Serve((map, key))]) if is_block(*key) => Some((rule, *map)),
            _ => None,
        };
        // Where two have the same block it is the first one's: the next may be another's.
        let all = &set.applications;
        let are_apart = all
            .iter()
            .enumerate()
            .all(|(n, a)| all[..n].iter().all(|b| a.lba.both(b.lba).is_none()));
        let of_block = |rule| of_block(rule).filter(|_| are_apart);
        let reads = plain.chunks_exact(Op::ALL.len()).map(|by_op| by_op[Op::Read as usize]);
        let serves = reads.map(|rule| rule.checked_sub(1).and_then(of_block)).collect();
        let (blocks, cases, hits) = (blocks.into(), cases.into(), Hits::new(&set));
        Compiled { blocks, nodes, cases, effects, index, plain, serves, by_block, hits, set }
    }

    /// The set.
    pub fn set(&self) -> &Set {
        &self.set
    }

    /// Fetches the entry that a read or write of a block will probably look at. Changes
    /// nothing.
    #[inline]
    pub fn hint(&self, state: &State, lba: u64) {
        if let Some(map) = self.by_block
            && let Some(entry) = state.maps[usize::from(map)].get(lba as usize)
        {
            port::lazy::prefetch(std::ptr::from_ref(entry).cast());
        }
    }

    /// The map by which all of these blocks of an application are read, if that needs no
    /// decision: its rule does nothing else. It is counted as if each block was decided.
    #[inline]
    pub fn serves(&self, application: u16, first: u64, end: u64) -> Option<u16> {
        let (rule, map) = (*self.serves.get(usize::from(application))?)?;
        let has = self.blocks[usize::from(application)];
        if first < has.0 || end > has.1 {
            return None;
        }
        self.hits.matched_times(rule, end - first);
        Some(map)
    }

    /// How often its rules matched.
    pub fn hits(&self) -> &Hits {
        &self.hits
    }

    /// Goes on with what another set counted, by the names of its rules.
    pub(crate) fn go_on(&self, old: &Compiled) {
        self.hits.keep(&self.set, &old.hits, &old.set);
    }

    /// Bytes of memory that rules take, without the state.
    pub fn bytes(&self) -> u64 {
        let nodes = self.nodes.len() * size_of::<Node>();
        let tests: usize = self.cases.iter().map(|case| case.tests.len()).sum();
        let cases = self.cases.len() * size_of::<Case>() + tests * size_of::<NodeTest>();
        let of = |e: &Effect| size_of_val(&*e.steps) + size_of_val(&*e.acts) + size_of::<Effect>();
        let effects: usize = self.effects.iter().map(of).sum();
        self.index.bytes()
            + self.hits.bytes()
            + 2 * self.plain.len() as u64
            + (nodes + cases + effects) as u64
    }
}

/// [`Compiled::plain`] of a set, for applications below a number.
fn plain(set: &Set, cases: &[Extent], applications: usize) -> Box<[u16]> {
    let mut plain = vec![0; applications * Op::ALL.len()];
    for application in &set.applications {
        for op in Op::ALL {
            let mut region = Field::ALL.map(Field::bounds);
            region[Field::Application as usize] = Bounds::one(application.number.into());
            region[Field::Op as usize] = Bounds::one(op as u64);
            // Requests outside are refused before.
            let lba = if op.has_address() { application.lba } else { Bounds::one(0) };
            region[Field::Lba as usize] = lba;
            if let Some(rule) = decides_alone(cases, &region) {
                plain[usize::from(application.number) * Op::ALL.len() + op as usize] = rule + 1;
            }
        }
    }
    plain.into()
}

struct Builder<'s> {
    set: &'s Set,
    nodes: Vec<Node>,
}

impl Builder<'_> {
    fn push(&mut self, node: Node) -> At {
        self.nodes.push(node);
        self.nodes.len() as At - 1
    }

    fn map(&self, name: &str) -> u16 {
        number(self.set.maps.iter().map(|map| &map.name.text), name)
    }

    fn counter(&self, name: &str) -> u16 {
        number(self.set.counters.iter().map(|counter| &counter.name.text), name)
    }

    fn timer(&self, name: &str) -> u16 {
        number(self.set.timers.iter().map(|timer| &timer.text), name)
    }

    fn expr(&mut self, expr: &Expr) -> At {
        if let Some(value) = constant(expr) {
            return self.push(Node::Constant(value));
        }
        let node = match &expr.kind {
            Kind::Field(field) => Node::Field(*field as u8),
            Kind::Counter(name) => Node::Counter(self.counter(name)),
            Kind::Since(name) => Node::Since(self.timer(name)),
            Kind::Entry(name, key) => Node::Entry(self.map(name), self.expr(key)),
            Kind::Sum(Sum::Remainder, a, b) if constant(b).is_some_and(u64::is_power_of_two) => {
                Node::Mask(self.expr(a), constant(b).unwrap_or(1) - 1)
            }
            Kind::Sum(sum, a, b) => Node::Sum(*sum, self.expr(a), self.expr(b)),
            // What never runs may be a sum that has no value.
            _ => Node::Constant(0),
        };
        self.push(node)
    }

    fn test(&mut self, test: &Test) -> NodeTest {
        match test {
            Test::Within(a, bounds) => NodeTest::Within(self.expr(a), *bounds),
            Test::Compare(relation, a, b) => {
                NodeTest::Compare(*relation, self.expr(a), self.expr(b))
            }
        }
    }

    fn slot(&mut self, slot: &Slot) -> NodeSlot {
        (self.map(&slot.map.text), self.expr(&slot.key))
    }

    fn effect(&mut self, rule: &Rule) -> Effect {
        let steps = rule.changes.iter().map(|change| self.step(change)).collect();
        let acts = rule.actions.iter().map(|action| self.act(&action.kind)).collect();
        Effect { steps, acts, decides: rule.decides() }
    }

    fn step(&mut self, change: &Change) -> Step {
        match change {
            Change::Counter(name, assign, value) => {
                let at = self.counter(&name.text);
                let bounds = self.set.counters[usize::from(at)].bounds;
                Step::Counter(at, *assign, self.expr(value), bounds)
            }
            Change::Entry(name, key, assign, value) => {
                let at = self.map(&name.text);
                match self.set.maps[usize::from(at)].content {
                    Content::Number(bounds) => {
                        Step::Entry(at, self.expr(key), *assign, self.expr(value), bounds)
                    }
                    Content::Address(_) => Step::Forget((at, self.expr(key))),
                }
            }
            Change::Start(name) => Step::Start(self.timer(&name.text)),
        }
    }

    fn act(&mut self, action: &ActionKind) -> Act {
        match action {
            ActionKind::Place(unit, stream, into) => {
                let unit = unit.as_ref().map(|unit| self.expr(unit));
                let stream = stream.as_ref().map(|stream| self.expr(stream));
                Act::Place(unit, stream, into.as_ref().map(|slot| self.slot(slot)))
            }
            ActionKind::Serve(slot) => Act::Serve(self.slot(slot)),
            ActionKind::Redirect(channel) => Act::Redirect(self.expr(channel)),
            ActionKind::Remote(drive) => Act::Remote(self.expr(drive)),
            ActionKind::Drop => Act::Drop,
            ActionKind::Refuse => Act::Refuse,
            ActionKind::Ask => Act::Ask,
            ActionKind::Pass => Act::Pass,
            ActionKind::Delay(time) => Act::Delay(self.expr(time)),
            ActionKind::Limit(name) => {
                let at = number(self.set.limits.iter().map(|limit| &limit.name.text), &name.text);
                Act::Limit(at, self.set.limits[usize::from(at)].most)
            }
            ActionKind::Collect(policy, unit) => {
                Act::Collect(*policy, unit.as_ref().map(|unit| self.expr(unit)))
            }
            ActionKind::Migrate(slot, unit) => Act::Migrate(self.slot(slot), self.expr(unit)),
            ActionKind::Fill(unit, slot) => {
                Act::Fill(unit.as_ref().map(|unit| self.expr(unit)), self.slot(slot))
            }
        }
    }
}

/// The number of a name that was checked.
fn number<'s>(mut names: impl Iterator<Item = &'s String>, name: &str) -> u16 {
    names.position(|other| other == name).expect("names were checked") as u16
}
