//! A trace, from front to back: its requests, whatever its format.
//!
//! Guarantees: memory is bounded whatever is in the trace; times begin at 0 with the first
//! request that is given and never go back: one that is earlier than the one before it has
//! its time, and is counted; requests of no length are left out, and counted. A broken line
//! ends it, or is counted and left out, at most so many. May fail: the input; a broken
//! line; a format that cannot be told. After an error nothing more comes.

use clap::Args;
use port::BlockOp;
use serde_json::{Value, json};

use crate::error::{Flaw, ReadError, shown};
use crate::format::{Action, Before, Format, Reading, Said, TimeUnit, is_blank, tell};
use crate::input::{Input, Progress};
use crate::lines::{Line, Lines};
use crate::own::Own;
use crate::volumes::Volumes;

/// Broken lines that are left out at most, where nothing else is said.
const MOST_BROKEN: u64 = 1000;
/// Names of volumes that an error tells.
const TOLD: usize = 8;
/// Lines that are read in search of a request, before who asks has a say again.
const AT_A_TIME: u32 = 64;

/// The name of the format of our own traces.
const OURS: &str = "ssdkit";

/// What becomes of broken lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The first is an error.
    Stop,
    /// So many are left out.
    Skip(u64),
}

/// Reads `stop`, `skip` or `skip:N`.
fn broken(text: &str) -> Result<Broken, String> {
    match text.split_once(':') {
        None if text == "stop" => Ok(Broken::Stop),
        None if text == "skip" => Ok(Broken::Skip(MOST_BROKEN)),
        Some(("skip", most)) => measure::options::count(most).map(Broken::Skip),
        _ => Err("write stop, skip or skip:N".into()),
    }
}

/// How a trace is read.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading the trace")]
pub struct ReadArgs {
    /// Its format [default: as its first lines tell].
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Only requests of this volume (disk, device, LUN, ASU, file).
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    /// Of blkparse: the event that stands for a request [default: q].
    #[arg(long, value_enum, ignore_case = true)]
    pub action: Option<Action>,
    /// What a time counts, of mqsim and fio [default: ns, and us].
    #[arg(long, value_enum)]
    pub time_unit: Option<TimeUnit>,
    /// Broken lines: stop, skip (at most 1000) or skip:N.
    #[arg(long, value_name = "HOW", default_value = "stop", value_parser = broken)]
    pub broken: Broken,
}

impl ReadArgs {
    /// That all options that were given say something of this format; `None` is ours.
    pub fn check(&self, format: Option<Format>) -> Result<(), ReadError> {
        let (is_ours, is_blkparse) = (format.is_none(), format == Some(Format::Blkparse));
        let has_unit = matches!(format, Some(Format::Mqsim | Format::Fio));
        let given = [
            (self.volume.is_some() && is_ours, "--volume", "traces of others"),
            (self.broken != Broken::Stop && is_ours, "--broken", "traces of others"),
            (self.action.is_some() && !is_blkparse, "--action", "blkparse"),
            (self.time_unit.is_some() && !has_unit, "--time-unit", "mqsim and fio"),
        ];
        let format = format.map_or(OURS, Format::name);
        match given.iter().find(|(is_idle, ..)| *is_idle) {
            Some(&(_, option, of)) => Err(ReadError::Option { option, of, format }),
            None => Ok(()),
        }
    }
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Since the first, in ns.
    pub at: u64,
    /// What it asks for.
    pub op: BlockOp,
    /// Whether it is to be durable when it completes.
    pub fua: bool,
    /// Its first byte in its volume.
    pub offset: u64,
    /// Bytes; 0 for a flush only. It ends at 2^63 at most.
    pub len: u64,
    /// Its volume's number, in the order in which they come.
    pub volume: u32,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A request.
    Request(Request),
    /// None in the part that was read: ask again.
    Later,
    /// The end.
    End,
}

/// What was read, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were given.
    pub requests: u64,
    /// Broken lines that were left out.
    pub broken: u64,
    /// Requests of no length that were left out.
    pub empty: u64,
    /// Requests that were earlier than the one before them.
    pub backwards: u64,
    /// Requests that were dropped when a trace of ours was written: it has no record of them.
    /// Known at its end.
    pub dropped: u64,
}

impl Counts {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "requests": self.requests,
            "broken_lines": self.broken,
            "empty_requests": self.empty,
            "backwards": self.backwards,
            "dropped": self.dropped,
        })
    }

    /// What is to be known, in words.
    pub fn notes(&self) -> Vec<String> {
        let told = [
            (self.broken, "broken line", " left out"),
            (self.empty, "request", " of no length left out"),
            (self.backwards, "request", " earlier than the one before, given at the time of that"),
            (self.dropped, "request", " dropped when the trace was written, so not in it"),
        ];
        let told = told.iter().filter(|(n, ..)| *n > 0);
        told.map(|&(n, what, how)| measure::units::exactly(n, what) + how).collect()
    }
}

/// Where requests come from.
enum Source {
    Text { lines: Lines, reading: Reading, before: Before },
    Own(Own),
}

/// A trace under way.
pub struct Reader {
    source: Source,
    volumes: Volumes,
    /// The volume that alone is wanted.
    only: Option<Box<[u8]>>,
    broken: Broken,
    counts: Counts,
    progress: Progress,
    /// The time of the first request, and of the last since that.
    first: Option<u64>,
    last: u64,
    is_over: bool,
}

impl Reader {
    /// Begins to read. Fails when it is empty or its format cannot be told.
    pub fn new(mut input: Input, args: &ReadArgs) -> Result<Reader, ReadError> {
        let source = if args.format.is_none() && input.is_ours()? {
            args.check(None)?;
            Source::Own(Own::new(input.bytes)?)
        } else {
            let mut lines = Lines::new(input.bytes);
            let (begin, is_all) = lines.peek()?;
            if begin.is_empty() {
                return Err(ReadError::Empty);
            }
            let format = args.format.map_or_else(|| tell(begin, is_all), Ok)?;
            args.check(Some(format))?;
            let action = args.action.unwrap_or_default();
            let reading = Reading { format, action, unit: args.time_unit };
            Source::Text { lines, reading, before: Before::default() }
        };
        Ok(Reader {
            source,
            volumes: Volumes::default(),
            only: args.volume.as_ref().map(|name| name.as_bytes().into()),
            broken: args.broken,
            counts: Counts::default(),
            progress: input.progress,
            first: None,
            last: 0,
            is_over: false,
        })
    }

    /// What was read so far.
    pub fn counts(&self) -> Counts {
        match &self.source {
            Source::Text { .. } => self.counts,
            Source::Own(own) => {
                Counts { empty: own.empty(), dropped: own.dropped(), ..self.counts }
            }
        }
    }

    /// How far it was read.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether all requests are of one volume, which was chosen.
    pub fn is_of_one_volume(&self) -> bool {
        self.only.is_some()
    }

    /// The name of its format.
    pub fn format(&self) -> &'static str {
        match &self.source {
            Source::Text { reading, .. } => reading.format.name(),
            Source::Own(_) => OURS,
        }
    }

    /// The beginning of the name of a volume, harmless to a terminal; of our own traces none.
    pub fn volume(&self, number: u32) -> String {
        self.volumes.name(number)
    }

    /// All of it, as it stands in the trace.
    pub fn whole_name(&self, number: u32) -> String {
        self.volumes.whole_name(number)
    }

    /// The next request; `None` at the end. Fails also where the end is reached without any.
    /// It may read very far where few are wanted.
    #[expect(clippy::should_implement_trait, reason = "an error ends it, so it is no iterator")]
    pub fn next(&mut self) -> Result<Option<Request>, ReadError> {
        loop {
            match self.next_soon()? {
                Next::Request(request) => return Ok(Some(request)),
                Next::Later => {}
                Next::End => return Ok(None),
            }
        }
    }

    /// The same, which gives control back after some lines without a request.
    #[inline]
    pub fn next_soon(&mut self) -> Result<Next, ReadError> {
        if self.is_over {
            return Ok(Next::End);
        }
        let next = match &mut self.source {
            Source::Text { .. } => self.next_of_text(),
            Source::Own(own) => own.next(),
        };
        match next {
            Ok(Next::Request(request)) => Ok(Next::Request(self.timed(request))),
            Ok(Next::Later) => Ok(Next::Later),
            Ok(Next::End) => self.end(),
            Err(e) => {
                self.is_over = true;
                Err(e)
            }
        }
    }

    /// Nothing more comes.
    #[cold]
    fn end(&mut self) -> Result<Next, ReadError> {
        self.is_over = true;
        if self.counts.requests > 0 {
            return Ok(Next::End);
        }
        let names = (0..self.volumes.count().min(TOLD)).map(|n| self.volumes.name(n as u32));
        let names = names.collect::<Vec<_>>().join("`, `");
        let is_blkparse = self.format() == Format::Blkparse.name();
        Err(ReadError::NoRequest(match &self.only {
            Some(only) if !names.is_empty() => {
                format!(" of volume `{}`: there are `{names}`", shown(only))
            }
            _ if is_blkparse => " with this --action: take the other".into(),
            _ => String::new(),
        }))
    }

    /// Gives a request its time since the first.
    #[inline]
    fn timed(&mut self, mut request: Request) -> Request {
        let first = *self.first.get_or_insert(request.at);
        let at = request.at.saturating_sub(first);
        if request.at < first || at < self.last {
            self.counts.backwards += 1;
        }
        self.last = self.last.max(at);
        request.at = self.last;
        self.counts.requests += 1;
        request
    }

    /// The next request of a text, with the time that stands there.
    #[inline]
    fn next_of_text(&mut self) -> Result<Next, ReadError> {
        let Source::Text { lines, reading, before } = &mut self.source else {
            return Ok(Next::End);
        };
        for _ in 0..AT_A_TIME {
            let line = match lines.next()? {
                None => return Ok(Next::End),
                Some(Line::TooLong) => Err(Flaw::TooLong),
                Some(Line::Whole(line)) => Ok(line),
            };
            let read = line.and_then(|line| {
                if is_blank(line) {
                    return Ok(None);
                }
                let Said::Request(row) = reading.line(line, before)? else { return Ok(None) };
                let is_wanted = self.only.as_ref().is_none_or(|only| **only == *row.volume);
                if !is_wanted {
                    if self.volumes.count() < TOLD {
                        // An error tells it. It may be a name that cannot be, which nobody wants.
                        let _ = self.volumes.number(row.volume);
                    }
                    return Ok(None);
                }
                let volume = self.volumes.number(row.volume)?;
                if row.len == 0 && row.op != BlockOp::Flush {
                    self.counts.empty += 1;
                    return Ok(None);
                }
                let (at, op, fua, offset, len) = (row.at, row.op, row.fua, row.offset, row.len);
                Ok(Some(Request { at, op, fua, offset, len, volume }))
            });
            match read {
                Ok(Some(request)) => return Ok(Next::Request(request)),
                Ok(None) => {}
                Err(flaw) => {
                    let text = line.map(shown).unwrap_or_default();
                    let number = lines.number();
                    match self.broken {
                        Broken::Stop => return Err(ReadError::Line { number, flaw, text }),
                        Broken::Skip(most) if self.counts.broken == most => {
                            return Err(ReadError::TooMany { most, number, flaw, text });
                        }
                        Broken::Skip(_) => self.counts.broken += 1,
                    }
                }
            }
        }
        Ok(Next::Later)
    }
}

#[cfg(test)]
mod tests;
