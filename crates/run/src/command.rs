//! The run: the drive is opened, its files are mounted, the folders filled; the program runs; the
//! files are synced, the drive is shut down, or its power cut.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use drive::error::Error;
use drive::memory;
use drive::restore::Restored;
use drive::say::say;
use drive::spec::{DriveConfig, DriveSpec, Store};
use drive::stack::{self, needs_blocks};
use drive::whole::{Drive, Ended};
use files::{BLOCK, Disk, Files, FilesError, Inode, Journal, Kind, Operation};
use interpose::{Program, RunError, Tree};

use crate::args::{JournalKind, RunArgs};
use crate::engine::DriveDisk;
use crate::folder;
use crate::speculation::Speculation;
use crate::summary::{Summary, programmed};
use crate::watcher::OnDrive;

/// Blocks at the beginning of a drive that are zeros where nothing is on it.
const LOOK: u64 = 256;

/// Runs the program; gives its exit code.
pub fn run(args: &RunArgs) -> Result<u8, Error> {
    // Before there are threads that would take those that are for the program.
    let _signals = interpose::block_signals();
    let drive = opened(args)?;
    let (config, ready) = (drive.config.clone(), drive.ready());
    let disk = DriveDisk::new(drive.drive, ready);
    let ran = on(args, &disk);
    let is_cut = ran.as_ref().is_ok_and(|ran| ran.summary.is_cut);
    // Whatever happened, a drive that has power is shut down.
    let ended = end(disk, is_cut);
    let ran = ran?;
    match args.json {
        true => eprintln!("{}", ran.summary.to_json()),
        false => say(format!("{}: {}", config.name, ran.summary.text())),
    }
    ended.and(ran.synced)?;
    Ok(ran.summary.code as u8)
}

/// A program that has run.
struct Ran {
    summary: Summary,
    /// Whether all is on the drive that was to be.
    synced: Result<(), Error>,
}

/// Runs it on a drive.
fn on(args: &RunArgs, disk: &DriveDisk) -> Result<Ran, Error> {
    let folders = folders(&args.maps)?;
    // A drive in memory has what the folder has, another one says what the folder is to have.
    let is_new = matches!(args.drive.found()?, DriveSpec::Memory(_));
    if args.format && !is_new {
        all_empty(&folders)?;
    }
    let mut files = mounted(args, disk)?;
    let speculation = speculation(args, &files)?;
    for folder in folders.iter().filter(|_| !is_new) {
        begin(&mut files, folder)?;
    }
    let mut number = |parent, name: &[u8]| files.lookup(parent, name).ok().flatten();
    let mut tree = Tree::of_many(&folders, &mut number).map_err(supervision)?;
    tree.keep_below(free_number(&files));
    if is_new {
        take_in(&mut files, &tree, &folders)?;
    }
    let before = (disk.look(programmed), disk.asked());
    let mut on_drive = OnDrive::new(files, disk.clone(), args.cut_after, speculation);
    let began = Instant::now();
    let program = Program { command: args.program.clone(), ..Program::default() };
    let ran = interpose::run(&program, &mut tree, &mut on_drive);
    let took = began.elapsed();
    let mut synced = match on_drive.speculation.as_mut().and_then(|it| it.failed.take()) {
        Some(e) => Err(answered_too_early(&e)),
        None if on_drive.is_cut || !args.no_sync_at_end => Ok(()),
        None => on_drive.finish().map_err(|e| last_sync(&e)),
    };
    if on_drive.is_cut || args.no_sync_at_end || synced.is_err() {
        // The program's view goes as its memory does; what was there before it, stays.
        for folder in folders.iter().filter(|_| !is_new) {
            folder::empty(folder).map_err(|e| Error::Failed(folder::at(folder)(&e)))?;
        }
    } else {
        synced = on_drive.files.apply(&Operation::SyncAll).map_err(|e| last_sync(&e));
    }
    let ended = ran.map_err(supervision)?;
    Ok(Ran { summary: Summary::of(&on_drive, before, ended, took), synced })
}

fn supervision(e: RunError) -> Error {
    match e {
        RunError::Overlap(_) | RunError::ZeroByte => Error::Usage(e.to_string()),
        e => Error::Failed(e.to_string()),
    }
}

fn answered_too_early(e: &FilesError) -> Error {
    Error::Failed(format!(
        "a sync that had been answered failed: the program was killed (SIGKILL) before others saw \
         anything that came after it: {e}"
    ))
}

/// Whether syncs are answered at once, and may be.
fn speculation(args: &RunArgs, files: &Files<DriveDisk>) -> Result<Option<Speculation>, Error> {
    match files.options().journal {
        _ if !args.speculate => Ok(None),
        Journal::Data => Ok(Some(Speculation::default())),
        _ => Err(Error::Usage(
            "--speculate needs a journal that keeps the order of all changes: make the file system \
             with --journal data (and --format, by which its files are lost)"
                .into(),
        )),
    }
}

fn last_sync(e: &FilesError) -> Error {
    Error::Failed(format!("the last sync failed, and what was not synced before is lost: {e}"))
}

/// The drive: one that keeps blocks and their bytes.
fn opened(args: &RunArgs) -> Result<Restored, Error> {
    let faults = args.faults.read(args.seed)?;
    let kept = |store: Store| match store {
        Store::Memory => Ok(()),
        store => {
            Err(Error::Usage(format!("store={} keeps no data: take store=memory", store.name())))
        }
    };
    let outlives = matches!(&args.drive.found()?, DriveSpec::File(spec) if !spec.copy);
    if args.cut_after.is_some() && !outlives {
        return Err(Error::Usage(
            "with its power a drive in memory is gone: take a drive file for --cut-after".into(),
        ));
    }
    match args.drive.found()? {
        DriveSpec::File(spec) => {
            let mut open = spec.open(false)?;
            open.config.faults = faults;
            let fit = kept(open.config.spec.store).and_then(|()| needs_blocks(&open.config));
            let mut open = open.if_fit(fit)?;
            if spec.copy {
                return Restored::copied(open);
            }
            open.count_time_off();
            Restored::opened(open)
        }
        DriveSpec::Memory(spec) => {
            let config = DriveConfig { faults, ..spec.resolve()? };
            kept(config.spec.store)?;
            needs_blocks(&config)?;
            memory::tell(&config);
            let drive = stack::build(&config, args.seed)?;
            Ok(Restored { config, seed: args.seed, drive, recovery: None })
        }
        _ => Err(Error::Usage("files are kept on mem: drives and drive files: take one".into())),
    }
}

/// The files that are on the drive, or none on one that has nothing.
fn mounted(args: &RunArgs, disk: &DriveDisk) -> Result<Files<DriveDisk>, Error> {
    let failed = |e: FilesError| Error::Failed(e.to_string());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let options = args.options(since.as_nanos() as u64);
    if args.format {
        return Files::format(disk.clone(), options).map_err(failed);
    }
    match Files::mount(disk.clone()) {
        Err(FilesError::NotOurs) => {
            if !is_blank(&mut disk.clone()).map_err(failed)? {
                return Err(Error::Failed(
                    "something else is on the drive: with --format it is lost, and files take \
                     its place; or take another drive"
                        .into(),
                ));
            }
            Files::format(disk.clone(), options).map_err(failed)
        }
        Ok(files) if args.journal.is_some_and(|it| it.journal() != files.options().journal) => {
            Err(Error::Usage(format!(
                "the drive has a file system with --journal {}: leave --journal out, or make a new \
                 one with --format, by which its files are lost",
                JournalKind::name_of(files.options().journal)
            )))
        }
        mounted => mounted.map_err(failed),
    }
}

fn is_blank(disk: &mut DriveDisk) -> Result<bool, FilesError> {
    let blocks = LOOK.min(disk.blocks());
    let mut bytes = vec![0; blocks as usize * BLOCK];
    disk.read(0, &mut bytes)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// What is refused is refused before the drive's files are lost.
fn all_empty(folders: &[PathBuf]) -> Result<(), Error> {
    Tree::of_many(folders, &mut |_, _| None).map_err(supervision)?;
    for path in folders {
        let failed = |e: std::io::Error| Error::Failed(folder::at(path)(&e));
        if !folder::is_empty(path).map_err(failed)? {
            return Err(Error::Failed(format!(
                "{} is not empty: a new file system begins with nothing; empty the folder, or \
                 leave --format out",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The folders by their full paths, which are there.
fn folders(maps: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let one = |path: &PathBuf| {
        let failed = |e: std::io::Error| Error::Failed(folder::at(path)(&e));
        fs::create_dir_all(path).map_err(failed)?;
        let path = fs::canonicalize(path).map_err(failed)?;
        match path.file_name() {
            Some(_) => Ok(path),
            None => Err(Error::Usage("/ cannot be mapped: take a folder in it".into())),
        }
    };
    maps.iter().map(one).collect()
}

/// A folder begins as what the drive has under its name.
fn begin(files: &mut Files<DriveDisk>, path: &Path) -> Result<(), Error> {
    use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
    let failed = |e: &dyn std::fmt::Display| Error::Failed(folder::at(path)(e));
    let name = path.file_name().unwrap_or_default().as_bytes();
    let inode = match files.lookup(Inode::ROOT, name).map_err(|e| failed(&e))? {
        Some(inode) => inode,
        None => {
            let mode = fs::metadata(path).map_err(|e| failed(&e))?.mode();
            let inode = free_number(files);
            let (parent, name, mode) = (Inode::ROOT, name.to_vec(), (mode & 0o7777) as u16);
            let create = Operation::Create { parent, name, inode, kind: Kind::Folder, mode };
            files.apply(&create).map_err(|e| failed(&e))?;
            inode
        }
    };
    if folder::is_empty(path).map_err(|e| failed(&e))? {
        return folder::fill(files, inode, path, &mut HashMap::new()).map_err(Error::Failed);
    }
    match folder::difference(files, inode, path).map_err(Error::Failed)? {
        None => Ok(()),
        Some(which) => Err(Error::Failed(format!(
            "{} is not as on the drive: the folder must be empty, or have what the drive has; empty \
             it, and copy into it what it had while it is mapped (ssdkit run ... -- cp -a)",
            which.display()
        ))),
    }
}

/// Puts on the drive what the folders have.
fn take_in(files: &mut Files<DriveDisk>, tree: &Tree, folders: &[PathBuf]) -> Result<(), Error> {
    let mut done = Ok(());
    let mut apply = |operation: Operation| {
        if done.is_ok() {
            done = files.apply(&operation);
        }
    };
    tree.contents(folders, &mut apply).map_err(supervision)?;
    done.and_then(|()| files.apply(&Operation::SyncAll))
        .map_err(|e| Error::Failed(format!("the folders do not go on the drive: {e}")))
}

/// A number above those of all files.
fn free_number(files: &Files<DriveDisk>) -> Inode {
    fn highest(files: &Files<DriveDisk>, folder: Inode) -> u64 {
        let Ok(names) = files.list(folder) else { return folder.0 };
        names.map(|(_, inode)| highest(files, inode)).max().unwrap_or(0).max(folder.0)
    }
    Inode(highest(files, Inode::ROOT) + 1)
}

/// Shuts the drive down, or has it without power.
fn end(disk: DriveDisk, is_cut: bool) -> Result<(), Error> {
    let Some((drive, now)) = disk.into_drive() else {
        unreachable!("the files are gone, and with them who else had it")
    };
    if is_cut || !drive.outlives() {
        // What was not flushed is in its buffer, and goes with it.
        return Ok(());
    }
    drive.end(now).and_then(Ended::put_away)
}
