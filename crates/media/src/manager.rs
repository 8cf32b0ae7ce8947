//! Who owns which chunk, and whose each command is.
//!
//! Guarantees: a command touches chunks of its own target and no others (its addresses
//! are made here; builds with debug assertions look at each once more); a target never
//! waits because others have too many commands inside, as each has room of its own; what
//! a target gives up is erased before another has it. Nothing is allocated while it runs.
//! Fails only when chunks are claimed that cannot be had.

use device::notices::MAX_NOTICES;
use device::{Addresses, Notice, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, Chunk, ChunkState, Geometry, Ppa};
use port::{Ring, Slots, Time, Turn};

use crate::claim::{Claim, Pace};
use crate::error::MediaError;
use crate::leaving::Left;
use crate::place::Addressing;

/// Targets of a drive, at most: a bit of a word each.
pub const MAX_TARGETS: usize = 64;

/// The most of all targets that were.
const OWN_DEPTH: usize = 64;

/// Whose a chunk is: nobody's.
pub(crate) const FREE: u8 = u8::MAX;

/// Nobody's, and never to be anybody's: it could not be erased.
pub(crate) const SPOILT: u8 = u8::MAX - 1;

/// Commands that all targets of a drive may have inside together, of one that takes so many:
/// the rest is for erases of what targets left.
pub fn depth_for_targets(depth: usize) -> usize {
    depth - (depth / 16).min(OWN_DEPTH)
}

/// A command that is inside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flight {
    pub cookie: u64,
    pub target: u8,
    /// How often an erase of what a target has left was tried; 0 of others' commands.
    pub tries: u8,
    /// Addresses of its list, and whether it has those of a copy, too.
    pub listed: u8,
    pub is_copy: bool,
}

/// A target's share.
#[derive(Debug)]
pub(crate) struct Part {
    pub addressing: Addressing,
    depth: usize,
    /// Chunks that it may have open, as it is told.
    open_chunks: u32,
    /// Commands of it that it has not got back.
    pub live: usize,
    /// It may have written or erased something.
    pub is_used: bool,
    inbox: Ring<VectorDone>,
    notices: Ring<Notice>,
    /// How many it was given.
    told: u64,
    pub pace: Pace,
    /// Erases that wait for their time.
    held: Ring<VectorCmd>,
}

/// One drive, and who owns its chunks.
#[derive(Debug)]
pub struct Media<D> {
    pub(crate) device: D,
    pub(crate) geometry: Geometry,
    pub(crate) flights: Slots<Flight>,
    /// By target.
    pub(crate) parts: Vec<Option<Part>>,
    /// By the target that was.
    pub(crate) left: Vec<Option<Left>>,
    /// Chunks that targets left and that could not be erased, so far.
    pub(crate) unerased: u64,
    /// Targets with a pace.
    pub(crate) paced: usize,
    /// Targets for which something has completed that they have not got back: a bit each.
    news: u64,
    /// By chunk: its target.
    pub(crate) owners: Box<[u8]>,
    /// Erases under way of what targets left.
    pub(crate) own: usize,
    /// What the drive has not taken yet.
    pub(crate) out: Ring<VectorCmd>,
    done: Ring<VectorDone>,
    pub(crate) now: Time,
}

impl<D: OpenChannel> Media<D> {
    /// A drive of which nobody has anything.
    pub fn new(device: D) -> Media<D> {
        let (geometry, depth) = (*device.geometry(), device.depth());
        Media {
            flights: Slots::new(depth),
            parts: Vec::new(),
            left: Vec::new(),
            unerased: 0,
            paced: 0,
            news: 0,
            own: 0,
            owners: vec![FREE; geometry.chunk_slots()].into(),
            out: Ring::new(depth),
            done: Ring::new(device.depth()),
            now: Time::ZERO,
            geometry,
            device,
        }
    }

    /// The drive.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The drive, to be told what is no command.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The drive, without who has what. What is inside is its to complete.
    pub fn into_device(self) -> D {
        self.device
    }

    /// Whose a chunk is, and which of its chunks, by the drive's index.
    pub fn owner(&self, chunk: usize) -> Option<(usize, usize)> {
        let target = self.owners[chunk] as usize;
        let part = self.parts.get(target)?.as_ref()?;
        Some((target, part.addressing.chunk_above(chunk)))
    }

    /// Gives a target what it claims. Gives its number: the lowest that is free.
    ///
    /// Fails where the drive does not have it all, others have some of it, or something is
    /// written there, unless that is the target's own: `found`.
    pub fn claim(&mut self, claim: &Claim, found: bool) -> Result<usize, MediaError> {
        let target = self.free_number().ok_or(MediaError::TooMany)?;
        let addressing = Addressing::new(&self.geometry, &claim.place)?;
        if let Some(chunk) = addressing.chunks().find(|&chunk| self.owners[chunk] != FREE) {
            return Err(self.taken(chunk));
        }
        let is_written = |&chunk: &usize| {
            !matches!(self.device.chunk(chunk).state, ChunkState::Free | ChunkState::Offline)
        };
        if !found && let Some(chunk) = addressing.chunks().find(is_written) {
            let (unit, chunk) = self.place_of(chunk);
            return Err(MediaError::Written { unit, chunk });
        }
        let promised: usize = self.parts.iter().flatten().map(|part| part.depth).sum();
        let left = depth_for_targets(self.device.depth()).saturating_sub(promised);
        if !(1..=left).contains(&claim.depth) {
            return Err(MediaError::Depth { asked: claim.depth, left });
        }
        let most = self.device.timing().open_chunks;
        let open = self.parts.iter().flatten().map(|part| u64::from(part.open_chunks)).sum::<u64>();
        if most < u32::MAX && open + u64::from(claim.open_chunks.0) > u64::from(most) {
            let left = u64::from(most).saturating_sub(open) as u32;
            return Err(MediaError::OpenChunks { asked: claim.open_chunks.0, left });
        }
        addressing.chunks().for_each(|chunk| self.owners[chunk] = target as u8);
        let pace = Pace::new(claim.chunk_time);
        self.paced += usize::from(pace.is_limited());
        self.number(target);
        self.parts[target] = Some(Part {
            addressing,
            depth: claim.depth,
            open_chunks: claim.open_chunks.0,
            live: 0,
            is_used: found,
            inbox: Ring::new(claim.depth),
            notices: Ring::new(MAX_NOTICES),
            told: 0,
            held: Ring::new(if pace.is_limited() { claim.depth } else { 1 }),
            pace,
        });
        Ok(target)
    }

    /// The unit of a chunk, and its number there.
    fn place_of(&self, chunk: usize) -> (u32, u32) {
        let pu = self.geometry.pu_index(self.geometry.chunk_start(chunk));
        let pus = self.geometry.dimensions().pus;
        let unit = self.geometry.group_of_pu(pu) as u32 * pus + self.geometry.pu_in_group(pu);
        (unit, (chunk - self.geometry.chunk_of(pu, 0)) as u32)
    }

    /// Why a chunk cannot be had.
    fn taken(&self, index: usize) -> MediaError {
        let ((unit, chunk), owner) = (self.place_of(index), self.owners[index] as usize);
        match self.left.get(owner) {
            None => MediaError::Written { unit, chunk },
            Some(Some(_)) => MediaError::Erasing { unit, chunk },
            Some(None) => MediaError::Taken { unit, chunk, owner },
        }
    }

    /// What a target sees of the drive's chunk descriptors.
    pub(crate) fn chunk_of(&self, target: usize, chunk: usize) -> Chunk {
        let geometry = &self.part(target).addressing.geometry;
        if !geometry.contains(geometry.chunk_start(chunk)) {
            return Chunk::default();
        }
        self.device.chunk(self.part(target).addressing.chunk_below(chunk))
    }

    /// Which blocks of a target's failed programs left.
    pub(crate) fn failed_of(&self, target: usize, ppa: Ppa, count: u32) -> BlockBits {
        self.device.failed_of(self.part(target).addressing.below(ppa), count)
    }

    /// The geometry that a target sees.
    pub(crate) fn geometry_of(&self, target: usize) -> &Geometry {
        &self.part(target).addressing.geometry
    }

    pub(crate) fn hint(&self, target: usize, ppa: Ppa) {
        self.device.hint_block(self.part(target).addressing.below(ppa));
    }

    pub(crate) fn part(&self, target: usize) -> &Part {
        self.parts[target].as_ref().expect("it has a share")
    }

    fn part_mut(&mut self, target: usize) -> &mut Part {
        self.parts[target].as_mut().expect("it has a share")
    }

    /// Takes commands of a target, as many as it may have inside.
    pub(crate) fn submit(&mut self, target: usize, now: Time, cmds: &mut Ring<VectorCmd>) {
        self.now = self.now.max(now);
        while !cmds.is_empty() && self.part(target).live < self.part(target).depth {
            let Some(cmd) = cmds.pop() else { break };
            let part = self.part_mut(target);
            part.live += 1;
            part.is_used |= !matches!(cmd.op, VectorOp::Read | VectorOp::Flush);
            if part.pace.is_limited() && cmd.op == VectorOp::Reset {
                part.held.put(|| cmd);
            } else {
                self.send(target, cmd);
            }
        }
        self.release(target);
        self.push();
    }

    /// Sends the erases of a target whose time has come.
    fn release(&mut self, target: usize) {
        let now = self.now;
        while let Some(part) = &mut self.parts[target]
            && !part.held.is_empty()
            && part.pace.at() <= now
            && let Some(cmd) = part.held.pop()
        {
            part.pace.hand_out(now, u64::from(cmd.count.max(1)));
            self.send(target, cmd);
        }
    }

    /// Makes a command one of the drive's.
    fn send(&mut self, target: usize, mut cmd: VectorCmd) {
        let addressing = &self.parts[target].as_ref().expect("it has a share").addressing;
        let (mut listed, is_copy) = (0, cmd.op == VectorOp::Copy);
        if let Some(list) = &mut cmd.list {
            listed = cmd.count.min(list.from.len() as u8);
            translate(list, listed, is_copy, |ppa| addressing.below(ppa));
        } else if cmd.op != VectorOp::Flush {
            cmd.ppa = addressing.below(cmd.ppa);
        }
        if cfg!(debug_assertions) {
            self.check(target, &cmd, listed);
        }
        let flight = Flight { cookie: cmd.cookie, target: target as u8, tries: 0, listed, is_copy };
        cmd.cookie = u64::from(self.flights.take(flight));
        self.out.put(|| cmd);
    }

    /// That a command is of its target's chunks alone.
    fn check(&self, target: usize, cmd: &VectorCmd, listed: u8) {
        let is_its = |ppa: Ppa| {
            !self.geometry.contains(ppa)
                || self.owners[self.geometry.chunk_index(ppa)] == target as u8
        };
        let all = match &cmd.list {
            Some(list) => {
                let to = if cmd.op == VectorOp::Copy { &list.to[..] } else { &[] };
                let listed = listed as usize;
                list.from[..listed].iter().all(|&ppa| is_its(ppa))
                    && to.iter().take(listed).all(|&ppa| is_its(ppa))
            }
            None => cmd.op == VectorOp::Flush || is_its(cmd.ppa),
        };
        assert!(all, "target {target} has a command for a chunk of another: {cmd:?}");
    }

    /// Gives the drive what it has not taken yet.
    pub(crate) fn push(&mut self) {
        if !self.out.is_empty() {
            self.device.submit(self.now, &mut self.out);
        }
    }

    /// When something happens next, to whomever.
    pub fn next_event(&self) -> Option<Time> {
        earliest(self.device.next_event(), self.next_hand_out())
    }

    /// When the next chunk may be handed out that somebody waits for.
    pub(crate) fn next_hand_out(&self) -> Option<Time> {
        if self.paced == 0 {
            return None;
        }
        let held = self.parts.iter().flatten().filter(|part| !part.held.is_empty());
        held.map(|part| part.pace.at().max(self.now)).min()
    }

    /// When something may happen to a target's commands.
    pub(crate) fn next_event_of(&self, target: usize) -> Option<Time> {
        let part = self.part(target);
        if !part.inbox.is_empty() {
            return Some(self.now);
        }
        if part.live == 0 { None } else { self.next_event() }
    }

    /// Whether something has completed that a target has not got back.
    pub(crate) fn has_news(&self, target: usize) -> bool {
        self.news & 1 << target != 0
    }

    /// Targets of which that is so: a bit each.
    pub(crate) fn news(&self) -> u64 {
        self.news
    }

    /// Lets what is due at `to` happen, and puts what completed where its target finds
    /// it. False when nothing came of it.
    pub(crate) fn step(&mut self, to: Time) -> bool {
        self.now = self.now.max(to);
        if self.paced > 0 {
            (0..self.parts.len()).for_each(|target| self.release(target));
        }
        let waiting = self.out.len();
        self.push();
        let mut any = self.out.len() < waiting;
        if self.device.next_event().is_some_and(|at| at <= to) {
            self.device.advance(to, &mut self.done);
        }
        any |= self.sort();
        any
    }

    /// A turn of the drive in virtual time: what completed is put where its target finds it.
    /// To be called where nothing is to be handed out before `until`.
    pub(crate) fn turn(&mut self, now: Time, until: Option<Time>) -> Turn {
        self.now = self.now.max(now);
        let turn = self.device.turn(self.now, until, &mut self.out, &mut self.done);
        if let Turn::Completed(at) = turn {
            self.now = self.now.max(at);
            self.sort();
        }
        turn
    }

    /// Gives each target what is its own of what the drive did; false where that is nothing.
    fn sort(&mut self) -> bool {
        let mut any = !self.done.is_empty();
        while let Some(done) = self.done.pop() {
            self.give(done);
        }
        while let Some(notice) = self.device.take_notice() {
            self.tell(notice);
            any = true;
        }
        self.push();
        any
    }

    /// Whether a target may have written or erased something.
    pub(crate) fn is_used(&self, target: usize) -> bool {
        self.part(target).is_used
    }

    /// Commands of a target that it has not got back.
    pub(crate) fn live(&self, target: usize) -> usize {
        self.part(target).live
    }

    /// A completion goes to its target.
    fn give(&mut self, mut done: VectorDone) {
        let slot = done.cookie as u32;
        let flight @ Flight { cookie, target, tries, listed, is_copy } = self.flights[slot];
        self.flights.give(slot);
        let target = target as usize;
        if tries > 0 {
            return self.left_one(flight, done.status);
        }
        let part = self.part_mut(target);
        done.cookie = cookie;
        if let Some(list) = &mut done.list {
            translate(list, listed, is_copy, |ppa| part.addressing.above(ppa));
        }
        part.inbox.put(|| done);
        self.news |= 1 << target;
    }

    /// A notice goes to the target whose chunk it is about. One that is of nobody's, or for
    /// which there is no room, is lost.
    fn tell(&mut self, notice: Notice) {
        let target = self.owners[self.geometry.chunk_index(notice.ppa)] as usize;
        let Some(part) = self.parts.get_mut(target).and_then(Option::as_mut) else { return };
        let (ppa, number) = (part.addressing.above(notice.ppa), part.told + 1);
        if part.notices.push(Notice { number, ppa, ..notice }).is_ok() {
            part.told = number;
        }
    }

    /// Gives a target what completed of its own.
    pub(crate) fn take(&mut self, target: usize, done: &mut Ring<VectorDone>) {
        let part = self.part_mut(target);
        part.live -= part.inbox.pour(done);
        if part.inbox.is_empty() {
            self.news &= !(1 << target);
        }
    }

    pub(crate) fn take_notice(&mut self, target: usize) -> Option<Notice> {
        self.part_mut(target).notices.pop()
    }
}

/// The earlier of two.
pub(crate) fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Changes the addresses of a list.
fn translate(list: &mut Addresses, count: u8, is_copy: bool, to: impl Fn(Ppa) -> Ppa) {
    let count = count as usize;
    list.from[..count].iter_mut().for_each(|ppa| *ppa = to(*ppa));
    if is_copy {
        list.to[..count].iter_mut().for_each(|ppa| *ppa = to(*ppa));
    }
}
