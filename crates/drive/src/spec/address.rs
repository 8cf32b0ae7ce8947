//! Where a served drive is: `nbd:ADDRESS`, or a URI as servers print them.

use std::fmt;
use std::str::FromStr;

use super::{DriveError, DriveSpec};

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket: its path.
    Unix(String),
    /// A TCP socket: host and port.
    Tcp(String, u16),
}

/// Bytes of the path of a Unix socket, at most: the system takes 108 with the zero behind it.
const MOST_SOCKET: usize = 107;

/// Whether the system takes so long a path for a Unix socket.
pub fn check_socket(path: &str) -> Result<(), DriveError> {
    let (bytes, most) = (path.len(), MOST_SOCKET);
    if bytes > most { Err(DriveError::Socket { bytes, most }) } else { Ok(()) }
}

impl FromStr for NbdAddress {
    type Err = DriveError;

    /// With a `:` and no `/` it is `HOST:PORT`, else a path.
    fn from_str(text: &str) -> Result<NbdAddress, DriveError> {
        let wrong = || DriveError::Address { text: text.into() };
        if text.contains('/') || !text.contains(':') {
            check_socket(text)?;
            return if text.is_empty() { Err(wrong()) } else { Ok(NbdAddress::Unix(text.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        if host.is_empty() || !bare {
            return Err(wrong());
        }
        Ok(NbdAddress::Tcp(host.into(), port.parse().map_err(|_| wrong())?))
    }
}

/// A drive that somebody serves over NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdDrive {
    /// Where.
    pub address: NbdAddress,
    /// The name of its export; that of the one drive that most servers have is empty.
    pub export: String,
}

impl From<NbdAddress> for NbdDrive {
    fn from(address: NbdAddress) -> NbdDrive {
        NbdDrive { address, export: String::new() }
    }
}

/// The port of NBD where a URI names none.
const NBD_PORT: u16 = 10809;

impl NbdDrive {
    /// The drive of `nbd://HOST[:PORT][/EXPORT]` or `nbd+unix:///[EXPORT]?socket=PATH`, as
    /// `serve` prints them. Names are as they stand: nothing in them is encoded.
    pub(super) fn of_uri(text: &str) -> Result<DriveSpec, DriveError> {
        let wrong = || DriveError::Address { text: text.into() };
        let is_plain = |export: &str| !export.contains(['/', '?', '@', '#', '%']);
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (export, path) = rest.split_once("?socket=").ok_or_else(wrong)?;
            let export = export.strip_prefix('/').unwrap_or(export);
            if path.is_empty() || !is_plain(export) {
                return Err(wrong());
            }
            check_socket(path)?;
            let (address, export) = (NbdAddress::Unix(path.into()), export.into());
            return Ok(DriveSpec::Nbd(NbdDrive { address, export }));
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(wrong)?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || !is_plain(host) || !is_plain(export) {
            return Err(wrong());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.into() } else { format!("{host}:{NBD_PORT}") };
        let address: NbdAddress = address.parse().map_err(|_| wrong())?;
        Ok(DriveSpec::Nbd(NbdDrive { address, export: export.into() }))
    }
}

impl fmt::Display for NbdDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, self.export.as_str()) {
            (address, "") => write!(f, "nbd:{address}"),
            (NbdAddress::Unix(path), export) => write!(f, "nbd+unix:///{export}?socket={path}"),
            (address, export) => write!(f, "nbd://{address}/{export}"),
        }
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => f.write_str(path),
            NbdAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}
