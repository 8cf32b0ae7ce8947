//! How a drive that keeps values by key becomes a server's.

use std::sync::{Arc, Mutex};

use btree::{Inline, Keyed, KeyedConfig, Records};
use port::{KvDone, KvOp, KvReq, Port, Ring};
use targets::{Kv, KvConfig};

use super::*;

/// A drive that notes what is asked of it.
struct Noted<P> {
    drive: P,
    asked: Arc<Mutex<Vec<KvOp>>>,
    /// What has not ended.
    open: Arc<Mutex<usize>>,
}

impl<P: Port<Cmd = KvReq, Done = KvDone>> Port for Noted<P> {
    type Cmd = KvReq;
    type Done = KvDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<KvReq>) {
        let all = (0..cmds.len()).filter_map(|i| cmds.get(i).map(|cmd: &KvReq| cmd.op));
        self.asked.lock().unwrap().extend(all);
        *self.open.lock().unwrap() += cmds.len();
        self.drive.submit(now, cmds);
        *self.open.lock().unwrap() -= cmds.len();
    }

    fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<KvDone>) {
        let before = done.len();
        self.drive.advance(to, done);
        *self.open.lock().unwrap() -= done.len() - before;
    }
}

/// The record that says whose keys these are is durable before any other comes: a host that
/// crashes may lose it otherwise and keep those.
#[test]
fn whose_keys_these_are_is_durable_before_clients_come() {
    let (device, geometry) = device();
    let kv = Kv::new(device, KvConfig { keys: 90, ..KvConfig::for_geometry(&geometry) }).unwrap();
    let (shape, asked, open) = (*kv.shape(), Arc::default(), Arc::default());
    let drive = Noted { drive: kv, asked: Arc::clone(&asked), open: Arc::clone(&open) };
    let config = KeyedConfig { operations: 8, memory: 1 << 20, keys: 0 };
    let keyed = Keyed::new(Box::new(Inline(drive)), shape, config, Time::ZERO).unwrap();
    let opened = Opened::new(Records::Drive(Box::new(keyed)), 1).unwrap();
    assert_eq!(opened.keys(), 0);
    let asked = asked.lock().unwrap();
    assert!(matches!(asked[..], [.., KvOp::Put(_), KvOp::Flush]), "{asked:?}");
    assert_eq!(*open.lock().unwrap(), 0, "all has ended");
}
