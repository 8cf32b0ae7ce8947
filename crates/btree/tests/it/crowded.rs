//! A store whose own work takes the room of reads: trims, collection, parts of a
//! checkpoint. Of these the tree is told nothing, and it goes on when they are
//! over.

use std::collections::{HashMap, VecDeque};

use btree::store::{Ticks, seal};
use btree::{
    Error, FRAME_BYTES, Outcome, PAGE_BYTES, PageStore, Sink, StoreDone, Tree, TreeConfig,
};
use port::{Buffer, Ring, Time};

/// Keeps pages in memory. Each fourth read is followed by work of its own, at
/// which no other read begins.
#[derive(Default)]
struct Crowded {
    pages: HashMap<u64, Vec<u8>>,
    out: VecDeque<StoreDone>,
    now: Time,
    reads: u64,
    /// When its own work is over.
    busy: Option<Time>,
    refused: u64,
}

impl PageStore for Crowded {
    fn pages(&self) -> u64 {
        1 << 20
    }

    fn max_batch(&self) -> usize {
        64
    }

    fn can_read(&self) -> bool {
        self.busy.is_none()
    }

    fn read(&mut self, page: u64, mut buffer: Buffer) -> Result<(), Buffer> {
        if !self.can_read() {
            self.refused += 1;
            return Err(buffer);
        }
        self.reads += 1;
        if self.reads.is_multiple_of(4) {
            self.busy = Some(Time(self.now.0 + 1000));
        }
        buffer.bytes_mut().copy_from_slice(&self.pages[&page]);
        self.out.push_back(StoreDone::Read { page, buffer, result: Ok(()) });
        Ok(())
    }

    fn can_write(&self) -> bool {
        true
    }

    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
        for (i, &page) in pages.iter().enumerate() {
            let mut bytes = vec![0; PAGE_BYTES];
            copy(i, &mut bytes);
            seal(page, &mut bytes);
            self.pages.insert(page, bytes);
        }
        self.out.push_back(StoreDone::Write { id, result: Ok(()) });
    }

    fn flush(&mut self, id: u32) -> bool {
        self.out.push_back(StoreDone::Flush { id, result: Ok(()) });
        true
    }

    fn poll(&mut self, now: Time, done: &mut Ring<StoreDone>) {
        self.now = self.now.max(now);
        self.busy.take_if(|until| *until <= now);
        while done.room() > 0
            && let Some(one) = self.out.pop_front()
        {
            done.put(|| one);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.out.is_empty() { self.busy } else { Some(self.now) }
    }

    fn wait(&mut self) -> Option<Time> {
        self.next_event()
    }

    fn memory(&self) -> u64 {
        0
    }

    fn ticks(&self) -> Ticks {
        Ticks::default()
    }
}

/// Counts what was found.
#[derive(Default)]
struct Found(u64);

impl Sink for Found {
    fn record(&mut self, _tag: u64, _key: &[u8], _value: &[u8]) {}

    fn done(&mut self, _tag: u64, outcome: Result<Outcome, Error>) {
        assert!(matches!(outcome, Ok(Outcome::Found | Outcome::Stored)), "{outcome:?}");
        self.0 += 1;
    }
}

#[test]
fn reads_go_on_when_the_stores_own_work_is_over() {
    const KEYS: u64 = 20_000;
    let operations = 8;
    let memory = 200 * FRAME_BYTES + operations as u64 * 256;
    let config = TreeConfig { memory, operations, ..TreeConfig::default() };
    let mut tree = Tree::create(Crowded::default(), config, Time::ZERO).unwrap();
    let (mut found, mut asked) = (Found::default(), 0);
    while found.0 < 2 * KEYS {
        while asked < 2 * KEYS && tree.waiting() < operations {
            let key = (asked % KEYS * 7919 % KEYS).to_be_bytes();
            match asked < KEYS {
                true => tree.put(asked, &key, &[7; 100], &mut found).unwrap(),
                false => tree.get(asked, &key, &mut found).unwrap(),
            }
            asked += 1;
        }
        if found.0 < asked {
            assert!(tree.wait(&mut found), "{} wait for ever", tree.waiting());
        }
    }
    assert!(tree.store().refused > 100, "{} refused", tree.store().refused);
}
