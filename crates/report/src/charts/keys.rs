//! What colours mean, below a picture, where it hides nothing.

use plotters::prelude::*;

use super::{Area, Drawn, FONT, SIZE};

/// A name, and its colour.
pub type Key = (String, RGBColor);

/// How high a line of them is, and how wide a character at most.
const LINE: u32 = 20;
const CHARACTER: u32 = 7;
/// Left of all.
const LEFT: u32 = 82;

/// Keys of a line: as many as have room, so that none is over another.
fn in_line(keys: &[Key]) -> u32 {
    let longest = keys.iter().map(|(name, _)| name.chars().count() as u32).max().unwrap_or(0);
    ((SIZE.0 - LEFT) / (CHARACTER * longest + 34)).clamp(1, 8)
}

/// How high they are, in pixels.
pub fn height(keys: &[Key]) -> u32 {
    match keys.len() as u32 {
        0 => 0,
        keys_of => LINE * keys_of.div_ceil(in_line(keys)) + 8,
    }
}

/// Draws them.
pub fn add(area: &Area<'_>, keys: &[Key]) -> Drawn {
    let each = in_line(keys);
    let wide = (SIZE.0 - LEFT) / each;
    for (n, (name, colour)) in (0..).zip(keys) {
        let (x, y) = ((LEFT + n % each * wide) as i32, (n / each * LINE) as i32);
        area.draw(&Rectangle::new([(x, y + 2), (x + 14, y + 15)], colour.filled()))?;
        area.draw(&Text::new(name.clone(), (x + 20, y + 2), (FONT, 13)))?;
    }
    Ok(())
}
