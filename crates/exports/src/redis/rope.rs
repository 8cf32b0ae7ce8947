//! Bytes in pieces of a bounded length: replies, which are made, sent and
//! freed some at a time, and never moved.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::grow::grow_to;

/// Bytes of a piece. The program gives allocations of so many, one by one, back
/// to the system.
pub const PIECE: usize = 512 << 10;
/// Memory for bytes that is kept when there are none, and what is rather moved
/// than kept as a piece of its own.
const KEEP: usize = 32 << 10;
/// Pieces that there is always room for.
const FEW: usize = 8;

/// Bytes that come at one end and go at the other. Places are counted from the
/// first byte ever.
#[derive(Default)]
pub struct Rope {
    /// None is empty but the last.
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first that have gone.
    gone: usize,
    begin: u64,
    end: u64,
    /// Where something is missing that there was no memory for: the first such
    /// place.
    hole: Option<u64>,
}

impl Rope {
    /// The place of the first byte that is there.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// The place behind the last.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes are there.
    pub fn len(&self) -> usize {
        (self.end - self.begin) as usize
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        let all: usize = match self.pieces.front() {
            None => 0,
            // Mostly: it is asked with each command.
            Some(only) if self.pieces.len() == 1 => only.capacity(),
            Some(_) => self.pieces.iter().map(Vec::capacity).sum(),
        };
        all + self.pieces.capacity() * size_of::<Vec<u8>>()
    }

    /// The first bytes before a place, as far as they lie in one piece.
    pub fn first(&self, end: u64) -> &[u8] {
        let most = end.saturating_sub(self.begin) as usize;
        let Some(piece) = self.pieces.front() else { return &[] };
        &piece[self.gone..piece.len().min(self.gone.saturating_add(most))]
    }

    /// Forgets the first `n` bytes, which [`Self::first`] gave.
    pub fn take(&mut self, n: usize) {
        (self.gone, self.begin) = (self.gone + n, self.begin + n as u64);
        let Some(piece) = self.pieces.front_mut().filter(|piece| piece.len() == self.gone) else {
            return;
        };
        self.gone = 0;
        if self.begin < self.end || piece.capacity() > KEEP {
            self.pieces.pop_front();
        } else {
            piece.clear();
        }
        if self.pieces.len() <= 1 && self.pieces.capacity() > FEW {
            self.pieces.shrink_to(FEW);
        }
    }

    /// Appends bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        match self.pieces.back_mut() {
            Some(last) if bytes.len() <= last.capacity() - last.len() => {
                last.extend_from_slice(bytes);
            }
            _ => self.grow(bytes),
        }
    }

    #[cold]
    fn grow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.pieces.back().is_none_or(|last| last.len() == PIECE) {
                self.pieces.push_back(Vec::new());
            }
            let is_first = self.pieces.len() == 1;
            let Some(last) = self.pieces.back_mut() else { return };
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - last.len()));
            let len = last.len() + now.len();
            // The first doubles, up to a whole piece.
            let doubles = is_first && len <= PIECE / 2;
            let most = if doubles { len.max(2 * last.capacity()) } else { PIECE };
            if last.capacity() < len && grow_to(last, most).is_err() {
                self.end -= bytes.len() as u64;
                self.hole.get_or_insert(self.end);
                return;
            }
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Whether there was no memory for all that was put, but for what was cut off.
    pub fn is_short(&self) -> bool {
        self.hole.is_some()
    }

    /// Appends all of another, and empties that: large pieces go as they are.
    pub fn append(&mut self, other: &mut Rope) {
        let mut other = std::mem::take(other);
        while other.len() > 0 {
            let gone = std::mem::take(&mut other.gone);
            let Some(piece) = other.pieces.pop_front() else { return };
            let bytes = piece.len() - gone;
            other.begin += bytes as u64;
            if gone > 0 || bytes <= KEEP {
                self.put(&piece[gone..]);
                continue;
            }
            if self.pieces.back().is_some_and(Vec::is_empty) {
                self.pieces.pop_back();
            }
            self.pieces.push_back(piece);
            self.end += bytes as u64;
        }
    }

    /// Cuts off what is behind a place; gives the whole pieces of it.
    pub fn cut(&mut self, end: u64) -> Vec<Vec<u8>> {
        let (end, mut cut) = (end.max(self.begin), Vec::new());
        self.hole = self.hole.filter(|&hole| hole < end);
        while self.end > end
            && let Some(last) = self.pieces.back_mut()
        {
            let most = (self.end - end) as usize;
            if most < last.len() {
                last.truncate(last.len() - most);
                self.end = end;
            } else {
                self.end -= last.len() as u64;
                cut.extend(self.pieces.pop_back());
            }
        }
        cut
    }

    /// All pieces.
    pub fn into_pieces(self) -> impl Iterator<Item = Vec<u8>> {
        self.pieces.into_iter()
    }
}

impl Write for Rope {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Memory that nobody needs any more, freed some at a time.
#[derive(Default)]
pub struct Trash {
    all: VecDeque<Vec<u8>>,
    bytes: u64,
}

impl Trash {
    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes memory; what is little is freed at once.
    pub fn put(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() > KEEP {
            self.bytes += bytes.capacity() as u64;
            self.all.push_back(bytes);
        }
    }

    /// Takes several.
    pub fn put_all(&mut self, all: impl IntoIterator<Item = Vec<u8>>) {
        all.into_iter().for_each(|bytes| self.put(bytes));
    }

    /// Frees so many bytes, or what there is.
    pub fn free(&mut self, most: u64) {
        let mut left = most;
        while left > 0
            && let Some(mut first) = self.all.pop_front()
        {
            let before = first.capacity();
            if before as u64 > left {
                // Cut in its place, where the allocator can.
                first.truncate(before - left as usize);
                first.shrink_to(before - left as usize);
                self.bytes -= (before - first.capacity()) as u64;
                return self.all.push_front(first);
            }
            left -= before as u64;
            self.bytes -= before as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All of it, taken some at a time; no piece is too long.
    fn take_all(rope: &mut Rope) -> Vec<u8> {
        let mut all = Vec::new();
        while rope.len() > 0 {
            assert!(rope.pieces.iter().all(|piece| piece.capacity() <= PIECE));
            let some = rope.first(rope.begin() + 300_000).to_vec();
            assert!(!some.is_empty() && some.len() <= 300_000);
            rope.take(some.len());
            all.extend(some);
        }
        all
    }

    #[test]
    fn what_was_taken_has_no_memory() {
        let mut rope = Rope::default();
        (0..64).for_each(|_| rope.put(&[7; 1 << 20]));
        assert!(rope.memory() >= 64 << 20);
        let mut most = rope.memory();
        while rope.len() > 0 {
            rope.take(rope.first(u64::MAX).len());
            assert!(most - rope.memory() <= PIECE + 64 * size_of::<Vec<u8>>() * 2);
            most = rope.memory();
        }
        assert!(most <= KEEP + FEW * size_of::<Vec<u8>>());
    }

    /// However much there is, so much is freed at once and no more.
    #[test]
    fn trash_is_freed_some_at_a_time() {
        let mut trash = Trash::default();
        let mut rope = Rope::default();
        rope.put(&vec![1; 3 << 20]);
        trash.put_all(rope.into_pieces());
        trash.put(vec![2; 60 << 20]);
        trash.put(Vec::with_capacity(5 << 20));
        trash.put(vec![3; 100]);
        let mut left = 68 << 20;
        while left > 0 {
            assert_eq!(trash.bytes(), left);
            trash.free(4 << 20);
            left -= left.min(4 << 20);
        }
        assert_eq!((trash.bytes(), trash.all.len()), (0, 0));
        trash.free(1);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Put(usize),
        Take(usize),
        Append(usize),
        Cut(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let size = || prop_oneof![0usize..100, 10_000usize..40_000, Just(PIECE), 1usize..1_200_000];
        prop_oneof![
            4 => size().prop_map(Act::Put),
            3 => size().prop_map(Act::Take),
            2 => size().prop_map(Act::Append),
            1 => size().prop_map(Act::Cut),
        ]
    }

    /// What is missing is missing until it is cut off, whatever else is.
    #[test]
    fn a_hole_stays_until_it_is_cut_off() {
        let mut rope = Rope::default();
        rope.put(b"one");
        rope.hole = Some(rope.end());
        rope.put(b"two");
        let end = rope.end();
        rope.put(b"three");
        rope.cut(end);
        assert!(rope.is_short());
        rope.cut(3);
        assert!(!rope.is_short());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn it_is_a_line_of_bytes(acts in prop::collection::vec(act(), 1..20)) {
            let (mut rope, mut model, mut gone) = (Rope::default(), Vec::new(), 0);
            for (i, act) in acts.into_iter().enumerate() {
                let some = |n: usize| -> Vec<u8> { (0..n).map(|b| (b / 7 + i) as u8).collect() };
                match act {
                    Act::Put(n) => {
                        rope.put(&some(n));
                        model.extend(some(n));
                    }
                    Act::Take(n) => {
                        let n = rope.first(rope.begin() + n as u64).len();
                        prop_assert_eq!(rope.first(rope.begin() + n as u64), &model[..n]);
                        rope.take(n);
                        model.drain(..n);
                        gone += n as u64;
                    }
                    Act::Append(n) => {
                        let mut other = Rope::default();
                        some(n).chunks(70_000).for_each(|part| other.put(part));
                        let first = other.first(other.begin() + 3).len();
                        other.take(first);
                        rope.append(&mut other);
                        prop_assert_eq!(other.len(), 0);
                        model.extend(&some(n)[first..]);
                    }
                    Act::Cut(n) => {
                        let n = n.min(model.len());
                        let cut = rope.cut(rope.end() - n as u64);
                        prop_assert!(cut.iter().map(Vec::len).sum::<usize>() <= n + PIECE);
                        model.truncate(model.len() - n);
                    }
                }
                prop_assert_eq!((rope.begin(), rope.len()), (gone, model.len()));
            }
            prop_assert_eq!(take_all(&mut rope), model);
        }
    }
}
