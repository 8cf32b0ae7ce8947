//! A drive with fault rules above it.

// What `has_what_is_below` names is all of it.
use super::layers::{
    has_what_is_below, is_cut_with_what_is_below, is_on_the_clock_of_what_is_below,
};
use super::*;

/// A drive in which things go wrong on purpose.
pub struct Faulted {
    port: Struck<Boxed>,
    rules: Rules,
}

impl Faulted {
    /// Puts the upper ports before a drive that has the lower ones.
    pub fn new(drive: Boxed, rules: Rules) -> Faulted {
        Faulted { port: two_ports(drive), rules }
    }

    fn below(&self) -> &Boxed {
        self.port.below().below()
    }

    fn below_mut(&mut self) -> &mut Boxed {
        self.port.below_mut().below_mut()
    }

    fn into_below(self) -> Boxed {
        self.port.into_below().into_below()
    }

    /// From now on these rules strike.
    fn set_rules(&mut self, rules: &Rules) {
        set_rules(&mut self.port, Layer::Above, rules);
        // Rules below it are of a drive that is one shard.
        self.lower_mut(0).set_rules(rules);
    }
}

impl Port for Faulted {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.port.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.port.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        self.port.advance(to, done);
    }

    fn hint(&self, cmd: &BlockReq) {
        self.port.hint(cmd);
    }
}

impl Drive for Faulted {
    has_what_is_below!();
    is_on_the_clock_of_what_is_below!();
    is_cut_with_what_is_below!();

    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        self.set_rules(&Rules::default());
        self.into_below().end(now)
    }

    fn fault(&self) -> Option<(Error, bool)> {
        self.below().fault()
    }

    fn read_cache(&self) -> Option<CacheCounters> {
        self.below().read_cache()
    }

    fn power(&self, now: Time) -> Option<PowerHealth> {
        self.below().power(now)
    }

    fn hurry(&mut self, now: Time) {
        self.port.hurry(now);
        self.below_mut().hurry(now);
    }

    fn begin_faults(&mut self) {
        let rules = self.rules.clone();
        self.set_rules(&rules);
    }

    fn injected(&self) -> Vec<Injected> {
        let lower = self.lower(0);
        self.rules.injected(|layer, is_delay| match layer {
            Layer::Above => struck(&self.port, is_delay),
            Layer::Below => lower.struck(is_delay),
            Layer::Medium => lower.device().medium().struck(),
        })
    }
}
