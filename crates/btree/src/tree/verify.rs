//! Checking that a tree is whole.

use thiserror::Error as ThisError;

use super::Tree;
use crate::error::Error;
use crate::page::{Kind, ROOM};
use crate::store::PageStore;

/// What a whole tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Records.
    pub records: u64,
    /// Leaves.
    pub leaves: u64,
    /// Pages above the leaves.
    pub inner: u64,
    /// Pages that hold long values.
    pub overflow: u64,
    /// Free pages, of those that were ever used.
    pub free: u64,
    /// Levels.
    pub levels: u64,
    /// How full the leaves are, in bytes of the room that they have, in
    /// hundredths.
    pub fill: u64,
}

/// What is wrong with a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub enum Broken {
    /// A page cannot be had.
    #[error(transparent)]
    Error(#[from] Error),
    /// Operations are under way.
    #[error("operations are under way; let them end first")]
    Busy,
    /// A page is not as it must be.
    #[error("page {page}: {what}")]
    Page {
        /// Which page.
        page: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// A page to be looked at, and what keys it may have.
struct Visit {
    page: u64,
    level: usize,
    low: Vec<u8>,
    /// All keys are below; `None` for the last page of its level.
    high: Option<Vec<u8>>,
}

/// What was found so far.
struct Walk {
    census: Census,
    used: u64,
    seen: Vec<bool>,
    todo: Vec<Visit>,
}

impl Walk {
    fn see(&mut self, page: u64) -> Result<(), Broken> {
        let broken = |what| Err(Broken::Page { page, what });
        match self.seen.get_mut(page as usize) {
            None => broken("it was never taken"),
            Some(true) => broken("two places lead to it"),
            Some(seen) => {
                *seen = true;
                Ok(())
            }
        }
    }
}

impl<S: PageStore> Tree<S> {
    /// Reads the whole tree and checks it: each page is reached once, or is
    /// free; keys are in order and where they are looked for; all leaves are
    /// on one level. Takes memory and time in proportion to the tree. No
    /// operation may be under way.
    ///
    /// # Errors
    /// What is wrong first.
    pub fn verify(&mut self) -> Result<Census, Broken> {
        if self.waiting() > 0 {
            return Err(Broken::Busy);
        }
        let seen = vec![false; self.never_used() as usize];
        let mut walk = Walk { census: Census::default(), used: 0, seen, todo: Vec::new() };
        walk.census.levels = self.height() as u64;
        walk.see(0)?;
        for page in self.free_pages()? {
            walk.see(page)?;
            walk.census.free += 1;
        }
        if walk.census.free != self.free_count() {
            return Err(Broken::Page { page: 0, what: "it counts free pages wrongly" });
        }
        let (page, level) = (self.root(), self.height() - 1);
        walk.todo.push(Visit { page, level, low: Vec::new(), high: None });
        while let Some(visit) = walk.todo.pop() {
            self.visit(visit, &mut walk)?;
        }
        match walk.seen.iter().position(|&seen| !seen) {
            Some(page) => {
                let what = "nothing leads to it, and it is not free";
                Err(Broken::Page { page: page as u64, what })
            }
            None => {
                let room = (walk.census.leaves * ROOM as u64).max(1);
                walk.census.fill = walk.used * 100 / room;
                Ok(walk.census)
            }
        }
    }

    fn visit(&mut self, visit: Visit, walk: &mut Walk) -> Result<(), Broken> {
        let Visit { page, level, low, high } = visit;
        let broken = |what| Err(Broken::Page { page, what });
        walk.see(page)?;
        let frame = self.page_now(page)?;
        let view = self.cache.view(frame);
        view.check(page).map_err(|what| Broken::Page { page, what })?;
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        if usize::from(view.level()) != level || view.kind() != Some(kind) {
            return broken("it is of another level");
        }
        let count = view.count();
        let keys: Vec<Vec<u8>> = (0..count).map(|i| view.key(i).to_vec()).collect();
        if keys.windows(2).any(|two| two[0] >= two[1]) {
            return broken("its keys are out of order");
        }
        let below = keys.first().is_some_and(|first| *first < low);
        let above = keys.last().is_some_and(|last| high.as_ref().is_some_and(|h| last >= h));
        if below || above {
            return broken("it has keys that are looked for elsewhere");
        }
        if level > 0 {
            walk.census.inner += 1;
            for i in 0..=count {
                let low = if i == 0 { low.clone() } else { keys[i - 1].clone() };
                let high = if i == count { high.clone() } else { Some(keys[i].clone()) };
                walk.todo.push(Visit { page: view.child(i), level: level - 1, low, high });
            }
            return Ok(());
        }
        walk.census.leaves += 1;
        walk.census.records += count as u64;
        walk.used += view.used() as u64;
        let long: Vec<u64> = (0..count).flat_map(|i| view.value(i).pages()).collect();
        for page in long {
            walk.see(page)?;
            let frame = self.page_now(page)?;
            if self.cache.view(frame).kind() != Some(Kind::Overflow) {
                return Err(Broken::Page { page, what: "it is no part of a long value" });
            }
            walk.census.overflow += 1;
        }
        Ok(())
    }
}
