//! What files are called at an event of a run, and events in words.

use std::collections::HashMap;

use crash::Event;
use drive::say::harmless;
use files::{Inode, Kind, Operation};

use super::lives::Recorded;

/// A folder, and a name in it.
type Place = (Inode, Vec<u8>);

/// What files are called, or were last.
#[derive(Default)]
pub struct Names {
    files: HashMap<Place, Inode>,
    places: HashMap<Inode, Place>,
}

impl Names {
    /// The names when the events before number `event` of a run have happened.
    pub fn before(run: &Recorded, events: &[Event], event: usize) -> Names {
        let mut names = Names::default();
        let done = events[..event].iter().filter_map(|event| match event {
            Event::Operation(operation) => Some(operation),
            _ => None,
        });
        run.initial.iter().chain(done).for_each(|operation| names.follow(operation));
        names
    }

    fn follow(&mut self, operation: &Operation) {
        match operation {
            Operation::Create { parent, name, inode, .. }
            | Operation::Link { parent, name, inode } => {
                self.give((*parent, name.clone()), Some(*inode));
            }
            Operation::Remove { parent, name } => {
                self.files.remove(&(*parent, name.clone()));
            }
            Operation::Rename { from, to, exchange } => {
                let (its, others) = (self.files.remove(from), self.files.remove(to));
                self.give(to.clone(), its);
                self.give(from.clone(), others.filter(|_| *exchange));
            }
            _ => {}
        }
    }

    fn give(&mut self, place: Place, inode: Option<Inode>) {
        if let Some(inode) = inode {
            self.places.insert(inode, place.clone());
            self.files.insert(place, inode);
        }
    }

    fn path(&self, parent: Inode, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        match parent {
            Inode::ROOT => name.into_owned(),
            parent => format!("{}/{name}", self.get(parent)),
        }
    }

    /// The folder that a file is in, or was last.
    pub fn folder(&self, inode: Inode) -> Option<Inode> {
        self.places.get(&inode).map(|(folder, _)| *folder)
    }

    /// What a file is called, or was last.
    pub fn get(&self, inode: Inode) -> String {
        match self.places.get(&inode) {
            _ if inode == Inode::ROOT => ".".to_owned(),
            Some((parent, name)) => self.path(*parent, name),
            None => "a file".to_owned(),
        }
    }

    /// The event that comes next, in words.
    pub fn describe(&self, event: &Event) -> String {
        let operation = match event {
            Event::Operation(operation) => operation,
            Event::Output { stream, data } => {
                let text = String::from_utf8_lossy(&data[..data.len().min(40)]);
                let to = match stream {
                    1 => "standard output".to_owned(),
                    2 => "standard error".to_owned(),
                    n => format!("stream {n}"),
                };
                return format!("{text:?} went to {to}");
            }
            Event::Mark(text) => return text.clone(),
        };
        let of = |inode: &Inode| self.get(*inode);
        harmless(&match operation {
            Operation::Create { parent, name, kind, .. } => {
                let what = match kind {
                    Kind::File => "file",
                    Kind::Folder => "folder",
                    Kind::Link(_) => "link",
                };
                format!("creating {what} {}", self.path(*parent, name))
            }
            Operation::Link { parent, name, .. } => format!("linking {}", self.path(*parent, name)),
            Operation::Remove { parent, name } => format!("removing {}", self.path(*parent, name)),
            Operation::Forget { .. } => "closing a file without a name".to_owned(),
            Operation::Rename { from, to, .. } => {
                format!("renaming {} to {}", self.path(from.0, &from.1), self.path(to.0, &to.1))
            }
            Operation::Write { inode, offset, data } => {
                format!("writing {} B at {offset} of {}", data.len(), of(inode))
            }
            Operation::Truncate { inode, size } => format!("cutting {} to {size} B", of(inode)),
            Operation::Allocate { inode, .. } => format!("allocating room of {}", of(inode)),
            Operation::Punch { inode, .. } => format!("punching a hole in {}", of(inode)),
            Operation::Mode { inode, .. } => format!("changing the mode of {}", of(inode)),
            Operation::Sync { inode, data: true } => format!("fdatasync of {}", of(inode)),
            Operation::Sync { inode, data: false } => format!("fsync of {}", of(inode)),
            Operation::SyncAll => "sync".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_that_it_has_then() {
        let at = |parent, name: &str| (Inode(parent), name.as_bytes().to_vec());
        let create = |inode, kind, (parent, name)| {
            let inode = Inode(inode);
            Event::Operation(Operation::Create { parent, name, inode, kind, mode: 0o644 })
        };
        let rename =
            |from, to, exchange| Event::Operation(Operation::Rename { from, to, exchange });
        let sync = |inode| Event::Operation(Operation::Sync { inode: Inode(inode), data: false });
        let root = Inode::ROOT.0;
        let events = [
            create(10, Kind::Folder, at(root, "d")),
            create(11, Kind::File, at(10, "new")),
            sync(11),
            rename(at(10, "new"), at(root, "log"), false),
            sync(11),
            rename(at(root, "d"), at(root, "e"), false),
            create(12, Kind::File, at(10, "f")),
            sync(12),
            rename(at(root, "log"), at(10, "f"), true),
            sync(12),
            sync(11),
        ];
        let run = Recorded {
            initial: Vec::new(),
            code: 0,
            is_over: false,
            refused: Vec::new(),
            number: 0,
        };
        let told = |n: usize| Names::before(&run, &events, n).describe(&events[n]);
        assert_eq!(told(2), "fsync of d/new");
        assert_eq!(told(3), "renaming d/new to log");
        assert_eq!(told(4), "fsync of log");
        assert_eq!(told(7), "fsync of e/f");
        assert_eq!((told(9), told(10)), ("fsync of log".into(), "fsync of e/f".into()));
    }
}
