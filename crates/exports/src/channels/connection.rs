//! One channel, on a thread of its own.
//!
//! Data path: requests that are there go to the drive, of half the channel's places at
//! most in a turn, and what completes goes back at once. With the client awake that takes
//! no system call. With nothing to do the thread looks for requests for a while and then
//! sleeps; it sleeps as well while the drive's next event is far.
//!
//! Guarantees: what lies in the shared memory is read once and checked. A client that
//! breaks the protocol, or dies, ends its own channel; what it has inside the drive is
//! waited for first.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use channels::handshake::{is_there, wake};
use channels::linger::linger;
use channels::wire::{COMPLETION_WORDS, Completion, End, REQUEST_WORDS, Request};
use channels::{Layout, Region};
use port::{BlockDone, BlockReq, Port, Ring};
use rustix::event::{PollFd, PollFlags};
use rustix::thread::sched_yield;
use tags::Stamped;

use super::slots::Slots;
use crate::drive::{DriveLost, Seat, Wait, clear, sleep};
use crate::listen::StopHandle;

/// Turns that found nothing before somebody else may have the processor.
const TURNS: u32 = 16;

/// How a channel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client has gone.
    Left,
    /// The server ends it.
    Ended(End),
}

/// What a channel is made of.
pub struct Parts<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> {
    /// The client's socket.
    pub socket: OwnedFd,
    /// The memory, and what lies where.
    pub region: Region,
    /// See [`Parts::region`].
    pub layout: Layout,
    /// Memory for requests that are inside.
    pub slots: Slots,
    /// A place at the drive.
    pub seat: Seat<'a, P>,
    /// Says when the server stops.
    pub stop: &'a StopHandle,
    /// How long it looks for requests before it sleeps.
    pub linger: Duration,
}

/// A channel that is served.
pub struct Connection<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> {
    parts: Parts<'a, P>,
    requests: Stamped<REQUEST_WORDS>,
    completions: Stamped<COMPLETION_WORDS>,
    /// Commands that the drive has not taken.
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// Set when no more is taken.
    leaving: Option<Ending>,
    /// Turns in a row in which nothing ended.
    vain: u32,
}

impl<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> Connection<'a, P> {
    /// Of these parts, with all memory that it needs.
    pub fn new(parts: Parts<'a, P>) -> Connection<'a, P> {
        let depth = parts.layout.depth;
        Connection {
            requests: Stamped::new(depth),
            completions: Stamped::new(depth),
            cmds: Ring::new(depth as usize),
            done: Ring::new(depth as usize),
            leaving: None,
            vain: 0,
            parts,
        }
    }

    /// Serves it until it ends, and writes down why.
    pub fn run(mut self) -> Ending {
        let ending = self.serve().unwrap_or(Ending::Ended(End::DriveLost));
        // A client that has gone, or may not go on, has no more of the server's memory. One
        // that is told of the server's end, or the drive's, has its data: it may not have
        // taken what was read yet.
        match ending {
            Ending::Left => self.parts.region.give_up(0),
            Ending::Ended(End::Garbage) => self.parts.region.give_up(self.parts.layout.buffers),
            Ending::Ended(End::Stopped | End::DriveLost) => {}
        }
        if let Ending::Ended(end) = ending {
            let place = self.parts.region.number(Layout::ENDED);
            place.store(end.code(), Ordering::Release);
        }
        ending
    }

    fn serve(&mut self) -> Result<Ending, DriveLost> {
        loop {
            self.take_requests();
            // Also where all that is asked is refused, so that nothing is ever inside.
            if self.parts.slots.count() == 0 && self.parts.stop.is_stopped() {
                self.leaving.get_or_insert(Ending::Ended(End::Stopped));
            }
            if self.parts.slots.count() > 0 {
                self.turn()?;
            } else if let Some(ending) = self.leaving {
                return Ok(ending);
            } else {
                self.idle();
            }
        }
    }

    #[inline(always)]
    fn asked(&self) -> &[tags::Word] {
        let words = Stamped::<REQUEST_WORDS>::words(self.parts.layout.depth);
        self.parts.region.words(Layout::REQUESTS, words)
    }

    /// Whether there is a request that there is room for.
    #[inline(always)]
    fn is_asked(&self) -> bool {
        self.parts.slots.has_room() && self.requests.has_next(self.asked())
    }

    /// Takes requests in: as many as there is room for, and for one turn no more than half
    /// of the places. So it comes to an end whatever the client does; and a client that has
    /// all of them out is busy with one half while the drive is with the other, where with
    /// all at once each would wait for the other by turns.
    #[inline]
    fn take_requests(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        let Parts { layout, region, slots, seat, .. } = &mut self.parts;
        let words = Stamped::<REQUEST_WORDS>::words(layout.depth);
        let queue = region.words(Layout::REQUESTS, words);
        let fits = |at, len| layout.has(at, len);
        let data = |at, to: &mut [u8]| region.read(layout.buffers + at as usize, to);
        let mut wrong = false;
        for _ in 0..layout.depth.div_ceil(2) {
            if !slots.has_room() {
                break;
            }
            let words = match self.requests.take(queue) {
                Ok(Some(words)) => words,
                Ok(None) => break,
                Err(_) => {
                    self.leaving = Some(Ending::Ended(End::Garbage));
                    break;
                }
            };
            let cmds = (seat.number(), &mut self.cmds);
            let taken = Request::parse(words).and_then(|request| {
                slots.admit(request, cmds, fits, data).map_err(|status| (request.id, status))
            });
            if let Err((id, status)) = taken {
                let words = Stamped::<COMPLETION_WORDS>::words(layout.depth);
                let queue = region.words(layout.completions, words);
                self.completions.put(queue, Completion { id, status }.to_words());
                wrong = true;
            }
        }
        if wrong {
            self.wake_client();
        }
    }

    #[inline(always)]
    fn wake_client(&self) {
        if self.parts.region.armed(Layout::CLIENT_SLEEPS).take() {
            wake(&self.parts.socket);
        }
    }

    /// A turn at the drive.
    #[inline]
    fn turn(&mut self) -> Result<(), DriveLost> {
        let Parts { region, layout, slots, seat, .. } = &mut self.parts;
        seat.set_heavy(slots.is_heavy());
        let turn = seat.turn(&mut self.cmds, &mut self.done)?;
        if turn.stopping {
            self.leaving.get_or_insert(Ending::Ended(End::Stopped));
        }
        if self.done.is_empty() {
            return self.wait();
        }
        let words = Stamped::<COMPLETION_WORDS>::words(layout.depth);
        let queue = region.words(layout.completions, words);
        let completions = &mut self.completions;
        self.done.take_all(|done| {
            slots.complete(done, |ended| {
                if let Some((at, data)) = ended.data {
                    region.write(layout.buffers + at as usize, data);
                }
                let completion = Completion { id: ended.id, status: ended.status };
                completions.put(queue, completion.to_words());
            });
        });
        self.vain = 0;
        self.wake_client();
        Ok(())
    }

    /// Waits for the drive, and for requests that there is room for.
    fn wait(&mut self) -> Result<(), DriveLost> {
        match self.parts.seat.wait()? {
            Wait::Spin => {
                self.vain += 1;
                if self.vain.is_multiple_of(TURNS) {
                    sched_yield();
                }
                std::hint::spin_loop();
            }
            Wait::Sleep(time) => self.sleep(time),
        }
        Ok(())
    }

    /// With nothing inside: looks for requests for a while, and then sleeps.
    fn idle(&mut self) {
        let stop = self.parts.stop;
        if !linger(self.parts.linger, || self.is_asked() || stop.is_stopped()) {
            self.sleep(None);
        }
    }

    /// Sleeps until the client asks or goes, the bell rings, the server stops, or `time`
    /// has passed.
    #[cold]
    fn sleep(&mut self, time: Option<Duration>) {
        let armed = self.parts.region.armed(Layout::SERVER_SLEEPS);
        armed.arm();
        if self.leaving.is_none() && self.is_asked() {
            armed.disarm();
            return;
        }
        let Parts { socket, seat, stop, .. } = &self.parts;
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [of(seat.bell()), of(stop.bell()), PollFd::new(socket, PollFlags::IN)];
        // Who leaves waits for the drive alone.
        let count = if self.leaving.is_some() { 1 } else { fds.len() };
        sleep(&mut fds[..count], time);
        let [rang, stops, speaks] = fds.map(|fd| !fd.revents().is_empty());
        armed.disarm();
        if rang {
            clear(seat.bell());
        }
        if stops {
            self.leaving.get_or_insert(Ending::Ended(End::Stopped));
        }
        if speaks && !is_there(socket) {
            self.leaving.get_or_insert(Ending::Left);
        }
    }
}
