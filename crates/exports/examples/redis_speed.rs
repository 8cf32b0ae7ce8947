//! What a command costs the Redis server and a pipelining client: GET and SET
//! of 100 bytes over a Unix socket, on a drive in memory.
//!
//! Prints for each depth of the pipeline the processor time of the whole process
//! for a command, the least of [`RUNS`] runs, in ns.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use btree::{AnyStore, BatchStore, Clocked, Tree, TreeConfig};
use device::realtime::process_cpu;
use device::{Device, Link, LinkTiming};
use exports::nbd::{ListenAddr, StopHandle};
use exports::redis::{Opened, Options, Server, Sync};
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::Time;
use targets::{Batch, BatchConfig};

const RUNS: usize = 9;
const COMMANDS: usize = 40_000;
const KEYS: usize = 10_000;

fn serve(
    server: Server,
    stop: &StopHandle,
) -> Result<(), Box<dyn Error + Send + std::marker::Sync>> {
    let dimensions = Dimensions {
        groups: 2,
        pus: 2,
        chunks: 40,
        pages: 64,
        planes: 1,
        page_bytes: 16384,
        pages_at_once: 1,
    };
    let geometry = Geometry::new(dimensions)?;
    let medium = RamMedium::new(&geometry, 4096)?;
    let timing = Timing { read: vec![2000], ..Timing::default() };
    let device = Device::new(&geometry, &timing, medium)?;
    let target = Batch::open(device, BatchConfig::for_geometry(&geometry, 0.3), Time::ZERO)?;
    let shape = *target.shape();
    let (drive, _back) = Clocked::new(Link::new(LinkTiming::default(), target))?;
    let sleeper = drive.sleeper().clone();
    let store = BatchStore::new(drive, shape, 256, || 0)?;
    let config = TreeConfig { memory: 32 << 20, operations: 64, dirty: 33, redo: true };
    let tree = Tree::create(Box::new(store) as AnyStore, config, sleeper.clock().now())?;
    let options = Options { sync: Sync::No, ..Options::default() };
    server.run(Opened::new(tree, options.limits.clients)?, &sleeper, options, stop)?;
    Ok(())
}

fn command(words: &[&str], to: &mut Vec<u8>) {
    to.extend(format!("*{}\r\n", words.len()).bytes());
    words.iter().for_each(|word| to.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
}

/// Sends groups of `depth` commands, each when the one before is answered.
/// `reply` is the length of an answer.
fn run(
    sock: &mut UnixStream,
    groups: &[Vec<u8>],
    reply: usize,
    depth: usize,
) -> std::io::Result<u64> {
    let mut answer = vec![0; reply * depth];
    let start = process_cpu();
    for group in groups {
        sock.write_all(group)?;
        sock.read_exact(&mut answer)?;
    }
    Ok((process_cpu() - start) / (groups.len() * depth) as u64)
}

fn load(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut sock = UnixStream::connect(path)?;
    sock.set_read_timeout(Some(Duration::from_secs(60)))?;
    let value = "v".repeat(100);
    for depth in [1, 16, 64] {
        let groups = |words: &dyn Fn(&str) -> Vec<String>| -> Vec<Vec<u8>> {
            let one = |group: usize| {
                let mut bytes = Vec::new();
                for i in 0..depth {
                    let key = format!("key{}", (group * depth + i) * 7919 % KEYS);
                    let words = words(&key);
                    command(&words.iter().map(String::as_str).collect::<Vec<_>>(), &mut bytes);
                }
                bytes
            };
            (0..COMMANDS / depth).map(one).collect()
        };
        let sets = groups(&|key| vec!["SET".into(), key.into(), value.clone()]);
        let gets = groups(&|key| vec!["GET".into(), key.into()]);
        let least = |sock: &mut UnixStream, groups: &[Vec<u8>], reply| {
            (0..RUNS)
                .map(|_| run(sock, groups, reply, depth))
                .try_fold(u64::MAX, |a, b| b.map(|b| a.min(b)))
        };
        let set = least(&mut sock, &sets, 5)?;
        let get = least(&mut sock, &gets, 6 + 100 + 2)?;
        println!("depth {depth:>2}: SET {set:>6} ns, GET {get:>6} ns");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("redis_speed-{}.sock", std::process::id()));
    let server = Server::bind(&ListenAddr::Unix(path.clone()))?;
    let stop = StopHandle::new()?;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(server, &stop));
        let loaded = load(&path);
        stop.stop();
        served.join().expect("the server does not panic").map_err(|e| e.to_string())?;
        loaded
    })
}
