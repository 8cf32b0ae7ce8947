//! What others took: processor time that the threads of this process wanted, and
//! that somebody else had ([`Others`]); or, where threads of ours wait for each other and
//! others work for us, what all processes had that do not ([`Rivals`]).
//!
//! A thread that sleeps wants none, so the first judges those that wait for an
//! interrupt as well as those that poll. What a thread waits between its waking
//! and its turn counts, too. Nothing here fails: where the system does not say,
//! nothing is known.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

use super::threads::{cores, stolen, waited_of};

/// A look at what others had until then.
pub struct Others {
    cores: Vec<usize>,
    began: Instant,
    waited: Option<u64>,
    stolen: Option<f64>,
}

impl Others {
    /// Up to now, of these cores.
    pub fn now(cores: &[usize]) -> Others {
        let (began, waited, stolen) = (Instant::now(), waited(), stolen(cores));
        Others { cores: cores.to_vec(), began, waited, stolen }
    }

    /// How much of the cores' time since then nobody else took, at most 1. All threads
    /// that were there then must still be.
    pub fn share_since(&self) -> Option<f64> {
        let waited = (waited()? as f64 - self.waited? as f64) / 1e9;
        let stolen = stolen(&self.cores)? - self.stolen?;
        let all = self.began.elapsed().as_secs_f64() * self.cores.len() as f64;
        Some(1.0 - (waited + stolen).max(0.0) / all)
    }
}

/// How long the threads of this process were ready to run and did not, in ns.
fn waited() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    // One that ended meanwhile, or never ran, has nothing to tell.
    let of =
        |task: fs::DirEntry| waited_of(&fs::read_to_string(task.path().join("schedstat")).ok()?);
    tasks.map(|task| task.ok().and_then(of)).reduce(|a, b| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    })?
}

/// A look at what other processes had until then, on all cores of this one. The kernel's
/// own threads work for whoever asked them, and do not count. A process that is less urgent
/// than this one does: it is no less urgent than those.
pub struct Rivals {
    /// Those that work for this one, beside it.
    helpers: Vec<u32>,
    cores: Vec<usize>,
    began: Instant,
    had: HashMap<u32, u64>,
    stolen: Option<f64>,
}

/// A thread of the kernel, among a process' flags.
const OF_KERNEL: u64 = 0x0020_0000;

impl Rivals {
    /// Up to now, but of this process and its helpers. Fails where it may use no core.
    pub fn now(helpers: &[u32]) -> Option<Rivals> {
        let cores = cores().ok()?;
        let helpers = helpers.to_vec();
        let (began, had, stolen) = (Instant::now(), had(&helpers)?, stolen(&cores));
        Some(Rivals { helpers, cores, began, had, stolen })
    }

    /// How much of the cores' time since then no rival had, at most 1. What ended meanwhile
    /// is not known.
    pub fn share_since(&self) -> Option<f64> {
        let more =
            |(id, ticks): (u32, u64)| ticks.saturating_sub(self.had.get(&id).copied().unwrap_or(0));
        let ticks: u64 = had(&self.helpers)?.into_iter().map(more).sum();
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let stolen = stolen(&self.cores)? - self.stolen?;
        let all = self.began.elapsed().as_secs_f64() * self.cores.len() as f64;
        Some(1.0 - (seconds + stolen).max(0.0) / all)
    }
}

/// Ticks that each rival had.
fn had(helpers: &[u32]) -> Option<HashMap<u32, u64>> {
    let stat = |id: &str| fs::read_to_string(format!("/proc/{id}/stat")).ok();
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // One that ended meanwhile has nothing to tell.
        let Some(process) = stat(&id.to_string()).as_deref().and_then(Process::read) else {
            continue;
        };
        if id != std::process::id() && !helpers.contains(&id) && process.flags & OF_KERNEL == 0 {
            all.insert(id, process.ticks);
        }
    }
    Some(all)
}

/// What `/proc/ID/stat` tells of a process.
#[derive(Debug, PartialEq)]
struct Process {
    flags: u64,
    /// User and system time.
    ticks: u64,
}

impl Process {
    fn read(stat: &str) -> Option<Process> {
        // Its name may have blanks and brackets.
        let after = &stat[stat.rfind(')')? + 1..];
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
        Some(Process { flags: number(6)?, ticks: number(11)? + number(12)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 9 9 9 120 34 0 0 20 -5 1 0 99";
        let process = Process { flags: 4_194_560, ticks: 154 };
        assert_eq!(Process::read(stat), Some(process));
        assert_eq!(Process::read("7 (a"), None);
    }

    /// One that works beside this one counts, unless it works for it.
    #[test]
    fn rivals_have_a_part_of_the_time() {
        let mut busy =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let id = busy.id();
        let ticks = || had(&[]).unwrap().get(&id).copied().unwrap_or(0);
        let (before, began) = (ticks(), Instant::now());
        let [as_rival, as_helper] = [&[][..], &[id]].map(|helpers| Rivals::now(helpers).unwrap());
        // A fifth of a second of it.
        while ticks() < before + 20 && began.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // In this order what all others have makes the first no larger.
        let helped = as_helper.share_since();
        let rivaled = as_rival.share_since();
        busy.kill().unwrap();
        busy.wait().unwrap();
        let tells = stolen(&cores().unwrap()).is_some();
        assert_eq!((rivaled.is_some(), helped.is_some()), (tells, tells));
        let is_less = rivaled.zip(helped).is_none_or(|(rivaled, helped)| rivaled < helped);
        assert!(is_less, "{rivaled:?} {helped:?}");
    }

    #[test]
    fn others_have_a_part_of_the_time() {
        let cores = super::super::threads::cores().unwrap();
        let others = Others::now(&cores[..1]);
        let mut x = 1u64;
        while others.began.elapsed().as_millis() < 5 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        // Where the system tells, it tells of all threads.
        assert_eq!(others.share_since().is_some(), waited().is_some() && stolen(&cores).is_some());
        assert!(others.share_since().is_none_or(|share| share <= 1.0));
    }
}
