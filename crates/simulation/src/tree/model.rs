//! What a tree may show: the last value of each key, and after a cut that of the
//! last completed flush or a later one, each batch whole or not at all.
//!
//! A key's value is a number, 0 where it is not there; no two writes give the
//! same. Changes count when the tree answers them. Those of one key wait for
//! each other, so each key has a history in order.

/// A key and the number of its new value; 0 takes it out.
pub type Write = (u64, u64);

/// A key's value, and the change that gave it: 0 is before all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    number: u64,
    change: usize,
}

/// The model.
pub struct Model {
    /// By key, oldest first; before all changes one, or all that it may have.
    keys: Vec<Vec<Version>>,
    /// Changes since the last cut.
    changes: Vec<Vec<Write>>,
    /// How many of them are durable.
    flushed: usize,
    numbers: u64,
}

const MISSING: Version = Version { number: 0, change: 0 };

impl Model {
    /// So many keys, none of which is there.
    pub fn new(keys: u64) -> Model {
        let keys = vec![vec![MISSING]; keys as usize];
        Model { keys, changes: Vec::new(), flushed: 0, numbers: 0 }
    }

    /// The number of another value.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// How many changes were answered.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// A change was answered.
    pub fn change(&mut self, writes: &[Write]) {
        self.changes.push(writes.to_vec());
        let change = self.changes.len();
        for &(key, number) in writes {
            self.keys[key as usize].push(Version { number, change });
        }
    }

    /// A flush was answered that was asked for after so many changes.
    pub fn flushed(&mut self, changes: usize) {
        self.flushed = self.flushed.max(changes);
    }

    /// Whether a key changed since there were so many changes.
    pub fn changed_since(&self, key: u64, changes: usize) -> bool {
        self.keys[key as usize].last().is_some_and(|last| last.change > changes)
    }

    /// The values that a key may have now; one, unless it could not be read
    /// after a cut.
    pub fn now(&self, key: u64) -> impl Iterator<Item = u64> + '_ {
        let history = &self.keys[key as usize];
        let last = history.last().map_or(0, |last| last.change);
        history.iter().filter(move |version| version.change == last).map(|version| version.number)
    }

    /// A key was read: it has this value.
    pub fn saw(&mut self, key: u64, number: u64) -> Result<(), String> {
        if !self.now(key).any(|now| now == number) {
            return Err(format!("it has {number}: {}", self.of(key)));
        }
        let history = &mut self.keys[key as usize];
        let last = history.last().map_or(0, |last| last.change);
        history.retain(|version| version.change != last || version.number == number);
        Ok(())
    }

    /// What a key may have after a cut: the version of the last flush and those
    /// behind it.
    fn left(&self, key: u64) -> &[Version] {
        let history = &self.keys[key as usize];
        let durable = |version: &Version| version.change > 0 && version.change <= self.flushed;
        &history[history.iter().rposition(durable).unwrap_or(0)..]
    }

    /// After a cut the keys have these values, `None` where it cannot be read;
    /// changes that were under way may have been made.
    pub fn settle(
        &mut self,
        found: &[Option<u64>],
        under_way: &[Vec<Write>],
    ) -> Result<(), (u64, String)> {
        under_way.iter().for_each(|writes| self.change(writes));
        for (key, number) in found.iter().enumerate() {
            let (key, Some(number)) = (key as u64, *number) else { continue };
            if !self.left(key).iter().any(|version| version.number == number) {
                let of = self.of(key);
                return Err((key, format!("it has {number}, flushed {}: {of}", self.flushed)));
            }
        }
        for (i, writes) in self.changes.iter().enumerate().filter(|(_, writes)| writes.len() > 1) {
            let there = |key: u64| self.is_there(i + 1, key, found[key as usize]?);
            let tells = |write: &&Write| !self.changes_nothing(i + 1, **write);
            let known = writes.iter().filter(tells);
            let known = known.filter_map(|&(key, _)| Some((key, there(key)?)));
            let known: Vec<(u64, bool)> = known.collect();
            let torn = known.iter().find(|(_, there)| *there != known[0].1);
            if let Some(&(key, there)) = torn {
                let ((other, _), of) = (known[0], self.of(key));
                let is = if there { "there" } else { "gone" };
                let words = format!("{writes:?} is {is}, and not so for key {other}: {of}");
                return Err((key, words));
            }
        }
        self.forget(found);
        Ok(())
    }

    /// Whether a write of a change takes out what may not have been there. Then
    /// what the key has later says nothing of the others.
    fn changes_nothing(&self, change: usize, (key, number): Write) -> bool {
        let before = self.keys[key as usize].iter().filter(|version| version.change < change);
        let last = before.clone().map(|version| version.change).max();
        number == 0 && before.filter(|v| Some(v.change) == last).any(|v| v.number == 0)
    }

    /// Whether a change of a key was made, where it has this value now; `None`
    /// when that does not tell.
    fn is_there(&self, change: usize, key: u64, number: u64) -> Option<bool> {
        let versions = self.left(key).iter().filter(|version| version.number == number);
        let mut there = versions.map(|version| version.change >= change);
        let first = there.next()?;
        there.all(|one| one == first).then_some(first)
    }

    /// What was read is all that is known.
    fn forget(&mut self, found: &[Option<u64>]) {
        for (key, found) in found.iter().enumerate() {
            let mut left: Vec<Version> = match *found {
                Some(number) => vec![Version { number, change: 0 }],
                None => self.left(key as u64).to_vec(),
            };
            left.iter_mut().for_each(|version| version.change = 0);
            self.keys[key] = left;
        }
        self.changes.clear();
        self.flushed = 0;
    }

    /// A new drive takes this one's place.
    pub fn replace(&mut self) {
        self.keys.fill(vec![MISSING]);
        self.changes.clear();
        self.flushed = 0;
    }

    /// A key's history, in words.
    fn of(&self, key: u64) -> String {
        let versions = self.keys[key as usize].iter();
        let words = versions.map(|version| format!("{} by {}", version.number, version.change));
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value 1 by change 1, flushed; 2 and 3 by a batch; then 4.
    fn model() -> Model {
        let mut model = Model::new(3);
        model.change(&[(0, 1)]);
        model.flushed(1);
        model.change(&[(0, 2), (1, 3)]);
        model.change(&[(1, 4)]);
        model
    }

    #[test]
    fn a_cut_leaves_what_was_flushed_or_more_and_batches_whole() {
        for good in [[1, 0, 0], [2, 3, 0], [2, 4, 0], [2, 4, 9]] {
            let under_way = [vec![(2, 9)]];
            assert_eq!(model().settle(&good.map(Some), &under_way), Ok(()), "{good:?}");
        }
        for bad in [[0, 0, 0], [1, 3, 0], [2, 0, 0], [1, 4, 0], [2, 3, 9], [3, 2, 0]] {
            assert!(model().settle(&bad.map(Some), &[]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_delete_of_nothing_tells_nothing() {
        let mut model = Model::new(2);
        model.change(&[(0, 0), (1, 1)]);
        model.change(&[(0, 2)]);
        assert_eq!(model.settle(&[Some(2), Some(0)], &[]), Ok(()));
        // Now there is something to delete.
        model.change(&[(0, 0), (1, 3)]);
        model.change(&[(0, 4)]);
        assert!(model.settle(&[Some(4), Some(0)], &[]).is_err());
    }

    #[test]
    fn a_key_that_was_not_read_may_be_what_it_could_be() {
        let mut model = model();
        model.settle(&[None, Some(3), Some(0)], &[]).unwrap();
        assert_eq!(model.now(0).collect::<Vec<_>>(), [1, 2]);
        assert!(model.saw(0, 3).is_err());
        model.saw(0, 2).unwrap();
        assert!(model.saw(0, 1).is_err());
        model.change(&[(0, 5)]);
        assert!(model.saw(0, 5).is_ok() && model.changed_since(0, 0));
    }
}
