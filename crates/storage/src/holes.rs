//! Holes of a file: what was never written, or was trimmed. The system reads zeros there and
//! asks no drive.
//!
//! Nothing here fails: where a file or its file system tells of none there are none.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Parts of a file that are looked at, at most: what lies behind is taken to be like them.
const MOST_PARTS: usize = 1 << 16;

/// How many of a hundred bytes of a range of a file are holes, rounded down; 0 of what is no
/// file.
pub fn holes(path: impl AsRef<Path>, range: Range<u64>) -> u64 {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|at| at.is_file()));
    let Some(file) = file else { return 0 };
    let (mut at, mut holes) = (range.start, 0);
    for _ in 0..MOST_PARTS {
        if at >= range.end {
            break;
        }
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data.min(range.end),
            // There is no more.
            Err(Errno::NXIO) => range.end,
            Err(_) => return 0,
        };
        holes += data - at;
        at = match data < range.end {
            true => seek(&file, SeekFrom::Hole(data)).map_or(range.end, |hole| hole.min(range.end)),
            false => data,
        };
    }
    let of = at.saturating_sub(range.start).max(1);
    (100 * u128::from(holes) / u128::from(of)) as u64
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_are_what_was_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(holes(&path, 0..MIB), 0, "there is none");
        assert_eq!(holes(dir.path(), 0..MIB), 0, "it is no file");
        let file = File::create(&path).unwrap();
        file.set_len(16 * MIB).unwrap();
        assert_eq!(holes(&path, 0..16 * MIB), 100);
        file.write_all_at(&vec![7; 4 << 20], 8 * MIB).unwrap();
        for (range, percent) in
            [(0..16, 75), (0..8, 100), (8..12, 0), (10..14, 50), (12..16, 100), (4..12, 50)]
        {
            let bytes = range.start * MIB..range.end * MIB;
            assert_eq!(holes(&path, bytes), percent, "{range:?}");
        }
        // A little that is missing is not told to be nothing, nor much to be all.
        file.write_all_at(&vec![7; 16 << 20], 0).unwrap();
        assert_eq!(holes(&path, 0..16 * MIB), 0);
    }
}
