//! What the supervisor waits for: calls, and beside them the end of the program, signals, a time,
//! the watcher's bell, and room where copies go. These come seldom, so they are one descriptor: to
//! look at each of them with every call would take longer than much of the call's own work.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};

use crate::timer::Timer;

const END: u64 = 0;
const SIGNAL: u64 = 1;
const TIME: u64 = 2;
const BELL: u64 = 3;
/// With the number of a descriptor that has room.
const ROOM: u64 = 1 << 32;

/// What came.
#[derive(Default)]
pub(crate) struct Came {
    pub call: bool,
    /// There is nobody left who could make one.
    pub is_over: bool,
    pub end: bool,
    pub signal: bool,
    /// Descriptors that may have room now, by their numbers.
    pub room: Vec<RawFd>,
}

pub(crate) struct Events {
    beside: OwnedFd,
    timer: Timer,
    bell: Option<OwnedFd>,
}

impl Events {
    pub fn of(signals: impl AsFd, bell: Option<OwnedFd>) -> Result<Self, Errno> {
        let (beside, timer) = (epoll::create(CreateFlags::CLOEXEC)?, Timer::new()?);
        let it = Self { beside, timer, bell };
        it.add(signals, SIGNAL)?;
        it.add(it.timer.file(), TIME)?;
        it.bell.as_ref().map_or(Ok(()), |bell| it.add(bell, BELL))?;
        Ok(it)
    }

    fn add(&self, file: impl AsFd, what: u64) -> Result<(), Errno> {
        epoll::add(&self.beside, file, EventData::new_u64(what), EventFlags::IN)
    }

    /// The end of this process is waited for, too.
    pub fn await_end(&self, process: impl AsFd) -> Result<(), Errno> {
        self.add(process, END)
    }

    /// Room there is waited for, once.
    pub fn await_room(&self, file: &OwnedFd) -> Result<(), Errno> {
        let data = EventData::new_u64(ROOM | file.as_raw_fd() as u64);
        epoll::add(&self.beside, file, data, EventFlags::OUT)
    }

    /// It has come, or nobody waits for it any more.
    pub fn forget_room(&self, file: &OwnedFd) -> Result<(), Errno> {
        epoll::delete(&self.beside, file)
    }

    /// It was reaped: it would be ready for ever.
    pub fn forget_end(&self, process: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.beside, process)
    }

    /// Waits for any of them, until that time. It may come back with nothing.
    pub fn wait(&mut self, listener: BorrowedFd, wake: Option<Instant>) -> Result<Came, Errno> {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut timeout = None;
        if let Some(at) = wake {
            match at.checked_duration_since(Instant::now()) {
                Some(left) => self.timer.wake_by(at, left)?,
                None => timeout = Some(&NOW),
            }
        }
        let listener = PollFd::from_borrowed_fd(listener, PollFlags::IN);
        let mut ready = [listener, PollFd::new(&self.beside, PollFlags::IN)];
        match poll(&mut ready, timeout) {
            Err(Errno::INTR) => return Ok(Came::default()),
            polled => polled?,
        };
        let [calls, beside] = ready.map(|it| it.revents());
        let mut came = Came {
            call: calls.contains(PollFlags::IN),
            is_over: calls.intersects(PollFlags::HUP | PollFlags::ERR),
            ..Came::default()
        };
        if !beside.is_empty() {
            self.take(&mut came)?;
        }
        Ok(came)
    }

    fn take(&mut self, came: &mut Came) -> Result<(), Errno> {
        let mut events = [MaybeUninit::uninit(); 4];
        let (events, _) = epoll::wait(&self.beside, &mut events, Some(&Timespec::default()))?;
        for event in events {
            match event.data.u64() {
                END => came.end = true,
                SIGNAL => came.signal = true,
                TIME => self.timer.rang(),
                room if room >= ROOM => came.room.push((room - ROOM) as RawFd),
                // What it says is that there is something to look at.
                _ => drop(self.bell.as_ref().map(|bell| read(bell, &mut [0; 8]))),
            }
        }
        Ok(())
    }
}
