//! A client made to load a server: many requests in flight, sent in groups,
//! replies taken as they come.
//!
//! Nothing is allocated once the first requests of the largest size have
//! passed. Sending never blocks: what does not go out stays here, and
//! [`Client::recv`] sends and receives in turn, so that a client that is full
//! of data to send and a server that is full of replies do not wait for each
//! other. Who connects says how long the server may be silent ([`Waiter`]), and
//! may give up at any time.
//!
//! May fail: the server refuses, closes, is silent, or breaks the protocol.
//! After an error the client is of no more use.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use port::BlockOp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use thiserror::Error;

use super::patience::Patience;
use super::protocol::*;
use crate::listen::ListenAddr;

/// Received bytes before any larger reply is expected.
const INBUF: usize = 256 << 10;
/// How often a client that waits asks whether it is to go on.
const LOOK: Duration = Duration::from_millis(100);
/// The longest answer to an option that is listened to, in bytes.
const ANSWER_MAX: u32 = 64 << 10;

/// Why a client cannot go on.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The server cannot be reached.
    #[error("cannot connect to {addr}: {source}; is a server running there?")]
    Connect {
        /// Its address.
        addr: ListenAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The connection failed.
    #[error("the connection to the server failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed.
    #[error("the server closed the connection with {outstanding} requests unanswered")]
    Closed {
        /// Requests in flight.
        outstanding: usize,
    },
    /// The server says nothing.
    #[error("the server has not answered for {} s, with {outstanding} requests unanswered", .time.as_secs())]
    Silent {
        /// For so long.
        time: Duration,
        /// Requests in flight.
        outstanding: usize,
    },
    /// Who waits gave up.
    #[error("stopped while the server owed {outstanding} answers")]
    Stopped {
        /// Requests in flight.
        outstanding: usize,
    },
    /// Who waits gave up while the server had yet to say what it serves.
    #[error("stopped before the server had said what it serves: is it an NBD server, and at work?")]
    Unopened,
    /// The server does not keep to the protocol.
    #[error("the server does not speak the NBD protocol: {0}")]
    Protocol(&'static str),
    /// The server refuses the export.
    #[error("the server refuses the export `{name}`: error {kind:#x}, {words:?}")]
    Refused {
        /// Which export.
        name: String,
        /// The protocol's error.
        kind: u32,
        /// The server's words.
        words: String,
    },
    /// The server does not do what is needed.
    #[error("the server cannot be this drive's remote one: {0}")]
    Lacks(&'static str),
    /// A request that no server could take.
    #[error("{0} bytes do not fit in one request of at most {MAX_REQUEST}")]
    TooLong(u64),
}

impl From<Errno> for ClientError {
    fn from(e: Errno) -> ClientError {
        ClientError::Io(e.into())
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    cookie: u64,
    /// Bytes of data in its reply.
    data: u32,
    busy: bool,
}

/// How long a client waits for its server.
pub struct Waiter {
    /// To connect and to negotiate.
    pub opening: Duration,
    /// For any answer, while there are requests in flight.
    pub answer: Duration,
    /// Whether it is to go on, asked about ten times a second.
    pub goes_on: Box<dyn FnMut() -> bool + Send>,
}

impl Default for Waiter {
    /// 10 s, 60 s, and nobody gives up.
    fn default() -> Waiter {
        let second = Duration::from_secs(1);
        Waiter { opening: 10 * second, answer: 60 * second, goes_on: Box::new(|| true) }
    }
}

/// A connection to a server, in transmission.
pub struct Client {
    sock: OwnedFd,
    bytes: u64,
    flags: u16,
    unit: u32,
    most: u32,
    out: Vec<u8>,
    /// Bytes of `out` that are sent.
    sent: usize,
    input: Vec<u8>,
    start: usize,
    end: usize,
    waiting: Vec<Waiting>,
    free: Vec<u32>,
    patience: Patience,
    waiter: Waiter,
}

impl Client {
    /// Connects and opens the server's default export.
    pub fn connect(addr: &ListenAddr) -> Result<Client, ClientError> {
        Client::connect_to(addr, "")
    }

    /// Connects and opens the export called `name`.
    pub fn connect_to(addr: &ListenAddr, name: &str) -> Result<Client, ClientError> {
        Client::connect_with(addr, name, Waiter::default())
    }

    /// The same, and waits no longer than `waiter` says.
    pub fn connect_with(
        addr: &ListenAddr,
        name: &str,
        mut waiter: Waiter,
    ) -> Result<Client, ClientError> {
        let fail = |source| ClientError::Connect { addr: addr.clone(), source };
        match addr {
            ListenAddr::Unix(path) => {
                let mut sock = connect_unix(path, &mut waiter).map_err(fail)?;
                sock.set_read_timeout(Some(LOOK))?;
                let opened = open(&mut Patient::new(&mut sock, &mut waiter), name)?;
                Ok(Client::new(sock.into(), opened, waiter))
            }
            ListenAddr::Tcp(at) => {
                let mut sock = TcpStream::connect_timeout(at, waiter.opening).map_err(fail)?;
                sock.set_nodelay(true)?;
                sock.set_read_timeout(Some(LOOK))?;
                let opened = open(&mut Patient::new(&mut sock, &mut waiter), name)?;
                Ok(Client::new(sock.into(), opened, waiter))
            }
        }
    }

    fn new(sock: OwnedFd, opened: Opened, waiter: Waiter) -> Client {
        Client {
            sock,
            bytes: opened.bytes,
            flags: opened.flags,
            unit: opened.unit,
            most: opened.most,
            out: Vec::with_capacity(64 << 10),
            sent: 0,
            input: vec![0; INBUF],
            start: 0,
            end: 0,
            waiting: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            patience: Patience::default(),
            waiter,
        }
    }

    /// The export's size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// The smallest request and the alignment of all, in bytes.
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// The longest read or write that the server takes, in bytes.
    pub fn most(&self) -> u32 {
        self.most.min(MAX_REQUEST)
    }

    /// The export's transmission flags, as in [`super::protocol`].
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// Requests that are not answered yet.
    pub fn outstanding(&self) -> usize {
        self.waiting.len() - self.free.len()
    }

    /// Puts a request in line; it goes out with
    /// [`flush_sends`](Self::flush_sends). `len` counts bytes, `data` are the
    /// `len` bytes of a write and empty otherwise. A flush has neither offset
    /// nor length. `cookie` comes back with the reply.
    ///
    /// # Panics
    /// When the data of a write are not `len` bytes.
    #[inline]
    pub fn submit(
        &mut self,
        op: BlockOp,
        offset: u64,
        len: u64,
        fua: bool,
        cookie: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        let wire = u32::try_from(len).map_err(|_| ClientError::TooLong(len))?;
        let moves = matches!(op, BlockOp::Read | BlockOp::Write);
        if moves && wire > MAX_REQUEST {
            return Err(ClientError::TooLong(len));
        }
        let write = op == BlockOp::Write;
        assert!(data.len() as u64 == if write { len } else { 0 }, "a write brings its data");
        let command = match op {
            BlockOp::Read => CMD_READ,
            BlockOp::Write => CMD_WRITE,
            BlockOp::Flush => CMD_FLUSH,
            BlockOp::Trim => CMD_TRIM,
            BlockOp::WriteZeroes => CMD_WRITE_ZEROES,
        };
        let waiting =
            Waiting { cookie, data: if op == BlockOp::Read { wire } else { 0 }, busy: true };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(waiting);
            self.waiting.len() as u32 - 1
        });
        self.waiting[slot as usize] = waiting;
        let flags = if fua { CMD_FLAG_FUA } else { 0 };
        let request = Request { flags, command, cookie: slot.into(), offset, len: wire };
        self.out.extend_from_slice(&request.to_bytes());
        self.out.extend_from_slice(data);
        Ok(())
    }

    /// Sends what is in line, as far as the socket takes it; the rest goes
    /// out during [`recv`](Self::recv).
    #[inline]
    pub fn flush_sends(&mut self) -> Result<(), ClientError> {
        while self.sent < self.out.len() {
            let rest = &self.out[self.sent..];
            match send(&self.sock, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN) => {
                    // What was sent makes room, also where there is always more to send.
                    if self.sent >= self.out.len() / 2 {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Waits for at least one reply, and gives all that are there to `each`:
    /// the request's cookie, [`OK`] or the protocol's error, and the data of
    /// a read that went well. Gives how many there were; none only when
    /// nothing is outstanding.
    pub fn recv(&mut self, each: &mut impl FnMut(u64, u32, &[u8])) -> Result<usize, ClientError> {
        let (mut waits, mut is_first) = (None, true);
        loop {
            let n = self.parse(each)?;
            if n > 0 || self.outstanding() == 0 {
                return Ok(n);
            }
            self.flush_sends()?;
            self.fetch(self.sent < self.out.len())?;
            // Also where bytes come one by one, and no answer is ever whole.
            match &mut waits {
                None if std::mem::take(&mut is_first) => {}
                None => waits = Some((Instant::now(), Instant::now())),
                Some((since, looked)) if looked.elapsed() >= LOOK => {
                    *looked = Instant::now();
                    let (since, outstanding) = (*since, self.outstanding());
                    if !(self.waiter.goes_on)() {
                        return Err(ClientError::Stopped { outstanding });
                    }
                    let time = since.elapsed();
                    if time >= self.waiter.answer {
                        return Err(ClientError::Silent { time, outstanding });
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Sends and receives what goes without waiting, and gives whole replies to `each`, as
    /// [`recv`](Self::recv) does. Gives how many there were.
    pub fn poll(&mut self, each: &mut impl FnMut(u64, u32, &[u8])) -> Result<usize, ClientError> {
        self.flush_sends()?;
        let mut n = self.parse(each)?;
        while self.outstanding() > 0 {
            self.move_up();
            match recv(&self.sock, &mut self.input[self.end..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    return Err(ClientError::Closed { outstanding: self.outstanding() });
                }
                Ok((got, _)) => {
                    self.end += got;
                    n += self.parse(each)?;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(n)
    }

    /// Moves what was received and not given to the front.
    fn move_up(&mut self) {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Gives whole replies to `each`.
    #[inline]
    fn parse(&mut self, each: &mut impl FnMut(u64, u32, &[u8])) -> Result<usize, ClientError> {
        let mut n = 0;
        loop {
            let bytes = &self.input[self.start..self.end];
            let Some(head) = bytes.first_chunk() else {
                return Ok(n);
            };
            let reply =
                Reply::parse(head).ok_or(ClientError::Protocol("a reply's magic is wrong"))?;
            let slot = reply.cookie as usize;
            let waiting = self.waiting.get(slot).filter(|w| w.busy && slot as u64 == reply.cookie);
            let &Waiting { cookie, data, .. } =
                waiting.ok_or(ClientError::Protocol("a reply to no request"))?;
            let len = if reply.error == OK { data as usize } else { 0 };
            let Some(data) = bytes[Reply::LEN..].get(..len) else {
                self.make_room(Reply::LEN + len);
                return Ok(n);
            };
            each(cookie, reply.error, data);
            self.start += Reply::LEN + len;
            self.waiting[slot].busy = false;
            self.free.push(slot as u32);
            n += 1;
        }
    }

    /// Makes sure that a reply of `len` bytes fits.
    fn make_room(&mut self, len: usize) {
        if self.input.len() < len {
            self.input.resize(len.next_power_of_two(), 0);
        }
    }

    /// Receives what is there, or waits a moment for it; with `sends`, until the
    /// socket takes more.
    #[inline]
    fn fetch(&mut self, sends: bool) -> Result<(), ClientError> {
        self.move_up();
        let (sock, input) = (&self.sock, &mut self.input[self.end..]);
        let mut receive = |flags| match recv(sock, &mut *input, flags) {
            Ok((n, _)) => Ok(Some(n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(e) => Err(e),
        };
        let got = if sends {
            let mut fds = [PollFd::new(sock, PollFlags::IN | PollFlags::OUT)];
            let look = LOOK.try_into().ok();
            match poll(&mut fds, look.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            receive(RecvFlags::DONTWAIT)
        } else {
            self.patience.receive(receive)
        };
        match got? {
            Some(0) => Err(ClientError::Closed { outstanding: self.outstanding() }),
            n => {
                self.end += n.unwrap_or(0);
                Ok(())
            }
        }
    }

    /// Says goodbye. Replies to what is outstanding are not waited for.
    pub fn close(mut self) -> Result<(), ClientError> {
        let bye = Request { flags: 0, command: CMD_DISC, cookie: 0, offset: 0, len: 0 };
        self.out.extend_from_slice(&bye.to_bytes());
        self.flush_sends()
    }
}

/// Connects to a Unix socket, whose server may have no room for a while.
fn connect_unix(path: &Path, waiter: &mut Waiter) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let sock = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let (addr, until) = (SocketAddrUnix::new(path)?, Instant::now() + waiter.opening);
    loop {
        match connect(&sock, &addr) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < until && (waiter.goes_on)() => sleep(LOOK / 10),
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
    ioctl_fionbio(&sock, false)?;
    Ok(sock.into())
}

/// A socket whose reads and writes end when it is time.
struct Patient<'a, S> {
    sock: &'a mut S,
    waiter: &'a mut Waiter,
    until: Instant,
}

impl<'a, S: Read + Write> Patient<'a, S> {
    fn new(sock: &'a mut S, waiter: &'a mut Waiter) -> Patient<'a, S> {
        let until = Instant::now() + waiter.opening;
        Patient { sock, waiter, until }
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    fn read_exact(&mut self, mut to: &mut [u8]) -> Result<(), ClientError> {
        while !to.is_empty() {
            match self.sock.read(to) {
                Ok(0) => return Err(ClientError::Closed { outstanding: 0 }),
                Ok(n) => to = &mut to[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
            if !(self.waiter.goes_on)() {
                return Err(ClientError::Unopened);
            }
            if !to.is_empty() && self.is_late() {
                let time = self.waiter.opening;
                return Err(ClientError::Silent { time, outstanding: 0 });
            }
        }
        Ok(())
    }
}

/// What the negotiation told.
struct Opened {
    bytes: u64,
    flags: u16,
    unit: u32,
    most: u32,
}

/// Negotiates with `OPT_GO`.
fn open<S: Read + Write>(sock: &mut Patient<'_, S>, name: &str) -> Result<Opened, ClientError> {
    let mut hello = [0; 18];
    sock.read_exact(&mut hello)?;
    let flags = parse_greeting(&hello)
        .filter(|f| f & FIXED_NEWSTYLE != 0)
        .ok_or(ClientError::Protocol("the greeting is not that of a fixed newstyle server"))?;
    let mut out = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes().to_vec();
    let mut data = Vec::new();
    InfoRequest::write(name.as_bytes(), &[INFO_BLOCK_SIZE], &mut data);
    out.extend(OptionHeader { option: OPT_GO, len: data.len() as u32 }.to_bytes());
    out.extend(data);
    sock.sock.write_all(&out)?;
    let mut opened = Opened { bytes: 0, flags: 0, unit: 1, most: MAX_REQUEST };
    loop {
        // What is always there at once never has a read wait.
        if sock.is_late() {
            return Err(ClientError::Protocol("its answers to one option have no end"));
        }
        let mut head = [0; OptionReply::LEN];
        sock.read_exact(&mut head)?;
        let reply = OptionReply::parse(&head)
            .filter(|r| r.option == OPT_GO && r.len <= ANSWER_MAX)
            .ok_or(ClientError::Protocol("an answer to an option makes no sense"))?;
        let mut data = vec![0; reply.len as usize];
        sock.read_exact(&mut data)?;
        match reply.kind {
            REP_ACK if opened.flags & HAS_FLAGS != 0 => return Ok(opened),
            REP_ACK => return Err(ClientError::Protocol("no word of the export's size")),
            REP_INFO => note(&data, &mut opened)
                .ok_or(ClientError::Protocol("a fact about the export makes no sense"))?,
            kind => {
                let words = String::from_utf8_lossy(&data).into_owned();
                return Err(ClientError::Refused { name: name.into(), kind, words });
            }
        }
    }
}

/// Notes a fact about the export. `None` when it is too short, or when it has
/// sizes of requests that are none: the least is a power of two, and the others
/// are not less.
fn note(data: &[u8], opened: &mut Opened) -> Option<()> {
    let mut r = Reader(data);
    match r.u16()? {
        INFO_EXPORT => (opened.bytes, opened.flags) = (r.u64()?, r.u16()?),
        INFO_BLOCK_SIZE => {
            let (least, preferred, most) = (r.u32()?, r.u32()?, r.u32()?);
            if !least.is_power_of_two() || preferred.min(most) < least {
                return None;
            }
            (opened.unit, opened.most) = (least, most);
        }
        _ => {}
    }
    Some(())
}
