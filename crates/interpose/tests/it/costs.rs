//! What supervision costs a call: `cargo test --release -p ssdkit-interpose -- --ignored --nocapture
//! costs`. By turns, the least of each.

use std::process::Command;

use interpose::{Answer, Watcher};

use crate::run::{Place, compiled, is_able};

/// Is told, and does nothing with it.
struct Deaf;

impl Watcher for Deaf {
    fn after(&mut self, _: &files::Operation) -> Answer {
        Answer::NOW
    }
}

fn least(line: &str, least: &mut [f64; 5]) {
    for (least, word) in least.iter_mut().zip(line.split_ascii_whitespace()) {
        *least = least.min(word.parse().unwrap());
    }
}

#[test]
#[ignore = "figures, and no verdict"]
fn costs() {
    let place = Place::new();
    let Some(program) = compiled(place.all.path(), "costs.c", &["-static"]) else { return };
    if !is_able() {
        return;
    }
    let (mut bare, mut told) = ([f64::MAX; 5], [f64::MAX; 5]);
    for _ in 0..7 {
        place.run(&[program.to_str().unwrap()], &mut Deaf).unwrap();
        least(&place.printed("out"), &mut told);
        let out = Command::new(&program)
            .env("OUTSIDE", &place.outside)
            .current_dir(&place.mapped)
            .output()
            .unwrap();
        least(&String::from_utf8(out.stdout).unwrap(), &mut bare);
    }
    let names = ["getppid", "pread 4k", "pwrite 4k elsewhere", "pwrite 4k mapped", "create+unlink"];
    for (n, name) in names.iter().enumerate() {
        eprintln!("{name:<20} {:>8.0} ns bare {:>8.0} ns supervised", bare[n], told[n]);
    }
}
