//! The terminal of `ssdkit top`: keys, signals, and a thread that looks at the server.
//!
//! Guarantees: the terminal is restored however this ends. Fails when there is none, or
//! the system gives no thread.

use std::io::{IsTerminal, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel, sync_channel};
use std::time::Duration;

use drive::error::Error;
use load::signals::asking;
use load::threads::no_thread;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::TopArgs;
use super::figures::Figures;
use super::view::{State, draw};
use crate::client::look;
use crate::scrape::Scrape;

/// How soon keys and signals are seen.
const BEAT: Duration = Duration::from_millis(100);
/// Lines that a page key moves lists.
const PAGE: usize = 10;

/// The terminal is given back when this is dropped.
struct Borrowed;

impl Drop for Borrowed {
    fn drop(&mut self) {
        ratatui::restore();
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
    // The thread ends when one of the two ends here is gone.
    let (_running, ended) = channel::<()>();
    let watch = move || {
        while give.send(look(&address)).is_ok() {
            if ended.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("looks".into()).spawn(watch).map_err(|e| no_thread(&e))?;
    // Taking the terminal has several steps, of which any may fail. Where there is a panic
    // it is given back, too.
    let _borrowed = Borrowed;
    let terminal = ratatui::try_init().map_err(|e| Error::system("use the terminal", &e))?;
    let state = State { address: args.address.to_string(), ..State::default() };
    go_on(terminal, state, &looks, &ends).map_err(|e| Error::system("use the terminal", &e))
}

fn go_on(
    mut terminal: DefaultTerminal,
    mut state: State,
    looks: &Receiver<Result<Scrape, String>>,
    ends: &AtomicBool,
) -> std::io::Result<()> {
    let mut before = None;
    while !ends.load(Ordering::Relaxed) {
        match looks.try_recv() {
            Ok(look) => take(look, &mut before, &mut state),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => state.gone = Some("nobody looks any more".into()),
        }
        let mut most = 0;
        terminal.draw(|frame| most = draw(frame, &state))?;
        state.scroll = state.scroll.min(most);
        if event::poll(BEAT)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && press(key, &mut state)
        {
            break;
        }
    }
    Ok(())
}

/// A look at the server, or why it was none.
fn take(look: Result<Scrape, String>, before: &mut Option<Scrape>, state: &mut State) {
    match look {
        // What is shown stays; the next look is compared with this one.
        Ok(page) if state.is_paused => (*before, state.gone) = (Some(page), None),
        Ok(page) => {
            state.figures = Some(Figures::between(before.as_ref(), &page));
            (*before, state.gone) = (Some(page), None);
        }
        Err(why) => state.gone = Some(why),
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
        let (mut state, mut before) = (State::default(), None);
        take(page(3).map_err(|e| e.to_string()), &mut before, &mut state);
        take(Err("gone".into()), &mut before, &mut state);
        assert_eq!(state.gone.as_deref(), Some("gone"));
        state.is_paused = true;
        take(page(5).map_err(|e| e.to_string()), &mut before, &mut state);
        assert!(state.gone.is_none());
        let uptime = |state: &State| state.figures.as_ref().unwrap().uptime;
        assert_eq!(uptime(&state), 3.0);
        state.is_paused = false;
        take(page(7).map_err(|e| e.to_string()), &mut before, &mut state);
        assert_eq!((uptime(&state), state.figures.unwrap().seconds), (7.0, 2.0));
    }
}
