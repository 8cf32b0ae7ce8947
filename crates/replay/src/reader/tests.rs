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
    assert_eq!(counts, Counts { requests: 4, empty: 1, backwards: 1, ..Counts::default() });
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

/// However many others there are.
#[test]
fn volumes_that_are_not_wanted_have_no_number() {
    let others: String = (0..70_000).map(|n| format!("{n},R,0,512,1\n")).collect();
    let text = format!("{others}{},R,0,512,1\nlast,R,0,512,2\n", "x".repeat(300));
    let (all, _, error) = read(text.as_bytes(), "--volume last");
    assert_eq!((all.len(), error), (1, None));
    assert!(read(text.as_bytes(), "").2.unwrap().contains("65537th"));
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
    assert!(read(b"", "").2.unwrap().starts_with("it is empty"));
    assert!(read(b"", "--format msr").2.unwrap().starts_with("it is empty"));
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

/// A write of a block.
fn life(at: u64) -> Life {
    let (at, end) = (Time(at), Time(1000));
    Life {
        id: 0,
        core: 0,
        staging: 0,
        queue: 0,
        tag: 0,
        op: BlockOp::Write,
        fua: false,
        offset: at.0.wrapping_mul(4096),
        len: 4096,
        status: Status::SUCCESS,
        parts: 1,
        submitted: at,
        dispatched: at,
        completed: end,
        seen: end,
    }
}

/// A trace of ours of these records, when it began at 50 and dropped two requests.
fn trace_of(lives: &[Life]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let about = About { start: Time(50), config: String::new() };
    let mut writer = Writer::new(&mut bytes, &about).unwrap();
    lives.iter().for_each(|life| writer.put(life).unwrap());
    writer.finish(2).unwrap();
    bytes
}

/// A trace of ours with records as requests ended.
fn ours(submitted: &[u64]) -> Vec<u8> {
    let one = |(n, &at): (usize, &u64)| Life { fua: n == 1, ..life(at) };
    trace_of(&submitted.iter().enumerate().map(one).collect::<Vec<_>>())
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
    assert_eq!(counts.dropped, 2);
    assert!(counts.notes()[0].starts_with("2 requests dropped"), "{:?}", counts.notes());
    // The end is missing: what was read before is given.
    let (all, counts, error) = read(&bytes[..bytes.len() - 5], "");
    assert!(all.len() == 5 && counts.dropped == 0 && error.is_some(), "{error:?}");
    // What was asked in the ramp is not in it.
    let (all, ..) = read(&ours(&[49, 50, 60]), "");
    assert_eq!(all.iter().map(|r| r.at).collect::<Vec<_>>(), [0, 10]);
}

/// A checksum says that a record is what was written, not that it can be.
#[test]
fn our_records_are_looked_at() {
    let flush = Life { op: BlockOp::Flush, offset: u64::MAX, len: u64::MAX, ..life(60) };
    let empty = Life { op: BlockOp::Read, len: 0, ..life(61) };
    let (all, counts, error) = read(&trace_of(&[flush, empty, life(62)]), "");
    let told: Vec<_> = all.iter().map(|r| (r.at, r.op, r.offset, r.len)).collect();
    assert_eq!(told, [(0, BlockOp::Flush, 0, 0), (2, BlockOp::Write, 62 * 4096, 4096)]);
    assert_eq!((counts.empty, error), (1, None));
    for (offset, len) in [(u64::MAX, 2), (1 << 63, 1), (1, 1 << 63)] {
        let (all, _, error) = read(&trace_of(&[life(62), Life { offset, len, ..life(63) }]), "");
        assert_eq!(all.len(), 1, "what was before it");
        assert_eq!(error.unwrap(), "record 2 ends beyond 2^63 bytes: the file is damaged");
    }
}

#[test]
fn options_that_say_nothing_of_a_format_are_refused() {
    let refused = |bytes: &[u8], options: &str| read(bytes, options).2.unwrap();
    for option in ["--volume 0", "--action q", "--time-unit us", "--broken skip"] {
        let told = refused(&ours(&[60]), option);
        assert!(told.contains("is for") && told.contains("format ssdkit: leave"), "{told}");
    }
    let told = refused(TRACE.as_bytes(), "--time-unit us");
    assert_eq!(
        told,
        "--time-unit is for mqsim and fio, and this is of format alibaba: leave it out"
    );
    assert!(refused(TRACE.as_bytes(), "--action d").starts_with("--action is for blkparse"));
}

/// Who asks is to hear of other things while few lines are wanted.
#[test]
fn control_comes_back_where_many_lines_give_nothing() {
    let text = format!("3,R,0,512,1\n{}7,R,0,512,2\n", "3,R,0,512,1\n".repeat(500));
    let mut reader = reader(text.as_bytes(), "--volume 7").unwrap();
    let later = std::iter::from_fn(|| Some(reader.next_soon().unwrap()));
    let later = later.take_while(|next| *next == Next::Later).count() as u32;
    assert_eq!(later, 501 / AT_A_TIME);
    assert_eq!(reader.counts().requests, 1);
}

#[test]
fn a_first_line_that_is_a_request_is_one() {
    let mark = "\u{feff}";
    let lines = "vol1,R,0,4096,1\nvol1,W,0,4096,2\n";
    for text in [lines.to_string(), format!("{mark}{lines}"), format!("{mark}\n{lines}")] {
        assert_eq!(read(text.as_bytes(), "").0.len(), 2, "{text:?}");
    }
    let named = format!("{mark}device_id,opcode,offset,length,timestamp\n{lines}");
    assert_eq!(read(named.as_bytes(), "").0.len(), 2);
    let numbers = format!("{mark}{TRACE}");
    assert_eq!(read(numbers.as_bytes(), ""), read(TRACE.as_bytes(), ""));
}

proptest! {
    /// Whatever records of ours say, what is given is a request that can be, and its sum and
    /// its pieces are found in no time.
    #[test]
    fn any_records_of_ours_give_requests_or_an_error(
        records in proptest::collection::vec(
            (any::<u64>(), 0u32..64, any::<u64>(), 0u32..64, 0usize..5, any::<u64>()), 1..20)
    ) {
        use BlockOp::{Flush, Read, Trim, Write, WriteZeroes};
        let lives: Vec<Life> = records.iter().map(|&(offset, a, len, b, op, at)| Life {
            op: [Read, Write, Flush, Trim, WriteZeroes][op],
            offset: offset >> a,
            len: len >> b,
            ..life(at)
        }).collect();
        let bytes = trace_of(&lives);
        for request in read(&bytes, "").0 {
            let end = request.offset.checked_add(request.len).unwrap();
            prop_assert!(end <= 1 << 63);
            prop_assert_eq!(request.len == 0, request.op == Flush);
        }
        crate::Summary::read(&mut reader(&bytes, "").unwrap()).touched();
    }

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
