//! Targets that come and go on a served drive, from outside: by `ssdkit target`, in memory and
//! in a file, and in the midst of kills.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use exports::nbd::{Client, ClientError, ListenAddr};
use port::BlockOp;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use workload::Rng;

use crate::common::{self, Served, ask, number, run, ssdkit, told};
use crate::examples::examples;
use crate::kill::{self, BLOCK, Model, fill, version};

/// 16 units of 4 MiB, of which 8 are somebody's.
const DRIVE: &str = "mem:ref,size=64M,pages=16,groups=2,units=4/4";

/// A drive that is served, with its control socket.
pub fn serve(at: &Path, drive: &str) -> Served {
    serve_with(at, drive, &[])
}

/// The same with more options.
pub fn serve_with(at: &Path, drive: &str, more: &[&str]) -> Served {
    let more = more.join(" ");
    let line = format!("serve {drive} --nbd ./drive.sock --control ./control.sock --json {more}");
    Served::start(ssdkit(&line).current_dir(at))
}

pub fn address(at: &Path) -> ListenAddr {
    ListenAddr::Unix(at.join("drive.sock"))
}

pub fn client(at: &Path, export: &str) -> Client {
    Client::connect_to(&address(at), export).unwrap_or_else(|e| panic!("{export}: {e}"))
}

/// Exit code and standard error.
pub fn refused(at: &Path, line: &str) -> (Option<i32>, String) {
    told(&run(at, line))
}

pub fn listed(at: &Path) -> Value {
    common::json(at, "target list ./control.sock")
}

pub fn names(list: &Value) -> Vec<&str> {
    list["targets"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn targets_come_and_go_while_a_drive_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _served = serve(at, DRIVE);
    let first = listed(at);
    assert_eq!(names(&first), ["target0", "target1"]);
    assert_eq!((&first["free"], &first["parallel_units"]), (&8.into(), &16.into()));
    let mut other = client(at, "target0");
    assert_eq!(ask(&mut other, BlockOp::Write, 0, 4096, &[5; 4096]).0, 0);
    // A new one is exported at once, with nothing on it.
    let made = common::json(at, "target create ./control.sock logs --units 6");
    assert_eq!((&made["name"], &made["size_bytes"]), (&"logs".into(), &(24 << 20).into()));
    assert_eq!((&made["first_byte"], &made["first_unit"]), (&(32 << 20).into(), &8.into()));
    let mut logs = client(at, "logs");
    assert_eq!(logs.size(), 24 << 20);
    let end = logs.size() - 4096;
    for place in [0, end] {
        assert_eq!(ask(&mut logs, BlockOp::Read, place, 4096, &[]), (0, vec![0; 4096]));
        assert_eq!(ask(&mut logs, BlockOp::Write, place, 4096, &[9; 4096]).0, 0);
    }
    assert_eq!(ask(&mut logs, BlockOp::Flush, 0, 0, &[]).0, 0);
    // The whole drive has grown with it.
    let mut whole = client(at, "");
    assert_eq!(whole.size(), 56 << 20);
    assert_eq!(ask(&mut whole, BlockOp::Read, 32 << 20, 4096, &[]).1, vec![9; 4096]);
    // One alone is measured by its name.
    let uri = "nbd+unix:///logs?socket=./drive.sock";
    let bench = common::json(at, &format!("bench {uri} --rw randread --ios 100 --qd 2"));
    assert_eq!(bench["drive"]["size_bytes"], 24 << 20, "{bench}");
    // What cannot be had is refused, and changes nothing.
    for (line, why) in [
        ("create ./control.sock logs --units 1", "there is a target logs already"),
        ("create ./control.sock more --units 3", "no 3 parallel units beside each other"),
        ("create ./control.sock more", "--units"),
        ("create ./control.sock a/b --units 1", "is no name"),
        ("remove ./control.sock nobody", "there is no target nobody"),
    ] {
        let (code, said) = refused(at, &format!("target {line}"));
        assert_eq!(code, Some(1), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    assert_eq!(names(&listed(at)), ["target0", "target1", "logs"]);
    // One goes: its connection ends, who comes is told, and others go on.
    let plain = String::from_utf8(run(at, "target remove ./control.sock logs").stdout).unwrap();
    assert_eq!(plain, "logs: removed, and erased\n");
    let gone = logs.submit(BlockOp::Read, 0, 4096, false, 0, &[]).and_then(|()| {
        logs.flush_sends()?;
        logs.recv(&mut |_, _, _| panic!("it is gone"))
    });
    assert!(gone.is_err(), "{gone:?}");
    let Err(ClientError::Refused { words, .. }) = Client::connect_to(&address(at), "logs") else {
        panic!("it is gone")
    };
    assert!(words.contains("no export of this name"), "{words}");
    assert_eq!(ask(&mut other, BlockOp::Read, 0, 4096, &[]), (0, vec![5; 4096]));
    assert_ne!(ask(&mut whole, BlockOp::Read, 32 << 20, 4096, &[]).0, 0, "it is nobody's");
    // Another has its units, and nothing of what was there.
    assert!(run(at, "target create ./control.sock logs --units 8").status.success());
    let mut logs = client(at, "logs");
    assert_eq!(ask(&mut logs, BlockOp::Read, 0, 4096, &[]), (0, vec![0; 4096]));
    assert!(run(at, "target remove ./control.sock target1").status.success());
    assert!(run(at, "target remove ./control.sock logs").status.success());
    let (code, said) = refused(at, "target remove ./control.sock target0");
    assert!(code == Some(1) && said.contains("is the only target"), "{said}");
}

/// All commands tell the same capacity, and the same end of the addresses.
#[test]
fn what_targets_leave_is_told_alike() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let create = "create a.ssd --profile ref --size 64M pages=16 groups=2 units=4/4";
    let text = |line: &str| String::from_utf8(run(at, line).stdout).unwrap();
    let made = text(create);
    assert!(
        made.contains("a drive of 64 MiB") && made.contains("addresses: up to 32 MiB"),
        "{made}"
    );
    let told = text("info a.ssd");
    assert!(told.contains("\ncapacity    64 MiB of"), "{told}");
    assert!(told.contains("\naddresses   up to 32 MiB\n"), "{told}");
    let bench = "bench a.ssd --rw randwrite --ios 10 --precondition none";
    let measured = text(bench);
    assert!(measured.contains("addresses_end=32MiB") && measured.contains("size=64MiB"));
    let served = serve(at, "a.ssd");
    let of = |json: &Value| (number(&json["size_bytes"]), number(&json["address_bytes"]));
    assert_eq!(of(&served.ready), (64 << 20, 32 << 20));
    served.stop();
    let json = common::json(at, "info a.ssd");
    assert_eq!(of(&json["drive"]), (64 << 20, 32 << 20));
    let json = common::json(at, &format!("{bench} --destroy"));
    assert_eq!(of(&json["drive"]), (64 << 20, 32 << 20));
}

#[test]
fn a_drive_file_keeps_its_targets() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let create = "create a.ssd --profile ref --size 64M pages=16 groups=2 units=4/4";
    assert!(run(at, create).status.success());
    let served = serve(at, "a.ssd");
    assert!(run(at, "target create ./control.sock mine --units 2").status.success());
    let mut mine = client(at, "mine");
    assert_eq!(ask(&mut mine, BlockOp::Write, 8192, 4096, &[3; 4096]).0, 0);
    assert!(run(at, "target remove ./control.sock target0").status.success());
    assert_eq!(ask(&mut mine, BlockOp::Flush, 0, 0, &[]).0, 0);
    drop(served);
    let info = common::json(at, "info a.ssd");
    let parts = info["drive"]["parts"].as_array().unwrap();
    let told: Vec<_> = parts.iter().map(|part| (&part["name"], &part["first"])).collect();
    assert_eq!(told, [(&"target1".into(), &4.into()), (&"mine".into(), &8.into())]);
    assert_eq!(
        (&parts[1]["first_byte"], &parts[1]["size_bytes"]),
        (&(32 << 20).into(), &(8 << 20).into())
    );
    let text = String::from_utf8(run(at, "info a.ssd").stdout).unwrap();
    assert!(text.contains("mine: ") && text.contains("nobody's: 10 of 16"), "{text}");
    let served = serve(at, "a.ssd");
    assert_eq!(names(&listed(at)), ["target1", "mine"]);
    assert_eq!(listed(at)["targets"][1]["first_byte"], 32 << 20);
    let mut mine = client(at, "mine");
    assert_eq!(ask(&mut mine, BlockOp::Read, 8192, 4096, &[]), (0, vec![3; 4096]));
    drop(mine);
    served.stop();
    // A copy is the same drive, and other commands know it.
    assert!(run(at, "snapshot a.ssd b.ssd").status.success());
    let served = serve(at, "ssd:b.ssd,copy=yes");
    assert_eq!(names(&listed(at)), ["target1", "mine"]);
    let mut mine = client(at, "mine");
    assert_eq!(ask(&mut mine, BlockOp::Read, 8192, 4096, &[]).1, vec![3; 4096]);
    assert!(run(at, "target remove ./control.sock mine").status.success());
    drop(served);
    assert_eq!(common::json(at, "info b.ssd")["drive"]["parts"].as_array().unwrap().len(), 2);
}

/// What the page shows.
#[test]
fn the_page_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let lines = examples("target.md");
    let (first, rest) = lines.split_first().unwrap();
    let drive = first.split_whitespace().nth(1).unwrap();
    assert_eq!(*first, format!("serve {drive} --nbd ./drive.sock --control ./control.sock"));
    let _served = serve(at, drive);
    assert!(rest.len() > 3, "{lines:?}");
    for line in rest {
        let out = run(at, line);
        assert!(out.status.success() && !out.stdout.is_empty(), "{line}: {out:?}");
    }
}

/// Targets that have chunks of all units come and go, too: as large as they were.
#[test]
fn slices_of_all_units_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let drive = "mem:ref,size=64M,pages=16,groups=2,targets=4,placement=stripe";
    let _served = serve(at, drive);
    let (code, said) = refused(at, "target create ./control.sock");
    assert!(code == Some(1) && said.contains("remove one first"), "{said}");
    assert!(run(at, "target remove ./control.sock target2").status.success());
    assert_eq!(listed(at)["free"], 1);
    let made = common::json(at, "target create ./control.sock mine");
    assert_eq!(
        (&made["size_bytes"], &made["first_byte"]),
        (&(16 << 20).into(), &(32 << 20).into())
    );
    assert_eq!(ask(&mut client(at, "mine"), BlockOp::Write, 0, 4096, &[1; 4096]).0, 0);
}

/// What others would still have of a target that went is refused by its name.
#[test]
fn drives_whose_targets_stay_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (more, why) in [
        ("", "neither rules nor several targets"),
        (",targets=2,cache=protected", "protected cache"),
        (",targets=2,read_cache=1m", "read cache"),
        (",targets=2,map_unit=16k", "map_unit=4k"),
    ] {
        let line = format!("serve mem:ref,size=64M{more} --nbd ./d.sock --control ./c.sock");
        let (code, said) = refused(at, &line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
    let (code, said) = refused(at, "target list ./c.sock");
    assert!(code == Some(1) && said.contains("nobody answers there"), "{said}");
}

fn message(asked: &Value) -> Vec<u8> {
    let body = asked.to_string();
    let head = [&b"SSDCNTRL\x01\0\0\0"[..], &(body.len() as u32).to_le_bytes()].concat();
    [&head[..], body.as_bytes()].concat()
}

/// Whatever is asked there, and however it breaks off, the drive is served on; who does not
/// wait for the answer has what was asked all the same.
#[test]
fn a_hostile_client_hurts_no_target() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _served = serve(at, DRIVE);
    let socket = at.join("control.sock");
    for asked in [
        json!({}),
        json!([1, 2]),
        json!({ "ask": 7 }),
        json!({ "ask": "rules" }),
        json!({ "ask": "remove" }),
        json!({ "ask": "remove", "name": "x".repeat(1 << 20) }),
        json!({ "ask": "create", "units": -1 }),
        json!({ "ask": "create", "units": u64::MAX }),
        json!({ "ask": "create", "units": u32::MAX }),
        json!({ "ask": "create", "units": "all" }),
        json!({ "ask": "create", "units": 1, "rules": ["latency"] }),
        json!({ "ask": "create", "units": 1, "name": 7 }),
        json!({ "ask": "create", "name": "\u{1b}[31m", "units": 1 }),
    ] {
        let mut sock = UnixStream::connect(&socket).unwrap();
        sock.write_all(&message(&asked)).unwrap();
        let mut answer = Vec::new();
        sock.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("\"error\""), "{asked}: {answer}");
    }
    assert_eq!(names(&listed(at)), ["target0", "target1"]);
    // Many at once, who leave at once: one of them, or some one after the other, succeed.
    for n in 0..8 {
        let mut sock = UnixStream::connect(&socket).unwrap();
        let asked = json!({ "ask": "create", "name": format!("n{n}"), "units": 1 });
        sock.write_all(&message(&asked)).unwrap();
    }
    let mut other = client(at, "target0");
    assert_eq!(ask(&mut other, BlockOp::Write, 0, 4096, &[5; 4096]).0, 0);
    // While others have the places who asks is told so for a while, and asks again.
    let mut found = run(at, "target list ./control.sock --json");
    for _ in 0..200 {
        if found.status.success() && String::from_utf8_lossy(&found.stdout).contains("\"n") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        found = run(at, "target list ./control.sock --json");
    }
    let list: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert!(names(&list).len() > 2, "{list}");
    // A connection that never reads is no reason to stay.
    let name = names(&list)[2].to_string();
    let mut stuck = client(at, &name);
    for id in 0..64 {
        if stuck.submit(BlockOp::Read, 0, 1 << 20, false, id, &[]).is_err() {
            break;
        }
    }
    let _ = stuck.flush_sends();
    assert!(run(at, &format!("target remove ./control.sock {name}")).status.success());
    assert_eq!(ask(&mut other, BlockOp::Read, 0, 4096, &[]), (0, vec![5; 4096]));
}

/// What is known of a target that comes and goes.
#[derive(Clone, Debug, Default)]
struct Known {
    /// It is there; none where a kill came before the answer.
    is_there: Option<bool>,
    /// What its first blocks have: the last that was flushed, and what may be there of what
    /// was not.
    flushed: u64,
    written: Vec<u64>,
}

/// Blocks that are written of each target that comes and goes.
const MARKS: usize = 24;

/// Has targets come and go, and writes to them, until the server is gone.
struct Churn<'a> {
    at: &'a Path,
    rng: Rng,
    last: u64,
    known: BTreeMap<String, Known>,
    changes: u64,
}

impl Churn<'_> {
    /// Does one thing; false where the server is gone.
    fn step(&mut self) -> bool {
        let name = format!("other{}", self.rng.below(3));
        let known = self.known.get(&name).cloned().unwrap_or_default();
        match (known.is_there.expect("it was looked at"), self.rng.below(3)) {
            (false, _) => self.create(&name),
            (true, 0) => self.remove(&name),
            (true, _) => self.write(&name),
        }
        .is_some()
    }

    fn asked(&mut self, name: &str, asked: &Value, then: bool) -> Option<()> {
        let before = self.known[name].is_there;
        self.known.get_mut(name).unwrap().is_there = None;
        let answer = ssdkit::fronts::ask(&self.at.join("control.sock"), asked, &mut |_| ()).ok()?;
        let is_done = answer.get("error").is_none();
        if is_done {
            self.changes += 1;
        }
        self.known.get_mut(name).unwrap().is_there = if is_done { Some(then) } else { before };
        Some(())
    }

    fn create(&mut self, name: &str) -> Option<()> {
        let units = 1 + self.rng.below(4);
        let new = Known { is_there: Some(false), ..Known::default() };
        self.known.insert(name.into(), new);
        let mut asked = json!({ "ask": "create", "name": name, "units": units });
        if self.rng.below(2) == 0 {
            asked["rules"] = "minimal".into();
        }
        self.asked(name, &asked, true)
    }

    fn remove(&mut self, name: &str) -> Option<()> {
        self.asked(name, &json!({ "ask": "remove", "name": name }), false)
    }

    fn write(&mut self, name: &str) -> Option<()> {
        let mut client = Client::connect_to(&address(self.at), name).ok()?;
        self.last += 1;
        let number = self.last;
        self.known.get_mut(name).unwrap().written.push(number);
        let mut bytes = vec![0; MARKS * BLOCK];
        for (lba, out) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            fill(lba as u64, number, out);
        }
        for (op, len, data) in
            [(BlockOp::Write, bytes.len() as u64, &bytes[..]), (BlockOp::Flush, 0, &[])]
        {
            client.submit(op, 0, len, false, 0, data).ok()?;
            client.flush_sends().ok()?;
            let mut each = |_, error, _: &[u8]| assert_eq!(error, 0, "{name}: {op:?}");
            client.recv(&mut each).ok().filter(|&n| n == 1)?;
        }
        let known = self.known.get_mut(name).unwrap();
        (known.flushed, known.written) = (number, Vec::new());
        Some(())
    }

    /// The server is there again: the targets are those that it said, with what was flushed.
    fn verify(&mut self, seed: u64) {
        let list = listed(self.at);
        let found = names(&list);
        assert!(found.contains(&"target0"), "seed {seed}: {list}");
        for name in &found[1..] {
            assert!(self.known.contains_key(*name), "seed {seed}: {name} was never asked for");
        }
        for (name, known) in &mut self.known {
            let is_found = found.contains(&name.as_str());
            assert!(known.is_there.is_none_or(|is| is == is_found), "seed {seed}: {name}: {list}");
            known.is_there = Some(is_found);
            if !is_found {
                assert!(Client::connect_to(&address(self.at), name).is_err(), "seed {seed}");
                continue;
            }
            let mut client = client(self.at, name);
            let (error, bytes) = ask(&mut client, BlockOp::Read, 0, (MARKS * BLOCK) as u64, &[]);
            assert_eq!(error, 0, "seed {seed}: {name}");
            for (lba, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
                let is = version(lba as u64, bytes, seed);
                let may_be = is == known.flushed || known.written.contains(&is);
                assert!(may_be, "seed {seed}: {name}: block {lba} is {is}: {known:?}");
            }
        }
    }
}

/// One target is written while others come and go, and the server is killed again and again:
/// all that was flushed is there, and the targets are those from before or after a change.
#[test]
fn targets_survive_kills_while_others_come_and_go() {
    let kills = kill::number("SSDKIT_KILLS", 6) as u32;
    let seed = kill::seed();
    println!("{kills} kills, SSDKIT_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let create =
        "create a.ssd --profile znand --size 128M groups=4 pus=4 planes=1 pages=64 units=8";
    let made = run(at, create);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut model = Model::new(seed, false);
    let known =
        (0..3).map(|n| (format!("other{n}"), Known { is_there: Some(false), ..Known::default() }));
    let known = known.collect();
    let mut churn = Churn { at, rng: Rng::new(seed, 2), last: 0, known, changes: 0 };
    for round in 0..kills {
        let served = serve(at, "a.ssd");
        assert!(round == 0 || served.ready["recovery"]["clean"] == false, "seed {seed}");
        model.verify(&mut client(at, "target0"));
        churn.verify(seed);
        let after = Duration::from_millis(30 + churn.rng.below(1500));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Ok(mut client) = Client::connect_to(&address(at), "target0") {
                    model.work(&mut client);
                }
            });
            scope.spawn(|| while churn.step() {});
            std::thread::sleep(after);
            kill_process(served.pid(), Signal::KILL).unwrap();
        });
        drop(served);
    }
    let served = serve(at, "a.ssd");
    model.verify(&mut client(at, "target0"));
    churn.verify(seed);
    served.stop();
    println!(
        "{} writes and trims answered, {} durable, {} changes of targets",
        model.acknowledged, model.made_durable, churn.changes
    );
    assert!(model.made_durable > 0 && churn.changes > u64::from(kills), "seed {seed}");
}
