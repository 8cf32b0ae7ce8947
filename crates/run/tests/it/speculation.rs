//! Syncs that are answered at once: the same results, and never a word of what is lost.

use std::fs;

use crate::{Place, has, is_able};

/// Each line is printed when what it tells of was synced. A shell's `echo` is one write.
const LINES: &str =
    "cd $D; for n in $(seq 1000); do echo $n > $n; sync $n; echo $n >> $O/acked; done";

/// The last line that others saw.
fn acked(place: &Place) -> u64 {
    let text = fs::read_to_string(place.path("acked")).unwrap_or_default();
    text.lines().last().map_or(0, |line| line.parse().unwrap())
}

fn all_are_there(place: &Place) {
    let acked = acked(place);
    place.sh(&format!("for n in $(seq {acked}); do test $(cat $D/$n) = $n; done"));
}

#[test]
fn what_was_seen_is_there_after_a_cut() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    for cut in ["30ms", "60ms", "10", "101", "313"] {
        let _ = fs::remove_file(place.path("acked"));
        let _ = fs::remove_dir_all(place.path("data"));
        let code = place.run(&["--format", "--speculate", "--cut-after", cut], LINES).unwrap();
        assert_eq!(code, 137);
        all_are_there(&place);
    }
    assert!(acked(&place) > 0, "the test sees something");
}

/// The program is killed before others see what depends on a sync that failed.
#[test]
fn what_was_seen_is_there_after_a_failure() {
    if !is_able() {
        return;
    }
    for fault in ["above:flush,every=31", "above:write,every=147", "above:flush,every=96"] {
        let place = Place::new();
        place.run(&["--speculate"], "true").unwrap();
        let e = place.run(&["--speculate", "--fault", fault], LINES).unwrap_err();
        assert!(e.to_string().contains("a sync that had been answered failed"), "{e}");
        assert!(acked(&place) > 2, "{fault}");
        all_are_there(&place);
    }
}

/// A drive that takes nothing any more cannot be shut down either, which is told beside.
#[test]
fn a_sync_that_was_answered_and_failed_is_told_first() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.run(&["--speculate"], "true").unwrap();
    let fault = ["--speculate", "--fault", "medium:fail,on=program,from=100"];
    let e = place.run(&fault, LINES).unwrap_err().to_string();
    let (killed, then) = e.split_once("; and then: ").unwrap_or((&e, ""));
    assert!(killed.contains("a sync that had been answered failed") && !then.is_empty(), "{e}");
}

#[test]
fn results_are_those_without() {
    if !is_able() || !has("sqlite3") {
        return;
    }
    let sql = "pragma synchronous=FULL; create table t(a);
        $(for n in $(seq 40); do echo \"insert into t values ($n);\"; done)
        select sum(a) from t;";
    let place = Place::new();
    let script = format!(
        "cd $D; sqlite3 a.db \"{sql}\" > $O/sum; test $(cat $O/sum) = 820
        dd if=/dev/urandom of=f bs=4k count=100 oflag=sync 2>/dev/null; cp f $O/f"
    );
    assert_eq!(place.run(&["--speculate"], &script).unwrap(), 0);
    place.lose_folder();
    place.sh("cd $D; cmp f $O/f; test $(sqlite3 a.db 'select sum(a) from t') = 820
        test $(sqlite3 a.db 'pragma integrity_check') = ok");
    // What no sync asked for is lost as ever, and what one did ask for is not.
    let code =
        place.run(&["--speculate", "--no-sync-at-end"], "echo x > $D/x; sync $D/x; kill -9 $$");
    assert_eq!(code.unwrap(), 137);
    place.sh("test $(cat $D/x) = x");
}

#[test]
fn a_journal_that_keeps_no_order_is_refused() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.sh("echo a > $D/a");
    let e = place.run(&["--speculate"], "true").unwrap_err();
    assert!(e.to_string().contains("--journal data"), "{e}");
    let e = place.run(&["--journal", "none"], "true").unwrap_err();
    assert!(e.to_string().contains("with --journal ordered"), "{e}");
    assert_eq!(place.run(&["--journal", "ordered"], "test -e $D/a").unwrap(), 0);
}

/// The program is killed at any moment by who kills `ssdkit`, whole: KILLS times, by default few.
#[test]
fn what_was_seen_is_there_after_a_kill() {
    if !is_able() {
        return;
    }
    let kills: u64 = std::env::var("SSDKIT_KILLS").map_or(5, |it| it.parse().unwrap());
    let place = Place::new();
    place.run(&["--speculate"], "true").unwrap();
    let this = std::env::current_exe().unwrap();
    let mut seen = 0;
    for n in 0..kills {
        let _ = fs::remove_file(place.path("acked"));
        let _ = fs::remove_dir_all(place.path("data"));
        let mut child = std::process::Command::new(&this)
            .args(["--exact", "speculation::lines_under_a_run", "--ignored", "--nocapture"])
            .env("PLACE", place.path(""))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Not before something was seen; then anywhere, as the number says.
        while acked(&place) == 0 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_micros(n * 7919 % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = fs::remove_dir_all(place.path("data"));
        all_are_there(&place);
        seen += acked(&place);
        place.sh("rm -f $D/*");
    }
    assert!(seen >= kills, "{seen}");
}

#[test]
#[ignore = "a part of `what_was_seen_is_there_after_a_kill`"]
fn lines_under_a_run() {
    let at = std::env::var("PLACE").unwrap();
    crate::run_at(std::path::Path::new(&at), &["--speculate"], LINES).unwrap();
}
