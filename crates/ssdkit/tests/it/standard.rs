//! Standard tests, as they are called.

use crate::common::all;

/// A part of a drive that was never written is read in no time.
#[test]
fn a_drive_that_is_not_full_is_void() {
    let dir = tempfile::tempdir().unwrap();
    let create = "create a.ssd --profile tlc --size 16M groups=2 pus=2 pages=48";
    assert_eq!(all(dir.path(), create).2, Some(0));
    let empty = "test pessimistic ssd:a.ssd,copy=yes --quick --as-is";
    let (text, _, code) = all(dir.path(), empty);
    assert!(code == Some(1) && text.starts_with("VOID: the drive is not full (0 % w"), "{text}");
    // 48 of 128.
    let write = "bench ./a.ssd --rw write --bs 128k --ios 48";
    assert_eq!(all(dir.path(), write).2, Some(0));
    let (text, told, code) = all(dir.path(), "test iops ./a.ssd --quick --as-is --destroy");
    assert!(code == Some(1) && text.starts_with("VOID: the drive is not full (37 % wr"), "{text}");
    assert!(told.contains("the result is void"), "{told}");
    let (text, told, code) = all(dir.path(), "test iops ./a.ssd --quick");
    assert!(code == Some(2) && text.is_empty() && told.contains("--destroy"), "{told}");
    // Trimmed first, it is as if it were new.
    let saturation = "test write-saturation ./a.ssd --quick --destroy --report a.html";
    let (text, told, code) = all(dir.path(), saturation);
    assert!(code == Some(0) && text.starts_with("steady after "), "{text}{told}");
    let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert!(page.contains("<figure><svg") && page.contains("drive fill"), "{page}");
    // And then full.
    let full = "test pessimistic ssd:a.ssd,copy=yes --quick --as-is --json";
    let (text, told, code) = all(dir.path(), full);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}"));
    assert!(code == Some(0) && json["verdict"] == "done", "{json}{told}");
    // One that begins with an empty drive does not take it so.
    let used = "test cross-stimulus ssd:a.ssd,copy=yes --quick --as-is";
    let (text, _, code) = all(dir.path(), used);
    assert!(code == Some(1) && text.starts_with("VOID: the drive is not empty"), "{text}");
}

#[test]
fn tests_are_listed_and_unknown_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, _, code) = all(dir.path(), "test --list");
    assert_eq!((code, all(dir.path(), "test").0), (Some(0), listed.clone()));
    assert!(listed.starts_with("iops ") && listed.lines().count() == 10, "{listed}");
    for (line, why) in [
        ("test nothing mem:ref", "there is no test"),
        ("test iops", "DRIVE"),
        ("test iops null:", "never fills"),
        ("test --quick", "NAME"),
    ] {
        let (_, told, code) = all(dir.path(), line);
        assert!(code == Some(2) && told.contains(why), "{line}: {told}");
    }
    let (text, told, code) = all(dir.path(), "test iops mem:ref,size=64M --max-time 1ms");
    assert!(code == Some(1) && text.is_empty() && told.contains("stopped before"), "{told}");
}
