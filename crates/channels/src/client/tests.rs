use std::os::unix::net::UnixListener;
use std::thread;

use port::{BlockOp, Status};

use super::*;
use crate::handshake::{hand_over, hear};

/// A client that lingers so long, with a request out, and its server, which does nothing.
fn asked(linger: Duration) -> (Client, UnixStream, Region) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let serve = move || {
        let (server, _) = listener.accept().unwrap();
        let until = Instant::now() + OPENING;
        let hello = hear(&server, &Patience { until, unless: None, goes_on: None }).unwrap();
        let Hello { version, depth, most, .. } = hello.unwrap();
        let layout = Layout::new(depth, 0).unwrap();
        let (file, region) = Region::create(layout.bytes()).unwrap();
        let welcome = Welcome { version, depth, most, ..Welcome::default() };
        hand_over(&server, welcome, &file).unwrap();
        (server, region)
    };
    let serve = thread::spawn(serve);
    let options = Options { depth: 4, linger, ..Options::default() };
    let mut client = Client::open(&path, &options).unwrap();
    let (server, region) = serve.join().unwrap();
    let (op, fua, placement) = (BlockOp::Flush, false, 0);
    assert!(client.submit(&Request { id: 7, op, fua, placement, offset: 0, len: 0, buffer: 0 }));
    (client, server, region)
}

#[test]
fn a_server_that_is_gone_is_told_however_short_the_wait_and_long_the_linger() {
    for linger in [Duration::ZERO, Duration::from_micros(200), Duration::MAX] {
        for timeout in [Some(Duration::ZERO), Some(Duration::from_micros(50)), None] {
            let (mut client, server, _region) = asked(linger);
            drop(server);
            let told = client.wait(timeout).unwrap_err();
            assert!(matches!(told, ClientError::Ended { outstanding: 1, .. }), "{told}");
        }
    }
}

#[test]
fn a_wait_in_vain_lasts_as_long_as_was_asked() {
    let more_than_it_looks = crate::linger::MOST + Duration::from_millis(100);
    for (linger, time) in [
        (Duration::ZERO, Duration::from_millis(10)),
        (Duration::from_secs(60), Duration::from_millis(10)),
        (Duration::from_secs(60), more_than_it_looks),
    ] {
        let (mut client, _server, _region) = asked(linger);
        let begin = Instant::now();
        assert!(!client.wait(Some(time)).unwrap(), "the server is there, and silent");
        assert!(begin.elapsed() >= time, "{linger:?}: {:?} of {time:?}", begin.elapsed());
    }
}

#[test]
fn what_was_completed_before_the_end_is_had_first() {
    let (mut client, server, region) = asked(Duration::ZERO);
    let words = Stamped::<COMPLETION_WORDS>::words(client.layout.depth);
    let done = Completion { id: 7, status: Status::SUCCESS };
    let queue = region.words(client.layout.completions, words);
    Stamped::<COMPLETION_WORDS>::new(client.layout.depth).put(queue, done.to_words());
    drop(server);
    assert!(client.wait(Some(Duration::ZERO)).unwrap());
    assert_eq!(client.take().unwrap(), Some(done));
    assert!(!client.wait(None).unwrap(), "nothing is out");
}
