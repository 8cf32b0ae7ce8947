//! What an error quotes of a text that was given: little of it, however long it is.

/// Characters of a line, or of a word, that are quoted.
const MOST: usize = 80;

/// The beginning of a word.
pub(crate) fn brief(word: &str) -> String {
    match word.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.into(),
    }
}

/// The line and the column of a byte, from 1, columns in characters; and the line around it
/// with a caret below.
pub(crate) fn around(text: &str, at: usize) -> ((usize, usize), String) {
    let is_place = |at: &usize| text.is_char_boundary(*at);
    let at = (0..=at.min(text.len())).rev().find(is_place).unwrap_or(0);
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[..start].matches('\n').count() + 1;
    let column = text[start..at].chars().count();
    let whole = text[start..].lines().next().unwrap_or("");
    let from = column.saturating_sub(MOST / 2);
    let (before, behind) = (if from > 0 { "…" } else { "" }, whole.chars().nth(from + MOST));
    let shown: String = whole.chars().skip(from).take(MOST).collect();
    let behind = if behind.is_some() { "…" } else { "" };
    let margin = line.to_string().len();
    let gap = before.chars().count() + column - from;
    let quoted = format!(
        "{:margin$} |\n{line} | {before}{shown}{behind}\n{:margin$} | {:gap$}^",
        "", "", ""
    );
    ((line, column + 1), quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_quoted_around_its_place() {
        let short = "a = 1\nbß = c\n";
        let at = short.find('c').unwrap();
        assert_eq!(around(short, at), ((2, 6), "  |\n2 | bß = c\n  |      ^".into()));
        assert_eq!(around(short, 999).0, (3, 1));
        assert_eq!(around("", 0), ((1, 1), "  |\n1 | \n  | ^".into()));
        let long = format!("a\n{}!{}", "ß".repeat(3000), "y".repeat(3000));
        let ((line, column), quoted) = around(&long, long.find('!').unwrap());
        assert_eq!((line, column), (2, 3001));
        let lines: Vec<&str> = quoted.lines().collect();
        let place = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().nth(place), Some('!'));
        assert!(lines[1].starts_with("2 | …ß") && lines[1].ends_with("y…"), "{quoted}");
        assert!(lines.iter().all(|line| line.chars().count() < MOST + 8), "{quoted}");
        assert_eq!(brief("word"), "word");
        assert_eq!(brief(&"ß".repeat(3000)).chars().count(), MOST + 1);
    }
}
