//! The Redis serialization protocol, version 2: bytes in, commands out;
//! replies as bytes.
//!
//! The parser takes what has come so far and says whether it is a command, and
//! goes on where it stopped when more has come. It keeps no bytes, except those
//! of a command on one line, and no more memory than came. What breaks the
//! protocol is an error in Redis' words, after which nothing more can be made
//! of the input.

use std::io::Write;
use std::ops::Range;

use thiserror::Error;

use crate::grow::grow;

/// Most arguments of a command. Redis takes 1 048 576.
pub const MAX_ARGS: usize = 16384;

/// Longest argument, in bytes, where the store has no longer values. Redis takes
/// 512 MiB; a value of a tree is shorter still.
pub const MAX_BULK: usize = 1 << 20;

/// Longest line, in bytes, as in Redis.
pub const MAX_LINE: usize = 64 << 10;

/// Longest command, in bytes as they come, where the store has no longer values; else
/// it is longer by as much as these.
pub const MAX_COMMAND: usize = 4 << 20;

/// What breaks the protocol, in Redis' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The number of arguments is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// An argument does not begin as it should.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    NoBulk(u8),
    /// The length of an argument is none, or too large.
    #[error("Protocol error: invalid bulk length")]
    Bulk,
    /// An argument does not end where its length says.
    #[error("Protocol error: expected '\\r\\n' after an argument")]
    NoEnd,
    /// A line with a number has no end.
    #[error("Protocol error: too big mbulk count string")]
    LongCount,
    /// A line with a length has no end.
    #[error("Protocol error: too big bulk count string")]
    LongBulk,
    /// A command on one line has no end.
    #[error("Protocol error: too big inline request")]
    LongLine,
    /// Quotes are open, or something follows on them.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// All arguments together are too long.
    #[error("Protocol error: too big command")]
    LongCommand,
    /// The system has no memory for its arguments.
    #[error("the system has no more memory for this server")]
    NoMemory,
}

/// The arguments of a command; the first is its name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it is an empty line.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Argument `i`.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.places[i].clone()]
    }

    /// Those from `i` on.
    pub fn from(&self, i: usize) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let places = self.places.get(i..).unwrap_or_default();
        let bytes = self.bytes;
        places.iter().map(move |place| &bytes[place.clone()])
    }
}

/// What the parser waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The first byte of a command.
    #[default]
    Begin,
    /// The length of an argument.
    Length,
    /// So many bytes of an argument.
    Bytes(usize),
    /// Nothing: the command is there.
    Whole,
}

/// The parser of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// Bytes of the command that are understood.
    pos: usize,
    /// Bytes behind them in which no end of line was found.
    seen: usize,
    /// Arguments to come.
    left: usize,
    places: Vec<Range<usize>>,
    /// The arguments of a command on one line; empty for others.
    line: Vec<u8>,
    is_line: bool,
    /// Bytes that an argument may have beyond [`MAX_BULK`].
    beyond: usize,
}

impl Parser {
    /// A parser of commands whose arguments have so many bytes at most, and never fewer
    /// than [`MAX_BULK`].
    pub fn new(longest: usize) -> Parser {
        Parser { beyond: longest.saturating_sub(MAX_BULK), ..Parser::default() }
    }

    /// Goes on with `input`, which begins with the command and has at least the
    /// bytes of the last call. True when the command is whole.
    ///
    /// # Errors
    /// [`ProtocolError`]; the connection can then only be closed.
    pub fn parse(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        loop {
            let more = match self.state {
                State::Begin if input.first() == Some(&b'*') => self.count(input)?,
                State::Begin => self.inline(input)?,
                State::Length => self.length(input)?,
                State::Bytes(len) => self.bytes(input, len)?,
                State::Whole => return Ok(true),
            };
            if !more {
                return Ok(false);
            }
        }
    }

    /// The arguments of a whole command in `input`.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        let bytes = if self.is_line { &self.line } else { input };
        Args { bytes, places: &self.places }
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        self.places.capacity() * size_of::<Range<usize>>() + self.line.capacity()
    }

    /// Bytes of the command that are understood.
    pub fn understood(&self) -> usize {
        self.pos
    }

    /// Ends with a command; gives how many bytes it had.
    pub fn end(&mut self) -> usize {
        let bytes = self.pos;
        self.places.clear();
        self.line.clear();
        if self.places.capacity() > 1024 {
            self.places.shrink_to(64);
        }
        self.line.shrink_to(1024);
        (self.state, self.is_line) = (State::Begin, false);
        (self.pos, self.seen, self.left) = (0, 0, 0);
        bytes
    }

    /// The line behind what is understood, up to its line feed. `None` while
    /// that has not come.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        long: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let rest = &input[self.pos..];
        let end = rest[self.seen..].iter().position(|&b| b == b'\n');
        let Some(end) = end.map(|end| self.seen + end) else {
            self.seen = rest.len();
            return if rest.len() > MAX_LINE { Err(long) } else { Ok(None) };
        };
        if end > MAX_LINE {
            return Err(long);
        }
        self.seen = 0;
        self.pos += end + 1;
        Ok(Some(&rest[..end]))
    }

    /// The number of a line, behind its first byte. `None` while the line has not come.
    #[inline(always)]
    fn number(
        &mut self,
        input: &[u8],
        long: ProtocolError,
        bad: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        match short(&input[self.pos + 1..]) {
            Some((number, bytes)) => {
                (self.seen, self.pos) = (0, self.pos + 1 + bytes);
                Ok(Some(number))
            }
            None => self.any_number(input, long, bad),
        }
    }

    #[cold]
    fn any_number(
        &mut self,
        input: &[u8],
        long: ProtocolError,
        bad: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let Some(line) = self.line(input, long)? else { return Ok(None) };
        number(&line[1..]).ok_or(bad).map(Some)
    }

    fn count(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let (long, bad) = (ProtocolError::LongCount, ProtocolError::Count);
        let Some(count) = self.number(input, long, bad)? else { return Ok(false) };
        // None, or fewer than none, is an empty command.
        let count = count.max(0) as usize;
        if count > MAX_ARGS {
            return Err(ProtocolError::Count);
        }
        (self.left, self.is_line) = (count, false);
        self.state = if count == 0 { State::Whole } else { State::Length };
        Ok(true)
    }

    fn length(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        match input.get(self.pos) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NoBulk(other)),
        }
        let (long, bad) = (ProtocolError::LongBulk, ProtocolError::Bulk);
        let Some(len) = self.number(input, long, bad)? else { return Ok(false) };
        let len = usize::try_from(len).ok().filter(|&len| len <= MAX_BULK + self.beyond);
        let len = len.ok_or(bad)?;
        if self.pos + len > MAX_COMMAND + self.beyond {
            return Err(ProtocolError::LongCommand);
        }
        self.state = State::Bytes(len);
        Ok(true)
    }

    fn bytes(&mut self, input: &[u8], len: usize) -> Result<bool, ProtocolError> {
        let end = self.pos + len;
        if input.len() < end + 2 {
            return Ok(false);
        }
        if input[end..end + 2] != *b"\r\n" {
            return Err(ProtocolError::NoEnd);
        }
        grow(&mut self.places, 1).map_err(|_| ProtocolError::NoMemory)?;
        self.places.push(self.pos..end);
        self.pos = end + 2;
        self.left -= 1;
        self.state = if self.left == 0 { State::Whole } else { State::Length };
        Ok(true)
    }

    /// A command on one line: words, which may be quoted.
    fn inline(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let Some(line) = self.line(input, ProtocolError::LongLine)? else { return Ok(false) };
        self.is_line = true;
        let mut rest = line.trim_ascii_start();
        while !rest.is_empty() {
            if self.places.len() == MAX_ARGS {
                return Err(ProtocolError::Count);
            }
            let start = self.line.len();
            rest = word(rest, &mut self.line).ok_or(ProtocolError::Quotes)?.trim_ascii_start();
            grow(&mut self.places, 1).map_err(|_| ProtocolError::NoMemory)?;
            self.places.push(start..self.line.len());
        }
        self.state = State::Whole;
        Ok(true)
    }
}

/// A number of four digits at most, with the end of its line, as nearly all are: it, and how
/// many bytes that takes.
#[inline]
fn short(line: &[u8]) -> Option<(i64, usize)> {
    let mut number = 0;
    for at in 0..line.len().min(5) {
        let digit = line[at].wrapping_sub(b'0');
        if digit > 9 {
            let is_whole = at > 0 && line[at..].starts_with(b"\r\n");
            return is_whole.then_some((number, at + 2));
        }
        if number == 0 && at > 0 {
            return None;
        }
        number = 10 * number + i64::from(digit);
    }
    None
}

/// A decimal number with the carriage return behind it.
fn number(line: &[u8]) -> Option<i64> {
    integer(line.strip_suffix(b"\r")?)
}

/// A decimal number as Redis takes it: no blanks, no plus, no leading zeros.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !(digits.first().is_some_and(|&d| d != b'0') || text == b"0") {
        return None;
    }
    // Downwards, as there is one more number below zero than above it.
    let below = digits.iter().try_fold(0i64, |below, &digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        below.checked_mul(10)?.checked_sub(digit)
    })?;
    if digits.len() < text.len() { Some(below) } else { below.checked_neg() }
}

/// Takes a word off a line and puts it into `to`, without quotes. `None` when
/// these are wrong.
fn word<'a>(mut line: &'a [u8], to: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, rest)) = line.split_first() {
        line = match byte {
            b if b.is_ascii_whitespace() => return Some(line),
            b'"' | b'\'' => {
                let rest = quoted(rest, byte, to)?;
                let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
                return ends.then_some(rest);
            }
            b => {
                to.push(b);
                rest
            }
        };
    }
    Some(line)
}

/// What is left of a line behind the quotes.
fn quoted<'a>(mut line: &'a [u8], quote: u8, to: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (&byte, rest) = line.split_first()?;
        line = match (byte, rest) {
            (b, rest) if b == quote => return Some(rest),
            (b'\\', [b'\'', rest @ ..]) if quote == b'\'' => {
                to.push(b'\'');
                rest
            }
            (b'\\', [b'x', a, b, rest @ ..])
                if quote == b'"' && a.is_ascii_hexdigit() && b.is_ascii_hexdigit() =>
            {
                let digit = |d: u8| char::from(d).to_digit(16).unwrap_or(0) as u8;
                to.push(digit(*a) << 4 | digit(*b));
                rest
            }
            (b'\\', [other, rest @ ..]) if quote == b'"' => {
                to.push(match other {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    &other => other,
                });
                rest
            }
            (b, rest) => {
                to.push(b);
                rest
            }
        };
    }
}

/// Puts a number behind a byte, and ends the line.
fn line(to: &mut impl Write, kind: u8, number: i64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let mut line = [0; 24];
    line[0] = kind;
    line[1..][..digits.len()].copy_from_slice(digits);
    line[1 + digits.len()..][..2].copy_from_slice(b"\r\n");
    put(to, &line[..digits.len() + 3]);
}

/// Puts bytes behind others.
#[inline]
fn put(to: &mut impl Write, bytes: &[u8]) {
    // Writing to memory does not fail.
    let _ = to.write_all(bytes);
}

/// A status, as `OK`.
pub fn simple(to: &mut impl Write, text: &str) {
    put(to, b"+");
    put(to, text.as_bytes());
    put(to, b"\r\n");
}

/// An error: `text` begins with its kind, as in `ERR no such thing`. What
/// would end the line is left out.
pub fn error(to: &mut impl Write, text: &str) {
    put(to, b"-");
    text.split(['\r', '\n']).for_each(|part| put(to, part.as_bytes()));
    put(to, b"\r\n");
}

/// A number.
pub fn int(to: &mut impl Write, number: i64) {
    line(to, b':', number);
}

/// A string.
pub fn bulk(to: &mut impl Write, bytes: &[u8]) {
    line(to, b'$', bytes.len() as i64);
    put(to, bytes);
    put(to, b"\r\n");
}

/// A string, or that there is none.
pub fn bulk_or_null(to: &mut impl Write, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => bulk(to, bytes),
        None => put(to, b"$-1\r\n"),
    }
}

/// The beginning of an array: so many replies follow.
pub fn array(to: &mut impl Write, count: usize) {
    line(to, b'*', count as i64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All commands in `input`, given in pieces, and the error after them.
    fn commands(pieces: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut parser, mut input, mut all) = (Parser::default(), Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                match parser.parse(&input) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return (all, Some(error)),
                }
                all.push(parser.args(&input).from(0).map(<[u8]>::to_vec).collect());
                input.drain(..parser.end());
            }
        }
        (all, None)
    }

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split_whitespace().map(|word| word.into()).collect()
    }

    #[test]
    fn commands_of_both_kinds() {
        let input =
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n*0\r\n*-1\r\nSET a  \"x\\x41 \\n\"\n\r\n";
        let (all, error) = commands(&[input]);
        let set = vec![b"SET".to_vec(), b"a".to_vec(), b"xA \n".to_vec()];
        let expected = vec![words("GET a"), words("PING"), vec![], vec![], set, vec![]];
        assert_eq!((all, error), (expected, None));
        let (all, _) = commands(&[b"a 'b\\'c\\n' \"\"\r\n"]);
        assert_eq!(all, [[b"a".to_vec(), b"b'c\\n".to_vec(), vec![]]]);
    }

    #[test]
    fn what_breaks_the_protocol() {
        let long = vec![b'a'; MAX_LINE + 1];
        let many = [b"*".as_slice(), &long].concat();
        let bulk = [b"*1\r\n$".as_slice(), &vec![b'1'; MAX_LINE + 1]].concat();
        let mut large = b"*9\r\n".to_vec();
        for _ in 0..4 {
            super::bulk(&mut large, &vec![7; MAX_BULK]);
        }
        for (input, error) in [
            (b"*x\r\n".as_slice(), ProtocolError::Count),
            (b"*2\n", ProtocolError::Count),
            (b"*99999999999999999999\r\n", ProtocolError::Count),
            (b"*16385\r\n", ProtocolError::Count),
            (b"*1\r\n:1\r\n", ProtocolError::NoBulk(b':')),
            (b"*1\r\n$-1\r\n", ProtocolError::Bulk),
            (b"*1\r\n$1048577\r\n", ProtocolError::Bulk),
            (b"*1\r\n$1\r\nabc", ProtocolError::NoEnd),
            (b"a \"b\r\n", ProtocolError::Quotes),
            (b"a \"b\"c\r\n", ProtocolError::Quotes),
            (&long, ProtocolError::LongLine),
            (&many, ProtocolError::LongCount),
            (&bulk, ProtocolError::LongBulk),
            ([&large, b"$9\r\n".as_slice()].concat().as_slice(), ProtocolError::LongCommand),
        ] {
            assert_eq!(commands(&[input]), (vec![], Some(error)), "{:?}", input.len());
        }
        assert_eq!(
            ProtocolError::NoBulk(b':').to_string(),
            "Protocol error: expected '$', got ':'"
        );
    }

    #[test]
    fn replies() {
        let mut to = Vec::new();
        simple(&mut to, "OK");
        error(&mut to, "ERR a\r\nb");
        int(&mut to, -7);
        bulk_or_null(&mut to, Some(b"x\n"));
        bulk_or_null(&mut to, None);
        array(&mut to, 2);
        assert_eq!(to, b"+OK\r\n-ERR ab\r\n:-7\r\n$2\r\nx\n\r\n$-1\r\n*2\r\n");
    }

    proptest! {
        #[test]
        fn a_command_may_come_in_any_pieces(
            all in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6), 1..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut input = Vec::new();
            for command in &all {
                array(&mut input, command.len());
                command.iter().for_each(|arg| bulk(&mut input, arg));
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len())).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &input[w[0]..w[1]]).collect();
            prop_assert_eq!(commands(&pieces), (all, None));
        }

        #[test]
        fn garbage_ends_alike_however_it_comes(
            input in prop::collection::vec(
                prop_oneof![
                    any::<u8>(),
                    prop::sample::select(b"*$\r\n0123456789-\"'\\ x".as_slice()),
                ], 0..300),
        ) {
            let single: Vec<&[u8]> = input.chunks(1).collect();
            prop_assert_eq!(commands(&single), commands(&[&input]));
        }

        /// What is told of a line at once is what the line says.
        #[test]
        fn short_numbers_are_as_all(
            input in prop::collection::vec(
                prop::sample::select(b"\r\n\r\n0123456789-".as_slice()), 0..9),
            end in any::<bool>(),
        ) {
            let input = if end { [&input, &b"\r\n"[..]].concat() } else { input };
            let end = input.iter().position(|&byte| byte == b'\n');
            let whole = end.and_then(|end| Some((number(&input[..end])?, end + 1)));
            let is_short = |&(n, bytes): &(i64, usize)| (0..10_000).contains(&n) && bytes < 7;
            prop_assert_eq!(short(&input), whole.filter(is_short));
        }

        #[test]
        fn integers_are_as_written(n: i64) {
            prop_assert_eq!(integer(n.to_string().as_bytes()), Some(n));
            let padded = format!("0{n}");
            prop_assert_eq!(integer(padded.as_bytes()), None);
        }

        #[test]
        fn what_is_no_integer_is_none(text in "-?-?[0-9]{0,20}[ +a]?") {
            let number = text.parse().ok().filter(|n: &i64| n.to_string() == text);
            prop_assert_eq!(integer(text.as_bytes()), number);
        }
    }
}
