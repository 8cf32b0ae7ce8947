//! Tests of the report, and of the file that a fit gives.

use flash::Profile;

use super::*;
use crate::points::{Direction, Run, Rw};
use crate::toml::profile_text;

fn compared(qd: u32, measured: f64, predicted: f64, part: Part) -> Compared {
    let run = Run { path: "kernel".into(), rw: Rw::Randread, read_percent: 100, bs: 4096, qd };
    let figures = |iops| Figures { iops: Some(iops), ..Figures::default() };
    let measured = figures(measured);
    let (drive, at) = ("d".into(), "m.csv:2".into());
    let point = Point { drive, run, direction: Direction::Read, measured, at };
    let beyond = (part == Part::Extrapolated).then(|| "qd 64 is outside 1 to 16".into());
    Compared { point, predicted: figures(predicted), part, beyond }
}

fn fitted(name: &str, value: &str, determined: bool) -> Fitted {
    let sensitivity = Sensitivity { lower: Some(0.2), higher: None, determined, at_end: false };
    let path = name.strip_prefix("host_").map(str::to_string);
    let (family, asked) = (path.is_none().then(|| "75us".into()), "1us..99us".into());
    Fitted { name: name.into(), path, asked, family, value: value.into(), sensitivity }
}

fn report() -> Report {
    let points = vec![
        compared(1, 100.0, 110.0, Part::Used),
        compared(16, 100.0, 80.0, Part::KeptBack),
        compared(64, 100.0, 300.0, Part::Extrapolated),
    ];
    Report {
        drive: "drive-a".into(),
        family: "ref".into(),
        set: vec![("pus".into(), "4".into())],
        files: vec!["m.csv".into()],
        ignored: vec!["m.csv: column `colour`".into()],
        parameters: vec![
            fitted("read", "50us", true),
            fitted("erase", "2ms", false),
            fitted("host_kernel", "3us", true),
        ],
        points,
        objective: 0.1,
        evaluations: 42,
        converged: false,
        dropped: Default::default(),
        folds: None,
        seed: 1,
        wall_seconds: 1.0,
    }
}

#[test]
fn groups_tell_medians_and_the_worst() {
    let points: Vec<Compared> =
        (1..=10).map(|n| compared(n, 100.0, 100.0 + f64::from(n), Part::Used)).collect();
    let group = Group::new("all", points.iter());
    let (median, p90) = group.off[0].unwrap();
    assert!((median - 0.055).abs() < 1e-9 && (p90 - 0.09).abs() < 1e-9, "{median} {p90}");
    let (median, _) = Group::new("odd", points[..3].iter()).off[0].unwrap();
    assert!((median - 0.02).abs() < 1e-9, "{median}");
    let (median, p90) = Group::new("one", points[..1].iter()).off[0].unwrap();
    assert!((median - 0.01).abs() < 1e-9 && median == p90, "{median}");
    assert_eq!((group.points, group.off[1]), (10, None));
}

#[test]
fn the_text_claims_nothing_that_was_not_measured() {
    let text = report().to_text();
    for says in [
        "not converged",
        "used: 1 point, IOPS 10.0 %",
        "kept back: 1 point, IOPS 20.0 %",
        "extrapolated: 1 point, IOPS 200.0 %",
        "not fitted: 2 points, IOPS 110.0 %",
        "qd 64 is outside 1 to 16",
        "not determined",
        "ignored: m.csv: column `colour`",
        "assumed: ",
    ] {
        assert!(text.contains(says), "{says}:\n{text}");
    }
    let json = report().to_json("x");
    assert_eq!(json["points"][2]["part"], "extrapolated");
    assert_eq!(json["parameters"][1]["determined"], false);
    assert_eq!(json["points"][0]["measured"]["iops"], 100.0);
    assert_eq!(json["groups"][0]["iops"]["median"].as_f64().map(|x| (x * 1e6).round()), Some(1e5));
}

#[test]
fn the_file_is_a_profile_that_says_where_it_comes_from() {
    let mut profile = Profile::builtin("ref").unwrap();
    profile.set("read", "50us").unwrap();
    profile.set("erase", "2ms").unwrap();
    let text = profile_text(&profile, &report());
    let back = Profile::from_toml(&text, "twin.toml").unwrap();
    assert_eq!(
        (back.timing.read[0], back.timing.erase, back.name.as_str()),
        (50_000, 2_000_000, "drive-a")
    );
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap().to_string();
    assert!(line("read = ").contains("# fitted in 1us..99us; tR"), "{text}");
    assert!(line("erase = ").contains("fitted in 1us..99us, not determined"), "{text}");
    assert!(!line("program = ").contains("fitted"));
    assert!(text.starts_with("# A twin of drive-a: family ref, fitted by ssdkit twin"));
    assert!(text.contains("# path kernel adds 3us to each request"));
}

/// A name is what somebody wrote into a file: it adds no key to the profile.
#[test]
fn a_name_of_several_lines_stays_a_name() {
    let family = Profile::builtin("ref").unwrap();
    for drive in ["x\n[geometry]\ngroups = 1\r# y", "\u{0}\u{1b}[31mred\u{9b}1m\u{202e} # z"] {
        let report = Report { drive: drive.into(), files: vec![drive.into()], ..report() };
        let text = profile_text(&family, &report);
        let profile = Profile::from_toml(&text, "twin").unwrap();
        assert_eq!((profile.name.as_str(), profile.dimensions), (drive, family.dimensions));
        let hidden = |c: char| c != '\n' && drive::say::is_hidden(c);
        let shown = Report { ignored: vec![drive.into()], ..report }.to_text();
        assert!(!shown.contains(hidden) && shown.contains("\\u{"), "{shown:?}");
    }
}
