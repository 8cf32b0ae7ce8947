//! Where metrics are: `HOST:PORT`, or a port of this machine alone.
//!
//! Fails when a text is no address, or a host has none.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use drive::error::Error;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    /// `HOST:PORT`, `[IPV6]:PORT`, or `PORT`, which is that of 127.0.0.1.
    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("`{text}` is no address: write HOST:PORT, as in 127.0.0.1:9100");
        let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_plain = !host.contains([':', '/', '[', ']']);
        if host.is_empty() || !(is_bracketed || is_plain) {
            return Err(wrong());
        }
        let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = if is_number { port.parse().ok() } else { None };
        Ok(Address { host: host.into(), port: port.ok_or_else(wrong)? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Address {
    /// All that its host's name stands for, at least one.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let failed = |why: &str| {
            let text = format!("the host `{}` has no address{why}: check its name", self.host);
            Error::Failed(text)
        };
        let found = (bare, self.port).to_socket_addrs();
        let found: Vec<_> = found.map_err(|e| failed(&format!(" ({e})")))?.collect();
        if found.is_empty() { Err(failed("")) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, host, port) in [
            ("9100", "127.0.0.1", 9100),
            ("0", "127.0.0.1", 0),
            ("localhost:80", "localhost", 80),
            ("[::1]:65535", "[::1]", 65535),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
        }
        for text in ["", ":", ":80", "a:", "a:+1", "a:65536", "::1:80", "a/b:1", "/tmp/x", "[::1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        let resolved = "[::1]:7".parse::<Address>().unwrap().resolve().unwrap();
        assert_eq!(resolved, ["[::1]:7".parse().unwrap()]);
    }
}
