//! What others took: processor time that the threads of this process wanted, and
//! that somebody else had.
//!
//! A thread that sleeps wants none, so this judges those that wait for an
//! interrupt as well as those that poll. What a thread waits between its waking
//! and its turn counts, too. Nothing here fails: where the system does not say,
//! nothing is known.

use std::fs;
use std::time::Instant;

use super::threads::{stolen, waited_of};

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

#[cfg(test)]
mod tests {
    use super::*;

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
