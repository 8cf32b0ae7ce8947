//! A drive behind an NBD server, as a driver: time is the wall's.
//!
//! One connection, closed loop only. May fail: the server cannot be reached,
//! goes away, or breaks the protocol.

use std::net::ToSocketAddrs;

use device::realtime::Clock;
use exports::nbd::{Client, ListenAddr};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring, Shape, Status, Time};

use crate::drive::NbdAddress;
use crate::driver::Driver;
use crate::error::Error;

/// Requests that may be out at once.
const DEPTH: usize = 1 << 16;

/// Where an address leads to. Fails when the host has no address.
pub fn resolve(address: &NbdAddress) -> Result<ListenAddr, Error> {
    match address {
        NbdAddress::Unix(path) => Ok(ListenAddr::Unix(path.into())),
        NbdAddress::Tcp(host, port) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let found = (bare, *port).to_socket_addrs().ok().and_then(|mut all| all.next());
            let none =
                || Error::Failed(format!("the host `{host}` has no address: check its name"));
            found.map(ListenAddr::Tcp).ok_or_else(none)
        }
    }
}

/// A served drive.
pub struct Served {
    client: Client,
    clock: Clock,
    now: Time,
    /// Requests that were sent, by their numbers.
    sent: Vec<Option<BlockReq>>,
}

fn failed(e: exports::nbd::ClientError) -> Error {
    Error::Failed(e.to_string())
}

impl Served {
    /// Connects.
    pub fn connect(address: &NbdAddress) -> Result<Served, Error> {
        let client = Client::connect(&resolve(address)?).map_err(failed)?;
        Ok(Served { client, clock: Clock::start(), now: Time::ZERO, sent: Vec::new() })
    }

    /// The drive's outside. What is left over after whole blocks is not used.
    pub fn shape(&self) -> Shape {
        Shape {
            bytes: self.client.size() / BLOCK_BYTES * BLOCK_BYTES,
            kept: BLOCK_BYTES as u32,
            max_bytes: 1 << 20,
            depth: DEPTH,
        }
    }

    /// The smallest request, in bytes.
    pub fn unit(&self) -> u64 {
        self.client.unit().into()
    }

    /// Says goodbye.
    pub fn close(self) -> Result<(), Error> {
        self.client.close().map_err(failed)
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
}

/// What the protocol's error means.
fn status(error: u32) -> Status {
    match error {
        0 => Status::SUCCESS,
        22 => Status::INVALID_FIELD,
        28 => Status::CAPACITY_EXCEEDED,
        1 => Status::READ_ONLY,
        _ => Status::INTERNAL,
    }
}

impl Driver for Served {
    const REAL: bool = false;

    fn now(&self) -> Time {
        self.now
    }

    fn turn(
        &mut self,
        _arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
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
        self.now = self.clock.now();
        Ok(self.now)
    }
}
