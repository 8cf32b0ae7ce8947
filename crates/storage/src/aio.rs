//! The kernel's older asynchronous interface (`io_submit`), which libaio wraps; here by its
//! system calls.
//!
//! Guarantees: what was asked goes to the kernel at the next [`Aio::enter`], as much of it as
//! the kernel takes; what it refuses is an answer. Of files through the page cache the kernel
//! does all in the call. What it has no asynchronous form for is done at once, and waited
//! for. Fails with [`OpenError`] when it is made.

use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use port::Ring;
use rustix::io::{Errno, ReadWriteFlags};

use crate::ask::Ask;
use crate::backing::Backing;
use crate::calls::{Answers, call};
use crate::error::OpenError;
use crate::ring::Refused;

// `linux/aio_abi.h`.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FDSYNC: u16 = 3;

/// A request to the kernel (`struct iocb`, as little-endian machines have it).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    own_flags: u32,
    event_file: u32,
}

/// An answer of the kernel (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    more: i64,
}

#[cfg(not(target_endian = "little"))]
compile_error!("the control block has other places for its flags on big-endian machines");

/// A context of the kernel with requests inside.
pub(crate) struct Aio {
    context: c_ulong,
    backing: Arc<Backing>,
    /// By slot.
    blocks: Box<[ControlBlock]>,
    /// Where those lie that are handed over together.
    list: Box<[usize]>,
    /// Slots that are to be handed to the kernel.
    waiting: Ring<u32>,
    /// How many the kernel has.
    inside: usize,
    events: Box<[Event]>,
    pub answers: Answers,
}

impl Aio {
    /// A context for so many requests at once.
    pub fn new(backing: Arc<Backing>, depth: usize) -> Result<Aio, OpenError> {
        let mut context: c_ulong = 0;
        // SAFETY: the kernel writes the context's number there, and nothing else.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth as c_long, &raw mut context) };
        if made < 0 {
            return Err(OpenError::NoContext { depth, source: io::Error::last_os_error() });
        }
        let file = backing.fd().as_raw_fd() as u32;
        Ok(Aio {
            context,
            backing,
            blocks: vec![ControlBlock { file, ..Default::default() }; depth].into(),
            list: vec![0; depth].into(),
            waiting: Ring::new(depth),
            inside: 0,
            events: vec![Event::default(); depth].into(),
            answers: Ring::new(depth),
        })
    }

    /// Takes what is to be asked for a slot.
    ///
    /// # Safety
    /// The memory that is named stays valid, and nobody else's, until the answer.
    pub unsafe fn ask(&mut self, key: u32, ask: &Ask) {
        let block = &mut self.blocks[key as usize];
        let no_flags = ReadWriteFlags::empty();
        let (opcode, buffer, len, at, flags) = match *ask {
            Ask::Read { to, len, at } => (PREAD, to as u64, len, at, no_flags),
            Ask::Write { from, len, at, durable } => {
                let flags = if durable { ReadWriteFlags::DSYNC } else { no_flags };
                (PWRITE, from as u64, len, at, flags)
            }
            Ask::Sync => (FDSYNC, 0, 0, 0, no_flags),
            Ask::Fallocate { .. } => {
                // SAFETY: no memory is named.
                let result = unsafe { call(&self.backing, ask, None) };
                self.answers.put(|| (key, result));
                return;
            }
        };
        (block.data, block.opcode, block.buffer) = (key.into(), opcode, buffer);
        (block.bytes, block.offset, block.flags) = (len as u64, at as i64, flags.bits());
        self.waiting.put(|| key);
    }

    /// Whether something happens only if the kernel is entered now.
    pub fn wants_enter(&self) -> bool {
        self.inside > 0 || !self.waiting.is_empty()
    }

    /// Hands over what waits, and takes what has been answered.
    pub fn enter(&mut self) -> Result<(), Refused> {
        self.hand_over()?;
        self.take(0, Some(Duration::ZERO))
    }

    /// The same, and sleeps until there is an answer, or `timeout` has passed.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), Refused> {
        self.hand_over()?;
        if self.inside == 0 && self.answers.is_empty() {
            // The kernel took none of them now, and does not say when it will.
            std::thread::yield_now();
        }
        self.take(1, timeout)
    }

    /// Hands over what waits, as much as the kernel takes.
    fn hand_over(&mut self) -> Result<(), Refused> {
        while !self.waiting.is_empty() {
            let count = self.waiting.len();
            for (n, place) in self.list[..count].iter_mut().enumerate() {
                let key = *self.waiting.get(n).expect("there are so many");
                *place = (&raw mut self.blocks[key as usize]).expose_provenance();
            }
            let list = self.list.as_mut_ptr();
            // SAFETY: the kernel reads the list and the blocks in it during the call, and
            // both are there. The memory that a block names stays until the answer, as
            // whoever asked promised.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, self.context, count as c_long, list) };
            if taken > 0 {
                (0..taken).for_each(|_| _ = self.waiting.pop());
                self.inside += taken as usize;
                continue;
            }
            match Errno::from_io_error(&io::Error::last_os_error()) {
                // No room now: they wait on.
                _ if taken == 0 => return Ok(()),
                Some(Errno::AGAIN | Errno::INTR) => return Ok(()),
                // What is wrong is the first of them.
                Some(e) if e != Errno::NOSYS => {
                    let key = self.waiting.pop().expect("there is one");
                    self.answers.put(|| (key, -e.raw_os_error()));
                }
                _ => return Err(Refused::Ring),
            }
        }
        Ok(())
    }

    /// Takes answers, `least` at least where there is something to wait for.
    fn take(&mut self, least: c_long, timeout: Option<Duration>) -> Result<(), Refused> {
        if self.inside == 0 || !self.answers.is_empty() {
            return Ok(());
        }
        let time = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), |time| time as *const libc::timespec);
        // SAFETY: there is room for as many events as are said, and the time is there, or
        // none, during the call.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                least,
                self.events.len() as c_long,
                self.events.as_mut_ptr(),
                time,
            )
        };
        if taken < 0 {
            return match Errno::from_io_error(&io::Error::last_os_error()) {
                Some(Errno::INTR) => Ok(()),
                _ => Err(Refused::Ring),
            };
        }
        self.inside -= taken as usize;
        for event in &self.events[..taken as usize] {
            let result = event.result.clamp(i32::MIN.into(), i32::MAX.into()) as c_int;
            self.answers.put(|| (event.data as u32, result));
        }
        Ok(())
    }
}

impl Aio {
    /// Leaves the context to the kernel, with what is in it.
    pub fn leave(mut self) {
        self.context = 0;
    }
}

impl Drop for Aio {
    /// The kernel waits for what it has.
    fn drop(&mut self) {
        if self.context != 0 {
            // SAFETY: the context is ours alone.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        }
    }
}
