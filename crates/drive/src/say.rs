//! Words for the user on standard error.
//!
//! Guarantees: what is quoted from a file, a name or a peer neither steers the
//! terminal nor fills it, and a standard error that cannot be written to stops
//! nobody. Nothing here fails.

use std::fmt::Display;
use std::io::{self, Write};

/// The most characters of what is said.
const MOST: usize = 2000;
/// The most lines of it.
const LINES: usize = 10;
/// Of what is cut this many characters and lines are of its end, which says what to do.
const END: usize = 200;
const END_LINES: usize = 4;

/// Tells the user, where that is possible.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "ssdkit: {}", harmless(&text.to_string()));
}

/// Characters that are not seen and change how others are shown.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Begin and end of what is longer than `most`, with `gap` between them.
fn cut<T: Copy>(all: Vec<T>, most: usize, end: usize, gap: T) -> Vec<T> {
    if all.len() <= most {
        return all;
    }
    let (begin, end) = (&all[..most - end], &all[all.len() - end..]);
    [begin, &[gap], end].concat()
}

/// A text of a few lines without anything in it that is not shown as it is. What is
/// too long is cut in its middle.
pub fn harmless(text: &str) -> String {
    let lines = cut(text.lines().collect(), LINES, END_LINES, "…").join("\n");
    let mut shown = String::new();
    for c in cut(lines.chars().collect(), MOST, END, '…') {
        match c {
            '\n' => shown.push(c),
            c if is_hidden(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_neither_steers_nor_fills_a_terminal() {
        for (text, shown) in [
            ("a\nb é ✓", "a\nb é ✓"),
            ("\u{1b}[31mred\r", "\\u{1b}[31mred\\u{d}"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
        ] {
            assert_eq!(harmless(text), shown);
        }
        let long = harmless(&"\u{7}".repeat(5000));
        assert!(long.contains('…') && long.len() < 10 * MOST);
        // The keys of a drive are told whole.
        let keys = harmless(&"key, ".repeat(300));
        assert!(!keys.contains('…'), "{keys}");
        let many = harmless(&format!("{}{}", "x\n".repeat(2000), "try '--help'"));
        assert!(many.lines().count() == LINES + 1 && many.ends_with("\nx\ntry '--help'"), "{many}");
        let long = harmless(&format!("drive '{}' is none: try '--help'", "x".repeat(3000)));
        assert!(long.starts_with("drive 'x") && long.ends_with("x' is none: try '--help'"));
    }
}
