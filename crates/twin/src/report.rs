//! The report: every point measured and predicted, how far off by group, and what
//! the points say of each parameter.

use std::collections::BTreeMap;
use std::fmt::Write;

use drive::say::is_hidden;
use measure::units;
use serde::Serialize;
use serde_json::{Value, json};

use crate::dropped::Dropped;
use crate::fit::Sensitivity;
use crate::objective::WEIGHTS;
use crate::points::{Figures, Point};

/// What the model takes for granted of a measurement.
pub const ASSUMED: [&str; 4] = [
    "all that is read was written once, in order; nothing is collected while a point runs",
    "the write buffer is full before anything of a run that writes is counted",
    "a measured mean is of total and percentiles are of completion latency; the model has one",
    "writes are writes of blocks: appends to the zones of a zoned drive are taken as such",
];

/// A parameter, fitted.
#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    /// Its name.
    pub name: String,
    /// The path, where it is one's.
    pub path: Option<String>,
    /// Its range.
    pub asked: String,
    /// What the family has.
    pub family: Option<String>,
    /// What was found.
    pub value: String,
    /// What the points say of it.
    #[serde(flatten)]
    pub sensitivity: Sensitivity,
}

impl Fitted {
    /// What is to be known of it, beginning with a comma.
    pub fn remark(&self) -> &'static str {
        match (self.sensitivity.determined, self.sensitivity.at_end) {
            (false, _) => ", not determined",
            (true, true) => ", at the end of its range",
            (true, false) => "",
        }
    }
}

/// What a point was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// It was fitted.
    Used,
    /// It was kept back, and the fit had others like it on both sides.
    KeptBack,
    /// It was kept back, and is beyond all that was fitted.
    Extrapolated,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Used => "used",
            Part::KeptBack => "kept back",
            Part::Extrapolated => "extrapolated",
        }
    }
}

/// A point with its prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What was measured.
    #[serde(flatten)]
    pub point: Point,
    /// What the twin gives.
    pub predicted: Figures,
    /// What it was for.
    pub part: Part,
    /// Why it is extrapolated, if it is.
    pub beyond: Option<String>,
}

impl Compared {
    /// Predicted over measured less 1, of each figure that both have.
    pub fn off(&self) -> [Option<f64>; 4] {
        let (measured, predicted) = (self.point.measured.each(), self.predicted.each());
        std::array::from_fn(|i| Some(predicted[i]? / measured[i]? - 1.0))
    }
}

/// How far points of a group are off.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What they have in common.
    pub group: String,
    /// How many there are.
    pub points: usize,
    /// Median and 90th percentile of |predicted / measured - 1|, in the order of
    /// [`Figures::NAMES`].
    pub off: [Option<(f64, f64)>; 4],
}

impl Group {
    /// Of these points.
    pub fn new<'a>(group: &str, points: impl Iterator<Item = &'a Compared>) -> Group {
        let all: Vec<[Option<f64>; 4]> = points.map(Compared::off).collect();
        let off = std::array::from_fn(|i| {
            let mut each: Vec<f64> = all.iter().filter_map(|off| off[i].map(f64::abs)).collect();
            each.sort_by(f64::total_cmp);
            let at = |n: usize| each.get(n.saturating_sub(1)).copied();
            // Of an even number the mean of the two in the middle.
            let (low, high) = (at(each.len().div_ceil(2)), at(each.len() / 2 + 1));
            let median = low.zip(high).map(|(low, high)| (low + high) / 2.0);
            // The nearest rank.
            median.zip(at((0.9 * each.len() as f64).ceil() as usize))
        });
        Group { group: group.into(), points: all.len(), off }
    }

    fn to_json(&self) -> Value {
        let mut json = json!({ "group": self.group, "points": self.points });
        for (name, off) in Figures::NAMES.into_iter().zip(self.off) {
            json[name] = match off {
                Some((median, p90)) => json!({ "median": median, "p90": p90 }),
                None => Value::Null,
            };
        }
        json
    }
}

/// The group of what was kept back and of what is extrapolated.
const NOT_FITTED: &str = "not fitted";

/// The group of a point: what it is sorted by, and its name.
type GroupOf = fn(&Point) -> (u64, String);

/// All of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The drive that was measured.
    pub drive: String,
    /// The family.
    pub family: String,
    /// Keys that all candidates had.
    pub set: Vec<(String, String)>,
    /// The files.
    pub files: Vec<String>,
    /// What of them was ignored.
    pub ignored: Vec<String>,
    /// The parameters.
    pub parameters: Vec<Fitted>,
    /// Every point.
    pub points: Vec<Compared>,
    /// The objective of those that were fitted.
    pub objective: f64,
    /// Candidates that were tried.
    pub evaluations: u64,
    /// Whether the search came to an end of its own.
    pub converged: bool,
    /// What of all that was tried is no drive.
    pub dropped: Dropped,
    /// Of a cross-validation: how many parts, and every point as the fit without it
    /// gives it.
    pub folds: Option<(u32, Vec<Compared>)>,
    /// What random numbers came from.
    pub seed: u64,
    /// How long it took.
    pub wall_seconds: f64,
}

impl Report {
    /// The groups of some points.
    fn groups(points: &[Compared]) -> Vec<Group> {
        let mut groups = Vec::new();
        for part in [Part::Used, Part::KeptBack, Part::Extrapolated] {
            let of = |one: &&Compared| one.part == part;
            groups.push(Group::new(part.name(), points.iter().filter(of)));
        }
        let of = |one: &&Compared| one.part != Part::Used;
        groups.push(Group::new(NOT_FITTED, points.iter().filter(of)));
        let keys: [(&str, GroupOf); 4] = [
            ("path", |point| (0, point.run.path.clone())),
            ("", |point| {
                let percent = u64::from(point.run.read_percent);
                let kind = point.run.rw.name();
                match point.run.is_mixed() {
                    true => (percent, format!("{kind} {percent} % {}s", point.direction.name())),
                    false => (percent, kind.into()),
                }
            }),
            ("bs", |point| (point.run.bs.into(), point.run.bs.to_string())),
            ("qd", |point| (point.run.qd.into(), point.run.qd.to_string())),
        ];
        for (name, of) in keys {
            let mut by: BTreeMap<(u64, String), Vec<&Compared>> = BTreeMap::new();
            points.iter().for_each(|one| by.entry(of(&one.point)).or_default().push(one));
            let named = |value: &str| format!("{name} {value}").trim().to_string();
            let each =
                by.iter().map(|((_, value), all)| Group::new(&named(value), all.iter().copied()));
            groups.extend(each);
        }
        groups.retain(|group| group.points > 0);
        groups
    }

    /// As one JSON object; `profile` is the fitted one's file.
    pub fn to_json(&self, profile: &str) -> Value {
        let groups = |points| Self::groups(points).iter().map(Group::to_json).collect::<Value>();
        let weights = Figures::NAMES.into_iter().zip(WEIGHTS);
        json!({
            "drive": self.drive,
            "family": self.family,
            "set": self.set.iter().map(|(k, v)| format!("{k}={v}")).collect::<Value>(),
            "files": self.files,
            "ignored": self.ignored,
            "assumed": ASSUMED,
            "parameters": self.parameters,
            "points": self.points,
            "groups": groups(&self.points),
            "objective": self.objective,
            "weights": weights.map(|(k, v)| (k.to_string(), v.into())).collect::<serde_json::Map<_, _>>(),
            "evaluations": self.evaluations,
            "converged": self.converged,
            "dropped": self.dropped.reasons(),
            "never": self.dropped.never(),
            "folds": self.folds.as_ref().map(|(n, points)| {
                json!({ "folds": n, "points": points, "groups": groups(points) })
            }),
            "profile": profile,
            "seed": self.seed,
            "wall_seconds": self.wall_seconds,
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Where the twin comes from, and how far it is off: a line each, whatever names have.
    pub fn head(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "A twin of {}: family {}, fitted by ssdkit twin {} to {} of {}",
                self.drive,
                self.family,
                env!("CARGO_PKG_VERSION"),
                units::exactly(self.count(Part::Used), "point"),
                self.files.join(", "),
            ),
            format!(
                "seed {}, {} candidates, {}; mean error {:.1} %",
                self.seed,
                self.evaluations,
                if self.converged { "converged" } else { "not converged: the best so far" },
                self.objective.exp_m1() * 100.0,
            ),
        ];
        lines.extend(self.dropped.lines());
        let by_part = Self::groups(&self.points);
        for group in by_part.iter().filter(|group| is_part(&group.group)) {
            lines.push(format!("{}: {}", group.group, off_text(group)));
        }
        for one in self.parameters.iter().filter(|one| one.path.is_some()) {
            let path = one.path.as_deref().unwrap_or_default();
            let text = format!("path {path} adds {} to each request{}", one.value, one.remark());
            lines.push(format!("{text}; it is the host's and no key"));
        }
        lines.extend(ASSUMED.iter().map(|text| format!("assumed: {text}")));
        lines.iter().map(|line| shown(line)).collect()
    }

    fn count(&self, part: Part) -> u64 {
        self.points.iter().filter(|one| one.part == part).count() as u64
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for line in self.head() {
            let _ = writeln!(out, "{line}");
        }
        for line in &self.ignored {
            let _ = writeln!(out, "ignored: {line}");
        }
        let _ = writeln!(out, "\n{:<18} {:<28} {:<28} range", "parameter", "family", "found");
        for one in &self.parameters {
            let family = one.family.as_deref().unwrap_or("-");
            let (name, value) = (&one.name, &one.value);
            let _ =
                writeln!(out, "{name:<18} {family:<28} {value:<28} {}{}", one.asked, one.remark());
        }
        let _ = writeln!(
            out,
            "\n{:<9} {:<10} {:>5} {:<5} {:>6} {:>4} {:>20} {:>20} {:>20} {:>20}",
            "path", "rw", "reads", "of", "bs", "qd", "IOPS", "mean us", "p50 us", "p99 us"
        );
        self.points.iter().for_each(|one| line_of(one, &mut out));
        table("how far off", &Self::groups(&self.points), &mut out);
        if let Some((n, points)) = &self.folds {
            table(&format!("kept back in turn, {n} parts"), &Self::groups(points), &mut out);
        }
        out.lines().map(|line| shown(line) + "\n").collect()
    }
}

/// A line in which all is seen: drives, paths and files are called as others wrote.
fn shown(line: &str) -> String {
    let mut shown = String::new();
    for c in line.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a group is all points of a part, or of both that were not fitted.
fn is_part(name: &str) -> bool {
    let parts = [Part::Used, Part::KeptBack, Part::Extrapolated];
    name == NOT_FITTED || parts.iter().any(|part| part.name() == name)
}

/// Median and 90th percentile of a group's errors.
fn off_text(group: &Group) -> String {
    let mut text = units::exactly(group.points as u64, "point");
    for (name, off) in ["IOPS", "mean", "p50", "p99"].into_iter().zip(group.off) {
        if let Some((median, p90)) = off {
            let _ = write!(text, ", {name} {:.1} % (p90 {:.1} %)", median * 100.0, p90 * 100.0);
        }
    }
    text
}

/// A point in a line: measured, and how far the prediction is off.
fn line_of(one: &Compared, out: &mut String) {
    let run = &one.point.run;
    let _ = write!(
        out,
        "{:<9} {:<10} {:>5} {:<5} {:>6} {:>4}",
        run.path,
        run.rw.name(),
        run.read_percent,
        one.point.direction.name(),
        run.bs,
        run.qd
    );
    for (value, off) in one.point.measured.each().into_iter().zip(one.off()) {
        let text = match (value, off) {
            (Some(value), Some(off)) => format!("{} {:+.1} %", short(value), off * 100.0),
            (Some(value), None) => format!("{} -", short(value)),
            _ => "-".into(),
        };
        let _ = write!(out, " {text:>20}");
    }
    match (one.part, &one.beyond) {
        (Part::Used, _) => {}
        (part, None) => _ = write!(out, "  {}", part.name()),
        (part, Some(why)) => _ = write!(out, "  {}: {why}", part.name()),
    }
    out.push('\n');
}

/// A table of groups.
fn table(title: &str, groups: &[Group], out: &mut String) {
    let _ = writeln!(
        out,
        "\n{title:<28} {:>6} {:>16} {:>16} {:>16} {:>16}",
        "points", "IOPS", "mean", "p50", "p99"
    );
    for group in groups {
        let _ = write!(out, "{:<28} {:>6}", group.group, group.points);
        for off in group.off {
            let text = off.map_or("-".into(), |(median, p90)| {
                format!("{:.1} / {:.1} %", median * 100.0, p90 * 100.0)
            });
            let _ = write!(out, " {text:>16}");
        }
        out.push('\n');
    }
    let _ = writeln!(out, "median / 90th percentile of |predicted / measured - 1|");
}

/// A measured number in a few digits.
fn short(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests;
