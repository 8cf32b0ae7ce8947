//! The architecture's table of crates is what the manifests say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates of the workspace that a crate uses, its tests aside.
fn used(name: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let (mut counts, mut all) = (false, BTreeSet::new());
    for line in manifest.lines() {
        match line.strip_prefix('[') {
            Some(section) => {
                counts = section.ends_with("dependencies]") && !section.starts_with("dev-");
            }
            None if counts => {
                let name = line.split(['.', ' ']).next().filter(|name| is_crate(name));
                all.extend(name.map(str::to_string));
            }
            None => {}
        }
    }
    all
}

fn is_crate(name: &str) -> bool {
    !name.is_empty() && root().join("crates").join(name).join("Cargo.toml").exists()
}

#[test]
fn a_crate_uses_what_the_architecture_says_and_nothing_above_it() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = page.split_once("| crate | is | uses |\n|---|---|---|\n").unwrap().1;
    let rows: Vec<(&str, BTreeSet<String>)> = table
        .lines()
        .take_while(|line| line.starts_with("| `"))
        .map(|line| {
            let (name, rest) = line[3..].split_once("` | ").unwrap();
            let uses = rest.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            (name, uses.split(", ").filter(|&name| name != "-").map(str::to_string).collect())
        })
        .collect();
    let names = |of: &[(&str, _)]| of.iter().map(|row| row.0.to_string()).collect::<BTreeSet<_>>();
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names(&rows), crates.filter(|name| is_crate(name)).collect(), "all are there");
    for (n, (name, uses)) in rows.iter().enumerate() {
        assert_eq!(*uses, used(name), "docs/architecture.md and the manifest of {name}");
        assert!(uses.is_subset(&names(&rows[n + 1..])), "{name} uses what stands above it");
    }
}
