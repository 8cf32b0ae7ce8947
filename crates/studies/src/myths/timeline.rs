//! Figure 1 as a picture: a lane for the channel and one for each chip, for reads and for
//! writes, to one scale.

use std::fmt::Write;

use super::super::Picture;
use super::chip::{Ended, Span};

const WIDTH: f64 = 860.0;
/// Where lanes begin, and how high one is.
const LEFT: f64 = 90.0;
const LANE: f64 = 22.0;
/// Of what is on the channel, and of what is in a chip.
const TRANSFER: &str = "#1f77b4";
const ARRAY: &str = "#ff7f0e";

/// The picture of reads, and of writes.
pub fn picture([reads, writes]: &[Vec<Ended>; 2]) -> Picture {
    let parts =
        [("reads: the channel is busy all the time", reads), ("writes: the chips are", writes)];
    let begin = |ended: &[Ended]| ended.iter().map(|one| one.span().0).min().unwrap_or(0);
    let long =
        |ended: &[Ended]| ended.iter().map(|one| one.span().1).max().unwrap_or(0) - begin(ended);
    let longest = long(reads).max(long(writes)).max(1);
    let units = 1 + reads.iter().chain(writes).map(|one| one.unit).max().unwrap_or(0);
    let height = 2.0 * (units as f64 + 2.5) * LANE + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut top = 8.0;
    for (what, ended) in parts {
        let scale = Scale { begin: begin(ended), each: (WIDTH - LEFT - 10.0) / longest as f64 };
        text(&mut svg, LEFT, top + 14.0, what);
        lanes(&mut svg, ended, units, top + LANE, &scale);
        top += (units as f64 + 2.5) * LANE;
    }
    legend(&mut svg, height - 14.0, longest);
    svg.push_str("</svg>\n");
    let caption = "Rows of four chips on one channel, each chip with two commands at a time: what \
                   the channel and the chips do. As in the paper's figure 1.";
    Picture { name: "myths-timeline", caption: caption.into(), svg }
}

/// Where a time lies.
struct Scale {
    begin: u64,
    each: f64,
}

impl Scale {
    fn bar(&self, svg: &mut String, (begin, end): Span, top: f64, colour: &str) {
        let x = LEFT + (begin - self.begin) as f64 * self.each;
        let width = (end - begin) as f64 * self.each;
        let height = LANE - 5.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" \
             fill=\"{colour}\" stroke=\"#fff\"/>"
        );
    }
}

fn lanes(svg: &mut String, ended: &[Ended], units: usize, top: f64, scale: &Scale) {
    let lane = |number: usize| top + number as f64 * LANE;
    text(svg, 10.0, lane(0) + 13.0, "channel");
    (0..units)
        .for_each(|unit| text(svg, 10.0, lane(unit + 1) + 13.0, &format!("chip {}", unit + 1)));
    for one in ended {
        scale.bar(svg, one.transfer(), lane(0), TRANSFER);
        scale.bar(svg, one.transfer(), lane(one.unit + 1), TRANSFER);
        scale.bar(svg, one.array(), lane(one.unit + 1), ARRAY);
    }
}

fn legend(svg: &mut String, y: f64, longest: u64) {
    let whole = format!("all of the width: {}", measure::units::time_ns(longest as f64));
    for (x, colour, what) in
        [(LEFT, TRANSFER, "transfer"), (LEFT + 110.0, ARRAY, "read or program in the chip")]
    {
        let top = y - 10.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{top}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        );
        text(svg, x + 18.0, y, what);
    }
    text(svg, LEFT + 330.0, y, &whole);
}

/// Words of ours, which have nothing that an SVG takes for its own.
fn text(svg: &mut String, x: f64, y: f64, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#222\">{words}</text>");
}
