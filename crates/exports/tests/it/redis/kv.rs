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
    does_what_a_map_would(served(Sync::Always), false);
}

#[test]
fn many_connections_do_not_see_each_other() {
    [Sync::Always, Sync::No].into_iter().for_each(|sync| many_at_once(served(sync), false));
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
