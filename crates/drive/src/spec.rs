//! Drives by name: `mem:PROFILE[,key=value ...]`, `ssd:FILE[,copy=yes]`,
//! `null:[key=value ...]`, a block device or file, `nbd:ADDRESS` and `channel:PATH`.
//!
//! A name is read in two steps. [`DriveSpec`] is the name, parsed and checked
//! key by key, with no file opened; printing it gives a name that reads back
//! as the same. [`MemorySpec::resolve`] loads the profile, applies the keys and
//! derives capacity and chunks: a [`DriveConfig`].

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use flash::Profile;

mod address;
mod capacity;
mod channel;
mod config;
mod error;
pub mod file;
mod memory;
mod null;
mod rules;
mod shared;
mod storage;
mod value;

pub use ::storage::Engine;
pub use address::{NbdAddress, NbdDrive, check_socket};
pub use channel::ChannelSpec;
pub use config::{DriveConfig, RemoteConfig};
pub use error::DriveError;
pub use file::FileSpec;
pub use memory::{Cache, MemorySpec, Store, TargetKind};
pub use null::NullSpec;
pub use rules::rules_to_tell;
pub use shared::{NewTarget, Part, is_target_name};
pub use storage::{Found, StorageSpec};

/// Bytes of a file of text, at most.
const MOST_TEXT: u64 = 1 << 20;

/// A drive's name, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveSpec {
    /// `mem:`: the whole stack in this process.
    Memory(MemorySpec),
    /// `nbd:`: a drive that somebody serves.
    Nbd(NbdDrive),
    /// `channel:`: the same, by application channels.
    Channel(ChannelSpec),
    /// `null:`: the bare null driver.
    Null(NullSpec),
    /// `file:`, or a path: a block device or file, or a drive file
    /// ([`DriveSpec::found`]).
    Storage(StorageSpec),
    /// `ssd:`: a drive file.
    File(FileSpec),
}

impl FromStr for DriveSpec {
    type Err = DriveError;

    /// What has a `/` before any `:` is a path, and what ends in `.ssd` without
    /// any `:`.
    fn from_str(text: &str) -> Result<DriveSpec, DriveError> {
        match text.split_once(':') {
            Some(("mem", rest)) => Ok(DriveSpec::Memory(MemorySpec::parse(rest)?)),
            Some(("nbd", rest)) if rest.starts_with("//") => NbdDrive::of_uri(text),
            Some(("nbd", rest)) => Ok(DriveSpec::Nbd(rest.parse::<NbdAddress>()?.into())),
            Some(("nbd+unix", _)) => NbdDrive::of_uri(text),
            Some(("channel", rest)) => Ok(DriveSpec::Channel(ChannelSpec::parse(rest)?)),
            Some(("null", rest)) => Ok(DriveSpec::Null(NullSpec::parse(rest)?)),
            Some(("ssd", rest)) => Ok(DriveSpec::File(FileSpec::parse(rest)?)),
            Some(("file", rest)) => Ok(DriveSpec::Storage(StorageSpec::parse(rest)?)),
            Some((scheme, _)) if scheme.contains('/') => {
                Ok(DriveSpec::Storage(StorageSpec::parse(text)?))
            }
            None if text.contains('/') => Ok(DriveSpec::Storage(StorageSpec::parse(text)?)),
            // Whether there is such a file is seen when it is looked for.
            None if text.ends_with(".ssd") => Ok(DriveSpec::Storage(StorageSpec::parse(text)?)),
            // It may be a file of this folder.
            None if !text.is_empty() => {
                Err(DriveError::Scheme { text: text.into(), example: format!("./{text}") })
            }
            _ => Err(DriveError::scheme(text.into())),
        }
    }
}

impl DriveSpec {
    /// How the name begins of a drive that somebody else serves.
    pub fn served_by(&self) -> Option<&'static str> {
        match self {
            DriveSpec::Nbd(_) => Some("nbd:"),
            DriveSpec::Channel(_) => Some("channel:"),
            _ => None,
        }
    }

    /// Whether the drive is this file or block device, by whatever path.
    pub fn is_file(&self, path: &Path) -> bool {
        let own = match self {
            DriveSpec::Storage(spec) => Path::new(&spec.path),
            DriveSpec::File(spec) => Path::new(&spec.path),
            _ => return false,
        };
        let place = |path: &Path| path.metadata().ok().map(|data| (data.dev(), data.ino()));
        own == path || place(own).is_some_and(|at| place(path) == Some(at))
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveSpec::Memory(spec) => spec.fmt(f),
            DriveSpec::Nbd(served) => write!(f, "{served}"),
            DriveSpec::Channel(spec) => spec.fmt(f),
            DriveSpec::Null(spec) => spec.fmt(f),
            DriveSpec::Storage(spec) => spec.fmt(f),
            DriveSpec::File(spec) => spec.fmt(f),
        }
    }
}

/// A built-in profile, or the one in a file.
pub fn load(name: &str) -> Result<Profile, DriveError> {
    if let Some(profile) = Profile::builtin(name) {
        return Ok(profile);
    }
    if !name.contains('/') && !name.ends_with(".toml") {
        let known = Profile::names().collect::<Vec<_>>().join(", ");
        return Err(DriveError::NoProfile { name: name.into(), known });
    }
    let text = text_of(name).map_err(|source| DriveError::Read { path: name.into(), source })?;
    Ok(Profile::from_toml(&text, name)?)
}

/// What stands in a file of text.
pub fn text_of(path: &str) -> io::Result<String> {
    measure::file::text_of(Path::new(path), MOST_TEXT)
}

#[cfg(test)]
mod tests;
