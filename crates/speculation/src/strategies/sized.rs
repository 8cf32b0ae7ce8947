//! Checkpoints of memory of several sizes (the paper's figure 2), in each way.

use std::time::Instant;

use measure::units;
use serde_json::{Value, json};

use super::checkpoint::memory::Memory;
use super::checkpoint::{KeepError, Keeper, Way};
use super::samples::Samples;

/// Checkpoints that are taken of each size, and ways back.
const ROUNDS: (usize, usize) = (7, 3);
/// Pages that a program writes after a checkpoint.
pub const TOUCHED: usize = 16;

/// A checkpoint of a memory of some size, the middle of several.
#[derive(Clone, Copy, Debug)]
pub struct Sized {
    /// How it is kept.
    pub way: Way,
    /// The memory, bytes.
    pub bytes: u64,
    /// Once, before the first is taken, ns.
    pub begin: f64,
    /// To take one, [`TOUCHED`] pages after the last, ns.
    pub take: f64,
    /// To write to pages after it, ns each.
    pub page: f64,
    /// To give it up, ns.
    pub end: f64,
    /// To go back to it, when so many pages were written, ns.
    pub back: f64,
}

impl Sized {
    /// Measures.
    pub fn measure(way: Way, bytes: u64) -> Result<Sized, KeepError> {
        let memory = Memory::new(bytes)?;
        let began = Instant::now();
        let mut keeper = Keeper::new(way, memory)?;
        let begin = since(began);
        let [mut take, mut page, mut end, mut back] = [(); 4].map(|()| Vec::new());
        for round in 0..ROUNDS.0 {
            let began = Instant::now();
            keeper.take()?;
            take.push(since(began));
            let began = Instant::now();
            let pages = touch(&mut keeper);
            page.push(since(began) / pages as f64);
            if round < ROUNDS.1 {
                let began = Instant::now();
                keeper.roll_back()?;
                back.push(since(began));
            }
            let began = Instant::now();
            keeper.give_up();
            end.push(since(began));
        }
        // The first finds nothing written.
        take.remove(0);
        let [take, page, end, back] = [take, page, end, back].map(|all| Samples::new(all).median());
        Ok(Sized { way, bytes, begin, take, page, end, back })
    }

    /// What one of which nobody makes use costs, with a page written behind it.
    pub fn cost(self) -> f64 {
        self.take + self.page + self.end
    }

    /// As a line.
    pub fn to_text(self) -> String {
        let Sized { begin, take, page, end, back, .. } = self;
        let [begin, take, page, end, back] = [begin, take, page, end, back].map(units::time_ns);
        let size = units::capacity(self.bytes);
        format!(
            "  {size:>9}: taken in {take}, {page} a page written, given up in {end}, back in {back}; \
             begun in {begin}\n"
        )
    }

    /// By names.
    pub fn to_json(self) -> Value {
        let Sized { way, bytes, begin, take, page, end, back } = self;
        json!({
            "checkpoint": way.name(),
            "bytes": bytes,
            "begin_ns": begin,
            "take_ns": take,
            "page_ns": page,
            "end_ns": end,
            "back_ns": back,
        })
    }
}

fn since(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}

/// Writes to the first pages, and tells how many there were.
fn touch(keeper: &mut Keeper) -> usize {
    let page = keeper.page();
    let pages = keeper.memory_mut().chunks_mut(page).take(TOUCHED);
    pages.map(|page| page[0] = std::hint::black_box(page[0].wrapping_add(1))).count()
}
