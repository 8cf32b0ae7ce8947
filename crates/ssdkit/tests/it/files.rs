//! Drive files through the binary: making, opening, looking, copying, and
//! what is refused.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use exports::nbd::{Client, ListenAddr};
use port::BlockOp;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Served, ask, json_of, ssdkit, told};

/// A folder with its commands.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command; `''` is an empty word.
    fn run(&self, line: &str) -> Output {
        let words = line.split_whitespace().map(|word| if word == "''" { "" } else { word });
        ssdkit("").args(words).current_dir(self.0.path()).output().unwrap()
    }

    /// What a command says that must succeed.
    fn json(&self, line: &str) -> Value {
        json_of(&self.run(&format!("{line} --json")), line)
    }

    /// Exit code and message of one that must fail: one clear line.
    fn failure(&self, line: &str) -> (i32, String) {
        let out = self.run(line);
        let text = String::from_utf8(out.stderr).unwrap();
        let code = out.status.code().unwrap_or_else(|| panic!("{line} was killed: {text}"));
        assert!(code == 1 || code == 2, "{line}: {code}: {text}");
        assert!(out.stdout.is_empty(), "{line} printed a result");
        assert!(text.starts_with("ssdkit: ") && text.trim_end().lines().count() == 1, "{text}");
        (code, text)
    }

    /// Serves a.ssd.
    fn serve(&self) -> Served {
        Served::start(ssdkit("serve ./a.ssd --nbd sock --json").current_dir(self.0.path()))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A report without what differs from run to run.
fn lasting(mut json: Value) -> Value {
    for key in ["wall_seconds", "cpu"] {
        json.as_object_mut().unwrap().remove(key).unwrap();
    }
    if let Some(recovery) = json.get_mut("recovery") {
        recovery.as_object_mut().unwrap().remove("wall_seconds").unwrap();
    }
    json
}

const SMALL: &str = "groups=2 pus=2 pages=64";

/// A drive so small that it cannot have its profile's spare says why it has more.
#[test]
fn a_spare_that_was_raised_is_told() {
    let at = Place::new();
    let said = |line: &str| String::from_utf8(at.run(line).stdout).unwrap();
    let small = said("create a.ssd --profile tlc --size 64M");
    assert!(small.contains("\nspare: 0.8571, not the profile's 0.2: "), "{small}");
    let asked = said("create b.ssd --profile tlc --size 64M --spare 0.9");
    assert!(asked.contains("spare 0.9") && !asked.contains("not the profile's"), "{asked}");
}

#[test]
fn a_drive_file_is_a_drive() {
    let at = Place::new();
    let made = at.json(&format!("create a.ssd --profile znand --size 16M --spare 0.3 {SMALL}"));
    assert_eq!((&made["size_bytes"], &made["parallel_units"]), (&(16 << 20).into(), &4.into()));
    assert!(made["used_bytes"].as_u64().unwrap() < 1 << 20, "it is sparse: {made}");
    assert!(made["raw_bytes"].as_u64().unwrap() > 16 << 20);

    let new = at.json("info a.ssd");
    assert_eq!((&new["clean"], &new["checkpoint"]), (&true.into(), &0.into()));
    assert!(new["write_amplification"].is_null());
    assert_eq!(new["chunks"]["free"], new["chunks"]["all"]);

    let line = "bench ./a.ssd --rw randrw --qd 16 --ios 20k --flush-every 50 --verify";
    let first = at.json(line);
    assert_eq!((&first["errors"], &first["ios"]), (&0.into(), &20_000.into()));
    assert_eq!(first["recovery"]["clean"], true);
    assert_eq!(first["workload"]["clock"], "virtual");
    assert!(first.get("warnings").is_none(), "{first}");

    let used = at.json("info ./a.ssd");
    assert_eq!(used["clean"], true);
    let user = used["written"]["user_blocks"].as_u64().unwrap();
    assert!(user > 9000, "{used}");
    assert!(used["write_amplification"]["total"].as_f64().unwrap() > 1.0);
    let spread = used["wear"]["distribution"].as_array().unwrap();
    let counted: u64 = spread.iter().map(|step| step["chunks"].as_u64().unwrap()).sum();
    assert_eq!(used["chunks"]["all"], counted);

    // On the clock, and below the block layer; counters go on.
    let more = at.json(
        "bench ssd:a.ssd --rw randrw --qd 4 --time 100ms --clock real --destroy --precondition seq \
         --verify",
    );
    assert_eq!((&more["errors"], &more["workload"]["clock"]), (&0.into(), &"real".into()));
    at.json("bench file:a.ssd --rw randwrite --qd 8 --ios 3k --cores 2 --destroy --flush-every 9");
    let hosted = "bench ./a.ssd --rw randwrite --qd 8 --ios 2k --dispatch hosted --destroy";
    at.json(&format!("{hosted} --flush-every 100"));
    let last = at.json("info a.ssd");
    assert_eq!(last["clean"], true);
    assert!(last["written"]["user_blocks"].as_u64().unwrap() > user + 8192 + 4500);
    let text = String::from_utf8(at.run("info a.ssd").stdout).unwrap();
    for word in ["shut down cleanly", "rated", "write amplification", "a terabyte"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

/// What limits a drive's writes is in the text, and its buffers in the memory.
#[test]
fn what_limits_a_drive_is_told() {
    let at = Place::new();
    let said = |name: &str| String::from_utf8(at.run(&format!("info {name}")).stdout).unwrap();
    let plain = said("mem:tlc,size=64M,groups=2,pus=2");
    assert!(!plain.contains("\nlimits"), "{plain}");
    let name = "mem:tlc,size=64M,groups=2,pus=2,write_buffer=4m,buffer_rate=2GB/s,unreadable=40,\
                open_chunks=20,open_chunks_pu=5";
    let text = said(name);
    for word in [
        "\nlimits      write buffer of 4 MiB; 2.00 GB/s through its buffer; last 40 blocks of an \
         open chunk unreadable; 20 open chunks at most; 5 open chunks of a unit at most",
        "; 4 MiB of write buffer",
        " for rows that cannot be read yet",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    let memory = &at.json(&format!("info {name}"))["memory"];
    let row = 4096 * 8;
    assert_eq!(memory["write_buffer_bytes"].as_u64().unwrap(), (4 << 20) / row * row);
    // Of four units two chunks each.
    assert_eq!(memory["held_bytes"].as_u64().unwrap(), 4 * 2 * 40u64.div_ceil(8) * row);
}

#[test]
fn what_is_on_a_drive_is_kept() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile ref --size 16M {SMALL}"));
    at.json("bench ./a.ssd --rw write --bs 128k --ios 128 --verify");
    let (code, text) = at.failure("bench ./a.ssd --rw randwrite --ios 10");
    assert!(code == 2 && text.contains("--destroy") && text.contains("copy=yes"), "{text}");
    let (code, text) = at.failure("bench ./a.ssd --rw randread --verify --ios 10");
    assert!(code == 2 && text.contains("--precondition seq"), "{text}");
    assert_eq!(at.json("info a.ssd")["clean"], true);
    assert_eq!(at.json("bench ./a.ssd --rw randread --ios 1k")["errors"], 0);
}

#[test]
fn one_state_gives_one_result() {
    let at = Place::new();
    for store in ["memory", "checksum"] {
        let drive = format!("mem:tlc,size=32M,store={store},{}", SMALL.replace(' ', ","));
        let load = "--rw randrw --qd 32 --ios 30k --seed 5";
        let aged = format!("{store}.ssd");
        let saved = at.json(&format!("bench {drive} {load} --precondition seq --snapshot {aged}"));
        let before = fs::read(at.path(&aged)).unwrap();
        let run = |more: &str| lasting(at.json(&format!("bench ssd:{aged},copy=yes {load}{more}")));
        let (one, two) = (run(""), run(""));
        assert_eq!(one, two);
        assert_ne!(one["state_hash"], run(" --zipf 0.9")["state_hash"]);
        assert!(fs::read(at.path(&aged)).unwrap() == before, "the snapshot stays as it was");
        // The run that saved it went on from there as well.
        for key in ["state_hash", "seconds", "latency_ns", "write_amplification"] {
            assert_eq!(saved[key], one[key], "{key}");
        }
        // And so does a copy, and the drive itself.
        at.json(&format!("snapshot {aged} {store}2.ssd"));
        let copy = at.json(&format!("bench ./{store}2.ssd {load} --destroy"));
        for key in ["seconds", "latency_ns", "write_amplification"] {
            assert_eq!(copy[key], one[key], "{key}");
        }
    }
}

/// Also where so little was written that the target had no checkpoint yet.
#[test]
fn what_is_on_a_drive_whose_server_was_killed_is_kept() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile znand --size 16M {SMALL}"));
    let is_kept = |when: &str| {
        let (code, text) = at.failure("bench ./a.ssd --rw randwrite --ios 10");
        assert!(code == 2 && text.contains("--destroy"), "{when}: {text}");
        let info = at.run("info a.ssd");
        let info = String::from_utf8(info.stdout).unwrap();
        assert!(!info.contains("nothing since it was made"), "{when}: {info}");
    };
    let server = at.serve();
    at.json("bench nbd:sock --rw write --ios 50 --flush-every 10 --destroy");
    drop(server);
    let info = at.json("info a.ssd");
    assert!(info["written"].is_null() && info["checkpoint"].is_null(), "not known: {info}");
    is_kept("killed");
    at.json("snapshot file:a.ssd copy.ssd");
    at.serve().stop();
    is_kept("opened again");
}

#[test]
fn a_drive_has_one_user() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile znand --size 16M {SMALL}"));
    let server = at.serve();
    let ready = &server.ready;
    assert_eq!(
        (&ready["drive"], &ready["size_bytes"]),
        (&"ssd:./a.ssd".into(), &(16 << 20).into())
    );
    let who = format!("in use by process {}", server.child.id());
    for line in [
        "info a.ssd",
        "bench ./a.ssd --rw randread --ios 1",
        "bench ssd:a.ssd,copy=yes --rw randread --ios 1",
        "serve ./a.ssd --nbd other",
        "snapshot a.ssd b.ssd",
        "create a.ssd --profile ref --size 16M --force",
    ] {
        let (code, text) = at.failure(line);
        assert!(code == 1 && text.contains(&who), "{line}: {text}");
    }
    at.json("bench nbd:sock --rw randrw --qd 8 --ios 2k --verify --flush-every 20 --destroy");
    assert_eq!(server.stop()["faults"], 0);
    let info = at.json("info a.ssd");
    assert_eq!((&info["clean"], &info["file"]), (&true.into(), &"a.ssd".into()));
    assert_eq!(at.names(), ["a.ssd"]);
}

#[test]
fn a_protected_cache_answers_flushes_at_once_and_tells_how_full_it_is() {
    let at = Place::new();
    let load = "--rw randwrite --bs 4k --qd 1 --ios 2000 --flush-every 1 --clock virtual";
    let mut flush = Vec::new();
    for cache in ["volatile", "protected"] {
        let made =
            at.json(&format!("create {cache} --profile tlc --size 64M --cache {cache} {SMALL}"));
        assert_eq!(made["cache"], cache);
        let report = at.json(&format!("bench ./{cache} {load}"));
        flush.push(report.to_string());
        let info = at.json(&format!("info {cache}"));
        assert_eq!((&info["cache"], &info["clean"]), (&cache.into(), &true.into()));
        println!("{cache}: {report}");
    }
    let info = at.json("info protected");
    assert_eq!(info["journal"]["bytes"], (8 << 20) - 4096);
    assert_eq!(info["journal"]["used_bytes"], 0);
    assert!(at.json("info volatile")["journal"].is_null());
    // A copy has the journal, too.
    at.json("snapshot protected copy");
    at.json("bench ssd:protected,copy=yes --rw randread --ios 10");
    assert_eq!(at.json("info copy")["journal"], info["journal"]);
}

#[test]
fn a_preallocated_drive_has_all_of_its_space() {
    let at = Place::new();
    for (name, given) in [("sparse", ""), ("whole", "--preallocate")] {
        let made = at.json(&format!("create {name} --profile tlc --size 64M {given} {SMALL}"));
        let whole = !given.is_empty();
        assert_eq!(made["preallocated"], whole);
        let bytes = std::fs::metadata(at.path(name)).expect("it was made").len();
        assert_eq!(made["used_bytes"].as_u64().expect("a number") >= bytes, whole, "{made}");
        // Written three times over: whatever was erased, it is as before.
        at.json(&format!("bench ./{name} --rw randwrite --bs 64k --ios 3k --destroy"));
        let info = at.json(&format!("info {name}"));
        assert_eq!(info["preallocated"], whole);
        assert_eq!(info["used_bytes"].as_u64().expect("a number") >= bytes, whole, "{info}");
    }
    let said = String::from_utf8(at.run("info whole").stdout).expect("text");
    assert!(said.contains("on the disk, preallocated, cache volatile"), "{said}");
}

#[test]
fn a_protected_cache_in_memory_takes_no_time_for_fua() {
    let at = Place::new();
    let seconds = |cache: &str, every: &str| {
        let drive = format!("mem:tlc,size=64M,cache={cache}");
        let report = at.json(&format!("bench {drive} --rw randwrite --ios 2k {every}"));
        report["seconds"].as_f64().expect("it took drive time")
    };
    let plain = seconds("protected", "");
    assert_eq!(plain, seconds("protected", "--fua-every 1"));
    assert!(seconds("volatile", "--fua-every 1") > 10.0 * plain);
}

#[test]
fn a_snapshot_of_a_protected_drive_is_protected() {
    let at = Place::new();
    let load = "--rw randwrite --ios 100 --precondition seq --snapshot aged";
    at.json(&format!("bench mem:tlc,size=64M,cache=protected {load}"));
    let info = at.json("info aged");
    assert_eq!((&info["cache"], &info["clean"]), (&"protected".into(), &true.into()));
    let report = at.json("bench ssd:aged,copy=yes --rw randread --ios 10");
    assert_eq!(report["recovery"]["written_again"], 0);
}

/// Of a drive that did not take what its protected cache holds: part of a block, of which the
/// rest cannot be read.
#[test]
fn of_a_drive_that_lacks_what_its_cache_holds_there_is_no_snapshot() {
    let at = Place::new();
    at.json("create d.ssd --profile tlc --size 64M --cache protected");
    let (drive, socket) = (at.path("d.ssd"), at.path("socket"));
    let served = || {
        let line = format!("serve {} --json --nbd {}", drive.display(), socket.display());
        let served = Served::start(&mut ssdkit(&line));
        (served, Client::connect(&ListenAddr::Unix(socket.clone())).unwrap())
    };
    let (server, mut client) = served();
    assert_eq!(ask(&mut client, BlockOp::Write, 0, 4096, &[0xD3; 4096]).0, 0);
    client.close().unwrap();
    server.stop();
    let (server, mut client) = served();
    assert_eq!(ask(&mut client, BlockOp::Write, 512, 512, &[7; 512]).0, 0);
    server.end(Signal::KILL);
    let mut file = fs::read(&drive).unwrap();
    let place = file.chunks(4096).position(|block| block == [0xD3; 4096]).unwrap();
    file[place * 4096 + 9] ^= 1;
    fs::write(&drive, &file).unwrap();
    let out = at.run("bench ssd:d.ssd --rw randread --ios 10 --snapshot copy");
    let (code, words) = told(&out);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("did not take what its protected cache holds"), "{words}");
    assert!(!at.path("copy").exists());
}

#[test]
fn what_cannot_be_made_is_refused() {
    let at = Place::new();
    fs::write(at.path("full"), "not empty").unwrap();
    fs::create_dir(at.path("folder")).unwrap();
    fs::write(at.path("empty.ssd"), "").unwrap();
    let empty = "empty.ssd: the file is empty, and so no drive file";
    for (line, code, says) in [
        ("bench empty.ssd --rw read", 2, empty),
        ("bench ssd:empty.ssd --rw read", 2, empty),
        ("test iops ./empty.ssd --destroy", 2, empty),
        ("info empty.ssd", 2, empty),
        ("serve empty.ssd --nbd sock", 2, empty),
        ("snapshot empty.ssd b", 2, empty),
        ("run --drive empty.ssd --map data -- true", 2, empty),
        ("explain empty.ssd --rw read", 2, empty),
        ("create a --profile nand", 2, "there is no profile `nand`"),
        ("create a --profile ref --size 5", 2, "multiple of 4 KiB"),
        ("create a --profile ref --size 1G chunks=3", 2, "needs"),
        ("create a --profile ref --size 1G size=2G", 2, "given twice"),
        ("create a --profile ref --size 1G pus=2 pus=3", 2, "given twice"),
        ("create a --profile ref --size 1G shop=3", 2, "no key of a drive"),
        ("create a --profile ref --size 1G --store paper", 2, "memory, checksum or none"),
        ("create a --profile ref --size 1G --victim me", 2, "greedy"),
        ("create a --profile ref --size 1G --spare 2", 2, "spare"),
        ("create a --profile ref --size 64M unreadable=8 parity=8", 2, "unreadable must be 0"),
        (
            "create a --profile znand --size 64M target=batch unreadable=8",
            2,
            "unreadable must be 0",
        ),
        ("create a --profile ref --size 64M open_chunks=999 parity=8", 2, "must be none"),
        ("create a --profile znand --size 64M target=batch open_chunks_pu=9", 2, "must be none"),
        ("create a --profile ref --size 64M open_chunks=5", 2, "chunks are open at a time"),
        ("create a --profile ref --size 64M open_chunks=0", 2, "open_chunks = 0"),
        ("create a --profile ref --size 64M --cache none", 2, "volatile or protected"),
        ("create full --profile ref --size 64M", 2, "exists already"),
        ("create '' --profile ref --size 64M", 2, "the name of the drive file is empty"),
        ("create '' --profile ref --size 64M --force", 2, "the name of the drive file is empty"),
        ("create folder --profile ref --size 64M --force", 2, "a directory"),
        ("create full --profile ref --size 64M --force", 2, "replaces nothing else"),
        ("create a --profile null --size 99999T", 2, "take a smaller size"),
        ("create no/such/a --profile ref --size 64M", 2, "no folder"),
        ("snapshot nothing b", 2, "no such file"),
        ("snapshot full b", 2, "not a drive file"),
        ("snapshot full no/such/b", 2, "no folder"),
        ("info nothing", 2, "no such file"),
        ("info full", 2, "not a drive file"),
        ("info folder", 2, "a directory"),
        ("info null:", 2, "tells nothing"),
        ("info mem:nand", 2, "there is no profile"),
        ("serve ssd:full --nbd sock", 2, "not a drive file"),
        ("bench ssd:nothing --rw read", 2, "no such file"),
        ("bench null: --rw read --snapshot b", 2, "--snapshot saves"),
        ("bench mem:ref,size=16M --rw read --snapshot full", 2, "exists already"),
    ] {
        let (was, text) = at.failure(line);
        assert!(was == code && text.contains(says), "{line}: {was}: {text}");
    }
    assert_eq!(at.names(), ["empty.ssd", "folder", "full"], "no half file stays");
    assert_eq!(fs::read(at.path("full")).unwrap(), b"not empty");
}

/// Whichever command is asked for a drive or a file that is not there, it says which, and that
/// it was asked for what cannot be.
#[test]
fn what_is_not_there_is_told_alike_by_all() {
    let at = Place::new();
    fs::create_dir(at.path("map")).unwrap();
    fs::write(at.path("job.fio"), "[a]\nrw=randread\nbs=4k\nsize=1m\n").unwrap();
    fs::write(at.path("t.csv"), "128166372003061629,a,0,Write,0,8192,100\n").unwrap();
    for line in [
        "info nosuch",
        "snapshot nosuch b",
        "bench nosuch.ssd --rw randread",
        "bench ssd:nosuch,copy=yes --rw randread",
        "explain ssd:nosuch --rw randread",
        "replay t.csv ./nosuch",
        "replay nosuch mem:null,size=16M",
        "fio job.fio --drive ./nosuch",
        "fio nosuch --drive mem:null,size=16M",
        "test iops ./nosuch --quick",
        "serve ./nosuch --nbd sock",
        "serve ssd:nosuch --redis sock",
        "run --drive ./nosuch --map map -- true",
        "run --drive ssd:nosuch --map map -- true",
        "trace nosuch",
        "compare nosuch nosuch",
        "sweep nosuch",
        "twin nosuch --family tlc",
        "rules check nosuch",
        "create a --profile nosuch.toml --size 16M",
        "bench mem:tlc,size=16M --rw randread --faults nosuch",
    ] {
        let (code, text) = at.failure(line);
        assert_eq!(code, 2, "{line}: {text}");
        let words = ["no such file", "there is no drive file", "does not exist", "No such file"];
        let is_told = words.iter().any(|words| text.contains(words));
        assert!(is_told && text.contains("nosuch"), "{line}: {text}");
    }
}

#[test]
fn force_replaces_a_drive() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile ref --size 16M {SMALL}"));
    at.json("bench ./a.ssd --rw write --ios 100");
    let made =
        at.json(&format!("create a.ssd --profile znand --size 32M --store none {SMALL} --force"));
    assert_eq!(made["size_bytes"], 32 << 20);
    assert_eq!(at.json("info a.ssd")["checkpoint"], 0);
    assert_eq!(at.names(), ["a.ssd"]);
    let (code, text) = at.failure("serve ./a.ssd --nbd sock");
    assert!(code == 2 && text.contains("store=none"), "{text}");
    let (code, text) = at.failure("bench ./a.ssd --rw randread --bs 512");
    assert!(code == 2 && text.contains("multiples of 4k"), "{text}");
    let (code, text) = at.failure("bench file:a.ssd,direct=no --rw randread");
    assert!(code == 2 && text.contains("is a drive file"), "{text}");
}

/// Commands that open a drive.
const OPENS: [&str; 4] = [
    "info bad.ssd",
    "bench ssd:bad.ssd --rw randread --ios 100",
    "bench ssd:bad.ssd,copy=yes --rw randread --ios 100",
    "serve ssd:bad.ssd --nbd sock",
];

#[test]
fn damage_is_told() {
    let at = Place::new();
    at.json(&format!("create good.ssd --profile null --size 16M {SMALL}"));
    at.json("bench ./good.ssd --rw write --bs 64k --ios 200 --flush-every 7");
    let good = at.path("good.ssd");
    let len = fs::metadata(&good).unwrap().len();
    let damaged = |how: &dyn Fn(&fs::File)| {
        let _ = fs::remove_file(at.path("bad.ssd"));
        at.json("snapshot good.ssd bad.ssd");
        how(&fs::OpenOptions::new().write(true).open(at.path("bad.ssd")).unwrap());
    };
    let patch =
        |offset: u64, byte: u8| move |file: &fs::File| file.write_all_at(&[byte], offset).unwrap();
    type How = Box<dyn Fn(&fs::File)>;
    let cases: [(How, i32, &str); 9] = [
        (Box::new(move |f| f.set_len(len / 2).unwrap()), 1, "restore it from a copy"),
        (Box::new(|f| f.set_len(100).unwrap()), 1, "the file ends in it"),
        (Box::new(|f| f.set_len(5).unwrap()), 2, "not a drive file"),
        (Box::new(patch(0, b'x')), 2, "not a drive file"),
        (Box::new(patch(8, 7)), 1, "use a newer ssdkit"),
        (Box::new(patch(8, 4)), 1, "header is damaged"),
        (Box::new(patch(8, 1)), 1, "header is damaged"),
        (Box::new(patch(30, 77)), 1, "header is damaged"),
        (Box::new(patch(600, 1)), 1, "header is damaged"),
    ];
    for (how, code, says) in &cases {
        damaged(how);
        for line in OPENS {
            let (was, text) = at.failure(line);
            assert!(was == *code && text.contains(says), "{line}: {was}: {text}");
        }
    }
}

#[test]
fn flipped_bytes_never_give_wrong_data() {
    let at = Place::new();
    at.json(&format!("create good.ssd --profile null --size 1M {SMALL}"));
    at.json("bench ./good.ssd --rw write --bs 64k --ios 40 --flush-every 3");
    let clean = lasting(at.json("bench ssd:good.ssd,copy=yes --rw read --ios 256"));
    let bytes = fs::read(at.path("good.ssd")).unwrap();
    // Of what was written, some bytes all over it.
    let written: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] != 0).collect();
    for i in 0..60 {
        let offset = written[i * (written.len() - 1) / 59];
        fs::copy(at.path("good.ssd"), at.path("bad.ssd")).unwrap();
        let file = fs::OpenOptions::new().write(true).open(at.path("bad.ssd")).unwrap();
        file.write_all_at(&[bytes[offset] ^ 1 << (i % 8)], offset as u64).unwrap();
        let out = at.run("bench ssd:bad.ssd --rw read --ios 256 --json");
        let text = String::from_utf8_lossy(&out.stderr);
        let code = out.status.code().unwrap_or_else(|| panic!("byte {offset}: {text}"));
        assert!([0, 1, 2].contains(&code), "byte {offset}: {text}");
        assert!(!text.contains("panicked"), "byte {offset}: {text}");
        if code == 0 {
            let json: Value = serde_json::from_slice(&out.stdout).unwrap();
            assert_eq!((&json["errors"], &json["ios"]), (&0.into(), &clean["ios"]));
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_says_so() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile null --size 16M {SMALL}"));
    at.json("bench ./a.ssd --rw write --bs 64k --ios 100");
    fs::set_permissions(at.path("a.ssd"), fs::Permissions::from_mode(0o444)).unwrap();
    // Root may write what nobody may.
    if fs::OpenOptions::new().write(true).open(at.path("a.ssd")).is_err() {
        let (code, text) = at.failure("bench ./a.ssd --rw randread --ios 100");
        assert!(code == 1 && text.contains("cannot be written"), "{text}");
    }
    at.json("info a.ssd");
    at.json("bench ssd:a.ssd,copy=yes --rw randread --ios 100");
}

/// Runs a command that may make no file larger than this.
fn limited(at: &Path, limit: u64, line: &str) -> Output {
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let script = format!("ulimit -f {}; exec {binary} {line}", limit / 512);
    Command::new("sh").arg("-c").arg(script).current_dir(at).output().unwrap()
}

#[test]
fn a_full_disk_is_an_error() {
    let at = Place::new();
    let line = format!("create a.ssd --profile null --size 16M {SMALL}");
    let out = limited(at.0.path(), 1 << 20, &line);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && text.contains("ulimit -f"), "{text}");
    assert_eq!(at.names(), [""; 0], "no half file stays");

    // A file that is there already may be as long as it is; what is written
    // behind the limit is refused.
    at.json(&line);
    let written = at.json("bench ./a.ssd --rw write --bs 64k --ios 20 --flush-every 1");
    assert_eq!(written["errors"], 0);
    let len = fs::metadata(at.path("a.ssd")).unwrap().len();
    let more = "bench ./a.ssd --rw write --bs 64k --ios 400 --flush-every 9 --destroy";
    let out = limited(at.0.path(), len / 2, more);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("ulimit -f") && !text.contains("panicked"), "{text}");
    // What was there is there.
    assert_eq!(at.json("bench ./a.ssd --rw read --bs 64k --ios 20")["errors"], 0);
    assert_eq!(at.json("info a.ssd")["clean"], true);
}

/// The range of the first page of chunk descriptors.
const DESCRIPTORS: u64 = 264 << 10;

#[test]
fn descriptors_that_were_lost_are_told_from_new_chunks() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile znand --size 16M --spare 0.3 {SMALL}"));
    at.json("bench ./a.ssd --rw write --bs 64k --ios 100");
    let file = fs::OpenOptions::new().write(true).open(at.path("a.ssd")).unwrap();
    file.write_all_at(&[0; 4096], DESCRIPTORS).unwrap();
    for line in ["info a.ssd", "bench ./a.ssd --rw randread --ios 10", "serve ./a.ssd --nbd x.sock"]
    {
        let (code, text) = at.failure(line);
        assert!(code == 1 && text.contains("descriptors") && text.contains("copy"), "{text}");
    }
}

#[test]
fn a_copy_that_was_killed_is_no_drive() {
    let at = Place::new();
    at.json(&format!("create a.ssd --profile znand --size 16M --spare 0.3 {SMALL}"));
    at.json("bench ./a.ssd --rw write --bs 64k --ios 200");
    for (made, line) in [
        ("b.ssd", "snapshot a.ssd b.ssd"),
        (
            "c.ssd",
            "bench mem:znand,size=16M,spare=0.3,groups=2,pus=2,pages=64 --rw write --ios 10 --snapshot c.ssd",
        ),
        ("d.ssd", "create d.ssd --profile znand --size 16M --spare 0.3 groups=2 pus=2 pages=64"),
    ] {
        let (mut killed, mut wait) = (0, 0);
        loop {
            let mut child = ssdkit(line)
                .current_dir(at.0.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_micros(wait));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            // Killed, or well: what others left is in nobody's way.
            assert!(matches!(status.code(), None | Some(0)), "{line}: {status}");
            let done = status.success();
            killed += usize::from(at.path(&format!("{made}.unfinished")).exists());
            if at.path(made).exists() {
                // With its name it is whole.
                assert!(at.json(&format!("info {made}"))["clean"].as_bool().unwrap());
                fs::remove_file(at.path(made)).unwrap();
            }
            if done {
                break;
            }
            wait = wait * 5 / 4 + 500;
        }
        println!("{line}: {killed} killed in the middle");
        assert_eq!(at.run(line).status.code(), Some(0), "what was left is taken over");
        assert!(!at.path(&format!("{made}.unfinished")).exists());
    }
}

/// A command that is refused leaves a drive as it was: one that was never used is
/// still that.
#[test]
fn who_is_refused_has_not_used_a_drive() {
    let place = Place::new();
    let (tlc, batch) = ("create tlc.ssd --profile znand --size 64M", "target=batch");
    place.json(tlc);
    place.json(&format!("{} {batch}", tlc.replace("tlc.ssd", "batch.ssd")));
    for line in [
        "bench ./tlc.ssd --rw randread",
        "bench ./batch.ssd --rw randwrite",
        "serve ./batch.ssd --nbd ./s",
        "serve ./batch.ssd --redis ./s --pages log",
        "serve ./tlc.ssd --redis ./s --pages batched",
        "serve ./tlc.ssd --redis ./none/s",
        "serve ./tlc.ssd --nbd ./none/s",
    ] {
        let before = ["tlc", "batch"].map(|name| place.json(&format!("info {name}.ssd")));
        assert_ne!(place.run(line).status.code(), Some(0), "{line}");
        let after = ["tlc", "batch"].map(|name| place.json(&format!("info {name}.ssd")));
        assert_eq!(before, after, "{line}");
    }
}
