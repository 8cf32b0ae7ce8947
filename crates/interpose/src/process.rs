//! Threads of the program: their memory, their descriptors, and what else a call needs of them.
//! Addresses are theirs and may be anything: what cannot be read is `EFAULT`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal,
};

use crate::notify::last_error;

/// Whether this process may look into any of its user's, also into such as do not want it:
/// `CAP_SYS_PTRACE`.
pub(crate) fn sees_all() -> bool {
    const CAPABILITY: u32 = 19;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let all = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let all = all.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    all.is_some_and(|all| all >> CAPABILITY & 1 != 0)
}

/// As many threads' descriptors are kept.
const KEPT: usize = 512;
/// The longest path, with its zero.
const PATH_MAX: usize = 4096;
/// The most pieces that a call may gather.
const PIECES_MAX: u64 = 1024;
/// The most bytes that one call moves.
pub(crate) const CALL_MAX: u64 = 0x7fff_f000;

#[derive(Default)]
pub(crate) struct Processes {
    threads: HashMap<u32, Thread>,
    /// Threads for which the kernel carries out what may change masks of files' bits, their own or
    /// those of threads that share them: until they make another call.
    masking: HashSet<u32>,
}

struct Thread {
    descriptor: OwnedFd,
    process: u32,
    /// Whether the descriptor is the thread's, and not its process'.
    is_its_own: bool,
    /// What new files of it do not get, if that is known.
    umask: Option<Mode>,
}

impl Processes {
    fn thread(&mut self, thread: u32) -> Result<&mut Thread, Errno> {
        if self.threads.len() >= KEPT && !self.threads.contains_key(&thread) {
            self.threads.clear();
        }
        match self.threads.entry(thread) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => Ok(entry.insert(open(thread)?)),
        }
    }

    /// A thread that ended may have left its number to another.
    fn anew(&mut self, thread: u32) -> Result<&mut Thread, Errno> {
        self.threads.remove(&thread);
        self.thread(thread)
    }

    /// A thread makes a call, and so the one before is over. It is kept in mind, to be found when
    /// all must end.
    pub fn note(&mut self, thread: u32) {
        if !self.masking.is_empty() {
            self.masking.remove(&thread);
        }
        let _ = self.thread(thread);
    }

    /// The kernel will carry out what may change masks: `umask`, or an exec, which may give this
    /// thread's number to another.
    pub fn masks_change(&mut self, thread: u32) {
        self.threads.values_mut().for_each(|it| it.umask = None);
        self.masking.insert(thread);
    }

    /// The permission bits that new files of a thread do not get. To ask takes long, and so it is
    /// asked once. That holds as long as nobody changes masks, as all such calls are told; and no
    /// other thread has got the number, which the descriptor of one that ended would say.
    pub fn umask(&mut self, thread: u32) -> Result<Mode, Errno> {
        // Who executed a program and was not its process' first thread has that one's number now.
        self.masking.retain(|&thread| is_there(thread));
        let is_sure = self.masking.is_empty();
        let kept = self.thread(thread)?;
        if let Some(mask) = kept.umask.filter(|_| is_sure && kept.lives()) {
            return Ok(mask);
        }
        let mask = umask(thread)?;
        if is_sure {
            let kept = self.anew(thread)?;
            kept.umask = Some(mask).filter(|_| kept.is_its_own);
        }
        Ok(mask)
    }

    /// Sends a last signal to the processes of all that made a call; those that were there.
    pub fn kill(&self) -> Vec<u32> {
        let is_there = |it: &&Thread| pidfd_send_signal(&it.descriptor, Signal::KILL).is_ok();
        self.threads.values().filter(is_there).map(|it| it.process).collect()
    }

    /// The process that the thread is of.
    pub fn process(&mut self, thread: u32) -> Result<u32, Errno> {
        Ok(self.anew(thread)?.process)
    }

    /// The open file behind a descriptor, with its position.
    pub fn file(&mut self, thread: u32, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        let get = |of: &Thread| pidfd_getfd(&of.descriptor, number, PidfdGetfdFlags::empty());
        match get(self.thread(thread)?) {
            Err(Errno::SRCH) => get(self.anew(thread)?),
            other => other,
        }
    }
}

impl Thread {
    fn lives(&self) -> bool {
        let mut ends = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut ends, Some(&Timespec::default())) == Ok(0)
    }
}

fn open(thread: u32) -> Result<Thread, Errno> {
    let process = status(thread, "Tgid:").and_then(|it| it.parse().ok()).ok_or(Errno::SRCH)?;
    let pid = |number: u32| Pid::from_raw(number as i32).ok_or(Errno::SRCH);
    // Threads may have descriptors of their own. Before Linux 6.9 only processes are named so.
    let flag = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);
    let (descriptor, is_its_own) = match pidfd_open(pid(thread)?, flag) {
        Err(Errno::INVAL) => (pidfd_open(pid(process)?, PidfdFlags::empty())?, false),
        other => (other?, true),
    };
    Ok(Thread { descriptor, process, is_its_own, umask: None })
}

/// A line of what the system says of a thread.
fn status(thread: u32, key: &str) -> Option<String> {
    // At once: what is asked for stands at its beginning.
    let (mut file, mut bytes) = (fs::File::open(format!("/proc/{thread}/status")).ok()?, [0; 4096]);
    let len = file.read(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().to_string())
}

/// Whether some thread has that number.
fn is_there(thread: u32) -> bool {
    fs::exists(format!("/proc/{thread}")).unwrap_or(true)
}

/// The permission bits that its new files do not get.
fn umask(thread: u32) -> Result<Mode, Errno> {
    let text = status(thread, "Umask:").ok_or(Errno::SRCH)?;
    u32::from_str_radix(&text, 8).map(Mode::from_bits_truncate).map_err(|_| Errno::IO)
}

/// The folder that it is in.
pub(crate) fn current_folder(thread: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, format!("/proc/{thread}/cwd"), flags, Mode::empty())
}

/// Reads up to what cannot be read; how much.
fn read_some(thread: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: it writes to `into` only; the other address is of another process.
    match unsafe { libc::process_vm_readv(thread as i32, &local, 1, &remote, 1, 0) } {
        n if n >= 0 => Ok(n as usize),
        _ => Err(last_error()),
    }
}

/// Reads all of it.
pub(crate) fn read(thread: u32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    match read_some(thread, address, into)? {
        n if n == into.len() => Ok(()),
        _ => Err(Errno::FAULT),
    }
}

/// Writes a struct of the kernel's to the program's memory, whole.
pub(crate) fn write<T: Copy>(thread: u32, address: u64, value: &T) -> Result<(), Errno> {
    let len = size_of::<T>();
    let local = libc::iovec { iov_base: std::ptr::from_ref(value).cast_mut().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: len };
    // SAFETY: it reads `value` only; the other address is of another process.
    match unsafe { libc::process_vm_writev(thread as i32, &local, 1, &remote, 1, 0) } {
        n if n == len as isize => Ok(()),
        0.. => Err(Errno::FAULT),
        _ => Err(last_error()),
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// A number of 8 bytes.
pub(crate) fn read_word(thread: u32, address: u64) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    read(thread, address, &mut bytes)?;
    Ok(word(&bytes))
}

/// A path, without its zero.
pub(crate) fn read_path(thread: u32, address: u64) -> Result<Vec<u8>, Errno> {
    let mut out = Vec::new();
    let mut piece = [0; 256];
    while out.len() < PATH_MAX {
        // No piece goes over the end of a page: the next may not be there.
        let at = address.wrapping_add(out.len() as u64);
        let len = (piece.len() as u64).min(PATH_MAX as u64 - at % PATH_MAX as u64) as usize;
        read(thread, at, &mut piece[..len])?;
        match piece[..len].iter().position(|&byte| byte == 0) {
            Some(end) => {
                out.extend_from_slice(&piece[..end]);
                return Ok(out);
            }
            None => out.extend_from_slice(&piece[..len]),
        }
    }
    Err(Errno::NAMETOOLONG)
}

/// Bytes of the program's memory that one call writes.
pub(crate) struct Source {
    thread: u32,
    /// Address and length of what is left, first piece last.
    pieces: Vec<(u64, u64)>,
}

impl Source {
    pub fn one(thread: u32, address: u64, len: u64) -> Self {
        Self { thread, pieces: vec![(address, len.min(CALL_MAX))] }
    }

    /// What an array of `struct iovec` names.
    pub fn many(thread: u32, address: u64, count: u64) -> Result<Self, Errno> {
        if count > PIECES_MAX {
            return Err(Errno::INVAL);
        }
        let mut array = vec![0; count as usize * 16];
        read(thread, address, &mut array)?;
        let (mut pieces, mut room) = (Vec::with_capacity(count as usize), CALL_MAX);
        for entry in array.chunks_exact(16) {
            let len = word(&entry[8..]);
            if len > i64::MAX as u64 {
                return Err(Errno::INVAL);
            }
            pieces.push((word(&entry[..8]), len.min(room)));
            room -= len.min(room);
        }
        pieces.reverse();
        Ok(Self { thread, pieces })
    }

    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.1).sum()
    }

    /// The next bytes, as many as fit: 0 at the end. What cannot be read ends it.
    pub fn fill(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let mut filled = 0;
        while filled < into.len() {
            let Some((address, len)) = self.pieces.pop() else { break };
            let wanted = len.min((into.len() - filled) as u64) as usize;
            let got = match read_some(self.thread, address, &mut into[filled..filled + wanted]) {
                Err(Errno::FAULT) if wanted > 0 => 0,
                other => other?,
            };
            filled += got;
            if got < wanted {
                self.pieces.clear();
                if filled == 0 {
                    return Err(Errno::FAULT);
                }
            } else if (got as u64) < len {
                self.pieces.push((address.wrapping_add(got as u64), len - got as u64));
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::gettid;

    use super::*;

    fn own() -> u32 {
        gettid().as_raw_nonzero().get() as u32
    }

    /// Who may change masks and has ended, as a thread that executes does, changes none any more.
    #[test]
    fn masks_are_kept_when_who_may_change_them_has_gone() {
        let (mut processes, this) = (Processes::default(), own());
        let gone = std::thread::spawn(own).join().unwrap();
        processes.masks_change(this);
        processes.masks_change(gone);
        let mask = processes.umask(this).unwrap();
        assert_eq!(processes.threads[&this].umask, None, "this one may change it still");
        processes.note(this);
        assert_eq!(processes.umask(this), Ok(mask));
        assert!(processes.masking.is_empty());
        let kept = &processes.threads[&this];
        assert_eq!(kept.umask, Some(mask).filter(|_| kept.is_its_own));
    }
}
