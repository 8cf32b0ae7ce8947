//! The control socket of a served drive: who owns the drive asks there what no client of its
//! blocks may.
//!
//! A message each way: `SSDCNTRL`, the version (u16, little-endian), two bytes of 0, the length
//! of what follows (u32), and so many bytes of JSON. A client asks once. Where the answer takes
//! its time, messages come before it that have `waits`, which says for what.
//!
//! Guarantees: whatever clients do, the drive is served on. The socket is its owner's alone;
//! [`MOST`] clients are heard at once, each for [`TIME`], and what one sends is bounded; one
//! for whom there is no place is told so. What was asked is done, whether or not the client
//! waits for it. Fails when the socket cannot be listened on.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use drive::error::Error;
use drive::say::say;
use drive::spec::check_socket;
use exports::listen::{ListenAddr, Listener};
use exports::nbd::StopHandle;
use load::threads::no_thread;
use serde_json::{Value, json};

const MAGIC: [u8; 8] = *b"SSDCNTRL";
const VERSION: u16 = 1;
const HEAD: usize = 16;
/// Bytes of JSON, at most: of a set of 1 MiB each may take several.
const LONGEST: usize = 4 << 20;
/// Clients at once.
const MOST: usize = 8;
/// How long a client may take to ask, and to hear the answer.
const TIME: Duration = Duration::from_secs(2);
/// How long a client waits for the next that it is told.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client asks for a place where all are taken, longer than one who is silent has
/// his, and how often.
const BUSY: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

/// Where what is asked is answered.
pub(crate) trait Desk: Send + Sync {
    /// What comes of what is asked. `wait` is told what is waited for, as often as something
    /// of that changes; it is to give up what it can when it is asked to `stop`.
    fn answer(&self, asked: &Value, wait: &mut dyn FnMut(&str), stop: &StopHandle) -> Value;
}

/// Where a drive's owner asks.
pub(crate) struct ControlSocket {
    listener: Listener,
    stop: StopHandle,
}

/// Ends the serving of who asks when it is dropped.
pub(crate) struct Stopper(StopHandle);

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl ControlSocket {
    /// Listens at a path, for its owner.
    pub fn bind(path: &Path) -> Result<ControlSocket, Error> {
        let listener = Listener::bind(&ListenAddr::Unix(path.into()));
        let listener = listener.map_err(|e| Error::Failed(e.to_string()))?;
        let failed = |e: io::Error| Error::system("serve its control socket", &e);
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        Ok(ControlSocket { listener, stop: StopHandle::new().map_err(failed)? })
    }

    /// Answers until what comes back is dropped.
    pub fn serve<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        desk: impl Desk + 'scope,
    ) -> Result<Stopper, Error> {
        let ControlSocket { mut listener, stop } = self;
        let stopper = Stopper(stop.clone());
        let serve = move || {
            let inside = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                let (desk, inside, stop) = (&desk, &inside, &stop);
                let take = |client| {
                    let client = UnixStream::from(client);
                    if inside.load(Ordering::Acquire) >= MOST {
                        return turn_away(client);
                    }
                    inside.fetch_add(1, Ordering::AcqRel);
                    let hear = move || {
                        let heard = AssertUnwindSafe(|| hear(desk, client, stop));
                        if catch_unwind(heard).is_err() {
                            say(
                                "who asked at the control socket was not heard, by a fault of the program",
                            );
                        }
                        inside.fetch_sub(1, Ordering::AcqRel);
                    };
                    if Builder::new()
                        .name("control client".into())
                        .spawn_scoped(scope, hear)
                        .is_err()
                    {
                        inside.fetch_sub(1, Ordering::AcqRel);
                    }
                };
                listener.accept_all(stop, take, || {});
            });
        };
        let thread = Builder::new().name("control".into());
        thread.spawn_scoped(scope, serve).map_err(|e| no_thread(&e))?;
        Ok(stopper)
    }
}

/// How often a client is told what is waited for.
const TELL: Duration = Duration::from_millis(500);

/// Hears a client, which has broken off where this fails.
fn hear(desk: &impl Desk, client: UnixStream, stop: &StopHandle) {
    if !is_owner(&client) {
        return;
    }
    let mut line = Line { client, until: Instant::now() + TIME };
    let asked = match line.take() {
        Ok(asked) => asked,
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            let _ = line.give(&refused(&e.to_string()));
            return;
        }
        Err(_) => return,
    };
    let (mut told, mut listens) = (Instant::now(), true);
    let mut wait = |what: &str| {
        if listens && told.elapsed() >= TELL {
            told = Instant::now();
            line.until = told + TIME;
            // Who does not listen is told no more, and what was asked is done.
            listens = line.give(&json!({ "waits": what })).is_ok();
        }
    };
    let answer = desk.answer(&asked, &mut wait, stop);
    // What was asked is done, however long that took: it is to be heard.
    line.until = Instant::now() + TIME;
    let _ = line.give(&answer);
}

/// Tells a client that there is no place for him. Nobody waits for him: so much has room.
fn turn_away(client: UnixStream) {
    if is_owner(&client) && client.set_nonblocking(true).is_ok() {
        let why = format!("{MOST} others ask there just now: try again when they have");
        let mut line = Line { client, until: Instant::now() + TIME };
        let _ = line.give(&json!({ "error": why, "busy": true }));
    }
}

/// Whether a client is whose the drive is: it may have come before the socket was closed to
/// others.
fn is_owner(client: &UnixStream) -> bool {
    let uid = rustix::process::geteuid();
    let who = rustix::net::sockopt::socket_peercred(client);
    who.is_ok_and(|who| who.uid == uid || who.uid.is_root())
}

/// An answer that says why not.
pub(crate) fn refused(why: &str) -> Value {
    json!({ "error": why })
}

/// Asks a served drive at its control socket; `wait` hears what is waited for. Where others
/// have all places there it asks again for a while. Fails where nobody answers there, or what
/// was asked is refused; the answer then says why.
pub fn ask(path: &Path, asked: &Value, wait: &mut dyn FnMut(&str)) -> Result<Value, Error> {
    let until = Instant::now() + BUSY;
    loop {
        let answer = ask_once(path, asked, wait)?;
        if answer.get("busy") != Some(&true.into()) || Instant::now() >= until {
            return Ok(answer);
        }
        wait("others who ask there");
        std::thread::sleep(AGAIN);
    }
}

fn ask_once(path: &Path, asked: &Value, wait: &mut dyn FnMut(&str)) -> Result<Value, Error> {
    let told = path.display();
    check_socket(&told.to_string()).map_err(|e| Error::Usage(format!("{told}: {e}")))?;
    let client = UnixStream::connect(path).map_err(|e| {
        Error::Failed(format!(
            "{told}: nobody answers there: {e}; name the socket of `serve --control`"
        ))
    })?;
    let mut line = Line { client, until: Instant::now() + PATIENCE };
    // Who is turned away is so before he has asked.
    let mut given = line.give(asked);
    loop {
        let answer = line.take().map_err(|e| {
            let e = std::mem::replace(&mut given, Ok(())).err().unwrap_or(e);
            Error::Failed(format!("{told}: {}", unanswered(&e)))
        })?;
        let Some(what) = answer.get("waits").and_then(Value::as_str) else { return Ok(answer) };
        wait(what);
        line.until = Instant::now() + PATIENCE;
    }
}

/// What is told of a server that was there and did not answer.
fn unanswered(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => {
            "who listens there hung up before he answered: the server ends, or the system gives \
             it no thread; try again"
                .into()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("the server did not answer for {} s; try again", PATIENCE.as_secs())
        }
        _ => format!("no answer was heard there: {e}; name the socket of `serve --control`"),
    }
}

/// A connection, and until when it lasts.
struct Line {
    client: UnixStream,
    until: Instant,
}

impl Line {
    fn take(&mut self) -> io::Result<Value> {
        let mut head = [0; HEAD];
        self.fill(&mut head)?;
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let version = u16::from_le_bytes([head[8], head[9]]);
        let length = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        if head[..8] != MAGIC || version != VERSION || head[10..12] != [0; 2] {
            return Err(wrong("this is no message of version 1"));
        }
        if length > LONGEST {
            return Err(wrong("the message is longer than 4 MiB"));
        }
        // Grows as it comes: who only says that it is long takes nothing.
        let mut body = Vec::new();
        while body.len() < length {
            let at = body.len();
            body.resize(length.min(at + (64 << 10)), 0);
            self.fill(&mut body[at..])?;
        }
        serde_json::from_slice(&body).map_err(|_| wrong("this is no JSON"))
    }

    fn give(&mut self, said: &Value) -> io::Result<()> {
        let body = said.to_string();
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut message = Vec::with_capacity(HEAD + body.len());
        message.extend(MAGIC);
        message.extend(VERSION.to_le_bytes());
        message.extend([0; 2]);
        message.extend(length.to_le_bytes());
        message.extend(body.as_bytes());
        let mut left = &message[..];
        while !left.is_empty() {
            self.client.set_write_timeout(Some(self.left()?))?;
            match self.client.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => left = &left[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn fill(&mut self, mut room: &mut [u8]) -> io::Result<()> {
        while !room.is_empty() {
            self.client.set_read_timeout(Some(self.left()?))?;
            match self.client.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => room = &mut room[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The time that it still has, and some.
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Keeps who asks it to hold until it is free.
    struct Holding<'a>(&'a AtomicBool);

    impl Desk for Holding<'_> {
        fn answer(&self, asked: &Value, _: &mut dyn FnMut(&str), stop: &StopHandle) -> Value {
            while asked == "hold" && !self.0.load(Ordering::Acquire) && !stop.is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            json!({ "heard": asked })
        }
    }

    /// Who finds all places taken is told that, not that nobody is there; and is heard as soon
    /// as one has gone.
    #[test]
    fn who_finds_no_place_is_told_so_and_asks_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        let is_free = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stopper = socket.serve(scope, Holding(&is_free)).unwrap();
            let inside = |_| {
                let client = UnixStream::connect(&path).unwrap();
                let mut line = Line { client, until: Instant::now() + PATIENCE };
                line.give(&"hold".into()).unwrap();
                line
            };
            let all: Vec<Line> = (0..MOST).map(inside).collect();
            let answer = ask_once(&path, &json!(1), &mut |_| ()).unwrap();
            assert_eq!(answer["busy"], true, "{answer}");
            assert!(answer["error"].as_str().unwrap().starts_with("8 others ask there"));
            let mut wait = |what: &str| {
                assert_eq!(what, "others who ask there");
                is_free.store(true, Ordering::Release);
            };
            let answer = ask(&path, &json!(1), &mut wait).unwrap();
            assert_eq!(answer, json!({ "heard": 1 }));
            drop(all);
        });
        let told = ask(&path, &json!(1), &mut |_| ()).unwrap_err().to_string();
        assert!(told.contains("nobody answers there"), "{told}");
        let long = folder.path().join("x".repeat(200));
        let told = ask(&long, &json!(1), &mut |_| ()).unwrap_err().to_string();
        assert!(told.starts_with(&long.display().to_string()), "{told}");
        assert!(told.contains("has 107 bytes at most"), "{told}");
    }
}
