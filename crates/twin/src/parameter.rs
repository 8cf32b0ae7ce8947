//! Parameters that are searched: keys of a profile, by name, and what a path of the
//! host adds to each request.
//!
//! A parameter is a number from 0 to 1 to the search and a text to the profile.
//! Guarantees: both ends of a range, and each of a list of choices, are texts that
//! the key takes; what comes between is a text of the same form. Fails on what a
//! user wrote, as [`TwinError`] says.

use flash::Profile;

use crate::error::TwinError;

/// What a parameter's name begins with that is a path's and no key's.
const HOST: &str = "host_";
/// Digits of a value that are kept: more would be read as a claim.
const DIGITS: i32 = 4;

/// Units of a bound: what it is written with, what that is worth, and the unit that
/// values are written with.
const UNITS: [(&str, f64, &str); 13] = [
    ("ns", 1.0, "ns"),
    ("us", 1e3, "ns"),
    ("ms", 1e6, "ns"),
    ("s", 1e9, "ns"),
    ("B/s", 1.0, "B/s"),
    ("kB/s", 1e3, "B/s"),
    ("MB/s", 1e6, "B/s"),
    ("GB/s", 1e9, "B/s"),
    ("k", 1024.0, "B"),
    ("m", 1_048_576.0, "B"),
    ("g", 1_073_741_824.0, "B"),
    ("%", 1.0, "%"),
    ("", 1.0, ""),
];

/// How a range is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
}

/// What a parameter may be.
#[derive(Clone, Debug, PartialEq)]
enum Domain {
    /// A number with a unit, of so many from `low` to `high`.
    Range { low: f64, high: f64, unit: &'static str, is_whole: bool, scale: Scale },
    /// What the family has, times a number.
    Times { base: String, low: f64, high: f64, scale: Scale },
    /// One of these texts.
    Choice(Vec<String>),
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name: a key, or `host_` and a path.
    pub name: String,
    /// What was asked for it, as it was written.
    pub asked: String,
    domain: Domain,
    /// What the family has, 0 to 1, where that lies in the range.
    start: Option<f64>,
}

impl Parameter {
    /// Reads `NAME=LOW..HIGH[:log|:linear]`, `NAME=xLOW..xHIGH` or `NAME=A|B|...`.
    pub fn parse(text: &str, base: &Profile) -> Result<Parameter, TwinError> {
        let wrong = |what: &str| TwinError::Parameter { text: text.into(), what: what.into() };
        let (name, asked) = text.split_once('=').ok_or_else(|| wrong("write NAME=LOW..HIGH"))?;
        let (name, asked) = (name.trim(), asked.trim());
        let value = base.get(name);
        if value.is_none() && path_of(name).is_none() {
            let keys: Vec<&str> = flash::profile::KEYS.iter().map(|key| key.name).collect();
            let what =
                format!("`{name}` is no key of a profile and no host_PATH: {}", keys.join(", "));
            return Err(wrong(&what));
        }
        if name == "chunks" {
            return Err(wrong("chunks follow from what a point writes"));
        }
        let domain = domain(asked, value.as_deref()).map_err(|what| wrong(&what))?;
        let mut parameter =
            Parameter { name: name.into(), asked: asked.into(), domain, start: None };
        parameter.start = value.and_then(|value| parameter.place(&value));
        for at in parameter.corners() {
            let value = parameter.value(at);
            if path_of(name).is_some() {
                nanoseconds(&value).ok_or_else(|| wrong("a path adds a time, as in 0us..10us"))?;
            } else {
                base.clone().set(name, &value).map_err(|e| wrong(&e.to_string()))?;
            }
        }
        Ok(parameter)
    }

    /// The path that it is of, where it is no key.
    pub fn path(&self) -> Option<&str> {
        path_of(&self.name)
    }

    /// Where the search may begin, 0 to 1.
    pub fn start(&self) -> f64 {
        self.start.unwrap_or(0.5)
    }

    /// Whether there are only a few values, and how many.
    pub fn choices(&self) -> Option<usize> {
        match &self.domain {
            Domain::Choice(all) => Some(all.len()),
            _ => None,
        }
    }

    /// Its value at a place from 0 to 1.
    pub fn value(&self, at: f64) -> String {
        let at = at.clamp(0.0, 1.0);
        match &self.domain {
            Domain::Range { low, high, unit, is_whole, scale } => {
                let value = between(*low, *high, *scale, at);
                show(if *is_whole { value.round() } else { rounded(value) }, unit)
            }
            Domain::Times { base, low, high, scale } => {
                scaled(base, between(*low, *high, *scale, at)).expect("it was tried")
            }
            Domain::Choice(all) => {
                all[((at * all.len() as f64) as usize).min(all.len() - 1)].clone()
            }
        }
    }

    /// The places of values that must be possible for all to be.
    fn corners(&self) -> Vec<f64> {
        match self.choices() {
            Some(n) => (0..n).map(|i| (i as f64 + 0.5) / n as f64).collect(),
            None => vec![0.0, 0.5, 1.0],
        }
    }

    /// The place of a value, where it has one.
    fn place(&self, value: &str) -> Option<f64> {
        let of = |x: f64, low: f64, high: f64, scale| {
            let at = match scale {
                Scale::Linear => (x - low) / (high - low),
                Scale::Log => (x / low).ln() / (high / low).ln(),
            };
            (0.0..=1.0).contains(&at).then_some(at)
        };
        match &self.domain {
            Domain::Range { low, high, unit, scale, .. } => {
                let (x, its) = quantity(value.split('/').next()?).or_else(|| quantity(value))?;
                (its == *unit).then(|| of(x, *low, *high, *scale))?
            }
            Domain::Times { low, high, scale, .. } => of(1.0, *low, *high, *scale),
            Domain::Choice(all) => {
                let i = all.iter().position(|one| one == value)?;
                Some((i as f64 + 0.5) / all.len() as f64)
            }
        }
    }
}

/// The path that a name is of.
pub fn path_of(name: &str) -> Option<&str> {
    name.strip_prefix(HOST).filter(|path| !path.is_empty())
}

/// The time that a path adds, in ns.
pub fn nanoseconds(value: &str) -> Option<u64> {
    let (ns, unit) = quantity(value)?;
    ((unit == "ns" || ns == 0.0) && (0.0..1e12).contains(&ns)).then_some(ns as u64)
}

/// Reads what follows a name.
fn domain(text: &str, base: Option<&str>) -> Result<Domain, String> {
    if text.contains('|') {
        let all: Vec<String> = text.split('|').map(|one| one.trim().to_string()).collect();
        return Ok(Domain::Choice(all));
    }
    let (range, scale) = match text.rsplit_once(':') {
        None => (text, None),
        Some((range, "log")) => (range, Some(Scale::Log)),
        Some((range, "linear")) => (range, Some(Scale::Linear)),
        Some((_, other)) => return Err(format!("`{other}` is no scale: log or linear")),
    };
    let (low, high) = range.split_once("..").ok_or("write LOW..HIGH, or A|B for a choice")?;
    let (low, high) = (low.trim(), high.trim());
    let scale_of = |low: f64| match scale {
        Some(Scale::Log) if low <= 0.0 => Err("a logarithmic range begins above zero".to_string()),
        Some(scale) => Ok(scale),
        None if low > 0.0 => Ok(Scale::Log),
        None => Ok(Scale::Linear),
    };
    if let (Some(low), Some(high)) = (low.strip_prefix('x'), high.strip_prefix('x')) {
        let number = |text: &str| text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
        let (low, high) =
            number(low).zip(number(high)).ok_or("write xLOW..xHIGH, as in x0.5..x2")?;
        let base = base.ok_or("a path has no value of the family: write LOW..HIGH")?;
        if low >= high || scaled(base, low).is_none() {
            return Err(format!("{base} cannot be multiplied so"));
        }
        return Ok(Domain::Times { base: base.into(), low, high, scale: scale_of(low)? });
    }
    let wrong = || format!("{low} and {high} are no numbers with units that are known");
    let ((a, one), (b, other)) = quantity(low).zip(quantity(high)).ok_or_else(wrong)?;
    let unit = if a == 0.0 { other } else { one };
    if unit != other {
        return Err(format!("{low} and {high} have different units"));
    }
    if a >= b {
        return Err(format!("{low} is not below {high}"));
    }
    // Of a time or rate a few digits are enough; a count has them all.
    let is_whole = unit == "B" || is_count(low, unit) && is_count(high, unit);
    Ok(Domain::Range { low: a, high: b, unit, is_whole, scale: scale_of(a)? })
}

/// Whether a number is a count.
fn is_count(text: &str, unit: &str) -> bool {
    unit.is_empty() && !text.contains(['.', 'e'])
}

fn between(low: f64, high: f64, scale: Scale, at: f64) -> f64 {
    match scale {
        Scale::Linear => low + (high - low) * at,
        Scale::Log => (low.ln() + (high / low).ln() * at).exp(),
    }
}

/// A number and its unit.
fn quantity(text: &str) -> Option<(f64, &'static str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    // An exponent, as in 1e-4.
    let end = match text[end..].strip_prefix('e') {
        Some(rest) => {
            let digits = rest.strip_prefix(['-', '+']).unwrap_or(rest);
            let more = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            if more == 0 { end } else { end + 1 + (rest.len() - digits.len()) + more }
        }
        None => end,
    };
    let number = text[..end].parse().ok().filter(|x: &f64| x.is_finite())?;
    let (_, worth, unit) = UNITS.iter().find(|(name, ..)| *name == &text[end..])?;
    Some((number * worth, unit))
}

/// A text of a profile, all its numbers times `factor`.
fn scaled(text: &str, factor: f64) -> Option<String> {
    let one = |text: &str| {
        let (x, unit) = quantity(text)?;
        let x = x * factor;
        let is_whole = unit == "B" || is_count(text, unit);
        Some(show(if is_whole { x.round() } else { rounded(x) }, unit))
    };
    let all: Option<Vec<String>> = text.split('/').map(one).collect();
    // A rate has a stroke of its own.
    all.map(|all| all.join("/")).or_else(|| one(text))
}

/// To as many digits as are kept.
fn rounded(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(x.abs().log10().floor() as i32 + 1 - DIGITS);
    (x / unit).round() * unit
}

/// A number as a profile writes it.
fn show(x: f64, unit: &str) -> String {
    match unit {
        "ns" | "B/s" => format!("{}{unit}", x.round()),
        "B" => format!("{}", x.round()),
        "%" => format!("{}%", (x * 1e3).round() / 1e3),
        _ => format!("{x}"),
    }
}

#[cfg(test)]
mod tests;
