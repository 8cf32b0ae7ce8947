//! How a channel is asked for, handed over and woken: what goes over its socket.
//!
//! Guarantees: nothing here blocks for longer than it was told, whatever the other side
//! does: each call says itself that it does not wait, as the socket's own flag is the
//! other process's to change as well. (That is why a byte on the socket wakes who
//! sleeps, and no eventfd, on which a hostile peer could make a write wait.) May fail:
//! the socket, the other side is silent or gone, or it says something else.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, recvmsg, send,
    sendmsg, socket_with,
};

use crate::wire::{Hello, MAX_TEXT, VERSION, Welcome};

/// After which time a server whose line is full is tried again.
const FULL_LINE: Duration = Duration::from_millis(1);

/// How often it is asked whether to wait longer.
const LOOK: Duration = Duration::from_millis(50);

/// Until when, and for how long, a side waits for the other.
pub struct Patience<'a> {
    /// The time at which it gives up.
    pub until: Instant,
    /// It gives up when this is readable.
    pub unless: Option<BorrowedFd<'a>>,
    /// It gives up when this says no: asked every [`LOOK`], and when a signal comes.
    pub goes_on: Option<&'a dyn Fn() -> bool>,
}

impl Patience<'_> {
    /// Fails when somebody stops it.
    fn ask(&self) -> io::Result<()> {
        match self.goes_on.is_none_or(|goes_on| goes_on()) {
            true => Ok(()),
            false => Err(ErrorKind::Interrupted.into()),
        }
    }

    /// Waits until the socket is ready. Fails when it has lasted too long.
    fn wait(&self, socket: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Err(ErrorKind::TimedOut.into());
            }
            self.ask()?;
            let left = if self.goes_on.is_some() { left.min(LOOK) } else { left };
            let other = PollFd::from_borrowed_fd(self.unless.unwrap_or(socket), PollFlags::IN);
            let mut fds = [PollFd::from_borrowed_fd(socket, what), other];
            let fds = &mut fds[..1 + usize::from(self.unless.is_some())];
            match poll(fds, left.try_into().ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            if fds.get(1).is_some_and(|other| !other.revents().is_empty()) {
                return Err(ErrorKind::Interrupted.into());
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
        }
    }

    /// Receives all of `to`, and a descriptor that comes with it.
    fn receive(&self, socket: BorrowedFd<'_>, mut to: &mut [u8]) -> io::Result<Option<OwnedFd>> {
        let mut found = None;
        while !to.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let got = recvmsg(socket, &mut [IoSliceMut::new(to)], &mut control, flags);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(all) = message {
                    // The last; others are closed.
                    found = all.last().or(found);
                }
            }
            match got {
                Ok(message) if message.bytes == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(message) => to = &mut to[message.bytes..],
                Err(Errno::AGAIN) => self.wait(socket, PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(found)
    }
}

/// A server's look at who came: what it asks for, `None` where it speaks something else.
pub fn hear(socket: impl AsFd, patience: &Patience<'_>) -> io::Result<Option<Hello>> {
    let mut bytes = [0; Hello::LEN];
    patience.receive(socket.as_fd(), &mut bytes)?;
    Ok(Hello::parse(&bytes))
}

/// Hands a channel over. What does not fit into the socket of a client that has read
/// nothing yet is an error.
pub fn hand_over(socket: impl AsFd, welcome: Welcome, memory: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let memory = [memory.as_fd()];
    let fits = control.push(SendAncillaryMessage::ScmRights(&memory));
    assert!(fits, "there is room for one descriptor");
    let bytes = welcome.to_bytes();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    whole(sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags), Welcome::LEN)
}

/// Says why there is no channel, in at most [`MAX_TEXT`] bytes.
pub fn refuse(socket: impl AsFd, why: &str) -> io::Result<()> {
    let text = &why.as_bytes()[..why.len().min(MAX_TEXT)];
    let refused = text.len() as u16;
    let welcome = Welcome { version: VERSION, refused, ..Welcome::default() };
    let mut bytes = welcome.to_bytes().to_vec();
    bytes.extend(text);
    whole(send(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL), bytes.len())
}

fn whole(sent: rustix::io::Result<usize>, len: usize) -> io::Result<()> {
    if sent? == len { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// What a client is answered.
#[derive(Debug)]
pub enum Answer {
    /// A channel, and its memory.
    Channel(Welcome, OwnedFd),
    /// There is none, and why.
    Refused(String),
    /// Something that is no answer.
    Nonsense(&'static str),
}

/// Asks for a channel.
pub fn ask(socket: impl AsFd, hello: Hello, patience: &Patience<'_>) -> io::Result<Answer> {
    let socket = socket.as_fd();
    let sent = send(socket, &hello.to_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    // Who was turned away at once cannot say anything, and may still read why.
    let sent = whole(sent, Hello::LEN);
    let mut bytes = [0; Welcome::LEN];
    let memory = match (patience.receive(socket, &mut bytes), sent) {
        (Err(_), Err(e)) => return Err(e),
        (received, _) => received?,
    };
    let Some(welcome) = Welcome::parse(&bytes) else {
        return Ok(Answer::Nonsense("its answer does not begin as one"));
    };
    if welcome.refused > 0 {
        let mut text = vec![0; usize::from(welcome.refused).min(MAX_TEXT)];
        patience.receive(socket, &mut text)?;
        return Ok(Answer::Refused(String::from_utf8_lossy(&text).into_owned()));
    }
    Ok(match memory {
        _ if welcome.version != VERSION => Answer::Nonsense("it speaks another version"),
        Some(memory) => Answer::Channel(welcome, memory),
        None => Answer::Nonsense("it sent no memory"),
    })
}

/// Connects to a server, whose line of those that wait may be full.
pub fn connect(path: &Path, patience: &Patience<'_>) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN) if Instant::now() < patience.until => {
                patience.ask()?;
                std::thread::sleep(FULL_LINE);
            }
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Wakes the other side, which sleeps until its socket is readable.
pub fn wake(socket: impl AsFd) {
    // Where there is no room it has rings that it did not look at, and is awake; where
    // it is gone that is found by who listens.
    let _ = send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes back rings, as many as there are. Gives whether the other side is still there.
pub fn is_there(socket: impl AsFd) -> bool {
    let mut rings = [0; 64];
    match recv(socket, &mut rings, RecvFlags::DONTWAIT) {
        Ok((got, _)) => got > 0,
        Err(e) => e == Errno::AGAIN || e == Errno::INTR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    const SOON: Duration = Duration::from_millis(20);

    fn soon() -> Patience<'static> {
        Patience { until: Instant::now() + SOON, unless: None, goes_on: None }
    }

    #[test]
    fn a_channel_is_handed_over() {
        let (client, server) = UnixStream::pair().unwrap();
        let (file, memory) = crate::Region::create(4096).unwrap();
        let welcome = Welcome { version: VERSION, depth: 4, memory: 9, ..Welcome::default() };
        hand_over(&server, welcome, &file).unwrap();
        let hello = Hello { version: VERSION, depth: 4, most: 0, memory: 0 };
        let Answer::Channel(told, file) = ask(&client, hello, &soon()).unwrap() else {
            panic!("a channel")
        };
        assert_eq!((told, hear(&server, &soon()).unwrap()), (welcome, Some(hello)));
        memory.write(0, b"x");
        let mut seen = [0];
        crate::Region::map(&file, 4096).unwrap().read(0, &mut seen);
        assert_eq!(&seen, b"x");
    }

    #[test]
    fn refusals_and_nonsense_are_told() {
        let hello = Hello { version: VERSION, depth: 4, most: 0, memory: 0 };
        let (client, server) = UnixStream::pair().unwrap();
        refuse(&server, "because").unwrap();
        assert!(
            matches!(ask(&client, hello, &soon()), Ok(Answer::Refused(why)) if why == "because")
        );
        let (client, mut server) = UnixStream::pair().unwrap();
        server.write_all(&[7; 64]).unwrap();
        assert!(matches!(ask(&client, hello, &soon()), Ok(Answer::Nonsense(_))));
        let (client, _server) = UnixStream::pair().unwrap();
        let silent = ask(&client, hello, &soon()).unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn who_is_turned_away_before_it_speaks_reads_why() {
        let hello = Hello { version: VERSION, depth: 4, most: 0, memory: 0 };
        let (client, server) = UnixStream::pair().unwrap();
        refuse(&server, "full").unwrap();
        drop(server);
        assert!(matches!(ask(&client, hello, &soon()), Ok(Answer::Refused(why)) if why == "full"));
        let (client, server) = UnixStream::pair().unwrap();
        drop(server);
        assert_eq!(ask(&client, hello, &soon()).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_full_line_is_waited_for_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = connect(&path, &soon()).unwrap();
        assert_eq!(connect(&path, &soon()).unwrap_err().kind(), ErrorKind::TimedOut);
        let until = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let patience = || Patience { until, unless: None, goes_on: None };
            let second = scope.spawn({
                let path = &path;
                move || connect(path, &patience())
            });
            drop(listener.accept().unwrap());
            second.join().unwrap().unwrap();
        });
        drop(first);
    }

    #[test]
    fn rings_are_taken_back_and_who_is_gone_is_noticed() {
        let (client, server) = UnixStream::pair().unwrap();
        // More than any socket holds: nobody waits.
        (0..1_000_000).for_each(|_| wake(&server));
        assert!(is_there(&client));
        while recv(&client, &mut [0; 4096], RecvFlags::DONTWAIT).is_ok() {}
        assert!(is_there(&client), "nothing to hear is no end");
        drop(server);
        assert!(!is_there(&client));
        wake(&client);
    }

    #[test]
    fn who_waits_is_called_off() {
        let (client, _server) = UnixStream::pair().unwrap();
        let (bell, mut ringer) = UnixStream::pair().unwrap();
        ringer.write_all(&[1]).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let patience = Patience { until, unless: Some(bell.as_fd()), goes_on: None };
        assert_eq!(hear(&client, &patience).unwrap_err().kind(), ErrorKind::Interrupted);
    }

    /// A server that says nothing, as one that was stopped, keeps nobody.
    #[test]
    fn who_is_stopped_does_not_wait_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let asked = std::cell::Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        };
        let until = Instant::now() + Duration::from_secs(3600);
        let patience = Patience { until, unless: None, goes_on: Some(&goes_on) };
        let silent = connect(&path, &patience).unwrap();
        let hello = Hello { version: VERSION, depth: 4, most: 0, memory: 0 };
        let stopped = ask(&silent, hello, &patience).unwrap_err();
        assert_eq!((stopped.kind(), asked.get()), (ErrorKind::Interrupted, 3));
        // Its line is full now.
        asked.set(0);
        assert_eq!(connect(&path, &patience).unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
