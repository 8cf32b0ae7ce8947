//! A block device or a file, by name: `PATH` with a `/` in it, or
//! `file:PATH[,key=value...]`.
//!
//! Parsing opens nothing. [`StorageSpec::find`] looks what is there, so that
//! nobody's data is written over unasked; [`StorageSpec::create`] makes a new
//! sparse file. Both fail with words that say what to do.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use measure::units;
use storage::{Engine, OpenError, Poll, StorageOptions};

use super::DriveError;
use super::value::{flag, name_and_pairs, number, show_size, size_of, time_text};
use crate::error::Error;

const KEYS: &str = "size, engine, direct, poll, queues, depth, read_only, sqpoll; of a drive \
                    file, behind ssd:, copy";

/// The name of a block device or file, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageSpec {
    /// Where it is.
    pub path: String,
    /// Bytes of a file that is made if there is none.
    pub size: Option<u64>,
    /// How the kernel is asked.
    pub engine: Engine,
    /// Past the page cache.
    pub direct: bool,
    /// How it is polled; `None` when it is not.
    pub poll: Option<Poll>,
    /// Dispatch queues; as many as cores when not given.
    pub queues: Option<usize>,
    /// Requests inside each queue at once; what the engine can when not given.
    pub depth: Option<usize>,
    /// Never to be written.
    pub read_only: bool,
    /// A thread of the kernel takes the requests, and sleeps after so many ns
    /// without any.
    pub sqpoll: Option<u64>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A file of so many bytes.
    File(u64),
    /// One of so many bytes of which none was ever written, or all were trimmed.
    Hollow(u64),
    /// A block device.
    Device,
    /// Something that is no drive.
    Other,
}

impl StorageSpec {
    /// Reads a path and the keys that follow it.
    pub(super) fn parse(text: &str) -> Result<StorageSpec, DriveError> {
        let (path, pairs) = name_and_pairs("file", text)?;
        let mut spec = StorageSpec {
            path: path.into(),
            size: None,
            engine: Engine::default(),
            direct: true,
            poll: None,
            queues: None,
            depth: None,
            read_only: false,
            sqpoll: None,
        };
        pairs.into_iter().try_for_each(|(key, value)| spec.set(key, value))?;
        Ok(spec)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), DriveError> {
        let wrong = |key, takes| DriveError::Value { key, value: value.into(), takes };
        match key {
            "size" => self.size = Some(size_of(value)?),
            "engine" => {
                let named = Engine::ALL.into_iter().find(|engine| engine.name() == value);
                self.engine =
                    named.ok_or_else(|| wrong("engine", "io_uring, libaio, psync or pvsync2"))?;
            }
            "direct" => self.direct = flag("direct", value)?,
            "poll" => {
                self.poll = match value {
                    "no" => None,
                    "auto" => Some(Poll::Auto),
                    "iopoll" => Some(Poll::Iopoll),
                    "hybrid" => Some(Poll::Hybrid),
                    _ => return Err(wrong("poll", "no, auto, iopoll or hybrid")),
                };
            }
            "queues" => self.queues = Some(number("queues", value)?),
            "depth" => self.depth = Some(number("depth", value)?),
            "read_only" => self.read_only = flag("read_only", value)?,
            "sqpoll" => {
                let idle = units::duration_ns(value).ok().filter(|&ns| ns >= 1_000_000);
                self.sqpoll = Some(idle.ok_or_else(|| wrong("sqpoll", "a time of 1ms or more"))?);
            }
            _ => return Err(DriveError::unknown_key(key, KEYS.into())),
        }
        Ok(())
    }

    /// Looks what is there.
    pub fn find(&self) -> Result<Found, Error> {
        match fs::metadata(&self.path) {
            Ok(there) if there.file_type().is_block_device() => Ok(Found::Device),
            Ok(there) if there.is_file() => Ok(match storage::holes(&self.path, 0..there.len()) {
                100 => Found::Hollow(there.len()),
                _ => Found::File(there.len()),
            }),
            Ok(_) => Ok(Found::Other),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
            Err(e) => Err(Error::Usage(format!("{}: {e}", self.path))),
        }
    }

    /// Makes the file, sparse. Where that fails nothing is left of it.
    pub fn create(&self, size: u64) -> Result<(), Error> {
        let failed = |e| Error::Usage(format!("{} cannot be made: {e}", self.path));
        let made = OpenOptions::new().write(true).create_new(true).open(&self.path);
        let file = made.map_err(failed)?;
        file.set_len(size).map_err(|e| {
            let _ = fs::remove_file(&self.path);
            failed(e)
        })
    }

    /// How it is opened for so many cores.
    pub fn options(&self, cores: usize, writes: bool) -> StorageOptions {
        let queues = self.queues.unwrap_or(cores);
        let usual = if self.engine.is_lone() { 1 } else { StorageOptions::default().depth };
        StorageOptions {
            engine: self.engine,
            queues,
            poll_queues: if self.poll.is_some() { queues } else { 0 },
            poll: self.poll.unwrap_or_default(),
            depth: self.depth.unwrap_or(usual),
            direct: self.direct,
            read_only: self.read_only || !writes,
            sqpoll_idle: self.sqpoll.map(Duration::from_nanos),
            shared: cores > queues,
            regions: Vec::new(),
        }
    }
}

impl From<OpenError> for Error {
    /// What the command line can change is a wrong use of it.
    fn from(e: OpenError) -> Error {
        match &e {
            OpenError::NoDirect { path } => Error::Usage(format!(
                "{}: its file system has no direct access (O_DIRECT): take direct=no",
                path.display()
            )),
            OpenError::PollNeedsDirect => {
                Error::Usage("the page cache cannot be polled: take poll=no or direct=yes".into())
            }
            OpenError::NoPoll { path, why } => Error::Usage(format!(
                "{} cannot be polled: {why}; take poll=auto or poll=no",
                path.display()
            )),
            OpenError::Engine { engine, what } => Error::Usage(format!("engine={engine} {what}")),
            OpenError::Config(_)
            | OpenError::Missing { .. }
            | OpenError::NotADrive { .. }
            | OpenError::TooSmall { .. } => Error::Usage(e.to_string()),
            _ => Error::Failed(e.to_string()),
        }
    }
}

impl fmt::Display for StorageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.path)?;
        if let Some(size) = self.size {
            write!(f, ",size={}", show_size(size))?;
        }
        if self.engine != Engine::default() {
            write!(f, ",engine={}", self.engine.name())?;
        }
        if !self.direct {
            write!(f, ",direct=no")?;
        }
        match self.poll {
            None => {}
            Some(Poll::Auto) => write!(f, ",poll=auto")?,
            Some(Poll::Iopoll) => write!(f, ",poll=iopoll")?,
            Some(Poll::Hybrid) => write!(f, ",poll=hybrid")?,
        }
        if let Some(queues) = self.queues {
            write!(f, ",queues={queues}")?;
        }
        if let Some(depth) = self.depth {
            write!(f, ",depth={depth}")?;
        }
        if self.read_only {
            write!(f, ",read_only=yes")?;
        }
        self.sqpoll.map_or(Ok(()), |ns| write!(f, ",sqpoll={}", time_text(ns)))
    }
}
