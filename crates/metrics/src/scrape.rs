//! Prometheus' text format as it is read, of a page that anybody may have written.
//!
//! Guarantees: whatever the text is, reading it ends, takes memory in proportion to it,
//! and does not panic. Fails where a line is not of the format, or there are too many.

use std::collections::HashMap;

use thiserror::Error;

/// Samples of a page, at most.
const MOST: usize = 1 << 16;
/// Samples of one metric, at most: twice as many as any has that is served.
pub(crate) const MOST_OF_ONE: usize = 2048;
/// Labels of a sample, at most.
const MOST_LABELS: usize = 16;

/// A text is no page of metrics.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScrapeError {
    /// A line makes no sense.
    #[error(
        "line {0} of the page is no sample of Prometheus' text format: is this the metrics \
         address of `ssdkit serve`?"
    )]
    Line(usize),
    /// There are too many.
    #[error(
        "the page has more than {MOST} samples, or {MOST_OF_ONE} of one metric: it is not of \
         `ssdkit serve`"
    )]
    Many,
}

/// A sample: its labels and its value.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|label| label.0 == name).map(|label| label.1.as_str())
    }
}

/// A page that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    samples: HashMap<String, Vec<Sample>>,
}

impl Scrape {
    /// Reads a page. Comments are passed over, also HELP and TYPE; times of samples, too.
    pub fn read(text: &str) -> Result<Scrape, ScrapeError> {
        let (mut all, mut count) = (Scrape::default(), 0);
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, sample) = sample(line).ok_or(ScrapeError::Line(number + 1))?;
            count += 1;
            if count > MOST {
                return Err(ScrapeError::Many);
            }
            match all.samples.get_mut(name) {
                Some(samples) if samples.len() == MOST_OF_ONE => return Err(ScrapeError::Many),
                Some(samples) => samples.push(sample),
                None => _ = all.samples.insert(name.into(), vec![sample]),
            }
        }
        Ok(all)
    }

    fn of(&self, name: &str) -> &[Sample] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of the first sample that has these labels, others perhaps, too.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |s: &&Sample| labels.iter().all(|&(name, value)| s.label(name) == Some(value));
        self.of(name).iter().find(has).map(|sample| sample.value)
    }

    /// A label of the first sample of a metric.
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.of(name).first()?.label(label)
    }

    /// Of each sample of a metric some labels, empty where it has none of that name, and
    /// the value.
    pub fn each<'a, const N: usize>(
        &'a self,
        name: &str,
        labels: [&'a str; N],
    ) -> impl Iterator<Item = ([&'a str; N], f64)> + 'a {
        let of = move |s: &'a Sample| (labels.map(|label| s.label(label).unwrap_or("")), s.value);
        self.of(name).iter().map(of)
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.chars().all(is_part) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// A line: name, labels, value, and a time perhaps.
fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return None;
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.trim_start().strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (label, after) = label(rest)?;
            labels.push(label);
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(more) => more.trim_start(),
                None if after.starts_with('}') => after,
                None => return None,
            };
            if labels.len() > MOST_LABELS {
                return None;
            }
        }
        rest = &rest[1..];
    }
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let is_time = words.next().is_none_or(|time| time.parse::<f64>().is_ok());
    (is_time && words.next().is_none()).then_some((name, Sample { labels, value }))
}

/// A label at the beginning of a text, and what comes after it.
fn label(text: &str) -> Option<((String, String), &str)> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim();
    let rest = rest.trim_start().strip_prefix('"')?;
    if !is_name(name) {
        return None;
    }
    let (mut value, mut chars) = (String::new(), rest.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some(((name.into(), value), &rest[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                c @ ('\\' | '"') => value.push(c),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;
    use proptest::prelude::*;

    #[test]
    fn samples_are_read() {
        let page = "# HELP a b\n\na 1\nb{x=\"1\",y=\"a\\\"\\\\\\nb\"} 2.5e3 1700000000\n\
                    b { x = \"2\" , } +Inf\nb{x=\"3\"} NaN\n";
        let all = Scrape::read(page).unwrap();
        assert_eq!(all.value("a", &[]), Some(1.0));
        assert_eq!(all.value("b", &[("y", "a\"\\\nb")]), Some(2500.0));
        assert_eq!(all.value("b", &[("x", "2")]), Some(f64::INFINITY));
        assert_eq!((all.value("b", &[("x", "9")]), all.value("c", &[])), (None, None));
        assert_eq!(all.each("b", ["x"]).map(|it| it.0[0]).collect::<String>(), "123");
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        for line in [
            "a",
            "a b",
            "1a 1",
            "a{ 1",
            "a{x} 1",
            "a{x=1} 1",
            "a{x=\"1} 1",
            "a{x=\"\\t\"} 1",
            "a{x=\"1\"y=\"2\"} 1",
            "a 1 2 3",
            "a 1 x",
            "<html>",
            "a{=\"\"} 1",
            "{} 1",
        ] {
            let text = format!("b 1\n{line}\n");
            assert_eq!(Scrape::read(&text), Err(ScrapeError::Line(2)), "{line}");
        }
        let one = "a 1\n".repeat(MOST_OF_ONE);
        assert!(Scrape::read(&one).is_ok());
        assert_eq!(Scrape::read(&(one + "a 1\n")), Err(ScrapeError::Many));
        let many: String = (0..=MOST).map(|n| format!("a{} 1\n", n / MOST_OF_ONE)).collect();
        assert_eq!(Scrape::read(&many), Err(ScrapeError::Many));
        let labels = (0..=MOST_LABELS).map(|n| format!("l{n}=\"\",")).collect::<String>();
        assert_eq!(Scrape::read(&format!("a{{{labels}}} 1")), Err(ScrapeError::Line(1)));
    }

    proptest! {
        /// Any text is read or refused.
        #[test]
        fn no_text_panics(text in r#"([a{}="\\,# \n0-9.]|\PC){0,80}"#) {
            let _ = Scrape::read(&text);
        }

        /// What was written is read again, whatever stands in a label.
        #[test]
        fn what_is_written_comes_back(name in any::<String>(), whole: u64) {
            let mut text = Text::default();
            let shown = name.replace('\r', "");
            let mut samples = text.metric("ssdkit_requests_total");
            samples.add(&[("op", "x"), ("name", &shown)], whole);
            samples.add(&[], 0.25);
            let text = text.into_string();
            // A line ends at a line feed only, as far as the format says.
            prop_assume!(text.lines().count() == 4);
            let all = Scrape::read(&text).unwrap();
            prop_assert_eq!(
                all.value("ssdkit_requests_total", &[("name", &shown)]),
                Some(whole as f64)
            );
            prop_assert_eq!(all.each("ssdkit_requests_total", ["op"]).count(), 2);
        }
    }
}
