//! Flash in a drive file on a simulated disk, as a host has it that is killed,
//! crashes, and is told that its disk lost a write.
//!
//! A cut is a kill, which leaves what the host's cache has, or a crash, which
//! leaves any part of what was not synced; a crash may follow a kill. The file
//! is then opened again, with cuts in that. A host that is told of an error
//! stops, as a drive file takes nothing more: that is a cut, too.

use drivefile::disk::{Disk, Rng};
use drivefile::{CacheMode, DriveFile, FileError, Header};
use faults::PowerCut;
use flash::{Chunk, Medium, Moved, Ppa};

use crate::setup::Setup;

/// The medium.
pub struct OnDisk {
    disk: Disk,
    /// None when it was closed.
    file: Option<DriveFile>,
    /// Kills, crashes, and errors of the disk so far.
    counts: [u64; 3],
}

impl OnDisk {
    /// A new drive file.
    pub fn new(setup: &Setup) -> OnDisk {
        let (geometry, kept) = (setup.geometry, setup.kept);
        let (profile, drive, cache) = (String::new(), String::new(), CacheMode::Volatile);
        let header = Header { geometry, kept, cache, profile, drive };
        let disk = Disk::default();
        let file = DriveFile::create_on(disk.storage(), &header, false);
        let file = Some(file.expect("a disk without errors"));
        OnDisk { disk, file, counts: [0; 3] }
    }

    /// After so many more syncs one fails; or none does.
    pub fn fail_sync(&self, syncs: Option<u64>) {
        self.disk.fail_sync(syncs);
    }

    /// Kills, crashes, and errors of the disk so far.
    pub fn counts(&self) -> [u64; 3] {
        self.counts
    }

    /// Whether the file takes nothing more, as the disk failed.
    pub fn has_stopped(&self) -> bool {
        match self.file.as_ref().and_then(DriveFile::error) {
            None => false,
            Some(FileError::System { .. }) => true,
            Some(error) => panic!("the drive file was used wrongly: {error}"),
        }
    }

    /// Shuts the file down in good order. Nothing comes after that but a cut.
    pub fn close(&mut self) {
        // What could not be written is no good order; the next start sees.
        let _ = self.file.take().map(DriveFile::close);
    }

    /// Opens it after a cut; power may go in that.
    fn open(&mut self, rng: &mut Rng) -> Vec<Chunk> {
        loop {
            if rng.one_in(3) {
                self.disk.kill();
                self.counts[0] += 1;
            } else {
                self.disk.crash(rng);
                self.counts[1] += 1;
            }
            self.disk.set_fuse(if rng.one_in(4) { Some(rng.below(8)) } else { None });
            match DriveFile::open_on(self.disk.storage(), false, false) {
                Ok(mut opened) => {
                    self.disk.set_fuse(None);
                    opened.medium.defer_syncs(rng.below(6) as u32);
                    self.file = Some(opened.medium);
                    return opened.chunks;
                }
                Err(FileError::System { .. }) => {}
                Err(error) => panic!("a drive file that was only cut does not open: {error}"),
            }
        }
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
        self.file = None;
        self.counts[2] += u64::from(self.disk.take_lost());
        chunks.copy_from_slice(&self.open(&mut Rng(seed)));
    }
}
