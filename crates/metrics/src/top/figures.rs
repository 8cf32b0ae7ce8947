//! What two pages of metrics say of the time between them.
//!
//! Guarantees: whatever stands in them, all numbers are finite, and shares are from 0 to
//! 1. Where a figure is not served there is none. Nothing here fails.

use std::collections::HashMap;

use measure::Programmed;
use serde_json::{Value, json};

use crate::scrape::Scrape;

/// Causes that are told, at most.
const MOST_CAUSES: usize = 256;
/// The percentiles that are told, as parts.
const PARTS: [f64; 3] = [0.5, 0.99, 0.999];
/// What they are called.
pub(super) const PERCENTILES: [&str; 3] = ["p50", "p99", "p99.9"];

/// What was done of an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Operation {
    pub name: String,
    /// Requests and bytes a second.
    pub rate: f64,
    pub bytes: f64,
    /// Requests that failed, in all.
    pub failures: f64,
    /// Percentiles of what they took, in ns; none of too few.
    pub took: [Option<f64>; 3],
}

/// How a drive is, and what it did between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub drive: String,
    pub front: String,
    pub bytes: f64,
    /// How long it is served, and the time between the looks, in s.
    pub uptime: f64,
    pub seconds: f64,
    pub connections: Option<f64>,
    pub inside: Option<f64>,
    /// Why it takes no more writes.
    pub read_only: Option<String>,
    /// Write amplification with parity and folds: between the looks, and since it was made
    /// or opened.
    pub amplification: [Option<f64>; 2],
    pub operations: Vec<Operation>,
    /// Where time went, largest part first: to what, behind what if that is told, and how
    /// much of it.
    pub causes: Vec<([String; 2], f64)>,
    /// How much of the time each die's array worked.
    pub dies: Vec<f64>,
    /// Numbers of other things, by what they are.
    pub counts: Vec<(&'static str, Vec<(String, f64)>)>,
    /// In W, and degrees.
    pub watts: Option<f64>,
    pub celsius: Option<f64>,
}

/// A number that is one.
fn finite(n: f64) -> f64 {
    if n.is_finite() { n.clamp(-1e18, 1e18) } else { 0.0 }
}

/// What two pages say.
struct Looks<'a> {
    before: Option<&'a Scrape>,
    after: &'a Scrape,
    seconds: f64,
}

impl Looks<'_> {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.after.value(name, labels).map(finite)
    }

    /// How much a counter grew; with one look, from zero.
    fn grown(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let before = self.before.and_then(|all| all.value(name, labels)).unwrap_or(0.0);
        Some(finite(self.value(name, labels)? - before).max(0.0))
    }

    /// How much each sample of a counter grew, by all of its labels. Takes time in
    /// proportion to the samples, however many there are.
    fn grown_each<'b, const N: usize>(
        &'b self,
        name: &str,
        labels: [&'b str; N],
    ) -> Vec<([&'b str; N], f64)> {
        let before = self.before.into_iter().flat_map(|all| all.each(name, labels));
        let before: HashMap<_, _> = before.collect();
        let grown = |(of, now): ([&'b str; N], f64)| {
            let then = before.get(&of).copied().map_or(0.0, finite);
            (of, finite(finite(now) - then).max(0.0))
        };
        self.after.each(name, labels).map(grown).collect()
    }

    /// What [`Looks::grown`] says, a second.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        Some(finite(self.grown(name, labels)? / self.seconds))
    }

    /// Percentiles of what was done of an operation, in ns.
    fn took(&self, op: &str) -> [Option<f64>; 3] {
        const NAME: &str = "ssdkit_request_seconds_bucket";
        let of = |all: &Scrape| -> Vec<(f64, f64)> {
            let of_op = all.each(NAME, ["op", "le"]).filter(|([name, _], _)| *name == op);
            of_op.filter_map(|([_, le], n)| Some((le.parse().ok()?, finite(n)))).collect()
        };
        let mut ranges = of(self.after);
        if let Some(before) = self.before.map(of) {
            let same = ranges.iter_mut().zip(before).filter(|(a, b)| a.0 == b.0);
            same.for_each(|(after, before)| after.1 -= before.1);
        }
        PARTS.map(|part| percentile(&ranges, part).map(|s| finite(s * 1e9)))
    }

    fn operations(&self) -> Vec<Operation> {
        let all = self.after.each("ssdkit_requests_total", ["op"]);
        let used = all.filter(|&([op], n)| n > 0.0 || ["read", "write"].contains(&op));
        let one = |([op], _): ([&str; 1], f64)| {
            let of = [("op", op)];
            Operation {
                name: op.into(),
                rate: self.rate("ssdkit_requests_total", &of).unwrap_or(0.0),
                bytes: self.rate("ssdkit_request_bytes_total", &of).unwrap_or(0.0),
                failures: self.value("ssdkit_request_failures_total", &of).unwrap_or(0.0),
                took: self.took(op),
            }
        };
        used.map(one).take(8).collect()
    }

    /// The parts of the time, all operations together.
    fn causes(&self) -> Vec<([String; 2], f64)> {
        const NAME: &str = "ssdkit_time_seconds_total";
        let mut all: Vec<([String; 2], f64)> = Vec::new();
        for ([_, cause, behind], grown) in self.grown_each(NAME, ["op", "cause", "behind"]) {
            match all.iter().position(|(of, _)| of[..] == [cause, behind]) {
                Some(at) => all[at].1 += grown,
                None if all.len() < MOST_CAUSES => {
                    all.push(([cause.into(), behind.into()], grown));
                }
                None => {}
            }
        }
        let sum: f64 = all.iter().map(|one| one.1).sum();
        all.retain(|one| one.1 > 0.0);
        all.iter_mut().for_each(|one| one.1 = finite(one.1 / sum).clamp(0.0, 1.0));
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    fn dies(&self) -> Vec<f64> {
        const NAME: &str = "ssdkit_die_busy_seconds_total";
        let grown = self.grown_each(NAME, ["die"]).into_iter();
        grown.map(|(_, s)| finite(s / self.seconds).clamp(0.0, 1.0)).collect()
    }

    /// Values of a metric by a label.
    fn by(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let all = self.after.each(name, [label]).take(64);
        all.map(|([label], n)| (label.to_string(), finite(n))).collect()
    }

    fn counts(&self) -> Vec<(&'static str, Vec<(String, f64)>)> {
        let each = [
            ("collections", "ssdkit_collections_total"),
            ("blocks moved", "ssdkit_blocks_moved_total"),
            ("erases", "ssdkit_erases_total"),
        ];
        // They count since the drive was made, not since it is served: nothing is known
        // of a second before there are two looks.
        let each = each.into_iter().filter(|_| self.before.is_some());
        let rate = |(what, name): (&str, &str)| Some((what.into(), self.rate(name, &[])?));
        let mut chunks = self.by("ssdkit_chunks", "state");
        let free = self.value("ssdkit_free_chunks", &[]);
        chunks.extend(free.map(|free| ("ready".into(), free)));
        let mut errors = self.by("ssdkit_flash_errors_total", "kind");
        errors.retain(|one| one.1 > 0.0);
        let all = vec![
            ("a second", each.filter_map(rate).collect()),
            ("chunks", chunks),
            ("chunk erases", self.by("ssdkit_chunk_erases", "of")),
            ("flash errors", errors),
            ("read cache", self.by("ssdkit_read_cache_total", "result")),
            ("map cache", self.by("ssdkit_map_cache_total", "result")),
            ("SLC rows", self.by("ssdkit_slc_rows", "of")),
        ];
        all.into_iter().filter(|(_, each): &(_, Vec<_>)| !each.is_empty()).collect()
    }
}

/// Of blocks by why they were programmed.
fn amplification(of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let blocks = |why| of(why).map(|blocks| blocks as u64);
    let [user, gc, padding, metadata] =
        ["user", "collection", "padding", "metadata"].map(|why| blocks(why).unwrap_or(0));
    let (parity, folds) = (blocks("parity"), blocks("folds"));
    Programmed { user, gc, padding, metadata, parity, folds }.amplification()
}

/// Below what such a part of the requests took, from how many took at most so long; none
/// of fewer than would have one beyond it.
fn percentile(ranges: &[(f64, f64)], part: f64) -> Option<f64> {
    let all = ranges.last()?.1;
    if all * (1.0 - part) < 1.0 {
        return None;
    }
    let (wanted, mut below) = (all * part, (0.0, 0.0));
    for &(end, count) in ranges {
        if count >= wanted {
            if end.is_infinite() {
                return Some(below.0);
            }
            let within = (wanted - below.1) / (count - below.1).max(f64::MIN_POSITIVE);
            return Some(below.0 + (end - below.0) * within.clamp(0.0, 1.0));
        }
        below = (end, count);
    }
    None
}

/// Whether fewer requests were made than before: it is another server, which was served
/// for longer by now.
fn has_fallen(before: &Scrape, after: &Scrape) -> bool {
    const NAME: &str = "ssdkit_requests_total";
    let then: HashMap<_, _> = before.each(NAME, ["op"]).collect();
    after.each(NAME, ["op"]).any(|(op, now)| then.get(&op).is_some_and(|&then| now < then))
}

impl Figures {
    /// What was between two looks. Where there is but one, or the server is another one
    /// now, what it counts from its own start is told since then, and of what counts since
    /// the drive was made only sums.
    pub fn between(before: Option<&Scrape>, after: &Scrape) -> Figures {
        const UPTIME: &str = "ssdkit_uptime_seconds";
        let uptime = finite(after.value(UPTIME, &[]).unwrap_or(0.0));
        let since = |all: &Scrape| finite(all.value(UPTIME, &[]).unwrap_or(0.0));
        let before = before.filter(|all| since(all) < uptime && !has_fallen(all, after));
        let seconds = (uptime - before.map_or(0.0, since)).max(1e-3);
        let looks = Looks { before, after, seconds };
        let info = |label| after.label("ssdkit_drive_info", label).unwrap_or("").to_string();
        let reason = after.label("ssdkit_read_only", "reason").unwrap_or("").to_string();
        let is_read_only = looks.value("ssdkit_read_only", &[]).is_some_and(|n| n > 0.0);
        let blocks = "ssdkit_blocks_written_total";
        let is_between = before.is_some();
        let joules = looks.grown_each("ssdkit_energy_joules_total", ["part"]);
        let watts = joules.iter().map(|one| one.1).sum::<f64>() / seconds;
        Figures {
            drive: info("drive"),
            front: info("front"),
            bytes: looks.value("ssdkit_drive_bytes", &[]).unwrap_or(0.0),
            uptime,
            seconds,
            connections: looks.value("ssdkit_connections", &[]),
            inside: looks.value("ssdkit_requests_inside", &[]),
            read_only: is_read_only.then_some(reason),
            amplification: [
                amplification(|why| looks.grown(blocks, &[("why", why)]).filter(|_| is_between)),
                amplification(|why| looks.value(blocks, &[("why", why)])),
            ],
            operations: looks.operations(),
            causes: looks.causes(),
            dies: looks.dies(),
            counts: looks.counts(),
            watts: (is_between && !joules.is_empty()).then(|| finite(watts)),
            celsius: looks.value("ssdkit_temperature_celsius", &[]),
        }
    }

    /// As JSON: times of requests in seconds, parts from 0 to 1.
    pub fn to_json(&self) -> Value {
        let operation = |one: &Operation| {
            let mut json = json!({
                "op": one.name,
                "requests_per_second": one.rate,
                "bytes_per_second": one.bytes,
                "failures": one.failures,
            });
            for (name, ns) in PERCENTILES.iter().zip(one.took) {
                json[name] = ns.map(|ns| ns / 1e9).into();
            }
            json
        };
        let word = |name: &str| name.replace(' ', "_");
        let pairs = |all: &[(String, f64)]| -> Value {
            all.iter().map(|(name, n)| (word(name), Value::from(*n))).collect()
        };
        let cause = |([cause, behind], share): &([String; 2], f64)| {
            let behind = (!behind.is_empty()).then_some(behind);
            json!({ "cause": cause, "behind": behind, "share": share })
        };
        let mut json = json!({
            "drive": self.drive,
            "front": self.front,
            "size_bytes": self.bytes,
            "uptime_seconds": self.uptime,
            "seconds": self.seconds,
            "connections": self.connections,
            "inside": self.inside,
            "read_only": self.read_only,
            "write_amplification": { "now": self.amplification[0], "total": self.amplification[1] },
            "operations": self.operations.iter().map(operation).collect::<Vec<_>>(),
            "time_by_cause": self.causes.iter().map(cause).collect::<Value>(),
            "die_load": self.dies,
            "watts": self.watts,
            "temperature": self.celsius,
        });
        for (name, all) in &self.counts {
            json[word(name).to_lowercase()] = pairs(all);
        }
        json
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::page::tests::{Full, text};
    use proptest::prelude::*;

    /// Figures of two pages, of which the second has more of some things.
    pub(in crate::top) fn figures() -> Figures {
        let mut full = Full::default();
        let before = Scrape::read(&text(&mut full)).unwrap();
        full.seen.at += 2_000_000_000;
        full.seen.written.user += 100;
        full.seen.written.gc += 200;
        let reads = &mut full.seen.live.works[0];
        (reads.requests, reads.bytes) = (2100, 409_600 + (8 << 20));
        reads.took[drive::live::range_of(10_000)] += 1980;
        reads.took[drive::live::range_of(5_000_000)] += 20;
        full.seen.worked[2] += 500_000_000;
        full.seen.energy.read += 4_000_000_000;
        Figures::between(Some(&before), &Scrape::read(&text(&mut full)).unwrap())
    }

    #[test]
    fn figures_are_of_the_time_between() {
        let all = figures();
        assert_eq!((all.seconds, all.uptime, all.front.as_str()), (2.0, 5.0, "nbd"));
        assert_eq!(all.amplification, [Some(3.0), Some(2.75)]);
        let reads = &all.operations[0];
        assert_eq!((reads.name.as_str(), reads.rate), ("read", 1000.0));
        assert_eq!(reads.bytes, f64::from(4 << 20));
        let [p50, p99, p999] = reads.took.map(Option::unwrap);
        // Within the ranges of what they took.
        assert!((8_000.0..=10_000.0).contains(&p50) && p99 <= 10_000.0, "{p50} {p99}");
        assert!((4_000_000.0..=5_200_000.0).contains(&p999), "{p999}");
        assert_eq!(all.operations[1].took, [None; 3]);
        assert_eq!(all.dies, [0.0, 0.0, 0.25, 0.0]);
        assert_eq!((all.watts, all.celsius), (Some(2.0), Some(45.5)));
        assert!(all.causes.is_empty(), "no time was told of");
        let json = all.to_json();
        assert_eq!(json["write_amplification"]["now"], 3.0);
        assert_eq!(json["chunks"]["ready"], 7.0);
        // Another server: since it began.
        let new = Scrape::read(&text(&mut Full::default())).unwrap();
        let since = Figures::between(Some(&new), &new);
        assert_eq!((since.seconds, since.operations[0].rate), (3.0, 100.0 / 3.0));
        assert_eq!(since.causes[0].0, ["array", ""]);
        let json = since.to_json();
        let told = json["time_by_cause"].as_array().unwrap();
        assert_eq!((&told[0]["cause"], &told[0]["behind"]), (&"array".into(), &Value::Null));
        let share = |one: &Value| one["share"].as_f64().unwrap();
        assert!((told.iter().map(share).sum::<f64>() - 1.0).abs() < 1e-9, "{told:?}");
        // The drive wrote before it was served.
        assert_eq!((since.amplification, since.watts), ([None, Some(2.5)], None));
        assert!(since.counts.iter().all(|one| one.0 != "a second"), "{:?}", since.counts);
        // The same where it is served for longer by now than the other was.
        let mut full = Full::default();
        (full.seen.at, full.seen.live.works[1].requests) = (9_000_000_000, 99);
        let longer = Scrape::read(&text(&mut full)).unwrap();
        assert_eq!(Figures::between(Some(&new), &longer).seconds, 9.0);
        full.seen.live.works[1].requests = 101;
        let same = Scrape::read(&text(&mut full)).unwrap();
        assert_eq!(Figures::between(Some(&new), &same).seconds, 6.0);
    }

    #[test]
    fn amplification_has_parity_and_folds_in_it() {
        let mut full = Full::default();
        full.seen.beside = [Some(50), Some(100)];
        let before = Scrape::read(&text(&mut full)).unwrap();
        full.seen.at += 1_000_000_000;
        (full.seen.written.user, full.seen.written.gc) = (200, 350);
        full.seen.beside = [Some(150), Some(200)];
        let after = Scrape::read(&text(&mut full)).unwrap();
        let all = Figures::between(Some(&before), &after);
        assert_eq!(all.amplification, [Some(5.0), Some(4.5)]);
    }

    /// No key has a blank in it.
    #[test]
    fn keys_of_json_are_words() {
        fn look(json: &Value) {
            for (key, value) in json.as_object().into_iter().flatten() {
                assert!(!key.contains(' '), "{key}");
                look(value);
            }
            json.as_array().into_iter().flatten().for_each(look);
        }
        let json = figures().to_json();
        assert_eq!(json["a_second"]["blocks_moved"], 0.0);
        look(&json);
    }

    /// The largest pages that are read are compared in their own time: squared it would
    /// be minutes.
    #[test]
    fn full_pages_are_compared() {
        let metrics = ["ssdkit_time_seconds_total", "ssdkit_energy_joules_total"];
        let line = |name: &str, n: usize| {
            format!("{name}{{op=\"a\",cause=\"{n}\",behind=\"{n}\",part=\"{n}\"}} {n}\n")
        };
        let samples: String = metrics
            .iter()
            .flat_map(|name| (0..crate::scrape::MOST_OF_ONE).map(move |n| line(name, n)))
            .collect();
        let page = |uptime: u32| {
            Scrape::read(&format!("ssdkit_uptime_seconds {uptime}\n{samples}")).unwrap()
        };
        let all = Figures::between(Some(&page(1)), &page(2));
        assert_eq!((all.watts, all.causes.len()), (Some(0.0), 0));
        assert_eq!(Figures::between(None, &page(1)).causes.len(), MOST_CAUSES - 1);
    }

    #[test]
    fn percentiles_are_between_the_ends_of_their_range() {
        let ranges = [(1.0, 0.0), (2.0, 50.0), (4.0, 100.0), (f64::INFINITY, 110.0)];
        assert_eq!(percentile(&ranges, 0.5), Some(2.2));
        assert_eq!((percentile(&ranges, 0.95), percentile(&ranges, 0.999)), (Some(4.0), None));
        assert_eq!((percentile(&[], 0.5), percentile(&[(1.0, 0.0)], 0.5)), (None, None));
    }

    /// A page with any values of the metrics that are read.
    pub(in crate::top) fn pages() -> impl Strategy<Value = Scrape> {
        let value = prop_oneof![Just("NaN"), Just("+Inf"), Just("-5"), Just("1e300"), Just("3")];
        let name = (0..crate::table::METRICS.len(), 0..3usize);
        let label =
            prop_oneof!["\\PC{0,9}", Just("read".to_string()), Just("\x1b[2J\u{202e}".into())];
        let line = (name, label.clone(), label, value).prop_map(|((n, part), a, b, value)| {
            let metric = &crate::table::METRICS[n];
            let part = ["", "_bucket", "_sum"][part];
            let quoted = |text: String| text.replace('\\', "\\\\").replace('"', "\\\"");
            let (a, b) = (quoted(a), quoted(b));
            let names = metric.labels.split(", ").filter(|name| !name.is_empty());
            let labels: String = names
                .enumerate()
                .map(|(n, name)| {
                    // Ends of ranges are numbers mostly.
                    let text = match (name, b.len()) {
                        ("le", 0..4) => "0.001",
                        ("le", 4..7) => "+Inf",
                        ("le", 7) => "NaN",
                        _ if n == 0 => a.as_str(),
                        _ => b.as_str(),
                    };
                    format!("{name}=\"{text}\",")
                })
                .collect();
            format!("{}{part}{{{labels}}} {value}\n", metric.name)
        });
        prop::collection::vec(line, 0..60)
            .prop_map(|lines| Scrape::read(&lines.concat()).unwrap_or_default())
    }

    proptest! {
        #[test]
        fn all_figures_are_numbers(before in pages(), after in pages()) {
            let all = Figures::between(Some(&before), &after);
            let shares = all.dies.iter().chain(all.causes.iter().map(|one| &one.1));
            prop_assert!(shares.clone().all(|share| (0.0..=1.0).contains(share)));
            let numbers = all.operations.iter().flat_map(|one| [one.rate, one.bytes, one.failures]);
            let took = all.operations.iter().flat_map(|one| one.took).flatten();
            prop_assert!(numbers.chain(took).chain(all.watts).all(f64::is_finite));
            let _ = all.to_json().to_string();
        }
    }
}
