//! What all media over another have.

/// The medium below one.
macro_rules! over_another_medium {
    ($medium:ident) => {
        impl<M> $medium<M> {
            /// The medium below.
            pub fn below(&self) -> &M {
                &self.below
            }

            /// The medium below, to be changed or damaged while nothing is asked or
            /// held here.
            pub fn below_mut(&mut self) -> &mut M {
                &mut self.below
            }

            /// The medium below without this one; what is held is lost.
            pub fn into_below(self) -> M {
                self.below
            }
        }
    };
}
pub(crate) use over_another_medium;

/// What the medium below says and is told, in the implementation of one over it.
macro_rules! passed_on {
    () => {
        fn is_cached(&self) -> bool {
            self.below.is_cached()
        }

        fn has_news(&self) -> Option<bool> {
            self.below.has_news()
        }

        fn note_time(&mut self, ns: u64) {
            self.below.note_time(ns);
        }

        fn time(&self) -> u64 {
            self.below.time()
        }

        fn hint(&self, at: flash::Ppa) {
            self.below.hint(at);
        }

        fn hint_tag(&self, at: flash::Ppa) {
            self.below.hint_tag(at);
        }
    };
}
pub(crate) use passed_on;
