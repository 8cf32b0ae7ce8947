//! Who watches a run: a bar on a terminal, Ctrl-C, and a limit on the wall.
//!
//! The bar is on standard error, and only where that is a terminal. Ctrl-C
//! asks once; a second one ends the process. SIGTERM and a terminal that is closed ask. A
//! program that runs commands inside itself takes the terminal's place ([`observed`]):
//! no bar, no signal handler. May fail: the system refuses a signal handler.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::signals::{asking, insists};
use drive::error::Error;

/// Steps of a bar.
const STEPS: u64 = 1000;

/// A terminal of fewer columns has no place for a bar beside what is said.
const NARROW: usize = 60;

/// Between two looks of an observer.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A program in the terminal's place: it shows how far a run is, and stops it.
pub trait Observer: Send + Sync {
    /// Something else begins.
    fn phase(&self, name: &str);
    /// So much of it is done, 0 to 1. False when it is to stop. Asked some 20 times a
    /// second.
    fn look(&self, part: f64) -> bool;
}

thread_local! {
    /// Who takes the terminal's place on this thread.
    static OBSERVER: RefCell<Option<Arc<dyn Observer>>> = const { RefCell::new(None) };
}

/// Runs something on this thread whose [`Watch::terminal`] is this observer's.
pub fn observed<T>(observer: Arc<dyn Observer>, run: impl FnOnce() -> T) -> T {
    /// Takes the observer away, however that ends.
    struct Until(Option<Arc<dyn Observer>>);
    impl Drop for Until {
        fn drop(&mut self) {
            OBSERVER.set(self.0.take());
        }
    }
    let _until = Until(OBSERVER.replace(Some(observer)));
    run()
}

/// Whether the observer of this thread, where there is one, wants the run to stop: for who
/// waits for something outside, and was woken by a signal.
pub fn is_to_stop() -> bool {
    OBSERVER.with_borrow(Clone::clone).is_some_and(|observer| !observer.look(0.0))
}

/// An observer, and when it looks again.
struct Observed {
    observer: Arc<dyn Observer>,
    next: Instant,
}

impl Observed {
    fn new(observer: Arc<dyn Observer>) -> Observed {
        Observed { observer, next: Instant::now() }
    }

    /// False when it is to stop.
    fn look(&mut self, part: f64) -> bool {
        let now = Instant::now();
        if now < self.next {
            return true;
        }
        let goes_on = self.observer.look(part);
        self.next = Instant::now() + LOOK_EVERY;
        goes_on
    }
}

/// Watches.
pub struct Watch {
    bar: Option<ProgressBar>,
    observer: Option<Observed>,
    stop: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Watch {
    /// Watches without a bar, and nobody can stop it.
    pub fn quiet() -> Watch {
        Watch { bar: None, observer: None, stop: Arc::default(), deadline: None }
    }

    /// Watches without a bar, until `limit` on the wall is over.
    pub fn until(limit: Duration) -> Watch {
        Watch { deadline: Instant::now().checked_add(limit), ..Watch::quiet() }
    }

    /// Watches for a terminal: with a bar if there is one, until `limit` on
    /// the wall is over or somebody interrupts. Where an [`Observer`] is, it is that one's.
    pub fn terminal(limit: Option<Duration>) -> Result<Watch, Error> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(observer) = OBSERVER.with_borrow(Clone::clone) {
            let observer = Some(Observed::new(observer));
            return Ok(Watch { observer, deadline, ..Watch::quiet() });
        }
        let stop = interrupted().map_err(|e| Error::system("wait for signals", &e))?;
        Ok(Watch { bar: bar(), observer: None, stop, deadline })
    }

    /// One for what comes after this, with a bar of its own if there is a terminal: it
    /// ends when this one does.
    pub fn another(&self) -> Watch {
        let observer = self.observer.as_ref().map(|own| Observed::new(own.observer.clone()));
        let bar = if observer.is_none() { bar() } else { None };
        Watch { bar, observer, ..self.helper() }
    }

    /// One without a bar for another thread: it ends when this one does.
    pub fn helper(&self) -> Watch {
        Watch { bar: None, observer: None, stop: self.stop.clone(), deadline: self.deadline }
    }

    /// Something else begins.
    pub fn phase(&mut self, name: &str) {
        if let Some(bar) = &self.bar {
            begin(bar, columns_of(io::stderr()), name);
        }
        if let Some(observed) = &self.observer {
            observed.observer.phase(name);
        }
    }

    /// Shows that `part` of it is done, 0 to 1. False when it is to stop.
    pub fn look(&mut self, part: f64) -> bool {
        if let Some(bar) = &self.bar {
            bar.set_position((part * STEPS as f64) as u64);
        }
        if let Some(observed) = &mut self.observer
            && !observed.look(part)
        {
            self.stop.store(true, Ordering::Relaxed);
        }
        !self.stop.load(Ordering::Relaxed) && !self.is_over()
    }

    /// Whether the time that it had on the wall is over.
    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Takes the bar away.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A bar, if there is a terminal.
fn bar() -> Option<ProgressBar> {
    io::stderr()
        .is_terminal()
        .then(|| ProgressBar::new(STEPS).with_style(style(columns_of(io::stderr()))))
}

/// A bar begins anew for what is of this name, on a terminal of so many columns.
fn begin(bar: &ProgressBar, columns: usize, name: &str) {
    bar.set_style(style(columns));
    bar.set_position(0);
    bar.set_message(name.to_owned());
}

/// How a bar looks: on a narrow terminal there is no place for more than what is said and how
/// far it is.
fn style(columns: usize) -> ProgressStyle {
    let template = match columns < NARROW {
        true => "{wide_msg} {percent:>3} %",
        false => "{msg:30!} {wide_bar} {percent:>3} % {elapsed}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Columns of the terminal that the output goes to, as far as anybody knows.
pub fn columns() -> usize {
    columns_of(io::stdout())
}

fn columns_of(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal);
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns > 0 { columns } else { usize::MAX }
}

/// A flag that the signals set which ask to end; a second one that insists ends
/// the process.
fn interrupted() -> Result<Arc<AtomicBool>, io::Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in asking() {
        // In this order: the flag is still false when the first one comes.
        if insists(signal) {
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        }
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal of so many columns, and what was written to it.
    #[derive(Clone, Debug)]
    struct Terminal(u16, Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            self.0
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.1.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.write_str("\n")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// No line is longer than the terminal, and each says what goes on and how far it is.
    #[test]
    fn a_bar_keeps_to_its_terminal() {
        for (columns, name) in [20, 30, 45, 59, 60, 79, 80, 200].into_iter().flat_map(|columns| {
            ["reading back", "some jobs, of which each has a name, that are many"]
                .map(|name| (columns, name))
        }) {
            let terminal = Terminal(columns, Arc::default());
            let bar = ProgressBar::new(STEPS);
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
            begin(&bar, columns.into(), name);
            bar.set_position(STEPS / 2);
            bar.tick();
            let text = terminal.1.lock().unwrap();
            let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap();
            assert!(last.starts_with(&name[..12]) && last.contains(" 50 %"), "{columns}: {last}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns.into()), "{columns}: {text}");
        }
    }

    #[test]
    fn whose_time_is_over_is_known() {
        assert!(Watch::until(Duration::ZERO).is_over());
        assert!(!Watch::until(Duration::from_secs(3600)).is_over());
        let mut stopped = Watch::quiet();
        stopped.stop.store(true, Ordering::Relaxed);
        assert!(!stopped.look(0.0) && !stopped.is_over());
    }

    /// Notes what it is told, and stops at half.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Observer for Notes {
        fn phase(&self, name: &str) {
            self.0.lock().unwrap().push(name.into());
        }

        fn look(&self, part: f64) -> bool {
            self.0.lock().unwrap().push(part.to_string());
            part < 0.5
        }
    }

    #[test]
    fn a_host_is_told_and_stops_helpers_too() {
        let notes = Arc::new(Notes::default());
        let (mut watch, mut helper) = observed(notes.clone(), || {
            let watch = Watch::terminal(None).unwrap();
            let helper = watch.helper();
            (watch, helper)
        });
        watch.phase("measuring");
        assert!(watch.look(0.25) && helper.look(0.9));
        assert!(watch.look(0.75), "it looks only now and then");
        watch.observer.as_mut().unwrap().next = Instant::now();
        assert!(!watch.look(0.75) && !helper.look(0.0));
        assert_eq!(*notes.0.lock().unwrap(), ["measuring", "0.25", "0.75"]);
    }

    #[test]
    fn a_host_is_one_while_something_runs() {
        let is_there = || OBSERVER.with_borrow(Option::is_some);
        let panics =
            || observed(Arc::new(Notes::default()), || assert!(!is_there(), "it is there"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(!is_there());
    }
}
