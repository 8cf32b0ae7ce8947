//! Channels from outside: clients, good and bad, of one drive.

use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::scope;
use std::time::{Duration, Instant};

use channels::handshake::{Answer, Patience, ask};
use channels::wire::{COMPLETION_WORDS, End, Hello, MAX_DEPTH, REQUEST_WORDS, VERSION};
use channels::{Client, ClientError, Completion, Layout, Options, Region, Request};
use exports::channels::{Report, Served, Server};
use exports::listen::StopHandle;
use exports::{Limits, SharedDrive};
use port::random::Random;
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Status, Time};
use tags::Stamped;

const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 18, depth: 64 };

/// A drive of bytes, whose requests take `latency` each and are refused where it has
/// as many as it takes.
struct Ram {
    bytes: Vec<u8>,
    latency: u64,
    inside: VecDeque<(Time, BlockReq)>,
    /// The most that it was asked for at once.
    most: usize,
}

impl Ram {
    fn of(latency: u64) -> Ram {
        let bytes = vec![0; SHAPE.bytes as usize];
        Ram { bytes, latency, inside: VecDeque::new(), most: 0 }
    }

    fn done(&mut self, req: BlockReq, at: Time) -> BlockDone {
        let status = SHAPE.check(&req);
        let BlockReq { id, op, offset, len, mut buffer, .. } = req;
        if status.is_ok() && op != BlockOp::Flush {
            let range = &mut self.bytes[offset as usize..(offset + len) as usize];
            match op {
                BlockOp::Read => buffer.bytes_mut().copy_from_slice(range),
                BlockOp::Write => range.copy_from_slice(buffer.bytes()),
                _ => range.fill(0),
            }
        }
        BlockDone { id, op, status, at, buffer }
    }
}

impl Port for Ram {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.most = self.most.max(cmds.len());
        while self.inside.len() < SHAPE.depth
            && let Some(req) = cmds.pop()
        {
            self.inside.push_back((now + self.latency, req));
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.front().map(|(at, _)| *at)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0
            && let Some((at, _)) = self.inside.front()
            && *at <= to
            && let Some((at, req)) = self.inside.pop_front()
        {
            let one = self.done(req, at);
            done.put(|| one);
        }
    }
}

/// A served drive, for `test`; gives what its server counted.
fn served<R>(
    (latency, linger, limits): (u64, Duration, Limits),
    test: impl FnOnce(&Path) -> R,
) -> (R, Report, Ram) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channel");
    let drive = SharedDrive::new(Ram::of(latency));
    let stop = StopHandle::new().unwrap();
    let server = Server::bind(&path).unwrap().with(limits);
    let served = Served { shape: SHAPE, is_read_only: false, linger };
    let (result, report) = scope(|scope| {
        let serving = scope.spawn(|| server.run(served, &drive, &stop).unwrap());
        /// Also where the test panics.
        struct Stops<'a>(&'a StopHandle);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let stops = Stops(&stop);
        let result = test(&path);
        drop(stops);
        (result, serving.join().unwrap())
    });
    (result, report, drive.into_port().unwrap())
}

const POLL: Duration = Duration::from_micros(50);

fn plain(latency: u64) -> (u64, Duration, Limits) {
    (latency, POLL, Limits::default())
}

fn request(id: u64, op: BlockOp, offset: u64, len: u32, buffer: u32) -> Request {
    Request { id, op, fua: false, placement: 0, offset, len, buffer }
}

/// Asks for one thing and waits for it.
fn one(client: &mut Client, request: Request) -> Status {
    assert!(client.submit(&request));
    client.kick();
    let mut got = None;
    while got.is_none() {
        client.wait(None).unwrap();
        got = client.take().unwrap();
    }
    let Completion { id, status } = got.unwrap();
    assert_eq!(id, request.id);
    status
}

/// Random requests of a part of the drive that is this client's, held to a model:
/// requests that are out touch no block of each other.
fn lives(path: &Path, part: std::ops::Range<u64>, seed: u64, options: &Options, count: u32) {
    let mut client = Client::open(path, options).unwrap();
    let depth = client.welcome().depth;
    let mut random = Random::new(seed, 0);
    let blocks = (part.end - part.start) / 4096;
    let mut model = vec![0u8; blocks as usize];
    let mut busy = vec![false; blocks as usize];
    let mut out: HashMap<u64, (BlockOp, u64, u32)> = HashMap::new();
    let mut free: Vec<u32> = (0..depth).collect();
    let mut next = 0u64;
    while next < count.into() || !out.is_empty() {
        while next < count.into() && !free.is_empty() {
            let block = random.below(blocks);
            if busy[block as usize] {
                break;
            }
            let slot = free.pop().unwrap();
            let ops =
                [BlockOp::Read, BlockOp::Write, BlockOp::Write, BlockOp::Trim, BlockOp::Flush];
            let op = ops[random.below(5) as usize];
            let buffer = slot * 4096;
            if op == BlockOp::Write {
                let byte = next as u8 | 1;
                client.write_buffer(buffer, &[byte; 4096]);
                model[block as usize] = byte;
            } else if op == BlockOp::Trim {
                model[block as usize] = 0;
            }
            busy[block as usize] = true;
            assert!(client.submit(&request(next, op, part.start + block * 4096, 4096, buffer)));
            out.insert(next, (op, block, slot));
            next += 1;
        }
        client.kick();
        client.wait(None).unwrap();
        while let Some(Completion { id, status }) = client.take().unwrap() {
            assert_eq!(status, Status::SUCCESS);
            let (op, block, slot) = out.remove(&id).expect("each comes once");
            if op == BlockOp::Read {
                let mut data = [0; 4096];
                client.read_buffer(slot * 4096, &mut data);
                assert_eq!(data, [model[block as usize]; 4096], "request {id}, block {block}");
            }
            busy[block as usize] = false;
            free.push(slot);
        }
    }
    assert_eq!(client.outside(), 0);
}

fn options(depth: u32, linger: Duration) -> Options {
    Options { depth, most: 4096, memory: 0, linger }
}

/// Of a client that has all that it may have out, one half is with the drive while it is
/// busy with the other: also where the server wakes and finds all of it.
#[test]
fn half_of_the_places_go_to_the_drive_at_a_time() {
    for (depth, most) in [(1, 1), (2, 1), (8, 4)] {
        let how = (0, Duration::ZERO, Limits::default());
        let ((), _, drive) = served(how, |path| {
            let mut client = Client::open(path, &options(depth, POLL)).unwrap();
            for _ in 0..20 {
                for id in 0..depth {
                    let request = request(id.into(), BlockOp::Read, 0, 4096, id * 4096);
                    assert!(client.submit(&request));
                }
                client.kick();
                while client.outside() > 0 {
                    client.wait(None).unwrap();
                    while client.take().unwrap().is_some() {}
                }
            }
        });
        assert!((1..=most).contains(&drive.most), "{} of {depth}", drive.most);
    }
}

/// What was read before the server stopped is there for a client that takes it afterwards.
#[test]
fn what_was_read_outlasts_the_server() {
    let (mut client, _, _) = served(plain(0), |path| {
        let mut client = Client::open(path, &options(16, POLL)).unwrap();
        client.write_buffer(0, &[7; 16 * 4096]);
        for id in 0..16 {
            let write = request(id.into(), BlockOp::Write, u64::from(id) * 4096, 4096, id * 4096);
            assert_eq!(one(&mut client, write), Status::SUCCESS);
        }
        client.write_buffer(0, &[9; 16 * 4096]);
        for id in 0..16 {
            let read = request(id.into(), BlockOp::Read, u64::from(id) * 4096, 4096, id * 4096);
            assert!(client.submit(&read));
        }
        client.kick();
        assert!(client.wait(None).unwrap());
        client
    });
    let mut taken = 0;
    while let Some(Completion { id, status }) = client.take().unwrap() {
        assert_eq!(status, Status::SUCCESS);
        let mut data = [0; 4096];
        client.read_buffer(id as u32 * 4096, &mut data);
        assert_eq!(data, [7; 4096], "request {id}");
        taken += 1;
    }
    // What it had not taken in by then it does not answer.
    assert!(taken > 0 && taken + client.outside() == 16, "{taken}");
}

/// Several clients at once, awake and asleep, on drives with and without time.
#[test]
fn data_come_back_of_several_clients() {
    for (latency, server_lingers, client_lingers) in [
        (0, POLL, POLL),
        (0, Duration::ZERO, Duration::ZERO),
        (20_000, POLL, Duration::ZERO),
        (300_000, Duration::ZERO, POLL),
    ] {
        let count = if latency == 300_000 { 300 } else { 1500 };
        let how = (latency, server_lingers, Limits::default());
        let ((), report, _) = served(how, |path| {
            scope(|scope| {
                for (n, depth) in [(0, 1), (1, 4), (2, 32)] {
                    let part = n * (1 << 18)..(n + 1) * (1 << 18);
                    let options = options(depth, client_lingers);
                    let path = path.to_path_buf();
                    scope.spawn(move || lives(&path, part, n, &options, count));
                }
            });
        });
        assert_eq!(report, Report { channels: 3, refused: 0, ..Report::default() });
    }
}

#[test]
fn it_tells_of_its_drive_and_answers_what_cannot_be() {
    let ((), ..) = served(plain(0), |path| {
        let mut client = Client::open(path, &options(3, POLL)).unwrap();
        let welcome = *client.welcome();
        assert_eq!((welcome.bytes, welcome.kept, welcome.depth), (1 << 20, 4096, 4));
        assert_eq!((welcome.most, welcome.memory, welcome.is_read_only), (4096, 16384, false));
        let invalid = Status::INVALID_FIELD;
        for (op, offset, len, buffer, status) in [
            (BlockOp::Read, 0, 4096, 12288, Status::SUCCESS),
            (BlockOp::Read, 0, 4096, 12289, invalid),
            (BlockOp::Write, 0, 512, u32::MAX, invalid),
            (BlockOp::Read, 0, 8192, 0, invalid),
            (BlockOp::Write, 1, 512, 0, invalid),
            (BlockOp::Read, 1 << 20, 512, 0, Status::LBA_OUT_OF_RANGE),
            (BlockOp::Trim, 0, welcome.most_trim + 4096, 0, invalid),
            (BlockOp::Trim, 0, 1 << 20, u32::MAX, Status::SUCCESS),
            (BlockOp::WriteZeroes, 4096, 8192, 0, Status::SUCCESS),
            (BlockOp::Flush, u64::MAX, 7, 99, Status::SUCCESS),
        ] {
            let status_of = one(&mut client, request(5, op, offset, len, buffer));
            assert_eq!(status_of, status, "{op:?} of {len} at {offset}, buffer {buffer}");
        }
        (0..4).for_each(|id| assert!(client.submit(&request(id, BlockOp::Flush, 0, 0, 0))));
        assert!(!client.submit(&request(4, BlockOp::Flush, 0, 0, 0)), "as many are out as may be");
    });
}

#[test]
fn refusals_say_why() {
    // Places enough: who was refused keeps its own until its thread has ended.
    let limits = Limits { memory: 1 << 20, clients: 16, ..Limits::default() };
    let ((), report, _) = served((0, POLL, limits), |path| {
        let refused = |options: Options| match Client::open(path, &options) {
            Err(ClientError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        let why = refused(options(2 * MAX_DEPTH, POLL));
        assert!(why.contains("up to 4096"), "{why}");
        let why = refused(Options { depth: 4, most: 1 << 18, ..Options::default() });
        assert!(why.contains("raise --client-memory"), "{why}");
        let one = Client::open(path, &options(64, POLL)).unwrap();
        let why = refused(options(128, POLL));
        assert!(why.contains("raise --client-memory"), "{why}");
        drop(one);
        let mut socket = UnixStream::connect(path).unwrap();
        let patience = || Patience {
            until: Instant::now() + Duration::from_secs(20),
            unless: None,
            goes_on: None,
        };
        let hello = Hello { version: VERSION + 1, depth: 1, most: 0, memory: 0 };
        let answer = ask(&socket, hello, &patience()).unwrap();
        assert!(matches!(&answer, Answer::Refused(why) if why.contains("version")), "{answer:?}");
        socket = UnixStream::connect(path).unwrap();
        std::io::Write::write_all(&mut socket, &[9; 32]).unwrap();
        let mut told = Vec::new();
        std::io::Read::read_to_end(&mut socket, &mut told).unwrap();
        assert!(String::from_utf8_lossy(&told).contains("does not speak"));
    });
    assert!(report.refused == 5 && report.channels == 1, "{report:?}");
}

/// The place of a client that has gone is free soon after.
#[test]
fn one_channel_too_many_is_refused_until_one_is_closed() {
    let limits = Limits { clients: 1, ..Limits::default() };
    let ((), report, _) = served((0, POLL, limits), |path| {
        let one = Client::open(path, &options(64, POLL)).unwrap();
        let Err(ClientError::Refused(why)) = Client::open(path, &options(64, POLL)) else {
            panic!("a second channel of one")
        };
        assert!(why.contains("all 1 channels are taken"), "{why}");
        drop(one);
        let start = Instant::now();
        while Client::open(path, &options(64, POLL)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "it is never free");
        }
    });
    assert!(report.refused >= 1 && report.channels == 2, "{report:?}");
}

/// Opens a channel and gives what it is made of, to be misused.
fn raw(path: &Path, depth: u32) -> (UnixStream, Region, Layout) {
    let socket = UnixStream::connect(path).unwrap();
    let hello = Hello { version: VERSION, depth, most: 4096, memory: 0 };
    let patience =
        Patience { until: Instant::now() + Duration::from_secs(20), unless: None, goes_on: None };
    let Answer::Channel(welcome, memory) = ask(&socket, hello, &patience).unwrap() else {
        panic!("a channel")
    };
    let layout = Layout::new(welcome.depth, welcome.memory).unwrap();
    let region = Region::map(&memory, layout.bytes()).unwrap();
    (socket, region, layout)
}

/// Writes garbage over all of a channel's memory, half of it nearly right, while the
/// server looks at it, until the channel has ended or for a while. Leaves some of its
/// channels open when it goes. Keeps to the last quarter of the drive, as far as what
/// it asks is understood.
fn is_hostile(path: &Path, seed: u64, channels: u32, writes: u32) {
    let mut random = Random::new(seed, 0);
    for _ in 0..channels {
        let (mut socket, region, layout) = raw(path, 1 << random.below(5));
        let words = region.words(Layout::REQUESTS, layout.depth as usize * 4);
        let mut stamp = 1u64;
        for _ in 0..writes {
            match random.below(8) {
                0 => region
                    .number(Layout::CLIENT_SLEEPS)
                    .store(random.bits() as u32, Ordering::Relaxed),
                1 => region
                    .number(Layout::SERVER_SLEEPS)
                    .store(random.bits() as u32, Ordering::Relaxed),
                2 => region.number(Layout::ENDED).store(random.bits() as u32, Ordering::Relaxed),
                3 => {
                    // Completions and buffers, on which nothing depends.
                    let at = layout.completions
                        + random.below((layout.bytes() - layout.completions - 8) as u64) as usize;
                    region.write(at, &random.bits().to_le_bytes());
                }
                4 => {
                    let _ = std::io::Write::write(&mut socket, &[1]);
                }
                5 if random.below(64) == 0 => {
                    let at = random.below(words.len() as u64) as usize;
                    words[at].store(random.bits(), Ordering::Relaxed);
                }
                _ => {
                    // The next request, with fields of any kind. Where it would touch
                    // what is another's it is a flush.
                    let at = ((stamp - 1) % u64::from(layout.depth)) as usize * 4;
                    let offset = (3 << 18) + random.below(1 << 19);
                    let code = [0u64, 1, 2, 8, 9, 0x77][random.below(6) as usize];
                    let flags = random.below(4) << 8 | random.below(4) << 24;
                    words[at].store(random.bits(), Ordering::Relaxed);
                    words[at + 1].store(offset & !511, Ordering::Relaxed);
                    let len = random.below(1 << 14) & !511;
                    words[at + 2].store(len | random.bits() << 32, Ordering::Relaxed);
                    words[at + 3].store(code | flags | stamp << 32, Ordering::Release);
                    stamp += 1;
                }
            }
        }
        if random.below(2) == 0 {
            socket.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }
}

/// Whatever a client writes into its memory, another one sees its own data, and the
/// server stops when it is told to.
#[test]
fn a_hostile_client_harms_only_itself() {
    let seeds = std::env::var("CHANNEL_ATTACKS").map_or(2, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let (_, report, drive) = served(plain(1000), |path| {
            scope(|scope| {
                let path: PathBuf = path.into();
                for n in 0..2 {
                    let path = path.clone();
                    scope.spawn(move || is_hostile(&path, seed * 2 + n, 20, 2000));
                }
                let part = 0..3 << 18;
                scope.spawn(move || lives(&path, part, seed, &options(16, POLL), 20_000));
            });
        });
        assert!(report.channels == 41 && report.refused == 0, "{report:?}");
        assert!(drive.inside.is_empty(), "all that was asked has ended");
    }
}

/// One that only asks what is refused, again and again, keeps no server from its end.
#[test]
fn who_asks_nonsense_without_end_does_not_hold_the_server() {
    let mut client = None;
    let (_, report, _) = served(plain(0), |path| {
        let (socket, region, layout) = raw(path, 4);
        client = Some(std::thread::spawn(move || {
            let mut requests = Stamped::<REQUEST_WORDS>::new(4);
            let queue = region.words(Layout::REQUESTS, Stamped::<REQUEST_WORDS>::words(4));
            let mut completions = Stamped::<COMPLETION_WORDS>::new(4);
            let words = Stamped::<COMPLETION_WORDS>::words(4);
            let done = region.words(layout.completions, words);
            let mut out = 0;
            while region.number(Layout::ENDED).load(Ordering::Acquire) == 0 {
                while matches!(completions.take(done), Ok(Some(_))) {
                    out -= 1;
                }
                // No more than there are places for: that would be garbage.
                if out < 4 {
                    requests.put(queue, [u64::MAX; REQUEST_WORDS]);
                    out += 1;
                }
                if region.armed(Layout::SERVER_SLEEPS).take() {
                    channels::handshake::wake(&socket);
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            End::of(region.number(Layout::ENDED).load(Ordering::Acquire))
        }));
        std::thread::sleep(Duration::from_millis(20));
    });
    assert_eq!(client.unwrap().join().unwrap(), Some(End::Stopped));
    assert_eq!(report, Report { channels: 1, refused: 0, ..Report::default() });
}

/// A stamp that no client can have written ends the channel, with a reason.
#[test]
fn garbage_ends_the_channel_with_a_reason() {
    let (_, report, _) = served(plain(0), |path| {
        let (socket, region, layout) = raw(path, 4);
        let words = region.words(Layout::REQUESTS, 16);
        words[3].store(77 << 32, Ordering::Release);
        channels::handshake::wake(&socket);
        // The ring may be taken back or not before the end.
        let _ = std::io::Read::read_to_end(&mut &socket, &mut Vec::new());
        let ended = region.number(Layout::ENDED).load(Ordering::Acquire);
        assert_eq!(End::of(ended), Some(End::Garbage));
        assert_eq!(layout.depth, 4);
    });
    assert_eq!(report, Report { channels: 1, faults: 1, ..Report::default() });
}

/// Requests of a client that has gone are drained, and then its memory is free: as much
/// as one channel needs is all that there is.
#[test]
fn who_dies_leaves_nothing_behind() {
    let limits = Limits { memory: 3 << 18, ..Limits::default() };
    let ((), report, drive) = served((2_000_000, POLL, limits), |path| {
        for round in 0..10 {
            let start = Instant::now();
            let mut client = loop {
                match Client::open(path, &options(64, POLL)) {
                    Ok(client) => break client,
                    Err(ClientError::Refused(_)) => std::thread::yield_now(),
                    Err(e) => panic!("{e}"),
                }
                assert!(start.elapsed() < Duration::from_secs(20), "it is never free");
            };
            client.write_buffer(0, &[round + 1; 4096]);
            for id in 0..64 {
                client.submit(&request(id, BlockOp::Write, u64::from(round) << 12, 4096, 0));
            }
            client.kick();
            if round % 2 == 0 {
                client.wait(None).unwrap();
            }
        }
    });
    assert_eq!((report.channels, report.faults), (10, 0));
    assert!(drive.inside.is_empty());
    for round in (0..10usize).step_by(2) {
        assert_eq!(drive.bytes[round << 12], round as u8 + 1);
    }
}

#[test]
fn a_server_that_stops_tells_its_clients() {
    let (client, ..) = served(plain(0), |path| {
        let mut client = Client::open(path, &options(4, Duration::ZERO)).unwrap();
        assert_eq!(one(&mut client, request(1, BlockOp::Flush, 0, 0, 0)), Status::SUCCESS);
        client
    });
    let mut client = client;
    assert!(client.submit(&request(2, BlockOp::Flush, 0, 0, 0)));
    client.kick();
    let e = client.wait(None).unwrap_err();
    assert_eq!(e.to_string(), "the channel ended with 1 requests unanswered: the server stopped");
    let mut polls = 0;
    while let Ok(none) = client.take() {
        assert_eq!(none, None, "nobody answers");
        polls += 1;
        assert!(polls < 1 << 20, "who polls finds out, too");
    }
}

/// A drive that keeps nothing has no data to move, and says so.
#[test]
fn a_drive_without_data_needs_no_buffers() {
    struct Nothing(VecDeque<BlockReq>);
    impl Port for Nothing {
        type Cmd = BlockReq;
        type Done = BlockDone;
        fn submit(&mut self, _now: Time, cmds: &mut Ring<BlockReq>) {
            self.0.extend(cmds.drain());
        }
        fn next_event(&self) -> Option<Time> {
            self.0.front().map(|_| Time::ZERO)
        }
        fn advance(&mut self, at: Time, done: &mut Ring<BlockDone>) {
            while done.room() > 0
                && let Some(BlockReq { id, op, buffer, .. }) = self.0.pop_front()
            {
                assert!(buffer.is_empty());
                done.put(|| BlockDone {
                    id,
                    op,
                    status: Status::SUCCESS,
                    at,
                    buffer: Buffer::empty(),
                });
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channel");
    let drive = SharedDrive::new(Nothing(VecDeque::new()));
    let (stop, server) = (StopHandle::new().unwrap(), Server::bind(&path).unwrap());
    let shape = Shape { kept: 0, ..SHAPE };
    let served = Served { shape, is_read_only: true, linger: POLL };
    scope(|scope| {
        let serving = scope.spawn(|| server.run(served, &drive, &stop).unwrap());
        let mut client = Client::open(&path, &options(32, POLL)).unwrap();
        assert_eq!((client.welcome().kept, client.welcome().memory), (0, 0));
        assert!(client.welcome().is_read_only);
        for id in 0..1000 {
            assert_eq!(one(&mut client, request(id, BlockOp::Read, 0, 4096, 0)), Status::SUCCESS);
        }
        stop.stop();
        assert_eq!(serving.join().unwrap().channels, 1);
    });
}
