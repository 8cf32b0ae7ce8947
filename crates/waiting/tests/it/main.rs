//! The example of `speculate`, run.

#[path = "../../examples/speculate.rs"]
mod speculate;

use waiting::speculate::Lost;

use speculate::{Options, options, run};

/// The page of it.
const PAGE: &str = include_str!("../../../../docs/speculation.md");

/// The commands of the page: all confirm, the last until its write fails.
#[test]
fn the_page_can_be_followed() {
    let begin = "    cargo run --release -p ssdkit-waiting --example speculate -- ";
    let lines: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix(begin)).collect();
    assert_eq!(lines.len(), 3);
    for line in lines {
        let (name, options) = options(line.split(' ').map(str::to_string)).unwrap();
        let book = run(&name, options).unwrap();
        assert_eq!(book.confirmed == 1000, options.fails.is_none(), "{line}: {book:?}");
        assert!(book.why.is_none_or(|why| PAGE.contains(&why.to_string())));
    }
    assert!(PAGE.contains(&Lost(()).to_string()));
}

const DRIVE: &str = "mem:znand,size=64M";

#[test]
fn who_does_not_wait_is_faster_and_loses_nothing() {
    let goes_on = run(DRIVE, Options::default()).unwrap();
    let waits = run(DRIVE, Options { waits: true, ..Options::default() }).unwrap();
    for book in [goes_on, waits] {
        assert_eq!((book.confirmed, book.lost, book.refused, book.why), (1000, 0, 0, None));
    }
    assert!(waits.took > 4 * goes_on.took, "{waits:?}, {goes_on:?}");
}

#[test]
fn what_a_failed_write_took_is_told() {
    let book = run(DRIVE, Options { fails: Some(500), ..Options::default() }).unwrap();
    assert_eq!(book.confirmed + book.lost + book.refused, 1000);
    assert!(book.lost > 0 && book.confirmed < 500 && book.refused <= 500, "{book:?}");
    let words = "the drive failed to write: write fault (type 2, code 0x80); what was not durable by then may be lost, \
                 and nothing is written any more: read what there is, and begin again";
    assert_eq!(book.why.unwrap().to_string(), words);
}

#[test]
fn by_the_clock_nothing_is_lost_either() {
    let book = run(DRIVE, Options { is_real: true, ..Options::default() }).unwrap();
    assert_eq!((book.confirmed, book.lost, book.refused), (1000, 0, 0));
}
