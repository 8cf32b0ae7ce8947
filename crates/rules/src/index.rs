//! Which cases a request may be in: a tree over the fields of the request.
//!
//! A split cuts a field's range at the ends of cases: by a table where they are close, else
//! by a search. A leaf has the cases that are left, in the order of their rules, each with
//! what the way down has not decided. Behind one that holds whatever comes, and decides,
//! there is none. The tree's size is in
//! proportion to the number of cases: where a split would make it larger there is a leaf
//! instead, and its cases are looked at one after the other.

use crate::bounds::Bounds;
use crate::request::{FIELDS, Field};

/// Cases of a leaf that are not worth a split.
const FEW: usize = 2;
/// Entries of the tree for each case, at most; and beside.
const ENTRIES: usize = 64;
const LEAST_ENTRIES: usize = 4096;

/// A case, as the index sees it.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// What each field may be.
    pub(crate) fields: [Bounds; FIELDS],
    /// Its rule.
    pub(crate) rule: u16,
    /// It has tests.
    pub(crate) tests: bool,
    /// Its rule decides.
    pub(crate) decides: bool,
}

/// A case that is left at a leaf.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    /// Its number.
    pub(crate) case: u32,
    /// Its rule.
    pub(crate) rule: u16,
    /// A bit for each field that is still to be looked at, and [`TESTS`], [`DECIDES`].
    pub(crate) flags: u16,
}

/// The case has tests.
pub(crate) const TESTS: u16 = 1 << 14;
/// The rule decides.
pub(crate) const DECIDES: u16 = 1 << 15;

#[derive(Clone, Copy)]
enum Node {
    /// Cuts of the field from `cuts` on, `count` of them; the child behind as many as are
    /// at most the value.
    Split {
        field: u8,
        count: u32,
        cuts: u32,
        children: u32,
    },
    /// The same by a table, of `last + 1` children: the first for values up to `from`.
    Table {
        field: u8,
        last: u32,
        children: u32,
        from: u64,
    },
    Leaf {
        first: u32,
        count: u32,
    },
}

/// The tree.
pub(crate) struct Index {
    nodes: Vec<Node>,
    cuts: Vec<u64>,
    children: Vec<u32>,
    candidates: Vec<Candidate>,
    root: u32,
    /// Entries that may still be made.
    left: usize,
}

/// The way that a split would go.
struct Plan {
    field: usize,
    cuts: Vec<u64>,
    /// Cases in all children together.
    entries: usize,
}

impl Index {
    /// Of cases in the order in which they are asked.
    pub(crate) fn new(cases: &[Extent]) -> Index {
        let left = LEAST_ENTRIES + ENTRIES * cases.len();
        let mut index = Index {
            nodes: vec![],
            cuts: vec![],
            children: vec![],
            candidates: vec![],
            root: 0,
            left,
        };
        let all: Vec<u32> = (0..cases.len() as u32).collect();
        index.root = index.build(cases, &all, Field::ALL.map(Field::bounds));
        index
    }

    /// The cases that a request of these fields may be in.
    #[inline]
    pub(crate) fn find(&self, fields: &[u64; FIELDS]) -> &[Candidate] {
        let mut at = self.root;
        loop {
            match self.nodes[at as usize] {
                Node::Leaf { first, count } => {
                    return &self.candidates[first as usize..(first + count) as usize];
                }
                Node::Table { field, last, children, from } => {
                    let value = fields[usize::from(field)].saturating_sub(from);
                    at = self.children[children as usize + value.min(last.into()) as usize];
                }
                Node::Split { field, count, cuts, children } => {
                    let cuts = &self.cuts[cuts as usize..(cuts + count) as usize];
                    let child = below(cuts, fields[usize::from(field)]);
                    at = self.children[children as usize + child];
                }
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let nodes = self.nodes.len() * size_of::<Node>();
        let candidates = self.candidates.len() * size_of::<Candidate>();
        (nodes + candidates + 8 * self.cuts.len() + 4 * self.children.len()) as u64
    }

    /// The tree of those of `all` that meet a region; its node.
    fn build(&mut self, cases: &[Extent], all: &[u32], region: [Bounds; FIELDS]) -> u32 {
        let met = candidates(cases, all, &region);
        let plan = if met.len() > FEW { self.plan(cases, &met, &region) } else { None };
        let Some(plan) = plan else {
            let first = self.candidates.len() as u32;
            self.candidates.extend(&met);
            let leaf = Node::Leaf { first, count: met.len() as u32 };
            self.nodes.push(leaf);
            return self.nodes.len() as u32 - 1;
        };
        self.left -= plan.entries + plan.cuts.len();
        let met: Vec<u32> = met.iter().map(|candidate| candidate.case).collect();
        let field = region[plan.field];
        let starts = std::iter::once(field.lo).chain(plan.cuts.iter().copied());
        let ends = plan.cuts.iter().map(|cut| cut - 1).chain([field.hi]);
        let children: Vec<u32> = starts
            .zip(ends)
            .map(|(lo, hi)| {
                let mut region = region;
                region[plan.field] = Bounds { lo, hi };
                self.build(cases, &met, region)
            })
            .collect();
        let first = self.children.len() as u32;
        let field = plan.field as u8;
        let (from, last) = (plan.cuts[0] - 1, plan.cuts[plan.cuts.len() - 1]);
        let node = if last - from <= 4 * plan.cuts.len() as u64 + 8 {
            let child = |value: u64| children[plan.cuts.partition_point(|&cut| cut <= value)];
            self.children.extend((from..=last).map(child));
            Node::Table { field, last: (last - from) as u32, children: first, from }
        } else {
            let (cuts, count) = (self.cuts.len() as u32, plan.cuts.len() as u32);
            self.cuts.extend(&plan.cuts);
            self.children.extend(children);
            Node::Split { field, count, cuts, children: first }
        };
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// The split that leaves the fewest cases in a child, in the mean; `None` where none
    /// is worth it or has room.
    fn plan(&self, cases: &[Extent], met: &[Candidate], region: &[Bounds; FIELDS]) -> Option<Plan> {
        let mean = |plan: &Plan| plan.entries as f64 / (plan.cuts.len() + 1) as f64;
        (0..FIELDS)
            .map(|field| split(cases, met, region, field))
            .filter(|plan| !plan.cuts.is_empty() && plan.entries + plan.cuts.len() <= self.left)
            .filter(|plan| mean(plan) <= 0.8 * met.len() as f64)
            .min_by(|a, b| mean(a).total_cmp(&mean(b)))
    }
}

/// How many of sorted cuts are at most a value.
#[inline]
fn below(cuts: &[u64], value: u64) -> usize {
    if cuts.len() <= 4 {
        return cuts.iter().map(|&cut| usize::from(cut <= value)).sum();
    }
    let (mut base, mut size) = (0, cuts.len());
    // Halves without a branch on the outcome.
    while size > 1 {
        let half = size / 2;
        base = if cuts[base + half - 1] <= value { base + half } else { base };
        size -= half;
    }
    base + usize::from(size == 1 && cuts[base] <= value)
}

/// The cases that meet a region, up to the first that holds all of it and decides.
fn candidates(cases: &[Extent], all: &[u32], region: &[Bounds; FIELDS]) -> Vec<Candidate> {
    let mut met = Vec::new();
    for &case in all {
        let of = &cases[case as usize];
        let mut fields = 0u16;
        let mut meets = true;
        for (n, (bounds, region)) in of.fields.iter().zip(region).enumerate() {
            meets &= bounds.both(*region).is_some();
            fields |= u16::from(!bounds.hold(*region)) << n;
        }
        if meets {
            let tests = if of.tests { TESTS } else { 0 };
            let flags = fields | tests | if of.decides { DECIDES } else { 0 };
            met.push(Candidate { case, rule: of.rule, flags });
            if flags == DECIDES {
                break;
            }
        }
    }
    met
}

/// The rule that decides all of a region, where the first case that meets it does.
pub(crate) fn decides_alone(cases: &[Extent], region: &[Bounds; FIELDS]) -> Option<u16> {
    let meets = |of: &&Extent| of.fields.iter().zip(region).all(|(a, b)| a.both(*b).is_some());
    let first = cases.iter().find(meets)?;
    let holds = first.fields.iter().zip(region).all(|(a, b)| a.hold(*b));
    (holds && !first.tests && first.decides).then_some(first.rule)
}

/// Where a field would be cut, and how many cases all children would have.
fn split(cases: &[Extent], met: &[Candidate], region: &[Bounds; FIELDS], field: usize) -> Plan {
    let whole = region[field];
    let ranges = || met.iter().map(|c| cases[c.case as usize].fields[field]);
    let mut cuts: Vec<u64> = ranges()
        .flat_map(|bounds| [bounds.lo, bounds.hi + 1])
        .filter(|&cut| whole.lo < cut && cut <= whole.hi)
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let first = |value: u64| cuts.partition_point(|&cut| cut <= value);
    let spans = ranges().filter_map(|bounds| bounds.both(whole));
    let entries = spans.map(|both| first(both.hi) - first(both.lo) + 1).sum();
    Plan { field, cuts, entries }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_search_is_a_count(mut cuts in prop::collection::vec(0u64..50, 0..40), at in 0u64..60) {
            cuts.sort_unstable();
            cuts.dedup();
            prop_assert_eq!(below(&cuts, at), cuts.iter().filter(|&&cut| cut <= at).count());
        }

        /// The first final case of a leaf, and all before it, are those of a look at all.
        #[test]
        fn leaves_have_all_cases_that_hold(
            boxes in prop::collection::vec(
                (0u64..4, 0u64..4, 0u64..40, 1u64..40, any::<bool>(), any::<bool>()), 0..60),
            points in prop::collection::vec((0u64..6, 0u64..6, 0u64..80), 20),
        ) {
            let cases: Vec<Extent> = boxes.iter().map(|&(op, channel, lba, count, wide, is_final)| {
                let mut fields = Field::ALL.map(Field::bounds);
                fields[Field::Op as usize] = Bounds::one(op);
                if !wide {
                    fields[Field::Channel as usize] = Bounds::one(channel);
                }
                fields[Field::Lba as usize] = Bounds { lo: lba, hi: lba + count };
                Extent { fields, rule: 0, tests: false, decides: is_final }
            }).collect();
            let index = Index::new(&cases);
            for (op, channel, lba) in points {
                let mut at = [0; FIELDS];
                at[Field::Op as usize] = op;
                at[Field::Channel as usize] = channel;
                at[Field::Lba as usize] = lba;
                let holds = |case: &Extent| case.fields.iter().zip(at).all(|(b, v)| b.has(v));
                let mut expected: Vec<u32> = Vec::new();
                for (n, case) in cases.iter().enumerate() {
                    if holds(case) {
                        expected.push(n as u32);
                        if case.decides {
                            break;
                        }
                    }
                }
                let mut found: Vec<u32> = Vec::new();
                for candidate in index.find(&at) {
                    let case = &cases[candidate.case as usize];
                    let holds = (0..FIELDS)
                        .all(|n| candidate.flags >> n & 1 == 0 || case.fields[n].has(at[n]));
                    if holds {
                        found.push(candidate.case);
                        if case.decides {
                            break;
                        }
                    }
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
