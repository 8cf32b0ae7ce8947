//! The rule set of a drive with `target=rules`: a template's, or one in a file.
//!
//! Guarantees: a set that comes back was accepted by the checker. Fails as a compiler tells it,
//! with the line, the column and a caret below.

use std::sync::Arc;

use control::{Learning, Policy, Room, Template, TemplateError};
use flash::Geometry;
use port::BLOCK_BYTES;
use ruled::ControlPlane;
use rules::{Budget, Checked, Problem, check, parse};

use super::{DriveError, text_of};

/// What names a set.
macro_rules! sets {
    () => {
        "minimal, latency, throughput or longevity, each with applications behind a colon if there \
         are several, as in latency:4, or a file, whose name has a `/` or ends in .rules; or \
         learn:latency and so on, for rules that come with the first request"
    };
}

/// What `rules=` takes.
pub(super) const RULES: &str =
    concat!(sets!(), "; only with target=rules; for several such targets with a + between");
/// The rule set of a drive that names none.
const DEFAULT: &str = "minimal";

/// How the name of a template begins whose rules come with the first request of each application.
const LEARN: &str = "learn:";
/// How long such a drive waits for the control plane's answer, ns.
const ANSWER: u64 = 100_000;

/// The set of a drive, and who is asked what that leaves open.
pub(super) type Ruling = (Arc<Checked>, Option<ControlPlane>);

/// A template and its applications by its name.
fn template(name: &str) -> Option<(Template, u16)> {
    let (name, applications) = name.split_once(':').unwrap_or((name, "1"));
    let applications = applications.parse().ok().filter(|n| *n > 0)?;
    Some((Template::of(name)?, applications))
}

/// Whether a value of `rules=` may lead to a set.
pub(super) fn is_name(value: &str) -> bool {
    is_file(value) || template(learnt(value).unwrap_or(value)).is_some()
}

/// What a served drive is told of a set for a target that it is to have: a template's name, or
/// the text of the file.
pub fn rules_to_tell(name: &str) -> Result<String, DriveError> {
    if !is_name(name) {
        return Err(DriveError::Set { value: name.into(), takes: sets!() });
    }
    if !is_file(name) {
        return Ok(name.into());
    }
    text_of(name).map_err(|source| DriveError::ReadRules { path: name.into(), source })
}

/// The template that a name says is to be learnt.
pub(super) fn learnt(name: &str) -> Option<&str> {
    name.strip_prefix(LEARN).filter(|name| template(name).is_some())
}

pub(super) fn is_file(value: &str) -> bool {
    value.contains('/') || value.ends_with(".rules")
}

/// The set of this name, or of none, for a drive.
pub(super) fn resolve(name: &str, size: u64, geometry: &Geometry) -> Result<Ruling, DriveError> {
    let name = if name.is_empty() { DEFAULT } else { name };
    if let Some((template, applications)) = template(learnt(name).unwrap_or(name)) {
        let (blocks, units) = (size / BLOCK_BYTES, u64::from(geometry.total_pus()));
        let room = Room { applications, blocks, units };
        let made = match learnt(name) {
            Some(_) => learning(template, room),
            None => template.set(&room).map(|set| (Arc::new(set), None)),
        };
        return made.map_err(|source| DriveError::Template { name: name.into(), source });
    }
    let read = |source| DriveError::ReadRules { path: name.into(), source };
    let set = read_text(&text_of(name).map_err(read)?, size).map_err(|all| {
        let text = text_of(name).unwrap_or_default();
        let told: String = all.iter().map(|problem| problem.render(name, &text)).collect();
        DriveError::Rules { told: told.trim_end().into() }
    })?;
    Ok((set, None))
}

/// The same of a template's name, or of a set's text.
pub(super) fn resolve_text(text: &str, size: u64, all: &Geometry) -> Result<Ruling, DriveError> {
    if template(learnt(text).unwrap_or(text)).is_some() {
        return resolve(text, size, all);
    }
    let set = read_text(text, size).map_err(|all| {
        let told: String = all.iter().map(|one| one.render("its rule set", text)).collect();
        DriveError::Rules { told: told.trim_end().into() }
    })?;
    Ok((set, None))
}

/// A drive that begins without rules, and who gives it some.
fn learning(template: Template, room: Room) -> Result<Ruling, TemplateError> {
    let learning = Learning::new(template, room, Policy::default())?;
    let what = || "so many applications cannot be told apart".to_string();
    let first = learning.set().ok_or_else(|| TemplateError::Refused { what: what() })?;
    let control = ControlPlane::new(ANSWER, move || Box::new(learning.clone()));
    Ok((Arc::new(first), Some(control)))
}

/// The set that a text has, for a drive of this size.
pub(super) fn read_text(text: &str, size: u64) -> Result<Arc<Checked>, Vec<Problem>> {
    let budget = Budget::default();
    let entries = budget.entries.max(size / BLOCK_BYTES);
    let set = parse(text).map_err(|problem| vec![problem])?;
    check(set, &Budget { entries, ..budget }).map(Arc::new)
}
