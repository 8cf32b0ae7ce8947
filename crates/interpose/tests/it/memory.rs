//! Memory that is a file: all changes are told before who syncs goes on, once, and only what may
//! have changed is looked at.

use std::process::Command;

use files::Operation;
use interpose::{Answer, Errno, Recorder, Tree, Watcher};

use crate::run::{Place, has, is_able};

/// The system's calls, as they are.
const CALLS: &str = r#"
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
P, S, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
c.mmap.restype = c.mremap.restype = P
c.mmap.argtypes = [P, S, I, I, I, ctypes.c_long]
c.mremap.argtypes = [P, S, S, I]
c.mprotect.argtypes = c.msync.argtypes = [P, S, I]
c.munmap.argtypes = [P, S]
PAGE, READ, WRITE, SHARED, SYNC = 4096, 1, 3, 1, 4
def file(name, pages):
    fd = os.open(name, os.O_CREAT | os.O_RDWR)
    os.write(fd, b"o" * PAGE * pages)
    return fd
def map(fd, pages, rights):
    at = c.mmap(None, PAGE * pages, rights, SHARED, fd, 0)
    assert at != P(-1).value
    return at
def store(at, text): ctypes.memmove(at, text, len(text))
"#;

fn python(script: &str) -> Option<Recorder> {
    (is_able() && has("python3"))
        .then(|| Place::new().check(&["python3", "-c", &format!("{CALLS}{script}")]))
}

/// Where writes begin, and none for syncs.
fn writes_and_syncs(recorder: &Recorder) -> Vec<Option<u64>> {
    let one = |it: &Operation| match it {
        Operation::Write { offset, .. } => Some(Some(*offset)),
        Operation::Sync { .. } => Some(None),
        _ => None,
    };
    recorder.operations().filter_map(one).collect()
}

#[test]
fn memory_that_becomes_writable_later_is_told() {
    let script = r#"
fd = file("a", 3)
at = map(fd, 3, READ)
assert c.mprotect(at, 3 * PAGE, WRITE) == 0
store(at + PAGE, b"new")
assert c.msync(at, 3 * PAGE, SYNC) == 0
store(at + 2 * PAGE, b"more")
os.fsync(fd)
"#;
    let Some(recorder) = python(script) else { return };
    let expected = [Some(0), Some(4096), None, Some(8192), None];
    assert_eq!(writes_and_syncs(&recorder), expected);
}

#[test]
fn memory_that_grows_is_told() {
    let script = r#"
fd = file("a", 4)
at = c.mremap(map(fd, 1, WRITE), PAGE, 4 * PAGE, 1)
store(at + 3 * PAGE, b"new")
os.fsync(fd)
store(at + 2 * PAGE, b"more")
assert c.mremap(at, 4 * PAGE, PAGE, 0) == at
os.fsync(fd)
"#;
    let Some(recorder) = python(script) else { return };
    let expected = [Some(0), Some(3 * 4096), None, Some(2 * 4096), None];
    assert_eq!(writes_and_syncs(&recorder), expected);
}

/// A sync of some memory is of that memory.
#[test]
fn what_is_synced_is_told_and_the_rest_later() {
    let script = r#"
fd = file("a", 8)
at = map(fd, 8, WRITE)
store(at + 7 * PAGE, b"last"); store(at + PAGE, b"first")
assert c.msync(at, 2 * PAGE, SYNC) == 0
if os.fork() == 0: os._exit(0)
os.wait()
assert c.munmap(at, 8 * PAGE) == 0
"#;
    let Some(recorder) = python(script) else { return };
    let expected = [Some(0), Some(4096), None, Some(7 * 4096)];
    assert_eq!(writes_and_syncs(&recorder), expected);
}

#[test]
fn what_a_write_told_is_not_told_again() {
    let script = r#"
fd = os.open("a", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 256 * PAGE)
at = map(fd, 256, WRITE)
for n in range(40):
    os.write(fd, b"w" * 10 * PAGE)
    os.fsync(fd)
store(at + 5 * PAGE, b"memory")
os.fsync(fd)
"#;
    let Some(recorder) = python(script) else { return };
    let bytes = |it: &Operation| match it {
        Operation::Write { data, .. } => data.len(),
        _ => 0,
    };
    assert_eq!(recorder.operations().map(bytes).sum::<usize>(), (400 + 1) * 4096);
}

/// Refuses the second page once.
#[derive(Default)]
struct Refusing {
    recorder: Recorder,
    has_refused: bool,
}

impl Watcher for Refusing {
    fn after(&mut self, operation: &Operation) -> Answer {
        let is_second = matches!(operation, Operation::Write { offset: 4096, .. });
        if is_second && !std::mem::replace(&mut self.has_refused, true) {
            return Answer { error: Some(Errno::NOSPC), ..Answer::NOW };
        }
        self.recorder.after(operation)
    }
}

#[test]
fn what_was_refused_is_told_again() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
fd = file("a", 1)
os.ftruncate(fd, 2 * PAGE)
at = map(fd, 2, WRITE)
store(at + PAGE, b"new")
assert sync() == -1 and ctypes.get_errno() == 28
assert sync() == 0
"#;
    for sync in ["c.msync(at, 2 * PAGE, SYNC)", "c.syncfs(fd)"] {
        let (place, mut refusing) = (Place::new(), Refusing::default());
        let script = format!("{CALLS}def sync(): return {sync}\n{script}");
        let ended = place.run(&["python3", "-c", &script], &mut refusing).unwrap();
        assert_eq!(ended.code, 0, "{sync}: {}", place.printed("err"));
        let told = writes_and_syncs(&refusing.recorder);
        assert_eq!(told.iter().flatten().collect::<Vec<_>>(), [&0, &4096], "{sync}");
    }
}

/// The bits say who may open a file, not who may write what is open.
#[test]
fn a_file_that_nobody_may_open_for_writing_grows_where_it_is_open() {
    let script = r#"
os.setresuid(65534, 65534, 65534)
fd = os.open("a", os.O_CREAT | os.O_RDWR, 0o444)
os.write(fd, b"x" * 10)
os.ftruncate(fd, 100)
os.pwrite(fd, b"y", 200)
os.posix_fallocate(fd, 300, 10)
assert os.fstat(fd).st_size == 310
"#;
    let Some(recorder) = python(script) else { return };
    let last = recorder.operations().last();
    assert!(matches!(last, Some(Operation::Allocate { offset: 300, .. })), "{last:?}");
}

/// Bytes that this thread has read.
fn has_read() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    all.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

#[test]
fn only_what_may_have_changed_is_looked_at() {
    let Some(before) = has_read() else {
        eprintln!("LEFT OUT: the system does not say what a thread has read");
        return;
    };
    let script = r#"
fd = file("a", 8192)
at = map(fd, 16, WRITE)
for n in range(10): store(at, b"%d" % n); os.fsync(fd)
assert c.munmap(at, 16 * PAGE) == 0
map(fd, 8192, READ)
for n in range(10): os.pwrite(fd, b"x", PAGE * n); os.fsync(fd)
at = map(fd, 8192, WRITE)
for n in range(10): store(at + PAGE, b"%d" % n); assert c.msync(at, 2 * PAGE, SYNC) == 0
for n in range(10): os.system("true")
"#;
    let Some(_) = python(script) else { return };
    let read = has_read().unwrap() - before;
    // Once when the whole file is mapped, once at the end, and the test itself twice.
    assert!(read < 6 * (8192 * 4096), "{} MiB", read >> 20);
}

/// Has two file systems in memory, which give their files the same numbers, seen by this thread
/// alone; whether it may.
fn mount_two(place: &Place) -> bool {
    // SAFETY: numbers only.
    let is_own = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    let mount = |options: &[&str], at: &std::path::Path| {
        Command::new("mount").args(options).arg(at).status().is_ok_and(|it| it.success())
    };
    is_own
        && mount(&["--make-rprivate"], "/".as_ref())
        && [&place.mapped, &place.outside].map(|at| mount(&["-t", "tmpfs", "tmpfs"], at))
            == [true; 2]
}

/// File systems in memory keep what was behind the end.
#[test]
fn what_memory_had_behind_the_end_is_no_part_of_a_file_that_grows() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
def write(fd): os.pwrite(fd, b"x", 3000)
for name, grow in [("a", lambda fd: os.ftruncate(fd, 5000)), ("b", write),
        ("c", lambda fd: os.posix_fallocate(fd, 200, 3000)), ("d", lambda fd: os.truncate("d", 2000))]:
    fd = os.open(name, os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 100)
    at = map(fd, 1, WRITE)
    store(at, b"Z" * PAGE)
    assert c.munmap(at, PAGE) == 0
    grow(fd)
    assert os.pread(fd, 5000, 0).rstrip(b"x\0") == b"Z" * 100, name
"#;
    let place = Place::new();
    let check = || match mount_two(&place) {
        true => drop(place.check(&["python3", "-c", &format!("{CALLS}{script}")])),
        false => eprintln!("LEFT OUT: this test may not mount"),
    };
    std::thread::scope(|scope| scope.spawn(check).join().unwrap());
}

/// Files of two file systems may have one number.
#[test]
fn files_of_two_devices_are_told_apart() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
files = [file(name, 1) for name in ["f", os.environ["OUTSIDE"] + "/f"]]
assert len({os.fstat(fd).st_ino for fd in files}) == 1
maps = [map(fd, 1, WRITE) for fd in files]
for at in maps: store(at, b"new"); assert c.msync(at, PAGE, SYNC) == 0
"#;
    let place = Place::new();
    let told = || {
        if !mount_two(&place) {
            eprintln!("LEFT OUT: this test may not mount");
            return None;
        }
        let folders = [place.mapped.clone(), place.outside.clone()];
        let mut tree = Tree::of_many(&folders, &mut |_, _| None).unwrap();
        let (mut recorder, script) = (Recorder::default(), format!("{CALLS}{script}"));
        let ended = place.run_in(&mut tree, &["python3", "-c", &script], &mut recorder).unwrap();
        assert_eq!(ended.code, 0, "{}", place.printed("err"));
        Some(recorder)
    };
    let told = std::thread::scope(|scope| scope.spawn(told).join().unwrap());
    let Some(recorder) = told else { return };
    let one = |it: &Operation| match it {
        Operation::Write { inode, .. } => Some((inode.0, "write")),
        Operation::Sync { inode, .. } => Some((inode.0, "sync")),
        _ => None,
    };
    let told: Vec<(u64, &str)> = recorder.operations().filter_map(one).collect();
    let (a, b) = (told[0].0, told[1].0);
    let expected =
        [(a, "write"), (b, "write"), (a, "write"), (a, "sync"), (b, "write"), (b, "sync")];
    assert_eq!(told, expected);
}
