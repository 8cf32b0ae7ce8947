//! `channel:PATH[,linger=TIME]`: a drive that somebody serves by application channels.

use std::fmt;

use measure::units;

use super::DriveError;
use super::value::{name_and_pairs, time_text};

const KEYS: &str = "linger";

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
        let mut spec = ChannelSpec { path: path.into(), linger: None };
        for (key, value) in pairs {
            match key {
                "linger" => {
                    let wrong = |_| DriveError::Value {
                        key: "linger",
                        value: value.into(),
                        takes: "a time, for example 50us",
                    };
                    spec.linger = Some(units::duration_ns(value).map_err(wrong)?);
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
