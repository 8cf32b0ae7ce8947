//! The stores of pages by their names.

use std::fmt;
use std::str::FromStr;

use super::{in_place, log};
use crate::PAGE_BYTES;

/// What keeps the pages of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreKind {
    /// A drive with batched writes.
    #[default]
    Batched,
    /// A log on the host, over the block interface.
    Log,
    /// Each page in its place with a journal, over the block interface.
    InPlace,
}

impl StoreKind {
    /// All there are.
    pub const ALL: [StoreKind; 3] = [StoreKind::Batched, StoreKind::Log, StoreKind::InPlace];

    /// The store whose head is in the first two blocks of a drive; `None` when
    /// there is no whole one.
    pub fn of(blocks: &[u8]) -> Option<StoreKind> {
        blocks.chunks_exact(PAGE_BYTES).take(2).find_map(|block| {
            let log = log::is_head(block).then_some(StoreKind::Log);
            log.or(in_place::is_head(block).then_some(StoreKind::InPlace))
        })
    }

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Batched => "batched",
            StoreKind::Log => "log",
            StoreKind::InPlace => "in-place",
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StoreKind {
    type Err = String;

    fn from_str(name: &str) -> Result<StoreKind, String> {
        let found = StoreKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("`{name}` keeps no pages: write batched, log or in-place"))
    }
}
