//! Files that users name. What is read of them is bounded, and of regular files only;
//! whether one may be written over is looked at, as a wrong path must not cost a drive.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::units;

/// Bytes of the mark of byte order that a text begins with, as some editors have it; 0 without.
/// It is no part of the text, whatever reads it.
pub fn mark_of(text: &[u8]) -> usize {
    const MARK: &str = "\u{feff}";
    if text.starts_with(MARK.as_bytes()) { MARK.len() } else { 0 }
}

/// The text in a file that has `most` bytes at most, without a mark of byte order, as bytes:
/// they may be none.
///
/// # Errors
/// As [`text_of`].
pub fn bytes_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    check(path, most)?;
    let mut bytes = fs::read(path)?;
    bytes.drain(..mark_of(&bytes));
    Ok(bytes)
}

/// The text in a file that has `most` bytes at most, without a mark of byte order.
///
/// # Errors
/// When it is no regular file (a pipe may say nothing for ever, and a device may never end),
/// when it is too long or no text, or cannot be read.
pub fn text_of(path: &Path, most: u64) -> io::Result<String> {
    check(path, most)?;
    let mut text = fs::read_to_string(path)?;
    text.drain(..mark_of(text.as_bytes()));
    Ok(text)
}

fn check(path: &Path, most: u64) -> io::Result<()> {
    let about = fs::metadata(path)?;
    let text = match () {
        () if about.is_dir() => "it is a directory: name a file".into(),
        () if !about.is_file() => "it is no file: nothing else is read".into(),
        () if about.len() > most => {
            let [has, most] = [about.len(), most].map(units::capacity);
            format!("it has {has}, and of such a file {most} are read at most: name another")
        }
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// What is where a file is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// Nothing, an empty file, or one of the same kind: it may be written over.
    Replaceable,
    /// Something that is no file. At a pipe that nobody reads opening would never end.
    NoFile,
    /// A file of another kind.
    Other,
}

/// Looks at what is at `path`. A file of the same kind is one that begins with
/// `begin`.
///
/// # Errors
/// When a file that is there cannot be read.
pub fn look(path: &Path, begin: &[u8]) -> io::Result<There> {
    let Ok(about) = fs::metadata(path) else { return Ok(There::Replaceable) };
    if !about.is_file() {
        return Ok(There::NoFile);
    }
    let mut there = Vec::new();
    File::open(path)?.take(begin.len() as u64).read_to_end(&mut there)?;
    let is_same = there.is_empty() || there == begin;
    Ok(if is_same { There::Replaceable } else { There::Other })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is read that is as long as may be; each that is not read says why not.
    #[test]
    fn only_files_of_so_many_bytes_are_read() {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("measure-read-{}", std::process::id()));
        fs::write(&path, "text").unwrap();
        assert_eq!(text_of(&path, 4).unwrap(), "text");
        assert_eq!(bytes_of(&path, 5).unwrap(), b"text");
        fs::write(&path, "\u{feff}\u{feff}text").unwrap();
        assert_eq!(text_of(&path, 10).unwrap(), "\u{feff}text");
        assert_eq!(bytes_of(&path, 10).unwrap(), "\u{feff}text".as_bytes());
        fs::write(&path, "text").unwrap();
        let why = |path: &Path| {
            let both = [text_of(path, 3).map(drop), bytes_of(path, 3).map(drop)];
            let [text, bytes] = both.map(|read| read.unwrap_err().to_string());
            assert_eq!(text, bytes);
            text
        };
        let long = why(&path);
        assert_eq!(long, "it has 4 B, and of such a file 3 B are read at most: name another");
        assert_eq!(why(&dir), "it is a directory: name a file");
        assert_eq!(why(Path::new("/dev/zero")), "it is no file: nothing else is read");
        fs::remove_file(&path).unwrap();
        assert!(why(&path).contains("No such file"), "{path:?}");
    }

    #[test]
    fn only_the_same_kind_is_replaced() {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("measure-file-{}", std::process::id()));
        let look = |path: &Path| look(path, b"kind").unwrap();
        assert_eq!((look(&path), look(&dir)), (There::Replaceable, There::NoFile));
        for (bytes, there) in [
            ("", There::Replaceable),
            ("kind", There::Replaceable),
            ("kinds", There::Replaceable),
            ("kin", There::Other),
            ("other", There::Other),
        ] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(look(&path), there, "{bytes}");
        }
        fs::remove_file(&path).unwrap();
    }
}
