//! The stores of the tree, over drives whose power may go; and stores that break
//! their promises.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use btree::store::Ticks;
use btree::{AnyStore, Awaited, Beside, PageStore, StoreDone, StoreError};
use port::{Buffer, Port, Ring, Status, Time};
use workload::Rng;

use super::TreeBreak;
use crate::power::Power;

/// A drive that is gone when its power is. The world looks at it, too.
pub struct Line<P> {
    /// The drive.
    pub port: Rc<RefCell<P>>,
    /// Its power.
    pub power: Rc<Power>,
    /// Its time.
    pub clock: Rc<Cell<Time>>,
}

impl<P> Line<P> {
    fn at(&self, now: Time) -> bool {
        self.clock.set(self.clock.get().max(now));
        !self.power.is_gone()
    }
}

impl<P: Port> Port for Line<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        if self.at(now) {
            self.port.borrow_mut().submit(now, cmds);
        }
    }

    fn next_event(&self) -> Option<Time> {
        if self.power.is_gone() { None } else { self.port.borrow().next_event() }
    }

    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        if !self.at(to) {
            return;
        }
        self.port.borrow_mut().advance(to, done);
        if self.power.is_gone() {
            // What ends in the moment of the cut never reaches the host.
            while done.pop().is_some() {}
        }
    }
}

impl<P: Port> Awaited for Line<P> {
    fn wait(&mut self) -> Option<Time> {
        self.next_event()
    }
}

/// A store, and what is broken about it.
pub struct Pages {
    store: AnyStore<'static>,
    broken: Option<TreeBreak>,
    rng: Rng,
    /// Writes and flushes until one fails; then, at 0, none is taken any more.
    left: Rc<Cell<u64>>,
    /// One that fails though it is done: its number, and whether it is a flush.
    turned: Option<(u32, bool)>,
    /// What is said of what was not done.
    said: VecDeque<StoreDone>,
    now: Time,
}

impl Pages {
    /// A store that breaks this promise.
    pub fn new(store: AnyStore<'static>, broken: Option<TreeBreak>, seed: u64) -> Pages {
        let (rng, said) = (Rng::new(seed, super::STREAM + 2), VecDeque::new());
        let left = Rc::new(Cell::new(u64::MAX));
        Pages { store, broken, rng, left, turned: None, said, now: Time::ZERO }
    }

    /// A store whose write or flush fails with which `left` comes to 0, and all after it.
    pub fn failing(store: AnyStore<'static>, left: Rc<Cell<u64>>, seed: u64) -> Pages {
        Pages { left, ..Pages::new(store, None, seed) }
    }

    /// Whether an operation is not done, as it or one before it fails: that is said. The one
    /// that fails first may be done all the same.
    fn fails(&mut self, id: u32, is_flush: bool) -> bool {
        let before = self.left.get();
        self.left.set(before.saturating_sub(1));
        if before > 1 {
            return false;
        }
        if before == 1 && self.rng.one_in(2) {
            self.turned = Some((id, is_flush));
            return false;
        }
        self.said.push_back(failed(id, is_flush));
        true
    }

    fn breaks(&mut self, broken: TreeBreak, one_in: u64) -> bool {
        self.broken == Some(broken) && self.rng.below(one_in) == 0
    }
}

fn failed(id: u32, is_flush: bool) -> StoreDone {
    let error = |what| Err(StoreError::Drive { what, status: Status::WRITE_FAULT });
    match is_flush {
        true => StoreDone::Flush { id, result: error("flush") },
        false => StoreDone::Write { id, result: error("write") },
    }
}

impl PageStore for Pages {
    fn pages(&self) -> u64 {
        self.store.pages()
    }

    fn max_batch(&self) -> usize {
        self.store.max_batch()
    }

    fn best_batch(&self) -> usize {
        self.store.best_batch()
    }

    fn can_read(&self) -> bool {
        self.store.can_read()
    }

    fn read(&mut self, page: u64, buffer: Buffer) -> Result<(), Buffer> {
        self.store.read(page, buffer)
    }

    fn can_write(&self) -> bool {
        self.store.can_write()
    }

    fn give_up(&mut self, pages: &[u64]) {
        self.store.give_up(pages);
    }

    fn write(&mut self, id: u32, pages: &[u64], copy: &mut dyn FnMut(usize, &mut [u8])) {
        if self.fails(id, false) {
            return;
        }
        let mut pages = pages;
        if pages.len() > 1 && self.breaks(TreeBreak::DropPage, 16) {
            pages = &pages[..pages.len() - 1];
        }
        if self.breaks(TreeBreak::DropBatch, 16) {
            self.said.push_back(StoreDone::Write { id, result: Ok(()) });
            return;
        }
        self.store.write(id, pages, copy);
    }

    fn flush(&mut self, id: u32) -> bool {
        if self.fails(id, true) {
            return true;
        }
        if self.broken == Some(TreeBreak::FlushEarly) {
            self.said.push_back(StoreDone::Flush { id, result: Ok(()) });
            return true;
        }
        self.store.flush(id)
    }

    fn beside(&self) -> Beside {
        self.store.beside()
    }

    fn expect_beside(&mut self, blocks: u64) -> bool {
        self.store.expect_beside(blocks)
    }

    fn can_write_beside(&self) -> bool {
        self.store.can_write_beside()
    }

    fn write_beside(
        &mut self,
        id: u32,
        at: u64,
        count: usize,
        copy: &mut dyn FnMut(usize, &mut [u8]),
    ) {
        if self.fails(id, false) {
            return;
        }
        if self.breaks(TreeBreak::DropLog, 16) {
            self.said.push_back(StoreDone::Write { id, result: Ok(()) });
            return;
        }
        self.store.write_beside(id, at, count, copy);
    }

    fn poll(&mut self, now: Time, done: &mut Ring<StoreDone>) {
        self.now = self.now.max(now);
        let first = done.len();
        self.store.poll(now, done);
        for i in first..done.len() {
            let Some(one) = done.get_mut(i) else { break };
            let which = match *one {
                StoreDone::Write { id, .. } => Some((id, false)),
                StoreDone::Flush { id, .. } => Some((id, true)),
                StoreDone::Read { .. } => None,
            };
            if let Some((id, is_flush)) = which.filter(|_| which == self.turned) {
                self.turned = None;
                *one = failed(id, is_flush);
            }
        }
        while done.room() > 0
            && let Some(said) = self.said.pop_front()
        {
            done.put(|| said);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let said = (!self.said.is_empty()).then_some(self.now);
        said.or_else(|| self.store.next_event())
    }

    fn wait(&mut self) -> Option<Time> {
        let said = (!self.said.is_empty()).then_some(self.now);
        said.or_else(|| self.store.wait())
    }

    fn memory(&self) -> u64 {
        self.store.memory()
    }

    fn ticks(&self) -> Ticks {
        self.store.ticks()
    }
}
