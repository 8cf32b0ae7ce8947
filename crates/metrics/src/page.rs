//! The page of metrics of a drive, as it is when somebody asks.
//!
//! The drive is held for microseconds at a time: for what it tells at once, and then
//! for its chunks, [`SLICE`] at a time and [`MOST_SLICES`] times a page, so that a large
//! drive's are counted over several pages. However many ask, it is looked at once in
//! [`FRESH`]; who comes sooner gets the same page, or the same failure. No counter falls.
//!
//! Fails where the drive is gone, or does not answer in time.

use std::time::{Duration, Instant};

use device::ChunkCount;
use drive::live::{Glimpse, OPS, Place, RANGES, Work, end_of};

use drive::told::Explained;

use crate::explained;
use crate::text::{Text, Value, seconds};

/// For so long a page is new.
const FRESH: Duration = Duration::from_millis(100);
/// Places for chunks that are looked at while the drive is held: some microseconds.
pub const SLICE: usize = 512;
/// How often that is done for a page.
const MOST_SLICES: usize = 256;

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// The drive is there no more.
    Gone,
    /// It does not answer in time.
    Late,
}

/// A way to a drive that others use meanwhile.
pub trait Reach {
    /// How it is now. A page begins with this: the time that a drive may take for all of
    /// it begins, too.
    fn glimpse(&mut self) -> Result<Glimpse, NoPage>;

    /// What there is to explain now, where the drive tells. It has as long as for a page.
    fn explained(&mut self) -> Result<Option<Explained>, NoPage>;

    /// Counts the chunks of [`SLICE`] places from `from` on, beside those of `count`.
    fn chunks(
        &mut self,
        from: Place,
        count: ChunkCount,
    ) -> Result<(ChunkCount, Option<Place>), NoPage>;

    /// Clients that are connected, where that is counted.
    fn connections(&mut self) -> Option<u64>;
}

impl<R: Reach + ?Sized> Reach for Box<R> {
    fn glimpse(&mut self) -> Result<Glimpse, NoPage> {
        (**self).glimpse()
    }

    fn explained(&mut self) -> Result<Option<Explained>, NoPage> {
        (**self).explained()
    }

    fn chunks(
        &mut self,
        from: Place,
        count: ChunkCount,
    ) -> Result<(ChunkCount, Option<Place>), NoPage> {
        (**self).chunks(from, count)
    }

    fn connections(&mut self) -> Option<u64> {
        (**self).connections()
    }
}

/// What does not change.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The drive's name.
    pub drive: String,
    /// What it is served to: `nbd`, `redis`.
    pub front: &'static str,
    /// Its logical capacity, in bytes.
    pub bytes: u64,
}

/// The page of a drive.
pub struct Page<R> {
    reach: R,
    facts: Facts,
    /// Chunks that are being counted, and where to go on.
    counting: (ChunkCount, Place),
    /// The last count of all of them.
    chunks: Option<ChunkCount>,
    /// The most that collection was seen to have written: of a drive with batched writes
    /// that is what a sum leaves, which falls for a moment, and no counter may.
    collected: u64,
    /// The most that each die was seen to have worked: an operation counts whole when it
    /// starts, and what is left of it is taken away when it is suspended.
    worked: Vec<u64>,
    last: Last,
    /// The last of what there is to explain.
    explained: Last,
}

impl<R: Reach> Page<R> {
    /// The page of a drive that is reached so.
    pub fn new(reach: R, facts: Facts) -> Page<R> {
        let counting = (ChunkCount::new(), (0, 0));
        let (chunks, collected, worked, last, explained) = (None, 0, Vec::new(), None, None);
        Page { reach, facts, counting, chunks, collected, worked, last, explained }
    }

    /// The page as it is now, or was a moment ago.
    pub fn text(&mut self) -> Result<&str, NoPage> {
        if !is_fresh(&self.last) {
            let text = self.write(Instant::now());
            self.last = Some((Instant::now(), text));
        }
        told(&self.last)
    }

    /// What there is to explain, as [`text`](Page::text): JSON for
    /// [`Look`](crate::Look).
    pub fn explained(&mut self) -> Result<&str, NoPage> {
        if !is_fresh(&self.explained) {
            let facts = &self.facts;
            let text = self.reach.explained().map(|all| explained::write(&facts.drive, all));
            self.explained = Some((Instant::now(), text));
        }
        told(&self.explained)
    }

    /// Counts chunks on, until all are counted, it is enough, or the drive's time is over:
    /// then the page has the count before.
    fn count(&mut self) -> Result<(), NoPage> {
        for _ in 0..MOST_SLICES {
            let (count, from) = self.counting;
            match self.reach.chunks(from, count) {
                Err(NoPage::Late) => return Ok(()),
                Err(NoPage::Gone) => return Err(NoPage::Gone),
                Ok((count, Some(next))) => self.counting = (count, next),
                Ok((count, None)) => {
                    self.chunks = Some(count);
                    self.counting = (ChunkCount::new(), (0, 0));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, start: Instant) -> Result<String, NoPage> {
        let mut seen = self.reach.glimpse()?;
        self.collected = self.collected.max(seen.written.gc);
        seen.written.gc = self.collected;
        self.worked.resize(seen.worked.len(), 0);
        for (most, now) in self.worked.iter_mut().zip(&mut seen.worked) {
            *most = (*most).max(*now);
            *now = *most;
        }
        self.count()?;
        let mut text = Text::default();
        self.write_drive(&seen, &mut text);
        write_requests(&seen, &mut text);
        write_target(&seen, self.chunks.as_ref(), &mut text);
        write_flash(&seen, &mut text);
        write_power(&seen, &mut text);
        text.one("ssdkit_scrape_seconds", seconds(start.elapsed().as_nanos()));
        Ok(text.into_string())
    }

    fn write_drive(&mut self, seen: &Glimpse, text: &mut Text) {
        let Facts { drive, front, bytes } = &self.facts;
        let labels =
            [("drive", &**drive), ("front", front), ("version", env!("CARGO_PKG_VERSION"))];
        text.metric("ssdkit_drive_info").add(&labels, 1u64);
        text.one("ssdkit_drive_bytes", *bytes);
        text.one("ssdkit_uptime_seconds", seconds(seen.at.into()));
        if let Some(connections) = self.reach.connections() {
            text.one("ssdkit_connections", connections);
        }
        let mut read_only = text.metric("ssdkit_read_only");
        match &seen.read_only {
            Some(reason) => read_only.add(&[("reason", reason)], 1u64),
            None => read_only.add(&[("reason", "")], 0u64),
        }
    }
}

/// A text, or why there is none, and when that was.
type Last = Option<(Instant, Result<String, NoPage>)>;

fn is_fresh(last: &Last) -> bool {
    last.as_ref().is_some_and(|last| last.0.elapsed() < FRESH)
}

fn told(last: &Last) -> Result<&str, NoPage> {
    match last {
        Some((_, Ok(text))) => Ok(text),
        Some((_, Err(why))) => Err(*why),
        None => Err(NoPage::Late),
    }
}

/// Each operation, by name, and what was done of it.
fn works(seen: &Glimpse) -> impl Iterator<Item = (&'static str, &Work)> {
    OPS.iter().map(|op| op.1).zip(&seen.live.works)
}

fn write_requests(seen: &Glimpse, text: &mut Text) {
    text.one("ssdkit_tells_stories", u64::from(seen.live.tells));
    if let Some(inside) = seen.inside {
        text.one("ssdkit_requests_inside", inside);
    }
    let mut all = text.metric("ssdkit_requests_total");
    works(seen).for_each(|(op, work)| all.add(&[("op", op)], work.requests));
    let mut all = text.metric("ssdkit_request_failures_total");
    works(seen).for_each(|(op, work)| all.add(&[("op", op)], work.failures));
    let mut all = text.metric("ssdkit_request_bytes_total");
    let with_bytes = works(seen).filter(|(op, _)| ["read", "write"].contains(op));
    with_bytes.for_each(|(op, work)| all.add(&[("op", op)], work.bytes));
    if !seen.live.tells {
        return;
    }
    let mut all = text.metric("ssdkit_request_seconds");
    for (op, work) in works(seen) {
        let mut sum = 0;
        for (range, count) in work.took[..RANGES].iter().enumerate() {
            sum += count;
            let end = (end_of(range) as f64 / 1e9).to_string();
            all.add_to("_bucket", &[("op", op), ("le", &end)], sum);
        }
        let count = sum + work.took[RANGES];
        all.add_to("_bucket", &[("op", op), ("le", "+Inf")], count);
        all.add_to("_sum", &[("op", op)], seconds(work.causes.ns()));
        all.add_to("_count", &[("op", op)], count);
    }
    let mut all = text.metric("ssdkit_time_seconds_total");
    for (op, work) in works(seen) {
        for (cause, behind, ns) in work.causes.parts() {
            let behind = behind.unwrap_or("");
            all.add(&[("op", op), ("cause", cause), ("behind", behind)], seconds(ns));
        }
    }
}

fn write_target(seen: &Glimpse, chunks: Option<&ChunkCount>, text: &mut Text) {
    let w = &seen.written;
    let mut all = text.metric("ssdkit_blocks_written_total");
    for (why, blocks) in
        [("user", w.user), ("collection", w.gc), ("padding", w.padding), ("metadata", w.metadata)]
    {
        all.add(&[("why", why)], blocks);
    }
    for (why, blocks) in ["parity", "folds"].iter().zip(seen.beside) {
        blocks.into_iter().for_each(|blocks| all.add(&[("why", why)], blocks));
    }
    for (name, count) in [
        ("ssdkit_blocks_absorbed_total", Some(w.absorbed)),
        ("ssdkit_blocks_lost_total", Some(w.lost)),
        ("ssdkit_collections_total", Some(w.collections)),
        ("ssdkit_blocks_moved_total", seen.moved),
        ("ssdkit_erases_total", Some(w.erases)),
        ("ssdkit_chunks_retired_total", Some(w.retired)),
        ("ssdkit_chunks_refreshed_total", Some(w.refreshed)),
        ("ssdkit_chunks_leveled_total", Some(w.leveled)),
        ("ssdkit_free_chunks", seen.free_chunks),
    ] {
        if let Some(count) = count {
            text.one(name, count);
        }
    }
    let Some(chunks) = chunks else { return };
    let mut all = text.metric("ssdkit_chunks");
    for (state, count) in ["free", "open", "closed", "offline"].iter().zip(chunks.states) {
        all.add(&[("state", state)], count);
    }
    if chunks.worn > 0 {
        let mut all = text.metric("ssdkit_chunk_erases");
        all.add(&[("of", "least")], u64::from(chunks.least));
        all.add(&[("of", "mean")], chunks.erases as f64 / chunks.worn as f64);
        all.add(&[("of", "most")], u64::from(chunks.most));
    }
}

/// Samples of a metric that has one label.
fn write_each(text: &mut Text, name: &'static str, label: &str, all: &[(&str, u64)]) {
    let mut samples = text.metric(name);
    all.iter().for_each(|&(value, count)| samples.add(&[(label, value)], count));
}

fn write_flash(seen: &Glimpse, text: &mut Text) {
    if !seen.worked.is_empty() {
        let mut all = text.metric("ssdkit_die_busy_seconds_total");
        for (die, &ns) in seen.worked.iter().enumerate() {
            all.add(&[("die", &die.to_string())], seconds(ns.into()));
        }
    }
    let (f, e) = (&seen.flash, &seen.errors);
    let done = [("read", f.reads), ("program", f.programs), ("erase", f.erases)];
    let done = [&done[..], &[("suspend", f.suspends)]].concat();
    write_each(text, "ssdkit_flash_operations_total", "op", &done);
    let errors = [
        ("corrected_reads", e.corrected_reads),
        ("retried_reads", e.retried_reads),
        ("retries", e.retries),
        ("failed_reads", e.failed_reads),
        ("failed_blocks", e.failed_blocks),
        ("failed_programs", e.failed_programs),
        ("early_closes", e.early_closes),
        ("failed_erases", e.failed_erases),
    ];
    write_each(text, "ssdkit_flash_errors_total", "kind", &errors);
    if let Some(c) = seen.caches.read {
        let results = [("hit", c.hits), ("miss", c.misses)];
        write_each(text, "ssdkit_read_cache_total", "result", &results);
    }
    if let Some(c) = seen.caches.map {
        let results = [("hit", c.hits), ("miss", c.misses)];
        write_each(text, "ssdkit_map_cache_total", "result", &results);
    }
    let slc = &seen.slc;
    if slc.most_rows > 0 {
        write_each(text, "ssdkit_slc_rows", "of", &[("room", slc.rows), ("held", slc.cached)]);
        let to = [("cache", slc.written), ("slow_cells", slc.direct)];
        write_each(text, "ssdkit_slc_programs_total", "to", &to);
        text.one("ssdkit_slc_folded_rows_total", slc.folded);
    }
}

fn write_power(seen: &Glimpse, text: &mut Text) {
    let e = &seen.energy;
    if e.total() > 0 {
        let mut all = text.metric("ssdkit_energy_joules_total");
        for (part, nj) in [
            ("read", e.read),
            ("program", e.program),
            ("erase", e.erase),
            ("channel", e.channel),
            ("idle", e.idle),
        ] {
            all.add(&[("part", part)], seconds(nj.into()));
        }
    }
    let Some(power) = &seen.power else { return };
    if power.highest > 0 {
        text.one("ssdkit_temperature_celsius", Value::Real(power.temperature as f64 / 1e3));
    }
    text.one("ssdkit_throttled_seconds_total", seconds(power.throttled.into()));
    text.one("ssdkit_asleep_seconds_total", seconds(power.asleep().into()));
    text.one("ssdkit_wakes_total", power.exits());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scrape::Scrape;
    use crate::table::METRICS;
    use device::{CacheCounters, PowerHealth};
    use drive::caches::Caches;
    use port::{Part, Story, Time};
    use std::collections::BTreeSet;

    /// A drive that tells something of all there is.
    pub(crate) struct Full {
        pub(crate) seen: Glimpse,
        pub(crate) looks: usize,
    }

    impl Default for Full {
        fn default() -> Full {
            let mut seen = Glimpse { at: 3_000_000_000, ..Glimpse::default() };
            seen.live.tells = true;
            for (n, work) in seen.live.works.iter_mut().enumerate() {
                let mut story = Story::at(Time(0));
                story.add(Part::Array, 50_000);
                story.add(Part::RoomCollection, 1_000 * n as u64);
                (work.requests, work.bytes) = (100, 409_600);
                (0..100).for_each(|_| work.causes.note(&story));
                work.took[drive::live::range_of(story.ns())] = 100;
            }
            (seen.written.user, seen.written.gc, seen.free_chunks) = (100, 150, Some(7));
            (seen.inside, seen.moved) = (Some(0), Some(140));
            seen.worked = vec![1_500_000_000, 300_000_000, 0, 2_900_000_000];
            seen.caches.read =
                Some(CacheCounters { hits: 3, misses: 1, ..CacheCounters::default() });
            seen.caches = Caches { map: Some(Default::default()), ..seen.caches };
            (seen.slc.rows, seen.slc.most_rows, seen.slc.cached) = (50, 100, 20);
            (seen.energy.idle, seen.energy.read) = (6_000_000_000, 1_000_000_000);
            seen.power =
                Some(PowerHealth { temperature: 45_500, highest: 50_000, ..Default::default() });
            seen.read_only = Some("the disk \"full\"\n".into());
            Full { seen, looks: 0 }
        }
    }

    impl Reach for &mut Full {
        fn explained(&mut self) -> Result<Option<Explained>, NoPage> {
            Ok(None)
        }

        fn glimpse(&mut self) -> Result<Glimpse, NoPage> {
            self.looks += 1;
            Ok(self.seen.clone())
        }

        fn chunks(
            &mut self,
            (shard, from): Place,
            mut count: ChunkCount,
        ) -> Result<(ChunkCount, Option<Place>), NoPage> {
            count.states[2] += 10;
            (count.worn, count.erases, count.least, count.most) = (10, 25, 1, 9);
            Ok((count, (from < 2).then_some((shard, from + 1))))
        }

        fn connections(&mut self) -> Option<u64> {
            Some(2)
        }
    }

    pub(crate) fn text(full: &mut Full) -> String {
        let facts = Facts { drive: "mem:tlc,size=1G".into(), front: "nbd", bytes: 1 << 30 };
        Page::new(full, facts).text().unwrap().to_string()
    }

    /// A parser that others wrote reads the page; each metric of the table is in it, and
    /// histograms are sums up to their count.
    #[test]
    fn the_page_is_of_prometheus_format() {
        let page = text(&mut Full::default());
        let lines = page.lines().map(|line| Ok(line.to_owned()));
        let read = prometheus_parse::Scrape::parse(lines).unwrap();
        let names: BTreeSet<_> = read.samples.iter().map(|sample| sample.metric.as_str()).collect();
        for metric in &METRICS {
            assert!(names.contains(metric.name), "{} is served", metric.name);
            assert!(page.contains(&format!("# HELP {} {}\n", metric.name, metric.help)));
        }
        for name in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            assert!(METRICS.iter().any(|m| name == format!("{} {}", m.name, m.kind.name())));
        }
        let histograms = read.samples.iter().filter_map(|sample| match &sample.value {
            prometheus_parse::Value::Histogram(buckets) => Some(buckets),
            _ => None,
        });
        let mut count = 0;
        for buckets in histograms {
            count += 1;
            assert_eq!(buckets.len(), RANGES + 1);
            let is_sorted =
                buckets.is_sorted_by(|a, b| a.less_than < b.less_than && a.count <= b.count);
            assert!(is_sorted && buckets[RANGES].count == 100.0, "{buckets:?}");
        }
        assert_eq!(count, OPS.len());
        let ours = Scrape::read(&page).unwrap();
        assert_eq!(ours.label("ssdkit_read_only", "reason"), Some("the disk \"full\"\n"));
        assert_eq!(ours.value("ssdkit_request_seconds_sum", &[("op", "read")]), Some(0.005));
        let behind = [("op", "write"), ("cause", "room"), ("behind", "collection")];
        assert_eq!(ours.value("ssdkit_time_seconds_total", &behind), Some(0.0001));
        assert_eq!(ours.value("ssdkit_chunks", &[("state", "closed")]), Some(30.0));
        assert_eq!(ours.value("ssdkit_chunk_erases", &[("of", "mean")]), Some(2.5));
    }

    /// What is found by a sum may fall for a moment, as does the work of a die that is
    /// suspended, and the counters do not.
    #[test]
    fn counters_do_not_fall() {
        let mut full = Full::default();
        let facts = Facts { drive: "a".into(), front: "nbd", bytes: 1 };
        let mut page = Page::new(&mut full, facts);
        let mut collected = |gc| {
            page.reach.seen.written.gc = gc;
            let all = Scrape::read(&page.write(Instant::now()).unwrap()).unwrap();
            all.value("ssdkit_blocks_written_total", &[("why", "collection")]).unwrap()
        };
        assert_eq!([150, 140, 160].map(&mut collected), [150.0, 150.0, 160.0]);
        let mut worked = |s: u64| {
            page.reach.seen.worked[1] = s * 1_000_000_000;
            let all = Scrape::read(&page.write(Instant::now()).unwrap()).unwrap();
            all.value("ssdkit_die_busy_seconds_total", &[("die", "1")]).unwrap()
        };
        assert_eq!([3, 2, 4].map(&mut worked), [3.0, 3.0, 4.0]);
    }

    /// A drive that takes long, and does not answer.
    struct Late<'a>(&'a mut usize);

    impl Reach for Late<'_> {
        fn explained(&mut self) -> Result<Option<Explained>, NoPage> {
            Ok(None)
        }

        fn glimpse(&mut self) -> Result<Glimpse, NoPage> {
            *self.0 += 1;
            std::thread::sleep(2 * FRESH);
            Err(NoPage::Late)
        }

        fn chunks(
            &mut self,
            _: Place,
            _: ChunkCount,
        ) -> Result<(ChunkCount, Option<Place>), NoPage> {
            Err(NoPage::Late)
        }

        fn connections(&mut self) -> Option<u64> {
            None
        }
    }

    /// Who asks soon after another that was not answered does not wait as long again: a
    /// failure is as new as a page is, from its end on.
    #[test]
    fn a_drive_that_is_late_is_asked_once() {
        let facts = Facts { drive: "a".into(), front: "redis", bytes: 1 };
        let mut looks = 0;
        let mut page = Page::new(Late(&mut looks), facts);
        assert_eq!(page.text().err(), Some(NoPage::Late));
        // However slow this is, as many times without pause have some that are soon.
        (0..5).for_each(|_| assert_eq!(page.text().err(), Some(NoPage::Late)));
        drop(page);
        assert!(looks < 6, "{looks} looks");
    }

    /// However many ask, the drive is looked at now and then.
    #[test]
    fn a_page_is_given_to_all_who_come_soon() {
        let mut full = Full::default();
        let facts = Facts { drive: "a".into(), front: "nbd", bytes: 1 };
        let start = Instant::now();
        let mut page = Page::new(&mut full, facts);
        for _ in 0..1000 {
            page.text().unwrap();
        }
        drop(page);
        let most = start.elapsed().as_millis() / FRESH.as_millis() + 1;
        assert!(full.looks as u128 <= most, "{} looks", full.looks);
    }
}
