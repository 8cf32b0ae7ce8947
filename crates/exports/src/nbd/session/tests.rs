//! Tests of the protocol of a connection.

use super::*;
use proptest::prelude::*;

const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 16, depth: 8 };

fn export() -> Export {
    Export::new(SHAPE).unwrap()
}

fn step_of(command: u16, flags: u16, offset: u64, len: u32) -> Step {
    let r = Request { flags, command, cookie: 9, offset, len };
    Transmission::new(&export()).step(&r.to_bytes()).1
}

#[test]
fn drives_without_data_are_refused() {
    let kept = |kept| Shape { kept, ..SHAPE };
    assert_eq!(Export::new(kept(8)), Err(NotServable::KeepsDigests { kept: 8 }));
    assert_eq!(Export::even_without_data(kept(8)), Err(NotServable::KeepsDigests { kept: 8 }));
    assert_eq!(Export::new(kept(0)), Err(NotServable::KeepsNothing));
    assert_eq!(Export::even_without_data(kept(0)).unwrap().unit(), 4096);
    assert!(matches!(Export::new(Shape { bytes: 0, ..SHAPE }), Err(NotServable::Shape { .. })));
    let long = "x".repeat(5000);
    assert!(matches!(export().named(&long, ""), Err(NotServable::TooLong { what: "name", .. })));
}

#[test]
fn each_wrong_request_has_its_error() {
    let refused = |error| Step::Refuse { cookie: 9, error };
    assert!(matches!(step_of(CMD_READ, 0, 512, 512), Step::Serve(_)));
    assert_eq!(step_of(CMD_READ, 0, 1, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_READ, 0, 0, 0), refused(EINVAL));
    assert_eq!(step_of(CMD_READ, 0, 1 << 20, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_READ, 0, u64::MAX - 511, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_READ, 0, 0, u32::MAX), refused(EINVAL));
    assert_eq!(step_of(CMD_READ, 1 << 9, 0, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_FLUSH, 0, 0, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_TRIM, 0, 1 << 20, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_WRITE_ZEROES, 0, 1 << 20, 512), refused(ENOSPC));
    assert_eq!(step_of(77, 0, 0, 512), refused(EINVAL));
    assert_eq!(step_of(CMD_WRITE, 0, 0, MAX_REQUEST + 1), Step::Garbage);
    assert_eq!(step_of(CMD_DISC, 0, 0, 0), Step::Disconnect);
}

#[test]
fn a_refused_write_is_answered_after_its_data() {
    let mut t = Transmission::new(&export());
    let r = Request { flags: 0, command: CMD_WRITE, cookie: 3, offset: 1 << 20, len: 1024 };
    assert_eq!(t.step(&r.to_bytes()), (28, Step::Skip(1024)));
    t.took(1000);
    assert_eq!(t.step(&[]), (0, Step::Skip(24)));
    t.took(24);
    assert_eq!(t.step(&[]), (0, Step::Refuse { cookie: 3, error: ENOSPC }));
    assert_eq!(t.step(&[]), (0, Step::More));
}

/// Parts have names of their own, and requests there lie in them.
#[test]
fn parts_are_exports_of_their_own() {
    let whole = export();
    let half = SHAPE.bytes / 2;
    let parts = whole.with_part("a", "", (0, half)).unwrap();
    let parts = parts.with_part("b", "", (half, half)).unwrap();
    assert!(parts.clone().with_part("c", "", (half, half + 4096)).is_err());
    for (name, first, bytes) in
        [("", None, 2 * half), ("a", Some(0), half), ("b", Some(half), half)]
    {
        let (mut out, mut n) = (Vec::new(), Negotiation { greeted: true, ..Default::default() });
        let mut ask = |option, data: &[u8]| {
            let head = OptionHeader { option, len: data.len() as u32 }.to_bytes();
            n.step(&parts, &[&head[..], data].concat(), &mut out).1
        };
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(0u16.to_be_bytes());
        assert_eq!(ask(OPT_INFO, &data), Progress::More);
        assert_eq!(ask(OPT_GO, &data), Progress::Transmission);
        let chosen = n.chosen(&parts);
        assert_eq!((chosen.first, chosen.shape.bytes), (first, bytes), "{name}");
        let mut session = Transmission::new(chosen);
        let at =
            |command, offset, len| Request { flags: 0, command, cookie: 1, offset, len }.to_bytes();
        let base = first.unwrap_or(0);
        let (_, Step::Serve(io)) = session.step(&at(CMD_READ, bytes - 4096, 4096)) else {
            panic!()
        };
        assert_eq!(io.offset, base + bytes - 4096);
        assert_eq!(
            session.step(&at(CMD_READ, bytes, 4096)).1,
            Step::Refuse { cookie: 1, error: EINVAL }
        );
        let (_, Step::Serve(io)) = session.step(&at(CMD_FLUSH, 0, 0)) else { panic!() };
        assert_eq!((io.offset, io.len > 0), (base, first.is_some()), "{name}");
    }
    let mut out = Vec::new();
    let mut n = Negotiation { greeted: true, ..Default::default() };
    let head = |option| OptionHeader { option, len: 4 }.to_bytes();
    let unknown = [&head(OPT_EXPORT_NAME)[..], b"none"].concat();
    assert_eq!(n.step(&parts, &unknown, &mut out).1, Progress::Close);
    n.step(&parts, &OptionHeader { option: OPT_LIST, len: 0 }.to_bytes(), &mut out);
    let has = |name: &[u8]| out.windows(name.len()).any(|w| w == name);
    assert!(has(b"ssdkit") && has(b"\0\0\0\x01a") && has(b"\0\0\0\x01b"));
}

/// Who asks for a name that is refused is told why, as far as the protocol has room.
#[test]
fn refused_names_say_why() {
    let why = "it is damaged: \u{e4}".repeat(400);
    let export = export().refusing("gone", &why);
    let (mut out, mut n) = (Vec::new(), Negotiation { greeted: true, ..Default::default() });
    let data = [&4u32.to_be_bytes()[..], b"gone", &0u16.to_be_bytes()].concat();
    let head = OptionHeader { option: OPT_GO, len: data.len() as u32 }.to_bytes();
    assert_eq!(n.step(&export, &[&head[..], &data[..]].concat(), &mut out).1, Progress::More);
    assert!(out.len() > MAX_STRING && out.len() <= MAX_STRING + 20, "{}", out.len());
    assert!(String::from_utf8_lossy(&out).contains("it is damaged: \u{e4}it is"));
    assert!(!export.names().any(|name| name == "gone"));
}

#[test]
fn options_are_bounded() {
    let mut out = Vec::new();
    let mut n = Negotiation::start(&mut out);
    assert_eq!(n.step(&export(), &[0, 0, 0, 3], &mut out), (4, Progress::More));
    let head = |option, len| OptionHeader { option, len }.to_bytes();
    assert_eq!(n.step(&export(), &head(99, u32::MAX), &mut out), (0, Progress::Close));
    let list = head(OPT_LIST, 0);
    for _ in 1..OPTIONS_MAX {
        assert_eq!(n.step(&export(), &list, &mut out), (16, Progress::More));
    }
    assert_eq!(n.step(&export(), &list, &mut out), (0, Progress::Close));
}

/// Runs a whole session over `bytes`, given in portions of at most
/// `portion`, the way a connection does, and says what happened.
fn run(bytes: &[u8], portion: usize) -> (Vec<u8>, Vec<Step>) {
    let (export, mut out, mut steps) = (export(), Vec::new(), Vec::new());
    let mut negotiation = Some(Negotiation::start(&mut out));
    let mut session = Transmission::new(&export);
    let (mut start, mut end) = (0, 0);
    loop {
        let seen = &bytes[start..end];
        let (used, stop) = if let Some(n) = &mut negotiation {
            let (used, progress) = n.step(&export, seen, &mut out);
            if progress == Progress::Close {
                return (out, steps);
            }
            if progress == Progress::Transmission {
                negotiation = None;
            }
            (used, used == 0)
        } else {
            match session.step(seen) {
                (0, Step::More) => (0, true),
                (0, Step::Payload(due) | Step::Skip(due)) => {
                    let n = seen.len().min(due as usize);
                    session.took(n as u32);
                    (n, n == 0)
                }
                (used, Step::Skip(_)) => (used, false),
                (used, step) => {
                    steps.push(step);
                    if matches!(step, Step::Garbage | Step::Disconnect) {
                        return (out, steps);
                    }
                    (used, false)
                }
            }
        };
        assert!(used <= seen.len());
        start += used;
        if stop {
            if end == bytes.len() {
                return (out, steps);
            }
            end = bytes.len().min(end + portion);
        }
    }
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..40),
        prop_oneof![Just(&b""[..]), Just(&b"ssdkit"[..]), Just(&b"other"[..])].prop_map(|n| {
            let mut out = Vec::new();
            InfoRequest::write(n, &[1, 2, 3], &mut out);
            out
        }),
    ];
    (0u32..12, data).prop_map(|(option, data)| {
        let mut out = OptionHeader { option, len: data.len() as u32 }.to_bytes().to_vec();
        out.extend(data);
        out
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![0u32..4, 0u32..9000, any::<u32>(), Just(512), Just(4096)];
    let offset = prop_oneof![0u64..1 << 21, any::<u64>(), Just(0), Just(8192)];
    (0u16..9, prop_oneof![4 => Just(0u16), 1 => any::<u16>()], any::<u64>(), offset, len).prop_map(
        |(command, flags, cookie, offset, len)| {
            let mut out = Request { flags, command, cookie, offset, len }.to_bytes().to_vec();
            if command == CMD_WRITE {
                out.resize(28 + len.min(9000) as usize, 0x5a);
            }
            out
        },
    )
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let garbage = || prop::collection::vec(any::<u8>(), 0..60);
    let piece = prop_oneof![3 => option(), 6 => request(), 1 => garbage()];
    let opening = prop_oneof![4 => Just(vec![0, 0, 0, 3]), 1 => garbage()];
    let go = prop_oneof![
        3 => Just({
            let mut data = Vec::new();
            InfoRequest::write(b"", &[], &mut data);
            let mut out = OptionHeader { option: OPT_GO, len: data.len() as u32 }.to_bytes().to_vec();
            out.extend(data);
            out
        }),
        1 => Just(Vec::new())
    ];
    (opening, prop::collection::vec(option(), 0..3), go, prop::collection::vec(piece, 0..8))
        .prop_map(|(a, b, c, d)| [a, b.concat(), c, d.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_stream_is_survived_and_portions_do_not_matter(bytes in stream(), portion in 1usize..200) {
        let whole = run(&bytes, usize::MAX / 2);
        prop_assert_eq!(&run(&bytes, portion), &whole);
        for step in whole.1 {
            if let Step::Serve(io) = step {
                prop_assert!(io.offset + u64::from(io.len) <= SHAPE.bytes);
                prop_assert!((io.offset | u64::from(io.len)) % 512 == 0);
            }
        }
    }

    #[test]
    fn pure_noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), portion in 1usize..50) {
        prop_assert_eq!(run(&bytes, portion), run(&bytes, 1000));
    }
}
