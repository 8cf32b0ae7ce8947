//! What becomes of a request: what the drive carries out.

use std::fmt;

/// Where a block is in flash: a unit, and a place in it below 2^48. As a number in
/// a map's entry 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(u64);

/// Bits of an address below its unit.
const PLACE_BITS: u32 = 48;

impl Address {
    /// Units that an address can name.
    pub const UNITS: u64 = 1 << 14;

    /// The place of a unit. `None` where either is too large.
    #[inline]
    pub fn new(unit: u16, place: u64) -> Option<Address> {
        let fits = u64::from(unit) < Address::UNITS && place >> PLACE_BITS == 0;
        fits.then(|| Address((u64::from(unit) + 1) << PLACE_BITS | place))
    }

    /// The one of an entry's number; `None` for none.
    #[inline]
    pub fn of(number: u64) -> Option<Address> {
        (number >> PLACE_BITS != 0).then_some(Address(number))
    }

    /// The number for it, which is never 0.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Its unit.
    #[inline]
    pub fn unit(self) -> u16 {
        ((self.0 >> PLACE_BITS) - 1) as u16
    }

    /// Its place in the unit.
    #[inline]
    pub fn place(self) -> u64 {
        self.0 & ((1 << PLACE_BITS) - 1)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {} place {}", self.unit(), self.place())
    }
}

/// An entry of a map, by the map's number in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Which map.
    pub map: u16,
    /// Which entry of it.
    pub key: u64,
}

/// What is done with a request. Exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A write goes to a unit, or to one of the application's where none is named;
    /// where it went is to be stored in an entry.
    Place {
        /// The parallel unit.
        unit: Option<u16>,
        /// The stream.
        stream: u16,
        /// The entry.
        entry: Option<Entry>,
    },
    /// A read is served from this address; none reads as zeros.
    Serve(Option<Address>),
    /// It goes to another channel.
    Redirect(u16),
    /// It goes to a remote drive.
    Remote(u16),
    /// It is done, and nothing happens; a read gives zeros.
    Drop,
    /// It fails: not permitted.
    Refuse,
    /// The control plane is asked what to do with it.
    Ask,
    /// The drive does what it does without rules.
    Pass,
}

/// Which chunk is collected first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The one with the fewest valid blocks.
    Greedy,
    /// The one that was closed first.
    Fifo,
    /// Any.
    Random,
}

impl Policy {
    /// All.
    pub const ALL: [Policy; 3] = [Policy::Greedy, Policy::Fifo, Policy::Random];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Policy::Greedy => "greedy",
            Policy::Fifo => "fifo",
            Policy::Random => "random",
        }
    }
}

/// A collection that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Which chunk first.
    pub policy: Policy,
    /// Of which unit; of none, of any of the application's.
    pub unit: Option<u16>,
}

/// A block that is to be moved. Where it went is to be stored in its entry, if that
/// still leads to where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrate {
    /// The entry that leads to it.
    pub entry: Entry,
    /// Where it is.
    pub from: Address,
    /// Where it shall be.
    pub unit: u16,
}

/// What a read brings from elsewhere is to be written to a unit, or to one of the
/// application's, too, and where it went to be stored in an entry: of several fills of one
/// entry that are under way only the newest's, and only while the entry has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The parallel unit.
    pub unit: Option<u16>,
    /// The entry.
    pub entry: Entry,
}

/// How many of a limit's requests may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The limit, by its number in the set.
    pub limit: u16,
    /// How many.
    pub most: u32,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The rule that gave the verdict, by its number in the text; `None` where no rule
    /// did, or the request was outside what was granted.
    pub rule: Option<u16>,
    /// What is done with it.
    pub verdict: Verdict,
    /// For how long it waits first, ns.
    pub delay: u64,
    /// It waits until fewer are under way.
    pub depth: Option<Depth>,
    /// Its weight where several wait for the same unit or channel.
    pub share: Option<u32>,
    /// A collection, beside it.
    pub collect: Option<Collect>,
    /// A move, beside it.
    pub migrate: Option<Migrate>,
    /// What is kept of a read, beside it.
    pub fill: Option<Fill>,
}

impl Decision {
    /// A verdict with nothing beside it.
    #[inline]
    pub fn bare(verdict: Verdict) -> Decision {
        Decision {
            rule: None,
            verdict,
            delay: 0,
            depth: None,
            share: None,
            collect: None,
            migrate: None,
            fill: None,
        }
    }
}
