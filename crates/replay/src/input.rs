//! A trace's bytes: from a file or standard input, plain, or compressed by gzip or zstd.
//!
//! Guarantees: what it is compressed by its first bytes tell, not its name; several
//! compressed parts one after the other are one input; memory is bounded. May fail: the
//! system, and what is compressed and damaged.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::BlockDecodingStrategy;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// How our own traces begin.
const OURS: [u8; 8] = *b"ssdkitRT";
/// Bytes read at once.
const AT_ONCE: usize = 64 << 10;
/// How a file compressed by gzip begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How one compressed by zstd does.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How a part begins that zstd passes over, but for the low bits of the first byte.
const PASSED: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// An opened trace.
pub struct Input {
    /// What is in it, not compressed.
    pub(crate) bytes: Box<dyn Read + Send>,
    /// How far it was read.
    pub(crate) progress: Progress,
}

/// How far a file was read. Of what is no file nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    read: Arc<AtomicU64>,
    /// Bytes of the file.
    of: Option<u64>,
}

impl Progress {
    /// From 0 to 1, where that is known.
    pub fn part(&self) -> Option<f64> {
        let read = self.read.load(Ordering::Relaxed);
        self.of.map(|of| (read as f64 / of.max(1) as f64).min(1.0))
    }
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl Input {
    /// Opens a regular file, or standard input, which is `-`. Other files may say nothing
    /// for ever, and are refused.
    pub fn open(path: &Path) -> io::Result<Input> {
        if path.as_os_str() == "-" {
            return Input::new(io::stdin(), None);
        }
        // Before it is opened, where a pipe waits for who writes.
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no file; what comes from elsewhere can be piped in, as -",
            ));
        }
        Input::new(File::open(path)?, Some(about.len()))
    }

    /// What `inner` gives, of which there are so many bytes.
    pub fn new(inner: impl Read + Send + 'static, of: Option<u64>) -> io::Result<Input> {
        let progress = Progress { read: Arc::default(), of };
        let inner = Counted { inner, read: progress.read.clone() };
        let mut inner = BufReader::with_capacity(AT_ONCE, inner);
        let (head, n) = head::<4>(&mut inner)?;
        let whole =
            BufReader::with_capacity(AT_ONCE, io::Cursor::new(head).take(n as u64).chain(inner));
        let bytes: Box<dyn Read + Send> = if head[..n].starts_with(&GZIP) {
            Box::new(MultiGzDecoder::new(whole))
        } else if is_zstd(&head[..n]) {
            Box::new(Zstd::new(whole))
        } else {
            Box::new(whole)
        };
        Ok(Input { bytes, progress })
    }

    /// Whether it begins as our own traces do.
    pub fn is_ours(&mut self) -> io::Result<bool> {
        let (head, n) = head::<{ OURS.len() }>(&mut self.bytes)?;
        let rest = std::mem::replace(&mut self.bytes, Box::new(io::empty()));
        self.bytes = Box::new(io::Cursor::new(head).take(n as u64).chain(rest));
        Ok(head == OURS)
    }

    /// What is in it, not compressed.
    pub fn into_bytes(self) -> Box<dyn Read + Send> {
        self.bytes
    }
}

/// The first bytes, and how many there are.
fn head<const N: usize>(input: &mut impl Read) -> io::Result<([u8; N], usize)> {
    let (mut head, mut n) = ([0; N], 0);
    while n < head.len() {
        match input.read(&mut head[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok((head, n))
}

fn is_zstd(head: &[u8]) -> bool {
    let is_passed = |head: &[u8]| head[0] & 0xf0 == PASSED[0] && head[1..] == PASSED[1..];
    head == ZSTD || (head.len() == 4 && is_passed(head))
}

/// Frames compressed by zstd, one after the other.
struct Zstd<R> {
    input: R,
    frame: FrameDecoder,
    /// Whether a frame was begun of which not all was given.
    is_inside: bool,
}

fn damaged(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {}", why.to_string()))
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Zstd<R> {
        Zstd { input, frame: FrameDecoder::new(), is_inside: false }
    }

    /// Begins the next frame; false at the end.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.frame.init(&mut self.input) {
                Ok(()) => {
                    self.is_inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let passed =
                        io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                    if passed < length.into() {
                        return Err(damaged("a part that is passed over ends too soon"));
                    }
                }
                Err(e) => return Err(damaged(e)),
            }
        }
        Ok(false)
    }

    /// Ends a frame of which all was given.
    fn end(&mut self) -> io::Result<()> {
        self.is_inside = false;
        let said = self.frame.get_checksum_from_data();
        if said.is_some() && said != self.frame.get_calculated_checksum() {
            return Err(damaged("the checksum is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_inside && !self.begin()? {
                return Ok(0);
            }
            if self.frame.can_collect() > 0 {
                return self.frame.read(into);
            }
            if self.frame.is_finished() {
                self.end()?;
            } else {
                let some = BlockDecodingStrategy::UptoBlocks(1);
                self.frame.decode_blocks(&mut self.input, some).map_err(damaged)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn all(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let of = bytes.len() as u64;
        let mut input = Input::new(io::Cursor::new(bytes), Some(of))?;
        input.bytes.read_to_end(&mut all)?;
        assert_eq!(input.progress.part(), Some(if of == 0 { 0.0 } else { 1.0 }));
        Ok(all)
    }

    #[test]
    fn parts_one_after_the_other_are_one() {
        let text: Vec<u8> = (0..200_000u32).flat_map(|i| i.to_string().into_bytes()).collect();
        let twice = [&text[..], &text[..]].concat();
        for pack in [gzip, zstd] {
            assert_eq!(all(pack(&text)).unwrap(), text);
            assert_eq!(all([pack(&text), pack(&text)].concat()).unwrap(), twice);
        }
        let passed = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], &zstd(b"ab")[..]].concat();
        assert_eq!(all(passed).unwrap(), b"ab");
        assert_eq!(all(vec![]).unwrap(), b"");
        assert_eq!(all(vec![0x1f]).unwrap(), [0x1f]);
    }

    #[test]
    fn what_was_cut_is_an_error() {
        let text = b"0,1,2,3\n".repeat(1000);
        for packed in [gzip(&text), zstd(&text)] {
            for len in [5, packed.len() / 2, packed.len() - 1] {
                assert!(all(packed[..len].to_vec()).is_err(), "{len} of {}", packed.len());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..3) {
            let head: &[u8] = [&GZIP[..], &ZSTD, &PASSED][kind as usize];
            bytes.splice(0..0, head.iter().copied());
            let _ = all_quietly(bytes);
        }

        #[test]
        fn a_changed_byte_is_found_or_harmless(at in 0usize..200, to in any::<u8>(), kind in 0..2) {
            let text = b"0,1,2,3\n".repeat(40);
            let mut packed = if kind == 0 { gzip(&text) } else { zstd(&text) };
            let at = at % packed.len();
            packed[at] = to;
            if let Ok(read) = all_quietly(packed.clone()) {
                // Or it is no longer known as compressed, and is as it is.
                prop_assert!(read == text || read == packed, "{at}");
            }
        }
    }

    fn all_quietly(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Input::new(io::Cursor::new(bytes), None)?.bytes.take(1 << 24).read_to_end(&mut all)?;
        Ok(all)
    }
}
