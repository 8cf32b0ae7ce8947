//! What stands below pictures: whole sentences, each of which says all that it means.

use crate::run::{Programmed, Row, Run};

/// The caption of a picture of these runs.
pub fn of(picture: &str, runs: &[Run]) -> String {
    let more = match picture {
        "rate" | "bands" => broken(runs),
        "amplification" | "over-time" => beside(runs).map(|what| format!("Not in it: {what}.")),
        "programmed" => programmed(runs),
        "dies" => planes(runs),
        "valid" => states(runs),
        _ => None,
    };
    [Some(shows(picture).to_owned()), more].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn shows(picture: &str) -> &'static str {
    match picture {
        "latency" => {
            "Latency that so many of all requests stay below. Both scales are logarithmic: each \
             step to the right leaves a tenth of the requests. Dashed: fewer than ten requests \
             are beyond."
        }
        "distribution" => "Share of requests whose latency is in each eighth of a power of two.",
        "rate" => "Requests a second over drive time.",
        "bands" => "Latency over drive time: the median, and dashed the 99.9th percentile.",
        "amplification" => {
            "Blocks programmed for each that the host wrote, in the whole run, by reason."
        }
        "over-time" => "Blocks programmed for each that the host wrote, over drive time.",
        "programmed" => {
            "Blocks programmed for each that the host wrote, over drive time, by reason."
        }
        "tail" => {
            "What the slowest requests waited for, over drive time: shares of the time that the \
             sixteen slowest of each row took together."
        }
        "dies" => {
            "Part of the time in which the array of a die worked, over drive time: a line for \
             each die, by group and unit."
        }
        "wear" => {
            "Erases of each chunk at the end of the run: a line for each die, by group and unit."
        }
        "valid" => {
            "Part of each chunk that is valid at the end of the run: a line for each die, by \
             group and unit."
        }
        "depth" => "Requests a second by how many are outstanding, all else being the same.",
        _ => "",
    }
}

fn rows(runs: &[Run]) -> impl Iterator<Item = &Row> {
    runs.iter().flat_map(|run| &run.series)
}

/// Whether there is time in which no request ended.
fn is_silent(runs: &[Run]) -> bool {
    rows(runs).any(|row| row.iops <= 0.0)
}

fn broken(runs: &[Run]) -> Option<String> {
    is_silent(runs).then(|| "Lines are broken where no request ended.".into())
}

/// What is programmed beside what write amplification counts.
fn beside(runs: &[Run]) -> Option<&'static str> {
    let any = |blocks: fn(&Programmed) -> f64| {
        rows(runs).filter_map(|row| row.programmed.as_ref()).any(|row| blocks(row) > 0.0)
    };
    match (any(|row| row.parity), any(|row| row.folds)) {
        (true, true) => Some("parity, and folds of the SLC cache"),
        (true, false) => Some("parity"),
        (false, true) => Some("folds of the SLC cache"),
        (false, false) => None,
    }
}

fn programmed(runs: &[Run]) -> Option<String> {
    let beside = beside(runs)
        .map(|what| format!("On top, and not in what is called write amplification: {what}."));
    let silent = is_silent(runs).then(|| {
        "What the drive did while no request ended is told where that time began.".to_owned()
    });
    let all: Vec<String> = beside.into_iter().chain(silent).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

fn planes(runs: &[Run]) -> Option<String> {
    let busy = runs.iter().filter_map(|run| run.dies.as_ref()).flat_map(|dies| &dies.busy);
    busy.flatten().any(|&busy| busy > 100.0).then(|| {
        "Planes that read side by side count each, so that there may be more than 100 %.".into()
    })
}

fn states(runs: &[Run]) -> Option<String> {
    let mut chunks = runs.iter().filter_map(|run| run.chunks.as_ref());
    chunks
        .any(|chunks| chunks.valid.is_none())
        .then(|| "Of a drive with parity only the states of its chunks are told.".into())
}
