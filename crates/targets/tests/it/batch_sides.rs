//! A batched target on either side of a link.

use crate::batch_world::{Random, Setup, batch_buffer, value_of};
use device::{Device, Link, LinkTiming, OpenChannel};
use faults::ScriptedMedium;
use port::{BatchDone, BatchOp, BatchReq, Buffer, Port, Ring, Status, Time};
use targets::Batch;

fn slow() -> LinkTiming {
    let (controller, latency, rate) = (5_000, 500, 3_200_000_000);
    LinkTiming { controller, latency, rate, ..LinkTiming::default() }
}

fn device(setup: &Setup, kept: u32) -> Device<ScriptedMedium> {
    let geometry = setup.geometry();
    let medium = ScriptedMedium::ram(&geometry, kept, ());
    Device::new(&geometry, &setup.timing, medium).unwrap()
}

/// Random batches and reads, one behind the other: the pages at the end, and how
/// long the first batch took.
fn work<P: Port<Cmd = BatchReq, Done = BatchDone>>(
    port: &mut P,
    mut now: Time,
    pages: u64,
) -> (Vec<u64>, u64) {
    let (mut queue, mut done, mut random) = (Ring::new(1), Ring::new(8), Random(7));
    let mut ask = |port: &mut P, op, lpid, buffer| {
        let came = now;
        queue.push(BatchReq { id: 77, op, lpid, buffer }).unwrap();
        loop {
            port.submit(now, &mut queue);
            now = port.next_event().expect("a request ends");
            port.advance(now, &mut done);
            if let Some(done) = done.pop() {
                assert_eq!((done.id, done.at), (77, now));
                return (done.status, done.buffer, now - came);
            }
        }
    };
    let (mut model, mut first, mut value) = (vec![0; pages as usize], None, 0);
    for _ in 0..300 {
        let lpids: Vec<u64> = (0..1 + random.below(30)).map(|_| random.below(pages)).collect();
        let values: Vec<u64> = lpids.iter().map(|_| (value += 1, value).1).collect();
        lpids.iter().zip(&values).for_each(|(&lpid, &value)| model[lpid as usize] = value);
        let (status, _, took) = ask(port, BatchOp::WriteBatch, 0, batch_buffer(&lpids, &values, 8));
        assert!(status.is_ok(), "{status}");
        first.get_or_insert(took);
    }
    for lpid in 0..pages {
        let (status, buffer, _) = ask(port, BatchOp::Read, lpid, Buffer::zeroed(8).unwrap());
        let value = if status == Status::UNWRITTEN { 0 } else { value_of(buffer.bytes()) };
        assert_eq!(value, model[lpid as usize]);
    }
    (model, first.unwrap())
}

#[test]
fn it_serves_on_either_side_of_a_link() {
    let setup = Setup::small(3).filled(80);
    let pages = setup.config.pages;
    let below: Box<dyn OpenChannel> = Box::new(device(&setup, 8));
    let below = Batch::open(below, setup.config, Time::ZERO).unwrap();
    let now = below.now();
    let mut inside = Link::new(slow(), below);
    let (a, in_controller) = work(&mut inside, now, pages);
    let link: Box<dyn OpenChannel> = Box::new(Link::new(slow(), device(&setup, 8)));
    let mut above = Batch::open(link, setup.config, Time::ZERO).unwrap();
    let now = above.now();
    let (b, in_host) = work(&mut above, now, pages);
    assert_eq!(a, b);
    // In the host the log row and the pages go over the link one after the
    // other; in the controller the batch goes over it once.
    assert!(in_host > in_controller, "{in_host} {in_controller}");
}
