//! Folders that are filled, compared and emptied, on a disk in memory.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use files::{DiskError, Kind, Memory, Operation, Options, Request};
use interpose::Tree;
use port::Status;
use tempfile::TempDir;

use super::*;

const BLOCKS: u64 = 4096;

/// Files, and a folder in which they are to be.
struct Place<D> {
    files: Files<D>,
    next: u64,
    around: TempDir,
    folder: Folder,
}

impl<D: Disk> Place<D> {
    fn of(disk: D) -> Self {
        let around = tempfile::tempdir().unwrap();
        let folder = Folder::open(&around.path().join("data")).unwrap();
        let files = Files::format(disk, Options::default()).unwrap();
        Self { files, next: 1, around, folder }
    }

    fn make(&mut self, parent: Inode, name: &str, kind: Kind, mode: u16) -> Inode {
        self.next += 1;
        let (inode, name) = (Inode(self.next), name.as_bytes().to_vec());
        self.files.apply(&Operation::Create { parent, name, inode, kind, mode }).unwrap();
        inode
    }

    fn write(&mut self, inode: Inode, data: &[u8]) {
        let data = data.to_vec();
        self.files.apply(&Operation::Write { inode, offset: 0, data }).unwrap();
    }

    fn fill(&mut self) -> Result<(), String> {
        fill(&mut self.files, Inode::ROOT, &self.folder, &mut Unreadable::default())
    }

    fn difference(&mut self) -> Option<PathBuf> {
        let none = &mut Unreadable::default();
        difference(&mut self.files, Inode::ROOT, &self.folder, none).unwrap()
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.data(name)).unwrap().mode() & 0o7777
    }
}

/// Does it as somebody whom permission bits keep out, where this process may become one.
fn as_nobody(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65534);
            if rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_err() {
                eprintln!("LEFT OUT: becoming nobody");
            }
            work();
        });
        if let Err(e) = thread.join() {
            std::panic::resume_unwind(e);
        }
    });
}

/// Read byte by byte it would take hours.
#[test]
fn holes_are_not_read_however_large() {
    let mut place = Place::of(Memory::new(BLOCKS));
    let inode = place.make(Inode::ROOT, "large", Kind::File, 0o644);
    let size = 4 << 40;
    place.files.apply(&Operation::Truncate { inode, size }).unwrap();
    for offset in [8192, (2 << 40) + 5, size - 3] {
        let data = b"abc".to_vec();
        place.files.apply(&Operation::Write { inode, offset, data }).unwrap();
    }
    place.fill().unwrap();
    assert_eq!(place.difference(), None);
    let file = File::options().write(true).open(place.data("large")).unwrap();
    // Where the drive has a hole, and where it has bytes.
    for offset in [1 << 40, (2 << 40) + 6] {
        file.write_all_at(b"x", offset).unwrap();
        assert_eq!(place.difference(), Some(place.data("large")));
        let was: &[u8] = if offset == 1 << 40 { b"\0" } else { b"b" };
        file.write_all_at(was, offset).unwrap();
        assert_eq!(place.difference(), None);
    }
}

#[test]
fn it_goes_as_deep_as_folders_do() {
    let mut place = Place::of(Memory::new(BLOCKS));
    let (name, mut parent) = ("n".repeat(200), Inode::ROOT);
    for _ in 0..1100 {
        parent = place.make(parent, &name, Kind::Folder, 0o755);
    }
    let file = place.make(parent, "file", Kind::File, 0o644);
    place.write(file, b"deep");
    let (parent, name) = (Inode::ROOT, b"link".to_vec());
    place.files.apply(&Operation::Link { parent, name, inode: file }).unwrap();
    place.fill().unwrap();
    assert_eq!(place.difference(), None);
    assert_eq!(fs::read(place.data("link")).unwrap(), b"deep");
    let tree = Tree::of(place.folder.path(), &mut |_, _| None).unwrap();
    let mut told = 0;
    let folders = [place.folder.path().to_path_buf()];
    tree.contents(&folders, &mut |_| told += 1).unwrap();
    assert_eq!(told, 1100 + 4, "folders; a file, its size, its bytes, its other name");
    place.folder.unfill(&place.files, Inode::ROOT).unwrap();
    assert!(place.folder.is_empty().unwrap());
}

#[test]
fn bits_that_lock_us_out_are_kept_and_stop_nobody() {
    as_nobody(|| {
        let mut place = Place::of(Memory::new(BLOCKS));
        let locked = place.make(Inode::ROOT, "locked", Kind::Folder, 0);
        let inner = place.make(locked, "inner", Kind::Folder, 0o500);
        let file = place.make(inner, "file", Kind::File, 0);
        place.write(file, &[7; 9000]);
        let (parent, name) = (Inode::ROOT, b"other".to_vec());
        place.files.apply(&Operation::Link { parent, name, inode: file }).unwrap();
        place.make(inner, "set", Kind::File, 0o6755);
        place.fill().unwrap();
        for _ in 0..2 {
            assert_eq!(place.difference(), None);
            let tree = Tree::of(place.folder.path(), &mut |_, _| None).unwrap();
            let (mut made, folders) = (0, [place.folder.path().to_path_buf()]);
            tree.contents(&folders, &mut |it| {
                made +=
                    usize::from(matches!(it, Operation::Create { .. } | Operation::Link { .. }));
            })
            .unwrap();
            assert_eq!((made, place.mode("locked"), place.mode("other")), (5, 0, 0));
        }
        let at = place.folder.walk(Look::Only).unwrap();
        assert_eq!(at.at.stat(b"locked").unwrap().st_mode & 0o7777, 0);
        place.folder.empty().unwrap();
        assert!(place.folder.is_empty().unwrap());
        // The folder itself, too.
        place.folder.set_mode(0o1700).unwrap();
        assert_eq!(place.folder.mode().unwrap(), 0o1700);
        place.folder.set_mode(0).unwrap();
        place.fill().unwrap();
        assert_eq!((place.difference(), place.folder.mode().unwrap()), (None, 0));
        place.folder.empty().unwrap();
        assert!(place.folder.is_empty().unwrap());
        assert_eq!(place.folder.mode().unwrap(), 0);
    });
}

#[test]
fn what_is_elsewhere_is_never_touched() {
    let mut place = Place::of(Memory::new(BLOCKS));
    place.make(Inode::ROOT, "a", Kind::File, 0o644);
    place.fill().unwrap();
    let path = |name: &str| place.around.path().join(name);
    fs::create_dir(path("victim")).unwrap();
    fs::write(path("victim/file"), "precious").unwrap();
    assert!(place.folder.is_there());
    // A link inside, and one in the place of the folder.
    symlink(path("victim"), place.data("link")).unwrap();
    fs::rename(place.folder.path(), path("moved")).unwrap();
    symlink(path("victim"), place.folder.path()).unwrap();
    assert!(!place.folder.is_there());
    place.folder.empty().unwrap();
    assert_eq!(fs::read(path("victim/file")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(path("moved")).unwrap().count(), 0);
}

/// In a place of mounts of its own.
#[test]
fn what_is_mounted_in_it_stays() {
    let place = Place::of(Memory::new(BLOCKS));
    let path = |name: &str| place.around.path().join(name);
    fs::create_dir(path("victim")).unwrap();
    fs::write(path("victim/file"), "precious").unwrap();
    fs::create_dir_all(place.data("in/sub")).unwrap();
    fs::write(place.data("in/goes"), "").unwrap();
    let is_able = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let newns = rustix::thread::UnshareFlags::NEWNS;
            // SAFETY: mounts are this thread's alone from now on; descriptors stay everybody's.
            let apart = unsafe { rustix::thread::unshare_unsafe(newns) };
            let mount = |arguments: &[&str]| {
                Command::new("mount").args(arguments).status().is_ok_and(|it| it.success())
            };
            let (victim, sub) = (path("victim"), place.data("in/sub"));
            let bind = ["--bind", victim.to_str().unwrap(), sub.to_str().unwrap()];
            if apart.is_err() || !mount(&["--make-rprivate", "/"]) || !mount(&bind) {
                return false;
            }
            let folder = Folder::open(place.folder.path()).unwrap();
            let e = folder.empty().unwrap_err().to_string();
            assert!(e.contains("in/sub: that stays"), "{e}");
            true
        });
        thread.join().unwrap()
    });
    if !is_able {
        return eprintln!("LEFT OUT: this machine lets nobody mount");
    }
    assert_eq!(fs::read(path("victim/file")).unwrap(), b"precious");
    assert!(!place.data("in/goes").exists());
}

#[test]
fn pipes_and_sockets_are_no_difference_and_strange_files_are() {
    let mut place = Place::of(Memory::new(BLOCKS));
    let inner = place.make(Inode::ROOT, "inner", Kind::Folder, 0o755);
    place.make(inner, "a", Kind::File, 0o644);
    let _socket = UnixListener::bind(place.data("socket")).unwrap();
    assert!(place.folder.is_empty().unwrap());
    place.fill().unwrap();
    let _other = UnixListener::bind(place.data("inner/socket")).unwrap();
    assert_eq!(place.difference(), None);
    fs::write(place.data("inner/mine"), "").unwrap();
    assert_eq!(place.difference(), Some(place.data("inner/mine")));
    // What it was filled with goes alone.
    place.folder.unfill(&place.files, Inode::ROOT).unwrap();
    assert!(place.data("inner/mine").exists() && place.data("socket").exists());
    assert!(!place.data("inner/a").exists());
    assert_eq!(place.difference(), Some(place.data("inner/mine")));
    fs::remove_file(place.data("inner/mine")).unwrap();
    assert_eq!(place.difference(), Some(place.data("inner/a")));
    fs::remove_dir_all(place.data("inner")).unwrap();
    assert_eq!(place.difference(), Some(place.data("inner")));
    let mode = fs::Permissions::from_mode(0o700);
    place.fill().unwrap();
    fs::set_permissions(place.data("inner"), mode).unwrap();
    assert_eq!(place.difference(), Some(place.data("inner")));
}

/// A disk of which one block cannot be read.
struct Bad {
    disk: Memory,
    block: Option<u64>,
}

impl Disk for Bad {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        let blocks = (bytes.len() / BLOCK) as u64;
        match self.block {
            Some(bad) if (at..at + blocks).contains(&bad) => {
                let status = Status::UNRECOVERED_READ;
                Err(DiskError { request: Request::Read, at, blocks, status })
            }
            _ => self.disk.read(at, bytes),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.disk.flush()
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        self.disk.trim(at, blocks)
    }
}

#[test]
fn a_block_that_cannot_be_read_is_one_block_of_one_file() {
    let mut place = Place::of(Bad { disk: Memory::new(BLOCKS), block: None });
    let big = place.make(Inode::ROOT, "big", Kind::File, 0o644);
    let other = place.make(Inode::ROOT, "other", Kind::File, 0o644);
    let data: Vec<u8> = (0..2_500_000u32).map(|n| (n / 4096 % 250) as u8 + 1).collect();
    place.write(big, &data);
    place.write(other, b"other");
    place.files.apply(&Operation::SyncAll).unwrap();
    let run = place.files.runs(big, 300 * 4096, 4096).unwrap()[0].clone();
    place.files.disk_mut().block = Some(run.start);
    let mut unreadable = Unreadable::default();
    fill(&mut place.files, Inode::ROOT, &place.folder, &mut unreadable).unwrap();
    assert_eq!(unreadable.paths, [(place.data("big"), 1)]);
    assert!(unreadable.touched(big, 300..301).is_some());
    assert_eq!((unreadable.touched(big, 0..300), unreadable.touched(big, 301..999)), (None, None));
    let mut expected = data;
    expected[300 * 4096..301 * 4096].fill(0);
    assert!(fs::read(place.data("big")).unwrap() == expected);
    assert_eq!(fs::read(place.data("other")).unwrap(), b"other");
    // It is what the drive has, as far as anybody knows.
    assert_eq!(place.difference(), None);
    expected[301 * 4096] ^= 1;
    fs::write(place.data("big"), expected).unwrap();
    assert_eq!(place.difference(), Some(place.data("big")));
}

#[test]
fn what_was_filled_before_something_failed_goes_again() {
    let mut place = Place::of(Memory::new(BLOCKS));
    for name in ["a", "b", "c"] {
        let folder = place.make(Inode::ROOT, name, Kind::Folder, 0o755);
        place.make(folder, "file", Kind::File, 0o644);
    }
    // Somebody else's, in the way.
    let _socket = UnixListener::bind(place.data("b")).unwrap();
    let e = place.fill().unwrap_err();
    assert!(e.contains("data/b: File exists"), "{e}");
    assert!(place.data("a/file").exists());
    place.folder.unfill(&place.files, Inode::ROOT).unwrap();
    let left: Vec<_> = fs::read_dir(place.folder.path()).unwrap().collect();
    assert_eq!((left.len(), place.data("b").exists()), (1, true));
}
