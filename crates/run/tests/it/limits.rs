//! Where the drive ends: its power, its room, the size of its files.

use crate::{Place, has, is_able};

/// Runs a script of Python in the folder.
fn python(script: &str) -> String {
    format!("cd $D; python3 -c '{script}'")
}

/// Several changes at once do not jump over a cut.
#[test]
fn a_cut_comes_whatever_calls_change_at_once() {
    if !is_able() || !has("python3") {
        return;
    }
    let files_that_go = "
import os
for n in range(400):
    open(\"t\", \"w\").write(\"x\"); os.rename(\"t\", \"f\")";
    let memory = "
import mmap
f = open(\"f\", \"w+b\"); f.truncate(64 * 4096)
m = mmap.mmap(f.fileno(), 0)
for n in range(64): m[4096 * n] = 1
m.flush()";
    for (script, cuts) in [(files_that_go, ["203", "225"]), (memory, ["20", "50"])] {
        for cut in cuts {
            let place = Place::new();
            assert_eq!(place.run(&["--cut-after", cut], &python(script)).unwrap(), 137, "{cut}");
        }
    }
}

/// Memory that is a file and larger than the drive: where the program ends without a sync, the run
/// tells what is lost.
#[test]
fn memory_that_the_drive_does_not_take_is_told() {
    if !is_able() || !has("python3") {
        return;
    }
    let written = "
import mmap, os
f = open(\"f\", \"w+b\"); f.truncate(150 << 20)
m = mmap.mmap(f.fileno(), 0)
for n in range(0, 150 << 20, 4096): m[n] = 1";
    let place = Place::new();
    let error = place.run(&[], &python(written)).unwrap_err().to_string();
    assert!(error.contains("(mmap) and did not sync is lost: "), "{error}");
    assert!(error.contains("No space left"), "{error}");
}

/// Memory that is a file leaves the room by which a drive that is full can be tidied; and what had
/// no room is written when a file has gone that nobody has open any more.
#[test]
fn memory_that_had_no_room_is_written_when_there_is_some() {
    if !is_able() || !has("python3") {
        return;
    }
    let written = "
import mmap, os
f = os.open(\"x\", os.O_CREAT | os.O_RDWR); os.ftruncate(f, 8 << 20); m = mmap.mmap(f, 8 << 20)
b = os.open(\"ballast\", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(b, bytes(range(256)) * 4096)
except OSError as e: assert e.errno == 28, e
os.close(b)
for n in range(0, 8 << 20, 4096): m[n] = 1
def synced():
    try: os.fsync(f)
    except OSError as e: return e.errno
assert synced() == 28
os.rename(\"x\", \"y\"); os.mkdir(\"d\"); os.rename(\"y\", \"x\")
os.unlink(\"ballast\")
assert synced() is None, synced()
# What has its blocks needs no more, however full it is.
b = os.open(\"ballast\", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(b, bytes(range(256)) * 4096)
except OSError as e: assert e.errno == 28, e
for n in range(0, 8 << 20, 4096): m[n] = 2
assert synced() is None and os.pwrite(f, b\"3\", 4096) == 1 and synced() is None";
    let found = "
import sys
sys.exit(open(\"x\", \"rb\").read()[::4096] != b\"\\x02\\x33\" + b\"\\x02\" * 2046)";
    for more in [&[][..], &["--speculate"]] {
        let place = Place::new();
        assert_eq!(place.run(more, &python(written)).unwrap(), 0, "{more:?}");
        assert_eq!(place.run(&[], &python(found)).unwrap(), 0, "{more:?}");
    }
}

/// A file without a name, which nobody has open but who has its memory, stays as long as that does,
/// though room is asked for by other memory on a full drive.
#[test]
fn a_mapped_file_without_a_name_outlives_a_full_drive() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = "
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
def memory(fd, n): return (ctypes.c_char * n).from_address(libc.mmap(None, n, 3, 1, fd, 0))
f = os.open(\"x\", os.O_CREAT | os.O_RDWR); os.ftruncate(f, 1 << 20); m = memory(f, 1 << 20)
for n in range(0, 1 << 20, 4096): m[n] = b\"1\"
os.fsync(f); os.close(f); os.unlink(\"x\")
g = os.open(\"y\", os.O_CREAT | os.O_RDWR); os.ftruncate(g, 8 << 20); k = mmap.mmap(g, 8 << 20)
b = os.open(\"ballast\", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(b, bytes(range(256)) * 4096)
except OSError as e: assert e.errno == 28, e
os.close(b)
for n in range(0, 8 << 20, 4096): k[n] = 1
try: os.fsync(g)
except OSError as e: assert e.errno == 28, e
os.unlink(\"ballast\"); os.fsync(g)
for n in range(0, 1 << 20, 4096): m[n] = b\"2\"
assert libc.syncfs(g) == 0, os.strerror(ctypes.get_errno())";
    for more in [&[][..], &["--speculate"]] {
        let place = Place::new();
        assert_eq!(place.run(more, &python(script)).unwrap(), 0, "{more:?}");
    }
}

/// What the drive has no room for the folder does not have either: the next run finds both alike.
#[test]
fn names_and_sizes_that_do_not_fit_are_refused() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    let sizes = "
import os, errno
fd = os.open(\"f\", os.O_CREAT | os.O_RDWR)
for call in [lambda: os.ftruncate(fd, 17 << 40), lambda: os.pwrite(fd, b\"x\", 20 << 40)]:
    try: call()
    except OSError as e: assert e.errno == errno.EFBIG, e
    else: assert False
    assert os.fstat(fd).st_size == 0
os.fsync(fd)";
    place.sh(&python(sizes));
    let names = "
import os, errno
for d in range(6):
    os.mkdir(str(d))
    for n in range(1000): os.close(os.open(\"%d/%d\" % (d, n), os.O_CREAT))
fd = os.open(\"big\", os.O_CREAT | os.O_RDWR)
try:
    while True: os.write(fd, bytes(1 << 20))
except OSError as e: assert e.errno == errno.ENOSPC, e
os.fsync(fd)
refused = 0
for d in range(6):
    for n in os.listdir(str(d)):
        try: os.rename(\"%d/%s\" % (d, n), \"%d/%s\" % (d, n + \"x\" * 240))
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            refused += 1
assert 0 < refused < 5000, refused";
    place.sh(&python(names));
    place.sh("rm $D/big; touch $D/after");
}
