//! ZADD.

use std::collections::HashMap;

use super::sorted::NOT_A_FLOAT;
use super::{SYNTAX, Stage};
use crate::redis::database::Refusal;
use crate::redis::job::{Job, Next};
use crate::redis::resp::{self, Args};
use crate::redis::value::{
    Value, index_key, main_key, member_key, ordered, parse_score, show_score,
};

/// What ZADD is to do with which of its members.
#[derive(Default)]
struct Adding {
    /// Only with those that are not there, or that are.
    nx: bool,
    xx: bool,
    /// Of those that are there, only where the score becomes greater, or less.
    gt: bool,
    lt: bool,
    /// Those that changed count, too.
    ch: bool,
    /// The score is added to what is there.
    incr: bool,
    /// The argument with the first score.
    first: usize,
}

impl Adding {
    fn of(args: Args<'_>) -> Result<Adding, Refusal> {
        let mut adding = Adding { first: 2, ..Adding::default() };
        for option in args.from(2) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            match option {
                _ if is("nx") => adding.nx = true,
                _ if is("xx") => adding.xx = true,
                _ if is("gt") => adding.gt = true,
                _ if is("lt") => adding.lt = true,
                _ if is("ch") => adding.ch = true,
                _ if is("incr") => adding.incr = true,
                _ => break,
            }
            adding.first += 1;
        }
        let Adding { nx, xx, gt, lt, incr, first, .. } = adding;
        let words = args.len() - first;
        let wrong = |text| Err(Refusal::Text(text));
        if words == 0 || words % 2 == 1 {
            Err(SYNTAX)
        } else if nx && xx {
            wrong("XX and NX options at the same time are not compatible")
        } else if [nx, gt, lt].into_iter().filter(|&one| one).count() > 1 {
            wrong("GT, LT, and/or NX options at the same time are not compatible")
        } else if incr && words > 2 {
            wrong("INCR option supports a single increment-element pair")
        } else {
            Ok(adding)
        }
    }

    /// The new score of a member that has `old`; `None` where nothing is done.
    fn score(&self, old: Option<f64>, score: f64) -> Result<Option<f64>, Refusal> {
        let Some(old) = old else { return Ok(Some(score).filter(|_| !self.xx)) };
        if self.nx {
            return Ok(None);
        }
        let score = if self.incr { old + score } else { score };
        if score.is_nan() {
            return Err(Refusal::Text("resulting score is not a number (NaN)"));
        }
        let is_refused = (self.gt && score <= old) || (self.lt && score >= old);
        Ok(Some(score).filter(|_| !is_refused))
    }
}

/// A member's score, before and now.
struct Change<'a> {
    member: &'a [u8],
    before: Option<f64>,
    now: Option<f64>,
}

impl<'a> Stage<'a> {
    /// ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member ...
    pub(super) fn zadd(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let adding = Adding::of(self.args)?;
        if job.stage == 0 {
            for score in self.args.from(adding.first).step_by(2) {
                parse_score(score).ok_or(NOT_A_FLOAT)?;
            }
            let count = self.sorted()?;
            (job.count, job.left) = (count.unwrap_or(0), u64::from(count.is_none()));
            // A set begins without members that a cut has left of one before it.
            return match count {
                None => Ok(self.ask_left_over(job, self.args.get(1))),
                Some(_) => self.ask_scores(job),
            };
        }
        let (changes, result, touched) = self.changes(&adding)?;
        let new = |one: &&Change| one.before.is_none() && one.now.is_some();
        let added = changes.iter().filter(new).count() as u64;
        if adding.incr {
            let mut text = String::new();
            result.iter().for_each(|&score| show_score(score, &mut text));
            resp::bulk_or_null(self.out, result.map(|_| text.as_bytes()));
        } else {
            resp::int(self.out, if adding.ch { touched } else { added } as i64);
        }
        changes.iter().for_each(|change| self.write_score(job, change));
        if added > 0 {
            job.more_keys = job.left as i64;
            let value = Value::Sorted(job.count + added);
            job.put(|to| main_key(self.args.get(1), to), |to| value.store(to));
        }
        Ok(if job.has_writes() { Next::WriteAndEnd } else { Next::End })
    }

    /// Asks for the scores that its members have.
    pub(super) fn ask_scores(&self, job: &mut Job) -> Result<Next, Refusal> {
        let first = Adding::of(self.args)?.first;
        Ok(self.ask_members(job, first + 1, 2))
    }

    /// What becomes of the members, one after the other, also of those that are
    /// named twice; the score of the last with which something was done; and how
    /// often one came or changed.
    fn changes(&self, adding: &Adding) -> Result<(Vec<Change<'a>>, Option<f64>, u64), Refusal> {
        let (mut changes, mut places) = (Vec::<Change>::new(), HashMap::new());
        let (mut result, mut touched) = (None, 0);
        let is_one = self.args.len() == adding.first + 2;
        let pairs = self.args.from(adding.first).step_by(2);
        let pairs = pairs.zip(self.args.from(adding.first + 1).step_by(2));
        for (i, (score, member)) in pairs.enumerate() {
            let next = changes.len();
            let at = if is_one { next } else { *places.entry(member).or_insert(next) };
            if at == next {
                let before = self.score(i)?;
                changes.push(Change { member, before, now: before });
            }
            let change = &mut changes[at];
            let score = parse_score(score).ok_or(NOT_A_FLOAT)?;
            if let Some(score) = adding.score(change.now, score)? {
                touched += u64::from(change.now != Some(score));
                change.now = Some(score);
                result = Some(score);
            }
        }
        Ok((changes, result, touched))
    }

    fn write_score(&self, job: &mut Job, &Change { member, before, now }: &Change) {
        let key = self.args.get(1);
        let Some(score) = now.filter(|_| now != before) else { return };
        if let Some(old) = before {
            job.delete(|to| index_key(key, old, member, to));
        }
        let value = ordered(score);
        job.put(|to| member_key(key, member, to), |to| to.extend_from_slice(&value));
        job.put(|to| index_key(key, score, member, to), |_| {});
    }
}
