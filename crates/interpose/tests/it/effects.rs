//! What others can see waits for its number, and what nobody can see does not.

use std::fs::{self, File};
use std::io::PipeReader;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use files::Operation;
use interpose::{Answer, Course, Program, Tree, Wants, Watcher};
use rustix::event::epoll::CreateFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::FdFlags;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use crate::run::{Place, compiled, is_able};

/// How long a program is looked at that waits.
const LONG: Duration = Duration::from_millis(30);

/// All that others can see of a program.
struct Others {
    pipe: PipeReader,
    socket: UnixStream,
    fifo: OwnedFd,
    timer: OwnedFd,
    epoll: OwnedFd,
    outside: PathBuf,
    victim: Child,
    /// Whether a lock of the program's is looked at.
    locks: bool,
}

impl Others {
    /// Whether there is anything to see.
    fn see(&mut self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut ends = [
            PollFd::new(&self.pipe, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP),
            PollFd::new(&self.fifo, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.epoll, PollFlags::IN),
        ];
        let old = self.outside.join("old");
        let is_free = || File::open(&old).unwrap().try_lock().is_ok();
        poll(&mut ends, Some(&Timespec::default())).unwrap() > 0
            || self.victim.try_wait().unwrap().is_some()
            || fs::read_dir(&self.outside).unwrap().count() != 1
            || (self.locks && is_free())
            || state(&old) != Some((b"old".to_vec(), 0o644, 0, 1))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

type State = (Vec<u8>, u32, usize, u64);

fn state(path: &Path) -> Option<State> {
    let (stat, bytes) = (fs::metadata(path).ok()?, fs::read(path).ok()?);
    let attributes = rustix::fs::listxattr(path, &mut [0u8; 0]).unwrap_or(0);
    let is_new = stat.mtime() > 1;
    is_new.then_some((bytes, stat.mode() & 0o777, attributes, stat.nlink()))
}

/// Answers syncs at once; what comes after them waits.
struct Waiting {
    others: Others,
    syncs: u64,
    since: Option<Instant>,
    /// Whether it ever lets them go.
    lets_go: bool,
    /// How long it is looked at, if it does not go on.
    long: Duration,
    went_on: bool,
    shares: bool,
    /// Whether others had seen something when it was stopped.
    seen_early: Option<bool>,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.went_on || self.since.is_some_and(|since| since.elapsed() >= self.long)
    }
}

impl Watcher for Waiting {
    fn wants(&self) -> Wants {
        Wants { effects: true, ..Wants::default() }
    }

    fn after(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Sync { .. } => {
                (self.syncs, self.since) = (self.syncs + 1, Some(Instant::now()));
            }
            Operation::Create { name, .. } => self.went_on |= name == b"after",
            _ => {}
        }
        Answer::NOW
    }

    fn awaited(&mut self) -> Option<u64> {
        (self.syncs > 0).then_some(self.syncs)
    }

    fn reached(&mut self) -> u64 {
        if self.lets_go && self.is_over() { self.syncs } else { 0 }
    }

    fn shares(&mut self) {
        self.shares = true;
    }

    fn course(&mut self) -> Course {
        let Some(since) = self.since else { return Course::Go(None) };
        if !self.is_over() {
            return Course::Go(Some(since + self.long));
        }
        if !self.lets_go {
            // Asked again when all were killed.
            self.seen_early.get_or_insert_with(|| self.others.see());
            return Course::Stop;
        }
        Course::Go(None)
    }
}

fn look(program: &Path, what: &str, lets_go: bool) -> (Waiting, i32) {
    let place = Place::new();
    fs::write(place.outside.join("old"), "old").unwrap();
    let (pipe, to) = std::io::pipe().unwrap();
    let (socket, end) = UnixStream::pair().unwrap();
    let victim = Command::new("sleep").arg("60").spawn().unwrap();
    let fifo = place.all.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
    let epoll = rustix::event::epoll::create(CreateFlags::CLOEXEC).unwrap();
    let given = [("TIMER", &timer, "timer"), ("EPOLL", &epoll, "epoll")];
    for (_, file, _) in given.iter().filter(|it| it.2 == what) {
        rustix::io::fcntl_setfd(file, FdFlags::empty()).unwrap();
    }
    let given = given.map(|it| (it.0.into(), it.1.as_raw_fd().to_string().into()));
    let program = Program {
        command: vec![program.into(), what.into()],
        environment: [
            ("OUTSIDE".into(), place.outside.clone().into()),
            ("FIFO".into(), fifo.into()),
            ("VICTIM".into(), victim.id().to_string().into()),
        ]
        .into_iter()
        .chain(given)
        .collect(),
        folder: Some(place.mapped.clone()),
        stdio: [
            Some(OwnedFd::from(end)),
            Some(OwnedFd::from(to)),
            Some(File::create(place.all.path().join("err")).unwrap().into()),
        ],
    };
    let locks = what.contains("lock");
    let (fifo, outside) = (reader, place.outside.clone());
    let others = Others { pipe, socket, fifo, timer, epoll, outside, victim, locks };
    let mut waiting = Waiting {
        others,
        syncs: 0,
        since: None,
        lets_go,
        long: if what == "nothing" { Duration::from_secs(30) } else { LONG },
        went_on: false,
        shares: false,
        seen_early: None,
    };
    let mut tree = Tree::of(&place.mapped, &mut |_, _| None).unwrap();
    let ended = interpose::run(&program, &mut tree, &mut waiting).unwrap();
    drop(program);
    let is_unseen = ["exit", "exit_thread", "exec", "segment", "setsockopt", "flags", "nonblock"];
    let is_unseen = [&is_unseen[..], &["open_to_write"]].concat();
    if lets_go && !is_unseen.contains(&what) {
        // A child that another test has just forked has all that is open here until its exec.
        let mut sees = || {
            std::thread::sleep(Duration::from_millis(5));
            waiting.others.see()
        };
        assert!((0..400).any(|_| sees()), "{what}: the test would not see it");
    }
    (waiting, ended.code)
}

const EFFECTS: &[&str] = &[
    "write",
    "writev",
    "send",
    "sendmsg",
    "shutdown",
    "close",
    "close_range",
    "dup2",
    "sendfile",
    "splice",
    "sendfile_mapped",
    "sendfile_socket",
    "splice_mapped",
    "vmsplice",
    "pwrite",
    "copy",
    "ftruncate",
    "fallocate",
    "fchmod",
    "truncate",
    "chmod",
    "utimens",
    "creat",
    "tmpfile",
    "mkdir",
    "mkfifo",
    "symlink",
    "link",
    "rename",
    "unlink",
    "setxattr",
    "open_fifo",
    "open_to_write",
    "timer",
    "epoll",
    "setsockopt",
    "flags",
    "nonblock",
    "unlock",
    "close_lock",
    "close_folder_lock",
    "memory",
    "bind",
    "kill",
    "sigqueue",
    "exit",
    "exit_thread",
    "exec",
    "child",
];

#[test]
fn what_others_can_see_waits_for_its_number() {
    let build = Place::new();
    let Some(program) = compiled(build.all.path(), "effects.c", &[]) else { return };
    if !is_able() {
        return;
    }
    for what in EFFECTS {
        let (waiting, code) = look(&program, what, false);
        assert!(waiting.seen_early == Some(false), "{what} was seen before its data were durable");
        assert!(!waiting.went_on && code == 137, "{what}: it went on");
    }
    for what in EFFECTS {
        let (waiting, code) = look(&program, what, true);
        let goes_on = !["exit", "exit_thread", "exec"].contains(what);
        assert_eq!((waiting.went_on, code), (goes_on, 0), "{what}");
    }
}

#[test]
fn what_nobody_sees_goes_on() {
    let build = Place::new();
    let Some(program) = compiled(build.all.path(), "effects.c", &[]) else { return };
    if !is_able() {
        return;
    }
    let (waiting, _) = look(&program, "nothing", false);
    assert!(waiting.went_on && waiting.seen_early != Some(true) && !waiting.shares);
    assert!(look(&program, "memory", false).0.shares);
    assert!(look(&program, "segment", true).0.shares, "making it waits, too");
}
