//! The way of a request allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{buffered, file, if_possible, queue};
use blkmq::HardwareQueue;
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};
use storage::{Pool, StorageOptions};

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
fn nothing_is_allocated_per_request() {
    let (_dir, path) = file(1 << 20);
    let mut pool = Pool::new(32, 4096).unwrap();
    let options = StorageOptions { depth: 32, regions: pool.regions(), ..buffered() };
    let Some(storage) = if_possible(&path, options) else { return };
    let mut queue = queue(storage);
    let (mut cmds, mut done) = (Ring::new(32), Ring::new(32));
    let ops = [BlockOp::Read, BlockOp::Write, BlockOp::Trim, BlockOp::Flush];
    let mut before = 0;
    for round in 0..200u64 {
        if round == 1 {
            before = COUNT.get();
        }
        for id in 0..32 {
            let op = ops[(id % 4) as usize];
            let data = matches!(op, BlockOp::Read | BlockOp::Write);
            let buffer = if data { pool.take().unwrap() } else { Buffer::empty() };
            cmds.put(|| BlockReq::new(id, op, id * 4096, 4096, buffer));
        }
        queue.submit(Time(round), &mut cmds);
        let mut left = 32;
        while left > 0 {
            queue.wait(None);
            queue.advance(Time(round), &mut done);
            for one in done.drain() {
                assert!(one.status.is_ok());
                left -= 1;
                if !one.buffer.is_empty() {
                    pool.give(one.buffer);
                }
            }
        }
    }
    assert_eq!(COUNT.get(), before);
}
