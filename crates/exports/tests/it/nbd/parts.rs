//! Parts of a drive that are exported, and are no more.

use std::time::{Duration, Instant};

use super::*;
use exports::nbd::ClientError;

/// Half of the drive each, by names of their own.
fn halves() -> Export {
    let half = SHAPE.bytes / 2;
    let whole = Export::new(SHAPE).unwrap();
    let one = whole.with_part("one", "", (0, half)).unwrap();
    one.with_part("two", "", (half, half)).unwrap()
}

/// Serves halves while `test` changes them.
fn serve_parts(test: impl FnOnce(&ListenAddr, &Exports, &Probe)) -> Report {
    let (_dir, path) = socket();
    let (exports, ram) = (Exports::new(halves()), Ram::new(SHAPE, |_| 1000));
    let probe = ram.probe.clone();
    let (drive, stop) = (SharedDrive::new(ram), StopHandle::new().unwrap());
    let server = Server::bind(&ListenAddr::Unix(path)).unwrap();
    let addr = server.addr().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.run(&exports, &drive, &stop));
        let end = StopAtEnd(&stop);
        test(&addr, &exports, &probe);
        drop(end);
        served.join().unwrap().unwrap()
    })
}

fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Who uses a part that goes gets the answers to what was received, and then the end; others
/// go on, and who comes is told that it is not there.
#[test]
fn a_part_that_goes_ends_its_connections_alone() {
    let report = serve_parts(|addr, exports, _| {
        let mut one = Client::connect_to(addr, "one").unwrap();
        let mut two = Client::connect_to(addr, "two").unwrap();
        let mut whole = Client::connect(addr).unwrap();
        assert_eq!(ask(&mut two, BlockOp::Write, 0, 4096, &[7; 4096]).0, 0);
        until(|| exports.connections("one") == 1 && exports.connections("two") == 1);
        // A request that was received is answered.
        two.submit(BlockOp::Read, 0, 4096, false, 5, &[]).unwrap();
        two.flush_sends().unwrap();
        exports.replace(halves().without("two"));
        let mut answer = None;
        let mut end = Ok(());
        while end.is_ok() && answer.is_none() {
            let mut each = |cookie, error, data: &[u8]| {
                answer = Some((cookie, error, data.to_vec()));
            };
            end = two.recv(&mut each).map(drop);
        }
        // It may not have been received yet, as far as its client knows.
        assert!(answer.is_none_or(|answer| answer == (5, 0, vec![7; 4096])));
        until(|| exports.connections("two") == 0);
        assert_eq!(exports.connections("one"), 1);
        let Err(ClientError::Refused { words, .. }) = Client::connect_to(addr, "two") else {
            panic!("it is not there")
        };
        assert!(words.contains("no export of this name"), "{words}");
        let (error, data) = ask(&mut whole, BlockOp::Read, SHAPE.bytes / 2, 4096, &[]);
        assert_eq!((error, data), (0, vec![7; 4096]));
        assert_eq!(ask(&mut one, BlockOp::Write, 0, 4096, &[1; 4096]).0, 0);
        // It comes again, and is exported at once.
        exports.replace(halves());
        let mut two = Client::connect_to(addr, "two").unwrap();
        assert_eq!(ask(&mut two, BlockOp::Read, 0, 4096, &[]).1, vec![7; 4096]);
    });
    assert_eq!((report.faults, report.refused), (0, 0));
}

/// Who was told of a part before it went, and begins after, is not served another's blocks.
#[test]
fn who_was_told_of_a_part_that_went_is_not_served() {
    use std::io::{Read, Write};
    serve_parts(|addr, exports, _| {
        let ListenAddr::Unix(path) = addr else { panic!("a Unix socket") };
        let mut raw = UnixStream::connect(path).unwrap();
        raw.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        raw.read_exact(&mut [0; 18]).unwrap();
        raw.write_all(&3u32.to_be_bytes()).unwrap();
        // The flags are read: it was told what there is.
        let mut list = 0x4948_4156_454F_5054u64.to_be_bytes().to_vec();
        list.extend([0, 0, 0, 3, 0, 0, 0, 0]);
        raw.write_all(&list).unwrap();
        raw.read_exact(&mut [0; 20]).unwrap();
        exports.replace(halves().without("two"));
        let mut chosen = 0x4948_4156_454F_5054u64.to_be_bytes().to_vec();
        chosen.extend([0, 0, 0, 1, 0, 0, 0, 3]);
        chosen.extend(b"two");
        raw.write_all(&chosen).unwrap();
        let mut rest = Vec::new();
        raw.read_to_end(&mut rest).unwrap();
        assert_eq!(exports.connections("two"), 0);
    });
}
