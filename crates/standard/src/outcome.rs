//! What a test gave: a verdict in the first line, figures beneath.
//!
//! Guarantees: text and JSON come from the same numbers; where the result is void the
//! text shows no figure, JSON has none, and both say why; a quick test says that its result
//! is not comparable. Fails when the output cannot be written, and, after printing, when
//! the drive was not steady or the result is void.

use std::io::Write;

use measure::units::{exactly, time_ns};
use serde_json::{Value, json};

use crate::curve::Curve;
use crate::search::Search;
use crate::session::{Halt, Session};
use crate::table::{Figure, Table};
use crate::{Options, Test};
use drive::error::Error;
use load::driver::ClockKind;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// What a test found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Whether the drive was steady, and after how many rounds; none where that was not
    /// sought.
    pub steady: Option<(bool, usize)>,
    /// The searches for it, whose rounds are those of the test.
    pub searches: Vec<Search>,
    /// What is most worth to be known, in a few words.
    pub headline: String,
    /// Single figures.
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Curves.
    pub curves: Vec<Curve>,
}

impl Findings {
    /// Those of rounds until steady: all of them, and of several searches the longest.
    pub fn of(searches: Vec<Search>) -> Findings {
        let reached = searches.iter().all(|search| search.reached);
        let rounds = searches.iter().map(|search| search.rounds).max();
        let steady = rounds.map(|rounds| (reached, rounds));
        let curves = searches.iter().flat_map(Search::curves).collect();
        Findings { steady, curves, searches, ..Findings::default() }
    }

    /// Those after the drive was brought to its steady state.
    pub fn after(steady: &Search) -> Findings {
        Findings { steady: Some((steady.reached, steady.rounds)), ..Findings::default() }
    }
}

/// What a test comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The drive was steady after so many rounds.
    Steady(usize),
    /// It was not, after so many.
    NotSteady(usize),
    /// It was measured; whether it was steady the test does not ask.
    Done,
    /// The result means nothing, for this reason.
    Void(String),
}

impl Verdict {
    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Steady(_) => "steady",
            Verdict::NotSteady(_) => "not steady",
            Verdict::Done => "done",
            Verdict::Void(_) => "void",
        }
    }

    /// Why the command fails, if it does.
    fn problem(&self) -> Option<String> {
        match self {
            Verdict::Steady(_) | Verdict::Done => None,
            Verdict::NotSteady(_) => {
                Some("the drive was not steady: figures may still move".into())
            }
            Verdict::Void(_) => Some("the result is void".into()),
        }
    }
}

/// What a test gave, before it is printed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The test's name.
    pub test: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What it comes to.
    pub verdict: Verdict,
    /// What it found; nothing where the result is void.
    pub found: Findings,
    /// The drive's effective configuration, and in few words.
    pub drive: (Value, Value),
    /// How the test was run.
    pub settings: Value,
    /// Whether it was a quick one.
    pub is_quick: bool,
    /// Whether it was run as the test has it: no other depth or period, and prepared.
    pub is_as_defined: bool,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// How long all of it took on the wall.
    pub wall_seconds: f64,
}

impl Outcome {
    /// The same, which means nothing for this reason.
    pub(crate) fn voided(self, why: String) -> Outcome {
        Outcome { verdict: Verdict::Void(why), found: Findings::default(), ..self }
    }
}

fn settings(session: &Session, test: &Test) -> Value {
    let (about, options) = (&session.stand.about, session.options);
    json!({
        "period_seconds": test.period.map(|period| period(session) as f64 / 1e9),
        "window": session.window(),
        "qd": test.depth.map(|_| session.depth),
        "clock": if about.clock == ClockKind::Virtual { "virtual" } else { "real" },
        "as_is": options.as_is,
    })
}

/// Whether these options leave the test as it is defined.
fn is_as_defined(options: &Options) -> bool {
    let Options { quick, qd, period, read_percent, as_is, .. } = options;
    !quick && qd.is_none() && period.is_none() && read_percent.is_none() && !as_is
}

impl Session<'_, '_> {
    /// Ends the session of a test that found this.
    pub fn finish(&mut self, test: &Test, found: Result<Findings, Halt>) -> Result<Outcome, Error> {
        let (verdict, found) = match found {
            Err(Halt::Failed(e)) => return Err(e),
            Err(Halt::Void(why)) => (Verdict::Void(why), Findings::default()),
            Ok(found) => match found.steady {
                Some((true, rounds)) => (Verdict::Steady(rounds), found),
                Some((false, rounds)) => (Verdict::NotSteady(rounds), found),
                None => (Verdict::Done, found),
            },
        };
        let about = &self.stand.about;
        Ok(Outcome {
            test: test.name,
            about: test.about,
            verdict,
            found,
            drive: (about.drive.clone(), about.few_words.clone()),
            settings: settings(self, test),
            is_quick: self.options.quick,
            is_as_defined: is_as_defined(self.options),
            notes: std::mem::take(&mut self.notes),
            seed: self.options.seed,
            wall_seconds: 0.0,
        })
    }
}

impl Outcome {
    /// The first line.
    pub fn headline(&self) -> String {
        let rounds = |n: &usize| exactly(*n as u64, "round");
        let mut text = match &self.verdict {
            Verdict::Steady(n) => format!("steady after {}", rounds(n)),
            Verdict::NotSteady(n) => format!("NOT STEADY after {}", rounds(n)),
            Verdict::Done => "done".into(),
            Verdict::Void(why) => return format!("VOID: {why}"),
        };
        if !self.found.headline.is_empty() {
            text += &format!(": {}", self.found.headline);
        }
        if self.is_quick {
            text += " (quick: not comparable)";
        }
        text
    }

    /// Whether it may be set beside another result of the same test: it was steady, where that
    /// is asked, and run as the test has it.
    pub fn is_comparable(&self) -> bool {
        self.is_as_defined && matches!(self.verdict, Verdict::Steady(_) | Verdict::Done)
    }

    /// What is told of the test beneath the first line, by label.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |label: &str, text: String| lines.push((label.into(), text));
        line("test", format!("{}: {}", self.test, self.about));
        let name = self.drive.1["name"].as_str().unwrap_or("?").to_string();
        let size = self.drive.1["size"].as_str().map_or(String::new(), |size| format!(", {size}"));
        line("drive", name + &size);
        let period = self.settings["period_seconds"].as_f64();
        let period = period.map_or(String::new(), |s| format!("runs of {}, ", time_ns(s * 1e9)));
        let depth = self.settings["qd"].as_u64();
        let depth = depth.map_or(String::new(), |depth| format!("depth {depth}, "));
        let clock = self.settings["clock"].as_str().unwrap_or("?");
        line("settings", format!("{period}{depth}{clock} clock, seed {}", self.seed));
        if self.is_quick {
            line("quick", "short rounds and few: not comparable with any other result".into());
        }
        if !self.is_quick && !self.is_as_defined {
            line("options", "not those of the test: comparable with its like alone".into());
        }
        for (label, text) in self.found.searches.iter().flat_map(Search::lines) {
            line(label, text);
        }
        for note in &self.notes {
            line("note", note.clone());
        }
        for figure in &self.found.figures {
            line("figure", format!("{}: {}", figure.name, figure.text()));
        }
        lines
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut out = self.headline() + "\n";
        for (label, text) in self.lines() {
            out += &format!("{label:<12}{text}\n");
        }
        for table in &self.found.tables {
            out += &format!("\n{}", table.to_text());
        }
        out
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let Findings { steady, searches, headline, figures, tables, curves } = &self.found;
        let void = match &self.verdict {
            Verdict::Void(why) => Some(why),
            _ => None,
        };
        json!({
            "format": FORMAT,
            "test": self.test,
            "verdict": self.verdict.name(),
            "void": void,
            "headline": headline,
            "comparable": self.is_comparable(),
            "steady": steady.map(|(reached, rounds)| json!({ "reached": reached, "rounds": rounds })),
            "rounds": searches.iter().map(Search::to_json).collect::<Vec<_>>(),
            "figures": figures.iter().map(Figure::to_json).collect::<Vec<_>>(),
            "tables": tables.iter().map(Table::to_json).collect::<Vec<_>>(),
            "curves": curves.iter().map(Curve::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
            "drive": self.drive.0,
            "settings": self.settings,
            "quick": self.is_quick,
            "seed": self.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "wall_seconds": self.wall_seconds,
        })
    }

    /// As a page.
    pub fn to_page(&self) -> String {
        crate::page::page(self)
    }

    /// Prints it. Fails afterwards where the drive was not steady or the result is void.
    pub fn print(&self, json: bool, out: &mut dyn Write) -> Result<(), Error> {
        if json {
            writeln!(out, "{:#}", self.to_json())?;
        } else {
            write!(out, "{}", self.to_text())?;
        }
        out.flush()?;
        self.verdict.problem().map_or(Ok(()), |problem| Err(Error::Failed(problem)))
    }
}
