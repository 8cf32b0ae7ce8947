//! Where requests go, when, and in which pieces.

use std::io::Cursor;

use clap::Parser;
use proptest::prelude::*;

use super::*;
use crate::{Input, ReadArgs};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ReadArgs,
}

const FIT: Fit = Fit {
    bytes: 40960,
    unit: 512,
    most: 8192,
    most_trim: u64::MAX,
    lacks: Lacks { trims: false, zeroes: false, flushes: false, fua: false },
    speed: Speed::RECORDED,
    beyond: Beyond::Wrap,
    volume: None,
    requests: u64::MAX,
    until: u64::MAX,
};

/// A trace of Alibaba's format, fitted.
fn fitted(text: &str, options: &str, fit: Fit) -> Fitted {
    let line = format!("x --format alibaba {options}");
    let args = Line::parse_from(line.split_whitespace()).args;
    let input = Input::new(Cursor::new(text.as_bytes().to_vec()), None).unwrap();
    Fitted::new(Reader::new(input, &args).unwrap(), fit)
}

/// Times, addresses and lengths; what was done; and what was wrong.
fn all(text: &str, fit: Fit) -> (Vec<(u64, u64, u64)>, Done, Option<String>) {
    let mut fitted = fitted(text, "", fit);
    let mut told = Vec::new();
    while !fitted.is_over() {
        told.extend(fitted.next());
    }
    let told = told.iter().map(|due| (due.at, due.access.offset, due.access.len)).collect();
    (told, fitted.done(), fitted.problem().map(str::to_string))
}

#[test]
fn recorded_times_are_kept_and_others_scaled() {
    let text = "1,R,0,512,7\n1,W,0,512,8\n1,R,512,512,1000007\n";
    let times = |fit| all(text, fit).0.iter().map(|due| due.0).collect::<Vec<_>>();
    assert_eq!(times(FIT), [0, 1000, 1_000_000_000]);
    let at = |speed: &str| times(Fit { speed: speed.parse().unwrap(), ..FIT });
    assert_eq!(at("10x"), [0, 100, 100_000_000]);
    assert_eq!(at("0.5x"), [0, 2000, 2_000_000_000]);
    assert_eq!(at("3x"), [0, 333, 333_333_333]);
    assert_eq!(times(Fit { until: 1_000_000_000, ..FIT }), [0, 1000]);
    assert_eq!(times(Fit { requests: 1, ..FIT }), [0]);
    for (text, shown) in [("10x", "10x"), ("0.5x", "0.5x"), ("1x", "recorded")] {
        assert_eq!(text.parse::<Speed>().unwrap().to_string(), shown);
    }
    for text in ["0x", "10", "x", "-1x", "1e7x", "nanx"] {
        assert!(text.parse::<Speed>().is_err(), "{text}");
    }
    let text = "1,R,0,512,7\n1,R,0,512,3155760000000008\n";
    assert!(all(text, FIT).2.unwrap().contains("more than 100 years"));
    assert_eq!(all(text, Fit { speed: "2x".parse().unwrap(), ..FIT }).2, None);
    assert_eq!("0.001x".parse::<Speed>().unwrap().time(u64::MAX), u64::MAX);
}

#[test]
fn what_is_beyond_is_wrapped_clamped_or_rejected() {
    // The last 4 KiB, across the end, beyond it, and longer than all.
    let text = "1,W,36864,4096,0\n1,W,38912,4096,0\n1,W,90112,4096,0\n1,R,4096,65536,0\n";
    let of = |beyond| {
        let (told, done, problem) = all(text, Fit { beyond, most: 1 << 20, ..FIT });
        assert_eq!((problem, done.taken, done.beyond), (None, 4, 3));
        (told.iter().map(|due| (due.1, due.2)).collect::<Vec<_>>(), done)
    };
    let (told, done) = of(Beyond::Wrap);
    let wrapped = [(36864, 4096), (38912, 2048), (0, 2048), (8192, 4096), (4096, 36864), (0, 4096)];
    assert_eq!(told, wrapped);
    assert_eq!((done.cut, done.split, done.pieces, done.shortened), (0, 2, 4, 1));
    let (told, done) = of(Beyond::Clamp);
    assert_eq!(told, [(36864, 4096), (36864, 4096), (36864, 4096), (0, 40960)]);
    assert_eq!((done.cut, done.shortened), (0, 1));
    let (told, done) = of(Beyond::Reject);
    assert_eq!((told, done.shortened), (vec![(36864, 4096)], 0));
}

#[test]
fn parts_of_units_are_widened_and_long_requests_cut() {
    let text = "1,W,100,512,0\n1,R,1024,20480,5\n1,W,512,512,6\n";
    let (told, done, _) = all(text, FIT);
    assert_eq!(
        told,
        [
            (0, 0, 1024),
            (5000, 1024, 8192),
            (5000, 9216, 8192),
            (5000, 17408, 4096),
            (6000, 512, 512)
        ]
    );
    let expected =
        Done { taken: 3, widened: 1, widened_bytes: 512, cut: 1, pieces: 3, ..Done::default() };
    assert_eq!(done, expected);
    let (told, done, _) = all(text, Fit { unit: 4096, ..FIT });
    assert_eq!(told[0], (0, 0, 4096));
    assert_eq!(told[1..4], [(5000, 0, 8192), (5000, 8192, 8192), (5000, 16384, 8192)]);
    assert_eq!((done.widened, told.len()), (3, 5));
    let notes = done.notes(Beyond::Wrap);
    assert_eq!(
        notes,
        [
            "3 widened to whole blocks or sectors, by 11.3 kB",
            "1 cut, as the drive takes no longer ones",
            "3 pieces came of those"
        ]
    );
}

#[test]
fn volumes_lie_side_by_side_or_one_is_chosen() {
    let text = "7,R,0,4096,0\n5,R,0,4096,1\n7,R,20480,4096,2\n";
    let (told, _, problem) = all(text, FIT);
    assert_eq!(told.len(), 1);
    assert!(problem.unwrap().starts_with("it has several volumes, `7` and `5` first"));
    let (told, done, problem) = all(text, Fit { volume: Some(20480), ..FIT });
    assert_eq!(told, [(0, 0, 4096), (1000, 20480, 4096), (2000, 0, 4096)]);
    assert_eq!((done.beyond, problem), (1, None));
    let (told, _, problem) = all(text, Fit { volume: Some(24576), ..FIT });
    assert_eq!(told.len(), 1);
    assert!(problem.unwrap().contains("room for 1 volumes of 24 KiB, and `5` is one more"));
    let mut chosen = fitted(text, "--volume 5", FIT);
    assert_eq!(chosen.next().unwrap().access.offset, 0);
    assert!(chosen.next().is_none() && chosen.problem().is_none());
    assert_eq!(volume_size("8k"), Ok(8192));
    assert!(volume_size("6000").is_err() && volume_size("0").is_err());
}

#[test]
fn what_is_wrong_with_a_trace_is_told_at_its_end() {
    let (told, _, problem) = all("1,R,0,512,7\n1,R,x,512,8\n1,R,0,512,9\n", FIT);
    assert_eq!(told.len(), 1);
    assert!(problem.unwrap().starts_with("line 2 is broken"));
}

/// The pieces of the longest request on the largest drive are not gone through to be counted.
#[test]
fn very_many_pieces_are_counted() {
    let text = "1,W,4096,9223372036854771712,0\n";
    let mut one = fitted(text, "", Fit { bytes: 1 << 63, most: 1 << 20, ..FIT });
    assert_eq!(one.next().unwrap().access.len, 1 << 20);
    assert_eq!((one.done().cut, one.done().pieces), (1, 1 << 43));
    // Wrapped, too.
    let mut one = fitted(text, "", Fit { bytes: 1 << 62, most: 1 << 20, ..FIT });
    one.next().unwrap();
    let done = one.done();
    assert_eq!((done.cut, done.split, done.pieces), (1, 1, (1 << 42) + 1));
}

#[test]
fn what_a_drive_does_not_take_is_left_out_or_cut() {
    let text = "\
        8,0 0 1 0.0 1 Q FWFS 0 + 8 [x]\n8,0 0 2 0.1 1 Q D 0 + 40 [x]\n\
        8,0 0 3 0.2 1 Q FWS [x]\n8,0 0 4 0.3 1 Q R 0 + 8 [x]\n";
    let told = |fit: Fit| {
        let args = Line::parse_from(["x"]).args;
        let input = Input::new(Cursor::new(text.as_bytes().to_vec()), None).unwrap();
        let mut fitted = Fitted::new(Reader::new(input, &args).unwrap(), fit);
        let told: Vec<_> = std::iter::from_fn(|| fitted.next()).map(|due| due.access).collect();
        (told.iter().map(|a| (a.op, a.len, a.fua)).collect::<Vec<_>>(), fitted.done())
    };
    let (read, write) = ((BlockOp::Read, 4096, false), (BlockOp::Write, 4096, true));
    let flush = (BlockOp::Flush, 0, false);
    let trim = |len| (BlockOp::Trim, len, false);
    assert_eq!(told(FIT).0, [write, trim(20480), flush, read]);
    let (all, done) = told(Fit { most_trim: 16384, ..FIT });
    assert_eq!(all, [write, trim(16384), trim(4096), flush, read]);
    assert_eq!((done.cut, done.pieces), (1, 2));
    let lacks = Lacks { trims: true, zeroes: true, flushes: true, fua: true };
    let (all, done) = told(Fit { lacks, ..FIT });
    assert_eq!(all, [(BlockOp::Write, 4096, false), read]);
    assert_eq!((done.taken, done.not_taken, done.without_fua), (4, 2, 1));
}

/// Nothing is looked for without end where all is left out.
#[test]
fn control_comes_back_where_nothing_fits() {
    let text = "1,R,40960,512,0\n".repeat(200) + "1,R,0,512,0\n";
    let mut fitted = fitted(&text, "", Fit { beyond: Beyond::Reject, ..FIT });
    assert!(fitted.next().is_none() && !fitted.is_over());
    let found = (0..5).find_map(|_| fitted.next()).unwrap();
    assert_eq!((found.access.len, found.number), (512, 201));
}

proptest! {
    /// Every piece lies in the drive, and they are as long as the request, in whole units.
    #[test]
    fn pieces_fit_the_drive(
        asked in proptest::collection::vec((any::<u32>(), 1u64..200_000, 0u8..3), 1..20),
        unit in prop::sample::select(vec![512u64, 4096]),
        beyond in prop::sample::select(vec![Beyond::Wrap, Beyond::Clamp, Beyond::Reject])
    ) {
        for &(offset, len, op) in &asked {
            let op = ['R', 'W', 'r'][usize::from(op)];
            let text = format!("1,{op},{offset},{len},0\n");
            let (told, done, problem) = all(&text, Fit { unit, beyond, ..FIT });
            prop_assert_eq!((done.taken, problem), (1, None));
            let mut sum = 0;
            for &(_, at, n) in &told {
                prop_assert!(n > 0 && n <= FIT.most && at + n <= FIT.bytes);
                prop_assert!((at | n).is_multiple_of(unit));
                sum += n;
            }
            let begin = u64::from(offset) / unit * unit;
            let end = (u64::from(offset) + len).next_multiple_of(unit);
            let is_out = end > FIT.bytes && beyond == Beyond::Reject;
            prop_assert_eq!(sum, if is_out { 0 } else { (end - begin).min(FIT.bytes) });
            if end <= FIT.bytes {
                prop_assert_eq!(told[0].1, begin);
            }
            let pieces = if told.len() > 1 { told.len() as u64 } else { 0 };
            prop_assert_eq!((done.pieces, done.cut + done.split > 0), (pieces, pieces > 0));
            let wraps = told.windows(2).any(|pair| pair[1].1 < pair[0].1);
            prop_assert_eq!(done.split, u64::from(wraps));
        }
    }
}
