//! How fast a drive takes what its user writes in sequence: with one-shot programs
//! as the sum of their parts says; with an SLC cache fast until that is full, then
//! as slow as without one, and fast again after a rest. In virtual time, so the
//! figures are the same on any machine.

use device::Device;
use faults::ScriptedMedium;
use flash::{Geometry, Profile};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Time};
use targets::{Pblk, PblkConfig, with_reserve};

const MIB: u64 = 1 << 20;

struct Load {
    drive: Pblk<Device<ScriptedMedium>>,
    queue: Ring<BlockReq>,
    done: Ring<BlockDone>,
    /// Where the next write goes.
    offset: u64,
    now: Time,
}

impl Load {
    /// `tlc` cut down to four parallel units of one plane, with these keys set.
    fn new(keys: &[(&str, &str)]) -> Load {
        let mut profile = Profile::builtin("tlc").unwrap();
        keys.iter().for_each(|(key, value)| profile.set(key, value).unwrap());
        let mut dim = profile.dimensions;
        (dim.groups, dim.pus, dim.planes, dim.chunks) = (2, 2, 1, 16);
        let geometry = Geometry::new(with_reserve(dim)).unwrap();
        let medium = ScriptedMedium::ram(&geometry, 0, ());
        let device = Device::new(&geometry, &profile.timing, medium).unwrap();
        let config = PblkConfig::new(128 * MIB, 16, 5);
        let drive = Pblk::new(device, config).unwrap();
        let (queue, done) = (Ring::new(4096), Ring::new(1024));
        Load { drive, queue, done, offset: 0, now: Time::ZERO }
    }

    /// Writes so much behind the last, 64 KiB a request, and waits for it and
    /// a flush. Bytes a second.
    fn write(&mut self, bytes: u64) -> f64 {
        let start = self.now;
        let req = |op, offset, len| {
            let buffer = Buffer::empty();
            BlockReq::new(0, op, offset, len, buffer)
        };
        for _ in 0..bytes >> 16 {
            self.queue.push(req(BlockOp::Write, self.offset, 1 << 16)).unwrap();
            self.offset += 1 << 16;
        }
        self.queue.push(req(BlockOp::Flush, 0, 0)).unwrap();
        let mut left = self.queue.len();
        while left > 0 {
            self.drive.submit(self.now, &mut self.queue);
            self.now = self.drive.next_event().expect("something is under way");
            self.drive.advance(self.now, &mut self.done);
            left -= self.done.len();
            assert!(self.done.drain().all(|done| done.status.is_ok()));
        }
        bytes as f64 * 1e9 / (self.now - start) as f64
    }

    /// Nothing for a while.
    fn rest(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(at) = self.drive.next_event().filter(|&at| at <= end) {
            self.drive.advance(at, &mut self.done);
        }
        self.now = end;
    }
}

/// A row of three pages of 16 KiB takes a command of 200 ns, 61.44 us on the
/// channel and one tPROG; page by page the same times are three programs.
#[test]
fn one_shot_programs_are_as_fast_as_the_sum_of_their_parts() {
    let row = 200.0 + 61_440.0;
    for (at_once, program, each) in [("3", "2ms", row + 2e6), ("1", "2ms", row + 3.0 * 2e6)] {
        let mut load = Load::new(&[("pages_at_once", at_once), ("program", program)]);
        load.write(24 * MIB);
        // The flush waits for what was in the buffer when it came.
        let programmed = load.drive.device().counters().blocks_programmed << 12;
        let rate = programmed as f64 * 1e9 / load.now.0 as f64;
        let expected = 4.0 * f64::from(3 << 14) * 1e9 / each;
        assert!((0.995..1.001).contains(&(rate / expected)), "{at_once}: {rate} for {expected}");
    }
}

#[test]
fn a_burst_is_fast_until_the_cache_is_full_and_again_after_a_rest() {
    let mut without = Load::new(&[]);
    let slow = without.write(24 * MIB);
    // Four units of two blocks of 64 rows of 16 KiB.
    let mut with = Load::new(&[("slc_cache", "8m")]);
    let burst = with.write(6 * MIB);
    // A row is 16 KiB: 20.48 us on the channel, and 250 us against a mean of
    // 2926.5 us in the array.
    assert!(burst > 8.0 * slow, "{burst} against {slow}");
    // The rest of the room goes at the speed of the cache.
    let after = with.write(32 * MIB);
    assert!(after < 1.2 * slow, "{after} against {slow}: the cache is full");
    let full = with.drive.device().slc_health();
    assert_eq!((full.rows, full.cached, full.folded), (512, 512, 0));
    assert!(full.direct > 1900, "the rest of 38 MiB: {}", full.direct);
    // 128 rows of each unit, 2.95 ms each, and two erases: 384 ms, from when the
    // unit has nothing else to do.
    with.rest(400_000_000);
    let rested = with.drive.device().slc_health();
    assert_eq!((rested.cached, rested.folded, rested.erases), (0, 512, 8));
    let again = with.write(6 * MIB);
    assert!(again > 0.95 * burst, "{again} against {burst}");
    // Half a rest empties about half of it.
    with.write(8 * MIB);
    with.rest(200_000_000);
    let half = with.drive.device().slc_health();
    assert!((150..350).contains(&half.cached), "{half:?}");
}
