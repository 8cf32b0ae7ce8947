//! Axes: where they end, what is marked on them, and how numbers are written there.

use std::ops::RangeInclusive;

use crate::run::Run;

/// Marks of a logarithmic axis at most.
const MARKS: usize = 8;

/// The powers of ten that there are as numbers with all their digits.
const POWERS: RangeInclusive<i32> = f64::MIN_10_EXP..=f64::MAX_10_EXP;

/// An axis: what it is of and how its numbers are written.
pub struct Axis {
    pub of: &'static str,
    pub text: fn(f64) -> String,
    /// Numbers at most.
    pub labels: usize,
    /// Where it begins and ends, if not where what is drawn does.
    pub ends: Option<(f64, f64)>,
}

pub const TIME: Axis = Axis { of: "latency", text: short_time, labels: 7, ends: None };

/// Drive time: of all pictures of these runs the same, from 0 to the end of the longest.
pub fn seconds(runs: &[Run]) -> Axis {
    let text = |s| short_time(s * 1e9);
    Axis { of: "drive time", text, labels: 10, ends: Some((0.0, end(runs))) }
}

/// Where the longest of these runs ends, in seconds.
pub fn end(runs: &[Run]) -> f64 {
    let rows = runs.iter().flat_map(|run| &run.series).map(|row| row.second + row.seconds);
    let dies = runs.iter().filter_map(|run| run.dies.as_ref()?.ends.last().copied());
    rows.chain(dies).fold(1e-9, f64::max)
}

/// Without more digits than an axis needs.
pub fn short_time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e9 || ns <= 0.0 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "us"),
        ns => (ns, "ns"),
    };
    format!("{} {unit}", (value * 100.0).round() / 100.0)
}

pub fn short_count(n: f64) -> String {
    let (value, unit) = match n {
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e3 => (n / 1e3, " k"),
        n => (n, ""),
    };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

/// What part of all is beyond, as a number of tenths: 2 is 99 %.
pub fn nines(beyond: f64) -> f64 {
    -beyond.log10()
}

pub fn percent_of(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10f64.powf(-nines));
    let digits = (nines - 2.0).round().max(0.0) as usize;
    format!("{percent:.digits$} %")
}

/// The ends of an axis; `None` where there is nothing. Logarithmic ones begin at 1,
/// and none is so short beside its numbers that its marks would be the same.
pub fn span(values: impl Iterator<Item = f64>, log: bool) -> Option<(f64, f64)> {
    let ends = |ends: Option<(f64, f64)>, x: f64| {
        let (least, most) = ends.unwrap_or((x, x));
        Some((least.min(x), most.max(x)))
    };
    let (least, most) = values.fold(None, ends)?;
    if log {
        let least = least.max(1.0);
        return Some((least / 1.25, most.max(least) * 1.25));
    }
    let shortest = (most / 1e3).max(1e-9);
    Some((least, if most - least < shortest { least + shortest } else { most }))
}

/// What is marked on a logarithmic axis: powers of ten, and where there are not three of
/// these as much between them as makes two marks. [`MARKS`] at most wherever the ends are.
pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    let power = |of: f64| (of as i32).clamp(*POWERS.start(), *POWERS.end());
    let inside = |steps: &[f64]| -> Vec<f64> {
        let powers = power(low.log10().floor())..=power(high.log10().ceil());
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    let powers = inside(&[1.0]);
    if powers.len() >= 3 {
        return powers.iter().copied().step_by(powers.len().div_ceil(MARKS)).collect();
    }
    let some = inside(&[1.0, 2.0, 5.0]);
    if some.len() >= 2 {
        return some;
    }
    inside(&[1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_short() {
        assert_eq!(percent_of(1.0), "90 %");
        assert_eq!(percent_of(3.0), "99.9 %");
        assert_eq!(short_time(1.5e6), "1.5 ms");
        assert_eq!(short_time(0.0), "0 s");
        assert_eq!(short_count(250_000.0), "250 k");
    }

    #[test]
    fn a_logarithmic_axis_has_marks_wherever_it_lies() {
        assert_eq!(ticks(8e2, 2e6), [1e3, 1e4, 1e5, 1e6]);
        assert_eq!(ticks(2.4e4, 6e5), [5e4, 1e5, 2e5, 5e5]);
        // The shortest there is: one figure, a quarter to either side.
        for at in 0..200 {
            let (low, high) = span([10f64.powf(f64::from(at) / 20.0)].into_iter(), true).unwrap();
            let marks = ticks(low, high);
            assert!((2..=MARKS).contains(&marks.len()), "{low} to {high}: {marks:?}");
        }
        for (low, high) in [
            (0.8, 1e15),
            (1.0, f64::INFINITY),
            (0.0, f64::MAX),
            (f64::NEG_INFINITY, f64::INFINITY),
            (f64::NAN, f64::NAN),
            (1e9, 1.0),
        ] {
            assert!(ticks(low, high).len() <= MARKS, "{low} to {high}");
        }
    }
}
