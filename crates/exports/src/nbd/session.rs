//! What a client's bytes mean: negotiation and transmission as state machines
//! over bytes.
//!
//! Pure: no I/O, no clock. Any bytes in any portions give the same steps; none
//! panics, and nothing here grows with what a client sends.

use port::{BLOCK_BYTES, BlockOp, SECTOR_BYTES, Shape};
use thiserror::Error;

use super::protocol::*;

/// The longest option data that is looked at, in bytes.
const OPTION_DATA_MAX: u32 = 8 << 10;
/// The longest option that is passed over; a longer one ends the session.
const OPTION_SKIP_MAX: u32 = 60 << 10;
/// How many options a client may send before it must enter transmission.
const OPTIONS_MAX: u32 = 1000;

/// The drive cannot be served.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotServable {
    /// The drive keeps digests.
    #[error(
        "this drive keeps {kept} bytes of each {BLOCK_BYTES}-byte block, so clients could not read back what they wrote; make it with store=memory or a file"
    )]
    KeepsDigests {
        /// Bytes kept of each block.
        kept: u32,
    },
    /// The drive keeps nothing, and nobody said that this is wanted.
    #[error(
        "this drive keeps no data, so every read would give zeros; make it with store=memory or a file, or ask for it explicitly to measure speed"
    )]
    KeepsNothing,
    /// The shape is not one of a block drive.
    #[error(
        "the drive's shape cannot be served: {bytes} bytes, requests of at most {max_bytes}; both must be multiples of {BLOCK_BYTES} and not zero"
    )]
    Shape {
        /// Capacity in bytes.
        bytes: u64,
        /// Longest request in bytes.
        max_bytes: u64,
    },
    /// A name or description is too long.
    #[error("the export's {what} has {len} bytes; at most {MAX_STRING} are allowed")]
    TooLong {
        /// Which of the two.
        what: &'static str,
        /// Its bytes.
        len: usize,
    },
}

/// What clients are told of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    name: String,
    description: String,
    shape: Shape,
    is_read_only: bool,
    /// Where it begins in the drive, if it is a part of one.
    first: Option<u64>,
    /// Parts of it that have names of their own.
    parts: Vec<Export>,
    /// Names that are not exported, and what who asks for one is told.
    refused: Vec<(String, String)>,
}

impl Export {
    /// The export's name unless another is given. The empty name always
    /// works too.
    pub const NAME: &'static str = "ssdkit";

    /// Exports a drive of this shape. Refuses a drive that does not keep the
    /// data.
    pub fn new(shape: Shape) -> Result<Export, NotServable> {
        if shape.kept == 0 {
            return Err(NotServable::KeepsNothing);
        }
        Export::even_without_data(shape)
    }

    /// As [`Export::new`], but also exports a drive that keeps nothing
    /// (`kept` is 0): reads give zeros. For measuring speed.
    pub fn even_without_data(shape: Shape) -> Result<Export, NotServable> {
        let kept = u64::from(shape.kept);
        if kept != 0 && kept != BLOCK_BYTES {
            return Err(NotServable::KeepsDigests { kept: shape.kept });
        }
        let whole = |n: u64| n != 0 && n.is_multiple_of(BLOCK_BYTES);
        if !whole(shape.bytes) || !whole(shape.max_bytes) {
            return Err(NotServable::Shape { bytes: shape.bytes, max_bytes: shape.max_bytes });
        }
        let (name, description) = (Export::NAME.into(), "ssdkit drive".into());
        let (is_read_only, first, parts, refused) = (false, None, Vec::new(), Vec::new());
        Ok(Export { name, description, shape, is_read_only, first, parts, refused })
    }

    /// Gives the export a name and a description.
    pub fn named(mut self, name: &str, description: &str) -> Result<Export, NotServable> {
        for (what, s) in [("name", name), ("description", description)] {
            if s.len() > MAX_STRING {
                return Err(NotServable::TooLong { what, len: s.len() });
            }
        }
        self.name = name.into();
        self.description = description.into();
        Ok(self)
    }

    /// Exports a part of the drive, too, by a name of its own: `bytes` from `first` on. A
    /// flush there is one of that part ([`BlockOp::Flush`] with the part's address), which
    /// a drive of several targets does without the others.
    pub fn with_part(
        mut self,
        name: &str,
        description: &str,
        (first, bytes): (u64, u64),
    ) -> Result<Export, NotServable> {
        let shape = Shape { bytes, ..self.shape };
        if first.checked_add(bytes).is_none_or(|end| end > self.shape.bytes) {
            return Err(NotServable::Shape { bytes, max_bytes: shape.max_bytes });
        }
        let mut part = Export::even_without_data(shape)?.named(name, description)?;
        part.first = Some(first);
        self.parts.push(part);
        Ok(self)
    }

    /// Tells who asks for this name, which is not exported, why that is so.
    pub fn refusing(mut self, name: &str, why: &str) -> Export {
        let end = (0..=why.len().min(MAX_STRING)).rev().find(|&n| why.is_char_boundary(n));
        self.refused.push((name.into(), why[..end.unwrap_or(0)].into()));
        self
    }

    /// Says whether the drive takes no writes. It is the drive that refuses
    /// them; clients are told beforehand.
    pub fn read_only(mut self, is_read_only: bool) -> Export {
        self.is_read_only = is_read_only;
        self.parts.iter_mut().for_each(|part| part.is_read_only = is_read_only);
        self
    }

    /// Whether clients are told that the drive takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether parts of it are exported, too.
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The same without a part.
    pub fn without(mut self, name: &str) -> Export {
        self.parts.retain(|part| part.name != name);
        self
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a part of a drive.
    pub(super) fn is_part(&self) -> bool {
        self.first.is_some()
    }

    /// Whether what was told of `export` is right: the drive as a whole may grow.
    pub(super) fn has(&self, export: &Export) -> bool {
        let is_same = |part: &Export| {
            (&part.name, part.first, part.shape) == (&export.name, export.first, export.shape)
        };
        !export.is_part() || self.parts.iter().any(is_same)
    }

    /// Its name, and those of its parts.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self).chain(&self.parts).map(|export| export.name.as_str())
    }

    /// The drive's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The smallest request and the alignment of all, in bytes.
    pub fn unit(&self) -> u32 {
        if self.shape.kept == 0 { BLOCK_BYTES as u32 } else { SECTOR_BYTES as u32 }
    }

    /// The transmission flags.
    pub fn flags(&self) -> u16 {
        let all =
            HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN;
        if self.is_read_only { all | READ_ONLY } else { all }
    }

    /// The export of that name: it, or a part of it.
    fn find(&self, name: &[u8]) -> Option<&Export> {
        if name.is_empty() || name == self.name.as_bytes() {
            return Some(self);
        }
        self.parts.iter().find(|part| part.name.as_bytes() == name)
    }

    /// Why there is no export of that name.
    fn why_not(&self, name: &[u8]) -> &str {
        let refused = self.refused.iter().find(|(its, _)| its.as_bytes() == name);
        refused.map_or("there is no export of this name", |(_, why)| why)
    }
}

/// Where a negotiation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It needs more bytes.
    More,
    /// Transmission has begun; what was not used belongs to it.
    Transmission,
    /// The connection is to be closed once the answer is sent.
    Close,
}

/// The server's side of a negotiation.
#[derive(Debug, Default)]
pub struct Negotiation {
    greeted: bool,
    no_zeroes: bool,
    options: u32,
    /// The name by which transmission has begun.
    chosen: Vec<u8>,
}

impl Negotiation {
    /// Bytes that must fit in the caller's buffer: no message that is waited
    /// for is longer.
    pub const BUFFER: usize = OptionHeader::LEN + OPTION_SKIP_MAX as usize;

    /// Starts a negotiation, and writes the greeting to `out`.
    pub fn start(out: &mut Vec<u8>) -> Negotiation {
        out.extend(greeting(FIXED_NEWSTYLE | NO_ZEROES));
        Negotiation::default()
    }

    /// The export that transmission is of, when it has begun.
    pub fn chosen<'e>(&self, export: &'e Export) -> &'e Export {
        export.find(&self.chosen).unwrap_or(export)
    }

    /// Takes one message off the front of `bytes` and writes the answer to
    /// `out`. Gives how many bytes it used; with [`Progress::More`] and none
    /// used, the message is not complete.
    pub fn step(&mut self, export: &Export, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Progress) {
        if !self.greeted {
            return self.client_flags(bytes);
        }
        let Some(head) = bytes.first_chunk() else {
            return (0, Progress::More);
        };
        let Some(OptionHeader { option, len }) = OptionHeader::parse(head) else {
            return (0, Progress::Close);
        };
        self.options += 1;
        if len > OPTION_SKIP_MAX || self.options > OPTIONS_MAX {
            return (0, Progress::Close);
        }
        let used = OptionHeader::LEN + len as usize;
        let Some(data) = bytes.get(OptionHeader::LEN..used) else {
            // Not counted until it is complete.
            self.options -= 1;
            return (0, Progress::More);
        };
        if len > OPTION_DATA_MAX {
            answer(out, option, REP_ERR_TOO_BIG, b"this option's data is too long");
            return (used, Progress::More);
        }
        (used, self.option(export, option, data, out))
    }

    fn client_flags(&mut self, bytes: &[u8]) -> (usize, Progress) {
        let Some(flags) = Reader(bytes).u32() else {
            return (0, Progress::More);
        };
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return (0, Progress::Close);
        }
        self.greeted = true;
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        (4, Progress::More)
    }

    fn option(&mut self, export: &Export, option: u32, data: &[u8], out: &mut Vec<u8>) -> Progress {
        match option {
            OPT_EXPORT_NAME => {
                // This option has no error reply.
                let Some(export) = export.find(data) else { return Progress::Close };
                self.chosen = data.to_vec();
                out.extend(export.shape.bytes.to_be_bytes());
                out.extend(export.flags().to_be_bytes());
                if !self.no_zeroes {
                    out.extend([0; 124]);
                }
                return Progress::Transmission;
            }
            OPT_ABORT => {
                answer(out, option, REP_ACK, b"");
                return Progress::Close;
            }
            OPT_LIST if !data.is_empty() => {
                answer(out, option, REP_ERR_INVALID, b"list takes no data");
            }
            OPT_LIST => {
                for name in export.names() {
                    let mut entry = (name.len() as u32).to_be_bytes().to_vec();
                    entry.extend(name.as_bytes());
                    answer(out, option, REP_SERVER, &entry);
                }
                answer(out, option, REP_ACK, b"");
            }
            OPT_INFO | OPT_GO => {
                let (progress, name) = info(export, option, data, out);
                if progress == Progress::Transmission {
                    self.chosen = name.to_vec();
                }
                return progress;
            }
            _ => answer(out, option, REP_ERR_UNSUP, b"this option is not known here"),
        }
        Progress::More
    }
}

/// Answers `OPT_INFO` and `OPT_GO`.
fn info<'d>(
    export: &Export,
    option: u32,
    data: &'d [u8],
    out: &mut Vec<u8>,
) -> (Progress, &'d [u8]) {
    let Some(request) = InfoRequest::parse(data) else {
        answer(out, option, REP_ERR_INVALID, b"the lengths in this option do not add up");
        return (Progress::More, b"");
    };
    let Some(export) = export.find(request.name) else {
        answer(out, option, REP_ERR_UNKNOWN, export.why_not(request.name).as_bytes());
        return (Progress::More, b"");
    };
    let mut fact = Vec::with_capacity(16);
    fact.extend(INFO_EXPORT.to_be_bytes());
    fact.extend(export.shape.bytes.to_be_bytes());
    fact.extend(export.flags().to_be_bytes());
    answer(out, option, REP_INFO, &fact);
    // Told even when not asked: clients that do not ask still need it.
    fact.clear();
    fact.extend(INFO_BLOCK_SIZE.to_be_bytes());
    for n in [export.unit(), BLOCK_BYTES as u32, MAX_REQUEST] {
        fact.extend(n.to_be_bytes());
    }
    answer(out, option, REP_INFO, &fact);
    for (which, words) in [(INFO_NAME, &export.name), (INFO_DESCRIPTION, &export.description)] {
        if request.asks(which) {
            fact.clear();
            fact.extend(which.to_be_bytes());
            fact.extend(words.as_bytes());
            answer(out, option, REP_INFO, &fact);
        }
    }
    answer(out, option, REP_ACK, b"");
    let progress = if option == OPT_GO { Progress::Transmission } else { Progress::More };
    (progress, request.name)
}

fn answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OptionReply { option, kind, len: data.len() as u32 }.to_bytes());
    out.extend(data);
}

/// A request that the drive is to serve: aligned, inside the drive, and no
/// longer than the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The client's number.
    pub cookie: u64,
    /// What to do.
    pub op: BlockOp,
    /// Answer when durable.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; for reads and writes at most [`MAX_REQUEST`].
    pub len: u32,
}

/// What the next bytes of a transmission mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request is not complete: more bytes are needed.
    More,
    /// Serve this. The data of a write come next.
    Serve(Io),
    /// This many bytes of data belong to the last write.
    Payload(u32),
    /// This many bytes of data belong to a write that is refused.
    Skip(u32),
    /// Answer with an error.
    Refuse {
        /// The client's number.
        cookie: u64,
        /// The error.
        error: u32,
    },
    /// The client is done.
    Disconnect,
    /// The bytes make no sense, and no further ones can: close.
    Garbage,
}

/// The server's side of a transmission.
#[derive(Debug)]
pub struct Transmission {
    bytes: u64,
    /// Where these begin in the drive, if they are a part of it.
    first: Option<u64>,
    unit: u32,
    /// Bytes of data still to come.
    payload: u32,
    /// The refusal due after them.
    refusal: Option<(u64, u32)>,
}

impl Transmission {
    /// Starts a transmission.
    pub fn new(export: &Export) -> Transmission {
        let (bytes, unit) = (export.shape.bytes, export.unit());
        Transmission { bytes, first: export.first, unit, payload: 0, refusal: None }
    }

    /// What the front of `bytes` means, and how many of them said so. While
    /// data are due, says so again until [`took`](Self::took) took them.
    #[inline]
    pub fn step(&mut self, bytes: &[u8]) -> (usize, Step) {
        if self.payload > 0 {
            let n = self.payload;
            return (0, if self.refusal.is_some() { Step::Skip(n) } else { Step::Payload(n) });
        }
        if let Some((cookie, error)) = self.refusal.take() {
            return (0, Step::Refuse { cookie, error });
        }
        let Some(head) = bytes.first_chunk() else {
            return (0, Step::More);
        };
        let Some(request) = Request::parse(head) else {
            return (0, Step::Garbage);
        };
        (Request::LEN, self.request(&request))
    }

    /// Refuses the request that was to be served last, none of whose data were taken.
    pub fn refuse(&mut self, cookie: u64, error: u32) {
        self.refusal = Some((cookie, error));
    }

    /// Bytes of data that are due.
    #[inline]
    pub fn data_due(&self) -> u32 {
        self.payload
    }

    /// `n` of the bytes of data that are due were taken.
    ///
    /// # Panics
    /// When fewer were due.
    #[inline]
    pub fn took(&mut self, n: u32) {
        assert!(n <= self.payload, "no more data than are due");
        self.payload -= n;
    }

    #[inline]
    fn request(&mut self, r: &Request) -> Step {
        if r.command == CMD_DISC {
            return Step::Disconnect;
        }
        let write = r.command == CMD_WRITE;
        if write && r.len > MAX_REQUEST {
            // Refusing it would mean to swallow its data first.
            return Step::Garbage;
        }
        if write {
            self.payload = r.len;
        }
        match self.judge(r) {
            Ok(op) => Step::Serve(Io {
                cookie: r.cookie,
                op,
                fua: r.flags & CMD_FLAG_FUA != 0,
                offset: self.first.unwrap_or(0) + r.offset,
                // One of a part names some of it.
                len: match op {
                    BlockOp::Flush if self.first.is_some() => BLOCK_BYTES as u32,
                    _ => r.len,
                },
            }),
            Err(error) if self.payload > 0 => {
                // Answered after its data: a client may not listen before.
                self.refusal = Some((r.cookie, error));
                Step::Skip(self.payload)
            }
            Err(error) => Step::Refuse { cookie: r.cookie, error },
        }
    }

    #[inline]
    fn judge(&self, r: &Request) -> Result<BlockOp, u32> {
        let (op, flags, past_end) = match r.command {
            CMD_READ => (BlockOp::Read, CMD_FLAG_FUA, EINVAL),
            CMD_WRITE => (BlockOp::Write, CMD_FLAG_FUA, ENOSPC),
            CMD_FLUSH => (BlockOp::Flush, CMD_FLAG_FUA, EINVAL),
            CMD_TRIM => (BlockOp::Trim, CMD_FLAG_FUA, EINVAL),
            CMD_WRITE_ZEROES => (BlockOp::WriteZeroes, CMD_FLAG_FUA | CMD_FLAG_NO_HOLE, ENOSPC),
            _ => return Err(EINVAL),
        };
        if r.flags & !flags != 0 {
            return Err(EINVAL);
        }
        if op == BlockOp::Flush {
            return if r.offset == 0 && r.len == 0 { Ok(op) } else { Err(EINVAL) };
        }
        let aligned = (r.offset | u64::from(r.len)).is_multiple_of(u64::from(self.unit));
        if r.len == 0 || !aligned || (op == BlockOp::Read && r.len > MAX_REQUEST) {
            return Err(EINVAL);
        }
        if r.offset.checked_add(u64::from(r.len)).is_none_or(|end| end > self.bytes) {
            return Err(past_end);
        }
        Ok(op)
    }
}

#[cfg(test)]
mod tests;
