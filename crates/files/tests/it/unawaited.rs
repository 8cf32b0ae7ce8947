//! Commits that nobody waits for, by chance.

use files::{Disk, Fate, Files, FilesError, Inode, Journal, Kind, Memory, Operation, Options};
use port::random::Random;

use crate::disk::{Cuttable, Late};

/// Commits that are begun and looked after between operations, where there are `any`.
pub struct Unawaited {
    random: Random,
    any: bool,
    /// The last operation that is durable when the one under way is.
    pub durable: Option<usize>,
}

impl Unawaited {
    /// Those of a history of that number.
    pub fn of(seed: u64) -> Unawaited {
        let any = !seed.is_multiple_of(3);
        Unawaited { random: Random::new(seed, 11), any, durable: None }
    }

    /// Looks that find a flush under way.
    pub fn looks(&mut self) -> u64 {
        if self.any { self.random.below(5) } else { 0 }
    }

    /// Goes on with one; whether it is over.
    pub fn go_on<D: Disk>(&mut self, files: &mut Files<D>) -> Result<bool, FilesError> {
        if self.any { files.is_committed() } else { Ok(false) }
    }

    /// It is over: what was done before it began is durable. Another may begin, after operation
    /// `now`.
    pub fn next<D: Disk>(
        &mut self,
        (now, durable): (usize, &mut usize),
        files: &mut Files<D>,
    ) -> Result<(), FilesError> {
        *durable = (*durable).max(self.durable.take().unwrap_or(0));
        if self.random.below(4) > 0 {
            return Ok(());
        }
        self.durable = Some(now);
        files.begin_commit()
    }
}

/// What is done while a commit is under way is of the next, and is what files have.
#[test]
fn what_is_done_meanwhile_comes_with_the_next() {
    const FILE: Inode = Inode(2);
    let options = Options { journal: Journal::Data, ..Options::default() };
    let files = Files::format(Memory::new(512), options).unwrap();
    let disk = Late::new(Cuttable::new(files.into_disk(), 0), 3);
    let mut files = Files::mount(disk).unwrap();
    let (parent, kind, mode) = (Inode::ROOT, Kind::File, 0o600);
    let create = Operation::Create { parent, name: b"f".to_vec(), inode: FILE, kind, mode };
    let write = |byte| Operation::Write { inode: FILE, offset: 0, data: vec![byte; 5000] };
    files.apply(&create).unwrap();
    files.apply(&write(1)).unwrap();
    files.begin_commit().unwrap();
    files.apply(&write(2)).unwrap();
    let mut looks = 0;
    while !files.is_committed().unwrap() {
        assert_eq!(crate::model::read(&mut files, FILE), vec![2; 5000]);
        looks += 1;
    }
    assert_eq!(looks, 2, "one look was in the call that began it, and there is one flush");
    let left = |files: &Files<Late<Cuttable>>| {
        let mut left = Files::mount(files.disk().disk.disk.cut(|_| Fate::Lost)).unwrap();
        crate::model::read(&mut left, FILE)
    };
    assert_eq!(left(&files), vec![1; 5000]);
    // A sync in the middle of another commit waits for that, and for its own.
    files.begin_commit().unwrap();
    files.apply(&write(3)).unwrap();
    files.apply(&Operation::Sync { inode: FILE, data: true }).unwrap();
    assert_eq!(left(&files), vec![3; 5000]);
    assert_eq!(files.is_committed(), Ok(true));
}

/// Who waits for a commit finds that it is over also while the next is under way, which a full
/// transaction began.
#[test]
fn commits_are_counted_that_are_over() {
    const FILE: Inode = Inode(2);
    let journal_blocks = Some(64);
    let options = Options { journal: Journal::Data, journal_blocks, ..Options::default() };
    let files = Files::format(Memory::new(512), options).unwrap();
    let mut files = Files::mount(Late::new(files.into_disk(), 1000)).unwrap();
    let commits = |files: &Files<Late<Memory>>| (files.commits_begun(), files.commits_over());
    let (parent, kind, mode) = (Inode::ROOT, Kind::File, 0o600);
    let create = Operation::Create { parent, name: b"f".to_vec(), inode: FILE, kind, mode };
    files.apply(&create).unwrap();
    assert_eq!(commits(&files), (0, 0));
    files.begin_commit().unwrap();
    assert_eq!(commits(&files), (1, 0));
    let write = Operation::Write { inode: FILE, offset: 0, data: vec![1; 30 << 12] };
    files.apply(&write).unwrap();
    assert_eq!(commits(&files), (1, 0), "there is room in the next");
    files.apply(&write).unwrap();
    assert_eq!(files.is_committed(), Ok(false));
    assert_eq!(commits(&files), (2, 1));
    files.apply(&Operation::SyncAll).unwrap();
    assert_eq!(commits(&files), (3, 3));
    files.begin_commit().unwrap();
    assert_eq!(commits(&files), (3, 3), "there was nothing to do");
}
