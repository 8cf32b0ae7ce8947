//! Tokens and outputs against a model; a disk over a drive that fails.

use std::collections::VecDeque;

use faults::{FaultPort, Rule};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Time};
use proptest::prelude::*;

use super::*;

/// What may happen to tokens and a stream.
#[derive(Clone, Debug)]
enum Step {
    /// A write, and perhaps an output that depends on it, or on an older one.
    Write(bool),
    Tie(usize),
    Begin,
    End(bool),
    /// A write failed: of those that are not durable, this one.
    Fail(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => any::<bool>().prop_map(Step::Write),
        3 => any::<prop::sample::Index>().prop_map(|i| Step::Tie(i.index(64))),
        4 => Just(Step::Begin),
        4 => prop::bool::weighted(0.95).prop_map(Step::End),
        1 => any::<prop::sample::Index>().prop_map(|i| Step::Fail(i.index(64))),
    ];
    prop::collection::vec(step, 0..120)
}

/// A write in the model: which flush has it, and what is known.
#[derive(Clone, Copy, Debug)]
struct Written {
    token: Token,
    is_durable: bool,
    has_failed: bool,
}

proptest! {
    /// An output comes out when all writes up to its own are durable, as an error when one of
    /// them failed, in order, and once.
    #[test]
    fn nothing_is_out_before_it_is_durable(steps in steps()) {
        let (mut tokens, mut outputs) = (Tokens::default(), Outputs::new(16));
        let mut writes: Vec<Written> = Vec::new();
        // How many writes the flush under way has, and what is tied to how many of the first.
        let (mut flushing, mut tied): (Option<usize>, VecDeque<(u32, usize)>) = (None, VecDeque::new());
        let mut next = 0;
        for step in steps {
            match step {
                Step::Write(has_output) => {
                    let token = tokens.issue();
                    prop_assert!(writes.last().is_none_or(|last| last.token <= token));
                    // After a failure nothing becomes durable.
                    let has_failed = tokens.has_failed();
                    writes.push(Written { token, is_durable: false, has_failed });
                    if has_output && outputs.tie(next, token).is_ok() {
                        tied.push_back((next, writes.len()));
                        next += 1;
                    }
                }
                Step::Tie(back) => {
                    let first = writes.len().saturating_sub(back);
                    let token = first.checked_sub(1).map_or(Token::NONE, |i| writes[i].token);
                    match outputs.tie(next, token) {
                        Ok(()) => tied.push_back((next, first)),
                        Err(Full(output)) => prop_assert!(output == next && tied.len() == 16),
                    }
                    next += 1;
                }
                Step::Begin if tokens.wants_flush() => {
                    prop_assert!(flushing.is_none());
                    tokens.begin_flush();
                    flushing = Some(writes.len());
                }
                Step::End(is_good) if tokens.is_flushing() => {
                    let first = flushing.take().unwrap();
                    tokens.end_flush(is_good);
                    for write in &mut writes[..first] {
                        write.is_durable |= is_good && !write.has_failed;
                    }
                    writes.iter_mut().for_each(|w| w.has_failed |= !is_good && !w.is_durable);
                }
                Step::Fail(back) if back < writes.len() => {
                    let i = writes.len() - 1 - back;
                    if !writes[i].is_durable {
                        tokens.fail(writes[i].token);
                        // With it fail those of its group, and all behind.
                        let token = writes[i].token;
                        writes.iter_mut().filter(|w| w.token >= token).for_each(|w| w.has_failed = true);
                    }
                }
                _ => {}
            }
            // What fails is known at once where no flush comes any more.
            if tokens.has_failed() && !tokens.is_flushing() {
                writes.iter_mut().for_each(|w| w.has_failed |= !w.is_durable);
            }
            for write in &writes {
                let fate = tokens.fate(write.token);
                prop_assert_eq!(fate == Fate::Durable, write.is_durable, "{:?}", write);
                prop_assert!(fate != Fate::Failed || write.has_failed);
                prop_assert!(!(write.is_durable && write.has_failed));
            }
            for (i, write) in writes.iter().enumerate() {
                let is_pending = tokens.fate(write.token) == Fate::Pending;
                let is_in = flushing.is_some_and(|first| i < first);
                prop_assert!(!is_pending || tokens.is_under_way(write.token) == is_in);
            }
            prop_assert_eq!(outputs.first().is_some(), !outputs.is_empty());
            prop_assert_eq!(tokens.newest(), writes.last().map_or(Token::NONE, |w| w.token));
            while let Some(output) = outputs.next(&tokens) {
                let (number, first) = tied.pop_front().unwrap();
                let depends = writes[..first].iter().rev().take(1);
                let is_good = depends.clone().all(|w| w.is_durable);
                prop_assert_eq!(output, if is_good { Ok(number) } else { Err(Lost(number)) });
                prop_assert!(is_good == writes[..first].iter().all(|w| w.is_durable) || !is_good);
            }
            prop_assert_eq!(outputs.len(), tied.len());
        }
    }

    /// A read waits for its own write, whatever else shares its place.
    #[test]
    fn a_read_waits_for_its_write(writes in prop::collection::vec((any::<u64>(), 0u8..9), 0..200)) {
        let (mut tokens, mut written) = (Tokens::default(), super::Written::new(8));
        let mut last = std::collections::HashMap::new();
        let mut all = Token::NONE;
        for (hash, what) in writes {
            match what {
                0 if tokens.wants_flush() => _ = tokens.begin_flush(),
                1 if tokens.is_flushing() => tokens.end_flush(true),
                2 => {
                    all = tokens.issue();
                    written.wrote_all(all);
                }
                _ => {
                    let token = tokens.issue();
                    written.wrote(hash, token);
                    last.insert(hash, token);
                }
            }
            for (&hash, &token) in &last {
                prop_assert!(written.of(hash) >= token.max(all) && written.of(hash) <= tokens.newest());
            }
        }
    }
}

const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 16, depth: 64 };
/// What a request takes, in ns.
const TAKES: u64 = 1000;

/// A drive of bytes that a cut takes what was not flushed from, in time.
#[derive(Default)]
struct Ram {
    durable: Vec<u8>,
    cached: Vec<u8>,
    out: VecDeque<BlockDone>,
    flushes: u32,
}

impl Ram {
    fn new() -> Ram {
        let bytes = vec![0; SHAPE.bytes as usize];
        Ram { durable: bytes.clone(), cached: bytes, ..Ram::default() }
    }
}

impl Port for Ram {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        for req in cmds.drain() {
            let status = SHAPE.check(&req);
            let BlockReq { id, op, offset, len, buffer, .. } = req;
            match op {
                BlockOp::Write => self.cached[offset as usize..(offset + len) as usize]
                    .copy_from_slice(buffer.bytes()),
                _ => {
                    // It is durable when it is answered.
                    self.flushes += 1;
                    self.durable.clone_from(&self.cached);
                }
            }
            let at = self.out.back().map_or(now, |last| last.at.max(now)) + TAKES;
            self.out.push_back(BlockDone { id, op, status, at, buffer });
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.out.front().map(|done| done.at)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0 && self.out.front().is_some_and(|one| one.at <= to) {
            done.put(|| self.out.pop_front().unwrap());
        }
    }
}

fn faulty(rule: Option<&str>) -> Disk<FaultPort<Ram>> {
    let rules: Vec<_> = rule
        .iter()
        .map(|rule| match rule.parse().unwrap() {
            Rule::Fault(rule) => rule,
            other => panic!("{other}"),
        })
        .collect();
    let port = FaultPort::new(Ram::new(), &rules, 7).unwrap();
    Disk::new(port, SHAPE, 8, 4096).unwrap()
}

#[test]
fn writes_go_on_and_one_flush_serves_a_group() {
    let mut disk = faulty(None);
    let mut outputs = Outputs::new(100);
    let (mut now, mut seen) = (Time::ZERO, 0u64);
    for number in 0..60u64 {
        let token = loop {
            match disk.write(now, number * 512, &[number as u8 + 1; 512]) {
                Ok(token) => break token,
                Err(DiskError::Busy) => {
                    now = disk.next_event().unwrap();
                    disk.poll(now);
                }
                Err(error) => panic!("{error}"),
            }
        };
        outputs.tie(number, token).unwrap();
        disk.poll(now);
        while let Some(output) = outputs.next(disk.tokens()) {
            assert_eq!(output, Ok(seen));
            assert_eq!(disk.port().below().durable[seen as usize * 512], seen as u8 + 1);
            seen += 1;
        }
    }
    assert!(seen > 10 && outputs.len() > 4, "{seen} of 60 are out before the last is written");
    while let Some(at) = disk.next_event() {
        disk.poll(at);
    }
    while let Some(output) = outputs.next(disk.tokens()) {
        assert_eq!(output, Ok(seen));
        seen += 1;
    }
    assert_eq!(seen, 60);
    assert!(disk.port().below().flushes < 30, "a flush serves several");
}

#[test]
fn what_failed_is_an_error_in_its_place_and_ends_it() {
    for (rule, what) in [("write,from=11,count=1", "write"), ("flush,from=3,count=1", "flush")] {
        let mut disk = faulty(Some(rule));
        let mut outputs = Outputs::new(100);
        let (mut now, mut refused) = (Time::ZERO, 0);
        for number in 0..40u64 {
            match disk.write(now, number * 512, &[number as u8 + 1; 512]) {
                Ok(token) => outputs.tie(number, token).unwrap(),
                Err(error @ DiskError::Failed { what: said, .. }) => {
                    assert_eq!((said, disk.failed()), (what, Some(error)));
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
            disk.poll(now);
            now = disk.next_event().unwrap_or(now);
            disk.poll(now);
        }
        while let Some(at) = disk.next_event() {
            disk.poll(at);
        }
        let (mut good, mut lost) = (0, 0);
        while let Some(output) = outputs.next(disk.tokens()) {
            match output {
                Ok(number) => {
                    assert_eq!((number, lost), (good, 0));
                    assert_eq!(
                        disk.port().below().durable[number as usize * 512],
                        number as u8 + 1
                    );
                    good += 1;
                }
                Err(Lost(number)) => {
                    assert_eq!(number, good + lost);
                    lost += 1;
                }
            }
        }
        assert!(good > 0 && lost > 0 && refused > 0 && good + lost + refused == 40);
        assert!(outputs.is_empty());
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut disk = faulty(None);
    let mut refused = |offset, len: usize| {
        let error = disk.write(Time::ZERO, offset, &vec![1; len]).unwrap_err();
        assert!(matches!(error, DiskError::Refused { .. }), "{error}");
    };
    refused(0, 8192);
    refused(1, 512);
    refused(0, 0);
    refused(SHAPE.bytes, 512);
    disk.write(Time::ZERO, 512, &[1; 1024]).unwrap();
    for offset in [512, 1024] {
        assert_eq!(disk.write(Time::ZERO, offset, &[2; 512]), Err(DiskError::Busy));
    }
    assert!(disk.write(Time::ZERO, 0, &[2; 512]).is_ok());
}
