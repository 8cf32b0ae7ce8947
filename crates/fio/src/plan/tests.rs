//! Tests of rounds, groups, and of what is asked of a drive.

use super::*;
use crate::file::{NOTHING, parse};
use crate::job::jobs;

fn read(text: &str) -> Vec<Job> {
    let sections = parse("a.fio", text, &NOTHING).unwrap();
    jobs(&sections, &mut Vec::new(), &[]).unwrap()
}

fn asked(keys: &str, bytes: u64) -> Result<Asked, String> {
    let job = read(&format!("[a]\n{}", keys.replace(' ', "\n"))).remove(0);
    let task = Task { job: 0, clone: 1, number: 0, group: 0 };
    job.asked(&task, bytes).map_err(|e| e.to_string())
}

/// As fio 3.33 numbers the groups of this file.
#[test]
fn rounds_and_groups_are_fio_s() {
    let jobs = read(
        "[a]\nnumjobs=2\n[b]\nstonewall\ngroup_reporting\nnumjobs=2\n[c]\ngroup_reporting\n\
         [d]\nnew_group\n",
    );
    let rounds = rounds(&jobs).unwrap();
    let of = |task: &Task| (task.job, task.clone, task.group);
    let all: Vec<Vec<_>> = rounds.iter().map(|round| round.iter().map(of).collect()).collect();
    let second = vec![(1, 0, 1), (1, 1, 1), (2, 0, 1), (3, 0, 2)];
    assert_eq!(all, [vec![(0, 0, 0), (0, 1, 0)], second]);
    let numbers: Vec<u64> = rounds.iter().flatten().map(|task| task.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    let many = read("[a]\nnumjobs=1025\n");
    assert!(super::rounds(&many).unwrap_err().to_string().contains("lower numjobs="));
}

/// The figures are those of fio 3.33 on a file.
#[test]
fn so_much_is_done_as_fio_does() {
    let m = 1 << 20;
    let left = |keys: &str| asked(keys, 4 * m).unwrap().left;
    assert_eq!(left("size=1m"), 256);
    assert_eq!(left(""), 1024);
    assert_eq!(left("size=50% io_size=25%"), 128);
    assert_eq!(left("rw=randread bs=64k size=1m io_size=100k"), 2);
    assert_eq!(left("rw=randread bs=64k size=100k loops=3"), 3);
    assert_eq!(left("rw=randread size=1m number_ios=10 loops=2"), 20);
    assert_eq!(left("rw=randread size=1m bssplit=4k/50:8k/50"), m, "in bytes");
    let at = asked("size=64k offset=25% offset_increment=128k", 4 * m).unwrap().pattern;
    assert_eq!((at.offset, at.length), (m + (128 << 10), 64 << 10));
    // A part that is no multiple of a request begins with the next one.
    let at = asked("size=64k offset=33%", 4 * m).unwrap().pattern;
    assert_eq!(at.offset, 338 * 4096);
    let at = asked("size=64k offset=33% offset_increment=1", 4 * m).unwrap().pattern;
    assert_eq!(at.offset, 338 * 4096);
    let at = asked("size=90% offset=25%", 4 * m).unwrap().pattern;
    assert_eq!((at.offset, at.length), (m, 3 * m));
}

#[test]
fn what_is_not_on_the_drive_is_refused() {
    for (keys, told) in [
        ("size=5m", "a.fio:1: [a] it uses 5 MiB from 0 B on, but the drive has 4 MiB"),
        ("offset=4m", "it begins at 4 MiB"),
        ("offset_increment=4m", "it begins at 4 MiB"),
        ("offset=100 bs=4k", "the range starts at 100"),
        ("size=2k", "smaller than a block"),
        ("rw=rw bsrange=4k-8k number_ios=4", "number_ios= is of one size"),
        ("io_size=1p loops=1p", "nothing to do, or too much"),
    ] {
        let error = asked(keys, 4 << 20).unwrap_err();
        assert!(error.contains(told), "{keys}: {error}");
    }
}
