//! What targets leave is erased durably before another has it.

use std::cell::Cell;
use std::rc::Rc;

use device::{Device, OpenChannel};
use flash::{Chunk, ChunkState, Geometry, Medium, Moved, Ppa, RamMedium};
use media::{Partition, Place, Shared};
use port::{BlockOp, Port, Ring, Status, Time};
use targets::Pblk;

use crate::world::{BLOCK, act, claim, config, flash, request, rest, timing};

/// A medium whose barriers are counted, and fail when they are to.
#[derive(Clone, Default)]
struct Watch {
    barriers: Rc<Cell<u64>>,
    fails: Rc<Cell<bool>>,
}

struct Cached {
    ram: RamMedium,
    watch: Watch,
}

impl Medium for Cached {
    fn kept(&self) -> u32 {
        self.ram.kept()
    }
    fn program(&mut self, at: Ppa, count: u32, data: &[u8], tags: &[u8]) -> Moved {
        self.ram.program(at, count, data, tags)
    }
    fn read(&mut self, at: Ppa, count: u32, data: &mut [u8], tags: &mut [u8]) -> Moved {
        self.ram.read(at, count, data, tags)
    }
    fn reset(&mut self, chunk: Ppa) -> Moved {
        self.ram.reset(chunk)
    }
    fn is_cached(&self) -> bool {
        true
    }
    fn barrier(&mut self) -> Moved {
        self.watch.barriers.set(self.watch.barriers.get() + 1);
        if self.watch.fails.get() { Moved::Failed } else { Moved::Done }
    }
}

type Flash = Device<Cached>;
type Drive = Shared<Flash, Pblk<Partition<Flash>>>;

fn units(geometry: &Geometry, units: [u32; 2]) -> Place {
    Place { units: units.to_vec(), chunks: 0..geometry.chunks() }
}

/// A drive of two targets of two units each.
fn drive(watch: &Watch) -> Drive {
    let plain = flash(2, 2, 1, &timing());
    let geometry = *plain.geometry();
    let ram = RamMedium::new(&geometry, BLOCK as u32).unwrap();
    let medium = Cached { ram, watch: watch.clone() };
    let mut drive = Shared::new(Device::new(&geometry, &timing(), medium).unwrap());
    for pair in [[0, 1], [2, 3]] {
        let make = |partition: Partition<Flash>| {
            let config = config(partition.geometry());
            Pblk::new(partition, config)
        };
        drive.create(&claim(units(&geometry, pair), 64), make).unwrap();
    }
    drive
}

fn write_all(drive: &mut Drive, target: usize, mut now: Time) -> Time {
    let (first, bytes) = (drive.first_of(target), drive.shape_of(target).bytes);
    for block in 0..bytes / BLOCK {
        (_, now) = act(drive, now, request(0, BlockOp::Write, first + block * BLOCK, BLOCK, 3));
    }
    act(drive, now, request(0, BlockOp::Flush, first, BLOCK, 0)).1
}

#[test]
fn erases_are_durable_before_a_chunk_is_anothers() {
    let watch = Watch::default();
    let mut drive = drive(&watch);
    let now = write_all(&mut drive, 1, Time::ZERO);
    drive.remove(1, now).unwrap();
    let (mut done, mut left) = (Ring::new(8), Vec::new());
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
        left.push((drive.media().left_of(1), watch.barriers.get()));
    }
    assert!(drive.is_gone(1) && drive.media().left_of(1) == 0);
    // The barrier came after the last erase, and all came free with it.
    let most = left.iter().map(|(left, _)| *left).max().unwrap();
    let geometry = *drive.media().device().geometry();
    assert_eq!(most, geometry.chunks() as usize * 2);
    let last = left.iter().rposition(|(left, _)| *left > 0).unwrap();
    assert!(left[last].1 < watch.barriers.get(), "{:?}", &left[last..]);
    let written = |drive: &Drive| {
        let device = drive.media().device();
        let state = |chunk: &Chunk| matches!(chunk.state, ChunkState::Free);
        device.chunks().iter().filter(|chunk| !state(chunk)).count()
    };
    assert_eq!(written(&drive), 0, "target 0 was not written");
}

#[test]
fn what_may_not_be_erased_durably_is_nobodys() {
    let watch = Watch::default();
    let mut drive = drive(&watch);
    let now = write_all(&mut drive, 1, Time::ZERO);
    watch.fails.set(true);
    drive.remove(1, now).unwrap();
    let now = rest(&mut drive, now);
    assert!(drive.is_gone(1) && drive.media().left_of(1) == 0);
    let place = units(drive.media().device().geometry(), [2, 3]);
    let make = |_: Partition<Flash>| -> Result<_, std::convert::Infallible> { unreachable!() };
    let Err(e) = drive.create(&claim(place, 64), make) else { panic!("it may come back") };
    assert!(e.to_string().contains("is written"), "{e}");
    let (done, _) = act(&mut drive, now, request(1, BlockOp::Read, 0, BLOCK, 0));
    assert!(done.status.is_ok(), "the other is as it was");
}

/// One that never wrote anything asks the disk for nothing when it goes, and what it had is
/// another's at once: also where the disk is full.
#[test]
fn what_was_never_used_is_anothers_at_once() {
    let watch = Watch::default();
    let mut drive = drive(&watch);
    watch.fails.set(true);
    let place = units(drive.media().device().geometry(), [2, 3]);
    for _ in 0..2 {
        drive.remove(1, Time::ZERO).unwrap();
        rest(&mut drive, Time::ZERO);
        assert!(drive.is_gone(1) && drive.media().left_of(1) == 0);
        let make = |partition: Partition<Flash>| {
            let config = config(partition.geometry());
            Pblk::new(partition, config)
        };
        assert_eq!(drive.create(&claim(place.clone(), 64), make).unwrap(), 1);
    }
    assert_eq!(watch.barriers.get(), 0);
}

/// What a cut left of a target that nobody names any more is erased when the others were
/// found, and then another's.
#[test]
fn what_nobody_names_is_erased_at_the_start() {
    let mut drive = crate::world::shared(media::Placement::Isolate, 2, 2, 2, &timing());
    let mut now = Time::ZERO;
    for target in [0, 1] {
        let first = drive.first_of(target);
        (_, now) = act(&mut drive, now, request(0, BlockOp::Write, first, BLOCK, 5));
        (_, now) = act(&mut drive, now, request(0, BlockOp::Flush, first, BLOCK, 0));
    }
    let geometry = *drive.media().device().geometry();
    let (mut drive, mut now) = crate::world::found(drive, vec![units(&geometry, [0, 1])]);
    let place = units(&geometry, [2, 3]);
    let Err(e) = drive.create(&claim(place.clone(), 64), crate::world::never) else { panic!() };
    assert!(e.to_string().contains("is written"), "{e}");
    drive.media_mut().clear(now);
    assert!(drive.media().left_of(1) > 0);
    now = rest(&mut drive, now);
    assert_eq!(drive.create(&claim(place, 64), crate::world::pblk).unwrap(), 1);
    let first = drive.first_of(1);
    let (done, now) = act(&mut drive, now, request(1, BlockOp::Read, first, BLOCK, 9));
    assert!(done.status.is_ok() && done.buffer.bytes().iter().all(|&byte| byte == 0));
    let (done, _) = act(&mut drive, now, request(1, BlockOp::Read, 0, BLOCK, 9));
    assert!(done.status.is_ok() && done.buffer.bytes().iter().all(|&byte| byte == 5));
}

/// One that waits takes no requests, keeps what it has, and takes them again.
#[test]
fn one_that_waits_takes_no_requests() {
    let mut drive = crate::world::shared(media::Placement::Isolate, 2, 2, 2, &timing());
    let first = drive.first_of(1);
    let (_, now) = act(&mut drive, Time::ZERO, request(0, BlockOp::Write, first, BLOCK, 5));
    drive.set_serving(1, false).unwrap();
    let (done, now) = act(&mut drive, now, request(1, BlockOp::Read, first, BLOCK, 9));
    assert_eq!(done.status, Status::LBA_OUT_OF_RANGE);
    drive.set_serving(1, true).unwrap();
    let (done, now) = act(&mut drive, now, request(2, BlockOp::Read, first, BLOCK, 9));
    assert!(done.status.is_ok() && done.buffer.bytes()[0] == 5);
    drive.set_serving(1, false).unwrap();
    drive.remove(1, now).unwrap();
    rest(&mut drive, now);
    assert!(drive.is_gone(1) && drive.set_serving(1, true).is_err());
}

/// Addresses may be said; those of another are refused, and nothing is left of the attempt.
#[test]
fn addresses_are_as_they_are_said() {
    let mut drive = crate::world::shared(media::Placement::Isolate, 2, 2, 2, &timing());
    drive.remove(0, Time::ZERO).unwrap();
    let now = rest(&mut drive, Time::ZERO);
    let (bytes, begins) = (drive.shape_of(1).bytes, drive.first_of(1));
    let place = units(drive.media().device().geometry(), [0, 1]);
    let at = |first| media::Claim { first: Some(first), ..claim(place.clone(), 64) };
    for first in [begins, begins + bytes - BLOCK, begins - BLOCK] {
        let Err(e) = drive.create(&at(first), crate::world::pblk) else { panic!("{first}") };
        assert!(e.to_string().contains("belong to another"), "{e}");
    }
    let far = (begins + bytes) * 2;
    assert_eq!(drive.create(&at(far), crate::world::pblk).unwrap(), 0);
    assert_eq!((drive.first_of(0), drive.shape().bytes), (far, far + bytes));
    let (done, _) = act(&mut drive, now, request(1, BlockOp::Write, far, BLOCK, 9));
    assert!(done.status.is_ok());
}
