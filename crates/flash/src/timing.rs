//! How long flash takes.

use port::BLOCK_BYTES;

use crate::medium::TAG_BYTES;
use crate::slc::SlcCache;

/// [`Timing::read_burst`] where nothing else is said: reads are late by a
/// program once in so many, and a program is late by so many reads.
pub const READ_BURST: u32 = 64;

/// The longest that an operation may have an array at once, in ns: whoever keeps a
/// drive's time keeps as much of it, however many parallel units there are.
pub const LONGEST_OPERATION: u64 = 3_000_000_000_000;

/// Pages that a multi-plane read may take together, one on each plane. Their blocks may
/// differ in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultiPlane {
    /// None: a read waits for its own.
    #[default]
    None,
    /// Those with the same number in their blocks, as ONFI and JESD230 ask of multi-plane
    /// addresses: the plane differs, the page does not.
    SamePage,
    /// Those of the same type, which one pass of read voltages senses, on any word line,
    /// of makers whose planes have row decoders of their own.
    SameType,
}

impl MultiPlane {
    /// Each, with its name in files.
    pub(crate) const NAMES: [(MultiPlane, &'static str); 3] = [
        (MultiPlane::None, "none"),
        (MultiPlane::SamePage, "page"),
        (MultiPlane::SameType, "type"),
    ];
}

/// Timings of a drive, in nanoseconds unless said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// tR: array to page register, for each page type. Wide page `p` of a chunk
    /// has type `p % read.len()`. At least one.
    pub read: Vec<u64>,
    /// The same of a read that asks for no more than a quarter of a page, aligned, where
    /// chips have a command for that (snap read); else empty.
    pub read_partial: Vec<u64>,
    /// tPROG: page register to array, for each row type: row `r` of a chunk has
    /// type `r % program.len()`. At least one.
    pub program: Vec<u64>,
    /// What the first program of a chunk takes beside tPROG: of a drive that leaves the
    /// erase of a block until it writes to it.
    pub opening: u64,
    /// tBERS: erase.
    pub erase: u64,
    /// Command and address cycles on the channel, before every operation.
    pub command: u64,
    /// Bytes a second on one channel; 0 for no transfer time.
    pub channel_rate: u64,
    /// Channels that carry one parallel unit's transfer together: 2 for a
    /// super-channel with split transfers, else 1.
    pub channel_split: u32,
    /// Whether out-of-band bytes take channel time.
    pub tags_on_channel: bool,
    /// Reads go before programs and erases that wait.
    pub reads_first: bool,
    /// Reads that go before a program or erase that waits, or interrupt it,
    /// before it is its turn: at its die, and for each transfer on its channel.
    /// 0 is as 1, so that reads have their turn, too.
    /// `u32::MAX` is no limit: a stream of reads can then keep it waiting for
    /// ever.
    pub read_burst: u32,
    /// A read interrupts a program or erase in the array.
    pub suspend: bool,
    /// From the suspend command until the array is free.
    pub suspend_time: u64,
    /// From the resume command until the operation goes on.
    pub resume_time: u64,
    /// Suspensions of one operation; then it runs to its end.
    pub suspend_limit: u32,
    /// A read's transfer interrupts a write's transfer on the channel.
    pub suspend_transfer: bool,
    /// Each page register of a die has a cache register beside it: data move while
    /// the array works at the next read or program.
    pub cache_registers: bool,
    /// Each plane of a die reads single pages by itself.
    pub plane_reads: bool,
    /// Reads that wait at a die for the same page are served by one array read.
    pub shared_reads: bool,
    /// Which reads that wait for different planes of a die are one multi-plane read. For
    /// dies of several planes that do not read by themselves.
    pub multi_plane_reads: MultiPlane,
    /// Copies of a row inside its die, from page register to array, that may follow each
    /// other before its data go through the controller and are corrected; 0 for none.
    pub copyback: u32,
    /// Bits of a cell: pages of a word line. 0 for as many as there are page types.
    pub bits_a_cell: u32,
    /// mw_cunits: programmed blocks at the end of an open chunk that cannot
    /// be read yet.
    pub unreadable: u32,
    /// maxoc: chunks that may be open at a time; `u32::MAX` for no limit.
    pub open_chunks: u32,
    /// maxocpu: the same of each parallel unit.
    pub open_chunks_pu: u32,
    /// Erases that a chunk stands.
    pub endurance: u32,
    /// The flash that takes programs first, with one bit a cell.
    pub slc: SlcCache,
}

impl Default for Timing {
    /// No time at all, and no wear.
    fn default() -> Timing {
        Timing {
            read: vec![0],
            read_partial: Vec::new(),
            program: vec![0],
            opening: 0,
            erase: 0,
            command: 0,
            channel_rate: 0,
            channel_split: 1,
            tags_on_channel: false,
            reads_first: true,
            read_burst: READ_BURST,
            suspend: false,
            suspend_time: 0,
            resume_time: 0,
            suspend_limit: u32::MAX,
            suspend_transfer: false,
            cache_registers: false,
            plane_reads: false,
            shared_reads: false,
            multi_plane_reads: MultiPlane::None,
            copyback: 0,
            bits_a_cell: 0,
            unreadable: 0,
            open_chunks: u32::MAX,
            open_chunks_pu: u32::MAX,
            endurance: u32::MAX,
            slc: SlcCache::default(),
        }
    }
}

impl Timing {
    /// Channel time of `blocks` logical blocks, rounded up.
    pub fn transfer(&self, blocks: u32) -> u64 {
        if self.channel_rate == 0 {
            return 0;
        }
        let tag = if self.tags_on_channel { TAG_BYTES as u64 } else { 0 };
        let bytes = u128::from(blocks) * u128::from(BLOCK_BYTES + tag);
        let rate = u128::from(self.channel_rate) * u128::from(self.channel_split);
        (bytes * 1_000_000_000).div_ceil(rate) as u64
    }

    /// Channel time of the out-of-band tags of `blocks` logical blocks alone,
    /// rounded up.
    pub fn transfer_tags(&self, blocks: u32) -> u64 {
        if self.channel_rate == 0 {
            return 0;
        }
        let bytes = u128::from(blocks) * TAG_BYTES as u128;
        let rate = u128::from(self.channel_rate) * u128::from(self.channel_split);
        (bytes * 1_000_000_000).div_ceil(rate) as u64
    }

    /// Whether no operation takes any time, and there is no SLC cache to keep.
    pub fn is_instant(&self) -> bool {
        let reads = self.read.iter().chain(&self.read_partial);
        let others = [&self.opening, &self.erase, &self.command];
        let operations = reads.chain(&self.program).chain(others);
        let slow = self.slc.is_on() || self.channel_rate != 0;
        !slow && operations.into_iter().all(|&time| time == 0)
    }

    /// Whether chunks that are open at a time are limited.
    pub fn limits_open(&self) -> bool {
        self.open_chunks.min(self.open_chunks_pu) < u32::MAX
    }

    /// tR of a wide page.
    #[inline]
    pub fn read_of(&self, wide_page: u32) -> u64 {
        of_type(&self.read, wide_page)
    }

    /// tR of a read that asks for no more than a quarter of a page in a wide page.
    pub fn read_partial_of(&self, wide_page: u32) -> u64 {
        let own = !self.read_partial.is_empty();
        of_type(if own { &self.read_partial } else { &self.read }, wide_page)
    }

    /// Bits of a cell, where a program takes so many pages at once: as many as
    /// there are page types, if nothing else is said.
    pub fn cell_bits(&self, pages_at_once: u32) -> u32 {
        if self.bits_a_cell > 0 {
            return self.bits_a_cell;
        }
        (self.read.len().max(self.program.len()) as u32).max(pages_at_once)
    }

    /// The longest that an operation has an array at once: a read with so many
    /// repetitions, a program of a row or an erase, and what goes on after a read.
    pub(crate) fn longest(&self, retries: u32, pages_at_once: u32) -> u64 {
        let most = |times: &[u64]| times.iter().copied().max().unwrap_or(0);
        let (reads, pages) = (u64::from(retries) + 1, u64::from(pages_at_once));
        let sensing = most(&self.read).max(most(&self.read_partial)).max(self.slc.read);
        let read = reads * (self.command + sensing);
        let program = most(&self.program) + self.opening + pages * self.slc.read;
        let copied = if self.copyback > 0 { pages * sensing } else { 0 };
        let works = (program + copied).max(pages * self.slc.program).max(self.erase);
        read.max(works + self.resume_time)
    }

    /// What the program of a row or of a part of one takes: tPROG, and the opening where
    /// it is the first of its chunk.
    #[inline]
    pub fn program_of(&self, row: u32, is_first: bool) -> u64 {
        of_type(&self.program, row) + if is_first { self.opening } else { 0 }
    }
}

#[inline]
fn of_type(times: &[u64], number: u32) -> u64 {
    // A division by a number that is known when this is compiled is a product.
    let kind = match times.len() {
        1 => 0,
        2 => number % 2,
        3 => number % 3,
        4 => number % 4,
        types => number % types as u32,
    };
    times[kind as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlcSize;

    #[test]
    fn transfers_round_up() {
        let t = Timing { channel_rate: 333_000_000, ..Timing::default() };
        assert_eq!(t.transfer(1), 12_301);
        assert_eq!(t.transfer(2), 24_601);
        let split = Timing { channel_split: 2, ..t.clone() };
        assert_eq!(split.transfer(1), 6_151);
        let tags = Timing { tags_on_channel: true, ..t };
        assert_eq!(tags.transfer(1), 12_349);
        assert_eq!(tags.transfer_tags(8), 385);
        assert_eq!(Timing::default().transfer(64), 0);
    }

    #[test]
    fn the_longest_operation_has_all_its_parts() {
        let slc = SlcCache { read: 7, program: 600, ..SlcCache::default() };
        let t =
            Timing { read: vec![10, 30], read_partial: vec![20], command: 1, ..Timing::default() };
        assert_eq!([0, 9].map(|retries| t.longest(retries, 1)), [31, 310]);
        let t = Timing { program: vec![100, 500], opening: 50, resume_time: 3, ..t };
        assert_eq!(t.longest(0, 1), 553);
        let t = Timing { slc, ..t };
        assert_eq!([1, 3].map(|pages| t.longest(0, pages)), [603, 1803]);
        assert_eq!(Timing { erase: 5000, ..t }.longest(0, 3), 5003);
    }

    #[test]
    fn instant_is_no_time_at_all() {
        assert!(Timing::default().is_instant());
        let slow = [
            Timing { read: vec![0, 1], ..Timing::default() },
            Timing { read_partial: vec![1], ..Timing::default() },
            Timing { program: vec![1], ..Timing::default() },
            Timing { opening: 1, ..Timing::default() },
            Timing { erase: 1, ..Timing::default() },
            Timing { command: 1, ..Timing::default() },
            Timing { channel_rate: 1 << 40, ..Timing::default() },
            Timing {
                slc: SlcCache { size: SlcSize::Bytes(1), ..SlcCache::default() },
                ..Timing::default()
            },
        ];
        assert!(slow.iter().all(|timing| !timing.is_instant()));
    }

    #[test]
    fn cells_have_as_many_bits_as_page_types_or_as_is_said() {
        let t = Timing { read: vec![10; 12], ..Timing::default() };
        assert_eq!([1, 4].map(|pages| Timing::default().cell_bits(pages)), [1, 4]);
        assert_eq!(t.cell_bits(2), 12);
        assert_eq!(Timing { bits_a_cell: 2, ..t }.cell_bits(2), 2);
    }

    #[test]
    fn page_types_take_turns() {
        let t = Timing { read: vec![10, 20, 30], ..Timing::default() };
        assert_eq!([0, 1, 2, 3].map(|row| t.read_of(row)), [10, 20, 30, 10]);
        for types in 1..8u64 {
            let t = Timing { read: (0..types).collect(), ..Timing::default() };
            (0..100).for_each(|row| assert_eq!(t.read_of(row), u64::from(row) % types));
        }
    }

    #[test]
    fn the_first_program_opens_the_chunk() {
        let t = Timing { program: vec![5, 7], opening: 100, ..Timing::default() };
        assert_eq!([0, 0, 1, 2].map(|row| t.program_of(row, false)), [5, 5, 7, 5]);
        assert_eq!(t.program_of(0, true), 105);
    }
}
