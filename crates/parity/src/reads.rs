//! Reads: straight from the member that has the block; rebuilt from the others
//! where it cannot give it.
//!
//! A block that its member could not give is read once more: an error may pass,
//! and the superblock is to be written anew only where one does not. Of one of
//! which that was told already, this is not tried.
//!
//! A block is rebuilt from the same block of all other members' rows, if its
//! stripe has its parity and each of them can be read. What cannot be rebuilt
//! is an error. So is mostly a block whose own program failed, as its stripe has
//! no parity; it has where the row was there before, and a cut took it. One that is
//! owed reads as zeros, with a zero tag, unless it can be rebuilt.

use device::{MAX_ADDRESSES, OpenChannel, VectorCmd, VectorDone, VectorOp};
use flash::{BlockBits, ChunkState, Ppa, block_bits};
use port::Status;

use crate::catchup::Job;
use crate::commands::{Cookie, address, fill};
use crate::parity::Parity;
use crate::stripes::xor;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    /// With its member.
    There,
    /// With a member that is lost, or that lost it and only it.
    Lost,
    /// Nowhere; it reads as zeros.
    Owed,
    /// It was never written.
    Unwritten,
    /// The superblock is.
    Offline,
}

/// What a lane reads for a command.
pub(crate) struct Plan {
    id: u32,
    count: u8,
    /// The command's blocks, and whether each is rebuilt.
    blocks: [(u8, bool); MAX_ADDRESSES],
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { id: 0, count: 0, blocks: [(0, false); MAX_ADDRESSES] }
    }
}

impl<D: OpenChannel> Parity<D> {
    fn spot(&self, ppa: Ppa) -> Spot {
        let (sb, block) = (self.layout.upper.chunk_index(ppa), self.layout.upper.block(ppa));
        let of = &self.supers[sb];
        if block >= of.wp {
            let is_offline = of.wp == 0 && self.members(sb).is_lame();
            return if is_offline { Spot::Offline } else { Spot::Unwritten };
        }
        let home = self.layout.home(ppa);
        let chunk = self.device.chunk(self.layout.lower.chunk_index(home));
        match () {
            () if chunk.state == ChunkState::Offline => Spot::Lost,
            () if self.layout.lower.block(home) < chunk.programmed => Spot::There,
            () if block < of.base && self.can_rebuild(ppa) => Spot::Lost,
            () if block < of.base => Spot::Owed,
            () => Spot::Unwritten,
        }
    }

    /// Whether a block below the write pointer is missing, for good.
    pub(crate) fn is_owed(&self, ppa: Ppa) -> bool {
        self.spot(ppa) == Spot::Owed
    }

    pub(crate) fn start_read(&mut self, cmd: VectorCmd) {
        let count = usize::from(cmd.count);
        let mut all_there = true;
        if cmd.is_in_row(&self.layout.upper) {
            // The last is written after the others, by the same member.
            let last = Ppa(cmd.ppa.0 + count as u64 - 1);
            all_there = self.spot(last) == Spot::There;
        } else {
            for i in 0..count {
                all_there &= self.spot(address(&cmd, i)) == Spot::There;
            }
        }
        if !all_there && let Err((status, failed)) = self.check_read(&cmd) {
            self.refuse(cmd, status, failed);
            return;
        }
        let id = self.enter(cmd);
        if all_there {
            self.send_read(id);
        } else {
            self.commands[id].todo = block_bits(0, count);
            self.repairs.push_back(id);
        }
    }

    /// Whether all of a read was written, as a drive looks.
    fn check_read(&self, cmd: &VectorCmd) -> Result<(), (Status, BlockBits)> {
        let (mut status, mut failed) = (Status::SUCCESS, 0);
        for i in 0..usize::from(cmd.count) {
            let wrong = match self.spot(address(cmd, i)) {
                Spot::Unwritten => Status::UNWRITTEN,
                Spot::Offline => Status::OFFLINE_CHUNK,
                Spot::There | Spot::Lost | Spot::Owed => continue,
            };
            status = status.and(wrong);
            failed |= block_bits(i, 1);
        }
        if failed == 0 { Ok(()) } else { Err((status, failed)) }
    }

    fn send_read(&mut self, id: u32) {
        let held = &mut self.commands[id].cmd;
        let (op, content, count) = (held.op, held.content, held.count);
        let buffer = std::mem::take(&mut held.buffer);
        let whose = held.whose;
        let mut cmd =
            VectorCmd { whose, ..VectorCmd::new(0, op, content, (Ppa(0), count), buffer) };
        if self.commands[id].cmd.is_in_row(&self.layout.upper) {
            cmd.ppa = self.layout.home(self.commands[id].cmd.ppa);
        } else {
            let mut list = self.list();
            let (layout, held) = (&self.layout, &self.commands[id].cmd);
            let homes = (0..usize::from(count)).map(|i| layout.home(address(held, i)));
            fill(&mut list, homes);
            cmd.list = Some(list);
        }
        self.send(Cookie::Command(id), cmd);
    }

    pub(crate) fn read_done(&mut self, id: u32, done: VectorDone) {
        let command = &mut self.commands[id];
        let all = block_bits(0, usize::from(command.cmd.count));
        (command.todo, command.tried) = match done.status {
            Status::UNRECOVERED_READ if done.failed != 0 => (done.failed, done.failed),
            // It was refused: nothing was read.
            Status::OFFLINE_CHUNK => (all, done.failed),
            _ => (0, 0),
        };
        if command.todo != 0 {
            self.try_again(id);
            self.repairs.push_back(id);
            return;
        }
        (command.status, command.failed) = (done.status, done.failed);
        self.complete(id);
    }

    /// Of the blocks that failed, those whose superblock is not known for it
    /// are read again.
    fn try_again(&mut self, id: u32) {
        for i in 0..MAX_ADDRESSES {
            let command = &self.commands[id];
            if command.tried >> i & 1 == 1 {
                let sb = self.layout.upper.chunk_index(address(&command.cmd, i));
                if !self.supers[sb].told {
                    self.commands[id].tried &= !block_bits(i, 1);
                }
            }
        }
    }

    /// Rebuilds for those that wait, as long as there are lanes.
    pub(crate) fn pump_repairs(&mut self) {
        while self.lanes.room() > 0
            && let Some(id) = self.repairs.pop_front()
        {
            self.repair(id);
        }
    }

    /// Reads as many of a command's missing blocks as one command below can
    /// name, or what they are rebuilt from.
    fn repair(&mut self, id: u32) {
        let mut plan = Plan { id, ..Plan::default() };
        let mut list = self.list();
        let mut count = 0;
        for i in 0..MAX_ADDRESSES {
            let command = &self.commands[id];
            if command.todo >> i & 1 == 0 {
                continue;
            }
            let (ppa, was_tried) = (address(&command.cmd, i), command.tried >> i & 1 == 1);
            let wrong = match self.spot(ppa) {
                Spot::There if !was_tried => {
                    list.from[count] = self.layout.home(ppa);
                    (count, plan.blocks[usize::from(plan.count)]) = (count + 1, (i as u8, false));
                    plan.count += 1;
                    Status::SUCCESS
                }
                Spot::There | Spot::Lost if !self.can_rebuild(ppa) => Status::UNRECOVERED_READ,
                Spot::There | Spot::Lost => {
                    if count + self.layout.data_members() as usize > MAX_ADDRESSES {
                        break;
                    }
                    for other in self.others(ppa) {
                        list.from[count] = other;
                        count += 1;
                    }
                    plan.blocks[usize::from(plan.count)] = (i as u8, true);
                    plan.count += 1;
                    Status::SUCCESS
                }
                Spot::Owed => {
                    self.put(id, i, None);
                    Status::SUCCESS
                }
                Spot::Unwritten => Status::UNWRITTEN,
                Spot::Offline => Status::OFFLINE_CHUNK,
            };
            if !wrong.is_ok() {
                self.give_up(id, i, wrong);
            }
            if count == MAX_ADDRESSES {
                break;
            }
        }
        if count == 0 {
            self.lists.push(list);
            self.complete(id);
            return;
        }
        let VectorCmd { content, whose, .. } = self.commands[id].cmd;
        let (each, tag) = content.each(self.kept);
        let lane = self.lanes.take_as_is();
        let buffer = self.lanes[lane].take(count * (each + tag));
        self.lanes[lane].job = Job::Repair(plan);
        let (op, ppa, list) = (VectorOp::Read, Ppa(0), Some(list));
        let cmd =
            VectorCmd { cookie: 0, op, content, whose, count: count as u8, ppa, list, buffer };
        self.send(Cookie::Lane(lane), cmd);
    }

    /// The same block of all other members.
    fn others(&self, ppa: Ppa) -> impl Iterator<Item = Ppa> + '_ {
        let sb = self.layout.upper.chunk_index(ppa);
        let (_, own, block) = self.layout.place(self.layout.upper.block(ppa));
        let others = (0..self.layout.width).filter(move |&data| data != own);
        others.map(move |data| self.layout.at(self.layout.chunk(sb, data), block))
    }

    /// Whether all that is needed to rebuild a block should be there.
    fn can_rebuild(&self, ppa: Ppa) -> bool {
        let (sb, block) = (self.layout.upper.chunk_index(ppa), self.layout.upper.block(ppa));
        self.members(sb).can_rebuild(block)
    }

    /// A block of a command cannot be read.
    fn give_up(&mut self, id: u32, i: usize, status: Status) {
        self.counters.lost += u64::from(status == Status::UNRECOVERED_READ);
        let command = &mut self.commands[id];
        command.todo &= !block_bits(i, 1);
        command.failed |= block_bits(i, 1);
        command.status = command.status.and(status);
    }

    /// Puts block `i` of a read into its buffer: zeros, or the sum of `count`
    /// blocks from `first` on of those that a lane has read, `of` in all.
    fn put(&mut self, id: u32, i: usize, from: Option<(&[u8], usize, usize, usize)>) {
        let command = &mut self.commands[id];
        command.todo &= !block_bits(i, 1);
        let (each, tag) = command.cmd.content.each(self.kept);
        let n = usize::from(command.cmd.count);
        let (data, tags) = command.cmd.buffer.bytes_mut().split_at_mut(n * each);
        let (data, tags) = (&mut data[i * each..][..each], &mut tags[i * tag..][..tag]);
        data.fill(0);
        tags.fill(0);
        let Some((bytes, first, count, of)) = from else { return };
        for at in first..first + count {
            xor(data, &bytes[at * each..][..each]);
            xor(tags, &bytes[of * each + at * tag..][..tag]);
        }
    }

    pub(crate) fn repair_done(&mut self, lane: u32, plan: Plan, done: VectorDone) {
        let id = plan.id;
        // Where it was refused nothing was read.
        let failed = match done.status {
            Status::SUCCESS | Status::HIGH_ECC => 0,
            Status::UNRECOVERED_READ if done.failed != 0 => done.failed,
            _ => BlockBits::MAX,
        };
        let width = self.layout.data_members() as usize;
        let blocks = &plan.blocks[..usize::from(plan.count)];
        let of: usize =
            blocks.iter().map(|&(_, is_rebuilt)| if is_rebuilt { width } else { 1 }).sum();
        let mut first = 0;
        for &(i, is_rebuilt) in blocks {
            let (i, count) = (usize::from(i), if is_rebuilt { width } else { 1 });
            let has_failed = failed & block_bits(first, count) != 0;
            match (is_rebuilt, has_failed) {
                (false, true) => self.commands[id].tried |= block_bits(i, 1),
                (true, true) => self.give_up(id, i, Status::UNRECOVERED_READ),
                (_, false) => self.put(id, i, Some((done.buffer.bytes(), first, count, of))),
            }
            if is_rebuilt {
                self.counters.read += count as u64;
                self.counters.rebuilt += u64::from(!has_failed);
                let sb = self.layout.upper.chunk_index(address(&self.commands[id].cmd, i));
                self.tell(sb);
            }
            first += count;
        }
        self.lanes[lane].give(done.buffer);
        self.lanes.give(lane);
        if self.commands[id].todo == 0 {
            self.complete(id);
        } else {
            self.repairs.push_front(id);
        }
    }
}
