//! Files: those with jobs, and those that jobs name.

use super::*;

/// As fio lays it out; a second run needs no leave to read it.
#[test]
fn a_file_that_is_made_is_filled_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("a.fio"), folder.path().join("data"));
    let text = format!("[a]\nfilename={}\nsize=1m\nrw=randread\n", path.display());
    std::fs::write(&file, text).unwrap();
    let args = FioArgs { files: vec![file], json: true, ..FioArgs::default() };
    for _ in 0..2 {
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let told: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(told["jobs"][0]["read"]["io_bytes"], 1 << 20);
    }
    std::fs::write(&args.files[0], format!("[a]\nfilename={}\nrw=write\n", path.display()))
        .unwrap();
    let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("add --destroy"), "{error}");
}

/// Each name is of a section, and nothing that is read or driven is written over.
#[test]
fn what_is_named_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.fio");
    let text = "[fill]\nrw=write\nsize=64k\n";
    std::fs::write(&file, text).unwrap();
    let args = FioArgs {
        files: vec![file.clone()],
        drive: Some(DRIVE.parse().unwrap()),
        section: vec!["fill".into(), "typo".into()],
        ..FioArgs::default()
    };
    let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("there is no section typo"), "{error}");
    let [link, other] = ["b.fio", "other.inc"].map(|name| folder.path().join(name));
    std::fs::hard_link(&file, &link).unwrap();
    std::fs::write(&other, "bs=4k\n").unwrap();
    let text = format!("{text}include other.inc\n");
    std::fs::write(&file, &text).unwrap();
    for output in [file.clone(), link, other.clone()] {
        let args = FioArgs { section: Vec::new(), output: Some(output), ..args.clone() };
        let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("it is a job file, one that is included"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "bs=4k\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: FioArgs,
    }
    for more in ["--json", "--output-format json", "--output x"] {
        let line = format!("fio a.fio --parse-only {more}");
        assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{more}");
    }
    assert!(Line::try_parse_from(["fio", "a.fio", "--parse-only"]).is_ok());
}

/// A file that is included is looked for beside the one that includes it.
#[test]
fn keys_may_stand_in_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.fio"), "[global]\ninclude base.inc\n[a]\nsize=64k\n").unwrap();
    std::fs::write(path("base.inc"), "rw=write\nbs=16k\n").unwrap();
    let args = FioArgs { files: vec![path("a.fio")], ..FioArgs::default() };
    let Read { jobs, files, .. } = read(&args).unwrap();
    assert_eq!(files, [path("a.fio"), path("base.inc")]);
    assert!(jobs[0].writes() && jobs[0].one_size() == Some(16 << 10));
    std::fs::remove_file(path("base.inc")).unwrap();
    let error = read(&args).err().unwrap().to_string();
    assert!(error.contains("a.fio:2: include base.inc: "), "{error}");
}
