//! How the tests run a program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use files::{Files, Inode, Memory, Options, Type};
use interpose::{Ended, Program, Recorder, RunError, Tree, Watcher};
use tempfile::TempDir;

use crate::model::{Listing, Model, Node, assert_same, listing_of};

/// A folder that is mapped, and one beside it.
pub struct Place {
    pub all: TempDir,
    pub mapped: PathBuf,
    pub outside: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let (mapped, outside) = (all.path().join("mapped"), all.path().join("outside"));
        std::fs::create_dir(&mapped).unwrap();
        std::fs::create_dir(&outside).unwrap();
        Self { all, mapped, outside }
    }

    /// Runs a program in the mapped folder; what it prints is in files beside.
    pub fn run(&self, command: &[&str], watcher: &mut dyn Watcher) -> Result<Ended, RunError> {
        let mut tree = Tree::of(&self.mapped, &mut |_, _| None)?;
        self.run_in(&mut tree, command, watcher)
    }

    pub fn run_in(
        &self,
        tree: &mut Tree,
        command: &[&str],
        watcher: &mut dyn Watcher,
    ) -> Result<Ended, RunError> {
        let file = |name: &str| Some(File::create(self.all.path().join(name)).unwrap().into());
        let program = Program {
            command: command.iter().map(OsString::from).collect(),
            environment: vec![
                ("HOME".into(), self.outside.clone().into()),
                ("OUTSIDE".into(), self.outside.clone().into()),
            ],
            folder: Some(self.mapped.clone()),
            stdio: [Some(File::open("/dev/null").unwrap().into()), file("out"), file("err")],
        };
        interpose::run(&program, tree, watcher)
    }

    pub fn printed(&self, name: &str) -> String {
        let bytes = std::fs::read(self.all.path().join(name)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs a program that must succeed, and what is told of it must be what is there.
    pub fn check(&self, command: &[&str]) -> Recorder {
        let mut recorder = Recorder::with_outputs();
        let ended = self.run(command, &mut recorder).unwrap();
        let err = self.printed("err");
        assert_eq!(ended.code, 0, "{command:?}: {err}\n{}", self.printed("out"));
        let model = Model::of(&recorder);
        assert_same(&model.listing(), &listing_of(&self.mapped));
        assert_eq!(model.nameless(), 0, "all that went was told to go");
        assert_same(&on_a_disk(&recorder), &listing_of(&self.mapped));
        recorder
    }

    pub fn sh(&self, script: &str) -> Recorder {
        self.check(&["sh", "-euc", script])
    }
}

/// What the file layer makes of it.
fn on_a_disk(recorder: &Recorder) -> Listing {
    let mut files = Files::format(Memory::new(1 << 15), Options::default()).unwrap();
    for operation in recorder.operations() {
        files.apply(operation).unwrap_or_else(|e| panic!("{operation:?}: {e}"));
    }
    assert_eq!(files.check(), Vec::<String>::new());
    let mut out = Listing::new();
    list(&mut files, Inode::ROOT, Vec::new(), &mut out);
    out
}

fn list(files: &mut Files<Memory>, folder: Inode, path: Vec<u8>, out: &mut Listing) {
    let names: Vec<(Vec<u8>, Inode)> =
        files.list(folder).unwrap().map(|(name, inode)| (name.to_vec(), inode)).collect();
    for (name, inode) in names {
        let path = [path.as_slice(), b"/", &name].concat();
        let stat = files.stat(inode).unwrap();
        let node = match stat.kind {
            Type::Folder => {
                list(files, inode, path.clone(), out);
                Node::Folder(BTreeMap::new())
            }
            Type::Link => Node::Link(files.target(inode).unwrap().to_vec()),
            Type::File => {
                let mut bytes = vec![0; stat.size as usize];
                assert_eq!(files.read(inode, 0, &mut bytes).unwrap(), bytes.len());
                Node::File(bytes)
            }
        };
        out.insert(path, (node, stat.mode, stat.links as usize));
    }
}

/// Whether this machine can run them at all; says so where it cannot.
pub fn is_able() -> bool {
    let place = Place::new();
    match place.run(&["true"], &mut Recorder::default()) {
        Err(error) if error.is_unable() => {
            eprintln!("LEFT OUT: nothing of supervision is tested here: {error}");
            false
        }
        other => {
            other.unwrap();
            true
        }
    }
}

/// Whether a program is there; says so where it is not.
pub fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !has {
        eprintln!("LEFT OUT: {program} is not installed");
    }
    has
}

/// Compiles a program of these tests, without libraries of the system at run time.
pub fn compiled(place: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    if !has("cc") {
        return None;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
    let to = place.join("program");
    let out = std::process::Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .arg(&to)
        .args(flags)
        .arg(path)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(to)
}
