//! A drive of several targets on one device, as the media manager has them: of blocks, page-mapped
//! or made of rules, and some that keep values by key ([`keyed`]).
//!
//! Guarantees: each has the place and the part of all else that the drive's description
//! gives it, and its addresses are where its units are. Targets come and go beside the
//! others' work; what is left of one that went is erased, also after a cut. Of a drive that is
//! there again those targets are served that were found; what the others have stays as it is
//! until they are removed. Fails where a target cannot be made, or none is found again.

mod keyed;

use device::OpenChannel;
use ftl::{OneOf, Target, WriteCounters};
use media::{Claim, CreateError, Found, MediaError, Partition};
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time, Turn, random};
use ruled::{Ruled, SetInstaller};
use targets::{KvTenant, Pblk};

pub(crate) use self::keyed::refuse_layers;
use crate::error::Error;
use crate::lower::{Flash, Lower};
use crate::spec::{DriveConfig, TargetKind};
use crate::stack::{new_target, target};
use crate::whole::{Cut, Drive, Ended, PartOf, cut, ended, rest};

/// A target's part of the device.
pub type Part = Partition<Flash>;

/// A target of a drive of several.
type Tenant = OneOf<Pblk<Part>, OneOf<Ruled<Part>, KvTenant<Part>>>;

/// Several targets on one device.
pub struct Shared {
    targets: media::Shared<Flash, Tenant>,
    config: DriveConfig,
    seed: u64,
    /// By the target's number.
    names: Vec<String>,
    damaged: Vec<Damaged>,
    /// It is to end soon: nothing in it waits for the sake of time.
    is_hurried: bool,
}

/// A target that was not found again.
#[derive(Debug)]
pub struct Damaged {
    number: usize,
    /// What it is called.
    pub name: String,
    /// Why.
    pub why: Error,
}

/// Several targets on one device: new, or recovered one after the other.
pub(crate) fn share(
    config: &DriveConfig,
    seed: u64,
    flash: Flash,
    is_found: bool,
) -> Result<(Shared, Time), Error> {
    let (mut targets, mut ready) = (media::Shared::new(flash), Time::ZERO);
    if config.has_keyed_parts() {
        let of = |why| Error::Usage(format!("{}: {why}", config.name));
        refuse_layers(config, "a target that keeps values by key").map_err(of)?;
    }
    let mut damaged = Vec::new();
    let depth = targets.media().device().depth();
    for n in 0..config.targets() {
        let (one, claim) = (&config.target(n), claim(config, n, depth));
        let seed = seed_of(config, seed, n);
        crate::ruled::warn(one);
        if is_found {
            let find = |part, now| start(one, seed, part, Some(now));
            let found = targets.found(&claim, ready, find).map_err(media_error)?;
            let Found { number, mut lost, .. } = found;
            ready = found.ready;
            // What there was no memory for is whole.
            if let Some(why) = lost.take_if(|why| why.is_of_memory()) {
                return Err(why);
            }
            let name = || config.parts[n as usize].name.clone();
            damaged.extend(lost.map(|why| Damaged { number, name: name(), why }));
        } else {
            let make = |part| Ok(start(one, seed, part, None)?.0);
            targets.create(&claim, make).map_err(create_error)?;
        }
    }
    let has_blocks = targets.numbers().iter().any(|&n| targets.shape_of(n).bytes > 0);
    let of_blocks = |one: &Damaged| config.parts[one.number].kind() != TargetKind::Kv;
    if !has_blocks && let Some(at) = damaged.iter().position(of_blocks) {
        return Err(damaged.remove(at).why);
    }
    targets.media_mut().clear(ready);
    let names = config.parts.iter().map(|part| part.name.clone()).collect();
    let (config, is_hurried) = (config.clone(), false);
    Ok((Shared { targets, config, seed, names, damaged, is_hurried }, ready))
}

/// A target on its part: new, or found again from some time on.
fn start(
    config: &DriveConfig,
    seed: u64,
    part: Part,
    found: Option<Time>,
) -> Result<(Tenant, Time), Error> {
    if config.rules.is_some() {
        let (target, ready) = crate::ruled::start(config, seed, part, found)?;
        return Ok((OneOf::Second(OneOf::First(target)), ready));
    }
    if config.spec.target == TargetKind::Kv {
        let (target, ready) = keyed::start(config, seed, part, found)?;
        return Ok((OneOf::Second(OneOf::Second(target)), ready));
    }
    let set_up = target(config, seed);
    let Some(now) = found else {
        return Ok((OneOf::First(new_target(config, part, set_up)?), Time::ZERO));
    };
    let failed = |source| Error::Recovery { name: config.name.clone(), source };
    let (target, ready) = Pblk::recover(part, set_up, now).map_err(failed)?;
    Ok((OneOf::First(target), ready))
}

/// What a target draws from. One of keys is found again with the same alone, whoever came and
/// went before it: it is told by its place.
fn seed_of(config: &DriveConfig, seed: u64, n: u32) -> u64 {
    let part = &config.parts[n as usize];
    let which = if part.kind() == TargetKind::Kv { part.first } else { n };
    seed.wrapping_add(random::STEP.wrapping_mul(which.into()))
}

/// What a target claims of a device that takes so many commands.
fn claim(config: &DriveConfig, n: u32, depth: usize) -> Claim {
    let timing = &config.target(n).profile.timing;
    Claim {
        place: config.place(n),
        first: Some(config.first_byte(n)),
        depth: config.part_of(n, media::depth_for_targets(depth)).max(1),
        open_chunks: (timing.open_chunks, timing.open_chunks_pu),
        chunk_time: 0,
    }
}

impl Shared {
    /// What the drive is, with the targets that it has, or will have lost.
    pub fn config(&self) -> &DriveConfig {
        &self.config
    }

    /// What the drive's file is to say of it when it is that.
    pub fn text(&self, config: &DriveConfig) -> Result<String, Error> {
        crate::spec::file::drive_text(config, self.seed)
    }

    /// The number of a target that is not leaving, damaged or not.
    pub fn number(&self, name: &str) -> Option<usize> {
        let is_its = |n: &usize| self.names[*n] == name;
        let is_there = self.config.parts.iter().any(|part| part.name == name);
        let damaged = self.damaged.iter().map(|one| one.number);
        let all = self.targets.numbers().iter().copied().chain(damaged);
        all.filter(|_| is_there).find(is_its)
    }

    /// Its targets that were not found again.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// Why a target was not found again, where that is so.
    pub fn damage_of(&self, name: &str) -> Option<&Error> {
        self.damaged.iter().find(|one| one.name == name).map(|one| &one.why)
    }

    /// Whether a target was not found again.
    pub fn is_damaged(&self, number: usize) -> bool {
        self.damaged.iter().any(|one| one.number == number)
    }

    /// Says more of why they were not.
    pub(crate) fn explain_damage(&mut self, more: impl Fn(Error) -> Error) {
        for one in &mut self.damaged {
            let why = std::mem::replace(&mut one.why, Error::Failed(String::new()));
            one.why = more(why);
        }
    }

    /// Why the first of them was not, for who wants all or nothing.
    pub(crate) fn take_damage(&mut self) -> Option<Error> {
        (!self.damaged.is_empty()).then(|| self.damaged.remove(0).why)
    }

    /// Who installs rule sets in a target, where that is made of rules, and not damaged.
    pub fn rules_of(&self, number: usize) -> Option<SetInstaller> {
        if self.is_damaged(number) {
            return None;
        }
        match self.targets.target(number) {
            OneOf::Second(OneOf::First(ruled)) => Some(ruled.installer()),
            OneOf::First(_) | OneOf::Second(OneOf::Second(_)) => None,
        }
    }

    /// Makes the drive what `next` says, which has target `n` more. It takes no requests
    /// until it [may](Shared::set_serving). Gives its number.
    ///
    /// Fails where its chunks cannot be had, or no target can be on them: nothing has
    /// changed then.
    pub fn create(&mut self, next: DriveConfig, n: u32) -> Result<usize, Error> {
        let depth = self.targets.media().device().depth();
        let (one, claim) = (&next.target(n), claim(&next, n, depth));
        let make = |part| Ok(start(one, seed_of(&next, self.seed, n), part, None)?.0);
        let number = self.targets.create(&claim, make).map_err(create_error)?;
        self.targets.set_serving(number, false).map_err(media_error)?;
        if self.names.len() <= number {
            self.names.resize(number + 1, String::new());
        }
        self.names[number] = next.parts[n as usize].name.clone();
        self.config = next;
        Ok(number)
    }

    /// Has a target take requests, or none for now.
    pub fn set_serving(&mut self, number: usize, serves: bool) -> Result<(), Error> {
        self.targets.set_serving(number, serves).map_err(media_error)
    }

    /// Has a target hold nothing back for the sake of time, or again as its rules say.
    pub fn set_hurried(&mut self, number: usize, hurried: bool, now: Time) -> Result<(), Error> {
        let hurried = hurried || self.is_hurried;
        self.targets.set_hurried(number, hurried, now).map_err(media_error)
    }

    /// Makes the drive what `next` says, which has a target less, damaged or not: that one
    /// leaves, and what it has is erased.
    pub fn remove(&mut self, next: DriveConfig, number: usize, now: Time) -> Result<(), Error> {
        match self.damaged.iter().position(|one| one.number == number) {
            Some(at) => {
                self.targets.media_mut().give_up(number, now).map_err(media_error)?;
                self.damaged.remove(at);
            }
            None => self.targets.remove(number, now).map_err(media_error)?,
        }
        self.config = next;
        Ok(())
    }

    /// Whether a target is gone, and chunks of it that are to be erased yet.
    pub fn leaving(&self, number: usize) -> (bool, usize) {
        (self.targets.is_gone(number), self.targets.media().left_of(number))
    }

    /// Chunks that targets left and that could not be erased, so far.
    pub fn unerased(&self) -> u64 {
        self.targets.media().unerased()
    }

    /// Chunks that are to be erased yet of all that targets have left.
    pub fn left(&self) -> usize {
        (0..media::MAX_TARGETS).map(|n| self.targets.media().left_of(n)).sum()
    }

    /// The number of the target that is `n`-th now.
    fn nth(&self, n: usize) -> usize {
        self.targets.numbers()[n]
    }
}

fn media_error(e: MediaError) -> Error {
    Error::Failed(e.to_string())
}

fn create_error(e: CreateError<Error>) -> Error {
    match e {
        // Of a drive that was resolved: nothing that its user could mend.
        CreateError::Media(e) => media_error(e),
        CreateError::Target(e) => e,
    }
}

impl Port for Shared {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.targets.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.targets.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.targets.advance(to, done);
    }

    fn turn(
        &mut self,
        now: Time,
        until: Option<Time>,
        cmds: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Turn {
        self.targets.turn(now, until, cmds, done)
    }

    fn hint(&self, req: &BlockReq) {
        self.targets.hint(req);
    }
}

impl Drive for Shared {
    fn shards(&self) -> usize {
        1
    }

    fn lower(&self, _shard: usize) -> &dyn Lower {
        self.targets.media().device()
    }

    fn lower_mut(&mut self, _shard: usize) -> &mut dyn Lower {
        self.targets.media_mut().device_mut()
    }

    fn targets(&self) -> usize {
        self.targets.numbers().len()
    }

    fn target(&self, target: usize) -> &dyn Target {
        self.targets.target(self.nth(target))
    }

    fn target_mut(&mut self, target: usize) -> &mut dyn Target {
        let number = self.nth(target);
        self.targets.target_mut(number)
    }

    fn part(&self, target: usize) -> Option<PartOf<'_>> {
        let number = self.nth(target);
        let (first, bytes) = (self.targets.first_of(number), self.targets.shape_of(number).bytes);
        Some(PartOf { name: &self.names[number], first, bytes })
    }

    fn gone(&self) -> WriteCounters {
        self.targets.gone()
    }

    fn shared(&self) -> Option<&Shared> {
        Some(self)
    }

    fn shared_mut(&mut self) -> Option<&mut Shared> {
        Some(self)
    }

    fn valid_blocks(&self, _shard: usize, chunk: usize) -> u32 {
        let owner = self.targets.media().owner(chunk);
        let owner = owner.filter(|(n, _)| !self.targets.is_gone(*n));
        owner.map_or(0, |(n, its)| Target::valid_blocks(self.targets.target(n), its))
    }

    fn tend(&mut self, now: Time) {
        self.lower_mut(0).device_mut().patrol(now);
        self.targets.heed_notices(now);
    }

    fn hurry(&mut self, now: Time) {
        self.is_hurried = true;
        self.lower_mut(0).hurry(now);
        for n in self.targets.numbers().to_vec() {
            self.targets.set_hurried(n, true, now).expect("it is there");
        }
    }

    fn shape(&self) -> Shape {
        self.targets.shape()
    }

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        self.lower_mut(0).device_mut().set_on_a_clock(false);
        let at = rest(&mut *self, now, Some(now));
        self.targets.close(now);
        let at = at.max(rest(&mut *self, now, None));
        let closed = self.targets.is_closed();
        ended(Box::new(self.targets.into_device()), closed, at)
    }

    fn cut(self: Box<Self>) -> Cut {
        cut(Box::new(self.targets.into_device()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
