//! The way of a command allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::*;
use device::{Device, VectorCmd, VectorOp};
use faults::{CachedMedium, CheckedMedium, DelayPort, FaultPort, FaultyMedium};
use flash::{RamMedium, Timing};
use port::{Port, Ring, Time};

/// The system's, counted.
struct Counted;

thread_local! {
    /// Of this thread: the one that runs the tests allocates whenever it gets
    /// a core.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn nothing_is_allocated_per_command() {
    let g = geometry();
    let rules = medium_rules(&[
        "medium:lost,every=9",
        "medium:torn,every=7",
        "medium:slow,probability=0.2",
    ]);
    let cache = CachedMedium::new(&g, RamMedium::new(&g, 8).unwrap()).unwrap();
    let medium = FaultyMedium::new(&g, cache, &rules, 1).unwrap();
    let medium = CheckedMedium::new(&g, medium).unwrap();
    let device = Device::new(&g, &Timing::default(), medium).unwrap();
    let faults = fault_rules(&["any,every=5", "read,probability=0.1"]);
    let delays = delay_rules(&["any,probability=0.3,delay=1us-9us"]);
    let port = FaultPort::new(device, &faults, 1).unwrap();
    let mut port = DelayPort::new(port, &delays, 1).unwrap();
    let (mut cmds, mut done) = (Ring::<VectorCmd>::new(64), Ring::new(64));
    let mut buffers: Vec<_> =
        (0..48).map(|i| vector(i, VectorOp::Write, g.ppa(0, 0, 0, 0), 4, 8).buffer).collect();
    let (mut now, mut before) = (Time::ZERO, 0);
    // Each round erases a chunk, writes all of it again and reads it.
    for round in 0..800u64 {
        if round == 600 {
            before = COUNT.get();
        }
        let start = g.ppa(0, 0, round as u32 % 4, 0);
        for i in 0..14u64 {
            let (op, at) = match i {
                0 => (VectorOp::Reset, 0),
                1..7 => (VectorOp::Write, (i - 1) * 4),
                13 => (VectorOp::Flush, 0),
                _ => (VectorOp::Read, (i - 7) * 4),
            };
            let moves = matches!(op, VectorOp::Write | VectorOp::Read);
            let count = if moves { 4 } else { 1 };
            let buffer = if moves { buffers.pop().unwrap() } else { port::Buffer::empty() };
            let content = device::Content::Tagged;
            let ppa = flash::Ppa(start.0 + at);
            let cmd = VectorCmd::new(i, op, content, (ppa, count), buffer);
            cmds.put(|| cmd);
            port.submit(now, &mut cmds);
            while let Some(at) = port.next_event() {
                now = now.max(at);
                port.advance(at, &mut done);
                buffers.extend(done.drain().map(|d| d.buffer).filter(|b| !b.is_empty()));
            }
        }
    }
    assert_eq!(buffers.len(), 48, "all buffers are back");
    assert_eq!(COUNT.get() - before, 0);
    assert!(port.struck().sum::<u64>() > 1000);
}
