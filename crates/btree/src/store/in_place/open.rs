//! Making a store in place, and opening one: all that the journal holds is
//! looked at before anything is written.

use port::{BLOCK_BYTES, BlockDone, BlockReq, Buffer, Shape, Time};
use xxhash_rust::xxh3::Xxh3;

use super::format::{Header, Root};
use super::{InPlaceConfig, InPlaceStore, SLOTS};
use crate::page::PAGE_BYTES;
use crate::store::awaited::Awaited;
use crate::store::blocks::{buffer, is_blank};
use crate::store::{StoreError, check_seal};

/// What is in a record's slot.
enum Found {
    /// The record: its header, and its pages.
    Whole(Buffer, Buffer),
    /// Not the record, or not all of it: the first block that is not right.
    Broken(u64),
}

impl<D: Awaited<Cmd = BlockReq, Done = BlockDone>> InPlaceStore<D> {
    /// Makes an empty store on `drive`, whose outside is `shape`, at the time
    /// `now`. What was there is lost.
    ///
    /// # Errors
    /// [`StoreError::Shape`] for a drive that is too small or keeps no data;
    /// [`StoreError::Drive`].
    pub fn create(
        drive: D,
        shape: Shape,
        config: InPlaceConfig,
        now: Time,
    ) -> Result<InPlaceStore<D>, StoreError> {
        let blocks = InPlaceStore::blocks(drive, shape, &config)?;
        let mut store = InPlaceStore::empty(blocks, shape, config, config.redo)?;
        store.blocks.advance(now);
        store.blocks.trim_now(0, shape.bytes / BLOCK_BYTES)?;
        store.blocks.flush_now()?;
        // Both blocks of roots get one: from now on both are always whole.
        store.start(0, 0, 1)?;
        store.start(1, 0, 1)?;
        Ok(store)
    }

    /// Opens the store on `drive`.
    ///
    /// # Errors
    /// As for [`InPlaceStore::create`]; [`StoreError::Unusable`] when there is
    /// none, and [`StoreError::DamagedBlock`] when a root or a record that was
    /// durable is damaged. Nothing was written then.
    pub fn open(
        drive: D,
        shape: Shape,
        config: InPlaceConfig,
        now: Time,
    ) -> Result<InPlaceStore<D>, StoreError> {
        let mut blocks = InPlaceStore::blocks(drive, shape, &config)?;
        blocks.advance(now);
        let redo = blocks.beside(|block| Some(Root::read(block)?.ok()?.beside))?;
        let mut store = InPlaceStore::empty(blocks, shape, config, redo)?;
        let root = store.find_root()?;
        let end = store.find_end(&root)?;
        if end > root.tail {
            store.take_records(&root, end)?;
        }
        store.start(store.root, root.epoch, end)?;
        Ok(store)
    }

    /// The newer root. Both are whole, whatever was cut, but for a making: that
    /// writes the second after the first.
    fn find_root(&mut self) -> Result<Root, StoreError> {
        let mut block = buffer(PAGE_BYTES)?;
        let (mut roots, mut begun) = ([None; 2], false);
        for at in 0..2 {
            block = self.blocks.read_now(at, block)?;
            let root = Root::read(block.bytes()).transpose();
            roots[at as usize] = root.map_err(StoreError::Unusable)?;
            begun |= at == 0 && is_blank(block.bytes());
        }
        let root = match roots {
            [Some(even), Some(odd)] if even.number > odd.number => even,
            [Some(_), Some(odd)] => odd,
            [None, Some(odd)] if begun && odd.number == 1 => odd,
            [None, None] => {
                return Err(StoreError::Unusable("there is no root of a store in place"));
            }
            [even, _] => {
                let block = even.is_some().into();
                return Err(StoreError::DamagedBlock { block, what: "a root of the store" });
            }
        };
        if root.max_batch != self.layout.max_batch || root.blocks != self.layout.blocks {
            let what = "the store is for another drive or size of batches";
            return Err(StoreError::Unusable(what));
        }
        let slots = root.durable.checked_sub(root.tail);
        let far = [root.number, root.epoch, root.durable].iter().any(|&n| n >= u64::MAX / 2);
        if far || slots.is_none_or(|slots| slots > SLOTS) {
            return Err(StoreError::Unusable("the root of the store makes no sense"));
        }
        self.root = root.number;
        Ok(root)
    }

    /// Looks at the journal: the first record from the tail on that does not
    /// count. One that was durable and is not whole is an error.
    fn find_end(&mut self, root: &Root) -> Result<u64, StoreError> {
        let mut seq = root.tail;
        while seq < root.tail + SLOTS {
            match self.read_record(seq, root.epoch)? {
                Found::Whole(..) => seq += 1,
                Found::Broken(block) if seq < root.durable => {
                    let what = "a batch that was durable, in the journal of the store";
                    return Err(StoreError::DamagedBlock { block, what });
                }
                Found::Broken(_) => break,
            }
        }
        Ok(seq)
    }

    /// Writes the pages of the records from the tail on to their blocks, in
    /// order.
    fn take_records(&mut self, root: &Root, end: u64) -> Result<(), StoreError> {
        // They could be read, and so could the root; now they are durable, and then
        // the root says so, before a page of them is in its block.
        self.blocks.flush_now()?;
        if end > root.durable {
            self.epoch = root.epoch;
            self.put_root(root.tail, end)?;
        }
        for seq in root.tail..end {
            match self.read_record(seq, root.epoch)? {
                Found::Whole(header, pages) => self.take_record(header.bytes(), pages)?,
                Found::Broken(_) => {
                    let what = "the journal changed while it was read; open the store again";
                    return Err(StoreError::Unusable(what));
                }
            }
        }
        self.blocks.flush_now()
    }

    /// Reads the record `seq`, and checks all of it.
    fn read_record(&mut self, seq: u64, epoch: u64) -> Result<Found, StoreError> {
        let at = self.layout.slot(seq);
        let block = self.blocks.read_now(at, buffer(PAGE_BYTES)?)?;
        let header = Header::read(block.bytes(), self.layout.max_batch);
        let Some(header) = header.filter(|header| header.seq == seq && header.epoch == epoch)
        else {
            return Ok(Found::Broken(at));
        };
        let pages = buffer(header.count as usize * PAGE_BYTES)?;
        let pages = self.blocks.read_now(at + 1, pages)?;
        let mut seals = Xxh3::new();
        for (i, body) in pages.bytes().chunks_exact(PAGE_BYTES).enumerate() {
            let page = Header::page(block.bytes(), i);
            match check_seal(page, body) {
                Some(seal) if page < self.layout.pages => seals.update(&seal.to_le_bytes()),
                _ => return Ok(Found::Broken(at + 1 + i as u64)),
            }
        }
        if seals.digest() != header.seals {
            return Ok(Found::Broken(at));
        }
        Ok(Found::Whole(block, pages))
    }

    /// Writes the pages of a record to their blocks.
    fn take_record(&mut self, header: &[u8], mut pages: Buffer) -> Result<(), StoreError> {
        for i in 0..pages.len() / PAGE_BYTES {
            let block = self.layout.first + Header::page(header, i);
            let body = pages.split_to(PAGE_BYTES);
            self.blocks.write_now(block, body)?;
        }
        Ok(())
    }

    /// Begins a new epoch with the record `seq`; all before are durable.
    fn start(&mut self, number: u64, epoch: u64, seq: u64) -> Result<(), StoreError> {
        (self.root, self.epoch) = (number, epoch + 1);
        (self.next, self.tail, self.durable) = (seq, seq, seq);
        self.put_root(seq, seq)
    }

    /// Writes the next root, and waits until it is durable.
    fn put_root(&mut self, tail: u64, durable: u64) -> Result<(), StoreError> {
        self.root += 1;
        let mut block = buffer(PAGE_BYTES)?;
        self.root_of(tail, durable).write(block.bytes_mut());
        self.blocks.write_now(self.root & 1, block)?;
        self.blocks.flush_now()
    }
}
