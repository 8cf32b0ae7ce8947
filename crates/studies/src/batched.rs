//! Study `batched`: a key-value store over a log on the host (Conv) and over a
//! drive that takes batches (Prog), as Do, Lomet and Picoli measured it
//! ("Improving CPU I/O Performance via SSD Controller FTL Support for Batched
//! Writes", DaMoN 2019, section 7).
//!
//! The same tree, flash, link, cache and client below and above both; one host
//! core, one for the controller. What the log's map takes of the host's memory
//! comes out of its cache. Beside the throughput: where the host's time goes,
//! how often pages are written, what a slower controller does, and how long
//! the drive with batched writes takes to recover.
//!
//! On the wall the two stores of a pair are measured by turns of tens of ms in
//! one process, and the ratio is that of turns that follow each other: a shared
//! machine's speed varies by more than the figure from run to run. What the
//! drives give alone, and recovery, are in virtual time.

use btree::{Store, StoreKind};
use device::Device;
use flash::{Dimensions, Geometry, Profile, RamMedium};
use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, Buffer, Desc, Port, Ring, Time};
use targets::BatchConfig;
use targets::batch::Recovery;
use workload::Rng;
use workload::ycsb::{RECORD_BYTES, Workload};

use super::{Case, Findings, Lab, Options, Reference, Row, Runs, SHARE, Study, Turns};
use drive::backing::Backing;
use drive::batched::{self, BoxedBatch};
use drive::error::Error;
use drive::memory;
use drive::spec::DriveSpec;
use load::watch::Watch;
use ycsb::measure::{measure, measure_by_turns};
use ycsb::setup::size_for;
use ycsb::{CacheSize, Measured, Setup};

/// The study.
pub const STUDY: Study = Study {
    name: "batched",
    about: "a key-value store over a log on the host and over a drive that takes batches \
            (DaMoN 2019)",
    run,
};

const FIGURE: &str = "figure 6: YCSB throughput, one host core";
const HOST: &str = "section 7.2: where the host's time goes, an operation";
const WRITES: &str = "how often a page is written";
const SLOWER: &str = "section 7.2: a weaker controller";
const ALONE: &str = "the same drives under a host whose work takes no time, virtual time";
const RECOVERY: &str = "section 4: recovery of the drive, drive time";

/// Flash that is fast enough that nothing waits for it for long ("our
/// experiments are never I/O bound"), in chunks small enough for a small
/// drive.
const DRIVE: &str = "mem:znand,planes=2,pages=64";
/// Operations under way at once: enough that the host seldom waits ("large
/// enough that the queue is never starved").
const CLIENTS: usize = 256;
/// Operations of a turn: tens of ms.
const TURN: u64 = 50_000;
/// Turns of a run.
const TURNS: u64 = 20;
/// The least ratio of the paper, durable.
const LEAST: f64 = 1.91;
/// What is asked of figure 6.
const SAYS: &str = "1.91 to 2.49 times";

/// One run's set-up, in short.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    store: StoreKind,
    durable: bool,
    /// Percent.
    cache: u32,
    /// Nanoseconds a command.
    controller: u64,
    /// On the wall, or in virtual time.
    real: bool,
}

impl Cell {
    fn name(&self) -> String {
        let who = if self.store == StoreKind::Log { "Conv" } else { "Prog" };
        let durable = if self.durable { "durable" } else { "not durable" };
        let slow = match self.controller {
            0 => String::new(),
            ns => format!(", {} us a command", ns / 1000),
        };
        format!("{who}, {durable}, cache {} %{slow}", self.cache)
    }

    fn setup(&self, options: &Options) -> Result<Setup, Error> {
        let records = options.records.unwrap_or(options.pick(500_000, 8_000));
        let workload = Workload::Paper;
        let ops = TURNS * options.pick(TURN, 500);
        let DriveSpec::Memory(spec) = DRIVE.parse()? else {
            return Err(Error::Usage(format!("{DRIVE} is not in this process")));
        };
        Ok(Setup {
            drive: ycsb::drive(
                &spec,
                size_for(workload, records, ops, self.durable, RECORD_BYTES),
            )?,
            workload,
            records,
            ops,
            cache: CacheSize::Percent(f64::from(self.cache)),
            store: Store::Tree(self.store),
            value: RECORD_BYTES,
            durable: self.durable,
            clients: CLIENTS,
            controller: self.controller,
            seed: options.seed,
            real: self.real,
            verify: false,
        })
    }

    fn command(&self, setup: &Setup, seed: u64) -> String {
        let mut command = format!(
            "ssdkit ycsb {DRIVE} --workload paper --pages {} --records {} --ops {} --memory {}% \
             --clients {CLIENTS} --clock {} --seed {seed}",
            self.store.name(),
            setup.records,
            setup.ops,
            self.cache,
            if self.real { "real" } else { "virtual" },
        );
        if !self.durable {
            command += " --not-durable";
        }
        if self.controller > 0 {
            command += &format!(" --controller-time {}ns", self.controller);
        }
        command
    }
}

/// Conv and Prog, all else the same.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair([Cell; 2]);

impl Pair {
    fn new(conv: Cell) -> Pair {
        Pair([conv, Cell { store: StoreKind::Batched, ..conv }])
    }

    fn setups(&self, options: &Options) -> Result<[Setup; 2], Error> {
        let [conv, prog] = &self.0;
        Ok([conv.setup(options)?, prog.setup(options)?])
    }

    fn case(&self, setups: &[Setup; 2], seed: u64) -> Case {
        let [conv, prog] = [0, 1].map(|i| self.0[i].command(&setups[i], seed));
        Case {
            what: format!("{}; and Prog, by {TURNS} turns each", self.0[0].name()),
            command: format!("{conv}; {prog}"),
            configuration: setups.each_ref().map(ycsb::configuration).to_vec().into(),
        }
    }
}

/// Whether so many records can be: more than memory has are better refused before
/// anything is measured.
pub fn check(options: &Options) -> Result<(), Error> {
    if options.records.is_some_and(|records| records > MOST_RECORDS) {
        let text = format!("--records is at most {MOST_RECORDS}");
        return Err(Error::Usage(text));
    }
    let pair = Pair::new(not_durable(conv(100))).setups(options)?;
    memory::ask_records(pair.iter().map(Setup::needs).sum())
}

/// As of `ssdkit ycsb`.
const MOST_RECORDS: u64 = 2_000_000_000;

/// Runs a pair. A turn counts when both had their processors; the run does when
/// most turns did.
fn run_pair(setups: &[Setup; 2], watch: &Watch) -> Result<(Undisturbed, Option<f64>), Error> {
    let mut turns = measure_by_turns(setups, TURNS, watch)?;
    if turns.iter().flatten().any(|m| m.interrupted) {
        return Err(stopped());
    }
    if let Some(first) = turns.iter().flatten().find_map(|m| m.first_error.as_ref()) {
        return Err(Error::Failed(format!("an operation failed: {first}")));
    }
    let share = |turn: &[Measured; 2]| turn.iter().filter_map(|m| m.share).fold(1.0, f64::min);
    let typical = Runs::new(turns.iter().map(share).collect()).median();
    if typical >= SHARE {
        turns.retain(|turn| share(turn) >= SHARE);
    }
    Ok((turns, Some(typical)))
}

fn stopped() -> Error {
    Error::Failed("stopped before its end".into())
}

/// The turns of a pair that nothing disturbed.
type Undisturbed = Vec<[Measured; 2]>;

/// All that is measured, with what it gave.
struct All {
    pairs: Vec<Pair>,
    turns: Vec<Turns<Undisturbed>>,
}

impl All {
    /// Of each turn of both.
    fn of_pair(&self, pair: Pair, figure: impl Fn(&[Measured; 2]) -> f64) -> Runs {
        let at = self.pairs.iter().position(|one| *one == pair);
        let at = at.expect("the rows are of the pairs");
        self.turns[at].figures(|turns| turns.iter().map(&figure).collect())
    }

    fn runs(&self, cell: Cell, figure: impl Fn(&Measured) -> f64) -> Runs {
        let pair = Pair::new(Cell { store: StoreKind::Log, ..cell });
        let side = usize::from(cell.store == StoreKind::Batched);
        self.of_pair(pair, |turn| figure(&turn[side]))
    }

    fn rate(&self, cell: Cell) -> Runs {
        self.runs(cell, Measured::rate)
    }

    /// How much more Prog does than Conv of the same kind.
    fn ratio(&self, conv: Cell) -> Runs {
        self.of_pair(Pair::new(conv), |[conv, prog]| prog.rate() / conv.rate())
    }
}

fn conv(cache: u32) -> Cell {
    Cell { store: StoreKind::Log, durable: true, cache, controller: 0, real: true }
}

fn prog(cache: u32) -> Cell {
    Cell { store: StoreKind::Batched, ..conv(cache) }
}

fn not_durable(cell: Cell) -> Cell {
    Cell { durable: false, ..cell }
}

/// Times for which a slower controller is occupied by a command.
const SLOW: [u64; 2] = [5_000, 10_000];

fn run(lab: &mut Lab) -> Result<Findings, Error> {
    let caches: &[u32] = lab.options.pick(&[10, 20, 30, 40, 50], &[10, 50]);
    let middle = caches[caches.len() / 2];
    let mut pairs = Vec::new();
    for &cache in caches {
        pairs.extend([conv(cache), not_durable(conv(cache))].map(Pair::new));
    }
    pairs.extend(SLOW.map(|controller| Pair::new(Cell { controller, ..conv(middle) })));
    let setup = |pair: &Pair| pair.setups(lab.options);
    let setups = pairs.iter().map(setup).collect::<Result<Vec<_>, Error>>()?;
    let seed = lab.options.seed;
    let cases: Vec<Case> =
        pairs.iter().zip(&setups).map(|(pair, setups)| pair.case(setups, seed)).collect();
    let watch = lab.watch.helper();
    let turns = lab.by_turns(&cases, |i| run_pair(&setups[i], &watch))?;
    let all = All { pairs, turns };
    let mut rows = figure(&all, caches);
    rows.extend(host(&all, middle));
    rows.extend(writes(&all, middle));
    rows.extend(slower(&all, middle));
    rows.extend(alone(lab, caches)?);
    rows.extend(recovery(lab)?);
    Ok(Findings::new(rows, notes(&setups[0][0])))
}

/// Figure 6.
fn figure(all: &All, caches: &[u32]) -> Vec<Row> {
    let mut rows = Vec::new();
    let bar = "the paper's heights are only drawn; this is another host";
    for &cache in caches {
        for cell in [conv(cache), prog(cache)].map(|c| [c, not_durable(c)]).concat() {
            let rate = all.rate(cell);
            rows.push(Row::shown(FIGURE, &cell.name(), "ops/s", Reference::Silent, rate, bar));
        }
        rows.push(Row::within(
            FIGURE,
            &format!("Prog / Conv, durable, cache {cache} %"),
            "x",
            SAYS,
            all.ratio(conv(cache)),
            LEAST..=f64::INFINITY,
        ));
        rows.push(Row::shown(
            FIGURE,
            &format!("Prog / Conv, not durable, cache {cache} %"),
            "x",
            Reference::Says("Conv is slightly better, as Prog's processor is weaker".into()),
            all.ratio(not_durable(conv(cache))),
            "our controller's processor is as fast as the host's",
        ));
    }
    rows
}

/// The host's time an operation, in parts.
fn host(all: &All, cache: u32) -> Vec<Row> {
    let why = "the paper gives none";
    let mut rows = Vec::new();
    for cell in [conv(cache), prog(cache)] {
        let of =
            |figure: &dyn Fn(&Measured) -> u64| all.runs(cell, |m| figure(m) as f64 / m.ops as f64);
        let name = cell.name();
        let busy = of(&|m| m.host.busy());
        let what = format!("{name}: busy");
        rows.push(Row::shown(HOST, &what, "ns", Reference::Silent, busy, why));
        for part in 0..7 {
            let runs = of(&|m| ycsb::parts(&m.host)[part].1);
            let what = format!("{name}: {}", ycsb::parts(&ycsb::HostTime::default())[part].0);
            rows.push(Row::shown(HOST, &what, "ns", Reference::Silent, runs, why));
        }
    }
    let busy = |m: &Measured| m.host.busy() as f64 / m.ops as f64;
    let ratio = all.of_pair(Pair::new(conv(cache)), |[conv, prog]| busy(conv) / busy(prog));
    let what = format!("Conv / Prog, durable, cache {cache} %: busy");
    rows.push(Row::shown(HOST, &what, "x", Reference::Silent, ratio, why));
    rows
}

/// Write amplification.
fn writes(all: &All, cache: u32) -> Vec<Row> {
    let why = "the paper gives none";
    let mut rows = Vec::new();
    for cell in [conv(cache), prog(cache)] {
        for (what, figure) in [
            ("by the store", Measured::store_amplification as fn(&Measured) -> Option<f64>),
            ("again by the drive", Measured::drive_amplification),
        ] {
            let runs = all.runs(cell, |m| figure(m).unwrap_or(f64::NAN));
            let what = format!("{}: {what}", cell.name());
            rows.push(Row::shown(WRITES, &what, "x", Reference::Silent, runs, why));
        }
    }
    rows
}

/// What a slower controller does.
fn slower(all: &All, cache: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for controller in SLOW {
        for cell in [conv(cache), prog(cache)].map(|c| Cell { controller, ..c }) {
            let why = "the speed of the paper's controller is not in its text";
            let rate = all.rate(cell);
            rows.push(Row::shown(SLOWER, &cell.name(), "ops/s", Reference::Silent, rate, why));
        }
        rows.push(Row::shown(
            SLOWER,
            &format!("Prog / Conv, durable, {} us a command", controller / 1000),
            "x",
            Reference::Silent,
            all.ratio(Cell { controller, ..conv(cache) }),
            "both drives get the slower controller",
        ));
    }
    rows
}

/// What the drives give, however slow the host is: one run each.
fn alone(lab: &mut Lab, caches: &[u32]) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for &cache in caches {
        let mut rates = [0.0; 2];
        for (rate, cell) in rates.iter_mut().zip([conv(cache), prog(cache)]) {
            let cell = Cell { real: false, ..cell };
            let setup = cell.setup(lab.options)?;
            lab.watch.phase("virtual time");
            let measured = measure(&setup, &mut lab.watch.helper())?;
            if measured.interrupted {
                return Err(stopped());
            }
            *rate = measured.rate();
            let what = format!("{}, virtual time", cell.name());
            let command = cell.command(&setup, lab.options.seed);
            lab.note_step(&what, command, ycsb::configuration(&setup));
            let why = "no figure of the paper: its host was the limit";
            let runs = Runs::one(*rate);
            rows.push(Row::shown(ALONE, &cell.name(), "ops/s", Reference::Silent, runs, why));
        }
        rows.push(Row::shown(
            ALONE,
            &format!("Prog / Conv, durable, cache {cache} %"),
            "x",
            Reference::Silent,
            Runs::one(rates[1] / rates[0]),
            "no figure of the paper: what collection takes of the drive",
        ));
    }
    Ok(rows)
}

fn notes(setup: &Setup) -> Vec<String> {
    vec![
        format!(
            "{} records, {} operations a run; the paper has 5 million and 10 million \
             (--records 5M)",
            setup.records, setup.ops
        ),
        format!("flash: {}, for both", setup.drive.name),
        "an update writes the whole record of 1000 bytes; the cache is a part of the tree's pages, \
         and of Conv's the map of its log is taken off"
            .into(),
        "Conv, not durable: collection and checkpoints of the log are off, those of its drive are \
         not; Prog, not durable: no checkpoints by time, and a drive with room for all"
            .into(),
        "host and controller poll, each on a processor; a turn counts when both had theirs for \
         90 % of its time"
            .into(),
    ]
}

/// Pages of MAP that are written to before recovery is measured.
const MAP_PAGES: u64 = 4096;
/// Pages of a batch.
const BATCH: usize = 256;

/// How long recovery takes, against the log since the last checkpoint.
fn recovery(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let times: &[u64] = lab.options.pick(&[1_000, 3_000, 10_000], &[50, 150]);
    let mut rows = Vec::new();
    for &ms in times {
        lab.watch.phase("recovery");
        let found = recover(ms * 1_000_000, lab.options.seed)?;
        let (rows_read, pages) = (found.rows, found.map_pages);
        let seconds = ms as f64 / 1000.0;
        let what = format!("{seconds} s of log: {rows_read} rows, {pages} pages of MAP");
        let runs = Runs::one(found.time as f64 / 1e6);
        let why = "the paper gives none: it says that frequent checkpoints bound it";
        rows.push(Row::shown(RECOVERY, &what, "ms", Reference::Silent, runs, why));
    }
    lab.note_step(
        "recovery",
        "batches of 256 pages at random without a checkpoint, a cut, Batch::open".into(),
        serde_json::json!({ "map_pages": MAP_PAGES, "profile": "tlc" }),
    );
    Ok(rows)
}

/// Writes for so many ns of drive time after a checkpoint, cuts the power, and
/// recovers. The rows of the log are read one behind the other, as each names
/// the next; then the pages of MAP that they name, at the same time. There are
/// at most [`MAP_PAGES`] of these, so a short log costs more a row than a long
/// one.
fn recover(ns: u64, seed: u64) -> Result<Recovery, Error> {
    let failed = |e: targets::BatchError| Error::Failed(e.to_string());
    let profile = Profile::builtin("tlc").expect("it is built in");
    let dim = Dimensions {
        groups: 16,
        pus: 4,
        chunks: 300,
        pages: 256,
        planes: 2,
        page_bytes: 16384,
        pages_at_once: 1,
    };
    let geometry = Geometry::new(dim).map_err(|e| Error::Failed(e.to_string()))?;
    let device =
        Device::new(&geometry, &profile.timing, Backing::from(RamMedium::new(&geometry, 8)?))?;
    let config = BatchConfig {
        pages: 1 << 25,
        log_rows: 1 << 14,
        checkpoint_every: 0,
        ..BatchConfig::for_geometry(&geometry, 0.1)
    };
    let drive = batched::over(Box::new(device), config).map_err(failed)?;
    let now = drive.now();
    let mut load = Load { drive, now, done: Ring::new(64), queue: Ring::new(64) };
    let stride = config.pages / MAP_PAGES;
    let mut page = 0;
    load.write(|_| {
        page += 1;
        (page <= MAP_PAGES).then(|| (page - 1) * stride)
    })?;
    load.drive.request_checkpoint();
    while load.drive.is_checkpointing() {
        load.drive.submit(load.now, &mut load.queue);
        load.step();
    }
    let (end, mut rng) = (load.now + ns, Rng::new(seed, 6));
    load.write(|now| (now < end).then(|| rng.below(MAP_PAGES) * stride + rng.below(512)))?;
    let device = load.drive.into_lower().into_device();
    let chunks = device.chunks().to_vec();
    let device = Device::restore(&geometry, &profile.timing, device.cut(), &chunks)?;
    let drive = batched::over(Box::new(device), config).map_err(failed)?;
    Ok(drive.recovery().clone())
}

/// Batches on a drive in virtual time.
struct Load {
    drive: BoxedBatch,
    now: Time,
    done: Ring<BatchDone>,
    queue: Ring<BatchReq>,
}

impl Load {
    /// Lets the next thing happen. Gives how many batches ended.
    fn step(&mut self) -> usize {
        if let Some(at) = self.drive.next_event() {
            self.now = self.now.max(at);
            self.drive.advance(self.now, &mut self.done);
        }
        std::iter::from_fn(|| self.done.pop()).count()
    }

    /// Writes batches, eight at once, until `next` has no more pages.
    fn write(&mut self, mut next: impl FnMut(Time) -> Option<u64>) -> Result<(), Error> {
        let (mut more, mut inside) = (true, 0);
        while more || inside > 0 {
            while more && inside < 8 {
                let now = self.now;
                let lpids: Vec<u64> = std::iter::from_fn(|| next(now)).take(BATCH).collect();
                more = lpids.len() == BATCH;
                if lpids.is_empty() {
                    break;
                }
                let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize + 8 * lpids.len())?;
                Desc::write(&lpids, &[], buffer.bytes_mut());
                let req = BatchReq { id: 0, op: BatchOp::WriteBatch, lpid: 0, buffer };
                let pushed = self.queue.push(req);
                assert!(pushed.is_ok(), "eight fit");
                inside += 1;
            }
            self.drive.submit(self.now, &mut self.queue);
            inside -= self.step();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_log_takes_longer_to_recover() {
        let (few, many) = (recover(20_000_000, 1).unwrap(), recover(60_000_000, 1).unwrap());
        assert!(few.rows > 0 && few.entries > 0, "{few:?}");
        assert!(many.rows > few.rows && many.time > few.time, "{few:?} {many:?}");
    }

    #[test]
    fn cells_have_names_of_their_own() {
        let cells = [conv(10), prog(10), not_durable(prog(10)), prog(20)];
        let names: std::collections::HashSet<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(names.len(), cells.len());
    }
}
