//! What clients of a server may see, and what must be there after a cut.
//!
//! Each write gives a key a value that no other gives, or takes it away. When it takes effect
//! is known to lie between its begin and its end; what began after another had ended comes
//! after it. A reply that was seen tells of a write: its own, or one that it read. After a cut
//! what is found must be of that write, or of one that may have come after it.
//!
//! Counters are only counted up: what is found is no less than what was seen, and no two that
//! counted one up are told the same. What was written to several keys at once is there whole.

/// A moment: they are counted.
pub type Moment = u64;

/// Of a write that has not ended, or one that never was.
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
    /// Whether it may have taken effect.
    fn may_be(&self) -> bool {
        self.begin != NEVER
    }

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
    /// Whether a key is there.
    pub fn of(is_there: bool) -> What {
        if is_there { What::IsThere } else { What::Is(None) }
    }

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
    /// The key's write that read it, which it does not tell of.
    by: Option<usize>,
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
        let others = self.writes.iter().enumerate().filter(move |one| Some(one.0) != read.by);
        others.map(|(_, write)| write).filter(move |&write| {
            let is_old = read.is_new && self.writes.iter().any(|by| is_over(write, by));
            read.what.fits(write.value) && write.begin <= read.end && !is_old
        })
    }
}

#[derive(Clone, Debug, Default)]
struct Counter {
    /// What it had when it was known, how often it was to be counted up since, and the most
    /// that was seen.
    known: u64,
    asked: u64,
    seen: u64,
    /// What those who counted it up were told.
    told: Vec<u64>,
}

/// All keys and counters.
#[derive(Debug)]
pub struct Model {
    keys: Vec<Key>,
    counters: Vec<Counter>,
    /// What was written to several keys at once since these were known: of each the key and
    /// which of its writes it is.
    batches: Vec<Vec<(u64, usize)>>,
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
            batches: Vec::new(),
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

    /// These writes are one: all are there, or none.
    pub fn batch(&mut self, writes: &[(u64, usize)]) {
        self.batches.push(writes.to_vec());
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

    /// Its reply says that it took no effect.
    pub fn refused(&mut self, key: u64, write: usize) {
        self.keys[key as usize].writes[write].begin = NEVER;
    }

    /// The reply of a read was seen that was executed between two moments; perhaps it was one
    /// of the key's writes that read it, which comes after what it told of. Where `is_new` it
    /// must tell of no write that was overwritten before it began.
    pub fn read(
        &mut self,
        key: u64,
        what: What,
        (begin, end): (Moment, Moment),
        is_new: bool,
        by: Option<usize>,
    ) -> Result<(), String> {
        let key = &mut self.keys[key as usize];
        let read = Read { what, begin, end, is_new, by };
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

    /// The most that a counter was seen to have.
    pub fn seen_of(&self, counter: u64) -> u64 {
        self.counters[counter as usize].seen
    }

    /// A reply told what a counter has, which was asked for when it had been seen to have
    /// `least`.
    pub fn counted(&mut self, counter: u64, has: u64, least: u64) -> Result<(), String> {
        let counter = &mut self.counters[counter as usize];
        counter.seen = counter.seen.max(has);
        let most = counter.known + counter.asked;
        let fits = (least..=most).contains(&has);
        if fits { Ok(()) } else { Err(format!("{has} of at least {least} and at most {most}")) }
    }

    /// The same of a reply to who counted it up: nobody else is told that.
    pub fn counted_up(&mut self, counter: u64, has: u64, least: u64) -> Result<(), String> {
        self.counted(counter, has, least + 1)?;
        let told = &mut self.counters[counter as usize].told;
        if told.contains(&has) {
            return Err(format!("two were told that they made it {has}"));
        }
        told.push(has);
        Ok(())
    }

    /// A reply told how many there are, where none is ever taken away.
    pub fn told_size(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// These are what keys are found to have, where they could be read: of what was written to
    /// several at once all is there, or was overwritten.
    pub fn found_whole(&mut self, found: &[Option<Value>]) -> Result<(), (u64, String)> {
        for batch in std::mem::take(&mut self.batches) {
            let write = |&(key, write): &(u64, usize)| self.keys[key as usize].writes[write];
            let is_there = |one: &&(u64, usize)| found[one.0 as usize] == Some(write(one).value);
            let Some(there) = batch.iter().find(is_there) else { continue };
            for one in &batch {
                let Some(value) = found[one.0 as usize] else { continue };
                let writes = self.keys[one.0 as usize].writes.iter();
                let mut origins = writes.filter(|one| one.value == value && one.may_be());
                if !origins.any(|origin| origin.may_follow(&write(one))) {
                    let words = format!("it has {value:?}, but of {batch:?} {there:?} is there");
                    return Err((one.0, words));
                }
            }
        }
        Ok(())
    }

    /// A key is found so, after a cut or at rest; what was seen is to be explained by that.
    pub fn found(&mut self, key: u64, value: Value) -> Result<(), String> {
        let of = &self.keys[key as usize];
        let origins = || of.writes.iter().filter(|one| one.value == value && one.may_be());
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
        let least = of.seen.max(of.known + of.told.len() as u64);
        if has < least || has > of.known + of.asked {
            return Err(format!("it has {has}: {of:?}"));
        }
        *of = Counter { known: has, seen: has, ..Counter::default() };
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
        model.read(0, What::Is(Some(2)), (3, 4), true, None).unwrap();
        assert!(model.found(0, Some(1)).is_err() && model.found(0, None).is_err());
        assert!(model.found(0, Some(7)).is_err(), "never written");
        model.found(0, Some(3)).unwrap();
        model.found(0, Some(3)).unwrap();
        assert!(model.found(0, Some(4)).is_err(), "the last that was found stays");
    }

    #[test]
    fn a_read_is_of_the_newest() {
        let read =
            |value, begin, end| model().read(0, What::Is(value), (begin, end), true, None).is_ok();
        assert!(read(Some(1), 1, 1) && read(None, 1, 1) && !read(None, 3, 3));
        assert!(!read(Some(2), 1, 2), "not yet begun");
        assert!(read(Some(3), 10, 10) && read(Some(4), 10, 10) && !read(Some(2), 10, 10));
        assert!(model().read(0, What::IsThere, (10, 10), true, None).is_ok());
        let mut model = model();
        let delete = model.begin(0, None, true, 10);
        model.end(0, delete, 11);
        assert!(model.read(0, What::IsThere, (12, 12), true, None).is_err());
        model.read(0, What::Is(None), (12, 12), true, None).unwrap();
        assert!(model.found(0, Some(4)).is_err() && model.found(0, None).is_ok());
    }

    #[test]
    fn counters_and_numbers_do_not_go_back() {
        let mut model = model();
        (0..3).for_each(|_| model.count(0));
        model.counted(0, 2, 0).unwrap();
        assert!(model.counted(0, 4, 0).is_err() && model.counted(0, 1, 2).is_err());
        model.counters[0].seen = 2;
        model.counted_up(0, 1, 0).unwrap();
        assert!(model.counted_up(0, 1, 0).is_err(), "told twice");
        assert!(model.counted_up(0, 2, 2).is_err(), "it had that before");
        model.counted_up(0, 3, 2).unwrap();
        model.counters[0].seen = 0;
        assert!(model.found_counter(0, 1).is_err() && model.found_counter(0, 4).is_err());
        model.found_counter(0, 3).unwrap();
        model.told_size(2);
        assert!(model.found_size(1).is_err());
    }

    #[test]
    fn what_is_written_at_once_is_there_whole() {
        let model = || {
            let mut model = Model::new(2, 1);
            for (value, begin, end) in [(1, 1, 2), (2, 3, 4), (3, 5, 6)] {
                let batch = [0, 1].map(|key| (key, model.begin(key, Some(value), true, begin)));
                batch.iter().for_each(|&(key, write)| model.end(key, write, end));
                model.batch(&batch);
            }
            model
        };
        let is_whole = |one, other| model().found_whole(&[Some(one), Some(other)]).is_ok();
        assert!(is_whole(None, None) && is_whole(Some(2), Some(2)));
        assert!(!is_whole(Some(2), Some(1)) && !is_whole(None, Some(1)));
        assert!(!is_whole(Some(3), Some(2)) && model().found_whole(&[None, Some(Some(2))]).is_ok());
        let mut model = model();
        model.begin(1, None, true, 7);
        assert!(model.found_whole(&[Some(Some(2)), Some(None)]).is_ok(), "it was taken away later");
    }

    /// A write that says so leaves nothing, also where it was read before that was known.
    #[test]
    fn what_was_not_written_is_never_there() {
        let refused = || {
            let mut model = model();
            let write = model.begin(0, Some(9), false, 10);
            model.end(0, write, 11);
            (model, write)
        };
        let (mut model, write) = refused();
        model.read(0, What::IsThere, (10, 11), true, Some(write)).unwrap();
        model.refused(0, write);
        assert!(model.read(0, What::Is(Some(9)), (12, 12), true, None).is_err());
        assert!(model.found(0, Some(9)).is_err());
        model.found(0, Some(4)).unwrap();
        let (mut model, write) = refused();
        model.read(0, What::Is(Some(9)), (12, 12), true, None).unwrap();
        model.refused(0, write);
        assert!(model.found(0, Some(4)).is_err());
    }

    /// What a write tells of what it found is not what it wrote.
    #[test]
    fn a_write_tells_of_what_was_before_it() {
        let told = |is_there| {
            let mut model = model();
            let delete = model.begin(0, None, true, 10);
            model.end(0, delete, 11);
            let what = if is_there { What::IsThere } else { What::Is(None) };
            model.read(0, what, (10, 11), true, Some(delete)).is_ok()
        };
        assert!(told(true) && !told(false));
    }
}
