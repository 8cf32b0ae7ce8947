//! Tests of the readers of points.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const HEAD: &str =
    "drive,path,rw,read_percent,direction,bs,qd,iops,mean_us,p50_us,p99_us,requests\n";

fn parsed(path: &str, text: &str) -> Result<Points, TwinError> {
    let mut points = Points::default();
    parse(path, text, &mut points)?;
    points.all = agree::agree(points.all)?;
    Ok(points)
}

fn refused(text: &str) -> String {
    parsed("x.csv", text).unwrap_err().to_string()
}

#[test]
fn csv_is_read_by_its_columns() {
    let text =
        "qd,colour,rw,bs,iops,drive\r\n16,red,randread,4k,1e5,a\r\n\n1,,write,65536,900.5,a\n";
    let points = parsed("m.csv", text).unwrap();
    let [a, b] = &points.all[..] else { panic!("two points") };
    assert_eq!((a.run.rw, a.run.read_percent, a.run.bs, a.run.qd), (Rw::Randread, 100, 4096, 16));
    assert_eq!((a.measured.iops, a.measured.mean_us), (Some(1e5), None));
    assert_eq!((a.run.path.as_str(), a.at.as_str()), ("kernel", "m.csv:2"));
    assert_eq!((b.direction, b.at.as_str()), (Direction::Write, "m.csv:4"));
    assert_eq!(points.ignored, ["m.csv: column `colour`"]);
}

#[test]
fn a_mixed_run_is_two_points() {
    let text = format!(
        "{HEAD}z,kernel,randrw,75,read,4096,1,12142.3,75.55,,,9\n\
         z,kernel,randrw,75,write,4096,1,4048.3,17.24,,,3\n"
    );
    let points = parsed("m.csv", &text).unwrap().all;
    assert_eq!(points[0].run, points[1].run);
    assert_eq!(points[1].direction, Direction::Write);
}

#[test]
fn wrong_csv_says_where_what_and_what_to_do() {
    for (line, says) in [
        ("z,kernel,trim,,,4096,1,5,,,,", "x.csv:2: rw=trim is not modelled; leave it out"),
        ("z,kernel,randrw,75,,4096,1,5,,,,", "say with direction"),
        ("z,kernel,randread,,write,4096,1,5,,,,", "has no writes; correct rw or direction"),
        ("z,kernel,randread,50,,4096,1,5,,,,", "does not have 50 % reads"),
        ("z,kernel,randrw,175,read,4096,1,5,,,,", "more than 100 %"),
        ("z,kernel,randread,,,512,1,5,,,,", "requests of 512 B are not modelled"),
        ("z,kernel,randread,,,4096,0,5,,,,", "depth 0 is not modelled"),
        ("z,kernel,randread,,,4096,1,-5,,,,", "iops is no number above zero"),
        ("z,kernel,randread,,,4096,1,NaN,,,,", "iops is no number above zero"),
        ("z,kernel,randread,,,4096,1,fast,,,,", "iops is no number: \"fast\""),
        ("z,kernel,randread,,,4096,1,,,,,", "nothing was measured"),
        ("z,kernel,randread,,up,4096,1,5,,,,", "direction=up"),
        ("z,kernel,,,,4096,1,5,,,,", "rw is empty"),
        ("z,kernel,randread", "record 1"),
        ("z,kernel,randread,,,4q,1,5,,,,", "bs=4q is not one size; write bytes, or as in 4k"),
        ("z,kernel,randread,,,4096,1,5e9,,,,", "iops is 5000000000, and 0.01 to 100000000 can be"),
        ("z,kernel,randread,,,4096,1,,1e9,,,", "mean_us is 1000000000, and 0.1 to"),
        ("z,kernel,randread,,,4096,1,,80,90,70,", "p99_us is 70, below p50_us, 90"),
        ("z,kernel,randread,,,4096,1,,80,170,180,", "p50_us is 170, over 2 times mean_us, 80"),
        ("z,kernel,randread,,,4096,1,,80,70,9000,", "p99_us is 9000, over 100 times mean_us, 80"),
    ] {
        let text = refused(&format!("{HEAD}{line}\n"));
        assert!(text.contains(says) && text.contains("x.csv"), "{line}: {text}");
    }
    assert!(refused("rw,bs,iops\n").contains("no column `qd`"));
    assert!(refused("rw,rw,bs,qd\n").contains("two columns `rw`"));
}

#[test]
fn measurements_that_contradict_are_named() {
    let two = |other: &str| {
        format!(
            "{HEAD}z,kernel,randread,,,4096,1,10000,100,,,\nz,kernel,randread,,,4096,1,{other},,,\n"
        )
    };
    let text = refused(&two("11500,100"));
    for part in ["x.csv:2", "x.csv:3", "depth 1", "iops", "10000", "11500", "10 %"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(refused(&two("10000,112")).contains("mean_us"));
}

/// What is there twice, or three times, counts once.
#[test]
fn what_was_measured_twice_is_one_point() {
    let text = format!(
        "{HEAD}z,kernel,randread,,,4096,1,10000,99,,,\nz,kernel,randread,,,4k,1,10300,96,90,,\n\
         z,kernel,randread,,,4k,1,10600,,92,,\nz,kernel,randread,,,4k,2,10000,199,,,\n"
    );
    let points = parsed("x.csv", &text).unwrap().all;
    assert_eq!(points.len(), 2);
    let measured = points[0].measured;
    let about = |x: Option<f64>, to: f64| assert!((x.unwrap() - to).abs() < 1e-6, "{x:?}");
    about(measured.iops, 10_300.0);
    about(measured.mean_us, 97.5);
    about(measured.p50_us, 91.0);
    assert_eq!(points[0].at, "x.csv:2, x.csv:3, x.csv:4");
}

/// Rate times latency is the depth, of a mix that of its reads and writes together.
#[test]
fn a_closed_loop_that_does_not_keep_its_depth_is_named() {
    let of = |line: &str| parsed("x.csv", &format!("{HEAD}{line}")).map(|points| points.all.len());
    let line = |iops: u32| format!("z,kernel,randread,,,4096,16,{iops},100,,,\n");
    assert_eq!([of(&line(160_000)).unwrap(), of(&line(90_000)).unwrap()], [1, 1]);
    for (iops, out) in [(190_000, "19.00"), (70_000, "7.00")] {
        let text = of(&line(iops)).unwrap_err().to_string();
        assert!(text.starts_with("x.csv:2: z kernel randread"), "{text}");
        assert!(text.contains(&format!("{out} requests out and not 16")), "{text}");
    }
    let read = "z,kernel,randrw,75,read,4096,16,120000,120,,,\n";
    let write = |iops: u32| format!("{read}z,kernel,randrw,75,write,4096,16,{iops},20,,,\n");
    assert_eq!([of(read).unwrap(), of(&write(40_000)).unwrap()], [1, 2]);
    let text = of(&write(400_000)).unwrap_err().to_string();
    assert!(text.starts_with("x.csv:2 and x.csv:3") && text.contains("22.40"), "{text}");
    assert_eq!(of("z,kernel,randrw,75,write,4096,16,40000,20,,,\n").unwrap(), 1, "half of it");
}

/// The share of reads that was measured is the one that was asked for.
#[test]
fn a_mix_of_another_share_is_named() {
    let of = |reads: f64, writes: f64| {
        let line = |direction, iops| format!("z,kernel,randrw,75,{direction},4096,16,{iops},,,,\n");
        parsed("x.csv", &format!("{HEAD}{}{}", line("read", reads), line("write", writes)))
    };
    assert_eq!(of(74_000.0, 26_000.0).unwrap().all.len(), 2);
    let text = of(60_000.0, 40_000.0).unwrap_err().to_string();
    assert!(text.starts_with("x.csv:2 and x.csv:3: z kernel randrw 75 % reads"), "{text}");
    assert!(text.contains("60 % are reads; correct read_percent"), "{text}");
}

#[test]
fn more_points_than_can_be_compared_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.csv").to_str().unwrap().to_string();
    let line =
        |n| format!("d,kernel,randread,,,{},{},5,,,,\n", 4096 * (n / 1024 + 1), n % 1024 + 1);
    let of = |points: usize| {
        std::fs::write(&path, HEAD.to_string() + &(0..points).map(line).collect::<String>())
            .unwrap();
        read(std::slice::from_ref(&path)).map(|points| points.all.len())
    };
    assert_eq!(of(MOST_POINTS).unwrap(), MOST_POINTS);
    assert!(of(MOST_POINTS + 1).unwrap_err().to_string().contains("more than 4096 points"));
}

/// What fio 3.33 writes of a job, shortened.
fn fio() -> Value {
    let side = |iops: f64, mean: f64| {
        json!({
            "iops": iops,
            "total_ios": 16328,
            "lat_ns": { "mean": mean },
            "clat_ns": {
                "mean": mean - 7e3,
                "percentile": { "50.000000": 96768, "99.000000": 250000 },
                "bins": { "49920": 3 }
            }
        })
    };
    let options = json!({
        "name": "mix", "filename": "/dev/nvme0n1", "rw": "randrw", "rwmixread": "75", "bs": "16k",
        "iodepth": "4", "ioengine": "io_uring", "direct": "1", "runtime": "1"
    });
    json!({
        "fio version": "fio-3.33",
        "global options": { "direct": "1" },
        "jobs": [{
            "jobname": "mix", "error": 0, "job options": options,
            "read": side(16311.5, 151_000.0), "write": side(5437.25, 60_000.0),
        }]
    })
}

#[test]
fn fio_s_json_is_read() {
    let text = format!("fio: a note\n{:#}", fio());
    let points = parsed("mix.json", &text).unwrap().all;
    let [read, write] = &points[..] else { panic!("{points:?}") };
    assert_eq!((read.drive.as_str(), read.run.path.as_str()), ("/dev/nvme0n1", "kernel"));
    assert_eq!((read.run.rw, read.run.read_percent, read.run.bs), (Rw::Randrw, 75, 16384));
    let of = |point: &Point| (point.measured.iops, point.measured.mean_us, point.measured.p99_us);
    assert_eq!(of(read), (Some(16311.5), Some(151.0), Some(250.0)));
    assert_eq!(of(write), (Some(5437.25), Some(60.0), Some(250.0)));
    let mut spdk = fio();
    spdk["jobs"][0]["job options"]["ioengine"] = "spdk_bdev".into();
    assert_eq!(parsed("mix.json", &spdk.to_string()).unwrap().all[0].run.path, "bypass");
    // It has one request at a time, whatever it was told.
    let mut sync = fio();
    sync["jobs"][0]["job options"]["ioengine"] = "psync".into();
    sync["jobs"][0]["read"]["iops"] = 5500.0.into();
    sync["jobs"][0]["write"]["iops"] = 1833.0.into();
    assert_eq!(parsed("mix.json", &sync.to_string()).unwrap().all[0].run.qd, 1);
}

#[test]
fn a_job_that_is_no_closed_loop_of_one_is_refused_by_name() {
    for (key, value, says) in [
        ("numjobs", "4", "numjobs=4"),
        ("rate_iops", "1000", "rate_iops=1000"),
        ("direct", "0", "page cache"),
        ("rw", "randtrim", "rw=randtrim"),
        ("bs", "4k,8k", "bs=4k,8k"),
        ("iodepth", "many", "iodepth=many"),
        ("rwmixread", "170", "its mix is 170"),
    ] {
        let mut output = fio();
        output["jobs"][0]["job options"][key] = value.into();
        let text = parsed("mix.json", &output.to_string()).unwrap_err().to_string();
        assert!(text.contains(says) && text.contains("job 1 (mix)"), "{text}");
    }
    let mut failed = fio();
    failed["jobs"][0]["error"] = 5.into();
    assert!(parsed("mix.json", &failed.to_string()).unwrap_err().to_string().contains("error 5"));
}

#[test]
fn json_that_is_nobody_s_is_refused() {
    for (text, says) in [
        ("{\"a\": 1}", "neither fio's `jobs` nor a bench's `workload`"),
        ("{\"jobs\": 3}", "`jobs` is no list"),
        ("{\n\"jobs\": [\n", "line 3 is not JSON"),
        ("[1, 2]", "neither"),
        ("", "no column `rw`"),
        ("nonsense", "no column `rw`"),
    ] {
        let error = parsed("x", text).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("give"), "{text}: {error}");
    }
    let mut empty = fio();
    empty["jobs"][0]["read"] = json!({});
    assert!(parsed("x", &empty.to_string()).unwrap_err().to_string().contains("no iops"));
}

#[test]
fn reports_of_ours_are_read() {
    let report = json!({
        "drive": { "name": "file:/dev/nvme0n1" },
        "workload": { "rw": "randread", "bs": 4096, "qd": 8, "threads": 1, "read_percent": null },
        "iops": 50_000.5, "void": null, "interrupted": false,
        "latency_ns": { "mean": 160_000.0, "p50": 150_000, "p99": null },
    });
    let mut deeper = report.clone();
    (deeper["workload"]["qd"], deeper["iops"]) = (json!(16), json!(100_000.5));
    let two = format!("{report:#}\n{deeper}");
    let points = parsed("ours.json", &two).unwrap().all;
    assert_eq!((points.len(), points[1].at.as_str()), (2, "ours.json: report 2"));
    let measured = points[0].measured;
    assert_eq!((measured.iops, measured.mean_us), (Some(50_000.5), Some(160.0)));
    assert_eq!((measured.p50_us, measured.p99_us), (Some(150.0), None));
    let listed = parsed("ours.json", &json!([report, deeper]).to_string()).unwrap().all;
    assert_eq!(listed.len(), 2);
    for (key, value, says) in [
        ("void", json!("nothing was measured"), "nothing was measured"),
        ("interrupted", json!(true), "stopped"),
        ("failed_requests", json!(7), "failed_requests is 7"),
        ("left_inside", json!(5), "left_inside is 5"),
        ("drive", json!({ "name": "file:x", "direct": false }), "page cache"),
        ("workload", json!({ "rw": "trim", "bs": 4096, "qd": 1 }), "rw=trim"),
        ("workload", json!({ "rw": "read", "bs": 4096, "qd": 1, "rate": 5 }), "it has rate"),
        ("workload", json!({ "rw": "read", "bs": 4096, "qd": 1, "threads": 2 }), "threads"),
    ] {
        let mut other = report.clone();
        other[key] = value;
        let error = parsed("ours.json", &other.to_string()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// Any JSON, with the names that readers look for.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "jobs",
        "workload",
        "job options",
        "global options",
        "rw",
        "bs",
        "qd",
        "iodepth",
        "numjobs",
        "read",
        "write",
        "iops",
        "lat_ns",
        "clat_ns",
        "latency_ns",
        "mean",
        "percentile",
        "error",
        "jobname",
        "direct",
        "drive",
        "name",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["randread", "randrw", "4k", "1", "16", "-1", "1e99", "psync"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..8)
                .prop_map(|all| all.into_iter().map(|(k, v)| (k.to_string(), v)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}", line in "[a-z0-9,.\\-]{0,60}") {
        let _ = parsed("x", &text);
        let _ = parsed("x", &format!("{HEAD}{line}"));
        let _ = parsed("x", &format!("{{{text}"));
    }

    #[test]
    fn no_json_panics(value in any_json(), key in 0usize..3) {
        let whole = match key {
            0 => value,
            1 => json!({ "jobs": [value] }),
            _ => json!({ "workload": value }),
        };
        let _ = parsed("x", &whole.to_string());
    }

    #[test]
    fn damaged_files_do_not_panic(at in 0usize..1200, byte in any::<u8>(), cut in any::<bool>()) {
        let mut text = fio().to_string().into_bytes();
        let at = at % text.len();
        if cut { text.truncate(at) } else { text[at] = byte }
        if let Ok(points) = parsed("x", &String::from_utf8_lossy(&text)) {
            prop_assert!(points.all.iter().all(|point| point.measured.iops > Some(0.0)));
        }
    }

    #[test]
    fn what_is_written_is_read(
        rw in 0usize..4,
        bs in 1u32..257,
        qd in 1u32..1025,
        iops in 1.0f64..1e7,
        p99 in prop::option::of(0.1f64..1e6),
    ) {
        let (name, kind) = Rw::ALL[rw];
        let bs = bs * 4096;
        let p99_text = p99.map(|p| p.to_string()).unwrap_or_default();
        let text = format!("{HEAD}d,p,{name},,,{bs},{qd},{iops},,,{p99_text},\n");
        let point = parsed("x", &text).unwrap().all.remove(0);
        prop_assert_eq!((point.run.rw, point.run.bs, point.run.qd), (kind, bs, qd));
        prop_assert_eq!((point.measured.iops, point.measured.p99_us), (Some(iops), p99));
    }
}

/// What `ssdkit fio` prints is read as what fio does.
#[test]
fn fio_s_json_of_ours_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.fio");
    let job = "[global]\nioengine=libaio\ndirect=1\nfilename=d\nsize=4m\n[reads]\nrw=randread\n\
               iodepth=8\n[both]\nstonewall\nrw=randrw\nrwmixread=70\nbs=8k\niodepth=4\n";
    std::fs::write(&file, job).unwrap();
    let args = ::fio::FioArgs {
        files: vec![file],
        drive: Some("mem:znand,size=64M,store=none".parse().unwrap()),
        output_format: ::fio::Format::JsonPlus,
        ..::fio::FioArgs::default()
    };
    let mut out = Vec::new();
    ::fio::run(&args, &mut out).unwrap();
    let points = parsed("ours.json", std::str::from_utf8(&out).unwrap()).unwrap();
    let of = |point: &Point| (point.run.rw, point.run.read_percent, point.run.bs, point.run.qd);
    let all: Vec<_> = points.all.iter().map(of).collect();
    let both = (Rw::Randrw, 70, 8192, 4);
    assert_eq!(all, [(Rw::Randread, 100, 4096, 8), both, both]);
    assert!(points.all.iter().all(|point| point.measured.each().iter().all(Option::is_some)));
    assert!(points.all.iter().all(|point| point.drive == "d"));
}

/// Its `jobs` are not fio's.
#[test]
fn a_bench_of_several_loads_is_no_point() {
    let report = json!({ "workload": { "rw": "randread", "bs": 4096, "qd": 1, "threads": 1 },
        "drive": "z", "iops": 1e4, "jobs": [{ "ios": 5 }, { "ios": 6 }] });
    let text = parsed("a.json", &report.to_string()).unwrap_err().to_string();
    assert!(
        text.contains("a.json: report 1") && text.contains("several loads is no point"),
        "{text}"
    );
}
