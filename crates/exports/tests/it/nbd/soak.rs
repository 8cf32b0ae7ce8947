//! Random attacks on the NBD server.

use std::time::Duration;

use exports::Limits;
use exports::nbd::ListenAddr;
use exports::nbd::protocol::*;
use port::Shape;

use super::ram::Ram;
use super::{SHAPE, read, serve_with, socket, write};
use crate::soak::{Attacker, Dice, attacks, soak};

/// What the working client has for itself, in bytes.
const OURS: u64 = 1 << 20;
const BYTES: u64 = 64 << 20;

/// A request that may be right; never a write to what is the working client's.
fn request(dice: &mut Dice) -> Vec<u8> {
    let command = *dice.one(&[
        CMD_READ,
        CMD_READ,
        CMD_READ,
        CMD_WRITE,
        CMD_WRITE,
        CMD_TRIM,
        CMD_WRITE_ZEROES,
        CMD_FLUSH,
        99,
        CMD_DISC,
    ]);
    let most = *dice.one(&[512, 4096, 65536, 1 << 20, u64::from(MAX_REQUEST), BYTES]);
    let len = match dice.roll(20) {
        0 => dice.roll(1 << 32),
        _ => (dice.roll(most) + 1).next_multiple_of(512),
    };
    let offset = match dice.roll(20) {
        0 => dice.roll(u64::MAX).max(OURS),
        _ => OURS + dice.roll(BYTES) / 512 * 512,
    };
    let (offset, len) = match command {
        CMD_FLUSH if dice.roll(4) > 0 => (0, 0),
        // A long write is seldom sent whole.
        CMD_WRITE if dice.roll(10) > 0 => (offset, len.min(16 << 10)),
        _ => (offset, len),
    };
    let flags = if dice.roll(10) == 0 { dice.roll(1 << 16) as u16 } else { 0 };
    let mut all = Request { flags, command, cookie: dice.roll(1 << 40), offset, len: len as u32 }
        .to_bytes()
        .to_vec();
    if command == CMD_WRITE {
        let data = len.min(64 << 10) as usize;
        all.resize(all.len() + if dice.roll(10) == 0 { data / 2 } else { data }, 0x5a);
    }
    all
}

fn option(dice: &mut Dice) -> Vec<u8> {
    let mut data = Vec::new();
    match dice.roll(3) {
        0 => InfoRequest::write(b"", &[INFO_BLOCK_SIZE], &mut data),
        1 => data.resize(dice.roll(70_000) as usize, 1),
        _ => {}
    }
    let option = *dice.one(&[OPT_GO, OPT_INFO, OPT_LIST, OPT_ABORT, OPT_EXPORT_NAME, 8, 99]);
    let len = if dice.roll(10) == 0 { dice.roll(1 << 32) as u32 } else { data.len() as u32 };
    [OptionHeader { option, len }.to_bytes().to_vec(), data].concat()
}

/// Enters transmission.
fn go() -> Vec<u8> {
    let mut data = Vec::new();
    InfoRequest::write(b"", &[], &mut data);
    let head = OptionHeader { option: OPT_GO, len: data.len() as u32 }.to_bytes();
    [&3u32.to_be_bytes()[..], &head, &data].concat()
}

fn attack(dice: &mut Dice, client: &mut Attacker) {
    let garbage = |dice: &mut Dice| -> Vec<u8> {
        (0..dice.roll(200)).map(|_| dice.roll(256) as u8).collect()
    };
    match (client.stage, dice.roll(100)) {
        (_, 0..2) => client.leave(),
        (_, 2..4) => client.send(&garbage(dice)),
        (0, 4..20) => {
            client.send(&3u32.to_be_bytes());
            client.stage = 1;
        }
        (0, _) => {
            client.send(&go());
            client.stage = 2;
        }
        (1, 4..50) => client.send(&option(dice)),
        (1, _) => {
            client.send(&go()[4..]);
            client.stage = 2;
        }
        (_, 4..14) => {
            let one = request(dice);
            client.send(&one.repeat(dice.roll(30) as usize));
        }
        (_, 14..18) => {
            let one = request(dice);
            client.send(&one[..dice.roll(one.len() as u64) as usize]);
        }
        (_, 18..50) => client.take(dice.roll(2 << 20) as usize),
        _ => client.send(&request(dice)),
    }
}

attacks!(attack_it);

fn attack_it() {
    let limits = Limits {
        clients: 64,
        memory: 128 << 20,
        greeting: Duration::from_millis(200),
        // The client that works may get no processor for a while.
        idle: Duration::from_secs(60),
        ..Limits::default()
    };
    let (_dir, path) = socket();
    let shape = Shape { bytes: BYTES, ..SHAPE };
    let addr = ListenAddr::Unix(path.clone());
    let ram = Ram::new(shape, |r| r.offset % 7 * 1000);
    let (report, _) = serve_with(&addr, limits, ram, |rig| {
        let mut client = rig.client();
        // Past the address that cannot be read.
        let place = |n: u64| (128 << 10) + n % 50 * 8192;
        let data = |n: u64| vec![(n % 251) as u8; 4096 + n as usize % 3 * 512];
        soak(&path, attack, move |n| {
            if n / 50 % 2 == 0 {
                write(&mut client, place(n), &data(n));
            } else {
                let expected = data(n - 50);
                assert!(read(&mut client, place(n), expected.len() as u64) == expected);
            }
        });
    });
    println!("{report:?}");
}
