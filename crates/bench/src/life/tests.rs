//! Lives of small drives.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

const DRIVE: &str = "mem:tlc,groups=1,pus=2,pages=48,size=32M,store=none,errors=true,\
                     endurance_cliff=false";

fn life(keys: &str, course: Course) -> Vec<Window> {
    let drive = format!("{DRIVE}{keys}");
    let line = ["bench", &drive, "--rw", "randrw", "--qd", "4", "--seed", "5"];
    live(&Line::parse_from(line).args, &course, &mut Watch::quiet()).unwrap()
}

const DAY: u64 = 86_400_000_000_000;
const COURSE: Course = Course { windows: 3, bursts: 4, requests: 2000, rest: DAY, tend: DAY / 4 };

#[test]
fn a_life_is_the_same_each_time_and_takes_its_time() {
    let told = || life("", COURSE).iter().map(Window::to_json).collect::<Vec<_>>();
    let windows = told();
    assert_eq!(windows, told());
    assert_eq!(windows.len(), 3);
    for (n, window) in (1u64..).zip(&windows) {
        let days = window["seconds"].as_f64().unwrap() / 86_400.0;
        assert!((days - 4.0 * n as f64).abs() < 0.01, "{days}");
        let requests =
            window["read"]["n"].as_u64().unwrap() + window["write"]["n"].as_u64().unwrap();
        assert_eq!(requests, 8000);
        assert_eq!(window["failed_requests"], 0);
    }
    let wear = |n: usize| windows[n]["wear_mean"].as_f64().unwrap();
    assert!(wear(0) < wear(1) && wear(1) < wear(2));
}

/// Rest ages data: reads are repeated after a long one, and the drive refreshes.
#[test]
fn data_age_while_the_drive_rests() {
    let retried = |rest| {
        let windows =
            life(",endurance=30,rber_base=2e-3", Course { rest, tend: rest.min(DAY), ..COURSE });
        let of = |window: &Window| {
            let errors = window.to_json();
            (
                errors["flash_errors"]["retries"].as_u64().unwrap_or(0),
                errors["refreshed_chunks"].as_u64().unwrap(),
            )
        };
        windows.iter().map(of).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    };
    let (short, long) = (retried(1_000_000), retried(400 * DAY));
    assert_eq!(short, (0, 0));
    assert!(long.0 > 0 || long.1 > 0, "{long:?}");
}

/// A drive whose erases fail takes no more writes in the end, and its windows end.
#[test]
fn a_life_ends_with_the_drive() {
    let course = Course { windows: 40, requests: 10_000, rest: 1_000_000, tend: DAY, ..COURSE };
    let windows = life(",endurance=20,erase_failure=0.2", course);
    let last = windows.last().unwrap();
    assert!(windows.len() < 40 && last.read_only, "{}", windows.len());
    assert!(windows.iter().rev().skip(1).all(|window| !window.read_only));
    assert!(last.to_json()["grown_bad"].as_u64().unwrap() > 0);
}

/// A stripe of four has a row of parity for three of data.
#[test]
fn parity_is_in_write_amplification() {
    let drive = "mem:tlc,groups=1,pus=4,pages=48,size=64M,spare=0.3,store=none,parity=4";
    let line = ["bench", drive, "--rw", "randrw", "--qd", "4"];
    for window in live(&Line::parse_from(line).args, &COURSE, &mut Watch::quiet()).unwrap() {
        let amplification = window.to_json()["write_amplification"].as_f64().unwrap();
        assert!(amplification > 1.3, "{amplification}");
    }
}

/// What the flash cannot read and parity rebuilds is not lost; what nothing rebuilds is.
#[test]
fn what_parity_rebuilds_is_not_lost() {
    let lived = |rber: &str| {
        let keys = "pus=4,pages=48,size=64M,spare=0.3,store=none,errors=true,parity=4,\
                    factory_bad=0,retention_time=1000000000s,rber_base=";
        let drive = format!("mem:tlc,groups=1,{keys}{rber}");
        let line = ["bench", &drive, "--rw", "randrw", "--qd", "4", "--seed", "5"];
        let course = Course { rest: DAY / 1440, tend: DAY / 1440, ..COURSE };
        let args = Line::parse_from(line).args;
        let windows = live(&args, &course, &mut Watch::quiet()).unwrap();
        let lost: Vec<bool> = windows.iter().map(|window| window.lost_at.is_some()).collect();
        let told: Vec<Value> = windows.iter().map(Window::to_json).collect();
        let sum = |of: fn(&Value) -> &Value| told.iter().filter_map(|w| of(w).as_u64()).sum();
        let failed: u64 = sum(|window| &window["flash_errors"]["failed_blocks"]);
        let gone: u64 = sum(|window| &window["lost_blocks"]);
        (lost, failed > 0, gone > 0)
    };
    assert_eq!(lived("0.035"), (vec![false; 3], true, false));
    assert_eq!(lived("0.04"), (vec![true; 3], true, true));
}
