//! What the tests of the binary share: runs it in a folder.

use std::path::Path;
use std::process::{Command, Output};

use exports::nbd::Client;
use port::BlockOp;
use serde_json::Value;

/// Runs a command, its words separated by spaces.
pub fn run(at: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(line.split_whitespace())
        .current_dir(at)
        .output()
        .unwrap()
}

/// What a command says that must succeed.
pub fn json(at: &Path, line: &str) -> Value {
    let out = run(at, &format!("{line} --json"));
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{line}: {errors}");
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
