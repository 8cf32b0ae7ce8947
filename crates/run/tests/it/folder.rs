//! The folder and the drive before the program starts and after it has ended: what is kept, what is
//! refused, and what is left alone.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};

use super::*;

fn refused(drive: &str, place: &Place, options: &[&str]) -> String {
    let data = place.path("data");
    let line = ["run", "--drive", drive, "--map", &data];
    let line = line.iter().chain(options).chain(&["--", "true"]);
    run::run(&Line::try_parse_from(line).unwrap().args).unwrap_err().to_string()
}

/// A folder that was made in a mapped one would be what the drive does not have.
#[test]
fn folders_that_overlap_are_not_made() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.sh("echo a > $D/a");
    std::os::unix::fs::symlink("data", place.path("link")).unwrap();
    let (data, drive) = (place.path("data"), place.path("d.ssd"));
    let all = [("data/x/y", "data/x"), ("link/x", "data/x"), ("data/n/../x", "data/n")];
    let same = [("other/data", "other"), ("n/m/..", "n"), (".", "q")];
    for (map, made) in all.into_iter().chain(same) {
        let (map, made) = (place.path(map), place.path(made));
        for maps in [[&data, &map], [&map, &data]] {
            let line = ["run", "--drive", &drive, "--map", maps[0], "--map", maps[1], "--", "true"];
            let ran = run::run(&Line::try_parse_from(line).unwrap().args);
            let is_apart = map.ends_with("n/m/..");
            assert_eq!(ran.as_ref().err().map(Error::exit_code), (!is_apart).then_some(2), "{map}");
            assert_eq!(fs::exists(&made).unwrap(), is_apart, "{map}");
        }
    }
    place.sh("test $(cat $D/a) = a");
}

/// What took the folder's place meanwhile is somebody else's.
#[test]
fn a_cut_empties_the_folder_wherever_it_is_and_nothing_else() {
    if !is_able() {
        return;
    }
    for option in [&["--no-sync-at-end"][..], &["--cut-after", "2"]] {
        let place = Place::new();
        fs::create_dir(place.path("victim")).unwrap();
        fs::write(place.path("victim/file"), "precious").unwrap();
        // The program itself cannot move it; others can.
        let paths = ["data", "moved", "victim"].map(|name| place.path(name));
        let other = std::thread::spawn(move || {
            let [data, moved, victim] = paths;
            while !fs::exists(format!("{data}/a")).unwrap() {
                std::thread::yield_now();
            }
            fs::rename(&data, moved).unwrap();
            std::os::unix::fs::symlink(victim, data).unwrap();
        });
        let script = "echo a > $D/a; until test -L $D; do sleep 0.01; done; echo b > $O/moved/b
            echo c > $O/moved/c";
        let e = place.run(option, script).unwrap_err().to_string();
        other.join().unwrap();
        assert!(e.contains("is not there any more"), "{e}");
        assert_eq!(fs::read(place.path("victim/file")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(place.path("moved")).unwrap().count(), 0);
    }
}

#[test]
fn bits_of_the_folder_itself_and_pipes_in_it() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.sh("chmod 1700 $D; mkfifo $D/pipe; echo a > $D/a");
    // Pipes are the kernel's alone, and stand in nobody's way.
    place.sh("test -p $D/pipe; test $(cat $D/a) = a");
    place.lose_folder();
    place.sh("test $(stat -c %a $D) = 1700; test ! -e $D/pipe");
    fs::set_permissions(place.path("data"), fs::Permissions::from_mode(0o755)).unwrap();
    place.sh("test $(stat -c %a $D) = 1700");
}

/// More than a path may have.
#[test]
fn folders_as_deep_as_a_program_makes_them() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    let script = "python3 -c '
import os, sys
os.chdir(sys.argv[1])
for n in range(60):
    os.mkdir(\"n\" * 200)
    os.chdir(\"n\" * 200)
open(\"file\", \"w\").write(\"deep\")' $D";
    place.sh(script);
    let reads = "python3 -c '
import os, sys
os.chdir(sys.argv[1])
for n in range(60): os.chdir(\"n\" * 200)
assert open(\"file\").read() == \"deep\"' $D";
    place.sh(reads);
    // By a shell, as this library's user may not go so deep.
    assert_eq!(
        place.run(&["--cut-after", "1"], "sleep 0; while :; do : > $D/x; done").unwrap(),
        137
    );
    assert_eq!(fs::read_dir(place.path("data")).unwrap().count(), 0);
    place.sh(reads);
    place.sh("rm -r $D/n*");
}

/// Changes a byte of the block that begins so.
fn damage(drive: &str, mark: &[u8]) {
    let file = fs::File::options().read(true).write(true).open(drive).unwrap();
    let (mut block, mut at) = ([0; 4096], 0);
    while file.read_exact_at(&mut block, at).is_ok() {
        if block.starts_with(mark) {
            return file.write_all_at(b"!", at).unwrap();
        }
        at += 4096;
    }
    panic!("it is not there as it is");
}

/// One unreadable block is an error where it is read, and nothing else.
#[test]
fn a_damaged_block_is_an_error_of_its_file() {
    if !is_able() || !has("python3") {
        return;
    }
    let place = Place::new();
    let mark = "a block that is damaged ";
    let script = format!(
        "echo other > $D/other; python3 -c 'import sys
open(sys.argv[1], \"wb\").write(b\"a\" * 409600 + (b\"{mark}\" * 200)[:4096] + b\"z\" * 409600)' $D/big"
    );
    place.sh(&script);
    place.lose_folder();
    damage(&place.path("d.ssd"), mark.as_bytes());
    let script = "test $(cat $D/other) = other; python3 -c '
import errno, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
assert os.pread(fd, 4096, 0) == b\"a\" * 4096 and os.pread(fd, 9999, 413696) == b\"z\" * 9999
for n in range(2):
    try: os.pread(fd, 10, 409600 + 7)
    except OSError as e: assert e.errno == errno.EIO
    else: sys.exit(1)
if len(sys.argv) > 2:
    os.pwrite(fd, b\"n\" * 4096, 409600)
    assert os.pread(fd, 8192, 409600) == b\"n\" * 4096 + b\"z\" * 4096
    os.fsync(fd)' $D/big";
    // With the folder as it is, and without.
    place.sh(script);
    place.sh(script);
    place.lose_folder();
    // What is written anew is whole.
    place.sh(&format!("{script} write"));
    place.lose_folder();
    place.sh("test $(head -c 413696 $D/big | tail -c 1) = n");
}

#[test]
fn a_drive_that_cannot_have_files_is_refused_with_what_to_do() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    let says = |text: &str, what: &str| assert!(text.contains(what), "{text}");
    let none = place.path("none.ssd");
    says(&refused(&none, &place, &[]), "no such file: make it with ssdkit create");
    says(&refused(&none, &place, &["--cut-after", "1"]), "no such file");
    let text = refused("mem:tlc,size=1M", &place, &[]);
    says(&text, "1 MiB, which is too small for files: take one of ");
    let least = text.split(' ').rev().nth(3).unwrap();
    let data = place.path("data");
    let script = format!("echo a > {data}/a; sync {data}/a");
    let drive = format!("mem:tlc,size={least}M");
    let line = ["run", "--drive", &drive, "--map", &data, "--", "sh", "-euc", &script];
    assert_eq!(run::run(&Line::try_parse_from(line).unwrap().args).unwrap(), 0);
    let gap = "mem:tlc,size=64M,targets=2,units=8/8";
    says(&refused(gap, &place, &[]), "parallel units are nobody's");
}

/// A typo costs no files, and what is refused leaves no folder that was filled.
#[test]
fn what_is_refused_changes_nothing() {
    if !is_able() {
        return;
    }
    let place = Place::new();
    place.sh("echo a > $D/a");
    place.lose_folder();
    let (drive, data) = (place.path("d.ssd"), place.path("data"));
    let line = ["run", "--drive", &drive, "--format", "--map", &data, "--", "nosuchprogram"];
    let e = run::run(&Line::try_parse_from(line).unwrap().args).unwrap_err();
    assert!(e.to_string().contains("nosuchprogram"), "{e}");
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(place.path("other/mine"), "mine").unwrap();
    let e = place.run(&["--map", &other], "true").unwrap_err();
    assert!(e.to_string().contains("other/mine is not as on the drive"), "{e}");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    fs::remove_dir_all(&other).unwrap();
    place.sh("test $(cat $D/a) = a");
}
