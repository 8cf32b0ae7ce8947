//! A row: one claim of a paper beside what we measured, and its verdict.
//!
//! Guarantees: the rule is given with the row, before anybody has seen the
//! verdict, and the verdict is arithmetic on the two sides alone. A row whose
//! runs are void is not judged, nor one whose runs do not agree: some of where
//! their middle may lie is as the rule wants it, and some is not. What is no
//! number passes no rule. Nothing here fails.

use std::fmt;
use std::ops::RangeInclusive;

use measure::units;
use serde_json::{Value, json};

use super::runs::Runs;

/// What ours is held against.
#[derive(Clone, Debug, PartialEq)]
pub enum Reference {
    /// A number of the paper.
    Paper(f64),
    /// What the paper says in words: it gives no number.
    Says(String),
    /// Our own prediction, which is no figure of the paper.
    Model(f64),
    /// Nothing: the paper is silent.
    Silent,
}

impl Reference {
    fn number(&self) -> Option<f64> {
        match self {
            Reference::Paper(n) | Reference::Model(n) => Some(*n),
            Reference::Says(_) | Reference::Silent => None,
        }
    }
}

/// What makes a row pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Ours is above zero (or below), as the paper's is.
    Sign {
        /// Whether above.
        positive: bool,
    },
    /// Each of ours is greater than the next, in the paper's order.
    Order,
    /// Ours lies between the two, ends included: where a curve bends.
    Knee {
        /// The least.
        from: f64,
        /// The greatest.
        to: f64,
    },
    /// Ours lies between the two, ends included: what the paper says in words.
    Within {
        /// The least.
        from: f64,
        /// The greatest.
        to: f64,
    },
    /// Ours divided by the reference lies between the two, ends included.
    Band {
        /// The least ratio.
        low: f64,
        /// The greatest ratio.
        high: f64,
    },
    /// None: the row is shown and not judged.
    Shown,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Sign { positive: true } => f.write_str("sign +"),
            Rule::Sign { positive: false } => f.write_str("sign -"),
            Rule::Order => f.write_str("order"),
            Rule::Knee { from, to } => write!(f, "knee {from}..{to}"),
            Rule::Within { from, to } if *to == f64::INFINITY => write!(f, "at least {from}"),
            Rule::Within { from, to } if *from == f64::NEG_INFINITY => write!(f, "at most {to}"),
            Rule::Within { from, to } => write!(f, "within {from}..{to}"),
            Rule::Band { low, high } => write!(f, "band {low}..{high}"),
            Rule::Shown => f.write_str("none"),
        }
    }
}

/// How a row was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By its rule, ours is as the reference.
    Pass,
    /// It is not.
    Fail,
    /// Nobody judged, and why.
    NotGated(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::NotGated(_) => "not gated",
        })
    }
}

/// One claim, and what we measured of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    figure: String,
    what: String,
    unit: &'static str,
    reference: Reference,
    /// One, or in the paper's order, with their names.
    ours: Vec<(String, Runs)>,
    rule: Rule,
    /// Why it is not judged, where nothing else says so; of one that is, why it
    /// fails, where that is known.
    why: String,
}

impl Row {
    fn new(
        figure: &str,
        what: &str,
        unit: &'static str,
        reference: Reference,
        ours: Vec<(String, Runs)>,
        rule: Rule,
    ) -> Row {
        let (figure, what) = (figure.into(), what.into());
        Row { figure, what, unit, reference, ours, rule, why: String::new() }
    }

    /// The ratio of ours to a number is to lie in `band`. `figure` says where
    /// in the paper, `what` is measured in `unit`.
    pub fn band(
        figure: &str,
        what: &str,
        unit: &'static str,
        reference: Reference,
        ours: Runs,
        band: RangeInclusive<f64>,
    ) -> Row {
        let (low, high) = band.into_inner();
        let ours = vec![(String::new(), ours)];
        Row::new(figure, what, unit, reference, ours, Rule::Band { low, high })
    }

    /// Each of `ours` is to be greater than the next. `says` is the paper's
    /// reason to expect it.
    pub fn order<N: Into<String>>(
        figure: &str,
        unit: &'static str,
        says: &str,
        ours: impl IntoIterator<Item = (N, Runs)>,
    ) -> Row {
        let ours: Vec<_> = ours.into_iter().map(|(name, runs)| (name.into(), runs)).collect();
        let names: Vec<&str> = ours.iter().map(|(name, _): &(String, Runs)| &name[..]).collect();
        let what = names.join(" > ");
        Row::new(figure, &what, unit, Reference::Says(says.into()), ours, Rule::Order)
    }

    /// Ours is to be above zero (`positive`), or below. `says` is what the
    /// paper says of it.
    pub fn sign(
        figure: &str,
        what: &str,
        unit: &'static str,
        says: &str,
        ours: Runs,
        positive: bool,
    ) -> Row {
        let (ours, rule) = (vec![(String::new(), ours)], Rule::Sign { positive });
        Row::new(figure, what, unit, Reference::Says(says.into()), ours, rule)
    }

    /// The bend of a curve, which the paper has at `paper`, is to lie `within`.
    pub fn knee(
        figure: &str,
        what: &str,
        unit: &'static str,
        paper: f64,
        ours: Runs,
        within: RangeInclusive<f64>,
    ) -> Row {
        let (from, to) = within.into_inner();
        let ours = vec![(String::new(), ours)];
        Row::new(figure, what, unit, Reference::Paper(paper), ours, Rule::Knee { from, to })
    }

    /// Ours is to lie `within`, which is what the paper `says` in words.
    pub fn within(
        figure: &str,
        what: &str,
        unit: &'static str,
        says: &str,
        ours: Runs,
        within: RangeInclusive<f64>,
    ) -> Row {
        let (from, to) = within.into_inner();
        let (ours, rule) = (vec![(String::new(), ours)], Rule::Within { from, to });
        Row::new(figure, what, unit, Reference::Says(says.into()), ours, rule)
    }

    /// Shown, and not judged because of `why`.
    pub fn shown(
        figure: &str,
        what: &str,
        unit: &'static str,
        reference: Reference,
        ours: Runs,
        why: &str,
    ) -> Row {
        let ours = vec![(String::new(), ours)];
        Row { why: why.into(), ..Row::new(figure, what, unit, reference, ours, Rule::Shown) }
    }

    /// Should it fail, this is why.
    #[must_use]
    pub fn explained(self, why: &str) -> Row {
        Row { why: why.into(), ..self }
    }

    /// The same, where what it says was seen, too.
    #[must_use]
    pub fn explained_where(self, is_seen: bool, why: &str) -> Row {
        if is_seen { self.explained(why) } else { self }
    }

    /// Why it fails, where it does and that is known.
    pub fn failed_since(&self) -> Option<&str> {
        let fails = !self.why.is_empty() && self.verdict() == Verdict::Fail;
        fails.then_some(&self.why)
    }

    /// Where in the paper it is.
    pub fn figure(&self) -> &str {
        &self.figure
    }

    /// What was measured.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Ours divided by the reference, or, of an order, the first of ours
    /// divided by the second; none where nothing was measured.
    pub fn ratio(&self) -> Option<f64> {
        let median = |i: usize| self.ours.get(i).map(|(_, runs)| runs.median());
        let against = match self.rule {
            Rule::Order => median(1)?,
            _ => self.reference.number()?,
        };
        Some(median(0)? / against).filter(|ratio| ratio.is_finite())
    }

    /// Its verdict.
    pub fn verdict(&self) -> Verdict {
        if let Some(why) = self.ours.iter().find_map(|(_, runs)| runs.void()) {
            return Verdict::NotGated(why.into());
        }
        if self.rule == Rule::Shown {
            return Verdict::NotGated(self.why.clone());
        }
        match self.agreed() {
            Ok(true) => Verdict::Pass,
            Ok(false) => Verdict::Fail,
            Err(why) => Verdict::NotGated(why),
        }
    }

    /// Whether the rule holds wherever the middle of the runs may lie, or nowhere; else why
    /// that cannot be told.
    fn agreed(&self) -> Result<bool, String> {
        if self.ours.iter().any(|(_, runs)| runs.median().is_nan()) {
            return Ok(false);
        }
        let above = (f64::MIN_POSITIVE, f64::INFINITY);
        let (all, (from, to)): (Vec<Runs>, _) = match self.rule {
            Rule::Sign { positive: true } => (vec![self.ours[0].1.clone()], above),
            Rule::Sign { positive: false } => (vec![self.ours[0].1.map(|ours| -ours)], above),
            Rule::Order => {
                let less = |pair: &[(String, Runs)]| pair[0].1.with(&pair[1].1, |a, b| a - b);
                (self.ours.windows(2).map(less).collect(), above)
            }
            Rule::Knee { from, to } | Rule::Within { from, to } => {
                (vec![self.ours[0].1.clone()], (from, to))
            }
            Rule::Band { low, high } => {
                let Some(reference) = self.reference.number() else { return Ok(false) };
                (vec![self.ours[0].1.map(|ours| ours / reference)], (low, high))
            }
            Rule::Shown => return Ok(false),
        };
        let is_outside = |(least, most): (f64, f64)| !(most >= from && least <= to);
        let is_inside = |(least, most): (f64, f64)| from <= least && most <= to;
        let intervals: Vec<(f64, f64)> = all.iter().map(Runs::interval).collect();
        if intervals.iter().copied().all(is_inside) {
            return Ok(true);
        }
        if intervals.iter().copied().any(is_outside) {
            return Ok(false);
        }
        let runs: Vec<String> =
            self.ours.iter().map(|(_, runs)| self.show_interval(runs)).collect();
        Err(format!("its runs do not agree: they give {}", runs.join(", and ")))
    }

    fn show_interval(&self, runs: &Runs) -> String {
        let (least, most) = runs.interval();
        format!("{} to {}", show(least, self.unit), show(most, self.unit))
    }

    /// The reference, for a terminal.
    pub fn show_reference(&self) -> String {
        match &self.reference {
            Reference::Paper(n) => show(*n, self.unit),
            Reference::Model(n) => format!("({})", show(*n, self.unit)),
            Reference::Says(_) | Reference::Silent => "-".into(),
        }
    }

    /// Ours with its unit, for a terminal.
    pub fn show_ours(&self) -> String {
        let medians: Vec<_> = self.ours.iter().map(|(_, r)| show(r.median(), self.unit)).collect();
        let all = medians.join(" > ");
        if per_unit(self.unit).is_some() { all } else { format!("{all} {}", self.unit) }
    }

    /// The greatest spread of its runs, in percent, for a terminal.
    pub fn show_spread(&self) -> String {
        let widest = self.ours.iter().filter_map(|(_, runs)| runs.spread()).reduce(f64::max);
        widest.map_or("-".into(), |s| format!("{:.0} %", s * 100.0))
    }

    /// The ratio, for a terminal.
    pub fn show_ratio(&self) -> String {
        self.ratio().map_or("-".into(), |ratio| format!("{ratio:.3}"))
    }

    /// The paper's words, where it gives no number.
    pub fn words(&self) -> Option<&str> {
        match &self.reference {
            Reference::Says(words) => Some(words),
            _ => None,
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let (paper, says, model) = match &self.reference {
            Reference::Paper(n) => (Some(*n), None, None),
            Reference::Says(words) => (None, Some(words), None),
            Reference::Model(n) => (None, None, Some(*n)),
            Reference::Silent => (None, None, None),
        };
        let verdict = self.verdict();
        let why = match &verdict {
            Verdict::NotGated(why) => Some(&why[..]),
            _ => self.failed_since(),
        };
        let ours = match &self.ours[..] {
            [(_, runs)] => runs.to_json(),
            many => many
                .iter()
                .map(|(name, runs)| json!({ "name": name, "runs": runs.to_json() }))
                .collect(),
        };
        json!({
            "figure": self.figure,
            "what": self.what,
            "paper": paper,
            "paper_says": says,
            "model": model,
            "ours": ours,
            "unit": self.unit,
            "ratio": self.ratio(),
            "rule": self.rule.to_string(),
            "verdict": verdict.to_string(),
            "reason": why,
        })
    }

    /// Its rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }
}

/// How many ns a unit of time has.
fn per_unit(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

/// A figure for a terminal: a time with the unit that suits it, all else without one.
fn show(value: f64, unit: &str) -> String {
    match per_unit(unit) {
        Some(ns) if value.is_finite() => units::time_ns(value * ns),
        _ => units::count(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let row = |unit, paper, ours| {
            let (reference, runs) = (Reference::Paper(paper), Runs::one(ours));
            let row = Row::shown("f", "w", unit, reference, runs, "why");
            [row.show_reference(), row.show_ours()]
        };
        assert_eq!(row("us", 8.7, 1590.0), ["8.70 us", "1.59 ms"]);
        assert_eq!(row("IOPS", 4058.0, 1590.0), ["4.06 k", "1.59 k IOPS"]);
        assert_eq!(row("ns", 1.0, f64::NAN)[1], "n/a");
        let pair = [("a", Runs::one(4.0)), ("b", Runs::one(0.5))];
        assert_eq!(Row::order("f", "ms", "says", pair).show_ours(), "4.00 ms > 500 us");
    }

    fn band(paper: f64, ours: f64) -> Row {
        Row::band("f", "w", "IOPS", Reference::Paper(paper), Runs::one(ours), 0.5..=2.0)
    }

    #[test]
    fn a_band_is_on_the_ratio_with_its_ends() {
        for (ours, verdict) in [
            (49.9, Verdict::Fail),
            (50.0, Verdict::Pass),
            (200.0, Verdict::Pass),
            (200.1, Verdict::Fail),
            (f64::NAN, Verdict::Fail),
        ] {
            assert_eq!(band(100.0, ours).verdict(), verdict, "{ours}");
        }
        assert_eq!(band(100.0, 150.0).ratio(), Some(1.5));
    }

    /// One that most of the runs would give says nothing where the others give another.
    #[test]
    fn runs_that_do_not_agree_are_not_judged() {
        let within = |runs: &[f64], from, to| {
            let row = Row::within("f", "w", "x", "says", Runs::new(runs.into()), from..=to);
            row.verdict()
        };
        let (high, wide) = ([1.3, 1.4, 1.5, 1.6, 1.9], [0.6, 1.9, 0.8, 1.0, 0.6]);
        assert_eq!(within(&high, 1.2, 2.0), Verdict::Pass);
        assert_eq!(within(&high, 0.8, 1.2), Verdict::Fail);
        for range in [(0.8, 1.2), (0.9, f64::INFINITY), (f64::NEG_INFINITY, 0.7)] {
            let Verdict::NotGated(why) = within(&wide, range.0, range.1) else {
                panic!("{range:?}")
            };
            assert!(why.contains("they give 0.6") && why.contains(" to 1.9"), "{why}");
        }
        let order = |runs: [&[f64]; 3]| {
            let ours = runs.map(|runs| ("name", Runs::new(runs.into())));
            Row::order("f", "us", "says", ours).verdict()
        };
        let (three, two, one): (&[f64], &[f64], &[f64]) = (&[3.0, 9.0], &[2.0, 8.0], &[1.0, 1.5]);
        assert_eq!(order([three, two, one]), Verdict::Pass);
        assert_eq!(order([two, three, one]), Verdict::Fail);
        assert!(matches!(order([three, two, &[1.0, 8.5]]), Verdict::NotGated(_)));
        let sign = |runs: &[f64], positive| {
            Row::sign("f", "w", "x", "says", Runs::new(runs.into()), positive).verdict()
        };
        assert_eq!(sign(&[-1.0, -2.0, -3.0], false), Verdict::Pass);
        assert_eq!(sign(&[-1.0, 0.0], true), Verdict::Fail);
        assert!(matches!(sign(&[-1.0, 2.0], true), Verdict::NotGated(_)));
    }

    #[test]
    fn a_band_without_a_number_does_not_pass() {
        let row = Row::band("f", "w", "s", Reference::Silent, Runs::one(1.0), 0.0..=9.0);
        assert_eq!((row.ratio(), row.verdict()), (None, Verdict::Fail));
        assert_eq!(band(0.0, 0.0).verdict(), Verdict::Fail);
    }

    #[test]
    fn an_order_falls_strictly() {
        let row = |values: [f64; 3]| {
            let [a, b, c] = values.map(Runs::one);
            Row::order("f", "IOPS", "faster", [("a", a), ("b", b), ("c", c)])
        };
        assert_eq!(row([3.0, 2.0, 1.0]).verdict(), Verdict::Pass);
        assert_eq!(row([3.0, 1.0, 2.0]).verdict(), Verdict::Fail);
        assert_eq!(row([3.0, 3.0, 1.0]).verdict(), Verdict::Fail);
        assert_eq!(row([3.0, 2.0, 1.0]).ratio(), Some(1.5));
        assert_eq!(row([3.0, 2.0, 1.0]).what(), "a > b > c");
    }

    #[test]
    fn a_sign_is_strict() {
        let row = |x, positive| Row::sign("f", "w", "ns", "costs", Runs::one(x), positive);
        assert_eq!(row(1.0, true).verdict(), Verdict::Pass);
        assert_eq!(row(0.0, true).verdict(), Verdict::Fail);
        assert_eq!(row(-1.0, true).verdict(), Verdict::Fail);
        assert_eq!(row(-1.0, false).verdict(), Verdict::Pass);
    }

    #[test]
    fn a_knee_lies_within() {
        let row = |x| Row::knee("f", "w", "entries", 8.0, Runs::one(x), 8.0..=16.0);
        assert_eq!(row(16.0).verdict(), Verdict::Pass);
        assert_eq!(row(17.0).verdict(), Verdict::Fail);
        assert_eq!(row(16.0).ratio(), Some(2.0));
    }

    #[test]
    fn what_is_said_in_words_lies_within() {
        let row = |x| Row::within("f", "w", "x", "little", Runs::one(x), 0.8..=1.25);
        assert_eq!(row(1.25).verdict(), Verdict::Pass);
        assert_eq!(row(1.26).verdict(), Verdict::Fail);
        assert_eq!((row(1.0).ratio(), row(f64::NAN).verdict()), (None, Verdict::Fail));
        assert_eq!(row(1.0).rule().to_string(), "within 0.8..1.25");
        let much = Row::within("f", "w", "x", "much", Runs::one(9.0), 1.5..=f64::INFINITY);
        assert_eq!((much.verdict(), &*much.rule().to_string()), (Verdict::Pass, "at least 1.5"));
        let few = Row::within("f", "w", "x", "few", Runs::one(9.0), f64::NEG_INFINITY..=1.5);
        assert_eq!((few.verdict(), &*few.rule().to_string()), (Verdict::Fail, "at most 1.5"));
    }

    #[test]
    fn what_fails_says_why_and_what_passes_does_not() {
        let why = |ours: f64| {
            let row = band(100.0, ours).explained("its tails are longer");
            (row.failed_since().map(str::to_owned), row.to_json()["reason"].clone())
        };
        let known = "its tails are longer";
        assert_eq!(why(10.0), (Some(known.into()), known.into()));
        assert_eq!(why(100.0), (None, Value::Null));
        assert_eq!(band(100.0, 10.0).failed_since(), None);
        assert_eq!(band(100.0, 10.0).explained_where(false, known).failed_since(), None);
        assert_eq!(band(100.0, 10.0).explained_where(true, known).failed_since(), Some(known));
    }

    #[test]
    fn what_is_void_or_shown_is_not_judged() {
        let void = Runs::one(1.0).voided("the machine was busy");
        let row = Row::order("f", "IOPS", "says", [("a", Runs::one(0.0)), ("b", void)]);
        assert_eq!(row.verdict(), Verdict::NotGated("the machine was busy".into()));
        let void = Runs::one(1.0).voided("the machine was busy");
        let row = Row::shown("f", "w", "IOPS", Reference::Silent, void, "no depth");
        assert_eq!(row.verdict(), Verdict::NotGated("the machine was busy".into()));
        let row = Row::shown("f", "w", "IOPS", Reference::Paper(2.0), Runs::one(1.0), "no depth");
        assert_eq!(row.verdict(), Verdict::NotGated("no depth".into()));
        assert_eq!(row.to_json()["reason"], "no depth");
        assert_eq!(row.to_json()["ratio"], 0.5);
    }

    proptest! {
        #[test]
        fn where_the_middle_lies_decides(values in prop::collection::vec(90.0f64..110.0, 1..9)) {
            let runs = Runs::new(values);
            let (least, most) = runs.interval();
            let median = runs.median();
            prop_assert!(least <= median && median <= most);
            let at = |reference: f64| {
                let reference = Reference::Model(reference);
                Row::band("f", "w", "s", reference, runs.clone(), 0.95..=1.05).verdict()
            };
            let is_inside = least / median >= 0.95 && most / median <= 1.05;
            prop_assert_eq!(at(median) == Verdict::Pass, is_inside);
            prop_assert_ne!(at(median), Verdict::Fail);
            prop_assert_eq!(at(2.0 * most), Verdict::Fail);
        }
    }
}
