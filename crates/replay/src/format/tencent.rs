//! Tencent's block traces: `Timestamp,Offset,Size,IOType,VolumeID`.
//!
//! The time is in seconds, addresses are sectors of 512 bytes; 0 is a read, 1 a write.

use port::BlockOp;

use super::{Row, sectors, time};
use crate::error::Flaw;
use crate::fields::Fields;

/// A line's request.
#[inline]
pub(super) fn row(line: &[u8]) -> Result<Row<'_>, Flaw> {
    let mut fields = Fields::of_commas(line);
    let at = time(fields.number("time")?, 1_000_000_000)?;
    let (offset, len) = (sectors(fields.number("offset")?)?, sectors(fields.number("size")?)?);
    let op = match fields.number("type")? {
        0 => BlockOp::Read,
        1 => BlockOp::Write,
        _ => return Err(Flaw::Operation),
    };
    let volume = fields.word("volume")?;
    fields.end()?;
    Ok(Row { at, op, fua: false, offset, len, volume })
}
