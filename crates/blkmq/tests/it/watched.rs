//! A layer that is watched while it runs: each request's life, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::{Config, Life, Merge, Plug, Watch, build};
use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};

use crate::common::topology;

/// Keeps what it is told while it is on.
#[derive(Clone, Default)]
struct Keeps {
    on: Arc<AtomicBool>,
    lives: Arc<Mutex<Vec<Life>>>,
}

impl Watch for Keeps {
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn record(&mut self, life: Life) {
        self.lives.lock().unwrap().push(life);
    }
}

fn reads(ids: std::ops::Range<u64>) -> Ring<BlockReq> {
    let mut reqs = Ring::new(64);
    for id in ids {
        let (offset, buffer) = (id * 4096, Buffer::empty());
        let op = BlockOp::Read;
        reqs.push(BlockReq::new(id, op, offset, 4096, buffer)).unwrap();
    }
    reqs
}

#[test]
fn who_watches_may_begin_and_end_while_requests_run() {
    let options = TimedOptions { hw_queue_depth: 4, ..TimedOptions::default() };
    let driver = Timed::new(options).unwrap();
    let (mut contexts, _) = build(&Config::new(topology(1, 1)), driver).unwrap();
    let (context, keeps, mut done) = (&mut contexts[0], Keeps::default(), Ring::new(64));
    context.set_watch(keeps.clone());
    for (ids, on) in [(0..8, false), (8..20, true), (20..24, false)] {
        keeps.on.store(on, Ordering::Relaxed);
        context.submit(context.next_event().unwrap_or(Time(7)), &mut reads(ids));
        while let Some(at) = context.next_event() {
            context.advance(at, &mut done);
        }
        done.drain().for_each(drop);
    }
    let mut lives = keeps.lives.lock().unwrap().clone();
    lives.sort_unstable_by_key(|life| life.id);
    assert!(lives.iter().map(|life| life.id).eq(8..20));
    for life in &lives {
        assert_eq!((life.offset, life.len, life.parts), (life.id * 4096, 4096, 1));
        // Four at once, 10 us each: the others were staged meanwhile.
        assert_eq!(life.device(), 10_000);
        assert_eq!(life.staged(), (life.id - 8) / 4 * 10_000);
    }
}

#[test]
fn a_merged_request_says_how_many_it_was() {
    let plug = Some(Plug { requests: 8, ..Plug::default() });
    let merges = Config { merge: Merge::Full, merge_idle: true, ..Config::new(topology(1, 1)) };
    let driver = Timed::new(TimedOptions::default()).unwrap();
    let (mut contexts, monitor) = build(&Config { plug, ..merges }, driver).unwrap();
    let (keeps, mut done) = (Keeps::default(), Ring::new(64));
    keeps.on.store(true, Ordering::Relaxed);
    contexts[0].set_watch(keeps.clone());
    contexts[0].submit(Time(0), &mut reads(0..5));
    contexts[0].unplug();
    while let Some(at) = contexts[0].next_event() {
        contexts[0].advance(at, &mut done);
    }
    assert_eq!((done.len(), monitor.staging()[0].merged), (5, 4));
    let lives = keeps.lives.lock().unwrap();
    assert_eq!(lives.len(), 1);
    assert_eq!((lives[0].parts, lives[0].len), (5, 5 * 4096));
}
