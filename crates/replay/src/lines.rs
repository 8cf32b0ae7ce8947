//! Lines of an input of any length, in memory of a fixed size.
//!
//! Guarantees: a line is given without its end (`\n` or `\r\n`), the last one also where
//! it has none; one of more than [`MOST_LINE`] is told as too long, and what follows it
//! is read. May fail: the input.

use std::io::{self, ErrorKind, Read};

use memchr::memchr;

/// The longest line, in bytes.
pub(crate) const MOST_LINE: usize = 64 << 10;
/// Bytes that are held.
const HELD: usize = 4 * MOST_LINE;

/// An input and what of it is held.
pub(crate) struct Lines {
    input: Box<dyn Read + Send>,
    held: Box<[u8]>,
    /// What is held and was not given yet.
    start: usize,
    end: usize,
    /// The input has no more.
    is_over: bool,
    number: u64,
}

/// A line, or that there is one which is too long.
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl Lines {
    pub fn new(input: Box<dyn Read + Send>) -> Lines {
        let held = vec![0; HELD].into_boxed_slice();
        Lines { input, held, start: 0, end: 0, is_over: false, number: 0 }
    }

    /// The number of the line that was given last, from 1 on.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reads more, once, behind what is held, which has room.
    fn read(&mut self) -> io::Result<()> {
        loop {
            match self.input.read(&mut self.held[self.end..]) {
                Ok(n) => {
                    self.is_over = n == 0;
                    self.end += n;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// What the input begins with, as much as a line may have, or all; and whether that is
    /// all. Gives nothing away.
    pub fn peek(&mut self) -> io::Result<(&[u8], bool)> {
        while !self.is_over && self.end - self.start < MOST_LINE {
            self.read()?;
        }
        Ok((&self.held[self.start..self.end], self.is_over))
    }

    /// The next line; `None` at the end.
    #[inline]
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        if let Some(n) = memchr(b'\n', &self.held[self.start..self.end]) {
            return Ok(Some(self.give(n, 1)));
        }
        self.next_after_more()
    }

    /// Gives `n` bytes as a line, and goes `behind` bytes beyond them.
    #[inline]
    fn give(&mut self, n: usize, behind: usize) -> Line<'_> {
        let start = self.start;
        self.start += n + behind;
        self.number += 1;
        if n > MOST_LINE {
            return Line::TooLong;
        }
        match &self.held[start..start + n] {
            [line @ .., b'\r'] => Line::Whole(line),
            line => Line::Whole(line),
        }
    }

    /// The same where what is held does not end one.
    #[cold]
    fn next_after_more(&mut self) -> io::Result<Option<Line<'_>>> {
        self.held.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        loop {
            if self.is_over {
                let n = self.end - self.start;
                return Ok((n > 0).then(|| self.give(n, 0)));
            }
            let looked = self.end;
            if looked > MOST_LINE {
                return self.pass_long().map(Some);
            }
            self.read()?;
            if let Some(n) = memchr(b'\n', &self.held[looked..self.end]) {
                return Ok(Some(self.give(looked + n, 1)));
            }
        }
    }

    /// Goes behind the end of a line that is too long.
    fn pass_long(&mut self) -> io::Result<Line<'_>> {
        loop {
            (self.start, self.end) = (0, 0);
            self.read()?;
            if let Some(n) = memchr(b'\n', &self.held[..self.end]) {
                self.start = n + 1;
                break;
            }
            if self.is_over {
                break;
            }
        }
        self.number += 1;
        Ok(Line::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An input that gives so many bytes at once.
    struct Slowly(io::Cursor<Vec<u8>>, usize);

    impl Read for Slowly {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = into.len().min(self.1);
            self.0.read(&mut into[..n])
        }
    }

    fn all(bytes: &[u8], at_once: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Box::new(Slowly(io::Cursor::new(bytes.to_vec()), at_once)));
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        }
        assert_eq!(lines.number(), all.len() as u64);
        all
    }

    #[test]
    fn long_lines_are_told_and_passed() {
        for long in [MOST_LINE, MOST_LINE + 1, HELD - 1, HELD, HELD + 1, 3 * HELD] {
            for at_once in [1000, MOST_LINE, 10 * HELD] {
                let bytes = [&b"a\r\n"[..], &vec![b'x'; long], b"\nb"].concat();
                let got = all(&bytes, at_once);
                assert_eq!(got.len(), 3, "{long} {at_once}");
                assert_eq!((&got[0], &got[2]), (&Some(b"a".into()), &Some(b"b".into())));
                assert_eq!(got[1].is_none(), long > MOST_LINE, "{long} {at_once}");
            }
        }
        assert_eq!(all(&vec![b'x'; 3 * HELD], 999), [None]);
    }

    proptest! {
        #[test]
        fn lines_are_what_stands_between_ends(
            parts in proptest::collection::vec("[ab\r]{0,9}", 0..40), at_once in 1usize..50
        ) {
            let text = parts.join("\n");
            let expected: Vec<_> = text
                .strip_suffix('\n').unwrap_or(&text)
                .split('\n')
                .map(|line| Some(line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec()))
                .collect();
            let expected = if text.is_empty() { Vec::new() } else { expected };
            prop_assert_eq!(all(text.as_bytes(), at_once), expected);
        }
    }
}
