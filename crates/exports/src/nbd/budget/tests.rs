//! What members take and give, and who gives way.

use super::*;
use std::os::unix::net::UnixStream;

/// With so much beyond the least, and nothing kept for who has little.
fn budget(more: u64) -> Budget {
    let limits = Limits { clients: 3, greeting: Duration::ZERO, ..Limits::default() };
    let budget = Budget::new(Limits { memory: LEAST + more, ..limits }, 0);
    budget.state().left = LEAST + more;
    Budget { kept: 0, ..budget }
}

fn sock() -> (OwnedFd, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    (a.into(), b)
}

fn join(budget: &Budget) -> Membership<'_> {
    budget.join(sock().0).map_err(drop).unwrap()
}

#[test]
fn no_more_is_taken_than_there_is_and_all_comes_back() {
    let budget = budget(400);
    let (mut a, mut b) = (join(&budget), join(&budget));
    assert!(a.take(400) && b.take(LEAST) && !a.take(1));
    a.give(150);
    assert!(b.take(150) && !b.take(1));
    drop(a);
    assert!(b.take(250) && !b.take(1));
    b.give(LEAST + 400);
    assert!(b.take(LEAST + 400));
}

#[test]
fn memory_is_given_in_the_order_of_asking() {
    let budget = budget(0);
    let [mut a, mut b, mut c] = [(); 3].map(|()| join(&budget));
    assert!(a.take(LEAST));
    b.wait(LITTLE + 500);
    assert!(budget.is_pressed());
    a.give(LITTLE + 300);
    assert!(!c.take(LITTLE + 100), "another waits");
    assert!(!b.take(LITTLE + 500));
    a.give(LITTLE + 400);
    assert!(b.take(LITTLE + 500) && !c.take(LITTLE + 201) && c.take(200));
    assert!(!budget.is_pressed());
}

#[test]
fn who_gives_up_leaves_the_line() {
    let budget = budget(0);
    let [mut a, mut b, mut c] = [(); 3].map(|()| join(&budget));
    assert!(a.take(LEAST));
    b.wait(LITTLE + 500);
    a.give(LEAST);
    assert!(!c.take(LITTLE + 1), "another is first");
    b.leave();
    assert!(c.take(LITTLE + 1) && !budget.is_pressed());
}

/// Who has little waits neither for those who have much nor behind them.
#[test]
fn a_part_is_kept_for_who_has_little() {
    let limits = Limits { clients: 3, memory: 64 << 20, ..Limits::default() };
    let budget = Budget::new(limits, 0);
    let [mut a, mut b, mut c] = [(); 3].map(|()| join(&budget));
    let kept = limits.memory / KEPT;
    assert!(a.take(limits.memory - kept) && !a.take(1));
    b.wait(8 << 20);
    assert!(c.take(LITTLE / 2) && c.take(LITTLE / 2), "nobody else is asked");
    assert!(!c.take(1), "that is not little any more");
    a.give((8 << 20) - 1);
    assert!(!b.take(8 << 20), "what is kept stays so");
    // What was taken of it is not kept twice.
    a.give(1);
    assert!(b.take(8 << 20));
    assert_eq!(budget.state().left, kept - LITTLE);
}

/// Who has little passes the line with what is kept for such, and no more: what
/// others give back is for who waits.
#[test]
fn who_has_little_does_not_keep_the_first_in_line_waiting() {
    let limits = Limits { clients: 30, memory: 64 << 20, ..Limits::default() };
    let budget = Budget::new(limits, 0);
    let all: Vec<_> = (0..28).map(|_| join(&budget)).collect();
    let (mut first, mut rest) = (join(&budget), all);
    let mut large = join(&budget);
    let kept = limits.memory / KEPT;
    assert!(large.take(limits.memory - kept - 8 * LITTLE));
    let (before, after) = rest.split_at_mut(8);
    assert!(before.iter_mut().all(|one| one.take(LITTLE)), "nobody waits");
    first.wait(2 << 20);
    let passed = after.iter_mut().filter_map(|one| one.take(LITTLE).then_some(())).count();
    assert_eq!(passed as u64 * LITTLE, kept);
    // Each gives back and would have as much again.
    let mut again = 0;
    for one in before.iter_mut() {
        one.give(LITTLE);
        again += usize::from(one.take(LITTLE));
    }
    assert!(again == 0 && first.take(2 << 20), "{again} of 8 passed");
}

#[test]
fn who_does_not_go_on_is_shut_down_for_who_waits() {
    use std::io::Read;
    let budget = budget(0);
    let (mine, mut other) = sock();
    let mut a = budget.join(mine).map_err(drop).unwrap();
    let mut b = join(&budget);
    assert!(a.take(LEAST));
    b.wait(500);
    assert_eq!(budget.evicted(), 0, "not at once");
    std::thread::sleep(STALL + Duration::from_millis(10));
    b.wait(500);
    assert_eq!(budget.evicted(), 1);
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    drop(a);
    assert!(b.take(500));
}

/// As if it had not gone on since the budget was made.
fn long_ago(member: &Membership<'_>) {
    member.member.finished.store(0, Ordering::Relaxed);
}

#[test]
fn who_goes_on_or_waits_for_the_drive_stays() {
    let mut budget = budget(0);
    // As if it had been made long ago.
    budget.start = budget.start.saturating_sub(60_000);
    let (mut a, mut b) = (join(&budget), join(&budget));
    assert!(a.take(LEAST));
    let mut evicted_after = |a: &Membership<'_>, what: &dyn Fn(&Membership<'_>)| {
        long_ago(a);
        what(a);
        b.wait(500);
        budget.evicted()
    };
    assert_eq!(evicted_after(&a, &|a| a.finished()), 0, "a request ended");
    let slowly = |a: &Membership<'_>| (0..STEP / 4096).for_each(|_| a.moved(4096));
    assert_eq!(evicted_after(&a, &slowly), 0, "bytes move");
    a.awaits_drive(true);
    assert_eq!(evicted_after(&a, &|_| {}), 0, "the drive is slow");
    assert_eq!(evicted_after(&a, &|a| a.awaits_drive(false)), 0, "its time begins");
    assert_eq!(evicted_after(&a, &|a| a.moved(1)), 1, "a drop is no stream");
}

#[test]
fn silent_ones_give_way_once_each() {
    let budget = budget(0);
    let all = [(); 3].map(|()| join(&budget));
    all[0].silent(false);
    all[2].spoke();
    assert!(budget.join(sock().0).is_err());
    assert!(budget.make_room() && !budget.make_room());
    let guest = join(&budget);
    assert!(budget.join(sock().0).is_err());
    drop((all, guest));
    assert!(budget.is_empty());
}
