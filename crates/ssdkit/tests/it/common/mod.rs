//! What the tests of the binary share: they run it in a folder, serve by it, and ask what is
//! served.

mod served;

use std::path::Path;
use std::process::{Command, Output};

use exports::nbd::Client;
use port::BlockOp;
use serde_json::Value;

pub use served::Served;

/// The program with what it is asked: words, separated by spaces.
pub fn ssdkit(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ssdkit"));
    command.args(line.split_whitespace());
    command
}

/// Runs a command in a folder.
pub fn run(at: &Path, line: &str) -> Output {
    ssdkit(line).current_dir(at).output().unwrap()
}

/// Exit code and standard error.
pub fn told(out: &Output) -> (Option<i32>, String) {
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// What a command says on standard output and standard error, and its exit code.
pub fn all(at: &Path, line: &str) -> (String, String, Option<i32>) {
    let out = run(at, line);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code())
}

/// What a command says that must succeed.
pub fn json(at: &Path, line: &str) -> Value {
    json_of(&run(at, &format!("{line} --json")), line)
}

/// What one has said that was asked for JSON and must have succeeded.
pub fn json_of(out: &Output, line: &str) -> Value {
    let (code, errors) = told(out);
    assert_eq!(code, Some(0), "{line}: {errors}");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// A number that must be there.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// One request, and its answer: the error, and the data of a read.
pub fn ask(client: &mut Client, op: BlockOp, offset: u64, len: u64, data: &[u8]) -> (u32, Vec<u8>) {
    client.submit(op, offset, len, false, 0, data).unwrap();
    client.flush_sends().unwrap();
    let mut answer = (0, Vec::new());
    let mut each = |_, error, data: &[u8]| answer = (error, data.to_vec());
    assert_eq!(client.recv(&mut each).unwrap(), 1);
    answer
}
