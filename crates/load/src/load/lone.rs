//! The request of a load that never has more than one out.
//!
//! Guarantees: what is asked and counted is what [`Load::issue`] and [`Load::complete`] ask
//! and count. Nothing here fails.

use port::{BlockDone, BlockOp, Buffer, Time};
use workload::{Access, Uniform};

use super::plain::uncounted;
use super::{Load, Slot, Submitter, request};
use crate::driver::Driver;
use crate::tally::Tally;

/// The one request of a load that never has more out, of uniform addresses. What it is lies
/// in the processor's registers, and in its slot only once it is [left](Lone::leave).
pub struct Lone {
    uniform: Uniform,
    start: Time,
    access: Access,
}

impl Load {
    /// Its one request, where it [is plain](Load::is_plain), has just one, which is out and
    /// counted, and draws uniform addresses of which the drive wants no hint.
    pub fn to_lone(&self) -> Option<Lone> {
        let [Slot { start, access, counted: true, .. }] = self.slots[..] else { return None };
        let [Submitter { generator, ahead: None }] = &self.submitters[..] else { return None };
        let uniform = generator.to_uniform().filter(|_| self.idle.is_empty())?;
        Some(Lone { uniform, start, access })
    }
}

impl Lone {
    /// [`Load::complete_plain`] of it. Whether it has ended.
    #[inline(always)]
    pub fn complete(
        &mut self,
        load: &mut Load,
        now: Time,
        tally: &mut Tally,
        driver: &dyn Driver,
    ) -> bool {
        let Some(BlockDone { op, status, .. }) = load.done.pop() else { return false };
        if status.is_ok() {
            tally.go_on(now, || driver.gauges());
            tally.written += if op == BlockOp::Write { load.bs } else { 0 };
            tally.record(op, load.bs, now, now.since(self.start));
        } else {
            self.write_down(load);
            uncounted(tally, &load.slots[0], (now, op, status));
        }
        true
    }

    /// [`Load::issue_plain`] of it, where it [has ended](Lone::complete).
    #[inline(always)]
    pub fn issue(&mut self, load: &mut Load, now: Time, left: &mut u64) {
        if *left == 0 {
            load.idle.push(0);
            return;
        }
        *left -= 1;
        (self.start, self.access) = (now, self.uniform.next());
        let way = (u8::from(self.access.offset < load.hot_end), load.queue_number);
        load.queue.put(|| request(0, &self.access, way, Buffer::empty()));
    }

    /// Writes into its slot what it is.
    #[cold]
    fn write_down(&self, load: &mut Load) {
        (load.slots[0].start, load.slots[0].access) = (self.start, self.access);
    }

    /// It is a request as any other from now on.
    pub fn leave(self, load: &mut Load) {
        self.write_down(load);
        load.submitters[0].generator.go_on(self.uniform);
    }
}
