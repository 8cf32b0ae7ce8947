//! The NBD server and client, together and against hostile peers.

mod attack;
mod commands;
mod hostile;
mod negotiation;
mod parts;
mod ram;
mod remote;
mod soak;
mod waiting;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::ram::{Probe, Ram};
use exports::nbd::{Client, Export, Exports, ListenAddr, Report, Server, StopHandle};
use exports::{Limits, SharedDrive};
use port::{BlockOp, Shape};

/// One MiB, cut at 64 KiB.
const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 64 << 10, depth: 64 };

/// A server under test.
struct Rig {
    addr: ListenAddr,
    probe: Arc<Probe>,
    stop: StopHandle,
}

impl Rig {
    fn client(&self) -> Client {
        Client::connect(&self.addr).unwrap()
    }

    /// A bare connection, on which a missing answer is an error; one that is
    /// only late, as on a busy machine, is none.
    fn raw(&self) -> UnixStream {
        let ListenAddr::Unix(path) = &self.addr else { panic!("a Unix socket is wanted") };
        let sock = UnixStream::connect(path).unwrap();
        sock.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        sock
    }
}

/// Stops the server also when the test fails, which would wait for ever.
struct StopAtEnd<'a>(&'a StopHandle);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves `drive` on `addr` while `test` runs; gives its drive back.
fn serve_on(addr: &ListenAddr, drive: Ram, test: impl FnOnce(&Rig)) -> (Report, Ram) {
    serve_with(addr, Limits::default(), drive, test)
}

/// The same to as many clients, and with as much memory, as `limits` say.
fn serve_with(
    addr: &ListenAddr,
    limits: Limits,
    drive: Ram,
    test: impl FnOnce(&Rig),
) -> (Report, Ram) {
    let export = Exports::new(Export::even_without_data(drive.shape).unwrap());
    let probe = drive.probe.clone();
    let drive = SharedDrive::new(drive);
    let server = Server::bind(addr).unwrap().with(limits);
    let rig = Rig { addr: server.addr().unwrap(), probe, stop: StopHandle::new().unwrap() };
    let report = std::thread::scope(|scope| {
        let served = scope.spawn(|| server.run(&export, &drive, &rig.stop));
        let stop = StopAtEnd(&rig.stop);
        test(&rig);
        drop(stop);
        served.join().unwrap().unwrap()
    });
    if let ListenAddr::Unix(path) = addr {
        assert!(!path.exists(), "the socket is removed");
    }
    (report, drive.into_port().unwrap())
}

/// A socket in a directory of its own, removed with it.
fn socket() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd.sock");
    (dir, path)
}

/// Serves `drive` on a Unix socket.
fn serve(drive: Ram, test: impl FnOnce(&Rig)) -> (Report, Ram) {
    let (_dir, path) = socket();
    serve_on(&ListenAddr::Unix(path), drive, test)
}

/// One request and its answer.
fn ask(c: &mut Client, op: BlockOp, offset: u64, len: u64, data: &[u8]) -> (u32, Vec<u8>) {
    ask_fua(c, op, offset, len, false, data)
}

fn ask_fua(
    c: &mut Client,
    op: BlockOp,
    offset: u64,
    len: u64,
    fua: bool,
    data: &[u8],
) -> (u32, Vec<u8>) {
    c.submit(op, offset, len, fua, 77, data).unwrap();
    c.flush_sends().unwrap();
    let mut answer = None;
    c.recv(&mut |cookie, error, data| {
        assert_eq!(cookie, 77);
        answer = Some((error, data.to_vec()));
    })
    .unwrap();
    answer.unwrap()
}

fn read(c: &mut Client, offset: u64, len: u64) -> Vec<u8> {
    let (error, data) = ask(c, BlockOp::Read, offset, len, &[]);
    assert_eq!(error, 0);
    data
}

fn write(c: &mut Client, offset: u64, data: &[u8]) {
    assert_eq!(ask(c, BlockOp::Write, offset, data.len() as u64, data), (0, vec![]));
}
