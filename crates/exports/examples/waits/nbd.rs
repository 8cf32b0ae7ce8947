//! Attacks on an NBD server.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use device::{Device, Link};
use exports::SharedDrive;
use exports::nbd::protocol::*;
use exports::nbd::{Client, Export, Exports, ListenAddr, Server, StopHandle};
use flash::{Dimensions, Geometry, Profile, RamMedium};
use port::BlockOp;
use targets::{Pblk, PblkConfig, Victim, with_reserve};

use crate::{Dice, Outcome, Table};

/// Chunks of a unit of the drive, and of one where a trim can have 4 GiB.
const CHUNKS: u32 = 20;
const MANY_CHUNKS: u32 = 200;
/// Bytes of its beginning that are written.
const WRITTEN: u64 = 256 << 20;
const MIB: u32 = 1 << 20;

/// A server of a drive of Z-NAND. Its memory is taken before, as that of `here` may
/// come slowly from the system, and everybody would wait for it.
fn serve_chunks(addr: &ListenAddr, stop: &StopHandle, chunks: u32, whole: bool) -> Outcome {
    let profile = Profile::builtin("znand").ok_or("no such drive")?;
    let data = Dimensions { chunks, ..profile.dimensions };
    let geometry = Geometry::new(with_reserve(data))?;
    let mut medium = RamMedium::new(&geometry, 4096)?;
    if whole {
        medium.populate(geometry.blocks(), 0, || true);
    }
    let device = Device::new(&geometry, &profile.timing, medium)?;
    let bytes = Geometry::new(data)?.blocks() * 4096 * 4 / 5;
    let config = PblkConfig {
        bytes,
        data_chunks: chunks,
        idle: 0,
        streams: 1,
        map_pages: 0,
        write_buffer: 0,
        idle_collection: 0,
        victim: Victim::Greedy,
        seed: 1,
    };
    let target = Pblk::new(device, config)?;
    let export = Exports::new(Export::new(target.shape())?);
    let drive = Link::new(profile.link, target);
    Server::bind(addr)?.run(&export, &SharedDrive::new(drive), stop)?;
    Ok(())
}

/// A server of a drive of 512 MiB.
pub fn serve(addr: &ListenAddr, stop: &StopHandle) -> Outcome {
    serve_chunks(addr, stop, CHUNKS, true)
}

/// A server of a drive of 5 GiB.
pub fn serve_large(addr: &ListenAddr, stop: &StopHandle) -> Outcome {
    serve_chunks(addr, stop, MANY_CHUNKS, false)
}

/// A connection after the negotiation.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let mut sock = loop {
        match UnixStream::connect(path) {
            // The line of those who come is full.
            Err(e) if e.kind() == ErrorKind::WouldBlock => sleep(Duration::from_millis(1)),
            tried => break tried?,
        }
    };
    sock.set_read_timeout(Some(Duration::from_secs(60)))?;
    sock.read_exact(&mut [0; 18])?;
    let mut data = Vec::new();
    InfoRequest::write(b"", &[], &mut data);
    let head = OptionHeader { option: OPT_GO, len: data.len() as u32 }.to_bytes();
    sock.write_all(&[&3u32.to_be_bytes()[..], &head, &data].concat())?;
    loop {
        let mut head = [0; OptionReply::LEN];
        sock.read_exact(&mut head)?;
        let Some(reply) = OptionReply::parse(&head) else {
            return Err(ErrorKind::InvalidData.into());
        };
        sock.read_exact(&mut vec![0; reply.len as usize])?;
        if reply.kind == REP_ACK {
            return Ok(sock);
        }
    }
}

/// Some connections; fewer where the server takes no more.
fn connect_all(path: &Path, count: usize) -> Vec<UnixStream> {
    (0..count).filter_map(|_| connect(path).ok()).collect()
}

fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
    let data = if command == CMD_WRITE { len as usize } else { 0 };
    let mut all = Request { flags: 0, command, cookie: 1, offset, len }.to_bytes().to_vec();
    all.resize(all.len() + data, 7);
    all
}

/// Requests of `len` bytes at random places, as one run of bytes.
fn requests(command: u16, len: u32, count: usize) -> Vec<u8> {
    let (mut dice, units) = (Dice(7), WRITTEN / u64::from(len.max(1)));
    let one = |_| match command {
        CMD_FLUSH => request(command, 0, 0),
        _ => request(command, dice.below(units) * u64::from(len), len),
    };
    (0..count).flat_map(one).collect()
}

/// Bytes of the replies to requests of `len` bytes.
fn replied(command: u16, len: u32, count: usize) -> usize {
    (Reply::LEN + if command == CMD_READ { len as usize } else { 0 }) * count
}

/// Takes so many bytes from each.
fn take(socks: &mut [UnixStream], bytes: usize) {
    let mut to = vec![0; MIB as usize];
    for sock in socks {
        let mut left = bytes;
        while left > 0 {
            let most = left.min(to.len());
            // The server may have closed it.
            let Ok(n @ 1..) = sock.read(&mut to[..most]) else { break };
            left -= n;
        }
    }
}

/// So many clients that each send requests and take the replies.
fn ask(path: &Path, clients: usize, (command, len, count): (u16, u32, usize)) {
    let all = requests(command, len, count);
    scope(|scope| {
        for sock in connect_all(path, clients) {
            let (mut sends, all) = (sock.try_clone().expect("a descriptor"), &all);
            // The server may close it.
            scope.spawn(move || drop(sends.write_all(all)));
            scope.spawn(move || take(&mut [sock], replied(command, len, count)));
        }
    });
}

/// Writes the beginning of the drive.
fn write(client: &mut Client) -> Outcome {
    for at in (0..WRITTEN).step_by(MIB as usize) {
        client.submit(BlockOp::Write, at, MIB.into(), false, 1, &[1; MIB as usize])?;
        while client.outstanding() > 0 {
            client.recv(&mut |_, error, _| assert_eq!(error, OK))?;
        }
    }
    Ok(())
}

/// Reads 4 KiB somewhere in what was written.
fn read(client: &mut Client, dice: &mut Dice) {
    let at = dice.below(WRITTEN / 4096) * 4096;
    client.submit(BlockOp::Read, at, 4096, false, 1, &[]).expect("sent");
    while client.outstanding() > 0 {
        client.recv(&mut |_, error, _| assert_eq!(error, OK)).expect("a reply");
    }
}

/// Attacks with reads, writes and short trims on the server at `path`.
pub fn attack(path: &Path, table: &Table) -> Outcome {
    let mut client = Client::connect(&ListenAddr::Unix(path.into()))?;
    write(&mut client)?;
    let mut dice = Dice(1);
    let mut read = || read(&mut client, &mut dice);
    table.begin("NBD, beside");
    table.row("nobody", &mut read, || sleep(crate::LEAST));
    for (name, clients, what) in [
        ("16 clients with 40 reads of 2 MiB each", 16, (CMD_READ, 2 * MIB, 40)),
        ("16 clients with 40 writes of 2 MiB each", 16, (CMD_WRITE, 2 * MIB, 40)),
        ("4 clients with 8 reads of 32 MiB each", 4, (CMD_READ, 32 * MIB, 8)),
        ("4 clients with 8 writes of 32 MiB each", 4, (CMD_WRITE, 32 * MIB, 8)),
        ("64 clients with 256 reads of 4 KiB each", 64, (CMD_READ, 4096, 256)),
        ("64 clients with 256 writes of 4 KiB each", 64, (CMD_WRITE, 4096, 256)),
        ("16 clients with 256 flushes each", 16, (CMD_FLUSH, 0, 256)),
        ("100 clients with 40 trims of 256 MiB each", 100, (CMD_TRIM, WRITTEN as u32, 40)),
    ] {
        table.row(name, &mut read, || ask(path, clients, what));
    }
    for clients in [50, 200, 1000] {
        let (all, len) = (requests(CMD_READ, 2 * MIB, 2), replied(CMD_READ, 2 * MIB, 2));
        let mut socks = connect_all(path, clients);
        let name = format!("{clients} clients that ask for 2 times 2 MiB at once after a rest");
        table.row(&name, &mut read, || {
            socks.iter_mut().for_each(|sock| drop(sock.write_all(&all)));
            take(&mut socks, len);
            // Each was the last to have a turn, alone.
            for sock in &mut socks {
                let _ = sock.write_all(&requests(CMD_READ, 4096, 1));
                take(std::slice::from_mut(sock), replied(CMD_READ, 4096, 1));
            }
        });
    }
    table.row("200 clients that ask for 40 times 2 MiB and leave", &mut read, || {
        let all = requests(CMD_READ, 2 * MIB, 40);
        connect_all(path, 200).iter_mut().for_each(|sock| drop(sock.write_all(&all)));
    });
    Ok(())
}

/// Attacks with the longest trims and writes of zeros.
pub fn attack_long(path: &Path, table: &Table) -> Outcome {
    let mut client = Client::connect(&ListenAddr::Unix(path.into()))?;
    write(&mut client)?;
    let (mut dice, left) = (Dice(1), client.size() - WRITTEN);
    let longest = left.min((u32::MAX - 4095).into()) as u32;
    let mut read = || read(&mut client, &mut dice);
    table.begin("NBD, drive of 5 GiB, beside");
    for (name, command) in [("trims", CMD_TRIM), ("writes of zeros", CMD_WRITE_ZEROES)] {
        let all = request(command, WRITTEN, longest).repeat(200);
        table.row(
            &format!("200 {name} of 4 GiB at once, by who leaves after a second"),
            &mut read,
            || {
                let mut socks = connect_all(path, 1);
                socks.iter_mut().for_each(|sock| drop(sock.write_all(&all)));
                sleep(Duration::from_secs(1));
            },
        );
    }
    Ok(())
}
