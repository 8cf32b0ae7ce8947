//! One client's connection, on a thread of its own.
//!
//! Data path: one `recv` of all that is there, one turn at the drive for all
//! requests in it, replies sent in groups. A lone request that completes at
//! once costs one `recv` that gives it and one `sendmsg`. After the negotiation only
//! what requests of more bytes than those before need is asked for.
//!
//! Nothing here blocks in a send: a client that sends before it reads is heard while
//! its replies wait, as far as there is memory and room for more of them.
//!
//! What it needs beyond some short buffers it takes from the budget of all
//! connections ([`super::budget`]); where that is used up, it waits. Where the
//! system itself has none, it waits for a while, and then refuses the request.
//!
//! Ends when the client leaves, breaks the protocol, or the server stops; and
//! then only after the drive has given back all that it took. A write whose
//! data did not arrive whole is never given to the drive. Of trims and writes of
//! zeros, which may take the drive minutes, what it was not given is dropped
//! then and answered with ESHUTDOWN; only a client that says that it leaves has
//! all of them done. Of a client that is gone the reads are dropped that the
//! drive was not given; and the writes, where the connection broke. For a long
//! read of such a one no memory is made.

mod answers;

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use port::{BlockDone, BlockReq, OutOfMemory, Port, Ring};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
use rustix::thread::sched_yield;
use thiserror::Error;

use super::budget::{LITTLE, Membership};
use super::exports::{Exports, Inside};
use super::input::{Input, negotiate, some_unless_empty};
use super::patience::Patience;
use super::protocol::{ENOMEM, ESHUTDOWN, Reply};
use super::requests::Requests;
use super::session::{Export, Io, Step, Transmission};
use crate::drive::{DriveLost, Seat, SharedDrive, Wait, clear, sleep};
use answers::Answer;

/// Replies that may wait to be sent before no further request is looked at.
const ANSWERS: usize = 512;
/// How long an idle connection keeps memory that it may need again, when nobody
/// waits for it and when somebody does.
const KEPT: Duration = Duration::from_secs(1);
const PRESSED: Duration = Duration::from_millis(10);
/// How long one waits whom the system gave no memory before it asks again, and in
/// all before the request is refused.
const DENIED: Duration = Duration::from_millis(10);
const DENIED_FOR: Duration = Duration::from_secs(2);
/// How long a client that takes no answers is waited for before memory is, and
/// before it is known to be silent.
const MOMENT: Duration = Duration::from_millis(100);
const SLOW: Duration = Duration::from_secs(1);

/// Why a connection ended, when not by the client's wish.
#[derive(Debug, Error)]
pub enum Ended {
    /// The client broke the protocol or took too long to negotiate.
    #[error("the client broke the protocol")]
    Fault,
    /// All seats at the drive are taken.
    #[error("too many connections")]
    Full,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(#[from] Errno),
    /// There is no memory for another connection.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The drive is lost.
    #[error(transparent)]
    Drive(#[from] DriveLost),
}

/// Serves one client until it leaves, or what it uses is exported no more.
pub fn serve<P>(
    member: Membership<'_>,
    exports: &Exports,
    export: &Export,
    drive: &SharedDrive<P>,
) -> Result<(), Ended>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let socket = member.member();
    let sock = socket.as_fd();
    let mut input = Input::new();
    let Some(export) = negotiate(sock, export, &mut input, member.budget().greeting())? else {
        return Ok(());
    };
    let Some(inside) = exports.enter(export, Arc::clone(&socket)) else { return Ok(()) };
    let requests = Requests::new(export.shape())?;
    let limit = requests.limit();
    let seat = drive.sit(limit)?.ok_or(Ended::Full)?;
    Connection {
        sock,
        seat,
        session: Transmission::new(export),
        requests,
        input,
        filling: None,
        held: None,
        denied: None,
        cmds: Ring::new(limit),
        done: Ring::new(limit),
        answers: VecDeque::with_capacity(ANSWERS),
        sent: 0,
        inside: 0,
        again: false,
        has_spoken: false,
        patience: Patience::default(),
        leaving: None,
        has_left: false,
        gives_up: false,
        member,
        _inside: inside,
    }
    .run()
}

/// A write whose data are arriving.
struct Filling {
    slot: u16,
    got: u32,
}

struct Connection<'a, P: Port<Cmd = BlockReq, Done = BlockDone>> {
    sock: BorrowedFd<'a>,
    seat: Seat<'a, P>,
    session: Transmission,
    requests: Requests,
    input: Input,
    filling: Option<Filling>,
    /// A request for which there is no room yet.
    held: Option<Io>,
    /// When the system first gave no memory for that one. Since then it may have
    /// waited for its turn, too.
    denied: Option<Instant>,
    /// Commands that the drive has not taken.
    cmds: Ring<BlockReq>,
    done: Ring<BlockDone>,
    answers: VecDeque<Answer>,
    /// Bytes of the first of these that the client has taken.
    sent: usize,
    /// Commands that the drive has.
    inside: usize,
    /// Whether there are commands for the drive that it was not shown.
    again: bool,
    has_spoken: bool,
    patience: Patience,
    /// Set when no more is read: how this ends.
    leaving: Option<Result<(), Ended>>,
    /// The client has said that it leaves: what it wrote is wanted.
    has_left: bool,
    /// The server stops, or nobody is there to answer: what takes the drive long
    /// is not begun any more.
    gives_up: bool,
    /// Dropped last but one: what it gives back to the budget must be free by then.
    member: Membership<'a>,
    /// Nothing of it is under way any more when this is dropped.
    _inside: Inside<'a>,
}

impl<P: Port<Cmd = BlockReq, Done = BlockDone>> Connection<'_, P> {
    fn run(mut self) -> Result<(), Ended> {
        loop {
            self.parse();
            if !self.cmds.is_empty() || self.inside > 0 {
                self.turn()?;
            }
            let full = self.answers.len() >= ANSWERS || self.held.is_some();
            self.send();
            if self.again {
                // Long requests, piece by piece.
                self.seat.let_others();
                self.look_after_client();
                continue;
            }
            if full && self.room_came() {
                continue;
            }
            if self.inside == 0 && self.cmds.is_empty() {
                let is_blocked = !self.answers.is_empty();
                if !is_blocked && let Some(end) = self.leaving {
                    return end;
                }
                if let Some(io) = self.held {
                    // Its own replies may hold what it waits for.
                    if is_blocked && self.await_client(Some(MOMENT)) {
                        continue;
                    }
                    self.requests.give_back(&mut self.member);
                    self.member.wait(self.requests.wants(&io));
                    if self.requests.was_denied() {
                        // There is room in the budget, so that did not wait.
                        self.await_memory(io);
                    }
                    self.look_after_client();
                    continue;
                }
                if is_blocked {
                    self.await_slow_client();
                    continue;
                }
                let mut patience = self.patience;
                let got = patience.receive(|flags| self.hear(flags));
                self.patience = patience;
                self.received(got);
            } else {
                self.wait()?;
            }
        }
    }

    /// The system gave no memory for a request: waits a moment, or refuses it.
    #[cold]
    fn await_memory(&mut self, io: Io) {
        if self.denied.get_or_insert_with(Instant::now).elapsed() < DENIED_FOR {
            return std::thread::sleep(DENIED);
        }
        self.member.budget().warn(
            3,
            "the system has no more memory for what clients ask for: they are told so (ulimit -v)",
        );
        (self.held, self.denied) = (None, None);
        self.member.leave();
        self.session.refuse(io.cookie, ENOMEM);
    }

    /// Looks, without listening, whether the client is still there, or was shut
    /// down.
    fn look_after_client(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        if self.is_gone() {
            (self.leaving, self.gives_up) = (Some(Ok(())), true);
        }
    }

    /// Whether the client can hear nothing any more, or was shut down.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.sock, PollFlags::empty())];
        sleep(&mut fds, Some(Duration::ZERO));
        !fds[0].revents().is_empty() || matches!(self.leaving, Some(Err(Ended::Socket(_))))
    }

    /// Drops what waits of a client that is gone.
    fn drop_waiting(&mut self) {
        if self.is_gone() {
            // Who closed may have said before that it leaves.
            let broke = matches!(self.leaving, Some(Err(Ended::Socket(_))));
            let (wanted, answers) = (self.has_left || !broke, &mut self.answers);
            let wants = |op| wanted && op != port::BlockOp::Read;
            self.requests.drop_waiting(wants, |slot| answers.push_back(Answer::Ended(slot)));
        }
    }

    /// Whether what stopped the parser is gone, so that it is to go on with
    /// the bytes that it has.
    fn room_came(&self) -> bool {
        let is_room = |io| self.requests.fits(&io) && self.requests.wants(&io) == 0;
        self.leaving.is_none() && self.answers.len() < ANSWERS && self.held.is_none_or(is_room)
    }

    /// Looks at what was received, as far as there is room for it.
    fn parse(&mut self) {
        while self.leaving.is_none() && self.answers.len() < ANSWERS {
            if let Some(io) = self.held.take() {
                if !self.admit(io) {
                    return;
                }
                self.denied = None;
                continue;
            }
            let (used, step) = self.session.step(self.input.bytes());
            self.input.used(used);
            match step {
                Step::Serve(io) => {
                    self.admit(io);
                }
                Step::Payload(due) | Step::Skip(due) => {
                    if !self.payload(due) {
                        return;
                    }
                }
                Step::Refuse { cookie, error } => {
                    self.answers.push_back(Answer::Refused(Reply { error, cookie }));
                }
                Step::More => return,
                Step::Disconnect => (self.leaving, self.has_left) = (Some(Ok(())), true),
                Step::Garbage => {
                    (self.leaving, self.gives_up) = (Some(Err(Ended::Fault)), true);
                }
            }
        }
    }

    /// Takes a request in, or holds it until there is room.
    #[inline]
    fn admit(&mut self, io: Io) -> bool {
        let is_long = u64::from(io.len) > LITTLE && self.requests.wants(&io) > LITTLE;
        let turn = is_long.then(|| self.member.budget().turn());
        if turn.is_some() && io.op == port::BlockOp::Read && self.is_gone() {
            // Nobody hears what would be read: no memory is made for it.
            let (error, cookie) = (ESHUTDOWN, io.cookie);
            self.answers.push_back(Answer::Refused(Reply { error, cookie }));
            return true;
        }
        let Some(slot) = self.requests.admit(io, &mut self.member) else {
            self.held = Some(io);
            return false;
        };
        if io.op == port::BlockOp::Write {
            self.filling = Some(Filling { slot, got: 0 });
        } else {
            self.requests.issue(slot, self.seat.number(), &mut self.cmds);
        }
        true
    }

    /// Takes the data that were received; gives whether they were all.
    #[inline]
    fn payload(&mut self, due: u32) -> bool {
        let n = self.input.bytes().len().min(due as usize) as u32;
        if let Some(Filling { slot, got }) = self.filling.as_ref()
            && self.requests.has_data()
        {
            let (mut from, mut at) = (&self.input.bytes()[..n as usize], *got);
            while !from.is_empty() {
                let to = self.requests.fill(*slot, at);
                let part = to.len().min(from.len());
                to[..part].copy_from_slice(&from[..part]);
                (from, at) = (&from[part..], at + part as u32);
            }
        }
        self.input.used(n as usize);
        self.payload_came(n);
        n == due
    }

    /// `n` bytes of data are where they belong.
    #[inline]
    fn payload_came(&mut self, n: u32) {
        self.session.took(n);
        self.member.moved(n.into());
        if let Some(filling) = &mut self.filling {
            filling.got += n;
            if self.session.data_due() == 0 {
                let slot = filling.slot;
                self.filling = None;
                self.requests.issue(slot, self.seat.number(), &mut self.cmds);
            }
        }
    }

    /// A turn at the drive.
    #[inline]
    fn turn(&mut self) -> Result<(), Ended> {
        if !std::mem::replace(&mut self.has_spoken, true) {
            self.member.spoke();
        }
        self.seat.set_heavy(self.requests.is_heavy());
        let turn = self.seat.turn(&mut self.cmds, &mut self.done)?;
        self.inside = turn.inside;
        if turn.stopping {
            self.gives_up = true;
            self.leaving.get_or_insert(Ok(()));
        }
        for done in self.done.drain() {
            if let Some(slot) = self.requests.complete(done) {
                self.answers.push_back(Answer::Ended(slot));
            }
        }
        if self.leaving.is_some() && self.requests.is_waiting() {
            self.drop_waiting();
        }
        let before = self.cmds.len();
        self.requests.issue_waiting(turn.users, self.seat.number(), &mut self.cmds);
        if self.requests.is_zeroing() && self.gives_up {
            let answers = &mut self.answers;
            self.requests.give_up(|slot| answers.push_back(Answer::Ended(slot)));
        } else if self.requests.is_zeroing() {
            self.requests.issue_zeroing(self.seat.number(), &mut self.cmds);
        }
        self.again = self.cmds.len() > before;
        Ok(())
    }

    /// Whether there is room for what the client sends.
    fn listens(&self) -> bool {
        self.leaving.is_none() && self.held.is_none() && self.answers.len() < ANSWERS
    }

    /// What of the client is waited for.
    fn awaited(&self) -> PollFlags {
        let mut what = PollFlags::empty();
        what.set(PollFlags::IN, self.listens());
        what.set(PollFlags::OUT, !self.answers.is_empty());
        what
    }

    /// Waits until the client takes answers or sends what there is room for, at most
    /// `time`. Gives whether it did.
    fn await_client(&mut self, time: Option<Duration>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.sock, self.awaited())];
        sleep(&mut fds, time);
        let came = fds[0].revents();
        if self.listens() && came.contains(PollFlags::IN) {
            let got = self.receive(RecvFlags::DONTWAIT);
            self.received(got);
        }
        !came.is_empty()
    }

    /// The same, however long that takes; after a while it is known to be silent.
    fn await_slow_client(&mut self) {
        if !self.await_client(Some(SLOW)) {
            self.member.silent(true);
            self.await_client(None);
            self.member.silent(false);
        }
    }

    /// Receives what is there. Where it waits, the connection is idle: it is
    /// known to be silent, and gives memory back after a while.
    fn hear(&mut self, flags: RecvFlags) -> Result<Option<usize>, Errno> {
        if flags.contains(RecvFlags::DONTWAIT) {
            return self.receive(flags);
        }
        self.member.silent(true);
        if self.member.extra() > 0 {
            let kept = if self.member.budget().is_pressed() { PRESSED } else { KEPT };
            let mut fds = [PollFd::from_borrowed_fd(self.sock, PollFlags::IN)];
            sleep(&mut fds, Some(kept));
            if fds[0].revents().is_empty() {
                self.requests.give_back(&mut self.member);
            }
        }
        let got = self.receive(flags);
        self.member.silent(false);
        got
    }

    /// Receives what is there: data of a write that is arriving go straight
    /// to its buffers.
    #[inline]
    fn receive(&mut self, flags: RecvFlags) -> Result<Option<usize>, Errno> {
        let Some(Filling { slot, got }) =
            self.filling.as_ref().filter(|_| self.requests.has_data())
        else {
            return self.input.receive(self.sock, flags);
        };
        // The parser has taken all; what comes is data first.
        self.input.compact();
        let to = self.requests.fill(*slot, *got);
        let room = to.len();
        let last = room == self.session.data_due() as usize;
        let rest = if last { &mut self.input.buffer[..] } else { &mut [] };
        let mut parts = [IoSliceMut::new(to), IoSliceMut::new(rest)];
        let mut nothing = RecvAncillaryBuffer::default();
        let n = recvmsg(self.sock, &mut parts, &mut nothing, flags).map(|m| m.bytes);
        let n = some_unless_empty(n)?;
        if let Some(n) = n {
            self.input.end = n.saturating_sub(room);
            self.payload_came(n.min(room) as u32);
        }
        Ok(n)
    }

    /// Notes how a receive went.
    fn received(&mut self, got: Result<Option<usize>, Errno>) {
        match got {
            Ok(Some(0)) => (self.leaving, self.gives_up) = (Some(Ok(())), true),
            Ok(_) => {}
            Err(e) => (self.leaving, self.gives_up) = (Some(Err(e.into())), true),
        }
    }

    /// Sleeps until the bell rings, `time` has passed, or the client does what it is
    /// waited for. Gives whether it did.
    fn sleep(&self, time: Option<Duration>) -> bool {
        let bell = PollFd::from_borrowed_fd(self.seat.bell(), PollFlags::IN);
        let awaited = self.awaited();
        let client = PollFd::from_borrowed_fd(self.sock, awaited);
        let mut fds = [bell, client];
        sleep(&mut fds[..1 + usize::from(!awaited.is_empty())], time);
        if !fds[0].revents().is_empty() {
            clear(self.seat.bell());
        }
        !fds[1].revents().is_empty()
    }

    /// Waits for the drive, and for the client if there is room for more.
    fn wait(&mut self) -> Result<(), Ended> {
        match self.seat.wait()? {
            // Whoever could run does, above all the client.
            Wait::Spin => sched_yield(),
            Wait::Sleep(time) => {
                // What is half here is the client's to send, and answers its to take.
                let owes = self.filling.is_some() || !self.answers.is_empty();
                let awaits_drive = self.member.extra() > 0 && !owes;
                if awaits_drive {
                    self.member.awaits_drive(true);
                }
                let is_heard = self.sleep(time);
                if awaits_drive {
                    self.member.awaits_drive(false);
                }
                if !is_heard {
                    return Ok(());
                }
            }
        }
        if self.listens() {
            let got = self.receive(RecvFlags::DONTWAIT);
            self.received(got);
        }
        Ok(())
    }
}
