//! Works that run at once, on a thread each.
//!
//! Guarantees: none begins before all have a thread, so where works wait for each
//! other, nobody waits for one that never came. May fail: the system gives no
//! thread; then none has begun.

use std::io;
use std::panic::resume_unwind;
use std::sync::{PoisonError, RwLock};
use std::thread::{Builder, scope};

use drive::error::Error;

/// Runs all of `works` and gives what they give. Where one panics, so does this.
pub fn run_all<T, W>(works: impl IntoIterator<Item = W>) -> Result<Vec<T>, Error>
where
    W: FnOnce() -> T + Send,
    T: Send,
{
    let gate = &RwLock::new(false);
    scope(|scope| {
        let mut is_open = gate.write().unwrap_or_else(PoisonError::into_inner);
        let start = |work: W| {
            let work = move || gate.read().is_ok_and(|is_open| *is_open).then(work);
            Builder::new().spawn_scoped(scope, work)
        };
        let threads = works.into_iter().map(start).collect::<Result<Vec<_>, _>>();
        *is_open = threads.is_ok();
        drop(is_open);
        let threads = threads.map_err(|e| no_thread(&e))?;
        let join = |thread: std::thread::ScopedJoinHandle<'_, Option<T>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        Ok(threads.into_iter().filter_map(join).collect())
    })
}

/// The system gives no thread.
pub fn no_thread(source: &io::Error) -> Error {
    Error::Failed(format!("the system gives no thread: {source}; raise its limit (ulimit -u, -v)"))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_run_at_once_and_give_in_order() {
        let together = Barrier::new(3);
        let together = &together;
        let works = (0..3).map(|i| {
            move || {
                together.wait();
                i
            }
        });
        assert_eq!(run_all(works).unwrap(), [0, 1, 2]);
    }
}
