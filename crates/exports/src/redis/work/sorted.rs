//! Sorted sets.

use super::{NOT_AN_INTEGER, SYNTAX, Stage};
use crate::redis::database::Refusal;
use crate::redis::job::{Job, Next};
use crate::redis::mail::MAX_REPLY;
use crate::redis::resp::{self, Args};
use crate::redis::value::{
    Value, index_key, indexed, lasts, main_key, member_key, next_key, parse_bound, score_of,
    show_score,
};

/// Index records that are read at once.
const RANGE: u64 = 128;

pub(super) const NOT_A_FLOAT: Refusal = Refusal::Text("value is not a valid float");

impl<'a> Stage<'a> {
    /// How many members the key's sorted set has, if there is one.
    pub(super) fn sorted(&self) -> Result<Option<u64>, Refusal> {
        match self.mail.value(0)? {
            None => Ok(None),
            Some(Value::Sorted(count)) => Ok(Some(count)),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// Asks for the scores of members, which are each `step`th argument from
    /// `first` on.
    pub(super) fn ask_members(&self, job: &mut Job, first: usize, step: usize) -> Next {
        job.asked.clear();
        for member in self.args.from(first).step_by(step) {
            job.asked.push(|to| member_key(self.args.get(1), member, to));
        }
        job.stage = 1;
        Next::Get
    }

    /// The score of the member that was asked for as number `i`.
    pub(super) fn score(&self, i: usize) -> Result<Option<f64>, Refusal> {
        let score = self.mail.raw(i).map(|raw| raw.try_into().map(score_of));
        score.transpose().map_err(|_| Refusal::Damaged)
    }

    pub(super) fn zrem(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if job.stage == 0 {
            let Some(count) = self.sorted()? else { return self.int(0) };
            job.count = count;
            return Ok(self.ask_members(job, 2, 1));
        }
        let key = self.args.get(1);
        let mut gone = 0;
        for (i, is_last) in lasts(self.args.from(2)).into_iter().enumerate() {
            let member = self.args.get(2 + i);
            let Some(score) = self.score(i)?.filter(|_| is_last) else { continue };
            job.delete(|to| member_key(key, member, to));
            job.delete(|to| index_key(key, score, member, to));
            gone += 1;
        }
        resp::int(self.out, gone as i64);
        if gone == 0 {
            return Ok(Next::End);
        }
        if job.count <= gone {
            job.more_keys = -1;
            job.delete(|to| main_key(key, to));
        } else {
            let value = Value::Sorted(job.count - gone);
            job.put(|to| main_key(key, to), |to| value.store(to));
        }
        Ok(Next::WriteAndEnd)
    }

    pub(super) fn zcard(&mut self) -> Result<Next, Refusal> {
        let count = self.sorted()?.unwrap_or(0);
        self.int(count as i64)
    }

    pub(super) fn zscore(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if job.stage == 0 && self.sorted()?.is_some() {
            return Ok(self.ask_members(job, 2, 1));
        }
        let score = if job.stage == 0 { None } else { self.score(0)? };
        let mut text = String::new();
        if let Some(score) = score {
            show_score(score, &mut text);
        }
        resp::bulk_or_null(self.out, score.is_some().then_some(text.as_bytes()));
        Ok(Next::End)
    }

    /// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count].
    pub(super) fn zrange(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let range = Range::of(self.args)?;
        let key = self.args.get(1);
        if job.stage == 0 {
            if self.sorted()?.is_none() || range.count == 0 {
                resp::array(self.out, 0);
                return Ok(Next::End);
            }
            job.from.clear();
            index_key(key, range.min.0, b"", &mut job.from);
            (job.stage, job.count, job.left) = (1, 0, range.offset);
            return Ok(range.scan(job));
        }
        let (mut last, mut shown, mut is_over) = (None, String::new(), false);
        for (record, _) in self.mail.records() {
            let Some((score, member)) = indexed(record, key).filter(|found| range.reaches(found.0))
            else {
                is_over = true;
                break;
            };
            last = Some(record);
            if range.min.1 && score == range.min.0 {
                continue;
            }
            if job.left > 0 {
                job.left -= 1;
                continue;
            }
            resp::bulk(&mut job.text, member);
            if range.scores {
                show_score(score, &mut shown);
                resp::bulk(&mut job.text, shown.as_bytes());
            }
            job.count += 1;
            if job.count == range.count {
                is_over = true;
                break;
            }
        }
        if job.text.len() > MAX_REPLY {
            return Err(Refusal::TooLong);
        }
        if let Some(last) = last.filter(|_| !is_over) {
            job.from.clear();
            job.from.extend_from_slice(last);
            next_key(&mut job.from);
            return Ok(range.scan(job));
        }
        resp::array(self.out, job.count as usize * if range.scores { 2 } else { 1 });
        self.out.append(&mut job.text);
        Ok(Next::End)
    }
}

/// What ZRANGEBYSCORE asks for.
struct Range {
    /// Bounds, and whether they are outside.
    min: (f64, bool),
    max: (f64, bool),
    scores: bool,
    offset: u64,
    count: u64,
}

impl Range {
    fn of(args: Args<'_>) -> Result<Range, Refusal> {
        let (mut scores, mut offset, mut count) = (false, 0, u64::MAX);
        let mut options = args.from(4);
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"withscores") {
                scores = true;
            } else if option.eq_ignore_ascii_case(b"limit") {
                let (skip, most) = options.next().zip(options.next()).ok_or(SYNTAX)?;
                let number = |text| resp::integer(text).ok_or(NOT_AN_INTEGER);
                let (skip, most) = (number(skip)?, number(most)?);
                // A negative count is all; nothing is before the beginning.
                count = u64::try_from(most).unwrap_or(u64::MAX);
                match u64::try_from(skip) {
                    Ok(skip) => offset = skip,
                    Err(_) => count = 0,
                }
            } else {
                return Err(SYNTAX);
            }
        }
        // As in Redis: what is wrong with options is told first.
        let bound = |text: &[u8]| {
            let open = text.first() == Some(&b'(');
            // Nothing is zero, as for Redis.
            let score = match &text[usize::from(open)..] {
                [] => Some(0.0),
                text => parse_bound(text),
            };
            let wrong = Refusal::Text("min or max is not a float");
            Ok::<_, Refusal>((score.ok_or(wrong)?, open))
        };
        let (min, max) = (bound(args.get(2))?, bound(args.get(3))?);
        Ok(Range { min, max, scores, offset, count })
    }

    /// Whether a score is not above the range.
    fn reaches(&self, score: f64) -> bool {
        score < self.max.0 || (score == self.max.0 && !self.max.1)
    }

    /// The next records: no more than are left, and one that tells the end.
    fn scan(&self, job: &Job) -> Next {
        let left = (self.count - job.count).saturating_add(job.left);
        Next::Scan { count: left.min(RANGE), keys: true }
    }
}
