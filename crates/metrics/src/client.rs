//! A page of metrics, fetched over HTTP.
//!
//! Guarantees: it ends within some seconds and takes no more than [`LONGEST`] bytes,
//! whatever the other side says. Fails, with what to do about it, where there is no page.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::endpoint::Paper;
use crate::scrape::Scrape;

/// The longest answer.
const LONGEST: usize = 8 << 20;
/// How long connecting, all of the rest, and one step of it may take.
const TIME: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_secs(2);
/// Places of an address that are tried, at most, and the time that is left for the last.
const PLACES: usize = 4;
const LEAST: Duration = Duration::from_millis(10);
/// Headers of an answer, at most.
const HEADERS: usize = 64;

/// What is at an address now; else why there is nothing.
pub(crate) fn look(address: &Address) -> Result<Scrape, String> {
    got(address, Paper::Metrics, |page| {
        let all = Scrape::read(page).map_err(|e| e.to_string())?;
        // Every page has it; others serve metrics, too.
        match all.value("ssdkit_uptime_seconds", &[]) {
            Some(_) => Ok(all),
            None => Err(format!(
                "{address} serves no figures of ssdkit's: is it the address of --metrics?"
            )),
        }
    })
}

/// What a paper at an address is now; else why there is nothing.
pub(crate) fn got<T>(
    address: &Address,
    paper: Paper,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let answer = fetch(address, paper).map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("nobody serves metrics at {address}: start `ssdkit serve` with --metrics")
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("{address} does not answer: is it the address of --metrics?")
        }
        _ => format!("cannot read from {address}: {e}"),
    })?;
    read(body(&answer).map_err(|e| format!("{address} {e}"))?)
}

/// The first of an address' places that can be connected to, all in [`STEP`]: an equal
/// part of what is left of it is for each.
fn connect(address: &Address) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let found = address.resolve().map_err(|e| io::Error::other(e.to_string()))?;
    let found = &found[..found.len().min(PLACES)];
    let start = Instant::now();
    for (n, at) in found.iter().enumerate() {
        let left = STEP.saturating_sub(start.elapsed()).max(LEAST);
        match TcpStream::connect_timeout(at, left / (found.len() - n) as u32) {
            Ok(sock) => return Ok(sock),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

fn fetch(address: &Address, paper: Paper) -> io::Result<Vec<u8>> {
    let mut sock = connect(address)?;
    let start = Instant::now();
    sock.set_read_timeout(Some(STEP))?;
    sock.set_write_timeout(Some(STEP))?;
    let path = paper.path();
    let asks = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    sock.write_all(asks.as_bytes())?;
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while all.len() <= LONGEST && start.elapsed() < TIME {
        match sock.read(&mut piece) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("its answer does not end"))
}

/// The page in an answer.
fn body(answer: &[u8]) -> Result<&str, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(begin)) = parsed.parse(answer) else {
        return Err("speaks no HTTP: is it the address of --metrics?".into());
    };
    match parsed.code {
        Some(200) => {}
        Some(503) => return Err("says that its drive is gone: see what the server said".into()),
        Some(504) => {
            return Err("says that its drive does not answer in time: it is busy, or hangs".into());
        }
        code => {
            let code = code.unwrap_or(0);
            return Err(format!("answers with status {code}: is it the address of --metrics?"));
        }
    }
    let length = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|h| std::str::from_utf8(h.value).ok()?.trim().parse().ok());
    let page = &answer[begin..];
    if length.is_some_and(|length: usize| length != page.len()) {
        return Err("was cut off in its answer".into());
    }
    std::str::from_utf8(page).map_err(|_| "answers with what is no text".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::page::NoPage;
    use proptest::prelude::*;

    #[test]
    fn a_page_is_fetched() {
        let (endpoint, stopper) = Endpoint::bind(&"0".parse().unwrap()).unwrap();
        let address: Address = endpoint.addr().unwrap().to_string().parse().unwrap();
        let pages = ["ssdkit_uptime_seconds 1\na 7\n", "<html>", "", "node_load1 0.2\n"];
        let pages = pages.map(|page| Ok(String::from(page)));
        let mut pages = pages.into_iter().chain([Err(NoPage::Late)]);
        std::thread::scope(|scope| {
            scope.spawn(move || endpoint.run(|_| pages.next().unwrap_or(Err(NoPage::Gone))));
            let stopper = stopper;
            assert_eq!(look(&address).map(|all| all.value("a", &[])), Ok(Some(7.0)));
            assert!(look(&address).unwrap_err().contains("line 1 of the page"));
            for _other in ["nothing", "another server's"] {
                assert!(look(&address).unwrap_err().contains("no figures of ssdkit's"));
            }
            assert!(look(&address).unwrap_err().contains("does not answer in time"));
            assert!(look(&address).unwrap_err().contains("its drive is gone"));
            drop(stopper);
        });
        assert!(look(&address).unwrap_err().contains("start `ssdkit serve` with --metrics"));
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for (answer, why) in [
            ("", "no HTTP"),
            ("+OK\r\n", "no HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "cut off"),
        ] {
            assert!(body(answer.as_bytes()).unwrap_err().contains(why), "{answer}");
        }
        assert_eq!(body(b"HTTP/1.0 200 OK\r\n\r\nabc"), Ok("abc"));
        assert!(body(b"HTTP/1.0 200 OK\r\n\r\n\xff").is_err());
    }

    proptest! {
        #[test]
        fn no_answer_panics(
            head in "(HTTP/1.1 200 OK\r\n)?(Content-Length: \\PC{0,4}\r\n)?(\\PC{0,9}: \\PC{0,9}\r\n){0,3}(\r\n)?",
            rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = body(&[head.as_bytes(), &rest].concat());
        }
    }
}
