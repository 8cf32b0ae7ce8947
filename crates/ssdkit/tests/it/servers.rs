//! `bench nbd:` against servers that others made: what they do not take is not
//! asked, and one that is lost costs nothing that was measured.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{JoinHandle, spawn};

use exports::nbd::protocol::*;
use serde_json::Value;

use crate::common::run;

/// A server of 1 MiB with these flags, whose requests have at most so many bytes. It
/// answers so many reads of 4 KiB, one at a time, and is gone.
fn serve(at: &Path, flags: u16, most: u32, reads: u32) -> JoinHandle<()> {
    let listener = UnixListener::bind(at).unwrap();
    let option = |kind: u32, data: &[u8]| {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend([OPT_GO, kind, data.len() as u32].map(u32::to_be_bytes).concat());
        bytes.extend(data);
        bytes
    };
    let mut hello = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let export =
        [&INFO_EXPORT.to_be_bytes()[..], &(1u64 << 20).to_be_bytes(), &flags.to_be_bytes()];
    hello.extend(option(REP_INFO, &export.concat()));
    let sizes = [512, 4096, most].map(u32::to_be_bytes).concat();
    hello.extend(option(REP_INFO, &[&INFO_BLOCK_SIZE.to_be_bytes()[..], &sizes].concat()));
    hello.extend(option(REP_ACK, &[]));
    let answer = move |sock: &mut UnixStream| {
        sock.write_all(&hello)?;
        // Its flags, and one option without a name that asks for one fact.
        sock.read_exact(&mut [0; 28])?;
        for _ in 0..reads {
            let mut request = [0; Request::LEN];
            sock.read_exact(&mut request)?;
            let cookie = u64::from_be_bytes(request[8..16].try_into().unwrap());
            sock.write_all(&Reply { error: OK, cookie }.to_bytes())?;
            sock.write_all(&[0; 4096])?;
        }
        std::io::Result::Ok(())
    };
    spawn(move || {
        let (mut sock, _) = listener.accept().unwrap();
        // Who refuses it goes before it was heard out.
        let _ = answer(&mut sock);
    })
}

#[test]
fn what_a_server_does_not_take_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let all = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM;
    for (i, (flags, most, line, words)) in [
        (all | READ_ONLY, 1 << 20, "--rw randwrite", "can only be read"),
        (all | READ_ONLY, 1 << 20, "--rw trim", "can only be read"),
        (all | READ_ONLY, 1 << 20, "--rw read --precondition seq", "can only be read"),
        (all & !SEND_TRIM, 1 << 20, "--rw trim", "takes no trims"),
        (all & !SEND_FUA, 1 << 20, "--rw write --fua-every 2", "takes no FUA"),
        (all & !SEND_FLUSH, 1 << 20, "--rw write --flush-every 2", "takes no flushes"),
        (all, 65536, "--rw randread --bs 128k", "at most 64 KiB in a request: lower --bs"),
        (all, 65536, "--rw randread --precondition seq", "take --precondition none"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(format!("{i}"));
        let server = serve(&path, flags, most, 0);
        let out = run(dir.path(), &format!("bench nbd:./{i} {line} --ios 10 --destroy"));
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(words), "{line}: {text}");
        server.join().unwrap();
    }
}

#[test]
fn what_was_measured_before_a_server_was_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir.path().join("s"), HAS_FLAGS, 1 << 20, 50);
    let out = run(dir.path(), "bench nbd:./s --rw randread --bs 4k --qd 1 --ios 1k --json");
    server.join().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("1 requests unanswered") || text.contains("connection"), "{text}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&report["ios"], &report["errors"]), (&50.into(), &0.into()));
}
