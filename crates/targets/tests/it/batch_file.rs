//! A batched target over a drive file: what was answered is there again after a
//! kill or a crash of the host, whatever was on its way. Damage to what was written
//! last loses nothing without a word: all is there, or the place is named.

use crate::batch_world::{Random, Setup, batch_buffer, value_of};
use device::Device;
use drivefile::disk::{Disk, Rng};
use drivefile::{CacheMode, DriveFile, FileError, Header};
use flash::Dimensions;
use port::{BatchDone, BatchOp, BatchReq, Buffer, Port, Ring, Status, Time};
use targets::Batch;
use targets::batch::BatchError;

/// Requests inside at most.
const DEPTH: usize = 8;

/// Bits of one drive that are damaged, each by itself.
const MOST_BITS: usize = 160;

/// A drive in a file on a simulated disk, with power.
struct Drive {
    target: Batch<Device<DriveFile>>,
    now: Time,
    queue: Ring<BatchReq>,
    done: Ring<BatchDone>,
}

/// Why a start was refused.
#[derive(Debug)]
enum Refused {
    /// The file was not opened.
    File(FileError),
    Target(BatchError),
}

/// What was sent: of each batch, numbered from 1, its pages, which have its number
/// then. And how many were answered.
#[derive(Default)]
struct Sent {
    batches: Vec<Vec<u64>>,
    answered: usize,
}

fn setup() -> Setup {
    let dim = Dimensions { chunks: 16, ..Setup::small(0).dim };
    Setup::of(dim, 0).filled(60)
}

impl Drive {
    fn over(medium: DriveFile, chunks: Option<&[flash::Chunk]>) -> Result<Drive, Refused> {
        let (setup, geometry) = (setup(), setup().geometry());
        let device = match chunks {
            Some(chunks) => Device::restore(&geometry, &setup.timing, medium, chunks),
            None => Device::new(&geometry, &setup.timing, medium),
        };
        let target = Batch::open(device.unwrap(), setup.config, Time::ZERO);
        let target = target.map_err(Refused::Target)?;
        let (queue, done) = (Ring::new(DEPTH), Ring::new(DEPTH));
        Ok(Drive { now: target.now(), target, queue, done })
    }

    /// A new one, whose syncs take as long as so many questions.
    fn new(disk: &Disk, kept: u32, syncs_take: u32) -> Drive {
        let (geometry, cache) = (setup().geometry(), CacheMode::Volatile);
        let (profile, drive) = Default::default();
        let header = Header { geometry, kept, cache, profile, drive };
        let mut file = DriveFile::create_on(disk.storage(), &header, false).unwrap();
        file.defer_syncs(syncs_take);
        Drive::over(file, None).unwrap()
    }

    fn open(disk: &Disk) -> Result<Drive, Refused> {
        let opened = DriveFile::open_on(disk.storage(), false, false);
        let opened = opened.map_err(Refused::File)?;
        Drive::over(opened.medium, Some(&opened.chunks))
    }

    fn kept(&self) -> usize {
        self.target.shape().kept as usize
    }

    /// Sends a batch of random pages, if there is room.
    fn write(&mut self, sent: &mut Sent, pages: u64, random: &mut Random) {
        let mut lpids: Vec<u64> = (0..pages).map(|_| random.below(setup().config.pages)).collect();
        lpids.sort_unstable();
        lpids.dedup();
        let number = sent.batches.len() as u64 + 1;
        let buffer = batch_buffer(&lpids, &vec![number; lpids.len()], self.kept());
        let req = BatchReq { id: number, op: BatchOp::WriteBatch, lpid: 0, buffer };
        self.queue.push(req).unwrap();
        self.target.submit(self.now, &mut self.queue);
        if self.queue.pop().is_none() {
            sent.batches.push(lpids);
        }
    }

    /// One event.
    fn step(&mut self, sent: &mut Sent) {
        self.now = self.now.max(self.target.next_event().expect("something is on its way"));
        self.target.advance(self.now, &mut self.done);
        while let Some(done) = self.done.pop() {
            assert_eq!(done.status, Status::SUCCESS);
            sent.answered = sent.answered.max(done.id as usize);
        }
    }

    /// So many batches, one after the other.
    fn write_some(&mut self, sent: &mut Sent, batches: usize, pages: u64, random: &mut Random) {
        for _ in 0..batches {
            self.write(sent, pages, random);
            while sent.answered < sent.batches.len() {
                self.step(sent);
            }
        }
    }

    /// All pages; `None` of those that cannot be read.
    fn read_all(&mut self) -> Vec<Option<u64>> {
        (0..setup().config.pages).map(|lpid| self.read(lpid)).collect()
    }

    fn read(&mut self, lpid: u64) -> Option<u64> {
        let buffer = Buffer::zeroed(self.kept()).unwrap();
        self.queue.push(BatchReq { id: 0, op: BatchOp::Read, lpid, buffer }).unwrap();
        self.target.submit(self.now, &mut self.queue);
        let done = loop {
            self.now = self.now.max(self.target.next_event().expect("a read is on its way"));
            self.target.advance(self.now, &mut self.done);
            if let Some(done) = self.done.pop() {
                break done;
            }
        };
        match done.status {
            Status::UNWRITTEN => Some(0),
            Status::UNRECOVERED_READ => None,
            status => {
                assert_eq!(status, Status::SUCCESS);
                Some(value_of(done.buffer.bytes()))
            }
        }
    }
}

impl Sent {
    /// Whether the pages are as some of the states have them that may be there: all
    /// batches that were answered, and none or more of those behind them.
    fn allows(&self, pages: &[Option<u64>]) -> bool {
        let mut state = vec![0; pages.len()];
        let is_as =
            |state: &[u64]| state.iter().zip(pages).all(|(was, is)| is.is_none_or(|is| is == *was));
        let mut any = self.answered == 0 && is_as(&state);
        for (number, lpids) in (1..).zip(&self.batches) {
            lpids.iter().for_each(|&lpid| state[lpid as usize] = number);
            any |= number as usize >= self.answered && is_as(&state);
        }
        any
    }
}

/// Bits of what the last few batches wrote: of bytes that are other than before, in
/// sectors all over the file.
fn bits_of(before: &[u8], after: &[u8], random: &mut Random) -> Vec<(usize, u8)> {
    let sectors = (0..).step_by(512).zip(before.chunks(512).zip(after.chunks(512)));
    let mut changed: Vec<Vec<usize>> = sectors
        .map(|(start, (was, is))| {
            (0..is.len()).filter(|&i| was[i] != is[i]).map(|i| start + i).collect()
        })
        .filter(|bytes: &Vec<usize>| !bytes.is_empty())
        .collect();
    while changed.len() > MOST_BITS {
        changed.swap_remove(random.below(changed.len() as u64) as usize);
    }
    let mut bit = |bytes: &Vec<usize>| {
        (bytes[random.below(bytes.len() as u64) as usize], 1 << random.below(8))
    };
    changed.iter().map(&mut bit).collect()
}

/// One bit of what the last batches wrote is wrong after a kill: of data, entries,
/// descriptors, state.
#[test]
fn one_bit_after_a_kill_loses_nothing_without_a_word() {
    let (mut named, mut unread, mut harmless) = (0, 0, 0);
    for (pages, kept, last) in [(1, 4096, 3), (3, 8, 3), (12, 4096, 3), (39, 8, 3), (2, 8, 20)] {
        let (disk, mut sent, mut random) = (Disk::default(), Sent::default(), Random(pages));
        let mut drive = Drive::new(&disk, kept, 0);
        drive.write_some(&mut sent, 40, pages, &mut random);
        let before = disk.killed();
        drive.write_some(&mut sent, last, pages, &mut random);
        drop(drive);
        let after = disk.killed();
        for (at, bit) in bits_of(&before, &after, &mut random) {
            let mut image = after.clone();
            image[at] ^= bit;
            let found = match Drive::open(&Disk::with(image)) {
                Err(Refused::Target(BatchError::Log { .. })) => {
                    named += 1;
                    continue;
                }
                Err(Refused::File(FileError::Descriptor { .. })) => {
                    named += 1;
                    continue;
                }
                Err(e) => panic!("{pages} pages, bit {bit} at {at}: {e:?}"),
                Ok(mut drive) => drive.read_all(),
            };
            assert!(sent.allows(&found), "{pages} pages, bit {bit} at {at}: {found:?}");
            let all = found.iter().all(Option::is_some);
            (harmless, unread) = (harmless + u32::from(all), unread + u32::from(!all));
        }
        let found = Drive::open(&Disk::with(after)).unwrap().read_all();
        assert!(sent.allows(&found) && found.iter().all(Option::is_some));
    }
    let counts = format!("{named} refused, {unread} with a page unread, {harmless} harmless");
    assert!(named > 20 && unread > 20 && harmless > 5, "{counts}");
}

/// A kill, or a crash of the host, while batches are on their way: of what was not
/// synced anything may be there, in part, and nothing of it refuses the drive.
#[test]
fn rows_that_a_crash_tore_refuse_nothing() {
    let mut cut = 0;
    for seed in 0..60u64 {
        let (kept, mut random) = ([8, 4096][seed as usize % 2], Random(seed));
        let (disk, mut sent) = (Disk::default(), Sent::default());
        let mut drive = Drive::new(&disk, kept, random.below(6) as u32);
        drive.write_some(&mut sent, 1 + seed as usize % 30, 5, &mut random);
        for _ in 0..1 + random.below(4) {
            let pages = 1 + random.below(30);
            drive.write(&mut sent, pages, &mut random);
        }
        for _ in 0..random.below(40) {
            if sent.answered < sent.batches.len() {
                drive.step(&mut sent);
            }
        }
        drop(drive);
        for turn in 0..4 {
            let image = match turn {
                0 => disk.killed(),
                _ => disk.crashed(&mut Rng(seed << 8 | turn)),
            };
            let opened = DriveFile::open_on(Disk::with(image.clone()).storage(), true, false);
            cut += opened.unwrap().cut_chunks;
            let found = Drive::open(&Disk::with(image)).expect("a crash is no damage").read_all();
            assert!(found.iter().all(Option::is_some), "seed {seed}, {turn}: {found:?}");
            assert!(sent.allows(&found), "seed {seed}, {turn}, {}: {found:?}", sent.answered);
        }
    }
    assert!(cut > 20, "{cut} chunks cut");
}
