//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! The time is Windows' FILETIME, in units of 100 ns since 1601; addresses are bytes. A
//! volume is a host's disk, `hm,0`.

use port::BlockOp;

use super::{Row, time};
use crate::error::Flaw;
use crate::fields::Fields;

/// A line's request.
#[inline]
pub(super) fn row(line: &[u8]) -> Result<Row<'_>, Flaw> {
    let mut fields = Fields::of_commas(line);
    let at = time(fields.number("time")?, 100)?;
    let host = fields.word("host")?;
    let disk = fields.word("disk")?;
    let op = match fields.word("type")? {
        b"Read" | b"read" => BlockOp::Read,
        b"Write" | b"write" => BlockOp::Write,
        _ => return Err(Flaw::Operation),
    };
    let (offset, len) = (fields.number("offset")?, fields.number("size")?);
    if !fields.is_over() {
        fields.word("response time")?;
    }
    fields.end()?;
    // Both stand side by side.
    let begin = host.as_ptr() as usize - line.as_ptr() as usize;
    let end = disk.as_ptr() as usize + disk.len() - line.as_ptr() as usize;
    Ok(Row { at, op, fua: false, offset, len, volume: &line[begin..end] })
}
