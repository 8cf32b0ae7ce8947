//! Processor time of this process, and time on the wall beside it.
//!
//! May fail only by not being told: then it is zero.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Processor time used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// In all, in seconds.
    total: f64,
    /// Of that in the kernel; to 10 ms.
    system: f64,
}

impl CpuTime {
    /// Up to now.
    pub fn now() -> CpuTime {
        let t = clock_gettime(ClockId::ProcessCPUTime);
        let total = t.tv_sec as f64 + t.tv_nsec as f64 / 1e9;
        CpuTime { total, system: system().unwrap_or(0.0) }
    }

    /// User and system seconds since `earlier`.
    pub fn since(&self, earlier: &CpuTime) -> (f64, f64) {
        let total = self.total - earlier.total;
        let system = (self.system - earlier.system).clamp(0.0, total);
        (total - system, system)
    }
}

/// A moment on the wall, and what this process had used then.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// On the wall.
    pub wall: Instant,
    cpu: CpuTime,
}

impl Mark {
    /// Now. Takes some microseconds.
    pub fn now() -> Mark {
        Mark { wall: Instant::now(), cpu: CpuTime::now() }
    }

    /// Seconds on the wall since then, and user and system seconds.
    pub fn passed(&self) -> (f64, (f64, f64)) {
        (self.wall.elapsed().as_secs_f64(), CpuTime::now().since(&self.cpu))
    }
}

/// Seconds in the kernel, as the system counts them.
fn system() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, which may have blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: f64 = rest.split_whitespace().nth(12)?.parse().ok()?;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = CpuTime::now();
        let mut x = 1u64;
        let mut parts = (0.0, 0.0);
        while parts.0 + parts.1 < 0.02 {
            x = std::hint::black_box(x.wrapping_mul(3));
            parts = CpuTime::now().since(&before);
        }
        assert!(parts.0 >= 0.0 && parts.1 >= 0.0 && parts.0 + parts.1 < 60.0);
        assert!(system().is_some());
    }
}
