//! What a batched target may hold.

use std::ops::RangeInclusive;

/// What was written: of each page its values, each with the number of the batch
/// that wrote it. Value 0 is that of a page that was never written.
#[derive(Clone, Default)]
pub struct Model {
    pages: Vec<Vec<(u64, u64)>>,
    /// Batches taken, and acknowledged.
    pub taken: u64,
    pub acked: u64,
    /// No read that comes may see less.
    seen: u64,
    values: u64,
}

impl Model {
    pub fn new(pages: u64) -> Model {
        Model { pages: vec![vec![(0, 0)]; pages as usize], ..Model::default() }
    }

    /// A batch is taken: gives the value of each of its pages.
    pub fn take(&mut self, lpids: &[u64]) -> Vec<u64> {
        self.taken += 1;
        let (taken, mut values) = (self.taken, Vec::new());
        for &lpid in lpids {
            self.values += 1;
            values.push(self.values);
            let page = &mut self.pages[lpid as usize];
            page.retain(|held| held.0 != taken);
            page.push((taken, self.values));
        }
        values
    }

    /// Whether a page may be given up: once until the next [`Self::settle`], so that
    /// value 0 is of one span of states.
    pub fn may_give_up(&self, lpid: u64) -> bool {
        self.pages[lpid as usize].iter().all(|held| held.1 != 0)
    }

    /// The batch that was just taken gives pages up, which it does not write.
    pub fn give_up(&mut self, lpids: &[u64]) {
        for &lpid in lpids {
            self.pages[lpid as usize].push((self.taken, 0));
        }
    }

    /// The last batch was not taken after all.
    pub fn untake(&mut self, lpids: &[u64], given_up: &[u64]) {
        let taken = self.taken;
        for &lpid in lpids.iter().chain(given_up) {
            self.pages[lpid as usize].retain(|held| held.0 != taken);
        }
        self.taken -= 1;
    }

    /// The states S(k) in which a page has a value.
    fn states(&self, lpid: u64, value: u64) -> Option<RangeInclusive<u64>> {
        let page = &self.pages[lpid as usize];
        let at = page.iter().position(|held| held.1 == value)?;
        let end = page.get(at + 1).map_or(u64::MAX, |next| next.0 - 1);
        Some(page[at].0..=end)
    }

    /// What a read that is submitted now may see at least.
    pub fn floor(&self) -> u64 {
        self.acked.max(self.seen)
    }

    /// A read came back that was submitted at `floor`.
    pub fn read(&mut self, lpid: u64, value: u64, floor: u64) {
        let states = self.states(lpid, value).unwrap_or_else(|| {
            panic!(
                "page {lpid} has {value}, which was never written: {:?}",
                self.pages[lpid as usize]
            )
        });
        assert!(
            *states.end() >= floor && *states.start() <= self.taken,
            "page {lpid} has {value} of states {states:?}, but {floor} to {} are allowed: {:?}",
            self.taken,
            self.pages[lpid as usize]
        );
        self.seen = self.seen.max(*states.start());
    }

    /// After a cut the pages have these values. Gives the state they are.
    pub fn settle(&mut self, values: &[u64]) -> u64 {
        let (mut low, mut high) = (self.floor(), self.taken);
        for (lpid, &value) in values.iter().enumerate() {
            let states = self.states(lpid as u64, value);
            let states = states.unwrap_or_else(|| panic!("page {lpid} has {value}"));
            let (was_low, was_high) = (low, high);
            low = low.max(*states.start());
            high = high.min(*states.end());
            assert!(
                low <= high,
                "page {lpid} has {value} of states {states:?}, the others those of \
                 {was_low} to {was_high}; acknowledged {}, taken {}: {:?}",
                self.acked,
                self.taken,
                self.pages[lpid]
            );
        }
        // The others never were, and their numbers come again.
        for page in &mut self.pages {
            page.retain(|held| held.0 <= low);
            let last = page.len() - 1;
            page.drain(..last);
        }
        (self.taken, self.acked, self.seen) = (low, low, low);
        low
    }
}
