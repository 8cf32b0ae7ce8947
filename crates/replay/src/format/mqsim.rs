//! MQSim's: `time device LBA size type`, parted by blanks.
//!
//! The time is in ns, unless another unit is given; addresses are sectors of 512 bytes; 0
//! is a write, 1 a read.

use port::BlockOp;

use super::{Row, TimeUnit, sectors, time};
use crate::error::Flaw;
use crate::fields::Fields;

/// A line's request.
#[inline]
pub(super) fn row(line: &[u8], unit: Option<TimeUnit>) -> Result<Row<'_>, Flaw> {
    let mut fields = Fields::of_blanks(line);
    let at = time(fields.number("time")?, unit.unwrap_or(TimeUnit::Ns).ns())?;
    let volume = fields.word("device")?;
    let (offset, len) = (sectors(fields.number("LBA")?)?, sectors(fields.number("size")?)?);
    let op = match fields.number("type")? {
        0 => BlockOp::Write,
        1 => BlockOp::Read,
        _ => return Err(Flaw::Operation),
    };
    fields.end()?;
    Ok(Row { at, op, fua: false, offset, len, volume })
}
