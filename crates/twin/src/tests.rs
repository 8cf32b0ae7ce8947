//! Tests of the whole way, from a file to a profile.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: TwinArgs,
}

fn args(line: &str) -> TwinArgs {
    Line::try_parse_from(["twin"].into_iter().chain(line.split_whitespace())).unwrap().args
}

/// Measurements of a drive that the model knows all of: `ref` with another read time,
/// and a path that takes 3 us.
fn planted(folder: &std::path::Path) -> String {
    let model = Model::new("ref", &[("read".into(), "50us".into())], 1).unwrap();
    let host = Parameter::parse("host_kernel=0us..6us", model.base()).unwrap();
    let candidate = model.candidate(&[host], &[0.5]).unwrap();
    let rw = points::Rw::Randread;
    let run = |qd| points::Run { path: "kernel".into(), rw, read_percent: 100, bs: 4096, qd };
    let runs = [1, 16, 64].map(run);
    let given = model.predict(&candidate, &runs, &Watch::quiet()).unwrap();
    let mut text = "drive,path,rw,bs,qd,iops,mean_us,colour\n".to_string();
    for (run, given) in runs.iter().zip(given) {
        let figures = given.of(Direction::Read);
        let (iops, mean) = (figures.iops.unwrap(), figures.mean_us.unwrap());
        text += &format!("d,kernel,randread,4096,{},{iops},{mean},red\n", run.qd);
    }
    let path = folder.join("points.csv").to_str().unwrap().to_string();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_planted_drive_is_found_and_its_file_is_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (planted(folder.path()), folder.path().join("twin.toml"));
    let line = format!(
        "{file} --family ref --fit read=20us..200us --fit erase=1ms..9ms --fit host_kernel=0us..9us \
         --evaluations 60 --use every:2 --out {} --json",
        out.display()
    );
    let mut printed = Vec::new();
    run(&args(&line), &mut printed).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let off = report["objective"].as_f64().unwrap();
    assert!(off < 0.03, "{report:#}");
    let profile = flash::Profile::from_toml(&fs::read_to_string(&out).unwrap(), "twin").unwrap();
    let read = profile.timing.read[0];
    assert!((46_000..56_000).contains(&read), "{read}");
    let parts: Vec<&str> =
        report["points"].as_array().unwrap().iter().map(|p| p["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["used", "kept_back", "used"]);
    assert_eq!(report["parameters"][0]["determined"], true);
    assert_eq!(report["parameters"][1]["determined"], false, "nothing is erased");
    assert!(report["ignored"][0].as_str().unwrap().contains("colour"));
    let again = run(&args(&line), &mut Vec::new()).unwrap_err().to_string();
    assert!(again.contains("--force replaces it"), "{again}");
}

#[test]
fn what_is_read_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = planted(folder.path());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (other, family) = (at("other.csv"), at("family.toml"));
    fs::copy(&file, &other).unwrap();
    fs::write(&family, flash::Profile::builtin("ref").unwrap().to_toml()).unwrap();
    std::os::unix::fs::symlink(&file, at("link")).unwrap();
    for out in [&file, &other, &family, &at("link"), &at("./points.csv")] {
        let before = fs::read(out).unwrap();
        let line = format!(
            "{file} --family {family} --fit read=20us..200us --evaluations 1 --against {other} \
             --out {out} --force"
        );
        let told = run(&args(&line), &mut Vec::new()).unwrap_err().to_string();
        assert!(told.contains("which is read"), "{told}");
        assert_eq!(fs::read(out).unwrap(), before);
    }
}

#[test]
fn each_point_is_kept_back_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = planted(folder.path());
    let mut printed = Vec::new();
    let line = format!(
        "{file} --family ref --fit read=20us..200us --folds 3 --evaluations 5 --against {file} --json"
    );
    run(&args(&line), &mut printed).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let points = report["folds"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 3);
    assert!(points.iter().all(|point| point["part"] != "used"));
    let depths: Vec<_> = points.iter().map(|point| point["qd"].as_u64().unwrap()).collect();
    assert_eq!(depths.iter().sum::<u64>(), 81);
    let all = report["points"].as_array().unwrap();
    let of = |part: &str| all.iter().filter(|point| point["part"] == part).count();
    // What was fitted is no comparison, whatever the drive is called there.
    assert_eq!((of("used"), of("kept_back")), (3, 0));
    assert_eq!(report["ignored"].as_array().unwrap().len(), 2 + 3, "{report:#}");
    assert!(report["ignored"][2].as_str().unwrap().contains("is among the points of the fit"));
}

#[test]
fn what_is_only_compared_is_not_fitted() {
    let folder = tempfile::tempdir().unwrap();
    let file = planted(folder.path());
    let against = |line: &str| {
        let other = folder.path().join("other.csv");
        fs::write(&other, format!("drive,path,rw,bs,qd,iops\n{line}\n")).unwrap();
        let line = format!(
            "{file} --family ref --fit read=20us..200us --evaluations 2 --against {} --json",
            other.display()
        );
        let mut printed = Vec::new();
        run(&args(&line), &mut printed).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&printed).unwrap();
        let parts = report["points"].as_array().unwrap().iter().map(|p| p["part"].to_string());
        parts.skip(3).collect::<Vec<_>>()
    };
    // Another drive, another run.
    assert_eq!(against("e,kernel,randread,4096,16,70000"), ["\"kept_back\""]);
    assert_eq!(against("d,kernel,randread,4096,8,70000"), ["\"kept_back\""]);
    assert_eq!(against("d,kernel,randread,4096,16,70000"), [""; 0]);
}

/// Candidates that contradict themselves are told of, and where there are no others it
/// is an error.
#[test]
fn candidates_that_are_no_drive_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = planted(folder.path());
    let line = format!(
        "{file} --family ref --set side=device --fit queues=1|2|4 --fit read=20us..200us \
         --evaluations 24 --json"
    );
    let mut printed = Vec::new();
    run(&args(&line), &mut printed).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(report["never"], serde_json::json!(["queues=2", "queues=4"]));
    let first = &report["dropped"][0];
    assert!(first["why"].as_str().unwrap().contains("at least 1 with queues"), "{first}");
    assert!(first["candidates"].as_u64().unwrap() > 2 && report["dropped"][1].is_null());
    assert!(report["profile"].as_str().unwrap().contains("# no drive that was tried has queues=2"));
    let line = format!("{file} --family ref --fit write_buffer=1k|2k --evaluations 3");
    let error = run(&args(&line), &mut Vec::new()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("candidates are no drive") && text.contains("each row is"), "{text}");
}

/// A drive that takes no time meets nothing, however little is compared.
#[test]
fn a_family_without_time_is_no_fit() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        format!("{} --family null --fit erase=1ms..9ms --evaluations 3", planted(folder.path()));
    let error = run(&args(&line), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no candidate takes time"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.csv");
    fs::write(&file, "drive,rw,bs,qd,iops\na,read,4096,1,5\nb,read,4096,2,5\n").unwrap();
    let file = file.display();
    for (line, says) in [
        (format!("{file} --family ref"), "several drives"),
        (
            format!("{file} --family ref --where drive=c --where bs=4k"),
            "no points are as --where says: of drive=c there are a, b",
        ),
        (
            format!("{file} --family ref --where drive=a --where rw=write"),
            "of rw=write there are read",
        ),
        (
            format!("{file} --family ref --where drive=a --where qd=2"),
            "of drive=a there are a, b; of qd=2 there are 1, 2",
        ),
        (format!("{file} --family ref --where colour=red"), "--where colour="),
        (format!("{file} --family nand --where drive=a"), "nand"),
        (format!("{file} --family ref --where drive=a --fit raed=1us..2us"), "raed"),
        (
            format!("{file} --family ref --where drive=a --fit read=1us..2us --fit read=1us..3us"),
            "twice",
        ),
        ("/no/such --family ref".to_string(), "/no/such"),
    ] {
        let error = run(&args(&line), &mut Vec::new()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains(says), "{line}: {error}");
    }
}

/// What a workload is, in a word.
fn run_of(workload: &serde_json::Value) -> String {
    ["rw", "read_percent", "bs", "qd"].map(|key| workload[key].to_string()).join(" ")
}

#[test]
fn a_drive_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    fs::write(&target, vec![7; 4 << 20]).unwrap();
    let line = format!("--measure file:{},direct=no --time 5ms", target.display());
    let refused = run(&args(&line), &mut Vec::new()).unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("add --destroy"), "{refused}");
    assert!(fs::read(&target).unwrap().iter().all(|&byte| byte == 7), "nothing was touched");
    let mut printed = Vec::new();
    run(&args(&format!("{line} --destroy")), &mut printed).unwrap();
    let reports: Result<Vec<serde_json::Value>, _> =
        serde_json::Deserializer::from_slice(&printed).into_iter().collect();
    let reports = reports.unwrap();
    assert_eq!(reports.len(), 37);
    assert!(reports.iter().all(|report| report["drive"]["direct"] == false));
    let mut runs: Vec<String> = reports.iter().map(|r| run_of(&r["workload"])).collect();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), 37, "no point is there twice");
    let memory = args("--measure mem:ref --destroy");
    assert!(run(&memory, &mut Vec::new()).unwrap_err().to_string().contains("is none"));
}

#[test]
fn what_cannot_be_split_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = planted(folder.path());
    let one = "--where qd=1 --fit read=20us..200us --evaluations 2";
    for (how, needs) in [("--holdout 0.5", "needs 2 runs"), ("--folds 2", "needs 2 runs")] {
        let line = format!("{file} --family ref {one} {how}");
        let error = run(&args(&line), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(needs), "{error}");
    }
    let error = run(&args(&format!("{file} --family ref --folds 9")), &mut Vec::new());
    assert!(error.unwrap_err().to_string().contains("--folds 9 needs 9 runs"));
}

/// A search that ends for want of candidates says so, and gives the best.
#[test]
fn a_fit_that_did_not_converge_gives_the_best_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!(
        "{} --family ref --fit read=20us..200us --evaluations 4 --json",
        planted(folder.path())
    );
    let mut printed = Vec::new();
    run(&args(&line), &mut printed).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!((&report["converged"], &report["evaluations"]), (&false.into(), &4.into()));
    // The family itself was tried first: what is given is no worse.
    let family = (75f64 / 50.0).ln();
    assert!(report["objective"].as_f64().unwrap() <= family, "{report:#}");
    assert!(report["profile"].as_str().unwrap().contains("not converged: the best so far"));
}

/// What is searched by default begins with the family, and a drive without times of
/// cores has none there.
#[test]
fn the_usual_parameters_begin_with_the_family() {
    for family in ["tlc", "datacenter-tlc", "zoned-a"] {
        let base = flash::Profile::builtin(family).unwrap();
        for (text, _) in USUAL {
            let parameter = Parameter::parse(text, &base).unwrap();
            if parameter.name.starts_with("core_") {
                let mut set = base.clone();
                set.set(&parameter.name, &parameter.value(parameter.start())).unwrap();
                assert_eq!(set.get(&parameter.name), base.get(&parameter.name), "{family}: {text}");
            }
        }
    }
}
