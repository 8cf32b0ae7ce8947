//! The signals that ask a run or a server to end: Ctrl-C, SIGTERM, and the
//! hangup of a terminal that was closed.
//!
//! A hangup that whoever started the process has it ignore (`nohup`) stays
//! ignored. Nothing here fails.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Those that are to be heard.
pub fn asking() -> Vec<i32> {
    let mut all = vec![SIGINT, SIGTERM];
    if !ignores(SIGHUP) {
        all.push(SIGHUP);
    }
    all
}

/// Whether a second one ends the process at once: Ctrl-C does. Of a hangup the shell and
/// the system both send one, and `timeout` sends SIGTERM to its child and to the group.
pub fn insists(signal: i32) -> bool {
    signal == SIGINT
}

/// Whether the process was started with `signal` ignored.
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
