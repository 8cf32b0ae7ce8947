//! Section 3's atomic writes: pages that are written all or none, by a drive that takes them
//! as one batch, and by a journal on one that does not.
//!
//! The journal is a database's: the pages and a record go to a log, durably, and then the
//! pages to their places. Both drives have the same flash, controller and link.

use port::{BLOCK_BYTES, BatchDone, BatchOp, BatchReq, BlockDone, BlockOp, BlockReq, Buffer, Desc};
use port::{Port, Ring, Status, Time};
use workload::Rng;

use super::super::lab::config;
use super::super::{Findings, Lab, Reference, Row, Runs};
use drive::batched;
use drive::error::Error;
use drive::stack::{self, new_device};
use drive::whole::Boxed;
use flash::RamMedium;

pub const POINT: &str = "section 3: atomic writes";
pub const SAYS: &str = "\"SSD constructors are now proposing to expose new commands, e.g., atomic \
                    writes\"; \"log-structured files [are] today handled both at the database \
                    level and within the FTL\"";
const SLOWER: &str = "the paper claims no latency; alone, a batch programs its pages and then its \
                      log, one after the other, while the journal waits for one program";
/// The drive, with either target.
const DRIVE: &str = "mem:ref,erase=3ms,controller=4us,link_latency=500ns,link_rate=3.2GB/s,\
                     groups=2,chunks=32";
/// Blocks of a row of its flash.
const ROW: u64 = 2;
/// Pages of a transaction, and bytes of the journal.
pub const PAGES: u64 = 8;
const JOURNAL: u64 = 16 << 20;

/// What transactions take.
struct Cost {
    /// Microseconds until one is durable.
    us: f64,
    /// Blocks programmed for each page.
    blocks: f64,
}

/// The rows of this point.
pub fn findings(lab: &mut Lab) -> Result<Findings, Error> {
    let count = lab.options.pick(2_000, 200);
    let batch = batches(lab, count)?;
    let journal = journaled(lab, count)?;
    let shown = |what, cost: &Cost| {
        Row::shown(POINT, what, "us", Reference::Silent, Runs::one(cost.us), SLOWER)
    };
    // Of `first` blocks whole rows are programmed at once, and then `more`.
    let band = |what, first: u64, cost: &Cost, more: u64| {
        let model = (first.next_multiple_of(ROW) + more) as f64 / PAGES as f64;
        let ours = Runs::one(cost.blocks);
        Row::band(POINT, what, "blocks/page", Reference::Model(model), ours, 0.95..=1.05)
    };
    let blocks = [("journal", journal.blocks), ("atomic write", batch.blocks)];
    let mut rows = vec![
        Row::order(
            POINT,
            "blocks/page",
            SAYS,
            blocks.map(|(name, blocks)| (name, Runs::one(blocks))),
        ),
        band("journal, by hand: the log's rows, and the pages", PAGES + 1, &journal, PAGES),
        band("atomic write, by hand: the pages, and a row of log", PAGES, &batch, ROW),
        shown("a lone transaction, atomic write", &batch),
        shown("a lone transaction, journal", &journal),
    ];
    rows.extend(super::torn::rows(lab)?);
    Ok(Findings::new(rows, vec![]))
}

/// Different pages of a transaction.
fn pages(rng: &mut Rng, of: u64) -> Vec<u64> {
    let mut pages = Vec::new();
    while pages.len() < PAGES as usize {
        let page = rng.below(of);
        if !pages.contains(&page) {
            pages.push(page);
        }
    }
    pages
}

/// Transactions as batches, one at a time.
fn batches(lab: &mut Lab, count: u64) -> Result<Cost, Error> {
    let name = format!("{DRIVE},target=batch");
    let config = config(&name)?;
    let medium = RamMedium::new(&config.geometry, BLOCK_BYTES as u32)?;
    let device = new_device(&config, lab.options.seed, medium.into())?;
    let mut drive = batched::start(&config, device)?;
    let (mut queue, mut done) = (Ring::<BatchReq>::new(1), Ring::<BatchDone>::new(1));
    let (mut rng, mut now) = (Rng::new(lab.options.seed, 2), drive.now());
    let (began, before) = (now, drive.lower().device().counters().blocks_programmed);
    for id in 0..count {
        let lpids = pages(&mut rng, drive.shape().pages / 2);
        let mut buffer = Buffer::zeroed(drive.shape().batch_bytes(lpids.len()))?;
        Desc::write(&lpids, &[], buffer.bytes_mut());
        queue.put(|| BatchReq { id, op: BatchOp::WriteBatch, lpid: 0, buffer });
        now = one(&mut drive, now, &mut queue, &mut done)?;
        ended_well(done.pop().map(|done| done.status))?;
    }
    let programmed = drive.lower().device().counters().blocks_programmed - before;
    let command = format!("{count} batches of {PAGES} random pages to {name}, one at a time");
    lab.note_step("atomic writes", command, config.effective());
    Ok(cost(now, began, programmed, count))
}

/// Transactions by a journal, one at a time.
fn journaled(lab: &mut Lab, count: u64) -> Result<Cost, Error> {
    let name = format!("{DRIVE},side=device,store=none");
    let config = config(&name)?;
    let mut drive = stack::build(&config, lab.options.seed)?;
    let shape = drive.shape();
    let places = (shape.bytes - JOURNAL) / BLOCK_BYTES;
    let entry = (PAGES + 1) * BLOCK_BYTES;
    let (mut rng, mut now) = (Rng::new(lab.options.seed, 2), Time::ZERO);
    for id in 0..count {
        let log = Write { offset: id % (JOURNAL / entry) * entry, len: entry, fua: true };
        now = log.run(&mut drive, now)?;
        for page in pages(&mut rng, places) {
            let offset = JOURNAL + page * BLOCK_BYTES;
            now = Write { offset, len: BLOCK_BYTES, fua: false }.run(&mut drive, now)?;
        }
    }
    let ended = now;
    // What is in the buffer counts, too.
    Write { offset: 0, len: BLOCK_BYTES, fua: true }.run(&mut drive, now)?;
    let programmed = drive.lower(0).device().counters().blocks_programmed;
    let command = format!(
        "{count} times {PAGES} random pages on {name}, one at a time: all with a record to a log, \
         with FUA, and then each to its place"
    );
    lab.note_step("a journal", command, config.effective());
    Ok(cost(ended, Time::ZERO, programmed, count))
}

/// A write to a block drive.
struct Write {
    offset: u64,
    len: u64,
    fua: bool,
}

impl Write {
    /// Does it alone. Gives when it ended.
    fn run(self, drive: &mut Boxed, now: Time) -> Result<Time, Error> {
        let Write { offset, len, fua } = self;
        let (mut queue, mut done) = (Ring::<BlockReq>::new(1), Ring::<BlockDone>::new(1));
        let buffer = Buffer::zeroed(drive.shape().stored(len))?;
        let op = BlockOp::Write;
        queue.put(|| BlockReq { fua, ..BlockReq::new(0, op, offset, len, buffer) });
        let now = one(drive, now, &mut queue, &mut done)?;
        ended_well(done.pop().map(|done| done.status))?;
        Ok(now)
    }
}

/// Whether a request did what it was asked.
pub fn ended_well(status: Option<Status>) -> Result<(), Error> {
    match status {
        Some(status) if status.is_ok() => Ok(()),
        _ => Err(Error::Failed(format!("a write failed: {status:?}"))),
    }
}

/// Lets one request end. Gives when.
pub fn one<P: Port + ?Sized>(
    drive: &mut P,
    mut now: Time,
    queue: &mut Ring<P::Cmd>,
    done: &mut Ring<P::Done>,
) -> Result<Time, Error> {
    drive.submit(now, queue);
    while done.is_empty() {
        let Some(at) = drive.next_event() else {
            return Err(Error::Failed("a drive stopped with a request inside".into()));
        };
        now = now.max(at);
        drive.advance(now, done);
        drive.submit(now, queue);
    }
    Ok(now)
}

fn cost(now: Time, began: Time, programmed: u64, count: u64) -> Cost {
    Cost {
        us: now.since(began) as f64 / 1e3 / count as f64,
        blocks: programmed as f64 / (count * PAGES) as f64,
    }
}
