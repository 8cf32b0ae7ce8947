//! A drive behind an application channel, as a driver: time is the wall's.
//!
//! One channel, closed loop only. Each request that is out has a part of the channel's
//! buffers, to which and from which its data are copied. May fail: the server cannot be
//! reached, refuses, goes away or says nothing for a minute; or somebody stops it, at once while the
//! channel is opened, and later where the server then owes answers for most of a second.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use channels::{Client, ClientError, Completion, Options, Request};
use device::realtime::Clock;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Ring, SECTOR_BYTES, Shape, Time};
use replay::Lacks;

use crate::driver::Driver;
use crate::served::{Offer, Remote, goes_on};
use crate::watch::Watch;
use drive::error::Error;
use drive::spec::ChannelSpec;

/// How often it is asked whether to go on, while nothing is answered.
const LOOK: Duration = Duration::from_millis(100);
/// How long a server may be silent.
const SILENT: Duration = Duration::from_secs(60);

/// A drive behind a channel.
pub struct Channelled {
    client: Client,
    clock: Clock,
    now: Time,
    /// Requests that were sent, by their numbers.
    sent: Vec<Sent>,
    /// Parts that nobody has, and the bytes of each.
    free: Vec<u32>,
    part: u32,
    goes_on: Box<dyn FnMut() -> bool + Send>,
    is_lost: bool,
}

/// What is kept of a request that was sent: little, as it is written and read for each.
struct Sent {
    /// Whether its number is of a request that is out.
    is_out: bool,
    op: BlockOp,
    /// Which part of the buffers it has.
    part: u32,
    data: Buffer,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent { is_out: false, op: BlockOp::Flush, part: 0, data: Buffer::empty() }
    }
}

fn failed(e: ClientError) -> Error {
    Error::Failed(e.to_string())
}

impl Channelled {
    /// Opens a channel for `depth` requests of up to `most` bytes, 0 for the drive's own.
    /// Gives up later when `watch` says so.
    pub fn open(
        spec: &ChannelSpec,
        (depth, most): (u32, u64),
        watch: &Watch,
    ) -> Result<Channelled, Error> {
        let plain = Options::default();
        let linger = spec.linger.map_or(plain.linger, Duration::from_nanos);
        let most = u32::try_from(most).unwrap_or(0);
        let depth = depth.min(channels::wire::MAX_DEPTH);
        let options = Options { depth, most, memory: 0, linger };
        // Nothing is owed yet: who stops it need not wait.
        let opening = RefCell::new(watch.helper());
        let is_watched = || opening.borrow_mut().look(0.0);
        let client = Client::open_while(Path::new(&spec.path), &options, &is_watched);
        let client = client.map_err(failed)?;
        let welcome = client.welcome();
        let part = (welcome.memory / u64::from(welcome.depth)) as u32;
        Ok(Channelled {
            free: (0..welcome.depth).rev().collect(),
            client,
            clock: Clock::start(),
            now: Time::ZERO,
            sent: Vec::new(),
            part,
            goes_on: goes_on(watch.helper()),
            is_lost: false,
        })
    }

    #[inline]
    fn send(&mut self, queue: &mut Ring<BlockReq>) -> Result<(), Error> {
        let had = queue.len();
        while let Some(&part) = self.free.last()
            && let Some(req) = queue.pop()
        {
            let BlockReq { id, op, fua, placement, offset, len, buffer: data, .. } = req;
            let (buffer, number) = (part * self.part, id as usize);
            if data.len() > self.part as usize || len > u32::MAX.into() {
                return Err(Error::Failed(format!("{len} bytes are more than the channel takes")));
            }
            if op == BlockOp::Write {
                self.client.write_buffer(buffer, data.bytes());
            }
            let request = Request { id, op, fua, placement, offset, len: len as u32, buffer };
            let is_taken = self.client.submit(&request);
            assert!(is_taken, "there is a place for each part");
            self.free.pop();
            if self.sent.len() <= number {
                self.sent.resize_with(number + 1, Sent::default);
            }
            // Field by field: what is made elsewhere and moved there stalls the processor.
            let sent = &mut self.sent[number];
            (sent.is_out, sent.op, sent.part, sent.data) = (true, op, part, data);
        }
        if queue.len() < had {
            self.client.kick();
        }
        Ok(())
    }

    /// Takes what has completed. Gives whether that was something.
    #[inline]
    fn receive(&mut self, done: &mut Ring<BlockDone>) -> Result<bool, Error> {
        let before = done.len();
        while done.room() > 0
            && let Some(Completion { id, status }) = self.client.take().map_err(failed)?
        {
            let Some(sent) = self.sent.get_mut(id as usize).filter(|sent| sent.is_out) else {
                return Err(Error::Failed("the server answered what was not asked".into()));
            };
            let (op, part) = (sent.op, sent.part);
            sent.is_out = false;
            if op == BlockOp::Read && status.is_ok() {
                self.client.read_buffer(part * self.part, sent.data.bytes_mut());
            }
            self.free.push(part);
            let of = &mut sent.data;
            done.put(|| BlockDone { id, op, status, at: Time::ZERO, buffer: std::mem::take(of) });
        }
        Ok(done.len() > before)
    }

    fn exchange(
        &mut self,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<(), Error> {
        self.send(queue)?;
        let mut since = None;
        while !self.receive(done)? && self.client.outside() > 0 {
            if self.client.wait(Some(LOOK)).map_err(failed)? {
                continue;
            }
            let owed = format!("with {} requests unanswered", self.client.outside());
            if !(self.goes_on)() {
                return Err(Error::Failed(format!("stopped {owed}")));
            }
            if since.get_or_insert_with(Instant::now).elapsed() > SILENT {
                let text =
                    format!("the server has not answered for {} s, {owed}", SILENT.as_secs());
                return Err(Error::Failed(text));
            }
        }
        Ok(())
    }
}

impl Remote for Channelled {
    fn shape(&self) -> Shape {
        let welcome = self.client.welcome();
        Shape {
            bytes: welcome.bytes,
            kept: welcome.kept,
            max_bytes: welcome.most.into(),
            depth: welcome.depth as usize,
        }
    }

    fn offer(&self) -> Offer {
        let welcome = self.client.welcome();
        let keeps_bytes = u64::from(welcome.kept) == BLOCK_BYTES;
        Offer {
            unit: if keeps_bytes { SECTOR_BYTES } else { BLOCK_BYTES },
            most: welcome.most.into(),
            most_trim: welcome.most_trim.into(),
            is_read_only: welcome.is_read_only,
            lacks: Lacks::default(),
        }
    }

    fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Driver for Channelled {
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
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
