//! Records of a log: how they are appended, and how the map learns of them.

use port::{BlockDone, BlockOp, BlockReq, Buffer};

use super::format::{Entry, Place, RecordHeader};
use super::{LogStore, Record, Task};
use crate::page::PAGE_BYTES;
use crate::store::awaited::Awaited;
use crate::store::{Lap, StoreDone};

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
    /// Appends a record, whose pages are in `buffer` behind its first block.
    /// The caller saw that there is room.
    pub(super) fn append(
        &mut self,
        mut buffer: Buffer,
        entries: &[Entry],
        id: Option<u32>,
        seals: u64,
    ) {
        let count = entries.len();
        assert!(count <= self.head_room(), "the caller saw room");
        let header = RecordHeader {
            count: count as u16,
            moves: id.is_none(),
            seq: self.head.seq,
            epoch: self.epoch,
            next: self.next,
            seals,
            flushed: self.flushed,
        };
        header.write(entries, buffer.bytes_mut());
        let place = self.head;
        let rest = (count + 1) * PAGE_BYTES;
        self.records.push_back(Record { place, count: count as u16, id, buffer: None });
        self.segments[place.segment as usize].records += 1;
        self.head.offset += count as u32 + 1;
        self.head.seq += 1;
        let front = buffer.split_to(rest);
        self.keep_rest(buffer);
        self.blocks.transfer(
            BlockOp::Write,
            self.layout.block(place),
            front,
            Task::Record(place.seq),
        );
    }

    /// Keeps the end of a buffer whose front is on its way.
    pub(super) fn keep_rest(&mut self, rest: Buffer) {
        if !rest.is_empty() {
            self.spare.push(rest);
        }
    }

    /// Puts a buffer together with its end.
    pub(super) fn whole(&mut self, mut front: Buffer) -> Buffer {
        if front.len() < self.layout.segment_blocks as usize * PAGE_BYTES {
            let rest = self.spare.iter().position(|rest| front.adjoins(rest));
            let rest = self.spare.swap_remove(rest.expect("its end was kept"));
            let joined = front.join(rest);
            assert!(joined.is_ok(), "they adjoin");
        }
        front
    }

    /// A whole buffer for a batch, if one is free.
    pub(super) fn free_buffer(&self) -> Option<usize> {
        let bytes = self.layout.segment_blocks as usize * PAGE_BYTES;
        self.spare.iter().position(|buffer| buffer.len() == bytes)
    }

    /// Lets the map learn of records, in order.
    pub(super) fn learn(&mut self) {
        while self.records.front().is_some_and(|record| record.buffer.is_some()) {
            let record = self.records.pop_front().expect("it is there");
            let mut lap = Lap::start(self.config.clock);
            let Record { place, count, id, buffer } = record;
            let buffer = self.whole(buffer.expect("it is back"));
            if self.failed.is_none() {
                self.apply(place, usize::from(count), id.is_none(), buffer.bytes());
            }
            let segment = &mut self.segments[place.segment as usize];
            segment.records -= 1;
            self.look_at(place.segment);
            match id {
                Some(id) => {
                    self.spare.push(buffer);
                    let result = self.failed.map_or(Ok(()), Err);
                    self.out.push_back(StoreDone::Write { id, result });
                }
                None => self.moving.buffer = Some(buffer),
            }
            let ticks = &mut self.ticks;
            lap.end(true, if id.is_some() { &mut ticks.writing } else { &mut ticks.collection });
        }
    }

    /// Puts a record's pages into the map.
    pub(super) fn apply(&mut self, place: Place, count: usize, moves: bool, bytes: &[u8]) {
        let first = self.layout.block(place) as u32 + 1;
        for i in 0..count {
            let Entry { page, old } = Entry::read(bytes, i);
            let was = self.map[page as usize];
            if moves && was != old {
                self.uncopy(old);
                continue;
            }
            self.map[page as usize] = first + i as u32;
            self.segments[place.segment as usize].live += 1;
            self.mapped = self.mapped.max(page + 1);
            if was == 0 {
                self.live += 1;
                continue;
            }
            let segment = self.layout.segment_of(was);
            self.segments[segment as usize].live -= 1;
            if moves {
                self.uncopy(old);
            }
            self.look_at(segment);
        }
    }

    /// The map has learned of a copy of `block`. At opening nothing was
    /// counted.
    pub(super) fn uncopy(&mut self, block: u32) {
        let number = self.layout.segment_of(block);
        let segment = &mut self.segments[number as usize];
        segment.copied = segment.copied.saturating_sub(1);
        self.look_at(number);
    }
}
