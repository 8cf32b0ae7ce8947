//! Instructions of named functions, counted.
//!
//! This program runs itself under valgrind's tool callgrind, which says what each function
//! took, with all that it called. So a function that is kept apart from its caller is a
//! place at which instructions are counted, and nothing has to be read while it runs.
//!
//! Guarantees: the counts are of the code that was built, and the same each time; they know
//! nothing of how long an instruction takes. [`count`] fails, with the reason, where there
//! is no valgrind, or this process is not the program `ssdkit`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::lines::program;

/// Runs `ssdkit study STUDY --watched CASE`; gives the instructions of all calls of
/// functions whose names have one of `marks` in them, for each of these.
pub fn count(study: &str, case: &str, marks: &[&str]) -> Result<Vec<u64>, String> {
    let mut child = Command::new("valgrind")
        .args(["-q", "--tool=callgrind", "--callgrind-out-file=/dev/stdout"])
        .args(["--error-exitcode=9"])
        .arg(program()?)
        .args(["study", study, "--watched", case])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("no valgrind here: {e}"))?;
    let said = child.stdout.take().ok_or("valgrind has no pipe")?;
    let counted = Profile::read(BufReader::new(said));
    let status = child.wait().map_err(|e| format!("valgrind got lost: {e}"))?;
    if !status.success() {
        return Err(format!("valgrind ended with {status}"));
    }
    let counted = counted.map_err(|e| format!("valgrind's profile ended: {e}"))?;
    Ok(marks.iter().map(|mark| counted.of(mark)).collect())
}

/// What callgrind wrote, as far as it is about calls.
#[derive(Default)]
struct Profile {
    /// A name is written once; then its number stands for it.
    names: HashMap<String, String>,
    /// Instructions of all calls, by the number of the function that was called.
    calls: HashMap<String, u64>,
    called: String,
    /// The next line is what a call took.
    is_call: bool,
}

impl Profile {
    fn read(from: impl BufRead) -> Result<Profile, std::io::Error> {
        let mut profile = Profile::default();
        for line in from.split(b'\n') {
            profile.line(&String::from_utf8_lossy(&line?));
        }
        Ok(profile)
    }

    fn line(&mut self, line: &str) {
        if self.is_call {
            self.is_call = false;
            let took = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
            *self.calls.entry(self.called.clone()).or_default() += took.unwrap_or(0);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            self.called = self.number(name);
        } else if let Some(name) = line.strip_prefix("fn=") {
            self.number(name);
        } else {
            self.is_call = line.starts_with("calls=");
        }
    }

    /// The number of `(number) name`, of which the name may be missing.
    fn number(&mut self, text: &str) -> String {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        if !name.is_empty() {
            self.names.insert(number.into(), name.into());
        }
        number.into()
    }

    /// The instructions of all calls of functions with this in their names.
    fn of(&self, mark: &str) -> u64 {
        let named = self.names.iter().filter(|(_, name)| name.contains(mark));
        named.filter_map(|(number, _)| self.calls.get(number)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_by_the_name_of_what_was_called() {
        let text = "\
fn=(1) main
16 400
cfn=(2) study::stage_down
calls=1 50
16 4000
fn=(2)
51 30
cfi=(3) other.rs
cfn=(4) study::stage_up::again
calls=7 90
+3 70
fn=(5) main::loop
cfn=(2)
calls=2 50
* 600
";
        let profile = Profile::read(text.as_bytes()).unwrap();
        let of = ["stage_down", "stage_up", "main", "stage"].map(|mark| profile.of(mark));
        assert_eq!(of, [4600, 70, 0, 4670]);
        assert_eq!(Profile::read(&b""[..]).unwrap().of("stage"), 0);
    }

    #[test]
    fn only_the_program_can_be_watched() {
        assert!(
            count("lightnvm", "x", &[]).unwrap_err().contains("only a program of the name ssdkit")
        );
    }
}
