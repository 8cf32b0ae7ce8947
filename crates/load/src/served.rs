//! A drive behind an NBD server, as a driver: time is the wall's.
//!
//! One connection, closed loop only. May fail: the server cannot be reached,
//! goes away, says nothing for a minute, or breaks the protocol; or somebody
//! stops it, and the server then owes answers for most of a second.

use std::time::{Duration, Instant};

use device::realtime::Clock;
use exports::nbd::protocol::{
    READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES, status,
};
use exports::nbd::{Client, ClientError, ListenAddr, Waiter};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring, Shape, Time};

use replay::Lacks;

use crate::driver::Driver;
use crate::watch::Watch;
use drive::error::Error;
use drive::remote::{first_of, resolve};
use drive::spec::NbdDrive;

/// Requests that may be out at once.
const DEPTH: usize = 1 << 16;

/// How long answers are waited for when a run is stopped.
const GRACE: Duration = Duration::from_millis(700);

/// What a server takes of what a drive of its shape does.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Requests are of whole units of so many bytes.
    pub unit: u64,
    /// The longest read or write, in bytes.
    pub most: u64,
    /// The longest trim or write of zeros.
    pub most_trim: u64,
    /// Whether it takes no writes.
    pub is_read_only: bool,
    /// What it does not take.
    pub lacks: Lacks,
}

/// A drive that somebody serves.
pub trait Remote: Driver + Sized {
    /// The drive's outside.
    fn shape(&self) -> Shape;

    /// What its server takes.
    fn offer(&self) -> Offer;

    /// Says goodbye.
    fn close(self) -> Result<(), Error>;
}

/// A served drive.
pub struct Served {
    client: Client,
    clock: Clock,
    now: Time,
    /// Requests that were sent, by their numbers.
    sent: Vec<Option<BlockReq>>,
    is_lost: bool,
}

/// Whether to wait longer: until somebody stops it, and then a moment for what
/// is out.
pub(crate) fn goes_on(mut watch: Watch) -> Box<dyn FnMut() -> bool + Send> {
    let mut stopped: Option<Instant> = None;
    Box::new(move || watch.look(0.0) || stopped.get_or_insert_with(Instant::now).elapsed() < GRACE)
}

fn failed(e: ClientError) -> Error {
    Error::Failed(e.to_string())
}

impl Served {
    /// Connects to the first of its addresses that can be reached. Gives up,
    /// now and later, when `watch` says so.
    pub fn connect(served: &NbdDrive, watch: &Watch) -> Result<Served, Error> {
        let connect = |at: &ListenAddr| {
            let waiter = Waiter { goes_on: goes_on(watch.helper()), ..Waiter::default() };
            Client::connect_with(at, &served.export, waiter)
        };
        let client = first_of(&resolve(&served.address)?, connect)?;
        Ok(Served {
            client,
            clock: Clock::start(),
            now: Time::ZERO,
            sent: Vec::new(),
            is_lost: false,
        })
    }

    fn send(&mut self, queue: &mut Ring<BlockReq>) -> Result<(), Error> {
        while let Some(req) = queue.pop() {
            let id = req.id as usize;
            if self.sent.len() <= id {
                self.sent.resize_with(id + 1, || None);
            }
            let data = if req.op == BlockOp::Write { req.buffer.bytes() } else { &[] };
            let BlockReq { op, offset, len, fua, .. } = req;
            self.client.submit(op, offset, len, fua, req.id, data).map_err(failed)?;
            self.sent[id] = Some(req);
        }
        self.client.flush_sends().map_err(failed)
    }

    /// Sends `queue`, and takes what comes.
    fn exchange(
        &mut self,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<(), Error> {
        self.send(queue)?;
        let (sent, client) = (&mut self.sent, &mut self.client);
        let mut wrong = false;
        let mut each = |id: u64, error: u32, data: &[u8]| {
            let Some(mut req) = sent.get_mut(id as usize).and_then(Option::take) else {
                wrong = true;
                return;
            };
            if req.op == BlockOp::Read && data.len() == req.buffer.len() {
                req.buffer.bytes_mut().copy_from_slice(data);
            }
            let (buffer, op) = (std::mem::replace(&mut req.buffer, Buffer::empty()), req.op);
            let status = status(error);
            wrong |= done.push(BlockDone { id, op, status, at: Time::ZERO, buffer }).is_err();
        };
        client.recv(&mut each).map_err(failed)?;
        if wrong {
            return Err(Error::Failed("the server answered what was not asked".into()));
        }
        Ok(())
    }
}

impl Remote for Served {
    /// What is left over after whole blocks is not used.
    fn shape(&self) -> Shape {
        Shape {
            bytes: self.client.size() / BLOCK_BYTES * BLOCK_BYTES,
            kept: BLOCK_BYTES as u32,
            max_bytes: 1 << 20,
            depth: DEPTH,
        }
    }

    fn offer(&self) -> Offer {
        let lacks = |flag: u16| self.client.flags() & flag == 0;
        Offer {
            unit: self.client.unit().into(),
            most: self.client.most().into(),
            // Lengths have 32 bits.
            most_trim: u32::MAX.into(),
            is_read_only: !lacks(READ_ONLY),
            lacks: Lacks {
                trims: lacks(SEND_TRIM),
                zeroes: lacks(SEND_WRITE_ZEROES),
                flushes: lacks(SEND_FLUSH),
                fua: lacks(SEND_FUA),
            },
        }
    }

    fn close(self) -> Result<(), Error> {
        self.client.close().map_err(failed)
    }
}

impl Driver for Served {
    fn now(&self) -> Time {
        self.now
    }

    fn turn(
        &mut self,
        _arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        let exchanged = self.exchange(queue, done);
        (self.is_lost, self.now) = (exchanged.is_err(), self.clock.now());
        exchanged.map(|()| self.now)
    }

    fn is_lost(&self) -> bool {
        self.is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drive::spec::NbdAddress;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    /// A server that does so much of the protocol and then says nothing.
    fn silent(name: &str, says: &'static [u8]) -> (tempfile::TempDir, NbdDrive) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let mut all = Vec::new();
            while let Ok((mut sock, _)) = listener.accept() {
                let _ = sock.write_all(says);
                all.push(sock);
            }
        });
        (dir, NbdAddress::Unix(path.to_str().unwrap().into()).into())
    }

    /// What a server says that offers 1 MiB, before it says nothing.
    const OFFER: &[u8] = b"NBDMAGICIHAVEOPT\0\x03\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\
        \0\0\0\x0c\0\0\0\0\0\0\0\x10\0\0\0\x01\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0";

    /// A run against a server that is silent ends when it is to.
    #[test]
    fn silent_servers_are_given_up() {
        let limit = Duration::from_millis(50);
        for says in [&b""[..], b"NBDMAGIC"] {
            let (_dir, address) = silent("a", says);
            let watch = Watch::until(limit);
            let start = Instant::now();
            let Err(e) = Served::connect(&address, &watch) else { panic!("it is silent") };
            assert!(e.to_string().contains("stopped before the server had said"), "{e}");
            assert!(start.elapsed() < Duration::from_secs(8), "before the server's own time");
        }
        let (_dir, address) = silent("b", OFFER);
        let mut served = Served::connect(&address, &Watch::until(limit)).unwrap();
        assert_eq!(served.shape().bytes, 1 << 20);
        let (mut queue, mut done) = (Ring::new(1), Ring::new(1));
        let buffer = Buffer::zeroed(4096).unwrap();
        queue.put(|| BlockReq::new(0, BlockOp::Read, 0, 4096, buffer));
        let Err(e) = served.turn(None, &mut queue, &mut done) else { panic!("it is silent") };
        assert!(e.to_string().contains("owed 1 answer"), "{e}");
    }

    /// What a server says whose requests have no least length.
    const NO_SIZES: &[u8] =
        b"NBDMAGICIHAVEOPT\0\x03\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\
        \0\0\0\x0e\0\x03\0\0\0\0\0\0\0\x03\0\0\0\0";

    #[test]
    fn sizes_that_are_none_break_the_protocol() {
        let (_dir, address) = silent("c", NO_SIZES);
        let watch = Watch::until(Duration::from_secs(8));
        let Err(e) = Served::connect(&address, &watch) else { panic!("it makes no sense") };
        assert!(e.to_string().contains("a fact about the export makes no sense"), "{e}");
    }

    #[test]
    fn the_first_address_that_answers_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| ListenAddr::Unix(dir.path().join(name));
        let _listener = UnixListener::bind(dir.path().join("b")).unwrap();
        let reach = |at: &ListenAddr| match at {
            ListenAddr::Unix(path) => std::os::unix::net::UnixStream::connect(path),
            ListenAddr::Tcp(_) => panic!("a Unix socket"),
        };
        assert!(first_of(&[path("a"), path("b")], reach).is_ok());
        assert!(first_of(&[path("a"), path("c")], reach).is_err());
        let host = NbdDrive::from(NbdAddress::Tcp("127.0.0.1".into(), 9));
        assert_eq!(resolve(&host.address).unwrap(), [ListenAddr::Tcp(([127, 0, 0, 1], 9).into())]);
    }
}
