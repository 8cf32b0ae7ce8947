//! What a target with batched writes may show: the first so many batches, whole,
//! and nothing of the others.
//!
//! Batches are answered in the order in which they were taken, so what a drive
//! holds is a state S(k): batches 1 to k. A value that is read says of which
//! states it is. No read sees less than what was answered before it was sent, or
//! than an earlier read saw; after a cut all pages are of one state, no older
//! than that.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A page's value, and the batch that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    batch: u64,
    value: u64,
}

/// Value 0 is that of a page that was never written.
const NEVER: Written = Written { batch: 0, value: 0 };

/// The model.
pub struct Model {
    /// By page, oldest first; one at least.
    pages: Vec<Vec<Written>>,
    /// Of pages that a check could not read, what they had then may be any of
    /// these.
    unsure: HashMap<u64, Vec<u64>>,
    /// The newest batch that was taken, and that was answered.
    taken: u64,
    acked: u64,
    /// No read that comes may see less.
    seen: u64,
    values: u64,
    /// By page, copies that could not be read, now and before the last check.
    struck: [HashMap<u64, Vec<u64>>; 2],
    /// A block of the target's own could not be read.
    own_struck: bool,
}

impl Model {
    /// Pages that were never written.
    pub fn new(pages: u64) -> Model {
        Model {
            pages: vec![vec![NEVER]; pages as usize],
            unsure: HashMap::new(),
            taken: 0,
            acked: 0,
            seen: 0,
            values: 0,
            struck: [HashMap::new(), HashMap::new()],
            own_struck: false,
        }
    }

    /// The newest batch.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// A batch is sent: gives its number, and into `values` that of each page.
    /// What comes twice has its last value.
    pub fn take(&mut self, lpids: &[u64], values: &mut Vec<u64>) -> u64 {
        self.taken += 1;
        let batch = self.taken;
        values.clear();
        for &lpid in lpids {
            self.values += 1;
            values.push(self.values);
            let page = &mut self.pages[lpid as usize];
            page.retain(|held| held.batch != batch || held.batch == 0);
            page.push(Written { batch, value: self.values });
        }
        batch
    }

    /// Whether a page may be given up: only once before the next check, so that
    /// what reads as never written is of one span of states.
    pub fn may_give_up(&self, lpid: u64) -> bool {
        let was_there = self.pages[lpid as usize].iter().all(|held| held.value != NEVER.value);
        was_there && !self.unsure.contains_key(&lpid)
    }

    /// The batch that was just taken gives a page up, which it does not write.
    pub fn give_up(&mut self, lpid: u64) {
        self.pages[lpid as usize].push(Written { batch: self.taken, value: NEVER.value });
    }

    /// A batch changes nothing, for good.
    pub fn drop_batch(&mut self, batch: u64) {
        for page in &mut self.pages {
            page.retain(|held| held.batch != batch || held.batch == 0);
        }
    }

    /// A batch was answered. False where one before it was not.
    pub fn ack(&mut self, batch: u64) -> bool {
        let in_order = batch > self.acked;
        self.acked = self.acked.max(batch);
        in_order
    }

    /// What a read that is sent now sees at least.
    pub fn floor(&self) -> u64 {
        self.acked.max(self.seen)
    }

    /// The states in which a page has a value.
    fn states(&self, lpid: u64, value: u64) -> Option<RangeInclusive<u64>> {
        let page = &self.pages[lpid as usize];
        let at = match self.unsure.get(&lpid) {
            Some(values) if values.contains(&value) => 0,
            _ => page.iter().position(|held| held.value == value)?,
        };
        let end = page.get(at + 1).map_or(u64::MAX, |next| next.batch - 1);
        Some(page[at].batch..=end)
    }

    /// A read that was sent at `floor` gave this.
    pub fn read(&mut self, lpid: u64, value: u64, floor: u64) -> Result<(), String> {
        let Some(states) = self.states(lpid, value) else {
            return Err(format!("it has {value}, which was never written: {}", self.of(lpid)));
        };
        if *states.end() < floor || *states.start() > self.taken {
            let taken = self.taken;
            let of = self.of(lpid);
            return Err(format!("it has {value} of {states:?}, not of {floor} to {taken}: {of}"));
        }
        self.seen = self.seen.max(*states.start());
        Ok(())
    }

    /// A copy of a page could not be read.
    pub fn strike(&mut self, lpid: u64, value: u64) {
        self.struck[0].entry(lpid).or_default().push(value);
    }

    /// A block of the target's own could not be read.
    pub fn strike_own(&mut self) {
        self.own_struck = true;
    }

    /// Whether blocks of the target's own could not be read since power came.
    pub fn is_own_struck(&self) -> bool {
        self.own_struck
    }

    /// Whether a read of a page, sent at `floor`, may fail: a copy was struck
    /// that it might give.
    pub fn may_fail(&self, lpid: u64, floor: u64) -> bool {
        let may_give = |&value: &u64| {
            let states = self.states(lpid, value);
            states.is_some_and(|states| *states.end() >= floor)
        };
        let held =
            |of: &HashMap<u64, Vec<u64>>| of.get(&lpid).is_some_and(|v| v.iter().any(may_give));
        self.own_struck || self.is_unsure(lpid, floor) || self.struck.iter().any(held)
    }

    /// Whether a page may still have what a check could not read.
    fn is_unsure(&self, lpid: u64, floor: u64) -> bool {
        let next = self.pages[lpid as usize].get(1);
        self.unsure.contains_key(&lpid) && next.is_none_or(|next| next.batch > floor)
    }

    /// Power came.
    pub fn power_up(&mut self) {
        self.own_struck = false;
    }

    /// After a cut the pages have these values; `None` of those that cannot be
    /// read. Then the state is known.
    pub fn settle(&mut self, values: &[Option<u64>]) -> Result<(), (u64, String)> {
        let (mut low, mut high) = (self.floor(), self.taken);
        for (lpid, value) in values.iter().enumerate() {
            let (lpid, Some(value)) = (lpid as u64, *value) else { continue };
            let Some(states) = self.states(lpid, value) else {
                let of = self.of(lpid);
                return Err((lpid, format!("it has {value}, which was never written: {of}")));
            };
            let was = low..=high;
            (low, high) = (low.max(*states.start()), high.min(*states.end()));
            if low > high {
                let (acked, of) = (self.acked, self.of(lpid));
                let words = format!(
                    "it has {value} of {states:?}, the others are of {was:?}; answered {acked}: {of}"
                );
                return Err((lpid, words));
            }
        }
        self.forget(values, low, high);
        Ok(())
    }

    /// The state is `low`, or any up to `high`, which differ in nothing that was
    /// read.
    fn forget(&mut self, values: &[Option<u64>], low: u64, high: u64) {
        for (lpid, seen) in values.iter().enumerate() {
            let number = lpid as u64;
            let may_be = |held: &&Written| {
                let states = self.states(number, held.value).expect("it was written");
                *states.start() <= high && *states.end() >= low
            };
            let left: Vec<u64> = self.pages[lpid].iter().filter(may_be).map(|h| h.value).collect();
            let was = self.is_unsure(number, low).then(|| self.unsure.remove(&number)).flatten();
            match seen {
                Some(_) => drop(self.unsure.remove(&number)),
                None => {
                    let values = was.into_iter().flatten().chain(left).collect();
                    self.unsure.insert(number, values);
                }
            }
            let page = &mut self.pages[lpid];
            page.retain(|held| held.batch <= low);
            let last = page.pop().expect("there is the first");
            page.clear();
            page.push(Written { batch: last.batch, value: seen.unwrap_or(last.value) });
        }
        (self.taken, self.acked, self.seen) = (low, low, low);
        self.struck.swap(0, 1);
        self.struck[0].clear();
    }

    /// A new drive takes this one's place.
    pub fn replace(&mut self) {
        self.pages.fill(vec![NEVER]);
        self.unsure.clear();
        (self.taken, self.acked, self.seen) = (0, 0, 0);
        self.struck.iter_mut().for_each(HashMap::clear);
    }

    /// What was written to a page, in words.
    fn of(&self, lpid: u64) -> String {
        let page = &self.pages[lpid as usize];
        let words = page.iter().map(|held| format!("{} by {}", held.value, held.batch));
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(batches: &[&[u64]]) -> Model {
        let mut model = Model::new(4);
        let mut values = Vec::new();
        for lpids in batches {
            model.take(lpids, &mut values);
        }
        model
    }

    #[test]
    fn a_cut_leaves_a_first_so_many_and_each_whole() {
        let all = |values: [u64; 4]| values.map(Some);
        // Values 1 and 2 are of batch 1, 3 and 4 of batch 2.
        let batches: [&[u64]; 2] = [&[0, 1], &[1, 2]];
        for good in [[0, 0, 0, 0], [1, 2, 0, 0], [1, 3, 4, 0]] {
            assert_eq!(with(&batches).settle(&all(good)), Ok(()));
        }
        for torn in [[1, 0, 0, 0], [0, 3, 4, 0], [1, 3, 0, 0], [1, 2, 4, 0], [5, 0, 0, 0]] {
            assert!(with(&batches).settle(&all(torn)).is_err(), "{torn:?}");
        }
        let mut acked = with(&batches);
        assert!(acked.ack(1) && !acked.ack(1));
        assert!(acked.settle(&all([0, 0, 0, 0])).is_err(), "batch 1 was answered");
        let mut seen = with(&batches);
        seen.read(2, 4, 0).unwrap();
        assert!(seen.settle(&all([1, 2, 0, 0])).is_err(), "batch 2 was seen");
    }

    #[test]
    fn reads_never_go_back() {
        let mut model = with(&[&[0], &[0]]);
        let floor = model.floor();
        model.read(0, 1, floor).unwrap();
        assert!(model.read(0, 0, model.floor()).is_err());
        // A read that was sent before may.
        model.read(0, 0, floor).unwrap();
    }

    #[test]
    fn a_page_that_was_not_read_may_be_what_it_could_be() {
        let mut model = with(&[&[0, 1], &[0]]);
        model.strike(0, 1);
        assert!(model.may_fail(0, 0) && !model.may_fail(1, 0));
        model.settle(&[None, Some(2), Some(0), Some(0)]).unwrap();
        assert!(model.may_fail(0, model.floor()));
        let mut values = Vec::new();
        let batch = model.take(&[0], &mut values);
        for value in [1, 3] {
            let words = model.read(0, value, 0);
            assert_eq!(words, Ok(()), "{value}");
        }
        model.ack(batch);
        assert!(!model.may_fail(0, model.floor()), "it was written anew");
        assert!(model.read(0, 1, model.floor()).is_err() && model.read(0, 0, 0).is_err());
    }
}
