//! Files that are mapped shared into memory of the program, where it may write: what it changes
//! there no call tells. It is found by digests of the pages as they were told last, and told page
//! by page when something asks for it: a sync of the file, `munmap`, the end of a process. Only
//! pages that were mapped so that they could be written are looked at, and none any more when no
//! process has the file mapped.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::os::fd::OwnedFd;

use files::{Inode, Operation};
use rustix::fs::{Mode, OFlags, SeekFrom, fstat, open, seek};
use rustix::io::{Errno, pread};
use xxhash_rust::xxh3::xxh3_64;

use crate::memory::{self, Area, Name};
use crate::path;

const PAGE: u64 = 4096;
/// Pages whose digests lie together, and that are read at once.
const GROUP: u64 = 64;

/// The page is zeros, or nothing was told of it.
const ZEROS: u64 = 0;
/// A write has changed the page since it was told, or it was told in vain, and so it may hold more
/// than was told.
const UNKNOWN: u64 = 1;

fn digest(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) { ZEROS } else { xxh3_64(bytes).max(2) }
}

/// What was told of a file's pages.
struct Told {
    file: OwnedFd,
    name: Name,
    /// Pages that are looked at: in order, and apart.
    looked_at: Vec<Range<u64>>,
    digests: HashMap<u64, Box<[u64; GROUP as usize]>>,
    /// Processes that had it mapped when it was looked last.
    processes: BTreeSet<u32>,
}

/// Of each such file what was told.
#[derive(Default)]
pub(crate) struct Mappings {
    files: HashMap<Inode, Told>,
}

impl Mappings {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether something of the file may have changed untold.
    pub fn looks_at(&self, inode: Inode) -> bool {
        self.files.get(&inode).is_some_and(|told| !told.looked_at.is_empty())
    }

    /// A process maps the file, which is open for reading. It may come to write there.
    pub fn open(&mut self, inode: Inode, file: &OwnedFd, process: u32) -> Result<(), Errno> {
        if let Some(told) = self.files.get_mut(&inode) {
            told.processes.insert(process);
            return Ok(());
        }
        // Opened anew: locks belong to the program's open file and must not outlive it.
        let file = open(path::of_open(file), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let name = Name::of(&file).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let (looked_at, digests) = (Vec::new(), HashMap::new());
        let told = Told { file, name, looked_at, digests, processes: [process].into() };
        self.files.insert(inode, told);
        Ok(())
    }

    /// From now on what changes in these pages of the file is found.
    pub fn track(&mut self, inode: Inode, pages: Range<u64>, process: u32) -> Result<(), Errno> {
        let Some(told) = self.files.get_mut(&inode) else { return Ok(()) };
        told.processes.insert(process);
        for new in told.add(pages) {
            let Told { file, digests, .. } = told;
            each_page(file, new, &mut |page, bytes| set(digests, page, digest(bytes)))?;
        }
        Ok(())
    }

    /// An operation on the file was told.
    pub fn told(&mut self, operation: &Operation) {
        if self.files.is_empty() {
            return;
        }
        match *operation {
            Operation::Write { inode, offset, ref data } => {
                let page = |at: u64| digest(&data[(at - offset) as usize..][..PAGE as usize]);
                self.written(inode, offset, offset + data.len() as u64, &page);
            }
            Operation::Punch { inode, offset, len } => {
                let end = offset + len;
                self.written(inode, offset, end, &|_| ZEROS);
            }
            Operation::Truncate { inode, size } => {
                self.zeros(inode, size.div_ceil(PAGE));
                self.written(inode, size, size + 1, &|_| UNKNOWN);
            }
            Operation::Forget { inode } => {
                self.files.remove(&inode);
            }
            _ => {}
        }
    }

    /// Of whole pages it is known what was told: `whole`, by where they begin.
    fn written(&mut self, inode: Inode, from: u64, to: u64, whole: &dyn Fn(u64) -> u64) {
        let Some(told) = self.files.get_mut(&inode) else { return };
        for page in told.looked_at_of(from / PAGE..to.div_ceil(PAGE)) {
            let at = page * PAGE;
            let is_whole = from <= at && at + PAGE <= to;
            set(&mut told.digests, page, if is_whole { whole(at) } else { UNKNOWN });
        }
    }

    /// From that page on all are zeros.
    fn zeros(&mut self, inode: Inode, first: u64) {
        let Some(told) = self.files.get_mut(&inode) else { return };
        told.digests.retain(|group, digests| {
            let from = first.saturating_sub(group * GROUP).min(GROUP);
            digests[from as usize..].fill(ZEROS);
            from > 0
        });
    }

    /// Which files there are, in the order of their numbers.
    pub fn all(&self) -> Vec<Inode> {
        let mut all: Vec<Inode> = self.files.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Which files, and what of them, a process has in these areas, in the order of their numbers.
    pub fn inside(&self, areas: &[Area]) -> Vec<(Inode, Range<u64>)> {
        // All that have the name: of which it is nobody says.
        let of = |area: &Area| {
            let (name, pages) = (area.name, area.pages.clone());
            let files = self.files.iter().filter(move |it| it.1.name == name);
            files.map(move |it| (*it.0, pages.clone()))
        };
        let mut all: Vec<(Inode, Range<u64>)> = areas.iter().flat_map(of).collect();
        all.sort_unstable_by_key(|it| (it.0, it.1.start));
        // What lies in memory twice is looked at once.
        all.dedup_by(|next, before| {
            let is_one = next.0 == before.0 && next.1.start <= before.1.end;
            before.1.end = if is_one { before.1.end.max(next.1.end) } else { before.1.end };
            is_one
        });
        all
    }

    /// Whether a process has it mapped. Who did last is looked at first.
    pub fn is_mapped(&mut self, inode: Inode) -> bool {
        let Some(told) = self.files.get_mut(&inode) else { return false };
        let name = told.name;
        told.processes.retain(|&process| memory::may_map(process, name));
        if told.processes.is_empty() {
            match memory::who_may_map(name) {
                Ok(processes) => told.processes = processes,
                Err(_) => return true,
            }
        }
        !told.processes.is_empty()
    }

    /// How many files are held.
    pub fn held(&self) -> usize {
        self.files.len()
    }

    /// Nobody can change it any more, and all changes were told.
    pub fn close(&mut self, inode: Inode) {
        self.files.remove(&inode);
    }

    /// Tells what has changed in these pages of the file since it was told, as writes. What is
    /// refused is told again the next time.
    pub fn changes(
        &mut self,
        inode: Inode,
        pages: Range<u64>,
        tell: &mut dyn FnMut(Operation) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(told) = self.files.get_mut(&inode) else { return Ok(()) };
        let looked_at: Vec<Range<u64>> =
            told.looked_at.iter().map(|it| both(it, &pages)).filter(|it| !it.is_empty()).collect();
        let Told { file, digests, .. } = told;
        for pages in looked_at {
            each_page(file, pages, &mut |page, bytes| {
                let now = digest(bytes);
                if get(digests, page) == now {
                    return;
                }
                let data = bytes.to_vec();
                let told = tell(Operation::Write { inode, offset: page * PAGE, data });
                set(digests, page, told.map_or(UNKNOWN, |()| now));
            })?;
        }
        Ok(())
    }
}

fn both(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

type Digests = HashMap<u64, Box<[u64; GROUP as usize]>>;

fn get(digests: &Digests, page: u64) -> u64 {
    digests.get(&(page / GROUP)).map_or(ZEROS, |group| group[(page % GROUP) as usize])
}

fn set(digests: &mut Digests, page: u64, value: u64) {
    let group = digests.entry(page / GROUP).or_insert_with(|| Box::new([ZEROS; GROUP as usize]));
    group[(page % GROUP) as usize] = value;
}

impl Told {
    /// Those of these pages that are looked at.
    fn looked_at_of(&self, pages: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let parts: Vec<Range<u64>> =
            self.looked_at.iter().map(|it| both(it, &pages)).filter(|it| !it.is_empty()).collect();
        parts.into_iter().flatten()
    }

    /// These pages are looked at from now on; those that were not before.
    fn add(&mut self, pages: Range<u64>) -> Vec<Range<u64>> {
        let (mut new, mut at) = (Vec::new(), pages.start);
        for there in &self.looked_at {
            new.push(both(&(at..there.start), &pages));
            at = at.max(there.end);
        }
        new.push(at..pages.end);
        new.retain(|it| !it.is_empty());
        self.looked_at.extend(new.iter().cloned());
        self.looked_at.sort_unstable_by_key(|it| it.start);
        self.looked_at.dedup_by(|next, before| {
            let is_one = before.end == next.start;
            before.end = if is_one { next.end } else { before.end };
            is_one
        });
        new
    }
}

/// Goes through those of these pages of a file that are not holes; more may come.
fn each_page(
    file: &OwnedFd,
    pages: Range<u64>,
    each: &mut dyn FnMut(u64, &[u8]),
) -> Result<(), Errno> {
    let end = (fstat(file)?.st_size as u64).min(pages.end.saturating_mul(PAGE));
    let together = (pages.end - pages.start).min(GROUP);
    let mut buffer = vec![0; (together * PAGE) as usize];
    let mut at = pages.start.saturating_mul(PAGE);
    // To ask where the next hole is takes as long as there are pages before it.
    while at < end {
        at = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            other => other? / PAGE * PAGE,
        };
        let most = end.saturating_sub(at).min(buffer.len() as u64) as usize;
        let got = pread(file, &mut buffer[..most], at)?;
        if got == 0 {
            break;
        }
        for (n, bytes) in buffer[..got].chunks(PAGE as usize).enumerate() {
            each(at / PAGE + n as u64, bytes);
        }
        at = (at + got as u64).div_ceil(PAGE) * PAGE;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_added_once() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let (name, digests, processes) =
            (Name::of(&file).unwrap(), HashMap::new(), BTreeSet::new());
        let mut told = Told { file, name, looked_at: Vec::new(), digests, processes };
        let ranges = |numbers: &[(u64, u64)]| -> Vec<Range<u64>> {
            numbers.iter().map(|it| it.0..it.1).collect()
        };
        type Pairs = &'static [(u64, u64)];
        let steps: [(Range<u64>, Pairs, Pairs); 6] = [
            (10..20, &[(10, 20)], &[(10, 20)]),
            (12..18, &[], &[(10, 20)]),
            (30..40, &[(30, 40)], &[(10, 20), (30, 40)]),
            (5..35, &[(5, 10), (20, 30)], &[(5, 40)]),
            (0..2, &[(0, 2)], &[(0, 2), (5, 40)]),
            (0..50, &[(2, 5), (40, 50)], &[(0, 50)]),
        ];
        for (pages, new, all) in steps {
            assert_eq!(told.add(pages), ranges(new));
            assert_eq!(told.looked_at, ranges(all));
        }
        assert_eq!(told.looked_at_of(48..60).collect::<Vec<u64>>(), [48, 49]);
    }
}
