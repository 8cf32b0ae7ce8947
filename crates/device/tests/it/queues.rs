//! The submission queues: against the link itself, against a line for each queue,
//! against their weights, and against what is known of queues with priorities.

use device::{Link, LinkTiming, Queued};
use flash::{Arbitration, Class, Queues};
use port::random::{Random, unit};
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Part, Port, Ring, Status, Time};
use proptest::prelude::*;

/// What each request takes of a drive that does any number at once, in ns.
struct Fixed {
    takes: u64,
    inside: Ring<(Time, BlockReq)>,
}

impl Fixed {
    fn new(takes: u64) -> Fixed {
        Fixed { takes, inside: Ring::new(2048) }
    }
}

impl Port for Fixed {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        cmds.drain().for_each(|req| self.inside.put(|| (now + self.takes, req)));
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.front().map(|one| one.0)
    }

    fn advance(&mut self, to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0
            && self.next_event().is_some_and(|at| at <= to)
            && let Some((at, BlockReq { id, op, buffer, .. })) = self.inside.pop()
        {
            done.put(|| BlockDone { id, op, status: Status::SUCCESS, at, buffer });
        }
    }
}

/// Reads take 500 ns of one core and writes of 4 KiB 1000, and 100 ns beside it down,
/// 100 up.
fn link(cores: u32) -> LinkTiming {
    LinkTiming { latency: 100, cores, core_read: 500, core_write: 1_000, ..LinkTiming::default() }
}

fn queues(count: u32, depth: u32) -> Queues {
    Queues { count, depth, ..Queues::default() }
}

fn weighted(classes: &[Class], weights: [u32; 3]) -> Queues {
    let (count, classes) = (classes.len() as u32, classes.to_vec());
    Queues { count, classes, weights, arbitration: Arbitration::Weighted, ..Queues::default() }
}

fn request(id: u64, op: BlockOp, queue: u8) -> BlockReq {
    BlockReq { queue, ..BlockReq::new(id, op, 0, BLOCK_BYTES, Buffer::empty()) }
}

fn read(id: u64, queue: u8) -> BlockReq {
    request(id, BlockOp::Read, queue)
}

fn drive(queues: &Queues, link: LinkTiming) -> Queued<Fixed> {
    Queued::new(queues, Link::new(link, Fixed::new(10_000)))
}

/// Lets all that is due before `until`, or then, happen, a few completions at a time.
fn pass<P>(port: &mut P, until: Time, mut seen: impl FnMut(&BlockDone))
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let mut done = Ring::new(3);
    while let Some(at) = port.next_event().filter(|&at| at <= until) {
        port.advance(at, &mut done);
        done.drain().for_each(|done| seen(&done));
        assert!(port.next_event().is_none_or(|next| next >= at), "time goes back");
    }
}

/// All of `arrivals`, in the order of their times; gives the ends by number.
fn run<P>(mut port: P, arrivals: &[(u64, BlockOp, u8)]) -> Vec<u64>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let (mut cmds, mut ends) = (Ring::new(1), vec![0; arrivals.len()]);
    for (id, &(at, op, queue)) in arrivals.iter().enumerate() {
        pass(&mut port, Time(at), |done| ends[done.id as usize] = done.at.0);
        cmds.put(|| request(id as u64, op, queue));
        port.submit(Time(at), &mut cmds);
        assert!(cmds.is_empty());
    }
    pass(&mut port, Time(u64::MAX), |done| ends[done.id as usize] = done.at.0);
    ends
}

fn arrivals(steps: &[(u64, bool, u8)]) -> Vec<(u64, BlockOp, u8)> {
    let mut at = 0;
    let of = |&(step, reads, queue): &(u64, bool, u8)| {
        at += step;
        (at, if reads { BlockOp::Read } else { BlockOp::Write }, queue)
    };
    steps.iter().map(of).collect()
}

proptest! {
    /// Whichever queue it is: where all go by one, they are as without any.
    #[test]
    fn one_queue_is_the_link_itself(
        steps in prop::collection::vec((0u64..1_500, any::<bool>()), 1..200),
        (cores, count, queue) in (1u32..4, 1u32..5, 0u8..4),
        rate in prop_oneof![Just(0u64), Just(4_096_000_000)],
        burst in 0u32..3,
    ) {
        let steps: Vec<_> = steps.into_iter().map(|(step, reads)| (step, reads, queue)).collect();
        let (all, link) = (arrivals(&steps), LinkTiming { rate, ..link(cores) });
        let queues = Queues { burst, ..queues(count, 1024 / count) };
        prop_assert_eq!(
            run(drive(&queues, link), &all),
            run(Link::new(link, Fixed::new(10_000)), &all)
        );
    }

    /// With one core, commands of a queue end in their order, and the core is never
    /// idle while one waits: all of them end as soon as they would in one line.
    #[test]
    fn order_is_kept_in_a_queue_and_no_core_is_idle(
        steps in prop::collection::vec((0u64..1_500, Just(true), 0u8..5), 1..200),
        classes in prop::collection::vec(0usize..4, 5),
        weights in prop::array::uniform3(1u32..4),
    ) {
        let classes: Vec<Class> = classes.into_iter().map(|n| Class::ALL[n]).collect();
        let all = arrivals(&steps);
        let mut ends = run(drive(&weighted(&classes, weights), link(1)), &all);
        for queue in 0..5 {
            let of = |&i: &usize| all[i].2 == queue;
            let own: Vec<u64> = (0..all.len()).filter(of).map(|i| ends[i]).collect();
            prop_assert!(own.is_sorted(), "{:?}", own);
        }
        ends.sort_unstable();
        prop_assert_eq!(ends, run(Link::new(link(1), Fixed::new(10_000)), &all));
    }
}

/// A lone reader beside 64 that wait: in one line it is behind them, in a queue of
/// its own behind the one that the core has.
#[test]
fn a_lone_reader_waits_for_one_command_and_no_more() {
    let mut all: Vec<_> = (0..64).map(|_| (0, BlockOp::Write, 0)).collect();
    all.push((1, BlockOp::Read, 1));
    let lone = 100 + 500 + 10_000 + 100;
    let at = |ends: Vec<u64>| ends[64] - 1 - lone;
    assert_eq!(at(run(Link::new(link(1), Fixed::new(10_000)), &all)), 64_000 - 1);
    assert_eq!(at(run(drive(&queues(2, 0), link(1)), &all)), 1_000 - 1);
    // A burst goes before it.
    let bursts = Queues { burst: 8, ..queues(2, 0) };
    assert_eq!(at(run(drive(&bursts, link(1)), &all)), 8_000 - 1);
    let low = weighted(&[Class::Low, Class::Urgent], [1, 1, 16]);
    assert_eq!(at(run(drive(&low, link(1)), &all)), 1_000 - 1);
    let low = weighted(&[Class::Low, Class::High], [1, 1, 16]);
    assert_eq!(at(run(drive(&low, link(1)), &all)), 16_000 - 1);
}

#[test]
fn a_full_queue_refuses_and_takes_no_place_of_another() {
    let mut drive = drive(&queues(2, 4), link(1));
    let mut cmds = Ring::new(16);
    (0..6).for_each(|id| cmds.put(|| read(id, 1)));
    drive.submit(Time(0), &mut cmds);
    assert_eq!(cmds.len(), 2, "what waits there is refused");
    let mut other = Ring::new(16);
    (6..12).for_each(|id| other.put(|| read(id, 0)));
    drive.submit(Time(0), &mut other);
    assert_eq!(other.len(), 2);
    // One of a queue that there is not is one of the first.
    let mut none = Ring::new(1);
    none.put(|| read(12, 200));
    drive.submit(Time(0), &mut none);
    assert_eq!(none.len(), 1);
    // A place is free again when its command has completed.
    let mut done = Ring::new(1);
    for (id, left) in [(0, (1, 1)), (6, (0, 1)), (1, (0, 0))] {
        let mut at = Time(0);
        while done.is_empty() {
            at = drive.next_event().unwrap();
            drive.advance(at, &mut done);
        }
        assert_eq!(done.pop().unwrap().id, id);
        drive.submit(at, &mut none);
        drive.submit(at, &mut cmds);
        assert_eq!((none.len(), cmds.len()), left);
    }
}

/// Loops of `depth` a queue; gives how many each queue completed in so long.
fn loops(mut drive: Queued<Fixed>, count: usize, depth: u64, ns: u64) -> Vec<u64> {
    let (mut cmds, mut done, mut ended) = (Ring::new(64), Ring::new(64), vec![0; count]);
    for queue in 0..count {
        (0..depth).for_each(|_| cmds.put(|| read(queue as u64, queue as u8)));
        drive.submit(Time(0), &mut cmds);
    }
    while let Some(at) = drive.next_event().filter(|at| at.0 <= ns) {
        drive.advance(at, &mut done);
        for done in done.drain() {
            ended[done.id as usize] += 1;
            cmds.put(|| read(done.id, done.id as u8));
        }
        drive.submit(at, &mut cmds);
        assert!(cmds.is_empty());
    }
    ended
}

#[test]
fn rates_are_as_the_weights_where_all_have_some() {
    use Class::*;
    let classes = [High, Medium, Medium, Low];
    let weights = [10, 4, 2];
    for cores in [1, 3] {
        let queues = weighted(&classes, weights);
        let ended = loops(drive(&queues, link(cores)), 4, 64, 100_000_000);
        let all: u64 = ended.iter().sum();
        assert!(all.abs_diff(200_000 * u64::from(cores)) < 200, "{ended:?}: the cores are busy");
        for (ended, part) in ended.iter().zip([10, 2, 2, 2]) {
            let share = *ended as f64 / all as f64 * 16.0 / f64::from(part);
            assert!((share - 1.0).abs() < 0.02, "{ended} of {all} for {part} of 16");
        }
    }
    let ended = loops(drive(&queues(3, 0), link(2)), 3, 64, 10_000_000);
    let (least, most) = (ended.iter().min().unwrap(), ended.iter().max().unwrap());
    assert!(most - least <= 2, "{ended:?}");
    let ended = loops(drive(&weighted(&[Low, Urgent], [1; 3]), link(1)), 2, 64, 10_000_000);
    assert!(ended[0] <= 1 && ended[1] > 19_000, "{ended:?}: what is urgent goes first");
}

/// M/D/1 with two classes, of which one goes first and interrupts nothing: of a core
/// with loads w1 and w2, D a command, they wait R / (1 - w1) and
/// R / (1 - w1) (1 - w1 - w2), R = (w1 + w2) D / 2 (Cobham 1954).
#[test]
fn waiting_with_an_urgent_class_is_as_the_formula_says() {
    let (mut rng, work, commands) = (Random::new(7, 0), 500.0, 800_000);
    for (urgent, low) in [(0.2, 0.3), (0.4, 0.4), (0.6, 0.2)] {
        let (mut at, load) = (0.0, urgent + low);
        let of = |_| {
            at -= (1.0 - unit(rng.bits())).ln() * work / load;
            let queue = u8::from(unit(rng.bits()) * load < urgent);
            (at as u64, BlockOp::Read, queue)
        };
        let all: Vec<(u64, BlockOp, u8)> = (0..commands).map(of).collect();
        let queues = weighted(&[Class::Low, Class::Urgent], [1; 3]);
        let ends = run(drive(&queues, link(1)), &all);
        let lone = 100 + 500 + 10_000 + 100;
        let rest = load * work / 2.0;
        let formulas = [rest / (1.0 - urgent) / (1.0 - load), rest / (1.0 - urgent)];
        for (queue, formula) in formulas.into_iter().enumerate() {
            let own = (0..all.len()).filter(|&i| usize::from(all[i].2) == queue);
            let waits: Vec<u64> = own.map(|i| ends[i] - all[i].0 - lone).collect();
            let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
            assert!((mean / formula - 1.0).abs() < 0.02, "{urgent}, {low}: {mean} for {formula}");
        }
    }
}

/// What a command waits in its queue it waits for a core.
#[test]
fn a_story_has_the_wait_in_the_queue() {
    let mut drive = drive(&queues(2, 0), link(1));
    drive.set_stories(true);
    let mut cmds = Ring::new(4);
    (0..4).for_each(|id| cmds.put(|| read(id, id as u8 % 2)));
    drive.submit(Time(7), &mut cmds);
    let mut done = Ring::new(1);
    for n in 0..4 {
        while done.is_empty() {
            let at = drive.next_event().unwrap();
            drive.advance(at, &mut done);
        }
        let end = done.pop().unwrap().at;
        let story = drive.story(n).unwrap();
        assert!(story.is_whole());
        assert_eq!((story.start(), story.end()), (Time(7), end));
        assert_eq!(story.ns_of(Part::Core), (n + 1) * 500);
        assert_eq!((story.ns_of(Part::Link), story.ns_of(Part::Target)), (200, 10_000));
    }
}
