//! How a drive is prepared for a test: purged, filled, written over, brought to its
//! steady state.
//!
//! Guarantees: preparation is in no figure, and in virtual time where the drive is of this
//! process. What goes wrong in it makes the test void, with what was done; what could
//! not be done is a note.

use load::load::{Load, Pace};
use load::runner::Until;
use port::BLOCK_BYTES;
use workload::{Order, Pattern};

use super::{Access, Halt, Session, void};
use crate::search::Search;
use crate::table::Unit;
use drive::error::Error;

/// How much of a drive that was not filled here may be empty.
const EMPTY: f64 = 0.01;
/// Bytes of a request that trims, or that looks whether a drive is full.
const LARGE: u64 = 1 << 20;
/// Bytes of a request that fills a drive.
const FILL: u64 = 128 << 10;
/// Requests outstanding that trim a drive, and that fill it.
const TRIMMING: u32 = 4;
const FILLING: u32 = 32;
/// How often a drive is written over at random, at most, until it collects.
const AGED: u64 = 4;
/// What part of a drive is written before it is looked whether it collects.
const LOOK: u64 = 20;

impl Session<'_, '_> {
    /// Writes the drive over in order, so many times, or trims it, with requests of `bs`
    /// bytes, and what is left at its end with smaller ones. Gives what went wrong.
    fn over(&mut self, bs: u64, times: u64, trims: bool) -> Result<Option<String>, Halt> {
        let (size, shape, seed) = (self.bytes(), self.stand.shape, self.options.seed);
        let rest = size % bs;
        for (offset, length, bs) in [(0, size - rest, bs), (size - rest, rest, BLOCK_BYTES)] {
            if length == 0 {
                continue;
            }
            let (order, trim_percent) = (Order::Sequential, if trims { 100 } else { 0 });
            let pattern =
                Pattern { offset, bs, trim_percent, order, ..Pattern::uniform(length, 0) };
            let most = if trims { TRIMMING } else { FILLING };
            let depth = u64::from(most).min(pattern.blocks()) as u32;
            let mut load = Load::new(&shape, &pattern, Pace::Closed { depth }, 1, seed)?;
            let tally = self.prepare(&mut load, Until::Ios(times * pattern.blocks()))?;
            if let Some(what) = tally.problem() {
                return Ok(Some(what));
            }
        }
        self.stand.driver().rest();
        Ok(None)
    }

    /// Makes the drive as if it were new: one that was used is trimmed, all of it. Not
    /// where it is taken as it is. Gives whether that could be.
    fn purge(&mut self) -> Result<bool, Halt> {
        if !self.is_used || self.options.as_is {
            return Ok(!self.is_used);
        }
        if !self.stand.about.takes_trims {
            self.note("not purged before: it takes no trims");
            return Ok(false);
        }
        self.phase("trimming the drive");
        if self.over(LARGE, 1, true)?.is_some() {
            self.note("not purged before: its trims fail");
            return Ok(false);
        }
        self.is_used = false;
        Ok(true)
    }

    /// Purges the drive for a test that begins with an empty one; void where that cannot be.
    /// Of a drive that does not tell, who takes it as it is says that it is empty.
    pub fn empty(&mut self) -> Result<(), Halt> {
        if self.purge()? {
            return Ok(());
        }
        if self.options.as_is && !self.stand.about.tells {
            self.note("that the drive was empty is the word of who took it as it is (--as-is)");
            return Ok(());
        }
        void("the drive is not empty, and was not made so: this test begins with that")
    }

    /// Purges the drive and writes it twice over in order; one that is taken as it is must
    /// be full.
    pub fn fill(&mut self) -> Result<(), Halt> {
        if self.options.as_is {
            self.must_be_full()?;
        } else {
            self.purge()?;
            if !self.takes(FILL) && self.bytes() > FILL {
                let text = "this server takes no requests of 128 KiB, which fill the drive: fill \
                            it before, and take --as-is";
                return Err(Error::Usage(text.into()).into());
            }
            self.phase("writing the drive twice over");
            if let Some(what) = self.over(FILL, 2, false)? {
                return void(format!("while the drive was filled, {what}"));
            }
        }
        self.moved = self.stand.driver().counters().gc;
        Ok(())
    }

    /// Looks whether all of the drive was written: by reading it, where it tells what was
    /// never written.
    fn must_be_full(&mut self) -> Result<(), Halt> {
        if !self.stand.about.tells {
            self.note(
                "nobody tells whether the drive is full, and what is not is read in no time: it \
                 was taken as it is",
            );
            return if self.stand.about.is_new { not_full(0.0) } else { Ok(()) };
        }
        self.phase("looking whether the drive is full");
        let bs = if self.takes(LARGE) { LARGE } else { BLOCK_BYTES };
        let mut load = self.load(&Access::sequential(bs, 100, 32))?;
        let before = self.stand.driver().counters().nothing;
        let requests = self.bytes() / bs;
        // A read that fails says of no block that it was never written.
        let tally = self.prepare(&mut load, Until::Ios(requests))?;
        if let Some(what) = tally.problem() {
            return void(format!("while it was looked whether the drive is full, {what}"));
        }
        let nothing = self.stand.driver().counters().nothing - before;
        self.stand.driver().rest();
        let empty = nothing as f64 / (requests * bs / BLOCK_BYTES) as f64;
        if empty > EMPTY { not_full(1.0 - empty) } else { Ok(()) }
    }

    /// Runs an access in rounds of a period and one overwrite at least, until the drive is
    /// steady or that is given up.
    pub fn settle(&mut self, access: &Access) -> Result<Search, Halt> {
        let mut load = self.load(access)?;
        let until = Until::Both(self.period(), self.bytes());
        let each = "a period and one overwrite at least".to_string();
        let tracked = [("bytes written", Unit::BytesPerSecond)];
        self.until_steady(each, &tracked, true, |session, _| {
            let start = session.stand.driver().now();
            let tally = session.prepare(&mut load, until)?;
            if let Some(what) = tally.problem() {
                return void(format!("while the drive was brought to its steady state, {what}"));
            }
            let ns = session.stand.driver().now().since(start);
            // Without time there is no rate, and only write amplification can settle.
            Ok(vec![if ns == 0 { 1.0 } else { tally.written as f64 * 1e9 / ns as f64 }])
        })
    }

    /// Writes as much as the drive has, in random requests of 4 KiB, and where it tells goes
    /// on until it collects: before that no write waits for a block to be moved.
    pub fn age(&mut self) -> Result<(), Halt> {
        self.write_over()?;
        if !self.has_collected() {
            self.note(NOT_COLLECTED);
        }
        Ok(())
    }

    fn write_over(&mut self) -> Result<(), Halt> {
        self.phase("writing over the drive at random");
        let mut load = self.load(&Access::random(BLOCK_BYTES, 0, self.depth))?;
        let blocks = self.bytes() / BLOCK_BYTES;
        let mut written = 0;
        while written < blocks || (written < AGED * blocks && !self.has_collected()) {
            let requests = if written < blocks { blocks } else { blocks.div_ceil(LOOK) };
            let tally = self.prepare(&mut load, Until::Ios(requests))?;
            if let Some(what) = tally.problem() {
                return void(format!("while the drive was written over at random, {what}"));
            }
            written += requests;
        }
        Ok(())
    }

    /// The same for a test of rounds, which by itself may write too little to come to that,
    /// and tells at its end where it has not:
    /// not of a drive that does not tell, nor of one that is taken as it is.
    pub fn age_until_it_collects(&mut self) -> Result<(), Halt> {
        if self.stand.about.tells && !self.options.as_is { self.write_over() } else { Ok(()) }
    }

    /// Whether the drive has moved data since it was full; of one that does not tell that is
    /// not asked.
    pub fn has_collected(&mut self) -> bool {
        !self.stand.about.tells || self.stand.driver().counters().gc > self.moved
    }
}

/// What is to be known of a drive that has moved nothing.
pub const NOT_COLLECTED: &str = "the drive has not collected yet, so writes are faster than they \
                                 will be: take a larger --period, or a drive with less spare \
                                 (where it is small a larger one, or smaller chunks: pages=)";

fn not_full<T>(part: f64) -> Result<T, Halt> {
    void(format!(
        "the drive is not full ({:.0} % written), and what was never written is read in no time: \
         leave out --as-is, or fill it",
        (100.0 * part).floor()
    ))
}
