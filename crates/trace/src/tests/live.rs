//! Tracing while it runs.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::*;

/// A file in memory that can be looked at while it is written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// A file whose disk is full after some bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that takes its header and then stands still until it is told.
struct Gate {
    told: Receiver<()>,
    header: bool,
    file: Shared,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !std::mem::replace(&mut self.header, false) {
            // After the sender is gone the gate is open.
            let _ = self.told.recv();
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gate() -> (Sender<()>, Shared, Gate) {
    let (tell, told) = channel();
    let file = Shared::default();
    (tell, file.clone(), Gate { told, header: true, file })
}

#[test]
fn it_is_on_between_start_and_stop() {
    let (mut tracer, mut taps) = Tracer::new(1, 16);
    let (file, tap) = (Shared::default(), &mut taps[0]);
    assert!(!tap.is_on());
    assert!(matches!(tracer.stop(), Err(TraceError::NotRunning)));
    tracer.start(file.clone(), &about("")).unwrap();
    assert!(tap.is_on());
    assert!(matches!(tracer.start(io::sink(), &about("")), Err(TraceError::Running)));
    tap.record(life(1));
    assert_eq!(tracer.stop().unwrap(), Totals { records: 1, dropped: 0 });
    assert!(!tap.is_on());
    assert_eq!(read(&file.bytes()).0, [life(1)]);
}

#[test]
fn each_trace_has_its_own_records_and_count() {
    let (mut tracer, mut taps) = Tracer::new(2, 4);
    for round in 0..3 {
        let file = Shared::default();
        tracer.start(file.clone(), &about("")).unwrap();
        taps[1].record(life(round));
        assert_eq!(tracer.stop().unwrap(), Totals { records: 1, dropped: 0 }, "{round}");
        assert_eq!(read(&file.bytes()).0, [life(round)]);
        // Too late: these are of no trace. The ring overflows as well.
        (0..9).for_each(|i| taps[0].record(life(100 + i)));
    }
}

#[test]
fn contexts_on_threads_are_all_in_the_file() {
    const EACH: u64 = 20_000;
    let (mut tracer, taps) = Tracer::new(3, EACH as usize);
    let file = Shared::default();
    tracer.start(file.clone(), &about("")).unwrap();
    std::thread::scope(|scope| {
        for (core, mut tap) in taps.into_iter().enumerate() {
            scope.spawn(move || {
                for id in 0..EACH {
                    assert!(tap.is_on());
                    tap.record(Life { core: core as u16, ..life(id) });
                }
            });
        }
    });
    assert_eq!(tracer.stop().unwrap(), Totals { records: 3 * EACH, dropped: 0 });
    let (lives, error) = read(&file.bytes());
    assert!(error.is_none());
    for core in 0..3 {
        let ids = lives.iter().filter(|life| life.core == core).map(|life| life.id);
        assert!(ids.eq(0..EACH), "core {core} is in order");
    }
}

#[test]
fn what_finds_no_room_is_counted() {
    let (mut tracer, mut taps) = Tracer::new(1, 8);
    let (tell, file, gate) = gate();
    tracer.start(gate, &about("")).unwrap();
    // The collector takes one block at most, then stands before the gate.
    (0..600).for_each(|id| taps[0].record(life(id)));
    drop(tell);
    let totals = tracer.stop().unwrap();
    assert_eq!(totals.records + totals.dropped, 600);
    assert!(totals.dropped >= 600 - 512 - 8, "{totals:?}");
    let (lives, error) = read(&file.bytes());
    assert!(error.is_none() && lives.len() as u64 == totals.records);
    assert!(lives.is_sorted_by_key(|life| life.id));
}

#[test]
fn a_record_does_not_wait_for_its_block_to_fill() {
    let (mut tracer, mut taps) = Tracer::new(1, 8);
    let file = Shared::default();
    tracer.start(file.clone(), &about("")).unwrap();
    taps[0].record(life(5));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while read(&file.bytes()).0.is_empty() {
        assert!(std::time::Instant::now() < deadline, "it was never written");
        std::thread::yield_now();
    }
    assert!(matches!(read(&file.bytes()).1, Some(TraceError::Truncated { .. })));
    tracer.stop().unwrap();
}

#[test]
fn a_full_disk_ends_the_trace_and_nothing_else() {
    let (mut tracer, mut taps) = Tracer::new(1, 4096);
    tracer.start(Full(1000), &about("")).unwrap();
    (0..2000).for_each(|id| taps[0].record(life(id)));
    let error = tracer.stop().unwrap_err();
    assert!(matches!(&error, TraceError::Io { doing: "write", .. }), "{error}");
    assert!(!taps[0].is_on());
    // And the tracer can be used again.
    let file = Shared::default();
    tracer.start(file.clone(), &about("")).unwrap();
    taps[0].record(life(1));
    assert_eq!(tracer.stop().unwrap(), Totals { records: 1, dropped: 0 });
    assert_eq!(read(&file.bytes()).0, [life(1)]);
}

#[test]
fn a_full_disk_is_told_at_the_start_too() {
    let (mut tracer, taps) = Tracer::new(1, 8);
    let error = tracer.start(Full(3), &about("")).unwrap_err();
    assert!(matches!(error, TraceError::Io { doing: "start", .. }));
    assert!(!taps[0].is_on() && !tracer.is_running());
    let path = std::path::Path::new("/dev/null/no such folder/trace");
    let error = tracer.start_file(path, &about("")).unwrap_err();
    assert!(matches!(error, TraceError::Io { doing: "create", .. }));
}

#[test]
fn a_tracer_that_goes_away_ends_its_trace() {
    let (mut tracer, mut taps) = Tracer::new(1, 8);
    let file = Shared::default();
    tracer.start(file.clone(), &about("")).unwrap();
    taps[0].record(life(1));
    drop(tracer);
    assert!(!taps[0].is_on());
    let (lives, error) = read(&file.bytes());
    assert!(error.is_none() && lives == [life(1)]);
}
