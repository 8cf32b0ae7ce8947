//! Reads a trace.
//!
//! Guarantees: a record is given only after its block's checksum was found
//! right; memory is bounded whatever the file says; nothing panics. After an
//! error no more records come.

use std::io::{ErrorKind, Read};

use blkmq::Life;
use port::Time;

use crate::error::TraceError;
use crate::format::{
    About, BLOCK, BLOCK_RECORDS, END, END_BYTES, HEAD_BYTES, HEADER_BYTES, MAGIC, MOST_CONFIG,
    Totals, VERSION,
};
use crate::record::{RECORD_BYTES, decode, u32_at, u64_at};

/// A trace, from front to back: an iterator over its records.
///
/// The records of one core come in the order in which it saw the requests
/// end; those of different cores are mixed.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    about: About,
    /// The records of the block that is being given out.
    block: Vec<u8>,
    /// Of these, the bytes that were given.
    given: usize,
    /// Where the next part of the file starts.
    at: u64,
    records: u64,
    /// What the end mark says, when it was reached and agrees.
    totals: Option<Totals>,
    /// Nothing more comes.
    over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. Fails when this is no trace that can be read.
    pub fn new(mut input: R) -> Result<Reader<R>, TraceError> {
        let damaged = |what| TraceError::Damaged { what, at: 0, records: 0 };
        let mut head = [0; HEADER_BYTES];
        let got = fill(&mut input, &mut head)?;
        if got < MAGIC.len() || head[0..8] != MAGIC {
            return Err(TraceError::NotATrace);
        }
        let version = u32_at(&head, 8);
        if got >= 12 && version != VERSION {
            return Err(TraceError::Version { found: version });
        }
        if got < HEADER_BYTES {
            return Err(TraceError::Truncated { at: got as u64, records: 0 });
        }
        let len = u32_at(&head, 20) as usize;
        if u32_at(&head, 16) != RECORD_BYTES as u32 || len > MOST_CONFIG {
            return Err(damaged("header"));
        }
        let mut text = vec![0; len];
        let got = fill(&mut input, &mut text)?;
        let at = (HEADER_BYTES + got) as u64;
        if got < len {
            return Err(TraceError::Truncated { at, records: 0 });
        }
        if crc(&[&head[16..], &text]) != u32_at(&head, 12) {
            return Err(damaged("header's checksum"));
        }
        let config = String::from_utf8(text).map_err(|_| damaged("configuration text"))?;
        let about = About { start: Time(u64_at(&head, 24)), config };
        let block = Vec::with_capacity(BLOCK_RECORDS * RECORD_BYTES);
        Ok(Reader { input, about, block, given: 0, at, records: 0, totals: None, over: false })
    }

    /// What the trace says about itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What its end mark says; `None` until it was read.
    pub fn totals(&self) -> Option<Totals> {
        self.totals
    }

    /// Records given so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn damaged(&self, what: &'static str) -> TraceError {
        TraceError::Damaged { what, at: self.at, records: self.records }
    }

    /// Fills `part` or says that the file ends too soon.
    fn read(&mut self, part: &mut [u8]) -> Result<(), TraceError> {
        let got = fill(&mut self.input, part)?;
        if got == part.len() {
            return Ok(());
        }
        Err(TraceError::Truncated { at: self.at + got as u64, records: self.records })
    }

    /// Reads the next block, or the end mark; false at the end.
    fn next_part(&mut self) -> Result<bool, TraceError> {
        let mut head = [0; HEAD_BYTES];
        self.read(&mut head)?;
        match head[0..4].try_into() {
            Ok(BLOCK) => self.next_block(&head).map(|()| true),
            Ok(END) => self.end(&head).map(|()| false),
            _ => Err(self.damaged("start of a block")),
        }
    }

    fn next_block(&mut self, head: &[u8; HEAD_BYTES]) -> Result<(), TraceError> {
        let count = u32_at(head, 8) as usize;
        if !(1..=BLOCK_RECORDS).contains(&count) {
            return Err(self.damaged("length of the block"));
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(count * RECORD_BYTES, 0);
        self.at += HEAD_BYTES as u64;
        let read = self.read(&mut block);
        self.at -= HEAD_BYTES as u64;
        read?;
        if crc(&[&head[8..], &block]) != u32_at(head, 4) {
            return Err(self.damaged("checksum of the block"));
        }
        (self.block, self.given) = (block, 0);
        self.at += (HEAD_BYTES + self.block.len()) as u64;
        Ok(())
    }

    fn end(&mut self, head: &[u8; HEAD_BYTES]) -> Result<(), TraceError> {
        let mut end = [0; END_BYTES];
        end[..HEAD_BYTES].copy_from_slice(head);
        self.at += HEAD_BYTES as u64;
        let read = self.read(&mut end[HEAD_BYTES..]);
        self.at -= HEAD_BYTES as u64;
        read?;
        if crc(&[&end[8..]]) != u32_at(&end, 4) {
            return Err(self.damaged("checksum of the end mark"));
        }
        self.at += END_BYTES as u64;
        if fill(&mut self.input, &mut [0])? != 0 {
            return Err(self.damaged("data after the end mark"));
        }
        let totals = Totals { records: u64_at(&end, 8), dropped: u64_at(&end, 16) };
        if totals.records != self.records {
            return Err(TraceError::Count { said: totals.records, read: self.records });
        }
        self.totals = Some(totals);
        Ok(())
    }

    /// The next record of the block; `None` when it has no more.
    fn next_record(&mut self) -> Option<Result<Life, TraceError>> {
        let record = self.block[self.given..].first_chunk()?;
        let Some(life) = decode(record) else {
            let at = self.at - (self.block.len() - self.given) as u64;
            return Some(Err(TraceError::Damaged { what: "record", at, records: self.records }));
        };
        self.given += RECORD_BYTES;
        self.records += 1;
        Some(Ok(life))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Life, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            let next = self.next_record().or_else(|| match self.next_part() {
                Ok(true) => None,
                Ok(false) => {
                    self.over = true;
                    None
                }
                Err(e) => Some(Err(e)),
            });
            self.over |= matches!(next, Some(Err(_)));
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// Reads until `part` is full or the input ends; how many bytes that were.
fn fill(input: &mut impl Read, part: &mut [u8]) -> Result<usize, TraceError> {
    let mut got = 0;
    while got < part.len() {
        match input.read(&mut part[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(TraceError::io("read")(e)),
        }
    }
    Ok(got)
}

/// The checksum of some parts, one after the other.
fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.finalize()
}
