//! Copies that are made here in the kernel's place: what the program hears of them is what it hears
//! of the kernel, and who gets them gets what was in the file when they were made.

use files::Operation;
use interpose::{Answer, Recorder, Wants, Watcher};

use crate::run::{Place, has, is_able};

/// Holds nothing, and has copies made here.
#[derive(Default)]
struct Effects(Recorder);

impl Watcher for Effects {
    fn wants(&self) -> Wants {
        Wants { effects: true, ..Wants::default() }
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        self.0.after(operation)
    }
}

/// By the kernel, where effects wait, and where outputs are told.
#[test]
fn copies_come_to_what_the_kernels_do() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import errno, os, signal, socket, threading
bytes_ = os.urandom(3 << 20)
file = os.open("a", os.O_CREAT | os.O_RDWR)
os.write(file, bytes_)
def position(): return os.lseek(file, 0, 1)
def fails(number, call, *args, **more):
    try: call(*args, **more)
    except OSError as e: assert e.errno == number, e
    else: assert False, number
def read_all(fd, into, size):
    while len(into) < size: into.extend(os.read(fd, 1 << 16))

# All of it, as somebody reads; at an offset of the program's and at the file's own.
one, other = socket.socketpair()
got = bytearray()
reader = threading.Thread(target=read_all, args=(other.fileno(), got, 2 << 20)); reader.start()
os.lseek(file, 5, 0)
assert os.sendfile(one.fileno(), file, 1000, 2 << 20) == 2 << 20 and position() == 5
reader.join(); assert got == bytes_[1000:1000 + (2 << 20)]
assert os.sendfile(one.fileno(), file, None, 100) == 100 and position() == 105
assert other.recv(1000) == bytes_[5:105]
assert os.sendfile(one.fileno(), file, 3 << 20, 100) == 0
assert os.sendfile(one.fileno(), file, (3 << 20) - 7, 100) == 7 and other.recv(100) == bytes_[-7:]

# Who does not wait gets as much as there is room for.
one.setblocking(False)
sent = os.sendfile(one.fileno(), file, 0, 3 << 20)
assert 0 < sent < 3 << 20
fails(errno.EAGAIN, os.sendfile, one.fileno(), file, sent, 1000)
got = bytearray(); read_all(other.fileno(), got, sent); assert got == bytes_[:sent]

# Pipes: as much as there is room for, or nothing.
end, pipe = os.pipe()
room = os.splice(file, pipe, 1 << 20, offset_src=0)
assert 0 < room < 1 << 20
fails(errno.EAGAIN, os.splice, file, pipe, 10, offset_src=0, flags=os.SPLICE_F_NONBLOCK)
got = bytearray()
reader = threading.Thread(target=read_all, args=(end, got, room + 300000)); reader.start()
sent = 0
while sent < 300000: sent += os.sendfile(pipe, file, room + sent, 300000 - sent)
reader.join(); assert got == bytes_[:room + 300000]
os.lseek(file, 0, 0); assert os.splice(file, pipe, 10) == 10 and position() == 10
assert os.read(end, 100) == bytes_[:10]
os.close(end)
pipe_signal = {signal.SIGPIPE}
signal.pthread_sigmask(signal.SIG_BLOCK, pipe_signal)
fails(errno.EPIPE, os.sendfile, pipe, file, 0, 10)
assert signal.sigtimedwait(pipe_signal, 1)
other.close(); one.setblocking(True)
fails(errno.EPIPE, os.sendfile, one.fileno(), file, 0, 10)
assert signal.sigtimedwait(pipe_signal, 1)

# Files, and what cannot be copied.
beside = os.environ["OUTSIDE"] + "/b"
to = os.open(beside, os.O_CREAT | os.O_RDWR)
assert os.sendfile(to, file, 0, 100000) == 100000 and os.pread(to, 200000, 0) == bytes_[:100000]
fails(errno.EBADF, os.sendfile, to, 99, 0, 10)
fails(errno.EBADF, os.sendfile, to, os.open("a", os.O_WRONLY), 0, 10)
fails(errno.EBADF, os.sendfile, os.open(beside, os.O_RDONLY), file, 0, 10)
fails(errno.EINVAL, os.sendfile, os.open(beside, os.O_WRONLY | os.O_APPEND), file, 0, 10)
fails(errno.EINVAL, os.sendfile, to, file, -1, 10)
"#;
    let (mut effects, mut outputs) = (Effects::default(), Recorder::with_outputs());
    for watcher in [&mut Recorder::default() as &mut dyn Watcher, &mut effects, &mut outputs] {
        let place = Place::new();
        let ended = place.run(&["python3", "-c", script], watcher).unwrap();
        assert_eq!(ended.code, 0, "{}", place.printed("err"));
    }
}

/// What is written to the file later is not what others get.
#[test]
fn what_was_copied_stays_as_it_was() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os, socket
file = os.open("a", os.O_CREAT | os.O_RDWR)
os.write(file, b"early" * 10000)
(one, other), (end, pipe) = socket.socketpair(), os.pipe()
assert os.sendfile(one.fileno(), file, 0, 8192) == 8192
assert os.splice(file, pipe, 8192, offset_src=0) == 8192
os.pwrite(file, b"later" * 10000, 0)
got = (b"early" * 10000)[:8192]
assert other.recv(10000, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == got
assert os.read(end, 10000) == got
"#;
    let place = Place::new();
    let ended = place.run(&["python3", "-c", script], &mut Effects::default()).unwrap();
    assert_eq!(ended.code, 0, "{}", place.printed("err"));
}

/// Of mapped files and of others, what went is told, and no more.
#[test]
fn copies_that_are_outputs_are_told() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os
mapped = os.open("a", os.O_CREAT | os.O_RDWR)
os.write(mapped, b"of a mapped file\n")
beside = os.open(os.environ["OUTSIDE"] + "/b", os.O_CREAT | os.O_RDWR)
os.write(beside, b"of another\n")
assert os.sendfile(1, mapped, 0, 100) == 17
assert os.sendfile(1, beside, 3, 1 << 30) == 8
"#;
    let place = Place::new();
    let recorder = place.check(&["python3", "-c", script]);
    assert_eq!(recorder.output_of(1), b"of a mapped file\nanother\n");
    assert_eq!(place.printed("out"), "of a mapped file\nanother\n");
}

/// Who is killed while it waits for room is waited for by nobody, nor is who reads.
#[test]
fn a_copy_ends_with_who_asked_for_it() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os, signal, time
file = os.open("a", os.O_CREAT | os.O_RDWR)
os.write(file, b"x" * 300000)
end, pipe = os.pipe()
child = os.fork()
if child == 0:
    os.close(end); os.sendfile(pipe, file, 0, 300000); os._exit(0)
os.close(pipe)
got = len(os.read(end, 1))
time.sleep(.05)
os.kill(child, signal.SIGKILL); os.wait()
while piece := os.read(end, 1 << 16): got += len(piece)
assert 1 < got < 300000, got
"#;
    let place = Place::new();
    let ended = place.run(&["python3", "-c", script], &mut Effects::default()).unwrap();
    assert_eq!(ended.code, 0, "{}", place.printed("err"));
}
