//! What each command does with what it has read.
//!
//! [`work`] is called when all that the last stage asked for is there. It puts
//! the reply behind `out` in its last call, or in the one that asks for the
//! last write: the reply is sent only when that is done.

use super::command::Command;
use super::database::{Common, Job, MAX_REPLY, Mail, Next, Refusal};
use super::glob;
use super::resp::{self, Args};
use super::value::{
    Field, Value, field, fields, index_key, indexed, main_key, member_key, ordered, pack,
    parse_score, score_of, show_score,
};

/// Members of a sorted set that are deleted in one step.
const CLEARED: u64 = 8;

/// Keys that are deleted in one step when all are.
const FLUSHED: u64 = 16;

/// Index records that are read at once.
const RANGE: u64 = 128;

/// Most keys that one SCAN looks at.
const SCANNED: u64 = 10_000;

const SYNTAX: Refusal = Refusal::Text("syntax error");
const NOT_AN_INTEGER: Refusal = Refusal::Text("value is not an integer or out of range");
const NOT_A_FLOAT: Refusal = Refusal::Text("value is not a valid float");

/// Stages that clear a sorted set which is deleted or overwritten.
const CLEAR: u8 = 100;

/// What a stage is given.
struct Stage<'a> {
    mail: &'a Mail,
    common: &'a mut Common,
    args: Args<'a>,
    out: &'a mut Vec<u8>,
}

/// The next stage of a command.
pub fn work(
    command: Command,
    job: &mut Job,
    mail: &Mail,
    common: &mut Common,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<Next, Refusal> {
    let mut stage = Stage { mail, common, args, out };
    let s = &mut stage;
    match command {
        _ if job.stage >= CLEAR => s.clear(job, command),
        Command::Get => s.get(),
        Command::MGet => s.mget(),
        Command::Exists => s.exists(),
        Command::StrLen => s.strlen(),
        Command::Type => s.kind(),
        Command::Set => s.set(job),
        Command::SetNx => s.set_nx(job),
        Command::MSet => s.mset(job),
        Command::Del => s.del(job),
        Command::Incr => s.add(job, 1),
        Command::Decr => s.add(job, -1),
        Command::IncrBy => {
            let by = resp::integer(args.get(2)).ok_or(NOT_AN_INTEGER)?;
            s.add(job, by)
        }
        Command::HSet | Command::HMSet => s.hset(job, command),
        Command::HDel => s.hdel(job),
        Command::HGet => s.hget(),
        Command::HMGet => s.hmget(),
        Command::HGetAll => s.hgetall(),
        Command::HLen => s.hlen(),
        Command::HExists => s.hexists(),
        Command::ZAdd => s.zadd(job),
        Command::ZRem => s.zrem(job),
        Command::ZCard => s.zcard(),
        Command::ZScore => s.zscore(job),
        Command::ZRangeByScore => s.zrange(job),
        Command::Scan => s.scan(job),
        Command::FlushAll => s.flush_all(job),
        _ => Err(Refusal::Text("the command has no keys")),
    }
}

impl<'a> Stage<'a> {
    /// The string of key `i`.
    fn string(&self, i: usize) -> Result<Option<&'a [u8]>, Refusal> {
        match self.mail.value(i)? {
            None => Ok(None),
            Some(Value::String(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// The packed hash of the key; empty when there is none.
    fn hash(&self) -> Result<&'a [u8], Refusal> {
        match self.mail.value(0)? {
            None => Ok(&[]),
            Some(Value::Hash(packed)) => Ok(packed),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// How many members the key's sorted set has, if there is one.
    fn sorted(&self) -> Result<Option<u64>, Refusal> {
        match self.mail.value(0)? {
            None => Ok(None),
            Some(Value::Sorted(count)) => Ok(Some(count)),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    fn int(&mut self, number: i64) -> Result<Next, Refusal> {
        resp::int(self.out, number);
        Ok(Next::End)
    }

    fn get(&mut self) -> Result<Next, Refusal> {
        let value = self.string(0)?;
        resp::bulk_or_null(self.out, value);
        Ok(Next::End)
    }

    fn mget(&mut self) -> Result<Next, Refusal> {
        let count = self.args.len() - 1;
        resp::array(self.out, count);
        for i in 0..count {
            let value = match self.mail.value(i)? {
                Some(Value::String(bytes)) => Some(bytes),
                _ => None,
            };
            resp::bulk_or_null(self.out, value);
        }
        Ok(Next::End)
    }

    fn exists(&mut self) -> Result<Next, Refusal> {
        let count = (0..self.args.len() - 1).filter(|&i| self.mail.raw(i).is_some()).count();
        self.int(count as i64)
    }

    fn strlen(&mut self) -> Result<Next, Refusal> {
        let len = self.string(0)?.map_or(0, <[u8]>::len);
        self.int(len as i64)
    }

    fn kind(&mut self) -> Result<Next, Refusal> {
        resp::simple(self.out, self.mail.value(0)?.map_or("none", Value::name));
        Ok(Next::End)
    }

    /// Begins to clear the first sorted set among the keys from `first` on, as
    /// they are overwritten or deleted.
    fn clear_sorted(&mut self, job: &mut Job, keys: usize, step: usize) -> Result<bool, Refusal> {
        for i in 0..keys {
            if let Some(Value::Sorted(count)) = self.mail.value(i)? {
                self.begin_clear(job, self.args.get(1 + i * step), count);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn begin_clear(&mut self, job: &mut Job, key: &[u8], count: u64) {
        job.text.clear();
        job.text.extend_from_slice(key);
        job.from.clear();
        member_key(key, b"", &mut job.from);
        job.left = count;
        (job.back, job.stage) = (job.stage, CLEAR);
    }

    /// Deletes some members of a sorted set, and at the end its record.
    fn clear(&mut self, job: &mut Job, command: Command) -> Result<Next, Refusal> {
        if job.stage == CLEAR + 1 {
            // Written; the set is gone when none are left.
            job.stage = CLEAR;
            if job.left > 0 {
                return Ok(Next::Scan { count: CLEARED, keys: true });
            }
            job.stage = job.back;
            return match command {
                Command::FlushAll => Ok(self.scan_all(job)),
                _ => Ok(Next::Get),
            };
        }
        let key = std::mem::take(&mut job.text);
        let mut start = Vec::new();
        member_key(&key, b"", &mut start);
        let mut found = 0;
        for (record, score) in self.mail.records() {
            let Some(member) = record.strip_prefix(&start[..]) else { break };
            let score = score_of(score.try_into().map_err(|_| Refusal::Damaged)?);
            job.delete(|to| to.extend_from_slice(record));
            job.delete(|to| index_key(&key, score, member, to));
            found += 1;
        }
        job.left = if found < CLEARED { 0 } else { job.left.saturating_sub(found) };
        if job.left == 0 {
            job.delete(|to| main_key(&key, to));
            job.more_keys = -1;
            job.count += 1;
        } else {
            let left = Value::Sorted(job.left);
            job.put(|to| main_key(&key, to), |to| left.store(to));
        }
        job.text = key;
        job.stage = CLEAR + 1;
        Ok(Next::Write)
    }

    fn set(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if job.stage == 0 {
            let is_there = self.mail.raw(0).is_some();
            for option in self.args.from(3) {
                let wanted = match option {
                    o if o.eq_ignore_ascii_case(b"nx") => false,
                    o if o.eq_ignore_ascii_case(b"xx") => true,
                    _ => return Err(SYNTAX),
                };
                if is_there != wanted {
                    resp::bulk_or_null(self.out, None);
                    return Ok(Next::End);
                }
            }
            job.stage = 1;
        }
        if self.clear_sorted(job, 1, 1)? {
            return Ok(Next::Scan { count: CLEARED, keys: true });
        }
        self.put_string(job);
        resp::simple(self.out, "OK");
        Ok(Next::WriteAndEnd)
    }

    fn put_string(&mut self, job: &mut Job) {
        job.more_keys = i64::from(self.mail.raw(0).is_none());
        let value = Value::String(self.args.get(2));
        job.put(|to| main_key(self.args.get(1), to), |to| value.store(to));
    }

    fn set_nx(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if self.mail.raw(0).is_some() {
            return self.int(0);
        }
        self.put_string(job);
        resp::int(self.out, 1);
        Ok(Next::WriteAndEnd)
    }

    fn mset(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let count = (self.args.len() - 1) / 2;
        if self.clear_sorted(job, count, 2)? {
            return Ok(Next::Scan { count: CLEARED, keys: true });
        }
        for i in 0..count {
            let key = self.args.get(1 + 2 * i);
            let is_last = !self.args.from(3 + 2 * i).step_by(2).any(|later| later == key);
            if !is_last {
                continue;
            }
            job.more_keys += i64::from(self.mail.raw(i).is_none());
            let value = Value::String(self.args.get(2 + 2 * i));
            job.put(|to| main_key(key, to), |to| value.store(to));
        }
        resp::simple(self.out, "OK");
        Ok(Next::WriteAndEnd)
    }

    fn del(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let count = self.args.len() - 1;
        if self.clear_sorted(job, count, 1)? {
            return Ok(Next::Scan { count: CLEARED, keys: true });
        }
        let mut gone = 0;
        for i in 0..count {
            let key = self.args.get(1 + i);
            if self.mail.raw(i).is_some() && !self.args.from(2 + i).any(|later| later == key) {
                job.delete(|to| main_key(key, to));
                gone += 1;
            }
        }
        job.more_keys = -gone;
        resp::int(self.out, gone + job.count as i64);
        Ok(if gone > 0 { Next::WriteAndEnd } else { Next::End })
    }

    fn add(&mut self, job: &mut Job, by: i64) -> Result<Next, Refusal> {
        let now = self.string(0)?.map_or(Some(0), resp::integer).ok_or(NOT_AN_INTEGER)?;
        let sum =
            now.checked_add(by).ok_or(Refusal::Text("increment or decrement would overflow"))?;
        job.more_keys = i64::from(self.mail.raw(0).is_none());
        let text = sum.to_string();
        let value = Value::String(text.as_bytes());
        job.put(|to| main_key(self.args.get(1), to), |to| value.store(to));
        resp::int(self.out, sum);
        Ok(Next::WriteAndEnd)
    }

    fn hset(&mut self, job: &mut Job, command: Command) -> Result<Next, Refusal> {
        if self.args.len() % 2 == 1 {
            return Err(Refusal::Text(
                "wrong number of arguments for a hash: name a value for each field",
            ));
        }
        let mut all: Vec<Field<'_>> = fields(self.hash()?).collect();
        let before = all.len();
        for i in (2..self.args.len()).step_by(2) {
            let (name, value) = (self.args.get(i), self.args.get(i + 1));
            match all.iter_mut().find(|field| field.0 == name) {
                Some(field) => field.1 = value,
                None => all.push((name, value)),
            }
        }
        job.more_keys = i64::from(self.mail.raw(0).is_none());
        let packed = pack(all.iter().copied());
        job.put(|to| main_key(self.args.get(1), to), |to| Value::Hash(&packed).store(to));
        match command {
            Command::HMSet => resp::simple(self.out, "OK"),
            _ => resp::int(self.out, (all.len() - before) as i64),
        }
        Ok(Next::WriteAndEnd)
    }

    fn hdel(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let packed = self.hash()?;
        let gone = |name: &[u8]| self.args.from(2).any(|arg| arg == name);
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

    fn hget(&mut self) -> Result<Next, Refusal> {
        let value = field(self.hash()?, self.args.get(2));
        resp::bulk_or_null(self.out, value);
        Ok(Next::End)
    }

    fn hmget(&mut self) -> Result<Next, Refusal> {
        let packed = self.hash()?;
        resp::array(self.out, self.args.len() - 2);
        let start = self.out.len();
        for name in self.args.from(2) {
            resp::bulk_or_null(self.out, field(packed, name));
            if self.out.len() - start > MAX_REPLY {
                return Err(Refusal::TooLong);
            }
        }
        Ok(Next::End)
    }

    fn hgetall(&mut self) -> Result<Next, Refusal> {
        let packed = self.hash()?;
        resp::array(self.out, 2 * fields(packed).count());
        for (name, value) in fields(packed) {
            resp::bulk(self.out, name);
            resp::bulk(self.out, value);
        }
        Ok(Next::End)
    }

    fn hlen(&mut self) -> Result<Next, Refusal> {
        let count = fields(self.hash()?).count();
        self.int(count as i64)
    }

    fn hexists(&mut self) -> Result<Next, Refusal> {
        let found = field(self.hash()?, self.args.get(2)).is_some();
        self.int(i64::from(found))
    }

    /// Asks for the scores of members, which are each `step`th argument from
    /// `first` on.
    fn ask_members(&self, job: &mut Job, first: usize, step: usize) -> Next {
        job.asked.clear();
        for member in self.args.from(first).step_by(step) {
            job.asked.push(|to| member_key(self.args.get(1), member, to));
        }
        job.stage = 1;
        Next::Get
    }

    /// The score of the member that was asked for as number `i`.
    fn score(&self, i: usize) -> Result<Option<f64>, Refusal> {
        let score = self.mail.raw(i).map(|raw| raw.try_into().map(score_of));
        score.transpose().map_err(|_| Refusal::Damaged)
    }

    fn zadd(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if self.args.len() % 2 == 1 {
            return Err(SYNTAX);
        }
        if job.stage == 0 {
            let count = self.sorted()?;
            (job.count, job.left) = (count.unwrap_or(0), u64::from(count.is_none()));
            for score in self.args.from(2).step_by(2) {
                parse_score(score).ok_or(NOT_A_FLOAT)?;
            }
            return Ok(self.ask_members(job, 3, 2));
        }
        let key = self.args.get(1);
        let mut added = 0;
        for i in 0..(self.args.len() - 2) / 2 {
            let member = self.args.get(3 + 2 * i);
            if self.args.from(5 + 2 * i).step_by(2).any(|later| later == member) {
                continue;
            }
            let score = parse_score(self.args.get(2 + 2 * i)).ok_or(NOT_A_FLOAT)?;
            match self.score(i)? {
                None => added += 1,
                Some(old) if old == score => continue,
                Some(old) => job.delete(|to| index_key(key, old, member, to)),
            }
            let value = ordered(score);
            job.put(|to| member_key(key, member, to), |to| to.extend_from_slice(&value));
            job.put(|to| index_key(key, score, member, to), |_| {});
        }
        resp::int(self.out, added as i64);
        if added > 0 {
            job.more_keys = job.left as i64;
            let value = Value::Sorted(job.count + added);
            job.put(|to| main_key(key, to), |to| value.store(to));
        }
        Ok(if job.has_writes() { Next::WriteAndEnd } else { Next::End })
    }

    fn zrem(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if job.stage == 0 {
            let Some(count) = self.sorted()? else { return self.int(0) };
            job.count = count;
            return Ok(self.ask_members(job, 2, 1));
        }
        let key = self.args.get(1);
        let mut gone = 0;
        for i in 0..self.args.len() - 2 {
            let member = self.args.get(2 + i);
            let Some(score) = self.score(i)? else { continue };
            if self.args.from(3 + i).any(|later| later == member) {
                continue;
            }
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

    fn zcard(&mut self) -> Result<Next, Refusal> {
        let count = self.sorted()?.unwrap_or(0);
        self.int(count as i64)
    }

    fn zscore(&mut self, job: &mut Job) -> Result<Next, Refusal> {
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
    fn zrange(&mut self, job: &mut Job) -> Result<Next, Refusal> {
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
            job.from.push(0);
            return Ok(range.scan(job));
        }
        resp::array(self.out, job.count as usize * if range.scores { 2 } else { 1 });
        self.out.append(&mut job.text);
        Ok(Next::End)
    }

    /// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type].
    fn scan(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let (mut pattern, mut kind, mut count) = (None, None, 10);
        let mut options = self.args.from(2);
        while let Some(option) = options.next() {
            let value = options.next().ok_or(SYNTAX)?;
            match option {
                o if o.eq_ignore_ascii_case(b"match") => pattern = Some(value),
                o if o.eq_ignore_ascii_case(b"type") => kind = Some(value),
                o if o.eq_ignore_ascii_case(b"count") => {
                    let wanted = resp::integer(value).ok_or(NOT_AN_INTEGER)?;
                    count = u64::try_from(wanted).ok().filter(|&n| n > 0).ok_or(SYNTAX)?;
                }
                _ => return Err(SYNTAX),
            }
        }
        let count = count.min(SCANNED);
        if job.stage == 0 {
            let invalid = Refusal::Text("invalid cursor");
            let cursor = resp::integer(self.args.get(1)).and_then(|c| u64::try_from(c).ok());
            let cursor = cursor.ok_or_else(|| invalid.clone())?;
            job.from.clear();
            job.from.push(b'k');
            if cursor != 0 {
                let last = self.common.cursors.find(cursor).ok_or(invalid)?;
                job.from.extend_from_slice(last);
                job.from.push(0);
            }
            job.stage = 1;
            return Ok(Next::Scan { count, keys: true });
        }
        let (mut keys, mut last) = (Vec::new(), None);
        for (record, value) in self.mail.records() {
            let Some(key) = record.strip_prefix(b"k") else { break };
            last = Some(key);
            let name = Value::of(value).ok_or(Refusal::Damaged)?.name().as_bytes();
            let fits = pattern.is_none_or(|pattern| glob::matches(pattern, key))
                && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(name));
            if fits {
                keys.push(key);
            }
        }
        // A short scan has come to the end; so has one that met other records.
        let all = self.mail.records();
        let is_whole = all.len() as u64 == count && all.last().is_some_and(|r| r.0[0] == b'k');
        let next = match last.filter(|_| is_whole) {
            Some(last) => self.common.cursors.add(last),
            None => 0,
        };
        resp::array(self.out, 2);
        resp::bulk(self.out, next.to_string().as_bytes());
        resp::array(self.out, keys.len());
        keys.iter().for_each(|key| resp::bulk(self.out, key));
        Ok(Next::End)
    }

    fn scan_all(&self, job: &mut Job) -> Next {
        job.from.clear();
        job.from.push(b'k');
        job.stage = 1;
        Next::Scan { count: FLUSHED, keys: true }
    }

    /// Deletes all keys, some at a time, sorted sets one by one.
    fn flush_all(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if job.stage != 1 {
            return Ok(self.scan_all(job));
        }
        let mut gone = 0;
        for (record, value) in self.mail.records() {
            let Some(key) = record.strip_prefix(b"k") else { break };
            if let Some(Value::Sorted(count)) = Value::of(value) {
                if gone > 0 {
                    break;
                }
                self.begin_clear(job, key, count);
                return Ok(Next::Scan { count: CLEARED, keys: true });
            }
            job.delete(|to| to.extend_from_slice(record));
            gone += 1;
        }
        if gone == 0 {
            resp::simple(self.out, "OK");
            return Ok(Next::End);
        }
        job.more_keys = -gone;
        job.stage = 2;
        Ok(Next::Write)
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
        let bound = |text: &[u8]| {
            let open = text.first() == Some(&b'(');
            let score = parse_score(&text[usize::from(open)..]);
            let wrong = Refusal::Text("min or max is not a float");
            Ok::<_, Refusal>((score.ok_or(wrong)?, open))
        };
        let (min, max) = (bound(args.get(2))?, bound(args.get(3))?);
        let (mut scores, mut offset, mut count) = (false, 0, u64::MAX);
        let mut options = args.from(4);
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"withscores") {
                scores = true;
            } else if option.eq_ignore_ascii_case(b"limit") {
                let mut number =
                    || resp::integer(options.next().ok_or(SYNTAX)?).ok_or(NOT_AN_INTEGER);
                let (skip, most) = (number()?, number()?);
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
