//! A layer that is traced while it runs: each request's life, once.

use std::io::Write;
use std::sync::{Arc, Mutex};

use blkmq::driver::timed::{Timed, TimedOptions};
use blkmq::trace::{About, Reader, Tracer};
use blkmq::{Config, Merge, Plug, Topology, build};

use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};

/// A file that a test can look into.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn reads(ids: std::ops::Range<u64>) -> Ring<BlockReq> {
    let mut reqs = Ring::new(64);
    for id in ids {
        let (offset, buffer) = (id * 4096, Buffer::empty());
        let op = BlockOp::Read;
        reqs.push(BlockReq { id, op, fua: false, placement: 0, offset, len: 4096, buffer })
            .unwrap();
    }
    reqs
}

#[test]
fn a_trace_is_switched_on_and_off_while_requests_run() {
    let options = TimedOptions { hw_queue_depth: 4, ..TimedOptions::default() };
    let driver = Timed::new(options).unwrap();
    let (mut contexts, _) = build(&Config::new(Topology::new(1, 1).unwrap()), driver).unwrap();
    let (mut tracer, mut taps) = Tracer::new(1, 1024);
    let context = &mut contexts[0];
    context.set_tap(taps.remove(0));
    let (sink, mut done) = (Sink::default(), Ring::new(64));
    let mut run = |ids| {
        let before = done.len();
        assert_eq!(before, 0);
        context.submit(context.next_event().unwrap_or(Time(7)), &mut reads(ids));
        while let Some(at) = context.next_event() {
            context.advance(at, &mut done);
        }
        done.drain().for_each(drop);
    };
    run(0..8);
    tracer.start(sink.clone(), &About { start: Time(0), config: "test".into() }).unwrap();
    run(8..20);
    let totals = tracer.stop().unwrap();
    run(20..24);
    assert_eq!((totals.records, totals.dropped), (12, 0));
    let bytes = sink.0.lock().unwrap().clone();
    let lives: Vec<_> = Reader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
    let mut ids: Vec<u64> = lives.iter().map(|life| life.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (8..20).collect::<Vec<_>>());
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
    let config = Config {
        plug,
        merge: Merge::Full,
        merge_idle: true,
        ..Config::new(Topology::new(1, 1).unwrap())
    };
    let driver = Timed::new(TimedOptions::default()).unwrap();
    let (mut contexts, monitor) = build(&config, driver).unwrap();
    let (mut tracer, mut taps) = Tracer::new(1, 64);
    contexts[0].set_tap(taps.remove(0));
    let (sink, mut done) = (Sink::default(), Ring::new(64));
    tracer.start(sink.clone(), &About { start: Time(0), config: String::new() }).unwrap();
    contexts[0].submit(Time(0), &mut reads(0..5));
    contexts[0].unplug();
    while let Some(at) = contexts[0].next_event() {
        contexts[0].advance(at, &mut done);
    }
    tracer.stop().unwrap();
    assert_eq!((done.len(), monitor.staging()[0].merged), (5, 4));
    let bytes = sink.0.lock().unwrap().clone();
    let lives: Vec<_> = Reader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
    assert_eq!(lives.len(), 1);
    assert_eq!((lives[0].parts, lives[0].len), (5, 5 * 4096));
}
