//! Prints what the operations cost when nobody else is about.

use std::hint::black_box;
use std::time::Instant;

use tags::{OwnTags, SharedTags, inbox};

const ROUNDS: u32 = 200_000;
const BATCH: u32 = 32;

/// Nanoseconds for one of the `per_round` things a round does: the best and
/// the middle one of some runs.
fn time(name: &str, per_round: u32, mut round: impl FnMut()) {
    let mut runs: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                round();
            }
            start.elapsed().as_nanos() as f64 / f64::from(ROUNDS * per_round)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<58} best {:6.2} ns, median {:6.2} ns", runs[0], runs[runs.len() / 2]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut held: Vec<u32> = Vec::with_capacity(BATCH as usize);

    let mut own = OwnTags::new(256)?;
    time("OwnTags, take + give, one by one", 1, || {
        if let Some(tag) = black_box(&mut own).take() {
            own.give(black_box(tag));
        }
    });
    let mut slots = [0u32; BATCH as usize];
    time("OwnTags, take + give of one, 32 out at a time", BATCH, || {
        for slot in &mut slots {
            *slot = own.take().unwrap_or(0);
        }
        for &tag in black_box(&slots) {
            own.give(tag);
        }
    });
    time("OwnTags, a tag of a batch of 32, take + give", BATCH, || {
        own.take_batch(black_box(BATCH), &mut |tag| held.push(tag));
        for &tag in &held {
            own.give(tag);
        }
        held.clear();
    });

    for depth in [32, 256, 1024] {
        let set = SharedTags::new(depth)?;
        let mut user = set.user();
        time(&format!("SharedTags of {depth}, take + give, one by one"), 1, || {
            if let Some(tag) = user.take() {
                user.give(black_box(tag));
            }
        });
        time(&format!("SharedTags of {depth}, a tag of a batch of 32, take + give"), BATCH, || {
            user.take_batch(black_box(BATCH), &mut |tag| held.push(tag));
            user.give_batch(&held);
            held.clear();
        });
    }

    let (mut inbox, sender) = inbox::<u64>(64)?;
    time("Inbox, poll while empty", 1, || {
        black_box(black_box(&mut inbox).pop());
    });
    time("Inbox, an item of 32 pushed, then popped, same thread", BATCH, || {
        for i in 0..BATCH {
            let _ = black_box(sender.push(u64::from(i)));
        }
        while let Some(item) = inbox.pop() {
            black_box(item);
        }
    });
    Ok(())
}
