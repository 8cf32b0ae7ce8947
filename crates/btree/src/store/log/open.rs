//! Making a log, and opening one: the last checkpoint, and the records since.

use port::{BLOCK_BYTES, BlockDone, BlockReq, Ring, Shape, Time};
use xxhash_rust::xxh3::Xxh3;

use super::checkpoint::{ENTRIES, PART};
use super::format::{CheckpointHeader, Entry, Place, RecordHeader, Seals};
use super::{LogConfig, LogStore, Segment, State};
use crate::page::PAGE_BYTES;
use crate::store::awaited::Awaited;
use crate::store::blocks::{buffer, is_blank};
use crate::store::{PageStore, StoreError, check_seal};

/// What is where a record should be.
enum Found {
    Whole(RecordHeader),
    /// One of which this block is the first that is blank.
    Cut(u64),
    /// A block that no write has left so.
    Damaged(u64),
    /// Nothing, or what was there before the last checkpoint.
    Absent,
}

/// What later records say of one.
#[derive(Default)]
struct Beyond {
    /// That it was durable.
    tells: bool,
    /// Which segment comes after theirs.
    next: Option<u32>,
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> LogStore<D> {
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
        let blocks = LogStore::<D>::blocks(drive, shape, &config)?;
        let mut log = LogStore::empty(blocks, shape, config, config.redo)?;
        log.blocks.advance(now);
        let blocks = shape.bytes / BLOCK_BYTES;
        log.blocks.trim_now(0, blocks)?;
        log.blocks.flush_now()?;
        log.start(0, 0, 1)?;
        log.poll(log.blocks.now(), &mut Ring::new(1));
        Ok(log)
    }

    /// Opens the log on `drive`.
    ///
    /// # Errors
    /// As for [`LogStore::create`], and [`StoreError::Unusable`] when there is
    /// no log, or its map is damaged, and [`StoreError::DamagedBlock`] when a
    /// checkpoint or a record is, or a durable record is lost.
    pub fn open(
        drive: D,
        shape: Shape,
        config: LogConfig,
        now: Time,
    ) -> Result<LogStore<D>, StoreError> {
        let mut blocks = LogStore::<D>::blocks(drive, shape, &config)?;
        blocks.advance(now);
        let redo = blocks.beside(|block| Some(CheckpointHeader::read(block)?.ok()?.beside))?;
        let mut log = LogStore::empty(blocks, shape, config, redo)?;
        let header = log.find_checkpoint()?;
        log.load_map(&header)?;
        let seq = log.take_records(&header)?;
        log.start(header.number, header.epoch, seq)?;
        log.trim_free()?;
        log.poll(log.blocks.now(), &mut Ring::new(1));
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
        Ok(())
    }

    /// Makes all segments that are to be written blank: what opening read of them
    /// it reads no more.
    fn trim_free(&mut self) -> Result<(), StoreError> {
        let live = |segment: &Segment| segment.live > 0;
        let mut at = 0;
        while let Some(first) = self.segments[at..].iter().position(|one| !live(one)) {
            let first = at + first;
            let count = self.segments[first..].iter().position(live);
            at = count.map_or(self.segments.len(), |count| first + count);
            let block = self.layout.block(Place { segment: first as u32, ..Place::default() });
            let count = (at - first) as u64 * u64::from(self.layout.segment_blocks);
            self.blocks.trim_now(block, count)?;
        }
        self.blocks.flush_now()
    }

    /// The newer header. Both are whole, whatever was cut, but that the first
    /// checkpoint has none before it. The older one alone would take older
    /// pages for those that hold.
    fn find_checkpoint(&mut self) -> Result<CheckpointHeader, StoreError> {
        let mut block = buffer(PAGE_BYTES)?;
        let (mut headers, mut blank) = ([None; 2], [false; 2]);
        for at in 0..2 {
            block = self.blocks.read_now(at as u64, block)?;
            let header = CheckpointHeader::read(block.bytes()).transpose();
            headers[at] = header.map_err(StoreError::Unusable)?;
            blank[at] = is_blank(block.bytes());
        }
        let header = match headers {
            [Some(even), Some(odd)] if even.number > odd.number => even,
            [Some(_), Some(odd)] => odd,
            [None, Some(odd)] if blank[0] && odd.number == 1 => odd,
            [None, None] => return Err(StoreError::Unusable("there is no checkpoint of a log")),
            [even, _] => {
                let block = even.is_some().into();
                return Err(StoreError::DamagedBlock { block, what: "a checkpoint of the log" });
            }
        };
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
            let turned = Place { segment: next, offset: 0, seq: place.seq };
            let mut found = [self.take_record(place, header.epoch)?, Found::Absent];
            if place.offset > 0 && !matches!(found[0], Found::Whole(_)) {
                found[1] = self.take_record(turned, header.epoch)?;
            }
            let record = match found {
                [Found::Whole(record), _] => record,
                [_, Found::Whole(record)] => {
                    place = turned;
                    record
                }
                [here, there] => {
                    self.look_beyond(place, next, header.epoch, [here, there])?;
                    return Ok(place.seq);
                }
            };
            place.offset += u32::from(record.count) + 1;
            place.seq += 1;
            next = record.next;
            self.counters.recovered += 1;
        }
    }

    /// Fails if there was a record at `place`, where none is whole: what was
    /// found there and at the start of the segment `next` was damaged, or a later
    /// record says that there was one.
    fn look_beyond(
        &mut self,
        place: Place,
        next: u32,
        epoch: u64,
        found: [Found; 2],
    ) -> Result<(), StoreError> {
        let damaged = found.iter().find_map(|found| match found {
            Found::Damaged(block) => Some(*block),
            _ => None,
        });
        let cut = found.iter().find_map(|found| match found {
            Found::Cut(block) => Some(*block),
            _ => None,
        });
        if damaged.is_some() || self.chain_tells(place, next, epoch)? {
            let block = damaged.or(cut).unwrap_or(self.layout.block(place));
            return Err(StoreError::DamagedBlock { block, what: "a record of the log" });
        }
        Ok(())
    }

    /// Whether a record behind `place` in its segment, or in those that were
    /// written after it, says that the one there was durable.
    fn chain_tells(&mut self, place: Place, next: u32, epoch: u64) -> Result<bool, StoreError> {
        if self.beyond(place.segment, place.seq, epoch)?.tells {
            return Ok(true);
        }
        let mut segment = next;
        for _ in 0..self.layout.segments {
            let beyond = self.beyond(segment, place.seq, epoch)?;
            match beyond.next {
                _ if beyond.tells => return Ok(true),
                Some(next) if next < self.layout.segments => segment = next,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// What the records of a segment from the record `seq` on say of that. A
    /// block that cannot be read says nothing.
    fn beyond(&mut self, segment: u32, seq: u64, epoch: u64) -> Result<Beyond, StoreError> {
        let count = u64::from(self.layout.segment_blocks);
        let first = self.layout.block(Place { segment, ..Place::default() });
        let mut beyond = Beyond::default();
        let whole = self.say(first, count, seq, epoch, &mut beyond);
        let Err(StoreError::Drive { .. }) = whole else { return whole.map(|()| beyond) };
        for block in first..first + count {
            match self.say(block, 1, seq, epoch, &mut beyond) {
                Ok(()) | Err(StoreError::Drive { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(beyond)
    }

    fn say(
        &mut self,
        first: u64,
        count: u64,
        seq: u64,
        epoch: u64,
        beyond: &mut Beyond,
    ) -> Result<(), StoreError> {
        let blocks = self.blocks.read_now(first, buffer(count as usize * PAGE_BYTES)?)?;
        let headers = blocks.bytes().chunks_exact(PAGE_BYTES).filter_map(RecordHeader::read);
        for header in headers.filter(|header| header.epoch == epoch && header.seq >= seq) {
            beyond.tells |= header.flushed > seq;
            beyond.next = Some(header.next);
        }
        Ok(())
    }

    /// Takes the record at `place`, if it is there and whole.
    fn take_record(&mut self, place: Place, epoch: u64) -> Result<Found, StoreError> {
        let blocks = self.layout.segment_blocks;
        if place.offset + 1 >= blocks {
            return Ok(Found::Absent);
        }
        let at = self.layout.block(place);
        let block = self.blocks.read_now(at, buffer(PAGE_BYTES)?)?;
        let Some(header) = RecordHeader::read(block.bytes()) else {
            let blank = is_blank(block.bytes());
            return Ok(if blank { Found::Absent } else { Found::Damaged(at) });
        };
        let count = u32::from(header.count);
        let good = header.seq == place.seq
            && header.epoch == epoch
            && header.next < self.layout.segments
            && place.offset + 1 + count <= blocks;
        if !good {
            return Ok(Found::Absent);
        }
        let pages = self.blocks.read_now(at + 1, buffer(count as usize * PAGE_BYTES)?)?;
        let mut seals = Seals::default();
        for (i, body) in pages.bytes().chunks_exact(PAGE_BYTES).enumerate() {
            let Entry { page, old } = Entry::read(block.bytes(), i);
            let Some(seal) = check_seal(page, body) else {
                let block = at + 1 + i as u64;
                let blank = is_blank(body);
                return Ok(if blank { Found::Cut(block) } else { Found::Damaged(block) });
            };
            seals.add(seal);
            if page >= self.layout.pages || (header.moves && !self.layout.has(old)) {
                let what = "the log has more pages than the overhead allows";
                return Err(StoreError::Unusable(what));
            }
        }
        if seals.sum() != header.seals {
            return Ok(Found::Damaged(at + 1));
        }
        self.apply(place, usize::from(header.count), header.moves, block.bytes());
        Ok(Found::Whole(header))
    }
}
