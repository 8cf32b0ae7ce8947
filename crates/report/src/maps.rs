//! What a report tells of each die and each chunk.
//!
//! It is told in lines, one for each die, by group and unit. Fails where lines are not of
//! one length, are more than any report of ours has, or have what is no number.

use serde::Deserialize;

use crate::run::MOST;

/// Dies, and spans of time or chunks of all dies, at most.
const MOST_DIES: usize = 1024;
const MOST_CELLS: usize = 65_536;

/// How busy each die was.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BusyLines")]
pub struct Dies {
    /// Units in a group.
    pub pus: u64,
    /// The end of each span, in seconds.
    pub ends: Vec<f64>,
    /// Of each die the part of each span in which it worked, in percent.
    pub busy: Vec<Vec<f64>>,
}

/// The chunks of each die at the end.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "ChunkLines")]
pub struct Chunks {
    /// Units in a group.
    pub pus: u64,
    /// Chunks that are told as one.
    pub each: u64,
    /// Their states.
    pub states: Vec<Vec<State>>,
    /// Their erases.
    pub erases: Vec<Vec<f64>>,
    /// The part of each that is valid, in percent, where that is told.
    pub valid: Option<Vec<Vec<f64>>>,
}

/// A chunk's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    Free,
    Open,
    Closed,
    Offline,
}

#[derive(Deserialize)]
struct BusyLines {
    pus: u64,
    ends: Vec<f64>,
    busy: Vec<String>,
}

#[derive(Deserialize)]
struct ChunkLines {
    pus: u64,
    each: u64,
    states: Vec<String>,
    erases: Vec<String>,
    valid: Option<Vec<String>>,
}

impl TryFrom<BusyLines> for Dies {
    type Error = String;

    fn try_from(lines: BusyLines) -> Result<Dies, String> {
        let BusyLines { pus, ends, busy } = lines;
        let rise = ends.iter().all(|&end| is_figure(end)) && ends.is_sorted();
        if !rise {
            return Err("the ends of `dies` do not rise".into());
        }
        Ok(Dies { pus, busy: numbers("`dies`", &busy, ends.len())?, ends })
    }
}

impl TryFrom<ChunkLines> for Chunks {
    type Error = String;

    fn try_from(lines: ChunkLines) -> Result<Chunks, String> {
        let ChunkLines { pus, each, states, erases, valid } = lines;
        let state = |letter| match letter {
            'f' => Ok(State::Free),
            'o' => Ok(State::Open),
            'c' => Ok(State::Closed),
            'x' => Ok(State::Offline),
            other => Err(format!("`{}` is no state of a chunk", other.escape_default())),
        };
        let line = |line: &String| line.chars().take(MOST_CELLS + 1).map(state).collect();
        let few = states.iter().take(MOST_DIES + 1);
        let states = few.map(line).collect::<Result<Vec<Vec<State>>, String>>()?;
        let cells = states.first().map_or(0, Vec::len);
        let is_even = states.iter().all(|line| line.len() == cells);
        let erases = numbers("`chunks`", &erases, cells)?;
        let valid = valid.map(|lines| numbers("`chunks`", &lines, cells)).transpose()?;
        let dies = valid.as_ref().map_or(erases.len(), Vec::len);
        if !is_even || erases.len() != states.len() || dies != states.len() {
            return Err("the lines of `chunks` are not of the same dies".into());
        }
        Ok(Chunks { pus, each, states, erases, valid })
    }
}

fn is_figure(x: f64) -> bool {
    (0.0..=MOST).contains(&x)
}

/// The numbers of lines, so many in each.
fn numbers(of: &str, lines: &[String], each: usize) -> Result<Vec<Vec<f64>>, String> {
    if lines.len() > MOST_DIES || lines.len() * each > MOST_CELLS {
        return Err(format!("{of} has more than {MOST_DIES} dies or {MOST_CELLS} figures"));
    }
    let number = |text: &str| text.parse().ok().filter(|&x| is_figure(x));
    let line = |line: &String| -> Result<Vec<f64>, String> {
        let all: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
        let right = all.filter(|all| all.len() == each);
        right.ok_or_else(|| format!("a line of {of} has not {each} figures from 0 on"))
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn lines_are_read_or_refused() {
        let dies = |ends: Value, busy: Value| {
            let told = json!({ "pus": 2, "ends": ends, "busy": busy });
            serde_json::from_value::<Dies>(told).map(|dies| dies.busy).map_err(|e| e.to_string())
        };
        assert_eq!(dies(json!([1.0, 2.0]), json!(["0 5", "99 100"])).unwrap()[1], [99.0, 100.0]);
        assert!(dies(json!([2.0, 1.0]), json!(["0 5"])).unwrap_err().contains("do not rise"));
        for line in ["0", "0 5 6", "0 -1", "0 x", "0 NaN", "0 1e99"] {
            assert!(dies(json!([1.0, 2.0]), json!([line])).unwrap_err().contains("2 figures"));
        }
        let many = vec!["0"; MOST_DIES + 1];
        assert!(dies(json!([1.0]), json!(many)).unwrap_err().contains("more than"));
        let chunks = |states: Value, erases: Value, valid: Value| {
            let told = json!({ "pus": 1, "each": 1, "states": states, "erases": erases,
                               "valid": valid });
            serde_json::from_value::<Chunks>(told).map_err(|e| e.to_string())
        };
        let all = chunks(json!(["fo", "cx"]), json!(["1 2", "3 4"]), json!(null)).unwrap();
        assert_eq!(all.states[1], [State::Closed, State::Offline]);
        assert!(all.valid.is_none());
        let wrong =
            |states: Value, erases: Value, valid: Value| chunks(states, erases, valid).unwrap_err();
        assert!(wrong(json!(["fy"]), json!(["1 2"]), json!(null)).contains("`y`"));
        assert!(wrong(json!(["ff", "f"]), json!(["1 2", "1 2"]), json!(null)).contains("lines of"));
        assert!(wrong(json!(["ff"]), json!(["1 2", "1 2"]), json!(null)).contains("lines of"));
        assert!(wrong(json!(["ff"]), json!(["1 2"]), json!([])).contains("lines of"));
        assert!(wrong(json!(["ff"]), json!(["1 2"]), json!(["1"])).contains("2 figures"));
    }
}
