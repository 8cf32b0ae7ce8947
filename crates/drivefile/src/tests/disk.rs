//! A simulated disk behind a page cache: it may crash, fill up, or fail.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use super::Rng;
use crate::Storage;

/// What a disk writes as a whole.
const SECTOR: u64 = 512;

/// A simulated disk. A sync covers what was written before it began, and has
/// ended when the durable write that follows it begins: so what comes between,
/// while a sync is under way, is not covered.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// What the cache has: what is read.
    cached: Vec<u8>,
    /// What is on the disk for certain.
    durable: Vec<u8>,
    /// Writes that may be on the disk.
    pending: Vec<(u64, Vec<u8>)>,
    /// How many of them came before the last sync began.
    synced: usize,
    /// After so many more changes everything fails.
    fuse: Option<u64>,
    /// After so many more written bytes it is full.
    room: Option<u64>,
}

impl Disk {
    /// A disk with this content.
    pub fn with(image: Vec<u8>) -> Disk {
        let inner = Inner { cached: image.clone(), durable: image, ..Inner::default() };
        Disk(Arc::new(Mutex::new(inner)))
    }

    /// For a drive file.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    /// What it holds after the process was killed.
    pub fn killed(&self) -> Vec<u8> {
        self.0.lock().unwrap().cached.clone()
    }

    /// What it may hold after the host crashed: of what was not synced any
    /// sectors, and the older of two versions of a sector never over the newer.
    pub fn crashed(&self, rng: &mut Rng) -> Vec<u8> {
        let inner = self.0.lock().unwrap();
        let mut image = inner.durable.clone();
        let kept = rng.below(5);
        for (offset, bytes) in &inner.pending {
            let mut at = 0;
            while at < bytes.len() {
                let left = SECTOR - (offset + at as u64) % SECTOR;
                let n = (left as usize).min(bytes.len() - at);
                if rng.below(4) < kept {
                    let to = *offset as usize + at;
                    image[to..to + n].copy_from_slice(&bytes[at..at + n]);
                }
                at += n;
            }
        }
        image
    }

    /// After `changes` more changes everything fails.
    pub fn set_fuse(&self, changes: u64) {
        self.0.lock().unwrap().fuse = Some(changes);
    }

    /// After `bytes` more written bytes it is full.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.0.lock().unwrap().room = bytes;
    }
}

impl Inner {
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The first `count` pending writes are on the disk.
    fn settle(&mut self, count: usize) {
        for (offset, bytes) in self.pending.drain(..count) {
            let start = offset as usize;
            self.durable[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        self.synced = 0;
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.burn()?;
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(bytes.len() as u64).ok_or(ErrorKind::StorageFull)?;
        }
        let start = offset as usize;
        self.cached[start..start + bytes.len()].copy_from_slice(bytes);
        self.pending.push((offset, bytes.to_vec()));
        Ok(())
    }
}

impl Storage for Disk {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let inner = self.0.lock().unwrap();
        let end = offset as usize + bytes.len();
        let from = inner.cached.get(offset as usize..end).ok_or(ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(from);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().put(offset, bytes)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inner = &mut *self.0.lock().unwrap();
        inner.burn()?;
        // The sync before it has returned.
        inner.settle(inner.synced);
        inner.put(offset, bytes)?;
        // It may be on the disk before it is known to be.
        inner.burn()?;
        let last = inner.pending.pop();
        let older = std::mem::replace(&mut inner.pending, last.into_iter().collect());
        inner.settle(1);
        inner.pending = older;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let inner = &mut *self.0.lock().unwrap();
        inner.burn()?;
        inner.synced = inner.pending.len();
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().put(offset, &vec![0; len as usize])
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().cached.len() as u64)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let inner = &mut *self.0.lock().unwrap();
        inner.cached.resize(bytes as usize, 0);
        inner.durable.resize(bytes as usize, 0);
        Ok(())
    }

    fn used(&self) -> io::Result<u64> {
        self.bytes()
    }
}
