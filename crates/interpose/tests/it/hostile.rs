//! Programs that mean harm, or are unlucky: they hurt nobody but themselves.

use files::Operation;
use interpose::Recorder;

use crate::run::{Place, compiled, has, is_able};

fn runs(what: &str) -> Option<Recorder> {
    let build = Place::new();
    let program = compiled(build.all.path(), "hostile.c", &["-static"])?;
    is_able().then(|| Place::new().check(&[program.to_str().unwrap(), what]))
}

#[test]
fn addresses_that_are_none_are_errors() {
    runs("addresses");
}

#[test]
fn who_is_killed_in_a_call_is_no_trouble() {
    runs("deaths");
}

#[test]
fn a_signal_makes_no_call_happen_twice() {
    runs("signals");
}

#[test]
fn who_closes_everything_and_goes_on_is_held_all_the_same() {
    let Some(recorder) = runs("closed") else { return };
    let is_last = |it: &Operation| matches!(it, Operation::Create { name, .. } if name == b"later");
    assert!(recorder.operations().any(is_last), "what goes on behind is waited for");
}

/// The kernel gives the numbers of files that went to others, which nobody told of.
#[test]
fn a_file_that_went_is_not_taken_for_another() {
    let Some(recorder) = runs("nameless") else { return };
    let all: Vec<&Operation> = recorder.operations().collect();
    let forgets = all.iter().take(all.len() / 2);
    let early = forgets.filter(|it| matches!(it, Operation::Forget { .. })).count();
    assert!(early > 50, "they are told to go while the program runs: {early}");
    let said =
        |it: &&&Operation| matches!(it, Operation::Write { data, .. } if data == b"not told");
    assert_eq!(all.iter().filter(said).count(), 0);
}

/// Files that had nothing when they lost their names count with what they have got since.
#[test]
fn what_files_that_went_have_got_is_given_back() {
    if !is_able() || !has("python3") {
        return;
    }
    let script = r#"
import os
for n in range(24):
    fd = os.open("gone", os.O_CREAT | os.O_RDWR)
    os.unlink("gone")
    os.posix_fallocate(fd, 0, 4 << 20)
    os.close(fd)
"#;
    let recorder = Place::new().check(&["python3", "-c", script]);
    let all: Vec<&Operation> = recorder.operations().collect();
    let last = all.iter().rposition(|it| matches!(it, Operation::Create { .. })).unwrap();
    let early = all[..last].iter().filter(|it| matches!(it, Operation::Forget { .. })).count();
    // The sixteenth is open when it is looked. Some of the others may be kept: whatever is open on
    // another file system with the same number counts, too.
    assert!(early >= 8, "64 MiB are kept at most: {early}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn no_call_goes_past() {
    let Some(recorder) = runs("past") else { return };
    assert_eq!(recorder.refused, ["io_uring_setup", "io_setup", "userfaultfd"]);
}
