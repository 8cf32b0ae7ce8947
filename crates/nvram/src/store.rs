//! What a journal lies in: bytes that outlive the cut.

use std::hint::black_box;
use std::io;
use std::task::Poll;

/// Names a time in which a store loses nothing of what was written to it.
pub type Life = [u8; 16];

/// Bytes that outlive the drive above them. What was written is there when the
/// process has ended, however it ended; a write of up to 512 bytes that crosses
/// no multiple of 512 is there whole or not at all.
pub trait NonVolatile {
    /// How many bytes there are.
    fn bytes(&self) -> u64;

    /// Fills `bytes` from `at` on. Fails past the end.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `at`. Fails past the end.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes `first` at `at` and `second` behind it: at once where that can
    /// be. Fails past the end.
    fn write_both(&mut self, at: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        self.write(at, first)?;
        self.write(at + first.len() as u64, second)
    }

    /// Makes what was written durable against the loss of the host. The call
    /// that follows an answer begins a sync of all that was written before it;
    /// while it is pending, more may be written, and it is asked again.
    fn sync(&mut self) -> Poll<io::Result<()>>;

    /// In which life of its host this is; nothing that was written in the same
    /// life is lost, synced or not. `None`: not known.
    fn life(&self) -> Option<Life>;
}

impl<N: NonVolatile + ?Sized> NonVolatile for Box<N> {
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    #[inline]
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        (**self).read(at, bytes)
    }

    #[inline]
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write(at, bytes)
    }

    #[inline]
    fn write_both(&mut self, at: u64, first: &[u8], second: &[u8]) -> io::Result<()> {
        (**self).write_both(at, first, second)
    }

    #[inline]
    fn sync(&mut self) -> Poll<io::Result<()>> {
        (**self).sync()
    }

    fn life(&self) -> Option<Life> {
        (**self).life()
    }
}

/// Bytes that the system finds memory for at once, at least.
const PAGE: usize = 4096;

/// Memory that has a battery: for drives in memory, and for tests. It is as
/// durable as it is alive: a stack that is cut gives it back
/// ([`crate::Protected::cut`]).
#[derive(Clone, Debug)]
pub struct NvRam {
    bytes: Box<[u8]>,
    life: Option<Life>,
}

impl NvRam {
    /// So many zeros, in memory that is taken now: no write waits for the
    /// system to find it. A journal needs [`crate::format`] first.
    pub fn new(bytes: usize) -> NvRam {
        let mut bytes: Box<[u8]> = vec![0; bytes].into();
        bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = black_box(0));
        NvRam { bytes, life: Some(*b"outlives the cut") }
    }

    /// What another store has, in the same life.
    pub fn copy_of<N: NonVolatile>(store: &mut N) -> io::Result<NvRam> {
        let mut bytes = vec![0; store.bytes() as usize].into_boxed_slice();
        store.read(0, &mut bytes)?;
        Ok(NvRam { bytes, life: store.life() })
    }

    /// All of it, to be damaged.
    pub fn all(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Puts it in another life of its host: the host crashed.
    pub fn set_life(&mut self, life: Option<Life>) {
        self.life = life;
    }

    fn range(&mut self, at: u64, len: usize) -> io::Result<&mut [u8]> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let range = start..start.saturating_add(len);
        let past = || io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the memory");
        self.bytes.get_mut(range).ok_or_else(past)
    }
}

impl NonVolatile for NvRam {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(self.range(at, bytes.len())?);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.range(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn life(&self) -> Option<Life> {
        self.life
    }
}
