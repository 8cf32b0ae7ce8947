//! The run: the drive is opened, its files are mounted, the folders filled; the program runs; the
//! files are synced, the drive is shut down, or its power cut.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drive::error::Error;
use drive::memory;
use drive::restore::Restored;
use drive::say::{harmless, say};
use drive::spec::{DriveConfig, DriveSpec, Store};
use drive::stack::{self, needs_blocks};
use drive::whole::{Drive, Ended, Observed};
use files::{BLOCK, Disk, Files, FilesError, Inode, Journal, Kind, Operation, Options};
use interpose::{Program, RunError, Tree};
use measure::units;

use crate::args::{JournalKind, RunArgs};
use crate::engine::DriveDisk;
use crate::folder::{self, Folder};
use crate::room::RESERVE;
use crate::speculation::Speculation;
use crate::summary::{About, Summary, Took};
use crate::unreadable::Unreadable;
use crate::watcher::OnDrive;

/// Blocks that a new file system is to have for files, and MiB of a drive that surely has them.
const LEAST_FILES: u64 = 256;
const SURELY_ENOUGH: u64 = 16;
/// Files that are not whole, of which each is told.
const DAMAGED_TOLD: usize = 8;
/// Names that the drive has and that are not mapped, of which each is told.
const NAMES_TOLD: usize = 8;
/// Blocks at the beginning of a drive that are zeros where nothing is on it.
const LOOK: u64 = 256;

/// Runs the program; gives its exit code.
pub fn run(args: &RunArgs) -> Result<u8, Error> {
    // Before there are threads that would take those that are for the program.
    let _signals = interpose::block_signals();
    let drive = opened(args)?;
    let (name, ready) = (drive.config.name.clone(), drive.ready());
    let disk = DriveDisk::new(drive.drive, ready);
    let ran = on(args, &disk);
    let is_cut = ran.as_ref().is_ok_and(|ran| ran.summary.is_cut);
    // Whatever happened, a drive that has power is shut down.
    let ended = end(disk, is_cut).map_err(|e| e.of_drive(&name));
    let Ran { summary, synced } = match ran {
        Ok(ran) => ran,
        // What the drive says of its file may be why.
        Err(e) if ended.is_err() => return both(Err(e), ended).map(|()| 0),
        Err(e) => return Err(e),
    };
    let result = both(synced, ended);
    if !args.json {
        say(format!("{name}: {}", summary.text()));
        return result.map(|()| summary.code as u8);
    }
    let own = result.as_ref().map_or_else(Error::exit_code, |()| summary.code as u8);
    let error = result.err().map(|e| e.to_string());
    // The JSON is the last that is said.
    error.iter().for_each(say);
    eprintln!("{}", summary.to_json(&About { args, drive: &name, own, error }));
    Ok(own)
}

/// A program that has run.
struct Ran {
    summary: Summary,
    /// Whether all is on the drive that was to be, and the folders are as they should.
    synced: Result<(), Error>,
}

/// Runs it on a drive.
fn on(args: &RunArgs, disk: &DriveDisk) -> Result<Ran, Error> {
    let folders = folders(&args.maps)?;
    let paths: Vec<PathBuf> = folders.iter().map(|it| it.path().to_path_buf()).collect();
    let program = Program { command: args.program.clone(), ..Program::default() };
    // A drive in memory has what the folder has, another one says what the folder is to have.
    let is_new = matches!(args.drive.found()?, DriveSpec::Memory(_));
    // What is refused is refused before anything changes.
    Tree::of_many(&paths, &mut |_, _| None).map_err(supervision)?;
    if args.format && !is_new {
        all_empty(&folders)?;
        program.find().map_err(supervision)?;
    }
    let mut files = mounted(args, disk)?;
    let speculation = speculation(args, &files)?;
    let mut unreadable = Unreadable::default();
    if !is_new {
        begin(&mut files, &folders, &mut unreadable)?;
    }
    let mut number = |parent, name: &[u8]| files.lookup(parent, name).ok().flatten();
    let mut tree = Tree::of_many(&paths, &mut number).map_err(supervision)?;
    tree.keep_below(files.new_inode());
    if is_new {
        take_in(&mut files, &tree, &paths)?;
    }
    tell_unreadable(&unreadable);
    let before = (disk.look(|drive| drive.programmed()), disk.asked());
    let mut on_drive = OnDrive::new(files, disk.clone(), args.cut_after, speculation);
    on_drive.unreadable = unreadable;
    if on_drive.speculation.is_some() {
        on_drive.set_patient().map_err(|e| Error::system("run the program", &e))?;
    }
    let (began, busy) = (Instant::now(), thread_time());
    let ran = interpose::run(&program, &mut tree, &mut on_drive);
    let took = Took { all: began.elapsed(), supervision: thread_time().saturating_sub(busy) };
    let lost = ran.as_ref().ok().and_then(|ended| ended.lost);
    let mut synced = match on_drive.speculation.as_mut().and_then(|it| it.failed.take()) {
        Some(e) => Err(answered_too_early(&e)),
        None if on_drive.is_cut => Ok(()),
        None if !args.no_sync_at_end => lost.map_or(Ok(()), |errno| {
            let synced = on_drive.files.apply(&Operation::SyncAll).map_err(|e| last_sync(&e));
            both(synced, Err(memory_lost(&on_drive, errno)))
        }),
        None => on_drive.finish().map_err(|e| last_sync(&e)),
    };
    if on_drive.is_cut || args.no_sync_at_end || synced.is_err() {
        // The program's view goes as its memory does; what was there before it, stays.
        for folder in folders.iter().filter(|_| !is_new) {
            synced = both(synced, emptied(folder));
        }
    } else {
        synced = on_drive.files.apply(&Operation::SyncAll).map_err(|e| last_sync(&e));
    }
    let ended = ran.map_err(supervision)?;
    Ok(Ran { summary: Summary::of(&mut on_drive, before, ended, took), synced })
}

/// Of two failures the first is told first, and none hides the other.
fn both(first: Result<(), Error>, then: Result<(), Error>) -> Result<(), Error> {
    match (first, then) {
        (Err(first), Err(then)) => Err(Error::Failed(format!("{first}; and then: {then}"))),
        (first, then) => first.and(then),
    }
}

/// A folder is emptied, wherever it is by now.
fn emptied(folder: &Folder) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| Error::Failed(folder::at(folder.path())(e));
    folder.empty().map_err(|e| failed(&e))?;
    match folder.is_there() {
        true => Ok(()),
        false => Err(failed(
            &"the mapped folder is not there any more: it was moved, or something else took its \
              place; it was emptied where it is, and what is there now was left alone",
        )),
    }
}

/// Files that are not whole.
fn tell_unreadable(unreadable: &Unreadable) {
    let Some(error) = unreadable.error else { return };
    for (path, pages) in unreadable.paths.iter().take(DAMAGED_TOLD) {
        say(format!(
            "{}: {} of it cannot be read: calls that read there fail (EIO), and memory that is \
             the file has zeros there",
            path.display(),
            units::exactly(*pages as u64, "block"),
        ));
    }
    say(format!(
        "{} not whole; of the first: {error}",
        match unreadable.paths.len() {
            1 => "1 file is".to_string(),
            n => format!("{n} files are"),
        }
    ));
}

/// For how long this thread has had a processor.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn supervision(e: RunError) -> Error {
    match e.is_usage() {
        true => Error::Usage(e.to_string()),
        false => Error::Failed(e.to_string()),
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

/// What was written to memory that is a file is not on the drive, and the program has ended.
fn memory_lost(on_drive: &OnDrive, errno: rustix::io::Errno) -> Error {
    let why = on_drive.diverged.clone().unwrap_or_else(|| errno.to_string());
    Error::Failed(format!(
        "what the program wrote to memory that is a file (mmap) and did not sync is lost: {why}"
    ))
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
    let is_in_memory = match &args.drive.found()? {
        DriveSpec::File(spec) => spec.copy,
        spec => matches!(spec, DriveSpec::Memory(_)),
    };
    if args.cut_after.is_some() && is_in_memory {
        return Err(Error::Usage(
            "with its power a drive in memory is gone: take a drive file for --cut-after".into(),
        ));
    }
    match args.drive.found()? {
        DriveSpec::File(spec) => {
            let mut open = spec.open(false)?;
            open.config.faults = faults;
            let fit = kept(open.config.spec.store);
            let fit = fit.and_then(|()| needs_blocks(&open.config));
            let fit = fit.and_then(|()| needs_all(&open.config));
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
            needs_all(&config)?;
            memory::tell(&config);
            let drive = stack::build(&config, args.seed)?;
            Ok(Restored { config, seed: args.seed, drive, recovery: None })
        }
        other => Err(no_drive(&other)),
    }
}

/// The files that are on the drive, or none on one that has nothing.
fn mounted(args: &RunArgs, disk: &DriveDisk) -> Result<Files<DriveDisk>, Error> {
    let failed = |e: FilesError| Error::Failed(e.to_string());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let options = args.options(since.as_nanos() as u64);
    let format = || {
        needs_room(disk.blocks(), &options)?;
        Files::format(disk.clone(), options.clone()).map_err(failed)
    };
    if args.format {
        return format();
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
            format()
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

/// Refuses a drive on which a new file system would have no room for files.
fn needs_room(blocks: u64, options: &Options) -> Result<(), Error> {
    let has_room = |blocks: u64| {
        let files = Files::format(files::Memory::new(blocks), options.clone());
        files.and_then(|mut files| files.has_room(RESERVE + LEAST_FILES)).unwrap_or(false)
    };
    let mib = (1 << 20) / BLOCK as u64;
    if blocks >= SURELY_ENOUGH * mib || has_room(blocks) {
        return Ok(());
    }
    let least = (1..SURELY_ENOUGH).find(|n| has_room(n * mib)).unwrap_or(SURELY_ENOUGH);
    Err(Error::Usage(format!(
        "the drive has {}, which is too small for files: take one of {least} MiB at least",
        units::size_binary(blocks * BLOCK as u64)
    )))
}

/// Refuses a drive that has addresses at which nothing can be.
fn needs_all(config: &DriveConfig) -> Result<(), Error> {
    if config.free_units() == 0 {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: {} are nobody's, and so are their addresses, which files would need: make a target of \
         them (ssdkit target create, while it is served), or take another drive",
        config.name,
        config.free_text()
    )))
}

/// What is neither in memory nor a drive file.
fn no_drive(spec: &DriveSpec) -> Error {
    match spec {
        DriveSpec::Storage(storage) if !Path::new(&storage.path).exists() => Error::Usage(format!(
            "{0}: there is no such file: make it with ssdkit create {0} --profile tlc --size \
                 256M, or take a drive in memory (mem:tlc,size=256M)",
            storage.path
        )),
        spec => Error::Usage(format!(
            "{spec}: files are kept on mem: drives and drive files (ssdkit create): take one"
        )),
    }
}

fn is_blank(disk: &mut DriveDisk) -> Result<bool, FilesError> {
    let blocks = LOOK.min(disk.blocks());
    let mut bytes = vec![0; blocks as usize * BLOCK];
    disk.read(0, &mut bytes)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// A new file system begins with nothing.
fn all_empty(folders: &[Folder]) -> Result<(), Error> {
    for folder in folders {
        let failed = |e: std::io::Error| Error::Failed(folder::at(folder.path())(&e));
        if !folder.is_empty().map_err(failed)? {
            return Err(Error::Failed(format!(
                "{} is not empty: a new file system begins with nothing; empty the folder, or \
                 leave --format out",
                folder.path().display()
            )));
        }
    }
    Ok(())
}

/// The folders, held open. None is made where they cannot go together: in one that is mapped it
/// would be a change that the drive does not have.
fn folders(maps: &[PathBuf]) -> Result<Vec<Folder>, Error> {
    let failed = |path: &Path, e: std::io::Error| Error::Failed(folder::at(path)(&e));
    let mut paths: Vec<PathBuf> = Vec::new();
    for map in maps {
        let path = folder::full(map).map_err(|e| failed(map, e))?;
        if path.exists() && !path.is_dir() {
            return Err(Error::Usage(format!(
                "{} is no folder: --map takes one, and makes it where it is not there",
                map.display()
            )));
        }
        if path.file_name().is_none() {
            return Err(Error::Usage("/ cannot be mapped: take a folder in it".into()));
        }
        let overlaps = |other: &PathBuf| {
            let is_inside = path.starts_with(other) || other.starts_with(&path);
            is_inside || path.file_name() == other.file_name()
        };
        if paths.iter().any(overlaps) {
            return Err(supervision(RunError::Overlap(map.clone())));
        }
        paths.push(path);
    }
    maps.iter().map(|map| Folder::open(map).map_err(|e| failed(map, e))).collect()
}

/// The folders begin as what the drive has under their names. Where one cannot, those that were
/// filled are empty again.
fn begin(
    files: &mut Files<DriveDisk>,
    folders: &[Folder],
    unreadable: &mut Unreadable,
) -> Result<(), Error> {
    let names = files.list(Inode::ROOT).map_err(|e| Error::Failed(e.to_string()))?;
    let there: Vec<_> = names.map(|(name, _)| shown(name)).collect();
    let mut filled = Vec::new();
    for folder in folders {
        if let Err(e) = begin_one(files, (folder, &there), unreadable, &mut filled) {
            for (folder, inode) in filled {
                // Why it is done is what is told.
                let _ = folder.unfill(files, inode);
            }
            return Err(e);
        }
    }
    Ok(())
}

fn begin_one<'a>(
    files: &mut Files<DriveDisk>,
    (folder, there): (&'a Folder, &[String]),
    unreadable: &mut Unreadable,
    filled: &mut Vec<(&'a Folder, Inode)>,
) -> Result<(), Error> {
    let failed = |e: &dyn std::fmt::Display| Error::Failed(folder::at(folder.path())(e));
    let inode = match files.lookup(Inode::ROOT, folder.name()).map_err(|e| failed(&e))? {
        Some(inode) => inode,
        None => {
            tell_others(there, folder);
            let mode = folder.mode().map_err(|e| failed(&e))?;
            let (parent, name, inode) = (Inode::ROOT, folder.name().to_vec(), files.new_inode());
            let create = Operation::Create { parent, name, inode, kind: Kind::Folder, mode };
            files.apply(&create).map_err(|e| failed(&e))?;
            inode
        }
    };
    if folder.is_empty().map_err(|e| failed(&e))? {
        filled.push((folder, inode));
        folder::fill(files, inode, folder, unreadable).map_err(Error::Failed)?;
    } else {
        let differs = folder::difference(files, inode, folder, unreadable);
        if let Some(which) = differs.map_err(Error::Failed)? {
            return Err(Error::Failed(format!(
                "{} is not as on the drive: the folder must be empty, or have what the drive has; \
                 empty it, and copy into it what it had while it is mapped (ssdkit run ... -- cp \
                 -a)",
                which.display()
            )));
        }
    }
    let mode = files.stat(inode).map_err(|e| failed(&e))?.mode;
    folder.set_mode(mode).map_err(|e| failed(&format!("setting its permission bits: {e}")))
}

/// Says under which names the drive has files, where it has none under that of a folder.
fn tell_others(there: &[String], folder: &Folder) {
    if there.is_empty() {
        return;
    }
    let mut names: Vec<_> = there.iter().take(NAMES_TOLD).cloned().collect();
    if there.len() > NAMES_TOLD {
        names.push(format!("{} more", there.len() - NAMES_TOLD));
    }
    say(format!(
        "the drive has nothing under the name {}, and gets an empty folder; it has {}",
        shown(folder.name()),
        names.join(", ")
    ));
}

/// A name, as it may be shown.
fn shown(name: &[u8]) -> String {
    harmless(&String::from_utf8_lossy(name))
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
