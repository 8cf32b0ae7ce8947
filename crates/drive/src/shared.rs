//! A drive of several targets on one device, as the media manager has them.
//!
//! Guarantees: each has the place and the part of all else that the drive's name gives it.
//! Fails where a target cannot be made, or found again.

use device::OpenChannel;
use ftl::Target;
use media::{Claim, CreateError, Partition};
use port::{Shape, Time, random};
use targets::Pblk;

use crate::error::Error;
use crate::lower::{Flash, Lower};
use crate::spec::DriveConfig;
use crate::stack::{new_target, target};
use crate::whole::{Drive, Ended, ended, rest};

/// Several targets on one device.
pub type Shared = media::Shared<Flash, Pblk<Partition<Flash>>>;

/// Several targets on one device: new, or recovered one after the other.
pub(crate) fn share(
    config: &DriveConfig,
    seed: u64,
    flash: Flash,
    is_found: bool,
) -> Result<(Shared, Time), Error> {
    let targets = config.spec.targets;
    let depth = (media::depth_for_targets(flash.depth()) / targets as usize).max(1);
    let (mut shared, mut ready) = (Shared::new(flash), Time::ZERO);
    let failed = |source| Error::Recovery { name: config.name.clone(), source };
    for n in 0..targets {
        let one = &config.target(n);
        let timing = &one.profile.timing;
        let claim = Claim {
            place: config.place(n),
            depth,
            open_chunks: (timing.open_chunks, timing.open_chunks_pu),
            chunk_time: 0,
        };
        let set_up = target(one, seed.wrapping_add(random::STEP.wrapping_mul(n.into())));
        if is_found {
            let find = |partition, now| Pblk::recover(partition, set_up, now).map_err(failed);
            let found = shared.found(&claim, ready, find);
            (shared, ready) = found.map_err(create_error)?;
        } else {
            let make = |partition| new_target(one, partition, set_up);
            shared.create(&claim, make).map_err(create_error)?;
        }
    }
    Ok((shared, ready))
}

fn create_error(e: CreateError<Error>) -> Error {
    match e {
        // Of a drive that was resolved: nothing that its user could mend.
        CreateError::Media(e) => Error::Failed(e.to_string()),
        CreateError::Target(e) => e,
    }
}

impl Drive for Shared {
    fn shards(&self) -> usize {
        1
    }

    fn lower(&self, _shard: usize) -> &dyn Lower {
        self.media().device()
    }

    fn lower_mut(&mut self, _shard: usize) -> &mut dyn Lower {
        self.media_mut().device_mut()
    }

    fn targets(&self) -> usize {
        self.numbers().count()
    }

    fn target(&self, target: usize) -> &dyn Target {
        let target: &Pblk<_> = media::Shared::target(self, target);
        target
    }

    fn target_mut(&mut self, target: usize) -> &mut dyn Target {
        let target: &mut Pblk<_> = media::Shared::target_mut(self, target);
        target
    }

    fn part(&self, target: usize) -> Option<(u64, u64)> {
        Some((self.first_of(target), self.shape_of(target).bytes))
    }

    fn valid_blocks(&self, _shard: usize, chunk: usize) -> u32 {
        let owner = self.media().owner(chunk);
        owner.map_or(0, |(n, its)| Target::valid_blocks(media::Shared::target(self, n), its))
    }

    fn tend(&mut self, now: Time) {
        self.lower_mut(0).device_mut().patrol(now);
        self.heed_notices(now);
    }

    fn shape(&self) -> Shape {
        media::Shared::shape(self)
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        self.lower_mut(0).device_mut().set_on_a_clock(false);
        let at = rest(&mut *self, now, Some(now));
        self.close(now);
        let at = at.max(rest(&mut *self, now, None));
        let closed = self.is_closed();
        ended(Box::new(self.into_device()), closed, at)
    }
}
