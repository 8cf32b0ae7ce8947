//! A drive on a thread of its own, as a driver.
//!
//! [`HostedDriver`] starts the device thread of [`device::hosted`] over any
//! port of block requests and offers its queue pairs as dispatch queues. Times
//! given to a queue are those of the drive's clock ([`HostedQueue::now`]).
//! Completions carry the time at which the drive completed them; when they are
//! seen depends on how the submitter waits.
//!
//! Starting fails as [`Hosted::start`] does. When the drive is gone, its
//! queues say so and take nothing.

use std::time::Duration;

use blkmq::{Abort, Driver, HardwareQueue};
use device::hosted::{Hosted, HostedError, HostedOptions, Queue};
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time};

/// The driver of a hosted drive.
pub struct HostedDriver {
    shape: Shape,
    queues: Vec<HostedQueue>,
}

impl HostedDriver {
    /// Starts a device thread over `port`, whose outside is `shape`. The
    /// [`Hosted`] that comes with the driver stops it and gives the port back.
    pub fn start<P>(
        port: P,
        shape: Shape,
        options: HostedOptions,
    ) -> Result<(HostedDriver, Hosted<P>), HostedError>
    where
        P: Port<Cmd = BlockReq, Done = BlockDone> + Send + 'static,
    {
        let (hosted, queues) = Hosted::start(port, options)?;
        let one = |queue| HostedQueue { queue, last: Time::ZERO };
        let queues = queues.into_iter().map(one).collect();
        Ok((HostedDriver { shape: Shape { depth: options.depth, ..shape }, queues }, hosted))
    }
}

impl Driver for HostedDriver {
    type Queue = HostedQueue;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn queues(&self) -> [usize; 3] {
        [self.queues.len(), 0, 0]
    }

    fn open(self) -> Vec<HostedQueue> {
        self.queues
    }
}

/// A dispatch queue of a hosted drive.
pub struct HostedQueue {
    queue: Queue<BlockReq, BlockDone>,
    /// The latest time given: when to look again.
    last: Time,
}

impl HostedQueue {
    /// The drive's time.
    #[inline]
    pub fn now(&self) -> Time {
        self.queue.clock().now()
    }
}

impl Port for HostedQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.last = self.last.max(now);
        self.queue.submit(cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        (self.queue.outside() > 0).then_some(self.last)
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = self.last.max(to);
        self.queue.poll(done);
    }
}

impl HardwareQueue for HostedQueue {
    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn is_gone(&self) -> bool {
        self.queue.is_closed() && !self.queue.has_completions()
    }

    /// A drive of ours loses nothing, as long as it is there.
    fn abort(&mut self, _id: u64) -> Abort {
        if self.queue.is_closed() { Abort::Lost } else { Abort::Working }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.queue.wait(timeout) || self.queue.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blkmq::driver::null::{Null, NullOptions};
    use blkmq::driver::timed::{Timed, TimedOptions};
    use port::{BlockOp, Buffer};

    fn read(id: u64) -> BlockReq {
        BlockReq::new(id, BlockOp::Read, 0, 4096, Buffer::empty())
    }

    /// Requests in bursts of up to 8, for who waits or looks: all come back once.
    fn serve(options: TimedOptions, waits: bool) {
        let timed = Timed::new(options).unwrap();
        let shape = timed.shape();
        let port = timed.open().remove(0);
        let hosted = HostedOptions { depth: 8, linger: 100_000, ..HostedOptions::default() };
        let (driver, hosted) = HostedDriver::start(port, shape, hosted).unwrap();
        assert_eq!((driver.queues(), driver.shape().depth), ([1, 0, 0], 8));
        let mut queue = driver.open().remove(0);
        let (mut cmds, mut done) = (Ring::new(8), Ring::new(8));
        for round in 0..300 {
            let mut inside = [false; 8];
            let now = queue.now();
            for tag in 0..=round % 8 {
                cmds.push(read(tag)).unwrap();
                inside[tag as usize] = true;
            }
            Port::submit(&mut queue, now, &mut cmds);
            assert!(cmds.is_empty() && queue.next_event().is_some());
            while inside.contains(&true) {
                assert!(!waits || queue.wait(None));
                let now = queue.now();
                queue.advance(now, &mut done);
                for d in done.drain() {
                    assert!(std::mem::take(&mut inside[d.id as usize]), "once");
                }
            }
            assert_eq!(queue.next_event(), None);
        }
        assert!(!queue.is_gone());
        drop(hosted);
        assert!(queue.is_gone() && queue.wait(None), "there is that to see");
        cmds.push(read(0)).unwrap();
        let now = queue.now();
        Port::submit(&mut queue, now, &mut cmds);
        assert_eq!(cmds.len(), 1, "nobody would answer");
    }

    #[test]
    fn all_come_back_and_the_drive_is_seen_to_go() {
        for waits in [false, true] {
            for servers in [Some(1), Some(8)] {
                let completion_nsec = 30_000;
                let options = TimedOptions { completion_nsec, servers, ..TimedOptions::default() };
                ends(move || serve(options, waits));
            }
        }
    }

    /// Does something that waits without end. Where it hangs, this fails:
    /// nothing else takes so long.
    fn ends(f: impl FnOnce() + Send + 'static) {
        let (say, hear) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            f();
            let _ = say.send(());
        });
        let heard = hear.recv_timeout(Duration::from_secs(120));
        assert!(heard != Err(std::sync::mpsc::RecvTimeoutError::Timeout), "it hangs");
        thread.join().unwrap();
    }

    #[test]
    fn a_drive_that_cannot_be_hosted_is_an_error() {
        let null = Null::new(NullOptions::default()).unwrap();
        let shape = null.shape();
        let options = HostedOptions { depth: 0, ..HostedOptions::default() };
        assert!(HostedDriver::start(null.open().remove(0), shape, options).is_err());
    }
}
