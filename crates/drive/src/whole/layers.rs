//! Layers before the targets of a drive: each is a drive over another, and is ended with
//! it. Fails where a layer cannot give down what it holds.

use device::{Buffered, CacheCounters, Cached, Coarse, Link, PowerHealth, Powered, Queued};
use ftl::{Target, WriteCounters};
use nvram::{JournalError, Protected};
use port::{Shape, Striped, Time};
use ruled::SetInstaller;

use super::{Boxed, Cut, Drive, Ended, PartOf};
use crate::backing::Store;
use crate::error::Error;
use crate::lower::Lower;
use crate::patience::let_happen;
use crate::shared::Shared;

/// Of a layer of a drive that has all its targets below, and the outside of that.
macro_rules! has_what_is_below {
    () => {
        fn shards(&self) -> usize {
            self.below().shards()
        }

        fn lower(&self, shard: usize) -> &dyn Lower {
            self.below().lower(shard)
        }

        fn lower_mut(&mut self, shard: usize) -> &mut dyn Lower {
            self.below_mut().lower_mut(shard)
        }

        fn targets(&self) -> usize {
            self.below().targets()
        }

        fn target(&self, target: usize) -> &dyn Target {
            self.below().target(target)
        }

        fn target_mut(&mut self, target: usize) -> &mut dyn Target {
            self.below_mut().target_mut(target)
        }

        fn part(&self, target: usize) -> Option<PartOf<'_>> {
            self.below().part(target)
        }

        fn gone(&self) -> WriteCounters {
            self.below().gone()
        }

        fn shared(&self) -> Option<&Shared> {
            self.below().shared()
        }

        fn shared_mut(&mut self) -> Option<&mut Shared> {
            self.below_mut().shared_mut()
        }

        fn valid_blocks(&self, shard: usize, chunk: usize) -> u32 {
            self.below().valid_blocks(shard, chunk)
        }

        fn tend(&mut self, now: Time) {
            self.below_mut().tend(now);
        }

        fn rules(&self) -> Option<SetInstaller> {
            self.below().rules()
        }

        fn shape(&self) -> Shape {
            self.below().shape()
        }
    };
}
pub(super) use has_what_is_below;

/// Of a layer that keeps nothing over a power cut.
macro_rules! is_cut_with_what_is_below {
    () => {
        fn cut(self: Box<Self>) -> Cut {
            Box::new(self.into_below()).cut()
        }
    };
}
pub(super) use is_cut_with_what_is_below;

/// Of a layer that makes nothing late by rules.
macro_rules! hurries_what_is_below {
    () => {
        fn hurry(&mut self, now: Time) {
            self.below_mut().hurry(now);
        }
    };
}

/// Of a layer that waits for nothing but what is below.
macro_rules! is_on_the_clock_of_what_is_below {
    () => {
        fn set_on_a_clock(&mut self, on_a_clock: bool) {
            self.below_mut().set_on_a_clock(on_a_clock);
        }
    };
}
pub(super) use is_on_the_clock_of_what_is_below;

/// Of a layer that holds nothing to give down, and adds nothing to what is told of a drive.
macro_rules! is_as_what_is_below {
    () => {
        has_what_is_below!();
        hurries_what_is_below!();
        is_on_the_clock_of_what_is_below!();
        is_cut_with_what_is_below!();

        fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
            Box::new(self.into_below()).end(now)
        }

        fn fault(&self) -> Option<(Error, bool)> {
            self.below().fault()
        }

        fn read_cache(&self) -> Option<CacheCounters> {
            self.below().read_cache()
        }
    };
}

impl<D: Drive> Drive for Link<D> {
    is_as_what_is_below!();
}

impl Drive for Coarse<Boxed> {
    is_as_what_is_below!();
}

impl Drive for Buffered<Boxed> {
    is_as_what_is_below!();
}

impl Drive for Queued<Boxed> {
    is_as_what_is_below!();
}

impl Drive for Cached<Boxed> {
    has_what_is_below!();
    hurries_what_is_below!();
    is_on_the_clock_of_what_is_below!();
    is_cut_with_what_is_below!();

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        // What is still read ahead comes back first.
        let at = let_happen(&mut *self, now, |cache, _| !cache.is_idle());
        self.into_below().end(at)
    }

    fn fault(&self) -> Option<(Error, bool)> {
        self.below().fault()
    }

    fn read_cache(&self) -> Option<CacheCounters> {
        Some(self.counters())
    }
}

impl Drive for Powered<Boxed> {
    is_as_what_is_below!();

    fn power(&self, now: Time) -> Option<PowerHealth> {
        Some(self.health(now))
    }
}

impl Drive for Protected<Boxed, Store> {
    has_what_is_below!();
    hurries_what_is_below!();

    fn set_on_a_clock(&mut self, on_a_clock: bool) {
        Protected::set_on_a_clock(self, on_a_clock);
        self.below_mut().set_on_a_clock(on_a_clock);
    }

    fn cut(self: Box<Self>) -> Cut {
        let (below, journal) = Protected::cut(*self);
        Cut { journal: Some(journal), ..below.cut() }
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        Protected::set_on_a_clock(&mut *self, false);
        let at = let_happen(&mut *self, now, |cache, _| !cache.is_idle());
        let (below, journal) = self.into_below();
        let ended = below.end(at);
        if let Some(mut journal) = journal {
            match &ended {
                // All is in flash: nothing is to be written again.
                Ok(_) => journal.clear().map_err(|e| Error::File(e.to_string()))?,
                // It may be the disk, and so what the journal has not synced be gone: the next
                // start is to know.
                Err(_) => drop(journal.wait_synced()),
            }
        }
        ended
    }

    fn fault(&self) -> Option<(Error, bool)> {
        let stopped = |e: &JournalError| (Error::File(e.to_string()), e.is_full());
        let frozen = |status| {
            let text = format!("the drive did not take what its protected cache holds: {status}");
            (Error::Failed(text), false)
        };
        let of_cache = || self.error().map(stopped).or_else(|| self.frozen().map(frozen));
        self.below().fault().or_else(of_cache)
    }
}

impl Drive for Striped<Boxed> {
    fn shards(&self) -> usize {
        self.count()
    }

    fn lower(&self, shard: usize) -> &dyn Lower {
        self.shard(shard).lower(0)
    }

    fn lower_mut(&mut self, shard: usize) -> &mut dyn Lower {
        self.shard_mut(shard).lower_mut(0)
    }

    fn target(&self, shard: usize) -> &dyn Target {
        self.shard(shard).target(0)
    }

    fn target_mut(&mut self, shard: usize) -> &mut dyn Target {
        self.shard_mut(shard).target_mut(0)
    }

    fn shape(&self) -> Shape {
        Striped::shape(self)
    }

    fn cut(self: Box<Self>) -> Cut {
        let shards = self.into_shards().into_iter().flat_map(|shard| shard.cut().shards);
        Cut { shards: shards.collect(), journal: None }
    }

    /// Ends all of them, also where one fails.
    fn end(self: Box<Self>, now: Time) -> Result<Ended, Error> {
        let all: Vec<_> = self.into_shards().into_iter().map(|shard| shard.end(now)).collect();
        let mut whole = Ended { shards: Vec::new(), at: now };
        for ended in all {
            let Ended { shards, at } = ended?;
            whole.shards.extend(shards);
            whole.at = whole.at.max(at);
        }
        Ok(whole)
    }
}
