//! Trees go to a real folder, and come back as they were.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use crash::{Event, Explorer, Options, Tree};
use files::{Inode, Kind, Operation};
use port::random::Random;

use crate::collect::collect;

fn make(folder: &Path) {
    fs::create_dir_all(folder.join("a/b")).unwrap();
    fs::write(folder.join("a/file"), vec![3; 10_000]).unwrap();
    fs::write(folder.join("a/b/empty"), "").unwrap();
    let mut holes = vec![0; 3 << 20];
    holes[1 << 20] = 1;
    fs::write(folder.join("holes"), holes).unwrap();
    fs::hard_link(folder.join("a/file"), folder.join("same")).unwrap();
    symlink("a/nowhere", folder.join("link")).unwrap();
    fs::set_permissions(folder.join("holes"), Permissions::from_mode(0o4750)).unwrap();
    fs::set_permissions(folder.join("a/b"), Permissions::from_mode(0o711)).unwrap();
}

#[test]
fn a_folder_goes_in_and_comes_out_as_it_was() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(from.path());
    let collected = collect(from.path());
    assert!(collected.left_out.is_empty());
    let explorer = Explorer::new(&collected.operations, Vec::new(), Options::default()).unwrap();
    let mut state = explorer.state(0, 0).unwrap();
    let tree = Tree::new(&to.path().join("tree")).unwrap();
    for _ in 0..2 {
        tree.extract(&mut state.files).unwrap();
        let again = collect(&to.path().join("tree"));
        assert_eq!(again.operations, collected.operations);
    }
    let time = |name| fs::metadata(to.path().join("tree").join(name)).unwrap().modified().unwrap();
    let before = time("holes");
    fs::write(to.path().join("tree/a/b/empty"), "x").unwrap();
    tree.extract(&mut state.files).unwrap();
    assert_eq!(time("holes"), before, "what is right is not written");
    assert_eq!(
        time("a/b/empty"),
        fs::metadata(to.path().join("tree/a/b/empty")).unwrap().modified().unwrap()
    );
    assert_eq!(fs::read(to.path().join("tree/a/b/empty")).unwrap(), b"");
}

/// A file of terabytes with a few bytes in it is compared, hashed and written at once; what was
/// there in its holes goes.
#[test]
fn holes_are_not_read_however_large() {
    let inode = Inode(2);
    let (size, middle) = (4 << 40, 2 << 40);
    let write = |offset, data: &[u8]| Operation::Write { inode, offset, data: data.to_vec() };
    let initial = [
        Operation::Create {
            parent: Inode::ROOT,
            name: b"large".to_vec(),
            inode,
            kind: Kind::File,
            mode: 0o644,
        },
        Operation::Truncate { inode, size },
        write(middle, b"abc"),
    ];
    // Zeros are the same as a hole.
    let zeros = [initial.to_vec(), vec![write(1 << 40, &[0; 5000])]].concat();
    let moved = [initial[..2].to_vec(), vec![write(middle + 8192, b"abc")]].concat();
    let mut hashes = Vec::new();
    for operations in [&initial[..], &zeros, &moved] {
        let explorer = Explorer::new(operations, Vec::new(), Options::default()).unwrap();
        let mut state = explorer.state(0, 0).unwrap();
        hashes.push(explorer.hash(&mut state).unwrap());
        let to = tempfile::tempdir().unwrap();
        let tree = Tree::new(to.path()).unwrap();
        tree.extract(&mut state.files).unwrap();
        let file =
            fs::File::options().read(true).write(true).open(to.path().join("large")).unwrap();
        file.write_all_at(b"x", 3 << 40).unwrap();
        tree.extract(&mut state.files).unwrap();
        let mut bytes = [1; 4];
        file.read_exact_at(&mut bytes, 3 << 40).unwrap();
        assert_eq!(bytes, [0; 4]);
        assert_eq!(file.metadata().unwrap().len(), size);
    }
    assert!(hashes[0] == hashes[1] && hashes[0] != hashes[2], "{hashes:?}");
}

/// A run in which names change all the time.
fn events() -> Vec<Event> {
    let (mut random, mut events) = (Random::new(2, 2), Vec::new());
    let mut names: Vec<(Vec<u8>, Inode)> = Vec::new();
    for n in 0..150u64 {
        let (inode, name) = (Inode(n + 2), format!("n{n}").into_bytes());
        let parent = Inode::ROOT;
        let kind = match random.below(6) {
            0 => Kind::Folder,
            1 => Kind::Link(b"to".to_vec()),
            _ => Kind::File,
        };
        let is_file = kind == Kind::File;
        let operation = match random.below(4) {
            0 if !names.is_empty() => {
                let at = random.below(names.len() as u64) as usize;
                let (old, inode) = std::mem::replace(&mut names[at], (name.clone(), inode));
                names[at].1 = inode;
                Operation::Rename { from: (parent, old), to: (parent, name), exchange: false }
            }
            1 if !names.is_empty() => {
                let (name, _) = names.swap_remove(random.below(names.len() as u64) as usize);
                Operation::Remove { parent, name }
            }
            _ => {
                names.push((name.clone(), inode));
                Operation::Create { parent, name, inode, kind, mode: 0o600 + n as u16 % 64 }
            }
        };
        let made = matches!(operation, Operation::Create { .. }) && is_file;
        events.push(Event::Operation(operation));
        if made {
            let data = vec![n as u8; random.below(9000) as usize];
            events.push(Event::Operation(Operation::Write { inode, offset: 0, data }));
            let name = format!("same{n}").into_bytes();
            if random.below(3) == 0 {
                events.push(Event::Operation(Operation::Link { parent, name, inode }));
            }
        }
    }
    events
}

#[test]
fn a_folder_becomes_one_state_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let explorer = Explorer::new(&[], events(), Options::default()).unwrap();
    let used = Tree::new(&dir.path().join("used")).unwrap();
    let mut random = Random::new(3, 3);
    for n in 0..60 {
        let (cut, variant) = explorer.choose(n);
        let mut state = explorer.state(cut, variant).unwrap();
        used.extract(&mut state.files).unwrap();
        let fresh = dir.path().join(format!("fresh{n}"));
        Tree::new(&fresh).unwrap().extract(&mut state.files).unwrap();
        let (one, other) = (collect(&dir.path().join("used")), collect(&fresh));
        assert_eq!(one.operations, other.operations, "state {n}");
        spoil(&dir.path().join("used"), &mut random);
    }
}

/// What a program that looked at the folder may have left of it.
fn spoil(folder: &Path, random: &mut Random) {
    for entry in fs::read_dir(folder).unwrap() {
        let (entry, way) = (entry.unwrap(), random.below(8));
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        match way {
            0 if kind.is_file() => fs::write(&path, "spoilt").unwrap(),
            1 if !kind.is_dir() => {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
                fs::write(path.join("in"), "").unwrap();
                fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
            }
            2 if !kind.is_symlink() => {
                fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
            }
            3 if !kind.is_dir() => {
                fs::remove_file(&path).unwrap();
                symlink("/", &path).unwrap();
            }
            4 if kind.is_file() => fs::hard_link(&path, folder.join(format!("x{way}")))
                .or_else(|_| fs::remove_file(&path))
                .unwrap(),
            _ => {}
        }
    }
}
