//! `channel:PATH[,linger=TIME]`: a drive that somebody serves by application channels.

use std::fmt;

use measure::units;

use super::DriveError;
use super::address::check_socket;
use super::value::{name_and_pairs, time_text};

const KEYS: &str = "linger";
/// Nobody looks for longer before he sleeps.
const LONGEST_LINGER: u64 = 1_000_000_000;

/// The name of a drive behind a channel, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// The server's socket.
    pub path: String,
    /// How long completions are looked for before the client sleeps, in ns, where that
    /// is said.
    pub linger: Option<u64>,
}

impl ChannelSpec {
    /// Reads what follows `channel:`.
    pub(super) fn parse(rest: &str) -> Result<ChannelSpec, DriveError> {
        let (path, pairs) = name_and_pairs("channel", rest)?;
        check_socket(path)?;
        let mut spec = ChannelSpec { path: path.into(), linger: None };
        for (key, value) in pairs {
            match key {
                "linger" => {
                    let wrong = || DriveError::Value {
                        key: "linger",
                        value: value.into(),
                        takes: "a time of at most 1s, for example 50us",
                    };
                    let ns = units::duration_ns(value).map_err(|_| wrong())?;
                    spec.linger = Some(if ns > LONGEST_LINGER { return Err(wrong()) } else { ns });
                }
                _ => return Err(DriveError::unknown_key(key, KEYS.into())),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for ChannelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel:{}", self.path)?;
        self.linger.map_or(Ok(()), |linger| write!(f, ",linger={}", time_text(linger)))
    }
}
