//! A short run of YCSB in real time, verified.

use btree::StoreKind;
use rocksdb_beside::ycsb::{Beside, measure};
use ssdkit::drive::DriveSpec;
use ssdkit::ycsb::setup::size_for;
use ssdkit::ycsb::{self, CacheSize, Setup};
use workload::ycsb::{RECORD_BYTES, Workload};

#[test]
fn all_that_is_read_is_right() {
    for (workload, sync) in [(Workload::Paper, false), (Workload::E, false), (Workload::F, true)] {
        let DriveSpec::Memory(spec) = "mem:znand,planes=2,pages=64".parse().unwrap() else {
            panic!("a drive in memory")
        };
        let (records, ops) = (2000, 500);
        let setup = Setup {
            drive: ycsb::drive(&spec, size_for(workload, records, ops, true, RECORD_BYTES)).unwrap(),
            workload,
            records,
            ops,
            cache: CacheSize::Percent(25.0),
            store: StoreKind::Log.into(),
            value: RECORD_BYTES,
            durable: true,
            clients: 4,
            controller: 0,
            seed: 3,
            real: true,
            verify: true,
        };
        let beside = Beside {
            cache: 8 << 20,
            memtables: 1 << 20,
            sync,
            threads: 4,
            background: 2,
            cores: None,
        };
        let m = measure(&setup, &beside).unwrap();
        assert_eq!((m.missing, m.errors), (0, 0), "{:?}", m.first_error);
        let counted: u64 = m.latency.iter().map(|(_, latency)| latency.count()).sum();
        assert_eq!(counted, ops);
        assert!(m.work.user > 0 && m.disk.blocks_written > 0);
        assert_eq!(sync, m.disk.flushes > 100, "{:?}", m.disk);
    }
}
