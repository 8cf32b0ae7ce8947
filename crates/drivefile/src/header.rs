//! The header: what a drive is, and how far it is written.
//!
//! Guarantees: what was encoded decodes as the same; anything else is refused
//! with what is wrong. A newer version is told from damage.

use flash::{Dimensions, Geometry};

use crate::FileError;
use crate::layout::{Layout, STATE_PAGES};

/// The version of the format that this crate writes. It also reads the older ones,
/// and makes them of this version, or of [`CHANGED`], when they are opened for writing.
pub const VERSION: u32 = 5;

/// The version of a file whose drive has another text than its header: that lies where
/// [`crate::text`] says.
pub(crate) const CHANGED: u32 = 6;

/// The same of before, when a state was written only when what it tells of was durable,
/// as in all older versions.
const NO_CLAIM_CHANGED: u32 = 4;

/// The version in which nothing was kept of why a chunk is offline, and of when
/// the drive was last used, either.
const OLDEST: u32 = 1;

/// Most bytes of each of a header's two texts.
pub const MAX_TEXT: usize = 64 << 10;

/// Most bytes of the area for a journal.
const MAX_JOURNAL: u64 = 1 << 40;

/// What a drive file begins with.
pub(crate) const MAGIC: &[u8; 8] = b"ssdkitDF";

/// What one begins with that is being made.
pub(crate) const UNFINISHED: &[u8; 8] = b"ssdkitUF";

/// What one begins with that is whole and gets its name: a drive under any name,
/// and left over under that of an unfinished one.
pub(crate) const NAMELESS: &[u8; 8] = b"ssdkitWF";

/// Whether a file that begins so is a whole drive file, or was one.
pub fn is_begin(bytes: &[u8; 8]) -> bool {
    [MAGIC, NAMELESS].contains(&bytes)
}

/// Bytes of the header before its texts.
pub const FIXED_BYTES: usize = 64;

/// Bytes of the state.
pub const STATE_BYTES: usize = 40;

/// Bytes of the state up to version 2.
const STATE_BYTES_NO_SUM: usize = 32;

const _: () = assert!((FIXED_BYTES + 2 * MAX_TEXT) as u64 <= STATE_PAGES[0]);

/// What the drive does with its writes; for the layers above, which read it
/// back. The file itself is always cached by the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// A volatile cache: a write is durable after a flush.
    #[default]
    Volatile,
    /// Protected against power loss: a write is durable when it completes.
    Protected {
        /// Bytes of the area for its journal: a multiple of 4096, at least
        /// [`nvram::LEAST_BYTES`].
        journal: u64,
    },
}

impl CacheMode {
    /// Bytes of the area for a journal.
    pub(crate) fn journal(self) -> u64 {
        match self {
            CacheMode::Volatile => 0,
            CacheMode::Protected { journal } => journal,
        }
    }

    /// Of what a header says: the number of the mode, and the bytes that the
    /// file has beyond those of the drive.
    fn from_numbers(mode: u32, journal: u64) -> Option<CacheMode> {
        match mode {
            0 if journal == 0 => Some(CacheMode::Volatile),
            1 if CacheMode::is_area(journal) => Some(CacheMode::Protected { journal }),
            _ => None,
        }
    }

    /// Whether an area may have so many bytes.
    fn is_area(journal: u64) -> bool {
        let range = nvram::LEAST_BYTES..=MAX_JOURNAL;
        range.contains(&journal) && journal.is_multiple_of(4096)
    }
}

/// What a drive is. Of it nothing changes after the file was made but the drive's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its geometry.
    pub geometry: Geometry,
    /// Bytes kept of each block: 4096, 8 or 0.
    pub kept: u32,
    /// What it does with its writes.
    pub cache: CacheMode,
    /// Its profile, usually [`flash::Profile::to_toml`]. At most [`MAX_TEXT`]
    /// bytes; not looked at here.
    pub profile: String,
    /// What the target on it is made of: capacity, chunks, policy, seed. At most
    /// [`MAX_TEXT`] bytes; not looked at here.
    pub drive: String,
}

impl Header {
    /// Whether it can be a drive's.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        let range = |what, value, range| Err(FileError::Range { what, value, range });
        if !matches!(self.kept, 0 | 8 | 4096) {
            return range("kept", self.kept.into(), "4096, 8 or 0 bytes a block");
        }
        if let CacheMode::Protected { journal } = self.cache
            && !CacheMode::is_area(journal)
        {
            return range("bytes for a journal", journal, "a multiple of 4096 from 8192 to 2^40");
        }
        for (what, text) in
            [("bytes of the profile", &self.profile), ("bytes of the drive's text", &self.drive)]
        {
            if text.len() > MAX_TEXT {
                return range(what, text.len() as u64, "at most 65536");
            }
        }
        Ok(())
    }

    /// How long the file is.
    pub(crate) fn file_bytes(&self) -> u64 {
        Layout::new(&self.geometry, self.kept).len + self.cache.journal()
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u32(&mut bytes, 16, self.kept);
        put_u32(&mut bytes, 20, u32::from(self.cache != CacheMode::Volatile));
        let dim = self.geometry.dimensions();
        let planes = dim.planes | (dim.pages_at_once - 1) << 8;
        let numbers = [dim.groups, dim.pus, dim.chunks, dim.pages, planes, dim.page_bytes];
        for (i, number) in numbers.into_iter().enumerate() {
            put_u32(&mut bytes, 24 + 4 * i, number);
        }
        put_u32(&mut bytes, 48, self.profile.len() as u32);
        put_u32(&mut bytes, 52, self.drive.len() as u32);
        put_u64(&mut bytes, 56, self.file_bytes());
        bytes.extend_from_slice(self.profile.as_bytes());
        bytes.extend_from_slice(self.drive.as_bytes());
        let sum = header_sum(VERSION, &bytes);
        put_u32(&mut bytes, 12, sum);
        bytes
    }

    /// How many bytes the header has that begins with `fixed`.
    pub(crate) fn bytes(fixed: &[u8; FIXED_BYTES]) -> Result<usize, FileError> {
        match fixed.first_chunk() {
            Some(MAGIC | NAMELESS) => {}
            Some(UNFINISHED) => return Err(FileError::Unfinished),
            _ => return Err(FileError::Foreign),
        }
        let found = u32_at(fixed, 8);
        if !(OLDEST..=CHANGED).contains(&found) {
            return Err(match found {
                0 => damaged("there is no version 0"),
                _ => FileError::Version { found, known: CHANGED },
            });
        }
        let texts = [u32_at(fixed, 48), u32_at(fixed, 52)];
        if texts.iter().any(|&text| text as usize > MAX_TEXT) {
            return Err(damaged("a text is longer than there can be"));
        }
        Ok(FIXED_BYTES + (texts[0] + texts[1]) as usize)
    }

    /// The header that has all these bytes, as many as [`Header::bytes`] said.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, FileError> {
        let fixed = bytes.first_chunk().ok_or_else(|| damaged("it ends too early"))?;
        if Header::bytes(fixed)? != bytes.len() {
            return Err(damaged("it ends too early"));
        }
        if u32_at(bytes, 12) != header_sum(u32_at(bytes, 8), bytes) {
            return Err(damaged("its checksum is wrong"));
        }
        let number = |i: usize| u32_at(bytes, 24 + 4 * i);
        let dimensions = Dimensions {
            groups: number(0),
            pus: number(1),
            chunks: number(2),
            pages: number(3),
            planes: number(4) & 0xff,
            page_bytes: number(5),
            pages_at_once: (number(4) >> 8) + 1,
        };
        let geometry = Geometry::new(dimensions).map_err(|e| damaged(&e.to_string()))?;
        let kept = u32_at(bytes, 16);
        let drive_bytes = match kept {
            0 | 8 | 4096 => Layout::new(&geometry, kept).len,
            _ => return Err(damaged("it keeps no known part of a block")),
        };
        let Some(journal) = u64_at(bytes, 56).checked_sub(drive_bytes) else {
            return Err(damaged("its length is not that of its geometry"));
        };
        let cache = CacheMode::from_numbers(u32_at(bytes, 20), journal)
            .ok_or_else(|| damaged("its length is not that of its geometry and cache"))?;
        let (profile, drive) = bytes[FIXED_BYTES..].split_at(u32_at(bytes, 48) as usize);
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.into()).map_err(|_| damaged("a text is not UTF-8"))
        };
        let header = Header { geometry, kept, cache, profile: text(profile)?, drive: text(drive)? };
        header.check().map_err(|e| damaged(&e.to_string()))?;
        Ok(header)
    }
}

/// Whether a header of this version has another text than the drive.
pub(crate) fn is_changed(version: u32) -> bool {
    [CHANGED, NO_CLAIM_CHANGED].contains(&version)
}

/// Bytes 8 to 15 of this whole header, if it is of another version than that which is
/// written now.
pub(crate) fn upgrade(bytes: &[u8]) -> Option<[u8; 8]> {
    let found = u32_at(bytes, 8);
    let version = if is_changed(found) { CHANGED } else { VERSION };
    (found != version).then(|| named(bytes, version))
}

/// Bytes 8 to 15 of this whole header as one of a version.
pub(crate) fn named(bytes: &[u8], version: u32) -> [u8; 8] {
    let mut named = [0; 8];
    put_u32(&mut named, 0, version);
    put_u32(&mut named, 4, header_sum(version, bytes));
    named
}

/// The checksum of a whole header. Version 1 left itself out.
pub(crate) fn header_sum(version: u32, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    if version != OLDEST {
        sum.update(&version.to_le_bytes());
    }
    sum.update(&bytes[16..]);
    sum.finalize()
}

fn damaged(what: &str) -> FileError {
    FileError::Header { what: what.into() }
}

/// How far a drive file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// How many times it was opened for writing, and made.
    pub session: u32,
    /// The last sync generation that is durable.
    pub synced: u64,
    /// Nothing was written after it.
    pub clean: bool,
    /// It was written before it was known that the generation is durable: so it is
    /// only if all of it is found. The one before is, in any case.
    pub claim: bool,
    /// The drive's own time, in ns, as it was told last; it only grows.
    pub time: u64,
    /// The host's time then, in seconds since 1970; 0 where it is not known.
    pub told: u32,
    /// The sum of the chunks' shares at the end of that generation; none was
    /// written up to version 2.
    pub table: Option<u64>,
}

impl State {
    /// Its bytes.
    ///
    /// # Panics
    /// Without a sum: only older versions have none.
    pub fn encode(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        put_u32(&mut bytes, 4, self.session);
        put_u64(&mut bytes, 8, self.synced);
        put_u32(&mut bytes, 16, u32::from(self.clean) | u32::from(self.claim) << 1);
        put_u32(&mut bytes, 20, self.told);
        put_u64(&mut bytes, 24, self.time);
        put_u64(&mut bytes, 32, self.table.expect("a state of this version has it"));
        let sum = checksum(&bytes[4..]);
        put_u32(&mut bytes, 0, sum);
        bytes
    }

    /// The state in these bytes, if there is one: of this version, or, where the
    /// file has not been opened for writing since, of one before.
    pub fn decode(bytes: &[u8; STATE_BYTES]) -> Option<State> {
        let whole = |len: usize| u32_at(bytes, 0) == checksum(&bytes[4..len]);
        let table = match () {
            () if whole(STATE_BYTES) => Some(u64_at(bytes, 32)),
            () if whole(STATE_BYTES_NO_SUM) => None,
            () => return None,
        };
        let flags = u32_at(bytes, 16);
        // A claim is of a file at work, and has a sum by which it is proved.
        (flags <= 1 || flags == 2 && table.is_some()).then(|| State {
            session: u32_at(bytes, 4),
            synced: u64_at(bytes, 8),
            clean: flags == 1,
            claim: flags == 2,
            time: u64_at(bytes, 24),
            told: u32_at(bytes, 20),
            table,
        })
    }

    /// What the newest of two has more of.
    pub fn order(&self) -> impl Ord + use<> {
        (self.session, self.synced, self.clean, !self.claim)
    }

    /// Whether it is that of the generation before `other`, in the same session.
    pub fn is_before(&self, other: &State) -> bool {
        (self.session, self.synced + 1) == (other.session, other.synced)
    }
}

/// CRC-32 as in zlib.
#[inline]
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The little-endian number at `at`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// The little-endian number at `at`.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Puts a number at `at`, little-endian.
#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Puts a number at `at`, little-endian.
#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Header> {
        let kept = prop::sample::select(vec![0u32, 8, 4096]);
        (
            (1u32..9, 1u32..9, 1u32..99),
            (1u32..99, 1u32..9, 0u32..2, 1u32..5),
            kept,
            prop::option::of(2u64..5000),
            ".*",
            ".*",
        )
            .prop_map(
                |(
                    (groups, pus, chunks),
                    (rows, planes, page, pages_at_once),
                    kept,
                    cache,
                    profile,
                    drive,
                )| {
                    let (pages, page_bytes) = (rows * pages_at_once, 4096 << page);
                    let dim = Dimensions {
                        groups,
                        pus,
                        chunks,
                        pages,
                        planes,
                        page_bytes,
                        pages_at_once,
                    };
                    let protected = |pages| CacheMode::Protected { journal: pages * 4096 };
                    let cache = cache.map_or(CacheMode::Volatile, protected);
                    let geometry = Geometry::new(dim).unwrap();
                    Header { geometry, kept, cache, profile, drive }
                },
            )
    }

    /// As a file is read.
    fn decode(bytes: &[u8]) -> Result<Header, FileError> {
        let fixed = bytes.first_chunk().ok_or(FileError::Foreign)?;
        let len = Header::bytes(fixed)?;
        Header::decode(bytes.get(..len).ok_or_else(|| damaged("short"))?)
    }

    proptest! {
        #[test]
        fn it_comes_back(header in headers()) {
            prop_assert_eq!(decode(&header.encode()).unwrap(), header);
        }

        #[test]
        fn a_changed_header_is_refused(header in headers(), at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = header.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(header in headers(), changes in prop::collection::vec(
            (0usize..64, any::<u8>()), 0..8), junk in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = decode(&junk);
            let mut bytes = header.encode();
            for (at, byte) in changes {
                if at >= 16 {
                    bytes[at] = byte;
                }
            }
            bytes.extend(junk);
            // With the right checksum: what is behind it is looked at, too.
            let Ok(len) = Header::bytes(bytes.first_chunk().unwrap()) else { return Ok(()) };
            if let Some(header) = bytes.get(..len) {
                let sum = header_sum(VERSION, header);
                put_u32(&mut bytes, 12, sum);
                if let Ok(header) = decode(&bytes) {
                    prop_assert_eq!(&header.encode()[..], &bytes[..len]);
                }
            }
        }

        #[test]
        fn a_state_comes_back(session: u32, synced: u64, kind in 0..3, time: u64, told: u32, table: u64, at in 0usize..40, flip in 1u8..) {
            let (clean, claim) = (kind == 1, kind == 2);
            let state = State { session, synced, clean, claim, time, told, table: Some(table) };
            let mut bytes = state.encode();
            prop_assert_eq!(State::decode(&bytes), Some(state));
            bytes[at] ^= flip;
            prop_assert_eq!(State::decode(&bytes), None);
            // As it was without the sum.
            let mut bytes = state.encode();
            bytes[32..].fill(0);
            let sum = checksum(&bytes[4..32]);
            put_u32(&mut bytes, 0, sum);
            let older = (!claim).then_some(State { table: None, ..state });
            prop_assert_eq!(State::decode(&bytes), older);
        }
    }

    #[test]
    fn another_version_is_told() {
        let dim = Dimensions::LEAST;
        let geometry = Geometry::new(dim).unwrap();
        let (profile, drive) = (String::new(), String::new());
        let header = Header { geometry, kept: 8, cache: CacheMode::Volatile, profile, drive };
        let mut bytes = header.encode();
        put_u32(&mut bytes, 8, CHANGED + 1);
        let said = decode(&bytes).unwrap_err().to_string();
        assert!(said.contains("version 7") && said.contains("newer ssdkit"), "{said}");
        // The first is read.
        put_u32(&mut bytes, 8, OLDEST);
        assert!(decode(&bytes).is_err(), "the checksum is of another version");
        let sum = checksum(&bytes[16..]);
        put_u32(&mut bytes, 12, sum);
        assert_eq!(decode(&bytes).unwrap(), header);
        let upgraded = upgrade(&bytes).unwrap();
        bytes[8..16].copy_from_slice(&upgraded);
        assert_eq!((&bytes, upgrade(&bytes)), (&header.encode(), None));
        // So is one with another text, which stays that.
        let older = named(&bytes, NO_CLAIM_CHANGED);
        bytes[8..16].copy_from_slice(&older);
        assert!(is_changed(u32_at(&bytes, 8)) && decode(&bytes).is_ok());
        assert_eq!(upgrade(&bytes), Some(named(&bytes, CHANGED)));
        let long = Header { drive: "x".repeat(MAX_TEXT + 1), ..header.clone() };
        assert!(matches!(long.check(), Err(FileError::Range { .. })));
        assert!(matches!(Header { kept: 7, ..header }.check(), Err(FileError::Range { .. })));
    }
}
