//! `serve --metrics` and `top` from outside.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::common::{Served, json, json_of, ssdkit, told};

/// A server with metrics.
struct Server {
    served: Served,
    /// Where its metrics are.
    at: String,
}

impl Server {
    fn start(line: &str) -> Server {
        let served = Served::start(&mut ssdkit(&format!("serve {line} --metrics 0 --json")));
        let url = served.ready["metrics"].as_str().unwrap();
        let at = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().into();
        Server { served, at }
    }

    /// What `top --once` says of it.
    fn top(&self) -> Value {
        let line = format!("{} --once --json --interval 100ms", self.at);
        json_of(&top(&line), &line)
    }

    /// Its page.
    fn page(&self) -> String {
        let mut sock = TcpStream::connect(&self.at).unwrap();
        sock.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut text = String::new();
        sock.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        text
    }

    /// A number of its page.
    fn value(&self, name: &str) -> f64 {
        let page = self.page();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
    }

    fn stop(self) {
        self.served.stop();
    }
}

fn top(line: &str) -> Output {
    ssdkit(&format!("top {line}")).stdin(Stdio::null()).output().unwrap()
}

fn explain(line: &str) -> Output {
    ssdkit(&format!("explain {line}")).stdin(Stdio::null()).output().unwrap()
}

/// What one printed that went well.
fn text_of(out: &Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn bench(line: &str) {
    json(Path::new("."), &format!("bench {line}"));
}

/// What clients did is on the page, to the request, and the examples of the page of top
/// run.
#[test]
fn a_served_drive_tells_what_is_asked_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let at = socket.to_str().unwrap();
    let server = Server::start(&format!("mem:tlc,size=64M --nbd {at}"));
    bench(&format!("nbd:{at} --rw randwrite --bs 8k --qd 8 --ios 2k --destroy"));
    assert_eq!(server.value("ssdkit_requests_total{op=\"write\"}"), 2000.0);
    assert_eq!(server.value("ssdkit_request_bytes_total{op=\"write\"}"), 2000.0 * 8192.0);
    assert_eq!(server.value("ssdkit_request_seconds_count{op=\"write\"}"), 2000.0);
    assert_eq!(server.value("ssdkit_requests_inside"), 0.0);
    assert!(server.value("ssdkit_blocks_written_total{why=\"user\"}") > 3000.0);
    let seen = server.top();
    assert_eq!((&seen["front"], &seen["inside"]), (&"nbd".into(), &0.0.into()));
    assert!(seen["drive"].as_str().unwrap().starts_with("mem:tlc"), "{seen}");
    let chunks = seen["chunks"].as_object().unwrap().values().map(|n| n.as_f64().unwrap());
    assert!(chunks.sum::<f64>() > 8.0 && seen["read_only"].is_null(), "{seen}");
    let page = include_str!("../../../../docs/commands/top.md");
    let below = page.split_once("\nExamples:\n").unwrap().1;
    let examples: Vec<_> =
        below.lines().filter_map(|it| it.strip_prefix("    ssdkit top ")).collect();
    assert_eq!(examples.len(), 3);
    for line in examples {
        let (_, rest) = line.split_once(' ').unwrap();
        let out = top(&format!("{} {rest}", server.at));
        assert!(out.status.success() && !out.stdout.is_empty(), "{line}");
    }
    server.stop();
}

/// A store that failed is told to who looks at the drive, while it can still be read; how often
/// faults struck is told at the end, though that fails, over Redis and over NBD.
#[test]
fn what_failed_is_told_while_it_is_served_and_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let at = socket.to_str().unwrap();
    let line = format!(
        "serve mem:null,size=128M --pages log --redis {at} --fault write,from=20,count=1 \
         --metrics 0 --json"
    );
    let served = Served::start(ssdkit(&line).stderr(Stdio::piped()));
    let url = served.ready["metrics"].as_str().unwrap();
    let host = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().into();
    let server = Server { served, at: host };
    assert!(server.top()["read_only"].is_null());
    let mut sock = UnixStream::connect(at).unwrap();
    let mut ask = |words: &str| {
        sock.write_all(format!("{words}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 512];
        let n = sock.read(&mut reply).unwrap();
        String::from_utf8(reply[..n].to_vec()).unwrap()
    };
    while ask("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb") == "+OK\r\n" {}
    let why = "the drive failed to write to the redo log: write fault";
    let seen = server.top();
    assert!(seen["read_only"].as_str().unwrap().starts_with(why), "{seen}");
    assert_eq!(page_value(&server.page(), "ssdkit_read_only"), 1.0);
    let (code, errors, last) = server.served.end(Signal::TERM);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.starts_with(&format!("ssdkit: {why}")), "{errors}");
    assert!(errors.contains("the store can only be read"), "{errors}");
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["injected"][0]["times"], 1, "{last}");
    assert!(last["error"].as_str().unwrap().contains(why), "{last}");

    let line = format!("serve mem:null,size=8M --nbd {at} --fault flush --json");
    let served = Served::start(ssdkit(&line).stderr(Stdio::piped()));
    let (code, errors, last) = served.end(Signal::TERM);
    assert!(code == Some(1) && errors.contains("did not take the last flush"), "{errors}");
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["injected"][0]["times"], 1, "{last}");
    assert!(last["error"].as_str().unwrap().contains("last flush"), "{last}");
}

/// A number of a page, whatever its labels are.
fn page_value(page: &str, name: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
    let number = line.and_then(|line| line.rsplit_once(' '));
    number.unwrap_or_else(|| panic!("{name}: {page}")).1.parse().unwrap()
}

/// While it is used, a served drive is explained: each share's parts and those of each
/// slow request sum to their time exactly, and the text of the page's example is one.
#[test]
fn a_served_drive_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let at = socket.to_str().unwrap();
    let server = Server::start(&format!("mem:tlc,size=64M --nbd {at}"));
    let idle = explain(&format!("--served {} --interval 100ms", server.at));
    assert!(text_of(&idle).contains("no request ended in"), "{}", text_of(&idle));
    let ns = |json: &Value| json.as_u64().unwrap_or_else(|| panic!("no whole number: {json}"));
    let parts = |of: &Value| -> u64 {
        of["parts"].as_array().unwrap().iter().map(|part| ns(&part["ns"])).sum()
    };
    std::thread::scope(|scope| {
        let busy =
            scope.spawn(|| bench(&format!("nbd:{at} --rw randrw --qd 8 --time 4s --destroy")));
        let json = loop {
            assert!(!busy.is_finished(), "it was never seen");
            let out = explain(&format!("--served {} --interval 300ms --json", server.at));
            let json: Value = serde_json::from_str(&text_of(&out)).unwrap();
            if ns(&json["requests"]) > 0 {
                break json;
            }
        };
        let kinds = ["reads", "writes", "others"];
        let shares = kinds.iter().flat_map(|&kind| json["explained"][kind].as_array().unwrap());
        let shares: Vec<_> = shares.collect();
        for share in &shares {
            assert_eq!(ns(&share["ns"]), parts(share), "{share}");
        }
        let all = shares.iter().filter(|share| share["share"] == 1.0);
        assert_eq!(all.map(|share| ns(&share["requests"])).sum::<u64>(), ns(&json["requests"]));
        let slowest = json["slowest"].as_array().unwrap();
        assert!(slowest.len() <= 3, "as many as a run tells of: {slowest:?}");
        for slow in slowest {
            assert_eq!(ns(&slow["latency_ns"]), parts(slow), "{slow}");
            assert!(ns(&slow["bytes"]) == 4096 && ns(&slow["offset"]) < 64 << 20, "{slow}");
            let ago = ns(&slow["ended_ns_ago"]) as f64 / 1e9;
            assert!(ago <= json["seconds"].as_f64().unwrap(), "{slow}");
        }
        let times: Vec<u64> = slowest.iter().map(|slow| ns(&slow["latency_ns"])).collect();
        assert!(times.is_sorted_by(|a, b| a >= b) && !times.is_empty(), "{times:?}");
    });
    let socket = dir.path().join("b.sock");
    let redis =
        Server::start(&format!("mem:znand,size=256M --pages log --redis {}", socket.display()));
    let idle = explain(&format!("--served {} --interval 100ms", redis.at));
    assert!(idle.status.success(), "{}", String::from_utf8_lossy(&idle.stderr));
    redis.stop();
    let page = include_str!("../../../../docs/commands/explain.md");
    let examples =
        page.lines().filter_map(|it| it.strip_prefix("    ssdkit explain --served 9100"));
    for rest in examples {
        let out = explain(&format!("--served {} {rest}", server.at));
        assert!(out.status.success() && !out.stdout.is_empty(), "{rest}");
    }
    server.stop();
    // One that cannot tell, and none.
    let server = Server::start(&format!("mem:tlc,size=64M,cache=protected --nbd {at}"));
    let out = explain(&format!("--served {} --interval 100ms", server.at));
    let (code, why) = told(&out);
    assert!(code == Some(1) && why.contains("cannot tell"), "{why}");
    server.stop();
    let out = explain("--served 127.0.0.1:1");
    assert_eq!(out.status.code(), Some(1));
}

/// A drive that tells no stories, and stores on drives of both kinds.
#[test]
fn other_drives_tell_what_they_can() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let at = socket.to_str().unwrap();
    let server = Server::start(&format!("mem:tlc,size=64M,cache=protected --nbd {at}"));
    bench(&format!("nbd:{at} --rw randwrite --qd 8 --ios 500 --destroy"));
    assert_eq!(server.value("ssdkit_requests_total{op=\"write\"}"), 500.0);
    assert_eq!(server.value("ssdkit_tells_stories"), 0.0);
    assert!(!server.page().contains("ssdkit_request_seconds"));
    assert!(server.page().contains("ssdkit_die_busy_seconds_total"));
    server.stop();
    for pages in ["log", "batched"] {
        let line = format!("mem:znand,size=256M --redis {at} --pages {pages} --memory 8M");
        let server = Server::start(&line);
        let before = server.value("ssdkit_requests_total{op=\"write\"}");
        let mut client = UnixStream::connect(&socket).unwrap();
        for n in 0..20 {
            client.write_all(format!("SET key{n} value\r\n").as_bytes()).unwrap();
            let mut reply = [0; 5];
            client.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+OK\r\n");
        }
        // For a moment all get the same page.
        std::thread::sleep(Duration::from_millis(150));
        let after = server.value("ssdkit_requests_total{op=\"write\"}");
        assert!(after >= before + 20.0, "{pages}: {before} {after}");
        // What is not counted is no zero.
        for name in ["ssdkit_requests_inside ", "ssdkit_blocks_moved_total "] {
            assert_eq!(server.page().contains(name), pages == "log", "{pages}: {name}");
        }
        assert_eq!(server.top()["front"], "redis");
        server.stop();
    }
}

/// Clients that ask without end, or never to their end, hold up neither the drive nor
/// its stop.
#[test]
fn hostile_clients_of_metrics_stop_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let at = socket.to_str().unwrap();
    let server = Server::start(&format!("mem:null,size=16M --nbd {at}"));
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(&server.at).unwrap()).collect();
    std::thread::scope(|scope| {
        let busy =
            scope.spawn(|| bench(&format!("nbd:{at} --rw randwrite --ios 20k --qd 8 --destroy")));
        while !busy.is_finished() {
            server.page();
            let mut sock = TcpStream::connect(&server.at).unwrap();
            let _ = sock.write_all(&[b'x'; 20_000]);
        }
    });
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(10), "it does not wait for them");
    drop(silent);
}

#[test]
fn what_cannot_be_watched_is_said() {
    let failed = |line: &str| told(&top(line));
    let (code, text) = failed("1");
    assert!(code == Some(2) && text.contains("take --once"), "{text}");
    let (code, text) = failed("127.0.0.1:1 --once");
    assert!(code == Some(1) && text.contains("start `ssdkit serve` with --metrics"), "{text}");
    for line in ["/tmp/a", "9100 --once --interval 1ms", "9100 --json"] {
        assert_eq!(failed(line).0, Some(2), "{line}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let line = format!("serve mem:null,size=16M --metrics {port} --nbd {}", socket.display());
    let (code, text) = told(&ssdkit(&line).output().unwrap());
    assert!(code == Some(1) && text.contains("cannot serve metrics at"), "{text}");
    assert!(!socket.exists());
}

/// A terminal that goes, as one does whose window is closed, ends `top`: it does not ask
/// its end for keys, for ever.
#[test]
fn top_ends_with_its_terminal() {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
    // Nobody listens at this port: it goes on trying.
    let mut child =
        ssdkit("top 127.0.0.1:1").stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
    let (mut master, mut seen, mut some) = (File::from(master), String::new(), [0; 4096]);
    while !seen.contains("quit") {
        let count = master.read(&mut some).unwrap();
        seen += &String::from_utf8_lossy(&some[..count]);
    }
    drop(master);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it goes on without a terminal");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.code().is_some(), "{status}");
}
