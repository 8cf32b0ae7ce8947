//! A buffer that its owner reads while a command moves it.
//!
//! Guarantees: while the bytes are lent nobody changes them. Allocates nothing
//! and cannot fail; a wrong buffer that is given back panics.

use super::Buffer;

/// A buffer that is lent again and again: while a command moves the bytes they
/// can still be read here, and changed by nobody.
#[derive(Debug, Default)]
pub struct Lender {
    own: Buffer,
    /// The other way to the bytes, which is lent: empty while it is out. Made
    /// once, as the count of a region's buffers is shared by threads, and each
    /// change of it waits for all that the processor has still to write.
    other: Buffer,
}

impl Lender {
    /// Takes `own`, to be lent.
    pub fn new(own: Buffer) -> Lender {
        assert!(!own.shared, "lent bytes are not lent again");
        let region = own.region.clone();
        let other = Buffer { ptr: own.ptr, len: own.len, shared: true, region };
        Lender { own, other }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.own.bytes()
    }

    /// The bytes, to be changed.
    ///
    /// # Panics
    /// While they are lent.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.own.bytes_mut()
    }

    /// A second buffer over the same bytes, to be read while a command moves
    /// it. Neither can be changed until [`Lender::reclaim`].
    ///
    /// # Panics
    /// While they are lent.
    #[inline]
    pub fn lend(&mut self) -> Buffer {
        assert!(!self.own.shared, "a buffer is lent once");
        self.own.shared = true;
        std::mem::take(&mut self.other)
    }

    /// Takes back what was lent: the bytes can be changed again.
    ///
    /// # Panics
    /// When `lent` is not the whole of what was lent from here.
    #[inline]
    pub fn reclaim(&mut self, lent: Buffer) {
        let same = lent.ptr == self.own.ptr || self.own.is_empty();
        let all = same && lent.len == self.own.len;
        assert!(self.own.shared && lent.shared && all, "what was lent comes back");
        self.own.shared = false;
        // What is there is empty: nothing has to be dropped.
        std::mem::forget(std::mem::replace(&mut self.other, lent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_buffer_joins_lent_ones_only() {
        let mut all = Buffer::carve(3, 4).unwrap();
        let c = all.remove(2);
        let (mut b, mut a) = (Lender::new(all.remove(1)), Lender::new(all.remove(0)));
        let mut lent = a.lend();
        lent.join(b.lend()).unwrap();
        assert!(!lent.adjoins(&c));
        assert_eq!(lent.len(), 8);
        a.reclaim(lent.split_to(4));
        b.reclaim(lent);
        (a.bytes_mut()[0], b.bytes_mut()[0]) = (1, 1);
    }

    #[test]
    fn lent_bytes_come_back() {
        let mut mine = Lender::new(Buffer::zeroed(8).unwrap());
        for round in 0..3 {
            mine.bytes_mut().fill(round);
            let lent = mine.lend();
            assert_eq!((lent.bytes(), mine.bytes()), (&[round; 8][..], &[round; 8][..]));
            mine.reclaim(lent);
        }
        mine.bytes_mut()[0] = 9;
    }

    #[test]
    fn lent_bytes_outlive_their_lender() {
        let mut mine = Lender::new(Buffer::zeroed(8).unwrap());
        mine.bytes_mut().fill(7);
        let lent = mine.lend();
        drop(mine);
        assert_eq!(lent.bytes(), [7; 8]);
    }

    #[test]
    #[should_panic(expected = "lent once")]
    fn what_is_out_is_not_lent() {
        let mut mine = Lender::new(Buffer::zeroed(8).unwrap());
        let _lent = mine.lend();
        mine.lend();
    }

    #[test]
    #[should_panic(expected = "what was lent comes back")]
    fn something_else_does_not_come_back() {
        let mut mine = Lender::new(Buffer::zeroed(8).unwrap());
        let mut other = Lender::new(Buffer::zeroed(8).unwrap());
        mine.lend();
        mine.reclaim(other.lend());
    }

    #[test]
    #[should_panic(expected = "not changed")]
    fn lent_bytes_are_not_changed() {
        let mut mine = Lender::new(Buffer::zeroed(8).unwrap());
        let _lent = mine.lend();
        mine.bytes_mut()[0] = 1;
    }
}
