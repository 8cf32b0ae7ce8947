//! Words for the user on standard error.
//!
//! Guarantees: what is quoted from a file, a name or a peer neither steers the
//! terminal nor fills it, and a standard error that cannot be written to stops
//! nobody. Nothing here fails.

use std::fmt::Display;
use std::io::{self, Write};

/// The most characters of what is said.
const MOST: usize = 1000;
/// The most lines of it.
const LINES: usize = 10;

/// Tells the user, where that is possible.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "ssdkit: {}", harmless(&text.to_string()));
}

/// Characters that are not seen and change how others are shown.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text of a few lines without anything in it that is not shown as it is.
pub fn harmless(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.by_ref().take(LINES).collect::<Vec<_>>().join("\n");
    let mut shown = String::new();
    for c in first.chars().take(MOST) {
        match c {
            '\n' => shown.push(c),
            c if is_hidden(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    if lines.next().is_some() || first.chars().nth(MOST).is_some() {
        shown.push('…');
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
        assert!(long.ends_with('…') && long.len() < 10 * MOST);
        assert_eq!(harmless(&"x\n".repeat(2000)).lines().count(), LINES);
    }
}
