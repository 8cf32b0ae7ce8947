//! Keys of any kind: whether they are there, which there are, and their end.

use btree::MAX_KEY;

use super::{CLEAR, NOT_AN_INTEGER, SYNTAX, Stage};
use crate::redis::command::{Command, Keys};
use crate::redis::database::{PORTION, Refusal};
use crate::redis::glob::Pattern;
use crate::redis::job::{Job, Next};
use crate::redis::mutation::{self, Mutation};
use crate::redis::resp::{self, Args};
use crate::redis::value::{
    FORMAT_KEY, Value, index_key, lasts, main_key, member_key, member_of, next_key, score_of,
};

/// Members of a sorted set that are deleted in one step.
const CLEARED: u64 = 8;

/// Keys that are deleted in one step when all are.
const FLUSHED: u64 = 16;
/// The same where each is deleted by itself.
const FLUSHED_SINGLY: u64 = 256;

/// The stage in which all members are deleted, and behind it the one after a part of them.
const MEMBERS: u8 = 3;

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

    /// Ends a command that writes over `keys`, which were read, or deletes them: what it has to
    /// write is written as one, and only then the members of sorted sets go that were there, some
    /// at a time. Those that a cut leaves are of no set, and go before one of that key begins.
    pub(super) fn write_over<'k>(
        &self,
        job: &mut Job,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Next, Refusal> {
        let step = if job.found.is_some_and(|found| found.keys == Keys::Pairs) { 2 } else { 1 };
        for (i, _) in keys.enumerate() {
            // A drive of keys has no sets.
            if self.common.is_ordered && matches!(self.mail.value(i)?, Some(Value::Sorted(_))) {
                job.sets.push(1 + i * step);
            }
        }
        if job.sets.is_empty() {
            return Ok(Next::WriteAndEnd);
        }
        job.from.clear();
        job.stage = CLEAR + 1;
        Ok(Next::Write)
    }

    /// Asks for members that a key has.
    pub(super) fn ask_left_over(&self, job: &mut Job, key: &[u8]) -> Next {
        job.from.clear();
        member_key(key, b"", &mut job.from);
        job.stage = CLEAR;
        Next::Scan { count: CLEARED, keys: true }
    }

    /// Deletes some members of what is no sorted set any more, and then those of the next.
    pub(super) fn clear(&mut self, job: &mut Job, command: Command) -> Result<Next, Refusal> {
        if job.stage == CLEAR + 1 && !job.from.is_empty() {
            // Written; there may be more of them.
            job.stage = CLEAR;
            return Ok(Next::Scan { count: CLEARED, keys: true });
        }
        if job.stage == CLEAR {
            let start = std::mem::take(&mut job.from);
            let members = self.mail.records().take_while(|(record, _)| record.starts_with(&start));
            for (record, score) in members {
                self.delete_member(job, record, score)?;
            }
            job.from = start;
            if job.has_writes() {
                job.stage = CLEAR + 1;
                return Ok(Next::Write);
            }
        }
        match (job.sets.pop(), command) {
            (Some(arg), _) => Ok(self.ask_left_over(job, self.args.get(arg))),
            (None, Command::ZAdd) => self.ask_scores(job),
            (None, _) => Ok(Next::End),
        }
    }

    /// Deletes the records of a member, of which `record` is one.
    fn delete_member(&self, job: &mut Job, record: &[u8], score: &[u8]) -> Result<(), Refusal> {
        let (key, member) = member_of(record).ok_or(Refusal::Damaged)?;
        let score = score_of(score.try_into().map_err(|_| Refusal::Damaged)?);
        job.delete(|to| to.extend_from_slice(record));
        job.delete(|to| index_key(key, score, member, to));
        Ok(())
    }

    pub(super) fn del(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        for (i, is_last) in lasts(self.args.from(1)).into_iter().enumerate() {
            if is_last && self.mail.raw(i).is_some() {
                job.delete(|to| main_key(self.args.get(1 + i), to));
                job.more_keys -= 1;
            }
        }
        let gone = -job.more_keys;
        resp::int(self.out, if mutation::is(Mutation::DeleteUntold) { 0 } else { gone });
        if gone == 0 {
            return Ok(Next::End);
        }
        self.write_over(job, self.args.from(1))
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

    /// Deletes all keys, some at a time, and then all members.
    pub(super) fn flush_all(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        let is_how =
            |how: &[u8]| [&b"sync"[..], b"async"].iter().any(|o| how.eq_ignore_ascii_case(o));
        if self.args.len() > 2 || !self.args.from(1).all(is_how) {
            return Err(SYNTAX);
        }
        match job.stage {
            0 => return Ok(self.scan_all(job)),
            1 => {}
            // A drive goes on behind what is gone.
            2 if !self.common.is_ordered => return Ok(self.scan_next(job)),
            2 => return Ok(self.scan_all(job)),
            MEMBERS => return self.flush_members(job),
            _ => return Ok(self.scan_members(job)),
        }
        let mut gone = 0;
        for (record, _) in self.mail.records().filter(|(record, _)| *record != FORMAT_KEY) {
            if !record.starts_with(b"k") {
                break;
            }
            job.delete(|to| to.extend_from_slice(record));
            gone += 1;
        }
        if gone == 0 {
            return match self.common.is_ordered {
                true => Ok(self.scan_members(job)),
                false => self.flushed(),
            };
        }
        if let Some((last, _)) = self.mail.records().last() {
            job.from.clear();
            job.from.extend_from_slice(last);
        }
        job.more_keys = -gone;
        job.stage = 2;
        Ok(Next::Write)
    }

    fn scan_members(&self, job: &mut Job) -> Next {
        job.from.clear();
        job.from.push(b'm');
        job.stage = MEMBERS;
        Next::Scan { count: CLEARED, keys: true }
    }

    fn flush_members(&mut self, job: &mut Job) -> Result<Next, Refusal> {
        for (record, score) in self.mail.records().take_while(|(record, _)| record[0] == b'm') {
            self.delete_member(job, record, score)?;
        }
        if !job.has_writes() {
            return self.flushed();
        }
        job.stage = MEMBERS + 1;
        Ok(Next::Write)
    }

    fn flushed(&mut self) -> Result<Next, Refusal> {
        resp::simple(self.out, "OK");
        Ok(Next::End)
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
