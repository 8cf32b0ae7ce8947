//! Alibaba's block traces: `device_id,opcode,offset,length,timestamp`.
//!
//! The time is in us, addresses are bytes.

use super::{Row, letter, time};
use crate::error::Flaw;
use crate::fields::Fields;

/// A line's request.
#[inline]
pub(super) fn row(line: &[u8]) -> Result<Row<'_>, Flaw> {
    let mut fields = Fields::of_commas(line);
    let volume = fields.word("device")?;
    let op = letter(fields.word("opcode")?)?;
    let (offset, len) = (fields.number("offset")?, fields.number("length")?);
    let at = time(fields.number("time")?, 1000)?;
    fields.end()?;
    Ok(Row { at, op, fua: false, offset, len, volume })
}
