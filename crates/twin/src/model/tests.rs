//! Tests of the model, and of a fit to it.

use load::watch::Watch;

use super::*;
use crate::points::Rw;

fn run(rw: Rw, read_percent: u8, qd: u32) -> Run {
    Run { path: "kernel".into(), rw, read_percent, bs: 4096, qd }
}

#[test]
fn a_lone_read_is_the_profile_s_and_the_path_s() {
    let model = Model::new("ref", &[], 1).unwrap();
    let host = Parameter::parse("host_kernel=0us..20us", model.base()).unwrap();
    let candidate = model.candidate(&[host], &[0.5]).unwrap();
    let alone = run(Rw::Randread, 100, 1);
    let mut other = alone.clone();
    other.path = "bypass".into();
    let given = model.predict(&candidate, &[alone, other], &Watch::quiet()).unwrap();
    let lone = model.base().lone_read() as f64 / 1e3;
    assert_eq!(given[0].of(Direction::Read).mean_us, Some(lone + 10.0));
    assert_eq!(given[1].of(Direction::Read).mean_us, Some(lone), "a path that adds nothing");
    let iops = given[1].of(Direction::Read).iops.unwrap();
    assert!((iops * lone / 1e6 - 1.0).abs() < 1e-3, "a closed loop of one: {iops}");
    assert_eq!(given[0].of(Direction::Write), &Figures::default());
}

#[test]
fn the_same_is_given_twice_and_mixed_runs_have_both() {
    let set = [("pages".to_string(), "48".to_string())];
    let model = Model::new("tlc", &set, 7).unwrap();
    let candidate = model.candidate(&[], &[]).unwrap();
    let runs = [run(Rw::Randrw, 75, 16), run(Rw::Write, 0, 4)];
    let first = model.predict(&candidate, &runs, &Watch::quiet()).unwrap();
    // In another order, and so on other threads.
    let turned = [runs[1].clone(), runs[0].clone()];
    let second = model.predict(&candidate, &turned, &Watch::quiet()).unwrap();
    assert_eq!([first[0], first[1]], [second[1], second[0]]);
    let of = |direction| first[0].of(direction).iops.unwrap();
    let share = of(Direction::Read) / (of(Direction::Read) + of(Direction::Write));
    assert!((share - 0.75).abs() < 0.02, "{share}");
    assert!(first[1].of(Direction::Write).p99_us.is_some());
}

#[test]
fn what_is_no_drive_is_refused() {
    assert!(Model::new("nothing", &[], 1).is_err());
    let set = |key: &str, value: &str| [(key.to_string(), value.to_string())];
    assert!(Model::new("tlc", &set("raed", "1us"), 1).is_err());
    assert!(Model::new("tlc", &set("planes", "9"), 1).is_err());
}

/// The rate is the drive's, not that of a run that ends.
#[test]
fn a_deeper_queue_is_never_slower() {
    let model = Model::new("ref", &[("read".into(), "60us".into())], 3).unwrap();
    let candidate = model.candidate(&[], &[]).unwrap();
    let runs = [16, 64, 256, 1024].map(|qd| run(Rw::Randread, 100, qd));
    let given = model.predict(&candidate, &runs, &Watch::quiet()).unwrap();
    let rates: Vec<f64> = given.iter().map(|p| p.of(Direction::Read).iops.unwrap()).collect();
    assert!(rates.is_sorted_by(|a, b| *b > a * 0.99), "{rates:?}");
}

/// Who is to stop makes no drive any more, here one that cannot be.
#[test]
fn a_fit_that_is_stopped_begins_no_other_run() {
    let model = Model::new("ref", &[], 1).unwrap();
    let mut candidate = model.candidate(&[], &[]).unwrap();
    candidate.keys.push(("raed".into(), "1us".into()));
    let said = |watch: &Watch| {
        model.predict(&candidate, &[run(Rw::Randread, 100, 1)], watch).unwrap_err().to_string()
    };
    assert!(said(&Watch::quiet()).contains("raed"));
    assert!(said(&Watch::until(std::time::Duration::ZERO)).ends_with("it was stopped"));
}
