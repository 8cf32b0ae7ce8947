//! Tests of keys: each followed, told, or refused with its line.

use proptest::prelude::{any, prop, prop_assert, proptest};
use proptest::sample::select;

use workload::Sizes;

use super::*;
use crate::file::{NOTHING, parse};
use crate::keys::plain;

const SECOND: u64 = 1_000_000_000;

fn read(text: &str) -> Result<Vec<Job>, JobError> {
    let sections = parse("a.fio", text, &NOTHING)?;
    jobs(&sections, &mut Vec::new(), &[])
}

fn one(keys: &str) -> Job {
    read(&format!("[a]\n{}", keys.replace(' ', "\n"))).unwrap().remove(0)
}

fn error(keys: &str) -> String {
    read(&format!("[a]\n{}", keys.replace(' ', "\n"))).unwrap_err().to_string()
}

#[test]
fn defaults_are_fio_s() {
    let job = one("");
    let sizes = Varied { reads: Sizes::One(4096), others: Sizes::One(4096) };
    assert_eq!(
        (job.access.does, job.access.is_random, job.access.sizes),
        (Does::Reads, false, sizes)
    );
    assert_eq!((job.pace.depth, job.company.clones, job.is_direct), (1, 1, false));
    assert_eq!((job.extent.size, job.extent.offset), (None, Amount::Bytes(0)));
    assert!(!job.lasts.is_timed && job.lasts.runtime.is_none() && !job.is_checked);
    assert!(one("rw=randread").access.has_map && !one("rw=randread norandommap").access.has_map);
    assert_eq!(one("rw=randrw").access.reads, 50);
    assert_eq!(job.percentiles.len(), 17);
}

#[test]
fn keys_of_global_are_for_those_after_it() {
    let text = "[global]\nrw=randwrite\niodepth=8\nioengine=libaio\n[a]\niodepth=4\n\
                [global]\nbs=8k\n[b]\nthread\nblocksize=16k\n[c]\n";
    let jobs = read(text).unwrap();
    let of = |job: &Job| (job.access.does, job.pace.depth, job.access.sizes.others.most());
    let all: Vec<_> = jobs.iter().map(of).collect();
    let writes = Does::Writes;
    assert_eq!(all, [(writes, 4, 4096), (writes, 8, 16384), (writes, 8, 8192)]);
    assert_eq!(jobs[1].own, [("bs".to_string(), "16k".to_string())]);
}

#[test]
fn values_are_followed() {
    let job = one("readwrite=randrw rwmixwrite=30 blocksize=4k,8k fsync=32 size=25% offset=1m \
                   runtime=2m time_based ramp_time=500ms");
    assert_eq!((job.access.reads, job.access.flush_every), (70, 32));
    assert_eq!(job.access.sizes.to_string(), "4096,8192");
    assert_eq!(
        (job.extent.size, job.extent.offset),
        (Some(Amount::Percent(25)), Amount::Bytes(1 << 20))
    );
    let lasts = Lasts { runtime: Some(120 * SECOND), is_timed: true, ramp: SECOND / 2 };
    assert_eq!(job.lasts, lasts);
    let job = one("bssplit=4k/60:64k/40 rw=randwrite ioengine=io_uring iodepth=16 numjobs=3");
    assert_eq!(job.access.sizes.others.to_string(), "4096/60:65536/40");
    assert_eq!((job.pace.depth, job.company.clones), (16, 3));
    let job = one("bsrange=4k-64k rw=write");
    assert_eq!(job.access.sizes.others, Sizes::Range { least: 4096, most: 65536 });
    let job2 = one("bs=4k rw=write thinktime=100 thinktime_blocks=8");
    assert_eq!((job2.pace.think, job.name.as_str()), (Some((100_000, 8)), "a"));
    assert_eq!(one("rate=1m bs=4k").pace.rate, Some(256));
    assert_eq!(one("rate_iops=1k").pace.rate, Some(1024));
    assert_eq!(one("kb_base=1000 bs=4096 size=1m").extent.size, Some(Amount::Bytes(1_000_000)));
    let skew = |law: &str| one(&format!("random_distribution={law} rw=randread")).access.skew;
    assert_eq!(skew("zipf:0.9"), Some(Skew::Zipf(0.9)));
    assert_eq!([skew("zipf"), skew("pareto")], [Some(Skew::Zipf(1.1)), Some(Skew::Pareto(0.2))]);
    assert_eq!(skew("pareto:0.4"), Some(Skew::Pareto(0.4)));
    assert_eq!(one("percentile_list=99.9:50").percentiles, [50.0, 99.9]);
    assert_eq!(one("directory=/tmp filename=x").filename.as_deref(), Some("/tmp/x"));
    assert_eq!(one("name=other description=words").name, "other");
    let job = one("stonewall=0 group_reporting=1 new_group randseed=0x10 loops=3");
    assert!(!job.company.waits && job.company.is_together && job.company.is_new_group);
    assert_eq!((job.seed, job.extent.loops), (16, 3));
}

/// Figures of fio 3.33: one that is not asked for is off, and a split stays what it is.
#[test]
fn one_key_does_not_undo_another() {
    assert_eq!(one("rw=write fdatasync=1 fsync=0").access.flush_every, 1);
    assert_eq!(one("rw=write fsync=3 fdatasync=0").access.flush_every, 3);
    let job = one("rw=randread bssplit=4k/50:8k/50 bs=16k");
    assert_eq!(job.access.sizes.reads.to_string(), "4096/50:8192/50");
    assert!(job.notes.iter().any(|note| note.contains("bs after bssplit")), "{:?}", job.notes);
    let range = Sizes::Range { least: 4096, most: 8192 };
    assert_eq!(one("rw=randread bsrange=4k-8k bs=16k").access.sizes.reads, range);
    let job = one("rw=randread bssplit=4k/50:8k/50 bsrange=16k-16k");
    assert_eq!(job.access.sizes.reads, Sizes::One(16384));
    // Of a mix that only reads the rate is of the size of reads.
    assert_eq!(one("rw=randrw rwmixread=100 bs=8k,4k rate=1m").pace.rate, Some(128));
}

#[test]
fn a_base_is_of_the_globals_too() {
    let jobs = read("[global]\nsize=1m\n[a]\n[b]\nkb_base=1000\n[c]\n[global]\nbs=8k\n[d]\n");
    let sizes: Vec<_> = jobs.unwrap().iter().map(|job| job.extent.size).collect();
    let (old, si) = (Some(Amount::Bytes(1 << 20)), Some(Amount::Bytes(1_000_000)));
    assert_eq!(sizes, [old, si, old, old]);
    let globals = format!("[global]\n{}", "numjobs=1\n".repeat(3000));
    let sections = |count| format!("{globals}{}", "[a]\nkb_base=1000\n".repeat(count));
    assert_eq!(read(&sections(50)).unwrap().len(), 50);
    let often = read(&sections(100)).unwrap_err().to_string();
    assert!(often.contains("[global] has too many keys to be read again so often"), "{often}");
    let many = read(&"[a]\n".repeat(MOST_TASKS as usize + 1)).unwrap_err().to_string();
    assert!(many.contains("a.fio:1025: there are more than 1024 jobs"), "{many}");
}

#[test]
fn what_means_nothing_here_is_told() {
    let notes = one("rw=randread iodepth=32 refill_buffers thread cpus_allowed=0-3").notes;
    let told = |text: &str| notes.iter().any(|note| note.contains(text));
    assert!(told("refill_buffers is not done") && told("cpus_allowed is not done"));
    assert!(told("ioengine=psync has one request at a time"), "{notes:?}");
    assert_eq!(one("rw=randread iodepth=32").pace.depth, 1);
    let notes = one("rw=randread bssplit=4k/50:8k/50").notes;
    assert!(notes.iter().any(|note| note.contains("may repeat")), "{notes:?}");
    let notes = one("rw=randread bssplit=4k/50:8k/50 norandommap").notes;
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_line() {
    for (keys, told) in [
        ("rw=randread:8", "a.fio:2: `rw=randread:8` is not followed here: what is behind"),
        ("rw=read zonemode=zbd", "a.fio:3: `zonemode=zbd` is not followed here: drives"),
        ("iodepth_batch=8", "a.fio:2: `iodepth_batch=8`"),
        ("random_distribution=pareto:1", "a.fio:2: random_distribution=pareto:1: write"),
        ("random_distribution=zoned:60/10", "a.fio:2: `random_distribution=zoned:60/10`"),
        ("read_iolog=x", "`ssdkit replay` replays traces"),
        ("stats=0", "figures of all jobs are told"),
        ("bs_is_seq_rand=1", "sizes of reads, writes and trims"),
        ("rw=sideways", "a.fio:2: rw=sideways: read, write"),
        ("bs=100", "a.fio:2: bs=100: a request of 100 B"),
        ("bs=4x", "write a size"),
        ("bssplit=4k/60:8k/60", "the shares are 120 %"),
        ("iodepth=0", "write a number from 1 on"),
        ("foo=1", "a.fio:2: fio has no key `foo`"),
        ("time_based", "a.fio:1: time_based lasts as long as runtime="),
        ("rw=randrw rate_iops=100", "a.fio:3: fio's rates are of reads and of writes each"),
        ("rate_iops=100 thinktime=5", "are not taken together"),
        ("rate=1m rate_iops=100", "a.fio:3: rate= and rate_iops= are not taken together"),
        ("rw=randrw bs=4k,8k thinktime=10", "thinktime= is of one size"),
        ("rw=write fsync=4 fdatasync=2", "are both a flush here"),
        ("runtime=18446744073 rate_iops=10", "write a time"),
        ("ramp_time=4000d", "write a time"),
        ("rate=100 bs=4k", "less than a request a second"),
        ("ioengine=cpuio", "engines that mean something here"),
        ("verify=null", "verify=crc32c"),
        ("percentile_list=101", "up to 20 numbers"),
        ("numjobs=99999999999", "write a number"),
        ("runtime=x", "write a time"),
        ("direct=maybe", "write 0 or 1"),
    ] {
        let error = error(keys);
        assert!(error.contains(told), "{keys}: {error}");
    }
    // At its default it changes nothing.
    assert_eq!(one("iodepth_batch=1 zonemode=none").notes, one("").notes);
}

proptest! {
    /// Whatever a key is given, it is followed or an error, and never more than bounded.
    #[test]
    fn any_value_is_followed_or_refused(
        key in select(include_str!("../keys.txt").split_whitespace().collect::<Vec<_>>()),
        value in "[0-9]{1,20}[kmgts%]{0,2}|[a-z:,/0-9.-]{0,20}|.{0,10}",
        alone in any::<bool>(),
    ) {
        let line = if alone { key.to_string() } else { format!("{key}={value}") };
        let before = "[global]\nfilename=/nonexistent/x\nsize=1m\nnumjobs=3\n";
        if let Ok(jobs) = read(&format!("{before}[a]\n{line}\nrw=randrw\n")) {
            // What follows from it is an error or lies on the drive.
            let named = crate::named::drive(None, &jobs);
            prop_assert!(named.is_ok() || ["filename", "directory", "uri"].contains(&plain(key)));
            for task in crate::plan::rounds(&jobs).unwrap_or_default().concat().iter().take(8) {
                if let Ok(asked) = jobs[task.job].asked(task, 1 << 30) {
                    prop_assert!(asked.pattern.offset + asked.pattern.length <= 1 << 30);
                    let _ = jobs[task.job].plan(&asked);
                }
            }
            prop_assert!(jobs.len() <= 1 + value.matches('[').count());
            prop_assert!(jobs.iter().all(|job| job.notes.len() <= 8));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec("\\[?[a-z_]{1,12}\\]?=?[0-9a-z%:/,]{0,8}", 0..12)) {
        let _ = read(&lines.join("\n"));
    }
}
