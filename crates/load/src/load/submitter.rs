//! One who asks, of those that follow a pattern; and what it will ask next.
//!
//! Nothing here fails.

use port::{BlockOp, BlockReq, Buffer};
use workload::{Access, Generator};

use super::request;
use crate::driver::Driver;

/// How many accesses ahead the drive is told of.
pub(super) const AHEAD: usize = 8;

/// One who asks.
pub(super) struct Submitter {
    pub generator: Generator,
    /// What it will ask next, where the drive is told of it.
    pub ahead: Option<Ahead>,
}

/// What will be asked next. It is kept field by field: a structure that is written in
/// parts and copied as a whole stalls the processor.
pub(super) struct Ahead {
    offsets: [u64; AHEAD],
    lens: [u32; AHEAD],
    ops: [BlockOp; AHEAD],
    fuas: [bool; AHEAD],
    next: usize,
    /// The latest of them, as the drive is told of it.
    told: BlockReq,
}

impl Ahead {
    pub fn new(generator: &mut Generator) -> Ahead {
        let ahead: [Access; AHEAD] = std::array::from_fn(|_| generator.next());
        let (offsets, ops) = (ahead.map(|a| a.offset), ahead.map(|a| a.op));
        let told = request(0, &ahead[AHEAD - 1], (0, 0), Buffer::empty());
        let (lens, fuas) = (ahead.map(|a| a.len as u32), ahead.map(|a| a.fua));
        Ahead { offsets, lens, ops, fuas, next: 0, told }
    }

    /// The next access; the drive is told of the one `AHEAD` later.
    #[inline(always)]
    fn draw(&mut self, later: Access, driver: &dyn Driver) -> Access {
        let told = &mut self.told;
        (told.op, told.fua, told.offset, told.len) = (later.op, later.fua, later.offset, later.len);
        driver.hint(told);
        let at = self.next % AHEAD;
        let (op, offset, fua) = (self.ops[at], self.offsets[at], self.fuas[at]);
        let len = self.lens[at].into();
        (self.ops[at], self.offsets[at], self.fuas[at]) = (later.op, later.offset, later.fua);
        self.lens[at] = later.len as u32;
        self.next = at + 1;
        Access { op, offset, len, fua }
    }
}

impl Submitter {
    pub fn new(generator: Generator) -> Submitter {
        Submitter { generator, ahead: None }
    }

    #[inline(always)]
    pub fn draw(&mut self, driver: &dyn Driver) -> Access {
        let access = self.generator.next();
        match &mut self.ahead {
            None => access,
            Some(ahead) => ahead.draw(access, driver),
        }
    }
}
