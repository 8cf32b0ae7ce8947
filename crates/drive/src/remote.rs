//! Remote drives of drives made of rules: `remote=` in a drive's name.
//!
//! One in memory is a drive of this process, in the time of the drive before it, made with
//! that. One that is served elsewhere answers in real time, so that only a drive on a clock
//! has it. Fails where the one cannot be made, or the other not reached.

use std::net::{SocketAddr, ToSocketAddrs};

use exports::nbd::{Client, ListenAddr, Remote as Served, Waiter};
use port::{BlockDone, BlockReq, Port, Ring, Shape, Time, random};
use ruled::{Remote, RemoteDrive, RemoteError};

use crate::error::Error;
use crate::say::say;
use crate::spec::{DriveConfig, NbdAddress, RemoteConfig};
use crate::stack;
use crate::whole::Boxed;

/// The remote drives of a drive whose medium keeps so many bytes of each block.
pub(crate) fn of(config: &DriveConfig, seed: u64, kept: u32) -> Result<Vec<RemoteDrive>, Error> {
    let seed = seed.wrapping_add(random::STEP);
    let Some(remote) = config.remote.clone() else { return Ok(Vec::new()) };
    let drive = match remote {
        RemoteConfig::Memory(config) => {
            stack::needs_blocks(&config)?;
            RemoteDrive::new(move || {
                let drive = stack::build_keeping(&config, seed, kept)?;
                Ok(Box::new(Near(drive)))
            })
        }
        RemoteConfig::Nbd { served, on_a_clock: false } => {
            return Err(Error::Usage(format!(
                "{}: the remote drive {served} answers in real time, and this drive's time is \
                 virtual: serve this one, or give --clock real to bench, or take remote=mem:",
                config.name
            )));
        }
        RemoteConfig::Nbd { served, on_a_clock: true } => RemoteDrive::new(move || {
            let connect = |at: &_| Client::connect_with(at, &served.export, Waiter::default());
            let client = first_of(&resolve(&served.address)?, connect)?;
            Ok(Box::new(Far(Served::new(client)?, false)))
        }),
    };
    Ok(vec![drive])
}

/// One in this process.
struct Near(Boxed);

/// One that is served; and whether it was told that it is lost.
struct Far(Served, bool);

/// Of a remote drive that is a port already.
macro_rules! is_a_port {
    ($remote:ty, $looks:expr) => {
        impl Port for $remote {
            type Cmd = BlockReq;
            type Done = BlockDone;

            fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
                self.0.submit(now, cmds);
            }

            fn next_event(&self) -> Option<Time> {
                self.0.next_event()
            }

            fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
                self.0.advance(to, done);
                let looks: fn(&mut $remote) = $looks;
                looks(self);
            }
        }
    };
}

is_a_port!(Near, |_| {});
is_a_port!(Far, Far::tell);

impl Far {
    /// Tells once that it is lost.
    fn tell(&mut self) {
        if let Some(e) = self.0.lost().filter(|_| !self.1) {
            let until = "requests that it has fail until both are served again";
            say(format!("the remote drive is lost: {e}; {until}"));
            self.1 = true;
        }
    }
}

impl Remote for Near {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn end(self: Box<Self>, now: Time) -> Result<(), RemoteError> {
        self.0.end(now)?.put_away()?;
        Ok(())
    }
}

impl Remote for Far {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn end(self: Box<Self>, _now: Time) -> Result<(), RemoteError> {
        Ok(self.0.close()?)
    }
}

/// Where an address leads to: all that a host's name stands for, at least one.
/// Fails when the host has no address.
pub fn resolve(address: &NbdAddress) -> Result<Vec<ListenAddr>, Error> {
    match address {
        NbdAddress::Unix(path) => Ok(vec![ListenAddr::Unix(path.into())]),
        NbdAddress::Tcp(host, port) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let found: Vec<SocketAddr> =
                (bare, *port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
            if found.is_empty() {
                let text = format!("the host `{host}` has no address: check its name");
                return Err(Error::Failed(text));
            }
            Ok(found.into_iter().map(ListenAddr::Tcp).collect())
        }
    }
}

/// Does `f` with each of some addresses until it succeeds. Fails as the last.
pub fn first_of<T, E>(
    addresses: &[ListenAddr],
    mut f: impl FnMut(&ListenAddr) -> Result<T, E>,
) -> Result<T, Error>
where
    E: std::fmt::Display,
{
    let mut last = Error::Failed("there is no address".into());
    for address in addresses {
        match f(address) {
            Ok(done) => return Ok(done),
            Err(e) => last = Error::Failed(e.to_string()),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;
    use crate::whole::Ended;
    use port::{BLOCK_BYTES, BlockOp, Buffer};

    const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rules/cache.rules");
    const SLOW: &str = "mem:qlc,size=64M,pages=16";

    fn config(fast: &str, slow: &str) -> Result<DriveConfig, String> {
        let name = format!("mem:znand,size=32M,groups=2,pus=2,pages=16,target=rules{fast}");
        let spec = format!("{name},rules={RULES}{slow}").parse().map_err(|e| format!("{e}"))?;
        let DriveSpec::Memory(spec) = spec else { panic!("{name}") };
        assert_eq!(spec.to_string().parse::<DriveSpec>().unwrap(), DriveSpec::Memory(spec.clone()));
        spec.resolve().map_err(|e| Error::from(e).to_string())
    }

    fn request(id: u64, op: BlockOp, lba: u64, stamp: u64) -> BlockReq {
        let has_data = matches!(op, BlockOp::Read | BlockOp::Write);
        let len = if op == BlockOp::Flush { 0 } else { BLOCK_BYTES };
        let mut buffer = Buffer::zeroed(if has_data { len as usize } else { 0 }).unwrap();
        if op == BlockOp::Write {
            buffer.bytes_mut()[..8].copy_from_slice(&stamp.to_le_bytes());
        }
        let (offset, fua, placement, queue) = (lba * BLOCK_BYTES, false, 0, 0);
        BlockReq { id, op, fua, placement, queue, offset, len, buffer }
    }

    /// One request. What a block begins with, and how long it took.
    fn act(drive: &mut Boxed, now: &mut Time, op: BlockOp, lba: u64, stamp: u64) -> (u64, u64) {
        let (mut cmds, mut done, began) = (Ring::new(1), Ring::new(1), *now);
        cmds.put(|| request(0, op, lba, stamp));
        drive.submit(*now, &mut cmds);
        loop {
            let at = drive.next_event().expect("it is inside");
            *now = at.max(*now);
            drive.advance(at, &mut done);
            if let Some(done) = done.pop() {
                assert!(done.status.is_ok(), "{op:?} of {lba}: {}", done.status);
                let first = done.buffer.bytes().first_chunk().copied().unwrap_or_default();
                return (u64::from_le_bytes(first), done.at.since(began));
            }
        }
    }

    /// The set that comes with the program, as it stands, before a slow drive: what is read
    /// again comes faster, is what was written, and no more so when it is written again.
    #[test]
    fn a_cache_before_a_slow_drive() {
        let config = config("", &format!(",remote={SLOW}")).unwrap();
        let mut drive = stack::build(&config, 1).unwrap();
        assert_eq!(drive.shape().bytes, 64 << 20, "it shows the slow drive's capacity");
        let (mut now, blocks) = (Time::ZERO, 0..400);
        for lba in blocks.clone() {
            act(&mut drive, &mut now, BlockOp::Write, lba, 1000 + lba);
        }
        act(&mut drive, &mut now, BlockOp::Flush, 0, 0);
        let pass = |drive: &mut Boxed, now: &mut Time, base: u64| {
            let read = |lba: u64| {
                let (stamp, took) = act(drive, now, BlockOp::Read, lba, 0);
                assert_eq!(stamp, base + lba);
                took
            };
            blocks.clone().map(read).sum::<u64>() / 400
        };
        let took: Vec<u64> = (0..4).map(|_| pass(&mut drive, &mut now, 1000)).collect();
        assert!(took[..3].iter().all(|&ns| ns > 3 * took[3]), "{took:?}");
        for lba in 0..400 {
            act(&mut drive, &mut now, BlockOp::Write, lba, 5000 + lba);
        }
        assert!(pass(&mut drive, &mut now, 5000) > 0);
        let Ended { shards, .. } = drive.end(now).unwrap();
        assert_eq!(shards.len(), 1);
    }

    /// Blocks are read while they are written, many at once: none gives what is older than
    /// what was written before it was asked for, and many are read here.
    #[test]
    fn beside_writes_to_the_same_blocks() {
        let config = config("", &format!(",remote={SLOW}")).unwrap();
        let mut drive = stack::build(&config, 1).unwrap();
        let (mut cmds, mut done, mut now) = (Ring::new(64), Ring::new(64), Time::ZERO);
        let mut random = random::Random::new(3, 3);
        // By block, what was written last and what is being written.
        let mut blocks = [(0_u64, None::<u64>); 24];
        // By request, its block and the least that a read may give.
        let mut inside: Vec<Option<(usize, BlockOp, u64)>> = vec![None; 16];
        for n in 0..20_000_u64 {
            while let Some(slot) = inside.iter().position(Option::is_none) {
                let lba = random.below(24) as usize;
                let is_write = random.below(8) == 0 && blocks[lba].1.is_none();
                let op = if is_write { BlockOp::Write } else { BlockOp::Read };
                if is_write {
                    blocks[lba].1 = Some(n + 1);
                }
                inside[slot] = Some((lba, op, blocks[lba].0));
                cmds.put(|| request(slot as u64, op, lba as u64, n + 1));
            }
            drive.submit(now, &mut cmds);
            now = drive.next_event().expect("something is inside");
            drive.advance(now, &mut done);
            while let Some(one) = done.pop() {
                assert!(one.status.is_ok());
                let (lba, op, least) = inside[one.id as usize].take().unwrap();
                let newest = blocks[lba].1.unwrap_or(blocks[lba].0);
                if op == BlockOp::Write {
                    blocks[lba] = (newest, None);
                } else {
                    let saw = u64::from_le_bytes(*one.buffer.bytes().first_chunk().unwrap());
                    assert!((least..=newest).contains(&saw), "{lba}: {saw} of {least}..={newest}");
                }
            }
        }
        let rules = drive.rules().unwrap().rules();
        let hits = rules.hits().of(0);
        assert_eq!(rules.set().rules[0].name.text, "hit");
        assert!(hits > 1000, "{hits}");
    }

    /// As many as there may be make a drive; more are refused, however many, before any name is
    /// read within another.
    #[test]
    fn remote_drives_of_remote_drives_are_few() {
        let between = format!(",remote={SLOW},target=rules,rules={RULES}");
        let chain = |n: usize| config("", &format!("{},remote={SLOW}", between.repeat(n - 1)));
        let mut drive = stack::build(&chain(4).unwrap(), 1).unwrap();
        let mut now = Time::ZERO;
        act(&mut drive, &mut now, BlockOp::Write, 5, 77);
        assert_eq!(act(&mut drive, &mut now, BlockOp::Read, 5, 0).0, 77);
        for n in [5, 10_000] {
            let told = chain(n).unwrap_err();
            assert!(told.contains("one behind the other: at most 4"), "{told}");
            assert!(told.len() < 200, "{told}");
        }
    }

    /// What cannot be is refused, and what to do is said.
    #[test]
    fn what_cannot_be_a_remote_drive_is_refused() {
        for (fast, slow, says) in [
            ("", ",remote=slow.ssd", "by ssdkit serve"),
            ("", ",remote=null:", "by ssdkit serve"),
            ("", ",remote=mem:tlc,size=64M,store=none", "the same store"),
            (",store=checksum", ",remote=nbd:./a.sock", "the same store"),
            ("", ",remote=mem:tlc,sise=64M", "did you mean `size`"),
            (",remote=mem:tlc", "", "as the last key"),
        ] {
            let told = config(fast, slow).map(|_| ()).unwrap_err();
            assert!(told.contains(says), "{slow}: {told}");
        }
        for name in ["mem:tlc,size=64M", "mem:tlc,size=64M,target=rules"] {
            let spec = format!("{name},remote=mem:tlc,size=64M").parse::<DriveSpec>();
            let Ok(DriveSpec::Memory(spec)) = spec else { panic!("it is a name") };
            let told = spec.resolve().map(|_| ()).unwrap_err().to_string();
            assert!(told.contains("only with target=rules and a rules=FILE"), "{told}");
        }
        let far = config("", ",remote=nbd:./a.sock").unwrap();
        let told = stack::build(&far, 1).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("answers in real time"), "{told}");
        let pages = config("", ",remote=mem:tlc,size=64M,target=batch").unwrap();
        let told = stack::build(&pages, 1).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("no blocks"), "{told}");
        let near = config("", &format!(",remote={SLOW}")).unwrap();
        let told = crate::spec::file::header(&near, 1).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("a drive file names no remote drive"), "{told}");
        let none = config("", "").unwrap();
        let told = stack::build(&none, 1).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("rule keep: this target does not"), "{told}");
    }
}
