//! The supervisor: one thread that takes the program's calls as they come and answers each. It
//! waits for nothing but the next call, the next answer that is due, the watcher's bell, and the
//! program's end.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use files::Operation;
use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, pidfd_send_signal, setrlimit,
    waitid,
};

use crate::calls;
use crate::error::RunError;
use crate::events::Events;
use crate::guard::Guard;
use crate::held::{Held, HeldAnswers, Until};
use crate::launch::{self, Program, Shared};
use crate::mapping::Mappings;
use crate::notify::{Call, Listener, Reply, last_error};
use crate::process::{self, Processes};
use crate::relay::{Relay, Step};
use crate::tree::Tree;
use crate::watcher::{Answer, Course, Wants, Watcher};

/// Bytes of one call that are moved at once.
const PIECE: usize = 4 << 20;
/// As many files that are not mapped are told apart.
const STREAMS: usize = 1 << 16;
/// How often those that must die are looked for.
const AGAIN: Duration = Duration::from_millis(20);

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; of a signal 128 and its number.
    pub code: i32,
    /// Calls that the supervisor got.
    pub calls: u64,
    /// Effects that others could have seen, and that waited.
    pub held: Held,
    /// Whether a signal asked for the end, while the program ran.
    pub was_asked: bool,
    /// Whether the watcher ended it, while the program ran.
    pub was_stopped: bool,
    /// An error of what was in memory that is a file when all had ended. The program was not told.
    pub lost: Option<Errno>,
}

/// Runs the program and tells the watcher what it does to the files of the tree, until all its
/// processes have ended. SIGINT, SIGTERM and SIGHUP that are sent to this process go to the
/// program; those of a terminal it gets by itself. When only processes are left that it left
/// behind, they end these. To be called while there are no other threads
/// that take these signals.
pub fn run(
    program: &Program,
    tree: &mut Tree,
    watcher: &mut dyn Watcher,
) -> Result<Ended, RunError> {
    let doing = RunError::doing;
    let wants = watcher.wants();
    let signals = Signals::take().map_err(doing("taking signals"))?;
    // The mask of new files' bits becomes this thread's own, so that it can be the program's.
    // SAFETY: it changes nothing in memory.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(RunError::NoMask(last_error().into()));
    }
    let events = Events::of(&signals.file, watcher.bell()).map_err(doing("making a timer"))?;
    let guard = Guard::start();
    let started = launch::start(program, wants)?;
    // Files without a name are kept open here; the program has the limit that it had.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let streams = Streams::of(program);
    let (pid, process, listener, shared) = started.go();
    let mut supervisor = Supervisor {
        session: Session {
            listener: Listener::new(listener),
            processes: Processes::default(),
            tree,
            mappings: Mappings::default(),
            watcher,
            wants,
            streams,
            refused: HashSet::new(),
            sees_all: process::sees_all(),
            buffer: Buffer::new(),
            spare: Vec::new(),
            until: Until::default(),
        },
        main: Main { pid, process, code: None },
        events,
        held: HeldAnswers::default(),
        copies: HashMap::new(),
        seen: HashMap::new(),
        stopped: false,
        was_asked: false,
        was_stopped: false,
        calls: 0,
    };
    let ended = supervisor.until_end(&signals);
    if ended.is_err() {
        supervisor.kill();
    }
    drop(guard);
    supervisor.ended(ended, program, &shared)
}

/// What each call needs.
pub(crate) struct Session<'a> {
    pub listener: Listener,
    pub processes: Processes,
    pub tree: &'a mut Tree,
    pub mappings: Mappings,
    watcher: &'a mut dyn Watcher,
    pub wants: Wants,
    streams: Streams,
    refused: HashSet<&'static str>,
    /// Whether there is no process that this one may not look into.
    pub sees_all: bool,
    pub buffer: Buffer,
    /// Memory for outputs, kept from call to call.
    pub spare: Vec<u8>,
    /// When the call in progress gets its answer.
    until: Until,
}

impl Session<'_> {
    /// Asks whether it may happen. Where there is no room, files that nobody has open any more go
    /// first.
    pub fn ask(&mut self, operation: &Operation) -> Result<(), Errno> {
        match self.watcher.before(operation) {
            Err(Errno::NOSPC) if self.tree.nameless() > 0 => {
                self.sweep(false);
                self.watcher.before(operation)
            }
            other => other,
        }
    }

    /// It has happened.
    pub fn tell(&mut self, operation: &Operation) -> Result<(), Errno> {
        self.mappings.told(operation);
        let answer = self.watcher.after(operation);
        self.take(answer)
    }

    pub fn take(&mut self, answer: Answer) -> Result<(), Errno> {
        self.until.at = self.until.at.max(answer.at);
        self.until.tickets.extend(answer.ticket);
        answer.error.map_or(Ok(()), Err)
    }

    /// Something that has no part in the kernel.
    pub fn ask_and_tell(&mut self, operation: &Operation) -> Result<(), Errno> {
        self.ask(operation)?;
        self.tell(operation)
    }

    pub fn watcher(&mut self) -> &mut dyn Watcher {
        self.watcher
    }

    pub fn output(&mut self, stat: &Stat, data: &[u8]) {
        let stream = self.streams.number(stat);
        self.watcher.output(stream, data);
    }

    pub fn refuse(&mut self, name: &'static str) {
        if self.refused.insert(name) {
            self.watcher.refused(name);
        }
    }

    /// The kernel has changed how much a file takes that had this before.
    pub fn resized(&mut self, file: impl AsFd, before: &Stat) -> Result<(), Errno> {
        if before.st_nlink == 0 {
            self.tree.holds(&fstat(file)?);
        }
        Ok(())
    }

    /// Has files without a name go that nobody has any more; whether there were any.
    pub fn make_room(&mut self) -> bool {
        let before = self.tree.nameless();
        if before > 0 {
            self.sweep(false);
        }
        self.tree.nameless() < before
    }

    /// Gives back descriptors of files that nobody has any more; whether there were any.
    fn give_back(&mut self) -> bool {
        let held = |it: &Self| it.tree.nameless() + it.mappings.held();
        let before = held(self);
        self.sweep(false);
        calls::close_mapped(self);
        held(self) < before
    }

    /// Files without a name that nobody has open go.
    pub fn sweep(&mut self, at_end: bool) {
        // Only memory that is written matters.
        let with_memory = !self.mappings.is_empty();
        for inode in self.tree.sweep(at_end, with_memory) {
            // Nobody waits for it.
            let _ = self.tell(&Operation::Forget { inode });
        }
    }
}

/// Memory that direct I/O takes, too.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    begin: usize,
}

impl Buffer {
    fn new() -> Self {
        let memory = vec![0; PIECE + 4096];
        let begin = memory.as_ptr().align_offset(4096);
        Self { memory, begin }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + PIECE]
    }
}

/// Numbers of files that are not mapped.
struct Streams {
    numbers: HashMap<(u64, u64), u32>,
}

impl Streams {
    fn of(program: &Program) -> Self {
        let mut numbers = HashMap::new();
        // Where both are the same file, they are the output.
        for n in [2, 1] {
            let file = match (&program.stdio[n], n) {
                (Some(file), _) => fstat(file),
                (None, 1) => fstat(std::io::stdout()),
                (None, _) => fstat(std::io::stderr()),
            };
            if let Ok(stat) = file {
                numbers.insert((stat.st_dev, stat.st_ino), n as u32);
            }
        }
        Self { numbers }
    }

    /// When too many are told apart, all others are one.
    fn number(&mut self, stat: &Stat) -> u32 {
        let next = self.numbers.len() as u32 + 3;
        match self.numbers.get(&(stat.st_dev, stat.st_ino)) {
            Some(&number) => number,
            None if self.numbers.len() >= STREAMS => u32::MAX,
            None => *self.numbers.entry((stat.st_dev, stat.st_ino)).or_insert(next),
        }
    }
}

struct Main {
    pid: Pid,
    process: OwnedFd,
    code: Option<i32>,
}

struct Supervisor<'a> {
    session: Session<'a>,
    main: Main,
    events: Events,
    held: HeldAnswers,
    /// Copies that wait for room, by where they go, and the calls that they are of.
    copies: HashMap<RawFd, (u64, Box<Relay>)>,
    /// Processes that said that they end, and when each began: numbers are given anew.
    seen: HashMap<u32, u64>,
    stopped: bool,
    was_asked: bool,
    was_stopped: bool,
    calls: u64,
}

impl Supervisor<'_> {
    fn until_end(&mut self, signals: &Signals) -> Result<(), Errno> {
        self.events.await_end(&self.main.process)?;
        loop {
            let mut wake = match self.session.watcher.course() {
                Course::Go(at) => at,
                Course::Stop => {
                    self.was_stopped |= self.main.code.is_none();
                    self.stopped = true;
                    None
                }
            };
            if !self.stopped {
                while let Some((ticket, error)) = self.session.watcher.over() {
                    self.held.over(ticket, error);
                }
                let reached = self.session.watcher.reached();
                while let Some((id, reply)) = self.held.due(reached) {
                    self.answer(id, reply)?;
                }
                wake = wake.into_iter().chain(self.held.next_at()).min();
            }
            if self.stopped || self.main.code.is_some() {
                self.reap();
                wake = wake.into_iter().chain([Instant::now() + AGAIN]).min();
            }
            if self.stopped {
                self.kill();
            }
            let had_ended = self.main.code.is_some();
            let came = self.events.wait(self.session.listener.file(), wake)?;
            if came.call {
                self.receive()?;
            } else if came.is_over && self.main.code.is_some() {
                return Ok(());
            }
            for file in came.room {
                if let Some((id, relay)) = self.copies.remove(&file) {
                    self.events.forget_room(relay.to.file())?;
                    self.copy(id, relay)?;
                }
            }
            if came.end {
                self.main.reap()?;
                self.events.forget_end(&self.main.process)?;
            }
            if came.signal {
                signals.forward(&self.main.process);
                // One that ends as the signal comes may end by it.
                self.was_asked |= !had_ended;
                // What the program has left behind is not asked twice.
                self.stopped |= self.main.code.is_some();
            }
        }
    }

    fn receive(&mut self) -> Result<(), Errno> {
        let Some(call) = self.session.listener.receive()? else { return Ok(()) };
        self.calls += 1;
        self.session.processes.note(call.thread);
        if self.stopped {
            // It has been killed, or will be.
            self.see(&call);
            return Ok(());
        }
        if call.number == libc::SYS_exit_group {
            self.see(&call);
        }
        self.session.until = Until::default();
        self.session.watcher.begins();
        let mut reply = calls::carry_out(&mut self.session, &call);
        if matches!(reply, Reply::Error(Errno::MFILE | Errno::NFILE)) && self.session.give_back() {
            reply = calls::carry_out(&mut self.session, &call);
        }
        let is_effect = self.session.wants.effects && matches!(reply, Reply::Continue);
        let awaited = if is_effect { self.session.watcher.awaited() } else { None };
        let until = std::mem::take(&mut self.session.until);
        if let Some(number) = awaited.filter(|_| calls::is_seen(&mut self.session, &call)) {
            self.session.watcher.holds(number);
            self.held.hold_effect(call.id, reply, number);
        } else if until.is_now() {
            self.answer(call.id, reply)?;
        } else {
            self.held.hold(call.id, reply, until);
        }
        if self.session.tree.should_look() {
            self.session.sweep(false);
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, reply: Reply) -> Result<(), Errno> {
        match reply {
            Reply::Relay(relay) => return self.copy(id, relay),
            reply => self.session.listener.reply(id, &reply),
        }
        Ok(())
    }

    /// Copies as far as there is room, when others may see it: what is in the file by then.
    fn copy(&mut self, id: u64, mut relay: Box<Relay>) -> Result<(), Errno> {
        let (effects, watcher) = (self.session.wants.effects, &mut self.session.watcher);
        let reached = watcher.reached();
        if let Some(number) = watcher.awaited().filter(|&it| effects && it > reached) {
            watcher.holds(number);
            self.held.hold_effect(id, Reply::Relay(relay), number);
            return Ok(());
        }
        match relay.step(&mut self.session) {
            Step::Done(reply) => self.session.listener.reply(id, &reply),
            Step::Waits => {
                self.events.await_room(relay.to.file())?;
                self.copies.insert(relay.to.file().as_raw_fd(), (id, relay));
            }
        }
        Ok(())
    }

    /// Keeps the call's process, which may become our child, in mind.
    fn see(&mut self, call: &Call) {
        if self.seen.len() >= MOST_SEEN {
            self.seen.retain(|&process, began| started(process) == Some(*began));
        }
        if let Ok(process) = self.session.processes.process(call.thread)
            && let Some(began) = started(process)
        {
            self.seen.insert(process, began);
        }
    }

    /// Processes whose parent has ended may be our children.
    fn reap(&mut self) {
        let main = self.main.pid.as_raw_nonzero().get() as u32;
        self.seen.retain(|&process, began| {
            if started(process) != Some(*began) {
                return false;
            }
            // SAFETY: it takes a number, and waits for nothing.
            let reaped = unsafe {
                process != main
                    && libc::waitpid(process as i32, std::ptr::null_mut(), libc::WNOHANG)
                        == process as i32
            };
            !reaped
        });
    }

    /// Sends a last signal to every process of the program that can be found: its descendants,
    /// those that made a call, and those that have its variable.
    fn kill(&mut self) {
        let main = self.main.pid.as_raw_nonzero().get() as u32;
        let mut all: HashSet<u32> = self.session.processes.kill().into_iter().collect();
        all.extend(marked());
        if self.main.code.is_none() {
            all.insert(main);
        }
        loop {
            let more: Vec<u32> = parents()
                .into_iter()
                .filter(|(child, parent)| all.contains(parent) && !all.contains(child))
                .map(|it| it.0)
                .collect();
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        for process in all {
            // SAFETY: it takes numbers.
            unsafe { libc::kill(process as i32, libc::SIGKILL) };
        }
    }

    /// What the end leaves to tell, and to say.
    fn ended(
        mut self,
        ended: Result<(), Errno>,
        program: &Program,
        shared: &Shared,
    ) -> Result<Ended, RunError> {
        if self.main.code.is_none() {
            let _ = self.main.reap();
        }
        ended.map_err(RunError::doing("supervising the program"))?;
        if let Some(source) = shared.exec_error() {
            let path = program.command[0].clone().into();
            return Err(RunError::NoProgram { path, source });
        }
        let lost = calls::tell_mapped(&mut self.session).err();
        self.session.sweep(true);
        let code = self.main.code.unwrap_or(128 + libc::SIGKILL);
        let Supervisor { calls, was_asked, was_stopped, .. } = self;
        let held = self.held.effects_held;
        Ok(Ended { code, calls, held, was_asked, was_stopped, lost })
    }
}

/// Ended processes that are kept in mind before it is looked which are still there.
const MOST_SEEN: usize = 1024;

/// When a process began, in ticks since the system did; none where there is none of the number.
fn started(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit(')').next()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Processes that were started with the variable of this thread's program.
fn marked() -> Vec<u32> {
    let mark = format!("{}={}", launch::MARK, launch::mark());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |number: &u32| {
        let all = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        all.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    numbers.filter(has).collect()
}

/// Which process has which parent.
fn parents() -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name is in brackets and may hold anything.
        let after = text.rsplit(')').next().unwrap_or_default();
        let parent = after.split_ascii_whitespace().nth(1).and_then(|it| it.parse().ok());
        out.extend(parent.map(|parent| (process, parent)));
    }
    out
}

impl Main {
    fn reap(&mut self) -> Result<(), Errno> {
        let options = WaitIdOptions::EXITED;
        if let Some(status) = waitid(WaitId::PidFd(self.process.as_fd()), options)? {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            self.code = status.exit_status().or(signal).or(Some(128 + libc::SIGKILL));
        }
        Ok(())
    }
}

/// Signals that are for the program.
struct Signals {
    file: OwnedFd,
    _blocked: BlockedSignals,
}

/// Has the signals that are for the program wait, in this thread and in those that it starts from
/// now on: to be called before there are others, as [`run`] takes them in its own thread alone.
pub fn block_signals() -> BlockedSignals {
    let mut before = these();
    let these = these();
    // SAFETY: sets of signals are numbers; the call writes to the second.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &these, &mut before) };
    BlockedSignals { before }
}

/// The mask that was before comes back with its end.
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask that was before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

fn these() -> libc::sigset_t {
    // SAFETY: sets of signals are numbers; the calls write to this one only.
    unsafe {
        let mut these = std::mem::zeroed();
        libc::sigemptyset(&mut these);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut these, signal);
        }
        these
    }
}

impl Signals {
    fn take() -> Result<Self, Errno> {
        let blocked = block_signals();
        // SAFETY: it reads the set.
        match unsafe { libc::signalfd(-1, &these(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) } {
            -1 => Err(last_error()),
            file => Ok(Self { file: launch::own(file), _blocked: blocked }),
        }
    }

    fn forward(&self, process: &OwnedFd) {
        // SAFETY: numbers, which the call writes.
        let mut got: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let len = size_of::<libc::signalfd_siginfo>();
        // SAFETY: as many bytes as the struct has.
        let read = unsafe { libc::read(self.file.as_raw_fd(), (&raw mut got).cast(), len) };
        let is_of_a_terminal = got.ssi_code == libc::SI_KERNEL;
        let signal = Signal::from_named_raw(got.ssi_signo as i32);
        if let (true, Some(signal)) = (read == len as isize && !is_of_a_terminal, signal) {
            let _ = pidfd_send_signal(process, signal);
        }
    }
}
