//! Whether a file may be written over: a wrong path must not cost a drive.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

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
