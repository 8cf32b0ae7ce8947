use drive::fault_rules::FaultArgs;
use drive::image;
use drive::restore::Restored;
use drive::spec::DriveSpec;
use drive::stack;
use files::{DiskError, Kind, MOST_BYTES, Options, Request};

use super::*;

const SYNC: Operation = Operation::Sync { inode: FILE, data: false };

fn on_drive(cut: Option<Cut>) -> OnDrive {
    let Ok(DriveSpec::Memory(spec)) = "mem:tlc,size=64M".parse() else { unreachable!() };
    let drive = stack::build(&spec.resolve().unwrap(), 1).unwrap();
    let disk = DriveDisk::new(drive, Time::ZERO);
    let files = Files::format(disk.clone(), Options::default()).unwrap();
    OnDrive::new(files, disk, cut, None)
}

const FILE: Inode = Inode(7);

fn create() -> Operation {
    let name = b"f".to_vec();
    Operation::Create { parent: Inode::ROOT, name, inode: FILE, kind: Kind::File, mode: 0o644 }
}

fn write(offset: u64) -> Operation {
    Operation::Write { inode: FILE, offset, data: vec![1; 4096] }
}

#[test]
fn calls_are_counted_and_not_what_they_are_told_in() {
    let mut on_drive = on_drive(None);
    for call in [vec![create()], vec![write(0), write(4096)], vec![write(8192)]] {
        on_drive.begins();
        call.iter().for_each(|it| assert_eq!(on_drive.after(it).error, None));
    }
    let writes = on_drive.counts.calls[WRITES];
    assert_eq!((writes.count, writes.bytes, on_drive.changes), (2, 3 * 4096, 4));
}

/// A call that is told in pieces met an error once, however many of them did.
#[test]
fn calls_that_met_an_error_are_counted_and_not_their_pieces() {
    let mut on_drive = on_drive(None);
    for calls in 1..3 {
        on_drive.begins();
        for page in 0..3 {
            assert!(on_drive.after(&write(4096 * page)).error.is_some(), "there is no such file");
        }
        assert_eq!(on_drive.told, calls);
    }
}

/// Whatever one call changes, the power goes with the change that was named.
#[test]
fn a_cut_is_at_its_change() {
    let mut on_drive = on_drive(Some(Cut::Changes(2)));
    on_drive.begins();
    let answers = [create(), write(0), write(4096), write(8192)].map(|it| on_drive.after(&it));
    let errors = answers.map(|it| it.error);
    assert_eq!(errors, [None, None, Some(Errno::IO), Some(Errno::IO)]);
    assert_eq!(on_drive.files.stat(FILE).unwrap().size, 4096);
    assert!(on_drive.is_cut && on_drive.course() == Course::Stop);
    assert_eq!(on_drive.before(&write(0)), Err(Errno::IO));
}

#[test]
fn what_no_file_can_be_is_refused_before_it_is() {
    let mut on_drive = on_drive(None);
    on_drive.after(&create());
    let (inode, end) = (FILE, MOST_BYTES);
    let allocate = |len| Operation::Allocate { inode, offset: 1, len, keep_size: false };
    let truncate = |size| Operation::Truncate { inode, size };
    for (fits, larger) in [(truncate(end), truncate(end + 1)), (write(end - 4096), write(end))] {
        assert_eq!(on_drive.before(&fits), Ok(()));
        assert_eq!(on_drive.before(&larger), Err(Errno::FBIG));
    }
    assert_eq!(on_drive.before(&allocate(end)), Err(Errno::FBIG));
    assert_eq!(on_drive.before(&allocate(u64::MAX)), Err(Errno::FBIG));
}

/// A drive file whose disk has what it was given when it was asked so often, and syncs that are
/// answered at once. A transaction has room for 48 blocks.
fn on_slow_disk(polls: u32) -> (tempfile::TempDir, OnDrive) {
    on_disk(polls, &[])
}

/// The same, where these things go wrong.
fn on_disk(polls: u32, faults: &[&str]) -> (tempfile::TempDir, OnDrive) {
    let Ok(DriveSpec::Memory(spec)) = "mem:tlc,size=64M".parse() else { unreachable!() };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d.ssd").display().to_string();
    image::create(&path, &spec.resolve().unwrap(), 1, image::Making::default()).unwrap();
    let Ok(DriveSpec::File(spec)) = format!("ssd:{path}").parse() else { unreachable!() };
    let mut open = spec.open(false).unwrap();
    open.opened.medium.defer_syncs(polls);
    let rules = faults.iter().map(ToString::to_string).collect();
    open.config.faults = FaultArgs { rules, file: None }.read(1).unwrap();
    let drive = Restored::opened(open).unwrap();
    let ready = drive.ready();
    let disk = DriveDisk::new(drive.drive, ready);
    let journal_blocks = Some(64);
    let options = Options { journal: files::Journal::Data, journal_blocks, ..Options::default() };
    let files = Files::format(disk.clone(), options).unwrap();
    let mut on_drive = OnDrive::new(files, disk, None, Some(Speculation::default()));
    on_drive.set_patient().unwrap();
    (place, on_drive)
}

/// Goes on as the supervisor does, until that number is reached.
fn reach(on_drive: &mut OnDrive, number: u64) {
    while on_drive.reached() < number {
        let Course::Go(Some(at)) = on_drive.course() else { unreachable!("it goes on") };
        std::thread::sleep(at.saturating_duration_since(Instant::now()).min(COMMIT / 5000));
    }
}

/// While the disk has a commit, calls are answered; what others could see waits for it, and syncs
/// that come then.
#[test]
fn a_slow_disk_holds_up_effects_alone() {
    // Each look asks 64 times at least, and there are at most 16 of them before others look.
    let (_place, mut on_drive) = on_slow_disk(1200);
    on_drive.after(&create());
    on_drive.after(&write(0));
    assert_eq!(on_drive.after(&SYNC), Answer::NOW);
    let awaited = on_drive.awaited().expect("nothing is durable yet");
    for n in 1..8 {
        assert_eq!(on_drive.after(&write(n * 4096)), Answer::NOW);
        assert_eq!(on_drive.after(&SYNC), Answer::NOW);
        assert!(matches!(on_drive.course(), Course::Go(_)));
    }
    assert_eq!(on_drive.reached(), 0, "the disk is still at it");
    on_drive.holds(awaited);
    let late = on_drive.after(&SYNC).ticket.expect("it waits for its own commit");
    assert_eq!(on_drive.over(), None);
    reach(&mut on_drive, awaited);
    let last = awaited + 8;
    assert!(on_drive.reached() < last, "what came later is of the next commit");
    reach(&mut on_drive, last);
    assert_eq!(on_drive.over(), Some((late, None)));
    assert_eq!(on_drive.awaited(), None);
    let speculation = on_drive.speculation.as_ref().unwrap();
    assert_eq!((speculation.syncs(), speculation.commits), (8, 2));
}

/// What is read while a commit is under way is what the program wrote.
#[test]
fn a_commit_under_way_hides_nothing() {
    let (_place, mut on_drive) = on_slow_disk(200);
    on_drive.after(&create());
    on_drive.after(&write(0));
    on_drive.after(&SYNC);
    let part = Operation::Write { inode: FILE, offset: 10, data: vec![2; 10] };
    on_drive.after(&part);
    let mut bytes = [0; 30];
    on_drive.files.read(FILE, 0, &mut bytes).unwrap();
    assert_eq!([bytes[9], bytes[10], bytes[19], bytes[20]], [1, 2, 2, 1]);
    on_drive.files.apply(&Operation::SyncAll).unwrap();
    let files = &on_drive.files;
    let over = (files.commits_begun(), files.commits_over());
    assert_eq!(over.0, over.1, "who waits for the disk waits for the commit first");
    // The drive may be ahead of the clock.
    reach(&mut on_drive, 1);
}

/// Writes that fill transactions begin a commit with each, after the one before: an effect and a
/// sync wait for their own all the same.
#[test]
fn who_writes_much_holds_up_no_effect() {
    let (_place, mut on_drive) = on_slow_disk(1200);
    on_drive.after(&create());
    on_drive.after(&write(0));
    assert_eq!(on_drive.after(&SYNC), Answer::NOW);
    let awaited = on_drive.awaited().expect("nothing is durable yet");
    on_drive.holds(awaited);
    let mut late = None;
    for n in 0.. {
        let data = vec![n as u8; 30 * 4096];
        let answer = on_drive.after(&Operation::Write { inode: FILE, offset: 4096, data });
        assert_eq!(answer.error, None);
        assert!(matches!(on_drive.course(), Course::Go(_)));
        let (over, begun) = (on_drive.files.commits_over(), on_drive.files.commits_begun());
        assert!(over < begun, "one is always under way");
        late = late.or_else(|| on_drive.after(&SYNC).ticket);
        if on_drive.reached() > awaited && on_drive.over().is_some_and(|it| Some(it.0) == late) {
            break;
        }
        assert!(n < 100, "{} of {awaited}", on_drive.reached());
        // The drive's own time.
        let at = answer.at.map(|at| at.saturating_duration_since(Instant::now()));
        std::thread::sleep(at.unwrap_or_default());
    }
}

/// Goes on until a call is over; its error.
fn ended(on_drive: &mut OnDrive, ticket: u64) -> Option<Errno> {
    loop {
        assert!(matches!(on_drive.course(), Course::Go(_)), "nothing is lost that was answered");
        match on_drive.over() {
            Some((over, error)) if over == ticket => return error,
            _ => std::thread::sleep(COMMIT / 50000),
        }
    }
}

/// A commit that fails kills the program where a sync was answered that it was for, and says what
/// the disk failed at, also where somebody else hears that first.
#[test]
fn a_flush_that_fails_under_way_is_the_end() {
    for waits in [false, true] {
        let (_place, mut on_drive) = on_disk(1200, &["above:flush,after"]);
        on_drive.after(&create());
        assert_eq!(on_drive.after(&SYNC), Answer::NOW);
        assert!(on_drive.files.failure().is_none(), "it is under way");
        let awaited = on_drive.awaited().expect("nothing is durable yet");
        on_drive.holds(awaited);
        if waits {
            on_drive.files.apply(&Operation::SyncAll).unwrap_err();
        }
        while on_drive.course() != Course::Stop {
            std::thread::sleep(COMMIT / 50000);
        }
        assert_eq!(on_drive.reached(), 0);
        let failed = on_drive.speculation.unwrap().failed.unwrap();
        let is_flush = |e: DiskError| e.request == Request::Flush;
        assert!(matches!(failed, FilesError::Disk(e) if is_flush(e)), "{failed}");
    }
}

/// Where the program's memory is shared its syncs wait, and are told what they failed with.
#[test]
fn a_sync_that_waits_is_told_of_a_failure() {
    let (_place, mut on_drive) = on_disk(200, &["above:flush,every=1"]);
    on_drive.after(&create());
    on_drive.shares();
    let ticket = on_drive.after(&SYNC).ticket.expect("it waits");
    assert_eq!(ended(&mut on_drive, ticket), Some(Errno::IO));
    assert_eq!(on_drive.before(&write(0)), Err(Errno::ROFS));
    let ticket = on_drive.after(&SYNC).ticket.expect("it waits");
    assert_eq!(ended(&mut on_drive, ticket), Some(Errno::ROFS));
}

/// What no sync asked for is lost as without speculation: the next sync tells.
#[test]
fn a_commit_now_and_then_may_fail() {
    let (_place, mut on_drive) = on_disk(200, &["above:flush,from=2,count=1"]);
    on_drive.after(&create());
    assert_eq!(on_drive.after(&SYNC), Answer::NOW);
    reach(&mut on_drive, 1);
    on_drive.after(&write(0));
    on_drive.commit_at = Instant::now();
    while !on_drive.is_aborted {
        assert!(matches!(on_drive.course(), Course::Go(_)), "no sync was answered since");
    }
    assert_eq!(on_drive.before(&write(4096)), Err(Errno::ROFS));
    let ticket = on_drive.after(&SYNC).ticket.expect("syncs wait from now on");
    assert_eq!(ended(&mut on_drive, ticket), Some(Errno::ROFS));
}
