//! Without cuts the files are what a plain tree is.

use files::{
    Disk, DiskError, Files, FilesError, Inode, Journal, Kind, Memory, Names, Operation, Options,
    WriteBack,
};
use proptest::prelude::*;

use crate::model::Model;
use crate::steps::{Next, Step, next};

fn options(journal: Journal, names: Names) -> Options {
    let journal_blocks = Some(64);
    Options { journal, names, journal_blocks, dirty_pages: 64, id: 7, ..Options::default() }
}

fn kinds() -> impl Strategy<Value = (Journal, Names)> {
    let journal =
        prop_oneof![Just(Journal::Ordered), Just(Journal::Writeback), Just(Journal::None)];
    let kinds = (journal, prop_oneof![Just(Names::WithFile), Just(Names::OnlyWithFolder)]);
    prop_oneof![3 => kinds, 1 => Just((Journal::Data, Names::WithFile))]
}

fn run(journal: Journal, names: Names, kept: usize, steps: &[Step]) -> Result<(), String> {
    let mut files = Files::format(Memory::new(700), options(journal, names)).unwrap();
    files.keep_pages(kept);
    let mut model = Model::new(journal, names);
    for (now, &step) in steps.iter().enumerate() {
        match next(&mut model, step, now) {
            Some(Next::Operation(operation)) => match files.apply(&operation) {
                Ok(()) => model.apply(&operation),
                Err(FilesError::NoRoom { .. }) => {}
                Err(error) => return Err(format!("{operation:?}: {error}")),
            },
            Some(Next::WriteBack(what)) => match files.write_back(what) {
                Ok(()) | Err(FilesError::NoRoom { .. }) => {}
                Err(error) => return Err(format!("{what:?}: {error}")),
            },
            Some(Next::Cut) => model.check_now(&mut files)?,
            None => {}
        }
        assert!(files.dirty().count() <= 64, "dirty pages are bounded");
    }
    model.check_now(&mut files)?;
    for gone in model.nodes.iter().filter(|node| node.1.links == 0).map(|node| *node.0) {
        files.apply(&Operation::Forget { inode: Inode(gone) }).unwrap();
    }
    model.nodes.retain(|_, node| node.links > 0);
    files.apply(&Operation::SyncAll).unwrap();
    model.check_now(&mut files)?;
    let mut again = Files::mount(files.into_disk()).map_err(|error| error.to_string())?;
    model.check_now(&mut again)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn files_are_what_a_plain_tree_is(
        (journal, names) in kinds(),
        kept in prop_oneof![Just(0), Just(1000), 1usize..50],
        steps in prop::collection::vec(any::<Step>(), 1..300),
    ) {
        run(journal, names, kept, &steps).map_err(TestCaseError::fail)?;
    }
}

fn create(parent: u64, name: &[u8], inode: u64, kind: Kind) -> Operation {
    let (parent, inode) = (Inode(parent), Inode(inode));
    Operation::Create { parent, name: name.to_vec(), inode, kind, mode: 0o644 }
}

/// What was written and is clean need not be read to change a part of it.
#[test]
fn a_write_to_a_part_of_a_page_that_is_kept_reads_nothing() {
    for journal in [Journal::Ordered, Journal::Data] {
        let mut files =
            Files::format(Counting::new(512), options(journal, Names::WithFile)).unwrap();
        for kept in [0, 10] {
            files.keep_pages(kept);
            let (inode, name) = (2 + kept as u64, if kept == 0 { b"a" } else { b"b" });
            files.apply(&create(1, name, inode, Kind::File)).unwrap();
            let inode = Inode(inode);
            files.apply(&Operation::Write { inode, offset: 0, data: vec![1; 8192] }).unwrap();
            files.apply(&Operation::Sync { inode, data: false }).unwrap();
            files.write_back(WriteBack::Checkpoint).unwrap();
            let before = files.disk().reads;
            files.apply(&Operation::Write { inode, offset: 5000, data: vec![2; 10] }).unwrap();
            assert_eq!(files.disk().reads - before, u64::from(kept == 0), "{journal:?}");
        }
    }
}

/// A disk that counts its reads.
struct Counting {
    disk: Memory,
    reads: u64,
}

impl Counting {
    fn new(blocks: u64) -> Self {
        Self { disk: Memory::new(blocks), reads: 0 }
    }
}

impl Disk for Counting {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        self.reads += 1;
        self.disk.read(at, bytes)
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
fn what_cannot_be_is_an_error_with_its_number() {
    let mut files = Files::format(Memory::new(512), Options::default()).unwrap();
    files.apply(&create(1, b"file", 10, Kind::File)).unwrap();
    files.apply(&create(1, b"folder", 11, Kind::Folder)).unwrap();
    files.apply(&create(11, b"in", 12, Kind::Folder)).unwrap();
    let root = Inode::ROOT;
    let rename = |from: (u64, &[u8]), to: (u64, &[u8])| Operation::Rename {
        from: (Inode(from.0), from.1.to_vec()),
        to: (Inode(to.0), to.1.to_vec()),
        exchange: false,
    };
    let remove = |name: &[u8]| Operation::Remove { parent: root, name: name.to_vec() };
    let cases = [
        (create(1, b"file", 13, Kind::File), 17),
        (create(1, b"new", 10, Kind::File), 17),
        (create(1, b"a/b", 13, Kind::File), 22),
        (create(1, b"..", 13, Kind::File), 22),
        (create(1, &[b'x'; 256], 13, Kind::File), 36),
        (create(1, b"new", 13, Kind::Link(vec![b'x'; 4096])), 36),
        (create(99, b"new", 13, Kind::File), 2),
        (create(10, b"new", 13, Kind::File), 20),
        (remove(b"folder"), 39),
        (remove(b"nothing"), 2),
        (Operation::Forget { inode: Inode(10) }, 22),
        (Operation::Link { parent: root, name: b"l".to_vec(), inode: Inode(11) }, 21),
        (rename((1, b"folder"), (12, b"x")), 22),
        (rename((1, b"file"), (1, b"folder")), 21),
        (rename((1, b"folder"), (1, b"file")), 20),
        (Operation::Write { inode: Inode(11), offset: 0, data: vec![1] }, 21),
        (Operation::Write { inode: Inode(10), offset: 1 << 50, data: vec![1] }, 27),
        (Operation::Truncate { inode: Inode(10), size: u64::MAX }, 27),
        (Operation::Write { inode: Inode(10), offset: 0, data: vec![1; 4 << 20] }, 28),
        (Operation::Allocate { inode: Inode(10), offset: 0, len: 4 << 20, keep_size: true }, 28),
    ];
    for (operation, errno) in cases {
        let error = files.apply(&operation).expect_err("it cannot be");
        assert_eq!(error.errno(), errno, "{error}");
    }
    assert_eq!((files.stat(Inode(10)).unwrap().size, files.dirty().count()), (0, 0));
    assert_eq!(files.check(), Vec::<String>::new());
}

#[test]
fn what_was_given_up_is_room_again() {
    for journal in [Journal::Ordered, Journal::None, Journal::Data] {
        let mut files =
            Files::format(Memory::new(1024), options(journal, Names::WithFile)).unwrap();
        files.apply(&create(1, b"file", 2, Kind::File)).unwrap();
        let most = (1..1024).take_while(|&blocks| files.has_room(blocks).unwrap()).count() as u64;
        assert!((850..1000).contains(&most), "{most}");
        let write = |pages: u64| {
            let data = vec![1; pages as usize * 4096];
            Operation::Write { inode: Inode(2), offset: 0, data }
        };
        let error = files.apply(&write(most + 1)).unwrap_err();
        assert_eq!((error.errno(), files.stat(Inode(2)).unwrap().size), (28, 0));
        for _ in 0..3 {
            // Half is dirty, half is on the disk.
            files.apply(&write(most / 2)).unwrap();
            files.apply(&Operation::Sync { inode: Inode(2), data: false }).unwrap();
            files.apply(&write(most)).unwrap();
            assert_eq!(files.has_room(20), Ok(false));
            files.apply(&Operation::Truncate { inode: Inode(2), size: 0 }).unwrap();
            assert_eq!(files.has_room(most), Ok(true));
        }
        assert_eq!(files.check(), Vec::<String>::new());
    }
}

#[test]
fn a_file_outlives_the_folder_of_its_last_name() {
    let none = options(Journal::None, Names::WithFile);
    let mut files = Files::format(Memory::new(512), none).unwrap();
    files.apply(&create(1, b"file", 2, Kind::File)).unwrap();
    files.apply(&create(1, b"folder", 3, Kind::Folder)).unwrap();
    let (parent, name) = (Inode(3), b"other".to_vec());
    files.apply(&Operation::Link { parent, name: name.clone(), inode: Inode(2) }).unwrap();
    files.apply(&Operation::Remove { parent, name }).unwrap();
    files.apply(&Operation::Remove { parent: Inode(1), name: b"folder".to_vec() }).unwrap();
    files.apply(&Operation::Forget { inode: Inode(3) }).unwrap();
    files.apply(&Operation::Sync { inode: Inode(2), data: false }).unwrap();
    let files = Files::mount(files.into_disk()).unwrap();
    assert_eq!(files.lookup(Inode(1), b"file"), Ok(Some(Inode(2))));
}

#[test]
fn a_folder_has_a_hundred_thousand_names() {
    let mut files = Files::format(Memory::new(1 << 16), Options::default()).unwrap();
    for n in 0..100_000 {
        files.apply(&create(1, format!("name {n}").as_bytes(), 2 + n, Kind::File)).unwrap();
    }
    files.apply(&Operation::SyncAll).unwrap();
    let mut files = Files::mount(files.into_disk()).unwrap();
    assert_eq!(files.list(Inode::ROOT).unwrap().count(), 100_000);
    assert_eq!(files.lookup(Inode::ROOT, b"name 77777").unwrap(), Some(Inode(77_779)));
    for n in 0..100_000 {
        let name = format!("name {n}").into_bytes();
        files.apply(&Operation::Remove { parent: Inode::ROOT, name }).unwrap();
        files.apply(&Operation::Forget { inode: Inode(2 + n) }).unwrap();
    }
    assert_eq!(files.check(), Vec::<String>::new());
}

#[test]
fn a_file_in_thousands_of_pieces_is_cut_in_bounded_steps() {
    let mut files = Files::format(Memory::new(1 << 15), options(Journal::Ordered, Names::WithFile));
    let files = files.as_mut().unwrap();
    files.apply(&create(1, b"file", 2, Kind::File)).unwrap();
    for n in 0..6_000u64 {
        let offset = (n * 7919 % 6_000) * 8192;
        files
            .apply(&Operation::Write { inode: Inode(2), offset, data: vec![n as u8; 4096] })
            .unwrap();
    }
    files.apply(&Operation::SyncAll).unwrap();
    files
        .apply(&Operation::Punch { inode: Inode(2), offset: 8192 * 100 + 5, len: 8192 * 4000 })
        .unwrap();
    assert_eq!(files.check(), Vec::<String>::new());
    files.apply(&Operation::Truncate { inode: Inode(2), size: 8192 * 50 + 9 }).unwrap();
    assert_eq!(files.check(), Vec::<String>::new());
    files.apply(&Operation::SyncAll).unwrap();
    let mut byte = [0];
    assert_eq!(files.read(Inode(2), 8192 * 50 + 8, &mut byte), Ok(1));
    let free = files.free_blocks();
    files.apply(&Operation::Truncate { inode: Inode(2), size: 0 }).unwrap();
    files.apply(&Operation::SyncAll).unwrap();
    assert!(files.free_blocks() > free);
    assert_eq!(files.disk().blocks(), 1 << 15);
}

/// `cargo test --release -p ssdkit-files -- --ignored --nocapture cost`
#[test]
#[ignore = "it prints times, and nothing is wrong with any"]
fn cost_of_a_write() {
    cost(Journal::Ordered);
    cost(Journal::Data);
}

fn cost(journal: Journal) {
    let options = Options { journal, ..Options::default() };
    let mut files = Files::format(Memory::new(1 << 16), options).unwrap();
    files.apply(&create(1, b"file", 2, Kind::File)).unwrap();
    let (begin, writes) = (std::time::Instant::now(), 500_000);
    for n in 0..writes {
        let offset = n * 7919 % 30_000 * 4096;
        files
            .apply(&Operation::Write { inode: Inode(2), offset, data: vec![n as u8; 4096] })
            .unwrap();
        if n % 100 == 0 {
            files.apply(&Operation::Sync { inode: Inode(2), data: false }).unwrap();
        }
    }
    println!(
        "{journal:?}: a write takes {:.2} us",
        begin.elapsed().as_secs_f64() / writes as f64 * 1e6
    );
}
