//! What studies give beside their text: a page for a browser, and pictures.
//!
//! Guarantees: files are taken before anything is measured, and only such as are new or of
//! the same kind; the page is written whole or not at all, and one of studies that were
//! stopped takes no older one's place. One that cannot be written keeps
//! no other from being so. Fails as the system does.

use std::fs;
use std::path::PathBuf;

use report::{Chapter, Claim, Dossier, Mark, OutFile};
use serde_json::{Value, json};

use super::{Outcome, Row, Step, Study, StudyArgs, Verdict, both};
use drive::error::Error;

/// A study, and what it gave.
pub type Ran = (Study, Result<Outcome, Error>);

/// The files that were asked for.
pub struct Files {
    page: Option<OutFile>,
    pictures: Option<PathBuf>,
}

impl Files {
    /// Those of a command line. Makes the directory of pictures. Fails where that or the
    /// page cannot be.
    pub fn new(args: &StudyArgs) -> Result<Files, Error> {
        let page = args.report.as_ref().map(|path| {
            let file = OutFile::page(path);
            file.map_err(|e| Error::Usage(format!("--report {}: {e}", path.display())))
        });
        let page = page.transpose()?;
        if let Some(dir) = &args.pictures {
            // A file that is begun and goes again: a directory may be there and take none.
            let taken = fs::create_dir_all(dir).and_then(|()| OutFile::picture(&dir.join(PROBE)));
            taken.map_err(|e| Error::Usage(format!("--pictures {}: {e}", dir.display())))?;
        }
        Ok(Files { page, pictures: args.pictures.clone() })
    }

    /// Writes what these studies gave: all that they were asked for, if `is_whole`. A page
    /// that is there is not replaced by one that is not whole, which is told as an error.
    pub fn write(self, ran: &[Ran], is_whole: bool) -> Result<(), Error> {
        let mut all = Ok(());
        if let Some(file) = self.page {
            let name = file.path().display().to_string();
            if !is_whole && file.path().exists() {
                let text = format!("{name} stays as it was: the studies were stopped");
                all = Err(Error::Failed(text));
            } else {
                let doing = format!("write {name}");
                all = file.write(&page(ran)).map_err(|e| Error::system(&doing, &e));
            }
        }
        let Some(dir) = self.pictures else { return all };
        let outcomes = ran.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
        for picture in outcomes.flat_map(|outcome| &outcome.pictures) {
            let path = dir.join(format!("{}.svg", picture.name));
            let written = OutFile::picture(&path).and_then(|file| file.write(&picture.svg));
            let doing = format!("write {}", path.display());
            all = both(all, written.map_err(|e| Error::system(&doing, &e)));
        }
        all
    }
}

/// The name of a picture that no study draws.
const PROBE: &str = ".ssdkit.svg";

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
        all: Value::Null,
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(e) => return Chapter { verdict: format!("could not be run: {e}"), ..empty },
    };
    let (passed, failed, not_gated) = outcome.tally();
    let (manifest, picture) =
        (&outcome.manifest, |p: &super::Picture| (p.caption.clone(), p.svg.clone()));
    let step = |step: &Step| (step.what.clone(), step.command.clone());
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
        all: configurations(&manifest.steps),
        ..empty
    }
}

/// What was set in these steps, each configuration once.
fn configurations(steps: &[Step]) -> Value {
    let mut all: Vec<(&Value, Vec<&str>)> = Vec::new();
    for Step { what, configuration, .. } in steps {
        match all.iter_mut().find(|(known, _)| *known == configuration) {
            Some((_, of)) => of.push(what),
            None => all.push((configuration, vec![what])),
        }
    }
    all.into_iter().map(|(set, of)| json!({ "what": of, "configuration": set })).collect()
}

fn claim(row: &Row) -> Claim {
    let (mark, verdict) = match row.verdict() {
        Verdict::Pass => (Mark::Pass, "pass".into()),
        Verdict::Fail => {
            let why = row.failed_since().map_or(String::new(), |why| format!(": {why}"));
            (Mark::Fail, format!("fail{why}"))
        }
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
            Row::sign("fig. 2", "fails", "x", HOSTILE, one(), false).explained("<why>"),
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
            "<td class=\"verdict fail\">fail: &lt;why&gt;</td>",
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
    fn a_configuration_stands_there_once() {
        let step = |what: &str, set: u32| {
            let configuration = json!({ "set": set });
            Step { what: what.into(), command: String::new(), configuration, notes: vec![] }
        };
        let all = configurations(&[step("a", 1), step("b", 2), step("c", 1)]);
        let of = |what: &[&str], set: u32| json!({ "what": what, "configuration": { "set": set } });
        assert_eq!(all, json!([of(&["a", "c"], 1), of(&["b"], 2)]));
    }

    #[test]
    fn a_directory_that_takes_no_picture_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "mine").unwrap();
        for pictures in [file.clone(), file.join("below"), "/proc".into()] {
            let report = Some(dir.path().join("page.html"));
            let args =
                StudyArgs { report, pictures: Some(pictures.clone()), ..StudyArgs::default() };
            let error = Files::new(&args).err().expect("it takes none");
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(&pictures.display().to_string()), "{error}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        let made = dir.path().join("a/b");
        Files::new(&StudyArgs { pictures: Some(made.clone()), ..StudyArgs::default() }).unwrap();
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
    }

    #[test]
    fn a_foreign_picture_stops_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut ran = ran(&[ODD]);
        let picture =
            |name| super::super::Picture { name, caption: "".into(), svg: "<svg/>".into() };
        ran[0].1.as_mut().unwrap().pictures = ["a", "b", "c"].map(picture).into();
        fs::write(at("a.svg"), "mine").unwrap();
        fs::create_dir(at("c.svg")).unwrap();
        let pictures = Some(dir.path().into());
        let files = Files::new(&StudyArgs { pictures, ..StudyArgs::default() }).unwrap();
        let error = files.write(&ran, true).unwrap_err().to_string();
        assert!(error.contains("a.svg") && error.contains("c.svg"), "{error}");
        assert!(!error.contains("b.svg"), "{error}");
        let has = |name| fs::read_to_string(at(name)).unwrap();
        assert_eq!((&*has("a.svg"), &*has("b.svg")), ("mine", "<svg/>"));
    }

    /// Of studies that somebody stopped there is less than all.
    #[test]
    fn a_part_takes_no_whole_page_s_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        let args = StudyArgs { report: Some(path.clone()), ..StudyArgs::default() };
        let write = |ran: &[Ran], is_whole| Files::new(&args).unwrap().write(ran, is_whole);
        let has = || fs::read_to_string(&path).unwrap();
        write(&ran(&[ODD]), false).unwrap();
        write(&ran(&[BROKEN, ODD]), true).unwrap();
        let whole = has();
        let error = write(&ran(&[ODD]), false).unwrap_err();
        assert!(error.exit_code() == 1 && error.to_string().contains("stays as it was"), "{error}");
        assert!(has() == whole && whole.contains("study all"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn what_went_wrong_is_told_of_each() {
        let problem = problem(&ran(&[BROKEN, ODD])).unwrap();
        assert!(problem.contains("study broken could not be run: no <valgrind>"), "{problem}");
        assert!(problem.contains("study odd: 1 of 3 rows failed: fails"), "{problem}");
        assert_eq!(super::problem(&[]), None);
    }
}
