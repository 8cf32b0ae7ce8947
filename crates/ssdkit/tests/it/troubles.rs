//! Targets in trouble on a drive that is served: such as delay what they are asked, such as are
//! damaged, such as leave blocks to nobody. From outside, by `ssdkit target` and over NBD.

use std::path::Path;
use std::time::{Duration, Instant};

use drivefile::DriveFile;
use exports::nbd::{Client, ClientError};
use flash::{Medium, Moved, Ppa, TAG_BYTES};
use port::BlockOp;
use serde_json::Value;

use crate::common::{self, ask, run};
use crate::kill::BLOCK;
use crate::tenants::{address, client, listed, names, refused, serve};

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
    let served = serve(at, "a.ssd");
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
    let served = serve(at, "a.ssd");
    let read = ask(&mut client(at, "target1"), BlockOp::Read, 0, (HELD * BLOCK) as u64, &[]);
    assert_eq!(read, (0, vec![7; HELD * BLOCK]), "it was flushed at the end");
    served.stop();
}

/// Garbage on all that the first units of a drive file hold.
fn damage(path: &Path, units: u32) {
    let mut opened = DriveFile::open(path, false).unwrap();
    let geometry = opened.medium.header().geometry;
    let (pus, garbage) = (geometry.dimensions().pus, [0xa5; BLOCK]);
    for (unit, chunk) in (0..units).flat_map(|unit| (0..geometry.chunks()).map(move |n| (unit, n)))
    {
        let start = geometry.ppa(unit / pus, unit % pus, chunk, 0);
        for block in 0..u64::from(opened.chunks[geometry.chunk_index(start)].programmed) {
            let (at, tags) = (Ppa(start.0 + block), &garbage[..TAG_BYTES]);
            while opened.medium.program(at, 1, &garbage, tags) == Moved::Pending {}
        }
    }
    opened.medium.close().unwrap();
}

/// A target that is damaged locks nobody out: the others are served, and change; it is told of,
/// refused by its name, and can be removed by who says that it may be lost.
#[test]
fn a_damaged_target_locks_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let create = "create a.ssd --profile ref --size 64M pages=16 groups=2 units=4/4 \
                  target=rules/pblk";
    assert!(run(at, create).status.success());
    let served = serve(at, "a.ssd");
    for (export, byte) in [("target0", 3), ("target1", 5)] {
        assert_eq!(ask(&mut client(at, export), BlockOp::Write, 0, 4096, &[byte; 4096]).0, 0);
    }
    served.stop();
    damage(&at.join("a.ssd"), 4);
    let (code, said) = refused(at, "snapshot a.ssd b.ssd");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = refused(at, "bench a.ssd --rw randread --ios 10");
    assert!(code != Some(0) && said.contains("target0"), "{said}");
    let served = serve(at, "a.ssd");
    assert_eq!(served.ready["damaged"][0]["name"], "target0", "{}", served.ready);
    let list = listed(at);
    let told = list["targets"].as_array().unwrap().iter().map(|one| &one["damaged"]);
    assert_eq!(told.map(Value::is_string).collect::<Vec<_>>(), [true, false], "{list}");
    let text = String::from_utf8(run(at, "target list ./control.sock").stdout).unwrap();
    assert!(text.lines().next().unwrap().contains("; damaged: "), "{text}");
    let Err(ClientError::Refused { words, .. }) = Client::connect_to(&address(at), "target0")
    else {
        panic!("it is damaged")
    };
    assert!(words.contains("target target0 is damaged: "), "{words}");
    let read = |export: &str| ask(&mut client(at, export), BlockOp::Read, 0, 4096, &[]);
    assert_eq!(read("target1"), (0, vec![5; 4096]));
    for (line, why) in [
        ("target remove ./control.sock target0", "--destroy says that it may be lost"),
        ("target remove ./control.sock target1", "is the only target that is not damaged"),
        ("rules list ./control.sock --target target0", "target target0 is damaged: "),
    ] {
        let (code, said) = refused(at, line);
        assert!(code == Some(1) && said.contains(why), "{line}: {said}");
    }
    assert!(run(at, "target create ./control.sock more --units 2").status.success());
    assert!(run(at, "target remove ./control.sock more").status.success());
    drop(served);
    let served = serve(at, "a.ssd");
    let gone = common::json(at, "target remove ./control.sock target0 --destroy");
    assert_eq!(gone["erased"], true);
    let made = common::json(at, "target create ./control.sock target0 --units 4");
    assert_eq!((&made["first_unit"], &made["damaged"]), (&0.into(), &Value::Null));
    assert_eq!((read("target0"), read("target1")), ((0, vec![0; 4096]), (0, vec![5; 4096])));
    served.stop();
    let served = serve(at, "a.ssd");
    assert!(served.ready.get("damaged").is_none(), "{}", served.ready);
    assert_eq!(names(&listed(at)), ["target0", "target1"]);
    served.stop();
}

/// Blocks that a set gives to nobody are told to who makes the target, not to who serves.
#[test]
fn who_makes_a_target_is_warned() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _served = serve(at, "mem:ref,size=64M,pages=16,groups=2,units=4/4");
    std::fs::write(at.join("few.rules"), LATE.replace("0..4K", "0..64")).unwrap();
    let make = "target create ./control.sock few --units 4 --rules ./few.rules";
    let (code, said) = refused(at, make);
    assert!(code == Some(0) && said.contains("blocks 64 to 4095 are no application's"), "{said}");
}
