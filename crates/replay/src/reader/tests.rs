//! Whole traces: order, volumes, broken lines, compression, and any bytes.

use std::io::{Cursor, Write};

use blkmq::Life;
use clap::Parser;
use flate2::Compression;
use flate2::write::GzEncoder;
use port::{Status, Time};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use trace::{About, Writer};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ReadArgs,
}

/// A reader of some bytes, as a command line asks for it.
fn reader(bytes: &[u8], options: &str) -> Result<Reader, ReadError> {
    let args = Line::parse_from(["x"].into_iter().chain(options.split_whitespace())).args;
    Reader::new(Input::new(Cursor::new(bytes.to_vec()), None)?, &args)
}

/// All requests, and how it ends.
fn read(bytes: &[u8], options: &str) -> (Vec<Request>, Counts, Option<String>) {
    let mut reader = match reader(bytes, options) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Counts::default(), Some(e.to_string())),
    };
    let mut all = Vec::new();
    let error = loop {
        match reader.next() {
            Ok(Some(request)) => all.push(request),
            Ok(None) => break None,
            Err(e) => break Some(e.to_string()),
        }
    };
    assert!(matches!(reader.next(), Ok(None)), "nothing comes after the end");
    (all, reader.counts(), error)
}

const TRACE: &str = "\
3,R,0,4096,1000
3,W,4096,0,1001
7,W,8192,4096,1005
3,R,4096,512,1004
7,R,0,4096,1010
";

#[test]
fn times_begin_at_nothing_and_never_go_back() {
    let (all, counts, error) = read(TRACE.as_bytes(), "");
    let told: Vec<_> = all.iter().map(|r| (r.at, r.offset, r.len, r.volume)).collect();
    assert_eq!(
        told,
        [(0, 0, 4096, 0), (5000, 8192, 4096, 1), (5000, 4096, 512, 0), (10_000, 0, 4096, 1)]
    );
    assert_eq!(counts, Counts { requests: 4, broken: 0, empty: 1, backwards: 1 });
    assert_eq!(error, None);
    let notes = counts.notes();
    assert_eq!(notes[0], "1 request of no length left out");
    assert_eq!(notes.len(), 2);
    // Earlier than the first.
    let (all, counts, _) = read(b"1,R,0,512,5\n1,R,0,512,4\n", "");
    assert_eq!((all[1].at, counts.backwards), (0, 1));
}

#[test]
fn one_volume_may_be_chosen() {
    let (all, counts, error) = read(TRACE.as_bytes(), "--volume 7");
    assert_eq!(all.iter().map(|r| (r.at, r.offset)).collect::<Vec<_>>(), [(0, 8192), (5000, 0)]);
    assert_eq!((counts.requests, counts.empty, counts.backwards, error), (2, 0, 0, None));
    let (_, _, error) = read(TRACE.as_bytes(), "--volume 9");
    assert_eq!(error.unwrap(), "it has no request of volume `9`: there are `3`, `7`");
}

#[test]
fn a_broken_line_ends_it_or_is_counted() {
    let text = TRACE.replace("7,W,8192,4096", "7,W,81\x1b92,4096");
    let (all, _, error) = read(text.as_bytes(), "");
    assert_eq!(all.len(), 1);
    assert_eq!(
        error.unwrap(),
        "line 3 is broken: its offset is no number that can be: `7,W,81?92,4096,1005`; \
         --broken skip leaves such lines out"
    );
    let (all, counts, error) = read(text.as_bytes(), "--broken skip");
    assert_eq!((all.len(), counts.broken, counts.backwards, error), (3, 1, 0, None));
    let twice = text.replace("3,R,4096", "3,?,4096");
    let (all, counts, error) = read(twice.as_bytes(), "--broken skip:1");
    assert_eq!((all.len(), counts.broken), (1, 1));
    let error = error.unwrap();
    assert!(
        error.starts_with("more than 1 lines are broken, line 4 the last: its operation"),
        "{error}"
    );
    // Cut in the middle of its last line.
    let (all, _, error) = read(&TRACE.as_bytes()[..TRACE.len() - 6], "");
    assert!(all.len() == 3 && error.unwrap().starts_with("line 5 is broken: it has no time"));
}

#[test]
fn what_has_no_request_is_an_error() {
    assert_eq!(read(b"", "").2.unwrap(), "it is empty");
    assert_eq!(read(b"", "--format msr").2.unwrap(), "it is empty");
    assert_eq!(read(b"\n\r\n", "--format msr").2.unwrap(), "it has no request");
    let blkparse = b"8,0 3 1 0.5 697 G W 8 + 8 [x]\n8,0 3 1 0.5 697 D W 8 + 8 [x]\n";
    let (_, _, error) = read(blkparse, "");
    assert_eq!(error.unwrap(), "it has no request with this --action: take the other");
    assert_eq!(read(blkparse, "--action d").0.len(), 1);
    let rubbish: Vec<u8> = (0..100_000u32).map(|i| ((i * 7919) >> 3) as u8).collect();
    let error = read(&rubbish, "").2.unwrap();
    assert!(error.starts_with("its first lines are of no known format"), "{error}");
    let (_, counts, error) = read(&rubbish, "--format spc --broken skip:20");
    assert_eq!(counts.broken, 20);
    assert!(error.unwrap().starts_with("more than 20 lines"));
}

#[test]
fn compressed_or_with_other_ends_of_lines_it_is_the_same() {
    let text = TRACE.repeat(5000);
    let plain = read(text.as_bytes(), "");
    assert_eq!(plain.0.len(), 20_000);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let zstd = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
    for bytes in [gzip.finish().unwrap(), zstd, text.replace('\n', "\r\n").into_bytes()] {
        assert_eq!(read(&bytes, ""), plain);
    }
    assert_eq!(read(text.trim_end().as_bytes(), ""), plain);
}

/// A trace of ours with records as requests ended.
fn ours(submitted: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let about = About { start: Time(50), config: String::new() };
    let mut writer = Writer::new(&mut bytes, &about).unwrap();
    for (n, &at) in submitted.iter().enumerate() {
        let (at, end) = (Time(at), Time(1000 + n as u64));
        writer
            .put(&Life {
                id: 0,
                core: 0,
                staging: 0,
                queue: 0,
                tag: 0,
                op: BlockOp::Write,
                fua: n == 1,
                offset: at.0 * 4096,
                len: 4096,
                status: Status::SUCCESS,
                parts: 1,
                submitted: at,
                dispatched: at,
                completed: end,
                seen: end,
            })
            .unwrap();
    }
    writer.finish(0).unwrap();
    bytes
}

#[test]
fn our_own_come_in_the_order_in_which_they_were_asked() {
    let bytes = ours(&[100, 90, 95, 400, 120]);
    let (all, counts, error) = read(&bytes, "");
    let told: Vec<_> = all.iter().map(|r| (r.at, r.offset / 4096, r.fua)).collect();
    assert_eq!(
        told,
        [(0, 90, true), (5, 95, false), (10, 100, false), (30, 120, false), (310, 400, false)]
    );
    assert_eq!((counts.requests, counts.backwards, error), (5, 0, None));
    let (all, _, error) = read(&bytes[..bytes.len() - 30], "");
    assert!(all.is_empty() && error.is_some());
}

proptest! {
    #[test]
    fn any_bytes_give_requests_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000), format in 0..=Format::ALL.len()
    ) {
        let name = Format::ALL.get(format).map(|format| format!("--format {}", format.name()));
        read(&bytes, &format!("{} --broken skip", name.unwrap_or_default()));
    }

    #[test]
    fn times_of_any_trace_never_go_back(times in proptest::collection::vec(any::<u32>(), 1..50)) {
        let text: String = times.iter().map(|at| format!("1,W,0,512,{at}\n")).collect();
        let (all, counts, error) = read(text.as_bytes(), "");
        prop_assert!(error.is_none() && all[0].at == 0);
        prop_assert!(all.is_sorted_by_key(|request| request.at));
        let back = times.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        prop_assert!(counts.backwards >= back);
    }
}
