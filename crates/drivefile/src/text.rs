//! The drive's text where it changes while the drive is used: two places for it, of which
//! the newer good one holds.
//!
//! Guarantees: after a cut at any moment of a change the text is the old or the new one, and
//! the new one from when the change has returned. A change that fails for want of room
//! or is refused leaves the drive as it was. Fails where neither of the places holds a text,
//! though the header says that one does, and where the newest is damaged: what an older one
//! does not name would be erased.

use std::io;
use std::sync::Arc;

use crate::file_io::read_or_zeros;
use crate::header::{CHANGED, FIXED_BYTES, MAX_TEXT, checksum, is_changed, named};
use crate::header::{put_u32, put_u64, u32_at, u64_at};
use crate::open::header_bytes;
use crate::{FileError, FileIo};

/// Where they lie.
const PLACES: [u64; 2] = [192 << 10, 224 << 10];

/// Bytes of a place before its text: checksum of what follows, the text's length, and the
/// number of the change.
const HEAD: usize = 16;

/// Bytes of a place.
const PLACE_BYTES: usize = 32 << 10;
/// Where it stands in a place that the change after its own was complete: checksum of what
/// follows, 4 bytes of nothing, and that change's number.
const COMPLETE: usize = PLACE_BYTES - 512;

/// Most bytes of a text that changes.
pub const MAX_CHANGED: usize = COMPLETE - HEAD;

const _: () = assert!((FIXED_BYTES + 2 * MAX_TEXT) as u64 <= PLACES[0]);
const _: () = assert!(PLACES[1] + PLACE_BYTES as u64 <= crate::layout::STATE_PAGES[0]);

/// Where the text of an opened drive is changed. There is to be one of a drive.
pub struct ChangingText {
    storage: Arc<dyn FileIo>,
    /// Changes that there have been.
    number: u64,
}

impl ChangingText {
    /// Of a drive file.
    pub(crate) fn of(storage: Arc<dyn FileIo>) -> Result<ChangingText, FileError> {
        let is_changed = is_changed(version(&*storage)?);
        let number = if is_changed { read(&*storage)?.0 } else { 0 };
        Ok(ChangingText { storage, number })
    }

    /// Changes the text. It is durable when this returns; where that fails the text is the
    /// old one, or, as far as anybody knows, the new one.
    pub fn change(&mut self, text: &str) -> Result<(), FileError> {
        if text.len() > MAX_CHANGED {
            let (what, value) = ("bytes of the drive's text", text.len() as u64);
            return Err(FileError::Range { what, value, range: "at most 32240" });
        }
        let failed = |e: io::Error| FileError::system("changing what the drive is", &e);
        let number = self.number + 1;
        let mut bytes = vec![0; HEAD];
        put_u32(&mut bytes, 4, text.len() as u32);
        put_u64(&mut bytes, 8, number);
        bytes.extend_from_slice(text.as_bytes());
        let sum = checksum(&bytes[4..]);
        put_u32(&mut bytes, 0, sum);
        let place = place_of(number);
        // A full disk is told here, where nothing that was to be durable is lost by it. It is
        // no text yet.
        let trial = [&[0; HEAD], &bytes[HEAD..]].concat();
        self.storage.write(place, &trial).map_err(failed)?;
        let named = self.storage.write_durable(place, &bytes).map_err(failed);
        named.and_then(|()| self.name_changed()).inspect_err(|_| {
            // What was refused may have been written all the same.
            let _ = self.storage.write(place, &[0; HEAD]);
        })?;
        // The change is done: without this only damage of it may be taken for none.
        let complete = place_of(number - 1) + COMPLETE as u64;
        let _ = self.storage.write_durable(complete, &completed(number));
        self.number = number;
        Ok(())
    }

    /// Makes the header say that the text changes, where it does not.
    fn name_changed(&self) -> Result<(), FileError> {
        if version(&*self.storage)? == CHANGED {
            return Ok(());
        }
        let written = self.storage.write_durable(8, &self.changed()?);
        written.map_err(|e| FileError::system("changing what the drive is", &e))
    }

    /// What makes the header say that the text changes: its bytes 8 to 15.
    fn changed(&self) -> Result<[u8; 8], FileError> {
        Ok(named(&header_bytes(&*self.storage, u64::MAX)?, CHANGED))
    }
}

/// Where the text of a change lies.
fn place_of(number: u64) -> u64 {
    PLACES[(number % 2) as usize]
}

/// What says that a change is complete.
fn completed(number: u64) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    put_u64(&mut bytes, 8, number);
    let sum = checksum(&bytes[4..]);
    put_u32(&mut bytes, 0, sum);
    bytes
}

fn reading(e: io::Error) -> FileError {
    FileError::system("reading it", &e)
}

/// The version that a header says.
fn version(storage: &dyn FileIo) -> Result<u32, FileError> {
    let mut bytes = [0; 4];
    storage.read(8, &mut bytes).map_err(reading)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The text of a drive whose header says that it was changed, and the number of the change.
pub(crate) fn read(storage: &dyn FileIo) -> Result<(u64, String), FileError> {
    let (mut found, mut complete): (Option<(u64, String)>, u64) = (None, 0);
    let read = |at: u64, bytes: &mut [u8]| read_or_zeros(storage, at, bytes).map_err(reading);
    for place in PLACES {
        let mut bytes = vec![0; HEAD];
        read(place + COMPLETE as u64, &mut bytes)?;
        let number = u64_at(&bytes, 8);
        if bytes == completed(number) {
            complete = complete.max(number);
        }
        read(place, &mut bytes)?;
        let length = u32_at(&bytes, 4) as usize;
        if length > MAX_CHANGED {
            continue;
        }
        bytes.resize(HEAD + length, 0);
        read(place, &mut bytes)?;
        let number = u64_at(&bytes, 8);
        if u32_at(&bytes, 0) != checksum(&bytes[4..]) || number == 0 {
            continue;
        }
        let Ok(text) = String::from_utf8(bytes.split_off(HEAD)) else { continue };
        if found.as_ref().is_none_or(|(newest, _)| *newest < number) {
            found = Some((number, text));
        }
    }
    let found = found.filter(|(number, _)| *number >= complete);
    found.ok_or_else(|| FileError::Header { what: "what the drive became is lost".into() })
}
