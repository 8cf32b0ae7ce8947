//! Words, numbers and signs of a text.

use crate::error::{Problem, What};
use crate::syntax::Place;

/// A part of the text that has a meaning of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'t> {
    /// A word or name.
    Word(&'t str),
    /// A number; its unit, if any, is in it.
    Number(u64),
    /// A time, ns.
    Time(u64),
    /// A sign of one or two characters.
    Sign(&'static str),
    /// The end of the text.
    End,
}

impl Token<'_> {
    /// What it is, for who wrote it.
    pub fn told(self) -> String {
        match self {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("the number {number}"),
            Token::Time(ns) => format!("a time of {ns} ns"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the text".into(),
        }
    }
}

/// Characters of a word, at most: each problem may have some of them.
pub const MOST_WORD: usize = 128;

/// Signs; those of two characters first.
const SIGNS: [&str; 22] = [
    "==", "!=", "<=", ">=", "+=", "-=", "..", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")",
    "[", "]", ",", ";", ".",
];

/// Units of numbers.
pub const SIZES: [(&str, u64); 4] =
    [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// Units of times, in ns.
pub const TIMES: [(&str, u64); 5] =
    [("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// The next token from byte `at` on, and where it is. Takes time in proportion to what
/// it passes.
pub fn next(text: &str, at: usize) -> Result<(Token<'_>, Place), Problem> {
    let start = skip(text, at);
    let rest = &text[start..];
    let place = |length: usize| Place { start, end: start + length };
    let Some(first) = rest.chars().next() else { return Ok((Token::End, place(0))) };
    let length = rest.bytes().take_while(|&b| b.is_ascii_alphanumeric() || b == b'_').count();
    if first.is_ascii_digit() {
        return number(&rest[..length])
            .map(|token| (token, place(length)))
            .map_err(|what| Problem::new(what, place(length)));
    }
    if length > MOST_WORD {
        return Err(Problem::new(What::Word(MOST_WORD), place(length)));
    }
    if length > 0 {
        return Ok((Token::Word(&rest[..length]), place(length)));
    }
    match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        Some(sign) => Ok((Token::Sign(sign), place(sign.len()))),
        None => Err(Problem::new(What::Character(first), place(first.len_utf8()))),
    }
}

/// Where what is no space and no comment begins.
fn skip(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'#' => at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at),
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            _ => break,
        }
    }
    at
}

/// A number with its unit.
fn number(text: &str) -> Result<Token<'static>, What> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits);
    let number: u64 = digits.parse().map_err(|_| What::Large)?;
    let times = |factor: u64| {
        number.checked_mul(factor).filter(|&n| n <= i64::MAX as u64).ok_or(What::Large)
    };
    let of = |units: &[(&str, u64)]| units.iter().find(|(word, _)| *word == unit).map(|u| u.1);
    match (unit, of(&SIZES), of(&TIMES)) {
        ("", ..) => Ok(Token::Number(times(1)?)),
        (_, Some(factor), _) => Ok(Token::Number(times(factor)?)),
        (_, _, Some(factor)) => Ok(Token::Time(times(factor)?)),
        _ => Err(What::Unit(unit.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Token<'_>>, Problem> {
        let (mut at, mut tokens) = (0, Vec::new());
        loop {
            let (token, place) = next(text, at)?;
            if token == Token::End {
                return Ok(tokens);
            }
            tokens.push(token);
            at = place.end;
        }
    }

    #[test]
    fn words_numbers_and_signs() {
        use Token::{Number, Sign, Time, Word};
        let tokens = all("a_1 # b\n<=4K..5ms").unwrap();
        assert_eq!(tokens, [Word("a_1"), Sign("<="), Number(4096), Sign(".."), Time(5_000_000)]);
        assert_eq!(all("7Q").unwrap_err().what, What::Unit("Q".into()));
        assert_eq!(all("9223372036854775808").unwrap_err().what, What::Large);
        assert_eq!(all("99999999T").unwrap_err().what, What::Large);
        assert_eq!(all(&"w".repeat(128)).unwrap().len(), 1);
        assert_eq!(all(&"w".repeat(129)).unwrap_err().what, What::Word(128));
        assert_eq!(all("é").unwrap_err().what, What::Character('é'));
    }
}
