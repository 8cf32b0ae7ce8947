//! `uflip`: which patterns a drive likes (Bouganim, Jónsson and Bonnet, "uFLIP:
//! Understanding Flash IO Patterns", CIDR 2009).
//!
//! Four patterns with requests of 32 KiB, one at a time: sequential reads (SR), random
//! reads (RR), sequential writes (SW), random writes (RW). Nine micro-benchmarks change one
//! thing each: size, alignment, locality, partitioning, order, parallelism, mix, pauses,
//! bursts. Told is the mean response time. The drive is filled and written over at random
//! before, so that all begin in the same state; each run leaves as many requests out of its
//! count as it counts, and the drive rests after it.

use load::bursts::Pauses;
use load::load::{Load, Pace};
use load::runner::{Plan, Until};
use measure::units::{size_binary, time_ns};
use workload::{Order, Pattern};

use crate::Test;
use crate::curve::Curve;
use crate::outcome::Findings;
use crate::session::{Halt, Session};
use crate::table::{Figure, Table, Unit};

/// The test.
pub const TEST: Test = Test {
    name: "uflip",
    about: "nine micro-benchmarks of patterns, one 32 KiB request at a time",
    takes: ("3 drive fills and some minutes", "a minute"),
    needs_arrivals: false,
    depth: None,
    period: None,
    run,
};

/// Bytes of a request, where they are not what changes.
const BS: u64 = 32 << 10;
/// Requests that a run counts, and a quick one. Those of parallelism are as many as the
/// former in either: else the first ones, which find nobody, are too many of them.
const REQUESTS: (u64, u64) = (1024, 64);
/// Bytes of the smallest request and of the largest.
const SIZES: (u64, u64) = (512, 256 << 10);
/// The longest distance between addresses, and the most partitions.
const FAR: u64 = 256;
/// The most at once.
const MOST_AT_ONCE: u64 = 16;
/// The most requests of one pattern for each of the other.
const MOST_OF_ONE: u64 = 64;
/// The shortest pause after each request and the longest, in ns.
const PAUSES: (u64, u64) = (100_000, 25_600_000);
/// The smallest burst and the largest, in requests, and the pause after each, in ns.
const BURSTS: (u64, u64) = (10, 640);
const AFTER_A_BURST: u64 = 100_000_000;
/// So much longer than another a time may be, and is called alike.
const ALIKE: f64 = 1.2;
/// And is called as good.
const AS_GOOD: f64 = 2.0;

/// One of the four patterns.
#[derive(Clone, Copy)]
struct Base {
    name: &'static str,
    reads: u8,
    is_random: bool,
}

const SR: Base = Base { name: "SR", reads: 100, is_random: false };
const RR: Base = Base { name: "RR", reads: 100, is_random: true };
const SW: Base = Base { name: "SW", reads: 0, is_random: false };
const RW: Base = Base { name: "RW", reads: 0, is_random: true };
const ALL: [Base; 4] = [SR, RR, SW, RW];
const ORDERED: [Base; 2] = [SR, SW];
const PAIRS: [(Base, Base); 6] = [(SR, RR), (SR, RW), (SR, SW), (RR, SW), (RR, RW), (SW, RW)];

impl Base {
    /// Over all of a drive of so many bytes.
    fn pattern(self, bytes: u64) -> Pattern {
        let order = if self.is_random { Order::Uniform } else { Order::Sequential };
        Pattern { bs: BS, order, ..Pattern::uniform(bytes, self.reads) }
    }
}

/// A micro-benchmark: its rows are values of what changes, its columns patterns.
struct Micro {
    table: Table,
    along: (&'static str, Unit),
    /// What each row is, as a number.
    values: Vec<f64>,
}

impl Micro {
    fn new(name: &str, along: (&'static str, Unit), columns: Vec<String>) -> Micro {
        Micro { table: Table::new(name, Unit::Ns, columns), along, values: Vec::new() }
    }

    fn of(name: &str, along: (&'static str, Unit), bases: &[Base]) -> Micro {
        Micro::new(name, along, bases.iter().map(|base| base.name.into()).collect())
    }

    fn push(&mut self, name: &str, value: f64, means: Vec<Option<f64>>) {
        self.table.push(name, means);
        self.values.push(value);
    }

    /// The means of one pattern, by value.
    fn column<'t>(&'t self, name: &str) -> impl DoubleEndedIterator<Item = (f64, f64)> + 't {
        let at = self.table.columns.iter().position(|column| column == name);
        let rows = self.table.rows.iter().zip(&self.values);
        rows.filter_map(move |((_, means), &value)| Some((value, means[at?]?)))
    }

    /// The mean of one pattern at a value.
    fn at(&self, name: &str, value: f64) -> Option<f64> {
        self.column(name).find(|at| at.0 == value).map(|at| at.1)
    }

    /// The mean of one pattern at its first value, and at its last.
    fn ends(&self, name: &str) -> Option<(f64, f64)> {
        Some((self.column(name).next()?.1, self.column(name).next_back()?.1))
    }

    /// The largest value before the first at which a pattern takes more than
    /// [`AS_GOOD`] times `than`.
    fn as_good(&self, name: &str, than: f64) -> Option<f64> {
        let good = self.column(name).take_while(|&(_, mean)| mean <= AS_GOOD * than);
        good.last().map(|(value, _)| value)
    }

    fn curves(&self) -> Vec<Curve> {
        let curve = |name: &String| {
            let points = self.column(name).collect();
            Curve::new(&format!("{} {name}", self.table.name), self.along, Unit::Ns, points)
        };
        self.table.columns.iter().map(curve).collect()
    }
}

/// 1, 2, 4 and so on times the first, up to the second.
fn doubled((first, last): (u64, u64)) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), |value| value.checked_mul(2)).take_while(move |&v| v <= last)
}

/// What runs.
struct Bench<'b, 's, 'a> {
    session: &'b mut Session<'s, 'a>,
    requests: u64,
}

impl Bench<'_, '_, '_> {
    /// The mean response time of a pattern with so many at once, in ns; none where it
    /// has no room on the drive, or the drive does not take its requests.
    fn mean(
        &mut self,
        pattern: Pattern,
        at_once: u32,
        pauses: Option<Pauses>,
    ) -> Result<Option<f64>, Halt> {
        let end = pattern.offset.checked_add(pattern.length);
        let fits = end.is_some_and(|end| end <= self.session.bytes());
        let whole = pattern.offset.is_multiple_of(self.session.stand.about.sizes.0);
        if !fits || !whole || !self.session.takes(pattern.bs) || pattern.check().is_err() {
            return Ok(None);
        }
        let mut load = self.session.load_of(&pattern, Pace::Closed { depth: 1 }, at_once)?;
        self.session.warm_up(&mut load, self.requests)?;
        let plan = Plan { ramp: 0, until: Until::Ios(self.requests), count: true };
        let tally = self.session.measure_with(&mut load, plan, |runner| runner.pauses = pauses)?;
        self.session.stand.driver().rest();
        Ok(tally.all().mean())
    }

    /// The mean of random writes while the drive is written over at random and had no
    /// rest: all others find the blocks that it made free in theirs.
    fn without_rest(&mut self) -> Result<f64, Halt> {
        let pattern = RW.pattern(self.session.bytes());
        let mut load = self.session.load_of(&pattern, Pace::Closed { depth: 1 }, 1)?;
        self.session.warm_up(&mut load, pattern.blocks().div_ceil(4))?;
        let plan = Plan { ramp: 0, until: Until::Ios(self.requests), count: true };
        let tally = self.session.measure(&mut load, plan)?;
        self.session.stand.driver().rest();
        Ok(tally.all().mean().unwrap_or(0.0))
    }

    /// A micro-benchmark in which `change` makes of each pattern what it is at each value.
    fn micro(
        &mut self,
        mut micro: Micro,
        bases: &[Base],
        values: impl IntoIterator<Item = u64>,
        change: impl Fn(Pattern, u64) -> Pattern,
    ) -> Result<Micro, Halt> {
        let (name, unit) = (micro.table.name.clone(), micro.along.1);
        for value in values {
            self.session.phase(&format!("{name}, {}", unit.whole_text(value as f64)));
            let mut means = Vec::new();
            for base in bases {
                let pattern = change(base.pattern(self.session.bytes()), value);
                means.push(self.mean(pattern, 1, None)?);
            }
            if means.iter().any(Option::is_some) {
                micro.push(&unit.text(value as f64), value as f64, means);
            }
        }
        Ok(micro)
    }

    fn granularity(&mut self) -> Result<Micro, Halt> {
        let micro = Micro::of("granularity", ("request", Unit::Bytes), &ALL);
        self.micro(micro, &ALL, doubled(SIZES), |pattern, bs| Pattern { bs, ..pattern })
    }

    fn alignment(&mut self) -> Result<Micro, Halt> {
        let micro = Micro::of("alignment", ("shift", Unit::Bytes), &ALL);
        let shifts = std::iter::once(0).chain(doubled((512, BS / 2)));
        self.micro(micro, &ALL, shifts, |pattern, shift| Pattern {
            offset: shift,
            length: pattern.length - shift,
            ..pattern
        })
    }

    fn locality(&mut self) -> Result<Micro, Halt> {
        let micro = Micro::of("locality", ("within", Unit::Bytes), &ALL);
        let all = self.session.bytes();
        let within = doubled((BS, all));
        self.micro(micro, &ALL, within, |pattern, length| Pattern { length, ..pattern })
    }

    fn partitioning(&mut self) -> Result<Micro, Halt> {
        let micro = Micro::of("partitioning", ("partitions", Unit::Count), &ORDERED);
        self.micro(micro, &ORDERED, doubled((1, FAR)), |pattern, parts| Pattern {
            order: Order::Partitioned { parts: parts as u32 },
            ..pattern
        })
    }

    /// Each request so many requests' lengths after the one before.
    fn order(&mut self) -> Result<Micro, Halt> {
        let mut micro = Micro::of("order", ("step, in requests", Unit::Count), &ORDERED);
        let steps = [-1, 0].into_iter().chain(doubled((1, FAR)).map(|step| step as i64));
        for step in steps {
            self.session.phase(&format!("order, steps of {step}"));
            let mut means = Vec::new();
            for base in ORDERED {
                let order = Order::Stride { step };
                let pattern = Pattern { order, ..base.pattern(self.session.bytes()) };
                means.push(self.mean(pattern, 1, None)?);
            }
            let name = match step {
                -1 => "backwards".into(),
                0 => "in place".into(),
                step => step.to_string(),
            };
            micro.push(&name, step as f64, means);
        }
        Ok(micro)
    }

    fn parallelism(&mut self) -> Result<Micro, Halt> {
        let usual = std::mem::replace(&mut self.requests, REQUESTS.0);
        let mut micro = Micro::of("parallelism", ("at once", Unit::Count), &ALL);
        for at_once in doubled((1, MOST_AT_ONCE)) {
            self.session.phase(&format!("parallelism, {at_once} at once"));
            let mut means = Vec::new();
            for base in ALL {
                let pattern = base.pattern(self.session.bytes());
                means.push(self.mean(pattern, at_once as u32, None)?);
            }
            micro.push(&at_once.to_string(), at_once as f64, means);
        }
        self.requests = usual;
        Ok(micro)
    }

    /// So many requests of the first pattern, then one of the second.
    fn mix(&mut self) -> Result<Micro, Halt> {
        let columns = PAIRS.map(|(a, b)| format!("{}/{}", a.name, b.name)).to_vec();
        let mut micro =
            Micro::new("mix", ("of the first for one of the second", Unit::Count), columns);
        for ratio in doubled((1, MOST_OF_ONE)) {
            self.session.phase(&format!("mix, {ratio} to 1"));
            let turns = self.requests.div_ceil(ratio + 1);
            let mut means = Vec::new();
            for (a, b) in PAIRS {
                let mut load = |base: Base| -> Result<Load, Halt> {
                    let pattern = base.pattern(self.session.bytes());
                    Ok(self.session.load_of(&pattern, Pace::Closed { depth: 1 }, 1)?)
                };
                let (mut a, mut b) = (load(a)?, load(b)?);
                let loads = [(&mut a, ratio), (&mut b, 1)];
                means.push(Some(self.session.measure_in_turns(loads, (turns, turns))?));
                self.session.stand.driver().rest();
            }
            micro.push(&format!("{ratio} to 1"), ratio as f64, means);
        }
        Ok(micro)
    }

    /// With a pause after every so many requests.
    fn paused(
        &mut self,
        mut micro: Micro,
        values: impl Iterator<Item = u64>,
        pauses: impl Fn(u64) -> Pauses,
    ) -> Result<Micro, Halt> {
        let (name, unit) = (micro.table.name.clone(), micro.along.1);
        for value in values {
            self.session.phase(&format!("{name}, {}", unit.whole_text(value as f64)));
            let mut means = Vec::new();
            for base in ALL {
                let pauses = Some(pauses(value)).filter(|pauses| pauses.ns > 0);
                means.push(self.mean(base.pattern(self.session.bytes()), 1, pauses)?);
            }
            micro.push(&unit.text(value as f64), value as f64, means);
        }
        Ok(micro)
    }

    fn pause(&mut self) -> Result<Micro, Halt> {
        let micro = Micro::of("pause", ("after each", Unit::Ns), &ALL);
        let values = std::iter::once(0).chain(doubled(PAUSES));
        self.paused(micro, values, |ns| Pauses { each: 1, ns })
    }

    fn bursts(&mut self) -> Result<Micro, Halt> {
        let micro = Micro::of("bursts", ("requests a burst", Unit::Count), &ALL);
        let most = BURSTS.1.min(self.requests);
        let values = doubled((BURSTS.0, most));
        self.paused(micro, values, |each| Pauses { each, ns: AFTER_A_BURST })
    }
}

fn run(session: &mut Session) -> Result<Findings, Halt> {
    if !session.takes(BS) || session.bytes() < 2 * BS {
        let text = format!("the drive takes no requests of {}", size_binary(BS));
        return Err(Halt::Void(text));
    }
    session.fill()?;
    session.age()?;
    let requests = session.options.pick(REQUESTS.0, REQUESTS.1);
    let mut bench = Bench { session, requests };
    let without_rest = bench.without_rest()?;
    let micros = [
        bench.granularity()?,
        bench.alignment()?,
        bench.locality()?,
        bench.partitioning()?,
        bench.order()?,
        bench.parallelism()?,
        bench.mix()?,
        bench.pause()?,
        bench.bursts()?,
    ];
    if micros[0].table.rows.len() < doubled(SIZES).count() {
        session.note("sizes and shifts that the drive does not take are left out");
    }
    let most = ALL.map(|base| differ(&of_one(&micros, base))).into_iter().fold(1.0, f64::max);
    if most > ALIKE {
        session.note(format!(
            "runs of one pattern differ by up to x {most:.2}: smaller differences mean nothing"
        ));
    }
    Ok(told(without_rest, micros))
}

/// What a pattern took each time that nothing of it was changed, in order of size.
fn of_one(micros: &[Micro; 9], base: Base) -> Vec<f64> {
    let [granularity, alignment, locality, partitioning, order, parallelism, _, pause, _] = micros;
    let last = locality.column(base.name).next_back();
    let all = [
        granularity.at(base.name, BS as f64),
        alignment.at(base.name, 0.0),
        last.map(|at| at.1),
        partitioning.at(base.name, 1.0),
        order.at(base.name, 1.0),
        parallelism.at(base.name, 1.0),
        pause.at(base.name, 0.0),
    ];
    let mut all: Vec<f64> = all.into_iter().flatten().collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The largest by the least of them.
fn differ(all: &[f64]) -> f64 {
    all.first().zip(all.last()).map_or(1.0, |(least, most)| most / least)
}

fn told(without_rest: f64, micros: [Micro; 9]) -> Findings {
    let [_, alignment, locality, partitioning, order, parallelism, _, pause, _] = &micros;
    let runs = ALL.map(|base| of_one(&micros, base));
    let alone = runs.each_ref().map(|all| all.get(all.len() / 2).copied().unwrap_or(0.0));
    let [sr, rr, sw, rw] = alone;
    let shifted = alignment.column("RW").filter(|at| at.0 > 0.0).map(|at| at.1).reduce(f64::max);
    let worst = shifted.zip(alignment.at("RW", 0.0)).map(|(worst, none)| worst / none);
    let in_order = order.at("SW", 1.0);
    let beside = |step: f64| order.at("SW", step).zip(in_order).map(|(mean, one)| mean / one);
    let parts = partitioning.at("SW", 1.0).unwrap_or(0.0);
    let at_once = |name| {
        let ends = parallelism.ends(name);
        ends.map(|(alone, many)| alone * MOST_AT_ONCE as f64 / many)
    };
    let mut figures: Vec<Figure> =
        ALL.iter().zip(alone).map(|(base, mean)| Figure::new(base.name, Unit::Ns, mean)).collect();
    figures.extend(ALL.iter().zip(&runs).map(|(base, all)| {
        let name = format!("{}, its slowest run by its fastest", base.name);
        Figure::new(&name, Unit::Ratio, differ(all))
    }));
    figures.extend([
        Figure::new("RW without rest before", Unit::Ns, without_rest),
        Figure::new("RW at its worst shift, beside none", Unit::Ratio, worst),
        Figure::new("RW as good as SW within", Unit::Bytes, locality.as_good("RW", sw)),
        Figure::new("SW as good in partitions", Unit::Count, partitioning.as_good("SW", parts)),
        Figure::new("writes backwards beside SW", Unit::Ratio, beside(-1.0)),
        Figure::new("writes in place beside SW", Unit::Ratio, beside(0.0)),
        Figure::new("throughput of 16 at once beside 1, RR", Unit::Ratio, at_once("RR")),
        Figure::new("throughput of 16 at once beside 1, RW", Unit::Ratio, at_once("RW")),
        Figure::new(
            "RW with the longest pause, beside none",
            Unit::Ratio,
            pause.ends("RW").map(|(none, longest)| longest / none),
        ),
    ]);
    let headline = format!(
        "reads {} in order, {} at random; writes {} and {}",
        time_ns(sr),
        time_ns(rr),
        time_ns(sw),
        time_ns(rw)
    );
    let curves = micros.iter().flat_map(Micro::curves).collect();
    let tables = micros.into_iter().map(|micro| micro.table).collect();
    Findings { headline, figures, tables, curves, ..Findings::default() }
}
