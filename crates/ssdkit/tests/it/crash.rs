//! Programs with one missing barrier each are found out, and those without are not.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A program, the check that says what it promised, and what it begins with.
struct Toy {
    name: &'static str,
    setup: &'static str,
    program: &'static str,
    /// What makes it right: each of these lines is put in its place.
    mend: (&'static str, &'static str),
    /// What a sync is missing of; of nothing where none helps.
    missing: &'static [&'static str],
    check: &'static str,
    options: &'static [&'static str],
}

/// What every check begins with: what was acknowledged is there.
const TOYS: [Toy; 10] = [
    Toy {
        name: "a file is replaced by rename, and its new contents are not synced",
        setup: "printf 'old\\n' > f",
        program: "printf 'new\\n' > f.tmp\n: \nmv f.tmp f",
        mend: (": ", "sync f.tmp"),
        missing: &["f.tmp"],
        check: "grep -qx -e old -e new f",
        options: &[],
    },
    Toy {
        name: "a line is acknowledged before it is synced",
        setup: "touch log",
        program: "for i in 1 2 3 4 5; do echo $i >> log; : ; echo $i; done",
        mend: (": ", "sync log"),
        missing: &["log"],
        check: "tail -n 1 \"$SSDKIT_SAID\" | while read i; do grep -qx $i log; done",
        options: &[],
    },
    Toy {
        name: "data are changed in place before their log is durable",
        setup: "printf 'aaaaaaaa' > data; sync data",
        program: "printf 'old aaaaaaaa end\\n' > undo\n: \n\
                  printf 'bbbb' | dd of=data conv=notrunc bs=4 status=none\n\
                  sync data\nprintf 'bbbb' | dd of=data conv=notrunc bs=4 seek=1 status=none\n\
                  sync data\nrm undo",
        mend: (": ", "sync undo"),
        missing: &["undo"],
        check: "if grep -q end undo 2>/dev/null; then true; else \
                grep -qx -e aaaaaaaa -e bbbbbbbb data; fi",
        options: &[],
    },
    Toy {
        name: "the pointer is durable before what it points to",
        setup: "printf 'v1\\n' > v1; echo v1 > current",
        program: "printf 'v2\\n' > v2\n: \n\
                  echo v2 > current.tmp; sync current.tmp; mv current.tmp current; sync .",
        mend: (": ", "sync v2"),
        missing: &["v2"],
        check: "name=$(cat current) && grep -qx $name $name",
        options: &[],
    },
    Toy {
        name: "a log trusts its length: the count is durable before the records",
        setup: "touch records; echo 0 > count",
        program: "for i in 1 2 3; do echo record-$i-end >> records; : ; \
                  echo $i > count.tmp; sync count.tmp; mv count.tmp count; done",
        mend: (": ", "sync records"),
        missing: &["records"],
        check: "n=$(cat count) && test $(grep -c -- '^record-.*-end$' records) -ge $n",
        options: &[],
    },
    Toy {
        name: "a new file is synced, and its folder is not",
        setup: "mkdir inbox",
        program: "echo letter > inbox/one; sync inbox/one; : ; echo delivered",
        mend: (": ", "sync inbox"),
        missing: &["inbox"],
        check: "if grep -q delivered \"$SSDKIT_SAID\"; then grep -qx letter inbox/one; fi",
        options: &["--names", "folder"],
    },
    Toy {
        name: "a file goes before its copy is durable",
        setup: "mkdir new; echo treasure > old",
        program: "cp old new/old\n: \nrm old\nsync new",
        mend: (": ", "sync new/old; sync new"),
        missing: &["new/old"],
        check: "grep -qx treasure old 2>/dev/null || grep -qx treasure new/old",
        options: &[],
    },
    Toy {
        name: "a long value is acknowledged after fdatasync of another file",
        setup: "touch a b",
        program: "head -c 20000 /dev/zero | tr '\\0' x > b\nsync -d a\n: \necho stored",
        mend: (": ", "sync -d b"),
        missing: &["b"],
        check: "if grep -q stored \"$SSDKIT_SAID\"; then test $(tr -d -c x < b | wc -c) = 20000; fi",
        options: &[],
    },
    Toy {
        name: "the mark that all is there is written with all",
        setup: "true",
        program: "head -c 30000 /dev/zero | tr '\\0' y > out\n: \necho complete > out.ok\nsync .",
        mend: (": ", "sync out"),
        missing: &["out"],
        check: "if grep -q complete out.ok 2>/dev/null; then test $(tr -d -c y < out | wc -c) = 30000; fi",
        options: &[],
    },
    Toy {
        name: "two sectors of a record are taken to come together",
        setup: "head -c 1024 /dev/zero | tr '\\0' a > data; sync data",
        program: ": \n\
                  head -c 1024 /dev/zero | tr '\\0' b | dd of=data conv=notrunc bs=1024 status=none\n\
                  sync data; rm -f copy",
        mend: (": ", "cp data copy; sync copy; sync ."),
        missing: &[],
        check: "if test -s copy; then exit 0; fi; n=$(tr -d -c a < data | wc -c); \
                test $n = 0 || test $n = 1024",
        options: &["--tear", "512"],
    },
];

/// Runs a script, and gives the exit code and the report; `None` where the machine cannot
/// supervise programs.
fn crash(setup: &str, program: &str, check: &str, options: &[&str]) -> Option<(i32, Value)> {
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(["crash", "--json", "--setup", setup, "--check", check])
        .args(options)
        .args(["--", "sh", "-c", program])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    if told.contains("this kernel cannot hand") || told.contains("may not reach the program") {
        eprintln!("LEFT OUT: programs cannot be supervised here: {told}");
        return None;
    }
    let report = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {told}"));
    Some((out.status.code().unwrap(), report))
}

#[test]
fn each_missing_barrier_is_found_and_nothing_else() {
    for Toy { name, setup, program, mend, missing, check, options } in &TOYS {
        let Some((code, report)) = crash(setup, program, check, options) else { return };
        assert!(code == 1 && report["broken"].as_u64() > Some(0), "not found: {name}: {report:#}");
        let told = &report["missing"];
        for sync in told["syncs"].as_array().unwrap() {
            assert_eq!(sync["of"], serde_json::json!(missing), "{name}: {report:#}");
        }
        assert_eq!(told["syncs"][0].is_object(), !missing.is_empty(), "{name}: {report:#}");
        assert_eq!(told["unhelped"][0].is_string(), missing.is_empty(), "{name}: {report:#}");
        assert_eq!(told["cut_short"], false, "{name}: {report:#}");
        let mended = program.replacen(mend.0, mend.1, 1);
        assert_ne!(&mended, program);
        let options = [options, &["--states", "3000"][..]].concat();
        let Some((code, report)) = crash(setup, &mended, check, &options) else { return };
        assert!(code == 0 && report["broken"] == 0, "found where nothing is: {name}: {report:#}");
        assert!(report["checked"].as_u64() > Some(1), "{name}: {report:#}");
    }
}

/// With data in the journal order needs no barriers; what was acknowledged too soon is found.
#[test]
fn with_data_in_the_journal_what_was_acknowledged_may_be_lost_and_nothing_else() {
    let by_order = TOYS.iter().filter(|toy| !toy.options.contains(&"folder"));
    for Toy { name, setup, program, check, options, .. } in by_order {
        let options = [options, &["--journal", "data", "--states", "1000"][..]].concat();
        let Some((code, report)) = crash(setup, program, check, &options) else { return };
        let is_told = program.contains("; echo $i; done") || program.contains("echo stored");
        assert_eq!(code, i32::from(is_told), "{name}: {report:#}");
        assert!(report["checked"].as_u64() > Some(1), "{name}: {report:#}");
    }
}

/// Rows that were acknowledged, by SQLite's own settings.
#[test]
fn sqlite_keeps_what_its_settings_promise() {
    let setup = "sqlite3 t.db 'create table t(a, b)'";
    let program = |journal: &str, synchronous: &str| {
        format!(
            "for i in 1 2 3 4; do sqlite3 t.db 'pragma journal_mode={journal}; \
             pragma synchronous={synchronous}; insert into t values (1, hex(randomblob(300)))' \
             >/dev/null && echo $i; done"
        )
    };
    let check = "test \"$(sqlite3 t.db 'pragma integrity_check')\" = ok || exit 1; \
                 test $(sqlite3 t.db 'select count(*) from t') -ge $(wc -l < \"$SSDKIT_SAID\")";
    for (journal, synchronous, holds) in [
        ("delete", "off", false),
        // Its manual: the folder is synced after the journal is removed with `extra` only.
        ("delete", "extra", true),
        ("truncate", "full", true),
        ("wal", "full", true),
    ] {
        let run = crash(setup, &program(journal, synchronous), check, &[]);
        let Some((code, report)) = run else { return };
        assert_eq!(code == 0, holds, "{journal} {synchronous}: {report:#}");
    }
    // The same is found by trying: with the folder synced before each line nothing is lost.
    let Some((_, report)) = crash(setup, &program("delete", "full"), check, &[]) else { return };
    let missing = &report["missing"];
    let syncs = missing["syncs"].as_array().unwrap();
    assert!(!syncs.is_empty() && missing["cut_short"] == false, "{report:#}");
    assert!(syncs.iter().all(|sync| sync["of"] == serde_json::json!(["."])), "{report:#}");
}

#[test]
fn a_state_is_had_again_by_its_name() {
    let Toy { setup, program, check, .. } = &TOYS[0];
    let Some((_, report)) = crash(setup, program, check, &[]) else { return };
    let state = report["findings"][0]["state"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let keep = kept.to_str().unwrap();
    let (code, again) = crash(setup, program, check, &["--at", &state, "--keep", keep]).unwrap();
    assert_eq!((code, &again["findings"]), (1, &Value::from(vec![report["findings"][0].clone()])));
    assert!(!std::fs::read_to_string(kept.join("files/f")).unwrap().contains("new"));
    assert!(kept.join("said").exists());
    assert_eq!(report["findings"][0]["differs"][0], "f: 0 B, and it had 4 B");
    // That of a run which did something else is not taken for it.
    let other = format!("{program}; touch g");
    let name = format!("{}0000", &state[..state.len() - 4]);
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(["crash", "--check", "true", "--at", &name, "--", "sh", "-c", &other])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(1) && told.contains("something else"), "{told}");
    // It is not written over.
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(["crash", "--check", "true", "--keep", keep, "--", "true"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && told.contains("remove it"), "{told}");
}

/// A program that writes down what it will do, says so, does it, and does it when it is started
/// again. The check takes what is written down as done, as the program's next start does.
const REDONE: (&str, &str) = (
    "n=$(cat log 2>/dev/null || cat n); test $n -ge $(tail -n 1 \"$SSDKIT_SAID\" | grep . || echo 0)",
    "set -e; put() { echo $1 > $2.tmp; sync $2.tmp; mv $2.tmp $2; sync .; }; \
     if test -e log; then v=$(cat log); RECOVER; fi; v=$(($(cat n) + 1)); put $v log; echo $v; \
     put $v n; rm log; sync .",
);

/// What is wrong shows only where power goes in the recovery from a cut.
#[test]
fn what_only_a_second_cut_breaks_is_found_and_had_again() {
    let (check, program) = REDONE;
    let right = program.replace("RECOVER", "put $v n; rm log; sync .");
    let wrong = program.replace("RECOVER", "rm log; sync .; put $v n");
    let look = |program: &str, more: &[&str]| {
        let options = [&["--states", "300"], more].concat();
        crash("echo 0 > n", program, check, &options)
    };
    let Some((code, report)) = look(&wrong, &[]) else { return };
    assert_eq!(code, 0, "{report:#}");
    let (code, report) = look(&right, &["--lives", "3"]).unwrap();
    assert!(code == 0 && report["states"].as_u64() > Some(300), "{report:#}");
    let (code, report) = look(&wrong, &["--lives", "2"]).unwrap();
    assert_eq!((code, &report["life"]), (1, &Value::from(2)), "{report:#}");
    let state = report["findings"][0]["state"].as_str().unwrap();
    assert_eq!(state.split('/').count(), 2);
    let (code, again) = look(&wrong, &["--at", state]).unwrap();
    assert_eq!((code, &again["findings"]), (1, &Value::from(vec![report["findings"][0].clone()])));
    // The seed finds the same, whatever the number of threads.
    let (_, again) = look(&wrong, &["--lives", "2", "--jobs", "3"]).unwrap();
    assert_eq!(again["findings"], report["findings"]);
}

/// What a cut left of a line is no beginning of what the next life says.
#[test]
fn lines_of_two_lives_are_never_one() {
    let program = "n=$(cat n); n=$((n + 1)); echo $n > n.tmp; sync n.tmp; mv n.tmp n; sync .; \
                   printf ok; touch between; sync .; printf ' %s\\n' $n; touch behind; sync .";
    let check = "! grep -qvx -e ok -e 'ok [0-9]*' -e ' [0-9]*' \"$SSDKIT_SAID\"";
    let options = ["--lives", "3", "--states", "200"];
    let Some((code, report)) = crash("echo 0 > n", program, check, &options) else { return };
    assert!(code == 0 && report["broken"] == 0, "{report:#}");
}

/// Who stops it while its program runs is not told that the program failed.
#[test]
fn a_program_that_was_stopped_did_not_fail() {
    if crash("true", "touch a", "true", &[]).is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let began = place.path().join("began");
    // By the shell itself: one that waits for another program goes on when that has ended.
    let script = format!("touch a; : > {}; exec sleep 60", began.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ssdkit"));
    command.args(["crash", "--check", "true", "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !began.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Who runs tests in the background may have SIGINT ignored, and so has the shell then.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("stopped while the program ran"), "{text}");
    assert!(!text.contains("--any-exit"), "{text}");
}

#[test]
fn a_check_that_never_holds_and_programs_that_are_not_there_are_told() {
    let told = |args: &[&str]| {
        let out =
            Command::new(env!("CARGO_BIN_EXE_ssdkit")).arg("crash").args(args).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    if crash("true", "touch a", "true", &[]).is_none() {
        return;
    }
    // What says nothing is no result.
    let (code, text) = told(&["--check", "true", "--", "true"]);
    assert!(code == Some(1) && text.contains("--map"), "{text}");
    let (code, text) = told(&["--check", "true", "--", "sh", "-c", "touch a; exit 5"]);
    assert!(code == Some(1) && text.contains("--any-exit"), "{text}");
    let any = ["--check", "true", "--any-exit", "--", "sh", "-c", "touch a; exit 5"];
    assert_eq!(told(&any).0, Some(0));
    // What goes to standard error is not what was said.
    let noise = ["--check", "test ! -s $SSDKIT_SAID", "--", "sh", "-c", "echo note >&2; touch a"];
    assert_eq!(told(&noise).0, Some(0));
    let said = ["--check", "test ! -s $SSDKIT_SAID", "--", "sh", "-c", "echo note; touch a"];
    assert_eq!(told(&said).0, Some(1));
    // What a check puts in place of its folder, and of what was said, is not followed.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("mine"), "mine").unwrap();
    let mine = other.path().display();
    let check = format!(
        "cd /; rm -rf \"$SSDKIT_FOLDER\" \"$SSDKIT_SAID\"; ln -s {mine} \"$SSDKIT_FOLDER\"; \
         ln -s {mine}/mine \"$SSDKIT_SAID\""
    );
    let bad =
        ["--check", &check, "--jobs", "1", "--", "sh", "-c", "echo a > a; echo b > b; echo a"];
    assert_eq!(told(&bad).0, Some(0));
    assert_eq!(std::fs::read_to_string(other.path().join("mine")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
    // A child that is left behind ends with its time.
    let left =
        ["--check", "true", "--run-timeout", "500ms", "--", "sh", "-c", "touch a; sleep 99 &"];
    assert_eq!(told(&left).0, Some(0));
    // A program that fails has failed, also where its time ends what it left behind.
    let fails = "touch a; sleep 99 & exit 3";
    let left = ["--check", "true", "--run-timeout", "500ms", "--", "sh", "-c", fails];
    let (code, text) = told(&left);
    assert!(code == Some(1) && text.contains("exit code 3"), "{text}");
    let slow = crash("true", "touch a; sleep 99", "true", &["--run-timeout", "500ms"]);
    let (_, report) = slow.unwrap();
    assert_eq!(report["exit_code"], Value::Null, "{report:#}");
    let (code, text) = told(&["--map", "/", "--check", "true", "--", "true"]);
    assert!(code == Some(2) && text.contains("take a folder in it"), "{text}");
    let (code, text) = told(&["--check", "exit 7", "--", "touch", "a"]);
    assert!(code == Some(1) && text.contains("without a cut") && text.contains('7'), "{text}");
    let (code, text) = told(&["--check", "true", "--", "no-such-program"]);
    assert!(code == Some(2) && text.contains("no-such-program"), "{text}");
    let (code, text) = told(&["--check", "true", "--setup", "exit 3", "--", "true"]);
    assert!(code == Some(1) && text.contains("--setup"), "{text}");
    let (code, text) = told(&["--check", "true", "--at", "5000:1", "--", "touch", "a"]);
    assert!(code == Some(1) && text.contains("5000"), "{text}");
    for wrong in [
        &["--", "true"][..],
        &["--check", "true"],
        &["--check", "true", "true"],
        &["--check", "true", "--at", "x", "--", "true"],
        &["--check", "true", "--journal", "data", "--names", "folder", "--", "touch", "a"],
        &["--check", "true", "--lives", "2", "--map", ".", "--", "touch", "a"],
        &["--check", "true", "--at", "1:1/1:1", "--map", ".", "--", "touch", "a"],
        &["--check", "true", "--at", "1:1/", "--", "touch", "a"],
    ] {
        assert_eq!(told(wrong).0, Some(2), "{wrong:?}");
    }
    let (code, _) = told(&["--check", "sleep 9", "--timeout", "100ms", "--", "touch", "one"]);
    assert_eq!(code, Some(1));
}

/// A check that holds of nothing, and a program that says late what it acknowledges, are told:
/// neither finds what is wrong.
#[test]
fn what_makes_a_result_doubtful_is_noted() {
    let check = "tail -n 1 \"$SSDKIT_SAID\" | while read i; do grep -qx $i log; done";
    let program = "for i in 1 2 3; do echo $i >> log; echo $i; done";
    let Some((code, report)) = crash("touch log", program, check, &[]) else { return };
    assert_eq!((code, &report["warnings"]), (1, &Value::Array(Vec::new())), "{report:#}");
    assert_eq!((&report["said_writes"], &report["said_bytes"]), (&3.into(), &6.into()));
    let wrong = check.replace("SSDKIT_SAID", "SSDKIT_SAD");
    let (code, report) = crash("touch log", program, &format!("{wrong}; true"), &[]).unwrap();
    let notes = report["warnings"].as_array().unwrap();
    assert!(code == 0 && notes[0].as_str().unwrap().contains("empty folder"), "{report:#}");
    let late = format!("{{ {program}; }} | cat");
    let late = format!("said=$({late}); sync log; echo \"$said\"");
    let (code, report) = crash("touch log", &late, check, &[]).unwrap();
    let notes = report["warnings"].as_array().unwrap();
    assert!(code == 0 && notes[0].as_str().unwrap().contains("stdbuf -oL"), "{report:#}");
    // One that began with nothing, and said nothing, may end with nothing.
    let (code, report) = crash("true", "touch one", "true", &[]).unwrap();
    assert_eq!((code, &report["warnings"]), (0, &Value::Array(Vec::new())), "{report:#}");
}

/// Programs that are looked for in another folder than the one that was meant are told where.
#[test]
fn what_is_not_in_the_programs_folder_is_told_where_it_is() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("work.sh"), "#!/bin/sh\ntouch a\n").unwrap();
    let told = |check: &str, program: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
            .args(["crash", "--check", check, "--"])
            .args(program)
            .current_dir(here.path())
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, text) = told("true", &["./work.sh"]);
    let whole = here.path().canonicalize().unwrap().join("work.sh");
    assert!(code == Some(2) && text.contains(&format!("as {}", whole.display())), "{text}");
    assert!(text.contains("where it starts"), "{text}");
    let (code, text) = told("./check.sh", &["touch", "a"]);
    if !text.contains("this kernel cannot hand") && !text.contains("may not reach the program") {
        assert!(code == Some(1) && text.contains("by their whole path"), "{text}");
    }
}

/// Files that came and went before do not hide what was found; what cannot be synced is not named;
/// and where the beginning breaks it is not said that syncs mend all.
#[test]
fn what_syncs_mend_is_told_as_it_is() {
    let many = "for i in 1 2 3 4 5 6 7 8 9; do echo x > t$i; rm t$i; done; \
                printf new > f.tmp; mv f.tmp f";
    let Some((code, report)) = crash("echo old > f", many, "test -s f", &[]) else { return };
    let missing = &report["missing"];
    assert_eq!(
        (code, &missing["syncs"][0]["of"]),
        (1, &serde_json::json!(["f.tmp"])),
        "{report:#}"
    );
    assert_eq!(
        (&missing["cut_short"], &missing["unhelped"]),
        (&false.into(), &Value::Array(vec![]))
    );

    let first = "echo x > f; sync f; printf new > f.tmp; mv f.tmp f";
    let (_, report) = crash("true", first, "test -s f", &[]).unwrap();
    let unhelped = &report["missing"]["unhelped"];
    assert!(unhelped[0].as_str().is_some_and(|what| what.contains("began")), "{report:#}");

    let link = "ln -s target s; echo done";
    let check = "if grep -q done \"$SSDKIT_SAID\"; then test -L s; fi";
    let (code, report) = crash("touch target", link, check, &[]).unwrap();
    let syncs = &report["missing"]["syncs"];
    assert_eq!((code, &syncs[0]["of"]), (1, &serde_json::json!(["."])), "{report:#}");
}
