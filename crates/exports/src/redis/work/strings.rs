//! Strings.

use super::{NO_EXPIRY, NOT_AN_INTEGER, SYNTAX, Stage};
use crate::redis::database::Refusal;
use crate::redis::job::{Job, Next};
use crate::redis::mail::MAX_REPLY;
use crate::redis::mutation::{self, Mutation};
use crate::redis::resp;
use crate::redis::value::{Value, lasts, main_key};

impl<'a> Stage<'a> {
    /// The string of key `i`.
    fn string(&self, i: usize) -> Result<Option<&'a [u8]>, Refusal> {
        match self.mail.value(i)? {
            None => Ok(None),
            Some(Value::String(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    pub(super) fn get(&mut self) -> Result<Next, Refusal> {
        let value = self.string(0)?;
        resp::bulk_or_null(self.out, value);
        Ok(Next::End)
    }

    /// Some keys at a time: what is told of them is given on, and then the next
    /// are asked for.
    pub(super) fn mget(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if job.next == 0 {
            resp::array(self.out, self.args.len() - 1);
        }
        for i in 0..job.asked.len() {
            let value = match self.mail.value(i)? {
                Some(Value::String(bytes)) => Some(bytes),
                _ => None,
            };
            resp::bulk_or_null(self.out, value);
        }
        if self.out.end() - job.reply > MAX_REPLY as u64 {
            return Err(Refusal::TooLong);
        }
        Ok(if self.next_keys(job) { Next::Get } else { Next::End })
    }

    pub(super) fn strlen(&mut self) -> Result<Next, Refusal> {
        let len = self.string(0)?.map_or(0, <[u8]>::len);
        self.int(len as i64)
    }

    pub(super) fn set(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let mut wanted = None;
        for option in self.args.from(3) {
            let is = |names: &[&str]| {
                names.iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
            };
            let there = match option {
                _ if is(&["nx"]) => false,
                _ if is(&["xx"]) => true,
                _ if is(&["ex", "px", "exat", "pxat", "keepttl"]) => return Err(NO_EXPIRY),
                _ => return Err(SYNTAX),
            };
            if *wanted.get_or_insert(there) != there {
                return Err(SYNTAX);
            }
        }
        let is_there = self.mail.raw(0).is_some();
        if wanted.is_some_and(|wanted| wanted != is_there) {
            resp::bulk_or_null(self.out, None);
            return Ok(Next::End);
        }
        self.put_string(job);
        resp::simple(self.out, "OK");
        self.write_over(job, self.args.from(1).take(1))
    }

    pub(super) fn put_string(&mut self, job: &mut Job) {
        job.more_keys = i64::from(self.mail.raw(0).is_none());
        let value = Value::String(self.args.get(2));
        job.put(|to| main_key(self.args.get(1), to), |to| value.store(to));
    }

    pub(super) fn set_nx(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let is_there = self.mail.raw(0).is_some();
        if is_there && !mutation::is(Mutation::SetAnyway) {
            return self.int(0);
        }
        self.put_string(job);
        resp::int(self.out, i64::from(!is_there));
        Ok(Next::WriteAndEnd)
    }

    pub(super) fn mset(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let keys = || self.args.from(1).step_by(2);
        // Of a key that is named more than once the last value counts.
        for (i, is_last) in lasts(keys()).into_iter().enumerate() {
            if !is_last {
                continue;
            }
            job.more_keys += i64::from(self.mail.raw(i).is_none());
            let value = Value::String(self.args.get(2 + 2 * i));
            job.put(|to| main_key(self.args.get(1 + 2 * i), to), |to| value.store(to));
        }
        resp::simple(self.out, "OK");
        self.write_over(job, keys())
    }

    pub(super) fn add(&mut self, job: &mut Job, by: i64) -> Result<Next, Refusal> {
        let now = self.string(0)?.map_or(Some(0), resp::integer).ok_or(NOT_AN_INTEGER)?;
        let sum =
            now.checked_add(by).ok_or(Refusal::Text("increment or decrement would overflow"))?;
        job.more_keys = i64::from(self.mail.raw(0).is_none());
        let lost = i64::from(mutation::is(Mutation::LoseCount) && sum % 2 == 0);
        let text = (sum - lost).to_string();
        let value = Value::String(text.as_bytes());
        job.put(|to| main_key(self.args.get(1), to), |to| value.store(to));
        resp::int(self.out, sum);
        Ok(Next::WriteAndEnd)
    }
}
