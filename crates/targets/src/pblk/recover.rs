//! Start-up: the map from the tags in flash.
//!
//! Every programmed block carries the address and the sequence number of what
//! it holds. A scan of all tags therefore gives the map back: of each address
//! the copy with the highest number is the newest. Nothing else is needed, so
//! that a cut at any moment, also during recovery, leaves a drive that
//! recovers.
//!
//! Guarantees: every block that a completed flush or FUA covered is there;
//! any other is as one of its writes left it; collection finds room to go on
//! however full the drive was at the cut. A trim is not recorded in flash: a
//! block that was trimmed, and not written since, may come back with any
//! content it once had.
//!
//! Fails, and leaves the data in flash as it was, when a tag cannot be read,
//! when a row cannot be padded, or when the drive stops answering.
//!
//! What it writes: chunks without a valid block are erased. Each parallel
//! unit goes on with up to two partly written chunks, one for the user and one
//! for collection; a drive that this target wrote has no more. Others are
//! padded to their end.

use device::{Content, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{Chunk, ChunkState, Geometry, Ppa, TAG_BYTES, Tag};
use port::{Buffer, Lazy, OutOfMemory, Pieces, Ring, Status, Time};

use super::map::{Map, Place};
use super::space::OpenChunk;
use super::units::PAD;
use super::{Pblk, PblkConfig, PblkError};

/// Commands under way for each parallel unit: one at work, one behind it.
const COMMANDS_PER_PU: usize = 2;

/// The highest sequence number that is believed; a drive never comes to it.
const LAST_SEQ: u64 = 1 << 62;

/// A command to do: neighbours in one row, or a chunk's first block.
#[derive(Clone, Copy)]
struct Job {
    op: VectorOp,
    ppa: Ppa,
    count: u32,
}

/// A command's place while it is under way.
struct Lane {
    job: Job,
    buffer: Pieces,
}

/// The drive, and room for the commands under way.
struct Runner<'a, D> {
    device: &'a mut D,
    lanes: Vec<Lane>,
    out: Ring<VectorCmd>,
    done: Ring<VectorDone>,
    kept: usize,
    now: Time,
}

impl<'a, D: OpenChannel> Runner<'a, D> {
    fn new(device: &'a mut D, now: Time) -> Result<Runner<'a, D>, OutOfMemory> {
        let geometry = *device.geometry();
        let kept = device.kept() as usize;
        let count = (geometry.total_pus() as usize * COMMANDS_PER_PU).min(device.depth());
        let row = (geometry.row_blocks() as usize).min(device::MAX_ADDRESSES);
        let job = Job { op: VectorOp::Read, ppa: Ppa(0), count: 0 };
        let lane = |buffer| Lane { job, buffer: Pieces::new(buffer) };
        let buffers = Buffer::carve(count, row * (kept + TAG_BYTES))?;
        let lanes = buffers.into_iter().map(lane).collect();
        Ok(Runner { device, lanes, out: Ring::new(count), done: Ring::new(count), kept, now })
    }

    /// Does all jobs, as many at once as there are lanes. `done` is given
    /// each job, how it ended, and the bytes of its tags.
    fn run(
        &mut self,
        mut jobs: impl Iterator<Item = Job>,
        pad_seq: u64,
        mut done: impl FnMut(Job, Status, &[u8]) -> Result<(), PblkError>,
    ) -> Result<(), PblkError> {
        let mut free: Vec<usize> = (0..self.lanes.len()).collect();
        loop {
            while let Some(&lane) = free.last() {
                let Some(job) = jobs.next() else { break };
                free.pop();
                self.push(lane, job, pad_seq);
            }
            if free.len() == self.lanes.len() {
                return Ok(());
            }
            self.device.submit(self.now, &mut self.out);
            let at = self.device.next_event().ok_or(PblkError::Recovery(Status::ABORTED))?;
            self.now = self.now.max(at);
            self.device.advance(self.now, &mut self.done);
            while let Some(completion) = self.done.pop() {
                let number = completion.cookie as usize;
                let lane = &mut self.lanes[number];
                let tags = completion.buffer.bytes().get(lane.job.count as usize * self.kept..);
                done(lane.job, completion.status, tags.unwrap_or_default())?;
                lane.buffer.give(completion.buffer);
                lane.buffer = Pieces::new(std::mem::take(&mut lane.buffer).whole());
                free.push(number);
            }
        }
    }

    fn push(&mut self, number: usize, job: Job, pad_seq: u64) {
        let lane = &mut self.lanes[number];
        lane.job = job;
        let (blocks, content) = match job.op {
            VectorOp::Read | VectorOp::Write => (job.count as usize, Content::Tagged),
            VectorOp::Reset | VectorOp::Copy | VectorOp::Flush => (0, Content::Data),
        };
        let mut buffer = lane.buffer.take(blocks * (self.kept + TAG_BYTES));
        if job.op == VectorOp::Write {
            let (data, tags) = buffer.bytes_mut().split_at_mut(blocks * self.kept);
            data.fill(0);
            let pad = Tag { id: PAD, seq: pad_seq };
            tags.chunks_exact_mut(TAG_BYTES).for_each(|tag| pad.store(tag));
        }
        let Job { op, ppa, count } = job;
        let (cookie, count) = (number as u64, count as u8);
        let cmd = VectorCmd { cookie, op, content, count, ppa, list: None, buffer };
        self.out.push(cmd).expect("there is a place for each lane");
    }
}

/// All rows of a drive up to what each chunk has programmed, a row on each
/// parallel unit in turn, so that all of them work.
fn programmed_rows<'a>(
    geometry: &'a Geometry,
    chunks: &'a [Chunk],
) -> impl Iterator<Item = Job> + 'a {
    let row = geometry.row_blocks();
    let rows = geometry.chunk_blocks() / row;
    (0..geometry.chunks())
        .flat_map(move |number| (0..rows).map(move |r| (number, r * row)))
        .flat_map(move |(number, block)| {
            geometry.pus_channels_first().map(move |pu| (geometry.chunk_of(pu, number), block))
        })
        .flat_map(move |(chunk, block)| {
            pieces(
                geometry,
                VectorOp::Read,
                chunk,
                block,
                chunks[chunk].programmed.min(block + row),
            )
        })
}

/// The blocks `from` to `to` of a chunk, in commands that stay in one row.
fn pieces(
    geometry: &Geometry,
    op: VectorOp,
    chunk: usize,
    from: u32,
    to: u32,
) -> impl Iterator<Item = Job> + use<> {
    let start = geometry.chunk_start(chunk).0;
    let row = geometry.row_blocks();
    let mut block = from;
    std::iter::from_fn(move || {
        if block >= to {
            return None;
        }
        let row_left = row - block % row;
        let count = row_left.min(to - block).min(device::MAX_ADDRESSES as u32);
        let ppa = Ppa(start + u64::from(block));
        block += count;
        Some(Job { op, ppa, count })
    })
}

/// What the tags say.
struct Scan {
    geometry: Geometry,
    /// By chunk: the descriptor; of an offline one, nothing is programmed.
    chunks: Vec<Chunk>,
    /// By chunk: the highest sequence number in it.
    newest: Vec<u64>,
    /// By logical block: the sequence number of the copy in the map; 0 none.
    seqs: Lazy<u64>,
    /// The highest sequence number of all.
    highest: u64,
}

impl Scan {
    fn new<D: OpenChannel>(device: &D, blocks: u64) -> Result<Scan, OutOfMemory> {
        let geometry = *device.geometry();
        let slots = geometry.chunk_slots();
        let mut chunks = vec![Chunk::default(); slots];
        for index in all_chunks(&geometry) {
            chunks[index] = device.chunk(index);
            if chunks[index].state == ChunkState::Offline {
                chunks[index].programmed = 0;
            }
        }
        let seqs = Lazy::zeroed(blocks as usize, "recovery's sequence numbers")?;
        Ok(Scan { geometry, chunks, newest: vec![0; slots], seqs, highest: 0 })
    }

    /// Takes note of one tag. Equal numbers are copies of the same bytes, one
    /// of which collection made: then the one in a partly written chunk is
    /// taken, so that what collection had done stays done and its victim is
    /// all but empty. Collection may have no more room than it needs for what
    /// it had not done yet.
    fn see(&mut self, map: &mut Map, at: Ppa, tag: Tag) {
        // Others are not this target's.
        if !(1..=LAST_SEQ).contains(&tag.seq) {
            return;
        }
        let chunk = self.geometry.chunk_index(at);
        self.highest = self.highest.max(tag.seq);
        self.newest[chunk] = self.newest[chunk].max(tag.seq);
        if tag.id >= map.blocks() {
            return;
        }
        let seq = &mut self.seqs[tag.id as usize];
        let is_open = self.chunks[chunk].programmed < self.geometry.chunk_blocks();
        if tag.seq > *seq || (tag.seq == *seq && is_open) {
            *seq = tag.seq;
            map.set(tag.id, Place::flash(at));
        }
    }
}

/// All chunks of a drive, unit by unit.
fn all_chunks(geometry: &Geometry) -> impl Iterator<Item = usize> + use<> {
    let geometry = *geometry;
    let of_pu = move |pu| (0..geometry.chunks()).map(move |n| geometry.chunk_of(pu, n));
    geometry.pus_channels_first().flat_map(of_pu)
}

/// What becomes of the chunks with something in them.
#[derive(Default)]
struct Plan {
    /// Chunks without a valid block.
    erase: Vec<usize>,
    /// Chunks that are full, or will be when padded.
    full: Vec<usize>,
    /// A chunk and its blocks, from and to, that are padded.
    pad: Vec<(usize, u32, u32)>,
    /// Unit, and the chunk with which it goes on.
    collect: Vec<(usize, OpenChunk)>,
    user: Vec<(usize, OpenChunk)>,
}

impl<D: OpenChannel> Pblk<D> {
    /// A target on a drive that this target wrote, after a power cut or a
    /// clean end. Gives it and the time at which it is ready: recovery drives
    /// the device itself, from `now` on. It takes 8 bytes of memory for each
    /// logical block while it runs. Counters begin at zero; what recovery pads
    /// and erases is counted.
    ///
    /// `config` is the one that the drive was made with; blocks beyond a
    /// smaller capacity are forgotten.
    ///
    /// # Errors
    /// As [`Pblk::new`], and [`PblkError::Recovery`] with the drive's status
    /// when a programmed block cannot be read, a row not padded or a chunk not
    /// erased; with [`Status::ABORTED`] when the drive stops answering. A
    /// chunk that goes offline when erased is left out.
    pub fn recover(device: D, config: PblkConfig, now: Time) -> Result<(Pblk<D>, Time), PblkError> {
        let mut pblk = Pblk::empty(device, config)?;
        let (scan, now) = pblk.scan(now)?;
        for lba in 0..pblk.map.blocks() {
            if let Some(ppa) = pblk.map.get(lba).ppa() {
                pblk.space.set_valid(ppa);
            }
        }
        pblk.units.continue_after(scan.highest);
        let plan = pblk.plan(&scan);
        let now = pblk.carry_out(&plan, &scan, now)?;
        pblk.go_on(&plan, now);
        Ok((pblk, now))
    }

    /// Reads all tags and makes the map.
    fn scan(&mut self, now: Time) -> Result<(Scan, Time), PblkError> {
        let mut scan = Scan::new(&self.device, self.map.blocks())?;
        let chunks = scan.chunks.clone();
        let mut runner = Runner::new(&mut self.device, now)?;
        runner.run(programmed_rows(&self.geometry, &chunks), 0, |job, status, tags| {
            if !status.is_ok() {
                return Err(PblkError::Recovery(status));
            }
            for (i, tag) in tags.chunks_exact(TAG_BYTES).enumerate() {
                scan.see(&mut self.map, Ppa(job.ppa.0 + i as u64), Tag::load(tag));
            }
            Ok(())
        })?;
        let now = runner.now;
        Ok((scan, now))
    }

    /// Decides what becomes of each chunk.
    fn plan(&self, scan: &Scan) -> Plan {
        let size = self.geometry.chunk_blocks();
        let row = self.geometry.row_blocks();
        let mut plan = Plan::default();
        for pu in self.geometry.pus_channels_first() {
            let mut partly = Vec::new();
            for chunk in (0..self.geometry.chunks()).map(|n| self.geometry.chunk_of(pu, n)) {
                let programmed = scan.chunks[chunk].programmed;
                if programmed == 0 {
                    continue;
                } else if self.space.valid_blocks(chunk) == 0 {
                    plan.erase.push(chunk);
                } else if programmed == size {
                    plan.full.push(chunk);
                } else {
                    partly.push((programmed, chunk));
                }
            }
            // The one with the most room is collection's.
            partly.sort_unstable();
            for (i, &(programmed, chunk)) in partly.iter().enumerate() {
                let next = if i < 2 { programmed.next_multiple_of(row) } else { size };
                plan.pad.push((chunk, programmed, next));
                match i {
                    _ if next == size => plan.full.push(chunk),
                    0 => plan.collect.push((pu, OpenChunk { chunk, next })),
                    _ => plan.user.push((pu, OpenChunk { chunk, next })),
                }
            }
        }
        // The policies that want the oldest take the newest block's age for
        // the chunk's.
        plan.full.sort_by_key(|&chunk| scan.newest[chunk]);
        plan
    }

    /// Pads and erases.
    fn carry_out(&mut self, plan: &Plan, scan: &Scan, now: Time) -> Result<Time, PblkError> {
        let geometry = self.geometry;
        let mut runner = Runner::new(&mut self.device, now)?;
        let pads = plan.pad.iter();
        let pads =
            pads.flat_map(|&(chunk, from, to)| pieces(&geometry, VectorOp::Write, chunk, from, to));
        runner.run(pads, scan.highest, |job, status, _| {
            self.counters.padding += u64::from(job.count);
            if status.is_ok() { Ok(()) } else { Err(PblkError::Recovery(status)) }
        })?;
        let reset = |&chunk: &usize| Job {
            op: VectorOp::Reset,
            ppa: geometry.chunk_start(chunk),
            count: 1,
        };
        let mut refused = Vec::new();
        let mut erased = Vec::new();
        runner.run(plan.erase.iter().map(reset), 0, |job, status, _| {
            let chunk = geometry.chunk_index(job.ppa);
            if status.is_ok() {
                erased.push(chunk)
            } else {
                refused.push((chunk, status))
            }
            Ok(())
        })?;
        let now = runner.now;
        for (chunk, status) in refused {
            if self.device.chunk(chunk).state != ChunkState::Offline {
                return Err(PblkError::Recovery(status));
            }
        }
        self.counters.erases += erased.len() as u64;
        let unwritten = |&chunk: &usize| {
            scan.chunks[chunk].programmed == 0 && scan.chunks[chunk].state != ChunkState::Offline
        };
        let mut free: Vec<usize> = all_chunks(&geometry).filter(unwritten).chain(erased).collect();
        free.sort_by_key(|&chunk| (scan.chunks[chunk].wear, chunk));
        free.into_iter().for_each(|chunk| self.space.give(chunk));
        Ok(now)
    }

    /// Goes on where the target was.
    fn go_on(&mut self, plan: &Plan, now: Time) {
        let geometry = self.geometry;
        for chunk in all_chunks(&geometry) {
            if self.device.chunk(chunk).state == ChunkState::Offline {
                self.lose(now, chunk);
            }
        }
        plan.full.iter().for_each(|&chunk| self.space.close(chunk));
        for &(pu, open) in &plan.user {
            self.stripe.go_on(pu, open);
        }
        for &(pu, open) in &plan.collect {
            let rank = self.stripe.rank(pu);
            self.collectors[rank].go_on(open);
        }
        for pu in self.geometry.pus_channels_first() {
            let rank = self.stripe.rank(pu);
            if self.space.pus[pu].free.is_empty() {
                self.collectors[rank].rescue = true;
            }
            self.refresh(pu);
            self.collect(now, pu);
        }
        self.device.submit(now, &mut self.out);
    }
}
