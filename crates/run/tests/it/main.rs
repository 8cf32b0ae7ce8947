//! Programs on drives, from outside: what they find again, what a cut leaves, and what is refused.

mod folder;
mod limits;
mod speculation;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use clap::Parser;
use drive::error::Error;
use drive::image;
use drive::spec::DriveSpec;
use run::RunArgs;
use tempfile::TempDir;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: RunArgs,
}

/// A folder with a drive file, and what is mapped.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let Ok(DriveSpec::Memory(spec)) = "mem:tlc,size=128M".parse() else { unreachable!() };
        let config = spec.resolve().unwrap();
        image::create(&place.path("d.ssd"), &config, 1, image::Making::default()).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Runs a shell's script with the folder `data` mapped; `$D` is it, `$O` the one around it.
    fn run(&self, options: &[&str], script: &str) -> Result<u8, Error> {
        run_at(self.0.path(), options, script)
    }

    /// The same, which must succeed.
    fn sh(&self, script: &str) {
        assert_eq!(self.run(&[], script).unwrap(), 0, "{script}");
    }

    /// The folder is gone, as on another machine.
    fn lose_folder(&self) {
        fs::remove_dir_all(self.path("data")).unwrap();
    }
}

fn run_at(place: &Path, options: &[&str], script: &str) -> Result<u8, Error> {
    let path = |name: &str| place.join(name).display().to_string();
    let (drive, data) = (path("d.ssd"), path("data"));
    let script = format!("D={data} O={}; {script}", place.display());
    let mut line = vec!["run", "--drive", &drive, "--map", &data];
    line.extend(options);
    line.extend(["--", "sh", "-euc", &script]);
    let args = Line::try_parse_from(line).unwrap().args;
    // A child of another test, on its way to its program, may still have the drive open.
    let in_use = format!("is in use by process {};", std::process::id());
    for _ in 0..1000 {
        match run::run(&args) {
            Err(e) if e.to_string().contains(&in_use) => sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
    run::run(&args)
}

/// Whether this machine can supervise programs; says so where it cannot.
fn is_able() -> bool {
    match Place::new().run(&[], "true") {
        Err(e) if e.to_string().contains("supervisor") => {
            eprintln!("LEFT OUT: nothing of `ssdkit run` is tested here: {e}");
            false
        }
        other => other.unwrap() == 0,
    }
}

fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        eprintln!("LEFT OUT: {program} is not installed");
    }
    has
}

#[test]
fn files_are_found_again_on_the_drive() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.sh("cd $D; mkdir -p a/b; echo one > a/b/f; ln a/b/f hard; ln -s a/b soft; chmod 751 a
        dd if=/dev/urandom of=big bs=100k count=20 2>/dev/null; truncate -s 10M sparse
        cp big sparse $O; echo -n > empty; chmod 600 empty");
    // The folder is as it was left, or not there.
    place.sh("test $(cat $D/hard) = one");
    place.lose_folder();
    place.sh("cd $D; cmp big $O/big; cmp sparse $O/sparse; test $(cat soft/f) = one
        test $(stat -c %h hard) = 2; test $(stat -c %a a) = 751; test $(stat -c %a empty) = 600
        echo two >> hard; test $(tail -1 a/b/f) = two");
    assert_eq!(place.run(&[], "exit 7").unwrap(), 7);
    assert_eq!(place.run(&[], "kill -9 $$").unwrap(), 137);
}

#[test]
fn databases_repositories_and_archives_are_whole() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    if has("sqlite3") {
        place.sh("cd $D; sqlite3 a.db 'create table t(a, b); insert into t values (1, randomblob(50000));'
            sqlite3 w.db 'pragma journal_mode=wal; create table t(a); insert into t values (1);' > /dev/null
            for n in 1 2 3; do sqlite3 w.db \"insert into t values ($n)\"; done");
        place.lose_folder();
        place.sh("cd $D; test $(sqlite3 w.db 'select count(*) from t') = 4
            test $(sqlite3 a.db 'pragma integrity_check') = ok");
    }
    if has("git") {
        place.sh("cd $D; export HOME=$O GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a
            export GIT_COMMITTER_EMAIL=a; git init -q one; cd one; seq 20000 > f; git add .
            git commit -qm 1; cd ..; git clone -q one two");
        place.lose_folder();
        place.sh("cd $D/two; export HOME=$O; git fsck --strict 2>/dev/null; test -z \"$(git status -s)\"");
    }
    place.sh(
        "cd $D; mkdir tree; for n in 1 2 3 4 5; do seq $n 9000 > tree/$n; done; tar cf t.tar tree
        mkdir out; tar xf t.tar -C out; cp t.tar $O",
    );
    place.lose_folder();
    place.sh("cd $D; cmp t.tar $O/t.tar; diff -r tree out/tree");
}

#[test]
fn servers_and_storage_engines_find_their_data_again() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    if has("redis-server") {
        let server = "redis-server --port 0 --unixsocket $O/socket --dir $D/redis --save '' \
            --appendonly yes --appendfsync always --loglevel warning > /dev/null &
            cli() { redis-cli -s $O/socket \"$@\"; }
            until cli ping 2> /dev/null | grep -q PONG; do sleep 0.05; done";
        place.sh(&format!(
            "mkdir $D/redis; {server}
            for n in $(seq 40); do echo set key$n $n; done | cli > $O/answers
            test $(grep -c OK $O/answers) = 40; cli bgrewriteaof > /dev/null
            cli set last one > /dev/null; cli shutdown nosave; wait"
        ));
        place.lose_folder();
        place.sh(&format!(
            "{server}
            test $(cli get key37) = 37; test $(cli get last) = one; test $(cli dbsize) = 41
            cli shutdown nosave; wait"
        ));
    }
    if has("db_bench") {
        // It removes its folder, which is the mapped one, and makes it anew.
        let bench = "db_bench --db=$D --num=5000 --threads=2 --compression_type=none";
        place.lose_folder();
        let fill = format!("{bench} --benchmarks=fillseq,compact > /dev/null 2>&1");
        assert_eq!(place.run(&["--format"], &fill).unwrap(), 0);
        place.lose_folder();
        place.sh(&format!(
            "{bench} --use_existing_db=1 --benchmarks=readseq,verifychecksum \
            > $O/read 2>&1; grep -q 'readseq' $O/read; test $(ls $D/*.sst | wc -l) -ge 1
            db_bench --db=$D --num=5000 --reads=5000 --use_existing_db=1 --benchmarks=readrandom \
            > $O/read 2>&1; grep -q '(5000 of 5000 found)' $O/read"
        ));
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !is_able() || !has("fio") {
        return;
    }
    let job = "fio --directory=$D --name=j --size=1M --rw=randwrite --bs=4k --fsync=32 \
        --verify=crc32c --verify_state_save=0 --numjobs=2 --minimal > /dev/null";
    for more in ["--ioengine=psync", "--ioengine=mmap", "--ioengine=psync --direct=1"] {
        Place::new().sh(&format!("{job} {more}"));
    }
}

/// What was synced is there, and the folder goes as memory does.
#[test]
fn a_cut_leaves_what_was_synced() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let script = "cd $D; for n in $(seq 1000); do echo $n > $n; sync $n; echo $n > $O/acked; done";
    let code = place.run(&["--cut-after", "40"], script).unwrap();
    assert_eq!(code, 137);
    assert_eq!(fs::read_dir(place.path("data")).unwrap().count(), 0);
    let acked: u64 = fs::read_to_string(place.path("acked")).unwrap().trim().parse().unwrap();
    assert!((12..=14).contains(&acked), "three changes each: {acked}");
    place.sh(&format!("for n in $(seq {acked}); do test $(cat $D/$n) = $n; done; test ! -e $D/15"));
    // What nobody synced is lost, also without a cut.
    let code = place.run(&["--no-sync-at-end"], "echo x > $D/x; sync $D/x; echo y > $D/y").unwrap();
    assert_eq!(code, 0);
    place.sh("test -e $D/x; test ! -s $D/y");
    let code = place.run(&["--cut-after", "50ms"], "while :; do echo $D >> $D/y; done").unwrap();
    assert_eq!(code, 137);
}

/// With data in the journal what a cut leaves has the order of the calls, without any sync.
#[test]
fn a_cut_leaves_data_in_the_order_of_the_calls() {
    if !is_able() {
        return;
    }
    let script = "cd $D; printf 0000000 > page; for n in $(seq 1000000 1004000); do \
                  echo $n >> log; echo $n 1<> page; : > stamp$n; sync log; \
                  echo $n >> log; echo $n 1<> page; : > more$n; echo $n > $O/acked; done";
    for cut in ["30", "33", "34", "35", "36", "37", "38", "39"] {
        let place = Place::new();
        let code = place.run(&["--journal", "data", "--cut-after", cut], script).unwrap();
        assert_eq!(code, 137);
        place.sh("cd $D; acked=$(cat $O/acked); last=$(tail -n 1 log); page=$(cat page); \
             test $last -ge $acked; test $last -le $((acked + 2)); \
             test $page = $last || test $page = $((last - 1)); \
             test ! -e stamp$((page + 1)); test ! -e more$((page + 1)); test -e stamp$acked");
    }
}

/// Errors of the drive reach the program at its next sync, as with a disk.
#[test]
fn a_write_that_fails_is_told_by_fsync() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    let script = "python3 -c '
import os, sys, errno
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.fsync(fd)
seen = 0
for n in range(40):
    try:
        os.write(fd, b\"x\" * 4096)
        os.fsync(fd)
    except OSError as e:
        assert e.errno in (errno.EIO, errno.EROFS), e
        seen += 1
sys.exit(10 if seen else 0)' $D/a";
    // Of 40 syncs some write data that the drive refuses; the journal's own writes all succeed.
    assert_eq!(place.run(&["--fault", "above:write,every=9"], script).unwrap(), 10);
    place.lose_folder();
    // Without its journal a file system takes no changes any more, and the last sync fails.
    let e = place.run(&["--format", "--fault", "above:flush,every=5"], script).unwrap_err();
    assert!(e.to_string().contains("the last sync failed"), "{e}");
}

/// Several threads that sync one file hear all of what is lost of it.
#[test]
fn what_is_lost_is_told_to_all_who_wait() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os, errno, threading
errors, gate = [], threading.Barrier(4)
def sync(n):
    fd = os.open("data/f", os.O_RDWR)
    os.pwrite(fd, b"n" * 4096, n * 4096)
    gate.wait()
    try: os.fsync(fd)
    except OSError as e: errors.append(e.errno)
threads = [threading.Thread(target=sync, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert errors == [errno.EIO] * 4, errors
"#;
    let place = Place::new();
    let data = place.path("data");
    place.sh("head -c 16384 /dev/zero > $D/f");
    let script = script.replace("data/", &format!("{data}/"));
    let drive = place.path("d.ssd");
    // The first to come holds the drive up, the others come meanwhile.
    let faults = ["--fault", "above:write,from=1,count=8", "--fault", "above:flush,delay=200ms"];
    let line = ["run", "--drive", &drive, "--map", &data];
    let line = line.into_iter().chain(faults).chain(["--", "python3", "-c", &script]);
    assert_eq!(run::run(&Line::try_parse_from(line).unwrap().args).unwrap(), 0);
}

/// A bad block behind others that are read ahead of it is nobody's trouble but its reader's.
#[test]
fn who_reads_a_good_page_gets_it() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os, errno
fd, bad = os.open("data/f", os.O_RDONLY), []
for n in range(1024):
    try: assert os.pread(fd, 4096, n * 4096) == b"x" * 4096
    except OSError as e:
        assert e.errno == errno.EIO
        bad.append(n)
assert 1 <= len(bad) <= 2, bad
"#;
    let place = Place::new();
    let data = place.path("data");
    place.sh("head -c 4194304 /dev/zero | tr '\\0' x > $D/f");
    let script = script.replace("data/", &format!("{data}/"));
    let drive = place.path("d.ssd");
    let line = ["run", "--drive", &drive, "--map", &data];
    let line = line.into_iter().chain(["--fault", "above:read,offset=8M-8196K"]);
    let line = line.chain(["--", "python3", "-c", &script]);
    assert_eq!(run::run(&Line::try_parse_from(line).unwrap().args).unwrap(), 0);
}

#[test]
fn what_is_not_ours_is_refused() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let refused = |options: &[&str]| place.run(options, "true").unwrap_err();
    let says = |e: Error, what: &str| assert!(e.to_string().contains(what), "{e}");
    fs::create_dir(place.path("data")).unwrap();
    fs::write(place.path("data/mine"), "mine").unwrap();
    says(refused(&[]), "must be empty");
    assert_eq!(fs::read(place.path("data/mine")).unwrap(), b"mine");
    fs::remove_file(place.path("data/mine")).unwrap();
    place.sh("echo a > $D/a");
    fs::write(place.path("data/a"), "b\n").unwrap();
    says(refused(&[]), "data/a is not as on the drive");
    fs::write(place.path("data/a"), "a\n").unwrap();
    says(refused(&["--journal", "none"]), "--format");
    // What is refused loses nothing, however often.
    says(refused(&["--format"]), "data is not empty");
    let twice = place.path("data");
    says(refused(&["--format", "--map", &twice]), "data");
    place.lose_folder();
    place.sh("test $(cat $D/a) = a");
    place.lose_folder();
    assert_eq!(place.run(&["--format", "--journal", "none"], "test ! -e $D/a").unwrap(), 0);
    let data = place.path("data");
    let line = ["run", "--drive", "mem:tlc,size=64M", "--map", &data, "--", "./no-program"];
    let e = run::run(&Line::try_parse_from(line).unwrap().args).unwrap_err();
    assert_eq!(e.exit_code(), 2, "{e}");
    let line = ["run", "--drive", "mem:tlc,size=64M", "--cut-after", "1", "--map"];
    let line = line.iter().copied().chain([place.path("data").leak() as &str, "--", "true"]);
    says(run::run(&Line::try_parse_from(line).unwrap().args).unwrap_err(), "take a drive file");
    assert!(!Path::new(&place.path("none")).exists());
}

/// Who waits for the drive waits alone, and as long as the drive takes.
#[test]
fn a_sync_takes_what_the_drive_takes_and_holds_up_nobody() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os, threading, time
fd, other = (os.open(name, os.O_CREAT | os.O_RDWR) for name in ("data/a", "data/b"))
done = []
def sync():
    os.write(fd, b"s")
    began = time.monotonic()
    os.fsync(fd)
    done.append("sync")
    assert time.monotonic() - began >= 0.2, "data, journal: two programs"
t = threading.Thread(target=sync); t.start()
while not done and os.fstat(fd).st_size == 0: pass
for n in range(30): os.write(other, b"x")
done.append("writes"); t.join()
assert done == ["writes", "sync"], done
"#;
    let place = Place::new();
    let data = place.path("data");
    let script = script.replace("data/", &format!("{data}/"));
    let drive = "mem:tlc,size=64M,program=100ms";
    let line = ["run", "--drive", drive, "--map", &data, "--", "python3", "-c", &script];
    assert_eq!(run::run(&Line::try_parse_from(line).unwrap().args).unwrap(), 0);
}

/// What several threads ask of the drive it does at once: eight reads of 250 ms, and as many syncs,
/// whose commits go together.
#[test]
fn threads_share_the_drive() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os, sys, threading, time
def together(work):
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    began = time.monotonic()
    for t in threads: t.start()
    for t in threads: t.join()
    return time.monotonic() - began
def read(n):
    fd = os.open("data/old", os.O_RDONLY)
    assert os.pread(fd, 4096, n << 20) == bytes([65 + n]) * 4096
def sync(n):
    fd = os.open("data/%d" % n, os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, b"x", 0)
    os.fsync(fd)
took = together(read)
assert 0.25 <= took < 1.5, ("reads", took)
took = together(sync)
assert 0.2 <= took < 1.6, ("syncs", took)
"#;
    let place = Place::new();
    let data = place.path("data");
    place.sh("for n in A B C D E F G H; do head -c 1048576 /dev/zero | tr '\\0' $n; done > $D/old");
    let script = script.replace("data/", &format!("{data}/"));
    let drive = place.path("d.ssd");
    let faults = ["--fault", "above:read,delay=250ms", "--fault", "above:flush,delay=100ms"];
    let line = ["run", "--drive", &drive, "--map", &data];
    let line = line.into_iter().chain(faults).chain(["--", "python3", "-c", &script]);
    assert_eq!(run::run(&Line::try_parse_from(line).unwrap().args).unwrap(), 0);
}

/// A drive in memory takes in what the folder has, and leaves it there.
#[test]
fn a_drive_in_memory_begins_with_the_folder() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let data = place.path("data");
    fs::create_dir(&data).unwrap();
    fs::write(place.path("data/mine"), vec![7; 3_000_000]).unwrap();
    fs::hard_link(place.path("data/mine"), place.path("data/other")).unwrap();
    let script =
        format!("cd {data}; cmp mine other; echo x >> mine; rm other; test ! -e new; echo y > new");
    for (options, code) in [(&["--no-sync-at-end"][..], 0), (&[], 2)] {
        let line = ["run", "--drive", "mem:tlc,size=64M", "--map", &data];
        let program = ["--", "sh", "-euc", &script];
        let line = line.iter().chain(options).chain(&program);
        let args = Line::try_parse_from(line).unwrap().args;
        assert_eq!(run::run(&args).unwrap(), code, "the second finds what the first did");
    }
    assert_eq!(fs::metadata(place.path("data/mine")).unwrap().len(), 3_000_002);
}

/// Who asks how much room there is hears of the drive, in blocks of 4 KiB, and of the host's disk
/// elsewhere.
#[test]
fn the_room_is_the_drives() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    // A child of another test, on its way to its program, may have what was removed open a little
    // longer.
    place.sh("cd $D; all=$(stat -f -c %b .); before=$(stat -f -c %a $D/.)
        test $(stat -f -c %S .) = 4096; test $all -le 32768; test $before -le $all
        test $before -gt 28000; dd if=/dev/zero of=a bs=1M count=10 2> /dev/null
        after=$(stat -f -c %a a); test $((before - after)) -ge 2560
        test $((before - after)) -le 2600; rm a
        for n in $(seq 200); do [ $(stat -f -c %a .) -lt $((before - 40)) ] || exit 0; sleep 0.01; done
        exit 1");
    let outside = || {
        let out = Command::new("stat").args(["-f", "-c", "%b", &place.path("")]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    place.sh("stat -f -c %b $O > $O/blocks");
    assert_eq!(fs::read_to_string(place.path("blocks")).unwrap(), outside());
}

/// A disk that has no room for it refuses a write before the program sees it done.
#[test]
fn a_full_drive_says_so() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let script = "dd if=/dev/zero of=$D/a bs=1M count=300 2> $O/err && exit 1; sync $D/a
        grep -q 'No space left' $O/err; rm $D/a; echo b > $D/b; sync $D/b";
    assert_eq!(place.run(&[], script).unwrap(), 0);
    place.lose_folder();
    place.sh("test $(cat $D/b) = b; test ! -e $D/a");
    // What was replaced gives its room to the next.
    place.sh("for n in $(seq 12); do dd if=/dev/zero of=$D/new bs=1M count=30 2> /dev/null
        mv $D/new $D/kept; done; test $(stat -c %s $D/kept) = 31457280");
}
