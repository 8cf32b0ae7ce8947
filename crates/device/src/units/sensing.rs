//! Reads in the array: how long they take, and how they are repeated.

use flash::Ppa;
use port::Time;

use super::{Op, State, Units};

impl Units {
    /// From now on each read is asked how long its array read takes, or not.
    /// Only while nothing is under way.
    pub fn set_senses(&mut self, senses: bool) {
        self.senses = senses;
        self.apart = senses || self.dies.is_some();
    }

    /// Whether the read that a parallel unit works on waits for
    /// [`Units::sense`].
    #[inline]
    pub fn is_sensing(&self, pu: u32) -> bool {
        self.units[pu].state == State::Sensing
    }

    /// tR of a read that is repeated; `None` where the drive is to be asked.
    #[inline(never)]
    pub(super) fn time_again(&mut self, pu: u32, ppa: Ppa, count: u8) -> Option<u64> {
        let unit = &mut self.units[pu];
        if unit.tries == 0 {
            unit.state = State::Sensing;
            return None;
        }
        unit.tries -= 1;
        Some(self.sensing_time(ppa, count))
    }

    /// Lets a read enter the array, to be repeated so many times: each takes a command
    /// and a tR more, and where the controller takes some time to find that, that and
    /// its data on the channel.
    pub fn sense(&mut self, now: Time, pu: u32, retries: u32, decode: u64) -> Option<u32> {
        let op = self.active(pu);
        if op.is_shared() {
            return self.sense_shared(now, pu);
        }
        let read = self.read_time(pu, op.ppa, op.count);
        let mut more = u64::from(retries) * (self.timing.command + read);
        let mut time = read + more;
        if decode > 0 {
            (self.units[pu].tries, self.decode, time) = (retries, decode, read);
            more += u64::from(retries) * (self.transfer_out(&op) + decode);
        }
        if let Some(tales) = &mut self.tales {
            tales.repeats(self.units[pu].active, more);
        }
        let finished = self.work(now, pu, true, time);
        self.settle(pu, finished)
    }

    /// The controller has the data of a read that is to be repeated.
    #[cold]
    pub(super) fn start_decoding(&mut self, now: Time, pu: u32) {
        self.units[pu].state = State::Decoding;
        self.timeline.set(pu, true, now + self.decode);
    }

    /// A read is repeated.
    #[cold]
    pub(super) fn repeat(&mut self, now: Time, pu: u32) -> Option<u32> {
        let time = self.timing.command;
        if time == 0 {
            return self.enter_apart(now, pu);
        }
        self.use_bus(now, pu, State::In, true, time);
        None
    }

    /// Channel time of what a read gives.
    #[inline]
    pub(super) fn transfer_out(&self, op: &Op) -> u64 {
        let transfer = if op.tags { &self.transfer_tags } else { &self.transfer };
        transfer[op.count as usize]
    }

    /// tR of neighbours in a wide page.
    pub(super) fn sensing_time(&self, ppa: Ppa, count: u8) -> u64 {
        match &self.slc {
            Some(slc) if slc.has(ppa, count.into()) => slc.config.read,
            _ if self.partial_reads && self.geometry.is_in_quarter(ppa, count.into()) => {
                self.timing.read_partial_of(self.geometry.wide_page(ppa))
            }
            _ => self.timing.read_of(self.geometry.wide_page(ppa)),
        }
    }

    /// The same, which a parallel unit reads.
    #[inline(never)]
    pub(super) fn read_time(&mut self, pu: u32, ppa: Ppa, count: u8) -> u64 {
        let time = self.sensing_time(ppa, count);
        self.takes(pu, time)
    }
}
