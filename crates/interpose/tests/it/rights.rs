//! Programs of users who may not do everything, and with few descriptors: each runs in a process
//! of its own, since this one's rights are all threads'.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use interpose::Recorder;

use crate::run::{Place, has, is_able};

/// What the other process does.
#[test]
#[ignore = "a part of the others, which start it"]
fn checked_script() {
    let Ok(script) = std::env::var("SCRIPT") else { return };
    let recorder = Place::new().sh(&script);
    if let Ok(expected) = std::env::var("REFUSED") {
        assert_eq!(recorder.refused.join(","), expected);
    }
}

/// What the other process does where it is to be killed.
#[test]
#[ignore = "a part of `who_is_killed_leaves_nobody_behind`"]
fn script_for_ever() {
    let Ok(script) = std::env::var("SCRIPT") else { return };
    let _ = Place::new().run(&["sh", "-c", &script], &mut Recorder::default());
}

/// Runs a test of those above in a process for which `prepare` makes system calls only.
fn other(
    test: &str,
    script: &str,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> (Command, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [place.path(), &program] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", "--nocapture", test]).env("SCRIPT", script);
    // SAFETY: the caller says so.
    unsafe { command.pre_exec(prepare) };
    (command, place)
}

/// A child of another test, on its way to its program, may still have the copy open.
fn retried<T>(mut run: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match run() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

fn check(mut command: Command) {
    let out = retried(|| command.output());
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

/// Becomes nobody, where this is somebody who can.
fn be_nobody() -> io::Result<()> {
    // SAFETY: numbers only.
    let done = unsafe {
        libc::geteuid() != 0
            || libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(65534, 65534, 65534) == 0
                && libc::setresuid(65534, 65534, 65534) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bits that the kernel takes with a change are told.
#[test]
fn who_is_not_root_loses_the_bits_of_root() {
    if !is_able() {
        return;
    }
    let script = "
for f in a b c d e g; do echo $f > $f; chmod 6755 $f; done
echo more >> a; : > b; truncate -s 1 c; fallocate -l 9000 d || :; chown $(id -u) e
test $(stat -c %a a) = 755; test $(stat -c %a e) = 755; test $(stat -c %a g) = 6755";
    let (command, _place) = other("rights::checked_script", script, be_nobody);
    check(command);
}

#[test]
fn root_loses_bits_with_the_owner() {
    // SAFETY: it asks for a number.
    if !is_able() || unsafe { libc::geteuid() } != 0 {
        return;
    }
    Place::new().sh("echo a > a; chmod 6755 a; chown 1 a; test $(stat -c %a a) = 755; chown 2 a
        echo b > b; chmod 6644 b; ln -s b soft; chown -h 1 soft; chgrp 1 b");
}

/// No process becomes one that nobody may look into, and whose calls could not be told.
#[test]
fn nobody_hides_from_the_supervisor() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
cp /bin/true $OUTSIDE/t; chmod 111 $OUTSIDE/t; ! $OUTSIDE/t 2> /dev/null
python3 -c '
import ctypes, os
fd = os.open("f", os.O_CREAT | os.O_RDWR)
c = ctypes.CDLL(None, use_errno=True)
assert c.prctl(4, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1
assert c.prctl(4, 1, 0, 0, 0) == 0
os.write(fd, b"told"); os.fsync(fd); os.open("g", os.O_CREAT | os.O_RDWR)'"#;
    let (mut command, _place) = other("rights::checked_script", script, be_nobody);
    command.env("REFUSED", "running a program that may not be read,PR_SET_DUMPABLE");
    check(command);
}

/// Files that went are held by descriptors, which are given back when there are no more.
#[test]
fn there_are_descriptors_again_when_files_are_closed() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"python3 -c '
import errno, os
files = []
try:
    for n in range(1000):
        fd = os.open("f%d" % n, os.O_CREAT | os.O_RDWR)
        files.append(fd)
        os.unlink("f%d" % n)
except OSError as e: assert e.errno == errno.EMFILE, e
for n in range(5): os.close(files.pop())
for fd in files: assert os.write(fd, b"held") == 4
for fd in files: os.close(fd)
os.close(os.open("new", os.O_CREAT | os.O_RDWR))'"#;
    let few = || {
        let limit = libc::rlimit { rlim_cur: 110, rlim_max: 110 };
        // SAFETY: it reads the limit.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let (command, _place) = other("rights::checked_script", script, few);
    check(command);
}

/// Also processes that have left their parents end when the supervisor is killed.
#[test]
fn who_is_killed_leaves_nobody_behind() {
    if !is_able() || !has("setsid") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let ready = place.path().join("ready");
    let script = format!(
        "setsid sleep 1000 & echo $! > {0}.new; (setsid sleep 1000 & echo $! >> {0}.new)
         mv {0}.new {0}; sleep 1000",
        ready.display()
    );
    let (mut command, _copy) = other("rights::script_for_ever", &script, || Ok(()));
    let mut supervisor = retried(|| command.spawn());
    let started = Instant::now();
    while !ready.exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "it never begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let left = std::fs::read_to_string(ready).unwrap();
    let runs = |process: &str| {
        std::fs::read_to_string(format!("/proc/{process}/cmdline"))
            .is_ok_and(|it| it.starts_with("sleep"))
    };
    let killed = Instant::now();
    while left.lines().any(runs) {
        assert!(killed.elapsed() < Duration::from_secs(60), "they stay");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(left.lines().count(), 2);
}
