//! The fields of a line, from front to back.
//!
//! Guarantees: no copy, no allocation; spaces around a field do not count. May fail: a
//! field that is missing, or no number.

use crate::error::Flaw;

/// What is left of a line.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// Between two fields; a space stands for any number of spaces and tabs.
    separator: u8,
    /// Whether a separator was before the rest, so that a field must follow.
    is_open: bool,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The value of many digits.
#[cold]
fn checked(digits: &[u8]) -> Option<u64> {
    let mut digits = digits.iter().map(|byte| u64::from(byte - b'0'));
    digits.try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(digit))
}

impl<'a> Fields<'a> {
    /// Those of a line whose fields commas part.
    pub fn of_commas(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: line, separator: b',', is_open: true }
    }

    /// Those of a line whose fields blanks part.
    pub fn of_blanks(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: line, separator: b' ', is_open: true }
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while let [first, rest @ ..] = self.rest
            && is_blank(*first)
        {
            self.rest = rest;
        }
    }

    /// After a field: takes the separator. False when something else follows.
    #[inline]
    fn close(&mut self) -> bool {
        let before = self.rest.len();
        self.skip_blanks();
        match self.rest {
            [] => {
                self.is_open = false;
                true
            }
            _ if self.separator == b' ' => self.rest.len() < before,
            [first, rest @ ..] if *first == self.separator => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Whether the next field begins as a number.
    pub fn is_number(&mut self) -> bool {
        self.skip_blanks();
        self.rest.first().is_some_and(u8::is_ascii_digit)
    }

    /// Whether no field follows.
    pub fn is_over(&self) -> bool {
        !self.is_open
    }

    /// That no field follows.
    #[inline]
    pub fn end(&self) -> Result<(), Flaw> {
        if self.is_open { Err(Flaw::Extra) } else { Ok(()) }
    }

    #[inline]
    fn begin(&mut self, what: &'static str) -> Result<(), Flaw> {
        self.skip_blanks();
        let is_there = self.is_open && (!self.rest.is_empty() || self.separator != b' ');
        if is_there { Ok(()) } else { Err(Flaw::Missing(what)) }
    }

    /// Digits from the front on: their value and how many there are. `None` where it is
    /// 2^64 or more.
    #[inline]
    fn digits(&mut self) -> Option<(u64, usize)> {
        let (bytes, mut value, mut count) = (self.rest, 0u64, 0);
        while let Some(digit) = bytes.get(count).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            value = value.wrapping_mul(10).wrapping_add(digit.into());
            count += 1;
        }
        let (digits, rest) = bytes.split_at(count);
        self.rest = rest;
        // Nineteen digits are below 2^64.
        if count > 19 { checked(digits).map(|value| (value, count)) } else { Some((value, count)) }
    }

    /// A whole number.
    #[inline]
    pub fn number(&mut self, what: &'static str) -> Result<u64, Flaw> {
        self.begin(what)?;
        match self.digits() {
            Some((value, count)) if count > 0 && self.close() => Ok(value),
            _ => Err(Flaw::Number(what)),
        }
    }

    /// Seconds with or without a fraction, in ns. What is below a ns is dropped.
    #[inline]
    pub fn seconds(&mut self) -> Result<u64, Flaw> {
        self.begin("time")?;
        let (whole, count) = self.digits().ok_or(Flaw::Time)?;
        let (mut ns, mut unit) = (0, 100_000_000);
        if let [b'.', rest @ ..] = self.rest {
            self.rest = rest;
            while let [first, rest @ ..] = self.rest
                && first.is_ascii_digit()
            {
                ns += u64::from(first - b'0') * unit;
                (self.rest, unit) = (rest, unit / 10);
            }
        }
        let is_whole = count > 0 && self.close();
        let all = whole.checked_mul(1_000_000_000).and_then(|all| all.checked_add(ns));
        all.filter(|_| is_whole).ok_or(Flaw::Time)
    }

    /// A field as it is; of commas it may be empty.
    #[inline]
    pub fn word(&mut self, what: &'static str) -> Result<&'a [u8], Flaw> {
        self.begin(what)?;
        let is_end = |&byte: &u8| match self.separator {
            b' ' => is_blank(byte),
            separator => byte == separator,
        };
        let end = self.rest.iter().position(is_end).unwrap_or(self.rest.len());
        let mut word = &self.rest[..end];
        self.rest = &self.rest[end..];
        self.close();
        while let [rest @ .., last] = word
            && is_blank(*last)
        {
            word = rest;
        }
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_front_to_back() {
        let mut fields = Fields::of_commas(b" 12, ab c ,,18446744073709551615");
        assert_eq!(fields.number("a"), Ok(12));
        assert_eq!(fields.word("b"), Ok(&b"ab c"[..]));
        assert_eq!(fields.word("c"), Ok(&b""[..]));
        assert_eq!(fields.end(), Err(Flaw::Extra));
        assert_eq!(fields.number("d"), Ok(u64::MAX));
        assert_eq!((fields.end(), fields.is_over()), (Ok(()), true));
        assert_eq!(fields.number("e"), Err(Flaw::Missing("e")));
        let mut fields = Fields::of_blanks(b"  8,0\t 3 x\r");
        assert_eq!(fields.word("a"), Ok(&b"8,0"[..]));
        assert_eq!(fields.number("b"), Ok(3));
        assert_eq!(fields.number("c"), Err(Flaw::Number("c")));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-1", "1.5", "18446744073709551616", "1e3", "0x10", "99999999999999999999"]
        {
            let read = Fields::of_commas(text.as_bytes()).number("n");
            assert_eq!(read, Err(Flaw::Number("n")), "{text}");
        }
        assert_eq!(Fields::of_blanks(b"  ").number("n"), Err(Flaw::Missing("n")));
        let zeros = b"000000000000000000000000000012";
        assert_eq!(Fields::of_blanks(zeros).number("n"), Ok(12));
    }

    #[test]
    fn seconds_are_exact_to_the_ns() {
        let read = |text: &str| Fields::of_commas(text.as_bytes()).seconds();
        assert_eq!(read("0.551706"), Ok(551_706_000));
        assert_eq!(read("1455592181.1234567899"), Ok(1_455_592_181_123_456_789));
        assert_eq!(read("7"), Ok(7_000_000_000));
        assert_eq!(read("7."), Ok(7_000_000_000));
        for text in ["", ".5", "1.5.5", "18446744074", "-1", "1e9"] {
            assert_eq!(read(text), Err(Flaw::Time), "{text}");
        }
    }
}
