//! What ends the program's processes when this one is killed, and so cannot: a shell that waits
//! for the end of a pipe that only this process holds open. Without a shell nobody does.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::launch;

/// Looks for processes with the program's variable, until there are none.
const SCRIPT: &str = r#"read -r line
rounds=0
while [ $rounds -lt 100 ]; do
    rounds=$((rounds + 1)) found=
    for file in /proc/[0-9]*/environ; do
        if grep -qF "$0" "$file"; then
            process=${file#/proc/} found=1
            kill -9 "${process%/environ}"
        fi
    done
    test "$found" || exit
    sleep 0.1 || sleep 1
done"#;

/// Stands by until it is dropped.
pub(crate) struct Guard {
    shell: Option<Child>,
}

impl Guard {
    /// For the program of this thread.
    pub fn start() -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT]).arg(format!("{}={}", launch::MARK, launch::mark()));
        // It has a group of its own, so that a terminal's signals are not for it.
        shell.current_dir("/").process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { shell: shell.spawn().ok() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(shell) = &mut self.shell {
            let _ = shell.kill();
            let _ = shell.wait();
        }
    }
}
