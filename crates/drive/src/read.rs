//! Reads of a drive that nobody uses: what is on it, before anybody does.
//!
//! Guarantees: nothing is written. Fails when the drive cannot be read.

use port::{BlockOp, BlockReq, Buffer, Ring, Time};

use crate::error::Error;
use crate::patience::Patience;
use crate::whole::Drive;

/// The largest drive that is read whole.
const MOST: u64 = 4 << 30;

/// Whether a drive holds zeros only, as one does whose first store was cut while it was made, and
/// one that was trimmed whole. A larger one than 4 GiB is not looked at, and counts as one that
/// holds something.
pub fn is_blank<D: Drive + ?Sized>(drive: &mut D, now: &mut Time) -> Result<bool, Error> {
    let shape = drive.shape();
    if shape.bytes > MOST {
        return Ok(false);
    }
    let step = shape.max_bytes as usize;
    for offset in (0..shape.bytes).step_by(step) {
        let len = (step as u64).min(shape.bytes - offset);
        if read(drive, now, offset, len)?.bytes().iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads `len` bytes from `offset` on, from the time `now` on, which moves.
pub fn read<D: Drive + ?Sized>(
    drive: &mut D,
    now: &mut Time,
    offset: u64,
    len: u64,
) -> Result<Buffer, Error> {
    let cannot = |why: String| Error::Failed(format!("the drive cannot be read: {why}"));
    let buffer = Buffer::zeroed(len as usize).map_err(|e| cannot(e.to_string()))?;
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.put(|| BlockReq::new(0, BlockOp::Read, offset, len, buffer));
    let mut patience = Patience::default();
    loop {
        drive.submit(*now, &mut cmds);
        let at = drive.next_event().ok_or_else(|| cannot("it does not answer".into()))?;
        *now = at.max(*now);
        drive.advance(at, &mut done);
        match done.pop() {
            Some(done) if done.status.is_ok() => return Ok(done.buffer),
            Some(done) => return Err(cannot(done.status.to_string())),
            None => patience.look(at),
        }
    }
}
