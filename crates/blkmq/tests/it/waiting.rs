//! Waiting for the device: who sleeps, and who has something to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::topology;
use blkmq::{Config, Context, Driver, HardwareQueue, Plug, build};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Shape, Time};

/// A device with room for one request, which it keeps, and that counts how
/// often somebody sleeps until it interrupts.
struct Keeps(Arc<AtomicUsize>);

struct KeepsQueue(Arc<AtomicUsize>);

impl Driver for Keeps {
    type Queue = KeepsQueue;

    fn shape(&self) -> Shape {
        Shape { bytes: 1 << 20, kept: 0, max_bytes: 4096, depth: 1 }
    }

    fn queues(&self) -> [usize; 3] {
        [1, 0, 0]
    }

    fn open(self) -> Vec<KeepsQueue> {
        vec![KeepsQueue(self.0)]
    }
}

impl Port for KeepsQueue {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, _: Time, cmds: &mut Ring<BlockReq>) {
        cmds.drain().for_each(drop);
    }

    fn next_event(&self) -> Option<Time> {
        None
    }

    fn advance(&mut self, _: Time, _: &mut Ring<BlockDone>) {}
}

impl HardwareQueue for KeepsQueue {
    fn depth(&self) -> usize {
        1
    }

    fn wait(&mut self, _: Option<Duration>) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

fn ask<Q: HardwareQueue>(context: &mut Context<Q>, now: Time, id: u64) {
    let (op, buffer) = (BlockOp::Read, Buffer::empty());
    let mut reqs = Ring::new(1);
    reqs.put(|| BlockReq::new(id, op, id * 4096, 4096, buffer));
    context.submit(now, &mut reqs);
    assert!(reqs.is_empty());
}

#[test]
fn an_open_plug_keeps_nobody_awake_where_there_is_no_tag() {
    let plug = Some(Plug { ns: 100, ..Plug::default() });
    let config = Config { plug, ..Config::new(topology(1, 1)) };
    let slept = Arc::new(AtomicUsize::new(0));
    let (mut contexts, _) = build(&config, Keeps(slept.clone())).unwrap();
    let (context, mut done) = (&mut contexts[0], Ring::new(1));
    ask(context, Time(0), 0);
    context.advance(Time(100), &mut done);
    // Its tag is taken, so this one stays, whatever the plug says.
    ask(context, Time(100), 1);
    for now in [150, 200, 300] {
        context.advance(Time(now), &mut done);
        context.wait(None);
    }
    assert_eq!(slept.load(Ordering::Relaxed), 3);
}
