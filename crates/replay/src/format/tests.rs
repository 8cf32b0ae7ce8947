//! Each format against lines worked out by hand, and against any bytes.

use proptest::prelude::*;

use super::*;
use BlockOp::{Flush, Read, Trim, Write};

/// What the lines of a text say.
fn said(format: Format, text: &str) -> Vec<Result<Said<'_>, Flaw>> {
    let reading = Reading { format, action: Action::Q, unit: None };
    let mut before = Before::default();
    text.lines().map(|line| reading.line(line.as_bytes(), &mut before)).collect()
}

fn row(at: u64, op: BlockOp, offset: u64, len: u64, volume: &str) -> Row<'_> {
    Row { at, op, fua: false, offset, len, volume: volume.as_bytes() }
}

/// The requests of a text whose lines are all good.
fn rows(format: Format, text: &str) -> Vec<Row<'_>> {
    let rows = said(format, text).into_iter().map(|said| said.unwrap());
    let request = |said| if let Said::Request(row) = said { Some(row) } else { None };
    rows.filter_map(request).collect()
}

const MSR: &str = "\
128166372003061629,hm,1,Read,383496192,32768,413
128166372016382155,hm,0,Write,2822144,4096,1000";

const ALIBABA: &str =
    "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,4096,1577808144360813";

const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627";

const SYSTOR: &str = "\
Timestamp,Response,IOType,LUN,Offset,Size
1455592181.123456789,0.000398,R,1,3473408,4096
1455592181.25,,W,4,0,65536";

const SPC: &str = "0,20941264,8192,W,0.551706\n1,20939840,8192,r,0.554041,more";

const MQSIM: &str = "3687500 0 3125 8 1\n4000000 1 16 1 0";

const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,0    1        3     0.001500000   697  Q  RM 64 + 16 [ls]
  8,0    1        4     0.002000000   697  Q FWFS 64 + 16 [sync]
259,1    0        5     1.000000000    12  Q  DS 0 + 2048 [fstrim]
259,1    0        6     1.100000000    12  Q FWS [jbd2]
259,1    0        7     1.200000000    12  Q   N [x]
  8,0    3        8     1.300000000   697  m   N cfq schedule
CPU0 (sda):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,        4KiB
Total (sda):";

const FIO2: &str = "\
fio version 2 iolog
/dev/sdb add
/dev/sdb open
/dev/sdb read 0 4096
/dev/sdb wait 99 0
/dev/sdb wait 250 0
/dev/sdb write 8192 512
/dev/sdb sync 0 0
/dev/sdb wait 1000
/dev/sdb trim 4096 4096
/dev/sdb close";

const FIO3: &str = "\
fio version 3 iolog
42 /tmp/f add
253 /tmp/f open
260 /tmp/f read 61440 4096
101732 /tmp/f datasync 0 0
1000210 /tmp/f close";

const ALL: [(Format, &str); 9] = [
    (Format::Msr, MSR),
    (Format::Alibaba, ALIBABA),
    (Format::Tencent, TENCENT),
    (Format::Systor, SYSTOR),
    (Format::Spc, SPC),
    (Format::Mqsim, MQSIM),
    (Format::Blkparse, BLKPARSE),
    (Format::Fio, FIO2),
    (Format::Fio, FIO3),
];

#[test]
fn msr() {
    let first = row(12_816_637_200_306_162_900, Read, 383_496_192, 32768, "hm,1");
    let second = row(12_816_637_201_638_215_500, Write, 2_822_144, 4096, "hm,0");
    assert_eq!(rows(Format::Msr, MSR), [first, second]);
}

#[test]
fn alibaba() {
    let first = row(1_577_808_144_360_767_000, Write, 8_792_731_648, 16384, "419");
    let second = row(1_577_808_144_360_813_000, Read, 59_110_326_272, 4096, "725");
    assert_eq!(rows(Format::Alibaba, ALIBABA), [first, second]);
}

#[test]
fn tencent() {
    let first = row(1_538_323_200_000_000_000, Read, 12_910_952 * 512, 65536, "1063");
    let second = row(1_538_323_201_000_000_000, Write, 6_338_688 * 512, 4096, "1627");
    assert_eq!(rows(Format::Tencent, TENCENT), [first, second]);
}

#[test]
fn systor() {
    let first = row(1_455_592_181_123_456_789, Read, 3_473_408, 4096, "1");
    let second = row(1_455_592_181_250_000_000, Write, 0, 65536, "4");
    assert_eq!(rows(Format::Systor, SYSTOR), [first, second]);
    assert_eq!(said(Format::Systor, SYSTOR)[0], Ok(Said::Header));
}

#[test]
fn spc() {
    let first = row(551_706_000, Write, 20_941_264 * 512, 8192, "0");
    let second = row(554_041_000, Read, 20_939_840 * 512, 8192, "1");
    assert_eq!(rows(Format::Spc, SPC), [first, second]);
}

#[test]
fn mqsim() {
    let first = row(3_687_500, Read, 1_600_000, 4096, "0");
    let second = row(4_000_000, Write, 8192, 512, "1");
    assert_eq!(rows(Format::Mqsim, MQSIM), [first, second]);
    let reading = Reading { format: Format::Mqsim, action: Action::Q, unit: Some(TimeUnit::Us) };
    let Ok(Said::Request(row)) = reading.line(b"7 0 0 8 1", &mut Before::default()) else {
        panic!("a request")
    };
    assert_eq!(row.at, 7000);
}

#[test]
fn blkparse() {
    let expected = [
        row(1829, Write, 223_490 * 512, 4096, "8,0"),
        row(1_500_000, Read, 32768, 8192, "8,0"),
        Row { fua: true, ..row(2_000_000, Write, 32768, 8192, "8,0") },
        row(1_000_000_000, Trim, 0, 1 << 20, "259,1"),
        row(1_100_000_000, Flush, 0, 0, "259,1"),
    ];
    assert_eq!(rows(Format::Blkparse, BLKPARSE), expected[..]);
    let mut before = Before::default();
    let reading = Reading { format: Format::Blkparse, action: Action::D, unit: None };
    let line = b"8,0 3 1 0.5 697 D W 8 + 8 [x]";
    let read = reading.line(line, &mut before);
    assert_eq!(read, Ok(Said::Request(row(500_000_000, Write, 4096, 4096, "8,0"))));
}

/// Two files behind one another, and commands past the block layer.
#[test]
fn blkparse_goes_on_behind_a_summary() {
    let twice = format!("{BLKPARSE}\n{BLKPARSE}\n Reads: 1\n");
    assert_eq!(rows(Format::Blkparse, &twice).len(), 10);
    let reading = Reading { format: Format::Blkparse, action: Action::D, unit: None };
    for line in ["R 36 (12 00 00 00 24 00 ..) [smartd]", "R 36 [smartd]", "N 0 (00 ..) [x]"] {
        let line = format!("8,0 1 2 0.5 697 D {line}");
        assert_eq!(reading.line(line.as_bytes(), &mut Before::default()), Ok(Said::Other));
    }
}

#[test]
fn fio() {
    let expected = [
        row(0, Read, 0, 4096, "/dev/sdb"),
        row(250_000, Write, 8192, 512, "/dev/sdb"),
        row(250_000, Flush, 0, 0, "/dev/sdb"),
        row(1_250_000, Trim, 4096, 4096, "/dev/sdb"),
    ];
    assert_eq!(rows(Format::Fio, FIO2), expected[..]);
    let expected =
        [row(260_000, Read, 61440, 4096, "/tmp/f"), row(101_732_000, Flush, 0, 0, "/tmp/f")];
    assert_eq!(rows(Format::Fio, FIO3), expected[..]);
    let more = "fio version 3 iolog\n1 /f wait 5 0\n2 /f sync_file_range 0 4096";
    assert_eq!(said(Format::Fio, more)[1], Ok(Said::Other));
    assert_eq!(rows(Format::Fio, more), [row(2000, Flush, 0, 0, "/f")]);
}

#[test]
fn formats_are_told_by_their_first_lines() {
    for (format, text) in ALL {
        assert_eq!(tell(text.as_bytes(), true).unwrap(), format);
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(tell(crlf.as_bytes(), true).unwrap(), format);
        // What may go on is not looked at.
        let cut = format!("{text}\n12,");
        assert_eq!(tell(cut.as_bytes(), false).unwrap(), format);
        assert_eq!(tell(format!("\n# a comment\n{text}").as_bytes(), true).unwrap(), format);
    }
}

#[test]
fn what_cannot_be_told_says_so() {
    let error = |text: &str| tell(text.as_bytes(), true).unwrap_err().to_string();
    assert!(error(" \n").starts_with("it is empty"));
    let text = error("\x1b[2Jnothing,of,it\n");
    assert!(
        text.contains("msr, alibaba, tencent") && text.contains("`?[2Jnothing,of,it`"),
        "{text}"
    );
    let lines: &[&[u8]] = &[b"a,b"];
    assert!(!may_be(Format::Msr, lines), "a header alone tells nothing");
}

#[test]
fn flaws_are_told() {
    let flaw = |format, line: &str| said(format, line)[0].unwrap_err();
    assert_eq!(flaw(Format::Msr, "1,h,0,Read,0"), Flaw::Missing("size"));
    assert_eq!(flaw(Format::Msr, "1,h,0,Sync,0,1,2"), Flaw::Operation);
    assert_eq!(flaw(Format::Msr, "1,h,0,Read,0,1,2,3"), Flaw::Extra);
    assert_eq!(flaw(Format::Msr, "200000000000000000,h,0,Read,0,1,2"), Flaw::Time);
    assert_eq!(flaw(Format::Alibaba, "1,R,x,1,1"), Flaw::Number("offset"));
    assert_eq!(flaw(Format::Alibaba, "1,R,9223372036854775807,2,1"), Flaw::Address);
    assert_eq!(flaw(Format::Alibaba, "1,R,18446744073709551615,1,1"), Flaw::Address);
    assert_eq!(flaw(Format::Tencent, "1,36028797018963968,1,0,1"), Flaw::Address);
    assert_eq!(flaw(Format::Tencent, "1,0,1,2,1"), Flaw::Operation);
    assert_eq!(flaw(Format::Spc, "0,0,512,W,x"), Flaw::Time);
    assert_eq!(flaw(Format::Mqsim, "1 0 0 8"), Flaw::Missing("type"));
    assert_eq!(flaw(Format::Blkparse, "sda 3 1 0.5 697 Q W 8 + 8"), Flaw::Number("device"));
    assert_eq!(flaw(Format::Blkparse, "8,0 3 1 0.5 697 Q W 8 8"), Flaw::Missing("+"));
    assert_eq!(flaw(Format::Fio, "fio version 1 iolog"), Flaw::Version);
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_a_flaw(
        lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5)
    ) {
        for &format in Format::ALL {
            let reading = Reading { format, action: Action::D, unit: Some(TimeUnit::S) };
            let mut before = Before::default();
            for line in &lines {
                let _ = reading.line(line, &mut before);
            }
        }
        let _ = tell(&lines.join(&b'\n'), true);
    }

    /// Good lines of which something was changed.
    #[test]
    fn nearly_good_lines_are_a_request_or_a_flaw(
        which in 0..ALL.len(), at in any::<prop::sample::Index>(), part in "[0-9a-zA-Z,. \\-+]{0,25}"
    ) {
        let (format, text) = ALL[which];
        let at = at.index(text.len());
        let mut text = text.as_bytes().to_vec();
        let end = (at + part.len() / 2).min(text.len());
        text.splice(at..end, part.bytes());
        let reading = Reading { format, action: Action::Q, unit: None };
        let mut before = Before::default();
        for line in text.split(|&byte| byte == b'\n') {
            if let Ok(Said::Request(row)) = reading.line(line, &mut before) {
                prop_assert!(row.offset.checked_add(row.len).unwrap() <= MOST_ADDRESS);
            }
        }
    }
}
