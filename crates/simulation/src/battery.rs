//! The memory of a protected cache: it outlives the power.
//!
//! Power may go before or in a write, as it may with flash; then each 512 bytes
//! of it are old or new, and all later writes fail.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use nvram::{JournalError, Life, NonVolatile, NvRam};
use workload::Rng;

use crate::power::Power;

/// Stream of the random numbers of writes that were cut.
const STREAM: u64 = 13;

/// What is there whole or not at all.
const SECTOR: u64 = 512;

struct Inside {
    ram: NvRam,
    rng: Rng,
}

/// Memory with a battery, shared by all that have it after one another.
#[derive(Clone)]
pub struct Battery {
    inside: Rc<RefCell<Inside>>,
    power: Rc<Power>,
}

impl Battery {
    /// So many bytes, which hold no journal yet; `seed` decides what is left of
    /// writes that are cut.
    pub fn new(bytes: usize, power: &Rc<Power>, seed: u64) -> Battery {
        let inside = Inside { ram: NvRam::new(bytes), rng: Rng::new(seed, STREAM) };
        Battery { inside: Rc::new(RefCell::new(inside)), power: power.clone() }
    }

    /// Makes it an empty journal.
    pub fn format(&self) -> Result<(), JournalError> {
        nvram::format(&mut self.inside.borrow_mut().ram)
    }
}

fn gone() -> io::Error {
    io::Error::other("the power is gone")
}

impl NonVolatile for Battery {
    fn bytes(&self) -> u64 {
        self.inside.borrow().ram.bytes()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.inside.borrow_mut().ram.read(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let inside = &mut *self.inside.borrow_mut();
        if self.power.is_gone() {
            return Err(gone());
        }
        if self.power.operation() {
            return inside.ram.write(at, bytes);
        }
        let (mut from, end) = (at, at + bytes.len() as u64);
        while from < end {
            let to = (from / SECTOR + 1) * SECTOR;
            let part = (from - at) as usize..(to.min(end) - at) as usize;
            if inside.rng.below(2) == 0 {
                inside.ram.write(from, &bytes[part])?;
            }
            from = to;
        }
        Err(gone())
    }

    fn sync(&mut self) -> Poll<io::Result<()>> {
        Poll::Ready(if self.power.is_gone() { Err(gone()) } else { Ok(()) })
    }

    fn life(&self) -> Option<Life> {
        self.inside.borrow().ram.life()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_tears_a_write_between_sectors_only() {
        let (mut old, mut new, mut torn) = (0, 0, 0);
        for seed in 0..64 {
            let power = Rc::new(Power::new());
            let mut battery = Battery::new(8192, &power, seed);
            power.on(1);
            battery.write(300, &[1; 1000]).unwrap();
            assert!(battery.write(300, &[2; 1000]).is_err());
            assert!(battery.write(0, &[3; 10]).is_err(), "power is gone");
            let mut all = [0; 1400];
            battery.read(0, &mut all).unwrap();
            assert!(all[..300].iter().chain(&all[1300..]).all(|&byte| byte == 0));
            let parts = [&all[300..512], &all[512..1024], &all[1024..1300]];
            let news = parts.map(|part| {
                assert!(part.iter().all(|&byte| byte == part[0]), "a part is whole");
                u32::from(part[0] == 2)
            });
            match news.iter().sum::<u32>() {
                0 => old += 1,
                3 => new += 1,
                _ => torn += 1,
            }
        }
        assert!(old > 0 && new > 0 && torn > 10, "{old} {new} {torn}");
    }
}
