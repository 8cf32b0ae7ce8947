//! What is exported, which may change while it is served.
//!
//! Guarantees: a client is served what is exported when its requests begin; when a part of
//! the drive is exported no more, no further request to it is heard, those that were
//! received are answered, and the connection ends. Nothing fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, shutdown};

use super::budget::Member;
use super::session::Export;

/// What is exported now, and who uses parts of it.
#[derive(Debug)]
pub struct Exports {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    export: Arc<Export>,
    /// Connections to parts, each with its number and the part's name.
    inside: Vec<(u64, String, Arc<Member>)>,
    next: u64,
}

impl Exports {
    /// This, until it is replaced.
    pub fn new(export: Export) -> Exports {
        let state = State { export: Arc::new(export), inside: Vec::new(), next: 0 };
        Exports { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under this lock can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is exported to who comes now.
    pub(super) fn now(&self) -> Arc<Export> {
        Arc::clone(&self.state().export)
    }

    /// A client begins with what it was told of; nothing where that is not exported any more.
    pub(super) fn enter(&self, export: &Export, member: Arc<Member>) -> Option<Inside<'_>> {
        let mut state = self.state();
        if !state.export.has(export) {
            return None;
        }
        let number = state.next;
        state.next += 1;
        if export.is_part() {
            state.inside.push((number, export.name().to_string(), member));
        }
        Some(Inside { exports: self, number })
    }

    /// From now on this is exported. Connections to parts that it does not have end when what
    /// was received of them is answered.
    pub fn replace(&self, export: Export) {
        let mut state = self.state();
        state.export = Arc::new(export);
        let now = Arc::clone(&state.export);
        for (_, name, member) in &state.inside {
            if !now.names().any(|its| its == name) {
                shut(member, Shutdown::Read);
            }
        }
    }

    /// Connections to a part.
    pub fn connections(&self, name: &str) -> usize {
        self.state().inside.iter().filter(|(_, its, _)| its == name).count()
    }

    /// Ends the connections to a part, whatever is under way.
    pub fn close(&self, name: &str) {
        for (_, its, member) in &self.state().inside {
            if its == name {
                shut(member, Shutdown::Both);
            }
        }
    }
}

fn shut(member: &Member, how: Shutdown) {
    // It may be closed by the client already.
    let _ = shutdown(member, how);
}

/// A connection to what is exported, as long as this is there.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    exports: &'a Exports,
    number: u64,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.exports.state().inside.retain(|(number, ..)| *number != self.number);
    }
}
