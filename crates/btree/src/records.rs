//! What keeps records by key, one way or the other: a tree of pages, or a drive that
//! keeps values by key.
//!
//! Guarantees: what both promise. Batches of several writes are whole only in a tree,
//! which [`Records::is_ordered`] tells: with a drive each write is asked for by itself.

use port::Time;

use crate::error::Error;
use crate::keyed::Keyed;
use crate::op::{Sink, Write};
use crate::page::MAX_VALUE;
use crate::store::{AnyStore, PageStore};
use crate::tree::Tree;

/// A tree, or a drive that keeps values by key.
pub enum Records<'a> {
    /// A tree of pages.
    Tree(Box<Tree<AnyStore<'a>>>),
    /// A drive.
    Drive(Box<Keyed<'a>>),
}

impl<'a> From<Tree<AnyStore<'a>>> for Records<'a> {
    fn from(tree: Tree<AnyStore<'a>>) -> Records<'a> {
        Records::Tree(Box::new(tree))
    }
}

impl<'a> Records<'a> {
    /// The tree, where it is one.
    pub fn tree(&self) -> Option<&Tree<AnyStore<'a>>> {
        match self {
            Records::Tree(tree) => Some(tree),
            Records::Drive(_) => None,
        }
    }

    /// Whether it has an order of keys, and batches.
    pub fn is_ordered(&self) -> bool {
        self.tree().is_some()
    }

    /// Memory for pages or values, in bytes.
    pub fn memory(&self) -> u64 {
        match self {
            Records::Tree(tree) => tree.memory(),
            Records::Drive(drive) => drive.memory(),
        }
    }

    /// Bytes of the longest value.
    pub fn longest(&self) -> usize {
        match self {
            Records::Tree(_) => MAX_VALUE,
            Records::Drive(drive) => drive.longest(),
        }
    }

    /// Why it takes no more changes, where a write of it failed. What a drive that keeps values
    /// by key failed to do it says of each.
    #[inline]
    pub fn failure(&self) -> Option<Error> {
        self.tree().and_then(Tree::failure)
    }

    /// Operations that wait.
    #[inline]
    pub fn waiting(&self) -> usize {
        match self {
            Records::Tree(tree) => tree.waiting(),
            Records::Drive(drive) => drive.waiting(),
        }
    }

    /// Looks a key up. With `head` so many of the first bytes of its value are enough;
    /// there may be more.
    ///
    /// # Errors
    /// As [`Tree::get`]; so of all that follow.
    #[inline]
    pub fn get(
        &mut self,
        tag: u64,
        key: &[u8],
        head: Option<usize>,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        match self {
            Records::Tree(tree) => tree.get(tag, key, sink),
            Records::Drive(drive) => drive.get(tag, key, head, sink),
        }
    }

    /// Gives a key a value.
    #[inline]
    pub fn put(
        &mut self,
        tag: u64,
        key: &[u8],
        value: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        match self {
            Records::Tree(tree) => tree.put(tag, key, value, sink),
            Records::Drive(drive) => drive.put(tag, key, value, sink),
        }
    }

    /// Takes a key out.
    pub fn delete(&mut self, tag: u64, key: &[u8], sink: &mut impl Sink) -> Result<(), Error> {
        match self {
            Records::Tree(tree) => tree.delete(tag, key, sink),
            Records::Drive(drive) => drive.delete(tag, key),
        }
    }

    /// Gives up to `count` records: of a tree from `key` on in the order of the keys; of
    /// a drive those behind `key` in its own order, without their values.
    pub fn scan(
        &mut self,
        tag: u64,
        key: &[u8],
        count: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        match self {
            Records::Tree(tree) => tree.scan(tag, key, count, sink),
            Records::Drive(drive) => drive.scan(tag, key, count, sink),
        }
    }

    /// Does all of `writes` or none. A drive has no batches.
    ///
    /// # Panics
    /// On a drive.
    pub fn batch(
        &mut self,
        tag: u64,
        writes: &[Write<'_>],
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        match self {
            Records::Tree(tree) => tree.batch(tag, writes, sink),
            Records::Drive(_) => unreachable!("each write is asked for by itself"),
        }
    }

    /// Makes what was done so far durable.
    pub fn flush(&mut self, tag: u64) -> Result<(), Error> {
        match self {
            Records::Tree(tree) => tree.flush(tag),
            Records::Drive(drive) => drive.flush(tag),
        }
    }

    /// Lets happen what is due at `now`.
    #[inline]
    pub fn poll(&mut self, now: Time, sink: &mut impl Sink) {
        match self {
            Records::Tree(tree) => tree.poll(now, sink),
            Records::Drive(drive) => drive.poll(now, sink),
        }
    }

    /// When to poll next.
    #[inline]
    pub fn next_event(&self) -> Option<Time> {
        match self {
            Records::Tree(tree) => tree.next_event(),
            Records::Drive(drive) => drive.next_event(),
        }
    }

    /// Waits, if there is anything to wait for, and polls. False when nothing will ever
    /// happen.
    pub fn wait(&mut self, sink: &mut impl Sink) -> bool {
        match self {
            Records::Tree(tree) => tree.wait(sink),
            Records::Drive(drive) => drive.wait(sink),
        }
    }

    /// Waits until something happens in the drive. Gives the time when to poll; `None`
    /// when nothing will.
    pub fn wait_for_drive(&mut self) -> Option<Time> {
        match self {
            Records::Tree(tree) => tree.store_mut().wait(),
            Records::Drive(drive) => drive.drive_mut().wait(),
        }
    }
}
