//! A file for a page.
//!
//! Guarantees: it never writes over what is no page of ours, and says before
//! anything is measured that it could not be written. Fails as the system does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::page::BEGIN;

/// A file that a page can be written to.
#[derive(Debug)]
pub struct PageFile {
    file: File,
    path: PathBuf,
    is_new: bool,
}

impl PageFile {
    /// Opens it, or makes it.
    ///
    /// # Errors
    /// When that is refused, or there is something that is no page.
    pub fn open(path: &Path) -> io::Result<PageFile> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if let Ok(about) = fs::metadata(path) {
            if !about.is_file() {
                return wrong("it is no file");
            }
            let mut file = options.open(path)?;
            let mut begin = Vec::new();
            (&mut file).take(BEGIN.len() as u64).read_to_end(&mut begin)?;
            if !begin.is_empty() && begin != BEGIN.as_bytes() {
                return wrong("there is something else; choose another name");
            }
            return Ok(PageFile { file, path: path.to_owned(), is_new: false });
        }
        let file = options.create_new(true).open(path)?;
        Ok(PageFile { file, path: path.to_owned(), is_new: true })
    }

    /// Writes the page.
    ///
    /// # Errors
    /// As the system says; then the file has a part of it.
    pub fn write(mut self, page: &str) -> io::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(page.as_bytes())?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for PageFile {
    /// What was made for a page that never came goes again.
    fn drop(&mut self) {
        if self.is_new {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_are_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.html");
        drop(PageFile::open(&path).unwrap());
        assert!(!path.exists(), "no page came");
        let page = format!("{BEGIN}a longer page");
        PageFile::open(&path).unwrap().write(&page).unwrap();
        drop(PageFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), page, "it stays when no new one comes");
        PageFile::open(&path).unwrap().write(BEGIN).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), BEGIN);
        let drive = dir.path().join("a.ssd");
        fs::write(&drive, "SSDKIT").unwrap();
        assert!(PageFile::open(&drive).unwrap_err().to_string().contains("something else"));
        assert_eq!(fs::read_to_string(&drive).unwrap(), "SSDKIT");
        assert!(PageFile::open(dir.path()).is_err());
        assert!(PageFile::open(&dir.path().join("none/run.html")).is_err());
    }
}
