//! The start: what is in the journal is written again.
//!
//! Entries go below one after the other, in their order, and are flushed; then
//! the journal is empty. Until that is synced nothing of the journal changes,
//! so a start that is cut begins again.
//!
//! A drive that refuses one of them, as one does at the end of its life, is
//! still there to be read: the journal stays as it is, what it has reads as an
//! error, as the drive has it older or not at all, and nothing is written. The
//! next start tries again.
//!
//! A part of a block, or of what the drive maps as one, is refused, too, where the
//! rest of it cannot be read. It is tried a few times, and then in halves and theirs,
//! so that only what cannot be written is held back. A later
//! entry that covers all of the block makes it good. Where there is none the
//! drive is
//! read-only, until a start can read that block: to let other writes in, the
//! journal would have to hold the part beside them for as long.
//!
//! What the drive refused when it was sent is no such thing: whoever sent it was told,
//! or nothing, so it is left out. That a request is none that the drive takes, as of
//! half a block where it has whole ones, shows by the same refusal. What is
//! not permitted may have been permitted when it was sent: that is left out only where the
//! journal says that it was refused then (`Entry::refused`).

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};

use crate::entry::Entry;
use crate::protected::Frozen;
use crate::{Journal, JournalError, NonVolatile, Protected};

/// Events at one moment after which the drive may be waiting for a disk.
const SAME_EVENTS: u32 = 64;

/// How often an entry is tried whose block cannot be read.
const TRIES: u32 = 4;

/// Pieces in which an entry is tried at most.
const PIECES: u32 = 1024;

/// What a start did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// When it was done, in drive time.
    pub ready: Time,
    /// Entries that were written again.
    pub entries: u64,
    /// Bytes of the journal that went with a crash of the host: never synced,
    /// so nothing that was flushed is among them.
    pub gone: u64,
}

impl<P, N> Protected<P, N>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
    N: NonVolatile,
{
    /// Puts the journal in `store` in front of `below`, a drive of this shape
    /// with nothing inside, and writes into it what the journal has. Begins at
    /// `now`.
    ///
    /// # Errors
    /// [`JournalError`]: the journal is damaged, of another version, too small
    /// for the drive's longest request, or cannot be read or written; the
    /// drive does not take the flush, or stops answering.
    pub fn start(
        below: P,
        shape: Shape,
        store: N,
        now: Time,
    ) -> Result<(Protected<P, N>, Started), JournalError> {
        let mut journal = Journal::open(store)?;
        let bytes = journal.fill().bytes;
        if bytes < 4 * Entry::space(shape.stored(shape.max_bytes)) {
            let range = "it must have four times the drive's longest request";
            return Err(JournalError::Size { bytes, range });
        }
        let mut again = Again { below, shape, now, event: now, same: 0 };
        let mut started = Started::default();
        let (mut frozen, gone) = again.all(&mut journal, &mut started)?;
        started.gone = gone;
        if frozen.ranges.is_empty() && started.entries > 0 {
            // Where this fails, the drive has all of it, and may not keep it.
            frozen.status = again.one(BlockOp::Flush, 0, 0, Buffer::empty())?;
        }
        let frozen = Some(frozen).filter(|frozen| !frozen.status.is_ok());
        if frozen.is_none() {
            journal.begin()?;
        }
        started.ready = again.now;
        Ok((Protected::assemble(again.below, shape, journal, again.now, frozen), started))
    }
}

/// Whether a drive that says so never takes such a request, whatever it has.
fn is_no_request(status: Status) -> bool {
    matches!(status, Status::INVALID_FIELD | Status::INVALID_OPCODE | Status::LBA_OUT_OF_RANGE)
}

/// Whether what was written to the first range, its offset and length, leaves
/// nothing of any block that the second one touches. A trim may leave the parts
/// of blocks at its ends, so whole blocks must be inside.
fn covers((first, len): (u64, u64), (offset, count): (u64, u64)) -> bool {
    let start = offset / BLOCK_BYTES * BLOCK_BYTES;
    first <= start && (offset + count).next_multiple_of(BLOCK_BYTES) <= first + len
}

/// A range of several blocks in two, at the roundest place: what a drive maps as one,
/// a power of two of blocks, is cut only where it is all that is left.
fn halves((offset, len): (u64, u64)) -> Option<[(u64, u64); 2]> {
    let end = offset + len;
    let (below, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
    let highest = (below ^ last).checked_ilog2()?;
    let cut = (last >> highest << highest) * BLOCK_BYTES;
    Some([(offset, cut - offset), (cut, end - cut)])
}

/// Writes entries again.
struct Again<P> {
    below: P,
    shape: Shape,
    now: Time,
    /// The last event, and how often it came.
    event: Time,
    same: u32,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Again<P> {
    /// All of a journal. Gives what was refused, and the bytes that are gone.
    fn all<N: NonVolatile>(
        &mut self,
        journal: &mut Journal<N>,
        started: &mut Started,
    ) -> Result<(Frozen, u64), JournalError> {
        let mut frozen = Frozen { status: Status::SUCCESS, ranges: Vec::new() };
        let (mut at, end) = journal.ends();
        let mut data = Vec::new();
        while at < end {
            let Some(entry) = journal.read(at, &mut data)? else { break };
            let offset = at;
            at += Entry::space(data.len());
            let (op, first, len) = (entry.op, entry.offset, entry.len);
            if !self.belongs(op, first, len, data.len()) {
                let (offset, what) = (offset % journal.fill().bytes, "it is of another drive");
                let offset = crate::AREA_START + offset;
                return Err(JournalError::Entry { offset, what, is_synced: true });
            }
            let refused = entry.refused;
            let taken = self.enter(op, (first, len), &data, refused, &mut frozen)?;
            started.entries += u64::from(taken);
        }
        Ok((frozen, end - at))
    }

    /// An entry, in pieces where not all of it can be written. Gives whether all was.
    fn enter(
        &mut self,
        op: BlockOp,
        whole: (u64, u64),
        data: &[u8],
        refused: bool,
        frozen: &mut Frozen,
    ) -> Result<bool, JournalError> {
        let (mut pieces, mut left, mut is_taken) = (vec![whole], PIECES, true);
        while let Some((first, len)) = pieces.pop() {
            let from = if data.is_empty() { 0 } else { self.shape.stored(first - whole.0) };
            let bytes = if data.is_empty() { 0 } else { self.shape.stored(len) };
            let status = self.tried(op, first, len, &data[from..from + bytes])?;
            if status.is_ok() {
                frozen.ranges.retain(|&range| !covers((first, len), range));
            } else if is_no_request(status) || (refused && status == Status::ACCESS_DENIED) {
                is_taken = false;
            } else if let Some(halves) = halves((first, len))
                && status == Status::UNRECOVERED_READ
                && left > 0
            {
                left -= 1;
                pieces.extend(halves);
            } else {
                is_taken = false;
                frozen.hold(status, (first, len));
            }
        }
        Ok(is_taken)
    }

    /// Whether an entry is about this drive.
    fn belongs(&self, op: BlockOp, offset: u64, len: u64, data: usize) -> bool {
        let stored = if op == BlockOp::Write { self.shape.stored(len) } else { 0 };
        let longest = if op == BlockOp::Write { self.shape.max_bytes } else { u64::MAX };
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.shape.bytes);
        inside && len > 0 && len <= longest && stored == data
    }

    /// An entry, again where a block could not be read.
    fn tried(
        &mut self,
        op: BlockOp,
        offset: u64,
        len: u64,
        data: &[u8],
    ) -> Result<Status, JournalError> {
        let mut status = Status::SUCCESS;
        for _ in 0..TRIES {
            let mut buffer = Buffer::zeroed(data.len())?;
            if !data.is_empty() {
                buffer.bytes_mut().copy_from_slice(data);
            }
            status = self.one(op, offset, len, buffer)?;
            if status != Status::UNRECOVERED_READ {
                break;
            }
        }
        Ok(status)
    }

    /// One request, alone.
    fn one(
        &mut self,
        op: BlockOp,
        offset: u64,
        len: u64,
        buffer: Buffer,
    ) -> Result<Status, JournalError> {
        let (mut cmds, mut done) = (Ring::new(1), Ring::<BlockDone>::new(1));
        cmds.put(|| BlockReq::new(0, op, offset, len, buffer));
        loop {
            if !cmds.is_empty() {
                self.below.submit(self.now, &mut cmds);
            }
            let event = self.below.next_event().ok_or(JournalError::Stopped)?;
            self.now = self.now.max(event);
            self.below.advance(self.now, &mut done);
            if let Some(done) = done.pop() {
                return Ok(done.status);
            }
            self.be_patient(event);
        }
    }

    /// Gives the processor to others when the drive waits for a disk.
    fn be_patient(&mut self, event: Time) {
        self.same = if event == self.event { self.same + 1 } else { 0 };
        self.event = event;
        if self.same >= SAME_EVENTS {
            self.same = 0;
            std::thread::yield_now();
        }
    }
}
