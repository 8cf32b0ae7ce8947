//! Bars of the reasons why blocks were programmed.

use plotters::prelude::*;
use plotters::style::RelativeSize;

use super::axes::short_count;
use super::keys::{self, Key};
use super::{Area, COLOURS, Drawn, FONT, SIZE};
use crate::run::{Amplification, Run};

/// Why blocks are programmed, and the colour of each.
pub const REASONS: [(&str, RGBColor); 6] = [
    ("the host's", COLOURS[0]),
    ("collection", COLOURS[1]),
    ("padding", COLOURS[2]),
    ("metadata", COLOURS[3]),
    ("parity", COLOURS[4]),
    ("folds", COLOURS[5]),
];

/// Bars of the reasons, one for each run.
pub fn amplification(runs: &[Run]) -> Option<String> {
    let of = |(run, one): (usize, &Run)| Some((run, one.write_amplification?));
    let bars: Vec<_> = runs.iter().enumerate().filter_map(of).collect();
    if bars.is_empty() {
        return None;
    }
    let sum = |w: &Amplification| w.user + w.gc + w.padding + w.metadata;
    let most = bars.iter().map(|(_, w)| sum(w)).fold(0.0, f64::max);
    let keys: Vec<Key> = REASONS[..4].iter().map(|&(name, of)| (name.to_owned(), of)).collect();
    let mut svg = String::new();
    {
        let size = (SIZE.0, SIZE.1 + keys::height(&keys));
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let (above, below) = area.split_vertically(SIZE.1);
        bar_chart(&above, runs.len(), &bars, most).ok()?;
        keys::add(&below, &keys).ok()?;
        above.present().ok()?;
    }
    Some(svg)
}

fn bar_chart(area: &Area<'_>, runs: usize, bars: &[(usize, Amplification)], most: f64) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(RelativeSize::Width(0.1))
        .build_cartesian_2d(0.0..most.max(1.0) * 1.06, 0.0..runs as f64)?;
    let name = |y: &f64| {
        let run = runs as f64 - y;
        if (run - run.round()).abs() > 0.4 {
            format!("[{}]", run.floor() as u64 + 1)
        } else {
            "".into()
        }
    };
    chart
        .configure_mesh()
        .x_desc("blocks for each of the host's")
        .x_label_formatter(&|v| short_count(*v))
        .y_label_formatter(&name)
        .y_labels(2 * runs + 1)
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 13))
        .draw()?;
    for (number, (_, colour)) in REASONS.into_iter().take(4).enumerate() {
        let bar = |(run, w): &(usize, Amplification)| {
            let parts = [w.user, w.gc, w.padding, w.metadata];
            let begin: f64 = parts[..number].iter().sum();
            let top = (runs - run) as f64;
            Rectangle::new(
                [(begin, top - 0.8), (begin + parts[number], top - 0.2)],
                colour.filled(),
            )
        };
        chart.draw_series(bars.iter().map(bar))?;
    }
    Ok(())
}
