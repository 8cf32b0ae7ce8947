//! The formats of traces: their names, how they are told apart, and how a line of each is
//! read.
//!
//! Guarantees: a line gives a request, nothing, or what is wrong with it; nothing is
//! copied or allocated. A format is told from the first lines where most of them are
//! lines of it, and of no other.
//!
//! One more is a file beside these with what a line of it says, a [`Format`] with its name,
//! and an example worked out by hand in the tests.

use clap::ValueEnum;
use measure::file::mark_of;
use port::BlockOp;

use crate::error::{Flaw, ReadError, shown};

mod alibaba;
mod blkparse;
mod fio;
mod mqsim;
mod msr;
mod spc;
mod systor;
mod tencent;

/// Lines that are looked at to tell a format.
const LOOKED_AT: usize = 20;
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Where addresses end.
pub(crate) const MOST_ADDRESS: u64 = 1 << 63;

/// A format of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// MSR Cambridge: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime.
    Msr,
    /// Alibaba's block traces: device,opcode,offset,length,timestamp.
    Alibaba,
    /// Tencent's block traces: Timestamp,Offset,Size,IOType,VolumeID.
    Tencent,
    /// SYSTOR '17: Timestamp,Response,IOType,LUN,Offset,Size.
    Systor,
    /// Storage Performance Council: ASU,LBA,Size,Opcode,Timestamp.
    Spc,
    /// MQSim: time device LBA size type.
    Mqsim,
    /// What blkparse prints by default.
    Blkparse,
    /// fio's logs, version 2 and 3.
    Fio,
}

impl Format {
    /// All of them.
    pub const ALL: &[Format] = &[
        Format::Msr,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Spc,
        Format::Mqsim,
        Format::Blkparse,
        Format::Fio,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor => "systor",
            Format::Spc => "spc",
            Format::Mqsim => "mqsim",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
        }
    }

    pub(crate) fn names(formats: &[Format]) -> String {
        formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }
}

/// Which event of a request stands for it, of blkparse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Queued: as it was asked.
    #[default]
    Q,
    /// Issued to the driver: after merging and scheduling.
    D,
}

/// What a number of a time counts, where a format does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl TimeUnit {
    fn ns(self) -> u64 {
        match self {
            TimeUnit::Ns => 1,
            TimeUnit::Us => 1000,
            TimeUnit::Ms => 1_000_000,
            TimeUnit::S => 1_000_000_000,
        }
    }
}

/// How a line is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub format: Format,
    pub action: Action,
    /// Where it was given.
    pub unit: Option<TimeUnit>,
}

/// What must be known of the lines before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// Lines that were read.
    lines: u64,
    /// Of fio's: its version, and the time so far.
    fio: fio::Version,
    waited: u64,
    /// Of blkparse: its summary at the end was reached.
    is_over: bool,
}

/// A request as a line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    /// In ns, from wherever the trace counts.
    pub at: u64,
    pub op: BlockOp,
    pub fua: bool,
    /// In bytes.
    pub offset: u64,
    pub len: u64,
    pub volume: &'a [u8],
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    Request(Row<'a>),
    /// It names the fields.
    Header,
    /// It says something that is no request.
    Other,
}

impl Reading {
    /// Reads a line.
    #[inline]
    pub fn line<'a>(&self, line: &'a [u8], before: &mut Before) -> Result<Said<'a>, Flaw> {
        before.lines += 1;
        if before.lines == 1 { self.first(line, before) } else { self.read(line, before) }
    }

    /// Reads the first line: one that begins with a letter and gives no request names the
    /// fields.
    #[cold]
    fn first<'a>(&self, line: &'a [u8], before: &mut Before) -> Result<Said<'a>, Flaw> {
        let line = &line[mark_of(line)..];
        if is_blank(line) {
            before.lines = 0;
            return Ok(Said::Other);
        }
        let has_header = !matches!(self.format, Format::Mqsim | Format::Blkparse | Format::Fio);
        let is_word = line.first().is_some_and(u8::is_ascii_alphabetic);
        match self.read(line, before) {
            Err(_) if has_header && is_word => Ok(Said::Header),
            said => said,
        }
    }

    /// Reads a line that says something.
    #[inline]
    fn read<'a>(&self, line: &'a [u8], before: &mut Before) -> Result<Said<'a>, Flaw> {
        let said = match self.format {
            Format::Msr => Said::Request(msr::row(line)?),
            Format::Alibaba => Said::Request(alibaba::row(line)?),
            Format::Tencent => Said::Request(tencent::row(line)?),
            Format::Systor => Said::Request(systor::row(line)?),
            Format::Spc => Said::Request(spc::row(line)?),
            Format::Mqsim => Said::Request(mqsim::row(line, self.unit)?),
            Format::Blkparse => blkparse::said(line, self.action, before)?,
            Format::Fio => fio::said(line, self.unit, before)?,
        };
        if let Said::Request(row) = &said
            && row.offset.checked_add(row.len).is_none_or(|end| end > MOST_ADDRESS)
        {
            return Err(Flaw::Address);
        }
        Ok(said)
    }
}

/// So many sectors, in bytes.
#[inline]
fn sectors(count: u64) -> Result<u64, Flaw> {
    count.checked_mul(SECTOR).ok_or(Flaw::Address)
}

/// A time of so many units of so many ns.
#[inline]
fn time(count: u64, unit: u64) -> Result<u64, Flaw> {
    count.checked_mul(unit).ok_or(Flaw::Time)
}

/// An operation by its letter.
#[inline]
fn letter(word: &[u8]) -> Result<BlockOp, Flaw> {
    match word {
        b"R" | b"r" => Ok(BlockOp::Read),
        b"W" | b"w" => Ok(BlockOp::Write),
        _ => Err(Flaw::Operation),
    }
}

/// Tells the format by how a trace begins; `is_all` when that is all of it.
pub(crate) fn tell(begin: &[u8], is_all: bool) -> Result<Format, ReadError> {
    let begin = &begin[mark_of(begin)..];
    let mut lines: Vec<&[u8]> = begin.split(|&byte| byte == b'\n').collect();
    if !is_all && lines.len() > 1 {
        // It may go on.
        lines.pop();
    }
    let lines = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines: Vec<&[u8]> = lines.filter(|line| !is_blank(line)).take(LOOKED_AT).collect();
    let Some(first) = lines.first() else { return Err(ReadError::Empty) };
    let candidates: Vec<Format> =
        Format::ALL.iter().copied().filter(|&format| may_be(format, &lines)).collect();
    match candidates[..] {
        [] => Err(ReadError::Unknown { text: shown(first) }),
        [format] => Ok(format),
        _ => Err(ReadError::Ambiguous { candidates }),
    }
}

/// Whether these may be the first lines of a trace of that format: most of them, since a
/// few may be broken; of fio's the first, which says so.
fn may_be(format: Format, lines: &[&[u8]]) -> bool {
    let reading = Reading { format, action: Action::default(), unit: None };
    let mut before = Before::default();
    let all: Vec<_> = lines.iter().map(|line| reading.line(line, &mut before)).collect();
    let good = all.iter().filter(|said| said.is_ok()).count();
    let begins = format != Format::Fio || all.first().is_some_and(Result::is_ok);
    begins && 2 * good > all.len() && all.iter().flatten().any(|said| *said != Said::Header)
}

/// Whether a line says nothing.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.first().is_none_or(|first| *first == b'#' || first.is_ascii_whitespace())
        && (line.first() == Some(&b'#') || line.iter().all(u8::is_ascii_whitespace))
}

#[cfg(test)]
mod tests;
