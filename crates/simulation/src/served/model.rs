//! What clients of a server may see, and what must be there after a cut.
//!
//! Each write gives a key a value that no other gives, or takes it away. When it takes effect
//! is known to lie between its begin and its end; what began after another had ended comes
//! after it. A reply that was seen tells of a write: its own, or one that it read. After a cut
//! what is found must be of that write, or of one that may have come after it.
//!
//! Counters are only counted up: what is found is no less than what was seen.

/// A moment: they are counted.
pub type Moment = u64;

/// Of a write that has not ended.
const NEVER: Moment = u64::MAX;

/// A value, or none.
pub type Value = Option<u64>;

/// A write of a key.
#[derive(Clone, Copy, Debug)]
struct Write {
    value: Value,
    begin: Moment,
    end: Moment,
    /// It takes effect, whatever the key has.
    is_sure: bool,
}

impl Write {
    /// Whether it may have taken effect after `other`, or is that.
    fn may_follow(&self, other: &Write) -> bool {
        self.end >= other.begin
    }
}

/// What a reply tells of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It has this value, or none.
    Is(Value),
    /// It is there.
    IsThere,
}

impl What {
    fn fits(self, value: Value) -> bool {
        match self {
            What::Is(wanted) => value == wanted,
            What::IsThere => value.is_some(),
        }
    }
}

/// What was seen of a key.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// That write's reply.
    Done(usize),
    /// What a read told.
    Read(Read),
}

/// What a read told, which was executed between two moments. Where it `is_new` it told of no
/// write that was overwritten before it began.
#[derive(Clone, Copy, Debug)]
struct Read {
    what: What,
    begin: Moment,
    end: Moment,
    is_new: bool,
}

/// The writes of a key since its value was known, which is the first, and what was seen of it.
#[derive(Debug)]
struct Key {
    writes: Vec<Write>,
    seen: Vec<Seen>,
}

impl Key {
    fn of(value: Value) -> Key {
        Key { writes: vec![Write { value, begin: 0, end: 0, is_sure: true }], seen: Vec::new() }
    }

    /// The writes that a read may have told of.
    fn causes(&self, read: Read) -> impl Iterator<Item = &Write> {
        let is_over = move |write: &Write, by: &Write| {
            by.is_sure && by.end < read.begin && write.end < by.begin
        };
        self.writes.iter().filter(move |&write| {
            let is_old = read.is_new && self.writes.iter().any(|by| is_over(write, by));
            read.what.fits(write.value) && write.begin <= read.end && !is_old
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// What it had when it was known, how often it was counted up since, and what was seen.
    known: u64,
    asked: u64,
    seen: u64,
}

/// All keys and counters.
#[derive(Debug)]
pub struct Model {
    keys: Vec<Key>,
    counters: Vec<Counter>,
    /// Keys and counters that were told to be there, where none is ever taken away.
    size: u64,
    numbers: u64,
}

impl Model {
    /// None of them is there.
    pub fn new(keys: u64, counters: u64) -> Model {
        Model {
            keys: (0..keys).map(|_| Key::of(None)).collect(),
            counters: vec![Counter::default(); counters as usize],
            size: 0,
            numbers: 0,
        }
    }

    /// Nothing is there any more.
    pub fn replace(&mut self) {
        let new = Model::new(self.keys.len() as u64, self.counters.len() as u64);
        *self = Model { numbers: self.numbers, ..new };
    }

    /// A value that nothing has.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A write begins; gives which of the key's it is.
    pub fn begin(&mut self, key: u64, value: Value, is_sure: bool, begin: Moment) -> usize {
        let writes = &mut self.keys[key as usize].writes;
        writes.push(Write { value, begin, end: NEVER, is_sure });
        writes.len() - 1
    }

    /// It was executed.
    pub fn end(&mut self, key: u64, write: usize, end: Moment) {
        self.keys[key as usize].writes[write].end = end;
    }

    /// Its reply was seen: it is done.
    pub fn done(&mut self, key: u64, write: usize) {
        let key = &mut self.keys[key as usize];
        key.writes[write].is_sure = true;
        key.seen.push(Seen::Done(write));
    }

    /// The reply of a read was seen that was executed between two moments. Where `is_new` it
    /// must tell of no write that was overwritten before it began.
    pub fn read(
        &mut self,
        key: u64,
        what: What,
        (begin, end): (Moment, Moment),
        is_new: bool,
    ) -> Result<(), String> {
        let key = &mut self.keys[key as usize];
        let read = Read { what, begin, end, is_new };
        if key.causes(read).next().is_none() {
            return Err(format!("{what:?} was read at {begin} to {end}: {:?}", key.writes));
        }
        key.seen.push(Seen::Read(read));
        Ok(())
    }

    /// A counter is to be counted up.
    pub fn count(&mut self, counter: u64) {
        self.counters[counter as usize].asked += 1;
    }

    /// A reply told what a counter has.
    pub fn counted(&mut self, counter: u64, has: u64) -> Result<(), String> {
        let counter = &mut self.counters[counter as usize];
        counter.seen = counter.seen.max(has);
        let most = counter.known + counter.asked;
        if has > most { Err(format!("{has} of at most {most}")) } else { Ok(()) }
    }

    /// A reply told how many there are, where none is ever taken away.
    pub fn told_size(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// A key is found so, after a cut or at rest; what was seen is to be explained by that.
    pub fn found(&mut self, key: u64, value: Value) -> Result<(), String> {
        let of = &self.keys[key as usize];
        let origins = || of.writes.iter().filter(|write| write.value == value);
        if origins().next().is_none() {
            return Err(format!("it has {value:?}, which was never written: {:?}", of.writes));
        }
        let explains = |cause: &Write| origins().any(|origin| origin.may_follow(cause));
        for seen in &of.seen {
            let is_explained = match *seen {
                Seen::Done(write) => explains(&of.writes[write]),
                Seen::Read(read) => of.causes(read).any(explains),
            };
            if !is_explained {
                let words = format!("it has {value:?}, but {seen:?} was seen: {:?}", of.writes);
                return Err(words);
            }
        }
        self.keys[key as usize] = Key::of(value);
        Ok(())
    }

    /// The same of a counter.
    pub fn found_counter(&mut self, counter: u64, has: u64) -> Result<(), String> {
        let of = &mut self.counters[counter as usize];
        if has < of.seen || has > of.known + of.asked {
            return Err(format!("it has {has}: {of:?}"));
        }
        *of = Counter { known: has, asked: 0, seen: has };
        Ok(())
    }

    /// So many were found in all.
    pub fn found_size(&mut self, size: u64) -> Result<(), String> {
        let told = std::mem::take(&mut self.size);
        if size < told { Err(format!("{size} keys, and {told} were seen")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writes of a key, one after the other, then two at once.
    fn model() -> Model {
        let mut model = Model::new(1, 1);
        for (value, begin, end) in [(1, 1, 2), (2, 3, 4), (3, 5, 9), (4, 6, 8)] {
            let write = model.begin(0, Some(value), true, begin);
            model.end(0, write, end);
        }
        model
    }

    #[test]
    fn what_was_seen_must_be_there_or_overwritten() {
        for (done, lost) in [(1, vec![0]), (2, vec![0, 1]), (3, vec![0, 1, 2]), (4, vec![0, 1, 2])]
        {
            for found in 0..5 {
                let mut model = model();
                model.done(0, done);
                let value = (found > 0).then_some(found);
                assert_eq!(
                    model.found(0, value).is_err(),
                    lost.contains(&found),
                    "{done}, {found}"
                );
            }
        }
        let mut model = model();
        model.read(0, What::Is(Some(2)), (3, 4), true).unwrap();
        assert!(model.found(0, Some(1)).is_err() && model.found(0, None).is_err());
        assert!(model.found(0, Some(7)).is_err(), "never written");
        model.found(0, Some(3)).unwrap();
        model.found(0, Some(3)).unwrap();
        assert!(model.found(0, Some(4)).is_err(), "the last that was found stays");
    }

    #[test]
    fn a_read_is_of_the_newest() {
        let read = |value, begin, end| model().read(0, What::Is(value), (begin, end), true).is_ok();
        assert!(read(Some(1), 1, 1) && read(None, 1, 1) && !read(None, 3, 3));
        assert!(!read(Some(2), 1, 2), "not yet begun");
        assert!(read(Some(3), 10, 10) && read(Some(4), 10, 10) && !read(Some(2), 10, 10));
        assert!(model().read(0, What::IsThere, (10, 10), true).is_ok());
        let mut model = model();
        let delete = model.begin(0, None, true, 10);
        model.end(0, delete, 11);
        assert!(model.read(0, What::IsThere, (12, 12), true).is_err());
        model.read(0, What::Is(None), (12, 12), true).unwrap();
        assert!(model.found(0, Some(4)).is_err() && model.found(0, None).is_ok());
    }

    #[test]
    fn counters_and_numbers_do_not_go_back() {
        let mut model = model();
        (0..3).for_each(|_| model.count(0));
        model.counted(0, 2).unwrap();
        assert!(model.counted(0, 4).is_err());
        model.counters[0].seen = 2;
        assert!(model.found_counter(0, 1).is_err() && model.found_counter(0, 4).is_err());
        model.found_counter(0, 3).unwrap();
        model.told_size(2);
        assert!(model.found_size(1).is_err());
    }
}
