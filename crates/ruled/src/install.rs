//! Which sets suit a drive, and who installs others in it, from any thread.

use std::sync::Arc;

use port::OutOfMemory;
use port::lazy::{SPARE, ask_for};
use rules::syntax::{ActionKind, Content, Map, Set};
use rules::{Checked, Compiled, Installer, Numbered, State};

use crate::RuledError;

/// What a set must be to be carried out by a drive.
#[derive(Clone, Debug)]
pub(crate) struct Suits {
    /// Parallel units that there are.
    units: u64,
    /// Remote drives that there are.
    remotes: u64,
    /// By their place in the set, the maps that another set must have, too.
    maps: Vec<(usize, Map)>,
}

/// The maps of addresses of a set, by their places.
pub(crate) fn addresses(rules: &Checked) -> impl Iterator<Item = (usize, &Map)> {
    let maps = rules.set().maps.iter().enumerate();
    maps.filter(|(_, map)| matches!(map.content, Content::Address(_)))
}

/// Of the maps of a set, those that another must have, too: those of addresses are the drive's
/// map tables. Where copies are kept of what remote drives have, maps of numbers say of which
/// block an entry is, and are not to begin anew beside them.
fn kept_maps(rules: &Checked, remotes: u64) -> impl Iterator<Item = (usize, &Map)> {
    let maps = rules.set().maps.iter().enumerate();
    maps.filter(move |(_, map)| remotes > 0 || matches!(map.content, Content::Address(_)))
}

impl Suits {
    /// For a drive of so many units and remote drives that begins with a set. Fails where it
    /// does not do all that the set asks for.
    pub fn new(rules: &Checked, units: u64, remotes: u64) -> Result<Suits, RuledError> {
        let maps = kept_maps(rules, remotes).map(|(n, map)| (n, map.clone())).collect();
        let suits = Suits { units, remotes, maps };
        suits.check(rules)?;
        Ok(suits)
    }

    /// Whether the drive does all that a set asks for, and finds its blocks by it.
    pub fn check(&self, rules: &Checked) -> Result<(), RuledError> {
        let set = rules.set();
        let applications = set.applications.iter().map(|a| (Some(a.number), a.units));
        let maps = set.maps.iter().map(|map| match map.content {
            Content::Address(units) => (None, Some(units)),
            Content::Number(_) => (None, None),
        });
        for (application, units) in applications.chain(maps) {
            if let Some(units) = units.filter(|units| units.hi >= self.units) {
                let (wants, has) = (units.hi + 1, self.units);
                return Err(match application {
                    Some(application) => RuledError::Units { application, wants, has },
                    None => RuledError::MapUnits { wants, has },
                });
            }
        }
        for application in &set.applications {
            let wants = application.remotes.map_or(0, |remotes| remotes.hi + 1);
            // Without any, rules that use one are told by name.
            if self.remotes > 0 && wants > self.remotes {
                let (application, has) = (application.number, self.remotes);
                return Err(RuledError::Remotes { application, wants, has });
            }
        }
        for rule in &set.rules {
            if let Some(action) = rule.actions.iter().find_map(|a| unknown(&a.kind, self.remotes)) {
                return Err(RuledError::Action { rule: rule.name.text.clone(), action });
            }
        }
        let maps = self.maps.iter().map(|(n, map)| (*n, map));
        match kept_maps(rules, self.remotes).eq(maps) {
            true => Ok(()),
            false => Err(RuledError::Maps),
        }
    }
}

/// What of an action the target does not do.
fn unknown(action: &ActionKind, remotes: u64) -> Option<&'static str> {
    Some(match action {
        ActionKind::Redirect(_) => "redirect",
        ActionKind::Remote(_) if remotes == 0 => "send to a remote drive, as it has none",
        // There is nothing elsewhere from which it could be brought.
        ActionKind::Fill(..) if remotes == 0 => "fill, as it has no remote drive",
        _ => return None,
    })
}

/// Sees that there is memory for the maps of a set.
pub(crate) fn ask_for_maps(set: &Set) -> Result<(), OutOfMemory> {
    ask_for(State::bytes_of(set).saturating_add(SPARE), "the maps of its rules")
}

/// Who installs sets in a drive, on any thread, and sees how often their rules match.
#[derive(Clone)]
pub struct SetInstaller {
    pub(crate) installer: Installer,
    pub(crate) suits: Suits,
}

impl SetInstaller {
    /// Installs another set, which decides from the next block on, and gives its number. State
    /// that it declares the same is kept; maps of addresses must be the same, at the same
    /// places. Fails where the drive does not do all that the set asks for, or there is no
    /// memory for its maps.
    pub fn install(&self, rules: &Checked) -> Result<u64, RuledError> {
        self.suits.check(rules)?;
        ask_for_maps(rules.set())?;
        Ok(self.installer.install(Compiled::new(rules)))
    }

    /// The number of the set that the drive has: a new one is taken before the next block.
    pub fn taken(&self) -> u64 {
        self.installer.taken()
    }

    /// See [`Installer::all`].
    pub fn all(&self) -> (Numbered, Option<Numbered>) {
        self.installer.all()
    }

    /// The set that the drive has, and how often its rules matched so far.
    pub fn rules(&self) -> Arc<Compiled> {
        self.installer.rules()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_that_memory_has_no_room_for_are_refused() {
        let template = rules::parse(include_str!("../../../examples/rules/minimal.rules"));
        let mut set = template.unwrap();
        ask_for_maps(&set).unwrap();
        set.maps[0].entries = 1 << 58;
        let said = ask_for_maps(&set).unwrap_err().to_string();
        assert!(said.contains("the maps of its rules"), "{said}");
    }
}
