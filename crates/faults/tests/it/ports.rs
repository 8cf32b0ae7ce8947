//! Operation faults and delays against simple models, and the rules of ports.

use crate::common::*;
use device::{Addresses, Device, OpenChannel, VectorCmd, VectorDone, VectorOp};
use faults::{DEPTH, DelayPort, FaultPort, WrongPort};
use flash::{Ppa, RamMedium, Timing};
use port::{BlockDone, BlockOp, Port, Status, Time};
use proptest::prelude::*;

const OPS: [(BlockOp, &str); 5] = [
    (BlockOp::Read, "read"),
    (BlockOp::Write, "write"),
    (BlockOp::Flush, "flush"),
    (BlockOp::Trim, "trim"),
    (BlockOp::WriteZeroes, "write-zeroes"),
];

/// Runs block requests, `gap` ns apart, through a port.
fn run<P: Port<Cmd = port::BlockReq, Done = BlockDone>>(
    port: P,
    requests: &[(BlockOp, u64, u64)],
    gap: u64,
    window: usize,
) -> (P, Vec<BlockDone>) {
    let mut rig = Rig::new(port, window);
    for (i, &(op, offset, len)) in requests.iter().enumerate() {
        let (offset, len) = if op == BlockOp::Flush { (0, 0) } else { (offset, len) };
        rig.submit(i as u64 * gap, request(i as u64, op, offset, len));
    }
    rig.drain();
    let mut all = rig.all;
    assert_eq!(all.len(), requests.len(), "each completes once");
    all.sort_by_key(|done| done.id);
    for (i, done) in all.iter().enumerate() {
        assert_eq!((done.id, done.op), (i as u64, requests[i].0));
        assert_eq!(done.buffer.bytes(), (i as u64).to_le_bytes(), "its own buffer");
    }
    (rig.port, all)
}

fn requests() -> impl Strategy<Value = Vec<(BlockOp, u64, u64)>> {
    let one = (0usize..5, 0u64..32, 1u64..9);
    let one = one.prop_map(|(op, at, len)| (OPS[op].0, at * 4096, len * 4096));
    prop::collection::vec(one, 1..120)
}

/// A rule's numbers, and its text.
#[derive(Clone, Debug)]
struct Spec {
    op: Option<usize>,
    span: Option<(u64, u64)>,
    from: u64,
    every: u64,
    count: Option<u64>,
    permanent: bool,
    after: bool,
}

impl Spec {
    fn text(&self) -> String {
        let mut text = self.op.map_or("any", |op| OPS[op].1).to_string();
        if let Some((start, end)) = self.span {
            text += &format!(",offset={start}-{end}");
        }
        text += &format!(",from={},every={},status=0x123", self.from, self.every);
        text += &self.count.map(|n| format!(",count={n}")).unwrap_or_default();
        text += if self.permanent { ",permanent" } else { "" };
        text + if self.after { ",after" } else { "" }
    }

    /// Which requests fail, byte by byte of the address space.
    fn model(&self, requests: &[(BlockOp, u64, u64)]) -> Vec<bool> {
        let (mut seen, mut struck) = (0, 0);
        let (mut bad, mut bad_flush) = (vec![false; 64], false);
        let strikes = |&(op, offset, len): &(BlockOp, u64, u64)| {
            if self.op.is_some_and(|wanted| OPS[wanted].0 != op) {
                return false;
            }
            let (start, end) = self.span.unwrap_or((0, u64::MAX));
            let block = |b: u64| b * 4096 < end && (b + 1) * 4096 > start;
            let blocks: Vec<u64> =
                (offset / 4096..(offset + len) / 4096).filter(|&b| block(b)).collect();
            let blocks = if op == BlockOp::Flush { Vec::new() } else { blocks };
            let again = blocks.iter().any(|&b| bad[b as usize]);
            if again || (op == BlockOp::Flush && bad_flush) {
                return true;
            }
            if blocks.is_empty() && (op != BlockOp::Flush || self.span.is_some()) {
                return false;
            }
            seen += 1;
            let hit = seen >= self.from
                && (seen - self.from) % self.every == self.every - 1
                && self.count.is_none_or(|count| struck < count);
            struck += u64::from(hit);
            if hit && self.permanent {
                blocks.iter().for_each(|&b| bad[b as usize] = true);
                bad_flush |= op == BlockOp::Flush;
            }
            hit
        };
        requests.iter().map(strikes).collect()
    }
}

fn specs() -> impl Strategy<Value = Spec> {
    let op = prop::option::of(0usize..5);
    let span = prop::option::of((0u64..32, 1u64..9).prop_map(|(a, n)| (a * 4096, (a + n) * 4096)));
    let count = prop::option::of(1u64..6);
    (op, span, 1u64..5, 1u64..5, count, any::<bool>(), any::<bool>()).prop_map(
        |(op, span, from, every, count, permanent, after)| {
            // A flush has no address.
            let span = span.filter(|_| op != Some(2));
            Spec { op, span, from, every, count, permanent, after }
        },
    )
}

proptest! {
    #[test]
    fn a_rule_strikes_what_it_says(
        spec in specs(), requests in requests(), gap in 0u64..3000, window in 1usize..5
    ) {
        let rules = fault_rules(&[spec.text().as_str()]);
        let port = FaultPort::new(Watched::new(Plain::new(7)), &rules, 1).unwrap();
        let (port, all) = run(Watched::new(port), &requests, gap, window);
        let expected = spec.model(&requests);
        for (done, &fails) in all.iter().zip(&expected) {
            let status = if fails { Status(0x123) } else { Status::SUCCESS };
            prop_assert_eq!(done.status, status, "request {} of {:?}", done.id, requests);
        }
        // Before: it never came below. After: it did.
        let mut came: Vec<_> = requests.iter().zip(&expected)
            .filter(|(_, fails)| spec.after || !**fails)
            .map(|(&(op, offset, _), _)| (op as u8, if op == BlockOp::Flush { 0 } else { offset }))
            .collect();
        let did = &port.below().below().below().did;
        let mut did: Vec<_> = did.iter().map(|&(op, offset)| (op as u8, offset)).collect();
        came.sort_unstable();
        did.sort_unstable();
        prop_assert_eq!(did, came);
        let struck: u64 = port.below().struck().sum();
        prop_assert!(struck <= expected.iter().filter(|f| **f).count() as u64);
        prop_assert!(struck <= spec.count.unwrap_or(u64::MAX));
    }

    #[test]
    fn delays_are_what_they_say(
        requests in requests(), gap in 0u64..3000, window in 1usize..5, every in 1u64..4,
        ms in 1u64..9,
    ) {
        let text = format!("read,every={every},delay={ms}us");
        let range = "write,offset=64k-96k,delay=1us-3us";
        let rules = delay_rules(&[text.as_str(), range]);
        let port = DelayPort::new(Watched::new(Plain::new(DEPTH)), &rules, 5).unwrap();
        let (_, all) = run(Watched::new(port), &requests, gap, window);
        let mut reads = 0;
        for (done, &(op, offset, len)) in all.iter().zip(&requests) {
            let (offset, len) = if op == BlockOp::Flush { (0, 0) } else { (offset, len) };
            let own = done.id * gap + Plain::takes(offset);
            let late = done.at.0 - own;
            prop_assert_eq!(done.status, Status::SUCCESS);
            reads += u64::from(op == BlockOp::Read);
            let in_range = offset < 96 << 10 && offset + len > 64 << 10;
            match op {
                BlockOp::Read if reads % every == 0 => prop_assert_eq!(late, ms * 1000),
                BlockOp::Write if in_range => prop_assert!((1000..=3000).contains(&late)),
                _ => prop_assert_eq!(late, 0),
            }
        }
    }

    #[test]
    fn back_pressure_passes_through(depth in 1usize..4, requests in requests(), gap in 0u64..900) {
        let faults = fault_rules(&["read,every=3", "write,every=5,after"]);
        let delays = delay_rules(&["any,every=2,delay=2us"]);
        let stack = FaultPort::new(Watched::new(Plain::new(depth)), &faults, 0).unwrap();
        let stack = DelayPort::new(Watched::new(stack), &delays, 0).unwrap();
        run(Watched::new(stack), &requests, gap, 2);
    }

    #[test]
    fn no_rules_change_nothing(requests in requests(), gap in 0u64..3000, window in 1usize..5) {
        let times = |all: Vec<BlockDone>| -> Vec<_> {
            all.into_iter().map(|done| (done.at, done.status)).collect()
        };
        let bare = run(Plain::new(DEPTH), &requests, gap, window).1;
        let stack = FaultPort::new(DelayPort::new(Plain::new(DEPTH), &[], 0).unwrap(), &[], 0);
        let (stack, through) = run(stack.unwrap(), &requests, gap, window);
        prop_assert_eq!(times(bare), times(through));
        prop_assert_eq!(stack.into_below().into_below().did.len(), requests.len());
    }
}

#[test]
fn probability_is_kept_and_comes_from_the_seed() {
    let requests: Vec<_> = (0..4000).map(|i| (BlockOp::Read, i % 32 * 4096, 4096)).collect();
    let fails = |seed| -> Vec<bool> {
        let rules = fault_rules(&["read,probability=0.1"]);
        let port = FaultPort::new(Plain::new(64), &rules, seed).unwrap();
        run(port, &requests, 10, 8).1.iter().map(|done| !done.status.is_ok()).collect()
    };
    let (a, b) = (fails(1), fails(2));
    assert_eq!(a, fails(1));
    assert_ne!(a, b);
    for failed in [a, b] {
        let n = failed.iter().filter(|f| **f).count();
        assert!((320..480).contains(&n), "{n} of 4000");
    }
}

#[test]
fn rules_for_other_ports_are_refused() {
    let refused = |text| FaultPort::new(Plain::new(1), &fault_rules(&[text]), 0).err().unwrap();
    assert!(matches!(refused("reset"), WrongPort::Operation { .. }));
    let said = refused("read,ppa=0-9").to_string();
    assert_eq!(said, "a block port is addressed by `offset`, not `ppa`");
    let g = geometry();
    let device = || Device::new(&g, &Timing::default(), RamMedium::new(&g, 0).unwrap()).unwrap();
    let faults = fault_rules(&["trim"]);
    assert!(FaultPort::new(device(), &faults, 0).is_err());
    let delays = delay_rules(&["read,offset=0-4k,delay=1us"]);
    assert!(DelayPort::new(device(), &delays, 0).is_err());
}

fn timing() -> Timing {
    Timing { read: vec![50_000], program: vec![600_000], erase: 3_000_000, ..Timing::default() }
}

fn device(kept: u32) -> Device<RamMedium> {
    let g = geometry();
    Device::new(&g, &timing(), RamMedium::new(&g, kept).unwrap()).unwrap()
}

/// Submits one command and gives its completion.
fn one<P: Port<Cmd = VectorCmd, Done = VectorDone>>(
    rig: &mut Rig<P>,
    cmd: VectorCmd,
) -> VectorDone {
    rig.submit(rig.now.0, cmd);
    rig.drain();
    rig.all.pop().expect("it completed")
}

#[test]
fn vector_commands_fail_by_address() {
    let g = geometry();
    let start = g.ppa(1, 0, 2, 0);
    let bad = |n: u64| start.0 + n;
    let text = format!("read,ppa={:#x}-{:#x}", bad(2), bad(5));
    let rules = fault_rules(&[text.as_str(), "reset,count=1,before", "flush,count=1"]);
    let port = FaultPort::new(Watched::new(device(8)), &rules, 0).unwrap();
    let mut rig = Rig::new(Watched::new(port), 4);
    assert!(one(&mut rig, vector(1, VectorOp::Write, start, 8, 8)).status.is_ok());
    let done = one(&mut rig, vector(2, VectorOp::Read, Ppa(bad(1)), 7, 8));
    assert_eq!((done.cookie, done.failed), (2, 0b1110));
    assert_eq!(done.status, Status::UNRECOVERED_READ);
    assert_eq!(done.buffer.len(), 7 * 24);
    // A list, one of whose addresses is bad and one not there.
    let list: [Ppa; 3] = [Ppa(bad(7)), Ppa(bad(4)), Ppa(bad(20))];
    let mut cmd = vector(3, VectorOp::Read, Ppa(0), 3, 8);
    cmd.list = Some(Box::<Addresses>::from(&list[..]));
    let done = one(&mut rig, cmd);
    assert_eq!((done.failed, done.status), (0b110, Status::UNWRITTEN));
    assert_eq!(done.list.unwrap().from[..3], list);
    // Before: the chunk was not reset; then it is.
    let wear = |rig: &Rig<_>| {
        let rig: &Rig<Watched<FaultPort<Watched<Device<RamMedium>>>>> = rig;
        rig.port.chunk(g.chunk_index(start)).wear
    };
    let done = one(&mut rig, vector(4, VectorOp::Reset, start, 1, 8));
    assert_eq!((done.failed, done.status, wear(&rig)), (1, Status::OFFLINE_CHUNK, 0));
    assert!(one(&mut rig, vector(5, VectorOp::Reset, start, 1, 8)).status.is_ok());
    assert_eq!(wear(&rig), 1);
    let done = one(&mut rig, vector(6, VectorOp::Flush, Ppa(0), 0, 8));
    assert_eq!((done.failed, done.status), (0, Status::WRITE_FAULT));
    assert!(one(&mut rig, vector(7, VectorOp::Flush, Ppa(0), 0, 8)).status.is_ok());
}

#[test]
fn each_address_of_a_vector_command_counts() {
    let g = geometry();
    let rules = fault_rules(&["read,every=3,status=high-ecc"]);
    let mut rig = Rig::new(FaultPort::new(device(0), &rules, 0).unwrap(), 4);
    one(&mut rig, vector(0, VectorOp::Write, g.ppa(0, 0, 0, 0), 24, 0));
    let done = one(&mut rig, vector(1, VectorOp::Read, g.ppa(0, 0, 0, 0), 4, 0));
    assert_eq!(done.failed, 0b0100);
    let done = one(&mut rig, vector(2, VectorOp::Read, g.ppa(0, 0, 0, 0), 6, 0));
    assert_eq!((done.failed, done.status), (0b010010, Status::HIGH_ECC));
    // A copy counts once for each pair, and fails at its source or its target.
    let to = g.ppa(0, 1, 3, 0).0;
    let text = format!("copy,ppa={}-{}", to + 2, to + 3);
    let mut rig =
        Rig::new(FaultPort::new(rig.port.into_below(), &fault_rules(&[&text]), 0).unwrap(), 4);
    let mut list = Box::<Addresses>::default();
    for i in 0..4 {
        (list.from[i], list.to[i]) = (g.ppa(0, 0, 0, i as u32), Ppa(to + i as u64));
    }
    let mut cmd = vector(3, VectorOp::Copy, Ppa(0), 4, 0);
    cmd.list = Some(list);
    let done = one(&mut rig, cmd);
    assert_eq!((done.failed, done.status), (0b100, Status::WRITE_FAILED_WRITE_NEXT_UNIT));
    // Counts that no command may have are the drive's to refuse.
    for count in [0, 65, 255] {
        let mut cmd = vector(4, VectorOp::Read, Ppa(u64::MAX), 1, 0);
        cmd.count = count;
        assert!(!one(&mut rig, cmd).status.is_ok());
    }
}

#[test]
fn the_drive_below_is_seen_through_both() {
    let g = geometry();
    let instant = Device::new(&g, &Timing::default(), RamMedium::new(&g, 0).unwrap()).unwrap();
    let port = DelayPort::new(FaultPort::new(instant, &[], 0).unwrap(), &[], 0).unwrap();
    assert_eq!((port.kept(), port.depth(), port.is_cached()), (0, 1024, false));
    assert_eq!(port.geometry(), &g);
}

/// Three faults and two delays, stacked over a drive, each watched.
#[test]
fn a_stack_does_what_its_parts_do() {
    let g = geometry();
    let fault = |text, below| FaultPort::new(below, &fault_rules(&[text]), 3).unwrap();
    let write = |chunk: u32, i: u64| vector(i, VectorOp::Write, g.ppa(0, 0, chunk, 0), 24, 8);
    // Alone: how long each command takes a drive without faults.
    let mut bare = Rig::new(device(8), 8);
    one(&mut bare, write(0, 0));
    let alone: Vec<u64> = (0..24)
        .map(|i| {
            let start = bare.now;
            one(&mut bare, vector(i, VectorOp::Read, g.ppa(0, 0, 0, i as u32), 1, 8)).at - start
        })
        .collect();

    let low = fault("read,every=3,status=0x2d0", Watched::new(device(8)));
    let late = DelayPort::new(Watched::new(low), &delay_rules(&["read,every=2,delay=7us"]), 3);
    let bad = format!("read,ppa={0}-{1},status=0x281", g.ppa(0, 0, 0, 20).0, g.ppa(0, 0, 0, 24).0);
    let middle = FaultPort::new(Watched::new(late.unwrap()), &fault_rules(&[&bad]), 3).unwrap();
    let top = delay_rules(&["read,from=5,count=4,delay=100us"]);
    let late = DelayPort::new(Watched::new(middle), &top, 3).unwrap();
    let text = "read,from=11,count=1,before,status=0x006";
    let stack = FaultPort::new(Watched::new(late), &fault_rules(&[text]), 3).unwrap();
    let mut rig = Rig::new(Watched::new(stack), 3);
    assert!(one(&mut rig, write(0, 0)).status.is_ok());
    // What reaches the parts below the topmost, counted from 1.
    let mut below = 0;
    for i in 0..24u64 {
        let start = rig.now;
        let done = one(&mut rig, vector(i, VectorOp::Read, g.ppa(0, 0, 0, i as u32), 1, 8));
        if i + 1 == 11 {
            assert_eq!((done.status, done.at), (Status(0x006), start), "it went no further");
            continue;
        }
        below += 1;
        let status = match () {
            // A failure counts for more than a read at the limit.
            _ if i >= 20 => Status(0x281),
            _ if below % 3 == 0 => Status(0x2d0),
            _ => Status::SUCCESS,
        };
        assert_eq!((done.cookie, done.status), (i, status));
        let late = if below % 2 == 0 { 7_000 } else { 0 }
            + if (5..9).contains(&below) { 100_000 } else { 0 };
        assert_eq!(done.at - start, alone[i as usize] + late, "read {i}");
    }
    // And apart again, down to the medium.
    let late = rig.port.into_below().into_below().into_below();
    let middle = late.into_below().into_below();
    let low = middle.into_below().into_below().into_below().into_below();
    let drive: Device<RamMedium> = low.into_below().into_below();
    assert_eq!(drive.counters().blocks_read, 23);
    drive.cut();
}

#[test]
fn a_stack_under_load_keeps_the_rules_of_ports() {
    let g = geometry();
    for seed in 0..40 {
        let mut random = Numbers(seed);
        let faults = fault_rules(&["any,probability=0.1", "read,every=7,before", "write,count=3"]);
        let delays = delay_rules(&["any,probability=0.3,delay=0ns-900us"]);
        let port = FaultPort::new(Watched::new(device(8)), &faults, seed).unwrap();
        let port = DelayPort::new(Watched::new(port), &delays, seed).unwrap();
        let port = FaultPort::new(Watched::new(port), &faults, seed + 1).unwrap();
        let mut rig = Rig::new(Watched::new(port), 3);
        let mut wp = [0u32; 16];
        for i in 0..400u64 {
            let chunk = random.below(16) as usize;
            let start = g.ppa(chunk as u32 / 8, chunk as u32 / 4 % 2, chunk as u32 % 4, 0);
            let cmd = match random.below(8) {
                0..3 if wp[chunk] < 24 => {
                    wp[chunk] += 4;
                    let at = Ppa(start.0 + u64::from(wp[chunk]) - 4);
                    vector(i, VectorOp::Write, at, 4, 8)
                }
                0..3 => {
                    wp[chunk] = 0;
                    vector(i, VectorOp::Reset, start, 1, 8)
                }
                3 => vector(i, VectorOp::Flush, Ppa(0), 0, 8),
                _ => vector(i, VectorOp::Read, Ppa(start.0 + random.below(24)), 1, 8),
            };
            rig.submit(rig.now.0 + random.below(200_000), cmd);
        }
        rig.drain();
        let mut cookies: Vec<u64> = rig.all.iter().map(|done| done.cookie).collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..400), "each completes once");
        assert!(rig.all.iter().any(|done| !done.status.is_ok()));
        assert!(rig.now > Time::ZERO);
    }
}
