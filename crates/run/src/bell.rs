//! A bell that is rung by another thread, and heard by who waits for files.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Rings for who has its file.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Rung>);

#[derive(Debug)]
struct Rung {
    file: OwnedFd,
    has_rung: AtomicBool,
}

impl Bell {
    /// A bell, and the file that can be read when it has rung: what is in it is a number of 8
    /// bytes. Fails where there is no room for files.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let other = file.as_fd().try_clone_to_owned()?;
        Ok((Self(Arc::new(Rung { file, has_rung: AtomicBool::new(false) })), other))
    }

    /// It rings.
    pub fn ring(&self) {
        self.0.has_rung.store(true, Ordering::SeqCst);
        // It has no room for more only when nobody has heard it for ever.
        let _ = rustix::io::write(&self.0.file, &1u64.to_ne_bytes());
    }

    /// Whether it has rung since it was asked last.
    pub fn has_rung(&self) -> bool {
        self.0.has_rung.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_file_hears_it() {
        let (bell, file) = Bell::new().unwrap();
        let mut number = [0; 8];
        let read = |number: &mut [u8; 8]| rustix::io::read(&file, number);
        assert!(!bell.has_rung() && read(&mut number).is_err());
        let other = bell.clone();
        std::thread::spawn(move || other.ring()).join().unwrap();
        assert_eq!((bell.has_rung(), bell.has_rung()), (true, false));
        assert_eq!((read(&mut number), u64::from_ne_bytes(number)), (Ok(8), 1));
        assert!(read(&mut number).is_err());
    }
}
