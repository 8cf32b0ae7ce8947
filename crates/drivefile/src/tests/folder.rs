//! A simulated folder: a name is durable when the folder was synced.

use std::io;
use std::sync::{Arc, Mutex};

use crate::disk::Disk;
use crate::unfinished::Place;

/// A folder with two names: one for a file while it is made, and its own. What
/// happened to them is durable when the folder was synced.
#[derive(Clone, Default)]
pub struct Folder(Arc<Mutex<Names>>);

#[derive(Default)]
struct Names {
    disk: Disk,
    /// Which names it has, beside and its own.
    now: [bool; 2],
    durable: [bool; 2],
    /// After so many more changes the process is killed.
    fuse: Option<u64>,
}

impl Folder {
    /// With an empty file beside. After `changes` the process is killed.
    pub fn new(changes: Option<u64>) -> Folder {
        let names = Names { now: [true, false], fuse: changes, ..Names::default() };
        Folder(Arc::new(Mutex::new(names)))
    }

    /// The file.
    pub fn disk(&self) -> Disk {
        self.0.lock().unwrap().disk.clone()
    }

    /// Whether the file is there, by the name beside and by its own, after a
    /// kill, or else after a crash in which the folder was as it is, or was
    /// synced.
    pub fn names(&self, as_now: bool) -> [bool; 2] {
        let names = self.0.lock().unwrap();
        if as_now { names.now } else { names.durable }
    }
}

impl Names {
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => return Err(io::Error::other("the power is gone")),
            Some(left) => *left -= 1,
            None => {}
        }
        if self.disk.is_gone() { Err(io::Error::other("the power is gone")) } else { Ok(()) }
    }
}

impl Place for Folder {
    fn publish(&self) -> io::Result<()> {
        let names = &mut *self.0.lock().unwrap();
        names.burn()?;
        names.now = [false, true];
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let names = &mut *self.0.lock().unwrap();
        names.burn()?;
        names.durable = names.now;
        Ok(())
    }

    fn remove(&self) {
        let names = &mut *self.0.lock().unwrap();
        if names.burn().is_ok() {
            names.now[0] = false;
        }
    }
}
