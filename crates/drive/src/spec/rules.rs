//! The rule set of a drive with `target=rules`: a template's, or one in a file.
//!
//! Guarantees: a set that comes back was accepted by the checker. Fails as a compiler tells it,
//! with the line, the column and a caret below.

use std::sync::Arc;

use control::{Room, Template};
use flash::Geometry;
use port::BLOCK_BYTES;
use rules::{Budget, Checked, Problem, check, parse};

use super::{DriveError, text_of};

/// What `rules=` takes.
pub(super) const RULES: &str = "minimal, latency, throughput or longevity, each with applications \
                                behind a colon if there are several, as in latency:4, or a file, \
                                whose name has a `/` or ends in .rules; only with target=rules";
/// The rule set of a drive that names none.
const DEFAULT: &str = "minimal";

/// A template and its applications by its name.
fn template(name: &str) -> Option<(Template, u16)> {
    let (name, applications) = name.split_once(':').unwrap_or((name, "1"));
    let applications = applications.parse().ok().filter(|n| *n > 0)?;
    Some((Template::of(name)?, applications))
}

/// Whether a value of `rules=` may lead to a set.
pub(super) fn is_name(value: &str) -> bool {
    is_file(value) || template(value).is_some()
}

fn is_file(value: &str) -> bool {
    value.contains('/') || value.ends_with(".rules")
}

/// The set of this name, or of none, for a drive.
pub(super) fn resolve(
    name: &str,
    size: u64,
    geometry: &Geometry,
) -> Result<Arc<Checked>, DriveError> {
    let name = if name.is_empty() { DEFAULT } else { name };
    if let Some((template, applications)) = template(name) {
        let (blocks, units) = (size / BLOCK_BYTES, u64::from(geometry.total_pus()));
        let set = template.set(&Room { applications, blocks, units });
        let wrong = |source| DriveError::Template { name: name.into(), source };
        return set.map(Arc::new).map_err(wrong);
    }
    let read = |source| DriveError::ReadRules { path: name.into(), source };
    read_text(&text_of(name).map_err(read)?, size).map_err(|all| {
        let text = text_of(name).unwrap_or_default();
        let told: String = all.iter().map(|problem| problem.render(name, &text)).collect();
        DriveError::Rules { told: told.trim_end().into() }
    })
}

/// The set that a text has, for a drive of this size.
pub(super) fn read_text(text: &str, size: u64) -> Result<Arc<Checked>, Vec<Problem>> {
    let budget = Budget::default();
    let entries = budget.entries.max(size / BLOCK_BYTES);
    let set = parse(text).map_err(|problem| vec![problem])?;
    check(set, &Budget { entries, ..budget }).map(Arc::new)
}
