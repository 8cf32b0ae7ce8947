//! Templates: rule sets from which an application chooses, which trade performance,
//! predictability and media life off (thesis, chapter 7, section 2).
//!
//! Guarantees: each is accepted by the checker, and gives every block of the drive to one
//! application. Fails where there are fewer units or blocks than applications.

use std::fmt::Write;

use rules::syntax::Application;
use rules::{Budget, Checked, check, parse};
use thiserror::Error;

use crate::grants::Grants;

/// Free chunks, in percent, below which a drive collects while nobody asks.
const IDLE_FREE: u64 = 8;

/// A template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Table 1 of the paper: its own map, blocks go round all units.
    Minimal,
    /// Each application has units of its own; collection is done while they are idle.
    Latency,
    /// All applications share all units; collection is done while they are idle.
    Throughput,
    /// All share all units; nothing is collected before a write needs the room.
    Longevity,
}

/// The drive that a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Applications, from 1.
    pub applications: u16,
    /// Logical blocks of 4 KiB.
    pub blocks: u64,
    /// Parallel units.
    pub units: u64,
}

/// A template that a drive cannot have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TemplateError {
    /// It is too small.
    #[error("{applications} applications are none, or more than the drive has {what} ({has})")]
    Few {
        /// How many were asked for.
        applications: u16,
        /// What is too little.
        what: &'static str,
        /// How much of it there is.
        has: u64,
    },
    /// The checker does not take it.
    #[error("{what}: take a smaller drive, or a template without a map (latency)")]
    Refused {
        /// What is wrong.
        what: String,
    },
}

impl Template {
    /// All of them.
    pub const ALL: [Template; 4] =
        [Template::Minimal, Template::Latency, Template::Throughput, Template::Longevity];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Template::Minimal => "minimal",
            Template::Latency => "latency",
            Template::Throughput => "throughput",
            Template::Longevity => "longevity",
        }
    }

    /// The one of a name.
    pub fn of(name: &str) -> Option<Template> {
        Template::ALL.into_iter().find(|template| template.name() == name)
    }

    /// What each application is granted: blocks, as many as its units are of all where it has
    /// some of its own.
    pub fn grants(self, room: &Room) -> Result<Grants, TemplateError> {
        let Room { applications, blocks, units } = *room;
        for (what, has) in [("blocks", blocks), ("units", units)] {
            if applications == 0 || has < u64::from(applications) {
                return Err(TemplateError::Few { applications, what, has });
            }
        }
        let part = |n: u64, of: u64| {
            u64::try_from(u128::from(n) * u128::from(of) / u128::from(applications)).unwrap_or(of)
        };
        let mut text = String::from("set granted\n");
        for n in 0..u64::from(applications) {
            let (first, end) = (part(n, units), part(n + 1, units));
            let block = |unit: u64| {
                u64::try_from(u128::from(unit) * u128::from(blocks) / u128::from(units))
                    .unwrap_or(blocks)
            };
            let (lba, own) = match self {
                Template::Latency => ((block(first), block(end)), (first, end)),
                _ => ((part(n, blocks), part(n + 1, blocks)), (0, units)),
            };
            let _ = writeln!(
                text,
                "application {n} lba {}..{} units {}..{}",
                lba.0, lba.1, own.0, own.1
            );
        }
        let refused = |what: String| TemplateError::Refused { what };
        Ok(Grants::new(parse(&text).map_err(|e| refused(e.to_string()))?.applications))
    }

    /// The set for all applications.
    pub fn set(self, room: &Room) -> Result<Checked, TemplateError> {
        let grants = self.grants(room)?;
        let mut text = format!("set {}\n", self.name());
        for application in grants.applications() {
            let _ = writeln!(text, "{application}");
        }
        match self {
            Template::Minimal => minimal(&mut text, room),
            _ => self.rules(&mut text, grants.applications(), room),
        }
        checked(&text, room)
    }

    /// The set of one application, with what it was granted.
    pub fn set_for(self, application: &Application, room: &Room) -> Result<Checked, TemplateError> {
        let mut text = format!("set {}\n{application}\n", self.name());
        match self {
            Template::Minimal => minimal(&mut text, room),
            _ => self.rules(&mut text, std::slice::from_ref(application), room),
        }
        checked(&text, room)
    }

    /// The rules of those without a map of their own: blocks go round the application's units,
    /// and where they are the drive's own map says. While nobody asks each is collected in turn
    /// until enough is free that a burst finds room.
    fn rules(self, text: &mut String, applications: &[Application], room: &Room) {
        let collects = matches!(self, Template::Latency | Template::Throughput);
        let mut rules = String::from(
            "rule write priority 2 when op == write then place\n\
             rule rest priority 1 when op != write and op != idle then pass\n",
        );
        for Application { number, units, .. } in applications.iter().filter(|_| collects) {
            let (first, count) = units.map_or((0, 1), |units| (units.lo, units.count()));
            // All are asked at once: those that share units are not to name the same.
            let ahead = u64::from(*number) * count / u64::from(room.applications) % count;
            let _ = writeln!(text, "counter turn{number} 0..{count}");
            let _ = writeln!(
                rules,
                "rule idle{number} priority 1
                   when op == idle and application == {number} and free < {IDLE_FREE}
                   do turn{number} = (turn{number} + 1) % {count}
                   then collect greedy unit {first} + (turn{number} + {ahead}) % {count}"
            );
        }
        text.push_str(&rules);
    }
}

/// Table 1 of the paper, and what a block drive is asked beside.
fn minimal(text: &mut String, room: &Room) {
    let Room { blocks, units, .. } = room;
    let _ = write!(
        text,
        "map l2p[{blocks}] of address in 0..{units}
         counter next 0..{units}
         rule collect priority 2 when op == write and free < 10 then collect greedy
         rule write priority 1 when op == write
           do next = (next + 1) % {units} then place unit next into l2p[lba]
         rule read priority 1 when op == read then serve l2p[lba]
         rule trim priority 1 when op == trim or op == zero do l2p[lba] = none then drop
         rule flush priority 1 when op == flush then pass
         rule idle priority 1 when op == idle and idle_time > 1ms and free < 20
           then collect greedy\n"
    );
}

/// A text of this file, checked.
fn checked(text: &str, room: &Room) -> Result<Checked, TemplateError> {
    let refused = |what: String| TemplateError::Refused { what };
    let set = parse(text).map_err(|e| refused(e.to_string()))?;
    let budget = Budget::default();
    let budget = Budget { entries: budget.entries.max(room.blocks), ..budget };
    check(set, &budget).map_err(|all| {
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        refused(all.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rules::bounds::Bounds;

    proptest! {
        /// Applications have all blocks, and none twice; those that want latency have units of
        /// their own, with room for their blocks.
        #[test]
        fn all_is_given_once(
            applications in 1u16..40, blocks in 40u64..1 << 20, units in 40u64..200,
        ) {
            let room = Room { applications, blocks, units };
            for template in Template::ALL {
                let set = template.set(&room).unwrap();
                prop_assert_eq!(set.warnings().len(), 0);
                let all = &set.set().applications;
                let mut next = 0;
                for a in all {
                    prop_assert_eq!(a.lba.lo, next);
                    next = a.lba.hi + 1;
                }
                prop_assert_eq!((next, all.len()), (blocks, usize::from(applications)));
                let of = |a: &Application| a.units.unwrap();
                if template == Template::Latency {
                    for (a, b) in all.iter().zip(&all[1..]) {
                        prop_assert_eq!(of(a).hi + 1, of(b).lo);
                    }
                    for a in all {
                        let most = (blocks * of(a).count()).div_ceil(units);
                        prop_assert!(a.lba.count() <= most);
                    }
                } else {
                    let has_all = all.iter().all(|a| of(a) == Bounds { lo: 0, hi: units - 1 });
                    prop_assert!(has_all);
                }
                // What it says can be read, and is the same.
                let text = set.set().to_string();
                prop_assert_eq!(&parse(&text).unwrap(), set.set());
            }
        }
    }

    #[test]
    fn what_is_too_small_is_refused() {
        for (applications, blocks, units) in [(0, 10, 10), (9, 8, 10), (9, 10, 8)] {
            let room = Room { applications, blocks, units };
            for template in Template::ALL {
                let refused = template.set(&room);
                assert!(matches!(refused, Err(TemplateError::Few { .. })), "{refused:?}");
            }
        }
        for template in Template::ALL {
            assert_eq!(Template::of(template.name()), Some(template));
        }
        assert_eq!(Template::of("speed"), None);
    }
}
