//! The records of an inode, in no order: in the sector of the inode, and in blocks chained to it.

use crate::error::FilesError;
use crate::metadata::Metadata;
use crate::sector::{self, BODY, Header, Place, Use};
use crate::space::Space;

/// What all inodes share: their sectors, and the room for more.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) meta: Metadata,
    pub(crate) space: Space,
}

/// Sectors of a block.
const SECTORS: u32 = 8;

/// Where the records of an inode are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bag {
    owner: u64,
    /// Whether only a commit of names writes them: those of a folder.
    held: bool,
    place: Place,
    blocks: Vec<u32>,
    /// Free bytes of each sector, the inode's own first.
    room: Vec<u16>,
    /// Sectors before this have hardly any.
    hint: usize,
}

impl Bag {
    /// The bag of a new inode: its sector gets that header.
    pub(crate) fn new(store: &mut Store, place: Place, header: Header, held: bool) -> Bag {
        store.meta.edit(place, held, |bytes| {
            bytes.fill(0);
            header.write(bytes);
        });
        let (owner, blocks, room) = (header.owner, Vec::new(), vec![BODY as u16]);
        Bag { owner, held, place, blocks, room, hint: 0 }
    }

    /// A bag that is on the disk.
    pub(crate) fn found(owner: u64, held: bool, place: Place, blocks: Vec<u32>) -> Bag {
        Bag { owner, held, place, room: vec![0; 1 + 8 * blocks.len()], blocks, hint: 0 }
    }

    /// Looks again how much room each sector has.
    pub(crate) fn look(&mut self, meta: &Metadata) {
        for n in 0..self.room.len() {
            self.room[n] = sector::room(meta.sector(self.place_of(n as u32))) as u16;
        }
    }

    /// Where the inode's own sector is.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The blocks beside that.
    pub(crate) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// How many sectors there are.
    pub(crate) fn sectors(&self) -> u32 {
        self.room.len() as u32
    }

    pub(crate) fn place_of(&self, sector: u32) -> Place {
        match sector.checked_sub(1) {
            None => self.place,
            Some(n) => {
                Place { block: self.blocks[(n / SECTORS) as usize], sector: (n % SECTORS) as u8 }
            }
        }
    }

    /// Changes the header of the inode.
    pub(crate) fn header(&self, meta: &mut Metadata, change: impl FnOnce(&mut Header)) {
        self.header_of(meta, self.place, change);
    }

    fn header_of(&self, meta: &mut Metadata, place: Place, change: impl FnOnce(&mut Header)) {
        meta.edit(place, self.held, |bytes| {
            let mut header = Header::peek(bytes).expect("a sector of an inode");
            change(&mut header);
            header.write(bytes);
        });
    }

    /// Puts a record in, and says in which sector. It may take one block.
    pub(crate) fn insert(&mut self, store: &mut Store, record: &[u8]) -> Result<u32, FilesError> {
        let space = sector::space(record.len());
        let fits = |room: &u16| usize::from(*room) >= space;
        let at = match self.room[self.hint..].iter().position(fits) {
            Some(n) => self.hint + n,
            None => self.grow(store)?,
        };
        if self.room[self.hint] < 32 {
            self.hint = (self.hint + 1).min(self.room.len() - 1);
        }
        self.room[at] -= space as u16;
        let place = self.place_of(at as u32);
        store.meta.edit(place, self.held, |bytes| sector::push(bytes, record));
        Ok(at as u32)
    }

    /// One block more. The number of its first sector.
    fn grow(&mut self, store: &mut Store) -> Result<usize, FilesError> {
        let goal = self.blocks.last().map(|block| block + 1);
        let block = store.space.take(goal, 1)?.start;
        store.meta.add(block);
        let first = self.room.len();
        for n in 0..SECTORS as u8 {
            let number = first as u32 + u32::from(n);
            let header = Header { number, ..Header::new(Use::More, self.owner) };
            let place = Place { block, sector: n };
            store.meta.edit(place, self.held, |bytes| header.write(bytes));
        }
        let before = match self.blocks.last() {
            Some(&block) => Place { block, sector: 0 },
            None => self.place,
        };
        self.header_of(&mut store.meta, before, |header| header.next = block);
        self.blocks.push(block);
        self.room.resize(first + SECTORS as usize, BODY as u16);
        Ok(first)
    }

    /// The record of that sector that is the one.
    fn find(
        &self,
        meta: &Metadata,
        sector: u32,
        is: impl Fn(&[u8]) -> bool,
    ) -> (Place, usize, usize) {
        let place = self.place_of(sector);
        let mut records = sector::records(meta.sector(place));
        let (from, record) = records.find(|(_, record)| is(record)).expect("the record is there");
        (place, from, record.len())
    }

    /// Takes out the record of that sector that is the one.
    pub(crate) fn remove(&mut self, store: &mut Store, sector: u32, is: impl Fn(&[u8]) -> bool) {
        let (place, from, len) = self.find(&store.meta, sector, is);
        store.meta.edit(place, self.held, |bytes| sector::remove(bytes, from, len));
        self.room[sector as usize] += sector::space(len) as u16;
        self.hint = self.hint.min(sector as usize);
    }

    /// Changes the record of that sector that is the one; it stays as long.
    pub(crate) fn update(
        &self,
        store: &mut Store,
        sector: u32,
        is: impl Fn(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) {
        let (place, from, len) = self.find(&store.meta, sector, is);
        store.meta.edit(place, self.held, |bytes| change(&mut bytes[from..from + len]));
    }

    /// Takes out all records, and gives up all blocks.
    pub(crate) fn clear(&mut self, store: &mut Store) {
        store.meta.edit(self.place, self.held, sector::clear);
        self.header(&mut store.meta, |header| header.next = 0);
        self.give_blocks(store);
        self.room.truncate(1);
        self.room[0] = BODY as u16;
        self.hint = 0;
    }

    /// Takes out all records, and keeps the blocks: for who puts those in again that count.
    pub(crate) fn empty(&mut self, store: &mut Store) {
        for n in 0..self.sectors() {
            let next = match n {
                0 => self.blocks.first(),
                n if n % SECTORS == 1 => self.blocks.get((n / SECTORS) as usize + 1),
                _ => None,
            };
            let (place, next) = (self.place_of(n), next.copied().unwrap_or(0));
            let new = Header { number: n, ..Header::new(Use::More, self.owner) };
            store.meta.edit(place, self.held, |bytes| {
                let old = Header::peek(bytes).unwrap_or(new);
                bytes.fill(0);
                Header { next, ..if n == 0 { old } else { new } }.write(bytes);
            });
        }
        self.room.fill(BODY as u16);
        self.hint = 0;
    }

    fn give_blocks(&mut self, store: &mut Store) {
        for block in self.blocks.drain(..) {
            store.meta.remove(block);
            store.space.give_metadata(block);
        }
    }

    /// The inode is no more: its sector is free when names are committed.
    pub(crate) fn free(mut self, store: &mut Store) {
        store.meta.edit(self.place, true, |bytes| bytes.fill(0));
        self.give_blocks(store);
    }
}
