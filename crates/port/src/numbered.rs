//! The number of a command and of its completion, and when that was.
//!
//! A port between two others gives a command a number of its own on the way
//! down, and its owner's back on the way up.

use crate::{BatchDone, BatchReq, BlockDone, BlockReq, KvDone, KvOp, KvReq, Ring, Time};

/// A command or completion, whose owner knows it by its number.
pub trait Numbered {
    /// The number.
    fn number(&self) -> u64;
    /// Puts another number in.
    fn renumber(&mut self, number: u64);
}

/// A completion.
pub trait Completed: Numbered {
    /// When it completed.
    fn at(&self) -> Time;
    /// Makes it complete at another time.
    fn set_at(&mut self, at: Time);
    /// Bytes that it brings, where its command did not say how many.
    #[inline]
    fn brings(&self) -> Option<u64> {
        None
    }
}

impl<T: Completed> Ring<T> {
    /// Moves what completed at `at` or before to the end of `to`, as long as there is room
    /// and nothing later is in front. Gives how many.
    #[inline]
    pub fn pour_due(&mut self, at: Time, to: &mut Ring<T>) -> usize {
        let before = to.len();
        while to.room() > 0
            && self.front().is_some_and(|done| done.at() <= at)
            && let Some(done) = self.pop()
        {
            to.put(|| done);
        }
        to.len() - before
    }
}

/// Implements [`Numbered`], and [`Completed`] for what follows `done`, with the
/// field that has the number.
#[macro_export]
macro_rules! numbered {
    ($number:ident: $($kind:ty),*; done $($done:ty),*) => {
        $($crate::numbered!(one $number: $kind);)*
        $(
            $crate::numbered!(one $number: $done);
            impl $crate::Completed for $done {
                #[inline]
                fn at(&self) -> $crate::Time {
                    self.at
                }
                #[inline]
                fn set_at(&mut self, at: $crate::Time) {
                    self.at = at;
                }
            }
        )*
    };
    (one $number:ident: $kind:ty) => {
        impl $crate::Numbered for $kind {
            #[inline]
            fn number(&self) -> u64 {
                self.$number
            }
            #[inline]
            fn renumber(&mut self, number: u64) {
                self.$number = number;
            }
        }
    };
}

numbered!(id: BlockReq, BatchReq, KvReq; done BlockDone, BatchDone);
numbered!(one id: KvDone);

impl Completed for KvDone {
    #[inline]
    fn at(&self) -> Time {
        self.at
    }

    #[inline]
    fn set_at(&mut self, at: Time) {
        self.at = at;
    }

    #[inline]
    fn brings(&self) -> Option<u64> {
        let has_bytes = matches!(self.op, KvOp::Get | KvOp::List);
        has_bytes.then_some(self.len.min(self.value.len() as u64))
    }
}
