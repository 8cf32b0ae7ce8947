//! Operations by chance, of which most can be carried out.

use files::{Inode, Kind, Operation, WriteBack};

use crate::model::{Model, What};

/// What to do, in numbers that mean something to whoever knows what files there are.
pub type Step = (u8, u16, u16, u32);

/// What is done next.
pub enum Next {
    Operation(Operation),
    WriteBack(WriteBack),
    Cut,
}

fn pick<T: Copy>(all: &[T], by: u16) -> Option<T> {
    (!all.is_empty()).then(|| all[usize::from(by) % all.len()])
}

/// Bytes that no other operation writes.
fn bytes(now: usize, len: usize) -> Vec<u8> {
    let tag = (now as u32 + 1).wrapping_mul(0x9e37_79b1).to_le_bytes();
    (0..len).map(|n| tag[n % 4] ^ (n >> 2) as u8).collect()
}

fn name(by: u32) -> Vec<u8> {
    let by = by % 9;
    match by {
        7 => vec![b'l'; 200],
        8 => vec![b'm'; 255],
        by => format!("n{by}").into_bytes(),
    }
}

/// What a step means with these files, of which operation `now` is the next.
pub fn next(model: &mut Model, (what, a, b, c): Step, now: usize) -> Option<Next> {
    let folders: Vec<u64> = of(model, |node| matches!(node.what, What::Folder(_)));
    let linked: Vec<u64> =
        folders.iter().copied().filter(|inode| model.nodes[inode].links > 0).collect();
    let files: Vec<u64> = of(model, |node| matches!(node.what, What::File(_)));
    let folder = Inode(pick(&linked, a)?);
    let file = pick(&files, a).map(Inode);
    let (new, names) = (Inode(now as u64 + 2), model.folder(folder).clone());
    let old: Vec<&Vec<u8>> = names.keys().collect();
    let old = pick(&old, b).cloned();
    let offset = u64::from(c % 9) * 4096 + u64::from(c >> 8) % 3 * 777;
    let len = u64::from(b) % 9000 + u64::from(c >> 16 & 1) * u64::from(b % 4) * 4096;
    let operation = match what % 42 {
        0..=4 => {
            let kind = match b % 8 {
                0 | 1 => Kind::Folder,
                2 => Kind::Link(bytes(now, 1 + c as usize % 1500)),
                _ => Kind::File,
            };
            let name = name(c);
            if names.contains_key(&name) {
                return None;
            }
            Operation::Create { parent: folder, name, inode: new, kind, mode: a & 0o777 }
        }
        5 => {
            let name = name(c);
            if names.contains_key(&name) || model.node(file?).links == 0 {
                return None;
            }
            Operation::Link { parent: folder, name, inode: file? }
        }
        6 | 7 => {
            let inode = names[&old.clone()?];
            if matches!(&model.nodes[&inode].what, What::Folder(names) if !names.is_empty()) {
                return None;
            }
            Operation::Remove { parent: folder, name: old? }
        }
        8 | 9 => {
            let gone = of(model, |node| node.links == 0);
            Operation::Forget { inode: Inode(pick(&gone, a)?) }
        }
        10..=13 => {
            let to = Inode(pick(&linked, c as u16)?);
            rename(model, (folder, old?), (to, name(c >> 8)), c & 3 == 0)?
        }
        14..=22 => Operation::Write { inode: file?, offset, data: bytes(now, len as usize) },
        23 | 24 => Operation::Truncate { inode: file?, size: if b % 3 == 0 { 0 } else { offset } },
        25 => Operation::Allocate { inode: file?, offset, len, keep_size: c & 1 == 0 },
        26 => Operation::Punch { inode: file?, offset, len },
        27 => Operation::Mode { inode: file?, mode: b & 0o777 },
        28..=30 => Operation::Sync { inode: file?, data: c & 1 == 0 },
        31 => Operation::Sync { inode: folder, data: false },
        32 => Operation::SyncAll,
        33 | 34 => {
            let (inode, first, count) = (file?, c % 9, 1 + u32::from(b % 4));
            return Some(Next::WriteBack(WriteBack::Pages { inode, first, count }));
        }
        35 => {
            let (inode, first, count) = (file?, c % 9, 1 + u32::from(b % 4));
            return Some(Next::WriteBack(WriteBack::Allocate { inode, first, count }));
        }
        36 | 37 => return Some(Next::WriteBack(WriteBack::Commit)),
        38 => return Some(Next::WriteBack(WriteBack::Checkpoint)),
        _ => return Some(Next::Cut),
    };
    Some(Next::Operation(operation))
}

fn of(model: &Model, is: impl Fn(&crate::model::Node) -> bool) -> Vec<u64> {
    model.nodes.iter().filter(|(_, node)| is(node)).map(|(&inode, _)| inode).collect()
}

/// A rename that a kernel would carry out.
fn rename(
    model: &mut Model,
    from: (Inode, Vec<u8>),
    to: (Inode, Vec<u8>),
    exchange: bool,
) -> Option<Operation> {
    let moved = model.folder(from.0)[&from.1];
    let target = model.folder(to.0).get(&to.1).copied();
    let is_folder = |inode: u64| matches!(model.nodes[&inode].what, What::Folder(_));
    if exchange {
        target?;
    }
    let fits = match target {
        Some(target) if !exchange && target != moved => {
            let is_empty =
                !matches!(&model.nodes[&target].what, What::Folder(names) if !names.is_empty());
            is_empty && is_folder(target) == is_folder(moved)
        }
        _ => true,
    };
    let loops = is_in(model, moved, to.0.0)
        || exchange && target.is_some_and(|target| is_in(model, target, from.0.0));
    (fits && !loops).then_some(Operation::Rename { from, to, exchange })
}

/// Whether a folder is the other, or in it.
fn is_in(model: &Model, folder: u64, other: u64) -> bool {
    if folder == other {
        return true;
    }
    match &model.nodes[&folder].what {
        What::Folder(names) => names.values().any(|&inode| is_in(model, inode, other)),
        _ => false,
    }
}
