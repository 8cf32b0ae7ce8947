//! Asynchronous I/O as libaio did it when the thesis was written (section
//! 5.2): the bottlenecks "(i) a context list lock is issued for each request,
//! (ii) a completion ring \[...\] and (iii) a number of shared variables".
//!
//! One context for all cores: the list of active requests, a completion ring
//! for each core, and the counts of users and active requests, each under a
//! lock that all cores take for each request. What stands below it is any
//! port; without this, submission and reaping share nothing.
//!
//! Guarantees: requests complete as below it, once each, under their own ids.
//! Takes memory at first use and none later. Nothing here fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::{BlockDone, BlockReq, Port, Ring, Slots, Time};

use super::threads::Blocks;

/// What all cores share.
struct Shared {
    /// Active requests by place in the list: their submitters' ids.
    active: Mutex<Slots<u64>>,
    /// By core: completed and not yet reaped.
    rings: Mutex<Vec<Ring<BlockDone>>>,
    /// Users of the context.
    users: Mutex<u64>,
    /// Active requests.
    requests: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A core's way through the shared context.
pub struct Aio<P> {
    port: P,
    core: usize,
    shared: Arc<Shared>,
    /// Listed, and not yet taken by what is below.
    out: Ring<BlockReq>,
    found: Ring<BlockDone>,
    outside: usize,
    last: Time,
}

impl<P> Aio<P> {
    /// A context over `ports`, with at most `depth` requests of each.
    pub fn over(ports: Vec<P>, depth: usize) -> Vec<Aio<P>> {
        let rings = ports.iter().map(|_| Ring::new(depth)).collect();
        let shared = Arc::new(Shared {
            active: Mutex::new(Slots::new(depth * ports.len())),
            rings: Mutex::new(rings),
            users: Mutex::new(0),
            requests: Mutex::new(0),
        });
        let one = |(core, port)| Aio {
            port,
            core,
            shared: shared.clone(),
            out: Ring::new(depth),
            found: Ring::new(depth),
            outside: 0,
            last: Time::ZERO,
        };
        ports.into_iter().enumerate().map(one).collect()
    }
}

impl<P: Blocks> Port for Aio<P> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.last = now;
        while self.outside < self.out.capacity()
            && let Some(mut req) = reqs.pop()
        {
            *lock(&self.shared.users) += 1;
            *lock(&self.shared.requests) += 1;
            req.id = lock(&self.shared.active).take(req.id).into();
            self.outside += 1;
            self.out.put(|| req);
            *lock(&self.shared.users) -= 1;
        }
        self.port.submit(now, &mut self.out);
    }

    fn next_event(&self) -> Option<Time> {
        let waits = !lock(&self.shared.rings)[self.core].is_empty();
        if waits { Some(self.last) } else { self.port.next_event() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        self.port.advance(to, &mut self.found);
        while let Some(mut one) = self.found.pop() {
            let mut active = lock(&self.shared.active);
            let place = one.id as u32;
            one.id = active[place];
            active.give(place);
            drop(active);
            lock(&self.shared.rings)[self.core].put(|| one);
            *lock(&self.shared.requests) -= 1;
        }
        while done.room() > 0
            && let Some(one) = lock(&self.shared.rings)[self.core].pop()
        {
            self.outside -= 1;
            done.put(|| one);
        }
        self.port.submit(to, &mut self.out);
    }
}

#[cfg(test)]
mod tests {
    use blkmq::Driver;
    use blkmq::driver::null::{Null, NullOptions};
    use port::{BlockOp, Buffer};

    use super::*;

    #[test]
    fn requests_come_back_to_their_core_under_their_ids() {
        let options = NullOptions { submit_queues: 2, hw_queue_depth: 2, ..NullOptions::default() };
        let mut cores = Aio::over(Null::new(options).unwrap().open(), 4);
        let (mut reqs, mut done) = (Ring::new(8), Ring::new(8));
        for (core, port) in (0..).zip(&mut cores) {
            for i in 0..5 {
                let (op, buffer) = (BlockOp::Read, Buffer::empty());
                let id = core * 100 + i;
                reqs.push(BlockReq::new(id, op, 0, 4096, buffer)).unwrap();
            }
            port.submit(Time::ZERO, &mut reqs);
            assert_eq!(reqs.drain().count(), 1, "there is room for four");
        }
        for (core, port) in (0..).zip(&mut cores) {
            while port.next_event().is_some() {
                port.advance(Time::ZERO, &mut done);
            }
            let ids: Vec<u64> = done.drain().map(|d| d.id - core * 100).collect();
            assert_eq!((ids, port.outside), (vec![0, 1, 2, 3], 0));
        }
        assert_eq!((*lock(&cores[0].shared.users), *lock(&cores[0].shared.requests)), (0, 0));
    }
}
