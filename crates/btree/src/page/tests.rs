//! Tests of pages.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn leaf() -> Bytes {
    let mut bytes = [0xEE; PAGE_BYTES];
    Edit(&mut bytes).init(7, Kind::Leaf, 0);
    bytes
}

fn records(page: View<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let one = |i| {
        let Value::Inline(value) = page.value(i) else { panic!("inline only") };
        (page.key(i).to_vec(), value.to_vec())
    };
    (0..page.count()).map(one).collect()
}

#[test]
fn a_separator_is_short() {
    assert_eq!(separator(b"abc", b"abe"), b"abe");
    assert_eq!(separator(b"abc", b"b"), b"b");
    assert_eq!(separator(b"ab", b"abcdef"), b"abc");
    assert_eq!(separator(b"", b"xyz"), b"x");
}

#[test]
fn a_long_value_is_a_list() {
    let mut bytes = leaf();
    let list: Vec<u8> = [5u64, 9, 11].iter().flat_map(|p| p.to_le_bytes()).collect();
    let len = 2 * OVERFLOW_BYTES as u32 + 1;
    Edit(&mut bytes).insert(0, b"k", Value::Overflow(len, &list));
    let view = View(&bytes);
    assert_eq!(view.check(7), Ok(()));
    assert_eq!(view.value(0), Value::Overflow(len, &list));
    assert_eq!(view.value(0).pages().collect::<Vec<_>>(), [5, 9, 11]);
}

#[test]
fn any_flipped_header_byte_or_slot_is_survived() {
    let mut bytes = leaf();
    for i in 0..3u8 {
        Edit(&mut bytes).insert(usize::from(i), &[i; 9], Value::Inline(&[i; 1000]));
    }
    for at in 8..HEADER + 3 * SLOT {
        for bit in 0..8 {
            let mut bad = bytes;
            bad[at] ^= 1 << bit;
            let view = View(&bad);
            if view.check(7).is_ok() {
                // What passes can be walked without harm.
                match view.kind() {
                    Some(Kind::Leaf) => (0..view.count()).for_each(|i| {
                        let _ = (view.key(i), view.value(i));
                    }),
                    Some(Kind::Inner) => (0..view.count()).for_each(|i| {
                        let _ = (view.key(i), view.child(i));
                    }),
                    _ => {}
                }
            }
        }
    }
}

/// A key, and some that begin or end otherwise.
fn near(key: &[u8]) -> Vec<Vec<u8>> {
    let shorter = key[..key.len() / 2].to_vec();
    let longer = [key, &[1]].concat();
    let mut others = vec![key.to_vec(), shorter, longer, vec![], vec![9]];
    for at in 0..key.len() {
        let mut other = key.to_vec();
        other[at] ^= 1;
        others.push(other);
    }
    others
}

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Remove(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let key = prop_oneof![
        prop::collection::vec(0u8..4, 0..7),
        prop::collection::vec(0u8..4, 1..4).prop_map(|end| [&b"key:0000"[..], &end[..]].concat()),
    ];
    let value = prop::collection::vec(any::<u8>(), 0..400);
    prop_oneof![
        3 => (key, value).prop_map(|(k, v)| Change::Put(k, v)),
        1 => (0usize..64).prop_map(Change::Remove),
    ]
}

proptest! {
    #[test]
    fn a_leaf_is_a_map(changes in prop::collection::vec((change(), any::<bool>()), 1..120)) {
        let mut bytes = leaf();
        let mut model = BTreeMap::new();
        for (change, again) in changes {
            let mut page = Edit(&mut bytes);
            match change {
                Change::Put(k, v) => {
                    let value = Value::Inline(&v);
                    let at = match page.view().search(&k) {
                        Ok(i) => {
                            page.remove(i);
                            model.remove(&k);
                            i
                        }
                        Err(i) => i,
                    };
                    if page.view().room() >= value.cost(k.len()) {
                        page.insert(at, &k, value);
                        model.insert(k, v);
                    }
                }
                Change::Remove(i) if page.view().count() > 0 => {
                    let i = i % page.view().count();
                    model.remove(page.view().key(i));
                    page.remove(i);
                }
                Change::Remove(_) => {}
            }
            if again {
                Edit(&mut bytes).skip_all();
            }
            let view = View(&bytes);
            for key in model.keys().flat_map(|key| near(key)) {
                let at = model.keys().position(|other| *other >= key).unwrap_or(model.len());
                let expected = if model.contains_key(&key) { Ok(at) } else { Err(at) };
                prop_assert_eq!(view.search(&key), expected);
            }
            let used: usize = model.iter().map(|(k, v)| SLOT + 4 + k.len() + v.len()).sum();
            prop_assert_eq!(View(&bytes).used(), used);
            prop_assert_eq!(View(&bytes).check(7), Ok(()));
        }
        let expected: Vec<_> = model.into_iter().collect();
        prop_assert_eq!(records(View(&bytes)), expected);
    }

    #[test]
    fn a_split_keeps_all_and_fits(
        sizes in prop::collection::vec(0usize..2000, 1..40), new in 0usize..2000, at in 0usize..40,
    ) {
        let mut bytes = leaf();
        let mut count = 0usize;
        for size in sizes {
            let value = vec![count as u8; size];
            let value = Value::Inline(&value);
            let mut page = Edit(&mut bytes);
            if page.view().room() >= value.cost(2) {
                page.insert(count, &[count as u8, 9], value);
                count += 1;
            }
        }
        let at = at % (count + 1);
        let key = if at == 0 { vec![] } else { vec![at as u8 - 1, 10] };
        let value = vec![0xFF; new];
        let before = records(View(&bytes));
        let mut upper = [0; PAGE_BYTES];
        Edit(&mut upper).init(8, Kind::Leaf, 0);
        prop_assume!(View(&bytes).room() < Value::Inline(&value).cost(key.len()));
        split_leaf(&mut Edit(&mut bytes), &mut Edit(&mut upper), at, &key, Value::Inline(&value), false);
        prop_assert_eq!(View(&bytes).check(7), Ok(()));
        prop_assert_eq!(View(&upper).check(8), Ok(()));
        let mut expected = before;
        expected.insert(at, (key, value));
        let mut after = records(View(&bytes));
        prop_assert!(!after.is_empty() && View(&upper).count() > 0);
        after.extend(records(View(&upper)));
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn an_inner_split_sends_one_up(lens in prop::collection::vec(1usize..500, 8..60), at in 0usize..60) {
        let mut bytes = [0; PAGE_BYTES];
        Edit(&mut bytes).init(3, Kind::Inner, 1);
        Edit(&mut bytes).set_first(1000);
        let mut all = vec![];
        for (i, len) in lens.iter().enumerate() {
            let mut key = vec![i as u8 * 2 + 1; 1];
            key.resize(*len, 1);
            if View(&bytes).room() >= SLOT + 8 + key.len() {
                let end = View(&bytes).count();
                Edit(&mut bytes).insert_child(end, &key, i as u64);
                all.push((key, i as u64));
            }
        }
        prop_assume!(all.len() >= 3);
        let at = at % (all.len() + 1);
        let key = vec![if at == 0 { 0 } else { all[at - 1].0[0] + 1 }; 512];
        all.insert(at, (key.clone(), 77));
        let mut upper = [0; PAGE_BYTES];
        Edit(&mut upper).init(4, Kind::Inner, 1);
        let mut up = vec![];
        split_inner(&mut Edit(&mut bytes), &mut Edit(&mut upper), at, &key, 77, &mut up);
        let (left, right) = (View(&bytes), View(&upper));
        prop_assert_eq!((left.check(3), right.check(4)), (Ok(()), Ok(())));
        let cells = |v: View<'_>| (0..v.count()).map(|i| (v.key(i).to_vec(), v.child(i + 1))).collect::<Vec<_>>();
        let mut after = cells(left);
        after.push((up, right.first()));
        after.extend(cells(right));
        prop_assert_eq!(left.first(), 1000);
        prop_assert_eq!(after, all);
    }
}
