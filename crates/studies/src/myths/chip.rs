//! Chips without a drive around them: vector commands to the flash itself, and what each
//! chip and its channel did for them.
//!
//! Guarantees: a command's times are those of the flash alone, as nothing is before it.
//! Fails when such a drive cannot be.

use device::{Content, Device, VectorCmd, VectorDone, VectorOp};
use flash::{Geometry, Ppa, RamMedium};
use port::{Buffer, Part, Port, Ring, Status, Story, Time, Whose};

use super::super::lab::config;
use drive::backing::Backing;
use drive::error::Error;
use drive::stack::new_device;

/// From when to when, in ns.
pub type Span = (u64, u64);

/// A command that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its parallel unit.
    pub unit: usize,
    /// What it was.
    pub op: VectorOp,
    /// How it ended.
    pub status: Status,
    story: Story,
}

impl Ended {
    /// When it was sent, and when it ended.
    pub fn span(&self) -> Span {
        (self.story.start().0, self.story.end().0)
    }

    /// When its array worked: a read's before its transfer, all others' at their end.
    pub fn array(&self) -> Span {
        let ns = self.story.ns_of(Part::Array);
        match self.op {
            VectorOp::Read => {
                let begin =
                    self.span().1 - ns - self.on_channel() - self.story.ns_of(Part::Channel);
                (begin, begin + ns)
            }
            _ => (self.span().1 - ns, self.span().1),
        }
    }

    /// When it was on its channel.
    pub fn transfer(&self) -> Span {
        let end = match self.op {
            VectorOp::Read => self.span().1,
            _ => self.array().0,
        };
        (end - self.on_channel(), end)
    }

    /// How long it was on its channel, in ns.
    fn on_channel(&self) -> u64 {
        self.story.ns_of(Part::Transfer)
    }
}

/// Some chips.
pub struct Chips {
    device: Device<Backing>,
    /// How they are arranged.
    pub geometry: Geometry,
    now: Time,
    queue: Ring<VectorCmd>,
    done: Ring<VectorDone>,
    /// Commands by their number, which is their cookie, and stories told so far.
    asked: Vec<(usize, VectorOp)>,
    told: u64,
    inside: usize,
}

impl Chips {
    /// The flash of the drive of this name, new.
    pub fn of(name: &str, seed: u64) -> Result<Chips, Error> {
        let config = config(name)?;
        let geometry = config.geometry;
        let mut device = new_device(&config, seed, RamMedium::new(&geometry, 0)?.into())?;
        device.set_stories(true);
        let (queue, done) = (Ring::new(1), Ring::new(64));
        let (now, asked) = (Time::ZERO, Vec::new());
        Ok(Chips { device, geometry, now, queue, done, asked, told: 0, inside: 0 })
    }

    /// Sends a command to `count` blocks from `ppa` on.
    pub fn ask(&mut self, op: VectorOp, ppa: Ppa, count: u32) {
        let cookie = self.asked.len() as u64;
        let (content, whose) = (Content::Data, Whose::User);
        // The medium keeps nothing of a block, so no buffer has anything.
        let (count, buffer, list) = (count as u8, Buffer::empty(), None);
        self.queue.put(|| VectorCmd { cookie, op, content, whose, count, ppa, list, buffer });
        self.device.submit(self.now, &mut self.queue);
        assert!(self.queue.is_empty(), "few are asked for at once");
        self.asked.push((self.geometry.pu_index(ppa), op));
        self.inside += 1;
    }

    /// Waits until something ends, and adds what did to `ended`. Nothing happens when
    /// nothing is inside.
    pub fn wait(&mut self, ended: &mut Vec<Ended>) {
        let before = ended.len();
        while self.inside > 0 && ended.len() == before {
            let at = self.device.next_event().expect("something is inside");
            self.now = self.now.max(at);
            self.device.advance(self.now, &mut self.done);
            while let Some(done) = self.done.pop() {
                let (unit, op) = self.asked[done.cookie as usize];
                let story = self.device.story(self.told).expect("each has one");
                self.told += 1;
                self.inside -= 1;
                ended.push(Ended { unit, op, status: done.status, story });
            }
        }
    }

    /// Sends one command and waits for it alone.
    pub fn alone(&mut self, op: VectorOp, ppa: Ppa, count: u32) -> Ended {
        let mut ended = Vec::new();
        self.ask(op, ppa, count);
        self.wait(&mut ended);
        ended[0]
    }

    /// Keeps two commands of `op` at each of `units` until it had `each` of them: rows, or
    /// of reads `blocks` of a row, one row after the other. Gives them in the order in
    /// which they ended.
    pub fn stream(&mut self, op: VectorOp, units: usize, each: u32, blocks: u32) -> Vec<Ended> {
        let mut sent = vec![0; units];
        let mut ended = Vec::new();
        for _ in 0..2 {
            (0..units).for_each(|unit| self.next(op, unit, blocks, each, &mut sent[unit]));
        }
        let mut seen = 0;
        while self.inside > 0 {
            self.wait(&mut ended);
            while let Some(one) = ended.get(seen) {
                let unit = one.unit;
                seen += 1;
                self.next(op, unit, blocks, each, &mut sent[unit]);
            }
        }
        ended
    }

    fn next(&mut self, op: VectorOp, unit: usize, blocks: u32, each: u32, sent: &mut u32) {
        if *sent < each {
            let start = self.geometry.chunk_start(self.geometry.chunk_of(unit, 0));
            let ppa = Ppa(start.0 + u64::from(*sent * self.geometry.row_blocks()));
            *sent += 1;
            self.ask(op, ppa, blocks);
        }
    }
}

/// The share of the time of these commands, from the first's beginning to the last's end,
/// that `busy` of each of them takes, in percent of one.
pub fn share(ended: &[Ended], busy: impl Fn(&Ended) -> u64) -> f64 {
    let begin = ended.iter().map(|one| one.span().0).min().unwrap_or(0);
    let end = ended.iter().map(|one| one.span().1).max().unwrap_or(0);
    100.0 * ended.iter().map(busy).sum::<u64>() as f64 / (end - begin) as f64
}
