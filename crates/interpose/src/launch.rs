//! The program's start: a child that puts the filter on itself, hands over its listener, and
//! becomes the program. Between fork and exec it makes system calls and nothing else.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::error::RunError;
use crate::filter;
use crate::notify::last_error;
use crate::watcher::Wants;

/// The variable by which processes of a program are found whose parents have ended.
pub(crate) const MARK: &str = "SSDKIT_SUPERVISED_BY";

/// What it is for the programs of this thread: one runs at a time.
pub(crate) fn mark() -> String {
    format!("{}-{:?}", std::process::id(), std::thread::current().id())
}

/// What is to be run.
#[derive(Debug, Default)]
pub struct Program {
    /// Its name, which is looked for in `PATH` unless it has a `/`, and its arguments.
    pub command: Vec<OsString>,
    /// Variables that it gets beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder that it starts in; this process' without.
    pub folder: Option<PathBuf>,
    /// Standard input, output and error; those of this process without.
    pub stdio: [Option<OwnedFd>; 3],
}

/// A child that waits in its last step before the program.
pub(crate) struct Started {
    pub pid: Pid,
    pub process: OwnedFd,
    pub listener: OwnedFd,
    shared: Shared,
}

impl Started {
    /// Lets it become the program.
    pub fn go(self) -> (Pid, OwnedFd, OwnedFd, Shared) {
        set(&self.shared.words().go, 1);
        (self.pid, self.process, self.listener, self.shared)
    }
}

/// A page that parent and child share.
pub(crate) struct Shared {
    page: *mut Words,
}

struct Words {
    /// The listener's descriptor in the child, or an error's negative number.
    listener: AtomicI32,
    /// Not 0 when the child may go on.
    go: AtomicI32,
    /// Why the program could not be executed.
    exec: AtomicI32,
}

/// Sets a word that the other process waits for. The filter lets this call and the next pass.
fn set(word: &AtomicI32, value: i32) {
    word.store(value, Ordering::Release);
    // SAFETY: it wakes who waits for the word, and changes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Waits a while for a word that is not 0; it may come back without.
fn wait(word: &AtomicI32) {
    let while_ = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    // SAFETY: the word and the time are only read.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, &while_) };
}

impl Shared {
    fn new() -> Result<Self, Errno> {
        // SAFETY: a new mapping, which nobody else has; zeros are what the words begin with.
        let page = unsafe {
            libc::mmap(
                null_mut(),
                size_of::<Words>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED { Err(last_error()) } else { Ok(Self { page: page.cast() }) }
    }

    fn words(&self) -> &Words {
        // SAFETY: it is mapped as long as this lives, aligned as pages are, and all atomic.
        unsafe { &*self.page }
    }

    /// Why there is no program, after the child has ended.
    pub fn exec_error(&self) -> Option<io::Error> {
        let errno = self.words().exec.load(Ordering::Acquire);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it.
        unsafe { libc::munmap(self.page.cast(), size_of::<Words>()) };
    }
}

/// What the child needs, made before the fork.
struct Plan {
    filter: Vec<libc::sock_filter>,
    path: CString,
    _strings: Vec<CString>,
    arguments: Vec<*const libc::c_char>,
    variables: Vec<*const libc::c_char>,
    folder: Option<CString>,
    stdio: [Option<RawFd>; 3],
}

/// Starts the child and takes its listener.
pub(crate) fn start(program: &Program, wants: Wants) -> Result<Started, RunError> {
    let doing = RunError::doing;
    let shared = Shared::new().map_err(doing("sharing a page"))?;
    let plan = plan(program, wants)?;
    // SAFETY: the child makes system calls on what `plan` holds, and executes or exits.
    let pid = match unsafe { libc::fork() } {
        // SAFETY: this is that child.
        0 => unsafe { child(&plan, shared.words()) },
        -1 => return Err(doing("starting a process")(last_error())),
        pid => Pid::from_raw(pid).expect("a child has a number above 0"),
    };
    let taken = take(pid, shared.words());
    match taken {
        Ok((process, listener)) => Ok(Started { pid, process, listener, shared }),
        Err(error) => {
            // SAFETY: it is our child, and not reaped.
            unsafe {
                libc::kill(pid.as_raw_nonzero().get(), libc::SIGKILL);
                libc::waitpid(pid.as_raw_nonzero().get(), null_mut(), 0);
            }
            Err(error)
        }
    }
}

fn take(pid: Pid, words: &Words) -> Result<(OwnedFd, OwnedFd), RunError> {
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| RunError::NoAccess(e.into()))?;
    let mut number = 0;
    while number == 0 {
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        let has_ended = poll(&mut ends, Some(&Timespec::default())) == Ok(1);
        number = words.listener.load(Ordering::Acquire);
        if has_ended && number == 0 {
            number = -libc::ECHILD;
        } else if number == 0 {
            wait(&words.listener);
        }
    }
    if number == -libc::EBUSY {
        return Err(RunError::Supervised);
    }
    if number < 0 {
        return Err(RunError::NoNotification(io::Error::from_raw_os_error(-number)));
    }
    let listener = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())
        .map_err(|errno| RunError::NoAccess(errno.into()))?;
    Ok((process, listener))
}

fn plan(program: &Program, wants: Wants) -> Result<Plan, RunError> {
    let name = program.command.first().ok_or_else(|| RunError::NoProgram {
        path: PathBuf::new(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    let zero = |bytes: &[u8]| CString::new(bytes).map_err(|_| RunError::ZeroByte);
    let path = zero(found(Path::new(name)).as_os_str().as_bytes())?;
    let mut strings = Vec::new();
    for argument in &program.command {
        strings.push(zero(argument.as_bytes())?);
    }
    let ours = std::env::vars_os().filter(|(name, _)| {
        name != MARK && program.environment.iter().all(|(other, _)| other != name)
    });
    let mark = std::iter::once((MARK.into(), mark().into()));
    for (name, value) in ours.chain(program.environment.iter().cloned()).chain(mark) {
        strings.push(zero(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    let pointers = |of: &[CString]| {
        of.iter().map(|text| text.as_ptr()).chain([null()]).collect::<Vec<*const libc::c_char>>()
    };
    let (arguments, variables) = strings.split_at(program.command.len());
    Ok(Plan {
        filter: filter::program(wants, wants.effects && gives_watching()),
        path,
        arguments: pointers(arguments),
        variables: pointers(variables),
        folder: program.folder.as_ref().map(|it| zero(it.as_os_str().as_bytes())).transpose()?,
        stdio: [0, 1, 2].map(|n: usize| program.stdio[n].as_ref().map(AsRawFd::as_raw_fd)),
        _strings: strings,
    })
}

/// Whether the program gets a timer, an epoll or an inotify from this process.
fn gives_watching() -> bool {
    const NAMES: [&str; 3] =
        ["anon_inode:[timerfd]", "anon_inode:[eventpoll]", "anon_inode:inotify"];
    let is_given = |entry: &std::fs::DirEntry| {
        let number = entry.file_name().to_str().and_then(|it| it.parse().ok());
        // SAFETY: it only looks.
        let flags = number.map_or(-1, |it: RawFd| unsafe { libc::fcntl(it, libc::F_GETFD) });
        let goes_on = flags >= 0 && flags & libc::FD_CLOEXEC == 0;
        goes_on
            && std::fs::read_link(entry.path())
                .is_ok_and(|it| NAMES.iter().any(|name| it == Path::new(name)))
    };
    // Who cannot be asked may.
    std::fs::read_dir("/proc/self/fd").map_or(true, |all| all.flatten().any(|it| is_given(&it)))
}

impl Program {
    /// An error where there is no such program.
    pub fn find(&self) -> Result<(), RunError> {
        let path = found(Path::new(&self.command[0]));
        rustix::fs::access(&path, rustix::fs::Access::EXEC_OK)
            .map_err(|e| RunError::NoProgram { path, source: e.into() })
    }
}

/// Where a program is, as a shell finds it; its name where it is nowhere.
fn found(name: &Path) -> PathBuf {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return name.to_path_buf();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let is_program = |path: &PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(is_program)
        .unwrap_or_else(|| name.to_path_buf())
}

/// # Safety
/// Only in a child, right after the fork.
unsafe fn child(plan: &Plan, words: &Words) -> ! {
    // SAFETY: system calls with what the plan holds, which nobody changes any more.
    unsafe {
        if let Err(errno) = prepare(plan) {
            set(&words.listener, -errno);
            libc::_exit(127);
        }
        let filter = libc::sock_fprog {
            len: plan.filter.len() as u16,
            filter: plan.filter.as_ptr().cast_mut(),
        };
        let flags =
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        let listener =
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter);
        let number = if listener < 0 { -*libc::__errno_location() } else { listener as i32 };
        // From here on the supervisor is asked, so nothing that it has to answer may come before
        // it is ready.
        set(&words.listener, number);
        while number > 0 && words.go.load(Ordering::Acquire) == 0 {
            wait(&words.go);
        }
        if number > 0 {
            libc::execve(plan.path.as_ptr(), plan.arguments.as_ptr(), plan.variables.as_ptr());
            words.exec.store(*libc::__errno_location(), Ordering::Release);
        }
        libc::_exit(127)
    }
}

/// The child as a program expects to begin, or the error's number.
///
/// # Safety
/// As of [`child`].
unsafe fn prepare(plan: &Plan) -> Result<(), i32> {
    // SAFETY: as above.
    unsafe {
        let checked =
            |result: i32| if result < 0 { Err(*libc::__errno_location()) } else { Ok(()) };
        for (n, file) in plan.stdio.iter().enumerate() {
            if let Some(file) = *file {
                checked(libc::dup2(file, n as i32))?;
            }
        }
        if let Some(folder) = &plan.folder {
            checked(libc::chdir(folder.as_ptr()))?;
        }
        // Rust ignores it; programs expect what the system does.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        checked(libc::sigprocmask(libc::SIG_SETMASK, &none, null_mut()))?;
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

/// The end of a descriptor's owner is seen by the other side.
pub(crate) fn own(file: RawFd) -> OwnedFd {
    // SAFETY: only for a descriptor that a system call just made.
    unsafe { OwnedFd::from_raw_fd(file) }
}
