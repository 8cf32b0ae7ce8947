//! How drives end: their targets are shut down, what is under way is let end, and what lies
//! below is given back; or their power is cut. Fails where the drive could not be shut down.

use ftl::Over;
use port::{BlockDone, BlockReq, Port, Time};

use super::{Cut, Ended, Left};
use crate::error::Error;
use crate::lower::Lower;
use crate::patience::let_happen;

/// Shuts down a target, and what is below it.
pub(crate) fn end<T: Over<Below: Lower>>(mut target: Box<T>, now: Time) -> Result<Ended, Error> {
    let (at, closed) = close(&mut *target, now);
    ended(Box::new(target.into_below()), closed, at)
}

/// Lets a target come to its end. Gives when that is, and whether it went well.
pub(crate) fn close<T: Over<Below: Lower>>(target: &mut T, now: Time) -> (Time, bool) {
    target.below_mut().device_mut().set_on_a_clock(false);
    let at = rest(target, now, Some(now));
    target.close(now);
    let at = at.max(rest(target, now, None));
    (at, target.is_closed())
}

/// Lets what is due happen, until then or until nothing is: also what comes after the end,
/// erases that nothing waits for. Gives the time that it came to, not before `now`.
pub(crate) fn rest<P>(port: &mut P, now: Time, until: Option<Time>) -> Time
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let_happen(port, now, |_, event| until.is_none_or(|until| event <= until))
}

/// What a drive left whose targets have ended, all well or not.
pub(crate) fn ended(lower: Box<dyn Lower>, closed: bool, at: Time) -> Result<Ended, Error> {
    let device = lower.into_device();
    let chunks = device.chunks().to_vec();
    let medium = device.cut().into_lowest();
    match medium.fault() {
        Some((fault, _)) => Err(fault),
        None if closed => Ok(Ended { shards: vec![Left { medium, chunks }], at }),
        None => Err(Error::Failed(
            "the drive could not be shut down, as too much of it is worn out or failed; \
             what was flushed is there"
                .into(),
        )),
    }
}

/// What a shard left whose power was cut.
pub(crate) fn cut(lower: Box<dyn Lower>) -> Cut {
    let device = lower.into_device();
    let chunks = device.chunks().to_vec();
    Cut { shards: vec![Left { medium: device.cut().into_lowest(), chunks }], journal: None }
}
