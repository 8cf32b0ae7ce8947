//! The target as others see it: a port, and one of the block targets.

use device::OpenChannel;
use ftl::{Memory, Over, Start, Target, WriteCounters};
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};

use crate::{Cookie, Zone, Zones, ZonesConfig, ZonesError};

impl<D: OpenChannel> Port for Zones<D> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        while self.has_room()
            && let Some(req) = reqs.pop()
        {
            self.take(now, req);
        }
        self.device.submit(now, &mut self.out);
    }

    fn next_event(&self) -> Option<Time> {
        let ready = self.ready.front().map(|done| done.at);
        ready.or_else(|| self.device.next_event())
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if self.device.next_event().is_some_and(|at| at <= to) {
            self.device.advance(to, &mut self.device_done);
        }
        while let Some(done) = self.device_done.pop() {
            self.complete(to, done);
        }
        self.start_waiting(to);
        self.device.submit(to, &mut self.out);
        self.ready.pour(done);
    }
}

impl<D: OpenChannel> Target for Zones<D> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn counters(&self) -> WriteCounters {
        self.counters
    }

    fn free_chunks(&self) -> u64 {
        self.zones.iter().filter(|zone| zone.next == 0).count() as u64
    }

    /// All that was written: a zone is never written over.
    fn valid_blocks(&self, chunk: usize) -> u32 {
        self.zones.iter().find(|zone| zone.chunk == chunk).map_or(0, |zone| zone.next)
    }

    fn memory(&self) -> Memory {
        let chunks = (self.zones.len() * size_of::<Zone>()) as u64;
        Memory { chunks, ..Memory::default() }
    }

    /// Zones fail one by one.
    fn is_read_only(&self) -> bool {
        self.zones.iter().all(|zone| zone.failed)
    }

    fn state_hash(&self) -> u64 {
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9);
        let of_zones = self.zones.iter().map(|zone| u64::from(zone.next));
        of_zones.chain([self.counters.user, self.counters.erases]).fold(0, mix)
    }

    fn close(&mut self, now: Time) {
        self.closed = !self.device.is_cached();
        if !self.closed {
            self.send_flush(Cookie::Close);
            self.device.submit(now, &mut self.out);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

impl<D: OpenChannel> Over for Zones<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.device
    }

    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn into_below(self: Box<Self>) -> D {
        self.device
    }
}

impl<D: OpenChannel> Start for Zones<D> {
    type Config = ZonesConfig;
    type Error = ZonesError;

    fn new(device: D, config: &ZonesConfig) -> Result<Self, ZonesError> {
        Zones::open(device, config)
    }

    fn recover(device: D, config: &ZonesConfig, now: Time) -> Result<(Self, Time), ZonesError> {
        Ok((Zones::open(device, config)?, now))
    }
}
