//! Study `blkmq`: the multi-queue block layer (Bjørling's thesis, chapter 3;
//! Bjørling, Axboe, Nellans and Bonnet, SYSTOR 2013).
//!
//! One queue (SQ), many (MQ) and no block layer (Raw) over a null device, by
//! cores. A layer is built for all cores and used by some. What the text
//! claims is judged as an order, a sign or a gain; its absolute figures, of
//! another machine's kernel, are shown. Scaling past the cores at hand is
//! counted, in writes to shared cache lines.

use blkmq::{Spread, Topology};
use port::BlockOp;
use serde_json::json;
use workload::TightOptions;

use super::aio::Aio;
use super::layers::{DEPTH, Layer, SHAPE, each_kind};
use super::lines::{self, Watched};
use super::threads::{self, Ran, Work};
use super::{Case, Findings, Lab, Reference, Row, Runs, Study, Turns};
use drive::error::Error;

/// The study.
pub const STUDY: Study = Study {
    name: "blkmq",
    about: "one queue, many and none over a null device, on 1 to all cores (thesis, ch. 3)",
    run,
};

const FIGURE_6: &str = "thesis ch. 3, figures 4 and 6: IOPS by cores, 32 outstanding each";
const FIGURE_7: &str = "thesis ch. 3, figure 7: average latency by cores, 1 outstanding each";
const TABLE_2: &str = "thesis ch. 3, table 2: the longest latency, all cores, 1 outstanding each";
const FIGURE_8: &str = "thesis ch. 3, figure 8: IOPS with libaio's shared locks, and without";
const FIGURE_9: &str = "thesis ch. 3, figure 9: IOPS with one staging queue, by dispatch queues";
const FIGURE_10: &str = "thesis ch. 3, figure 10: IOPS with staging per core, by dispatch queues";
const LINES: &str = "ours: writes to shared cache lines, a request (sections 2.2 and 3)";
const SILENT: &str = "the figure has no numbers in the text";

const PER_CORE: Layer = Layer::mq(Spread::PerCore, Spread::PerCore);
/// "A software queue is associated to each core and a hardware dispatch queue
/// is associated to each socket" (section 5).
const AS_PAPER: Layer = Layer::mq(Spread::PerCore, Spread::PerSocket);

/// One point of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    layer: Layer,
    /// Cores that are used.
    cores: usize,
    /// Requests outstanding of each.
    depth: usize,
    /// Whether libaio's locks are above it.
    aio: bool,
}

impl Point {
    fn deep(layer: Layer, cores: usize) -> Point {
        Point { layer, cores, depth: DEPTH, aio: false }
    }

    fn alone(layer: Layer, cores: usize) -> Point {
        Point { depth: 1, ..Point::deep(layer, cores) }
    }

    fn aio(layer: Layer, cores: usize) -> Point {
        Point { aio: true, ..Point::deep(layer, cores) }
    }

    fn case(self, topology: Topology) -> Case {
        let Point { layer, cores, depth, aio } = self;
        let (name, all, sockets) = (layer.name(), topology.cores(), topology.sockets());
        let above = if aio { ", below libaio's locks" } else { "" };
        let what = format!("{name}, {cores} cores, depth {depth}{above}");
        let command = format!(
            "512 B random reads of a null device, {depth} outstanding a core, one by one, on \
             {cores} cores; layer {name} of {all} cores and {sockets} sockets{above}"
        );
        let configuration = json!({
            "layer": name, "cores": all, "sockets": sockets, "used": cores, "depth": depth,
            "batch": 1, "libaio": aio, "bs": 512,
        });
        Case { what, command, configuration }
    }

    fn run(self, on: &[usize], topology: Topology, work: Work) -> Result<Ran, Error> {
        let load = TightOptions { depth: self.depth, ..work.load };
        let work = Work { load, ..work };
        each_kind!(self.layer.ports(topology)?, ports => {
            let mut ports = ports;
            // Those that are not used stay there, as on a machine.
            let _idle = ports.split_off(self.cores);
            if self.aio {
                threads::run(Aio::over(ports, self.depth), on, &SHAPE, work, |_| ())
            } else {
                threads::run(ports, on, &SHAPE, work, |_| ())
            }
        })
    }
}

/// 1, 2, 4 and so on, and all.
fn counts(cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|&count| count < cores).collect();
    counts.push(cores);
    counts
}

/// The dispatch queues of figures 9 and 10. With one socket, one for all and
/// one for each socket is the same.
fn dispatches(topology: Topology) -> Vec<Spread> {
    let mut all = vec![Spread::PerCore, Spread::PerSocket];
    if topology.sockets() > 1 {
        all.push(Spread::One);
    }
    all
}

/// All that is measured.
struct Measured {
    topology: Topology,
    points: Vec<Point>,
    turns: Vec<Turns<Ran>>,
}

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let (on, topology) = lab.options.topology()?;
    let points = points(topology);
    let cases: Vec<Case> = points.iter().map(|point| point.case(topology)).collect();
    let (ramp, time) = lab.options.pick((30_000_000, 200_000_000), (2_000_000, 10_000_000));
    let seed = lab.options.seed;
    let load = TightOptions { op: BlockOp::Read, len: 512, depth: DEPTH, batch: 1, seed };
    let turns = lab.by_turns(&cases, |i| {
        let ran = points[i].run(&on, topology, Work { load, ramp, time })?;
        let share = ran.share;
        Ok((ran, share))
    })?;
    let measured = Measured { topology, points, turns };
    let mut rows = figure_6(&measured);
    rows.extend(figure_7(&measured));
    rows.extend(table_2(&measured));
    rows.extend(figure_8(&measured));
    rows.extend(figures_9_and_10(&measured));
    rows.extend(shared_lines(lab, topology)?);
    Ok(Findings::new(rows, notes(topology)))
}

fn points(topology: Topology) -> Vec<Point> {
    let mut layers = vec![Layer::Raw, Layer::Sq, PER_CORE, AS_PAPER, Layer::SHARED_TAGS];
    for staging in [Spread::One, Spread::PerCore] {
        for dispatch in dispatches(topology) {
            let layer = Layer::mq(staging, dispatch);
            if !layers.contains(&layer) {
                layers.push(layer);
            }
        }
    }
    let mut points = Vec::new();
    for cores in counts(topology.cores()) {
        points.extend(layers.iter().map(|&layer| Point::deep(layer, cores)));
        points.extend([Layer::Raw, PER_CORE].map(|layer| Point::aio(layer, cores)));
        let alone = [Layer::Raw, Layer::Sq, PER_CORE, AS_PAPER];
        points.extend(alone.map(|layer| Point::alone(layer, cores)));
    }
    points
}

impl Measured {
    fn all(&self) -> usize {
        self.topology.cores()
    }

    fn figure(&self, point: Point, figure: impl Fn(&Ran) -> f64) -> Runs {
        let i = self.points.iter().position(|&p| p == point).expect("it was measured");
        self.turns[i].runs(figure)
    }

    fn iops(&self, point: Point) -> Runs {
        self.figure(point, |ran| ran.iops)
    }

    fn mean(&self, layer: Layer, cores: usize) -> Runs {
        self.figure(Point::alone(layer, cores), Ran::mean)
    }

    /// How much more all cores give than one.
    fn gain(&self, of: impl Fn(usize) -> Point) -> Runs {
        self.several(self.iops(of(self.all())).with(&self.iops(of(1)), |all, one| all / one))
    }

    /// What two cores give beside one.
    fn second(&self, of: impl Fn(usize) -> Point) -> Runs {
        let two = self.all().min(2);
        self.several(self.iops(of(two)).with(&self.iops(of(1)), |two, one| two / one))
    }

    /// Runs that say nothing where there is only one core.
    fn several(&self, runs: Runs) -> Runs {
        if self.all() == 1 { runs.voided("it takes two cores") } else { runs }
    }
}

/// How a layer is called in a row.
fn called(layer: Layer) -> String {
    match layer {
        Layer::Raw => "Raw".into(),
        Layer::Sq => "SQ".into(),
        Layer::SHARED_TAGS => "MQ per core, shared tags".into(),
        Layer::Mq { staging, dispatch, .. } => {
            let spread = |spread| match spread {
                Spread::One => "one",
                Spread::PerSocket => "per socket",
                _ => "per core",
            };
            format!("MQ {}/{}", spread(staging), spread(dispatch))
        }
    }
}

fn cores(n: usize) -> String {
    if n == 1 { "1 core".into() } else { format!("{n} cores") }
}

fn figure_6(m: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for n in counts(m.all()) {
        for layer in [Layer::Sq, AS_PAPER, Layer::SHARED_TAGS, PER_CORE, Layer::Raw] {
            let what = format!("{}, {}", called(layer), cores(n));
            let iops = m.iops(Point::deep(layer, n));
            rows.push(Row::shown(FIGURE_6, &what, "IOPS", Reference::Silent, iops, SILENT));
        }
    }
    rows.extend(scaling(m));
    rows.extend(beside(m));
    rows
}

/// How the layers of figure 6 gain from cores.
fn scaling(m: &Measured) -> Vec<Row> {
    let gain = |layer| m.gain(|n| Point::deep(layer, n));
    let follows = |layer| gain(layer).with(&gain(Layer::Raw), |mq, raw| mq / raw);
    let shown =
        |what, layer, why| Row::shown(FIGURE_6, what, "x", Reference::Silent, follows(layer), why);
    vec![
        Row::within(
            FIGURE_6,
            "SQ: gain from 1 to all cores",
            "x",
            "\"additional cores [...] do not contribute to improving throughput\"",
            gain(Layer::Sq),
            0.0..=1.1,
        ),
        Row::within(
            FIGURE_6,
            "MQ per core/per core: its gain beside Raw's",
            "x",
            "\"MQ follows the performance of Raw closely\"",
            follows(PER_CORE),
            0.95..=f64::INFINITY,
        ),
        shown("MQ per core, shared tags: its gain beside Raw's", Layer::SHARED_TAGS, LEAST_TAGS),
        shown("MQ per core/per socket: its gain beside Raw's", AS_PAPER, LEAST_TAGS),
        Row::within(
            FIGURE_6,
            "MQ per core/per socket: 2 cores beside 1",
            "x",
            "ours: cores that share a dispatch queue do not wait for each other",
            m.second(|n| Point::deep(AS_PAPER, n)),
            LEAST_OF_TWO..=f64::INFINITY,
        ),
    ]
}

/// What two cores that share a dispatch queue give at least, beside one.
const LEAST_OF_TWO: f64 = 0.9;

const LEAST_TAGS: &str = "the paper has no such row: its tags come from lists of each core";

/// The layers of figure 6 beside each other.
fn beside(m: &Measured) -> Vec<Row> {
    let all = m.all();
    let of = |layer| (called(layer), m.several(m.iops(Point::deep(layer, all))));
    let one = |layer| m.iops(Point::deep(layer, 1));
    let below =
        m.iops(Point::deep(PER_CORE, all)).with(&of(Layer::Raw).1, |mq, raw| 1.0 - mq / raw);
    let order = "SQ stays below 1 M IOPS, MQ has 3.5 M on 6 cores of one socket, and Raw more";
    let (raw, sq) = (of(Layer::Raw), of(Layer::Sq));
    vec![
        Row::order(FIGURE_6, "IOPS", order, [raw, of(PER_CORE), sq.clone()]),
        Row::order(FIGURE_6, "IOPS", order, [of(AS_PAPER), sq]),
        Row::within(
            FIGURE_6,
            "MQ per core/per socket beside SQ, 1 core",
            "x",
            "\"MQ performance is similar to SQ performance on a single core\"",
            one(AS_PAPER).with(&one(Layer::Sq), |mq, sq| mq / sq),
            0.9..=f64::INFINITY,
        ),
        Row::shown(
            FIGURE_6,
            "MQ per core/per core below Raw, all cores",
            "",
            Reference::Paper(0.22),
            below,
            "their Raw has a kernel's submission above it, ours nothing",
        ),
    ]
}

fn figure_7(m: &Measured) -> Vec<Row> {
    let all = m.all();
    let layers = [Layer::Sq, AS_PAPER, PER_CORE, Layer::Raw];
    let mut rows = Vec::new();
    for n in counts(all) {
        for layer in layers {
            let what = format!("{}, {}", called(layer), cores(n));
            let mean = m.mean(layer, n);
            rows.push(Row::shown(FIGURE_7, &what, "ns", Reference::Silent, mean, SILENT));
        }
    }
    let of = |layer| (called(layer), m.several(m.mean(layer, all)));
    let grows = m.mean(Layer::Sq, all).with(&m.mean(Layer::Sq, 1), |all, one| all - one);
    let lower = "for MQ, \"latency remains an order of magnitude lower than for SQ\"";
    rows.push(Row::sign(
        FIGURE_7,
        "SQ: all cores less 1 core",
        "ns",
        "for SQ, \"latency increases linearly with the number of cores\"",
        m.several(grows),
        true,
    ));
    rows.push(Row::order(FIGURE_7, "ns", lower, [of(Layer::Sq), of(AS_PAPER)]));
    rows.push(Row::order(FIGURE_7, "ns", lower, [of(Layer::Sq), of(PER_CORE)]));
    rows
}

fn table_2(m: &Measured) -> Vec<Row> {
    let all = m.all();
    let why = "their kernel and machine; ours is for how long the system takes a core away";
    let mut rows = Vec::new();
    for layer in [Layer::Sq, AS_PAPER, PER_CORE, Layer::Raw] {
        let longest = |ran: &Ran| ran.latency.max().map_or(f64::NAN, |ns| ns as f64 / 1e6);
        let (what, paper) = (format!("{}: the longest", called(layer)), Reference::Paper(50.0));
        let runs = m.figure(Point::alone(layer, all), longest);
        rows.push(Row::shown(TABLE_2, &what, "ms", paper, runs, why));
    }
    let text = "theirs, of one socket, is in words: below 0.01 % for MQ, 0.02 % for Raw";
    for layer in [Layer::Sq, AS_PAPER, PER_CORE, Layer::Raw] {
        let long = |ran: &Ran| 100.0 * ran.long as f64 / ran.latency.count() as f64;
        let what = format!("{}: longer than 1 ms", called(layer));
        let runs = m.figure(Point::alone(layer, all), long);
        rows.push(Row::shown(TABLE_2, &what, "%", Reference::Silent, runs, text));
    }
    rows
}

fn figure_8(m: &Measured) -> Vec<Row> {
    let all = m.all();
    let mut rows = Vec::new();
    for n in counts(all) {
        for layer in [Layer::Raw, PER_CORE] {
            let what = format!("{} with the locks, {}", called(layer), cores(n));
            let iops = m.iops(Point::aio(layer, n));
            rows.push(Row::shown(FIGURE_8, &what, "IOPS", Reference::Silent, iops, SILENT));
        }
    }
    for layer in [Layer::Raw, PER_CORE] {
        let name = called(layer);
        let of = |point| m.several(m.iops(point));
        rows.push(Row::order(
            FIGURE_8,
            "IOPS",
            "after the locks went, both \"are able to scale\" where they could not (figure 6)",
            [
                (format!("{name} without"), of(Point::deep(layer, all))),
                (format!("{name} with the locks"), of(Point::aio(layer, all))),
            ],
        ));
        let linear = m.gain(|n| Point::deep(layer, n)).map(|gain| gain / all as f64);
        rows.push(Row::within(
            FIGURE_8,
            &format!("{name} without: gain a core"),
            "x",
            "\"near linearly up to the maximum number of cores within the system\"",
            linear,
            0.8..=1.2,
        ));
    }
    rows
}

fn figures_9_and_10(m: &Measured) -> Vec<Row> {
    let all = m.all();
    let mut rows = Vec::new();
    let best = (called(PER_CORE), m.several(m.iops(Point::deep(PER_CORE, all))));
    for (figure, staging) in [(FIGURE_9, Spread::One), (FIGURE_10, Spread::PerCore)] {
        for dispatch in dispatches(m.topology) {
            let layer = Layer::mq(staging, dispatch);
            for n in counts(all) {
                let what = format!("{}, {}", called(layer), cores(n));
                let iops = m.iops(Point::deep(layer, n));
                rows.push(Row::shown(figure, &what, "IOPS", Reference::Silent, iops, SILENT));
            }
            if layer == PER_CORE {
                continue;
            }
            let other = (called(layer), m.several(m.iops(Point::deep(layer, all))));
            let highest = "\"to achieve the highest throughput, per-core queues for both\"";
            rows.push(Row::order(figure, "IOPS", highest, [best.clone(), other]));
            if staging == Spread::One {
                rows.push(Row::within(
                    figure,
                    &format!("{}: gain from 1 to all cores", called(layer)),
                    "x",
                    "one staging queue \"does not allow the block layer to scale gracefully\"",
                    m.gain(|n| Point::deep(layer, n)),
                    0.0..=0.75 * all as f64,
                ));
            }
        }
    }
    rows
}

/// Counts writes to shared lines. Where that cannot be, its rows are not
/// judged.
fn shared_lines(lab: &mut Lab, topology: Topology) -> Result<Vec<Row>, Error> {
    // Two a socket show all that is shared.
    let sockets = topology.sockets().min(4);
    let topology = Topology::new((2 * sockets).max(3), sockets).expect("there are some cores");
    let requests = lab.options.pick(2000, 100);
    let shared = Layer::mq(Spread::PerCore, Spread::One);
    let single = Layer::mq(Spread::One, Spread::One);
    let mut counted = Vec::new();
    // Those that are judged; all of them where there is time.
    let all = [Layer::Sq, shared, PER_CORE, single, Layer::SHARED_TAGS, Layer::Raw];
    for layer in all.into_iter().take(lab.options.pick(6, 3)) {
        let watched = Watched { layer, topology, requests };
        lab.watch.phase("writes to shared lines");
        if !lab.watch.look(counted.len() as f64 / all.len() as f64) {
            return Err(Error::Failed("stopped before its end".into()));
        }
        let runs = match least(watched) {
            Ok(writes) => Runs::one(writes),
            Err(why) => Runs::new(vec![]).voided(why),
        };
        let what = format!("writes to shared lines, {}", layer.name());
        let command = format!("ssdkit study blkmq --watched {} in lackey", watched.text());
        lab.note_step(&what, command, json!({ "layer": layer.name(), "requests": requests }));
        counted.push((layer, runs));
    }
    Ok(rows_of_lines(&counted))
}

/// The least of a few counts: what a thread meets that was held up at a bad
/// moment is not what comes with each request.
fn least(watched: Watched) -> Result<f64, String> {
    let mut least = lines::count(watched)?;
    for _ in 1..COUNTS {
        // Nothing is less than none, and most layers share something.
        if least == 0.0 || least > RARE {
            break;
        }
        least = least.min(lines::count(watched)?);
    }
    Ok(least)
}

/// Counts of a layer at most.
const COUNTS: usize = 3;
/// Fewer writes a request than this come now and then, and not with each.
const RARE: f64 = 0.5;

fn rows_of_lines(counted: &[(Layer, Runs)]) -> Vec<Row> {
    let ours = "the paper counts none";
    let mut rows: Vec<Row> = counted
        .iter()
        .map(|(layer, runs)| {
            let (what, runs) = (called(*layer), runs.clone());
            Row::shown(LINES, &what, "writes", Reference::Silent, runs, ours)
        })
        .collect();
    let of =
        |layer| counted.iter().find(|(l, _)| *l == layer).map(|(l, r)| (called(*l), r.clone()));
    let order = [Layer::Sq, Layer::mq(Spread::PerCore, Spread::One)];
    rows.push(Row::order(
        LINES,
        "writes",
        "for MQ \"the only remote memory accesses [...] are those concerning the hardware \
         dispatch queue\"",
        order.into_iter().filter_map(of),
    ));
    let none =
        "per-core queues give \"a fast IO path [...] that never has to access remote memory\"";
    rows.extend(of(PER_CORE).map(|(name, runs)| {
        Row::within(LINES, &format!("{name}: none"), "writes", none, runs, 0.0..=0.0)
    }));
    rows
}

fn notes(topology: Topology) -> Vec<String> {
    let (cores, sockets) = (topology.cores(), topology.sockets());
    let told = if sockets == 1 {
        "one socket, so one dispatch queue for all cores and one per socket are the same, and \
         nothing is shown of sockets"
            .to_owned()
    } else {
        format!("{cores} cores are called {sockets} sockets (--sockets), whatever the machine is")
    };
    vec![
        told,
        "threads are pinned to a core each; cases are measured by turns; the middle run of each \
         is shown"
            .into(),
        "requests are submitted and reaped one by one, the clock is read once in 32; with 1 \
         outstanding it is read for each, which is in the latency; 32 are submitted before the \
         first is looked for, so that 32 or 31 are always out"
            .into(),
        "everything is in user space: no system call, no interrupt, no libaio but where said; \
         that is why all is faster than theirs"
            .into(),
        "SQ takes one lock three times a request; it and MQ's shared staging queues use the same \
         lock, which sleeps when it is long taken"
            .into(),
        "libaio's locks (figure 8): one context of all cores; its list, ring and counters a lock \
         each, as section 5.2 has them"
            .into(),
        "writes to shared lines are counted with 3 threads (2 a socket) that take turns after each \
         request: no lock is found taken, so it is the least"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict};
    use super::*;
    use load::watch::Watch;

    #[test]
    fn cores_are_counted_by_doubling() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn every_point_of_a_figure_is_measured_once() {
        for (cores, sockets, layers) in [(1, 1, 7), (2, 1, 7), (4, 2, 9)] {
            let points = points(Topology::new(cores, sockets).unwrap());
            assert_eq!(points.len(), counts(cores).len() * (layers + 2 + 4));
            for (i, point) in points.iter().enumerate() {
                assert!(!points[..i].contains(point), "{point:?}");
            }
        }
    }

    #[test]
    fn the_rows_of_lines_are_judged_by_order_and_zero() {
        let shared = Layer::mq(Spread::PerCore, Spread::One);
        let verdicts = |counts: [f64; 3]| {
            let counted: Vec<_> =
                [Layer::Sq, shared, PER_CORE].into_iter().zip(counts.map(Runs::one)).collect();
            rows_of_lines(&counted)[3..].iter().map(Row::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts([9.0, 4.0, 0.0]), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(verdicts([4.0, 9.0, 0.0]), [Verdict::Fail, Verdict::Pass]);
        assert_eq!(verdicts([9.0, 4.0, 0.5]), [Verdict::Pass, Verdict::Fail]);
    }

    #[test]
    fn the_quick_study_has_all_rows() {
        let options = Options { quick: true, ..Options::default() };
        let outcome = STUDY.measure(&options, &mut Watch::quiet()).unwrap();
        let (_, topology) = options.topology().unwrap();
        let n = counts(topology.cores()).len();
        // By figure: 6, 7, table 2, 8, 9 and 10, lines.
        assert_eq!(outcome.rows.len(), 5 * n + 9 + 4 * n + 3 + 8 + 2 * n + 4 + 4 * n + 5 + 5);
        let lines: Vec<_> = outcome.rows.iter().filter(|row| row.figure() == LINES).collect();
        assert!(lines.iter().all(|row| matches!(row.verdict(), Verdict::NotGated(_))));
        for row in outcome.rows.iter().filter(|row| row.figure() != LINES) {
            let json = row.to_json();
            let median = json["ours"]["median"].as_f64();
            assert!(json["ours"].is_array() || median.is_some_and(f64::is_finite), "{json}");
        }
    }
}
