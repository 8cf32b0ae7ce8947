//! Requests through a target of the library, in drive time, without a front.
//!
//! Guarantees: so many at once, and each once. Fails where one fails, or the port stands
//! still.

use drive::error::Error;
use flash::{Dimensions, Geometry, Profile};
use port::{Buffer, Port, Ring, Status, Time};
use targets::PblkConfig;

/// Sends `count` requests, one for each of `buffers` at once, from `from` on. `make` makes
/// the request of a number; `end` tells how one ended, and gives its buffer back. Gives
/// when the last ended.
pub fn send<P: Port>(
    port: &mut P,
    from: Time,
    count: u64,
    buffers: &mut Vec<Buffer>,
    make: impl FnMut(u64, Buffer) -> P::Cmd,
    end: impl FnMut(P::Done) -> (Status, Buffer),
) -> Result<Time, Error> {
    begin(port, from, [count, count], buffers, make, end)
}

/// The same, but gives as soon as `until` of them have ended, while others are on their way.
pub fn begin<P: Port>(
    port: &mut P,
    from: Time,
    [count, until]: [u64; 2],
    buffers: &mut Vec<Buffer>,
    mut make: impl FnMut(u64, Buffer) -> P::Cmd,
    mut end: impl FnMut(P::Done) -> (Status, Buffer),
) -> Result<Time, Error> {
    let (mut cmds, mut done) = (Ring::new(buffers.len()), Ring::new(buffers.len()));
    let (mut now, mut sent, mut ended) = (from, 0, 0);
    while ended < until {
        while sent < count
            && let Some(buffer) = buffers.pop()
        {
            cmds.put(|| make(sent, buffer));
            sent += 1;
        }
        port.submit(now, &mut cmds);
        let Some(at) = port.next_event() else {
            return Err(Error::Failed("a target has requests and completes none".into()));
        };
        now = now.max(at);
        port.advance(now, &mut done);
        while let Some(one) = done.pop() {
            let (status, buffer) = end(one);
            if !status.is_ok() {
                return Err(Error::Failed(format!("a request failed: {status}")));
            }
            buffers.push(buffer);
            ended += 1;
        }
    }
    Ok(now)
}

/// A built-in profile, and what has so many bytes of flash for data, of its units.
pub fn data(profile: &str, bytes: u64) -> Result<(Profile, Dimensions), Error> {
    let profile = Profile::builtin(profile)
        .ok_or_else(|| Error::Usage(format!("there is no profile {profile}")))?;
    let one = Dimensions { chunks: 1, ..profile.dimensions };
    let of_chunks = geometry(one)?.blocks() * port::BLOCK_BYTES;
    let chunks = bytes.div_ceil(of_chunks) as u32 + 4;
    let dimensions = Dimensions { chunks, ..profile.dimensions };
    Ok((profile, dimensions))
}

/// The geometry of these numbers.
pub fn geometry(dimensions: Dimensions) -> Result<Geometry, Error> {
    Geometry::new(dimensions).map_err(|e| Error::Usage(e.to_string()))
}

/// A page-mapped target of `bytes`, with nothing that is not asked for.
pub fn pblk_config(bytes: u64, data: &Dimensions, seed: u64) -> PblkConfig {
    PblkConfig::new(bytes, data.chunks, seed)
}
