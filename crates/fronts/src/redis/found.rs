//! Which key-value store is on a block drive.
//!
//! Guarantees: nothing is written. Fails when the drive cannot be read.

use btree::StoreKind;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Ring, Time};

use drive::error::Error;
use drive::patience::Patience;
use drive::whole::Drive;

/// Which store of pages is on a drive, by its head; `None` where there is
/// nothing, something else, or a store whose head is damaged. Looks from the
/// time `now` on, which moves.
pub fn look<D: Drive>(drive: &mut D, now: &mut Time) -> Result<Option<StoreKind>, Error> {
    let heads = read(drive, now, 0, 2 * BLOCK_BYTES)?;
    Ok(StoreKind::of(heads.bytes()))
}

/// The largest drive that is read whole.
const MOST: u64 = 4 << 30;

/// Whether a drive holds zeros only, as one does whose first store was cut while it was made, and
/// one that was trimmed whole. A larger one than 4 GiB is not looked at, and counts as one that
/// holds something.
pub fn is_blank<D: Drive>(drive: &mut D, now: &mut Time) -> Result<bool, Error> {
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

/// Reads from a drive that nobody uses, in its own time.
fn read<D: Drive>(drive: &mut D, now: &mut Time, offset: u64, len: u64) -> Result<Buffer, Error> {
    let cannot = |why: String| Error::Failed(format!("the drive cannot be read: {why}"));
    let buffer = Buffer::zeroed(len as usize).map_err(|e| cannot(e.to_string()))?;
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    cmds.put(|| BlockReq {
        id: 0,
        op: BlockOp::Read,
        fua: false,
        placement: 0,
        queue: 0,
        offset,
        len,
        buffer,
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use btree::{InPlaceConfig, InPlaceStore, Inline, LogConfig, LogStore};
    use drive::spec::DriveSpec;
    use drive::stack;

    fn write<D: Drive>(drive: &mut D, now: &mut Time, offset: u64, byte: u8) {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize).unwrap();
        buffer.bytes_mut().fill(byte);
        let (op, len) = (BlockOp::Write, BLOCK_BYTES);
        cmds.put(|| BlockReq { id: 0, op, fua: true, placement: 0, queue: 0, offset, len, buffer });
        drive.submit(*now, &mut cmds);
        while done.is_empty() {
            let at = drive.next_event().unwrap();
            drive.advance(at, &mut done);
            *now = at.max(*now);
        }
    }

    #[test]
    fn stores_are_told_from_each_other_and_from_anything_else() {
        let Ok(DriveSpec::Memory(spec)) = "mem:null,size=64M".parse() else { panic!("a drive") };
        let mut drive = stack::build(&spec.resolve().unwrap(), 1).unwrap();
        let (mut now, shape) = (Time::ZERO, drive.shape());
        assert_eq!(look(&mut drive, &mut now).unwrap(), None);
        assert!(is_blank(&mut drive, &mut now).unwrap());
        write(&mut drive, &mut now, shape.bytes - BLOCK_BYTES, 1);
        assert!(!is_blank(&mut drive, &mut now).unwrap());
        let log = LogStore::create(Inline(drive), shape, LogConfig::default(), now).unwrap();
        let mut drive = log.into_drive().0;
        // Far enough on that nothing of the store is to come.
        now += 1_000_000_000;
        assert_eq!(look(&mut drive, &mut now).unwrap(), Some(StoreKind::Log));
        let config = InPlaceConfig::default();
        let store = InPlaceStore::create(Inline(drive), shape, config, now).unwrap();
        let mut drive = store.into_drive().0;
        now += 1_000_000_000;
        assert_eq!(look(&mut drive, &mut now).unwrap(), Some(StoreKind::InPlace));
        write(&mut drive, &mut now, 0, 1);
        write(&mut drive, &mut now, BLOCK_BYTES, 1);
        assert_eq!(look(&mut drive, &mut now).unwrap(), None);
    }
}
