//! What faults struck: which copies could not be read, which chunks are of no use.
//!
//! Below parity a read that fails is noted first, and is a strike only if the block cannot
//! be rebuilt; see `rebuilt`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use device::VectorOp;
use flash::{BlockBits, Cause, Chunk, ChunkState, Medium, Moved, Ppa, TAG_BYTES, Tag};
use port::{BLOCK_BYTES, SECTOR_BYTES, Status};

use super::{Flash, Remains};
use crate::shared::Home;
use crate::trouble::Strike;

/// The least tag id of a target's own blocks.
const OWN: u64 = 1 << 56;

/// How often parity reads a row that it needs to go on with a superblock.
const TRIES: usize = 3;

/// What parity did not get of its members, and did not do, since power came.
#[derive(Default)]
pub(super) struct BelowParity {
    /// Blocks that reads did not give, in the order of these.
    unread: Vec<Unread>,
    /// How many reads did not give some.
    reads: usize,
    /// Superblocks that took no more writes, by the first of their members.
    closed: BTreeSet<usize>,
}

/// A block that a read of a member did not give.
struct Unread {
    at: Ppa,
    /// Whether it could be rebuilt then.
    can_be_rebuilt: bool,
    /// The number of that read.
    read: usize,
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

    /// Whether a program is one that puts a row back from under whose parity a cut took it,
    /// and fails.
    pub(super) fn fails_to_put_back(&mut self, at: Ppa) -> bool {
        let (Some(superblocks), Some(all)) = (&self.superblocks, self.put_back) else {
            return false;
        };
        let others_are_there = superblocks.others(at).all(|at| self.is_there(at));
        let is_one = others_are_there && !superblocks.is_parity(at);
        self.put_back = Some(all + u64::from(is_one));
        is_one && all.is_multiple_of(2)
    }

    /// Parity gives up a chunk that it can write to only with a reason: a program or erase of
    /// a member failed, or the superblock took no more writes.
    pub(super) fn note_given_up(&mut self, index: usize, chunk: &Chunk) {
        let Some(superblocks) = &self.superblocks else { return };
        let is_retired = chunk.state == ChunkState::Offline && chunk.cause == Cause::Retired;
        if !is_retired || self.chunks[index].state == ChunkState::Offline {
            return;
        }
        let members: Vec<usize> = superblocks.members_with(index).collect();
        let has_failed = |&member: &usize| {
            let held = &self.chunks[member];
            self.failed[member] || held.state == ChunkState::Offline || held.has_failed()
        };
        if !members.iter().any(has_failed) && !self.to_give_up.contains(&members[0]) {
            self.given_up.insert(index);
        }
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
                remains.below.reads += 1;
                for i in (0..BlockBits::BITS as usize).filter(|i| failed >> i & 1 == 1) {
                    let Some(superblocks) = &remains.superblocks else {
                        remains.lose(at(i));
                        continue;
                    };
                    let can_be_rebuilt = superblocks.others(at(i)).all(|at| remains.is_there(at));
                    remains.struck.members += 1;
                    let read = remains.below.reads;
                    remains.below.unread.push(Unread { at: at(i), can_be_rebuilt, read });
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
        let own = since.iter().rev().find(|unread| unread.at == home);
        let is_lost = own.is_some() || !remains.is_there(home);
        // What a cut took nobody read.
        let can_be_rebuilt = own.map_or_else(
            || superblocks.others(home).all(|at| remains.is_there(at)),
            |own| own.can_be_rebuilt,
        );
        let failed = |at: Ppa| since.iter().any(|unread| unread.at == at);
        if is_lost && (!can_be_rebuilt || superblocks.others(home).any(failed)) {
            remains.lose(home);
        }
    }

    /// A write to a superblock failed: it is of no more use if a row of its members, which
    /// may be needed to go on, was not read in all tries since so many reads of members had
    /// failed, which was when that write came.
    pub(crate) fn note_closed(&self, above: Ppa, before: usize) {
        let remains = &mut *self.remains.borrow_mut();
        let superblocks = remains.superblocks.as_ref().expect("there is parity");
        let members: Vec<usize> = superblocks.members_of(above).collect();
        let geometry = &remains.geometry;
        let row = |at: Ppa| (geometry.chunk_index(at), geometry.block(at) / geometry.row_blocks());
        let mut tries: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
        for unread in &remains.below.unread[before..] {
            tries.entry(row(unread.at)).or_default().insert(unread.read);
        }
        let is_given_up = |((chunk, _), tries): (&(usize, u32), &BTreeSet<usize>)| {
            members.contains(chunk) && tries.len() >= TRIES
        };
        if tries.iter().any(is_given_up) {
            remains.struck.closed += u64::from(remains.below.closed.insert(members[0]));
            remains.to_give_up.insert(members[0]);
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
            if remains.given_up.contains(&chunk) {
                return false;
            }
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

#[cfg(test)]
mod tests {
    use flash::{Dimensions, FailedRun, Geometry};

    use super::*;
    use crate::setup::Setup;
    use crate::superblocks::Superblocks;

    /// Flash below parity of width 3, with power: four rows of two blocks a chunk. Each
    /// member of superblock 0 has so many blocks.
    fn flash(programmed: [u32; 3]) -> (Flash, Setup) {
        let dim = Dimensions { groups: 3, chunks: 4, pages: 4, planes: 2, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let setup = Setup { geometry, parity: 3, ..Setup::sound(0) };
        let mut flash = Flash::new(&setup, None, 0).unwrap();
        flash.power().on(u64::MAX);
        for (group, blocks) in (0..).zip(programmed) {
            describe(&mut flash, group, Chunk { programmed: blocks, ..Chunk::default() });
        }
        (flash, setup)
    }

    fn describe(flash: &mut Flash, group: u32, chunk: Chunk) {
        let index = {
            let geometry = &flash.remains.borrow().geometry;
            geometry.chunk_index(geometry.ppa(group, 0, 0, 0))
        };
        flash.describe(index, &chunk);
    }

    /// The first block above, and the member that has it.
    fn first(setup: &Setup) -> (Ppa, u32) {
        let above = setup.seen().ppa(0, 0, 0, 0);
        let home = Superblocks::of(setup).unwrap().home(above);
        (above, setup.geometry.pu_index(home) as u32)
    }

    /// Reads of this block of a member fail, so often.
    fn fail(flash: &Flash, at: Ppa, times: u32) {
        for _ in 0..times {
            flash.note_failed(VectorOp::Read, |_| at, Status::UNRECOVERED_READ, 1);
        }
    }

    #[test]
    fn what_a_cut_took_is_lost_only_where_another_is_missing() {
        let (mut flash, setup) = flash([8; 3]);
        let (above, member) = first(&setup);
        describe(&mut flash, member, Chunk::default());
        flash.note_lost(above, 0);
        assert_eq!(flash.struck().reads, 0, "all others have it");
        describe(&mut flash, (member + 1) % 3, Chunk::default());
        flash.note_lost(above, 0);
        assert_eq!(flash.struck().reads, 1);
    }

    #[test]
    fn what_a_cut_took_is_lost_where_another_is_not_read() {
        let (mut flash, setup) = flash([8; 3]);
        let (above, member) = first(&setup);
        describe(&mut flash, member, Chunk::default());
        fail(&flash, setup.geometry.ppa((member + 1) % 3, 0, 0, 0), 1);
        flash.note_lost(above, 1);
        assert_eq!(flash.struck().reads, 0, "that was before");
        flash.note_lost(above, 0);
        assert_eq!(flash.struck().reads, 1);
    }

    #[test]
    fn a_row_that_could_not_be_put_back_can_be_rebuilt() {
        let (mut flash, setup) = flash([8; 3]);
        let (above, member) = first(&setup);
        let mut chunk = Chunk { programmed: 8, ..Chunk::default() };
        chunk.failed[0] = FailedRun::new(0, 2);
        describe(&mut flash, member, chunk);
        fail(&flash, setup.geometry.ppa(member, 0, 0, 0), 2);
        flash.note_lost(above, 0);
        assert_eq!(flash.struck().reads, 0, "all others have it");
    }

    #[test]
    fn a_block_that_its_member_has_and_nobody_failed_to_read_is_not_lost() {
        let (mut flash, setup) = flash([8; 3]);
        let (above, member) = first(&setup);
        describe(&mut flash, (member + 1) % 3, Chunk::default());
        flash.note_lost(above, 0);
        assert_eq!(flash.struck().reads, 0);
    }

    #[test]
    fn a_superblock_is_closed_by_a_row_that_was_not_read_in_all_tries() {
        let closed = |reads: &[(u32, u32, u32)], before| {
            let (flash, setup) = flash([8; 3]);
            let above = setup.seen().ppa(0, 0, 0, 3);
            let geometry = &setup.geometry;
            reads.iter().for_each(|&(group, chunk, block)| {
                fail(&flash, geometry.ppa(group, 0, chunk, block), 1);
            });
            flash.note_closed(above, before);
            let hurt = flash.hurt(0, 0..1);
            assert_eq!(u64::from(hurt), flash.struck().closed);
            hurt == 1
        };
        assert!(closed(&[(1, 0, 2), (1, 0, 3), (1, 0, 2)], 0), "one row, three times");
        assert!(!closed(&[(1, 0, 2), (1, 0, 3), (1, 0, 2)], 1), "once before the write came");
        assert!(!closed(&[(1, 0, 2), (1, 0, 2), (1, 0, 4)], 0), "another row");
        assert!(!closed(&[(1, 0, 2), (1, 0, 2), (2, 0, 2)], 0), "of another member");
        assert!(!closed(&[(1, 1, 2), (1, 1, 2), (1, 1, 2)], 0), "of another superblock");
    }

    #[test]
    fn what_is_given_up_without_a_reason_is_not_hurt() {
        let retired =
            || Chunk { state: ChunkState::Offline, cause: Cause::Retired, ..Chunk::default() };
        let (mut flash, setup) = flash([8; 3]);
        describe(&mut flash, 0, retired());
        assert_eq!(flash.hurt(0, 0..1), 0);
        let (mut flash, _) = super::tests::flash([8; 3]);
        (0..3).for_each(|_| fail(&flash, setup.geometry.ppa(1, 0, 0, 2), 1));
        flash.note_closed(setup.seen().ppa(0, 0, 0, 0), 0);
        describe(&mut flash, 0, retired());
        assert_eq!(flash.hurt(0, 0..1), 1, "it took no more writes");
        let (mut flash, _) = super::tests::flash([8; 3]);
        let mut chunk = Chunk { programmed: 8, ..Chunk::default() };
        chunk.failed[0] = FailedRun::new(0, 2);
        describe(&mut flash, 1, chunk);
        describe(&mut flash, 0, retired());
        describe(&mut flash, 1, Chunk::default());
        assert_eq!(flash.hurt(0, 0..1), 1, "a program failed");
    }

    #[test]
    fn a_read_of_several_blocks_is_one_try() {
        let (flash, setup) = flash([8; 3]);
        let start = setup.geometry.ppa(1, 0, 0, 2).0;
        let at = |i: usize| Ppa(start + i as u64);
        (0..2).for_each(|_| flash.note_failed(VectorOp::Read, at, Status::UNRECOVERED_READ, 3));
        flash.note_closed(setup.seen().ppa(0, 0, 0, 0), 0);
        assert_eq!((flash.struck().closed, flash.unread_members()), (0, 4));
    }
}
