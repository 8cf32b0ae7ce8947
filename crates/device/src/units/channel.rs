//! Channels: which parallel unit has one, and which waits for it.

use port::Time;

use super::suspension::one_more;
use super::{OpKind, State, Unit, Units};
use crate::list::{List, NONE, Table};
use crate::timeline::Timeline;

/// The owner of a channel on which data of a die with several registers have gone
/// out: its next command goes first, and is known as soon as the bytes have moved.
const HELD: u32 = NONE - 1;

#[derive(Clone, Copy)]
pub(super) struct Channel {
    /// The parallel unit that has the channel.
    owner: u32,
    /// When its transfer ends.
    end: Time,
    /// Transfers of reads that went before something else since the last of
    /// that ended.
    passed: u32,
    /// Waiting for commands of reads to dies with several registers.
    commands: List,
    /// Waiting for reads: commands and data out.
    reads: List,
    /// Waiting for programs and erases.
    others: List,
}

impl Default for Channel {
    fn default() -> Channel {
        let none = List::default();
        Channel {
            owner: NONE,
            end: Time::ZERO,
            passed: 0,
            commands: none,
            reads: none,
            others: none,
        }
    }
}

impl Channel {
    /// The parallel unit has the channel for so long.
    #[inline(always)]
    fn grant(&mut self, timeline: &mut Timeline, now: Time, pu: u32, time: u64) {
        (self.owner, self.end) = (pu, now + time);
        timeline.set_transfer(pu, self.end);
    }

    /// Who waits for the channel of this number has it: see [`Units::grant_next`].
    #[inline(always)]
    fn grant_next<const APART: bool>(
        &mut self,
        units: &mut Table<Unit>,
        timeline: &mut Timeline,
        burst: u32,
        (now, number): (Time, u32),
    ) {
        let reads_go = self.others.is_empty() || self.reads.is_empty();
        let next = if APART && !self.commands.is_empty() {
            self.commands.pop_entry(units)
        } else if (reads_go || one_more(&mut self.passed, burst)) && !self.reads.is_empty() {
            self.reads.pop_entry(units)
        } else {
            self.others.pop_entry(units)
        };
        match next {
            Some((next, unit)) => {
                let time = unit.bus_time;
                self.grant(timeline, now, next, time);
            }
            None => {
                self.owner = NONE;
                timeline.end_transfer(number);
            }
        }
    }
}

impl Units {
    /// Takes the channel for `time`, at once or when its turn comes.
    #[inline(always)]
    pub(super) fn use_bus(&mut self, now: Time, pu: u32, state: State, is_read: bool, time: u64) {
        let unit = &mut self.units[pu];
        (unit.state, unit.bus_time) = (state, time);
        let number = self.channel_of(pu);
        let channel = &mut self.channels[number];
        let owner = channel.owner;
        if owner == NONE {
            channel.grant(&mut self.timeline, now, pu, time);
            return;
        }
        let may = is_read && self.timing.suspend_transfer && owner != HELD;
        if may && self.interrupts(now, (pu, number), owner, time) {
            return;
        }
        let channel = &mut self.channels[number];
        let first = is_read && self.timing.reads_first;
        let list = match first {
            _ if is_read && state == State::In && self.register_bits > 0 => &mut channel.commands,
            true => &mut channel.reads,
            false => &mut channel.others,
        };
        list.push(pu, &mut self.units);
    }

    /// The number of its channel.
    #[inline(always)]
    pub(super) fn channel_of(&self, pu: u32) -> u32 {
        pu >> self.channel_bits
    }

    /// Whether a read takes its channel, of this number, from the owner, which is
    /// counted: then it has it for `time`.
    #[inline(never)]
    fn interrupts(&mut self, now: Time, (pu, number): (u32, u32), owner: u32, time: u64) -> bool {
        let is_program = self.active(owner).kind == OpKind::Program;
        let channel = &mut self.channels[number];
        if !is_program || !one_more(&mut channel.passed, self.timing.read_burst) {
            return false;
        }
        self.units[owner].bus_time = channel.end.since(now);
        channel.others.push_front(owner, &mut self.units);
        channel.grant(&mut self.timeline, now, pu, time);
        true
    }

    /// The channel's transfer is over: the next that waits has it.
    #[inline(always)]
    pub(super) fn bus_end(&mut self, now: Time, pu: u32, state: State) -> Option<u32> {
        let (number, burst) = (self.channel_of(pu), self.timing.read_burst);
        let channel = &mut self.channels[number];
        debug_assert_eq!(channel.owner, pu);
        if channel.passed > 0 && self.ops[self.units[pu].active].kind != OpKind::Read {
            channel.passed = 0;
        }
        if self.apart {
            return self.bus_end_apart(now, pu, state);
        }
        channel.grant_next::<false>(&mut self.units, &mut self.timeline, burst, (now, number));
        if state == State::In {
            return self.enter(now, pu);
        }
        self.units[pu].state = State::Finishing;
        Some(pu)
    }

    /// The same where dies have several registers, or reads may be repeated.
    #[inline(never)]
    fn bus_end_apart(&mut self, now: Time, pu: u32, state: State) -> Option<u32> {
        let number = self.channel_of(pu);
        let repeats = state == State::Out && self.units[pu].tries > 0;
        if state == State::Out && self.register_bits > 0 && !repeats {
            self.channels[number].owner = HELD;
            self.timeline.end_transfer(number);
            self.units[pu].state = State::Finishing;
            return Some(pu);
        }
        self.grant_next::<true>(now, number);
        if repeats {
            self.start_decoding(now, pu);
            return None;
        }
        if state == State::In {
            return if self.dies.is_some() { self.came_in(now, pu) } else { self.enter(now, pu) };
        }
        self.units[pu].state = State::Finishing;
        Some(pu)
    }

    /// The register's data are out: who waits for the channel has it, if that was left
    /// to the next command of the die.
    #[inline(never)]
    pub(super) fn pass_on(&mut self, now: Time, pu: u32) {
        let number = self.channel_of(pu);
        if self.channels[number].owner == HELD {
            self.grant_next::<true>(now, number);
            self.timeline.settle(pu);
        }
    }

    /// Who waits for the channel has it. `APART` is false where no command waits as one
    /// to a die with several registers.
    fn grant_next<const APART: bool>(&mut self, now: Time, number: u32) {
        let (units, timeline) = (&mut self.units, &mut self.timeline);
        let burst = self.timing.read_burst;
        self.channels[number].grant_next::<APART>(units, timeline, burst, (now, number));
    }
}
