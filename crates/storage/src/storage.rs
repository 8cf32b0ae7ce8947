//! The driver: a file or device, opened, with its queues.
//!
//! Guarantees: what can be refused is refused here, when it is opened; the
//! queues then exist. Fails with [`OpenError`].

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blkmq::Driver;
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Time};

use rustix::io::ReadWriteFlags;

use crate::aio::Aio;
use crate::backing::Backing;
use crate::calls::Calls;
use crate::error::OpenError;
use crate::gate::Gate;
use crate::options::{Engine, MOST_BYTES, Poll, StorageOptions};
use crate::pool::Region;
use crate::queue::StorageQueue;
use crate::request::{Plan, Ways};
use crate::ring::{Mode, RingOptions, Uring};

/// Bytes of zeros that are written at once where zeros must be written.
const ZEROS: usize = 1 << 20;

/// How long a polled read may take when it is tried out.
const PROBE_WAIT: Duration = Duration::from_secs(2);

/// A file or block device as a driver of the block layer.
pub struct Storage {
    shape: Shape,
    queues: Vec<StorageQueue>,
    kinds: [usize; 3],
    mode: Mode,
    /// What offset and length of a read or write are multiples of.
    unit: u64,
    is_in_memory: bool,
}

impl Storage {
    /// Opens a block device, or a file of which the whole blocks of 4096 bytes
    /// are used. Neither is created or made longer.
    ///
    /// What is opened for writing is locked against others who ask: a file by
    /// an advisory lock, a device by an exclusive open. A device that is
    /// mounted is refused.
    pub fn open(path: impl AsRef<Path>, options: StorageOptions) -> Result<Storage, OpenError> {
        let path = path.as_ref();
        options.check()?;
        let backing = Arc::new(Backing::open(path, &options)?);
        let mode = poll_mode(path, &backing, &options)?;
        let shape = Shape {
            bytes: backing.bytes,
            kept: BLOCK_BYTES as u32,
            max_bytes: MOST_BYTES,
            depth: options.depth,
        };
        let modes = std::iter::repeat_n(Mode::Interrupt, options.queues)
            .chain(std::iter::repeat_n(mode, options.poll_queues));
        let queues = modes
            .map(|mode| queue(shape, &backing, &options, mode))
            .collect::<Result<_, OpenError>>()?;
        let kinds = [options.queues, 0, options.poll_queues];
        let (unit, is_in_memory) = (backing.unit(), backing.is_in_memory());
        Ok(Storage { shape, queues, kinds, mode, unit, is_in_memory })
    }

    /// Whether the queues for polling poll: false with [`Poll::Auto`] on a
    /// device that cannot, and where there are none.
    pub fn polls(&self) -> bool {
        self.mode != Mode::Interrupt
    }

    /// What offset and length of a read or write are multiples of, in bytes; 1 through
    /// the page cache.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether it is a file that lies in memory (tmpfs, ramfs): no drive is behind it.
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
}

impl Driver for Storage {
    type Queue = StorageQueue;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn queues(&self) -> [usize; 3] {
        self.kinds
    }

    fn open(self) -> Vec<StorageQueue> {
        self.queues
    }
}

/// A queue, with the rings that its mode needs.
fn queue(
    shape: Shape,
    backing: &Arc<Backing>,
    options: &StorageOptions,
    mode: Mode,
) -> Result<StorageQueue, OpenError> {
    let StorageOptions { depth, shared, sqpoll_idle, ref regions, .. } = *options;
    let gate = |mode, sqpoll_idle, regions: &[Region]| {
        let calls = |flags| Gate::Calls(Calls::new(backing.clone(), depth, flags));
        Ok::<Gate, OpenError>(match options.engine {
            Engine::IoUring => {
                let ring = RingOptions { depth, mode, shared, sqpoll_idle };
                Gate::Uring(Uring::new(&ring, backing.fd(), regions)?)
            }
            Engine::Libaio => Gate::Aio(Aio::new(backing.clone(), depth)?),
            Engine::Psync => calls(None),
            Engine::Pvsync2 if mode == Mode::Poll => calls(Some(ReadWriteFlags::HIPRI)),
            Engine::Pvsync2 => calls(Some(ReadWriteFlags::empty())),
        })
    };
    let main = gate(mode, sqpoll_idle, regions)?;
    let side = match mode {
        Mode::Interrupt => None,
        _ => Some(gate(Mode::Interrupt, None, &[])?),
    };
    let plan = Plan {
        registered: regions.iter().map(Region::range).collect(),
        zeros: Buffer::zeroed(ZEROS)?,
        ways: Ways::new(),
    };
    Ok(StorageQueue::new(shape, main, side, plan, regions.clone(), backing.clone()))
}

/// How queues for polling work on this device.
fn poll_mode(
    path: &Path,
    backing: &Arc<Backing>,
    options: &StorageOptions,
) -> Result<Mode, OpenError> {
    let mode = match options.poll {
        _ if options.poll_queues == 0 => return Ok(Mode::Interrupt),
        Poll::Auto | Poll::Iopoll => Mode::Poll,
        Poll::Hybrid => Mode::Hybrid,
    };
    let why = match backing.has_poll_queues() {
        Some(false) => "its driver has no poll queues",
        // To these calls it is a wish, and a read tells nothing.
        None if options.engine == Engine::Pvsync2 => "nothing says that its driver has poll queues",
        _ => match probe(backing, options.engine, mode) {
            Ok(()) => return Ok(mode),
            Err(why) => why,
        },
    };
    if options.poll == Poll::Auto {
        return Ok(Mode::Interrupt);
    }
    Err(OpenError::NoPoll { path: path.into(), why })
}

/// Reads a block in this mode, to see whether it works; why not, otherwise.
fn probe(backing: &Arc<Backing>, engine: Engine, mode: Mode) -> Result<(), &'static str> {
    let shape =
        Shape { bytes: backing.bytes, kept: BLOCK_BYTES as u32, max_bytes: BLOCK_BYTES, depth: 1 };
    let options = StorageOptions { engine, depth: 1, shared: true, ..StorageOptions::default() };
    let mut queue = queue(shape, backing, &options, mode)
        .map_err(|_| "the kernel sets up no ring for this kind of polling")?;
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    let buffer = Buffer::zeroed(BLOCK_BYTES as usize).map_err(|_| "there is no memory")?;
    let len = BLOCK_BYTES;
    cmds.put(|| BlockReq::new(0, BlockOp::Read, 0, len, buffer));
    queue.submit(Time::ZERO, &mut cmds);
    let start = Instant::now();
    loop {
        // Looked at first: when this thread stood still, the read may be done.
        let is_late = start.elapsed() >= PROBE_WAIT;
        queue.advance(Time::ZERO, &mut done);
        match done.pop() {
            Some(done) if done.status.is_ok() => return Ok(()),
            Some(_) => return Err("a polled read failed"),
            None if is_late => return Err("a polled read does not complete"),
            None => std::thread::yield_now(),
        }
    }
}
