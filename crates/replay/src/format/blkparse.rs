//! What blkparse prints by default: `major,minor cpu sequence seconds pid action RWBS
//! sector + sectors [process]`.
//!
//! A request has several events, of which one action stands for it. Addresses are sectors
//! of 512 bytes. Of RWBS counts D for a trim, R, W, and F behind W for FUA; F without an
//! address is a flush, and an F before W (a flush before the write) is left out. Commands
//! that a program hands to the device past the block layer, whose bytes stand in parentheses,
//! are no requests. A summary is passed; events may follow, of the next file.

use port::BlockOp;

use super::{Action, Before, Row, Said, sectors};
use crate::error::Flaw;
use crate::fields::Fields;

/// What a line says.
#[inline]
pub(super) fn said<'a>(
    line: &'a [u8],
    wanted: Action,
    before: &mut Before,
) -> Result<Said<'a>, Flaw> {
    let is_summary = line.starts_with(b"CPU") || line.starts_with(b"Total");
    before.is_over |= is_summary && before.lines > 1;
    let mut fields = Fields::of_blanks(line);
    let volume = fields.word("device")?;
    if !is_device(volume) {
        return if before.is_over { Ok(Said::Other) } else { Err(Flaw::Number("device")) };
    }
    before.is_over = false;
    fields.number("cpu")?;
    fields.number("sequence")?;
    let at = fields.seconds()?;
    fields.number("pid")?;
    let action = fields.word("action")?;
    let is_wanted = match wanted {
        Action::Q => action == b"Q",
        Action::D => action == b"D",
    };
    if !is_wanted {
        return Ok(Said::Other);
    }
    let rwbs = fields.word("RWBS")?;
    let Some((op, fua)) = operation(rwbs) else { return Ok(Said::Other) };
    let is_flush = rwbs.contains(&b'F') && !fields.is_number();
    if op == BlockOp::Flush || is_flush {
        let op = BlockOp::Flush;
        return Ok(Said::Request(Row { at, op, fua: false, offset: 0, len: 0, volume }));
    }
    let offset = sectors(fields.number("sector")?)?;
    match fields.word("+")? {
        b"+" => {}
        // The bytes of a command, or at once the program that gave it.
        [b'(' | b'[', ..] => return Ok(Said::Other),
        _ => return Err(Flaw::Missing("+")),
    }
    let len = sectors(fields.number("sectors")?)?;
    Ok(Said::Request(Row { at, op, fua, offset, len, volume }))
}

/// Whether it is `major,minor`.
fn is_device(word: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let comma = word.iter().position(|&byte| byte == b',');
    comma.is_some_and(|at| is_number(&word[..at]) && is_number(&word[at + 1..]))
}

/// What RWBS asks for, and whether it is to be durable at once; nothing where it moves
/// nothing (N).
fn operation(rwbs: &[u8]) -> Option<(BlockOp, bool)> {
    let place = |letter: u8| rwbs.iter().position(|&byte| byte == letter);
    if place(b'D').is_some() {
        return Some((BlockOp::Trim, false));
    }
    if place(b'R') == Some(0) {
        return Some((BlockOp::Read, false));
    }
    match place(b'W') {
        Some(at) => Some((BlockOp::Write, rwbs[at..].contains(&b'F'))),
        None => place(b'F').map(|_| (BlockOp::Flush, false)),
    }
}
