//! Two profiles against the study that they are after: the figures of
//! docs/results/ull.md that take no long run, each within a tenth of what was published.

use crate::common::json;
use serde_json::Value;

/// What a drive does, on a small one.
fn bench(drive: &str, args: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    json(dir.path(), &format!("bench mem:{drive},store=none {args}"))
}

/// Mean latency, in us.
fn mean(all: &Value) -> f64 {
    all["latency_ns"]["mean"].as_f64().unwrap() / 1e3
}

/// Bytes a second, in GB/s.
fn rate(all: &Value) -> f64 {
    all["bytes_per_second"].as_f64().unwrap() / 1e9
}

fn near(what: &str, ours: f64, published: f64) {
    assert!((ours / published - 1.0).abs() < 0.1, "{what}: {ours} for {published}");
}

#[test]
fn the_ultra_low_latency_drive_is_as_published() {
    let ull = |args: &str| bench("ull,size=64M", args);
    let polled = |args: &str| bench("ull,size=64M,controller=4800ns", args);
    near("reads in sequence", mean(&ull("--rw read --ios 5k")), 12.6);
    near("random reads", mean(&ull("--rw randread --ios 5k")), 15.9);
    near("writes", mean(&ull("--rw randwrite --ios 5k")), 11.3);
    near("reads, polled", mean(&polled("--rw read --ios 5k")), 9.6);
    near("writes, polled", mean(&polled("--rw write --ios 5k")), 9.2);
    let most = rate(&ull("--rw randread --qd 64 --ios 10k"));
    near("8 in sequence", rate(&ull("--rw read --qd 8 --ios 10k")) / most, 1.0);
    near("16 at random", rate(&ull("--rw randread --qd 16 --ios 10k")) / most, 1.0);
    near("writes in sequence", rate(&ull("--rw write --qd 32 --ios 10k")) / most, 0.90);
    near("random writes", rate(&ull("--rw randwrite --qd 32 --ios 10k")) / most, 0.87);
    for percent in [80, 20] {
        let mix =
            ull(&format!("--rw randrw --read-percent {percent} --ios 10k --precondition seq"));
        let reads = &mix["read"]["latency_ns"];
        near("reads among writes", reads["mean"].as_f64().unwrap() / 1e3, 15.9);
        assert!(reads["max"].as_f64().unwrap() < 118e3, "{reads}");
    }
    for rw in ["randread", "randwrite"] {
        let slowest = ull(&format!("--rw {rw} --ios 100k"));
        assert!(slowest["latency_ns"]["max"].as_f64().unwrap() < 1e6, "{rw}: {slowest}");
    }
}

#[test]
fn the_conventional_drive_is_as_published() {
    let nvme = |args: &str| bench("nvme-2016,size=96M", args);
    near("random reads", mean(&nvme("--rw randread --ios 10k")), 82.9);
    near("random reads, depth 32", mean(&nvme("--rw randread --qd 32 --ios 20k")), 159.0);
    near("random reads, most", rate(&nvme("--rw randread --qd 256 --ios 30k")), 1.8);
    near("reads in sequence, most", rate(&nvme("--rw read --qd 256 --ios 30k")), 1.8);
    let random = rate(&nvme("--rw randread --qd 256 --ios 100k"));
    for rw in ["read", "write", "randwrite"] {
        let other = rate(&nvme(&format!("--rw {rw} --qd 256 --ios 30k")));
        assert!(random > other, "random reads are the most: {random}, {rw} {other}");
    }
    near("writes", mean(&nvme("--rw randwrite --ios 5k")), 14.1);
    near("writes, depth 32", mean(&nvme("--rw randwrite --qd 32 --ios 20k")), 121.0);
}

/// Once all of a drive was written, the one takes six times as long for a write; the
/// other no longer than before, where it was to be less than 1 us. It is so large that it
/// has the spare of its profile.
#[test]
fn collection_is_felt_as_published() {
    let steady = "--precondition steady --steady-rounds 3 --steady-round 1s";
    let before = mean(&bench("nvme-2016,size=96M", "--rw randwrite --qd 16 --ios 20k"));
    let with = format!("--rw randwrite --qd 16 --ios 100k {steady}");
    near("before", before, 52.0);
    near("with collection", mean(&bench("nvme-2016,size=1G", &with)) / before, 6.3);
    let ull = |rest: &str| mean(&bench("ull,size=640M", &format!("--rw randwrite {rest}")));
    for depth in [4, 16] {
        let before = ull(&format!("--qd {depth} --ios 5k"));
        let with = ull(&format!("--qd {depth} --ios 20k {steady}"));
        assert!(with - before < 1.0, "{with} after {before} at depth {depth}");
    }
}
