//! Hashes.

use super::{FIRST, PIECE, Stage};
use crate::redis::command::Command;
use crate::redis::database::Refusal;
use crate::redis::job::{Job, Next};
use crate::redis::mail::MAX_REPLY;
use crate::redis::resp;
use crate::redis::value::{Fields, Names, Value, field, fields, main_key, pack};

/// Bytes of all fields of a hash, packed, on drives that take longer values: each change
/// packs all of them anew, and HGETALL tells them in one piece.
const MAX_HASH: usize = 1 << 20;

impl<'a> Stage<'a> {
    /// The packed hash of the key; empty when there is none.
    fn hash(&self) -> Result<&'a [u8], Refusal> {
        match self.mail.value(0)? {
            None => Ok(&[]),
            Some(Value::Hash(packed)) => Ok(packed),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    pub(super) fn hset(&mut self, job: &mut Job, command: Command) -> Result<Next, Refusal> {
        if self.args.len() % 2 == 1 {
            return Err(Refusal::Text(match command {
                Command::HMSet => "wrong number of arguments for 'hmset' command",
                _ => "wrong number of arguments for 'hset' command",
            }));
        }
        let mut all = Fields::of(self.hash()?);
        let before = all.all.len();
        for i in (2..self.args.len()).step_by(2) {
            all.set(self.args.get(i), self.args.get(i + 1));
        }
        let all = all.all;
        let packed = pack(all.iter().copied());
        if packed.len() > MAX_HASH {
            return Err(Refusal::Text("a hash has at most 1 MiB in all its fields"));
        }
        job.more_keys = i64::from(self.mail.raw(0).is_none());
        job.put(|to| main_key(self.args.get(1), to), |to| Value::Hash(&packed).store(to));
        match command {
            Command::HMSet => resp::simple(self.out, "OK"),
            _ => resp::int(self.out, (all.len() - before) as i64),
        }
        Ok(Next::WriteAndEnd)
    }

    pub(super) fn hdel(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let packed = self.hash()?;
        let names = Names::of(self.args.from(2));
        let gone = |name: &[u8]| names.has(name);
        let count = fields(packed).filter(|field| gone(field.0)).count();
        let left = pack(fields(packed).filter(|field| !gone(field.0)));
        resp::int(self.out, count as i64);
        if count == 0 {
            return Ok(Next::End);
        }
        if left.is_empty() {
            job.more_keys = -1;
            job.delete(|to| main_key(self.args.get(1), to));
        } else {
            job.put(|to| main_key(self.args.get(1), to), |to| Value::Hash(&left).store(to));
        }
        Ok(Next::WriteAndEnd)
    }

    pub(super) fn hget(&mut self) -> Result<Next, Refusal> {
        let value = field(self.hash()?, self.args.get(2));
        resp::bulk_or_null(self.out, value);
        Ok(Next::End)
    }

    /// A piece of the reply at a time.
    pub(super) fn hmget(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let packed = self.hash()?;
        let most = if job.next == 0 { FIRST } else { PIECE };
        if job.next == 0 {
            resp::array(self.out, self.args.len() - 2);
        }
        if self.args.len() == 3 {
            resp::bulk_or_null(self.out, field(packed, self.args.get(2)));
            return Ok(Next::End);
        }
        let (mut fields, before) = (Fields::of(packed), self.out.end());
        for name in self.args.from(2 + job.next) {
            let value = fields.find(name).map(|i| fields.all[i].1);
            resp::bulk_or_null(self.out, value);
            job.next += 1;
            if self.out.end() - job.reply > MAX_REPLY as u64 {
                return Err(Refusal::TooLong);
            }
            if self.out.end() - before > most {
                return Ok(Next::Later);
            }
        }
        Ok(Next::End)
    }

    pub(super) fn hgetall(&mut self) -> Result<Next, Refusal> {
        let packed = self.hash()?;
        resp::array(self.out, 2 * fields(packed).count());
        for (name, value) in fields(packed) {
            resp::bulk(self.out, name);
            resp::bulk(self.out, value);
        }
        Ok(Next::End)
    }

    pub(super) fn hlen(&mut self) -> Result<Next, Refusal> {
        let count = fields(self.hash()?).count();
        self.int(count as i64)
    }

    pub(super) fn hexists(&mut self) -> Result<Next, Refusal> {
        let found = field(self.hash()?, self.args.get(2)).is_some();
        self.int(i64::from(found))
    }
}
