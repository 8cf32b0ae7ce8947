//! A log of what a drive was asked and when, and its replay.
//!
//! [`Recorder`] is a port over a port that notes the arrival and completion of
//! each command. [`replay`] gives the arrivals to another drive in virtual
//! time. Guarantee: where the log is whole and the drive began in the same
//! state, each completion comes at the same time, to the nanosecond: this is
//! how real time is checked against virtual time. The log has a fixed size; a
//! command that does not fit is counted and not noted. Data is not noted.

use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};

use flash::Ppa;

use crate::command::{Addresses, Content, VectorCmd, VectorDone, VectorOp};

/// A command that can be noted in few bytes.
pub trait Recorded: Sized {
    /// What is noted of it, without its data.
    type Brief: Copy + std::fmt::Debug + PartialEq;

    /// Notes it; a list of addresses goes to `words`, which has its memory
    /// already. `None` when that is full.
    fn brief(&self, words: &mut Vec<u64>) -> Option<Self::Brief>;

    /// The command again. `kept` is how many bytes its medium keeps of a
    /// block; its data are zeros.
    fn again(brief: &Self::Brief, words: &[u64], kept: u32) -> Self;
}

/// A completion that can be noted.
pub trait RecordedDone {
    /// The command's own number and when it completed.
    fn end(&self) -> (u64, Time);
}

/// What is noted of a vector command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorBrief {
    cookie: u64,
    ppa: Ppa,
    /// Where its list begins in the words.
    list: Option<u32>,
    buffer: u32,
    op: VectorOp,
    content: Content,
    count: u8,
}

impl Recorded for VectorCmd {
    type Brief = VectorBrief;

    fn brief(&self, words: &mut Vec<u64>) -> Option<VectorBrief> {
        let mut at = None;
        if let Some(list) = &self.list {
            let n = usize::from(self.count).min(list.from.len());
            if words.capacity() - words.len() < 2 * n {
                return None;
            }
            at = Some(u32::try_from(words.len()).ok()?);
            words.extend(list.from[..n].iter().map(|p| p.0));
            words.extend(list.to[..n].iter().map(|p| p.0));
        }
        let VectorCmd { cookie, op, content, count, ppa, .. } = *self;
        let buffer = self.buffer.len() as u32;
        Some(VectorBrief { cookie, ppa, list: at, buffer, op, content, count })
    }

    fn again(brief: &VectorBrief, words: &[u64], _kept: u32) -> VectorCmd {
        let VectorBrief { cookie, op, content, count, ppa, .. } = *brief;
        let list = brief.list.map(|at| {
            let mut list = Box::<Addresses>::default();
            let n = usize::from(count).min(list.from.len());
            for i in 0..n {
                list.from[i] = Ppa(words[at as usize + i]);
                list.to[i] = Ppa(words[at as usize + n + i]);
            }
            list
        });
        let buffer = zeros(brief.buffer as usize);
        VectorCmd { cookie, op, content, count, ppa, list, buffer }
    }
}

impl RecordedDone for VectorDone {
    fn end(&self) -> (u64, Time) {
        (self.cookie, self.at)
    }
}

/// What is noted of a block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockBrief {
    id: u64,
    offset: u64,
    len: u64,
    op: BlockOp,
    fua: bool,
}

impl Recorded for BlockReq {
    type Brief = BlockBrief;

    fn brief(&self, _words: &mut Vec<u64>) -> Option<BlockBrief> {
        let BlockReq { id, op, fua, offset, len, .. } = *self;
        Some(BlockBrief { id, offset, len, op, fua })
    }

    fn again(brief: &BlockBrief, _words: &[u64], kept: u32) -> BlockReq {
        let BlockBrief { id, op, fua, offset, len } = *brief;
        let blocks = len.div_ceil(port::BLOCK_BYTES);
        let whole = u64::from(kept) == port::BLOCK_BYTES;
        let bytes = match op {
            BlockOp::Read | BlockOp::Write if whole => len,
            BlockOp::Read | BlockOp::Write => blocks * u64::from(kept),
            BlockOp::Flush | BlockOp::Trim | BlockOp::WriteZeroes => 0,
        };
        BlockReq { id, op, fua, offset, len, buffer: zeros(bytes as usize) }
    }
}

impl RecordedDone for BlockDone {
    fn end(&self) -> (u64, Time) {
        (self.id, self.at)
    }
}

/// Replay is not the data path: it asks for memory.
fn zeros(bytes: usize) -> Buffer {
    Buffer::zeroed(bytes).expect("memory for one command's data")
}

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival<B> {
    /// When the drive took it.
    pub at: Time,
    /// Whether it came in one call with the arrival before.
    pub joined: bool,
    /// The command.
    pub brief: B,
    /// Words in use before it.
    words: usize,
}

/// Arrivals and completions, in the order in which they happened.
#[derive(Debug)]
pub struct Log<B> {
    /// What came.
    pub arrivals: Vec<Arrival<B>>,
    /// Each command's own number, and when it completed.
    pub ends: Vec<(u64, Time)>,
    words: Vec<u64>,
    /// Arrivals and completions that did not fit. A log that misses some is
    /// no basis for a replay.
    pub missed: u64,
}

impl<B> Log<B> {
    /// Whether everything that happened is in it.
    pub fn is_whole(&self) -> bool {
        self.missed == 0
    }
}

/// A port over `P` that keeps a log.
pub struct Recorder<P: Port>
where
    P::Cmd: Recorded,
{
    below: P,
    log: Log<<P::Cmd as Recorded>::Brief>,
    capacity: usize,
}

impl<P: Port> Recorder<P>
where
    P::Cmd: Recorded,
    P::Done: RecordedDone,
{
    /// Notes at most `commands` commands, which have at most `addresses`
    /// addresses in lists. The memory is taken here.
    pub fn new(below: P, commands: usize, addresses: usize) -> Recorder<P> {
        let log = Log {
            arrivals: Vec::with_capacity(commands),
            ends: Vec::with_capacity(commands),
            words: Vec::with_capacity(2 * addresses),
            missed: 0,
        };
        Recorder { below, log, capacity: commands }
    }

    /// What it stands in front of.
    pub fn below(&self) -> &P {
        &self.below
    }

    /// The port again, and what happened.
    pub fn finish(self) -> (P, Log<<P::Cmd as Recorded>::Brief>) {
        (self.below, self.log)
    }

    /// Notes all of `cmds`, as if all were taken.
    fn note(&mut self, now: Time, cmds: &Ring<P::Cmd>) {
        let log = &mut self.log;
        for i in 0..cmds.len() {
            let room = log.arrivals.len() < self.capacity && log.missed == 0;
            let words = log.words.len();
            let brief = cmds.get(i).filter(|_| room).and_then(|c| c.brief(&mut log.words));
            match brief {
                Some(brief) => log.arrivals.push(Arrival { at: now, joined: i > 0, brief, words }),
                None => return,
            }
        }
    }
}

impl<P: Port> Port for Recorder<P>
where
    P::Cmd: Recorded,
    P::Done: RecordedDone,
{
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        let (noted, offered) = (self.log.arrivals.len(), cmds.len());
        self.note(now, cmds);
        self.below.submit(now, cmds);
        let (taken, tried) = (offered - cmds.len(), self.log.arrivals.len() - noted);
        if let Some(refused) = self.log.arrivals.get(noted + taken) {
            self.log.words.truncate(refused.words);
            self.log.arrivals.truncate(noted + taken);
        }
        self.log.missed += taken.saturating_sub(tried) as u64;
    }

    fn next_event(&self) -> Option<Time> {
        self.below.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        let before = done.len();
        self.below.advance(to, done);
        for i in before..done.len() {
            let end = done.get(i).expect("it is in the ring").end();
            if self.log.ends.len() < self.capacity {
                self.log.ends.push(end);
            } else {
                self.log.missed += 1;
            }
        }
    }

    fn hint(&self, cmd: &P::Cmd) {
        self.below.hint(cmd);
    }
}

/// Gives the arrivals of `log` to `port` in virtual time; `kept` is how many
/// bytes its medium keeps of a block. Gives each command's own number and when
/// it completed, in the order of completion.
///
/// # Panics
/// When the port refuses what the log says it took.
pub fn replay<P>(
    log: &Log<<P::Cmd as Recorded>::Brief>,
    port: &mut P,
    kept: u32,
) -> Vec<(u64, Time)>
where
    P: Port,
    P::Cmd: Recorded,
    P::Done: RecordedDone,
{
    let mut ends = Vec::with_capacity(log.arrivals.len());
    let mut cmds = Ring::new(log.arrivals.len().max(1));
    let mut done = Ring::new(1024);
    let mut rest = log.arrivals.as_slice();
    while let Some(first) = rest.first() {
        let joined = rest[1..].iter().take_while(|a| a.joined).count();
        let (group, later) = rest.split_at(1 + joined);
        rest = later;
        run_to(port, first.at, &mut done, &mut ends);
        for arrival in group {
            let pushed = cmds.push(P::Cmd::again(&arrival.brief, &log.words, kept));
            assert!(pushed.is_ok(), "there is room for all");
        }
        port.submit(first.at, &mut cmds);
        assert!(cmds.is_empty(), "the port takes at {} what it took before", first.at);
    }
    while let Some(at) = port.next_event() {
        run_to(port, at, &mut done, &mut ends);
    }
    ends
}

/// Lets everything happen that is due at `to`.
fn run_to<P>(port: &mut P, to: Time, done: &mut Ring<P::Done>, ends: &mut Vec<(u64, Time)>)
where
    P: Port,
    P::Done: RecordedDone,
{
    while let Some(at) = port.next_event().filter(|&at| at <= to) {
        port.advance(at, done);
        ends.extend(done.drain().map(|d| d.end()));
    }
}
