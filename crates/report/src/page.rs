//! A page: verdicts, figures, pictures, settings.
//!
//! It has no script, asks no network and no other file for anything, and what
//! reports say is text in it.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

use crate::charts::{self, Chart};
use crate::comparison::{Comparison, Setting};
use crate::run::Run;

/// Settings that are listed, and characters of a text and of all that was set: more than
/// any report of ours has.
const MOST_SETTINGS: usize = 400;
pub(crate) const LONGEST: usize = 500;
pub(crate) const LONGEST_ALL: usize = 40_000;

/// What every page begins with.
pub const BEGIN: &str =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta name=\"generator\" content=\"ssdkit\">";

pub(crate) const STYLE: &str = "\
body { font: 15px/1.5 sans-serif; color: #222; background: #fff; max-width: 920px; \
margin: 2em auto; padding: 0 1em } \
table { border-collapse: collapse; font-variant-numeric: tabular-nums } \
th, td { padding: .15em .8em; text-align: right; border-bottom: 1px solid #ddd } \
th:first-child, td:first-child { text-align: left } \
td.difference { text-align: left; color: #777 } td.beyond { color: #222; font-weight: bold } \
.settings td { text-align: left; font-family: monospace; font-size: 13px } \
figure { margin: 1.5em 0 } figcaption { color: #555 } svg { max-width: 100%; height: auto } \
.doubt { color: #a40000 } pre { overflow: auto; background: #f6f6f6; padding: 1em; font-size: 13px }";

/// The page of these runs, the first of which the others are held against.
///
/// # Panics
/// Without a run.
pub fn page(runs: &[Run]) -> String {
    let comparison = Comparison::new(runs);
    let mut out = String::new();
    let title = match runs {
        [run] => drive_name(run),
        runs => format!("{} runs", runs.len()),
    };
    let title = text(&title);
    let _ = writeln!(
        out,
        "{BEGIN}<meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>"
    );
    verdicts(&mut out, runs, &comparison);
    figures(&mut out, &comparison);
    for Chart { name, caption, svg } in charts::all(runs) {
        let caption = text(&caption);
        let _ =
            writeln!(out, "<figure id=\"{name}\">{svg}<figcaption>{caption}</figcaption></figure>");
    }
    settings(&mut out, &comparison);
    for (number, run) in runs.iter().enumerate() {
        let all = serde_json::json!({ "drive": run.drive, "workload": run.workload });
        let _ = writeln!(
            out,
            "<details><summary>All that was set in [{}]</summary><pre>{}</pre></details>",
            number + 1,
            text(&bounded(&format!("{all:#}"), LONGEST_ALL))
        );
    }
    out.push_str("</body></html>\n");
    out
}

fn drive_name(run: &Run) -> String {
    match &run.drive["name"] {
        Value::String(name) => bounded(name, LONGEST).into_owned(),
        _ => run.name.clone(),
    }
}

/// How many requests were outstanding, in words.
fn outstanding(run: &Run) -> String {
    match run.depth() {
        Some(depth) => format!(" with {depth} outstanding"),
        None if run.jobs.len() > 1 => format!(", the first of {} loads", run.jobs.len()),
        None if !run.workload["pause_seconds"].is_null() => {
            let (each, pause) = (&run.workload["burst"], &run.workload["pause_seconds"]);
            format!(" in bursts of {each} with pauses of {pause} s")
        }
        None => " as they arrive".into(),
    }
}

/// What each run is, and whether to believe it.
fn verdicts(out: &mut String, runs: &[Run], comparison: &Comparison) {
    for (number, run) in runs.iter().enumerate() {
        let about = format!(
            "{}: {}, {}{}, {} I/Os in {:.3} s of drive time; seed {}, version {}",
            run.name,
            drive_name(run),
            run.workload["rw"].as_str().unwrap_or("?"),
            outstanding(run),
            run.ios,
            run.seconds,
            run.seed,
            run.version
        );
        let _ = write!(out, "<p>[{}] {}", number + 1, text(&about));
        for doubt in &comparison.doubts[number] {
            let doubt = text(&bounded(doubt, LONGEST));
            let _ = write!(out, "<br><span class=\"doubt\">{doubt}</span>");
        }
        if comparison.doubts[number].is_empty() {
            out.push_str("<br>Nothing speaks against its figures.");
        }
        out.push_str("</p>\n");
    }
}

fn figures(out: &mut String, comparison: &Comparison) {
    out.push_str("<table><tr><th></th><th>[1]</th>");
    for number in 2..=comparison.names.len() {
        let _ = write!(out, "<th>[{number}]</th><th></th>");
    }
    out.push_str("</tr>\n");
    for figure in &comparison.figures {
        let _ =
            write!(out, "<tr><td>{}</td><td>{}</td>", text(&figure.name), text(&figure.text(0)));
        for run in 1..comparison.names.len() {
            let beyond = figure.difference(run).and_then(|d| d.is_told_apart());
            let class = if beyond == Some(true) { "difference beyond" } else { "difference" };
            let (value, difference) = (figure.text(run), figure.difference_text(run));
            let _ = write!(
                out,
                "<td>{}</td><td class=\"{class}\">{}</td>",
                text(&value),
                text(&difference)
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    if comparison.names.len() > 1 {
        out.push_str(
            "<p>±: within what it would be in other runs of both, with 95 %, as their rows tell. Bold: \
             more than that. In brackets: not told apart. Without ±: not known.</p>\n",
        );
    }
}

fn settings(out: &mut String, comparison: &Comparison) {
    if comparison.names.len() < 2 {
        return;
    }
    if comparison.settings.is_empty() {
        out.push_str("<p>Nothing is set differently.</p>\n");
        return;
    }
    out.push_str("<h2>Set differently</h2>\n<table class=\"settings\"><tr><th></th>");
    for number in 1..=comparison.names.len() {
        let _ = write!(out, "<th>[{number}]</th>");
    }
    out.push_str("</tr>\n");
    for Setting { name, values } in comparison.settings.iter().take(MOST_SETTINGS) {
        let _ = write!(out, "<tr><td>{}</td>", text(&bounded(name, LONGEST)));
        for value in values {
            let _ = write!(out, "<td>{}</td>", text(&bounded(value, LONGEST)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    if comparison.settings.len() > MOST_SETTINGS {
        let _ = writeln!(out, "<p>And {} more.</p>", comparison.settings.len() - MOST_SETTINGS);
    }
}

/// So much of a text that a page stays one that can be looked at.
pub(crate) fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Text as it is written in a page.
pub(crate) fn text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{full_report, report, run};

    #[test]
    fn a_page_asks_nobody_and_runs_nothing() {
        let page = page(&[run("a", &[1e5; 9]), run("b", &[2e5; 9])]);
        let foreign = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "<script", "<link", "<img", "url(", "@import", "src="] {
            assert!(!foreign.contains(word), "{word}");
        }
        for id in ["latency", "distribution", "rate", "bands", "amplification", "over-time"] {
            assert!(page.contains(&format!("<figure id=\"{id}\"><svg")), "{id}");
        }
    }

    #[test]
    fn what_a_report_says_is_text() {
        let mut hostile = full_report(&[1e5; 5]);
        let script = "</title><script>alert('x')</script>\u{1b}[2J";
        hostile["drive"]["name"] = script.into();
        hostile["drive"][script] = script.into();
        hostile["version"] = script.into();
        hostile["workload"]["rw"] = script.into();
        hostile["void"] = script.into();
        hostile["warnings"] = serde_json::json!([script]);
        hostile["series"][0]["tail"]["parts"][0]["part"] = script.into();
        let hostile = Run::from_json(script, hostile).unwrap();
        for page in [page(std::slice::from_ref(&hostile)), page(&[run("a", &[1e5; 5]), hostile])] {
            assert!(!page.contains("<script") && !page.contains('\u{1b}'));
            assert!(page.contains("&lt;script&gt;"));
        }
    }

    #[test]
    fn a_report_full_of_settings_has_a_small_page() {
        let mut full = report(&[1e5; 5]);
        for i in 0..20_000 {
            full["drive"][format!("key {i}")] = "value".into();
        }
        full["drive"]["name"] = "x".repeat(1 << 20).into();
        full["warnings"] = serde_json::json!(["y".repeat(1 << 20)]);
        let full = Run::from_json("a", full).unwrap();
        assert!(page(&[run("b", &[1e5; 5]), full]).len() < 1 << 20);
    }

    /// Eight of the longest, of many dies, all of whose cells differ from their neighbours.
    #[test]
    fn pages_full_of_pictures_are_bounded() {
        let mut full = full_report(&vec![1e5; 2048]);
        for (n, row) in full["series"].as_array_mut().unwrap().iter_mut().enumerate() {
            let part = |i: usize| serde_json::json!({ "part": format!("part {i}"), "ns": 1 + (n * (i + 7)) % 91 });
            row["tail"]["parts"] = (0..35).map(part).collect();
            row["programmed"] = serde_json::json!({ "user": 100, "gc": n % 77, "padding": n % 13,
                "metadata": n % 17, "parity": n % 19, "folds": n % 23 });
        }
        let line = |n: usize, columns: usize| -> String {
            let figure = |i: usize| format!("{} ", (37 * (n + i) + i * i) % 101);
            (0..columns).map(figure).collect()
        };
        let lines = |dies: usize, columns: usize| -> Vec<String> {
            (0..dies).map(|n| line(n, columns)).collect()
        };
        let ends: Vec<usize> = (1..=64).collect();
        full["dies"] = serde_json::json!({ "pus": 16, "ends": ends, "busy": lines(128, 64) });
        full["chunks"] = serde_json::json!({ "pus": 16, "each": 1,
            "states": vec!["fcoc".repeat(32); 128], "erases": lines(128, 128),
            "valid": lines(128, 128) });
        let run = Run::from_json("a", full).unwrap();
        let one = page(std::slice::from_ref(&run)).len();
        assert!(one < 1 << 20, "{one}");
        let eight = page(&vec![run; 8]).len();
        assert!(eight < 3 << 20, "{eight}");
    }

    #[test]
    fn a_long_run_has_a_small_page() {
        let rows: Vec<f64> = (0..40_000).map(|i| 1e5 + f64::from(i % 977)).collect();
        let long = run("long", &rows);
        assert!(page(&[long.clone(), long]).len() < 1 << 20);
    }
}
