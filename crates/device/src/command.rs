//! The vector command: what an open-channel drive is asked.
//!
//! After Open-Channel SSD 2.0, "Vector I/O": read, write, reset and copy of up
//! to 96 addresses (there 64: a row has more where six planes take three pages
//! at once); the completion carries a bitmap of the addresses that
//! failed. A run of neighbours in one chunk needs no list.

use flash::{BlockBits, Chunk, Geometry, MAX_ROW_BLOCKS, Ppa, TAG_BYTES, Timing};
use port::{BLOCK_BYTES, Buffer, Port, Status, Time, Whose};

use crate::notices::Notice;

/// Most addresses of one command: those of the largest row.
pub const MAX_ADDRESSES: usize = MAX_ROW_BLOCKS as usize;

/// What a vector command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorOp {
    /// Read blocks (0x92).
    Read,
    /// Write blocks at their chunks' write pointers (0x91).
    Write,
    /// Erase chunks, each given by its first block (0x90). One that is free, or of
    /// which a write or reset is on its way, is refused with `INVALID_RESET`, and
    /// then none of the command's is erased.
    Reset,
    /// Take chunks out of use for good, each given by its first block: their
    /// data go with an erase, and they are offline then, if the erase fails,
    /// too. While a write or reset of one is on its way it is refused with
    /// `INVALID_RESET`. In place of the bad block table of Open-Channel SSD
    /// 1.2; 2.0 has none, so it is a vendor's command here (0x94).
    Retire,
    /// Copy blocks inside the drive (0x93): `from` to `to` of the list. Blocks
    /// written as [`Content::Whole`] are not to be copied. Where the flash has
    /// [`Timing::copyback`], a row that goes to another row of its unit never leaves
    /// its die: see `device/copyback.rs`.
    Copy,
    /// Make all writes and resets that completed before durable. No address.
    Flush,
}

impl VectorOp {
    /// Whether it names chunks and erases them.
    #[inline]
    pub fn erases(self) -> bool {
        matches!(self, VectorOp::Reset | VectorOp::Retire)
    }
}

/// What the buffer of a read or write has of each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// The bytes that the medium keeps of it.
    #[default]
    Data,
    /// Those, and behind them all out-of-band tags.
    Tagged,
    /// Only the tag, and only to be read: the data stays in the page register.
    Tags,
    /// All 4096 bytes, and behind them the tags: a target's own records, which
    /// every medium keeps whole. A read finds what was written so.
    Whole,
}

impl Content {
    /// Bytes of data and of tags that a block has in the buffer, on a medium
    /// that keeps `kept` of it.
    #[inline]
    pub fn each(self, kept: u32) -> (usize, usize) {
        let data = match self {
            Content::Data | Content::Tagged => kept as usize,
            Content::Tags => 0,
            Content::Whole => BLOCK_BYTES as usize,
        };
        (data, if self == Content::Data { 0 } else { TAG_BYTES })
    }
}

/// Addresses that are not one run. Boxed and recycled by its owner, as
/// buffers are: it comes back in the completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The addresses; of a copy, its sources.
    pub from: [Ppa; MAX_ADDRESSES],
    /// Where a copy goes. Unused otherwise.
    pub to: [Ppa; MAX_ADDRESSES],
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses { from: [Ppa(0); MAX_ADDRESSES], to: [Ppa(0); MAX_ADDRESSES] }
    }
}

/// A command to an open-channel drive.
#[derive(Debug)]
pub struct VectorCmd {
    /// The caller's own number; comes back in the completion.
    pub cookie: u64,
    /// What to do.
    pub op: VectorOp,
    /// What the buffer has of each block.
    pub content: Content,
    /// Whose it is, for the stories of those that wait behind it.
    pub whose: Whose,
    /// How many addresses: 1 to [`MAX_ADDRESSES`]. A reset or
    /// retirement without a list has one; of a flush it is not looked at.
    pub count: u8,
    /// The first of `count` neighbours in one chunk, where there is no list.
    pub ppa: Ppa,
    /// The addresses, where they are not one run. A copy always has one.
    pub list: Option<Box<Addresses>>,
    /// Data of a read or write, then tags, as `content` says. Empty for the
    /// others.
    pub buffer: Buffer,
}

impl VectorCmd {
    /// A command on so many neighbours, from the first on, for a user.
    #[inline]
    pub fn new(
        cookie: u64,
        op: VectorOp,
        content: Content,
        (ppa, count): (Ppa, u8),
        buffer: Buffer,
    ) -> VectorCmd {
        let whose = Whose::default();
        VectorCmd { cookie, op, content, whose, count, ppa, list: None, buffer }
    }

    /// Bytes that its buffer must have, on a medium that keeps `kept` a block.
    #[inline]
    pub fn buffer_bytes(&self, kept: u32) -> usize {
        match self.op {
            VectorOp::Read | VectorOp::Write => {
                let (data, tag) = self.content.each(kept);
                self.count as usize * (data + tag)
            }
            VectorOp::Reset | VectorOp::Retire | VectorOp::Copy | VectorOp::Flush => 0,
        }
    }

    /// Whether it is one access of the array of a unit: its addresses are neighbours
    /// in one wide page, if it reads, or in one row.
    #[inline]
    pub(crate) fn is_one_access(&self, geometry: &Geometry) -> bool {
        if self.count == 1 || self.list.is_some() {
            return self.list.is_none();
        }
        if self.op != VectorOp::Read {
            return self.is_in_row(geometry);
        }
        geometry.in_wide_page(self.ppa) + u32::from(self.count) <= geometry.wide_page_blocks()
    }

    /// Whether its addresses are neighbours in one row.
    #[inline]
    pub fn is_in_row(&self, geometry: &Geometry) -> bool {
        let end = geometry.in_row(self.ppa) + u32::from(self.count);
        self.list.is_none() && end <= geometry.row_blocks()
    }
}

/// A completed vector command.
#[derive(Debug)]
pub struct VectorDone {
    /// The command's number.
    pub cookie: u64,
    /// How it ended: the first failure, if any.
    pub status: Status,
    /// Bit `i` is set when address `i` failed.
    pub failed: BlockBits,
    /// When the drive completed it.
    pub at: Time,
    /// The command's list.
    pub list: Option<Box<Addresses>>,
    /// The command's buffer.
    pub buffer: Buffer,
}

port::numbered!(cookie: VectorCmd; done VectorDone);

/// An open-channel drive as a target sees it: the port, and what the admin
/// commands say.
pub trait OpenChannel: Port<Cmd = VectorCmd, Done = VectorDone> {
    /// The geometry (0xE2).
    fn geometry(&self) -> &Geometry;
    /// The media timings (0xE2).
    fn timing(&self) -> &Timing;
    /// Bytes that the medium keeps of each block.
    fn kept(&self) -> u32;
    /// One chunk (log page 0xCA), by [`Geometry::chunk_index`].
    fn chunk(&self, chunk_index: usize) -> Chunk;
    /// Which of `count` neighbours in a chunk, at most [`MAX_ROW_BLOCKS`], have nothing though
    /// they are below its write pointer: bit `i` stands for block `i`. Their programs failed, or,
    /// where blocks may be missing between others, they are (under parity; they read as zeros).
    /// It tells of all, and of no other; a descriptor has room for few.
    fn failed_of(&self, ppa: Ppa, count: u32) -> BlockBits {
        let geometry = self.geometry();
        self.chunk(geometry.chunk_index(ppa)).failed_of(geometry.block(ppa), count)
    }
    /// How many commands may be inside at once.
    fn depth(&self) -> usize;
    /// Whether what is written is durable only after a [`VectorOp::Flush`].
    fn is_cached(&self) -> bool;
    /// Rows of one parallel unit that can be programmed at the same time: more
    /// than one where a unit stands for several.
    fn rows_at_once(&self) -> u32 {
        1
    }
    /// Copies of a row inside its unit that may follow each other before its data are to be
    /// read and written again; 0 where rows are not copied inside units.
    fn copies_inside(&self) -> u32 {
        0
    }

    /// Whether events may come of which no command knows.
    fn has_work_of_its_own(&self) -> bool {
        true
    }
    /// Takes the oldest notice that the drive has (log page 0xD0), if any.
    fn take_notice(&mut self) -> Option<Notice> {
        None
    }
    /// How long a command took, and what of that it waited for dies that were busy with what
    /// is of these; of one that has a [story](Port::story), which is more to make.
    fn waited_behind(&self, number: u64, whose: [Whose; 2]) -> Option<(u64, [u64; 2])> {
        let story = self.story(number)?;
        Some((story.ns(), whose.map(|whose| story.waited_behind(whose))))
    }
    /// Says that a block will probably be read soon, so that what is known of
    /// it can be fetched into the cache. Changes nothing that can be observed.
    #[inline]
    fn hint_block(&self, _ppa: Ppa) {}
}

/// What an `impl` of [`OpenChannel`] says of a port that is as the drive below it, of which
/// no more commands may be inside than `most`. It may have work of its own.
///
/// ```
/// struct Over<D> {
///     below: D,
/// }
/// # impl<D: device::OpenChannel> port::Port for Over<D> {
/// #     type Cmd = device::VectorCmd;
/// #     type Done = device::VectorDone;
/// #     fn submit(&mut self, now: port::Time, cmds: &mut port::Ring<device::VectorCmd>) {
/// #         self.below.submit(now, cmds);
/// #     }
/// #     fn next_event(&self) -> Option<port::Time> {
/// #         self.below.next_event()
/// #     }
/// #     fn advance(&mut self, to: port::Time, done: &mut port::Ring<device::VectorDone>) {
/// #         self.below.advance(to, done);
/// #     }
/// # }
/// impl<D: device::OpenChannel> device::OpenChannel for Over<D> {
///     device::as_below!(this => this.below, most 64);
/// }
/// ```
#[macro_export]
macro_rules! as_below {
    ($this:ident => $below:expr $(, most $most:expr)?) => {
        fn geometry(&self) -> &flash::Geometry {
            let $this = self;
            ($below).geometry()
        }

        fn timing(&self) -> &flash::Timing {
            let $this = self;
            ($below).timing()
        }

        fn kept(&self) -> u32 {
            let $this = self;
            ($below).kept()
        }

        fn chunk(&self, chunk_index: usize) -> flash::Chunk {
            let $this = self;
            ($below).chunk(chunk_index)
        }

        fn failed_of(&self, ppa: flash::Ppa, count: u32) -> flash::BlockBits {
            let $this = self;
            ($below).failed_of(ppa, count)
        }

        fn depth(&self) -> usize {
            let $this = self;
            ($below).depth()$(.min($most))?
        }

        fn is_cached(&self) -> bool {
            let $this = self;
            ($below).is_cached()
        }

        fn rows_at_once(&self) -> u32 {
            let $this = self;
            ($below).rows_at_once()
        }

        fn copies_inside(&self) -> u32 {
            let $this = self;
            ($below).copies_inside()
        }

        fn take_notice(&mut self) -> Option<$crate::Notice> {
            let $this = self;
            ($below).take_notice()
        }

        fn hint_block(&self, ppa: flash::Ppa) {
            let $this = self;
            ($below).hint_block(ppa);
        }
    };
}

impl<P: OpenChannel + ?Sized> OpenChannel for Box<P> {
    crate::as_below!(this => **this);

    fn has_work_of_its_own(&self) -> bool {
        (**self).has_work_of_its_own()
    }
}
