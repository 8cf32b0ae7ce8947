//! Pages that are split: which cells go where, and what separates them.
//!
//! Guarantees: both pages have room, and together all that was there and what is new.

use std::cmp::Ordering;

use super::{Edit, Kind, SLOT, Value, View, same};

/// The sizes of the cells with a new one at `at`, slots included.
fn sizes(page: View<'_>, at: usize, new: usize) -> impl Iterator<Item = usize> {
    let count = page.count();
    (0..count + 1).map(move |i| match i.cmp(&at) {
        Ordering::Less => page.cell_len(i) + SLOT,
        Ordering::Equal => new,
        Ordering::Greater => page.cell_len(i - 1) + SLOT,
    })
}

/// Splits a leaf with a new record at slot `at`: the upper part goes to
/// `right`, which is empty. `ascending` leaves the left page full: the keys
/// come in order. The pages are even otherwise.
pub(crate) fn split_leaf<'a>(
    left: &mut Edit<'a>,
    right: &mut Edit<'a>,
    at: usize,
    key: &[u8],
    value: Value<'_>,
    ascending: bool,
) {
    let old = *left.0;
    let old = View(&old);
    let new = value.cost(key.len());
    let cut = if ascending { at } else { middle(old, at, new) };
    left.init(old.number(), Kind::Leaf, 0);
    for i in 0..old.count() + 1 {
        let to = if i < cut { &mut *left } else { &mut *right };
        match i.cmp(&at) {
            Ordering::Less => to.append(old, i),
            Ordering::Equal => to.insert(to.view().count(), key, value),
            Ordering::Greater => to.append(old, i - 1),
        }
    }
    left.skip_all();
    right.skip_all();
}

/// The first cell of the right page, so that both fit and are most even.
fn middle(page: View<'_>, at: usize, new: usize) -> usize {
    let total: usize = sizes(page, at, new).sum();
    let (mut left, mut best, mut cut) = (0, usize::MAX, 1);
    for (i, size) in sizes(page, at, new).enumerate() {
        let larger = left.max(total - left);
        if i > 0 && larger < best {
            (best, cut) = (larger, i);
        }
        left += size;
    }
    cut
}

/// Splits an inner page with a new separator and child at slot `at`. The
/// middle separator goes up: it is put into `up`.
pub(crate) fn split_inner(
    left: &mut Edit<'_>,
    right: &mut Edit<'_>,
    at: usize,
    key: &[u8],
    child: u64,
    up: &mut Vec<u8>,
) {
    let old = *left.0;
    let old = View(&old);
    let cut = middle(old, at, SLOT + 8 + key.len()).min(old.count());
    left.init(old.number(), Kind::Inner, old.level());
    left.set_first(old.first());
    for i in 0..old.count() + 1 {
        let (k, c) = match i.cmp(&at) {
            Ordering::Less => (old.key(i), old.child(i + 1)),
            Ordering::Equal => (key, child),
            Ordering::Greater => (old.key(i - 1), old.child(i)),
        };
        match i.cmp(&cut) {
            Ordering::Less => left.insert_child(i, k, c),
            Ordering::Equal => {
                right.set_first(c);
                up.clear();
                up.extend_from_slice(k);
            }
            Ordering::Greater => right.insert_child(i - cut - 1, k, c),
        }
    }
    left.skip_all();
    right.skip_all();
}

/// The shortest key that is above `low` and at most `high`.
pub(crate) fn separator<'a>(low: &[u8], high: &'a [u8]) -> &'a [u8] {
    &high[..(same(low, high) + 1).min(high.len())]
}
