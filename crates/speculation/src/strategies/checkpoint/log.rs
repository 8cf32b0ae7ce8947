//! Checkpoints by an undo log: all memory is protected, and a thread copies a page aside before
//! the first write to it goes on.
//!
//! Guarantees: the log has each page that was written since the last [`UndoLog::take`], once, as it
//! was then. What nobody writes is not copied. A write that the kernel does for a program (a
//! `read` into a page that is protected) fails. May fail: the kernel has no such protection.
#![allow(unsafe_code)]

use std::io::{self, PipeReader, PipeWriter, Write, pipe};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::KeepError;
use super::memory::Memory;
use super::userfault::{Userfault, WAITING};

/// Pages as they were.
#[derive(Default)]
struct Log {
    /// Where each was in the memory.
    offsets: Vec<usize>,
    /// One after the other.
    pages: Vec<u8>,
    /// Why pages are copied no more.
    failed: Option<io::Error>,
}

/// What the thread needs.
struct Copier {
    userfault: Userfault,
    log: Arc<Mutex<Log>>,
    addresses: Range<usize>,
    page: usize,
    /// Something comes where it is to end.
    stop: PipeReader,
}

/// A log of a memory, and its thread.
pub struct UndoLog {
    userfault: Userfault,
    log: Arc<Mutex<Log>>,
    stop: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UndoLog {
    /// Begins, and protects all.
    pub fn new(memory: &Memory) -> Result<UndoLog, KeepError> {
        let system = |doing| move |e| KeepError::system(doing, e);
        let userfault = Userfault::open(memory, WAITING)?;
        let (addresses, page) = (memory.addresses(), memory.page());
        userfault.protect(addresses.clone(), true).map_err(system("protect memory"))?;
        let (stop, ends) = pipe().map_err(system("make a pipe"))?;
        let log = Arc::new(Mutex::new(Log::default()));
        let again = userfault.again().map_err(system("share the userfaultfd"))?;
        let copier = Copier { userfault: again, log: Arc::clone(&log), addresses, page, stop };
        let thread = std::thread::Builder::new().name("undo-log".into());
        let thread = thread.spawn(move || copier.run()).map_err(system("start a thread"))?;
        Ok(UndoLog { userfault, log, stop: ends, thread: Some(thread) })
    }

    /// Takes one in place of the last: protects what was written again.
    pub fn take(&mut self, memory: &Memory) -> Result<(), KeepError> {
        let mut log = lock(&self.log);
        if let Some(e) = log.failed.take() {
            return Err(KeepError::system("copy a page before it is written", e));
        }
        log.offsets.sort_unstable();
        for pages in log.offsets.chunk_by(|a, b| a + memory.page() == *b) {
            let at = memory.addresses().start + pages[0];
            let protect = self.userfault.protect(at..at + pages.len() * memory.page(), true);
            protect.map_err(|e| KeepError::system("protect memory", e))?;
        }
        log.offsets.clear();
        log.pages.clear();
        Ok(())
    }

    /// Copies the pages back. They stay unprotected, and in the log: they may be rolled back again.
    pub fn roll_back(&mut self, memory: &mut Memory) -> Result<(), KeepError> {
        let mut log = lock(&self.log);
        if let Some(e) = log.failed.take() {
            return Err(KeepError::system("copy a page before it is written", e));
        }
        let page = memory.page();
        for (offset, bytes) in log.offsets.iter().zip(log.pages.chunks_exact(page)) {
            memory.bytes_mut()[*offset..offset + page].copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Drop for UndoLog {
    fn drop(&mut self) {
        // It ends by that, or has failed before.
        let is_told = self.stop.write_all(&[0]).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_told) {
            let _ = thread.join();
        }
    }
}

impl Copier {
    fn run(mut self) {
        if let Err(e) = self.copy() {
            lock(&self.log).failed = Some(e);
            // Nobody may wait for who is gone.
            let _ = self.userfault.end(self.addresses.clone());
        }
    }

    fn copy(&mut self) -> io::Result<()> {
        loop {
            let poll = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut ready = [poll(self.userfault.as_raw_fd()), poll(self.stop.as_raw_fd())];
            // SAFETY: two descriptors that are this one's.
            if unsafe { libc::poll(ready.as_mut_ptr(), 2, -1) } < 0 {
                match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => continue,
                    e => return Err(e),
                }
            }
            while let Some(address) = self.userfault.next()? {
                self.keep(address / self.page * self.page)?;
            }
            if ready[1].revents != 0 {
                return Ok(());
            }
        }
    }

    /// Copies a page, and lets who writes it go on.
    fn keep(&self, address: usize) -> io::Result<()> {
        assert!(self.addresses.contains(&address), "no other memory is registered");
        // SAFETY: the page is mapped as long as the memory is, which outlives this thread, and who
        // would write it waits for this one.
        let page = unsafe { std::slice::from_raw_parts(address as *const u8, self.page) };
        let mut log = lock(&self.log);
        log.offsets.push(address - self.addresses.start);
        log.pages.extend_from_slice(page);
        drop(log);
        self.userfault.protect(address..address + self.page, false)
    }
}
