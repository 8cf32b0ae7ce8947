//! fio's logs: version 2, `file action [offset length]`, and version 3, which has the time
//! before that.
//!
//! Addresses are bytes. In version 2 time passes only by `file wait time`, relative to the
//! wait before, of which what is below 100 us counts for nothing, as fio's manual has it.
//! fio 3.33 writes us in version 3, and passes its `wait`. Both are us, unless another unit is
//! given. `sync`, `datasync` and `sync_file_range` are flushes; `add`, `open` and `close` are
//! no requests. A volume is a file.

use port::BlockOp;

use super::{Before, Row, Said, TimeUnit, time};
use crate::error::Flaw;
use crate::fields::Fields;

/// Waits below this are none, in ns.
const LEAST_WAIT: u64 = 100_000;

/// Which version a log is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

/// What a line says.
#[inline]
pub(super) fn said<'a>(
    line: &'a [u8],
    unit: Option<TimeUnit>,
    before: &mut Before,
) -> Result<Said<'a>, Flaw> {
    if before.lines == 1 {
        before.fio = match line.trim_ascii_end() {
            b"fio version 2 iolog" => Version::Two,
            b"fio version 3 iolog" => Version::Three,
            _ => return Err(Flaw::Version),
        };
        return Ok(Said::Other);
    }
    let unit = unit.unwrap_or(TimeUnit::Us).ns();
    let mut fields = Fields::of_blanks(line);
    let at = match before.fio {
        Version::Two => before.waited,
        Version::Three => time(fields.number("time")?, unit)?,
    };
    let volume = fields.word("file")?;
    let op = match fields.word("action")? {
        b"read" => BlockOp::Read,
        b"write" => BlockOp::Write,
        b"trim" => BlockOp::Trim,
        b"sync" | b"datasync" | b"sync_file_range" => BlockOp::Flush,
        b"add" | b"open" | b"close" => return Ok(Said::Other),
        // The time says it.
        b"wait" if before.fio == Version::Three => return Ok(Said::Other),
        b"wait" => {
            let ns = time(fields.number("wait")?, unit)?;
            let waited = if ns < LEAST_WAIT { 0 } else { ns };
            before.waited = before.waited.checked_add(waited).ok_or(Flaw::Time)?;
            return Ok(Said::Other);
        }
        _ => return Err(Flaw::Operation),
    };
    if op == BlockOp::Flush {
        return Ok(Said::Request(Row { at, op, fua: false, offset: 0, len: 0, volume }));
    }
    let (offset, len) = (fields.number("offset")?, fields.number("length")?);
    fields.end()?;
    Ok(Said::Request(Row { at, op, fua: false, offset, len, volume }))
}
