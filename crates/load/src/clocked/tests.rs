use std::sync::{Arc, Mutex};

use blkmq::{Config, Driver as BlockDriver, Spread, Topology, build};
use port::{BlockOp, Buffer, Shape};

use super::*;

/// What is done at a look, by the number of looks before it.
type OnLook = Arc<Mutex<Option<Box<dyn FnMut(u32) + Send>>>>;

/// A device with two queues of one request each, which complete at the next
/// look. The looks at the second are told.
struct Told(OnLook);

struct ToldQueue {
    inside: Option<BlockReq>,
    tell: Option<OnLook>,
    looks: u32,
}

impl BlockDriver for Told {
    type Queue = ToldQueue;

    fn shape(&self) -> Shape {
        Shape { bytes: 1 << 20, kept: 0, max_bytes: 4096, depth: 1 }
    }

    fn queues(&self) -> [usize; 3] {
        [2, 0, 0]
    }

    fn open(self) -> Vec<ToldQueue> {
        [None, Some(self.0)].map(|tell| ToldQueue { inside: None, tell, looks: 0 }).into()
    }
}

impl Port for ToldQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _: Time, cmds: &mut Ring<BlockReq>) {
        self.inside = self.inside.take().or_else(|| cmds.pop());
    }

    fn next_event(&self) -> Option<Time> {
        self.inside.as_ref().map(|_| Time::ZERO)
    }

    fn advance(&mut self, at: Time, done: &mut Ring<BlockDone>) {
        if let Some(tell) = &self.tell
            && let Some(tell) = &mut *tell.lock().unwrap()
        {
            tell(self.looks);
            self.looks += 1;
        }
        if let Some(BlockReq { id, op, buffer, .. }) = self.inside.take() {
            done.put(|| BlockDone { id, op, status: port::Status::SUCCESS, at, buffer });
        }
    }
}

impl HardwareQueue for ToldQueue {
    fn depth(&self) -> usize {
        1
    }
}

fn reads(n: u64) -> Ring<BlockReq> {
    let mut reqs = Ring::new(n as usize);
    for id in 0..n {
        reqs.put(|| BlockReq::new(id, BlockOp::Read, 0, 4096, Buffer::empty()));
    }
    reqs
}

/// A core that got nothing into the staging queue waits until there is room, and
/// no longer: else it would look for a tenth of a second, and come too late.
#[test]
fn who_found_no_room_offers_again_when_there_is_some() {
    let on_look = OnLook::default();
    let config = Config {
        staging: Spread::One,
        staging_depth: 2,
        ..Config::new(Topology::new(2, 1).unwrap())
    };
    let (mut contexts, _) = build(&config, Told(on_look.clone())).unwrap();
    let (mut little, mut much) = (contexts.pop().unwrap(), contexts.pop().unwrap());
    // One is in the device, two are staged, and one finds no room.
    for n in [2, 2] {
        much.submit(Time::ZERO, &mut reads(n));
    }
    let looks = Arc::new(Mutex::new(0));
    let (counted, mut done) = (looks.clone(), Ring::new(4));
    // The other core looks meanwhile, and one of its requests completes.
    *on_look.lock().unwrap() = Some(Box::new(move |before| {
        *counted.lock().unwrap() = before + 1;
        if before == 3 {
            much.advance(Time(1), &mut done);
        }
    }));
    let strategy = Strategy::Interrupt;
    let ways = Ways { tells_when: false, strategy, plug: None, meanwhile: false, figures: vec![] };
    let mut driver = Clocked::new(&mut little, Clock::start(), 4, ways);
    let (mut queue, mut done) = (reads(1), Ring::new(4));
    driver.turn(None, &mut queue, &mut done).unwrap();
    assert_eq!((queue.len(), done.len(), *looks.lock().unwrap()), (1, 0, 4));
    driver.turn(None, &mut queue, &mut done).unwrap();
    assert_eq!((queue.len(), done.len()), (0, 1));
}

/// What a drive completed while it was looked at is not seen before that.
#[test]
fn what_completes_during_a_look_is_seen_after_it() {
    for strategy in [Strategy::Poll, Strategy::Interrupt] {
        let on_look = OnLook::default();
        let (mut contexts, _) =
            build(&Config::new(Topology::new(2, 1).unwrap()), Told(on_look.clone())).unwrap();
        let mut context = contexts.pop().unwrap();
        let (clock, completed) = (Clock::start(), Arc::new(Mutex::new(Time::ZERO)));
        let noted = completed.clone();
        *on_look.lock().unwrap() = Some(Box::new(move |_| {
            let begun = clock.now();
            while clock.now() == begun {}
            *noted.lock().unwrap() = clock.now();
        }));
        let ways =
            Ways { tells_when: true, strategy, plug: None, meanwhile: true, figures: vec![] };
        let mut driver = Clocked::new(&mut context, clock, 4, ways);
        let (mut queue, mut done) = (reads(1), Ring::new(4));
        let now = driver.turn(None, &mut queue, &mut done).unwrap();
        assert_eq!(done.len(), 1);
        assert!(now >= *completed.lock().unwrap(), "{strategy:?}");
    }
}
