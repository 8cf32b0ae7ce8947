//! Zones measured and served by a program of one's own: `ssdkit bench` and `serve`
//! know the targets by name that are built in.

use device::Device;
use drive::whole::Observed;
use exports::SharedDrive;
use exports::nbd::{Client, Export, Exports, ListenAddr, Server, StopHandle};
use flash::{Dimensions, Geometry, Profile, RamMedium};
use ftl::{Start, Target, WriteCounters};
use load::driver::Virtual;
use load::load::{Load, Pace};
use load::runner::{Plan, Runner, Until};
use load::watch::Watch;
use port::{BLOCK_BYTES, BlockOp, Port, Ring, Time};
use workload::{Order, Pattern};

use crate::{Zones, ZonesConfig};

type Drive = Zones<Device<RamMedium>>;

/// What a report tells of the target; all of it may be left out.
impl Observed for Drive {
    fn counters(&self) -> WriteCounters {
        Target::counters(self)
    }
}

/// Zones on flash of a built-in profile, in memory.
fn drive() -> Drive {
    let profile = Profile::builtin("znand").unwrap();
    let small = Dimensions { groups: 2, pus: 2, chunks: 4, pages: 16, ..profile.dimensions };
    let geometry = Geometry::new(small).unwrap();
    let medium = RamMedium::new(&geometry, BLOCK_BYTES as u32).unwrap();
    let device = Device::new(&geometry, &profile.timing, medium).unwrap();
    Zones::new(device, &ZonesConfig { zones: 16 }).unwrap()
}

#[test]
fn a_program_of_ones_own_measures_it() {
    let drive = drive();
    let shape = Target::shape(&drive);
    let bs = u64::from(drive.geometry.write_blocks()) * BLOCK_BYTES;
    let order = Order::Sequential;
    let pattern = Pattern { bs, order, ..Pattern::uniform(shape.bytes, 0) };
    let mut load = Load::new(&shape, &pattern, Pace::Closed { depth: 4 }, 1, 1).unwrap();
    let plan = Plan { ramp: 0, until: Until::Ios(pattern.blocks()), count: true };
    let mut driver = Virtual::new(drive);
    let tally = Runner::new(&mut Watch::quiet()).run(&mut driver, &mut load, plan).unwrap();
    assert_eq!(tally.problem(), None);
    assert_eq!(tally.latency(BlockOp::Write).count(), pattern.blocks());
    let mb = shape.bytes as f64 / 1e6;
    println!("{:.0} MB/s, slowest {:?} ns", mb / tally.seconds(), tally.all().max());
}

#[test]
fn a_program_of_ones_own_serves_it() {
    let drive = drive();
    let page = u64::from(drive.geometry.write_blocks()) * BLOCK_BYTES;
    let export = Exports::new(Export::new(Target::shape(&drive)).unwrap());
    let server = Server::bind(&ListenAddr::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let (at, stop) = (server.addr().unwrap(), StopHandle::new().unwrap());
    let shared = SharedDrive::new(drive);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.run(&export, &shared, &stop).unwrap());
        let mut client = Client::connect(&at).unwrap();
        let sent = vec![7; page as usize];
        for (op, data) in [(BlockOp::Write, sent.as_slice()), (BlockOp::Read, &sent[..0])] {
            client.submit(op, 0, page, false, 0, data).unwrap();
            client.flush_sends().unwrap();
            let wanted = if op == BlockOp::Read { sent.as_slice() } else { &[] };
            client.recv(&mut |_, error, data| assert_eq!((error, data), (0, wanted))).unwrap();
        }
        client.close().unwrap();
        stop.stop();
        assert_eq!(served.join().unwrap().connections, 1);
    });
    // The drive comes back, and is ended by whoever has it.
    let mut drive = shared.into_port().unwrap();
    drive.close(Time(u64::MAX));
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut Ring::new(1));
    }
    assert!(drive.is_closed());
}
