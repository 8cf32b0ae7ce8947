//! Every command, against a model, over both kinds of socket.

use std::sync::atomic::Ordering;

use exports::nbd::protocol::{self, EINVAL, EIO, ENOSPC, OK};
use exports::nbd::{Client, ClientError, ListenAddr};
use port::random::Random;
use port::{BlockOp, BlockReq, Shape};

use super::ram::{BAD, Ram};
use super::{SHAPE, ask, ask_fua, read, serve, serve_on, write};

const BIG: Shape = Shape { bytes: 4 << 20, ..SHAPE };

/// Random requests of all kinds, several in flight on disjoint ranges.
fn against_model(client: &mut Client, seed: u64, rounds: usize) -> Vec<u8> {
    const LANES: u64 = 8;
    let mut dice = Random::new(seed, 0);
    let mut model = vec![0u8; BIG.bytes as usize];
    let lane = BIG.bytes / LANES;
    for round in 0..rounds {
        let mut expected = Vec::new();
        for i in 0..LANES {
            let sectors = if dice.below(8) == 0 { lane / 512 } else { 24 };
            let len = (1 + dice.below(sectors)) * 512;
            // Lane 0 begins past the address that cannot be read.
            let low = if i == 0 { BAD + 512 } else { i * lane };
            let high = (i + 1) * lane;
            let len = len.min(high - low);
            let offset = low + dice.below((high - low - len) / 512 + 1) * 512;
            let range = offset as usize..(offset + len) as usize;
            let fua = dice.below(3) == 0;
            let data: Vec<u8> = (0..len).map(|j| (j / 7 + round as u64 * 31 + i) as u8).collect();
            let (op, data) = match dice.below(8) {
                0..3 => (BlockOp::Read, vec![]),
                3..6 => (BlockOp::Write, data),
                6 => (BlockOp::Trim, vec![]),
                _ => (BlockOp::WriteZeroes, vec![]),
            };
            client.submit(op, offset, len, fua, i, &data).unwrap();
            expected.push(match op {
                BlockOp::Read => model[range].to_vec(),
                BlockOp::Write => {
                    model[range].copy_from_slice(&data);
                    vec![]
                }
                _ => {
                    model[range].fill(0);
                    vec![]
                }
            });
        }
        client.flush_sends().unwrap();
        while client.outstanding() > 0 {
            let each = &mut |cookie: u64, error: u32, data: &[u8]| {
                assert_eq!(error, OK);
                assert!(data == expected[cookie as usize], "round {round} lane {cookie}");
            };
            client.recv(each).unwrap();
        }
    }
    model
}

#[test]
fn a_random_mix_equals_the_model_over_unix_and_tcp() {
    let latencies: [fn(&BlockReq) -> u64; 2] = [|_| 0, |r| r.offset / 512 % 7 * 20_000];
    for (seed, latency) in latencies.into_iter().enumerate() {
        let mut model = Vec::new();
        let seed = seed as u64;
        let (_, ram) = serve(Ram::new(BIG, latency), |rig| {
            model = against_model(&mut rig.client(), seed, 150);
        });
        assert!(ram.data == model);
        let tcp = ListenAddr::Tcp("127.0.0.1:0".parse().unwrap());
        let (_, ram) = serve_on(&tcp, Ram::new(BIG, latency), |rig| {
            model = against_model(&mut rig.client(), seed + 10, 100);
        });
        assert!(ram.data == model);
    }
}

#[test]
fn the_longest_request_goes_through() {
    const HUGE: Shape = Shape { bytes: 64 << 20, ..SHAPE };
    serve(Ram::new(HUGE, |_| 0), |rig| {
        let mut c = rig.client();
        let data: Vec<u8> = (0..32u32 << 20).map(|i| (i / 4093) as u8).collect();
        write(&mut c, 1 << 20, &data);
        assert!(read(&mut c, 1 << 20, 32 << 20) == data);
        assert!(matches!(
            c.submit(BlockOp::Read, 0, (32 << 20) + 512, false, 0, &[]),
            Err(ClientError::TooLong(_))
        ));
        // Two at once do not fit in the buffers: the second waits.
        for cookie in 0..2 {
            c.submit(BlockOp::Read, 1 << 20, 32 << 20, false, cookie, &[]).unwrap();
        }
        c.flush_sends().unwrap();
        while c.outstanding() > 0 {
            c.recv(&mut |_, error, got| assert!(error == OK && got == data)).unwrap();
        }
    });
}

#[test]
fn bad_requests_get_their_error_and_harm_nothing() {
    let (report, _) = serve(Ram::new(SHAPE, |_| 0), |rig| {
        let mut c = rig.client();
        let end = SHAPE.bytes;
        let mut error = |op, offset, len, data: &[u8]| ask(&mut c, op, offset, len, data).0;
        assert_eq!(error(BlockOp::Read, end, 512, &[]), EINVAL);
        assert_eq!(error(BlockOp::Read, 100, 512, &[]), EINVAL);
        assert_eq!(error(BlockOp::Read, 0, 100, &[]), EINVAL);
        assert_eq!(error(BlockOp::Read, u64::MAX - 511, 512, &[]), EINVAL);
        assert_eq!(error(BlockOp::Write, end - 512, 1024, &[1; 1024]), ENOSPC);
        assert_eq!(error(BlockOp::Write, 3, 1024, &[1; 1024]), EINVAL);
        assert_eq!(error(BlockOp::Write, 0, 300_001, &[1; 300_001]), EINVAL);
        assert_eq!(error(BlockOp::WriteZeroes, end, 512, &[]), ENOSPC);
        assert_eq!(error(BlockOp::Trim, end, 512, &[]), EINVAL);
        assert_eq!(error(BlockOp::Trim, 0, u64::from(u32::MAX), &[]), EINVAL);
        assert_eq!(error(BlockOp::Flush, 0, 512, &[]), EINVAL);
        assert_eq!(error(BlockOp::Read, BAD, 512, &[]), EIO);
        assert_eq!(error(BlockOp::Read, BAD - (64 << 10), 128 << 10, &[]), EIO);
        assert_eq!(rig.probe.dirty.load(Ordering::SeqCst), 0);
        assert_eq!(read(&mut c, 0, 4096), [0; 4096]);
        c.close().unwrap();
    });
    assert_eq!((report.connections, report.faults, report.refused), (1, 0, 0));
}

#[test]
fn fua_is_durable_and_a_flush_covers_every_connection() {
    serve(Ram::new(SHAPE, |_| 5_000), |rig| {
        let (mut a, mut b) = (rig.client(), rig.client());
        assert_ne!(a.flags() & protocol::CAN_MULTI_CONN, 0);
        let dirty = || rig.probe.dirty.load(Ordering::SeqCst);
        // Longer than the drive takes at once: every part must be durable.
        let data = vec![7; 256 << 10];
        let done = ask_fua(&mut a, BlockOp::Write, 0, data.len() as u64, true, &data);
        assert_eq!((done.0, dirty()), (OK, 0));
        write(&mut a, 0, &data);
        assert_eq!(dirty(), 512);
        assert_eq!(ask_fua(&mut b, BlockOp::Trim, 0, 8192, true, &[]).0, OK);
        assert_eq!(dirty(), 496);
        assert_eq!(ask_fua(&mut b, BlockOp::WriteZeroes, 8192, 8192, true, &[]).0, OK);
        assert_eq!(dirty(), 480);
        assert_eq!(ask(&mut b, BlockOp::Flush, 0, 0, &[]).0, OK);
        assert_eq!(dirty(), 0);
        assert_eq!(read(&mut b, 0, 32 << 10), [vec![0; 16 << 10], vec![7; 16 << 10]].concat());
    });
}

#[test]
fn a_drive_without_data_reads_as_zeros() {
    let nothing = Shape { kept: 0, bytes: 1 << 30, ..SHAPE };
    serve(Ram::new(nothing, |_| 0), |rig| {
        let mut c = rig.client();
        assert_eq!(c.unit(), 4096);
        write(&mut c, 1 << 20, &vec![9; 1 << 20]);
        assert!(read(&mut c, 1 << 20, 1 << 20).iter().all(|&b| b == 0));
        assert_eq!(ask(&mut c, BlockOp::Write, 512, 512, &[1; 512]).0, EINVAL);
        assert_eq!(read(&mut c, 4096, 4096), [0; 4096]);
        assert_eq!(ask(&mut c, BlockOp::Flush, 0, 0, &[]).0, OK);
    });
}
