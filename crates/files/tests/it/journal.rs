//! What a failing disk does.

use files::{
    Disk, DiskError, Files, FilesError, Inode, Kind, Memory, Operation, Options, Request, WriteBack,
};
use port::Status;

/// A disk whose writes fail from some number on.
pub struct Failing {
    pub disk: Memory,
    pub writes: u64,
    pub fails: std::ops::Range<u64>,
}

impl Disk for Failing {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.writes += 1;
        if self.fails.contains(&self.writes) {
            let (request, blocks) = (Request::Write, (bytes.len() / 4096) as u64);
            return Err(DiskError { request, at, blocks, status: Status::WRITE_FAULT });
        }
        self.disk.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.disk.flush()
    }

    fn trim(&mut self, at: u64, blocks: u64) -> Result<(), DiskError> {
        self.disk.trim(at, blocks)
    }
}

fn with_file(fails: std::ops::Range<u64>) -> Files<Failing> {
    let files = Files::format(Memory::new(512), Options::default()).unwrap();
    let disk = Failing { disk: files.into_disk(), writes: 0, fails };
    let mut files = Files::mount(disk).unwrap();
    let (parent, kind) = (Inode::ROOT, Kind::File);
    let create =
        Operation::Create { parent, name: b"f".to_vec(), inode: Inode(2), kind, mode: 0o600 };
    files.apply(&create).unwrap();
    files.apply(&Operation::Write { inode: Inode(2), offset: 0, data: vec![1; 8192] }).unwrap();
    files
}

/// The ring of the one before has whole transactions, from its beginning on.
#[test]
fn a_new_file_system_does_not_replay_the_journal_of_the_old() {
    let options = |id| Options { id, ..Options::default() };
    let mut disk = Memory::new(512);
    for id in 1..4 {
        let mut files = Files::format(disk, options(id)).unwrap();
        for inode in 2..2 + 7 * id {
            let name = inode.to_string().into_bytes();
            let (parent, inode) = (Inode::ROOT, Inode(inode));
            let create = Operation::Create { parent, name, inode, kind: Kind::Folder, mode: 0o700 };
            files.apply(&create).unwrap();
            files.apply(&Operation::SyncAll).unwrap();
        }
        let files = Files::format(files.into_disk(), options(10 + id)).unwrap();
        let files = Files::mount(files.into_disk()).unwrap();
        assert_eq!(files.list(Inode::ROOT).unwrap().count(), 0);
        disk = files.into_disk();
    }
}

const SYNC: Operation = Operation::Sync { inode: Inode(2), data: false };

#[test]
fn data_that_fail_are_told_once_as_linux_does() {
    let mut files = with_file(1..2);
    let error = files.apply(&SYNC).unwrap_err();
    assert!(matches!(error, FilesError::Disk(error) if error.status == Status::WRITE_FAULT));
    assert_eq!((error.errno(), files.apply(&SYNC)), (5, Ok(())));
}

/// Who asks for all to be durable hears of it, and who asks for the file does, too.
#[test]
fn data_that_failed_in_the_background_are_told_by_sync_until_the_file_was() {
    let mut files = with_file(1..2);
    let pages = WriteBack::Pages { inode: Inode(2), first: 0, count: 2 };
    assert_eq!(files.write_back(pages), Ok(()));
    for _ in 0..2 {
        assert!(matches!(files.apply(&Operation::SyncAll), Err(FilesError::Disk(_))));
    }
    assert!(matches!(files.apply(&SYNC), Err(FilesError::Disk(_))));
    assert_eq!((files.apply(&SYNC), files.apply(&Operation::SyncAll)), (Ok(()), Ok(())));
    // With the file goes what nobody was told.
    let mut files = with_file(1..2);
    files.write_back(pages).unwrap();
    files.apply(&Operation::Remove { parent: Inode::ROOT, name: b"f".to_vec() }).unwrap();
    files.apply(&Operation::Forget { inode: Inode(2) }).unwrap();
    assert_eq!(files.apply(&Operation::SyncAll), Ok(()));
}

#[test]
fn a_journal_that_fails_ends_all_changes() {
    let mut files = with_file(2..3);
    assert!(matches!(files.apply(&SYNC), Err(FilesError::Disk(_))));
    assert_eq!(files.apply(&SYNC), Err(FilesError::Aborted));
    let write = Operation::Write { inode: Inode(2), offset: 0, data: vec![1] };
    assert_eq!(files.apply(&write), Err(FilesError::Aborted));
    assert_eq!(files.read(Inode(2), 0, &mut [0; 4]), Ok(4));
    let files = Files::mount(files.into_disk()).unwrap();
    assert_eq!(files.lookup(Inode::ROOT, b"f"), Ok(None));
}
