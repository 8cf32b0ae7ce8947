//! A channel's messages, entries and places in memory, version 1 (docs/formats.md).
//!
//! Pure: any bytes and any words give a message, an entry or `None`, and none
//! panics. All numbers are little-endian.

use port::{BlockOp, Status};

/// First of every message, "SSDKCHAN".
pub const MAGIC: u64 = u64::from_le_bytes(*b"SSDKCHAN");
/// This version.
pub const VERSION: u16 = 1;
/// The most requests that a channel can have out.
pub const MAX_DEPTH: u32 = 4096;
/// The most bytes of buffers that a channel can have.
pub const MAX_MEMORY: u64 = 1 << 30;
/// The most bytes of a refusal's words.
pub const MAX_TEXT: usize = 256;

/// Words of a request and of a completion.
pub const REQUEST_WORDS: usize = 4;
/// See [`REQUEST_WORDS`].
pub const COMPLETION_WORDS: usize = 2;

/// Bit of a request's flags: complete a write or trim only when it is durable.
const FUA: u8 = 1;
/// Bit of a welcome's flags: the drive takes no writes.
const READ_ONLY: u32 = 1;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that it speaks.
    pub version: u16,
    /// Requests that it may have out: a power of two, at most [`MAX_DEPTH`].
    pub depth: u32,
    /// Its longest read or write, in bytes of the drive; 0 for the drive's own.
    pub most: u32,
    /// Bytes of buffers, at most [`MAX_MEMORY`]; 0 for what `depth` of the longest
    /// requests need.
    pub memory: u64,
}

impl Hello {
    /// Bytes of it.
    pub const LEN: usize = 32;

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Hello::LEN] {
        let mut out = [0; Hello::LEN];
        out[..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&self.version.to_le_bytes());
        out[12..16].copy_from_slice(&self.depth.to_le_bytes());
        out[16..20].copy_from_slice(&self.most.to_le_bytes());
        out[24..32].copy_from_slice(&self.memory.to_le_bytes());
        out
    }

    /// What was sent; `None` where it is something else. Of another version only the
    /// version is known.
    pub fn parse(bytes: &[u8; Hello::LEN]) -> Option<Hello> {
        let version = u16_at(bytes, 8);
        let is_clear = u16_at(bytes, 10) == 0 && u32_at(bytes, 20) == 0;
        if u64_at(bytes, 0) != MAGIC || (version == VERSION && !is_clear) {
            return None;
        }
        let (depth, most) = (u32_at(bytes, 12), u32_at(bytes, 16));
        Some(Hello { version, depth, most, memory: u64_at(bytes, 24) })
    }
}

/// What a client is told: of its channel, or why it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// The version that the server speaks.
    pub version: u16,
    /// Bytes of words that follow, which say why there is no channel; 0 where there is
    /// one, whose memory comes with this message.
    pub refused: u16,
    /// The drive's logical capacity in bytes.
    pub bytes: u64,
    /// Bytes that travel for each block of 4096: 4096 where the drive keeps data, 8
    /// where it keeps digests, 0 where it keeps nothing ([`port::Shape::kept`]).
    pub kept: u32,
    /// The longest read or write, in bytes of the drive.
    pub most: u32,
    /// The longest trim or write of zeros, in bytes.
    pub most_trim: u32,
    /// Requests that may be out.
    pub depth: u32,
    /// Bytes of buffers.
    pub memory: u64,
    /// Whether the drive takes no writes.
    pub is_read_only: bool,
}

impl Welcome {
    /// Bytes of it, without its words.
    pub const LEN: usize = 64;

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Welcome::LEN] {
        let mut out = [0; Welcome::LEN];
        out[..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&self.version.to_le_bytes());
        out[10..12].copy_from_slice(&self.refused.to_le_bytes());
        out[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        let numbers = [self.kept, self.most, self.most_trim, self.depth];
        for (i, number) in numbers.into_iter().enumerate() {
            out[24 + 4 * i..28 + 4 * i].copy_from_slice(&number.to_le_bytes());
        }
        out[40..48].copy_from_slice(&self.memory.to_le_bytes());
        let flags = if self.is_read_only { READ_ONLY } else { 0 };
        out[48..52].copy_from_slice(&flags.to_le_bytes());
        out
    }

    /// What was sent; `None` where it is something else.
    pub fn parse(bytes: &[u8; Welcome::LEN]) -> Option<Welcome> {
        (u64_at(bytes, 0) == MAGIC).then(|| Welcome {
            version: u16_at(bytes, 8),
            refused: u16_at(bytes, 10),
            bytes: u64_at(bytes, 16),
            kept: u32_at(bytes, 24),
            most: u32_at(bytes, 28),
            most_trim: u32_at(bytes, 32),
            depth: u32_at(bytes, 36),
            memory: u64_at(bytes, 40),
            is_read_only: u32_at(bytes, 48) & READ_ONLY != 0,
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A request, as a client puts it into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's own number; comes back in the completion.
    pub id: u64,
    /// What to do.
    pub op: BlockOp,
    /// Complete a write or trim only when it is durable.
    pub fua: bool,
    /// As [`port::BlockReq::placement`].
    pub placement: u8,
    /// First byte on the drive.
    pub offset: u64,
    /// Bytes of the drive.
    pub len: u32,
    /// Where the data are, in bytes from the beginning of the buffers.
    pub buffer: u32,
}

/// What an operation is in memory: its opcode of the NVM command set.
const fn opcode(op: BlockOp) -> u8 {
    match op {
        BlockOp::Flush => 0x00,
        BlockOp::Write => 0x01,
        BlockOp::Read => 0x02,
        BlockOp::WriteZeroes => 0x08,
        BlockOp::Trim => 0x09,
    }
}

/// A request that is none: its number, and the status that says so.
pub type Wrong = (u64, Status);

impl Request {
    /// As it lies in memory, without its stamp.
    #[inline(always)]
    pub fn to_words(self) -> [u64; REQUEST_WORDS] {
        let flags = if self.fua { FUA } else { 0 };
        let last = u32::from_le_bytes([opcode(self.op), flags, self.placement, 0]);
        let third = u64::from(self.len) | u64::from(self.buffer) << 32;
        [self.id, self.offset, third, last.into()]
    }

    /// What lies in memory.
    ///
    /// # Errors
    /// It is no request: the status to answer it with.
    #[inline(always)]
    pub fn parse(words: [u64; REQUEST_WORDS]) -> Result<Request, Wrong> {
        let [id, offset, third, last] = words;
        let [code, flags, placement, clear] = (last as u32).to_le_bytes();
        let op = match code {
            0x00 => BlockOp::Flush,
            0x01 => BlockOp::Write,
            0x02 => BlockOp::Read,
            0x08 => BlockOp::WriteZeroes,
            0x09 => BlockOp::Trim,
            _ => return Err((id, Status::INVALID_OPCODE)),
        };
        if flags & !FUA != 0 || clear != 0 {
            return Err((id, Status::INVALID_FIELD));
        }
        let (len, buffer) = (third as u32, (third >> 32) as u32);
        Ok(Request { id, op, fua: flags & FUA != 0, placement, offset, len, buffer })
    }
}

/// A completion, as a server puts it into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's number.
    pub id: u64,
    /// How it ended.
    pub status: Status,
}

impl Completion {
    /// As it lies in memory, without its stamp.
    #[inline(always)]
    pub fn to_words(self) -> [u64; COMPLETION_WORDS] {
        [self.id, self.status.0.into()]
    }

    /// What lies in memory.
    #[inline(always)]
    pub fn parse(words: [u64; COMPLETION_WORDS]) -> Completion {
        Completion { id: words[0], status: Status(words[1] as u16) }
    }
}

/// Why a channel ended, as its server writes it down before it closes the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server stops.
    Stopped,
    /// The client wrote something where no request can be.
    Garbage,
    /// The drive stopped by a fault of its own.
    DriveLost,
}

impl End {
    const ALL: [End; 3] = [End::Stopped, End::Garbage, End::DriveLost];

    /// As it lies in memory, where 0 is a channel that has not ended.
    pub fn code(self) -> u32 {
        match self {
            End::Stopped => 1,
            End::Garbage => 2,
            End::DriveLost => 3,
        }
    }

    /// What lies in memory.
    pub fn of(code: u32) -> Option<End> {
        End::ALL.into_iter().find(|end| end.code() == code)
    }

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            End::Stopped => "the server stopped",
            End::Garbage => "a request's stamp was out of turn: this is a fault of the client",
            End::DriveLost => {
                "the drive stopped by a fault of its own: see what its server printed"
            }
        }
    }
}

/// Where everything lies in a channel's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Places of each queue.
    pub depth: u32,
    /// The queue of completions.
    pub completions: usize,
    /// The buffers.
    pub buffers: usize,
    /// Bytes of buffers.
    pub memory: usize,
}

/// What lies in memory begins on a page of its own, and each word of both sides on
/// lines of its own, of which the processor fetches two at a time.
const PAGE: usize = 4096;

impl Layout {
    /// Set by the client that sleeps.
    pub const CLIENT_SLEEPS: usize = 0;
    /// Set by the server that sleeps.
    pub const SERVER_SLEEPS: usize = 128;
    /// Why the channel ended ([`End`]).
    pub const ENDED: usize = 256;
    /// The queue of requests.
    pub const REQUESTS: usize = PAGE;

    /// Of a channel of this depth and so many bytes of buffers; `None` where there can
    /// be none.
    pub fn new(depth: u32, memory: u64) -> Option<Layout> {
        if !depth.is_power_of_two() || depth > MAX_DEPTH || memory > MAX_MEMORY {
            return None;
        }
        let queue = |words: usize| (depth as usize * words * 8).next_multiple_of(PAGE);
        let completions = Layout::REQUESTS + queue(REQUEST_WORDS);
        let buffers = completions + queue(COMPLETION_WORDS);
        Some(Layout { depth, completions, buffers, memory: memory as usize })
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        (self.buffers + self.memory).next_multiple_of(PAGE)
    }

    /// Whether `len` bytes at `at` lie in the buffers.
    #[inline(always)]
    pub fn has(&self, at: u32, len: usize) -> bool {
        (at as usize).checked_add(len).is_some_and(|end| end <= self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layouts_do_not_overlap() {
        for depth in [1, 2, 128, MAX_DEPTH] {
            let layout = Layout::new(depth, 5000).unwrap();
            assert!(Layout::REQUESTS + depth as usize * 32 <= layout.completions);
            assert!(layout.completions + depth as usize * 16 <= layout.buffers);
            assert!(layout.buffers + 5000 <= layout.bytes());
            assert!(layout.has(0, 5000) && layout.has(5000, 0) && !layout.has(1, 5000));
            assert!(!layout.has(u32::MAX, 1) && !layout.has(1, usize::MAX));
        }
        for (depth, memory) in [(0, 0), (3, 0), (2 * MAX_DEPTH, 0), (1, MAX_MEMORY + 1)] {
            assert_eq!(Layout::new(depth, memory), None);
        }
    }

    #[test]
    fn ends_come_back() {
        assert!(End::ALL.into_iter().all(|end| End::of(end.code()) == Some(end)));
        assert_eq!((End::of(0), End::of(99)), (None, None));
    }

    fn any_op() -> impl Strategy<Value = BlockOp> {
        let all =
            [BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Trim, BlockOp::WriteZeroes];
        prop::sample::select(all.to_vec())
    }

    proptest! {
        #[test]
        fn requests_come_back(
            (id, op, fua, placement) in (any::<u64>(), any_op(), any::<bool>(), any::<u8>()),
            (offset, len, buffer, stamp) in (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()),
        ) {
            let request = Request { id, op, fua, placement, offset, len, buffer };
            let mut words = request.to_words();
            words[3] |= u64::from(stamp) << 32;
            prop_assert_eq!(Request::parse(words), Ok(request));
        }

        #[test]
        fn any_words_are_a_request_or_none(words in any::<[u64; 4]>()) {
            match Request::parse(words) {
                Ok(request) => {
                    let again = request.to_words();
                    prop_assert_eq!(&again[..3], &words[..3]);
                    prop_assert_eq!(again[3] as u32, words[3] as u32);
                }
                Err((id, status)) => prop_assert!(id == words[0] && !status.is_ok()),
            }
        }

        #[test]
        fn messages_come_back(
            (depth, most, memory) in any::<(u32, u32, u64)>(), kept in any::<u32>(), bytes in any::<u64>(),
        ) {
            let hello = Hello { version: VERSION, depth, most, memory };
            prop_assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
            let welcome = Welcome {
                version: VERSION, refused: 3, bytes, kept, most, most_trim: 9, depth, memory,
                is_read_only: kept % 2 == 0,
            };
            prop_assert_eq!(Welcome::parse(&welcome.to_bytes()), Some(welcome));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(mut bytes in any::<[u8; 32]>(), magic in any::<bool>()) {
            if magic {
                bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            }
            if let Some(hello) = Hello::parse(&bytes) {
                prop_assert!(magic && hello.version == u16_at(&bytes, 8));
            }
        }
    }
}
