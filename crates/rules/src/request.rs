//! What a rule set is asked about: a request, and how the drive is at that moment.

use port::{BLOCK_BYTES, BlockOp};

use crate::bounds::Bounds;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Read blocks.
    Read,
    /// Write blocks.
    Write,
    /// Give blocks up.
    Trim,
    /// Make blocks read as zeros.
    Zero,
    /// Make all that completed durable. No address.
    Flush,
    /// Nobody asks: the drive has nothing to do. No address.
    Idle,
}

impl Op {
    /// All, by number.
    pub const ALL: [Op; 6] = [Op::Read, Op::Write, Op::Trim, Op::Zero, Op::Flush, Op::Idle];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Zero => "zero",
            Op::Flush => "flush",
            Op::Idle => "idle",
        }
    }

    /// The one of a word.
    pub fn of(word: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.word() == word)
    }

    /// Whether it names blocks.
    #[inline]
    pub fn has_address(self) -> bool {
        self <= Op::Zero
    }
}

impl From<BlockOp> for Op {
    fn from(op: BlockOp) -> Op {
        match op {
            BlockOp::Read => Op::Read,
            BlockOp::Write => Op::Write,
            BlockOp::Trim => Op::Trim,
            BlockOp::WriteZeroes => Op::Zero,
            BlockOp::Flush => Op::Flush,
        }
    }
}

/// A request, as conditions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub op: Op,
    /// Whose it is.
    pub application: u16,
    /// The channel (queue pair) by which it came.
    pub channel: u16,
    /// Its first logical block; 0 where it has no address.
    pub lba: u64,
    /// Its bytes; 0 where it has no address.
    pub size: u64,
    /// The hint of a write, [`port::BlockReq::placement`].
    pub placement: u8,
}

impl Request {
    /// The logical blocks that it touches, of which a byte is in the request:
    /// the first, and the one behind the last. `None` past 2^64.
    #[inline]
    pub fn blocks(&self) -> Option<(u64, u64)> {
        Some((self.lba, self.lba.checked_add(self.size.div_ceil(BLOCK_BYTES))?))
    }
}

/// How the drive is when a request comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Drive time, ns.
    pub now: u64,
    /// For how long nobody has asked anything, ns.
    pub idle: u64,
    /// The drive's temperature in whole degrees Celsius; 0 below.
    pub temperature: u8,
    /// Free chunks of those that hold data, in percent.
    pub free: u8,
}

/// The longest time that conditions see, ns: 2^62.
pub const LONGEST: u64 = 1 << 62;

/// What conditions ask of a request and of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Field {
    /// [`Request::op`].
    Op,
    /// [`Request::application`].
    Application,
    /// [`Request::channel`].
    Channel,
    /// [`Request::lba`].
    Lba,
    /// [`Request::size`].
    Size,
    /// [`Request::placement`].
    Placement,
    /// [`View::temperature`].
    Temperature,
    /// [`View::idle`].
    Idle,
    /// [`View::free`].
    Free,
}

/// How many fields there are.
pub const FIELDS: usize = 9;

impl Field {
    /// All, by number.
    pub const ALL: [Field; FIELDS] = [
        Field::Op,
        Field::Application,
        Field::Channel,
        Field::Lba,
        Field::Size,
        Field::Placement,
        Field::Temperature,
        Field::Idle,
        Field::Free,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Field::Op => "op",
            Field::Application => "application",
            Field::Channel => "channel",
            Field::Lba => "lba",
            Field::Size => "size",
            Field::Placement => "placement",
            Field::Temperature => "temperature",
            Field::Idle => "idle_time",
            Field::Free => "free",
        }
    }

    /// The one of a word.
    pub fn of(word: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.word() == word)
    }

    /// All that it can be.
    pub fn bounds(self) -> Bounds {
        let hi = match self {
            Field::Op => Op::Idle as u64,
            Field::Application | Field::Channel => u16::MAX.into(),
            Field::Lba => MOST_BLOCKS - 1,
            Field::Size => MOST_BLOCKS * BLOCK_BYTES,
            Field::Placement | Field::Temperature | Field::Free => u8::MAX.into(),
            Field::Idle => LONGEST,
        };
        Bounds { lo: 0, hi }
    }
}

/// The most logical blocks of a drive: 2^48.
pub const MOST_BLOCKS: u64 = 1 << 48;

/// The fields of a request, by number.
#[inline]
pub fn fields(request: &Request, view: &View) -> [u64; FIELDS] {
    [
        request.op as u64,
        request.application.into(),
        request.channel.into(),
        request.lba,
        request.size,
        request.placement.into(),
        view.temperature.into(),
        view.idle.min(LONGEST),
        view.free.into(),
    ]
}
