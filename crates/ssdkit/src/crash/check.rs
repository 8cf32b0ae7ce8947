//! The check program: looks at the files that a cut left, and says whether they hold what the
//! program promised.
//!
//! It runs in a folder of its own, in a process group of its own, with nothing on its input, and
//! for a bounded time. What it says is kept to a bound. May fail: it cannot be started.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

/// Bytes of what a check says that are kept: the last ones.
const MOST_SAID: u64 = 2048;

/// What a check said of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// How it ended.
    pub how: How,
    /// What it said at last.
    pub said: String,
}

/// How a check ended that did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was ended: its time was over.
    TimedOut,
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            How::Code(code) => write!(f, "the check ended with {code}"),
            How::Signal(signal) => write!(f, "the check was ended by signal {signal}"),
            How::TimedOut => write!(f, "the check did not end in time"),
        }
    }
}

/// Runs checks, one at a time.
pub struct Checker<'a> {
    command: &'a str,
    timeout: Duration,
    said: File,
}

impl<'a> Checker<'a> {
    /// One that gives `command` to `sh -c`, and each check `timeout`.
    pub fn new(command: &'a str, timeout: Duration) -> io::Result<Self> {
        Ok(Checker { command, timeout, said: scratch()? })
    }

    /// Runs the check in `folder`. `told` is the file with what the program had said by the cut.
    pub fn run(&mut self, folder: &Path, told: &Path, cut: usize) -> io::Result<Option<Broken>> {
        self.said.set_len(0)?;
        self.said.seek(SeekFrom::Start(0))?;
        let mut child = Command::new("sh")
            .args(["-c", self.command])
            .current_dir(folder)
            .env("SSDKIT_FOLDER", folder)
            .env("SSDKIT_SAID", told)
            .env("SSDKIT_CUT", cut.to_string())
            .stdin(Stdio::null())
            .stdout(self.said.try_clone()?)
            .stderr(self.said.try_clone()?)
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        let in_time = ends(pid, self.timeout);
        // What it left running goes with it, before its number may be another's.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait()?;
        let how = if in_time? { how(status) } else { Some(How::TimedOut) };
        how.map(|how| Ok(Broken { how, said: self.last_said()? })).transpose()
    }

    fn last_said(&mut self) -> io::Result<String> {
        let len = self.said.seek(SeekFrom::End(0))?;
        self.said.seek(SeekFrom::Start(len.saturating_sub(MOST_SAID)))?;
        let mut said = Vec::new();
        Read::by_ref(&mut self.said).take(MOST_SAID).read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }
}

/// What was wrong, if something was.
fn how(status: ExitStatus) -> Option<How> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(How::Code(code)),
        (None, signal) => Some(How::Signal(signal.unwrap_or(0))),
    }
}

/// Whether a process ends within a time. It is not waited for: its number stays its own.
fn ends(pid: Pid, timeout: Duration) -> io::Result<bool> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    while let Err(e) = poll(&mut fds, Some(&timeout)) {
        if e != rustix::io::Errno::INTR {
            return Err(e.into());
        }
    }
    let left = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), left)?.is_some())
}

/// A file without a name.
fn scratch() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!(
        "ssdkit-check-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, millis: u64) -> Option<Broken> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("said"), "one\n").expect("a file");
        let mut checker = Checker::new(command, Duration::from_millis(millis)).expect("a file");
        let told = folder.path().join("said");
        checker.run(folder.path(), &told, 7).expect("it starts")
    }

    #[test]
    fn what_a_check_says_is_told() {
        assert_eq!(
            check("test \"$(cat \"$SSDKIT_SAID\")\" = one && test $SSDKIT_CUT = 7", 5000),
            None
        );
        let broken = check("echo lost >&2; exit 3", 5000).expect("it fails");
        assert_eq!(broken, Broken { how: How::Code(3), said: "lost".into() });
        let broken = check("kill -SEGV $$", 5000).expect("it fails");
        assert_eq!(broken.how, How::Signal(11));
    }

    #[test]
    fn a_check_that_does_not_end_is_ended_with_what_it_began() {
        let broken = check("sleep 1000 & sleep 1000", 50).expect("it is ended");
        assert_eq!(broken.how, How::TimedOut);
    }

    #[test]
    fn what_is_kept_of_a_long_text_is_its_end() {
        let broken = check("seq 100000; exit 1", 5000).expect("it fails");
        assert!(broken.said.ends_with("100000") && broken.said.len() <= 2048);
    }
}
