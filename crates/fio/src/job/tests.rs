//! Tests of keys: each followed, told, or refused with its line.

use proptest::prelude::{any, prop, prop_assert, proptest};
use proptest::sample::select;

use workload::Sizes;

use super::*;
use crate::file::parse;

const SECOND: u64 = 1_000_000_000;

fn read(text: &str) -> Result<Vec<Job>, JobError> {
    let sections = parse("a.fio", text, &|_| None)?;
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
    assert_eq!(one("random_distribution=zipf:0.9 rw=randread").access.zipf, Some(0.9));
    assert_eq!(one("percentile_list=99.9:50").percentiles, [50.0, 99.9]);
    assert_eq!(one("directory=/tmp filename=x").filename.as_deref(), Some("/tmp/x"));
    assert_eq!(one("name=other description=words").name, "other");
    let job = one("stonewall=0 group_reporting=1 new_group randseed=0x10 loops=3");
    assert!(!job.company.waits && job.company.is_together && job.company.is_new_group);
    assert_eq!((job.seed, job.extent.loops), (16, 3));
}

#[test]
fn what_means_nothing_here_is_told() {
    let notes = one("rw=randread iodepth=32 refill_buffers thread cpus_allowed=0-3").notes;
    let told = |text: &str| notes.iter().any(|note| note.contains(text));
    assert!(told("refill_buffers has no meaning") && told("cpus_allowed has no meaning"));
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
        ("random_distribution=pareto:0.9", "a.fio:2: `random_distribution=pareto:0.9`"),
        ("read_iolog=x", "no trace is replayed"),
        ("rw=sideways", "a.fio:2: rw=sideways: read, write"),
        ("bs=100", "a.fio:2: bs=100: a request of 100 bytes"),
        ("bs=4x", "write a size"),
        ("bssplit=4k/60:8k/60", "the shares are 120 %"),
        ("iodepth=0", "write a number from 1 on"),
        ("foo=1", "a.fio:2: fio has no key `foo`"),
        ("time_based", "a.fio:1: time_based lasts as long as runtime="),
        ("rw=randrw rate_iops=100", "a.fio:3: fio's rates are of reads and of writes each"),
        ("rate_iops=100 thinktime=5", "are not taken together"),
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
        if let Ok(jobs) = read(&format!("[a]\n{line}\nrw=randrw\n")) {
            prop_assert!(jobs.len() <= 1 + value.matches('[').count());
            prop_assert!(jobs.iter().all(|job| job.notes.len() <= 8));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec("\\[?[a-z_]{1,12}\\]?=?[0-9a-z%:/,]{0,8}", 0..12)) {
        let _ = read(&lines.join("\n"));
    }
}
