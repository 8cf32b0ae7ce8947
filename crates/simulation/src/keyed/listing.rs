//! Keys as they are asked for and listed, and what a listing may have.
//!
//! The order of listings is the drive's own, and always the same: what it is of two keys the
//! host knows once both were listed together.

use port::{Buffer, KvDone};

/// Bytes of a key at most, and room for keys of a listing among writes.
pub(super) const LONGEST_NAME: usize = 9;
pub(super) const LISTED: usize = 200;

/// A key's bytes.
pub(super) fn name(key: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(1 + key as usize % LONGEST_NAME).expect("memory for a key");
    let bytes = buffer.bytes_mut();
    bytes.fill(b'k');
    bytes[0] = key as u8;
    buffer
}

/// The keys of a listing.
pub(super) fn names(done: &KvDone) -> Vec<u64> {
    let (mut listing, mut keys) = (&done.value.bytes()[..done.len as usize], Vec::new());
    while let Some((&bytes, rest)) = listing.split_first() {
        let (key, behind) = rest.split_at(bytes.into());
        keys.push(u64::from(key[0]));
        listing = behind;
    }
    keys
}

/// What is wrong with a listing: the key that it is about, and words.
pub(super) type Wrong = (Option<u64>, String);

/// A listing that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    /// From which key on; of all where there is none.
    pub from: Option<u64>,
    /// Of each key whether it is there all the while, and whether it may be there.
    pub there: Vec<(bool, bool)>,
}

impl Listing {
    /// It has each key that is there all the while, as far as it went, and none that never
    /// was, nor one that is before the first that was asked for.
    pub fn check(&self, keys: &[u64], is_whole: bool, order: &Order) -> Result<(), Wrong> {
        for (key, &(stays, comes)) in (0..).zip(&self.there) {
            let is_before = self.from.is_some_and(|from| order.is_before(key, from));
            let is_behind = self.from.is_none_or(|from| from == key || order.is_before(from, key));
            let count = keys.iter().filter(|&&listed| listed == key).count();
            let (least, most) = (is_whole && stays && is_behind, comes && !is_before);
            if count < usize::from(least) || count > usize::from(most) {
                let words = format!(
                    "listed {count} times from {:?} on: there {stays}, maybe {comes}, known to be \
                     before it {is_before}, behind it {is_behind}",
                    self.from
                );
                return Err((Some(key), words));
            }
        }
        Ok(())
    }
}

/// What is known of the order of keys.
pub(super) struct Order {
    names: u64,
    /// By two keys, whether the first was listed before the second.
    before: Vec<bool>,
}

impl Order {
    /// Of so many keys nothing.
    pub fn new(names: u64) -> Order {
        Order { names, before: vec![false; (names * names) as usize] }
    }

    fn is_before(&self, one: u64, other: u64) -> bool {
        self.before[(one * self.names + other) as usize]
    }

    /// Keys were listed in this order, which is no other than before.
    pub fn learn(&mut self, keys: &[u64]) -> Result<(), Wrong> {
        for (at, &one) in keys.iter().enumerate() {
            for &other in &keys[at + 1..] {
                if self.is_before(other, one) {
                    let words = format!("it is listed before {other}, and was listed behind it");
                    return Err((Some(one), words));
                }
                self.before[(one * self.names + other) as usize] = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_has_what_is_there_from_a_key_on() {
        let mut order = Order::new(4);
        order.learn(&[2, 0, 3]).unwrap();
        assert!(order.learn(&[3, 2]).is_err(), "another order");
        let all = Listing { from: None, there: vec![(true, true); 4] };
        assert!(all.check(&[2, 0, 1, 3], true, &order).is_ok());
        assert!(
            all.check(&[2, 0], true, &order).is_err() && all.check(&[2, 0], false, &order).is_ok()
        );
        assert!(all.check(&[2, 0, 1, 3, 0], true, &order).is_err(), "twice");
        let from = Listing { from: Some(0), ..all };
        // Of 1 nobody knows where it is.
        assert!(from.check(&[0, 3], true, &order).is_ok());
        assert!(from.check(&[0, 1, 3], true, &order).is_ok());
        assert!(from.check(&[0], true, &order).is_err() && from.check(&[3], true, &order).is_err());
        assert!(from.check(&[2, 0, 3], true, &order).is_err());
        let gone = Listing { from: None, there: vec![(false, false); 4] };
        assert!(gone.check(&[], true, &order).is_ok() && gone.check(&[1], true, &order).is_err());
    }
}
