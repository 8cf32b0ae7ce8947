//! Calls that wait for what the drive has under way: for reads, which several calls may wait for,
//! or for their turn. Each has a ticket, and ends once. As many are open as the program has
//! threads. It looks at no clock.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

use files::Inode;
use interpose::Errno;

/// A call that waits.
struct Wait {
    /// Reads that it waits for.
    left: usize,
    /// Pages that it wants, where it has not asked for them alone.
    wanted: Option<(Inode, Range<u64>)>,
    over: Over,
}

/// A call to which a read failed that was for more than its own pages: those may be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    pub ticket: u64,
    pub inode: Inode,
    pub wanted: Range<u64>,
    pub error: Errno,
}

/// A call that waits no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// By which its answer is known.
    pub ticket: u64,
    /// Of which kind the call is, and since when it waited.
    pub kind: usize,
    pub since: Instant,
    pub error: Option<Errno>,
}

/// Pages of a file that a read brings.
struct Read {
    inode: Inode,
    pages: Vec<Range<u64>>,
    tickets: Vec<u64>,
}

/// Pages of a file that were not read.
type Lost = (Inode, Vec<Range<u64>>);

/// Who waits.
#[derive(Default)]
pub struct Waits {
    next: u64,
    open: HashMap<u64, Wait>,
    reads: HashMap<u64, Read>,
    /// Which read brings a page.
    coming: HashMap<(Inode, u64), u64>,
    over: VecDeque<Over>,
    /// Those that are over at a time, in its order.
    due: VecDeque<(Instant, u64, Option<Errno>)>,
}

impl Waits {
    /// Whether nobody waits, and nothing is under way that others could come to wait for.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.reads.is_empty() && self.over.is_empty() && self.due.is_empty()
    }

    /// A call begins to wait for that many reads, or for [`Waits::end_at`]; its ticket.
    pub fn open(&mut self, kind: usize, since: Instant) -> u64 {
        self.next += 1;
        let ticket = self.next;
        let over = Over { ticket, kind, since, error: None };
        self.open.insert(ticket, Wait { left: 0, wanted: None, over });
        ticket
    }

    /// It wants these pages of all that its reads bring.
    pub fn wants(&mut self, ticket: u64, inode: Inode, wanted: Range<u64>) {
        self.open.get_mut(&ticket).expect("it is open").wanted = Some((inode, wanted));
    }

    /// It waits for these reads, some at least.
    pub fn wait_for(&mut self, ticket: u64, reads: &[u64]) {
        for read in reads {
            if let Some(read) = self.reads.get_mut(read) {
                read.tickets.push(ticket);
                self.open.get_mut(&ticket).expect("it is open").left += 1;
            }
        }
    }

    /// A read was begun, which brings these pages into memory, or none.
    pub fn begun(&mut self, read: u64, inode: Inode, pages: Vec<Range<u64>>) {
        for page in pages.iter().cloned().flatten() {
            self.coming.insert((inode, page), read);
        }
        self.reads.insert(read, Read { inode, pages, tickets: Vec::new() });
    }

    /// The reads that bring some of these pages.
    pub fn coming(&self, inode: Inode, pages: Range<u64>) -> Vec<u64> {
        if self.coming.is_empty() {
            return Vec::new();
        }
        let mut reads: Vec<u64> =
            pages.filter_map(|page| self.coming.get(&(inode, page)).copied()).collect();
        reads.dedup();
        reads
    }

    /// A read is over. If it failed: the pages that it did not bring, and who may ask again for
    /// its own, and is to be told the end of that by [`Waits::asked_again`].
    pub fn read_over(&mut self, read: u64, error: Option<Errno>) -> (Option<Lost>, Vec<Again>) {
        let Some(Read { inode, pages, tickets }) = self.reads.remove(&read) else {
            return (None, Vec::new());
        };
        for page in pages.iter().cloned().flatten() {
            self.coming.remove(&(inode, page));
        }
        let mut again = Vec::new();
        for ticket in tickets {
            let Some(wait) = self.open.get_mut(&ticket) else { continue };
            match (error, wait.wanted.take_if(|_| error.is_some())) {
                (Some(error), Some((inode, wanted))) => {
                    again.push(Again { ticket, inode, wanted, error });
                }
                _ => self.one_over(ticket, error),
            }
        }
        (error.map(|_| (inode, pages)), again)
    }

    /// Who asked again waits for these reads now; without any, it is told the error.
    pub fn asked_again(&mut self, again: &Again, reads: &[u64]) {
        self.wait_for(again.ticket, reads);
        self.one_over(again.ticket, reads.is_empty().then_some(again.error));
    }

    fn one_over(&mut self, ticket: u64, error: Option<Errno>) {
        let Some(wait) = self.open.get_mut(&ticket) else { return };
        wait.left -= 1;
        wait.over.error = wait.over.error.or(error);
        if wait.left == 0 {
            self.over.extend(self.open.remove(&ticket).map(|it| it.over));
        }
    }

    /// The call is over then. Times never go back.
    pub fn end_at(&mut self, ticket: u64, at: Instant, error: Option<Errno>) {
        self.due.push_back((at, ticket, error));
    }

    /// The call is over.
    pub fn end(&mut self, ticket: u64, error: Option<Errno>) {
        let over = self.open.remove(&ticket).map(|it| it.over);
        self.over.extend(over.map(|it| Over { error, ..it }));
    }

    /// The next call that is over.
    pub fn next(&mut self, now: Instant) -> Option<Over> {
        if let Some((_, ticket, error)) = self.due.pop_front_if(|it| it.0 <= now) {
            self.end(ticket, error);
        }
        self.over.pop_front()
    }

    /// When the next is over of those whose time is known.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.front().map(|it| it.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_waits_for_several_reads_ends_with_the_last() {
        let (mut waits, now, inode) = (Waits::default(), Instant::now(), Inode(7));
        waits.begun(1, inode, vec![0..4, 8..9]);
        waits.begun(2, inode, vec![4..6, 6..8]);
        assert_eq!(waits.coming(inode, 3..5), [1, 2]);
        assert!(waits.coming(Inode(8), 3..5).is_empty());
        let (both, one) = (waits.open(0, now), waits.open(1, now));
        waits.wait_for(both, &[1, 2]);
        waits.wait_for(one, &[2]);
        let lost = Some((inode, vec![0..4, 8..9]));
        assert_eq!(waits.read_over(1, Some(Errno::IO)), (lost, vec![]));
        assert_eq!((waits.next(now), waits.coming(inode, 3..5)), (None, vec![2]));
        assert_eq!(waits.read_over(2, None), (None, vec![]));
        let over = Over { ticket: both, kind: 0, since: now, error: Some(Errno::IO) };
        assert_eq!(waits.next(now), Some(over));
        assert_eq!(waits.next(now), Some(Over { ticket: one, kind: 1, since: now, error: None }));
        let later = waits.open(2, now);
        let at = now + Duration::from_secs(1);
        waits.end_at(later, at, None);
        assert_eq!((waits.next(now), waits.next_due()), (None, Some(at)));
        assert_eq!(waits.next(at).map(|it| it.ticket), Some(later));
        // Of a read that failed each asks again for its own pages, once.
        waits.begun(3, inode, vec![0..20, 20..40]);
        let own = waits.open(1, now);
        waits.wants(own, inode, 30..31);
        waits.wait_for(own, &[3]);
        let again = Again { ticket: own, inode, wanted: 30..31, error: Errno::IO };
        let lost = Some((inode, vec![0..20, 20..40]));
        assert_eq!(waits.read_over(3, Some(Errno::IO)), (lost, vec![again.clone()]));
        waits.begun(4, inode, vec![30..31, 35..36]);
        waits.asked_again(&again, &[4]);
        assert_eq!(waits.next(now), None);
        assert_eq!(waits.read_over(4, Some(Errno::IO)).1, []);
        assert_eq!(waits.next(now).map(|it| (it.ticket, it.error)), Some((own, Some(Errno::IO))));
        assert!(waits.open.is_empty() && waits.reads.is_empty() && waits.coming.is_empty());
    }
}
