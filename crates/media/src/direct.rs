//! Direct targets: an application that has units of its own and asks them by vector
//! commands, beside targets that others made.
//!
//! It sees a drive of its own geometry ([`Shared::partition`]); the device checks each
//! command by the rules of flash: writes go in order, to chunks that were erased, in whole
//! rows; reads find what was written. What is against them, or names no block of the
//! application's, completes with the status that says so. Completions wait until they are
//! taken: a driver of time looks for them after each event, or turn.

use device::{OpenChannel, VectorCmd, VectorDone};
use flash::Chunk;
use ftl::Over;
use port::{Ring, Time};

use crate::claim::Claim;
use crate::error::MediaError;
use crate::partition::Partition;
use crate::shared::Shared;

impl<D: OpenChannel, T: Over<Below = Partition<D>>> Shared<D, T> {
    /// Gives an application what it claims. Gives its number.
    pub fn open(&mut self, claim: &Claim) -> Result<usize, MediaError> {
        if self.media().device().timing().limits_open() {
            return Err(MediaError::DirectOpenChunks);
        }
        let partition = Partition::new(self.media_mut(), claim, false)?;
        let number = partition.number();
        self.direct_mut().push(partition);
        Ok(number)
    }

    /// What an application has: its geometry and timing.
    ///
    /// # Panics
    /// Without such an application, as all below.
    pub fn partition(&self, number: usize) -> &Partition<D> {
        let is_its = |partition: &&Partition<D>| partition.number() == number;
        self.direct().iter().find(is_its).expect("the application has a partition")
    }

    /// A chunk of an application's, as it is now.
    pub fn chunk(&self, number: usize, chunk: usize) -> Chunk {
        self.media().chunk_of(self.partition(number).number(), chunk)
    }

    /// Takes commands of an application, as many as it may have inside.
    pub fn submit_direct(&mut self, number: usize, now: Time, cmds: &mut Ring<VectorCmd>) {
        let number = self.partition(number).number();
        self.media_mut().submit(number, now, cmds);
    }

    /// Gives an application what completed of its own, as far as there is room.
    pub fn take_direct(&mut self, number: usize, done: &mut Ring<VectorDone>) {
        let number = self.partition(number).number();
        self.media_mut().take(number, done);
    }

    /// Takes back what an application has; what it wrote is erased.
    ///
    /// Fails while commands of it are inside, or completions were not taken.
    pub fn close_direct(&mut self, number: usize, now: Time) -> Result<(), MediaError> {
        let number = self.partition(number).number();
        self.media_mut().give_up(number, now)?;
        self.direct_mut().retain(|partition| partition.number() != number);
        Ok(())
    }
}
