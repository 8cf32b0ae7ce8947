//! The Storage Performance Council's: `ASU,LBA,Size,Opcode,Timestamp`, and what somebody
//! put behind.
//!
//! The time is in seconds with a fraction, the address in sectors of 512 bytes, the size in
//! bytes. A volume is an ASU (application storage unit).

use super::{Row, letter, sectors};
use crate::error::Flaw;
use crate::fields::Fields;

/// A line's request.
#[inline]
pub(super) fn row(line: &[u8]) -> Result<Row<'_>, Flaw> {
    let mut fields = Fields::of_commas(line);
    let volume = fields.word("ASU")?;
    let (offset, len) = (sectors(fields.number("LBA")?)?, fields.number("size")?);
    let op = letter(fields.word("opcode")?)?;
    let at = fields.seconds()?;
    Ok(Row { at, op, fua: false, offset, len, volume })
}
