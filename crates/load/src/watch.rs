//! Who watches a run: a bar on a terminal, Ctrl-C, and a limit on the wall.
//!
//! The bar is on standard error, and only where that is a terminal. Ctrl-C
//! asks once; a second one ends the process. A terminal that is closed asks. May
//! fail: the system refuses a signal handler.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::signals::{asking, insists};
use drive::error::Error;

/// Steps of a bar.
const STEPS: u64 = 1000;

/// Watches.
pub struct Watch {
    bar: Option<ProgressBar>,
    stop: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Watch {
    /// Watches without a bar, and nobody can stop it.
    pub fn quiet() -> Watch {
        Watch { bar: None, stop: Arc::default(), deadline: None }
    }

    /// Watches without a bar, until `limit` on the wall is over.
    pub fn until(limit: Duration) -> Watch {
        Watch { deadline: Instant::now().checked_add(limit), ..Watch::quiet() }
    }

    /// Watches for a terminal: with a bar if there is one, until `limit` on
    /// the wall is over or somebody interrupts.
    pub fn terminal(limit: Option<Duration>) -> Result<Watch, Error> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let stop = interrupted().map_err(|e| Error::system("wait for signals", &e))?;
        Ok(Watch { bar: bar(), stop, deadline })
    }

    /// One for what comes after this, with a bar of its own if there is a terminal: it
    /// ends when this one does.
    pub fn another(&self) -> Watch {
        Watch { bar: bar(), ..self.helper() }
    }

    /// One without a bar for another thread: it ends when this one does.
    pub fn helper(&self) -> Watch {
        Watch { bar: None, stop: self.stop.clone(), deadline: self.deadline }
    }

    /// Something else begins.
    pub fn phase(&mut self, name: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(0);
            bar.set_message(name.to_owned());
        }
    }

    /// Shows that `part` of it is done, 0 to 1. False when it is to stop.
    pub fn look(&mut self, part: f64) -> bool {
        if let Some(bar) = &self.bar {
            bar.set_position((part * STEPS as f64) as u64);
        }
        !self.stop.load(Ordering::Relaxed) && self.deadline.is_none_or(|at| Instant::now() < at)
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
    io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{msg:30} {wide_bar} {percent:>3} % {elapsed}");
        let bar = ProgressBar::new(STEPS);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar
    })
}

/// Columns of the terminal that the output goes to, as far as anybody knows.
pub fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
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
