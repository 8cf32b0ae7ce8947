//! The port: what comes down is sent on, what comes up is looked at.

use std::collections::VecDeque;

use device::{
    Addresses, Content, Notice, NoticeMask, NoticeState, OpenChannel, VectorCmd, VectorDone,
    VectorOp,
};
use flash::{BlockBits, Chunk, Geometry, Ppa, Timing, block_bits};
use port::lazy::table;
use port::{Buffer, Part, Port, Ring, Slots, Status, Stories, Story, Time, Whose};

use crate::catchup::Lane;
use crate::commands::{Command, Cookie};
use crate::error::ParityError;
use crate::layout::Layout;
use crate::stripes::Stripes;
use crate::superblock::{Members, Super};

/// Commands that may be inside at once, at most.
const MAX_DEPTH: usize = 512;

/// Commands on their way below, at most; most of them are there already.
const OUT: usize = 4 * MAX_DEPTH;

/// Lanes for what takes several steps: rebuilding, and making ready.
const LANES: usize = 16;

/// Notices of its own that wait to be taken, at most.
const NOTICES: usize = 256;

/// What was done for the sake of parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParityCounters {
    /// Blocks of data that were written.
    pub written: u64,
    /// Blocks of parity that were written.
    pub parity: u64,
    /// Blocks that were padded after a cut.
    pub padded: u64,
    /// Blocks that were rebuilt.
    pub rebuilt: u64,
    /// Blocks that could not be rebuilt.
    pub lost: u64,
    /// Blocks that were read to rebuild others, or to go on with a stripe.
    pub read: u64,
}

port::sums!(ParityCounters: written, parity, padded, rebuilt, lost, read);

/// An open-channel drive with parity over one without.
pub struct Parity<D> {
    pub(crate) device: D,
    pub(crate) layout: Layout,
    pub(crate) kept: u32,
    /// By chunk index above.
    pub(crate) supers: Box<[Super]>,
    pub(crate) stripes: Stripes,
    pub(crate) commands: Slots<Command>,
    depth: usize,
    pub(crate) out: Ring<VectorCmd>,
    came: Ring<VectorDone>,
    ready: Ring<VectorDone>,
    stories: Option<Box<Stories>>,
    /// Completions from below since stories are told.
    heard: u64,
    /// Lists for commands below. A command takes its list boxed.
    #[allow(clippy::vec_box)]
    pub(crate) lists: Vec<Box<Addresses>>,
    pub(crate) lanes: Slots<Lane>,
    /// Writes that cannot be sent yet, and resets, oldest first.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) pass: u32,
    /// Something has ended since what waits was looked at.
    pub(crate) stirred: bool,
    /// Reads of which a block is to be rebuilt.
    pub(crate) repairs: VecDeque<u32>,
    /// Writes that are done, but for the first block of their superblock.
    pub(crate) early: Vec<u32>,
    /// The number of the last flush that was sent below, and the highest of
    /// those that are done. Of what was found at the start all is durable.
    pub(crate) flushes: u64,
    pub(crate) flushed: u64,
    notices: Ring<(Ppa, NoticeState)>,
    told: u64,
    pub(crate) counters: ParityCounters,
    pub(crate) now: Time,
}

impl<D: OpenChannel> Parity<D> {
    /// Parity across superblocks of one chunk from each of `width` units, 3 to
    /// 64; the drive's units must be a multiple of that.
    ///
    /// The drive may be empty, or one that was written through a `Parity` of
    /// the same width; one that was not gives errors or wrong blocks.
    ///
    /// # Errors
    /// [`ParityError`] says what does not fit, and what would.
    pub fn new(device: D, width: u32) -> Result<Parity<D>, ParityError> {
        if device.timing().unreadable > 0 {
            return Err(ParityError::Unreadable(device.timing().unreadable));
        }
        if device.timing().limits_open() {
            return Err(ParityError::OpenChunks);
        }
        let layout = Layout::new(device.geometry(), width)?;
        let kept = device.kept();
        let depth = (device.depth() / 2).clamp(1, MAX_DEPTH);
        let stripes = Stripes::new(layout.upper.total_pus(), layout.row, kept)?;
        let mut lanes: Slots<Lane> = Slots::new(LANES);
        Lane::furnish(&mut lanes, LANES)?;
        let mut parity = Parity {
            supers: table(Super::default(), layout.upper.chunk_slots(), "superblocks")?,
            stripes,
            commands: Slots::new(depth),
            depth,
            out: Ring::new(OUT),
            came: Ring::new(device.depth()),
            ready: Ring::new(depth),
            stories: None,
            heard: 0,
            lists: (0..depth + LANES + device::MAX_ADDRESSES).map(|_| Box::default()).collect(),
            lanes,
            waiting: VecDeque::with_capacity(depth),
            pass: 0,
            stirred: false,
            repairs: VecDeque::with_capacity(depth),
            early: Vec::with_capacity(depth),
            flushes: 1,
            flushed: 1,
            notices: Ring::new(NOTICES),
            told: 0,
            counters: ParityCounters::default(),
            now: Time::ZERO,
            device,
            layout,
            kept,
        };
        parity.survey();
        Ok(parity)
    }

    /// Bytes of memory that the tables of parity take, over `upper`, what is
    /// seen above it.
    pub fn tables(upper: &Geometry) -> u64 {
        let supers = (upper.chunk_slots() as u64).saturating_mul(size_of::<Super>() as u64);
        supers.saturating_add(Stripes::tables(upper.total_pus(), upper.row_blocks()))
    }

    /// What was done for the sake of parity since it was made.
    pub fn counters(&self) -> ParityCounters {
        self.counters
    }

    /// The drive below.
    pub fn below(&self) -> &D {
        &self.device
    }

    /// The drive below, to be changed while nothing is inside.
    pub fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Takes the parity away; what is inside is lost.
    pub fn into_below(self) -> D {
        self.device
    }

    /// How many superblocks have an offline member, so that nothing more of
    /// them may be lost.
    pub fn degraded(&self) -> usize {
        self.layout.superblocks().filter(|&sb| self.members(sb).is_lame()).count()
    }

    pub(crate) fn members(&self, sb: usize) -> Members<'_, D> {
        Members { layout: &self.layout, device: &self.device, sb }
    }

    /// Finds out how far all superblocks are written. Those that will not be
    /// written on and of which a row is missing, of data or of parity, should
    /// be collected.
    fn survey(&mut self) {
        for sb in self.layout.superblocks() {
            let members = self.members(sb);
            let of = members.survey();
            let size = self.layout.chunk_blocks_below();
            let is_short = members.all().any(|chunk| chunk.programmed < size);
            self.supers[sb] = of;
            if of.wp > 0 && (of.closed || (of.wp == self.layout.size() && is_short)) {
                self.tell(sb);
            }
        }
    }

    /// Tells that a superblock should be collected, since a member of it is
    /// lost or cannot be read; once, and when it takes no more writes.
    pub(crate) fn tell(&mut self, sb: usize) {
        let of = &self.supers[sb];
        let is_full = of.wp == self.layout.size() || of.closed;
        if !of.told && is_full && of.inside == 0 {
            let notice = (self.layout.upper.chunk_start(sb), NoticeState::RateHigh);
            self.supers[sb].told = self.notices.push(notice).is_ok();
        }
    }

    /// Takes a list of addresses for a command below.
    pub(crate) fn list(&mut self) -> Box<Addresses> {
        self.lists.pop().expect("there is one for each command and lane")
    }

    /// Puts a command on its way below.
    pub(crate) fn send(&mut self, cookie: Cookie, cmd: VectorCmd) {
        let cmd = VectorCmd { cookie: cookie.pack(), ..cmd };
        self.out.put(|| cmd);
    }

    /// Sends a flush below, and gives its number.
    pub(crate) fn send_flush(&mut self, cookie: Cookie, buffer: Buffer) -> u64 {
        let (op, content, count, ppa) = (VectorOp::Flush, Content::Data, 0, Ppa(0));
        let whose = Whose::User;
        let cmd = VectorCmd { whose, ..VectorCmd::new(0, op, content, (ppa, count), buffer) };
        self.send(cookie, cmd);
        self.flushes += 1;
        self.flushes
    }

    /// A flush is done.
    pub(crate) fn flush_done(&mut self, number: u64, status: Status) {
        if status.is_ok() {
            self.flushed = self.flushed.max(number);
        }
    }

    fn push_down(&mut self) {
        if !self.out.is_empty() {
            self.device.submit(self.now, &mut self.out);
        }
    }

    /// Whether one more command can be let in. Those inside may each need a
    /// list; a reset, one for each superblock.
    fn has_room(&self, cmd: &VectorCmd) -> bool {
        let lists = if cmd.op == VectorOp::Reset { usize::from(cmd.count) } else { 1 };
        let inside = self.commands.live();
        inside + self.ready.len() < self.depth
            && self.out.len() < OUT / 4
            && self.lists.len() >= lists.min(device::MAX_ADDRESSES) + inside + LANES
    }

    /// Enters a command from above.
    pub(crate) fn enter(&mut self, cmd: VectorCmd) -> u32 {
        let id = self.commands.take(Command::new(cmd));
        if let Some(stories) = &mut self.stories {
            stories.came(id, self.now);
        }
        id
    }

    fn start(&mut self, cmd: VectorCmd) {
        match cmd.op {
            VectorOp::Flush => {
                let id = self.enter(cmd);
                let buffer = std::mem::take(&mut self.commands[id].cmd.buffer);
                self.commands[id].flush = self.send_flush(Cookie::Command(id), buffer);
            }
            VectorOp::Copy => self.refuse(cmd, Status::INVALID_OPCODE, 0),
            op => match crate::commands::check(&self.layout.upper, &cmd, self.kept) {
                Err((status, failed)) => self.refuse(cmd, status, failed),
                Ok(()) if op == VectorOp::Read => self.start_read(cmd),
                Ok(()) if op == VectorOp::Write => self.start_write(cmd),
                Ok(()) => self.start_reset(cmd),
            },
        }
    }

    /// Answers a command that was not done.
    pub(crate) fn refuse(&mut self, cmd: VectorCmd, status: Status, failed: BlockBits) {
        if let Some(stories) = &mut self.stories {
            stories.tell(self.now);
        }
        self.answer(cmd, status, failed);
    }

    fn answer(&mut self, cmd: VectorCmd, status: Status, failed: BlockBits) {
        let (at, VectorCmd { cookie, list, buffer, .. }) = (self.now, cmd);
        self.ready.put(|| VectorDone { cookie, status, failed, at, list, buffer });
    }

    /// A command is over.
    pub(crate) fn complete(&mut self, id: u32) {
        let held = std::mem::take(&mut self.commands[id]);
        self.commands.give(id);
        if let Some(stories) = &mut self.stories {
            let came = stories.when(id);
            let heard = self.heard.checked_sub(1);
            let below = |story: &mut Story| heard.is_some_and(|n| self.device.tell_story(n, story));
            stories.end(came, below, Part::Parity, self.now);
        }
        self.answer(held.cmd, held.status, held.failed);
    }

    fn handle(&mut self, done: VectorDone) {
        match Cookie::unpack(done.cookie) {
            Cookie::Command(id) => self.command_done(id, done),
            Cookie::Reset(id, at) => self.reset_done(id, at, done),
            Cookie::Parity(id) => self.parity_done(id, done),
            Cookie::Lane(id) => self.lane_done(id, done),
        }
    }

    fn command_done(&mut self, id: u32, mut done: VectorDone) {
        self.lists.extend(done.list.take());
        let held = &mut self.commands[id];
        held.cmd.buffer = std::mem::take(&mut done.buffer);
        match held.cmd.op {
            VectorOp::Read => self.read_done(id, done),
            VectorOp::Write => self.write_done(id, done),
            _ => {
                (held.status, held.failed) = (done.status, done.failed);
                let number = held.flush;
                self.flush_done(number, done.status);
                self.complete(id);
            }
        }
    }

    /// Does what what has ended makes possible.
    fn go_on(&mut self) {
        while std::mem::take(&mut self.stirred) && !self.waiting.is_empty() {
            self.retry_waiting();
        }
        if !self.repairs.is_empty() {
            self.pump_repairs();
        }
    }
}

impl<D: OpenChannel> Port for Parity<D> {
    type Cmd = VectorCmd;
    type Done = VectorDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<VectorCmd>) {
        self.now = self.now.max(now);
        self.push_down();
        while cmds.front().is_some_and(|cmd| self.has_room(cmd))
            && let Some(cmd) = cmds.pop()
        {
            self.start(cmd);
        }
        self.go_on();
        self.push_down();
    }

    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|done| done.at);
        [ready, self.device.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<VectorDone>) {
        self.now = self.now.max(to);
        loop {
            if self.device.next_event().is_some_and(|at| at <= to) {
                self.device.advance(to, &mut self.came);
            }
            let moved = !self.came.is_empty();
            while let Some(completion) = self.came.pop() {
                self.heard += 1;
                self.handle(completion);
            }
            self.go_on();
            let waiting = self.out.len();
            self.push_down();
            let sent = self.out.len() < waiting;
            if !(moved || sent) || self.device.next_event().is_none_or(|at| at > to) {
                break;
            }
        }
        self.ready.pour(done);
    }

    fn set_stories(&mut self, on: bool) {
        self.device.set_stories(on);
        self.heard = 0;
        let waiting = self.ready.len();
        self.stories = on.then(|| Stories::new(self.depth, waiting));
    }

    fn tell_story(&self, number: u64, story: &mut Story) -> bool {
        self.stories.as_ref().is_some_and(|stories| stories.tell_of(number, story))
    }
}

impl<D: OpenChannel> OpenChannel for Parity<D> {
    fn geometry(&self) -> &Geometry {
        &self.layout.upper
    }

    fn timing(&self) -> &Timing {
        self.device.timing()
    }

    fn kept(&self) -> u32 {
        self.kept
    }

    fn chunk(&self, chunk_index: usize) -> Chunk {
        if !self.layout.upper.contains(self.layout.upper.chunk_start(chunk_index)) {
            return Chunk::default();
        }
        self.members(chunk_index).describe(&self.supers[chunk_index])
    }

    fn failed_of(&self, ppa: Ppa, count: u32) -> BlockBits {
        let (sb, from) = (self.layout.upper.chunk_index(ppa), self.layout.upper.block(ppa));
        let (members, wp) = (self.members(sb), self.supers[sb].wp);
        let has_nothing = |i: &u32| {
            let is_inside = from + i < wp;
            is_inside && (members.has_failed(from + i) || self.is_owed(Ppa(ppa.0 + u64::from(*i))))
        };
        (0..count).filter(has_nothing).fold(0, |bits, i| bits | block_bits(i as usize, 1))
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn is_cached(&self) -> bool {
        self.device.is_cached()
    }

    /// Its own notices first: of superblocks that should be collected. Then
    /// those of the drive below, of the superblock or block that they are
    /// about; a notice of parity is one of its superblock.
    fn take_notice(&mut self) -> Option<Notice> {
        let (mask, blocks) = (NoticeMask::Chunk, 1);
        let notice = match self.notices.pop() {
            Some((ppa, state)) => Notice { number: 0, ppa, state, mask, blocks },
            None => {
                let below = self.device.take_notice()?;
                self.translate(below)
            }
        };
        self.told += 1;
        Some(Notice { number: self.told, ..notice })
    }

    /// A row of each member that holds data.
    fn rows_at_once(&self) -> u32 {
        self.layout.data_members() * self.device.rows_at_once()
    }

    fn hint_block(&self, ppa: Ppa) {
        if self.layout.upper.contains(ppa) {
            self.device.hint_block(self.layout.home(ppa));
        }
    }
}

impl<D: OpenChannel> Parity<D> {
    /// A notice from below, of what it is about above.
    fn translate(&self, notice: Notice) -> Notice {
        let (sb, block) = self.layout.above(notice.ppa);
        let start = self.layout.upper.chunk_start(sb);
        match (notice.mask, block) {
            (NoticeMask::Block, Some(block)) => {
                Notice { ppa: Ppa(start.0 + u64::from(block)), ..notice }
            }
            (NoticeMask::Unit, _) => Notice { ppa: start, ..notice },
            _ => Notice { ppa: start, mask: NoticeMask::Chunk, blocks: 1, ..notice },
        }
    }
}
