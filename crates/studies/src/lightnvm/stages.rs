//! Layers of a stack whose calls are functions of their own, so that callgrind tells what
//! each takes of a request ([`instructions`](super::super::instructions)).
//!
//! A call counts under its layer, and by whether it belongs to a submission (down) or to
//! taking completions (up): what a layer takes itself is its calls less those of the layer
//! below. A call takes some ten instructions more than it would without. Before
//! [`Way::measure`] nothing is told apart. Nothing here fails.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use device::OpenChannel;
use port::{Port, Ring, Time};

/// Nothing is measured.
const OFF: u8 = 0;
const DOWN: u8 = 1;
const UP: u8 = 2;

/// The way that the request which is under way goes: there is one, and one thread.
static WAY: AtomicU8 = AtomicU8::new(OFF);

/// A layer whose calls are apart, and the names of their functions.
macro_rules! stage {
    ($stage:ident, $about:literal, $submit_down:ident, $advance_down:ident, $submit_up:ident, $advance_up:ident) => {
        #[doc = $about]
        pub struct $stage<P>(pub P);

        #[inline(never)]
        fn $submit_down<P: Port>(port: &mut P, now: Time, cmds: &mut Ring<P::Cmd>) {
            // Functions that are alike would become one.
            std::hint::black_box(stringify!($submit_down));
            port.submit(now, cmds);
        }

        #[inline(never)]
        fn $advance_down<P: Port>(port: &mut P, to: Time, done: &mut Ring<P::Done>) {
            // Functions that are alike would become one.
            std::hint::black_box(stringify!($advance_down));
            port.advance(to, done);
        }

        #[inline(never)]
        fn $submit_up<P: Port>(port: &mut P, now: Time, cmds: &mut Ring<P::Cmd>) {
            // Functions that are alike would become one.
            std::hint::black_box(stringify!($submit_up));
            port.submit(now, cmds);
        }

        #[inline(never)]
        fn $advance_up<P: Port>(port: &mut P, to: Time, done: &mut Ring<P::Done>) {
            // Functions that are alike would become one.
            std::hint::black_box(stringify!($advance_up));
            port.advance(to, done);
        }

        impl<P: Port> Port for $stage<P> {
            type Cmd = P::Cmd;
            type Done = P::Done;

            #[inline]
            fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
                match WAY.load(Relaxed) {
                    DOWN => $submit_down(&mut self.0, now, cmds),
                    UP => $submit_up(&mut self.0, now, cmds),
                    _ => self.0.submit(now, cmds),
                }
            }

            #[inline]
            fn next_event(&self) -> Option<Time> {
                self.0.next_event()
            }

            #[inline]
            fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
                match WAY.load(Relaxed) {
                    DOWN => $advance_down(&mut self.0, to, done),
                    UP => $advance_up(&mut self.0, to, done),
                    _ => self.0.advance(to, done),
                }
            }
        }
    };
}

stage!(
    Layer,
    "The block layer.",
    stage_layer_down_submit,
    stage_layer_down_advance,
    stage_layer_up_submit,
    stage_layer_up_advance
);
stage!(
    Target,
    "The target.",
    stage_target_down_submit,
    stage_target_down_advance,
    stage_target_up_submit,
    stage_target_up_advance
);
stage!(
    Drive,
    "The open-channel drive.",
    stage_device_down_submit,
    stage_device_down_advance,
    stage_device_up_submit,
    stage_device_up_advance
);

impl<D: OpenChannel> OpenChannel for Drive<D> {
    device::as_below!(this => this.0);

    fn has_work_of_its_own(&self) -> bool {
        self.0.has_work_of_its_own()
    }
}

/// The top of a stack: it says which way a call goes.
pub struct Way<P> {
    port: P,
    is_on: bool,
}

impl<P> Way<P> {
    /// Over a stack of which nothing is told apart yet.
    pub fn new(port: P) -> Way<P> {
        Way { port, is_on: false }
    }

    /// From now on calls are told apart.
    pub fn measure(&mut self) {
        self.is_on = true;
    }

    #[inline]
    fn goes(&self, way: u8) {
        if self.is_on {
            WAY.store(way, Relaxed);
        }
    }
}

impl<P: Port> Port for Way<P> {
    type Cmd = P::Cmd;
    type Done = P::Done;

    #[inline]
    fn submit(&mut self, now: Time, cmds: &mut Ring<P::Cmd>) {
        self.goes(DOWN);
        self.port.submit(now, cmds);
    }

    #[inline]
    fn next_event(&self) -> Option<Time> {
        self.port.next_event()
    }

    #[inline]
    fn advance(&mut self, to: Time, done: &mut Ring<P::Done>) {
        self.goes(UP);
        self.port.advance(to, done);
    }
}
