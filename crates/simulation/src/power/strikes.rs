//! What faults struck: which copies could not be read, which chunks are of no use.
//!
//! Below parity a read that fails is noted first, and is a strike only if the block cannot
//! be rebuilt; see `rebuilt`.

use std::collections::BTreeSet;
use std::ops::Range;

use device::VectorOp;
use flash::{BlockBits, ChunkState, Medium, Moved, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, SECTOR_BYTES, Status};

use super::{Flash, Remains};
use crate::shared::Home;
use crate::trouble::Strike;

/// The least tag id of a target's own blocks.
const OWN: u64 = 1 << 56;

/// What parity did not get of its members, and did not do, since power came.
#[derive(Default)]
pub(super) struct BelowParity {
    /// Reads that failed, and whether the block could be rebuilt then.
    unread: Vec<(Ppa, bool)>,
    /// Superblocks that took no more writes, by the first of their members.
    closed: BTreeSet<usize>,
}

impl Remains {
    /// Whether a block was programmed, and can be read as far as its chunk says.
    fn is_there(&self, at: Ppa) -> bool {
        let (chunk, block) = (&self.chunks[self.geometry.chunk_index(at)], self.geometry.block(at));
        chunk.state != ChunkState::Offline
            && block < chunk.programmed
            && chunk.failed_of(block, 1) == 0
    }

    /// What the copy at `at` is of.
    fn strike(&mut self, at: Ppa) -> Option<Strike> {
        let mut tag = [0; TAG_BYTES];
        let index = self.geometry.chunk_index(at);
        let first = match self.homes.get(index) {
            None => 0,
            Some(&Home::Blocks(first)) => first,
            Some(Home::Keys) => return Some(Strike::Keys),
        };
        let chunk = &self.chunks[index];
        if chunk.failed_of(self.geometry.block(at), 1) != 0 {
            // It was never programmed.
            return None;
        }
        if self.truth(at, &mut [], &mut tag) != Moved::Done {
            return None;
        }
        let block = Tag::load(&tag).id;
        if block == u64::MAX {
            return None;
        } else if block >= OWN {
            return Some(Strike::Own { first, id: block });
        }
        // Whole, where it was stored so, else as much as is kept.
        let kept = self.medium.kept() as usize;
        for bytes in [BLOCK_BYTES as usize, kept] {
            let mut data = vec![0; bytes];
            if self.truth(at, &mut data, &mut []) == Moved::Done {
                let block = first + block;
                return Some(Strike::Copy { block, values: words(&data[..kept]) });
            }
        }
        None
    }

    /// The copy at `at` cannot be read by the target.
    fn lose(&mut self, at: Ppa) {
        self.struck.reads += 1;
        let strike = self.strike(at);
        self.struck.keys += u64::from(strike == Some(Strike::Keys));
        self.strikes.extend(strike);
    }
}

/// The first word of each sector of a block, or of all that is kept of it.
fn words(data: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    data.chunks(SECTOR_BYTES as usize).map(word).collect()
}

impl Flash {
    /// Takes note of an operation of the drive that failed: what it concerned. `failed` says
    /// which of its addresses.
    pub fn note_failed(
        &self,
        op: VectorOp,
        at: impl Fn(usize) -> Ppa,
        status: Status,
        failed: BlockBits,
    ) {
        let remains = &mut *self.remains.borrow_mut();
        match op {
            VectorOp::Read if status == Status::UNRECOVERED_READ => {
                for i in (0..BlockBits::BITS as usize).filter(|i| failed >> i & 1 == 1) {
                    let Some(superblocks) = &remains.superblocks else {
                        remains.lose(at(i));
                        continue;
                    };
                    let mut others = superblocks.others(at(i));
                    let all = remains.is_there(at(i)) && others.all(|at| remains.is_there(at));
                    remains.struck.members += 1;
                    remains.below.unread.push((at(i), all));
                }
            }
            // A copy is sent with the address that it writes to.
            VectorOp::Write | VectorOp::Copy => {
                remains.struck.programs += 1;
                let chunk = remains.geometry.chunk_index(at(0));
                remains.failed[chunk] = true;
            }
            VectorOp::Reset => {
                remains.struck.erases += 1;
                let chunk = remains.geometry.chunk_index(at(0));
                remains.failed[chunk] = true;
            }
            _ => {}
        }
    }

    /// Reads of members that failed since power came.
    pub(crate) fn unread_members(&self) -> usize {
        self.remains.borrow().below.unread.len()
    }

    /// Parity did not give the block at `above`: a strike, if it had reason to since so many
    /// reads of members had failed.
    pub(crate) fn note_lost(&self, above: Ppa, before: usize) {
        let remains = &mut *self.remains.borrow_mut();
        let superblocks = remains.superblocks.as_ref().expect("there is parity");
        let home = superblocks.home(above);
        let since = &remains.below.unread[before..];
        let own = since.iter().rev().find(|(at, _)| *at == home);
        let can_be_rebuilt = own.map(|&(_, can)| can);
        let is_lost = own.is_some() || !remains.is_there(home);
        let failed = |at: Ppa| since.iter().any(|(unread, _)| *unread == at);
        if is_lost && (can_be_rebuilt != Some(true) || superblocks.others(home).any(failed)) {
            remains.lose(home);
        }
    }

    /// A write or reset of a superblock failed: it is of no more use, if anything of its
    /// members failed.
    pub(crate) fn note_closed(&self, above: Ppa) {
        let remains = &mut *self.remains.borrow_mut();
        let superblocks = remains.superblocks.as_ref().expect("there is parity");
        let members: Vec<usize> = superblocks.members_of(above).collect();
        let of_these = |(at, _): &(Ppa, bool)| members.contains(&remains.geometry.chunk_index(*at));
        if remains.below.unread.iter().any(of_these) {
            remains.struck.closed += u64::from(remains.below.closed.insert(members[0]));
        }
    }

    /// Takes what was struck since this was last asked.
    pub fn take_strikes(&self) -> Vec<Strike> {
        std::mem::take(&mut self.remains.borrow_mut().strikes)
    }

    /// How many of a unit's chunks of these numbers are of no use to a target:
    /// given up, or a program or an erase of them failed; under parity, of a member.
    pub fn hurt(&self, pu: usize, numbers: Range<u32>) -> u32 {
        let remains = self.remains.borrow();
        let is_hurt = |chunk: usize| {
            let held = &remains.chunks[chunk];
            remains.failed[chunk] || held.state == ChunkState::Offline || held.has_failed()
        };
        let hurt = |number: u32| match &remains.superblocks {
            None => is_hurt(remains.geometry.chunk_of(pu, number)),
            Some(superblocks) => superblocks
                .members(pu, number)
                .any(|chunk| is_hurt(chunk) || remains.below.closed.contains(&chunk)),
        };
        numbers.map(|number| u32::from(hurt(number))).sum()
    }
}
