//! The Redis server over a drive that keeps values by key.

use btree::{Keyed, KeyedConfig, Records};
use targets::{Kv, KvConfig};

use super::*;

fn serve_kv(server: Server, options: Options, stop: &StopHandle) -> Report {
    let (device, geometry) = device();
    let target = Kv::new(device, KvConfig { keys: 9000, ..KvConfig::for_geometry(&geometry) });
    let target = target.unwrap();
    let shape = *target.shape();
    let (drive, _back) = Clocked::new(Link::new(LinkTiming::default(), target)).unwrap();
    let sleeper = drive.sleeper().clone();
    let config = KeyedConfig { operations: 64, memory: 1 << 20, keys: 0 };
    let keyed = Keyed::new(Box::new(drive), shape, config, sleeper.clock().now()).unwrap();
    let records = Records::Drive(Box::new(keyed));
    let keys = Opened::new(records, options.limits.clients).unwrap();
    server.run(keys, &sleeper, options, stop).unwrap().0
}

fn served(sync: Sync) -> Served {
    let limits = Limits { clients: 16, ..Limits::default() };
    Served::over(Options { sync, limits }, serve_kv)
}

#[test]
fn commands_do_what_a_map_would() {
    let served = served(Sync::Always);
    let mut runner = TestRunner::deterministic();
    let mut client = served.connect();
    let mut model = talk(&mut client, &mut runner, b'a', 60, false);
    assert_eq!(client.ask("DBSIZE"), model.ask(&[b"DBSIZE".to_vec()]));
    let keys: Vec<_> = model.0.keys().cloned().collect();
    let sorted = |mut keys: Vec<Vec<u8>>| {
        keys.sort();
        keys
    };
    assert_eq!(sorted(scan(&mut client, " COUNT 7")), keys);
    let matching: Vec<_> = keys.iter().filter(|key| key.ends_with(b"1")).cloned().collect();
    assert_eq!(sorted(scan(&mut client, " MATCH *1")), matching);
    assert_eq!(client.ask("FLUSHALL"), ok());
    assert_eq!(client.ask("DBSIZE"), Reply::Int(0));
    assert!(scan(&mut client, "").is_empty());
    drop(client);
    let report = served.end();
    assert_eq!((report.connections, report.faults, report.refused), (1, 0, 0));
    assert!(report.commands > 500 && report.flushes > 10, "{report:?}");
}

#[test]
fn many_connections_do_not_see_each_other() {
    for sync in [Sync::Always, Sync::No] {
        let served = served(sync);
        std::thread::scope(|scope| {
            for i in 0..8u8 {
                let mut client = served.connect();
                scope.spawn(move || {
                    let rng = proptest::test_runner::TestRng::from_seed(
                        proptest::test_runner::RngAlgorithm::ChaCha,
                        &[i; 32],
                    );
                    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
                    talk(&mut client, &mut runner, b'a' + i, 12, false);
                    for _ in 0..20 {
                        assert!(matches!(client.ask("INCR n"), Reply::Int(_)));
                    }
                });
            }
        });
        assert_eq!(served.connect().ask("GET n"), bulk("160"));
        assert_eq!(served.end().faults, 0);
    }
}

/// A value is as long as the drive lets it be; what is longer is refused and harms nobody.
#[test]
fn long_values_go_and_come() {
    let served = served(Sync::No);
    let mut client = served.connect();
    for bytes in [0, 70_000, 1 << 20, 5 << 20] {
        let value = vec![b'v'; bytes];
        let words = [b"SET".to_vec(), b"long".to_vec(), value.clone()];
        client.sock.write_all(&encode(&words)).unwrap();
        assert_eq!(client.reply(), ok());
        assert_eq!(client.ask("GET long"), Reply::Bulk(Some(value)));
        assert_eq!(client.ask("STRLEN long"), Reply::Int(bytes as i64));
    }
    let mut bad = served.connect();
    bad.sock.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$67108865\r\n").unwrap();
    let Reply::Error(text) = bad.reply() else { panic!("an error") };
    assert!(text.contains("invalid bulk length"), "{text}");
    assert_eq!(client.ask("DBSIZE"), Reply::Int(1));
    served.end();
}

/// A hash is bounded, whatever a value may be, as each change looks at all of it.
#[test]
fn a_hash_has_a_bound_of_its_own() {
    let served = served(Sync::No);
    let mut client = served.connect();
    let field = |name: u8, bytes: usize| {
        encode(&[b"HSET".to_vec(), b"hash".to_vec(), vec![name], vec![b'v'; bytes]])
    };
    client.sock.write_all(&field(b'a', (1 << 20) - 9)).unwrap();
    assert_eq!(client.reply(), Reply::Int(1));
    client.sock.write_all(&field(b'b', 1)).unwrap();
    let Reply::Error(text) = client.reply() else { panic!("an error") };
    assert!(text.contains("at most 1 MiB"), "{text}");
    assert_eq!(client.ask("HLEN hash"), Reply::Int(1));
    assert_eq!(client.ask("DBSIZE"), Reply::Int(1));
    client.sock.write_all(&field(b'a', 1)).unwrap();
    assert_eq!(client.reply(), Reply::Int(0));
    served.end();
}
