//! What a trace says.

use super::*;

/// A life of these times, with a queue and a tag.
fn at(queue: u16, tag: u32, times: [u64; 4]) -> Life {
    let [submitted, dispatched, completed, seen] = times.map(Time);
    Life { queue, tag, submitted, dispatched, completed, seen, ..life(u64::from(tag)) }
}

#[test]
fn a_summary_has_the_stages_of_each_queue() {
    let mut lives = vec![
        at(4, 0, [0, 10, 110, 111]),
        at(4, 1, [0, 20, 120, 125]),
        at(2, 0, [50, 50, 60, 60]),
        Life { parts: 0, ..at(4, 1, [5, 20, 120, 125]) },
    ];
    lives[2].status = Status::ABORTED;
    let [two, four] = summarize(&lives)[..] else { panic!("two queues") };
    assert_eq!((two.queue, two.requests, two.failed, two.deepest), (2, 1, 1, 1));
    assert_eq!(two.device, Stage { mean: 10.0, p99: 10, max: 10 });
    assert_eq!((four.queue, four.requests, four.merged, four.failed), (4, 3, 1, 0));
    assert_eq!(four.staged, Stage { mean: 15.0, p99: 20, max: 20 });
    assert_eq!(four.late, Stage { mean: 11.0 / 3.0, p99: 5, max: 5 });
    assert_eq!(four.total, Stage { mean: 356.0 / 3.0, p99: 125, max: 125 });
    assert_eq!(four.deepest, 2, "a merged request is not at the device by itself");
    assert!(summarize(&[]).is_empty());
}

#[test]
fn p99_is_what_99_percent_do_not_exceed() {
    let lives: Vec<Life> = (1..=200).map(|ns| at(0, 0, [0, 0, ns, ns])).collect();
    let queue = summarize(&lives)[0];
    assert_eq!((queue.device.p99, queue.device.max, queue.device.mean), (198, 200, 100.5));
}

#[test]
fn one_after_the_other_is_not_two_at_once() {
    let in_turn = [at(0, 0, [0, 0, 10, 10]), at(0, 1, [0, 10, 20, 20])];
    assert_eq!(summarize(&in_turn)[0].deepest, 1);
    let no_time = [at(0, 0, [5, 5, 5, 5]), at(0, 1, [5, 5, 5, 5])];
    assert_eq!(summarize(&no_time)[0].deepest, 1);
    let never = [Life { tag: NO_TAG, ..at(0, 0, [5, 9, 9, 9]) }];
    assert_eq!(summarize(&never)[0].deepest, 0);
}

#[test]
fn the_slowest_come_first() {
    let lives: Vec<Life> =
        [30, 10, 50, 50, 20].map(|ns| at(0, ns, [0, 0, 0, u64::from(ns)])).into();
    let total = |count| slowest(&lives, count).iter().map(Life::total).collect::<Vec<_>>();
    assert_eq!(total(3), [50, 50, 30]);
    assert_eq!(total(9), [50, 50, 30, 20, 10]);
    assert!(total(0).is_empty());
}

#[test]
fn the_picture_shows_where_requests_were() {
    let lives = [
        at(1, 0, [1_000, 1_200, 1_600, 1_700]),
        at(1, 5, [1_000, 1_000, 2_000, 2_000]),
        at(0, 2, [1_900, 1_900, 1_900, 1_900]),
        at(0, 9, [3_000, 3_000, 3_500, 3_500]),
        Life { tag: NO_TAG, ..at(0, 9, [1_000, 1_500, 1_500, 1_500]) },
    ];
    let window = Window { from: Time(1_000), to: Time(2_000) };
    let text = timeline(&lives, window, Time(1_000), 10);
    let expected = "\
from 0.000 ms to 0.001 ms, 100 ns a column:  # at the device  - not seen yet  . staged
queue 0
      2 |         #|
queue 1
      0 |..####-   |
      5 |##########|
";
    assert_eq!(text, expected);
}

#[test]
fn what_is_not_drawn_is_said() {
    let lives: Vec<Life> =
        (0..40).flat_map(|i| [at(0, i, [0, 0, 9, 9]), at(i as u16, 0, [0, 0, 9, 9])]).collect();
    let text = timeline(&lives, Window { from: Time(0), to: Time(9) }, Time(0), 4);
    assert!(text.contains("and 8 more tags of this queue"), "{text}");
    assert!(text.contains("and 24 more queues"), "{text}");
}

#[test]
fn the_window_around_a_request_has_it() {
    let slow = at(0, 0, [1_000, 1_000, 1_300, 1_400]);
    let window = Window::around(&slow);
    assert_eq!(window, Window { from: Time(900), to: Time(1_500) });
    assert!(window.has(&slow));
    let instant = at(0, 0, [0, 0, 0, 0]);
    assert!(Window::around(&instant).has(&instant));
}

proptest! {
    #[test]
    fn any_trace_can_be_shown(
        lives in proptest::collection::vec(any_life(), 0..40),
        (from, to) in any::<(u64, u64)>(),
        start: u64,
        columns in 0usize..200,
    ) {
        let window = Window { from: Time(from), to: Time(to) };
        let text = timeline(&lives, window, Time(start), columns);
        let rows = text.lines().filter(|line| line.contains('|'));
        for row in rows {
            let cells = row.split('|').nth(1).unwrap();
            prop_assert_eq!(cells.len(), columns.max(1));
        }
        let queues = summarize(&lives);
        let requests: u64 = queues.iter().map(|queue| queue.requests).sum();
        prop_assert_eq!(requests, lives.len() as u64);
        for queue in queues {
            prop_assert!(queue.deepest <= queue.requests);
            prop_assert!(queue.total.p99 <= queue.total.max);
        }
        prop_assert_eq!(slowest(&lives, 5).len(), lives.len().min(5));
    }
}
