//! Random attacks on the Redis server.

use std::time::Duration;

use exports::Limits;
use exports::redis::{Options, Sync};

use super::{Reply, Served, encode, ok};
use crate::soak::{Attacker, Dice, attacks, soak};

/// Words that commands are made of.
const NAMES: &[&str] = &[
    "GET",
    "SET",
    "DEL",
    "MGET",
    "MSET",
    "EXISTS",
    "INCR",
    "STRLEN",
    "TYPE",
    "SETNX",
    "HSET",
    "HGET",
    "HMGET",
    "HGETALL",
    "HDEL",
    "HLEN",
    "ZADD",
    "ZREM",
    "ZCARD",
    "ZSCORE",
    "ZRANGEBYSCORE",
    "SCAN",
    "DBSIZE",
    "ECHO",
    "PING",
    "INFO",
    "CONFIG",
    "CLIENT",
    "COMMAND",
    "SELECT",
    "QUIT",
    "NOSUCH",
    "",
];

/// Commands that are begun, and what is none.
const BEGUN: &[&[u8]] =
    &[b"*1\r\n$1048577\r\n", b"*16384\r\n", b"*3\r\n$3\r\nSET\r\n", b"\r\n", b"'"];

/// A word: mostly a key or a number, sometimes something long or strange.
fn word(dice: &mut Dice) -> Vec<u8> {
    match dice.roll(40) {
        0 => vec![b'x'; dice.roll(70_000) as usize],
        1 => (0..dice.roll(30)).map(|_| dice.roll(256) as u8).collect(),
        2 => pattern(dice),
        3..8 => dice.roll(1000).to_string().into_bytes(),
        8 => dice
            .one(&["MATCH", "COUNT", "LIMIT", "WITHSCORES", "NX", "inf", "-inf", "GET"])
            .as_bytes()
            .into(),
        9 => vec![b'k'; 505 + dice.roll(10) as usize],
        _ => format!("k{}", dice.roll(300)).into_bytes(),
    }
}

fn pattern(dice: &mut Dice) -> Vec<u8> {
    let unit = *dice.one(&["*a", "[", "[^a", "[a-z]", "?", "\\", "*", "a"]);
    let most = if dice.roll(20) == 0 { 300_000 } else { 300 };
    unit.repeat(dice.roll(most) as usize).into_bytes()
}

/// A command, which may be well formed.
fn command(dice: &mut Dice) -> Vec<u8> {
    let words = |first: &str, rest: Vec<Vec<u8>>| {
        let all: Vec<Vec<u8>> = std::iter::once(first.into()).chain(rest).collect();
        encode(&all)
    };
    let pairs = |dice: &mut Dice, n: u64, first: &str| -> Vec<Vec<u8>> {
        let number = |dice: &mut Dice| dice.roll(20_000).to_string().into_bytes();
        (0..n)
            .flat_map(|_| [number(dice), format!("{first}{}", dice.roll(20_000)).into()])
            .collect()
    };
    match dice.roll(400) {
        0 => words("MSET", pairs(dice, 8000, "")),
        1 => words("HSET", [vec![b"h".to_vec()], pairs(dice, 8000, "")].concat()),
        2 => words("HDEL", [vec![b"h".to_vec()], pairs(dice, 8000, "")].concat()),
        3 => words("DEL", vec![b"z".to_vec(), b"h".to_vec()]),
        4 => words(
            "HMGET",
            std::iter::once(b"large".to_vec()).chain((0..1000).map(|_| b"f".to_vec())).collect(),
        ),
        5 => words("HSET", vec![b"large".to_vec(), b"f".to_vec(), vec![b'x'; 60_000]]),
        6 => words("MGET", pairs(dice, 8000, "k")),
        7..30 => words("ZADD", [vec![b"z".to_vec()], pairs(dice, 8, "m")].concat()),
        30..35 => words("ZRANGEBYSCORE", [&b"z"[..], b"-inf", b"+inf"].map(Vec::from).into()),
        35..40 => {
            let match_ = [
                vec![b"0".to_vec(), b"MATCH".to_vec(), pattern(dice)],
                vec![b"COUNT".to_vec(), b"10000".to_vec()],
            ];
            words("SCAN", match_.concat())
        }
        _ => {
            let name = *dice.one(NAMES);
            let rest = (0..dice.roll(6)).map(|_| word(dice)).collect();
            words(name, rest)
        }
    }
}

fn attack(dice: &mut Dice, client: &mut Attacker) {
    match dice.roll(100) {
        0..3 => client.leave(),
        3..5 => {
            let garbage: Vec<u8> = (0..dice.roll(2000)).map(|_| dice.roll(256) as u8).collect();
            client.send(&garbage);
        }
        5..10 => {
            let all = command(dice);
            client.send(&all[..dice.roll(all.len() as u64) as usize]);
        }
        10..15 => {
            let one = command(dice);
            client.send(&one.repeat(dice.roll(50) as usize));
        }
        15..20 => {
            let begun = *dice.one(BEGUN);
            client.send(begun);
        }
        20..50 => client.take(dice.roll(200_000) as usize),
        _ => client.send(&command(dice)),
    }
}

attacks!(attack_it);

fn attack_it() {
    let limits = Limits {
        clients: 64,
        memory: 64 << 20,
        greeting: Duration::from_millis(200),
        // The client that works may get no processor for a while.
        idle: Duration::from_secs(60),
        ..Limits::default()
    };
    let served = Served::with(Options { sync: Sync::No, limits });
    let mut client = served.connect();
    let mut values = vec![None; 50];
    soak(&served.path, attack, move |n| {
        let (key, i) = (format!("good:{}", n % 50), n as usize % 50);
        if n / 50 % 2 == 0 {
            let value = format!("{n}:{}", "v".repeat(n as usize % 500));
            assert_eq!(client.ask(&format!("SET {key} {value}")), ok());
            values[i] = Some(value.into_bytes());
        } else {
            assert_eq!(client.ask(&format!("GET {key}")), Reply::Bulk(values[i].clone()));
        }
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    });
    println!("{:?}", served.end());
}
