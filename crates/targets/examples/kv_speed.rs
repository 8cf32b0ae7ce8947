//! Values of 1 MiB on the key-value target, and the same bytes as writes of pblk: the
//! table of the thesis, chapter 6, section 6.2 (table 4).
//!
//! `kv_speed TARGET [KEY=VALUE ...]`, TARGET `kv`, or `pblk`. Keys: `profile`, a built-in
//! one, or `null` for a drive that takes no time; `kept`, bytes that the medium keeps of a
//! block; `depth`, requests at once; `count` requests, of `mib` MiB each; `op`, `put` or
//! `get` (of what was put).
//!
//! Prints the throughput in drive time, the mean latency, and the processor's time of a
//! request as the kernel counts it for the thread. For instructions count it twice, with
//! two numbers of requests, under callgrind.

use std::process::exit;

use device::Device;
use flash::{Dimensions, Geometry, Profile, RamMedium};
use port::{BLOCK_BYTES, BlockOp, BlockReq, Buffer, KvOp, KvReq, Port, PutIf, Ring, Time};
use rustix::time::{ClockId, clock_gettime};
use targets::{Kv, KvConfig, Pblk, PblkConfig, with_reserve};

const MIB: u64 = 1 << 20;

/// What is asked for.
struct Args {
    profile: String,
    kept: u32,
    depth: usize,
    count: u64,
    bytes: u64,
    is_get: bool,
}

fn parse() -> Option<(String, Args)> {
    let mut words = std::env::args().skip(1);
    let target = words.next()?;
    let mut args =
        Args { profile: "ref".into(), kept: 4096, depth: 8, count: 500, bytes: MIB, is_get: false };
    for word in words {
        let (key, value) = word.split_once('=')?;
        match key {
            "profile" => args.profile = value.into(),
            "kept" => args.kept = value.parse().ok()?,
            "depth" => args.depth = value.parse().ok()?,
            "count" => args.count = value.parse().ok()?,
            "mib" => args.bytes = value.parse::<u64>().ok()? * MIB,
            "op" => args.is_get = value == "get",
            _ => return None,
        }
    }
    Some((target, args))
}

/// What holds twice what is written, of the profile's units.
fn data(args: &Args) -> (Dimensions, Profile) {
    let profile = Profile::builtin(&args.profile).expect("a profile that is built in");
    let one = Geometry::new(Dimensions { chunks: 1, ..profile.dimensions }).expect("it fits");
    let chunks = (2 * args.count * args.bytes / BLOCK_BYTES).div_ceil(one.blocks()) as u32;
    (Dimensions { chunks: chunks + 8, ..profile.dimensions }, profile)
}

fn device(dim: Dimensions, profile: &Profile, kept: u32) -> Device<RamMedium> {
    let geometry = Geometry::new(dim).expect("it fits");
    let medium = RamMedium::new(&geometry, kept).expect("there is memory");
    Device::new(&geometry, &profile.timing, medium).expect("there is memory")
}

/// Sends `count` requests, `depth` at once; gives when the last one ended, and the sum of
/// their times.
fn drive<P: Port>(
    port: &mut P,
    from: Time,
    args: &Args,
    mut make: impl FnMut(u64, Buffer) -> P::Cmd,
    end: impl Fn(P::Done) -> (Time, u64, Buffer),
) -> (Time, u64) {
    let blocks = args.bytes / BLOCK_BYTES;
    let mut free = Buffer::carve(args.depth, (blocks * u64::from(args.kept)) as usize).unwrap();
    let (mut cmds, mut dones) = (Ring::new(args.depth), Ring::new(args.depth));
    let (mut now, mut sum, mut sent, mut ended) = (from, 0, 0, 0);
    let mut begun = vec![Time::ZERO; args.count as usize];
    while ended < args.count {
        while sent < args.count
            && let Some(buffer) = free.pop()
        {
            begun[sent as usize] = now;
            cmds.put(|| make(sent, buffer));
            sent += 1;
        }
        port.submit(now, &mut cmds);
        now = now.max(port.next_event().expect("something is under way"));
        port.advance(now, &mut dones);
        while let Some(done) = dones.pop() {
            let (at, id, buffer) = end(done);
            sum += at - begun[id as usize];
            free.push(buffer);
            ended += 1;
        }
    }
    (now, sum)
}

fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn kv(args: &Args) -> (Time, Time, u64, u64) {
    let (dim, profile) = data(args);
    let dim = Dimensions { chunks: dim.chunks + 8, ..dim };
    let geometry = Geometry::new(dim).expect("it fits");
    let device = device(dim, &profile, args.kept);
    let config = KvConfig { keys: 2 * args.count, ..KvConfig::for_geometry(&geometry) };
    let mut kv = Kv::new(device, config).expect("a target");
    let make = |op| {
        move |id: u64, value: Buffer| {
            let mut key = Buffer::zeroed(8).expect("memory");
            key.bytes_mut().copy_from_slice(&id.to_le_bytes());
            let len = if op == KvOp::Get { 0 } else { args.bytes };
            KvReq { id, op, durable: false, key, len, value }
        }
    };
    let end = |done: port::KvDone| {
        assert!(done.status.is_ok(), "{}", done.status);
        (done.at, done.id, done.value)
    };
    let before = cpu();
    let (at, sum) = drive(&mut kv, Time::ZERO, args, make(KvOp::Put(PutIf::Any)), end);
    if !args.is_get {
        return (Time::ZERO, at, sum, cpu() - before);
    }
    let before = cpu();
    let (end, sum) = drive(&mut kv, at, args, make(KvOp::Get), end);
    (at, end, sum, cpu() - before)
}

fn pblk(args: &Args) -> (Time, Time, u64, u64) {
    let (dim, profile) = data(args);
    let device = device(with_reserve(dim), &profile, args.kept);
    let config = PblkConfig::new(args.count * args.bytes, dim.chunks, 1);
    let mut pblk = Pblk::new(device, config).expect("a target");
    assert!(
        args.bytes <= pblk.shape().max_bytes,
        "writes of {} bytes at most",
        pblk.shape().max_bytes
    );
    let make = |op| {
        move |id: u64, buffer: Buffer| BlockReq::new(id, op, id * args.bytes, args.bytes, buffer)
    };
    let end = |done: port::BlockDone| {
        assert!(done.status.is_ok(), "{}", done.status);
        (done.at, done.id, done.buffer)
    };
    let before = cpu();
    let (at, sum) = drive(&mut pblk, Time::ZERO, args, make(BlockOp::Write), end);
    if !args.is_get {
        return (Time::ZERO, at, sum, cpu() - before);
    }
    let before = cpu();
    let (end, sum) = drive(&mut pblk, at, args, make(BlockOp::Read), end);
    (at, end, sum, cpu() - before)
}

fn main() {
    let Some((target, args)) = parse() else {
        eprintln!(
            "kv_speed kv|pblk [profile=NAME] [kept=4096|8|0] [depth=N] [count=N] [mib=N] [op=put|get]"
        );
        exit(2);
    };
    let (from, to, sum, cpu) = match target.as_str() {
        "kv" => kv(&args),
        "pblk" => pblk(&args),
        _ => exit(2),
    };
    let (bytes, count) = ((args.count * args.bytes) as f64, args.count as f64);
    println!(
        "{target}: {:.1} MB/s, mean {:.1} us, {:.1} us of the processor a request",
        bytes / (to - from).max(1) as f64 * 1e3,
        sum as f64 / count / 1e3,
        cpu as f64 / count / 1e3,
    );
}
