//! What studies give beside their text: a page for a browser, and pictures.
//!
//! Guarantees: files are taken before anything is measured, and only such as are new or of
//! the same kind; the page is written whole or not at all. Fails as the system does.

use std::fs;
use std::path::PathBuf;

use report::{Chapter, Claim, Dossier, Mark, OutFile};
use serde_json::json;

use super::{Outcome, Row, Study, StudyArgs, Verdict};
use drive::error::Error;

/// A study, and what it gave.
pub type Ran = (Study, Result<Outcome, Error>);

/// The files that were asked for.
pub struct Files {
    page: Option<OutFile>,
    pictures: Option<PathBuf>,
}

impl Files {
    /// Those of a command line.
    pub fn new(args: &StudyArgs) -> Result<Files, Error> {
        let page = args.report.as_ref().map(|path| {
            let file = OutFile::page(path);
            file.map_err(|e| Error::Usage(format!("--report {}: {e}", path.display())))
        });
        Ok(Files { page: page.transpose()?, pictures: args.pictures.clone() })
    }

    /// Writes what these studies gave.
    pub fn write(self, ran: &[Ran]) -> Result<(), Error> {
        if let Some(file) = self.page {
            let name = file.path().display().to_string();
            file.write(&page(ran)).map_err(|e| Error::system(&format!("write {name}"), &e))?;
        }
        let Some(dir) = self.pictures else { return Ok(()) };
        let make = |e| Error::system(&format!("make {}", dir.display()), &e);
        fs::create_dir_all(&dir).map_err(make)?;
        let outcomes = ran.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
        for picture in outcomes.flat_map(|outcome| &outcome.pictures) {
            let path = dir.join(format!("{}.svg", picture.name));
            let name = path.display();
            let file = OutFile::picture(&path);
            let file = file.map_err(|e| Error::Usage(format!("--pictures {name}: {e}")))?;
            file.write(&picture.svg).map_err(|e| Error::system(&format!("write {name}"), &e))?;
        }
        Ok(())
    }
}

/// The page of what these studies gave.
pub fn page(ran: &[Ran]) -> String {
    let title = match ran {
        [(study, _)] => format!("ssdkit study {}", study.name),
        _ => "ssdkit study all".into(),
    };
    let problem = problem(ran);
    let dossier = Dossier {
        title,
        is_doubtful: problem.is_some(),
        verdict: summary(ran),
        chapters: ran.iter().map(chapter).collect(),
    };
    dossier.page()
}

/// What came of all of them, in a line.
pub fn summary(ran: &[Ran]) -> String {
    let (mut passed, mut failed, mut not_gated, mut not_run) = (0, 0, 0, 0);
    for (_, outcome) in ran {
        match outcome {
            Ok(outcome) => {
                let (p, f, n) = outcome.tally();
                (passed, failed, not_gated) = (passed + p, failed + f, not_gated + n);
            }
            Err(_) => not_run += 1,
        }
    }
    let rows = format!("{passed} passed, {failed} failed, {not_gated} not gated");
    match not_run {
        0 => rows,
        1 => format!("{rows}; 1 study could not be run"),
        n => format!("{rows}; {n} studies could not be run"),
    }
}

/// What went wrong in them, in words, if anything did.
pub fn problem(ran: &[Ran]) -> Option<String> {
    let of = |(study, outcome): &Ran| match outcome {
        Ok(outcome) => outcome.failure(),
        Err(e) => Some(format!("study {} could not be run: {e}", study.name)),
    };
    let all: Vec<String> = ran.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.join(". "))
}

fn chapter((study, outcome): &Ran) -> Chapter {
    let empty = Chapter {
        name: study.name.into(),
        about: study.about.into(),
        mark: Mark::Fail,
        verdict: String::new(),
        head: Vec::new(),
        claims: Vec::new(),
        pictures: Vec::new(),
        notes: Vec::new(),
        steps: Vec::new(),
        all: serde_json::Value::Null,
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(e) => return Chapter { verdict: format!("could not be run: {e}"), ..empty },
    };
    let (passed, failed, not_gated) = outcome.tally();
    let (manifest, picture) =
        (&outcome.manifest, |p: &super::Picture| (p.caption.clone(), p.svg.clone()));
    let step = |step: &super::Step| (step.what.clone(), step.command.clone());
    let configurations =
        manifest.steps.iter().map(|s| json!({ "what": s.what, "configuration": s.configuration }));
    let mut notes = outcome.notes.clone();
    notes.push(manifest.text());
    Chapter {
        mark: match (passed, failed) {
            (0, 0) => Mark::Open,
            (_, 0) => Mark::Pass,
            _ => Mark::Fail,
        },
        verdict: format!("{passed} passed, {failed} failed, {not_gated} not gated"),
        head: ["", "paper", "ours", "spread", "ratio", "rule"].map(String::from).to_vec(),
        claims: outcome.rows.iter().map(claim).collect(),
        pictures: outcome.pictures.iter().map(picture).collect(),
        notes,
        steps: manifest.steps.iter().map(step).collect(),
        all: configurations.collect(),
        ..empty
    }
}

fn claim(row: &Row) -> Claim {
    let (mark, verdict) = match row.verdict() {
        Verdict::Pass => (Mark::Pass, "pass".into()),
        Verdict::Fail => (Mark::Fail, "fail".into()),
        Verdict::NotGated(why) => (Mark::Open, format!("not gated: {why}")),
    };
    let cells = [
        row.what().into(),
        row.show_reference(),
        row.show_ours(),
        row.show_spread(),
        row.show_ratio(),
        row.rule().to_string(),
    ];
    Claim {
        section: row.figure().into(),
        cells: cells.to_vec(),
        says: row.words().map(|words| format!("paper: {words}")),
        mark,
        verdict,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Findings, Lab, Options, Reference, Runs};
    use super::*;
    use load::watch::Watch;

    const HOSTILE: &str = "</td><script>alert('x')</script>";

    /// A study whose rows say what a page must not take for its own.
    pub const ODD: Study = Study { name: "odd", about: "<b>a study</b>", run: odd };
    /// One that cannot be run.
    pub const BROKEN: Study = Study {
        name: "broken",
        about: "a study",
        run: |_| Err(Error::Failed("no <valgrind>".into())),
    };

    fn odd(lab: &mut Lab) -> Result<Findings, Error> {
        lab.note_step(HOSTILE, HOSTILE.into(), json!({ HOSTILE: HOSTILE }));
        let one = || Runs::one(1.0);
        let rows = vec![
            Row::band(HOSTILE, "a > b", "IOPS", Reference::Paper(1.0), one(), 0.5..=2.0),
            Row::sign("fig. 2", "fails", "x", HOSTILE, one(), false),
            Row::shown("fig. 2", "open", "x", Reference::Silent, one(), HOSTILE),
        ];
        Ok(Findings::new(rows, vec![HOSTILE.into()]))
    }

    fn ran(studies: &[Study]) -> Vec<Ran> {
        let run = |study: &Study| (*study, study.measure(&Options::default(), &mut Watch::quiet()));
        studies.iter().map(run).collect()
    }

    #[test]
    fn a_page_has_every_row_and_says_what_could_not_be_run() {
        let page = page(&ran(&[ODD, BROKEN]));
        for says in [
            "1 passed, 1 failed, 1 not gated; 1 study could not be run",
            "a &gt; b",
            "<td class=\"verdict pass\">pass</td>",
            "<td class=\"verdict fail\">fail</td>",
            "<td class=\"verdict open\">not gated: ",
            "could not be run: no &lt;valgrind&gt;",
            "band 0.5..2",
            "seed 1",
        ] {
            assert!(page.contains(says), "{says}: {page}");
        }
        assert!(!page.contains("<script") && !page.contains("<b>a study"));
    }

    #[test]
    fn what_went_wrong_is_told_of_each() {
        let problem = problem(&ran(&[BROKEN, ODD])).unwrap();
        assert!(problem.contains("study broken could not be run: no <valgrind>"), "{problem}");
        assert!(problem.contains("study odd: 1 of 3 rows failed: fails"), "{problem}");
        assert_eq!(super::problem(&[]), None);
    }
}
