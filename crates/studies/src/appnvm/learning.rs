//! Learning: a drive that begins without rules, and asks its control plane about each
//! application's first request.

use std::sync::Arc;

use control::{Learning, Policy, Room, Template};
use drive::spec::DriveConfig;
use drive::stack::build;
use drive::whole::{Boxed, Drive};
use port::random::Random;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use ruled::ControlPlane;

use super::super::lab::config;
use super::super::{Findings, Lab, Row, Runs};
use super::DRIVE;
use drive::error::Error;

const POINT: &str = "sec. 2: rules are learnt";
const LEARNT: &str = "\"If a rule does not exist for some input, the device sends the input to the \
                      controller and requests a new rule\"";
const APPLICATIONS: u16 = 4;
/// How long the control plane takes to answer, ns.
const ANSWER: u64 = 100_000;
/// Requests of each application.
const REQUESTS: u64 = 2000;

/// How long a request took, ns.
fn act(drive: &mut Boxed, now: &mut Time, op: BlockOp, block: u64) -> Result<u64, Error> {
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    let (fua, placement, queue, buffer) = (false, 0, 0, Buffer::empty());
    let (offset, len) = (block * BLOCK_BYTES, BLOCK_BYTES);
    cmds.put(|| BlockReq { id: 0, op, fua, placement, queue, offset, len, buffer });
    let began = *now;
    drive.submit(began, &mut cmds);
    while let Some(at) = drive.next_event() {
        *now = at.max(*now);
        drive.advance(at, &mut done);
        if let Some(done) = done.pop() {
            return match done.status.is_ok() {
                true => Ok(now.since(began)),
                false => Err(Error::Failed(format!("a request failed: {}", done.status))),
            };
        }
    }
    Err(Error::Failed("a request was lost".into()))
}

/// What was seen: of each application its first request and the median of the others, ns, and
/// how many requests no rule decided.
fn measure(config: &DriveConfig, seed: u64) -> Result<(Vec<(u64, u64)>, u64), Error> {
    let mut drive = build(config, seed)?;
    let rules = drive.rules().ok_or_else(|| Error::Failed("it has no rules".into()))?;
    let (mut now, mut random, mut all) = (Time::ZERO, Random::new(seed, 1), Vec::new());
    let part = config.logical_blocks() / u64::from(APPLICATIONS);
    for application in 0..u64::from(APPLICATIONS) {
        let mut took = Vec::new();
        for _ in 0..REQUESTS {
            let block = application * part + random.bits() % part;
            took.push(act(&mut drive, &mut now, BlockOp::Write, block)?);
        }
        let first = took.remove(0);
        took.sort_unstable();
        all.push((first, took[took.len() / 2]));
    }
    Ok((all, rules.rules().hits().undecided()))
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let name = format!("{DRIVE},target=rules,rules=latency:{APPLICATIONS}");
    let known = config(&name)?;
    let room = Room {
        applications: APPLICATIONS,
        blocks: known.logical_blocks(),
        units: u64::from(known.above.total_pus()),
    };
    let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
    let learning = Learning::new(Template::Latency, room, Policy::default());
    let learning = learning.map_err(|e| failed(&e))?;
    let first = learning.set().ok_or_else(|| failed(&"the first set is refused"))?;
    let make = learning.clone();
    let control = ControlPlane::new(ANSWER, move || Box::new(make.clone()));
    let learnt =
        DriveConfig { rules: Some(Arc::new(first)), control: Some(control), ..known.clone() };
    let command = format!("(in this process: {name}, which begins without rules)");
    lab.note_step("learning", command, learnt.effective());
    let (of_learnt, misses) = measure(&learnt, lab.options.seed)?;
    let (of_known, none) = measure(&known, lab.options.seed)?;
    let most = |all: &[(u64, u64)], of: fn(&(u64, u64)) -> u64| {
        Runs::one(all.iter().map(of).max().unwrap_or(0) as f64 / 1e3)
    };
    let answer = ANSWER as f64 / 1e3;
    let waited = most(&of_learnt, |took| took.0).median() - most(&of_known, |took| took.0).median();
    let extra = most(&of_learnt, |took| took.1).median() - most(&of_known, |took| took.1).median();
    let rows = vec![
        Row::within(
            POINT,
            "requests that no rule decided, of four applications",
            "requests",
            LEARNT,
            Runs::one(misses as f64),
            4.0..=4.0,
        ),
        Row::within(
            POINT,
            "the same of a drive that has its rules",
            "requests",
            LEARNT,
            Runs::one(none as f64),
            0.0..=0.0,
        ),
        Row::within(
            POINT,
            "an application's first request waits longer by",
            "us",
            LEARNT,
            Runs::one(waited),
            answer..=answer * 1.05,
        ),
        Row::within(
            POINT,
            "the median of all later ones by",
            "us",
            LEARNT,
            Runs::one(extra),
            0.0..=0.0,
        ),
    ];
    Ok(Findings { rows, notes: vec![], pictures: vec![] })
}
