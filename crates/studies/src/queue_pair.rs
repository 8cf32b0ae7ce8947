//! A drive behind a real queue pair: the drive on a thread of its own, the
//! load on this one, submission and completion queues in memory between them.
//!
//! Guarantees: the same rules as every driver of a load; both threads poll, so
//! neither is woken. May fail: the system gives no thread or doorbell, or the
//! drive is gone or does not answer any more.

use device::hosted::{Hosted, HostedOptions, Queue};
use device::realtime::Clock;
use port::{BlockDone, BlockReq, Ring, Time};

use super::threads::Blocks;
use drive::error::Error;
use load::driver::Driver;

/// The device thread never sleeps once it has had work.
pub const LINGER: u64 = u64::MAX;

/// How long a drive may take for a request before it is given up, in ns: on a
/// busy machine its thread may get no core for seconds.
const PATIENCE: u64 = 60_000_000_000;

/// The host's side of a drive behind a queue pair.
pub struct QueuePair<P: Blocks> {
    hosted: Hosted<P>,
    queue: Queue<BlockReq, BlockDone>,
    clock: Clock,
    now: Time,
    /// When something last completed, or nothing was out.
    answered: Time,
}

impl<P: Blocks + Send + 'static> QueuePair<P> {
    /// Starts the device thread, on `core` if there is one, with `depth` entries in each
    /// queue.
    pub fn start(drive: P, depth: usize, core: Option<usize>) -> Result<QueuePair<P>, Error> {
        let options = HostedOptions { depth, linger: LINGER, core, ..HostedOptions::default() };
        let (hosted, mut queues) =
            Hosted::start(drive, options).map_err(|e| Error::Failed(e.to_string()))?;
        let queue = queues.pop().expect("one queue was asked for");
        let clock = hosted.clock();
        let now = clock.now();
        Ok(QueuePair { hosted, queue, clock, now, answered: now })
    }

    /// Stops the device thread and gives the drive back.
    pub fn stop(self) -> P {
        self.hosted.stop()
    }

    /// Ends the device thread after its turn, whatever is inside: for a drive that does
    /// not answer, whose thread would look for what is to come without end.
    pub fn leave(self) {
        if self.queue.is_closed() {
            // It died, and has said so: a second panic helps nobody.
            drop(self.hosted);
        } else {
            self.hosted.leave();
        }
    }

    /// Nothing completed in this turn.
    #[inline]
    fn wait(&mut self) -> Result<(), Error> {
        if self.queue.outside() == 0 {
            self.answered = self.now;
        } else if self.queue.is_closed() || self.now.since(self.answered) > PATIENCE {
            return Err(self.lost());
        }
        std::hint::spin_loop();
        Ok(())
    }

    #[cold]
    fn lost(&self) -> Error {
        if self.queue.is_closed() {
            return Error::Failed("the device thread is gone".into());
        }
        let (n, c) = (self.queue.outside(), self.hosted.counters());
        Error::Failed(format!(
            "the drive behind the queue pair has {n} requests and completes none; its thread slept \
             {} times: this is a fault in it, report it",
            c.sleeps
        ))
    }
}

impl<P: Blocks + Send + 'static> Driver for QueuePair<P> {
    fn is_real(&self) -> bool {
        true
    }

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn turn(
        &mut self,
        _arrival: Option<Time>,
        queue: &mut Ring<BlockReq>,
        done: &mut Ring<BlockDone>,
    ) -> Result<Time, Error> {
        if !queue.is_empty() {
            self.queue.submit(queue);
        }
        let completed = self.queue.poll(done);
        self.now = self.clock.now();
        if completed > 0 {
            self.answered = self.now;
        } else {
            self.wait()?;
        }
        Ok(self.now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use drive::spec::DriveSpec;
    use drive::stack;
    use drive::whole::Observed;
    use load::load::{Load, Pace};
    use load::runner::{Plan, Runner, Until};
    use load::verify::Verifier;
    use load::watch::Watch;
    use port::{BlockOp, Buffer, Port};
    use workload::Pattern;

    #[test]
    fn what_is_written_through_it_is_read_back() {
        let Ok(DriveSpec::Memory(spec)) = "mem:null,size=8M".parse() else { panic!("a drive") };
        let config = spec.resolve().unwrap();
        let drive = stack::build(&config, 1).unwrap();
        let shape = drive.shape();
        let mut pair = QueuePair::start(drive, 8, None).unwrap();
        let pattern = Pattern::uniform(shape.bytes, 50);
        let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 8 }, 1, 1).unwrap();
        let verifier = Some(Verifier::new(&shape, pattern.bs, 1).unwrap());
        let mut watch = Watch::quiet();
        let mut runner = Runner { verifier, ..Runner::new(&mut watch) };
        let plan = Plan { ramp: 0, until: Until::Ios(4000), count: true };
        let tally = runner.run(&mut pair, &mut load, plan).unwrap();
        assert_eq!((tally.all().count(), tally.problem()), (4000, None));
        assert!(tally.seconds() > 0.0);
        let back = runner.read_back(&mut pair, &shape, &pattern, 1).unwrap();
        assert_eq!(back.problem(), None);
        assert!(pair.stop().counters().user > 0);
    }

    /// A drive that takes everything and completes nothing.
    struct Mute(#[expect(dead_code, reason = "it is counted")] Arc<()>);

    impl Port for Mute {
        type Cmd = BlockReq;
        type Done = BlockDone;

        fn submit(&mut self, _: Time, cmds: &mut Ring<BlockReq>) {
            while cmds.pop().is_some() {}
        }

        fn next_event(&self) -> Option<Time> {
            None
        }

        fn advance(&mut self, _: Time, _: &mut Ring<BlockDone>) {}
    }

    /// Its thread would look for what is to come for ever.
    #[test]
    fn a_drive_that_does_not_answer_is_left() {
        let mute = Arc::new(());
        let mut pair = QueuePair::start(Mute(mute.clone()), 8, None).unwrap();
        let (mut queue, mut done) = (Ring::new(1), Ring::new(1));
        let flush = BlockReq::new(0, BlockOp::Flush, 0, 0, Buffer::empty());
        queue.put(|| flush);
        pair.turn(None, &mut queue, &mut done).unwrap();
        assert_eq!(pair.queue.outside(), 1);
        pair.leave();
        assert_eq!(Arc::strong_count(&mute), 1, "its thread has it still");
    }
}
