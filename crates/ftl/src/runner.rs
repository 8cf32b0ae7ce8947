//! The drive during start-up: commands that are waited for.
//!
//! A target that starts has nobody to serve yet. It does its jobs as many at once
//! as keep the parallel units busy, and goes on when all are done.
//!
//! Fails when the drive stops answering, and when there is no memory for what is
//! on its way. What a command of the drive came to is the caller's to judge.

use std::marker::PhantomData;
use std::ops::Range;

use device::{Content, MAX_ADDRESSES, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, Geometry, Ppa, TAG_BYTES, Tag};
use port::{Buffer, OutOfMemory, Ring, Scratch, Status, Time};
use thiserror::Error;

use crate::is_read;

/// Commands under way for each parallel unit: few of them are for the same when
/// what is read lies anywhere.
const COMMANDS_PER_PU: usize = 4;

/// Why jobs cannot be done.
#[derive(Debug, Error)]
pub enum Halt {
    /// The drive has no next event, with commands inside.
    #[error("the drive stopped answering")]
    Stopped,
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// A command to do: neighbours in one row.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    content: Content,
    /// The first block.
    pub ppa: Ppa,
    /// How many.
    pub count: u32,
    /// The tag of what is written; nothing of a read.
    fill: Option<Tag>,
    /// Its number among those of [`Runner::read`].
    number: usize,
}

impl Job {
    /// A read.
    pub fn read(content: Content, (ppa, count): (Ppa, u32)) -> Job {
        Job { content, ppa, count, fill: None, number: 0 }
    }

    /// A write of zeros with this tag.
    pub fn fill(tag: Tag, piece: (Ppa, u32)) -> Job {
        Job::fill_as(Content::Tagged, tag, piece)
    }

    /// The same with so much of each block: `Tagged` or `Whole`.
    pub fn fill_as(content: Content, tag: Tag, (ppa, count): (Ppa, u32)) -> Job {
        Job { content, ppa, count, fill: Some(tag), number: 0 }
    }
}

/// How a job ended: data and tags of a read.
pub struct Ended<'a> {
    /// What the drive said.
    pub status: Status,
    /// The blocks that failed; none where the data were read at the limit of
    /// what can be corrected.
    pub failed: BlockBits,
    /// What is kept of each block, of a read of that.
    pub data: &'a [u8],
    /// A tag of each block, of a read of that.
    pub tags: &'a [u8],
}

/// A block as it was read.
pub struct Block<'a> {
    /// What the drive said.
    pub status: Status,
    /// Of [`Ended::data`] what is the block's.
    pub data: &'a [u8],
    /// Of [`Ended::tags`] what begins with the block's.
    pub tag: &'a [u8],
}

/// A command's place while it is under way.
struct Lane {
    job: Job,
    buffer: Scratch,
    bytes: usize,
}

/// The drive, and room for the commands under way. `E` is how its user fails.
pub struct Runner<'a, D, E> {
    /// The drive.
    pub device: &'a mut D,
    lanes: Vec<Lane>,
    /// Those that are free: all, but in a run, and for ever after the drive has
    /// stopped answering.
    free: Vec<usize>,
    out: Ring<VectorCmd>,
    done: Ring<VectorDone>,
    kept: u32,
    geometry: Geometry,
    /// Drive time.
    pub now: Time,
    error: PhantomData<E>,
}

impl<'a, D: OpenChannel, E: From<Halt>> Runner<'a, D, E> {
    /// A drive that has nothing to do, at `now`.
    pub fn new(device: &'a mut D, now: Time) -> Runner<'a, D, E> {
        let (geometry, kept) = (*device.geometry(), device.kept());
        let count = geometry.total_pus() as usize * COMMANDS_PER_PU;
        let count = count.min(device.depth()).max(1);
        let job = Job::read(Content::Data, (Ppa(0), 0));
        let lane = || Lane { job, buffer: Scratch::default(), bytes: 0 };
        let lanes = std::iter::repeat_with(lane).take(count).collect();
        let (out, done) = (Ring::new(count), Ring::new(count));
        let free = (0..count).collect();
        Runner { device, lanes, free, out, done, kept, geometry, now, error: PhantomData }
    }

    /// Does all jobs, as many at once as there are lanes. `done` is given
    /// each job and how it ended, in the order in which they end. Where it fails no
    /// other job is begun, and those under way are waited for.
    pub fn run(
        &mut self,
        mut jobs: impl Iterator<Item = Job>,
        mut done: impl FnMut(Job, Ended) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.free.len() < self.lanes.len() {
            return Err(Halt::Stopped.into());
        }
        let mut failed = None;
        loop {
            while failed.is_none()
                && let Some(&lane) = self.free.last()
                && let Some(job) = jobs.next()
            {
                match self.push(lane, job) {
                    Ok(()) => drop(self.free.pop()),
                    Err(e) => failed = Some(Halt::Memory(e).into()),
                }
            }
            if self.free.len() == self.lanes.len() {
                return failed.map_or(Ok(()), Err);
            }
            self.device.submit(self.now, &mut self.out);
            let at = self.device.next_event().ok_or(Halt::Stopped)?;
            self.now = self.now.max(at);
            self.device.advance(self.now, &mut self.done);
            while let Some(completion) = self.done.pop() {
                let number = completion.cookie as usize;
                let lane = &mut self.lanes[number];
                let (each, _) = lane.job.content.each(self.kept);
                let bytes = completion.buffer.bytes();
                let (data, tags) =
                    bytes.split_at((lane.job.count as usize * each).min(bytes.len()));
                let status = completion.status;
                let blocks = if is_read(status) { 0 } else { completion.failed };
                if failed.is_none() {
                    failed = done(lane.job, Ended { status, failed: blocks, data, tags }).err();
                }
                lane.buffer.give(completion.buffer);
                self.free.push(number);
            }
        }
    }

    fn push(&mut self, number: usize, job: Job) -> Result<(), OutOfMemory> {
        let lane = &mut self.lanes[number];
        lane.job = job;
        let Job { content, ppa, count, fill, .. } = job;
        let (data, tag) = content.each(self.kept);
        let (data, bytes) = (count as usize * data, count as usize * (data + tag));
        if lane.bytes < bytes {
            (lane.buffer, lane.bytes) = (Scratch::new(Buffer::zeroed(bytes)?), bytes);
        }
        let mut buffer = lane.buffer.take(bytes);
        if let Some(tag) = fill {
            let (data, tags) = buffer.bytes_mut().split_at_mut(data);
            data.fill(0);
            tags.chunks_exact_mut(TAG_BYTES).for_each(|to| tag.store(to));
        }
        let op = if fill.is_some() { VectorOp::Write } else { VectorOp::Read };
        let (cookie, count) = (number as u64, count as u8);
        let cmd = VectorCmd::new(cookie, op, content, (ppa, count), buffer);
        self.out.push(cmd).expect("there is a place for each lane");
        Ok(())
    }

    /// Reads all these blocks, and gives each with its number among them, in
    /// the order in which they come. Neighbours in a row are read at once; where
    /// that fails each is read alone.
    pub fn read(
        &mut self,
        blocks: &[Ppa],
        content: Content,
        mut each: impl FnMut(usize, Block) -> Result<(), E>,
    ) -> Result<(), E> {
        let (data, tag) = content.each(self.kept);
        let mut jobs: Vec<Job> = Vec::new();
        for (number, &block) in blocks.iter().enumerate() {
            match jobs.last_mut() {
                Some(job) if self.goes_on(job, block) => job.count += 1,
                _ => jobs.push(Job { number, ..Job::read(content, (block, 1)) }),
            }
        }
        let mut again: Vec<Job> = Vec::new();
        let mut give = |job: Job, ended: Ended, again: Option<&mut Vec<Job>>| {
            let all = job.number..job.number + job.count as usize;
            if let Some(again) = again.filter(|_| !is_read(ended.status) && job.count > 1) {
                again.extend(all.map(|number| Job {
                    number,
                    ppa: blocks[number],
                    count: 1,
                    ..job
                }));
                return Ok(());
            }
            all.enumerate().try_for_each(|(i, number)| {
                let (data, tag) = (&ended.data[i * data..][..data], &ended.tags[i * tag..]);
                each(number, Block { status: ended.status, data, tag })
            })
        };
        self.run(jobs.into_iter(), |job, ended| give(job, ended, Some(&mut again)))?;
        self.run(again.into_iter(), |job, ended| give(job, ended, None))
    }

    /// Whether a block is read together with those of a job.
    fn goes_on(&self, job: &Job, block: Ppa) -> bool {
        let same_row = self.geometry.row_start(job.ppa) == self.geometry.row_start(block);
        let count = job.count as usize;
        block.0 == job.ppa.0 + count as u64 && same_row && count < MAX_ADDRESSES
    }
}

/// Some blocks of a chunk, in pieces that stay in one row: what a job can be of.
pub fn pieces(
    geometry: &Geometry,
    chunk: usize,
    blocks: Range<u32>,
) -> impl Iterator<Item = (Ppa, u32)> + use<> {
    let start = geometry.chunk_start(chunk).0;
    let row = geometry.row_blocks();
    let mut block = blocks.start;
    std::iter::from_fn(move || {
        if block >= blocks.end {
            return None;
        }
        let row_left = row - block % row;
        let count = row_left.min(blocks.end - block).min(MAX_ADDRESSES as u32);
        let ppa = Ppa(start + u64::from(block));
        block += count;
        Some((ppa, count))
    })
}

#[cfg(test)]
mod tests {
    use device::Device;
    use flash::{Dimensions, RamMedium, Timing};

    use super::*;

    #[derive(Debug)]
    enum Failed {
        Halt(#[expect(dead_code, reason = "it is printed")] Halt),
        Job,
    }

    impl From<Halt> for Failed {
        fn from(halt: Halt) -> Failed {
            Failed::Halt(halt)
        }
    }

    type Two<'a> = Runner<'a, Device<RamMedium>, Failed>;

    /// Two units, whose rows are two pages of 4 blocks.
    fn device() -> Device<RamMedium> {
        let dim = Dimensions {
            groups: 2,
            chunks: 4,
            pages: 4,
            planes: 2,
            page_bytes: 16384,
            ..Dimensions::LEAST
        };
        let geometry = Geometry::new(dim).unwrap();
        let timing = Timing { read: vec![50_000], program: vec![600_000], ..Timing::default() };
        Device::new(&geometry, &timing, RamMedium::new(&geometry, 8).unwrap()).unwrap()
    }

    /// Writes so many blocks of the first chunk of each unit, each piece with its
    /// first block as tag. Gives the pieces.
    fn write(runner: &mut Two, blocks: u32) -> Vec<(Ppa, u32)> {
        let geometry = runner.geometry;
        let chunks = geometry.pus_channels_first().map(|pu| geometry.chunk_of(pu, 0));
        let all: Vec<(Ppa, u32)> =
            chunks.flat_map(|chunk| pieces(&geometry, chunk, 0..blocks)).collect();
        let jobs = all.iter().map(|&piece| Job::fill(Tag { id: piece.0.0, seq: 1 }, piece));
        let done =
            |_: Job, ended: Ended| if is_read(ended.status) { Ok(()) } else { Err(Failed::Job) };
        runner.run(jobs, done).unwrap();
        all
    }

    /// Those under way when a job fails are waited for, and none is taken for one
    /// of the next run.
    #[test]
    fn a_run_behind_one_that_failed_has_its_own_completions() {
        let mut device = device();
        let mut runner = Two::new(&mut device, Time::ZERO);
        let all = write(&mut runner, 32);
        assert_eq!(all.len(), 8);
        let reads = || all.iter().map(|&piece| Job::read(Content::Tags, piece));
        let mut ended = 0;
        let failed = runner.run(reads(), |_, _| {
            ended += 1;
            Err(Failed::Job)
        });
        assert!(matches!(failed, Err(Failed::Job)) && ended == 1);
        let mut seen = Vec::new();
        let see = |job: Job, ended: Ended| {
            let ids = ended.tags.chunks_exact(TAG_BYTES).map(|tag| Tag::load(tag).id);
            assert!(ids.eq(std::iter::repeat_n(job.ppa.0, job.count as usize)));
            seen.push((job.ppa, job.count));
            Ok(())
        };
        runner.run(reads(), see).unwrap();
        seen.sort_unstable();
        let mut all = all;
        all.sort_unstable();
        assert_eq!(seen, all);
    }

    /// Of neighbours that are read at once, and not all can be, each is read alone.
    #[test]
    fn what_can_be_read_is_read_beside_what_cannot() {
        let mut device = device();
        let mut runner = Two::new(&mut device, Time::ZERO);
        let first = write(&mut runner, 4)[0].0;
        let blocks: Vec<Ppa> = (0..8).map(|i| Ppa(first.0 + i)).collect();
        let mut seen = [Status::SUCCESS; 8];
        runner
            .read(&blocks, Content::Tags, |number, block| {
                let tag = Tag::load(&block.tag[..TAG_BYTES]);
                assert!(!block.status.is_ok() || tag.id == first.0);
                seen[number] = block.status;
                Ok(())
            })
            .unwrap();
        assert_eq!(seen[..4], [Status::SUCCESS; 4]);
        assert_eq!(seen[4..], [Status::UNWRITTEN; 4]);
    }
}
