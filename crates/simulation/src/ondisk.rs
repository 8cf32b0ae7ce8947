//! Flash in a drive file on a simulated disk, as a host has it that is killed,
//! crashes, and is told that its disk lost a write.
//!
//! A cut is a kill, which leaves what the host's cache has, or a crash, which
//! leaves any part of what was not synced; a crash may follow a kill. The file
//! is then opened again, with cuts in that. A host that is told of an error
//! stops, as a drive file takes nothing more: that is a cut, too. So it is where the disk
//! fails a write, is full, or is away: then it may be so for some openings more.

use drivefile::disk::{Disk, Rng};
use drivefile::{CacheMode, DriveFile, FileError, Header};
use faults::PowerCut;
use flash::{Chunk, Medium, Moved, Ppa};

use crate::counts::counts;
use crate::setup::Setup;

counts! {
    /// What became of drive files.
    pub struct DiskCounts {
        /// How often the host was killed, crashed, and was told that its disk lost
        /// something.
        pub disk_kills: u64,
        /// See above.
        pub disk_crashes: u64,
        /// See above.
        pub disk_errors: u64,
        /// How often a file stopped as the disk failed a write, was full or was away.
        pub disk_stops: u64,
        /// How often one was not opened as the disk was away.
        pub disk_away: u64,
    }
}

/// What a disk fails.
#[derive(Clone, Copy, Debug)]
pub enum DiskTrouble {
    /// After so many more syncs one.
    Sync(u64),
    /// After so many more writes one, as a disk that is full.
    Write(u64),
    /// It has room for so many more bytes.
    Room(u64),
    /// After so many more reads and writes so many.
    Away(u64, u64),
}

impl DiskTrouble {
    /// Any but that of a sync.
    pub fn any(rng: &mut workload::Rng) -> DiskTrouble {
        match rng.below(3) {
            0 => DiskTrouble::Write(rng.below(300)),
            1 => DiskTrouble::Room(rng.below(300_000)),
            _ => DiskTrouble::Away(rng.below(600), rng.one_of(&[1, 3, 20, 200])),
        }
    }
}

/// Openings in a row that a disk may refuse: far more than it is away for.
const OPENINGS: u32 = 2000;

/// The medium.
pub struct OnDisk {
    disk: Disk,
    /// None when it was closed.
    file: Option<DriveFile>,
    counts: DiskCounts,
}

impl OnDisk {
    /// A new drive file.
    pub fn new(setup: &Setup) -> OnDisk {
        let (geometry, kept) = (setup.geometry, setup.kept);
        let (profile, drive, cache) = (String::new(), String::new(), CacheMode::Volatile);
        let header = Header { geometry, kept, cache, profile, drive };
        let disk = Disk::default();
        disk.set_preallocated(setup.seed.is_multiple_of(3));
        let file = DriveFile::create_on(disk.storage(), &header, false);
        let file = Some(file.expect("a disk without errors"));
        OnDisk { disk, file, counts: DiskCounts::default() }
    }

    /// The disk will fail something.
    pub fn fail(&self, trouble: DiskTrouble) {
        match trouble {
            DiskTrouble::Sync(syncs) => self.disk.fail_sync(Some(syncs)),
            DiskTrouble::Write(writes) => self.disk.fail_write(Some(writes)),
            DiskTrouble::Room(bytes) => self.disk.set_room(Some(bytes)),
            DiskTrouble::Away(from, asked) => self.disk.set_away(from..from + asked),
        }
    }

    /// It fails nothing more.
    pub fn heal(&self) {
        self.disk.fail_sync(None);
        self.disk.fail_write(None);
        self.disk.set_room(None);
        self.disk.set_away(0..0);
    }

    /// What became of it so far.
    pub fn counts(&self) -> DiskCounts {
        self.counts
    }

    /// Whether the file takes nothing more, as the disk failed.
    pub fn has_stopped(&self) -> bool {
        match self.file.as_ref().and_then(DriveFile::error) {
            None => false,
            Some(FileError::System { .. } | FileError::Away { .. }) => {
                assert!(self.disk.has_refused(), "a drive file stopped on a disk that did all");
                true
            }
            Some(error) => panic!("the drive file was used wrongly: {error}"),
        }
    }

    /// Shuts the file down in good order. Nothing comes after that but a cut.
    pub fn close(&mut self) {
        // What could not be written is no good order; the next start sees.
        let _ = self.file.take().map(DriveFile::close);
    }

    /// Whether the disk has reason not to give the file: it refused something.
    fn may_not_open(&self, error: &FileError) -> bool {
        matches!(error, FileError::System { .. }) && self.disk.has_refused()
    }

    /// Opens it after a cut; power may go in that.
    fn open(&mut self, rng: &mut Rng) -> Vec<Chunk> {
        for _ in 0..OPENINGS {
            if rng.one_in(3) {
                self.disk.kill();
                self.counts.disk_kills += 1;
            } else {
                self.disk.crash(rng);
                self.counts.disk_crashes += 1;
            }
            let fuse = if rng.one_in(4) { Some(rng.below(8)) } else { None };
            self.disk.set_fuse(fuse);
            match DriveFile::open_on(self.disk.storage(), false, false) {
                Ok(mut opened) => {
                    self.disk.set_fuse(None);
                    self.disk.set_away(0..0);
                    opened.medium.defer_syncs(rng.below(6) as u32);
                    self.file = Some(opened.medium);
                    return opened.chunks;
                }
                Err(error) if self.may_not_open(&error) => {
                    self.counts.disk_away += u64::from(fuse.is_none());
                }
                Err(error) => panic!("a drive file that was only cut does not open: {error}"),
            }
        }
        panic!("a drive file does not open though its disk is back");
    }
}

impl Medium for OnDisk {
    fn kept(&self) -> u32 {
        self.file.as_ref().map_or(0, Medium::kept)
    }

    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.file.as_mut().map_or(Moved::Failed, |file| file.program(at, count, data, tags))
    }

    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        self.file.as_mut().map_or(Moved::Failed, |file| file.read(at, count, data, tags))
    }

    fn reset(&mut self, chunk: Ppa) -> Moved {
        self.file.as_mut().map_or(Moved::Failed, |file| file.reset(chunk))
    }

    fn barrier(&mut self) -> Moved {
        self.file.as_mut().map_or(Moved::Failed, Medium::barrier)
    }

    fn is_cached(&self) -> bool {
        true
    }

    fn describe(&mut self, chunk_index: usize, chunk: &Chunk) {
        if let Some(file) = &mut self.file {
            file.describe(chunk_index, chunk);
        }
    }
}

impl PowerCut for OnDisk {
    fn power_cut(&mut self, seed: u64, chunks: &mut [Chunk]) {
        let file = self.file.take();
        let has_lost = self.disk.take_lost();
        let has_stopped = file.is_some_and(|file| file.error().is_some());
        self.counts.disk_errors += u64::from(has_lost);
        self.counts.disk_stops += u64::from(has_stopped && !has_lost);
        chunks.copy_from_slice(&self.open(&mut Rng(seed)));
    }
}

#[cfg(test)]
mod tests {
    use flash::Geometry;

    use super::*;

    fn new() -> OnDisk {
        let dim = flash::Dimensions { chunks: 2, pages: 2, ..flash::Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        OnDisk::new(&Setup { geometry, kept: 8, ..Setup::sound(0) })
    }

    /// The first block is programmed, in a file on this disk.
    fn program(medium: &mut OnDisk, disk: &Disk) {
        let file = DriveFile::open_on(disk.storage(), false, false).unwrap();
        medium.file = Some(file.medium);
        disk.fail_write(Some(0));
        let moved = medium.program(Ppa(0), 1, &[1; 8], &[0; 16]);
        assert_ne!(moved, Moved::Done);
    }

    #[test]
    fn a_file_stops_on_a_disk_that_fails() {
        let mut medium = new();
        medium.close();
        let disk = medium.disk.clone();
        program(&mut medium, &disk);
        assert!(medium.has_stopped());
    }

    #[test]
    #[should_panic(expected = "stopped on a disk that did all")]
    fn a_file_that_stops_for_no_reason_is_told() {
        let mut medium = new();
        medium.close();
        let other = Disk::with(medium.disk.killed());
        program(&mut medium, &other);
        medium.has_stopped();
    }

    #[test]
    fn a_file_does_not_open_on_a_disk_that_refuses() {
        let mut medium = new();
        medium.close();
        let other = Disk::with(medium.disk.killed());
        let fails = |disk: &Disk| {
            disk.set_away(0..u64::MAX);
            DriveFile::open_on(disk.storage(), false, false).err().unwrap()
        };
        let error = fails(&other);
        assert!(matches!(error, FileError::System { .. }), "{error}");
        assert!(!medium.may_not_open(&error), "its disk did all");
        let error = fails(&medium.disk);
        assert!(medium.may_not_open(&error));
        medium.disk.kill();
        assert!(!medium.may_not_open(&error), "that was before");
    }

    #[test]
    #[should_panic(expected = "though its disk is back")]
    fn a_disk_is_not_away_for_ever() {
        let mut medium = new();
        medium.close();
        medium.disk.set_away(0..u64::MAX);
        medium.open(&mut Rng(1));
    }
}
