//! Whether what a set gives its applications has room on the drive, and what it leaves out:
//! blocks, flushes.

use device::OpenChannel;
use port::BLOCK_BYTES;
use rules::check::Case;
use rules::request::Field;
use rules::syntax::{ActionKind, Rule};
use rules::{Checked, Op};

use crate::{RESERVE, Ruled, RuledError};

impl<D: OpenChannel> Ruled<D> {
    /// Blocks that a unit holds.
    pub(crate) fn most_of_unit(&self) -> u64 {
        let chunks = self.geometry.chunks().saturating_sub(RESERVE);
        u64::from(chunks) * u64::from(self.geometry.chunk_blocks())
    }
}

/// Whether the blocks of each application have room on its units, of which each holds so many.
/// One with remote drives may have its blocks there.
pub(crate) fn fits(rules: &Checked, bytes: u64, unit_blocks: u64) -> Result<(), RuledError> {
    let last = bytes / BLOCK_BYTES - 1;
    for application in rules.set().applications.iter().filter(|a| a.remotes.is_none()) {
        let Some(units) = application.units else { continue };
        let blocks = (application.lba.hi.min(last) + 1).saturating_sub(application.lba.lo);
        let (most, units) = (units.count() * unit_blocks, units.count());
        if blocks > most {
            let application = application.number;
            return Err(RuledError::Room { application, blocks, units, most });
        }
    }
    Ok(())
}

/// The first blocks of a drive of so many bytes that a set gives to no application, from and up
/// to.
pub fn nobodys(rules: &Checked, bytes: u64) -> Option<(u64, u64)> {
    let blocks = bytes / BLOCK_BYTES;
    let mut all: Vec<_> = rules.set().applications.iter().map(|a| a.lba).collect();
    all.sort_unstable_by_key(|lba| lba.lo);
    let mut next = 0;
    for lba in all {
        if lba.lo > next {
            return Some((next, lba.lo.min(blocks)));
        }
        next = next.max(lba.hi + 1);
        if next >= blocks {
            return None;
        }
    }
    Some((next, blocks))
}

/// Whether a set has no rule that lets a flush through: each is refused then.
pub fn refuses_flushes(rules: &Checked) -> bool {
    let meets = |case: &Case| case.fields[Field::Op as usize].has(Op::Flush as u64);
    let lets = |rule: &Rule| {
        let refuses = |kind: &ActionKind| matches!(kind, ActionKind::Refuse | ActionKind::Ask);
        rule.actions.iter().any(|it| it.kind.is_verdict() && !refuses(&it.kind))
    };
    let mut all = rules.set().rules.iter().zip(rules.cases());
    !all.any(|(rule, cases)| lets(rule) && cases.iter().any(meets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::{Budget, check, parse};

    #[test]
    fn what_has_no_room_and_what_is_nobodys() {
        let set = |text: &str| {
            let text = format!("set a {text} rule r priority 0 when op != idle then pass");
            check(parse(&text).unwrap(), &Budget::default()).unwrap()
        };
        let drive = 100 * BLOCK_BYTES;
        let two = set("application 3 lba 0..60 units 0..2 application 4 lba 60..1K units 2..4");
        assert!(fits(&two, drive, 30).is_ok());
        let told = fits(&two, drive, 25).unwrap_err().to_string();
        assert!(told.starts_with("application 3 has 60 blocks, and its 2 units hold 50"), "{told}");
        let remote = set("application 3 lba 0..60 units 0..2 remotes 0..1");
        assert!(fits(&remote, drive, 1).is_ok());

        assert_eq!(nobodys(&two, drive), None);
        assert_eq!(nobodys(&remote, drive), Some((60, 100)));
        assert_eq!(nobodys(&remote, 60 * BLOCK_BYTES), None);
        let late = set("application 0 lba 50..60 units 0..1 application 1 lba 20..40 units 0..1");
        assert_eq!(nobodys(&late, drive), Some((0, 20)));
        assert_eq!(nobodys(&late, 10 * BLOCK_BYTES), Some((0, 10)));
    }

    #[test]
    fn flushes_that_no_rule_lets_through() {
        let refuses = |rule: &str| {
            let text = format!("set a application 0 lba 0..1K units 0..1 rule r priority 0 {rule}");
            refuses_flushes(&check(parse(&text).unwrap(), &Budget::default()).unwrap())
        };
        assert!(refuses("when op == write then pass"));
        assert!(refuses("when op == flush then refuse"));
        assert!(!refuses("when op == flush then pass"));
        assert!(!refuses("when op != read then drop"));
    }
}
