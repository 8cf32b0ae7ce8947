//! A drive that keeps values by key, against a map: values of all lengths, with buffers
//! that have room for few of them.

use std::collections::{BTreeMap, BTreeSet};

use btree::{Error, Inline, Keyed, KeyedConfig, Outcome, Sink};
use device::Device;
use flash::{Dimensions, Geometry, RamMedium, Timing};
use port::Time;
use targets::{Kv, KvConfig};
use workload::Rng;

const OPERATIONS: usize = 12;
const MEMORY: u64 = 400 << 10;
const KEYS: u64 = 40;

#[derive(Default)]
struct Heard {
    records: Vec<(u64, Vec<u8>, Vec<u8>)>,
    ended: Vec<(u64, Result<Outcome, Error>)>,
}

impl Sink for Heard {
    fn record(&mut self, tag: u64, key: &[u8], value: &[u8]) {
        self.records.push((tag, key.to_vec(), value.to_vec()));
    }

    fn done(&mut self, tag: u64, outcome: Result<Outcome, Error>) {
        self.ended.push((tag, outcome));
    }
}

fn keyed() -> Keyed<'static> {
    let dimensions = Dimensions {
        groups: 2,
        pus: 2,
        chunks: 20,
        pages: 32,
        page_bytes: 16384,
        ..Dimensions::LEAST
    };
    let geometry = Geometry::new(dimensions).unwrap();
    let medium = RamMedium::new(&geometry, 4096).unwrap();
    let timing = Timing { read: vec![2000], ..Timing::default() };
    let device = Device::new(&geometry, &timing, medium).unwrap();
    let kv = Kv::new(device, KvConfig { keys: 1000, ..KvConfig::for_geometry(&geometry) }).unwrap();
    let shape = *kv.shape();
    let config = KeyedConfig { operations: OPERATIONS, memory: MEMORY, keys: 0 };
    Keyed::new(Box::new(Inline(kv)), shape, config, Time::ZERO).unwrap()
}

fn settle(keyed: &mut Keyed<'_>, heard: &mut Heard) {
    while keyed.wait(heard) {}
}

/// What is under way for a key.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Get,
    Head,
    Put(Vec<u8>),
    Delete,
}

#[test]
fn it_does_what_a_map_would() {
    let (mut keyed, mut heard, mut rng) = (keyed(), Heard::default(), Rng::new(3, 0));
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut open: BTreeMap<u64, Asked> = BTreeMap::new();
    let (mut busy, mut most, mut gets) = (0, 0, 0);
    for turn in 0..20_000 {
        let key = rng.below(KEYS);
        let name = format!("key {key}").into_bytes();
        if turn < 19_000 && !open.contains_key(&key) {
            let asked = match rng.below(8) {
                0..=2 => Asked::Get,
                3 => Asked::Head,
                4 => Asked::Delete,
                _ => {
                    let most = [10, 100, 5000, 40_000, 150_000][rng.below(5) as usize];
                    Asked::Put(vec![turn as u8; rng.below(most) as usize])
                }
            };
            let taken = match &asked {
                Asked::Get => keyed.get(key, &name, None, &mut heard),
                Asked::Head => keyed.get(key, &name, Some(9), &mut heard),
                Asked::Put(value) => keyed.put(key, &name, value, &mut heard),
                Asked::Delete => keyed.delete(key, &name),
            };
            match taken {
                Ok(()) => drop(open.insert(key, asked)),
                Err(Error::Busy(_)) => busy += 1,
                Err(e) => panic!("{e}"),
            }
        }
        most = most.max(keyed.memory());
        if rng.below(3) == 0 || turn >= 19_000 {
            keyed.wait(&mut heard);
        }
        for (tag, result) in std::mem::take(&mut heard.ended) {
            let asked = open.remove(&tag).expect("it ends once");
            let there = model.get(&tag);
            let record = heard.records.iter().find(|record| record.0 == tag);
            let expected = match &asked {
                Asked::Get | Asked::Head if there.is_none() => Outcome::Missing,
                Asked::Get => {
                    assert_eq!(&record.unwrap().2, there.unwrap());
                    gets += 1;
                    Outcome::Found
                }
                Asked::Head => {
                    let there = there.unwrap();
                    assert_eq!(record.unwrap().2, there[..there.len().min(9)]);
                    Outcome::Found
                }
                Asked::Put(value) => {
                    model.insert(tag, value.clone());
                    Outcome::Stored
                }
                Asked::Delete if model.remove(&tag).is_some() => Outcome::Deleted,
                Asked::Delete => Outcome::Missing,
            };
            assert_eq!(result, Ok(expected), "{asked:?}");
        }
        heard.records.clear();
    }
    assert!(open.is_empty() && busy > 100 && gets > 2000, "{busy} {gets}");
    assert!(most <= MEMORY + (256 << 10), "{most} bytes");
    assert_eq!(keyed.keys(), model.len() as u64);
    // All of them are listed once, however many at a time.
    for count in [1, 5, 1000] {
        let (mut last, mut listed) = (Vec::new(), Vec::new());
        loop {
            keyed.scan(0, &last, count, &mut heard).unwrap();
            settle(&mut keyed, &mut heard);
            let Some((_, Ok(Outcome::Scanned(given)))) = heard.ended.pop() else { panic!() };
            assert_eq!(given, heard.records.len() as u64);
            listed.extend(heard.records.drain(..).map(|record| record.1));
            if given < count {
                break;
            }
            last = listed.last().unwrap().clone();
        }
        let all: BTreeSet<_> = listed.iter().cloned().collect();
        let keys: BTreeSet<_> = model.keys().map(|key| format!("key {key}").into_bytes()).collect();
        assert_eq!((listed.len(), all), (keys.len(), keys), "{count}");
    }
    keyed.flush(7).unwrap();
    settle(&mut keyed, &mut heard);
    assert_eq!(heard.ended, [(7, Ok(Outcome::Flushed))]);
}

#[test]
fn what_is_too_long_is_refused() {
    let (mut keyed, mut heard) = (keyed(), Heard::default());
    let long = vec![0; keyed.longest() + 1];
    let error = keyed.put(0, b"key", &long, &mut heard).unwrap_err();
    assert_eq!(error, Error::ValueTooLong(long.len(), long.len() - 1));
    let error = keyed.get(0, &[7; 256], None, &mut heard).unwrap_err();
    assert_eq!(error, Error::KeyTooLong(256, 255));
    // One value has room, however long it is.
    let value = &long[..8 * MEMORY as usize];
    keyed.put(0, b"key", value, &mut heard).unwrap();
    settle(&mut keyed, &mut heard);
    keyed.get(1, b"key", None, &mut heard).unwrap();
    settle(&mut keyed, &mut heard);
    assert_eq!(heard.records[0].2, value);
    assert_eq!((keyed.keys(), keyed.waiting()), (1, 0));
}
