//! A dossier: a page of chapters, each with claims and how they were judged.
//!
//! As any page it has no script and asks nobody for anything, and what it says is text.
//! Pictures are what they are given as: SVG of whoever drew them, never of a report.

use std::fmt::Write;

use serde_json::Value;

use crate::page::{BEGIN, LONGEST, STYLE, bounded, text};

/// What a dossier has beside what all pages have.
const MORE_STYLE: &str = "body { max-width: 1200px } td.what, td.says { text-align: left } \
    td.says { color: #555; border-bottom: none; padding-left: 2em; font-size: 13px } \
    th.section { padding-top: 1em } td.verdict { text-align: left } \
    .claims td { white-space: nowrap } .claims td:first-child, .claims td.verdict { \
    white-space: normal } \
    .pass { color: #1a7f37 } .fail { color: #a40000; font-weight: bold } .open { color: #777 }";

/// Characters of all that was set in a chapter: more than any study of ours has.
const LONGEST_ALL: usize = 400_000;

/// How something was judged, which is its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// Nobody judged.
    Open,
}

impl Mark {
    fn class(self) -> &'static str {
        match self {
            Mark::Pass => "pass",
            Mark::Fail => "fail",
            Mark::Open => "open",
        }
    }
}

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Under which heading it stands; those that follow each other under one share it.
    pub section: String,
    /// What is claimed, and by what figures it is held, as many as the chapter's head.
    pub cells: Vec<String>,
    /// The words of whoever claims it, if any are to be shown.
    pub says: Option<String>,
    /// How it was judged.
    pub mark: Mark,
    /// The same in words.
    pub verdict: String,
}

/// A chapter.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// A word for it.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// What it comes to.
    pub mark: Mark,
    /// The same in words.
    pub verdict: String,
    /// What the cells of its claims are.
    pub head: Vec<String>,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Pictures with their captions.
    pub pictures: Vec<(String, String)>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// How it was measured: what, and by which command.
    pub steps: Vec<(String, String)>,
    /// All that was set.
    pub all: Value,
}

/// A page of chapters.
#[derive(Clone, Debug)]
pub struct Dossier {
    /// What it is of.
    pub title: String,
    /// What it comes to.
    pub verdict: String,
    /// Whether that speaks against it.
    pub is_doubtful: bool,
    /// Its chapters.
    pub chapters: Vec<Chapter>,
}

/// Text that is at most so long.
fn short(plain: &str) -> String {
    text(&bounded(plain, LONGEST))
}

impl Dossier {
    /// The page.
    pub fn page(&self) -> String {
        let title = short(&self.title);
        let class = if self.is_doubtful { " class=\"doubt\"" } else { "" };
        let mut out = format!(
            "{BEGIN}<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title}</title><style>{STYLE} {MORE_STYLE}</style></head>\n\
             <body><h1>{title}</h1><p{class}><b>{}</b></p>\n",
            short(&self.verdict)
        );
        self.add_contents(&mut out);
        for (number, chapter) in self.chapters.iter().enumerate() {
            chapter.add(&mut out, number);
        }
        out.push_str("</body></html>\n");
        out
    }

    fn add_contents(&self, out: &mut String) {
        out.push_str("<table>\n");
        for (number, chapter) in self.chapters.iter().enumerate() {
            let _ = writeln!(
                out,
                "<tr><td><a href=\"#chapter-{number}\">{}</a></td><td class=\"what\">{}</td>\
                 <td class=\"verdict {}\">{}</td></tr>",
                short(&chapter.name),
                short(&chapter.about),
                chapter.mark.class(),
                short(&chapter.verdict)
            );
        }
        out.push_str("</table>\n");
    }
}

impl Chapter {
    fn add(&self, out: &mut String, number: usize) {
        let _ = writeln!(
            out,
            "<h2 id=\"chapter-{number}\">{}</h2>\n<p>{}<br><b class=\"{}\">{}</b></p>",
            short(&self.name),
            short(&self.about),
            self.mark.class(),
            short(&self.verdict)
        );
        if !self.claims.is_empty() {
            self.add_claims(out);
        }
        for (caption, svg) in &self.pictures {
            let caption = short(caption);
            let _ = writeln!(out, "<figure>{svg}<figcaption>{caption}</figcaption></figure>");
        }
        self.add_end(out);
    }

    fn add_claims(&self, out: &mut String) {
        let columns = self.head.len() + 1;
        out.push_str("<table class=\"claims\"><tr>");
        for cell in &self.head {
            let _ = write!(out, "<th>{}</th>", short(cell));
        }
        out.push_str("<th>verdict</th></tr>\n");
        let mut section = None;
        for claim in &self.claims {
            if section != Some(&claim.section) {
                section = Some(&claim.section);
                let _ = writeln!(
                    out,
                    "<tr><th class=\"section\" colspan=\"{columns}\">{}</th></tr>",
                    short(&claim.section)
                );
            }
            claim.add(out, columns);
        }
        out.push_str("</table>\n");
    }

    /// What follows the pictures.
    fn add_end(&self, out: &mut String) {
        if !self.notes.is_empty() {
            out.push_str("<ul>\n");
            for note in &self.notes {
                let _ = writeln!(out, "<li>{}</li>", short(note));
            }
            out.push_str("</ul>\n");
        }
        if !self.steps.is_empty() {
            out.push_str(
                "<details><summary>How it was measured</summary><table class=\"settings\">\n",
            );
            for (what, command) in &self.steps {
                let _ =
                    writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", short(what), short(command));
            }
            out.push_str("</table></details>\n");
        }
        if !self.all.is_null() {
            let all = text(&bounded(&format!("{:#}", self.all), LONGEST_ALL));
            let _ = writeln!(
                out,
                "<details><summary>All that was set</summary><pre>{all}</pre></details>"
            );
        }
    }
}

impl Claim {
    fn add(&self, out: &mut String, columns: usize) {
        out.push_str("<tr>");
        for cell in &self.cells {
            let _ = write!(out, "<td>{}</td>", short(cell));
        }
        let (class, verdict) = (self.mark.class(), short(&self.verdict));
        let _ = writeln!(out, "<td class=\"verdict {class}\">{verdict}</td></tr>");
        if let Some(says) = &self.says {
            let says = short(says);
            let _ = writeln!(out, "<tr><td class=\"says\" colspan=\"{columns}\">{says}</td></tr>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dossier(word: &str) -> Dossier {
        let claim = |section: &str, mark| Claim {
            section: section.into(),
            cells: vec![word.into(), "1".into()],
            says: (mark == Mark::Pass).then(|| word.into()),
            mark,
            verdict: word.into(),
        };
        let chapter = Chapter {
            name: word.into(),
            about: word.into(),
            mark: Mark::Fail,
            verdict: word.into(),
            head: vec![word.into(), "ours".into()],
            claims: vec![
                claim(word, Mark::Pass),
                claim(word, Mark::Fail),
                claim("another", Mark::Open),
            ],
            pictures: vec![(word.into(), "<svg></svg>".into())],
            notes: vec![word.into()],
            steps: vec![(word.into(), word.into())],
            all: serde_json::json!({ word: word }),
        };
        let chapters = vec![chapter.clone(), chapter];
        Dossier { title: word.into(), verdict: word.into(), is_doubtful: true, chapters }
    }

    #[test]
    fn what_it_says_is_text() {
        let page = dossier("</title><script>x</script>\u{1b}[2J\"'").page();
        assert!(page.starts_with(BEGIN) && !page.contains("<script"), "{page}");
        assert!(!page.contains('\u{1b}') && page.contains("&lt;script&gt;"));
    }

    #[test]
    fn each_claim_has_its_colour_and_each_section_one_heading() {
        let page = dossier("word").page();
        for class in ["verdict pass", "verdict fail", "verdict open"] {
            assert!(page.contains(&format!("<td class=\"{class}\">word</td>")), "{class}");
        }
        assert_eq!(page.matches("<th class=\"section\"").count(), 2 * 2);
        assert_eq!(page.matches("<td class=\"says\"").count(), 2);
        assert_eq!(page.matches("<figure><svg></svg>").count(), 2);
        for number in 0..2 {
            assert!(page.contains(&format!("href=\"#chapter-{number}\"")));
            assert!(page.contains(&format!("<h2 id=\"chapter-{number}\"")));
        }
        assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
    }

    /// A hundred configurations of a few thousand characters.
    #[test]
    fn all_that_was_set_is_there_to_its_end() {
        let mut dossier = dossier("word");
        let one = |n: usize| (format!("{n:03}"), "x".repeat(3000).into());
        dossier.chapters[0].all = Value::Object((0..100).map(one).collect());
        assert!(dossier.page().contains("&quot;099&quot;"));
    }

    #[test]
    fn what_is_long_has_a_small_page() {
        assert!(dossier(&"x".repeat(1 << 20)).page().len() < 1 << 20);
    }
}
