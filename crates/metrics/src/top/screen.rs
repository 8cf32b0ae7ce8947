//! The terminal of `ssdkit top`: keys, signals, and a thread that looks at the server.
//!
//! Guarantees: the terminal is restored however this ends. Fails when there is none, or
//! the system gives no thread.

use std::io::{IsTerminal, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel, sync_channel};
use std::time::Duration;

use drive::error::Error;
use load::signals::asking;
use load::threads::no_thread;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::TopArgs;
use super::figures::Figures;
use super::view::{State, draw};
use super::why::Between;
use crate::address::Address;
use crate::client::look;
use crate::explained::Look;
use crate::scrape::Scrape;

/// How soon keys and signals are seen.
const BEAT: Duration = Duration::from_millis(100);
/// Lines that a page key moves lists.
const PAGE: usize = 10;

/// The terminal is given back when this is dropped.
struct Borrowed;

impl Drop for Borrowed {
    fn drop(&mut self) {
        // Not `restore`, which panics where standard error is gone with the terminal.
        let _ = ratatui::try_restore();
    }
}

/// Shows a drive until somebody ends it.
pub(super) fn show(args: &TopArgs) -> Result<(), Error> {
    if !stdout().is_terminal() || !stdin().is_terminal() {
        let text = "top is for a terminal: take --once, with --json perhaps, for anything else";
        return Err(Error::Usage(text.into()));
    }
    let ends = Arc::new(AtomicBool::new(false));
    for signal in asking() {
        let heard = signal_hook::flag::register(signal, ends.clone());
        heard.map_err(|e| Error::system("wait for signals", &e))?;
    }
    let (address, interval) = (args.address.clone(), Duration::from_nanos(args.interval));
    let (give, looks) = sync_channel(1);
    // The thread ends when one of the two ends here is gone. Asked why it looks at that at
    // once, and at the page in its time: rates are of an interval at least.
    let (asks, asked) = channel::<bool>();
    let watch = move || {
        let (mut is_why, mut is_due) = (false, true);
        while give.send(Looked::at(&address, is_due, is_why)).is_ok() {
            match asked.recv_timeout(interval) {
                Ok(is_asked) => (is_why, is_due) = (is_asked, false),
                Err(RecvTimeoutError::Timeout) => is_due = true,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    std::thread::Builder::new().name("looks".into()).spawn(watch).map_err(|e| no_thread(&e))?;
    // Taking the terminal has several steps, of which any may fail. Where there is a panic
    // it is given back, too.
    let _borrowed = Borrowed;
    let mut terminal = ratatui::try_init().map_err(|e| Error::system("use the terminal", &e))?;
    let state = State { address: args.address.to_string(), ..State::default() };
    let shown = go_on(&mut terminal, state, (&asks, &looks), &ends);
    // Not by its end, which panics where standard error is gone with the terminal.
    let _ = terminal.show_cursor();
    std::mem::forget(terminal);
    shown.map_err(|e| Error::system("use the terminal", &e))
}

fn go_on(
    terminal: &mut DefaultTerminal,
    mut state: State,
    (asks, looks): (&Sender<bool>, &Receiver<Looked>),
    ends: &AtomicBool,
) -> std::io::Result<()> {
    let mut before = Before::default();
    while !ends.load(Ordering::Relaxed) {
        match looks.try_recv() {
            Ok(look) => take(look, &mut before, &mut state),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => state.gone = Some("nobody looks any more".into()),
        }
        let mut most = 0;
        terminal.draw(|frame| most = draw(frame, &state))?;
        state.scroll = state.scroll.min(most);
        let was_why = state.is_why;
        if is_gone()? {
            break;
        }
        if event::poll(Duration::ZERO)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && press(key, &mut state)
        {
            break;
        }
        if state.is_why != was_why {
            // Where nobody looks any more that is told above.
            let _ = asks.send(state.is_why);
        }
    }
    Ok(())
}

/// Waits a beat for a key. Whether the terminal is there no more is asked here, as
/// `event::poll` reads the end of one that is gone for ever.
fn is_gone() -> std::io::Result<bool> {
    let keys = stdin();
    let mut fds = [PollFd::new(&keys, PollFlags::IN)];
    let beat = Timespec { tv_sec: 0, tv_nsec: BEAT.subsec_nanos().into() };
    match poll(&mut fds, Some(&beat)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

/// A look at the server: its page where that is due, and what there is to explain where
/// somebody asks; or why it was none.
struct Looked {
    page: Option<Result<Scrape, String>>,
    why: Option<Result<Look, String>>,
}

impl Looked {
    fn at(address: &Address, is_due: bool, is_why: bool) -> Looked {
        let page = is_due.then(|| look(address));
        let is_there = !page.as_ref().is_some_and(Result::is_err);
        let why = (is_why && is_there).then(|| Look::at(address));
        Looked { page, why }
    }
}

/// What a look is compared with: the one before it.
#[derive(Default)]
struct Before {
    page: Option<Scrape>,
    why: Option<Look>,
}

/// Takes a look. What is paused stays; the next look is compared with this one.
fn take(look: Looked, before: &mut Before, state: &mut State) {
    match look.page {
        None => {}
        Some(Ok(page)) => {
            if !state.is_paused {
                state.figures = Some(Figures::between(before.page.as_ref(), &page));
            }
            (before.page, state.gone) = (Some(page), None);
        }
        Some(Err(why)) => state.gone = Some(why),
    }
    let why = match look.why {
        None => return before.why = None,
        Some(Err(why)) => {
            before.why = None;
            Some(Err(why))
        }
        Some(Ok(look)) => {
            let between = before.why.as_ref().and_then(|then| Between::looks(then, &look));
            before.why = Some(look);
            between.map(Ok)
        }
    };
    if !state.is_paused {
        state.why = why;
    }
}

/// What a key does. Lists that it moves too far are moved back when they are drawn. True
/// when it ends all.
fn press(key: KeyEvent, state: &mut State) -> bool {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if with_control => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('p' | ' ') => state.is_paused = !state.is_paused,
        KeyCode::Char('w') => {
            (state.is_why, state.scroll) = (!state.is_why, 0);
            // What is paused stays.
            state.why = state.why.take().filter(|_| state.is_paused);
        }
        KeyCode::Up => state.scroll = state.scroll.saturating_sub(1),
        KeyCode::Down => state.scroll = state.scroll.saturating_add(1),
        KeyCode::PageUp => state.scroll = state.scroll.saturating_sub(PAGE),
        KeyCode::PageDown => state.scroll = state.scroll.saturating_add(PAGE),
        KeyCode::Home => state.scroll = 0,
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_pause_move_and_end() {
        let mut state = State::default();
        let press = |code, state: &mut State| press(KeyEvent::from(code), state);
        assert!(!press(KeyCode::Char('p'), &mut state) && state.is_paused);
        (0..9).for_each(|_| _ = press(KeyCode::Down, &mut state));
        assert_eq!(state.scroll, 9);
        press(KeyCode::PageUp, &mut state);
        assert!(state.scroll == 0 && !press(KeyCode::Up, &mut state));
        assert!(press(KeyCode::Char('q'), &mut state) && press(KeyCode::Esc, &mut state));
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(super::press(control, &mut state) && !press(KeyCode::Char('c'), &mut state));
    }

    /// What is paused stays, and a server that comes back is looked at again.
    #[test]
    fn looks_are_taken_unless_paused() {
        let page = |uptime: u32| Scrape::read(&format!("ssdkit_uptime_seconds {uptime}\n"));
        let (mut state, mut before) = (State::default(), Before::default());
        let page =
            |uptime| Looked { page: Some(page(uptime).map_err(|e| e.to_string())), why: None };
        take(page(3), &mut before, &mut state);
        take(Looked { page: Some(Err("gone".into())), why: None }, &mut before, &mut state);
        assert_eq!(state.gone.as_deref(), Some("gone"));
        state.is_paused = true;
        take(page(5), &mut before, &mut state);
        assert!(state.gone.is_none());
        let uptime = |state: &State| state.figures.as_ref().unwrap().uptime;
        assert_eq!(uptime(&state), 3.0);
        state.is_paused = false;
        take(page(7), &mut before, &mut state);
        let seconds = |state: &State| state.figures.as_ref().unwrap().seconds;
        assert_eq!((uptime(&state), seconds(&state)), (7.0, 2.0));
        // A look at why is none at the page.
        take(Looked { page: None, why: None }, &mut before, &mut state);
        take(page(9), &mut before, &mut state);
        assert_eq!((uptime(&state), seconds(&state)), (9.0, 2.0));
    }

    /// Asked why, two looks are compared, of one server; while it is paused none are shown.
    #[test]
    fn why_is_of_the_time_between_two_looks() {
        let (mut state, mut before) = (State::default(), Before::default());
        press(KeyEvent::from(KeyCode::Char('w')), &mut state);
        assert!(state.is_why);
        let [first, second] = crate::explained::tests::looks();
        let mut take = |why: Result<&Look, &str>, state: &mut State| {
            let why = Some(why.cloned().map_err(String::from));
            take(Looked { page: Some(Ok(Scrape::default())), why }, &mut before, state);
            state.why.as_ref().map(Result::is_ok)
        };
        assert_eq!(take(Ok(&first), &mut state), None);
        assert_eq!(take(Ok(&second), &mut state), Some(true));
        assert_eq!(take(Ok(&first), &mut state), None, "another server");
        assert_eq!(take(Err("cannot tell"), &mut state), Some(false));
        state.is_paused = true;
        assert_eq!(take(Ok(&first), &mut state), Some(false));
        state.is_paused = false;
        assert_eq!(take(Ok(&second), &mut state), Some(true));
        press(KeyEvent::from(KeyCode::Char('w')), &mut state);
        assert!(!state.is_why && state.why.is_none());
        // What is paused is there again.
        press(KeyEvent::from(KeyCode::Char('w')), &mut state);
        assert_eq!(
            (take(Ok(&first), &mut state), take(Ok(&second), &mut state)),
            (None, Some(true))
        );
        for key in ['p', 'w', 'w'] {
            press(KeyEvent::from(KeyCode::Char(key)), &mut state);
        }
        assert!(state.is_why && state.is_paused && state.why.is_some());
    }
}
