//! Tests of tracing.

mod file;
mod live;
mod report;

use port::{BlockOp, Status, Time};
use proptest::prelude::*;

use super::*;
use crate::format::MOST_CONFIG;
use crate::record::{RECORD_BYTES, decode, encode};

/// Some life, told apart by `id`.
fn life(id: u64) -> Life {
    Life {
        id,
        core: 3,
        staging: 2,
        queue: 1,
        tag: 7,
        op: BlockOp::Write,
        fua: true,
        offset: 4096 * id,
        len: 4096,
        status: Status::SUCCESS,
        parts: 1,
        submitted: Time(100 * id),
        dispatched: Time(100 * id + 10),
        completed: Time(100 * id + 60),
        seen: Time(100 * id + 65),
    }
}

fn about(config: &str) -> About {
    About { start: Time(42), config: config.into() }
}

/// A whole trace of these, with blocks that end after each of `flushes`.
fn written(lives: &[Life], flushes: &[usize], dropped: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &about("depth = 4")).unwrap();
    for (i, life) in lives.iter().enumerate() {
        writer.put(life).unwrap();
        if flushes.contains(&i) {
            writer.flush().unwrap();
        }
    }
    let totals = writer.finish(dropped).unwrap();
    assert_eq!(totals, Totals { records: lives.len() as u64, dropped });
    out
}

/// The records before the first error, and the error.
fn read(bytes: &[u8]) -> (Vec<Life>, Option<TraceError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Some(e)),
    };
    let mut lives = Vec::new();
    let error = loop {
        match reader.next() {
            Some(Ok(life)) => lives.push(life),
            Some(Err(e)) => break Some(e),
            None => break None,
        }
    };
    assert!(reader.next().is_none(), "nothing comes after the end");
    assert_eq!(error.is_none(), reader.totals().is_some());
    (lives, error)
}

prop_compose! {
    fn any_life()(
        (id, offset, len) in any::<(u64, u64, u64)>(),
        (core, staging, queue, parts, tag) in any::<(u16, u16, u16, u16, u32)>(),
        op in 0u8..5,
        (fua, status) in any::<(bool, u16)>(),
        times in any::<[u64; 4]>(),
    ) -> Life {
        let ops =
            [BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Trim, BlockOp::WriteZeroes];
        let [submitted, dispatched, completed, seen] = times.map(Time);
        Life {
            id, core, staging, queue, tag, op: ops[op as usize], fua, offset, len,
            status: Status(status), parts, submitted, dispatched, completed, seen,
        }
    }
}
