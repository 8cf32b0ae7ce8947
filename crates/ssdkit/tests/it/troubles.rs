//! Targets in trouble on a drive that is served: such as delay what they are asked. From
//! outside, by `ssdkit target` and over NBD.

use std::path::Path;
use std::time::{Duration, Instant};

use exports::nbd::Client;
use port::BlockOp;

use crate::common::{ask, run};
use crate::kill::BLOCK;
use crate::tenants::{Served, client};

/// A set that delays each block of a write for as long as may be.
const LATE: &str = "set late application 0 lba 0..4K units 0..4\n\
                    rule late priority 1 when op == write then delay 10s\n\
                    rule all priority 0 when op != idle then pass\n";

/// Blocks of a write that is held up.
const HELD: usize = 64;

/// Has a client write what rules hold up for ten minutes. Gives it when another request was
/// answered, so that this has come, too.
fn held_up(at: &Path, export: &str) -> Client {
    let mut slow = client(at, export);
    let data = [7; HELD * BLOCK];
    slow.submit(BlockOp::Write, 0, data.len() as u64, false, 1, &data).unwrap();
    slow.submit(BlockOp::Read, 1 << 20, 4096, false, 2, &[]).unwrap();
    slow.flush_sends().unwrap();
    let mut each = |id, error, _: &[u8]| assert_eq!((id, error), (2, 0));
    assert_eq!(slow.recv(&mut each).unwrap(), 1);
    slow
}

/// What the rules of a target delay holds up neither its removal, nor changes of others, nor
/// the end of the server: it is done at once then, and answered.
#[test]
fn what_rules_delay_holds_up_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("late.rules"), LATE).unwrap();
    let create = "create a.ssd --profile ref --size 64M pages=16 groups=2 units=4/4 \
                  target=pblk/rules rules=./late.rules";
    assert!(run(at, create).status.success());
    let served = Served::start(at, "a.ssd");
    let make = "target create ./control.sock slow --units 4 --rules ./late.rules";
    assert!(run(at, make).status.success());
    let begun = Instant::now();
    let mut others = held_up(at, "target1");
    let mut slow = held_up(at, "slow");
    let mut good = |id, error, _: &[u8]| assert_eq!((id, error), (1, 0));
    assert!(run(at, "target remove ./control.sock slow").status.success());
    assert_eq!(slow.recv(&mut good).unwrap(), 1);
    assert!(run(at, "target create ./control.sock more --units 4").status.success());
    served.stop();
    assert_eq!(others.recv(&mut good).unwrap(), 1);
    assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    let served = Served::start(at, "a.ssd");
    let read = ask(&mut client(at, "target1"), BlockOp::Read, 0, (HELD * BLOCK) as u64, &[]);
    assert_eq!(read, (0, vec![7; HELD * BLOCK]), "it was flushed at the end");
    served.stop();
}
