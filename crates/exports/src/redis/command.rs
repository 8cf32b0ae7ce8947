//! The commands: their names, how many arguments they take, and which of these
//! are keys.

use super::resp::Args;

/// A command, by its name in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Ping,
    Echo,
    Quit,
    Select,
    Info,
    Commands,
    Config,
    Client,
    DbSize,
    Get,
    Set,
    SetNx,
    Del,
    Exists,
    MGet,
    MSet,
    Incr,
    IncrBy,
    Decr,
    StrLen,
    Type,
    HSet,
    HMSet,
    HGet,
    HMGet,
    HGetAll,
    HDel,
    HLen,
    HExists,
    ZAdd,
    ZRem,
    ZCard,
    ZScore,
    ZRangeByScore,
    Scan,
    FlushAll,
}

impl Command {
    /// Whether the beginning of each value that it reads is enough: what kind
    /// it is, and of a sorted set or a member all.
    pub fn wants_heads(self) -> bool {
        !matches!(
            self,
            C::Get | C::MGet | C::StrLen | C::Incr | C::IncrBy | C::Decr | C::HSet | C::HMSet
        ) && !matches!(self, C::HGet | C::HMGet | C::HGetAll | C::HDel | C::HLen | C::HExists)
    }

    /// Whether it has no keys and works in the store.
    pub fn goes_through_all(self) -> bool {
        matches!(self, C::Scan | C::FlushAll)
    }

    /// Whether it is about sorted sets, which need an order of keys.
    pub fn needs_order(self) -> bool {
        matches!(self, C::ZAdd | C::ZRem | C::ZCard | C::ZScore | C::ZRangeByScore)
    }

    /// Whether all that it does is to read one record, once. Not ZCARD, which
    /// could see a sorted set while it is deleted.
    pub fn reads_one_record(self) -> bool {
        matches!(self, C::Get | C::StrLen | C::Type | C::HGet | C::HMGet)
            || matches!(self, C::HGetAll | C::HLen | C::HExists)
    }

    /// Whether it reads its keys some at a time and is done with each.
    pub fn goes_in_portions(self) -> bool {
        matches!(self, Command::MGet | Command::Exists)
    }
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// Every other one, from the first on.
    Pairs,
}

use Command as C;

/// Name, number of arguments with the name (the least, when negative), keys,
/// whether it writes.
const TABLE: &[(&str, i32, C, Keys, bool)] = &[
    ("GET", 2, C::Get, Keys::First, false),
    ("SET", -3, C::Set, Keys::First, true),
    ("HGETALL", 2, C::HGetAll, Keys::First, false),
    ("HSET", -4, C::HSet, Keys::First, true),
    ("HMSET", -4, C::HMSet, Keys::First, true),
    ("HMGET", -3, C::HMGet, Keys::First, false),
    ("HGET", 3, C::HGet, Keys::First, false),
    ("MGET", -2, C::MGet, Keys::All, false),
    ("MSET", -3, C::MSet, Keys::Pairs, true),
    ("DEL", -2, C::Del, Keys::All, true),
    ("UNLINK", -2, C::Del, Keys::All, true),
    ("EXISTS", -2, C::Exists, Keys::All, false),
    ("ZADD", -4, C::ZAdd, Keys::First, true),
    ("ZREM", -3, C::ZRem, Keys::First, true),
    ("ZRANGEBYSCORE", -4, C::ZRangeByScore, Keys::First, false),
    ("PING", -1, C::Ping, Keys::None, false),
    ("INCR", 2, C::Incr, Keys::First, true),
    ("INCRBY", 3, C::IncrBy, Keys::First, true),
    ("DECR", 2, C::Decr, Keys::First, true),
    ("SETNX", 3, C::SetNx, Keys::First, true),
    ("STRLEN", 2, C::StrLen, Keys::First, false),
    ("TYPE", 2, C::Type, Keys::First, false),
    ("HDEL", -3, C::HDel, Keys::First, true),
    ("HLEN", 2, C::HLen, Keys::First, false),
    ("HEXISTS", 3, C::HExists, Keys::First, false),
    ("ZCARD", 2, C::ZCard, Keys::First, false),
    ("ZSCORE", 3, C::ZScore, Keys::First, false),
    ("SCAN", -2, C::Scan, Keys::None, false),
    ("DBSIZE", 1, C::DbSize, Keys::None, false),
    ("FLUSHALL", -1, C::FlushAll, Keys::None, true),
    ("FLUSHDB", -1, C::FlushAll, Keys::None, true),
    ("ECHO", 2, C::Echo, Keys::None, false),
    ("QUIT", -1, C::Quit, Keys::None, false),
    ("SELECT", 2, C::Select, Keys::None, false),
    ("INFO", -1, C::Info, Keys::None, false),
    ("COMMAND", -1, C::Commands, Keys::None, false),
    ("CONFIG", -2, C::Config, Keys::None, false),
    ("CLIENT", -2, C::Client, Keys::None, false),
];

/// How many there are, each name for itself.
pub const COUNT: usize = TABLE.len();

/// A command as it was looked up.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Which.
    pub command: Command,
    /// Its keys.
    pub keys: Keys,
    /// Whether it writes them.
    pub writes: bool,
}

/// Whether somebody wrote a name, which is of capital letters, in whatever letters.
#[inline]
fn is_name(name: &[u8], written: &[u8]) -> bool {
    name.len() == written.len() && name.iter().zip(written).all(|(a, b)| *a == b & !0x20)
}

/// Looks a command up. `args` is not empty.
///
/// # Errors
/// The reply, in Redis' words.
pub fn find(args: Args<'_>) -> Result<Found, String> {
    let name = args.get(0);
    let Some(&(known, arity, command, keys, writes)) =
        TABLE.iter().find(|entry| is_name(entry.0.as_bytes(), name))
    else {
        let name = &name[..name.len().min(128)];
        return Err(format!("ERR unknown command '{}'", name.escape_ascii()));
    };
    let len = args.len() as i32;
    let pairs = keys != Keys::Pairs || len % 2 == 1;
    if (if arity < 0 { len < -arity } else { len != arity }) || !pairs {
        let known = known.to_ascii_lowercase();
        return Err(format!("ERR wrong number of arguments for '{known}' command"));
    }
    Ok(Found { command, keys, writes })
}

impl Keys {
    /// The keys among `args`.
    pub fn of(self, args: Args<'_>) -> Picked<'_> {
        let (end, step) = match self {
            Keys::None => (0, 1),
            Keys::First => (2, 1),
            Keys::All => (usize::MAX, 1),
            Keys::Pairs => (usize::MAX, 2),
        };
        Picked { args, next: 1, end: end.min(args.len()), step }
    }
}

/// Some of the arguments of a command.
pub struct Picked<'a> {
    args: Args<'a>,
    next: usize,
    end: usize,
    step: usize,
}

impl<'a> Iterator for Picked<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let at = self.next;
        self.next += self.step;
        (at < self.end).then(|| self.args.get(at))
    }
}
