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

impl FromStr for NbdAddress {
    type Err = DriveError;

    /// With a `:` and no `/` it is `HOST:PORT`, else a path.
    fn from_str(text: &str) -> Result<NbdAddress, DriveError> {
        let wrong = || DriveError::Address { text: text.into() };
        if text.contains('/') || !text.contains(':') {
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

/// The port of NBD where a URI names none.
const NBD_PORT: u16 = 10809;

impl NbdAddress {
    /// The drive of `nbd://HOST[:PORT]` or `nbd+unix:///?socket=PATH`, as `serve`
    /// prints them. The one drive that a server has is without a name.
    pub(super) fn of_uri(text: &str) -> Result<DriveSpec, DriveError> {
        let wrong = || DriveError::Address { text: text.into() };
        if let Some(rest) = text.strip_prefix("nbd+unix:") {
            let path = rest.strip_prefix("///?socket=").or(rest.strip_prefix("//?socket="));
            let path = path.filter(|path| !path.is_empty()).ok_or_else(wrong)?;
            return Ok(DriveSpec::Nbd(NbdAddress::Unix(path.into())));
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(wrong)?;
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.is_empty() || host.contains(['/', '?', '@', '#']) {
            return Err(wrong());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.into() } else { format!("{host}:{NBD_PORT}") };
        let address: NbdAddress = address.parse().map_err(|_| wrong())?;
        Ok(DriveSpec::Nbd(address))
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
