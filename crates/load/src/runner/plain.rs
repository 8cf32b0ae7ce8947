//! Turns of loads of which little is asked.
//!
//! Guarantees: figures are those of the loop that all others go through; only what it asks
//! of each request and each turn in vain is left out. Fails where the drive does.

use port::Time;

use super::Course;
use crate::driver::Driver;
use crate::load::Load;
use crate::tally::Tally;
use drive::error::Error;

/// Up to `most` turns of a load that [is plain](Load::is_plain) and counts, without what
/// every turn of another is asked. Completions of the last, which began at `before`, are
/// left. Gives when it ended, and how many went before it.
pub(super) fn plain_turns(
    driver: &mut dyn Driver,
    load: &mut Load,
    course: &mut Course,
    tally: &mut Tally,
    (before, most): (&mut Time, u32),
) -> Result<(Time, u32), Error> {
    let mut passed = 0;
    loop {
        let now = driver.turn(None, &mut load.queue, &mut load.done)?;
        if passed + 1 >= most || course.left == 0 {
            return Ok((now, passed));
        }
        course.ended(*before, now, || load.ended());
        load.complete_plain(now, tally, driver);
        (*before, passed) = (now, passed + 1);
        course.look(now, tally.written);
        load.issue_plain(now, &mut course.left, driver);
        if load.is_idle() {
            // Its time is over, and there is nothing to turn for.
            return Ok((now, passed));
        }
    }
}
