//! Pages over HTTP/1.1: GET and HEAD of two paths, on a thread of its own.
//!
//! Guarantees: whatever clients do, it goes on, and takes no more than [`MOST`]
//! connections, each with [`LONGEST`] bytes of request and the page. A client has
//! [`TIME`] to ask and as long again to take the answer; where there are too many, a
//! newcomer takes the place of one that has its answer, else of one that has said nothing,
//! else of the one that came first. It never waits for one of them.
//! Fails when its address cannot be listened on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drive::error::Error;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::address::Address;
use crate::page::NoPage;

/// Connections at once.
const MOST: usize = 32;
/// The longest request, in bytes.
const LONGEST: usize = 8 << 10;
/// Headers of a request, at most.
const HEADERS: usize = 64;
/// How long a client may ask, and take the answer.
const TIME: Duration = Duration::from_secs(2);
/// How long nobody is let in when there are no descriptors.
const DEAF: Duration = Duration::from_millis(100);
/// Connections that are taken, and reads of one, before the others have their turn.
const TURN: usize = 16;

/// What is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// The page of metrics.
    Metrics,
    /// What there is to explain, as JSON.
    Explained,
}

impl Paper {
    /// Where it is.
    pub fn path(self) -> &'static str {
        match self {
            Paper::Metrics => "/metrics",
            Paper::Explained => "/explained",
        }
    }

    /// What is at a path.
    fn at(path: &str) -> Option<Paper> {
        [Paper::Metrics, Paper::Explained].into_iter().find(|paper| paper.path() == path)
    }

    /// What kind of text it is.
    fn kind(self) -> &'static str {
        match self {
            Paper::Metrics => "text/plain; version=0.0.4",
            Paper::Explained => "application/json",
        }
    }
}

/// A server of pages that listens.
pub struct Endpoint {
    listener: TcpListener,
    bell: Arc<OwnedFd>,
}

/// Stops a server of pages when it is dropped.
pub struct Stopper(Arc<OwnedFd>);

impl Drop for Stopper {
    fn drop(&mut self) {
        // A full counter rings as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// How far a client is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asking,
    Taking,
    /// It has all, and what it still sends is thrown away, so that no reset comes before
    /// it has read that.
    Leaving,
    Gone,
}

/// A client.
struct Client {
    sock: TcpStream,
    stage: Stage,
    until: Instant,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
}

impl Endpoint {
    /// Listens on the first of an address' places that can be listened on.
    pub fn bind(address: &Address) -> Result<(Endpoint, Stopper), Error> {
        let mut failed = None;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(|e| Error::system("serve metrics", &e.into()))?);
        for at in address.resolve()? {
            let listens = TcpListener::bind(at).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            match listens {
                Ok(listener) => {
                    return Ok((Endpoint { listener, bell: bell.clone() }, Stopper(bell)));
                }
                Err(e) => failed = Some(e),
            }
        }
        let why = failed.map_or("it has no address".into(), |e| e.to_string());
        Err(Error::Failed(format!("cannot serve metrics at {address}: {why}; take another port")))
    }

    /// Where it listens: with the port that the system chose, where it was asked to.
    pub fn addr(&self) -> Result<SocketAddr, io::Error> {
        self.listener.local_addr()
    }

    /// Gives pages until its stopper is dropped.
    pub fn run(self, mut page: impl FnMut(Paper) -> Result<String, NoPage>) {
        let mut clients: Vec<Client> = Vec::with_capacity(MOST);
        let mut deaf: Option<Instant> = None;
        loop {
            let wait = clients.iter().map(|client| client.until).chain(deaf).min();
            let wait = wait.map(|at| at.saturating_duration_since(Instant::now()));
            let is_stopped = self.wait(&clients, deaf.is_some(), wait);
            if is_stopped {
                return;
            }
            let now = Instant::now();
            deaf = deaf.filter(|&until| until > now);
            if deaf.is_none() && !self.accept(&mut clients, now) {
                deaf = Some(now + DEAF);
            }
            for client in &mut clients {
                client.go_on(now, &mut page);
            }
            clients.retain(|client| client.stage != Stage::Gone && client.until > now);
        }
    }

    /// Sleeps until there is something to do, at most so long. True when it is to stop.
    fn wait(&self, clients: &[Client], is_deaf: bool, time: Option<Duration>) -> bool {
        let heard = if is_deaf { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = Vec::with_capacity(2 + MOST);
        fds.push(PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), heard));
        fds.extend(clients.iter().map(|client| {
            let flags = if client.stage == Stage::Taking { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(client.sock.as_fd(), flags)
        }));
        // A little later than the time, so that it has passed then.
        let time = time.map(|time| time + Duration::from_millis(1));
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, time.as_ref());
        fds[0].revents().contains(PollFlags::IN)
    }

    /// Takes clients that wait. False when there is no descriptor for one.
    fn accept(&self, clients: &mut Vec<Client>, now: Instant) -> bool {
        for _ in 0..TURN {
            let sock = match self.listener.accept() {
                Ok((sock, _)) => sock,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => return false,
            };
            if sock.set_nonblocking(true).is_err() {
                continue;
            }
            if clients.len() == MOST {
                clients.remove(least(clients));
            }
            let (stage, until) = (Stage::Asking, now + TIME);
            let (request, answer, sent) = (Vec::new(), Vec::new(), 0);
            clients.push(Client { sock, stage, until, request, answer, sent });
        }
        true
    }
}

/// Whose place a newcomer takes: of those who have all, then of those who have said
/// nothing, then of all, the one that came first.
fn least(clients: &[Client]) -> usize {
    let has_all = |client: &Client| client.stage == Stage::Leaving;
    let is_silent = |client: &Client| client.stage == Stage::Asking && client.request.is_empty();
    let first = clients.iter().position(has_all);
    first.or_else(|| clients.iter().position(is_silent)).unwrap_or(0)
}

impl Client {
    fn go_on(&mut self, now: Instant, page: &mut impl FnMut(Paper) -> Result<String, NoPage>) {
        if self.stage == Stage::Asking {
            self.read_request(now, page);
        }
        if self.stage == Stage::Taking {
            self.write_answer();
        }
        if self.stage == Stage::Leaving {
            self.throw_away();
        }
    }

    /// Reads what is there of the request, and makes the answer when it is whole.
    fn read_request(
        &mut self,
        now: Instant,
        page: &mut impl FnMut(Paper) -> Result<String, NoPage>,
    ) {
        let mut piece = [0; 1024];
        for _ in 0..TURN {
            let room = piece.len().min(LONGEST + 1 - self.request.len());
            match self.sock.read(&mut piece[..room]) {
                Ok(0) => return self.stage = Stage::Gone,
                Ok(n) => self.request.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.stage = Stage::Gone,
            }
            if let Some(answer) = answer(&self.request, page) {
                (self.answer, self.stage, self.until) = (answer, Stage::Taking, now + TIME);
                return;
            }
        }
    }

    fn write_answer(&mut self) {
        while self.sent < self.answer.len() {
            match self.sock.write(&self.answer[self.sent..]) {
                Ok(0) => return self.stage = Stage::Gone,
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.stage = Stage::Gone,
            }
        }
        let closed = self.sock.shutdown(Shutdown::Write);
        self.stage = if closed.is_ok() { Stage::Leaving } else { Stage::Gone };
    }

    fn throw_away(&mut self) {
        for _ in 0..TURN {
            match self.sock.read(&mut [0; 1024]) {
                Ok(0) => return self.stage = Stage::Gone,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.stage = Stage::Gone,
            }
        }
    }
}

/// The answer to a request; `None` while it is not whole.
fn answer(
    request: &[u8],
    page: &mut impl FnMut(Paper) -> Result<String, NoPage>,
) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let said = match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() <= LONGEST => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            plain("431 Request Header Fields Too Large", "", "the request is too long\n")
        }
        Err(_) => plain("400 Bad Request", "", "this is no request of HTTP/1.1\n"),
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or("");
            let path = path.split(['?', '#']).next().unwrap_or("");
            match (parsed.method.unwrap_or(""), Paper::at(path)) {
                (method @ ("GET" | "HEAD"), Some(paper)) => match page(paper) {
                    Ok(page) if method == "HEAD" => head("200 OK", "", paper.kind(), page.len()),
                    Ok(page) => whole("200 OK", "", paper.kind(), &page),
                    Err(NoPage::Gone) => {
                        plain("503 Service Unavailable", "", "the drive is gone\n")
                    }
                    Err(NoPage::Late) => {
                        plain("504 Gateway Timeout", "", "the drive does not answer in time\n")
                    }
                },
                (_, Some(_)) => plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET it\n"),
                _ => plain("404 Not Found", "", "metrics are at /metrics\n"),
            }
        }
    };
    Some(said)
}

fn plain(status: &str, more: &str, text: &str) -> Vec<u8> {
    whole(status, more, "text/plain", text)
}

/// The begin of an answer with so many bytes.
fn head(status: &str, more: &str, kind: &str, len: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len}\r\n\
         Connection: close\r\n{more}\r\n"
    );
    head.into_bytes()
}

fn whole(status: &str, more: &str, kind: &str, text: &str) -> Vec<u8> {
    let mut all = head(status, more, kind, text.len());
    all.extend_from_slice(text.as_bytes());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Serves a page while `f` runs.
    fn served(page: &str, f: impl FnOnce(SocketAddr)) {
        let (endpoint, stopper) = Endpoint::bind(&"0".parse().unwrap()).unwrap();
        let at = endpoint.addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| endpoint.run(|_| Ok(page.into())));
            // Also where it fails.
            let _stopper = stopper;
            f(at);
        });
    }

    /// What comes back for a request.
    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut sock = TcpStream::connect(at).unwrap();
        sock.write_all(request).unwrap();
        let mut text = String::new();
        sock.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_the_page_is_served() {
        served("a 1\n", |at| {
            let page = ask(at, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(
                page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;")
            );
            assert!(page.contains("Content-Length: 4\r\n") && page.ends_with("\r\n\r\na 1\n"));
            for (request, status) in [
                ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
                ("GET / HTTP/1.1\r\n\r\n", "404"),
                ("GET /metricsx HTTP/1.1\r\n\r\n", "404"),
                ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
                ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
                ("\0\x01\x02\r\n\r\n", "400"),
                ("*1\r\n$4\r\nPING\r\n", "400"),
            ] {
                let said = ask(at, request.as_bytes());
                assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {said}");
            }
            let said = ask(at, b"HEAD /metrics HTTP/1.1\r\n\r\n");
            assert!(said.contains("Content-Length: 4\r\n") && said.ends_with("\r\n\r\n"));
            let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(LONGEST));
            assert!(ask(at, long.as_bytes()).starts_with("HTTP/1.1 431 "));
            let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS + 1));
            assert!(ask(at, many.as_bytes()).starts_with("HTTP/1.1 431 "));
        });
    }

    /// Those who say nothing, or a byte at a time, or take nothing, stop nobody.
    #[test]
    fn slow_clients_stop_nobody() {
        let page = "x".repeat(8 << 20);
        served(&page, |at| {
            let silent: Vec<_> = (0..2 * MOST).map(|_| TcpStream::connect(at).unwrap()).collect();
            let mut greedy: Vec<_> = (0..4).map(|_| TcpStream::connect(at).unwrap()).collect();
            for sock in &mut greedy {
                sock.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            }
            let start = Instant::now();
            for _ in 0..10 {
                for mut sock in &silent {
                    let _ = sock.write_all(b"G");
                }
                assert!(ask(at, b"GET /no HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
                let said = ask(at, b"GET /metrics HTTP/1.1\r\n\r\n");
                assert!(said.len() > page.len(), "all of it comes");
            }
            assert!(start.elapsed() < 10 * TIME, "nobody is waited for");
        });
    }

    /// Who asks, or takes a page, keeps its place before those who need none.
    #[test]
    fn a_newcomer_takes_the_place_of_who_needs_it_least() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let client = |(stage, request): (Stage, &[u8])| {
            let (sock, until) = (TcpStream::connect(at).unwrap(), Instant::now());
            Client { sock, stage, until, request: request.into(), answer: Vec::new(), sent: 0 }
        };
        let (taking, asking) = ((Stage::Taking, &b"G"[..]), (Stage::Asking, &b"G"[..]));
        let (silent, leaving) = ((Stage::Asking, &b""[..]), (Stage::Leaving, &b"G"[..]));
        for (all, expected) in [
            (vec![taking, asking, silent, leaving, leaving], 3),
            (vec![asking, taking, silent, silent], 2),
            (vec![asking, taking, asking], 0),
        ] {
            let all: Vec<_> = all.into_iter().map(client).collect();
            assert_eq!(least(&all), expected);
        }
    }

    /// Who does not go on is closed when its time is over.
    #[test]
    fn who_says_nothing_is_closed() {
        served("", |at| {
            let mut sock = TcpStream::connect(at).unwrap();
            sock.write_all(b"GET /metr").unwrap();
            let closed = match sock.read(&mut [0; 1]) {
                Ok(n) => n == 0,
                Err(e) => e.kind() == ErrorKind::ConnectionReset,
            };
            assert!(closed, "it is closed, and nothing else is wrong");
        });
    }

    /// A drive that is slow is not taken for one that is gone.
    #[test]
    fn why_there_is_no_page_is_told() {
        for (why, status) in [(NoPage::Gone, "503"), (NoPage::Late, "504")] {
            let said = answer(b"GET /metrics HTTP/1.0\r\n\r\n", &mut |_| Err(why)).unwrap();
            assert_eq!(&said[9..12], status.as_bytes());
        }
    }

    proptest! {
        /// Any bytes are answered, or waited for.
        #[test]
        fn no_request_panics(
            request in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                "(GET|POST|) (/metrics|/|) HTTP/1.[01](\r\n|\n|)(\\PC{0,20}: \\PC{0,20}\r\n){0,70}\r\n"
                    .prop_map(String::into_bytes),
            ]
        ) {
            let pages = AtomicUsize::new(0);
            let said = answer(&request, &mut |_| {
                pages.fetch_add(1, Ordering::Relaxed);
                Err(NoPage::Gone)
            });
            if let Some(said) = said {
                let status = std::str::from_utf8(&said[9..12]).unwrap();
                prop_assert!(["400", "404", "405", "431", "503"].contains(&status));
                prop_assert_eq!(status == "503", pages.into_inner() == 1);
            }
        }
    }
}
