//! What is odd in a set of which each rule is sound: requests that nobody decides, and blocks of
//! two applications.

use crate::bounds::Bounds;
use crate::error::{Problem, What};
use crate::request::Op;
use crate::syntax::Set;

/// The operations that a host asks for, all but [`Op::Idle`].
const ASKED: [Op; 5] = [Op::Read, Op::Write, Op::Trim, Op::Zero, Op::Flush];

/// By application, which operations a rule may decide, a bit each.
pub(super) struct Decided(Vec<u8>);

impl Decided {
    pub fn new(set: &Set) -> Decided {
        Decided(vec![0; set.applications.len()])
    }

    /// A rule decides requests of an application, of these operations.
    pub fn some(&mut self, application: usize, ops: Bounds) {
        for op in ASKED.into_iter().filter(|&op| ops.has(op as u64)) {
            self.0[application] |= 1 << op as u8;
        }
    }

    /// The operations of each application that no rule decides, told at its line.
    pub fn left(self, set: &Set) -> Vec<Problem> {
        let left = |(application, decided): (&crate::syntax::Application, u8)| {
            let ops = ASKED.into_iter().filter(|&op| decided >> op as u8 & 1 == 0);
            let ops: Vec<&str> = ops.map(Op::word).collect();
            let what = What::Undecided { application: application.number, ops: ops.join(", ") };
            (!ops.is_empty()).then(|| Problem::new(what, application.at))
        };
        set.applications.iter().zip(self.0).filter_map(left).collect()
    }
}

/// Blocks that two applications name: the first in the text has them.
pub(super) fn shared(set: &Set) -> Vec<Problem> {
    let all = &set.applications;
    let told = |(n, application): (usize, &crate::syntax::Application)| {
        all[..n].iter().find_map(|first| {
            let lba = first.lba.both(application.lba)?;
            let (first, second) = (first.number, application.number);
            Some(Problem::new(What::Shared { first, second, lba }, application.at))
        })
    };
    all.iter().enumerate().filter_map(told).collect()
}
