//! Power cuts of drives in memory.
//!
//! Guarantees: what was durable is there, as after any power cut. Fails where the drive has
//! what would go with it, and as recovery does.

use crate::error::Error;
use crate::spec::DriveConfig;
use crate::stack::{Assembled, recover};
use crate::whole::{Boxed, Cut};

/// A drive in memory as a power cut leaves it, found again. Refuses one with a remote
/// drive, which would go with it.
pub fn cut(config: &DriveConfig, seed: u64, drive: Boxed) -> Result<Assembled, Error> {
    if config.spec.remote.is_some() {
        return Err(Error::Usage(format!(
            "{}: a power cut would take its remote drive, too: leave out remote",
            config.name
        )));
    }
    let Cut { shards, journal } = drive.cut();
    recover(config, seed, shards, 0, journal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Cache, DriveSpec};
    use crate::stack::build;
    use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};

    /// What was flushed is there after a power cut, and with a protected cache all that
    /// completed, whatever the drive is made of.
    #[test]
    fn a_cut_leaves_what_is_durable() {
        for keys in [
            "",
            ",shards=2",
            ",parity=4",
            ",cache=protected",
            ",read_cache=1m,sleep_after=1ms",
            ",targets=2",
            ",target=rules",
            ",side=host",
            ",map_unit=16k",
            ",queues=2,queue_depth=8,cores=2,core_read=1us,buffer_rate=1GB/s",
        ] {
            let name = format!("mem:tlc,size=64M,groups=4,pus=2,pages=16{keys}");
            let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
            let config = spec.resolve().unwrap();
            let (mut drive, mut now) = (build(&config, 1).unwrap(), Time::ZERO);
            let put = |byte: u8| {
                let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize).unwrap();
                buffer.bytes_mut().fill(byte);
                buffer
            };
            for block in 0..20 {
                let req = |id| {
                    let op = BlockOp::Write;
                    BlockReq::new(id, op, block * BLOCK_BYTES, BLOCK_BYTES, put(block as u8 + 1))
                };
                now = one(&mut drive, now, req).1;
            }
            if config.spec.cache == Cache::Volatile {
                let flush = |id| BlockReq::new(id, BlockOp::Flush, 0, 0, Buffer::empty());
                now = one(&mut drive, now, flush).1;
            }
            assert!(now > Time::ZERO);
            let (mut drive, mut now, _) = cut(&config, 1, drive).unwrap();
            for block in 0..20 {
                let read =
                    |id| BlockReq::new(id, BlockOp::Read, block * BLOCK_BYTES, BLOCK_BYTES, put(0));
                let (done, at) = one(&mut drive, now, read);
                assert_eq!(done.buffer.bytes()[7], block as u8 + 1, "{name}: block {block}");
                now = at;
            }
        }
    }

    /// One request; gives its completion, and when.
    fn one(drive: &mut Boxed, now: Time, req: impl Fn(u64) -> BlockReq) -> (BlockDone, Time) {
        let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
        cmds.put(|| req(7));
        drive.submit(now, &mut cmds);
        loop {
            let at = drive.next_event().expect("it is inside").max(now);
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                assert!(done.status.is_ok(), "{}", done.status);
                return (done, at);
            }
        }
    }
}
