//! What makes requests slow is named: one cause is planted in a drive that is fast
//! otherwise, so that only it can make a request as slow as that, and then the story
//! of each slow request must say so: the part that grew most over those of a lone
//! request is the planted one. Without it no request is slow.

use std::collections::BTreeMap;

use port::{BlockOp, Part, Story, Whose, random};

use super::Host;

/// A drive of which everything is fast.
const FAST: &str = "side=device,read=20us,program=100us,erase=100us";
const SMALL: &str = "size=8M,groups=2,pus=4,pages=32";
const BLOCK: u64 = 4096;
const MS: u64 = 1_000_000;

type Name = (&'static str, Option<&'static str>);
type Work = fn(&mut Host, &mut random::Random);

/// The name of a drive with these keys, the later ones in place of earlier ones.
fn name(keys: &[&str]) -> String {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for (key, value) in
        keys.iter().flat_map(|keys| keys.split(',')).filter_map(|it| it.split_once('='))
    {
        all.retain(|(other, _)| *other != key);
        all.push((key, value));
    }
    all.iter().fold("mem:ref".into(), |name, (key, value)| format!("{name},{key}={value}"))
}

/// A cause, and how it is seen.
struct Planted {
    /// The keys with which both drives are made.
    common: &'static str,
    /// Those that plant it.
    keys: &'static str,
    work: Work,
    /// Which requests, and what none of them takes without it.
    op: BlockOp,
    over: u64,
    named: Name,
    /// What follows from it, and may be told instead of one in ten.
    or: Option<Name>,
}

impl Planted {
    /// What became of all requests of the kind.
    fn stories(&self, keys: &str) -> Vec<Story> {
        let mut host = Host::new(&name(&[FAST, self.common, keys]));
        host.fill();
        host.end();
        while let Some(next) = host.drive.next_event() {
            host.run(next);
        }
        let filled = host.told.len();
        (self.work)(&mut host, &mut random::Random::new(3, 1));
        host.end();
        let of_kind = host.told[filled..].iter().filter(|(op, _)| *op == self.op);
        of_kind.map(|(_, story)| *story).collect()
    }

    /// What is wrong with how it is named, if anything is.
    fn wrong(&self) -> Option<String> {
        let Planted { keys, named, or, .. } = *self;
        let is_slow = |story: &&Story| story.ns() > self.over;
        let without = self.stories("");
        let lone = without.iter().min_by_key(|story| story.ns()).expect("there are some");
        let with = self.stories(keys);
        let slow: Vec<&Story> = with.iter().filter(is_slow).collect();
        let mut others: BTreeMap<Name, usize> = BTreeMap::new();
        for name in slow.iter().map(|story| grew_most(story, lone)).filter(|it| *it != named) {
            *others.entry(name).or_default() += 1;
        }
        let without = without.iter().filter(is_slow).count();
        let follows = or.and_then(|or| others.remove(&or)).unwrap_or(0);
        let wrong = others.values().sum::<usize>();
        let is_named = wrong * 100 < slow.len() && follows * 10 < slow.len();
        let is_right = without == 0 && slow.len() >= 100 && is_named;
        (!is_right).then(|| {
            format!(
                "{keys}: {} of {} slow, {without} without it, {follows} by what follows; named {others:?}",
                slow.len(),
                with.len()
            )
        })
    }
}

/// Each of them is named.
fn check(all: impl IntoIterator<Item = Planted>) {
    let wrong: Vec<String> = all.into_iter().filter_map(|one| one.wrong()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The part of a story that is most above that of a lone request.
fn grew_most(story: &Story, lone: &Story) -> Name {
    let of = |story: &Story, name: Name| {
        story.parts().find(|part| (part.0, part.1) == name).map_or(0, |part| part.2)
    };
    let grown = story.parts().map(|(part, behind, ns)| {
        let name = (part, behind);
        (ns.saturating_sub(of(lone, name)), name)
    });
    grown.max_by_key(|(ns, _)| *ns).expect("it took time").1
}

fn pick(host: &Host, random: &mut random::Random) -> u64 {
    random.bits() % (host.drive.shape().bytes / BLOCK) * BLOCK
}

/// Requests one by one, `gap` apart in the mean and half of that at least, so many in
/// eight of them writes.
fn singly(host: &mut Host, random: &mut random::Random, count: u64, gap: u64, writes: u64) {
    for _ in 0..count {
        host.run(host.now + gap / 2 + random.bits() % gap);
        let op = if random.bits() % 8 < writes { BlockOp::Write } else { BlockOp::Read };
        let at = pick(host, random);
        host.ask(op, false, at, BLOCK);
    }
}

/// A hundred bursts of so many blocks at once, at random.
fn bursts(host: &mut Host, random: &mut random::Random, op: BlockOp, each: u64, gap: u64) {
    for _ in 0..100 {
        host.run(host.now + gap / 8 + random.bits() % gap);
        for _ in 0..each {
            let at = pick(host, random);
            host.ask(op, false, at, BLOCK);
        }
    }
}

/// One read of each die at once, of which all but the first of a channel wait for it.
fn one_each(host: &mut Host, random: &mut random::Random) {
    for _ in 0..100 {
        host.run(host.now + 300 * MS);
        let first = pick(host, random);
        for n in 0..8 {
            let at = (first + n * 2 * BLOCK) % host.drive.shape().bytes;
            host.ask(BlockOp::Read, false, at, BLOCK);
        }
    }
}

fn often(host: &mut Host, random: &mut random::Random) {
    singly(host, random, 12_000, MS / 2, 4);
}

fn seldom(host: &mut Host, random: &mut random::Random) {
    singly(host, random, 3000, 4 * MS, 2);
}

fn lone_reads(host: &mut Host, random: &mut random::Random) {
    singly(host, random, 2000, 40 * MS, 0);
}

fn write_bursts(host: &mut Host, random: &mut random::Random) {
    bursts(host, random, BlockOp::Write, 256, 600 * MS);
}

#[test]
fn what_has_the_die_is_named() {
    let roomy = "size=8M,groups=2,pus=4,pages=32,spare=0.8";
    let cached =
        "size=8M,groups=2,pus=4,pages=32,spare=0.8,slc_cache=1M,slc_program=100us,slc_read=20us";
    let worn =
        "size=8M,groups=2,pus=4,pages=32,errors=true,rber_base=5e-3,correctable=20,read_retries=8";
    let reads = |host: &mut Host, random: &mut random::Random| {
        bursts(host, random, BlockOp::Read, 64, 600 * MS);
    };
    let of = |common, keys, work: Work, behind| {
        let named = ("die", Some(behind));
        Planted { common, keys, work, op: BlockOp::Read, over: 3 * MS, named, or: None }
    };
    check([
        of(SMALL, "erase=20ms", often, "erase of collection"),
        of(roomy, "program=20ms", seldom, "program of user"),
        of(cached, "program=20ms", seldom, "program of folds"),
        of(worn, "program=20ms", lone_reads, "program of refresh"),
        // Reads that come at once, and read slowly.
        of(SMALL, "read=1ms", reads, "read of user"),
    ]);
}

#[test]
fn what_is_on_the_way_is_named() {
    let warm = "energy=true,idle_power=500mW,thermal_resistance=900K/W,thermal_time=5ms,\
                throttle_from=200C,throttle_until=150C,throttle_rate=120kB/s";
    let of = |keys, part| {
        let (common, named, over) = (SMALL, (part, None), 3 * MS);
        Planted { common, keys, work: lone_reads, op: BlockOp::Read, over, named, or: None }
    };
    let (work, over): (Work, u64) = (one_each, 5 * MS / 2);
    check([
        of("link_rate=1MB/s", "link"),
        of("controller=5ms", "controller"),
        of("cores=1,core_read=5ms", "core"),
        of("buffer_rate=1MB/s", "buffer"),
        of("sleep_after=1ms,wake_time=20ms", "waking"),
        of(warm, "throttled"),
        Planted { work, over, ..of("channel_rate=4MB/s", "channel") },
    ]);
}

#[test]
fn what_is_read_more_is_named() {
    let errors = "errors=true,rber_base=5e-3,correctable=20,read_retries=8";
    let worn = "size=8M,groups=2,pus=4,pages=32,read=1ms";
    let of = |common, keys, part| {
        let (op, over, named) = (BlockOp::Read, 3 * MS / 2, (part, None));
        Planted { common, keys, work: lone_reads, op, over, named, or: None }
    };
    check([
        of("size=64M,groups=2,pus=4,pages=64,read=1ms", "map_cache=16k", "map"),
        // Such data are written anew, which takes as many repetitions.
        Planted { or: Some(("die", Some("read of refresh"))), ..of(worn, errors, "retries") },
    ]);
}

#[test]
fn why_there_is_no_room_is_named() {
    let roomy = "size=8M,groups=2,pus=4,pages=32,spare=0.8";
    let cached =
        "size=8M,groups=2,pus=4,pages=32,spare=0.8,slc_cache=8M,slc_program=100us,slc_idle=1ms";
    let of = |common, keys, work, behind| {
        let (op, over, named) = (BlockOp::Write, 10 * MS, ("room", Some(behind)));
        Planted { common, keys, work, op, over, named, or: None }
    };
    // So few that all find room in the cache, and so often that some find it folding.
    let small = |host: &mut Host, random: &mut random::Random| {
        bursts(host, random, BlockOp::Write, 96, 200 * MS);
    };
    check([
        of(SMALL, "erase=40ms", write_bursts, "collection"),
        of(roomy, "program=10ms", write_bursts, "rows on their way"),
        // A row that finds the cache full goes past it, and is slow by itself.
        Planted {
            over: 3 * MS,
            or: Some(("room", Some("rows on their way"))),
            ..of(cached, "program=20ms", small, "folds")
        },
    ]);
}

/// What a read of the map waited for its die is told as that, and not as the map's.
#[test]
fn a_page_of_the_map_waits_for_its_die_as_any_read() {
    let keys = "size=64M,groups=2,pus=4,pages=64,map_cache=16k,program=20ms,slc_cache=64M,\
                slc_program=100us,slc_idle=1ms";
    let mut host = Host::new(&name(&[FAST, keys]));
    host.fill();
    host.end();
    let (filled, mut random) = (host.told.len(), random::Random::new(1, 1));
    // All the while the drive folds.
    singly(&mut host, &mut random, 1000, 4 * MS, 0);
    host.end();
    let missed = host.told[filled..].iter().map(|it| it.1).filter(|it| it.ns_of(Part::Map) > 0);
    let missed: Vec<Story> = missed.collect();
    // The read of a page takes 20 us and its way, however long its die had no time. Some
    // wait before it is sent, until pages that changed have been written.
    let long = missed.iter().filter(|story| story.ns_of(Part::Map) > MS).count();
    let waited = missed.iter().filter(|story| story.waited_behind(Whose::Drive) > MS).count();
    assert!(
        missed.len() > 500 && waited * 2 > missed.len() && long * 10 < missed.len(),
        "{long} {waited} {}",
        missed.len()
    );
}
