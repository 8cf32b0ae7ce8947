//! Where the time of requests went: in sentences, in tables, and as JSON.
//!
//! Of several loads each is told of by itself. What a request waited behind is known by
//! what the die did, and whether a user asked for it; where one load alone reads, or one
//! alone writes, it is said which.
//!
//! Guarantees: parts of a share are 100 % of its time together. Nothing here fails.

mod requests;

pub use requests::request_json;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::causes::{Causes, Group, Kind};
use crate::units;
use serde_json::{Value, json};

/// The shares of requests that are told of.
const SHARES: [f64; 5] = [1.0, 0.5, 0.1, 0.01, 0.001];
/// Fewer requests are no share to tell of.
const LEAST: f64 = 10.0;
/// From so many requests on parts of their time are told to a tenth of a percent.
const EXACT: u64 = 1000;
/// Loads that may be told of by themselves, at most: where the time of its requests went
/// takes some five megabytes of each.
pub const MOST_LOADS: usize = 32;
/// How wide tables are, with all shares: where there is room, and where there is not.
pub const WIDE: usize = 40 + 5 * 14;
/// See [`WIDE`].
pub const NARROW: usize = 36 + 5 * 8;
/// Causes below this part of every share are told of together.
const SMALL: f64 = 0.01;

/// What is told of: requests of one kind each, by name, of which there are some.
#[derive(Clone, Debug, Default)]
pub struct Why<'a> {
    kinds: Vec<(String, &'a Kind)>,
    /// Of several loads the one that alone reads, and the one that alone writes.
    reader: Option<String>,
    writer: Option<String>,
}

impl<'a> Why<'a> {
    /// All requests of a load.
    pub fn of_one(causes: &'a Causes) -> Why<'a> {
        Why { kinds: kinds(causes, ""), ..Why::default() }
    }

    /// Those of several loads: each has a name, what it asks a drive for, and where the
    /// time of its requests went.
    pub fn of_loads(loads: impl Iterator<Item = (String, Asks, Option<&'a Causes>)>) -> Why<'a> {
        let mut why = Why::default();
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for (name, asks, causes) in loads {
            let of = format!(" of {name}");
            why.kinds.extend(causes.into_iter().flat_map(|causes| kinds(causes, &of)));
            if asks.reads {
                readers.push(name.clone());
            }
            if asks.writes {
                writers.push(name);
            }
        }
        let alone = |mut all: Vec<String>| all.pop().filter(|_| all.is_empty());
        (why.reader, why.writer) = (alone(readers), alone(writers));
        why
    }

    /// The kinds.
    pub fn kinds(&self) -> impl Iterator<Item = &'a Kind> + '_ {
        self.kinds.iter().map(|(_, kind)| *kind)
    }

    /// What the tails are made of, and where the time of each kind went; by tables of
    /// [`WIDE`] columns, or of [`NARROW`] where there are fewer.
    pub fn tables(&self, columns: usize) -> String {
        let verdicts = self.kinds.iter().map(|(name, kind)| self.verdict(name, kind));
        verdicts
            .chain(self.kinds.iter().map(|(name, kind)| self.table(name, kind, columns)))
            .collect()
    }

    /// What was before, as it is told: with the load that it was of, if that is known.
    fn before(&self, behind: &'static str) -> Cow<'static, str> {
        let named = |work: &str, name: &String| format!("{work} of {name}").into();
        let known = match behind {
            "read of user" => self.reader.as_ref().map(|name| named("read", name)),
            "program of user" => self.writer.as_ref().map(|name| named("program", name)),
            _ => None,
        };
        known.unwrap_or(behind.into())
    }

    /// A cause, as it is told.
    fn name_of(&self, part: &str, behind: Option<&'static str>) -> String {
        match behind {
            Some(behind) => format!("{part}, behind {}", self.before(behind)),
            None => part.into(),
        }
    }

    /// What the tail is made of, in a sentence.
    fn verdict(&self, name: &str, kind: &Kind) -> String {
        let Some((share, group)) = tail(kind) else { return String::new() };
        let total = group.sum.ns().max(1) as f64;
        let mut parts: Vec<_> = group.sum.parts().collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.2));
        let told = parts.iter().take(3).filter(|part| part.2 as f64 / total >= 0.05);
        let told: Vec<_> = told
            .map(|&(part, behind, ns)| {
                format!("{:.0} % {}", 100.0 * ns as f64 / total, self.name_of(part, behind))
            })
            .collect();
        if told.is_empty() {
            return String::new();
        }
        let which = which(share, group.requests as f64 / kind.requests() as f64);
        let from = units::time_ns(group.from as f64);
        format!("{which}{name}, {from} and more: {}\n", told.join("; "))
    }

    /// Where the time of a kind's requests went, by share.
    fn table(&self, name: &str, kind: &Kind, columns: usize) -> String {
        let shares = shares(kind);
        let mut rows: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (at, (_, group)) in shares.iter().enumerate() {
            for (part, behind, ns) in group.sum.parts() {
                let row = rows.entry(self.name_of(part, behind));
                let row = row.or_insert_with(|| vec![0.0; shares.len()]);
                row[at] = ns as f64 / group.sum.ns().max(1) as f64;
            }
        }
        let (mut large, small): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, row)| row.iter().any(|&part| part >= SMALL));
        large.sort_by(|a, b| b.1[shares.len() - 1].total_cmp(&a.1[shares.len() - 1]));
        if !small.is_empty() {
            let sum = |at: usize| small.iter().map(|(_, row)| row[at]).sum();
            large.push(("all others".into(), (0..shares.len()).map(sum).collect()));
        }
        let is_narrow = columns < WIDE;
        let (first, each) = if is_narrow { (36, 8) } else { (40, 14) };
        let mut text = String::from("\n");
        let mut line = |label: &str, cells: Vec<String>| {
            let _ = write!(text, "{:<first$}", cut(label, first));
            cells.iter().for_each(|cell| _ = write!(text, "{cell:>each$}"));
            text.push('\n');
        };
        let of = |f: &dyn Fn(&Group) -> String| shares.iter().map(|(_, group)| f(group)).collect();
        line(name, shares.iter().map(|(share, _)| column(*share, is_narrow)).collect());
        line("requests", of(&|group| units::count(group.requests as f64)));
        line("latency from", of(&|group| units::time_ns(group.from as f64)));
        line("mean", of(&|group| units::time_ns(group.sum.ns() as f64 / group.requests as f64)));
        let of = |(part, (_, group)): (&f64, &(f64, Group))| percent(*part, group.requests);
        for (cause, row) in &large {
            line(cause, row.iter().zip(&shares).map(of).collect());
        }
        text
    }
}

/// What a load asks a drive for.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    /// Blocks of flash are read for it: it reads, or it writes parts of blocks.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
}

impl Asks {
    /// What either asks for.
    #[must_use]
    pub fn or(self, other: Asks) -> Asks {
        Asks { reads: self.reads || other.reads, writes: self.writes || other.writes }
    }
}

/// A label in so many columns: a longer one without its middle, since names that begin
/// alike differ at their ends.
fn cut(label: &str, columns: usize) -> Cow<'_, str> {
    let length = label.chars().count();
    if length <= columns {
        return label.into();
    }
    let end = columns * 2 / 5;
    let begins = label.chars().take(columns - end - 1);
    begins.chain(['…']).chain(label.chars().skip(length - end)).collect()
}

fn kinds<'a>(causes: &'a Causes, of: &str) -> Vec<(String, &'a Kind)> {
    let some = causes.kinds().into_iter().filter(|(_, kind)| kind.requests() > 0);
    some.map(|(name, kind)| (format!("{name}{of}"), kind)).collect()
}

/// The shares of a kind that have enough requests: the whole always.
fn shares(kind: &Kind) -> Vec<(f64, Group)> {
    let all = kind.requests() as f64;
    let enough = SHARES.into_iter().filter(|&share| share == 1.0 || all * share >= LEAST);
    enough.filter_map(|share| Some((share, kind.slowest(share)?))).collect()
}

/// The slowest hundredth, or what there is of larger shares.
pub fn tail(kind: &Kind) -> Option<(f64, Group)> {
    shares(kind).into_iter().rev().find(|(share, _)| *share >= 0.01)
}

/// A part of the time of so many requests, with the digits that it has: of few of them a
/// tenth of a percent is what one more or less would make.
fn percent(part: f64, requests: u64) -> String {
    match 100.0 * part {
        percent if requests >= EXACT => format!("{percent:.1} %"),
        percent if percent > 0.0 && percent < 1.0 => "< 1 %".into(),
        percent => format!("{percent:.0} %"),
    }
}

/// What a share is called over its column.
fn column(share: f64, is_narrow: bool) -> String {
    match share {
        1.0 => "all".into(),
        0.5 if is_narrow => "half".into(),
        0.5 => "slowest half".into(),
        share => format!("{} %", 100.0 * share),
    }
}

/// Of which requests a sentence tells, where so large a share of all was asked for, and
/// so large a one has those that took as long as the last of them, too.
fn which(asked: f64, true_share: f64) -> String {
    let percent = 100.0 * true_share;
    match asked {
        1.0 => "all ".into(),
        _ if true_share >= 0.995 => "all ".into(),
        _ if true_share >= 1.25 * asked && percent < 1.95 => {
            format!("the slowest {percent:.1} % of ")
        }
        _ if true_share >= 1.25 * asked => format!("the slowest {percent:.0} % of "),
        0.5 => "the slowest half of ".into(),
        asked => format!("the slowest {} % of ", 100.0 * asked),
    }
}

/// As JSON, by kind and share.
pub fn causes_json(causes: &Causes) -> Value {
    // What is above 2^64 - 1 is the nearest double.
    let number = |ns: u128| u64::try_from(ns).map_or_else(|_| json!(ns as f64), Value::from);
    let part = |(part, behind, ns): (&str, Option<&str>, u128)| match behind {
        Some(behind) => json!({ "part": part, "behind": behind, "ns": number(ns) }),
        None => json!({ "part": part, "ns": number(ns) }),
    };
    let group = |share: f64, group: Group| {
        json!({
            "share": share,
            "requests": group.requests,
            "from_ns": group.from,
            "ns": number(group.sum.ns()),
            "parts": group.sum.parts().map(part).collect::<Value>(),
        })
    };
    let kind = |kind: &Kind| -> Value {
        let of = SHARES.into_iter().filter_map(|share| Some(group(share, kind.slowest(share)?)));
        of.collect()
    };
    causes.kinds().into_iter().map(|(name, all)| (name.to_string(), kind(all))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::{BlockOp, Part, Story, Time};

    fn causes(of: &[(u64, u64)]) -> Causes {
        let mut causes = Causes::new();
        for &(requests, ns) in of {
            let mut story = Story::at(Time(7));
            story.add(Part::Array, ns);
            (0..requests).for_each(|_| causes.note(BlockOp::Read, &story));
        }
        causes
    }

    /// Where many took as long as the last of a share they are all in it.
    #[test]
    fn a_sentence_says_how_many_it_tells_of() {
        for (of, says) in [
            (&[(990, 10_000), (10, 90_000)][..], "the slowest 1 % of reads, 90"),
            (&[(970, 10_000), (30, 90_000)], "the slowest 3 % of reads, 90"),
            (&[(1970, 10_000), (27, 90_000)], "the slowest 1.4 % of reads, 90"),
            (&[(1000, 10_000)], "all reads, 10"),
            (&[(40, 10_000), (60, 90_000)], "the slowest 60 % of reads, 90"),
            (&[(20, 10_000), (20, 90_000)], "the slowest half of reads, 90"),
            (&[(5, 10_000)], "all reads, 10"),
        ] {
            let causes = causes(of);
            let text = Why::of_one(&causes).tables(WIDE);
            assert!(text.starts_with(says), "{says}: {text}");
        }
    }

    /// A part of few requests has fewer digits than one of many.
    #[test]
    fn parts_have_the_digits_that_their_requests_give() {
        let causes = causes(&[(20_000, 10_000), (30, 90_000)]);
        let text = Why::of_one(&causes).tables(WIDE);
        let line = text.lines().find(|line| line.starts_with("array")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().filter(|word| *word != "%").collect();
        assert_eq!(cells, ["array", "100.0", "100.0", "100.0", "100.0", "100"], "{text}");
        assert_eq!(percent(0.006, 999), "< 1 %");
        assert_eq!((percent(0.0, 10), percent(0.006, 1000)), ("0 %".into(), "0.6 %".into()));
    }

    #[test]
    fn tables_are_as_wide_as_there_is_room() {
        let causes = causes(&[(20_000, 10_000)]);
        for (columns, widest) in [(200, WIDE), (WIDE, WIDE), (WIDE - 1, NARROW), (1, NARROW)] {
            let text = Why::of_one(&causes).tables(columns);
            let widths = text.lines().skip(1).map(|line| line.chars().count());
            assert_eq!(widths.max(), Some(widest));
        }
    }

    /// Long names that differ in their last letter, or in what letters they have, are not
    /// told alike, and none is wider than its column.
    #[test]
    fn long_names_keep_their_ends() {
        let causes = causes(&[(1, 7)]);
        for columns in [WIDE, NARROW] {
            let first = |end: &str| {
                let name = format!("[database-é-of-the-second-tenant-{end}]");
                let asks = Asks { reads: true, writes: true };
                let why = Why::of_loads([(name, asks, Some(&causes))].into_iter());
                let text = why.tables(columns);
                let told = why.name_of("die", Some("program of user"));
                let room = if columns == WIDE { 40 } else { 36 };
                assert_eq!(cut(&told, room).chars().count(), room, "{told}");
                assert!(cut(&told, room).starts_with("die, behind program"), "{told}");
                text.lines().find(|line| line.starts_with("reads of")).unwrap().to_string()
            };
            let (one, other) = (first("reader-1"), first("reader-2"));
            assert!(one.contains("-1]") && other.contains("-2]"), "{one}\n{other}");
        }
        assert_eq!(cut("reads of a", 10), "reads of a");
        assert_eq!(cut("0123456789a", 10), "01234…789a");
    }

    /// Which load it was is said where there is but one that it can have been.
    #[test]
    fn a_load_is_named_where_it_alone_reads_or_writes() {
        let causes = causes(&[(1, 7)]);
        let asks = |[reads, writes]: [bool; 2]| Asks { reads, writes };
        let named = |all: &[[bool; 2]]| {
            let loads = all.iter().zip(["a", "b", "c"]);
            let loads = loads.map(|(of, name)| (name.into(), asks(*of), Some(&causes)));
            let why = Why::of_loads(loads);
            assert_eq!(why.kinds[0].0, "reads of a");
            [Some("read of user"), Some("program of user"), Some("program of collection"), None]
                .map(|behind| why.name_of("die", behind))
        };
        let [read, program, collection, alone] = named(&[[true, false], [false, true]]);
        assert_eq!((&*read, &*program), ("die, behind read of a", "die, behind program of b"));
        assert_eq!((&*collection, &*alone), ("die, behind program of collection", "die"));
        let [read, program, ..] = named(&[[true, false], [true, true], [false, false]]);
        assert_eq!((&*read, &*program), ("die, behind read of user", "die, behind program of b"));
        let [read, program, ..] = named(&[[true, true]; 2]);
        assert_eq!(&*read, "die, behind read of user");
        assert_eq!(&*program, "die, behind program of user");
    }
}
