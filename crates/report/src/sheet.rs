//! A sheet: a page of a verdict, what is told beneath it, tables and curves.
//!
//! As any page it has no script and asks nobody for anything, and what it says is text.

use std::fmt::Write;

use serde_json::Value;

use crate::charts::{Plot, plot};
use crate::page::{BEGIN, LONGEST, LONGEST_ALL, STYLE, bounded, text};

/// A table, all of whose rows are as wide as its head.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What its columns are.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// What a page tells.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// What it is of.
    pub title: String,
    /// What that comes to.
    pub verdict: String,
    /// Whether the verdict speaks against it.
    pub is_doubtful: bool,
    /// What is told beneath it, by label.
    pub lines: Vec<(String, String)>,
    /// Tables.
    pub grids: Vec<Grid>,
    /// Pictures.
    pub plots: Vec<Plot>,
    /// All that was set.
    pub all: Value,
}

impl Sheet {
    /// The page.
    pub fn page(&self) -> String {
        let title = text(&bounded(&self.title, LONGEST));
        let class = if self.is_doubtful { " class=\"doubt\"" } else { "" };
        let verdict = text(&bounded(&self.verdict, LONGEST));
        let mut out = format!(
            "{BEGIN}<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\
             <p{class}><b>{verdict}</b></p>\n<table class=\"settings\">"
        );
        for (label, line) in &self.lines {
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{}</td></tr>",
                text(&bounded(label, LONGEST)),
                text(&bounded(line, LONGEST))
            );
        }
        out.push_str("</table>\n");
        self.grids.iter().for_each(|grid| add_grid(&mut out, grid));
        for of in &self.plots {
            let Some(svg) = plot(of) else { continue };
            let caption = text(&bounded(&of.caption, LONGEST));
            let _ = writeln!(out, "<figure>{svg}<figcaption>{caption}</figcaption></figure>");
        }
        let all = text(&bounded(&format!("{:#}", self.all), LONGEST_ALL));
        let _ = writeln!(
            out,
            "<details><summary>All that was set</summary><pre>{all}</pre></details></body></html>"
        );
        out
    }
}

fn add_grid(out: &mut String, grid: &Grid) {
    out.push_str("<p></p><table>");
    let mut row = |cells: &[String], tag: &str| {
        out.push_str("<tr>");
        for cell in cells {
            let cell = text(&bounded(cell, LONGEST));
            let _ = write!(out, "<{tag}>{cell}</{tag}>");
        }
        out.push_str("</tr>\n");
    };
    row(&grid.head, "th");
    grid.rows.iter().for_each(|cells| row(cells, "td"));
    out.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_text() {
        let hostile = "</title><script>x</script>";
        let count = |n: f64| format!("{n}");
        let sheet = Sheet {
            title: hostile.into(),
            verdict: hostile.into(),
            is_doubtful: true,
            lines: vec![(hostile.into(), hostile.into())],
            grids: vec![Grid { head: vec![hostile.into()], rows: vec![vec![hostile.into()]] }; 2],
            plots: vec![Plot {
                caption: hostile.into(),
                along: ("round", count),
                height: ("IOPS", count),
                is_log: false,
                lines: vec![(hostile.into(), vec![(1.0, 2.0), (2.0, 3.0)])],
            }],
            all: serde_json::json!({ hostile: hostile }),
        };
        let page = sheet.page();
        assert!(page.starts_with(BEGIN) && !page.contains("<script"), "{page}");
        assert_eq!((page.matches("<table").count(), page.matches("</table>").count()), (3, 3));
        assert!(page.contains("<figure><svg") && page.contains("class=\"doubt\""));
    }
}
