//! Random calls: the same results, errors and files under supervision as without.

use std::fs::File;
use std::process::Command;

use crate::model::{assert_same, listing_of};
use crate::run::{Place, compiled, is_able};

/// Sequences, and calls of each.
const SEEDS: u64 = 40;
const CALLS: &str = "400";

#[test]
fn random_calls_do_what_they_do_without() {
    let place = Place::new();
    let Some(program) = compiled(place.all.path(), "random.c", &["-static"]) else { return };
    if !is_able() {
        return;
    }
    let number = |name, usual| std::env::var(name).map_or(usual, |it| it.parse().unwrap());
    for seed in number("FROM", 1)..=number("SEEDS", SEEDS) {
        let (with, without) = (Place::new(), Place::new());
        let number = seed.to_string();
        with.check(&[program.to_str().unwrap(), &number, CALLS]);
        let status = Command::new(&program)
            .args([&number, CALLS])
            .current_dir(&without.mapped)
            .stdout(File::create(without.all.path().join("out")).unwrap())
            .status()
            .unwrap();
        assert!(status.success());
        let (told, bare) = (with.printed("out"), without.printed("out"));
        if let Some((a, b)) = told.lines().zip(bare.lines()).find(|(a, b)| a != b) {
            panic!("seed {seed}: supervised {a}, bare {b}");
        }
        assert_same(&listing_of(&with.mapped), &listing_of(&without.mapped));
    }
}
