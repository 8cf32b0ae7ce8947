//! The rules of a served drive, at a socket of their own: which set it has, how often each rule
//! matched, and another set for it.
//!
//! A message each way: `SSDRULES`, the version (u16, little-endian), two bytes of 0, the length
//! of what follows (u32), and so many bytes of JSON. A client asks once.
//!
//! Guarantees: whatever clients do, the drive is served on. The socket is its owner's alone;
//! [`MOST`] clients are heard at once, each for [`TIME`], and what one sends is bounded. A set
//! has no more of the drive than the one with which it began, and takes no more memory and time
//! than [`ENTRIES`] and [`STEPS`] say. Fails when the socket cannot be listened on.

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
use exports::listen::{ListenAddr, Listener};
use exports::nbd::StopHandle;
use load::threads::no_thread;
use rules::syntax::Set;
use rules::{Budget, Problem, check, parse};
use serde_json::{Value, json};

use ruled::SetInstaller;

const MAGIC: [u8; 8] = *b"SSDRULES";
const VERSION: u16 = 1;
const HEAD: usize = 16;
/// Bytes of JSON, at most: of a set of 1 MiB each may take several.
const LONGEST: usize = 4 << 20;
/// Clients at once.
const MOST: usize = 8;
/// How long a client may take to ask, and to hear the answer.
const TIME: Duration = Duration::from_secs(2);
/// Map entries that another set may have beyond those of the first.
const ENTRIES: u64 = 1 << 20;
/// Parts of expressions that a request may evaluate.
const STEPS: u64 = 1 << 20;
/// Characters of what a client calls its set.
const NAME: usize = 200;

/// Where rules are asked for.
pub(crate) struct RuleSocket {
    listener: Listener,
    stop: StopHandle,
}

/// Ends the serving of rules when it is dropped.
pub(crate) struct Stopper(StopHandle);

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl RuleSocket {
    /// Listens at a path, for its owner.
    pub fn bind(path: &Path) -> Result<RuleSocket, Error> {
        let listener = Listener::bind(&ListenAddr::Unix(path.into()));
        let listener = listener.map_err(|e| Error::Failed(e.to_string()))?;
        let failed = |e: io::Error| Error::system("serve rules", &e);
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        Ok(RuleSocket { listener, stop: StopHandle::new().map_err(failed)? })
    }

    /// Answers until what comes back is dropped.
    pub fn serve<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        installer: SetInstaller,
    ) -> Result<Stopper, Error> {
        let RuleSocket { mut listener, stop } = self;
        let stopper = Stopper(stop.clone());
        let desk = Desk::new(installer);
        let serve = move || {
            let inside = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                let (desk, inside) = (&desk, &inside);
                let take = |client| {
                    if inside.load(Ordering::Acquire) >= MOST {
                        return;
                    }
                    inside.fetch_add(1, Ordering::AcqRel);
                    let hear = move || {
                        let heard = AssertUnwindSafe(|| desk.hear(UnixStream::from(client)));
                        if catch_unwind(heard).is_err() {
                            say("a client's rules were not heard, by a fault of the program");
                        }
                        inside.fetch_sub(1, Ordering::AcqRel);
                    };
                    if Builder::new()
                        .name("rules' client".into())
                        .spawn_scoped(scope, hear)
                        .is_err()
                    {
                        inside.fetch_sub(1, Ordering::AcqRel);
                    }
                };
                listener.accept_all(&stop, take, || {});
            });
        };
        let thread = Builder::new().name("rules".into());
        thread.spawn_scoped(scope, serve).map_err(|e| no_thread(&e))?;
        Ok(stopper)
    }
}

/// What is asked of the rules is answered here.
struct Desk {
    installer: SetInstaller,
    /// What another set may have.
    budget: Budget,
}

impl Desk {
    fn new(installer: SetInstaller) -> Desk {
        let rules = installer.rules();
        let entries: u64 = rules.set().maps.iter().map(|map| map.entries).sum();
        let applications = Some(rules.set().applications.clone());
        Desk {
            installer,
            budget: Budget { entries: entries + ENTRIES, steps: STEPS, applications },
        }
    }

    /// Hears a client, which has broken off where this fails.
    fn hear(&self, client: UnixStream) {
        if !is_owner(&client) {
            return;
        }
        let mut line = Line { client, until: Instant::now() + TIME };
        let answer = match line.take() {
            Ok(asked) => self.answer(&asked),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => refused(&e.to_string()),
            Err(_) => return,
        };
        // What was asked is done, however long that took: it is to be heard.
        line.until = Instant::now() + TIME;
        let _ = line.give(&answer);
    }

    fn answer(&self, asked: &Value) -> Value {
        let text = |key: &str| asked.get(key).and_then(Value::as_str);
        match text("ask") {
            Some("list") => self.list(),
            Some("counters") => self.counters(),
            Some("install") => match text("text") {
                Some(set) => {
                    let name: String =
                        text("name").unwrap_or("the set").chars().take(NAME).collect();
                    self.install(&name, set)
                }
                None => refused("install needs a text"),
            },
            _ => refused("nothing is asked that is known: list, counters, or install"),
        }
    }

    fn list(&self) -> Value {
        let (now, next) = self.installer.all();
        let waits = next.is_some();
        let (number, rules) = next.unwrap_or(now);
        let set = rules.set();
        json!({
            "set": set.name.text,
            "number": number,
            "waits": waits,
            "applications": set.applications.len(),
            "rules": set.rules.len(),
            "text": set.to_string(),
        })
    }

    fn counters(&self) -> Value {
        let ((number, rules), next) = self.installer.all();
        let next =
            next.map(|(number, rules)| json!({ "set": rules.set().name.text, "number": number }));
        let one = |(n, rule): (usize, &rules::syntax::Rule)| json!({ "rule": rule.name.text, "matched": rules.hits().of(n) });
        json!({
            "set": rules.set().name.text,
            "number": number,
            "next": next,
            "rules": rules.set().rules.iter().enumerate().map(one).collect::<Vec<_>>(),
            "undecided": rules.hits().undecided(),
        })
    }

    fn install(&self, name: &str, text: &str) -> Value {
        let wrong = |all: &[Problem]| {
            let told: String = all.iter().map(|problem| problem.render(name, text)).collect();
            let one = |problem: &Problem| {
                let (line, column) = problem.position(text);
                let (what, help) = (problem.what.to_string(), problem.what.help());
                json!({ "line": line, "column": column, "what": what, "help": help })
            };
            let problems: Vec<Value> = all.iter().map(one).collect();
            json!({ "error": told.trim_end(), "problems": problems })
        };
        let set: Set = match parse(text) {
            Ok(set) => set,
            Err(problem) => return wrong(&[problem]),
        };
        let checked = match check(set, &self.budget) {
            Ok(checked) => checked,
            Err(all) => return wrong(&all),
        };
        match self.installer.install(&checked) {
            Ok(number) => json!({ "set": checked.set().name.text, "number": number }),
            Err(e) => refused(&format!("{name}: {e}")),
        }
    }
}

/// Whether a client is whose the drive is: it may have come before the socket was closed to
/// others.
fn is_owner(client: &UnixStream) -> bool {
    let uid = rustix::process::geteuid();
    let who = rustix::net::sockopt::socket_peercred(client);
    who.is_ok_and(|who| who.uid == uid || who.uid.is_root())
}

fn refused(why: &str) -> Value {
    json!({ "error": why })
}

/// Asks a served drive at its socket. Fails where nobody answers there, or what was asked is
/// refused; the answer then says why.
pub fn ask(path: &Path, asked: &Value) -> Result<Value, Error> {
    let failed = |e: io::Error| {
        let path = path.display();
        Error::Failed(format!(
            "{path}: nobody answers for rules: {e}; name the socket of `serve --rules-socket`"
        ))
    };
    let client = UnixStream::connect(path).map_err(failed)?;
    let mut line = Line { client, until: Instant::now() + 5 * TIME };
    line.give(asked).map_err(failed)?;
    line.take().map_err(failed)
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
