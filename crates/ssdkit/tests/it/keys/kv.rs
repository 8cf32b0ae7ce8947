//! Drives that keep values by key (`target=kv`), served without a tree.

use super::kills::kill_kind;
use super::{Client, Place, Reply, SMALL, bulk, failure, serve};
use crate::common::Served;

const KV: &str = "--profile znand target=kv";

#[test]
fn values_are_found_again_after_a_stop() {
    let place = Place::new(&format!("{KV} keys=5000 {SMALL}"));
    let server = place.serve("");
    let about = (&server.ready["pages"], &server.ready["store"]);
    assert_eq!(about, (&"values by key".into(), &"new".into()));
    let mut client = Client::of(&server);
    // Longer than any of a tree.
    let long = "x".repeat(900_000);
    assert_eq!(client.ask(&format!("SET long {long}")), Reply::Text("OK".into()));
    assert_eq!(client.ask("STRLEN long"), Reply::Int(900_000));
    assert_eq!(client.ask("HSET h f v"), Reply::Int(1));
    assert_eq!(client.ask("MSET a 1 b 2 a 3"), Reply::Text("OK".into()));
    server.stop();
    assert_eq!(place.json(&format!("info {}", place.drive))["clean"], true);
    let copy = format!("ssd:{},copy=yes", place.drive);
    let copy = Served::start(&mut serve(&copy, &place.socket(), ""));
    assert_eq!(Client::of(&copy).ask("INCR a"), Reply::Int(4));
    copy.stop();
    for n in 4..6 {
        let server = place.serve("--sync no");
        assert_eq!(server.ready["store"], "found");
        assert_eq!(server.ready["recovery"]["clean"], true);
        let mut client = Client::of(&server);
        assert_eq!(client.ask("DBSIZE"), Reply::Int(4));
        assert_eq!(client.ask("GET long"), bulk(&long));
        assert_eq!(client.ask("HGETALL h"), Reply::Array(vec![bulk("f"), bulk("v")]));
        assert_eq!(client.ask("INCR a"), Reply::Int(n));
        server.stop();
    }
}

/// All keys are listed once, in turns of any length, and deleted by FLUSHALL.
#[test]
fn keys_are_listed_and_flushed() {
    const KEYS: usize = 1500;
    let place = Place::new(&format!("{KV} {SMALL}"));
    let server = place.serve("--sync no");
    let mut client = Client::of(&server);
    for key in 0..KEYS {
        assert!(client.send(&format!("SET key:{key} {}", "v".repeat(key))));
    }
    (0..KEYS).for_each(|_| assert_eq!(client.reply(), Some(Reply::Text("OK".into()))));
    for count in [1, 7, 300, 10_000] {
        let (mut cursor, mut all) = ("0".to_string(), Vec::new());
        loop {
            let Reply::Array(reply) = client.ask(&format!("SCAN {cursor} COUNT {count}")) else {
                panic!("a cursor and keys")
            };
            let [Reply::Bulk(Some(next)), Reply::Array(keys)] = &reply[..] else {
                panic!("{reply:?}")
            };
            all.extend(keys.iter().map(|key| match key {
                Reply::Bulk(Some(key)) => key.clone(),
                other => panic!("{other:?}"),
            }));
            cursor.clone_from(next);
            if cursor == "0" {
                break;
            }
        }
        let listed = all.len();
        all.sort();
        all.dedup();
        assert_eq!((all.len(), listed), (KEYS, KEYS), "COUNT {count}");
    }
    assert_eq!(client.ask("FLUSHALL"), Reply::Text("OK".into()));
    assert_eq!(client.ask("DBSIZE"), Reply::Int(0));
    assert_eq!(client.ask("GET key:77"), Reply::Bulk(None));
    server.stop();
    let server = place.serve("");
    assert_eq!(Client::of(&server).ask("DBSIZE"), Reply::Int(0));
    server.stop();
}

/// What needs an order of keys, and options that need pages, are refused with words.
#[test]
fn what_it_lacks_is_refused() {
    let place = Place::new(&format!("{KV} {SMALL}"));
    let redis = format!("--redis {}", place.socket().display());
    for (options, says) in [
        (format!("{redis} --pages log"), "no pages"),
        (format!("{redis} --destroy"), "create --force"),
        (format!("{redis} --fault read,count=1"), "no fault of requests"),
        (format!("--nbd {}", place.socket().display()), "no blocks"),
    ] {
        let (code, text) = failure(&place.drive, &options);
        assert!(code == 2 && text.contains(says), "{text}");
    }
    let server = place.serve("");
    let mut client = Client::of(&server);
    for (command, says) in [
        ("ZADD z 1 m", "order of keys"),
        ("ZRANGEBYSCORE z 0 1", "order of keys"),
        ("SCAN 0 TYPE string", "TYPE"),
        (&format!("SET {} v", "k".repeat(300)), "a key of 300 bytes is longer than 254"),
    ] {
        assert!(client.send(command));
        let error = client.line().unwrap();
        assert!(error.starts_with("-ERR ") && error.contains(says), "{error}");
    }
    assert_eq!(client.ask("DBSIZE"), Reply::Int(0));
    // A key that is refused at once, while others of the command are read or written.
    let long = "k".repeat(300);
    client.ask("SET a 1");
    for command in ["EXISTS a KEY a", "EXISTS KEY a", "MGET a b KEY", "DEL a KEY", "MSET a 1 KEY 2"]
    {
        for _ in 0..50 {
            assert!(client.send(&command.replace("KEY", &long)));
            let error = client.line().unwrap();
            assert!(error.contains("longer than 254"), "{command}: {error}");
        }
    }
    assert_eq!(client.ask("EXISTS b"), Reply::Int(0));
    server.stop();
}

/// A full drive says so, and what is deleted has room again.
#[test]
fn a_full_drive_refuses_values_and_goes_on() {
    let place = Place::new(&format!("{KV} {SMALL}"));
    let server = place.serve("--sync no");
    let mut client = Client::of(&server);
    let long = "x".repeat(1 << 20);
    let mut stored = 0;
    let error = loop {
        assert!(client.send(&format!("SET k{stored} {long}")));
        let line = client.line().unwrap();
        if line.starts_with('-') {
            break line;
        }
        stored += 1;
        assert!(stored < 200, "the drive has 96 MiB");
    };
    assert!(error.contains("capacity exceeded"), "{error}");
    assert!(stored > 80, "{stored} of 1 MiB");
    assert_eq!(client.ask("DBSIZE"), Reply::Int(stored));
    for key in 0..stored / 2 {
        assert_eq!(client.ask(&format!("DEL k{key}")), Reply::Int(1));
    }
    for key in 0..stored / 3 {
        assert_eq!(client.ask(&format!("SET n{key} {long}")), Reply::Text("OK".into()));
    }
    assert_eq!(client.ask(&format!("GET k{}", stored - 1)), bulk(&long));
    server.stop();
}

#[test]
fn what_was_answered_survives_kills() {
    kill_kind(KV, "");
}
