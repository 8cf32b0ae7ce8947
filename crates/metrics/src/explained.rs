//! What there is to explain of a served drive's requests, over HTTP as JSON.
//!
//! [`write`] writes it, [`Look`] reads it; two looks give what was between them.
//!
//! Guarantees: sums are exact, over the wire too. Fails where a text is no such JSON, or
//! of a version with other parts.

use std::collections::BTreeMap;

use drive::live::{OPS, RANGES, end_of};
use drive::told::{Explained, SECONDS};
use measure::causes::{Causes, Group, Kind};
use measure::slowest::Slow;
use port::{BlockOp, Story, StorySum, Time};
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::client;
use crate::endpoint::Paper;

/// What goes over the wire.
#[derive(Serialize, Deserialize)]
struct Wire {
    drive: String,
    at_ns: u64,
    /// By operation; none where the drive does not tell.
    works: Option<BTreeMap<String, Vec<WireBand>>>,
    slowest: Vec<WireSlow>,
}

/// Requests that took about as long: what is in a range of latencies.
#[derive(Serialize, Deserialize)]
struct WireBand {
    range: usize,
    requests: u64,
    parts: Vec<WirePart<u128>>,
}

#[derive(Serialize, Deserialize)]
struct WirePart<N> {
    part: String,
    behind: Option<String>,
    ns: N,
}

#[derive(Serialize, Deserialize)]
struct WireSlow {
    op: String,
    offset: u64,
    bytes: u64,
    start_ns: u64,
    end_ns: u64,
    parts: Vec<WirePart<u64>>,
}

fn wire<N>((part, behind, ns): (&str, Option<&str>, N)) -> WirePart<N> {
    WirePart { part: part.into(), behind: behind.map(Into::into), ns }
}

/// What there is to explain of a drive of that name; nothing where it does not tell.
pub(crate) fn write(drive: &str, all: Option<Explained>) -> String {
    let is_told = all.is_some();
    let Explained { at, works, slowest } = all.unwrap_or_default();
    let bands = |work: &Vec<drive::told::Band>| {
        let some = work.iter().enumerate().filter(|(_, band)| band.requests > 0);
        let band = |(range, band): (usize, &drive::told::Band)| WireBand {
            range,
            requests: band.requests,
            parts: band.sum.parts().map(wire).collect(),
        };
        some.map(band).collect()
    };
    let works = OPS.iter().zip(&works).map(|(op, work)| (op.1.to_owned(), bands(work))).collect();
    let slow = |(slow, end): &(Slow, u64)| WireSlow {
        op: OPS[slow.op as usize].1.into(),
        offset: slow.offset,
        bytes: slow.len,
        start_ns: slow.story.start().0,
        end_ns: *end,
        parts: slow.story.parts().map(wire).collect(),
    };
    let slowest = slowest.iter().map(slow).collect();
    let all = Wire { drive: drive.into(), at_ns: at, works: is_told.then_some(works), slowest };
    serde_json::to_string(&all).unwrap_or_else(|e| format!("no JSON: {e}"))
}

/// Requests and their time in ns that are taken from a server, each: sums of all that a
/// page can tell stay far from what their numbers hold.
const MOST: u64 = 1 << 50;
const MOST_NS: u128 = 1 << 100;

/// How many requests, and where their time went.
type Counted = (u64, StorySum);

/// What a served drive told at some time.
#[derive(Clone, Debug)]
pub struct Look {
    /// The drive's name.
    pub drive: String,
    /// When, in ns since it is served.
    pub at: u64,
    /// By operation, as [`OPS`] has them, and range: how many, and where their time went.
    works: Vec<Vec<Counted>>,
    /// The slowest of the last seconds, and when each ended.
    slowest: Vec<(Slow, u64)>,
}

impl Look {
    /// The longest time between two looks of which all of the slowest are there, in ns.
    pub const LONGEST: u64 = (SECONDS - 3) * 1_000_000_000;

    /// Asks the server whose metrics are at an address.
    ///
    /// # Errors
    /// Where there is none, or its drive does not tell.
    pub fn at(address: &Address) -> Result<Look, String> {
        let read = |text: &str| Look::read(text).map_err(|e| format!("{address} {e}"));
        client::got(address, Paper::Explained, read)
    }

    fn read(text: &str) -> Result<Look, String> {
        let other = |why: String| format!("answers with what is not to be explained: {why}");
        let wire: Wire = serde_json::from_str(text).map_err(|e| other(e.to_string()))?;
        let of = "a drive that cannot tell where time goes: one of several targets, of \
                  rules or of keys, or with a protected cache, fault rules or batched writes";
        let mut told = wire.works.ok_or_else(|| format!("serves {of}"))?;
        let unknown = || other("parts of another version".into());
        let mut works = vec![vec![(0, StorySum::default()); RANGES + 1]; OPS.len()];
        for ((_, op), work) in OPS.iter().zip(&mut works) {
            for WireBand { range, requests, parts } in told.remove(*op).unwrap_or_default() {
                let band = work.get_mut(range).ok_or_else(unknown)?;
                if band.0 > 0 || requests > MOST {
                    return Err(other("ranges told twice, or of more than there can be".into()));
                }
                band.0 = requests;
                for WirePart { part, behind, ns } in &parts {
                    let ns = &Some(*ns).filter(|&ns| ns <= MOST_NS).ok_or_else(unknown)?;
                    band.1.add(part, behind.as_deref(), *ns).ok_or_else(unknown)?;
                }
            }
        }
        let slow = |slow: &WireSlow| -> Option<(Slow, u64)> {
            let op: BlockOp = OPS.iter().find(|one| one.1 == slow.op)?.0;
            let mut story = Story::at(Time(slow.start_ns));
            for WirePart { part, behind, ns } in &slow.parts {
                story.add_named(part, behind.as_deref(), *ns)?;
            }
            Some((Slow::new(op, slow.offset, slow.bytes, story), slow.end_ns))
        };
        let slowest = wire.slowest.iter().map(slow).collect::<Option<Vec<_>>>();
        let slowest = slowest.ok_or_else(unknown)?;
        Ok(Look { drive: wire.drive, at: wire.at_ns, works, slowest })
    }

    /// Whether it is of the server that `before` is of, and of the same one since: what it
    /// counted only grew.
    pub fn follows(&self, before: &Look) -> bool {
        let grew = |(now, then): (&Counted, &Counted)| now.0 >= then.0 && now.1.ns() >= then.1.ns();
        let all = self.works.iter().flatten().zip(before.works.iter().flatten());
        self.drive == before.drive && self.at >= before.at && all.into_iter().all(grew)
    }

    /// Where the time of the requests went that ended since `before`.
    pub fn causes_since(&self, before: &Look) -> Causes {
        let kind = |ops: &[BlockOp]| {
            Kind::of_bands((0..=RANGES).filter_map(|range| {
                let from = if range > 0 { end_of(range - 1) } else { 0 };
                let mut group = Group { requests: 0, from, sum: StorySum::default() };
                for &op in ops {
                    let (now, then) = (&self.works[op as usize], &before.works[op as usize]);
                    group.requests += now[range].0.saturating_sub(then[range].0);
                    group.sum.join(&now[range].1.since(&then[range].1));
                }
                (group.requests > 0).then_some(group)
            }))
        };
        let others = [BlockOp::Flush, BlockOp::Trim, BlockOp::WriteZeroes];
        Causes::of_kinds(kind(&[BlockOp::Read]), kind(&[BlockOp::Write]), kind(&others))
    }

    /// The slowest requests that ended since `before`, the slowest first, and how long
    /// before this look each did, in ns.
    pub fn slowest_since(&self, before: &Look) -> Vec<(Slow, u64)> {
        let since = self.slowest.iter().filter(|(_, end)| *end > before.at && *end <= self.at);
        let mut all: Vec<_> = since.map(|(slow, end)| (slow.clone(), self.at - end)).collect();
        all.sort_by(|a, b| b.0.cmp(&a.0));
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use drive::told::Band;
    use port::Part;

    /// Of a drive that did so many reads of each kind, and one write.
    fn told(at: u64, fast: u64, slow: u64) -> Explained {
        let mut works = vec![vec![Band::default(); RANGES + 1]; OPS.len()];
        let mut add = |op: usize, range: usize, n: u64, part: Part, ns: u64| {
            let band = &mut works[op][range];
            band.requests += n;
            (0..n).for_each(|_| {
                let mut story = Story::at(Time(7));
                story.add(part, ns);
                band.sum.note(&story);
            });
        };
        add(0, 3, fast, Part::Link, 1_700);
        add(0, 40, slow, Part::Array, 1_000_000);
        add(2, 1, 1, Part::Flush, 1_200);
        let mut story = Story::at(Time(at + 7));
        story.add(Part::RoomFolds, 90);
        let slowest = vec![(Slow::new(BlockOp::Write, 4096, 512, story), at + 50)];
        Explained { at: at + 100, works, slowest }
    }

    /// Two looks, between which there were 990 fast reads and ten slow ones.
    pub(crate) fn looks() -> [Look; 2] {
        let look =
            |at, fast, slow| Look::read(&write("mem:a", Some(told(at, fast, slow)))).unwrap();
        [look(0, 1000, 1), look(1_000, 1990, 11)]
    }

    #[test]
    fn two_looks_give_what_was_between() {
        let look =
            |at, fast, slow| Look::read(&write("mem:a", Some(told(at, fast, slow)))).unwrap();
        let [first, second] = looks();
        assert_eq!((second.drive.as_str(), second.at), ("mem:a", 1_100));
        let causes = second.causes_since(&first);
        let [reads, writes, others] = causes.kinds().map(|(_, kind)| kind);
        assert_eq!((reads.requests(), writes.requests(), others.requests()), (1000, 0, 0));
        let (all, tail) = (reads.slowest(1.0).unwrap(), reads.slowest(0.01).unwrap());
        assert_eq!(all.sum.ns(), 990 * 1_700 + 10 * 1_000_000);
        assert_eq!((tail.requests, tail.from, tail.sum.ns()), (10, end_of(39), 10_000_000));
        assert_eq!(tail.sum.ns_of(Part::Array), 10_000_000);
        let slowest = second.slowest_since(&first);
        let [(slow, ago)] = &slowest[..] else { panic!("{slowest:?}") };
        assert_eq!((slow.op, slow.offset, slow.len, *ago), (BlockOp::Write, 4096, 512, 50));
        assert_eq!((slow.story.ns(), slow.story.ns_of(Part::RoomFolds)), (90, 90));
        assert!(second.slowest_since(&second).is_empty(), "it ended before");
        assert!(second.follows(&first) && second.follows(&second) && !first.follows(&second));
        assert!(!look(2_000, 1000, 10).follows(&second), "started anew, and later");
        let page = write("mem:a", Some(told(0, 1000, 1)));
        for (good, bad) in [
            ("\"requests\":1000", "\"requests\":18446744073709551615"),
            ("\"ns\":1700000", "\"ns\":340282366920938463463374607431768211455"),
            ("\"range\":40", "\"range\":3"),
        ] {
            let page = page.replacen(good, bad, 1);
            assert!(page.contains(bad) && Look::read(&page).is_err(), "{bad}");
        }
        let other = Look { drive: "mem:b".into(), ..look(2_000, 2000, 20) };
        assert!(!other.follows(&second));
    }

    #[test]
    fn what_is_more_than_64_bits_goes_over_the_wire() {
        let mut all = told(0, 0, 0);
        let mut story = Story::at(Time(0));
        story.add(Part::Queue, u64::MAX - 5);
        let band = &mut all.works[1][RANGES];
        band.requests = 3;
        (0..3).for_each(|_| band.sum.note(&story));
        let look = Look::read(&write("a", Some(all))).unwrap();
        assert_eq!(look.works[1][RANGES].1.ns(), 3 * u128::from(u64::MAX - 5));
    }

    #[test]
    fn what_does_not_tell_is_said() {
        assert!(Look::read(&write("a", None)).unwrap_err().contains("protected cache"));
        assert!(Look::read("<html>").unwrap_err().contains("not to be explained"));
        let text = write("a", Some(told(0, 1, 0))).replace("\"link\"", "\"linc\"");
        assert!(Look::read(&text).unwrap_err().contains("another version"));
    }
}
