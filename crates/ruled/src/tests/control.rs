//! What is asked of a control plane, and what it may do.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use rules::syntax::Set;
use rules::{Answer, Checked, Control, Miss, Op, View};

use super::{checked, small};
use crate::{ControlPlane, Ruled, RuledConfig, RuledError};

/// Answers by a function of the miss.
struct Answers<F>(F);

impl<F: FnMut(&Miss, &View) -> Answer + Send> Control for Answers<F> {
    fn miss(&mut self, miss: &Miss, _: &Set, view: &View) -> Answer {
        (self.0)(miss, view)
    }
}

pub(super) fn request(id: u64, op: BlockOp, lba: u64, blocks: u64) -> BlockReq {
    let (offset, len, buffer) = (lba * BLOCK_BYTES, blocks * BLOCK_BYTES, Buffer::empty());
    BlockReq { id, op, fua: false, placement: 0, queue: 0, offset, len, buffer }
}

/// Runs requests that come at time 0 to their ends.
pub(super) fn run(
    drive: &mut impl Port<Cmd = BlockReq, Done = BlockDone>,
    all: Vec<BlockReq>,
) -> Vec<BlockDone> {
    let (count, mut ended) = (all.len(), Vec::new());
    let (mut reqs, mut done) = (Ring::new(count), Ring::new(count));
    all.into_iter().for_each(|req| reqs.put(|| req));
    let mut now = Time::ZERO;
    while ended.len() < count {
        drive.submit(now, &mut reqs);
        now = drive.next_event().expect("something is under way");
        drive.advance(now, &mut done);
        ended.extend(std::iter::from_fn(|| done.pop()));
    }
    ended
}

/// Two applications, of which these have rules.
fn with_rules(numbers: &[u16]) -> Checked {
    let mut text = String::from(
        "set two application 0 lba 0..100 units 0..4 application 1 lba 100..200 units 4..8
         map a[100] of address in 0..4 map b[100] of address in 4..8\n",
    );
    for n in numbers {
        let map = if *n == 0 { "a" } else { "b" };
        text += &format!(
            "rule write{n} priority 1 when application == {n} and op == write
               then place into {map}[lba % 100]
             rule read{n} priority 1 when application == {n} and op == read
               then serve {map}[lba % 100]\n"
        );
    }
    checked(&text)
}

fn drive<F: FnMut(&Miss, &View) -> Answer + Send + 'static>(
    rules: Checked,
    answer: u64,
    make: impl Fn() -> F + Send + Sync + 'static,
) -> Ruled<device::Device<drive::backing::Backing>> {
    let (device, config) = small("null");
    let plane = ControlPlane::new(answer, move || Box::new(Answers(make())));
    let config =
        RuledConfig { bytes: config.bytes, rules, control: Some(plane), remotes: Vec::new() };
    ftl::Start::new(device, &config).unwrap()
}

/// An application without rules gets them with its first request, and is not asked about again.
#[test]
fn rules_are_learnt() {
    let mut drive = drive(with_rules(&[0]), 5000, || {
        |miss: &Miss, view: &View| {
            assert_eq!(
                (miss.request.op, miss.request.application, miss.rule),
                (Op::Write, 1, None)
            );
            assert_eq!(view.now, 5000);
            Answer::Install(Box::new(with_rules(&[0, 1])))
        }
    });
    let done =
        run(&mut drive, vec![request(0, BlockOp::Write, 7, 4), request(1, BlockOp::Write, 107, 4)]);
    assert!(done.iter().all(|done| done.status.is_ok()));
    assert_eq!((done[0].id, done[1].id), (0, 1));
    assert!(done[0].at < Time(5000) && done[1].at >= Time(5000));
    assert!((100..).take(4).all(|n| drive.leads(drive.blocks.firsts[1] + n - 93).is_some()));
    let done = run(&mut drive, vec![request(2, BlockOp::Read, 107, 4)]);
    assert!(done[0].status.is_ok());
    let counts = drive.misses();
    assert_eq!((counts.misses(), counts.installed(), counts.refused()), (1, 1, 0));
    let rules = drive.installer().rules();
    assert_eq!((rules.hits().of(0), rules.hits().of(2), rules.hits().of(3)), (4, 4, 4));
}

/// What is answered to a block holds for all that the same set misses of the request.
#[test]
fn what_is_answered_holds_for_the_request() {
    for (pass, status) in [(true, Status::SUCCESS), (false, Status::ACCESS_DENIED)] {
        let mut drive = drive(with_rules(&[0]), 0, move || {
            let mut asked = 0;
            move |_: &Miss, _: &View| {
                asked += 1;
                assert!(asked <= 2);
                if pass { Answer::Pass } else { Answer::Refuse }
            }
        });
        let all = vec![request(0, BlockOp::Write, 100, 8), request(1, BlockOp::Read, 100, 8)];
        assert!(run(&mut drive, all).iter().all(|done| done.status == status));
        assert_eq!(drive.leads(100).is_some(), pass);
        let counts = drive.misses();
        assert_eq!((counts.misses(), counts.installed()), (16, 0));
        assert_eq!(counts.refused(), if pass { 0 } else { 16 });
    }
}

/// What a control plane installs is checked, and asked only once.
#[test]
fn a_bad_answer_fails() {
    let other = |text: &str| checked(&format!("set bad {text}"));
    let bad = [
        // It decides as little as before.
        (with_rules(&[0]), 1),
        // Its maps are others, or of more units than there are.
        (other("application 1 lba 100..200 rule all priority 0 when op != idle then drop"), 0),
        (other("application 1 lba 100..200 units 0..9"), 0),
    ];
    for (rules, installed) in bad {
        let mut drive = drive(with_rules(&[0]), 10, move || {
            let rules = rules.clone();
            move |_: &Miss, _: &View| Answer::Install(Box::new(rules.clone()))
        });
        let done = run(&mut drive, vec![request(0, BlockOp::Write, 100, 1)]);
        assert_eq!((done[0].status, done[0].at), (Status::ACCESS_DENIED, Time(10)));
        let counts = drive.misses();
        assert_eq!((counts.misses(), counts.installed(), counts.refused()), (1, installed, 1));
        // The set in use goes on.
        assert!(run(&mut drive, vec![request(0, BlockOp::Write, 1, 1)])[0].status.is_ok());
    }
}

/// A set that is installed from another thread is checked there; one that suits decides what
/// already waits, and nobody is asked.
#[test]
fn another_thread_installs() {
    let mut drive = drive(with_rules(&[0]), 1000, || |_: &Miss, _: &View| Answer::Refuse);
    let installer = drive.installer();
    let (mut reqs, mut done) = (Ring::new(1), Ring::new(1));
    reqs.put(|| request(0, BlockOp::Write, 150, 1));
    drive.submit(Time::ZERO, &mut reqs);
    let other = installer.clone();
    std::thread::spawn(move || {
        let wrong = checked("set wrong application 0 lba 0..100");
        assert!(matches!(other.install(&wrong), Err(RuledError::Maps)));
        assert_eq!(other.install(&with_rules(&[1])).unwrap(), 1);
    })
    .join()
    .unwrap();
    assert_eq!(installer.taken(), 0);
    let mut now = Time::ZERO;
    while let Some(at) = drive.next_event().filter(|at| *at <= Time(1000)) {
        (now, ()) = (at, drive.advance(at, &mut done));
    }
    let done = done.pop().unwrap();
    assert_eq!((done.id, done.status, now), (0, Status::SUCCESS, Time(1000)));
    assert_eq!(installer.taken(), 1);
}
