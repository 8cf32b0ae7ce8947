//! A small program as what it does to its files, and how what it left is read.

use std::collections::BTreeMap;

use crash::{Event, State};
use files::{Inode, Kind, Operation};

/// A program that is written down as it runs. All of its files are in the root.
#[derive(Default)]
pub struct Program {
    pub initial: Vec<Operation>,
    pub events: Vec<Event>,
    files: BTreeMap<String, (Inode, u64)>,
    made: u64,
}

/// Bytes and mode of each file after a cut.
pub type Left = BTreeMap<String, (Vec<u8>, u16)>;

impl Program {
    fn add(&mut self, operation: Operation) {
        self.events.push(Event::Operation(operation));
    }

    fn inode(&self, name: &str) -> Inode {
        self.files[name].0
    }

    /// What was done so far was before the program, and is durable.
    pub fn begins(&mut self) {
        for event in self.events.drain(..) {
            if let Event::Operation(operation) = event {
                self.initial.push(operation);
            }
        }
    }

    pub fn create(&mut self, name: &str) {
        self.made += 1;
        let inode = Inode(1 + self.made);
        self.files.insert(name.into(), (inode, 0));
        let (parent, name) = (Inode::ROOT, name.into());
        self.add(Operation::Create { parent, name, inode, kind: Kind::File, mode: 0o644 });
    }

    pub fn write(&mut self, name: &str, offset: u64, data: &[u8]) {
        let inode = self.inode(name);
        let file = self.files.get_mut(name).unwrap();
        file.1 = file.1.max(offset + data.len() as u64);
        self.add(Operation::Write { inode, offset, data: data.to_vec() });
    }

    pub fn append(&mut self, name: &str, data: &[u8]) {
        let end = self.files[name].1;
        self.write(name, end, data);
    }

    pub fn truncate(&mut self, name: &str, size: u64) {
        let inode = self.inode(name);
        self.files.get_mut(name).unwrap().1 = size;
        self.add(Operation::Truncate { inode, size });
    }

    pub fn sync(&mut self, name: &str) {
        self.add(Operation::Sync { inode: self.inode(name), data: false });
    }

    pub fn sync_data(&mut self, name: &str) {
        self.add(Operation::Sync { inode: self.inode(name), data: true });
    }

    pub fn sync_folder(&mut self) {
        self.add(Operation::Sync { inode: Inode::ROOT, data: false });
    }

    pub fn mode(&mut self, name: &str, mode: u16) {
        self.add(Operation::Mode { inode: self.inode(name), mode });
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        let file = self.files.remove(from).unwrap();
        let old = self.files.insert(to.into(), file);
        let (from, to) = ((Inode::ROOT, from.into()), (Inode::ROOT, to.into()));
        self.add(Operation::Rename { from, to, exchange: false });
        if let Some((inode, _)) = old {
            self.add(Operation::Forget { inode });
        }
    }

    pub fn remove(&mut self, name: &str) {
        let (inode, _) = self.files.remove(name).unwrap();
        self.add(Operation::Remove { parent: Inode::ROOT, name: name.into() });
        self.add(Operation::Forget { inode });
    }

    /// Tells somebody that number `n` is done.
    pub fn say(&mut self, n: u64) {
        self.events.push(Event::Output { stream: 1, data: vec![n as u8] });
    }
}

/// The files that a cut left.
pub fn left(state: &mut State) -> Left {
    let names: Vec<(String, Inode)> = state
        .files
        .list(Inode::ROOT)
        .unwrap()
        .map(|(name, inode)| (String::from_utf8(name.to_vec()).unwrap(), inode))
        .collect();
    let read = |(name, inode): (String, Inode)| {
        let stat = state.files.stat(inode).unwrap();
        let mut bytes = vec![0; stat.size as usize];
        state.files.read(inode, 0, &mut bytes).unwrap();
        (name, (bytes, stat.mode))
    };
    names.into_iter().map(read).collect()
}
