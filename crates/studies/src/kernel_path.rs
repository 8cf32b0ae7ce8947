//! A drive of ours as a block device of the kernel, and file systems on it.
//!
//! ```text
//!  load ─▶ system call ─▶ file system ─▶ loop device ─▶ FUSE ─▶ nbdfuse ─▶ NBD ─▶ drive
//! ```
//!
//! The server with the drive is in this process; nbdfuse is another, with one connection
//! to it. FUSE and its library let about ten requests through at once. It takes root,
//! /dev/fuse, loop devices, and the programs of [`TOOLS`]; [`missing`] says what is not
//! there. The loop device passes the page cache of the file below it, so that what a load
//! reads is cached in one place at most.
//!
//! Guarantees: mounts, devices and files go again, whatever happens: they are the matter of
//! a keeper, a shell that waits for a pipe to close. It closes when a path is dropped, and
//! when this process ends in any way; Ctrl-C is not for the keeper. Fails as the system
//! and the tools do, with what they say.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use exports::SharedDrive;
use exports::nbd::{Export, Exports, ListenAddr, Server, StopHandle};
use port::Time;

use drive::error::Error;
use drive::lent::{Figures, Lent};
use drive::whole::{Boxed, Drive};
use load::watch::Watch;

/// Programs that a path is made with.
pub const TOOLS: [&str; 5] = ["nbdfuse", "losetup", "mount", "umount", "sh"];
/// Where else than in `PATH` they may be.
const SBIN: &str = "/usr/sbin:/sbin";
/// How long a mount may take to be there, and to be gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system, as it is made by default: without discards, as the paper has no trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// No journal.
    Ext2,
    /// A journal of metadata.
    Ext3,
    /// The same, with extents.
    Ext4,
    /// The same without its journal.
    Ext4Bare,
    /// A log of metadata.
    Xfs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [FileSystem; 5] = [
        FileSystem::Ext2,
        FileSystem::Ext3,
        FileSystem::Ext4,
        FileSystem::Ext4Bare,
        FileSystem::Xfs,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext2 => "ext2",
            FileSystem::Ext3 => "ext3",
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext4Bare => "ext4 without a journal",
            FileSystem::Xfs => "xfs",
        }
    }

    /// As `mount` calls it.
    fn kind(self) -> &'static str {
        if self == FileSystem::Ext4Bare { "ext4" } else { self.name() }
    }

    /// The program that makes one, and how.
    fn maker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            FileSystem::Ext2 => ("mkfs.ext2", &["-q", "-F", "-b", "4096", "-E", "nodiscard"]),
            FileSystem::Ext3 => ("mkfs.ext3", &["-q", "-F", "-b", "4096", "-E", "nodiscard"]),
            FileSystem::Ext4 => ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard"]),
            FileSystem::Ext4Bare => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard", "-O", "^has_journal"])
            }
            FileSystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
        }
    }
}

/// Why there is no path through the kernel here, if so.
pub fn missing() -> Option<String> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let devices = ["/dev/fuse", "/dev/loop-control"].map(|path| Path::new(path).exists());
    if !is_root || devices.contains(&false) {
        return Some("it takes root, /dev/fuse and loop devices".into());
    }
    let tool = TOOLS.into_iter().find(|tool| !is_there(tool))?;
    Some(format!("there is no {tool} here (packages libnbd-bin, util-linux)"))
}

/// Where programs are looked for.
fn path() -> String {
    format!("{}:{SBIN}", std::env::var("PATH").unwrap_or_default())
}

fn is_there(tool: &str) -> bool {
    path().split(':').any(|dir| Path::new(dir).join(tool).is_file())
}

/// Fails where the socket of a path cannot be in `dir`, as where its name is too long.
pub fn check(dir: &Path) -> Result<(), Error> {
    if missing().is_some() {
        return Ok(());
    }
    let keeper = Keeper::new(dir)?;
    let bound = Server::bind(&keeper.address()).map(|_| ());
    bound.map_err(|e| Error::Usage(format!("--dir {}, for a socket: {e}", dir.display())))
}

/// Makes a directory of its own in `dir` and, from `drive` whose time is `ready`, a block
/// device; does `work` with it. All is gone again when this returns. Waits for a mount as long
/// as `watch` lets it.
pub fn over<T>(
    (drive, ready): (Boxed, Time),
    dir: &Path,
    watch: &mut Watch,
    work: impl FnOnce(&Device) -> Result<T, Error>,
) -> Result<T, Error> {
    if let Some(why) = missing() {
        return Err(Error::Failed(format!("a path through the kernel: {why}")));
    }
    let failed = |e: &dyn std::fmt::Display| Error::Failed(format!("a block device: {e}"));
    let keeper = Keeper::new(dir)?;
    let export = Exports::new(Export::new(drive.shape()).map_err(|e| failed(&e))?);
    let mut drive = drive;
    drive.set_on_a_clock(true);
    let (lent, owner) = Lent::new(drive, ready);
    let shared = SharedDrive::new(lent);
    let server = Server::bind(&keeper.address());
    let (server, stop) =
        (server.map_err(|e| failed(&e))?, StopHandle::new().map_err(|e| failed(&e))?);
    thread::scope(|scope| {
        let serving =
            scope.spawn(|| server.run(&export, &shared, &stop).map(|_| ()).map_err(|e| failed(&e)));
        let stopping = Stopping(&stop);
        // The device goes before its server does: what is left is written then.
        let worked = Device::new(keeper, owner.figures, watch).and_then(|device| work(&device));
        drop(stopping);
        let died = |_| Err(Error::Failed("the server died: report it".into()));
        serving.join().unwrap_or_else(died).and(worked)
    })
}

/// A server that is stopped however its client ends.
pub struct Stopping<'a>(pub &'a StopHandle);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A block device of the kernel.
pub struct Device {
    keeper: Keeper,
    fuse: Child,
    path: PathBuf,
    figures: Arc<Figures>,
}

impl Device {
    fn new(keeper: Keeper, figures: Arc<Figures>, watch: &mut Watch) -> Result<Device, Error> {
        let (dir, fuse) = (&keeper.dir, keeper.dir.join("fuse"));
        fs::create_dir(&fuse).map_err(|e| Error::system("make a directory", &e))?;
        let file = fuse.join("nbd");
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse.env("PATH", path()).arg(&file).arg("--unix").arg(dir.join("socket"));
        nbdfuse.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let fuse = nbdfuse.spawn().map_err(|e| Error::system("start nbdfuse", &e))?;
        let mut device = Device { keeper, fuse, path: PathBuf::new(), figures };
        device.await_file(&file, watch)?;
        let file = file.display().to_string();
        let found = tool("losetup", &["--find", "--show", "--direct-io=on", &file])?;
        device.path = found.trim().into();
        Ok(device)
    }

    fn await_file(&mut self, file: &Path, watch: &mut Watch) -> Result<(), Error> {
        let began = Instant::now();
        while !file.exists() {
            if !watch.look(0.0) {
                return Err(Error::Failed("stopped before its end".into()));
            }
            let ended = self.fuse.try_wait().map_err(|e| Error::system("wait for nbdfuse", &e))?;
            if ended.is_some() || began.elapsed() > PATIENCE {
                return Err(Error::Failed("nbdfuse mounts nothing here".into()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// The device's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the drive tells of itself.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The processes that work for it beside this one.
    pub fn helpers(&self) -> [u32; 1] {
        [self.fuse.id()]
    }

    /// Makes a file system on it and mounts that.
    pub fn mount(&self, kind: FileSystem) -> Result<Mounted<'_>, Error> {
        let (maker, how) = kind.maker();
        let device = self.path.display().to_string();
        tool(maker, &[how, &[&device]].concat())?;
        self.mount_again(kind)
    }

    /// Mounts what is on it.
    pub fn mount_again(&self, kind: FileSystem) -> Result<Mounted<'_>, Error> {
        let dir = self.keeper.dir.join("mount");
        fs::create_dir_all(&dir).map_err(|e| Error::system("make a directory", &e))?;
        let (device, at) = (self.path.display().to_string(), dir.display().to_string());
        tool("mount", &["-t", kind.kind(), &device, &at])?;
        Ok(Mounted { dir, _device: self })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // One of which no device came may mount nothing, ever.
        if self.path.as_os_str().is_empty() {
            let _ = self.fuse.kill();
        }
        self.keeper.begin();
        // It ends with its mount. One that hangs would keep both of them.
        let began = Instant::now();
        while began.elapsed() < PATIENCE
            && !(has_ended(&mut self.keeper.shell) && has_ended(&mut self.fuse))
        {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.fuse.kill();
        self.keeper.clean();
        let _ = self.fuse.wait();
    }
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// A file system that is mounted, until this is dropped.
pub struct Mounted<'a> {
    dir: PathBuf,
    _device: &'a Device,
}

impl Mounted<'_> {
    /// Where.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Where it is busy for good, the keeper has more ways.
        let (at, began) = (self.dir.display().to_string(), Instant::now());
        while tool("umount", &[&at]).is_err() && began.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs a tool, and gives what it prints.
fn tool(name: &str, args: &[&str]) -> Result<String, Error> {
    let mut command = Command::new(name);
    command.env("PATH", path()).args(args).stdin(Stdio::null()).process_group(0);
    let output = command.output().map_err(|e| Error::system(&format!("start {name}"), &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed(format!("{name} {}: {}", args.join(" "), said.trim())))
}

/// What the keeper does when its pipe closes. A mount that stays busy for 10 s is taken out
/// of sight, and goes when nobody uses it any more.
///
/// A process that is killed has no server any more, and a thread of it that waits for the
/// device waits for that: it would never end, nor its pipe close. So the keeper looks whether
/// a thread is still there that was killed (signal 9 is pending), and breaks the connection
/// of FUSE then, upon which all that waits fails.
const KEEP: &str = r#"
trap '' INT TERM HUP QUIT PIPE
of=$PPID
while sleep 0.5; do
  if grep -qs '^SigPnd:.*[13579bdf]..$' /proc/$of/task/*/status; then umount -f "$1/fuse"; fi
done &
read -r _
kill -KILL $!
unmount() {
  n=0
  while :; do
    why=$(LC_ALL=C umount "$1" 2>&1) && continue
    case $why in *busy*) ;; *) return ;; esac
    n=$((n + 1))
    [ $n -lt 100 ] || { umount -l "$1"; return; }
    sleep 0.1
  done
}
unmount "$1/mount"
for backing in /sys/block/loop*/loop/backing_file; do
  if [ "$(cat "$backing" 2>/dev/null)" = "$1/fuse/nbd" ]; then
    loop=${backing#/sys/block/}
    losetup -d "/dev/${loop%%/*}"
  fi
done
unmount "$1/fuse"
rmdir "$1/mount" "$1/fuse" 2>/dev/null
rm -f "$1/socket"
rmdir "$1"
"#;

/// Who cleans up.
struct Keeper {
    dir: PathBuf,
    shell: Child,
}

impl Keeper {
    /// Makes a directory in `dir`, and starts who takes it and what is in it away again.
    fn new(dir: &Path) -> Result<Keeper, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // All as long as the first, whose socket is tried.
        let name = format!("ssdkit-kernel-{}-{number:04}", std::process::id());
        // As the system names it in its own lists.
        let dir = fs::canonicalize(dir).and_then(|dir| {
            let dir = dir.join(name);
            fs::create_dir(&dir).map(|()| dir)
        });
        let dir = dir.map_err(|e| Error::system("make a directory", &e))?;
        let mut sh = Command::new("sh");
        sh.env("PATH", path()).args(["-c", KEEP, "sh"]).arg(&dir).process_group(0);
        sh.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = sh.spawn().map_err(|e: io::Error| {
            let _ = fs::remove_dir(&dir);
            Error::system("start sh", &e)
        })?;
        Ok(Keeper { dir, shell })
    }

    /// Where its server is.
    fn address(&self) -> ListenAddr {
        ListenAddr::Unix(self.dir.join("socket"))
    }

    /// Lets it clean.
    fn begin(&mut self) {
        drop(self.shell.stdin.take());
    }

    fn clean(&mut self) {
        self.begin();
        let _ = self.shell.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.clean();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::super::kernel_runs::prepared;
    use super::*;

    const DRIVE: &str = "mem:ref,groups=2,pus=2,pages=32,size=32M";

    /// Files, directories, mounts or loop devices that are left of it.
    fn left(dir: &Path) -> usize {
        let dir = fs::canonicalize(dir).unwrap();
        let name = dir.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mounts = mounts.replace("\\040", " ").replace("\\043", "#");
        let loops = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let backing = |entry: fs::DirEntry| {
            fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default()
        };
        mounts.matches(&name).count()
            + loops.map(backing).filter(|file| file.starts_with(&name)).count()
            + fs::read_dir(&dir).unwrap().count()
    }

    /// Where there is a path, a file outlives its mount, and nothing else does.
    #[test]
    fn a_file_is_there_again_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        if let Some(why) = missing() {
            let error =
                over(prepared(DRIVE, 1).unwrap(), dir.path(), &mut Watch::quiet(), |_| Ok(()))
                    .unwrap_err();
            assert!(error.to_string().contains(&why), "{error}");
            return;
        }
        // Whatever its directory is called.
        let odd = dir.path().join("50 % of #1 & 2?a=b,c");
        fs::create_dir(&odd).unwrap();
        for kind in [FileSystem::Ext2, FileSystem::Ext3, FileSystem::Ext4, FileSystem::Ext4Bare] {
            if !is_there(kind.maker().0) {
                continue;
            }
            let work = |device: &Device| {
                let path = {
                    let mounted = device.mount(kind)?;
                    let path = mounted.dir().join("file");
                    File::create(&path).unwrap().write_all(&[7; 100_000]).unwrap();
                    path
                };
                assert!(!path.exists(), "it is not mounted");
                let _mounted = device.mount_again(kind)?;
                let mut all = Vec::new();
                File::open(&path).unwrap().read_to_end(&mut all).unwrap();
                assert_eq!(all, [7; 100_000]);
                Ok(device.figures().counters().user)
            };
            let written =
                over(prepared(DRIVE, 1).unwrap(), &odd, &mut Watch::quiet(), work).unwrap();
            assert!(written > 0 && left(&odd) == 0, "{}", kind.name());
        }
    }

    /// Whatever goes wrong meanwhile.
    #[test]
    fn work_that_fails_or_panics_leaves_nothing() {
        if missing().is_some() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let fails = |device: &Device| -> Result<(), Error> {
            let _mounted = device.mount(FileSystem::Ext2)?;
            Err(Error::Failed("enough".into()))
        };
        let error =
            over(prepared(DRIVE, 1).unwrap(), dir.path(), &mut Watch::quiet(), fails).unwrap_err();
        assert!(error.to_string().contains("enough") && left(dir.path()) == 0, "{error}");
        let drive = prepared(DRIVE, 1).unwrap();
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            over(drive, dir.path(), &mut Watch::quiet(), |device| -> Result<(), Error> {
                let _mounted = device.mount(FileSystem::Ext2)?;
                panic!("as if");
            })
        }));
        assert!(panics.is_err() && left(dir.path()) == 0);
    }

    /// One that mounts nothing is not waited for, when somebody stops it, nor later.
    #[test]
    fn a_server_that_mounts_nothing_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(dir.path()).unwrap();
        let fuse = Command::new("sleep").arg("100000").spawn().unwrap();
        let id = fuse.id();
        let (_, owner) = Lent::new(prepared(DRIVE, 1).unwrap().0, Time::ZERO);
        let mut device = Device { keeper, fuse, path: PathBuf::new(), figures: owner.figures };
        let file = dir.path().join("none");
        let error = device.await_file(&file, &mut Watch::until(Duration::ZERO)).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
        drop(device);
        assert!(!Path::new(&format!("/proc/{id}")).exists() && left(dir.path()) == 0);
    }

    /// Known before anything is measured.
    #[test]
    fn a_directory_that_has_no_room_for_a_socket_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path()).is_ok());
        let long = dir.path().join("x".repeat(100));
        fs::create_dir(&long).unwrap();
        assert_eq!(check(&long).is_err(), missing().is_none());
        assert_eq!(left(&long), 0);
    }

    /// As after a kill: nobody but the keeper knows what is there.
    #[test]
    fn the_keeper_cleans_when_its_pipe_closes() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::new(dir.path()).unwrap();
        fs::write(keeper.dir.join("socket"), "").unwrap();
        fs::create_dir(keeper.dir.join("mount")).unwrap();
        if missing().is_none() {
            fs::create_dir(keeper.dir.join("fuse")).unwrap();
            let at = keeper.dir.join("mount").display().to_string();
            tool("mount", &["-t", "tmpfs", "none", &at]).unwrap();
        }
        keeper.clean();
        assert_eq!(left(dir.path()), 0);
    }

    const KILLED: &str = "SSDKIT_TEST_KILLED_IN";

    /// The process that the next test kills: it writes a file, each time with a sync, and so
    /// waits in the kernel for a server of its own nearly always.
    #[test]
    #[ignore = "a part of the next"]
    fn who_is_killed() {
        let Ok(dir) = std::env::var(KILLED) else { return };
        let slow = "mem:ref,groups=2,pus=2,pages=32,program=50ms,size=32M";
        let work = |device: &Device| -> Result<(), Error> {
            let mounted = device.mount(FileSystem::Ext4)?;
            let mut file = File::create(mounted.dir().join("file")).unwrap();
            println!("mounted");
            loop {
                file.write_all(&[7; 4096]).unwrap();
                file.sync_all().unwrap();
            }
        };
        over(prepared(slow, 1).unwrap(), Path::new(&dir), &mut Watch::quiet(), work).unwrap();
    }

    #[test]
    fn a_process_that_is_killed_leaves_nothing() {
        use std::io::{BufRead, BufReader};
        if missing().is_some() || !is_there("mkfs.ext4") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kernel_path::tests::who_is_killed", "--ignored", "--nocapture"])
            .env(KILLED, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("mounted")));
        thread::sleep(Duration::from_millis(200));
        child.kill().unwrap();
        child.wait().unwrap();
        let began = Instant::now();
        while left(dir.path()) > 0 {
            assert!(began.elapsed().as_secs() < 120, "it is there still");
            thread::sleep(Duration::from_millis(50));
        }
    }
}
