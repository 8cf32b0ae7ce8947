//! Where the time of jobs' requests went.

use super::*;

/// With `--explain` each job's requests tell where their time went, and a job that alone
/// has written so far is named; nothing else changes.
#[test]
fn jobs_are_explained() {
    let text = "[global]\nruntime=20ms\ntime_based\n[reader]\nrw=randread\nioengine=libaio\n\
                iodepth=4\n[writer]\nrw=randwrite\nioengine=libaio\niodepth=8\n[alone]\n\
                stonewall\nrw=randwrite\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fio");
    std::fs::write(&path, text).unwrap();
    let ran = |explain: bool, output_format: Format, drive: &str| {
        let (files, drive) = (vec![path.clone()], Some(drive.parse().unwrap()));
        let args = FioArgs { files, drive, output_format, explain, ..FioArgs::default() };
        let mut out = Vec::new();
        run(&args, &mut out).map(|()| String::from_utf8(out).unwrap())
    };
    let drive = "mem:tlc,size=64M,store=none";
    let text = ran(true, Format::Normal, drive).unwrap();
    for part in [
        " of reads of [reader], ",
        "% die, behind program of [writer]",
        "\nwrites of [writer]  ",
        "\nwrites of [alone]  ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!ran(false, Format::Normal, drive).unwrap().contains("behind"));
    let [told, plain] = [true, false]
        .map(|explain| ran(explain, Format::Json, drive).unwrap())
        .map(|text| serde_json::from_str::<Value>(&text).unwrap());
    for (n, name) in ["reader", "writer", "alone"].into_iter().enumerate() {
        let of = |json: &Value| json["jobs"][n][if n == 0 { "read" } else { "write" }].clone();
        assert_eq!(of(&told)["clat_ns"], of(&plain)["clat_ns"]);
        let all = &told["ssdkit"]["explained"][n];
        assert_eq!(all["jobname"], name);
        let all = &all["explained"][if n == 0 { "reads" } else { "writes" }][0];
        assert_eq!(all["requests"], of(&told)["total_ios"]);
    }
    assert!(plain["ssdkit"].get("explained").is_none());
    let made = folder.path().join("made");
    let file = format!("file:{},size=1M,direct=no", made.display());
    for drive in ["mem:tlc,size=64M,cache=protected", &file] {
        let error = ran(true, Format::Normal, drive).unwrap_err();
        assert!(error.to_string().contains("--explain: "), "{error}");
    }
    assert!(!made.exists());
}

/// What a round before left on its way delays the next one: a job of that is not blamed.
#[test]
fn a_writer_of_a_round_before_may_be_what_delayed() {
    let text = "[global]\nruntime=20ms\ntime_based\nioengine=libaio\n[first]\nrw=randwrite\n\
                iodepth=64\n[reader]\nstonewall\nrw=randread\niodepth=4\n[slow]\n\
                rw=randwrite\nrate_iops=100\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fio");
    let told = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let drive = Some("mem:tlc,size=64M,store=none".parse().unwrap());
        let args =
            FioArgs { files: vec![path.clone()], drive, explain: true, ..FioArgs::default() };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let both = told(text);
    assert!(both.contains("\ndie, behind program of user "), "{both}");
    assert!(!both.contains("program of ["), "{both}");
    // It is what delayed where it alone wrote.
    let one = told(text.split("[slow]").next().unwrap());
    assert!(one.contains("\ndie, behind program of [first] "), "{one}");
}
