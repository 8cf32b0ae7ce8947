//! The maps as a picture: SVG, with a colour for each strategy.

use std::fmt::Write;

use measure::units;

use super::map::{By, Map};
use super::program::Strategy;

/// Of a cell, in pixels.
const CELL: (usize, usize) = (62, 26);
/// Left of the cells and above them, and between two maps.
const LEFT: usize = 76;
const ABOVE: usize = 58;
const BETWEEN: usize = 84;

fn colour(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Block => "#1f77b4",
        Strategy::Yield => "#ff7f0e",
        Strategy::Checkpoint => "#2ca02c",
        Strategy::Free => "#9467bd",
        Strategy::Asynchronous => "#8c564b",
        Strategy::Prefetch => "#d62a28",
    }
}

/// Both maps below each other.
pub fn svg(map: &Map, title: &str) -> String {
    let (columns, rows) = (map.columns(), map.rows());
    let height = rows.len() * CELL.1;
    let size = (LEFT + columns.len() * CELL.0 + 150, ABOVE + 2 * height + BETWEEN + 20);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\">{title}</text>\n",
        size.0, size.1
    );
    for (n, by) in [By::Time, By::Processor].into_iter().enumerate() {
        let top = ABOVE + n * (height + BETWEEN);
        let _ = writeln!(svg, "<text x=\"8\" y=\"{}\">{}</text>", top - 20, by.says());
        for (x, instructions) in columns.iter().enumerate() {
            let label = units::count(*instructions as f64);
            let at = (LEFT + x * CELL.0 + CELL.0 / 2, top - 5);
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{label}</text>",
                at.0, at.1
            );
        }
        for (y, row) in rows.iter().enumerate() {
            let at = top + y * CELL.1;
            let device = units::time_ns(row[0].device() as f64);
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555555\">{device}</text>",
                LEFT - 6,
                at + 17
            );
            for (x, cell) in row.iter().enumerate() {
                let winners = cell.winners(by, true);
                let part = CELL.0 as f64 / winners.len().max(1) as f64;
                for (n, winner) in winners.iter().enumerate() {
                    let left = (LEFT + x * CELL.0) as f64 + n as f64 * part;
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{left:.1}\" y=\"{at}\" width=\"{part:.1}\" height=\"{}\" \
                         fill=\"{}\" stroke=\"#ffffff\"/>",
                        CELL.1,
                        colour(*winner)
                    );
                }
            }
        }
    }
    for (n, strategy) in map.contenders().into_iter().enumerate() {
        let at = (LEFT + columns.len() * CELL.0 + 14, ABOVE + 18 * n);
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            at.0,
            at.1,
            colour(strategy),
            at.0 + 18,
            at.1 + 10,
            strategy.name()
        );
    }
    let below = size.1 - 10;
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"{below}\" fill=\"#555555\">down: what the device takes; across: \
         instructions between two I/Os; two colours: even within 2 %</text>\n</svg>"
    );
    svg
}
