//! Reads that share a sensing: of the page that it gives, and of pages that other
//! planes of the die give at the same time.
//!
//! What a die senses stands in its register until the last data of it are out. So
//! reads that wait for the same page need no array read of their own
//! ([`Timing::shared_reads`]), whether they came before it or while it stands there;
//! and those of other planes that wait when a sensing begins go with it, where the
//! flash may sense their pages together ([`Timing::multi_plane_reads`]). Of those that
//! wait, [`LOOKED_AT`] are looked at, and so many share a sensing at most. With
//! [`Timing::reads_first`] off those alone are that wait before anything else.
//!
//! The first one has its data as if it were alone. Each of the others then takes a
//! command, which picks the page of its plane, and its own data on the channel, in the
//! order in which they waited. Each counts as one more read that goes before what else
//! waits. One of which a block is to be repeated is read by itself instead, first of
//! those that wait.
//!
//! A die with one register is one of several here ([`super::registers`]), so that a
//! drive on which nothing is shared has nothing of it. Nothing here fails.

use flash::{MultiPlane, Timing};
use port::Time;

use super::op::Sensing;
use super::registers::LOOKED_AT;
use super::{Op, OpKind, State, Units};
use crate::list::{List, NONE, Table};

/// Most planes of a die.
const PLANES: usize = 8;

/// No page.
const NO_PAGE: u64 = u64::MAX;

/// What a register has sensed, or senses.
#[derive(Clone, Copy)]
struct Held {
    /// Of each plane.
    pages: [u64; PLANES],
    /// Reads that wait for the register alone.
    sharers: List,
    /// Reads that have shared it.
    count: usize,
    /// Whether the array is through.
    is_sensed: bool,
}

const NOTHING: Held =
    Held { pages: [NO_PAGE; PLANES], sharers: List::EMPTY, count: 0, is_sensed: false };

impl Default for Held {
    fn default() -> Held {
        NOTHING
    }
}

/// What is shared on a drive.
pub(super) struct Sharing {
    same_page: bool,
    planes: MultiPlane,
    /// By the number of a unit.
    held: Table<Held>,
    /// Reads so far that needed no array read, and that were sensed with another.
    pub shared: u64,
    pub joined: u64,
}

impl Sharing {
    /// Whether anything is shared with these timings on dies of so many planes.
    pub fn is_on(planes: u32, timing: &Timing) -> bool {
        timing.shared_reads || Sharing::rule(planes, timing) != MultiPlane::None
    }

    /// Planes that read by themselves need no other.
    fn rule(planes: u32, timing: &Timing) -> MultiPlane {
        let may = planes > 1 && !timing.plane_reads;
        if may { timing.multi_plane_reads } else { MultiPlane::None }
    }

    /// That of a drive of so many units, if anything is shared.
    pub fn new(planes: u32, timing: &Timing, units: usize) -> Option<Box<Sharing>> {
        Sharing::is_on(planes, timing).then(|| {
            Box::new(Sharing {
                same_page: timing.shared_reads,
                planes: Sharing::rule(planes, timing),
                held: Table::new(units),
                shared: 0,
                joined: 0,
            })
        })
    }

    /// Those that wait for a register alone.
    pub fn sharers(&self, pu: u32) -> List {
        self.held[pu].sharers
    }

    /// Bytes of memory that it takes.
    pub fn bytes(planes: u32, timing: &Timing, units: usize) -> usize {
        if Sharing::is_on(planes, timing) { units * size_of::<Held>() } else { 0 }
    }
}

impl Units {
    /// Reads so far that needed no array read, and that were sensed with another.
    pub fn shared_reads(&self) -> (u64, u64) {
        self.sharing.as_ref().map_or((0, 0), |sharing| (sharing.shared, sharing.joined))
    }

    /// What a read has sensed of each plane, and the planes: numbers of wide pages, and
    /// of quarters of one where these have a tR of their own.
    fn pages_of(&self, op: &Op) -> (u64, std::ops::RangeInclusive<usize>) {
        let (at, page) = (self.geometry.in_wide_page(op.ppa), self.geometry.page_blocks());
        let planes = (at / page) as usize..=((at + u32::from(op.count) - 1) / page) as usize;
        let number = if self.is_partial(op) {
            let quarter = page / 4;
            (op.ppa.0 - u64::from(at % quarter)) << 1 | 1
        } else {
            self.wide_page_number(op)
        };
        (number, planes)
    }

    fn wide_page_number(&self, op: &Op) -> u64 {
        (op.ppa.0 - u64::from(self.geometry.in_wide_page(op.ppa))) << 1
    }

    fn is_partial(&self, op: &Op) -> bool {
        self.partial_reads && self.geometry.is_in_quarter(op.ppa, op.count.into())
    }

    /// How a read would share what a register holds, which was sensed for `first`.
    fn fits(&self, pu: u32, op: &Op, first: &Op, begins: bool) -> Option<Sensing> {
        let sharing = self.sharing.as_ref()?;
        let held = &sharing.held[pu];
        if op.kind != OpKind::Read || op.sensing == Sensing::Alone || held.count >= LOOKED_AT - 1 {
            return None;
        }
        let (page, planes) = self.pages_of(op);
        let (whole, mut others) = (self.wide_page_number(op), false);
        for at in &held.pages[planes] {
            match *at {
                NO_PAGE => others = true,
                at if sharing.same_page && (at == page || at == whole) => {}
                _ => return None,
            }
        }
        if !others {
            return Some(Sensing::Shared);
        }
        let [own, firsts] = [op, first].map(|op| self.geometry.wide_page(op.ppa));
        let may = begins
            && match sharing.planes {
                MultiPlane::None => false,
                MultiPlane::SamePage => own == firsts,
                MultiPlane::SameType => {
                    let types = self.timing.read.len() as u32;
                    own % types == firsts % types
                }
            };
        // What takes another time is another command, or in the SLC cache.
        let [own, firsts] = [op, first].map(|op| self.sensing_time(op.ppa, op.count));
        (may && own == firsts).then_some(Sensing::Joined)
    }

    /// An operation whose command is there enters the array, or a read whose page was
    /// sensed with another's sends its data.
    #[inline(never)]
    pub(super) fn enter_apart(&mut self, now: Time, pu: u32) -> Option<u32> {
        let op = self.active(pu);
        if self.sharing.is_none() || op.kind != OpKind::Read {
            return self.enter(now, pu);
        }
        if op.is_shared() {
            if self.senses {
                self.units[pu].state = State::Sensing;
                return Some(pu);
            }
            return self.send_shared(now, pu);
        }
        // If not, it is repeated.
        if self.units[pu].tries == 0 {
            self.gather(now, pu, &op);
        }
        self.enter(now, pu)
    }

    fn held(&mut self, pu: u32) -> &mut Held {
        &mut self.sharing.as_mut().expect("reads are shared").held[pu]
    }

    /// A read is about to be sensed: those that wait and fit go with it.
    fn gather(&mut self, now: Time, pu: u32, first: &Op) {
        let home = self.home(pu);
        let (page, planes) = self.pages_of(first);
        *self.held(pu) = NOTHING;
        self.held(pu).pages[planes].fill(page);
        let reads_first = self.timing.reads_first;
        let waiting = |units: &mut Units| {
            let unit = &mut units.units[home];
            if reads_first { unit.reads } else { unit.others }
        };
        let (mut before, mut next) = (NONE, waiting(self).first());
        for _ in 0..LOOKED_AT {
            let Some(id) = next else { return };
            let op = self.ops[id];
            if op.kind != OpKind::Read {
                return;
            }
            next = waiting(self).after(id, &mut self.ops);
            match self.fits(pu, &op, first, true) {
                Some(sensing) if self.passes_others(home) => {
                    let unit = &mut self.units[home];
                    let list = if reads_first { &mut unit.reads } else { &mut unit.others };
                    list.take_after(before, &mut self.ops);
                    self.attach(now, pu, id, sensing);
                }
                _ => before = id,
            }
        }
    }

    /// A read that comes while its page is sensed, or stands in a register: true where
    /// it need not wait for more.
    pub(super) fn shares_at_once(&mut self, now: Time, home: u32, id: u32) -> bool {
        if self.sharing.is_none() || !self.units[home].others.is_empty() && !self.timing.reads_first
        {
            return false;
        }
        let op = self.ops[id];
        for pu in home..home + (1 << self.register_bits) {
            if self.units[pu].active == NONE {
                continue;
            }
            let first = self.active(pu);
            if self.fits(pu, &op, &first, false).is_some() && self.passes_others(home) {
                self.attach(now, pu, id, Sensing::Shared);
                return true;
            }
        }
        false
    }

    /// Whether one more read may go before what else waits at a die, which is counted.
    fn passes_others(&mut self, home: u32) -> bool {
        if !self.timing.reads_first {
            return true;
        }
        let loading = self.loading(home);
        let may = self.lets_pass(home, loading);
        if may {
            self.count_pass(home, loading);
        }
        may
    }

    /// A read waits for a register alone from now on.
    fn attach(&mut self, now: Time, pu: u32, id: u32, sensing: Sensing) {
        let is_sensed = self.held(pu).is_sensed;
        let op = self.ops[id];
        if let Some(tales) = &mut self.tales {
            tales.shares(now, id, !is_sensed);
        }
        let planes = self.active(pu).planes;
        let held = &mut self.ops[id];
        (held.sensing, held.planes) = (sensing, planes);
        let (page, planes) = self.pages_of(&op);
        let sharing = self.sharing.as_mut().expect("reads are shared");
        let register = &mut sharing.held[pu];
        for at in &mut register.pages[planes] {
            *at = if *at == NO_PAGE { page } else { *at };
        }
        register.count += 1;
        register.sharers.push(id, &mut self.ops);
    }

    /// The array is through with what a register holds.
    pub(super) fn note_sensed(&mut self, now: Time, pu: u32) {
        if self.sharing.is_none() {
            return;
        }
        self.held(pu).is_sensed = true;
        let (sharers, mut next) = (self.held(pu).sharers, self.held(pu).sharers.first());
        while let Some(id) = next {
            if let Some(tales) = &mut self.tales {
                tales.is_sensed(now, id);
            }
            next = sharers.after(id, &mut self.ops);
        }
    }

    /// The data of a read that shared a sensing go out, with the command that picks them.
    fn send_shared(&mut self, now: Time, pu: u32) -> Option<u32> {
        let op = self.active(pu);
        let time = self.timing.command + self.transfer_out(&op);
        if time == 0 {
            self.units[pu].state = State::Finishing;
            return Some(pu);
        }
        self.use_bus(now, pu, State::Out, true, time);
        self.pass_on(now, pu);
        None
    }

    /// The same of one of which was asked how it reads.
    pub(super) fn sense_shared(&mut self, now: Time, pu: u32) -> Option<u32> {
        let finished = self.send_shared(now, pu);
        self.settle(pu, finished)
    }

    /// A read is over that may have shared a sensing: the next that does is at work then.
    /// False where there is none.
    pub(super) fn hands_on(&mut self, now: Time, pu: u32, ended: &Op) -> bool {
        let Some(sharing) = &mut self.sharing else { return false };
        match ended.sensing {
            Sensing::Shared => sharing.shared += 1,
            Sensing::Joined => sharing.joined += 1,
            Sensing::Own | Sensing::Alone => {}
        }
        let held = &mut sharing.held[pu];
        let Some(next) = held.sharers.pop(&mut self.ops) else {
            *held = NOTHING;
            return false;
        };
        self.units[pu].active = next;
        self.let_enter(now, pu, true);
        self.timeline.settle(pu);
        true
    }

    /// The active read of a register shared a sensing, and a block of it is to be
    /// repeated: it is read by itself, next.
    #[cold]
    pub fn read_alone(&mut self, now: Time, pu: u32) {
        let (id, home) = (self.units[pu].active, self.home(pu));
        let held = self.ops[id].planes;
        if let Some(tales) = &mut self.tales {
            tales.suspended(now, (pu >> self.register_bits, held), id, 0);
        }
        self.ops[id].sensing = Sensing::Alone;
        self.ops[id].planes = self.planes_of(&self.ops[id]);
        let unit = &mut self.units[home];
        let list = if self.timing.reads_first { &mut unit.reads } else { &mut unit.others };
        list.push_front(id, &mut self.ops);
        let none = Op::default();
        if !self.hands_on(now, pu, &none) {
            self.vacate(pu, held);
            self.go_on(now, home);
            self.pass_on(now, pu);
        }
    }
}
