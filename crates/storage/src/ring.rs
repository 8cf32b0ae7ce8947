//! A ring of the kernel: set up as cheap as the kernel has it, entered, reaped.
//!
//! Guarantees: a ring is bound to no thread until it is first entered. What
//! may pass (a signal, the kernel short of memory for the moment) is not an
//! error: what was not taken stays in the ring for the next time. Fails with
//! [`OpenError`] when it is made.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use io_uring::opcode::{
    AsyncCancel, AsyncCancel2, Fallocate, Fsync, Read, ReadFixed, Write, WriteFixed,
};
use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Parameters, cqueue};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::io_uring::{
    IoringRegisterOp, IoringSetupFlags as Setup, io_uring_params, io_uring_register,
    io_uring_setup, iovec,
};

use crate::ask::Ask;
use crate::error::OpenError;
use crate::pool::Region;
use crate::request::Plan;

/// The one file of a ring.
const FILE: Fixed = Fixed(0);

/// Sleep half of a request's usual time, then poll (Linux 6.13). Not named in
/// the system crate.
const HYBRID_IOPOLL: u32 = 1 << 17;

/// The key of a cancellation's own completion, which means nothing.
pub(crate) const CANCEL: u64 = u64::MAX;

/// How completions are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The device interrupts.
    Interrupt,
    /// We ask the device.
    Poll,
    /// We sleep, then ask.
    Hybrid,
}

/// What a ring is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingOptions {
    /// Requests inside at once.
    pub depth: usize,
    pub mode: Mode,
    /// Driven by several threads in turn.
    pub shared: bool,
    /// A kernel thread submits, and sleeps after so long without work.
    pub sqpoll_idle: Option<Duration>,
}

/// Why a ring could not be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It belongs to another thread.
    Thread,
    /// The kernel takes nothing from it any more.
    Ring,
}

/// A ring.
pub(crate) struct Uring {
    ring: IoUring,
    /// Completions come only when we ask for them in the kernel.
    ask: bool,
    enabled: bool,
}

impl Uring {
    /// A ring for requests on `fd` whose buffers lie in `regions`, or not.
    pub fn new(
        options: &RingOptions,
        fd: &OwnedFd,
        regions: &[Region],
    ) -> Result<Uring, OpenError> {
        let ring = set_up(options).map_err(|e| no_ring("setting up a ring", e))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(no_ring("looking what it can", Errno::NOSYS.into()));
        }
        let submitter = ring.submitter();
        submitter
            .register_files(&[fd.as_raw_fd()])
            .map_err(|e| no_ring("registering the file", e))?;
        register(&ring, regions)?;
        let ask = options.mode != Mode::Interrupt && options.sqpoll_idle.is_none();
        Ok(Uring { ring, ask, enabled: false })
    }

    /// Queues what is asked for the next [`Uring::enter`]; false when there is no
    /// room.
    ///
    /// # Safety
    /// The memory that is named stays valid, and nobody else's, until its
    /// completion was popped.
    #[inline]
    pub unsafe fn ask(&mut self, key: u32, ask: &Ask, plan: &Plan) -> bool {
        let entry = entry(ask, plan).user_data(key.into());
        // SAFETY: the caller promises it.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Asks for one to be cancelled, or for all, when the kernel is entered next.
    pub fn cancel(&mut self, key: Option<u32>) -> Result<(), Refused> {
        let entry = match key {
            Some(key) => AsyncCancel::new(key.into()).build(),
            None => AsyncCancel2::new(CancelBuilder::any().all()).build(),
        };
        let entry = entry.user_data(CANCEL);
        // SAFETY: the entry names no memory.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            return Ok(());
        }
        let entered = self.enter();
        // SAFETY: as before. Without room even now, they are only waited for.
        let _ = unsafe { self.ring.submission().push(&entry) };
        entered
    }

    /// Whether something happens only if the kernel is entered now: entries
    /// are queued, or completions wait inside.
    #[inline]
    pub fn wants_enter(&mut self, inside: bool) -> bool {
        let ask = self.ask && inside;
        let queue = self.ring.submission();
        ask || queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }

    /// Hands queued entries to the kernel, and takes what has completed.
    #[inline]
    pub fn enter(&mut self) -> Result<(), Refused> {
        self.enable()?;
        passing(self.ring.submitter().submit_and_wait(0))
    }

    /// The same, and sleeps until there is a completion or `timeout` has
    /// passed.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), Refused> {
        self.enable()?;
        let Some(timeout) = timeout else {
            return passing(self.ring.submitter().submit_and_wait(1));
        };
        let time = Timespec::from(timeout);
        let args = SubmitArgs::new().timespec(&time);
        passing(self.ring.submitter().submit_with_args(1, &args))
    }

    /// Whether a completion can be popped.
    #[inline]
    pub fn has_completion(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// The completions that are there: key and result.
    #[inline]
    pub fn completions(&mut self) -> cqueue::CompletionQueue<'_> {
        self.ring.completion()
    }

    /// Lets go of the file and the locked memory now rather than when the
    /// kernel has taken the ring apart. Where it cannot, that comes later.
    pub fn release(&mut self) {
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
    }

    /// Binds the ring to this thread, the first time.
    #[inline]
    fn enable(&mut self) -> Result<(), Refused> {
        if !self.enabled {
            passing(self.ring.submitter().register_enable_rings().map(|()| 0))?;
            self.enabled = true;
        }
        Ok(())
    }
}

/// What the kernel takes for it.
#[inline]
fn entry(ask: &Ask, plan: &Plan) -> Entry {
    match *ask {
        Ask::Read { to, len, at } => match plan.number(to as usize, len) {
            Some(i) => ReadFixed::new(FILE, to, len as u32, i).offset(at).build(),
            None => Read::new(FILE, to, len as u32).offset(at).build(),
        },
        Ask::Write { from, len, at, durable } => {
            let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let (flags, short) = (flags.bits() as i32, len as u32);
            match plan.number(from as usize, len) {
                Some(i) => WriteFixed::new(FILE, from, short, i).offset(at).rw_flags(flags).build(),
                None => Write::new(FILE, from, short).offset(at).rw_flags(flags).build(),
            }
        }
        Ask::Sync => Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        Ask::Fallocate { mode, at, len } => {
            Fallocate::new(FILE, len).offset(at).mode(mode.bits() as i32).build()
        }
    }
}

fn no_ring(doing: &'static str, source: io::Error) -> OpenError {
    OpenError::NoRing { doing, source }
}

/// Sorts what the kernel says to an enter.
#[inline]
fn passing(result: io::Result<usize>) -> Result<(), Refused> {
    let Err(e) = result else { return Ok(()) };
    match Errno::from_io_error(&e) {
        Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::TIME) => Ok(()),
        Some(Errno::EXIST) => Err(Refused::Thread),
        _ => Err(Refused::Ring),
    }
}

/// Sets up a ring with the best flags that the kernel knows.
fn set_up(options: &RingOptions) -> io::Result<IoUring> {
    let mut base = Setup::R_DISABLED;
    base |= match options.mode {
        Mode::Interrupt => Setup::empty(),
        Mode::Poll => Setup::IOPOLL,
        Mode::Hybrid => Setup::IOPOLL | Setup::from_bits_retain(HYBRID_IOPOLL),
    };
    if options.sqpoll_idle.is_some() {
        base |= Setup::SQPOLL;
    }
    let coop = Setup::SUBMIT_ALL | Setup::COOP_TASKRUN | Setup::TASKRUN_FLAG;
    let single = coop | Setup::SINGLE_ISSUER;
    let ladder = [single | Setup::DEFER_TASKRUN, single, coop, Setup::SUBMIT_ALL, Setup::empty()];
    // Work that waits for one thread to look is not for a ring of several.
    let several = options.shared || options.sqpoll_idle.is_some();
    let ladder = if several { &ladder[3..] } else { &ladder[..] };
    let mut refused = None;
    for &flags in ladder {
        match set_up_with(options, base | flags) {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => refused = Some(e),
            other => return other,
        }
    }
    Err(refused.expect("the ladder has a step"))
}

fn set_up_with(options: &RingOptions, flags: Setup) -> io::Result<IoUring> {
    let mut params = io_uring_params::default();
    params.flags = flags;
    // 32 bits of milliseconds were checked with the options.
    params.sq_thread_idle = options.sqpoll_idle.map_or(0, |idle| idle.as_millis() as u32);
    // Room for each request once, and for a few cancellations.
    let entries = (options.depth + 8).next_power_of_two() as u32;
    // SAFETY: without `NO_MMAP` the kernel reads and writes only `params`.
    let fd = unsafe { io_uring_setup(entries, &mut params) }?;
    // SAFETY: both are the kernel's `io_uring_params`, plain integers in the
    // order of its header; `Parameters` says it may be made so.
    let params: Parameters = unsafe { std::mem::transmute::<io_uring_params, Parameters>(params) };
    // SAFETY: the descriptor is a new ring's, ours alone, with its parameters.
    unsafe { IoUring::from_fd(fd.into_raw_fd(), params) }
}

/// Registers the regions, in their order.
fn register(ring: &IoUring, regions: &[Region]) -> Result<(), OpenError> {
    if regions.is_empty() {
        return Ok(());
    }
    let one = |range: std::ops::Range<usize>| iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(range.start),
        iov_len: range.len(),
    };
    let list: Vec<iovec> = regions.iter().map(|r| one(r.range())).collect();
    let bytes = list.iter().map(|v| v.iov_len).sum();
    // SAFETY: the list is read during the call. Each region's memory is mapped
    // as long as the region, and the queue keeps a clone of each for as long
    // as the ring.
    let done = unsafe {
        io_uring_register(
            BorrowedFd::borrow_raw(ring.as_raw_fd()),
            IoringRegisterOp::RegisterBuffers,
            list.as_ptr().cast(),
            list.len() as u32,
        )
    };
    done.map(drop).map_err(|e| OpenError::Register { bytes, source: e.into() })
}
