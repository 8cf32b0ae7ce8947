//! What pblk is to those to whom it is one of the block targets.

use device::OpenChannel;
use ftl::{MapCacheCounters, Memory, Over, Start, Target, WriteCounters};
use port::{Shape, Time};

use super::{Pblk, PblkConfig, PblkError};

impl<D: OpenChannel> Target for Pblk<D> {
    fn shape(&self) -> Shape {
        self.shape()
    }

    fn counters(&self) -> WriteCounters {
        self.counters()
    }

    fn free_chunks(&self) -> u64 {
        self.free_chunks()
    }

    fn valid_blocks(&self, chunk: usize) -> u32 {
        self.space.valid_blocks(chunk)
    }

    fn memory(&self) -> Memory {
        self.memory()
    }

    fn map_cache(&self) -> Option<MapCacheCounters> {
        self.map_cache()
    }

    fn populate(&self) {
        self.populate();
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only()
    }

    fn state_hash(&self) -> u64 {
        self.state_hash()
    }

    fn heed_notices(&mut self, now: Time) {
        self.heed_notices(now);
    }

    fn count_as_own(&mut self, before: WriteCounters) {
        self.count_as_own(before);
    }

    fn close(&mut self, now: Time) {
        self.close(now);
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}

impl<D: OpenChannel> Over for Pblk<D> {
    type Below = D;

    fn below(&self) -> &D {
        self.device()
    }

    fn below_mut(&mut self) -> &mut D {
        self.device_mut()
    }

    fn into_below(self: Box<Self>) -> D {
        self.into_device()
    }
}

impl<D: OpenChannel> Start for Pblk<D> {
    type Config = PblkConfig;
    type Error = PblkError;

    fn new(device: D, config: &PblkConfig) -> Result<Self, PblkError> {
        Pblk::new(device, *config)
    }

    fn recover(device: D, config: &PblkConfig, now: Time) -> Result<(Self, Time), PblkError> {
        Pblk::recover(device, *config, now)
    }
}
