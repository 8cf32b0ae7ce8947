//! A server of the binary: started, asked what it is, and ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A server that is there. It is killed when this is dropped: a test that fails leaves none
/// behind.
pub struct Served {
    pub child: Child,
    out: BufReader<ChildStdout>,
    /// Its first words.
    pub ready: Value,
}

impl Served {
    /// Runs a command that serves with `--json`, and waits until it does.
    pub fn start(command: &mut Command) -> Served {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| {
            // One that goes on would not end what it says of errors.
            child.kill().unwrap();
            panic!("{command:?}: {line:?}: {e}: {}", errors(&mut child))
        });
        Served { child, out, ready }
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Bytes of memory that it has.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// The next line that it says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Asks it to stop, which it must do well; gives its last words.
    pub fn stop(self) -> Value {
        self.stop_by(Signal::TERM)
    }

    /// The same by another signal.
    pub fn stop_by(self, signal: Signal) -> Value {
        let (code, errors, last) = self.end(signal);
        assert_eq!(code, Some(0), "{last}{errors}");
        serde_json::from_str(&last).unwrap_or_else(|e| panic!("{last:?}: {e}"))
    }

    /// Waits until a signal has ended it. Gives its exit code, what it said on standard error
    /// where that is piped, and its last words.
    pub fn end(mut self, signal: Signal) -> (Option<i32>, String, String) {
        kill_process(self.pid(), signal).unwrap();
        let mut last = String::new();
        self.out.read_to_string(&mut last).unwrap();
        let errors = errors(&mut self.child);
        (self.child.wait().unwrap().code(), errors, last)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rest of what a process says on standard error, where that is piped.
fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut text).unwrap();
    }
    text
}
