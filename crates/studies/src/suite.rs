//! `ssdkit study all`: studies one after the other.
//!
//! Guarantees: one that fails keeps no other from being run, and is told of in the text,
//! in JSON and on the page; what was measured is told, whatever happened then. When somebody
//! stops it, those to come are not begun, and a page that is there stays as it is. Fails, after all was printed, when a judged row
//! did not pass or a study could not be run.

use std::io::Write;

use serde_json::{Value, json};

use super::page::{Files, Ran, problem, summary};
use super::{Study, StudyArgs, Verdict, both};
use drive::error::Error;
use load::watch::Watch;

/// What all of them are called where a study's name stands.
pub const NAME: &str = "all";

/// Runs these studies, and prints what they give to `out`: text as soon as it is there.
pub fn run(studies: &[Study], args: &StudyArgs, out: &mut dyn Write) -> Result<(), Error> {
    if args.options.watched.is_some() {
        return Err(Error::Usage("a case that is watched is of one study".into()));
    }
    let files = Files::new(args)?;
    let mut watch = Watch::terminal(None)?;
    watch.end();
    let ran = run_each(studies, args, &mut watch, out)?;
    // Of what was stopped there is less than all.
    let written = files.write(&ran, watch.look(1.0));
    if args.json {
        writeln!(out, "{:#}", to_json(&ran))?;
    } else {
        write_summary(&ran, out)?;
    }
    out.flush()?;
    let went = problem(&ran).map_or(Ok(()), |problem| Err(Error::Failed(problem)));
    both(went, written)
}

/// Runs each, as long as `watch` lets it.
fn run_each(
    studies: &[Study],
    args: &StudyArgs,
    watch: &mut Watch,
    out: &mut dyn Write,
) -> Result<Vec<Ran>, Error> {
    let mut ran = Vec::new();
    for study in studies {
        let mut own = watch.another();
        let outcome = match own.look(0.0) {
            true => study.measure(&args.options, &mut own),
            false => Err(Error::Failed("stopped before it began".into())),
        };
        own.end();
        if !args.json {
            match &outcome {
                Ok(outcome) => outcome.write_text(out)?,
                Err(e) => writeln!(out, "study {}: could not be run: {e}", study.name)?,
            }
            writeln!(out)?;
            out.flush()?;
        }
        ran.push((*study, outcome));
    }
    Ok(ran)
}

/// What came of each, and of all.
fn write_summary(ran: &[Ran], out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "all studies: {}", summary(ran))?;
    for (study, outcome) in ran {
        match outcome {
            Ok(outcome) => {
                let (passed, failed, not_gated) = outcome.tally();
                writeln!(
                    out,
                    "  {:<12} {passed} passed, {failed} failed, {not_gated} not gated",
                    study.name
                )?;
                let failed = outcome.rows.iter().filter(|row| row.verdict() == Verdict::Fail);
                for row in failed {
                    writeln!(out, "{:15}failed: {} ({})", "", row.what(), row.figure())?;
                }
            }
            Err(e) => writeln!(out, "  {:<12} could not be run: {e}", study.name)?,
        }
    }
    Ok(())
}

/// For programs: a list of what each gives alone, or why it gives nothing.
fn to_json(ran: &[Ran]) -> Value {
    let one = |(study, outcome): &Ran| match outcome {
        Ok(outcome) => outcome.to_json(),
        Err(e) => json!({ "study": study.name, "about": study.about, "error": e.to_string() }),
    };
    let tallies = ran.iter().filter_map(|(_, outcome)| Some(outcome.as_ref().ok()?.tally()));
    let (passed, failed, not_gated) =
        tallies.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
    let not_run: Vec<&str> =
        ran.iter().filter(|(_, outcome)| outcome.is_err()).map(|(study, _)| study.name).collect();
    json!({
        "studies": ran.iter().map(one).collect::<Vec<_>>(),
        "passed": passed,
        "failed": failed,
        "not_gated": not_gated,
        "not_run": not_run,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::page::tests::{BROKEN, ODD};
    use super::*;

    fn all(args: &StudyArgs) -> (String, Error) {
        let mut out = Vec::new();
        let error = run(&[BROKEN, ODD], args, &mut out).unwrap_err();
        (String::from_utf8(out).unwrap(), error)
    }

    #[test]
    fn one_that_fails_keeps_no_other_from_being_run() {
        let (text, error) = all(&StudyArgs::default());
        assert!(text.starts_with("study broken: could not be run: no <valgrind>\n"), "{text}");
        assert!(text.contains("study odd: "), "{text}");
        let end = "all studies: 1 passed, 1 failed, 1 not gated; 1 study could not be run\n";
        assert!(text.contains(end), "{text}");
        assert_eq!(error.exit_code(), 1);
        let error = error.to_string();
        assert!(error.contains("broken") && error.contains("odd"), "{error}");
    }

    #[test]
    fn json_has_each_and_a_page_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let report = Some(dir.path().join("all.html"));
        let (text, _) = all(&StudyArgs { json: true, report, ..StudyArgs::default() });
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["studies"][0]["error"], "no <valgrind>");
        assert_eq!(json["studies"][1]["rows"].as_array().unwrap().len(), 3);
        assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
        assert_eq!(json["not_run"], json!(["broken"]));
        let page = std::fs::read_to_string(dir.path().join("all.html")).unwrap();
        assert!(page.contains("no &lt;valgrind&gt;") && page.contains("ssdkit study all"));
    }

    #[test]
    fn when_it_is_stopped_those_to_come_are_not_begun() {
        const NEVER: Study = Study { name: "never", about: "a study", run: |_| panic!("it began") };
        let mut stopped = Watch::until(Duration::ZERO);
        let ran = run_each(&[NEVER], &StudyArgs::default(), &mut stopped, &mut Vec::new()).unwrap();
        assert!(problem(&ran).unwrap().contains("study never could not be run: stopped"));
    }

    #[test]
    fn what_is_no_page_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("thesis.html");
        std::fs::write(&path, "mine").unwrap();
        let report = Some(path.clone());
        let (text, error) = all(&StudyArgs { report, ..StudyArgs::default() });
        assert_eq!((text.as_str(), error.exit_code()), ("", 2));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "mine");
    }
}
