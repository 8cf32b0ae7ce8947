//! Permissions: what each application was granted. A set that asks for more is refused.
//!
//! Guarantees: a set that is accepted uses no unit, stream, channel or remote drive that its
//! applications were not granted, and decides about their blocks only, whatever is asked of
//! the drive ([`mod@rules::check`]). Its maps are the set's: what keeps tenants from each
//! other's is that each has a set of its own, which [`crate::merge`] makes one. Fails with each application's line
//! that asks for more.

use rules::syntax::{Application, Set};
use rules::{Budget, Checked, Problem, check};

/// What applications were granted: blocks, units, streams, channels, remote drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    applications: Vec<Application>,
}

impl Grants {
    /// What these lines say.
    pub fn new(applications: Vec<Application>) -> Grants {
        Grants { applications }
    }

    /// Each application's.
    pub fn applications(&self) -> &[Application] {
        &self.applications
    }

    /// What one was granted; the first where several lines are for it.
    pub fn of(&self, number: u16) -> Option<&Application> {
        self.applications.iter().find(|application| application.number == number)
    }

    /// Checks a set, which may have so many entries in all its maps.
    pub fn check(&self, set: Set, entries: u64) -> Result<Checked, Vec<Problem>> {
        let applications = Some(self.applications.clone());
        check(set, &Budget { entries, applications, ..Budget::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::parse;

    /// Who asks for more is told where, by its own line.
    #[test]
    fn more_than_was_granted_is_refused_with_its_column() {
        let given = "set a application 1 lba 0..100 units 0..4 application 2 lba 100..200";
        let grants = Grants::new(parse(given).unwrap().applications);
        let rule = "rule all priority 1 when always then pass";
        for (line, says) in [
            ("application 1 lba 0..100 units 0..4", None),
            ("application 1 lba 0..101 units 0..4", Some("asks for the lba 0..101")),
            ("application 1 lba 0..100 units 0..5", Some("asks for the units 0..5")),
            ("application 2 lba 100..200 units 0..1", Some("asks for the units 0..1")),
            ("application 2 lba 100..200 streams 0..9", Some("asks for the streams 0..9")),
            ("application 3 lba 0..1", Some("application 3, which has none")),
        ] {
            let text = format!("set b\n  {line}\n{rule}");
            let checked = grants.check(parse(&text).unwrap(), 0);
            match (checked, says) {
                (Ok(_), None) => {}
                (Err(all), Some(says)) => {
                    assert_eq!(all.len(), 1);
                    assert_eq!(all[0].position(&text), (2, 3), "{line}");
                    assert!(all[0].to_string().contains(says), "{}", all[0]);
                }
                (checked, says) => panic!("{line}: {checked:?}, expected {says:?}"),
            }
        }
        assert_eq!((grants.of(2).unwrap().lba.lo, grants.of(3)), (100, None));
    }
}
