//! Which key-value store is on a block drive.
//!
//! Guarantees: nothing is written. Fails when the drive cannot be read.

use btree::StoreKind;
use port::{BLOCK_BYTES, Time};

use drive::error::Error;
use drive::read::read;
use drive::whole::Drive;

/// Which store of pages is on a drive, by its head; `None` where there is
/// nothing, something else, or a store whose head is damaged. Looks from the
/// time `now` on, which moves.
pub fn look<D: Drive>(drive: &mut D, now: &mut Time) -> Result<Option<StoreKind>, Error> {
    let heads = read(drive, now, 0, 2 * BLOCK_BYTES)?;
    Ok(StoreKind::of(heads.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use btree::{InPlaceConfig, InPlaceStore, Inline, LogConfig, LogStore};
    use drive::read::is_blank;
    use drive::spec::DriveSpec;
    use drive::stack;
    use port::{BlockOp, BlockReq, Buffer, Ring};

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
