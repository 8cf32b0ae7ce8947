//! A core's context: where its requests enter and its completions come out.
//!
//! A context belongs to one thread at a time and is a port, so it stands
//! wherever a block target stands. Requests that find their dispatch queue
//! free go past the staging queue; where both queues are the core's alone and
//! nothing is reordered, merged or held back, they are given their tags in the
//! caller's own ring and move no further.
//!
//! Guarantees: every request that was taken completes exactly once, also when
//! the driver loses it or the device goes (with [`Status::ABORTED_BY_HOST`] or
//! [`Status::ABORTED`]; the buffer is then empty unless the driver gave it
//! back). At most so many requests are outside as its limit says. Cores that share a
//! staging queue wait for each other; others wait for nobody. A core that shares
//! nothing writes nothing that another core reads or writes, its accounts aside.
//!
//! A core's requests go into its own dispatch queues only. So whoever waits for
//! a request can look for it, whatever the other cores do: one that stands
//! still keeps nobody waiting.
//!
//! Locks. A staging queue's is taken before a dispatch queue's, never after,
//! and two of a kind are never held at once.

mod cut;
mod deliver;
mod lane;
mod leave;
mod staged;

use std::sync::Arc;
use std::time::Duration;

use port::{BlockDone, BlockOp, BlockReq, OutOfMemory, Port, Ring, Shape, Time};
use tags::{Inbox, inbox_bytes};

use crate::config::{Config, Merge};
use crate::dispatch::{Dispatch, Past, Slot};
use crate::driver::{HardwareQueue, QueueKind};
use crate::error::{ConfigError, Fault};
use crate::held::Held;
use crate::peers::Peers;
use crate::scheduler::SchedulerKind;
use crate::watch::{Life, Watch};

use cut::Cuts;

pub(crate) use cut::core_of;
pub(crate) use lane::Lane;

const NEVER: Time = Time(u64::MAX);

/// A completion on its way from the core that found it.
pub(crate) struct Found {
    done: BlockDone,
    past: Past,
    /// The dispatch queue.
    queue: u32,
    /// When it was found: the core it goes to may have read its clock before.
    seen: Time,
}

/// One of the requests that a merged one was made of: whose it is, when it
/// was submitted, and its completion.
type Part = (u32, Time, BlockDone);

/// Which requests go which lane.
#[derive(Clone, Copy)]
struct Routes {
    /// The lane of each kind of request.
    kinds: [u8; 3],
    polled: bool,
}

impl Routes {
    #[inline]
    fn lane_of(&self, op: BlockOp) -> usize {
        let data = matches!(op, BlockOp::Read | BlockOp::Write);
        let kind = match op {
            _ if self.polled && data => QueueKind::Poll,
            BlockOp::Read => QueueKind::Read,
            _ => QueueKind::Default,
        };
        self.kinds[kind as usize].into()
    }
}

/// A core's context.
pub struct Context<Q: HardwareQueue> {
    core: u32,
    pub(crate) lanes: Vec<Lane<Q>>,
    routes: Routes,
    merge: Merge,
    /// Completions that cores found which share a staging queue with this one.
    inbox: Inbox<Found>,
    pub(crate) peers: Arc<Peers<Q>>,
    /// Finished, but the caller's ring was full.
    ready: Ring<BlockDone>,
    /// What a shared queue gave while its lock was held.
    seen: Ring<BlockDone>,
    pasts: Ring<Past>,
    parts: Ring<Part>,
    cuts: Cuts,
    watch: Option<Box<dyn Watch>>,
    pub(crate) outside: usize,
    limit: usize,
    /// The lane of the first request that did not fit when some were offered
    /// last.
    pub(crate) refused: Option<usize>,
    last: Time,
    /// There is one lane, it is short in every way, and nothing is cut.
    solo: bool,
    /// Staging queues are plugged.
    plugs: bool,
}

fn is_solo<Q>(lanes: &[Lane<Q>]) -> bool {
    matches!(lanes, [lane] if lane.in_place && lane.direct)
}

impl<Q: HardwareQueue> Context<Q> {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        core: u32,
        lanes: Vec<Lane<Q>>,
        kinds: [u8; 3],
        (config, shape): (&Config, Shape),
        inbox: Inbox<Found>,
        peers: Arc<Peers<Q>>,
        limit: usize,
        deepest: usize,
        parts: usize,
    ) -> Result<Context<Q>, OutOfMemory> {
        let solo = is_solo(&lanes);
        let what = "the completions of a core";
        Ok(Context {
            core,
            solo,
            lanes,
            routes: Routes { kinds, polled: false },
            merge: config.merge,
            inbox,
            peers,
            ready: Ring::try_new(limit, what)?,
            seen: Ring::try_new(deepest, what)?,
            pasts: Ring::try_new(deepest, what)?,
            parts: Ring::try_new(parts, what)?,
            cuts: Cuts::new(shape),
            watch: None,
            outside: 0,
            limit,
            refused: None,
            last: Time::ZERO,
            plugs: config.plug.is_some(),
        })
    }

    /// Bytes of memory that one takes with these sizes of its rings and of its
    /// inbox.
    pub(crate) fn bytes(limit: usize, deepest: usize, parts: usize, inbox: usize) -> u64 {
        let done = Ring::<BlockDone>::bytes;
        let seen = done(limit) + done(deepest) + Ring::<Past>::bytes(deepest);
        seen + Cuts::bytes() + Ring::<Part>::bytes(parts) + inbox_bytes::<Found>(inbox)
    }

    /// Whether some of the requests that were refused last would be taken now.
    /// Nobody is told: who waits asks this as often as it looks.
    #[inline]
    pub fn has_room_again(&self) -> bool {
        self.refused.is_some_and(|lane| {
            let staging = || self.lanes[lane].staging.peek().room_for(self.core);
            self.outside + self.cuts.outside() < self.limit
                && self.cuts.has_room()
                && self.peers.gate.is_open()
                && staging() > 0
        })
    }

    /// Its core's number.
    pub fn core(&self) -> usize {
        self.core as usize
    }

    /// Requests taken and not yet given back.
    pub fn outside(&self) -> usize {
        self.outside
    }

    /// Whether reads and writes go to the driver's queues for polling, if it
    /// has any: for a submitter that will poll for them.
    pub fn set_polled(&mut self, polled: bool) {
        self.routes.polled = polled;
    }

    /// Tells `watch` of each request from now on.
    pub fn set_watch(&mut self, watch: impl Watch + 'static) {
        self.watch = Some(Box::new(watch));
    }

    /// Lets plugged requests go at the next call.
    pub fn unplug(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.staging.lock().unplug());
    }

    /// Orders by another scheduler from now on, in all staging queues of this core
    /// and for all that share them, while requests run: what is staged is put in
    /// order anew. Other staging queues keep theirs: ask a core of each.
    ///
    /// # Errors
    /// Options outside their range, and where memory ends; then the first queues
    /// may have changed already.
    pub fn set_scheduler(&mut self, kind: &SchedulerKind) -> Result<(), ConfigError> {
        // All queues change before a core stages anything more.
        let _frozen = self.freezer().freeze();
        for lane in &mut self.lanes {
            lane.staging.lock().set_scheduler(kind)?;
            lane.direct = lane.staging.is_alone() && !self.plugs && *kind == SchedulerKind::None;
        }
        self.solo = is_solo(&self.lanes) && self.cuts.is_empty();
        Ok(())
    }

    /// What drivers did wrong on the queues of this core, and devices that
    /// went, since this was last asked. Of many only the first are kept.
    pub fn faults(&mut self) -> Vec<Fault> {
        self.lanes.iter_mut().flat_map(|lane| lane.queue.lock().faults()).collect()
    }

    /// The driver's queue, where this core has just one and has it alone.
    pub fn queue(&self) -> Option<&Q> {
        match &self.lanes[..] {
            [Lane { queue: Held::Alone(dispatch), .. }] => dispatch.queue().own(),
            _ => None,
        }
    }

    /// Sleeps until there is something to see or to do, or until `timeout` has
    /// passed; `None` is for ever. True when there may be something. What is
    /// to be done at a time, to open a plug or give a request up, is counted
    /// from the time that was given last.
    ///
    /// It returns at once where no interrupt would come: where the core has
    /// several dispatch queues or shares one; while it waits for a tag that other queues hold; and while a
    /// staging queue that it shares had no room for its requests, or the layer was
    /// frozen.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        if !self.ready.is_empty() || self.has_mail() {
            return true;
        }
        let [lane] = &mut self.lanes[..] else { return true };
        let due = lane.due(self.last);
        let Held::Alone(queue) = &mut lane.queue else { return true };
        let refused = self.refused.is_some() || self.cuts.lane().is_some();
        let frozen = !self.peers.gate.is_open();
        if due <= self.last || frozen || (refused && !lane.staging.is_alone()) {
            return true;
        }
        let own = (due != NEVER).then(|| Duration::from_nanos(due.since(self.last)));
        if own.is_some_and(|own| timeout.is_none_or(|asked| own < asked)) {
            queue.queue_mut().wait(own);
            return true;
        }
        queue.queue_mut().wait(timeout)
    }

    /// Looks at a lane that is shared, or whose requests are more than one.
    fn look(&mut self, to: Time, number: usize, done: &mut Ring<BlockDone>) {
        let lane = &mut self.lanes[number];
        let (account, seen, pasts) = (&lane.account, &mut self.seen, &mut self.pasts);
        let mut queue = lane.queue.lock();
        let mut errors = 0;
        queue.advance_in_place(to, seen, |tag, slot, one| {
            pasts.put(|| slot.past(tag));
            errors += u64::from(!one.status.is_ok());
        });
        account.strays.add(queue.take_strays());
        drop(queue);
        account.completed.add(seen.len() as u64);
        account.errors.add(errors);
        self.deliver_seen(to, number, done);
    }

    /// Tells of a request that ended, if somebody watches.
    #[inline]
    fn tell(&mut self, seen: Time, number: usize, past: &Past, one: &BlockDone) {
        if let Some(watch) = &mut self.watch
            && watch.is_on()
        {
            tell_one(&mut **watch, &mut self.lanes[number], seen, past, one);
        }
    }
    /// Gives up what takes too long on a lane, or everything if `all` is asked
    /// for or its device is gone, and puts it among what is ready.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self, now: Time, number: usize, all: bool) {
        let lane = &mut self.lanes[number];
        let (account, seen, pasts) = (&lane.account, &mut self.seen, &mut self.pasts);
        lane.queue.lock().give_up(now, all, |past, one| {
            account.completed.add(1);
            account.errors.add(1);
            pasts.put(|| *past);
            seen.put(|| one);
        });
        lane.account.timed_out.add(lane.queue.lock().take_timed_out());
        let mut none = Ring::new(1);
        self.deliver_seen(now, number, &mut none);
        // What is ready still counts as outside.
        self.outside += none.pour(&mut self.ready);
    }

    #[inline]
    fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Looks at a lane that is this core's alone.
    #[inline(always)]
    fn look_in_place(&mut self, to: Time, number: usize, done: &mut Ring<BlockDone>) {
        let lane = &mut self.lanes[number];
        let account = &lane.account;
        let Held::Alone(queue) = &mut lane.queue else { unreachable!("it is alone") };
        let (before, mut errors) = (done.len(), 0);
        if let Some(watch) = &mut self.watch
            && watch.is_on()
        {
            let staging = lane.staging_number;
            look_and_tell(queue, to, done, |tag, slot, one| {
                account.latency.record(to.since(slot.submitted));
                errors += u64::from(!one.status.is_ok());
                watch.record(life(staging, lane.number, to, &slot.past(tag), one));
            });
        } else {
            queue.advance_in_place(to, done, |_, slot, one| {
                account.latency.record(to.since(slot.submitted));
                errors += u64::from(!one.status.is_ok());
            });
        }
        let n = done.len() - before;
        self.outside -= n;
        account.completed.add(n as u64);
        if errors > 0 {
            account.errors.add(errors);
        }
        if queue.has_strays() {
            account.strays.add(queue.take_strays());
        }
    }

    /// What a lane needs besides looking at the device.
    fn keep_going(&mut self, now: Time, number: usize) {
        let free = self.ready.is_empty();
        let lane = &mut self.lanes[number];
        let queue = lane.queue.lock();
        let (give_up, sending) = (free && queue.must_give_up(now), queue.is_sending());
        let waiting = queue.is_waiting();
        drop(queue);
        if give_up {
            self.give_up(now, number, false);
        }
        let lane = &mut self.lanes[number];
        let more = sending || waiting || self.cuts.lane() == Some(number);
        if more || lane.staging.lock().waiting(lane.way) > 0 {
            self.go(now, number);
        }
    }
}

#[cold]
fn tell_one<Q: HardwareQueue>(
    watch: &mut dyn Watch,
    lane: &mut Lane<Q>,
    seen: Time,
    past: &Past,
    one: &BlockDone,
) {
    let mut record = life(lane.staging_number, lane.number, seen, past, one);
    if !past.parts.is_none() {
        record.parts = lane.staging.lock().count(past.parts) as u16;
    }
    watch.record(record);
}

/// Looks while somebody watches: apart, so that who is not watched has less
/// code to run through.
#[cold]
#[inline(never)]
fn look_and_tell<Q: HardwareQueue>(
    queue: &mut Dispatch<Q>,
    to: Time,
    done: &mut Ring<BlockDone>,
    seen: impl FnMut(u32, &Slot, &BlockDone),
) {
    queue.advance_in_place(to, done, seen);
}

/// What is told of a request that left.
fn life(staging: u32, queue: u32, seen: Time, past: &Past, one: &BlockDone) -> Life {
    Life {
        id: one.id,
        core: past.from as u16,
        staging: staging as u16,
        queue: queue as u16,
        tag: past.tag,
        op: one.op,
        fua: past.fua,
        offset: past.offset,
        len: past.len,
        status: one.status,
        parts: if past.parts.is_none() { 1 } else { 2 },
        submitted: past.submitted,
        dispatched: past.dispatched,
        completed: one.at,
        seen,
    }
}

impl<Q: HardwareQueue> Port for Context<Q> {
    type Cmd = BlockReq;
    type Done = BlockDone;

    #[inline]
    fn submit(&mut self, now: Time, reqs: &mut Ring<BlockReq>) {
        self.last = now;
        if !self.peers.gate.is_open() {
            let lane = reqs.front().map(|front| self.routes.lane_of(front.op));
            return self.keep_out(lane);
        }
        // Who has its staging queue alone has its dispatch queue alone.
        if let [lane] = &mut self.lanes[..]
            && lane.direct
            && let (Held::Alone(queue), Held::Alone(staging)) = (&mut lane.queue, &lane.staging)
            && staging.is_empty()
            && self.limit - self.outside >= reqs.len()
        {
            let taken = queue.submit_in_place(now, self.core, reqs);
            lane.account.dispatched.add(taken as u64);
            self.outside += taken;
            if reqs.is_empty() && self.refused.is_none() {
                return;
            }
        }
        self.submit_staged(now, reqs);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        if self.solo
            && let Held::Alone(queue) = &self.lanes[0].queue
            && let Held::Alone(staging) = &self.lanes[0].staging
            && staging.is_empty()
            && self.ready.is_empty()
            && !self.peers.any_left()
        {
            return queue.next_event().map(|time| time.max(self.last));
        }
        self.next_of_all()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.last = to;
        if self.solo && self.ready.is_empty() {
            self.look_in_place(to, 0, done);
            if self.lanes[0].needs_more(to) {
                self.keep_going(to, 0);
            }
            if self.peers.any_left() {
                self.look_at_left(to, done);
            }
            if self.outside == 0 {
                self.look_at_gate();
            }
            return;
        }
        self.advance_all(to, done);
    }

    #[inline]
    fn hint(&self, req: &BlockReq) {
        if let Some(queue) = self.queue() {
            queue.hint(req);
        }
    }

    fn takes_hints(&self) -> bool {
        self.queue().is_some_and(Q::takes_hints)
    }
}

impl<Q: HardwareQueue> Context<Q> {
    /// The next event of all lanes and of what other cores found.
    fn next_of_all(&self) -> Option<Time> {
        if !self.ready.is_empty() || self.has_mail() {
            return Some(self.last);
        }
        let mut next: Option<Time> = None;
        let mut at = |time: Time| next = Some(next.map_or(time, |n| n.min(time)));
        if self.peers.any_left()
            && let Some(event) = self.peers.next_left()
        {
            at(event);
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let staging = lane.staging.peek();
            let queue = lane.queue.peek();
            if let Some(event) = queue.next_event() {
                at(event);
            }
            if self.cuts.lane() == Some(number)
                && self.outside + self.cuts.outside() < self.limit
                && staging.room_for(self.core) > 0
            {
                at(self.last);
            }
            match staging.next_event() {
                _ if staging.waiting(lane.way) == 0 => {}
                Some(opens) if opens > self.last => at(opens),
                _ if queue.is_passed() || queue.has_room() => at(self.last),
                _ => {}
            }
        }
        next.map(|time| time.max(self.last))
    }
}

impl<Q: HardwareQueue> Context<Q> {
    /// Looks at all lanes, and at what other cores found.
    fn advance_all(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        if !self.ready.is_empty() {
            self.outside -= self.ready.pour(done);
        }
        for number in 0..self.lanes.len() {
            if self.lanes[number].in_place && self.cuts.is_empty() {
                self.look_in_place(to, number, done);
            } else {
                self.look(to, number, done);
            }
            self.keep_going(to, number);
        }
        if self.has_mail() {
            self.take_inbox(to, done);
        }
        if self.peers.any_left() {
            self.look_at_left(to, done);
        }
        if !self.ready.is_empty() {
            self.outside -= self.ready.pour(done);
        }
        self.look_at_gate();
    }
}
