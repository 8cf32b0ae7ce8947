//! Keys of any kind: whether they are there, which there are, and their end.

use btree::{MAX_KEY, PAGE_BYTES};

use super::{CLEAR, NOT_AN_INTEGER, SYNTAX, Stage};
use crate::redis::command::{Command, Keys};
use crate::redis::database::{PORTION, Refusal};
use crate::redis::glob::Pattern;
use crate::redis::job::{Job, Next};
use crate::redis::mutation::{self, Mutation};
use crate::redis::resp::{self, Args};
use crate::redis::value::{
    FORMAT_KEY, Value, index_key, lasts, main_key, member_key, next_key, score_of,
};

/// Members of a sorted set that are deleted in one step.
const CLEARED: u64 = 8;

/// The stage of a command for whose writes there is room, and which clears what they replace.
const TRIED: u8 = 2;

/// Pages that a sorted set gives up, at least: each member has two records, whose keys have that
/// of the set and ten bytes more. Of either kind the first leaf and the last may stay.
fn pages_of(key: &[u8], members: u64) -> u64 {
    (members.saturating_mul(2 * (key.len() as u64 + 10)) / PAGE_BYTES as u64).saturating_sub(4)
}

/// Keys that are deleted in one step when all are.
const FLUSHED: u64 = 16;
/// The same where each is deleted by itself.
const FLUSHED_SINGLY: u64 = 256;

/// Most keys that one SCAN looks at, and how many at once.
const SCANNED: u64 = 10_000;
const SCANNED_AT_ONCE: u64 = 256;

const NO_TYPES: Refusal = Refusal::Text(
    "SCAN with TYPE reads values, which a drive with target=kv does not list: leave TYPE out",
);

/// Steps of patterns that are taken at once.
const STEPS: u64 = 512 << 10;

impl<'a> Stage<'a> {
    /// Asks for the next keys of a command that goes through them. False when
    /// there are none.
    pub(super) fn next_keys(&self, job: &mut Job) -> bool {
        job.next += job.asked.len();
        job.asked.clear();
        for key in self.args.from(1 + job.next).take(PORTION) {
            job.asked.push(|to| main_key(key, to));
        }
        job.asked.len() > 0
    }

    pub(super) fn exists(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        job.count += (0..job.asked.len()).filter(|&i| self.mail.raw(i).is_some()).count() as u64;
        if self.next_keys(job) {
            return Ok(Next::Get);
        }
        self.int(job.count as i64)
    }

    pub(super) fn kind(&mut self) -> Result<Next, Refusal> {
        resp::simple(self.out, self.mail.value(0)?.map_or("none", Value::name));
        Ok(Next::End)
    }

    /// Begins to clear the sorted sets among `keys`, which were read, as they
    /// are overwritten or deleted: one after the other, and then all are read
    /// again. False when there are none.
    fn clear_sorted<'k>(
        &self,
        job: &mut Job,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
    ) -> Result<bool, Refusal> {
        let step = if job.found.is_some_and(|found| found.keys == Keys::Pairs) { 2 } else { 1 };
        let mut is_last = Vec::new();
        for (i, _) in keys.clone().enumerate() {
            let Some(Value::Sorted(count)) = self.mail.value(i)? else { continue };
            if is_last.is_empty() {
                is_last = lasts(keys.clone());
            }
            if is_last[i] {
                job.sets.push((1 + i * step, count));
            }
        }
        Ok(self.clear_next(job))
    }

    /// Clears the sorted sets among `keys`, which were read, for what `put` adds to the job to stand
    /// in their places: if there would be room for that, for else they are to stay. `None` when
    /// there are none, or no more.
    pub(super) fn clear_overwritten<'k>(
        &mut self,
        job: &mut Job,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        put: impl FnOnce(&mut Self, &mut Job),
    ) -> Result<Option<Next>, Refusal> {
        if job.stage == TRIED {
            job.clear_writes();
            let clears = self.clear_sorted(job, keys)?;
            return Ok(clears.then_some(Next::Scan { count: CLEARED, keys: true }));
        }
        let mut freed = None;
        for (i, key) in keys.enumerate() {
            if let Some(Value::Sorted(count)) = self.mail.value(i)? {
                *freed.get_or_insert(0) += pages_of(key, count);
            }
        }
        let Some(freed) = freed else { return Ok(None) };
        put(self, job);
        (job.stage, job.left) = (TRIED, freed);
        Ok(Some(Next::Try))
    }

    /// Begins with the next sorted set that is to be cleared.
    fn clear_next(&self, job: &mut Job) -> bool {
        let Some((arg, count)) = job.sets.pop() else { return false };
        self.begin_clear(job, self.args.get(arg), count);
        true
    }

    fn begin_clear(&self, job: &mut Job, key: &[u8], count: u64) {
        job.key.clear();
        job.key.extend_from_slice(key);
        job.from.clear();
        member_key(key, b"", &mut job.from);
        job.left = count;
        if job.stage < CLEAR {
            job.back = job.stage;
        }
        job.stage = CLEAR;
    }

    /// Deletes some members of a sorted set, and at the end its record.
    pub(super) fn clear(&mut self, job: &mut Job, command: Command) -> Result<Next, Refusal> {
        if job.stage == CLEAR + 1 {
            // Written; the set is gone when none are left.
            job.stage = CLEAR;
            if job.left > 0 {
                return Ok(Next::Scan { count: CLEARED, keys: true });
            }
            if self.clear_next(job) {
                return Ok(Next::Scan { count: CLEARED, keys: true });
            }
            job.stage = job.back;
            return match command {
                Command::FlushAll => Ok(self.scan_all(job)),
                _ => Ok(Next::Get),
            };
        }
        let key = std::mem::take(&mut job.key);
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
        job.key = key;
        job.stage = CLEAR + 1;
        Ok(Next::Write)
    }

    pub(super) fn del(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        if let Some(next) = self.clear_overwritten(job, self.args.from(1), Self::delete_plain)? {
            return Ok(next);
        }
        self.delete_plain(job);
        let gone = -job.more_keys;
        let told = if mutation::is(Mutation::DeleteUntold) { 0 } else { gone };
        resp::int(self.out, told + job.count as i64);
        Ok(if gone > 0 { Next::WriteAndEnd } else { Next::End })
    }

    /// Deletes all keys that are there, but for sorted sets.
    fn delete_plain(&mut self, job: &mut Job) {
        for (i, is_last) in lasts(self.args.from(1)).into_iter().enumerate() {
            let is_sorted = matches!(self.mail.value(i), Ok(Some(Value::Sorted(_))));
            if is_last && self.mail.raw(i).is_some() && !is_sorted {
                job.delete(|to| main_key(self.args.get(1 + i), to));
                job.more_keys -= 1;
            }
        }
    }

    /// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type].
    pub(super) fn scan(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        match job.stage {
            0 => self.begin_scan(job),
            _ => self.scan_some(job),
        }
    }

    fn begin_scan(&self, job: &mut Job) -> Result<Next, Refusal> {
        let wanted = Wanted::of(self.args)?;
        job.pattern = wanted.pattern.map(|pattern| Pattern::new(pattern, MAX_KEY));
        job.left = wanted.count.min(SCANNED);
        let invalid = Refusal::Text("invalid cursor");
        let cursor = resp::integer(self.args.get(1)).and_then(|c| u64::try_from(c).ok());
        let cursor = cursor.ok_or_else(|| invalid.clone())?;
        if wanted.kind.is_some() && !self.common.is_ordered {
            return Err(NO_TYPES);
        }
        match cursor {
            0 => self.scan_from_first(job),
            cursor => {
                let last = self.common.cursors.find(cursor).ok_or(invalid)?;
                job.from.clear();
                job.from.extend_from_slice(last);
                self.scan_behind(job);
            }
        }
        job.stage = 1;
        Ok(Next::Scan { count: job.left.min(SCANNED_AT_ONCE), keys: true })
    }

    /// Looks at some of the keys that were asked for.
    fn scan_some(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let kind = Wanted::of(self.args)?.kind;
        let count = job.left.min(SCANNED_AT_ONCE);
        let all = self.mail.records();
        let is_short = (all.len() as u64) < count;
        let (mut is_over, mut last) = (is_short, None);
        for (record, value) in all.skip(job.next) {
            let key = record.strip_prefix(b"k");
            if key.is_none() && record != FORMAT_KEY {
                is_over = true;
                break;
            }
            if job.steps > STEPS {
                return Ok(Next::Later);
            }
            (last, job.next) = (Some(record), job.next + 1);
            let Some(key) = key else { continue };
            let steps = &mut job.steps;
            let fits = job.pattern.as_ref().is_none_or(|pattern| pattern.matches(key, steps));
            let fits = fits && (!self.common.is_ordered || is_kind(kind, value)?);
            let fits = fits && !mutation::is(Mutation::ScanNothing);
            if fits {
                resp::bulk(&mut job.text, key);
                job.count += 1;
            }
        }
        job.left -= count;
        job.next = 0;
        let mut cursor = 0;
        if let Some(last) = last.filter(|_| !is_over) {
            if job.left > 0 {
                job.from.clear();
                job.from.extend_from_slice(last);
                self.scan_behind(job);
                return Ok(Next::Scan { count: job.left.min(SCANNED_AT_ONCE), keys: true });
            }
            cursor = self.common.cursors.add(last);
        }
        resp::array(self.out, 2);
        resp::bulk(self.out, cursor.to_string().as_bytes());
        resp::array(self.out, job.count as usize);
        self.out.append(&mut job.text);
        Ok(Next::End)
    }

    /// Scans from the first key on.
    fn scan_from_first(&self, job: &mut Job) {
        job.from.clear();
        if self.common.is_ordered {
            job.from.push(b'k');
        }
    }

    /// Scans behind [`Job::from`], which a drive does anyway.
    fn scan_behind(&self, job: &mut Job) {
        if self.common.is_ordered {
            next_key(&mut job.from);
        }
    }

    fn scan_all(&self, job: &mut Job) -> Next {
        self.scan_from_first(job);
        self.scan_next(job)
    }

    fn scan_next(&self, job: &mut Job) -> Next {
        job.stage = 1;
        let count = if self.common.is_ordered { FLUSHED } else { FLUSHED_SINGLY };
        Next::Scan { count, keys: true }
    }

    /// Deletes all keys, some at a time, sorted sets one by one.
    pub(super) fn flush_all(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let is_how =
            |how: &[u8]| [&b"sync"[..], b"async"].iter().any(|o| how.eq_ignore_ascii_case(o));
        if self.args.len() > 2 || !self.args.from(1).all(is_how) {
            return Err(SYNTAX);
        }
        match job.stage {
            1 => {}
            // A drive goes on behind what is gone.
            2 if !self.common.is_ordered => return Ok(self.scan_next(job)),
            _ => return Ok(self.scan_all(job)),
        }
        let mut gone = 0;
        for (record, value) in self.mail.records() {
            if record == FORMAT_KEY {
                continue;
            }
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
        if let Some((last, _)) = self.mail.records().last() {
            job.from.clear();
            job.from.extend_from_slice(last);
        }
        job.more_keys = -gone;
        job.stage = 2;
        Ok(Next::Write)
    }
}

/// Whether a value is of the kind that is asked for, if one is.
fn is_kind(kind: Option<&[u8]>, value: &[u8]) -> Result<bool, Refusal> {
    let name = Value::of(value).ok_or(Refusal::Damaged)?.name().as_bytes();
    Ok(kind.is_none_or(|kind| kind.eq_ignore_ascii_case(name)))
}

/// What SCAN asks for.
struct Wanted<'a> {
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    count: u64,
}

impl<'a> Wanted<'a> {
    fn of(args: Args<'a>) -> Result<Wanted<'a>, Refusal> {
        let mut wanted = Wanted { pattern: None, kind: None, count: 10 };
        let mut options = args.from(2);
        while let Some(option) = options.next() {
            let value = options.next().ok_or(SYNTAX)?;
            match option {
                o if o.eq_ignore_ascii_case(b"match") => wanted.pattern = Some(value),
                o if o.eq_ignore_ascii_case(b"type") => wanted.kind = Some(value),
                o if o.eq_ignore_ascii_case(b"count") => {
                    let count = resp::integer(value).ok_or(NOT_AN_INTEGER)?;
                    wanted.count = u64::try_from(count).ok().filter(|&n| n > 0).ok_or(SYNTAX)?;
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(wanted)
    }
}
