//! Files for pages and pictures.
//!
//! Guarantees: a page is written over nothing but a page of ssdkit, whichever command made
//! it, and a picture over nothing but an SVG file; nothing is opened that may wait for ever;
//! what was there stays as it was until what replaces it is whole. Fails as the system does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use measure::file::{There, look};

use crate::page::BEGIN;

/// What pictures are named.
const PICTURES: [&str; 6] = ["png", "svg", "jpg", "jpeg", "gif", "pdf"];
/// What a picture begins with.
const SVG: &str = "<svg";

/// A file that a page or a picture can be written to.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    /// Made beside it, and renamed when it is whole.
    part: PathBuf,
    file: File,
}

impl OutFile {
    /// A file for a page.
    ///
    /// # Errors
    /// When it cannot be made, there is something that is no page, or it is named as a picture.
    pub fn page(path: &Path) -> io::Result<OutFile> {
        let extension = path.extension().and_then(|it| it.to_str()).map(str::to_lowercase);
        if extension.is_some_and(|it| PICTURES.contains(&it.as_str())) {
            let why = "that is the name of a picture, and a page is HTML: name it .html; pictures \
                       alone are had from reports by `ssdkit compare --pictures DIR`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        OutFile::open(path, BEGIN)
    }

    /// A file for a picture.
    ///
    /// # Errors
    /// When it cannot be made, or there is something that is no picture.
    pub fn picture(path: &Path) -> io::Result<OutFile> {
        OutFile::open(path, SVG)
    }

    fn open(path: &Path, begin: &str) -> io::Result<OutFile> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        // A link is followed once: what it leads to is what would be replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match look(&path, begin.as_bytes())? {
            There::Replaceable => {}
            There::NoFile => return wrong("it is no file"),
            There::Other => return wrong("there is something else; choose another name"),
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&part)?;
        Ok(OutFile { path, part, file })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it.
    ///
    /// # Errors
    /// As the system says; then all is as it was before.
    pub fn write(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        fs::rename(&self.part, &self.path)
    }
}

impl Drop for OutFile {
    /// What was begun for a page that never came goes again. Renamed, it is not there.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_are_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.html");
        let files = || fs::read_dir(dir.path()).unwrap().count();
        drop(OutFile::page(&path).unwrap());
        assert_eq!(files(), 0, "no page came");
        let page = format!("{BEGIN}a longer page");
        OutFile::page(&path).unwrap().write(&page).unwrap();
        drop(OutFile::page(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), page, "it stays when no new one comes");
        OutFile::page(&path).unwrap().write(BEGIN).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), files()), (BEGIN, 1));
        assert!(OutFile::page(dir.path()).is_err());
        let picture = OutFile::page(&dir.path().join("run.PNG")).unwrap_err().to_string();
        assert!(picture.contains(".html"), "{picture}");
        assert!(OutFile::page(&dir.path().join("none/run.html")).is_err());
    }

    #[test]
    fn a_drive_is_not_written_over_nor_by_way_of_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (drive, link) = (dir.path().join("a.ssd"), dir.path().join("latency.svg"));
        fs::write(&drive, "SSDKIT").unwrap();
        std::os::unix::fs::symlink(&drive, &link).unwrap();
        let (by_page, by_picture) = (OutFile::page(&link), OutFile::picture(&link));
        for refused in [OutFile::page(&drive), OutFile::picture(&drive), by_picture] {
            assert!(refused.unwrap_err().to_string().contains("something else"));
        }
        assert!(by_page.is_err());
        assert_eq!(fs::read_to_string(&drive).unwrap(), "SSDKIT");
    }
}
