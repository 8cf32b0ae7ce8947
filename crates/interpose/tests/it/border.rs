//! What is seen at the border of the mapped folder, what is refused, and what a watcher decides.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use files::{Inode, Operation};
use interpose::{
    Answer, Course, Errno, Event, Program, Recorder, RunError, Transfer, Tree, Wants, Watcher, Way,
};

use crate::model::{Model, assert_same, listing_of};
use crate::run::{Place, has, is_able};

#[test]
fn what_is_not_mapped_is_the_kernels_and_outputs_are_told() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let recorder =
        place.sh("echo hello; echo bad >&2; echo beside > $OUTSIDE/f; echo more >> $OUTSIDE/f
         echo here > in; cat in; echo piped | cat > piped; ln -s $OUTSIDE/f soft; echo x > soft
         mkdir $OUTSIDE/d; rm -r $OUTSIDE/d; printf last");
    assert_eq!(recorder.output_of(1), b"hello\nhere\nlast");
    assert_eq!(recorder.output_of(2), b"bad\n");
    assert_eq!(place.printed("out"), "hello\nhere\nlast");
    assert_eq!(std::fs::read(place.outside.join("f")).unwrap(), b"x\n");
    assert!(recorder.events.iter().any(|it| matches!(it, Event::Exit { code: 0, .. })));
}

/// An output is told after what the program did before it: who sees it knows that.
#[test]
fn outputs_stand_in_the_order_of_the_program() {
    if !is_able() {
        return;
    }
    let recorder = Place::new().sh("for n in 1 2 3; do echo $n > f; echo done $n; done");
    let kinds: Vec<&str> = recorder
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Operation(Operation::Write { .. }) => Some("write"),
            Event::Output { stream: 1, .. } => Some("output"),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["write", "output", "write", "output", "write", "output"]);
}

#[test]
fn moves_over_the_border_become_copies() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.sh(
        "echo a > a; mv a $OUTSIDE/a; echo b > $OUTSIDE/b; mv $OUTSIDE/b .; ln b $OUTSIDE/c && exit 1
         ln $OUTSIDE/a hard && exit 1; mkdir d; echo x > d/x; mv d $OUTSIDE; cp -r $OUTSIDE/d .",
    );
    assert!(place.outside.join("d/x").exists() && place.mapped.join("b").exists());
}

#[test]
fn several_folders_are_one_tree() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let folders = [place.mapped.clone(), place.outside.clone()];
    std::fs::write(place.outside.join("old"), "old").unwrap();
    let mut tree = Tree::of_many(&folders, &mut |_, _| None).unwrap();
    let mut model = Model::new();
    tree.contents(&folders, &mut |operation| model.apply(&operation)).unwrap();
    let mut recorder = Recorder::default();
    let script = "echo a > a; mv a $OUTSIDE/a; echo more >> $OUTSIDE/old; ln $OUTSIDE/old new";
    let ended = place.run_in(&mut tree, &["sh", "-euc", script], &mut recorder).unwrap();
    assert_eq!(ended.code, 0, "{}", place.printed("err"));
    recorder.operations().for_each(|operation| model.apply(operation));
    let mut there = listing_of(place.all.path());
    there.retain(|path, _| path.starts_with(b"/mapped") || path.starts_with(b"/outside"));
    assert_same(&model.listing(), &there);
    let inside = [place.mapped.clone(), place.all.path().to_path_buf()];
    assert!(matches!(Tree::of_many(&inside, &mut |_, _| None), Err(RunError::Overlap(_))));
}

/// What was there before, with the numbers that it has elsewhere.
#[test]
fn what_is_there_has_the_numbers_that_it_is_given() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.mapped.join("d")).unwrap();
    std::fs::write(place.mapped.join("d/f"), vec![7; 10_000]).unwrap();
    std::fs::hard_link(place.mapped.join("d/f"), place.mapped.join("hard")).unwrap();
    std::os::unix::fs::symlink("x", place.mapped.join("soft")).unwrap();
    let numbers: HashMap<&[u8], u64> =
        HashMap::from([(&b"d"[..], 40), (b"f", 7), (b"hard", 7), (b"soft", 3)]);
    let mut tree = Tree::of(&place.mapped, &mut |_, name| Some(Inode(numbers[name]))).unwrap();
    let mut model = Model::new();
    tree.contents(std::slice::from_ref(&place.mapped), &mut |operation| model.apply(&operation))
        .unwrap();
    assert_same(&model.listing(), &listing_of(&place.mapped));
    let mut recorder = Recorder::default();
    let script = "echo x >> hard; echo y > new; rm d/f; rm hard; mv soft d";
    place.run_in(&mut tree, &["sh", "-euc", script], &mut recorder).unwrap();
    recorder.operations().for_each(|operation| model.apply(operation));
    assert_same(&model.listing(), &listing_of(&place.mapped));
    let written: Vec<Inode> = recorder
        .operations()
        .filter_map(|it| match it {
            Operation::Write { inode, .. } => Some(*inode),
            _ => None,
        })
        .collect();
    assert_eq!(written, [Inode(7), Inode(41)]);
}

type Refusal = (fn(&Operation) -> bool, Errno);

/// Refuses some, holds syncs, and counts.
#[derive(Default)]
struct Strict {
    recorder: Recorder,
    refuse: Option<Refusal>,
    hold: Duration,
    transfers: Vec<Transfer>,
    stop_at: Option<usize>,
}

impl Watcher for Strict {
    fn wants(&self) -> Wants {
        Wants { reads: true, ..Wants::default() }
    }

    fn before(&mut self, operation: &Operation) -> Result<(), Errno> {
        match self.refuse {
            Some((which, errno)) if which(operation) => Err(errno),
            _ => Ok(()),
        }
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        let answer = self.recorder.after(operation);
        match operation {
            Operation::Sync { .. } if !self.hold.is_zero() => {
                Answer::at(Instant::now() + self.hold)
            }
            _ => answer,
        }
    }

    fn transfer(&mut self, transfer: &Transfer) -> Answer {
        self.transfers.push(*transfer);
        Answer::NOW
    }

    fn course(&mut self) -> Course {
        match self.stop_at {
            Some(count) if self.recorder.events.len() >= count => Course::Stop,
            _ => Course::Go(None),
        }
    }
}

/// What the watcher refuses does not happen, and the program gets its error.
#[test]
fn an_error_of_the_drive_comes_before_the_files_change() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    std::fs::write(place.mapped.join("old"), "old").unwrap();
    let mut tree = Tree::of(&place.mapped, &mut |_, _| None).unwrap();
    let mut strict = Strict {
        refuse: Some((|it| !matches!(it, Operation::Mode { .. }), Errno::NOSPC)),
        ..Strict::default()
    };
    let script = r#"
import os, errno
def fails(call, *args):
    try: call(*args)
    except OSError as e: assert e.errno == errno.ENOSPC, e
    else: assert False, call
fd = os.open("old", os.O_RDWR)
for call in [(os.write, fd, b"new"), (os.ftruncate, fd, 1), (os.fsync, fd), (os.truncate, "old", 0),
    (os.open, "new", os.O_CREAT), (os.open, "old", os.O_TRUNC | os.O_RDWR), (os.rename, "old", "x"),
    (os.link, "old", "x"), (os.symlink, "old", "x"), (os.mkdir, "x"), (os.unlink, "old"),
    (os.posix_fallocate, fd, 0, 100)]:
    fails(*call)
assert os.path.getsize("old") == 3 and os.listdir(".") == ["old"]
"#;
    let ended = place.run_in(&mut tree, &["python3", "-c", script], &mut strict).unwrap();
    assert_eq!(ended.code, 0, "{}", place.printed("err"));
    assert_eq!(strict.recorder.events, []);
}

/// A held call holds up no other.
#[test]
fn who_waits_for_the_drive_waits_alone() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    let mut strict = Strict { hold: Duration::from_secs(2), ..Strict::default() };
    let script = r#"
import os, threading
fd = os.open("a", os.O_CREAT | os.O_RDWR)
done = []
def wait(): os.write(fd, b"s"); os.fsync(fd); done.append("sync")
t = threading.Thread(target=wait); t.start()
other = os.open("b", os.O_CREAT | os.O_RDWR)
for n in range(100): os.write(other, b"x")
done.append("writes"); t.join()
assert done == ["writes", "sync"], done
os.lseek(fd, 0, 0); assert os.read(fd, 10) == b"s"
"#;
    let ended = place.run(&["python3", "-c", script], &mut strict).unwrap();
    assert_eq!(ended.code, 0, "{}", place.printed("err"));
    let read = Transfer { inode: Inode(2), offset: 0, len: 1, way: Way::Read };
    assert_eq!(strict.transfers, [read]);
}

/// What the kernel reads for the program is read from the drive, too: what it copies elsewhere,
/// and programs.
#[test]
fn copies_and_programs_are_read() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    std::fs::write(place.mapped.join("a"), vec![7; 10_000]).unwrap();
    let size = std::fs::copy("/bin/true", place.mapped.join("program")).unwrap();
    let numbers: HashMap<&[u8], u64> = HashMap::from([(&b"a"[..], 5), (b"program", 6)]);
    let mut tree = Tree::of(&place.mapped, &mut |_, name| Some(Inode(numbers[name]))).unwrap();
    let script = r#"
import os
a, to = os.open("a", os.O_RDONLY), os.open(os.environ["OUTSIDE"] + "/b", os.O_CREAT | os.O_RDWR)
assert os.sendfile(to, a, 100, 5000) == 5000
os.lseek(a, 9000, 0); assert os.sendfile(to, a, None, 5000) == 1000
assert os.copy_file_range(a, to, 3000, 10) == 3000
end, pipe = os.pipe()
assert os.splice(a, pipe, 2000, 1) == 2000
assert os.spawnv(os.P_WAIT, "./program", ["program"]) == 0
"#;
    let mut strict = Strict::default();
    let ended = place.run_in(&mut tree, &["python3", "-c", script], &mut strict).unwrap();
    assert_eq!(ended.code, 0, "{}", place.printed("err"));
    let read = |inode, offset, len| Transfer { inode: Inode(inode), offset, len, way: Way::Read };
    let expected = [read(5, 100, 5000), read(5, 9000, 1000), read(5, 10, 3000), read(5, 1, 2000)];
    assert_eq!(strict.transfers, [&expected[..], &[read(6, 0, size)]].concat());
}

/// When the watcher stops the program, all its processes die.
#[test]
fn a_stop_ends_all_processes() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let mut strict = Strict { stop_at: Some(20), ..Strict::default() };
    let script = "sleep 1000 & (while :; do echo x >> a; done) & while :; do echo y >> b; done";
    let ended = place.run(&["sh", "-c", script], &mut strict).unwrap();
    assert_eq!(ended.code, 128 + 9);
    assert!((20..30).contains(&strict.recorder.events.len()), "{}", strict.recorder.events.len());
    assert_same(&Model::of(&strict.recorder).listing(), &listing_of(&place.mapped));
}

#[test]
fn the_programs_end_is_ours() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let run = |command: &[&str]| place.run(command, &mut Recorder::default());
    assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap().code, 7);
    assert_eq!(run(&["sh", "-c", "echo x > a; kill -9 $$"]).unwrap().code, 128 + 9);
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).unwrap().code, 128 + 15);
    let none = run(&["no-such-program"]).unwrap_err();
    assert!(matches!(none, RunError::NoProgram { .. }), "{none}");
    let denied = run(&["/etc/passwd"]).unwrap_err();
    assert!(denied.to_string().starts_with("/etc/passwd: Permission denied"), "{denied}");
    let program = Program { command: vec!["a\0b".into()], ..Program::default() };
    let mut tree = Tree::of(&place.mapped, &mut |_, _| None).unwrap();
    let zero = interpose::run(&program, &mut tree, &mut Recorder::default());
    assert!(matches!(zero, Err(RunError::ZeroByte)));
    assert!(Tree::of(&place.mapped.join("none"), &mut |_, _| None).is_err());
}

/// Run by the next test in a process of its own, whose other threads do not take SIGTERM.
#[test]
#[ignore = "a part of `signals_go_to_the_program_and_then_to_what_it_left`"]
fn supervised_script() {
    let Ok(script) = std::env::var("SCRIPT") else { return };
    let ended = Place::new().run(&["sh", "-c", &script], &mut Recorder::default()).unwrap();
    std::process::exit(ended.code);
}

#[test]
fn signals_go_to_the_program_and_then_to_what_it_left() {
    if !is_able() {
        return;
    }
    let ready = tempfile::tempdir().unwrap();
    let ready = ready.path().join("ready").display().to_string();
    let scripts = [
        format!("trap 'exit 9' TERM; echo > {ready}; while :; do sleep 0.01; done"),
        format!("(sleep 0.2; echo > {ready}; exec sleep 1000) & exit 3"),
    ];
    for (script, code) in scripts.iter().zip([9, 3]) {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "border::supervised_script"]).env("SCRIPT", script);
        // SAFETY: it makes system calls only.
        unsafe {
            command.pre_exec(|| {
                let mut these = std::mem::zeroed();
                libc::sigemptyset(&mut these);
                libc::sigaddset(&mut these, libc::SIGTERM);
                libc::sigprocmask(libc::SIG_BLOCK, &these, std::ptr::null_mut());
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        while std::fs::remove_file(&ready).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{script}");
    }
}

/// The mapped folder itself stays where it is, as where something is mounted: a program that makes
/// its folder anew (RocksDB does) goes on in the one that is mapped.
#[test]
fn the_mapped_folder_is_not_removed_and_not_renamed() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    let script = r#"
import os, errno
here, outside = os.getcwd(), os.environ["OUTSIDE"]
def is_busy(call, *args):
    try: call(*args)
    except OSError as e: assert e.errno == errno.EBUSY, e
    else: assert False, call
is_busy(os.rmdir, here)
is_busy(os.rename, here, here + "2")
os.mkdir(outside + "/other")
is_busy(os.rename, outside + "/other", here)
os.rename(outside + "/other", outside + "/another")
os.rmdir(outside + "/another")
open("f", "w").write("f")
"#;
    let recorder = place.check(&["python3", "-c", script]);
    assert!(recorder.operations().any(|it| matches!(it, Operation::Write { .. })));
}
