//! Making a log, and opening one: the last checkpoint, and the records since.

use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Ring, Shape, Time};
use xxhash_rust::xxh3::Xxh3;

use super::checkpoint::{ENTRIES, PART};
use super::format::{CheckpointHeader, Entry, Place, RecordHeader, Seals};
use super::{LogConfig, LogStore, State};
use crate::page::PAGE_BYTES;
use crate::store::blocks::buffer;
use crate::store::drive::Drive;
use crate::store::{PageStore, StoreError, check_seal};

impl<D: Drive<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
    /// Makes an empty log on `drive`, whose outside is `shape`, at the time
    /// `now`. What was there is lost: the whole drive is trimmed.
    ///
    /// # Errors
    /// [`StoreError::Shape`] for a drive that is too small or keeps no data,
    /// and for numbers out of range; [`StoreError::Drive`].
    pub fn create(
        drive: D,
        shape: Shape,
        config: LogConfig,
        now: Time,
    ) -> Result<LogStore<D>, StoreError> {
        let mut log = LogStore::empty(drive, shape, config)?;
        log.blocks.advance(now);
        let blocks = shape.bytes / BLOCK_BYTES;
        log.blocks.command_now(BlockOp::Trim, blocks)?;
        log.blocks.flush_now()?;
        log.start(0, 0, 1)?;
        Ok(log)
    }

    /// Opens the log on `drive`.
    ///
    /// # Errors
    /// As for [`LogStore::create`], and [`StoreError::Unusable`] when there is
    /// no log, or its checkpoint is damaged.
    pub fn open(
        drive: D,
        shape: Shape,
        config: LogConfig,
        now: Time,
    ) -> Result<LogStore<D>, StoreError> {
        let mut log = LogStore::empty(drive, shape, config)?;
        log.blocks.advance(now);
        let header = log.find_checkpoint()?;
        log.load_map(&header)?;
        let seq = log.take_records(&header)?;
        log.start(header.number, header.epoch, seq)?;
        Ok(log)
    }

    /// Begins a new epoch behind the checkpoint `number`, with what the map
    /// has now, and writes a checkpoint.
    fn start(&mut self, number: u64, epoch: u64, seq: u64) -> Result<(), StoreError> {
        self.epoch = epoch + 1;
        for (i, segment) in self.segments.iter_mut().enumerate() {
            if segment.live > 0 {
                segment.state = State::Closed;
            } else {
                segment.state = State::Free;
                self.free.push_back(i as u32);
            }
        }
        let none = StoreError::Unusable("no segment of the log is free");
        let head = self.free.pop_front().ok_or(none)?;
        self.next = self.free.pop_front().ok_or(none)?;
        self.head = Place { segment: head, offset: 0, seq };
        for open in [head, self.next] {
            self.segments[open as usize].state = State::Open;
        }
        self.checkpoint.resume(number, self.blocks.now());
        let mut done = Ring::new(1);
        self.checkpoint_work();
        while !self.checkpoint.is_durable() {
            self.blocks.submit();
            let now = self.blocks.wait().ok_or(StoreError::Gone)?;
            // The first of a log that is not kept durable, too.
            self.blocks.advance(now);
            while let Some(finished) = self.blocks.pop() {
                let result = StoreError::drive(finished.tag.what(), finished.status);
                self.finish(finished.tag, result, finished.buffer);
            }
            self.checkpoint_work();
            if let Some(error) = self.failed {
                return Err(error);
            }
        }
        self.poll(self.blocks.now(), &mut done);
        Ok(())
    }

    fn find_checkpoint(&mut self) -> Result<CheckpointHeader, StoreError> {
        let mut block = buffer(PAGE_BYTES)?;
        let mut best: Option<CheckpointHeader> = None;
        for at in 0..2 {
            block = self.blocks.read_now(at, block)?;
            if let Some(header) = CheckpointHeader::read(block.bytes()) {
                let header = header.map_err(StoreError::Unusable)?;
                if best.is_none_or(|best| best.number < header.number) {
                    best = Some(header);
                }
            }
        }
        let header = best.ok_or(StoreError::Unusable("there is no checkpoint of a log"))?;
        if header.segment_blocks != self.layout.segment_blocks
            || header.blocks != self.layout.blocks
        {
            return Err(StoreError::Unusable("the log is for another drive or segment size"));
        }
        let fits = header.entries <= self.layout.pages
            && self.has(header.start)
            && header.next < self.layout.segments;
        if !fits {
            return Err(StoreError::Unusable("the log has more pages than the overhead allows"));
        }
        Ok(header)
    }

    fn has(&self, place: Place) -> bool {
        place.segment < self.layout.segments && place.offset <= self.layout.segment_blocks
    }

    fn load_map(&mut self, header: &CheckpointHeader) -> Result<(), StoreError> {
        let total = header.entries.div_ceil(ENTRIES);
        let (mut sum, mut at) = (Xxh3::new(), 0);
        while at < total {
            let count = PART.min(total - at);
            let part = buffer(count as usize * PAGE_BYTES)?;
            let part = self.blocks.read_now(self.layout.area(header.number) + at, part)?;
            sum.update(part.bytes());
            for (i, entry) in part.bytes().chunks_exact(4).enumerate() {
                let block = u32::from_le_bytes(entry.try_into().expect("4 bytes"));
                self.load_entry((at * ENTRIES) as usize + i, block)?;
            }
            at += count;
        }
        self.mapped = header.entries;
        if sum.digest() != header.sum {
            return Err(StoreError::Unusable("the checkpoint's map is damaged"));
        }
        Ok(())
    }

    fn load_entry(&mut self, page: usize, block: u32) -> Result<(), StoreError> {
        if block == 0 {
            return Ok(());
        }
        if !self.layout.has(block) || page >= self.map.len() {
            return Err(StoreError::Unusable("the checkpoint's map is damaged"));
        }
        self.map[page] = block;
        self.live += 1;
        self.segments[self.layout.segment_of(block) as usize].live += 1;
        Ok(())
    }

    /// Takes the records since the checkpoint, up to the first that is not
    /// whole. Gives the number of the next.
    fn take_records(&mut self, header: &CheckpointHeader) -> Result<u64, StoreError> {
        let (mut place, mut next) = (header.start, header.next);
        loop {
            let (before, after) = (place, next);
            let mut found = self.take_record(place, header.epoch)?;
            if found.is_none() && place.offset > 0 {
                place = Place { segment: next, offset: 0, seq: place.seq };
                found = self.take_record(place, header.epoch)?;
            }
            let Some(record) = found else {
                self.look_beyond(before, after, header.epoch)?;
                return Ok(place.seq);
            };
            place.offset += u32::from(record.count) + 1;
            place.seq += 1;
            next = record.next;
            self.counters.recovered += 1;
        }
    }

    /// Looks whether a record behind `place`, where none is whole, says that
    /// there was one. A block that cannot be read says nothing.
    fn look_beyond(&mut self, place: Place, next: u32, epoch: u64) -> Result<(), StoreError> {
        let count = u64::from(self.layout.segment_blocks);
        let is_later = |header: RecordHeader| header.epoch == epoch && header.flushed > place.seq;
        for segment in [place.segment, next] {
            let first = self.layout.block(Place { segment, ..Place::default() });
            let mut says = self.says(first, count, is_later);
            if let Err(StoreError::Drive { .. }) = says {
                says = Ok(false);
                for block in first..first + count {
                    match self.says(block, 1, is_later) {
                        Err(StoreError::Drive { .. }) => {}
                        one => says = Ok(says? | one?),
                    }
                }
            }
            if says? {
                return Err(StoreError::Unusable("a record of the log is damaged"));
            }
        }
        Ok(())
    }

    /// Whether a record's header among so many blocks is such a one.
    fn says(
        &mut self,
        first: u64,
        count: u64,
        is_such: impl Fn(RecordHeader) -> bool,
    ) -> Result<bool, StoreError> {
        let blocks = self.blocks.read_now(first, buffer(count as usize * PAGE_BYTES)?)?;
        let mut headers = blocks.bytes().chunks_exact(PAGE_BYTES).filter_map(RecordHeader::read);
        Ok(headers.any(is_such))
    }

    /// Takes the record at `place`, if it is there and whole.
    fn take_record(
        &mut self,
        place: Place,
        epoch: u64,
    ) -> Result<Option<RecordHeader>, StoreError> {
        let blocks = self.layout.segment_blocks;
        if place.offset + 1 >= blocks {
            return Ok(None);
        }
        let at = self.layout.block(place);
        let block = self.blocks.read_now(at, buffer(PAGE_BYTES)?)?;
        let Some(header) = RecordHeader::read(block.bytes()) else { return Ok(None) };
        let count = u32::from(header.count);
        let good = header.seq == place.seq
            && header.epoch == epoch
            && header.next < self.layout.segments
            && place.offset + 1 + count <= blocks;
        if !good {
            return Ok(None);
        }
        let pages = self.blocks.read_now(at + 1, buffer(count as usize * PAGE_BYTES)?)?;
        let mut seals = Seals::default();
        for (i, body) in pages.bytes().chunks_exact(PAGE_BYTES).enumerate() {
            let Entry { page, old } = Entry::read(block.bytes(), i);
            let Some(seal) = check_seal(page, body) else { return Ok(None) };
            seals.add(seal);
            if page >= self.layout.pages || (header.moves && !self.layout.has(old)) {
                let what = "the log has more pages than the overhead allows";
                return Err(StoreError::Unusable(what));
            }
        }
        if seals.sum() != header.seals {
            return Ok(None);
        }
        self.apply(place, usize::from(header.count), header.moves, block.bytes());
        Ok(Some(header))
    }
}
