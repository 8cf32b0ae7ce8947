//! SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`, after a line that says so.
//!
//! Times are in seconds with a fraction, addresses are bytes.

use super::{Row, letter};
use crate::error::Flaw;
use crate::fields::Fields;

/// A line's request.
#[inline]
pub(super) fn row(line: &[u8]) -> Result<Row<'_>, Flaw> {
    let mut fields = Fields::of_commas(line);
    let at = fields.seconds()?;
    // Some lines have none.
    fields.word("response")?;
    let op = letter(fields.word("type")?)?;
    let volume = fields.word("LUN")?;
    let (offset, len) = (fields.number("offset")?, fields.number("size")?);
    fields.end()?;
    Ok(Row { at, op, fua: false, offset, len, volume })
}
