//! The file: a header, blocks of records, an end mark.
//!
//! Drawn in `docs/formats.md`. [`Writer`] writes it; [`crate::Reader`] reads
//! it. Writing fails when the system refuses, and at the start when the
//! configuration text is too long.

use std::io::Write;

use blkmq::Life;
use port::Time;

use crate::error::TraceError;
use crate::record::{RECORD_BYTES, encode};

/// The version that is written and read.
pub(crate) const VERSION: u32 = 1;
/// The longest configuration text, in bytes.
pub(crate) const MOST_CONFIG: usize = 1 << 16;
/// The most records of a block.
pub(crate) const BLOCK_RECORDS: usize = 512;

pub(crate) const MAGIC: [u8; 8] = *b"ssdkitRT";
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const BLOCK: [u8; 4] = *b"RECS";
pub(crate) const END: [u8; 4] = *b"TEND";
/// Bytes of a block before its records.
pub(crate) const HEAD_BYTES: usize = 12;
/// Bytes of the end mark.
pub(crate) const END_BYTES: usize = 24;

/// What a trace says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// When it was started, in the time of its records.
    pub start: Time,
    /// The effective configuration of what was traced: any text of at most
    /// 64 KiB.
    pub config: String,
}

/// What a trace holds, and what it could not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records in it.
    pub records: u64,
    /// Requests without one, because there was no room at that moment.
    pub dropped: u64,
}

/// Writes a trace.
pub struct Writer<W: Write> {
    out: W,
    /// The block that is being filled: its head and some records. Its memory
    /// is taken once.
    block: Vec<u8>,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a trace.
    pub fn new(mut out: W, about: &About) -> Result<Writer<W>, TraceError> {
        out.write_all(&header(about)?).map_err(TraceError::io("start"))?;
        let mut block = Vec::with_capacity(HEAD_BYTES + BLOCK_RECORDS * RECORD_BYTES);
        block.resize(HEAD_BYTES, 0);
        Ok(Writer { out, block, records: 0 })
    }

    /// Adds a record.
    pub fn put(&mut self, life: &Life) -> Result<(), TraceError> {
        self.block.extend_from_slice(&encode(life));
        self.records += 1;
        if self.pending() == BLOCK_RECORDS { self.flush() } else { Ok(()) }
    }

    /// Records that are not in the file yet.
    pub fn pending(&self) -> usize {
        (self.block.len() - HEAD_BYTES) / RECORD_BYTES
    }

    /// Writes them as a block of their own.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        let count = self.pending() as u32;
        if count == 0 {
            return Ok(());
        }
        self.block[0..4].copy_from_slice(&BLOCK);
        self.block[8..12].copy_from_slice(&count.to_le_bytes());
        seal(&mut self.block);
        self.out.write_all(&self.block).map_err(TraceError::io("write"))?;
        self.block.truncate(HEAD_BYTES);
        Ok(())
    }

    /// Writes what is left and the end mark, which says that `dropped`
    /// requests are missing.
    pub fn finish(mut self, dropped: u64) -> Result<Totals, TraceError> {
        self.flush()?;
        let totals = Totals { records: self.records, dropped };
        let mut end = [0; END_BYTES];
        end[0..4].copy_from_slice(&END);
        end[8..16].copy_from_slice(&totals.records.to_le_bytes());
        end[16..24].copy_from_slice(&totals.dropped.to_le_bytes());
        seal(&mut end);
        self.out.write_all(&end).map_err(TraceError::io("end"))?;
        self.out.flush().map_err(TraceError::io("end"))?;
        Ok(totals)
    }
}

/// A trace's first bytes.
fn header(about: &About) -> Result<Vec<u8>, TraceError> {
    let text = about.config.as_bytes();
    if text.len() > MOST_CONFIG {
        return Err(TraceError::ConfigTooLong { bytes: text.len() });
    }
    let mut header = Vec::with_capacity(HEADER_BYTES + text.len());
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&(RECORD_BYTES as u32).to_le_bytes());
    header.extend_from_slice(&(text.len() as u32).to_le_bytes());
    header.extend_from_slice(&about.start.0.to_le_bytes());
    header.extend_from_slice(text);
    let crc = crc32fast::hash(&header[16..]);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    Ok(header)
}

/// Puts the checksum of all that follows it into bytes 4 to 7.
fn seal(part: &mut [u8]) {
    let crc = crc32fast::hash(&part[8..]);
    part[4..8].copy_from_slice(&crc.to_le_bytes());
}
