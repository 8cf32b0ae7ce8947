//! Who may stage how many, where several cores share a staging queue.
//!
//! Guarantees: while nobody finds the queue full, each core may stage as many
//! as fit. While somebody does, none stages more than the queue's depth divided
//! by those that have something staged or want to, and one at least: so who
//! found no room finds it before the others stage more. Where there are more
//! cores than places, the first to come has the next.

use super::{Table, core_of};

/// What each core has staged, and wants to.
#[derive(Debug)]
pub(super) struct Shares {
    /// By core; nothing where there is but one.
    cores: Box<[Share]>,
    /// Cores that found no room.
    pub short: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Its entries in the queue; a merged one is its that came first.
    staged: u32,
    refused: bool,
}

impl Shares {
    /// Those of so many cores.
    pub fn new(cores: usize) -> Shares {
        Shares { cores: vec![Share::default(); cores].into_boxed_slice(), short: 0 }
    }

    /// Bytes of memory that they take.
    pub fn bytes(cores: usize) -> u64 {
        (cores * size_of::<Share>()) as u64
    }

    /// Counts entries of a core.
    #[inline]
    pub fn count(&mut self, core: u32, more: i32) {
        if let Some(share) = self.cores.get_mut(core_of(core) as usize) {
            share.staged = share.staged.wrapping_add_signed(more);
        }
    }

    /// Says whether a core found no room.
    pub fn say_refused(&mut self, core: u32, refused: bool) {
        let Some(share) = self.cores.get_mut(core as usize) else { return };
        let before = std::mem::replace(&mut share.refused, refused);
        self.short = self.short + u32::from(refused) - u32::from(before);
    }

    /// How many more a core may stage while some found no room.
    #[cold]
    pub fn room_for(&self, core: u32, table: &Table) -> usize {
        let own = self.cores.get(core as usize).copied().unwrap_or_default();
        if self.short == u32::from(own.refused) {
            return table.room();
        }
        let wants = |share: &&Share| share.staged > 0 || share.refused;
        let users = self.cores.iter().filter(wants).count();
        let depth = table.room() + table.live();
        let part = (depth / users.max(1)).max(1);
        part.saturating_sub(own.staged as usize).min(table.room())
    }
}
