//! What each command does with what it has read.
//!
//! [`work`] is called when all that the last stage asked for is there. The
//! reply that it puts behind `out` is sent only when the command is over.
//!
//! A call takes what is linear in the command's own bytes, in what it was told
//! and in [`PIECE`] bytes of reply. What would take longer goes in several:
//! with [`Next::Later`] it is called again with the same.

mod adding;
mod hashes;
mod keys;
mod sorted;
mod strings;

use super::command::Command;
use super::database::Refusal;
use super::job::{Common, Job, Next};
use super::mail::Mail;
use super::resp::{self, Args};
use super::rope::Rope;

/// Bytes of a reply that are put together at once, and when it begins.
const PIECE: u64 = 1 << 20;
const FIRST: u64 = 64 << 10;

const SYNTAX: Refusal = Refusal::Text("syntax error");
const NO_EXPIRY: Refusal = Refusal::Text("keys do not expire here: there is no expiry");
const NOT_AN_INTEGER: Refusal = Refusal::Text("value is not an integer or out of range");

/// Stages that clear a sorted set which is deleted or overwritten.
const CLEAR: u8 = 100;

/// What a stage is given.
struct Stage<'a> {
    mail: &'a Mail,
    common: &'a mut Common,
    args: Args<'a>,
    out: &'a mut Rope,
}

/// The next stage of a command.
pub fn work(
    command: Command,
    job: &mut Job,
    mail: &Mail,
    common: &mut Common,
    args: Args<'_>,
    out: &mut Rope,
) -> Result<Next, Refusal> {
    let mut stage = Stage { mail, common, args, out };
    let s = &mut stage;
    match command {
        _ if job.stage >= CLEAR => s.clear(job, command),
        Command::Get => s.get(),
        Command::MGet => s.mget(job),
        Command::Exists => s.exists(job),
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
        Command::HMGet => s.hmget(job),
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
    fn int(&mut self, number: i64) -> Result<Next, Refusal> {
        resp::int(self.out, number);
        Ok(Next::End)
    }
}
