//! The requests that are out, and what is known of their kinds.
//!
//! A kind is an operation, a class of lengths and how many others were out
//! when the request left: a device that has a queue takes longer for the last
//! of a burst. All of it is bounded and taken once. A tag that is out of range
//! or unknown is passed over: then nothing is learned of that request.

use port::{BlockOp, Time};

use super::plan::Plan;
use super::window::Window;

const OPS: usize = 4;
const SIZES: usize = 6;
const LOADS: usize = 24;

/// What is known of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Times of the newest.
    pub times: Window,
    /// Their mean over the last 16 or so, in ns.
    pub mean: u64,
    /// When its submitter may sleep.
    pub plan: Plan,
    /// Samples since the plan was made.
    pub fresh: u8,
    /// With so many it is made again.
    pub due: u8,
    /// The shortest and longest when it was made.
    pub range: (u64, u64),
}

/// A request that is out.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    tag: u32,
    /// Index of its kind.
    pub kind: u16,
    /// Whether its submitter has slept for it.
    pub slept: bool,
    /// When it left.
    pub since: Time,
}

impl Flight {
    /// Its age in ns.
    #[inline]
    pub fn age(&self, now: Time) -> u32 {
        u32::try_from(now.since(self.since)).unwrap_or(u32::MAX)
    }
}

const NOWHERE: u32 = u32::MAX;

/// The requests that are out, and all kinds.
#[derive(Debug)]
pub struct Flights {
    live: Vec<Flight>,
    /// Where in `live` a tag is.
    place: Box<[u32]>,
    kinds: Box<[Kind]>,
}

impl Flights {
    /// For tags below `tags`.
    pub fn new(tags: usize) -> Flights {
        Flights {
            live: Vec::with_capacity(tags),
            place: vec![NOWHERE; tags].into(),
            kinds: vec![Kind::default(); OPS * SIZES * LOADS].into(),
        }
    }

    /// A request leaves.
    #[inline]
    pub fn begin(&mut self, tag: u64, op: BlockOp, len: u64, now: Time) {
        let Some(place) = self.place.get_mut(tag as usize) else { return };
        if *place != NOWHERE {
            return;
        }
        *place = self.live.len() as u32;
        let kind = kind_of(op, len, self.live.len());
        self.live.push(Flight { tag: tag as u32, kind, slept: false, since: now });
    }

    /// A request is back.
    #[inline]
    pub fn end(&mut self, tag: u64) -> Option<Flight> {
        let place = std::mem::replace(self.place.get_mut(tag as usize)?, NOWHERE);
        if place == NOWHERE {
            return None;
        }
        let flight = self.live.swap_remove(place as usize);
        if let Some(moved) = self.live.get(place as usize) {
            self.place[moved.tag as usize] = place;
        }
        Some(flight)
    }

    /// What is out.
    #[inline]
    pub fn live(&self) -> &[Flight] {
        &self.live
    }

    /// The one that has been out longest.
    pub fn oldest_mut(&mut self) -> Option<&mut Flight> {
        self.live.iter_mut().min_by_key(|f| f.since)
    }

    /// What is known of the kind with this index.
    #[inline]
    pub fn kind(&self, index: u16) -> &Kind {
        &self.kinds[usize::from(index)]
    }

    /// The same, to learn.
    #[inline]
    pub fn kind_mut(&mut self, index: u16) -> &mut Kind {
        &mut self.kinds[usize::from(index)]
    }
}

/// The kind of a request with `others` out.
#[inline]
fn kind_of(op: BlockOp, len: u64, others: usize) -> u16 {
    let op = match op {
        BlockOp::Read => 0,
        BlockOp::Write => 1,
        BlockOp::Flush => 2,
        BlockOp::Trim | BlockOp::WriteZeroes => 3,
    };
    // To 4 KiB, to 16, to 64, to 256, to 1024, more.
    let pages = len.saturating_sub(1) >> 12;
    let size = ((65 - pages.leading_zeros()) / 2).min(SIZES as u32 - 1);
    // Each number to 15, then powers of two.
    let load = match others {
        0..16 => others,
        _ => (12 + others.ilog2() as usize).min(LOADS - 1),
    };
    ((op * SIZES + size as usize) * LOADS + load) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let of = |len, others| kind_of(BlockOp::Read, len, others);
        assert_eq!((of(512, 0), of(4096, 0), of(0, 0)), (0, 0, 0));
        let sizes = [4096, 4097, 16384, 16385, 65537, 262_145, 1 << 21, u64::MAX].map(|l| of(l, 0));
        assert_eq!(sizes.map(|k| k / LOADS as u16), [0, 1, 1, 2, 3, 4, 5, 5]);
        assert_eq!([1, 15, 16, 31, 32, usize::MAX].map(|n| of(1, n)), [1, 15, 16, 16, 17, 23]);
        let last = kind_of(BlockOp::WriteZeroes, u64::MAX, usize::MAX);
        assert_eq!(usize::from(last), OPS * SIZES * LOADS - 1);
    }

    #[test]
    fn flights_end_in_any_order_and_strangers_are_passed_over() {
        let mut flights = Flights::new(4);
        for tag in [3, 1, 2, 9, 1] {
            flights.begin(tag, BlockOp::Read, 4096, Time(tag));
        }
        assert_eq!(flights.live().len(), 3);
        assert_eq!(flights.end(3).map(|f| f.since), Some(Time(3)));
        assert!(flights.end(3).is_none() && flights.end(0).is_none() && flights.end(77).is_none());
        assert_eq!(flights.oldest_mut().map(|f| f.since), Some(Time(1)));
        assert!(flights.end(2).is_some() && flights.end(1).is_some());
        assert!(flights.live().is_empty());
    }
}
