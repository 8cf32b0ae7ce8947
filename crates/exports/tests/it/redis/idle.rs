//! What the server says of itself to its drive: whether it has anything to do but to wait.

use std::sync::{Arc, Mutex, OnceLock};

use btree::Sleeper;
use port::{BatchDone, BatchOp, BatchReq, Port, Ring};

use super::*;

/// What was said of each write and flush, by when it came.
static SAID: Mutex<Vec<bool>> = Mutex::new(Vec::new());

/// A drive that asks when something is to be written or flushed.
struct Asking {
    drive: Link<Batch<Device<RamMedium>>>,
    sleeper: Arc<OnceLock<Arc<Sleeper>>>,
}

impl Port for Asking {
    type Cmd = BatchReq;
    type Done = BatchDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BatchReq>) {
        let is_change = |i| cmds.get(i).is_some_and(|cmd: &BatchReq| cmd.op != BatchOp::Read);
        if let Some(sleeper) = self.sleeper.get()
            && (0..cmds.len()).any(is_change)
        {
            SAID.lock().unwrap().push(sleeper.is_idle());
        }
        self.drive.submit(now, cmds);
    }

    fn next_event(&self) -> Option<Time> {
        self.drive.next_event()
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BatchDone>) {
        self.drive.advance(to, done);
    }
}

fn serve_asking(server: Server, options: Options, stop: &StopHandle) -> Report {
    let (device, geometry) = device();
    let config = BatchConfig::for_geometry(&geometry, 0.3);
    let target = Batch::open(device, config, Time::ZERO).unwrap();
    let shape = *target.shape();
    let sleeper = Arc::new(OnceLock::new());
    let drive = Link::new(LinkTiming::default(), target);
    let (drive, _back) = Clocked::new(Asking { drive, sleeper: sleeper.clone() }).unwrap();
    let known = drive.sleeper().clone();
    assert!(sleeper.set(known.clone()).is_ok());
    let store = BatchStore::new(drive, shape, 256, || 0).unwrap();
    let config = TreeConfig { memory: 3 << 20, operations: 64, dirty: 33, redo: true };
    let now = known.clock().now();
    let tree = Tree::create(Box::new(store) as AnyStore, config, now).unwrap();
    let keys = Opened::new(tree, options.limits.clients).unwrap();
    server.run(keys, &known, options, stop).unwrap().0
}

/// A sync may be made on the server's thread where all who are there wait for it, and not where
/// somebody else may ask for something.
#[test]
fn it_is_idle_while_all_wait_for_a_flush() {
    let limits = Limits { clients: 4, ..Limits::default() };
    let served = Served::over(Options { sync: Sync::Always, limits }, serve_asking);
    let mut writer = served.connect();
    let last = |writer: &mut Client| {
        assert_eq!(writer.ask("SET a 1"), ok());
        *SAID.lock().unwrap().last().unwrap()
    };
    // Not before a flush was short, which is up to the machine.
    while !last(&mut writer) {}
    let mut reader = served.connect();
    for _ in 0..10 {
        assert_eq!(reader.ask("GET a"), Reply::Bulk(Some(b"1".to_vec())));
        assert!(!last(&mut writer), "somebody else is there");
    }
    drop((writer, reader));
    served.end();
}
