//! Turns of loads of which little is asked.
//!
//! Guarantees: figures are those of the loop that all others go through; only what it asks
//! of each request and each turn in vain is left out. Fails where the drive does.

use port::Time;

use super::{Course, look_at_dies};
use crate::driver::Driver;
use crate::load::Load;
use crate::own::Timer;
use crate::tally::Tally;
use drive::error::Error;

/// Up to `most` turns of a load that [is plain](Load::is_plain) and counts, without what
/// every turn of another is asked. Completions of the last, which began at `before` and is
/// not told to `timer`, are left; so are those of a turn of which more is asked. Gives when
/// it ended, and how many went before it.
pub(super) fn plain_turns(
    driver: &mut dyn Driver,
    load: &mut Load,
    course: &mut Course,
    counts: (&mut Tally, &mut Timer),
    turns: (&mut Time, u32),
) -> Result<(Time, u32), Error> {
    // Where stories are asked for, what took long is looked for in its slot.
    let lone = load.to_lone().filter(|_| counts.0.slowest.is_none());
    let Some(mut lone) = lone else {
        let goes_on =
            |load: &mut Load, course: &mut Course, tally: &mut Tally, now, of: &dyn Driver| {
                if tally.causes.is_some() {
                    load.tell_all(now, tally, of);
                }
                let ended = load.complete_plain(now, tally, of);
                course.look(now, tally.written);
                load.issue_plain(now, &mut course.left, ended, of);
            };
        return turns_of(driver, load, course, counts, turns, goes_on);
    };
    let goes_on =
        |load: &mut Load, course: &mut Course, tally: &mut Tally, now, of: &dyn Driver| {
            let ended = lone.complete(load, now, tally, of);
            course.look(now, tally.written);
            if ended {
                lone.issue(load, now, &mut course.left);
            }
        };
    let turned = turns_of(driver, load, course, counts, turns, goes_on);
    lone.leave(load);
    turned
}

/// Those turns, after each of which it `goes_on`.
#[inline(always)]
fn turns_of(
    driver: &mut dyn Driver,
    load: &mut Load,
    course: &mut Course,
    (tally, timer): (&mut Tally, &mut Timer),
    (before, most): (&mut Time, u32),
    mut goes_on: impl FnMut(&mut Load, &mut Course, &mut Tally, Time, &dyn Driver),
) -> Result<(Time, u32), Error> {
    // Turns that are over, and those of them that the timer knows of.
    let (mut passed, mut told) = (0, 0);
    let mut stop = most.min(timer.left());
    loop {
        timer.turns();
        let now = driver.turn(None, &mut load.queue, &mut load.done)?;
        let is_last = passed + 1 >= most || course.left == 0;
        if is_last || load.asks_more(now, tally) {
            timer.turned(passed - told);
            return Ok((now, passed));
        }
        if passed + 1 >= stop {
            timer.turned(passed + 1 - told);
            told = passed + 1;
            stop = most.min(told + timer.left());
        }
        course.ended(*before, now, || load.ended());
        goes_on(load, course, tally, now, driver);
        look_at_dies(tally, now, driver);
        (*before, passed) = (now, passed + 1);
        if course.left == 0 && load.is_idle() {
            // Its time is over, and there is nothing to turn for.
            timer.turned(passed - told);
            return Ok((now, passed));
        }
    }
}
