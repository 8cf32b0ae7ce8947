//! Tracing while I/O runs.
//!
//! A [`Tap`] belongs to the thread that submits; the [`Tracer`] to whoever
//! controls. Between them is a bounded ring for each tap and one collector
//! thread, which runs only while the tracer does. The collector looks at the
//! rings each half millisecond when there is little to do, so a ring should
//! hold what a context ends in a millisecond or two; what it cannot hold is
//! counted as dropped. What a tap records at the very moment of
//! [`Tracer::stop`] on another thread may be missed.
//!
//! May fail: the system refuses to write, or to start a thread. A failed write
//! ends the trace and leaves I/O alone; `stop` says what it was.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use blkmq::{Life, Watch};
use measure::file::{self, There};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::error::TraceError;
use crate::format::{About, MAGIC, Totals, Writer};

/// How long the collector rests when the rings had little for it.
const REST: Duration = Duration::from_micros(500);
/// Fewer records than this in a round are little.
const LITTLE: usize = 64;
/// How many records are taken from a ring at once.
const PIECE: usize = 256;
/// A record is in the file after so long, also when its block is not full.
const LONGEST_HELD: Duration = Duration::from_millis(100);

/// Whether tracing is on. On a cache line (of two, as they are fetched) of its
/// own: it is read by every core and hardly ever written.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Switch(AtomicBool);

/// How many requests found their ring full. Each on a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Dropped(AtomicU64);

/// A context's end of the tracer.
#[derive(Debug)]
pub struct Tap {
    on: Arc<Switch>,
    ring: Producer<Life>,
    dropped: Arc<Dropped>,
}

impl Watch for Tap {
    #[inline]
    fn is_on(&self) -> bool {
        self.on.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn record(&mut self, life: Life) {
        if self.ring.push(life).is_err() {
            self.dropped.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Starts and stops tracing.
#[derive(Debug)]
pub struct Tracer {
    on: Arc<Switch>,
    lines: Lines,
    running: Option<Running>,
}

/// The collector's ends of all taps. While a collector runs they are its own.
type Lines = Vec<Line>;

#[derive(Debug)]
struct Line {
    ring: Consumer<Life>,
    dropped: Arc<Dropped>,
}

#[derive(Debug)]
struct Running {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<Collected>,
}

/// What a collector ends with: what it was lent, and how it went.
type Collected = (Lines, Result<Totals, TraceError>);

impl Tracer {
    /// A tracer that is off, and a tap for each of `contexts` contexts with
    /// room for `ring` records that were not collected yet.
    ///
    /// # Panics
    /// When `ring` is zero.
    pub fn new(contexts: usize, ring: usize) -> (Tracer, Vec<Tap>) {
        assert!(ring > 0, "a tap has room for a record");
        let on = Arc::new(Switch::default());
        let (mut lines, mut taps) = (Vec::new(), Vec::new());
        for _ in 0..contexts {
            let (producer, consumer) = RingBuffer::new(ring);
            let dropped = Arc::new(Dropped::default());
            lines.push(Line { ring: consumer, dropped: dropped.clone() });
            taps.push(Tap { on: on.clone(), ring: producer, dropped });
        }
        (Tracer { on, lines, running: None }, taps)
    }

    /// Whether it is running.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts a trace in a new file, or over an old one.
    pub fn start_file(&mut self, path: &Path, about: &About) -> Result<(), TraceError> {
        if self.is_running() {
            return Err(TraceError::Running);
        }
        let file = create(path)?;
        self.start(file, about)
    }

    /// Starts a trace. It is written in pieces of some 10 KB; `out` needs no
    /// buffer of its own.
    pub fn start<W>(&mut self, out: W, about: &About) -> Result<(), TraceError>
    where
        W: Write + Send + 'static,
    {
        if self.is_running() {
            return Err(TraceError::Running);
        }
        let writer = Writer::new(out, about)?;
        // What was recorded too late for the trace before is not of this one.
        for line in &mut self.lines {
            line.collect(|_| Ok(()))?;
            line.dropped.0.store(0, Ordering::Relaxed);
        }
        let (on, ending) = (self.on.clone(), Arc::new(AtomicBool::new(false)));
        let collector = Collector { lines: Vec::new(), on, ending: ending.clone(), writer };
        // Before the collector may find that it cannot write, and switch off.
        self.on.0.store(true, Ordering::Relaxed);
        match collector.spawn(&mut self.lines) {
            Ok(thread) => self.running = Some(Running { ending, thread }),
            Err(e) => {
                self.on.0.store(false, Ordering::Relaxed);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Ends the trace: writes what was recorded, and the end mark. Says how
    /// many requests are in it, or what went wrong on the way.
    pub fn stop(&mut self) -> Result<Totals, TraceError> {
        let Running { ending, thread } = self.running.take().ok_or(TraceError::NotRunning)?;
        self.on.0.store(false, Ordering::Relaxed);
        ending.store(true, Ordering::Release);
        thread.thread().unpark();
        match thread.join() {
            Ok((lines, totals)) => {
                self.lines = lines;
                totals
            }
            // Only a writer that panics gets here.
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Tracer {
    /// Ends a trace that still runs; what goes wrong then is not told.
    fn drop(&mut self) {
        if self.is_running() && !thread::panicking() {
            let _ = self.stop();
        }
    }
}

impl Line {
    /// Takes what is in the ring now and gives how much that was.
    fn collect(
        &mut self,
        mut each: impl FnMut(&Life) -> Result<(), TraceError>,
    ) -> Result<usize, TraceError> {
        let count = self.ring.slots();
        let mut left = count;
        // In pieces, so that the tap has room again soon, and not one by one,
        // so that the two do not fight for the ring's ends.
        while let Ok(piece) = self.ring.read_chunk(left.min(PIECE))
            && !piece.is_empty()
        {
            left -= piece.len();
            let (front, back) = piece.as_slices();
            front.iter().chain(back).try_for_each(&mut each)?;
            piece.commit_all();
        }
        Ok(count)
    }
}

/// The thread that writes the file.
struct Collector<W: Write> {
    lines: Lines,
    on: Arc<Switch>,
    ending: Arc<AtomicBool>,
    writer: Writer<W>,
}

impl<W: Write + Send + 'static> Collector<W> {
    /// Starts the thread, which takes `lines` over. They stay where they are
    /// when the system refuses.
    fn spawn(mut self, lines: &mut Lines) -> Result<JoinHandle<Collected>, TraceError> {
        // Handed over once the thread is there, so that they are not lost with
        // a thread that could not be started.
        let (give, take) = std::sync::mpsc::sync_channel(1);
        let work = move || {
            self.lines = take.recv().unwrap_or_default();
            self.run()
        };
        let thread = thread::Builder::new().name("tracer".into()).spawn(work);
        let thread = thread.map_err(TraceError::io("start a thread for"))?;
        give.send(std::mem::take(lines)).expect("the thread waits for them");
        Ok(thread)
    }

    fn run(self) -> Collected {
        let Collector { mut lines, on, ending, mut writer } = self;
        if let Err(e) = collect_until(&ending, &mut lines, &mut writer) {
            on.0.store(false, Ordering::Relaxed);
            return (lines, Err(e));
        }
        let dropped = lines.iter().map(|line| line.dropped.0.load(Ordering::Relaxed)).sum();
        (lines, writer.finish(dropped))
    }
}

/// Makes the file of a trace. One that is there is written over if it is a trace, or
/// empty; nothing else is opened.
fn create(path: &Path) -> Result<File, TraceError> {
    match file::look(path, &MAGIC) {
        Ok(There::Replaceable) => File::create(path).map_err(TraceError::io("create")),
        Ok(There::NoFile) => Err(TraceError::NotAFile),
        Ok(There::Other) | Err(_) => Err(TraceError::Exists),
    }
}

/// Writes what comes until `ending`, and then what is there.
fn collect_until<W: Write>(
    ending: &AtomicBool,
    lines: &mut Lines,
    writer: &mut Writer<W>,
) -> Result<(), TraceError> {
    let mut last_empty = Instant::now();
    loop {
        // Looked at first: the round after it was set takes all.
        let last = ending.load(Ordering::Acquire);
        let mut found = 0;
        for line in &mut *lines {
            found += line.collect(|life| writer.put(life))?;
        }
        if last {
            return Ok(());
        }
        if writer.pending() == 0 {
            last_empty = Instant::now();
        } else if last_empty.elapsed() >= LONGEST_HELD {
            writer.flush()?;
        }
        if found < LITTLE {
            thread::park_timeout(REST);
        }
    }
}
